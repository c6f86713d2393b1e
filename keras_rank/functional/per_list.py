"""What every function starts with: the lists, judged, and their order."""

from collections.abc import Callable
from typing import Any

from keras_rank.arguments import Seed, ShuffleTies, check_k, check_seed, check_ties
from keras_rank.arithmetic import Tensor
from keras_rank.lists import Lists, standardize, standardize_sparse
from keras_rank.ordering import Ranking, rank


def in_order(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    relevance: Callable[[Lists], Tensor],
    *,
    k: int | None,
    shuffle_ties: ShuffleTies,
    seed: Seed,
    dtype: str | None,
    sparse_labels: bool = False,
) -> tuple[Lists, Ranking]:
    """Returns the lists, with the relevance of their labels, and their ranking."""
    k, ties, seed = check_k(k), check_ties(shuffle_ties), check_seed(seed)
    prepare = standardize_sparse if sparse_labels else standardize
    lists = prepare(y_true, y_pred, sample_weight, dtype)
    lists = lists.judged(relevance(lists))
    return lists, rank(lists, k, ties, seed)


def is_relevant(lists: Lists, threshold: float | None) -> Tensor:
    """Whether an item is relevant: from the threshold on, or above 0 without one."""
    return lists.labels > 0.0 if threshold is None else lists.labels >= threshold
