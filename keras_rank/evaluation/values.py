"""A row for each list: what its columns are, and the means of its values."""

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arguments import check_choice
from keras_rank.evaluation import statistics
from keras_rank.evaluation.measures import Measured, find
from keras_rank.evaluation.statistics import Array
from keras_rank.ordering.preference import Ties

# What the columns of health have before their names.
HEALTH = "health/"
# The weight of a list, where all metrics agree on it, and else that to each of them.
WEIGHT = "weight"
OWN_WEIGHT = "{}_weight"
# The orders of tied items that the spread of a metric is over.
ORDERS: dict[str, Ties] = {"worst": "stable", "average": "average", "best": "stable"}
# How many queries were left out: a column, so that it adds up in a concatenation.
LEFT_OUT = HEALTH + "left out"
# The column of a metric with one of these orders.
SPREAD = HEALTH + "{}/{}"
# What the metrics compute: a column, so that a concatenation shows where it differs.
_DEFINITION = HEALTH + "definition"
# What the schema of a table knows of its columns.
_KEY = b"keras_rank"


def require_free_names(names: Sequence[str], metrics: Sequence[str]) -> None:
    """Raises where two columns of a table with a row for each list would be one.

    Args:
        names: the names of all columns but those of weights and health.
        metrics: those of the metrics among them.
    """
    weights = [WEIGHT, *map(OWN_WEIGHT.format, metrics)]
    for name in names:
        if names.count(name) > 1 or name in weights or name.startswith(HEALTH):
            others = ", ".join(f'"{each}"' for each in weights)
            raise ValueError(
                "`query`, `keep` and `metrics` should have distinct names, as all "
                f"become columns of the result. Others there are {others} and those "
                f'that start with "{HEALTH}". Received: {name!r}'
                + " twice"
                * (names.count(name) > 1)
            )


class ListValues:
    """A table with a row for each list, and what its schema says of the columns.

    Args:
        table: `pyarrow.Table`.
        metrics: the metrics of its columns. `None`: as its schema says.
        query: the column of the queries. `None`: as its schema says.
        left_out: the number of queries that were left out. `None`: as its column says.
        rules: the rules that were followed. `None`: as its schema says.
    """

    def __init__(
        self,
        table: pa.Table,
        metrics: Sequence[Measured] | None = None,
        query: str | None = None,
        left_out: int | None = None,
        rules: str | None = None,
    ) -> None:
        known = _known(table)
        self.metrics = known.metrics if metrics is None else list(metrics)
        self.query = query or known.query
        self.rules = rules or known.rules
        _require_columns(table, self.query, self.metrics)
        require_free_names([self.query, *self.metric_names], self.metric_names)
        if left_out is None and LEFT_OUT not in table.column_names:
            left_out = known.left_out
        if left_out is not None:
            table = _with_left_out(table, left_out)
        table = _with_one_definition(table, self.metrics, self.rules)
        described = {"query": self.query, "metrics": self.metrics, "rules": self.rules}
        metadata = dict(table.schema.metadata or {})
        metadata[_KEY] = json.dumps(described).encode()
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
    def left_out(self) -> int:
        """The number of queries that were left out."""
        has_number = LEFT_OUT in self.table.column_names
        return pc.sum(self.table[LEFT_OUT]).as_py() if has_number else 0

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

    @property
    def has_health(self) -> bool:
        """Whether the columns of health are there, which `per_list` leaves out."""
        of_all = ("items", "judged", "ties", "fractional scores")
        needed = {HEALTH + name for name in of_all}
        for metric in self.metrics:
            needed |= {SPREAD.format(metric.name, order) for order in ORDERS}
            if metric.k is not None:
                at_k = (f"tied@{metric.k}", f"judged@{metric.k}")
                needed |= {HEALTH + name for name in at_k}
        return needed <= set(self.table.column_names)

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
        dropped.add(_DEFINITION)
        columns = [name for name in self.table.column_names if name not in dropped]
        metrics = [metric for metric in self.metrics if metric.name in names]
        return ListValues(self.table.select(columns), metrics)

    def measured(self, name: str) -> Measured:
        """What is known of the metric that a name stands for."""
        metric = self.find(name)
        if metric is None:
            check_choice("metric", name, self.metric_names)
        return metric

    def find(self, name: str) -> Measured | None:
        """The same, or `None` where there is no such metric."""
        return find(name, self.metrics, self.rules)

    def counted(self, metric: Measured) -> Array:
        """The numbers of the lists that are not left out of the mean of a metric."""
        return np.flatnonzero(~np.isnan(self.array(metric.name)))

    def array(self, name: str) -> Array:
        """A column of numbers, NaN where they are missing."""
        array: Array = self.table[name].to_numpy()
        return array

    def mean(
        self, metric: Measured, chosen: Array, column: str | None = None
    ) -> statistics.Mean:
        """The mean of a metric over chosen lists, or of another column like it."""
        values = self.array(column or metric.name)[chosen]
        weights = self._weights(metric)[chosen]
        return statistics.mean(values, weights, metric.empty_value)

    def are_shares(self, metric: Measured, chosen: Array) -> bool:
        """Whether the mean over chosen lists is a share, of values of 0 and 1.

        As of hit rates, of two or more lists that weigh the same.
        """
        values = self.array(metric.name)[chosen]
        are_binary = np.isin(values, (0.0, 1.0)).all()
        weights = self._weights(metric)[chosen]
        weights = weights[~np.isnan(weights)]
        return bool(len(values) > 1 and are_binary and np.all(weights == weights[:1]))

    def _weights(self, metric: Measured) -> Array:
        own = OWN_WEIGHT.format(metric.name)
        return self.array(own if own in self.table.column_names else WEIGHT)

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


class _Known(NamedTuple):
    """What the schema of a table knows of its columns."""

    query: str
    metrics: list[Measured]
    rules: str | None = None
    left_out: int | None = None


def _known(table: pa.Table) -> _Known:
    written = (table.schema.metadata or {}).get(_KEY)
    if written is None:
        return _Known("", [])
    try:
        known = json.loads(written)
        metrics = [Measured(*metric) for metric in known["metrics"]]
        if not all(isinstance(each.definition, dict | None) for each in metrics):
            raise TypeError
        # Version 0.2.0 wrote the number of queries that were left out into the schema.
        left_out = known.get("left_out")
        return _Known(known["query"], metrics, known.get("rules"), left_out)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            "`table` should have a schema that this version of keras_rank wrote. "
            f"Received: {written.decode(errors='replace')}"
        ) from error


def _require_columns(table: pa.Table, query: str, metrics: Sequence[Measured]) -> None:
    names = table.column_names
    needed = [query, *(metric.name for metric in metrics)]
    if not metrics or not set(needed) <= set(names):
        raise ValueError(
            "`table` should be the table of an evaluation, whose schema describes its "
            "columns; otherwise give `metrics` and `query`. Received: a "
            f"table with the columns {names}"
        )
    for metric in metrics:
        if not {WEIGHT, OWN_WEIGHT.format(metric.name)} & set(names):
            raise ValueError(
                f'`table` should have a column "{WEIGHT}", or one for each metric such '
                f'as "{OWN_WEIGHT.format(metric.name)}". Received: a table with the '
                f"columns {names}"
            )


def _with_left_out(table: pa.Table, left_out: int) -> pa.Table:
    """The table with a number that its first row has."""
    if LEFT_OUT in table.column_names:
        table = table.drop_columns(LEFT_OUT)
    numbers = np.zeros(len(table), np.int64)
    numbers[:1] = left_out
    return table.append_column(LEFT_OUT, pa.array(numbers))


def _with_one_definition(
    table: pa.Table, metrics: Sequence[Measured], rules: str | None
) -> pa.Table:
    """The table with a column that says what its metrics compute, the same for all."""
    if _DEFINITION not in table.column_names:
        text = json.dumps([metrics, rules], sort_keys=True)
        number = pa.scalar(zlib.crc32(text.encode()), pa.uint32())
        table = table.append_column(_DEFINITION, pa.repeat(number, len(table)))
    if pc.count_distinct(table[_DEFINITION], mode="all").as_py() > 1:
        raise ValueError(
            "`table` should be of evaluations whose metrics compute the same, by the "
            "same rules. Received: a concatenation of others"
        )
    return table


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
