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
    check_grade,
    check_number,
    names_arguments,
    resolve,
)
from keras_rank.arithmetic import (
    Tensor,
    at_most,
    first_event,
    ratio,
    shifted,
    total,
    totals,
    where,
    within,
)
from keras_rank.functional.per_list import excludes_zero, from_threshold, in_order
from keras_rank.inputs import require
from keras_rank.judged import JudgedLists, Judgement, Values
from keras_rank.lists import LARGEST_GAIN
from keras_rank.ordering.backends import constant, shortcut, take
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.ranks import rank_by_scores
from keras_rank.weighting import list_weights


@names_arguments
def dcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    gain_fn: str | Function = gains.exponential,
    rank_discount_fn: str | Function = discounts.log2,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the discounted cumulative gain of each list.

    `DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `list_weight` is the mean weight of the items by their gain, which is 1
    without weights.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict `{"labels": ..., "mask": ...}`. A label below 0
            or NaN, and a mask of False, make a position padding. Or lists in order,
            from `keras_rank.functional.rank`, in the place of all arguments of it
            but `k`.
        y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item scored
            `-inf` or NaN is judged, but not retrieved: it has no rank.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
            An item whose weight is not above 0 is padding. One weight for a whole
            list changes no value: it weighs lists, in a mean.
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
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not
            in the catalogue is an error where values can be seen, and counts as not
            retrieved in compiled code. Defaults to `False`.
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
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    discount_fn = resolve("rank_discount_fn", rank_discount_fn, DISCOUNTS)
    threshold = check_number("relevance_threshold", relevance_threshold)
    lists, ranking = in_order(
        y_true,
        y_pred,
        sample_weight,
        of_gain(gain_fn, threshold),
        k=k,
        shuffle_ties=shuffle_ties,
        seed=seed,
        dtype=dtype,
        sparse_labels=sparse_labels,
    )
    values = discounted_gain(lists, ranking, discount_fn)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def ndcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    gain_fn: str | Function = gains.exponential,
    rank_discount_fn: str | Function = discounts.log2,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the normalized discounted cumulative gain of each list.

    `NDCG@k = DCG@k / ideal DCG@k`

    where the ideal is the DCG of the items in the order of `weight * gain`, those
    included that were not retrieved.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict `{"labels": ..., "mask": ...}`. A label below 0
            or NaN, and a mask of False, make a position padding. Or lists in order,
            from `keras_rank.functional.rank`, in the place of all arguments of it
            but `k`.
        y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item scored
            `-inf` or NaN is judged, but not retrieved: it has no rank.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
            An item whose weight is not above 0 is padding. One weight for a whole
            list changes no value: it weighs lists, in a mean.
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
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not
            in the catalogue is an error where values can be seen, and counts as not
            retrieved in compiled code. Defaults to `False`.
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
    gain_fn = resolve("gain_fn", gain_fn, GAINS)
    discount_fn = resolve("rank_discount_fn", rank_discount_fn, DISCOUNTS)
    threshold = check_number("relevance_threshold", relevance_threshold)
    lists, ranking = in_order(
        y_true,
        y_pred,
        sample_weight,
        of_gain_ratio(gain_fn, threshold),
        k=k,
        shuffle_ties=shuffle_ties,
        seed=seed,
        dtype=dtype,
        sparse_labels=sparse_labels,
    )
    values = normalized_discounted_gain(lists, ranking, discount_fn)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def expected_reciprocal_rank(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    max_grade: float = 4.0,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = None,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the expected reciprocal rank at which a reader stops of each list.

    `ERR@k = sum(stop(r) / r * product(1 - stop(s) for s in 1..r-1) for r in 1..k)`

    where `stop = (2**label - 1) / 2**max_grade` is the chance that the item satisfies.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict `{"labels": ..., "mask": ...}`. A label below 0
            or NaN, and a mask of False, make a position padding. Or lists in order,
            from `keras_rank.functional.rank`, in the place of all arguments of it
            but `k`.
        y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item scored
            `-inf` or NaN is judged, but not retrieved: it has no rank.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
            An item whose weight is not above 0 is padding. Other weights change no
            value: they weigh lists, in a mean.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        max_grade: number above 0 and below 128. The highest label there is. A
            larger one is an error where values can be seen, and counts as
            `max_grade` in compiled code. Defaults to 4.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. Items with a label below it never satisfy.
            Defaults to `None`: every label counts.
        sparse_labels: `False`, and there so that all metrics take the same
            arguments: this one needs the labels of all items.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding
        only gives NaN.

    Raises:
        ValueError: if an argument has another type or shape than stated above.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.expected_reciprocal_rank(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.2002'

    Reference:
        Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
        relevance", CIKM 2009.
    """
    threshold = check_number("relevance_threshold", relevance_threshold)
    lists, ranking = in_order(
        y_true,
        y_pred,
        sample_weight,
        from_threshold(threshold),
        k=k,
        shuffle_ties=shuffle_ties,
        seed=seed,
        dtype=dtype,
        sparse_labels=sparse_labels,
        needs_all_labels=True,
    )
    values = expected_reciprocal_of_stop(
        lists, ranking, check_grade("max_grade", max_grade)
    )
    return lists.fill_empty(values, check_number("empty_value", empty_value))


def discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: Function
) -> Tensor:
    """The formula of DCG. `sum(weight * gain * discount) / list_weight`."""
    gains_by_rank = ranking.take(lists.weighted_gains)
    discounts_by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    return ratio(total(gains_by_rank * discounts_by_rank), lists.once(list_weights))


def normalized_discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: Function
) -> Tensor:
    """The formula of NDCG. `sum(gain * discount) / sum(ideal_gain * discount)`."""
    weighted_gains = lists.weighted_gains
    gains_by_rank = ranking.take(weighted_gains)
    ideal_gains = ranking.best(weighted_gains)
    discounts_by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    ideal_discounts = discounts.at_ranks(rank_discount_fn, ranking.first_ranks)
    gain, ideal_gain = totals(
        gains_by_rank * discounts_by_rank, ideal_gains * ideal_discounts
    )
    # The mean over tied items may exceed the ideal by a rounding error.
    return at_most(ratio(gain, ideal_gain), 1.0)


def of_gain(gain_fn: Function, threshold: float | None) -> Judgement:
    """Relevance is the gain of the label, 0 below the threshold."""
    # What is known of the gain functions that are ours.
    grows_from_zero = gain_fn in (gains.exponential, gains.linear)
    return Judgement(
        absolute_gains,
        (gain_fn, threshold),
        grows=grows_from_zero,
        only_relevant=grows_from_zero or excludes_zero(threshold),
    )


def of_gain_ratio(gain_fn: Function, threshold: float | None) -> Judgement:
    """Relevance is the gain of the label, up to a factor for each list."""
    if gain_fn is not gains.exponential:
        return of_gain(gain_fn, threshold)
    return Judgement(
        relative_gains,
        (threshold,),
        grows=True,
        only_relevant=True,
        scale_of=shift_and_floor,
    )


def absolute_gains(
    labels: Tensor, scale: None, gain_fn: Function, threshold: float | None
) -> Tensor:
    """The gains of labels, from 0 to `LARGEST_GAIN`."""
    return _from(threshold, labels, gain_fn(labels))


def relative_gains(
    labels: Tensor, scale: tuple[Tensor, Tensor], threshold: float | None
) -> Tensor:
    """The exponential gains of labels up to a factor for each list.

    They overflow float32 at a label of 128. Only their ratios matter here, so a list
    with such labels has all its gains divided by a power of two:
    `2**(label + shift) - 2**shift`, with a shift below 0.
    """
    shift, floor = scale
    gains_of_labels = ops.power(constant(2.0, labels), labels + shift) - floor
    return _from(threshold, labels, gains_of_labels)


def shift_and_floor(highest_labels: Tensor) -> tuple[Tensor, Tensor]:
    """The power of two by which gains are multiplied, and what it makes of 1."""
    shift = at_most(math.log2(LARGEST_GAIN) - highest_labels, 0.0)
    return shift, ops.power(constant(2.0, shift), shift)


def _from(threshold: float | None, labels: Tensor, gains_of_labels: Tensor) -> Tensor:
    gains_of_labels = within(gains_of_labels, 0.0, LARGEST_GAIN)
    if threshold is None:
        return gains_of_labels
    return where(labels >= threshold, gains_of_labels, 0.0)


def expected_reciprocal_of_stop(
    lists: JudgedLists, ranking: Ranking, max_grade: float
) -> Tensor:
    """The formula of ERR. `sum(chance to stop first at r / r)`."""
    require(
        ops.all(lists.labels <= max_grade),
        f"`y_true` should have labels up to `max_grade`, {max_grade}. "
        "Received: a larger label",
    )
    grades = at_most(lists.labels, max_grade) * lists.relevance
    stops = (ops.power(2.0, grades) - 1.0) / 2.0**max_grade

    def over_ranks() -> Tensor:
        stops_by_rank = ranking.take(Values(stops, only_relevant=True))
        return total(first_event(stops_by_rank) / ranking.ranks)

    if ranking.ties is None:
        return over_ranks()
    return shortcut(
        ranking.ties.none, over_ranks, lambda: _over_tie_groups(lists, ranking, stops)
    )


def _over_tie_groups(lists: JudgedLists, ranking: Ranking, stops: Tensor) -> Tensor:
    """ERR in the mean over the orders of tied items.

    The reader who reaches a group of m tied items passes its first j with the chance
    `passed[j]`: the mean, over all subsets of j of them, of the product of their
    `1 - stop`. So the chance to stop at place j is `passed[j - 1] - passed[j]`. With
    one more item, the n-th, a subset of j holds it with the chance j / n:
    `passed[j] = passed[j] (n - j) / n + passed[j - 1] (1 - stop) j / n`.

    It goes through the whole lists, as the group at the cutoff may reach their end.
    """
    whole = rank_by_scores(lists.lists, None, "average")
    stops_by_rank = take(stops, whole.order)
    stops_by_rank = where(whole.occupied, stops_by_rank, 0.0)
    sizes, places, depth = whole.group_sizes, whole.places, ranking.cutoff
    last_rank = ops.cast(depth, stops.dtype)
    subset_size = ops.cast(ops.arange(depth + 1, dtype="int32"), stops.dtype)[None, :]
    # The chance to pass no items is 1; with no items, there are no larger subsets.
    no_items = ops.cast(subset_size == 0.0, stops.dtype) + 0.0 * stops[:, :1]

    def with_next_item(
        i: Tensor, state: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value, reached, reached_next, passed = state
        item, size = ops.take(places, i, axis=1)[:, None], ops.take(sizes, i, axis=1)
        go_on = 1.0 - ops.take(stops_by_rank, i, axis=1)[:, None]
        passed = where(item == 1.0, no_items, passed)
        one_less = shifted(passed, 1, 0.0)
        with_item = at_most(subset_size / item, 1.0)
        passed = passed * (1.0 - with_item) + one_less * go_on * with_item
        reached_next = reached_next * go_on

        ranks = subset_size + (ops.cast(i, stops.dtype) + 1.0 - item)
        counts = ops.logical_and(subset_size >= 1.0, subset_size <= item)
        counts = ops.logical_and(counts, ranks <= last_rank)
        stop_first = shifted(passed, 1, 0.0) - passed
        stop_first = where(counts, stop_first / where(counts, ranks, 1.0), 0.0)
        at_end = item[:, 0] == size
        value = value + where(at_end, reached[:, 0] * total(stop_first), 0.0)
        reached = where(at_end[:, None], reached_next, reached)
        return value, reached, reached_next, passed

    ones = ops.ones_like(stops[:, :1])
    start = (0.0 * stops[:, 0], ones, ones, no_items)
    return ops.fori_loop(0, ops.shape(stops)[1], with_next_item, start)[0]
