"""Functions for NumPy, where those of Keras copy inputs, sort whole rows and warn."""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import generic
from keras_rank.backends.generic import Array, Branch, Side, Tensor

# A comparison with a threshold takes NumPy longer than other backends.
MAX_COMPARISONS = 8

# Cutting rows of this size into blocks is faster than partitioning them, and much
# faster if many entries are equal. Blocks are strided, as a maximum over adjacent
# entries takes ten times as long.
LONG_ROW = 512
BLOCKS_ARE_STRIDED = True
# NumPy counts rows of this size in the time in which it selects the largest entry.
MIN_SELECTION_RATIO = 10_000
# Number of booleans that are summed as 255 words of eight bytes.
_WORD_GROUP_SIZE = 8 * 255
# Rows of this size or less are sorted faster than NumPy selects from them.
_SHORT_ROW = 512


def is_concrete(x: Tensor) -> bool:
    return not isinstance(x, keras.KerasTensor)


def get_layer_mask(x: Any) -> Tensor | None:
    """Calls the mask layer only if the array has a weak reference.

    Keras holds a weak reference to each array with a mask. Calling the layer takes a
    tenth of the time of a small batch.
    """
    may_have_mask = isinstance(x, np.ndarray) and weakref.getweakrefcount(x) > 0
    return generic.mask_layers()[0](x) if may_have_mask else None


def pad_rows(x: Tensor, before: int, after: int, value: float) -> Tensor:
    *rows, size = x.shape
    padded = np.full((*rows, before + size + after), value, x.dtype)
    padded[..., before : before + size] = x
    return padded


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Casts the result if a Python float has promoted integers.

    Returns `x` if the condition is true everywhere: this test takes less time than the
    allocation of a copy.
    """
    if isinstance(condition, keras.KerasTensor):
        return ops.where(condition, x, y)
    has_same_shape = isinstance(y, int | float) and np.shape(x) == condition.shape
    if has_same_shape and np.ndim(x) and condition.all():
        return x
    result = np.where(condition, x, y)
    dtype = np.asarray(y if isinstance(x, int | float) else x).dtype
    return result if result.dtype == dtype else result.astype(dtype)


minimum, maximum = np.minimum, np.maximum
# `np.exp2` takes a tenth of the time of a power, and is exact for all integers but 127.
power_of_two = np.exp2


def suppress_float_warnings() -> contextlib.AbstractContextManager[Any]:
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")


# OpenBLAS falsely reports invalid values on some CPUs.
full_precision = suppress_float_warnings


def rounds_by_column() -> bool:
    """Returns True: OpenBLAS sums the columns of a matrix in different orders."""
    return True


def running_total(x: Tensor) -> Tensor:
    return np.cumsum(x, axis=-1, dtype="float64").astype(x.dtype)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    return [count_true_bytes(x()).astype(dtype) for x in conditions]


def count_true_bytes(conditions: Tensor) -> Tensor:
    """Counts the true entries of each row.

    Counting takes a tenth of the time of a sum of numbers. Summing words of eight bytes
    takes a tenth of that. Each byte of a sum holds counts of up to 255.
    """
    # A comparison of a transposed view has the layout of the view.
    conditions = np.ascontiguousarray(conditions)
    end = conditions.shape[1] // _WORD_GROUP_SIZE * _WORD_GROUP_SIZE
    counts = np.count_nonzero(conditions[:, end:], axis=1, keepdims=True)
    if end:
        words = conditions[:, :end].view("uint64").reshape(len(counts), -1, 255)
        sums = words.sum(axis=2).view("uint8")
        counts += sums.sum(axis=1, keepdims=True, dtype="int64")
    return counts


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """Uses `argmax` of booleans, which stops at the first True: a fifth of the time."""
    first = np.zeros(conditions.shape, like.dtype)
    np.put_along_axis(first, conditions.argmax(axis=1, keepdims=True), 1.0, axis=1)
    return first


def bincount(ids: Tensor, number: int) -> Tensor:
    return np.bincount(ids[ids < number], minlength=number).astype("int32")


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Uses `np.bincount`, as `keras.ops.segment_sum` would sort the groups first."""
    group = group.astype(np.intp)
    totals = np.bincount(group, np.ravel(values)).astype(values.dtype)
    return totals[group].reshape(values.shape)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Uses flat indices: a third of the time of `np.take_along_axis`."""
    starts = x.shape[1] * np.arange(x.shape[0])[:, None]
    return np.take(x, positions + starts)


def block_maxima(x: Tensor, size: int) -> Tensor:
    number = x.shape[1] // size
    return x[:, : number * size].reshape(-1, size, number).max(axis=1)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Partitions long rows, as `keras.ops.top_k` sorts whole rows."""
    if x.shape[1] <= max(_SHORT_ROW, 8 * count):
        # The smallest integer has no negation, so the bits of integers are inverted.
        positions = argsort(-x if x.dtype.kind == "f" else ~x)[:, :count]
        return take(x, positions), positions
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Sorts values without positions, which is three times as fast."""
    if x.shape[1] <= max(_SHORT_ROW, 8 * count):
        return np.sort(x, axis=1)[:, ::-1][:, :count]
    return np.sort(np.partition(x, -count, axis=1)[:, -count:], axis=1)[:, ::-1]


def argsort(x: Tensor) -> Tensor:
    if x.dtype in ("float32", "int32"):
        pairs = sort_packed_pairs(x, np.arange(x.shape[1]))
        pairs &= 0xFFFFFFFF
        return pairs
    return generic.argsort(x)


def sort_packed_pairs(x: Array, keys: Array) -> Array:
    """Sorts 64-bit integers of values (high bits) and int32 keys (low bits).

    This takes half the time of NumPy's stable argsort.
    """
    # Allocating memory costs as much as the arithmetic, so it is done in place.
    if x.dtype == "float32":
        # The sum turns -0.0 into 0.0, as both are equal.
        x = _flip_magnitude_bits((x + np.float32(0.0)).view("int32"))
    pairs = x.astype("int64")
    pairs <<= 32
    pairs += keys
    pairs.sort(axis=1)
    return pairs


def _flip_magnitude_bits(bits: Array) -> Array:
    """Flips all bits of negative numbers but the sign. Two calls cancel out."""
    flipped: Array = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return flipped


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    if x.dtype != "float32":
        order = np.lexsort((keys, x))
        return take(x, order), take(keys, order)
    pairs = sort_packed_pairs(x, keys)
    keys = pairs.astype("int32")
    pairs -= keys
    pairs >>= 32
    return _flip_magnitude_bits(pairs.astype("int32")).view("float32"), keys


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Branch) -> Tensor:
    counts = np.empty(thresholds.shape, "int32")
    for row, row_thresholds, row_counts in zip(rows, thresholds, counts, strict=True):
        row_counts[:] = row.searchsorted(row_thresholds, side)
    return counts
