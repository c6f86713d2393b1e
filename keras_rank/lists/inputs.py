"""Reads what users pass to a metric: checks its shapes, and converts it to tensors."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import LARGEST_WEIGHT, size_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.ids import (
    NO_CANDIDATE,
    as_ids,
    check_not_one_hot,
    look_at_ids,
)
from keras_rank.lists.input_arrays import (
    SPARSE,
    Given,
    check_weights,
    if_given,
    is_dict,
    layer_mask_of,
    look,
    parts_of,
    refused,
    require_same_lengths,
    uneven_error,
)
from keras_rank.lists.tensors import as_tensor, seen, shape_of, sizes_agree

_SHAPES = (
    "With `sparse_labels=True` and scores at every position, `y_pred` should have the "
    "shape (batch, time, items), and `y_true` the shape (batch, time) or (batch, time, "
    "targets)"
)


def are_at_positions(scores: Given) -> bool:
    """Whether scores have more axes than lists and items.

    A last axis of size 1 is one that `Dense(1)` returns, and of unknown size in a graph
    may be one.
    """
    shape = scores.shape
    return len(shape) > 3 or (len(shape) == 3 and shape[2] not in (1, None))


def lists_of_positions(
    y_true: Any, scores: Given, sample_weight: Any, layer_mask: Tensor | None
) -> tuple[list[Tensor | None], Given | None]:
    """Makes each position a list, with a weight of 0 where there is no target.

    Args:
        y_true: ids of shape `(batch, time)` or `(batch, time, targets)`, a dict with
            the keys `"ids"`, `"labels"` and `"mask"`, or ids and labels stacked in a
            last axis of a shape `(batch, time, targets, 2)`. An axis more or less comes
            before the last one of the scores.
        scores: scores of shape `(batch, time, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
            `(batch, time)`.
        layer_mask: boolean tensor of shape `(batch, time)`: the mask that layers have
            passed on to the scores, or `None`.

    Returns:
        Ids, scores, mask, weights and labels of lists, and the labels as given.
    """
    *axes, items = scores.shape
    ids, labels, mask = look_at_ids("y_true", y_true, items, len(scores.shape))
    weights = if_given("sample_weight", sample_weight, 0, deep=True)
    if not is_dict(y_true) and labels is None:
        _check_no_pairs(ids, len(scores.shape))
    require_same_lengths(scores, ids, labels, mask, weights)
    check_not_one_hot(y_true, ids, labels, shape_of(scores))
    ids = as_ids(ids, items)
    given = (ids, scores, mask, weights, labels)
    parts = [None if x is None else x.tensor() for x in given]
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
        lists, of_positions = tuple(axes[:1]), tuple(axes)
        of_sequences = lists, (*lists, 1)
        check_weights(weights.shape, *of_sequences, of_positions, (*of_positions, 1))
    flat = backend.enter(_flat, *parts, layer_mask, axes=len(axes))
    return [None if x is None else backend.on_host(x) for x in flat], labels


def _check_no_pairs(ids: Given, axes: int) -> None:
    """Raises for what may be two ids at each position, or an id and its label."""
    may_be_pairs = len(ids.shape) == axes and ids.shape[-1] == 2
    are_floats = any(name.startswith(("float", "bfloat")) for name in ids.dtypes)
    if may_be_pairs and are_floats:
        raise ValueError(
            f"{_SHAPES}. Received: y_true of shape {ids.shape} with floats, which may "
            "be two ids, or an id and its label: give integers as ids, and ids with "
            "labels in the shape (batch, time, 1)"
        )


def _flat(*of_positions: Tensor | None, axes: int) -> tuple[Tensor | None, ...]:
    """Ids, scores, mask, weights and labels of lists, given those of positions.

    The mask of layers is the last one that is given.
    """
    ids, scores, mask, weights, labels, layer_mask = map(as_tensor, of_positions)
    # A comparison with NaN is False.
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
    per_position = ops.shape(ids)[axes:] or (1,)
    sizes = tuple(scores.shape)[:axes]
    # Where there are no entries, -1 could be any number.
    lists = -1 if None in sizes else math.prod(sizes)
    ids, labels, mask = (
        None if x is None else ops.reshape(x, (lists, *per_position))
        for x in (ids, labels, mask)
    )
    scores = ops.reshape(scores, (lists, size_of(scores, axes)))
    return ids, scores, mask, ops.reshape(weights, (lists, 1)), labels


# What to do where a row is an item, not a list.
SINGLE = (
    "n lists of one item: make lists of single items by "
    "`keras_rank.utils.pad_lists(scores, group_ids=...)`, or in `fit` by "
    "`keras_rank.callbacks.GroupedEvaluation`"
)

# What a dict of labels is.
PARTS_OF_LABELS = 'labels, or a dict with the keys "labels" and "mask" (optional)'


class RawBatch(NamedTuple):
    """What users pass, with matching shapes.

    Attributes:
        labels: tensor of shape `(batch, list_size)`, of shape
            `(batch, list_size, subtopics)`, or ids, `(batch, targets)`.
        scores: tensor of shape `(batch, list_size)`, or `(batch, items)`.
        mask: tensor of the shape of the scores, or `None`.
        weights: tensor of a shape that broadcasts with the scores, or `None`.
        grades: tensor of the shape of the ids: their labels, or `None`.
        layer_mask: boolean tensor of the shape of the scores, or of shape `(batch,)`
            for ids: the mask that layers have passed on to the scores, or `None`.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor | None
    weights: Tensor | None
    grades: Tensor | None = None
    layer_mask: Tensor | None = None


class Reading(NamedTuple):
    """What was read.

    Attributes:
        batch: the lists.
        labels: the labels, in the dtype that was given, or `None`.
        are_lists: whether a mask or a ragged type says that rows are lists.
        at_positions: whether lists are the positions of sequences.
    """

    batch: RawBatch
    labels: Given | None
    are_lists: bool = False
    at_positions: bool = False


def read(
    y_true: Any, y_pred: Any, sample_weight: Any = None, takes_subtopics: bool = False
) -> Reading:
    """Converts what users pass to a metric, and checks its shapes.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape. Their mask of layers counts too.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
        takes_subtopics: whether labels may have another axis, of subtopics.
    """
    mask = None
    if is_dict(y_true):
        y_true, mask = parts_of("y_true", y_true, ("labels", "mask"), PARTS_OF_LABELS)
        mask = if_given("mask", mask, 0)
    y_true = look("y_true", y_true, -1, deep=takes_subtopics)
    given_scores, y_pred = y_pred, look("y_pred", y_pred, -np.inf)
    weights = None
    if sample_weight is not None:
        weights = look("sample_weight", sample_weight, 0)
    require_same_lengths(y_true, y_pred, mask, weights)
    if "int64" in str(y_pred.numbers.dtype) and mask is None:
        _check_told_apart_as_ranked(y_pred, y_true)
    labels, scores = _lists(y_true, takes_subtopics), _lists(y_pred)
    like = labels
    if takes_subtopics and len(labels.shape) == len(scores.shape) + 1:
        _require_subtopics(labels, scores)
        like = scores
    if len(like.shape) not in (1, 2):
        expected = "have the shape (list_size,) or (batch, list_size)"
        raise refused("y_true", expected, f"y_true.shape={shape_of(labels)}")
    _require_same_shape("y_pred", scores, like)
    are_lists = mask is not None or y_true.lengths is not None
    if mask is not None:
        mask = _lists(mask)
        _require_same_shape("mask", mask, like)
    if weights is not None:
        shape = shape_of(like)
        of_lists = [shape[:1], (shape[0], 1)] if len(shape) == 2 else []
        weights = _weights(weights, *of_lists, shape)
    layer_mask = layer_mask_of(given_scores, scores.shape)
    batch = RawBatch(labels, scores, mask, weights, layer_mask=layer_mask)
    if len(scores.shape) == 1:
        batch = RawBatch(*(x if x is None or not x.shape else x[None] for x in batch))
    if weights is not None:
        check_largest_weight(batch.weights, batch.labels, batch.mask, layer_mask)
    return Reading(batch, y_true, are_lists or y_pred.lengths is not None)


def read_sparse(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Reading:
    """Converts the ids of relevant items, and the scores of a catalogue.

    Scores may also be those at every position: see `lists_of_positions`.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or
            a dict with the keys `"ids"`, `"labels"` and `"mask"`, or stacked ids and
            labels, of shape `(batch, targets, 2)`, or a sparse matrix of labels, of
            shape `(batch, items)`.
        y_pred: scores of shape `(batch, items)`. Their mask of layers counts too.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
    """
    given = look("y_pred", y_pred, 0, deep=True)
    if are_at_positions(given):
        layer_mask = layer_mask_of(y_pred, given.shape[:-1])
        parts, of_labels = lists_of_positions(y_true, given, sample_weight, layer_mask)
        batch = RawBatch(*parts)
        check_largest_weight(batch.weights)
        return Reading(batch, of_labels, at_positions=True)
    if given.lengths is not None:
        raise uneven_error("y_pred", y_pred)
    if "int64" in str(given.numbers.dtype):
        _check_told_apart_as_ranked(given)
    scores = _lists(given)
    items = scores.shape[1] if len(scores.shape) == 2 else None
    ids, labels, mask, of_labels = read_ids("y_true", y_true, items, shape_of(scores))
    expected = None
    if len(scores.shape) != 2 or len(ids.shape) != 2:
        expected = "With `sparse_labels=True`, `y_true` should have the shape (batch,) "
        expected += "or (batch, targets) and `y_pred` the shape (batch, items)"
    elif not sizes_agree(shape_of(ids)[:1], shape_of(scores)[:1]):
        expected = "`y_true` and `y_pred` should have the same number of lists"
    if expected is not None:
        received = f"ids of shape {shape_of(ids)}, y_pred.shape={shape_of(scores)}"
        raise ValueError(f"{expected}. Received: {received}")
    weights = weights_of_lists(sample_weight, ids)
    # One of lists, or of their items.
    layer_mask = layer_mask_of(y_pred, given.shape[:1], given.shape[:2])
    check_largest_weight(weights)
    batch = RawBatch(ids, scores, mask, weights, labels, layer_mask)
    return Reading(batch, of_labels)


def check_largest_weight(
    weights: Tensor | None, labels: Tensor | None = None, *masks: Tensor | None
) -> None:
    """Raises for weights of items beyond the limit, where Python can see them.

    Compiled code caps them.

    Args:
        weights: the weights, or `None`.
        labels: labels that are below 0 at padding, or `None`.
        *masks: masks that are False at padding, or `None`.
    """
    if weights is None or not backend.is_at_hand(weights):
        return
    numbers = seen(weights)
    if numbers is not None and numbers.dtype.itemsize < 4:
        # The limit is infinite in half precision.
        numbers = numbers.astype("float32")
    if numbers is None or not np.any(numbers > LARGEST_WEIGHT):
        return
    is_large = numbers > LARGEST_WEIGHT
    for number, mask in enumerate((labels, *masks)):
        if mask is None:
            continue
        values = seen(mask) if backend.is_at_hand(mask) else None
        if values is None:
            return
        is_item = values.astype(bool) if number else values >= 0
        is_large = is_large & (is_item.any(axis=2) if is_item.ndim == 3 else is_item)
    if np.any(is_large):
        largest = np.broadcast_to(numbers, is_large.shape)[is_large].max()
        expected = "be at most 2**50 (1.1e15): divide all weights by the same number, "
        expected += "which changes no result"
        raise refused("sample_weight", expected, f"a weight of {largest:.4g}")


def check_told_apart(
    given: Given | None, argument: str | None = None, what: str = "labels"
) -> None:
    """Raises for different labels of a list that tie as they are compared."""
    tied = tied_labels(given, argument, what)
    if tied is not None:
        raise ValueError(tied)


def _check_told_apart_as_ranked(scores: Given, labels: Given | None = None) -> None:
    """Raises for different integers in a list of scores that float64 rounds to one.

    Not at padding, as far as labels are seen. A backend without float64 ranks numbers
    as float32, as documented.
    """
    numbers: Any = scores.numbers
    its: Any = None if labels is None else labels.numbers
    if backend.widest("float64") != "float64":
        return
    are_seen = isinstance(numbers, np.ndarray) and isinstance(its, np.ndarray)
    if are_seen and its.shape == numbers.shape:
        scores = scores._replace(numbers=np.where(its >= 0, numbers, 0))
    check_told_apart(scores, what="scores")


def tied_labels(
    given: Given | None, argument: str | None = None, what: str = "labels"
) -> str | None:
    """What is wrong if different labels of a list tie as they are compared, or `None`.

    Labels that are traced can't be seen, and those on a device are read only where it
    has no float64. Scores are looked at in the same way.
    """
    dtype = backend.widest("float64")
    if given is None or given.form in SPARSE or not given.shape:
        return None
    labels = given.numbers
    if not isinstance(labels, np.ndarray):
        is_read = what == "scores" or dtype != "float64"
        labels = seen(labels) if is_read and backend.is_concrete(labels) else None
    if labels is None or labels.dtype.kind not in "iuf":
        return None
    if labels.dtype.kind == "f":
        are_held = np.can_cast(labels.dtype, dtype)
    else:
        whole = 2 ** (np.finfo(dtype).nmant + 1)
        are_held = -whole <= labels.min(initial=0) <= labels.max(initial=0) <= whole
    if are_held:
        return None
    in_order = np.sort(labels, axis=-1)
    compared, lower = in_order.astype(dtype), in_order[..., :-1]
    are_tied = compared[..., 1:] == compared[..., :-1]
    # Labels below 0 are padding.
    are_tied &= (in_order[..., 1:] != lower) & ((lower >= 0) | (what == "scores"))
    if not np.any(are_tied):
        return None
    expected = f"hold {what} that {dtype} tells apart: subtract the same number from "
    expected += f"all {what} of a list"
    if dtype == "float32":
        expected += ', or call `jax.config.update("jax_enable_x64", True)`'
    received = f"different {what} in a list that {dtype} rounds to the same"
    return str(refused(argument or given.argument, expected, received))


def read_ids(
    argument: str,
    value: Any,
    items: int | None,
    scores: Sequence[int | None] = (),
) -> tuple[Tensor, Tensor | None, Tensor | None, Given | None]:
    """Returns ids, and their labels and mask if there are any, of the same shape.

    That of rows, also where there is one id for each. And the labels as given.

    Args:
        argument: the name of the argument.
        value: what users pass.
        items: the number of items, `None` if it is unknown in a graph, 0 to leave it
            unchecked.
        scores: the shape of the scores, if there are any.
    """
    ids, labels, mask = look_at_ids(argument, value, items)
    check_not_one_hot(value, ids, labels, scores)
    require_same_lengths(ids, labels, mask)
    x = _lists(as_ids(ids, items))
    parts = [None if part is None else _lists(part) for part in (labels, mask)]
    for name, part in zip(("labels", "mask"), parts, strict=True):
        if part is not None:
            _require_same_shape(name, part, x, argument)
    if len(x.shape) == 1:
        x, *parts = (part if part is None else part[:, None] for part in (x, *parts))
    return x, *parts, labels


def _lists(given: Given, takes_subtopics: bool = False) -> Tensor:
    """Its values, without the last axis of size 1 that `Dense(1)` returns."""
    x = given.tensor()
    if len(x.shape) != 3 or (takes_subtopics and x.shape[2] != 1):
        return x
    if x.shape[2] not in (1, None):
        raise refused(
            given.argument,
            "have one number for each item, in the shape (batch, list_size) or (batch, "
            "list_size, 1). Where each position of (batch, time, items) is a list, "
            "give the ids of its relevant items with `sparse_labels=True`, or reshape "
            "scores and labels to (batch * time, items)",
            f"{given.argument}.shape={shape_of(x)}",
        )
    if isinstance(x, np.ndarray):
        return x[:, :, 0]
    # `ops.squeeze` fails for an axis of unknown size in a graph.
    return ops.reshape(x, ops.shape(x)[:2])


def _require_subtopics(labels: Tensor, scores: Tensor) -> None:
    """Raises unless labels have an axis of subtopics beside those of the scores."""
    *sizes, subtopics = shape_of(labels)
    if subtopics == 0 or not sizes_agree(sizes, shape_of(scores)):
        expected = "have the shape (*y_pred.shape, subtopics), of one subtopic or more"
        received = f"y_true.shape={shape_of(labels)}, y_pred.shape={shape_of(scores)}"
        raise refused("y_true", expected, received)


def _require_same_shape(
    argument: str, x: Tensor, like: Tensor, name: str = "y_true"
) -> None:
    if x.shape != like.shape and not sizes_agree(x.shape, like.shape):
        # The scores of a model of single items: with labels reshaped to match, the
        # shapes would be those of lists of one item.
        are_single = argument == "y_pred" and shape_of(x)[1:] == (1,)
        expected = f"have the same shape as `{name}`, a row for each list with a "
        expected += "number for each item"
        expected += f". Scores of shape (n, 1) are {SINGLE}" * are_single
        may_be_ids = argument == "y_pred" and not keras.backend.is_float_dtype(
            like.dtype
        )
        if may_be_ids and shape_of(x)[:-1] == shape_of(like)[:1] and not are_single:
            expected += ". Ids of the relevant items need `sparse_labels=True`"
        received = f"{argument}.shape={shape_of(x)}, {name}.shape={shape_of(like)}"
        raise refused(argument, expected, received)


def weights_of_lists(sample_weight: Any, ids: Tensor) -> Tensor | None:
    """Converts weights of lists, of shape `()` or `(batch, 1)`."""
    if sample_weight is None:
        return None
    lists = shape_of(ids)[0]
    return _weights(look("sample_weight", sample_weight), (lists,), (lists, 1))


def _weights(given: Given, *accepted: tuple[int | None, ...]) -> Tensor:
    """Checks the shape of weights, of which those of a vector become a column."""
    weights = _lists(given)
    check_weights(shape_of(weights), *accepted)
    is_column = len(weights.shape) == 1 and len(accepted[-1]) == 2
    return weights[:, None] if is_column else weights
