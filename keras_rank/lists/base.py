"""What lists of items are to rankings and formulas, whatever users passed."""

from typing import Any

from keras_rank.arrays.sorting import Order
from keras_rank.backends import Tensor


class Lists:
    """A batch of lists of items.

    Properties are computed once. A branch of compiled code must not be the first to ask
    for one, as it can't be used outside of it.

    Attributes:
        labels: tensor of shape `(batch, list_size)`. 0 where there is no item.
        compared_labels: the same, in float64 if that tells more of the given labels
            apart and the backend has it.
        subtopic_labels: tensor of shape `(batch, subtopics, list_size)`. The labels for
            each subtopic, as they were given. Lists without subtopics have one.
        given_subtopics: the same, or `None`.
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
        labels_to_count: the labels as they were given, below 0 or NaN where there is no
            item.
        dtype: the dtype of labels, weights and values.
        holds_targets: whether only the relevant items have labels here: all others have
            the label 0.
    """

    labels: Tensor
    compared_labels: Tensor
    subtopic_labels: Tensor
    given_subtopics: Tensor | None = None
    scores: Tensor
    mask: Tensor
    weights: Any
    sizes: Tensor
    has_items: Tensor
    highest_labels: Tensor
    retrieved: Tensor
    mean_weights: Tensor
    labels_to_count: Tensor
    dtype: Any
    holds_targets = False

    def labels_by(self, order: Order) -> Tensor:
        """Returns the labels in an order, with any value where there is no item."""
        raise NotImplementedError

    def highest_first(self, count: Tensor | int) -> Tensor:
        """Returns the highest labels of each list, below 0 where there is no item."""
        raise NotImplementedError

    def item_index(self, positions: Tensor | None) -> Tensor:
        """Returns the numbers of the items at the positions: 1, 2, ... in each list.

        They are 0 where there is no item. If positions are `None`, those of all.
        """
        raise NotImplementedError

    def number_unlabeled(self, labels: Tensor) -> Tensor:
        """Returns the number of items of lists of targets that have a label of 0."""
        raise NotImplementedError
