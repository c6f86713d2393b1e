"""Judgments and runs as lists or arrays with the ids of each query, in one order."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.reading import files, sources
from keras_rank.reading.query_dicts import is_id, listed, on_host
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBERS


def as_tables(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any, bool]:
    """Turns lists of ids on both sides into dicts or tables by query number.

    Returns:
        The judgments, the run, and whether their queries are numbered. Other sources
        are returned unchanged.
    """
    given = {"qrels": qrels, "run": run}
    lists = {name: _lists_of(name, x, columns) for name, x in given.items()}
    if all(x is not None for x in lists.values()):
        return *_by_place(lists["qrels"], lists["run"], columns), True
    for name, values in lists.items():
        if values is not None:
            raise _no_lists(name, values, columns)
    return qrels, run, False


def _lists_of(name: str, source: Any, columns: Columns) -> Any:
    """Returns a list, or an array of integers in rows, and `None` for other sources.

    Raises for rows with the fields of one item.
    """
    if files.are_files(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    array = on_host(source)
    if hasattr(array, "__array__"):
        # Ids under a mask become `None`, which is refused.
        array = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        if array.dtype.names:
            raise _no_lists(name, list(array[:1]), columns)
        if type(array) is np.ndarray and array.ndim == 2 and array.dtype.kind in "iu":
            return array
        return array.tolist() if array.ndim else None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | Set):
        return None
    is_iterator = not isinstance(source, Sequence)
    if is_iterator or any(isinstance(x, tuple | Mapping | np.void) for x in source):
        raise _no_lists(name, source, columns)
    return list(source)


def _no_lists(name: str, values: Any, columns: Columns) -> ValueError:
    """The error for rows, for an iterator, and for lists on one side only."""
    first = next(iter(values), None) if isinstance(values, Sequence) else None
    has_names = isinstance(first, Mapping | np.void) or hasattr(first, "_fields")
    names = [columns.query, columns.item, getattr(columns, NUMBERS[name])]
    table = "pandas.DataFrame(rows" + ("" if has_names else f", columns={names}") + ")"
    return sources.not_understood(
        name, f"{reprlib.repr(values)}. If it has a row for each item, pass `{table}`"
    )


def _by_place(judged: Any, found: Any, columns: Columns) -> tuple[Any, Any]:
    """Numbers the queries. A single id is the one relevant item of a query."""
    if isinstance(judged, list):
        judged = [[x] if is_id(x) else x for x in judged]
    are_pairs = _are_pairs(judged) and _are_pairs(found)
    if are_pairs or any(map(_mixes_types, (judged, found))):
        raise ValueError(
            "`qrels` and `run` should be lists of the ids of each query, of one type: "
            "those of two ids on both sides in dicts, such as `dict(enumerate(run))`. "
            "If they have a row for each item, pass `pandas.DataFrame(rows, columns="
            f"{[columns.query, columns.item, columns.score]})`. Received: "
            f"{reprlib.repr(judged)} and {reprlib.repr(found)}"
        )
    if len(judged) != len(found):
        raise ValueError(
            "`qrels` and `run` should have the ids of each query, in the same order. "
            f"Received: those of {len(judged)} and of {len(found)} queries"
        )
    return _placed(judged, columns), _placed(found, columns)


def _are_pairs(ids: Any) -> bool:
    """Returns whether all queries have two ids."""
    if isinstance(ids, np.ndarray):
        return bool(ids.shape[1] == 2)
    return {isinstance(x, list) and len(x) for x in map(listed, ids)} == {2}


def _mixes_types(ids: Any) -> bool:
    """Returns whether the first list has values of several types, as a row has."""
    if isinstance(ids, np.ndarray):
        return False
    first = listed(ids[0]) if ids else []
    values = first if isinstance(first, list) else []
    return len({(is_id(x), isinstance(x, str | bytes)) for x in values}) > 1


def _placed(ids: Any, columns: Columns) -> Any:
    """Returns the ids of each query by the number of the query."""
    if not isinstance(ids, np.ndarray):
        return dict(enumerate(ids))
    number, size = ids.shape
    ends = pa.array(np.arange(number + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(ids.ravel()))
    return pa.table({columns.query: np.arange(number), columns.item or "": items})
