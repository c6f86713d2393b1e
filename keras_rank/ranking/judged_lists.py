"""Lists with the relevance of their items, as formulas read them."""

import functools
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import highest, ratio, total, within_limits
from keras_rank.arrays.selection import largest_values
from keras_rank.backends import Tensor, backend
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance
from keras_rank.lists.tensors import check_returned, shape_of
from keras_rank.ranking.base import Ranking


def once_for_all_cutoffs(
    by_rank: Callable[[Any, Ranking], Tensor],
) -> Callable[[Any, Ranking], Tensor]:
    """Decorates a function of judged lists and a ranking: a value for each rank.

    It is computed once for all cutoffs: a value must not depend on lower ranks.
    """

    @functools.wraps(by_rank)
    def up_to_cutoff(lists: "JudgedLists", ranking: Ranking) -> Tensor:
        key = by_rank, ranking.uncut
        kept = backend.kept(lists._by_rank, key, by_rank, lists, ranking.uncut)
        return ranking.up_to_cutoff(kept)

    return up_to_cutoff


class JudgedLists:
    """Lists with the relevance of their items.

    They also have the attributes of the lists.

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
        # What several formulas need of a ranking, by what it is.
        self._by_rank: dict[Any, Tensor] = {}
        self._by_label: Relevance | None = None
        if isinstance(relevance, Relevance):
            self._by_label = relevance
            if lists.holds_targets:
                _require_worthless_others(relevance, lists.dtype)
        else:
            check_returned(
                relevance,
                lists.labels,
                lambda: (
                    "`relevance` should return a number for each item, of shape "
                    f"{shape_of(lists.labels)}"
                ),
            )
            relevance = ops.cast(relevance, lists.dtype)
            self.relevance = backend.where(lists.mask, relevance, 0.0)

    def is_by(self, relevance: Relevance | Tensor, list_weight: str) -> bool:
        """Whether the lists are judged by that function of labels, and weighted so."""
        is_same = isinstance(relevance, Relevance) and self._by_label == relevance
        return is_same and self._list_weight == list_weight

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up special methods, and before there are `lists`.
        if name == "lists" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.lists, name)

    def __getstate__(self) -> dict[str, Any]:
        # A copy that is changed must not change cached results.
        return {**vars(self), "_by_rank": {}}

    @backend.cached_property
    def relevance(self) -> Tensor:
        """The relevance of the items, 0 where there is none."""
        relevance = self._worth(self.lists.labels)
        return backend.where(self.lists.mask, relevance, 0.0)

    @backend.cached_property
    def relevance_by_subtopic(self) -> Tensor:
        """The relevance of the items, of shape `(batch, subtopics, list_size)`.

        It is binary. Only the last step makes numbers of it, as memory takes longer to
        get than to read.
        """
        if self._by_label is None:
            expected = "be left as it is for formulas of subtopics, which need one for "
            expected += "each: use `relevance_threshold`, or labels of 0 and 1"
            received = f"one of the shape {shape_of(self.relevance)}"
            raise refused("relevance", expected, received)
        labels = self.lists.subtopic_labels
        relevant = self._by_label.function(labels, None, *self._by_label.arguments)
        if not self._by_label.zero_at_zero:
            relevant = ops.logical_and(relevant, labels >= 0.0)
        relevant = ops.logical_and(relevant, self.lists.mask[:, None])
        return ops.cast(relevant, self.lists.dtype)

    @backend.cached_property
    def weighted_relevance(self) -> Tensor:
        """The relevance of the items times their weights."""
        weights = self.lists.weights
        return self.relevance if weights is None else self.relevance * weights

    @backend.cached_property
    def number_relevant(self) -> Tensor:
        """The number of relevant items, of shape `(batch,)`, if relevance is binary."""
        # A sum of integers is exact in any order, so it does not need `total`.
        return ops.sum(self.relevance, axis=1)

    @backend.cached_property
    def relevant_weight(self) -> Tensor:
        """The weights of the relevant items, of shape `(batch,)`, if it is binary."""
        if self.lists.weights is None:
            return self.number_relevant
        return total(self.weighted_relevance)

    @backend.cached_property
    def has_relevant(self) -> Tensor:
        """Whether a list has relevant items, of shape `(batch,)`."""
        if self._rises_from_zero:
            return self._worth(self.lists.highest_labels)[:, 0] > 0.0
        return highest(self.relevance) > 0.0

    @backend.cached_property
    def list_weights(self) -> Tensor:
        """The weight of each list, of shape `(batch,)`.

            mean = sum(weights * relevance) / sum(relevance)
            sum = sum(weights * relevance)
            one = the weight that was passed for the list, or 1

        The weight of a list without relevant items is 0. In the mean over lists, it
        later gets the average weight of the other lists (see `state`), or
        `empty_list_weights`.
        """
        if self._list_weight == "sum":
            return total(self.weighted_relevance)
        if self._list_weight == "one":
            weights = self.lists.given_list_weights
            return backend.where(self.has_relevant, weights, 0.0)
        if self.lists.weights is None:
            return ops.cast(self.has_relevant, self.lists.dtype)
        return ratio(total(self.weighted_relevance), total(self.relevance))

    @property
    def empty_list_weights(self) -> Tensor:
        """The weights of lists without relevant items that don't get the average."""
        if self._list_weight == "sum":
            return ops.zeros_like(self.lists.mean_weights)
        if self._list_weight == "one":
            return self.lists.given_list_weights
        return self.lists.mean_weights

    @once_for_all_cutoffs
    def relevance_by_rank(self, ranking: Ranking) -> Tensor:
        """The relevance of the items by rank, of shape `(batch, depth)`.

        If ties are averaged, it is the mean over the tied items.
        """
        if self._by_label is None or ranking.order is None:
            return ranking.take(self.relevance)
        labels = within_limits(ranking.in_order(self.lists.masked_labels))
        relevance = self._worth(labels)
        if not self._by_label.zero_at_zero:
            relevance = backend.where(ranking.occupied, relevance, 0.0)
        return ranking.averaged(relevance, lambda: self.relevance)

    def hits(self, ranking: Ranking) -> Tensor:
        """The number of relevant items up to the cutoff, of shape `(batch,)`."""
        return backend.kept(
            self._by_rank, ranking, lambda: total(self.relevance_by_rank(ranking))
        )

    @once_for_all_cutoffs
    def gains_by_rank(self, ranking: Ranking) -> Tensor:
        """The weighted relevance by rank, of shape `(batch, depth)`."""
        if self.lists.weights is None:
            return self.relevance_by_rank(ranking)
        return ranking.take(self.weighted_relevance)

    def ideal_gains(self, ranking: Ranking) -> Tensor:
        """The weighted relevance in the ideal order, the largest first."""
        # Once for all cutoffs of which this is the largest.
        key = ranking.uncut, ranking.largest_k
        gains = backend.kept(
            self._by_rank, key, self._largest_gains, ranking.ideal_depth
        )
        return gains if ranking.is_largest else gains[:, : ranking.cutoff]

    def _largest_gains(self, count: Tensor | int) -> Tensor:
        if self._rises_from_zero and self.lists.weights is None:
            labels = largest_values(self.lists.masked_labels, count)
            return self._worth(within_limits(labels))
        return largest_values(self.weighted_relevance, count)

    @property
    def _rises_from_zero(self) -> bool:
        """Whether the highest labels are worth most, and padding nothing."""
        by_label = self._by_label
        return by_label is not None and by_label.is_monotone and by_label.zero_at_zero

    def fill_empty(self, values: Tensor, empty_value: float | None) -> Tensor:
        """Returns the values, with `empty_value` for lists without relevant items.

        A list that is left out of the mean has the value NaN: a list of padding only,
        or one without relevant items if `empty_value` is `None`.
        """
        empty = math.nan if empty_value is None else empty_value
        values = backend.where(self.has_relevant, values, empty)
        return backend.where(self.lists.has_items, values, math.nan)

    def _worth(self, labels: Tensor) -> Tensor:
        assert self._by_label is not None
        function, arguments = self._by_label.function, self._by_label.arguments
        worth = function(labels, self._scale, *arguments)
        # Keras's cast looks longer at a small tensor than it takes to cast it.
        is_done = getattr(worth, "dtype", None) == labels.dtype
        return worth if is_done else ops.cast(worth, self.lists.dtype)

    @backend.cached_property
    def _scale(self) -> Any:
        scale_of = None if self._by_label is None else self._by_label.scale_of
        return None if scale_of is None else scale_of(self.lists.highest_labels)


def _require_worthless_others(relevance: Relevance, dtype: str) -> None:
    """Raises if items without a label, which count as 0, would be relevant."""
    if relevance.zero_at_zero:
        return
    others = "where only some items have labels, as all others have the label 0"
    if relevance.is_binary:
        # A number, so the answer is known in a graph too.
        if relevance.function(0.0, None, *relevance.arguments):
            received = f"relevance_threshold={relevance.arguments[0]}"
            raise refused("relevance_threshold", f"be above 0 {others}", received)
        return
    worth = relevance.function(ops.zeros((1, 1), dtype), None, *relevance.arguments)
    backend.require(
        ops.logical_not(ops.any(worth > 0.0)),
        f"`gain_fn` should return 0 for a label of 0 {others}. Received: a function "
        "that returns more",
    )
