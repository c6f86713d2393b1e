"""The highest scores of lists, found without sorting the others."""

import math
from collections.abc import Callable
from typing import TypeVar

from keras import ops

from keras_rank.arrays import backends
from keras_rank.arrays.backends import Tensor, may_have_nan, shortcut, take, top_k
from keras_rank.arrays.selection import (
    Candidates,
    candidates,
    is_long,
    is_worth_a_look,
    largest,
)
from keras_rank.arrays.sorting import Order
from keras_rank.lists.base import as_ranked
from keras_rank.lists.dense import DenseLists

Result = TypeVar("Result")
# Of scores, in an order or as they are.
OfScores = Callable[[Tensor, Order | None], Result]


def highest_scores(lists: DenseLists, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the highest scores of each list, and their positions."""
    if not is_long(lists.given_scores, _enough(count)):
        scores, positions = largest(lists.scores, count)
        return as_ranked(scores), positions
    high, positions, _ = lists.once(_candidates, _enough(count))
    scores, places = top_k(high, count)
    return scores, take(positions, places)


def of_high_scores(
    lists: DenseLists,
    lowest: Tensor,
    count: int,
    function: OfScores[Result],
) -> Result:
    """Returns a function of scores and their order that needs only high ones.

    Args:
        lists: the lists.
        lowest: tensor of shape `(batch, 1)`. The lowest score that matters.
        count: the number of scores requested from `highest_scores`.
        function: function of scores of shape `(batch, some)`, and of their order,
            which is `None` for all scores in their own order.
    """

    def of_all() -> Result:
        return function(as_ranked(lists.scores), None)

    if is_long(lists.given_scores, _enough(count)):
        high = lists.once(_candidates, _enough(count))
    elif is_worth_a_look(lists.scores, _enough(count)):
        high = lists.once(_highest_of_short, _enough(count))
    else:
        return of_all()
    scores, positions, highest_other = high
    # Whether all scores that matter are among the candidates.
    suffice = ops.logical_or(highest_other < lowest, lowest == -math.inf)
    result: Result = shortcut(
        ops.all(suffice), lambda: function(scores, Order(positions)), of_all
    )
    return result


def _candidates(lists: DenseLists, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """High scores, their positions, and the highest of all others."""

    def found(high: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        return high.entries, high.positions, high.highest_other

    def of_masked() -> tuple[Tensor, Tensor, Tensor]:
        return found(candidates(lists.scores, count))

    if lists.is_by_label:
        # Not in a branch of a graph, where XLA on CPU computes on one core.
        plain = candidates(lists.given_scores, count)
        has_nan = may_have_nan(lists.given_scores, plain.all_maxima)
        is_plain = ops.logical_and(lists.is_full, ops.logical_not(has_nan))
        high = shortcut(is_plain, lambda: found(plain), of_masked)
    else:
        high = of_masked()
    scores, positions, highest_other = high
    return as_ranked(scores), positions, as_ranked(highest_other)


def _highest_of_short(lists: DenseLists, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same for lists that are not cut into blocks."""
    scores, positions = top_k(lists.scores, count + 1)
    scores = as_ranked(scores)
    return scores[:, :-1], positions[:, :-1], scores[:, -1:]


def _enough(count: Tensor | int) -> Tensor | int:
    """The number of candidates that hold the highest scores, and usually their ties.

    An accelerator never relies on the latter.
    """
    return count if backends.on_accelerator() else 2 * count + 8
