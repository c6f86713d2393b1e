"""Arithmetic that is the same on all backends."""

from keras import ops

from keras_rank.lists import Tensor


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divides numbers of 0 or more, with 0 where the denominator is 0.

    Instead of `ops.divide_no_nan`, which divides by 0 first on NumPy, and warns.
    """
    positive = denominator > 0.0
    quotient = numerator / ops.where(positive, denominator, 1.0)
    return ops.where(positive, quotient, 0.0)
