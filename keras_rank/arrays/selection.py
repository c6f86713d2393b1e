"""The largest entries of rows; in long rows, by way of blocks."""

import dataclasses
import math

import numpy as np
from keras import ops

from keras_rank.arrays import backends
from keras_rank.arrays.arithmetic import at_most, highest, through_batch, with_columns
from keras_rank.arrays.backends import (
    Tensor,
    computed_once,
    falling,
    neighbors_are_slow,
    size_of,
    take,
    take_rows,
    top_k,
    top_values,
)

# Rows of this many entries or more are cut into blocks on a CPU. The limit is lower on
# NumPy, where selecting from whole rows takes longer.
_LONG_ROW = 4096
_LONG_ROW_OF_ARRAY = 512
# The size of blocks on an accelerator: that of the words of `running_count`, so that
# XLA needs one pass for the maxima and the counts.
_BLOCK_ON_ACCELERATOR = 32


def is_whole(k: int | None, size: Tensor | int) -> bool:
    """Whether the largest k are known to be all."""
    return k is None or (isinstance(size, int) and k >= size)


def at_most_size(k: int, size: Tensor | int) -> Tensor | int:
    """Returns k, or the size of the rows if that is less."""
    return min(k, size) if isinstance(size, int) else ops.minimum(k, size)


def is_long(x: Tensor, count: Tensor | int = 1) -> bool:
    """Whether rows should be cut into blocks, and not copied."""
    rows, row_size = x.shape
    if row_size is None or rows == 0 or backends.may_stall(x):
        return False
    long_row = _LONG_ROW_OF_ARRAY if isinstance(x, np.ndarray) else _LONG_ROW
    return bool(row_size >= max(long_row, 16 * count))


def is_best_sorted(x: Tensor) -> bool:
    """Whether the largest entries of rows are best found by sorting.

    One sort is one kernel, while selecting by score and by tie needs two.
    """
    return backends.on_accelerator() and not (backends.may_stall(x) or is_long(x))


def is_worth_a_look(x: Tensor, count: Tensor | int) -> bool:
    """Whether to try a few entries first: not if both paths would be compiled."""
    return backends.is_on_host(x) and bool(x.shape[1] >= 8 * count)


def largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first. Equal entries are in any order, and any of those equal to
    the last may be included.
    """
    if not is_long(x, count):
        return top_k(x, count)
    found = candidates(x, count)
    values, places = top_k(found.entries, count)
    return values, take(found.positions, places)


def largest_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest entries of each row, or all of them, in order."""
    size = size_of(x, 1)
    count = at_most_size(count, size)
    if (isinstance(count, int) and count == size) or is_best_sorted(x):
        return falling(x)[:, :count]
    return largest(x, count)[0] if is_long(x, count) else top_values(x, count)


def largest_value(x: Tensor) -> Tensor:
    """Returns the largest entry of each row, of shape `(batch, 1)`.

    On an accelerator, that of the maxima of blocks, which others may need too.
    """
    if backends.on_accelerator() and is_long(x):
        x = Blocks.of(x, 1).maxima(x)
    return highest(x, keepdims=True)


def candidates(x: Tensor, count: int) -> "Candidates":
    """Returns entries of long rows, among them the `count` largest of each.

    Rows are cut into blocks. The largest entries lie in the `count` blocks with the
    largest maxima, so only these are searched, and the rows are read once.

    Args:
        x: tensor of shape `(batch, size)`. With NaN, see `Candidates.all_maxima`.
        count: the number of blocks.
    """
    blocks = Blocks.of(x, count)
    all_maxima = blocks.maxima(x)
    maxima, best = top_k(all_maxima, count + 1)
    best = best[:, :count]
    return Candidates(blocks.entries(x, best), maxima, best, blocks, all_maxima)


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Entries of rows, among them the largest.

    Attributes:
        entries: tensor of shape `(batch, some)`.
        maxima: tensor of shape `(batch, count + 1)`. The maxima of the chosen blocks,
            and that of all other entries.
        chosen: int tensor of shape `(batch, count)`. The chosen blocks.
        blocks: how the rows are cut.
        all_maxima: tensor of shape `(batch, blocks)`. The maxima of all blocks, which
            tell `may_have_nan` whether the entries are the largest: with NaN, they may
            be any.
    """

    entries: Tensor
    maxima: Tensor
    chosen: Tensor
    blocks: "Blocks"
    all_maxima: Tensor

    @property
    def positions(self) -> Tensor:
        """The positions of the entries in their rows."""
        return self.blocks.positions(ops.cast(self.chosen, "int32"))

    @property
    def highest_other(self) -> Tensor:
        """The largest of all other entries, of shape `(batch, 1)`."""
        return self.maxima[:, -1:]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How rows are cut into blocks of one size.

    Attributes:
        row_size: the number of entries of a row.
        size: the number of entries of a block.
        number: the number of blocks. The last entries of the row may be padding.
        are_side_by_side: whether a block has consecutive entries. If not, it has every
            n-th entry, where n is the number of blocks.
    """

    row_size: int
    size: int
    number: int
    are_side_by_side: bool

    @classmethod
    def of(cls, x: Tensor, count: int) -> "Blocks":
        """Of about `sqrt(row_size / count)`, to balance the two steps of `largest`.

        On an accelerator, of one size for few, so that results share their maxima.
        """
        row_size = x.shape[1]
        size = round(math.sqrt(row_size / count))
        if backends.on_accelerator() and size > _BLOCK_ON_ACCELERATOR:
            size = _BLOCK_ON_ACCELERATOR
        else:
            # A nearby divisor of the row's size avoids padding, which copies the rows.
            nearby = range(size // 2 + 1, 2 * size)
            divisors = [other for other in nearby if row_size % other == 0]
            size = min(divisors, key=lambda other: abs(other - size), default=size)
        return cls(row_size, size, -(-row_size // size), not neighbors_are_slow())

    def maxima(self, x: Tensor) -> Tensor:
        """The largest entry of each block, of shape `(batch, number)`."""
        if self.are_side_by_side:
            x = self._shaped(x, (-1, self.number, self.size))
            return computed_once(ops.amax(x, axis=2))
        return ops.amax(self._shaped(x, (-1, self.size, self.number)), axis=1)

    def entries(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The entries of the chosen blocks, of shape `(batch, some)`."""
        if self.are_side_by_side:
            # Copies whole blocks, while `ops.take_along_axis` copies single entries.
            x = self._shaped(x, (-1, self.size))
            x = take_rows(x, through_batch(chosen, self.number))
        else:
            x = self._shaped(x, (-1, self.size, self.number))
            x = ops.take_along_axis(x, chosen[:, None, :], axis=2)
        return ops.reshape(x, (-1, chosen.shape[1] * self.size))

    def positions(self, chosen: Tensor) -> Tensor:
        """The positions in the row of these entries."""
        place = ops.arange(self.size, dtype="int32")
        if self.are_side_by_side:
            positions = chosen[:, :, None] * self.size + place
        else:
            positions = chosen[:, None, :] + place[:, None] * self.number
        positions = ops.reshape(positions, (-1, chosen.shape[1] * self.size))
        # The lowest values may lie in the padding, outside of the row.
        return at_most(positions, self.row_size - 1) if self._padding else positions

    def _shaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Whole blocks, as a tensor of another shape."""
        if self._padding:
            x = with_columns(x, -math.inf, self._padding)
        return ops.reshape(x, shape)

    @property
    def _padding(self) -> int:
        return self.number * self.size - self.row_size
