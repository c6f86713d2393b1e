"""Orders the items of lists: selects by score, and resolves ties."""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable

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
    Candidates,
    at_most_size,
    candidates,
    is_all,
    is_best_sorted,
    is_long,
    is_worth_a_look,
    largest,
)
from keras_rank.arrays.sorting import Order, in_order_of, with_entries
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.limits import as_ranked
from keras_rank.ranking.pairs import pairs_of_items
from keras_rank.ranking.ranking import (
    Ranking,
    TiedItems,
    TieGroups,
    among_high,
)
from keras_rank.ranking.tie_breaking import Keys, Ties, tie_break_keys

# Up to this many tied items of a list are sorted apart.
_FEW_TIED = 32

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
    # Asked for in branches, none of which may be the first.
    _ = lists.is_full, lists.has_items
    list_size = size_of(lists.given_scores, 1)
    depth = list_size if k is None else at_most_size(k, list_size)
    ranks = counted(1, depth, lists.dtype, like=lists.given_scores)
    takes_all = is_all(k, list_size) or is_best_sorted(lists.given_scores)
    groups = None
    keys = functools.partial(tie_break_keys, lists, ties, key, first_list)
    if takes_all and ties != "average" and backend.sorts_along():
        order = Order.by(-as_ranked(lists.scores), -keys()(lists.item_index(None)))
        order = order.first(depth)
        occupied = ranks <= lists.retrieved[:, None]
    else:
        high = None
        if takes_all:
            scores, order = _sorted(lists, ties)
        else:
            # The score at rank k + 1 tells whether a tie crosses the cutoff.
            count = at_most_size(depth + 1, list_size)
            scores, order, high = _selected(lists, count)
        looked = _looked_at(scores, list_size if takes_all else depth)
        if takes_all and ties == "shuffle":
            # All of them, before the cutoff, as ties may cross it.
            order = _shuffled(lists, looked[0], looked[2], order, keys)
        if takes_all and not is_all(k, list_size):
            looked = looked[0][:, :depth], looked[1][:, :depth], looked[2][:, :depth]
        by_rank, occupied, tied = looked
        order = order.first(depth)
        if ties == "average":
            groups = _tie_groups(lists, high, by_rank, tied)
        elif not takes_all:
            order = _tie_broken(lists, high, by_rank, tied, order, keys)
    return DenseRanking(
        order=order,
        occupied=occupied,
        ranks=ranks,
        cutoff=depth,
        ideal_ranks=ranks,
        ties=groups,
    )


def _sorted(lists: DenseLists, ties: Ties) -> tuple[Tensor, Order]:
    """The scores of each list, the highest first, and their order."""
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


def _selected(
    lists: DenseLists, count: Tensor | int
) -> tuple[Tensor, Order, Candidates | None]:
    """The highest scores of each list, their order, and high ones of long lists."""
    enough = _enough_for_ties(count)
    if not is_long(lists.given_scores, enough):
        highest, positions = backend.top_k(lists.scores, count)
        return as_ranked(highest), Order(positions), None

    def found(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        high = candidates(scores, enough)
        return high.entries, high.positions, high.highest_other

    high = Candidates(*lists.of_scores(found))
    highest, places = backend.top_k(high.entries, count)
    return as_ranked(highest), Order(backend.take(high.positions, places)), high


def _enough_for_ties(count: Tensor | int) -> Tensor | int:
    """The number of high scores that usually hold the ties of some of the highest.

    An accelerator never relies on that.
    """
    return count if backend.on_accelerator() else 2 * count + 8


def _few_to_try(lists: DenseLists, depth: Tensor | int) -> Candidates | None:
    """High scores of lists that are not long either, once ties are seen."""
    enough = _enough_for_ties(depth + 1)
    if not is_worth_a_look(lists.scores, enough):
        return None
    entries, positions = backend.top_k(lists.scores, enough + 1)
    return Candidates(entries[:, :-1], positions[:, :-1], entries[:, -1:])


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
    high: Candidates | None,
    by_rank: Tensor,
    tied: Tensor,
    order: Order,
    keys: Callable[[], Keys],
) -> Order:
    """Selects the preferred tied items for the top, and orders them.

    Items above the last score of the top are in. Those with that score compete for the
    remaining ranks.
    """
    top, depth = order.positions, size_of(order.positions, 1)
    none = none_of(tied)
    if none is False and high is None:
        high = _few_to_try(lists, depth)

    def repaired() -> Tensor:
        last, keys_of = by_rank[:, -1:], keys()

        def preferred(scores: Tensor, among: Order | None) -> tuple[Tensor, Tensor]:
            positions = None if among is None else among.positions
            # As float32, of which XLA on a CPU selects the largest ten times as fast as
            # of int32. A few to spare, as the last ones may be equal only in that
            # precision.
            competing = ops.cast(keys_of(lists.item_index(positions)), "float32")
            competing = backend.where(scores == last, competing, -math.inf)
            count = at_most_size(depth + _SPARE, size_of(competing, 1))
            competing, found = largest(competing, count)
            if positions is not None:
                found = backend.take(positions, found)
            return competing > -math.inf, ops.cast(found, top.dtype)

        competes, competing = among_high(lists, high, last, preferred)
        both = [
            backend.where(by_rank > last, by_rank, -math.inf),
            backend.where(competes, last, -math.inf),
        ]
        chosen = ops.concatenate([top, competing], axis=1)
        scores = ops.concatenate(both, axis=1)
        chosen_keys = keys_of(lists.item_index(chosen))
        return in_order_of(chosen, -chosen_keys, scores)[:, :depth]

    return Order(backend.branch(none, lambda: top, repaired))


def _shuffled(
    lists: DenseLists,
    by_rank: Tensor,
    tied: Tensor,
    order: Order,
    keys: Callable[[], Keys],
) -> Order:
    """Orders tied items by preference, in a full order.

    Among many scores, few items are tied by chance: these are sorted apart.
    """
    positions, list_size = order.positions, order.positions.shape[1]

    def ordered(positions: Tensor, scores: Tensor) -> Tensor:
        return in_order_of(positions, -keys()(lists.item_index(positions)), scores)

    def all_sorted() -> Tensor:
        return ordered(positions, by_rank)

    if list_size is None or list_size < 4 * _FEW_TIED:
        return Order(backend.branch(none_of(tied), lambda: positions, all_sorted))
    # The last rank has no next one, and comes first here.
    ties = ops.logical_or(tied, ops.roll(tied, 1, axis=1))
    number = ops.sum(ops.cast(ties, "int32"), axis=1, keepdims=True)

    def few_sorted() -> Tensor:
        first_highest = ops.arange(list_size, 0, -1, dtype="float32")
        among = backend.where(ties, first_highest, 0.0)
        ranks = ops.cast(list_size - largest(among, _FEW_TIED)[0], "int32")
        ranks = backend.minimum(ranks, list_size - 1)
        few, scores = (backend.take(x, ranks) for x in (positions, by_rank))
        # Beyond the last tie, the first one is written again.
        is_used = counted(0, _FEW_TIED - 1, "int32", like=number) < number
        few = ordered(few, backend.where(is_used, scores, -math.inf))
        ranks, few = (backend.where(is_used, x, x[:, :1]) for x in (ranks, few))
        return with_entries(positions, ranks, few)

    are_few = ops.all(number <= _FEW_TIED)
    return Order(backend.branch(are_few, few_sorted, all_sorted))


def _tie_groups(
    lists: DenseLists, high: Candidates | None, by_rank: Tensor, tied: Tensor
) -> TieGroups:
    dtype, depth = lists.dtype, size_of(by_rank, 1)
    none = none_of(tied)
    starts = shifted(ops.cast(tied, "int32"), 1, 0) == 0
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    lowest = by_rank[:, -1:]
    cut_score = backend.where(tied[:, -1:], lowest, math.nan)
    at_cut = by_rank == cut_score
    if none is False and high is None:
        high = _few_to_try(lists, depth)
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def cut_size(scores: Tensor, order: Order | None) -> Tensor:
        equal = ops.cast(scores == cut_score, dtype)
        return ops.sum(equal, axis=1, keepdims=True)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = backend.group_totals(backend.where(starts, position, 0.0), group)
        cut_sizes = among_high(lists, high, lowest, cut_size)
        sizes = backend.where(at_cut, cut_sizes, backend.group_totals(ones, group))
        return sizes, position - start + 1.0

    sizes, places = backend.branch(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(
        none=none,
        group=group,
        sizes=sizes,
        places=places,
        lists=lists,
        high=high,
        lowest=lowest,
        cut_score=cut_score,
        at_cut=at_cut,
    )
