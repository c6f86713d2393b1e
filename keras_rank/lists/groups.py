"""Conversion of tables with one row per item, and the positions of rows in lists."""

import numbers
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_rank.backends import Array, backend
from keras_rank.lists.input_arrays import check_dense, value_error
from keras_rank.lists.tensors import to_native_order


def convert_rows(argument: str, values: Any) -> Array:
    """Converts numbers, with one row for each item, to an array."""
    check_dense(argument, values)
    if isinstance(values, np.ma.MaskedArray):
        expected = "be an array without a mask of its own: select the rows of items"
        raise value_error(argument, expected, "a masked array")
    values = ops.convert_to_numpy(values) if ops.is_tensor(values) else values
    try:
        array = np.asarray(values)
        received = f"{argument} of shape {array.shape} and dtype {array.dtype}"
    except (TypeError, ValueError):
        array, received = np.asarray(None), f"{argument}={reprlib.repr(values)}"
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise value_error(
            argument, "be an array of numbers, a row for each item", received
        )
    return to_native_order(array)


def locate_rows(
    rows: int | None, group_sizes: Any, group_ids: Any
) -> tuple[Array, Array]:
    """Returns the index of the list of each row, and the position of the row in it.

    Lists are numbered in the order of their first rows. The values of their ids do not
    matter.

    Args:
        rows: the number of rows, `None` if only the groups determine it.
        group_sizes: the number of rows of each list, or `None`.
        group_ids: the id of the list of each row, or `None`.
    """
    if (group_sizes is None) == (group_ids is None):
        raise ValueError(
            "Either `group_sizes` or `group_ids` should be given. Received: "
            f"group_sizes={reprlib.repr(group_sizes)}, "
            f"group_ids={reprlib.repr(group_ids)}"
        )
    check_dense("group_sizes", group_sizes)
    if group_ids is not None:
        return _locate_by_id(rows, convert_ids(group_ids))
    sizes = np.asarray(group_sizes)
    is_integer = sizes.dtype.kind in "iu" or sizes.size == 0
    # NumPy does not accept unsigned integers as positions, so sizes become int64.
    sizes = sizes.astype("int64") if is_integer else sizes
    if sizes.ndim != 1 or not is_integer or np.any(sizes < 0):
        received = f"group_sizes={reprlib.repr(group_sizes)}"
        expected = "be integers of 0 or more, one per list"
        raise value_error("group_sizes", expected, received)
    if rows is not None and sizes.sum() != rows:
        received = f"a sum of {sizes.sum()} for {rows} rows"
        raise value_error("group_sizes", "add up to the number of rows", received)
    return np.repeat(np.arange(len(sizes)), sizes), _positions_in_lists(sizes)


def convert_labels(argument: str, values: Any) -> Array:
    """Checks labels, one for each row, and returns them as an array of objects."""
    check_dense(argument, values)
    if not isinstance(values, list | tuple | np.ma.MaskedArray):
        values = np.asarray(backend.prepare_for_numpy(values))
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        # `tolist` returns nanoseconds as integers, but seconds as dates.
        values = values.astype(f"{values.dtype.kind}8[s]")
    labels = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(labels, list | tuple):
        received = f"{argument}={reprlib.repr(labels)}"
        raise value_error(argument, "be a list or an array of labels", received)
    convert_ids(labels, {}, argument)
    return np.fromiter(labels, object, len(labels))


def convert_ids(
    group_ids: Any,
    id_numbers: dict[Any, int] | None = None,
    argument: str = "group_ids",
) -> Array:
    """Returns ids as an array that can be sorted.

    Numbers in an array are returned unchanged if `id_numbers` is `None`. Other ids are
    numbered by a dict, which compares them exactly: NumPy would cast them to one type,
    so `[1, "1"]` would become equal strings, and large integers floats.

    Args:
        group_ids: the id of each row, of any type that is hashable.
        id_numbers: an empty dict, to which the number of each id is added. Defaults to
            `None`: numbers in an array are returned unchanged.
        argument: the name of the argument, for errors.
    """
    check_dense(argument, group_ids)
    if isinstance(group_ids, np.ma.MaskedArray):
        raise _ids_error(argument, group_ids.tolist())
    group_ids = backend.prepare_for_numpy(group_ids)
    if not isinstance(group_ids, list | tuple):
        array: Array = np.asarray(group_ids)
        if array.ndim != 1:
            return array
        if id_numbers is None and array.dtype.kind in "biufmM":
            return to_native_order(array)
        group_ids = array.tolist()
    elif any(_is_tensor(group_id) for group_id in group_ids[:1]):
        # Tensors are hashed by identity, so their values are read first.
        return np.asarray([np.asarray(group_id) for group_id in group_ids])
    known = {} if id_numbers is None else id_numbers
    _check_ids(argument, group_ids)
    try:
        numbers_by_row = [
            known.setdefault(group_id, len(known)) for group_id in group_ids
        ]
    except TypeError as error:
        raise _ids_error(argument, group_ids) from error
    return np.array(numbers_by_row, dtype="int64")


def _check_ids(argument: str, ids: Sequence[Any]) -> None:
    """Raises `ValueError` if an id is missing, or if ids have several types.

    Ids of different types are never equal.
    """
    kinds = {type(group_id) for group_id in ids}
    # `bool` is a number, but True would equal the id 1.
    is_one_type = len(kinds) < 2 or any(
        all(issubclass(kind, common) for kind in kinds) and bool not in kinds
        for common in (str, bytes, numbers.Number)
    )
    if not is_one_type or any(map(_is_missing, ids)):
        raise _ids_error(argument, ids)


def _is_missing(value: Any) -> bool:
    try:
        # NaN is the only number that differs from itself.
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _ids_error(argument: str, ids: Any) -> ValueError:
    """Returns the error for ids, with the first missing or differently typed id."""
    kind = type(ids[0])
    rows = [row for row, group_id in enumerate(ids) if _is_missing(group_id)]
    rows += [row for row, group_id in enumerate(ids) if type(group_id) is not kind]
    location = f", with {ids[rows[0]]!r} in row {rows[0]}" if rows else ""
    noun = "ids" if argument == "group_ids" else "labels"
    expected = f"be {noun} of one type, without missing ones"
    return value_error(argument, expected, f"{argument}={reprlib.repr(ids)}{location}")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def _locate_by_id(rows: int | None, ids: Array) -> tuple[Array, Array]:
    rows = ids.size if rows is None else rows
    if ids.shape != (rows,):
        received = f"group_ids.shape={ids.shape} for {rows} rows"
        raise value_error("group_ids", "have one id per row", received)
    order = _stable_argsort(ids)
    if not np.all(ids == ids):
        raise _ids_error("group_ids", ids.tolist())
    is_first = np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])[:rows]
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=rows)
    # Lists are numbered in the order of their first rows. The sort is stable, so the
    # first row of each id is at its start.
    number = np.argsort(np.argsort(order[starts]))
    group, position = np.empty(rows, int), np.empty(rows, int)
    group[order], position[order] = np.repeat(number, sizes), _positions_in_lists(sizes)
    return group, position


def _positions_in_lists(sizes: Array) -> Array:
    """Returns the positions from 0 on in each list, for lists of given sizes."""
    ends = np.cumsum(sizes)
    positions: Array = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
    return positions


def _stable_argsort(ids: Array) -> Array:
    """Returns the order that sorts ids. Equal ids stay in their original order."""
    is_integer = ids.dtype.kind in "iu" and ids.size > 0
    if not (is_integer and int(ids.max()) - int(ids.min()) < 2**32):
        return np.argsort(ids, kind="stable")
    # NumPy sorts 16-bit integers by counting, ten times as fast as by comparing.
    offsets = ids.astype("uint32") - np.uint32(int(ids.min()) % 2**32)
    order = np.argsort(offsets.astype("uint16"), kind="stable")
    upper_halves = (offsets >> np.uint32(16)).astype("uint16")
    return (
        order[np.argsort(upper_halves[order], kind="stable")]
        if upper_halves.any()
        else order
    )
