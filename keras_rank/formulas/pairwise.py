"""Formulas of positions and pairs."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import highest, ratio, total
from keras_rank.arrays.limits import LARGEST_GAIN
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranking import Ranking


def preferred(lists: Lists, threshold: float | None) -> Tensor:
    """Whether an item has a higher label than another item of its list."""
    labels = _labels_from(lists, threshold)
    lowest = -highest(-labels, keepdims=True)
    if lists.holds_targets:
        has_others = lists.number_unlabeled(labels) > 0.0
        lowest = backend.where(has_others[:, None], 0.0, lowest)
    return ops.logical_and(lists.mask, labels > lowest)


def mean_relevant_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the average relevance position. `sum(label * rank) / sum(label)`.

    It is linear in the labels, so averaging these over ties is exact. Labels that are
    missing from the ranks belong to items without a rank.
    """
    labels = backend.minimum(lists.labels, LARGEST_GAIN) * lists.relevance
    labels_by_rank = ranking.take(labels)
    all_labels = total(labels)
    unranked = backend.maximum(all_labels - total(labels_by_rank), 0.0)
    last = backend.minimum(lists.sizes, ranking.cutoff + 1)
    return ratio(total(labels_by_rank * ranking.ranks) + unranked * last, all_labels)


def ordered_pairs_over_pairs(
    lists: JudgedLists, ranking: Ranking, threshold: float | None, tied_value: float
) -> Tensor:
    """The formula of pairwise accuracy. `(ordered + tied_value * tied pairs) / pairs`.

    A pair is in the right order if the higher label comes first.
    """
    labels = _labels_from(lists.lists, threshold)
    ordered, ordered_or_tied, pairs = ranking.pairs(lists.lists, labels)
    correct = (1.0 - tied_value) * ordered + tied_value * ordered_or_tied
    return ratio(correct, pairs)


def _labels_from(lists: Lists, threshold: float | None) -> Tensor:
    """The labels, 0 below the threshold, and infinite where there is no item."""
    labels = lists.compared_labels
    if threshold is not None:
        labels = backend.where(labels >= threshold, labels, 0.0)
    return backend.where(lists.mask, labels, math.inf)
