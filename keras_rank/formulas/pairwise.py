"""Formulas of positions and pairs."""

import math
from collections.abc import Iterator

from keras import ops

from keras_rank.arrays.arithmetic import highest, ratio, total
from keras_rank.arrays.counting import count_above_and_tied
from keras_rank.arrays.limits import LARGEST_GAIN, as_ranked
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.pairs import pairs_of_items
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


def correlation_of_pairs(
    lists: JudgedLists, ranking: Ranking, threshold: float | None
) -> Tensor:
    """The formula of Kendall's tau-b, with pairs that are not tied by label or score.

    `(ordered - reversed) / sqrt(pairs by label * pairs by score)`
    """
    (labels, _), (scores, tied) = _mean_ranks(lists, threshold)
    ordered, ordered_or_tied, by_label = pairs_of_items(
        backend.where(lists.mask, -labels, math.inf),
        backend.where(lists.mask, -scores, -math.inf),
        *(lists.mask, None, lists.dtype),
    )
    others = backend.where(lists.mask, lists.sizes[:, None] - tied, 0.0)
    both = ordered + ordered_or_tied - by_label
    return _correlation(both, by_label, total(others) / 2.0)


def correlation_of_ranks(
    lists: JudgedLists, ranking: Ranking, threshold: float | None
) -> Tensor:
    """The formula of Spearman's correlation: that of Pearson, of ranks.

    `sum(x * y) / sqrt(sum(x**2) * sum(y**2))`, where x and y are ranks by label and by
    score, minus their mean.
    """
    middle = (lists.sizes[:, None] + 1.0) / 2.0
    x, y = (
        backend.where(lists.mask, ranks - middle, 0.0)
        for ranks, _ in _mean_ranks(lists, threshold)
    )
    return _correlation(total(x * y), total(x * x), total(y * y))


def _correlation(both: Tensor, of_labels: Tensor, of_scores: Tensor) -> Tensor:
    """`both / sqrt(of_labels * of_scores)`, and 0, that of chance, if all are tied."""
    # The product may be infinite.
    value = ratio(both, of_labels) * ratio(of_labels, of_scores) ** 0.5
    return backend.clip(value, -1.0, 1.0)


def _mean_ranks(
    lists: JudgedLists, threshold: float | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The ranks by label, and by score, with the number of items that are tied there.

    Tied items have the mean of their ranks. Those that were not retrieved are tied.
    """
    labels = backend.where(lists.mask, _labels_from(lists.lists, threshold), -math.inf)
    for values in (labels, as_ranked(lists.scores)):
        above, tied = count_above_and_tied(values, values, lists.dtype)
        # Padding has the score of items that were not retrieved.
        tied = backend.minimum(tied, lists.sizes[:, None] - above)
        yield above + (tied + 1.0) / 2.0, tied


def _labels_from(lists: Lists, threshold: float | None) -> Tensor:
    """The labels, 0 below the threshold, and infinite where there is no item."""
    labels = lists.compared_labels
    if threshold is not None:
        labels = backend.where(labels >= threshold, labels, 0.0)
    return backend.where(lists.mask, labels, math.inf)
