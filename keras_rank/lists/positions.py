"""Scores of a catalogue at every position of a sequence: each is a list of its own."""

import math
from typing import Any

from keras import ops

from keras_rank.arrays.arithmetic import size_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.given import (
    Given,
    check_weights,
    if_given,
    is_dict,
    require_same_lengths,
)
from keras_rank.lists.ids import (
    NO_CANDIDATE,
    as_ids,
    check_not_one_hot,
    look_at_ids,
)
from keras_rank.lists.tensors import as_tensor, shape_of, sizes_agree

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
