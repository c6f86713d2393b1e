"""Lists of items with their scores and labels: dense lists, and lists of targets."""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank.arrays.arithmetic import (
    LARGEST_WEIGHT,
    as_compared,
    highest,
    limits_of,
    ratio,
    total,
    within_limits,
)
from keras_rank.arrays.counting import count_above_and_tied, count_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.tensors import ranked_as


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
        given_list_weights: tensor of shape `(batch,)`. The weights of lists if they
            were passed per list, otherwise 1; 0 where there are no items.
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
    given_list_weights: Tensor
    dtype: Any
    holds_targets = False

    def number_unlabeled(self, labels: Tensor) -> Tensor:
        """Returns the number of items of lists of targets that have a label of 0."""
        raise NotImplementedError


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
        has_list_weights: whether weights were passed per list, not per item.
    """

    given_labels: Tensor
    given_scores: Tensor
    given_mask: Tensor | None = None
    given_weights: Tensor | None = None
    wide_labels: Tensor | None = None
    given_subtopics: Tensor | None = None
    has_list_weights: bool = False

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

    @property
    def given_list_weights(self) -> Tensor:
        if self.has_list_weights:
            return self.mean_weights
        return ops.cast(self.has_items, self.dtype)

    @backend.cached_property
    def highest_labels(self) -> Tensor:
        return within_limits(highest(self.masked_labels, keepdims=True))

    @backend.cached_property
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given_labels.dtype))


class RankCounts(NamedTuple):
    """Where the targets of lists stand among the scores of all items.

    Attributes:
        above: tensor of shape `(batch, targets)`. The number of items with a higher
            score; beyond the ranks that count, any number that is.
        tied: tensor of the same shape. That of items with the same score, the target
            among them; beyond the ranks that count, any number.
        retrieved: boolean tensor of the same shape. The targets that have a rank. The
            numbers of others must not be used.
    """

    above: Tensor
    tied: Tensor
    retrieved: Tensor


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TargetLists(Lists):
    """A batch of lists over one catalogue, with labels for the relevant items only.

    `labels`, `mask` and `weights` are those of these targets, of shape
    `(batch, targets)`. It holds no scores.

    Attributes:
        labels: tensor of shape `(batch, targets)`. 1 where there is a target, or its
            label.
        wide_labels: the same in float64, if `wide_or_none`.
        mask: boolean tensor of shape `(batch, targets)`. Where there is a target.
        list_weights: tensor of shape `(batch, 1)`, or `None` if all are 1.
        ids: int tensor of shape `(batch, targets)`. The position of each target.
        can_be_found: boolean tensor of the same shape. Whether there is a target that
            is an item of the catalogue.
        has_items: boolean tensor of shape `(batch,)`. Whether the list counts at all.
        items: the number of items of the catalogue, an int if it is known.
        counts: where the targets stand, if that is known without scores.
    """

    labels: Tensor
    wide_labels: Tensor | None
    mask: Tensor
    list_weights: Tensor | None
    ids: Tensor
    can_be_found: Tensor
    has_items: Tensor
    items: Tensor | int
    counts: RankCounts | None = None

    holds_targets = True

    @property
    def rank_counts(self) -> RankCounts:
        """Where the targets stand among the scores of all items."""
        assert self.counts is not None
        return self.counts

    @property
    def masked_labels(self) -> Tensor:
        return self.labels

    @property
    def compared_labels(self) -> Tensor:
        return self.labels if self.wide_labels is None else self.wide_labels

    @backend.cached_property
    def highest_labels(self) -> Tensor:
        return highest(self.labels, keepdims=True)

    @property
    def dtype(self) -> Any:
        return keras.backend.standardize_dtype(self.labels.dtype)

    def number_unlabeled(self, labels: Tensor) -> Tensor:
        is_labeled = ops.logical_and(self.mask, labels > 0.0)
        are_known = ops.logical_and(is_labeled, self.can_be_found)
        return self.sizes - ops.sum(ops.cast(are_known, self.dtype), axis=1)

    def part(self, start: int, stop: int) -> "TargetLists":
        """Returns some of the lists."""
        fields = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        parts = {k: x[start:stop] for k, x in fields.items() if hasattr(x, "shape")}
        return dataclasses.replace(self, **parts)

    @backend.cached_property
    def weights(self) -> Tensor | None:
        if self.list_weights is None:
            return None
        return backend.where(self.mask, self.list_weights, 0.0)

    @backend.cached_property
    def mean_weights(self) -> Tensor:
        weights = 1.0 if self.list_weights is None else self.list_weights[:, 0]
        return weights * ops.cast(self.has_items, self.dtype)

    @property
    def given_list_weights(self) -> Tensor:
        return self.mean_weights

    @property
    def retrieved(self) -> Tensor:
        raise ValueError(
            '`denominator` should be "available" or "k" for ranked lists that hold '
            "only the relevant items, not how many others were retrieved. "
            'Received: denominator="retrieved"'
        )

    @backend.cached_property
    def sizes(self) -> Tensor:
        ones = ops.ones_like(self.labels[:, 0])
        return backend.constant(self.items, ones) * ones


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SparseLists(TargetLists):
    """Target lists with the scores of all items.

    Attributes:
        scores: tensor of shape `(batch, items)`, as given.
        is_item: boolean tensor of the same shape, False at padding, or `None`.
        k: `None`, or the number of ranks that count: what has as many items above it
            is beyond them, however many these are.
    """

    scores: Tensor
    is_item: Tensor | None = None
    k: int | None = None

    @backend.cached_property
    def sizes(self) -> Tensor:
        whole = super().sizes
        return whole if self.is_item is None else count_of(self.is_item, self.dtype)

    @backend.cached_property
    def target_scores(self) -> Tensor:
        """The scores of the targets, as they are ranked."""
        return as_compared(backend.take(self.scores, self.ids))

    @backend.cached_property
    def rank_counts(self) -> RankCounts:
        above, tied = count_above_and_tied(
            self.scores, self.target_scores, self.dtype, self.k
        )
        is_scored = self.target_scores > -math.inf
        return RankCounts(above, tied, ops.logical_and(is_scored, self.can_be_found))

    @backend.cached_property
    def retrieved(self) -> Tensor:
        return count_of(self.scores > -math.inf, self.dtype)
