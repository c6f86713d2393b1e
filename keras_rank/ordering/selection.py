"""Selecting and sorting: the largest entries, stable orders, branches.

The only file that names a backend: for what Keras does otherwise on one of them.
"""

import math
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, total, where

INT32_MIN = -(2**31)

# Rows of this many entries or more are cut into blocks (see `largest`).
_LONG_ROW = 2048


def in_order_of(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each list in the order of the keys.

    Args:
        values: tensor of shape `(batch, list_size)`.
        *keys: tensors of the same shape. A key to sort by, the smallest first, and
            optionally scores, the largest first, which come before the key.
    """
    key, *scores = keys
    order = stable_argsort(key)
    for score in scores:
        by_score = stable_argsort(-ops.take_along_axis(score, order, axis=1))
        order = ops.take_along_axis(order, by_score, axis=1)
    return ops.take_along_axis(values, order, axis=1)


def inversions(values: Tensor) -> Tensor:
    """Counts the pairs of each list whose first value is larger than the second.

    By sorting with the binary digits of the places that values have when sorted,
    the highest digit first: at each digit, an entry with a 0 moves ahead of the
    entries with a 1 that it is inverted with, and no other. So the memory is that of
    the list, not of its pairs.

    Args:
        values: tensor of shape `(batch, list_size)`.

    Returns:
        A float tensor of shape `(batch,)`.
    """
    size = values.shape[1]
    digits = 31 if size is None else max(size - 1, 1).bit_length()
    sequence = stable_argsort(values)
    here = ops.arange(ops.shape(values)[1], dtype="int32")
    count = 0.0
    for digit in reversed(range(digits)):
        order = stable_argsort(ops.right_shift(sequence, digit))
        moved_ahead = ops.maximum(order - here, 0)
        count = count + total(ops.cast(moved_ahead, "float32"))
        sequence = ops.take_along_axis(sequence, order, axis=1)
    return count


def top_values(values: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, the largest first."""
    size = values.shape[1]
    if isinstance(count, int) and size is not None and count >= size:
        return ops.flip(ops.sort(values, axis=1), axis=1)
    return largest(values, depth_of(values, count))[0]


def depth_of(scores: Tensor, k: Tensor | int) -> Tensor | int:
    """Returns the number of ranks: k, or the size of the lists if that is less."""
    list_size = scores.shape[1]
    if list_size is None or not isinstance(k, int):
        return ops.minimum(k, ops.shape(scores)[1])
    return min(k, list_size)


def sorted_by(scores: Tensor, preference: Tensor, order: Tensor) -> Tensor:
    """Sorts positions by score, then by preference, the highest first."""
    preferred = stable_argsort(-ops.take_along_axis(preference, order, axis=1))
    order = ops.take_along_axis(order, preferred, axis=1)
    by_score = stable_argsort(-ops.take_along_axis(scores, order, axis=1))
    return ops.take_along_axis(order, by_score, axis=1)


def largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first; equal entries are in any order, and any of those that
    equal the last one may be in.

    Long rows are cut into blocks: the largest entries lie in the `count` blocks of
    the largest maxima, so that only these few need a closer look. That reads the
    row once instead of selecting from it.
    """
    return _largest_in_blocks(x, count)[:2] if _is_long(x, count) else _top_k(x, count)


def largest_but_nan(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest entries of each row, NaN apart.

    Whether there may be any NaN is seen on the way, so that long rows are read once,
    and not copied to clean them. The maximum of a block tells, but in XLA for
    TensorFlow, which passes over NaN; there it is in the top of the block.
    """
    if _is_long(x, count):
        values, _, maxima = _largest_in_blocks(x, count)
        seen = ops.logical_or(ops.any(ops.isnan(maxima)), ops.any(ops.isnan(values)))
    else:
        values, seen = _top_k(x, count)[0], ops.any(ops.isnan(x))
    return cond(
        seen,
        lambda: largest(where(x == x, x, -math.inf), count)[0],
        lambda: values,
    )


def _is_long(x: Tensor, count: Tensor | int) -> bool:
    rows, row_size = x.shape
    is_long = row_size is not None and row_size >= max(_LONG_ROW, 16 * count)
    return is_long and rows != 0


def _largest_in_blocks(x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `largest`, and the maxima of the blocks."""
    row_size = x.shape[1]
    block_size = _block_size(row_size, count)
    blocks = -(-row_size // block_size)
    if blocks * block_size > row_size:
        rest = blocks * block_size - row_size
        x = ops.pad(x, [(0, 0), (0, rest)], constant_values=_lowest(x))
    x = ops.reshape(x, (-1, blocks, block_size))
    maxima = ops.max(x, axis=2)
    _, best = _top_k(maxima, count)
    # Whole blocks are copied, where `ops.take_along_axis` goes entry by entry.
    rows = ops.arange(ops.shape(x)[0], dtype="int32")[:, None]
    number = ops.cast(best, "int32") + rows * blocks
    candidates = ops.take(ops.reshape(x, (-1, block_size)), number, axis=0)
    values, found = _top_k(ops.reshape(candidates, (-1, count * block_size)), count)
    block = ops.take_along_axis(best, found // block_size, axis=1)
    positions = block * block_size + found % block_size
    # The lowest entries may lie in the padding, which is not in the row.
    return values, ops.minimum(positions, row_size - 1), maxima


def _block_size(row_size: int, count: int) -> int:
    """About `sqrt(row_size / count)`, where the two steps of `largest` cost alike.

    A divisor of the row's size nearby spares padding, which is a copy of it all.
    """
    ideal = round(math.sqrt(row_size / count))
    nearby = range(ideal // 2 + 1, 2 * ideal)
    divisors = [size for size in nearby if row_size % size == 0]
    return min(divisors, key=lambda size: abs(size - ideal), default=ideal)


def _top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    if keras.backend.backend() != "numpy":
        values, positions = ops.top_k(x, count)
        # XLA on CPU makes a slice of its TopK a full sort, ten times slower, unless
        # there is an operation between the two.
        values = where(values > _lowest(x), values, _lowest(x))
        return values, ops.maximum(positions, 0)
    # Keras sorts whole rows on NumPy.
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def _lowest(x: Tensor) -> float | int:
    return INT32_MIN if "int" in str(x.dtype) else -math.inf


def cond(
    condition: Tensor, if_true: Callable[[], Tensor], if_false: Callable[[], Tensor]
) -> Tensor:
    """Computes one of two, and only that, on every backend but in a vmap."""
    if _has_value(condition):
        return if_true() if condition else if_false()
    return ops.cond(condition, if_true, if_false)


def _has_value(condition: Tensor) -> bool:
    """Whether Python can see it, and had better not leave it to Keras.

    JAX would compile both branches anew at every call outside of jit. On torch Keras
    gives each call a name of its own, for which torch.compile would compile it anew.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return not isinstance(condition, jax.core.Tracer)
    if backend == "torch" and ops.is_tensor(condition):
        return bool(condition.device.type != "meta")
    return False


def stable_argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row; equal entries stay in their order."""
    if keras.backend.backend() != "numpy":
        return ops.argsort(x, axis=1)
    # Keras asks NumPy for its quicksort, which is not stable.
    return np.argsort(x, axis=1, kind="stable")


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
