"""The base class of metrics of lists, with their `update_state` and `result`."""

from collections.abc import Callable
from typing import Any, TypedDict

import keras

from keras_rank import state
from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    names_arguments,
)
from keras_rank.backends import Tensor
from keras_rank.metrics.per_list import PerListMetric
from keras_rank.metrics.update import results, updates_of
from keras_rank.metrics.variables import assign


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


class RankingMetric(PerListMetric):
    """Base class of ranking metrics: the weighted mean of one value per list.

    The metrics of this module have its arguments, and document only their own.

    To add a metric, write its formula in `compute`, as in the example below. It returns
    one value per list, from the lists and their ranking. This class handles padding,
    ties, weights, empty lists, batching and exact sums. To save the metric in a model,
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
            item. Defaults to `None`: that of the program, from the state of Python's
            generator at construction, which `keras.utils.set_random_seed` sets.
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
                scored `-inf` or NaN is judged, but not retrieved: it has no rank. Where
                a mask that layers have passed on to the scores is False, there is
                padding.
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
        return self._of_sums(state.mean)

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
        return self._of_sums(state.standard_error)

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the sums, unless its group has them, and any other."""
        sums = [] if self._in_group else self._sums.variables
        return [*sums, *super().variables]

    def reset_state(self) -> None:
        super().reset_state()
        if self._in_group:
            none, slots = self._sums.zeros(), [self._slot]
            assign(self._sums.updates(self._sums.state.replaced(slots, none.of(slots))))

    def _of_sums(self, statistic: Callable[..., Tensor]) -> Tensor:
        (value,) = results(statistic, [self], self._sums.state.one(self._slot))
        return value
