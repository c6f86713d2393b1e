"""The largest entries of rows, found by way of blocks in long ones."""

import math
from collections.abc import Callable
from typing import NamedTuple

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
    blocks = _best_blocks(x, count)
    values, chosen = backend.top_k(blocks.entries, count)
    positions = backend.take(blocks.positions(), chosen)
    # The lowest values may lie in the padding, outside of the row.
    return values, backend.minimum(positions, x.shape[1] - 1)


def largest_or_nan(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of long rows, and whether they may be wrong.

    They may be where there are NaN, which count as `-inf`.
    """
    blocks = _best_blocks(x, count)
    entries = backend.without_nan(blocks.entries)
    return backend.top_values(entries, count), ops.any(ops.isnan(blocks.maxima))


class _Blocks(NamedTuple):
    """The blocks of long rows that hold their largest entries.

    Attributes:
        maxima: the maxima of all blocks.
        entries: tensor of shape `(batch, some)`. The entries of the best blocks, and
            those at the end of the row that fill no block.
        positions: function that returns their positions.
    """

    maxima: Tensor
    entries: Tensor
    positions: Callable[[], Tensor]


def _best_blocks(x: Tensor, count: int) -> _Blocks:
    """Cuts long rows into blocks, and takes the `count` with the largest maxima."""
    row_size = x.shape[1]
    size = _block_size(row_size, count)
    number, rest = divmod(row_size, size)
    if rest and backend.on_accelerator():
        # To gather entries one by one would take a TPU longer than to pad the rows.
        x = with_columns(x, backend.lowest_of(x.dtype), size - rest)
        number, rest = number + 1, 0
    maxima = backend.block_maxima(x, size)
    best = ops.cast(backend.top_k(maxima, count)[1], "int32")

    def positions() -> Tensor:
        place = ops.arange(size, dtype="int32")
        if backend.BLOCKS_ARE_SPREAD:
            in_row = best[:, None, :] + place[:, None] * number
        else:
            in_row = best[:, :, None] * size + place
        in_row = ops.reshape(in_row, (-1, count * size))
        if not rest:
            return in_row
        others = ops.arange(number * size, row_size, dtype="int32")
        others = ops.broadcast_to(others, (size_of(in_row, 0), rest))
        return ops.concatenate([in_row, others], axis=1)

    if rest or backend.BLOCKS_ARE_SPREAD:
        return _Blocks(maxima, backend.take(x, positions()), positions)
    # Whole blocks are copied, while `backend.take` copies entries.
    entries = backend.take_rows(ops.reshape(x, (-1, size)), through_batch(best, number))
    return _Blocks(maxima, ops.reshape(entries, (-1, count * size)), positions)


def _block_size(row_size: int, count: int) -> int:
    """About `sqrt(row_size / count)`, to balance the two steps of `top_k`.

    A nearby divisor of the row's size leaves no entries over.
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
