"""The rules of reading: rows sorted by query.

A label that is missing or below 0 counts as 0, or its row is left out. An item without
a score, or with a score of NaN, was not retrieved. Queries that are only in the
judgments count. Queries without judgments are left out, and their number is reported.
Nothing else is dropped: missing ids and duplicate items of a query are errors.
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
from keras_rank.reading.files import plain_name
from keras_rank.reading.merged_ids import warnings_of_ids
from keras_rank.reading.part import ColumnRef, is_called, is_rank, no_score
from keras_rank.reading.text import CsvPart, TextPart

# The names of columns in known tools, BEIR, ir_measures, ranx, PyTerrier, Hugging Face
# and Quepid among them, in lower case and with underscores. The first is the default.
KNOWN = {
    "query": ("query_id", "q_id", "qid", "user_id", "query"),
    "item": ("item_id", "corpus_id", "doc_id", "docno", "docid", "item"),
    "label": ("label", "relevance", "rel", "rating"),
    "score": ("score",),
    "subtopic": ("subtopic_id", "subtopic", "iteration"),
}
# Beside those of ids there may be the text of a query or an item, PyTerrier's number of
# a document, and TREC's iteration.
_BESIDE = {
    "query": {"query_id", "q_id", "qid"},
    "item": {*KNOWN["item"]},
    "docid": {"docno"},
    "iteration": {"subtopic_id", "subtopic"},
}


def known_name(role: str, given: str, names: Sequence[str]) -> str:
    """The name of a column: as it was given, or for the default that of a known tool.

    Args:
        role: what the column holds.
        given: the name that was given.
        names: the names of all columns.
    """
    if given in names or given != KNOWN[role][0]:
        return given
    plain = {name: plain_name(name) for name in names}
    found = [name for name in names if plain[name] in KNOWN[role]]
    others = {name: _BESIDE.get(plain[name], set()) - {plain[name]} for name in found}
    found = [x for x in found if others[x].isdisjoint(plain[y] for y in found)]
    if len(found) > 1:
        raise ValueError(
            f"`{role}` should name one column. Received: {role}={given!r}, and a table "
            f"with {' and '.join(map(repr, found))}: say which, such as "
            f"{role}={found[0]!r} (--{role} {found[0]}), or leave out the others"
        )
    return found[0] if found else given


Order: TypeAlias = Literal["row", "item", "trec_eval", "trec_eval-9"]
# trec_eval compares ids as text, even numbers.
_ID = "CAST(item AS VARCHAR)"
_OF_TREC_EVAL = f"score DESC, {_ID} DESC"
# Of equal items, ndeval's ideal order has the one with the larger id first. A run of
# pyndeval has the other one first, which is higher here.
_OF_NDEVAL = (
    "dense_rank() OVER (PARTITION BY query ORDER BY score) AS height, "
    f"row_number() OVER (PARTITION BY query ORDER BY score, {_ID} DESC) AS place"
)
# As C makes a float of a double: infinite beyond its range, but not if it is missing.
_FLOAT = "coalesce(TRY_CAST(score AS FLOAT), CAST(score * 'inf'::DOUBLE AS FLOAT))"
# The number of rows that are processed at a time.
ROWS_AT_A_TIME = 500_000


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of the columns that are read.

    Attributes:
        query: the list that a row belongs to.
        label: how relevant the item is.
        score: the score of the model.
        item: the item, or `None`.
        weight: the weight of the item, or `None`.
        keep: further columns with one value per query.
        subtopic: the subtopic of a judgment, or `None`.
        lower_is_better: whether scores are distances. They are read as their negatives.
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
        if is_rank(self.score):
            raise no_score(repr(self.score))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows sorted by query, as a stream of tables of whole lists.

    Their columns are `query`, `label` and `score`, `item` and `weight` if these were
    named, and the kept columns by number: `0`, `1`, ... With subtopics, also the labels
    for each, `subtopics`, and if trec_eval's order is asked for `height`, the order of
    the scores, and `place`, in which none are tied.

    Attributes:
        tables: the tables, none of which is empty.
        left_out: the number of queries that were left out as they have no judgments,
            if known.
        some: a few of these.
        has_scores: whether the scores are given, not only an order.
        twice: function from a query and an item, which it has twice, to the error, if
            there may be any.
        ends: the last `row` of each file, if there are several and items are not known:
            then rows have their number as another column.
        warnings: warnings about rows that may not be read as meant.
    """

    tables: Iterator[pa.Table]
    left_out: int | None = None
    some: Sequence[Any] = ()
    has_scores: bool = True
    twice: Callable[[tuple[Any, Any]], ValueError] | None = None
    ends: Array | None = None
    warnings: Sequence[str] = ()


def read_rows(
    connection: engine.Connection, source: Any, columns: Columns, order: Order
) -> Rows:
    """Reads a table with one row per query and item.

    Args:
        connection: a DuckDB.
        source: files, or a table in memory.
        columns: the names of the columns.
        order: how the rows of a query are ordered: as given, by item, or as trec_eval
            ranks them: tied items in descending order, where version 9 takes scores
            that are equal in float32 for ties.
    """
    given = {role: getattr(columns, role) for role in ("query", "label", "score")}
    others = {*columns.keep, columns.item or "", columns.weight or ""}
    sought = others.union(given.values(), *(KNOWN[role] for role in given))
    with files.errors_of("rows", source):
        parts = sources.parts_of(connection, "rows", source, sought)
        free = [x for x in parts[0].columns if x not in others]
        found = {role: _only_name(role, name, free) for role, name in given.items()}
        ids = {"query": ColumnRef("query", found["query"], is_required=True)}
        if columns.item is not None:
            ids["item"] = ColumnRef("item", columns.item)
        kept = {str(i): ColumnRef("keep", name) for i, name in enumerate(columns.keep)}
        numbers = {
            "label": ColumnRef("label", found["label"], is_finite=True),
            "score": ColumnRef("score", found["score"]),
        }
        if columns.weight is not None:
            numbers["weight"] = ColumnRef("weight", columns.weight, is_required=True)
        tables = sources.select(parts, {**ids, **kept}, numbers)
        sizes: list[int] = []
        if columns.item is None and files.are_files(source):
            for part, table in zip(parts, tables, strict=True):
                sizes += part.sizes_of_files(table)
        warnings = []
        if columns.item is not None and isinstance(parts[0], TextPart):
            warnings = warnings_of_ids(
                "rows",
                files.named(source),
                engine.numbered(sources.union(tables)),
                is_csv=isinstance(parts[0], CsvPart),
            )
    ends = np.cumsum(sizes) if len(sizes) > 1 else None
    read = [*ids, *kept, *numbers, *(["row"] if len(sizes) > 1 else [])]
    rows = negated(engine.numbered(sources.union(tables)), columns)
    lists = sorted_lists(rows, "rows", source, read, order, columns.query)
    hint = '; `duplicates="count"` counts each'
    twice = functools.partial(sources.received_twice, "rows", source, ids, hint=hint)
    return Rows(lists, twice=twice, ends=ends, warnings=warnings)


def negated(rows: engine.Relation, columns: Columns) -> engine.Relation:
    """Returns rows with negative scores if lower scores are better."""
    if not columns.lower_is_better:
        return rows
    # The difference avoids -0.0.
    return rows.project("* REPLACE (0 - CAST(score AS DOUBLE) AS score)")


def _only_name(role: str, given: str, names: Sequence[str]) -> str:
    """The name of a column, or that of a known tool if no other may be meant."""
    may_be_meant = [name for name in names if is_called(role, name)]
    return known_name(role, given, names) if len(may_be_meant) == 1 else given


def labels_of(labels: Array, starts: Array, drop_unjudged: bool) -> Array:
    """Applies the rules to labels: one that is missing or below 0 is no judgment.

    Args:
        labels: array of numbers, NaN where a label is missing.
        starts: int array of the places where lists start.
        drop_unjudged: whether an item without a judgment is padding, with the label
            -1. Otherwise it has the label 0.
    """
    if not drop_unjudged:
        return np.where(labels >= 0.0, labels, 0.0)
    # A list with negative labels only has items, but none is relevant.
    highest = np.fmax.reduceat(labels, starts)
    are_below = np.repeat(highest < 0.0, np.diff(np.append(starts, len(labels))))
    is_item = (labels >= 0.0) | (are_below & ~np.isnan(labels))
    return np.where(is_item, np.maximum(labels, 0.0), -1.0)


def sorted_lists(
    table: engine.Relation,
    argument: str,
    source: Any,
    names: Iterable[str],
    order: Order,
    query_name: str,
) -> Iterator[pa.Table]:
    """Yields the columns of whole lists, sorted by query and then in an order."""
    if order == "trec_eval-9":
        table = engine.query(table, f"SELECT * REPLACE ({_FLOAT} AS score) FROM source")
    columns = ", ".join(f'"{name}"' for name in names)
    by = order if order in ("row", "item") else _OF_TREC_EVAL
    if "subtopics" in names and by == _OF_TREC_EVAL:
        columns, by = f"{columns}, {_OF_NDEVAL}", f"{_ID} DESC"
    rows = engine.query(table, f"SELECT {columns} FROM source ORDER BY query, {by}")
    rest: list[pa.RecordBatch] = []
    with files.errors_of(argument, source):
        for batch in rows.to_arrow_reader(ROWS_AT_A_TIME):
            if batch["query"].is_null(nan_is_null=True).true_count:
                raise ValueError(
                    f"`query` should name a column without missing ids. Received: "
                    f"query={query_name!r}, with a row without one"
                )
            # The last list may continue in the next batch.
            found = pa.Table.from_batches([*rest, batch])
            last = pc.index(found["query"], found["query"][-1]).as_py()
            if last:
                yield found.slice(0, last)
            rest = found.slice(last).to_batches()
    if not rest:
        raise files.no_rows(argument, source)
    yield pa.Table.from_batches(rest)
