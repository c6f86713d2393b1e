"""The mean of each metric, over all lists or by slices, with its error."""

from collections.abc import Sequence

import numpy as np

from keras_rank.arguments import check_fraction
from keras_rank.evaluation import statistics
from keras_rank.evaluation.table import Table, table_of
from keras_rank.evaluation.values import ListValues

# The columns of a summary, but for those of the slices.
_COLUMNS = ("metric", "value", "standard_error", "low", "high", "lists")


def summarized(
    values: ListValues,
    by: str | Sequence[str] | None,
    cluster: str | None,
    confidence: float,
) -> Table:
    """Returns the means and their errors, as `Evaluation.summary` does."""
    confidence = check_fraction("confidence", confidence)
    by, clusters = values.sliced_by(by, _COLUMNS), values.clusters(cluster)
    rows = []
    for slice_, chosen in values.slices(by):
        for metric in values.metrics:
            of_metric = chosen[~np.isnan(values.array(metric.name)[chosen])]
            mean = values.mean(metric, of_metric)
            found = statistics.estimate(
                mean.value,
                mean.influence,
                None if clusters is None else clusters[of_metric],
                confidence,
            )
            low, high = found.low, found.high
            if clusters is None and values.are_shares(metric, of_metric):
                of_lists = values.array(metric.name)[of_metric]
                low, high = statistics.share_interval(of_lists, confidence)
            rows.append(
                {
                    **slice_,
                    "metric": metric.name,
                    "value": found.value,
                    "standard_error": found.standard_error,
                    "low": low,
                    "high": high,
                    "lists": found.lists,
                }
            )
    notes = [] if values.rules is None else [f"Rules: {values.rules}"]
    return Table(table_of(rows).columns, notes=notes)
