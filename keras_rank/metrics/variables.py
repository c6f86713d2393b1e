"""The variables of metrics, and their paths in the state tree of a model."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank import state
from keras_rank.backends import Tensor, backend

# A variable, and its new value.
Update = tuple[keras.Variable, Tensor]

# The paths of the metrics that Keras is compiling into one model.
_paths_in_model: dict[str, Any] = {}


def _get_name(metric: Any) -> str:
    name: str = metric._name
    return name


def _set_name(metric: Any, name: str) -> None:
    # Keras sets the name again when it compiles a model: that of one metric after
    # the other, before it updates the first.
    is_compiled = "_name" in vars(metric)
    metric._name = name
    if is_compiled:
        set_paths(metric, _paths_in_model)
    else:
        end_compiling()
        set_path(metric, name, {})


# A property for classes of metrics. The path of the variables is the name, as for
# Keras's metrics. Of equal names in one model, such as those of two outputs, the second
# gets a number, as Keras numbers results.
name_with_path = property(_get_name, _set_name, doc="The name of the metric.")


def set_paths(metric: Any, taken: dict[str, Any]) -> None:
    """Sets the paths of a metric, and of the members of a group with variables."""
    set_path(metric, metric.name, taken)
    for member, name in getattr(metric, "_members_with_paths", ()):
        set_path(member, name, taken)


def set_path(metric: Any, name: str, taken: dict[str, Any]) -> None:
    """Sets the path of a metric to one that no other metric has taken."""
    # A path is split at this character.
    path = first = name.replace("/", ">")
    number = 0
    while taken.get(path, metric) is not metric:
        number += 1
        path = f"{first}_{number}"
    taken[path] = metric
    metric._path = path


def end_compiling() -> None:
    """Notes that Keras has compiled the metrics of a model, or failed to.

    It then updates them, or the user makes new ones.
    """
    if _paths_in_model:
        _paths_in_model.clear()


class SumVariable(keras.Variable):
    """A variable that is summed over replicas, at the path of its metric.

    `add_variable` would create it in the precision of a mixed-precision policy, which
    is too low for sums, and at a path that does not follow a new name. Its name scope
    also fails in a graph of TensorFlow for names such as "ndcg@10".
    """

    def __init__(
        self, metric: Any, shape: tuple[int, ...], dtype: str, name: str
    ) -> None:
        self._metric = metric
        with backend.lasting():
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
        """The path of the metric, and the name."""
        scope = super().path.removesuffix(self.name)
        return f"{scope}{self._metric._path}/{self.name}"


class State(NamedTuple):
    """The sums of one metric, or those of many, stacked along the last axis.

    Attributes:
        totals: float32 tensor of shape `(2, 4, 4)`. See `keras_rank.state`.
        remainders: float32 tensor of shape `(4, 4)`. What is too small for them.
        lists_seen: int32 scalar. It keys the shuffle, and may wrap after 2**31 lists.
    """

    totals: Tensor
    remainders: Tensor
    lists_seen: Tensor

    @property
    def is_stacked(self) -> bool:
        return len(self.lists_seen.shape) > 0

    def of(self, indices: Sequence[int]) -> "State":
        """Returns the sums of some metrics, stacked."""
        if tuple(self.lists_seen.shape) in ((), (len(indices),)):
            return self
        return _stacked([self.one(index) for index in indices])

    def replaced(self, indices: Sequence[int], others: "State") -> "State":
        """Returns the sums of all metrics, those of some replaced by others."""
        if tuple(self.lists_seen.shape) in ((), (len(indices),)):
            return others
        each = self.each()
        for index, other in zip(indices, others.each(), strict=True):
            each[index] = other
        return _stacked(each)

    def one(self, index: int) -> "State":
        """Returns the sums of one metric, not stacked."""
        return State(*(x[..., index] for x in self)) if self.is_stacked else self

    def each(self) -> "list[State]":
        """Returns the sums of each of many metrics."""
        number = self.lists_seen.shape[0]
        parts = (ops.unstack(x, number, axis=-1) for x in self)
        return [State(*each) for each in zip(*parts, strict=True)]


def _stacked(states: Iterable[State]) -> State:
    """Stacks the sums of metrics."""
    return State(*(ops.stack(x, axis=-1) for x in zip(*states, strict=True)))


def list_sums(metric: Any, members: int | None = None) -> list[SumVariable]:
    """Creates the three variables of `State` for a metric, or for a group.

    However many members a group has, its variables are three: they are arguments of
    each compiled step, and what replicas exchange.

    Args:
        metric: the metric or the group.
        members: the number of metrics of lists in a group.
    """
    return [
        SumVariable(metric, shape, dtype, name)
        for name, (shape, dtype) in _specs(members).items()
    ]


def zero_state(members: int) -> State:
    """Returns the sums of no lists, for a number of metrics of a group."""
    return State(*(ops.zeros(*spec) for spec in _specs(members).values()))


def _specs(members: int | None) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns the shapes and dtypes of `State`, by its fields."""
    stack = () if members is None else (members,)
    return {
        "totals": ((*state.SHAPE, *stack), "float32"),
        "remainders": ((*state.SHAPE[1:], *stack), "float32"),
        "lists_seen": (stack, "int32"),
    }


def state_of(sums: Sequence[SumVariable]) -> State:
    """Returns the values of the variables."""
    totals, remainders, lists_seen = sums
    return State(totals.value, remainders.value, lists_seen.value)


def assign(updates: Iterable[Update]) -> None:
    """Assigns new values to variables."""
    for variable, value in updates:
        variable.assign(value)
