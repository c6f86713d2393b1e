"""NumPy: Keras's functions copy what they get, sort whole rows, and warn of NaN."""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import generic
from keras_rank.backends.generic import Array, Side, Tensor, Way

# Comparing with a threshold takes NumPy longer than others.
MOST_COMPARISONS = 8

# To partition rows of more entries takes longer than to cut them into blocks, and much
# longer if many are equal. A maximum over adjacent entries takes ten times as long.
LONG_ROW = 512
BLOCKS_ARE_SPREAD = True
# It compares and counts rows of this many in the time in which it finds the largest.
MANY_TO_COUNT = 10_000
# As many conditions are added as numbers of eight bytes.
_OF_WORDS = 8 * 255
# Rows of this many entries are sorted sooner than it would select from them.
_SHORT_ROW = 512


def is_concrete(x: Tensor) -> bool:
    return not isinstance(x, keras.KerasTensor)


def layer_mask(x: Any) -> Tensor | None:
    """Keras forgets a mask with its array, so that it has a weak reference to that.

    To ask a layer takes a tenth of the time of a small batch.
    """
    may_have_one = isinstance(x, np.ndarray) and weakref.getweakrefcount(x) > 0
    return generic.mask_layers()[0](x) if may_have_one else None


def padded(x: Tensor, before: int, after: int, value: float) -> Tensor:
    *rows, size = x.shape
    whole = np.full((*rows, before + size + after), value, x.dtype)
    whole[..., before : before + size] = x
    return whole


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """A bare float takes the dtype of other floats, but makes floats of integers.

    To look whether a number is chosen anywhere takes less time than memory for a copy.
    """
    if isinstance(condition, keras.KerasTensor):
        return ops.where(condition, x, y)
    is_alike = isinstance(y, int | float) and np.shape(x) == condition.shape
    if is_alike and np.ndim(x) and condition.all():
        return x
    chosen = np.where(condition, x, y)
    dtype = np.asarray(y if isinstance(x, int | float) else x).dtype
    return chosen if chosen.dtype == dtype else chosen.astype(dtype)


minimum, maximum = np.minimum, np.maximum
# In a tenth of the time of a power, and exact for whole numbers but 127.
power_of_two = np.exp2


def quiet() -> contextlib.AbstractContextManager[Any]:
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")


# OpenBLAS also says, on some CPUs, that a value was invalid where none was.
full_precision = quiet


def rounds_by_column() -> bool:
    """OpenBLAS adds up the columns of a matrix in different orders."""
    return True


def running_total(x: Tensor) -> Tensor:
    return np.cumsum(x, axis=-1, dtype="float64").astype(x.dtype)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    return [sum_of_bytes(x()).astype(dtype) for x in conditions]


def sum_of_bytes(conditions: Tensor) -> Tensor:
    """The number of true entries of each row.

    To count them takes a tenth of the time of a sum of numbers, and another tenth of
    that if eight bytes are added as one number: each byte holds sums of up to 255.
    """
    # A comparison of a transposed view has its layout.
    conditions = np.ascontiguousarray(conditions)
    last = conditions.shape[1] // _OF_WORDS * _OF_WORDS
    counts = np.count_nonzero(conditions[:, last:], axis=1, keepdims=True)
    if last:
        words = conditions[:, :last].view("uint64").reshape(len(counts), -1, 255)
        sums = words.sum(axis=2).view("uint8")
        counts += sums.sum(axis=1, keepdims=True, dtype="int64")
    return counts


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """In a fifth of the time, as the search of each row ends there."""
    first = np.zeros(conditions.shape, like.dtype)
    np.put_along_axis(first, conditions.argmax(axis=1, keepdims=True), 1.0, axis=1)
    return first


def bincount(ids: Tensor, number: int) -> Tensor:
    return np.bincount(ids[ids < number], minlength=number).astype("int32")


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Keras would sort the groups first."""
    group = group.astype(np.intp)
    totals = np.bincount(group, np.ravel(values)).astype(values.dtype)
    return totals[group].reshape(values.shape)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """In a third of the time of `np.take_along_axis`."""
    starts = x.shape[1] * np.arange(x.shape[0])[:, None]
    return np.take(x, positions + starts)


def block_maxima(x: Tensor, size: int) -> Tensor:
    number = x.shape[1] // size
    return x[:, : number * size].reshape(-1, size, number).max(axis=1)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """By partitioning each row, as Keras sorts whole rows, unless they are short."""
    if x.shape[1] <= max(_SHORT_ROW, 8 * count):
        # The least integer has no negative.
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
    """Three times as fast without their positions."""
    if x.shape[1] <= max(_SHORT_ROW, 8 * count):
        return np.sort(x, axis=1)[:, ::-1][:, :count]
    return np.sort(np.partition(x, -count, axis=1)[:, -count:], axis=1)[:, ::-1]


def argsort(x: Tensor) -> Tensor:
    if x.dtype in ("float32", "int32"):
        pairs = pairs_in_order(x, np.arange(x.shape[1]))
        pairs &= 0xFFFFFFFF
        return pairs
    return generic.argsort(x)


def pairs_in_order(x: Array, keys: Array) -> Array:
    """Sorts bits with int32 keys below, in half the time of NumPy's stable argsort."""
    # In place, as new memory costs as much as the arithmetic.
    if x.dtype == "float32":
        # Turns -0.0 into 0.0, as both are equal.
        x = _flipped((x + np.float32(0.0)).view("int32"))
    pairs = x.astype("int64")
    pairs <<= 32
    pairs += keys
    pairs.sort(axis=1)
    return pairs


def _flipped(bits: Array) -> Array:
    """Flips all bits of negative numbers but the sign: its own inverse."""
    flipped: Array = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return flipped


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    if x.dtype != "float32":
        order = np.lexsort((keys, x))
        return take(x, order), take(keys, order)
    pairs = pairs_in_order(x, keys)
    keys = pairs.astype("int32")
    pairs -= keys
    pairs >>= 32
    return _flipped(pairs.astype("int32")).view("float32"), keys


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Way) -> Tensor:
    number = np.empty(thresholds.shape, "int32")
    for row, of_row, found in zip(rows, thresholds, number, strict=True):
        found[:] = row.searchsorted(of_row, side)
    return number
