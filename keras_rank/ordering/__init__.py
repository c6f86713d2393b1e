"""The order of lists: the only place that decides ties, or names a backend."""

from keras_rank.arithmetic import Tensor
from keras_rank.lists import Lists, SparseLists
from keras_rank.ordering.ranking import Ranking, Ties, rank_lists
from keras_rank.ordering.selection import cond, in_order_of, inversions, top_values
from keras_rank.ordering.targets import rank_targets

__all__ = ["Ranking", "Ties", "cond", "in_order_of", "inversions", "rank", "top_values"]


def rank(
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
    return rank_lists(lists, k, ties, seed, first_list)
