"""Rankings of targets among the scores of all items, by counting instead of sorting."""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank.arrays.arithmetic import (
    axis_size,
    cast_size,
    flatten_positions,
    inclusive_range,
    max_or_bound,
    shift_right,
)
from keras_rank.arrays.counting import count_at_most, count_in_sorted, rank_among_tied
from keras_rank.arrays.ordering import Order
from keras_rank.arrays.selection import limit_to_size
from keras_rank.backends import Tensor, backend
from keras_rank.lists.input_arrays import value_error
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
from keras_rank.ranking.pairs import target_pair_weights


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TargetRanking(Ranking):
    """A ranking of the targets of each list, which lists only the ranks of targets."""

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
        is_ranked = ops.logical_and(counts.retrieved, counts.above < last_rank)
        above = backend.where(is_ranked, counts.above, math.inf)
        order = backend.argsort(above)
        values = backend.where(is_ranked, values, 0.0)
        above, tied, values = (
            backend.take(x, order) for x in (above, counts.tied, values)
        )
        targets_after, targets_from = (
            ops.cast(x, values.dtype) for x in count_in_sorted(above, above)
        )
        num_targets = axis_size(values, 1)
        dtype = keras.backend.standardize_dtype(values.dtype)
        # `place` is the position of each target among the listed targets of its group.
        before = cast_size(num_targets, dtype) - targets_from
        place = inclusive_range(1, num_targets, dtype, values) - before
        in_group = targets_from - targets_after
        return TiedItems(
            values=values,
            above=above,
            group_size=tied,
            place=backend.maximum(tied - in_group + place, 1.0),
            is_first=place == 1.0,
            has_zeros_first=True,
            num_items=num_targets,
        )

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        assert isinstance(lists, TargetLists)
        if isinstance(self.cutoff, int) and self.cutoff < lists.items:
            expected = "be None for the pairs of lists that hold only the relevant "
            expected += "items, not how many others tie below the cutoff"
            raise value_error("k", expected, f"k={self.cutoff}")
        ordered, ordered_or_tied, pairs = target_pair_weights(lists, labels)
        if self.tie_bound is not None:
            # All tied pairs are in the worst order, or in the best order.
            is_best = self.tie_bound == "best"
            ordered = ordered_or_tied = ordered_or_tied if is_best else ordered
        return [ordered, ordered_or_tied, pairs]


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SpanRanking(TargetRanking):
    """A ranking of targets with averaged ties, in which a target spans several ranks.

    Only the ranks that targets may have are listed, of shape `(batch, depth)`.

    Attributes:
        targets: int tensor of shape `(batch, targets)`. The positions of the targets,
            sorted by the number of items above. `None` if lists have a single target.
        group_ids: int tensor of shape `(batch * targets,)`. The group of tied items of
            each sorted target. Ids are unique in the batch. `None` if lists have a
            single target.
        target_index: int tensor of shape `(batch, depth)`. The index in `targets` of
            the first target in the group at each rank.
        sizes: tensor of the same shape. The number of items in the group.
        places_in_group: tensor of the same shape. The position of the rank in the
            group.
    """

    targets: Tensor | None
    group_ids: Tensor | None
    target_index: Tensor
    sizes: Tensor
    places_in_group: Tensor

    averages = True
    # Values of tied targets are always summed, so ties are not checked.
    no_ties = False

    def in_order(self, values: Tensor) -> Tensor:
        if self.targets is not None:
            sorted_values = backend.take(values, self.targets)
            values = backend.group_totals(sorted_values, self.group_ids)
        totals = backend.take(values, self.target_index)
        return backend.where(self.occupied, totals, 0.0) / self.sizes

    @property
    def group_sizes(self) -> Tensor:
        """The number of items in the group of tied items at each rank."""
        return self.sizes

    @property
    def places(self) -> Tensor:
        """The position of each rank in its group of tied items."""
        return self.places_in_group


def rank_targets(
    order: OrderSpec, lists: SparseLists, key: Tensor | int, first_list: Tensor | int
) -> Ranking:
    """Ranks the targets of each list by the number of items above them."""
    counts = order.run_step(
        _count_ranks, lists, key, first_list, k=order.k, ties=order.ties
    )
    return rank_from_counts(order, lists, *counts)


def _count_ranks(
    lists: SparseLists,
    key: Tensor | int,
    first_list: Tensor | int,
    *,
    k: int | None,
    ties: Ties,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the last three arguments of `rank_from_counts`."""
    above, tied, retrieved = lists.rank_counts
    if ties in COUNTED_TIES:
        return retrieved, above, tied
    scores, items = lists.scores, axis_size(lists.scores, 1)
    limit = cast_size(items if k is None else limit_to_size(k, items), lists.dtype)
    is_needed = ops.logical_and(retrieved, ops.logical_and(above < limit, tied > 1.0))

    def get_keys() -> tuple[Tensor, Tensor]:
        if lists.is_item is None:
            item_index = ops.arange(1, items + 1, dtype="int32")
            item_index = ops.broadcast_to(item_index, ops.shape(scores))
        else:
            item_index = backend.running_count(lists.is_item)
        keys_by_list = None
        if ties == "shuffle":
            keys_by_list = list_keys(key, first_list, lists.has_items)
        keys = item_keys(keys_by_list, item_index)
        return keys, backend.take(keys, lists.ids)

    place = rank_among_tied(
        scores, lists.target_scores, tied, is_needed, get_keys, lists.dtype
    )
    return retrieved, above, place


def rank_from_counts(
    order: OrderSpec, lists: TargetLists, retrieved: Tensor, above: Tensor, tied: Tensor
) -> Ranking:
    """Ranks targets by the number of items above them.

    Args:
        order: the treatment of ties and the number of ranks.
        lists: the targets.
        retrieved: boolean tensor of shape `(batch, targets)`. Whether a target may have
            a rank.
        above: tensor of the same shape. The number of items with a higher score.
        tied: tensor of the same shape. The number of items with an equal score if ties
            are averaged or ordered by label. Otherwise, the position of the target
            among these items.
    """
    k, cutoff = order.k, _get_cutoff(lists, order.k)
    if order.ties == "average":
        spans = order.run_step(_compute_spans, lists, retrieved, above, tied, k=k)
        depth = max_or_bound(spans.ends, cutoff)
        return order.run_step(_list_ranks, lists, spans, k=k, depth=depth)
    limit = cast_size(cutoff, lists.dtype)
    if order.ties in TIE_BOUNDS:
        tied = _rank_among_tied_by_label(lists, retrieved, above, tied, order.ties)
    ranks = above + tied
    is_ranked = ops.logical_and(retrieved, ranks <= limit)
    ranks = backend.where(is_ranked, ranks, limit + 1.0)
    target_order = None
    if lists.labels.shape[1] != 1:
        target_order = Order(backend.argsort(ranks))
        is_ranked, ranks = target_order.take(is_ranked), target_order.take(ranks)
    return TargetRanking(
        order=target_order,
        occupied=is_ranked,
        ranks=ranks,
        cutoff=cutoff,
        ideal_ranks=_get_ideal_ranks(lists, cutoff),
        tie_bound=order.ties if order.ties in TIE_BOUNDS else None,
    )


def _rank_among_tied_by_label(
    lists: TargetLists, retrieved: Tensor, above: Tensor, tied: Tensor, ties: Ties
) -> Tensor:
    """Returns the rank of each target among the items with an equal score, by label.

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
        _, not_before = count_in_sorted(above, above)
        num_targets = axis_size(above, 1)
        index = inclusive_range(1, num_targets, lists.dtype, like=above)
        places = index - cast_size(num_targets, lists.dtype)
        places = places + ops.cast(not_before, lists.dtype)
        places = backend.take(places, backend.argsort(order))
    # Beyond the cutoff, `tied` may be any number.
    return places if ties == "best" else backend.maximum(tied + 1.0 - places, 1.0)


class _Spans(NamedTuple):
    """The ranks of groups of tied targets.

    Attributes:
        targets, group_ids: see `SpanRanking`.
        above: tensor of shape `(batch, targets)`. The number of items above each sorted
            target.
        sizes: tensor of the same shape. The number of items in the group of the target.
        num_ranks: tensor of the same shape. The number of ranks of the group up to the
            cutoff for its first target, and 0 for other targets.
        ends: tensor of the same shape. The cumulative sum of `num_ranks`.
    """

    targets: Tensor | None
    group_ids: Tensor | None
    above: Tensor
    sizes: Tensor
    num_ranks: Tensor
    ends: Tensor


def _compute_spans(
    lists: TargetLists,
    retrieved: Tensor,
    above: Tensor,
    tied: Tensor,
    *,
    k: int | None,
) -> _Spans:
    limit = cast_size(_get_cutoff(lists, k), lists.dtype)
    is_ranked = ops.logical_and(retrieved, above < limit)
    above = backend.where(is_ranked, above, limit)
    sizes = backend.where(is_ranked, tied, 1.0)
    targets = group_ids = None
    is_first = is_ranked
    if lists.labels.shape[1] != 1:
        targets = backend.argsort(above)
        is_ranked, above, sizes = (
            backend.take(x, targets) for x in (is_ranked, above, sizes)
        )
        is_start = above != shift_right(above, 1, -1.0)
        is_first = ops.logical_and(is_ranked, is_start)
        index = ops.cumsum(ops.cast(is_start, "int32"), axis=1) - 1
        group_ids = ops.reshape(flatten_positions(index, axis_size(above, 1)), (-1,))
    num_ranks = backend.where(is_first, backend.minimum(sizes, limit - above), 0.0)
    ends = backend.running_total(num_ranks)
    return _Spans(targets, group_ids, above, sizes, num_ranks, ends)


def _list_ranks(
    lists: TargetLists, spans: _Spans, *, k: int | None, depth: Tensor | int
) -> SpanRanking:
    cutoff = _get_cutoff(lists, k)
    ends = spans.ends
    index = inclusive_range(0, depth - 1, lists.dtype, like=ends)[None, :]
    index = ops.broadcast_to(index, (axis_size(ends, 0), axis_size(index, 1)))
    target_index = backend.minimum(count_at_most(ends, index), axis_size(ends, 1) - 1)
    occupied = index < ends[:, -1:]
    end, num_ranks, start, size = (
        backend.take(x, target_index)
        for x in (ends, spans.num_ranks, spans.above, spans.sizes)
    )
    places = backend.where(occupied, index - (end - num_ranks) + 1.0, 1.0)
    return SpanRanking(
        order=None,
        occupied=occupied,
        ranks=backend.where(
            occupied, start + places, cast_size(cutoff, lists.dtype) + 1.0
        ),
        cutoff=cutoff,
        ideal_ranks=_get_ideal_ranks(lists, cutoff),
        targets=spans.targets,
        group_ids=spans.group_ids,
        target_index=target_index,
        sizes=backend.where(occupied, size, 1.0),
        places_in_group=places,
    )


def _get_cutoff(lists: TargetLists, k: int | None) -> Tensor | int:
    """Returns the number of ranks that count, as an int if it is static.

    Targets that are not among the items count in the ideal order, so the number of
    targets may be larger than the number of items.
    """
    items, targets = lists.items, axis_size(lists.labels, 1)
    if isinstance(items, int) and k is not None and k <= items:
        return k
    is_static = isinstance(items, int) and isinstance(targets, int)
    depth = max(items, targets) if is_static else ops.maximum(items, targets)
    return depth if k is None else limit_to_size(k, depth)


def _get_ideal_ranks(lists: TargetLists, cutoff: Tensor | int) -> Tensor:
    """Returns the ranks of the targets in the ideal order."""
    last = limit_to_size(cutoff, axis_size(lists.labels, 1))
    return inclusive_range(1, last, lists.dtype, like=lists.labels)
