"""Metrics of graded relevance as Keras metrics."""

from typing import Any, Unpack

import keras

from keras_rank.arguments import adds_arguments, check_grade
from keras_rank.backends import Tensor
from keras_rank.formulas.graded import (
    discounted_gain,
    expected_reciprocal_of_stop,
    normalized_discounted_gain,
)
from keras_rank.lists.relevance import Relevance, of_gain, of_gain_ratio
from keras_rank.metrics.base import RankingMetric, SharedArguments
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranking import Ranking
from keras_rank.worth import DISCOUNTS, GAINS, Function, discount_of, resolve, serialize


@keras.saving.register_keras_serializable(package="keras_rank")
class DCG(RankingMetric):
    """Computes the mean discounted cumulative gain.

    `DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `list_weight` is the mean weight of the items by their gain. It is 1 without
    weights, and is also the weight of the list in the mean. The result is 0 or more;
    that of a list without relevant items is `empty_value`.

    Args:
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Gains are clipped to the range 0 to 2**64. Defaults to
            `"exponential"`.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        relevance_threshold: float. Labels below it gain nothing. Defaults to `None`.
        name: str. Defaults to `dcg_at_k`, or `dcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, sparse_labels, dtype.

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
        self.rank_discount_fn = discount_of(rank_discount_fn, k)

    @property
    def _relevance(self) -> Relevance:
        return of_gain(self.gain_fn, self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return discounted_gain(lists, ranking, self.rank_discount_fn)

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

    where the ideal is the DCG of the items in the order of `weight * gain`, including
    those that were not retrieved. The result is from 0 to 1; that of a list without
    relevant items is `empty_value`.

    Args:
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`. Gains
            are clipped to the range 0 to 2**64; exponential gains of larger labels are
            scaled down together, which leaves their ratio unchanged. Defaults to
            `"exponential"`.
        rank_discount_fn: function from ranks to discounts that do not grow, or
            `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to
            `"log2"`.
        relevance_threshold: float. Labels below it gain nothing. Defaults to `None`.
        name: str. Defaults to `ndcg_at_k`, or `ndcg` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, sparse_labels, dtype.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.NDCG(k=2)
    >>> metric.update_state([[3, 0, 1], [0, 2, 0]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '0.7741'

    In a model, where its name includes the cutoff:

    ```python
    # If labels of -1 pad the lists, the loss has to mask them: "mse" doesn't.
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
        return of_gain_ratio(self.gain_fn, self.relevance_threshold)

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return normalized_discounted_gain(lists, ranking, self.rank_discount_fn)


@keras.saving.register_keras_serializable(package="keras_rank")
class ExpectedReciprocalRank(RankingMetric):
    """Computes the mean expected reciprocal rank (ERR).

    `ERR@k = sum(stop(r) / r * product(1 - stop(s) for s in 1..r-1) for r in 1..k)`

    where `stop = (2**label - 1) / 2**max_grade` is the probability that the item
    satisfies the user, who then stops. The result is from 0 to 1; that of a list
    without relevant items is `empty_value`.

    Args:
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        max_grade: number above 0 and below 128. The highest possible label. A
            larger one is an error in eager code, and counts as `max_grade` in
            compiled code. Defaults to 4.
        relevance_threshold: float. Labels below it count as 0. Defaults to `None`.
        name: str. Defaults to `err_at_k`, or `err` without a cutoff.
        **arguments: as for `keras_rank.metrics.RankingMetric`: shuffle_ties, seed,
            empty_value, empty_weight, sparse_labels, dtype.

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
        return expected_reciprocal_of_stop(lists, ranking, self.max_grade)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_grade": self.max_grade}
