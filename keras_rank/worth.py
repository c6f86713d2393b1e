"""What labels and ranks are worth: gains and discounts by name, or a user's own."""

import contextlib
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_rank import discounts, gains
from keras_rank.arguments import LARGEST_MAXIMUM, check_above_zero, unaccepted
from keras_rank.backends import Array, Tensor, backend

Function: TypeAlias = Callable[[Tensor], Tensor]
# On so many ranks a discount is looked at, if there is no cutoff.
MANY_RANKS = 1024
GAINS: Mapping[str, Function] = {
    "exponential": gains.exponential,
    "linear": gains.linear,
}
DISCOUNTS: Mapping[str, Function] = {
    "log2": discounts.log2,
    "clipped_log2": discounts.clipped_log2,
    "reciprocal": discounts.reciprocal,
}


def check_graded(gain_fn: Any, max_grade: Any) -> tuple[Function | None, float | None]:
    """Returns a gain, and the highest grade, by whose gain others are divided."""
    if gain_fn is None and max_grade is None:
        return None, None
    if gain_fn is None or max_grade is None:
        raise unaccepted("max_grade", "given with `gain_fn`, and only then", max_grade)
    gain = resolve("gain_fn", gain_fn, GAINS)
    grade = check_above_zero("max_grade", max_grade)
    if gain is gains.exponential and grade > 64.0:
        accepted = "at most 64 with exponential gains, which are cut at 2**64"
        raise unaccepted("max_grade", accepted, max_grade)
    if gain not in GAINS.values() and not backend.is_compiling():
        _check_highest_gain(gain, grade)
    return gain, grade


def _check_highest_gain(gain: Function, max_grade: float) -> None:
    """Raises for a highest grade whose gain is seen not to be the highest, above 0."""
    higher = _if_it_works(_higher_gains, gain, max_grade)
    if higher is not None:
        accepted = "the grade with the highest gain, which is above 0"
        raise unaccepted("max_grade", accepted, max_grade, higher)


def _if_it_works(look: Callable[..., str | None], *arguments: Any) -> str | None:
    """What a look at a user's function finds.

    The function may fail for numbers that no list has, and a GPU then for good.
    """
    with contextlib.suppress(Exception), backend.quiet(), keras.device("cpu"):
        return look(*arguments)
    return None


def _values(function: Function, numbers: Tensor) -> Array:
    """The values of a user's function, which may be a constant."""
    return np.broadcast_to(ops.convert_to_numpy(function(numbers)), numbers.shape)


def _higher_gains(gain: Function, max_grade: float) -> str | None:
    """How gains exceed that of the highest grade, `None` if none does."""
    values = _values(gain, ops.linspace(0.0, max_grade, 65, dtype="float32"))
    highest = np.fmax.reduce(values)
    if 0.0 < values[-1] >= highest * (1.0 - 1e-5):
        return None
    return f", with gains of up to {highest:.4g}, and {values[-1]:.4g} there"


def resolve(
    argument: str,
    identifier: str | Function | dict[str, Any],
    functions: Mapping[str, Function],
) -> Function:
    """Returns the function that a name, a config or a function stands for."""
    if isinstance(identifier, str) and identifier in functions:
        return functions[identifier]
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if callable(identifier):
        return identifier
    accepted = f"a function or one of {sorted(functions)}"
    raise unaccepted(argument, accepted, identifier)


def discount_of(identifier: str | Function | dict[str, Any], k: int | None) -> Function:
    """Returns a discount, and raises if it is seen to grow with the rank."""
    function = resolve("rank_discount_fn", identifier, DISCOUNTS)
    is_known = getattr(function, "__module__", None) == discounts.__name__
    if is_known or backend.is_compiling():
        return function
    find = _growth if isinstance(function, Hashable) else _growth.__wrapped__
    ranks = MANY_RANKS if k is None else min(k, LARGEST_MAXIMUM)
    growth = _if_it_works(find, function, ranks)
    if growth is not None:
        raise ValueError(
            "`rank_discount_fn` should be a function that is finite and does not grow "
            f"from rank to rank: discounts multiply gains. Received: {growth}"
        )
    return function


@functools.lru_cache(256)
def _growth(discount: Function, k: int) -> str | None:
    """Where a discount is larger than at a rank above, `None` where it is nowhere."""
    values = _values(discount, ops.arange(1, k + 1, dtype="float32"))
    if not np.isfinite(values[0]):
        return f"{values[0]} at rank 1"
    lowest = np.minimum.accumulate(values)
    # Logarithms are rounded.
    grows = values[1:] > lowest[:-1] + 1e-5 * np.abs(lowest[:-1])
    if not grows.any():
        return None
    rank = int(grows.argmax()) + 1
    before = int(values[:rank].argmin())
    return (
        f"{values[before]:.4g} at rank {before + 1}, {values[rank]:.4g} at rank "
        f"{rank + 1}"
    )


def serialize(
    argument: str, function: Function, functions: Mapping[str, Function]
) -> str | dict[str, Any]:
    """Returns a name or a config that `resolve` turns back into the function."""
    for name, named_function in functions.items():
        if function is named_function:
            return name
    if getattr(function, "__name__", "") == "<lambda>":
        # Keras would save a lambda as byte code, and then refuse to load it.
        raise ValueError(
            f"`{argument}` should be a named function in a metric that is saved: "
            "write it with `def` and decorate it with "
            "`@keras.saving.register_keras_serializable()`. "
            f"Received: {argument}={function}"
        )
    config: dict[str, Any] = keras.saving.serialize_keras_object(function)
    return config
