"""What all functions share: the lists with their relevance, and their order."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_flag,
    check_k,
    check_not_sparse,
    check_ties,
    names_arguments,
    shuffle_key,
)
from keras_rank.arrays.backends import Tensor
from keras_rank.arrays.programs import first_rows, is_whole, program
from keras_rank.lists.base import Lists
from keras_rank.lists.inputs import (
    Given,
    lists_of,
    of_few_shapes,
    read,
    read_sparse,
    warn_of_single_items,
)
from keras_rank.lists.judged import Judgement, judge
from keras_rank.lists.sparse import TargetLists
from keras_rank.lists.tensors import shape_of
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.ranks import RankedLists, RankingKind, rank_by_scores


class FormulaArguments(TypedDict, total=False):
    """The arguments that are the same for all functions."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    dtype: str | None


class Formula(NamedTuple):
    """What a function computes from lists, their ranking and further arguments.

    `judgement` says what the items are worth; it may be a function of lists that
    returns it, and its further arguments. An `empty_value` of `None` stands for NaN.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    judgement: Judgement | tuple[Any, ...]
    empty_value: float | None
    takes_sparse_labels: bool = True

    def per_list(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any,
        k: int | None,
        *,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        sparse_labels: bool = False,
        dtype: str | None = None,
    ) -> Tensor:
        """Computes a formula for lists or ranked lists."""
        k, is_sparse = check_k(k), check_flag("sparse_labels", sparse_labels)
        if isinstance(y_true, RankedLists):
            y_true.check_alone(y_pred, sample_weight)
            _check_agree(y_true, shuffle_ties, seed, is_sparse, dtype)
            self._check_takes(isinstance(y_true.lists, TargetLists))
            y_true.check_cutoff(k)
            return _values((self, k), y_true.lists, y_true.ranking)
        self._check_takes(is_sparse)
        ties = check_ties(shuffle_ties)
        order = check_dtype(dtype), RankingKind(is_sparse, ties, k)
        given = (read_sparse if is_sparse else read)(y_true, y_pred, sample_weight)
        padded = given
        if is_whole(self):
            padded = of_few_shapes(given, is_sparse)
            if not is_sparse:
                warn_of_single_items(given, y_true, y_pred)
        values = _ranked_values((order, self), padded, shuffle_key(ties, seed))
        return first_rows(values, shape_of(given.labels)[0])

    def _check_takes(self, is_sparse: bool) -> None:
        """Raises for sparse labels if the formula needs all labels."""
        if not self.takes_sparse_labels:
            check_not_sparse("sparse_labels", is_sparse)


@names_arguments
def rank(
    y_true: Any,
    y_pred: Any,
    *,
    sample_weight: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    sparse_labels: bool = False,
    dtype: str | None = None,
) -> RankedLists:
    """Ranks lists by their scores, once for several functions.

    The functions of this module take the result as `y_true`, and share common
    computations.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The largest cutoff of the functions. Defaults to `None`: any
            cutoff.
        **arguments: as for `keras_rank.functional`: sample_weight, shuffle_ties, seed,
            sparse_labels, dtype.

    Returns:
        The ranked lists, to be passed to other functions as `y_true`.

    Raises:
        ValueError: if an argument does not have the documented type or shape.

    Example:

    >>> ranked = keras_rank.functional.rank([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(keras_rank.functional.ndcg(ranked, k=2)[0]):.4f}"
    '0.8262'
    >>> f"{float(keras_rank.functional.average_precision(ranked)[0]):.4f}"
    '0.7500'
    """
    k, ties = check_k(k), check_ties(shuffle_ties)
    is_sparse = check_flag("sparse_labels", sparse_labels)
    order = check_dtype(dtype), RankingKind(is_sparse, ties, k)
    given = (read_sparse if is_sparse else read)(y_true, y_pred, sample_weight)
    # In their own shape, as formulas of a user's may see them.
    lists, ranking = _ranked(order, given, shuffle_key(ties, seed))
    return RankedLists(lists, ranking, k, ties, y_true)


def _check_agree(
    ranked: RankedLists,
    shuffle_ties: ShuffleTies,
    seed: Seed,
    sparse_labels: bool,
    dtype: str | None,
) -> None:
    """Raises for an argument that contradicts the ranked lists. No default does."""
    is_sparse = check_flag("sparse_labels", sparse_labels)
    has_all_labels = not isinstance(ranked.lists, TargetLists)
    other_ties = check_ties(shuffle_ties) not in ("shuffle", ranked.ties)
    other_dtype = dtype is not None and check_dtype(dtype) != ranked.lists.dtype
    for argument, value, contradicts in (
        ("shuffle_ties", shuffle_ties, other_ties),
        ("seed", seed, seed is not None),
        ("sparse_labels", sparse_labels, is_sparse and has_all_labels),
        ("dtype", dtype, other_dtype),
    ):
        if contradicts:
            raise ValueError(
                f"`{argument}` should be left out when `y_true` is ranked lists, "
                f"which have their own. Received: {argument}={value!r}"
            )


@program
def _ranked(
    order: tuple[str, RankingKind], given: Given, key: Tensor
) -> tuple[Lists, Ranking]:
    dtype, kind = order
    lists = lists_of((kind.of_targets, dtype), given)
    return lists, rank_by_scores(kind, lists, key)


@program
def _values(
    formula_at: tuple[Formula, int | None], lists: Lists, ranking: Ranking
) -> Tensor:
    (function, arguments, judgement, empty_value, _), k = formula_at
    if isinstance(judgement, tuple):
        of_lists, *others = judgement
        judged = judge(lists, of_lists(lists, *others))
    else:
        judged = lists.once(judge, judgement)
    values = function(judged, ranking.cut(k), *arguments)
    return judged.fill_empty(values, empty_value)


@program
def _ranked_values(
    order_and_formula: tuple[tuple[str, RankingKind], Formula],
    given: Given,
    key: Tensor,
) -> Tensor:
    order, formula = order_and_formula
    _, kind = order
    return _values((formula, kind.k), *_ranked(order, given, key))
