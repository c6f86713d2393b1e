"""Counts entries that match a threshold, instead of sorting them."""

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from keras import ops

from keras_rank.arrays.backends import Tensor, count_true

# Entries, of shape `(batch, size)`, and thresholds, of shape `(batch, number)`.
Pair: TypeAlias = tuple[Tensor, Tensor]
Matches: TypeAlias = Callable[..., Tensor]


def count(
    pairs: Sequence[Pair], *comparisons: Matches, dtype: str = "int32"
) -> list[Tensor]:
    """Counts the entries of each row that match each of several thresholds.

    Args:
        pairs: entries and their thresholds, and further ones of the same shapes.
        *comparisons: functions of entries and thresholds, and of those of the further
            pairs, whose shapes broadcast: whether they match.
        dtype: the dtype of the counts. Float32 is exact up to 2**24.

    Returns:
        A tensor of shape `(batch, number)` for each comparison.
    """
    number = pairs[0][1].shape[1]
    if number is None:
        return [_count_at_once(pairs, matches, dtype) for matches in comparisons]
    conditions = [
        functools.partial(_matching, pairs, matches, i)
        for matches in comparisons
        for i in range(number)
    ]
    counts = count_true(conditions, dtype)
    if number == 1:
        return counts
    return [
        ops.concatenate(counts[first : first + number], axis=1)
        for first in range(0, len(counts), number)
    ]


def _matching(pairs: Sequence[Pair], matches: Matches, i: int) -> Tensor:
    """Whether the entries match the i-th threshold."""
    if pairs[0][1].shape[1] > 1:
        pairs = [(entries, of[:, i : i + 1]) for entries, of in pairs]
    return matches(*(x for pair in pairs for x in pair))


def _count_at_once(pairs: Sequence[Pair], matches: Matches, dtype: str) -> Tensor:
    parts = (x for entries, of in pairs for x in (entries[:, None], of[..., None]))
    return ops.sum(ops.cast(matches(*parts), dtype), axis=2)
