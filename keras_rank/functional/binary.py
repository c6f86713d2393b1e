"""Metrics of binary relevance as functions."""

import functools
from typing import Any, Unpack

from keras_rank.arguments import (
    DENOMINATORS,
    NORMALIZERS,
    RECALL_NORMALIZERS,
    adds_arguments,
    check_above_zero,
    check_choice,
    check_flag,
    check_fraction,
    check_k,
)
from keras_rank.backends import Tensor
from keras_rank.formulas.binary import (
    any_hit,
    discounted_hits,
    hits_at_relevant_count,
    hits_over_relevant,
    hits_over_slots,
    hits_over_slots_and_relevant,
    irrelevant_above_relevant,
    precisions_at_relevant_ranks,
    precisions_to_relevant_count,
    reciprocal_of_first_relevant,
)
from keras_rank.functional.per_list import Formula, FormulaArguments
from keras_rank.lists.relevance import below_threshold, from_threshold, of_gain
from keras_rank.worth import Function, check_graded


@adds_arguments(Formula.per_list)
def average_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    normalizer: str = "total",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the average precision of each list.

    `AP@k = sum(weight(r) * relevant(r) * precision@r for r in 1..k) / normalizer`

    where `relevant(r)` is 1 if the item at rank r is relevant, else 0.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        normalizer: what the sum is divided by. `"total"`: the weights of all relevant
            items, that is, their number R without weights (trec_eval, keras-rs,
            TF-Ranking). `"clipped"`: those of the best k, that is, min(R, k) (ignite,
            Kaggle). `"retrieved"`: the number of relevant items within the top k
            (torchmetrics); the terms are not weighted then. Defaults to `"total"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.average_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.7500'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """
    formula = Formula(
        precisions_at_relevant_ranks,
        (check_choice("normalizer", normalizer, NORMALIZERS),),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def reciprocal_rank(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the reciprocal rank of the first relevant item of each list.

    `RR@k = 1 / rank of the first relevant item`

    or 0 if none is within the top k.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

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
    formula = Formula(reciprocal_of_first_relevant)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    denominator: str = "available",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the share of the top k items of each list that are relevant.

    `P@k = relevant items in the top k / denominator`

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        denominator: `"available"`: the size of the list where that is less than k
            (keras-rs). `"k"`: always k, so that short lists count as filled up with
            irrelevant items (trec_eval). `"retrieved"`: the number of items with a
            rank where that is less than k (LensKit, rax). Defaults to `"available"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.precision(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """
    formula = Formula(
        hits_over_slots,
        (check_k(k), check_choice("denominator", denominator, DENOMINATORS)),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def recall(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    normalizer: str = "total",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the share of the relevant items of each list that are in the top k.

    `R@k = relevant items in the top k / normalizer`

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        normalizer: what the hits are divided by. `"total"`: the number R of relevant
            items. `"clipped"`: min(R, k), so that a list with more than k of them may
            score 1 (BEIR, LensKit). Defaults to `"total"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.recall(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """
    formula = Formula(
        hits_over_relevant,
        (check_choice("normalizer", normalizer, RECALL_NORMALIZERS),),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def hit_rate(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes whether a relevant item is in the top k of each list.

    `HR@k = 1 if any item in the top k is relevant, else 0`

    It is also known as success@k, and as top-k accuracy where one item is relevant.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, 0 or 1, or in between with averaged ties. A list
        of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.hit_rate(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '1.0000'
    """
    formula = Formula(any_hit)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def f1(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    denominator: str = "available",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the harmonic mean of precision and recall at k of each list.

    `F1@k = 2 * P@k * R@k / (P@k + R@k)`

    or 0 where both are 0.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        denominator: that of the precision. `"available"`: the size of the list
            where that is less than k. `"k"`: always k. `"retrieved"`: the number of
            items with a rank where that is less than k. Defaults to `"available"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.f1(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        McSherry and Najork, "Computing information retrieval performance measures
        efficiently in the presence of tied scores", ECIR 2008.
    """
    formula = Formula(
        hits_over_slots_and_relevant,
        (check_k(k), check_choice("denominator", denominator, DENOMINATORS), 1.0),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def f_beta(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    beta: float = 2.0,
    denominator: str = "available",
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the weighted harmonic mean of precision and recall at k of each list.

    `F@k = (1 + beta**2) * P@k * R@k / (beta**2 * P@k + R@k)`

    or 0 where both are 0.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        beta: float above 0. How many times as important as precision recall is.
            Defaults to 2.0.
        denominator: that of the precision. `"available"`: the size of the list
            where that is less than k. `"k"`: always k. `"retrieved"`: the number of
            items with a rank where that is less than k. Defaults to `"available"`.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.f_beta(labels, scores, k=1)
    >>> f"{float(value[0]):.4f}"
    '0.5556'

    Reference:
        van Rijsbergen, "Information retrieval", chapter 7, 1979.
    """
    formula = Formula(
        hits_over_slots_and_relevant,
        (
            check_k(k),
            check_choice("denominator", denominator, DENOMINATORS),
            check_above_zero("beta", beta),
        ),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def r_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the precision at R, the number of relevant items of each list.

    `R-precision = relevant items in the top R / R`

    With a cutoff below R, the cutoff replaces both Rs.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.r_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Manning, Raghavan and Schütze, "Introduction to information retrieval",
        section 8.4, 2008.
    """
    formula = Formula(hits_at_relevant_count)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def average_precision_at_r(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the average precision at R, the number of relevant items of each list.

    `AP@R = sum(relevant(r) * precision@r for r in 1..R) / R`

    With a cutoff below R, the cutoff replaces both Rs.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.average_precision_at_r(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Musgrave, Belongie and Lim, "A metric learning reality check", ECCV 2020.
    """
    formula = Formula(precisions_to_relevant_count)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def rank_biased_precision(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    persistence: float = 0.8,
    normalized: bool = False,
    gain_fn: str | Function | None = None,
    max_grade: float | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the rank-biased precision of each list.

    `RBP@k = (1 - p) * sum(relevant(r) * p**(r - 1) for r in 1..k)`

    where p, the persistence, is the probability that a user goes on to the next rank.
    With a `gain_fn`, `gain(label) / gain(max_grade)` replaces `relevant(r)`.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        persistence: float between 0 and 1. Defaults to 0.8.
        normalized: bool. Whether the sum is divided by the largest one that the same
            relevant items could have, as in NDCG, so that the best order scores 1.
            Defaults to `False`.
        gain_fn: function from labels to gains, or `"exponential"` or `"linear"`.
            Defaults to `None`: an item is relevant or not.
        max_grade: number above 0. The highest possible label, to be given with a
            `gain_fn`. A larger one is an error in eager code. In compiled code, values
            are cut at 1. Defaults to `None`.
        relevance_threshold: float. Labels below it gain nothing. Defaults to 1.0
            without a `gain_fn`, and to `None` with one.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, sparse_labels, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. Unless normalized, it is below 1, up
        to rounding. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.rank_biased_precision(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.3024'

    Reference:
        Moffat and Zobel, "Rank-biased precision for measurement of retrieval
        effectiveness", ACM TOIS 27(1), 2008.
    """
    gain, grade = check_graded(gain_fn, max_grade)
    if gain is not None:
        arguments.setdefault("relevance_threshold", None)
    formula = Formula(
        discounted_hits,
        (
            check_fraction("persistence", persistence),
            check_flag("normalized", normalized),
            gain,
            grade,
        ),
        from_threshold if gain is None else functools.partial(of_gain, gain),
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def bpref(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the binary preference (bpref) of each list.

    `bpref = sum(1 - min(irrelevant above, M) / M for relevant items) / R`

    where R items are relevant, N are irrelevant, and M is the smaller of both numbers.
    An item without a judgment has the label -1: it is padding, and takes no rank. A
    relevant item that was not retrieved, or is below rank k, adds nothing.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        sparse_labels: must be `False`: this metric needs the labels of all items.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            empty_value, relevance_threshold, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, -1, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.bpref(labels, scores)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Buckley and Voorhees, "Retrieval evaluation with incomplete information",
        SIGIR 2004; min(R, N) instead of R as in trec_eval.
    """
    formula = Formula(irrelevant_above_relevant, takes_sparse_labels=False)
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)


@adds_arguments(Formula.per_list)
def fall_out(
    y_true: Any,
    y_pred: Any = None,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    **arguments: Unpack[FormulaArguments],
) -> Tensor:
    """Computes the share of the irrelevant items of each list that are in the top k.

    `fall-out@k = irrelevant items in the top k / irrelevant items`

    It is the false positive rate: lower is better. Lists without irrelevant items count
    as empty.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        empty_value: float. The value of a list that has items, but no irrelevant ones.
            Defaults to 0.0. `None` gives NaN.
        sparse_labels: must be `False`: this metric needs the labels of all items.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            relevance_threshold, dtype.

    Returns:
        A tensor of shape `(batch,)`, from 0 to 1. A list of padding only gives NaN.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> labels, scores = [[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]]
    >>> value = keras_rank.functional.fall_out(labels, scores, k=2)
    >>> f"{float(value[0]):.4f}"
    '0.5000'

    Reference:
        Manning, Raghavan and Schütze, "Introduction to information retrieval",
        section 8.4, 2008.
    """
    formula = Formula(
        hits_over_relevant, relevance_from=below_threshold, takes_sparse_labels=False
    )
    return formula.per_list(y_true, y_pred, sample_weight, k, **arguments)
