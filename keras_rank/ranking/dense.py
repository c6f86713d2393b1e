"""Orders the items of lists: selects by score, and resolves ties."""

import copy
import dataclasses
import math

from keras import ops

from keras_rank.arrays.arithmetic import (
    counted,
    highest,
    none_of,
    seen_maximum,
    shifted,
    size_of,
    through_batch,
    with_columns,
)
from keras_rank.arrays.selection import (
    at_most_size,
    is_all,
    is_best_sorted,
    largest,
)
from keras_rank.arrays.sorting import Order, in_order_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.limits import as_ranked
from keras_rank.ranking.pairs import pairs_of_items
from keras_rank.ranking.ranking import Ranking, TiedItems, TieGroups
from keras_rank.ranking.tie_breaking import TieBreakKeys, Ties, tie_break_keys

# This many int32 numbers beyond the k-th may be equal to it in float32.
_SPARE = 8


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class DenseRanking(Ranking):
    """A ranking of lists with labels and scores for all items."""

    def tied_items(self, lists: Lists, values: Tensor) -> TiedItems:
        assert isinstance(lists, DenseLists)
        # To the end of the group at the cutoff, which may be that of the list.
        # In a branch what is computed for lists is not kept.
        whole = rank_dense(copy.copy(lists), None, "average", 0, 0)
        above = whole.ranks - whole.places
        is_in = above < ops.cast(self.cutoff, above.dtype)
        ends = backend.where(is_in, above + whole.group_sizes, 0.0)
        return TiedItems(
            values=whole.in_order(values),
            above=above,
            group_size=whole.group_sizes,
            so_far=whole.places,
            is_first=whole.places == 1.0,
            others_first=False,
            last=seen_maximum(ends, size_of(above, 1)),
        )

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        # All below the last rank are tied, at the highest of their scores.
        scores = as_ranked(lists.scores)
        if not is_all(self.cutoff, size_of(scores, 1)):
            last = self.best(scores)[:, -1:]
            cut = ops.logical_and(scores < last, scores > -math.inf)
            below = highest(backend.where(cut, scores, -math.inf), keepdims=True)
            scores = backend.where(cut, below, scores)
        return pairs_of_items(labels, scores, lists.mask, lists.weights, lists.dtype)


def rank_dense(
    lists: DenseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Orders the items of lists with labels for all items."""
    list_size = lists.list_size
    depth = list_size if k is None else at_most_size(k, list_size)
    ranks = counted(1, depth, lists.dtype, like=lists.given_scores)
    takes_all = is_all(k, list_size) or is_best_sorted(lists.given_scores)
    groups = None
    keys = tie_break_keys(lists, ties, key, first_list)
    if takes_all and ties != "average" and backend.sorts_along():
        order = Order.by(-as_ranked(lists.scores), -keys(lists.item_index(None)))
        order = order.first(depth)
        occupied = ranks <= lists.retrieved[:, None]
    else:
        scores, order = _best_first(lists, depth, takes_all, ties)
        order = order.first(depth)
        by_rank, occupied, tied = _looked_at(scores, depth)
        if ties == "average":
            groups = _tie_groups(lists, by_rank, tied)
        elif not (takes_all and ties == "stable"):
            order = _tie_broken(lists, by_rank, tied, order, keys, takes_all)
    return DenseRanking(
        order=order,
        occupied=occupied,
        ranks=ranks,
        cutoff=depth,
        ideal_ranks=ranks,
        ties=groups,
    )


def _best_first(
    lists: DenseLists, depth: Tensor | int, takes_all: bool, ties: Ties
) -> tuple[Tensor, Order]:
    """The highest scores of each list, and one more, and their order."""
    if not takes_all:
        # The score at rank k + 1 tells whether a tie crosses the cutoff.
        count = at_most_size(depth + 1, lists.list_size)
        scores, positions = _highest_scores(lists, count)
        return scores, Order(positions)
    scores = as_ranked(lists.scores)
    if backend.sorts_along():
        order = Order.by(-scores)
        return order.of(scores), order
    if ties != "shuffle":
        # Also where ties are averaged, as the order of sums is theirs.
        positions = backend.argsort(-scores)
        return backend.take(scores, positions), Order(positions)
    scores, positions = backend.argsort_descending(scores)
    return scores, Order(positions)


def _highest_scores(lists: DenseLists, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """The highest scores of each list, and their positions."""
    scores, positions = largest(lists.scores, count)
    return as_ranked(scores), positions


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
    keys: TieBreakKeys,
    has_all: bool,
) -> Order:
    """Selects the preferred tied items for the top, and orders them.

    Items above the last score of the top are in. Those with that score compete for the
    remaining ranks.
    """
    top, depth = order.positions, size_of(order.positions, 1)

    def ordered(positions: Tensor, scores: Tensor) -> Tensor:
        preferred = keys(lists.item_index(positions))
        return in_order_of(positions, -preferred, scores)

    def repaired() -> Tensor:
        if has_all:
            return ordered(top, by_rank)
        last = by_rank[:, -1:]
        # As float32, of which XLA on a CPU selects the largest ten times as fast as of
        # int32. A few to spare, as the last ones may be equal only in that precision.
        preferred = ops.cast(keys(lists.item_index(None)), "float32")
        competes = as_ranked(lists.scores) == last
        preferred = backend.where(competes, preferred, -math.inf)
        count = at_most_size(depth + _SPARE, size_of(preferred, 1))
        preferred, found = largest(preferred, count)
        both = [
            backend.where(by_rank > last, by_rank, -math.inf),
            backend.where(preferred > -math.inf, last, -math.inf),
        ]
        chosen = ops.concatenate([top, ops.cast(found, top.dtype)], axis=1)
        return ordered(chosen, ops.concatenate(both, axis=1))[:, :depth]

    return Order(backend.branch(none_of(tied), lambda: top, repaired))


def _tie_groups(lists: DenseLists, by_rank: Tensor, tied: Tensor) -> TieGroups:
    dtype, depth = lists.dtype, size_of(by_rank, 1)
    none = none_of(tied)
    starts = shifted(ops.cast(tied, "int32"), 1, 0) == 0
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    cut_score = backend.where(tied[:, -1:], by_rank[:, -1:], math.nan)
    at_cut, scores = by_rank == cut_score, lists.scores
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = backend.group_totals(backend.where(starts, position, 0.0), group)
        in_cut_group = ops.cast(as_ranked(scores) == cut_score, dtype)
        cut_sizes = ops.sum(in_cut_group, axis=1, keepdims=True)
        sizes = backend.where(at_cut, cut_sizes, backend.group_totals(ones, group))
        return sizes, position - start + 1.0

    sizes, places = backend.branch(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(
        none=none,
        group=group,
        sizes=sizes,
        places=places,
        scores=scores,
        cut_score=cut_score,
        at_cut=at_cut,
    )
