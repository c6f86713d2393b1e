"""Formulas of binary relevance: an item is relevant or not."""

from keras import ops

from keras_rank.arrays.arithmetic import at_most, ratio, total, where
from keras_rank.arrays.backends import Tensor
from keras_rank.arrays.chances import first_event, hypergeometric
from keras_rank.discounts import at_ranks, geometric
from keras_rank.lists.judged import JudgedLists
from keras_rank.ordering.ranking import Ranking


def precisions_at_relevant_ranks(
    lists: JudgedLists, ranking: Ranking, normalizer: str
) -> Tensor:
    """The formula of average precision. `sum(weight * precision@r) / normalizer`.

    Where ties are averaged, the item at place j of a group of m items, c of them
    relevant, is relevant with the chance c / m. Then `h + (j - 1) (c - 1) / (m - 1)`
    relevant items are expected above it, h of them above the group, whatever their
    weights: so its expected precision is that number and itself, over its rank.
    """
    relevant = ranking.take(lists.gains)
    found = 1.0 + hits_above(ranking, relevant)
    if normalizer == "retrieved":
        return _mean_precision_at_hits(ranking, relevant, found)
    precisions = found / ranking.ranks
    gains = lists.weighted_gains
    clipped = normalizer == "clipped"
    best = total(ranking.best(gains)) if clipped else lists.relevant_weight
    # The sums may differ by a rounding error.
    return at_most(ratio(total(ranking.take(gains) * precisions), best), 1.0)


def hits_above(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items expected above a rank, if it has a relevant one.

    `relevant` is the chance that the item at each rank is, of shape `(batch, depth)`.
    """
    if not ranking.averages:
        return ops.cumsum(relevant, axis=1) - relevant
    above_group = _hits_above_group(ranking, relevant)
    others = ops.round(relevant * ranking.group_sizes) - 1.0
    share = ratio(others, ranking.group_sizes - 1.0)
    return above_group + (ranking.places - 1.0) * share


def _hits_above_group(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items above the tied items of a rank: exact, as whole."""
    return ops.round(ops.cumsum(relevant, axis=1) - ranking.places * relevant)


def _mean_precision_at_hits(
    ranking: Ranking, relevant: Tensor, found: Tensor
) -> Tensor:
    """`sum(precision@r over relevant ranks) / hits`, expected over the orders of ties.

    Of the orders of ties, only those at the cutoff change the number of hits: x of
    the c relevant items of that group of m come into its t ranks above the cutoff, by
    the hypergeometric distribution. Given x, its ranks are relevant with the chance
    x / t, and the sum of their precisions is that of a group of t items.
    """
    if not ranking.averages:
        return ratio(total(relevant * found / ranking.ranks), total(relevant))
    # The group at the cutoff: its size, its ranks above the cutoff, its relevant items.
    ranks, cutoff = ranking.ranks, ops.cast(ranking.cutoff, relevant.dtype)
    size, slots, chance = (
        total(where(ranks == cutoff, x, 0.0))[:, None]
        for x in (ranking.group_sizes, ranking.places, relevant)
    )
    group_relevant = ops.round(chance * size)
    place = ranks - cutoff + slots
    in_group = ops.logical_and(place > 0.0, ranks <= cutoff)
    above = total(where(in_group, 0.0, relevant))[:, None]
    sum_above = total(where(in_group, 0.0, relevant * found / ranks))
    per_hit = total(where(in_group, 1.0 / ranks, 0.0))[:, None]
    per_pair = total(where(in_group, (place - 1.0) / ranks, 0.0))[:, None]
    most = ranking.first_ranks
    hits = ops.concatenate([ops.zeros_like(most[:1]), most])
    sum_in_group = hits * (1.0 + above) * ratio(per_hit, slots)
    sum_in_group += hits * (hits - 1.0) * ratio(per_pair, slots * (slots - 1.0))
    values = ratio(sum_above[:, None] + sum_in_group, above + hits)
    chances = hypergeometric(hits, group_relevant, size, slots)
    return at_most(total(chances * values), 1.0)


def hits_in_top(ranking: Ranking, lists: JudgedLists) -> Tensor:
    """The number of relevant items in the top k, of shape `(batch,)`."""
    return total(ranking.take(lists.gains))


def hits_over_slots(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str
) -> Tensor:
    """The formula of precision. `hits / slots`."""
    return ratio(ranking.once(hits_in_top, lists), slots_of_top(lists, k, denominator))


def slots_of_top(lists: JudgedLists, k: int | None, denominator: str) -> Tensor:
    """The number of ranks that a list has for its items, of shape `(batch,)`."""
    sizes = lists.sizes
    if k is None:
        return sizes
    return ops.zeros_like(sizes) + k if denominator == "k" else at_most(sizes, k)


def hits_over_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of recall. `hits / relevant items`."""
    return ratio(ranking.once(hits_in_top, lists), lists.number_relevant)


def twice_hits_over_slots_and_relevant(
    lists: JudgedLists, ranking: Ranking, k: int | None, denominator: str
) -> Tensor:
    """The formula of F1. `2 * P * R / (P + R) = 2 * hits / (slots + relevant items)`.

    So it is linear in the hits, and averages over ties like them.
    """
    both = slots_of_top(lists, k, denominator) + lists.number_relevant
    return ratio(2.0 * ranking.once(hits_in_top, lists), both)


def hits_at_relevant_count(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of R-precision. `hits in the top R / R`, linear in the hits."""
    relevant = at_most(lists.number_relevant, ranking.cutoff)[:, None]
    by_rank = ranking.take(lists.gains)
    found = total(where(ranking.ranks <= relevant, by_rank, 0.0))
    return ratio(found, relevant[:, 0])


def discounted_hits(lists: JudgedLists, ranking: Ranking, persistence: float) -> Tensor:
    """The formula of rank-biased precision. `(1 - p) * sum(relevant * p**(r - 1))`."""
    discounts = at_ranks(geometric(persistence), ranking.ranks)
    return (1.0 - persistence) * total(ranking.take(lists.gains) * discounts)


def first_hit(ranking: Ranking, lists: JudgedLists) -> Tensor:
    """The chance that the first relevant item is at a rank, of shape `(batch, depth)`.

    If the j - 1 items before it in its group of m tied items are irrelevant, all c
    relevant ones are among the m - j + 1 items left: so it is one with the chance
    c / (m - j + 1). Where ties are broken, it is where the number of hits becomes 1.
    """
    relevant = ranking.take(lists.gains)
    if not ranking.averages:
        return where(ops.cumsum(relevant, axis=1) == 1.0, relevant, 0.0)
    left = ranking.group_sizes - ranking.places + 1.0
    chance = at_most(ops.round(relevant * ranking.group_sizes) / left, 1.0)
    return first_event(chance)


def reciprocal_of_first_relevant(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the reciprocal rank. `sum(chance of first hit at r / r)`."""
    return total(ranking.at_each_rank(first_hit, lists) / ranking.ranks)


def any_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of the hit rate. `sum(chance of first hit at r)`."""
    return at_most(total(ranking.at_each_rank(first_hit, lists)), 1.0)
