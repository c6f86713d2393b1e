"""Groups of tied items, over which values are averaged."""

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from keras_rank.arrays.arithmetic import counted, shifted, size_of, through_batch, total
from keras_rank.arrays.counting import count_of
from keras_rank.arrays.limits import are_ranked_as
from keras_rank.backends import Tensor, backend


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TieGroups:
    """The groups of tied items in the first `depth` ranks of each list.

    Attributes:
        none: boolean scalar. Whether no items are tied, as far as can be seen.
        group: int tensor of shape `(batch * depth,)`. The group of each rank,
            numbered through the batch.
        sizes: tensor of shape `(batch, depth)`. The size of the group of a rank,
            including items beyond the last rank.
        places: tensor of shape `(batch, depth)`. The place of a rank in its group.
        scores: tensor of shape `(batch, list_size)`. The scores of the items.
        last: tensor of shape `(batch, 1)`. The score of the group at the last rank,
            which may continue beyond it. NaN, which equals none, if no item is there.
        at_last: boolean tensor of shape `(batch, depth)`. The ranks of that group.
    """

    none: Tensor | bool
    group: Tensor
    sizes: Tensor
    places: Tensor
    scores: Tensor
    last: Tensor
    at_last: Tensor

    def cut(self, k: int) -> "TieGroups":
        """Returns the groups of the first k ranks."""
        return dataclasses.replace(
            self, sizes=self.sizes[:, :k], places=self.places[:, :k]
        )

    def mean(self, by_rank: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """Returns the mean over the group of each rank.

        Args:
            by_rank: the values of the items in order, of shape `(batch, depth)`, or
                `(batch, subtopics, depth)`.
            values: function that returns those of all items.
        """
        at_last, sizes = (
            for_all_subtopics(x, by_rank) for x in (self.at_last, self.sizes)
        )

        def averaged() -> Tensor:
            is_last = are_ranked_as(self.scores, self.last)
            is_last = for_all_subtopics(is_last, by_rank)
            of_last = total(backend.where(is_last, values(), 0.0))[..., None]
            return backend.where(at_last, of_last, self._totals(by_rank)) / sizes

        return backend.branch(self.none, lambda: by_rank, averaged)

    def _totals(self, values: Tensor) -> Tensor:
        """The sum of the values over the group of each rank."""
        if len(values.shape) == 2:
            return backend.group_totals(values, self.group)
        lists, subtopics, depth = ops.shape(values)
        # Each list has a row, and groups of its own, for each subtopic.
        of_list = ops.arange(lists, dtype="int32")[:, None, None] * (subtopics - 1)
        rows_before = of_list + ops.arange(subtopics, dtype="int32")[:, None]
        group = ops.reshape(self.group, (lists, 1, depth)) + rows_before * depth
        rows = ops.reshape(values, (-1, depth))
        totals = backend.group_totals(rows, ops.reshape(group, (-1,)))
        return ops.reshape(totals, (lists, subtopics, depth))


def tie_groups(
    scores: Tensor, by_rank: Tensor, none: Tensor | bool, dtype: str
) -> TieGroups:
    """Returns the groups of equal scores.

    Args:
        scores: tensor of shape `(batch, list_size)`, `-inf` where no item has a rank.
        by_rank: tensor of shape `(batch, depth)`. The highest scores, in order.
        none: boolean scalar. Whether no items are tied, as far as can be seen.
        dtype: the dtype of the sizes.
    """
    depth = size_of(by_rank, 1)
    # Ranks without an item are no group.
    is_next = ops.logical_and(
        by_rank == shifted(by_rank, 1, math.nan), by_rank > -math.inf
    )
    starts = ops.logical_not(is_next)
    number = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1
    group = ops.reshape(through_batch(number, depth), (-1,))
    last = by_rank[:, -1:]
    # NaN equals no score.
    last = backend.where(last > -math.inf, last, math.nan)
    at_last = by_rank == last
    ones = ops.cast(ops.ones_like(by_rank), dtype)

    def sizes_and_places() -> tuple[Tensor, Tensor]:
        position = counted(0, depth - 1, dtype, like=by_rank)
        start = backend.group_totals(backend.where(starts, position, 0.0), group)
        of_last = count_of(are_ranked_as(scores, last), dtype)[:, None]
        sizes = backend.where(at_last, of_last, backend.group_totals(ones, group))
        return sizes, position - start + 1.0

    sizes, places = backend.branch(none, lambda: (ones, ones), sizes_and_places)
    return TieGroups(none, group, sizes, places, scores, last, at_last)


def for_all_subtopics(x: Tensor, values: Tensor) -> Tensor:
    """Returns what lists have at their places, for values that may have subtopics."""
    return x if len(values.shape) == 2 else x[:, None]
