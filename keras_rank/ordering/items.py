"""Orders the items of lists: selects by score, and resolves ties."""

import math
from collections.abc import Callable

from keras import ops

from keras_rank.arrays import backends
from keras_rank.arrays.arithmetic import (
    at_most,
    counted,
    shifted,
    through_batch,
    where,
    with_columns,
)
from keras_rank.arrays.backends import (
    Tensor,
    descending,
    none_of,
    shortcut,
    size_of,
    stable_argsort,
    take,
    total_by_group,
)
from keras_rank.arrays.selection import (
    at_most_size,
    is_best_sorted,
    is_whole,
    largest,
)
from keras_rank.arrays.sorting import Order, in_order_of, with_entries
from keras_rank.lists.base import as_ranked
from keras_rank.lists.dense import DenseLists
from keras_rank.ordering.high_scores import highest_scores, of_high_scores
from keras_rank.ordering.preference import Preference, Ties, preference_of
from keras_rank.ordering.ranking import Ranking, TieGroups

# Up to this many tied items of a list are sorted separately.
_FEW_TIED = 32


# This many int32 numbers beyond the k-th may be equal to it in float32.
_SPARE = 8


def rank_lists(
    lists: DenseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Orders the items of lists with labels for all items."""
    # Computed here, as results from a branch would not be kept.
    _ = lists.has_items

    def preference() -> Preference:
        return preference_of(lists, ties, key, first_list)

    list_size, groups = lists.list_size, None
    depth = list_size if k is None else at_most_size(k, list_size)
    ranks = counted(1, depth, lists.dtype, like=lists.given_scores)
    is_sorted = is_whole(k, list_size) or is_best_sorted(lists.given_scores)
    if is_sorted and ties != "average":
        order = _sorted(lists, ties, preference).first(depth)
        occupied = lists.have_rank(order, ranks)
    else:
        if is_sorted:
            order = Order.by(-as_ranked(lists.scores))
            scores = order.of(as_ranked(lists.scores))
        else:
            # The score at rank k + 1 tells whether a tie crosses the cutoff.
            scores, top = highest_scores(lists, at_most_size(depth + 1, list_size))
            order = Order(top)
        order = order.first(depth)
        by_rank, occupied, tied = _looked_at(scores, depth)
        if ties == "average":
            groups = _tie_groups(lists, by_rank, tied)
        else:
            order = _tie_broken(lists, by_rank, tied, order, preference)
    return Ranking(
        order=order,
        occupied=occupied,
        ranks=ranks,
        cutoff=depth,
        first_ranks=ranks,
        ties=groups,
        is_sorted=is_whole(k, list_size),
    )


def _sorted(
    lists: DenseLists, ties: Ties, preference: Callable[[], Preference]
) -> Order:
    """The full order of the scores, and of tied items."""
    scores = as_ranked(lists.scores)
    if backends.on_accelerator():
        return Order.by(-scores, -preference()(lists.item_numbers(None)))
    if ties == "stable":
        return Order(stable_argsort(-scores))
    return Order(_shuffled(lists, *descending(scores), preference))


def _looked_at(scores: Tensor, depth: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
    """The score at a rank, whether it has an item, and whether it ties with the next.

    Args:
        scores: tensor of shape `(batch, depth)`, or with one more. Descending.
        depth: the number of ranks.
    """
    if scores.shape[1] is None or scores.shape[1] == depth:
        scores = with_columns(scores, -math.inf, 1)
    by_rank, following = scores[:, :depth], scores[:, 1 : depth + 1]
    occupied = by_rank > -math.inf
    return by_rank, occupied, ops.logical_and(occupied, by_rank == following)


def _tie_broken(
    lists: DenseLists,
    by_rank: Tensor,
    tied: Tensor,
    order: Order,
    preference: Callable[[], Preference],
) -> Order:
    """Selects the preferred tied items for the top, and orders them."""

    def repaired() -> Tensor:
        return _repaired(lists, by_rank, order.positions, preference())

    return Order(shortcut(none_of(tied), lambda: order.positions, repaired))


def _repaired(
    lists: DenseLists, by_rank: Tensor, order: Tensor, preference: Preference
) -> Tensor:
    """Returns the positions of the top, if some items are tied.

    Items above the last score of the top are in. Those with that score compete for the
    remaining ranks.
    """
    last, depth = by_rank[:, -1:], size_of(order, 1)

    def preferred(scores: Tensor, among: Order | None) -> tuple[Tensor, Tensor]:
        positions = None if among is None else among.positions
        numbers = lists.item_numbers(positions)
        if positions is None:
            # The numbers tell where there are items, without a mask from the labels.
            scores = where(numbers > 0, as_ranked(lists.given_scores), -math.inf)
        # As float32, of which XLA on CPU selects the largest ten times as fast as of
        # int32. A few to spare, as the last ones may be equal only in that precision.
        keys = ops.cast(preference(numbers), "float32")
        keys = where(scores == last, keys, -math.inf)
        size = size_of(keys, 1)
        keys, found = largest(keys, at_most_size(depth + _SPARE, size))
        if positions is not None:
            found = take(positions, found)
        return keys > -math.inf, ops.cast(found, order.dtype)

    competes, competing = of_high_scores(lists, last, depth + 1, preferred)
    both = [
        where(by_rank > last, by_rank, -math.inf),
        where(competes, last, -math.inf),
    ]
    scores = ops.concatenate(both, axis=1)
    chosen = ops.concatenate([order, competing], axis=1)
    keys = preference(lists.item_numbers(chosen))
    return in_order_of(chosen, -keys, scores)[:, :depth]


def _shuffled(
    lists: DenseLists,
    by_rank: Tensor,
    order: Tensor,
    preference: Callable[[], Preference],
) -> Tensor:
    """Orders tied items by preference, in a full order.

    Among many scores, few items are tied by chance: these are sorted separately.
    """

    def keys(positions: Tensor) -> Tensor:
        return preference()(lists.item_numbers(positions))

    def all_sorted() -> Tensor:
        return in_order_of(order, -keys(order), by_rank)

    list_size = order.shape[1]
    *_, tied = _looked_at(by_rank, size_of(by_rank, 1))
    if list_size is None or list_size < 4 * _FEW_TIED:
        return shortcut(none_of(tied), lambda: order, all_sorted)
    # The last rank has no next one, and comes first here.
    ties = ops.logical_or(tied, ops.roll(tied, 1, axis=1))
    number = ops.sum(ops.cast(ties, "int32"), axis=1, keepdims=True)

    def few_sorted() -> Tensor:
        first_highest = ops.arange(list_size, 0, -1, dtype="float32")
        ranks = list_size - largest(where(ties, first_highest, 0.0), _FEW_TIED)[0]
        ranks = at_most(ops.cast(ranks, "int32"), list_size - 1)
        few, scores = (take(x, ranks) for x in (order, by_rank))
        # Beyond the last tie, the first one is written again.
        is_used = counted(0, _FEW_TIED - 1, "int32", like=number) < number
        scores = where(is_used, scores, -math.inf)
        few = in_order_of(few, -keys(few), scores)
        ranks, few = (where(is_used, x, x[:, :1]) for x in (ranks, few))
        return with_entries(order, ranks, few)

    return shortcut(ops.all(number <= _FEW_TIED), few_sorted, all_sorted)


def _tie_groups(lists: DenseLists, by_rank: Tensor, tied: Tensor) -> TieGroups:
    dtype, depth = lists.dtype, size_of(by_rank, 1)
    none = none_of(tied)
    starts = shifted(ops.cast(tied, "int32"), 1, 0) == 0
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    last = by_rank[:, -1:]
    cut_score = where(tied[:, -1:], last, math.nan)
    at_cut = by_rank == cut_score
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def cut_size(scores: Tensor, order: Order | None) -> Tensor:
        equal = ops.cast(scores == cut_score, dtype)
        return ops.sum(equal, axis=1, keepdims=True)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        sizes = total_by_group(ones, group)
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = total_by_group(where(starts, position, 0.0), group)
        cut_sizes = of_high_scores(lists, last, depth + 1, cut_size)
        sizes = where(at_cut, cut_sizes, sizes)
        return sizes, position - start + 1.0

    sizes, places = shortcut(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(
        none=none,
        group=group,
        sizes=sizes,
        places=places,
        lists=lists,
        lowest=last,
        cut_score=cut_score,
        at_cut=at_cut,
    )
