"""Checks of the lists for problems that make the values of metrics misleading."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import MetricInfo
from keras_rank.evaluation.lists.result_columns import (
    AGREEMENT,
    HEALTH,
    LABEL_SUM,
    ORDERS,
    SPREAD,
)
from keras_rank.evaluation.report.intervals import Values
from keras_rank.evaluation.report.table import Marks, Table, select_columns


class Check(NamedTuple):
    """The result of a check of all lists.

    Attributes:
        check: the name of the check.
        lists: the number of affected lists.
        share: the share of affected lists, or another number to check.
        threshold: the limit of the share.
        warning: the problem, or an empty string if the check passes.
        worst: the value of the metric with the worst order of tied items.
        average: the mean value of the metric over all orders of tied items.
        best: the value of the metric with the best order of tied items.
    """

    check: str
    lists: int
    share: float
    threshold: float
    warning: str
    worst: float | None = None
    average: float | None = None
    best: float | None = None


# If most lists have fewer judgments, most retrieved items are unjudged in any system.
_FEW_JUDGMENTS = 10
# If judgments are few, the ids of judgments and run probably differ only if this share
# of the lists has no judged item.
_FEW_JUDGMENTS_SHARE = 0.98

# Checks of a column with a number for each list. A key holds the name of the check, the
# column, the number that affected lists have (`None`: any number above 0), and the
# share of lists that may be affected. The value is the warning if more lists are
# affected. A check is omitted if the table lacks the column.
_LIST_CHECKS = {
    ("every item relevant", "only relevant", None, 0.5): "have only relevant items: "
    "metrics such as map and mrr are 1 in any order. Are irrelevant items missing, or "
    "is `relevance_threshold` too low?",
    ("one item", "items", 1, 0.5): "have one item, so that there is nothing to order: "
    "does `query` name the column of the lists, not that of the items?",
    ("nothing retrieved", "retrieved", 0, 0.0): "have no items with a score, as if the "
    "model was not run on their queries: they count as lists where nothing was found",
    ("constant scores", "constant", None, 0.01): "have the same score "
    "for all items: their order says nothing about the model",
    ("NaN scores", "nan", None, 0.0): "have scores that are NaN: these items count as "
    "not retrieved",
    ("nothing judged", "unjudged", None, 0.5): "have no judged items with a score: do "
    "the judgments and the run have the same item ids?",
    ("duplicated items", "duplicates", None, 0.0): "have duplicate items: each "
    "occurrence counts",
    ("several files", "files", None, 0.0): "have rows in several files, all of which "
    "are one table: are their scores of one model? With `item`, duplicates are errors",
    ("negative labels", "negative", None, 0.0): "have labels below 0, which are "
    "padding: subtract the lowest label, as only the order of labels counts to metrics "
    "that compare them",
    ("items without weight", "weightless", None, 0.0): "have items with a weight of 0 "
    "or less, which are left out",
    ("truncated labels", "fractional labels", None, 0.0): "have labels that are "
    "fractions, which trec_eval truncates: 0.5 counts as 0, and 1.9 as 1",
}


# The warning about lists without relevant items for metrics whose mean includes these
# lists, the warning for metrics whose mean leaves them out, and the addition for labels
# that are too low for a threshold.
_NOTHING_RELEVANT = (
    "have no relevant items for {}: all orders of their items are equally good, so "
    "they change the mean in the same way for any model"
)
_LEFT_OUT = (
    "have no relevant items, or no different labels, for {}: all orders of their items "
    "are equally good, so its mean leaves them out"
)
_BELOW_THRESHOLD = (
    ". The labels above 0 of {} of them are below `relevance_threshold`, {:g}"
)
# Checks of scores, whose share is relative to the lists with retrieved items.
_RESULT_CHECKS = ("constant scores", "nothing judged")
# The prefix of the names of the checks of ties. The name of the metric follows.
_TIE_PREFIX = "ties of "
# Prefixes of checks that a run always passes: the items of its lists are those that
# were retrieved from a collection, or judged.
_TABLE_CHECKS = ("one item", "shorter than")


def compute_checks(lists: ListTable) -> list[Check]:
    """Returns all checks. The checks of the order of tied items come last.

    Args:
        lists: the values of lists, with the columns of health.
    """
    if lists.rules == AGREEMENT:
        return []
    columns = lists.health
    if not lists.has_health:
        raise ValueError(
            "`table` should have the columns of health, which `per_list` leaves out: "
            "save evaluations with `write`. Received: the columns "
            f"{lists.table.column_names}"
        )
    # Lists of padding are not checked, as means leave them out.
    has_items = columns["items"] > 0
    if not has_items.any():
        return []
    columns = {name: values[has_items] for name, values in columns.items()}
    checks = [*_check_relevance(columns, lists.metrics), *_check_lists(columns)]
    for k in sorted({metric.k for metric in lists.metrics if metric.k is not None}):
        checks += _check_cutoff(columns, k)
    if lists.rules is not None:
        checks = [
            x._replace(threshold=1.0, warning="")
            if x.check.startswith(_TABLE_CHECKS)
            else x
            for x in checks
        ]
    tied = int(np.sum(columns["ties"]))
    for metric in lists.metrics:
        name, indices = metric.name, np.flatnonzero(~np.isnan(lists.array(metric.name)))
        worst, average, best = (
            Values.from_table(lists, metric, SPREAD.format(name, order))
            .mean(indices)
            .number
            for order in ORDERS
        )
        # The average is NaN for a metric that has no formula for it.
        average_text = f", and {average:.4f} on average" * (not np.isnan(average))
        warning = (
            f"have tied items: {name} is {worst:.4f} with their worst order, "
            f"{best:.4f} with the best one{average_text}"
        )
        share = abs(best - worst)
        # If the metric leaves out all lists, the share is NaN, and the check passes.
        fields = _TIE_PREFIX + name, tied, share, 0.01, warning * (share > 0.01)
        checks.append(Check(*fields, worst, average, best))
    return checks


def get_warnings(lists: ListTable) -> list[str]:
    """Returns the warnings, or none if the table lacks the columns of health."""
    return _format_warnings(lists, compute_checks(lists)) if lists.has_health else []


def _format_warnings(lists: ListTable, checks: Sequence[Check]) -> list[str]:
    """Returns the warnings of failed checks, of left-out queries, and of reading."""
    if lists.rules == AGREEMENT:
        return []
    num_with_items = int(np.sum(lists.array(HEALTH + "items") > 0))
    failed = [check for check in checks if check.warning]
    # The same lists have ties for all metrics, so there is one warning about ties.
    tie_checks = [check for check in failed if check.worst is not None]
    if tie_checks:
        failed = [check for check in failed if check.worst is None] + tie_checks[:1]
    other_metrics = ", ".join(x.check.removeprefix(_TIE_PREFIX) for x in tie_checks[1:])
    warnings = [
        f"Warning: {check.lists} of {num_with_items} lists {check.warning}"
        + "." * (not check.warning.endswith("?"))
        for check in failed
    ]
    if other_metrics:
        warnings[-1] += f" Their order also changes {other_metrics}: see `health`."
    if num_with_items < len(lists):
        warnings.append(
            f"Warning: lists without a label of 0 or more are left out of the means "
            f"({len(lists) - num_with_items} of {len(lists)})."
        )
    if lists.left_out:
        warnings.append(
            "Warning: queries of the run without judgments are left out "
            f"({lists.left_out}){lists.left_out_examples}."
        )
    warnings += [f"Warning: {warning}." for warning in lists.reading_warnings]
    return warnings


def create_checks_table(lists: ListTable) -> Table:
    """Returns a table of all checks, with the warnings as notes."""
    checks = compute_checks(lists)
    names = ("check", "lists", "share", "threshold", *ORDERS)
    columns = select_columns([check._asdict() for check in checks], names)
    marks = Marks("share", [bool(check.warning) for check in checks])
    return Table(columns, notes=_format_warnings(lists, checks), marks=marks)


def _check_relevance(
    columns: dict[str, Array], metrics: Sequence[MetricInfo]
) -> Iterator[Check]:
    """Yields checks of how many lists have no relevant items.

    Metrics for which the same lists have no relevant items share a check.
    """
    metrics_by_relevance: dict[Any, list[MetricInfo]] = {}
    for metric in metrics:
        relevant = columns.get(f"{metric.name}/relevant")
        # Fall-out counts irrelevant items, and the order of items does not change sums,
        # so lists without relevant items do not distort these metrics.
        is_checked = metric.class_name != "FallOut" and metric.reduction != "sum"
        if relevant is not None and is_checked:
            key = relevant.tobytes(), metric.empty_value is None
            metrics_by_relevance.setdefault(key, []).append(metric)
    for group in metrics_by_relevance.values():
        has_nothing_relevant = ~columns[f"{group[0].name}/relevant"]
        names = ", ".join(metric.name for metric in group)
        is_left_out = group[0].empty_value is None
        warning = (_LEFT_OUT if is_left_out else _NOTHING_RELEVANT).format(names)
        thresholds = [_get_argument(metric, "relevance_threshold") for metric in group]
        num_too_low = int(np.sum(has_nothing_relevant & (columns[LABEL_SUM] > 0.0)))
        if any(thresholds) and num_too_low:
            warning += _BELOW_THRESHOLD.format(
                num_too_low, min(filter(None, thresholds))
            )
        name = "nothing relevant" + f" to {names}" * (len(metrics_by_relevance) > 1)
        yield _create_check(has_nothing_relevant, name, 0.1, warning)


def _get_argument(metric: MetricInfo, name: str) -> Any:
    """Returns an argument of a metric, or `None` if it is not known."""
    return (metric.definition or {}).get(name)


def _check_lists(columns: dict[str, Array]) -> Iterator[Check]:
    """Yields the checks of `_LIST_CHECKS` whose columns the table has."""
    has_few = _has_few_judgments(columns, _FEW_JUDGMENTS)
    for (name, column, number, threshold), warning in _LIST_CHECKS.items():
        if column in columns:
            values = columns[column]
            is_affected = values > 0 if number is None else values == number
            if has_few and name == "nothing judged":
                threshold = _FEW_JUDGMENTS_SHARE
            num_retrieved = columns.get("retrieved") if name in _RESULT_CHECKS else None
            total = None if num_retrieved is None else int(np.sum(num_retrieved > 0))
            yield _create_check(is_affected, name, threshold, warning, total)


def _create_check(
    is_affected: Array,
    name: str,
    threshold: float,
    warning: str,
    total: int | None = None,
) -> Check:
    """Returns a check of how many lists are affected by a problem.

    Args:
        is_affected: bool array of shape `(lists,)`.
        name: the name of the check.
        threshold: the share of lists that may be affected.
        warning: the warning if more lists are affected.
        total: the number of lists that the share is relative to. Defaults to `None`:
            all lists.
    """
    num_affected = int(np.sum(is_affected))
    share = num_affected / max(1, len(is_affected) if total is None else total)
    return Check(name, num_affected, share, threshold, warning * (share > threshold))


def _has_few_judgments(columns: dict[str, Array], limit: int) -> bool:
    """Returns whether most lists have fewer judgments than `limit` and than items."""
    judged = columns["judged"]
    return bool(np.mean((judged < limit) & (judged < columns["items"])) > 0.5)


def _check_cutoff(columns: dict[str, Array], k: int) -> list[Check]:
    """Returns the checks of the first `k` items."""
    # The share is NaN for a list without retrieved items.
    judged = columns[f"judged@{k}"]
    judged = judged[~np.isnan(judged)]
    share = float(np.mean(judged)) if len(judged) else 1.0
    # If most lists have fewer than k judgments, unjudged items are expected.
    threshold = 0.0 if _has_few_judgments(columns, k) else 0.9
    short_warning = f"have fewer than {k} items, all of which are in their top {k}"
    tied_warning = (
        f"have the same score at ranks {k} and {k + 1}: which items are in their top "
        f"{k} depends on the order of tied items"
    )
    unjudged_warning = (
        f"have items without a judgment in their top {k}, {1.0 - share:.0%} on "
        "average: these count as irrelevant, but may not be"
    )
    lists, warning = int(np.sum(judged < 1.0)), unjudged_warning * (share < threshold)
    return [
        _create_check(columns["items"] < k, f"shorter than {k}", 0.5, short_warning),
        _create_check(columns[f"tied@{k}"] > 0, f"tied at {k}", 0.05, tied_warning),
        Check(f"judged@{k}", lists, share, threshold, warning),
    ]
