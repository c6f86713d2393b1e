"""Ranking metrics as functions that return one value per list.

Each function is generated from a class of `keras_rank.metrics`, which documents its
equation and its arguments:

| function | class |
| --- | --- |
| `ndcg` | `NDCG` |
| `dcg` | `DCG` |
| `average_precision` | `MeanAveragePrecision` |
| `reciprocal_rank` | `MeanReciprocalRank` |
| `precision` | `PrecisionAtK` |
| `recall` | `RecallAtK` |
| `hit_rate` | `HitRate` |
| `f1` | `F1AtK` |
| `f_beta` | `FBetaAtK` |
| `r_precision` | `RPrecision` |
| `average_precision_at_r` | `MeanAveragePrecisionAtR` |
| `expected_reciprocal_rank` | `ExpectedReciprocalRank` |
| `rank_biased_precision` | `RankBiasedPrecision` |
| `average_relevance_position` | `AverageRelevancePosition` |
| `bpref` | `BPref` |
| `fall_out` | `FallOut` |
| `pairwise_accuracy` | `PairwiseAccuracy` |
| `kendall_tau` | `KendallTau` |
| `spearman_correlation` | `SpearmanCorrelation` |
| `alpha_ndcg` | `AlphaNDCG` |
| `alpha_dcg` | `AlphaDCG` |
| `expected_reciprocal_rank_ia` | `ExpectedReciprocalRankIA` |
| `precision_ia` | `PrecisionIA` |
| `subtopic_recall` | `SubtopicRecall` |

In `compile`, use the classes. Keras averages the values of a function over lists: the
mean is NaN if a list has only padding, and it ignores the weights of lists.

A function takes `y_true` and `y_pred`. The other arguments are keyword-only:
`sample_weight` and the arguments of the class, except for `name` and `empty_weight`.
The following arguments differ from those of the classes.

Args:
    y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of uneven
        length, or a dict `{"labels": ..., "mask": ...}`. A position whose label is
        below 0 or NaN, or whose mask is False, is padding. All functions except
        `keras_rank.functional.rank` also take the ranked lists that it returns. Ranked
        lists replace all arguments of `rank` except for `k`.
    y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item with the score
        `-inf` or NaN has a label, but is not retrieved: it has no rank. Layers may have
        attached a mask to the scores. A position where this mask is False is padding.
    sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
        `(batch, list_size)`; `(list_size,)` for a single list. An item whose weight is
        not above 0 is padding. Weights above 0 change a value only if its equation
        contains weights. A single weight for a whole list does not change the value of
        the list, but weights it in a mean.
    k: positive int. The cutoff: only items at the first `k` ranks count. Defaults to
        `None`: all ranks count.
    shuffle_ties: the order of tied items. `True`: a random order, which depends on
        `seed`. `False`: the order in the list. `"average"`: the exact mean over all
        orders of tied items. `"worst"` and `"best"`: by label, the lowest or the
        highest label first. Defaults to `True`.
    seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
        `None`: each call draws a seed from Keras's global generator, as Keras's random
        operations do without a seed. Compiled code derives the seed from the state of
        Python's generator instead. `keras.utils.set_random_seed` sets both; Keras 3.12
        sets only Python's.
    empty_value: float. The value of a list that has items, but no relevant ones.
        Defaults to 0.0. `None` gives NaN.
    list_weight: the weight of a list in the mean, for weights w and relevance g of its
        items. `"mean"`: `sum(w * g) / sum(g)`. `"sum"`: `sum(w * g)`, which is 0 for a
        list without relevant items. `"one"`: 1, or the weight that `sample_weight` has
        for the whole list. `empty_weight` applies only to `"mean"`. See docs/clicks.md.
        Defaults to `"mean"`.
    relevance_threshold: float. Items with this label or a higher one are relevant.
        Defaults to 1.0. `None`: items with any label above 0 are relevant.
    sparse_labels: bool. If `True`, `y_true` holds the ids of the relevant items, of
        shape `(batch,)` or `(batch, targets)` padded with -1, or a dict of `"ids"` and
        their graded `"labels"`, of this shape. `y_pred` then holds the scores of a
        whole catalog, of shape `(batch, items)`. An id that is not in the catalog is an
        error in eager code, and counts as not retrieved in compiled code. Defaults to
        `False`.
    dtype: `"float64"` to compute in float64. Defaults to float32.

Returns:
    A tensor of shape `(batch,)`. A list that has only padding has the value NaN.

Raises:
    ValueError: if an argument does not have the documented type, shape or range.

Example:

>>> labels, scores = [[3, 0, 1], [0, 2, 0]], [[0.9, 0.5, 0.1], [0.3, 0.2, 0.1]]
>>> values = keras_rank.functional.ndcg(labels, scores, k=2)
>>> [f"{float(value):.4f}" for value in values]
['0.9173', '0.6309']
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, cast

from keras_rank import metrics
from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_flag,
    check_k,
    check_ties,
    shuffle_key,
)
from keras_rank.arrays.arithmetic import first_rows
from keras_rank.backends import Tensor, backend
from keras_rank.lists.first_batch_warnings import get_row_warnings, warn
from keras_rank.lists.input_arrays import copy_arrays, value_error
from keras_rank.lists.inputs import (
    RawBatch,
    check_distinguishable,
    describe_tied_labels,
    read,
    read_sparse,
)
from keras_rank.lists.item_lists import DenseLists, Lists, SparseLists
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.tensors import static_shape
from keras_rank.metrics.update import (
    UpdateSpec,
    check_ranked_lists,
    compute_checked_values,
    rank_in_steps,
)
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists
from keras_rank.ranking.order_spec import OrderSpec, RankedLists, rank_by_scores

__all__ = [
    "alpha_dcg",
    "alpha_ndcg",
    "average_precision",
    "average_precision_at_r",
    "average_relevance_position",
    "bpref",
    "dcg",
    "expected_reciprocal_rank",
    "expected_reciprocal_rank_ia",
    "f1",
    "f_beta",
    "fall_out",
    "hit_rate",
    "kendall_tau",
    "ndcg",
    "pairwise_accuracy",
    "precision",
    "precision_ia",
    "r_precision",
    "rank",
    "rank_biased_precision",
    "recall",
    "reciprocal_rank",
    "spearman_correlation",
    "subtopic_recall",
]

P = ParamSpec("P")

# The arguments of classes that functions do not have: the values that functions return
# have no name, and no mean over lists.
_CLASS_ONLY_ARGUMENTS = ("name", "empty_weight")


class PerListFunction(Protocol[P]):
    """A function of lists with the arguments of a metric class.

    Types can't express two facts: the arguments after `y_pred` are keyword-only, and
    `name` and `empty_weight` are not accepted.
    """

    __name__: str

    def __call__(
        self,
        y_true: Any,
        y_pred: Any = None,
        sample_weight: Any = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Tensor: ...


def per_list(metric: Callable[P, metrics.RankingMetric]) -> PerListFunction[P]:
    """Returns the function that computes the value of a metric for each list.

    The name of the function is set at the end of this module.
    """
    metric_class = cast(type[metrics.RankingMetric], metric)
    parameters = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(metric_class).parameters.items()
        if name not in _CLASS_ONLY_ARGUMENTS
    }

    def function(
        y_true: Any, y_pred: Any = None, *, sample_weight: Any = None, **arguments: Any
    ) -> Tensor:
        for name in _CLASS_ONLY_ARGUMENTS:
            if name in arguments:
                call = f"{function.__name__}()"
                raise TypeError(f"{call} got an unexpected keyword argument {name!r}")
        if isinstance(y_true, RankedLists):
            _check_no_contradiction(y_true, arguments)
        seed = arguments.pop("seed", None)
        arguments["dtype"] = check_dtype(arguments.get("dtype"))
        spec = _get_spec(metric_class, arguments)
        return _compute_values(spec, y_true, y_pred, sample_weight, seed)

    class_name = metric_class.__name__
    signature = inspect.signature(function)
    common_parameters = list(signature.parameters.values())[:-1]
    vars(function)["__signature__"] = signature.replace(
        parameters=[*common_parameters, *parameters.values()]
    )
    function.__doc__ = f"""Computes the value of `{class_name}` for each list.

    This function is generated from `keras_rank.metrics.{class_name}`, which documents
    the equation and its arguments. `keras_rank.functional` documents the arguments that
    all functions share.

    Returns:
        A tensor of shape `(batch,)`. A list that has only padding has the value NaN. A
        list without relevant items has `empty_value`, or NaN if that is `None`.

    Raises:
        ValueError: if an argument does not have the documented type, shape or range.
    """
    return cast(PerListFunction[P], backend.without_autograph(function))


def _get_spec(
    metric_class: type[metrics.RankingMetric], arguments: dict[str, Any]
) -> UpdateSpec:
    """Returns the specification of a function.

    It is cached, unless an argument is a user's function.
    """
    items = tuple(sorted(arguments.items()))
    if not backend.is_compilable(items):
        return _create_spec(metric_class, items)
    # The cache key contains types: `k=True` is an error, but equal to `k=1`.
    return _cached_spec(metric_class, items, tuple(type(value) for _, value in items))


def _create_spec(
    metric_class: type[metrics.RankingMetric],
    items: tuple[tuple[str, Any], ...],
    _types: tuple[type, ...] = (),
) -> UpdateSpec:
    # The function handles the seed, so the metric gets an unused one.
    return UpdateSpec.from_metrics([metric_class._create_member(**dict(items), seed=0)])


_cached_spec: Callable[..., UpdateSpec] = backend.traced_as_constant(
    functools.lru_cache(256)(_create_spec)
)


def _compute_values(
    spec: UpdateSpec, y_true: Any, y_pred: Any, sample_weight: Any, seed: Seed
) -> Tensor:
    """Returns one value per list, or NaN for a list that is left out of the mean.

    Args:
        spec: the specification of a single metric.
        y_true: labels, ids or ranked lists, as for the functions.
        y_pred: scores, as for the functions.
        sample_weight: weights, as for the functions.
        seed: the seed of the shuffle, or `None`.
    """
    (metric,) = spec.metrics
    if isinstance(y_true, RankedLists):
        y_true.check_no_scores(y_pred, sample_weight)
        check_ranked_lists(metric, y_true)
        return backend.run_program(
            _compute_ranked_values, *y_true.copy_uncached(), spec=spec
        )
    if metric.sparse_labels:
        read_result = read_sparse(y_true, y_pred, sample_weight)
    else:
        read_result = read(y_true, y_pred, sample_weight, metric.takes_subtopics)
        warn(get_row_warnings(read_result))
    if metric._compares_labels:
        check_distinguishable(read_result.labels)
    batch = read_result.batch
    key = shuffle_key(metric._ties, seed, batch.labels, batch.scores)
    if not backend.is_compilable(spec):
        lists, rankings = rank_in_steps(spec, batch, (key,), [0])
        ranked = dataclasses.replace(spec, orders=())
        return backend.run_program(
            _compute_ranked_values, lists, *rankings, spec=ranked
        )
    padded = bucket_shapes(batch, metric.sparse_labels)
    values = backend.run_program(_compute_batch_values, padded, (key,), spec=spec)
    return first_rows(values, static_shape(batch.labels)[0])


def _compute_batch_values(
    batch: RawBatch, keys: Sequence[Tensor], *, spec: UpdateSpec
) -> Tensor:
    """Returns the values of a single metric for a batch of lists."""
    lists = standardize(batch, kind=spec.kind)
    ranking = rank_by_scores(lists, keys[0], 0, order=spec.orders[0])
    return _compute_ranked_values(lists, ranking, spec=spec)


def _compute_ranked_values(
    lists: Lists, ranking: Ranking, *, spec: UpdateSpec
) -> Tensor:
    """Returns the values of a single metric for ranked lists."""
    (metric,) = spec.metrics
    relevance = metric._get_relevance(lists)
    judged = JudgedLists(lists, relevance, metric.list_weight)
    values = compute_checked_values(metric, judged, ranking.cut(metric.k))
    return judged.fill_empty(values, metric.empty_value)


ndcg = per_list(metrics.NDCG)
dcg = per_list(metrics.DCG)
average_precision = per_list(metrics.MeanAveragePrecision)
reciprocal_rank = per_list(metrics.MeanReciprocalRank)
precision = per_list(metrics.PrecisionAtK)
recall = per_list(metrics.RecallAtK)
hit_rate = per_list(metrics.HitRate)
f1 = per_list(metrics.F1AtK)
f_beta = per_list(metrics.FBetaAtK)
r_precision = per_list(metrics.RPrecision)
average_precision_at_r = per_list(metrics.MeanAveragePrecisionAtR)
expected_reciprocal_rank = per_list(metrics.ExpectedReciprocalRank)
rank_biased_precision = per_list(metrics.RankBiasedPrecision)
average_relevance_position = per_list(metrics.AverageRelevancePosition)
bpref = per_list(metrics.BPref)
fall_out = per_list(metrics.FallOut)
pairwise_accuracy = per_list(metrics.PairwiseAccuracy)
kendall_tau = per_list(metrics.KendallTau)
spearman_correlation = per_list(metrics.SpearmanCorrelation)
alpha_ndcg = per_list(metrics.AlphaNDCG)
alpha_dcg = per_list(metrics.AlphaDCG)
expected_reciprocal_rank_ia = per_list(metrics.ExpectedReciprocalRankIA)
precision_ia = per_list(metrics.PrecisionIA)
subtopic_recall = per_list(metrics.SubtopicRecall)


@backend.without_autograph
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

    The functions of this module take the result as `y_true`, and then share common
    computations.

    Args:
        y_true: as for `keras_rank.functional`: labels of shape `(batch, list_size)`.
        y_pred: as for `keras_rank.functional`: scores of the same shape.
        k: positive int. The largest cutoff that the functions may use. Defaults to
            `None`: any cutoff.
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
    order, dtype = OrderSpec(is_sparse, ties, k), check_dtype(dtype)
    if is_sparse:
        read_result = read_sparse(y_true, y_pred, sample_weight)
    else:
        read_result = read(y_true, y_pred, sample_weight, takes_subtopics=True)
        warn(get_row_warnings(read_result))
    # The user may change arrays after the call, so the result holds copies.
    batch = RawBatch(*map(copy_arrays, read_result.batch))
    # The batch keeps its shape, without padding, as a user's formulas may read it.
    key = shuffle_key(ties, seed, batch.labels, batch.scores)
    lists, ranking = _rank_batch(batch, key, order=order, dtype=dtype)
    return RankedLists(
        lists, ranking, k, ties, describe_tied_labels(read_result.labels)
    )


def _check_no_contradiction(ranked: RankedLists, arguments: dict[str, Any]) -> None:
    """Raises `ValueError` if an argument contradicts the ranked lists.

    Default values never contradict them.
    """
    shuffle_ties = arguments.get("shuffle_ties", True)
    sparse_labels = arguments.get("sparse_labels", False)
    dtype = arguments.get("dtype")
    is_sparse = check_flag("sparse_labels", sparse_labels)
    has_all_labels = not ranked.lists.holds_targets
    contradictions = {
        "shuffle_ties": check_ties(shuffle_ties) not in ("shuffle", ranked.ties),
        "seed": arguments.get("seed") is not None,
        "sparse_labels": is_sparse and has_all_labels,
        "dtype": dtype is not None and check_dtype(dtype) != ranked.lists.dtype,
    }
    for argument, contradicts in contradictions.items():
        if contradicts:
            expected = "be left out when `y_true` is ranked lists, which have their own"
            received = f"{argument}={arguments[argument]!r}"
            raise value_error(argument, expected, received)


def _rank_batch(
    batch: RawBatch, key: Tensor, *, order: OrderSpec, dtype: str
) -> tuple[DenseLists | SparseLists, Ranking]:
    """Returns standardized lists and their ranking.

    They are computed by one program, unless sizes depend on values.
    """
    if order.is_stepwise:
        return _rank_lists(batch, key, order=order, dtype=dtype)
    return backend.run_program(_rank_lists, batch, key, order=order, dtype=dtype)


def _rank_lists(
    batch: RawBatch, key: Tensor, *, order: OrderSpec, dtype: str
) -> tuple[DenseLists | SparseLists, Ranking]:
    kind = Kind(order.is_for_targets, dtype, order.k)
    lists = order.run_step(standardize, batch, kind=kind)
    return lists, rank_by_scores(lists, key, order=order)


# Keras saves a function by its name, and a `TypeError` contains the name of the wrapped
# function, so both functions get the public name.
for _name in set(__all__) - {"rank"}:
    for _function in (globals()[_name], inspect.unwrap(globals()[_name])):
        _function.__qualname__ = _function.__name__ = _name
