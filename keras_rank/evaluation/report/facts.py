"""What an evaluation found, and how it was made, in words."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras_rank
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import Measured
from keras_rank.evaluation.lists.provenance import stamp_of
from keras_rank.evaluation.report import plots
from keras_rank.evaluation.report.how import CORRECTIONS, TESTS, How
from keras_rank.evaluation.report.summary import notes_of_labels, rules_of
from keras_rank.evaluation.report.table import Table


def counts_of(lists: ListTable) -> str:
    """The numbers of lists and items."""
    found, items = counted(len(lists), "list"), lists.health_of("items")
    return found if items is None else f"{found}, {counted(int(items.sum()), 'item')}"


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def tests_of(how: How) -> str:
    """What p is, in a comparison."""
    units = "" if how.cluster is None else f" of lists clustered by {how.cluster}"
    corrected = "It is not corrected for the number of comparisons."
    if how.correction is not None:
        method = f"{CORRECTIONS[how.correction]}'s method"
        corrected = f"corrected_p is corrected for all rows by {method}."
    return (
        "A difference is the new value minus that of the baseline, list by list. p is "
        f"that of the {TESTS[how.test]}{units}: the probability that chance alone "
        f"gives such a difference, or a larger one. {corrected}"
    )


def result_of(lists: ListTable, table: Table, how: How) -> str:
    """The first row of a summary, or of a comparison, in a sentence."""
    row = table.rows[0]
    is_up = lists.measured(row["metric"]).direction == "up"
    name = row["metric"] + " (lower is better)" * (not is_up)
    if math.isnan(row["value"]):
        return f"{name} has no value, as no list counts."
    value = f"{name} is {row['value']:.4f}"
    if row["lists"] < len(lists):
        value += f" over {row['lists']:,} of {counted(len(lists), 'list')}"
    if "difference" not in row:
        return f"{value}{_interval_of(row, how)}."
    change = row["difference"]
    side = "above" if change >= 0.0 else "below"
    verdict = "not a significant difference"
    if table.marks.are_marked[0]:
        verdict = f"significantly {'better' if is_up == (change > 0) else 'worse'}"
    p = plots.written_p(table)[0].rstrip("*")
    if p and how.correction is not None:
        p = f"corrected {p}"
    return (
        f"{value}, which is {abs(change):.4f} {side} the baseline's "
        f"{row['baseline']:.4f}: {verdict}{p and f' ({p})'}."
    )


def _interval_of(row: Mapping[str, Any], how: How) -> str:
    if math.isnan(row["low"]):
        return ""
    return (
        f", with a {100 * how.confidence:g}% confidence interval from "
        f"{row['low']:.4f} to {row['high']:.4f}"
    )


def facts_of(lists: ListTable, how: How) -> Iterator[tuple[str, str]]:
    """Yields names and values of what an evaluation is, and how it was made."""
    stamp = stamp_of(lists.table)
    yield "Data", f"{counts_of(lists)}; lists by {lists.query}"
    if lists.left_out:
        number = counted(lists.left_out, "list")
        yield "Left out", f"{number} without judgments{lists.some_left_out}"
    if lists.rules is not None:
        yield "Rules", rules_of(lists.rules)
    for note in notes_of_labels(lists):
        yield "Labels", note
    for metric in lists.metrics:
        yield metric.name, _definition_of(metric)
    for order in dict.fromkeys(stamp["ties"].values()):
        names = [name for name, x in stamp["ties"].items() if x == order]
        of = "" if len(names) == len(stamp["ties"]) else f" ({', '.join(names)})"
        yield "Tied items", order + of
    units = "independent lists"
    if how.cluster is not None:
        units = f"lists clustered by {how.cluster}"
    kind = "Student's t, or Wilson's if all values are 0 or 1"
    yield "Intervals", f"{100 * how.confidence:g}%, of {units}: {kind}"
    versions = ", ".join(map(" ".join, stamp["versions"].items()))
    yield "Evaluated by", versions or "an unknown version of keras_rank"
    yield "Page by", f"keras_rank {keras_rank.__version__}"


def _definition_of(metric: Measured) -> str:
    """The class of a metric and its arguments."""
    if metric.definition is None:
        return "a metric that is defined by a function"
    shown = {
        name: value.get("config", value) if isinstance(value, dict) else value
        for name, value in metric.definition.items()
        if name != "class_name" and value is not None and value is not False
    }
    arguments = ", ".join(f"{name}={value}" for name, value in shown.items())
    return f"{metric.definition['class_name']}({arguments})"
