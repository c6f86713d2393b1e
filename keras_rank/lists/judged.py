"""The relevance of items, computed where it is needed."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import highest, total, where
from keras_rank.arrays.backends import Tensor
from keras_rank.arrays.programs import require
from keras_rank.arrays.selection import largest_values
from keras_rank.arrays.shared import Shared, kept, key_of
from keras_rank.arrays.sorting import Order
from keras_rank.lists.base import Lists, without_denormal
from keras_rank.lists.sparse import TargetLists
from keras_rank.lists.tensors import check_returned, shape_of


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """What finding an item is worth, by its label.

    Two are equal if function and arguments are.

    Attributes:
        function: function of labels and their scale that returns their relevance, 0 or
            more.
        arguments: further arguments of the function.
        grows: whether a higher label is never worth less.
        only_relevant: whether a label of 0 is worth nothing.
        is_binary: whether relevance is boolean, and False for a label of `-inf`.
        scale_of: function of the highest label of each list, of shape `(batch, 1)`,
            that returns the scale. `None` if the label is enough.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    grows: bool
    only_relevant: bool
    is_binary: bool = False
    scale_of: Callable[[Tensor], Any] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Judgement) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.function, *map(key_of, self.arguments)


class Values(Shared):
    """Values of items, for formulas that need only some of them.

    Attributes:
        only_relevant: whether items are known to be worth nothing if their label is 0.
    """

    def __init__(self, values: Tensor, only_relevant: bool = False) -> None:
        self._values, self.only_relevant = values, only_relevant

    def everywhere(self) -> Tensor:
        """The values of all items, of shape `(batch, list_size)`."""
        return self._values

    def by(self, order: Order | None) -> Tensor:
        """The values of the items in an order, or of all items.

        Padding may have any value.
        """
        return self.everywhere() if order is None else order.of(self.everywhere())

    def largest(self, count: Tensor | int) -> Tensor:
        """The largest values of each list, the largest first."""
        return largest_values(self._values, count)

    def are_any(self) -> Tensor:
        """Whether any item of a list has a value above 0, of shape `(batch,)`."""
        return highest(self._values) > 0.0

    def sum(self) -> Tensor:
        """The sum of the values of each list, of shape `(batch,)`."""
        return ops.sum(self._values, axis=1)


class Gains(Values):
    """The relevance of items by their labels, computed only for some of them."""

    def __init__(self, lists: Lists, judgement: Judgement) -> None:
        self._lists, self._judgement = lists, judgement
        self.only_relevant = judgement.only_relevant

    @kept
    def _values(self) -> Tensor:
        return where(self._lists.mask, self._worth(self._lists.labels), 0.0)

    def by(self, order: Order | None) -> Tensor:
        if order is None:
            return self.everywhere()
        return self._worth(self._lists.labels_by(order))

    def largest(self, count: Tensor | int) -> Tensor:
        if not self._judgement.grows:
            return super().largest(count)
        labels = self._lists.highest_first(count)
        # Padding has a label of 0 here.
        worth = self._worth(without_denormal(labels))
        return worth if self.only_relevant else where(labels >= 0.0, worth, 0.0)

    def are_any(self) -> Tensor:
        if not self._judgement.grows:
            return super().are_any()
        are_any = self._is_worth(self._lists.highest_labels)[:, 0]
        if self.only_relevant:
            return are_any
        return ops.logical_and(are_any, self._lists.has_items)

    def sum(self) -> Tensor:
        if not self._judgement.is_binary:
            return super().sum()
        return self._lists.count(self._is_worth, self.only_relevant)

    def _is_worth(self, labels: Tensor) -> Tensor:
        """Whether an item of these labels is worth anything."""
        worth = self._of_labels(labels)
        return worth if self._judgement.is_binary else worth > 0.0

    def _worth(self, labels: Tensor) -> Tensor:
        return ops.cast(self._of_labels(labels), self._lists.dtype)

    def _of_labels(self, labels: Tensor) -> Tensor:
        judgement = self._judgement
        return judgement.function(labels, self._scale, *judgement.arguments)

    @kept
    def _scale(self) -> Any:
        scale_of = self._judgement.scale_of
        return None if scale_of is None else scale_of(self._lists.highest_labels)


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedLists(Shared):
    """Lists with the relevance of their items.

    They also have the attributes of the lists.

    Attributes:
        lists: the lists.
        gains: the relevance of the items, for formulas that need only some of it.
    """

    lists: Lists
    gains: Values

    labels = property(lambda self: self.lists.labels)
    compared_labels = property(lambda self: self.lists.compared_labels)
    scores = property(lambda self: self.lists.scores)
    mask = property(lambda self: self.lists.mask)
    weights = property(lambda self: self.lists.weights)
    sizes = property(lambda self: self.lists.sizes)
    has_items = property(lambda self: self.lists.has_items)
    highest_labels = property(lambda self: self.lists.highest_labels)
    retrieved = property(lambda self: self.lists.retrieved)
    mean_weights = property(lambda self: self.lists.mean_weights)
    dtype = property(lambda self: self.lists.dtype)

    @property
    def relevance(self) -> Tensor:
        """The relevance of the items, 0 where there is none."""
        return self.gains.everywhere()

    @kept
    def weighted_relevance(self) -> Tensor:
        """The relevance of the items times their weights."""
        return self.relevance if self.weights is None else self.relevance * self.weights

    @kept
    def weighted_gains(self) -> Values:
        """The weighted relevance, for formulas that need only some of it."""
        if self.weights is None:
            return self.gains
        return Values(self.weighted_relevance, self.gains.only_relevant)

    @kept
    def number_relevant(self) -> Tensor:
        """The number of relevant items, of shape `(batch,)`, if relevance is binary."""
        # A sum of integers is exact in any order, so it does not need `total`.
        return self.gains.sum()

    @kept
    def relevant_weight(self) -> Tensor:
        """The weights of the relevant items, of shape `(batch,)`, if it is binary."""
        if self.weights is None:
            return self.number_relevant
        return total(self.weighted_relevance)

    @kept
    def has_relevant(self) -> Tensor:
        """Whether a list has relevant items, of shape `(batch,)`."""
        return self.gains.are_any()

    @kept
    def relevant_lists(self) -> Tensor:
        """1 for lists with relevant items and 0 for others, of shape `(batch,)`."""
        return ops.cast(self.has_relevant, self.dtype)

    @kept
    def lists_with_items(self) -> Tensor:
        """1 for lists with items and 0 for those of padding only, `(batch,)`."""
        return ops.cast(self.has_items, self.dtype)

    def fill_empty(self, values: Tensor, empty_value: float | None) -> Tensor:
        """Returns the values, with `empty_value` for lists without relevant items.

        A list that is left out of the mean has the value NaN: a list of padding only,
        or one without relevant items if `empty_value` is `None`.
        """
        nothing = ops.zeros_like(values) + float("nan")
        empty = nothing if empty_value is None else ops.zeros_like(values) + empty_value
        values = where(self.has_relevant, values, empty)
        return where(self.has_items, values, nothing)


def judge(lists: Lists, judgement: Judgement | Tensor) -> JudgedLists:
    """Returns the lists with the relevance of their items, as given or by label."""
    if isinstance(judgement, Judgement):
        if isinstance(lists, TargetLists):
            _require_worthless_others(judgement, lists.dtype)
        return JudgedLists(lists, Gains(lists, judgement))
    check_returned(
        judgement,
        lists.labels,
        lambda: (
            "`relevance` should return a number for each item, of shape "
            f"{shape_of(lists.labels)}"
        ),
    )
    relevance = where(lists.mask, ops.cast(judgement, lists.dtype), 0.0)
    return JudgedLists(lists, Values(relevance))


def _require_worthless_others(judgement: Judgement, dtype: str) -> None:
    """Raises if items without a label, which count as 0, would be relevant."""
    if judgement.only_relevant:
        return
    others = "where only some items have labels, as all others have the label 0"
    if judgement.is_binary:
        # A number, so the answer is known in a graph too.
        if judgement.function(0.0, None, *judgement.arguments):
            raise ValueError(
                f"`relevance_threshold` should be above 0 {others}. Received: "
                f"relevance_threshold={judgement.arguments[0]}"
            )
        return
    worth = judgement.function(ops.zeros((1, 1), dtype), None, *judgement.arguments)
    require(
        ops.logical_not(ops.any(worth > 0.0)),
        f"`gain_fn` should return 0 for a label of 0 {others}. Received: a function "
        "that returns more",
    )
