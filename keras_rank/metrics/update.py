"""Updates of metrics, which read and rank each batch once for several metrics."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import keras
from keras import ops

from keras_rank.arguments import ShuffleTies
from keras_rank.backends import Tensor, backend
from keras_rank.lists.first_batch_warnings import (
    get_first_batch_warnings,
    warn,
)
from keras_rank.lists.inputs import (
    RawBatch,
    check_distinguishable,
    read,
    read_sparse,
)
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.tensors import check_result_shape, static_shape
from keras_rank.metrics.variables import (
    State,
    SumVariable,
    Update,
    end_compiling,
    read_state,
)
from keras_rank.ranking.base import TIE_BOUNDS, Ranking, Ties
from keras_rank.ranking.judged_lists import JudgedLists
from keras_rank.ranking.order_spec import OrderSpec, RankedLists, rank_by_scores
from keras_rank.state import LISTS, add

# The values of the argument `shuffle_ties`, by the internal name of the tie rule.
SHUFFLE_TIES: dict[Ties, ShuffleTies] = {
    "shuffle": True,
    "stable": False,
    "average": "average",
    "worst": "worst",
    "best": "best",
}


class OrderedMetric(Protocol):
    """Attributes that all metrics have, such as the cutoff and the order of ties."""

    k: int | None
    _compute_dtype: str
    _is_new: bool
    _order: tuple[Ties, int]


class ListMetric(OrderedMetric, Protocol):
    """Attributes of a `RankingMetric` that an update reads."""

    sparse_labels: bool
    takes_sparse_labels: bool
    takes_subtopics: bool
    empty_value: float | None
    empty_weight: str
    list_weight: str
    _compares_labels: bool
    _ties: Ties
    _check_ties: Callable[[Any], Ties]

    @property
    def shuffle_ties(self) -> ShuffleTies: ...

    @property
    def _arguments(self) -> tuple[Any, ...]: ...

    @property
    def _weighs_empty_lists(self) -> bool: ...

    def _get_relevance(self, lists: Lists) -> Relevance | Tensor: ...

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor: ...


T = TypeVar("T")
M = TypeVar("M", bound=OrderedMetric)
K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class UpdateSpec:
    """A specification of the update of metrics that share their inputs.

    Two specifications are equal if one compiled program can serve both. Seeds are
    arguments of the program, so they are not compared.

    Attributes:
        metrics: the metrics.
        arguments: the class and the arguments of each metric.
        kind: the kind of the standardized lists.
        orders: the distinct orders that the metrics require.
        order_indices: the index in `orders` of the order of each metric.
        keys: the key of the seed of each order.
    """

    metrics: tuple[ListMetric, ...] = dataclasses.field(compare=False)
    arguments: tuple[Any, ...]
    kind: Kind
    orders: tuple[OrderSpec, ...]
    order_indices: tuple[int, ...]
    keys: tuple[int, ...] = dataclasses.field(compare=False)

    @classmethod
    def from_metrics(
        cls, metrics: Sequence[ListMetric], ties: Ties | None = None
    ) -> "UpdateSpec":
        """Returns the specification for metrics.

        Args:
            metrics: the metrics, which share their inputs.
            ties: how all metrics order ties. Defaults to `None`: each metric uses its
                own `shuffle_ties`.
        """
        metrics_by_order: dict[tuple[Ties, int], list[ListMetric]] = {}
        order_keys, arguments = [], []
        for metric in metrics:
            order_key = metric._order if ties is None else (ties, 0)
            metrics_by_order.setdefault(order_key, []).append(metric)
            order_keys.append(order_key)
            arguments.append(metric._arguments)
        is_sparse = metrics[0].sparse_labels
        k = find_largest_cutoff(metrics) if is_sparse else None
        tie_rules, keys = zip(*metrics_by_order, strict=True)
        orders = [
            OrderSpec(is_sparse, tie_rule, find_largest_cutoff(members))
            for tie_rule, members in zip(
                tie_rules, metrics_by_order.values(), strict=True
            )
        ]
        return cls(
            metrics=tuple(metrics),
            arguments=tuple(arguments),
            kind=Kind(is_sparse, metrics[0]._compute_dtype, k),
            orders=tuple(orders),
            order_indices=tuple(map(list(metrics_by_order).index, order_keys)),
            keys=keys,
        )

    def cut_rankings(self, order_rankings: Sequence[Ranking]) -> list[Ranking]:
        """Returns a ranking for each metric, cut at the cutoff of the metric.

        Args:
            order_rankings: a ranking for each of `orders`.
        """
        cutoffs = [metric.k for metric in self.metrics if metric.k is not None]
        largest_k = max(cutoffs, default=None)
        cuts: dict[tuple[int, int | None], Ranking] = {}
        rankings = []
        for metric, index in zip(self.metrics, self.order_indices, strict=True):
            cut_key = index, metric.k
            if cut_key not in cuts:
                cuts[cut_key] = order_rankings[index].cut(metric.k, largest_k)
            rankings.append(cuts[cut_key])
        return rankings


def group_by(values: Iterable[T], by: Callable[[T], K]) -> dict[K, list[T]]:
    """Groups values, such as metrics, by a key."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(by(value), []).append(value)
    return groups


def find_largest_cutoff(metrics: Sequence[OrderedMetric]) -> int | None:
    """Returns the largest cutoff of the metrics, or `None` if one has no cutoff."""
    cutoffs = [metric.k for metric in metrics if metric.k is not None]
    return max(cutoffs) if len(cutoffs) == len(metrics) else None


def compute_updates(
    metrics: Sequence[ListMetric],
    sums: Sequence[SumVariable],
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
) -> list[Update]:
    """Returns the variables of metrics with their new values.

    All values are computed before any is assigned, so an error leaves the state
    unchanged.

    Args:
        metrics: the metrics.
        sums: the variables of the metrics.
        y_true: as for `RankingMetric.update_state`.
        y_pred: as for `RankingMetric.update_state`.
        sample_weight: as for `RankingMetric.update_state`.
    """
    end_compiling()
    new_state = read_state(sums)
    if isinstance(y_true, RankedLists):
        y_true.check_no_scores(y_pred, sample_weight)
        return list(
            zip(sums, _add_ranked_lists(metrics, y_true, new_state), strict=True)
        )
    for indices, batch in _read_batches(metrics, y_true, y_pred, sample_weight):
        members = [metrics[index] for index in indices]
        spec, state = UpdateSpec.from_metrics(members), new_state.select(indices)
        if backend.is_compilable(spec):
            batch = bucket_shapes(batch, members[0].sparse_labels)
            state = backend.run_program(_add_batch, batch, spec.keys, state, spec=spec)
        else:
            columns = _compute_columns_in_steps(
                spec, batch, _get_lists_seen(spec, state)
            )
            state = backend.run_program(add_columns, columns, state)
        new_state = new_state.replace_metrics(indices, state)
    return list(zip(sums, new_state, strict=True))


def _read_batches(
    metrics: Sequence[ListMetric],
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    *,
    should_warn_of_weights: bool = True,
) -> Iterator[tuple[list[int], RawBatch]]:
    """Reads a batch once for each group of metrics that share their inputs.

    Yields:
        The indices of the metrics of a group, and the batch that they read.
    """
    messages: list[str] = []
    for (sparse_labels, _), indices in group_by_inputs(metrics).items():
        members = [metrics[index] for index in indices]
        if sparse_labels:
            reading = read_sparse(y_true, y_pred, sample_weight)
        else:
            takes_subtopics = False not in {m.takes_subtopics for m in members}
            reading = read(y_true, y_pred, sample_weight, takes_subtopics)
        for metric in members:
            if metric._compares_labels:
                check_distinguishable(reading.labels)
                break
        is_single = tuple(reading.batch.scores.shape) == (1, 1)
        if not is_single and has_first_batch(members):
            messages += get_first_batch_warnings(
                reading, sparse_labels, members, should_warn_of_weights
            )
        yield indices, reading.batch
    if messages:
        warn(messages)


def compute_columns(
    metrics: Sequence[ListMetric], inputs: Sequence[Any], state: State
) -> Iterator[tuple[list[int], Tensor]]:
    """Computes the columns of a batch, which are summed into the totals of metrics.

    Args:
        metrics: the metrics.
        inputs: `y_true`, `y_pred` and `sample_weight`.
        state: the sums over all earlier lists. Their number is a key of the shuffle.

    Yields:
        For each group of metrics that share their inputs, the indices of the metrics
        and their columns: see `keras_rank.state`.
    """
    # The callbacks, which call this function, check the weights of all batches.
    for indices, batch in _read_batches(metrics, *inputs, should_warn_of_weights=False):
        spec = UpdateSpec.from_metrics([metrics[index] for index in indices])
        first_lists = _get_lists_seen(spec, state.select(indices))
        if backend.is_compilable(spec):
            columns = backend.run_program(
                _compute_batch_columns, batch, spec.keys, first_lists, spec=spec
            )
        else:
            columns = _compute_columns_in_steps(spec, batch, first_lists)
        yield indices, columns


def check_inputs(metrics: Sequence[ListMetric], inputs: Sequence[Any]) -> None:
    """Raises `ValueError` if the shapes or dtypes of the inputs don't match."""
    for _ in _read_batches(metrics, *inputs, should_warn_of_weights=False):
        pass


def compute_ranked_columns(
    metrics: Sequence[ListMetric], ranked: RankedLists
) -> Tensor:
    """Returns the columns of ranked lists, which are summed into the totals."""
    _check_metrics(metrics, ranked)
    spec = UpdateSpec.from_metrics(metrics)
    return backend.run_program(
        _compute_ranking_columns, *ranked.copy_uncached(), spec=spec
    )


def _add_ranked_lists(
    metrics: Sequence[ListMetric], ranked: RankedLists, state: State
) -> State:
    """Returns the state of metrics with ranked lists added."""
    _check_metrics(metrics, ranked)
    spec = UpdateSpec.from_metrics(metrics)
    return backend.run_program(_add_ranking, *ranked.copy_uncached(), state, spec=spec)


def compute_results(
    statistic: Callable[..., Tensor], metrics: Sequence[ListMetric], state: State
) -> list[Tensor]:
    """Returns a statistic, the mean or the standard error, of each metric."""
    cache: dict[tuple[float | None, str], list[Tensor]] = {}
    values = []
    for index, metric in enumerate(metrics):
        settings = metric.empty_value, metric._compute_dtype
        if settings not in cache:
            cache[settings] = backend.run_program(
                _compute_statistics,
                *state[:2],
                statistic=statistic,
                empty_value=metric.empty_value,
                dtype=metric._compute_dtype,
            )
        values.append(cache[settings][index])
    return values


def _compute_statistics(
    totals: Tensor,
    remainders: Tensor,
    *,
    statistic: Callable[..., Tensor],
    empty_value: float | None,
    dtype: str,
) -> list[Tensor]:
    values = statistic(totals, remainders, empty_value=empty_value, dtype=dtype)
    return list(ops.unstack(values)) if len(values.shape) else [values]


def has_first_batch(metrics: Sequence[OrderedMetric]) -> bool:
    """Returns whether the batch is the first one of any metric, and marks it as seen.

    Returns False while `torch.compile` traces the update: changing the attribute would
    make it compile the update again for the next batch.
    """
    if backend.is_compiling():
        return False
    is_first = False
    for metric in metrics:
        if metric._is_new:
            is_first, metric._is_new = True, False
    return is_first


def group_by_inputs(metrics: Sequence[ListMetric]) -> dict[tuple[bool, str], list[int]]:
    """Groups the indices of metrics that share their inputs."""
    groups: dict[tuple[bool, str], list[int]] = {}
    for index, metric in enumerate(metrics):
        inputs = metric.sparse_labels, metric._compute_dtype
        groups.setdefault(inputs, []).append(index)
    return groups


def check_supports_targets(metric: ListMetric) -> None:
    """Raises `ValueError` if the metric needs the labels of all items."""
    if not metric.takes_sparse_labels:
        raise ValueError(
            f"`{type(metric).__name__}` should get the labels of all items. Received: "
            "ranked lists that hold only the relevant items"
        )


def check_ranked_lists(metric: ListMetric, ranked: RankedLists) -> None:
    """Raises `ValueError` if the metric needs other ties, labels or more ranks."""
    if ranked.ties in TIE_BOUNDS:
        metric._check_ties(ranked.ties)
    if ranked.lists.holds_targets:
        check_supports_targets(metric)
    ranked.check_subtopics(type(metric).__name__, metric.takes_subtopics)
    ranked.check_cutoff(metric.k)
    ranked.check_label_ties(metric._compares_labels)


def _check_metrics(metrics: Sequence[ListMetric], ranked: RankedLists) -> None:
    """Raises `ValueError` if a metric needs other ties, other labels or more ranks."""
    for metric in metrics:
        check_ranked_lists(metric, ranked)
        if ranked.ties != metric._ties:
            raise ValueError(
                "`shuffle_ties` should be the same for the metric and the ranked "
                f"lists. Received: shuffle_ties={metric.shuffle_ties!r} of the metric, "
                f"shuffle_ties={SHUFFLE_TIES[ranked.ties]!r} of the lists"
            )


def _add_batch(
    batch: RawBatch, keys: Sequence[Tensor], state: State, *, spec: UpdateSpec
) -> State:
    """Returns the state of metrics with a batch of lists added."""
    columns = _compute_batch_columns(
        batch, keys, _get_lists_seen(spec, state), spec=spec
    )
    return add_columns(columns, state)


def _compute_batch_columns(
    batch: RawBatch,
    keys: Sequence[Tensor],
    first_lists: list[Tensor],
    *,
    spec: UpdateSpec,
) -> Tensor:
    """Returns the columns of a batch, computed in one program."""
    lists = standardize(batch, kind=spec.kind)
    rankings = _rank_lists(spec, lists, keys, first_lists)
    return _stack_columns(lists, spec.cut_rankings(rankings), spec=spec)


def _compute_columns_in_steps(
    spec: UpdateSpec, batch: RawBatch, first_lists: list[Tensor]
) -> Tensor:
    """Returns the columns of a batch, computed in several programs.

    A user's code, which a program can't include, runs between two programs.
    """
    lists, rankings = rank_in_steps(spec, batch, spec.keys, first_lists)
    ranked_spec = dataclasses.replace(spec, orders=())
    return backend.run_program(
        _stack_columns, lists, spec.cut_rankings(rankings), spec=ranked_spec
    )


def rank_in_steps(
    spec: UpdateSpec,
    batch: RawBatch,
    keys: Sequence[Tensor],
    first_lists: Sequence[Tensor | int],
) -> tuple[Lists, list[Ranking]]:
    """Returns the lists and a ranking for each order, each from a separate program."""
    lists = backend.run_program(standardize, batch, kind=spec.kind)
    rankings = [
        rank_by_scores(lists, key, first_list, order=order)
        if order.is_stepwise
        else backend.run_program(rank_by_scores, lists, key, first_list, order=order)
        for order, key, first_list in zip(spec.orders, keys, first_lists, strict=True)
    ]
    return lists, rankings


def _add_ranking(
    lists: Lists, ranking: Ranking, state: State, *, spec: UpdateSpec
) -> State:
    """Returns the state of metrics with ranked lists added."""
    return add_columns(_compute_ranking_columns(lists, ranking, spec=spec), state)


def _compute_ranking_columns(
    lists: Lists, ranking: Ranking, *, spec: UpdateSpec
) -> Tensor:
    """Returns the columns of ranked lists, with one ranking for all metrics."""
    cuts = {metric.k: ranking.cut(metric.k) for metric in spec.metrics}
    rankings = [cuts[metric.k] for metric in spec.metrics]
    return _stack_columns(lists, rankings, spec=spec)


def compute_values(
    batch: RawBatch, keys: Sequence[Tensor], list_numbers: Tensor, *, spec: UpdateSpec
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns the values of each metric, one for each list.

    Args:
        batch: the lists.
        keys: the keys of the seeds of the orders.
        list_numbers: int tensor of shape `(batch,)`. The number that keys the shuffle
            of each list.
        spec: the specification of the metrics.

    Returns:
        For each metric, three tensors of shape `(batch,)`: whether the lists have
        relevant items, their values and their weights.
    """
    lists = standardize(batch, kind=spec.kind)
    # `rank_by_scores` adds the index of a list among the lists with items.
    first_list = list_numbers - (ops.cumsum(ops.cast(lists.has_items, "int32")) - 1)
    rankings = _rank_lists(spec, lists, keys, [first_list] * len(spec.orders))
    return [
        (judged.has_relevant, judged.fill_empty(values, metric.empty_value), weights)
        for metric, judged, values, weights in _compute_metrics(
            spec, lists, spec.cut_rankings(rankings)
        )
    ]


def _get_lists_seen(spec: UpdateSpec, state: State) -> list[Tensor]:
    """Returns the number of lists seen before this batch, for each order."""
    if not state.is_stacked:
        return [state.lists_seen]
    return [
        state.lists_seen[spec.order_indices.index(i)] for i in range(len(spec.orders))
    ]


def _rank_lists(
    spec: UpdateSpec, lists: Lists, keys: Sequence[Tensor], first_lists: Sequence[Any]
) -> list[Ranking]:
    """Returns a ranking of the lists for each order of the specification."""
    return [
        rank_by_scores(lists, key, first_list, order=order)
        for order, key, first_list in zip(spec.orders, keys, first_lists, strict=True)
    ]


class MetricValues(NamedTuple):
    """Values and weights of lists that a metric has computed, of shape `(batch,)`.

    The value of a list without relevant items is undefined and must not be used.
    """

    metric: ListMetric
    judged: JudgedLists
    values: Tensor
    weights: Tensor


def _compute_metrics(
    spec: UpdateSpec, lists: Lists, rankings: Sequence[Ranking]
) -> list[MetricValues]:
    """Computes metrics. Metrics with equal relevance share one `JudgedLists`."""
    shared: list[JudgedLists] = []
    metric_values = []
    for metric, ranking in zip(spec.metrics, rankings, strict=True):
        relevance = metric._get_relevance(lists)
        list_weight = metric.list_weight
        matching = (x for x in shared if x.is_by(relevance, list_weight))
        judged = next(matching, None) or JudgedLists(lists, relevance, list_weight)
        shared.append(judged)
        values = compute_checked_values(metric, judged, ranking)
        weights = judged.list_weights
        if metric._weighs_empty_lists:
            empty_weights = judged.empty_list_weights
            weights = backend.where(judged.has_relevant, weights, empty_weights)
        metric_values.append(MetricValues(metric, judged, values, weights))
    return metric_values


def compute_checked_values(
    metric: ListMetric, judged: JudgedLists, ranking: Ranking
) -> Tensor:
    """Returns the values of a metric, checked and cast to the dtype of the lists."""
    values = metric.compute(judged, ranking)
    dtype = getattr(values, "dtype", None)
    if dtype is None or keras.backend.standardize_dtype(dtype) != judged.dtype:
        values = values if values is None else ops.cast(values, judged.dtype)
    expected = functools.partial(_describe_expected_values, metric, judged)
    check_result_shape(values, judged.has_items, expected)
    return values


def _describe_expected_values(metric: ListMetric, judged: JudgedLists) -> str:
    """Returns the part of an error message that says what `compute` should return."""
    return (
        f"`{type(metric).__name__}.compute` should return one value per list, of "
        f"shape (batch,), for lists of shape {static_shape(judged.labels)}"
    )


def _stack_columns(
    lists: Lists, rankings: Sequence[Ranking], *, spec: UpdateSpec
) -> Tensor:
    """Computes metrics and returns their columns (see `keras_rank.state`), stacked."""
    rows_by_metric = []
    for metric, judged, values, weights in _compute_metrics(spec, lists, rankings):
        counts = judged.has_relevant
        if metric._weighs_empty_lists:
            # An empty list with its own weight counts like any other list.
            values = backend.where(counts, values, metric.empty_value)
            counts = lists.has_items
        rows_by_metric.append([values, weights, counts, lists.has_items])
    rows = (
        rows_by_metric[0]
        if len(rows_by_metric) == 1
        else _stack_metrics(rows_by_metric)
    )
    values, weights, counts, has_items = rows
    values = backend.where(counts, values * weights, 0.0)
    library = backend.get_library(values)
    columns: Tensor = library.stack([values, weights, counts, has_items])
    return columns


def _stack_metrics(rows_by_metric: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    """Stacks the values, weights, counts and `has_items` of several metrics."""
    rows = [x for column in zip(*rows_by_metric, strict=True) for x in column]
    columns = backend.get_library(rows[0]).stack(rows)
    columns = ops.reshape(columns, (4, len(rows_by_metric), -1))
    # XLA would compute all formulas again for each product without the barrier.
    values, weights, counts, has_items = ops.unstack(backend.fusion_barrier(columns), 4)
    return values, weights, counts > 0.0, has_items


def add_columns(columns: Tensor, state: State) -> State:
    """Returns the state with the columns of lists and the number of lists added."""
    if state.is_stacked and len(columns.shape) == 2:
        columns = columns[:, None]
    totals, remainders, added = add(state.totals, state.remainders, columns)
    lists_seen = backend.add_entry(state.lists_seen, added, LISTS, LISTS)
    return State(totals, remainders, lists_seen)
