"""Ids of items: numbers, or the columns that are stored in a sparse matrix."""

import contextlib
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import shifted
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists import ragged
from keras_rank.lists.tensors import (
    as_tensor,
    cast,
    dtype_name,
    is_sparse,
    shape_of,
    to_array,
)

# The id of a relevant item that is not in the catalogue: it is never found.
NO_CANDIDATE = -2

# Each of these floats holds all whole numbers up to this one.
_WHOLE_NUMBERS = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24}

# What to hold, and what to do with a matrix with a column for each item.
_RELEVANT = {
    "y_true": "the ids of the relevant items with `sparse_labels=True`. For a label "
    "for each item, such as a one-hot matrix, leave `sparse_labels` out",
    "targets": "the ids of the relevant items. For a label for each item, such as a "
    "one-hot matrix, give the ids of those that are relevant",
}
_ANY = (
    "ids of items. Of a matrix with a column for each item, such as a history of 0 and "
    "1, give the columns that are not 0, padded with -1"
)


class Stored(NamedTuple):
    """What is stored in a sparse matrix of shape `(batch, items)`.

    Attributes:
        columns: int array of shape `(batch, n)`, padded with -1.
        values: array of the same shape.
    """

    columns: Array
    values: Array


def is_matrix(value: Any) -> bool:
    """Whether it is a sparse matrix or array of SciPy, in any format."""
    names = [kind.__module__ for kind in type(value).__mro__]
    return any(name.startswith("scipy.sparse") for name in names)


def stored_in(argument: str, matrix: Any, items: int | None) -> Stored:
    """Returns the columns that are stored in each row, and their values.

    Args:
        argument: the name of the argument.
        matrix: the sparse matrix.
        items: the number of items, `None` if it is unknown.
    """
    if len(matrix.shape) != 2 or matrix.shape[1] != (items or matrix.shape[1]):
        number = items or "any number"
        raise ValueError(
            f"`{argument}` should have a row for each list and a column for each item "
            f"({number} in all) where it is a sparse matrix. Received: "
            f"{argument}.shape={tuple(matrix.shape)}"
        )
    by_row = matrix.tocsr()
    if matrix.format == "bsr":
        # Its zeros fill blocks.
        by_row.eliminate_zeros()
    if not by_row.has_canonical_format:
        by_row = by_row.copy()
        by_row.sum_duplicates()
    sizes = np.diff(by_row.indptr)
    width = max(sizes.max(initial=0), 1)
    is_stored = np.arange(width) < sizes[:, None]
    columns = np.full(is_stored.shape, -1, "int64")
    values = np.zeros(is_stored.shape, by_row.data.dtype)
    columns[is_stored], values[is_stored] = by_row.indices, by_row.data
    return Stored(columns, values)


def to_ids(argument: str, value: Any, items: int | None) -> Tensor:
    """Converts to a tensor of ids, in a dtype that also holds the number of items.

    Args:
        argument: the name of the argument.
        value: ids, or a sparse matrix of SciPy.
        items: the number of items, `None` if it is unknown.
    """
    if is_matrix(value):
        value = stored_in(argument, value, items).columns
    check_kind(argument, value, items)
    value = ragged.unboxed(value)
    if ragged.is_ragged(value):
        value = ragged.padded("y_true", value)
    if isinstance(value, list | tuple):
        with contextlib.suppress(Exception):
            # `to_array` has better error messages.
            value = np.asarray(value)
    check_kind(argument, value, items)
    if getattr(getattr(value, "dtype", None), "kind", "") in ("U", "S"):
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of dtype "
            f"{value.dtype}. The id of an item is its place among the candidates, from "
            "0 on: map others by `{item: place for place, item in enumerate(items)}`"
        )
    ids = to_array(argument, _as_integers(value))
    check_kind(argument, ids, items)
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if dtype in ("float64", "int64"):
        return ids
    if keras.backend.is_float_dtype(dtype):
        return cast(ids, "float32")
    return cast(
        ids, backend.widest("int64") if dtype in ("uint32", "uint64") else "int32"
    )


def check_kind(argument: str, value: Any, items: int | None) -> None:
    """Raises for what are no ids, or ids that their dtype may have rounded.

    It has to look at the dtype before any cast: wider floats don't bring back what
    half precision has rounded.
    """
    if is_sparse(value) and not is_matrix(value):
        raise ValueError(
            f"`{argument}` should hold ids of items, padded with -1, or be a sparse "
            f"matrix of SciPy. Received: {argument} of type {type(value).__name__}, "
            "which is sparse"
        )
    if isinstance(value, list | tuple) and ragged.is_ragged(value):
        for row in value:
            check_kind(argument, row if hasattr(row, "dtype") else np.array(row), items)
    dtype = dtype_name(value)
    if dtype == "bool":
        raise ValueError(
            f"`{argument}` should hold ids of items. If it has a flag for each item, "
            "give the ids of those that are True. Received: "
            f"{argument} of dtype bool"
        )
    most = _WHOLE_NUMBERS.get(dtype)
    # Of an unknown number of items in a graph, float32 will do.
    number = _WHOLE_NUMBERS["float32"] if items is None else items
    if most is not None and number > most:
        raise ValueError(
            f"`{argument}` should hold whole numbers of a dtype that holds all ids, "
            f"such as int32: {dtype} holds all numbers up to {most} only, and there "
            f"are {items or 'an unknown number of'} items. In `fit`, Keras casts "
            f"floats to `keras.config.floatx()`. Received: {argument} of dtype {dtype}"
        )


def _as_integers(value: Any) -> Any:
    """Returns whole floats of an array as integers, which no backend rounds."""
    is_masked = isinstance(value, np.ma.MaskedArray)
    if is_masked or not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    # NaN pads, as -1 does. Half precision has no 2**63.
    array = np.where(np.isnan(value), -1, value).astype("float64", copy=False)
    are_whole = np.all((array == np.floor(array)) & (np.abs(array) < 2.0**63))
    return array.astype("int64") if are_whole else value


def are_items(ids: Tensor, items: Tensor | int) -> Tensor:
    """Whether ids are whole numbers below the number of items."""
    are_below = ids < _as(items, ids)
    if not keras.backend.is_float_dtype(ids.dtype):
        return are_below
    # Keras would round float64 to float32 on some backends.
    return ops.logical_and(are_below, ids == backend.library_of(ids).floor(ids))


def _as(number: Tensor | int, ids: Tensor) -> Tensor:
    is_known = isinstance(number, int)
    return backend.constant(number, ids) if is_known else ops.cast(number, ids.dtype)


def checked_ids(argument_and_items: tuple[str, Tensor | int], ids: Tensor) -> Tensor:
    """Returns ids below the number of items, with -1 for all that are below 0."""
    argument, items = argument_and_items
    ids = as_tensor(ids)
    # A large negative id would become that of an item in int32.
    ids = backend.where(ids >= 0, ids, -1)
    check_no_matrix(argument, ids, items, are_relevant=False)
    check_items(argument, ids, items)
    return ids


def check_items(argument: str, ids: Tensor, items: Tensor | int) -> None:
    """Raises for invalid ids, if values can be seen."""
    are_known = backend.known(ops.all(are_items(ids, items)))
    if are_known:
        return

    def first_without(hold: Tensor) -> str:
        """The first id that is wrong and its row, where values can be seen."""
        if are_known is None or backend.known(ops.all(hold)):
            return ""
        (row, *place), *_ = np.argwhere(~ops.convert_to_numpy(hold))
        return f", {ops.convert_to_numpy(ids)[(row, *place)]}, in row {row}"

    are_below = ids < _as(items, ids)
    backend.require(
        ops.all(are_below),
        f"`{argument}` should hold ids below the number of items, {items}. "
        f"Received: a larger id{first_without(are_below)}",
    )
    are_whole = are_items(ids, items)
    backend.require(
        ops.all(are_whole),
        f"`{argument}` should hold whole numbers as ids. "
        f"Received: a fraction{first_without(are_whole)}",
    )


def check_no_matrix(
    argument: str, ids: Tensor, items: Tensor | int | None, *, are_relevant: bool
) -> None:
    """Raises for a matrix with a column for each item, if values can be seen.

    Its rows hold some numbers twice, as labels are few, and no padding. Rows of ids
    hold each of them once, or are padded. With another number of columns than items,
    it is a matrix if it holds nothing but 0 and 1.
    """
    lists, number = shape_of(ids)
    if not lists or (number or 0) < 2:
        return
    if number == items:
        holds_twice = ops.any(are_repeated(ids), axis=1)
        is_full = ops.all(ids >= 0, axis=1)
        is_matrix = ops.logical_or(
            ops.any(ops.logical_and(holds_twice, is_full)), ops.all(holds_twice)
        )
    elif number != 2:
        is_matrix = ops.all(ops.logical_or(ids == 0, ids == 1))
    else:
        return
    backend.require(
        ops.logical_not(is_matrix),
        f"`{argument}` should hold {_RELEVANT[argument] if are_relevant else _ANY}. "
        f"Received: {number} numbers for each list, of {items} items, and some of "
        "them twice",
    )


def are_repeated(ids: Tensor, labels: Tensor | None = None) -> Tensor:
    """Whether an id occurs earlier in its list; adjacent, if they are sorted."""
    order = backend.argsort(ids)
    in_order = backend.take(ids, order)
    same = ops.logical_and(in_order == shifted(in_order, 1, -1), in_order >= 0)
    if labels is not None:
        label = backend.take(labels, order)
        is_other = ops.logical_and(same, label != shifted(label, 1, 0.0))
        backend.require(
            ops.logical_not(ops.any(is_other)),
            "`labels` should be the same where an id is given twice in a list. "
            "Received: an id with two labels",
        )
    return backend.take(same, backend.argsort(order))
