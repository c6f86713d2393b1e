"""Judgments and a run, joined as trec_eval joins them."""

import contextlib
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from keras_rank.arguments import check_choice, check_flag
from keras_rank.reading import column_roles, files, query_dicts, sources
from keras_rank.reading.engine import (
    Connection,
    Relation,
    connect,
    connected,
    numbered,
)
from keras_rank.reading.files import layout_of
from keras_rank.reading.joined_dicts import NEED_TABLES, join_dicts
from keras_rank.reading.merged_ids import warnings_of_ids
from keras_rank.reading.part import (
    LARGEST_INTEGER,
    ColumnRef,
    Part,
    common_type,
    no_column,
)
from keras_rank.reading.rows import KNOWN, Columns, Order, Rows, negated, sorted_lists
from keras_rank.reading.text import NUMBERS, PLACE, CsvPart

# The order of the rows of an item that a query has several times: the first row counts.
# DuckDB orders NaN above all numbers.
_ORDERS = {"first": "row", "max": "isnan({0}), {0} DESC, row"}
_HINT = '; `duplicates="first"` or "max" counts one of them'
# The accepted values of arguments.
CHOICES = {"duplicates": ("error", *_ORDERS), "missing": ("zero", "skip")}


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Which items and queries of a run count.

    Attributes:
        duplicates: which row counts of an item that a query has several times, in the
            judgments and the run.
        missing: whether a query without a run scores 0 or is left out.
        ignore_identical_ids: whether an item with the id of its query is left out.
    """

    duplicates: str = "error"
    missing: str = "zero"
    ignore_identical_ids: bool = False

    def __post_init__(self) -> None:
        for argument, choices in CHOICES.items():
            check_choice(argument, getattr(self, argument), choices)
        check_flag("ignore_identical_ids", self.ignore_identical_ids)


@contextlib.contextmanager
def read_run(
    qrels: Any,
    run: Any,
    columns: Columns,
    order: Order,
    protocol: Protocol,
    memory_limit: str | None = None,
    keeps_items: bool = True,
) -> Iterator[Rows]:
    """Joins judgments and a run. Items of only one have no score or no label.

    Args:
        qrels: the judgments.
        run: the run.
        columns: the names of the columns, for tables.
        order: as in `read_rows`.
        protocol: which items and queries of the run count.
        memory_limit: the memory to use. `None`: most of the available memory.
        keeps_items: whether the items of the rows are needed.
    """
    judged, found, are_in_order = query_dicts.as_tables(qrels, run, columns)
    if protocol.ignore_identical_ids and are_in_order:
        raise ValueError(
            "`ignore_identical_ids` should be False for lists in the order of the "
            "queries, which name none: pass dicts by their ids. Received: True"
        )
    rows = None
    if memory_limit is None:
        settings = protocol.missing, protocol.ignore_identical_ids, keeps_items
        with contextlib.suppress(*NEED_TABLES):
            rows = join_dicts(judged, found, columns, order, *settings)
    if rows is not None:
        yield rows
        return
    with connected(memory_limit) as connection:
        sides = [
            _side_of(connection, "qrels", judged, columns, judged is qrels),
            _side_of(connection, "run", found, columns, found is run),
        ]
        yield _join(connection, sides, columns, order, protocol)


def _join(
    connection: Connection,
    sides: Sequence["_Side"],
    columns: Columns,
    order: Order,
    protocol: Protocol,
) -> Rows:
    """Joins judgments and a run in tables of DuckDB."""
    qrels, run = sides[0].source, sides[1].source
    _require_given_columns(sides, columns)
    _create(connection, sides[0], columns, sides[1].names, protocol)
    names = ["query", "label", "score", "item"]
    if columns.subtopic is not None:
        _set_subtopics(connection, qrels)
        names.append("subtopics")
    found, has_scores = _create(connection, sides[1], columns, sides[0].names, protocol)
    if protocol.missing == "skip" and not found.limit(1).fetchall():
        raise files.no_rows("run", run)
    _set_common_types(connection, sides)
    found_warnings = [x for side in sides for x in _warnings_of(connection, side)]
    if protocol.ignore_identical_ids:
        # The run still has the query.
        connection.execute(
            "UPDATE run SET item = NULL "
            "WHERE CAST(query AS VARCHAR) = CAST(item AS VARCHAR)"
        )
    with files.errors_of("run", run):
        left_out, some = _left_out(connection)
        queries = "run" if protocol.missing == "skip" else "qrels"
        rows = connection.sql(
            # Items that were not retrieved follow, in the order of the judgments.
            f"SELECT {', '.join(names)}, "
            f"coalesce(of_run.row, of_qrels.row + {LARGEST_INTEGER}) AS row FROM "
            f"(SELECT * FROM qrels WHERE query IN (SELECT query FROM {queries})) "
            "AS of_qrels FULL JOIN (SELECT * FROM run WHERE item IS NOT NULL AND "
            "query IN (SELECT query FROM qrels)) AS of_run USING (query, item)"
        )
    tables = sorted_lists(rows, "qrels", qrels, names, order, columns.query)
    return Rows(tables, left_out, some, has_scores, warnings=found_warnings)


def judgments_of(source: Any) -> pa.Table:
    """Returns judgments as a table of queries, items and labels."""
    columns = Columns("query_id", "label", "score", "item_id")
    source, _, _ = query_dicts.as_tables(source, {}, columns)
    with connect() as connection:
        side = _side_of(connection, "qrels", source, columns)
        table, _ = _create(connection, side, columns)
        for warning in _warnings_of(connection, side):
            warnings.warn(warning, stacklevel=4)
        return table.order("row").project("query, item, label").to_arrow_table()


@dataclasses.dataclass(frozen=True)
class _Side:
    """Judgments or a run, whose columns are known.

    Attributes:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        parts: the parts of the source, or of the table that was made of it.
        is_table: whether the source itself has columns.
    """

    name: str
    source: Any
    parts: Sequence[Part]
    is_table: bool

    @property
    def names(self) -> set[str]:
        """The names of the columns that the source itself has."""
        names = (part.columns for part in self.parts if self.is_table)
        return set(itertools.chain.from_iterable(names))


def _side_of(
    connection: Connection,
    name: str,
    source: Any,
    columns: Columns,
    is_given: bool = True,
) -> _Side:
    """Opens judgments or a run.

    Args:
        connection: a DuckDB.
        name: `"qrels"` or `"run"`.
        source: the judgments or the run.
        columns: the names of the columns.
        is_given: whether the user passed this source, rather than arrays of ids.
    """
    if isinstance(source, str) and source == "-":
        source = _standard_input(name)
    with files.errors_of(name, source):
        table = query_dicts.tabulated(name, source, columns)
        parts = sources.parts_of(
            connection, name, table, column_roles.names_of(columns)
        )
    return _Side(name, source, parts, is_given and table is source)


def _require_given_columns(sides: Sequence[_Side], columns: Columns) -> None:
    """Raises for a name of a column that neither side has."""
    tables = [side for side in sides if side.is_table and not side.parts[0].fields]
    if len(tables) < 2:
        return
    one, other = (side.parts[0] for side in tables)
    for role in ("query", "item"):
        given = getattr(columns, role)
        is_default = given == KNOWN[role][0] or PLACE.fullmatch(given)
        if not is_default and all(given not in side.names for side in tables):
            names = dict.fromkeys([*one.columns, *other.columns])
            where = " or ".join(dict.fromkeys([one.name, other.name]))
            raise no_column(ColumnRef(role, given), where, [*names])


def _create(
    connection: Connection,
    side: _Side,
    columns: Columns,
    others: Collection[str] = (),
    protocol: Protocol | None = None,
) -> tuple[Relation, bool]:
    """Creates the table `qrels` or `run`: queries, items, numbers, and the `row`.

    A query of a run for which nothing was found has a row without an item.

    Args:
        connection: a DuckDB.
        side: the judgments or the run.
        columns: the names of the columns.
        others: the names of the columns of the other side.
        protocol: which items count. `None`: duplicates are an error.

    Returns:
        The table, and whether items came with numbers.
    """
    name, source = side.name, side.source
    duplicates = "error" if protocol is None else protocol.duplicates
    number = NUMBERS[name]
    with files.errors_of(name, source):
        # The keys of a dict are no padding.
        is_padded = side.is_table
        parts, found = _parts_of(side, columns, others)
        ids = {
            role: ColumnRef(role, column, is_required=True, is_finite=role == "label")
            for role, column in found.items()
        }
        numbers = {number: ids.pop(number)}
        are_lists = all(query_dicts.has_lists(part, found["item"]) for part in parts)
        has_numbers = name == "run" or not column_roles.are_ids(parts, found, columns)
        if are_lists:
            has_numbers = all(
                query_dicts.has_lists(part, found[number]) for part in parts
            )
            parts = [
                query_dicts.items_of(connection, name, part, found, is_padded)
                for part in parts
            ]
        has_column = has_numbers or are_lists
        rows = sources.union(sources.select(parts, ids, numbers if has_column else {}))
        if not has_column:
            rows = rows.project("*, 1::DOUBLE AS label")
        rows = numbered(rows)
        if name == "run":
            _require_distances(columns, has_numbers, source)
            rows = negated(rows, columns)
        rows.create(name)
        table = connection.table(name)
        items = table.filter("item IS NOT NULL") if are_lists else table
        _require_rows(name, source, items)
        if name == "run" and not has_numbers:
            _require_one_list(table)
        once = "item, subtopic" if "subtopic" in ids else "item"
        for twice in _repeated(items, once) if duplicates == "error" else ():
            hint = _HINT if protocol else ""
            ids = {} if are_lists else ids
            raise sources.received_twice(name, source, ids, twice, hint)
        is_bare = name == "run" and len(parts[0].fields) == 3
        if is_bare and found[number] != columns.score:
            # Nothing says that they are scores.
            _require_scores(table, source)
    if duplicates != "error":
        _keep_one(connection, name, once, duplicates)
    return connection.table(name), has_numbers


def _keep_one(connection: Connection, name: str, once: str, duplicates: str) -> None:
    """Keeps one row of each item of a query."""
    order = _ORDERS[duplicates].format(NUMBERS[name])
    connection.execute(
        f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {name} QUALIFY "
        f"row_number() OVER (PARTITION BY query, {once} ORDER BY {order}) = 1"
    )


def _of_types(connection: Connection, run: Relation) -> Relation:
    """The run, with ids of the types of the judgments where it has none."""
    ((queries, items),) = run.aggregate("count(query), count(item)").fetchall()
    if items == 0:
        given = "run.query" if queries else "judged.query"
        connection.execute(
            f"CREATE OR REPLACE TABLE run AS SELECT {given}, judged.item, score, row "
            "FROM run LEFT JOIN (SELECT query, item FROM qrels LIMIT 0) AS judged ON "
            "true"
        )
    return connection.table("run")


def _require_distances(columns: Columns, has_scores: bool, source: Any) -> None:
    """Raises `ValueError` if lower scores are better, but a run has no scores."""
    if columns.lower_is_better and not has_scores:
        raise ValueError(
            "`lower_is_better` should be False for a run without scores, whose items "
            f"are in order, the best first. Received: True for {files.named(source)}"
        )


def _require_one_list(run: Relation) -> None:
    for of_query, _ in _repeated(run, NUMBERS["run"]):
        raise ValueError(
            "`run` should have one list for each query if it has no scores. "
            f"Received: several for the query {of_query!r}"
        )


def _parts_of(
    side: _Side, columns: Columns, others: Collection[str]
) -> tuple[Sequence[Part], dict[str, str]]:
    """The parts of a side, and their common columns, by what they hold."""
    name, parts = side.name, side.parts
    found, *more = [
        column_roles.roles_of(name, part, columns, others) for part in parts
    ]
    if any(each != found for each in more):
        raise ValueError(
            f"`{name}` should be files with columns in one order. Received: "
            f"{files.named(side.source)}, with {[found, *more]}"
        )
    return [part.with_lists(found["item"]) for part in parts], found


def _set_common_types(connection: Connection, sides: Sequence[_Side]) -> None:
    """Gives the ids of both sides types in which they can be compared."""
    for side in sides:
        _set_texts(connection, side)
    tables = {
        "qrels": connection.table("qrels"),
        "run": _of_types(connection, connection.table("run")),
    }
    for i, id_ in enumerate(("query", "item")):
        types = {f"`{name}`": str(table.types[i]) for name, table in tables.items()}
        type_ = common_type(id_, types)
        for name in tables if len(set(types.values())) > 1 else ():
            connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")


def _set_texts(connection: Connection, side: _Side) -> None:
    """Turns ids of bytes into text."""
    table = connection.table(side.name)
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    for column in (name for name, type_ in types.items() if type_ == "BLOB"):
        is_wrong = f"{column} IS NOT NULL AND TRY(decode({column})) IS NULL"
        for (wrong,) in table.filter(is_wrong).project(column).limit(1).fetchall():
            raise ValueError(
                f"`{side.name}` should have ids that are text, or bytes of text in "
                f"UTF-8. Received: {wrong!r} in {files.named(side.source)}"
            )
        connection.execute(
            f"ALTER TABLE {side.name} ALTER {column} TYPE VARCHAR "
            f"USING decode({column})"
        )


def _warnings_of(connection: Connection, side: _Side) -> list[str]:
    """Warnings about rows of a side that may not be read as meant."""
    warnings = [x for part in side.parts for x in part.warnings()]
    tables = connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()
    return warnings + warnings_of_ids(
        side.name,
        files.named(side.source),
        connection.table(side.name),
        [connection.table(x) for (x,) in tables if x in {*NUMBERS} - {side.name}],
        is_csv=isinstance(side.parts[0], CsvPart),
    )


def _set_subtopics(connection: Connection, source: Any) -> None:
    """Gives each judged item one row, with its labels for all subtopics of the query.

    Its own label is the highest of these.
    """
    ids = connection.table("qrels").aggregate(
        "min(CAST(subtopic AS VARCHAR)), count(DISTINCT subtopic)"
    )
    ((first, number),) = ids.fetchall()
    if number == 1 and first in ("0", "Q0"):
        # What stands there in other judgments.
        raise query_dicts.no_subtopics(
            f"{first!r} as the only one, in {files.named(source)}"
        )
    connection.execute(
        "CREATE OR REPLACE TABLE qrels AS SELECT query, item, max(label) AS label, "
        "list(coalesce(label, 0) ORDER BY subtopic) AS subtopics, min(row) AS row "
        "FROM (SELECT DISTINCT query, subtopic FROM qrels) "
        "JOIN (SELECT DISTINCT query, item FROM qrels) USING (query) "
        "LEFT JOIN qrels USING (query, subtopic, item) GROUP BY query, item"
    )


def _left_out(connection: Connection) -> tuple[int, list[Any]]:
    """The number of queries that are only in the run, and some of them.

    Raises if none is in both.
    """
    ((in_run, common, one, other, some),) = connection.sql(
        "SELECT count(DISTINCT r.query), count(DISTINCT r.query) FILTER (q.query = "
        "r.query), min(q.query), min(r.query), min(r.query, 3) FILTER (q.query IS NULL)"
        " FROM (SELECT DISTINCT query FROM qrels) "
        "q FULL JOIN (SELECT DISTINCT query FROM run) r ON q.query = r.query"
    ).fetchall()
    if common == 0 < in_run:
        raise ValueError(
            "`qrels` and `run` should have queries in common. Received: none, "
            f"with judgments of queries such as {files.shortened(repr(one))} and a run "
            f"of queries such as {files.shortened(repr(other))}"
        )
    return int(in_run - common), some or []


def _require_rows(name: str, source: Any, table: Relation) -> None:
    """Raises for no rows and missing values. A score may be NaN: it has no rank."""
    number, is_number = "a score", "score IS NOT NULL"
    if name == "qrels":
        number = "a finite label"
        is_number = "label IS NOT NULL AND isfinite(CAST(label AS DOUBLE))"
    counts = {"a query": "count(query)", "an item": "count(item)"}
    if "subtopic" in table.columns:
        counts["a subtopic"] = "count(subtopic)"
    counts[number] = f"count(*) FILTER ({is_number})"
    columns = ", ".join(["count(*)", *counts.values()])
    ((rows, *there),) = table.aggregate(columns).fetchall()
    if rows == 0 and name == "qrels":
        raise files.no_rows(name, source)
    for what, found in zip(counts, there, strict=True):
        if found < rows:
            raise ValueError(
                f"`{name}` should have {what} in each row. Received: "
                f"{rows - found} without one, in {files.named(source)}"
            )


def _repeated(table: Relation, names: str) -> list[tuple[Any, ...]]:
    """A query and the values that it has twice in columns, if there are any."""
    counts = table.aggregate(f"query, {names}, count(*) AS number").filter("number > 1")
    return counts.project(f"query, {names}").limit(1).fetchall()


def _require_scores(table: Relation, source: Any) -> None:
    """Raises if numbers without a column name are ranks, from 0 or from 1 on."""
    of_queries = table.aggregate(
        "query, count(*) AS n, list(score ORDER BY score) AS x"
    )
    are_ranks = of_queries.aggregate(
        "bool_and(x IN (range(n), range(1, n + 1))) AND max(n) > 1"
    )
    if are_ranks.fetchall() == [(True,)]:
        raise ValueError(
            "`run` should have scores, where higher is better. Received: the numbers "
            f"1, 2, 3, ... or 0, 1, 2, ... for each query in {files.named(source)}, as "
            "if they were ranks; if they are scores, give the columns names"
        )


def _standard_input(name: str) -> bytes:
    """Reads a TREC file from standard input. Raises for other formats."""
    if sys.stdin is None:
        raise ValueError(f"`{name}` should be standard input. Received: a closed one")
    # A stream of text that took its place may have no bytes.
    read = getattr(sys.stdin, "buffer", sys.stdin).read()
    content = files.Content(read.encode() if isinstance(read, str) else read)
    layout = layout_of(name, content)
    if layout not in ("lines", "nothing"):
        raise ValueError(
            f"`{name}` should be a TREC file if it is standard input. Received: "
            f"{layout.replace('nested', 'json').upper()}: write it to a file"
        )
    return content
