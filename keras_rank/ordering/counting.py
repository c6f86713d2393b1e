"""The ranks of a few items, by counting the items above them instead of sorting."""

from collections.abc import Callable

from keras import ops

from keras_rank.arithmetic import Tensor
from keras_rank.ordering.backends import cond


def count(
    scores: Tensor,
    target_scores: Tensor,
    matches: Callable[..., Tensor],
    dtype: str,
    keys: Tensor = None,
    target_keys: Tensor = None,
) -> Tensor:
    """Counts the items that match each target, one target after the other.

    Args:
        scores: tensor of shape `(batch, items)`.
        target_scores: tensor of shape `(batch, targets)`.
        matches: function of two such tensors, of shapes `(batch, items)` and
            `(batch, 1)`, and of the keys if there are any.
        dtype: the dtype of the counts.
        keys: tensor of shape `(batch, items)`.
        target_keys: tensor of shape `(batch, targets)`.

    Returns:
        A tensor of shape `(batch, targets)`.
    """
    targets = target_scores.shape[1]
    if targets is None:
        arguments = [scores[:, None, :], target_scores[:, :, None]]
        if keys is not None:
            arguments += [keys[:, None, :], target_keys[:, :, None]]
        return ops.sum(ops.cast(matches(*arguments), dtype), axis=2)
    counts = []
    for i in range(targets):
        arguments = [scores, target_scores[:, i : i + 1]]
        if keys is not None:
            arguments += [keys, target_keys[:, i : i + 1]]
        counts.append(ops.sum(ops.cast(matches(*arguments), dtype), axis=1))
    return ops.stack(counts, axis=1)


def tied_before(
    scores: Callable[[], Tensor],
    target_scores: Tensor,
    positions: Tensor,
    tied: Tensor,
    keys: Callable[[], Tensor],
    dtype: str,
) -> Tensor:
    """Counts the items that tie with each target and go before it, 0 if it has no tie.

    Args:
        scores: function that returns a tensor of shape `(batch, items)`.
        target_scores: tensor of shape `(batch, targets)`.
        positions: int tensor of the same shape. Where the targets are.
        tied: boolean tensor of the same shape. Whether a target ties with others.
        keys: function that returns int32 keys of shape `(batch, items)` or
            `(1, items)`: among tied items the one with the larger key goes first.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, targets)`.
    """

    def before() -> Tensor:
        item_scores = scores()
        item_keys = ops.broadcast_to(keys(), ops.shape(item_scores))
        return count(
            item_scores,
            target_scores,
            lambda s, target, key, target_key: ops.logical_and(
                s == target, key > target_key
            ),
            dtype,
            item_keys,
            ops.take_along_axis(item_keys, positions, axis=1),
        )

    none = ops.zeros_like(ops.cast(tied, dtype))
    return cond(ops.any(tied), before, lambda: none)
