"""Arithmetic, number limits and shape helpers with equal results on all backends."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

# Padding rows of at most this size takes fewer operations than folding them.
_MAX_PADDED_SIZE = 32


def axis_size(x: Tensor, axis: int) -> Tensor | int:
    """Returns the size of an axis: an int if it is static, otherwise a tensor.

    A static size is returned without `ops.shape`, which would read all axes in a graph.
    """
    static_size: int | None = x.shape[axis]
    return ops.shape(x)[axis] if static_size is None else static_size


def cast_size(size: Tensor | int, dtype: str) -> Tensor | float:
    """Returns a size as a float, or as a tensor of the dtype if it is not static."""
    return float(size) if isinstance(size, int) else ops.cast(size, dtype)


def max_or_bound(x: Tensor, bound: Tensor | int) -> Tensor | int:
    """Returns the maximum of integers, or their upper bound if they are not concrete.

    The maximum is rounded up to a power of two and capped at the bound. It becomes a
    size, and JAX compiles a program for each shape.
    """
    if not backend.is_concrete(x):
        return bound
    maximum = ops.convert_to_numpy(x).max(initial=0)
    return min(2 ** max(int(maximum) - 1, 0).bit_length(), int(bound))


def all_false(conditions: Tensor) -> Tensor | bool:
    """Returns whether all conditions are False, as a bool if they are concrete.

    The bool is read from the device once, for several uses.
    """
    is_any_true = ops.any(conditions)
    value = backend.read_condition(is_any_true)
    return ops.logical_not(is_any_true) if value is None else not value


def cast_to_float(x: Tensor) -> Tensor:
    """Casts integers to floats, and returns floats unchanged."""
    x = x if ops.is_tensor(x) else ops.convert_to_tensor(x)
    is_float = keras.backend.is_float_dtype(x.dtype)
    return x if is_float else ops.cast(x, keras.config.floatx())


def product(x: Tensor, y: Tensor) -> Tensor:
    """Returns the matrix product of two tensors, in the wider of their dtypes."""
    x, y = promote_dtypes(x, y)
    return backend.get_library(x).matmul(x, y)


def promote_dtypes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both tensors, in float64 if one is float32 and the other is float64."""
    dtypes = {keras.backend.standardize_dtype(tensor.dtype) for tensor in (x, y)}
    if len(dtypes) == 1:
        return x, y
    return ops.cast(x, "float64"), ops.cast(y, "float64")


def inclusive_range(first: int, last: Tensor | int, dtype: str, like: Tensor) -> Tensor:
    """Returns the integers from `first` to `last`, both included.

    The result is cached if `last` is an int.

    Args:
        first: the first integer.
        last: the last integer.
        dtype: the dtype of the result.
        like: tensor on the device of the result.
    """
    if isinstance(last, int):
        return backend.cached_constant(
            _create_range, first, last + 1, dtype, size=last + 1 - first, like=like
        )
    return _create_range(first, last + 1, dtype)


def _create_range(start: int, stop: Tensor | int, dtype: str) -> Tensor:
    return ops.cast(ops.arange(start, stop, dtype="int32"), dtype)


def ratio(numerator: Tensor, denominator: Tensor | float) -> Tensor:
    """Returns the quotient of finite numbers of 0 or more, 0 if the denominator is 0.

    `ops.divide_no_nan` would divide by 0 first on NumPy, which warns.
    """
    if isinstance(denominator, int | float):
        denominator = backend.constant(denominator, numerator)
    denominator = backend.where(denominator > 0.0, denominator, math.inf)
    return backend.quotient(numerator, denominator)


def max_over_axis(x: Tensor, axis: int = 1, *, keepdims: bool = False) -> Tensor:
    """Returns the maximum over an axis, or 0 if the tensor has no entries.

    `ops.max` raises for an empty tensor. With `initial`, it can't be traced on torch.
    """
    if 0 in tuple(x.shape):
        return ops.sum(x, axis=axis, keepdims=keepdims)
    # `ops.max` would break the graph of `torch.compile`, so `ops.amax` is used.
    return ops.amax(x, axis=axis, keepdims=keepdims)


def total(values: Tensor) -> Tensor:
    """Returns the sum of each row, in which trailing zeros change no bit.

    Rows are padded with zeros to a power of two. Then the second half is added to the
    first half, until one entry is left. Trailing zeros only add additions of zero.
    `ops.sum` adds in an order that depends on the size of the row. It is only used if
    that size is unknown, in a graph.

    Args:
        values: tensor of shape `(..., size)`.

    Returns:
        A tensor of shape `(...)`.
    """
    size = values.shape[-1]
    if size is None:
        return ops.sum(values, axis=-1)
    values = backend.no_fma(values)
    if size > _MAX_PADDED_SIZE:
        values = _fold(values, size)
        size = values.shape[-1]
    levels = (size - 1).bit_length()
    if 2**levels > size:
        values = append_columns(values, 0.0, 2**levels - size)
    return backend.tree_sum(values, levels)


def _fold(values: Tensor, size: int) -> Tensor:
    """Returns rows shortened to a power of two, with the other entries added.

    The addition is the first one of the tree in `total`, without a padded copy.
    """
    half = 2 ** ((size - 1).bit_length() - 1)
    start = values[..., : size - half] + values[..., half:]
    if size == 2 * half:
        return start
    return ops.concatenate([start, values[..., size - half : half]], axis=-1)


def totals(rows: Sequence[Tensor], factors: Sequence[Tensor]) -> list[Tensor]:
    """Returns `total(x * y)` of each pair, in one tree if all sizes are equal."""
    stack, num_pairs = backend.get_library(rows[0]).stack, len(rows)
    if all(factor is factors[0] for factor in factors):
        return list(ops.unstack(total(stack(rows) * factors[0]), num_pairs))
    products = [x * y for x, y in zip(rows, factors, strict=True)]
    sizes = {x.shape[1] for x in products}
    if len(sizes) > 1 or None in sizes:
        return [total(x) for x in products]
    return list(ops.unstack(total(stack(products)), num_pairs))


def shift_right(values: Tensor, num_places: int, fill: float) -> Tensor:
    """Shifts each row to the right, and fills its start with a value."""
    return backend.pad_rows(values[..., :-num_places], num_places, 0, fill)


def append_columns(x: Tensor, value: float, number: int) -> Tensor:
    """Appends entries of one value to each row."""
    return backend.pad_rows(x, 0, number, value)


def flatten_positions(positions: Tensor, row_size: Tensor | int) -> Tensor:
    """Converts positions in rows to positions in the flattened batch.

    Args:
        positions: int tensor of shape `(batch, number)`.
        row_size: the size of a row.
    """
    row_index = ops.arange(axis_size(positions, 0), dtype="int32")[:, None]
    return positions + row_index * row_size


# Weights and gains are capped, so that sums of their products are finite in float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64
LARGEST_LIST_WEIGHT = 2.0**120

# The smallest label above 0 is a normal number, as some backends treat subnormals as 0.
SMALLEST_LABEL = float(np.finfo("float32").smallest_normal)


class FloatLimits(NamedTuple):
    """The limits of a floating-point dtype.

    Attributes:
        largest_subnormal: the largest number that some backends treat as 0.
        smallest_normal: the smallest number that all backends distinguish from 0.
        largest: the largest finite number.
    """

    largest_subnormal: float
    smallest_normal: float
    largest: float


@functools.lru_cache(maxsize=16)
def float_limits(dtype: Any) -> FloatLimits:
    """Returns the limits of a floating-point dtype."""
    limits = np.finfo(keras.backend.standardize_dtype(dtype))
    smallest_normal = float(limits.smallest_normal)
    largest_subnormal = smallest_normal - float(limits.smallest_subnormal)
    return FloatLimits(largest_subnormal, smallest_normal, float(limits.max))


def flush_subnormals(scores: Tensor) -> Tensor:
    """Returns scores with subnormals and -0.0 set to 0.

    XLA distinguishes -0.0 from 0.0, and some backends treat subnormals as 0.
    """
    return backend.hard_shrink(scores, float_limits(scores.dtype).largest_subnormal)


def equals_flushed(scores: Tensor, flushed_scores: Tensor) -> Tensor:
    """Returns whether `flush_subnormals(scores) == flushed_scores`.

    No flushed copy of the scores is made.
    """
    lowest, highest = tie_bounds(flushed_scores)
    return ops.logical_and(scores >= lowest, scores <= highest)


def tie_bounds(flushed_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the lowest and the highest score that `flush_subnormals` maps to each."""
    subnormal = float_limits(flushed_scores.dtype).largest_subnormal
    is_zero = flushed_scores == 0.0
    lowest = backend.where(is_zero, -subnormal, flushed_scores)
    return lowest, backend.where(is_zero, subnormal, flushed_scores)


def comparable_scores(scores: Tensor) -> Tensor:
    """Returns scores with subnormals and -0.0 set to 0, and NaN set to `-inf`."""
    return flush_subnormals(backend.replace_nan(scores))


def clip_labels(labels: Tensor) -> Tensor:
    """Returns labels of 0 or more, with subnormals set to 0 and infinity capped."""
    return backend.minimum(flush_subnormals(labels), float_limits(labels.dtype).largest)


# Larger sizes are rounded up by at most a quarter, rather than to a power of two.
_MAX_POWER = 256


def round_up_size(size: int, min_size: int) -> int:
    """Rounds a size up to one of a few sizes, for each of which a program is compiled.

    Args:
        size: the size.
        min_size: the minimum of powers of two. Sizes up to 256 become powers of two.
    """
    power = 1 << max(size - 1, 0).bit_length()
    if power <= _MAX_POWER:
        return max(power, min_size)
    step = power // 8
    return -(-size // step) * step


def pad_axes(
    x: Tensor, old_shape: tuple[int, ...], new_shape: tuple[int, ...], fill: float
) -> Tensor:
    """Pads the axes of a tensor or array from their old sizes to the new ones.

    Axes whose size is not the old one are unchanged.
    """
    axes = zip(x.shape, old_shape, new_shape, strict=False)
    shape = [
        new_size if size == old_size else size for size, old_size, new_size in axes
    ]
    if list(x.shape) == shape:
        return x
    if not isinstance(x, np.ndarray):
        widths = [(0, new - old) for old, new in zip(x.shape, shape, strict=True)]
        return ops.pad(x, widths, constant_values=fill)
    padded = np.full(shape, fill, x.dtype)
    padded[tuple(map(slice, x.shape))] = x
    return padded


def repeat_last_column(x: Tensor, size: int) -> Tensor:
    """Repeats the last entry of each row of a tensor or array up to a size."""
    positions = np.minimum(np.arange(size), x.shape[1] - 1)
    return (np if isinstance(x, np.ndarray) else ops).take(x, positions, axis=1)


def first_rows(x: Tensor, num_rows: int | None) -> Tensor:
    """Returns the first rows, without the rows that were appended as padding."""
    if num_rows is None or x.shape[0] in (None, num_rows):
        return x
    return backend.to_tensor(ops.convert_to_numpy(x)[:num_rows])
