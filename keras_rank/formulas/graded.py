"""Formulas of graded relevance, discounted by rank."""

from keras import ops

from keras_rank import discounts
from keras_rank.arrays.arithmetic import ratio, shifted, total, totals
from keras_rank.backends import Tensor, backend
from keras_rank.formulas.chances import first_success
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranking import Ranking, TiedItems


def discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: discounts.DiscountFn
) -> Tensor:
    """The formula of DCG. `sum(weight * gain * discount) / list_weight`."""
    discounts_by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    gain = total(lists.gains_by_rank(ranking) * discounts_by_rank)
    return ratio(gain, lists.list_weights)


def normalized_discounted_gain(
    lists: JudgedLists, ranking: Ranking, rank_discount_fn: discounts.DiscountFn
) -> Tensor:
    """The formula of NDCG. `sum(gain * discount) / sum(ideal_gain * discount)`."""
    gains, ideal_gains = lists.gains_by_rank(ranking), lists.ideal_gains(ranking)
    return share_of_ideal(gains, ideal_gains, ranking, rank_discount_fn)


def share_of_ideal(
    gains: Tensor,
    ideal_gains: Tensor,
    ranking: Ranking,
    rank_discount_fn: discounts.DiscountFn,
) -> Tensor:
    """The discounted gains by rank, divided by those of the best order."""
    by_rank = ideal = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    if ranking.ideal_ranks is not ranking.ranks:
        ideal = discounts.at_ranks(rank_discount_fn, ranking.ideal_ranks)
    gain, ideal_gain = totals([gains, ideal_gains], [by_rank, ideal])
    # The mean over tied items may exceed the ideal by a rounding error.
    return backend.minimum(ratio(gain, ideal_gain), 1.0)


def require_grades(lists: JudgedLists, max_grade: float) -> None:
    """Raises for labels above the highest possible one."""
    backend.require(
        ops.all(lists.highest_labels <= max_grade),
        f"`y_true` should have labels up to `max_grade`, {max_grade}. "
        "Received: a larger label",
    )


def expected_reciprocal_of_stop(
    lists: JudgedLists, ranking: Ranking, max_grade: float
) -> Tensor:
    """The formula of ERR. `sum(P(stop first at r) / r)`."""
    require_grades(lists, max_grade)

    def stops_of(labels: Tensor, relevance: Tensor) -> Tensor:
        """The probabilities to stop at items, `(2**grade - 1) / 2**max_grade`."""
        grades = backend.minimum(labels, max_grade) * relevance
        return (2.0**grades - 1.0) / 2.0**max_grade

    if not ranking.averages:
        by_rank = ranking.take(lists.labels), lists.relevance_by_rank(ranking)
        return total(first_success(stops_of(*by_rank)) / ranking.ranks)
    stops, items = stops_of(lists.labels, lists.relevance), lists.lists
    return backend.branch(
        ranking.no_ties,
        lambda: total(first_success(ranking.in_order(stops)) / ranking.ranks),
        lambda: _over_items(ranking.tied_items(items, stops), ranking),
    )


def _over_items(items: TiedItems, ranking: Ranking) -> Tensor:
    """The mean of ERR over the orders of tied items, group by group.

    A user who reaches a group of m tied items passes its first j with probability
    `passed[j]`: the mean, over all subsets of size j, of the product of `1 - stop`. So
    the probability to stop at place j is `passed[j - 1] - passed[j]`.
    """
    stops, fixed = items.values, items[:5]
    dtype, none_yet = stops.dtype, 0.0 * stops[:, :1]
    last_rank = backend.constant(ranking.cutoff, stops)
    subset_size = ops.arange(ranking.cutoff + 1, dtype="int32")
    subset_size = ops.cast(subset_size, dtype)[None, :]
    # Items at which nobody stops are in a group before all others, or there are none:
    # then there are no other subsets than that of no item.
    is_one = subset_size >= 0.0 if items.others_first else subset_size == 0.0
    passed_at_first = ops.cast(is_one, dtype) + none_yet
    ones = 1.0 + none_yet
    start = (none_yet[:, 0], ones, ones, passed_at_first)
    state = (*start, subset_size, last_rank, passed_at_first, *fixed)
    return ops.fori_loop(0, items.last, _with_next_item, state)[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_item(i: Tensor | int, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Adds an item to its group, and the group to the value if it is the last.

    If the n-th item is added, a subset of size j contains it with probability j / n:
    `passed[j] = passed[j] (n - j) / n + passed[j - 1] (1 - stop) j / n`.
    """
    value, reached, reached_next, passed, *fixed = state
    subset_size, last_rank, passed_at_first, *items = fixed
    stop, above, group_size, so_far, is_first = (
        x[:, i : i + 1] if isinstance(i, int) else ops.take(x, i, axis=1)[:, None]
        for x in items
    )
    passed = backend.where(is_first, passed_at_first, passed)
    with_item = backend.minimum(subset_size / so_far, 1.0)
    without = backend.no_fma(passed * (1.0 - with_item))
    one_less = shifted(passed, 1, 0.0)
    passed = without + backend.no_fma(one_less * (1.0 - stop) * with_item)
    reached_next = reached_next * (1.0 - stop)

    ranks = above + subset_size
    counts = ops.logical_and(subset_size >= 1.0, subset_size <= group_size)
    counts = ops.logical_and(counts, ranks <= last_rank)
    stop_first = shifted(passed, 1, 0.0) - passed
    chances = stop_first / backend.where(counts, ranks, 1.0)
    at_end = so_far == group_size
    added = reached[:, 0] * total(backend.where(counts, chances, 0.0))
    value = value + backend.where(at_end[:, 0], added, 0.0)
    reached = backend.where(at_end, reached_next, reached)
    return value, reached, reached_next, passed, *fixed
