"""The largest entries of rows: of long rows, by the largest of their blocks."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arithmetic import Tensor, at_most, through_batch
from keras_rank.ordering.backends import (
    cond,
    is_known_true,
    lowest_of_dtype,
    may_have_nan,
    neighbours_are_slow,
    sorted_rows,
    top_k,
)

# Rows of this many entries or more are cut into blocks (see `candidates`).
_LONG_ROW = 512


def is_whole(k: int | None, size: Tensor | int) -> bool:
    """Whether all ranks count, as far as is known."""
    return k is None or (isinstance(size, int) and k >= size)


def at_most_size(k: int, size: Tensor | int) -> Tensor | int:
    """Returns k, or the size of the lists if that is less."""
    return min(k, size) if isinstance(size, int) else ops.minimum(k, size)


@dataclasses.dataclass(frozen=True)
class Selection:
    """What the largest are to be found of: values that a rule makes of items.

    Attributes:
        raw: tensor of shape `(batch, size)`. What the values are made of: in the same
            order as these, but for NaN and where there is no item.
        items: what the rule is applied to, with a method `map` to choose some.
        rule: function from items to values. `None` if `raw` is the values.
        is_full: boolean. Whether there is an item at all positions.
        masked: function that returns `raw`, `-inf` where there is no item. `None` if
            it is lower there anyway.
        values_of: function from `raw`, or some of it, to the values. For where there
            is an item at all positions, and no NaN.
    """

    raw: Tensor
    items: Any = None
    rule: Callable[[Any], Tensor] | None = None
    is_full: Tensor | bool = True
    masked: Callable[[], Tensor] | None = None
    values_of: Callable[[Tensor], Tensor] | None = None

    def values(self, choose: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Returns the values of all items, or of those that a function chooses."""
        if self.rule is None:
            return self.raw if choose is None else choose(self.raw)
        return self.rule(self.items if choose is None else self.items.map(choose))

    def maxima(self, blocks: "Blocks") -> Tensor:
        """Returns the largest value of each block, in as few passes as will do."""
        highest_of = blocks.maxima
        if self.rule is None:
            return highest_of(self.raw)
        masked = self.masked or (lambda: self.raw)
        maxima = cond(
            self.is_full,
            lambda: highest_of(self.raw),
            lambda: highest_of(masked()),
        )
        return cond(
            may_have_nan(self.raw, maxima),
            lambda: highest_of(self.values()),
            lambda: maxima,
        )

    def top_k(self, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Returns the `count` largest values of each row and their positions.

        Where Python sees that it will do, only these are computed.
        """
        if self.values_of is not None and is_known_true(self.is_full):
            raw, positions = top_k(self.raw, count)
            if is_known_true(ops.logical_not(may_have_nan(self.raw, raw))):
                return self.values_of(raw), positions
        return top_k(self.values(), count)


def largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first; equal entries are in any order, and any of those that
    equal the last one may be in.
    """
    return largest_of(Selection(x), count)


def largest_of(selection: Selection, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest values of each row and their positions."""
    if not is_long(selection.raw, count):
        return selection.top_k(count)
    entries, positions, _ = candidates(selection, count)
    values, found = top_k(entries, count)
    return values, ops.take_along_axis(positions, found, axis=1)


def top_values_of(selection: Selection, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, without their positions."""
    size = ops.shape(selection.raw)[1]
    if isinstance(size, int) and isinstance(count, int) and count >= size:
        return ops.flip(sorted_rows(selection.values()), axis=1)
    return largest_of(selection, at_most_size(count, size))[0]


def top_values(values: Tensor, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, the largest first."""
    return top_values_of(Selection(values), count)


def candidates(selection: Selection, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns values of long rows, among them the `count` largest of each.

    Rows are cut into blocks: the largest values lie in the `count` blocks of the
    largest maxima, so that only these few need a closer look. That reads the rows
    once, where a rule and a selection would read and copy them several times.

    Args:
        selection: what the largest are to be found of.
        count: the number of blocks.

    Returns:
        The values and their positions, each of shape `(batch, some)`, and the largest
        of all others, of shape `(batch, 1)`.
    """
    blocks = Blocks.of(selection.raw, count)
    maxima, best = top_k(selection.maxima(blocks), count + 1)
    best = ops.cast(best[:, :count], "int32")
    values = selection.values(lambda x: blocks.entries(x, best))
    return values, blocks.positions(best), maxima[:, count:]


def candidates_size(x: Tensor, count: int) -> int:
    """The number of candidates of each row of a tensor."""
    return count * Blocks.of(x, count).size


def is_long(x: Tensor, count: Tensor | int) -> bool:
    """Whether rows are worth cutting into blocks."""
    rows, row_size = x.shape
    is_long = row_size is not None and row_size >= max(_LONG_ROW, 16 * count)
    return is_long and rows != 0


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How rows are cut into blocks of one size.

    Attributes:
        row_size: the number of entries of a row.
        size: the number of entries of a block.
        number: the number of blocks. The last entries of the row may be padding.
        are_side_by_side: whether a block has entries that follow each other. If not,
            it has every n-th entry, as many as there are blocks apart.
    """

    row_size: int
    size: int
    number: int
    are_side_by_side: bool

    @classmethod
    def of(cls, x: Tensor, count: int) -> "Blocks":
        """Of about `sqrt(row_size / count)`: both steps of `largest` cost alike."""
        row_size = x.shape[1]
        ideal = round(math.sqrt(row_size / count))
        # A divisor of the row's size nearby spares padding, which is a copy of it all.
        nearby = range(ideal // 2 + 1, 2 * ideal)
        divisors = [size for size in nearby if row_size % size == 0]
        size = min(divisors, key=lambda size: abs(size - ideal), default=ideal)
        return cls(row_size, size, -(-row_size // size), not neighbours_are_slow())

    def maxima(self, x: Tensor) -> Tensor:
        """The largest entry of each block, of shape `(batch, number)`."""
        if self.are_side_by_side:
            return ops.max(self._shaped(x, (-1, self.number, self.size)), axis=2)
        return ops.max(self._shaped(x, (-1, self.size, self.number)), axis=1)

    def entries(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The entries of the chosen blocks, of shape `(batch, some)`."""
        if self.are_side_by_side:
            # Whole blocks are copied, where `ops.take_along_axis` goes by entries.
            x = self._shaped(x, (-1, self.size))
            x = ops.take(x, through_batch(chosen, self.number), axis=0)
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
        # The lowest values may lie in the padding, which is not in the row.
        return at_most(positions, self.row_size - 1) if self._padding else positions

    def _shaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Whole blocks, as a tensor of another shape."""
        if self._padding:
            padding = [(0, 0), (0, self._padding)]
            x = ops.pad(x, padding, constant_values=lowest_of_dtype(x))
        return ops.reshape(x, shape)

    @property
    def _padding(self) -> int:
        return self.number * self.size - self.row_size
