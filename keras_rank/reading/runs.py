"""The join of judgments and a run, with the rules of trec_eval."""

import contextlib
import dataclasses
import itertools
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from keras_rank.arguments import check_choice, check_flag
from keras_rank.reading import column_roles, files, query_dicts, sources
from keras_rank.reading.engine import (
    Connection,
    Relation,
    connect,
    connect_with_limit,
    number_rows,
)
from keras_rank.reading.files import detect_layout
from keras_rank.reading.joined_dicts import NEED_TABLES, join_dicts
from keras_rank.reading.merged_ids import find_id_warnings
from keras_rank.reading.part import (
    LARGEST_INTEGER,
    ColumnRef,
    Part,
    common_type,
    no_column_error,
)
from keras_rank.reading.rows import (
    KNOWN_NAMES,
    Columns,
    Order,
    Rows,
    iter_sorted_lists,
    negate_distances,
)
from keras_rank.reading.text import NUMBER_ROLES, UNNAMED_COLUMN, CsvPart

# The SQL order of the rows of a duplicate item, whose first row counts. `isnan` comes
# first, as DuckDB sorts NaN above all numbers.
_DUPLICATE_ORDERS = {"first": "row", "max": "isnan({0}), {0} DESC, row"}
_DUPLICATES_HINT = '; `duplicates="first"` or "max" counts one of them'
# The accepted values of the arguments of `Protocol`.
CHOICES = {"duplicates": ("error", *_DUPLICATE_ORDERS), "missing": ("zero", "skip")}


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Rules for duplicate items, missing queries, and items with the id of the query.

    Attributes:
        duplicates: which row of a duplicate item of a query counts, in the judgments
            and in the run: `"first"` or `"max"`. `"error"` rejects duplicates.
        missing: whether a query without a run scores 0 (`"zero"`) or is left out
            (`"skip"`).
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
    should_keep_items: bool = True,
) -> Iterator[Rows]:
    """Yields the joined rows of judgments and a run.

    Items that are only in the judgments have no score, and items that are only in the
    run have no label.

    Args:
        qrels: the judgments.
        run: the run.
        columns: the names of the columns, for tables.
        order: the order of the rows of a query, as in `read_rows`.
        protocol: the rules for items and queries.
        memory_limit: the memory to use, or `None` for most of the available memory.
        should_keep_items: whether the items of the rows are needed.
    """
    qrels_source, run_source, is_numbered = query_dicts.number_queries(
        qrels, run, columns
    )
    if protocol.ignore_identical_ids and is_numbered:
        raise ValueError(
            "`ignore_identical_ids` should be False for lists in the order of the "
            "queries, which name none: pass dicts by their ids. Received: True"
        )
    rows = None
    if memory_limit is None:
        settings = protocol.missing, protocol.ignore_identical_ids, should_keep_items
        with contextlib.suppress(*NEED_TABLES):
            rows = join_dicts(qrels_source, run_source, columns, order, *settings)
    if rows is not None:
        yield rows
        return
    with connect_with_limit(memory_limit) as connection:
        sides = [
            _open_side(
                connection, "qrels", qrels_source, columns, qrels_source is qrels
            ),
            _open_side(connection, "run", run_source, columns, run_source is run),
        ]
        yield _join(connection, sides, columns, order, protocol)


def _join(
    connection: Connection,
    sides: Sequence["_Side"],
    columns: Columns,
    order: Order,
    protocol: Protocol,
) -> Rows:
    """Joins judgments and a run that are DuckDB tables."""
    qrels, run = sides[0].source, sides[1].source
    _require_named_columns(sides, columns)
    _create_table(connection, sides[0], columns, sides[1].names, protocol)
    names = ["query", "label", "score", "item"]
    if columns.subtopic is not None:
        _set_subtopics(connection, qrels)
        names.append("subtopics")
    run_table, has_scores = _create_table(
        connection, sides[1], columns, sides[0].names, protocol
    )
    if protocol.missing == "skip" and not run_table.limit(1).fetchall():
        raise files.no_rows_error("run", run)
    _set_common_types(connection, sides)
    side_warnings = [x for side in sides for x in _find_warnings(connection, side)]
    if protocol.ignore_identical_ids:
        # The rows stay without an item, so that the run still has the query.
        connection.execute(
            "UPDATE run SET item = NULL "
            "WHERE CAST(query AS VARCHAR) = CAST(item AS VARCHAR)"
        )
    with files.reraise_errors("run", run):
        left_out, some_left_out = _count_left_out(connection)
        queries = "run" if protocol.missing == "skip" else "qrels"
        rows = connection.sql(
            # Items that were not retrieved follow in the order of the judgments.
            f"SELECT {', '.join(names)}, "
            f"coalesce(of_run.row, of_qrels.row + {LARGEST_INTEGER}) AS row FROM "
            f"(SELECT * FROM qrels WHERE query IN (SELECT query FROM {queries})) "
            "AS of_qrels FULL JOIN (SELECT * FROM run WHERE item IS NOT NULL AND "
            "query IN (SELECT query FROM qrels)) AS of_run USING (query, item)"
        )
    tables = iter_sorted_lists(rows, "qrels", qrels, names, order, columns.query)
    return Rows(tables, left_out, some_left_out, has_scores, warnings=side_warnings)


def read_rankings(run: Any, other: Any, columns: Columns) -> pa.Table:
    """Returns the items of each query in two runs, in the order of their ranks.

    Tied items are in the order of trec_eval. Items with scores of NaN or -inf are not
    retrieved.

    Args:
        run: a run.
        other: another run.
        columns: the names of the columns, for tables.

    Returns:
        A table with the columns `query`, `items` and `other_items`. The items are null
        for a query that the run lacks.
    """
    names = {"run": "other", "qrels": "run"}
    with _rename_arguments(names):
        first, second, _ = query_dicts.number_queries(run, other, columns)
    with connect() as connection:
        for name, source, passed in (("other", second, other), ("run", first, run)):
            with _rename_arguments({"run": name}):
                side = _open_side(connection, "run", source, columns, source is passed)
                _create_table(connection, side, columns)
                _decode_ids(connection, side)
            if name == "other":
                connection.execute("ALTER TABLE run RENAME TO other")
        for i, id_ in enumerate(("query", "item")):
            tables = {x: connection.table(x) for x in ("run", "other")}
            types = {f"`{name}`": str(table.types[i]) for name, table in tables.items()}
            type_ = common_type(id_, types)
            for name in tables:
                connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")
        ranked, other_ranked = (
            f"(SELECT query, coalesce(list(item ORDER BY score DESC, CAST(item AS "
            "VARCHAR) DESC) FILTER (item IS NOT NULL AND NOT isnan(score) AND score > "
            f"'-inf'), []) AS {items} FROM {name} GROUP BY query)"
            for name, items in (("run", "items"), ("other", "other_items"))
        )
        return connection.sql(
            f"SELECT query, items, other_items FROM {ranked} AS a FULL JOIN "
            f"{other_ranked} AS b USING (query) ORDER BY query"
        ).to_arrow_table()


@contextlib.contextmanager
def _rename_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Raises errors with the names of the caller's arguments."""
    try:
        yield
    except ValueError as error:
        pattern = f"`({'|'.join(names)})`"
        text = re.sub(pattern, lambda match: f"`{names[match[1]]}`", str(error))
        raise ValueError(text) from error


def read_judgments(source: Any) -> pa.Table:
    """Returns judgments as a table of queries, items and labels."""
    columns = Columns("query_id", "label", "score", "item_id")
    source, _, _ = query_dicts.number_queries(source, {}, columns)
    with connect() as connection:
        side = _open_side(connection, "qrels", source, columns)
        table, _ = _create_table(connection, side, columns)
        for warning in _find_warnings(connection, side):
            warnings.warn(warning, stacklevel=4)
        return table.order("row").project("query, item, label").to_arrow_table()


@dataclasses.dataclass(frozen=True)
class _Side:
    """Judgments or a run, as parts with known columns.

    Attributes:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        parts: the parts of the source, or of the table that it was converted to.
        is_table: whether the source itself has columns.
    """

    name: str
    source: Any
    parts: Sequence[Part]
    is_table: bool

    @property
    def names(self) -> set[str]:
        """The names of the columns of the source itself."""
        names = (part.columns for part in self.parts if self.is_table)
        return set(itertools.chain.from_iterable(names))


def _open_side(
    connection: Connection,
    name: str,
    source: Any,
    columns: Columns,
    is_unchanged: bool = True,
) -> _Side:
    """Opens judgments or a run.

    Args:
        connection: a DuckDB connection.
        name: `"qrels"` or `"run"`.
        source: the judgments or the run.
        columns: the names of the columns.
        is_unchanged: whether the user passed this source, rather than lists of ids.
    """
    if isinstance(source, str) and source == "-":
        source = _read_standard_input(name)
    with files.reraise_errors(name, source):
        table = query_dicts.tabulate(name, source, columns)
        parts = sources.open_parts(
            connection, name, table, column_roles.accepted_names(columns)
        )
    return _Side(name, source, parts, is_unchanged and table is source)


def _require_named_columns(sides: Sequence[_Side], columns: Columns) -> None:
    """Raises `ValueError` if the user named a column that neither side has."""
    tables = [side for side in sides if side.is_table and not side.parts[0].fields]
    if len(tables) < 2:
        return
    one, other = (side.parts[0] for side in tables)
    for role in ("query", "item"):
        column = getattr(columns, role)
        is_default = column == KNOWN_NAMES[role][0] or UNNAMED_COLUMN.fullmatch(column)
        if not is_default and all(column not in side.names for side in tables):
            names = dict.fromkeys([*one.columns, *other.columns])
            table_names = " or ".join(dict.fromkeys([one.name, other.name]))
            raise no_column_error(ColumnRef(role, column), table_names, [*names])


def _create_table(
    connection: Connection,
    side: _Side,
    columns: Columns,
    other_columns: Collection[str] = (),
    protocol: Protocol | None = None,
) -> tuple[Relation, bool]:
    """Creates the table `qrels` or `run` of queries, items, numbers, and row numbers.

    A query of a run for which nothing was retrieved has a row without an item.

    Args:
        connection: a DuckDB connection.
        side: the judgments or the run.
        columns: the names of the columns.
        other_columns: the names of the columns of the other side.
        protocol: the rules for items, or `None` to reject duplicates.

    Returns:
        The table, and whether the source has numbers.
    """
    name, source = side.name, side.source
    duplicates = "error" if protocol is None else protocol.duplicates
    number = NUMBER_ROLES[name]
    with files.reraise_errors(name, source):
        # A key -1 in a dict is an id, whereas -1 in a list of a table is padding.
        is_padded = side.is_table
        parts, columns_by_role = _resolve_columns(side, columns, other_columns)
        ids = {
            role: ColumnRef(role, column, is_required=True, is_finite=role == "label")
            for role, column in columns_by_role.items()
        }
        numbers = {number: ids.pop(number)}
        has_item_lists = all(
            query_dicts.has_lists(part, columns_by_role["item"]) for part in parts
        )
        has_numbers = name == "run" or not column_roles.has_only_ids(
            parts, columns_by_role, columns
        )
        if has_item_lists:
            has_numbers = all(
                query_dicts.has_lists(part, columns_by_role[number]) for part in parts
            )
            parts = [
                query_dicts.unnest_items(
                    connection, name, part, columns_by_role, is_padded
                )
                for part in parts
            ]
        has_number_column = has_numbers or has_item_lists
        rows = sources.union(
            sources.select(parts, ids, numbers if has_number_column else {})
        )
        if not has_number_column:
            rows = rows.project("*, 1::DOUBLE AS label")
        rows = number_rows(rows)
        if name == "run":
            _require_distances(columns, has_numbers, source)
            rows = negate_distances(rows, columns)
        rows.create(name)
        table = connection.table(name)
        items = table.filter("item IS NOT NULL") if has_item_lists else table
        _require_rows(name, source, items)
        if name == "run" and not has_numbers:
            _require_one_list(table)
        key_columns = "item, subtopic" if "subtopic" in ids else "item"
        for duplicate in (
            _find_duplicates(items, key_columns) if duplicates == "error" else ()
        ):
            hint = _DUPLICATES_HINT if protocol else ""
            ids = {} if has_item_lists else ids
            raise sources.duplicate_items_error(name, source, ids, duplicate, hint)
        is_unnamed = name == "run" and len(parts[0].fields) == 3
        if is_unnamed and columns_by_role[number] != columns.score:
            # The file does not name the numbers, which may be scores or ranks.
            _require_scores(table, source)
    if duplicates != "error":
        _drop_duplicates(connection, name, key_columns, duplicates)
    return connection.table(name), has_numbers


def _drop_duplicates(
    connection: Connection, name: str, key_columns: str, duplicates: str
) -> None:
    """Replaces a table by one with one row for each item of a query."""
    order = _DUPLICATE_ORDERS[duplicates].format(NUMBER_ROLES[name])
    connection.execute(
        f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {name} QUALIFY "
        f"row_number() OVER (PARTITION BY query, {key_columns} ORDER BY {order}) = 1"
    )


def _cast_empty_run(connection: Connection, run: Relation) -> Relation:
    """Returns the run, whose ids get the types of the judgments if it has no ids."""
    ((queries, items),) = run.aggregate("count(query), count(item)").fetchall()
    if items == 0:
        query_column = "run.query" if queries else "judged.query"
        connection.execute(
            f"CREATE OR REPLACE TABLE run AS SELECT {query_column}, judged.item, "
            "score, row FROM run LEFT JOIN (SELECT query, item FROM qrels LIMIT 0) AS "
            "judged ON true"
        )
    return connection.table("run")


def _require_distances(columns: Columns, has_scores: bool, source: Any) -> None:
    """Raises `ValueError` if lower scores are better, but a run has no scores."""
    if columns.lower_is_better and not has_scores:
        raise ValueError(
            "`lower_is_better` should be False for a run without scores, whose items "
            "are in order, the best first. Received: True for "
            f"{files.describe_source(source)}"
        )


def _require_one_list(run: Relation) -> None:
    for query, _ in _find_duplicates(run, NUMBER_ROLES["run"]):
        raise ValueError(
            "`run` should have one list for each query if it has no scores. "
            f"Received: several for the query {query!r}"
        )


def _resolve_columns(
    side: _Side, columns: Columns, other_columns: Collection[str]
) -> tuple[Sequence[Part], dict[str, str]]:
    """Returns the parts of a side, and the names of their common columns by role."""
    name, parts = side.name, side.parts
    columns_by_role, *other_parts_columns = [
        column_roles.find_columns(name, part, columns, other_columns) for part in parts
    ]
    if any(each != columns_by_role for each in other_parts_columns):
        raise ValueError(
            f"`{name}` should be files with columns in one order. Received: "
            f"{files.describe_source(side.source)}, with "
            f"{[columns_by_role, *other_parts_columns]}"
        )
    return [
        part.parse_lists(columns_by_role["item"]) for part in parts
    ], columns_by_role


def _set_common_types(connection: Connection, sides: Sequence[_Side]) -> None:
    """Casts the ids of both sides to common types, so that they can be compared."""
    for side in sides:
        _decode_ids(connection, side)
    tables = {
        "qrels": connection.table("qrels"),
        "run": _cast_empty_run(connection, connection.table("run")),
    }
    for i, id_ in enumerate(("query", "item")):
        types = {f"`{name}`": str(table.types[i]) for name, table in tables.items()}
        type_ = common_type(id_, types)
        for name in tables if len(set(types.values())) > 1 else ():
            connection.execute(f"ALTER TABLE {name} ALTER {id_} TYPE {type_}")


def _decode_ids(connection: Connection, side: _Side) -> None:
    """Decodes ids that are bytes to text."""
    table = connection.table(side.name)
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    for column in (name for name, type_ in types.items() if type_ == "BLOB"):
        is_invalid = f"{column} IS NOT NULL AND TRY(decode({column})) IS NULL"
        for (invalid_id,) in (
            table.filter(is_invalid).project(column).limit(1).fetchall()
        ):
            raise ValueError(
                f"`{side.name}` should have ids that are text, or bytes of text in "
                f"UTF-8. Received: {invalid_id!r} in "
                f"{files.describe_source(side.source)}"
            )
        connection.execute(
            f"ALTER TABLE {side.name} ALTER {column} TYPE VARCHAR "
            f"USING decode({column})"
        )


def _find_warnings(connection: Connection, side: _Side) -> list[str]:
    """Returns warnings about rows of a side that may not be read as intended."""
    warnings = [x for part in side.parts for x in part.warnings()]
    tables = connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()
    return warnings + find_id_warnings(
        side.name,
        files.describe_source(side.source),
        connection.table(side.name),
        [connection.table(x) for (x,) in tables if x in {*NUMBER_ROLES} - {side.name}],
        is_csv=isinstance(side.parts[0], CsvPart),
    )


def _set_subtopics(connection: Connection, source: Any) -> None:
    """Gives each judged item one row, with its labels for all subtopics of the query.

    The label of the row is the highest of the labels for the subtopics.
    """
    ids = connection.table("qrels").aggregate(
        "min(CAST(subtopic AS VARCHAR)), count(DISTINCT subtopic)"
    )
    ((first, number),) = ids.fetchall()
    if number == 1 and first in ("0", "Q0"):
        # TREC judgments without subtopics have this iteration in every line.
        raise query_dicts.no_subtopics_error(
            f"{first!r} as the only one, in {files.describe_source(source)}"
        )
    connection.execute(
        "CREATE OR REPLACE TABLE qrels AS SELECT query, item, max(label) AS label, "
        "list(coalesce(label, 0) ORDER BY subtopic) AS subtopics, min(row) AS row "
        "FROM (SELECT DISTINCT query, subtopic FROM qrels) "
        "JOIN (SELECT DISTINCT query, item FROM qrels) USING (query) "
        "LEFT JOIN qrels USING (query, subtopic, item) GROUP BY query, item"
    )


def _count_left_out(connection: Connection) -> tuple[int, list[Any]]:
    """Returns the number of queries that are only in the run, and some of them.

    Raises `ValueError` if judgments and run have no query in common.
    """
    ((num_run, num_common, first_judged, first_run, examples),) = connection.sql(
        "SELECT count(DISTINCT r.query), count(DISTINCT r.query) FILTER (q.query = "
        "r.query), min(q.query), min(r.query), min(r.query, 3) FILTER (q.query IS NULL)"
        " FROM (SELECT DISTINCT query FROM qrels) "
        "q FULL JOIN (SELECT DISTINCT query FROM run) r ON q.query = r.query"
    ).fetchall()
    if num_common == 0 < num_run:
        raise ValueError(
            "`qrels` and `run` should have queries in common. Received: none, "
            f"with judgments of queries such as {files.shorten(repr(first_judged))} "
            f"and a run of queries such as {files.shorten(repr(first_run))}"
        )
    return int(num_run - num_common), examples or []


def _require_rows(name: str, source: Any, table: Relation) -> None:
    """Raises `ValueError` for judgments without rows and for missing values.

    A score may be NaN, which means that the item was not retrieved.
    """
    number, is_number = "a score", "score IS NOT NULL"
    if name == "qrels":
        number = "a finite label"
        is_number = "label IS NOT NULL AND isfinite(CAST(label AS DOUBLE))"
    counts = {"a query": "count(query)", "an item": "count(item)"}
    if "subtopic" in table.columns:
        counts["a subtopic"] = "count(subtopic)"
    counts[number] = f"count(*) FILTER ({is_number})"
    columns = ", ".join(["count(*)", *counts.values()])
    ((rows, *value_counts),) = table.aggregate(columns).fetchall()
    if rows == 0 and name == "qrels":
        raise files.no_rows_error(name, source)
    for description, num_values in zip(counts, value_counts, strict=True):
        if num_values < rows:
            raise ValueError(
                f"`{name}` should have {description} in each row. Received: "
                f"{rows - num_values} without one, in {files.describe_source(source)}"
            )


def _find_duplicates(table: Relation, names: str) -> list[tuple[Any, ...]]:
    """Returns a query and the values that it has several times, or an empty list."""
    counts = table.aggregate(f"query, {names}, count(*) AS number").filter("number > 1")
    return counts.project(f"query, {names}").limit(1).fetchall()


def _require_scores(table: Relation, source: Any) -> None:
    """Raises `ValueError` if numbers without a column name are ranks from 0 or 1 on."""
    query_scores = table.aggregate(
        "query, count(*) AS n, list(score ORDER BY score) AS x"
    )
    rank_check = query_scores.aggregate(
        "bool_and(x IN (range(n), range(1, n + 1))) AND max(n) > 1"
    )
    if rank_check.fetchall() == [(True,)]:
        raise ValueError(
            "`run` should have scores, where higher is better. Received: the numbers "
            "1, 2, 3, ... or 0, 1, 2, ... for each query in "
            f"{files.describe_source(source)}, as if they were ranks; if they are "
            "scores, give the columns names"
        )


def _read_standard_input(name: str) -> bytes:
    """Reads a TREC file from standard input, and raises for other formats."""
    if sys.stdin is None:
        raise ValueError(f"`{name}` should be standard input. Received: a closed one")
    # `sys.stdin` may have been replaced by a text stream, which has no buffer.
    read = getattr(sys.stdin, "buffer", sys.stdin).read()
    content = files.Content(read.encode() if isinstance(read, str) else read)
    layout = detect_layout(name, content)
    if layout not in ("lines", "nothing"):
        raise ValueError(
            f"`{name}` should be a TREC file if it is standard input. Received: "
            f"{layout.replace('nested', 'json').upper()}: write it to a file"
        )
    return content
