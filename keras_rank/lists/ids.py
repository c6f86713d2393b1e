"""Ids of items: numbers, or the columns that are stored in a sparse matrix."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import shifted
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import (
    SPARSE,
    Given,
    if_given,
    is_dict,
    look,
    parts_of,
    refused,
)
from keras_rank.lists.tensors import (
    as_tensor,
    cast,
    dtype_name,
    shape_of,
    sizes_agree,
)

# The id of a relevant item that is not in the catalogue: it is never found.
NO_CANDIDATE = -2

# Each of these floats holds all whole numbers up to this one.
_WHOLE_NUMBERS = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24}

# Those that may not hold the number of items.
_NARROW_INTEGERS = ("int8", "int16", "uint8", "uint16")

# What a dict of ids is.
PARTS_OF_IDS = (
    'ids, or a dict with the keys "ids", "labels" (optional) and "mask" (optional)'
)

# What to hold, and what to do with a matrix with a column for each item.
_IDS = (
    "ids of items. Of a matrix with a column for each item, such as a one-hot one, "
    "give the columns that are not 0, padded with -1, or leave out `sparse_labels`"
)


def look_at_ids(
    argument: str, value: Any, items: int | None, axes: int = 2
) -> tuple[Given, Given | None, Given | None]:
    """Looks at ids, and at their labels and mask if there are any.

    Args:
        argument: the name of the argument.
        value: ids, a dict of ids, labels and mask, ids and labels stacked in a last
            axis, or a sparse matrix of labels.
        items: the number of items, `None` if it is unknown in a graph, 0 to leave it
            unchecked.
        axes: how many axes the scores have.
    """
    deep, keys = axes > 2, list(value) if is_dict(value) else None
    labels = mask = None
    if keys is not None and ("ids" in keys or "labels" not in keys):
        names = ("ids", "labels", "mask")
        value, labels, mask = parts_of(argument, value, names, PARTS_OF_IDS)
    elif keys is not None:
        # The ids take the place of the labels of dense lists.
        value, mask = parts_of(argument, value, ("labels", "mask"), PARTS_OF_IDS)
    ids = look(argument, value, -1, deep=deep)
    labels = if_given("labels", labels, -1, deep=deep)
    mask = if_given("mask", mask, 0, deep=deep)
    others = [part for part in (labels, mask) if part is not None]
    _check_sparse(ids, others, keys, deep)
    # What is named "ids" has no labels of its own.
    may_be_graded = not others and "ids" not in (keys or ())
    if ids.form == "matrix":
        ids, stored = _stored_in(ids, items)
        return ids, stored if may_be_graded else None, None
    if may_be_graded and len(ids.shape) == axes + 1 and ids.shape[-1] == 2:
        numbers = ids.numbers
        labels = Given("labels", ids.form, numbers[..., 1])
        return ids._replace(numbers=numbers[..., 0]), labels, None
    return ids, labels, mask


def _check_sparse(
    ids: Given, others: Sequence[Given], keys: list[Any] | None, at_positions: bool
) -> None:
    """Raises for a sparse matrix that is not one of ids or of labels by itself."""
    argument = ids.argument
    if ids.form == "matrix" and others:
        expected = "have no labels or mask beside a sparse matrix, which holds labels"
        raise refused(argument, expected, f"{argument} with the keys {keys}")
    if ids.form == "matrix" and at_positions:
        received = "a sparse matrix, which has rows for scores of shape (rows, items)"
        raise refused(argument, "hold ids where each position has scores", received)
    for name, numbers in ((x.argument, x.numbers) for x in others if x.form in SPARSE):
        received = f"{name} of type {type(numbers).__name__}, which is sparse: give it "
        raise refused(name, "hold real numbers", f"{received}in the shape of the ids")


def _stored_in(given: Given, items: int | None) -> tuple[Given, Given]:
    """Returns the columns that are stored in each row, padded with -1, and values.

    Args:
        given: a sparse matrix of SciPy, of shape `(batch, items)`, in any format.
        items: the number of items, `None` if it is unknown.
    """
    argument, matrix = given.argument, given.numbers
    if len(matrix.shape) != 2 or matrix.shape[1] != (items or matrix.shape[1]):
        number = items or "any number"
        expected = "have a row for each list and a column for each item "
        expected += f"({number} in all) where it is a sparse matrix"
        raise refused(argument, expected, f"{argument}.shape={given.shape}")
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
    return Given(argument, "array", columns), Given("labels", "array", values)


def to_ids(
    argument: str, value: Any, items: int | None, *, in_model: bool = False
) -> Tensor:
    """Converts ids, or a sparse matrix, to a tensor: see `as_ids`."""
    given = look(argument, value, -1)
    if given.form == "matrix":
        given, _ = _stored_in(given, items)
    return as_ids(given, items).tensor(in_model=in_model)


def as_ids(given: Given, items: int | None) -> Given:
    """Ids in a dtype that also holds the number of items.

    Raises for what are no ids, or ids that their dtype may have rounded. So the dtypes
    that were given count: wider floats don't bring back what half precision has
    rounded.

    Args:
        given: the ids.
        items: the number of items, `None` if it is unknown.
    """
    argument, numbers = given.argument, given.numbers
    if given.form == "sparse":
        expected = "hold ids of items, padded with -1, or be a sparse matrix of SciPy"
        received = f"{argument} of type {type(numbers).__name__}, which is sparse"
        raise refused(argument, expected, received)
    for dtype in given.dtypes:
        _check_dtype(argument, dtype, items)
    if getattr(numbers.dtype, "kind", "") in ("U", "S"):
        received = f"{argument} of dtype {numbers.dtype}. The id of an item is its "
        received += "place among the candidates, from 0 on: map others by "
        received += "`{item: place for place, item in enumerate(items)}`"
        raise refused(argument, "hold real numbers", received)
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f":
        numbers = _as_integers(numbers)
    dtype = dtype_name(numbers)
    if dtype in ("uint32", "uint64") and not isinstance(numbers, np.ndarray):
        numbers = cast(numbers, backend.widest("int64"))
    elif dtype.startswith(("float", "bfloat")) and dtype != "float64":
        numbers = cast(numbers, "float32")
    elif dtype in _NARROW_INTEGERS:
        numbers = cast(numbers, "int32")
    return given._replace(numbers=numbers)


def check_not_one_hot(
    value: Any, ids: Given, labels: Given | None, scores: Sequence[int | None]
) -> None:
    """Raises for ids that are floats, one for each score, in code that is compiled.

    Values can't be seen there that would tell ids from a one-hot matrix. Integers are
    accepted, as a list of a small catalogue may have as many targets as items. So are
    ids with labels, or named "ids" in a dict, which no matrix has.

    Args:
        value: what the user passed.
        ids: the ids.
        labels: their labels, or `None`.
        scores: the shape of the scores.
    """
    x, items = ids.numbers, scores[-1] if scores else None
    if labels is not None or (is_dict(value) and "ids" in value) or (items or 0) < 2:
        return
    if ids.shape[-1:] != (items,) or not sizes_agree(ids.shape, scores):
        return
    if backend.is_concrete(x) or isinstance(x, keras.KerasTensor):
        return
    is_float = dtype_name(x).startswith(("float", "bfloat"))
    if is_float and not backend.has_no_data(x):
        received = f"{ids.argument} of dtype {dtype_name(x)} and shape {ids.shape}, "
        received += "which is that of `y_pred`"
        raise refused(ids.argument, f"hold {_IDS}", received)


def _check_dtype(argument: str, dtype: str, items: int | None) -> None:
    received = f"{argument} of dtype {dtype}"
    if dtype == "bool":
        expected = "hold ids of items. If it has a flag for each item, give the ids of "
        expected += "those that are True"
        raise refused(argument, expected, received)
    most = _WHOLE_NUMBERS.get(dtype)
    # Of an unknown number of items in a graph, float32 will do.
    number = _WHOLE_NUMBERS["float32"] if items is None else items
    if most is not None and number > most:
        expected = "hold whole numbers of a dtype that holds all ids, such as int32: "
        expected += f"{dtype} holds all numbers up to {most} only. In `fit`, Keras "
        expected += "casts floats to `keras.config.floatx()`"
        raise refused(argument, expected, received)


def _as_integers(array: Array) -> Array:
    """Returns whole floats as integers, which no backend rounds."""
    # NaN pads, as -1 does. Half precision has no 2**63.
    wide = np.where(np.isnan(array), -1, array).astype("float64", copy=False)
    are_whole = np.all((wide == np.floor(wide)) & (np.abs(wide) < 2.0**63))
    return wide.astype("int64") if are_whole else array


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


def checked_ids(ids: Tensor, *, argument: str, items: Tensor | int) -> Tensor:
    """Returns ids below the number of items, with -1 for all that are below 0."""
    ids = as_tensor(ids)
    # A large negative id would become that of an item in int32.
    ids = backend.where(ids >= 0, ids, -1)
    check_no_matrix(argument, ids, items)
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


def check_no_matrix(argument: str, ids: Tensor, items: Tensor | int) -> None:
    """Raises for a matrix with a column for each item, if values can be seen.

    Its rows hold some numbers twice, as labels are few, and no padding. Rows of ids
    hold each of them once, or are padded. With another number of columns than items,
    it is a matrix if it holds nothing but 0 and 1.
    """
    lists, number = shape_of(ids)
    if not lists or (number or 0) < 2:
        return
    if isinstance(items, int) and number == items:
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
        f"`{argument}` should hold {_IDS}. Received: lists that hold some of them "
        f"twice, with {items} items",
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
