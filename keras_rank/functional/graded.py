"""Metrics of graded relevance as functions."""

import functools
from typing import Any, Unpack

from keras_rank.arguments import adds_arguments, check_grade
from keras_rank.backends import Tensor
from keras_rank.formulas.graded import (
    discounted_gain,
    expected_reciprocal_of_stop,
    normalized_discounted_gain,
)
from keras_rank.functional.per_list import Formula, SharedArguments
from keras_rank.lists.relevance import of_gain, of_gain_ratio
from keras_rank.worth import GAINS, Function, discount_of, resolve


@adds_arguments(Formula.per_list)
def dcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    gain_fn: str | Function = "exponential",
    rank_discount_fn: str | Function = "log2",
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    **arguments: Unpack[SharedArguments],
) -> Tensor:
    """Computes the discounted cumulative gain of each list.

    `DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `list_weight` is the mean weight of the items by their gain, which is 1
    without weights.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Gains are clipped to the range 0 to 2**64. Defaults to
            `"exponential"`.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        relevance_threshold: float. Labels below it gain nothing. Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, 0 or more. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels = [[3, 0, 1], [0, 2, 0]]
    >>> scores = [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]]
    >>> values = keras_rank.functional.dcg(labels, scores, k=2)
    >>> [f"{float(value):.4f}" for value in values]
    ['7.0000', '1.8928']

    Reference:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
    """
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    discount_fn = discount_of(rank_discount_fn, k)
    formula = Formula(
        discounted_gain,
        (discount_fn,),
        functools.partial(of_gain, gain_fn),
    )
    return formula.per_list(
        y_true,
        y_pred,
        sample_weight,
        k,
        empty_value=empty_value,
        relevance_threshold=relevance_threshold,
        **arguments,
    )


@adds_arguments(Formula.per_list)
def ndcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    gain_fn: str | Function = "exponential",
    rank_discount_fn: str | Function = "log2",
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    **arguments: Unpack[SharedArguments],
) -> Tensor:
    """Computes the normalized discounted cumulative gain of each list.

    `NDCG@k = DCG@k / ideal DCG@k`

    where the ideal is the DCG of the items in the order of `weight * gain`, including
    those that were not retrieved.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`. Gains
            are clipped to the range 0 to 2**64; exponential gains of larger labels are
            scaled down together, which leaves their ratio unchanged. Defaults to
            `"exponential"`.
        rank_discount_fn: function from ranks to discounts that do not grow, or
            `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to
            `"log2"`.
        relevance_threshold: float. Labels below it gain nothing. Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels = [[3, 0, 1], [0, 2, 0]]
    >>> scores = [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]]
    >>> values = keras_rank.functional.ndcg(labels, scores)
    >>> [f"{float(value):.4f}" for value in values]
    ['0.9828', '0.6309']

    Tied scores flatter nobody: this is the mean of 1 and 0.6309.

    >>> value = keras_rank.functional.ndcg([1, 0], [0.5, 0.5], shuffle_ties="average")
    >>> f"{float(value[0]):.4f}"
    '0.8155'

    References:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    discount_fn = discount_of(rank_discount_fn, k)
    formula = Formula(
        normalized_discounted_gain,
        (discount_fn,),
        functools.partial(of_gain_ratio, gain_fn),
    )
    return formula.per_list(
        y_true,
        y_pred,
        sample_weight,
        k,
        empty_value=empty_value,
        relevance_threshold=relevance_threshold,
        **arguments,
    )


@adds_arguments(Formula.per_list)
def expected_reciprocal_rank(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    max_grade: float = 4.0,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    **arguments: Unpack[SharedArguments],
) -> Tensor:
    """Computes the expected reciprocal rank (ERR) of each list.

    `ERR@k = sum(stop(r) / r * product(1 - stop(s) for s in 1..r-1) for r in 1..k)`

    where `stop = (2**label - 1) / 2**max_grade` is the probability that the item
    satisfies the user, who then stops.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        max_grade: number above 0 and below 128. The highest possible label. A
            larger one is an error in eager code, and counts as `max_grade` in
            compiled code. Defaults to 4.
        relevance_threshold: float. Labels below it count as 0. Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.expected_reciprocal_rank(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.2002'

    Reference:
        Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
        relevance", CIKM 2009.
    """
    formula = Formula(
        expected_reciprocal_of_stop,
        (check_grade("max_grade", max_grade),),
    )
    return formula.per_list(
        y_true,
        y_pred,
        sample_weight,
        k,
        empty_value=empty_value,
        relevance_threshold=relevance_threshold,
        **arguments,
    )
