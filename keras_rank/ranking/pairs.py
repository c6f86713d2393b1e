"""Weights of pairs of items, by whether labels and scores order them equally."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import axis_size, cast_size
from keras_rank.arrays.counting import count_in_sorted
from keras_rank.arrays.ordering import count_inversions
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import TargetLists


def item_pair_weights(
    labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor | None, dtype: str
) -> list[Tensor]:
    """Returns the weight of ordered pairs, of ordered or tied pairs, and of all pairs.

    A pair is two items of a list with different labels. It is ordered if the item with
    the higher label has the higher score. Ordered pairs are inversions of the labels by
    rank. If the lower label precedes among tied items, only ordered pairs are
    inversions. If the higher label precedes, tied pairs are inversions too. If all
    items are tied, all pairs are inversions. The weight of a pair is the weight of its
    item with the higher label.

    Args:
        labels: tensor of shape `(batch, list_size)`, infinite for padding.
        scores: tensor of the same shape.
        mask: boolean tensor of the same shape, False for padding.
        weights: tensor of the same shape, or `None`.
        dtype: the dtype of the weights of pairs.
    """
    retrieved = scores > -math.inf
    # Padding has the highest label and is last, so it forms no pairs.
    lower_first = labels
    # Pairs of items that were not retrieved are neither ordered nor tied.
    higher_first = backend.where(retrieved, -labels, labels)
    descending = backend.where(mask, -labels, math.inf)
    return [
        _sum_pair_weights(labels, weights, dtype, *keys)
        for keys in ((-scores, lower_first), (-scores, higher_first), (descending,))
    ]


def _sum_pair_weights(
    labels: Tensor, weights: Tensor | None, dtype: str, *keys: Tensor
) -> Tensor:
    """Returns the weight of pairs whose higher label precedes in the order of keys."""
    if weights is not None:
        # Sorts may not be stable, so the weight is the last key: it fixes the order of
        # the terms of sums.
        weights = backend.sort_by_keys(weights, *keys, weights)
    return count_inversions(backend.sort_by_keys(labels, *keys), dtype, weights)


def target_pair_weights(lists: TargetLists, labels: Tensor) -> list[Tensor]:
    """Returns the number of ordered pairs, of ordered or tied pairs, and of all pairs.

    Items that are not targets have the label 0, and form a pair with each target.
    """
    counts = lists.rank_counts
    is_target = ops.logical_and(lists.mask, labels > 0.0)
    num_unlabeled = lists.count_unlabeled(labels)[:, None]
    labels = backend.where(is_target, labels, math.inf)
    scores = backend.where(counts.retrieved, -counts.above, -math.inf)
    # Padding is last, as in a list of targets only.
    target_scores = backend.where(is_target, scores, -math.inf)
    target_pairs = item_pair_weights(
        labels, target_scores, is_target, None, lists.dtype
    )
    # Targets that are not among the items get an infinite score, so that they are not
    # counted as tied or below.
    is_item = ops.logical_and(is_target, lists.is_in_catalogue)
    item_scores = backend.where(is_item, scores, math.inf)
    targets_above, targets_from = (
        ops.cast(x, lists.dtype)
        for x in count_in_sorted(backend.sort(item_scores), scores)
    )
    targets_below = cast_size(axis_size(labels, 1), lists.dtype) - targets_from
    below = lists.sizes[:, None] - counts.above - counts.tied - targets_below
    tied = counts.tied - (targets_from - targets_above)
    others = num_unlabeled + 0.0 * below
    is_counted = ops.logical_and(is_target, counts.retrieved)
    other_pairs = (
        ops.sum(backend.where(condition, number, 0.0), axis=1)
        for condition, number in (
            (is_counted, below),
            (is_counted, below + tied),
            (is_target, others),
        )
    )
    return [x + y for x, y in zip(target_pairs, other_pairs, strict=True)]
