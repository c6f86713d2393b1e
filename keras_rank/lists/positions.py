"""Scores of a catalogue at every position of a sequence: each is a list of its own."""

from typing import Any

import keras
from keras import ops

from keras_rank.arrays.arithmetic import size_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists import ragged
from keras_rank.lists.ids import NO_CANDIDATE, is_matrix, to_ids
from keras_rank.lists.tensors import (
    as_tensor,
    check_values,
    shape_of,
    sizes_agree,
    to_array,
)

_SHAPES = (
    "With `sparse_labels=True` and scores at every position, `y_pred` should have the "
    "shape (batch, time, items), and `y_true` the shape (batch, time) or (batch, time, "
    "targets)"
)


def are_at_positions(y_pred: Any) -> bool:
    """Whether scores have more axes than lists and items.

    A last axis of size 1 is one that `Dense(1)` returns, and of unknown size in a graph
    may be one.
    """
    shape = _shape(y_pred)
    return len(shape) > 3 or (len(shape) == 3 and shape[2] not in (1, None))


def _shape(value: Any) -> tuple[int | None, ...]:
    """The shape, also of sequences of uneven length, `()` where it has none."""
    if isinstance(value, list | tuple):
        return (len(value), *_shape(value[0])) if value else (0,)
    if ragged.is_array_of_lists(value):
        return (len(value), *_shape(value[0]))
    try:
        return tuple(getattr(value, "shape", ()))
    except (ValueError, RuntimeError):
        # TensorFlow may not know the number of axes in a graph, and nested tensors of
        # PyTorch have no shape.
        is_nested = getattr(value, "is_nested", False)
        return (*(None,) * (value.dim() - 1), value[0].shape[-1]) if is_nested else ()


def lists_of_positions(
    y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[dict[str, Tensor | None], Tensor, Tensor]:
    """Makes each position a list, with a weight of 0 where there is no target.

    Args:
        y_true: ids of shape `(batch, time)` or `(batch, time, targets)`, a dict with
            the keys `"ids"`, `"labels"` and `"mask"`, or ids and labels stacked in a
            last axis of a shape `(batch, time, targets, 2)`. An axis more or less comes
            before the last one of the scores.
        y_pred: scores of shape `(batch, time, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
            `(batch, time)`.

    Returns:
        The same, as `keras_rank.lists.reading.read_sparse` takes it.
    """
    check_values("y_pred", y_pred)
    given = _ids_labels_and_mask(y_true, len(_shape(y_pred)))
    given = _rectangular({**given, "y_pred": y_pred, "sample_weight": sample_weight})
    scores, weights = to_array("y_pred", given.pop("y_pred")), given["sample_weight"]
    scores = backend.detached(scores) if ops.is_tensor(scores) else scores
    *axes, items = shape_of(scores)
    ids = to_ids("y_true", given["ids"], items)
    parts = [ids]
    for name in ("labels", "mask"):
        part = given.get(name)
        parts.append(None if part is None else to_array(name, part))
    for name, part in zip(("y_true", "labels", "mask"), parts, strict=True):
        if part is not None and not (
            len(shape_of(ids)) - len(axes) in (0, 1)
            and sizes_agree(shape_of(ids)[: len(axes)], axes)
            and sizes_agree(shape_of(part), shape_of(ids))
        ):
            raise ValueError(
                f"{_SHAPES}. Received: {name}.shape={shape_of(part)}, "
                f"y_pred.shape={shape_of(scores)}"
            )
    if weights is not None:
        weights = to_array("sample_weight", weights)
        _check_weights(shape_of(weights), axes)
    ids, labels, mask, scores, weights = backend.enter(
        _flat, len(axes), *parts, scores, weights
    )
    return {"ids": ids, "labels": labels, "mask": mask}, scores, weights


def _ids_labels_and_mask(y_true: Any, axes: int) -> dict[str, Any]:
    """The parts of what is given for positions, by name."""
    if is_matrix(y_true):
        raise ValueError(
            f"{_SHAPES}. Received: a sparse matrix, which has rows for lists: give "
            "scores of shape (rows, items)"
        )
    if isinstance(y_true, dict):
        parts = {name: x for name, x in y_true.items() if x is not None}
        if "ids" not in parts and "labels" in parts:
            # Where there are no others, labels hold the ids.
            parts["ids"] = parts.pop("labels")
        unknown = sorted(map(str, parts.keys() - {"ids", "labels", "mask"}))
        if unknown or "ids" not in parts:
            raise ValueError(
                '`y_true` should be ids, or a dict with the keys "ids", "labels" '
                '(optional) and "mask" (optional). Received: y_true with the keys '
                f"{list(y_true)}"
            )
        return parts
    shape = _shape(y_true)
    if len(shape) == axes + 1 and shape[-1] == 2:
        return {"ids": y_true[..., 0], "labels": y_true[..., 1]}
    if len(shape) == axes and shape[-1] == 2 and _are_floats(y_true):
        raise ValueError(
            f"{_SHAPES}. Received: y_true of shape {shape} with floats, which may be "
            "two ids, or an id and its label: give integers as ids, and ids with "
            "labels in the shape (batch, time, 1)"
        )
    return {"ids": y_true}


def _are_floats(y_true: Any) -> bool:
    dtype = getattr(y_true, "dtype", None)
    return dtype is not None and keras.backend.is_float_dtype(
        keras.backend.standardize_dtype(dtype)
    )


def _rectangular(given: dict[str, Any]) -> dict[str, Any]:
    """Pads sequences of uneven length; what is added has no target."""
    given = {name: ragged.unboxed(x) for name, x in given.items()}
    if not any(ragged.is_ragged(x) for x in given.values()):
        return given
    expected = ragged.lengths(given["y_pred"])
    for name, x in given.items():
        per_position = ragged.is_ragged(x) or name != "sample_weight"
        found = ragged.lengths(x) if per_position and x is not None else None
        if expected is not None and found is not None:
            ragged.require_same_lengths(name, found, expected, "y_pred")
    padding = {"ids": "y_true", "y_pred": "x"}
    return {
        name: ragged.padded(padding.get(name, name), x, deep=True)
        if ragged.is_ragged(x)
        else x
        for name, x in given.items()
    }


def _check_weights(shape: tuple[int | None, ...], axes: list[int | None]) -> None:
    """Raises for weights that are none of sequences or of positions."""
    of_positions = tuple(axes)
    accepted = [(), of_positions[:1], (of_positions[0], 1), of_positions]
    if not any(sizes_agree(shape, each) for each in (*accepted, (*of_positions, 1))):
        raise ValueError(
            "`sample_weight` should be a number, or have the shape (batch,), (batch, "
            "1) or (batch, time), where each position has scores. Received: "
            f"sample_weight.shape={shape} for positions of shape {of_positions}"
        )


def _flat(
    axes: int,
    ids: Tensor,
    labels: Tensor | None,
    mask: Tensor | None,
    scores: Tensor,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor, Tensor]:
    """Ids, labels, mask, scores and weights of lists, given those of positions."""
    ids, labels, mask, scores, weights = map(
        as_tensor, (ids, labels, mask, scores, weights)
    )
    # A comparison with NaN is False.
    has_target = ids >= 0
    if labels is not None:
        has_target = ops.logical_or(has_target, ids == NO_CANDIDATE)
        has_target = ops.logical_and(has_target, labels >= 0)
    if mask is not None:
        has_target = ops.logical_and(has_target, ops.cast(mask, "bool"))
    if len(ids.shape) > axes:
        has_target = ops.any(has_target, axis=-1)
    if weights is None:
        weights = ops.cast(has_target, "float32")
    else:
        shape = ops.shape(weights)[:axes]
        weights = ops.reshape(weights, (*shape, *(1,) * (axes - len(shape))))
        weights = backend.where(has_target, weights, 0.0)
    per_position = ops.shape(ids)[axes:] or (1,)
    flat = (
        None if x is None else ops.reshape(x, (-1, *per_position))
        for x in (ids, labels, mask)
    )
    scores = ops.reshape(scores, (-1, size_of(scores, axes)))
    return (*flat, scores, ops.reshape(weights, (-1,)))
