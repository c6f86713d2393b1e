"""The weight of a list, from the weights of its items."""

from keras_rank.arrays.arithmetic import ratio, total
from keras_rank.arrays.backends import Tensor
from keras_rank.lists.judged import JudgedLists


def list_weights(lists: JudgedLists) -> Tensor:
    """The mean weight of the items of a list, weighted by relevance.

        weight = sum(weights * relevance) / sum(relevance)

    Args:
        lists: judged lists.

    Returns:
        A tensor of shape `(batch,)`: 0 for a list without relevant items, which later
        gets the average of the others (see `totals`).
    """
    if lists.weights is None:
        return lists.relevant_lists
    weighted_relevance = total(lists.weighted_relevance)
    return ratio(weighted_relevance, total(lists.relevance))
