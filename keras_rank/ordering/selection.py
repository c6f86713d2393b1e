"""Selecting and sorting: the largest entries, stable orders, branches.

The only file that names a backend: for what Keras does otherwise on one of them.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, at_least, at_most, total, where
from keras_rank.shared import in_branch

INT32_MIN = -(2**31)

# Rows of this many entries or more are cut into blocks (see `largest`).
_LONG_ROW = 512


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
        moved_ahead = at_least(order - here, 0)
        count = count + total(ops.cast(moved_ahead, "float32"))
        sequence = ops.take_along_axis(sequence, order, axis=1)
    return count


def top_values(values: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, the largest first."""
    size = ops.shape(values)[1]
    if isinstance(size, int) and isinstance(count, int) and count >= size:
        return ops.flip(ops.sort(values, axis=1), axis=1)
    return largest(values, at_most_size(count, size))[0]


def at_most_size(k: int, size: Tensor | int) -> Tensor | int:
    """Returns k, or the size of the lists if that is less."""
    return min(k, size) if isinstance(size, int) else ops.minimum(k, size)


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
    """
    return largest_of(x, _itself, x, True, count)


def _itself(x: Tensor) -> Tensor:
    return x


def largest_of(
    items: Any,
    rule: Callable[[Any], Tensor],
    raw: Tensor,
    is_raw: Tensor | bool,
    count: Tensor | int,
) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest of what a rule makes of items, and their positions.

    Long rows are cut into blocks: the largest entries lie in the `count` blocks of
    the largest maxima, so that only these few need a closer look, and the rule is
    applied to them alone if it changes no maximum. That reads the rows once, where
    the rule and a selection would read and copy them several times.

    Args:
        items: a tensor of shape `(batch, size)`, or a structure of such with a
            method `map`.
        rule: function of the items, one by one.
        raw: tensor of shape `(batch, size)`. What the rule makes of most items.
        is_raw: boolean. Whether it makes that of all items, but of NaN.
        count: the number of entries, at most `size`.
    """
    if not _is_long(raw, count):
        return _top_k(rule(items), count)
    row_size = raw.shape[1]
    block_size = _block_size(row_size, count)
    blocks = -(-row_size // block_size)

    def in_blocks(x: Tensor) -> Tensor:
        rest = blocks * block_size - row_size
        if rest > 0:
            x = ops.pad(x, [(0, 0), (0, rest)], constant_values=_lowest(x))
        return ops.reshape(x, (-1, blocks, block_size))

    maxima = ops.max(in_blocks(raw), axis=2)
    if rule is not _itself:
        # NaN shows in the maxima, but in XLA for TensorFlow, where they pass over it.
        is_raw = ops.logical_and(is_raw, ops.logical_not(ops.any(ops.isnan(maxima))))
        maxima = cond(
            is_raw,
            lambda: maxima,
            lambda: ops.max(in_blocks(rule(items)), axis=2),
        )
    _, best = _top_k(maxima, count)
    rows = ops.arange(ops.shape(maxima)[0], dtype="int32")[:, None]
    number = ops.cast(best, "int32") + rows * blocks

    def of_best(x: Tensor) -> Tensor:
        # Whole blocks are copied, where `ops.take_along_axis` goes entry by entry.
        x = ops.reshape(in_blocks(x), (-1, block_size))
        return ops.reshape(ops.take(x, number, axis=0), (-1, count * block_size))

    candidates = rule(items.map(of_best) if hasattr(items, "map") else of_best(items))
    values, found = _top_k(candidates, count)
    block = ops.take_along_axis(best, found // block_size, axis=1)
    positions = block * block_size + found % block_size
    # The lowest entries may lie in the padding, which is not in the row.
    return values, at_most(positions, row_size - 1)


def _is_long(x: Tensor, count: Tensor | int) -> bool:
    rows, row_size = x.shape
    is_long = row_size is not None and row_size >= max(_LONG_ROW, 16 * count)
    return is_long and rows != 0


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
        return values, at_least(positions, 0)
    # Keras sorts whole rows on NumPy.
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def _lowest(x: Tensor) -> float | int:
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype == "bool":
        return False
    return INT32_MIN if "int" in dtype else -math.inf


def cond(
    condition: Tensor, if_true: Callable[[], Tensor], if_false: Callable[[], Tensor]
) -> Tensor:
    """Computes one of two, and only that, on every backend but in a vmap."""
    if keras.backend.backend() == "jax":
        import jax

        # JAX would compile both branches anew at every call outside of jit.
        if not isinstance(condition, jax.core.Tracer):
            return if_true() if condition else if_false()
    if keras.backend.backend() in ("jax", "tensorflow"):
        if_true, if_false = in_branch(if_true), in_branch(if_false)
    return ops.cond(condition, if_true, if_false)


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
