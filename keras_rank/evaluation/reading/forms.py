"""The formats of judgements and runs, and how each becomes a table.

They are TREC lines, lines of three fields, `{query: {item: number}}`, or tables with
the column names of known tools.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from keras_rank.evaluation.reading.engine import Connection, Relation, query
from keras_rank.evaluation.reading.files import (
    beginning,
    files_of,
    is_number,
    is_table,
    literally,
    named,
)
from keras_rank.evaluation.reading.part import Sought
from keras_rank.evaluation.reading.rows import Columns
from keras_rank.evaluation.reading.sources import columns_of, select, tabular

# The fields of a line, by their number.
_RUN = ("query", "Q0", "item", "rank", "score", "tag")
_FIELDS = {
    "qrels": {
        4: ("query", "iteration", "item", "label"),
        3: ("query", "item", "label"),
    },
    "run": {6: _RUN, 5: _RUN[:5], 3: ("query", "item", "score")},
}
# The place of the number among the fields.
_NUMBER = {3: 2, 4: 3, 5: 4, 6: 4}
# The columns of queries, items, labels and scores in known tools: BEIR, ir_measures,
# ranx, PyTerrier, and Hugging Face's trec_eval; and three columns without names.
_KNOWN = (
    ("query-id", "corpus-id", "score", "score"),
    ("query_id", "doc_id", "relevance", "score"),
    ("q_id", "doc_id", "score", "score"),
    ("qid", "docno", "label", "score"),
    ("query", "docid", "rel", "score"),
    ("column0", "column1", "column2", "column2"),
)
_DEFAULTS = ("query_id", "item_id", "label", "score")
# The start of a JSON file with an object for each query.
_NESTED = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{')


class Side(NamedTuple):
    """Judgements or a run: a table with the columns `query`, `item`, and a number.

    Attributes:
        table: the table.
        has_names: whether the source says what the numbers are.
    """

    table: Relation
    has_names: bool


def side_of(
    connection: Connection, name: str, source: Any, columns: Columns, number: str
) -> Side:
    """Returns the table of judgements or of a run.

    Args:
        connection: a DuckDB.
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns, for tables.
        number: the kind of the numbers: `"label"` or `"score"`.
    """
    layout = _layout(source)
    if layout == "lines":
        return _of_lines(connection, name, source, number)
    if layout == "nested":
        source = _of_queries(name, source, columns, number)
    source = tabular(name, source)
    names = columns_of(name, source)
    found = {key: Sought(key, x) for key, x in _known(names, columns, number).items()}
    numbers = {number: found.pop(number)}
    table = select(connection, name, source, found, numbers)
    return Side(table, names != list(_KNOWN[-1][:3]))


def are_judgements(source: str, columns: Columns) -> bool:
    """Whether a file holds judgements, rather than rows with labels and scores."""
    if not is_table(source) or _layout(source) != "table":
        return True
    (file, *_) = files_of("qrels", source)
    names = columns_of("qrels", file)
    has_rows = columns.label in names and columns.score in names
    found = _known(names, columns, "label")
    return not has_rows and set(found.values()) <= set(names)


def _layout(source: Any) -> str:
    """Whether a source has lines, is nested by query, or is a table."""
    if isinstance(source, Mapping):
        are_nested = all(isinstance(each, Mapping) for each in source.values())
        return "nested" if are_nested else "table"
    if not isinstance(source, str | os.PathLike):
        return "table"
    first = beginning(source)
    if first is None:
        return "table" if is_table(source) else "lines"
    text = first.decode("utf-8-sig", errors="replace")
    if _NESTED.match(text):
        return "nested"
    line = next((line for line in text.splitlines() if line.strip()), "")
    fields = line.split()
    if line.count("\t") == 2 and len(fields) > 3:
        # Three columns, whose ids may contain spaces.
        return "table"
    is_line = len(fields) in _NUMBER and (
        is_number(fields[_NUMBER[len(fields)]]) or fields[1] == "Q0"
    )
    return "lines" if is_line or not is_table(source) else "table"


def _known(names: Sequence[str], columns: Columns, number: str) -> dict[str, str]:
    """The columns of queries, items and numbers: as named, or of a known tool."""
    given = (columns.query, columns.item or "", columns.label, columns.score)
    keys = ("query", "item", "label", "score")
    for known in (_DEFAULTS, *_KNOWN, given):
        named_so = [
            name if name != default else other
            for name, default, other in zip(given, _DEFAULTS, known, strict=True)
        ]
        found = dict(zip(keys, named_so, strict=True))
        chosen = {key: found[key] for key in ("query", "item", number)}
        if set(chosen.values()) <= set(names):
            break
    return chosen


def _of_queries(name: str, source: Any, columns: Columns, number: str) -> pa.Table:
    """The table of `{query: {item: number}}`, from a dict or from JSON files."""
    nested = [source]
    if not isinstance(source, Mapping):
        nested = [_nested(file) for file in files_of(name, source)]
    rows: list[tuple[Any, Any, Any]] = []
    for by_query in nested:
        for id_, items in by_query.items():
            if not isinstance(items, Mapping):
                raise ValueError(
                    f"`{name}` should have a dict of items and numbers for each "
                    f"query. Received: {items!r}, for the query {id_!r}"
                )
            rows += [(id_, item, value) for item, value in items.items()]
    names = (columns.query, columns.item or "", getattr(columns, number))
    values = zip(*rows, strict=True) if rows else [[], [], []]
    try:
        return pa.table(
            {name: list(each) for name, each in zip(names, values, strict=True)}
        )
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _nested(file: str) -> Any:
    """The content of a JSON file. Raises for duplicate queries and items."""

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
) -> Side:
    """Returns the fields of lines, and checks these."""
    space = r"E' \t\r'"
    query(
        _lines(connection, name, source),
        "SELECT line, row_number() OVER () AS number, "
        rf"string_split_regex(trim(line, {space}), '\s+') AS fields FROM source",
    ).create(f"lines_of_{name}")
    table = connection.table(f"lines_of_{name}").filter(f"trim(line, {space}) <> ''")
    first = table.order("number").select("len(fields)").limit(1).fetchall()
    by_width = _FIELDS[name]
    is_bare = first == [(3,)]
    widths = [3] if is_bare else [width for width in by_width if width > 3]
    expected = by_width[max(widths)]
    place = {field: expected.index(field) + 1 for field in expected}
    wrong = table.filter(
        f"NOT list_contains({widths}, len(fields)) "
        f"OR TRY_CAST(fields[{place[number]}] AS DOUBLE) IS NULL "
        # DuckDB reads 1_0 as 10.
        f"OR contains(fields[{place[number]}], '_')"
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
    return Side(selected, not is_bare)


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
