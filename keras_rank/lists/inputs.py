"""Reading of the arguments of metrics, with checks of their shapes and values."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import LARGEST_WEIGHT, axis_size
from keras_rank.backends import Tensor, backend
from keras_rank.lists.ids import (
    NO_CANDIDATE,
    cast_ids,
    check_not_one_hot,
    read_id_arrays,
)
from keras_rank.lists.input_arrays import (
    SPARSE,
    InputArray,
    check_weights,
    find_layer_mask,
    is_dict,
    read_array,
    read_optional,
    require_same_lengths,
    split_dict,
    uneven_error,
    value_error,
)
from keras_rank.lists.tensors import (
    as_tensor,
    find_rounded_ties,
    sizes_agree,
    static_shape,
    to_numpy_or_none,
)

_SHAPES = (
    "With `sparse_labels=True` and scores at every position, `y_pred` should have the "
    "shape (batch, time, items), and `y_true` the shape (batch, time) or (batch, time, "
    "targets)"
)


def has_positions(scores: InputArray) -> bool:
    """Returns whether scores have more axes than lists and items.

    A last axis of size 1 is the output of `Dense(1)`, not an axis of items. A last axis
    of unknown size in a graph may be one too.
    """
    shape = scores.shape
    return len(shape) > 3 or (len(shape) == 3 and shape[2] not in (1, None))


def make_position_lists(
    y_true: Any, scores: InputArray, sample_weight: Any, layer_mask: Tensor | None
) -> tuple[list[Tensor | None], InputArray | None]:
    """Converts each position to a list, with the weight 0 if it has no target.

    Args:
        y_true: ids of shape `(batch, time)` or `(batch, time, targets)`, a dict with
            the keys `"ids"`, `"labels"` and `"mask"`, or ids and labels stacked in a
            last axis of a shape `(batch, time, targets, 2)`. Scores and ids may have
            further axes of positions after `time`.
        scores: scores of shape `(batch, time, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
            `(batch, time)`.
        layer_mask: boolean tensor of shape `(batch, time)`: the mask that layers
            attached to the scores, or `None`.

    Returns:
        Ids, scores, mask, weights and labels of lists, and the original labels.
    """
    *axes, items = scores.shape
    ids, labels, mask = read_id_arrays("y_true", y_true, items, len(scores.shape))
    weights = read_optional("sample_weight", sample_weight, 0, deep=True)
    if not is_dict(y_true) and labels is None:
        _check_no_pairs(ids, len(scores.shape))
    require_same_lengths(scores, ids, labels, mask, weights)
    check_not_one_hot(y_true, ids, labels, static_shape(scores))
    ids = cast_ids(ids, items)
    arrays = (ids, scores, mask, weights, labels)
    parts = [None if x is None else x.tensor() for x in arrays]
    for part in (ids, labels, mask):
        if part is not None and not (
            len(ids.shape) - len(axes) in (0, 1)
            and sizes_agree(ids.shape[: len(axes)], axes)
            and sizes_agree(part.shape, ids.shape)
        ):
            raise ValueError(
                f"{_SHAPES}. Received: {part.argument}.shape={part.shape}, "
                f"y_pred.shape={scores.shape}"
            )
    if weights is not None:
        batch_shape, position_shape = tuple(axes[:1]), tuple(axes)
        sequence_shapes = batch_shape, (*batch_shape, 1)
        check_weights(
            weights.shape, *sequence_shapes, position_shape, (*position_shape, 1)
        )
    flat_tensors = backend.run_program(_flatten, *parts, layer_mask, axes=len(axes))
    return [
        None if x is None else backend.as_host_array(x) for x in flat_tensors
    ], labels


def _check_no_pairs(ids: InputArray, axes: int) -> None:
    """Raises `ValueError` for float ids that may be pairs of an id and its label.

    A last axis of size 2 could also hold two ids at each position.
    """
    may_be_pairs = len(ids.shape) == axes and ids.shape[-1] == 2
    is_float = any(name.startswith(("float", "bfloat")) for name in ids.dtypes)
    if may_be_pairs and is_float:
        raise ValueError(
            f"{_SHAPES}. Received: y_true of shape {ids.shape} with floats, which may "
            "be two ids, or an id and its label: give integers as ids, and ids with "
            "labels in the shape (batch, time, 1)"
        )


def _flatten(*tensors: Tensor | None, axes: int) -> tuple[Tensor | None, ...]:
    """Returns ids, scores, mask, weights and labels of lists.

    Args:
        *tensors: ids, scores, mask, weights and labels of positions, and the mask of
            layers. The last four may be `None`.
        axes: the number of axes of positions.
    """
    ids, scores, mask, weights, labels, layer_mask = map(as_tensor, tensors)
    # NaN is not a target, as comparisons with NaN are False.
    has_target = ids >= 0
    if labels is not None:
        has_target = ops.logical_or(has_target, ids == NO_CANDIDATE)
        has_target = ops.logical_and(has_target, labels >= 0)
    if mask is not None:
        has_target = ops.logical_and(has_target, ops.cast(mask, "bool"))
    if len(ids.shape) > axes:
        has_target = ops.any(has_target, axis=-1)
    if layer_mask is not None:
        has_target = ops.logical_and(has_target, ops.cast(layer_mask, "bool"))
    if weights is None:
        weights = ops.cast(has_target, "float32")
    else:
        shape = ops.shape(weights)[:axes]
        weights = ops.reshape(weights, (*shape, *(1,) * (axes - len(shape))))
        weights = backend.where(has_target, weights, 0.0)
    target_shape = ops.shape(ids)[axes:] or (1,)
    sizes = tuple(scores.shape)[:axes]
    # A size of -1 is ambiguous for tensors without entries, so the number of lists is
    # computed if all sizes are known.
    num_lists = -1 if None in sizes else math.prod(sizes)
    ids, labels, mask = (
        None if x is None else ops.reshape(x, (num_lists, *target_shape))
        for x in (ids, labels, mask)
    )
    scores = ops.reshape(scores, (num_lists, axis_size(scores, axes)))
    return ids, scores, mask, ops.reshape(weights, (num_lists, 1)), labels


# Advice for rows that are items rather than lists.
SINGLE_ITEMS_ADVICE = (
    "n lists of one item: make lists of single items by "
    "`keras_rank.utils.pad_lists(scores, group_ids=...)`, or in `fit` by "
    "`keras_rank.callbacks.GroupedEvaluation`"
)

# The description of the values that labels accept, for errors.
LABELS_DESCRIPTION = 'labels, or a dict with the keys "labels" and "mask" (optional)'


class RawBatch(NamedTuple):
    """A batch of converted arguments with matching shapes.

    Attributes:
        labels: tensor of shape `(batch, list_size)`, of shape
            `(batch, list_size, subtopics)`, or ids, `(batch, targets)`.
        scores: tensor of shape `(batch, list_size)`, or `(batch, items)`.
        mask: tensor of the shape of the scores, or `None`.
        weights: tensor of a shape that broadcasts with the scores, or `None`.
        grades: tensor of the shape of the ids: their labels, or `None`.
        layer_mask: boolean tensor of the shape of the scores, or of shape `(batch,)`
            for ids: the mask that layers attached to the scores, or `None`.
        list_weights: tensor of shape `()` or `(batch, 1)`: the weights if they were
            passed per list, otherwise `None`. Not used for ids.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor | None
    weights: Tensor | None
    grades: Tensor | None = None
    layer_mask: Tensor | None = None
    list_weights: Tensor | None = None


class Inputs(NamedTuple):
    """The converted arguments of a metric, with facts about their original form.

    Attributes:
        batch: the lists.
        labels: the labels in their original dtype, or `None`.
        rows_are_lists: whether a mask or a ragged type shows that rows are lists.
        has_positions: whether lists are the positions of sequences.
    """

    batch: RawBatch
    labels: InputArray | None
    rows_are_lists: bool = False
    has_positions: bool = False


def read(
    y_true: Any, y_pred: Any, sample_weight: Any = None, takes_subtopics: bool = False
) -> Inputs:
    """Converts the arguments of a metric, and checks their shapes.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of uneven
            length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape. A mask that layers attached to them is used
            too.
        sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
            `(batch, list_size)`; `(list_size,)` for a single list.
        takes_subtopics: whether labels may have another axis, of subtopics.
    """
    mask = None
    if is_dict(y_true):
        y_true, mask = split_dict(
            "y_true", y_true, ("labels", "mask"), LABELS_DESCRIPTION
        )
        mask = read_optional("mask", mask, 0)
    y_true = read_array("y_true", y_true, -1, deep=takes_subtopics)
    original_scores, y_pred = y_pred, read_array("y_pred", y_pred, -np.inf)
    weights = list_weights = None
    if sample_weight is not None:
        weights = read_array("sample_weight", sample_weight, 0)
    require_same_lengths(y_true, y_pred, mask, weights)
    if "int64" in str(y_pred.numbers.dtype) and mask is None:
        _check_distinguishable_scores(y_pred, y_true)
    labels, scores = _drop_last_axis(y_true, takes_subtopics), _drop_last_axis(y_pred)
    reference = labels
    if takes_subtopics and len(labels.shape) == len(scores.shape) + 1:
        _require_subtopics(labels, scores)
        reference = scores
    if len(reference.shape) not in (1, 2):
        expected = "have the shape (list_size,) or (batch, list_size)"
        raise value_error("y_true", expected, f"y_true.shape={static_shape(labels)}")
    _require_same_shape("y_pred", scores, reference)
    rows_are_lists = mask is not None or y_true.lengths is not None
    if mask is not None:
        mask = _drop_last_axis(mask)
        _require_same_shape("mask", mask, reference)
    if weights is not None:
        shape = static_shape(reference)
        list_shapes = [shape[:1], (shape[0], 1)] if len(shape) == 2 else []
        is_vector = len(weights.shape) == 1
        weights = _read_weights(weights, *list_shapes, shape)
        list_weights = _find_list_weights(weights, reference, is_vector)
    layer_mask = find_layer_mask(original_scores, scores.shape)
    batch = RawBatch(labels, scores, mask, weights, None, layer_mask, list_weights)
    if len(scores.shape) == 1:
        batch = RawBatch(*(x if x is None or not x.shape else x[None] for x in batch))
    if weights is not None:
        check_largest_weight(batch.weights, batch.labels, batch.mask, layer_mask)
    return Inputs(batch, y_true, rows_are_lists or y_pred.lengths is not None)


def read_sparse(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Inputs:
    """Converts the ids of relevant items, and the scores of a catalogue.

    Scores may also have positions: see `make_position_lists`.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or a dict
            with the keys `"ids"`, `"labels"` and `"mask"`, or stacked ids and labels,
            of shape `(batch, targets, 2)`, or a sparse matrix of labels, of shape
            `(batch, items)`.
        y_pred: scores of shape `(batch, items)`. A mask that layers attached to them is
            used too.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or `(batch, 1)`.
    """
    array = read_array("y_pred", y_pred, 0, deep=True)
    if has_positions(array):
        layer_mask = find_layer_mask(y_pred, array.shape[:-1])
        parts, label_array = make_position_lists(
            y_true, array, sample_weight, layer_mask
        )
        batch = RawBatch(*parts)
        check_largest_weight(batch.weights)
        return Inputs(batch, label_array, has_positions=True)
    if array.lengths is not None:
        raise uneven_error("y_pred", y_pred)
    if "int64" in str(array.numbers.dtype):
        _check_distinguishable_scores(array)
    scores = _drop_last_axis(array)
    items = scores.shape[1] if len(scores.shape) == 2 else None
    ids, labels, mask, label_array = read_ids(
        "y_true", y_true, items, static_shape(scores)
    )
    expected = None
    if len(scores.shape) != 2 or len(ids.shape) != 2:
        expected = "With `sparse_labels=True`, `y_true` should have the shape (batch,) "
        expected += "or (batch, targets) and `y_pred` the shape (batch, items)"
    elif not sizes_agree(static_shape(ids)[:1], static_shape(scores)[:1]):
        expected = "`y_true` and `y_pred` should have the same number of lists"
    if expected is not None:
        received = (
            f"ids of shape {static_shape(ids)}, y_pred.shape={static_shape(scores)}"
        )
        raise ValueError(f"{expected}. Received: {received}")
    weights = read_list_weights(sample_weight, ids)
    # The mask may have one entry per list, or one per item.
    layer_mask = find_layer_mask(y_pred, array.shape[:1], array.shape[:2])
    check_largest_weight(weights)
    batch = RawBatch(ids, scores, mask, weights, labels, layer_mask)
    return Inputs(batch, label_array)


def check_largest_weight(
    weights: Tensor | None, labels: Tensor | None = None, *masks: Tensor | None
) -> None:
    """Raises `ValueError` for weights of items above the limit, if values can be read.

    Compiled code caps weights at the limit instead.

    Args:
        weights: the weights, or `None`.
        labels: labels that are below 0 at padding, or `None`.
        *masks: masks that are False at padding, or `None`.
    """
    if weights is None or not backend.is_cheap_to_read(weights):
        return
    weight_values = to_numpy_or_none(weights)
    if weight_values is not None and weight_values.dtype.itemsize < 4:
        # `LARGEST_WEIGHT` is infinite in half precision.
        weight_values = weight_values.astype("float32")
    if weight_values is None or not np.any(weight_values > LARGEST_WEIGHT):
        return
    is_large = weight_values > LARGEST_WEIGHT
    for number, mask in enumerate((labels, *masks)):
        if mask is None:
            continue
        values = to_numpy_or_none(mask) if backend.is_cheap_to_read(mask) else None
        if values is None:
            return
        is_item = values.astype(bool) if number else values >= 0
        is_large = is_large & (is_item.any(axis=2) if is_item.ndim == 3 else is_item)
    if np.any(is_large):
        largest = np.broadcast_to(weight_values, is_large.shape)[is_large].max()
        expected = "be at most 2**50 (1.1e15): divide all weights by the same number, "
        expected += "which changes no result"
        raise value_error("sample_weight", expected, f"a weight of {largest:.4g}")


def check_distinguishable(
    array: InputArray | None, argument: str | None = None, noun: str = "labels"
) -> None:
    """Raises `ValueError` if rounding makes different labels of a list equal."""
    problem = describe_tied_labels(array, argument, noun)
    if problem is not None:
        raise ValueError(problem)


def _check_distinguishable_scores(
    scores: InputArray, labels: InputArray | None = None
) -> None:
    """Raises `ValueError` if float64 rounds different integer scores of a list to one.

    Scores at padding are ignored if the labels are arrays. A backend without float64
    ranks numbers as float32, as documented, so it does not check them.
    """
    score_values: Any = scores.numbers
    label_values: Any = None if labels is None else labels.numbers
    if backend.supported_dtype("float64") != "float64":
        return
    are_arrays = isinstance(score_values, np.ndarray) and isinstance(
        label_values, np.ndarray
    )
    if are_arrays and label_values.shape == score_values.shape:
        scores = scores._replace(numbers=np.where(label_values >= 0, score_values, 0))
    check_distinguishable(scores, noun="scores")


def describe_tied_labels(
    array: InputArray | None, argument: str | None = None, noun: str = "labels"
) -> str | None:
    """Returns an error message if rounding makes different labels of a list equal.

    The result is `None` if there are no such labels, or if they can't be read. Labels
    on a device are read only if the device has no float64, and scores always.

    Args:
        array: the labels or the scores, or `None`.
        argument: the name of the argument. Defaults to that of `array`.
        noun: `"labels"`, or `"scores"`.
    """
    dtype = backend.supported_dtype("float64")
    if array is None or array.form in SPARSE or not array.shape:
        return None
    labels = array.numbers
    if not isinstance(labels, np.ndarray):
        should_read = noun == "scores" or dtype != "float64"
        labels = (
            to_numpy_or_none(labels)
            if should_read and backend.is_concrete(labels)
            else None
        )
    if labels is None or labels.dtype.kind not in "iuf":
        return None
    ties = find_rounded_ties(labels, dtype)
    # Labels below 0 are padding, which may tie.
    if not np.any((ties >= 0) | (noun == "scores")):
        return None
    expected = f"hold {noun} that {dtype} tells apart: subtract the same number from "
    expected += f"all {noun} of a list"
    if dtype == "float32":
        expected += ', or call `jax.config.update("jax_enable_x64", True)`'
    received = f"different {noun} in a list that {dtype} rounds to the same"
    return str(value_error(argument or array.argument, expected, received))


def read_ids(
    argument: str,
    value: Any,
    items: int | None,
    scores: Sequence[int | None] = (),
) -> tuple[Tensor, Tensor | None, Tensor | None, InputArray | None]:
    """Returns ids, their labels and mask, and the original labels.

    Ids, labels and mask have the same shape, with one row per list, even if each list
    has a single id.

    Args:
        argument: the name of the argument.
        value: the value that the user passed.
        items: the number of items, `None` if it is unknown in a graph, 0 to leave it
            unchecked.
        scores: the shape of the scores, if there are any.
    """
    ids, labels, mask = read_id_arrays(argument, value, items)
    check_not_one_hot(value, ids, labels, scores)
    require_same_lengths(ids, labels, mask)
    x = _drop_last_axis(cast_ids(ids, items))
    parts = [None if part is None else _drop_last_axis(part) for part in (labels, mask)]
    for name, part in zip(("labels", "mask"), parts, strict=True):
        if part is not None:
            _require_same_shape(name, part, x, argument)
    if len(x.shape) == 1:
        x, *parts = (part if part is None else part[:, None] for part in (x, *parts))
    return x, *parts, labels


def _drop_last_axis(array: InputArray, takes_subtopics: bool = False) -> Tensor:
    """Returns the values without the last axis of size 1 that `Dense(1)` returns."""
    x = array.tensor()
    if len(x.shape) != 3 or (takes_subtopics and x.shape[2] != 1):
        return x
    if x.shape[2] not in (1, None):
        raise value_error(
            array.argument,
            "have one number for each item, in the shape (batch, list_size) or (batch, "
            "list_size, 1). Where each position of (batch, time, items) is a list, "
            "give the ids of its relevant items with `sparse_labels=True`, or reshape "
            "scores and labels to (batch * time, items)",
            f"{array.argument}.shape={static_shape(x)}",
        )
    if isinstance(x, np.ndarray):
        return x[:, :, 0]
    # `ops.squeeze` fails for an axis of unknown size in a graph, so the tensor is
    # reshaped.
    return ops.reshape(x, ops.shape(x)[:2])


def _require_subtopics(labels: Tensor, scores: Tensor) -> None:
    """Raises `ValueError` unless labels have the axes of the scores and a last one."""
    *sizes, subtopics = static_shape(labels)
    if subtopics == 0 or not sizes_agree(sizes, static_shape(scores)):
        expected = "have the shape (*y_pred.shape, subtopics), of one subtopic or more"
        received = (
            f"y_true.shape={static_shape(labels)}, y_pred.shape={static_shape(scores)}"
        )
        raise value_error("y_true", expected, received)


def _require_same_shape(
    argument: str, x: Tensor, reference: Tensor, name: str = "y_true"
) -> None:
    if x.shape != reference.shape and not sizes_agree(x.shape, reference.shape):
        # The scores of a model of single items: with labels reshaped to match, the
        # shapes would be those of lists of one item.
        is_single_item = argument == "y_pred" and static_shape(x)[1:] == (1,)
        expected = f"have the same shape as `{name}`, a row for each list with a "
        expected += "number for each item"
        expected += (
            f". Scores of shape (n, 1) are {SINGLE_ITEMS_ADVICE}" * is_single_item
        )
        may_be_ids = argument == "y_pred" and not keras.backend.is_float_dtype(
            reference.dtype
        )
        if (
            may_be_ids
            and static_shape(x)[:-1] == static_shape(reference)[:1]
            and not is_single_item
        ):
            expected += ". Ids of the relevant items need `sparse_labels=True`"
        received = (
            f"{argument}.shape={static_shape(x)}, "
            f"{name}.shape={static_shape(reference)}"
        )
        raise value_error(argument, expected, received)


def read_list_weights(sample_weight: Any, ids: Tensor) -> Tensor | None:
    """Converts weights of lists, of shape `()` or `(batch, 1)`."""
    if sample_weight is None:
        return None
    lists = static_shape(ids)[0]
    return _read_weights(
        read_array("sample_weight", sample_weight), (lists,), (lists, 1)
    )


def _find_list_weights(
    weights: Tensor, labels: Tensor, is_vector: bool
) -> Tensor | None:
    """Returns the weights if they are those of lists, of shape `()` or `(batch, 1)`.

    Weights of shape `(batch, 1)` are those of items if the lists have one item, so that
    batches of lists of uneven length don't change the result. If a size is unknown in a
    graph, and the weights are those of items, the result is 1 for each list.

    Args:
        weights: the weights, of shape `()`, `(batch, 1)` or the shape of the labels.
        labels: the labels.
        is_vector: whether the weights had the shape `(batch,)`.
    """
    if len(weights.shape) == 0:
        return weights
    if len(labels.shape) == 1:
        return None
    if is_vector:
        return weights
    width, list_size = weights.shape[1], labels.shape[1]
    if width not in (1, None) or list_size == 1:
        return None
    if width == 1 and list_size is not None:
        return weights
    has_list_weights = ops.logical_and(
        axis_size(weights, 1) == 1, axis_size(labels, 1) != 1
    )
    return backend.where(has_list_weights, weights[:, :1], 1.0)


def _read_weights(array: InputArray, *accepted: tuple[int | None, ...]) -> Tensor:
    """Converts weights, and checks their shape.

    A vector of list weights becomes a column.
    """
    weights = _drop_last_axis(array)
    check_weights(static_shape(weights), *accepted)
    is_column = len(weights.shape) == 1 and len(accepted[-1]) == 2
    return weights[:, None] if is_column else weights
