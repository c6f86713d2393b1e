"""The order of rows by score and key, and groups of tied entries."""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import (
    all_false,
    append_columns,
    axis_size,
    equals_flushed,
    flatten_positions,
    flush_subnormals,
    inclusive_range,
    shift_right,
    total,
)
from keras_rank.arrays.counting import count_per_row
from keras_rank.arrays.selection import is_full_size, is_long, limit_to_size, top_k
from keras_rank.backends import Tensor, backend


def count_inversions(
    values: Tensor, dtype: str, weights: Tensor | None = None
) -> Tensor:
    """Counts the pairs of each row whose first value is larger than the second.

    The argsort of the values is sorted by its binary digits, the highest digit first.
    At each digit, an entry with a 0 moves ahead of the entries with a 1 with which it
    is inverted, but of no other entries. The sum of these distances is the number of
    inversions. The memory is linear in the row size: no pairs are formed.

    Args:
        values: tensor of shape `(batch, size)`.
        dtype: the dtype of the counts.
        weights: tensor of the same shape. The weight of a pair is the weight of its
            first value. Defaults to `None`: all weights are 1.

    Returns:
        A tensor of shape `(batch,)`.
    """
    sequence = backend.argsort(values)
    weighted = [] if weights is None else [backend.take(weights, sequence)]
    size = axis_size(values, 1)
    index, digits = ops.arange(size, dtype="int32"), _count_digits(size)
    state = (0.0 * ops.cast(sequence[:, 0], dtype), index, sequence, *weighted)
    # A loop compiles one sort, while unrolled steps would compile one for each digit.
    return ops.fori_loop(-digits, 0, _move_zeros_ahead, state)[0]


# A module-level function, as eager JAX would compile a closure again at each call.
def _move_zeros_ahead(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Moves entries with a 0 at digit `i` ahead, and adds the distances to the count.

    Digits are counted from the lowest one, which is -1.
    """
    count, index, sequence, *weighted = state
    order = backend.argsort(ops.right_shift(sequence, -1 - i))
    distances = ops.cast(backend.maximum(order - index, 0), count.dtype)
    sequence, *weighted = (backend.take(x, order) for x in (sequence, *weighted))
    for weights in weighted:
        distances = distances * weights
    return count + total(distances), index, sequence, *weighted


def _count_digits(size: Tensor | int) -> Tensor | int:
    """Returns the number of binary digits of the positions in a row."""
    if isinstance(size, int):
        return max(size - 1, 0).bit_length()
    return ops.sum(ops.cast(2 ** ops.arange(31, dtype="int32") < size, "int32"))


# A function from positions in each row, or `None` for all entries, to int32 keys. Keys
# are above the lowest int32.
KeyFunction: TypeAlias = Callable[[Tensor | None], Tensor]

# Code compiled for an accelerator selects few entries of longer rows instead of sorting
# the rows, which would take eight times as long for 100,000 entries.
_MAX_SORTED_SIZE = 2**14


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class Order:
    """The order of the entries of each row.

    Attributes:
        positions: int32 tensor of shape `(batch, depth)`. The position in the row of
            the entry at each rank.
        sorted_by: the keys by which rows are sorted in ascending order, if sorting
            values by them is faster than gathering values by position. Otherwise empty.
    """

    positions: Tensor
    sorted_by: tuple[Tensor, ...] = ()

    def cut(self, depth: Tensor | int) -> "Order":
        """Returns the order of the entries at the first ranks."""
        return dataclasses.replace(self, positions=self.positions[:, :depth])

    def occupied(
        self, by_rank: Tensor, ranks: Tensor, count_scores: Callable[[], Tensor]
    ) -> Tensor:
        """Returns whether the score at each rank is above `-inf`.

        Args:
            by_rank: the scores by rank.
            ranks: the ranks: 1, 2, 3, ...
            count_scores: function that returns the number of scores above `-inf` of
                each row. If values are sorted by keys, counting the scores is faster
                than sorting them too.
        """
        return (
            ranks <= count_scores()[:, None] if self.sorted_by else by_rank > -math.inf
        )

    def take(self, values: Tensor) -> Tensor:
        """Returns the values of each row in this order.

        Args:
            values: tensor of shape `(batch, size)`, or `(batch, subtopics, size)`.
        """
        if len(values.shape) == 2:
            return self._take_rows(values)
        lists, subtopics, size = (axis_size(values, axis) for axis in range(3))

        def repeat_rows(x: Tensor) -> Tensor:
            shape = (lists, subtopics, axis_size(x, 1))
            return ops.reshape(ops.broadcast_to(x[:, None], shape), (-1, shape[2]))

        order = Order(
            repeat_rows(self.positions), tuple(map(repeat_rows, self.sorted_by))
        )
        by_rank = order._take_rows(ops.reshape(values, (-1, size)))
        return ops.reshape(by_rank, (-1, subtopics, axis_size(self.positions, 1)))

    def _take_rows(self, values: Tensor) -> Tensor:
        if not self.sorted_by:
            return backend.take(values, self.positions)
        sorted_values = backend.sort_by_keys(values, *self.sorted_by)
        return sorted_values[:, : axis_size(self.positions, 1)]


@backend.without_autograph
def select_best(
    scores: Tensor,
    count: Tensor | int,
    keys: KeyFunction | None = None,
    invert_keys: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Order, Tensor | bool]:
    """Returns the first entries of each row, in descending order of score and key.

    Args:
        scores: tensor of shape `(batch, size)`, without NaN. They are compared after
            `flush_subnormals`. Scores of `-inf` are last, in any order.
        count: the number of entries. All entries are returned if rows have fewer.
        keys: function that returns keys. It is not always called if no scores tie.
            Defaults to `None`: equal scores stay in the order of the row.
        invert_keys: function that returns the positions of keys in their rows, the
            inverse of `keys`. Defaults to `None`: the inverse is not known.

    Returns:
        A tuple of the scores by rank, of shape `(batch, count)`, their order, and
        whether no returned score ties with another entry.
    """
    get_keys = _position_keys(scores) if keys is None else keys
    if invert_keys is not None and backend.should_sort_packed(scores):
        by_rank, sorted_keys = backend.sort_packed(
            flush_subnormals(scores), get_keys(None)
        )
        depth = limit_to_size(count + 1, axis_size(scores, 1))
        first, sorted_keys, has_no_ties = _slice_ranks(
            by_rank[:, :depth], sorted_keys, count
        )
        return first, Order(invert_keys(sorted_keys)), has_no_ties
    by_rank, order, has_no_ties = select_highest(scores, count, get_keys)
    is_full, positions = _should_sort_all(scores, count), order.positions
    if _should_sort_once(scores, count) or (is_full and keys is None):
        return by_rank, order, has_no_ties

    def break_ties() -> Tensor:
        if is_full:
            return _reorder_ties(by_rank, positions, get_keys(positions))
        return _select_by_key(scores, by_rank, positions, get_keys)

    if is_full and not backend.is_concrete(scores):
        # `_reorder_ties` has a branch, and a second one would be compiled too.
        return by_rank, Order(break_ties()), has_no_ties
    positions_by_key = backend.branch(has_no_ties, lambda: positions, break_ties)
    return by_rank, Order(positions_by_key), has_no_ties


def select_highest(
    scores: Tensor, count: Tensor | int, keys: KeyFunction | None = None
) -> tuple[Tensor, Order, Tensor | bool]:
    """Returns the highest scores, their order, and whether none of them ties.

    The result is that of `select_best`, except that equal scores may be in any order,
    which is enough for means over ties. If all entries are selected, equal scores stay
    in the order of the row.

    Args:
        scores, count: see `select_best`.
        keys: function that returns keys. They are used if scores and keys are sorted
            together.
    """
    depth = limit_to_size(count + 1, axis_size(scores, 1))
    if _should_sort_once(scores, count):
        sort_keys = flush_subnormals(scores), *(() if keys is None else (keys(None),))
        by_rank, positions = backend.sort_scores(*sort_keys)
        first, positions, has_no_ties = _slice_ranks(
            by_rank[:, :depth], positions, count
        )
        is_sorted_by_keys = backend.should_sort_together()
        sorted_by = (
            (-sort_keys[0], *(-1 - x for x in sort_keys[1:]))
            if is_sorted_by_keys
            else ()
        )
        return first, Order(positions, sorted_by), has_no_ties
    if _should_sort_all(scores, count):
        flushed_scores = flush_subnormals(scores)
        positions = backend.argsort(-flushed_scores)
        by_rank = backend.take(flushed_scores, positions)
    else:
        # One more score is selected, to see whether it ties with the last one.
        by_rank, positions = _top_k_flushed(scores, depth)
    first, positions, has_no_ties = _slice_ranks(by_rank, positions, count)
    return first, Order(positions), has_no_ties


def _slice_ranks(
    by_rank: Tensor, positions: Tensor, count: Tensor | int
) -> tuple[Tensor, Tensor, Tensor | bool]:
    """Returns the first scores and positions, and whether none of these scores ties.

    Args:
        by_rank: `count + 1` scores by rank, or `count` if rows have no more entries.
        positions: the positions of the scores, and possibly further positions.
        count: the number of scores to return.
    """
    first, size = by_rank[:, :count], by_rank.shape[1]
    # If there is a next score, `by_rank[:, :-1]` equals `first`, so it is not sliced.
    has_next = isinstance(size, int) and isinstance(count, int) and size > count
    is_tied = _ties_with_next(first if has_next else by_rank[:, :-1], by_rank[:, 1:])
    return first, positions[:, :count], all_false(is_tied)


def _should_sort_all(scores: Tensor, count: Tensor | int) -> bool:
    return isinstance(count, int) and is_full_size(count, scores.shape[1])


def _should_sort_once(scores: Tensor, count: Tensor | int) -> bool:
    """Returns whether to sort by score and key at once, rather than to check for ties.

    The result is True for code compiled for an accelerator, which has no branches and
    launches a kernel for each operation, unless few entries of long rows are selected.
    """
    if not backend.on_accelerator() or backend.is_concrete(scores):
        return False
    size = scores.shape[1]
    return size is None or size <= _MAX_SORTED_SIZE or not is_long(scores, count)


def _position_keys(scores: Tensor) -> KeyFunction:
    """Returns a function that returns the keys for ties in the order of the row."""

    def get_keys(positions: Tensor | None) -> Tensor:
        if positions is not None:
            return -ops.cast(positions, "int32")
        index = ops.arange(axis_size(scores, 1), dtype="int32")
        return ops.broadcast_to(-index, ops.shape(scores))

    return get_keys


def _top_k_flushed(scores: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the flushed highest scores of each row, and their positions."""
    highest, positions = top_k(scores, count)
    return flush_subnormals(highest), positions


def _ties_with_next(scores: Tensor, next_scores: Tensor) -> Tensor:
    """Returns whether each score equals the next score, which is above `-inf`."""
    return (scores == next_scores) & (next_scores > -math.inf)


def _argsort_by_key(scores: Tensor, keys: Tensor, count: Tensor | int) -> Tensor:
    """Returns the positions of the first entries, sorted by score and key."""
    return backend.sort_scores(scores, keys)[1][:, :count]


def _reorder_ties(by_rank: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
    """Returns the positions of whole rows by score and key.

    In long rows, a few pairs of scores are equal by chance. If no three scores are
    equal, pairs are swapped where necessary, without another sort.

    Args:
        by_rank: the scores by rank.
        positions: the positions of the scores, with ties in any order.
        keys: the keys of the entries at these positions.
    """
    is_tied = _ties_with_next(by_rank[:, :-1], by_rank[:, 1:])

    def swap_pairs() -> Tensor:
        is_swapped = ops.logical_and(is_tied, keys[:, 1:] > keys[:, :-1])
        is_swapped = ops.cast(is_swapped, "int32")
        index = ops.arange(axis_size(positions, 1), dtype="int32")
        index = (
            index
            + append_columns(is_swapped, 0, 1)
            - backend.pad_rows(is_swapped, 1, 0, 0)
        )
        return backend.take(positions, index)

    def sort_again() -> Tensor:
        count = axis_size(positions, 1)
        return backend.take(positions, _argsort_by_key(by_rank, keys, count))

    has_three = ops.logical_and(is_tied[:, 1:], is_tied[:, :-1])
    return backend.branch(all_false(has_three), swap_pairs, sort_again)


def _select_by_key(
    scores: Tensor, by_rank: Tensor, positions: Tensor, keys: KeyFunction
) -> Tensor:
    """Returns the positions of the first entries by score and key.

    Few entries tie with the last score, so all of them are usually found by selecting a
    few more scores. If the scores are concrete, these candidates are sorted first.

    Args:
        scores: the scores of all entries.
        by_rank: the highest scores by rank, one for each position to return.
        positions: the positions of the highest scores.
        keys: function that returns keys.
    """
    size, count = axis_size(scores, 1), axis_size(by_rank, 1)
    last_score = by_rank[:, -1:]

    def sort_candidates() -> Tensor:
        order = _argsort_by_key(candidate_scores, keys(candidates), count)
        return backend.take(candidates, order)

    def sort_all() -> Tensor:
        """Selects entries above the last score, and entries tied with it by key."""
        flushed_scores, all_keys = flush_subnormals(scores), keys(None)
        tied_keys = backend.where(
            flushed_scores == last_score, all_keys, backend.INT32_MIN
        )
        tied_keys, tied_positions = top_k(tied_keys, count)
        is_above, is_tied = by_rank > last_score, tied_keys > backend.INT32_MIN
        tied_positions = ops.cast(tied_positions, positions.dtype)
        selected = ops.concatenate([positions, tied_positions], axis=1)
        is_selected = ops.concatenate([is_above, is_tied], axis=1)
        selected_scores, selected_keys = (
            backend.where(is_selected, backend.take(x, selected), lowest)
            for x, lowest in (
                (flushed_scores, -math.inf),
                (all_keys, backend.INT32_MIN),
            )
        )
        order = _argsort_by_key(selected_scores, selected_keys, count)
        return backend.take(selected, order)

    num_candidates = limit_to_size(2 * count + 8, size)
    is_readable = backend.is_concrete(scores) and not backend.on_accelerator()
    if not is_readable or (isinstance(size, int) and num_candidates >= size):
        return sort_all()
    candidate_scores, candidates = _top_k_flushed(scores, num_candidates)
    may_tie = ops.logical_and(
        candidate_scores[:, -1:] == last_score, last_score > -math.inf
    )
    return backend.branch(all_false(may_tie), sort_candidates, sort_all)


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TieGroups:
    """The groups of tied items in the first `depth` ranks of each list.

    Attributes:
        has_no_ties: boolean scalar. Whether no items are tied.
        group_ids: int tensor of shape `(batch * depth,)`. The group of each rank. Ids
            are unique in the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of each rank,
            including items beyond the last rank.
        places: tensor of shape `(batch, depth)`. The position of each rank in its
            group: 1, 2, ...
        scores: tensor of shape `(batch, list_size)`. The scores of the items.
        last_score: tensor of shape `(batch, 1)`. The score at the last rank, whose
            group may continue beyond that rank. NaN, which equals no score, if the rank
            has no item.
        is_in_last_group: boolean tensor of shape `(batch, depth)`. Whether a rank has
            the last score.
    """

    has_no_ties: Tensor | bool
    group_ids: Tensor
    sizes: Tensor
    places: Tensor
    scores: Tensor
    last_score: Tensor
    is_in_last_group: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, by_rank: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """Returns the mean of values over the group of each rank.

        Args:
            by_rank: the values of the items by rank, of shape `(batch, depth)`, or
                `(batch, subtopics, depth)`.
            values: function that returns the values of all items in the order of the
                list.
        """
        is_in_last_group, sizes = (
            add_subtopic_axis(x, by_rank) for x in (self.is_in_last_group, self.sizes)
        )

        def average() -> Tensor:
            is_last = equals_flushed(self.scores, self.last_score)
            is_last = add_subtopic_axis(is_last, by_rank)
            last_total = total(backend.where(is_last, values(), 0.0))[..., None]
            totals = self._sum_groups(by_rank)
            return backend.where(is_in_last_group, last_total, totals) / sizes

        return backend.branch(self.has_no_ties, lambda: by_rank, average)

    def _sum_groups(self, values: Tensor) -> Tensor:
        """Returns the sum of the values over the group of each rank."""
        if len(values.shape) == 2:
            return backend.group_totals(values, self.group_ids)
        lists, subtopics, depth = ops.shape(values)
        # Each subtopic of a list is a row with separate groups, so ids are shifted.
        skipped_rows = ops.arange(lists, dtype="int32")[:, None, None] * (subtopics - 1)
        skipped_rows = skipped_rows + ops.arange(subtopics, dtype="int32")[:, None]
        group_ids = ops.reshape(self.group_ids, (lists, 1, depth))
        group_ids = group_ids + skipped_rows * depth
        rows = ops.reshape(values, (-1, depth))
        totals = backend.group_totals(rows, ops.reshape(group_ids, (-1,)))
        return ops.reshape(totals, (lists, subtopics, depth))


def find_tie_groups(
    scores: Tensor, by_rank: Tensor, has_no_ties: Tensor | bool, dtype: str
) -> TieGroups:
    """Returns the groups of items with equal scores.

    Args:
        scores: tensor of shape `(batch, list_size)`, `-inf` for items without a rank.
        by_rank: tensor of shape `(batch, depth)`. The highest scores by rank.
        has_no_ties: boolean scalar. Whether no items are tied.
        dtype: the dtype of the sizes.
    """
    depth = axis_size(by_rank, 1)
    # Ranks without an item have the score `-inf`. Each one is a separate group.
    is_tied = ops.logical_and(
        by_rank == shift_right(by_rank, 1, math.nan), by_rank > -math.inf
    )
    is_first = ops.logical_not(is_tied)
    index = ops.cumsum(ops.cast(is_first, "int32"), axis=1) - 1
    group_ids = ops.reshape(flatten_positions(index, depth), (-1,))
    last_score = by_rank[:, -1:]
    # NaN equals no score, so items without a rank are not in the last group.
    last_score = backend.where(last_score > -math.inf, last_score, math.nan)
    is_in_last_group = by_rank == last_score
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def compute_sizes_and_places() -> tuple[Tensor, Tensor]:
        positions = inclusive_range(0, depth - 1, dtype, like=by_rank)
        start = backend.group_totals(backend.where(is_first, positions, 0.0), group_ids)
        last_size = count_per_row(equals_flushed(scores, last_score), dtype)[:, None]
        sizes = backend.where(
            is_in_last_group, last_size, backend.group_totals(ones, group_ids)
        )
        return sizes, positions - start + 1.0

    sizes, places = backend.branch(
        has_no_ties, lambda: (ones, ones), compute_sizes_and_places
    )
    return TieGroups(
        has_no_ties, group_ids, sizes, places, scores, last_score, is_in_last_group
    )


def add_subtopic_axis(x: Tensor, values: Tensor) -> Tensor:
    """Inserts the axis of subtopics into a tensor, if the values have one."""
    return x if len(values.shape) == 2 else x[:, None]
