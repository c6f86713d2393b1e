"""Judgements and a run, joined as trec_eval joins them."""

import sys
from typing import Any

import pyarrow as pa

from keras_rank.reading import files, roles, sources
from keras_rank.reading.engine import Connection, Relation, connect, numbered
from keras_rank.reading.part import ColumnRef, ColumnRefs, common_type
from keras_rank.reading.query_dicts import without_dicts
from keras_rank.reading.rows import Columns, Order, Rows, sorted_batches
from keras_rank.reading.text import NUMBERS


def read_run(
    connection: Connection, qrels: Any, run: Any, columns: Columns, order: Order
) -> Rows:
    """Joins judgements and a run. Items of only one have no score or no label.

    Args:
        connection: a DuckDB.
        qrels: the judgements.
        run: the run.
        columns: the names of the columns, for tables.
        order: as in `read_rows`.
    """
    sides = {"qrels": _create(connection, "qrels", qrels, columns)}
    sides["run"] = _create(connection, "run", run, columns)
    for i, id_ in enumerate(("query", "item")):
        types = {f"`{name}`": str(table.types[i]) for name, table in sides.items()}
        type_ = common_type(id_, types)
        for name in sides if len(set(types.values())) > 1 else ():
            connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")
    with files.errors_of("run", run):
        left_out = _count_left_out(connection)
        rows = connection.sql(
            "SELECT query, label, score, item, of_run.row FROM qrels FULL JOIN "
            "(SELECT * FROM run WHERE query IN (SELECT query FROM qrels)) AS of_run "
            "USING (query, item)"
        )
    names = ("query", "label", "score", "item")
    batches = sorted_batches(rows, "qrels", qrels, names, order)
    return Rows(batches, left_out)


def judgements_of(source: Any) -> pa.Table:
    """Returns judgements as a table of queries, items and labels."""
    columns = Columns("query_id", "label", "score", "item_id")
    with connect() as connection:
        table = _create(connection, "qrels", source, columns).order("row")
        return table.project("query, item, label").to_arrow_table()


def _create(
    connection: Connection, name: str, source: Any, columns: Columns
) -> Relation:
    """Creates the table `qrels` or `run`: queries, items, numbers, and the `row`."""
    if isinstance(source, str) and source == "-":
        source = _standard_input(name)
    with files.errors_of(name, source):
        source, number = without_dicts(name, source, columns), NUMBERS[name]
        looked_for = roles.names_of(columns)
        parts = sources.parts_of(connection, name, source, looked_for)
        found, *others = [roles.roles_of(name, part, columns) for part in parts]
        if any(each != found for each in others):
            raise ValueError(
                f"`{name}` should be files with columns in one order. Received: "
                f"{files.named(source)}, with {[found, *others]}"
            )
        ids = {
            role: ColumnRef(role, column, is_required=True, is_finite=role == "label")
            for role, column in found.items()
        }
        numbers = {number: ids.pop(number)}
        numbered(sources.select(parts, ids, numbers)).create(name)
        table = connection.table(name)
        _require_rows(name, source, ids, table)
        is_bare = not parts[0].has_names and len(parts[0].columns) == 3
        if name == "run" and is_bare and found[number] != columns.score:
            # Nothing says that they are scores.
            _require_scores(table, source)
    return table


def _count_left_out(connection: Connection) -> int:
    """The number of queries that are only in the run. Raises if none is in both."""
    ((in_run, common, one, other),) = connection.sql(
        "SELECT count(DISTINCT r.query), count(DISTINCT r.query) FILTER (q.query = "
        "r.query), min(q.query), min(r.query) FROM (SELECT DISTINCT query FROM qrels) "
        "q FULL JOIN (SELECT DISTINCT query FROM run) r ON q.query = r.query"
    ).fetchall()
    if common == 0:
        raise ValueError(
            "`qrels` and `run` should have queries in common. Received: none, "
            f"with judgements of queries such as {one!r} and a run of queries such as "
            f"{other!r}"
        )
    return int(in_run - common)


def _require_rows(name: str, source: Any, ids: ColumnRefs, table: Relation) -> None:
    """Raises for no rows, missing values, and duplicate items of a query.

    A score may be NaN: it has no rank.
    """
    is_number, accepted = "score IS NOT NULL", ("a query", "an item", "a score")
    if name == "qrels":
        is_number = "label IS NOT NULL AND isfinite(CAST(label AS DOUBLE))"
        accepted = ("a query", "an item", "a finite label")
    ((rows, *there),) = table.aggregate(
        f"count(*), count(query), count(item), count(*) FILTER ({is_number})"
    ).fetchall()
    if rows == 0:
        raise files.no_rows(name, source)
    for what, found in zip(accepted, there, strict=True):
        if found < rows:
            raise ValueError(
                f"`{name}` should have {what} in each row. Received: "
                f"{rows - found} without one, in {files.named(source)}"
            )
    counts = table.aggregate("query, item, count(*) AS number").filter("number > 1")
    for query, item, _ in counts.limit(1).fetchall():
        raise sources.received_twice(name, source, ids, (query, item))


def _require_scores(table: Relation, source: Any) -> None:
    """Raises if numbers without a column name are ranks, from 0 or from 1 on."""
    of_queries = table.aggregate(
        "query, count(*) AS n, min(score) IN (0, 1) AND max(score) - min(score) + 1 = "
        "count(*) AND count(DISTINCT score) = count(*) AND bool_and(score = "
        "trunc(score)) AS are_ranks"
    )
    are_ranks = of_queries.aggregate("bool_and(are_ranks) AND max(n) > 1")
    if are_ranks.fetchall() == [(True,)]:
        raise ValueError(
            "`run` should have scores, where higher is better. Received: the numbers "
            f"1, 2, 3, ... or 0, 1, 2, ... for each query in {files.named(source)}, as "
            "if they were ranks; if they are scores, give the columns names"
        )


def _standard_input(name: str) -> bytes:
    if sys.stdin is None:
        raise ValueError(f"`{name}` should be standard input. Received: a closed one")
    # A stream of text that took its place may have no bytes.
    read = getattr(sys.stdin, "buffer", sys.stdin).read()
    return read.encode() if isinstance(read, str) else bytes(read)
