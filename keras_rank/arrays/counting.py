"""Counts entries that match a threshold, instead of sorting them."""

from collections.abc import Callable

from keras import ops

from keras_rank.arrays.backends import Tensor


def count(
    entries: Tensor,
    thresholds: Tensor,
    matches: Callable[..., Tensor],
    dtype: str,
    keys: Tensor = None,
    threshold_keys: Tensor = None,
) -> Tensor:
    """Counts the entries of each row that match each threshold, one after the other.

    Args:
        entries: tensor of shape `(batch, size)`.
        thresholds: tensor of shape `(batch, number)`.
        matches: function of two such tensors, of shapes `(batch, size)` and
            `(batch, 1)`, and of the keys if there are any.
        dtype: the dtype of the counts.
        keys: tensor of shape `(batch, size)`.
        threshold_keys: tensor of shape `(batch, number)`.

    Returns:
        A tensor of shape `(batch, number)`.
    """
    number = thresholds.shape[1]
    if number is None:
        arguments = [entries[:, None, :], thresholds[:, :, None]]
        if keys is not None:
            arguments += [keys[:, None, :], threshold_keys[:, :, None]]
        return ops.sum(ops.cast(matches(*arguments), dtype), axis=2)
    if number > 1:
        parts = [slice(i, i + 1) for i in range(number)]
        counts = [
            count(
                entries,
                thresholds[:, part],
                matches,
                dtype,
                keys,
                None if keys is None else threshold_keys[:, part],
            )
            for part in parts
        ]
        return ops.concatenate(counts, axis=1)
    arguments = [entries, thresholds]
    if keys is not None:
        arguments += [keys, threshold_keys]
    return ops.sum(ops.cast(matches(*arguments), dtype), axis=1, keepdims=True)
