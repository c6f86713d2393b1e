"""Metrics of binary relevance, for which an item is relevant or irrelevant."""

import re
from typing import Any, Unpack

import keras
from keras import ops

from keras_rank.arguments import (
    DENOMINATORS,
    GAINS,
    NORMALIZERS,
    RECALL_NORMALIZERS,
    Function,
    adds_arguments,
    check_above_zero,
    check_choice,
    check_flag,
    check_fraction,
    check_graded,
    check_ties_without_bounds,
    serialize,
)
from keras_rank.arrays.arithmetic import ratio, total
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import compute_discounts, geometric
from keras_rank.formulas import (
    count_slots,
    first_hit,
    group_at_cutoff,
    hits_above,
    hits_above_group,
    hypergeometric,
    mean_to_relevant_count,
    possible_counts,
    require_gains,
    require_grades,
    share_of_ideal,
    values_at_cutoff,
)
from keras_rank.gains import ByLabel
from keras_rank.lists.relevance import (
    Relevance,
    absolute_gains,
    below_threshold,
    from_gain,
    from_threshold,
)
from keras_rank.metrics.base import RankingArguments, RankingMetric
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists


@keras.saving.register_keras_serializable(package="keras_rank")
class MeanAveragePrecision(RankingMetric):
    """Computes the mean average precision.

    `AP@k = sum(weight(r) * relevant(r) * precision@r for r in 1..k) / normalizer`

    where `relevant(r)` is 1 if the item at rank r is relevant, else 0. The result is
    between 0 and 1. A list without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        normalizer: the divisor of the sum. `"total"`: the sum of the weights of all
            relevant items. Without weights, it is the number R of relevant items
            (trec_eval, keras-rs, TF-Ranking). `"clipped"`: the sum of the k largest of
            these weights. Without weights, it is min(R, k) (ignite, Kaggle).
            `"retrieved"`: the number of relevant items in the top k (torchmetrics). In
            this case, the terms are not weighted, and `shuffle_ties` must not be
            `"worst"` or `"best"`. Defaults to `"total"`.
        name: str. Defaults to `map_at_k`, or `map` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.MeanAveragePrecision()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.7500'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "map"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        normalizer: str = "total",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        self.normalizer = check_choice("normalizer", normalizer, NORMALIZERS)
        if self.normalizer == "retrieved":
            # One more relevant item in the top k may reduce the mean of precisions.
            self._check_ties = check_ties_without_bounds
        super().__init__(k, **arguments)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        relevant = lists.relevance_by_rank(ranking)
        # The expected number of hits up to each rank that has a relevant item.
        hits = 1.0 + hits_above(ranking, relevant)
        if self.normalizer == "retrieved":
            return _mean_precision_at_hits(ranking, relevant, hits)
        precisions = hits / ranking.ranks
        clipped = self.normalizer == "clipped"
        divisor = (
            total(lists.ideal_gains(ranking)) if clipped else lists.relevant_weight
        )
        value = ratio(total(lists.gains_by_rank(ranking) * precisions), divisor)
        # The sums may differ by a rounding error, which could give a value above 1.
        return backend.minimum(value, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "normalizer": self.normalizer}


def _mean_precision_at_hits(
    ranking: Ranking, relevant: Tensor, hits_to_rank: Tensor
) -> Tensor:
    """Returns the mean precision at the relevant ranks, averaged over tie orders.

    Only ties at the cutoff change the number of hits. Let the tied group at the cutoff
    have m items, c of which are relevant, and t ranks up to the cutoff. The number x of
    relevant items at these ranks has a hypergeometric distribution. Given x, each of
    these ranks is relevant with probability x / t, and the sum of their precisions is
    the sum for a tied group of t items.
    """
    if not ranking.averages:
        return ratio(total(relevant * hits_to_rank / ranking.ranks), total(relevant))
    ranks, group = ranking.ranks, group_at_cutoff(ranking, relevant)
    above = total(backend.where(group.holds, 0.0, relevant))[:, None]
    sum_above = total(backend.where(group.holds, 0.0, relevant * hits_to_rank / ranks))
    per_hit = total(backend.where(group.holds, 1.0 / ranks, 0.0))[:, None]
    pairs = (group.place - 1.0) / ranks
    per_pair = total(backend.where(group.holds, pairs, 0.0))[:, None]
    hits, slots = possible_counts(ranking), group.slots
    sum_in_group = hits * (1.0 + above) * ratio(per_hit, slots)
    sum_in_group += hits * (hits - 1.0) * ratio(per_pair, slots * (slots - 1.0))
    values = ratio(sum_above[:, None] + sum_in_group, above + hits)
    chances = hypergeometric(hits, group.relevant, group.size, slots)
    return backend.minimum(total(chances * values), 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
class MeanReciprocalRank(RankingMetric):
    """Computes the mean reciprocal rank of the first relevant item.

    `RR@k = 1 / rank of the first relevant item`

    or 0 if no relevant item is in the top k. The result is between 0 and 1. A list
    without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        name: str. Defaults to `mrr_at_k`, or `mrr` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.MeanReciprocalRank()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '1.0000'

    References:
        Voorhees, "The TREC-8 question answering track report", 1999.
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "mrr"
    takes_sparse_labels = True

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return total(first_hit(lists, ranking) / ranking.ranks)


@keras.saving.register_keras_serializable(package="keras_rank")
class PrecisionAtK(RankingMetric):
    """Computes the mean share of the top k items that are relevant.

    `P@k = relevant items in the top k / denominator`

    The result is between 0 and 1. A list without relevant items has the value
    `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        denominator: `"available"`: k, or the size of the list if it is less than k
            (keras-rs). `"k"`: always k, as if short lists were padded with irrelevant
            items (trec_eval). `"retrieved"`: k, or the number of retrieved items if it
            is less than k (LensKit, rax). Defaults to `"available"`.
        name: str. Defaults to `precision_at_k`, or `precision` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.PrecisionAtK(k=2)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "precision"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        denominator: str = "available",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.denominator = check_choice("denominator", denominator, DENOMINATORS)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        slots = count_slots(lists, self.k, self.denominator)
        return ratio(lists.hits(ranking), slots)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "denominator": self.denominator}


@keras.saving.register_keras_serializable(package="keras_rank")
class RecallAtK(RankingMetric):
    """Computes the mean share of the relevant items that are in the top k.

    `R@k = relevant items in the top k / normalizer`

    The result is between 0 and 1. A list without relevant items has the value
    `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        normalizer: the divisor of the number of hits. `"total"`: the number R of
            relevant items. `"clipped"`: min(R, k), so that a list with more than k
            relevant items can have the value 1 (BEIR, LensKit). Defaults to `"total"`.
        name: str. Defaults to `recall_at_k`, or `recall` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.RecallAtK(k=2)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "recall"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        normalizer: str = "total",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.normalizer = check_choice("normalizer", normalizer, RECALL_NORMALIZERS)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        relevant = lists.number_relevant
        if self.normalizer == "clipped":
            relevant = backend.minimum(relevant, ranking.cutoff)
        return ratio(lists.hits(ranking), relevant)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "normalizer": self.normalizer}


@keras.saving.register_keras_serializable(package="keras_rank")
class HitRate(RankingMetric):
    """Computes the share of lists with a relevant item in the top k.

    `HR@k = 1 if any item in the top k is relevant, else 0`

    The hit rate is also known as success@k. If each list has one relevant item, it is
    the top-k accuracy. The value of a list is 0 or 1. If ties are averaged, the value
    may lie in between. A list without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        name: str. Defaults to `hit_rate_at_k`, or `hit_rate` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.HitRate(k=2)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '1.0000'
    """

    base_name = "hit_rate"
    takes_sparse_labels = True

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return backend.minimum(total(first_hit(lists, ranking)), 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
class FBetaAtK(RankingMetric):
    """Computes the mean of the weighted harmonic means of precision and recall at k.

    `F@k = (1 + beta**2) * P@k * R@k / (beta**2 * P@k + R@k)`

    or 0 if both are 0. The result is between 0 and 1. A list without relevant items has
    the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        beta: float above 0. The importance of recall relative to precision. Defaults to
            2.0.
        denominator: the denominator of precision. `"available"`: k, or the size of the
            list if it is less than k. `"k"`: always k. `"retrieved"`: k, or the number
            of retrieved items if it is less than k. Defaults to `"available"`.
        name: str. Defaults to `f_beta_at_k`, or `f_beta` without a cutoff. The name
            includes a `beta` other than 2: `f_beta_0_5_at_k`.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.FBetaAtK(k=1)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5556'

    Reference:
        van Rijsbergen, "Information retrieval", chapter 7, 1979.
    """

    base_name = "f_beta"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        beta: float = 2.0,
        denominator: str = "available",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        # The default name, which `super().__init__` sets, contains `beta`.
        self.beta = check_above_zero("beta", beta)
        super().__init__(k, **arguments)
        self.denominator = check_choice("denominator", denominator, DENOMINATORS)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # F is `hits / (share * slots + (1 - share) * relevant items)`, where `share` is
        # `1 / (1 + beta**2)`. F is linear in the hits, so the mean over ties is exact.
        slots = count_slots(lists, self.k, self.denominator)
        relevant = lists.number_relevant
        # Rounding never puts this form of the mean below `min(relevant, slots)`.
        mean = relevant + (slots - relevant) * (1.0 / (1.0 + self.beta**2))
        return ratio(lists.hits(ranking), mean)

    def get_config(self) -> dict[str, Any]:
        arguments = {"beta": self.beta, "denominator": self.denominator}
        return {**super().get_config(), **arguments}

    def _default_name(self) -> str:
        name = super()._default_name()
        if self.beta == 2.0:
            return name
        beta = re.sub(r"\W", "_", f"{self.beta:g}")
        return name.replace("f_beta", f"f_beta_{beta}")


@keras.saving.register_keras_serializable(package="keras_rank")
class F1AtK(FBetaAtK):
    """Computes the mean of the harmonic means of precision and recall at k.

    `F1@k = 2 * P@k * R@k / (P@k + R@k)`

    or 0 if both are 0. The result is between 0 and 1. A list without relevant items has
    the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        denominator: the denominator of precision. `"available"`: k, or the size of the
            list if it is less than k. `"k"`: always k. `"retrieved"`: k, or the number
            of retrieved items if it is less than k. Defaults to `"available"`.
        name: str. Defaults to `f1_at_k`, or `f1` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.F1AtK(k=2)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "f1"

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        denominator: str = "available",
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, beta=1.0, denominator=denominator, **arguments)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["beta"]
        return config


@keras.saving.register_keras_serializable(package="keras_rank")
class RPrecision(RankingMetric):
    """Computes the mean precision at R, the number of relevant items of a list.

    `R-precision = relevant items in the top R / R`

    With a cutoff below R, the cutoff replaces both R. The result is between 0 and 1. A
    list without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        name: str. Defaults to `r_precision_at_k`, or `r_precision` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.RPrecision()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Manning, Raghavan and Schütze, "Introduction to information retrieval",
        section 8.4, 2008.
    """

    base_name = "r_precision"
    takes_sparse_labels = True

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        relevant = lists.relevance_by_rank(ranking)
        return mean_to_relevant_count(lists, ranking, relevant)


@keras.saving.register_keras_serializable(package="keras_rank")
class MeanAveragePrecisionAtR(RankingMetric):
    """Computes the mean average precision at R, the number of relevant items of a list.

    `AP@R = sum(relevant(r) * precision@r for r in 1..R) / R`

    With a cutoff below R, the cutoff replaces both R. The result is between 0 and 1. A
    list without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        name: str. Defaults to `map_at_r_at_k`, or `map_at_r` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, sparse_labels,
            dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.MeanAveragePrecisionAtR()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Musgrave, Belongie and Lim, "A metric learning reality check", ECCV 2020.
    """

    base_name = "map_at_r"
    takes_sparse_labels = True

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        relevant = lists.relevance_by_rank(ranking)
        precisions = (1.0 + hits_above(ranking, relevant)) / ranking.ranks
        mean = mean_to_relevant_count(lists, ranking, relevant * precisions)
        # The rounded sum may exceed 1 if ties are averaged.
        return backend.minimum(mean, 1.0)


@keras.saving.register_keras_serializable(package="keras_rank")
class RankBiasedPrecision(RankingMetric):
    """Computes the mean rank-biased precision.

    `RBP@k = (1 - p) * sum(relevant(r) * p**(r - 1) for r in 1..k)`

    where p, the persistence, is the probability that a user continues to the next rank.
    With a `gain_fn`, `gain(label) / gain(max_grade)` replaces `relevant(r)`. The result
    is between 0 and 1. Unless normalized, it is below 1, up to rounding. A list without
    relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        persistence: float between 0 and 1. Defaults to 0.8.
        normalized: bool. Whether the sum is divided by the sum of the ideal order, as
            in NDCG. The ideal order then has the value 1. Defaults to `False`.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Defaults to `None`: relevance is binary.
        max_grade: number above 0. The highest possible label. It is required with a
            `gain_fn`. A larger label raises an error in eager code. In compiled code,
            values are clipped to 1. Defaults to `None`.
        relevance_threshold: float. Labels below the threshold have a gain of 0.
            Defaults to 1.0 without a `gain_fn`, and to `None` with one.
        name: str. Defaults to `rbp_at_k`, or `rbp` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.RankBiasedPrecision()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.3024'

    Reference:
        Moffat and Zobel, "Rank-biased precision for measurement of retrieval
        effectiveness", ACM TOIS 27(1), 2008.
    """

    base_name = "rbp"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        persistence: float = 0.8,
        normalized: bool = False,
        gain_fn: str | Function | None = None,
        max_grade: float | None = None,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        if gain_fn is not None:
            arguments.setdefault("relevance_threshold", None)
        super().__init__(k, **arguments)
        self.gain_fn, self.max_grade = check_graded(gain_fn, max_grade)
        self.persistence = check_fraction("persistence", persistence)
        self.normalized = check_flag("normalized", normalized)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        if self.max_grade is not None:
            require_grades(lists, self.max_grade)
        if isinstance(self.gain_fn, ByLabel):
            require_gains(lists, self.gain_fn, self.relevance_threshold)
        relevant = lists.relevance_by_rank(ranking)
        discount = geometric(self.persistence)
        if self.normalized:
            ideal = ranking.best(lists.relevance)
            return share_of_ideal(relevant, ideal, ranking, discount)
        discounts = compute_discounts(discount, ranking.ranks)
        value = (1.0 - self.persistence) * total(relevant * discounts)
        if self.gain_fn is not None:
            highest = 0.0 * lists.highest_labels + self.max_grade
            largest = absolute_gains(highest, None, self.gain_fn, None)
            value = ratio(value, largest[:, 0])
        # The rounded sum over many relevant items may exceed 1.
        return backend.minimum(value, 1.0)

    @property
    def _relevance(self) -> Relevance:
        if self.gain_fn is None:
            # torch.compile can't trace a property of `super()`.
            return from_threshold(self.relevance_threshold)
        return from_gain(self.gain_fn, self.relevance_threshold)

    def get_config(self) -> dict[str, Any]:
        gain = self.gain_fn
        return {
            **super().get_config(),
            "persistence": self.persistence,
            "normalized": self.normalized,
            "gain_fn": None if gain is None else serialize("gain_fn", gain, GAINS),
            "max_grade": self.max_grade,
        }


@keras.saving.register_keras_serializable(package="keras_rank")
class BPref(RankingMetric):
    """Computes the mean binary preference (bpref).

    `bpref = sum(1 - min(irrelevant above, M) / M for relevant items) / R`

    where R is the number of relevant items, N is the number of irrelevant items, and M
    is min(R, N). An item without a judgment has the label -1: it is padding and has no
    rank. A relevant item that was not retrieved, or is below rank k, adds 0 to the sum.
    The result is between 0 and 1. A list without relevant items has the value
    `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        sparse_labels: must be `False`. The metric requires the labels of all items.
        name: str. Defaults to `bpref_at_k`, or `bpref` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, relevance_threshold, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.BPref()
    >>> metric.update_state([[0, 2, -1, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Buckley and Voorhees, "Retrieval evaluation with incomplete information",
        SIGIR 2004; min(R, N) instead of R as in trec_eval.
    """

    base_name = "bpref"

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        num_relevant = lists.number_relevant[:, None]
        limit = backend.minimum(num_relevant, lists.sizes[:, None] - num_relevant)

        def credit(above: Tensor, tied: Tensor) -> Tensor:
            """Returns the mean of `1 - min(above + j, M) / M` over j in 0..tied."""
            terms = backend.maximum(backend.minimum(limit - above, tied + 1.0), 0.0)
            missing = terms * (limit - above) - terms * (terms - 1.0) / 2.0
            return backend.where(limit > 0.0, ratio(missing / (tied + 1.0), limit), 1.0)

        relevant = lists.relevance_by_rank(ranking)
        if not ranking.averages:
            above = ranking.ranks - 1.0 - hits_above(ranking, relevant)
            untied = credit(above, ops.zeros_like(above))
            return ratio(total(relevant * untied), num_relevant[:, 0])
        # The number of irrelevant items of a tied group that are above a relevant item
        # of the group is uniformly distributed: 0, 1, ... or all of them.
        hits = hits_above_group(ranking, relevant)
        above = ranking.ranks - ranking.places - hits
        group_relevant = ops.round(relevant * ranking.group_sizes)
        credits = credit(above, ranking.group_sizes - group_relevant)
        # The tied group at the cutoff has t ranks up to the cutoff. These hold x
        # relevant and t - x irrelevant items. The distribution of x is hypergeometric.
        group = group_at_cutoff(ranking, relevant)
        credit_above = total(backend.where(group.holds, 0.0, relevant * credits))
        above, x = values_at_cutoff(ranking, above), possible_counts(ranking)
        chances = hypergeometric(x, group.relevant, group.size, group.slots)
        tied = backend.maximum(group.slots - x, 0.0)
        credit_in_group = total(chances * x * credit(above, tied))
        return ratio(credit_above + credit_in_group, num_relevant[:, 0])


@keras.saving.register_keras_serializable(package="keras_rank")
class FallOut(RankingMetric):
    """Computes the mean share of the irrelevant items that are in the top k.

    `fall-out@k = irrelevant items in the top k / irrelevant items`

    Fall-out is the false positive rate: lower is better. The result is between 0 and 1.
    A list without irrelevant items counts as empty and has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        empty_value: float. The value of a list that has items, but no irrelevant ones.
            Defaults to 0.0. `None` leaves it out of the mean.
        sparse_labels: must be `False`. The metric requires the labels of all items.
        name: str. Defaults to `fall_out_at_k`, or `fall_out` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_weight, list_weight, relevance_threshold, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.FallOut(k=2)
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.5000'

    Reference:
        Manning, Raghavan and Schütze, "Introduction to information retrieval",
        section 8.4, 2008.
    """

    base_name = "fall_out"
    higher_is_better = False

    @property
    def _relevance(self) -> Relevance:
        return below_threshold(self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return ratio(lists.hits(ranking), lists.number_relevant)
