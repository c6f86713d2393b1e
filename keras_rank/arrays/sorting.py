"""Orders by several keys, and inversions."""

import math
from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import none_of, size_of, total
from keras_rank.arrays.selection import at_most_size, top_k
from keras_rank.backends import Tensor, backend
from keras_rank.lists.limits import as_ranked

# Of items, of which each row has the same number: the positions of some, or `None` for
# all, from which int32 keys are computed.
Keys: TypeAlias = Callable[[Tensor | None], Tensor]


def best_first(
    scores: Tensor, count: Tensor | int, keys: Keys | None
) -> tuple[Tensor, Tensor, Tensor | bool]:
    """Returns the first items of each row: the highest scores, then the largest keys.

    Without ties among them, that is the order by score. Ties are mostly among a few
    more of the highest scores, which are then sorted by score and key. Otherwise all
    are, which is always right.

    Args:
        scores: tensor of shape `(batch, size)`, without NaN. Those of `-inf` come last,
            in any order.
        count: the number of items.
        keys: function that returns keys, or `None` if equal scores may be in any order.

    Returns:
        The scores in order, the positions of the items, both of shape `(batch, count)`,
        and whether none of them ties with another item.
    """
    size = size_of(scores, 1)
    # The next one tells whether a tie crosses the last.
    highest, positions = _highest(scores, at_most_size(count + 1, size))
    is_tied = _have_rank(highest[:, 1:], highest[:, 1:] == highest[:, :-1])
    values, first, none = highest[:, :count], positions[:, :count], none_of(is_tied)
    if keys is None:
        return values, first, none

    def of_all() -> Tensor:
        order = backend.lexsort(-as_ranked(scores), -keys(None))[:, :count]
        return ops.cast(order, "int32")

    def by_keys() -> Tensor:
        some = at_most_size(2 * count + 8, size)
        if isinstance(size, int) and some == size:
            return of_all()
        highest, positions = _highest(scores, some)

        def of_some() -> Tensor:
            order = backend.lexsort(-highest, -keys(positions))[:, :count]
            return backend.take(positions, order)

        others_tie = _have_rank(values[:, -1], highest[:, -1] == values[:, -1])
        return backend.branch(none_of(others_tie), of_some, of_all)

    return values, backend.branch(none, lambda: first, by_keys), none


def _highest(scores: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row as they are ranked, in order, and their positions.

    If these are all, equal ones stay in their order, as sums over ties are in it.
    """
    if isinstance(count, int) and count == scores.shape[1]:
        ranked = as_ranked(scores)
        positions = backend.argsort(-ranked)
        highest = backend.take(ranked, positions)
    else:
        highest, positions = top_k(scores, count)
        highest = as_ranked(highest)
    return highest, ops.cast(positions, "int32")


def _have_rank(scores: Tensor, condition: Tensor) -> Tensor:
    return ops.logical_and(condition, scores > -math.inf)


def in_order(values: Tensor, positions: Tensor) -> Tensor:
    """Returns the entries of each row at the positions.

    Args:
        values: tensor of shape `(batch, size)`, or `(batch, subtopics, size)`.
        positions: int tensor of shape `(batch, places)`.
    """
    if len(values.shape) == 2:
        return backend.take(values, positions)
    lists, subtopics, size = (size_of(values, axis) for axis in range(3))
    places = size_of(positions, 1)
    of_each = ops.broadcast_to(positions[:, None], (lists, subtopics, places))
    rows = ops.reshape(values, (-1, size))
    found = backend.take(rows, ops.reshape(of_each, (-1, places)))
    return ops.reshape(found, (-1, subtopics, places))


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
