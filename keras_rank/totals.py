"""Running totals over all lists: sums that stay exact, and the mean they give.

A sum of float32 numbers stops growing at 2**24 ones. So each sum is a pair of
float32 numbers, its rounded value and what was lost by rounding, and a remainder that
is too small for the pair. Every part is a plain sum, so that the totals of two
replicas may be added.
"""

from keras import ops

from keras_rank.arrays.arithmetic import ratio, where
from keras_rank.arrays.backends import Tensor

# The columns of the totals: the weighted values and the weights of lists that have
# relevant items, the number of these, and the number of lists that have none.
SHAPE = (2, 4)


def add(totals: Tensor, remainders: Tensor, addends: Tensor) -> tuple[Tensor, Tensor]:
    """Adds, and keeps what is lost by rounding, and what is lost by keeping that.

    The rounding errors are found by Knuth's TwoSum, and all parts are renormalized:
    without that, once the high part is too large to grow, everything would go into
    the low one. Without the remainders, the same error at each of 33 million updates
    with alike lists would add up to a hundred-millionth of the sum.

    Args:
        totals: float32 tensor of shape `(..., 2, 4)`. High and low parts.
        remainders: float32 tensor of shape `(..., 4)`. What these can't hold.
        addends: tensor of shape `(..., 4)`, float32 or float64.

    Returns:
        The totals and the remainders, of the same shapes.
    """
    high, low = totals[..., 0, :], totals[..., 1, :]
    if addends.dtype != high.dtype:
        rounded = ops.cast(addends, "float32")
        lost = addends - ops.cast(rounded, addends.dtype)
        addends, remainders = rounded, remainders + ops.cast(lost, "float32")
    low, error = _sum_and_error(low, addends)
    high, low = _sum_and_error(high, low)
    low, remainders = _renormalized(low, remainders + error)
    return ops.stack([high, low], axis=-2), remainders


def _sum_and_error(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _renormalized(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same for numbers of which the first is the larger."""
    total = a + b
    return total, b - (total - a)


def merge(totals: Tensor, others: Tensor) -> Tensor:
    """Adds other totals of the same shape, `(..., 2, 4)`: both their parts."""
    remainders = ops.zeros_like(others[..., 0, :])
    totals, remainders = add(totals, remainders, others[..., 0, :])
    return add(totals, remainders, others[..., 1, :])[0]


def mean(
    totals: Tensor, remainders: Tensor, empty_value: float | None, dtype: str
) -> Tensor:
    """Returns the weighted mean over all lists.

    A list without relevant items weighs the average of the lists that have some,
    or 1 if none has, and scores `empty_value`; if that is `None`, it is left out.

    Args:
        totals: float32 tensor of shape `(2, 4)`. High and low parts.
        remainders: float32 tensor of shape `(4,)`.
        empty_value: float or `None`.
        dtype: the dtype of the result.

    Returns:
        A scalar tensor, 0 if there are no lists.
    """
    low = ops.cast(totals[1], dtype) + ops.cast(remainders, dtype)
    sums = ops.cast(totals[0], dtype) + low
    # Each of shape (1,): on torch, a number without an axis beside one of Python takes
    # the default precision of Keras, which may be wider.
    value, weight, relevant_lists, empty_lists = (sums[i : i + 1] for i in range(4))
    if empty_value is not None:
        average_weight = where(relevant_lists > 0.0, ratio(weight, relevant_lists), 1.0)
        empty_weight = empty_lists * average_weight
        value = value + empty_weight * empty_value
        weight = weight + empty_weight
    return ratio(value, weight)[0]
