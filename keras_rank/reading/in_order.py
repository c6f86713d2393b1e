"""Judgments and runs as sequences: rows, or the ids of each query in one order."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from keras_rank.reading import files, query_dicts, roles, sources
from keras_rank.reading.part import is_called
from keras_rank.reading.query_dicts import is_id, on_host, plain
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBERS

# Rows, or the number of the first value that is none.
_Found: TypeAlias = list[Any] | int
# How many fields rows without names may have: a query, an item, a number, and for
# judgments an iteration.
_WIDTHS = {"qrels": (2, 3, 4), "run": (2, 3)}


def as_tables(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any, bool]:
    """Turns rows into tables, and ids in one order on both sides into dicts.

    Returns:
        The judgments, the run, and whether their queries are named by their places.
    """
    sides: dict[str, Any] = {"qrels": qrels, "run": run}
    given = {name: _values(name, source, columns) for name, source in sides.items()}
    rows = {name: _rows_of(name, x, columns) for name, x in given.items()}
    have_order = all(isinstance(x, list | np.ndarray) for x in given.values())
    if have_order and not _are_rows(*rows.values()):
        return *_by_place(given["qrels"], given["run"], columns), True
    for name, values in given.items():
        if values is None:
            continue
        of_side = rows[name]
        if not (have_order or isinstance(of_side, int) or isinstance(values, tuple)):
            # Lists on one side alone may be the ids of queries without names.
            are_sure = _are_clear(of_side) or _are_tuples(of_side)
            of_side = of_side if are_sure else 0
        if isinstance(of_side, int):
            row = f"{reprlib.repr(values[of_side])} as number {of_side}"
            raise sources.not_understood(
                name, f"a {type(sides[name]).__name__}, with {row}"
            )
        sides[name] = _table_of(name, of_side, columns)
    return sides["qrels"], sides["run"], False


def _values(name: str, source: Any, columns: Columns) -> Any:
    """A list or an array of what is in order, a tuple of what an iterator yields.

    `None` for other sources. Fields with names that are known are in dicts.
    """
    if files.are_files(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    array = on_host(source)
    if isinstance(array, np.ma.MaskedArray):
        # Ids under the mask become `None`, which is refused.
        return array.tolist()
    if hasattr(array, "__array__"):
        return np.asarray(array) if np.ndim(array) else None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | Set):
        return None
    values, is_list = tuple(source), isinstance(source, list | tuple)
    if not (values or is_list):
        raise ValueError(
            f"`{name}` should have rows. Received: a {type(source).__name__} without "
            "any, as if it was read before"
        )
    fields = list(getattr(values[0], "_fields", ())) if values else []
    known = _known(name, fields, columns)
    are_named = len(known) == 3 or known != fields[: len(known)]
    # Beside a query and an item, a rank or a timestamp is no number of theirs.
    others = fields[2:] if len(known) == 2 else []
    are_named |= not all(is_called(NUMBERS[name], field) for field in others[:1])
    if fields and all(hasattr(x, "_fields") for x in values):
        values = tuple(x._asdict() if are_named else tuple(x) for x in values)
    return list(values) if is_list else values


def _known(name: str, fields: list[str], columns: Columns) -> list[str]:
    """The names of a query, an item and a number among those of fields."""
    found = roles.by_name(fields, columns, NUMBERS[name]).values()
    return [each for each in found if each in fields]


def _rows_of(name: str, values: Any, columns: Columns) -> _Found:
    """The values, if they may be rows, with the scalars of Python."""
    if values is None or not len(values):
        return []
    first, found = values[0], []
    if isinstance(first, Mapping):
        # Its keys may be items.
        return list(values) if len(_known(name, [*first], columns)) > 1 else 0
    width = len(first) if isinstance(first, list | tuple | np.ndarray) else 0
    if width not in _WIDTHS[name]:
        return 0
    if isinstance(values, np.ndarray) and first.dtype.kind in "iu" and first.ndim == 1:
        return list(values.tolist())
    for number, row in enumerate(values):
        cells = row.tolist() if isinstance(row, np.ndarray) else row
        if type(cells) not in (list, tuple) or len(cells) != width:
            return number
        cells = type(cells)(x if isinstance(x, bool) else plain(x) for x in cells)
        if not (is_id(cells[0]) and is_id(cells[1 if width < 4 else 2])):
            return number
        found.append(cells)
    return found


def _are_tuples(rows: Sequence[Any]) -> bool:
    return all(isinstance(row, tuple) for row in rows)


def _are_clear(rows: Sequence[Any]) -> bool:
    """Whether rows can't be the ids of a query each, which are of one type."""
    if not rows or isinstance(rows[0], Mapping):
        return bool(rows)
    return (len(rows[0]) > 2 or _are_tuples(rows)) and not all(
        all(map(is_id, row)) and len({isinstance(x, str) for x in row}) == 1
        for row in rows
    )


def _are_rows(judged: _Found, found: _Found) -> bool:
    """Whether they are rows rather than ids. Raises if that is not clear."""
    sides = [x for x in (judged, found) if not isinstance(x, int)]
    if len(sides) < 2 or any(map(_are_clear, sides)):
        return any(map(_are_clear, sides))
    firsts = [[row[0] for row in side] for side in sides]
    one, other = map(set, firsts)
    repeat = len(one) < len(firsts[0]) and len(other) < len(firsts[1])
    if all(map(_are_tuples, sides)):
        is_unclear = not one.isdisjoint(other)
        if repeat or not all(firsts):
            return True
    else:
        # Rows have an item of a query once, -1 is the padding of ids, and the first
        # ids of two lists may be the same by chance.
        repeat |= one == other and len(one) > 2
        # Each side may have a few queries that the other one lacks.
        are_same = len(one & other) >= 0.9 * min(len(one), len(other))
        is_unclear = repeat and are_same and -1 not in one | other
        is_unclear &= all(len({(*x[:2],) for x in side}) == len(side) for side in sides)
    if is_unclear:
        raise ValueError(
            "`qrels` and `run` should say whether they are rows, or the ids of each "
            "query in one order: pass rows as tables with the columns `query_id` and "
            "`item_id`, and ids as dicts such as `dict(enumerate(run))`. Received: "
            f"{reprlib.repr(judged)} and {reprlib.repr(found)}"
        )
    return False


def _table_of(name: str, rows: list[Any], columns: Columns) -> Any:
    """The table of rows. Its columns have the names of fields, or of places."""
    if not rows:
        found: dict[str, list[Any]] = {f"column{i}": [] for i in range(3)}
    elif isinstance(rows[0], Mapping):
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping) or row.keys() != rows[0].keys():
                received = f"{reprlib.repr(row)} as number {i}, and others before"
                raise sources.not_understood(name, received)
        found = {field: [row[field] for row in rows] for field in rows[0]}
    elif len(rows[0]) == 2:
        items: dict[Any, list[Any]] = {}
        for query, item in rows:
            items.setdefault(query, []).append(item)
        found = {columns.query: list(items), columns.item or "": list(items.values())}
    else:
        found = {f"column{i}": list(x) for i, x in enumerate(zip(*rows, strict=True))}
    return query_dicts.table_of(name, found)


def _by_place(judged: Any, found: Any, columns: Columns) -> tuple[Any, Any]:
    """Names queries by their places. A single id is the one relevant item."""
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


def _placed(ids: Any, columns: Columns) -> Any:
    """The ids of each query by the places of these."""
    if not isinstance(ids, np.ndarray):
        return dict(enumerate(ids))
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        return dict(enumerate(ids.tolist()))
    number, size = ids.shape
    ends = pa.array(np.arange(number + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(ids.ravel()))
    return pa.table({columns.query: np.arange(number), columns.item or "": items})
