"""Pairs of items with different labels, by whether their scores have the same order."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import as_number, size_of
from keras_rank.arrays.counting import counts_in_order
from keras_rank.arrays.ordering import inversions
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import TargetLists


def pairs_of_items(
    labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor | None, dtype: str
) -> list[Tensor]:
    """The weight of ordered pairs, of ordered and tied ones, and of all pairs.

    The ordered pairs are the inversions of the labels in the order of the scores: if
    tied items come with the lower label first, these are the ordered pairs; with the
    higher one first, tied pairs are included; and if all items are tied, all pairs are.
    A pair has the weight of its item with the higher label.

    Args:
        labels: tensor of shape `(batch, list_size)`, infinite where there is no item.
        scores: tensor of the same shape.
        mask: boolean tensor of the same shape. Where the items are.
        weights: tensor of the same shape, or `None`.
        dtype: the dtype of the weights of pairs.
    """
    retrieved = scores > -math.inf
    # Padding has the highest label and the last place, so it forms no pairs.
    lower_first = labels
    # Items that were not retrieved are never above each other.
    higher_first = backend.where(retrieved, -labels, labels)
    best_first = backend.where(mask, -labels, math.inf)
    return [
        _pairs_in_order(labels, weights, dtype, *keys)
        for keys in ((-scores, lower_first), (-scores, higher_first), (best_first,))
    ]


def _pairs_in_order(
    labels: Tensor, weights: Tensor | None, dtype: str, *keys: Tensor
) -> Tensor:
    """The weight of the pairs whose higher label comes first in the order of keys."""
    if weights is not None:
        # Finally by weight, which fixes the order of sums, as sorts may not be stable.
        weights = backend.sort_by(weights, *keys, weights)
    return inversions(backend.sort_by(labels, *keys), dtype, weights)


def pairs_of_targets(lists: TargetLists, labels: Tensor) -> list[Tensor]:
    """The numbers of pairs among targets, and of targets with all other items.

    An item that is no target has the label 0, and forms a pair with each target.
    """
    counts = lists.rank_counts
    is_target = ops.logical_and(lists.mask, labels > 0.0)
    number_of_others = lists.number_unlabeled(labels)[:, None]
    labels = backend.where(is_target, labels, math.inf)
    scores = backend.where(counts.retrieved, -counts.above, -math.inf)
    # Padding has the last place, as in a list of targets only.
    of_targets = backend.where(is_target, scores, -math.inf)
    among = pairs_of_items(labels, of_targets, is_target, None, lists.dtype)
    # That of items, and none is counted that stands for nothing.
    are_items = ops.logical_and(is_target, lists.can_be_found)
    known = backend.where(are_items, scores, math.inf)
    targets_above, targets_from = (
        ops.cast(x, lists.dtype) for x in counts_in_order(backend.sort(known), scores)
    )
    targets_below = as_number(size_of(labels, 1), lists.dtype) - targets_from
    below = lists.sizes[:, None] - counts.above - counts.tied - targets_below
    tied = counts.tied - (targets_from - targets_above)
    others = number_of_others + 0.0 * below
    is_counted = ops.logical_and(is_target, counts.retrieved)
    with_others = (
        ops.sum(backend.where(which, number, 0.0), axis=1)
        for which, number in (
            (is_counted, below),
            (is_counted, below + tied),
            (is_target, others),
        )
    )
    return [x + y for x, y in zip(among, with_others, strict=True)]
