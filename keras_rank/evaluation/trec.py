"""Judgements and runs, however they are written, joined as trec_eval joins them.

They are lines of TREC or of three fields, `{query: {item: number}}`, or tables with the
names of columns that known tools write.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from keras_rank.evaluation.reading import (
    Columns,
    Order,
    Rows,
    received_twice,
    sorted_batches,
)
from keras_rank.evaluation.sources import (
    Connection,
    Relation,
    Sought,
    beginning,
    columns_of,
    common_type,
    errors_of,
    files_of,
    is_number,
    is_table,
    literally,
    named,
    no_rows,
    query,
    select,
    tabular,
)

# The fields of a line, by how many there are.
_RUN = ("query", "Q0", "item", "rank", "score", "tag")
_FIELDS = {
    "qrels": {
        4: ("query", "iteration", "item", "label"),
        3: ("query", "item", "label"),
    },
    "run": {6: _RUN, 5: _RUN[:5], 3: ("query", "item", "score")},
}
# Which of the fields of a line is the number.
_NUMBER = {3: 2, 4: 3, 5: 4, 6: 4}
# The columns of queries, items, labels and scores, as known tools name them: BEIR,
# ir_measures, ranx, PyTerrier, and Hugging Face's trec_eval; and three without names.
_KNOWN = (
    ("query-id", "corpus-id", "score", "score"),
    ("query_id", "doc_id", "relevance", "score"),
    ("q_id", "doc_id", "score", "score"),
    ("qid", "docno", "label", "score"),
    ("query", "docid", "rel", "score"),
    ("column0", "column1", "column2", "column2"),
)
_DEFAULTS = ("query_id", "item_id", "label", "score")
# How a JSON file starts that has an object for each query.
_NESTED = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{')


def read_run(
    connection: Connection, qrels: Any, run: Any, columns: Columns, order: Order
) -> Rows:
    """Joins judgements and a run: what is in one of them only has no score or label.

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
        left_out = _count_left_out(connection, qrels, run)
        score = "CAST(score AS FLOAT)" if order == "trec_eval" else "score"
        table = connection.sql(
            f"SELECT query, label, {score} AS score, item, of_run.row FROM qrels FULL "
            "JOIN (SELECT * FROM run WHERE query IN (SELECT query FROM qrels)) "
            "AS of_run USING (query, item)"
        )
    names = ["query", "label", "score", "item"]
    batches = sorted_batches(table, "qrels", qrels, names, order)
    return Rows(batches, lambda query, item: named(run), left_out)


def are_judgements(source: str, columns: Columns) -> bool:
    """Whether a file is one of judgements, and not rows with labels and scores."""
    if not is_table(source) or _layout(source) != "table":
        return True
    (file, *_) = files_of("qrels", source)
    names = columns_of("qrels", file)
    has_rows = columns.label in names and columns.score in names
    found = _columns(names, columns, "label")
    return not has_rows and set(found.values()) <= set(names)


def _count_left_out(connection: Connection, qrels: Any, run: Any) -> int:
    """The number of queries that only the run has. Some have to be in both."""
    ((in_qrels, in_run, common),) = connection.sql(
        "SELECT count(DISTINCT q.query), count(DISTINCT r.query), "
        "count(DISTINCT r.query) FILTER (q.query = r.query) FROM "
        "(SELECT DISTINCT query FROM qrels) q FULL JOIN "
        "(SELECT DISTINCT query FROM run) r ON q.query = r.query"
    ).fetchall()
    for name, number, source in (("qrels", in_qrels, qrels), ("run", in_run, run)):
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
    return int(in_run - common)


def _create(
    connection: Connection, name: str, source: Any, columns: Columns, number: str
) -> tuple[str, str]:
    """Makes a table of one side of the join, and returns the types of its ids."""
    with errors_of(name, source):
        layout = _layout(source)
        if layout == "lines":
            table, is_bare = _of_lines(connection, name, source, number)
        else:
            read = source
            if layout == "nested":
                read = _of_queries(name, source, columns, number)
            read = tabular(name, read)
            names = columns_of(name, read)
            found = _columns(names, columns, number)
            is_bare = names == list(_KNOWN[-1][:3])
            ids = {key: Sought(key, found[key]) for key in ("query", "item")}
            numbers = {number: Sought(number, found[number])}
            table = select(connection, name, read, ids, numbers)
        query(table, "SELECT *, row_number() OVER () AS row FROM source").create(name)
        created = connection.table(name)
        _require_ids(name, source, created)
        if is_bare and name == "run":
            _require_scores(created, source)
    return str(created.types[0]), str(created.types[1])


def _layout(source: Any) -> str:
    """Whether a source is of lines, nested by query, or a table."""
    if isinstance(source, Mapping):
        are_nested = bool(source) and all(
            isinstance(each, Mapping) for each in source.values()
        )
        return "nested" if are_nested else "table"
    if not isinstance(source, str | os.PathLike):
        return "table"
    first = beginning(source)
    if first is None:
        return "table" if is_table(source) else "lines"
    text = first.decode("utf-8-sig", errors="replace")
    if _NESTED.match(text):
        return "nested"
    fields = next((line.split() for line in text.splitlines() if line.strip()), [])
    is_line = len(fields) in _NUMBER and is_number(fields[_NUMBER[len(fields)]])
    return "lines" if is_line or not is_table(source) else "table"


def _columns(names: Sequence[str], columns: Columns, number: str) -> dict[str, str]:
    """The columns of queries, items and numbers: as given, or those of a known tool."""
    given = (columns.query, columns.item or "", columns.label, columns.score)
    keys = ("query", "item", "label", "score")
    for known in (_DEFAULTS, *_KNOWN):
        named_so = [
            name if name != default else other
            for name, default, other in zip(given, _DEFAULTS, known, strict=True)
        ]
        found = dict(zip(keys, named_so, strict=True))
        chosen = {key: found[key] for key in ("query", "item", number)}
        if set(chosen.values()) <= set(names):
            return chosen
    chosen = dict(zip(keys, given, strict=True))
    return {key: chosen[key] for key in ("query", "item", number)}


def _of_queries(name: str, source: Any, columns: Columns, number: str) -> pa.Table:
    """The table of `{query: {item: number}}`, of a dict or of files of JSON."""
    nested = [source]
    if not isinstance(source, Mapping):
        nested = [_nested(file) for file in files_of(name, source)]
    rows: list[tuple[Any, Any, Any]] = []
    for by_query in nested:
        for id_, items in by_query.items():
            if not isinstance(items, Mapping):
                raise ValueError(
                    f"`{name}` should have a dict of items and numbers for each "
                    f"query. Received: {items!r}, of the query {id_!r}"
                )
            rows += [(id_, item, value) for item, value in items.items()]
    names = (columns.query, columns.item or "", getattr(columns, number))
    values = zip(*rows, strict=True) if rows else [[], [], []]
    return pa.table(
        {name: list(each) for name, each in zip(names, values, strict=True)}
    )


def _nested(file: str) -> Any:
    """What is in a file of JSON, in which no query and no item is there twice."""

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(
                "Objects of JSON should have each key once. Received twice: "
                f"{twice!r}, in {file}"
            )
        return found

    with pa.input_stream(file, compression="detect") as stream:
        return json.loads(stream.read(), object_pairs_hook=of_pairs)


def _of_lines(
    connection: Connection, name: str, source: str | os.PathLike[str], number: str
) -> tuple[Relation, bool]:
    """Returns the fields of lines, which are checked, and whether there are three."""
    lines = _lines(connection, name, source)
    query(
        lines,
        "SELECT line, row_number() OVER () AS number, "
        r"string_split_regex(trim(line, E' \t\r'), '\s+') AS fields FROM source",
    ).create(f"lines_of_{name}")
    table = connection.table(f"lines_of_{name}")
    table = table.filter("trim(line, E' \t\r') <> ''")
    first = table.order("number").select("len(fields)").limit(1).fetchall()
    by_width = _FIELDS[name]
    is_bare = first == [(3,)]
    widths = [3] if is_bare else [width for width in by_width if width > 3]
    expected = by_width[max(widths)]
    place = {field: expected.index(field) + 1 for field in expected}
    wrong = table.filter(
        f"NOT list_contains({widths}, len(fields)) "
        f"OR TRY_CAST(fields[{place[number]}] AS DOUBLE) IS NULL"
    ).order("number")
    for line_number, line, width in (
        wrong.select("number, line, len(fields)").limit(1).fetchall()
    ):
        other = {"qrels": "run", "run": "qrels"}[name]
        is_other = width in _FIELDS[other] and width not in by_width
        article = "a run" if other == "run" else other
        raise ValueError(
            f"`{name}` should have lines of the fields {' '.join(expected)}, with a "
            f"number as {number}. Received: line {line_number} of {named(source)}, "
            f"{line!r}" + f", as in {article}: are they swapped?" * is_other
        )
    selected = query(
        table,
        f"SELECT fields[{place['query']}] AS query, fields[{place['item']}] AS item, "
        f"CAST(fields[{place[number]}] AS DOUBLE) AS {number} FROM source",
    )
    return selected, is_bare


def _lines(
    connection: Connection, name: str, source: str | os.PathLike[str]
) -> Relation:
    if source != "-":
        return connection.sql(
            "SELECT * FROM read_csv($files, columns := {'line': 'VARCHAR'}, "
            "delim := chr(1), quote := '', escape := '', header := false, "
            "auto_detect := false)",
            params={"files": list(map(literally, files_of(name, source)))},
        )
    if sys.stdin is None:
        raise ValueError(f"`{name}` should be standard input. Received: a closed one")
    return connection.from_arrow(pa.table({"line": sys.stdin.read().split("\n")}))


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


def _require_scores(table: Relation, source: Any) -> None:
    """Raises for numbers without a name that are the ranks 1, 2, 3, ..."""
    of_queries = table.aggregate(
        "query, count(*) AS n, min(score) = 1 AND max(score) = count(*) AND "
        "count(DISTINCT score) = count(*) AS are_ranks"
    )
    ((are_ranks,),) = of_queries.aggregate(
        "bool_and(are_ranks) AND max(n) > 1"
    ).fetchall()
    if are_ranks:
        raise ValueError(
            "`run` should have scores, of which a higher one is better. Received: the "
            f"numbers 1, 2, 3, ... for each query in {named(source)}, as if they were "
            "ranks; if they are scores, give the columns names"
        )
