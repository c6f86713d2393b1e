"""What users do before and after a metric: mask, and merge."""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_rank import totals
from keras_rank.arithmetic import Tensor, where
from keras_rank.lists import to_tensor

__all__ = ["mask_labels", "merge_state"]


def mask_labels(labels: Any, mask: Any) -> Tensor:
    """Writes a mask into the labels: -1, which is no item, where it is False.

    Keras passes only labels on to the metrics of `compile`, so this is how a mask
    gets there.

    Args:
        labels: tensor of shape `(list_size,)` or `(batch, list_size)`.
        mask: tensor of the same shape. False where there is no item.

    Returns:
        A float tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> labels = keras_rank.utils.mask_labels([[2, 1, 0]], [[True, True, False]])
    >>> ops.convert_to_numpy(labels)
    array([[ 2.,  1., -1.]], dtype=float32)
    """
    labels = to_tensor("labels", labels)
    if not keras.backend.is_float_dtype(labels.dtype):
        labels = ops.cast(labels, "float32")
    mask = ops.cast(to_tensor("mask", mask), "bool")
    if tuple(mask.shape) != tuple(labels.shape):
        raise ValueError(
            "`mask` should have the same shape as `labels`. Received: "
            f"mask.shape={tuple(mask.shape)}, labels.shape={tuple(labels.shape)}"
        )
    return where(mask, labels, -1.0)


def merge_state(
    metric: keras.metrics.Metric, others: Iterable[keras.metrics.Metric]
) -> keras.metrics.Metric:
    """Adds the lists that other metrics have seen to those of a metric.

    The result is that of one metric which has seen all lists: what workers on other
    machines computed is joined exactly.

    Args:
        metric: a ranking metric, which is updated.
        others: ranking metrics of the same class and configuration.

    Returns:
        The metric.

    Raises:
        ValueError: if another metric is of another class or configuration.

    Example:

    >>> first, second = keras_rank.metrics.NDCG(seed=1), keras_rank.metrics.NDCG(seed=1)
    >>> first.update_state([[1, 0]], [[0.9, 0.1]])
    >>> second.update_state([[1, 0], [0, 0]], [[0.9, 0.1], [0.9, 0.1]])
    >>> metric = keras_rank.utils.merge_state(first, [second])
    >>> f"{float(metric.result()):.4f}"
    '0.6667'
    """
    for other in others:
        _require_alike(metric, other)
        new_values = [
            mine + theirs
            if len(mine.shape) == 0
            else totals.merge(mine, ops.convert_to_tensor(theirs))
            for mine, theirs in zip(metric.variables, other.variables, strict=True)
        ]
        for variable, value in zip(metric.variables, new_values, strict=True):
            variable.assign(value)
    return metric


def _require_alike(metric: Any, other: Any) -> None:
    """Checks that two metrics count the same; their names and seeds may differ."""
    configs = [
        {
            name: value
            for name, value in each.get_config().items()
            if name not in ("name", "seed")
        }
        for each in (metric, other)
    ]
    if type(metric) is not type(other) or configs[0] != configs[1]:
        raise ValueError(
            "`others` should be metrics of the same class and configuration as "
            f"`metric`, {type(metric).__name__} with {configs[0]}. "
            f"Received: {type(other).__name__} with {configs[1]}"
        )
