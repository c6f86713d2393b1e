"""Orders by several keys, and inversions."""

import dataclasses

from keras import ops

from keras_rank.arrays.arithmetic import size_of, through_batch, total
from keras_rank.backends import Tensor, backend


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class Order:
    """Which entry of each row is at each place.

    Attributes:
        positions: int tensor of shape `(batch, places)`.
        keys: the sort keys, if sorting values along with them is faster than gathering
            values by position.
    """

    positions: Tensor
    keys: tuple[Tensor, ...] = ()

    @classmethod
    def by(cls, *keys: Tensor) -> "Order":
        """The order of a first key, the smallest first, then of the next."""
        return cls(backend.lexsort(*keys), keys if backend.sorts_along() else ())

    def first(self, places: Tensor | int) -> "Order":
        """The first places of the order."""
        return dataclasses.replace(self, positions=self.positions[:, :places])

    def of(self, values: Tensor) -> Tensor:
        """The values of each row in this order.

        Args:
            values: tensor of shape `(batch, size)`, or `(batch, subtopics, size)`.
        """
        if len(values.shape) == 3:
            lists, subtopics, size = (size_of(values, axis) for axis in range(3))

            def for_each(x: Tensor) -> Tensor:
                shape = (lists, subtopics, size_of(x, 1))
                return ops.reshape(ops.broadcast_to(x[:, None], shape), (-1, shape[2]))

            order = Order(for_each(self.positions), tuple(map(for_each, self.keys)))
            in_order = order.of(ops.reshape(values, (-1, size)))
            places = size_of(self.positions, 1)
            return ops.reshape(in_order, (-1, subtopics, places))
        if not self.keys:
            return backend.take(values, self.positions)
        in_order = backend.sort_by(values, *self.keys)
        return in_order[:, : size_of(self.positions, 1)]


def in_order_of(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each row in the order of the keys.

    Args:
        values: tensor of shape `(batch, size)`.
        *keys: tensors of the same shape. A key to sort by, the smallest first, and
            optionally another, the largest first, which comes before it.
    """
    key, *before = keys
    return backend.sort_by(values, *(-other for other in before), key)


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


def with_entries(x: Tensor, positions: Tensor, entries: Tensor) -> Tensor:
    """Returns rows with other entries at some positions, written into `x` on NumPy.

    Args:
        x: tensor of shape `(batch, size)`, which must not be used afterwards.
        positions: int tensor of shape `(batch, some)`. Repeated positions of a row have
            the same entries.
        entries: tensor of the same shape.
    """
    batch, size = ops.shape(x)
    indices = ops.reshape(through_batch(positions, size), (-1, 1))
    entries = ops.reshape(entries, (-1,))
    x = ops.scatter_update(ops.reshape(x, (-1,)), indices, entries)
    return ops.reshape(x, (batch, size))
