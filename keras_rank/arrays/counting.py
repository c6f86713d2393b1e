"""Counts entries that match a threshold, instead of sorting them."""

from collections.abc import Callable

from keras import ops

from keras_rank.arrays.backends import Tensor, count_true, goes_row_by_row, row_by_row


def count(
    matches: Callable[..., Tensor],
    *pairs: tuple[Tensor, Tensor],
    dtype: str = "int32",
) -> Tensor:
    """Counts the entries of each row that match each of several thresholds.

    Args:
        matches: function of entries and thresholds of shapes that broadcast, and of
            those of further pairs.
        *pairs: pairs of entries, of shape `(batch, size)`, and of thresholds, of shape
            `(batch, number)`.
        dtype: the dtype of the counts. Float32 is exact up to 2**24.

    Returns:
        A tensor of shape `(batch, number)`.
    """
    number = pairs[0][1].shape[1]

    def at_once(*tensors: Tensor) -> Tensor:
        entries, thresholds = tensors[::2], tensors[1::2]
        parts = zip(entries, thresholds, strict=True)
        matching = matches(*(x for e, t in parts for x in (e[:, None], t[..., None])))
        return ops.sum(ops.cast(matching, dtype), axis=2)

    tensors = [x for pair in pairs for x in pair]
    if number == 1:
        return count_true(matches(*tensors), dtype)
    if number is None:
        return at_once(*tensors)
    if goes_row_by_row(tensors[0]):
        return row_by_row(at_once, *tensors)
    counts = []
    for i in range(number):
        parts = ((entries, of[:, i : i + 1]) for entries, of in pairs)
        matching = matches(*(x for part in parts for x in part))
        counts.append(count_true(matching, dtype))
    return ops.concatenate(counts, axis=1)
