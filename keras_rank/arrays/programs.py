"""Programs: what eager code computes at once, compiled whole where each operation is.

JAX compiles each operation of eager code, for each shape. So what a call computes is
one function there, compiled at its first call and kept by what it depends on. What it
checks comes back with its result, and is read once.
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
    is_known_false,
    is_traced,
    runs_within_another,
    to_device,
)

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0]

# Above it, sizes are rounded up by a quarter at most.
_FINE = 256

_conditions: ContextVar[list[tuple[Tensor, str]] | None] = ContextVar(
    "conditions", default=None
)


def program(function: Function) -> Function:
    """Makes one compiled program of a function for eager code, on JAX.

    Not where it depends on code of a user's, in which anything may be done and change:
    that runs as it is written, between programs (see `is_whole`).

    Args:
        function: function of what the program depends on, which is hashable, and of
            what it computes with: tensors, in lists, tuples or dataclasses that are
            trees (`as_tree`).
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
        return function

    @functools.wraps(function)
    def call(depends: Any, *tensors: Any) -> Any:
        if runs_within_another(tensors) or not is_whole(depends):
            return function(depends, *tensors)
        result, checks = compiled(depends, *tensors)
        checks.raise_first()
        return result

    return cast(Function, call)


def require(condition: Tensor, message: str) -> None:
    """Raises where values can be seen, if need be at the end of the program.

    In code that a user compiles nothing can be raised, nor in one branch of a program.
    """
    if is_known_false(condition):
        raise ValueError(message)
    if not is_traced(condition) or is_in_branch():
        return
    conditions = _conditions.get()
    if conditions is not None:
        conditions.append((condition, message))


def is_whole(depends: Any) -> bool:
    """Whether one program may compute what depends on this.

    Not if a part of it is a user's class or function, or has the attribute `by_steps`,
    as the values of a step are sizes of the next.
    """
    if depends is None or isinstance(depends, bool | int | float | str):
        return True
    if getattr(depends, "by_steps", False):
        return False
    if isinstance(depends, tuple):
        return all(map(is_whole, depends))
    if str(getattr(depends, "__module__", "")).partition(".")[0] != _PACKAGE:
        return False
    if isinstance(depends, type) or not dataclasses.is_dataclass(depends):
        return True
    return all(is_whole(getattr(depends, x.name)) for x in dataclasses.fields(depends))


@as_tree
@dataclasses.dataclass(frozen=True)
class Checks:
    """What a program requires.

    Attributes:
        hold: boolean tensor of one dimension, or `None` if nothing is required.
        messages: what is said where one does not hold.
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
    """One of few sizes, which is not below `size`: a program is compiled for each."""
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
    """Returns the rows before those that were appended, if any were."""
    if number is None or x.shape[0] in (None, number):
        return x
    return to_device(ops.convert_to_numpy(x)[:number])
