"""Sizes that are rounded up to few, as a program is compiled for each."""

import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

# Sizes above it are rounded up by at most a quarter.
_FINE = 256


def rounded_up(size: int, least: int) -> int:
    """Rounds up to one of a few sizes, as a program is compiled for each."""
    power = 1 << max(size - 1, 0).bit_length()
    if power <= _FINE:
        return max(power, least)
    step = power // 8
    return -(-size // step) * step


def enlarged(
    x: Tensor, old: tuple[int, ...], new: tuple[int, ...], fill: float
) -> Tensor:
    """Returns a tensor or array whose axes of old sizes have new ones.

    Entries of one value are appended.
    """
    axes = zip(x.shape, old, new, strict=False)
    shape = [after if size == before else size for size, before, after in axes]
    if list(x.shape) == shape:
        return x
    if not isinstance(x, np.ndarray):
        more = [(0, size - old) for old, size in zip(x.shape, shape, strict=True)]
        return ops.pad(x, more, constant_values=fill)
    larger = np.full(shape, fill, x.dtype)
    larger[tuple(map(slice, x.shape))] = x
    return larger


def with_last_repeated(x: Tensor, size: int) -> Tensor:
    """Returns a tensor or array with the last entry of each row appended."""
    places = np.minimum(np.arange(size), x.shape[1] - 1)
    return (np if isinstance(x, np.ndarray) else ops).take(x, places, axis=1)


def first_rows(x: Tensor, number: int | None) -> Tensor:
    """Returns the rows without those that were appended."""
    if number is None or x.shape[0] in (None, number):
        return x
    return backend.to_tensor(ops.convert_to_numpy(x)[:number])
