"""The rules of reading: tables and TREC files, as rows that are sorted by query.

A label that is missing, or below 0, counts as 0, or its row is left out. An item
without a score, or with the score NaN, was not retrieved. Queries that are only in the
judgements count; those that nobody judged are left out, and counted. Nothing else is
dropped: missing ids and items that a query has twice are errors.
"""

import contextlib
import dataclasses
import functools
import glob
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import dataset

Array: TypeAlias = np.ndarray[Any, Any]
Connection: TypeAlias = duckdb.DuckDBPyConnection
Relation: TypeAlias = duckdb.DuckDBPyRelation

# What reads a file, by the end of its name, which `.gz` or `.zst` may follow.
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
_INTEGERS = [f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL", "BIG")]
_INTEGERS += ["INTEGER", "UINTEGER", "HUGEINT", "UHUGEINT"]
_NUMBERS = ["FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", *_INTEGERS]
Order: TypeAlias = Literal["row", "item", "trec_eval"]
_ORDERS: dict[Order, str] = {"row": "row", "item": "item", "trec_eval": "item DESC"}

# The fields of a line of TREC files, and how many there have to be.
_TREC = {
    "qrels": (("query", "iteration", "item", "label"), 4),
    "run": (("query", "Q0", "item", "rank", "score", "tag"), 5),
}
# How the lines of an error start in which DuckDB advises its own users.
_ADVICE = ("Possible", "Potential", "If you are trying")
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
        left_out: the number of queries that were left out, as nobody judged them.
    """

    batches: Iterator[pa.RecordBatch]
    described: Callable[[Any, Any], str]
    left_out: int = 0


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
        if memory_limit is not None:
            # Half of it, as what is known of the lists needs memory too.
            ((limit,),) = connection.sql(
                "SELECT current_setting('memory_limit')"
            ).fetchall()
            size, unit = limit.split()
            connection.execute(f"SET memory_limit = '{float(size) / 2} {unit}'")
        with connection:
            yield connection


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
    table = _open(connection, "rows", source)
    numbers = {"label": columns.label, "score": columns.score}
    if columns.weight is not None:
        numbers["weight"] = columns.weight
    selected = {"query": _id(table, "query", columns.query)}
    for argument, name in numbers.items():
        selected[argument] = _number(table, argument, name)
    if columns.item is not None:
        selected["item"] = _id(table, "item", columns.item)
    for i, name in enumerate(columns.keep):
        selected[str(i)] = _id(table, "keep", name)
    if order == "trec_eval":
        selected["score"] = f"CAST({selected['score']} AS FLOAT)"
    # DuckDB sorts in parallel: without the row, the order would change each time.
    table = _query(
        table, f"SELECT {_as(selected)}, row_number() OVER () AS row FROM source"
    )
    batches = _sorted_batches(table, "rows", source, list(selected), order)
    return Rows(batches, functools.partial(_files_of, source, columns))


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
    types = [
        _create(connection, "qrels", qrels, columns, "label"),
        _create(connection, "run", run, columns, "score"),
    ]
    for place, id_ in enumerate(("query", "item")):
        of_both = {each[place] for each in types}
        if len(of_both) > 1 and "VARCHAR" in of_both:
            # The numbers of one side are written in the text of the other.
            for name in ("qrels", "run"):
                connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE VARCHAR")
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
            raise _no_rows(name, source)
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


def is_table(source: Any) -> bool:
    """Whether a source is a table, of which the columns have names, not of TREC."""
    return not isinstance(source, str | os.PathLike) or _format(source) is not None


def named(source: Any) -> str:
    """What a source is called in messages."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    if _are_files(source):
        return ", ".join(map(named, source[:3])) + ", ..." * (len(source) > 3)
    return f"a {type(source).__name__}"


@contextlib.contextmanager
def _errors_of(argument: str, source: Any) -> Iterator[None]:
    """Turns errors of reading into errors that name the argument."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        reasons = itertools.takewhile(
            lambda line: line and not line.startswith(_ADVICE),
            str(error).strip().splitlines(),
        )
        reason = "; ".join(reason.strip().rstrip(".") for reason in reasons)
        raise ValueError(
            f"`{argument}` should be a table that can be read. "
            f"Received: {named(source)}, and the error: {reason}"
        ) from error


def _format(path: str | os.PathLike[str]) -> str | None:
    name = os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst")
    return _FORMATS.get(os.path.splitext(name)[1])


def _open(connection: Connection, argument: str, source: Any) -> Relation:
    """Returns the table of files, or of anything that Arrow knows, unread."""
    with _errors_of(argument, source):
        if _are_files(source):
            return _open_files(connection, argument, source)
        if isinstance(source, duckdb.DuckDBPyRelation):
            source = source.to_arrow_reader()
        if isinstance(source, pa.RecordBatchReader | dataset.Dataset):
            return connection.from_arrow(source)
        is_stream = hasattr(source, "__arrow_c_stream__")
        if not (is_stream or isinstance(source, Mapping | pa.Table | pa.RecordBatch)):
            raise ValueError(
                f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
                "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns. "
                f"Received: {named(source)}"
            )
        if isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        return connection.from_arrow(pa.table(source))


def _are_files(source: Any) -> bool:
    if isinstance(source, Sequence) and not isinstance(source, str):
        return bool(source) and all(map(_are_files, source))
    return isinstance(source, str | os.PathLike)


def _files(argument: str, source: Any) -> list[str]:
    """The files that paths and patterns stand for."""
    if not isinstance(source, str | os.PathLike):
        return [file for each in source for file in _files(argument, each)]
    path = os.fspath(source)
    if "://" in path:
        return [path]
    files = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not files:
        raise ValueError(
            f"`{argument}` should be files that exist. Received: {path!r}, which "
            "matches no file"
        )
    for file in files:
        if os.path.isdir(file):
            raise ValueError(
                f"`{argument}` should be files. Received: {file!r}, which is a folder: "
                f"give {os.path.join(file, '*.parquet')!r} for the files in it"
            )
    return files


def _open_files(
    connection: Connection, argument: str, source: Any, filename: bool = False
) -> Relation:
    files = _files(argument, source)
    formats = {_format(file) for file in files}
    if len(formats) > 1 or None in formats:
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(_FORMATS)}. Received: {named(files)}"
        )
    (format_,) = formats
    if format_ in ("csv", "json") and not any(map(_has_text, files)):
        # DuckDB would find a column in them, of a name that nobody has given.
        raise _no_rows(argument, source)
    if format_ == "ipc":
        shards = dataset.dataset(files, format="ipc")
        for shard in shards.get_fragments():
            missing = set(shards.schema.names) - set(shard.physical_schema.names)
            if missing:
                raise ValueError(
                    f"`{argument}` should be files with the same columns. Received: "
                    f"{shard.path}, which lacks {sorted(missing)}"
                )
        return connection.from_arrow(shards)
    return connection.sql(
        f"SELECT * FROM read_{format_}($files, filename := $filename)",
        params={"files": files, "filename": filename},
    )


def _has_text(file: str) -> bool:
    return "://" in file or os.path.getsize(file) > 0


def _query(table: Relation, sql: str) -> Relation:
    """Returns what a query selects from the table, which it calls `source`."""
    return cast(Relation, table.query("source", sql))


def _column(table: Relation, argument: str, name: str) -> str:
    """Returns the type of a column, which has to be there."""
    if name not in table.columns:
        raise ValueError(
            f"`{argument}` should name a column. Received: {argument}={name!r}, and a "
            f"table with the columns {table.columns}"
        )
    return str(table.types[table.columns.index(name)])


def _number(table: Relation, argument: str, name: str) -> str:
    """Returns the expression of a column of numbers."""
    type_ = _column(table, argument, name)
    if not type_.startswith(tuple(_NUMBERS)) or type_.endswith("]"):
        found = table.filter(f"{_quoted(name)} IS NOT NULL")
        if type_ == "VARCHAR":
            # Text that is no number, if there is any, is what to tell of.
            found = found.order(f"TRY_CAST({_quoted(name)} AS DOUBLE) IS NOT NULL")
        # A column without any value has a type of chance.
        for row in found.limit(1).fetchall():
            raise ValueError(
                f"`{argument}` should name a column of numbers. Received: "
                f"{argument}={name!r}, which is of the type {type_}, such as "
                f"{row[table.columns.index(name)]!r}"
            )
    # Scores are compared as they come: never in less than their own precision.
    precision = type_ if type_ == "FLOAT" else "DOUBLE"
    return f"CAST({_quoted(name)} AS {precision})"


def _id(table: Relation, argument: str, name: str) -> str:
    """Returns the expression of a column of ids, or of what is known of a query."""
    type_ = _column(table, argument, name)
    if type_.endswith("]") or type_.startswith(("STRUCT", "MAP", "UNION")):
        raise ValueError(
            f"`{argument}` should name columns of numbers, text, or dates. Received: "
            f"{argument}={name!r}, which is of the type {type_}"
        )
    # Categories would be sorted by their codes, which files need not share.
    is_category = type_.startswith("ENUM")
    return f"CAST({_quoted(name)} AS VARCHAR)" if is_category else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _as(expressions: Mapping[str, str]) -> str:
    return ", ".join(f'{sql} AS "{name}"' for name, sql in expressions.items())


def _sorted_batches(
    table: Relation, argument: str, source: Any, names: Sequence[str], order: Order
) -> Iterator[pa.RecordBatch]:
    selected = ", ".join(map(_quoted, names))
    with _errors_of(argument, source):
        ordered = f"SELECT {selected} FROM source ORDER BY query, {_ORDERS[order]}"
        reader = _query(table, ordered).to_arrow_reader(_ROWS_AT_A_TIME)
    is_empty = True
    while True:
        with _errors_of(argument, source):
            batch = next(reader, None)
        if batch is None:
            break
        if batch.num_rows:
            is_empty = False
            yield batch
    if is_empty:
        raise _no_rows(argument, source)


def _no_rows(argument: str, source: Any) -> ValueError:
    return ValueError(
        f"`{argument}` should have rows. Received: none, from {named(source)}"
    )


def _files_of(source: Any, columns: Columns, query: Any, item: Any) -> str:
    """Returns the names of the files that have rows of an item of a query."""
    if not _are_files(source) or _format(_files("rows", source)[0]) == "ipc":
        return named(source)
    column, constant = duckdb.ColumnExpression, duckdb.ConstantExpression
    is_item = column(columns.item or "") == constant(item)
    of_query = column(columns.query) == constant(query)
    # Another DuckDB, as the rows are still read from the one.
    with connected(None) as connection:
        rows = _open_files(connection, "rows", source, filename=True)
        files = rows.filter(is_item & of_query).select("filename").distinct()
        return named(sorted(file for (file,) in files.fetchall()))


def _create(
    connection: Connection, name: str, source: Any, columns: Columns, number: str
) -> tuple[str, str]:
    """Makes a table of one side of the join, and returns the types of its ids."""
    if is_table(source):
        table = _open(connection, name, source)
        selected = {
            "query": _id(table, "query", columns.query),
            "item": _id(table, "item", columns.item or ""),
            number: _number(table, number, getattr(columns, number)),
        }
    else:
        table = _trec_lines(connection, name, source, number)
        fields = _TREC[name][0]
        selected = {
            column: f"fields[{fields.index(column) + 1}]"
            for column in ("query", "item", number)
        }
        selected[number] = f"CAST({selected[number]} AS DOUBLE)"
    with _errors_of(name, source):
        _query(
            table, f"SELECT {_as(selected)}, row_number() OVER () AS row FROM source"
        ).create(name)
    created = connection.table(name)
    _require_ids(name, source, created)
    return str(created.types[0]), str(created.types[1])


def _trec_lines(
    connection: Connection, name: str, source: str | os.PathLike[str], number: str
) -> Relation:
    """Returns the fields of the lines of a TREC file, which are checked."""
    if source == "-":
        lines = connection.from_arrow(pa.table({"line": sys.stdin.read().splitlines()}))
    else:
        with _errors_of(name, source):
            lines = connection.sql(
                "SELECT * FROM read_csv($files, columns := {'line': 'VARCHAR'}, "
                "delim := chr(1), quote := '', escape := '', header := false, "
                "auto_detect := false)",
                params={"files": _files(name, source)},
            )
    with _errors_of(name, source):
        table_name = f"lines_of_{name}"
        _query(
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
    for query, item, _ in counts.filter("number > 1").limit(1).fetchall():
        raise received_twice(name, query, item, named(source))


def received_twice(argument: str, query: Any, item: Any, where: str) -> ValueError:
    """The error for an item that a query has twice."""
    return ValueError(
        f"`{argument}` should have each item of a query once. Received twice: the item "
        f"{item!r} of the query {query!r}, in {where}"
    )
