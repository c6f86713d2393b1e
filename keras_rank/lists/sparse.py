"""Lists over one catalogue, with labels for the relevant items only."""

import dataclasses
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_rank.arrays.arithmetic import highest, where
from keras_rank.arrays.backends import Tensor, as_tree, size_of, take
from keras_rank.arrays.counting import count_above_and_tied
from keras_rank.arrays.selection import largest_values
from keras_rank.arrays.shared import kept
from keras_rank.lists.base import Lists, as_ranked, numbers_in_full


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TargetLists(Lists):
    """A batch of lists over one catalogue, with labels for the relevant items only.

    `labels`, `mask` and `weights` are those of these targets, of shape
    `(batch, targets)`. It holds no scores.

    Attributes:
        targets: tensor of shape `(batch, targets)`. 1 where there is a target, or its
            label.
        wide_targets: the same in float64, if `wide_or_none`.
        is_target: boolean tensor of shape `(batch, targets)`.
        list_weights: tensor of shape `(batch, 1)`, or `None` if all are 1.
        ids: int tensor of shape `(batch, targets)`. The position of each target.
        can_be_found: boolean tensor of the same shape. Whether there is a target that
            is an item of the catalogue.
        counts: boolean tensor of shape `(batch,)`. Whether the list counts at all.
        items: the number of items of the catalogue, an int if it is known.
    """

    targets: Tensor
    wide_targets: Tensor | None
    is_target: Tensor
    list_weights: Tensor | None
    ids: Tensor
    can_be_found: Tensor
    counts: Tensor
    items: Tensor | int

    labels = property(lambda self: self.targets)
    compared_labels = property(
        lambda self: self.targets if self.wide_targets is None else self.wide_targets
    )
    mask = property(lambda self: self.is_target)
    has_items = property(lambda self: self.counts)
    highest_labels = kept(lambda self: highest(self.targets, keepdims=True))
    dtype = property(lambda self: keras.backend.standardize_dtype(self.targets.dtype))

    def highest_first(self, count: Tensor | int) -> Tensor:
        return largest_values(self.targets, count)

    def item_numbers(self, positions: Tensor | None) -> Tensor:
        return numbers_in_full(positions, (size_of(self.targets, 0), self.items))

    @property
    def placed(self) -> "Placed":
        """Where the targets stand among the scores of all items."""
        raise NotImplementedError

    def part(self, start: int, stop: int) -> "TargetLists":
        """Returns some of the lists."""
        whole = self.fields()
        items = whole.pop("items")
        part = {name: x if x is None else x[start:stop] for name, x in whole.items()}
        return TargetLists(**part, items=items)

    def fields(self) -> dict[str, Any]:
        """Returns the fields of these lists."""
        return {name: getattr(self, name) for name in _FIELDS}

    @kept
    def weights(self) -> Tensor | None:
        if self.list_weights is None:
            return None
        return where(self.is_target, self.list_weights, 0.0)

    @kept
    def mean_weights(self) -> Tensor:
        weights = 1.0 if self.list_weights is None else self.list_weights[:, 0]
        return weights * ops.cast(self.counts, self.dtype)

    @kept
    def retrieved(self) -> Tensor:
        raise ValueError(
            '`denominator` should be "available" or "k" for ranked lists that hold '
            "only the relevant items, not how many others were retrieved. "
            'Received: denominator="retrieved"'
        )

    @kept
    def sizes(self) -> Tensor:
        size = ops.cast(self.items, self.dtype)
        return size * ops.ones_like(self.labels[:, 0])


# Here, as torch.compile can't trace `dataclasses.fields`.
_FIELDS = [field.name for field in dataclasses.fields(TargetLists)]


class Placed(NamedTuple):
    """Where the targets of lists stand among the scores of all items.

    Attributes:
        above: tensor of shape `(batch, targets)`. The number of items with a higher
            score.
        tied: tensor of the same shape. That of items with the same score, the target
            among them.
        retrieved: boolean tensor of the same shape. The targets that have a rank. The
            numbers of others must not be used.
    """

    above: Tensor
    tied: Tensor
    retrieved: Tensor


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class CountedLists(TargetLists):
    """Target lists of which only the places of the targets are known.

    Attributes:
        counted: the places.
    """

    counted: Placed

    placed = property(lambda self: self.counted)


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class SparseLists(TargetLists):
    """Target lists with the scores of all items.

    Attributes:
        all_scores: tensor of shape `(batch, items)`, as given.
        given_ids: tensor of shape `(batch, targets)`, as given.
        are_ids: boolean scalar tensor. Whether all ids are valid.
    """

    all_scores: Tensor
    given_ids: Tensor
    are_ids: Tensor

    scores = property(lambda self: self.all_scores)

    @kept
    def ranked_scores(self) -> Tensor:
        """The scores for comparison, `-inf` for NaN."""
        scores = self.all_scores
        return as_ranked(where(scores > -math.inf, scores, -math.inf))

    @kept
    def target_scores(self) -> Tensor:
        """The scores of the targets for comparison, or NaN."""
        return as_ranked(take(self.all_scores, self.ids))

    @kept
    def are_retrieved(self) -> Tensor:
        """Whether a target is an item with a score."""
        return ops.logical_and(self.target_scores > -math.inf, self.can_be_found)

    @kept
    def placed(self) -> Placed:
        counts = count_above_and_tied(
            self.ranked_scores, self.target_scores, self.dtype
        )
        return Placed(*counts, self.are_retrieved)

    @kept
    def retrieved(self) -> Tensor:
        return ops.sum(ops.cast(self.all_scores > -math.inf, self.dtype), axis=1)
