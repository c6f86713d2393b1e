"""The interface of lists, and the limits of their numbers."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import at_most, where
from keras_rank.arrays.backends import Tensor
from keras_rank.arrays.shared import Shared
from keras_rank.arrays.sorting import Order

# Weights are capped here, and gains at `LARGEST_GAIN`, so that sums of their products
# stay within float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64


class Lists(Shared):
    """A batch of lists of items.

    Attributes:
        labels: tensor of shape `(batch, list_size)`. 0 where there is no item.
        compared_labels: the same, in float64 if that tells more of the given labels
            apart and the backend has it.
        scores: tensor of shape `(batch, list_size)`. `-inf` where there is no
            item, or one that was not retrieved.
        mask: boolean tensor of shape `(batch, list_size)`. Where the items are.
        weights: tensor of shape `(batch, list_size)`, 0 where there is no item,
            or `None` if every item has the weight 1.
        sizes: tensor of shape `(batch,)`. The number of items of each list.
        has_items: boolean tensor of shape `(batch,)`. Whether a list has items.
        highest_labels: tensor of shape `(batch, 1)`. The highest label of each list.
        retrieved: tensor of shape `(batch,)`. The number of items that have a rank.
        mean_weights: tensor of shape `(batch,)`. The mean weight of all items, 0 where
            there are none.
        dtype: the dtype of labels, weights and values.
    """

    labels: Tensor
    compared_labels: Tensor
    scores: Tensor
    mask: Tensor
    weights: Tensor | None
    sizes: Tensor
    has_items: Tensor
    highest_labels: Tensor
    retrieved: Tensor
    mean_weights: Tensor
    dtype: Any

    def count(
        self, is_counted: Callable[[Tensor], Tensor], only_relevant: bool
    ) -> Tensor:
        """Returns the number of items whose labels are counted, of shape `(batch,)`.

        Args:
            is_counted: function of labels.
            only_relevant: whether labels of 0 and below are not counted.
        """
        is_item_counted = ops.logical_and(self.mask, is_counted(self.labels))
        return ops.sum(ops.cast(is_item_counted, self.dtype), axis=1)

    def labels_by(self, order: Order) -> Tensor:
        """Returns the labels in an order, with any value where there is no item."""
        return order.of(self.labels)

    def highest_first(self, count: Tensor | int) -> Tensor:
        """Returns the highest labels of each list, below 0 where there is no item."""
        raise NotImplementedError

    def item_numbers(self, positions: Tensor | None) -> Tensor:
        """Returns the numbers of the items at the positions: 1, 2, ... in each list.

        They are 0 where there is no item. If positions are `None`, those of all.
        """
        raise NotImplementedError


def as_ranked(scores: Tensor) -> Tensor:
    """Scores for comparison, with denormal ones set to 0.

    XLA distinguishes -0.0 from 0.0, and some backends treat denormal numbers as 0.
    """
    return where(ops.abs(scores) < smallest_normal(scores), 0.0, scores)


def within_limits(labels: Tensor) -> Tensor:
    """Caps infinite labels, and sets denormal ones and padding to 0."""
    return at_most(without_denormal(labels), float(_limits(labels).max))


def without_denormal(labels: Tensor) -> Tensor:
    """Sets denormal labels to 0, as some backends do, and padding too."""
    return where(labels >= smallest_normal(labels), labels, 0.0)


def _limits(x: Tensor) -> "np.finfo[Any]":
    return np.finfo(keras.backend.standardize_dtype(x.dtype))


def smallest_normal(x: Tensor) -> float:
    """The smallest number of a dtype that all backends distinguish from 0."""
    return float(_limits(x).smallest_normal)


def numbers_in_full(
    positions: Tensor | None, shape: tuple[Tensor | int, ...]
) -> Tensor:
    """The numbers of items at the positions, if there is an item at each."""
    if positions is not None:
        return ops.cast(positions, "int32") + 1
    numbers = ops.arange(1, shape[1] + 1, dtype="int32")
    return ops.broadcast_to(numbers, shape)
