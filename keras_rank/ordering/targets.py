"""The ranks of targets, from the numbers of items above and tied with each."""

import dataclasses
from typing import Any, NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import (
    at_most,
    counted,
    running_total,
    shifted,
    through_batch,
    where,
)
from keras_rank.arrays.backends import (
    Tensor,
    as_tree,
    seen_maximum,
    size_of,
    stable_argsort,
    take,
    total_by_group,
)
from keras_rank.arrays.counting import number_at_most
from keras_rank.arrays.programs import program
from keras_rank.arrays.selection import at_most_size
from keras_rank.arrays.sorting import Order
from keras_rank.lists.judged import Values
from keras_rank.lists.sparse import TargetLists
from keras_rank.ordering.preference import Ties
from keras_rank.ordering.ranking import Ranking


@as_tree
@dataclasses.dataclass(frozen=True)
class TargetRanking(Ranking):
    """A ranking of targets, each with its own rank: only these ranks are listed."""

    def _cut(self, k: int) -> dict[str, Any]:
        return {"occupied": ops.logical_and(self.occupied, self.ranks <= k)}

    def _first(self, values_by_rank: Tensor) -> Tensor:
        return where(self.occupied, values_by_rank, 0.0)


@as_tree
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanRanking(TargetRanking):
    """A ranking of targets with averaged ties: each may be at several ranks.

    Only the ranks that targets may have are listed, of shape `(batch, some)`.

    Attributes:
        targets: int tensor of shape `(batch, targets)`. The targets, by the number of
            items above them. `None` for a single one.
        group: int tensor of shape `(batch * targets,)`. The group of tied items of
            each of these, numbered through the batch. `None` for a single one.
        target_at: int tensor of shape `(batch, some)`. The first of these in the
            group at a rank.
        sizes: tensor of the same shape. The number of items of this group.
        places_in_group: tensor of the same shape. The place of the rank in it.
    """

    targets: Tensor | None
    group: Tensor | None
    target_at: Tensor
    sizes: Tensor
    places_in_group: Tensor

    def _taken(self, values: Values) -> Tensor:
        totals = values.everywhere()
        if self.targets is not None:
            totals = total_by_group(take(totals, self.targets), self.group)
        totals = take(totals, self.target_at)
        return where(self.occupied, totals, 0.0) / self.sizes

    @property
    def averages(self) -> bool:
        """Whether ties are averaged."""
        return True

    @property
    def group_sizes(self) -> Tensor:
        """The number of items tied at a rank."""
        return self.sizes

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group."""
        return self.places_in_group


def rank_counted(
    lists: TargetLists,
    k: int | None,
    ties: Ties,
    retrieved: Tensor,
    above: Tensor,
    tied: Tensor,
) -> Ranking:
    """Ranks targets by the number of items above them.

    Args:
        lists: the targets.
        k: the number of ranks, or `None` for all.
        ties: how tied items are ordered.
        retrieved: boolean tensor of shape `(batch, targets)`. The targets that may
            have a rank.
        above: tensor of the same shape. The number of items with a higher score.
        tied: tensor of the same shape. The place of the target among the items with
            the same score; the number of these if ties are averaged.
    """
    if ties == "average":
        return _rank_spans(lists, k, retrieved, above, tied)
    cutoff = _cutoff(lists, k)
    limit = limit_of(cutoff, lists.dtype)
    ranks = above + tied
    found = ops.logical_and(retrieved, ranks <= limit)
    ranks = where(found, ranks, limit + 1.0)
    order = None
    if lists.labels.shape[1] != 1:
        order = stable_argsort(ranks)
        found, ranks = take(found, order), take(ranks, order)
    return TargetRanking(
        order=None if order is None else Order(order),
        occupied=found,
        ranks=ranks,
        cutoff=cutoff,
        first_ranks=_first_ranks(lists, cutoff),
    )


def _rank_spans(
    lists: TargetLists, k: int | None, retrieved: Tensor, above: Tensor, tied: Tensor
) -> SpanRanking:
    """Lists the ranks of the targets' groups, one group after the other."""
    spans = _spans(k, lists, retrieved, above, tied)
    depth = seen_maximum(spans.ends, _cutoff(lists, k))
    return _listed((k, depth), lists, spans)


class _Spans(NamedTuple):
    """The ranks of groups of tied targets.

    Attributes:
        targets, group: those of `SpanRanking`.
        above: tensor of shape `(batch, targets)`. The number of items above each of
            the targets in this order.
        sizes: tensor of the same shape. The number of items of its group.
        ranks: tensor of the same shape. The number of ranks that count of the groups,
            each at its first target.
        ends: tensor of the same shape. Their running sum.
    """

    targets: Tensor | None
    group: Tensor | None
    above: Tensor
    sizes: Tensor
    ranks: Tensor
    ends: Tensor


@program
def _spans(
    k: int | None, lists: TargetLists, retrieved: Tensor, above: Tensor, tied: Tensor
) -> _Spans:
    limit = limit_of(_cutoff(lists, k), lists.dtype)
    found = ops.logical_and(retrieved, above < limit)
    above, sizes = where(found, above, limit), where(found, tied, 1.0)
    targets = group = None
    is_first = found
    if lists.labels.shape[1] != 1:
        targets = stable_argsort(above)
        found, above, sizes = (take(x, targets) for x in (found, above, sizes))
        starts = above != shifted(above, 1, -1.0)
        is_first = ops.logical_and(found, starts)
        number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
        group = ops.reshape(through_batch(number, size_of(above, 1)), (-1,))
    ranks_in_group = where(is_first, at_most(sizes, limit - above), 0.0)
    ends = running_total(ranks_in_group)
    return _Spans(targets, group, above, sizes, ranks_in_group, ends)


@program
def _listed(
    k_and_depth: tuple[int | None, Tensor | int], lists: TargetLists, spans: _Spans
) -> SpanRanking:
    k, depth = k_and_depth
    cutoff = _cutoff(lists, k)
    ends = spans.ends
    index = counted(0, depth - 1, lists.dtype, like=ends)[None, :]
    index = ops.broadcast_to(index, (size_of(ends, 0), size_of(index, 1)))
    target_at = at_most(number_at_most(ends, index), size_of(ends, 1) - 1)
    occupied = index < ends[:, -1:]
    end, length, start, size = (
        take(x, target_at) for x in (ends, spans.ranks, spans.above, spans.sizes)
    )
    places = where(occupied, index - (end - length) + 1.0, 1.0)
    return SpanRanking(
        order=None,
        occupied=occupied,
        ranks=where(occupied, start + places, limit_of(cutoff, lists.dtype) + 1.0),
        cutoff=cutoff,
        first_ranks=_first_ranks(lists, cutoff),
        targets=spans.targets,
        group=spans.group,
        target_at=target_at,
        sizes=where(occupied, size, 1.0),
        places_in_group=places,
    )


def _cutoff(lists: TargetLists, k: int | None) -> Tensor | int:
    """The number of ranks that count, an int if it is known.

    Of the ideal order, in which targets that are no items count: there may be more of
    these than items.
    """
    items, targets = lists.items, lists.labels.shape[1]
    if isinstance(items, int) and k is not None and k <= items:
        return k
    if isinstance(items, int) and targets is not None:
        most = max(items, targets)
    else:
        most = ops.maximum(items, size_of(lists.labels, 1))
    return most if k is None else at_most_size(k, most)


def limit_of(cutoff: Tensor | int, dtype: str) -> Tensor | float:
    """The cutoff as a number of the dtype of the ranks."""
    return float(cutoff) if isinstance(cutoff, int) else ops.cast(cutoff, dtype)


def _first_ranks(lists: TargetLists, cutoff: Tensor | int) -> Tensor:
    """The ranks of the targets in the ideal order."""
    targets = lists.labels.shape[1]
    if isinstance(cutoff, int) and targets is not None:
        last = min(cutoff, targets)
    else:
        last = ops.minimum(cutoff, size_of(lists.labels, 1))
    return counted(1, last, lists.dtype, like=lists.labels)
