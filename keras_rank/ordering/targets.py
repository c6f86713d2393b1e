"""Sparse targets in a whole catalogue: their ranks, by counting instead of sorting."""

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import counted, highest, where
from keras_rank.arrays.backends import (
    Tensor,
    may_have_nan,
    shortcut,
    stable_argsort,
    take,
)
from keras_rank.arrays.counting import count
from keras_rank.arrays.selection import at_most_size, candidates, is_long
from keras_rank.lists.base import as_ranked
from keras_rank.lists.judged import Values
from keras_rank.lists.sparse import SparseLists
from keras_rank.ordering.preference import Ties, preference_of
from keras_rank.ordering.ranking import Ranking


@dataclasses.dataclass(frozen=True)
class TargetRanking(Ranking):
    """A ranking of targets, each at a rank of its own: only these are listed."""

    def _cut(self, k: int) -> dict[str, Any]:
        return {"occupied": ops.logical_and(self.occupied, self.ranks <= k)}

    def _first(self, values_by_rank: Tensor) -> Tensor:
        return where(self.occupied, values_by_rank, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanRanking(Ranking):
    """A ranking of targets whose ties are averaged: each spans the ranks of its group.

    Attributes:
        above: tensor of shape `(batch, targets)`. The number of items above the group
            of a target.
        sizes: tensor of shape `(batch, targets)`. The size of its group.
    """

    above: Tensor
    sizes: Tensor

    def _cut(self, k: int) -> dict[str, Any]:
        return {"ranks": self.ranks[:k]}

    def _taken(self, values: Values) -> Tensor:
        shares = values.everywhere() / self.sizes
        spread = where(self._covers, shares[:, :, None], 0.0)
        return ops.sum(spread, axis=1)

    @property
    def averages(self) -> bool:
        """Whether ties are averaged."""
        return True

    @property
    def group_sizes(self) -> Tensor:
        """The number of items tied at a rank, where there are targets among them."""
        sizes = where(self._covers, self.sizes[:, :, None], 1.0)
        return highest(sizes)

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group, where there are targets among them."""
        places = self.ranks - self.above[:, :, None]
        return highest(where(self._covers, places, 1.0))

    @property
    def _covers(self) -> Tensor:
        """Whether a target may be at a rank, of shape `(batch, targets, depth)`."""
        above, sizes = self.above[:, :, None], self.sizes[:, :, None]
        return ops.logical_and(self.ranks > above, self.ranks <= above + sizes)


def rank_targets(
    lists: SparseLists, k: int | None, ties: Ties, key: int, first_list: Tensor | int
) -> Ranking:
    """Ranks the targets of each list among all items, by counting those above them."""
    raw, dtype = lists.all_scores, lists.dtype
    target_scores = as_ranked(take(raw, lists.ids))
    retrieved = ops.logical_and(target_scores > -math.inf, lists.can_be_found)
    items = ops.shape(raw)[1]
    cutoff = items if k is None else at_most_size(k, items)
    limit = float(cutoff) if isinstance(cutoff, int) else ops.cast(cutoff, dtype)

    def counted_in(scores: Tensor, is_counted: Callable[..., Tensor]) -> Tensor:
        return count(scores, target_scores, is_counted, dtype)

    def in_reach(above: Tensor) -> Tensor:
        return ops.logical_and(retrieved, above < limit)

    def among_all() -> tuple[Tensor, Tensor]:
        """The number of items above each target, and its place among those tied.

        Or the number of these, if ties are averaged.
        """
        scores = lists.ranked_scores
        above = counted_in(scores, operator.gt)
        equal = counted_in(scores, operator.eq)

        def place() -> Tensor:
            lists.check_ids()
            preference = preference_of(lists, ties, key, first_list)
            return _place_among_tied(
                scores, target_scores, lists.ids, preference, dtype
            )

        if ties == "average":
            lists.check_ids()
            return above, equal
        ties_matter = ops.any(ops.logical_and(in_reach(above), equal > 1.0))
        is_plain = ops.logical_and(lists.are_ids, ops.logical_not(ties_matter))
        return above, shortcut(is_plain, lambda: equal, place)

    if k is None or not is_long(raw, k + 1):
        above, tied = among_all()
    else:
        # What is above a target of the top k is among these, and what ties with it is
        # too, or is as high as all others. Several scores may stand for 0.
        high = candidates(raw, k + 1)
        above_top = counted_in(high.entries, operator.gt)
        equal = counted_in(high.entries, operator.eq)
        may_tie = ops.logical_or(equal > 1.0, target_scores == 0.0)
        may_tie = ops.logical_or(may_tie, target_scores == high.highest_other)
        ties_matter = ops.any(ops.logical_and(in_reach(above_top), may_tie))
        has_nan = may_have_nan(raw, high.maxima)
        is_plain = ops.logical_and(
            lists.are_ids, ops.logical_not(ops.logical_or(ties_matter, has_nan))
        )
        above, tied = shortcut(is_plain, lambda: (above_top, equal), among_all)

    first_ranks = _first_ranks(lists, cutoff)
    if ties == "average":
        found = in_reach(above)
        return SpanRanking(
            order=None,
            occupied=found,
            ranks=counted(1, cutoff, dtype, like=raw),
            cutoff=cutoff,
            first_ranks=first_ranks,
            above=where(found, above, limit),
            sizes=where(found, tied, 1.0),
        )
    ranks = above + tied
    found = ops.logical_and(retrieved, ranks <= limit)
    ranks = where(found, ranks, limit + 1.0)
    order = None
    if lists.labels.shape[1] != 1:
        order = stable_argsort(ranks)
        found, ranks = take(found, order), take(ranks, order)
    return TargetRanking(
        order=order,
        occupied=found,
        ranks=ranks,
        cutoff=cutoff,
        first_ranks=first_ranks,
    )


def _place_among_tied(
    scores: Tensor,
    target_scores: Tensor,
    positions: Tensor,
    preference: Callable[[Tensor | None], Tensor],
    dtype: str,
) -> Tensor:
    """Returns the place of each target among the items that tie with it: 1, 2, ...

    Args:
        scores: tensor of shape `(batch, items)`.
        target_scores: tensor of shape `(batch, targets)`.
        positions: int tensor of the same shape. Where the targets are.
        preference: function from positions, or `None` for all, to int32 keys: among
            tied items the one with the larger key goes first.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, targets)`.
    """

    def goes_before(
        score: Tensor, target_score: Tensor, key: Tensor, target_key: Tensor
    ) -> Tensor:
        return ops.logical_and(score == target_score, key > target_key)

    keys = preference(None)
    target_keys = take(keys, positions)
    return 1.0 + count(scores, target_scores, goes_before, dtype, keys, target_keys)


def _first_ranks(lists: SparseLists, cutoff: Tensor | int) -> Tensor:
    """The ranks that the targets have in the ideal order."""
    targets = lists.labels.shape[1]
    if isinstance(cutoff, int) and targets is not None:
        last = min(cutoff, targets)
    else:
        last = ops.minimum(cutoff, ops.shape(lists.labels)[1])
    return counted(1, last, lists.dtype, like=lists.labels)
