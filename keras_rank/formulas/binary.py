"""Formulas of binary relevance: an item is relevant or not."""

from typing import NamedTuple

from keras import ops

from keras_rank import gains
from keras_rank.arrays.arithmetic import ratio, total
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import at_ranks, geometric
from keras_rank.formulas.chances import first_success, hypergeometric
from keras_rank.formulas.graded import require_grades, share_of_ideal
from keras_rank.lists.relevance import absolute_gains
from keras_rank.ranking.judged import JudgedLists, once_for_all_cutoffs
from keras_rank.ranking.ranking import Ranking


def precisions_at_relevant_ranks(
    lists: JudgedLists, ranking: Ranking, normalizer: str
) -> Tensor:
    """The formula of average precision. `sum(weight * precision@r) / normalizer`.

    If ties are averaged, the item at place j of a group of m items, c of them relevant,
    is relevant with probability c / m. Then the expected number of relevant items above
    it is `h + (j - 1) (c - 1) / (m - 1)`, where h are above the group, whatever their
    weights. Its expected precision is that number plus one, divided by its rank.
    """
    relevant = lists.relevance_by_rank(ranking)
    found = 1.0 + hits_above(ranking, relevant)
    if normalizer == "retrieved":
        return _mean_precision_at_hits(ranking, relevant, found)
    precisions = found / ranking.ranks
    clipped = normalizer == "clipped"
    best = total(lists.ideal_gains(ranking)) if clipped else lists.relevant_weight
    # The sums may differ by a rounding error.
    return backend.minimum(
        ratio(total(lists.gains_by_rank(ranking) * precisions), best), 1.0
    )


def hits_above(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The expected number of relevant items above a rank that has a relevant item.

    `relevant` is the probability of that, of shape `(batch, depth)`.
    """
    if not ranking.averages:
        return backend.running_total(relevant) - relevant
    above_group = _hits_above_group(ranking, relevant)
    others = ops.round(relevant * ranking.group_sizes) - 1.0
    share = ratio(others, ranking.group_sizes - 1.0)
    return above_group + (ranking.places - 1.0) * share


def _hits_above_group(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items above the group of a rank: exact, as an integer."""
    return ops.round(backend.running_total(relevant) - ranking.places * relevant)


def _mean_precision_at_hits(
    ranking: Ranking, relevant: Tensor, found: Tensor
) -> Tensor:
    """`sum(precision@r over relevant ranks) / hits`, expected over the orders of ties.

    Only ties at the cutoff change the number of hits: of the m items of that group, c
    are relevant, and x of these are at its t ranks above the cutoff, by the
    hypergeometric distribution. Given x, its ranks are relevant with probability x / t,
    and the sum of their precisions is that of a group of t items.
    """
    if not ranking.averages:
        return ratio(total(relevant * found / ranking.ranks), total(relevant))
    ranks, group = ranking.ranks, group_at_cutoff(ranking, relevant)
    place = group.place
    above = total(backend.where(group.holds, 0.0, relevant))[:, None]
    sum_above = total(backend.where(group.holds, 0.0, relevant * found / ranks))
    per_hit = total(backend.where(group.holds, 1.0 / ranks, 0.0))[:, None]
    per_pair = total(backend.where(group.holds, (place - 1.0) / ranks, 0.0))[:, None]
    hits = counts_to(ranking)
    slots = group.slots
    sum_in_group = hits * (1.0 + above) * ratio(per_hit, slots)
    sum_in_group += hits * (hits - 1.0) * ratio(per_pair, slots * (slots - 1.0))
    values = ratio(sum_above[:, None] + sum_in_group, above + hits)
    chances = hypergeometric(hits, group.relevant, group.size, slots)
    return backend.minimum(total(chances * values), 1.0)


class GroupAtCutoff(NamedTuple):
    """The group of tied items at the last rank, which may continue below.

    Attributes:
        holds: boolean tensor of shape `(batch, depth)`. The ranks of the group.
        place: tensor of the same shape. The place of these ranks in it.
        size: tensor of shape `(batch, 1)`. The number of its items.
        slots: tensor of the same shape. The number of its ranks up to the cutoff.
        relevant: tensor of the same shape. The number of its relevant items.
    """

    holds: Tensor
    place: Tensor
    size: Tensor
    slots: Tensor
    relevant: Tensor


def group_at_cutoff(ranking: Ranking, relevant: Tensor) -> GroupAtCutoff:
    """Finds the group that continues beyond the last rank, of size 0 if none does.

    One that ends there has all of its items in the ranks, as if padding followed.
    """
    size, slots, chance = (
        at_last_rank(ranking, x)
        for x in (ranking.group_sizes, ranking.places, relevant)
    )
    continues = size > slots
    size, slots = (backend.where(continues, x, 0.0) for x in (size, slots))
    ranks, cutoff = ranking.ranks, backend.constant(ranking.cutoff, relevant)
    place = ranks - cutoff + slots
    holds = ops.logical_and(place > 0.0, ranks <= cutoff)
    return GroupAtCutoff(holds, place, size, slots, ops.round(chance * size))


def at_last_rank(ranking: Ranking, values_by_rank: Tensor) -> Tensor:
    """The values at the cutoff, of shape `(batch, 1)`: 0 if that rank is not listed."""
    cutoff = backend.constant(ranking.cutoff, values_by_rank)
    return total(backend.where(ranking.ranks == cutoff, values_by_rank, 0.0))[:, None]


def counts_to(ranking: Ranking) -> Tensor:
    """The possible numbers of items in the top k: 0, 1, ..., k."""
    most = ranking.ideal_ranks
    return ops.concatenate([ops.zeros_like(most[:1]), most])


def hits_over_slots(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str
) -> Tensor:
    """The formula of precision. `hits / slots`."""
    return ratio(lists.hits(ranking), slots_of_top(lists, k, denominator))


def slots_of_top(lists: JudgedLists, k: int | None, denominator: str) -> Tensor:
    """The number of ranks that a list has for its items, of shape `(batch,)`."""
    slots = lists.retrieved if denominator == "retrieved" else lists.sizes
    if k is None:
        return slots
    return (
        ops.zeros_like(slots) + k if denominator == "k" else backend.minimum(slots, k)
    )


def hits_over_relevant(
    lists: JudgedLists, ranking: Ranking, normalizer: str = "total"
) -> Tensor:
    """The formula of recall, and of fall-out. `hits / relevant items`."""
    relevant = lists.number_relevant
    if normalizer == "clipped":
        relevant = backend.minimum(relevant, ranking.cutoff)
    return ratio(lists.hits(ranking), relevant)


def hits_over_slots_and_relevant(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str, beta: float
) -> Tensor:
    """The formula of F-beta. `hits / (share * slots + (1 - share) * relevant items)`.

    `share = 1 / (1 + beta**2)`, so it is `1 / (share / P + (1 - share) / R)`. It is
    linear in the hits, so averaging these over ties is exact.
    """
    slots, relevant = slots_of_top(lists, k, denominator), lists.number_relevant
    # So that, rounded, it is never below the smaller one.
    both = relevant + (slots - relevant) * (1.0 / (1.0 + beta**2))
    return ratio(lists.hits(ranking), both)


def hits_at_relevant_count(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of R-precision. `hits in the top R / R`, linear in the hits."""
    return _mean_to_relevant_count(lists, ranking, lists.relevance_by_rank(ranking))


def precisions_to_relevant_count(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of MAP@R. `sum(relevant * precision@r for r in 1..R) / R`."""
    relevant = lists.relevance_by_rank(ranking)
    precisions = (1.0 + hits_above(ranking, relevant)) / ranking.ranks
    mean = _mean_to_relevant_count(lists, ranking, relevant * precisions)
    # Rounded, means over ties may add up to more.
    return backend.minimum(mean, 1.0)


def _mean_to_relevant_count(
    lists: JudgedLists, ranking: Ranking, by_rank: Tensor
) -> Tensor:
    """The mean of values at the first R ranks."""
    relevant = backend.minimum(lists.number_relevant, ranking.cutoff)[:, None]
    found = total(backend.where(ranking.ranks <= relevant, by_rank, 0.0))
    return ratio(found, relevant[:, 0])


def discounted_hits(
    lists: JudgedLists,
    ranking: Ranking,
    persistence: float,
    normalized: bool,
    gain_fn: gains.GainFn | None,
    max_grade: float | None,
) -> Tensor:
    """The formula of rank-biased precision. `(1 - p) * sum(relevant * p**(r - 1))`.

    With a gain function, items are as relevant as their share of the largest gain.
    """
    if max_grade is not None:
        require_grades(lists, max_grade)
    relevant, discount = lists.relevance_by_rank(ranking), geometric(persistence)
    if normalized:
        ideal = ranking.best(lists.relevance)
        return share_of_ideal(relevant, ideal, ranking, discount)
    discounts = at_ranks(discount, ranking.ranks)
    value = (1.0 - persistence) * total(relevant * discounts)
    if gain_fn is not None:
        highest = 0.0 * lists.highest_labels + max_grade
        value = ratio(value, absolute_gains(highest, None, gain_fn, None)[:, 0])
    # Rounded, the sum over many relevant items may be above 1.
    return backend.minimum(value, 1.0)


def irrelevant_above_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of bpref. `sum(1 - min(irrelevant above, M) / M) / R`.

    M is the smaller of the numbers of relevant and of irrelevant items, R and N - R.

    If ties are averaged, a relevant item has 0, 1, ... or all of the irrelevant items
    of its group above it, with equal probability. In the group at the cutoff, x
    relevant and t - x irrelevant items are at its t ranks above the cutoff, by the
    hypergeometric distribution.
    """
    number = lists.number_relevant[:, None]
    most = backend.minimum(number, lists.sizes[:, None] - number)

    def credit(above: Tensor, tied: Tensor) -> Tensor:
        """The mean of `1 - min(above + j, M) / M` over j from 0 to `tied`."""
        below = backend.maximum(backend.minimum(most - above, tied + 1.0), 0.0)
        missing = below * (most - above) - below * (below - 1.0) / 2.0
        return backend.where(most > 0.0, ratio(missing / (tied + 1.0), most), 1.0)

    relevant = lists.relevance_by_rank(ranking)
    if not ranking.averages:
        above = ranking.ranks - 1.0 - hits_above(ranking, relevant)
        nothing = ops.zeros_like(above)
        return ratio(total(relevant * credit(above, nothing)), number[:, 0])
    hits = _hits_above_group(ranking, relevant)
    above = ranking.ranks - ranking.places - hits
    group_relevant = ops.round(relevant * ranking.group_sizes)
    credits = credit(above, ranking.group_sizes - group_relevant)
    group = group_at_cutoff(ranking, relevant)
    whole = total(backend.where(group.holds, 0.0, relevant * credits))
    above, x = at_last_rank(ranking, above), counts_to(ranking)
    chances = hypergeometric(x, group.relevant, group.size, group.slots)
    of_group = total(chances * x * credit(above, backend.maximum(group.slots - x, 0.0)))
    return ratio(whole + of_group, number[:, 0])


@once_for_all_cutoffs
def first_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The probability that the first relevant item is at a rank.

    If the first j - 1 of m tied items are irrelevant, all c relevant ones are among the
    other m - j + 1, so the next one is relevant with probability c / (m - j + 1). If
    ties are broken, it is the rank at which the number of hits becomes 1.

    The shape is `(batch, depth)`.
    """
    relevant = lists.relevance_by_rank(ranking)
    if not ranking.averages:
        return backend.where(backend.running_total(relevant) == 1.0, relevant, 0.0)
    left = ranking.group_sizes - ranking.places + 1.0
    chance = backend.minimum(ops.round(relevant * ranking.group_sizes) / left, 1.0)
    return first_success(chance)


def reciprocal_of_first_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the reciprocal rank. `sum(P(first hit at r) / r)`."""
    return total(first_hit(lists, ranking) / ranking.ranks)


def any_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the hit rate. `sum(P(first hit at r))`."""
    return backend.minimum(total(first_hit(lists, ranking)), 1.0)
