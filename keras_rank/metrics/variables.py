"""The variables of metrics, and their paths in the state tree of a model."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank import state
from keras_rank.backends import Tensor, backend

# A variable and its new value.
Update = tuple[keras.Variable, Tensor]

# The paths of the metrics that Keras is compiling into one model, and the metrics.
_paths_in_model: dict[str, Any] = {}


def _get_name(metric: Any) -> str:
    name: str = metric._name
    return name


def _set_name(metric: Any, name: str) -> None:
    # Keras sets the name a second time when it compiles a model. It names all metrics
    # before it updates the first one.
    is_being_compiled = "_name" in vars(metric)
    metric._name = name
    if is_being_compiled:
        set_paths(metric, _paths_in_model)
    else:
        end_compiling()
        set_path(metric, name, {})


# A property for classes of metrics. The path of the variables is the name, as for
# Keras's metrics. If two metrics of a model have the same name, for example at two
# outputs, the path of the second one ends in a number, as Keras numbers results.
name_with_path = property(_get_name, _set_name, doc="The name of the metric.")


def set_paths(metric: Any, taken: dict[str, Any]) -> None:
    """Sets the paths of a metric, and of the members of a group that have variables."""
    set_path(metric, metric.name, taken)
    for member, name in getattr(metric, "_members_with_paths", ()):
        set_path(member, name, taken)


def set_path(metric: Any, name: str, taken: dict[str, Any]) -> None:
    """Sets the path of a metric to a path that no other metric has taken."""
    # Keras splits paths at "/", so a name must not contain it.
    path = first = name.replace("/", ">")
    number = 0
    while taken.get(path, metric) is not metric:
        number += 1
        path = f"{first}_{number}"
    taken[path] = metric
    metric._path = path


def end_compiling() -> None:
    """Clears the taken paths, as Keras has compiled the metrics of a model or failed.

    It is called when a metric is updated or created.
    """
    if _paths_in_model:
        _paths_in_model.clear()


class SumVariable(keras.Variable):
    """A variable that is summed over replicas, at the path of its metric.

    `add_variable` is not used for three reasons. It creates a variable in the precision
    of a mixed-precision policy, which is too low for sums. The path of the variable
    does not change with the name of the metric. Its name scope fails in a TensorFlow
    graph for names such as "ndcg@10".
    """

    def __init__(
        self, metric: Any, shape: tuple[int, ...], dtype: str, name: str
    ) -> None:
        self._metric = metric
        with backend.persistent_scope():
            super().__init__(
                initializer="zeros",
                shape=shape,
                dtype=dtype,
                trainable=False,
                autocast=False,
                aggregation="sum",
                synchronization="on_read",
                name=name,
            )

    @property
    def path(self) -> str:
        """The path of the metric and the name of the variable, joined by `/`."""
        scope = super().path.removesuffix(self.name)
        return f"{scope}{self._metric._path}/{self.name}"


class State(NamedTuple):
    """The sums of one metric, or of several metrics stacked along the last axis.

    Attributes:
        totals: float32 tensor of shape `(2, 4, 4)`. See `keras_rank.state`.
        remainders: float32 tensor of shape `(4, 4)`. The part of the sums that is too
            small for the totals.
        lists_seen: int32 scalar. The number of lists, which is a key of the shuffle. It
            may wrap around after 2**31 lists.
    """

    totals: Tensor
    remainders: Tensor
    lists_seen: Tensor

    @property
    def is_stacked(self) -> bool:
        return len(self.lists_seen.shape) > 0

    def select(self, indices: Sequence[int]) -> "State":
        """Returns the stacked sums of the metrics at the indices."""
        if tuple(self.lists_seen.shape) in ((), (len(indices),)):
            return self
        return _stack([self.get(index) for index in indices])

    def replace_metrics(self, indices: Sequence[int], others: "State") -> "State":
        """Returns the sums of all metrics, with new sums for those at the indices."""
        if tuple(self.lists_seen.shape) in ((), (len(indices),)):
            return others
        states = self.unstack()
        for index, other in zip(indices, others.unstack(), strict=True):
            states[index] = other
        return _stack(states)

    def get(self, index: int) -> "State":
        """Returns the sums of one metric, not stacked."""
        return State(*(x[..., index] for x in self)) if self.is_stacked else self

    def unstack(self) -> "list[State]":
        """Returns the sums of each metric as a list."""
        num_metrics = self.lists_seen.shape[0]
        fields = (ops.unstack(x, num_metrics, axis=-1) for x in self)
        return [State(*values) for values in zip(*fields, strict=True)]


def _stack(states: Iterable[State]) -> State:
    """Stacks the sums of several metrics along the last axis."""
    return State(*(ops.stack(x, axis=-1) for x in zip(*states, strict=True)))


def create_list_sums(metric: Any, members: int | None = None) -> list[SumVariable]:
    """Creates the three variables of a `State` for a metric or a group.

    A group has three variables for any number of members. A small number matters, as
    variables are arguments of each compiled step, and replicas exchange them.

    Args:
        metric: the metric or the group.
        members: the number of list metrics in the group. Defaults to `None` for a
            single metric.
    """
    return [
        SumVariable(metric, shape, dtype, name)
        for name, (shape, dtype) in _get_specs(members).items()
    ]


def zero_state(members: int) -> State:
    """Returns the sums over no lists, for `members` list metrics of a group."""
    return State(*(ops.zeros(*spec) for spec in _get_specs(members).values()))


def _get_specs(members: int | None) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns the shapes and dtypes of `State`, by its fields."""
    stack_shape = () if members is None else (members,)
    return {
        "totals": ((*state.SHAPE, *stack_shape), "float32"),
        "remainders": ((*state.SHAPE[1:], *stack_shape), "float32"),
        "lists_seen": (stack_shape, "int32"),
    }


def read_state(sums: Sequence[SumVariable]) -> State:
    """Returns the values of the three variables as a `State`."""
    totals, remainders, lists_seen = sums
    return State(totals.value, remainders.value, lists_seen.value)


def assign(updates: Iterable[Update]) -> None:
    """Assigns the new values to the variables."""
    for variable, value in updates:
        variable.assign(value)
