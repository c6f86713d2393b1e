"""Metrics of how many items of a catalogue are recommended, and how evenly."""

import keras
from keras import ops

from keras_rank.backends import Tensor, backend
from keras_rank.formulas.exposure import mean_over_shown
from keras_rank.metrics.base import ExposureMetric


@keras.saving.register_keras_serializable(package="keras_rank")
class Coverage(ExposureMetric):
    """Computes the share of a catalogue that is in the top k of any list.

    `Coverage@k = items in the top k of any list / items`

    The result is from 0 to 1. It grows with the number of lists, so compare models on
    the same lists.

    Args:
        k: positive int. The number of ranks that are shown.
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
    >>> metric.update_state([[3, 1], [-1, -1]])  # shown ids, and a list without any
    >>> float(metric.result())
    0.75

    Reference:
        Shani and Gunawardana, "Evaluating recommendation systems", Recommender
        Systems Handbook, 2011.
    """

    base_name = "coverage"

    @staticmethod
    def compute(counts: Tensor) -> Tensor:
        shown = ops.sum(ops.cast(counts > 0, "int32"))
        return ops.cast(shown, "float32") / max(counts.shape[0], 1)


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
        **arguments: as for `keras_rank.metrics.ExposureMetric`: items,
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

    @staticmethod
    def compute(counts: Tensor) -> Tensor:
        ascending, items = backend.sort(counts[None])[0], counts.shape[0]
        factors = 2 * ops.arange(items, dtype="int32") + 1 - items
        return mean_over_shown(ascending, factors) / max(items, 1)
