"""Arithmetic that is the same on all backends."""

from typing import Any, TypeAlias

import numpy as np
from keras import ops

# A tensor is whatever the backend makes it: Keras has no common type for it.
Tensor: TypeAlias = Any


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Chooses one or the other by a condition."""
    return _library_of(condition).where(condition, x, y)


def at_most(x: Tensor, bound: Tensor | float) -> Tensor:
    """Cuts at a bound, in the dtype of `x`."""
    return _library_of(x).minimum(x, _like(x, bound))


def at_least(x: Tensor, bound: Tensor | float) -> Tensor:
    """Raises to a bound, in the dtype of `x`."""
    return _library_of(x).maximum(x, _like(x, bound))


def _library_of(x: Tensor) -> Any:
    """NumPy for its arrays: there Keras makes float32 of float64, and copies."""
    return np if isinstance(x, np.ndarray | np.generic) else ops


def _like(x: Tensor, other: Tensor | float) -> Tensor:
    """A number or tensor with the dtype of `x`.

    Keras gives a bare number the default precision: where that is bfloat16, it makes
    floats of whole numbers on JAX.
    """
    return ops.convert_to_tensor(other, x.dtype)


def whole_number(value: int) -> Tensor:
    """An int32 constant, where Keras would take a bare number as a float too."""
    return ops.convert_to_tensor(value, "int32")


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divides numbers of 0 or more, with 0 where the denominator is 0.

    Instead of `ops.divide_no_nan`, which divides by 0 first on NumPy, and warns.
    """
    denominator = _like(numerator, denominator)
    positive = denominator > 0.0
    quotient = numerator / where(positive, denominator, 1.0)
    return where(positive, quotient, 0.0)


def highest(x: Tensor, *, keepdims: bool = False) -> Tensor:
    """The maximum over the second axis, 0 for a batch of no lists.

    Keras raises for no lists, and with an initial value cannot trace it on torch.
    """
    if 0 in tuple(x.shape):
        return ops.sum(x, axis=1, keepdims=keepdims)
    return ops.max(x, axis=1, keepdims=keepdims)


def total(values: Tensor) -> Tensor:
    """Sums each row so that zeros at its end never change the sum, bit for bit.

    Neighbours are added first, then neighbouring sums: longer rows give the same
    additions, and some of zeros. `ops.sum` adds in an order that depends on the size
    of the row; it is used in a graph where that size is not known.

    Args:
        values: tensor of shape `(batch, size)`.

    Returns:
        A tensor of shape `(batch,)`.
    """
    size = values.shape[1]
    if size is None:
        return ops.sum(values, axis=1)
    while size > 1:
        sums = values[:, 0 : size - 1 : 2] + values[:, 1::2]
        alone = values[:, size - size % 2 :]
        values = sums if size % 2 == 0 else ops.concatenate([sums, alone], axis=1)
        size = (size + 1) // 2
    return values[:, 0]


def shifted(values: Tensor, places: int, fill: float) -> Tensor:
    """Moves each row to the right.

    Instead of `ops.pad`, which takes ten times as long on torch.
    """
    filling = ops.zeros_like(values[:, :places]) + fill
    return ops.concatenate([filling, values[:, :-places]], axis=1)


def through_batch(positions: Tensor, row_size: Tensor | int) -> Tensor:
    """Returns positions in all rows joined to one, from those in each row.

    Args:
        positions: int tensor of shape `(batch, some)`.
        row_size: the number of positions in a row.
    """
    rows = ops.arange(ops.shape(positions)[0], dtype="int32")[:, None]
    return positions + rows * row_size


def first_event(chances: Tensor) -> Tensor:
    """The chance that the first of independent events is the one at each place.

    `chance[r] * product(1 - chance[s] for s < r)`

    The products are built up in doubling steps, each from what comes before alone:
    appending zeros changes nothing, bit for bit, as it might in `ops.cumprod`, which
    is used in a graph where the size is not known.

    Args:
        chances: tensor of shape `(batch, size)`.

    Returns:
        A tensor of the same shape.
    """
    none_yet = shifted(1.0 - chances, 1, 1.0)
    size = chances.shape[1]
    if size is None:
        return chances * ops.cumprod(none_yet, axis=1)
    step = 1
    while step < size:
        none_yet = none_yet * shifted(none_yet, step, 1.0)
        step *= 2
    return chances * none_yet
