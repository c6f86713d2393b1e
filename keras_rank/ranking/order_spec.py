"""Ranks lists by scores, and holds ranked lists that functions share."""

import dataclasses
from typing import Any

from keras_rank.backends import Tensor
from keras_rank.lists.input_arrays import value_error
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
    """Ranks the items of each list in descending order of their scores.

    Args:
        lists: the lists.
        key: the key of the seed, from `fold_seed`. Only used to shuffle ties.
        first_list: the number of lists before this batch. Only used to shuffle ties.
        order: the treatment of ties and the number of ranks.
    """
    if isinstance(lists, SparseLists):
        return rank_targets(order, lists, key, first_list)
    assert isinstance(lists, DenseLists)
    return rank_dense(lists, order.k, order.ties, key, first_list)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RankedLists:
    """Lists and their ranking, which functions can share.

    Attributes:
        lists: the lists.
        ranking: the ranking of the lists up to the cutoff.
        k: the cutoff, or `None`.
        ties: the treatment of tied items.
        tied_labels: an error message if rounding made different labels of a list equal,
            or `None`.
    """

    lists: DenseLists | TargetLists
    ranking: Ranking
    k: int | None
    ties: Ties
    tied_labels: str | None

    def __repr__(self) -> str:
        lists = self.lists.has_items.shape[0]
        return f"<RankedLists of {lists} lists, k={self.k}, ties={self.ties!r}>"

    def copy_uncached(self) -> tuple[Lists, Ranking]:
        """Returns copies of the lists and the ranking, without cached results.

        A compiled function caches traced values in the copies, which are discarded
        after the call.
        """
        return dataclasses.replace(self.lists), dataclasses.replace(self.ranking)

    def check_no_scores(self, y_pred: Any, sample_weight: Any) -> None:
        """Raises `ValueError` if scores or weights are passed with ranked lists."""
        if y_pred is not None or sample_weight is not None:
            raise ValueError(
                "`y_pred` and `sample_weight` should be left out when `y_true` is "
                "ranked lists, which include them. Received: "
                + ("y_pred" if y_pred is not None else "sample_weight")
            )

    def check_subtopics(self, name: str, takes_subtopics: bool) -> None:
        """Raises `ValueError` if there are labels of subtopics, but not accepted."""
        if self.lists.given_subtopics is not None and not takes_subtopics:
            received = "ranked lists with labels of subtopics"
            raise value_error(name, "get one label for each item", received)

    def check_label_ties(self, compares_labels: bool) -> None:
        """Raises `ValueError` if labels are compared, but rounding made some equal."""
        if compares_labels and self.tied_labels is not None:
            raise ValueError(self.tied_labels)

    def check_cutoff(self, k: int | None) -> None:
        """Raises `ValueError` if a cutoff is larger than the cutoff of the ranking."""
        if self.k is not None and (k is None or k > self.k):
            hint = ", which is all ranks: rank without a `k`" * (k is None)
            expected = f"be at most the `k` of the ranked lists, {self.k}"
            raise value_error("k", expected, f"k={k}{hint}")
