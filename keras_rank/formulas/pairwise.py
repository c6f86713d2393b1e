"""Formulas of positions and pairs."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import at_least, at_most, highest, ratio, total, where
from keras_rank.arrays.backends import Tensor, size_of, sorted_along, sorted_rows
from keras_rank.arrays.counting import counts_in_order
from keras_rank.arrays.sorting import in_order_of, inversions
from keras_rank.lists.base import LARGEST_GAIN, Lists, as_ranked
from keras_rank.lists.judged import JudgedLists, Values
from keras_rank.lists.sparse import TargetLists
from keras_rank.ordering.ranking import Ranking


def preferred(lists: Lists, threshold: float | None) -> Tensor:
    """Whether an item has a higher label than another item of its list."""
    labels = _labels_from(lists, threshold)
    lowest = -highest(-labels, keepdims=True)
    if isinstance(lists, TargetLists):
        # The other items have the label 0.
        has_others = _number_of_others(lists, labels) > 0.0
        lowest = where(has_others[:, None], 0.0, lowest)
    return ops.logical_and(lists.mask, labels > lowest)


def mean_relevant_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the average relevance position. `sum(label * rank) / sum(label)`.

    It is linear in the labels, so averaging these over ties is exact. Labels that are
    missing from the ranks belong to items without a rank.
    """
    labels = at_most(lists.labels, LARGEST_GAIN) * lists.relevance
    labels_by_rank = ranking.take(Values(labels, only_relevant=True))
    all_labels = total(labels)
    unranked = at_least(all_labels - total(labels_by_rank), 0.0)
    last = at_most(lists.sizes, ranking.cutoff + 1)
    return ratio(total(labels_by_rank * ranking.ranks) + unranked * last, all_labels)


def ordered_pairs_over_pairs(
    lists: JudgedLists, ranking: Ranking, threshold: float | None, tied_value: float
) -> Tensor:
    """The formula of pairwise accuracy. `(ordered + tied_value * tied pairs) / pairs`.

    A pair is in the right order if the higher label comes first. So its pairs are the
    inversions of the labels in the order of the scores: if tied items come with the
    lower label first, these are the ordered pairs; with the higher one first, tied
    pairs are included; and if all items are tied, all pairs are. A pair has the weight
    of its item with the higher label.
    """
    labels = _labels_from(lists, threshold)
    if isinstance(lists.lists, TargetLists):
        pairs = _pairs_of_targets(lists.lists, ranking, labels)
    else:
        scores = _scores_down_to(lists, ranking)
        pairs = _pairs(labels, scores, lists.mask, lists.weights, lists.dtype)
    ordered, ordered_or_tied, all_pairs = pairs
    correct = (1.0 - tied_value) * ordered + tied_value * ordered_or_tied
    return ratio(correct, all_pairs)


def _pairs(
    labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor | None, dtype: str
) -> list[Tensor]:
    """The weight of ordered pairs, of ordered and tied ones, and of all pairs.

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
    higher_first = where(retrieved, -labels, labels)
    best_first = where(mask, -labels, math.inf)
    return [
        _pairs_in_order(labels, weights, dtype, *keys)
        for keys in ((lower_first, scores), (higher_first, scores), (best_first,))
    ]


def _pairs_of_targets(
    lists: TargetLists, ranking: Ranking, labels: Tensor
) -> list[Tensor]:
    """The numbers of pairs among targets, and of targets with all other items.

    An item that is no target has the label 0, and forms a pair with each target.
    """
    if isinstance(ranking.cutoff, int) and ranking.cutoff < lists.items:
        raise ValueError(
            "`k` should be None for the pairs of lists that hold only the relevant "
            "items, not how many others tie below the cutoff. "
            f"Received: k={ranking.cutoff}"
        )
    placed = lists.placed
    is_target = _are_labeled(lists, labels)
    number_of_others = _number_of_others(lists, labels)[:, None]
    labels = where(is_target, labels, math.inf)
    scores = where(placed.retrieved, -placed.above, -math.inf)
    # Padding has the last place, as in a list of targets only.
    among = _pairs(
        labels, where(is_target, scores, -math.inf), is_target, None, lists.dtype
    )
    # That of items, and none is counted that stands for nothing.
    known = where(ops.logical_and(is_target, lists.can_be_found), scores, math.inf)
    targets_above, targets_from = (
        ops.cast(x, lists.dtype) for x in counts_in_order(sorted_rows(known), scores)
    )
    targets_below = size_of(labels, 1) - targets_from
    below = lists.sizes[:, None] - placed.above - placed.tied - targets_below
    tied = placed.tied - (targets_from - targets_above)
    others = number_of_others + 0.0 * below
    counts = ops.logical_and(is_target, placed.retrieved)
    ordered, ordered_or_tied, pairs = (
        ops.sum(where(which, number, 0.0), axis=1)
        for which, number in (
            (counts, below),
            (counts, below + tied),
            (is_target, others),
        )
    )
    return [
        x + y for x, y in zip(among, (ordered, ordered_or_tied, pairs), strict=True)
    ]


def _are_labeled(lists: TargetLists, labels: Tensor) -> Tensor:
    """Whether a target has a label above 0."""
    return ops.logical_and(lists.is_target, labels > 0.0)


def _number_of_others(lists: TargetLists, labels: Tensor) -> Tensor:
    """The number of items with the label 0, of shape `(batch,)`."""
    are_known = ops.logical_and(_are_labeled(lists, labels), lists.can_be_found)
    return lists.sizes - ops.sum(ops.cast(are_known, lists.dtype), axis=1)


def _pairs_in_order(
    labels: Tensor, weights: Tensor | None, dtype: str, *keys: Tensor
) -> Tensor:
    """The weight of the pairs whose higher label comes first in the order of keys."""
    if weights is not None:
        key, *before = keys
        # Finally by weight, which fixes the order of sums, as sorts may not be stable.
        order = (*(-other for other in before), key, weights)
        weights = sorted_along(weights, *order)
    return inversions(in_order_of(labels, *keys), dtype, weights)


def _labels_from(lists: Lists | JudgedLists, threshold: float | None) -> Tensor:
    """The labels, 0 below the threshold, and infinite where there is no item."""
    labels = lists.compared_labels
    if threshold is not None:
        labels = where(labels >= threshold, labels, 0.0)
    return where(lists.mask, labels, math.inf)


def _scores_down_to(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The scores, where all below the last rank are set to the highest of these."""
    scores = as_ranked(lists.scores)
    last = ranking.best(scores)[:, -1:]
    cut = ops.logical_and(scores < last, scores > -math.inf)
    below = highest(where(cut, scores, -math.inf), keepdims=True)
    return where(cut, below, scores)
