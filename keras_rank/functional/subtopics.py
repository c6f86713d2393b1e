"""Metrics of subtopics as functions."""

from typing import Any, Unpack

from keras_rank.arguments import (
    DENOMINATORS,
    adds_arguments,
    check_choice,
    check_k,
    check_share,
    check_subtopic_normalizer,
    check_subtopic_weights,
)
from keras_rank.backends import Tensor
from keras_rank.formulas import subtopics
from keras_rank.functional.per_list import Formula, FormulaArguments
from keras_rank.worth import Function, discount_of

# What all of them are like.
_OF_SUBTOPICS: Any = {"takes_sparse_labels": False, "takes_subtopics": True}


@adds_arguments(Formula.per_list)
def alpha_ndcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    alpha: float = 0.5,
    rank_discount_fn: str | Function = "log2",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the normalized alpha-DCG (alpha-nDCG) of each list.

    `alpha-nDCG@k = alpha-DCG@k / alpha-DCG@k of a greedy order`

    where the greedy order takes at each rank the item that gains most there, of equal
    ones the earlier, from all items, including those that were not retrieved. The best
    order is too hard to find: where the greedy one misses it, the value of a list may
    be above 1.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if
    its labels are below 0 for all subtopics, or NaN for one. Labels of shape
    `(batch, list_size)` are those of a single subtopic.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape
            `(batch, list_size, subtopics)`.
        y_pred: as for `keras_rank.functional`: scores of shape `(batch, list_size)`.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        alpha: number from 0 to 1. The share of a subtopic's gain that each relevant
            item takes from those below. Defaults to 0.5.
        rank_discount_fn: function from ranks to discounts that do not grow, or
            `"log2"`, `"clipped_log2"` or `"reciprocal"`. Defaults to
            `"log2"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, 0 or more. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]]
    >>> value = keras_rank.functional.alpha_ndcg(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.8066'

    Reference:
        Clarke et al., "Novelty and diversity in information retrieval evaluation",
        SIGIR 2008.
    """
    discount = discount_of(rank_discount_fn, k)
    how = check_share("alpha", alpha), discount
    formula = Formula(subtopics.share_of_greedy_ideal, how, **_OF_SUBTOPICS)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def alpha_dcg(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    alpha: float = 0.5,
    rank_discount_fn: str | Function = "log2",
    normalizer: str | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the alpha-DCG of each list, the DCG that prefers new subtopics.

    `alpha-DCG@k = sum(weight(r) * gain(r) * discount(r) for r in 1..k) / list_weight`

    where `gain(r) = sum((1 - alpha)**above(t))` over the subtopics t to which the item
    at rank r is relevant, and `above(t)` is the number of items above it that are
    relevant to t, too. `list_weight` is the mean weight of the items that are relevant
    to a subtopic, 1 without weights.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if
    its labels are below 0 for all subtopics, or NaN for one. Labels of shape
    `(batch, list_size)` are those of a single subtopic.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape
            `(batch, list_size, subtopics)`.
        y_pred: as for `keras_rank.functional`: scores of shape `(batch, list_size)`.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        alpha: number from 0 to 1. The share of a subtopic's gain that each relevant
            item takes from those below. Defaults to 0.5.
        rank_discount_fn: function from ranks to discounts, or `"log2"`,
            `"clipped_log2"` or `"reciprocal"`. Defaults to `"log2"`.
        normalizer: what the sum is divided by. `None`: nothing (TF-Ranking).
            `"maximum"`: the sum of k items that are relevant to all subtopics of the
            list, those with relevant items (ndeval). Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, 0 or more. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]]
    >>> value = keras_rank.functional.alpha_dcg(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '1.3155'

    Reference:
        Clarke et al., "Novelty and diversity in information retrieval evaluation",
        SIGIR 2008.
    """
    discount, k = discount_of(rank_discount_fn, k), check_k(k)
    divisor = check_subtopic_normalizer(normalizer, k), k
    how = check_share("alpha", alpha), discount, *divisor
    formula = Formula(subtopics.discounted_novelty, how, **_OF_SUBTOPICS)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def expected_reciprocal_rank_ia(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    alpha: float = 0.5,
    subtopic_weights: Any = None,
    normalizer: str | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the intent-aware expected reciprocal rank (ERR-IA) of each list.

    `ERR-IA@k = mean(sum(stop(r) / r for r in 1..k) for each subtopic)`

    where `stop(r) = relevant(r) * alpha * (1 - alpha)**above(r)` is the probability
    that a user who looks for the subtopic stops at rank r: each relevant item satisfies
    with the probability `alpha`, and `above(r)` of them are above. The mean is over the
    subtopics with relevant items.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if
    its labels are below 0 for all subtopics, or NaN for one. Labels of shape
    `(batch, list_size)` are those of a single subtopic.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape
            `(batch, list_size, subtopics)`.
        y_pred: as for `keras_rank.functional`: scores of shape `(batch, list_size)`.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        alpha: number from 0 to 1. The probability that a relevant item satisfies.
            Defaults to 0.5.
        subtopic_weights: list of numbers. The weight of each subtopic in the mean.
            Defaults to `None`: all are 1.
        normalizer: what the mean is divided by. `None`: nothing. `"maximum"`: that of k
            items that are relevant to all subtopics (ndeval). Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]]
    >>> value = keras_rank.functional.expected_reciprocal_rank_ia(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.3125'

    References:
        Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
        relevance", CIKM 2009.
        Clarke, Craswell, Soboroff and Ashkan, "A comparative analysis of cascade
        measures for novelty and diversity", WSDM 2011.
    """
    k, weights = check_k(k), check_subtopic_weights(subtopic_weights)
    divisor = check_subtopic_normalizer(normalizer, k), k
    how = check_share("alpha", alpha), weights, *divisor
    formula = Formula(subtopics.mean_reciprocal_of_stop, how, **_OF_SUBTOPICS)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def precision_ia(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    denominator: str = "available",
    subtopic_weights: Any = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the intent-aware precision (P-IA) of each list.

    `P-IA@k = mean(relevant items in the top k / slots for each subtopic)`

    where the mean is over the subtopics with relevant items.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if
    its labels are below 0 for all subtopics, or NaN for one. Labels of shape
    `(batch, list_size)` are those of a single subtopic.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape
            `(batch, list_size, subtopics)`.
        y_pred: as for `keras_rank.functional`: scores of shape `(batch, list_size)`.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        denominator: the number of slots. `"available"`: k, or the number of items of
            the list if that is less (TF-Ranking). `"k"`: always k (ndeval).
            `"retrieved"`: k, or the number of retrieved items if that is less. Defaults
            to `"available"`.
        subtopic_weights: list of numbers. The weight of each subtopic in the mean.
            Defaults to `None`: all are 1.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]]
    >>> value = keras_rank.functional.precision_ia(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Clarke, Craswell and Soboroff, "Overview of the TREC 2009 Web track", 2009.
    """
    weights = check_subtopic_weights(subtopic_weights)
    how = check_k(k), check_choice("denominator", denominator, DENOMINATORS), weights
    formula = Formula(subtopics.mean_precision, how, **_OF_SUBTOPICS)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def subtopic_recall(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the share of the subtopics that the top k of each list cover.

    `SubtopicRecall@k = subtopics with a relevant item in the top k / subtopics`

    where subtopics without relevant items do not count.

    `y_true` has the shape `(batch, list_size, subtopics)`. An item is padding if
    its labels are below 0 for all subtopics, or NaN for one. Labels of shape
    `(batch, list_size)` are those of a single subtopic.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape
            `(batch, list_size, subtopics)`.
        y_pred: as for `keras_rank.functional`: scores of shape `(batch, list_size)`.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[[1, 0], [1, 0], [0, 1]]], [[0.9, 0.5, 0.1]]
    >>> value = keras_rank.functional.subtopic_recall(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Zhai, Cohen and Lafferty, "Beyond independent relevance: methods and evaluation
        metrics for subtopic retrieval", SIGIR 2003.
    """
    formula = Formula(subtopics.share_of_subtopics, **_OF_SUBTOPICS)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)
