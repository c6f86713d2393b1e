"""Counts entries by sorting rows and searching in them, in NumPy on a CPU."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_rank.backends import Array

# More threads wait for each other, as Python runs between two sorts.
_MOST_THREADS = 8
# Fewer rows take longer in another thread.
_FEW_ROWS = 64


def search(entries: Array, thresholds: Array) -> tuple[Array, Array]:
    """Counts the entries of each row above each threshold, and those equal to it.

    Args:
        entries: array of shape `(batch, size)`, without NaN.
        thresholds: array of shape `(batch, number)`. Sorted rows are searched faster.

    Returns:
        Two int32 arrays of the shape of the thresholds.
    """
    above, tied = (np.zeros(thresholds.shape, "int32") for _ in range(2))

    def search_row(i: int) -> None:
        in_order, wanted = np.sort(entries[i]), thresholds[i]
        below = in_order.searchsorted(wanted)
        # Few thresholds equal an entry, and only these are searched again.
        is_there = in_order.take(below, mode="clip") == wanted
        not_above = in_order.searchsorted(wanted[is_there], "right")
        tied[i, is_there] = not_above - below[is_there]
        above[i] = in_order.size - below
        above[i] -= tied[i]

    _for_each(search_row, len(entries))
    return above, tied


def search_before(
    entries: Array, thresholds: Array, keys: Array, own_keys: Array
) -> Array:
    """Counts the entries of each row that equal a threshold and have a larger key.

    Args:
        entries: array of shape `(batch, size)`, without NaN.
        thresholds: array of shape `(batch, number)`.
        keys: int32 array of the shape of the entries, or of one row for all.
        own_keys: int32 array of the shape of the thresholds.

    Returns:
        An int32 array of the shape of the thresholds.
    """
    before = np.zeros(thresholds.shape, "int32")
    keys = np.broadcast_to(keys, entries.shape)

    def search_row(i: int) -> None:
        distinct, which = np.unique(entries[i], return_inverse=True)
        pairs = np.sort((which << 32) + keys[i])
        wanted = distinct.searchsorted(thresholds[i])
        is_there = distinct.take(wanted, mode="clip") == thresholds[i]
        equal = pairs.searchsorted((wanted << 32) + 2**31)
        not_before = pairs.searchsorted((wanted << 32) + own_keys[i], "right")
        before[i] = np.where(is_there, equal - not_before, 0)

    _for_each(search_row, len(entries))
    return before


def _for_each(function: Callable[[int], None], number: int) -> None:
    """Calls a function for each row, in threads: NumPy sorts without Python's lock."""
    threads = min(os.cpu_count() or 1, _MOST_THREADS, -(-number // _FEW_ROWS))

    def for_some(first: int) -> None:
        for row in range(first, number, threads):
            function(row)

    if threads < 2:
        for_some(0)
        return
    # No threads are kept: forked processes would wait for them.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(for_some, range(threads)))
