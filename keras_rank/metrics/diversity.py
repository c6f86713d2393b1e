"""Metrics of how much recommended items differ within a list and between lists."""

from collections.abc import Sequence
from typing import Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_rank import state
from keras_rank.arguments import adds_arguments, array_config, restore_array
from keras_rank.backends import Tensor, backend
from keras_rank.formulas import mean_over_recommended
from keras_rank.metrics.base import ExposureArguments, ExposureMetric
from keras_rank.metrics.exposure import read_item_numbers
from keras_rank.metrics.recommended_items import RecommendedItems

# Arguments of the functions in `state`, by which lists without a value are left out.
_STATISTIC_ARGUMENTS: dict[str, Any] = {"empty_value": None, "dtype": "float32"}


@keras.saving.register_keras_serializable(package="keras_rank")
class IntraListDiversity(ExposureMetric):
    """Computes how different the items in the top k of a list are from each other.

    `ILD@k = 1 - mean(cos(i, j) for all pairs of items in the top k)`

    where cos is the cosine of the angle between the vectors of two items, and 0 if one
    vector is zero. The result is the mean over all lists with at least two recommended
    items. It is 0 if the vectors of each list have the same direction, 1 if they are
    orthogonal, and up to 2 if they are opposite. The cost of a list is linear in k, as
    the vectors are summed instead of compared in pairs.

    Args:
        k: positive int. The number of recommended items of each list.
        item_vectors: numbers of shape `(items, size)`. A vector for each item, such as
            an embedding, or 1 for each genre of the item and 0 for all other genres. A
            saved metric contains all vectors.
        name: str. Defaults to `intra_list_diversity_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> genres = [[1, 0], [1, 0], [0, 1], [1, 1]]
    >>> metric = keras_rank.metrics.IntraListDiversity(k=2, item_vectors=genres)
    >>> metric.update_state([[0, 1], [0, 2]])  # recommended ids
    >>> float(metric.result())
    0.5

    Reference:
        Ziegler, McNee, Konstan and Lausen, "Improving recommendation lists through
        topic diversification", WWW 2005.
    """

    _size_error = (
        "`item_vectors` should have a vector for each of the {} candidates. "
        "Received: {} vectors"
    )

    @adds_arguments(ExposureMetric.__init__, without=("items",))
    def __init__(
        self, k: int, *, item_vectors: Any, **arguments: Unpack[ExposureArguments]
    ) -> None:
        accepted = "vectors of finite numbers"
        array = read_item_numbers("item_vectors", item_vectors, 2, accepted)
        self.item_vectors = array
        super().__init__(k, items=len(array), **arguments)
        self._numbers_per_item = array.shape[1]
        norms = np.sqrt(np.einsum("ij,ij->i", array, array, dtype="float64"))[:, None]
        units = np.pad(array / np.where(norms > 0, norms, 1), [(0, 1), (0, 0)])
        # The vectors are converted once, as there may be many.
        with backend.persistent_scope():
            self._unit_vectors = ops.convert_to_tensor(units, "float32")

    def get_config(self) -> dict[str, Any]:
        vectors = array_config(self.item_vectors)
        config = {**super().get_config(), "item_vectors": vectors}
        del config["items"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**restore_array(config, "item_vectors"))

    def standard_error(self) -> Tensor:
        """Returns the standard error of the result.

        See `keras_rank.metrics.RankingMetric.standard_error` for its definition.
        """
        self._check_has_sums("standard_error", reads=True)
        return self._compute_error(self._values())

    def _variable_specs(self, items: int) -> dict[str, tuple[tuple[int, ...], str]]:
        shape = state.SHAPE
        return {"totals": (shape, "float32"), "remainders": (shape[1:], "float32")}

    def _add(self, sums: Sequence[Tensor], lists: RecommendedItems) -> list[Tensor]:
        return backend.run_program(
            _add_lists, lists.ids, self._unit_vectors, *sums, k=self.k
        )

    def _compute_result(self, sums: Sequence[Tensor]) -> Tensor:
        return backend.run_program(state.mean, *sums, **_STATISTIC_ARGUMENTS)

    def _compute_error(self, sums: Sequence[Tensor]) -> Tensor:
        return backend.run_program(state.standard_error, *sums, **_STATISTIC_ARGUMENTS)


def _add_lists(
    ids: Tensor, unit_vectors: Tensor, totals: Tensor, remainders: Tensor, *, k: int
) -> list[Tensor]:
    """Returns the sums with the values of more lists added."""
    values, has_pairs = intra_list_diversity(unit_vectors, ids[:, :k])
    counts = ops.cast(has_pairs, values.dtype)
    values = backend.where(has_pairs, values, 0.0)
    columns = backend.get_library(values).stack([values, counts, counts, counts])
    return list(state.add(totals, remainders, columns)[:2])


def intra_list_diversity(unit_vectors: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns one minus the mean of `dot(u_i, u_j)` over pairs of recommended items.

    The sum over pairs is `(norm(sum(u_i))**2 - sum(norm(u_i)**2)) / 2`.

    Args:
        unit_vectors: tensor of shape `(items + 1, size)`. The last row is zero.
        ids: int32 tensor of shape `(batch, k)`. Ids that are out of range are padding.

    Returns:
        Two tensors of shape `(batch,)`: the values, and whether a list has pairs.
    """
    items = unit_vectors.shape[0] - 1
    is_recommended = ops.logical_and(ids >= 0, ids < items)
    rows = backend.where(is_recommended, ids, items)
    vectors = backend.take_rows(unit_vectors, rows)
    squared_norm = ops.sum(ops.sum(vectors, axis=1) ** 2, axis=1)
    similarity = squared_norm - ops.sum(vectors**2, axis=(1, 2))
    num_items = ops.sum(ops.cast(is_recommended, similarity.dtype), axis=1)
    pairs = num_items * (num_items - 1.0)
    # Rounding errors could give equal vectors a value below 0, so clip it.
    diversity = ops.clip(1.0 - similarity / backend.maximum(pairs, 1.0), 0.0, 2.0)
    return diversity, pairs > 0.0


@keras.saving.register_keras_serializable(package="keras_rank")
class Personalization(ExposureMetric):
    """Computes how different the recommended items of two lists are.

    `personalization@k = sum(c_i * (n - c_i)) / (sum(c_i) * (n - 1))`

    where c_i is the number of lists with item i in their top k, and n is the number of
    lists with any recommended item. For a recommended item of a list, it is the mean
    share of the other lists that do not recommend the item. The result is 0 if all
    lists recommend the same items, and 1 if no two lists have an item in common. If all
    lists have k recommended items, it is one minus the mean overlap of two lists,
    divided by k.

    Args:
        k: positive int. The number of recommended items of each list.
        name: str. Defaults to `personalization_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.Personalization(k=2, items=4)
    >>> metric.update_state([[0, 1], [0, 2]])  # recommended ids
    >>> float(metric.result())
    0.5

    Reference:
        Zhou et al., "Solving the apparent diversity-accuracy dilemma of recommender
        systems", PNAS 107(10), 2010.
    """

    base_name = "personalization"

    @staticmethod
    def compute(counts: Tensor, lists: Tensor) -> Tensor:
        num_without = mean_over_recommended(counts, lists - counts)
        return num_without / ops.cast(backend.maximum(lists - 1, 1), "float32")

    def _variable_specs(self, items: int) -> dict[str, tuple[tuple[int, ...], str]]:
        return {**super()._variable_specs(items), "lists_shown": ((), "int32")}

    def _add(self, sums: Sequence[Tensor], lists: RecommendedItems) -> list[Tensor]:
        counts, num_lists = sums
        added = backend.run_program(_count_lists, lists.ids, k=self.k)
        return [*super()._add([counts], lists), num_lists + added]


def _count_lists(ids: Tensor, *, k: int) -> Tensor:
    """Returns the number of lists with any recommended item."""
    return ops.sum(ops.cast(ops.any(ids[:, :k] >= 0, axis=1), "int32"))
