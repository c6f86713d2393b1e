"""The forms of judgements and runs, and how each becomes a table.

They are TREC lines, lines of three fields, `{query: {item: number}}`, `{query:
[items]}`, or tables with the column names of known tools, or without names.
"""

import glob
import os
import re
import reprlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from keras_rank.reading.engine import Connection, Relation, connect, query
from keras_rank.reading.files import (
    are_files,
    errors_of,
    files_of,
    is_named_table,
    named,
)
from keras_rank.reading.layouts import lines_of
from keras_rank.reading.objects import json_of
from keras_rank.reading.part import FINITE, Part, Sought
from keras_rank.reading.rows import Columns, received_twice
from keras_rank.reading.sources import layout_of_file, parts_of, select
from keras_rank.reading.text import PLACE, LinesPart

# The names of columns in known tools, BEIR, ir_measures, ranx, PyTerrier, Hugging Face
# and Quepid among them: the first of them that a table has.
_KNOWN = {
    "query": ("query_id", "query-id", "q_id", "qid", "user_id", "query"),
    "item": ("item_id", "corpus-id", "doc_id", "docno", "docid"),
    "label": ("label", "relevance", "rel", "rating"),
    "score": ("score",),
}
# The queries and items of judgements whose label is named `score`.
_SCORED = (("query-id", "corpus-id"), ("q_id", "doc_id"), ("query", "doc_id"))
# The places of query, item and number in rows without names, by their length.
_PLACES = {
    "qrels": {3: (0, 1, 2)},
    "run": {3: (0, 1, 2), 5: (0, 2, 4), 6: (0, 2, 4)},
}
# Keys of a dict of columns, which a query is not likely to have for an id.
_COLUMN = re.compile(
    r"(q|query|user|doc|corpus|item)?[ _-]?(id|no)|query|doc|item|label|rel|relevance|"
    r"rating|grade|score|rank|column\d",
    re.IGNORECASE,
)
_ACCEPTED = {
    "qrels": "a list or set of those of relevant items. Leave a query without "
    "judgements out",
    "run": "a list, the best first. Where nothing was found, pass an empty one or "
    "leave the query out: both count as 0",
}
# Query, iteration, item and label; query, item, label and iteration.
_TREC, _TSV = (0, 2, 3), (0, 1, 2)


class Side(NamedTuple):
    """Relevances or a run: a table with the columns `query`, `item`, and a number.

    Attributes:
        table: the table.
        source: what it is read from.
        ids: the columns of queries and items there.
        may_be_ranks: whether nothing says that the numbers are scores, not ranks.
    """

    table: Relation
    source: Any
    ids: Mapping[str, Sought]
    may_be_ranks: bool


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
    if isinstance(source, str) and source == "-":
        source = _standard_input(name)
    if _is_nested(name, source):
        with errors_of(name, source):
            nested = [json_of(file) for file in files_of(name, source)]
        source = _table_of_queries(name, nested, columns, number)
    elif isinstance(source, Mapping):
        source = _table_of_queries(name, [source], columns, number)
    parts = parts_of(connection, name, source, _names_of(columns))
    of_roles, *others = [_roles(name, part, columns, number) for part in parts]
    if any(each != of_roles for each in others):
        raise ValueError(
            f"`{name}` should be files with columns in one order. Received: "
            f"{named(source)}, with {[of_roles, *others]}"
        )
    found = {
        role: Sought(role, column, is_required=True, is_finite=role == "label")
        for role, column in of_roles.items()
    }
    numbers = {number: found.pop(number)}
    is_bare = not parts[0].has_names and len(parts[0].columns) == 3
    may_be_ranks = is_bare and numbers[number].name != columns.score
    return Side(select(parts, found, numbers), source, found, may_be_ranks)


def are_relevances(file: str, columns: Columns) -> bool:
    """Whether a file holds judgements, rather than rows with labels and scores."""
    if not is_table(file) or _is_nested("qrels", file):
        return True
    with errors_of("qrels", file), connect() as connection:
        (part, *_) = parts_of(connection, "qrels", file, _names_of(columns))
    if {columns.label, columns.score} <= set(part.columns):
        return False
    found = _of_names(part.columns, columns, "label")
    return not part.has_names or set(found.values()) <= set(part.columns)


def is_table(source: Any) -> bool:
    """Whether a source is a table with columns, not lines of fields."""
    if not isinstance(source, str | os.PathLike) or is_named_table(os.fspath(source)):
        return True
    path = os.fspath(source)
    file = path if os.path.exists(path) else min(glob.glob(path), default="")
    return os.path.isfile(file) and layout_of_file("qrels", file) not in (
        "lines",
        "nothing",
    )


def _names_of(columns: Columns) -> set[str]:
    """All names that columns may have."""
    given = {columns.query, columns.item or "", columns.label, columns.score}
    return given.union(*_KNOWN.values())


def _is_nested(name: str, source: Any) -> bool:
    """Whether a source is JSON of `{query: {item: number}}`."""
    if not are_files(source):
        return False
    return layout_of_file(name, files_of(name, source)[0]) == "nested"


def _roles(name: str, part: Part, columns: Columns, number: str) -> dict[str, str]:
    """The columns of queries, items and numbers: as named, as known, or by place."""
    if part.has_names:
        return _of_names(part.columns, columns, number)
    given = {"query": columns.query, "item": columns.item or ""}
    given[number] = getattr(columns, number)
    if set(given.values()) <= set(part.columns):
        return given
    places: tuple[int, ...] | None = _PLACES[name].get(len(part.columns))
    if name == "qrels" and len(part.columns) == 4:
        places = _places_of_four(part)
    if places is None:
        line = re.split("[\r\n]", part.first.lstrip("\r\n"), maxsplit=1)[0]
        raise ValueError(
            f"`{name}` should name its columns, or have those of TREC. Received: "
            f"{part.name}, whose first line is {line!r}: say which are the `query`, "
            f"the `item` and the `{number}` (--query, --item, --{number}), such as "
            f'query="column0"'
        )
    return {role: f"column{x}" for role, x in zip(given, places, strict=True)}


def _places_of_four(part: Part) -> tuple[int, ...] | None:
    """The places in rows of four columns, of which one is the iteration, if clear."""
    is_spaced = isinstance(part, LinesPart)
    if is_spaced and "\t" not in "".join(lines_of(part.first)):
        return _TREC
    label, iteration = f"\\s*({FINITE}|true|false)\\s*", f"{FINITE}|Q0"
    # Of a row in the order of TREC, and of one in the other.
    patterns = [(3, label), (1, iteration), (1, "0|Q0")]
    patterns += [(2, label), (3, iteration), (3, "0|Q0")]
    checks = ", ".join(
        f"bool_and(regexp_full_match(\"{i}\", '(?i){x}'))" for i, x in patterns
    )
    checks += ', count(DISTINCT "1"), count(*)'
    rows = query(part.read(range(4)), f"SELECT {checks} FROM source")
    ((fourth, second, is_0, third, last, last_is_0, values, number),) = rows.fetchall()
    # What is the same in all rows is no item.
    second, is_0 = second or values == 1, is_0 or values == 1 < number
    if is_spaced and not third and (second or not fourth):
        return _TREC
    is_trec, is_tsv = fourth and second, third and last
    if is_trec and is_tsv:
        is_trec, is_tsv = is_0 and not last_is_0, last_is_0 and not is_0
    if is_trec or is_tsv:
        return _TREC if is_trec else _TSV
    return None


def _of_names(names: Sequence[str], columns: Columns, number: str) -> dict[str, str]:
    """The columns of queries, items and numbers: as named, or of a known tool."""
    found = {}
    for role in ("query", "item", number):
        default, given = _KNOWN[role][0], getattr(columns, role)
        found[role] = given
        if given == default or PLACE.fullmatch(given):
            present = [name for name in _KNOWN[role] if name in names]
            found[role] = present[0] if present else given
    is_scored = (found["query"], found["item"]) in _SCORED
    if number == "label" and found[number] not in names and is_scored:
        found[number] = "score"
    return found


def _table_of_queries(
    name: str,
    sources: Sequence[Mapping[Any, Any]],
    columns: Columns,
    number: str,
) -> Any:
    """Returns the table of dicts with the items of each query.

    These are `{query: {item: number}}` or `{query: [items]}`. Items of judgements
    without numbers have the label 1, and those of a run scores that keep their order
    under any rule of ties. A single dict of columns is returned unchanged.

    Args:
        name: `"qrels"` or `"run"`.
        sources: the dicts.
        columns: the names of the columns.
        number: the kind of the numbers: `"label"` or `"score"`.
    """
    names = (columns.query, columns.item or "", getattr(columns, number))
    rows: list[tuple[Any, Any, Any]] = []
    for source in sources:
        nested = [each for each in source.values() if isinstance(each, Mapping)]
        given = {*names, columns.label, columns.score}
        are_columns = [key in given or _COLUMN.fullmatch(str(key)) for key in source]
        has_columns = any(are_columns) and len(nested) < len(source)
        if has_columns and len(sources) == 1:
            return source
        for id_, ids in source.items():
            if isinstance(ids, np.ndarray):
                ids = ids.tolist()
            if not isinstance(ids, Mapping):
                if not _are_ids(name, ids, has_columns or any(nested)):
                    raise ValueError(
                        f"`{name}` should be a dict of columns, or have a dict of "
                        "items and numbers for each query, or ids for each: "
                        f"{_ACCEPTED[name]}. Received: {reprlib.repr(ids)}, for the "
                        f"query {id_!r}"
                    )
                ids = _numbered(name, id_, ids)
            rows += [(id_, item, value) for item, value in ids.items()]
    values = zip(*rows, strict=True) if rows else [[], [], []]
    try:
        return pa.table(
            {column: list(each) for column, each in zip(names, values, strict=True)}
        )
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _are_ids(name: str, ids: Any, should_be_empty: bool) -> bool:
    """Whether they are a list of ids, or also a set of them for judgements."""
    accepted = (list, tuple, set, frozenset) if name == "qrels" else (list, tuple)
    return isinstance(ids, accepted) and all(
        isinstance(each, str | int | np.integer)
        and not isinstance(each, bool)
        and not should_be_empty
        for each in ids
    )


def _numbered(name: str, id_: Any, ids: Collection[Any]) -> dict[Any, float]:
    """The number of each id of a query."""
    found: dict[Any, float] = {}
    for place, item in enumerate(ids):
        if item in found:
            raise received_twice(name, id_, item, "a dict")
        found[item] = 1.0 if name == "qrels" else -float(place)
    return found


def _standard_input(name: str) -> bytes:
    if sys.stdin is None:
        raise ValueError(f"`{name}` should be standard input. Received: a closed one")
    # A stream of text that took its place may have no bytes.
    read = getattr(sys.stdin, "buffer", sys.stdin).read()
    return read.encode() if isinstance(read, str) else bytes(read)
