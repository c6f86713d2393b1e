"""Metrics of graded relevance, discounted by rank."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_rank.arguments import (
    DISCOUNTS,
    GAINS,
    Function,
    adds_arguments,
    check_grade,
    resolve,
    resolve_discount,
    serialize,
)
from keras_rank.arrays.arithmetic import ratio, shift_right, total
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import compute_discounts
from keras_rank.formulas import (
    first_success,
    require_gains,
    require_grades,
    share_of_ideal,
)
from keras_rank.gains import ByLabel
from keras_rank.lists.relevance import Relevance, from_gain, from_gain_ratio
from keras_rank.metrics.base import RankingMetric, SharedArguments
from keras_rank.ranking.base import Ranking, TiedItems
from keras_rank.ranking.judged_lists import JudgedLists


@keras.saving.register_keras_serializable(package="keras_rank")
class DCG(RankingMetric):
    """Computes the mean discounted cumulative gain.

    `DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `list_weight` is the weight of the list in the mean over lists: the mean of
    the item weights, weighted by gain, unless the argument `list_weight` says
    otherwise. Without weights, it is 1. The result is 0 or more. A list without
    relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Gains are clipped to the range 0 to 2**64. Defaults to
            `"exponential"`.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        relevance_threshold: float. Labels below the threshold have a gain of 0.
            Defaults to `None`.
        name: str. Defaults to `dcg_at_k`, or `dcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.DCG(k=2)
    >>> metric.update_state([[3, 0, 1], [0, 2, 0]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '4.4464'

    Reference:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
    """

    base_name = "dcg"
    takes_sparse_labels = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        gain_fn: str | Function = "exponential",
        rank_discount_fn: str | Function = "log2",
        empty_value: float | None = 0.0,
        relevance_threshold: float | None = None,
        **arguments: Unpack[SharedArguments],
    ) -> None:
        super().__init__(
            k,
            empty_value=empty_value,
            relevance_threshold=relevance_threshold,
            **arguments,
        )
        self.gain_fn = resolve("gain_fn", gain_fn, GAINS)
        self.rank_discount_fn = resolve_discount(rank_discount_fn, k)

    @property
    def _relevance(self) -> Relevance:
        return from_gain(self.gain_fn, self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        if isinstance(self.gain_fn, ByLabel):
            require_gains(lists, self.gain_fn, self.relevance_threshold)
        discounts = compute_discounts(self.rank_discount_fn, ranking.ranks)
        gain = total(lists.gains_by_rank(ranking) * discounts)
        return ratio(gain, lists.list_weights)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "gain_fn": serialize("gain_fn", self.gain_fn, GAINS),
            "rank_discount_fn": serialize(
                "rank_discount_fn", self.rank_discount_fn, DISCOUNTS
            ),
        }


@keras.saving.register_keras_serializable(package="keras_rank")
class NDCG(DCG):
    """Computes the mean normalized discounted cumulative gain.

    `NDCG@k = DCG@k / ideal DCG@k`

    where the ideal DCG is the DCG of all items in descending order of `weight * gain`,
    including items that were not retrieved. The result is between 0 and 1. A list
    without relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`. Gains
            are clipped to the range 0 to 2**64. If exponential gains would be larger,
            all gains of the list are scaled down, which does not change their ratios.
            Defaults to `"exponential"`.
        rank_discount_fn: function from ranks to discounts that do not increase with
            rank, or `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        relevance_threshold: float. Labels below the threshold have a gain of 0.
            Defaults to `None`.
        name: str. Defaults to `ndcg_at_k`, or `ndcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.NDCG(k=2)
    >>> metric.update_state([[3, 0, 1], [0, 2, 0]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.7741'

    Usage with `compile()`, where the name of the result includes the cutoff:

    ```python
    # If labels of -1 pad the lists, the loss must mask them. "mse" does not.
    model.compile(loss=loss, metrics=[NDCG(k=5), NDCG(k=10)])
    model.fit(x, y, validation_data=(x_val, y_val), callbacks=[
        keras.callbacks.EarlyStopping(monitor="val_ndcg_at_10", patience=3)
    ])
    ```

    References:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """

    base_name = "ndcg"

    @property
    def _relevance(self) -> Relevance:
        return from_gain_ratio(self.gain_fn, self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        if isinstance(self.gain_fn, ByLabel):
            require_gains(lists, self.gain_fn, self.relevance_threshold)
        gains, ideal_gains = lists.gains_by_rank(ranking), lists.ideal_gains(ranking)
        return share_of_ideal(gains, ideal_gains, ranking, self.rank_discount_fn)


@keras.saving.register_keras_serializable(package="keras_rank")
class ExpectedReciprocalRank(RankingMetric):
    """Computes the mean expected reciprocal rank (ERR).

    `ERR@k = sum(stop(r) / r * product(1 - stop(s) for s in 1..r-1) for r in 1..k)`

    where `stop = (2**label - 1) / 2**max_grade` is the probability that the item
    satisfies the user, who then stops. The result is between 0 and 1. A list without
    relevant items has the value `empty_value`.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        max_grade: number above 0 and below 128. The highest possible label. A larger
            label raises an error in eager code and counts as `max_grade` in compiled
            code. Defaults to 4.
        relevance_threshold: float. Labels below the threshold count as 0. Defaults to
            `None`.
        name: str. Defaults to `err_at_k`, or `err` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, list_weight, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.ExpectedReciprocalRank()
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.2002'

    Reference:
        Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
        relevance", CIKM 2009.
    """

    base_name = "err"
    takes_sparse_labels = True
    _is_graded = True

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        max_grade: float = 4.0,
        empty_value: float | None = 0.0,
        relevance_threshold: float | None = None,
        **arguments: Unpack[SharedArguments],
    ) -> None:
        super().__init__(
            k,
            empty_value=empty_value,
            relevance_threshold=relevance_threshold,
            **arguments,
        )
        self.max_grade = check_grade("max_grade", max_grade)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        require_grades(lists, self.max_grade)
        if not ranking.averages:
            by_rank = ranking.take(lists.labels), lists.relevance_by_rank(ranking)
            return total(first_success(self._compute_stops(*by_rank)) / ranking.ranks)
        stops = self._compute_stops(lists.labels, lists.relevance)
        return backend.branch(
            ranking.no_ties,
            lambda: total(first_success(ranking.in_order(stops)) / ranking.ranks),
            lambda: _mean_over_ties(ranking.tied_items(lists.lists, stops), ranking),
        )

    def _compute_stops(self, labels: Tensor, relevance: Tensor) -> Tensor:
        """Returns the probability that the user stops at each item."""
        grades = backend.minimum(labels, self.max_grade) * relevance
        return (2.0**grades - 1.0) / 2.0**self.max_grade

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_grade": self.max_grade}


def _mean_over_ties(items: TiedItems, ranking: Ranking) -> Tensor:
    """Returns the mean of ERR over the orders of tied items.

    A user who reaches a group of m tied items passes its first j items with probability
    `passed[j]`: the mean, over all subsets of size j, of the product of `1 - stop`. So
    the user stops at position j of the group with probability
    `passed[j - 1] - passed[j]`. The loop adds one item after another to its group.
    """
    stops, fixed = items.values, items[:5]
    dtype, zeros = stops.dtype, 0.0 * stops[:, :1]
    last_rank = backend.constant(ranking.cutoff, stops)
    subset_size = ops.arange(ranking.cutoff + 1, dtype="int32")
    subset_size = ops.cast(subset_size, dtype)[None, :]
    # If `has_zeros_first`, each group starts with its items of `stop = 0`, which are
    # not in `items`. Subsets of any size are then passed with probability 1. Otherwise,
    # a group starts without items, so the empty subset is the only one.
    is_passed = subset_size >= 0.0 if items.has_zeros_first else subset_size == 0.0
    passed_at_first = ops.cast(is_passed, dtype) + zeros
    ones = 1.0 + zeros
    start = (zeros[:, 0], ones, ones, passed_at_first)
    state = (*start, subset_size, last_rank, passed_at_first, *fixed)
    return ops.fori_loop(0, items.num_items, _add_next_item, state)[0]


# A module-level function, as eager JAX would compile a closure again at each call.
def _add_next_item(i: Tensor | int, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Adds an item to its group, and the group to the value after the last item.

    If the n-th item is added, a subset of size j contains it with probability j / n:
    `passed[j] = passed[j] (n - j) / n + passed[j - 1] (1 - stop) j / n`.
    """
    value, reached, reached_next, passed, *fixed = state
    subset_size, last_rank, passed_at_first, *items = fixed
    stop, above, group_size, place, is_first = (
        x[:, i : i + 1] if isinstance(i, int) else ops.take(x, i, axis=1)[:, None]
        for x in items
    )
    passed = backend.where(is_first, passed_at_first, passed)
    with_item = backend.minimum(subset_size / place, 1.0)
    passed_without = backend.no_fma(passed * (1.0 - with_item))
    passed_before = shift_right(passed, 1, 0.0)
    passed = passed_without + backend.no_fma(passed_before * (1.0 - stop) * with_item)
    reached_next = reached_next * (1.0 - stop)

    ranks = above + subset_size
    is_rank = ops.logical_and(subset_size >= 1.0, subset_size <= group_size)
    is_rank = ops.logical_and(is_rank, ranks <= last_rank)
    stop_chances = shift_right(passed, 1, 0.0) - passed
    terms = stop_chances / backend.where(is_rank, ranks, 1.0)
    at_end = place == group_size
    added = reached[:, 0] * total(backend.where(is_rank, terms, 0.0))
    value = value + backend.where(at_end[:, 0], added, 0.0)
    reached = backend.where(at_end, reached_next, reached)
    return value, reached, reached_next, passed, *fixed
