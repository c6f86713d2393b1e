"""Metrics of graded relevance: items are worth more or less, and less further down."""

import math
from typing import Any

from keras import ops

from keras_rank import discounts, gains
from keras_rank.arguments import (
    DISCOUNTS,
    GAINS,
    Function,
    Seed,
    ShuffleTies,
    check_k,
    check_number,
    check_seed,
    check_ties,
    resolve,
)
from keras_rank.arithmetic import Tensor, at_most, ratio, total, where
from keras_rank.lists import LARGEST_GAIN, Lists, standardize
from keras_rank.ordering import Ranking, rank, top_values
from keras_rank.weighting import list_weights


def dcg(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    *,
    k: int | None = None,
    gain_fn: str | Function = gains.exponential,
    rank_discount_fn: str | Function = discounts.log2,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    dtype: str | None = None,
) -> Tensor:
    """Computes the discounted cumulative gain of each list.

    `DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `list_weight` is the mean weight of the items by their gain, which is 1
    without weights.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict `{"labels": ..., "mask": ...}`. A label below 0
            or NaN, and a mask of False, make a position padding.
        y_pred: scores of the same shape. An item scored `-inf` or NaN is judged,
            but not retrieved: it has no rank.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
            An item whose weight is not above 0 is padding.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Gains are cut to the range 0 to 2**64. Defaults to
            `keras_rank.gains.exponential`.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to
            `keras_rank.discounts.log2`.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. Items with a label below it gain nothing.
            Defaults to `None`: every item gains.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        A tensor of shape `(batch,)`, 0 or more. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument has another type or shape than stated above.

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
    lists = standardize(y_true, y_pred, sample_weight, dtype)
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    threshold = check_number("relevance_threshold", relevance_threshold)
    lists = lists.judged(absolute_gains(lists.labels, gain_fn, threshold))
    ranking = rank(lists, check_k(k), check_ties(shuffle_ties), check_seed(seed))
    discount_fn = resolve("rank_discount_fn", rank_discount_fn, DISCOUNTS)
    values = discounted_gain(lists, ranking, discount_fn)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


def ndcg(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    *,
    k: int | None = None,
    gain_fn: str | Function = gains.exponential,
    rank_discount_fn: str | Function = discounts.log2,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    dtype: str | None = None,
) -> Tensor:
    """Computes the normalized discounted cumulative gain of each list.

    `NDCG@k = DCG@k / ideal DCG@k`

    where the ideal is the DCG of the items in the order of `weight * gain`, those
    included that were not retrieved.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict `{"labels": ..., "mask": ...}`. A label below 0
            or NaN, and a mask of False, make a position padding.
        y_pred: scores of the same shape. An item scored `-inf` or NaN is judged,
            but not retrieved: it has no rank.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
            An item whose weight is not above 0 is padding.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Gains are cut to the range 0 to 2**64; exponential gains of larger
            labels are scaled down together, which their ratio does not feel.
            Defaults to `keras_rank.gains.exponential`.
        rank_discount_fn: function from ranks to discounts that do not grow, or
            `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to
            `keras_rank.discounts.log2`.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. Items with a label below it gain nothing.
            Defaults to `None`: every item gains.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument has another type or shape than stated above.

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
    lists = standardize(y_true, y_pred, sample_weight, dtype)
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    threshold = check_number("relevance_threshold", relevance_threshold)
    lists = lists.judged(relative_gains(lists.labels, gain_fn, threshold))
    ranking = rank(lists, check_k(k), check_ties(shuffle_ties), check_seed(seed))
    discount_fn = resolve("rank_discount_fn", rank_discount_fn, DISCOUNTS)
    values = normalized_discounted_gain(lists, ranking, discount_fn)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


def discounted_gain(
    lists: Lists, ranking: Ranking, rank_discount_fn: Function
) -> Tensor:
    """The formula of DCG. `sum(weight * gain * discount) / list_weight`."""
    gains_by_rank = ranking.take(lists.weighted(lists.relevance))
    discounts_by_rank = rank_discount_fn(ranking.ranks)
    return ratio(total(gains_by_rank * discounts_by_rank), list_weights(lists))


def normalized_discounted_gain(
    lists: Lists, ranking: Ranking, rank_discount_fn: Function
) -> Tensor:
    """The formula of NDCG. `sum(gain * discount) / sum(ideal_gain * discount)`."""
    weighted_gains = lists.weighted(lists.relevance)
    gains_by_rank = ranking.take(weighted_gains)
    ideal_gains = top_values(weighted_gains, ranking.depth)
    discounts_by_rank = rank_discount_fn(ranking.ranks)
    gain = total(gains_by_rank * discounts_by_rank)
    ideal_gain = total(ideal_gains * discounts_by_rank)
    # The mean over tied items may exceed the ideal by a rounding error.
    return at_most(ratio(gain, ideal_gain), 1.0)


def absolute_gains(
    labels: Tensor, gain_fn: Function, threshold: float | None
) -> Tensor:
    """The gains of the labels, from 0 to `LARGEST_GAIN`."""
    gains_of_labels = ops.clip(gain_fn(labels), 0.0, LARGEST_GAIN)
    if threshold is None:
        return gains_of_labels
    return where(labels >= threshold, gains_of_labels, 0.0)


def relative_gains(
    labels: Tensor, gain_fn: Function, threshold: float | None
) -> Tensor:
    """The gains of the labels up to a factor for each list.

    Exponential gains overflow float32 at a label of 128. Only their ratios matter
    here, so a list with such labels has all its gains divided by a power of two:
    `2**(label - shift) - 2**-shift`.
    """
    if gain_fn is not gains.exponential:
        return absolute_gains(labels, gain_fn, threshold)
    # The initial value spares a batch of no lists an error.
    largest_label = ops.max(labels, axis=1, keepdims=True, initial=0.0)
    shift = ops.maximum(largest_label - math.log2(LARGEST_GAIN), 0.0)

    def shifted(labels: Tensor) -> Tensor:
        return ops.power(2.0, labels - shift) - ops.power(2.0, -shift)

    return absolute_gains(labels, shifted, threshold)
