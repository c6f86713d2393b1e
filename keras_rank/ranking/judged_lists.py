"""Lists with the relevance of their items, which formulas read."""

import functools
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import (
    LARGEST_LIST_WEIGHT,
    clip_labels,
    max_over_axis,
    ratio,
    total,
)
from keras_rank.arrays.selection import largest_values
from keras_rank.backends import Tensor, backend
from keras_rank.lists.input_arrays import value_error
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance
from keras_rank.lists.tensors import check_result_shape, static_shape
from keras_rank.ranking.base import Ranking


def cache_for_all_cutoffs(
    function: Callable[[Any, Ranking], Tensor],
) -> Callable[[Any, Ranking], Tensor]:
    """Decorates a function of judged lists and a ranking that returns values by rank.

    The values are computed once for all cutoffs, so a value must not depend on lower
    ranks.
    """

    @functools.wraps(function)
    def up_to_cutoff(lists: "JudgedLists", ranking: Ranking) -> Tensor:
        key = function, ranking.uncut
        values = backend.compute_once(lists._cache, key, function, lists, ranking.uncut)
        return ranking.up_to_cutoff(values)

    return up_to_cutoff


class JudgedLists:
    """Lists with the relevance of their items.

    Attributes of the lists are also attributes of the judged lists.

    Args:
        lists: the lists.
        relevance: the relevance of the items, as a function of their labels or as a
            tensor of shape `(batch, list_size)`.
        list_weight: how the weight of a list follows from the weights of its items.
    """

    def __init__(
        self, lists: Lists, relevance: Relevance | Tensor, list_weight: str = "mean"
    ) -> None:
        self.lists = lists
        self._list_weight = list_weight
        # Results that several formulas need. The keys include the function or ranking.
        self._cache: dict[Any, Tensor] = {}
        self._label_relevance: Relevance | None = None
        if isinstance(relevance, Relevance):
            self._label_relevance = relevance
            if lists.holds_targets:
                _require_zero_for_others(relevance, lists.dtype)
        else:
            check_result_shape(
                relevance,
                lists.labels,
                lambda: (
                    "`relevance` should return a number for each item, of shape "
                    f"{static_shape(lists.labels)}"
                ),
            )
            relevance = ops.cast(relevance, lists.dtype)
            self.relevance = backend.where(lists.mask, relevance, 0.0)

    def is_by(self, relevance: Relevance | Tensor, list_weight: str) -> bool:
        """Returns whether relevance and list weights are computed by the arguments.

        Args:
            relevance: the relevance, which may be a function of labels.
            list_weight: how the weight of a list follows from the weights of its items.
        """
        is_equal = isinstance(relevance, Relevance) and (
            self._label_relevance == relevance
        )
        return is_equal and self._list_weight == list_weight

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up special methods before the instance has `lists`.
        if name == "lists" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.lists, name)

    def __getstate__(self) -> dict[str, Any]:
        # A copy may be changed, so it does not share cached results.
        return {**vars(self), "_cache": {}}

    @backend.cached_property
    def relevance(self) -> Tensor:
        """The relevance of the items, 0 for padding."""
        relevance = self._compute_relevance(self.lists.labels)
        return backend.where(self.lists.mask, relevance, 0.0)

    @backend.cached_property
    def relevance_by_subtopic(self) -> Tensor:
        """The relevance of the items, of shape `(batch, subtopics, list_size)`.

        The relevance is binary. Booleans are cast to numbers in the last step, as they
        take less memory, whose allocation is slow.
        """
        if self._label_relevance is None:
            expected = "not be overridden in metrics of subtopics, which need a binary "
            expected += "one for each: use `relevance_threshold`, or labels of 0 and 1"
            received = f"one of the shape {static_shape(self.relevance)}"
            raise value_error("relevance", expected, received)
        labels = self.lists.subtopic_labels
        relevant = self._label_relevance.function(
            labels, None, *self._label_relevance.arguments
        )
        if not self._label_relevance.is_zero_at_zero:
            relevant = ops.logical_and(relevant, labels >= 0.0)
        relevant = ops.logical_and(relevant, self.lists.mask[:, None])
        return ops.cast(relevant, self.lists.dtype)

    @backend.cached_property
    def weighted_relevance(self) -> Tensor:
        """The relevance of the items, times their weights."""
        weights = self.lists.weights
        return self.relevance if weights is None else self.relevance * weights

    @backend.cached_property
    def number_relevant(self) -> Tensor:
        """The number of relevant items, of shape `(batch,)`, if relevance is binary."""
        # A sum of integers is exact in any order, so it does not need `total`.
        return ops.sum(self.relevance, axis=1)

    @backend.cached_property
    def relevant_weight(self) -> Tensor:
        """The weight of relevant items, of shape `(batch,)`, if relevance is binary."""
        if self.lists.weights is None:
            return self.number_relevant
        return total(self.weighted_relevance)

    @backend.cached_property
    def has_relevant(self) -> Tensor:
        """Whether a list has relevant items, of shape `(batch,)`."""
        if self._is_monotone_from_zero:
            return self._compute_relevance(self.lists.highest_labels)[:, 0] > 0.0
        return max_over_axis(self.relevance) > 0.0

    @backend.cached_property
    def list_weights(self) -> Tensor:
        """The weight of each list, of shape `(batch,)`.

            mean = sum(weights * relevance) / sum(relevance)
            sum = sum(weights * relevance)
            one = the weight that was passed for the list, or 1

        The weight of a list without relevant items is 0. In `state`, such a list gets
        the average weight of the other lists, unless it has `empty_list_weights`.
        """
        if self._list_weight == "sum":
            weights = total(self.weighted_relevance)
            if self._scale is None:
                return weights
            # Undoes the scale of gains that differs between lists.
            _, unit = self._scale
            return backend.minimum(weights / unit[:, 0], LARGEST_LIST_WEIGHT)
        if self._list_weight == "one":
            weights = self.lists.given_list_weights
            return backend.where(self.has_relevant, weights, 0.0)
        if self.lists.weights is None:
            return ops.cast(self.has_relevant, self.lists.dtype)
        return ratio(total(self.weighted_relevance), total(self.relevance))

    @property
    def empty_list_weights(self) -> Tensor:
        """The own weights of lists without relevant items, of shape `(batch,)`."""
        if self._list_weight == "sum":
            return ops.zeros_like(self.lists.mean_weights)
        if self._list_weight == "one":
            return self.lists.given_list_weights
        return self.lists.mean_weights

    @cache_for_all_cutoffs
    def relevance_by_rank(self, ranking: Ranking) -> Tensor:
        """Returns the relevance of the items by rank, of shape `(batch, depth)`.

        If ties are averaged, the relevance is the mean over the tied items.
        """
        if self._label_relevance is None or ranking.order is None:
            return ranking.take(self.relevance)
        labels = clip_labels(ranking.in_order(self.lists.masked_labels))
        relevance = self._compute_relevance(labels)
        if not self._label_relevance.is_zero_at_zero:
            relevance = backend.where(ranking.occupied, relevance, 0.0)
        return ranking.averaged(relevance, lambda: self.relevance)

    def hits(self, ranking: Ranking) -> Tensor:
        """Returns the number of relevant items up to the cutoff. Shape: `(batch,)`."""
        return backend.compute_once(
            self._cache, ranking, lambda: total(self.relevance_by_rank(ranking))
        )

    @cache_for_all_cutoffs
    def gains_by_rank(self, ranking: Ranking) -> Tensor:
        """Returns the weighted relevance by rank, of shape `(batch, depth)`."""
        if self.lists.weights is None:
            return self.relevance_by_rank(ranking)
        return ranking.take(self.weighted_relevance)

    def ideal_gains(self, ranking: Ranking) -> Tensor:
        """Returns the weighted relevance in the ideal order, which is descending."""
        # The order is computed once, up to the largest cutoff, for all cutoffs.
        key = ranking.uncut, ranking.largest_k
        gains = backend.compute_once(
            self._cache, key, self._largest_gains, ranking.ideal_depth
        )
        return gains if ranking.is_largest else gains[:, : ranking.cutoff]

    def _largest_gains(self, count: Tensor | int) -> Tensor:
        if self._is_monotone_from_zero and self.lists.weights is None:
            labels = largest_values(self.lists.masked_labels, count)
            return self._compute_relevance(clip_labels(labels))
        return largest_values(self.weighted_relevance, count)

    @property
    def _is_monotone_from_zero(self) -> bool:
        """Whether relevance is monotone in the label, and 0 for a label of 0."""
        relevance = self._label_relevance
        return (
            relevance is not None
            and relevance.is_monotone
            and relevance.is_zero_at_zero
        )

    def fill_empty(self, values: Tensor, empty_value: float | None) -> Tensor:
        """Returns the values, with `empty_value` for lists without relevant items.

        Lists that are excluded from the mean get the value NaN: lists of padding only,
        and lists without relevant items if `empty_value` is `None`.
        """
        value = math.nan if empty_value is None else empty_value
        values = backend.where(self.has_relevant, values, value)
        return backend.where(self.lists.has_items, values, math.nan)

    def _compute_relevance(self, labels: Tensor) -> Tensor:
        assert self._label_relevance is not None
        function, arguments = (
            self._label_relevance.function,
            self._label_relevance.arguments,
        )
        relevance = function(labels, self._scale, *arguments)
        # The checks of `ops.cast` take longer than casting a small tensor.
        has_dtype = getattr(relevance, "dtype", None) == labels.dtype
        return relevance if has_dtype else ops.cast(relevance, self.lists.dtype)

    @backend.cached_property
    def _scale(self) -> Any:
        compute_scale = (
            None
            if self._label_relevance is None
            else self._label_relevance.compute_scale
        )
        return (
            None if compute_scale is None else compute_scale(self.lists.highest_labels)
        )


def _require_zero_for_others(relevance: Relevance, dtype: str) -> None:
    """Raises `ValueError` if items without a label, which count as 0, are relevant."""
    if relevance.is_zero_at_zero:
        return
    others = "where only some items have labels, as all others have the label 0"
    if relevance.is_binary:
        # The function is called with a Python number, so the result is a bool in graphs
        # too.
        if relevance.function(0.0, None, *relevance.arguments):
            received = f"relevance_threshold={relevance.arguments[0]}"
            raise value_error("relevance_threshold", f"be above 0 {others}", received)
        return
    values = relevance.function(ops.zeros((1, 1), dtype), None, *relevance.arguments)
    backend.require(
        ops.logical_not(ops.any(values > 0.0)),
        f"`gain_fn` should return 0 for a label of 0 {others}. Received: a function "
        "that returns more",
    )
