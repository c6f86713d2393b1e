"""Ranks targets among the scores of all items, by counting instead of sorting."""

from keras import ops

from keras_rank.arrays.backends import Tensor, may_have_nan, shortcut, size_of, take
from keras_rank.arrays.counting import count_above_and_tied, count_before
from keras_rank.arrays.programs import program
from keras_rank.arrays.selection import at_most_size, candidates, is_long
from keras_rank.lists.base import as_ranked
from keras_rank.lists.ids import check_items
from keras_rank.lists.sparse import SparseLists
from keras_rank.ordering.preference import Ties, preference_of
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.targets import limit_of, rank_counted


def rank_targets(
    lists: SparseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Ranks the targets of each list among all items, by counting those above."""
    counts = _counts((k, ties), lists, key, first_list)
    return rank_counted(lists, k, ties, *counts)


@program
def _counts(
    k_and_ties: tuple[int | None, Ties],
    lists: SparseLists,
    key: Tensor | int,
    first_list: Tensor | int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Which targets are retrieved, what is above each, and what is tied with it."""
    k, ties = k_and_ties
    raw, dtype = lists.all_scores, lists.dtype
    target_scores, retrieved = lists.target_scores, lists.are_retrieved
    items = size_of(raw, 1)
    cutoff = items if k is None else at_most_size(k, items)
    limit = limit_of(cutoff, dtype)

    def in_reach(above: Tensor) -> Tensor:
        return ops.logical_and(retrieved, above < limit)

    def among_all() -> tuple[Tensor, Tensor]:
        """The number of items that go before each target, and its place after these.

        If ties are averaged, the number of items above it, and of its ties.
        """
        scores = lists.ranked_scores
        above, equal, _ = lists.placed

        def resolved() -> tuple[Tensor, Tensor]:
            check_items("y_true", lists.given_ids, items)
            preference = preference_of(lists, ties, key, first_list)
            keys = preference(lists.item_numbers(None))
            own_keys = take(keys, lists.ids)
            # In one pass: an accelerator has not counted those above.
            before = count_before(
                scores, target_scores, keys, own_keys, dtype, with_above=True
            )
            return before, ops.ones_like(before)

        if ties == "average":
            check_items("y_true", lists.given_ids, items)
            return above, equal
        ties_matter = ops.any(ops.logical_and(in_reach(above), equal > 1.0))
        is_plain = ops.logical_and(lists.are_ids, ops.logical_not(ties_matter))
        before, place = shortcut(is_plain, lambda: (above, equal), resolved)
        return before, place

    if k is None or not is_long(raw, k + 1):
        above, tied = among_all()
    else:
        # What is above a target of the top k is among these, and what ties with it is
        # too, or is as high as all others. Several scores may stand for 0.
        high = candidates(raw, k + 1)
        above_top, equal = count_above_and_tied(
            as_ranked(high.entries), target_scores, dtype
        )
        may_tie = ops.logical_or(equal > 1.0, target_scores == 0.0)
        may_tie = ops.logical_or(may_tie, target_scores == high.highest_other)
        ties_matter = ops.any(ops.logical_and(in_reach(above_top), may_tie))
        has_nan = may_have_nan(raw, high.all_maxima)
        is_plain = ops.logical_and(
            lists.are_ids, ops.logical_not(ops.logical_or(ties_matter, has_nan))
        )
        above, tied = shortcut(is_plain, lambda: (above_top, equal), among_all)
    return retrieved, above, tied
