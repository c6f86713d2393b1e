"""Programs: an eager call as one compiled function, on JAX.

JAX compiles each operation of eager code, for each shape. So there a call is one
function, compiled at its first call and cached by what it depends on. The outcomes of
its checks come back with its result, and are read once.

TensorFlow traces slowly. So there a call in a graph is one function, traced for the
first graph and cached in the same way.
"""

import dataclasses
import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import numpy as np
from keras import ops

from keras_rank.arrays.backends import (
    Tensor,
    as_tree,
    compiled_by_eager_code,
    is_in_branch,
    is_in_graph,
    is_known_false,
    is_traced,
    runs_within_another,
    to_device,
    traced_once,
)

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0]

# Sizes above it are rounded up by at most a quarter.
_FINE = 256

_conditions: ContextVar[list[tuple[Tensor, str]] | None] = ContextVar(
    "conditions", default=None
)
# Whether a program is being traced, of which inner ones become part.
_is_traced_once = ContextVar("is_traced_once", default=False)


def program(function: Function) -> Function:
    """Makes a function one program: in eager code on JAX, in graphs on TensorFlow.

    A user's code may do anything, and change, so functions that depend on it run as
    written, between programs (see `is_whole`).

    Args:
        function: function of what the program depends on, which is hashable, and of
            its inputs: tensors, in lists, tuples or dataclasses that are trees
            (`as_tree`).
    """

    def with_checks(depends: Any, *tensors: Any) -> tuple[Any, Checks]:
        token = _conditions.set([])
        try:
            result = function(depends, *tensors)
            return result, Checks.of(_conditions.get() or [])
        finally:
            _conditions.reset(token)

    compiled = compiled_by_eager_code(with_checks)
    if compiled is None:
        return _traced_once(function)

    @functools.wraps(function)
    def call(depends: Any, *tensors: Any) -> Any:
        if runs_within_another(tensors) or not is_whole(depends):
            return function(depends, *tensors)
        result, checks = compiled(depends, *tensors)
        checks.raise_first()
        return result

    return cast(Function, call)


def _traced_once(function: Function) -> Function:
    """A program for graphs of TensorFlow; programs within it become part of it."""
    traced = traced_once(function)
    if traced is None:
        return function

    @functools.wraps(function)
    def call(depends: Any, *tensors: Any) -> Any:
        if _is_traced_once.get() or not is_in_graph(tensors) or not is_whole(depends):
            return function(depends, *tensors)
        token = _is_traced_once.set(True)
        try:
            return traced(depends, *tensors)
        finally:
            _is_traced_once.reset(token)

    return cast(Function, call)


def require(condition: Tensor, message: str) -> None:
    """Raises if values can be seen, possibly at the end of the program.

    Code that a user compiles can't raise, nor can one branch of a program.
    """
    if is_known_false(condition):
        raise ValueError(message)
    if not is_traced(condition) or is_in_branch():
        return
    conditions = _conditions.get()
    if conditions is not None:
        conditions.append((condition, message))


def is_whole(depends: Any) -> bool:
    """Whether one program can compute what depends on this.

    It can't if a part is a user's class or function, or has the attribute `by_steps`:
    then values of one step determine the sizes of the next.
    """
    try:
        _check_whole_once(depends)
    except TypeError:
        return False
    return True


def _check_whole(depends: Any) -> None:
    """Raises `TypeError` otherwise, as hashing does, so that no cache keeps it."""
    if depends is None or isinstance(depends, bool | int | float | str):
        return
    if getattr(depends, "by_steps", False):
        raise TypeError
    if isinstance(depends, tuple):
        parts = depends
    elif str(getattr(depends, "__module__", "")).partition(".")[0] != _PACKAGE:
        raise TypeError
    elif isinstance(depends, type) or not dataclasses.is_dataclass(depends):
        parts = ()
    else:
        fields = dataclasses.fields(depends)
        parts = tuple(getattr(depends, field.name) for field in fields)
    for part in parts:
        _check_whole(part)


# To look at all parts takes longer than to find them here: 13 us of 200 for an update.
_check_whole_once = functools.lru_cache(256)(_check_whole)


@as_tree
@dataclasses.dataclass(frozen=True)
class Checks:
    """The conditions that a program requires.

    Attributes:
        hold: boolean tensor of one dimension, or `None` if nothing is required.
        messages: the error messages of conditions that don't hold.
    """

    hold: Tensor | None
    messages: tuple[str, ...]

    @classmethod
    def of(cls, conditions: list[tuple[Tensor, str]]) -> "Checks":
        """Returns the conditions as one tensor."""
        if not conditions:
            return cls(None, ())
        hold, messages = zip(*conditions, strict=True)
        return cls(ops.stack(hold), messages)

    def raise_first(self) -> None:
        """Raises the message of the first condition that does not hold."""
        if self.hold is None:
            return
        hold = np.asarray(self.hold)
        if not hold.all():
            raise ValueError(self.messages[int(np.argmin(hold))])


def rounded_up(size: int, least: int) -> int:
    """Rounds up to one of a few sizes, as a program is compiled for each."""
    power = 1 << max(size - 1, 0).bit_length()
    if power <= _FINE:
        return max(power, least)
    step = power // 8
    return -(-size // step) * step


def enlarged(x: Tensor, shape: tuple[int, ...], fill: float) -> Tensor:
    """Returns a tensor or array with entries of one value appended."""
    if not isinstance(x, np.ndarray):
        more = [(0, size - old) for old, size in zip(x.shape, shape, strict=True)]
        return ops.pad(x, more, constant_values=fill)
    larger = np.full(shape, fill, x.dtype)
    larger[tuple(map(slice, x.shape))] = x
    return larger


def first_rows(x: Tensor, number: int | None) -> Tensor:
    """Returns the rows without those that were appended."""
    if number is None or x.shape[0] in (None, number):
        return x
    return to_device(ops.convert_to_numpy(x)[:number])
