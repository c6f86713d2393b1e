"""The largest entries of rows; in long rows, by way of blocks."""

import dataclasses
import math

from keras import ops

from keras_rank.arrays.arithmetic import highest, size_of, through_batch, with_columns
from keras_rank.backends import Tensor, backend

# The size of blocks on an accelerator: that of the words of `running_count`, so that
# XLA needs one pass for the maxima and the counts.
_BLOCK_ON_ACCELERATOR = 32


def is_all(k: int | None, size: Tensor | int) -> bool:
    """Whether the largest k are known to be all."""
    return k is None or (isinstance(size, int) and k >= size)


def at_most_size(k: int, size: Tensor | int) -> Tensor | int:
    """Returns k, or the size of the rows if that is less."""
    return min(k, size) if isinstance(size, int) else ops.minimum(k, size)


def is_long(x: Tensor, count: Tensor | int = 1) -> bool:
    """Whether rows should be cut into blocks, and not copied."""
    rows, row_size = x.shape
    if row_size is None or rows == 0 or row_size < max(backend.LONG_ROW, 16 * count):
        return False
    # In eager code an accelerator would wait between the two steps.
    return not (backend.on_accelerator() and backend.is_concrete(x))


def is_worth_a_look(x: Tensor, count: Tensor | int) -> bool:
    """Whether to try a few entries first: not if both ways would be compiled."""
    return backend.looks_first(x) and bool(x.shape[1] >= 8 * count)


def is_best_sorted(x: Tensor) -> bool:
    """Whether the largest entries of rows are best found by sorting.

    One sort is one kernel, while selecting by score and by tie needs two.
    """
    if not backend.on_accelerator() or backend.is_concrete(x):
        return False
    return not is_long(x)


def largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first. Equal entries are in any order, and any of those equal to
    the last may be included.
    """
    if not is_long(x, count):
        return backend.top_k(x, count)
    found = candidates(x, count)
    values, places = backend.top_k(found.entries, count)
    return values, backend.take(found.positions, places)


def largest_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest entries of each row, or all of them, in order."""
    size = size_of(x, 1)
    count = at_most_size(count, size)
    if (isinstance(count, int) and count == size) or is_best_sorted(x):
        return backend.sort_descending(x)[:, :count]
    return largest(x, count)[0] if is_long(x, count) else backend.top_values(x, count)


def largest_value(x: Tensor) -> Tensor:
    """Returns the largest entry of each row, of shape `(batch, 1)`.

    On an accelerator, that of the maxima of blocks, which others may need too.
    """
    if backend.on_accelerator() and is_long(x):
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
    maxima, best = backend.top_k(all_maxima, count + 1)
    best = best[:, :count]
    return Candidates(
        entries=blocks.entries(x, best),
        positions=blocks.positions(ops.cast(best, "int32")),
        highest_other=maxima[:, -1:],
        all_maxima=all_maxima,
    )


@backend.register_tree
@dataclasses.dataclass(frozen=True)
class Candidates:
    """Entries of rows, among them the largest.

    Attributes:
        entries: tensor of shape `(batch, some)`.
        positions: int tensor of the same shape. The positions of these in their rows.
        highest_other: tensor of shape `(batch, 1)`. The largest of all other entries.
        all_maxima: tensor of shape `(batch, blocks)`, or `None`. The maxima of all
            blocks, which tell `may_have_nan` whether the entries are the largest: with
            NaN, they may be any.
    """

    entries: Tensor
    positions: Tensor
    highest_other: Tensor
    all_maxima: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How rows are cut into blocks of one size: see `backend.BLOCKS_ARE_SPREAD`.

    Attributes:
        row_size: the number of entries of a row.
        size: the number of entries of a block.
        number: the number of blocks. The last entries of the row may be padding.
    """

    row_size: int
    size: int
    number: int

    @classmethod
    def of(cls, x: Tensor, count: int) -> "Blocks":
        """Of about `sqrt(row_size / count)`, to balance the two steps of `largest`.

        On an accelerator, of one size for few, so that results share their maxima.
        """
        row_size = x.shape[1]
        size = round(math.sqrt(row_size / count))
        if backend.on_accelerator() and size > _BLOCK_ON_ACCELERATOR:
            size = _BLOCK_ON_ACCELERATOR
        else:
            # A nearby divisor of the row's size avoids padding, which copies the rows.
            nearby = range(size // 2 + 1, 2 * size)
            divisors = [other for other in nearby if row_size % other == 0]
            size = min(divisors, key=lambda other: abs(other - size), default=size)
        return cls(row_size, size, -(-row_size // size))

    def maxima(self, x: Tensor) -> Tensor:
        """The largest entry of each block, of shape `(batch, number)`."""
        x = self._padded(x)
        if backend.BLOCKS_ARE_SPREAD:
            return ops.amax(ops.reshape(x, (-1, self.size, self.number)), axis=1)
        blocks = ops.reshape(x, (-1, self.number, self.size))
        return backend.fusion_barrier(ops.amax(blocks, axis=2))

    def entries(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The entries of the chosen blocks, of shape `(batch, some)`."""
        x = self._padded(x)
        if backend.BLOCKS_ARE_SPREAD:
            blocks = ops.reshape(x, (-1, self.size, self.number))
            entries = ops.take_along_axis(blocks, chosen[:, None, :], axis=2)
        else:
            # Whole blocks are copied, while `ops.take_along_axis` copies entries.
            blocks = ops.reshape(x, (-1, self.size))
            entries = backend.take_rows(blocks, through_batch(chosen, self.number))
        return ops.reshape(entries, (-1, chosen.shape[1] * self.size))

    def positions(self, chosen: Tensor) -> Tensor:
        """The positions in the row of these entries."""
        place = ops.arange(self.size, dtype="int32")
        if backend.BLOCKS_ARE_SPREAD:
            positions = chosen[:, None, :] + place[:, None] * self.number
        else:
            positions = chosen[:, :, None] * self.size + place
        positions = ops.reshape(positions, (-1, chosen.shape[1] * self.size))
        # The lowest values may lie in the padding, outside of the row.
        return backend.minimum(positions, self.row_size - 1)

    def _padded(self, x: Tensor) -> Tensor:
        padding = self.number * self.size - self.row_size
        return with_columns(x, -math.inf, padding) if padding else x
