"""The order of each list by its scores: the top k, and groups of tied items."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import total, where
from keras_rank.arrays.backends import (
    Tensor,
    as_tree,
    shortcut,
    size_of,
    total_by_group,
)
from keras_rank.arrays.shared import Shared
from keras_rank.arrays.sorting import Order
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.judged import Values
from keras_rank.ordering.high_scores import of_high_scores


@as_tree
@dataclasses.dataclass(frozen=True)
class Ranking(Shared):
    """The first `depth` ranks of each list.

    A formula reads a ranking as a sequence of groups of tied items. If ties are broken,
    at random or by position, each group has one item.

    Attributes:
        order: which item is at each rank. `None` for a single target.
        occupied: boolean tensor of shape `(batch, depth)`. Where a rank has an
            item: items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ... For sparse labels, of shape
            `(batch, targets)`: the ranks of the targets only.
        cutoff: the number of ranks that count: k, or the size of the list.
        first_ranks: tensor of one dimension. The ranks of the ideal order: 1, 2, 3, ...
            up to the cutoff.
        ties: `None`, or the groups of tied items if ties are averaged.
        whole: `None`, or the ranking of which these are the first ranks.
        is_sorted: whether these are all ranks of sorted lists.
    """

    order: Order | None
    occupied: Tensor
    ranks: Tensor
    cutoff: Tensor | int
    first_ranks: Tensor
    ties: "TieGroups | None" = None
    whole: "Ranking | None" = None
    is_sorted: bool = False

    def cut(self, k: int | None) -> "Ranking":
        """Returns the first k ranks, which share what is already computed."""
        is_static = isinstance(self.cutoff, int)
        if k is None or (is_static and k >= self.cutoff):
            return self
        ranking: Ranking = self.once(_cut, k)
        return ranking

    def _cut(self, k: int) -> dict[str, Any]:
        """The other fields if there are only k ranks."""
        return {
            "order": None if self.order is None else self.order.first(k),
            "occupied": self.occupied[:, :k],
            "ranks": self.ranks[:k],
            "ties": None if self.ties is None else self.ties.cut(k),
        }

    def take(self, values: Tensor | Values) -> Tensor:
        """Returns the values of the items by rank, 0 where a rank has no item.

        If ties are averaged, it is the mean over the tied items: the expected value at
        that rank if they come in random order.

        Args:
            values: tensor of shape `(batch, list_size)`, or `Values`.

        Returns:
            A tensor of shape `(batch, depth)`.
        """
        return self.at_each_rank(_taken, values)

    def at_each_rank(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Returns `function(self, *arguments)`, a value for each rank.

        It is computed once for all cutoffs: a value must not depend on lower ranks.
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
        taken = where(self.occupied, values.by(self.order), 0.0)
        return taken if self.ties is None else self.ties.mean(taken, values)

    def _first(self, values_by_rank: Tensor) -> Tensor:
        """The values at the ranks up to the cutoff."""
        return values_by_rank[:, : self.cutoff]

    @property
    def averages(self) -> bool:
        """Whether ties are averaged."""
        return self.ties is not None

    @property
    def group_sizes(self) -> Tensor:
        """The number of items that are tied at a rank, including its own.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.sizes

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group of tied items: 1, 2, ..., group size.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.places


@as_tree
@dataclasses.dataclass(frozen=True)
class TieGroups:
    """The groups of tied items in the first `depth` ranks of each list.

    Attributes:
        none: boolean scalar. Whether no items are tied, as far as can be seen.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            including items beyond the last rank.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        lists: the lists.
        lowest: tensor of shape `(batch, 1)`. The score at the last rank.
        cut_score: tensor of shape `(batch, 1)`. The score of the group that continues
            beyond the last rank; NaN, which equals no score, if none does.
        at_cut: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    none: Tensor | bool
    group: Tensor
    sizes: Tensor
    places: Tensor
    lists: DenseLists
    lowest: Tensor
    cut_score: Tensor
    at_cut: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, taken: Tensor, values: Values) -> Tensor:
        """Returns the mean of the values over the group of each rank."""

        def cut_total(scores: Tensor, order: Order | None) -> Tensor:
            in_cut_group = where(scores == self.cut_score, values.by(order), 0.0)
            return total(in_cut_group)[:, None]

        def averaged() -> Tensor:
            totals = total_by_group(taken, self.group)
            count = size_of(self.at_cut, 1) + 1
            cut_totals = of_high_scores(self.lists, self.lowest, count, cut_total)
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
    # Values are not sorted just because the scores are.
    if ranking.whole is None or ranking.whole.is_sorted:
        return _as_values(values).largest(ranking.cutoff)
    return ranking.whole.best(values)[:, : ranking.cutoff]


def _as_values(values: Tensor | Values) -> Values:
    return values if isinstance(values, Values) else Values(values)
