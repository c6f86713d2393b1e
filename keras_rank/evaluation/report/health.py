"""Checks of the lists: reasons to mistrust a number."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import Measured
from keras_rank.evaluation.lists.result_columns import HEALTH, LABEL_SUM, ORDERS, SPREAD
from keras_rank.evaluation.report.intervals import Values
from keras_rank.evaluation.report.table import Marks, Table, columns_of


class Check(NamedTuple):
    """A check of all lists.

    Attributes:
        check: its name.
        lists: the number of affected lists.
        share: their share of all lists, or another number to check.
        threshold: the limit of the share.
        warning: what is wrong, empty if nothing is.
        worst: the value with the worst order of tied items.
        average: that on average over all orders.
        best: that with the best one.
    """

    check: str
    lists: int
    share: float
    threshold: float
    warning: str
    worst: float | None = None
    average: float | None = None
    best: float | None = None


# With fewer judgments than this in most lists, most items have none in any system.
_FEW_JUDGMENTS = 10
# Then only this share of lists without any judgment indicates that ids differ.
_NEARLY_ALL = 0.98

# Checks of a column with a number for each list: the name of the check, the column, the
# number to look for, `None` for any but 0, the share of lists that may have it, and the
# warning if more do. Without the column there is no check.
_SOUGHT = {
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


# The first warnings: of metrics to which such lists count, and of those which leave
# them out. Then of lists whose labels are too low for a threshold.
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
# The checks of scores, of which lists without results have none.
_OF_RESULTS = ("constant scores", "nothing judged")
# The start of the checks of ties, which metrics follow.
_TIES = "ties of "
# Checks that a run does not fail: its items are those found in a collection, or judged.
_NOT_OF_RUNS = ("one item", "shorter than")


def checks_of(lists: ListTable) -> list[Check]:
    """All checks. The last ones are those of the order of tied items.

    Args:
        lists: the values of lists, with the columns of health.
    """
    columns = lists.health
    if not lists.has_health:
        raise ValueError(
            "`table` should have the columns of health, which `per_list` leaves out: "
            "save evaluations with `write`. Received: the columns "
            f"{lists.table.column_names}"
        )
    # A list of padding has no problems of its own.
    has_items = columns["items"] > 0
    if not has_items.any():
        return []
    columns = {name: values[has_items] for name, values in columns.items()}
    checks = [*_checks_of_relevance(columns, lists.metrics), *_checks_of_lists(columns)]
    for k in sorted({metric.k for metric in lists.metrics if metric.k is not None}):
        checks += _checks_of_cutoff(columns, k)
    if lists.rules is not None:
        checks = [
            x._replace(threshold=1.0, warning="")
            if x.check.startswith(_NOT_OF_RUNS)
            else x
            for x in checks
        ]
    tied = int(np.sum(columns["ties"]))
    for metric in lists.metrics:
        name, counted = metric.name, np.flatnonzero(~np.isnan(lists.array(metric.name)))
        worst, average, best = (
            Values.of(lists, metric, SPREAD.format(name, order)).mean(counted).number
            for order in ORDERS
        )
        # A metric may have none.
        on_average = f", and {average:.4f} on average" * (not np.isnan(average))
        warning = (
            f"have tied items: {name} is {worst:.4f} with their worst order, "
            f"{best:.4f} with the best one{on_average}"
        )
        share = abs(best - worst)
        # It is NaN, which passes, for a metric that leaves out all lists.
        found = _TIES + name, tied, share, 0.01, warning * (share > 0.01)
        checks.append(Check(*found, worst, average, best))
    return checks


def warnings_of(lists: ListTable) -> list[str]:
    """The warnings, none of a table that lacks the columns of health."""
    return _warnings_of(lists, checks_of(lists)) if lists.has_health else []


def _warnings_of(lists: ListTable, checks: Sequence[Check]) -> list[str]:
    """The warnings of failed checks, and of queries that were left out."""
    with_items = int(np.sum(lists.array(HEALTH + "items") > 0))
    failed = [check for check in checks if check.warning]
    # That of ties is the same for all metrics.
    of_ties = [check for check in failed if check.worst is not None]
    if of_ties:
        failed = [check for check in failed if check.worst is None] + of_ties[:1]
    others = ", ".join(x.check.removeprefix(_TIES) for x in of_ties[1:])
    warnings = [
        f"Warning: {check.lists} of {with_items} lists {check.warning}"
        + "." * (not check.warning.endswith("?"))
        for check in failed
    ]
    if others:
        warnings[-1] += f" Their order also changes {others}: see `health`."
    if with_items < len(lists):
        warnings.append(
            f"Warning: lists without a label of 0 or more are left out of the means "
            f"({len(lists) - with_items} of {len(lists)})."
        )
    if lists.left_out:
        warnings.append(
            "Warning: queries of the run without judgments are left out "
            f"({lists.left_out}){lists.some_left_out}."
        )
    warnings += [f"Warning: {warning}." for warning in lists.reading_warnings]
    return warnings


def table_of_checks(lists: ListTable) -> Table:
    """The table of all checks, with warnings as its notes."""
    checks = checks_of(lists)
    names = ("check", "lists", "share", "threshold", *ORDERS)
    found = columns_of([check._asdict() for check in checks], names)
    marks = Marks("share", [bool(check.warning) for check in checks])
    return Table(found, notes=_warnings_of(lists, checks), marks=marks)


def _checks_of_relevance(
    columns: dict[str, Array], metrics: Sequence[Measured]
) -> Iterator[Check]:
    """Yields a check for each set of metrics to which the same lists have nothing."""
    alike: dict[Any, list[Measured]] = {}
    for metric in metrics:
        relevant = columns.get(f"{metric.name}/relevant")
        # To fall-out, what is not relevant counts, and to sums the order does not.
        is_one = metric.class_name != "FallOut" and metric.reduction != "sum"
        if relevant is not None and is_one:
            key = relevant.tobytes(), metric.empty_value is None
            alike.setdefault(key, []).append(metric)
    for same in alike.values():
        has = ~columns[f"{same[0].name}/relevant"]
        names = ", ".join(metric.name for metric in same)
        left_out = same[0].empty_value is None
        warning = (_LEFT_OUT if left_out else _NOTHING_RELEVANT).format(names)
        levels = [_argument(metric, "relevance_threshold") for metric in same]
        too_low = int(np.sum(has & (columns[LABEL_SUM] > 0.0)))
        if any(levels) and too_low:
            warning += _BELOW_THRESHOLD.format(too_low, min(filter(None, levels)))
        name = "nothing relevant" + f" to {names}" * (len(alike) > 1)
        yield _share_of(has, name, 0.1, warning)


def _argument(metric: Measured, name: str) -> Any:
    """An argument of a metric, or its class, as far as it is known."""
    return (metric.definition or {}).get(name)


def _checks_of_lists(columns: dict[str, Array]) -> Iterator[Check]:
    """Yields the checks of lists, by columns, of which those not known are missing."""
    has_few = _has_few_judgments(columns, _FEW_JUDGMENTS)
    for (name, column, number, threshold), warning in _SOUGHT.items():
        if column in columns:
            values = columns[column]
            has = values > 0 if number is None else values == number
            if has_few and name == "nothing judged":
                threshold = _NEARLY_ALL
            of_results = columns.get("retrieved") if name in _OF_RESULTS else None
            among = None if of_results is None else int(np.sum(of_results > 0))
            yield _share_of(has, name, threshold, warning, among)


def _share_of(
    has: Array, name: str, threshold: float, warning: str, among: int | None = None
) -> Check:
    """A check of how many lists have something, among all or so many of them."""
    lists = int(np.sum(has))
    share = lists / max(1, len(has) if among is None else among)
    return Check(name, lists, share, threshold, warning * (share > threshold))


def _has_few_judgments(columns: dict[str, Array], few: int) -> bool:
    """Whether most lists have few judgments, and more items than judgments."""
    judged = columns["judged"]
    return bool(np.mean((judged < few) & (judged < columns["items"])) > 0.5)


def _checks_of_cutoff(columns: dict[str, Array], k: int) -> list[Check]:
    """The checks of the first k items."""
    # Missing where nothing was retrieved.
    judged = columns[f"judged@{k}"]
    judged = judged[~np.isnan(judged)]
    share = float(np.mean(judged)) if len(judged) else 1.0
    # If there are few judgments anyway, unjudged items are no reason for a warning.
    threshold = 0.0 if _has_few_judgments(columns, k) else 0.9
    short = f"have fewer than {k} items, all of which are in their top {k}"
    tied = (
        f"have the same score at ranks {k} and {k + 1}: which items are in their top "
        f"{k} depends on the order of tied items"
    )
    missing = (
        f"have items without a judgment in their top {k}, {1.0 - share:.0%} on "
        "average: these count as irrelevant, but may not be"
    )
    lists, warning = int(np.sum(judged < 1.0)), missing * (share < threshold)
    return [
        _share_of(columns["items"] < k, f"shorter than {k}", 0.5, short),
        _share_of(columns[f"tied@{k}"] > 0, f"tied at {k}", 0.05, tied),
        Check(f"judged@{k}", lists, share, threshold, warning),
    ]
