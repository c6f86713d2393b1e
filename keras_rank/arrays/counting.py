"""The ranks of a few items, by counting the items above them instead of sorting."""

from collections.abc import Callable

from keras import ops

from keras_rank.arrays.arithmetic import Tensor
from keras_rank.arrays.backends import take


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
    if targets > 1:
        parts = [slice(i, i + 1) for i in range(targets)]
        counts = [
            count(
                scores,
                target_scores[:, part],
                matches,
                dtype,
                keys,
                None if keys is None else target_keys[:, part],
            )
            for part in parts
        ]
        return ops.concatenate(counts, axis=1)
    arguments = [scores, target_scores]
    if keys is not None:
        arguments += [keys, target_keys]
    return ops.sum(ops.cast(matches(*arguments), dtype), axis=1, keepdims=True)


def place_among_tied(
    scores: Tensor,
    target_scores: Tensor,
    positions: Tensor,
    preference: Callable[[Tensor | None], Tensor],
    dtype: str,
) -> Tensor:
    """Returns the place of each target among the items that tie with it: 1, 2, ...

    Args:
        scores: tensor of shape `(batch, items)`.
        target_scores: tensor of shape `(batch, targets)`.
        positions: int tensor of the same shape. Where the targets are.
        preference: function from positions, or `None` for all, to int32 keys: among
            tied items the one with the larger key goes first.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, targets)`.
    """

    def goes_before(
        score: Tensor, target_score: Tensor, key: Tensor, target_key: Tensor
    ) -> Tensor:
        return ops.logical_and(score == target_score, key > target_key)

    keys = preference(None)
    target_keys = take(keys, positions)
    return 1.0 + count(scores, target_scores, goes_before, dtype, keys, target_keys)
