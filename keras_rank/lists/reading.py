"""Reads what users pass to a metric: checks its shapes, and converts it to tensors."""

import reprlib
import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend
from keras_rank.lists import ragged
from keras_rank.lists.ids import check_kind, is_matrix, stored_in, to_ids
from keras_rank.lists.positions import are_at_positions, lists_of_positions
from keras_rank.lists.tensors import (
    check_values,
    is_sparse,
    shape_of,
    sizes_agree,
    to_array,
)

# What to do where a row is an item, not a list.
_SINGLE = (
    "n lists of one item: make lists of single items by "
    "`keras_rank.utils.pad_lists(scores, group_ids=...)`, or in `fit` by "
    "`keras_rank.callbacks.GroupedEvaluation`"
)


# Of labels, as higher numbers may be scores.
_HIGHEST_GRADE = 5


class RawBatch(NamedTuple):
    """What users pass, with matching shapes.

    Attributes:
        labels: tensor of shape `(batch, list_size)`, of shape
            `(batch, list_size, subtopics)`, or ids, `(batch, targets)`.
        scores: tensor of shape `(batch, list_size)`, or `(batch, items)`.
        mask: tensor of the shape of the scores, or `None`.
        weights: tensor of a shape that broadcasts with the scores, or `None`.
        grades: tensor of the shape of the ids: their labels, or `None`.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor | None
    weights: Tensor | None
    grades: Tensor | None = None


def read(
    y_true: Any, y_pred: Any, sample_weight: Any = None, takes_subtopics: bool = False
) -> RawBatch:
    """Converts what users pass to a metric, and checks its shapes.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
        takes_subtopics: whether labels may have another axis, of subtopics.
    """
    labels, mask = _labels_and_mask(y_true)
    labels, scores, mask, weights = ragged.rectangular(
        y_true=labels,
        y_pred=y_pred,
        mask=mask,
        sample_weight=sample_weight,
        deep=("y_true",) * takes_subtopics,
    )
    labels, scores = _lists("y_true", labels, takes_subtopics), _lists("y_pred", scores)
    like = labels
    if takes_subtopics and len(labels.shape) == len(scores.shape) + 1:
        _require_subtopics(labels, scores)
        like = scores
    if len(like.shape) not in (1, 2):
        raise ValueError(
            "`y_true` should have the shape (list_size,) or (batch, list_size). "
            f"Received: y_true.shape={shape_of(labels)}"
        )
    _require_same_shape("y_pred", scores, like)
    if mask is not None:
        mask = _lists("mask", mask)
        _require_same_shape("mask", mask, like)
    if weights is not None:
        weights = _fitting(_lists("sample_weight", weights), like)
    given = RawBatch(labels, scores, mask, weights)
    if len(scores.shape) == 1:
        as_batch = (x if x is None or not x.shape else x[None] for x in given)
        given = RawBatch(*as_batch)
    return given


def warn_of_first_batch(given: RawBatch, y_true: Any, y_pred: Any) -> None:
    """Warns of lists of one item, if no mask or ragged type says that they are lists.

    They are what a model returns that scores single items. Warns of labels in the place
    of scores, too, as in the order of torchmetrics.
    """
    if _seem_swapped(given.labels, given.scores):
        warnings.warn(
            "`y_true` has fractions, and `y_pred` only small whole numbers, as labels "
            "are: are they swapped? The order of Keras is (y_true, y_pred).",
            stacklevel=2,
        )
    lists, items = given.scores.shape
    is_dense = given.mask is None and not any(map(ragged.is_ragged, (y_true, y_pred)))
    if items == 1 and lists != 1 and is_dense:
        warnings.warn(
            "One item has no order, so that most metrics are the share of relevant "
            f"items. Labels and scores of shape (n, 1) are {_SINGLE}. See "
            "docs/rows.md.",
            stacklevel=2,
        )


def _seem_swapped(labels: Tensor, scores: Tensor) -> bool:
    """Whether labels look like scores, and scores like labels, where both are seen.

    A model may return 0 and 1 as floats, or the places of items, and labels may be
    halves. So floats have to be grades above 1, which need 0 and a gap or a repetition,
    and most labels have to be other fractions.
    """
    are_floats = [keras.backend.is_float_dtype(x.dtype) for x in (labels, scores)]
    # To read scores from a device would take long.
    takes_long = are_floats[1] and backend.on_accelerator()
    are_seen = backend.is_concrete(labels) and backend.is_concrete(scores)
    if not (are_floats[0] and are_seen) or takes_long:
        return False
    try:
        given, numbers = map(ops.convert_to_numpy, (labels, scores))
    except RuntimeError:
        # Within `torch.func`.
        return False
    # The first list of scores tells, unless they are labels.
    for some in (numbers[:1], numbers):
        is_grade = (some >= -1) & (some <= _HIGHEST_GRADE) & (some == np.floor(some))
        if not (some.size and np.all(is_grade)):
            return False
    parts = np.abs(np.modf(given)[0])
    if numbers.max() <= 1:
        return not are_floats[1] and bool(np.any(parts > 0))
    are_places = numbers.min() > 0 or np.all(np.diff(np.sort(numbers)) == 1)
    return not are_places and bool(np.mean((parts > 0) & (parts != 0.5)) > 0.5)


def read_sparse(y_true: Any, y_pred: Any, sample_weight: Any = None) -> RawBatch:
    """Converts the ids of relevant items, and the scores of a catalogue.

    Scores may also be those at every position: see `lists_of_positions`.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or
            a dict with the keys `"ids"`, `"labels"` and `"mask"`, or stacked ids and
            labels, of shape `(batch, targets, 2)`, or a sparse matrix of labels, of
            shape `(batch, items)`.
        y_pred: scores of shape `(batch, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
    """
    if are_at_positions(y_pred):
        y_true, y_pred, sample_weight = lists_of_positions(
            y_true, y_pred, sample_weight
        )
    scores = _lists("y_pred", y_pred)
    items = scores.shape[1] if len(scores.shape) == 2 else None
    ids, labels, mask = read_ids("y_true", y_true, items)
    if len(scores.shape) != 2 or len(ids.shape) not in (1, 2):
        raise ValueError(
            "With `sparse_labels=True`, `y_true` should have the shape (batch,) or "
            "(batch, targets) and `y_pred` the shape (batch, items). Received: "
            f"y_true.shape={shape_of(ids)}, y_pred.shape={shape_of(scores)}"
        )
    if len(ids.shape) == 1:
        ids, labels, mask = (
            None if x is None else x[:, None] for x in (ids, labels, mask)
        )
    if not sizes_agree(shape_of(ids)[:1], shape_of(scores)[:1]):
        raise ValueError(
            "`y_true` and `y_pred` should have the same number of lists. Received: "
            f"y_true.shape={shape_of(ids)}, y_pred.shape={shape_of(scores)}"
        )
    return RawBatch(ids, scores, mask, weights_of_lists(sample_weight, ids), labels)


def check_told_apart(argument: str, value: Any, sparse_labels: bool) -> None:
    """Raises for different labels of a list that tie as they are compared."""
    tied = tied_labels(argument, value, sparse_labels)
    if tied is not None:
        raise ValueError(tied)


def tied_labels(argument: str, value: Any, sparse_labels: bool) -> str | None:
    """What is wrong if different labels of a list tie as they are compared, or `None`.

    Args:
        argument: the name of the argument.
        value: labels, as for `read`; or ids and their labels, as for `read_sparse`.
            Those that are traced can't be seen, and those on a device are read only
            where it has no float64.
        sparse_labels: which of both.
    """
    if isinstance(value, keras.KerasTensor):
        return None
    if sparse_labels:
        _, labels, _ = _ids_labels_and_mask(argument, value, 0)
    else:
        labels, _ = _labels_and_mask(value)
    (labels,) = ragged.rectangular(y_true=labels)
    dtype = backend.widest("float64")
    is_on_device = ops.is_tensor(labels) and not isinstance(labels, np.ndarray)
    if labels is None or (dtype == "float64" and is_on_device):
        return None
    is_traced = ops.is_tensor(labels) and not backend.is_concrete(labels)
    if is_sparse(labels) or is_traced or not np.ndim(labels):
        return None
    labels = np.asarray(labels)
    are_whole, whole = labels.dtype.kind in "iu", 2 ** (np.finfo(dtype).nmant + 1)
    is_exact = not are_whole and np.can_cast(labels.dtype, dtype)
    if is_exact or (are_whole and labels.max(initial=0) <= whole):
        return None
    if labels.dtype.kind not in "iuf":
        return None
    in_order = np.sort(labels, axis=-1)
    compared = in_order.astype(dtype)
    differ, tie = (
        in_order[..., 1:] != in_order[..., :-1],
        compared[..., 1:] == compared[..., :-1],
    )
    if not np.any(differ & tie & (in_order[..., :-1] >= 0)):
        return None
    way_out = "subtract the same number from all labels of a list"
    if dtype == "float32":
        way_out += (
            ', or call `jax.config.update("jax_enable_x64", True)`, as JAX has no '
            "float64 unless asked for"
        )
    return (
        f"`{argument}` should hold labels that {dtype} tells apart: {way_out}. "
        f"Received: different labels in a list that {dtype} rounds to the same"
    )


def read_ids(
    argument: str, value: Any, items: int | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns ids, and their labels and mask if there are any, of the same shape.

    Args:
        argument: the name of the argument.
        value: what users pass.
        items: the number of items, `None` if it is unknown in a graph, 0 to leave it
            unchecked.
    """
    ids, labels, mask = _ids_labels_and_mask(argument, value, items)
    check_kind(argument, ids, items)
    ids, labels, mask = ragged.rectangular(y_true=ids, labels=labels, mask=mask)
    ids = _lists(argument, to_ids(argument, ids, items))
    if labels is not None:
        labels = _lists("labels", labels)
        _require_same_shape("labels", labels, ids)
    if mask is not None:
        mask = _lists("mask", mask)
        _require_same_shape("mask", mask, ids)
    return ids, labels, mask


def _ids_labels_and_mask(
    argument: str, value: Any, items: int | None
) -> tuple[Any, Any, Any]:
    if is_matrix(value):
        return *stored_in(argument, value, items), None
    if not isinstance(value, dict):
        # A nested tensor of torch may have no shape.
        is_ragged = ragged.is_ragged_tensor(value)
        shape = () if is_ragged else tuple(getattr(value, "shape", ()))
        if len(shape) == 3 and shape[2] == 2:
            return value[:, :, 0], value[:, :, 1], None
        return value, None, None
    unknown = sorted(str(key) for key in value if key not in ("ids", "labels", "mask"))
    # Those of `y_true` may be meant as of dense lists.
    if unknown and ("ids" in value or argument != "y_true"):
        keys, unknown_keys = map(reprlib.repr, (list(value), unknown))
        raise ValueError(
            f'`{argument}` should be ids, or a dict with the keys "ids", "labels" '
            f'(optional) and "mask" (optional). Received: {argument} with the keys '
            f"{keys}, of which {unknown_keys} are unknown"
        )
    if "ids" not in value:
        # The ids take the place of the labels of dense lists.
        ids, mask = _labels_and_mask(value)
        if mask is None:
            return _ids_labels_and_mask(argument, ids, items)
        value = {"ids": ids, "mask": mask}
    ids, labels, mask = value["ids"], value.get("labels"), value.get("mask")
    if is_matrix(ids) and (labels is not None or mask is not None):
        raise ValueError(
            f"`{argument}` should have no labels or mask beside a sparse matrix of "
            "ids: the labels are the values of a matrix that is given by itself. "
            f"Received: {argument} with the keys {list(value)}"
        )
    for part, given in (("labels", labels), ("mask", mask)):
        if is_sparse(given):
            raise ValueError(
                f"`{part}` should hold real numbers. Received: {part} of type "
                f"{type(given).__name__}, which is sparse: give it in the shape of the "
                "ids"
            )
    return ids, labels, mask


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


def _lists(argument: str, value: Any, takes_subtopics: bool = False) -> Tensor:
    """Converts to a tensor, without the last axis of size 1 that `Dense(1)` returns.

    It is also detached from torch's gradients.
    """
    check_values(argument, value)
    x = to_array(argument, value)
    x = backend.detached(x) if ops.is_tensor(x) else x
    try:
        rank = len(x.shape)
    except ValueError as error:
        # TensorFlow may not know it in a graph.
        raise ValueError(
            f"`{argument}` should have a known number of axes, such as after "
            f"`tf.ensure_shape`. Received: {argument} of unknown rank"
        ) from error
    if rank != 3 or (takes_subtopics and x.shape[2] != 1):
        return x
    if x.shape[2] not in (1, None):
        raise ValueError(
            f"`{argument}` should have one number for each item, in the shape "
            "(batch, list_size) or (batch, list_size, 1). Where each position of "
            "(batch, time, items) is a list, give the ids of its relevant items with "
            "`sparse_labels=True`, or reshape scores and labels to (batch * time, "
            "items). "
            f"Received: {argument}.shape={shape_of(x)}"
        )
    if isinstance(x, np.ndarray):
        return x[:, :, 0]
    # `ops.squeeze` fails for an axis of unknown size in a graph.
    return ops.reshape(x, ops.shape(x)[:2])


def _require_subtopics(labels: Tensor, scores: Tensor) -> None:
    """Raises unless labels have an axis of subtopics beside those of the scores."""
    *sizes, subtopics = shape_of(labels)
    if subtopics == 0 or not sizes_agree(sizes, shape_of(scores)):
        raise ValueError(
            "`y_true` should have the shape of `y_pred`, and one more axis, of one "
            "subtopic or more: (batch, list_size, subtopics). Received: "
            f"y_true.shape={shape_of(labels)}, y_pred.shape={shape_of(scores)}"
        )


def _require_same_shape(argument: str, x: Tensor, labels: Tensor) -> None:
    if not sizes_agree(x.shape, labels.shape):
        # The scores of a model of single items: with labels reshaped to match, the
        # shapes would be those of lists of one item.
        are_single = argument == "y_pred" and shape_of(x)[1:] == (1,)
        hint = f"Scores of shape (n, 1) are {_SINGLE}. "
        raise ValueError(
            f"`{argument}` should have the same shape as `y_true`, a row for each list "
            f"with a number for each item. {hint if are_single else ''}Received: "
            f"{argument}.shape={shape_of(x)}, y_true.shape={shape_of(labels)}"
        )


def weights_of_lists(sample_weight: Any, ids: Tensor) -> Tensor | None:
    """Converts weights of lists, of shape `()` or `(batch, 1)`."""
    if sample_weight is None:
        return None
    lists = shape_of(ids)[0]
    return _of_shape(
        _lists("sample_weight", sample_weight),
        [(), (lists, 1)],
        "a number or have one weight per list, of shape (batch,) or (batch, 1), where "
        "relevant items are given by their ids",
        f"ids of shape {shape_of(ids)}",
    )


def _fitting(weights: Tensor, labels: Tensor) -> Tensor:
    """Checks that there is a weight for each item or each list."""
    shape = shape_of(labels)
    received = f"y_true.shape={shape}"
    if len(shape) == 1:
        expected = "a number or have the same shape as `y_true`"
        return _of_shape(weights, [(), shape], expected, received)
    return _of_shape(
        weights,
        [(), (shape[0], 1), shape],
        "a number, have one weight per list, of shape (batch,) or (batch, 1), or have "
        "the same shape as `y_true`, (batch, list_size)",
        received,
    )


def _of_shape(
    weights: Tensor, accepted: list[tuple[Any, ...]], expected: str, received: str
) -> Tensor:
    """Checks the shape of weights, of which those of a vector become a column."""
    given = shape_of(weights)
    if len(given) == 1 and len(accepted[-1]) == 2:
        weights = weights[:, None]
    if not any(sizes_agree(shape_of(weights), sizes) for sizes in accepted):
        raise ValueError(
            f"`sample_weight` should be {expected}. Received: "
            f"sample_weight.shape={given}, {received}"
        )
    return weights
