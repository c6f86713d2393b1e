"""The order of rows by score and key, and groups of tied entries."""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import (
    are_ranked_as,
    as_ranked,
    counted,
    none_of,
    shifted,
    size_of,
    through_batch,
    total,
    with_columns,
)
from keras_rank.arrays.counting import count_of
from keras_rank.arrays.selection import at_most_size, is_all, is_long, top_k
from keras_rank.backends import Tensor, backend


def inversions(values: Tensor, dtype: str, weights: Tensor | None = None) -> Tensor:
    """Counts the pairs of each row whose first value is larger than the second.

    It sorts by the binary digits of the sorted places of the values, the highest digit
    first: at each digit, an entry with a 0 moves ahead of exactly those entries with a
    1 with which it is inverted. The entry that moves ahead stands for the larger value.
    So it needs memory for the row, not for its pairs.

    Args:
        values: tensor of shape `(batch, size)`.
        dtype: the dtype of the counts.
        weights: tensor of the same shape. The weight of a pair, by its first value.
            Defaults to `None`: 1.

    Returns:
        A tensor of shape `(batch,)`.
    """
    sequence = backend.argsort(values)
    weighted = [] if weights is None else [backend.take(weights, sequence)]
    size = size_of(values, 1)
    here, digits = ops.arange(size, dtype="int32"), _number_of_digits(size)
    state = (0.0 * ops.cast(sequence[:, 0], dtype), here, sequence, *weighted)
    # Unrolled, a sort would be compiled for each digit.
    return ops.fori_loop(-digits, 0, _with_next_digit, state)[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_digit(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Moves zeros of a digit ahead, where -1 is the last digit."""
    count, here, sequence, *weighted = state
    order = backend.argsort(ops.right_shift(sequence, -1 - i))
    moved_ahead = ops.cast(backend.maximum(order - here, 0), count.dtype)
    sequence, *weighted = (backend.take(x, order) for x in (sequence, *weighted))
    for weights in weighted:
        moved_ahead = moved_ahead * weights
    return count + total(moved_ahead), here, sequence, *weighted


def _number_of_digits(size: Tensor | int) -> Tensor | int:
    """The number of binary digits of the places of a row."""
    if isinstance(size, int):
        return max(size - 1, 0).bit_length()
    return ops.sum(ops.cast(2 ** ops.arange(31, dtype="int32") < size, "int32"))


# Of the entries at positions of each row, or of all for `None`: int32 keys, above the
# least int32.
Keys: TypeAlias = Callable[[Tensor | None], Tensor]

# Compiled for an accelerator, few entries of longer rows are selected: to sort the rows
# would take eight times as long for 100,000 entries.
_LONGEST_SORTED = 2**14


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class Order:
    """Which entry of each row is at each place.

    Attributes:
        positions: int32 tensor of shape `(batch, places)`.
        sorted_by: what the rows are sorted by, the smallest first, if to sort values
            along takes less time than to gather them by position.
    """

    positions: Tensor
    sorted_by: tuple[Tensor, ...] = ()

    def cut(self, places: Tensor | int) -> "Order":
        """The first places of the order."""
        return dataclasses.replace(self, positions=self.positions[:, :places])

    def occupied(
        self, by_rank: Tensor, ranks: Tensor, number_of: Callable[[], Tensor]
    ) -> Tensor:
        """Whether there is a score above `-inf` at each place.

        Args:
            by_rank: the scores in order.
            ranks: the numbers of the places, from 1 on.
            number_of: function that returns how many such scores each row has. To count
                them takes less time than to sort them too.
        """
        return ranks <= number_of()[:, None] if self.sorted_by else by_rank > -math.inf

    def of(self, values: Tensor) -> Tensor:
        """The values of each row in this order.

        Args:
            values: tensor of shape `(batch, size)`, or `(batch, subtopics, size)`.
        """
        if len(values.shape) == 2:
            return self._of_rows(values)
        lists, subtopics, size = (size_of(values, axis) for axis in range(3))

        def for_each(x: Tensor) -> Tensor:
            shape = (lists, subtopics, size_of(x, 1))
            return ops.reshape(ops.broadcast_to(x[:, None], shape), (-1, shape[2]))

        order = Order(for_each(self.positions), tuple(map(for_each, self.sorted_by)))
        in_order = order._of_rows(ops.reshape(values, (-1, size)))
        return ops.reshape(in_order, (-1, subtopics, size_of(self.positions, 1)))

    def _of_rows(self, values: Tensor) -> Tensor:
        if not self.sorted_by:
            return backend.take(values, self.positions)
        in_order = backend.sort_by(values, *self.sorted_by)
        return in_order[:, : size_of(self.positions, 1)]


@backend.without_autograph
def best_first(
    scores: Tensor,
    count: Tensor | int,
    keys: Keys | None = None,
    positions_of: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Order, Tensor | bool]:
    """Returns the first entries of each row: the highest scores, then the largest keys.

    Args:
        scores: tensor of shape `(batch, size)`, without NaN. They are ranked by
            `as_ranked`. Those of `-inf` come last, in any order.
        count: the number of entries.
        keys: function that returns keys. It is called where something may tie.
            Defaults to `None`: of equal scores, the earlier one comes first.
        positions_of: function that returns the positions of keys in their rows, the
            inverse of `keys`. Defaults to `None`: it is unknown.

    Returns:
        The scores in order, of shape `(batch, count)`, or as many as there are, the
        order, and whether none of them ties with another entry.
    """
    keys_of = _earlier_first(scores) if keys is None else keys
    if positions_of is not None and backend.sorts_packed(scores):
        by_rank, sorted_keys = backend.sort_packed(as_ranked(scores), keys_of(None))
        some = at_most_size(count + 1, size_of(scores, 1))
        first, sorted_keys, none = _first(by_rank[:, :some], sorted_keys, count)
        return first, Order(positions_of(sorted_keys)), none
    by_rank, order, none = highest_first(scores, count, keys_of)
    takes_all, positions = _takes_all(scores, count), order.positions
    if _sorts_once(scores, count) or (takes_all and keys is None):
        return by_rank, order, none

    def by_keys() -> Tensor:
        if takes_all:
            return _with_ties_resolved(by_rank, positions, keys_of(positions))
        return _selected_by_keys(scores, by_rank, positions, keys_of)

    if takes_all and not backend.is_concrete(scores):
        # It has a short way of its own, and each one is compiled.
        return by_rank, Order(by_keys()), none
    return by_rank, Order(backend.branch(none, lambda: positions, by_keys)), none


def highest_first(
    scores: Tensor, count: Tensor | int, keys: Keys | None = None
) -> tuple[Tensor, Order, Tensor | bool]:
    """Returns the highest scores, their order, and whether none of them ties.

    That is what `best_first` returns, with equal scores in any order, as for means over
    ties. If they are all, equal ones stay in their order.

    Args:
        scores, count: those of `best_first`.
        keys: function that returns what also sorts them where one sort does it all.
    """
    some = at_most_size(count + 1, size_of(scores, 1))
    if _sorts_once(scores, count):
        by = as_ranked(scores), *(() if keys is None else (keys(None),))
        by_rank, positions = backend.sorted_descending(*by)
        first, positions, none = _first(by_rank[:, :some], positions, count)
        is_along = backend.sorts_along()
        sorted_by = (-by[0], *(-1 - x for x in by[1:])) if is_along else ()
        return first, Order(positions, sorted_by), none
    if _takes_all(scores, count):
        ranked = as_ranked(scores)
        positions = backend.argsort(-ranked)
        by_rank = backend.take(ranked, positions)
    else:
        # The next one tells whether a tie crosses the last.
        by_rank, positions = _highest(scores, some)
    first, positions, none = _first(by_rank, positions, count)
    return first, Order(positions), none


def _first(
    by_rank: Tensor, positions: Tensor, count: Tensor | int
) -> tuple[Tensor, Tensor, Tensor | bool]:
    """Returns what is asked for of scores in order, and whether none of that ties.

    The scores are one more than that, if there is one.
    """
    first, size = by_rank[:, :count], by_rank.shape[1]
    # What is asked for, and not sliced again.
    has_next = isinstance(size, int) and isinstance(count, int) and size > count
    ties = _ties(first if has_next else by_rank[:, :-1], by_rank[:, 1:])
    return first, positions[:, :count], none_of(ties)


def _takes_all(scores: Tensor, count: Tensor | int) -> bool:
    return isinstance(count, int) and is_all(count, scores.shape[1])


def _sorts_once(scores: Tensor, count: Tensor | int) -> bool:
    """Whether one sort by score and key is better than to look for ties.

    It is for an accelerator, where code has no branches, and each step is a launch.
    """
    if not backend.on_accelerator() or backend.is_concrete(scores):
        return False
    size = scores.shape[1]
    return size is None or size <= _LONGEST_SORTED or not is_long(scores, count)


def _earlier_first(scores: Tensor) -> Keys:
    """The keys of entries of which the earlier ones come first."""

    def keys(positions: Tensor | None) -> Tensor:
        if positions is not None:
            return -ops.cast(positions, "int32")
        place = ops.arange(size_of(scores, 1), dtype="int32")
        return ops.broadcast_to(-place, ops.shape(scores))

    return keys


def _highest(scores: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row, as they are ranked, and their positions."""
    highest, positions = top_k(scores, count)
    return as_ranked(highest), positions


def _ties(scores: Tensor, following: Tensor) -> Tensor:
    """Whether a score is equal to the following one."""
    return (scores == following) & (following > -math.inf)


def _in_order(scores: Tensor, keys: Tensor, count: Tensor | int) -> Tensor:
    """The positions of the first entries by score and key."""
    return backend.sorted_descending(scores, keys)[1][:, :count]


def _with_ties_resolved(by_rank: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
    """Returns the positions of whole rows by score and key, given those by score.

    Among many scores a few pairs are equal by chance, which change places.
    """
    tied = _ties(by_rank[:, :-1], by_rank[:, 1:])

    def swapped() -> Tensor:
        goes_up = ops.logical_and(tied, keys[:, 1:] > keys[:, :-1])
        goes_up = ops.cast(goes_up, "int32")
        place = ops.arange(size_of(positions, 1), dtype="int32")
        place = place + with_columns(goes_up, 0, 1) - backend.padded(goes_up, 1, 0, 0)
        return backend.take(positions, place)

    def sorted_again() -> Tensor:
        count = size_of(positions, 1)
        return backend.take(positions, _in_order(by_rank, keys, count))

    three = ops.logical_and(tied[:, 1:], tied[:, :-1])
    return backend.branch(none_of(three), swapped, sorted_again)


def _selected_by_keys(
    scores: Tensor, by_rank: Tensor, positions: Tensor, keys: Keys
) -> Tensor:
    """Returns the positions of the first entries by score and key.

    Ties rarely go beyond a few more of the highest scores. Python may see that.

    Args:
        scores: those of all entries.
        by_rank: the highest scores in order, as many as are asked for.
        positions: those of these.
        keys: function that returns keys.
    """
    size, count = size_of(scores, 1), size_of(by_rank, 1)
    last = by_rank[:, -1:]

    def among_some() -> Tensor:
        order = _in_order(some_scores, keys(some), count)
        return backend.take(some, order)

    def among_all() -> Tensor:
        """Those above the last score are in; those with that score compete."""
        ranked, all_keys = as_ranked(scores), keys(None)
        competing = backend.where(ranked == last, all_keys, backend.INT32_MIN)
        its_keys, competing = top_k(competing, count)
        is_in, competes = by_rank > last, its_keys > backend.INT32_MIN
        competing = ops.cast(competing, positions.dtype)
        chosen = ops.concatenate([positions, competing], axis=1)
        are_chosen = ops.concatenate([is_in, competes], axis=1)
        chosen_scores, chosen_keys = (
            backend.where(are_chosen, backend.take(x, chosen), lowest)
            for x, lowest in ((ranked, -math.inf), (all_keys, backend.INT32_MIN))
        )
        return backend.take(chosen, _in_order(chosen_scores, chosen_keys, count))

    enough = at_most_size(2 * count + 8, size)
    is_seen = backend.is_concrete(scores) and not backend.on_accelerator()
    if not is_seen or (isinstance(size, int) and enough >= size):
        return among_all()
    some_scores, some = _highest(scores, enough)
    others_tie = ops.logical_and(some_scores[:, -1:] == last, last > -math.inf)
    return backend.branch(none_of(others_tie), among_some, among_all)


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TieGroups:
    """The groups of tied items in the first `depth` ranks of each list.

    Attributes:
        none: boolean scalar. Whether no items are tied, as far as can be seen.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            including items beyond the last rank.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        scores: tensor of shape `(batch, list_size)`. The scores of the items.
        last: tensor of shape `(batch, 1)`. The score of the group at the last rank,
            which may continue beyond it. NaN, which equals none, if no item is there.
        at_last: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    none: Tensor | bool
    group: Tensor
    sizes: Tensor
    places: Tensor
    scores: Tensor
    last: Tensor
    at_last: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, by_rank: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """Returns the mean over the group of each rank.

        Args:
            by_rank: the values of the items in order, of shape `(batch, depth)`, or
                `(batch, subtopics, depth)`.
            values: function that returns those of all items.
        """
        at_last, sizes = (
            for_all_subtopics(x, by_rank) for x in (self.at_last, self.sizes)
        )

        def averaged() -> Tensor:
            is_last = are_ranked_as(self.scores, self.last)
            is_last = for_all_subtopics(is_last, by_rank)
            of_last = total(backend.where(is_last, values(), 0.0))[..., None]
            return backend.where(at_last, of_last, self._totals(by_rank)) / sizes

        return backend.branch(self.none, lambda: by_rank, averaged)

    def _totals(self, values: Tensor) -> Tensor:
        """The sum of the values over the group of each rank."""
        if len(values.shape) == 2:
            return backend.group_totals(values, self.group)
        lists, subtopics, depth = ops.shape(values)
        # Each list has a row, and groups of its own, for each subtopic.
        of_list = ops.arange(lists, dtype="int32")[:, None, None] * (subtopics - 1)
        rows_before = of_list + ops.arange(subtopics, dtype="int32")[:, None]
        group = ops.reshape(self.group, (lists, 1, depth)) + rows_before * depth
        rows = ops.reshape(values, (-1, depth))
        totals = backend.group_totals(rows, ops.reshape(group, (-1,)))
        return ops.reshape(totals, (lists, subtopics, depth))


def tie_groups(
    scores: Tensor, by_rank: Tensor, none: Tensor | bool, dtype: str
) -> TieGroups:
    """Returns the groups of equal scores.

    Args:
        scores: tensor of shape `(batch, list_size)`, `-inf` where no item has a rank.
        by_rank: tensor of shape `(batch, depth)`. The highest scores, in order.
        none: boolean scalar. Whether no items are tied, as far as can be seen.
        dtype: the dtype of the sizes.
    """
    depth = size_of(by_rank, 1)
    # Ranks without an item are no group.
    is_next = ops.logical_and(
        by_rank == shifted(by_rank, 1, math.nan), by_rank > -math.inf
    )
    starts = ops.logical_not(is_next)
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    last = by_rank[:, -1:]
    # NaN equals no score.
    last = backend.where(last > -math.inf, last, math.nan)
    at_last = by_rank == last
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = backend.group_totals(backend.where(starts, position, 0.0), group)
        of_last = count_of(are_ranked_as(scores, last), dtype)[:, None]
        sizes = backend.where(at_last, of_last, backend.group_totals(ones, group))
        return sizes, position - start + 1.0

    sizes, places = backend.branch(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(none, group, sizes, places, scores, last, at_last)


def for_all_subtopics(x: Tensor, values: Tensor) -> Tensor:
    """Returns what lists have at their places, for values that may have subtopics."""
    return x if len(values.shape) == 2 else x[:, None]
