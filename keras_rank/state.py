"""The state of a metric: exact sums over lists, their mean, and its standard error.

A float32 sum of ones stops growing at 2**24. Each sum therefore consists of three
float32 numbers: the rounded sum, its rounding error, and the remainder of that error.
They are added in float64, or in pairs of float32 on a device without float64. Every
part is a plain sum, so the totals of replicas may be added.
"""

import functools
import math
from typing import Any

from keras import ops

from keras_rank.backends import Tensor, backend

# The indices of the columns of a batch. A column has an entry for each list. VALUE is
# the weighted value and WEIGHT the weight of a list with relevant items, RELEVANT is 1
# for such a list, and all three are 0 for other lists. LISTS is 1 for a list that has
# items. The totals are the sums over lists of the products of all pairs of columns.
# Where any column is not 0, LISTS is 1. The row LISTS of the totals therefore holds the
# sums of the columns, which the mean needs. The rows VALUE and WEIGHT hold the sums
# that the standard error needs.
VALUE, WEIGHT, RELEVANT, LISTS = range(4)
SHAPE = (2, 4, 4)
# The smallest mean of squared weights for which a standard error is computed.
SMALLEST_SQUARE = 1e-37


def add(
    totals: Tensor, remainders: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Adds the products of all pairs of columns, summed over lists.

    Products and sums are elementwise: a matrix product would start threads and wait for
    them, even for a few lists.

    The standard error is a difference of such sums. If values differ by less than a
    thousandth of their mean, the difference is smaller than the rounding of squares to
    float32, so sums are computed in float64 if the device has it. The columns may be
    rounded, as all products use the same columns. Squares out of the range of float32
    become infinite, and NaN in the totals, but the mean does not use them.

    Args:
        totals: float32 tensor of shape `(2, 4, 4, ...)`. The high and low parts.
        remainders: float32 tensor of shape `(4, 4, ...)`. The remainders of the totals.
        columns: tensor of shape `(4, ..., batch)`.

    Returns:
        The new totals and remainders, of the same shapes, and the added sums, of shape
        `(4, 4, ...)`.
    """
    with backend.suppress_float_warnings():
        if backend.has_float64():
            parts = backend.compute_in_float64(
                _add_in_float64, totals, remainders, columns
            )
            stacked = backend.get_library(totals).stack(parts[:2])
            return stacked, parts[2], parts[3]
        added = _sum_products(columns)
        return *_add_in_float32(totals, remainders, added, 0.0 * added), added


def _add_in_float64(
    totals: Tensor, remainders: Tensor, columns: Tensor
) -> tuple[Tensor, ...]:
    added = _sum_products(columns)
    sums = backend.get_library(totals).sum(totals, axis=0) + remainders + added
    return *backend.split_float64(sums), added


def _sum_products(columns: Tensor) -> Tensor:
    products = columns[:, None] * columns
    return backend.get_library(products).sum(products, axis=-1)


def merge(totals: Tensor, others: Tensor) -> Tensor:
    """Returns the sum of two totals of shape `(2, 4, 4, ...)`."""
    with backend.suppress_float_warnings():
        return _add_in_float32(totals, ops.zeros_like(others[0]), others[0], others[1])[
            0
        ]


def _add_in_float32(
    totals: Tensor, remainders: Tensor, high: Tensor, low: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds numbers and their rounding errors to totals and remainders, in float32.

    Knuth's TwoSum computes the rounding errors, and all parts are renormalized.
    Otherwise, once the high part is too large to grow, all numbers would be added to
    the low part. Without remainders, the rounding error of each of 33 million equal
    updates would add up to a hundred-millionth of the sum.
    """
    total_high, total_low = ops.unstack(totals, 2)
    total_low, error = _two_sum(total_low, high)
    total_high, total_low = _two_sum(total_high, total_low)
    total_low, remainders = _fast_two_sum(total_low, remainders + error + low)
    return ops.stack([total_high, total_low]), remainders


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rounded sum of two numbers, and its rounding error."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _fast_two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rounded sum and its rounding error, if `a` is larger than `b`."""
    total = a + b
    return total, b - (total - a)


def is_zero(number: Any) -> bool:
    """Returns whether an integer is known to be 0.

    Values are unknown in compiled code, and where reading them would have to wait.
    """
    value = ops.convert_to_tensor(number)
    return backend.is_cheap_to_read(value) and int(value) == 0


def mean(
    totals: Tensor, remainders: Tensor, *, empty_value: float | None, dtype: str
) -> Tensor:
    """Returns the weighted mean over all lists.

    A list without relevant items has the value `empty_value`, and the average weight of
    the lists with relevant items, or 1 if there are none. If `empty_value` is `None`,
    lists without relevant items are left out.

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
        # The remainders are below the precision of float32.
        sums = sums + ops.cast(remainders[LISTS], dtype)
    value, weight, relevant, lists = ops.unstack(sums, 4)
    with backend.suppress_float_warnings():
        if empty_value is not None:
            average_weight = weight / relevant
            if empty_value != 0.0:
                average_weight = backend.where(relevant > 0.0, average_weight, 1.0)
            empty_weight = (lists - relevant) * average_weight
            weight = weight + empty_weight
            value = value + empty_weight * empty_value if empty_value else value
        # If no list has relevant items and `empty_value` is 0, the quotient is NaN.
        return backend.where(weight > 0.0, value / weight, 0.0)


def _split_row(row: Tensor) -> list[Tensor]:
    """Returns the entries of a row, each of shape `(1,)`.

    The entries are not scalars: on torch, an operation of a scalar tensor and a Python
    number has Keras's default float dtype, which may be wider.
    """
    return list(ops.split(row, 4))


def standard_error(
    totals: Tensor, remainders: Tensor, *, empty_value: float | None, dtype: str
) -> Tensor:
    """Returns the standard error of the result of `mean` for equal arguments.

    Returns:
        A scalar tensor. It is NaN if the mean is over fewer than two lists, or if
        squares of weights, or of weighted values, are out of the range of float32.
    """
    with backend.suppress_float_warnings():
        function = functools.partial(
            _squared_error, counts_empty=empty_value is not None
        )
        # The number is computed from the state, so it is traced on the state's device.
        empty = 0.0 * remainders[LISTS, LISTS:] + (empty_value or 0.0)
        squared = backend.compute_in_float64(function, totals, remainders, empty)
    *_, relevant, lists = _split_row(totals[0, LISTS])
    _, squared_weight, *_ = _split_row(totals[0, WEIGHT])
    # Some backends treat subnormal numbers as 0.
    has_squares = squared_weight >= SMALLEST_SQUARE * relevant
    num_counted = relevant if empty_value is None else lists
    error = backend.maximum(backend.where(relevant > 0.0, squared, 0.0), 0.0) ** 0.5
    is_known = ops.logical_and(num_counted > 1.0, has_squares)
    return ops.cast(backend.where(is_known, error, math.nan)[0], dtype)


def _squared_error(
    totals: Tensor, remainders: Tensor, empty_value: Tensor, *, counts_empty: bool
) -> Tensor:
    sums = totals[0] + (totals[1] + remainders)
    value, weight, relevant, lists = _split_row(sums[LISTS])
    squared_value, value_by_weight, *_ = _split_row(sums[VALUE])
    _, squared_weight, *_ = _split_row(sums[WEIGHT])
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
    """Returns the squared standard error of the mean, by the delta method.

        SE**2 = ((n / W)**2 * (Q2 - 2 * r * Q1 + r**2 * Q0)
                 + (r - e)**2 * n * E / N) / (N * (N - 1))

    The arguments are float64 numbers or arrays. W must be above 0, and N above 1.

    Args:
        value: the sum of `w * v` over the weights w and values v of lists with relevant
            items. The mean over these lists is r, which is this sum divided by W.
        weight: W, the sum of `w`.
        relevant: n, the number of lists with relevant items.
        empty: E, the number of lists without relevant items, or 0 if they are left out
            of the mean. N is n + E.
        squared_weight: Q0, the sum of `w**2`.
        value_by_weight: Q1, the sum of `w**2 * v`.
        squared_value: Q2, the sum of `w**2 * v**2`.
        empty_value: e, the value of a list without relevant items.
    """
    # `r + r` replaces `2 * r`, as `compute_in_float64` does not accept Python numbers.
    r, lists = value / weight, relevant + empty
    relevant_term = squared_value - (r + r) * value_by_weight + r * r * squared_weight
    empty_term = (r - empty_value) ** 2 * relevant * empty / lists
    scale = relevant / weight
    return (scale * scale * relevant_term + empty_term) / (lists * lists - lists)
