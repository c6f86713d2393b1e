"""Discounts: factors by which gains are multiplied, as functions of the rank."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_rank.arrays.arithmetic import cast_to_float
from keras_rank.backends import Tensor, backend
from keras_rank.gains import ParametricFunction

__all__ = [
    "clipped_log",
    "clipped_log2",
    "geometric",
    "log",
    "log2",
    "reciprocal",
]

DiscountFn = Callable[[Tensor], Tensor]


@keras.saving.register_keras_serializable(package="keras_rank")
def log2(ranks: Tensor) -> Tensor:
    """Returns the discounts `1 / log2(rank + 1)`: 1, 0.63, 0.5, 0.43, ...

    Args:
        ranks: tensor of any shape. The ranks, from 1.

    Returns:
        A tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(keras_rank.discounts.log2(ops.array([1.0, 3.0])))
    array([1. , 0.5], dtype=float32)

    Reference:
        Burges et al., "Learning to rank using gradient descent", ICML 2005.
    """
    ranks = cast_to_float(ranks)
    return 1.0 / backend.get_library(ranks).log2(ranks + 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
def clipped_log2(ranks: Tensor) -> Tensor:
    """Returns the discounts `1 / max(1, log2(rank))`: 1, 1, 0.63, 0.5, ...

    Args:
        ranks: tensor of any shape. The ranks, from 1.

    Returns:
        A tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(keras_rank.discounts.clipped_log2(ops.array([1.0, 4.0])))
    array([1. , 0.5], dtype=float32)

    Reference:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
    """
    ranks = cast_to_float(ranks)
    return 1.0 / backend.maximum(backend.get_library(ranks).log2(ranks), 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
def reciprocal(ranks: Tensor) -> Tensor:
    """Returns the discounts `1 / rank`: 1, 0.5, 0.33, 0.25, ...

    Args:
        ranks: tensor of any shape. The ranks, from 1.

    Returns:
        A tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(keras_rank.discounts.reciprocal(ops.array([1.0, 4.0])))
    array([1.  , 0.25], dtype=float32)
    """
    return 1.0 / cast_to_float(ranks)


@keras.saving.register_keras_serializable(package="keras_rank")
class Geometric(ParametricFunction):
    """The discount that `geometric` returns: `persistence**(rank - 1)`."""

    def __init__(self, persistence: float) -> None:
        if not 0.0 < _as_real(persistence) < 1.0:
            raise ValueError(
                "`persistence` should be a number between 0 and 1, both excluded. "
                f"Received: persistence={persistence!r}"
            )
        self.persistence = float(persistence)

    def __call__(self, ranks: Tensor) -> Tensor:
        ranks = cast_to_float(ranks)
        return backend.constant(self.persistence, ranks) ** (ranks - 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
class Log(ParametricFunction):
    """The discount that `log` returns: `1 / log(rank + offset, base)`."""

    def __init__(self, base: float = 2.0, offset: float = 1.0) -> None:
        if not 0.0 < _as_real(offset) < math.inf:
            raise ValueError(
                "`offset` should be a number above 0, so that the discount of rank 1 "
                f"is finite: see `clipped_log`. Received: offset={offset!r}"
            )
        self.base, self.offset = _check_base(base), float(offset)

    def __call__(self, ranks: Tensor) -> Tensor:
        ranks = cast_to_float(ranks)
        return math.log(self.base) / backend.get_library(ranks).log(ranks + self.offset)


@keras.saving.register_keras_serializable(package="keras_rank")
class ClippedLog(Log):
    """The discount of `clipped_log`: `1 / max(1, log(rank + offset, base))`."""

    def __init__(self, base: float = 2.0, offset: float = 0.0) -> None:
        if not 0.0 <= _as_real(offset) < math.inf:
            raise ValueError(
                f"`offset` should be a number of 0 or more. Received: offset={offset!r}"
            )
        self.base, self.offset = _check_base(base), float(offset)

    def __call__(self, ranks: Tensor) -> Tensor:
        ranks = cast_to_float(ranks)
        logarithms = backend.get_library(ranks).log(ranks + self.offset)
        return 1.0 / backend.maximum(logarithms / math.log(self.base), 1.0)


def geometric(persistence: float) -> DiscountFn:
    """Returns the discount `persistence**(rank - 1)`, as in rank-biased precision.

    Args:
        persistence: float between 0 and 1. The probability that a user who has seen an
            item continues to the next one.

    Returns:
        A function from ranks to discounts, which a saved model can restore.

    Raises:
        ValueError: if `persistence` is not between 0 and 1.

    Example:

    >>> from keras import ops
    >>> discount = keras_rank.discounts.geometric(persistence=0.5)
    >>> ops.convert_to_numpy(discount(ops.array([1.0, 2.0, 3.0])))
    array([1.  , 0.5 , 0.25], dtype=float32)

    Reference:
        Moffat and Zobel, "Rank-biased precision for measurement of retrieval
        effectiveness", ACM TOIS 27(1), 2008.
    """
    return Geometric(persistence)


def log(base: float = 2.0, offset: float = 1.0) -> DiscountFn:
    """Returns the discount `1 / log(rank + offset, base)`.

    With the defaults, it is equal to `log2`. The discount of rank 1 is above 1 if
    `offset` is less than `base - 1`.

    Args:
        base: float greater than 1. The base of the logarithm.
        offset: float above 0. The number that is added to the rank.

    Returns:
        A function from ranks to discounts, which a saved model can restore.

    Raises:
        ValueError: if `base` or `offset` is out of its range.

    Example:

    >>> from keras import ops
    >>> discount = keras_rank.discounts.log(base=10.0, offset=9.0)
    >>> [f"{float(x):.2f}" for x in discount(ops.array([1.0, 91.0, 991.0]))]
    ['1.00', '0.50', '0.33']

    Reference:
        Burges et al., "Learning to rank using gradient descent", ICML 2005.
    """
    return Log(base, offset)


def clipped_log(base: float = 2.0, offset: float = 0.0) -> DiscountFn:
    """Returns the discount `1 / max(1, log(rank + offset, base))`.

    With the defaults, it is equal to `clipped_log2`.

    Args:
        base: float greater than 1. The base of the logarithm: ranks up to
            `base - offset` are not discounted.
        offset: float of 0 or more. The number that is added to the rank.

    Returns:
        A function from ranks to discounts, which a saved model can restore.

    Raises:
        ValueError: if `base` or `offset` is out of its range.

    Example:

    >>> from keras import ops
    >>> discount = keras_rank.discounts.clipped_log(base=10.0)
    >>> [f"{float(x):.2f}" for x in discount(ops.array([1.0, 10.0, 100.0]))]
    ['1.00', '1.00', '0.50']

    Reference:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
    """
    return ClippedLog(base, offset)


def compute_discounts(rank_discount_fn: DiscountFn, ranks: Tensor) -> Tensor:
    """Returns the discounts of ranks.

    Values of the functions of this module may be cached by `backend.cached_constant`.
    """
    is_known = getattr(rank_discount_fn, "__module__", None) == __name__
    if not is_known or len(ranks.shape) != 1 or ranks.shape[0] is None:
        return rank_discount_fn(ranks)
    dtype = keras.backend.standardize_dtype(ranks.dtype)
    k = ranks.shape[0]
    return backend.cached_constant(
        _discount_first_ranks, rank_discount_fn, k, dtype, size=k, like=ranks
    )


def _discount_first_ranks(rank_discount_fn: DiscountFn, k: int, dtype: str) -> Tensor:
    return rank_discount_fn(ops.arange(1, k + 1, dtype=dtype))


def _as_real(value: Any) -> float:
    """Returns a number as a float, and NaN for other types.

    NaN fails all range checks.
    """
    return float(value) if isinstance(value, numbers.Real) else math.nan


def _check_base(base: Any) -> float:
    if 1.0 < _as_real(base) < math.inf:
        return float(base)
    raise ValueError(
        f"`base` should be a number greater than 1. Received: base={base!r}"
    )
