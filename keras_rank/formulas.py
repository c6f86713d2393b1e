"""Formulas that several metrics share."""

import math
from typing import NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import (
    axis_size,
    inclusive_range,
    max_over_axis,
    ratio,
    shift_right,
    total,
    totals,
)
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import DiscountFn, compute_discounts
from keras_rank.gains import ByLabel
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists, cache_for_all_cutoffs


def first_success(chances: Tensor) -> Tensor:
    """Returns the probability of each independent event to be the first that occurs.

    `chance[r] * product(1 - chance[s] for s < r)`

    The products are computed in doubling steps, from earlier entries only, so appending
    zeros does not change any bit. `ops.cumprod` does not guarantee this, so it is used
    only in a graph where the size is unknown.

    Args:
        chances: tensor of shape `(batch, size)`. The probabilities of the events.

    Returns:
        A tensor of the same shape.
    """
    size = chances.shape[1]
    if size == 1:
        return chances
    none_yet = shift_right(1.0 - chances, 1, 1.0)
    if size is None:
        return chances * ops.cumprod(none_yet, axis=1)
    step = 1
    while step < size:
        none_yet = none_yet * shift_right(none_yet, step, 1.0)
        step *= 2
    return chances * none_yet


def hypergeometric(
    drawn: Tensor, marked: Tensor, size: Tensor, draws: Tensor
) -> Tensor:
    """Returns the probability of each number of marked items in draws from a group.

    Items are drawn without replacement. The probabilities follow from the ratio of each
    probability to the previous one: `p(x + 1) / p(x)
    = (marked - x) (draws - x) / ((x + 1) (size - marked - draws + x + 1))`.

    Args:
        drawn: tensor of one dimension. The numbers of marked items: 0, 1, 2, ...
        marked: tensor of shape `(batch, 1)`. The number of marked items of the group.
        size: tensor of the same shape. The number of items of the group.
        draws: tensor of the same shape. The number of drawn items.

    Returns:
        A tensor of shape `(batch, size of drawn)`.
    """
    fewest = backend.maximum(draws - (size - marked), 0.0)
    possible = ops.logical_and(drawn >= fewest, drawn <= backend.minimum(marked, draws))
    numerator = (marked - drawn) * (draws - drawn)
    denominator = (drawn + 1.0) * (size - marked - draws + drawn + 1.0)
    log = backend.get_library(numerator).log
    steps = log(backend.where(numerator > 0.0, numerator, 1.0)) - log(
        backend.where(denominator > 0.0, denominator, 1.0)
    )
    logarithms = backend.running_total(backend.where(possible, steps, 0.0))
    logarithms = backend.where(possible, shift_right(logarithms, 1, 0.0), -math.inf)
    return ops.softmax(logarithms, axis=1)


def mean_power_of_marked(
    base: float, marked: Tensor, size: Tensor, drawn: Tensor
) -> Tensor:
    """Returns the mean of `base**x`, where x is the number of marked items drawn.

    The distribution of x is hypergeometric. A loop draws one item after the other,
    along the positions in a group of tied items, so that no term is negative.

    Args:
        base: number from 0 to 1.
        marked: tensor of shape `(batch, subtopics, depth)`. The number of marked items.
        size: tensor of shape `(batch, 1, depth)`. The number of items.
        drawn: tensor of the same shape. The number of drawn items: 0, 1, 2, ... along
            the positions in each group.

    Returns:
        A tensor of shape `(batch, subtopics, depth)`.
    """
    depth = axis_size(marked, 2)
    zeros = 0.0 * marked
    index = ops.arange(depth, dtype="int32")
    fixed = (backend.constant(base, marked), marked, size, drawn, index)
    return ops.fori_loop(0, depth, _draw_next, (zeros, zeros, *fixed))[0]


# A module-level function, as eager JAX would compile a closure again at each call.
def _draw_next(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Sets the mean at index `i`, and draws the next item.

    `terms[x]` is the probability that x marked items are drawn, times `base**x`.
    """
    means, terms, base, marked, size, drawn, index = state
    # A masked sum selects the entry, as gathering is slow on a TPU.
    num_marked, num_items, num_drawn = (
        ops.sum(backend.where(index == i, x, 0.0), axis=2, keepdims=True)
        for x in (marked, size, drawn)
    )
    x = ops.cast(index, terms.dtype)
    terms = backend.where(num_drawn == 0.0, ops.cast(index == 0, terms.dtype), terms)
    means = backend.where(index == i, total(terms)[..., None], means)
    num_left = backend.maximum(num_items - num_drawn, 1.0)
    chance = backend.clip((num_marked - x) / num_left, 0.0, 1.0)
    one_more = backend.no_fma(shift_right(terms * chance, 1, 0.0) * base)
    terms = backend.no_fma(terms * (1.0 - chance)) + one_more
    return means, terms, base, marked, size, drawn, index


def hits_above(ranking: Ranking, relevant: Tensor) -> Tensor:
    """Returns the expected number of relevant items above each rank.

    The expectation assumes a relevant item at the rank. If ties are averaged, the item
    at position j of a group of m tied items, c of which are relevant, is relevant with
    probability c / m. If it is relevant, the expected number of relevant items above it
    is `h + (j - 1) (c - 1) / (m - 1)`, where h is the number above the group.

    Args:
        ranking: the ranking.
        relevant: tensor of shape `(batch, depth)`. The probability that the item at a
            rank is relevant.
    """
    if not ranking.averages:
        return backend.running_total(relevant) - relevant
    above_group = hits_above_group(ranking, relevant)
    other_relevant = ops.round(relevant * ranking.group_sizes) - 1.0
    share = ratio(other_relevant, ranking.group_sizes - 1.0)
    return above_group + (ranking.places - 1.0) * share


def hits_above_group(ranking: Ranking, relevant: Tensor) -> Tensor:
    """Returns the number of relevant items above the tied group of each rank."""
    return ops.round(backend.running_total(relevant) - ranking.places * relevant)


class GroupAtCutoff(NamedTuple):
    """The group of tied items that continues below the cutoff.

    Attributes:
        holds: boolean tensor of shape `(batch, depth)`. Whether a rank is in the group.
        place: tensor of shape `(batch, depth)`. The position of the rank in the group,
            from 1.
        size: tensor of shape `(batch, 1)`. The number of items of the group.
        slots: tensor of shape `(batch, 1)`. The number of ranks of the group up to the
            cutoff.
        relevant: tensor of shape `(batch, 1)`. The number of relevant items of the
            group.
    """

    holds: Tensor
    place: Tensor
    size: Tensor
    slots: Tensor
    relevant: Tensor


def group_at_cutoff(ranking: Ranking, relevant: Tensor) -> GroupAtCutoff:
    """Finds the tied group that continues below the cutoff.

    The size of the group is 0 if no group continues below the cutoff. All items of a
    group that ends at the cutoff are in the top k.
    """
    size, slots, chance = (
        values_at_cutoff(ranking, x)
        for x in (ranking.group_sizes, ranking.places, relevant)
    )
    continues = size > slots
    size, slots = (backend.where(continues, x, 0.0) for x in (size, slots))
    ranks, cutoff = ranking.ranks, backend.constant(ranking.cutoff, relevant)
    place = ranks - cutoff + slots
    holds = ops.logical_and(place > 0.0, ranks <= cutoff)
    return GroupAtCutoff(holds, place, size, slots, ops.round(chance * size))


def values_at_cutoff(ranking: Ranking, values_by_rank: Tensor) -> Tensor:
    """Returns the values at the cutoff, of shape `(batch, 1)`.

    The value is 0 if the ranking ends above the cutoff.
    """
    cutoff = backend.constant(ranking.cutoff, values_by_rank)
    return total(backend.where(ranking.ranks == cutoff, values_by_rank, 0.0))[:, None]


def possible_counts(ranking: Ranking) -> Tensor:
    """Returns the possible numbers of items in the top k: 0, 1, ..., k."""
    ranks = ranking.ideal_ranks
    return ops.concatenate([ops.zeros_like(ranks[:1]), ranks])


def count_slots(lists: JudgedLists, k: int | None, denominator: str) -> Tensor:
    """Returns the number of ranks that a denominator counts, of shape `(batch,)`.

    Args:
        lists: the lists.
        k: the cutoff, or `None`.
        denominator: `"retrieved"` for the retrieved items, `"available"` for all items,
            both up to the cutoff, or `"k"` for the cutoff itself.
    """
    slots = lists.retrieved if denominator == "retrieved" else lists.sizes
    if k is None:
        return slots
    return (
        ops.zeros_like(slots) + k if denominator == "k" else backend.minimum(slots, k)
    )


def mean_to_relevant_count(
    lists: JudgedLists, ranking: Ranking, by_rank: Tensor
) -> Tensor:
    """Returns the mean of the values at the first R ranks.

    R is the number of relevant items, or the cutoff if that is lower.
    """
    depth = backend.minimum(lists.number_relevant, ranking.cutoff)[:, None]
    sums = total(backend.where(ranking.ranks <= depth, by_rank, 0.0))
    return ratio(sums, depth[:, 0])


@cache_for_all_cutoffs
def first_hit(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """Returns the probability that the first relevant item is at each rank.

    If ties are averaged, and the first j - 1 of m tied items are irrelevant, all c
    relevant items are among the other m - j + 1 items. The next item is then relevant
    with probability c / (m - j + 1). If ties are broken, the probability is 1 at the
    rank where the number of hits becomes 1. The shape is `(batch, depth)`.
    """
    relevant = lists.relevance_by_rank(ranking)
    if not ranking.averages:
        return backend.where(backend.running_total(relevant) == 1.0, relevant, 0.0)
    num_left = ranking.group_sizes - ranking.places + 1.0
    chance = backend.minimum(ops.round(relevant * ranking.group_sizes) / num_left, 1.0)
    return first_success(chance)


def share_of_ideal(
    gains: Tensor,
    ideal_gains: Tensor,
    ranking: Ranking,
    rank_discount_fn: DiscountFn,
) -> Tensor:
    """Returns the sum of discounted gains, divided by the sum for the ideal gains."""
    discounts = ideal_discounts = compute_discounts(rank_discount_fn, ranking.ranks)
    if ranking.ideal_ranks is not ranking.ranks:
        ideal_discounts = compute_discounts(rank_discount_fn, ranking.ideal_ranks)
    gain, ideal_gain = totals([gains, ideal_gains], [discounts, ideal_discounts])
    # The mean over tied items may exceed the ideal by a rounding error.
    return backend.minimum(ratio(gain, ideal_gain), 1.0)


def require_grades(lists: JudgedLists, max_grade: float) -> None:
    """Raises `ValueError` if a label is above `max_grade`."""
    backend.require(
        ops.all(lists.highest_labels <= max_grade),
        f"`y_true` should have labels up to `max_grade`, {max_grade}. "
        "Received: a larger label",
    )


def require_gains(
    lists: JudgedLists, gain_fn: ByLabel, threshold: float | None
) -> None:
    """Raises `ValueError` if a label has no gain in a table of gains."""
    has_gain = gain_fn.has_gain(lists.labels)
    if threshold is not None:
        has_gain = ops.logical_or(has_gain, lists.labels < threshold)
    backend.require(
        ops.all(has_gain),
        "`gains` should have a gain for each label. "
        f"Received: gains={dict(gain_fn.gains)} and a label without a gain",
    )


def mean_over_recommended(counts: Tensor, values: Tensor) -> Tensor:
    """Returns the mean value of recommended items: `sum(c_i * value_i) / sum(c_i)`.

    The mean is computed in float64, where counts and most of their sums are exact.

    Args:
        counts: int32 tensor of shape `(items,)`. The number of times that each item is
            recommended.
        values: tensor of the same shape.

    Returns:
        A float32 scalar tensor, 0 if no item is recommended.
    """
    with backend.suppress_float_warnings():
        mean = backend.compute_in_float64(_mean, counts, values)
    return backend.where(ops.any(counts > 0), mean, 0.0)


def _mean(counts: Tensor, values: Tensor) -> Tensor:
    library = backend.get_library(counts)
    return ops.cast(library.sum(counts * values) / library.sum(counts), "float32")


@cache_for_all_cutoffs
def relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """Returns the relevance of the item at each rank to each subtopic.

    The shape is `(batch, subtopics, depth)`.
    """
    return ranking.take(lists.relevance_by_subtopic)


@cache_for_all_cutoffs
def weighted_relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """Returns `relevance_by_rank` times the weights of the items."""
    if lists.weights is None:
        return relevance_by_rank(lists, ranking)
    return ranking.take(weighted_relevance(lists))


def weighted_relevance(lists: JudgedLists) -> Tensor:
    """Returns the relevance of the items to each subtopic, times their weights."""
    relevance = lists.relevance_by_subtopic
    return relevance if lists.weights is None else relevance * lists.weights[:, None]


def remaining_share(lists: JudgedLists, ranking: Ranking, alpha: float) -> Tensor:
    """Returns the share of the gain of a relevant item that remains at each rank.

    The share is `(1 - alpha)**above`, where `above` is the number of relevant items
    above the rank. If ties are averaged, and the item is at position j of a group of m
    items, c of which are relevant, `above` is the number of relevant items above the
    group, plus x. The distribution of x is hypergeometric: the j - 1 items before the
    item are drawn from the m - 1 other items, c - 1 of which are relevant.

    The shape is `(batch, subtopics, depth)`.
    """
    relevant = relevance_by_rank(lists, ranking)
    if not ranking.averages:
        return _power(1.0 - alpha, backend.running_total(relevant) - relevant)
    sizes, places = ranking.group_sizes[:, None], ranking.places[:, None]
    above_group = ops.round(backend.running_total(relevant) - places * relevant)

    def share_within_group() -> Tensor:
        marked = backend.maximum(ops.round(relevant * sizes) - 1.0, 0.0)
        return mean_power_of_marked(1.0 - alpha, marked, sizes - 1.0, places - 1.0)

    share = _power(1.0 - alpha, above_group)
    return backend.branch(
        ranking.no_ties, lambda: share, lambda: share * share_within_group()
    )


def _power(base: float, exponents: Tensor) -> Tensor:
    return backend.constant(base, exponents) ** exponents


def max_subtopic_gain(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    rank_discount_fn: DiscountFn,
    k: int | None,
) -> Tensor:
    """Returns the discounted gain of a subtopic to which all items are relevant."""
    ranks = (
        ranking.ranks
        if k is None
        else inclusive_range(1, k, lists.dtype, like=lists.mask)
    )
    terms = compute_discounts(rank_discount_fn, ranks) * _power(1.0 - alpha, ranks - 1)
    if k is None:
        return total(backend.where(ranks <= lists.sizes[:, None], terms, 0.0))
    return total(terms[None])


def has_relevant(lists: JudgedLists) -> Tensor:
    """Returns 1 for each subtopic with relevant items, and 0 for other subtopics.

    The shape is `(batch, subtopics)`.
    """
    return max_over_axis(lists.relevance_by_subtopic, axis=2)


def _create_row(dtype: str, *numbers: float) -> Tensor:
    return ops.convert_to_tensor([numbers], dtype)


def mean_over_subtopics(
    lists: JudgedLists, values: Tensor, subtopic_weights: tuple[float, ...] | None
) -> Tensor:
    """Returns the weighted mean of values over the subtopics with relevant items.

    Args:
        lists: the lists.
        values: tensor of shape `(batch, subtopics)`, 0 for subtopics without relevant
            items.
        subtopic_weights: a weight for each subtopic, or `None` if all weights are 1.
    """
    weights = has_relevant(lists)
    if subtopic_weights is not None:
        subtopics = values.shape[1]
        if subtopics not in (None, len(subtopic_weights)):
            raise ValueError(
                "`subtopic_weights` should hold a number for each subtopic of "
                f"`y_true`, {subtopics}. Received: subtopic_weights={subtopic_weights}"
            )
        size = len(subtopic_weights)
        weights = weights * backend.cached_constant(
            _create_row, lists.dtype, *subtopic_weights, size=size, like=weights
        )
    # The mean of shares may exceed 1 by a rounding error.
    return backend.minimum(ratio(total(weights * values), total(weights)), 1.0)
