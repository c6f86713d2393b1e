"""Lists with a label and a score for every item."""

import copy
import dataclasses
import math
from collections.abc import Callable

import keras
from keras import ops

from keras_rank.arrays.arithmetic import ratio, running_count, total
from keras_rank.arrays.counting import count_of
from keras_rank.arrays.selection import is_long, largest_value, largest_values
from keras_rank.arrays.sorting import Order
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Result
from keras_rank.lists.base import Lists
from keras_rank.lists.limits import (
    LARGEST_WEIGHT,
    limits_of,
    within_limits,
    without_denormal,
)
from keras_rank.lists.tensors import ranked_as


def _lowest_label(lists: "DenseLists") -> Tensor | float:
    """The lowest label if labels alone say where items are, and are looked at.

    That is where masking would copy many: Python reads it, and compiled code has it
    for a branch. NaN where it is not looked at.
    """
    labels = lists.given_labels
    if not lists._is_by_label or backend.on_accelerator():
        return math.nan
    if backend.looks_first(labels):
        return float(ops.amin(labels))
    is_compiled = not backend.is_concrete(labels)
    return ops.amin(labels) if is_compiled and is_long(labels) else math.nan


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
    def labels(self) -> Tensor:
        return within_limits(self._labels_or_none)

    @backend.cached_property
    def compared_labels(self) -> Tensor:
        if self.wide_labels is None:
            return self.labels
        labels = ranked_as(self.wide_labels)
        return within_limits(backend.where(self.mask, labels, -math.inf))

    @property
    def subtopic_labels(self) -> Tensor:
        if self.given_subtopics is None:
            return self.given_labels[:, None]
        return self.given_subtopics

    @backend.cached_property
    def scores(self) -> Tensor:
        scores = self.given_scores
        if self.is_full is True and bool(ops.amin(scores) > -math.inf):
            return scores
        have_rank = ops.logical_and(self.mask, scores > -math.inf)
        return backend.where(have_rank, scores, -math.inf)

    @backend.cached_property
    def weights(self) -> Tensor | None:
        if self.given_weights is None:
            return None
        weights = backend.minimum(self.given_weights, LARGEST_WEIGHT)
        return backend.where(self.mask, weights, 0.0)

    @backend.cached_property
    def sizes(self) -> Tensor:
        if self.is_full is True:
            lists, list_size = self.given_labels.shape
            size = backend.constant(list_size, self.given_labels)
            return ops.broadcast_to(size, (lists,))
        return count_of(self.mask, self.dtype)

    @backend.cached_property
    def retrieved(self) -> Tensor:
        return count_of(self.scores > -math.inf, self.dtype)

    @backend.cached_property
    def mean_weights(self) -> Tensor:
        if self.weights is None:
            return ops.cast(self.has_items, self.dtype)
        return ratio(total(self.weights), self.sizes)

    @backend.cached_property
    def has_items(self) -> Tensor:
        return self._highest[:, 0] >= 0.0

    @backend.cached_property
    def highest_labels(self) -> Tensor:
        return within_limits(self._highest)

    @backend.cached_property
    def _highest(self) -> Tensor:
        """The highest label of each list, below 0 where there is no item."""
        return self._of_labels(largest_value)

    def labels_by(self, order: Order) -> Tensor:
        return without_denormal(order.of(self.labels_to_count))

    def highest_first(self, count: Tensor | int) -> Tensor:
        return self._of_labels(lambda labels: largest_values(labels, count))

    @property
    def labels_to_count(self) -> Tensor:
        return self.given_labels if self._is_by_label else self._labels_or_none

    @backend.cached_property
    def _labels_or_none(self) -> Tensor:
        """The labels, `-inf` where there is no item."""
        if self._are_numbers is True:
            return self.given_labels
        return backend.where(self.mask, self.given_labels, -math.inf)

    def _of_labels(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of the labels, which are below 0 where there is no item."""
        if isinstance(self._are_numbers, bool):
            return function(self._labels_or_none)
        found = function(self.given_labels)
        return backend.branch(
            self._are_numbers,
            lambda: found,
            lambda: function(copy.copy(self)._labels_or_none),
        )

    def of_scores(self, function: Callable[[Tensor], Result]) -> Result:
        """A function of the scores, which are `-inf` where no item has a rank."""
        if isinstance(self.is_full, bool):
            return function(self.scores)
        scores = self.given_scores
        found = function(scores)
        are_numbers = ops.logical_not(backend.may_have_nan(scores, ops.amax(scores)))
        result: Result = backend.branch(
            ops.logical_and(self.is_full, are_numbers),
            lambda: found,
            lambda: function(copy.copy(self).scores),
        )
        return result

    _lowest_label = backend.cached_property(_lowest_label)

    @property
    def _is_by_label(self) -> bool:
        """Whether labels alone say where there are items."""
        return self.given_mask is None and self.given_weights is None

    @backend.cached_property
    def is_full(self) -> Tensor | bool:
        """Whether there is an item at every position, as far as it is looked at."""
        full = self._lowest_label >= 0.0
        return full if isinstance(full, bool) else full & self._are_numbers

    @backend.cached_property
    def _are_numbers(self) -> Tensor | bool:
        """Whether labels alone are looked at, and none is NaN."""
        lowest = self._lowest_label
        if isinstance(lowest, float):
            return lowest >= -math.inf
        return ops.logical_not(backend.may_have_nan(self.given_labels, lowest))

    def item_index(self, positions: Tensor | None) -> Tensor:
        def counted() -> Tensor:
            index = running_count(copy.copy(self).mask)
            return index if positions is None else backend.take(index, positions)

        shape = ops.shape(self.given_labels)
        return backend.branch(
            self.is_full, lambda: index_of_all(positions, shape), counted
        )

    @backend.cached_property
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given_labels.dtype))


def index_of_all(positions: Tensor | None, shape: tuple[Tensor | int, ...]) -> Tensor:
    """The numbers of the items at the positions, if there is an item at each."""
    if positions is not None:
        return ops.cast(positions, "int32") + 1
    index = ops.arange(1, shape[1] + 1, dtype="int32")
    return ops.broadcast_to(index, shape)
