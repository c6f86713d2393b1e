"""The mean of each metric, over all lists or by slices, with its error."""

from collections.abc import Sequence

import numpy as np

from keras_rank.arguments import check_fraction
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import intervals, slices
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
    clusters = slices.clusters_of(lists, cluster)
    rows = []
    for slice_, chosen in slices.slices_of(lists, by):
        for metric in lists.metrics:
            of_metric = intervals.Values.of(lists, metric)
            counted = chosen[~np.isnan(of_metric.values[chosen])]
            of_cluster = None if clusters is None else clusters[counted]
            mean = of_metric.mean(counted)
            found = intervals.estimate(mean, of_cluster, confidence)
            if clusters is None and of_metric.are_shares(counted):
                shares = of_metric.values[counted]
                low, high = intervals.share_interval(shares, confidence)
                found = found._replace(low=low, high=high)
            rows.append({**found._asdict(), "metric": metric.name, **slice_})
    name, comma, others = (lists.rules or "").partition(",")
    notes = [f"Rules: {name}{_TOOLS.get(name, '')}{comma}{others}"] if name else []
    if np.any(lists.health.get("truncated labels", 0)):
        notes.append("Labels that are fractions were truncated, as in trec_eval.")
    return table_of(rows, [*by, *_COLUMNS], notes)
