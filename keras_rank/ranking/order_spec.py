"""Orders lists with labels for all items, or for targets only."""

import dataclasses
from typing import Any

from keras_rank.backends import Tensor
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.item_lists import DenseLists, Lists, SparseLists, TargetLists
from keras_rank.ranking.base import OrderSpec as OrderSpec
from keras_rank.ranking.base import Ranking, Ties
from keras_rank.ranking.dense_ranking import rank_dense
from keras_rank.ranking.target_ranking import rank_targets


def rank_by_scores(
    lists: Lists,
    key: Tensor | int = 0,
    first_list: Tensor | int = 0,
    *,
    order: OrderSpec,
) -> Ranking:
    """Orders the items of each list by their scores, the highest first.

    Args:
        lists: the lists.
        key: the key of the seed of the shuffle, from `key_of_seed`.
        first_list: the number of lists seen before, which also keys the shuffle.
        order: how ties are ordered, and the number of ranks.
    """
    if isinstance(lists, SparseLists):
        return rank_targets(order, lists, key, first_list)
    assert isinstance(lists, DenseLists)
    return rank_dense(lists, order.k, order.ties, key, first_list)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RankedLists:
    """Lists and their order, which functions can share.

    Attributes:
        lists: the lists.
        ranking: their order, up to the cutoff.
        k: the cutoff, or `None`.
        ties: how tied items are ordered.
        tied_labels: what is wrong if labels were rounded to the same, or `None`.
    """

    lists: DenseLists | TargetLists
    ranking: Ranking
    k: int | None
    ties: Ties
    tied_labels: str | None

    def __repr__(self) -> str:
        lists = self.lists.has_items.shape[0]
        return f"<RankedLists of {lists} lists, k={self.k}, ties={self.ties!r}>"

    def fresh(self) -> tuple[Lists, Ranking]:
        """The same, of one call: what is computed from them is not kept.

        A compiled function must leave no value of its trace behind.
        """
        return dataclasses.replace(self.lists), dataclasses.replace(self.ranking)

    def check_alone(self, y_pred: Any, sample_weight: Any) -> None:
        """Raises if scores or weights are also given: ranked lists include them."""
        if y_pred is not None or sample_weight is not None:
            raise ValueError(
                "`y_pred` and `sample_weight` should be left out when `y_true` is "
                "ranked lists, which include them. Received: "
                + ("y_pred" if y_pred is not None else "sample_weight")
            )

    def check_subtopics(self, name: str, takes_subtopics: bool) -> None:
        """Raises for labels of subtopics, unless they are taken."""
        if self.lists.given_subtopics is not None and not takes_subtopics:
            received = "ranked lists with labels of subtopics"
            raise refused(name, "get one label for each item", received)

    def check_compared(self, compares_labels: bool) -> None:
        """Raises for labels that were rounded to the same, if they are compared."""
        if compares_labels and self.tied_labels is not None:
            raise ValueError(self.tied_labels)

    def check_cutoff(self, k: int | None) -> None:
        """Raises for a cutoff that is larger than that of the ranking."""
        if self.k is not None and (k is None or k > self.k):
            which = ", which is all ranks: rank without a `k`" * (k is None)
            expected = f"be at most the `k` of the ranked lists, {self.k}"
            raise refused("k", expected, f"k={k}{which}")
