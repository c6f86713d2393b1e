"""The mean of each metric, over all lists or by slices, with its error."""

from collections.abc import Sequence

import numpy as np

from keras_rank.arguments import check_fraction
from keras_rank.evaluation.lists.values import ListValues
from keras_rank.evaluation.report.intervals import Values, estimate, share_interval
from keras_rank.evaluation.report.table import Table, table_of

# The columns of a summary, without those of the slices.
_COLUMNS = ("metric", "value", "standard_error", "low", "high", "lists")
# Whose numbers rules give.
_TOOLS = {"trec_eval": " (version 10)", "trec_eval-9": " (version 9, pytrec_eval)"}


def summarized(
    lists: ListValues, by: str | Sequence[str] | None, cluster: str | None, level: float
) -> Table:
    """Returns the means and their errors, as `Evaluation.summary` does."""
    confidence = check_fraction("confidence", level)
    by, clusters = lists.sliced_by(by, _COLUMNS), lists.clusters(cluster)
    rows = []
    for slice_, chosen in lists.slices(by):
        for metric in lists.metrics:
            of_metric = Values.of(lists, metric)
            counted = chosen[~np.isnan(of_metric.values[chosen])]
            of_cluster = None if clusters is None else clusters[counted]
            found = estimate(of_metric.mean(counted), of_cluster, confidence)
            if clusters is None and of_metric.are_shares(counted):
                low, high = share_interval(of_metric.values[counted], confidence)
                found = found._replace(low=low, high=high)
            rows.append({**found._asdict(), "metric": metric.name, **slice_})
    name, comma, others = (lists.rules or "").partition(",")
    notes = [f"Rules: {name}{_TOOLS.get(name, '')}{comma}{others}"] if name else []
    if np.any(lists.health.get("truncated labels", 0)):
        notes.append("Labels that are fractions were truncated, as in trec_eval.")
    return table_of(rows, [*by, *_COLUMNS], notes)
