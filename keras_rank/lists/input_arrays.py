"""Copies of what users pass, as they may fill the same memory again."""

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
    sizes_agree,
    within_backend,
)

Form: TypeAlias = Literal[
    "array", "tensor", "rows", "column", "ragged", "matrix", "sparse", "variable",
    "symbolic", "other",
]  # fmt: skip

# Those that hold stored entries alone.
SPARSE = ("matrix", "sparse")

# How the names of dtypes of real numbers start.
_NUMBERS = ("float", "bfloat", "int", "uint", "bool")


class Given(NamedTuple):
    """An argument, once it was looked at.

    Attributes:
        argument: the name of the argument.
        form: `"array"` or `"tensor"` of `numbers`, which are a `"matrix"` of SciPy, a
            `"sparse"` tensor or a `"symbolic"` one otherwise.
        numbers: the numbers, in the dtype that was given. Rows of uneven length are
            padded on the right.
        lengths: the number of items of each list, where lists may differ in it: rows of
            uneven length, or a ragged tensor. Empty if a graph does not know them.
        parts: what the numbers were made of, in other dtypes.
    """

    argument: str
    form: Form
    numbers: Any
    lengths: Sequence[int] | None = None
    parts: Sequence[Any] = ()

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, with `None` for sizes unknown in a graph."""
        return tuple(self.numbers.shape)

    @property
    def dtypes(self) -> set[str]:
        """The names of the dtypes that were given, as far as there are numbers."""
        found = {dtype_name(part) for part in self.parts} - {""}
        return found or {dtype_name(self.numbers)} if 0 not in self.shape else found

    def tensor(self, *, in_model: bool = False) -> Tensor:
        """The numbers in a dtype of the backend, without gradients.

        Arrays stay arrays where reshaping a tensor would be compiled.

        Args:
            in_model: whether they may be part of a model: symbolic, with gradients.
        """
        argument, form, numbers, *_ = self
        is_usable = in_model and isinstance(numbers, keras.KerasTensor)
        if form == "symbolic" and not is_usable:
            raise _symbolic_error(argument, numbers)
        if form in SPARSE:
            raise _sparse_error(argument, numbers)
        if not dtype_name(numbers).startswith(_NUMBERS):
            raise not_real_error(argument, numbers)
        if isinstance(numbers, np.ndarray):
            numbers = within_backend(numbers)
            # On NumPy the conversion would cast float64 to float32.
            is_done = form == "tensor" or ops.is_tensor(numbers)
            return numbers if is_done else backend.from_host(numbers)
        return numbers if in_model else backend.detached(numbers)


def to_tensor(argument: str, value: Any, *, in_model: bool = False) -> Tensor:
    """Converts to a tensor of numbers. Errors name the argument."""
    return as_tensor(look(argument, value).tensor(in_model=in_model))


def form_of(value: Any) -> Form:
    """What an argument is.

    It asks the class, as TensorFlow is slow to report a missing attribute.
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
        # Of torch, where these are no classes.
        if value.device.type == "meta" and not backend.builds_symbolically():
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
        # Of pandas, Polars or Arrow.
        return "column"
    return "tensor" if ops.is_tensor(value) else "other"


def look(
    argument: str, value: Any, padding: float | None = None, *, deep: bool = False
) -> Given:
    """Looks at an argument, and reads its numbers.

    Args:
        argument: the name of the argument.
        value: what was passed.
        padding: what pads rows of uneven length, or `None` to raise for them.
        deep: whether the items of such rows may have several numbers each.
    """
    form = form_of(value)
    if form == "tensor":
        numbers = backend.on_host(value)
    elif form == "array":
        if isinstance(value, np.ma.MaskedArray):
            raise _masked_error(argument)
        # A subclass may index and multiply in ways of its own, as `np.matrix` does.
        numbers = np.asarray(value)
    elif form == "rows":
        return _of_rows(argument, value, padding, deep)
    elif form == "ragged":
        return _of_ragged(argument, value, padding, deep)
    elif form == "column":
        return look(argument, np.asarray(value), padding, deep=deep)
    elif form == "variable":
        is_of_keras = isinstance(value, keras.Variable)
        inner = value.value if is_of_keras else value.read_value()
        return look(argument, inner)
    elif form == "other":
        return _of_array(argument, value, (value,))
    else:
        numbers = value
    try:
        len(numbers.shape)
    except ValueError as error:
        # TensorFlow may not know it in a graph.
        expected = "have a known number of axes, such as after `tf.ensure_shape`"
        raise refused(argument, expected, f"{argument} of unknown rank") from error
    return Given(argument, form, numbers)


def if_given(
    argument: str, value: Any, padding: float | None = None, *, deep: bool = False
) -> Given | None:
    """The same of an optional argument."""
    return None if value is None else look(argument, value, padding, deep=deep)


def layer_mask_of(scores: Any, *shapes: Sequence[int | None]) -> Tensor | None:
    """The mask that layers have passed on to scores, if it has one of some shapes.

    Layers that change axes may pass on the mask of other ones.
    """
    mask = backend.layer_mask(scores)
    if mask is None:
        return None
    given = look("mask", mask)
    fits = any(sizes_agree(given.shape, shape) for shape in shapes)
    return given.tensor() if fits else None


def is_dict(value: Any) -> bool:
    """Whether a value is a dict of parts: not a sparse matrix, which may be one too."""
    return isinstance(value, dict) and form_of(value) == "other"


def parts_of(
    argument: str, value: Any, names: Sequence[str], expected: str
) -> list[Any]:
    """Returns the named parts of a dict, `None` for those that it does not have.

    Args:
        argument: the name of the argument.
        value: the dict.
        names: the keys that it may have, and first the one that it must have.
        expected: what the argument should be, for errors.
    """
    unknown = sorted(str(key) for key in value if key not in names)
    if unknown or names[0] not in value:
        received = f"{argument} with the keys {reprlib.repr(list(value))}"
        received += f", of which {reprlib.repr(unknown)} are unknown" * bool(unknown)
        raise refused(argument, f"be {expected}", received)
    return [value.get(name) for name in names]


def require_same_lengths(expected: Given, *others: Given | None) -> None:
    """Raises if lists of uneven length have other lengths in another argument."""
    for other in others:
        if other is None or (expected.lengths is None and other.lengths is None):
            continue
        argument, name = other.argument, expected.argument
        # A weight may also belong to a whole list, or to all lists.
        if other.lengths is None and argument == "sample_weight":
            continue
        found, sizes = _lengths_of(other), _lengths_of(expected)
        if found and sizes and len(found) != len(sizes):
            received = f"{len(found)} lists in {argument}, {len(sizes)} in {name}"
            raise refused(argument, f"have as many lists as `{name}`", received)
        for i, (size, of_expected) in enumerate(zip(found, sizes, strict=False)):
            if size != of_expected:
                as_many = f"have as many items as `{name}` in every list"
                received = f"{size} items in list {i} of {argument}"
                raise refused(argument, as_many, f"{received}, {of_expected} in {name}")


def check_weights(shape: Sequence[int | None], *accepted: Sequence[int | None]) -> None:
    """Raises unless weights are a number, or have one of some shapes."""
    if shape and not any(sizes_agree(shape, each) for each in accepted):
        expected = "be a number or have the shape " + " or ".join(map(str, accepted))
        raise refused("sample_weight", expected, f"sample_weight.shape={shape}")


def _lengths_of(given: Given) -> Sequence[int]:
    """The number of items of each list, nothing if it is unknown in a graph."""
    if given.lengths is not None:
        return given.lengths
    lists, items, *_ = (*given.shape, None, None)
    # A tensor may be padded where it has more axes; rows that were given are not.
    is_known = given.parts or len(given.shape) == 2
    return [items] * lists if is_known and lists is not None and items else []


def refused(argument: str, expected: str, received: str) -> ValueError:
    """The error for an argument that is not what it should be."""
    return ValueError(f"`{argument}` should {expected}. Received: {received}")


def uneven_error(argument: str, value: Any) -> ValueError:
    """The error for what has no rows of the same length, where they should."""
    received = f"{argument}={reprlib.repr(value)}"
    return refused(argument, "hold numbers, in rows of the same length", received)


def _nested_error(argument: str, received: str) -> ValueError:
    expected = "be a list of items or a batch of such lists"
    return refused(argument, expected, received)


def not_real_error(argument: str, numbers: Any) -> ValueError:
    """Returns the error for an array or a tensor whose dtype is not one of numbers."""
    received = f"{argument} of dtype {numbers.dtype}{_remedy(argument, numbers)}"
    return refused(argument, "hold real numbers", received)


def _symbolic_error(argument: str, value: Any) -> ValueError:
    expected = "have values. For symbolic tensors, pass the metric to `compile`, or "
    expected += "override the method `compute_metrics` of the model"
    is_meta = not isinstance(value, keras.KerasTensor)
    received = f"{argument} of type {type(value).__name__}"
    received += ' on the device "meta", which has no values' * is_meta
    return refused(argument, expected, received)


def _masked_error(argument: str) -> ValueError:
    expected = "be an array without a mask of its own: give it in `y_true`, as "
    expected += '{"labels": ..., "mask": ...}'
    return refused(argument, expected, "a masked array")


def check_dense(argument: str, value: Any) -> None:
    """Raises for a sparse matrix or tensor, and for a symbolic tensor."""
    form = form_of(value)
    if form in SPARSE:
        raise _sparse_error(argument, value)
    if form == "symbolic":
        raise _symbolic_error(argument, value)


def _sparse_error(argument: str, value: Any) -> ValueError:
    """The error that says how to make it dense."""
    kind = type(value)
    ways = [x for x in ("toarray", "todense", "to_dense") if hasattr(kind, x)]
    is_indexed = kind.__name__ == "IndexedSlices"
    of_tf = "convert_to_tensor" if is_indexed else "sparse.to_dense"
    way = f"{argument}.{ways[0]}()" if ways else f"tf.{of_tf}({argument})"
    received = f"{argument} of type {kind.__name__}, which is sparse: pass `{way}`, "
    received += "which has 0 where nothing is stored"
    return refused(argument, "hold real numbers", received)


def _array(argument: str, value: Any) -> Any:
    """Converts to an array if NumPy can, keeping the precision."""
    try:
        array = np.asarray(backend.for_numpy(value))
        if array.dtype == object and array.ndim:
            # Such as those in columns of lists.
            array = np.asarray(array.tolist())
    except Exception:
        for part in keras.tree.flatten(value):
            if form_of(part) == "symbolic":
                raise _symbolic_error(argument, part) from None
        # The backend can stack some other lists, such as tensors of a graph.
        try:
            return ops.convert_to_tensor(value)
        except Exception as error:
            raise uneven_error(argument, value) from error
    if value is None and argument == "y_pred":
        expected = "hold real numbers: labels and scores are passed together, as "
        raise refused(argument, f"{expected}(y_true, y_pred)", "y_pred=None")
    if array.ndim == 0 and array.dtype.kind in "OUS":
        received = f"{argument} of type {type(value).__name__}"
        received += _remedy(argument, value)
        raise refused(argument, "hold real numbers", received)
    # An empty Python list has no dtype of its own.
    is_typed = array.dtype.kind == "i"
    return array if array.size or is_typed else array.astype("float32")


def _remedy(argument: str, value: Any) -> str:
    """What to pass in the place of what holds no numbers, if that is clear."""
    if isinstance(value, str):
        return f": for a column of a table, pass `df[{value!r}]`"
    if isinstance(value, Iterator | ValuesView):
        return f": pass `list({argument})`"
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    if isinstance(value[0] if is_array and len(value) else value, Set):
        return ", of sets: pass lists" if is_array else ", without an order: pass lists"
    return ""


def _of_array(argument: str, value: Any, parts: Sequence[Any]) -> Given:
    """Reads what NumPy, or else the backend, converts."""
    numbers = _array(argument, value)
    is_array = isinstance(numbers, np.ndarray)
    return Given(argument, "array" if is_array else "tensor", numbers, parts=parts)


def _of_rows(argument: str, value: Any, padding: float | None, deep: bool) -> Given:
    """Reads a list, a tuple or an array of objects."""
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list | tuple):
        return look(argument, rows, padding, deep=deep)
    sizes = [_length_of(row) for row in rows]
    lengths = [size for size in sizes if size is not None]
    if lengths and any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise _masked_error(argument)
    if len(lengths) < len(rows) or len(set(lengths)) < 2:
        if lengths and sizes[0] is not None and form_of(rows[0]) == "other":
            # Such as tensors of torch on another backend.
            return _of_array(argument, [_array(argument, row) for row in rows], rows)
        return _of_array(argument, rows, rows)
    if padding is None:
        raise uneven_error(argument, value)
    parts = [_row(argument, i, row, deep) for i, row in enumerate(rows)]
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise uneven_error(argument, value)
    numbers = _padded(argument, parts, padding)
    typed = [*rows, *(part for part in parts if part.size)]
    return Given(argument, "array", numbers, lengths, typed)


def _row(argument: str, number: int, row: Any, deep: bool) -> Any:
    """A row as an array: of items, which may have several numbers each if `deep`."""
    try:
        array = _array(argument, row)
    except ValueError as error:
        if deep:
            expected = "have as many numbers for each item of a list"
            received = f"{argument}={reprlib.repr(row)} in list {number}"
            raise refused(argument, expected, received) from error
        array = None
    if not deep and (array is None or len(array.shape) != 1):
        received = f"list {number} of {argument}, which holds lists"
        raise _nested_error(argument, received)
    return array


def _length_of(row: Any) -> int | None:
    """The number of items of a row, `None` for what is no row."""
    if isinstance(row, list | tuple):
        return len(row)
    try:
        sizes = tuple(getattr(row, "shape", ()))
    except (RuntimeError, ValueError):
        # Of unknown rank in a graph, or nested.
        return None
    return sizes[0] if sizes else None


def _padded(argument: str, rows: Sequence[Array], padding: float) -> Array:
    """Joins rows of uneven length, which are padded on the right."""
    of_items = {row.shape[1:] for row in rows if row.size} or {()}
    if len(of_items) > 1:
        expected = "have as many numbers for each item, in all lists"
        expected += "; 0 pads the subtopics of a list" * (argument == "y_true")
        received = f"items of the shapes {sorted(of_items)}"
        raise refused(argument, expected, received)
    # Integers such as ids stay integers, as floats would not hold all.
    least = np.float32 if np.isinf(padding) else np.int8
    dtypes = [row.dtype for row in rows if row.size] or [np.dtype(np.float32)]
    try:
        dtype = np.result_type(least, *dtypes)
    except TypeError as error:
        # Dates, for example, have no common dtype with numbers.
        found = ", ".join(sorted({str(each) for each in dtypes}))
        received = f"{argument} with rows of dtype {found}"
        raise refused(argument, "hold real numbers", received) from error
    shape = (len(rows), max(map(len, rows)), *of_items.pop())
    array = np.full(shape, padding, dtype)
    for i, row in enumerate(rows):
        if row.size:
            array[i, : len(row)] = row
    return array


def _of_ragged(argument: str, value: Any, padding: float | None, deep: bool) -> Given:
    """Reads a ragged tensor, on any backend."""
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
    given = look(argument, in_full(value, padding))
    return given._replace(lengths=lengths, parts=(value,))


def in_full(value: Any, padding: float) -> Any:
    """Pads a `tf.RaggedTensor` or a nested tensor of torch to one without rows."""
    if hasattr(value, "to_padded_tensor"):
        rows = value.unbind()
        if rows and not value.numel():
            return rows[0].new_empty((len(rows), *rows[0].shape))
        if value.is_floating_point():
            return value.to_padded_tensor(padding)
        padded = value.double().to_padded_tensor(padding)
        return padded if np.isinf(padding) else padded.long()
    if padding == 0:
        # TensorFlow's default, which is an empty string for strings.
        return value.to_tensor()
    if not np.can_cast(np.min_scalar_type(padding), value.dtype.as_numpy_dtype):
        # On any backend, ragged tensors bring their own library with them.
        dtype = "float32" if value.dtype.size < 4 else "float64"
        value = sys.modules["tensorflow"].cast(value, dtype)
    return value.to_tensor(padding)


def are_lists(array: Any) -> bool:
    """Whether a value is an array of objects, which are lists of any length."""
    is_of_objects = isinstance(array, np.ndarray) and form_of(array) == "rows"
    return is_of_objects and array.ndim == 1 and None not in map(_length_of, array)


def own(value: Any) -> Any:
    """Returns arrays and tensors, alone or in dicts and lists, in memory of their own.

    They have no gradients.
    """
    if is_dict(value):
        return {key: own(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [own(each) for each in value]
    # Asks the class, as TensorFlow is slow to report a missing attribute.
    kind = type(value)
    if hasattr(kind, "detach"):
        return value.detach().clone()
    # Tensors of JAX and TensorFlow never change.
    may_change = isinstance(value, np.ndarray) or not ops.is_tensor(value)
    return value.copy() if may_change and hasattr(kind, "copy") else value
