"""Metrics of how often items are recommended, and of their popularity."""

from collections.abc import Callable
from typing import Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import (
    adds_arguments,
    array_config,
    array_from_config,
    restore_array,
)
from keras_rank.backends import Array, Tensor, backend
from keras_rank.formulas import mean_over_recommended
from keras_rank.lists.input_arrays import read_array
from keras_rank.metrics.base import ExposureArguments, ExposureMetric


@keras.saving.register_keras_serializable(package="keras_rank")
class Coverage(ExposureMetric):
    """Computes the share of the catalog that is in the top k of any list.

    `Coverage@k = items in the top k of any list / items`

    The result is between 0 and 1. It grows with the number of lists, so compare models
    on the same lists.

    Args:
        k: positive int. The number of recommended items of each list.
        name: str. Defaults to `coverage_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.Coverage(k=1, items=4, sparse_labels=True)
    >>> metric.update_state([2, 3], [[0.9, 0.2, 0.7, 0.1], [0.3, 0.8, 0.1, 0.6]])
    >>> float(metric.result())
    0.5
    >>> metric.update_state([[3, 1], [-1, -1]])  # ids, no item in the second list
    >>> float(metric.result())
    0.75

    Reference:
        Shani and Gunawardana, "Evaluating recommendation systems", Recommender
        Systems Handbook, 2011.
    """

    base_name = "coverage"

    @staticmethod
    def compute(counts: Tensor) -> Tensor:
        covered = ops.sum(ops.cast(counts > 0, "int32"))
        return ops.cast(covered, "float32") / max(counts.shape[0], 1)


@keras.saving.register_keras_serializable(package="keras_rank")
class Gini(ExposureMetric):
    """Computes the Gini index of how often each item is in the top k of a list.

    `Gini@k = sum((2 * i - n - 1) * c_i for i in 1..n) / (n * sum(c_i))`

    where c_i are the counts of all n items in ascending order. The result is 0 if all
    items are recommended equally often, and 1 - 1/n if only one item is recommended:
    lower is fairer. In `fit`, Keras computes the result at each step, and each result
    sorts the counts of all catalog items. For a large catalog, use
    `keras_rank.callbacks.CatalogueEvaluation` instead.

    Args:
        k: positive int. The number of recommended items of each list.
        name: str. Defaults to `gini_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.Gini(k=2, items=4)
    >>> metric.update_state([[0, 1], [0, 1], [0, 2]])  # recommended ids
    >>> f"{float(metric.result()):.4f}"
    '0.4167'

    Reference:
        Fleder and Hosanagar, "Blockbuster culture's next rise or fall: the impact of
        recommender systems on sales diversity", Management Science 55(5), 2009.
    """

    base_name = "gini"
    higher_is_better = False

    @staticmethod
    def compute(counts: Tensor) -> Tensor:
        ascending, items = backend.sort(counts[None])[0], counts.shape[0]
        factors = 2 * ops.arange(items, dtype="int32") + 1 - items
        return mean_over_recommended(ascending, factors) / max(items, 1)


class _PopularityMetric(ExposureMetric):
    """Base class of metrics that average a number over all recommended items."""

    @adds_arguments(ExposureMetric.__init__, without=("items",))
    def __init__(
        self, k: int, *, popularity: Any, **arguments: Unpack[ExposureArguments]
    ) -> None:
        self.popularity = read_item_numbers(
            "popularity", popularity, 1, self._accepted, self._accepts
        )
        super().__init__(k, items=len(self.popularity), **arguments)

    compute = staticmethod(mean_over_recommended)

    _size_error = (
        "`popularity` should have a number for each of the {} candidates. "
        "Received: {} numbers"
    )

    # The condition for valid numbers, and its description in error messages.
    _accepts: Callable[[Array], Array]
    _accepted: str

    def _item_values(self) -> list[Tensor]:
        return [ops.convert_to_tensor(self.popularity)]

    def get_config(self) -> dict[str, Any]:
        popularity = array_config(self.popularity)
        config = {**super().get_config(), "popularity": popularity}
        del config["items"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**restore_array(config, "popularity"))


@keras.saving.register_keras_serializable(package="keras_rank")
class AveragePopularity(_PopularityMetric):
    """Computes the mean popularity of the items in the top k.

    `AveragePopularity@k = sum(c_i * popularity_i) / sum(c_i)`

    where c_i is the number of lists with item i in their top k.

    Args:
        k: positive int. The number of recommended items of each list.
        popularity: numbers of 0 or more, of shape `(items,)`. The popularity of each
            item, such as the number of its buyers.
        name: str. Defaults to `average_popularity_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> bought = [30, 20, 5, 1]
    >>> metric = keras_rank.metrics.AveragePopularity(k=2, popularity=bought)
    >>> metric.update_state([[0, 1], [0, 2]])  # recommended ids
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
class Novelty(_PopularityMetric):
    """Computes the mean self-information of the items in the top k, in bits.

    `Novelty@k = sum(c_i * -log2(popularity_i)) / sum(c_i)`

    where c_i is the number of lists with item i in their top k.

    Args:
        k: positive int. The number of recommended items of each list.
        popularity: numbers above 0 and up to 1, of shape `(items,)`. The share of users
            who know the item, or the item's share of all interactions. For an item that
            nobody knows, use the share of a single user.
        name: str. Defaults to `novelty_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> known = [0.5, 0.25, 0.25, 0.125]
    >>> metric = keras_rank.metrics.Novelty(k=2, popularity=known)
    >>> metric.update_state([[0, 1], [0, 3]])  # recommended ids
    >>> float(metric.result())
    1.75

    Reference:
        Castells, Vargas and Wang, "Novelty and diversity metrics for recommender
        systems: choice, discovery and relevance", DDR workshop at ECIR 2011.
    """

    _accepts = staticmethod(lambda x: (x > 0) & (x <= 1))
    _accepted = "numbers above 0 and up to 1"

    def _item_values(self) -> list[Tensor]:
        return [ops.convert_to_tensor(-np.log2(self.popularity))]


def read_item_numbers(
    argument: str,
    values: Any,
    ndim: int,
    accepted: str,
    accepts: Callable[[Array], Array] = np.isfinite,
) -> Array:
    """Returns a number or a vector for each item, as a float32 array.

    Args:
        argument: the name of the argument.
        values: the value of the argument.
        ndim: 1 for a number per item, 2 for a vector per item.
        accepted: a description of valid numbers, for error messages.
        accepts: function that returns whether finite numbers are valid.

    Raises:
        ValueError: if the shape or a number is not valid.
    """
    values = array_from_config(argument, values)
    array = ops.convert_to_numpy(read_array(argument, values).tensor())
    numbers: Array = array.astype("float32")
    message = f"`{argument}` should be {accepted}, one for each item. "
    if numbers.ndim != ndim or numbers.size == 0:
        raise ValueError(f"{message}Received: {argument}.shape={numbers.shape}")
    invalid = numbers[~(np.isfinite(numbers) & accepts(numbers))]
    if invalid.size:
        raise ValueError(
            f"{message}Received: invalid values ({invalid.size} of {numbers.size}), "
            f"such as {invalid[0]}"
        )
    return numbers
