"""Lists: what users pass, checked, cast and masked, as (batch, list_size) tensors."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank import ragged
from keras_rank.arithmetic import Tensor, at_least, at_most, highest, total, where
from keras_rank.ordering.selection import cond, largest_of, top_values
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
        raw_scores: tensor of shape `(batch, list_size)`.
        raw_mask: boolean tensor of shape `(batch, list_size)`, or `None`.
        raw_weights: tensor of shape `(batch, list_size)`, or `None`.
    """

    raw_labels: Tensor
    raw_scores: Tensor
    raw_mask: Tensor | None = None
    raw_weights: Tensor | None = None

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
            mask = ops.logical_and(mask, self.raw_weights > 0.0)
        return mask

    def labels(self) -> Tensor:
        """The labels, finite, and 0 where there is no item."""
        largest = float(_limits(self.raw_labels).max)
        return where(self.mask(), at_most(self.raw_labels, largest), 0.0)

    def scores(self) -> Tensor:
        """The scores, `-inf` where there is no item, or one that was not retrieved."""
        scores = self.raw_scores
        retrieved = ops.logical_and(self.mask(), scores == scores)
        scores = where(retrieved, scores, float("-inf"))
        # XLA tells -0.0 from 0.0, and flushes denormal numbers to 0 where others don't.
        smallest = float(_limits(scores).smallest_normal)
        return where(ops.abs(scores) < smallest, 0.0, scores)

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
        """Whether there is an item at every position, so that nothing is to be masked.

        In passes that only read: some minima pass over NaN, which a sum shows.
        """
        given, labels = self.given, self.given.raw_labels
        if given.raw_mask is not None or given.raw_weights is not None:
            return ops.all(self.mask)
        if 0 in tuple(labels.shape):
            return ops.all(labels >= 0.0)
        return ops.logical_and(ops.min(labels) >= 0.0, ops.sum(labels) >= 0.0)

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
        return self.sizes > 0.0

    @kept
    def highest_labels(self) -> Tensor:
        def highest_of(labels: Tensor) -> Tensor:
            return at_most(highest(labels, keepdims=True), float(_limits(labels).max))

        return cond(
            self.full,
            lambda: highest_of(self.given.raw_labels),
            lambda: highest_of(self.labels),
        )

    def sum_of(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        return cond(
            self.full,
            lambda: ops.sum(function(self.given.raw_labels), axis=1),
            lambda: super(DenseLists, self).sum_of(function),
        )

    def labels_at(self, positions: Tensor) -> Tensor:
        return self.given.map(
            lambda x: ops.take_along_axis(x, positions, axis=1)
        ).labels()

    def highest_first(self, count: Tensor | int) -> Tensor:
        return self.largest(
            lambda given: where(given.mask(), given.labels(), -1.0),
            self.given.raw_labels,
            count,
        )[0]

    def top_scores(self, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Returns the highest scores of each list, and their positions."""
        return self.largest(Given.scores, self.given.raw_scores, count)

    def largest(
        self, rule: Callable[[Given], Tensor], raw: Tensor, count: Tensor | int
    ) -> tuple[Tensor, Tensor]:
        """Returns the largest of what a rule makes of all items, and their positions.

        Args:
            rule: the rule.
            raw: what the rule makes of items that need no rule, in `full` lists.
            count: how many.
        """
        return largest_of(self.given, rule, raw, self.full, count)

    @property
    def list_size(self) -> Tensor | int:
        """The size of the lists, an int where it is known."""
        return ops.shape(self.given.raw_labels)[1]

    @kept
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given.raw_labels.dtype))

    @property
    def _per_list(self) -> Tensor:
        """Zeros of shape `(batch,)`."""
        return ops.zeros_like(self.given.raw_labels[:, 0])


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
    dtype: str | None = None,
) -> DenseLists:
    """Checks and casts what users pass to a metric, and finds out what is an item.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
        dtype: the dtype of labels and weights, if wider than float32.

    Returns:
        `DenseLists`, all of whose tensors have the shape `(batch, list_size)`.
    """
    labels, mask = _labels_and_mask(y_true)
    labels, scores, mask, weights = ragged.rectangular(
        y_true=labels, y_pred=y_pred, mask=mask, sample_weight=sample_weight
    )
    dtype = "float64" if dtype == "float64" else "float32"
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
        weights = ops.cast(to_tensor("sample_weight", weights), dtype)
        weights = _item_weights(weights, labels)
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
    labels, scores = ops.cast(labels, dtype), _ranked_as(scores)
    return DenseLists(Given(labels, scores, mask, weights))


def standardize_sparse(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    dtype: str | None = None,
) -> SparseLists:
    """Checks and casts the ids of relevant items, and the scores of a catalogue.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1.
        y_pred: scores of shape `(batch, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
        dtype: the dtype of labels and weights, if wider than float32.

    Returns:
        `SparseLists`. An id that is given twice in a list counts once.
    """
    dtype = "float64" if dtype == "float64" else "float32"
    ids, mask = _labels_and_mask(y_true)
    ids = ragged.padded("y_true", ids) if ragged.is_ragged(ids) else ids
    ids, scores = to_tensor("y_true", ids), to_tensor("y_pred", y_pred)
    if len(scores.shape) != 2 or len(ids.shape) not in (1, 2):
        raise ValueError(
            "With `sparse_labels=True`, `y_true` should have the shape (batch,) or "
            "(batch, targets) and `y_pred` the shape (batch, items). Received: "
            f"y_true.shape={_shape(ids)}, y_pred.shape={_shape(scores)}"
        )
    if len(ids.shape) == 1:
        ids = ids[:, None]
    if not _sizes_agree(_shape(ids)[:1], _shape(scores)[:1]):
        raise ValueError(
            "`y_true` and `y_pred` should have as many lists. Received: "
            f"y_true.shape={_shape(ids)}, y_pred.shape={_shape(scores)}"
        )
    if ids.shape[1] == 0:
        ids = ops.pad(ids, [(0, 0), (0, 1)], constant_values=-1)
    is_target = ids >= 0
    if mask is not None:
        mask = ops.reshape(to_tensor("mask", mask), ops.shape(ids))
        is_target = ops.logical_and(is_target, ops.cast(mask, "bool"))
    ids = ops.cast(where(is_target, ids, -1), "int32")
    in_catalogue = ids < ops.shape(scores)[1]
    require(
        ops.all(in_catalogue),
        f"`y_true` should hold ids below the number of items, {scores.shape[1]}. "
        "Received: a larger id",
    )
    earlier = ops.tril(ops.ones_like(ids[:1, :, None] + ids[:1, None, :]), k=-1) > 0
    same = ops.logical_and(ids[:, :, None] == ids[:, None, :], earlier)
    is_target = ops.logical_and(is_target, ops.logical_not(ops.any(same, axis=2)))
    counts, weights = ops.ones_like(ids[:, 0]) > 0, None
    if sample_weight is not None:
        weights = ops.cast(to_tensor("sample_weight", sample_weight), dtype)
        weights = _item_weights(weights, ids[:, :1])
        counts = weights[:, 0] > 0.0
        weights = where(weights > 0.0, at_most(weights, LARGEST_WEIGHT), 0.0)
        is_target = ops.logical_and(is_target, weights > 0.0)
        weights = where(is_target, weights, 0.0)
    return SparseLists(
        targets=ops.cast(is_target, dtype),
        all_scores=_ranked_as(scores),
        is_target=is_target,
        target_weights=weights,
        ids=at_least(where(in_catalogue, ids, 0), 0),
        in_catalogue=in_catalogue,
        counts=counts,
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
    if not ops.is_tensor(value):
        value = _array(value)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not _is_number(dtype):
        raise ValueError(
            f"`{argument}` should hold real numbers. Received: {argument} of "
            f"dtype {dtype}"
        )
    # On NumPy the conversion would bring float64 down to float32.
    return value if ops.is_tensor(value) else ops.convert_to_tensor(value)


def require(condition: Tensor, message: str) -> None:
    """Raises where values can be seen. In compiled code nothing can be raised."""
    try:
        holds = bool(condition)
    except Exception:
        return
    if not holds:
        raise ValueError(message)


def _array(value: Any) -> Any:
    """Converts what NumPy knows to an array, with the precision that it has."""
    try:
        array = np.asarray(value)
    except Exception:
        # A list of symbolic tensors, for one: the backend can stack those.
        return ops.convert_to_tensor(value)
    # An empty Python list has no dtype of its own.
    return array.astype("float32") if array.size == 0 else array


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
    if dtype == "float64":
        return scores
    if dtype == "float32":
        return scores
    if dtype not in ("int32", "uint32", "int64", "uint64"):
        return ops.cast(scores, "float32")
    if isinstance(scores, np.ndarray):
        return scores.astype("float64")
    # JAX has no float64 unless asked for, and would warn of a cast to it.
    widest = ops.convert_to_tensor(np.zeros((), "float64")).dtype
    return ops.cast(scores, keras.backend.standardize_dtype(widest))


def _limits(x: Tensor) -> "np.finfo[Any]":
    return np.finfo(keras.backend.standardize_dtype(x.dtype))
