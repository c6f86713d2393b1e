"""Selecting and sorting: the largest entries, stable orders, branches.

The only file that names a backend: for what Keras does otherwise on one of them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, at_least, at_most, total, where, whole_number
from keras_rank.shared import in_branch

INT32_MIN = -(2**31)

# Fewer entries than these are sorted as fast in any way.
_MANY_ENTRIES = 4096

# Rows of this many entries or more are cut into blocks (see `candidates`).
_LONG_ROW = 512


def in_order_of(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each list in the order of the keys.

    Args:
        values: tensor of shape `(batch, list_size)`.
        *keys: tensors of the same shape. A key to sort by, the smallest first, and
            optionally scores, the largest first, which come before the key.
    """
    key, *scores = keys
    order = stable_argsort(key)
    for score in scores:
        by_score = stable_argsort(-ops.take_along_axis(score, order, axis=1))
        order = ops.take_along_axis(order, by_score, axis=1)
    return ops.take_along_axis(values, order, axis=1)


def inversions(values: Tensor, dtype: str) -> Tensor:
    """Counts the pairs of each list whose first value is larger than the second.

    By sorting with the binary digits of the places that values have when sorted,
    the highest digit first: at each digit, an entry with a 0 moves ahead of the
    entries with a 1 that it is inverted with, and no other. So the memory is that of
    the list, not of its pairs.

    Args:
        values: tensor of shape `(batch, list_size)`.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch,)`.
    """
    size = values.shape[1]
    digits = 31 if size is None else max(size - 1, 1).bit_length()
    sequence = stable_argsort(values)
    here = ops.arange(ops.shape(values)[1], dtype="int32")
    count = 0.0
    for digit in reversed(range(digits)):
        order = stable_argsort(ops.right_shift(sequence, digit))
        moved_ahead = at_least(order - here, 0)
        count = count + total(ops.cast(moved_ahead, dtype))
        sequence = ops.take_along_axis(sequence, order, axis=1)
    return count


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
    """

    raw: Tensor
    items: Any = None
    rule: Callable[[Any], Tensor] | None = None
    is_full: Tensor | bool = True
    masked: Callable[[], Tensor] | None = None

    def values(self, choose: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Returns the values of all items, or of those that a function chooses."""
        if self.rule is None:
            return self.raw if choose is None else choose(self.raw)
        return self.rule(self.items if choose is None else self.items.map(choose))

    def maxima(self, blocks: "_Blocks") -> Tensor:
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


def largest(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest entries of each row and their positions.

    The largest come first; equal entries are in any order, and any of those that
    equal the last one may be in.
    """
    return largest_of(Selection(x), count)


def largest_of(selection: Selection, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest values of each row and their positions."""
    if not is_long(selection.raw, count):
        return _top_k(selection.values(), count)
    entries, positions, _ = candidates(selection, count)
    values, found = _top_k(entries, count)
    return values, ops.take_along_axis(positions, found, axis=1)


def top_values_of(selection: Selection, count: Tensor | int) -> Tensor:
    """Returns the `count` largest values of each list, without their positions."""
    size = ops.shape(selection.raw)[1]
    if isinstance(size, int) and isinstance(count, int) and count >= size:
        return ops.flip(_sorted(selection.values()), axis=1)
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
    blocks = _Blocks.of(selection.raw, count)
    maxima, best = _top_k(selection.maxima(blocks), count + 1)
    best = ops.cast(best[:, :count], "int32")
    values = selection.values(lambda x: blocks.entries(x, best))
    return values, blocks.positions(best), maxima[:, count:]


def candidates_size(x: Tensor, count: int) -> int:
    """The number of candidates of each row of a tensor."""
    return count * _Blocks.of(x, count).size


def none_below_zero(x: Tensor) -> Tensor:
    """Whether all entries are 0 or more, which NaN is not."""
    # In passes that only read, where a comparison writes a copy.
    lowest = ops.min(x)
    return ops.logical_and(lowest >= 0.0, ops.logical_not(may_have_nan(x, lowest)))


def may_have_nan(x: Tensor, extremes: Tensor) -> Tensor:
    """Whether there is NaN in a tensor, of which minima or maxima are given.

    They show NaN, but in XLA on CPU: there a maximum forgets what came before NaN. A
    sum shows it (as it does infinities of both signs).
    """
    is_xla = keras.backend.backend() in ("jax", "tensorflow")
    return ops.isnan(ops.sum(x if is_xla else extremes))


def sum_by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns the sum of a function of the entries of each row, of shape `(rows,)`.

    XLA on CPU writes to memory what it sums: the rows one by one, in the same place.
    """
    # Outside of jit, JAX would compile the map anew at every call.
    if _is_jax_on_cpu() and not _has_value(x) and x.shape[1] >= _MANY_ENTRIES:
        return ops.map(lambda row: ops.sum(function(row)), x)
    return ops.sum(function(x), axis=1)


def is_long(x: Tensor, count: Tensor | int) -> bool:
    """Whether rows are worth cutting into blocks."""
    rows, row_size = x.shape
    is_long = row_size is not None and row_size >= max(_LONG_ROW, 16 * count)
    return is_long and rows != 0


@dataclasses.dataclass(frozen=True)
class _Blocks:
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
    def of(cls, x: Tensor, count: int) -> "_Blocks":
        """Of about `sqrt(row_size / count)`: both steps of `largest` cost alike."""
        row_size = x.shape[1]
        ideal = round(math.sqrt(row_size / count))
        # A divisor of the row's size nearby spares padding, which is a copy of it all.
        nearby = range(ideal // 2 + 1, 2 * ideal)
        divisors = [size for size in nearby if row_size % size == 0]
        size = min(divisors, key=lambda size: abs(size - ideal), default=ideal)
        # NumPy takes maxima of neighbours up to ten times as slowly as others.
        side_by_side = keras.backend.backend() != "numpy"
        return cls(row_size, size, -(-row_size // size), side_by_side)

    def maxima(self, x: Tensor) -> Tensor:
        """The largest entry of each block, of shape `(batch, number)`."""
        if self.are_side_by_side:
            return ops.max(self._shaped(x, (-1, self.number, self.size)), axis=2)
        return ops.max(self._shaped(x, (-1, self.size, self.number)), axis=1)

    def entries(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The entries of the chosen blocks, of shape `(batch, some)`."""
        if self.are_side_by_side:
            # Whole blocks are copied, where `ops.take_along_axis` goes by entries.
            rows = ops.arange(ops.shape(chosen)[0], dtype="int32")[:, None]
            x = self._shaped(x, (-1, self.size))
            x = ops.take(x, chosen + rows * self.number, axis=0)
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
        if self._padding:
            padding = [(0, 0), (0, self._padding)]
            x = ops.pad(x, padding, constant_values=_lowest(x))
        return ops.reshape(x, shape)

    @property
    def _padding(self) -> int:
        return self.number * self.size - self.row_size


def _top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    backend = keras.backend.backend()
    if backend == "jax" and x.dtype == "int32" and count < x.shape[1]:
        return _top_k_of_whole_numbers(x, count)
    if backend == "torch":
        return tuple(ops.top_k(x, count))
    if backend != "numpy":
        values, positions = ops.top_k(x, count)
        # XLA on CPU makes a slice of its TopK a full sort, ten times slower, unless
        # there is an operation between the two.
        values = where(values > _lowest(x), values, _lowest(x))
        return values, at_least(positions, 0)
    # Keras sorts whole rows on NumPy.
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def _top_k_of_whole_numbers(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """By float32 numbers, which XLA on CPU selects ten times as fast as int32, or more.

    They are in the same order, but some become equal. Where the cut parts such, they
    will not do.
    """
    rounded = where(x > INT32_MIN, ops.cast(x, "float32"), -math.inf)
    values, positions = _top_k(rounded, count + 1)
    last, next_one = values[:, count - 1], values[:, count]
    will_do = ops.logical_or(last > next_one, last == -math.inf)

    def nearly_in_order() -> Tensor:
        found = positions[:, :count]
        ascending = stable_argsort(ops.take_along_axis(x, found, axis=1))
        return ops.take_along_axis(found, ops.flip(ascending, axis=1), axis=1)

    positions = cond(ops.all(will_do), nearly_in_order, lambda: ops.top_k(x, count)[1])
    return ops.take_along_axis(x, positions, axis=1), positions


def _lowest(x: Tensor) -> float | int:
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype == "bool":
        return False
    return INT32_MIN if "int" in dtype else -math.inf


def cond(
    condition: Tensor | bool, if_true: Callable[[], Any], if_false: Callable[[], Any]
) -> Any:
    """Computes one of two, and only that, on every backend but in a vmap."""
    if _has_value(condition):
        return if_true() if condition else if_false()
    return ops.cond(condition, in_branch(if_true), in_branch(if_false))


def is_known_true(condition: Tensor | bool) -> bool:
    """Whether a condition is true, as far as Python can see it."""
    return _has_value(condition) and bool(condition)


def _has_value(condition: Tensor | bool) -> bool:
    """Whether Python can see it, and had better not leave it to Keras.

    JAX would compile both branches anew at every call outside of jit. On torch Keras
    gives each call a name of its own, for which torch.compile would compile it anew.
    """
    backend = keras.backend.backend()
    if backend == "numpy" or isinstance(condition, bool):
        return True
    if backend == "jax":
        import jax

        return not isinstance(condition, jax.core.Tracer)
    if backend == "torch" and ops.is_tensor(condition):
        return bool(condition.device.type != "meta")
    return False


def stable_argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row; equal entries stay in their order."""
    if keras.backend.backend() == "numpy":
        # Keras asks for NumPy's quicksort, which is not stable.
        is_short = x.dtype in ("float32", "int32")
        return _sorted_positions(x) if is_short else np.argsort(x, 1, kind="stable")
    if _is_sorted_by_bits(x) and x.shape[1] <= 2**15:
        return _argsort_by_bits(_sortable_bits(x))
    return ops.argsort(x, axis=1)


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the entries of each row, the largest first, and their positions.

    Equal entries are in any order.
    """
    if keras.backend.backend() in ("tensorflow", "torch"):
        # These sort entries with their positions, of which `ops.argsort` keeps half.
        values, positions = ops.top_k(x, ops.shape(x)[1])
        return values, positions
    return stably_descending(x)


def stably_descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same, with equal entries in the order in which they were."""
    order = stable_argsort(-x)
    return ops.take_along_axis(x, order, axis=1), order


def _sorted_positions(x: Tensor) -> Tensor:
    """By bits with positions below: NumPy's stable argsort takes twice as long."""
    # In place, as fresh memory costs as much as the arithmetic.
    keys = _sortable_bits(x).astype("int64")
    keys <<= 32
    keys |= np.arange(x.shape[1])
    keys.sort(axis=1)
    keys &= 0xFFFFFFFF
    return keys


def _sorted(x: Tensor) -> Tensor:
    """Returns the entries of each row, the smallest first."""
    if not _is_sorted_by_bits(x):
        return ops.sort(x, axis=1)
    in_order = ops.sort(_sortable_bits(x), axis=1)
    return in_order if x.dtype == "int32" else _flipped(in_order).view("float32")


def _is_sorted_by_bits(x: Tensor) -> bool:
    """XLA on CPU sorts a single int32 operand six times as fast as anything else."""
    if not _is_jax_on_cpu() or x.dtype not in ("float32", "int32"):
        return False
    rows, row_size = x.shape
    return bool(rows * row_size >= _MANY_ENTRIES)


def _is_jax_on_cpu() -> bool:
    if keras.backend.backend() != "jax":
        return False
    import jax

    return bool(jax.default_backend() == "cpu")


def _sortable_bits(x: Tensor) -> Tensor:
    """Int32 numbers in the order of float32 numbers, or as they are."""
    if x.dtype == "int32":
        return x
    return _flipped(where(x == 0.0, 0.0, x).view("int32"))


def _flipped(bits: Tensor) -> Tensor:
    """Flips all bits of negative numbers but the sign: its own inverse."""
    # By operators: Keras copies what it is given on NumPy.
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _argsort_by_bits(bits: Tensor) -> Tensor:
    """Sorts by the lower 16 bits, then by the higher, each with the position below."""
    width = (bits.shape[1] - 1).bit_length()
    place = ops.arange(bits.shape[1], dtype="int32")

    def places_by(half: Tensor) -> Tensor:
        keys = ops.bitwise_or(ops.left_shift(half, width), place)
        return ops.bitwise_and(ops.sort(keys, axis=1), whole_number((1 << width) - 1))

    order = places_by(ops.bitwise_and(bits, whole_number(0xFFFF)))
    higher = ops.take_along_axis(ops.right_shift(bits, 16), order, axis=1)
    return ops.take_along_axis(order, places_by(higher), axis=1)


def with_entries(x: Tensor, positions: Tensor, entries: Tensor) -> Tensor:
    """Returns rows with other entries at some positions, in the place of `x` on NumPy.

    Args:
        x: tensor of shape `(batch, size)`, which is not used anymore.
        positions: int tensor of shape `(batch, some)`. Where there are two of a row,
            their entries are the same.
        entries: tensor of the same shape.
    """
    rows = ops.arange(ops.shape(x)[0], dtype="int32")[:, None]
    rows = ops.broadcast_to(rows, ops.shape(positions))
    indices = [ops.reshape(each, (-1,)) for each in (rows, positions)]
    indices = ops.stack(indices, axis=1)
    return ops.scatter_update(x, indices, ops.reshape(entries, (-1,)))


def total_by_group(values: Tensor, group: Tensor) -> Tensor:
    """Returns, for each entry, the sum over its group.

    Args:
        values: tensor of shape `(batch, depth)`.
        group: int tensor of shape `(batch * depth,)`. The group of each entry.
    """
    if keras.backend.backend() == "torch" and values.is_meta:
        # Keras's segment_sum fails where it is only traced, without values.
        return values
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))
