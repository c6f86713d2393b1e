"""Metrics of how much the items in the top k differ: within a list, and among lists."""

from collections.abc import Sequence
from typing import Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_rank import state
from keras_rank.arguments import adds_arguments, array_config, with_array
from keras_rank.backends import Tensor, backend
from keras_rank.formulas import mean_over_shown
from keras_rank.metrics.base import ExposureArguments, ExposureMetric
from keras_rank.metrics.exposure import numbers_of_items
from keras_rank.metrics.recommended_items import Shown

# Arguments of `state.mean`: lists without a value are left out.
_MEAN: dict[str, Any] = {"empty_value": None, "dtype": "float32"}


@keras.saving.register_keras_serializable(package="keras_rank")
class IntraListDiversity(ExposureMetric):
    """Computes how different the items in the top k of a list are from each other.

    `ILD@k = 1 - mean(cos(i, j) for all pairs of items in the top k)`

    where cos is the cosine of the angle between the vectors of two items, and 0 if one
    of these is zero. The result is the mean over all lists that show two items or more:
    0 if each list shows items of one direction, 1 if they have nothing in common, and
    up to 2 if they are opposites. No pair is looked at, so a list takes as long as the
    sum of k vectors.

    Args:
        k: positive int. The number of ranks that are shown.
        item_vectors: numbers of shape `(items, size)`: a vector for each item, such as
            an embedding, or 1 for each of its genres and 0 for the others. A saved
            metric holds them all.
        name: str. Defaults to `intra_list_diversity_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: shuffle_ties,
            seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> genres = [[1, 0], [1, 0], [0, 1], [1, 1]]
    >>> metric = keras_rank.metrics.IntraListDiversity(k=2, item_vectors=genres)
    >>> metric.update_state([[0, 1], [0, 2]])  # the shown ids
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
        found = numbers_of_items("item_vectors", item_vectors, 2, accepted)
        self.item_vectors = found
        super().__init__(k, items=len(found), **arguments)
        self._numbers_per_item = found.shape[1]
        norms = np.sqrt(np.einsum("ij,ij->i", found, found, dtype="float64"))[:, None]
        units = np.pad(found / np.where(norms > 0, norms, 1), [(0, 1), (0, 0)])
        # Once, as there may be many.
        with backend.lasting():
            self._unit_vectors = ops.convert_to_tensor(units, "float32")

    def get_config(self) -> dict[str, Any]:
        vectors = array_config(self.item_vectors)
        config = {**super().get_config(), "item_vectors": vectors}
        del config["items"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**with_array(config, "item_vectors"))

    def standard_error(self) -> Tensor:
        """Returns the standard error of the result, as that of `RankingMetric`."""
        self._check_has_sums("standard_error", reads=True)
        return self._error_of(self._values())

    def _variable_specs(self, items: int) -> dict[str, tuple[tuple[int, ...], str]]:
        shape = state.SHAPE
        return {"totals": (shape, "float32"), "remainders": (shape[1:], "float32")}

    def _add(self, sums: Sequence[Tensor], lists: Shown) -> list[Tensor]:
        return backend.enter(
            _with_lists, lists.ids, self._unit_vectors, *sums, k=self.k
        )

    def _result_of(self, sums: Sequence[Tensor]) -> Tensor:
        return backend.enter(state.mean, *sums, **_MEAN)

    def _error_of(self, sums: Sequence[Tensor]) -> Tensor:
        return backend.enter(state.standard_error, *sums, **_MEAN)


def _with_lists(
    ids: Tensor, unit_vectors: Tensor, totals: Tensor, remainders: Tensor, *, k: int
) -> list[Tensor]:
    """The sums of values with those of more lists."""
    values, has_pairs = intra_list_diversity(unit_vectors, ids[:, :k])
    counts = ops.cast(has_pairs, values.dtype)
    values = backend.where(has_pairs, values, 0.0)
    columns = backend.library_of(values).stack([values, counts, counts, counts])
    return list(state.add(totals, remainders, columns)[:2])


def intra_list_diversity(unit_vectors: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """One minus the mean of `dot(u_i, u_j)` over the pairs of shown items.

    The sum over pairs is `(norm(sum(u_i))**2 - sum(norm(u_i)**2)) / 2`.

    Args:
        unit_vectors: tensor of shape `(items + 1, size)`. The last one is of zeros.
        ids: int32 tensor of shape `(batch, k)`. Those of no item are padding.

    Returns:
        A tensor of shape `(batch,)`, and whether there are pairs.
    """
    items = unit_vectors.shape[0] - 1
    is_shown = ops.logical_and(ids >= 0, ids < items)
    rows = backend.where(is_shown, ids, items)
    vectors = backend.take_rows(unit_vectors, rows)
    of_sum = ops.sum(ops.sum(vectors, axis=1) ** 2, axis=1)
    similar = of_sum - ops.sum(vectors**2, axis=(1, 2))
    number = ops.sum(ops.cast(is_shown, similar.dtype), axis=1)
    pairs = number * (number - 1.0)
    # Rounding errors would make it less than 0 for equal vectors.
    diversity = ops.clip(1.0 - similar / backend.maximum(pairs, 1.0), 0.0, 2.0)
    return diversity, pairs > 0.0


@keras.saving.register_keras_serializable(package="keras_rank")
class Personalization(ExposureMetric):
    """Computes how different the top k of a list is from that of another one.

    `personalization@k = sum(c_i * (n - c_i)) / (sum(c_i) * (n - 1))`

    where c_i is the number of lists with item i in their top k, and n that of lists
    that show any item. It is the share of the other lists that do not show an item, for
    all that are shown: 0 if all lists show the same items, and 1 if no two lists have
    an item in common. If all lists show k items, it is one minus the mean overlap of
    two lists, divided by k.

    Args:
        k: positive int. The number of ranks that are shown.
        name: str. Defaults to `personalization_at_k`.
        **arguments: as for `keras_rank.metrics.ExposureMetric`: items,
            shuffle_ties, seed, sparse_labels.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> metric = keras_rank.metrics.Personalization(k=2, items=4)
    >>> metric.update_state([[0, 1], [0, 2]])  # the shown ids
    >>> float(metric.result())
    0.5

    Reference:
        Zhou et al., "Solving the apparent diversity-accuracy dilemma of recommender
        systems", PNAS 107(10), 2010.
    """

    base_name = "personalization"

    @staticmethod
    def compute(counts: Tensor, lists: Tensor) -> Tensor:
        without = mean_over_shown(counts, lists - counts)
        return without / ops.cast(backend.maximum(lists - 1, 1), "float32")

    def _variable_specs(self, items: int) -> dict[str, tuple[tuple[int, ...], str]]:
        return {**super()._variable_specs(items), "lists_shown": ((), "int32")}

    def _add(self, sums: Sequence[Tensor], lists: Shown) -> list[Tensor]:
        counts, number = sums
        more = backend.enter(_number_of_lists, lists.ids, k=self.k)
        return [*super()._add([counts], lists), number + more]


def _number_of_lists(ids: Tensor, *, k: int) -> Tensor:
    """How many lists show any item."""
    return ops.sum(ops.cast(ops.any(ids[:, :k] >= 0, axis=1), "int32"))
