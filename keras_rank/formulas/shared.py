"""Parts of equations that several metrics share: hits by rank, slots, the ideal."""

from typing import NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import ratio, total, totals
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import DiscountFn, at_ranks
from keras_rank.formulas.chances import first_success
from keras_rank.ranking.judged import JudgedLists, once_for_all_cutoffs
from keras_rank.ranking.ranking import Ranking


def hits_above(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The expected number of relevant items above each rank that has a relevant item.

    If ties are averaged, the item at place j of a group of m items, c of them relevant,
    is relevant with probability c / m. The expected number of relevant items above it
    is then `h + (j - 1) (c - 1) / (m - 1)`, where h of them are above the group.

    Args:
        ranking: the ranking.
        relevant: tensor of shape `(batch, depth)`. The probability that the item at a
            rank is relevant.
    """
    if not ranking.averages:
        return backend.running_total(relevant) - relevant
    above_group = hits_above_group(ranking, relevant)
    others = ops.round(relevant * ranking.group_sizes) - 1.0
    share = ratio(others, ranking.group_sizes - 1.0)
    return above_group + (ranking.places - 1.0) * share


def hits_above_group(ranking: Ranking, relevant: Tensor) -> Tensor:
    """The number of relevant items above the tied group of each rank: an integer."""
    return ops.round(backend.running_total(relevant) - ranking.places * relevant)


class GroupAtCutoff(NamedTuple):
    """The group of tied items that continues below the cutoff.

    Attributes:
        holds: boolean tensor of shape `(batch, depth)`. Whether a rank is in the group.
        place: tensor of shape `(batch, depth)`. The place of the rank in the group.
        size: tensor of shape `(batch, 1)`. The number of items of the group.
        slots: tensor of shape `(batch, 1)`. The number of its ranks up to the cutoff.
        relevant: tensor of shape `(batch, 1)`. The number of its relevant items.
    """

    holds: Tensor
    place: Tensor
    size: Tensor
    slots: Tensor
    relevant: Tensor


def group_at_cutoff(ranking: Ranking, relevant: Tensor) -> GroupAtCutoff:
    """Finds the tied group that continues below the cutoff.

    Its size is 0 if no group does: all items of a group that ends at the cutoff count.
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


def slots_of_top(lists: JudgedLists, k: int | None, denominator: str) -> Tensor:
    """The number of ranks that a list has for its items, of shape `(batch,)`."""
    slots = lists.retrieved if denominator == "retrieved" else lists.sizes
    if k is None:
        return slots
    return (
        ops.zeros_like(slots) + k if denominator == "k" else backend.minimum(slots, k)
    )


def mean_to_relevant_count(
    lists: JudgedLists, ranking: Ranking, by_rank: Tensor
) -> Tensor:
    """The mean of the values at the first R ranks, where R items are relevant."""
    relevant = backend.minimum(lists.number_relevant, ranking.cutoff)[:, None]
    found = total(backend.where(ranking.ranks <= relevant, by_rank, 0.0))
    return ratio(found, relevant[:, 0])


@once_for_all_cutoffs
def first_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The probability that the first relevant item is at a rank: `(batch, depth)`.

    If ties are averaged, and the first j - 1 of m tied items are irrelevant, all c
    relevant items are among the other m - j + 1, so the next item is relevant with
    probability c / (m - j + 1). If ties are broken, the probability is 1 at the rank
    where the number of hits becomes 1.
    """
    relevant = lists.relevance_by_rank(ranking)
    if not ranking.averages:
        return backend.where(backend.running_total(relevant) == 1.0, relevant, 0.0)
    left = ranking.group_sizes - ranking.places + 1.0
    chance = backend.minimum(ops.round(relevant * ranking.group_sizes) / left, 1.0)
    return first_success(chance)


def share_of_ideal(
    gains: Tensor,
    ideal_gains: Tensor,
    ranking: Ranking,
    rank_discount_fn: DiscountFn,
) -> Tensor:
    """The sum of discounted gains, divided by the sum of discounted ideal gains."""
    by_rank = ideal = at_ranks(rank_discount_fn, ranking.ranks)
    if ranking.ideal_ranks is not ranking.ranks:
        ideal = at_ranks(rank_discount_fn, ranking.ideal_ranks)
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
