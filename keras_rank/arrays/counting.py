"""Counts of the entries of rows that match thresholds, by comparing or by sorting."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import (
    all_false,
    axis_size,
    comparable_scores,
    equals_flushed,
    tie_bounds,
)
from keras_rank.arrays.selection import is_long, largest_or_nan
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Pair, Side

# A function of entries and thresholds that returns whether they match.
Comparison: TypeAlias = Callable[..., Tensor]


def count(
    dtype: str, *comparisons: tuple[Comparison, Sequence[Tensor], Sequence[Tensor]]
) -> list[Tensor]:
    """Counts the entries of each row that match each of several thresholds.

    Args:
        dtype: the dtype of the counts. Float32 is exact up to 2**24.
        *comparisons: tuples of a function, entries and thresholds. The function takes
            all entries and thresholds, whose shapes broadcast, and returns whether they
            match. Entries are tensors of shape `(batch, size)`, and thresholds are
            tensors of shape `(batch, number)`.

    Returns:
        A tensor of shape `(batch, number)` for each comparison.
    """
    number = comparisons[0][2][0].shape[1]
    if number is None:
        return [_count_at_once(dtype, *comparison) for comparison in comparisons]
    conditions = [
        functools.partial(_match_threshold, i, *comparison)
        for comparison in comparisons
        for i in range(number)
    ]
    counts = backend.count_true(conditions, dtype)
    if number == 1:
        return counts
    return [
        ops.concatenate(counts[first : first + number], axis=1)
        for first in range(0, len(counts), number)
    ]


def count_per_row(conditions: Tensor, dtype: str) -> Tensor:
    """Counts the true entries of each row. The shape is `(batch,)`."""
    (counts,) = backend.count_true([lambda: conditions], dtype)
    return counts[:, 0]


def _match_threshold(
    i: int,
    matches: Comparison,
    entries: Sequence[Tensor],
    thresholds: Sequence[Tensor],
) -> Tensor:
    """Returns whether the entries match the i-th threshold."""
    if thresholds[0].shape[1] > 1:
        thresholds = [x[:, i : i + 1] for x in thresholds]
    return matches(*entries, *thresholds)


def _count_at_once(
    dtype: str,
    matches: Comparison,
    entries: Sequence[Tensor],
    thresholds: Sequence[Tensor],
) -> Tensor:
    parts = [x[:, None] for x in entries] + [x[..., None] for x in thresholds]
    return ops.sum(ops.cast(matches(*parts), dtype), axis=2)


def count_above_and_tied(
    entries: Tensor, thresholds: Tensor, dtype: str, k: int | None = None
) -> tuple[Tensor, Tensor]:
    """Counts the entries of each row above each threshold, and those equal to it.

    With a cutoff k, the k + 1 largest entries may be counted first. Their counts are
    right unless the smallest of them ties with a threshold in the first k ranks, or the
    row has NaN. Then all entries are counted.

    Args:
        entries: tensor of shape `(batch, size)`. NaN counts as `-inf`.
        thresholds: tensor of shape `(batch, number)`, after `flush_subnormals`. Counts
            for a threshold of `-inf` should not be used.
        dtype: the dtype of the counts.
        k: `None`, or the cutoff. If k or more entries are above a threshold, the first
            count may be any number of at least k, and the second any number.
    """

    def count_all() -> tuple[Tensor, Tensor]:
        return _count_above_and_tied(entries, thresholds, dtype)

    if k is None or not _should_select_largest(entries, thresholds, k):
        return count_all()
    largest, has_nan = largest_or_nan(entries, k + 1)
    above, tied = _count_above_and_tied(largest, thresholds, dtype)
    is_needed = ops.logical_and(above < k, thresholds > -math.inf)
    may_tie = largest[:, -1:] >= tie_bounds(thresholds)[0]
    is_decided = all_false(ops.logical_or(has_nan, ops.logical_and(is_needed, may_tie)))
    above, tied = backend.branch(is_decided, lambda: (above, tied), count_all)
    return above, tied


def _should_select_largest(entries: Tensor, thresholds: Tensor, k: int) -> bool:
    """Returns whether to select the largest entries before counting.

    The selection takes the same time for any number of thresholds, so it is faster for
    many thresholds. Compiled code and code for accelerators can't branch on whether the
    selection is enough, so it counts among all entries.
    """
    if backend.on_accelerator() or backend.is_compiling():
        return False
    sizes = entries.shape[1], thresholds.shape[1] or 1
    return is_long(entries, k + 1) and math.prod(sizes) >= (
        backend.MIN_SELECTION_RATIO * (k + 1)
    )


def _count_above_and_tied(
    entries: Tensor, thresholds: Tensor, dtype: str
) -> tuple[Tensor, Tensor]:
    """Counts among all entries, which are compared without a flushed copy."""

    def count_by_comparing() -> tuple[Tensor, Tensor]:
        lowest, highest = tie_bounds(thresholds)
        at_least = (operator.ge, [entries], [lowest])
        not_below, above = count(dtype, at_least, (operator.gt, [entries], [highest]))
        return above, not_below - above

    def count_by_sorting() -> tuple[Tensor, Tensor]:
        sorted_entries = backend.sort(comparable_scores(entries))
        above, not_below = count_in_sorted(sorted_entries, thresholds)
        return ops.cast(above, dtype), ops.cast(not_below - above, dtype)

    above, tied = backend.branch(
        is_comparison_faster(thresholds), count_by_comparing, count_by_sorting
    )
    return above, tied


def rank_among_tied(
    entries: Tensor,
    thresholds: Tensor,
    tied: Tensor,
    is_needed: Tensor,
    keys: Callable[[], tuple[Tensor, Tensor]],
    dtype: str,
) -> Tensor:
    """Returns the rank, from 1 on, of each threshold among the entries equal to it.

    Args:
        entries: tensor of shape `(batch, size)`. NaN counts as `-inf`.
        thresholds: tensor of shape `(batch, number)`. Some of the entries, after
            `flush_subnormals`.
        tied: tensor of the same shape. The number of entries equal to each threshold.
        is_needed: boolean tensor of the same shape. Whether the rank is used. If no
            rank is used, `tied` may be returned.
        keys: function that returns int32 keys of the entries and of the thresholds.
            Entries with larger keys precede equal entries.
        dtype: the dtype of the ranks.
    """

    def rank_by_keys() -> Tensor:
        return 1.0 + count_before(entries, thresholds, *keys(), dtype)

    return backend.branch(all_false(is_needed), lambda: tied, rank_by_keys)


def count_before(
    entries: Tensor,
    thresholds: Tensor,
    keys: Tensor,
    threshold_keys: Tensor,
    dtype: str,
) -> Tensor:
    """Counts the entries of each row that equal a threshold and have a larger key.

    Args:
        entries, thresholds: see `rank_among_tied`.
        keys: int32 tensor of the shape of the entries.
        threshold_keys: int32 tensor of the shape of the thresholds.
        dtype: the dtype of the counts.
    """

    def count_by_comparing() -> Tensor:
        return count(
            dtype, (_is_before, [entries, keys], [thresholds, threshold_keys])
        )[0]

    def count_by_sorting() -> Tensor:
        sorted_entries, sorted_keys = backend.sort_pairs(
            comparable_scores(entries), keys
        )
        pairs = (sorted_entries, thresholds), (sorted_keys, threshold_keys)
        not_before = _bisect_rows(_is_not_before, *pairs)
        return ops.cast(count_at_most(sorted_entries, thresholds) - not_before, dtype)

    return backend.branch(
        is_comparison_faster(thresholds), count_by_comparing, count_by_sorting
    )


def is_comparison_faster(thresholds: Tensor) -> Tensor | bool:
    """Returns whether comparing with each threshold takes less time than sorting."""
    return axis_size(thresholds, 1) <= backend.MAX_COMPARISONS


def count_at_least(entries: Tensor, thresholds: Tensor, should_compare: bool) -> Tensor:
    """Counts the entries of each row that are at least each threshold, as int32.

    Args:
        entries: tensor of shape `(batch, size)`, without NaN unless
            `should_compare` is True.
        thresholds: tensor of shape `(batch, number)`. The count for NaN is 0.
        should_compare: whether to compare with each threshold. Otherwise each entry is
            searched in the sorted thresholds, and counted at its position.
    """
    if should_compare:
        return backend.count_at_least(entries, thresholds)
    is_number = thresholds == thresholds
    thresholds = backend.where(is_number, thresholds, math.inf)
    sorted_thresholds = backend.sort(thresholds)
    positions = count_at_most(sorted_thresholds, entries)
    frequencies = backend.histogram(positions, thresholds.shape[1] + 1)
    num_after = axis_size(entries, 1) - ops.cumsum(frequencies, axis=1)
    counts = backend.take(
        num_after, _search_sorted(sorted_thresholds, thresholds, "left")
    )
    return backend.where(is_number, counts, 0)


def count_in_sorted(sorted_rows: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Counts the entries of sorted rows above each threshold, and those not below it.

    Args:
        sorted_rows: tensor of shape `(batch, size)`, in ascending order.
        thresholds: tensor of shape `(batch, number)`.
    """
    size = axis_size(sorted_rows, 1)
    below = _search_sorted(sorted_rows, thresholds, "left")
    return size - count_at_most(sorted_rows, thresholds), size - below


def count_at_most(sorted_rows: Tensor, thresholds: Tensor) -> Tensor:
    """Counts the entries of sorted rows that are at most each threshold."""
    if sorted_rows.shape[1] is not None and is_comparison_faster(sorted_rows):
        # The loop is unrolled, as a device waits between the steps of a compiled loop.
        columns = [sorted_rows[:, i : i + 1] for i in range(sorted_rows.shape[1])]
        return sum(ops.cast(column <= thresholds, "int32") for column in columns)
    return _search_sorted(sorted_rows, thresholds, "right")


def _search_sorted(sorted_rows: Tensor, thresholds: Tensor, side: Side) -> Tensor:
    """Counts the entries of sorted rows below each threshold, or up to it."""
    comparison = operator.lt if side == "left" else operator.le
    bisect = functools.partial(_bisect_rows, comparison, (sorted_rows, thresholds))
    return backend.search_rows(sorted_rows, thresholds, side, bisect)


def _bisect_rows(comparison: Comparison, *pairs: Pair) -> Tensor:
    """Counts the leading entries of sorted rows for which a comparison is True.

    Args:
        comparison: function of the entries and thresholds of all pairs, as for `count`.
            It is True for the first entries of a row, and False for the others.
        *pairs: entries and their thresholds.
    """
    sorted_rows, thresholds = pairs[0]
    static_size = sorted_rows.shape[1]
    digits = 30 if static_size is None else static_size.bit_length()
    start = ops.cast(ops.zeros_like(thresholds), "int32")
    # A loop over empty rows can't be compiled, even if it has no iterations.
    if static_size == 0:
        return start
    state = start, backend.constant(2 ** (digits - 1), start), pairs
    # A loop is compiled once, while unrolled steps would be compiled for each digit.
    return ops.fori_loop(0, digits, _digit_step(comparison), state)[0]


# The steps are cached, as eager JAX compiles a new function again at each call.
@functools.cache
def _digit_step(comparison: Comparison) -> Callable[[Tensor, Any], Any]:
    def add_digit(i: Tensor, state: Any) -> Any:
        counts, step, pairs = state
        size = axis_size(pairs[0][0], 1)
        next_counts = counts + step
        # Beyond the end of a row, the last entry is compared, but not counted.
        positions = backend.minimum(next_counts, size) - 1
        tensors = (
            x
            for entries, thresholds in pairs
            for x in (backend.take(entries, positions), thresholds)
        )
        is_counted = ops.logical_and(next_counts <= size, comparison(*tensors))
        counts = ops.where(is_counted, next_counts, counts)
        return counts, ops.right_shift(step, 1), pairs

    return add_digit


def _is_not_before(
    entry: Tensor, threshold: Tensor, key: Tensor, threshold_key: Tensor
) -> Tensor:
    is_tied = ops.logical_and(entry == threshold, key <= threshold_key)
    return ops.logical_or(entry < threshold, is_tied)


def _is_before(
    entry: Tensor, key: Tensor, threshold: Tensor, threshold_key: Tensor
) -> Tensor:
    return ops.logical_and(equals_flushed(entry, threshold), key > threshold_key)
