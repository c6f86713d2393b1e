"""The order of each list by its scores: who is in the top k, and what ties mean.

The only file that decides ties, and the only one that names a backend.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, total, where
from keras_rank.lists import Lists

Ties = Literal["shuffle", "stable", "average"]

_INT32_MIN = -(2**31)

# Rows of this many entries or more are cut into blocks (see `_largest`).
_LONG_ROW = 2048


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The first `depth` ranks of each list.

    A formula reads a ranking as a sequence of groups of tied items. Where ties are
    broken, by chance or by position, each group has one item.

    Attributes:
        order: int tensor of shape `(batch, depth)`. The positions in the list of
            the items at each rank.
        occupied: boolean tensor of shape `(batch, depth)`. Where a rank has an
            item: items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ...
        ties: `None`, or the groups of tied items if ties are averaged.
    """

    order: Tensor
    occupied: Tensor
    ranks: Tensor
    ties: "TieGroups | None" = None

    def take(self, values: Tensor) -> Tensor:
        """Returns the values of the items by rank, 0 where a rank has no item.

        Where ties are averaged, it is the mean over the tied items: what is
        expected at that rank if they come in random order.

        Args:
            values: tensor of shape `(batch, list_size)`.

        Returns:
            A tensor of shape `(batch, depth)`.
        """
        taken = ops.take_along_axis(values, self.order, axis=1)
        taken = where(self.occupied, taken, 0.0)
        return taken if self.ties is None else self.ties.mean(taken, values)

    @property
    def depth(self) -> Tensor | int:
        """The number of ranks."""
        return ops.shape(self.order)[1]

    @property
    def group_sizes(self) -> Tensor:
        """The number of items tied with that of a rank, itself included.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.sizes

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group of tied items: 1, 2, ..., group size.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.places


@dataclasses.dataclass(frozen=True)
class TieGroups:
    """The groups of tied items in the first `depth` ranks of each list.

    Attributes:
        any: boolean scalar tensor. Whether any items tie at all.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            items beyond the last rank included.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        scores: tensor of shape `(batch, list_size)`.
        cut_score: tensor of shape `(batch, 1)`. The score of the group that goes on
            beyond the last rank; NaN, which equals no score, if none does.
        cut: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    any: Tensor
    group: Tensor
    sizes: Tensor
    places: Tensor
    scores: Tensor
    cut_score: Tensor
    cut: Tensor

    def mean(self, taken: Tensor, values: Tensor) -> Tensor:
        """Returns the mean of the values over the group of each rank."""

        def averaged() -> Tensor:
            totals = _total_by_group(taken, self.group)
            in_cut_group = where(self.scores == self.cut_score, values, 0.0)
            cut_totals = total(in_cut_group)[:, None]
            return where(self.cut, cut_totals, totals) / self.sizes

        return cond(self.any, averaged, lambda: taken)


def rank(
    lists: Lists,
    k: int | None,
    ties: Ties,
    seed: int = 0,
    first_list: Tensor | int = 0,
) -> Ranking:
    """Orders the items of each list by their scores, the highest first.

    Args:
        lists: the lists.
        k: the number of ranks, or `None` for all.
        ties: how tied items are ordered: `"shuffle"`, `"stable"` (by position) or
            `"average"` (not at all: see `Ranking.take`).
        seed: the seed of the shuffle.
        first_list: the number of lists seen before, which keys the shuffle too.
    """
    scores = lists.scores

    def preference() -> Tensor:
        """Int32 keys: among tied items the one with the larger key goes first."""
        if ties == "shuffle":
            return _hash(seed, lists, first_list)
        positions = ops.arange(ops.shape(scores)[1], dtype="int32")
        return ops.broadcast_to(-positions, ops.shape(scores))

    list_size = scores.shape[1]
    if k is None or (list_size is not None and k >= list_size):
        order = _stable_argsort(-scores)
        by_rank = ops.take_along_axis(scores, order, axis=1)
        next_by_rank = _shifted_left(by_rank)
        tied = _tied(by_rank, next_by_rank)
        if ties == "shuffle":
            order = cond(
                ops.any(tied),
                lambda: _sorted_by(scores, preference(), order),
                lambda: order,
            )
    else:
        depth = _depth(scores, k)
        # The score at rank k + 1 tells whether a tie goes on beyond the cutoff.
        by_rank, order = _largest(scores, _depth(scores, k + 1))
        next_by_rank = _shifted_left(by_rank)[:, :depth]
        by_rank, order = by_rank[:, :depth], order[:, :depth]
        tied = _tied(by_rank, next_by_rank)
        if ties != "average":
            order = cond(
                ops.any(tied),
                lambda: _tie_broken(scores, preference(), by_rank, order),
                lambda: order,
            )
    dtype = lists.labels.dtype
    return Ranking(
        order=order,
        occupied=by_rank > -math.inf,
        ranks=ops.cast(ops.arange(1, ops.shape(by_rank)[1] + 1), dtype),
        ties=_tie_groups(scores, by_rank, tied, dtype) if ties == "average" else None,
    )


def top_values(values: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, the largest first."""
    if values.shape[1] is not None and count == values.shape[1]:
        return ops.flip(ops.sort(values, axis=1), axis=1)
    return _largest(values, count)[0]


def in_order_of(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each list in the order of the keys.

    Args:
        values: tensor of shape `(batch, list_size)`.
        *keys: tensors of the same shape. A key to sort by, the smallest first, and
            optionally scores, the largest first, which come before the key.
    """
    key, *scores = keys
    order = _stable_argsort(key)
    for score in scores:
        by_score = _stable_argsort(-ops.take_along_axis(score, order, axis=1))
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
    sequence = _stable_argsort(values)
    here = ops.arange(ops.shape(values)[1], dtype="int32")
    count = 0.0
    for digit in reversed(range(digits)):
        order = _stable_argsort(ops.right_shift(sequence, digit))
        moved_ahead = ops.maximum(order - here, 0)
        count = count + total(ops.cast(moved_ahead, "float32"))
        sequence = ops.take_along_axis(sequence, order, axis=1)
    return count


def _depth(scores: Tensor, k: int) -> Tensor | int:
    list_size = scores.shape[1]
    if list_size is None:
        return ops.minimum(k, ops.shape(scores)[1])
    return min(k, list_size)


def _shifted_left(by_rank: Tensor) -> Tensor:
    """The scores at the next rank, -inf after the last."""
    return ops.pad(by_rank[:, 1:], [(0, 0), (0, 1)], constant_values=-math.inf)


def _tied(by_rank: Tensor, next_by_rank: Tensor) -> Tensor:
    """Whether the item at a rank ties with that at the next."""
    return ops.logical_and(by_rank == next_by_rank, by_rank > -math.inf)


def _tie_broken(
    scores: Tensor, preference: Tensor, by_rank: Tensor, order: Tensor
) -> Tensor:
    """Puts the preferred of the tied items into the top, and these in order.

    Items above the last score of the top are in for certain; those that equal it
    compete for the ranks that are left.
    """
    last = by_rank[:, -1:]
    competing = where(scores == last, preference, _INT32_MIN)
    _, competitors = _largest(competing, ops.shape(order)[1])
    above = by_rank > last
    number_above = ops.sum(ops.cast(above, "int32"), axis=1, keepdims=True)
    turn = ops.arange(ops.shape(order)[1], dtype="int32") - number_above
    filled = ops.take_along_axis(competitors, ops.maximum(turn, 0), axis=1)
    return _sorted_by(scores, preference, where(above, order, filled))


def _sorted_by(scores: Tensor, preference: Tensor, order: Tensor) -> Tensor:
    """Sorts positions by score, then by preference, the highest first."""
    preferred = _stable_argsort(-ops.take_along_axis(preference, order, axis=1))
    order = ops.take_along_axis(order, preferred, axis=1)
    by_score = _stable_argsort(-ops.take_along_axis(scores, order, axis=1))
    return ops.take_along_axis(order, by_score, axis=1)


def _tie_groups(scores: Tensor, by_rank: Tensor, tied: Tensor, dtype: str) -> TieGroups:
    batch, depth = ops.shape(by_rank)
    starts = ops.logical_not(ops.pad(tied[:, :-1], [(0, 0), (1, 0)]))
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    rows = ops.arange(batch, dtype="int32")[:, None] * depth
    group = ops.reshape(rows + number, (-1,))
    cut_score = where(tied[:, -1:], by_rank[:, -1:], math.nan)
    cut = by_rank == cut_score
    any_tied = ops.any(tied)
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def sizes() -> Tensor:
        equal = ops.cast(scores == cut_score, dtype)
        cut_sizes = ops.sum(equal, axis=1, keepdims=True)
        return where(cut, cut_sizes, _total_by_group(ones, group))

    def places() -> Tensor:
        position = ops.cast(ops.arange(depth), dtype)
        start = _total_by_group(where(starts, position, 0.0), group)
        return position - start + 1.0

    return TieGroups(
        any=any_tied,
        group=group,
        sizes=cond(any_tied, sizes, lambda: ones),
        places=cond(any_tied, places, lambda: ones),
        scores=scores,
        cut_score=cut_score,
        cut=cut,
    )


def _total_by_group(values: Tensor, group: Tensor) -> Tensor:
    """Returns, for each entry, the sum over its group."""
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))


def _largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first; equal entries are in any order, and any of those that
    equal the last one may be in.

    Long rows are cut into blocks: the largest entries lie in the `count` blocks of
    the largest maxima, so that only these few need a closer look. That reads the
    row once instead of selecting from it.
    """
    rows, row_size = x.shape
    is_long = row_size is not None and row_size >= max(_LONG_ROW, 16 * count)
    if not is_long or rows == 0:
        return _top_k(x, count)
    block_size = _block_size(row_size, count)
    blocks = -(-row_size // block_size)
    if blocks * block_size > row_size:
        rest = blocks * block_size - row_size
        x = ops.pad(x, [(0, 0), (0, rest)], constant_values=_lowest(x))
    x = ops.reshape(x, (-1, blocks, block_size))
    _, best = _top_k(ops.max(x, axis=2), count)
    candidates = ops.take_along_axis(x, best[:, :, None], axis=1)
    values, found = _top_k(ops.reshape(candidates, (-1, count * block_size)), count)
    block = ops.take_along_axis(best, found // block_size, axis=1)
    return values, block * block_size + found % block_size


def _block_size(row_size: int, count: int) -> int:
    """About `sqrt(row_size / count)`, where the two steps of `_largest` cost alike.

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
    return _INT32_MIN if "int" in str(x.dtype) else -math.inf


def cond(
    condition: Tensor, if_true: Callable[[], Tensor], if_false: Callable[[], Tensor]
) -> Tensor:
    """Computes one of two, and only that, on every backend but in a vmap."""
    if keras.backend.backend() == "jax":
        import jax

        # JAX would compile both branches anew at every call outside of jit.
        if not isinstance(condition, jax.core.Tracer):
            return if_true() if condition else if_false()
    return ops.cond(condition, if_true, if_false)


def _stable_argsort(x: Tensor) -> Tensor:
    if keras.backend.backend() != "numpy":
        return ops.argsort(x, axis=1)
    # Keras asks NumPy for its quicksort, which is not stable.
    return np.argsort(x, axis=1, kind="stable")


def _hash(seed: int, lists: Lists, first_list: Tensor | int) -> Tensor:
    """Random int32 numbers, a function of the seed, the list and the item alone.

    Lists and items are counted without padding, so that padding changes nothing.
    Counters are hashed instead of numbers drawn: Keras's generators give another
    stream on each backend, stand still inside a metric on JAX, and can't be drawn
    from inside `ops.cond`.
    """
    has_items = ops.cast(lists.has_items, "int32")
    list_number = first_list + ops.cumsum(has_items) - 1
    item_number = ops.cumsum(ops.cast(lists.mask, "int32"), axis=1)
    list_key = _mix(ops.bitwise_xor(_mix(list_number), _fold(seed)))
    keys = _mix(ops.bitwise_xor(_mix(item_number), list_key[:, None]))
    # The lowest number is kept for what does not compete, and has no negative.
    return ops.maximum(keys, _INT32_MIN + 1)


def _mix(x: Tensor) -> Tensor:
    """Scrambles int32 numbers, one to one (Wellons' "lowbias32").

    On int32, as unsigned numbers become int64 on torch.
    """
    x = ops.bitwise_xor(x, _logical_right_shift(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _logical_right_shift(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _logical_right_shift(x, 16))


def _logical_right_shift(x: Tensor, bits: int) -> Tensor:
    """Shifts in zeros, where the shift of a signed number copies its sign."""
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def _fold(seed: int) -> int:
    """Folds a seed of any size into an int32."""
    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)
