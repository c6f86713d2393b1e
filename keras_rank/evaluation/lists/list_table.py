"""Files with one row per list: Parquet, and text for other tools."""

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
from keras_rank.evaluation.lists.metric_names import Measured, find, truncates
from keras_rank.evaluation.lists.result_columns import (
    HEALTH,
    LEFT_OUT,
    NO_SCORES,
    OWN_WEIGHT,
    READING,
    WEIGHT,
)
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.metrics.base import RankingMetric
from keras_rank.reading import engine
from keras_rank.reading.files import errors_of
from keras_rank.reading.paths import check_output

# The key in the schema.
_PROVENANCE_KEY = b"keras_rank/made by"
_ORDERS = {
    "trec_eval": "the item whose id is larger as text comes first, as in trec_eval",
    "trec_eval-9": "the item whose id is larger as text comes first, as in trec_eval 9",
    "average": "the mean over all orders",
    "worst": "lower labels come first",
    "best": "higher labels come first",
    False: "the earlier row comes first",
}


def stamped(table: pa.Table, settings: Settings) -> pa.Table:
    """The table, whose schema tells how it was made."""
    backend = keras.config.backend()
    versions = {
        "keras_rank": keras_rank.__version__,
        "Keras": keras.__version__,
        backend: str(sys.modules[backend].__version__),
    }
    known = table.schema.metadata or {}
    # None are tied that have no scores.
    tied = () if NO_SCORES.encode() in known else settings.metrics
    ties = {metric.name: _order_of_ties(metric, settings.ties) for metric in tied}
    made = json.dumps({"versions": versions, "ties": ties})
    return table.replace_schema_metadata({**known, _PROVENANCE_KEY: made})


def stamp_of(table: pa.Table) -> dict[str, Any]:
    """The versions, and the order of ties of each metric, if they are known."""
    found = (table.schema.metadata or {}).get(_PROVENANCE_KEY, b"{}")
    return {"versions": {}, "ties": {}, **json.loads(found)}


def _order_of_ties(metric: RankingMetric, ties: str) -> str:
    order: Any = metric.shuffle_ties if ties == "metric" else ties
    return _ORDERS.get(order) or f"shuffled, with the seed {metric.seed}"


# The key of the description in the schema.
_KEY = b"keras_rank"


class ListTable:
    """A table with one row per list, whose schema describes its columns.

    Args:
        table: `pyarrow.Table`.
        metrics: the metrics of its columns. `None`: those in its schema.
        query: the column of the queries. `None`: the one in its schema.
        left_out: the number of queries that were left out. `None`: that in its column.
        rules: the rules that were followed. `None`: those in its schema.
    """

    def __init__(
        self,
        table: pa.Table,
        metrics: Sequence[Measured] | None = None,
        query: str | None = None,
        left_out: int | None = None,
        rules: str | None = None,
    ) -> None:
        known = _description_of(table)
        self.metrics: list[Measured] = list(
            known["metrics"] if metrics is None else metrics
        )
        self.metric_names = [metric.name for metric in self.metrics]
        self.query: str = query or known["query"]
        self.rules: str | None = rules or known["rules"]
        _require_columns(table, self.query, self.metric_names)
        result_columns.require_free_names(
            [self.query, *self.metric_names], self.metric_names
        )
        if left_out is not None:
            table = _with_left_out(table, left_out)
        table = _with_one_definition(table, self.metrics, self.rules)
        described = {"query": self.query, "metrics": self.metrics, "rules": self.rules}
        metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(described)}
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
    def some_left_out(self) -> str:
        """A few of these, as far as they are known, after a colon."""
        written = (self.table.schema.metadata or {}).get(LEFT_OUT.encode(), b"[]")
        some = json.loads(written)
        shown = ", ".join(some) + ", ..." * (len(some) < self.left_out)
        return f": {shown}" * bool(some)

    @property
    def reading_warnings(self) -> list[str]:
        """The warnings about rows that may not be read as meant."""
        metadata = self.table.schema.metadata or {}
        return list(json.loads(metadata.get(READING.encode(), b"[]")))

    @property
    def kept(self) -> list[str]:
        """The names of the kept columns."""
        others = {self.query, WEIGHT, *self.metric_names}
        others |= {OWN_WEIGHT.format(name) for name in self.metric_names}
        return [name for name in self._names_of_lists() if name not in others]

    @property
    def health(self) -> dict[str, Array]:
        """The columns of health, by their names without the prefix."""
        names = [x for x in self.table.column_names if x.startswith(HEALTH)]
        names = [x for x in names if x != result_columns.ITEMS]
        found = {name.removeprefix(HEALTH): self.array(name) for name in names}
        if not truncates(self.rules):
            found.pop("fractional labels", None)
        return found

    def health_of(self, name: str) -> Array | None:
        """One of these columns, if it is there."""
        is_there = HEALTH + name in self.table.column_names
        return self.array(HEALTH + name) if is_there else None

    @property
    def has_health(self) -> bool:
        """Whether the table has the columns of health, which `per_list` leaves out."""
        needed = {"items", "judged", "ties"}
        for metric in self.metrics:
            needed |= {f"{metric.name}/{order}" for order in result_columns.ORDERS}
            if metric.k is not None:
                needed |= {f"tied@{metric.k}", f"judged@{metric.k}"}
        return {HEALTH + name for name in needed} <= set(self.table.column_names)

    @property
    def has_items(self) -> bool:
        """Whether items of the lists are kept."""
        return result_columns.ITEMS in self.table.column_names

    @property
    def sums(self) -> list[str]:
        """The names of the metrics that are sums over lists, of integers."""
        return [each.name for each in self.metrics if each.reduction == "sum"]

    @property
    def first_metric(self) -> str:
        """The name of the first metric that is no sum, if there is one."""
        means = (name for name in self.metric_names if name not in self.sums)
        return next(means, self.metric_names[0])

    @functools.cached_property
    def places(self) -> dict[Any, int]:
        """The row of each query."""
        queries = self.table[self.query].to_pylist()
        return {query: place for place, query in enumerate(queries)}

    def per_list(self) -> pa.Table:
        """The table without health, and with a single column of weights if possible."""
        table = self.table.select(self._names_of_lists()).replace_schema_metadata()
        for place, name in enumerate(table.column_names):
            if name in self.sums:
                table = table.set_column(place, name, table[name].cast("int64"))
        own = [OWN_WEIGHT.format(name) for name in self.metric_names]
        if not set(own) <= set(table.column_names):
            return table
        first, place = table[own[0]], table.column_names.index(own[0])
        if not all(table[name].equals(first) for name in own):
            return table
        return table.drop_columns(own).add_column(place, WEIGHT, first)

    def of_metrics(self, names: Sequence[str]) -> "ListTable":
        """Returns the table without the columns of other metrics."""
        dropped = {result_columns.DEFINITION}
        for name in set(self.metric_names) - set(names):
            dropped |= {
                name,
                OWN_WEIGHT.format(name),
                result_columns.RELEVANT.format(name),
            }
            dropped |= {
                result_columns.SPREAD.format(name, order)
                for order in result_columns.ORDERS
            }
        left = [name for name in self.table.column_names if name not in dropped]
        metrics = [metric for metric in self.metrics if metric.name in names]
        return ListTable(self.table.select(left), metrics)

    def find(self, name: Any) -> Measured | None:
        """Returns the metric of a name, in any spelling, if there is one."""
        is_name = isinstance(name, str)
        return find(name, self.metrics, self.rules) if is_name else None

    def measured(self, name: str) -> Measured:
        """Returns the same. Raises if there is none."""
        metric = self.find(name)
        names = self.metric_names
        found = check_choice("metric", metric.name if metric else name, names)
        return self.metrics[names.index(found)]

    def array(self, name: str) -> Array:
        """A column of numbers, NaN where they are missing."""
        array: Array = self.table[name].to_numpy()
        return array

    def weights(self, metric: Measured) -> Array:
        """The weights of the lists for a metric, NaN where nothing is relevant."""
        own = OWN_WEIGHT.format(metric.name)
        return self.array(own if own in self.table.column_names else WEIGHT)

    def _names_of_lists(self) -> list[str]:
        """The columns except those of health."""
        return [x for x in self.table.column_names if not x.startswith(HEALTH)]


def is_described(table: pa.Schema | pa.Table) -> bool:
    """Whether a schema describes the columns of a table."""
    return _KEY in (table.metadata or {})


def _description_of(table: pa.Table) -> dict[str, Any]:
    """What the schema says of the columns, if anything."""
    written = (table.schema.metadata or {}).get(_KEY)
    if written is None:
        return {"query": "", "metrics": [], "rules": None}
    try:
        described: dict[str, Any] = json.loads(written)
        metrics = [Measured(*metric) for metric in described["metrics"]]
        if not all(isinstance(each.definition, dict | None) for each in metrics):
            raise TypeError
        query, rules = described["query"], described["rules"]
        return {"query": query, "metrics": metrics, "rules": rules}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            "`table` should have a schema that this version of keras_rank can read: "
            "otherwise evaluate again. Received: "
            f"{written.decode(errors='replace')}"
        ) from error


def _require_columns(table: pa.Table, query: str, metrics: Sequence[str]) -> None:
    names = table.column_names
    received = f"Received: a table with the columns {names}"
    if not metrics or not {query, *metrics} <= set(names):
        raise ValueError(
            "`table` should be the table of an evaluation, whose schema describes its "
            f"columns; otherwise pass `metrics` and `query`. {received}"
        )
    for own in map(OWN_WEIGHT.format, metrics):
        if not {WEIGHT, own} & set(names):
            raise ValueError(
                f'`table` should have a column "{WEIGHT}", or one for each metric such '
                f'as "{own}". {received}'
            )


def _with_left_out(table: pa.Table, left_out: int) -> pa.Table:
    """The table with the number of queries left out, in its first row."""
    if LEFT_OUT in table.column_names:
        table = table.drop_columns(LEFT_OUT)
    numbers = np.zeros(len(table), np.int64)
    numbers[:1] = left_out
    return table.append_column(LEFT_OUT, pa.array(numbers))


def _with_one_definition(
    table: pa.Table, metrics: Sequence[Measured], rules: str | None
) -> pa.Table:
    """The table with a column that holds the definitions of its metrics."""
    name = result_columns.DEFINITION
    if name not in table.column_names:
        rule = "drop" if result_columns.PADDING in table.column_names else rules
        text = json.dumps([metrics, rule], sort_keys=True)
        number = pa.scalar(zlib.crc32(text.encode()), pa.uint32())
        table = table.append_column(name, pa.repeat(number, len(table)))
    if pc.count_distinct(table[name], mode="all").as_py() > 1:
        raise ValueError(
            "`table` should be of evaluations with the same definitions of metrics and "
            "the same rules. Received: a concatenation of different ones"
        )
    return table


# How DuckDB writes a file of each suffix.
_OPTIONS = {
    ".csv": "FORMAT csv, HEADER",
    ".json": "FORMAT json, ARRAY true",
    ".jsonl": "FORMAT json",
}


def read(path: str | os.PathLike[str]) -> pa.Table:
    """Reads a table with all of its columns, and what its schema says of them."""
    if pathlib.Path(path).suffix.lower() in _OPTIONS:
        raise ValueError(
            "`path` should be a Parquet file written by `write`, as other files do not "
            f"tell what their columns are. Received: path={str(path)!r}"
        )
    with errors_of("path", path):
        return parquet.read_table(path)


def page(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the file of a page. Raises for other suffixes and folders."""
    return check_output("`path`", path, (".html", ".htm"))


def write(table: pa.Table, text: pa.Table, path: str | os.PathLike[str]) -> None:
    """Writes a table to a Parquet file, or its columns for text to another one."""
    suffix = pathlib.Path(path).suffix.lower()
    suffixes = [".parquet", *_OPTIONS]
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
        file = engine.in_sql(os.fspath(path))
        connection.execute(f"COPY lists TO {file} ({_OPTIONS[suffix]})")
