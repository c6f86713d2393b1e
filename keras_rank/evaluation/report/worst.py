"""The queries with the worst values, or with the largest losses."""

import numpy as np
import pyarrow as pa

from keras_rank.arguments import check_positive
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report.comparison import beside, places_of
from keras_rank.evaluation.report.table import Table


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
        of_baseline = beside(metric, baseline, places_of(lists, baseline))
        found["baseline"] = of_baseline.values
        keys = found["difference"] = keys - found["baseline"]
    order = np.argsort(keys if metric.direction == "up" else -keys, kind="stable")
    first = order[:n]
    first = first[~np.isnan(keys[first])]
    columns = lists.table.select([lists.query, *lists.kept]).take(pa.array(first))
    of_metric = {name: values[first].tolist() for name, values in found.items()}
    return Table({**columns.to_pydict(), **of_metric})
