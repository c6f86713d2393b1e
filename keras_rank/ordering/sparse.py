"""Ranks targets by the scores of all items, which are counted instead of sorted."""

import math
import operator
from collections.abc import Callable

from keras import ops

from keras_rank.arrays.backends import Tensor, may_have_nan, shortcut, take
from keras_rank.arrays.counting import count
from keras_rank.arrays.selection import at_most_size, candidates, is_long
from keras_rank.lists.base import as_ranked
from keras_rank.lists.inputs import check_items
from keras_rank.lists.sparse import SparseLists
from keras_rank.ordering.preference import Ties, preference_of
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.targets import rank_counted


def rank_targets(
    lists: SparseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Ranks the targets of each list among all items, by counting those above them."""
    raw, dtype = lists.all_scores, lists.dtype
    target_scores = as_ranked(take(raw, lists.ids))
    retrieved = ops.logical_and(target_scores > -math.inf, lists.can_be_found)
    items = ops.shape(raw)[1]
    cutoff = items if k is None else at_most_size(k, items)
    limit = float(cutoff) if isinstance(cutoff, int) else ops.cast(cutoff, dtype)

    def above_and_equal(scores: Tensor) -> list[Tensor]:
        return count([(scores, target_scores)], operator.gt, operator.eq, dtype=dtype)

    def in_reach(above: Tensor) -> Tensor:
        return ops.logical_and(retrieved, above < limit)

    def among_all() -> tuple[Tensor, Tensor]:
        """The number of items above each target, and its place among those tied.

        Or the number of these, if ties are averaged.
        """
        scores = lists.ranked_scores
        above, equal = above_and_equal(scores)

        def place() -> Tensor:
            check_items("y_true", lists.given_ids, items)
            preference = preference_of(lists, ties, key, first_list)
            return _place_among_tied(
                scores, target_scores, lists.ids, preference, dtype
            )

        if ties == "average":
            check_items("y_true", lists.given_ids, items)
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
        above_top, equal = above_and_equal(high.entries)
        may_tie = ops.logical_or(equal > 1.0, target_scores == 0.0)
        may_tie = ops.logical_or(may_tie, target_scores == high.highest_other)
        ties_matter = ops.any(ops.logical_and(in_reach(above_top), may_tie))
        has_nan = may_have_nan(raw, high.maxima)
        is_plain = ops.logical_and(
            lists.are_ids, ops.logical_not(ops.logical_or(ties_matter, has_nan))
        )
        above, tied = shortcut(is_plain, lambda: (above_top, equal), among_all)
    return rank_counted(lists, k, ties, retrieved, above, tied)


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
    pairs = (scores, target_scores), (keys, target_keys)
    return 1.0 + count(pairs, goes_before, dtype=dtype)[0]
