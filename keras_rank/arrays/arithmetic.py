"""Arithmetic, limits and sizes that are the same on all backends."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

# Up to this size, padding rows takes fewer operations than folding them.
_SHORT_ROW = 32


def size_of(x: Tensor, axis: int) -> Tensor | int:
    """The size of an axis. In a graph, Keras's `shape` would also read the others."""
    known: int | None = x.shape[axis]
    return ops.shape(x)[axis] if known is None else known


def as_number(size: Tensor | int, dtype: str) -> Tensor | float:
    """A size as a number of a dtype."""
    return float(size) if isinstance(size, int) else ops.cast(size, dtype)


def seen_maximum(x: Tensor, bound: Tensor | int) -> Tensor | int:
    """The maximum of integers up to a bound, or the bound where Python can't see it.

    It is rounded up to a power of two, as JAX would compile each shape again.
    """
    if not backend.is_concrete(x):
        return bound
    largest = ops.convert_to_numpy(x).max(initial=0)
    return min(2 ** max(int(largest) - 1, 0).bit_length(), int(bound))


def none_of(conditions: Tensor) -> Tensor | bool:
    """Whether all are False: a bool if Python can see it, so that it is read once."""
    any_of = ops.any(conditions)
    seen = backend.known(any_of)
    return ops.logical_not(any_of) if seen is None else not seen


def floats(x: Tensor) -> Tensor:
    """Casts integers to floats, and returns floats unchanged."""
    x = x if ops.is_tensor(x) else ops.convert_to_tensor(x)
    is_float = keras.backend.is_float_dtype(x.dtype)
    return x if is_float else ops.cast(x, keras.config.floatx())


def product(x: Tensor, y: Tensor) -> Tensor:
    """The product of two matrices, in the wider of their dtypes."""
    x, y = in_one_dtype(x, y)
    return backend.library_of(x).matmul(x, y)


def in_one_dtype(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Tensors of float32 or float64, in the wider of both."""
    dtypes = {keras.backend.standardize_dtype(part.dtype) for part in (x, y)}
    if len(dtypes) == 1:
        return x, y
    return ops.cast(x, "float64"), ops.cast(y, "float64")


def counted(first: int, last: Tensor | int, dtype: str, like: Tensor) -> Tensor:
    """The whole numbers from the first to the last, on the device of a tensor."""
    if isinstance(last, int):
        return backend.made_once(
            _range, first, last + 1, dtype, size=last + 1 - first, like=like
        )
    return _range(first, last + 1, dtype)


def _range(start: int, stop: Tensor | int, dtype: str) -> Tensor:
    return ops.cast(ops.arange(start, stop, dtype="int32"), dtype)


def ratio(numerator: Tensor, denominator: Tensor | float) -> Tensor:
    """Divides finite numbers of 0 or more, with 0 where the denominator is 0.

    On NumPy, `ops.divide_no_nan` would divide by 0 first, and warn.
    """
    if isinstance(denominator, int | float):
        denominator = backend.constant(denominator, numerator)
    denominator = backend.where(denominator > 0.0, denominator, math.inf)
    return backend.quotient(numerator, denominator)


def highest(x: Tensor, axis: int = 1, *, keepdims: bool = False) -> Tensor:
    """The maximum over an axis, 0 for an empty batch.

    Keras raises for an empty batch, or, given an initial value, can't trace on torch.
    """
    if 0 in tuple(x.shape):
        return ops.sum(x, axis=axis, keepdims=keepdims)
    # `ops.max` would break the graph of torch.compile.
    return ops.amax(x, axis=axis, keepdims=keepdims)


def total(values: Tensor) -> Tensor:
    """Sums each row so that zeros at its end change no bit of the sum.

    Rows are padded with zeros to a power of two, then the second half is added to the
    first, and so on: longer rows give the same additions, plus some of zeros. `ops.sum`
    adds in an order that depends on the size of the row. It is used in a graph where
    that size is unknown.

    Args:
        values: tensor of shape `(..., size)`.

    Returns:
        A tensor of shape `(...)`.
    """
    size = values.shape[-1]
    if size is None:
        return ops.sum(values, axis=-1)
    values = backend.no_fma(values)
    if size > _SHORT_ROW:
        values = _folded(values, size)
        size = values.shape[-1]
    levels = (size - 1).bit_length()
    if 2**levels > size:
        values = with_columns(values, 0.0, 2**levels - size)
    return backend.tree_sum(values, levels)


def _folded(values: Tensor, size: int) -> Tensor:
    """Adds the entries beyond a power of two to the start of each row.

    It is the first addition of the tree, without a padded copy.
    """
    half = 2 ** ((size - 1).bit_length() - 1)
    start = values[..., : size - half] + values[..., half:]
    if size == 2 * half:
        return start
    return ops.concatenate([start, values[..., size - half : half]], axis=-1)


def totals(rows: Sequence[Tensor], factors: Sequence[Tensor]) -> list[Tensor]:
    """Returns `total(x * y)` of each pair, in one tree if their sizes agree."""
    stack, number = backend.library_of(rows[0]).stack, len(rows)
    if all(each is factors[0] for each in factors):
        return list(ops.unstack(total(stack(rows) * factors[0]), number))
    products = [x * y for x, y in zip(rows, factors, strict=True)]
    sizes = {each.shape[1] for each in products}
    if len(sizes) > 1 or None in sizes:
        return [total(each) for each in products]
    return list(ops.unstack(total(stack(products)), number))


def shifted(values: Tensor, places: int, fill: float) -> Tensor:
    """Moves each row to the right."""
    return backend.padded(values[..., :-places], places, 0, fill)


def with_columns(x: Tensor, value: float, number: int) -> Tensor:
    """Adds columns of one value at the end of each row."""
    return backend.padded(x, 0, number, value)


def through_batch(positions: Tensor, row_size: Tensor | int) -> Tensor:
    """Turns positions within rows into positions in the flattened batch.

    Args:
        positions: int tensor of shape `(batch, some)`.
        row_size: the number of positions in a row.
    """
    rows = ops.arange(size_of(positions, 0), dtype="int32")[:, None]
    return positions + rows * row_size


# Weights are capped here, and gains at `LARGEST_GAIN`, so that sums of their products
# stay within float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64

# The smallest label above 0, as some backends treat denormal numbers as 0.
SMALLEST_LABEL = float(np.finfo("float32").smallest_normal)


class Limits(NamedTuple):
    """The smallest number that all backends distinguish from 0, and the largest."""

    largest_denormal: float
    smallest_normal: float
    largest: float


@functools.lru_cache(maxsize=16)
def limits_of(dtype: Any) -> Limits:
    """The limits of a dtype."""
    limits = np.finfo(keras.backend.standardize_dtype(dtype))
    normal = float(limits.smallest_normal)
    denormal = normal - float(limits.smallest_subnormal)
    return Limits(denormal, normal, float(limits.max))


def as_ranked(scores: Tensor) -> Tensor:
    """Scores for comparison, with denormal ones set to 0.

    XLA distinguishes -0.0 from 0.0, and some backends treat denormal numbers as 0.
    """
    return backend.shrunk(scores, limits_of(scores.dtype).largest_denormal)


def are_ranked_as(scores: Tensor, ranked: Tensor) -> Tensor:
    """Whether scores are equal to a number, once they are ranked: `as_ranked`."""
    least, most = range_of(ranked)
    return ops.logical_and(scores >= least, scores <= most)


def range_of(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest score that are ranked as a number."""
    denormal = limits_of(ranked.dtype).largest_denormal
    is_zero = ranked == 0.0
    least = backend.where(is_zero, -denormal, ranked)
    return least, backend.where(is_zero, denormal, ranked)


def as_compared(scores: Tensor) -> Tensor:
    """The same, with `-inf` for NaN."""
    return as_ranked(backend.without_nan(scores))


def within_limits(labels: Tensor) -> Tensor:
    """Labels of 0 or more: denormal ones are 0, and infinite ones are capped."""
    return backend.minimum(as_ranked(labels), limits_of(labels.dtype).largest)


# Sizes above it are rounded up by at most a quarter.
_FINE = 256


def rounded_up(size: int, least: int) -> int:
    """Rounds up to one of a few sizes, as a program is compiled for each."""
    power = 1 << max(size - 1, 0).bit_length()
    if power <= _FINE:
        return max(power, least)
    step = power // 8
    return -(-size // step) * step


def enlarged(
    x: Tensor, old: tuple[int, ...], new: tuple[int, ...], fill: float
) -> Tensor:
    """Returns a tensor or array whose axes of old sizes have new ones.

    Entries of one value are appended.
    """
    axes = zip(x.shape, old, new, strict=False)
    shape = [after if size == before else size for size, before, after in axes]
    if list(x.shape) == shape:
        return x
    if not isinstance(x, np.ndarray):
        more = [(0, size - old) for old, size in zip(x.shape, shape, strict=True)]
        return ops.pad(x, more, constant_values=fill)
    larger = np.full(shape, fill, x.dtype)
    larger[tuple(map(slice, x.shape))] = x
    return larger


def with_last_repeated(x: Tensor, size: int) -> Tensor:
    """Returns a tensor or array with the last entry of each row appended."""
    places = np.minimum(np.arange(size), x.shape[1] - 1)
    return (np if isinstance(x, np.ndarray) else ops).take(x, places, axis=1)


def first_rows(x: Tensor, number: int | None) -> Tensor:
    """Returns the rows without those that were appended."""
    if number is None or x.shape[0] in (None, number):
        return x
    return backend.to_tensor(ops.convert_to_numpy(x)[:number])
