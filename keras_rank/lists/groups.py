"""Rows of single items, and the lists that they belong to."""

import numbers
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_rank.backends import Array, backend
from keras_rank.lists.input_arrays import check_dense, refused
from keras_rank.lists.tensors import in_native_order


def rows_of(argument: str, values: Any) -> Array:
    """Converts numbers, with one row for each item, to an array."""
    check_dense(argument, values)
    if isinstance(values, np.ma.MaskedArray):
        expected = "be an array without a mask of its own: select the rows of items"
        raise refused(argument, expected, "a masked array")
    values = ops.convert_to_numpy(values) if ops.is_tensor(values) else values
    try:
        array = np.asarray(values)
        received = f"{argument} of shape {array.shape} and dtype {array.dtype}"
    except (TypeError, ValueError):
        array, received = np.asarray(None), f"{argument}={reprlib.repr(values)}"
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise refused(argument, "be an array of numbers, a row for each item", received)
    return in_native_order(array)


def places(rows: int | None, group_sizes: Any, group_ids: Any) -> tuple[Array, Array]:
    """Returns, for each row, the number of its list and its place in it.

    Lists are numbered in the order of their first rows, not of their ids.

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
        return _places_by_id(rows, ids_of(group_ids))
    sizes = np.asarray(group_sizes)
    are_integers = sizes.dtype.kind in "iu" or sizes.size == 0
    # As int64, as NumPy takes no unsigned numbers for places.
    sizes = sizes.astype("int64") if are_integers else sizes
    if sizes.ndim != 1 or not are_integers or np.any(sizes < 0):
        received = f"group_sizes={reprlib.repr(group_sizes)}"
        expected = "be integers of 0 or more, one per list"
        raise refused("group_sizes", expected, received)
    if rows is not None and sizes.sum() != rows:
        received = f"a sum of {sizes.sum()} for {rows} rows"
        raise refused("group_sizes", "add up to the number of rows", received)
    return np.repeat(np.arange(len(sizes)), sizes), _numbered(sizes)


def labels_of(argument: str, values: Any) -> Array:
    """Returns labels, one for each row, as an array of objects, and checks them."""
    check_dense(argument, values)
    if not isinstance(values, list | tuple | np.ma.MaskedArray):
        values = np.asarray(backend.for_numpy(values))
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        # NumPy makes integers of nanoseconds.
        values = values.astype(f"{values.dtype.kind}8[s]")
    labels = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(labels, list | tuple):
        received = f"{argument}={reprlib.repr(labels)}"
        raise refused(argument, "be a list or an array of labels", received)
    ids_of(labels, {}, argument)
    return np.fromiter(labels, object, len(labels))


def ids_of(
    group_ids: Any,
    numbers_of: dict[Any, int] | None = None,
    argument: str = "group_ids",
) -> Array:
    """Returns ids as an array that can be sorted.

    Numbers in an array stay as they are. All other ids are numbered by a dict, which
    compares them exactly: NumPy would make one type of them, `[1, "1"]` the same string
    and large integers floats.

    Args:
        group_ids: the id of each row, of any type that is hashable.
        numbers_of: an empty dict, to which the number of each id is added. Defaults to
            `None`: numbers in an array stay as they are.
        argument: the name of the argument, for errors.
    """
    check_dense("group_ids", group_ids)
    if isinstance(group_ids, np.ma.MaskedArray):
        raise _unknown_ids(argument, group_ids.tolist())
    group_ids = backend.for_numpy(group_ids)
    if not isinstance(group_ids, list | tuple):
        array: Array = np.asarray(group_ids)
        if array.ndim != 1:
            return array
        if numbers_of is None and array.dtype.kind in "biufmM":
            return in_native_order(array)
        group_ids = array.tolist()
    elif any(_is_tensor(each) for each in group_ids[:1]):
        # Tensors are hashed by what they are, not by their values.
        return np.asarray([np.asarray(each) for each in group_ids])
    known = {} if numbers_of is None else numbers_of
    _check_ids(argument, group_ids)
    try:
        found = [known.setdefault(each, len(known)) for each in group_ids]
    except TypeError as error:
        raise _unknown_ids(argument, group_ids) from error
    return np.array(found, dtype="int64")


def _check_ids(argument: str, ids: Sequence[Any]) -> None:
    """Raises for ids of several types, which are never equal, and for missing ones."""
    kinds = {type(each) for each in ids}
    # True equals 1.
    alike = len(kinds) < 2 or any(
        all(issubclass(kind, common) for kind in kinds) and bool not in kinds
        for common in (str, bytes, numbers.Number)
    )
    if not alike or any(map(_is_missing, ids)):
        raise _unknown_ids(argument, ids)


def _is_missing(each: Any) -> bool:
    try:
        # NaN differs from itself.
        return each is None or bool(each != each)
    except (TypeError, ValueError):
        return True


def _unknown_ids(argument: str, ids: Any) -> ValueError:
    """The error for ids, with the first that is missing, or of another type."""
    kind = type(ids[0])
    rows = [row for row, each in enumerate(ids) if _is_missing(each)]
    rows += [row for row, each in enumerate(ids) if type(each) is not kind]
    place = f", with {ids[rows[0]]!r} in row {rows[0]}" if rows else ""
    noun = "ids" if argument == "group_ids" else "labels"
    expected = f"be {noun} of one type, without missing ones"
    return refused(argument, expected, f"{argument}={reprlib.repr(ids)}{place}")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def _places_by_id(rows: int | None, ids: Array) -> tuple[Array, Array]:
    rows = ids.size if rows is None else rows
    if ids.shape != (rows,):
        received = f"group_ids.shape={ids.shape} for {rows} rows"
        raise refused("group_ids", "have one id per row", received)
    by_id = _sorting(ids)
    if not np.all(ids == ids):
        raise _unknown_ids("group_ids", ids.tolist())
    is_first = np.concatenate([[True], ids[by_id[1:]] != ids[by_id[:-1]]])[:rows]
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=rows)
    # In the order of their first rows, not of the ids.
    number = np.argsort(np.argsort(by_id[starts]))
    group, place = np.empty(rows, int), np.empty(rows, int)
    group[by_id], place[by_id] = np.repeat(number, sizes), _numbered(sizes)
    return group, place


def _numbered(sizes: Array) -> Array:
    """The numbers from 0 on in each list of a size."""
    ends = np.cumsum(sizes)
    numbered: Array = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
    return numbered


def _sorting(ids: Array) -> Array:
    """The positions that sort ids; equal ones keep their order."""
    is_integer = ids.dtype.kind in "iu" and ids.size > 0
    if not (is_integer and int(ids.max()) - int(ids.min()) < 2**32):
        return np.argsort(ids, kind="stable")
    # NumPy sorts 16-bit integers by counting, ten times as fast as by comparing.
    offsets = ids.astype("uint32") - np.uint32(int(ids.min()) % 2**32)
    order = np.argsort(offsets.astype("uint16"), kind="stable")
    high = (offsets >> np.uint32(16)).astype("uint16")
    return order[np.argsort(high[order], kind="stable")] if high.any() else order
