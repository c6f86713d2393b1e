"""Orders lists of either kind: with labels for all items, or for targets only."""

from typing import cast

from keras_rank.arithmetic import Tensor
from keras_rank.lists import DenseLists, Lists, SparseLists
from keras_rank.ordering.ranking import Ranking, Ties, rank_lists
from keras_rank.ordering.targets import rank_targets


def rank_by_scores(
    lists: Lists,
    k: int | None,
    ties: Ties,
    seed: int = 0,
    first_list: Tensor | int = 0,
) -> Ranking:
    """Orders the items of each list by their scores, the highest first.

    Args:
        lists: the lists.
        k: the number of ranks, or `None` for all.
        ties: how tied items are ordered: `"shuffle"`, `"stable"` (by position) or
            `"average"` (not at all: see `Ranking.take`).
        seed: the seed of the shuffle.
        first_list: the number of lists seen before, which keys the shuffle too.
    """
    if isinstance(lists, SparseLists):
        return rank_targets(lists, k, ties, seed, first_list)
    return rank_lists(cast(DenseLists, lists), k, ties, seed, first_list)
