"""Metrics that sum the ranks of relevant items or compare pairs of items."""

import math
from collections.abc import Iterator
from typing import Any, Unpack

import keras
from keras import ops

from keras_rank.arguments import (
    adds_arguments,
    check_no_cutoff,
    check_share,
    check_ties_without_bounds,
)
from keras_rank.arrays.arithmetic import (
    LARGEST_GAIN,
    flush_subnormals,
    max_over_axis,
    ratio,
    total,
)
from keras_rank.arrays.counting import count_above_and_tied
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance, from_positive_label
from keras_rank.metrics.base import (
    RankingArguments,
    RankingMetric,
    SharedArguments,
)
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists
from keras_rank.ranking.pairs import item_pair_weights


@keras.saving.register_keras_serializable(package="keras_rank")
class AverageRelevancePosition(RankingMetric):
    """Computes the mean rank of the relevant items, weighted by their labels.

    `ARP = sum(label * rank) / sum(label)` over the relevant items

    Lower is better. A relevant item that was not retrieved, or is below rank k, counts
    as if it were at rank k + 1, or at the last rank of a list of at most k items. The
    result is 1 or more.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        empty_value: must be `None`. A list without relevant items is left out of the
            mean.
        empty_weight: must be `"average"`.
        name: str. Defaults to `arp_at_k`, or `arp` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            list_weight, relevance_threshold, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.AverageRelevancePosition()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '2.0000'

    Reference:
        Zhu and Klabjan, "Listwise learning to rank by exploring unique ratings",
        WSDM 2020.
    """

    base_name = "arp"
    _is_graded = True
    _leaves_out_empty = True
    takes_sparse_labels = True
    higher_is_better = False

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        empty_value: float | None = None,
        relevance_threshold: float | None = 1.0,
        **arguments: Unpack[SharedArguments],
    ) -> None:
        super().__init__(
            k,
            empty_value=empty_value,
            relevance_threshold=relevance_threshold,
            **arguments,
        )

    @property
    def _relevance(self) -> Relevance:
        return from_positive_label(self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # The formula is linear in the labels, so the mean over ties is exact. Labels
        # that are not in `labels_by_rank` belong to items without a rank.
        labels = backend.minimum(lists.labels, LARGEST_GAIN) * lists.relevance
        labels_by_rank = ranking.take(labels)
        all_labels = total(labels)
        unranked = backend.maximum(all_labels - total(labels_by_rank), 0.0)
        last = backend.minimum(lists.sizes, ranking.cutoff + 1)
        ranks = total(labels_by_rank * ranking.ranks) + unranked * last
        return ratio(ranks, all_labels)


class _LabelComparison(RankingMetric):
    """Base class of metrics that compare labels.

    They leave out lists in which all labels are equal.
    """

    _leaves_out_empty = True
    _compares_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        empty_value: float | None = None,
        relevance_threshold: float | None = None,
        **arguments: Unpack[SharedArguments],
    ) -> None:
        super().__init__(
            k,
            empty_value=empty_value,
            relevance_threshold=relevance_threshold,
            **arguments,
        )

    def relevance(self, lists: Lists) -> Tensor:
        """Returns whether an item has a higher label than another item of its list."""
        labels = self._get_labels(lists)
        lowest = -max_over_axis(-labels, keepdims=True)
        if lists.holds_targets:
            has_unlabeled = lists.count_unlabeled(labels) > 0.0
            lowest = backend.where(has_unlabeled[:, None], 0.0, lowest)
        return ops.logical_and(lists.mask, labels > lowest)

    def _get_labels(self, lists: Lists) -> Tensor:
        """Returns the labels: 0 below the threshold, and infinity at padding."""
        labels = lists.compared_labels
        if self.relevance_threshold is not None:
            labels = backend.where(labels >= self.relevance_threshold, labels, 0.0)
        return backend.where(lists.mask, labels, math.inf)


@keras.saving.register_keras_serializable(package="keras_rank")
class PairwiseAccuracy(_LabelComparison):
    """Computes the mean share of pairs that the scores order correctly.

    `PA = (correct pairs + tied_value * tied pairs) / pairs with different labels`

    With binary labels, the value of a list is the area under its ROC curve, and the
    mean weighted by list is known as GAUC. A pair is not ordered correctly if its item
    with the higher label was not retrieved. With a cutoff, all items scored below the
    k-th item count as tied. With `sparse_labels`, `k` must be `None`, as the number of
    items below a cutoff is not known. The weight of a pair is the weight of its item
    with the higher label. Labels with a 64-bit dtype are compared in float64. JAX
    supports 64 bits only if they are enabled. If they are not, labels that differ but
    tie in float32 raise an error in eager code. The result is between 0 and 1.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        tied_value: float between 0 and 1. The value of a tied pair. Defaults to 0.5,
            the mean over both orders of the pair. With 0.0, tied pairs count as
            incorrectly ordered (TF-Ranking, rax).
        shuffle_ties: `True`, `False` and `"average"` have no effect, as `tied_value` is
            the value of a tied pair. `"worst"` and `"best"` order tied items by their
            labels, so no pairs are tied but those below the cutoff.
        seed: has no effect.
        empty_value: must be `None`. A list without pairs of different labels is left
            out of the mean.
        empty_weight: must be `"average"`.
        relevance_threshold: float. Labels below the threshold count as 0. Defaults to
            `None`.
        name: str. Defaults to `pairwise_accuracy_at_k`, or `pairwise_accuracy` without
            a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: list_weight,
            sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.PairwiseAccuracy()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.6000'

    Reference:
        Fawcett, "An introduction to ROC analysis", Pattern Recognition Letters
        27(8), 2006.
    """

    base_name = "pairwise_accuracy"
    takes_sparse_labels = True

    @adds_arguments(_LabelComparison.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        tied_value: float = 0.5,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.tied_value = check_share("tied_value", tied_value)
        if self.sparse_labels and self.k is not None:
            raise ValueError(
                "`k` should be None with `sparse_labels=True`, as the number of items "
                f"below a cutoff is not known. Received: k={k!r}"
            )

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # A pair is ordered correctly if the item with the higher label ranks higher.
        labels = self._get_labels(lists.lists)
        ordered, ordered_or_tied, pairs = ranking.pairs(lists.lists, labels)
        correct = (1.0 - self.tied_value) * ordered + self.tied_value * ordered_or_tied
        return ratio(correct, pairs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tied_value": self.tied_value}


@keras.saving.register_keras_serializable(package="keras_rank")
class KendallTau(_LabelComparison):
    """Computes the mean of Kendall's rank correlation (tau-b) over lists.

    `tau = (ordered - reversed) / sqrt(pairs by label * pairs by score)`

    where pairs by label have different labels, and pairs by score have different
    scores. Items that were not retrieved are tied. If all scores of a list are tied,
    its value is 0, as expected by chance. The result is between -1 and 1.

    Args:
        k: must be `None`. All ranks count.
        shuffle_ties: has no effect, as the equation accounts for ties. `"worst"` and
            `"best"` are errors.
        seed: has no effect.
        empty_value: must be `None`. A list whose labels are all equal is left out of
            the mean.
        empty_weight: as for `keras_rank.metrics.PairwiseAccuracy`.
        relevance_threshold: as for `keras_rank.metrics.PairwiseAccuracy`.
        sparse_labels: must be `False`. The metric compares all items.
        name: str. Defaults to `kendall_tau`.
        **arguments: as for `keras_rank.metrics.RankingMetric`: list_weight, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.KendallTau()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.1826'

    Reference:
        Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945.
    """

    base_name = "kendall_tau"
    _check_ties = staticmethod(check_ties_without_bounds)

    @adds_arguments(_LabelComparison.__init__)
    def __init__(self, k: None = None, **arguments: Unpack[RankingArguments]) -> None:
        check_no_cutoff(k)
        super().__init__(**arguments)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        (labels, _), (scores, tied) = self._mean_ranks(lists)
        ordered, ordered_or_tied, by_label = item_pair_weights(
            backend.where(lists.mask, -labels, math.inf),
            backend.where(lists.mask, -scores, -math.inf),
            *(lists.mask, None, lists.dtype),
        )
        untied = backend.where(lists.mask, lists.sizes[:, None] - tied, 0.0)
        difference = ordered + ordered_or_tied - by_label
        return _compute_correlation(difference, by_label, total(untied) / 2.0)

    def _mean_ranks(self, lists: JudgedLists) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the ranks by label, then the ranks by score, each with tie counts.

        Tied items have the mean of their ranks. Items that were not retrieved are tied.
        A tie count is the number of items that are tied at a rank.
        """
        labels = backend.where(lists.mask, self._get_labels(lists.lists), -math.inf)
        for values in (labels, flush_subnormals(lists.scores)):
            above, tied = count_above_and_tied(values, values, lists.dtype)
            # Padding has the score of items that were not retrieved: don't count it.
            tied = backend.minimum(tied, lists.sizes[:, None] - above)
            yield above + (tied + 1.0) / 2.0, tied


@keras.saving.register_keras_serializable(package="keras_rank")
class SpearmanCorrelation(KendallTau):
    """Computes the mean of Spearman's rank correlation over lists.

    `rho = sum(x * y) / sqrt(sum(x**2) * sum(y**2))`

    where x and y are the ranks of an item by label and by score, each minus its mean.
    Tied items have the mean of their ranks. Items that were not retrieved are tied. If
    all scores of a list are tied, its value is 0, as expected by chance. The result is
    between -1 and 1.

    Args:
        k: must be `None`. All ranks count.
        shuffle_ties: as for `keras_rank.metrics.KendallTau`.
        seed: as for `keras_rank.metrics.KendallTau`.
        empty_value: must be `None`. A list whose labels are all equal is left out of
            the mean.
        empty_weight: as for `keras_rank.metrics.PairwiseAccuracy`.
        relevance_threshold: as for `keras_rank.metrics.PairwiseAccuracy`.
        sparse_labels: as for `keras_rank.metrics.KendallTau`.
        name: str. Defaults to `spearman_correlation`.
        **arguments: as for `keras_rank.metrics.RankingMetric`: list_weight, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.SpearmanCorrelation()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.3162'

    Reference:
        Spearman, "The proof and measurement of association between two things",
        American Journal of Psychology 15(1), 1904.
    """

    base_name = "spearman_correlation"

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        middle = (lists.sizes[:, None] + 1.0) / 2.0
        x, y = (
            backend.where(lists.mask, ranks - middle, 0.0)
            for ranks, _ in self._mean_ranks(lists)
        )
        return _compute_correlation(total(x * y), total(x * x), total(y * y))


def _compute_correlation(
    covariance: Tensor, label_variance: Tensor, score_variance: Tensor
) -> Tensor:
    """Divides the covariance by the root of both variances. Returns 0 if one is 0."""
    # The product of the variances could be infinite, so divide by one at a time.
    value = ratio(covariance, label_variance)
    value = value * ratio(label_variance, score_variance) ** 0.5
    return backend.clip(value, -1.0, 1.0)
