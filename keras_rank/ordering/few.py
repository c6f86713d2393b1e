"""Full orders of lists with few relevant items: by counting, not by sorting."""

import dataclasses
from collections.abc import Callable

from keras import ops

from keras_rank.arithmetic import Tensor, at_least, through_batch, where
from keras_rank.judged import Values
from keras_rank.lists import DenseLists
from keras_rank.ordering.backends import cond, is_known_true
from keras_rank.ordering.counting import count, tied_before
from keras_rank.ordering.ranking import Ranking, Ties, preference_of, sort
from keras_rank.ordering.selection import largest
from keras_rank.shared import kept

# Up to so many relevant items of a list are counted.
FEW = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewRanking(Ranking):
    """A full order, which is not known where the ranks of relevant items will do.

    They do where no list of the batch has more than a few labels above 0, and what
    is asked for is worth nothing elsewhere.

    Attributes:
        known_order: zeros if there are few.
        are_few: boolean scalar tensor. Whether there are few in all lists.
        positions: int tensor of shape `(batch, FEW)`. Where the highest labels are.
        their_ranks: tensor of the same shape. The ranks of these items if there are
            few, 0 for those that were not retrieved.
        find_order: function that returns the order in any case.
    """

    are_few: Tensor
    positions: Tensor
    their_ranks: Tensor
    find_order: Callable[[], Tensor]

    @kept
    def order(self) -> Tensor:
        if self.whole is not None:
            return self.whole.order[:, : self.cutoff]
        return cond(self.are_few, self.find_order, lambda: self.known_order)

    def _taken(self, values: Values) -> Tensor:
        if not values.only_relevant:
            return super()._taken(values)
        few = where(self.their_ranks > 0.0, values.at(self.positions), 0.0)

        def placed() -> Tensor:
            batch, list_size = ops.shape(self.known_order)
            # What has no rank is worth 0 here, and may be added to the first one.
            places = at_least(ops.cast(self.their_ranks, "int32") - 1, 0)
            by_rank = ops.segment_sum(
                ops.reshape(few, (-1,)),
                ops.reshape(through_batch(places, list_size), (-1,)),
                num_segments=batch * list_size,
            )
            return ops.reshape(by_rank, (batch, list_size))

        def sorted_() -> Tensor:
            return where(self.occupied, values.at(self.known_order), 0.0)

        return cond(self.are_few, placed, sorted_)

    def _best(self, values: Values) -> Tensor:
        # Not in a branch of a graph: outside, XLA sorts these on one core while it
        # sorts the scores on another.
        if not values.only_relevant or not is_known_true(self.are_few):
            return super()._best(values)
        best = values.largest(FEW)
        others = ops.zeros_like(self.known_order[:, FEW:])
        return ops.concatenate([best, ops.cast(others, best.dtype)], axis=1)


def may_be_few(lists: DenseLists) -> bool:
    """Whether it is worth a look: short lists are sorted as fast as counted."""
    lists_in_batch, list_size = lists.given.raw_labels.shape
    is_long = list_size is not None and list_size >= 32 * FEW
    # Keras's segment_sum fails on torch for no segments.
    return is_long and lists_in_batch != 0


def rank_few(
    lists: DenseLists, ties: Ties, seed: int, first_list: Tensor | int
) -> Ranking:
    """Orders whole lists, in which few items may be relevant, and breaks ties."""
    labels, scores, dtype = lists.labels, lists.scores, lists.dtype
    preference = preference_of(lists, ties, seed, first_list)

    def whole_order() -> Tensor:
        return ops.cast(sort(lists, ties, preference)[0], "int32")

    def keys() -> Tensor:
        positions = ops.arange(labels.shape[1], dtype="int32")
        return preference(ops.broadcast_to(positions, ops.shape(labels)))

    numbers = ops.sum(ops.cast(labels > 0.0, "int32"), axis=1)
    are_few = ops.all(numbers <= FEW)
    none = ops.zeros_like(labels[:, :FEW])

    positions = cond(
        are_few,
        lambda: ops.cast(largest(labels, FEW)[1], "int32"),
        lambda: ops.cast(none, "int32"),
    )

    def their_ranks() -> Tensor:
        their_scores = ops.take_along_axis(scores, positions, axis=1)
        retrieved = their_scores > float("-inf")
        above = count(scores, their_scores, lambda s, their: s > their, dtype)
        equal = count(scores, their_scores, lambda s, their: s == their, dtype)
        tied = ops.logical_and(retrieved, equal > 1.0)
        before = tied_before(lambda: scores, their_scores, positions, tied, keys, dtype)
        return where(retrieved, above + before + 1.0, 0.0)

    def unknown() -> Tensor:
        return ops.zeros_like(labels, dtype="int32")

    ranks = ops.cast(ops.arange(1, labels.shape[1] + 1, dtype="int32"), dtype)
    number_retrieved = ops.sum(ops.cast(scores > float("-inf"), dtype), axis=1)
    return FewRanking(
        known_order=cond(are_few, unknown, whole_order),
        occupied=ranks <= number_retrieved[:, None],
        ranks=ranks,
        cutoff=labels.shape[1],
        first_ranks=ranks,
        are_few=are_few,
        positions=positions,
        their_ranks=cond(are_few, their_ranks, lambda: none),
        find_order=whole_order,
    )
