"""The mean of each metric, over all lists or by slices, and the worst queries."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keras_rank.arguments import check_fraction, check_positive
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import comparison, slices
from keras_rank.evaluation.report.intervals import Values
from keras_rank.evaluation.report.table import Table, table_of

# The columns of a summary, without those of the slices.
_COLUMNS = ("metric", "value", "standard_error", "low", "high", "lists")
# Whose numbers rules give.
_TOOLS = {"trec_eval": " (version 10)", "trec_eval-9": " (version 9, pytrec_eval)"}


def summarized(
    lists: ListTable, by: str | Sequence[str] | None, cluster: str | None, level: float
) -> Table:
    """Returns the means and their errors, as `Evaluation.summary` does."""
    confidence = check_fraction("confidence", level)
    by = slices.columns_of(lists, by, _COLUMNS)
    metrics = {x.name: (Values.of(lists, x),) for x in lists.metrics}
    rows = [*slices.estimates_of(lists, metrics, by, cluster, confidence)]
    name, comma, others = (lists.rules or "").partition(",")
    notes = [f"Rules: {name}{_TOOLS.get(name, '')}{comma}{others}"] if name else []
    if np.any(lists.health.get("truncated labels", 0)):
        notes.append("Labels that are fractions were truncated, as in trec_eval.")
    return table_of(rows, [*by, *_COLUMNS], notes)


def worst_of(lists: ListTable, name: str, n: int, baseline: ListTable | None) -> Table:
    """Returns the queries, as `Evaluation.worst` does."""
    metric, n = lists.measured(name), check_positive("n", n)
    found = {metric.name: lists.array(metric.name)}
    keys = found[metric.name]
    if baseline is not None:
        taken = {"baseline", "difference"} & {lists.query, *lists.kept}
        if taken:
            raise ValueError(
                "With `baseline`, no column of the evaluation should have the name of "
                "one of the result, baseline or difference. Received: "
                f"{sorted(taken)}"
            )
        places = comparison.places_of(lists, baseline)
        found["baseline"] = comparison.beside(metric, baseline, places).values
        keys = found["difference"] = keys - found["baseline"]
    order = np.argsort(keys if metric.direction == "up" else -keys, kind="stable")
    first = order[:n]
    first = first[~np.isnan(keys[first])]
    columns = lists.table.select([lists.query, *lists.kept]).take(pa.array(first))
    of_metric = {name: values[first].tolist() for name, values in found.items()}
    return Table({**columns.to_pydict(), **of_metric})
