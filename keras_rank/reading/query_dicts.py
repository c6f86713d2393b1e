"""Judgements and runs as dicts with the items of each query, also as JSON files."""

import re
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.reading import files, layouts
from keras_rank.reading.json_objects import json_of
from keras_rank.reading.rows import Columns
from keras_rank.reading.sources import received_twice
from keras_rank.reading.text import NUMBERS

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


def is_nested(name: str, source: Any) -> bool:
    """Whether a source is JSON of `{query: {item: number}}`."""
    if not files.are_files(source):
        return False
    return layouts.layout_of(name, files.files_of(name, source)[0]) == "nested"


def without_dicts(name: str, source: Any, columns: Columns) -> Any:
    """Returns dicts with the items of each query as a table, and others unchanged.

    These are `{query: {item: number}}` or `{query: [items]}`. Items of judgements
    without numbers have the label 1, and those of a run scores that keep their order
    under any rule of ties. A single dict of columns is one of the others.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns.
    """
    if is_nested(name, source):
        dicts = [json_of(file) for file in files.files_of(name, source)]
    elif isinstance(source, Mapping):
        dicts = [source]
    else:
        return source
    names = (columns.query, columns.item or "", getattr(columns, NUMBERS[name]))
    known = {*names, columns.label, columns.score}
    rows: list[tuple[Any, Any, Any]] = []
    for each in dicts:
        are_columns = [key in known or _COLUMN.fullmatch(str(key)) for key in each]
        nested = [items for items in each.values() if isinstance(items, Mapping)]
        has_columns = any(are_columns) and len(nested) < len(each)
        if has_columns and len(dicts) == 1:
            return each
        for query, items in each.items():
            numbers = _numbers_of(name, query, items, has_columns or any(nested))
            rows += [(query, item, number) for item, number in numbers.items()]
    values = map(list, zip(*rows, strict=True)) if rows else [[], [], []]
    try:
        return pa.table(dict(zip(names, values, strict=True)))
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _numbers_of(
    name: str, query: Any, items: Any, should_be_empty: bool
) -> Mapping[Any, Any]:
    """The number of each item of a query.

    Args:
        name: `"qrels"` or `"run"`.
        query: the query.
        items: a dict from items to numbers, or a collection of items.
        should_be_empty: whether such a collection should not have any, as other queries
            have dicts, or columns.
    """
    if isinstance(items, Mapping):
        return items
    items = items.tolist() if isinstance(items, np.ndarray) else items
    accepted = (list, tuple, set, frozenset) if name == "qrels" else (list, tuple)
    if not isinstance(items, accepted) or not all(
        isinstance(item, str | int | np.integer)
        and not isinstance(item, bool)
        and not should_be_empty
        for item in items
    ):
        raise ValueError(
            f"`{name}` should be a dict of columns, or have a dict of items and "
            f"numbers for each query, or ids for each: {_ACCEPTED[name]}. Received: "
            f"{reprlib.repr(items)}, for the query {query!r}"
        )
    numbers: dict[Any, float] = {}
    for place, item in enumerate(items):
        if item in numbers:
            raise received_twice(name, {}, {}, (query, item))
        numbers[item] = 1.0 if name == "qrels" else -float(place)
    return numbers
