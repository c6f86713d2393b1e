"""Casts of batches to the dtypes of metrics, as dense lists or lists of targets."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import (
    LARGEST_WEIGHT,
    append_columns,
    axis_size,
    clip_labels,
    float_limits,
    max_over_axis,
    pad_axes,
    repeat_last_column,
    round_up_size,
)
from keras_rank.backends import Tensor, backend
from keras_rank.lists.ids import (
    NO_CANDIDATE,
    check_items,
    check_no_matrix,
    is_repeated,
    is_valid_id,
)
from keras_rank.lists.input_arrays import value_error
from keras_rank.lists.inputs import (
    RawBatch,
    check_largest_weight,
    describe_tied_labels,
    read_ids,
    read_list_weights,
)
from keras_rank.lists.item_lists import DenseLists, SparseLists, TargetLists
from keras_rank.lists.tensors import (
    as_tensor,
    cast_finite,
    static_shape,
    upcast,
    wide_or_none,
)

# The smallest numbers of lists and of items that batches are padded to.
_MIN_LISTS, _MIN_ITEMS = 8, 32


def bucket_shapes(batch: RawBatch, sparse_labels: bool = False) -> RawBatch:
    """Pads a batch to one of a few shapes.

    A program is compiled for each shape, so fewer shapes need fewer programs.
    """
    if not backend.should_bucket(*[x for x in batch if x is not None]):
        return batch
    lists, items = batch.labels.shape[:2]
    if not sparse_labels:
        sizes = round_up_size(lists, _MIN_LISTS), round_up_size(items, _MIN_ITEMS)
        return _pad_to_shape(batch, (*sizes, *batch.labels.shape[2:]))
    width = round_up_size(items, 1)
    if items in (0, width) or batch.scores.shape[1] in (items, width):
        # `check_no_matrix` compares the number of ids with the number of items, so the
        # number of ids must not become, or cease to be, the number of items.
        return batch
    # Targets can be repeated, as duplicates of an id count once in a list. Lists are
    # not padded, as every list counts.
    ids, mask, grades = (
        None if x is None else repeat_last_column(x, width)
        for x in (batch.labels, batch.mask, batch.grades)
    )
    return batch._replace(labels=ids, mask=mask, grades=grades)


def _pad_to_shape(batch: RawBatch, shape: tuple[int, ...]) -> RawBatch:
    """Pads tensors that have the shape of the labels, or one row per list."""
    labels = batch.labels
    if str(labels.dtype).startswith(("bool", "uint")):
        # Booleans and unsigned integers can't represent -1, the label of padding.
        labels = cast_finite(labels, "float32")
    parts = zip((labels, *batch[1:]), (-1, 0, 0, 0, 0, 0, 0), strict=True)
    return RawBatch(
        *[
            None if x is None else pad_axes(x, labels.shape, shape, padding)
            for x, padding in parts
        ]
    )


class Kind(NamedTuple):
    """The kind of lists that `standardize` makes.

    Attributes:
        sparse_labels: whether labels are ids of relevant items.
        dtype: the dtype of labels and weights: float32 or float64.
        k: the cutoff of lists with sparse labels, `None` for all ranks.
    """

    sparse_labels: bool
    dtype: str
    k: int | None = None


def standardize(batch: RawBatch, *, kind: Kind) -> DenseLists | SparseLists:
    """Converts a batch to lists of a kind."""
    if kind.sparse_labels:
        return sparse_lists(kind.dtype, batch, kind.k)
    return dense_lists(kind.dtype, batch)


def dense_lists(dtype: str, batch: RawBatch) -> DenseLists:
    """Casts a batch to dense lists.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        batch: the converted arguments of a metric.

    Returns:
        `DenseLists`, all of whose tensors have the shape `(batch, list_size)`. Their
        property `mask` is False at padding.
    """
    labels, scores = as_tensor(batch.labels), as_tensor(batch.scores)
    masks, weights = [batch.mask, batch.layer_mask], batch.weights
    masks = [ops.cast(as_tensor(x), "bool") for x in masks if x is not None]
    mask = functools.reduce(ops.logical_and, masks) if masks else None
    wide = wide_or_none(labels, dtype)
    labels, scores = cast_finite(labels, dtype), upcast(scores)
    subtopics = None
    if len(labels.shape) == 3:
        shape = [axis_size(labels, axis) for axis in (0, 2, 1)]
        rows = (shape[0] * shape[1], shape[2])
        subtopics = ops.reshape(ops.transpose(labels, (0, 2, 1)), rows)
        # The intermediate reshape copies the transposed tensor once, so later reshapes
        # need no copies.
        subtopics = ops.reshape(subtopics, shape)
        # The maximum ignores NaN on some backends, so NaN is detected in the sum.
        sums = ops.sum(subtopics, axis=1)
        labels, wide = (
            backend.where(ops.isnan(sums), -1.0, max_over_axis(subtopics)),
            None,
        )
    if weights is not None:
        weights = cast_finite(as_tensor(weights), dtype)
        weights = ops.broadcast_to(weights, ops.shape(labels))
    if labels.shape[1] in (0, None):
        # A column of padding changes no result, and no operation has to handle an axis
        # of size 0. An axis of unknown size may have this size.
        wide = None if wide is None else upcast(wide)
        labels, scores, mask, weights, wide, subtopics = (
            None if x is None else append_columns(x, fill, 1)
            for x, fill in (
                *((labels, -1), (scores, 0), (mask, 0), (weights, 0)),
                *((wide, -1), (subtopics, -1)),
            )
        )
    return DenseLists(
        *(labels, scores, mask, weights, wide, subtopics, batch.list_weights)
    )


def sparse_lists(dtype: str, batch: RawBatch, k: int | None) -> SparseLists:
    """Casts the ids of relevant items, and the scores of a catalogue.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        batch: the converted arguments of a metric.
        k: the cutoff, `None` for all ranks.

    Returns:
        `SparseLists`. Duplicates of an id in a list count once.
    """
    ids, scores, mask, weights, labels, layer_mask = map(as_tensor, batch[:6])
    items, is_item = axis_size(scores, 1), None
    if scores.shape[1] == 0:
        # An added item without a rank avoids an axis of size 0.
        scores = ops.pad(upcast(scores), [(0, 0), (0, 1)], constant_values=-np.inf)
    scores = upcast(scores)
    if layer_mask is not None:
        is_list_mask = len(layer_mask.shape) == 1
        is_item = ops.cast(layer_mask[:, None] if is_list_mask else layer_mask, "bool")
        is_item = ops.broadcast_to(is_item, ops.shape(scores))
        scores = backend.where(is_item, scores, -np.inf)
    target_tensors = ids, labels, mask, weights, is_item
    lists = _make_target_lists(
        *target_tensors, argument="y_true", items=items, dtype=dtype
    )
    return SparseLists(**vars(lists), scores=scores, is_item=is_item, k=k)


def standardize_targets(
    targets: Any, items: int, sample_weight: Any = None, dtype: str = "float32"
) -> tuple[TargetLists, str | None]:
    """Checks and casts the ids of relevant items of a catalogue.

    Args:
        targets: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or a
            dict with the keys `"ids"`, `"labels"` and `"mask"`, or a sparse matrix of
            labels, of shape `(batch, items)`.
        items: the number of items of the catalogue.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or `(batch, 1)`.
        dtype: the dtype of labels and weights: float32 or float64.

    Returns:
        `TargetLists`, and an error message if different labels of a list tie, or
        `None`. Duplicates of an id in a list count once.
    """
    ids, labels, mask, label_array = read_ids("targets", targets, items)
    if len(ids.shape) != 2:
        expected = "have the shape (batch,) or (batch, targets)"
        raise value_error("targets", expected, f"targets.shape={static_shape(ids)}")
    weights = read_list_weights(sample_weight, ids)
    check_largest_weight(weights)
    lists = backend.run_program(
        _make_target_lists,
        *(ids, labels, mask, weights),
        argument="targets",
        items=items,
        dtype=dtype,
    )
    return lists, describe_tied_labels(label_array)


def read_targets(argument: str, value: Any) -> Tensor:
    """Returns ids of shape `(batch,)` or `(batch, targets)`.

    The id is below 0 where there is no target: if it is masked, or its label is not
    above 0. With labels, `NO_CANDIDATE` is the id of a target that is not in the
    catalogue.
    """
    *tensors, _ = read_ids(argument, value, 0)
    return _mask_targets(*map(as_tensor, tensors))[0]


def _mask_targets(
    ids: Tensor, labels: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Returns ids and labels, with ids below 0 where there is no target.

    Labels have any value where there is no target.
    """
    is_float = keras.backend.is_float_dtype(ids.dtype)
    if labels is None and mask is None and not is_float:
        return ids, None
    # NaN is not a target, as comparisons with NaN are False.
    is_target = ids >= 0
    if labels is not None:
        labels = upcast(labels)
        is_target = ops.logical_or(is_target, ids == NO_CANDIDATE)
        is_relevant = labels >= float_limits(labels.dtype).smallest_normal
        is_target = ops.logical_and(is_target, is_relevant)
    if mask is not None:
        is_target = ops.logical_and(is_target, ops.cast(mask, "bool"))
    return backend.where(is_target, ids, -1), labels


def _check_targets(
    argument: str, items: Tensor | int, ids: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Returns ids and labels of one target or more.

    Raises `ValueError` unless the ids are those of items.
    """
    if ids.shape[1] == 0:
        ids, labels = ops.pad(ids, [(0, 0), (0, 1)], constant_values=-1), None
    if labels is None:
        check_no_matrix(argument, ids, items)
    check_items(argument, ids, items)
    return ids, labels


def _make_target_lists(
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
    """Returns lists of the targets whose ids are in an argument of a user."""
    ids, labels, mask, weights = map(as_tensor, (ids, labels, mask, weights))
    ids, labels = _check_targets(argument, items, *_mask_targets(ids, labels, mask))
    is_target = ids >= 0 if labels is None else ids != -1
    has_catalogue = True
    # `if` is used because `torch.compile` can't convert a condition on an unknown size
    # to a tensor.
    if isinstance(items, int) and items == 0:
        has_catalogue = False
    has_items = backend.constant(has_catalogue, is_target)
    has_items = ops.broadcast_to(has_items, (axis_size(ids, 0),))
    if ids.shape[1] != 1:
        is_first = ops.logical_not(is_repeated(ids, labels))
        is_target = ops.logical_and(is_target, is_first)
    if weights is not None:
        weights = cast_finite(weights, dtype)
        weights = ops.broadcast_to(weights, (axis_size(ids, 0), 1))
        is_weighed = weights >= float_limits(weights.dtype).smallest_normal
        has_items = ops.logical_and(has_items, is_weighed[:, 0])
        is_target = ops.logical_and(is_target, is_weighed)
        weights = backend.minimum(weights, LARGEST_WEIGHT)
        weights = backend.where(is_weighed, weights, 0.0)
    is_in_catalogue = ops.logical_and(is_target, is_valid_id(ids, items))
    if labels is not None:
        is_in_catalogue = ops.logical_and(is_in_catalogue, ids >= 0)
    # Ids are cast after invalid ids are replaced, as a large id would wrap in int32.
    ids = ops.cast(backend.where(is_in_catalogue, ids, 0), "int32")
    if is_item is not None:
        # A target whose item is padding is removed.
        is_known = backend.where(is_in_catalogue, backend.take(is_item, ids), True)
        is_target = ops.logical_and(is_target, is_known)
        is_in_catalogue = ops.logical_and(is_in_catalogue, is_known)
        has_items = ops.logical_and(has_items, ops.any(is_item, axis=1))
    grades, wide = ops.cast(is_target, dtype), None
    if labels is not None:
        wide = wide_or_none(labels, dtype)
        if wide is not None:
            wide = backend.where(is_target, clip_labels(wide), 0.0)
        grades = clip_labels(cast_finite(labels, dtype))
        grades = backend.where(is_target, grades, 0.0)
    # An empty catalogue has the size 1, as one item without a rank was added.
    items = items if has_catalogue else 1
    return TargetLists(
        grades, wide, is_target, weights, ids, is_in_catalogue, has_items, items
    )
