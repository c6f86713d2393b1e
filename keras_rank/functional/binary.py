"""Metrics of binary relevance: an item is relevant or not."""

import math
from typing import Any

from keras import ops

from keras_rank.arguments import (
    DENOMINATORS,
    NORMALIZERS,
    Seed,
    ShuffleTies,
    check_choice,
    check_fraction,
    check_k,
    check_number,
    names_arguments,
)
from keras_rank.arithmetic import (
    Tensor,
    at_most,
    first_event,
    ratio,
    shifted,
    total,
    where,
)
from keras_rank.discounts import at_ranks, geometric
from keras_rank.functional.per_list import from_threshold, in_order
from keras_rank.judged import JudgedLists
from keras_rank.ordering.ranking import Ranking


@names_arguments
def average_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    normalizer: str = "total",
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the average precision of each list.

    `AP@k = sum(weight(r) * relevant(r) * precision@r for r in 1..k) / normalizer`

    where `relevant(r)` is 1 if the item at rank r is relevant, else 0.

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
            An item whose weight is not above 0 is padding. The terms of
            relevant items are weighted. One weight for a whole list changes no
            value: it weighs lists, in a mean.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        normalizer: what the sum is divided by. `"total"`: the weights of all
            relevant items, that is, their number R without weights (trec_eval,
            keras-rs, TF-Ranking). `"clipped"`: those of the best k, that is,
            min(R, k) (ignite, Kaggle). `"retrieved"`: the number of relevant items
            within the top k (torchmetrics); the terms are not weighted then.
            Defaults to `"total"`.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.average_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.7500'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
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
    )
    values = precisions_at_relevant_ranks(
        lists, ranking, check_choice("normalizer", normalizer, NORMALIZERS)
    )
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def reciprocal_rank(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the reciprocal rank of the first relevant item of each list.

    `RR@k = 1 / rank of the first relevant item`

    or 0 if none is within the top k.

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
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.reciprocal_rank(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '1.0000'

    References:
        Voorhees, "The TREC-8 question answering track report", 1999.
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
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
    )
    values = reciprocal_of_first_relevant(lists, ranking)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    denominator: str = "available",
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the share of relevant items in the top k of each list.

    `P@k = relevant items in the top k / denominator`

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
        denominator: `"available"`: the size of the list where that is less than k
            (keras-rs). `"k"`: always k, so that short lists count as filled up with
            irrelevant items (trec_eval). Defaults to `"available"`.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.precision(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
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
    )
    values = hits_over_slots(
        lists,
        ranking,
        check_k(k),
        check_choice("denominator", denominator, DENOMINATORS),
    )
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def recall(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the share of the relevant items that is in the top k of each list.

    `R@k = relevant items in the top k / relevant items`

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
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.recall(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
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
    )
    values = hits_over_relevant(lists, ranking)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def hit_rate(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the presence of a relevant item in the top k of each list.

    `HR@k = 1 if any item in the top k is relevant, else 0`

    It is also known as success@k, and as top-k accuracy where one item is relevant.

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
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not
            in the catalogue is an error where values can be seen, and counts as not
            retrieved in compiled code. Defaults to `False`.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        A tensor of shape `(batch,)`, 0 or 1, or between for averaged ties. A
        list of padding only gives NaN.

    Raises:
        ValueError: if an argument has another type or shape than stated above.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.hit_rate(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '1.0000'
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
    )
    values = any_hit(lists, ranking)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def f1(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    denominator: str = "available",
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the harmonic mean of precision and recall at k of each list.

    `F1@k = 2 * P@k * R@k / (P@k + R@k)`

    or 0 where both are 0.

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
        denominator: that of the precision. `"available"`: the size of the list
            where that is less than k. `"k"`: always k. Defaults to `"available"`.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.f1(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
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
    )
    values = twice_hits_over_slots_and_relevant(
        lists,
        ranking,
        check_k(k),
        check_choice("denominator", denominator, DENOMINATORS),
    )
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def r_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the precision at R, the number of relevant items of each list.

    `R-precision = relevant items in the top R / R`

    With a cutoff below R, both Rs are the cutoff.

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
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
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

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.r_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Manning, Raghavan and Schütze, "Introduction to information retrieval",
        section 8.4, 2008.
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
    )
    values = hits_at_relevant_count(lists, ranking)
    return lists.fill_empty(values, check_number("empty_value", empty_value))


@names_arguments
def rank_biased_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    persistence: float = 0.8,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    empty_value: float | None = 0.0,
    relevance_threshold: float | None = 1.0,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """Computes the rank-biased precision of each list.

    `RBP@k = (1 - p) * sum(relevant(r) * p**(r - 1) for r in 1..k)`

    where p, the persistence, is the chance that a reader goes on to the next rank.

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
        persistence: float between 0 and 1. Defaults to 0.8.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int. The seed of the shuffle. Defaults to `None`: drawn at each call.
        empty_value: float. What a list with items but no relevant one scores.
            Defaults to 0.0. `None` gives NaN.
        relevance_threshold: float. The label from which on an item is relevant.
            Defaults to 1.0.
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not
            in the catalogue is an error where values can be seen, and counts as not
            retrieved in compiled code. Defaults to `False`.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        A tensor of shape `(batch,)`, from 0 to less than 1. A list of padding
        only gives NaN.

    Raises:
        ValueError: if an argument has another type or shape than stated above.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.rank_biased_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.3024'

    Reference:
        Moffat and Zobel, "Rank-biased precision for measurement of retrieval
        effectiveness", ACM TOIS 27(1), 2008.
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
    )
    values = discounted_hits(lists, ranking, check_fraction("persistence", persistence))
    return lists.fill_empty(values, check_number("empty_value", empty_value))


def precisions_at_relevant_ranks(
    lists: JudgedLists, ranking: Ranking, normalizer: str
) -> Tensor:
    """The formula of average precision. `sum(weight * precision@r) / normalizer`.

    Where ties are averaged, the item at place j of a group of m items, c of them
    relevant, is relevant with the chance c / m. Then `h + (j - 1) (c - 1) / (m - 1)`
    relevant items are expected above it, h of them above the group, whatever their
    weights: so its expected precision is that number and itself, over its rank.
    """
    relevant = ranking.take(lists.gains)
    found = 1.0 + hits_above(ranking, relevant)
    if normalizer == "retrieved":
        return _mean_precision_at_hits(ranking, relevant, found)
    precisions = found / ranking.ranks
    gains = lists.weighted_gains
    clipped = normalizer == "clipped"
    best = total(ranking.best(gains)) if clipped else lists.relevant_weight
    # The sums may differ by a rounding error.
    return at_most(ratio(total(ranking.take(gains) * precisions), best), 1.0)


def hits_above(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items expected above a rank, if it has a relevant one.

    Args:
        ranking: the ranking.
        relevant: tensor of shape `(batch, depth)`. The chance that the item at each
            rank is relevant.

    Returns:
        A tensor of shape `(batch, depth)`.
    """
    if not ranking.averages:
        return ops.cumsum(relevant, axis=1) - relevant
    above_group = _hits_above_group(ranking, relevant)
    others = ops.round(relevant * ranking.group_sizes) - 1.0
    share = ratio(others, ranking.group_sizes - 1.0)
    return above_group + (ranking.places - 1.0) * share


def _hits_above_group(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items above the tied items of a rank: exact, as whole."""
    return ops.round(ops.cumsum(relevant, axis=1) - ranking.places * relevant)


def _mean_precision_at_hits(
    ranking: Ranking, relevant: Tensor, found: Tensor
) -> Tensor:
    """`sum(precision@r over relevant ranks) / hits`, expected over the orders of ties.

    Of the orders of ties, only those at the cutoff change the number of hits: x of
    the c relevant items of that group of m come into its t ranks above the cutoff, by
    the hypergeometric distribution. Given x, its ranks are relevant with the chance
    x / t, and the sum of their precisions is that of a group of t items.
    """
    if not ranking.averages:
        return ratio(total(relevant * found / ranking.ranks), total(relevant))
    size, slots = ranking.group_sizes[:, -1:], ranking.places[:, -1:]
    above = _hits_above_group(ranking, relevant)[:, -1:]
    group_relevant = ops.round(relevant[:, -1:] * size)
    # The ranks of the group at the cutoff, and their places in it.
    place = ranking.ranks - ranking.ranks[-1] + slots
    in_group = place > 0.0
    sum_above = total(where(in_group, 0.0, relevant * found / ranking.ranks))
    per_hit = total(where(in_group, 1.0 / ranking.ranks, 0.0))[:, None]
    per_pair = total(where(in_group, (place - 1.0) / ranking.ranks, 0.0))[:, None]
    hits = ops.cast(ops.arange(ranking.cutoff + 1, dtype="int32"), relevant.dtype)
    sum_in_group = hits * (1.0 + above) * per_hit / slots + hits * (hits - 1.0) * ratio(
        per_pair, slots * (slots - 1.0)
    )
    values = ratio(sum_above[:, None] + sum_in_group, above + hits)
    chances = _hypergeometric(hits, group_relevant, size, slots)
    return at_most(total(chances * values), 1.0)


def _hypergeometric(
    hits: Tensor, relevant: Tensor, size: Tensor, slots: Tensor
) -> Tensor:
    """The chance of so many hits in slots drawn from a group with relevant items.

    From the ratio of one chance to the next: `p(x + 1) / p(x)
    = (relevant - x) (slots - x) / ((x + 1) (size - relevant - slots + x + 1))`.
    """
    fewest = ops.maximum(slots - (size - relevant), 0.0)
    possible = ops.logical_and(hits >= fewest, hits <= ops.minimum(relevant, slots))
    up = (relevant - hits) * (slots - hits)
    down = (hits + 1.0) * (size - relevant - slots + hits + 1.0)
    steps = ops.log(where(up > 0.0, up, 1.0)) - ops.log(where(down > 0.0, down, 1.0))
    logarithms = ops.cumsum(where(possible, steps, 0.0), axis=1)
    logarithms = where(possible, shifted(logarithms, 1, 0.0), -math.inf)
    return ops.softmax(logarithms, axis=1)


def hits_in_top(ranking: Ranking, lists: JudgedLists) -> Tensor:
    """The number of relevant items in the top k, of shape `(batch,)`."""
    return total(ranking.take(lists.gains))


def hits_over_slots(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str
) -> Tensor:
    """The formula of precision. `hits / slots`."""
    return ratio(ranking.once(hits_in_top, lists), slots_of_top(lists, k, denominator))


def slots_of_top(lists: JudgedLists, k: int | None, denominator: str) -> Tensor:
    """The number of ranks that a list has for its items, of shape `(batch,)`."""
    sizes = lists.sizes
    if k is None:
        return sizes
    return ops.zeros_like(sizes) + k if denominator == "k" else at_most(sizes, k)


def hits_over_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of recall. `hits / relevant items`."""
    return ratio(ranking.once(hits_in_top, lists), lists.number_relevant)


def twice_hits_over_slots_and_relevant(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str
) -> Tensor:
    """The formula of F1. `2 * P * R / (P + R) = 2 * hits / (slots + relevant items)`.

    So it is linear in the hits, and averages over ties like them.
    """
    both = slots_of_top(lists, k, denominator) + lists.number_relevant
    return ratio(2.0 * ranking.once(hits_in_top, lists), both)


def hits_at_relevant_count(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of R-precision. `hits in the top R / R`, linear in the hits."""
    relevant = at_most(lists.number_relevant, ranking.cutoff)[:, None]
    by_rank = ranking.take(lists.gains)
    found = total(where(ranking.ranks <= relevant, by_rank, 0.0))
    return ratio(found, relevant[:, 0])


def discounted_hits(lists: JudgedLists, ranking: Ranking, persistence: float) -> Tensor:
    """The formula of rank-biased precision. `(1 - p) * sum(relevant * p**(r - 1))`."""
    discounts = at_ranks(geometric(persistence), ranking.ranks)
    return (1.0 - persistence) * total(ranking.take(lists.gains) * discounts)


def first_hit(ranking: Ranking, lists: JudgedLists) -> Tensor:
    """The chance that the first relevant item is at a rank, of shape `(batch, depth)`.

    If the j - 1 items before it in its group of m tied items are irrelevant, all c
    relevant ones are among the m - j + 1 items left: so it is one with the chance
    c / (m - j + 1). Where ties are broken, it is where the number of hits becomes 1.
    """
    relevant = ranking.take(lists.gains)
    if not ranking.averages:
        return where(ops.cumsum(relevant, axis=1) == 1.0, relevant, 0.0)
    left = ranking.group_sizes - ranking.places + 1.0
    chance = at_most(ops.round(relevant * ranking.group_sizes) / left, 1.0)
    return first_event(chance)


def reciprocal_of_first_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the reciprocal rank. `sum(chance of first hit at r / r)`."""
    return total(ranking.at_each_rank(first_hit, lists) / ranking.ranks)


def any_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the hit rate. `sum(chance of first hit at r)`."""
    return at_most(total(ranking.at_each_rank(first_hit, lists)), 1.0)
