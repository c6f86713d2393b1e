"""Judgements and runs that are ids for each query, as dicts of items and numbers."""

import re
import reprlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from keras_rank.reading.rows import Columns, received_twice

# Keys of a dict of columns, which a query is not likely to have for an id.
_COLUMN = re.compile(
    r"(q|query|user|doc|corpus|item)?[ _-]?(id|no)|query|doc|item|label|rel|relevance|"
    r"rating|grade|score|rank|column\d",
    re.IGNORECASE,
)
_ACCEPTED = {
    "qrels": "a dict of items and labels, or a list or set of the ids of relevant "
    "items. Leave a query without judgements out",
    "run": "a dict of items and scores, or a list of ids, the best first. Where "
    "nothing was found, pass an empty one or leave the query out: both count as 0",
}


def with_numbers(name: str, source: Any, columns: Columns) -> Any:
    """Returns `{query: {item: number}}` for a dict of the ids of each query.

    The ids of judgements have the label 1, and those of a run scores that keep their
    order under any rule of ties. Any other source is returned unchanged.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns, for tables.
    """
    if not isinstance(source, Mapping):
        return source
    given = {columns.query, columns.item, columns.label, columns.score}
    are_columns = [key in given or _COLUMN.fullmatch(str(key)) for key in source]
    has_numbers = [each for each in source.values() if isinstance(each, Mapping)]
    if any(are_columns) or len(has_numbers) == len(source):
        return source
    found = {}
    for query, ids in source.items():
        if isinstance(ids, np.ndarray):
            ids = ids.tolist()
        if not (isinstance(ids, Mapping) or _are_ids(name, ids, any(has_numbers))):
            raise ValueError(
                f"`{name}` should be a dict of columns, or have the same for each "
                f"query: {_ACCEPTED[name]}. Received: {reprlib.repr(ids)}, for the "
                f"query {query!r}"
            )
        found[query] = ids if isinstance(ids, Mapping) else _numbered(name, query, ids)
    return found


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
        found[item] = 1.0 if name == "qrels" else float(len(ids) - place)
    return found
