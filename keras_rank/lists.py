"""Lists: what users pass, checked, cast and masked, as (batch, list_size) tensors."""

import dataclasses
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank import ragged
from keras_rank.arithmetic import Tensor, at_least, at_most, highest, total, where
from keras_rank.ordering.selection import (
    Selection,
    candidates,
    cond,
    is_long,
    largest_of,
    none_below_zero,
    top_values,
)
from keras_rank.shared import Shared, kept

# Weights are cut here and gains at `LARGEST_GAIN`, so that sums of their products
# stay within float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64


class Lists(Shared):
    """A batch of lists of items, as every formula sees it.

    Attributes:
        labels: tensor of shape `(batch, list_size)`. 0 where there is no item.
        scores: tensor of shape `(batch, list_size)`. `-inf` where there is no
            item, or one that was not retrieved.
        mask: boolean tensor of shape `(batch, list_size)`. Where the items are.
        weights: tensor of shape `(batch, list_size)`, 0 where there is no item,
            or `None` where every item weighs 1.
        sizes: tensor of shape `(batch,)`. The number of items of each list.
        has_items: boolean tensor of shape `(batch,)`. Whether a list has items.
        highest_labels: tensor of shape `(batch, 1)`. The highest label of each list.
        dtype: the dtype of labels, weights and values.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor
    weights: Tensor | None
    sizes: Tensor
    has_items: Tensor
    highest_labels: Tensor
    dtype: Any

    def sum_of(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the sum of a function of the labels, of shape `(batch,)`."""
        values = where(self.mask, function(self.labels), 0.0)
        return ops.sum(values, axis=1)

    def labels_at(self, positions: Tensor) -> Tensor:
        """Returns the labels of the items at the positions."""
        raise NotImplementedError

    def highest_first(self, count: Tensor | int) -> Tensor:
        """Returns the highest labels of each list, below 0 where there is no item."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Given:
    """What was given for items, and the rules of what it means.

    The rules look at each item alone, so that they may be applied to whole lists, or
    to the few items that matter.

    Attributes:
        raw_labels: tensor of shape `(batch, list_size)`.
        raw_scores: tensor of shape `(batch, list_size)`, or `None` if not asked for.
        raw_mask: boolean tensor of shape `(batch, list_size)`, or `None`.
        raw_weights: tensor of shape `(batch, list_size)`, or `None`.
    """

    raw_labels: Tensor
    raw_scores: Tensor | None
    raw_mask: Tensor | None = None
    raw_weights: Tensor | None = None

    @property
    def is_by_label(self) -> bool:
        """Whether the labels alone tell where there are items."""
        return self.raw_mask is None and self.raw_weights is None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Given":
        """Returns a function of each of the tensors."""
        tensors = (self.raw_labels, self.raw_scores, self.raw_mask, self.raw_weights)
        return Given(*(None if x is None else function(x) for x in tensors))

    def mask(self) -> Tensor:
        """Whether there is an item."""
        # A comparison with NaN is False: a NaN label or weight makes padding.
        mask = self.raw_labels >= 0.0
        if self.raw_mask is not None:
            mask = ops.logical_and(mask, self.raw_mask)
        if self.raw_weights is not None:
            tiny = _smallest_normal(self.raw_weights)
            mask = ops.logical_and(mask, self.raw_weights >= tiny)
        return mask

    def labels(self, no_item: float = 0.0) -> Tensor:
        """The labels, finite, and 0 or another number where there is no item."""
        return where(self.mask(), _within_limits(self.raw_labels), no_item)

    def scores(self) -> Tensor:
        """The scores, `-inf` where there is no item, or one that was not retrieved."""
        scores = self.raw_scores
        retrieved = ops.logical_and(self.mask(), scores == scores)
        scores = where(retrieved, scores, float("-inf"))
        # XLA tells -0.0 from 0.0, and some backends take denormal numbers for 0.
        return where(ops.abs(scores) < _smallest_normal(scores), 0.0, scores)

    def weights(self) -> Tensor | None:
        """The weights, 0 where there is no item, `None` where every item weighs 1."""
        if self.raw_weights is None:
            return None
        return where(self.mask(), at_most(self.raw_weights, LARGEST_WEIGHT), 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A batch of lists with a label and a score for every item.

    Long lists are not copied to mask them: what is computed of all items is computed
    where it is asked for, and in the shorter way where there is nothing to mask.

    Attributes:
        given: labels, scores, mask and weights as they were given.
    """

    given: Given

    labels = kept(lambda self: self.given.labels())
    scores = kept(lambda self: self.given.scores())
    mask = kept(lambda self: self.given.mask())
    weights = kept(lambda self: self.given.weights())

    @kept
    def full(self) -> Tensor:
        """Whether there is an item at every position: nothing has to be masked."""
        given, labels = self.given, self.given.raw_labels
        if not given.is_by_label or 0 in tuple(labels.shape):
            return ops.all(self.mask)
        return none_below_zero(labels)

    @kept
    def sizes(self) -> Tensor:
        def all_positions() -> Tensor:
            list_size = ops.cast(ops.shape(self.given.raw_labels)[1], self.dtype)
            return self._per_list + list_size

        def items() -> Tensor:
            return ops.sum(ops.cast(self.mask, self.dtype), axis=1)

        return cond(self.full, all_positions, items)

    @kept
    def has_items(self) -> Tensor:
        if self.given.is_by_label:
            return self._highest_raw_labels[:, 0] >= 0.0
        return self.sizes > 0.0

    @kept
    def highest_labels(self) -> Tensor:
        if not self.given.is_by_label:
            return highest(self.labels, keepdims=True)
        return _within_limits(self._highest_raw_labels)

    @kept
    def _highest_raw_labels(self) -> Tensor:
        """The highest label of each list, below 0 where there is no item."""
        labels = self.given.raw_labels
        maxima = highest(labels, keepdims=True)
        return cond(
            ops.any(ops.isnan(maxima)),
            lambda: highest(where(labels >= 0.0, labels, -1.0), keepdims=True),
            lambda: maxima,
        )

    @property
    def _per_list(self) -> Tensor:
        """Zeros of shape `(batch,)`."""
        return ops.zeros_like(self.given.raw_labels[:, 0])

    def sum_of(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return cond(
            self.full,
            lambda: ops.sum(function(self.given.raw_labels), axis=1),
            lambda: super(DenseLists, self).sum_of(function),
        )

    def labels_at(self, positions: Tensor) -> Tensor:
        there = self._judgements.map(
            lambda x: ops.take_along_axis(x, positions, axis=1)
        )
        return there.labels()

    def highest_first(self, count: Tensor | int) -> Tensor:
        given = self.given
        selection = Selection(
            given.raw_labels, self._judgements, lambda given: given.labels(no_item=-1.0)
        )
        if not given.is_by_label:
            selection = dataclasses.replace(
                selection,
                is_full=self.full,
                masked=lambda: where(self.mask, given.raw_labels, float("-inf")),
            )
        return largest_of(selection, count)[0]

    @property
    def _judgements(self) -> Given:
        """All that is given but the scores."""
        return dataclasses.replace(self.given, raw_scores=None)

    def top_scores(self, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Returns the highest scores of each list, and their positions."""
        return largest_of(self._by_score, count)

    def from_score(
        self,
        lowest: Tensor,
        count: Tensor | int,
        function: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Returns a function of the items that score so high, or higher.

        Args:
            lowest: tensor of shape `(batch, 1)`. The lowest score that matters.
            count: about the number of such items in each list.
            function: function of the positions and the scores of items, of shape
                `(batch, some)`. It is given all items that matter, and others.
        """

        def of_all_items() -> Tensor:
            positions = ops.arange(self.list_size, dtype="int32")
            shape = ops.shape(self.scores)
            return function(ops.broadcast_to(positions, shape), self.scores)

        spare = 4 * count
        if not is_long(self.given.raw_scores, spare):
            return of_all_items()
        scores, positions, highest_other = candidates(self._by_score, spare)
        suffices = ops.logical_or(highest_other < lowest, lowest == float("-inf"))
        return cond(
            ops.all(suffices), lambda: function(positions, scores), of_all_items
        )

    @property
    def _by_score(self) -> Selection:
        raw = self.given.raw_scores
        return Selection(
            raw,
            self.given,
            Given.scores,
            is_full=self.full,
            masked=lambda: where(self.mask, raw, float("-inf")),
        )

    def item_numbers(self, positions: Tensor) -> Tensor:
        """Returns the numbers of the items at the positions: 1, 2, ... in each list."""

        def counted() -> Tensor:
            numbers = ops.cumsum(ops.cast(self.mask, "int32"), axis=1)
            return ops.take_along_axis(numbers, positions, axis=1)

        return cond(self.full, lambda: positions + 1, counted)

    @property
    def list_size(self) -> Tensor | int:
        """The size of the lists, an int where it is known."""
        return ops.shape(self.given.raw_labels)[1]

    @kept
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given.raw_labels.dtype))


@dataclasses.dataclass(frozen=True, eq=False)
class SparseLists(Lists):
    """A batch of lists over one catalogue, of which only the relevant items are told.

    `labels`, `mask` and `weights` are those of the targets, of shape
    `(batch, targets)`; `scores` are those of all items, as given.

    Attributes:
        targets: tensor of shape `(batch, targets)`. 1 where there is a target.
        all_scores: tensor of shape `(batch, items)`.
        is_target: boolean tensor of shape `(batch, targets)`.
        target_weights: tensor of shape `(batch, targets)`, or `None`.
        ids: int tensor of shape `(batch, targets)`. The position of each target.
        in_catalogue: boolean tensor of the same shape. Whether there is such an item.
        counts: boolean tensor of shape `(batch,)`. Whether the list counts at all.
    """

    targets: Tensor
    all_scores: Tensor
    is_target: Tensor
    target_weights: Tensor | None
    ids: Tensor
    in_catalogue: Tensor
    counts: Tensor

    labels = property(lambda self: self.targets)
    scores = property(lambda self: self.all_scores)
    mask = property(lambda self: self.is_target)
    weights = property(lambda self: self.target_weights)
    has_items = property(lambda self: self.counts)
    highest_labels = kept(lambda self: highest(self.targets, keepdims=True))
    dtype = property(lambda self: keras.backend.standardize_dtype(self.targets.dtype))

    def labels_at(self, positions: Tensor) -> Tensor:
        return ops.take_along_axis(self.targets, positions, axis=1)

    def highest_first(self, count: Tensor | int) -> Tensor:
        return top_values(self.targets, count)

    @kept
    def sizes(self) -> Tensor:
        size = ops.cast(ops.shape(self.scores)[1], self.dtype)
        return size * ops.ones_like(self.labels[:, 0])


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What finding an item is worth, by its label.

    Attributes:
        function: function of labels and of the highest label of their list, of shape
            `(batch, 1)`, to what they are worth, 0 or more.
        arguments: further arguments of the function.
        grows: whether a higher label is never worth less.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    grows: bool


class Values:
    """Values of items, for formulas that need those of some."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def everywhere(self) -> Tensor:
        """The values of all items, of shape `(batch, list_size)`."""
        return self._values

    def at(self, positions: Tensor) -> Tensor:
        """The values of the items at the positions, of the shape of these."""
        return ops.take_along_axis(self._values, positions, axis=1)

    def largest(self, count: Tensor | int) -> Tensor:
        """The largest values of each list, the largest first."""
        return top_values(self._values, count)

    def highest(self) -> Tensor:
        """The largest value of each list, of shape `(batch,)`."""
        return highest(self._values)

    def sum(self) -> Tensor:
        """The sum of the values of each list, of shape `(batch,)`."""
        return ops.sum(self._values, axis=1)


class Gains(Values):
    """What the items of lists are worth by their labels: most need not be computed."""

    def __init__(self, lists: Lists, judgement: Judgement) -> None:
        self._lists, self._judgement = lists, judgement

    @kept
    def _values(self) -> Tensor:
        return where(self._lists.mask, self._worth(self._lists.labels), 0.0)

    def at(self, positions: Tensor) -> Tensor:
        return self._worth(self._lists.labels_at(positions))

    def largest(self, count: Tensor | int) -> Tensor:
        if not self._judgement.grows:
            return super().largest(count)
        labels = self._lists.highest_first(count)
        return where(labels >= 0.0, self._worth(labels), 0.0)

    def highest(self) -> Tensor:
        if not self._judgement.grows:
            return super().highest()
        gains = self._worth(self._lists.highest_labels)
        return where(self._lists.has_items, gains[:, 0], 0.0)

    def sum(self) -> Tensor:
        return self._lists.sum_of(self._worth)

    def _worth(self, labels: Tensor) -> Tensor:
        highest_labels, arguments = (
            self._lists.highest_labels,
            self._judgement.arguments,
        )
        worth = self._judgement.function(labels, highest_labels, *arguments)
        return ops.cast(worth, self._lists.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedLists(Shared):
    """Lists with the relevance of their items: what finding one is worth.

    They have the attributes of the lists too.

    Attributes:
        lists: the lists.
        gains: the relevance of the items, for formulas that need that of some.
    """

    lists: Lists
    gains: Values

    labels = property(lambda self: self.lists.labels)
    scores = property(lambda self: self.lists.scores)
    mask = property(lambda self: self.lists.mask)
    weights = property(lambda self: self.lists.weights)
    sizes = property(lambda self: self.lists.sizes)
    has_items = property(lambda self: self.lists.has_items)

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
        """The weighted relevance of the items, for formulas that need that of some."""
        return self.gains if self.weights is None else Values(self.weighted_relevance)

    @kept
    def number_relevant(self) -> Tensor:
        """The number of relevant items, of shape `(batch,)`, if relevance is binary."""
        # The sum of whole numbers is exact in any order, unlike those for `total`.
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
        return self.gains.highest() > 0.0

    def fill_empty(self, values: Tensor, empty_value: float | None) -> Tensor:
        """Returns the values, with what lists without relevant items score.

        A list that is left out of the mean has the value NaN: one of padding only,
        or any without relevant items where `empty_value` is `None`.
        """
        nothing = ops.zeros_like(values) + float("nan")
        empty = nothing if empty_value is None else ops.zeros_like(values) + empty_value
        values = where(self.has_relevant, values, empty)
        return where(self.has_items, values, nothing)


def judge(lists: Lists, judgement: Judgement | Tensor) -> JudgedLists:
    """Returns the lists with the relevance of their items, as given or by label."""
    if isinstance(judgement, Judgement):
        return JudgedLists(lists, Gains(lists, judgement))
    relevance = where(lists.mask, ops.cast(judgement, lists.dtype), 0.0)
    return JudgedLists(lists, Values(relevance))


def standardize(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    dtype: str = "float32",
) -> DenseLists:
    """Checks and casts what users pass to a metric, and finds out what is an item.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
        dtype: the dtype of labels and weights: float32 or float64.

    Returns:
        `DenseLists`, all of whose tensors have the shape `(batch, list_size)`.
    """
    labels, mask = _labels_and_mask(y_true)
    labels, scores, mask, weights = ragged.rectangular(
        y_true=labels, y_pred=y_pred, mask=mask, sample_weight=sample_weight
    )
    labels = to_tensor("y_true", labels)
    scores = to_tensor("y_pred", scores)
    single_list = len(labels.shape) == 1
    if len(labels.shape) not in (1, 2):
        raise ValueError(
            "`y_true` should have the shape (list_size,) or (batch, list_size). "
            f"Received: y_true.shape={_shape(labels)}"
        )
    _require_same_shape("y_pred", scores, labels)
    if mask is not None:
        mask = ops.cast(to_tensor("mask", mask), "bool")
        _require_same_shape("mask", mask, labels)
    if weights is not None:
        weights = _cast(to_tensor("sample_weight", weights), dtype)
        weights = _item_weights(weights, labels)
    labels, scores = _cast(labels, dtype), _ranked_as(scores)
    if single_list:
        labels, scores, mask, weights = (
            None if x is None else x[None] for x in (labels, scores, mask, weights)
        )
    if labels.shape[1] == 0:
        # One position of padding changes no number, and spares every operation
        # the case of an axis of size 0.
        labels, scores, mask, weights = (
            None if x is None else ops.pad(x, [(0, 0), (0, 1)], constant_values=fill)
            for x, fill in ((labels, -1), (scores, 0), (mask, 0), (weights, 0))
        )
    return DenseLists(Given(labels, scores, mask, weights))


def standardize_sparse(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    dtype: str = "float32",
) -> SparseLists:
    """Checks and casts the ids of relevant items, and the scores of a catalogue.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1.
        y_pred: scores of shape `(batch, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
        dtype: the dtype of labels and weights: float32 or float64.

    Returns:
        `SparseLists`. An id that is given twice in a list counts once.
    """
    ids, mask = _labels_and_mask(y_true)
    ids, mask = ragged.rectangular(y_true=ids, mask=mask)
    ids, scores = to_ids("y_true", ids), to_tensor("y_pred", y_pred)
    if len(scores.shape) != 2 or len(ids.shape) not in (1, 2):
        raise ValueError(
            "With `sparse_labels=True`, `y_true` should have the shape (batch,) or "
            "(batch, targets) and `y_pred` the shape (batch, items). Received: "
            f"y_true.shape={_shape(ids)}, y_pred.shape={_shape(scores)}"
        )
    if mask is not None:
        mask = to_tensor("mask", mask)
        _require_same_shape("mask", mask, ids)
    if len(ids.shape) == 1:
        ids, mask = (None if x is None else x[:, None] for x in (ids, mask))
    if not _sizes_agree(_shape(ids)[:1], _shape(scores)[:1]):
        raise ValueError(
            "`y_true` and `y_pred` should have as many lists. Received: "
            f"y_true.shape={_shape(ids)}, y_pred.shape={_shape(scores)}"
        )
    if ids.shape[1] == 0:
        ids, mask = ops.pad(ids, [(0, 0), (0, 1)], constant_values=-1), None
    is_target = ids >= 0
    if mask is not None:
        is_target = ops.logical_and(is_target, ops.cast(mask, "bool"))
    ids = where(is_target, ids, -1)
    in_catalogue = are_items("y_true", ids, scores)
    counts, weights = ops.ones_like(is_target[:, :1]), None
    if scores.shape[1] == 0:
        # One item that was not retrieved spares every operation an axis of size 0.
        scores = ops.pad(_ranked_as(scores), [(0, 0), (0, 1)], constant_values=-np.inf)
        counts = ops.zeros_like(counts)
    earlier = ops.tril(ops.ones_like(ids[:1, :, None] + ids[:1, None, :]), k=-1) > 0
    same = ops.logical_and(ids[:, :, None] == ids[:, None, :], earlier)
    is_target = ops.logical_and(is_target, ops.logical_not(ops.any(same, axis=2)))
    if sample_weight is not None:
        weights = _cast(to_tensor("sample_weight", sample_weight), dtype)
        weights = _item_weights(weights, ids[:, :1])
        is_weighed = weights >= _smallest_normal(weights)
        counts = ops.logical_and(counts, is_weighed)
        is_target = ops.logical_and(is_target, is_weighed)
        weights = where(is_target, at_most(weights, LARGEST_WEIGHT), 0.0)
    return SparseLists(
        targets=ops.cast(is_target, dtype),
        all_scores=_ranked_as(scores),
        is_target=is_target,
        target_weights=weights,
        # Only now, as a large id might become another one.
        ids=ops.cast(at_least(where(in_catalogue, ids, 0), 0), "int32"),
        in_catalogue=in_catalogue,
        counts=counts[:, 0],
    )


def _labels_and_mask(y_true: Any) -> tuple[Any, Any]:
    if not isinstance(y_true, dict):
        return y_true, None
    unknown = sorted(str(key) for key in y_true if key not in ("labels", "mask"))
    if unknown or "labels" not in y_true:
        raise ValueError(
            '`y_true` should be labels, or a dict with the keys "labels" and "mask" '
            f"(optional). Received: y_true with the keys {list(y_true)}"
            + (f", of which {unknown} are unknown" if unknown else "")
        )
    return y_true["labels"], y_true.get("mask")


def to_tensor(argument: str, value: Any) -> Tensor:
    """Converts to a tensor of numbers, or says which argument is none."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"`{argument}` should be an array without a mask of its own: give it in "
            '`y_true`, as {"labels": ..., "mask": ...}. Received: a masked array'
        )
    if ragged.is_ragged(value):
        raise _uneven_error(argument, value)
    if not ops.is_tensor(value):
        value = _array(argument, value)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not _is_number(dtype):
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of "
            f"dtype {dtype}"
        )
    if isinstance(value, np.ndarray):
        value = _within_backend(value)
    # On NumPy the conversion would bring float64 down to float32.
    return value if ops.is_tensor(value) else ops.convert_to_tensor(value)


def to_ids(argument: str, value: Any) -> Tensor:
    """Converts to a tensor of ids, in a dtype that holds the number of items too."""
    ids = to_tensor(argument, value)
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if dtype == "bool":
        raise ValueError(
            f"`{argument}` should hold ids of items. Received: {argument} of dtype bool"
        )
    if dtype in ("float64", "int64"):
        return ids
    if keras.backend.is_float_dtype(dtype):
        return ops.cast(ids, "float32")
    return ops.cast(ids, _widest("int64") if dtype in ("uint32", "uint64") else "int32")


def are_items(argument: str, ids: Tensor, scores: Tensor) -> Tensor:
    """Whether ids are those of items, as they should where values can be seen."""
    are_below = ids < ops.cast(ops.shape(scores)[1], ids.dtype)
    require(
        ops.all(are_below),
        f"`{argument}` should hold ids below the number of items, {scores.shape[1]}. "
        "Received: a larger id",
    )
    if not keras.backend.is_float_dtype(ids.dtype):
        return are_below
    are_whole = ids == ops.floor(ids)
    require(
        ops.all(are_whole),
        f"`{argument}` should hold whole numbers as ids. Received: a fraction",
    )
    return ops.logical_and(are_below, are_whole)


def require(condition: Tensor, message: str) -> None:
    """Raises where values can be seen. In compiled code nothing can be raised."""
    try:
        holds = bool(condition)
    except Exception:
        return
    if not holds:
        raise ValueError(message)


def _array(argument: str, value: Any) -> Any:
    """Converts what NumPy knows to an array, with the precision that it has."""
    try:
        array = np.asarray(value)
    except Exception:
        # A list of symbolic tensors, for one: the backend can stack those.
        try:
            return ops.convert_to_tensor(value)
        except Exception as error:
            raise _uneven_error(argument, value) from error
    # An empty Python list has no dtype of its own.
    return array.astype("float32") if array.size == 0 else array


def _uneven_error(argument: str, value: Any) -> ValueError:
    return ValueError(
        f"`{argument}` should hold numbers, in rows of the same length. "
        f"Received: {argument}={reprlib.repr(value)}"
    )


def _within_backend(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Casts to a dtype that the backend has, which would wrap round large numbers."""
    if array.dtype in ("uint32", "uint64"):
        array = array.astype("int64" if _fits(array, "int64") else "float64")
    if ops.is_tensor(array):
        return array
    if array.dtype == "int64" and _widest("int64") != "int64":
        array = array.astype("int32" if _fits(array, "int32") else "float64")
    if array.dtype == "float64" and _widest("float64") != "float64":
        array = _cast(array, "float32")
    return array


def _fits(array: np.ndarray[Any, Any], dtype: str) -> bool:
    limits = np.iinfo(dtype)
    return bool(np.all((array >= limits.min) & (array <= limits.max)))


def _widest(dtype: str) -> str:
    """What a dtype of 64 bits becomes: JAX has none of these unless asked for."""
    tensor = ops.convert_to_tensor(np.zeros((), dtype))
    name: str = keras.backend.standardize_dtype(tensor.dtype)
    return name


def _cast(x: Tensor, dtype: str) -> Tensor:
    """Casts, and keeps finite what is: NumPy would warn that it becomes infinite."""
    if isinstance(x, np.ndarray) and x.dtype == "float64" and dtype == "float32":
        limit = np.finfo(dtype).max
        x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
    return ops.cast(x, dtype)


def _is_number(dtype: Any) -> bool:
    try:
        name = keras.backend.standardize_dtype(dtype)
    except ValueError:
        return False
    return bool(name.startswith(("float", "bfloat", "int", "uint", "bool")))


def _shape(x: Tensor) -> tuple[int | None, ...]:
    return tuple(x.shape)


def _sizes_agree(sizes: Sequence[int | None], others: Sequence[int | None]) -> bool:
    """Whether two shapes may be the same: a size unknown in a graph may be any."""
    return len(sizes) == len(others) and all(
        a is None or b is None or a == b for a, b in zip(sizes, others, strict=True)
    )


def _require_same_shape(argument: str, x: Tensor, labels: Tensor) -> None:
    if not _sizes_agree(_shape(x), _shape(labels)):
        raise ValueError(
            f"`{argument}` should have the same shape as `y_true`. Received: "
            f"{argument}.shape={_shape(x)}, y_true.shape={_shape(labels)}"
        )


def _item_weights(weights: Tensor, labels: Tensor) -> Tensor:
    """Gives each item its own weight or that of its list."""
    shape, rank = _shape(labels), len(weights.shape)
    if rank == 1 and len(shape) == 2:
        weights = weights[:, None]
    accepted = [(), shape] if len(shape) == 1 else [(), (shape[0], 1), shape]
    if not any(_sizes_agree(_shape(weights), sizes) for sizes in accepted):
        expected = (
            "a number or have the same shape as `y_true`"
            if len(shape) == 1
            else "a number, have one weight per list, of shape (batch,) or (batch, 1), "
            "or have the same shape as `y_true`, (batch, list_size)"
        )
        received = _shape(weights)[:rank]
        raise ValueError(
            f"`sample_weight` should be {expected}. Received: "
            f"sample_weight.shape={received}, y_true.shape={shape}"
        )
    return ops.broadcast_to(weights, ops.shape(labels))


def _ranked_as(scores: Tensor) -> Tensor:
    """Casts scores up to float32 or float64, so that no tie is made by rounding."""
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if dtype in ("float32", "float64"):
        return scores
    if dtype not in ("int32", "uint32", "int64", "uint64"):
        return ops.cast(scores, "float32")
    if isinstance(scores, np.ndarray):
        return scores.astype("float64")
    return ops.cast(scores, _widest("float64"))


def _within_limits(labels: Tensor) -> Tensor:
    """Cuts infinite labels, and takes denormal ones for 0, as some backends do."""
    finite = at_most(labels, float(_limits(labels).max))
    return where(labels >= _smallest_normal(labels), finite, 0.0)


def _limits(x: Tensor) -> "np.finfo[Any]":
    return np.finfo(keras.backend.standardize_dtype(x.dtype))


def _smallest_normal(x: Tensor) -> float:
    return float(_limits(x).smallest_normal)
