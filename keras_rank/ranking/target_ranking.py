"""Ranks targets among the scores of all items, by counting instead of sorting."""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank.arrays.arithmetic import (
    as_number,
    counted,
    seen_maximum,
    shifted,
    size_of,
    through_batch,
)
from keras_rank.arrays.counting import counts_in_order, number_at_most, place_among_tied
from keras_rank.arrays.ordering import Order
from keras_rank.arrays.selection import at_most_size
from keras_rank.backends import Tensor, backend
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.item_lists import Lists, SparseLists, TargetLists
from keras_rank.ranking.base import (
    COUNTED_TIES,
    TIE_BOUNDS,
    OrderSpec,
    Ranking,
    TiedItems,
    Ties,
    item_keys,
    list_keys,
)
from keras_rank.ranking.pairs import pairs_of_targets


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TargetRanking(Ranking):
    """A ranking of targets, each with its own rank: only these ranks are listed."""

    def _cut(self, k: int) -> dict[str, Any]:
        return {
            "occupied": ops.logical_and(self.occupied, self.ranks <= k),
            "ideal_ranks": self.ideal_ranks[:k],
        }

    def up_to_cutoff(self, values_by_rank: Tensor) -> Tensor:
        if self.whole is None:
            return values_by_rank
        return backend.where(self.occupied, values_by_rank, 0.0)

    def tied_items(self, lists: Lists, values: Tensor) -> TiedItems:
        assert isinstance(lists, TargetLists)
        counts = lists.rank_counts
        last_rank = backend.constant(self.cutoff, values)
        found = ops.logical_and(counts.retrieved, counts.above < last_rank)
        above = backend.where(found, counts.above, math.inf)
        order = backend.argsort(above)
        values = backend.where(found, values, 0.0)
        above, tied, values = (
            backend.take(x, order) for x in (above, counts.tied, values)
        )
        targets_after, targets_from = (
            ops.cast(x, values.dtype) for x in counts_in_order(above, above)
        )
        targets = size_of(values, 1)
        dtype = keras.backend.standardize_dtype(values.dtype)
        # The place of each target among the targets of its group.
        before = as_number(targets, dtype) - targets_from
        place = counted(1, targets, dtype, values) - before
        in_group = targets_from - targets_after
        return TiedItems(
            values=values,
            above=above,
            group_size=tied,
            so_far=backend.maximum(tied - in_group + place, 1.0),
            is_first=place == 1.0,
            others_first=True,
            last=targets,
        )

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        assert isinstance(lists, TargetLists)
        if isinstance(self.cutoff, int) and self.cutoff < lists.items:
            expected = "be None for the pairs of lists that hold only the relevant "
            expected += "items, not how many others tie below the cutoff"
            raise refused("k", expected, f"k={self.cutoff}")
        ordered, ordered_or_tied, pairs = pairs_of_targets(lists, labels)
        if self.tie_bound is not None:
            # All tied pairs are in the worst order, or in the best order.
            is_best = self.tie_bound == "best"
            ordered = ordered_or_tied = ordered_or_tied if is_best else ordered
        return [ordered, ordered_or_tied, pairs]


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
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

    averages = True
    # They are summed in any case.
    no_ties = False

    def in_order(self, values: Tensor) -> Tensor:
        if self.targets is not None:
            in_order = backend.take(values, self.targets)
            values = backend.group_totals(in_order, self.group)
        totals = backend.take(values, self.target_at)
        return backend.where(self.occupied, totals, 0.0) / self.sizes

    @property
    def group_sizes(self) -> Tensor:
        """The number of items tied at a rank."""
        return self.sizes

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group."""
        return self.places_in_group


def rank_targets(
    order: OrderSpec, lists: SparseLists, key: Tensor | int, first_list: Tensor | int
) -> Ranking:
    """Ranks the targets of each list among all items, by counting those above."""
    counts = order.step(_counts, lists, key, first_list, k=order.k, ties=order.ties)
    return rank_counted(order, lists, *counts)


def _counts(
    lists: SparseLists,
    key: Tensor | int,
    first_list: Tensor | int,
    *,
    k: int | None,
    ties: Ties,
) -> tuple[Tensor, Tensor, Tensor]:
    """Which targets are retrieved, what is above each, and its place after these.

    If ties are averaged or ordered by labels, the number of items above it, and of its
    ties.
    """
    above, tied, retrieved = lists.rank_counts
    if ties in COUNTED_TIES:
        return retrieved, above, tied
    scores, items = lists.scores, size_of(lists.scores, 1)
    limit = as_number(items if k is None else at_most_size(k, items), lists.dtype)
    matters = ops.logical_and(retrieved, ops.logical_and(above < limit, tied > 1.0))

    def keys() -> tuple[Tensor, Tensor]:
        if lists.is_item is None:
            number = ops.arange(1, items + 1, dtype="int32")
            number = ops.broadcast_to(number, ops.shape(scores))
        else:
            number = backend.running_count(lists.is_item)
        of_lists = None
        if ties == "shuffle":
            of_lists = list_keys(key, first_list, lists.has_items)
        keys = item_keys(of_lists, number)
        return keys, backend.take(keys, lists.ids)

    place = place_among_tied(
        scores, lists.target_scores, tied, matters, keys, lists.dtype
    )
    return retrieved, above, place


def rank_counted(
    order: OrderSpec, lists: TargetLists, retrieved: Tensor, above: Tensor, tied: Tensor
) -> Ranking:
    """Ranks targets by the number of items above them.

    Args:
        order: how tied items are ordered, and the number of ranks.
        lists: the targets.
        retrieved: boolean tensor of shape `(batch, targets)`. The targets that may
            have a rank.
        above: tensor of the same shape. The number of items with a higher score.
        tied: tensor of the same shape. The place of the target among the items with
            the same score; the number of these if ties are averaged or ordered by
            labels.
    """
    k, cutoff = order.k, _cutoff(lists, order.k)
    if order.ties == "average":
        spans = order.step(_spans, lists, retrieved, above, tied, k=k)
        depth = seen_maximum(spans.ends, cutoff)
        return order.step(_listed, lists, spans, k=k, depth=depth)
    limit = as_number(cutoff, lists.dtype)
    if order.ties in TIE_BOUNDS:
        tied = _places_by_label(lists, retrieved, above, tied, order.ties)
    ranks = above + tied
    found = ops.logical_and(retrieved, ranks <= limit)
    ranks = backend.where(found, ranks, limit + 1.0)
    in_order = None
    if lists.labels.shape[1] != 1:
        in_order = Order(backend.argsort(ranks))
        found, ranks = in_order.of(found), in_order.of(ranks)
    return TargetRanking(
        order=in_order,
        occupied=found,
        ranks=ranks,
        cutoff=cutoff,
        ideal_ranks=_ideal_ranks(lists, cutoff),
        tie_bound=order.ties if order.ties in TIE_BOUNDS else None,
    )


def _places_by_label(
    lists: TargetLists, retrieved: Tensor, above: Tensor, tied: Tensor, ties: Ties
) -> Tensor:
    """Returns the place of each target among the items with its score, by label.

    All other items have the label 0. For `"best"`, the targets precede them, the target
    with the highest label first. For `"worst"`, the order is reversed.
    """
    places = ops.ones_like(tied)
    if lists.labels.shape[1] != 1:
        by_label = backend.argsort(-lists.compared_labels)
        above = backend.take(backend.where(retrieved, above, math.inf), by_label)
        by_score = backend.argsort(above)
        above, order = (backend.take(x, by_score) for x in (above, by_label))
        # The sorts are stable, so the targets of a score are in the order of labels.
        _, not_before = counts_in_order(above, above)
        targets = size_of(above, 1)
        index = counted(1, targets, lists.dtype, like=above)
        places = index - as_number(targets, lists.dtype)
        places = places + ops.cast(not_before, lists.dtype)
        places = backend.take(places, backend.argsort(order))
    # Beyond the cutoff, `tied` may be any number.
    return places if ties == "best" else backend.maximum(tied + 1.0 - places, 1.0)


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


def _spans(
    lists: TargetLists,
    retrieved: Tensor,
    above: Tensor,
    tied: Tensor,
    *,
    k: int | None,
) -> _Spans:
    limit = as_number(_cutoff(lists, k), lists.dtype)
    found = ops.logical_and(retrieved, above < limit)
    above, sizes = backend.where(found, above, limit), backend.where(found, tied, 1.0)
    targets = group = None
    is_first = found
    if lists.labels.shape[1] != 1:
        targets = backend.argsort(above)
        found, above, sizes = (backend.take(x, targets) for x in (found, above, sizes))
        starts = above != shifted(above, 1, -1.0)
        is_first = ops.logical_and(found, starts)
        number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
        group = ops.reshape(through_batch(number, size_of(above, 1)), (-1,))
    ranks_in_group = backend.where(is_first, backend.minimum(sizes, limit - above), 0.0)
    ends = backend.running_total(ranks_in_group)
    return _Spans(targets, group, above, sizes, ranks_in_group, ends)


def _listed(
    lists: TargetLists, spans: _Spans, *, k: int | None, depth: Tensor | int
) -> SpanRanking:
    cutoff = _cutoff(lists, k)
    ends = spans.ends
    index = counted(0, depth - 1, lists.dtype, like=ends)[None, :]
    index = ops.broadcast_to(index, (size_of(ends, 0), size_of(index, 1)))
    target_at = backend.minimum(number_at_most(ends, index), size_of(ends, 1) - 1)
    occupied = index < ends[:, -1:]
    end, length, start, size = (
        backend.take(x, target_at)
        for x in (ends, spans.ranks, spans.above, spans.sizes)
    )
    places = backend.where(occupied, index - (end - length) + 1.0, 1.0)
    return SpanRanking(
        order=None,
        occupied=occupied,
        ranks=backend.where(
            occupied, start + places, as_number(cutoff, lists.dtype) + 1.0
        ),
        cutoff=cutoff,
        ideal_ranks=_ideal_ranks(lists, cutoff),
        targets=spans.targets,
        group=spans.group,
        target_at=target_at,
        sizes=backend.where(occupied, size, 1.0),
        places_in_group=places,
    )


def _cutoff(lists: TargetLists, k: int | None) -> Tensor | int:
    """The number of ranks that count, an int if it is known.

    Of the ideal order, in which targets that are no items count: there may be more of
    these than items.
    """
    items, targets = lists.items, size_of(lists.labels, 1)
    if isinstance(items, int) and k is not None and k <= items:
        return k
    are_known = isinstance(items, int) and isinstance(targets, int)
    most = max(items, targets) if are_known else ops.maximum(items, targets)
    return most if k is None else at_most_size(k, most)


def _ideal_ranks(lists: TargetLists, cutoff: Tensor | int) -> Tensor:
    """The ranks of the targets in the ideal order."""
    last = at_most_size(cutoff, size_of(lists.labels, 1))
    return counted(1, last, lists.dtype, like=lists.labels)
