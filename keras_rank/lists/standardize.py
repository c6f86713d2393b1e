"""Casts what users pass, and makes lists of it: dense ones, or those of ids."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import (
    LARGEST_WEIGHT,
    enlarged,
    highest,
    limits_of,
    rounded_up,
    size_of,
    with_columns,
    with_last_repeated,
    within_limits,
)
from keras_rank.backends import Tensor, backend
from keras_rank.lists.ids import (
    NO_CANDIDATE,
    are_items,
    are_repeated,
    check_items,
    check_no_matrix,
)
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.inputs import (
    RawBatch,
    check_largest_weight,
    read_ids,
    tied_labels,
    weights_of_lists,
)
from keras_rank.lists.item_lists import DenseLists, SparseLists, TargetLists
from keras_rank.lists.tensors import (
    as_tensor,
    cast_finite,
    ranked_as,
    shape_of,
    wide_or_none,
)

# The smallest sizes that are rounded up to: lists and items.
_FEWEST_LISTS, _FEWEST_ITEMS = 8, 32


def bucket_shapes(given: RawBatch, sparse_labels: bool = False) -> RawBatch:
    """Pads to one of a few shapes, as a program is compiled for each."""
    if not backend.should_bucket(*[x for x in given if x is not None]):
        return given
    lists, items = given.labels.shape[:2]
    if not sparse_labels:
        sizes = rounded_up(lists, _FEWEST_LISTS), rounded_up(items, _FEWEST_ITEMS)
        return _with_shape(given, (*sizes, *given.labels.shape[2:]))
    width = rounded_up(items, 1)
    if items in (0, width) or given.scores.shape[1] in (items, width):
        # `check_no_matrix` asks for as many ids as items.
        return given
    # An id counts once in a list. Only targets, as an additional list would count.
    ids, mask, grades = (
        None if x is None else with_last_repeated(x, width)
        for x in (given.labels, given.mask, given.grades)
    )
    return given._replace(labels=ids, mask=mask, grades=grades)


def _with_shape(given: RawBatch, shape: tuple[int, ...]) -> RawBatch:
    """Pads tensors of the shape of the labels, or with one row per list."""
    labels = given.labels
    if str(labels.dtype).startswith(("bool", "uint")):
        # Which have no -1, that says where there is padding.
        labels = cast_finite(labels, "float32")
    parts = zip((labels, *given[1:]), (-1, 0, 0, 0, 0, 0), strict=True)
    return RawBatch(
        *[None if x is None else enlarged(x, labels.shape, shape, y) for x, y in parts]
    )


class Kind(NamedTuple):
    """What lists are made of what users pass.

    Attributes:
        sparse_labels: whether their labels are sparse.
        dtype: the dtype of labels and weights: float32 or float64.
        k: the number of ranks that count if they are, `None` for all.
    """

    sparse_labels: bool
    dtype: str
    k: int | None = None


def standardize(given: RawBatch, *, kind: Kind) -> DenseLists | SparseLists:
    """Returns lists of a kind."""
    if kind.sparse_labels:
        return sparse_lists(kind.dtype, given, kind.k)
    return dense_lists(kind.dtype, given)


def dense_lists(dtype: str, given: RawBatch) -> DenseLists:
    """Casts what users pass to a metric. `DenseLists.mask` says what is padding.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        given: what users pass.

    Returns:
        `DenseLists`, all of whose tensors have the shape `(batch, list_size)`.
    """
    labels, scores = as_tensor(given.labels), as_tensor(given.scores)
    masks, weights = [given.mask, given.layer_mask], given.weights
    masks = [ops.cast(as_tensor(x), "bool") for x in masks if x is not None]
    mask = functools.reduce(ops.logical_and, masks) if masks else None
    wide = wide_or_none(labels, dtype)
    labels, scores = cast_finite(labels, dtype), ranked_as(scores)
    subtopics = None
    if len(labels.shape) == 3:
        shape = [size_of(labels, axis) for axis in (0, 2, 1)]
        rows = (shape[0] * shape[1], shape[2])
        subtopics = ops.reshape(ops.transpose(labels, (0, 2, 1)), rows)
        # Copied once, into the order of the axes, as they are reshaped later on.
        subtopics = ops.reshape(subtopics, shape)
        # Not every maximum is NaN if an entry is.
        sums = ops.sum(subtopics, axis=1)
        labels, wide = backend.where(ops.isnan(sums), -1.0, highest(subtopics)), None
    has_list_weights = False
    if weights is not None:
        weights = cast_finite(as_tensor(weights), dtype)
        # The weight of a list of one item belongs to the item.
        is_column = len(weights.shape) < 2 or weights.shape[1] == 1
        has_list_weights = is_column and labels.shape[1] != 1
        weights = ops.broadcast_to(weights, ops.shape(labels))
    if labels.shape[1] in (0, None):
        # A position of padding changes no number, and spares every operation
        # the case of an axis of size 0, as one of unknown size may be.
        wide = None if wide is None else ranked_as(wide)
        labels, scores, mask, weights, wide, subtopics = (
            None if x is None else with_columns(x, fill, 1)
            for x, fill in (
                *((labels, -1), (scores, 0), (mask, 0), (weights, 0)),
                *((wide, -1), (subtopics, -1)),
            )
        )
    return DenseLists(labels, scores, mask, weights, wide, subtopics, has_list_weights)


def sparse_lists(dtype: str, given: RawBatch, k: int | None) -> SparseLists:
    """Casts the ids of relevant items, and the scores of a catalogue.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        given: what users pass.
        k: the number of ranks that count, `None` for all.

    Returns:
        `SparseLists`. An id that is given twice in a list counts once.
    """
    ids, scores, mask, weights, labels, layer_mask = map(as_tensor, given)
    items, is_item = size_of(scores, 1), None
    if scores.shape[1] == 0:
        # An item that was not retrieved avoids an axis of size 0.
        scores = ops.pad(ranked_as(scores), [(0, 0), (0, 1)], constant_values=-np.inf)
    scores = ranked_as(scores)
    if layer_mask is not None:
        of_rows = len(layer_mask.shape) == 1
        is_item = ops.cast(layer_mask[:, None] if of_rows else layer_mask, "bool")
        is_item = ops.broadcast_to(is_item, ops.shape(scores))
        scores = backend.where(is_item, scores, -np.inf)
    of_targets = ids, labels, mask, weights, is_item
    lists = _target_lists(*of_targets, argument="y_true", items=items, dtype=dtype)
    return SparseLists(**vars(lists), scores=scores, is_item=is_item, k=k)


def standardize_targets(
    targets: Any, items: int, sample_weight: Any = None, dtype: str = "float32"
) -> tuple[TargetLists, str | None]:
    """Checks and casts the ids of relevant items of a catalogue.

    Args:
        targets: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or
            a dict with the keys `"ids"`, `"labels"` and `"mask"`, or a sparse matrix
            of labels, of shape `(batch, items)`.
        items: the number of items of the catalogue.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
        dtype: the dtype of labels and weights: float32 or float64.

    Returns:
        `TargetLists`, and what is wrong if labels of a list tie. An id that is given
        twice in a list counts once.
    """
    ids, labels, mask, of_labels = read_ids("targets", targets, items)
    if len(ids.shape) != 2:
        expected = "have the shape (batch,) or (batch, targets)"
        raise refused("targets", expected, f"targets.shape={shape_of(ids)}")
    weights = weights_of_lists(sample_weight, ids)
    check_largest_weight(weights)
    lists = backend.enter(
        _target_lists,
        *(ids, labels, mask, weights),
        argument="targets",
        items=items,
        dtype=dtype,
    )
    return lists, tied_labels(of_labels)


def read_targets(argument: str, value: Any) -> Tensor:
    """Returns ids of shape `(batch,)` or `(batch, targets)`.

    The id is below 0 where there is no target: if it is masked, or its label is not
    above 0. With labels, `NO_CANDIDATE` is the id of a target that is not among the
    items.
    """
    *given, _ = read_ids(argument, value, 0)
    return _targets(*map(as_tensor, given))[0]


def _targets(
    ids: Tensor, labels: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Returns ids, below 0 where there is no target, and labels, of any value there."""
    is_float = keras.backend.is_float_dtype(ids.dtype)
    if labels is None and mask is None and not is_float:
        return ids, None
    # A comparison with NaN is False.
    is_target = ids >= 0
    if labels is not None:
        labels = ranked_as(labels)
        is_target = ops.logical_or(is_target, ids == NO_CANDIDATE)
        is_worth = labels >= limits_of(labels.dtype).smallest_normal
        is_target = ops.logical_and(is_target, is_worth)
    if mask is not None:
        is_target = ops.logical_and(is_target, ops.cast(mask, "bool"))
    return backend.where(is_target, ids, -1), labels


def _checked_targets(
    argument: str, items: Tensor | int, ids: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The same, of one target or more. Raises unless they are ids of items."""
    if ids.shape[1] == 0:
        ids, labels = ops.pad(ids, [(0, 0), (0, 1)], constant_values=-1), None
    if labels is None:
        check_no_matrix(argument, ids, items)
    check_items(argument, ids, items)
    return ids, labels


def _target_lists(
    ids: Tensor,
    labels: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    is_item: Tensor | None = None,
    *,
    argument: str,
    items: Tensor | int,
    dtype: str,
) -> TargetLists:
    """Returns lists of the targets whose ids are given in an argument of a user."""
    ids, labels, mask, weights = map(as_tensor, (ids, labels, mask, weights))
    ids, labels = _checked_targets(argument, items, *_targets(ids, labels, mask))
    is_target = ids >= 0 if labels is None else ids != -1
    has_catalogue = True
    # A branch: torch.compile can't make a tensor of a condition on an unknown size.
    if isinstance(items, int) and items == 0:
        has_catalogue = False
    has_items = backend.constant(has_catalogue, is_target)
    has_items = ops.broadcast_to(has_items, (size_of(ids, 0),))
    if ids.shape[1] != 1:
        is_first = ops.logical_not(are_repeated(ids, labels))
        is_target = ops.logical_and(is_target, is_first)
    if weights is not None:
        weights = cast_finite(weights, dtype)
        weights = ops.broadcast_to(weights, (size_of(ids, 0), 1))
        is_weighed = weights >= limits_of(weights.dtype).smallest_normal
        has_items = ops.logical_and(has_items, is_weighed[:, 0])
        is_target = ops.logical_and(is_target, is_weighed)
        weights = backend.minimum(weights, LARGEST_WEIGHT)
        weights = backend.where(is_weighed, weights, 0.0)
    can_be_found = ops.logical_and(is_target, are_items(ids, items))
    if labels is not None:
        can_be_found = ops.logical_and(can_be_found, ids >= 0)
    # Only now, as a large id might change.
    ids = ops.cast(backend.where(can_be_found, ids, 0), "int32")
    if is_item is not None:
        # A target may be padding, and then is none.
        is_known = backend.where(can_be_found, backend.take(is_item, ids), True)
        is_target = ops.logical_and(is_target, is_known)
        can_be_found = ops.logical_and(can_be_found, is_known)
        has_items = ops.logical_and(has_items, ops.any(is_item, axis=1))
    grades, wide = ops.cast(is_target, dtype), None
    if labels is not None:
        wide = wide_or_none(labels, dtype)
        if wide is not None:
            wide = backend.where(is_target, within_limits(wide), 0.0)
        grades = within_limits(cast_finite(labels, dtype))
        grades = backend.where(is_target, grades, 0.0)
    # Without items, one that was not retrieved avoids an axis of size 0.
    items = items if has_catalogue else 1
    return TargetLists(
        grades, wide, is_target, weights, ids, can_be_found, has_items, items
    )
