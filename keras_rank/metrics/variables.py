"""The variables of metrics: sums over lists, at places of their own in a model."""

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import keras
from keras import ops

from keras_rank import state
from keras_rank.arguments import check_no_loss
from keras_rank.backends import Tensor, backend

# A variable, and its new value.
Update = tuple[keras.Variable, Tensor]


class Place:
    """Where the variables of a metric are in the state tree of a model."""

    path = ""


# What methods are called in other libraries.
_ELSEWHERE = {
    "update": "update_state",
    "compute": "result",
    "reset": "reset_state",
    "reset_states": "reset_state",
}
# What Keras asks a callback for first.
_OF_CALLBACKS = ("on_batch_end", "set_model", "set_params")
# The paths of the metrics that Keras is compiling into one model.
_places_in_model: dict[str, Place] = {}


class PlacedMetric(keras.metrics.Metric):
    """A metric with a place of its own in the state tree of a model.

    Its path is its name, as for Keras's metrics. Of equal names in one model, such as
    those of two outputs, the second gets a number, as Keras numbers results.
    """

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        # Keras sets the name again when it compiles a model: that of one metric after
        # the other, before it updates the first.
        is_compiled = "_name" in vars(self)
        self._name = name
        if is_compiled:
            place(self._places(), _places_in_model)
        else:
            end_compiling()
            self._place = Place()
            place([(self._place, name)], {})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            meant = _ELSEWHERE.get(name)
            question = "" if meant is None else f". Did you mean `{meant}`?"
            if name in _OF_CALLBACKS:
                question = ", as a metric is no callback: pass it to `compile`"
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} has no attribute {name!r}{question}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a batch, and returns the result since the last reset."""
        if not backend.is_compiling():
            check_no_loss(self, sys._getframe(1))
        return super().__call__(*args, **kwargs)

    def _places(self) -> list[tuple[Place, str]]:
        """The places of variables, and what they are named after."""
        return [(self._place, self.name)]


def place(places: Iterable[tuple[Place, str]], taken: dict[str, Place]) -> None:
    """Gives each place a path that no other has taken."""
    for each, name in places:
        # A path is split at this character.
        path = first = name.replace("/", ">")
        number = 0
        while taken.get(path, each) is not each:
            number += 1
            path = f"{first}_{number}"
        taken[path] = each
        each.path = path


def end_compiling() -> None:
    """Notes that Keras has compiled the metrics of a model, or failed to.

    It then updates them, or the user makes new ones.
    """
    if _places_in_model:
        _places_in_model.clear()


class SumVariable(keras.Variable):
    """A variable that is summed over replicas, at the place of its metric.

    `add_variable` would create it in the precision of a mixed-precision policy, which
    is too low for sums, and at a path that does not follow: a group has its members
    when their variables exist. Its name scope also fails in a graph of TensorFlow for
    names such as "ndcg@10".
    """

    def __init__(
        self,
        place: Place,
        shape: tuple[int, ...],
        dtype: str,
        name: str,
        first: Tensor | None = None,
    ) -> None:
        self._place = place
        initializer = "zeros" if first is None else lambda shape, dtype: first
        with backend.lasting():
            super().__init__(
                initializer=initializer,
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
        return f"{scope}{self._place.path}/{self.name}"


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

    def of(self, slots: Sequence[int]) -> "State":
        """Returns the sums of some metrics, stacked."""
        if tuple(self.lists_seen.shape) in ((), (len(slots),)):
            return self
        return stacked([self.one(slot) for slot in slots])

    def replaced(self, slots: Sequence[int], others: "State") -> "State":
        """Returns the sums of all metrics, those of some replaced by others."""
        if tuple(self.lists_seen.shape) in ((), (len(slots),)):
            return others
        each = self.each()
        for slot, other in zip(slots, others.each(), strict=True):
            each[slot] = other
        return stacked(each)

    def one(self, slot: int) -> "State":
        """Returns the sums of one metric, not stacked."""
        return State(*(x[..., slot] for x in self)) if self.is_stacked else self

    def each(self) -> "list[State]":
        """Returns the sums of each of many metrics."""
        number = self.lists_seen.shape[0]
        parts = (ops.unstack(x, number, axis=-1) for x in self)
        return [State(*each) for each in zip(*parts, strict=True)]


def stacked(states: Sequence[State]) -> State:
    """Stacks the sums of metrics."""
    return State(*(ops.stack(x, axis=-1) for x in zip(*states, strict=True)))


# Whether metrics are made for a group, in which they need no variables of their own.
_are_for_a_group: ContextVar[bool] = ContextVar("are_for_a_group", default=False)


@contextlib.contextmanager
def for_a_group() -> Iterator[None]:
    """A context in which metrics are made without variables: a group makes them.

    A metric that remains alone makes its own when they are asked for. That is no way
    for all metrics, as code that is compiled can't make any.
    """
    token = _are_for_a_group.set(True)
    try:
        yield
    finally:
        _are_for_a_group.reset(token)


class Sums:
    """The variables of a metric, or those that all members of a group have in common.

    Three, however many members there are: they are arguments of each compiled step, and
    what replicas exchange.
    """

    def __init__(self, place: Place, members: Sequence[State | None] = ()) -> None:
        """Creates the variables: zeros, or the sums that members have already."""
        self._place, self._members = place, members
        if not _are_for_a_group.get():
            _ = self.variables

    @property
    def exist(self) -> bool:
        """Whether there are variables yet."""
        return "variables" in vars(self)

    @functools.cached_property
    def variables(self) -> list[SumVariable]:
        """The variables, as in `State`."""
        shapes = State(state.SHAPE, state.SHAPE[1:], ())
        dtypes = State("float32", "float32", "int32")
        members, self._members = self._members, ()
        many = (len(members),) if members else ()
        first: Sequence[Tensor | None] = (None, None, None)
        with backend.lasting():
            if any(members):
                none = State(*map(ops.zeros, shapes, dtypes))
                first = stacked([member or none for member in members])
        return [
            SumVariable(self._place, (*shape, *many), dtype, name, value)
            for shape, dtype, name, value in zip(
                shapes, dtypes, State._fields, first, strict=True
            )
        ]

    @property
    def state(self) -> State:
        totals, remainders, lists_seen = self.variables
        return State(totals.value, remainders.value, lists_seen.value)

    def updates(self, new: State) -> list[Update]:
        """Returns the variables with their new values."""
        return list(zip(self.variables, new, strict=True))

    def zeros(self) -> State:
        """The sums of no lists."""
        return State(*(ops.zeros(x.shape, x.dtype) for x in self.variables))


def assign(updates: Sequence[Update]) -> None:
    """Assigns new values to variables."""
    for variable, value in updates:
        variable.assign(value)
