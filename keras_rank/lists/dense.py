"""Lists with a label and a score for every item."""

import dataclasses
import math

import keras
from keras import ops

from keras_rank.arrays.arithmetic import highest, ratio, total
from keras_rank.arrays.counting import count_of
from keras_rank.arrays.limits import LARGEST_WEIGHT, limits_of, within_limits
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.lists.tensors import ranked_as


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A batch of lists with a label and a score for every item.

    Attributes:
        given_labels: tensor of shape `(batch, list_size)`.
        given_scores: tensor of the same shape.
        given_mask: boolean tensor of the same shape, or `None`.
        given_weights: tensor of the same shape, or `None`.
        wide_labels: the given labels, if `wide_or_none`.
        given_subtopics: tensor of shape `(batch, subtopics, list_size)`, or `None`. The
            labels for each subtopic; that of an item is then the highest of these.
    """

    given_labels: Tensor
    given_scores: Tensor
    given_mask: Tensor | None = None
    given_weights: Tensor | None = None
    wide_labels: Tensor | None = None
    given_subtopics: Tensor | None = None

    @backend.cached_property
    def mask(self) -> Tensor:
        # A comparison with NaN is False: a NaN label or weight makes padding.
        mask = self.given_labels >= 0.0
        if self.given_mask is not None:
            mask = ops.logical_and(mask, self.given_mask)
        if self.given_weights is not None:
            tiny = limits_of(self.given_weights.dtype).smallest_normal
            mask = ops.logical_and(mask, self.given_weights >= tiny)
        return mask

    @backend.cached_property
    def masked_labels(self) -> Tensor:
        return backend.where(self.mask, self.given_labels, 0.0)

    @backend.cached_property
    def labels(self) -> Tensor:
        return within_limits(self.masked_labels)

    @backend.cached_property
    def compared_labels(self) -> Tensor:
        if self.wide_labels is None:
            return self.labels
        labels = backend.where(self.mask, ranked_as(self.wide_labels), 0.0)
        return within_limits(labels)

    @property
    def subtopic_labels(self) -> Tensor:
        if self.given_subtopics is None:
            return self.given_labels[:, None]
        return self.given_subtopics

    @backend.cached_property
    def scores(self) -> Tensor:
        scores = backend.without_nan(self.given_scores)
        return backend.where(self.mask, scores, -math.inf)

    @backend.cached_property
    def weights(self) -> Tensor | None:
        if self.given_weights is None:
            return None
        weights = backend.minimum(self.given_weights, LARGEST_WEIGHT)
        return backend.where(self.mask, weights, 0.0)

    @backend.cached_property
    def sizes(self) -> Tensor:
        return count_of(self.mask, self.dtype)

    @backend.cached_property
    def has_items(self) -> Tensor:
        return ops.any(self.mask, axis=1)

    @backend.cached_property
    def retrieved(self) -> Tensor:
        return count_of(self.scores > -math.inf, self.dtype)

    @backend.cached_property
    def mean_weights(self) -> Tensor:
        if self.weights is None:
            return ops.cast(self.has_items, self.dtype)
        return ratio(total(self.weights), self.sizes)

    @backend.cached_property
    def highest_labels(self) -> Tensor:
        return within_limits(highest(self.masked_labels, keepdims=True))

    @backend.cached_property
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given_labels.dtype))
