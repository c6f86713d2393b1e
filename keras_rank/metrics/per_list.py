"""What a metric computes for each list, and the arguments that say how."""

import inspect
from typing import Any

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
from keras_rank.arrays.limits import SMALLEST_LABEL
from keras_rank.backends import Tensor
from keras_rank.lists.base import Lists
from keras_rank.lists.relevance import Relevance, from_threshold
from keras_rank.metrics.ordered import OrderedMetric
from keras_rank.metrics.variables import Sums
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranking import Ranking


class PerListMetric(OrderedMetric):
    """The part of `RankingMetric` that an update needs: one value for each list."""

    # Whether the formula supports `sparse_labels`.
    takes_sparse_labels = False

    # Whether labels may have an axis of subtopics.
    takes_subtopics = False

    # Whether labels are compared with each other, each of which matters then.
    _compares_labels = False

    # Whether different labels of relevant items have different values.
    _is_graded = False

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
        self._sums = Sums(self._place)
        # Its place among the members, if a group has them.
        self._slot = 0
        # Here, as torch.compile can't trace `inspect`.
        names = inspect.signature(type(self)).parameters
        self._names_of_arguments = tuple(
            name for name in names if name not in ("shuffle_ties", "seed", "name")
        )

    def relevance(self, lists: Lists) -> Tensor:
        """Returns what finding an item is worth, 0 if it is irrelevant.

        Args:
            lists: the labels, scores, weights and mask of the items.

        Returns:
            A tensor of shape `(batch, list_size)`. By default 1 for labels of at
            least `relevance_threshold`.
        """
        return JudgedLists(lists, self._relevance).relevance

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
    def _relevance(self) -> Relevance:
        """What determines the relevance if `relevance` is not overridden."""
        return from_threshold(self.relevance_threshold)

    @property
    def _has_own_relevance(self) -> bool:
        """Whether a subclass overrides `relevance`."""
        return type(self).relevance is not PerListMetric.relevance

    def _relevance_for(self, lists: Lists) -> Relevance | Tensor:
        return self.relevance(lists) if self._has_own_relevance else self._relevance

    def _are_relevant_from(self, label: float) -> bool:
        """Returns whether all labels from this one on are relevant, and equal so."""
        threshold = self.relevance_threshold
        # A user's formula may read labels.
        is_ours = type(self).compute.__module__.startswith("keras_rank.")
        is_binary = self._relevance.is_binary and not self._has_own_relevance
        if self._is_graded or self._compares_labels or not (is_ours and is_binary):
            return False
        return label >= (SMALLEST_LABEL if threshold is None else threshold)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """The class and its arguments, which determine the values of lists."""
        names = self._names_of_arguments
        return type(self), *[getattr(self, name, None) for name in names]
