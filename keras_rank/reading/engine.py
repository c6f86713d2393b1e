"""DuckDB, the engine that reads and sorts: connections, memory, and SQL."""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from typing import TypeAlias, cast

import duckdb

Connection: TypeAlias = duckdb.DuckDBPyConnection
Relation: TypeAlias = duckdb.DuckDBPyRelation

# The numbers of stored tables.
_TABLES = itertools.count()
# What a thread of DuckDB needs so that it can write the rest to disk.
_MEMORY_OF_A_THREAD = 49_000_000


def connect(**config: str) -> Connection:
    """Returns a DuckDB that prints no progress to standard output."""
    connection = duckdb.connect(config=dict(config))
    connection.execute("SET enable_progress_bar_print = false")
    return connection


@contextlib.contextmanager
def connected(memory_limit: str | None) -> Iterator[Connection]:
    """Yields a DuckDB that spills to disk beyond its memory limit."""
    with tempfile.TemporaryDirectory(prefix="keras_rank") as folder:
        limit = {} if memory_limit is None else {"memory_limit": str(memory_limit)}
        try:
            connection = connect(temp_directory=folder, **limit)
        except duckdb.Error as error:
            raise ValueError(
                '`memory_limit` should be a size such as "2GB". '
                f"Received: memory_limit={memory_limit!r}"
            ) from error
        with connection:
            if memory_limit is not None:
                _share_memory(connection, memory_limit)
            yield connection


def query(table: Relation, sql: str) -> Relation:
    """Returns the result of a query on a table, which it calls `source`."""
    return cast(Relation, table.query("source", sql))


def stored(connection: Connection, table: Relation) -> Relation:
    """Computes a table now, so that it can be read again."""
    name = f"stored_{next(_TABLES)}"
    table.create(name)
    return connection.table(name)


def numbered(table: Relation) -> Relation:
    """Returns a table with the number of each `row`, by which its order is restored."""
    return query(table, "SELECT *, row_number() OVER () AS row FROM source")


def in_sql(text: str) -> str:
    """A text as SQL, as relations with parameters can't be combined."""
    return "'" + text.replace("'", "''") + "'"


def _share_memory(connection: Connection, memory_limit: str) -> None:
    """Limits DuckDB to half of the memory, as the computation needs some too."""
    ((size, threads),) = connection.sql(
        "SELECT parse_formatted_bytes(current_setting('memory_limit')), "
        "current_setting('threads')"
    ).fetchall()
    half = size // 2
    if half < _MEMORY_OF_A_THREAD:
        raise ValueError(
            '`memory_limit` should be a size such as "2GB", of at least "100MB". '
            f"Received: memory_limit={memory_limit!r}"
        )
    threads = min(threads, half // _MEMORY_OF_A_THREAD)
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET memory_limit = '{half} bytes'")
