"""Lists with a label and a score for every item."""

import dataclasses
import math
from collections.abc import Callable

import keras
from keras import ops

from keras_rank.arrays.arithmetic import (
    at_most,
    ratio,
    running_count,
    total,
    where,
)
from keras_rank.arrays.backends import (
    Tensor,
    as_tree,
    is_read_before_copied,
    lowest,
    read_once,
    shortcut,
    size_of,
    sum_by_row,
    take,
)
from keras_rank.arrays.selection import is_long, largest_value, largest_values
from keras_rank.arrays.shared import kept
from keras_rank.arrays.sorting import Order
from keras_rank.lists.base import (
    LARGEST_WEIGHT,
    Lists,
    numbers_in_full,
    smallest_normal,
    within_limits,
    without_denormal,
)
from keras_rank.lists.tensors import ranked_as


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A batch of lists with a label and a score for every item.

    On a CPU, long or many lists without padding are not copied to mask them.

    Attributes:
        given_labels: tensor of shape `(batch, list_size)`.
        given_scores: tensor of the same shape.
        given_mask: boolean tensor of the same shape, or `None`.
        given_weights: tensor of the same shape, or `None`.
        wide_labels: the given labels, if `wide_or_none`.
    """

    given_labels: Tensor
    given_scores: Tensor
    given_mask: Tensor | None = None
    given_weights: Tensor | None = None
    wide_labels: Tensor | None = None

    @kept
    def mask(self) -> Tensor:
        # A comparison with NaN is False: a NaN label or weight makes padding.
        mask = self.given_labels >= 0.0
        if self.given_mask is not None:
            mask = ops.logical_and(mask, self.given_mask)
        if self.given_weights is not None:
            tiny = smallest_normal(self.given_weights)
            mask = ops.logical_and(mask, self.given_weights >= tiny)
        return mask

    @kept
    def labels(self) -> Tensor:
        return within_limits(self._labels_or_none)

    @kept
    def compared_labels(self) -> Tensor:
        if self.wide_labels is None:
            return self.labels
        labels = ranked_as(self.wide_labels)
        return within_limits(where(self.mask, labels, -math.inf))

    @kept
    def scores(self) -> Tensor:
        def masked() -> Tensor:
            return where(self._have_rank, self.given_scores, -math.inf)

        return shortcut(self._are_ranked, lambda: self.given_scores, masked)

    @kept
    def weights(self) -> Tensor | None:
        if self.given_weights is None:
            return None
        return where(self.mask, at_most(self.given_weights, LARGEST_WEIGHT), 0.0)

    @kept
    def sizes(self) -> Tensor:
        def items() -> Tensor:
            return ops.sum(ops.cast(self.mask, self.dtype), axis=1)

        if not self._may_stay_as_given:
            return items()
        nothing = ops.zeros_like(self.given_labels[:, 0])
        return shortcut(self.is_full, lambda: nothing + self.list_size, items)

    @kept
    def retrieved(self) -> Tensor:
        def items() -> Tensor:
            return ops.sum(ops.cast(self._have_rank, self.dtype), axis=1)

        return shortcut(self._are_ranked, lambda: self.sizes, items)

    @kept
    def mean_weights(self) -> Tensor:
        if self.weights is None:
            return ops.cast(self.has_items, self.dtype)
        return ratio(total(self.weights), self.sizes)

    @kept
    def has_items(self) -> Tensor:
        return self._highest[:, 0] >= 0.0

    @kept
    def highest_labels(self) -> Tensor:
        return within_limits(self._highest)

    @kept
    def _highest(self) -> Tensor:
        """The highest label of each list, below 0 where there is no item."""
        return self._read_labels(largest_value)

    def count(
        self, is_counted: Callable[[Tensor], Tensor], only_relevant: bool
    ) -> Tensor:
        # A label below 0, or NaN, is not relevant.
        needs_no_mask = only_relevant and self.is_by_label
        labels = self.given_labels if needs_no_mask else self._labels_or_none
        return sum_by_row(lambda row: ops.cast(is_counted(row), self.dtype), labels)

    def labels_by(self, order: Order) -> Tensor:
        return without_denormal(
            self.once(_ranked_labels, order)
            if order.keys
            else order.of(self.given_labels)
        )

    def have_rank(self, order: Order, ranks: Tensor) -> Tensor:
        """Whether there is an item at each rank, in the order of the scores."""
        if order.keys:
            return self.once(_ranked_labels, order) >= 0.0
        return ranks <= self.retrieved[:, None]

    def highest_first(self, count: Tensor | int) -> Tensor:
        return self._read_labels(lambda labels: largest_values(labels, count))

    def _read_labels(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns a function of the labels, with padding below 0."""
        if not self.is_by_label or not self._may_stay_as_given:
            return function(self._labels_or_none)
        of_given = function(self.given_labels)
        return shortcut(
            self._are_numbers,
            lambda: of_given,
            lambda: function(self._labels_or_none),
        )

    @kept
    def _labels_or_none(self) -> Tensor:
        """The labels, `-inf` where there is no item."""
        return where(self.mask, self.given_labels, -math.inf)

    @property
    def _may_stay_as_given(self) -> bool:
        """Whether lists without padding are not copied, in compiled code too."""
        labels = self.given_labels
        return is_read_before_copied(labels) or is_long(labels)

    @property
    def _have_rank(self) -> Tensor:
        """Where there is an item that was retrieved."""
        return ops.logical_and(self.mask, self.given_scores > -math.inf)

    @kept
    def _are_ranked(self) -> Tensor | bool:
        """Whether there is such an item everywhere, if scores are read first."""
        if not is_read_before_copied(self.given_labels):
            return False
        return self.is_full and read_once(lowest(self.given_scores) > -math.inf)

    @property
    def is_by_label(self) -> bool:
        """Whether the labels alone determine where there are items."""
        return self.given_mask is None and self.given_weights is None

    @kept
    def is_full(self) -> Tensor | bool:
        """Whether there is an item at every position, as far as can be seen."""
        if not self.is_by_label:
            return False
        # A comparison with NaN is False.
        return read_once(self._lowest_label >= 0.0)

    @kept
    def _are_numbers(self) -> Tensor | bool:
        """Whether no label is NaN, as far as can be seen."""
        return read_once(self._lowest_label >= -math.inf)

    @kept
    def _lowest_label(self) -> Tensor:
        """The lowest label, NaN if there may be a NaN."""
        return lowest(self.given_labels)

    def item_numbers(self, positions: Tensor | None) -> Tensor:
        def counted_items() -> Tensor:
            numbers = self._numbers
            return numbers if positions is None else take(numbers, positions)

        if not self._may_stay_as_given:
            return counted_items()
        shape = ops.shape(self.given_labels)
        return shortcut(
            self.is_full, lambda: numbers_in_full(positions, shape), counted_items
        )

    @kept
    def _numbers(self) -> Tensor:
        return running_count(self.mask)

    @property
    def list_size(self) -> Tensor | int:
        """The size of the lists, an int if it is known."""
        return size_of(self.given_labels, 1)

    @kept
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given_labels.dtype))


def _ranked_labels(lists: DenseLists, order: Order) -> Tensor:
    """The labels by rank, below 0 where a rank has no item, in one sort."""
    return order.of(where(lists.scores > -math.inf, lists.given_labels, -math.inf))
