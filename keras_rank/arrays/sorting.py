"""How far values are from being sorted."""

from keras import ops

from keras_rank.arrays.arithmetic import size_of, total
from keras_rank.backends import Tensor, backend


def inversions(values: Tensor, dtype: str, weights: Tensor | None = None) -> Tensor:
    """Counts the pairs of each row whose first value is larger than the second.

    It sorts by the binary digits of the sorted places of the values, the highest digit
    first: at each digit, an entry with a 0 moves ahead of exactly those entries with a
    1 with which it is inverted. The entry that moves ahead stands for the larger value.
    So it needs memory for the row, not for its pairs.

    Args:
        values: tensor of shape `(batch, size)`.
        dtype: the dtype of the counts.
        weights: tensor of the same shape. The weight of a pair, by its first value.
            Defaults to `None`: 1.

    Returns:
        A tensor of shape `(batch,)`.
    """
    sequence = backend.argsort(values)
    weighted = [] if weights is None else [backend.take(weights, sequence)]
    size = size_of(values, 1)
    here, digits = ops.arange(size, dtype="int32"), _number_of_digits(size)
    state = (0.0 * ops.cast(sequence[:, 0], dtype), here, sequence, *weighted)
    # Unrolled, a sort would be compiled for each digit.
    return ops.fori_loop(-digits, 0, _with_next_digit, state)[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_digit(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Moves zeros of a digit ahead, where -1 is the last digit."""
    count, here, sequence, *weighted = state
    order = backend.argsort(ops.right_shift(sequence, -1 - i))
    moved_ahead = ops.cast(backend.maximum(order - here, 0), count.dtype)
    sequence, *weighted = (backend.take(x, order) for x in (sequence, *weighted))
    for weights in weighted:
        moved_ahead = moved_ahead * weights
    return count + total(moved_ahead), here, sequence, *weighted


def _number_of_digits(size: Tensor | int) -> Tensor | int:
    """The number of binary digits of the places of a row."""
    if isinstance(size, int):
        return max(size - 1, 0).bit_length()
    return ops.sum(ops.cast(2 ** ops.arange(31, dtype="int32") < size, "int32"))
