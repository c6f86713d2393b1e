"""The table with one row per list, and its files: Parquet, CSV and JSON."""

import functools
import json
import os
import pathlib
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import keras_rank
from keras_rank.arguments import check_choice
from keras_rank.backends import Array
from keras_rank.evaluation.lists import result_columns
from keras_rank.evaluation.lists.metric_names import MetricInfo, find, should_truncate
from keras_rank.evaluation.lists.result_columns import (
    HEALTH,
    LEFT_OUT,
    METRIC_WEIGHT,
    NO_SCORES,
    READING,
    WEIGHT,
)
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.metrics.base import RankingMetric
from keras_rank.reading import engine
from keras_rank.reading.files import reraise_errors
from keras_rank.reading.paths import check_output

# The key of the provenance in the metadata of the schema.
_PROVENANCE_KEY = b"keras_rank/made by"
_TIE_ORDERS = {
    "trec_eval": "the item whose id is larger as text comes first, as in trec_eval",
    "trec_eval-9": "the item whose id is larger as text comes first, as in trec_eval 9",
    "average": "the mean over all orders",
    "worst": "lower labels come first",
    "best": "higher labels come first",
    False: "the earlier row comes first",
}


def add_provenance(table: pa.Table, settings: Settings) -> pa.Table:
    """Returns the table with its versions and settings in the schema's metadata."""
    backend = keras.config.backend()
    versions = {
        "keras_rank": keras_rank.__version__,
        "Keras": keras.__version__,
        backend: str(sys.modules[backend].__version__),
    }
    metadata = table.schema.metadata or {}
    # A run without scores has no ties.
    tied_metrics = () if NO_SCORES.encode() in metadata else settings.metrics
    ties = {
        metric.name: _describe_tie_order(metric, settings.ties)
        for metric in tied_metrics
    }
    provenance = {
        "versions": versions,
        "ties": ties,
        "lower_is_better": settings.columns.lower_is_better,
    }
    return table.replace_schema_metadata(
        {**metadata, _PROVENANCE_KEY: json.dumps(provenance)}
    )


def read_provenance(table: pa.Table) -> dict[str, Any]:
    """Returns the versions, the order of ties of each metric, and `lower_is_better`."""
    text = (table.schema.metadata or {}).get(_PROVENANCE_KEY, b"{}")
    unknown = {"versions": {}, "ties": {}, "lower_is_better": False}
    return {**unknown, **json.loads(text)}


def _describe_tie_order(metric: RankingMetric, ties: str) -> str:
    order: Any = metric.shuffle_ties if ties == "metric" else ties
    return _TIE_ORDERS.get(order) or f"shuffled, with the seed {metric.seed}"


# The key of the description of the columns in the metadata of the schema.
_DESCRIPTION_KEY = b"keras_rank"


class ListTable:
    """A table with one row per list, whose schema describes its columns.

    Args:
        table: `pyarrow.Table`.
        metrics: the metrics of the columns. Defaults to `None`: read from the schema.
        query: the column of the queries. Defaults to `None`: read from the schema.
        left_out: the number of queries that were left out. Defaults to `None`: read
            from the column `result_columns.LEFT_OUT`.
        rules: the rules of the evaluation. Defaults to `None`: read from the schema.
    """

    def __init__(
        self,
        table: pa.Table,
        metrics: Sequence[MetricInfo] | None = None,
        query: str | None = None,
        left_out: int | None = None,
        rules: str | None = None,
    ) -> None:
        description = _read_description(table)
        self.metrics: list[MetricInfo] = list(
            description["metrics"] if metrics is None else metrics
        )
        self.metric_names = [metric.name for metric in self.metrics]
        self.query: str = query or description["query"]
        self.rules: str | None = rules or description["rules"]
        _require_columns(table, self.query, self.metric_names)
        result_columns.require_distinct_names(
            [self.query, *self.metric_names], self.metric_names
        )
        if left_out is not None:
            table = _set_left_out(table, left_out)
        table = _set_definition(table, self.metrics, self.rules)
        new_description = {
            "query": self.query,
            "metrics": self.metrics,
            "rules": self.rules,
        }
        metadata = {
            **(table.schema.metadata or {}),
            _DESCRIPTION_KEY: json.dumps(new_description),
        }
        self.table = table.replace_schema_metadata(metadata)
        if pc.count_distinct(table[self.query]).as_py() < len(table):
            raise ValueError(
                "`table` should have one row per query, as the value of a query cannot "
                "be computed from parts. Received: a table of "
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
    def left_out_examples(self) -> str:
        """A few of the left-out queries, after a colon, or an empty string."""
        text = (self.table.schema.metadata or {}).get(LEFT_OUT.encode(), b"[]")
        examples = json.loads(text)
        listed = ", ".join(examples) + ", ..." * (len(examples) < self.left_out)
        return f": {listed}" * bool(examples)

    @property
    def reading_warnings(self) -> list[str]:
        """The warnings about rows that may have been read in an unintended way."""
        metadata = self.table.schema.metadata or {}
        return list(json.loads(metadata.get(READING.encode(), b"[]")))

    @property
    def kept_columns(self) -> list[str]:
        """The names of the kept columns."""
        other_names = {self.query, WEIGHT, *self.metric_names}
        other_names |= {METRIC_WEIGHT.format(name) for name in self.metric_names}
        return [name for name in self._list_column_names() if name not in other_names]

    @property
    def health(self) -> dict[str, Array]:
        """The columns of health, by their names without the prefix."""
        names = [x for x in self.table.column_names if x.startswith(HEALTH)]
        names = [x for x in names if x != result_columns.ITEMS]
        columns = {name.removeprefix(HEALTH): self.array(name) for name in names}
        if not should_truncate(self.rules):
            columns.pop("fractional labels", None)
        return columns

    def get_health(self, name: str) -> Array | None:
        """Returns a column of health by its name without the prefix, or `None`."""
        has_column = HEALTH + name in self.table.column_names
        return self.array(HEALTH + name) if has_column else None

    @property
    def has_health(self) -> bool:
        """Whether the table has the columns of health, which `per_list` omits."""
        needed = {"items", "judged", "ties"}
        for metric in self.metrics:
            needed |= {f"{metric.name}/{order}" for order in result_columns.ORDERS}
            if metric.k is not None:
                needed |= {f"tied@{metric.k}", f"judged@{metric.k}"}
        return {HEALTH + name for name in needed} <= set(self.table.column_names)

    @property
    def has_items(self) -> bool:
        """Whether the table has the items of the lists."""
        return result_columns.ITEMS in self.table.column_names

    @property
    def sum_names(self) -> list[str]:
        """The names of the metrics that are sums of integers over lists."""
        return [each.name for each in self.metrics if each.reduction == "sum"]

    @property
    def first_metric(self) -> str:
        """The name of the first metric that is not a sum, or of the first metric."""
        means = (name for name in self.metric_names if name not in self.sum_names)
        return next(means, self.metric_names[0])

    @functools.cached_property
    def row_indices(self) -> dict[Any, int]:
        """The index of the row of each query."""
        queries = self.table[self.query].to_pylist()
        return {query: index for index, query in enumerate(queries)}

    def per_list(self) -> pa.Table:
        """Returns the table without the columns of health.

        If all metrics have the same weights, there is a single column of weights.
        """
        table = self.table.select(self._list_column_names()).replace_schema_metadata()
        for index, name in enumerate(table.column_names):
            if name in self.sum_names:
                table = table.set_column(index, name, table[name].cast("int64"))
        weight_names = [METRIC_WEIGHT.format(name) for name in self.metric_names]
        if not set(weight_names) <= set(table.column_names):
            return table
        first_weights, index = (
            table[weight_names[0]],
            table.column_names.index(weight_names[0]),
        )
        if not all(table[name].equals(first_weights) for name in weight_names):
            return table
        return table.drop_columns(weight_names).add_column(index, WEIGHT, first_weights)

    def select_metrics(self, names: Sequence[str]) -> "ListTable":
        """Returns the table without the columns of other metrics."""
        dropped = {result_columns.DEFINITION}
        for name in set(self.metric_names) - set(names):
            dropped |= {
                name,
                METRIC_WEIGHT.format(name),
                result_columns.RELEVANT.format(name),
            }
            dropped |= {
                result_columns.SPREAD.format(name, order)
                for order in result_columns.ORDERS
            }
        remaining = [name for name in self.table.column_names if name not in dropped]
        metrics = [metric for metric in self.metrics if metric.name in names]
        return ListTable(self.table.select(remaining), metrics)

    def find(self, name: Any) -> MetricInfo | None:
        """Returns the metric of a name, in any spelling, or `None`."""
        is_name = isinstance(name, str)
        return find(name, self.metrics, self.rules) if is_name else None

    def get_metric(self, name: str) -> MetricInfo:
        """Returns the metric of a name. Raises `ValueError` if there is none."""
        metric = self.find(name)
        names = self.metric_names
        chosen_name = check_choice("metric", metric.name if metric else name, names)
        return self.metrics[names.index(chosen_name)]

    def array(self, name: str) -> Array:
        """Returns a column of numbers, NaN for missing numbers."""
        array: Array = self.table[name].to_numpy()
        return array

    def weights(self, metric: MetricInfo) -> Array:
        """Returns the weights of lists for a metric, NaN without relevant items."""
        weight_name = METRIC_WEIGHT.format(metric.name)
        return self.array(
            weight_name if weight_name in self.table.column_names else WEIGHT
        )

    def _list_column_names(self) -> list[str]:
        """Returns the names of all columns except the columns of health."""
        return [x for x in self.table.column_names if not x.startswith(HEALTH)]


def has_description(table: pa.Schema | pa.Table) -> bool:
    """Returns whether a schema describes the columns of a table."""
    return _DESCRIPTION_KEY in (table.metadata or {})


def _read_description(table: pa.Table) -> dict[str, Any]:
    """Returns the description of the columns in the schema, empty without one."""
    text = (table.schema.metadata or {}).get(_DESCRIPTION_KEY)
    if text is None:
        return {"query": "", "metrics": [], "rules": None}
    try:
        description: dict[str, Any] = json.loads(text)
        metrics = [MetricInfo(*metric) for metric in description["metrics"]]
        if not all(isinstance(each.definition, dict | None) for each in metrics):
            raise TypeError
        # Tables of 0.6.0 lack the argument `list_weight`.
        metrics = [
            x._replace(definition={"list_weight": "mean", **x.definition})
            if x.definition and "empty_weight" in x.definition
            else x
            for x in metrics
        ]
        query, rules = description["query"], description["rules"]
        return {"query": query, "metrics": metrics, "rules": rules}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            "`table` should have a schema that this version of keras_rank can read: "
            "otherwise evaluate again. Received: "
            f"{text.decode(errors='replace')}"
        ) from error


def _require_columns(table: pa.Table, query: str, metrics: Sequence[str]) -> None:
    names = table.column_names
    received = f"Received: a table with the columns {names}"
    if not metrics or not {query, *metrics} <= set(names):
        raise ValueError(
            "`table` should be the table of an evaluation, whose schema describes its "
            f"columns; otherwise pass `metrics` and `query`. {received}"
        )
    for weight_name in map(METRIC_WEIGHT.format, metrics):
        if not {WEIGHT, weight_name} & set(names):
            raise ValueError(
                f'`table` should have a column "{WEIGHT}", or one for each metric such '
                f'as "{weight_name}". {received}'
            )


def _set_left_out(table: pa.Table, left_out: int) -> pa.Table:
    """Returns the table with the number of left-out queries in its first row."""
    if LEFT_OUT in table.column_names:
        table = table.drop_columns(LEFT_OUT)
    numbers = np.zeros(len(table), np.int64)
    numbers[:1] = left_out
    return table.append_column(LEFT_OUT, pa.array(numbers))


def _set_definition(
    table: pa.Table, metrics: Sequence[MetricInfo], rules: str | None
) -> pa.Table:
    """Returns the table with a checksum of the definitions of its metrics in a column.

    Raises `ValueError` if rows have different checksums.
    """
    name = result_columns.DEFINITION
    if name not in table.column_names:
        rule = "drop" if result_columns.PADDING in table.column_names else rules
        text = json.dumps([metrics, rule], sort_keys=True)
        checksum = pa.scalar(zlib.crc32(text.encode()), pa.uint32())
        table = table.append_column(name, pa.repeat(checksum, len(table)))
    if pc.count_distinct(table[name], mode="all").as_py() > 1:
        raise ValueError(
            "`table` should be of evaluations with the same definitions of metrics and "
            "the same rules. Received: a concatenation of different ones"
        )
    return table


# The options of DuckDB for writing a file with each suffix.
_COPY_OPTIONS = {
    ".csv": "FORMAT csv, HEADER",
    ".json": "FORMAT json, ARRAY true",
    ".jsonl": "FORMAT json",
}


def read(path: str | os.PathLike[str]) -> pa.Table:
    """Reads a table with all columns and its schema from a Parquet file."""
    if pathlib.Path(path).suffix.lower() in _COPY_OPTIONS:
        raise ValueError(
            "`path` should be a Parquet file written by `write`, as other files do not "
            f"tell what their columns are. Received: path={str(path)!r}"
        )
    with reraise_errors("path", path):
        return parquet.read_table(path)


def check_page_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a page. Raises `ValueError` unless it can be written."""
    return check_output("`path`", path, (".html", ".htm"))


def write(table: pa.Table, text: pa.Table, path: str | os.PathLike[str]) -> None:
    """Writes a table to a file in the format of the suffix.

    Args:
        table: the table that is written to a Parquet file.
        text: the table that is written to a file of another format.
        path: the file.
    """
    suffix = pathlib.Path(path).suffix.lower()
    suffixes = [".parquet", *_COPY_OPTIONS]
    if suffix not in suffixes:
        raise ValueError(
            f"`path` should end in one of {', '.join(suffixes)}. Received: "
            f"path={str(path)!r}"
        )
    check_output("`path`", path, (suffix,))
    if suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with engine.connect() as connection:
        connection.register("lists", text)
        file = engine.sql_literal(os.fspath(path))
        connection.execute(f"COPY lists TO {file} ({_COPY_OPTIONS[suffix]})")
