"""Judgements and runs that are dicts with the items of each query, as tables."""

import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.reading.rows import Columns, received_twice

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


def table_of_queries(
    name: str,
    sources: Sequence[Mapping[Any, Any]],
    columns: Columns,
    number: str,
    is_nested: bool = False,
) -> Any:
    """Returns the table of dicts with the items of each query.

    These are `{query: {item: number}}` or `{query: [items]}`. Items of judgements
    without numbers have the label 1, and those of a run scores that keep their order
    under any rule of ties. A dict of columns is returned unchanged.

    Args:
        name: `"qrels"` or `"run"`.
        sources: the dicts.
        columns: the names of the columns.
        number: the kind of the numbers: `"label"` or `"score"`.
        is_nested: whether no dict is one of columns.
    """
    named = (columns.query, columns.item or "", getattr(columns, number))
    rows: list[tuple[Any, Any, Any]] = []
    for source in sources:
        nested = [each for each in source.values() if isinstance(each, Mapping)]
        given = {*named, columns.label, columns.score}
        are_columns = [key in given or _COLUMN.fullmatch(str(key)) for key in source]
        if any(are_columns) and len(nested) < len(source) and not is_nested:
            return source
        for query, ids in source.items():
            if isinstance(ids, np.ndarray):
                ids = ids.tolist()
            if not isinstance(ids, Mapping):
                if not _are_ids(name, ids, any(nested)):
                    raise ValueError(
                        f"`{name}` should be a dict of columns, or have a dict of "
                        "items and numbers for each query, or ids for each: "
                        f"{_ACCEPTED[name]}. Received: {reprlib.repr(ids)}, for the "
                        f"query {query!r}"
                    )
                ids = _numbered(name, query, ids)
            rows += [(query, item, value) for item, value in ids.items()]
    values = zip(*rows, strict=True) if rows else [[], [], []]
    try:
        return pa.table(
            {column: list(each) for column, each in zip(named, values, strict=True)}
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


def _numbered(name: str, query: Any, ids: Collection[Any]) -> dict[Any, float]:
    """The number of each id of a query."""
    found: dict[Any, float] = {}
    for place, item in enumerate(ids):
        if item in found:
            raise received_twice(name, query, item, "a dict")
        found[item] = 1.0 if name == "qrels" else -float(place)
    return found
