"""Conversion of arguments of any type to arrays or tensors of numbers."""

import reprlib
import sys
from collections.abc import Iterator, Sequence, Set, ValuesView
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.tensors import (
    as_tensor,
    dtype_name,
    find_rounded_ties,
    sizes_agree,
    to_backend_dtype,
)

Form: TypeAlias = Literal[
    "array", "tensor", "rows", "column", "ragged", "matrix", "sparse", "variable",
    "symbolic", "other",
]  # fmt: skip

# The forms of sparse values, which hold only their stored entries.
SPARSE = ("matrix", "sparse")

# The prefixes of the names of dtypes of real numbers.
_NUMBER_DTYPES = ("float", "bfloat", "int", "uint", "bool")


class InputArray(NamedTuple):
    """An argument of a user: its numbers, and the form in which they are stored.

    Attributes:
        argument: the name of the argument.
        form: `"array"` or `"tensor"` if `numbers` is an array or a tensor. Otherwise
            `"matrix"` for a sparse matrix of SciPy, `"sparse"` for a sparse tensor, or
            `"symbolic"` for a symbolic tensor.
        numbers: the numbers, in their original dtype. Rows of uneven length are padded
            on the right.
        lengths: the number of items of each list if lists may differ in length, as rows
            of uneven length and ragged tensors do. Empty if a graph does not know them.
        parts: the values that were joined to `numbers`, in their original dtypes.
    """

    argument: str
    form: Form
    numbers: Any
    lengths: Sequence[int] | None = None
    parts: Sequence[Any] = ()

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The static shape, with `None` for sizes unknown in a graph."""
        return tuple(self.numbers.shape)

    @property
    def dtypes(self) -> set[str]:
        """The names of the original dtypes, of parts that hold numbers."""
        names = {dtype_name(part) for part in self.parts} - {""}
        return names or {dtype_name(self.numbers)} if 0 not in self.shape else names

    def tensor(self, *, in_model: bool = False) -> Tensor:
        """Returns the numbers in a dtype of the backend, without gradients.

        Arrays stay arrays if the backend would compile the reshaping of a tensor.

        Args:
            in_model: whether the numbers may be part of a model: symbolic, with
                gradients.
        """
        argument, form, numbers, *_ = self
        is_usable = in_model and isinstance(numbers, keras.KerasTensor)
        if form == "symbolic" and not is_usable:
            raise _symbolic_error(argument, numbers)
        if form in SPARSE:
            raise _sparse_error(argument, numbers)
        if not dtype_name(numbers).startswith(_NUMBER_DTYPES):
            raise not_real_error(argument, numbers)
        if isinstance(numbers, np.ndarray):
            numbers = to_backend_dtype(numbers)
            # The NumPy backend would cast float64 to float32, so its arrays are final.
            is_done = form == "tensor" or ops.is_tensor(numbers)
            return numbers if is_done else backend.to_program_input(numbers)
        return numbers if in_model else backend.stop_gradient(numbers)


def to_tensor(argument: str, value: Any, *, in_model: bool = False) -> Tensor:
    """Converts an argument to a tensor of numbers. Errors name the argument."""
    return as_tensor(read_array(argument, value).tensor(in_model=in_model))


def detect_form(value: Any) -> Form:
    """Returns the form of an argument.

    Attributes are looked up in the class, as TensorFlow is slow to report a missing
    attribute of a tensor.
    """
    kind = type(value)
    if isinstance(value, list | tuple):
        return "rows"
    if isinstance(value, np.ndarray):
        return "rows" if value.dtype == object else "array"
    if isinstance(value, keras.KerasTensor):
        return "symbolic"
    if isinstance(value, keras.Variable) or hasattr(kind, "read_value"):
        return "variable"
    if hasattr(kind, "to_sparse_csr"):
        # Torch has no classes for meta, nested and sparse tensors.
        if value.device.type == "meta" and not backend.is_building_symbolically():
            return "symbolic"
        if value.is_nested:
            return "ragged"
        if "sparse" in str(value.layout):
            return "sparse"
    elif hasattr(kind, "to_tensor") and hasattr(kind, "row_splits"):
        return "ragged"
    elif (
        hasattr(kind, "toarray")
        or hasattr(kind, "todense")
        or hasattr(kind, "dense_shape")
    ):
        modules = [base.__module__ for base in kind.__mro__]
        is_of_scipy = any(name.startswith("scipy.sparse") for name in modules)
        return "matrix" if is_of_scipy else "sparse"
    elif hasattr(kind, "to_list") or hasattr(kind, "to_pylist"):
        # Columns of pandas, Polars and Arrow have these methods.
        return "column"
    return "tensor" if ops.is_tensor(value) else "other"


def read_array(
    argument: str, value: Any, padding: float | None = None, *, deep: bool = False
) -> InputArray:
    """Reads the numbers of an argument, and detects its form.

    Args:
        argument: the name of the argument.
        value: the value that the user passed.
        padding: the number that pads rows of uneven length, or `None` to raise for
            them.
        deep: whether the items of such rows may have several numbers each.
    """
    form = detect_form(value)
    if form == "tensor":
        numbers = backend.as_host_array(value)
    elif form == "array":
        if isinstance(value, np.ma.MaskedArray):
            raise _masked_error(argument)
        # Subclasses such as `np.matrix` change indexing and multiplication, so the
        # value is converted to a plain array.
        numbers = np.asarray(value)
    elif form == "rows":
        return _read_rows(argument, value, padding, deep)
    elif form == "ragged":
        return _read_ragged(argument, value, padding, deep)
    elif form == "column":
        return read_array(argument, np.asarray(value), padding, deep=deep)
    elif form == "variable":
        is_of_keras = isinstance(value, keras.Variable)
        inner = value.value if is_of_keras else value.read_value()
        return read_array(argument, inner)
    elif form == "other":
        return _read_numbers(argument, value, (value,))
    else:
        numbers = value
    try:
        len(numbers.shape)
    except ValueError as error:
        # TensorFlow may not know the rank in a graph.
        expected = "have a known number of axes, such as after `tf.ensure_shape`"
        raise value_error(argument, expected, f"{argument} of unknown rank") from error
    return InputArray(argument, form, numbers)


def read_optional(
    argument: str, value: Any, padding: float | None = None, *, deep: bool = False
) -> InputArray | None:
    """Reads an argument with `read_array`, unless it is `None`."""
    return None if value is None else read_array(argument, value, padding, deep=deep)


def find_layer_mask(scores: Any, *shapes: Sequence[int | None]) -> Tensor | None:
    """Returns the mask that layers attached to scores, if it has one of some shapes.

    Layers that change axes may pass on a mask of other axes, which is ignored.
    """
    mask = backend.get_layer_mask(scores)
    if mask is None:
        return None
    array = read_array("mask", mask)
    has_shape = any(sizes_agree(array.shape, shape) for shape in shapes)
    return array.tensor() if has_shape else None


def is_dict(value: Any) -> bool:
    """Returns whether a value is a dict of parts.

    A sparse matrix may be a subclass of dict, but is not a dict of parts.
    """
    return isinstance(value, dict) and detect_form(value) == "other"


def split_dict(
    argument: str, value: Any, names: Sequence[str], expected: str
) -> list[Any]:
    """Returns the parts of a dict, with `None` for missing parts.

    Args:
        argument: the name of the argument.
        value: the dict.
        names: the accepted keys. The first one is required.
        expected: the description of accepted values, for errors.
    """
    unknown = sorted(str(key) for key in value if key not in names)
    if unknown or names[0] not in value:
        received = f"{argument} with the keys {reprlib.repr(list(value))}"
        received += f", of which {reprlib.repr(unknown)} are unknown" * bool(unknown)
        raise value_error(argument, f"be {expected}", received)
    return [value.get(name) for name in names]


def require_same_lengths(expected: InputArray, *others: InputArray | None) -> None:
    """Raises `ValueError` if lists have other lengths in another argument."""
    for other in others:
        if other is None or (expected.lengths is None and other.lengths is None):
            continue
        argument, name = other.argument, expected.argument
        # A weight may also belong to a whole list, or to all lists.
        if other.lengths is None and argument == "sample_weight":
            continue
        lengths, expected_lengths = _list_lengths(other), _list_lengths(expected)
        if lengths and expected_lengths and len(lengths) != len(expected_lengths):
            received = (
                f"{len(lengths)} lists in {argument}, {len(expected_lengths)} in {name}"
            )
            raise value_error(argument, f"have as many lists as `{name}`", received)
        for i, (length, expected_length) in enumerate(
            zip(lengths, expected_lengths, strict=False)
        ):
            if length != expected_length:
                rule = f"have as many items as `{name}` in every list"
                received = f"{length} items in list {i} of {argument}"
                raise value_error(
                    argument, rule, f"{received}, {expected_length} in {name}"
                )


def check_weights(shape: Sequence[int | None], *accepted: Sequence[int | None]) -> None:
    """Raises `ValueError` unless weights are a number or have an accepted shape."""
    if shape and not any(
        sizes_agree(shape, accepted_shape) for accepted_shape in accepted
    ):
        expected = "be a number or have the shape " + " or ".join(map(str, accepted))
        raise value_error("sample_weight", expected, f"sample_weight.shape={shape}")


def _list_lengths(array: InputArray) -> Sequence[int]:
    """Returns the number of items of each list, or nothing if it is unknown."""
    if array.lengths is not None:
        return array.lengths
    lists, items, *_ = (*array.shape, None, None)
    # A tensor with more axes may be padded, so its lengths are unknown. Rows of a
    # list are not padded.
    is_known = array.parts or len(array.shape) == 2
    return [items] * lists if is_known and lists is not None and items else []


def value_error(argument: str, expected: str, received: str) -> ValueError:
    """Returns the error for an argument with an invalid value."""
    return ValueError(f"`{argument}` should {expected}. Received: {received}")


def uneven_error(argument: str, value: Any) -> ValueError:
    """Returns the error for rows that differ in length."""
    received = f"{argument}={reprlib.repr(value)}"
    return value_error(argument, "hold numbers, in rows of the same length", received)


def _nested_error(argument: str, received: str) -> ValueError:
    expected = "be a list of items or a batch of such lists"
    return value_error(argument, expected, received)


def not_real_error(argument: str, numbers: Any) -> ValueError:
    """Returns the error for an array or a tensor whose dtype is not one of numbers."""
    received = f"{argument} of dtype {numbers.dtype}{_suggest_fix(argument, numbers)}"
    return value_error(argument, "hold real numbers", received)


def _symbolic_error(argument: str, value: Any) -> ValueError:
    expected = "have values. For symbolic tensors, pass the metric to `compile`, or "
    expected += "override the method `compute_metrics` of the model"
    is_meta = not isinstance(value, keras.KerasTensor)
    received = f"{argument} of type {type(value).__name__}"
    received += ' on the device "meta", which has no values' * is_meta
    return value_error(argument, expected, received)


def _masked_error(argument: str) -> ValueError:
    expected = "be an array without a mask of its own: give it in `y_true`, as "
    expected += '{"labels": ..., "mask": ...}'
    return value_error(argument, expected, "a masked array")


def check_dense(argument: str, value: Any) -> None:
    """Raises `ValueError` for a sparse matrix or tensor, and for a symbolic tensor."""
    form = detect_form(value)
    if form in SPARSE:
        raise _sparse_error(argument, value)
    if form == "symbolic":
        raise _symbolic_error(argument, value)


def _sparse_error(argument: str, value: Any) -> ValueError:
    """Returns the error for a sparse value, with the call that makes it dense."""
    kind = type(value)
    methods = [x for x in ("toarray", "todense", "to_dense") if hasattr(kind, x)]
    is_indexed = kind.__name__ == "IndexedSlices"
    function = "convert_to_tensor" if is_indexed else "sparse.to_dense"
    call = f"{argument}.{methods[0]}()" if methods else f"tf.{function}({argument})"
    received = f"{argument} of type {kind.__name__}, which is sparse: pass `{call}`, "
    received += "which has 0 where nothing is stored"
    return value_error(argument, "hold real numbers", received)


def _to_array(argument: str, value: Any) -> Any:
    """Converts a value to an array, or to a tensor if NumPy can't convert it.

    The precision is kept.
    """
    try:
        array = np.asarray(backend.prepare_for_numpy(value))
        if array.dtype == object and array.ndim:
            # Columns of lists are arrays of objects, which may hold arrays.
            array = np.asarray(array.tolist())
    except Exception:
        for part in keras.tree.flatten(value):
            if detect_form(part) == "symbolic":
                raise _symbolic_error(argument, part) from None
        # The backend can stack some lists that NumPy can't, such as tensors of a graph.
        try:
            return ops.convert_to_tensor(value)
        except Exception as error:
            raise uneven_error(argument, value) from error
    if value is None and argument == "y_pred":
        expected = "hold real numbers: labels and scores are passed together, as "
        raise value_error(argument, f"{expected}(y_true, y_pred)", "y_pred=None")
    if array.ndim == 0 and array.dtype.kind in "OUS":
        received = f"{argument} of type {type(value).__name__}"
        received += _suggest_fix(argument, value)
        raise value_error(argument, "hold real numbers", received)
    # NumPy gives an empty list the dtype float64, so empty arrays become float32 unless
    # they hold integers.
    is_typed = array.dtype.kind == "i"
    return array if array.size or is_typed else array.astype("float32")


def _suggest_fix(argument: str, value: Any) -> str:
    """Returns a hint about the value to pass instead, or an empty string."""
    if isinstance(value, str):
        return f": for a column of a table, pass `df[{value!r}]`"
    if isinstance(value, Iterator | ValuesView):
        return f": pass `list({argument})`"
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    if isinstance(value[0] if is_array and len(value) else value, Set):
        return ", of sets: pass lists" if is_array else ", without an order: pass lists"
    return ""


def _read_numbers(argument: str, value: Any, parts: Sequence[Any]) -> InputArray:
    """Reads a value that NumPy, or else the backend, can convert."""
    numbers = _to_array(argument, value)
    is_array = isinstance(numbers, np.ndarray)
    return InputArray(argument, "array" if is_array else "tensor", numbers, parts=parts)


def _read_rows(
    argument: str, value: Any, padding: float | None, deep: bool
) -> InputArray:
    """Reads a list, a tuple or an array of objects."""
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list | tuple):
        return read_array(argument, rows, padding, deep=deep)
    sizes = [_row_length(row) for row in rows]
    lengths = [size for size in sizes if size is not None]
    if lengths and any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise _masked_error(argument)
    if len(lengths) < len(rows) or len(set(lengths)) < 2:
        if lengths and sizes[0] is not None and detect_form(rows[0]) == "other":
            # NumPy can't stack some rows, such as tensors of torch on another backend,
            # so each row is converted first.
            return _read_numbers(
                argument, [_to_array(argument, row) for row in rows], rows
            )
        return _read_numbers(argument, rows, rows)
    if padding is None:
        raise uneven_error(argument, value)
    parts = [_read_row(argument, i, row, deep) for i, row in enumerate(rows)]
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise uneven_error(argument, value)
    numbers = _pad_rows(argument, parts, padding)
    typed = [*rows, *(part for part in parts if part.size)]
    return InputArray(argument, "array", numbers, lengths, typed)


def _read_row(argument: str, number: int, row: Any, deep: bool) -> Any:
    """Returns a row as an array of items.

    The items may have several numbers each if `deep`.
    """
    try:
        array = _to_array(argument, row)
    except ValueError as error:
        if deep:
            expected = "have as many numbers for each item of a list"
            received = f"{argument}={reprlib.repr(row)} in list {number}"
            raise value_error(argument, expected, received) from error
        array = None
    if not deep and (array is None or len(array.shape) != 1):
        received = f"list {number} of {argument}, which holds lists"
        raise _nested_error(argument, received)
    return array


def _row_length(row: Any) -> int | None:
    """Returns the number of items of a row, or `None` if the value is not a row."""
    if isinstance(row, list | tuple):
        return len(row)
    try:
        sizes = tuple(getattr(row, "shape", ()))
    except (RuntimeError, ValueError):
        # Nested tensors, and tensors of unknown rank in a graph, have no shape.
        return None
    return sizes[0] if sizes else None


def _pad_rows(argument: str, rows: Sequence[Array], padding: float) -> Array:
    """Joins rows of uneven length, which are padded on the right."""
    item_shapes = {row.shape[1:] for row in rows if row.size} or {()}
    if len(item_shapes) > 1:
        expected = "have as many numbers for each item, in all lists"
        expected += "; 0 pads the subtopics of a list" * (argument == "y_true")
        received = f"items of the shapes {sorted(item_shapes)}"
        raise value_error(argument, expected, received)
    # Integers such as ids stay integers, as floats can't represent all of them.
    smallest_type = np.float32 if np.isinf(padding) else np.int8
    dtypes = [row.dtype for row in rows if row.size] or [np.dtype(np.float32)]
    try:
        dtype = np.result_type(smallest_type, *dtypes)
    except TypeError as error:
        # Dates, for example, have no common dtype with numbers.
        names = ", ".join(sorted({str(each) for each in dtypes}))
        received = f"{argument} with rows of dtype {names}"
        raise value_error(argument, "hold real numbers", received) from error
    shape = (len(rows), max(map(len, rows)), *item_shapes.pop())
    array = np.full(shape, padding, dtype)
    for i, row in enumerate(rows):
        if row.size:
            _check_rounding(argument, row, dtype)
            array[i, : len(row)] = row
    return array


def _check_rounding(argument: str, row: Array, dtype: np.dtype[Any]) -> None:
    """Raises `ValueError` if different integers of a list become equal floats."""
    if dtype.kind == "f" and find_rounded_ties(row.ravel(), dtype).size:
        expected = f"hold numbers that {dtype} tells apart, in lists of uneven length: "
        expected += "subtract the same number from all numbers of a list"
        received = f"different numbers in a list that {dtype} rounds to the same"
        raise value_error(argument, expected, received)


def _read_ragged(
    argument: str, value: Any, padding: float | None, deep: bool
) -> InputArray:
    """Reads a ragged tensor of any library."""
    if padding is None:
        raise uneven_error(argument, value)
    axes = value.dim() if hasattr(value, "dim") else len(value.shape)
    if axes != 2 and not deep:
        raise _nested_error(argument, f"{argument} with {axes} dimensions")
    if hasattr(value, "unbind"):
        lengths = [len(row) for row in value.unbind()]
    else:
        sizes = value.row_lengths()
        lengths = sizes.numpy().tolist() if hasattr(sizes, "numpy") else []
    array = read_array(argument, pad_ragged(value, padding))
    return array._replace(lengths=lengths, parts=(value,))


def pad_ragged(value: Any, padding: float) -> Any:
    """Converts a `tf.RaggedTensor` or a nested tensor of torch to a padded tensor."""
    if hasattr(value, "to_padded_tensor"):
        rows = value.unbind()
        if rows and not value.numel():
            return rows[0].new_empty((len(rows), *rows[0].shape))
        if value.is_floating_point():
            return value.to_padded_tensor(padding)
        padded = value.double().to_padded_tensor(padding)
        return padded if np.isinf(padding) else padded.long()
    if padding == 0:
        # TensorFlow pads with 0 by default, and strings with empty strings.
        return value.to_tensor()
    if not np.can_cast(np.min_scalar_type(padding), value.dtype.as_numpy_dtype):
        # A ragged tensor exists only if TensorFlow is imported, on any backend.
        dtype = "float32" if value.dtype.size < 4 else "float64"
        value = sys.modules["tensorflow"].cast(value, dtype)
    return value.to_tensor(padding)


def is_array_of_lists(array: Any) -> bool:
    """Returns whether a value is an array of objects that are all lists.

    The lists may differ in length.
    """
    is_of_objects = isinstance(array, np.ndarray) and detect_form(array) == "rows"
    return is_of_objects and array.ndim == 1 and None not in map(_row_length, array)


def copy_arrays(value: Any) -> Any:
    """Returns copies of arrays and tensors, alone or in dicts and lists.

    The copies don't share memory with the originals, and have no gradients.
    """
    if is_dict(value):
        return {key: copy_arrays(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [copy_arrays(x) for x in value]
    # The class is inspected, as TensorFlow is slow to report a missing attribute.
    kind = type(value)
    if hasattr(kind, "detach"):
        return value.detach().clone()
    # Tensors of JAX and TensorFlow are immutable, so they are not copied.
    may_change = isinstance(value, np.ndarray) or not ops.is_tensor(value)
    return value.copy() if may_change and hasattr(kind, "copy") else value
