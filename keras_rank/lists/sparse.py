"""Lists over one catalogue, with labels for the relevant items only."""

import dataclasses
import math

import keras
from keras import ops

from keras_rank.arrays.arithmetic import highest, where
from keras_rank.arrays.backends import Tensor, as_tree
from keras_rank.arrays.selection import largest_values
from keras_rank.arrays.shared import kept
from keras_rank.lists.base import Lists, as_ranked, numbers_in_full


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class TargetLists(Lists):
    """A batch of lists over one catalogue, with labels for the relevant items only.

    `labels`, `mask` and `weights` are those of these targets, of shape
    `(batch, targets)`. Scores are none of its business.

    Attributes:
        targets: tensor of shape `(batch, targets)`. 1 where there is a target.
        is_target: boolean tensor of shape `(batch, targets)`.
        list_weights: tensor of shape `(batch, 1)`, or `None` where all weigh 1.
        ids: int tensor of shape `(batch, targets)`. The position of each target.
        can_be_found: boolean tensor of the same shape. Whether there is a target, and
            such an item.
        counts: boolean tensor of shape `(batch,)`. Whether the list counts at all.
        items: the number of items of the catalogue, an int where it is known.
    """

    targets: Tensor
    is_target: Tensor
    list_weights: Tensor | None
    ids: Tensor
    can_be_found: Tensor
    counts: Tensor
    items: Tensor | int

    labels = property(lambda self: self.targets)
    mask = property(lambda self: self.is_target)
    has_items = property(lambda self: self.counts)
    highest_labels = kept(lambda self: highest(self.targets, keepdims=True))
    dtype = property(lambda self: keras.backend.standardize_dtype(self.targets.dtype))

    def highest_first(self, count: Tensor | int) -> Tensor:
        return largest_values(self.targets, count)

    def item_numbers(self, positions: Tensor | None) -> Tensor:
        return numbers_in_full(positions, (ops.shape(self.targets)[0], self.items))

    def part(self, start: int, stop: int) -> "TargetLists":
        """Returns some of the lists."""
        names = {field.name for field in dataclasses.fields(TargetLists)} - {"items"}
        whole = {name: getattr(self, name) for name in names}
        part = {name: x if x is None else x[start:stop] for name, x in whole.items()}
        return TargetLists(**part, items=self.items)

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


@as_tree
@dataclasses.dataclass(frozen=True, eq=False)
class SparseLists(TargetLists):
    """Such lists with the scores of all items.

    Attributes:
        all_scores: tensor of shape `(batch, items)`, as given.
        given_ids: tensor of shape `(batch, targets)`, as given.
        are_ids: boolean scalar tensor. Whether there is such an item for all of them.
    """

    all_scores: Tensor
    given_ids: Tensor
    are_ids: Tensor

    scores = property(lambda self: self.all_scores)

    @kept
    def ranked_scores(self) -> Tensor:
        """The scores as they are compared, `-inf` for NaN."""
        scores = self.all_scores
        return as_ranked(where(scores > -math.inf, scores, -math.inf))

    @kept
    def retrieved(self) -> Tensor:
        return ops.sum(ops.cast(self.all_scores > -math.inf, self.dtype), axis=1)
