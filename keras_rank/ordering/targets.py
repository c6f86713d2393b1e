"""Sparse targets in a whole catalogue: their ranks, by counting instead of sorting."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arithmetic import Tensor, highest, where
from keras_rank.judged import Values
from keras_rank.lists import SparseLists, as_ranked, nan_not_retrieved
from keras_rank.ordering.backends import cond, stable_argsort
from keras_rank.ordering.counting import count, tied_before
from keras_rank.ordering.ranking import Ranking, Ties, preference_of
from keras_rank.ordering.selection import Selection, at_most_size, is_whole, largest_of


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
    lists: SparseLists, k: int | None, ties: Ties, seed: int, first_list: Tensor | int
) -> Ranking:
    """Ranks the targets of each list among all items.

    A target stands below the items with higher scores. With a cutoff, the top k + 1
    scores tell all that matters, but for a tie that goes on beyond them. Without one,
    the items above each target are counted, for which the scores are copied.
    """
    raw, dtype = lists.scores, lists.dtype
    target_scores = as_ranked(ops.take_along_axis(raw, lists.ids, axis=1))
    retrieved = ops.logical_and(lists.mask, target_scores > float("-inf"))
    retrieved = ops.logical_and(retrieved, lists.in_catalogue)

    def counted(matches: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return count(lists.ranked_scores, target_scores, matches, dtype)

    items = ops.shape(raw)[1]
    cutoff = items if k is None else at_most_size(k, items)
    if k is None or is_whole(k, items):
        above = counted(lambda s, target: s > target)
        equal = counted(lambda s, target: s == target)
        goes_on = ops.zeros_like(retrieved)
    else:
        top, _ = largest_of(
            Selection(raw, _Scores(raw), _Scores.retrieved),
            at_most_size(k + 1, items),
        )
        top = as_ranked(top)
        above = count(top, target_scores, lambda s, target: s > target, dtype)
        equal = count(top, target_scores, lambda s, target: s == target, dtype)
        goes_on = ops.logical_and(target_scores == top[:, -1:], retrieved)
    in_reach = ops.logical_and(retrieved, above < ops.cast(cutoff, dtype))

    if ties == "average":
        goes_on = ops.logical_and(goes_on, in_reach)
        equal = cond(
            ops.any(goes_on),
            lambda: counted(lambda s, target: s == target),
            lambda: equal,
        )
        nowhere = ops.cast(items, dtype)
        ranks = ops.cast(ops.arange(1, cutoff + 1, dtype="int32"), dtype)
        return SpanRanking(
            known_order=lists.ids,
            occupied=in_reach,
            ranks=ranks,
            cutoff=cutoff,
            first_ranks=_first_ranks(lists, cutoff),
            above=where(in_reach, above, nowhere),
            sizes=where(in_reach, equal, 1.0),
        )

    preference = preference_of(lists, ties, seed, first_list)

    def keys() -> Tensor:
        return preference(ops.arange(items, dtype="int32")[None, :])

    tied = ops.logical_and(in_reach, equal > 1.0)
    before = tied_before(
        lambda: lists.ranked_scores, target_scores, lists.ids, tied, keys, dtype
    )
    ranks = above + before + 1.0
    in_reach = ops.logical_and(in_reach, ranks <= ops.cast(cutoff, dtype))
    nowhere = ops.cast(items + 1, dtype)
    order = stable_argsort(where(in_reach, ranks, nowhere))
    return TargetRanking(
        known_order=order,
        occupied=ops.take_along_axis(in_reach, order, axis=1),
        ranks=ops.take_along_axis(where(in_reach, ranks, nowhere), order, axis=1),
        cutoff=cutoff,
        first_ranks=_first_ranks(lists, cutoff),
    )


@dataclasses.dataclass(frozen=True)
class _Scores:
    """Scores, of which NaN are not retrieved."""

    scores: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "_Scores":
        return _Scores(function(self.scores))

    def retrieved(self) -> Tensor:
        """The scores, `-inf` for NaN."""
        return nan_not_retrieved(self.scores)


def _first_ranks(lists: SparseLists, cutoff: Tensor | int) -> Tensor:
    """The ranks that the targets have in the ideal order."""
    targets = lists.labels.shape[1]
    if isinstance(cutoff, int) and targets is not None:
        last = min(cutoff, targets)
    else:
        last = ops.minimum(cutoff, ops.shape(lists.labels)[1])
    return ops.cast(ops.arange(1, last + 1, dtype="int32"), lists.dtype)
