"""What all functions share: the lists with their relevance, and their order."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypedDict

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_flag,
    check_k,
    check_not_sparse,
    check_number,
    check_ties,
    names_arguments,
    shuffle_key,
)
from keras_rank.arrays.buckets import first_rows
from keras_rank.backends import Tensor, backend
from keras_rank.lists.base import Lists
from keras_rank.lists.copies import own
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.first_batch import warn, warnings_of_rows
from keras_rank.lists.given import refused
from keras_rank.lists.reading import (
    RawBatch,
    check_told_apart,
    read,
    read_sparse,
    tied_labels,
)
from keras_rank.lists.relevance import Relevance, from_threshold
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.targets import SparseLists
from keras_rank.lists.tensors import shape_of
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranked import OrderSpec, RankedLists, rank_by_scores
from keras_rank.ranking.ranking import Ranking


class SharedArguments(TypedDict, total=False):
    """The arguments that are the same for all functions."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    dtype: str | None


class FormulaArguments(SharedArguments, total=False):
    """Those, and the two that have another default in some functions."""

    empty_value: float | None
    relevance_threshold: float | None


# What the items are worth: a function of lists may return it, given its further
# arguments.
AnyRelevance: TypeAlias = Relevance | tuple[Any, ...]


class ValuesSpec(NamedTuple):
    """What determines the values of ranked lists. An `empty_value` of `None` is NaN."""

    formula: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    relevance: AnyRelevance
    empty_value: float | None
    k: int | None


class Formula(NamedTuple):
    """What a function computes from lists, their ranking and further arguments.

    `relevance_from` says what the items are worth, given the threshold.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...] = ()
    relevance_from: Callable[[float | None], AnyRelevance] = from_threshold
    takes_sparse_labels: bool = True
    compares_labels: bool = False
    takes_subtopics: bool = False

    def per_list(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any,
        k: int | None,
        *,
        empty_value: float | None = 0.0,
        relevance_threshold: float | None = 1.0,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        sparse_labels: bool = False,
        dtype: str | None = None,
    ) -> Tensor:
        """Computes a formula for lists or ranked lists."""
        threshold = check_number("relevance_threshold", relevance_threshold)
        relevance = self.relevance_from(threshold)
        empty_value = check_number("empty_value", empty_value)
        k, is_sparse = check_k(k), check_flag("sparse_labels", sparse_labels)
        spec = ValuesSpec(self.function, self.arguments, relevance, empty_value, k)
        if isinstance(y_true, RankedLists):
            y_true.check_alone(y_pred, sample_weight)
            _check_agree(y_true, shuffle_ties, seed, is_sparse, dtype)
            self._check_takes_sparse(y_true.lists.holds_targets)
            y_true.check_compared(self.compares_labels)
            y_true.check_subtopics(self.function.__name__, self.takes_subtopics)
            y_true.check_cutoff(k)
            return backend.enter(_values, spec, *y_true.fresh())
        self._check_takes_sparse(is_sparse)
        ties = check_ties(shuffle_ties)
        order = OrderSpec(is_sparse, ties, k)
        if is_sparse:
            reading = read_sparse(y_true, y_pred, sample_weight)
        else:
            reading = read(y_true, y_pred, sample_weight, self.takes_subtopics)
            warn(warnings_of_rows(reading))
        if self.compares_labels:
            check_told_apart(reading.labels)
        batch = reading.batch
        typed = check_dtype(dtype), order
        key = shuffle_key(ties, seed, batch.labels, batch.scores)
        if not backend.is_ours((spec, order)):
            return backend.enter(_values, spec, *_ranked(typed, batch, key))
        padded = bucket_shapes(batch, is_sparse)
        values = backend.enter(_ranked_values, (typed, spec), padded, key)
        return first_rows(values, shape_of(batch.labels)[0])

    def _check_takes_sparse(self, is_sparse: bool) -> None:
        """Raises for sparse labels, unless the formula takes them."""
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
    order = check_dtype(dtype), OrderSpec(is_sparse, ties, k)
    if is_sparse:
        reading = read_sparse(y_true, y_pred, sample_weight)
    else:
        reading = read(y_true, y_pred, sample_weight, takes_subtopics=True)
        warn(warnings_of_rows(reading))
    # Kept, whatever the user does with what was given.
    batch = RawBatch(*map(own, reading.batch))
    # In their own shape, as formulas of a user's may see them.
    key = shuffle_key(ties, seed, batch.labels, batch.scores)
    lists, ranking = _ranked(order, batch, key)
    return RankedLists(lists, ranking, k, ties, tied_labels(reading.labels))


def _check_agree(
    ranked: RankedLists,
    shuffle_ties: ShuffleTies,
    seed: Seed,
    sparse_labels: bool,
    dtype: str | None,
) -> None:
    """Raises for an argument that contradicts the ranked lists. No default does."""
    is_sparse = check_flag("sparse_labels", sparse_labels)
    has_all_labels = not ranked.lists.holds_targets
    other_ties = check_ties(shuffle_ties) not in ("shuffle", ranked.ties)
    other_dtype = dtype is not None and check_dtype(dtype) != ranked.lists.dtype
    for argument, value, contradicts in (
        ("shuffle_ties", shuffle_ties, other_ties),
        ("seed", seed, seed is not None),
        ("sparse_labels", sparse_labels, is_sparse and has_all_labels),
        ("dtype", dtype, other_dtype),
    ):
        if contradicts:
            expected = "be left out when `y_true` is ranked lists, which have their own"
            raise refused(argument, expected, f"{argument}={value!r}")


def _ranked(
    order: tuple[str, OrderSpec], batch: RawBatch, key: Tensor
) -> tuple[DenseLists | SparseLists, Ranking]:
    """Lists and their order, by one program if sizes don't depend on values."""
    if order[1].by_steps:
        return _ranked_lists(order, batch, key)
    return backend.enter(_ranked_lists, order, batch, key)


def _ranked_lists(
    order: tuple[str, OrderSpec], batch: RawBatch, key: Tensor
) -> tuple[DenseLists | SparseLists, Ranking]:
    dtype, spec = order
    lists = spec.step(standardize, Kind(spec.of_targets, dtype, spec.k), batch)
    return lists, rank_by_scores(spec, lists, key)


def _values(spec: ValuesSpec, lists: Lists, ranking: Ranking) -> Tensor:
    relevance = spec.relevance
    if isinstance(relevance, tuple):
        of_lists, *others = relevance
        relevance = of_lists(lists, *others)
    judged = JudgedLists(lists, relevance)
    values = spec.formula(judged, ranking.cut(spec.k), *spec.arguments)
    return judged.fill_empty(values, spec.empty_value)


def _ranked_values(
    order_and_values: tuple[tuple[str, OrderSpec], ValuesSpec],
    batch: RawBatch,
    key: Tensor,
) -> Tensor:
    order, spec = order_and_values
    return _values(spec, *_ranked_lists(order, batch, key))
