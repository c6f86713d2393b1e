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
    shifted,
    through_batch,
    total,
    where,
)
from keras_rank.judged import Values
from keras_rank.lists import DenseLists, HighItems, Lists
from keras_rank.ordering.backends import (
    INT32_MIN,
    cond,
    descending,
    stably_descending,
    total_by_group,
)
from keras_rank.ordering.selection import at_most_size, is_whole, largest
from keras_rank.ordering.shuffle import shuffle_keys
from keras_rank.ordering.sorting import in_order_of, with_entries
from keras_rank.shared import Shared

Ties = Literal["shuffle", "stable", "average"]

# Up to so many tied items of a list are sorted apart from the others.
_FEW_TIED = 32


@dataclasses.dataclass(frozen=True)
class Ranking(Shared):
    """The first `depth` ranks of each list.

    A formula reads a ranking as a sequence of groups of tied items. Where ties are
    broken, by chance or by position, each group has one item.

    Attributes:
        known_order: int tensor of shape `(batch, depth)`. The positions in the list
            of the items at each rank.
        occupied: boolean tensor of shape `(batch, depth)`. Where a rank has an
            item: items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ... For sparse labels, of shape
            `(batch, targets)`: only the ranks of targets are listed then.
        cutoff: the number of ranks that count: k, or the size of the list.
        first_ranks: tensor of one dimension. The ranks that the best items have in
            the ideal order, 1, 2, 3, ... up to the cutoff.
        ties: `None`, or the groups of tied items if ties are averaged.
        whole: `None`, or the ranking that these are the first ranks of.
    """

    known_order: Tensor
    occupied: Tensor
    ranks: Tensor
    cutoff: Tensor | int
    first_ranks: Tensor
    ties: "TieGroups | None" = None
    whole: "Ranking | None" = None

    def cut(self, k: int | None) -> "Ranking":
        """Returns the first k ranks, for which nothing is taken anew."""
        is_static = isinstance(self.cutoff, int)
        if k is None or (is_static and k >= self.cutoff):
            return self
        cutoff = k if is_static else ops.minimum(k, self.cutoff)
        first_ranks = self.first_ranks[:k]
        cut = {"cutoff": cutoff, "first_ranks": first_ranks, "whole": self}
        return dataclasses.replace(self, **cut, **self._cut(k))

    def _cut(self, k: int) -> dict[str, Any]:
        """What else changes if there are only k ranks."""
        return {
            "known_order": self.known_order[:, :k],
            "occupied": self.occupied[:, :k],
            "ranks": self.ranks[:k],
            "ties": None if self.ties is None else self.ties.cut(k),
        }

    @property
    def order(self) -> Tensor:
        """The positions of the items at each rank, of shape `(batch, depth)`."""
        return self.known_order

    def take(self, values: Tensor | Values) -> Tensor:
        """Returns the values of the items by rank, 0 where a rank has no item.

        Where ties are averaged, it is the mean over the tied items: what is
        expected at that rank if they come in random order.

        Args:
            values: tensor of shape `(batch, list_size)`, or `Values`.

        Returns:
            A tensor of shape `(batch, depth)`.
        """
        if self.whole is not None:
            return self._first(self.whole.take(values))
        return self.once(_taken, values)

    def best(self, values: Tensor | Values) -> Tensor:
        """Returns the largest values of each list, the largest first.

        Args:
            values: tensor of shape `(batch, list_size)`, or `Values`.

        Returns:
            A tensor of shape `(batch, first_ranks)`: the values in the ideal order.
        """
        if self.whole is not None:
            return self.whole.best(values)[:, : self.cutoff]
        return self.once(_best, values)

    def _best(self, values: Values) -> Tensor:
        return values.largest(self.cutoff)

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
        any: boolean scalar tensor. Whether any items tie at all.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            items beyond the last rank included.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        competitors: the items that score as high as that at the last rank.
        cut_score: tensor of shape `(batch, 1)`. The score of the group that goes on
            beyond the last rank; NaN, which equals no score, if none does.
        at_cut: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    any: Tensor
    group: Tensor
    sizes: Tensor
    places: Tensor
    competitors: HighItems
    cut_score: Tensor
    at_cut: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, taken: Tensor, values: Values) -> Tensor:
        """Returns the mean of the values over the group of each rank."""

        def cut_total(positions: Tensor, scores: Tensor) -> Tensor:
            in_cut_group = where(scores == self.cut_score, values.at(positions), 0.0)
            return total(in_cut_group)[:, None]

        def averaged() -> Tensor:
            totals = total_by_group(taken, self.group)
            cut_totals = self.competitors.map(cut_total)
            return where(self.at_cut, cut_totals, totals) / self.sizes

        return cond(self.any, averaged, lambda: taken)


def _taken(ranking: Ranking, values: Tensor | Values) -> Tensor:
    return ranking._taken(_as_values(values))


def _best(ranking: Ranking, values: Tensor | Values) -> Tensor:
    return ranking._best(_as_values(values))


def _as_values(values: Tensor | Values) -> Values:
    return values if isinstance(values, Values) else Values(values)


def rank_lists(
    lists: DenseLists, k: int | None, ties: Ties, seed: int, first_list: Tensor | int
) -> Ranking:
    """Orders the items of lists whose labels are given for every item."""
    preference = preference_of(lists, ties, seed, first_list)
    if k is None or is_whole(k, lists.list_size):
        order, by_rank, tied = sort(lists, ties, preference)
    else:
        list_size = lists.list_size
        depth = at_most_size(k, list_size)
        # The score at rank k + 1 tells whether a tie goes on beyond the cutoff.
        by_rank, order = lists.top_scores(at_most_size(k + 1, list_size))
        tied = _tied(by_rank)[:, :depth]
        by_rank, order = by_rank[:, :depth], order[:, :depth]
        if ties != "average":
            order = cond(
                ops.any(tied),
                lambda: _tie_broken(lists, by_rank, order, preference),
                lambda: order,
            )
    ranks = ops.cast(
        ops.arange(1, ops.shape(by_rank)[1] + 1, dtype="int32"), lists.dtype
    )
    return Ranking(
        known_order=order,
        occupied=by_rank > -math.inf,
        ranks=ranks,
        cutoff=ops.shape(by_rank)[1],
        first_ranks=ranks,
        ties=_tie_groups(lists, by_rank, tied) if ties == "average" else None,
    )


def preference_of(
    lists: Lists, ties: Ties, seed: int, first_list: Tensor | int
) -> Callable[[Tensor], Tensor]:
    """Returns a function from positions of items to int32 keys.

    Among tied items the one with the larger key goes first.
    """
    # Not in a branch, where it would not be kept.
    has_items = lists.has_items

    def preference(positions: Tensor) -> Tensor:
        if ties == "stable":
            return -positions
        return shuffle_keys(seed, has_items, lists.item_numbers(positions), first_list)

    return preference


def sort(
    lists: DenseLists, ties: Ties, preference: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the full order, the scores in it, and where one ties with the next."""
    # Those that are shuffled may tie in any order.
    in_order = descending if ties == "shuffle" else stably_descending
    by_rank, order = in_order(lists.scores)
    tied = _tied(by_rank)
    if ties == "shuffle":
        order = cond(
            ops.any(tied),
            lambda: _shuffled(by_rank, tied, order, preference),
            lambda: order,
        )
    return order, by_rank, tied


def _tied(by_rank: Tensor) -> Tensor:
    """Whether the item at a rank ties with that at the next."""
    here, following = by_rank[:, :-1], by_rank[:, 1:]
    tied = ops.logical_and(here == following, here > -math.inf)
    last = ops.zeros_like(by_rank[:, :1], dtype="bool")
    return ops.concatenate([tied, last], axis=1)


def _tie_broken(
    lists: DenseLists,
    by_rank: Tensor,
    order: Tensor,
    preference: Callable[[Tensor], Tensor],
) -> Tensor:
    """Puts the preferred of the tied items into the top, and these in order.

    Items above the last score of the top are in for certain; those that equal it
    compete for the ranks that are left.
    """
    last, depth = by_rank[:, -1:], ops.shape(order)[1]

    def competitors(positions: Tensor, scores: Tensor) -> Tensor:
        competing = where(scores == last, preference(positions), INT32_MIN)
        return ops.take_along_axis(positions, largest(competing, depth)[1], axis=1)

    above = by_rank > last
    number_above = ops.sum(ops.cast(above, "int32"), axis=1, keepdims=True)
    turn = at_least(ops.arange(depth, dtype="int32") - number_above, 0)
    filled = lists.from_score(last, depth).map(competitors)
    filled = ops.take_along_axis(filled, turn, axis=1)
    chosen = where(above, ops.cast(order, "int32"), filled)
    chosen = in_order_of(chosen, -preference(chosen), by_rank)
    return ops.cast(chosen, order.dtype)


def _shuffled(
    by_rank: Tensor,
    tied: Tensor,
    order: Tensor,
    preference: Callable[[Tensor], Tensor],
) -> Tensor:
    """Puts tied items in the order of preference, in a full order.

    Where few items tie, as by chance among many scores, these few are sorted apart.
    """

    def all_sorted() -> Tensor:
        return in_order_of(order, -preference(ops.cast(order, "int32")), by_rank)

    list_size = order.shape[1]
    if list_size is None or list_size < 4 * _FEW_TIED:
        return all_sorted()
    # The last rank has no next one to tie with, and comes first here.
    ties = ops.logical_or(tied, ops.roll(tied, 1, axis=1))
    number = ops.sum(ops.cast(ties, "int32"), axis=1, keepdims=True)

    def few_sorted() -> Tensor:
        # As float32, of which XLA selects the largest faster than of int32.
        first_highest = ops.arange(list_size, 0, -1, dtype="float32")
        ranks = list_size - largest(where(ties, first_highest, 0.0), _FEW_TIED)[0]
        ranks = at_most(ops.cast(ranks, "int32"), list_size - 1)
        few, scores = (ops.take_along_axis(x, ranks, axis=1) for x in (order, by_rank))
        # Beyond the last tie, what comes first is written once more.
        is_used = ops.arange(_FEW_TIED, dtype="int32") < number
        scores = where(is_used, scores, -math.inf)
        few = in_order_of(few, -preference(ops.cast(few, "int32")), scores)
        ranks, few = (where(is_used, x, x[:, :1]) for x in (ranks, few))
        return with_entries(order, ranks, few)

    return cond(ops.all(number <= _FEW_TIED), few_sorted, all_sorted)


def _tie_groups(lists: DenseLists, by_rank: Tensor, tied: Tensor) -> TieGroups:
    dtype = lists.dtype
    depth = ops.shape(by_rank)[1]
    starts = shifted(ops.cast(tied, "int32"), 1, 0) == 0
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    last = by_rank[:, -1:]
    cut_score = where(tied[:, -1:], last, math.nan)
    at_cut = by_rank == cut_score
    any_tied = ops.any(tied)
    competitors = lists.from_score(last, depth, are_needed=any_tied)
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def cut_size(positions: Tensor, scores: Tensor) -> Tensor:
        equal = ops.cast(scores == cut_score, dtype)
        return ops.sum(equal, axis=1, keepdims=True)

    def sizes() -> Tensor:
        cut_sizes = competitors.map(cut_size)
        return where(at_cut, cut_sizes, total_by_group(ones, group))

    def places() -> Tensor:
        position = ops.cast(ops.arange(depth, dtype="int32"), dtype)
        start = total_by_group(where(starts, position, 0.0), group)
        return position - start + 1.0

    return TieGroups(
        any=any_tied,
        group=group,
        sizes=cond(any_tied, sizes, lambda: ones),
        places=cond(any_tied, places, lambda: ones),
        competitors=competitors,
        cut_score=cut_score,
        at_cut=at_cut,
    )
