"""The order of each list by its scores: who is in the top k, and what ties mean."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from keras import ops

from keras_rank.arithmetic import (
    Tensor,
    at_least,
    at_most,
    columns,
    counted,
    shifted,
    through_batch,
    total,
    where,
)
from keras_rank.judged import Values
from keras_rank.lists import DenseLists, Lists, as_ranked
from keras_rank.ordering import backends
from keras_rank.ordering.backends import (
    descending,
    none_of,
    shortcut,
    sort_by,
    stably_descending,
    take,
    total_by_group,
)
from keras_rank.ordering.selection import at_most_size, is_whole, largest
from keras_rank.ordering.shuffle import list_keys, shuffle_keys
from keras_rank.ordering.sorting import in_order_of, with_entries
from keras_rank.shared import Shared

Ties = Literal["shuffle", "stable", "average"]
Preference = Callable[[Tensor | None], Tensor]

# Up to so many tied items of a list are sorted apart from the others.
_FEW_TIED = 32

# So many int32 numbers beyond the k-th may be equal to it as float32.
_SPARE = 8


@dataclasses.dataclass(frozen=True)
class Ranking(Shared):
    """The first `depth` ranks of each list.

    A formula reads a ranking as a sequence of groups of tied items. Where ties are
    broken, by chance or by position, each group has one item.

    Attributes:
        order: int tensor of shape `(batch, depth)`. The positions in the list of the
            items at each rank. `None` for the items as they are: a single target.
        occupied: boolean tensor of shape `(batch, depth)`. Where a rank has an
            item: items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ... For sparse labels, of shape
            `(batch, targets)`: only the ranks of targets are listed then.
        cutoff: the number of ranks that count: k, or the size of the list.
        first_ranks: tensor of one dimension. The ranks that the best items have in
            the ideal order, 1, 2, 3, ... up to the cutoff.
        ties: `None`, or the groups of tied items if ties are averaged.
        whole: `None`, or the ranking that these are the first ranks of.
        is_sorted: whether these are all ranks of lists that were sorted.
    """

    order: Tensor | None
    occupied: Tensor
    ranks: Tensor
    cutoff: Tensor | int
    first_ranks: Tensor
    ties: "TieGroups | None" = None
    whole: "Ranking | None" = None
    is_sorted: bool = False

    def cut(self, k: int | None) -> "Ranking":
        """Returns the first k ranks, for which nothing is taken anew."""
        is_static = isinstance(self.cutoff, int)
        if k is None or (is_static and k >= self.cutoff):
            return self
        ranking: Ranking = self.once(_cut, k)
        return ranking

    def _cut(self, k: int) -> dict[str, Any]:
        """What else changes if there are only k ranks."""
        return {
            "order": None if self.order is None else self.order[:, :k],
            "occupied": self.occupied[:, :k],
            "ranks": self.ranks[:k],
            "ties": None if self.ties is None else self.ties.cut(k),
        }

    def take(self, values: Tensor | Values) -> Tensor:
        """Returns the values of the items by rank, 0 where a rank has no item.

        Where ties are averaged, it is the mean over the tied items: what is
        expected at that rank if they come in random order.

        Args:
            values: tensor of shape `(batch, list_size)`, or `Values`.

        Returns:
            A tensor of shape `(batch, depth)`.
        """
        return self.at_each_rank(_taken, values)

    def at_each_rank(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Returns `function(self, *arguments)`, a value for each rank.

        It is computed once for all cutoffs: a value must not depend on the ranks below.
        """
        return self.once(_at_each_rank, function, *arguments)

    def best(self, values: Tensor | Values) -> Tensor:
        """Returns the largest values of each list, the largest first.

        Args:
            values: tensor of shape `(batch, list_size)`, or `Values`.

        Returns:
            A tensor of shape `(batch, first_ranks)`: the values in the ideal order.
        """
        return self.once(_best, values)

    def _taken(self, values: Values) -> Tensor:
        taken = where(self.occupied, values.at(self.order), 0.0)
        return taken if self.ties is None else self.ties.mean(taken, values)

    def _first(self, values_by_rank: Tensor) -> Tensor:
        """The values at the ranks up to the cutoff, of those at more ranks."""
        return values_by_rank[:, : self.cutoff]

    @property
    def averages(self) -> bool:
        """Whether ties are averaged."""
        return self.ties is not None

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
        none: boolean scalar. Whether it is seen that no items tie at all.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            items beyond the last rank included.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        of_high_scores: function of a function of scores and positions, as
            `DenseLists.of_high_scores`, for the items of the group at the cut.
        cut_score: tensor of shape `(batch, 1)`. The score of the group that goes on
            beyond the last rank; NaN, which equals no score, if none does.
        at_cut: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    none: Tensor | bool
    group: Tensor
    sizes: Tensor
    places: Tensor
    of_high_scores: Callable[[Callable[[Tensor, Tensor | None], Tensor]], Tensor]
    cut_score: Tensor
    at_cut: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, taken: Tensor, values: Values) -> Tensor:
        """Returns the mean of the values over the group of each rank."""

        def cut_total(scores: Tensor, positions: Tensor | None) -> Tensor:
            in_cut_group = where(scores == self.cut_score, values.at(positions), 0.0)
            return total(in_cut_group)[:, None]

        def averaged() -> Tensor:
            totals = total_by_group(taken, self.group)
            cut_totals = self.of_high_scores(cut_total)
            return where(self.at_cut, cut_totals, totals) / self.sizes

        return shortcut(self.none, lambda: taken, averaged)


def _cut(ranking: Ranking, k: int) -> Ranking:
    is_static = isinstance(ranking.cutoff, int)
    cutoff = k if is_static else ops.minimum(k, ranking.cutoff)
    first_ranks = ranking.first_ranks[:k]
    cut = {"cutoff": cutoff, "first_ranks": first_ranks, "whole": ranking}
    return dataclasses.replace(ranking, is_sorted=False, **cut, **ranking._cut(k))


def _at_each_rank(
    ranking: Ranking, function: Callable[..., Tensor], *arguments: Any
) -> Tensor:
    if ranking.whole is None:
        return function(ranking, *arguments)
    return ranking._first(ranking.whole.at_each_rank(function, *arguments))


def _taken(ranking: Ranking, values: Tensor | Values) -> Tensor:
    return ranking._taken(_as_values(values))


def _best(ranking: Ranking, values: Tensor | Values) -> Tensor:
    # That the scores are sorted is no reason to sort the values too.
    if ranking.whole is None or ranking.whole.is_sorted:
        return _as_values(values).largest(ranking.cutoff)
    return ranking.whole.best(values)[:, : ranking.cutoff]


def _as_values(values: Tensor | Values) -> Values:
    return values if isinstance(values, Values) else Values(values)


def rank_lists(
    lists: DenseLists, k: int | None, ties: Ties, key: int, first_list: Tensor | int
) -> Ranking:
    """Orders the items of lists whose labels are given for every item."""
    # Not first in a branch, where it would not be kept.
    _ = lists.has_items

    def preference() -> Preference:
        return preference_of(lists, ties, key, first_list)

    list_size = lists.list_size
    if k is None or is_whole(k, list_size):
        by_rank, order = sort(lists, ties, preference)
        occupied, tied = _occupied_and_tied(by_rank, list_size)
    else:
        # The score at rank k + 1 tells whether a tie goes on beyond the cutoff.
        scores, top = lists.highest_scores(at_most_size(k + 1, list_size))
        depth = at_most_size(k, list_size)
        occupied, tied = _occupied_and_tied(scores, depth)
        by_rank, order = scores[:, :depth], top[:, :depth]
        if ties != "average":
            in_any_order = order
            order = shortcut(
                none_of(tied),
                lambda: in_any_order,
                lambda: _tie_broken(lists, by_rank, in_any_order, preference()),
            )
    depth = ops.shape(by_rank)[1]
    ranks = counted(1, depth, lists.dtype, like=by_rank)
    return Ranking(
        order=order,
        occupied=occupied,
        ranks=ranks,
        cutoff=depth,
        first_ranks=ranks,
        ties=_tie_groups(lists, by_rank, tied) if ties == "average" else None,
        is_sorted=is_whole(k, list_size),
    )


def preference_of(
    lists: Lists, ties: Ties, key: int, first_list: Tensor | int
) -> Preference:
    """Returns a function from positions of items, or `None` for all, to int32 keys.

    Among tied items the one with the larger key goes first.
    """
    if ties == "stable":
        return lambda positions: -lists.item_numbers(positions)
    of_lists = list_keys(key, lists.has_items, first_list)
    return lambda positions: shuffle_keys(of_lists, lists.item_numbers(positions))


def sort(
    lists: DenseLists, ties: Ties, preference: Callable[[], Preference]
) -> tuple[Tensor, Tensor]:
    """Returns the scores in their full order, and this order."""
    scores = as_ranked(lists.scores)
    if ties != "shuffle":
        return stably_descending(scores)
    if backends.on_accelerator():
        order = sort_by(-scores, -preference()(None))
        return take(scores, order), order
    by_rank, order = descending(scores)
    return by_rank, _shuffled(by_rank, order, preference)


def _occupied_and_tied(by_rank: Tensor, depth: Tensor | int) -> tuple[Tensor, Tensor]:
    """Whether there is an item at a rank, and whether it ties with the next one.

    Args:
        by_rank: tensor of shape `(batch, depth)`, or with one more score.
        depth: the number of ranks.
    """
    if by_rank.shape[1] is None or by_rank.shape[1] == depth:
        by_rank = ops.concatenate([by_rank, columns(-math.inf, 1, by_rank)], axis=1)
    here, following = by_rank[:, :depth], by_rank[:, 1 : depth + 1]
    occupied = here > -math.inf
    return occupied, ops.logical_and(occupied, here == following)


def _tie_broken(
    lists: DenseLists,
    by_rank: Tensor,
    order: Tensor,
    preference: Preference,
) -> Tensor:
    """Puts the preferred of the tied items into the top, and these in order.

    Items above the last score of the top are in for certain; those that equal it
    compete for the ranks that are left.
    """
    last, depth = by_rank[:, -1:], ops.shape(order)[1]

    def preferred(scores: Tensor, positions: Tensor | None) -> Tensor:
        keys = preference(positions)
        # As float32, of which XLA on CPU selects the largest ten times as fast as of
        # int32. A few to spare, as the last ones may be equal in that precision only.
        keys = where(scores == last, ops.cast(keys, "float32"), -math.inf)
        size = ops.shape(keys)[1]
        keys, found = largest(keys, at_most_size(depth + _SPARE, size))
        if positions is not None:
            found = take(positions, found)
        return where(keys > -math.inf, ops.cast(found, "int32"), -1)

    competing = lists.of_high_scores(last, depth + 1, preferred)
    both = [
        where(by_rank > last, by_rank, -math.inf),
        where(competing >= 0, last, -math.inf),
    ]
    scores = ops.concatenate(both, axis=1)
    chosen = ops.concatenate([ops.cast(order, "int32"), at_least(competing, 0)], axis=1)
    chosen = in_order_of(chosen, -preference(chosen), scores)[:, :depth]
    return ops.cast(chosen, order.dtype)


def _shuffled(
    by_rank: Tensor, order: Tensor, preference: Callable[[], Preference]
) -> Tensor:
    """Puts tied items in the order of preference, in a full order.

    Few items tie by chance among many scores: these few are sorted apart.
    """

    def all_sorted() -> Tensor:
        return in_order_of(order, -preference()(order), by_rank)

    list_size = order.shape[1]
    _, tied = _occupied_and_tied(by_rank, ops.shape(by_rank)[1])
    if list_size is None or list_size < 4 * _FEW_TIED:
        return shortcut(none_of(tied), lambda: order, all_sorted)
    # The last rank has no next one to tie with, and comes first here.
    ties = ops.logical_or(tied, ops.roll(tied, 1, axis=1))
    number = ops.sum(ops.cast(ties, "int32"), axis=1, keepdims=True)

    def few_sorted() -> Tensor:
        first_highest = ops.arange(list_size, 0, -1, dtype="float32")
        ranks = list_size - largest(where(ties, first_highest, 0.0), _FEW_TIED)[0]
        ranks = at_most(ops.cast(ranks, "int32"), list_size - 1)
        few, scores = (take(x, ranks) for x in (order, by_rank))
        # Beyond the last tie, what comes first is written once more.
        is_used = counted(0, _FEW_TIED - 1, "int32", like=number) < number
        scores = where(is_used, scores, -math.inf)
        few = in_order_of(few, -preference()(few), scores)
        ranks, few = (where(is_used, x, x[:, :1]) for x in (ranks, few))
        return with_entries(order, ranks, few)

    return shortcut(ops.all(number <= _FEW_TIED), few_sorted, all_sorted)


def _tie_groups(lists: DenseLists, by_rank: Tensor, tied: Tensor) -> TieGroups:
    dtype, depth = lists.dtype, ops.shape(by_rank)[1]
    none = none_of(tied)
    starts = shifted(ops.cast(tied, "int32"), 1, 0) == 0
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    last = by_rank[:, -1:]
    cut_score = where(tied[:, -1:], last, math.nan)
    at_cut = by_rank == cut_score
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def of_high_scores(
        function: Callable[[Tensor, Tensor | None], Tensor],
    ) -> Tensor:
        return lists.of_high_scores(last, depth + 1, function)

    def cut_size(scores: Tensor, positions: Tensor | None) -> Tensor:
        equal = ops.cast(scores == cut_score, dtype)
        return ops.sum(equal, axis=1, keepdims=True)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        sizes = total_by_group(ones, group)
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = total_by_group(where(starts, position, 0.0), group)
        sizes = where(at_cut, of_high_scores(cut_size), sizes)
        return sizes, position - start + 1.0

    sizes, places = shortcut(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(
        none=none,
        group=group,
        sizes=sizes,
        places=places,
        of_high_scores=of_high_scores,
        cut_score=cut_score,
        at_cut=at_cut,
    )
