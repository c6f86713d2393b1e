"""Casts of arrays and tensors that keep their values, and their shapes."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend

# The integers that float32 does not hold.
_WIDE_INTEGERS = ("int32", "uint32", "int64", "uint64")


def as_tensor(x: Tensor) -> Tensor:
    """An array as a tensor of the same precision; a tensor or `None` unchanged."""
    if x is None or ops.is_tensor(x):
        return x
    is_array = isinstance(x, np.ndarray)
    return backend.to_tensor(x) if is_array else ops.convert_to_tensor(x)


def within_backend(array: Array) -> Array:
    """Casts to a dtype of the backend, without wrapping large integers."""
    array = array if array.dtype.isnative else in_native_order(array)
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


def seen(x: Tensor) -> Array | None:
    """The values of a tensor as an array, `None` within `torch.func`, which hides them.

    Keras's function would make NumPy 2 warn of torch.
    """
    try:
        return np.asarray(backend.for_numpy(x))
    except RuntimeError:
        return None


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
    if len(sizes) != len(others):
        return False
    pairs = zip(sizes, others, strict=True)
    return not [x for x in pairs if x[0] != x[1] and None not in x]


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
