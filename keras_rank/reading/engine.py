"""Helpers for DuckDB, which reads and sorts tables: connections, memory, and SQL."""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from typing import TypeAlias, cast

import duckdb

Connection: TypeAlias = duckdb.DuckDBPyConnection
Relation: TypeAlias = duckdb.DuckDBPyRelation

# A counter that gives each materialized table a unique name.
_TABLE_NUMBERS = itertools.count()
# The bytes that each thread of DuckDB needs before it can spill the rest to disk.
_MEMORY_PER_THREAD = 49_000_000


def connect(**config: str) -> Connection:
    """Returns a DuckDB connection that prints no progress to standard output."""
    connection = duckdb.connect(config=dict(config))
    # DuckDB rejects this setting in a Jupyter kernel without ipywidgets, which shows no
    # progress anyway.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar_print = false")
    return connection


@contextlib.contextmanager
def connect_with_limit(memory_limit: str | None) -> Iterator[Connection]:
    """Yields a DuckDB connection that spills to disk beyond its memory limit."""
    with (
        tempfile.TemporaryDirectory(prefix="keras_rank") as folder,
        connect(temp_directory=folder) as connection,
    ):
        if memory_limit is not None:
            _limit_memory(connection, memory_limit)
        yield connection


def query(table: Relation, sql: str) -> Relation:
    """Returns the result of an SQL query in which the table is named `source`."""
    return cast(Relation, table.query("source", sql))


def materialize(connection: Connection, table: Relation) -> Relation:
    """Computes a relation now and stores it, so that it can be read several times."""
    name = f"stored_{next(_TABLE_NUMBERS)}"
    table.create(name)
    return connection.table(name)


def number_rows(table: Relation) -> Relation:
    """Adds the column `row` with the number of each row, to restore the order later."""
    return query(table, "SELECT *, row_number() OVER () AS row FROM source")


def sql_literal(text: str) -> str:
    """Returns a string as an SQL literal.

    Literals are used because DuckDB can't combine relations that have parameters.
    """
    return "'" + text.replace("'", "''") + "'"


def _limit_memory(connection: Connection, memory_limit: str) -> None:
    """Limits DuckDB to half of the memory, as the metrics need memory, too."""
    try:
        connection.execute(f"SET memory_limit = {sql_literal(str(memory_limit))}")
        ((size, threads),) = connection.sql(
            "SELECT parse_formatted_bytes(current_setting('memory_limit')), "
            "current_setting('threads')"
        ).fetchall()
    except duckdb.Error as error:
        raise ValueError(
            '`memory_limit` should be a size such as "2GB". '
            f"Received: memory_limit={memory_limit!r}"
        ) from error
    half = size // 2
    if half < _MEMORY_PER_THREAD:
        raise ValueError(
            '`memory_limit` should be a size such as "2GB", of at least "100MB". '
            f"Received: memory_limit={memory_limit!r}"
        )
    threads = min(threads, half // _MEMORY_PER_THREAD)
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET memory_limit = '{half} bytes'")
