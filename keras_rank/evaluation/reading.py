"""The rules of reading: tables and TREC files, as rows that are sorted by query.

A label that is missing, or below 0, counts as 0, or its row is left out. An item
without a score, or with the score NaN, was not retrieved. Queries that are only in the
judgements count; those that nobody judged are left out, and counted. Nothing else is
dropped: missing ids and items that a query has twice are errors.
"""

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from keras_rank.evaluation.sources import (
    Connection,
    Relation,
    Sought,
    common_type,
    errors_of,
    files_of,
    files_with,
    is_table,
    literally,
    named,
    no_rows,
    query,
    select,
)

Array: TypeAlias = np.ndarray[Any, Any]
Order: TypeAlias = Literal["row", "item", "trec_eval"]
_ORDERS: dict[Order, str] = {
    "row": "row",
    "item": "item",
    # It compares ids as text, also those that are numbers.
    "trec_eval": "CAST(item AS VARCHAR) DESC",
}

# The fields of a line of TREC files, and how many there have to be.
_TREC = {
    "qrels": (("query", "iteration", "item", "label"), 4),
    "run": (("query", "Q0", "item", "rank", "score", "tag"), 5),
}
# The columns of numbers that all rows have.
_NUMBERS = ("label", "score")
# The sizes that DuckDB writes, and what a thread of it needs to write to disk the rest.
_UNITS = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_MEMORY_OF_A_THREAD = 49e6
# So many rows are computed with at a time.
_ROWS_AT_A_TIME = 500_000


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of the columns that are read.

    Attributes:
        query: the list that a row belongs to.
        label: how good the item is.
        score: what the model says.
        item: the item, or `None`.
        weight: the weight of the item, or `None`.
        keep: what is known of a query.
    """

    query: str
    label: str
    score: str
    item: str | None = None
    weight: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for argument in ("query", "label", "score", "item", "weight"):
            name = getattr(self, argument)
            optional = " or None" if argument in ("item", "weight") else ""
            if not (isinstance(name, str) or (optional and name is None)):
                raise ValueError(
                    f"`{argument}` should be the name of a column{optional}. "
                    f"Received: {argument}={name!r}"
                )


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows that are sorted by query, as a stream of Arrow batches.

    Their columns are `query`, `label` and `score`, `item` and `weight` where these
    were named, and those that are kept, by their numbers: `0`, `1`, ...

    Attributes:
        batches: the batches, none of which is empty. A query may go on in the next.
        described: function of a query and an item to where they are, for messages.
        left_out: the number of queries that were left out, as nobody judged them,
            where that is known.
    """

    batches: Iterator[pa.RecordBatch]
    described: Callable[[Any, Any], str]
    left_out: int | None = None


@contextlib.contextmanager
def connected(memory_limit: str | None) -> Iterator[Connection]:
    """Yields a DuckDB, which writes to disk what it has no memory for."""
    with tempfile.TemporaryDirectory(prefix="keras_rank") as folder:
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": folder
        }
        if memory_limit is not None:
            config["memory_limit"] = str(memory_limit)
        try:
            connection = duckdb.connect(config=config)
        except duckdb.Error as error:
            raise ValueError(
                '`memory_limit` should be a size such as "2GB". '
                f"Received: memory_limit={memory_limit!r}"
            ) from error
        with connection:
            if memory_limit is not None:
                _share_memory(connection, memory_limit)
            yield connection


def _share_memory(connection: Connection, memory_limit: str) -> None:
    """Gives DuckDB half of its memory, as what is known of the lists needs some too."""
    ((size, unit, threads),) = connection.sql(
        "SELECT split_part(current_setting('memory_limit'), ' ', 1)::DOUBLE, "
        "split_part(current_setting('memory_limit'), ' ', 2), "
        "current_setting('threads')"
    ).fetchall()
    half = size / 2 * _UNITS.get(unit, 0)
    if half < _MEMORY_OF_A_THREAD:
        raise ValueError(
            '`memory_limit` should be a size such as "2GB", of at least "100MB". '
            f"Received: memory_limit={memory_limit!r}"
        )
    threads = min(threads, half // _MEMORY_OF_A_THREAD)
    connection.execute(f"SET threads = {threads:.0f}")
    connection.execute(f"SET memory_limit = '{half:.0f} bytes'")


def read_rows(
    connection: Connection,
    source: Any,
    columns: Columns,
    order: Order,
) -> Rows:
    """Reads a table with a row for each item of each query.

    Args:
        connection: a DuckDB.
        source: files, or a table in memory.
        columns: the names of the columns.
        order: how the rows of a query are ordered: as they come, by the items, or as
            trec_eval breaks ties: by the items, the last one first, with scores that
            are equal in float32 taken for ties.
    """
    ids = {"query": Sought("query", columns.query)}
    if columns.item is not None:
        ids["item"] = Sought("item", columns.item)
    kept = {str(i): Sought("keep", name) for i, name in enumerate(columns.keep)}
    numbers = {name: Sought(name, getattr(columns, name)) for name in _NUMBERS}
    if columns.weight is not None:
        numbers["weight"] = Sought("weight", columns.weight)
    table = select(connection, "rows", source, {**ids, **kept}, numbers)
    score = "CAST(score AS FLOAT)" if order == "trec_eval" else "score"
    # DuckDB sorts in parallel: without the row, the order would change each time.
    table = query(
        table,
        f"SELECT * REPLACE ({score} AS score), row_number() OVER () AS row FROM source",
    )
    names = [*ids, *kept, *numbers]
    batches = _sorted_batches(table, "rows", source, names, order)
    return Rows(
        batches, lambda *of_item: files_with(source, ids, [str(x) for x in of_item])
    )


def read_run(
    connection: Connection,
    qrels: Any,
    run: Any,
    columns: Columns,
    order: Order,
) -> Rows:
    """Joins judgements and a run: what is in one of them only has no score or label.

    Args:
        connection: a DuckDB.
        qrels: files of TREC, or a table of queries, items and labels.
        run: files of TREC, or a table of queries, items and scores.
        columns: the names of the columns, for tables.
        order: as in `read_rows`.
    """
    of_qrels = _create(connection, "qrels", qrels, columns, "label")
    of_run = _create(connection, "run", run, columns, "score")
    for id_, one, other in zip(("query", "item"), of_qrels, of_run, strict=True):
        if one != other:
            type_ = common_type(id_, {"`qrels`": one, "`run`": other})
            for name in ("qrels", "run"):
                connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")
    ((in_qrels, in_run, common),) = connection.sql(
        "SELECT count(DISTINCT q.query), count(DISTINCT r.query), "
        "count(DISTINCT r.query) FILTER (q.query = r.query) FROM "
        "(SELECT DISTINCT query FROM qrels) q FULL JOIN "
        "(SELECT DISTINCT query FROM run) r ON q.query = r.query"
    ).fetchall()
    for name, number, source in (
        ("qrels", in_qrels, qrels),
        ("run", in_run, run),
    ):
        if number == 0:
            raise no_rows(name, source)
    if common == 0:
        one, other = (
            connection.sql(f"SELECT min(query) FROM {name}").fetchall()[0][0]
            for name in ("qrels", "run")
        )
        raise ValueError(
            "`qrels` and `run` should have queries in common. Received: none, "
            f"with judgements of queries such as {one!r} and a run of queries such as "
            f"{other!r}"
        )
    score = "CAST(score AS FLOAT)" if order == "trec_eval" else "score"
    table = connection.sql(
        f"SELECT query, label, {score} AS score, item, of_run.row FROM qrels FULL "
        "JOIN (SELECT * FROM run WHERE query IN (SELECT query FROM qrels)) "
        "AS of_run USING (query, item)"
    )
    names = ["query", "label", "score", "item"]
    batches = _sorted_batches(table, "qrels", qrels, names, order)
    return Rows(batches, lambda query, item: named(run), in_run - common)


def judge(labels: Array, starts: Array, drop_unjudged: bool) -> Array:
    """Returns labels by the rules: one that is missing, or below 0, is no judgement.

    Args:
        labels: array of numbers, NaN where a label is missing.
        starts: int array of the places where lists start.
        drop_unjudged: whether an item without a judgement is none, which has the
            label -1. Else it has the label 0.
    """
    if not drop_unjudged:
        return np.where(labels >= 0.0, labels, 0.0)
    # Where all labels of a list are below 0, it has items, of which none is relevant.
    highest = np.fmax.reduceat(labels, starts)
    are_below = np.repeat(highest < 0.0, np.diff(np.append(starts, len(labels))))
    is_item = (labels >= 0.0) | (are_below & ~np.isnan(labels))
    return np.where(is_item, np.maximum(labels, 0.0), -1.0)


def _sorted_batches(
    table: Relation, argument: str, source: Any, names: Sequence[str], order: Order
) -> Iterator[pa.RecordBatch]:
    selected = ", ".join(f'"{name}"' for name in names)
    with errors_of(argument, source):
        ordered = f"SELECT {selected} FROM source ORDER BY query, {_ORDERS[order]}"
        reader = query(table, ordered).to_arrow_reader(_ROWS_AT_A_TIME)
    is_empty = True
    while True:
        with errors_of(argument, source):
            batch = next(reader, None)
        if batch is None:
            break
        if batch.num_rows:
            is_empty = False
            yield batch
    if is_empty:
        raise no_rows(argument, source)


def _create(
    connection: Connection, name: str, source: Any, columns: Columns, number: str
) -> tuple[str, str]:
    """Makes a table of one side of the join, and returns the types of its ids."""
    if is_table(source):
        ids = {"query": Sought("query", columns.query)}
        ids["item"] = Sought("item", columns.item or "")
        numbers = {number: Sought(number, getattr(columns, number))}
        table = select(connection, name, source, ids, numbers)
    else:
        table = _trec_lines(connection, name, source, number)
        fields = _TREC[name][0]
        place = {column: fields.index(column) + 1 for column in fields}
        table = query(
            table,
            f"SELECT fields[{place['query']}] AS query, fields[{place['item']}] AS "
            f"item, CAST(fields[{place[number]}] AS DOUBLE) AS {number} FROM source",
        )
    with errors_of(name, source):
        query(table, "SELECT *, row_number() OVER () AS row FROM source").create(name)
    created = connection.table(name)
    _require_ids(name, source, created)
    return str(created.types[0]), str(created.types[1])


def _trec_lines(
    connection: Connection, name: str, source: str | os.PathLike[str], number: str
) -> Relation:
    """Returns the fields of the lines of a TREC file, which are checked."""
    if source == "-":
        if sys.stdin is None:
            raise ValueError(
                f"`{name}` should be standard input. Received: a closed one"
            )
        lines = connection.from_arrow(pa.table({"line": sys.stdin.read().split("\n")}))
    else:
        with errors_of(name, source):
            lines = connection.sql(
                "SELECT * FROM read_csv($files, columns := {'line': 'VARCHAR'}, "
                "delim := chr(1), quote := '', escape := '', header := false, "
                "auto_detect := false)",
                params={"files": list(map(literally, files_of(name, source)))},
            )
    with errors_of(name, source):
        table_name = f"lines_of_{name}"
        query(
            lines,
            "SELECT line, row_number() OVER () AS number, "
            r"string_split_regex(trim(line, E' \t\r'), '\s+') AS fields FROM source",
        ).create(table_name)
    table = connection.table(table_name).filter("trim(line, E' \t\r') <> ''")
    expected, least = _TREC[name]
    place = expected.index(number) + 1
    wrong = table.filter(
        f"len(fields) NOT BETWEEN {least} AND {len(expected)} "
        f"OR TRY_CAST(fields[{place}] AS DOUBLE) IS NULL"
    ).order("number")
    found = wrong.select("number, line, len(fields)").limit(1).fetchall()
    if not found:
        return table
    number_of_line, line, width = found[0]
    other = {"qrels": "a run", "run": "qrels"}[name]
    widths = {"qrels": (5, 6), "run": (4,)}[name]
    raise ValueError(
        f"`{name}` should have lines of the fields {' '.join(expected)}, with a number "
        f"as {number}. Received: line {number_of_line} of {named(source)}, {line!r}"
        + (f", as in {other}: are they swapped?" if width in widths else "")
    )


def _require_ids(name: str, source: Any, table: Relation) -> None:
    """Raises for missing ids, and for an item that a query has twice."""
    for id_ in ("query", "item"):
        ((missing,),) = table.filter(f"{id_} IS NULL").count("*").fetchall()
        if missing:
            raise ValueError(
                f"`{id_}` should name a column without missing ids. Received: "
                f"{missing} missing, in {named(source)}"
            )
    counts = table.aggregate("query, item, count(*) AS number")
    for twice in counts.filter("number > 1").limit(1).fetchall():
        raise received_twice(name, twice[0], twice[1], named(source))


def received_twice(argument: str, query: Any, item: Any, where: str) -> ValueError:
    """The error for an item that a query has twice."""
    return ValueError(
        f"`{argument}` should have each item of a query once. Received twice: the item "
        f"{item!r} of the query {query!r}, in {where}"
    )
