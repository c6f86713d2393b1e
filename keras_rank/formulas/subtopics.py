"""Parts of equations that several metrics of subtopics share."""

from keras import ops

from keras_rank.arrays.arithmetic import counted, highest, ratio, total
from keras_rank.backends import Tensor, backend
from keras_rank.discounts import DiscountFn, at_ranks
from keras_rank.formulas.chances import mean_power_of_marked
from keras_rank.ranking.judged import JudgedLists, once_for_all_cutoffs
from keras_rank.ranking.ranking import Ranking


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
