"""Selection of the largest entries of rows, which searches long rows in blocks."""

import math
from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import append_columns, axis_size, flatten_positions
from keras_rank.backends import Tensor, backend


def is_full_size(k: int | None, size: Tensor | int) -> bool:
    """Returns whether `k` is `None`, or known to be at least the row size."""
    return k is None or (isinstance(size, int) and k >= size)


def limit_to_size(k: Tensor | int, size: Tensor | int) -> Tensor | int:
    """Returns the minimum of `k` and the row size, as an int if both are static."""
    is_static = isinstance(size, int) and isinstance(k, int)
    return min(k, size) if is_static else ops.minimum(k, size)


def is_long(x: Tensor, count: Tensor | int) -> bool:
    """Returns whether searching rows in blocks is faster than `backend.top_k`."""
    rows, row_size = x.shape
    if row_size is None or rows == 0:
        return False
    return bool(row_size >= max(backend.LONG_ROW, 16 * count))


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The entries are in descending order, with ties in any order. If entries tie with the
    last one, any of them may be included.

    Long rows are cut into blocks. The largest entries are in the `count` blocks with
    the largest maxima. Other blocks are not searched, so the rows are read once.

    Args:
        x: tensor of shape `(batch, size)`, without NaN.
        count: the number of entries.
    """
    if not is_long(x, count):
        return backend.top_k(x, count)
    blocks = _best_blocks(x, count)
    values, indices = backend.top_k(blocks.entries, count)
    positions = backend.take(blocks.positions(), indices)
    # The lowest values may be in the padding, whose positions are beyond the row.
    return values, backend.minimum(positions, x.shape[1] - 1)


def largest_or_nan(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of long rows, and whether rows have NaN.

    NaN counts as `-inf`, but may hide larger entries of its block. So the entries may
    be wrong if rows have NaN.
    """
    blocks = _best_blocks(x, count)
    entries = backend.replace_nan(blocks.entries)
    return backend.top_values(entries, count), ops.any(ops.isnan(blocks.maxima))


class _Blocks(NamedTuple):
    """The blocks of long rows that hold their largest entries.

    Attributes:
        maxima: the maxima of all blocks.
        entries: tensor of shape `(batch, number)`. The entries of the selected blocks,
            and the entries at the end of the row that fill no block.
        positions: function that returns the positions of `entries` in the row.
    """

    maxima: Tensor
    entries: Tensor
    positions: Callable[[], Tensor]


def _best_blocks(x: Tensor, count: int) -> _Blocks:
    """Returns the `count` blocks of long rows with the largest maxima."""
    row_size = x.shape[1]
    size = _block_size(row_size, count)
    num_blocks, num_rest = divmod(row_size, size)
    if num_rest and backend.on_accelerator():
        # A TPU pads the rows faster than it gathers single entries.
        x = append_columns(x, backend.lowest_value(x.dtype), size - num_rest)
        num_blocks, num_rest = num_blocks + 1, 0
    maxima = backend.block_maxima(x, size)
    best = ops.cast(backend.top_k(maxima, count)[1], "int32")

    def positions() -> Tensor:
        offsets = ops.arange(size, dtype="int32")
        if backend.BLOCKS_ARE_STRIDED:
            in_row = best[:, None, :] + offsets[:, None] * num_blocks
        else:
            in_row = best[:, :, None] * size + offsets
        in_row = ops.reshape(in_row, (-1, count * size))
        if not num_rest:
            return in_row
        rest = ops.arange(num_blocks * size, row_size, dtype="int32")
        rest = ops.broadcast_to(rest, (axis_size(in_row, 0), num_rest))
        return ops.concatenate([in_row, rest], axis=1)

    if num_rest or backend.BLOCKS_ARE_STRIDED:
        return _Blocks(maxima, backend.take(x, positions()), positions)
    # Copying whole blocks takes less time than copying entries by `backend.take`.
    entries = backend.take_rows(
        ops.reshape(x, (-1, size)), flatten_positions(best, num_blocks)
    )
    return _Blocks(maxima, ops.reshape(entries, (-1, count * size)), positions)


def _block_size(row_size: int, count: int) -> int:
    """Returns a block size near `sqrt(row_size / count)`.

    The two steps of `top_k` then take similar time. A divisor of the row size is
    preferred, so that no entries remain outside of blocks.
    """
    size = round(math.sqrt(row_size / count))
    divisors = [x for x in range(size // 2 + 1, 2 * size) if row_size % x == 0]
    return min(divisors, key=lambda divisor: abs(divisor - size), default=size)


def largest_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest entries of each row, or all, in descending order."""
    size = axis_size(x, 1)
    count = limit_to_size(count, size)
    if isinstance(count, int) and count == size:
        return backend.sort_descending(x)
    return top_k(x, count)[0] if is_long(x, count) else backend.top_values(x, count)
