"""What has to be done otherwise on some backends: branches, the largest, sorts.

The only file that names a backend.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, at_least, where
from keras_rank.shared import in_branch

INT32_MIN = -(2**31)

# Fewer entries than these are sorted as fast in any way.
_MANY_ENTRIES = 4096


def cond(
    condition: Tensor | bool, if_true: Callable[[], Any], if_false: Callable[[], Any]
) -> Any:
    """Computes one of two, and only that, on every backend but in a vmap."""
    if _has_value(condition):
        return if_true() if condition else if_false()
    return ops.cond(condition, in_branch(if_true), in_branch(if_false))


def is_known_true(condition: Tensor | bool) -> bool:
    """Whether a condition is true, as far as Python can see it."""
    return _has_value(condition) and bool(condition)


def _has_value(condition: Tensor | bool) -> bool:
    """Whether Python can see it, and had better not leave it to Keras.

    JAX would compile both branches anew at every call outside of jit. On torch Keras
    gives each call a name of its own, for which torch.compile would compile it anew.
    """
    backend = keras.backend.backend()
    if backend == "numpy" or isinstance(condition, bool):
        return True
    if backend == "jax":
        import jax

        return not isinstance(condition, jax.core.Tracer)
    if backend == "torch" and ops.is_tensor(condition):
        return bool(condition.device.type != "meta")
    return False


def none_below_zero(x: Tensor) -> Tensor:
    """Whether all entries are 0 or more, which NaN is not."""
    # In passes that only read, where a comparison writes a copy.
    lowest = ops.min(x)
    return ops.logical_and(lowest >= 0.0, ops.logical_not(may_have_nan(x, lowest)))


def may_have_nan(x: Tensor, extremes: Tensor) -> Tensor:
    """Whether there is NaN in a tensor, of which minima or maxima are given.

    They show NaN, but in XLA on CPU: there a maximum forgets what came before NaN. A
    sum shows it (as it does infinities of both signs).
    """
    if keras.backend.backend() in ("jax", "tensorflow"):
        return ops.isnan(ops.sum(x))
    return ops.any(ops.isnan(extremes))


def sum_by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns the sum of a function of the entries of each row, of shape `(rows,)`.

    XLA on CPU writes to memory what it sums: the rows one by one, in the same place.
    """
    # Outside of jit, JAX would compile the map anew at every call.
    if _is_jax_on_cpu() and not _has_value(x) and x.shape[1] >= _MANY_ENTRIES:
        return ops.map(lambda row: ops.sum(function(row)), x)
    return ops.sum(function(x), axis=1)


def neighbours_are_slow() -> bool:
    """Whether a maximum over a few entries side by side takes ten times as long."""
    return bool(keras.backend.backend() == "numpy")


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the largest entries of each row in falling order, and their positions."""
    backend = keras.backend.backend()
    if backend == "jax" and x.dtype == "int32" and count < x.shape[1]:
        return _top_k_of_whole_numbers(x, count)
    if backend == "torch":
        values, positions = ops.top_k(x, count)
        return values, positions
    if backend != "numpy":
        values, positions = ops.top_k(x, count)
        # XLA on CPU makes a slice of its TopK a full sort, ten times slower, unless
        # there is an operation between the two.
        lowest = lowest_of_dtype(x)
        values = where(values > lowest, values, lowest)
        return values, at_least(positions, 0)
    # Keras sorts whole rows on NumPy.
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def _top_k_of_whole_numbers(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """By float32 numbers, which XLA on CPU selects ten times as fast as int32, or more.

    They are in the same order, but some become equal. Where the cut parts such, they
    will not do.
    """
    rounded = where(x > INT32_MIN, ops.cast(x, "float32"), -math.inf)
    values, positions = top_k(rounded, count + 1)
    last, next_one = values[:, count - 1], values[:, count]
    will_do = ops.logical_or(last > next_one, last == -math.inf)

    def nearly_in_order() -> Tensor:
        found = positions[:, :count]
        ascending = stable_argsort(ops.take_along_axis(x, found, axis=1))
        return ops.take_along_axis(found, ops.flip(ascending, axis=1), axis=1)

    positions = cond(ops.all(will_do), nearly_in_order, lambda: ops.top_k(x, count)[1])
    return ops.take_along_axis(x, positions, axis=1), positions


def lowest_of_dtype(x: Tensor) -> float | int:
    """The lowest number of the dtype of a tensor."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype == "bool":
        return False
    return INT32_MIN if "int" in dtype else -math.inf


def stable_argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row; equal entries stay in their order."""
    if keras.backend.backend() == "numpy":
        # Keras asks for NumPy's quicksort, which is not stable.
        is_short = x.dtype in ("float32", "int32")
        return _argsort_by_keys(x) if is_short else np.argsort(x, 1, kind="stable")
    if _is_sorted_by_bits(x) and x.shape[1] <= 2**15:
        return _argsort_by_bits(_sortable_bits(x))
    return ops.argsort(x, axis=1)


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the entries of each row, the largest first, and their positions.

    Equal entries are in any order.
    """
    if keras.backend.backend() in ("tensorflow", "torch"):
        # These sort entries with their positions, of which `ops.argsort` keeps half.
        values, positions = ops.top_k(x, ops.shape(x)[1])
        return values, positions
    return stably_descending(x)


def stably_descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same, with equal entries in the order in which they were."""
    order = stable_argsort(-x)
    return ops.take_along_axis(x, order, axis=1), order


def sorted_rows(x: Tensor) -> Tensor:
    """Returns the entries of each row, the smallest first."""
    if not _is_sorted_by_bits(x):
        return ops.sort(x, axis=1)
    in_order = ops.sort(_sortable_bits(x), axis=1)
    return in_order if x.dtype == "int32" else _flipped(in_order).view("float32")


def _argsort_by_keys(x: Tensor) -> Tensor:
    """By bits with positions below: NumPy's stable argsort takes twice as long."""
    # In place, as fresh memory costs as much as the arithmetic.
    keys = _sortable_bits(x).astype("int64")
    keys <<= 32
    keys |= np.arange(x.shape[1])
    keys.sort(axis=1)
    keys &= 0xFFFFFFFF
    return keys


def _is_sorted_by_bits(x: Tensor) -> bool:
    """XLA on CPU sorts a single int32 operand six times as fast as anything else."""
    if not _is_jax_on_cpu() or x.dtype not in ("float32", "int32"):
        return False
    rows, row_size = x.shape
    return bool(rows * row_size >= _MANY_ENTRIES)


def _is_jax_on_cpu() -> bool:
    if keras.backend.backend() != "jax":
        return False
    import jax

    return bool(jax.default_backend() == "cpu")


def _sortable_bits(x: Tensor) -> Tensor:
    """Int32 numbers in the order of float32 numbers, or as they are."""
    if x.dtype == "int32":
        return x
    return _flipped(where(x == 0.0, 0.0, x).view("int32"))


def _flipped(bits: Tensor) -> Tensor:
    """Flips all bits of negative numbers but the sign: its own inverse."""
    # By operators: Keras copies what it is given on NumPy.
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _argsort_by_bits(bits: Tensor) -> Tensor:
    """Sorts by the lower 16 bits, then by the higher, each with the position below."""
    width = (bits.shape[1] - 1).bit_length()
    place = ops.arange(bits.shape[1], dtype="int32")

    def places_by(half: Tensor) -> Tensor:
        keys = (half << width) | place
        return ops.sort(keys, axis=1) & ((1 << width) - 1)

    order = places_by(bits & 0xFFFF)
    higher = ops.take_along_axis(bits >> 16, order, axis=1)
    return ops.take_along_axis(order, places_by(higher), axis=1)


def total_by_group(values: Tensor, group: Tensor) -> Tensor:
    """Returns, for each entry, the sum over its group.

    Args:
        values: tensor of shape `(batch, depth)`.
        group: int tensor of shape `(batch * depth,)`. The group of each entry.
    """
    if keras.backend.backend() == "torch" and values.is_meta:
        # Keras's segment_sum fails where it is only traced, without values.
        return values
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))
