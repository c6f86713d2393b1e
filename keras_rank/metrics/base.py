"""The base class of metrics of lists, with their `update_state` and `result`."""

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypedDict, TypeVar

from keras import ops

from keras_rank import totals
from keras_rank.arguments import (
    EMPTY_WEIGHTS,
    Seed,
    ShuffleTies,
    check_choice,
    check_dtype,
    check_flag,
    check_k,
    check_left_out,
    check_not_sparse,
    check_number,
    names_arguments,
)
from keras_rank.arrays.arithmetic import where
from keras_rank.arrays.backends import (
    Tensor,
    computed_once,
    each_plus_last,
    is_torch_compiling,
    library_of,
)
from keras_rank.arrays.programs import is_whole, program
from keras_rank.formulas.relevance import from_threshold
from keras_rank.lists.base import Lists
from keras_rank.lists.inputs import (
    Given,
    check_told_apart,
    lists_of,
    of_few_shapes,
    read,
    read_sparse,
    warn_of_single_items,
)
from keras_rank.lists.judged import JudgedLists, Judgement, judge
from keras_rank.lists.sparse import TargetLists
from keras_rank.lists.tensors import check_returned, shape_of
from keras_rank.metrics.ordered import (
    SHUFFLE_TIES,
    OrderedMetric,
    Update,
    assign,
    end_compiling,
    grouped,
)
from keras_rank.ordering.preference import Ties
from keras_rank.ordering.ranking import Ranking
from keras_rank.ordering.ranks import RankedLists, RankingKind, rank_by_scores
from keras_rank.weighting import list_weights

# The totals, the remainders and the number of lists seen of a metric.
State = tuple[Tensor, Tensor, Tensor]

Ordered = TypeVar("Ordered", bound=OrderedMetric)


class SharedArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics."""

    shuffle_ties: ShuffleTies
    seed: Seed
    empty_weight: str
    sparse_labels: bool
    name: str | None
    dtype: Any


class RankingArguments(SharedArguments, total=False):
    """Those, and the two that have another default in some metrics."""

    empty_value: float | None
    relevance_threshold: float | None


class RankingMetric(OrderedMetric):
    """Base class of ranking metrics: the weighted mean of one value per list.

    The metrics of this module have its arguments, and document only their own.

    To add a metric, write its formula in `compute`, as in the example below: from the
    lists and their ranking to one value per list. This class handles padding, ties,
    weights, empty lists, batching and exact sums. To save the metric in a model,
    decorate it with `@keras.saving.register_keras_serializable()`.

    `lists` holds `labels`, `scores`, `weights`, `mask` and `relevance`, each of
    shape `(batch, list_size)`. `ranking.take(values)` puts any values of that shape
    in the order of the scores, cut at `k`. With `shuffle_ties="average"` it returns
    the mean over tied items, which is exact for a formula that is linear in them.
    `ranking.best(values)` returns the largest values, the ideal order, and
    `ranking.ranks` the ranks: 1, 2, 3, ... Use only `keras.ops`, so that the metric
    compiles.

    `relevance` says what is relevant; a metric of graded relevance overrides it. The
    list weights and the lists that count as empty follow from it.

    With `sparse_labels`, the lists hold only the relevant items, with their ranks in
    `ranking.ranks`. If the formula sums over taken values, and reads their ranks from
    `ranking.ranks`, set the class attribute `takes_sparse_labels = True`; otherwise
    `sparse_labels` must be `False`. Two more class attributes are `higher_is_better`,
    `True` by default, and `base_name`, the start of the default name, made from the
    name of the class by default.

    Args:
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle, which is a
            function of the seed, the number of the list since the last reset, and the
            item. Defaults to `None`: drawn once, at construction.
        empty_value: float. The value of a list that has items, but no relevant ones.
            Defaults to 0.0. `None` leaves it out of the mean.
        empty_weight: the weight of such a list in the mean. `"average"`: the average
            weight of the other lists. `"own"`: the mean weight of its own items.
            Defaults to `"average"`.
        relevance_threshold: float. Items with this label or a higher one are relevant.
            Defaults to 1.0. `None`: those with any label above 0.
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, or a dict of
            `"ids"` and `"labels"` of this shape that grades them, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not in
            the catalogue is an error in eager code, and counts as not retrieved in
            compiled code. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `ndcg_at_10`.
        dtype: `"float64"` to compute in float64. Defaults to float32, whatever
            Keras's default is.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> class SuccessAtOne(keras_rank.metrics.RankingMetric):
    ...     def compute(self, lists, ranking):
    ...         relevant_by_rank = ranking.take(lists.relevance)  # (batch, k)
    ...         return relevant_by_rank[:, 0]
    >>> metric = SuccessAtOne()
    >>> metric.update_state([[1, 0], [1, 0]], [[0.9, 0.1], [0.2, 0.8]])
    >>> float(metric.result())
    0.5
    """

    # Whether the formula supports `sparse_labels`.
    takes_sparse_labels = False

    # Whether labels are compared with each other, each of which matters then.
    _compares_labels = False

    # Whether lists without relevant items are always left out.
    _leaves_out_empty = False

    @names_arguments
    def __init__(
        self,
        k: int | None = None,
        *,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        empty_value: float | None = 0.0,
        empty_weight: str = "average",
        relevance_threshold: float | None = 1.0,
        sparse_labels: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        # Without a dtype, Keras would use its default precision.
        super().__init__(
            check_k(k),
            shuffle_ties,
            seed,
            name=name,
            dtype="float32" if dtype is None else dtype,
        )
        self._compute_dtype = check_dtype(self.dtype)
        self.empty_weight = check_choice("empty_weight", empty_weight, EMPTY_WEIGHTS)
        if self._leaves_out_empty:
            check_left_out(empty_value, empty_weight)
        self.empty_value = check_number("empty_value", empty_value)
        self.relevance_threshold = check_number(
            "relevance_threshold", relevance_threshold
        )
        check = check_flag if self.takes_sparse_labels else check_not_sparse
        self.sparse_labels = check("sparse_labels", sparse_labels)
        self.totals = self._sum_variable(totals.SHAPE, "float32", "totals")
        self.remainders = self._sum_variable(totals.SHAPE[1:], "float32", "remainders")
        # Here, as torch.compile can't trace `inspect`.
        names = inspect.signature(type(self)).parameters
        self._names_of_arguments = tuple(
            name for name in names if name not in ("seed", "name")
        )
        # Keys the shuffle. It may wrap after 2**31 lists.
        self.lists_seen = self._sum_variable((), "int32", "lists_seen")
        # Whether no batch was added yet.
        self._is_new = True

    def relevance(self, lists: Lists) -> Tensor:
        """Returns what finding an item is worth, 0 if it is irrelevant.

        Args:
            lists: the labels, scores, weights and mask of the items.

        Returns:
            A tensor of shape `(batch, list_size)`. By default 1 for labels of at
            least `relevance_threshold`.
        """
        return judge(lists, self._judgement).relevance

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        """Computes the metric: the only method that a new metric must define.

        Args:
            lists: the labels, scores, weights, mask and relevance of the items.
            ranking: the order of each list by its scores, cut at `k`.

        Returns:
            A tensor of shape `(batch,)`: one value per list. That of a list without
            relevant items is not used.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` should define `compute(lists, ranking)`."
        )

    @names_arguments
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds a batch of lists to the mean.

        Args:
            y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
                uneven length, or a dict `{"labels": ..., "mask": ...}`. A position
                whose label is below 0 or NaN, or whose mask is False, is padding. Ids
                of relevant items with `sparse_labels=True`. Or ranked lists, from
                `keras_rank.functional.rank` or `keras_rank.catalogue.rank` with the
                same `shuffle_ties`, in place of all arguments.
            y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item
                scored `-inf` or NaN is judged, but not retrieved: it has no rank.
            sample_weight: `None`, a number, or weights of shape `(batch,)`,
                `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single
                list. An item whose weight is not above 0 is padding.

        Raises:
            ValueError: if shapes or dtypes don't match, or ranked lists have another
                `shuffle_ties` or a smaller `k`. The state is then unchanged.
        """
        assign(updates_of([self], y_true, y_pred, sample_weight))

    def result(self) -> Tensor:
        """Returns the mean over all lists since the last reset, 0 if there are none."""
        return totals.mean(
            (self.empty_value, self._compute_dtype),
            self.totals.value,
            self.remainders.value,
        )

    def standard_error(self) -> Tensor:
        """Returns the standard error of the result over samples of lists.

        It uses the delta method for a weighted mean. About 95% of the intervals of 1.96
        standard errors to each side of the result contain the mean over all lists that
        could have been drawn. It does not include the variance of training, and treats
        lists as independent.

        Returns:
            A scalar tensor: NaN for fewer than two lists that count, or if squares of
            weights, or of weights times values, are out of the range of float32.
        """
        return totals.standard_error(
            (self.empty_value, self._compute_dtype),
            self.totals.value,
            self.remainders.value,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": self.dtype,
            "empty_value": self.empty_value,
            "empty_weight": self.empty_weight,
            "relevance_threshold": self.relevance_threshold,
            "sparse_labels": self.sparse_labels,
        }

    @property
    def _weighs_empty_lists(self) -> bool:
        """Whether lists without relevant items count, with their own weights."""
        return self.empty_weight == "own" and self.empty_value is not None

    @property
    def _judgement(self) -> Judgement:
        """What determines the relevance if `relevance` is not overridden."""
        return from_threshold(self.relevance_threshold)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """The class and its arguments, which determine the values of lists."""
        names = self._names_of_arguments
        return type(self), *[getattr(self, name, None) for name in names]


def updates_of(
    metrics: Sequence[RankingMetric], y_true: Any, y_pred: Any, sample_weight: Any
) -> list[Update]:
    """Returns the new states of metrics after a batch of lists.

    All are computed before any is assigned, so that an error leaves all states
    unchanged. Metrics share common computations.
    """
    end_compiling()
    states: list[tuple[RankingMetric, State]] = []
    if isinstance(y_true, RankedLists):
        y_true.check_alone(y_pred, sample_weight)
        for metric in metrics:
            _check_takes(metric, y_true)
        are_targets = isinstance(y_true.lists, TargetLists)
        check_labels_for(metrics, "y_true", y_true.given, are_targets)
        new_states = _states_with_ranked(
            Plan.of(metrics).once_ranked(),
            y_true.lists,
            y_true.ranking,
            _states_of(metrics),
        )
        states += zip(metrics, new_states, strict=True)
    else:
        for (sparse_labels, _), members in alike(metrics).items():
            given = (read_sparse if sparse_labels else read)(
                y_true, y_pred, sample_weight
            )
            check_labels_for(members, "y_true", y_true, sparse_labels)
            plan = Plan.of(members)
            if is_whole(plan):
                if not sparse_labels and _has_first_batch(members, given):
                    warn_of_single_items(given, y_true, y_pred)
                given = of_few_shapes(given, sparse_labels)
            new_states = _states_with(plan, given, _states_of(members), plan.keys)
            states += zip(members, new_states, strict=True)
    return [
        update
        for metric, state in states
        for update in zip(
            (metric.totals, metric.remainders, metric.lists_seen), state, strict=True
        )
    ]


def _has_first_batch(metrics: Sequence[RankingMetric], given: Given) -> bool:
    """Whether metrics get their first batch of several items, of which they may warn.

    Not in `torch.compile`, which would compile the next batch anew, as the attribute
    has changed.
    """
    if is_torch_compiling() or tuple(given.labels.shape) == (1, 1):
        return False
    is_first = any(metric._is_new for metric in metrics)
    for metric in metrics:
        metric._is_new = False
    return is_first


def _states_of(metrics: Sequence[RankingMetric]) -> list[State]:
    return [
        (metric.totals.value, metric.remainders.value, metric.lists_seen.value)
        for metric in metrics
    ]


def alike(
    metrics: Sequence[RankingMetric],
) -> dict[tuple[bool, str], list[RankingMetric]]:
    """Groups metrics that share their inputs, by `sparse_labels` and dtype."""
    return grouped(metrics, lambda m: (m.sparse_labels, m._compute_dtype))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is computed for metrics that share their inputs.

    Two are equal if the same program computes them: seeds are not part of it. `kinds`,
    `largest` (cutoffs) and `keys` are of each ranking; `order_of` is the place among
    these of the ranking of each metric.
    """

    metrics: tuple[RankingMetric, ...] = dataclasses.field(compare=False)
    arguments: tuple[Any, ...]
    dtype: str
    kinds: tuple[RankingKind, ...]
    largest: tuple[int | None, ...]
    order_of: tuple[int, ...]
    keys: tuple[int, ...] = dataclasses.field(compare=False)

    @classmethod
    def of(cls, metrics: Sequence[RankingMetric], ties: Ties | None = None) -> "Plan":
        """Returns the plan of metrics, with ties ordered as given, or as each says."""

        def order_of(metric: RankingMetric) -> tuple[Ties, int]:
            return metric._order if ties is None else (ties, 0)

        members = grouped(metrics, order_of)
        orders, is_sparse = list(members), metrics[0].sparse_labels
        numbers, largest = zip(*map(_cutoffs_of, members.values()), strict=True)
        return cls(
            tuple(metrics),
            tuple(metric._arguments for metric in metrics),
            metrics[0]._compute_dtype,
            tuple(
                RankingKind(is_sparse, its_ties, k)
                for (its_ties, _), k in zip(orders, numbers, strict=True)
            ),
            largest,
            tuple(orders.index(order_of(metric)) for metric in metrics),
            tuple(key for _, key in orders),
        )

    def once_ranked(self) -> "Plan":
        """What is left of the plan when lists are ranked: one program."""
        return dataclasses.replace(self, kinds=())

    def rankings(self, of_orders: Sequence[Ranking]) -> list[Ranking]:
        """Returns the ranking of each metric, given those of all orders."""
        # In two steps, so that the ideal order of the top k is that of the largest k.
        cut = [
            ranking.cut(largest_k)
            for ranking, largest_k in zip(of_orders, self.largest, strict=True)
        ]
        return [
            (of_orders if metric.k is None else cut)[place].cut(metric.k)
            for metric, place in zip(self.metrics, self.order_of, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class InOneOrder(Generic[Ordered]):
    """Metrics that share an order: their tie rule, and their largest cutoff."""

    members: Sequence[Ordered]
    dtype: str
    ties: Ties
    key: int
    k: int | None


def orders_of(metrics: Sequence[Ordered]) -> Iterator[InOneOrder[Ordered]]:
    """Returns the orders that metrics need, one for each tie rule."""
    alike = grouped(metrics, lambda m: (m._compute_dtype, *m._order))
    for (dtype, ties, key), members in alike.items():
        yield InOneOrder(members, dtype, ties, key, _cutoffs_of(members)[0])


def check_takes_targets(metric: RankingMetric) -> None:
    """Raises for a metric that needs the labels of all items."""
    if not metric.takes_sparse_labels:
        raise ValueError(
            f"`{type(metric).__name__}` should get the labels of all items. Received: "
            "ranked lists that hold only the relevant items"
        )


def check_labels_for(
    metrics: Sequence[RankingMetric], argument: str, value: Any, sparse_labels: bool
) -> None:
    """Raises for labels that some of the metrics could not compare."""
    if any(metric._compares_labels for metric in metrics):
        check_told_apart(argument, value, sparse_labels)


def _check_takes(metric: RankingMetric, ranked: RankedLists) -> None:
    """Raises for a metric that needs another order or more ranks."""
    if isinstance(ranked.lists, TargetLists):
        check_takes_targets(metric)
    if ranked.ties != metric._ties:
        raise ValueError(
            "`shuffle_ties` should be the same for the metric and the ranked lists. "
            f"Received: shuffle_ties={metric.shuffle_ties!r} of the metric, "
            f"shuffle_ties={SHUFFLE_TIES[ranked.ties]!r} of the lists"
        )
    ranked.check_cutoff(metric.k)


@program
def _states_with(
    plan: Plan, given: Given, states: Sequence[State], keys: Sequence[Tensor]
) -> list[State]:
    """The states of metrics with lists added."""
    lists_seen = [state[2] for state in states]
    orders = range(len(plan.kinds))
    firsts = [lists_seen[plan.order_of.index(place)] for place in orders]
    lists, rankings = _in_orders((plan.dtype, plan.kinds), given, keys, firsts)
    columns = _columns_of(plan.once_ranked(), lists, plan.rankings(rankings))
    return _added(None, columns, states)


@program
def _states_with_ranked(
    plan: Plan, lists: Lists, ranking: Ranking, states: Sequence[State]
) -> list[State]:
    """The states of metrics with ranked lists added."""
    columns = _columns_of(plan, lists, [ranking.cut(m.k) for m in plan.metrics])
    return _added(None, columns, states)


@program
def values_with(
    plan: Plan, given: Given, keys: Sequence[Tensor], numbers: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns for each metric: which lists have relevant items, values and weights.

    `numbers`, of shape `(batch,)`, are those of the lists in the shuffle.
    """
    lists, rankings = _in_orders((plan.dtype, plan.kinds), given, keys, numbers)
    return _values_of(plan.once_ranked(), lists, plan.rankings(rankings))


@program
def _values_of(
    plan: Plan, lists: Lists, rankings: Sequence[Ranking]
) -> list[tuple[Tensor, Tensor, Tensor]]:
    computed = values_together(plan.metrics, lists, rankings)
    return [
        (judged.has_relevant, judged.fill_empty(values, metric.empty_value), weights)
        for metric, (judged, values, weights) in zip(
            plan.metrics, computed, strict=True
        )
    ]


@program
def _in_orders(
    orders: tuple[str, tuple[RankingKind, ...]],
    given: Given,
    keys: Sequence[Tensor],
    firsts: Sequence[Tensor] | Tensor,
) -> tuple[Lists, list[Ranking]]:
    """Returns lists, and these ordered in each of several ways.

    `firsts` holds the number of lists before the batch, for each order; or, as a tensor
    of shape `(batch,)`, the number of each list.
    """
    dtype, kinds = orders
    lists = lists_of((kinds[0].of_targets, dtype), given)
    if not isinstance(firsts, list):
        # The place of a list in the batch is added to it.
        places = ops.cumsum(ops.cast(lists.has_items, "int32")) - 1
        firsts = [firsts - places] * len(kinds)
    return lists, [
        rank_by_scores(kind, lists, key, first)
        for kind, key, first in zip(kinds, keys, firsts, strict=True)
    ]


@program
def _added(
    _: None, of_metrics: Sequence[Sequence[Tensor]], states: Sequence[State]
) -> list[State]:
    """The states with the columns of a batch added, those of each metric."""
    number, columns = len(states), zip(*of_metrics, strict=True)
    all_columns = [column for kind in columns for column in kind]
    stacked = library_of(all_columns[0]).stack(all_columns)
    if number > 1:
        kinds = len(of_metrics[0])
        stacked = ops.reshape(stacked, (kinds, number, -1))
        # Otherwise the formulas of all metrics would be computed for each product.
        stacked = computed_once(stacked)
    high, low = totals.products(stacked)
    sums, remainders, lists_seen = zip(*states, strict=True)
    new_totals, new_remainders = totals.add(
        _joined(sums), _joined(remainders), high, low
    )
    # The last of the sums is the number of lists.
    of_one = high if number == 1 else high[..., 0]
    return list(
        zip(
            _parted(new_totals, number),
            _parted(new_remainders, number),
            each_plus_last(lists_seen, of_one),
            strict=True,
        )
    )


@program
def _columns_of(
    plan: Plan, lists: Lists, rankings: Sequence[Ranking]
) -> list[list[Tensor]]:
    """What the lists add to the totals of each metric."""
    computed = values_together(plan.metrics, lists, rankings)
    return [
        _columns(metric, *its)
        for metric, its in zip(plan.metrics, computed, strict=True)
    ]


def _columns(
    metric: RankingMetric, judged: JudgedLists, values: Tensor, weights: Tensor
) -> list[Tensor]:
    """What the lists add to the totals: their columns (see `totals`)."""
    values = where(judged.has_relevant, values, metric.empty_value or 0.0)
    counts = judged.relevant_lists
    if metric._weighs_empty_lists:
        # With a weight of its own, an empty list is like any other.
        counts = judged.lists_with_items
    return [values * weights, weights, counts, judged.lists_with_items]


def values_together(
    metrics: Sequence[RankingMetric], lists: Lists, rankings: Sequence[Ranking]
) -> list[tuple[JudgedLists, Tensor, Tensor]]:
    """Returns for each metric the judged lists, and the value and weight of each list.

    The value of a list without relevant items is not to be used.
    """
    of_metrics = []
    for metric, ranking in zip(metrics, rankings, strict=True):
        if type(metric).relevance is RankingMetric.relevance:
            judged = lists.once(judge, metric._judgement)
        else:
            judged = judge(lists, metric.relevance(lists))
        # Before the formula, which might be the first to ask in a branch of a graph.
        weights = judged.once(list_weights)
        if metric._weighs_empty_lists:
            weights = where(judged.has_relevant, weights, judged.mean_weights)
        values = _computed(metric, judged, ranking, weights)
        of_metrics.append((judged, values, weights))
    return of_metrics


def _computed(
    metric: RankingMetric, judged: JudgedLists, ranking: Ranking, weights: Tensor
) -> Tensor:
    """The value of each list: as many as there are weights."""
    values = metric.compute(judged, ranking)
    values = None if values is None else ops.cast(values, judged.dtype)
    check_returned(
        values,
        weights,
        lambda: (
            f"`{type(metric).__name__}.compute` should return one value per list, of "
            f"shape (batch,), for lists of shape {shape_of(judged.labels)}"
        ),
    )
    return values


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Stacks tensors, so that one operation adds to all."""
    return tensors[0] if len(tensors) == 1 else ops.stack(tensors, axis=-1)


def _parted(tensor: Tensor, number: int) -> list[Tensor]:
    return [tensor] if number == 1 else ops.unstack(tensor, number, axis=-1)


def _cutoffs_of(metrics: Sequence[OrderedMetric]) -> tuple[int | None, int | None]:
    """How many ranks metrics need, `None` for all, and their largest cutoff."""
    cutoffs = [metric.k for metric in metrics if metric.k is not None]
    largest_k = max(cutoffs, default=None)
    return largest_k if len(cutoffs) == len(metrics) else None, largest_k
