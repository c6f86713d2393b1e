"""The largest entries of rows, found by way of blocks in long ones."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import size_of, through_batch, with_columns
from keras_rank.backends import Tensor, backend


def is_all(k: int | None, size: Tensor | int) -> bool:
    """Whether the largest k are known to be all."""
    return k is None or (isinstance(size, int) and k >= size)


def at_most_size(k: Tensor | int, size: Tensor | int) -> Tensor | int:
    """Returns k, or the size of the rows if that is less."""
    are_known = isinstance(size, int) and isinstance(k, int)
    return min(k, size) if are_known else ops.minimum(k, size)


def is_long(x: Tensor, count: Tensor | int) -> bool:
    """Whether to read rows block by block takes less time than `backend.top_k`."""
    rows, row_size = x.shape
    if row_size is None or rows == 0:
        return False
    return bool(row_size >= max(backend.LONG_ROW, 16 * count))


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first. Equal entries are in any order, and any of those equal to
    the last may be included.

    Long rows are cut into blocks. The largest entries lie in the `count` blocks with
    the largest maxima, so only these are searched, and the rows are read once.

    Args:
        x: tensor of shape `(batch, size)`, without NaN.
        count: the number of entries.
    """
    if not is_long(x, count):
        return backend.top_k(x, count)
    row_size = x.shape[1]
    size = _block_size(row_size, count)
    number = -(-row_size // size)
    # The last entries of the row may be padding.
    padding = number * size - row_size
    x = with_columns(x, backend.lowest_of(x.dtype), padding) if padding else x
    place = ops.arange(size, dtype="int32")
    if backend.BLOCKS_ARE_SPREAD:
        blocks = ops.reshape(x, (-1, size, number))
        best = backend.top_k(ops.amax(blocks, axis=1), count)[1]
        entries = ops.take_along_axis(blocks, best[:, None, :], axis=2)
        positions = ops.cast(best, "int32")[:, None, :] + place[:, None] * number
    else:
        blocks = ops.reshape(x, (-1, number, size))
        best = backend.top_k(ops.amax(blocks, axis=2), count)[1]
        # Whole blocks are copied, while `ops.take_along_axis` copies entries.
        rows = through_batch(ops.cast(best, "int32"), number)
        entries = backend.take_rows(ops.reshape(x, (-1, size)), rows)
        positions = ops.cast(best, "int32")[:, :, None] * size + place
    values, chosen = backend.top_k(ops.reshape(entries, (-1, count * size)), count)
    positions = backend.take(ops.reshape(positions, (-1, count * size)), chosen)
    # The lowest values may lie in the padding, outside of the row.
    return values, backend.minimum(positions, row_size - 1)


def _block_size(row_size: int, count: int) -> int:
    """About `sqrt(row_size / count)`, to balance the two steps of `top_k`.

    A nearby divisor of the row's size avoids padding, which copies the rows.
    """
    size = round(math.sqrt(row_size / count))
    divisors = [x for x in range(size // 2 + 1, 2 * size) if row_size % x == 0]
    return min(divisors, key=lambda other: abs(other - size), default=size)


def largest_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest entries of each row, or all of them, in order."""
    size = size_of(x, 1)
    count = at_most_size(count, size)
    if isinstance(count, int) and count == size:
        return backend.sort_descending(x)
    return top_k(x, count)[0] if is_long(x, count) else backend.top_values(x, count)
