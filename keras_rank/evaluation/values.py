"""A row for each list: what its columns are, and the means of its values."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arguments import check_choice
from keras_rank.evaluation import statistics
from keras_rank.evaluation.statistics import Array
from keras_rank.ordering.preference import Ties

# What the columns of health have before their names.
HEALTH = "health/"
# The weight of a list, where all metrics agree on it, and else that to each of them.
WEIGHT = "weight"
OWN_WEIGHT = "{}_weight"
# The orders of tied items that the spread of a metric is over.
ORDERS: dict[str, Ties] = {"worst": "stable", "average": "average", "best": "stable"}
# The column of a metric with one of these orders.
SPREAD = HEALTH + "{}/{}"
# What the schema of a table knows of its columns.
_KEY = b"keras_rank"


class Measured(NamedTuple):
    """What has to be known of a metric once its values are there."""

    name: str
    k: int | None
    empty_value: float | None
    direction: str


class ListValues:
    """A table with a row for each list, and what its schema says of the columns.

    Args:
        table: `pyarrow.Table`.
        metrics: the metrics of its columns. `None`: as its schema says.
        query: the column of the queries. `None`: as its schema says.
        left_out: the number of queries that were left out. `None`: as its schema says.
    """

    def __init__(
        self,
        table: pa.Table,
        metrics: Sequence[Measured] | None = None,
        query: str | None = None,
        left_out: int | None = None,
    ) -> None:
        known = _known(table, metrics, query, left_out)
        self.query: str = known["query"]
        self.metrics = [Measured(*metric) for metric in known["metrics"]]
        self.left_out: int = known.get("left_out", 0)
        metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(known).encode()}
        self.table = table.replace_schema_metadata(metadata)
        if pc.count_distinct(table[self.query]).as_py() < len(table):
            raise ValueError(
                "`table` should have one row per query, as the value of a query cannot "
                "be put together from parts. Received: a table of "
                f"{len(table)} lists, some of the same query"
            )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.name for metric in self.metrics]

    @property
    def kept(self) -> list[str]:
        """The names of the columns that were kept."""
        others = {self.query, WEIGHT, *self.metric_names}
        others |= {OWN_WEIGHT.format(name) for name in self.metric_names}
        return [
            name
            for name in self.table.column_names
            if name not in others and not name.startswith(HEALTH)
        ]

    @property
    def health(self) -> dict[str, Array]:
        """The columns of health, by their names without the prefix."""
        return {
            name.removeprefix(HEALTH): self.array(name)
            for name in self.table.column_names
            if name.startswith(HEALTH)
        }

    def per_list(self) -> pa.Table:
        """The table without health, and with one column of weights if it can be."""
        names = [x for x in self.table.column_names if not x.startswith(HEALTH)]
        table = self.table.select(names).replace_schema_metadata()
        return _with_one_weight(table, self.metric_names)

    def of_metrics(self, names: Sequence[str]) -> "ListValues":
        """The same without the columns of all other metrics."""
        others = [name for name in self.metric_names if name not in names]
        dropped = {*others, *(OWN_WEIGHT.format(name) for name in others)}
        dropped |= {SPREAD.format(name, order) for name in others for order in ORDERS}
        columns = [name for name in self.table.column_names if name not in dropped]
        metrics = [metric for metric in self.metrics if metric.name in names]
        return ListValues(self.table.select(columns), metrics)

    def measured(self, name: str) -> Measured:
        """What is known of a metric."""
        check_choice("metric", name, self.metric_names)
        return self.metrics[self.metric_names.index(name)]

    def array(self, name: str) -> Array:
        """A column of numbers, NaN where they are missing."""
        array: Array = self.table[name].to_numpy()
        return array

    def mean(
        self, metric: Measured, chosen: Array, column: str | None = None
    ) -> statistics.Mean:
        """The mean of a metric over chosen lists, or of another column like it."""
        own = OWN_WEIGHT.format(metric.name)
        weight = own if own in self.table.column_names else WEIGHT
        values = self.array(column or metric.name)[chosen]
        return statistics.mean(values, self.array(weight)[chosen], metric.empty_value)

    def sliced_by(
        self, by: str | Sequence[str] | None, columns: Sequence[str]
    ) -> list[str]:
        """The columns of slices, beside the other columns of the result."""
        names = [by] if isinstance(by, str) else list(by or [])
        for name in names:
            self._require_kept("by", name)
            if name in columns:
                raise ValueError(
                    "`by` should not name a column of the result: "
                    f"{', '.join(columns)}. Received: by={name!r}"
                )
        return names

    def slices(self, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yields the values of the columns, and the numbers of the lists with them."""
        if not by:
            yield {}, np.arange(len(self))
            return
        coded = [_codes(self.table[name]) for name in by]
        codes = np.stack([codes for codes, _ in coded], axis=1)
        slices, of_list = np.unique(codes, axis=0, return_inverse=True)
        # A column in NumPy 2.0.
        of_list = of_list.reshape(-1)
        order = np.argsort(of_list, kind="stable")
        ends = np.cumsum(np.bincount(of_list))
        for slice_, chosen in zip(slices, np.split(order, ends[:-1]), strict=True):
            values = [
                names[code] for (_, names), code in zip(coded, slice_, strict=True)
            ]
            yield dict(zip(by, values, strict=True)), chosen

    def clusters(self, cluster: str | None) -> Array | None:
        """The number of the cluster of each list, if there are any."""
        if cluster is None:
            return None
        self._require_kept("cluster", cluster)
        return _codes(self.table[cluster])[0]

    def _require_kept(self, argument: str, name: str) -> None:
        if name not in self.kept:
            raise ValueError(
                f"`{argument}` should name columns that were kept, as by "
                f"`evaluate(..., keep=[{name!r}])`. Received: {argument}={name!r}, "
                f"with keep={self.kept}"
            )


def _known(
    table: pa.Table,
    metrics: Sequence[Measured] | None,
    query: str | None,
    left_out: int | None,
) -> dict[str, Any]:
    """What the schema of a table knows, and what is said beside it."""
    known: dict[str, Any] = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    if metrics is not None:
        known["metrics"] = metrics
    if query is not None:
        known["query"] = query
    if left_out is not None:
        known["left_out"] = left_out
    missing: set[Any] = {"metrics", "query"} - known.keys()
    missing |= {known.get("query")} - {None, *table.column_names}
    if missing:
        raise ValueError(
            "`table` should be the table of an evaluation, whose schema describes its "
            "columns; otherwise give `metrics` and `query`. Received: a "
            f"table with the columns {table.column_names}"
        )
    return known


def _codes(column: pa.ChunkedArray) -> tuple[Array, list[Any]]:
    """The values of a column in their order, and the number of that of each row."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.int64)
    place[np.asarray(order)] = np.arange(len(order))
    return place[np.asarray(encoded.indices)], encoded.dictionary.take(
        order
    ).to_pylist()


def _with_one_weight(table: pa.Table, metrics: Sequence[str]) -> pa.Table:
    """The table with one column of weights, if those of all metrics are the same."""
    own = [OWN_WEIGHT.format(name) for name in metrics]
    if not set(own) <= set(table.column_names):
        return table
    first = table[own[0]]
    if not all(table[name].equals(first) for name in own):
        return table
    place = table.column_names.index(own[0])
    return table.drop_columns(own).add_column(place, WEIGHT, first)
