"""Metrics of exposure: how often the items of a catalogue are in the top k of lists."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

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
from keras_rank.backends import Array, Tensor, backend
from keras_rank.formulas.exposure import concentration, mean_over_shown, share_shown
from keras_rank.lists.tensors import to_array
from keras_rank.metrics import ordered, shown


class ExposureArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics of exposure."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    name: str | None


class ExposureMetric(ordered.OrderedMetric):
    """Base class of metrics of how often each item is in the top k of a list.

    The metrics of exposure have its arguments, and document only their own. The state
    is this count for each item, so the result does not depend on batches or devices.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int. The number of items of the catalogue. Defaults to `None`:
            the number of candidates, which only `keras_rank.catalogue` knows.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: drawn once, at construction.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, rather than a label for each item. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `coverage_at_10`.
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
        # int32 is exact on every device, up to 2**31 lists.
        self.counts = self._sum_variable((items or 0,), "int32", "counts")
        self.lists_seen = self._sum_variable((), "int32", "lists_seen")

    @names_arguments
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Counts the items that a batch of lists shows.

        Args:
            y_true: as for other metrics: labels of shape `(batch, items)`, or ids with
                `sparse_labels=True`. Only labels below 0 or NaN matter: such an item is
                not in the list. Or the ids of the shown items, in place of all
                arguments, as `keras_rank.catalogue.top_k` returns them: of shape
                `(batch, k)` or wider, the best first, padded with -1.
            y_pred: scores of shape `(batch, items)`. An item scored `-inf` or NaN is
                not shown.
            sample_weight: as for other metrics. A list whose weight is not above 0 is
                left out; all others count the same.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is unchanged then. In
                a graph that does not know sizes, TensorFlow raises its own error.
        """
        ordered.assign(updates_of([self], y_true, y_pred, sample_weight))

    def result(self) -> Tensor:
        """Returns the result over all lists since the last reset, 0 for no lists."""
        return self._of_counts(self.counts.value)

    def standard_error(self) -> Tensor:
        """Raises an error, as the result is no mean over lists."""
        raise ValueError(
            "Only metrics that are means over lists have a standard error. "
            f"Received: {self.name!r}"
        )

    def of_shown(self, ids: Tensor, items: int) -> Tensor:
        """Returns the result for the shown ids, in a catalogue of `items` items."""
        if self.items not in (None, items):
            raise ValueError(
                f"`items` should be the number of candidates, {items}. Received: "
                f"items={self.items}, of {self.name!r}"
            )
        counts = backend.enter(shown.count_each, items, ids[:, : self.k])
        return self._of_counts(counts)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "items": self.items,
            "sparse_labels": self.sparse_labels,
        }

    # The formula of the counts, and of a number of each item if there are any.
    _formula: Callable[..., Tensor]

    def _values(self) -> list[Tensor]:
        """Returns what the formula is given beside the counts."""
        return []

    def _of_counts(self, counts: Tensor) -> Tensor:
        return backend.enter(_value, type(self)._formula, counts, *self._values())


@keras.saving.register_keras_serializable(package="keras_rank")
class Coverage(ExposureMetric):
    """Computes the share of a catalogue that is in the top k of any list.

    `Coverage@k = items in the top k of any list / items`

    The result is from 0 to 1. It grows with the number of lists, so compare models on
    the same lists.

    Args:
        k: positive int. The number of ranks that are shown.
        name: str. Defaults to `coverage_at_k`.
        **arguments: as for `keras_rank.metrics.exposure.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.Coverage(k=1, items=4, sparse_labels=True)
    >>> metric.update_state([2, 3], [[0.9, 0.2, 0.7, 0.1], [0.3, 0.8, 0.1, 0.6]])
    >>> float(metric.result())
    0.5
    >>> metric.update_state([[3, 1], [-1, -1]])  # shown ids, and a list without any
    >>> float(metric.result())
    0.75

    Reference:
        Shani and Gunawardana, "Evaluating recommendation systems", Recommender
        Systems Handbook, 2011.
    """

    base_name = "coverage"

    _formula = staticmethod(share_shown)


@keras.saving.register_keras_serializable(package="keras_rank")
class Gini(ExposureMetric):
    """Computes the Gini index of how often each item is in the top k of a list.

    `Gini@k = sum((2 * i - n - 1) * c_i for i in 1..n) / (n * sum(c_i))`

    where c_i are the counts of all n items in ascending order. It is 0 if all items are
    shown equally often, and 1 - 1/n if only one is shown: lower is fairer. In `fit`,
    Keras computes it at each step, and it sorts the catalogue each time. For a large
    catalogue, use `keras_rank.callbacks.CatalogueEvaluation` instead.

    Args:
        k: positive int. The number of ranks that are shown.
        name: str. Defaults to `gini_at_k`.
        **arguments: as for `keras_rank.metrics.exposure.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

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

    _formula = staticmethod(concentration)


class _MeanOverShown(ExposureMetric):
    """The mean of a number per item, over all shown items."""

    @adds_arguments(ExposureMetric.__init__)
    def __init__(
        self, k: int, popularity: Any, **arguments: Unpack[ExposureArguments]
    ) -> None:
        self.popularity = self._checked(popularity)
        super().__init__(k, len(self.popularity), **arguments)

    _formula = staticmethod(mean_over_shown)

    # Which numbers are accepted, and how errors say it.
    _accepts: Callable[[Array], Array]
    _accepted: str

    def _checked(self, popularity: Any) -> Array:
        """Returns the popularity of each item, as float32."""
        given = ops.convert_to_numpy(to_array("popularity", popularity))
        found: Array = given.astype("float32")
        message = f"`popularity` should be {self._accepted}, one for each item. "
        if found.ndim != 1 or found.size == 0:
            raise ValueError(f"{message}Received: popularity.shape={found.shape}")
        wrong = found[~(np.isfinite(found) & self._accepts(found))]
        if wrong.size:
            raise ValueError(
                f"{message}Received: invalid values ({wrong.size} of {found.size}), "
                f"such as {wrong[0]}"
            )
        return found

    def _values(self) -> list[Tensor]:
        return [ops.convert_to_tensor(self.popularity)]

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "popularity": self.popularity.tolist()}
        del config["items"]
        return config


@keras.saving.register_keras_serializable(package="keras_rank")
class AveragePopularity(_MeanOverShown):
    """Computes the mean popularity of the items in the top k.

    `AveragePopularity@k = sum(c_i * popularity_i) / sum(c_i)`

    where c_i is the number of lists with item i in their top k.

    Args:
        k: positive int. The number of ranks that are shown.
        popularity: numbers of 0 or more, of shape `(items,)`: how popular each item is,
            such as the number of its buyers.
        name: str. Defaults to `average_popularity_at_k`.
        **arguments: as for `keras_rank.metrics.exposure.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> bought = [30, 20, 5, 1]
    >>> metric = keras_rank.metrics.AveragePopularity(k=2, popularity=bought)
    >>> metric.update_state([[0, 1], [0, 2]])  # the shown ids
    >>> float(metric.result())
    21.25

    Reference:
        Yin, Cui, Li, Yao and Chen, "Challenging the long tail recommendation", PVLDB
        5(9), 2012.
    """

    higher_is_better = False

    _accepts = staticmethod(lambda x: x >= 0)
    _accepted = "numbers of 0 or more"


@keras.saving.register_keras_serializable(package="keras_rank")
class Novelty(_MeanOverShown):
    """Computes the mean self-information of the items in the top k, in bits.

    `Novelty@k = sum(c_i * -log2(popularity_i)) / sum(c_i)`

    where c_i is the number of lists with item i in their top k.

    Args:
        k: positive int. The number of ranks that are shown.
        popularity: numbers above 0 and up to 1, of shape `(items,)`: the share of users
            who know the item, or its share of all interactions. For an item that nobody
            knows, use the share of a single user.
        name: str. Defaults to `novelty_at_k`.
        **arguments: as for `keras_rank.metrics.exposure.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> known = [0.5, 0.25, 0.25, 0.125]
    >>> metric = keras_rank.metrics.Novelty(k=2, popularity=known)
    >>> metric.update_state([[0, 1], [0, 3]])  # the shown ids
    >>> float(metric.result())
    1.75

    Reference:
        Castells, Vargas and Wang, "Novelty and diversity metrics for recommender
        systems: choice, discovery and relevance", DDR workshop at ECIR 2011.
    """

    _accepts = staticmethod(lambda x: (x > 0) & (x <= 1))
    _accepted = "numbers above 0 and up to 1"

    def _values(self) -> list[Tensor]:
        return [ops.convert_to_tensor(-np.log2(self.popularity))]


def updates_of(
    metrics: Sequence[ExposureMetric], y_true: Any, y_pred: Any, sample_weight: Any
) -> list[ordered.Update]:
    """Returns the new states of metrics after a batch of lists.

    Lists are ordered once for all metrics with the same order.
    """
    ordered.end_compiling()
    alike = ordered.grouped(
        metrics, lambda m: (_known_items(m), m.sparse_labels, m._order)
    )
    updates: list[ordered.Update] = []
    for (items, sparse_labels, (ties, key)), members in alike.items():
        cutoffs = tuple({member.k: None for member in members})
        showing = shown.Showing(sparse_labels, ties, cutoffs, items)
        given = y_true, y_pred, sample_weight
        added, lists = shown.count(showing, given, key, members[0].lists_seen.value)
        for member in members:
            counts = added[cutoffs.index(member.k)]
            updates.append((member.counts, member.counts.value + counts))
            updates.append((member.lists_seen, member.lists_seen.value + lists))
    return updates


def _known_items(metric: ExposureMetric) -> int:
    if metric.items is None:
        raise ValueError(
            "`items` should be the number of items of the catalogue. Only "
            "`keras_rank.catalogue` knows it by itself. Received: items=None, of "
            f"{metric.name!r}"
        )
    return metric.items


def _value(formula: Callable[..., Tensor], *numbers: Tensor) -> Tensor:
    return formula(*numbers)
