"""Metrics of what would be shown: how a catalogue shares in the top k of all lists."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    adds_arguments,
    check_flag,
    check_positive,
    check_ties_broken,
    names_arguments,
)
from keras_rank.arrays.arithmetic import where
from keras_rank.arrays.backends import Tensor, number_of_each
from keras_rank.arrays.programs import program
from keras_rank.arrays.sorting import Order
from keras_rank.formulas.exposure import concentration, mean_over_shown, share_shown
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.inputs import (
    Given,
    check_items,
    lists_of,
    of_few_shapes,
    read,
    read_sparse,
    to_ids,
)
from keras_rank.lists.sparse import SparseLists
from keras_rank.lists.tensors import shape_of, sizes_agree, to_array
from keras_rank.metrics.ordered import (
    OrderedMetric,
    Update,
    assign,
    grouped,
    sum_variable,
)
from keras_rank.ordering.items import rank_lists
from keras_rank.ordering.preference import Ties
from keras_rank.ordering.ranks import RankedLists


class ExposureArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics of exposure."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    name: str | None


class ExposureMetric(OrderedMetric):
    """Base class of metrics of how often each item is in the top k of a list.

    The state is that number for each item, so that any batching, and any number of
    devices, give the same.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int, or `None` where `keras_rank.catalogue` knows it.
        shuffle_ties: how tied items are ordered.
        seed: the seed of the shuffle.
        sparse_labels: whether `y_true` holds ids.
        name: str. Defaults to the name of the metric and its cutoff.
    """

    k: int

    _check_ties = staticmethod(check_ties_broken)

    @names_arguments
    def __init__(
        self,
        k: int,
        items: int | None = None,
        *,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        sparse_labels: bool = False,
        name: str | None = None,
    ) -> None:
        k = check_positive("k", k)
        super().__init__(k, shuffle_ties, seed, name=name, dtype="float32")
        self._compute_dtype = "float32"
        self.sparse_labels = check_flag("sparse_labels", sparse_labels)
        if items is not None:
            items = check_positive("items", items, "a positive integer or None")
        self.items = items
        # In int32, which is exact on any device, for 2**31 lists.
        self.counts = sum_variable((items or 0,), "int32", "counts")
        self.lists_seen = sum_variable((), "int32", "lists_seen")

    @names_arguments
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds what a batch of lists shows.

        Args:
            y_true: what other metrics take. Labels of shape `(batch, items)`, of which
                one below 0 or NaN says that the item is not in the list; ids with
                `sparse_labels=True`. Whatever else they are changes nothing. Or the ids
                of what is shown, of shape `(batch, k)` or wider, the best first and
                padded with -1, as `keras_rank.catalogue.top_k` returns them, which
                replace all arguments.
            y_pred: scores of shape `(batch, items)`. An item scored `-inf` or NaN is
                not shown.
            sample_weight: as for other metrics. A list whose weight is not above 0 is
                shown to nobody; all others count the same.

        Raises:
            ValueError: if the shapes or dtypes don't fit. The state is left as it was.
        """
        assign(updates_of([self], y_true, y_pred, sample_weight))

    def result(self) -> Tensor:
        """Returns the result for all lists since the last reset, 0 without any."""
        return self._of_counts(self.counts.value)

    def standard_error(self) -> Tensor:
        """Raises: there is no formula of it, as lists have no values by themselves."""
        raise ValueError(
            "A standard error should be asked of metrics that are means over lists. "
            f"Received: {self.name!r}, of which none is known"
        )

    def of_shown(self, ids: Tensor, items: int) -> Tensor:
        """Returns the result for what is shown, of a catalogue of so many items."""
        if self.items not in (None, items):
            raise ValueError(
                f"`items` should be the number of candidates, {items}. Received: "
                f"items={self.items}, of {self.name!r}"
            )
        return self._of_counts(_counted_ids(items, ids[:, : self.k]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "items": self.items,
            "sparse_labels": self.sparse_labels,
        }

    def _of_counts(self, counts: Tensor) -> Tensor:
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_rank")
class Coverage(ExposureMetric):
    """Computes the share of a catalogue that is in anyone's top k.

    `Coverage@k = items that are in the top k of a list / items`

    The result is from 0 to 1. It grows with the number of lists: compare models on the
    same ones.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int. The number of items of the catalogue. Defaults to `None`:
            that of the candidates, which is known in `keras_rank.catalogue` alone.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: drawn once, here.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, and not a label for each item. Defaults to `False`.
        name: str. Defaults to `coverage_at_k`, with the cutoff.

    Raises:
        ValueError: if an argument does not have the type or range stated above.

    Example:

    >>> metric = keras_rank.metrics.Coverage(k=1, items=4, sparse_labels=True)
    >>> metric.update_state([2, 3], [[0.9, 0.2, 0.7, 0.1], [0.3, 0.8, 0.1, 0.6]])
    >>> float(metric.result())
    0.5
    >>> metric.update_state([[3, 1], [-1, -1]])  # what is shown, and nothing
    >>> float(metric.result())
    0.75

    Reference:
        Shani and Gunawardana, "Evaluating recommendation systems", Recommender
        Systems Handbook, 2011.
    """

    base_name = "coverage"

    def _of_counts(self, counts: Tensor) -> Tensor:
        return _value(share_shown, counts)


@keras.saving.register_keras_serializable(package="keras_rank")
class Gini(ExposureMetric):
    """Computes the Gini index of how often each item is in the top k of a list.

    `Gini@k = sum((2 * i - n - 1) * c_i for i in 1..n) / (n * sum(c_i))`

    with the numbers c_i of all n items in order, the smallest first. It is 0 if all
    items are shown as often, and 1 - 1/n if only one is: the smaller, the fairer. In
    `fit` Keras asks for it at each step, and it sorts the catalogue each time: of a
    large one, ask at the end of the epoch, by `keras_rank.callbacks`.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int. The number of items of the catalogue. Defaults to `None`:
            that of the candidates, which is known in `keras_rank.catalogue` alone.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: drawn once, here.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, and not a label for each item. Defaults to `False`.
        name: str. Defaults to `gini_at_k`, with the cutoff.

    Raises:
        ValueError: if an argument does not have the type or range stated above.

    Example:

    >>> metric = keras_rank.metrics.Gini(k=2, items=4)
    >>> metric.update_state([[0, 1], [0, 1], [0, 2]])  # what is shown
    >>> f"{float(metric.result()):.4f}"
    '0.4167'

    Reference:
        Fleder and Hosanagar, "Blockbuster culture's next rise or fall: the impact of
        recommender systems on sales diversity", Management Science 55(5), 2009.
    """

    base_name = "gini"
    higher_is_better = False

    def _of_counts(self, counts: Tensor) -> Tensor:
        return _value(concentration, counts)


class _MeanOverShown(ExposureMetric):
    """The mean of a number that each item has, over all that is shown."""

    @adds_arguments(ExposureMetric.__init__)
    def __init__(
        self, k: int, popularity: Any, **arguments: Unpack[ExposureArguments]
    ) -> None:
        self.popularity = self._checked(popularity)
        super().__init__(k, len(self.popularity), **arguments)

    @staticmethod
    def _checked(popularity: Any) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def _values(self) -> np.ndarray[Any, Any]:
        """Returns the number of each item."""
        return self.popularity

    def _of_counts(self, counts: Tensor) -> Tensor:
        values = ops.convert_to_tensor(self._values())
        return _value(mean_over_shown, counts, values)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "popularity": self.popularity.tolist()}
        del config["items"]
        return config


@keras.saving.register_keras_serializable(package="keras_rank")
class AveragePopularity(_MeanOverShown):
    """Computes the mean popularity of what is in the top k.

    `AveragePopularity@k = sum(c_i * popularity_i) / sum(c_i)`

    with the number c_i of lists that have item i in their top k.

    Args:
        k: positive int. The number of ranks that are shown.
        popularity: numbers of 0 or more, of shape `(items,)`: how popular each item is,
            such as how many users have bought it.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: drawn once, here.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, and not a label for each item. Defaults to `False`.
        name: str. Defaults to `average_popularity_at_k`, with the cutoff.

    Raises:
        ValueError: if an argument does not have the type or range stated above.

    Example:

    >>> bought = [30, 20, 5, 1]
    >>> metric = keras_rank.metrics.AveragePopularity(k=2, popularity=bought)
    >>> metric.update_state([[0, 1], [0, 2]])  # what is shown
    >>> float(metric.result())
    21.25

    Reference:
        Yin, Cui, Li, Yao and Chen, "Challenging the long tail recommendation", PVLDB
        5(9), 2012.
    """

    higher_is_better = False

    @staticmethod
    def _checked(popularity: Any) -> np.ndarray[Any, Any]:
        return _numbers(popularity, "numbers of 0 or more", lambda x: x >= 0)


@keras.saving.register_keras_serializable(package="keras_rank")
class Novelty(_MeanOverShown):
    """Computes how little known what is in the top k is, in bits.

    `Novelty@k = sum(c_i * -log2(popularity_i)) / sum(c_i)`

    with the number c_i of lists that have item i in their top k.

    Args:
        k: positive int. The number of ranks that are shown.
        popularity: numbers above 0 and up to 1, of shape `(items,)`: the share of all
            users who know each item, or of all interactions that it has. Give an item
            that nobody knows that of a single user.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: drawn once, here.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, and not a label for each item. Defaults to `False`.
        name: str. Defaults to `novelty_at_k`, with the cutoff.

    Raises:
        ValueError: if an argument does not have the type or range stated above.

    Example:

    >>> known = [0.5, 0.25, 0.25, 0.125]
    >>> metric = keras_rank.metrics.Novelty(k=2, popularity=known)
    >>> metric.update_state([[0, 1], [0, 3]])  # what is shown
    >>> float(metric.result())
    1.75

    Reference:
        Castells, Vargas and Wang, "Novelty and diversity metrics for recommender
        systems: choice, discovery and relevance", DDR workshop at ECIR 2011.
    """

    @staticmethod
    def _checked(popularity: Any) -> np.ndarray[Any, Any]:
        return _numbers(
            popularity, "numbers above 0 and up to 1", lambda x: (x > 0) & (x <= 1)
        )

    def _values(self) -> np.ndarray[Any, Any]:
        bits: np.ndarray[Any, Any] = -np.log2(self.popularity)
        return bits


def _numbers(
    popularity: Any,
    accepted: str,
    are_accepted: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
) -> np.ndarray[Any, Any]:
    """Returns the popularity of each item, as float32."""
    given = ops.convert_to_numpy(to_array("popularity", popularity))
    numbers: np.ndarray[Any, Any] = given.astype("float32")
    message = f"`popularity` should be {accepted}, one for each item. Received: "
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{message}popularity.shape={numbers.shape}")
    wrong = numbers[~(np.isfinite(numbers) & are_accepted(numbers))]
    if wrong.size:
        raise ValueError(f"{message}{wrong.size} others, such as {wrong[0]}")
    return numbers


def updates_of(
    metrics: Sequence[ExposureMetric], y_true: Any, y_pred: Any, sample_weight: Any
) -> list[Update]:
    """Returns what a batch of lists makes of the state of metrics.

    Lists are ordered once for all metrics that order them alike.
    """
    alike = grouped(metrics, lambda m: (_known_items(m), m.sparse_labels, m._order))
    updates: list[Update] = []
    for (items, sparse_labels, (ties, key)), members in alike.items():
        cutoffs = tuple({member.k: None for member in members})
        if y_pred is None:
            ids = _shown(y_true, sample_weight, items, max(cutoffs))
            added = [_counted_ids(items, ids[:, :k]) for k in cutoffs]
            lists = 0
        else:
            given = (read_sparse if sparse_labels else read)(
                y_true, y_pred, sample_weight
            )
            _check_as_many_items(given.scores, items)
            given = of_few_shapes(given, sparse_labels)
            showing = Showing(sparse_labels, ties, cutoffs, items)
            seen = members[0].lists_seen.value
            added, lists = _counted(showing, given, key, seen)
        for member in members:
            counts = added[cutoffs.index(member.k)]
            updates.append((member.counts, member.counts.value + counts))
            updates.append((member.lists_seen, member.lists_seen.value + lists))
    return updates


class Showing(NamedTuple):
    """What is counted: how lists are given and ordered, the cutoffs, and the items."""

    sparse_labels: bool
    ties: Ties
    cutoffs: tuple[int, ...]
    items: int


@program
def _counted(
    showing: Showing, given: Given, key: Tensor, first_list: Tensor
) -> tuple[list[Tensor], Tensor]:
    """How often each item is up to each cutoff, and the number of lists."""
    lists = lists_of((showing.sparse_labels, "float32"), given)
    lists = _with_all_items(lists) if isinstance(lists, SparseLists) else lists
    ranking = rank_lists(lists, max(showing.cutoffs), showing.ties, key, first_list)
    positions = ops.cast(cast(Order, ranking.order).positions, "int32")
    ids = where(ranking.occupied, positions, showing.items)
    counts = [number_of_each(ids[:, :k], showing.items) for k in showing.cutoffs]
    return counts, ops.sum(ops.cast(lists.has_items, "int32"))


def _with_all_items(lists: SparseLists) -> DenseLists:
    """Lists of the whole catalogue, of which nothing is said to be relevant."""
    scores = lists.all_scores
    labels = ops.cast(ops.zeros_like(scores), lists.dtype)
    return DenseLists(where(lists.counts[:, None], labels, -1.0), scores)


@program
def _counted_ids(items: int, ids: Tensor) -> Tensor:
    """How often each item is among ids, of which those below 0 are of none."""
    return number_of_each(where(ids >= 0, ids, items), items)


@program
def _value(formula: Callable[..., Tensor], *numbers: Tensor) -> Tensor:
    return formula(*numbers)


def _shown(ids: Any, sample_weight: Any, items: int, k: int) -> Tensor:
    """Checks and casts the ids of what is shown."""
    if isinstance(ids, RankedLists) or sample_weight is not None:
        raise ValueError(
            "`y_true` should hold the ids of what is shown, or come with the scores of "
            "all items in `y_pred`. Received: "
            + ("ranked lists" if sample_weight is None else "weights without scores")
        )
    ids = to_ids("y_true", ids)
    if len(ids.shape) != 2 or not (ids.shape[1] is None or ids.shape[1] >= k):
        raise ValueError(
            f"`y_true` should hold the ids of the best {k} items of each list, padded "
            f"with -1, where there is no `y_pred`. Received: shape {shape_of(ids)}"
        )
    check_items("y_true", ids, items)
    return ops.cast(where(ids >= 0, ids, -1), "int32")


def _known_items(metric: ExposureMetric) -> int:
    """The number of items of the catalogue."""
    if metric.items is None:
        raise ValueError(
            "`items` should be the number of items of the catalogue, outside of "
            f"`keras_rank.catalogue`. Received: items=None, of {metric.name!r}"
        )
    return metric.items


def _check_as_many_items(scores: Tensor, items: int) -> None:
    if not sizes_agree(shape_of(scores)[1:], (items,)):
        raise ValueError(
            "`y_pred` should have a score for each item of the catalogue, of shape "
            f"(batch, {items}). Received: y_pred.shape={shape_of(scores)}"
        )
