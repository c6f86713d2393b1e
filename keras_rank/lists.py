"""Lists as formulas see them, and the rules of what is an item."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arithmetic import Tensor, at_most, highest, where
from keras_rank.ordering.backends import (
    cond,
    is_known_true,
    may_have_nan,
    none_below_zero,
    sum_by_row,
)
from keras_rank.ordering.selection import (
    Selection,
    candidates,
    candidates_size,
    is_long,
    largest_of,
    top_values,
    top_values_of,
)
from keras_rank.shared import Shared, kept

# Weights are cut here and gains at `LARGEST_GAIN`, so that sums of their products
# stay within float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64


class Lists(Shared):
    """A batch of lists of items, as every formula sees it.

    Attributes:
        labels: tensor of shape `(batch, list_size)`. 0 where there is no item.
        scores: tensor of shape `(batch, list_size)`. `-inf` where there is no
            item, or one that was not retrieved.
        mask: boolean tensor of shape `(batch, list_size)`. Where the items are.
        weights: tensor of shape `(batch, list_size)`, 0 where there is no item,
            or `None` where every item weighs 1.
        sizes: tensor of shape `(batch,)`. The number of items of each list.
        has_items: boolean tensor of shape `(batch,)`. Whether a list has items.
        highest_labels: tensor of shape `(batch, 1)`. The highest label of each list.
        dtype: the dtype of labels, weights and values.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor
    weights: Tensor | None
    sizes: Tensor
    has_items: Tensor
    highest_labels: Tensor
    dtype: Any

    def sum_of(
        self, function: Callable[[Tensor], Tensor], only_items: bool = False
    ) -> Tensor:
        """Returns the sum of a function of the labels, of shape `(batch,)`.

        Args:
            function: function of labels, each by itself.
            only_items: whether it is 0 for labels below 0 and NaN.
        """
        values = where(self.mask, function(self.labels), 0.0)
        return ops.sum(values, axis=1)

    def labels_at(self, positions: Tensor) -> Tensor:
        """Returns the labels of the items at the positions."""
        raise NotImplementedError

    def highest_first(self, count: Tensor | int) -> Tensor:
        """Returns the highest labels of each list, below 0 where there is no item."""
        raise NotImplementedError

    def item_numbers(self, positions: Tensor) -> Tensor:
        """Returns the numbers of the items at the positions: 1, 2, ... in each list."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Given:
    """What was given for items, and the rules of what it means.

    The rules look at each item alone, so that they may be applied to whole lists, or
    to the few items that matter.

    Attributes:
        raw_labels: tensor of shape `(batch, list_size)`.
        raw_scores: tensor of shape `(batch, list_size)`, or `None` if not asked for.
        raw_mask: boolean tensor of shape `(batch, list_size)`, or `None`.
        raw_weights: tensor of shape `(batch, list_size)`, or `None`.
        is_full: whether it is known that there is an item at every position.
    """

    raw_labels: Tensor
    raw_scores: Tensor | None
    raw_mask: Tensor | None = None
    raw_weights: Tensor | None = None
    is_full: bool = False

    @property
    def is_by_label(self) -> bool:
        """Whether the labels alone tell where there are items."""
        return self.raw_mask is None and self.raw_weights is None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Given":
        """Returns a function of each of the tensors."""
        tensors = (self.raw_labels, self.raw_scores, self.raw_mask, self.raw_weights)
        labels, scores, mask, weights = (
            None if x is None else function(x) for x in tensors
        )
        return Given(labels, scores, mask, weights, self.is_full)

    def mask(self) -> Tensor:
        """Whether there is an item."""
        # A comparison with NaN is False: a NaN label or weight makes padding.
        mask = self.raw_labels >= 0.0
        if self.raw_mask is not None:
            mask = ops.logical_and(mask, self.raw_mask)
        if self.raw_weights is not None:
            tiny = smallest_normal(self.raw_weights)
            mask = ops.logical_and(mask, self.raw_weights >= tiny)
        return mask

    def labels(self, no_item: float = 0.0) -> Tensor:
        """The labels, finite, and 0 or another number where there is no item."""
        return self._masked(_within_limits(self.raw_labels), no_item)

    def scores(self) -> Tensor:
        """The scores, `-inf` where there is no item, or one that was not retrieved."""
        return self._masked(as_ranked(self.raw_scores), float("-inf"))

    def weights(self) -> Tensor | None:
        """The weights, 0 where there is no item, `None` where every item weighs 1."""
        if self.raw_weights is None:
            return None
        return self._masked(at_most(self.raw_weights, LARGEST_WEIGHT), 0.0)

    def _masked(self, values: Tensor, no_item: float) -> Tensor:
        return values if self.is_full else where(self.mask(), values, no_item)


@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A batch of lists with a label and a score for every item.

    Long lists are not copied to mask them: what is computed of all items is computed
    where it is asked for, and in the shorter way where there is nothing to mask.

    Attributes:
        given: labels, scores, mask and weights as they were given.
    """

    given: Given

    labels = kept(lambda self: self._given.labels())
    scores = kept(lambda self: self._given.scores())
    mask = kept(lambda self: self.given.mask())
    weights = kept(lambda self: self._given.weights())

    @kept
    def _given(self) -> Given:
        """What was given, spared the mask where Python sees that nothing is masked."""
        return dataclasses.replace(self.given, is_full=is_known_true(self.full))

    @kept
    def full(self) -> Tensor:
        """Whether there is an item at every position: nothing has to be masked."""
        given, labels = self.given, self.given.raw_labels
        if not given.is_by_label or 0 in tuple(labels.shape):
            return ops.all(self.mask)
        return none_below_zero(labels)

    @kept
    def sizes(self) -> Tensor:
        def all_positions() -> Tensor:
            list_size = ops.cast(ops.shape(self.given.raw_labels)[1], self.dtype)
            return self._per_list + list_size

        def items() -> Tensor:
            return ops.sum(ops.cast(self.mask, self.dtype), axis=1)

        return cond(self.full, all_positions, items)

    @kept
    def has_items(self) -> Tensor:
        if self.given.is_by_label:
            return self._highest_raw_labels[:, 0] >= 0.0
        return self.sizes > 0.0

    @kept
    def highest_labels(self) -> Tensor:
        if not self.given.is_by_label:
            return highest(self.labels, keepdims=True)
        return _within_limits(self._highest_raw_labels)

    @kept
    def _highest_raw_labels(self) -> Tensor:
        """The highest label of each list, below 0 where there is no item."""
        labels = self.given.raw_labels
        maxima = highest(labels, keepdims=True)
        return cond(
            may_have_nan(labels, maxima),
            lambda: highest(where(labels >= 0.0, labels, -1.0), keepdims=True),
            lambda: maxima,
        )

    @property
    def _per_list(self) -> Tensor:
        """Zeros of shape `(batch,)`."""
        return ops.zeros_like(self.given.raw_labels[:, 0])

    def sum_of(
        self, function: Callable[[Tensor], Tensor], only_items: bool = False
    ) -> Tensor:
        def unmasked() -> Tensor:
            return sum_by_row(function, self.given.raw_labels)

        # Not in a branch of a graph, where XLA on CPU computes on one core.
        if only_items and self.given.is_by_label:
            return unmasked()
        return cond(
            self.full, unmasked, lambda: super(DenseLists, self).sum_of(function)
        )

    def labels_at(self, positions: Tensor) -> Tensor:
        there = self._judgements.map(
            lambda x: ops.take_along_axis(x, positions, axis=1)
        )
        return there.labels()

    def highest_first(self, count: Tensor | int) -> Tensor:
        given = self.given
        selection = Selection(
            given.raw_labels,
            self._judgements,
            lambda given: given.labels(no_item=-1.0),
            values_of=lambda raw: Given(raw, None).labels(no_item=-1.0),
        )
        if not given.is_by_label:
            selection = dataclasses.replace(
                selection,
                is_full=self.full,
                masked=lambda: where(self.mask, given.raw_labels, float("-inf")),
            )
        return top_values_of(selection, count)

    @property
    def _judgements(self) -> Given:
        """All that is given but the scores."""
        given: Given = self._given
        return dataclasses.replace(given, raw_scores=None)

    def top_scores(self, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Returns the highest scores of each list, and their positions."""
        return largest_of(self._by_score, count)

    def from_score(
        self, lowest: Tensor, count: int, are_needed: Tensor | bool = True
    ) -> "HighItems":
        """Returns the items that score so high, or higher, and others.

        Args:
            lowest: tensor of shape `(batch, 1)`. The lowest score that matters.
            count: about the number of such items in each list.
            are_needed: boolean. If they are not, they are not looked for.
        """
        raw: Tensor = self.given.raw_scores
        spare = 2 * count + 8
        if not is_long(raw, spare):
            return HighItems(self)

        def found() -> tuple[Tensor, Tensor, Tensor]:
            scores, positions, highest_other = candidates(self._by_score, spare)
            highest_other = as_ranked(highest_other)
            suffice = ops.logical_or(highest_other < lowest, lowest == float("-inf"))
            return positions, scores, ops.all(suffice)

        def not_needed() -> tuple[Tensor, Tensor, Tensor]:
            scores = raw[:, : candidates_size(raw, spare)]
            return ops.cast(ops.zeros_like(scores), "int32"), scores, ops.all(True)

        return HighItems(self, *cond(are_needed, found, not_needed))

    @property
    def _by_score(self) -> Selection:
        raw = self.given.raw_scores
        return Selection(
            raw,
            self._given,
            Given.scores,
            is_full=self.full,
            masked=lambda: where(self.mask, raw, float("-inf")),
            values_of=as_ranked,
        )

    def item_numbers(self, positions: Tensor) -> Tensor:
        def counted() -> Tensor:
            numbers = ops.cumsum(ops.cast(self.mask, "int32"), axis=1)
            return ops.take_along_axis(numbers, positions, axis=1)

        return cond(self.full, lambda: positions + 1, counted)

    @property
    def list_size(self) -> Tensor | int:
        """The size of the lists, an int where it is known."""
        return ops.shape(self.given.raw_labels)[1]

    @kept
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given.raw_labels.dtype))


@dataclasses.dataclass(frozen=True)
class HighItems:
    """The items of lists with high scores, and others.

    Attributes:
        lists: the lists.
        positions: int tensor of shape `(batch, some)`. Where these items are.
            `None` for all items.
        scores: tensor of the same shape. Their scores.
        suffice: boolean scalar tensor. Whether all that matter are among them.
    """

    lists: DenseLists
    positions: Tensor = None
    scores: Tensor = None
    suffice: Tensor = None

    def map(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Returns a function of the positions and scores of all items that matter."""

        def of_all_items() -> Tensor:
            scores = self.lists.scores
            positions = ops.arange(self.lists.list_size, dtype="int32")
            return function(ops.broadcast_to(positions, ops.shape(scores)), scores)

        if self.suffice is None:
            return of_all_items()
        return cond(
            self.suffice, lambda: function(self.positions, self.scores), of_all_items
        )


@dataclasses.dataclass(frozen=True, eq=False)
class SparseLists(Lists):
    """A batch of lists over one catalogue, of which only the relevant items are told.

    `labels`, `mask` and `weights` are those of the targets, of shape
    `(batch, targets)`; `scores` are those of all items, as given.

    Attributes:
        targets: tensor of shape `(batch, targets)`. 1 where there is a target.
        all_scores: tensor of shape `(batch, items)`.
        is_target: boolean tensor of shape `(batch, targets)`.
        target_weights: tensor of shape `(batch, targets)`, or `None`.
        ids: int tensor of shape `(batch, targets)`. The position of each target.
        in_catalogue: boolean tensor of the same shape. Whether there is such an item.
        counts: boolean tensor of shape `(batch,)`. Whether the list counts at all.
    """

    targets: Tensor
    all_scores: Tensor
    is_target: Tensor
    target_weights: Tensor | None
    ids: Tensor
    in_catalogue: Tensor
    counts: Tensor

    labels = property(lambda self: self.targets)
    scores = property(lambda self: self.all_scores)
    mask = property(lambda self: self.is_target)
    weights = property(lambda self: self.target_weights)
    has_items = property(lambda self: self.counts)
    highest_labels = kept(lambda self: highest(self.targets, keepdims=True))
    dtype = property(lambda self: keras.backend.standardize_dtype(self.targets.dtype))

    def labels_at(self, positions: Tensor) -> Tensor:
        return ops.take_along_axis(self.targets, positions, axis=1)

    def highest_first(self, count: Tensor | int) -> Tensor:
        return top_values(self.targets, count)

    def item_numbers(self, positions: Tensor) -> Tensor:
        return positions + 1

    @kept
    def ranked_scores(self) -> Tensor:
        """The scores as they are compared."""
        return as_ranked(self.all_scores)

    @kept
    def sizes(self) -> Tensor:
        size = ops.cast(ops.shape(self.scores)[1], self.dtype)
        return size * ops.ones_like(self.labels[:, 0])


def nan_not_retrieved(scores: Tensor) -> Tensor:
    """Scores with `-inf`, that of items that were not retrieved, for NaN."""
    return where(scores == scores, scores, float("-inf"))


def as_ranked(scores: Tensor) -> Tensor:
    """Scores as they are compared: `-inf` for NaN, and 0 for what is nearly 0."""
    scores = nan_not_retrieved(scores)
    # XLA tells -0.0 from 0.0, and some backends take denormal numbers for 0.
    return where(ops.abs(scores) < smallest_normal(scores), 0.0, scores)


def _within_limits(labels: Tensor) -> Tensor:
    """Cuts infinite labels, and takes denormal ones for 0, as some backends do."""
    finite = at_most(labels, float(_limits(labels).max))
    return where(labels >= smallest_normal(labels), finite, 0.0)


def _limits(x: Tensor) -> "np.finfo[Any]":
    return np.finfo(keras.backend.standardize_dtype(x.dtype))


def smallest_normal(x: Tensor) -> float:
    """The smallest number above 0 of the dtype that all backends tell from 0."""
    return float(_limits(x).smallest_normal)
