"""Judgments and runs that hold the items of each query, as tables of lists.

They are dicts, also as JSON files, or lists and arrays in the order of the queries.
"""

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa
from keras import ops

from keras_rank.reading import files, layouts
from keras_rank.reading.json_objects import json_of
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBERS

# Keys of a dict of columns, which a query is not likely to have for an id.
_COLUMN = re.compile(
    r"(q|query|user|doc|corpus|item)?[ _-]?(id|no)|query|doc|item|label|rel|relevance|"
    r"rating|grade|score|rank|column\d",
    re.IGNORECASE,
)
_ACCEPTED = {
    "qrels": "a list or set of those of relevant items, in a table perhaps with as "
    "many labels. Leave a query without judgments out",
    "run": "a list, the best first, in a table perhaps with as many scores, and -1 "
    "only as padding at its end. Where nothing was found, pass an empty one, which "
    "counts as 0",
}


def is_nested(name: str, source: Any) -> bool:
    """Whether a source is JSON of `{query: {item: number}}`."""
    if not files.are_files(source):
        return False
    return layouts.layout_of(name, files.files_of(name, source)[0]) == "nested"


def by_place(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any]:
    """Names queries by their places, where both sides are lists of ids in one order.

    A judgment that is a single id is the one relevant item.
    """
    judged, found = _in_order(qrels), _in_order(run)
    if judged is None or found is None:
        return qrels, run
    if len(judged) != len(found):
        raise ValueError(
            "`qrels` and `run` should have the ids of each query, in the same order. "
            f"Received: those of {len(judged)} and of {len(found)} queries"
        )
    if not isinstance(judged, np.ndarray):
        judged = [[x] if isinstance(x, str | int | np.integer) else x for x in judged]
    elif judged.ndim == 1:
        judged = judged[:, None]
    return _placed(judged, columns), _placed(found, columns)


def _in_order(source: Any) -> Any:
    """A list or an array with the ids of each query, `None` for other sources."""
    if files.are_files(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    if isinstance(source, list | tuple):
        return source or None
    array = _on_host(source)
    if isinstance(array, np.ma.MaskedArray):
        # Ids under the mask become `None`, which is refused.
        return array.tolist()
    is_array = hasattr(array, "__array__") and np.ndim(array)
    return np.asarray(array) if is_array else None


def _on_host(x: Any) -> Any:
    """A tensor as an array, and others unchanged."""
    is_tensor = ops.is_tensor(x) and not isinstance(x, np.ndarray)
    return ops.convert_to_numpy(x) if is_tensor else x


def _placed(lists: Any, columns: Columns) -> Any:
    """Lists by the places of their queries."""
    if not isinstance(lists, np.ndarray):
        return dict(enumerate(lists))
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        return dict(enumerate(lists.tolist()))
    number, size = lists.shape
    ends = pa.array(np.arange(number + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(lists.ravel()))
    return pa.table({columns.query: np.arange(number), columns.item or "": items})


def tabulated(name: str, source: Any, columns: Columns) -> Any:
    """Returns dicts with the items of each query as a table, and others unchanged.

    These are `{query: {item: number}}` or `{query: [items]}`. The table has a row with
    lists for each query. A single dict of columns is one of the others. Judgments with
    subtopics, `{query: {subtopic: {item: label}}}`, have a row for each label.

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
    query, item = columns.query, columns.item or ""
    number = getattr(columns, NUMBERS[name])
    known = {query, item, columns.label, columns.score}
    keys = [x for each in dicts for x in each]
    values = [x for each in dicts for x in each.values()]
    nested = [items for items in values if isinstance(items, Mapping)]
    has_columns = len(nested) < len(values) and any(
        key in known or _COLUMN.fullmatch(str(key)) for key in keys
    )
    if has_columns and len(dicts) == 1:
        return source if isinstance(source, Mapping) else dicts[0]
    of_queries = list(zip(keys, values, strict=True))
    should_be_empty = has_columns or any(nested)
    if name == "qrels" and columns.subtopic is not None:
        names = query, columns.subtopic, item, number
        rows = list(_rows_of_subtopics(of_queries))
        found = {each: [row[i] for row in rows] for i, each in enumerate(names)}
    else:
        ids = [_ids_of(name, *each, should_be_empty) for each in of_queries]
        found = {query: keys, item: ids or pa.array([], pa.list_(pa.string()))}
        if any(nested):
            found[number] = [
                list(items.values()) if isinstance(items, Mapping) else []
                for items in values
            ]
    try:
        return pa.table(found)
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _rows_of_subtopics(of_queries: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """Yields the query, subtopic, item and label of judgments in dicts."""
    for query, subtopics in of_queries:
        of_subtopics = subtopics.values() if isinstance(subtopics, Mapping) else [None]
        if not all(isinstance(x, Mapping | list | tuple | Set) for x in of_subtopics):
            raise no_subtopics(f"{reprlib.repr(subtopics)}, for the query {query!r}")
        for subtopic, items in subtopics.items():
            ids = _ids_of("qrels", query, items, should_be_empty=False)
            labels = items.values() if isinstance(items, Mapping) else [1] * len(ids)
            for item, label in zip(ids, labels, strict=True):
                yield query, subtopic, item, label


def _ids_of(name: str, query: Any, items: Any, should_be_empty: bool) -> list[Any]:
    """The ids of the items of a query.

    Args:
        name: `"qrels"` or `"run"`.
        query: the query.
        items: a dict from items to numbers, or a collection of items.
        should_be_empty: whether such a collection should not have any, as other queries
            have dicts, or columns.
    """
    if isinstance(items, Mapping):
        return list(items)
    ids = _on_host(items)
    convert = getattr(ids, "tolist", None) or getattr(ids, "to_list", None)
    ids = convert() if convert else ids
    accepted = (list, tuple, set, frozenset) if name == "qrels" else (list, tuple)
    if not isinstance(ids, accepted) or not all(
        isinstance(item, str | int | np.integer)
        and not isinstance(item, bool)
        and not should_be_empty
        for item in ids
    ):
        raise not_understood(name, query, items)
    return list(ids)


def not_understood(name: str, query: Any, items: Any) -> ValueError:
    """The error for what is no collection of the items of a query."""
    return ValueError(
        f"`{name}` should be a dict of columns, or have a dict of items and numbers "
        f"for each query, or ids for each: {_ACCEPTED[name]}. Received: "
        f"{reprlib.repr(items)}, for the query {query!r}"
    )


def no_subtopics(received: str) -> ValueError:
    """The error for judgments that don't say to which subtopic an item is relevant."""
    return ValueError(
        "`qrels` should have subtopics, as metrics such as alpha_ndcg read them: lines "
        "of `query subtopic item label`, a table with a column of subtopics, which "
        "`subtopic` (--subtopic) names, or a dict {query: {subtopic: {item: label}}}. "
        f"Received: {received}"
    )
