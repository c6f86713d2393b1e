"""Converts numbers of any form to tensors that keep their values."""

import reprlib
from collections.abc import Callable, Iterator, Sequence, Set, ValuesView
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists import ragged

# How the names of dtypes of real numbers start.
_NUMBERS = ("float", "bfloat", "int", "uint", "bool")

# The integers that float32 does not hold.
_WIDE_INTEGERS = ("int32", "uint32", "int64", "uint64")


def to_tensor(argument: str, value: Any) -> Tensor:
    """Converts to a tensor of numbers. Errors name the argument."""
    return as_tensor(to_array(argument, value))


def to_array(argument: str, value: Any) -> Tensor:
    """The same, but arrays stay arrays where reshaping a tensor would be compiled."""
    check_dense(argument, value)
    if isinstance(value, np.ndarray) or not ops.is_tensor(value):
        value = _unboxed(argument, value)
    if ragged.is_ragged(value):
        raise _uneven_error(argument, value)
    if isinstance(value, keras.Variable) or hasattr(type(value), "read_value"):
        # A variable's value, as TensorFlow's conversion returns the variable itself.
        value = ops.stop_gradient(value)
    is_tensor = ops.is_tensor(value)
    value = backend.on_host(value) if is_tensor else _array(argument, value)
    has_dtype = getattr(value, "dtype", None) is not None
    if has_dtype and not dtype_name(value).startswith(_NUMBERS):
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of "
            f"dtype {value.dtype}{_remedy(argument, value)}"
        )
    if isinstance(value, np.ndarray):
        value = _within_backend(value)
    # On NumPy the conversion would cast float64 to float32.
    is_done = is_tensor or ops.is_tensor(value)
    return value if is_done else backend.from_host(value)


def _unboxed(argument: str, value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"`{argument}` should be an array without a mask of its own: give it in "
            '`y_true`, as {"labels": ..., "mask": ...}. Received: a masked array'
        )
    value = ragged.unboxed(value)
    # A subclass may index and multiply in ways of its own, as `np.matrix` does.
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def as_tensor(x: Tensor) -> Tensor:
    """An array as a tensor of the same precision; a tensor or `None` unchanged."""
    if x is None or ops.is_tensor(x):
        return x
    return (
        backend.to_tensor(x) if isinstance(x, np.ndarray) else ops.convert_to_tensor(x)
    )


def _array(argument: str, value: Any) -> Any:
    """Converts to an array if NumPy can, keeping the precision."""
    if hasattr(value, "detach"):
        # A torch tensor. NumPy has neither gradients nor bfloat16.
        value = value.detach().cpu()
        is_short = str(value.dtype) == "torch.bfloat16"
        value = value.float() if is_short else value
    try:
        array = np.asarray(value)
    except Exception:
        # For example a list of symbolic tensors, which the backend can stack.
        try:
            return ops.convert_to_tensor(value)
        except Exception as error:
            raise _uneven_error(argument, value) from error
    if array.ndim == 0 and array.dtype.kind in "OUS":
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of type "
            f"{type(value).__name__}{_remedy(argument, value)}"
        )
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


def check_values(argument: str, value: Any) -> None:
    """Raises for a symbolic tensor, and for labels without scores."""
    if value is None and argument == "y_pred":
        raise ValueError(
            "`y_pred` should hold real numbers: labels and scores are passed together, "
            "as (y_true, y_pred). Received: y_pred=None"
        )
    if isinstance(value, keras.KerasTensor):
        raise ValueError(
            f"`{argument}` should have values. For symbolic tensors, pass the metric "
            "to `compile`, or override the method `compute_metrics` of the model. "
            f"Received: {argument} of type KerasTensor"
        )


def is_sparse(value: Any) -> bool:
    """Whether it is a sparse matrix or tensor, of any library."""
    return bool(_made_dense("", value))


def check_dense(argument: str, value: Any) -> None:
    """Raises for a sparse matrix or tensor, and says how to make it dense."""
    dense = _made_dense(argument, value)
    if dense:
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of type "
            f"{type(value).__name__}, which is sparse: pass `{dense}`, which has 0 "
            "where nothing is stored"
        )


def _made_dense(name: str, value: Any) -> str:
    """The expression that makes a sparse matrix or tensor dense, or nothing."""
    # Asks the class, as TensorFlow is slow to report a missing attribute.
    kind = type(value)
    if hasattr(kind, "toarray"):
        return f"{name}.toarray()"
    if hasattr(kind, "todense"):
        # Of JAX, among others.
        return f"{name}.todense()"
    if hasattr(kind, "dense_shape"):
        is_indexed = kind.__name__ == "IndexedSlices"
        return f"tf.{'convert_to_tensor' if is_indexed else 'sparse.to_dense'}({name})"
    if hasattr(kind, "to_sparse_csr") and "sparse" in str(value.layout):
        return f"{name}.to_dense()"
    return ""


def _uneven_error(argument: str, value: Any) -> ValueError:
    return ValueError(
        f"`{argument}` should hold numbers, in rows of the same length. "
        f"Received: {argument}={reprlib.repr(value)}"
    )


def _within_backend(array: Array) -> Array:
    """Casts to a dtype of the backend, without wrapping large integers."""
    array = in_native_order(array)
    if array.dtype in ("uint32", "uint64"):
        array = array.astype("int64" if _fits(array, "int64") else "float64")
    if ops.is_tensor(array):
        return array
    if array.dtype == "int64" and backend.widest("int64") != "int64":
        array = array.astype("int32" if _fits(array, "int32") else "float64")
    if array.dtype == "float64" and backend.widest("float64") != "float64":
        array = cast_finite(array, "float32")
    return array


def in_native_order(array: Array) -> Array:
    """Returns an array in native byte order."""
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _fits(array: Array, dtype: str) -> bool:
    limits = np.iinfo(dtype)
    return bool(np.all((array >= limits.min) & (array <= limits.max)))


def cast_finite(x: Tensor, dtype: str) -> Tensor:
    """Casts, and keeps finite numbers finite. NumPy would warn of infinity."""
    if keras.backend.standardize_dtype(x.dtype) == dtype:
        # On NumPy, Keras would copy it.
        return x
    if isinstance(x, np.ndarray) and x.dtype == "float64" and dtype == "float32":
        limit = np.finfo(dtype).max
        x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
    return cast(x, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    """Casts a tensor, or an array without compiling."""
    return x.astype(dtype) if isinstance(x, np.ndarray) else ops.cast(x, dtype)


def dtype_name(value: Any) -> str:
    """The name of a dtype that Keras knows, or nothing."""
    try:
        name: str = keras.backend.standardize_dtype(value.dtype)
    except (AttributeError, ValueError):
        return ""
    return name


def shape_of(x: Tensor) -> tuple[int | None, ...]:
    """The shape, with `None` for sizes unknown in a graph."""
    return tuple(x.shape)


def sizes_agree(sizes: Sequence[int | None], others: Sequence[int | None]) -> bool:
    """Whether two shapes may be equal: an unknown size may be any."""
    return len(sizes) == len(others) and all(
        a is None or b is None or a == b for a, b in zip(sizes, others, strict=True)
    )


def check_returned(found: Any, like: Tensor, expected: Callable[[], str]) -> None:
    """Checks that a user's function returned something of the shape of a tensor.

    Args:
        found: what the function returned.
        like: the tensor.
        expected: function without arguments that returns the start of the error, a
            sentence without its end. What it tells may have to be computed.
    """
    shape = getattr(found, "shape", ())
    if found is None or not sizes_agree(shape, like.shape):
        received = None if found is None else f"shape {tuple(shape)}"
        raise ValueError(f"{expected()}. Received: {received}")


def wide_or_none(labels: Tensor, dtype: str) -> Tensor | None:
    """Labels that a dtype may not tell apart where `ranked_as` does, `None` if none."""
    given = keras.backend.standardize_dtype(labels.dtype)
    is_wide = given == "float64" or given in _WIDE_INTEGERS
    return labels if is_wide and backend.widest("float64") != dtype else None


def ranked_as(scores: Tensor) -> Tensor:
    """Casts scores up to float32 or float64, so that no tie is made by rounding."""
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if dtype in ("float32", "float64"):
        return scores
    if dtype not in _WIDE_INTEGERS:
        return ops.cast(scores, "float32")
    if isinstance(scores, np.ndarray):
        return scores.astype("float64")
    return ops.cast(scores, backend.widest("float64"))
