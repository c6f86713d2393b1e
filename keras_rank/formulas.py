"""Parts of equations that several metrics share."""

import math
from typing import NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import (
    counted,
    highest,
    ratio,
    shifted,
    size_of,
    total,
    totals,
)
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import DiscountFn, at_ranks
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists, once_for_all_cutoffs


def first_success(chances: Tensor) -> Tensor:
    """The probability that the first of independent events is the one at each place.

    `chance[r] * product(1 - chance[s] for s < r)`

    The products are built in doubling steps, from earlier entries only, so appending
    zeros changes no bit. With `ops.cumprod` it might, which is used in a graph where
    the size is unknown.

    Args:
        chances: tensor of shape `(batch, size)`.

    Returns:
        A tensor of the same shape.
    """
    size = chances.shape[1]
    if size == 1:
        return chances
    none_yet = shifted(1.0 - chances, 1, 1.0)
    if size is None:
        return chances * ops.cumprod(none_yet, axis=1)
    step = 1
    while step < size:
        none_yet = none_yet * shifted(none_yet, step, 1.0)
        step *= 2
    return chances * none_yet


def hypergeometric(
    drawn: Tensor, marked: Tensor, size: Tensor, draws: Tensor
) -> Tensor:
    """The probabilities of the number of marked items drawn without replacement.

    From the ratio of one probability to the next: `p(x + 1) / p(x)
    = (marked - x) (draws - x) / ((x + 1) (size - marked - draws + x + 1))`.

    Args:
        drawn: tensor of one dimension: 0, 1, 2, ...
        marked: tensor of shape `(batch, 1)`. How many of the group are marked.
        size: tensor of the same shape. The size of the group.
        draws: tensor of the same shape. How many are drawn.

    Returns:
        A tensor of shape `(batch, size of drawn)`.
    """
    fewest = backend.maximum(draws - (size - marked), 0.0)
    possible = ops.logical_and(drawn >= fewest, drawn <= backend.minimum(marked, draws))
    up = (marked - drawn) * (draws - drawn)
    down = (drawn + 1.0) * (size - marked - draws + drawn + 1.0)
    log = backend.library_of(up).log
    steps = log(backend.where(up > 0.0, up, 1.0)) - log(
        backend.where(down > 0.0, down, 1.0)
    )
    logarithms = backend.running_total(backend.where(possible, steps, 0.0))
    logarithms = backend.where(possible, shifted(logarithms, 1, 0.0), -math.inf)
    return ops.softmax(logarithms, axis=1)


def mean_power_of_marked(
    base: float, marked: Tensor, size: Tensor, drawn: Tensor
) -> Tensor:
    """The mean of `base**x`, where x is the number of marked items that are drawn.

    The distribution of x is hypergeometric. One item after the other is drawn, along
    the places of a group of tied items, so that all terms stay positive.

    Args:
        base: number from 0 to 1.
        marked: tensor of shape `(batch, subtopics, depth)`. How many items are marked.
        size: tensor of shape `(batch, 1, depth)`. How many there are.
        drawn: tensor of the same shape. How many are drawn: 0, 1, 2, ... along the
            places of each group.

    Returns:
        A tensor of shape `(batch, subtopics, depth)`.
    """
    depth = size_of(marked, 2)
    none = 0.0 * marked
    index = ops.arange(depth, dtype="int32")
    fixed = (backend.constant(base, marked), marked, size, drawn, index)
    return ops.fori_loop(0, depth, _with_next_drawn, (none, none, *fixed))[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_drawn(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Adds the mean at a place, and draws the next item.

    `terms[x]` is the probability of x marked ones, times `base**x`.
    """
    means, terms, base, marked, size, drawn, index = state
    # A TPU is slow to gather.
    here, others, before = (
        ops.sum(backend.where(index == i, x, 0.0), axis=2, keepdims=True)
        for x in (marked, size, drawn)
    )
    x = ops.cast(index, terms.dtype)
    terms = backend.where(before == 0.0, ops.cast(index == 0, terms.dtype), terms)
    means = backend.where(index == i, total(terms)[..., None], means)
    left = backend.maximum(others - before, 1.0)
    chance = backend.clip((here - x) / left, 0.0, 1.0)
    one_more = backend.no_fma(shifted(terms * chance, 1, 0.0) * base)
    terms = backend.no_fma(terms * (1.0 - chance)) + one_more
    return means, terms, base, marked, size, drawn, index


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


def mean_over_shown(counts: Tensor, values: Tensor) -> Tensor:
    """The mean value of shown items. `sum(c_i * value_i) / sum(c_i)`.

    In float64, where counts and most of their sums are exact.

    Args:
        counts: int32 tensor of shape `(items,)`. How often each item is shown.
        values: tensor of the same shape.

    Returns:
        A float32 scalar tensor, 0 if nothing is shown.
    """
    with backend.quiet():
        mean = backend.in_float64(_mean, counts, values)
    return backend.where(ops.any(counts > 0), mean, 0.0)


def _mean(counts: Tensor, values: Tensor) -> Tensor:
    of = backend.library_of(counts)
    return ops.cast(of.sum(counts * values) / of.sum(counts), "float32")


@once_for_all_cutoffs
def relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The relevance of the items by rank, of shape `(batch, subtopics, depth)`."""
    return ranking.take(lists.relevance_by_subtopic)


@once_for_all_cutoffs
def weighted_relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The relevance of the items by rank, times their weights."""
    if lists.weights is None:
        return relevance_by_rank(lists, ranking)
    return ranking.take(weighted_relevance(lists))


def weighted_relevance(lists: JudgedLists) -> Tensor:
    """The relevance of the items to each subtopic, times their weights."""
    relevance = lists.relevance_by_subtopic
    return relevance if lists.weights is None else relevance * lists.weights[:, None]


def share_left(lists: JudgedLists, ranking: Ranking, alpha: float) -> Tensor:
    """The share that a relevant item at a rank still gains: `(1 - alpha)**above`.

    The number of relevant items above it is `above`. If ties are averaged, and the item
    is at place j of a group of m items, c of them relevant, `above` is the number of
    relevant items above the group, plus x. The distribution of x is hypergeometric: the
    j - 1 items before it are drawn from m - 1 others, c - 1 of which are relevant.

    The shape is `(batch, subtopics, depth)`.
    """
    relevant = relevance_by_rank(lists, ranking)
    if not ranking.averages:
        return _power(1.0 - alpha, backend.running_total(relevant) - relevant)
    sizes, places = ranking.group_sizes[:, None], ranking.places[:, None]
    above_group = ops.round(backend.running_total(relevant) - places * relevant)

    def of_group() -> Tensor:
        others = backend.maximum(ops.round(relevant * sizes) - 1.0, 0.0)
        return mean_power_of_marked(1.0 - alpha, others, sizes - 1.0, places - 1.0)

    left = _power(1.0 - alpha, above_group)
    return backend.branch(ranking.no_ties, lambda: left, lambda: left * of_group())


def _power(base: float, exponents: Tensor) -> Tensor:
    return backend.constant(base, exponents) ** exponents


def most_of_a_subtopic(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    rank_discount_fn: DiscountFn,
    k: int | None,
) -> Tensor:
    """The discounted gain of a subtopic to which all items are relevant."""
    ranks = ranking.ranks if k is None else counted(1, k, lists.dtype, like=lists.mask)
    terms = at_ranks(rank_discount_fn, ranks) * _power(1.0 - alpha, ranks - 1)
    if k is None:
        return total(backend.where(ranks <= lists.sizes[:, None], terms, 0.0))
    return total(terms[None])


def has_relevant(lists: JudgedLists) -> Tensor:
    """1 for subtopics with relevant items, else 0, of shape `(batch, subtopics)`."""
    return highest(lists.relevance_by_subtopic, axis=2)


def _row(dtype: str, *numbers: float) -> Tensor:
    return ops.convert_to_tensor([numbers], dtype)


def mean_over_subtopics(
    lists: JudgedLists, values: Tensor, subtopic_weights: tuple[float, ...] | None
) -> Tensor:
    """The weighted mean of values over the subtopics that have relevant items.

    Args:
        lists: the lists.
        values: tensor of shape `(batch, subtopics)`, 0 for all other subtopics.
        subtopic_weights: a weight for each subtopic, or `None` if all are 1.
    """
    weights = has_relevant(lists)
    if subtopic_weights is not None:
        subtopics = values.shape[1]
        if subtopics not in (None, len(subtopic_weights)):
            raise ValueError(
                "`subtopic_weights` should hold a number for each subtopic of "
                f"`y_true`, {subtopics}. Received: subtopic_weights={subtopic_weights}"
            )
        number = len(subtopic_weights)
        weights = weights * backend.made_once(
            _row, lists.dtype, *subtopic_weights, size=number, like=weights
        )
    # Rounded, the mean of shares may be above 1.
    return backend.minimum(ratio(total(weights * values), total(weights)), 1.0)
