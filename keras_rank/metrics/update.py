"""One batch for many metrics: read and ordered once, with the results of all added."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import keras
from keras import ops

from keras_rank.arguments import ShuffleTies
from keras_rank.backends import Tensor, backend
from keras_rank.lists.first_batch_warnings import (
    warn,
    warnings_of_first_batch,
)
from keras_rank.lists.inputs import (
    RawBatch,
    check_told_apart,
    read,
    read_sparse,
)
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.tensors import check_returned, shape_of
from keras_rank.metrics.variables import (
    State,
    SumVariable,
    Update,
    end_compiling,
    state_of,
)
from keras_rank.ranking.base import Ranking, Ties
from keras_rank.ranking.judged_lists import JudgedLists
from keras_rank.ranking.order_spec import OrderSpec, RankedLists, rank_by_scores
from keras_rank.state import LISTS, add

# The values of `shuffle_ties`, by what they stand for.
SHUFFLE_TIES: dict[Ties, ShuffleTies] = {
    "shuffle": True,
    "stable": False,
    "average": "average",
}


class OrderedMetric(Protocol):
    """Attributes of all metrics, such as the cutoff and the order of tied items."""

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
    _compares_labels: bool
    _ties: Ties

    @property
    def shuffle_ties(self) -> ShuffleTies: ...

    @property
    def _arguments(self) -> tuple[Any, ...]: ...

    @property
    def _weighs_empty_lists(self) -> bool: ...

    def _relevance_for(self, lists: Lists) -> Relevance | Tensor: ...

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor: ...


T = TypeVar("T")
M = TypeVar("M", bound=OrderedMetric)
K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class UpdateSpec:
    """What is computed for metrics that share their inputs.

    Two are equal if the same program computes them: seeds are not part of it.

    Attributes:
        metrics: the metrics.
        arguments: the class and the arguments of each.
        kind: that of the lists that all read.
        orders: the orders that they ask for.
        order_of: the place of the order of each metric among these.
        keys: the keys of their seeds.
    """

    metrics: tuple[ListMetric, ...] = dataclasses.field(compare=False)
    arguments: tuple[Any, ...]
    kind: Kind
    orders: tuple[OrderSpec, ...]
    order_of: tuple[int, ...]
    keys: tuple[int, ...] = dataclasses.field(compare=False)

    @classmethod
    def of(
        cls, metrics: Sequence[ListMetric], ties: Ties | None = None
    ) -> "UpdateSpec":
        """Returns the spec of metrics, with ties ordered as given, or as each says."""
        by_order: dict[tuple[Ties, int], list[ListMetric]] = {}
        which, arguments = [], []
        for metric in metrics:
            its = metric._order if ties is None else (ties, 0)
            by_order.setdefault(its, []).append(metric)
            which.append(its)
            arguments.append(metric._arguments)
        is_sparse = metrics[0].sparse_labels
        k = number_of_ranks(metrics) if is_sparse else None
        rules, keys = zip(*by_order, strict=True)
        orders = [
            OrderSpec(is_sparse, its_ties, number_of_ranks(members))
            for its_ties, members in zip(rules, by_order.values(), strict=True)
        ]
        return cls(
            metrics=tuple(metrics),
            arguments=tuple(arguments),
            kind=Kind(is_sparse, metrics[0]._compute_dtype, k),
            orders=tuple(orders),
            order_of=tuple(map(list(by_order).index, which)),
            keys=keys,
        )

    def rankings(self, of_orders: Sequence[Ranking]) -> list[Ranking]:
        """Returns the ranking of each metric, given those of all orders."""
        cutoffs = [metric.k for metric in self.metrics if metric.k is not None]
        largest_k = max(cutoffs, default=None)
        cuts: dict[tuple[int, int | None], Ranking] = {}
        rankings = []
        for metric, place in zip(self.metrics, self.order_of, strict=True):
            which = place, metric.k
            if which not in cuts:
                cuts[which] = of_orders[place].cut(metric.k, largest_k)
            rankings.append(cuts[which])
        return rankings


def grouped(values: Iterable[T], by: Callable[[T], K]) -> dict[K, list[T]]:
    """Groups values, such as metrics, by a key."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(by(value), []).append(value)
    return groups


def number_of_ranks(metrics: Sequence[OrderedMetric]) -> int | None:
    """How many ranks metrics need together, `None` for all."""
    cutoffs = [metric.k for metric in metrics if metric.k is not None]
    return max(cutoffs) if len(cutoffs) == len(metrics) else None


def updates_of(
    metrics: Sequence[ListMetric],
    sums: Sequence[SumVariable],
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
) -> list[Update]:
    """Returns the variables of metrics with their new values.

    All is computed before any is assigned, so that an error leaves the state unchanged.

    Args:
        metrics: the metrics.
        sums: their variables.
        y_true: as for `RankingMetric.update_state`.
        y_pred: as for `RankingMetric.update_state`.
        sample_weight: as for `RankingMetric.update_state`.
    """
    end_compiling()
    new = state_of(sums)
    if isinstance(y_true, RankedLists):
        y_true.check_alone(y_pred, sample_weight)
        return list(zip(sums, _with_ranked_lists(metrics, y_true, new), strict=True))
    for indices, batch in _batches(metrics, y_true, y_pred, sample_weight):
        members = [metrics[index] for index in indices]
        spec, state = UpdateSpec.of(members), new.of(indices)
        if backend.is_ours(spec):
            batch = bucket_shapes(batch, members[0].sparse_labels)
            its = backend.enter(_with_batch, batch, spec.keys, state, spec=spec)
        else:
            columns = _by_steps(spec, batch, _lists_seen(spec, state))
            its = backend.enter(with_columns, columns, state)
        new = new.replaced(indices, its)
    return list(zip(sums, new, strict=True))


def _batches(
    metrics: Sequence[ListMetric],
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    *,
    warns_of_weights: bool = True,
) -> Iterator[tuple[list[int], RawBatch]]:
    """Reads the lists once for all metrics that share their inputs.

    Yields:
        The indices of these metrics, and what they read.
    """
    messages: list[str] = []
    for (sparse_labels, _), indices in by_inputs(metrics).items():
        members = [metrics[index] for index in indices]
        if sparse_labels:
            reading = read_sparse(y_true, y_pred, sample_weight)
        else:
            takes_subtopics = False not in {m.takes_subtopics for m in members}
            reading = read(y_true, y_pred, sample_weight, takes_subtopics)
        for metric in members:
            if metric._compares_labels:
                check_told_apart(reading.labels)
                break
        is_single = tuple(reading.batch.scores.shape) == (1, 1)
        if not is_single and has_first_batch(members):
            messages += warnings_of_first_batch(
                reading, sparse_labels, members, warns_of_weights
            )
        yield indices, reading.batch
    if messages:
        warn(messages)


def columns_of(
    metrics: Sequence[ListMetric], given: Sequence[Any], state: State
) -> Iterator[tuple[list[int], Tensor]]:
    """Returns what each list adds to the totals, for metrics that share their inputs.

    Args:
        metrics: the metrics.
        given: `y_true`, `y_pred` and `sample_weight`.
        state: the sums of all lists before, whose number keys the shuffle.

    Returns:
        The indices of the metrics, and their columns: see `keras_rank.state`.
    """
    # Callbacks warn of all weights themselves.
    for indices, batch in _batches(metrics, *given, warns_of_weights=False):
        spec = UpdateSpec.of([metrics[index] for index in indices])
        first_lists = _lists_seen(spec, state.of(indices))
        if backend.is_ours(spec):
            columns = backend.enter(_columns, batch, spec.keys, first_lists, spec=spec)
        else:
            columns = _by_steps(spec, batch, first_lists)
        yield indices, columns


def check_given(metrics: Sequence[ListMetric], given: Sequence[Any]) -> None:
    """Raises what `columns_of` does where shapes and dtypes don't match."""
    for _ in _batches(metrics, *given, warns_of_weights=False):
        pass


def columns_of_ranked(metrics: Sequence[ListMetric], ranked: RankedLists) -> Tensor:
    """Returns what each of some ranked lists adds to the totals of metrics."""
    _check_take(metrics, ranked)
    spec = UpdateSpec.of(metrics)
    return backend.enter(_columns_of_ranked, *ranked.fresh(), spec=spec)


def _with_ranked_lists(
    metrics: Sequence[ListMetric], ranked: RankedLists, state: State
) -> State:
    """Returns the state of metrics with ranked lists added."""
    _check_take(metrics, ranked)
    spec = UpdateSpec.of(metrics)
    return backend.enter(_with_ranked, *ranked.fresh(), state, spec=spec)


def results(
    statistic: Callable[..., Tensor], metrics: Sequence[ListMetric], state: State
) -> list[Tensor]:
    """Returns the mean of each metric, or its standard error, given their state."""
    found: dict[tuple[float | None, str], list[Tensor]] = {}
    values = []
    for place, metric in enumerate(metrics):
        which = metric.empty_value, metric._compute_dtype
        if which not in found:
            found[which] = backend.enter(
                _of_each,
                *state[:2],
                statistic=statistic,
                empty_value=metric.empty_value,
                dtype=metric._compute_dtype,
            )
        values.append(found[which][place])
    return values


def _of_each(
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
    """Returns whether any metric gets its first batch, and notes that it had one.

    It is False in `torch.compile`, which would compile the next batch anew, as the
    attribute has changed.
    """
    if backend.is_compiling():
        return False
    is_first = False
    for metric in metrics:
        if metric._is_new:
            is_first, metric._is_new = True, False
    return is_first


def by_inputs(metrics: Sequence[ListMetric]) -> dict[tuple[bool, str], list[int]]:
    """Groups the indices of metrics that share their inputs."""
    groups: dict[tuple[bool, str], list[int]] = {}
    for index, metric in enumerate(metrics):
        inputs = metric.sparse_labels, metric._compute_dtype
        groups.setdefault(inputs, []).append(index)
    return groups


def check_takes_targets(metric: ListMetric) -> None:
    """Raises for a metric that needs the labels of all items."""
    if not metric.takes_sparse_labels:
        raise ValueError(
            f"`{type(metric).__name__}` should get the labels of all items. Received: "
            "ranked lists that hold only the relevant items"
        )


def check_reads(metric: ListMetric, ranked: RankedLists) -> None:
    """Raises for a metric that needs other labels or more ranks."""
    if ranked.lists.holds_targets:
        check_takes_targets(metric)
    ranked.check_subtopics(type(metric).__name__, metric.takes_subtopics)
    ranked.check_cutoff(metric.k)
    ranked.check_compared(metric._compares_labels)


def _check_take(metrics: Sequence[ListMetric], ranked: RankedLists) -> None:
    """Raises for a metric that needs another order, other labels or more ranks."""
    for metric in metrics:
        check_reads(metric, ranked)
        if ranked.ties != metric._ties:
            raise ValueError(
                "`shuffle_ties` should be the same for the metric and the ranked "
                f"lists. Received: shuffle_ties={metric.shuffle_ties!r} of the metric, "
                f"shuffle_ties={SHUFFLE_TIES[ranked.ties]!r} of the lists"
            )


def _with_batch(
    batch: RawBatch, keys: Sequence[Tensor], state: State, *, spec: UpdateSpec
) -> State:
    """The state of metrics with lists added."""
    columns = _columns(batch, keys, _lists_seen(spec, state), spec=spec)
    return with_columns(columns, state)


def _columns(
    batch: RawBatch,
    keys: Sequence[Tensor],
    first_lists: list[Tensor],
    *,
    spec: UpdateSpec,
) -> Tensor:
    """What lists add to the totals of metrics."""
    lists = standardize(batch, kind=spec.kind)
    rankings = _in_orders(spec, lists, keys, first_lists)
    return _columns_of(lists, spec.rankings(rankings), spec=spec)


def _by_steps(spec: UpdateSpec, batch: RawBatch, first_lists: list[Tensor]) -> Tensor:
    """Returns what lists add to totals, with a user's code between two programs."""
    lists, rankings = ranked_by_steps(spec, batch, spec.keys, first_lists)
    ranked = dataclasses.replace(spec, orders=())
    return backend.enter(_columns_of, lists, spec.rankings(rankings), spec=ranked)


def ranked_by_steps(
    spec: UpdateSpec,
    batch: RawBatch,
    keys: Sequence[Tensor],
    first_lists: Sequence[Tensor | int],
) -> tuple[Lists, list[Ranking]]:
    """Returns lists and their orders. Separate programs compute each of them."""
    lists = backend.enter(standardize, batch, kind=spec.kind)
    rankings = [
        rank_by_scores(lists, key, first_list, order=order)
        if order.by_steps
        else backend.enter(rank_by_scores, lists, key, first_list, order=order)
        for order, key, first_list in zip(spec.orders, keys, first_lists, strict=True)
    ]
    return lists, rankings


def _with_ranked(
    lists: Lists, ranking: Ranking, state: State, *, spec: UpdateSpec
) -> State:
    """The state of metrics with ranked lists added."""
    return with_columns(_columns_of_ranked(lists, ranking, spec=spec), state)


def _columns_of_ranked(lists: Lists, ranking: Ranking, *, spec: UpdateSpec) -> Tensor:
    """What ranked lists add to the totals of metrics."""
    cuts = {metric.k: ranking.cut(metric.k) for metric in spec.metrics}
    rankings = [cuts[metric.k] for metric in spec.metrics]
    return _columns_of(lists, rankings, spec=spec)


def values_with(
    batch: RawBatch, keys: Sequence[Tensor], numbers: Tensor, *, spec: UpdateSpec
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns for each metric: which lists have relevant items, values and weights.

    Args:
        batch: the lists.
        keys: the keys of the seeds of the orders.
        numbers: int tensor of shape `(batch,)`. The number that each list has in the
            shuffle.
        spec: what is computed.
    """
    lists = standardize(batch, kind=spec.kind)
    # The place of a list in the batch is added to it.
    first_list = numbers - (ops.cumsum(ops.cast(lists.has_items, "int32")) - 1)
    rankings = _in_orders(spec, lists, keys, [first_list] * len(spec.orders))
    return [
        (judged.has_relevant, judged.fill_empty(values, metric.empty_value), weights)
        for metric, judged, values, weights in _computed(
            spec, lists, spec.rankings(rankings)
        )
    ]


def _lists_seen(spec: UpdateSpec, state: State) -> list[Tensor]:
    """The number of lists seen before, for each order."""
    if not state.is_stacked:
        return [state.lists_seen]
    return [state.lists_seen[spec.order_of.index(i)] for i in range(len(spec.orders))]


def _in_orders(
    spec: UpdateSpec, lists: Lists, keys: Sequence[Tensor], first_lists: Sequence[Any]
) -> list[Ranking]:
    """Lists ordered in each of several ways."""
    return [
        rank_by_scores(lists, key, first_list, order=order)
        for order, key, first_list in zip(spec.orders, keys, first_lists, strict=True)
    ]


class Computed(NamedTuple):
    """What a metric computes for lists: values and weights, of shape `(batch,)`.

    The value of a list without relevant items is not to be used.
    """

    metric: ListMetric
    judged: JudgedLists
    values: Tensor
    weights: Tensor


def _computed(
    spec: UpdateSpec, lists: Lists, rankings: Sequence[Ranking]
) -> list[Computed]:
    """Computes metrics, which share the lists with the relevance of their items."""
    shared: list[JudgedLists] = []
    computed = []
    for metric, ranking in zip(spec.metrics, rankings, strict=True):
        relevance = metric._relevance_for(lists)
        alike = (judged for judged in shared if judged.is_by(relevance))
        judged = next(alike, None) or JudgedLists(lists, relevance)
        shared.append(judged)
        values = checked_values(metric, judged, ranking)
        weights = judged.list_weights
        if metric._weighs_empty_lists:
            weights = backend.where(judged.has_relevant, weights, judged.mean_weights)
        computed.append(Computed(metric, judged, values, weights))
    return computed


def checked_values(metric: ListMetric, judged: JudgedLists, ranking: Ranking) -> Tensor:
    """The values of a metric, checked and in the dtype of the lists."""
    values = metric.compute(judged, ranking)
    dtype = getattr(values, "dtype", None)
    if dtype is None or keras.backend.standardize_dtype(dtype) != judged.dtype:
        values = values if values is None else ops.cast(values, judged.dtype)
    expected = functools.partial(_expected, metric, judged)
    check_returned(values, judged.has_items, expected)
    return values


def _expected(metric: ListMetric, judged: JudgedLists) -> str:
    """What a metric should return, for errors."""
    return (
        f"`{type(metric).__name__}.compute` should return one value per list, of "
        f"shape (batch,), for lists of shape {shape_of(judged.labels)}"
    )


def _columns_of(
    lists: Lists, rankings: Sequence[Ranking], *, spec: UpdateSpec
) -> Tensor:
    """What the lists add to the totals of all metrics: their columns (see `state`)."""
    of_metrics = []
    for metric, judged, values, weights in _computed(spec, lists, rankings):
        counts = judged.has_relevant
        if metric._weighs_empty_lists:
            # With a weight of its own, an empty list is like any other.
            values = backend.where(counts, values, metric.empty_value)
            counts = lists.has_items
        of_metrics.append([values, weights, counts, lists.has_items])
    rows = of_metrics[0] if len(of_metrics) == 1 else _stacked(of_metrics)
    values, weights, counts, has_items = rows
    values = backend.where(counts, values * weights, 0.0)
    library = backend.library_of(values)
    columns: Tensor = library.stack([values, weights, counts, has_items])
    return columns


def _stacked(of_metrics: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    """Stacks values, weights, counts, and whether lists have items, of metrics."""
    rows = [x for column in zip(*of_metrics, strict=True) for x in column]
    columns = backend.library_of(rows[0]).stack(rows)
    columns = ops.reshape(columns, (4, len(of_metrics), -1))
    # Otherwise the formulas of all metrics would be computed for each product.
    values, weights, counts, has_items = ops.unstack(backend.fusion_barrier(columns), 4)
    return values, weights, counts > 0.0, has_items


def with_columns(columns: Tensor, state: State) -> State:
    """Returns the state with the columns of lists added, and those with items."""
    if state.is_stacked and len(columns.shape) == 2:
        columns = columns[:, None]
    totals, remainders, added = add(state.totals, state.remainders, columns)
    lists_seen = backend.plus_entry(state.lists_seen, added, LISTS, LISTS)
    return State(totals, remainders, lists_seen)
