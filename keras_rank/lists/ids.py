"""Ids of items: numbers, or the columns that a sparse matrix stores."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import shift_right
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import (
    SPARSE,
    InputArray,
    is_dict,
    read_array,
    read_optional,
    split_dict,
    value_error,
)
from keras_rank.lists.tensors import (
    as_tensor,
    cast,
    dtype_name,
    sizes_agree,
    static_shape,
)

# The id of a relevant item that is not in the catalogue, so it has no rank.
NO_CANDIDATE = -2

# The number up to which a float dtype holds all whole numbers exactly.
_LARGEST_EXACT_INTEGERS = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24}

# Integer dtypes that may be too small for the number of items.
_NARROW_INTEGERS = ("int8", "int16", "uint8", "uint16")

# The description of the values that ids accept, for errors.
IDS_DESCRIPTION = (
    'ids, or a dict with the keys "ids", "labels" (optional) and "mask" (optional)'
)

# The end of errors about ids that look like a matrix with a column for each item.
_EXPECTED_IDS = (
    "ids of items. Of a matrix with a column for each item, such as a one-hot one, "
    "give the columns that are not 0, padded with -1, or leave out `sparse_labels`"
)


def read_id_arrays(
    argument: str, value: Any, items: int | None, axes: int = 2
) -> tuple[InputArray, InputArray | None, InputArray | None]:
    """Reads ids, with their labels and mask if there are any.

    Args:
        argument: the name of the argument.
        value: ids, a dict of ids, labels and mask, ids and labels stacked in a last
            axis, or a sparse matrix of labels.
        items: the number of items, `None` if it is unknown in a graph, 0 to leave it
            unchecked.
        axes: the number of axes of the scores.
    """
    deep, keys = axes > 2, list(value) if is_dict(value) else None
    labels = mask = None
    if keys is not None and ("ids" in keys or "labels" not in keys):
        names = ("ids", "labels", "mask")
        value, labels, mask = split_dict(argument, value, names, IDS_DESCRIPTION)
    elif keys is not None:
        # The key "labels" holds the ids, as for the labels of dense lists.
        value, mask = split_dict(argument, value, ("labels", "mask"), IDS_DESCRIPTION)
    ids = read_array(argument, value, -1, deep=deep)
    labels = read_optional("labels", labels, -1, deep=deep)
    mask = read_optional("mask", mask, 0, deep=deep)
    optional_parts = [part for part in (labels, mask) if part is not None]
    _check_sparse(ids, optional_parts, keys, deep)
    # A value under the key "ids" holds no labels, only ids.
    may_have_labels = not optional_parts and "ids" not in (keys or ())
    if ids.form == "matrix":
        ids, stored_values = _read_stored_columns(ids, items)
        return ids, stored_values if may_have_labels else None, None
    if may_have_labels and len(ids.shape) == axes + 1 and ids.shape[-1] == 2:
        numbers = ids.numbers
        labels = InputArray("labels", ids.form, numbers[..., 1])
        return ids._replace(numbers=numbers[..., 0]), labels, None
    return ids, labels, mask


def _check_sparse(
    ids: InputArray,
    optional_parts: Sequence[InputArray],
    keys: list[Any] | None,
    has_positions: bool,
) -> None:
    """Raises `ValueError` for sparse values that can't be combined.

    A sparse matrix may only be passed alone: it holds both ids and labels.
    """
    argument = ids.argument
    if ids.form == "matrix" and optional_parts:
        expected = "have no labels or mask next to a sparse matrix, which holds labels"
        raise value_error(argument, expected, f"{argument} with the keys {keys}")
    if ids.form == "matrix" and has_positions:
        received = "a sparse matrix, which has rows for scores of shape (rows, items)"
        raise value_error(argument, "hold ids where each position has scores", received)
    for name, numbers in (
        (x.argument, x.numbers) for x in optional_parts if x.form in SPARSE
    ):
        received = f"{name} of type {type(numbers).__name__}, which is sparse: give it "
        raise value_error(
            name, "hold real numbers", f"{received}in the shape of the ids"
        )


def _read_stored_columns(
    array: InputArray, items: int | None
) -> tuple[InputArray, InputArray]:
    """Returns the columns that each row stores, padded with -1, and their values.

    Args:
        array: a sparse matrix of SciPy, of shape `(batch, items)`, in any format.
        items: the number of items, `None` if it is unknown.
    """
    argument, matrix = array.argument, array.numbers
    if len(matrix.shape) != 2 or matrix.shape[1] != (items or matrix.shape[1]):
        accepted_size = items or "any number"
        expected = "have a row for each list and a column for each item "
        expected += f"({accepted_size} in all) where it is a sparse matrix"
        raise value_error(argument, expected, f"{argument}.shape={array.shape}")
    csr = matrix.tocsr()
    if matrix.format == "bsr":
        # Blocks are stored with all their zeros, which are not entries.
        csr.eliminate_zeros()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    sizes = np.diff(csr.indptr)
    width = max(sizes.max(initial=0), 1)
    is_stored = np.arange(width) < sizes[:, None]
    columns = np.full(is_stored.shape, -1, "int64")
    values = np.zeros(is_stored.shape, csr.data.dtype)
    columns[is_stored], values[is_stored] = csr.indices, csr.data
    return InputArray(argument, "array", columns), InputArray("labels", "array", values)


def to_id_tensor(
    argument: str, value: Any, items: int | None, *, in_model: bool = False
) -> Tensor:
    """Converts ids, or a sparse matrix, to a tensor: see `cast_ids`."""
    array = read_array(argument, value, -1)
    if array.form == "matrix":
        array, _ = _read_stored_columns(array, items)
    return cast_ids(array, items).tensor(in_model=in_model)


def cast_ids(array: InputArray, items: int | None) -> InputArray:
    """Casts ids to a dtype that also holds the number of items.

    Raises `ValueError` for values that are not ids, and for ids that their dtype may
    have rounded. The original dtypes are checked, as a later cast to wider floats does
    not restore ids that half precision has rounded.

    Args:
        array: the ids.
        items: the number of items, `None` if it is unknown.
    """
    argument, numbers = array.argument, array.numbers
    if array.form == "sparse":
        expected = "hold ids of items, padded with -1, or be a sparse matrix of SciPy"
        received = f"{argument} of type {type(numbers).__name__}, which is sparse"
        raise value_error(argument, expected, received)
    for dtype in array.dtypes:
        _check_dtype(argument, dtype, items)
    if getattr(numbers.dtype, "kind", "") in ("U", "S"):
        received = f"{argument} of dtype {numbers.dtype}. The id of an item is its "
        received += "place among the candidates, from 0 on: map others by "
        received += "`{item: place for place, item in enumerate(items)}`"
        raise value_error(argument, "hold real numbers", received)
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f":
        numbers = _as_integers(numbers)
    dtype = dtype_name(numbers)
    if dtype in ("uint32", "uint64") and not isinstance(numbers, np.ndarray):
        numbers = cast(numbers, backend.supported_dtype("int64"))
    elif dtype.startswith(("float", "bfloat")) and dtype != "float64":
        numbers = cast(numbers, "float32")
    elif dtype in _NARROW_INTEGERS:
        numbers = cast(numbers, "int32")
    return array._replace(numbers=numbers)


def check_not_one_hot(
    value: Any, ids: InputArray, labels: InputArray | None, scores: Sequence[int | None]
) -> None:
    """Raises `ValueError` for float ids of the shape of the scores in compiled code.

    Compiled code can't read the values that would tell ids from a one-hot matrix.
    Integers are accepted, as a list of a small catalogue may have as many targets as
    items. Ids with labels, and ids named "ids" in a dict, are accepted too, as no
    matrix has these.

    Args:
        value: the value that the user passed.
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
        raise value_error(ids.argument, f"hold {_EXPECTED_IDS}", received)


def _check_dtype(argument: str, dtype: str, items: int | None) -> None:
    received = f"{argument} of dtype {dtype}"
    if dtype == "bool":
        expected = "hold ids of items. If it has a flag for each item, give the ids of "
        expected += "those that are True"
        raise value_error(argument, expected, received)
    largest = _LARGEST_EXACT_INTEGERS.get(dtype)
    # A graph may not know the number of items. Then float32 is accepted.
    num_items = _LARGEST_EXACT_INTEGERS["float32"] if items is None else items
    if largest is not None and num_items > largest:
        expected = "hold whole numbers of a dtype that holds all ids, such as int32: "
        expected += f"{dtype} holds all numbers up to {largest} only. In `fit`, Keras "
        expected += "casts floats to `keras.config.floatx()`"
        raise value_error(argument, expected, received)


def _as_integers(array: Array) -> Array:
    """Returns whole floats as integers, which no backend rounds."""
    # NaN is padding, as -1 is. Half precision can't represent 2**63, so the values
    # are cast before they are compared with it.
    wide = np.where(np.isnan(array), -1, array).astype("float64", copy=False)
    is_whole = np.all((wide == np.floor(wide)) & (np.abs(wide) < 2.0**63))
    return wide.astype("int64") if is_whole else array


def is_valid_id(ids: Tensor, items: Tensor | int) -> Tensor:
    """Returns whether each id is a whole number below the number of items."""
    is_below = ids < _cast_like(items, ids)
    if not keras.backend.is_float_dtype(ids.dtype):
        return is_below
    # `ops.floor` would round float64 to float32 on some backends.
    return ops.logical_and(is_below, ids == backend.get_library(ids).floor(ids))


def _cast_like(number: Tensor | int, ids: Tensor) -> Tensor:
    is_known = isinstance(number, int)
    return backend.constant(number, ids) if is_known else ops.cast(number, ids.dtype)


def validate_ids(ids: Tensor, *, argument: str, items: Tensor | int) -> Tensor:
    """Returns ids with -1 for all that are below 0.

    Raises `ValueError` if an id is not below the number of items.
    """
    ids = as_tensor(ids)
    # A large negative id could wrap to a valid id in int32.
    ids = backend.where(ids >= 0, ids, -1)
    check_no_matrix(argument, ids, items)
    check_items(argument, ids, items)
    return ids


def check_items(argument: str, ids: Tensor, items: Tensor | int) -> None:
    """Raises `ValueError` for invalid ids if values can be read."""
    is_valid = backend.read_condition(ops.all(is_valid_id(ids, items)))
    if is_valid:
        return

    def describe_first_invalid(condition: Tensor) -> str:
        """Returns the first invalid id and its row, if values can be read."""
        if is_valid is None or backend.read_condition(ops.all(condition)):
            return ""
        (row, *columns), *_ = np.argwhere(~ops.convert_to_numpy(condition))
        return f", {ops.convert_to_numpy(ids)[(row, *columns)]}, in row {row}"

    is_below = ids < _cast_like(items, ids)
    backend.require(
        ops.all(is_below),
        f"`{argument}` should hold ids below the number of items, {items}. "
        f"Received: a larger id{describe_first_invalid(is_below)}",
    )
    is_whole = is_valid_id(ids, items)
    backend.require(
        ops.all(is_whole),
        f"`{argument}` should hold whole numbers as ids. "
        f"Received: a fraction{describe_first_invalid(is_whole)}",
    )


def check_no_matrix(argument: str, ids: Tensor, items: Tensor | int) -> None:
    """Raises `ValueError` for a matrix with a column for each item, if it can be read.

    The rows of such a matrix have no padding, and hold some numbers twice, as there are
    few distinct labels. Rows of ids hold each id once, or are padded. If the number of
    columns differs from the number of items, it is a matrix if all its values are 0 or
    1.
    """
    lists, number = static_shape(ids)
    if not lists or (number or 0) < 2:
        return
    if isinstance(items, int) and number == items:
        has_duplicates = ops.any(is_repeated(ids), axis=1)
        is_full = ops.all(ids >= 0, axis=1)
        is_matrix = ops.logical_or(
            ops.any(ops.logical_and(has_duplicates, is_full)), ops.all(has_duplicates)
        )
    elif number != 2:
        is_matrix = ops.all(ops.logical_or(ids == 0, ids == 1))
    else:
        return
    backend.require(
        ops.logical_not(is_matrix),
        f"`{argument}` should hold {_EXPECTED_IDS}. Received: lists that hold "
        f"some of them twice, with {items} items",
    )


def is_repeated(ids: Tensor, labels: Tensor | None = None) -> Tensor:
    """Returns whether each id occurs earlier in its list.

    Ids are sorted, so that equal ids are adjacent.
    """
    order = backend.argsort(ids)
    sorted_ids = backend.take(ids, order)
    is_same_id = ops.logical_and(
        sorted_ids == shift_right(sorted_ids, 1, -1), sorted_ids >= 0
    )
    if labels is not None:
        sorted_labels = backend.take(labels, order)
        is_other_label = ops.logical_and(
            is_same_id, sorted_labels != shift_right(sorted_labels, 1, 0.0)
        )
        backend.require(
            ops.logical_not(ops.any(is_other_label)),
            "`labels` should be the same where an id is given twice in a list. "
            "Received: an id with two labels",
        )
    return backend.take(is_same_id, backend.argsort(order))
