"""Running totals over all lists: exact sums, their mean, and its error.

A float32 sum of ones stops growing at 2**24. So each sum is three float32 numbers: the
rounded value, its rounding error, and what that leaves. They are added in float64, or
in pairs of float32 where a device has none. Every part is a plain sum, so the totals of
replicas may be added.
"""

import functools
import math
from typing import Any

from keras import ops

from keras_rank.backends import Tensor, backend

# The columns of a batch, an entry for each list: its weighted value and its weight, 0
# where no item is relevant; 1 where one is; 1 where there is an item. The totals are
# the sums over lists of their products, two at a time. As the last column is 1 where
# any other is not 0, its row holds the sums of the columns, for the mean. The first two
# rows hold what its error needs.
VALUE, WEIGHT, RELEVANT, LISTS = range(4)
SHAPE = (2, 4, 4)
SMALLEST_SQUARE = 1e-37


def add(
    totals: Tensor, remainders: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Adds the sums over lists of the pairwise products of columns.

    By elementwise products and sums, as a matrix product would wake threads, and wait
    for them, even for a few lists.

    In float64, as the error is a difference of such sums: if values differ by less than
    a thousandth of their mean, it is smaller than the rounding of squares to float32.
    Columns may be rounded, as all products use the same ones. Squares out of the range
    of float32 become infinite, and NaN in the totals, which the mean does not use.

    Args:
        totals: float32 tensor of shape `(2, 4, 4, ...)`. High and low parts.
        remainders: float32 tensor of shape `(4, 4, ...)`. The remainders of these.
        columns: tensor of shape `(4, ..., batch)`.

    Returns:
        The totals and the remainders, of the same shapes, and what was added, of shape
        `(4, 4, ...)`.
    """
    with backend.quiet():
        if backend.has_float64():
            parts = backend.in_float64(_sums, totals, remainders, columns)
            stacked = backend.library_of(totals).stack(parts[:2])
            return stacked, parts[2], parts[3]
        added = _products(columns)
        return *_added(totals, remainders, added, 0.0 * added), added


def _sums(totals: Tensor, remainders: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
    added = _products(columns)
    sums = backend.library_of(totals).sum(totals, axis=0) + remainders + added
    return *backend.split_float64(sums), added


def _products(columns: Tensor) -> Tensor:
    products = columns[:, None] * columns
    return backend.library_of(products).sum(products, axis=-1)


def merge(totals: Tensor, others: Tensor) -> Tensor:
    """Adds both parts of other totals, of the same shape `(2, 4, 4, ...)`."""
    with backend.quiet():
        return _added(totals, ops.zeros_like(others[0]), others[0], others[1])[0]


def _added(
    totals: Tensor, remainders: Tensor, high: Tensor, low: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds numbers and their rounding errors to totals and remainders, in float32.

    Rounding errors come from Knuth's TwoSum, and all parts are renormalized: otherwise,
    once the high part is too large to grow, everything would go into the low one.
    Without remainders, the same error in each of 33 million equal updates would add up
    to a hundred-millionth of the sum.
    """
    total_high, total_low = ops.unstack(totals, 2)
    total_low, error = _sum_and_error(total_low, high)
    total_high, total_low = _sum_and_error(total_high, total_low)
    total_low, remainders = _renormalized(total_low, remainders + error + low)
    return ops.stack([total_high, total_low]), remainders


def _sum_and_error(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _renormalized(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same, if the first number is the larger one."""
    total = a + b
    return total, b - (total - a)


def is_zero(number: Any) -> bool:
    """Returns whether Python can see that an integer is 0. Compiled code hides it."""
    value = ops.convert_to_tensor(number)
    return backend.is_at_hand(value) and int(value) == 0


def mean(
    totals: Tensor, remainders: Tensor, *, empty_value: float | None, dtype: str
) -> Tensor:
    """Returns the weighted mean over all lists.

    A list without relevant items has the average weight of the lists with relevant
    items, or 1 if there are none, and the value `empty_value`. If that is `None`, it is
    left out.

    Args:
        totals: float32 tensor of shape `(2, 4, 4)`. High and low parts.
        remainders: float32 tensor of shape `(4, 4)`.
        empty_value: float or `None`. The value of a list without relevant items.
        dtype: the dtype of the result.

    Returns:
        A scalar tensor, 0 if there are no lists.
    """
    sums = ops.sum(ops.cast(totals[:, LISTS], dtype), axis=0)
    if dtype == "float64":
        # Beyond the precision of float32.
        sums = sums + ops.cast(remainders[LISTS], dtype)
    value, weight, relevant, lists = ops.unstack(sums, 4)
    with backend.quiet():
        if empty_value is not None:
            average_weight = weight / relevant
            if empty_value != 0.0:
                average_weight = backend.where(relevant > 0.0, average_weight, 1.0)
            empty_weight = (lists - relevant) * average_weight
            weight = weight + empty_weight
            value = value + empty_weight * empty_value if empty_value else value
        # It is NaN if no list has relevant items, and empty ones have the value 0.
        return backend.where(weight > 0.0, value / weight, 0.0)


def _numbers(row: Tensor) -> list[Tensor]:
    """Returns the entries of a row, of shape `(1,)` each.

    On torch, a scalar tensor with a Python number takes Keras's default precision,
    which may be wider.
    """
    return list(ops.split(row, 4))


def standard_error(
    totals: Tensor, remainders: Tensor, *, empty_value: float | None, dtype: str
) -> Tensor:
    """Returns the standard error of `mean`, from the same arguments.

    Returns:
        A scalar tensor: NaN for fewer than two lists that count, or if squares of
        weights, or of weights times values, are out of the range of float32.
    """
    with backend.quiet():
        function = functools.partial(
            _squared_error, counts_empty=empty_value is not None
        )
        # Derived from the state, so that it is traced with it, and on its device.
        empty = 0.0 * remainders[LISTS, LISTS:] + (empty_value or 0.0)
        squared = backend.in_float64(function, totals, remainders, empty)
    *_, relevant, lists = _numbers(totals[0, LISTS])
    _, squared_weight, *_ = _numbers(totals[0, WEIGHT])
    # Not denormal, as some backends treat such numbers as 0.
    has_squares = squared_weight >= SMALLEST_SQUARE * relevant
    number = relevant if empty_value is None else lists
    error = backend.maximum(backend.where(relevant > 0.0, squared, 0.0), 0.0) ** 0.5
    is_known = ops.logical_and(number > 1.0, has_squares)
    return ops.cast(backend.where(is_known, error, math.nan)[0], dtype)


def _squared_error(
    totals: Tensor, remainders: Tensor, empty_value: Tensor, *, counts_empty: bool
) -> Tensor:
    sums = totals[0] + (totals[1] + remainders)
    value, weight, relevant, lists = _numbers(sums[LISTS])
    squared_value, value_by_weight, *_ = _numbers(sums[VALUE])
    _, squared_weight, *_ = _numbers(sums[WEIGHT])
    squared = squared_error(
        value,
        weight,
        relevant,
        (lists if counts_empty else relevant) - relevant,
        squared_weight,
        value_by_weight,
        squared_value,
        empty_value,
    )
    return ops.cast(squared, "float32")


def squared_error(
    value: Tensor,
    weight: Tensor,
    relevant: Tensor,
    empty: Tensor,
    squared_weight: Tensor,
    value_by_weight: Tensor,
    squared_value: Tensor,
    empty_value: Tensor | float,
) -> Tensor:
    """The squared standard error of the mean over all lists, by the delta method.

        SE**2 = ((n / W)**2 * (Q2 - 2 * r * Q1 + r**2 * Q0)
                 + (r - e)**2 * n * E / N) / (N * (N - 1))

    It takes numbers or arrays in float64. W must be above 0, and N above 1.

    Args:
        value: the sum of `w * v`, of weights w and values v of lists with relevant
            items. Divided by W it is r, the mean over these.
        weight: W, the sum of `w`.
        relevant: n, the number of lists with relevant items.
        empty: E, the number of lists without, or 0 if they don't count. N is n + E.
        squared_weight: Q0, the sum of `w**2`.
        value_by_weight: Q1, the sum of `w**2 * v`.
        squared_value: Q2, the sum of `w**2 * v**2`.
        empty_value: e, the value of a list without relevant items.
    """
    # Without bare numbers, for `backend.in_float64`.
    r, lists = value / weight, relevant + empty
    among = squared_value - (r + r) * value_by_weight + r * r * squared_weight
    of_empty = (r - empty_value) ** 2 * relevant * empty / lists
    scale = relevant / weight
    return (scale * scale * among + of_empty) / (lists * lists - lists)
