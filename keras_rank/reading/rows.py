"""The rules of reading: rows sorted by query.

A label that is missing or below 0 counts as 0, or its row is left out. An item without
a score, or with a score of NaN, was not retrieved. Queries that are only in the
judgements count. Queries without judgements are left out, and their number is reported.
Nothing else is dropped: missing ids and duplicate items of a query are errors.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from keras_rank.backends import Array
from keras_rank.reading.engine import Connection, Relation, query
from keras_rank.reading.files import errors_of, no_rows
from keras_rank.reading.part import Sought, is_rank, no_score
from keras_rank.reading.sources import parts_of, places_of, select

Order: TypeAlias = Literal["row", "item", "trec_eval", "trec_eval-9"]
_ORDERS: dict[Order, str] = {
    "row": "row",
    "item": "item",
    # trec_eval compares ids as text, even numbers.
    "trec_eval": "score DESC, CAST(item AS VARCHAR) DESC",
    "trec_eval-9": "score DESC, CAST(item AS VARCHAR) DESC",
}
# As C makes a float of a double: infinite beyond its range, but not if it is missing.
_FLOAT = "coalesce(TRY_CAST(score AS FLOAT), CAST(score * 'inf'::DOUBLE AS FLOAT))"

# The numeric columns of all rows.
_NUMBERS = ("label", "score")
# The number of rows that are processed at a time.
_ROWS_AT_A_TIME = 500_000


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
    """

    query: str
    label: str
    score: str
    item: str | None = None
    weight: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for argument in ("query", "label", "score", "item", "weight"):
            name = getattr(self, argument)
            optional = " or None" if argument in ("item", "weight") else ""
            if not (isinstance(name, str) or (optional and name is None)):
                raise ValueError(
                    f"`{argument}` should be the name of a column{optional}. "
                    f"Received: {argument}={name!r}"
                )
        if is_rank(self.score):
            raise no_score(repr(self.score))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows sorted by query, as a stream of Arrow batches.

    Their columns are `query`, `label` and `score`, `item` and `weight` if these were
    named, and the kept columns by number: `0`, `1`, ...

    Attributes:
        batches: the batches, none of which is empty. A query may continue in the next.
        described: function of a query and an item that describes their place in
            messages.
        left_out: the number of queries that were left out as they have no judgements,
            if known.
    """

    batches: Iterator[pa.RecordBatch]
    described: Callable[[Any, Any], str]
    left_out: int | None = None


def read_rows(
    connection: Connection, source: Any, columns: Columns, order: Order
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
    ids = {"query": Sought("query", columns.query, is_required=True)}
    if columns.item is not None:
        ids["item"] = Sought("item", columns.item)
    kept = {str(i): Sought("keep", name) for i, name in enumerate(columns.keep)}
    numbers = {
        name: Sought(name, getattr(columns, name), is_finite=name == "label")
        for name in _NUMBERS
    }
    if columns.weight is not None:
        numbers["weight"] = Sought("weight", columns.weight, is_required=True)
    every = {**ids, **kept, **numbers}
    with errors_of("rows", source):
        parts = parts_of(connection, "rows", source, {x.name for x in every.values()})
        table = select(parts, {**ids, **kept}, numbers)
    # DuckDB sorts in parallel: without the row, the order would vary.
    table = query(table, "SELECT *, row_number() OVER () AS row FROM source")
    names = [*ids, *kept, *numbers]
    batches = sorted_batches(table, "rows", source, names, order)
    return Rows(batches, lambda *of_item: places_of("rows", source, ids, of_item))


def judge(labels: Array, starts: Array, drop_unjudged: bool) -> Array:
    """Applies the rules to labels: one that is missing or below 0 is no judgement.

    Args:
        labels: array of numbers, NaN where a label is missing.
        starts: int array of the places where lists start.
        drop_unjudged: whether an item without a judgement is padding, with the label
            -1. Otherwise it has the label 0.
    """
    if not drop_unjudged:
        return np.where(labels >= 0.0, labels, 0.0)
    # A list with negative labels only has items, but none is relevant.
    highest = np.fmax.reduceat(labels, starts)
    are_below = np.repeat(highest < 0.0, np.diff(np.append(starts, len(labels))))
    is_item = (labels >= 0.0) | (are_below & ~np.isnan(labels))
    return np.where(is_item, np.maximum(labels, 0.0), -1.0)


def sorted_batches(
    table: Relation, argument: str, source: Any, names: Sequence[str], order: Order
) -> Iterator[pa.RecordBatch]:
    """Yields the columns of rows, sorted by query and then in an order."""
    of_name = {name: f'"{name}"' for name in names}
    if order == "trec_eval-9":
        of_name["score"] = _FLOAT
    selected = ", ".join(f'{each} AS "{name}"' for name, each in of_name.items())
    with errors_of(argument, source):
        chosen = f"SELECT {selected}, row FROM source"
        ordered = (
            f"SELECT * EXCLUDE row FROM ({chosen}) ORDER BY query, {_ORDERS[order]}"
        )
        reader = query(table, ordered).to_arrow_reader(_ROWS_AT_A_TIME)
    is_empty = True
    while True:
        with errors_of(argument, source):
            batch = next(reader, None)
        if batch is None:
            break
        if batch.num_rows:
            is_empty = False
            yield batch
    if is_empty:
        raise no_rows(argument, source)


def received_twice(argument: str, query: Any, item: Any, where: str) -> ValueError:
    """The error for duplicate items of a query."""
    return ValueError(
        f"`{argument}` should have each item of a query once. Received twice: the item "
        f"{item!r} of the query {query!r}, in {where}"
    )
