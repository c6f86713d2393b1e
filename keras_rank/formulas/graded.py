"""Formulas of graded relevance, discounted by rank."""

import math
from typing import NamedTuple

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
from keras_rank.arrays.backends import (
    Tensor,
    rounded,
    seen_maximum,
    shortcut,
    size_of,
    stable_argsort,
    take,
)
from keras_rank.arrays.chances import first_event
from keras_rank.arrays.counting import counts_in_order
from keras_rank.arrays.programs import require
from keras_rank.arrays.shared import kept
from keras_rank.arrays.sorting import Order
from keras_rank.lists.judged import JudgedLists, Values
from keras_rank.lists.sparse import Placed, TargetLists
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.ranks import RankingKind, rank_by_scores
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
        ops.all(lists.highest_labels <= max_grade),
        f"`y_true` should have labels up to `max_grade`, {max_grade}. "
        "Received: a larger label",
    )
    stops = _Stops(lists, max_grade)

    def over_ranks() -> Tensor:
        return total(first_event(ranking.take(stops)) / ranking.ranks)

    if isinstance(lists.lists, TargetLists) and ranking.averages:
        return _over_tied_targets(lists.lists.placed, ranking, stops.everywhere())
    if ranking.ties is None:
        return over_ranks()
    return shortcut(
        ranking.ties.none, over_ranks, lambda: _over_tie_groups(lists, ranking, stops)
    )


class _Stops(Values):
    """The probabilities to stop at items, `(2**grade - 1) / 2**max_grade`."""

    def __init__(self, lists: JudgedLists, max_grade: float) -> None:
        self._lists, self._max_grade, self.only_relevant = lists, max_grade, True

    @kept
    def _values(self) -> Tensor:
        return self._of(self._lists.labels, self._lists.relevance)

    def by(self, order: Order | None) -> Tensor:
        if order is None:
            return self.everywhere()
        lists = self._lists
        return self._of(lists.lists.labels_by(order), lists.gains.by(order))

    def _of(self, labels: Tensor, relevance: Tensor) -> Tensor:
        grades = at_most(labels, self._max_grade) * relevance
        return (2.0**grades - 1.0) / 2.0**self._max_grade


def _over_tie_groups(lists: JudgedLists, ranking: Ranking, values: Values) -> Tensor:
    """The mean of ERR over the orders of tied items.

    It loops to the end of the group at the cutoff, which may be that of the list.
    """
    whole = rank_by_scores(RankingKind(False, "average", None), lists.lists)
    stops = where(whole.occupied, values.by(whole.order), 0.0)
    above = whole.ranks - whole.places
    ends = where(
        above < ops.cast(ranking.cutoff, stops.dtype), above + whole.group_sizes, 0.0
    )
    items = _TiedItems(
        stops=stops,
        above=above,
        group_size=whole.group_sizes,
        so_far=whole.places,
        is_first=whole.places == 1.0,
    )
    # Without items there are no other subsets.
    passed = ops.cast(_subset_sizes(ranking, stops) == 0.0, stops.dtype)
    last = seen_maximum(ends, size_of(stops, 1))
    return _over_items(items, ranking, passed, last)


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
    targets = size_of(stops, 1)
    number = counted(1, targets, keras.backend.standardize_dtype(stops.dtype), stops)
    # The place of each target among the targets of its group.
    place, in_group = number - (targets - targets_from), targets_from - targets_after
    items = _TiedItems(
        stops=stops,
        above=above,
        group_size=tied,
        so_far=at_least(tied - in_group + place, 1.0),
        is_first=place == 1.0,
    )
    passed = ops.ones_like(_subset_sizes(ranking, stops))
    return _over_items(items, ranking, passed, targets)


class _TiedItems(NamedTuple):
    """Items in the order of their groups, as tensors of shape `(batch, items)`.

    Attributes:
        stops: the probability to stop at an item.
        above: the number of items that score higher.
        group_size: the number of items of its group.
        so_far: the number of items of its group up to this one.
        is_first: whether it is the first of its group.
    """

    stops: Tensor
    above: Tensor
    group_size: Tensor
    so_far: Tensor
    is_first: Tensor


def _over_items(
    items: _TiedItems, ranking: Ranking, passed_at_first: Tensor, last: Tensor | int
) -> Tensor:
    """Sums P(stop first at r) / r, group by group.

    Args:
        items: all items.
        ranking: the ranking, up to its cutoff.
        passed_at_first: tensor of shape `(1, cutoff + 1)`. `passed` before the first
            item of a group is added.
        last: the number of items to loop over.
    """
    subset_size = _subset_sizes(ranking, items.stops)
    last_rank = ops.cast(ranking.cutoff, items.stops.dtype)
    passed_at_first = passed_at_first + 0.0 * items.stops[:, :1]
    ones = ops.ones_like(items.stops[:, :1])
    start = (0.0 * items.stops[:, 0], ones, ones, passed_at_first)
    fixed = (subset_size, last_rank, passed_at_first, *items)
    return ops.fori_loop(0, last, _with_next_item, (*start, *fixed))[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_item(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Adds an item to its group, and the group to the value if it is the last.

    A user who reaches a group of m tied items passes its first j with probability
    `passed[j]`: the mean, over all subsets of size j, of the product of `1 - stop`. So
    the probability to stop at place j is `passed[j - 1] - passed[j]`. If the n-th item
    is added, a subset of size j contains it with probability j / n:
    `passed[j] = passed[j] (n - j) / n + passed[j - 1] (1 - stop) j / n`.
    """
    value, reached, reached_next, passed, *fixed = state
    subset_size, last_rank, passed_at_first, *items = fixed
    item = _TiedItems(*(ops.take(x, i, axis=1)[:, None] for x in items))
    passed = where(item.is_first, passed_at_first, passed)
    with_item = at_most(subset_size / item.so_far, 1.0)
    without = rounded(passed * (1.0 - with_item))
    one_less = shifted(passed, 1, 0.0)
    passed = without + rounded(one_less * (1.0 - item.stops) * with_item)
    reached_next = reached_next * (1.0 - item.stops)

    ranks = item.above + subset_size
    counts = ops.logical_and(subset_size >= 1.0, subset_size <= item.group_size)
    counts = ops.logical_and(counts, ranks <= last_rank)
    stop_first = shifted(passed, 1, 0.0) - passed
    stop_first = where(counts, stop_first / where(counts, ranks, 1.0), 0.0)
    at_end = item.so_far == item.group_size
    value = value + where(at_end[:, 0], reached[:, 0] * total(stop_first), 0.0)
    return value, where(at_end, reached_next, reached), reached_next, passed, *fixed


def _subset_sizes(ranking: Ranking, stops: Tensor) -> Tensor:
    return ops.cast(ops.arange(ranking.cutoff + 1, dtype="int32"), stops.dtype)[None, :]
