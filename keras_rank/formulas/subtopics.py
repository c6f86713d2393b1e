"""Formulas of subtopics: an item is relevant to some of those that a query has."""

import contextlib

from keras import ops

from keras_rank import discounts
from keras_rank.arrays.arithmetic import counted, highest, ratio, total
from keras_rank.backends import Tensor, backend
from keras_rank.formulas.binary import slots_of_top
from keras_rank.formulas.chances import mean_power_of_marked
from keras_rank.ranking.judged import JudgedLists, once_for_all_cutoffs
from keras_rank.ranking.ranking import Ranking

# Gains of an ideal order that differ by less than this share are equal.
_ROUNDING = 1e-6


@once_for_all_cutoffs
def relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The relevance of the items by rank, of shape `(batch, subtopics, depth)`."""
    return ranking.take(lists.relevance_by_subtopic)


@once_for_all_cutoffs
def weighted_relevance_by_rank(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The same, times the weights of the items."""
    if lists.weights is None:
        return relevance_by_rank(lists, ranking)
    return ranking.take(_worth(lists))


def _worth(lists: JudgedLists) -> Tensor:
    relevance = lists.relevance_by_subtopic
    return relevance if lists.weights is None else relevance * lists.weights[:, None]


def share_left(lists: JudgedLists, ranking: Ranking, alpha: float) -> Tensor:
    """What a relevant item at a rank still gains, `(1 - alpha)**(relevant ones above)`.

    If ties are averaged, the item at place j of a group of m items, c of them relevant,
    has those above the group above it, and x of its group. The distribution of x is
    hypergeometric: j - 1 are drawn from m - 1 others, c - 1 of which are relevant.

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


def discounted_novelty(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    rank_discount_fn: discounts.DiscountFn,
    normalizer: str | None,
    k: int | None,
) -> Tensor:
    """The formula of alpha-DCG. `sum(weight * left * discount) / list_weight`.

    The sum is over the ranks and the subtopics to which the item at a rank is relevant.
    """
    by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    value = ratio(_total_of(lists, ranking, alpha, by_rank), lists.list_weights)
    if normalizer is None:
        return value
    subtopics = total(has_relevant(lists))
    most = most_of_a_subtopic(lists, ranking, alpha, rank_discount_fn, k)
    return ratio(value, subtopics * most)


def share_of_greedy_ideal(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    rank_discount_fn: discounts.DiscountFn,
) -> Tensor:
    """The formula of alpha-nDCG: alpha-DCG, divided by that of a greedy order."""
    by_rank = discounts.at_ranks(rank_discount_fn, ranking.ranks)
    ideal = total(_greedy_gains(lists, ranking, alpha) * by_rank)
    return ratio(_total_of(lists, ranking, alpha, by_rank), ideal)


def _total_of(
    lists: JudgedLists, ranking: Ranking, alpha: float, by_rank: Tensor
) -> Tensor:
    """The discounted novelty of all items, of shape `(batch,)`."""
    gains = weighted_relevance_by_rank(lists, ranking)
    return total(total(gains * share_left(lists, ranking, alpha) * by_rank))


def most_of_a_subtopic(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    rank_discount_fn: discounts.DiscountFn,
    k: int | None,
) -> Tensor:
    """The discounted novelty of a subtopic to which all items are relevant."""
    ranks = ranking.ranks if k is None else counted(1, k, lists.dtype, like=lists.mask)
    terms = discounts.at_ranks(rank_discount_fn, ranks) * _power(1.0 - alpha, ranks - 1)
    if k is None:
        return total(backend.where(ranks <= lists.sizes[:, None], terms, 0.0))
    return total(terms[None])


def _greedy_gains(lists: JudgedLists, ranking: Ranking, alpha: float) -> Tensor:
    """The gains of the order that takes what gains most next, `(batch, cutoff)`.

    Of equal items it takes the first.
    """
    key = _greedy_gains, alpha, ranking.uncut, ranking.largest_k
    if key not in lists._by_rank:
        worth = _worth(lists)
        rank = ops.arange(ranking.ideal_depth, dtype="int32")
        nothing = 0.0 * worth[:, 0]
        state = (
            nothing[:, :1] + ops.cast(0 * rank, worth.dtype),
            ops.ones_like(worth[:, :, 0]),
            nothing + 1.0,
            ops.transpose(1.0 - alpha * lists.relevance_by_subtopic, (0, 2, 1)),
            *(worth, rank),
        )
        is_traced = backend.is_compiling()
        with contextlib.nullcontext() if is_traced else backend.full_precision():
            found = ops.fori_loop(0, ranking.ideal_depth, _with_next_best, state)
        lists._by_rank[key] = found[0]
    gains = lists._by_rank[key]
    return gains if ranking.is_largest else gains[:, : ranking.cutoff]


# No closure, which eager JAX would compile again at each call.
def _with_next_best(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Takes the item with the largest gain, given what is left of each subtopic."""
    best_gains, left, is_free, share_kept, worth, rank = state
    gains = _product(left, worth) * is_free
    best = highest(gains, keepdims=True)
    is_chosen = backend.first_true(gains >= best * (1.0 - _ROUNDING), gains)
    best_gains = backend.where(rank == i, best, best_gains)
    left = left * _product(is_chosen, share_kept)
    is_free = is_free - is_chosen
    return best_gains, left, is_free, share_kept, worth, rank


def _product(row: Tensor, matrix: Tensor) -> Tensor:
    """The product of a row with a matrix, for each list."""
    if backend.is_compiling():
        # It fuses this, and can't trace how full precision is asked for.
        return ops.sum(row[:, :, None] * matrix, axis=1)
    return backend.library_of(row).matmul(row[:, None], matrix)[:, 0]


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


def mean_reciprocal_of_stop(
    lists: JudgedLists,
    ranking: Ranking,
    alpha: float,
    subtopic_weights: tuple[float, ...] | None,
    normalizer: str | None,
    k: int | None,
) -> Tensor:
    """The formula of ERR-IA. `sum(P(stop first at r) / r)`, the mean over subtopics."""
    stops = relevance_by_rank(lists, ranking) * share_left(lists, ranking, alpha)
    values = total(stops / ranking.ranks)
    if normalizer is None:
        values = alpha * values
    else:
        most = most_of_a_subtopic(lists, ranking, alpha, discounts.reciprocal, k)
        values = ratio(values, ops.reshape(most, (-1, 1)))
    return mean_over_subtopics(lists, values, subtopic_weights)


def mean_precision(
    lists: JudgedLists,
    ranking: Ranking,
    k: int | None,
    denominator: str,
    subtopic_weights: tuple[float, ...] | None,
) -> Tensor:
    """The formula of precision-IA. `hits / slots`, the mean over subtopics."""
    hits = total(relevance_by_rank(lists, ranking))
    slots = slots_of_top(lists, k, denominator)[:, None]
    return mean_over_subtopics(lists, ratio(hits, slots), subtopic_weights)


def share_of_subtopics(lists: JudgedLists, ranking: Ranking) -> Tensor:
    """The formula of subtopic recall. `subtopics with a hit / subtopics`.

    What is left of a subtopic is nothing after its first hit.
    """
    first_hits = relevance_by_rank(lists, ranking) * share_left(lists, ranking, 1.0)
    return mean_over_subtopics(lists, total(first_hits), None)
