"""Metrics of exposure: how often the items of a catalogue are in the top k of lists."""

from collections.abc import Callable, Sequence
from typing import Any, Self, TypedDict

import keras
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_flag,
    check_positive,
    check_ties_broken,
    names_arguments,
)
from keras_rank.backends import Tensor, backend
from keras_rank.formulas.exposure import concentration, share_shown
from keras_rank.metrics import ordered
from keras_rank.metrics.shown import Showing, Shown, read_shown
from keras_rank.metrics.update import grouped, has_first_batch
from keras_rank.metrics.variables import SumVariable, Update, assign, end_compiling


class ExposureArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics of exposure."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    name: str | None


# Shown ids have numbers of their items looked up: this many at a time.
MOST_NUMBERS = 2**24

# The shape and the dtype of a variable.
Form = tuple[tuple[int, ...], str]


class ExposureMetric(ordered.OrderedMetric):
    """Base class of metrics of what is in the top k of lists, whatever is relevant.

    The metrics of exposure have its arguments, and document only their own. The state
    is sums, such as how often each item is shown, so that the result does not depend on
    batches or devices.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int. The number of items of the catalogue. Defaults to `None`:
            the number of candidates, which only `keras_rank.catalogue` knows.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: as for `keras_rank.metrics.RankingMetric`.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, rather than a label for each item. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `coverage_at_10`.
    """

    k: int

    _has_error = False

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
        for variable, form in self._forms(items or 0).items():
            setattr(self, variable, SumVariable(self._place, *form, variable))
        self.lists_seen = SumVariable(self._place, (), "int32", "lists_seen")

    @names_arguments
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds what a batch of lists shows.

        Args:
            y_true: as for other metrics: labels of shape `(batch, items)`, or ids with
                `sparse_labels=True`. Only labels below 0 or NaN matter: such an item is
                not in the list. Or the ids of the shown items, in place of all
                arguments, as `keras_rank.catalogue.top_k` returns them: of shape
                `(batch, k)` or wider, the best first, padded with -1. An id that is
                given twice in a list counts once.
            y_pred: scores of shape `(batch, items)`. An item scored `-inf` or NaN is
                not shown.
            sample_weight: as for other metrics. A list whose weight is not above 0 is
                left out; all others count the same.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is unchanged then. In
                a graph that does not know sizes, TensorFlow raises its own error.
        """
        assign(updates_of([self], y_true, y_pred, sample_weight))

    def result(self) -> Tensor:
        """Returns the result over all lists since the last reset, 0 for no lists."""
        return self._of(self._sums)

    def standard_error(self) -> Tensor:
        """Raises an error, unless the result is a mean over lists."""
        return self._error_of(self._sums)

    def of_shown(self, ids: Tensor, items: int) -> list[Tensor]:
        """Returns the sums of lists that show ids, in a catalogue of `items` items."""
        if self.items not in (None, items):
            received = self._fits.format(items, self.items)
            raise ValueError(f"{received}, of {self.name!r}")
        sums: list[Tensor] = [ops.zeros(*form) for form in self._forms(items).values()]
        size = max(1, MOST_NUMBERS // (self.k * self._width))
        for start in range(0, len(ids), size):
            sums = self._with(sums, Shown(ids[start : start + size], items))
        return sums

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "items": self.items,
            "sparse_labels": self.sparse_labels,
        }

    def _copy_for_group(self) -> Self:
        """Returns a metric of the same configuration with variables of its own."""
        other: Self = self.from_config(self.get_config())
        other._seed_is_default = self._seed_is_default
        return other

    # What has to fit the catalogue, as errors say it.
    _fits = "`items` should be the number of candidates, {}. Received: items={}"

    # How many numbers of each shown item are looked up.
    _width = 1

    # The formula of the sums and, if there are any, of a number of each item.
    _formula: Callable[..., Tensor]

    def _values(self) -> list[Tensor]:
        return []

    def _forms(self, items: int) -> dict[str, Form]:
        """The variables that hold sums, by name."""
        # int32 is exact on every device, up to 2**31 lists.
        return {"counts": ((items,), "int32")}

    @property
    def _sum_variables(self) -> list[SumVariable]:
        return [getattr(self, name) for name in self._forms(0)]

    @property
    def _sums(self) -> list[Tensor]:
        return [variable.value for variable in self._sum_variables]

    def _with(self, sums: Sequence[Tensor], seen: Shown) -> list[Tensor]:
        """The sums with what more lists show."""
        return [sums[0] + seen.counts(self.k)]

    def _of(self, sums: Sequence[Tensor]) -> Tensor:
        """The result of the sums."""
        formula = type(self)._formula
        return backend.enter(_value, *sums, *self._values(), formula=formula)

    def _error_of(self, sums: Sequence[Tensor]) -> Tensor:
        """The standard error of the result, if it has one."""
        raise ValueError(
            "Only metrics that are means over lists have a standard error. "
            f"Received: {self.name!r}"
        )


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


def updates_of(
    metrics: Sequence[ExposureMetric],
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    *,
    warns: bool = True,
) -> list[Update]:
    """Returns the new states of metrics after a batch of lists.

    Lists are ordered once for all metrics with the same order.

    Args:
        metrics: the metrics.
        y_true: as for `ExposureMetric.update_state`.
        y_pred: as for `ExposureMetric.update_state`.
        sample_weight: as for `ExposureMetric.update_state`.
        warns: whether to warn about the values of a first batch.
    """
    end_compiling()
    is_first = has_first_batch(metrics)
    alike = grouped(metrics, lambda m: (_known_items(m), m.sparse_labels, m._order))
    updates: list[Update] = []
    for (items, sparse_labels, (ties, key)), members in alike.items():
        showing = Showing(sparse_labels, ties, max(m.k for m in members), items)
        given = y_true, y_pred, sample_weight
        seen, lists = read_shown(
            showing, given, key, members[0].lists_seen.value, warns=warns and is_first
        )
        is_first = False
        for member in members:
            new = member._with(member._sums, seen)
            updates += zip(member._sum_variables, new, strict=True)
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


def _value(*numbers: Tensor, formula: Callable[..., Tensor]) -> Tensor:
    return formula(*numbers)
