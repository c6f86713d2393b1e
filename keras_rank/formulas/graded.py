"""Formulas of graded relevance, discounted by rank."""

import math

import keras
from keras import ops

from keras_rank import discounts
from keras_rank.arrays.arithmetic import (
    at_least,
    at_most,
    counted,
    ratio,
    shifted,
    total,
    totals,
    where,
)
from keras_rank.arrays.backends import Tensor, rounded, shortcut, stable_argsort, take
from keras_rank.arrays.chances import first_event
from keras_rank.arrays.counting import counts_in_order
from keras_rank.arrays.programs import require
from keras_rank.lists.judged import JudgedLists, Values
from keras_rank.lists.sparse import Placed, TargetLists
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.ranks import rank_by_scores
from keras_rank.weighting import list_weights


def discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: discounts.DiscountFn
) -> Tensor:
    """The formula of DCG. `sum(weight * gain * discount) / list_weight`."""
    gains_by_rank = ranking.take(lists.weighted_gains)
    discounts_by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    return ratio(total(gains_by_rank * discounts_by_rank), lists.once(list_weights))


def normalized_discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: discounts.DiscountFn
) -> Tensor:
    """The formula of NDCG. `sum(gain * discount) / sum(ideal_gain * discount)`."""
    return share_of_ideal(lists.weighted_gains, ranking, rank_discount_fn)


def share_of_ideal(
    gains: Values, ranking: Ranking, rank_discount_fn: discounts.DiscountFn
) -> Tensor:
    """The discounted gains, divided by those of the best order."""
    gains_by_rank, ideal_gains = ranking.take(gains), ranking.best(gains)
    discounts_by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    ideal_discounts = discounts.at_ranks(rank_discount_fn, ranking.first_ranks)
    gain, ideal_gain = totals(
        gains_by_rank * discounts_by_rank, ideal_gains * ideal_discounts
    )
    # The mean over tied items may exceed the ideal by a rounding error.
    return at_most(ratio(gain, ideal_gain), 1.0)


def expected_reciprocal_of_stop(
    lists: JudgedLists, ranking: Ranking, max_grade: float
) -> Tensor:
    """The formula of ERR. `sum(P(stop first at r) / r)`."""
    require(
        ops.all(lists.labels <= max_grade),
        f"`y_true` should have labels up to `max_grade`, {max_grade}. "
        "Received: a larger label",
    )
    grades = at_most(lists.labels, max_grade) * lists.relevance
    stops = (2.0**grades - 1.0) / 2.0**max_grade

    def over_ranks() -> Tensor:
        stops_by_rank = ranking.take(Values(stops, only_relevant=True))
        return total(first_event(stops_by_rank) / ranking.ranks)

    if isinstance(lists.lists, TargetLists) and ranking.averages:
        return _over_tied_targets(lists.lists.placed, ranking, stops)
    if ranking.ties is None:
        return over_ranks()
    return shortcut(
        ranking.ties.none, over_ranks, lambda: _over_tie_groups(lists, ranking, stops)
    )


def _over_tie_groups(lists: JudgedLists, ranking: Ranking, stops: Tensor) -> Tensor:
    """The mean of ERR over the orders of tied items.

    A user who reaches a group of m tied items passes its first j with probability
    `passed[j]`: the mean, over all subsets of size j, of the product of `1 - stop`. So
    the probability to stop at place j is `passed[j - 1] - passed[j]`. If the n-th item
    is added, a subset of size j contains it with probability j / n:
    `passed[j] = passed[j] (n - j) / n + passed[j - 1] (1 - stop) j / n`.

    It loops over whole lists, as the group at the cutoff may extend to their end.
    """
    whole = rank_by_scores(lists.lists, None, "average")
    stops_by_rank = where(whole.occupied, Values(stops).by(whole.order), 0.0)
    sizes, places, depth = whole.group_sizes, whole.places, ranking.cutoff
    last_rank = ops.cast(depth, stops.dtype)
    subset_size = ops.cast(ops.arange(depth + 1, dtype="int32"), stops.dtype)[None, :]
    # The probability to pass no items is 1. Without items there are no other subsets.
    no_items = ops.cast(subset_size == 0.0, stops.dtype) + 0.0 * stops[:, :1]

    def with_next_item(
        i: Tensor, state: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value, reached, reached_next, passed = state
        item, size = ops.take(places, i, axis=1)[:, None], ops.take(sizes, i, axis=1)
        go_on = 1.0 - ops.take(stops_by_rank, i, axis=1)[:, None]
        passed = where(item == 1.0, no_items, passed)
        one_less = shifted(passed, 1, 0.0)
        with_item = at_most(subset_size / item, 1.0)
        without = rounded(passed * (1.0 - with_item))
        passed = without + rounded(one_less * go_on * with_item)
        reached_next = reached_next * go_on

        ranks = subset_size + (ops.cast(i, stops.dtype) + 1.0 - item)
        counts = ops.logical_and(subset_size >= 1.0, subset_size <= item)
        counts = ops.logical_and(counts, ranks <= last_rank)
        stop_first = shifted(passed, 1, 0.0) - passed
        stop_first = where(counts, stop_first / where(counts, ranks, 1.0), 0.0)
        at_end = item[:, 0] == size
        value = value + where(at_end, reached[:, 0] * total(stop_first), 0.0)
        reached = where(at_end[:, None], reached_next, reached)
        return value, reached, reached_next, passed

    ones = ops.ones_like(stops[:, :1])
    start = (0.0 * stops[:, 0], ones, ones, no_items)
    return ops.fori_loop(0, ops.shape(stops)[1], with_next_item, start)[0]


def _over_tied_targets(placed: Placed, ranking: Ranking, stops: Tensor) -> Tensor:
    """The same if only the targets and the numbers of their ties are known.

    A user never stops at the other items of a group, so the subsets start with these,
    and the targets are added last.
    """
    last_rank = ops.cast(ranking.cutoff, stops.dtype)
    found = ops.logical_and(placed.retrieved, placed.above < last_rank)
    above = where(found, placed.above, math.inf)
    order = stable_argsort(above)
    above, tied, stops = (
        take(x, order) for x in (above, placed.tied, where(found, stops, 0.0))
    )
    targets_after, targets_from = (
        ops.cast(x, stops.dtype) for x in counts_in_order(above, above)
    )
    targets = ops.shape(stops)[1]
    number = counted(1, targets, keras.backend.standardize_dtype(stops.dtype), stops)
    # The place of each target among the targets of its group, and whether it is last.
    place = number[None, :] - (targets - targets_from)
    in_group = targets_from - targets_after
    items_so_far = at_least(tied - in_group + place, 1.0)
    subset_size = ops.cast(ops.arange(ranking.cutoff + 1, dtype="int32"), stops.dtype)[
        None, :
    ]
    no_targets = ops.ones_like(subset_size) + 0.0 * stops[:, :1]

    def with_next_target(
        i: Tensor, state: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value, reached, reached_next, passed = state
        first, size, item, end, go_on = (
            ops.take(x, i, axis=1)[:, None]
            for x in (above, tied, items_so_far, in_group - place, 1.0 - stops)
        )
        is_first = ops.take(place, i, axis=1)[:, None] == 1.0
        passed = where(is_first, no_targets, passed)
        with_item = at_most(subset_size / item, 1.0)
        one_less = shifted(passed, 1, 0.0)
        passed = passed * (1.0 - with_item) + one_less * go_on * with_item
        reached_next = reached_next * go_on

        ranks = first + subset_size
        counts = ops.logical_and(subset_size >= 1.0, subset_size <= size)
        counts = ops.logical_and(counts, ranks <= last_rank)
        stop_first = shifted(passed, 1, 0.0) - passed
        stop_first = where(counts, stop_first / where(counts, ranks, 1.0), 0.0)
        at_end = end == 0.0
        value = value + where(at_end[:, 0], reached[:, 0] * total(stop_first), 0.0)
        return value, where(at_end, reached_next, reached), reached_next, passed

    ones = ops.ones_like(stops[:, :1])
    start = (0.0 * stops[:, 0], ones, ones, no_targets)
    return ops.fori_loop(0, targets, with_next_target, start)[0]
