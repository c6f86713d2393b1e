"""Judgments and runs as sequences, by the types of what they hold.

A tuple, a named tuple or a dict is a row. A list or an array has the ids of one query.
"""

import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.reading import files, query_dicts, sources
from keras_rank.reading.layouts import NO_ITERATION
from keras_rank.reading.query_dicts import is_id, listed, on_host
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBERS


def as_tables(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any, bool]:
    """Turns rows into tables, and ids in one order on both sides into dicts.

    Returns:
        The judgments, the run, and whether their queries are named by their places.
    """
    sides: dict[str, Any] = {"qrels": qrels, "run": run}
    given = {name: _values(name, source) for name, source in sides.items()}
    if all(map(_are_in_order, given.values())):
        return *_by_place(given["qrels"], given["run"], columns), True
    for name, values in given.items():
        if values is not None:
            sides[name] = _table_of(name, values, columns)
    return sides["qrels"], sides["run"], False


def _values(name: str, source: Any) -> Any:
    """What a sequence holds: a list, or an array of integers in rows.

    A tuple of what an iterator yields, and `None` for other sources.
    """
    if files.are_files(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    array = on_host(source)
    if hasattr(array, "__array__"):
        # Ids under a mask become `None`, which is refused.
        array = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        if array.dtype.names:
            received = "a structured array, of which `pandas.DataFrame` makes a table"
            raise sources.not_understood(name, received)
        if type(array) is np.ndarray and array.ndim == 2 and array.dtype.kind in "iu":
            return array
        return array.tolist() if array.ndim else None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | Set):
        return None
    if isinstance(source, Sequence):
        return list(source)
    values = tuple(source)
    if not values:
        raise ValueError(
            f"`{name}` should have rows. Received: a {type(source).__name__} without "
            "any, as if it was read before"
        )
    return values


def _are_in_order(values: Any) -> bool:
    """Whether values are the ids of one query each."""
    if isinstance(values, list):
        return not values or not isinstance(values[0], tuple | Mapping)
    return isinstance(values, np.ndarray)


def _table_of(name: str, values: Any, columns: Columns) -> Any:
    """The table of rows. Without names, fields have those that are looked for."""
    fields = [columns.query, columns.item or "", getattr(columns, NUMBERS[name])]
    rows = [_fields_of(name, row, fields, columns.subtopic) for row in values]
    for number, row in enumerate(rows):
        if not row or row.keys() != rows[0].keys():
            received = f"{reprlib.repr(values[number])} as number {number}"
            raise sources.not_understood(name, received)
    found = {x: [row[x] for row in rows] for x in (rows[0] if rows else fields)}
    if list(found) == fields[:2]:
        # Items in order are a list for each query.
        items: dict[Any, list[Any]] = {}
        for query, item in zip(*found.values(), strict=True):
            items.setdefault(query, []).append(item)
        found = dict(zip(fields, (list(items), list(items.values())), strict=False))
    return query_dicts.table_of(name, found)


def _fields_of(
    name: str, row: Any, fields: list[str], subtopic: str | None
) -> Mapping[str, Any]:
    """The fields of a row by their names, none of what is no row."""
    if hasattr(row, "_asdict"):
        return dict(row._asdict())
    if type(row) is not tuple or not all(map(is_id, row[:2])):
        return row if isinstance(row, Mapping) else {}
    if name == "qrels" and len(row) == 4 and (subtopic or str(row[1]) in NO_ITERATION):
        fields = [fields[0], subtopic or "iteration", *fields[1:]]
    is_row = len(row) in (2, len(fields))
    return dict(zip(fields, row, strict=False)) if is_row else {}


def _by_place(judged: Any, found: Any, columns: Columns) -> tuple[Any, Any]:
    """Names queries by their places. A single id is the one relevant item."""
    if isinstance(judged, list):
        judged = [[x] if is_id(x) else x for x in judged]
    are_pairs = _are_pairs(judged) and _are_pairs(found)
    if are_pairs or any(map(_may_be_rows, (judged, found))):
        raise ValueError(
            "`qrels` and `run` should be rows, which are tuples such as those of "
            "`map(tuple, run)`, or the ids of each query, of one type: those of two "
            "ids on both sides in dicts, such as `dict(enumerate(run))`. Received: "
            f"{reprlib.repr(judged)} and {reprlib.repr(found)}"
        )
    if len(judged) != len(found):
        raise ValueError(
            "`qrels` and `run` should have the ids of each query, in the same order. "
            f"Received: those of {len(judged)} and of {len(found)} queries"
        )
    return _placed(judged, columns), _placed(found, columns)


def _are_pairs(ids: Any) -> bool:
    if isinstance(ids, np.ndarray):
        return bool(ids.shape[1] == 2)
    return {isinstance(x, list) and len(x) for x in map(listed, ids)} == {2}


def _may_be_rows(ids: Any) -> bool:
    """Whether there are rows among lists, or the first of these mixes types."""
    if isinstance(ids, np.ndarray):
        return False
    first = listed(ids[0]) if ids else []
    values = first if isinstance(first, list) else []
    kinds = {(is_id(x), isinstance(x, str | bytes)) for x in values}
    return len(kinds) > 1 or any(isinstance(x, tuple | Mapping | np.void) for x in ids)


def _placed(ids: Any, columns: Columns) -> Any:
    """The ids of each query by the places of these."""
    if not isinstance(ids, np.ndarray):
        return dict(enumerate(ids))
    number, size = ids.shape
    ends = pa.array(np.arange(number + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(ids.ravel()))
    return pa.table({columns.query: np.arange(number), columns.item or "": items})
