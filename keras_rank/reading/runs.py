"""Relevances and a run, joined as trec_eval joins them."""

from typing import Any

import pyarrow as pa

from keras_rank.reading.engine import Connection, Relation, connect, query
from keras_rank.reading.files import errors_of, named, no_rows
from keras_rank.reading.forms import Side, side_of
from keras_rank.reading.part import common_type
from keras_rank.reading.rows import (
    Columns,
    Order,
    Rows,
    received_twice,
    sorted_batches,
)
from keras_rank.reading.sources import places_of


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
    of_qrels = _create(connection, "qrels", qrels, columns, "label")
    of_run = _create(connection, "run", run, columns, "score")
    for id_, one, other in zip(("query", "item"), of_qrels, of_run, strict=True):
        if one != other:
            type_ = common_type(id_, {"`qrels`": one, "`run`": other})
            for name in ("qrels", "run"):
                connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")
    with errors_of("run", run):
        left_out = _count_left_out(connection)
        table = connection.sql(
            "SELECT query, label, score, item, of_run.row FROM qrels FULL JOIN "
            "(SELECT * FROM run WHERE query IN (SELECT query FROM qrels)) AS of_run "
            "USING (query, item)"
        )
    names = ["query", "label", "score", "item"]
    batches = sorted_batches(table, "qrels", qrels, names, order)
    return Rows(batches, lambda query, item: named(run), left_out)


def judgements_of(source: Any) -> pa.Table:
    """Returns judgements as a table of queries, items and labels."""
    columns = Columns("query_id", "label", "score", "item_id")
    with connect() as connection:
        _create(connection, "qrels", source, columns, "label")
        rows = "SELECT query, item, label FROM qrels ORDER BY row"
        return connection.sql(rows).to_arrow_table()


def _create(
    connection: Connection, name: str, source: Any, columns: Columns, number: str
) -> tuple[str, str]:
    """Creates a table for one side of the join, and returns the types of its ids."""
    with errors_of(name, source):
        side = side_of(connection, name, source, columns, number)
        numbered = "SELECT *, row_number() OVER () AS row FROM source"
        query(side.table, numbered).create(name)
        created = connection.table(name)
        _require_rows(name, side, created, number)
        if name == "run" and side.may_be_ranks:
            _require_scores(created, side.source)
    return str(created.types[0]), str(created.types[1])


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


def _require_rows(name: str, side: Side, table: Relation, number: str) -> None:
    """Raises for no rows, missing values, and duplicate items of a query.

    A score may be NaN: it has no rank.
    """
    source = side.source
    is_number = f"{number} IS NOT NULL"
    if name == "qrels":
        is_number += f" AND isfinite(CAST({number} AS DOUBLE))"
    ((rows, *there),) = table.aggregate(
        f"count(*), count(query), count(item), count(*) FILTER ({is_number})"
    ).fetchall()
    if rows == 0:
        raise no_rows(name, source)
    accepted = (
        "a query",
        "an item",
        "a score" if number == "score" else "a finite label",
    )
    for what, found in zip(accepted, there, strict=True):
        if found < rows:
            raise ValueError(
                f"`{name}` should have {what} in each row. Received: "
                f"{rows - found} without one, in {named(source)}"
            )
    counts = table.aggregate("query, item, count(*) AS number")
    for twice in counts.filter("number > 1").limit(1).fetchall():
        where = places_of(name, source, side.ids, twice[:2])
        raise received_twice(name, twice[0], twice[1], where)


def _require_scores(table: Relation, source: Any) -> None:
    """Raises if numbers without a column name are ranks, from 0 or from 1 on."""
    of_queries = table.aggregate(
        "query, count(*) AS n, min(score) IN (0, 1) AND max(score) - min(score) + 1 = "
        "count(*) AND count(DISTINCT score) = count(*) AND bool_and(score = "
        "trunc(score)) AS are_ranks"
    )
    ((are_ranks,),) = of_queries.aggregate(
        "bool_and(are_ranks) AND max(n) > 1"
    ).fetchall()
    if are_ranks:
        raise ValueError(
            "`run` should have scores, where higher is better. Received: the numbers "
            f"1, 2, 3, ... or 0, 1, 2, ... for each query in {named(source)}, as if "
            "they were ranks; if they are scores, give the columns names"
        )
