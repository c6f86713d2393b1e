"""Readers of rows that are sorted by query, and the rules for missing values.

A label that is missing or below 0 counts as 0, or its row is left out. An item without
a score, or with a score of NaN, was not retrieved. Queries that are only in the
judgments count. Queries without judgments are left out, and their number is reported.
No other rows are dropped: missing ids and duplicate items of a query are errors.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arguments import check_flag
from keras_rank.backends import Array
from keras_rank.reading import engine, files, sources
from keras_rank.reading.files import normalize_name
from keras_rank.reading.merged_ids import find_id_warnings
from keras_rank.reading.part import (
    ColumnRef,
    is_rank_name,
    is_usual_name,
    no_score_error,
)
from keras_rank.reading.text import CsvPart, TextPart

# The names of columns in known tools such as BEIR, ir_measures, ranx, PyTerrier,
# Hugging Face and Quepid, in the form of `normalize_name`. The first is the default.
KNOWN_NAMES = {
    "query": ("query_id", "q_id", "qid", "user_id", "query"),
    "item": ("item_id", "corpus_id", "doc_id", "docno", "docid", "item"),
    "label": ("label", "relevance", "rel", "rating"),
    "score": ("score",),
    "subtopic": ("subtopic_id", "subtopic", "iteration"),
}
# Names that take precedence over a name if a table has both: a table may also have the
# text of a query or an item, PyTerrier's document number, or TREC's iteration.
_PREFERRED_NAMES = {
    "query": {"query_id", "q_id", "qid"},
    "item": {*KNOWN_NAMES["item"]},
    "docid": {"docno"},
    "iteration": {"subtopic_id", "subtopic"},
}


def find_known_name(role: str, requested_name: str, names: Sequence[str]) -> str:
    """Returns the name of a column that the user passed, or its name in a known tool.

    Names of known tools are only searched if the user passed the default name.

    Args:
        role: the role of the column, a key of `KNOWN_NAMES`.
        requested_name: the name that the user passed.
        names: the names of all columns.
    """
    if requested_name in names or requested_name != KNOWN_NAMES[role][0]:
        return requested_name
    plain_names = {name: normalize_name(name) for name in names}
    candidates = [name for name in names if plain_names[name] in KNOWN_NAMES[role]]
    preferred_names = {
        name: _PREFERRED_NAMES.get(plain_names[name], set()) - {plain_names[name]}
        for name in candidates
    }
    candidates = [
        x
        for x in candidates
        if preferred_names[x].isdisjoint(plain_names[y] for y in candidates)
    ]
    if len(candidates) > 1:
        raise ValueError(
            f"`{role}` should name one column. Received: {role}={requested_name!r}, "
            f"and a table with {' and '.join(map(repr, candidates))}: say which, such "
            f"as {role}={candidates[0]!r} (--{role} {candidates[0]}), or leave out the "
            "others"
        )
    return candidates[0] if candidates else requested_name


Order: TypeAlias = Literal["row", "item", "trec_eval", "trec_eval-9"]
# trec_eval compares ids as text, so ids that are numbers are cast.
_ID = "CAST(item AS VARCHAR)"
_TREC_EVAL_ORDER = f"score DESC, {_ID} DESC"
# ndeval's ideal order sorts items with equal gains by descending id. pyndeval breaks
# ties of a run in the opposite direction: the smaller id has the larger `place`.
_NDEVAL_COLUMNS = (
    "dense_rank() OVER (PARTITION BY query ORDER BY score) AS height, "
    f"row_number() OVER (PARTITION BY query ORDER BY score, {_ID} DESC) AS place"
)
# The cast of a score to float32 as in C: a score beyond the range becomes infinite, and
# a missing score stays missing.
_FLOAT = "coalesce(TRY_CAST(score AS FLOAT), CAST(score * 'inf'::DOUBLE AS FLOAT))"
# The number of rows that are processed at a time.
ROWS_AT_A_TIME = 500_000


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of the columns that are read.

    Attributes:
        query: the column of the query of each row.
        label: the column of relevance labels.
        score: the column of scores.
        item: the column of item ids, or `None`.
        weight: the column of item weights, or `None`.
        keep: further columns with one value per query.
        subtopic: the column of the subtopics of judgments, or `None`.
        lower_is_better: whether scores are distances, which are read as their
            negatives.
    """

    query: str
    label: str
    score: str
    item: str | None = None
    weight: str | None = None
    keep: tuple[str, ...] = ()
    subtopic: str | None = None
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        check_flag("lower_is_better", self.lower_is_better)
        optionals = ("item", "weight", "subtopic")
        for argument in ("query", "label", "score", *optionals):
            name = getattr(self, argument)
            optional = " or None" if argument in optionals else ""
            if not (isinstance(name, str) or (optional and name is None)):
                raise ValueError(
                    f"`{argument}` should be the name of a column{optional}. "
                    f"Received: {argument}={name!r}"
                )
        if is_rank_name(self.score):
            raise no_score_error(repr(self.score))


@dataclasses.dataclass(frozen=True)
class Rows:
    """A stream of tables of whole lists, with rows that are sorted by query.

    The tables have the columns `query`, `label` and `score`, the columns `item` and
    `weight` if the user named them, and the columns of `keep` by number: `0`, `1`, ...
    With subtopics, they also have `subtopics`, the labels of the item for all subtopics
    of the query. In trec_eval's order, tables with subtopics also have `height`, the
    ascending dense rank of the score, and `place`, which breaks ties of scores.

    Attributes:
        tables: the tables, none of which is empty.
        left_out: the number of queries that were left out because they have no
            judgments, or `None` if it is unknown.
        some_left_out: a few of these queries.
        has_scores: whether the source has scores, rather than only an order of items.
        duplicate_error: function that returns the error for a query and an item that
            the query has several times, or `None` if duplicates are already checked.
        file_ends: array of the last `row` of each file, if the source has several files
            and no column of items. The tables then have the column `row`.
        warnings: warnings about rows that may not be read as intended.
    """

    tables: Iterator[pa.Table]
    left_out: int | None = None
    some_left_out: Sequence[Any] = ()
    has_scores: bool = True
    duplicate_error: Callable[[tuple[Any, Any]], ValueError] | None = None
    file_ends: Array | None = None
    warnings: Sequence[str] = ()


def read_rows(
    connection: engine.Connection, source: Any, columns: Columns, order: Order
) -> Rows:
    """Reads a table with one row per query and item.

    Args:
        connection: a DuckDB connection.
        source: files, or a table in memory.
        columns: the names of the columns.
        order: the order of the rows of a query: `"row"` for the order of the source,
            `"item"` for ascending items, and `"trec_eval"` for trec_eval's order, in
            which tied items have descending ids. In `"trec_eval-9"`, scores that are
            equal in float32 are tied.
    """
    names_by_role = {
        role: getattr(columns, role) for role in ("query", "label", "score")
    }
    other_names = {*columns.keep, columns.item or "", columns.weight or ""}
    requested_names = other_names.union(
        names_by_role.values(), *(KNOWN_NAMES[role] for role in names_by_role)
    )
    with files.reraise_errors("rows", source):
        parts = sources.open_parts(connection, "rows", source, requested_names)
        free_names = [x for x in parts[0].columns if x not in other_names]
        columns_by_role = {
            role: _find_unique_name(role, name, free_names)
            for role, name in names_by_role.items()
        }
        ids = {"query": ColumnRef("query", columns_by_role["query"], is_required=True)}
        if columns.item is not None:
            ids["item"] = ColumnRef("item", columns.item)
        kept_columns = {
            str(i): ColumnRef("keep", name) for i, name in enumerate(columns.keep)
        }
        numbers = {
            "label": ColumnRef("label", columns_by_role["label"], is_finite=True),
            "score": ColumnRef("score", columns_by_role["score"]),
        }
        if columns.weight is not None:
            numbers["weight"] = ColumnRef("weight", columns.weight, is_required=True)
        tables = sources.select(parts, {**ids, **kept_columns}, numbers)
        sizes: list[int] = []
        if columns.item is None and files.is_file_source(source):
            for part, table in zip(parts, tables, strict=True):
                sizes += part.count_rows_by_file(table)
        warnings = []
        if columns.item is not None and isinstance(parts[0], TextPart):
            warnings = find_id_warnings(
                "rows",
                files.describe_source(source),
                engine.number_rows(sources.union(tables)),
                is_csv=isinstance(parts[0], CsvPart),
            )
    file_ends = np.cumsum(sizes) if len(sizes) > 1 else None
    column_names = [*ids, *kept_columns, *numbers, *(["row"] if len(sizes) > 1 else [])]
    rows = negate_distances(engine.number_rows(sources.union(tables)), columns)
    lists = iter_sorted_lists(rows, "rows", source, column_names, order, columns.query)
    hint = '; `duplicates="count"` counts each'
    duplicate_error = functools.partial(
        sources.duplicate_items_error, "rows", source, ids, hint=hint
    )
    return Rows(
        lists, duplicate_error=duplicate_error, file_ends=file_ends, warnings=warnings
    )


def negate_distances(rows: engine.Relation, columns: Columns) -> engine.Relation:
    """Returns rows with negative scores if lower scores are better."""
    if not columns.lower_is_better:
        return rows
    # A difference is never -0.0.
    return rows.project("* REPLACE (0 - CAST(score AS DOUBLE) AS score)")


def _find_unique_name(role: str, requested_name: str, names: Sequence[str]) -> str:
    """Returns the name of a column that the user passed, or its name in a known tool.

    The name in a known tool is only used if exactly one column has a name for the role.
    """
    candidates = [name for name in names if is_usual_name(role, name)]
    return (
        find_known_name(role, requested_name, names)
        if len(candidates) == 1
        else requested_name
    )


def clean_labels(labels: Array, starts: Array, drop_unjudged: bool) -> Array:
    """Replaces labels that are missing or below 0, which are not judgments.

    Args:
        labels: array of labels, NaN where a label is missing.
        starts: int array of the indices at which lists start.
        drop_unjudged: whether items without a judgment become padding, with the label
            -1. Otherwise they get the label 0.
    """
    if not drop_unjudged:
        return np.where(labels >= 0.0, labels, 0.0)
    # The items of a list with negative labels only are kept, with the label 0.
    highest = np.fmax.reduceat(labels, starts)
    is_negative_list = np.repeat(highest < 0.0, np.diff(np.append(starts, len(labels))))
    is_item = (labels >= 0.0) | (is_negative_list & ~np.isnan(labels))
    return np.where(is_item, np.maximum(labels, 0.0), -1.0)


def iter_sorted_lists(
    table: engine.Relation,
    argument: str,
    source: Any,
    names: Iterable[str],
    order: Order,
    query_name: str,
) -> Iterator[pa.Table]:
    """Yields tables of whole lists, sorted by query and then in an order."""
    if order == "trec_eval-9":
        table = engine.query(table, f"SELECT * REPLACE ({_FLOAT} AS score) FROM source")
    columns = ", ".join(f'"{name}"' for name in names)
    row_order = order if order in ("row", "item") else _TREC_EVAL_ORDER
    if "subtopics" in names and row_order == _TREC_EVAL_ORDER:
        columns, row_order = f"{columns}, {_NDEVAL_COLUMNS}", f"{_ID} DESC"
    rows = engine.query(
        table, f"SELECT {columns} FROM source ORDER BY query, {row_order}"
    )
    rest: list[pa.RecordBatch] = []
    with files.reraise_errors(argument, source):
        for batch in rows.to_arrow_reader(ROWS_AT_A_TIME):
            if batch["query"].is_null(nan_is_null=True).true_count:
                raise ValueError(
                    f"`query` should name a column without missing ids. Received: "
                    f"query={query_name!r}, with a row without one"
                )
            # The last list may continue in the next batch, so it is held back.
            combined = pa.Table.from_batches([*rest, batch])
            last = pc.index(combined["query"], combined["query"][-1]).as_py()
            if last:
                yield combined.slice(0, last)
            rest = combined.slice(last).to_batches()
    if not rest:
        raise files.no_rows_error(argument, source)
    yield pa.Table.from_batches(rest)
