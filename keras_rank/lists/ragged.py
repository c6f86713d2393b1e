"""Pads lists of uneven length, of any type, to a rectangle."""

import reprlib
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

# The padding of each argument: no item, not retrieved, masked, no weight, no feature.
PADDING = {
    "y_true": -1,
    "y_pred": -np.inf,
    "labels": -1,
    "mask": 0,
    "sample_weight": 0,
    "x": 0,
}


def rectangular(*, deep: Collection[str] = (), **arguments: Any) -> list[Any]:
    """Pads arguments with lists of uneven length on the right.

    Args:
        deep: the arguments whose items have several numbers each.
        **arguments: `y_true`, `y_pred`, `mask` and `sample_weight`. Each may be a
            list, tuple or column of rows, a `tf.RaggedTensor`, a nested torch tensor,
            or anything rectangular.

    Returns:
        The arguments, in the same order.

    Raises:
        ValueError: if an argument has another number of items in some list than
            `y_true`.
    """
    given = {name: x for name, x in arguments.items() if x is not None}
    given = {name: unboxed(value) for name, value in given.items()}
    arguments = {**arguments, **given}
    if not any(is_ragged(value) for value in given.values()):
        return list(arguments.values())
    expected = lengths(arguments.get("y_true"))
    for name, value in arguments.items():
        # A weight may also belong to a whole list, or to all lists.
        per_item = is_ragged(value) or name in ("y_pred", "labels", "mask")
        found = lengths(value) if per_item and value is not None else None
        if expected is not None and found is not None:
            require_same_lengths(name, found, expected)
    return [
        padded(name, value, deep=name in deep) if is_ragged(value) else value
        for name, value in arguments.items()
    ]


def unboxed(value: Any) -> Any:
    """Returns a table's column as an array, or as rows if it holds lists."""
    # Asks the class, as TensorFlow is slow to report a missing attribute.
    kind = type(value)
    is_column = hasattr(kind, "to_list") or hasattr(kind, "to_pylist")
    if is_column and not _is_tensorflow(value):
        # A column of pandas, Polars or Arrow.
        value = np.asarray(value)
    holds_lists = getattr(getattr(value, "dtype", None), "kind", None) == "O"
    return value.tolist() if holds_lists else value


def is_ragged(value: Any) -> bool:
    """Whether a value holds lists of uneven length, or has a ragged type."""
    if isinstance(value, list | tuple):
        lengths = {_length(row) for row in value}
        return len(lengths) > 1 and None not in lengths
    return is_ragged_tensor(value)


def is_array_of_lists(value: Any) -> bool:
    """Whether a value is an array of objects, which are lists of any length."""
    is_of_objects = isinstance(value, np.ndarray) and value.dtype == object
    return is_of_objects and value.ndim == 1 and all(map(_is_row, value))


def is_ragged_tensor(value: Any) -> bool:
    """Whether a value is a ragged tensor, of TensorFlow or of torch."""
    is_nested = getattr(value, "is_nested", False)
    return bool(is_nested) or (
        hasattr(value, "to_tensor") and hasattr(value, "row_splits")
    )


def padded(name: str, value: Any, *, deep: bool = False) -> Any:
    """Pads lists of uneven length with the padding of an argument.

    Items have several numbers each if `deep`.
    """
    if _is_tensorflow(value):
        if len(value.shape) != 2 and not deep:
            raise _nested_error(name, f"{name}.shape={tuple(value.shape)}")
        return dense(name, value)
    if _is_torch(value):
        if value.dim() != 2 and not deep:
            raise _nested_error(name, f"{name} with {value.dim()} dimensions")
        return dense(name, value)
    deeper = [i for i, row in enumerate(value) if not _is_flat(row)]
    if deeper and name != "x" and not deep:
        raise _nested_error(name, f"list {deeper[0]} of {name}, which holds lists")
    try:
        rows = [np.asarray(row) for row in value]
    except ValueError as error:
        raise ValueError(
            f"`{name}` should have as many numbers for each item of a list. Received: "
            f"{name}={reprlib.repr(value)}"
        ) from error
    of_items = {row.shape[1:] for row in rows if row.size} or {()}
    if len(of_items) > 1:
        raise ValueError(
            f"`{name}` should have as many numbers for each item, in all lists"
            + "; 0 pads the subtopics of a list" * (name == "y_true")
            + f". Received: items of the shapes {sorted(of_items)}"
        )
    # Integers such as ids stay integers, as floats would not hold all.
    least = np.float32 if np.isinf(PADDING[name]) else np.int8
    dtypes = [row.dtype for row in rows if row.size] or [np.dtype(np.float32)]
    dtype = np.result_type(least, *dtypes)
    shape = (len(rows), max(map(len, rows)), *of_items.pop())
    array = np.full(shape, PADDING[name], dtype)
    for i, row in enumerate(rows):
        if row.size:
            array[i, : len(row)] = row
    return array


def dense(name: str, tensor: Any) -> Any:
    """Pads a ragged tensor with any number of dimensions, as `padded` does."""
    padding = PADDING[name]
    if _is_torch(tensor):
        if tensor.is_floating_point():
            return tensor.to_padded_tensor(padding)
        in_full = tensor.double().to_padded_tensor(padding)
        return in_full if np.isinf(padding) else in_full.long()
    if padding == 0:
        # TensorFlow's default padding, an empty string for strings.
        return tensor.to_tensor()
    if not np.can_cast(np.min_scalar_type(padding), tensor.dtype.as_numpy_dtype):
        # `ops.cast` supports ragged tensors on TensorFlow only. They may come
        # on any backend, and bring their own library with them.
        dtype = "float32" if tensor.dtype.size < 4 else "float64"
        tensor = sys.modules["tensorflow"].cast(tensor, dtype)
    return tensor.to_tensor(padding)


def _nested_error(name: str, received: str) -> ValueError:
    return ValueError(
        f"`{name}` should be a list of items or a batch of such lists. "
        f"Received: {received}"
    )


def require_same_lengths(
    name: str, found: Sequence[int], expected: Sequence[int], other: str = "y_true"
) -> None:
    """Raises if an argument has other lengths than another one, of other lists."""
    if len(found) != len(expected):
        raise ValueError(
            f"`{name}` should have as many lists as `{other}`. Received: "
            f"{len(found)} lists in {name}, {len(expected)} in {other}"
        )
    for i, (size, expected_size) in enumerate(zip(found, expected, strict=True)):
        if size != expected_size:
            raise ValueError(
                f"`{name}` should have as many items as `{other}` in every list. "
                f"Received: {size} items in list {i} of {name}, "
                f"{expected_size} in {other}"
            )


def lengths(value: Any) -> Sequence[int] | None:
    """Returns the number of items of each list, `None` if unknown in a graph."""
    if isinstance(value, list | tuple):
        return [len(row) if _is_row(row) else 1 for row in value]
    if _is_tensorflow(value):
        lengths = value.row_lengths()
        return lengths.numpy().tolist() if hasattr(lengths, "numpy") else None
    if _is_torch(value):
        return [len(row) for row in value.unbind()]
    shape = tuple(np.shape(value))
    if len(shape) != 2 or None in shape:
        return None
    return [shape[1]] * shape[0]


def _is_row(row: Any) -> bool:
    return isinstance(row, list | tuple) or len(getattr(row, "shape", ())) > 0


def _length(row: Any) -> int | None:
    """The number of items of a row, `None` for what is no row."""
    if not _is_row(row):
        return None
    # Sparse matrices have no length.
    return len(row) if isinstance(row, list | tuple) else row.shape[0]


def _is_flat(row: Any) -> bool:
    if isinstance(row, list | tuple):
        return not any(_is_row(item) for item in row)
    return len(row.shape) == 1


def _is_tensorflow(value: Any) -> bool:
    return hasattr(value, "to_tensor") and hasattr(value, "row_splits")


def _is_torch(value: Any) -> bool:
    return bool(getattr(value, "is_nested", False))
