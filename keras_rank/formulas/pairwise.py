"""Formulas of relations: where items stand, and which stands above which."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import at_least, at_most, highest, ratio, total, where
from keras_rank.arrays.backends import Tensor
from keras_rank.arrays.sorting import in_order_of, inversions
from keras_rank.lists.base import LARGEST_GAIN, Lists
from keras_rank.lists.judged import JudgedLists, Values
from keras_rank.ordering.ranking import Ranking


def preferred(lists: Lists, threshold: float | None) -> Tensor:
    """Whether an item has a higher label than some other item of its list."""
    labels = _labels_from(lists, threshold)
    lowest = -highest(-labels, keepdims=True)
    return ops.logical_and(lists.mask, labels > lowest)


def mean_relevant_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the average relevance position. `sum(label * rank) / sum(label)`.

    It is linear in the labels, so that it averages over ties like them. The labels
    missing from the ranks are those of items that have none.
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
    lower label first, those are the ordered pairs; with the higher one first, the tied
    ones are added; and if all are tied, it is all pairs. A pair has the weight of its
    item with the higher label.
    """
    labels, scores = _labels_from(lists, threshold), _scores_down_to(lists, ranking)
    retrieved = scores > -math.inf
    # Padding has the highest label and the last place: it makes no pairs.
    lower_first = labels
    # Of items that were not retrieved, none is ever found to be above another.
    higher_first = where(retrieved, -labels, labels)
    best_first = where(lists.mask, -labels, math.inf)
    ordered, ordered_or_tied, pairs = (
        _pairs_in_order(lists, labels, *keys)
        for keys in ((lower_first, scores), (higher_first, scores), (best_first,))
    )
    return ratio((1.0 - tied_value) * ordered + tied_value * ordered_or_tied, pairs)


def _pairs_in_order(lists: JudgedLists, labels: Tensor, *keys: Tensor) -> Tensor:
    """The weight of the pairs whose higher label comes first in the order of keys."""
    weights = lists.weights
    if weights is not None:
        weights = in_order_of(weights, *keys)
    return inversions(in_order_of(labels, *keys), lists.dtype, weights)


def _labels_from(lists: Lists | JudgedLists, threshold: float | None) -> Tensor:
    """The labels, 0 below the threshold, and infinite where there is no item."""
    labels = lists.labels
    if threshold is not None:
        labels = where(labels >= threshold, labels, 0.0)
    return where(lists.mask, labels, math.inf)


def _scores_down_to(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The scores, with all those below the last rank made the highest of them."""
    last = ranking.best(lists.scores)[:, -1:]
    cut = ops.logical_and(lists.scores < last, lists.scores > -math.inf)
    below = highest(where(cut, lists.scores, -math.inf), keepdims=True)
    return where(cut, below, lists.scores)
