"""The function that compares evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_rank.arguments import names_arguments
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.report.comparison import Comparison, compared
from keras_rank.evaluation.report.how import How


@names_arguments
def compare(
    baseline: Evaluation,
    models: Mapping[str, Evaluation] | Evaluation,
    *,
    by: str | Sequence[str] | None = None,
    test: str = "t",
    correction: str | None = "holm",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compares models with a baseline, list by list.

    Look at the difference and its interval first; p is the probability that chance
    alone gives such a difference, or a larger one. With many lists, nearly every
    difference is significant, but few matter.

    Args:
        baseline: `Evaluation` that the others are compared with.
        models: dict from names to `Evaluation`s of the same queries, or one of these.
            Queries that are not in both are left out, with a note.
        by: str or list of strings. Columns kept in the evaluations of the models:
            there is a comparison for each of their values. Defaults to `None`: one
            over all lists.
        test: `"t"`: the paired t-test, or `"permutation"`: 9,999 draws of random signs
            for the differences, where all but the 8,192 largest are drawn as one sum.
            Defaults to `"t"`.
        correction: the correction for multiple comparisons, over all rows. `"holm"`
            controls the family-wise error rate; `"bh"` and `"by"` control the false
            discovery rate (Benjamini-Hochberg, Benjamini-Yekutieli). `None`: no
            correction. Defaults to `"holm"`.
        cluster: str. A column kept in the evaluations of the models: lists with the
            same value are not independent. Defaults to `None`.
        confidence: float. The confidence level of the intervals. Defaults to 0.95.

    Returns:
        A `Comparison`: a `Table` with the columns `model` (if there are several), those
        of `by`, `metric`, `baseline`, `value`, `difference`, its interval from `low`
        to `high`, `p`, `corrected_p` and `lists`.

    Raises:
        ValueError: if nothing can be compared, metrics of the same name have different
            definitions, or an argument is not one of the accepted values.

    Example:

    >>> from keras_rank.evaluation import compare, evaluate
    >>> rows = {"query_id": [1, 1, 2, 2, 3, 3], "label": [1, 0, 1, 0, 1, 0]}
    >>> base = evaluate({**rows, "score": [1, 2, 1, 2, 2, 1]}, ["mrr"])
    >>> better = evaluate({**rows, "score": [2, 1, 2, 1, 2, 1]}, ["mrr"])
    >>> comparison = compare(base, {"same": base, "better": better})
    >>> for row in comparison:
    ...     print(row["model"], f"{row['difference']:.3f}", f"{row['p']:.3f}")
    same 0.000 1.000
    better 0.333 0.184
    """
    if isinstance(models, Evaluation):
        models = {"": models}
    are_evaluations = isinstance(models, Mapping) and all(
        isinstance(each, Evaluation) for each in (baseline, *models.values())
    )
    if not (are_evaluations and models):
        received: Any = type(models).__name__
        if isinstance(models, Mapping):
            received = {name: type(each).__name__ for name, each in models.items()}
        raise ValueError(
            "`models` should be an evaluation, or a dict from names to evaluations, "
            "and `baseline` an evaluation. Received: baseline of type "
            f"{type(baseline).__name__}, models of type {received}"
        )
    values = {name: model._values for name, model in models.items()}
    how = How.of(by, cluster, confidence, test, correction)
    return compared(baseline._values, values, how)
