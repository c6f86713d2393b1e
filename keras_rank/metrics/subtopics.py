"""Metrics of diversity, for items that are relevant to some subtopics of a query."""

import contextlib
from typing import Any, Unpack

import keras
from keras import ops

from keras_rank.arguments import (
    DENOMINATORS,
    DISCOUNTS,
    Function,
    adds_arguments,
    check_choice,
    check_share,
    check_subtopic_normalizer,
    check_subtopic_weights,
    check_ties_without_bounds,
    resolve_discount,
    serialize,
)
from keras_rank.arrays.arithmetic import max_over_axis, ratio, total
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import compute_discounts, reciprocal
from keras_rank.formulas import (
    count_slots,
    has_relevant,
    max_subtopic_gain,
    mean_over_subtopics,
    relevance_by_rank,
    remaining_share,
    weighted_relevance,
    weighted_relevance_by_rank,
)
from keras_rank.metrics.base import RankingArguments, RankingMetric
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists

# The largest relative difference at which two gains in the ideal order, or two sums of
# gains, count as equal.
_ROUNDING = 1e-6


@keras.saving.register_keras_serializable(package="keras_rank")
class AlphaNDCG(RankingMetric):
    """Computes the mean normalized alpha-DCG (alpha-nDCG).

    `alpha-nDCG@k = alpha-DCG@k / alpha-DCG@k of a greedy order`

    where the greedy order takes the item with the largest gain at each rank. If gains
    are equal, it takes the earlier item. The greedy order includes items that were not
    retrieved. The best order is too expensive to compute. If it differs from the greedy
    order, the value of a list may exceed 1. A list without relevant items has the value
    `empty_value`.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if its
    labels are below 0 for all subtopics, or NaN for any subtopic. Labels of shape
    `(batch, list_size)` belong to a single subtopic.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        alpha: number between 0 and 1. Each relevant item reduces the gain of all
            relevant items below it by this share, separately for each subtopic.
            Defaults to 0.5.
        rank_discount_fn: function from ranks to discounts that do not increase with
            rank, or `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        name: str. Defaults to `alpha_ndcg_at_k`, or `alpha_ndcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.AlphaNDCG(k=2)
    >>> metric.update_state([[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.8066'

    Reference:
        Clarke et al., "Novelty and diversity in information retrieval evaluation",
        SIGIR 2008.
    """

    base_name = "alpha_ndcg"
    takes_subtopics = True
    _check_ties = staticmethod(check_ties_without_bounds)

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        alpha: float = 0.5,
        rank_discount_fn: str | Function = "log2",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.alpha = check_share("alpha", alpha)
        self.rank_discount_fn = resolve_discount(rank_discount_fn, k)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        discounts = compute_discounts(self.rank_discount_fn, ranking.ranks)
        ideal = total(self._get_ideal_gains(lists, ranking) * discounts)
        value = ratio(self._sum_gains(lists, ranking, discounts), ideal)
        # The sums of the two orders are rounded differently, so the quotient of equal
        # sums can slightly exceed 1.
        exceeds = value > 1.0 + _ROUNDING
        return backend.where(exceeds, value, backend.minimum(value, 1.0))

    def _sum_gains(
        self, lists: JudgedLists, ranking: Ranking, discounts: Tensor
    ) -> Tensor:
        """Returns the discounted gains, summed over all ranks and subtopics."""
        relevant = weighted_relevance_by_rank(lists, ranking)
        remaining = remaining_share(lists, ranking, self.alpha)
        return total(total(relevant * remaining * discounts))

    def _get_ideal_gains(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # The gains are computed once, up to the largest cutoff of all metrics.
        key = _compute_greedy_gains, self.alpha, ranking.uncut, ranking.largest_k
        settings = self.alpha, ranking.ideal_depth
        gains = backend.compute_once(
            lists._cache, key, _compute_greedy_gains, lists, *settings
        )
        return gains if ranking.is_largest else gains[:, : ranking.cutoff]

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "alpha": self.alpha}
        discount = serialize("rank_discount_fn", self.rank_discount_fn, DISCOUNTS)
        return {**config, "rank_discount_fn": discount}


def _compute_greedy_gains(lists: JudgedLists, alpha: float, depth: int) -> Tensor:
    """Returns the gains of the greedy order, of shape `(batch, depth)`.

    The order takes the item with the largest gain next. Of equal gains, it takes the
    first item.
    """
    relevance = weighted_relevance(lists)
    rank = ops.arange(depth, dtype="int32")
    zeros = 0.0 * relevance[:, 0]
    state = (
        zeros[:, :1] + ops.cast(0 * rank, relevance.dtype),
        ops.ones_like(relevance[:, :, 0]),
        zeros + 1.0,
        ops.transpose(1.0 - alpha * lists.relevance_by_subtopic, (0, 2, 1)),
        *(relevance, rank),
    )
    is_traced = backend.is_compiling()
    with contextlib.nullcontext() if is_traced else backend.full_precision():
        return ops.fori_loop(0, depth, _take_next_item, state)[0]


# A module-level function, as eager JAX would compile a closure again at each call.
def _take_next_item(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Takes the item with the largest gain, and reduces the gains of its subtopics."""
    best_gains, shares, is_free, share_after_item, relevance, rank = state
    gains = _multiply(shares, relevance) * is_free
    best = max_over_axis(gains, keepdims=True)
    is_chosen = backend.first_true(gains >= best * (1.0 - _ROUNDING), gains)
    best_gains = backend.where(rank == i, best, best_gains)
    shares = shares * _multiply(is_chosen, share_after_item)
    is_free = is_free - is_chosen
    return best_gains, shares, is_free, share_after_item, relevance, rank


def _multiply(row: Tensor, matrix: Tensor) -> Tensor:
    """Returns the product of a row and a matrix for each list."""
    if backend.is_compiling():
        # Compilers fuse the sum. They can't trace `full_precision`, as `matmul` needs.
        return ops.sum(row[:, :, None] * matrix, axis=1)
    return backend.get_library(row).matmul(row[:, None], matrix)[:, 0]


@keras.saving.register_keras_serializable(package="keras_rank")
class AlphaDCG(AlphaNDCG):
    """Computes the mean alpha-DCG, the DCG that prefers new subtopics.

    `alpha-DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `gain(r) = sum((1 - alpha)**above(t))` over the subtopics t to which the item
    at rank r is relevant, and `above(t)` is the number of higher-ranked items that are
    also relevant to t. `list_weight` is the weight of the list in the mean over lists:
    the mean weight of the items that are relevant to a subtopic, unless the argument
    `list_weight` says otherwise. Without weights, it is 1. The result is 0 or more. A
    list without relevant items has the value `empty_value`.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if its
    labels are below 0 for all subtopics, or NaN for any subtopic. Labels of shape
    `(batch, list_size)` belong to a single subtopic.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        alpha: number between 0 and 1. Each relevant item reduces the gain of all
            relevant items below it by this share, separately for each subtopic.
            Defaults to 0.5.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        normalizer: the divisor of the sum. `None`: 1 (TF-Ranking). `"maximum"`: the sum
            for k items that are relevant to all subtopics of the list. Subtopics
            without relevant items are ignored (ndeval). Defaults to `None`.
        name: str. Defaults to `alpha_dcg_at_k`, or `alpha_dcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.AlphaDCG(k=2)
    >>> metric.update_state([[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '1.3155'

    Reference:
        Clarke et al., "Novelty and diversity in information retrieval evaluation",
        SIGIR 2008.
    """

    base_name = "alpha_dcg"

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        alpha: float = 0.5,
        rank_discount_fn: str | Function = "log2",
        normalizer: str | None = None,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, alpha=alpha, rank_discount_fn=rank_discount_fn, **arguments)
        self.normalizer = check_subtopic_normalizer(normalizer, self.k)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        discounts = compute_discounts(self.rank_discount_fn, ranking.ranks)
        gain = self._sum_gains(lists, ranking, discounts)
        value = ratio(gain, lists.list_weights)
        if self.normalizer is None:
            return value
        subtopics = total(has_relevant(lists))
        settings = self.alpha, self.rank_discount_fn, self.k
        max_gain = max_subtopic_gain(lists, ranking, *settings)
        return ratio(value, subtopics * max_gain)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "normalizer": self.normalizer}


@keras.saving.register_keras_serializable(package="keras_rank")
class ExpectedReciprocalRankIA(RankingMetric):
    """Computes the mean intent-aware expected reciprocal rank (ERR-IA).

    `ERR-IA@k = mean(sum(stop(r) / r for r in 1..k) for each subtopic)`

    where `stop(r) = relevant(r) * alpha * (1 - alpha)**above(r)` is the probability
    that a user interested in the subtopic stops at rank r. A relevant item satisfies
    the user with probability `alpha`, and `above(r)` is the number of relevant items
    above rank r. The mean is over the subtopics with relevant items. The result is
    between 0 and 1. A list without relevant items has the value `empty_value`.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if its
    labels are below 0 for all subtopics, or NaN for any subtopic. Labels of shape
    `(batch, list_size)` belong to a single subtopic.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        alpha: number between 0 and 1. The probability that a relevant item satisfies
            the user. Defaults to 0.5.
        subtopic_weights: list of numbers. The weight of each subtopic in the mean.
            Defaults to `None`: all are 1.
        normalizer: the divisor of the mean. `None`: 1. `"maximum"`: the mean for k
            items that are relevant to all subtopics (ndeval). Defaults to `None`.
        name: str. Defaults to `err_ia_at_k`, or `err_ia` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.ExpectedReciprocalRankIA(k=2)
    >>> metric.update_state([[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.3125'

    References:
        Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
        relevance", CIKM 2009.
        Clarke, Craswell, Soboroff and Ashkan, "A comparative analysis of cascade
        measures for novelty and diversity", WSDM 2011.
    """

    base_name = "err_ia"
    takes_subtopics = True
    _check_ties = staticmethod(check_ties_without_bounds)

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        alpha: float = 0.5,
        subtopic_weights: Any = None,
        normalizer: str | None = None,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.alpha = check_share("alpha", alpha)
        self.subtopic_weights = check_subtopic_weights(subtopic_weights)
        self.normalizer = check_subtopic_normalizer(normalizer, self.k)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        shares = remaining_share(lists, ranking, self.alpha)
        values = total(relevance_by_rank(lists, ranking) * shares / ranking.ranks)
        if self.normalizer is None:
            values = self.alpha * values
        else:
            # The dividend and the divisor would have the factor `alpha`: it cancels.
            settings = self.alpha, reciprocal, self.k
            max_gain = max_subtopic_gain(lists, ranking, *settings)
            values = ratio(values, ops.reshape(max_gain, (-1, 1)))
        return mean_over_subtopics(lists, values, self.subtopic_weights)

    def get_config(self) -> dict[str, Any]:
        arguments = {"alpha": self.alpha, "subtopic_weights": self.subtopic_weights}
        return {**super().get_config(), **arguments, "normalizer": self.normalizer}


@keras.saving.register_keras_serializable(package="keras_rank")
class PrecisionIA(RankingMetric):
    """Computes the mean intent-aware precision (P-IA).

    `P-IA@k = mean(relevant items in the top k / slots for each subtopic)`

    where the mean is over the subtopics with relevant items. The result is between 0
    and 1. A list without relevant items has the value `empty_value`.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if its
    labels are below 0 for all subtopics, or NaN for any subtopic. Labels of shape
    `(batch, list_size)` belong to a single subtopic.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        denominator: the number of slots. `"available"`: k, or the number of items of
            the list if that is less (TF-Ranking). `"k"`: always k (ndeval).
            `"retrieved"`: k, or the number of retrieved items if that is less. Defaults
            to `"available"`.
        subtopic_weights: list of numbers. The weight of each subtopic in the mean.
            Defaults to `None`: all are 1.
        name: str. Defaults to `precision_ia_at_k`, or `precision_ia` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.PrecisionIA(k=2)
    >>> metric.update_state([[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Clarke, Craswell and Soboroff, "Overview of the TREC 2009 Web track", 2009.
    """

    base_name = "precision_ia"
    takes_subtopics = True
    _check_ties = staticmethod(check_ties_without_bounds)

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        denominator: str = "available",
        subtopic_weights: Any = None,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.denominator = check_choice("denominator", denominator, DENOMINATORS)
        self.subtopic_weights = check_subtopic_weights(subtopic_weights)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        hits = total(relevance_by_rank(lists, ranking))
        slots = count_slots(lists, self.k, self.denominator)[:, None]
        return mean_over_subtopics(lists, ratio(hits, slots), self.subtopic_weights)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "denominator": self.denominator}
        return {**config, "subtopic_weights": self.subtopic_weights}


@keras.saving.register_keras_serializable(package="keras_rank")
class SubtopicRecall(RankingMetric):
    """Computes the mean share of the subtopics that the top k items cover.

    `SubtopicRecall@k = subtopics with a relevant item in the top k / subtopics`

    where subtopics without relevant items do not count. The result is between 0 and 1.
    A list without relevant items has the value `empty_value`.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if its
    labels are below 0 for all subtopics, or NaN for any subtopic. Labels of shape
    `(batch, list_size)` belong to a single subtopic.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        name: str. Defaults to `subtopic_recall_at_k`, or `subtopic_recall` without a
            cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.SubtopicRecall(k=2)
    >>> metric.update_state([[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Zhai, Cohen and Lafferty, "Beyond independent relevance: methods and evaluation
        metrics for subtopic retrieval", SIGIR 2003.
    """

    base_name = "subtopic_recall"
    takes_subtopics = True
    _check_ties = staticmethod(check_ties_without_bounds)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # A subtopic has no gain left after its first hit if `alpha` is 1.
        first_hits = relevance_by_rank(lists, ranking) * remaining_share(
            lists, ranking, 1.0
        )
        return mean_over_subtopics(lists, total(first_hits), None)
