"""Casts and shapes of arrays and tensors, without loss of values."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend

# Integer dtypes with values that float32 can't represent.
_WIDE_INTEGERS = ("int32", "uint32", "int64", "uint64")


def as_tensor(x: Tensor) -> Tensor:
    """Converts an array to a tensor without loss of precision.

    Tensors and `None` are returned unchanged.
    """
    if x is None or ops.is_tensor(x):
        return x
    is_array = isinstance(x, np.ndarray)
    return backend.to_tensor(x) if is_array else ops.convert_to_tensor(x)


def to_backend_dtype(array: Array) -> Array:
    """Casts an array to a dtype of the backend, without wrapping large integers."""
    array = array if array.dtype.isnative else to_native_order(array)
    if array.dtype in ("uint32", "uint64"):
        array = array.astype("int64" if _fits(array, "int64") else "float64")
    if ops.is_tensor(array):
        return array
    if array.dtype == "int64" and backend.supported_dtype("int64") != "int64":
        array = array.astype("int32" if _fits(array, "int32") else "float64")
    if array.dtype == "float64" and backend.supported_dtype("float64") != "float64":
        array = cast_finite(array, "float32")
    return array


def to_native_order(array: Array) -> Array:
    """Returns an array in native byte order."""
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _fits(array: Array, dtype: str) -> bool:
    limits = np.iinfo(dtype)
    return bool(np.all((array >= limits.min) & (array <= limits.max)))


def find_rounded_ties(x: Array, dtype: Any) -> Array:
    """Returns the lower of two numbers of a row that round to the same float.

    Args:
        x: array of real numbers of shape `(..., size)`.
        dtype: the dtype of the floats.
    """
    if x.dtype.kind == "f":
        is_exact = np.can_cast(x.dtype, dtype)
    else:
        largest = 2 ** (np.finfo(dtype).nmant + 1)
        is_exact = -largest <= x.min(initial=0) <= x.max(initial=0) <= largest
    if is_exact:
        return x[:0]
    sorted_rows = np.sort(x, axis=-1)
    rounded, lower = sorted_rows.astype(dtype), sorted_rows[..., :-1]
    is_tied = rounded[..., 1:] == rounded[..., :-1]
    ties: Array = lower[is_tied & (sorted_rows[..., 1:] != lower)]
    return ties


def cast_finite(x: Tensor, dtype: str) -> Tensor:
    """Casts a tensor, and keeps finite numbers finite.

    Numbers beyond the range of float32 are clipped on NumPy, which would warn of an
    overflow.
    """
    if keras.backend.standardize_dtype(x.dtype) == dtype:
        # Keras would copy the array on the NumPy backend.
        return x
    if isinstance(x, np.ndarray) and x.dtype == "float64" and dtype == "float32":
        limit = np.finfo(dtype).max
        x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
    return cast(x, dtype)


def cast(x: Tensor, dtype: str) -> Tensor:
    """Casts a tensor. An array is cast by NumPy, without compiling a program."""
    return x.astype(dtype) if isinstance(x, np.ndarray) else ops.cast(x, dtype)


def to_numpy_or_none(x: Tensor) -> Array | None:
    """Returns the values of a tensor as an array, or `None` within `torch.func`.

    The values are hidden within `torch.func`. `ops.convert_to_numpy` is not used, as it
    would make NumPy 2 warn about torch.
    """
    try:
        return np.asarray(backend.prepare_for_numpy(x))
    except RuntimeError:
        return None


def dtype_name(value: Any) -> str:
    """Returns the name of a dtype that Keras knows, or an empty string."""
    try:
        name: str = keras.backend.standardize_dtype(value.dtype)
    except (AttributeError, ValueError):
        return ""
    return name


def static_shape(x: Tensor) -> tuple[int | None, ...]:
    """Returns the static shape, with `None` for sizes unknown in a graph."""
    return tuple(x.shape)


def sizes_agree(sizes: Sequence[int | None], others: Sequence[int | None]) -> bool:
    """Returns whether two shapes may be equal. Unknown sizes match every size."""
    if len(sizes) != len(others):
        return False
    pairs = zip(sizes, others, strict=True)
    return not [x for x in pairs if x[0] != x[1] and None not in x]


def check_result_shape(result: Any, like: Tensor, expected: Callable[[], str]) -> None:
    """Raises `ValueError` unless a user's function returned a tensor of some shape.

    Args:
        result: the value that the function returned.
        like: a tensor of the expected shape.
        expected: function without arguments that returns the start of the error, a
            sentence without its end. It is called only if there is an error.
    """
    shape = getattr(result, "shape", ())
    if result is None or not sizes_agree(shape, like.shape):
        received = None if result is None else f"shape {tuple(shape)}"
        raise ValueError(f"{expected()}. Received: {received}")


def wide_or_none(labels: Tensor, dtype: str) -> Tensor | None:
    """Returns labels if a cast to `dtype` may round them, or `None`.

    The result is also `None` if the backend has no wider dtype than `dtype`.
    """
    given_dtype = keras.backend.standardize_dtype(labels.dtype)
    is_wide = given_dtype == "float64" or given_dtype in _WIDE_INTEGERS
    return labels if is_wide and backend.supported_dtype("float64") != dtype else None


def upcast(scores: Tensor) -> Tensor:
    """Casts numbers up to float32 or float64, so that rounding makes no ties."""
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if dtype in ("float32", "float64"):
        return scores
    if dtype not in _WIDE_INTEGERS:
        return ops.cast(scores, "float32")
    if isinstance(scores, np.ndarray):
        return scores.astype("float64")
    return ops.cast(scores, backend.supported_dtype("float64"))
