"""Counts entries that match thresholds: by comparing, or by sorting for many."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import (
    are_ranked_as,
    as_compared,
    none_of,
    range_of,
    size_of,
)
from keras_rank.arrays.selection import is_long, largest_or_nan
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Pair, Side

Matches: TypeAlias = Callable[..., Tensor]


def count(
    dtype: str, *comparisons: tuple[Matches, Sequence[Tensor], Sequence[Tensor]]
) -> list[Tensor]:
    """Counts the entries of each row that match each of several thresholds.

    Args:
        dtype: the dtype of the counts. Float32 is exact up to 2**24.
        *comparisons: functions of entries and thresholds, whose shapes broadcast, that
            return whether they match, with what they compare: tensors of shape
            `(batch, size)`, and of shape `(batch, number)`.

    Returns:
        A tensor of shape `(batch, number)` for each comparison.
    """
    number = comparisons[0][2][0].shape[1]
    if number is None:
        return [_count_at_once(dtype, *each) for each in comparisons]
    conditions = [
        functools.partial(_matching, i, *each)
        for each in comparisons
        for i in range(number)
    ]
    counts = backend.count_true(conditions, dtype)
    if number == 1:
        return counts
    return [
        ops.concatenate(counts[first : first + number], axis=1)
        for first in range(0, len(counts), number)
    ]


def count_of(conditions: Tensor, dtype: str) -> Tensor:
    """The number of true entries of each row, of shape `(batch,)`."""
    (number,) = backend.count_true([lambda: conditions], dtype)
    return number[:, 0]


def _matching(
    i: int, matches: Matches, entries: Sequence[Tensor], thresholds: Sequence[Tensor]
) -> Tensor:
    """Whether the entries match the i-th threshold."""
    if thresholds[0].shape[1] > 1:
        thresholds = [each[:, i : i + 1] for each in thresholds]
    return matches(*entries, *thresholds)


def _count_at_once(
    dtype: str,
    matches: Matches,
    entries: Sequence[Tensor],
    thresholds: Sequence[Tensor],
) -> Tensor:
    parts = [x[:, None] for x in entries] + [x[..., None] for x in thresholds]
    return ops.sum(ops.cast(matches(*parts), dtype), axis=2)


def count_above_and_tied(
    entries: Tensor, thresholds: Tensor, dtype: str, k: int | None = None
) -> tuple[Tensor, Tensor]:
    """Counts the entries of each row ranked above each threshold, and as equal to it.

    With a cutoff, the k + 1 largest entries of a row tell what is above the first k,
    and which entries are equal to these, unless one of the others is too.

    Args:
        entries: tensor of shape `(batch, size)`. NaN counts as `-inf`.
        thresholds: tensor of shape `(batch, number)`, above `-inf` where counts are
            used. They are as they are ranked.
        dtype: the dtype of the counts.
        k: `None`, or the cutoff: if so many entries or more are above a threshold, the
            first count may be any number from k on, and the second any number.
    """

    def of_all() -> tuple[Tensor, Tensor]:
        return _count_above_and_tied(entries, thresholds, dtype)

    if k is None or not _is_many(entries, thresholds, k):
        return of_all()
    largest, is_nan = largest_or_nan(entries, k + 1)
    above, tied = _count_above_and_tied(largest, thresholds, dtype)
    matters = ops.logical_and(above < k, thresholds > -math.inf)
    others_tie = largest[:, -1:] >= range_of(thresholds)[0]
    is_decided = none_of(ops.logical_or(is_nan, ops.logical_and(matters, others_tie)))
    above, tied = backend.branch(is_decided, lambda: (above, tied), of_all)
    return above, tied


def _is_many(entries: Tensor, thresholds: Tensor, k: int) -> bool:
    """Whether to find the largest entries takes less time than to count among all.

    It takes the same time for any number of thresholds. Where there are no branches, to
    count among all is the only way.
    """
    if backend.on_accelerator() or backend.is_compiling():
        return False
    compared = entries.shape[1], thresholds.shape[1] or 1
    return is_long(entries, k + 1) and math.prod(compared) >= (
        backend.MANY_TO_COUNT * (k + 1)
    )


def _count_above_and_tied(
    entries: Tensor, thresholds: Tensor, dtype: str
) -> tuple[Tensor, Tensor]:
    """The same of all entries. Where they are compared, none is copied as ranked."""

    def by_comparing() -> tuple[Tensor, Tensor]:
        least, most = range_of(thresholds)
        reaching = (operator.ge, [entries], [least])
        not_below, above = count(dtype, reaching, (operator.gt, [entries], [most]))
        return above, not_below - above

    def by_sorting() -> tuple[Tensor, Tensor]:
        in_order = backend.sort(as_compared(entries))
        above, not_below = counts_in_order(in_order, thresholds)
        return ops.cast(above, dtype), ops.cast(not_below - above, dtype)

    above, tied = backend.branch(are_few(thresholds), by_comparing, by_sorting)
    return above, tied


def place_among_tied(
    entries: Tensor,
    thresholds: Tensor,
    tied: Tensor,
    matters: Tensor,
    keys: Callable[[], tuple[Tensor, Tensor]],
    dtype: str,
) -> Tensor:
    """Returns the place, from 1 on, that each threshold has by its key among its ties.

    Args:
        entries: tensor of shape `(batch, size)`. NaN counts as `-inf`.
        thresholds: tensor of shape `(batch, number)`. Some of the entries, as they are
            ranked.
        tied: tensor of the same shape. The number of entries equal to each.
        matters: boolean tensor of the same shape. Whether to tell the place. Where no
            one matters, `tied` may be returned.
        keys: function that returns int32 keys of the entries and of the thresholds. The
            largest of equal entries comes first.
        dtype: the dtype of the places.
    """

    def by_keys() -> Tensor:
        return 1.0 + count_before(entries, thresholds, *keys(), dtype)

    return backend.branch(none_of(matters), lambda: tied, by_keys)


def count_before(
    entries: Tensor, thresholds: Tensor, keys: Tensor, own_keys: Tensor, dtype: str
) -> Tensor:
    """Counts the entries of each row that equal a threshold and have a larger key.

    Args:
        entries, thresholds: those of `place_among_tied`.
        keys: int32 tensor of the shape of the entries.
        own_keys: int32 tensor of the shape of the thresholds.
        dtype: the dtype of the counts.
    """

    def by_comparing() -> Tensor:
        return count(dtype, (_is_before, [entries, keys], [thresholds, own_keys]))[0]

    def by_sorting() -> Tensor:
        in_order, keys_in_order = backend.sort_pairs(as_compared(entries), keys)
        pairs = (in_order, thresholds), (keys_in_order, own_keys)
        behind = _bisected(_is_not_before, *pairs)
        return ops.cast(number_at_most(in_order, thresholds) - behind, dtype)

    return backend.branch(are_few(thresholds), by_comparing, by_sorting)


def are_few(thresholds: Tensor) -> Tensor | bool:
    """Whether comparing with each threshold takes less time than sorting."""
    return size_of(thresholds, 1) <= backend.MOST_COMPARISONS


def count_at_least(entries: Tensor, thresholds: Tensor, compares: bool) -> Tensor:
    """Counts the entries of each row that are at least each threshold, as int32.

    Args:
        entries: tensor of shape `(batch, size)`, without NaN unless it is compared.
        thresholds: tensor of shape `(batch, number)`. No entry is at least NaN.
        compares: whether to compare with each threshold. Otherwise the thresholds are
            sorted, each entry is searched in them, and counted at its place.
    """
    if compares:
        return backend.count_at_least(entries, thresholds)
    is_number = thresholds == thresholds
    thresholds = backend.where(is_number, thresholds, math.inf)
    in_order = backend.sort(thresholds)
    places = number_at_most(in_order, entries)
    numbers = backend.histogram(places, thresholds.shape[1] + 1)
    beyond = size_of(entries, 1) - ops.cumsum(numbers, axis=1)
    reach = backend.take(beyond, _searched(in_order, thresholds, "left"))
    return backend.where(is_number, reach, 0)


def counts_in_order(in_order: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Counts the entries of sorted rows above each threshold, and those not below it.

    Args:
        in_order: tensor of shape `(batch, size)`, the smallest entries first.
        thresholds: tensor of shape `(batch, number)`.
    """
    size, below = size_of(in_order, 1), _searched(in_order, thresholds, "left")
    return size - number_at_most(in_order, thresholds), size - below


def number_at_most(in_order: Tensor, thresholds: Tensor) -> Tensor:
    """Counts the entries of sorted rows that are at most each threshold."""
    if in_order.shape[1] is not None and are_few(in_order):
        # Unrolled, as a device would wait for a loop.
        each = [in_order[:, i : i + 1] for i in range(in_order.shape[1])]
        return sum(ops.cast(entry <= thresholds, "int32") for entry in each)
    return _searched(in_order, thresholds, "right")


def _searched(in_order: Tensor, thresholds: Tensor, side: Side) -> Tensor:
    """Counts the entries of sorted rows below each threshold, or up to it."""
    holds = operator.lt if side == "left" else operator.le
    bisect = functools.partial(_bisected, holds, (in_order, thresholds))
    return backend.search_rows(in_order, thresholds, side, bisect)


def _bisected(holds: Matches, *pairs: Pair) -> Tensor:
    """The number of leading entries for which a comparison holds.

    Args:
        holds: function of the entries and thresholds of all pairs, as for `count`.
        *pairs: entries in the order that the comparison follows, and their thresholds.
    """
    in_order, thresholds = pairs[0]
    known = in_order.shape[1]
    digits = 30 if known is None else known.bit_length()
    start = ops.cast(ops.zeros_like(thresholds), "int32")
    # Without entries, a loop that never runs could not be compiled either.
    if known == 0:
        return start
    state = start, backend.constant(2 ** (digits - 1), start), pairs
    # Unrolled, it would be compiled for each digit.
    return ops.fori_loop(0, digits, _next_digit(holds), state)[0]


# One function for each comparison, as eager JAX compiles a new one again at each call.
@functools.cache
def _next_digit(holds: Matches) -> Callable[[Tensor, Any], Any]:
    def with_next_digit(i: Tensor, state: Any) -> Any:
        number, step, pairs = state
        size = size_of(pairs[0][0], 1)
        further = number + step
        # Beyond the end, the last entry is tested, and not counted.
        places = backend.minimum(further, size) - 1
        parts = (
            x for entries, of in pairs for x in (backend.take(entries, places), of)
        )
        goes_on = ops.logical_and(further <= size, holds(*parts))
        number = ops.where(goes_on, further, number)
        return number, ops.right_shift(step, 1), pairs

    return with_next_digit


def _is_not_before(
    entry: Tensor, threshold: Tensor, key: Tensor, own_key: Tensor
) -> Tensor:
    is_tied = ops.logical_and(entry == threshold, key <= own_key)
    return ops.logical_or(entry < threshold, is_tied)


def _is_before(
    entry: Tensor, key: Tensor, threshold: Tensor, own_key: Tensor
) -> Tensor:
    return ops.logical_and(are_ranked_as(entry, threshold), key > own_key)
