"""What lists of items are to rankings and formulas, whatever users passed."""

from typing import Any

from keras_rank.backends import Tensor


class Lists:
    """A batch of lists of items.

    Properties are computed once.

    Attributes:
        labels: tensor of shape `(batch, list_size)`. 0 where there is no item.
        masked_labels: the same, of any size: before `within_limits`.
        compared_labels: the same, in float64 if that tells more of the given labels
            apart and the backend has it.
        subtopic_labels: tensor of shape `(batch, subtopics, list_size)`. The labels for
            each subtopic, as they were given. Lists without subtopics have one.
        given_subtopics: the same, or `None`.
        scores: tensor of shape `(batch, list_size)`. `-inf` where there is no
            item, or one that was not retrieved. Compared by `as_ranked`.
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
        holds_targets: whether only the relevant items have labels here: all others have
            the label 0.
    """

    labels: Tensor
    masked_labels: Tensor
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
    dtype: Any
    holds_targets = False

    def number_unlabeled(self, labels: Tensor) -> Tensor:
        """Returns the number of items of lists of targets that have a label of 0."""
        raise NotImplementedError
