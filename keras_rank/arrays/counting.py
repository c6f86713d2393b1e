"""Counts entries that match a threshold, instead of sorting them."""

from collections.abc import Callable

from keras import ops

from keras_rank.arrays.backends import Tensor, count_true, goes_row_by_row, row_by_row


def count(matches: Callable[..., Tensor], *pairs: tuple[Tensor, Tensor]) -> Tensor:
    """Counts the entries of each row that match each of several thresholds.

    Args:
        matches: function of entries and thresholds of shapes that broadcast, and of
            those of further pairs.
        *pairs: pairs of entries, of shape `(batch, size)`, and of thresholds, of shape
            `(batch, number)`.

    Returns:
        An int32 tensor of shape `(batch, number)`: exact where float32 is not.
    """
    number = pairs[0][1].shape[1]

    def at_once(*tensors: Tensor) -> Tensor:
        entries, thresholds = tensors[::2], tensors[1::2]
        parts = zip(entries, thresholds, strict=True)
        matching = matches(*(x for e, t in parts for x in (e[:, None], t[..., None])))
        return ops.sum(ops.cast(matching, "int32"), axis=2)

    def each(i: int) -> Tensor:
        parts = ((entries, of[:, i : i + 1]) for entries, of in pairs)
        return count_true(matches(*(x for part in parts for x in part)))

    tensors = [x for pair in pairs for x in pair]
    if number is None:
        return at_once(*tensors)
    if number > 1 and goes_row_by_row(tensors[0]):
        return row_by_row(at_once, *tensors)
    return ops.concatenate([each(i) for i in range(number)], axis=1)
