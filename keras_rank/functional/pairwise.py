"""Metrics of relations as functions."""

from typing import Any, Unpack

from keras_rank.arguments import (
    adds_arguments,
    check_left_out,
    check_no_cutoff,
    check_number,
    check_share,
)
from keras_rank.backends import Tensor
from keras_rank.formulas.pairwise import (
    correlation_of_pairs,
    correlation_of_ranks,
    mean_relevant_rank,
    ordered_pairs_over_pairs,
    preferred,
)
from keras_rank.functional.per_list import Formula, FormulaArguments, SharedArguments
from keras_rank.lists.relevance import of_label_above_zero


@adds_arguments(Formula.per_list)
def average_relevance_position(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    empty_value: float | None = None,
    relevance_threshold: float | None = 1.0,
    **arguments: Unpack[SharedArguments],
) -> Tensor:
    """Computes the mean rank of the relevant items of each list, weighted by label.

    `ARP = sum(label * rank) / sum(label)` over the relevant items

    Lower is better. A relevant item that was not retrieved, or is below rank k, counts
    as if at rank k + 1, or last in its list.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        empty_value: must be `None`: a list with no relevant items gives NaN.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, 1 or more. A list with no relevant item gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.average_relevance_position(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '2.0000'

    Reference:
        Zhu and Klabjan, "Listwise learning to rank by exploring unique ratings",
        WSDM 2020.
    """
    check_left_out(empty_value)
    formula = Formula(mean_relevant_rank, relevance_from=of_label_above_zero)
    return formula.per_list(
        y_true,
        y_pred,
        sample_weight,
        k,
        empty_value=None,
        relevance_threshold=relevance_threshold,
        **arguments,
    )


@adds_arguments(Formula.per_list)
def _by_label(
    formula: Formula,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    k: int | None,
    *,
    empty_value: float | None = None,
    relevance_threshold: float | None = None,
    **arguments: Unpack[SharedArguments],
) -> Tensor:
    """Computes a formula that compares labels, given the threshold first."""
    check_left_out(empty_value)
    threshold = check_number("relevance_threshold", relevance_threshold)
    formula = formula._replace(
        arguments=(threshold, *formula.arguments),
        relevance_from=lambda threshold: (preferred, threshold),
        compares_labels=True,
    )
    return formula.per_list(
        y_true,
        y_pred,
        sample_weight,
        k,
        relevance_threshold=threshold,
        empty_value=None,
        **arguments,
    )


@adds_arguments(_by_label)
def pairwise_accuracy(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    tied_value: float = 0.5,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the share of pairs of each list that the scores order correctly.

    `PA = (correct pairs + tied_value * tied pairs) / pairs with different labels`

    With binary labels it is the area under the ROC curve of the list, and its mean
    weighted by list is GAUC. A pair whose better item was not retrieved is not in the
    right order. With a cutoff, all items scored below the k-th count as tied. With
    `sparse_labels` there can be no cutoff, as the number of these items is not known.
    A pair has the weight of its item with the higher label. Labels are compared in
    float64 if they come in 64 bits. JAX has these only if they are enabled: without,
    labels that tie in float32 are an error in eager code.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        tied_value: float from 0 to 1. How much a tied pair counts. Defaults to 0.5, the
            mean over both orders. 0.0 counts it as ordered wrongly (TF-Ranking, rax).
        shuffle_ties: has no effect: `tied_value` says how much a tied pair counts.
        seed: has no effect.
        empty_value: must be `None`: a list with no such pair gives NaN.
        relevance_threshold: float. Labels below it count as 0. Defaults to `None`.
        **arguments: as for `keras_rank.functional`: sample_weight, sparse_labels,
            dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list with no such pair gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.pairwise_accuracy(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.6000'

    Reference:
        Fawcett, "An introduction to ROC analysis", Pattern Recognition Letters
        27(8), 2006.
    """
    tied = check_share("tied_value", tied_value)
    formula = Formula(ordered_pairs_over_pairs, (tied,))
    return _by_label(formula, y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(_by_label)
def kendall_tau(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes Kendall's rank correlation (tau-b) of each list.

    `tau = (ordered - reversed) / sqrt(pairs by label * pairs by score)`

    where pairs by label are those with different labels, and pairs by score those with
    different scores. Items that were not retrieved are tied. Where all scores are tied,
    it is 0, which is that of chance.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: must be `None`: all ranks count.
        shuffle_ties: has no effect: the equation has tied items.
        seed: has no effect.
        empty_value: must be `None`: a list with no different labels gives NaN.
        relevance_threshold: as for `keras_rank.functional.pairwise_accuracy`.
        sparse_labels: must be `False`: all items are compared.
        **arguments: as for `keras_rank.functional`: sample_weight, dtype.

    Returns:
        A tensor of shape `(batch,)`, from -1 to 1. A list with no different labels
        gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.kendall_tau(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.1826'

    Reference:
        Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945.
    """
    check_no_cutoff(k)
    formula = Formula(correlation_of_pairs, takes_sparse_labels=False)
    return _by_label(formula, y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(_by_label)
def spearman_correlation(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes Spearman's rank correlation of each list.

    `rho = sum(x * y) / sqrt(sum(x**2) * sum(y**2))`

    where x and y are the ranks of an item by label and by score, minus their mean. Tied
    items have the mean of their ranks, and so do those that were not retrieved. Where
    all scores are tied, it is 0, which is that of chance.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: must be `None`: all ranks count.
        shuffle_ties: as for `keras_rank.functional.kendall_tau`.
        seed: as for `keras_rank.functional.kendall_tau`.
        empty_value: must be `None`: a list with no different labels gives NaN.
        relevance_threshold: as for `keras_rank.functional.pairwise_accuracy`.
        sparse_labels: as for `keras_rank.functional.kendall_tau`.
        **arguments: as for `keras_rank.functional`: sample_weight, dtype.

    Returns:
        A tensor of shape `(batch,)`, from -1 to 1. A list with no different labels
        gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.spearman_correlation(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.3162'

    Reference:
        Spearman, "The proof and measurement of association between two things",
        American Journal of Psychology 15(1), 1904.
    """
    check_no_cutoff(k)
    formula = Formula(correlation_of_ranks, takes_sparse_labels=False)
    return _by_label(formula, y_true, y_pred, sample_weight, k, **arguments)
