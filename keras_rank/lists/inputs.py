"""Checks and casts what users pass, and makes lists of equal size."""

import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import at_most, where
from keras_rank.arrays.backends import (
    Tensor,
    constant,
    is_of_few_shapes,
    is_traced,
    size_of,
    widest,
    without_gradient,
)
from keras_rank.arrays.programs import enlarged, program, rounded_up
from keras_rank.lists import ragged
from keras_rank.lists.base import LARGEST_WEIGHT, smallest_normal, within_limits
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.ids import (
    are_items,
    are_repeated,
    check_items,
    check_kind,
    check_no_matrix,
    is_matrix,
    stored_in,
    to_ids,
)
from keras_rank.lists.sparse import SparseLists, TargetLists
from keras_rank.lists.tensors import (
    as_tensor,
    cast_finite,
    check_values,
    is_sparse,
    ranked_as,
    shape_of,
    sizes_agree,
    to_array,
    wide_or_none,
)

# The smallest sizes that are rounded up to: lists and items.
_FEWEST_LISTS, _FEWEST_ITEMS = 8, 32

# What to do where a row is an item, not a list.
_SINGLE = (
    "n lists of one item: make lists of single items by "
    "`keras_rank.utils.pad_lists(scores, group_ids=...)`, outside `fit`"
)

# The id of a relevant item that is not in the catalogue: it is never found.
NO_CANDIDATE = -2


class Given(NamedTuple):
    """What users pass, with matching shapes.

    Attributes:
        labels: tensor of shape `(batch, list_size)`, or ids, `(batch, targets)`.
        scores: tensor of shape `(batch, list_size)`, or `(batch, items)`.
        mask: tensor of the shape of the labels, or `None`.
        weights: tensor of a shape that broadcasts with the labels, or `None`.
        grades: tensor of the shape of the ids: their labels, or `None`.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor | None
    weights: Tensor | None
    grades: Tensor | None = None


def read(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Given:
    """Converts what users pass to a metric, and checks its shapes.

    Args:
        y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
            uneven length, or a dict with the keys `"labels"` and `"mask"`.
        y_pred: scores of the same shape.
        sample_weight: `None`, a number, or weights of shape `(batch,)`,
            `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single list.
    """
    labels, mask = _labels_and_mask(y_true)
    labels, scores, mask, weights = ragged.rectangular(
        y_true=labels, y_pred=y_pred, mask=mask, sample_weight=sample_weight
    )
    labels, scores = _lists("y_true", labels), _lists("y_pred", scores)
    if len(labels.shape) not in (1, 2):
        raise ValueError(
            "`y_true` should have the shape (list_size,) or (batch, list_size). "
            f"Received: y_true.shape={shape_of(labels)}"
        )
    _require_same_shape("y_pred", scores, labels)
    if mask is not None:
        mask = _lists("mask", mask)
        _require_same_shape("mask", mask, labels)
    if weights is not None:
        weights = _fitting(_lists("sample_weight", weights), labels)
    given = Given(labels, scores, mask, weights)
    if len(labels.shape) == 1:
        as_batch = (x if x is None or not x.shape else x[None] for x in given)
        given = Given(*as_batch)
    return given


def warn_of_single_items(given: Given, y_true: Any, y_pred: Any) -> None:
    """Warns of lists of one item, if no mask or ragged type says that they are lists.

    They are what a model returns that scores single items.
    """
    lists, items = given.labels.shape
    is_dense = given.mask is None and not any(map(ragged.is_ragged, (y_true, y_pred)))
    if items == 1 and lists != 1 and is_dense:
        warnings.warn(
            "One item has no order, so that most metrics are the share of relevant "
            f"items. Labels and scores of shape (n, 1) are {_SINGLE}. See "
            "docs/rows.md.",
            stacklevel=2,
        )


def read_sparse(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Given:
    """Converts the ids of relevant items, and the scores of a catalogue.

    Args:
        y_true: ids of shape `(batch,)` or `(batch, targets)`, padded with -1, or
            a dict with the keys `"ids"`, `"labels"` and `"mask"`, or stacked ids and
            labels, of shape `(batch, targets, 2)`, or a sparse matrix of labels, of
            shape `(batch, items)`.
        y_pred: scores of shape `(batch, items)`.
        sample_weight: `None`, a number, or weights of shape `(batch,)` or
            `(batch, 1)`.
    """
    scores = _lists("y_pred", y_pred)
    items = scores.shape[1] if len(scores.shape) == 2 else None
    ids, labels, mask = _read_ids("y_true", y_true, items)
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
    return Given(ids, scores, mask, _weights_of_lists(sample_weight, ids), labels)


def of_few_shapes(given: Given, sparse_labels: bool = False) -> Given:
    """Pads to one of a few shapes, as a program is compiled for each."""
    if not is_of_few_shapes(*(x for x in given if x is not None)):
        return given
    lists, items = given.labels.shape
    if not sparse_labels:
        sizes = rounded_up(lists, _FEWEST_LISTS), rounded_up(items, _FEWEST_ITEMS)
        return _with_shape(given, sizes)
    if given.labels.shape == given.scores.shape:
        # The check for labels of all items needs the original shape.
        return given
    # Only targets, as an additional list would count.
    return _with_shape(given, (lists, rounded_up(items, 1)))


def _with_shape(given: Given, shape: tuple[int, int]) -> Given:
    """Pads tensors of the shape of the labels, or with one row per list."""
    labels, lists = given.labels, given.labels.shape[0]
    if str(labels.dtype).startswith(("bool", "uint")):
        # Which have no -1, that says where there is padding.
        labels = cast_finite(labels, "float32")

    def padded(x: Tensor | None, fill: float) -> Tensor | None:
        if x is None or shape_of(x)[:1] != (lists,):
            return x
        sizes = [
            new if size == old else size
            for size, old, new in zip(x.shape, given.labels.shape, shape, strict=True)
        ]
        return x if x.shape == tuple(sizes) else enlarged(x, tuple(sizes), fill)

    others = (padded(x, 0) for x in given[1:])
    return Given(padded(labels, -1), *others)


@program
def lists_of(kind: tuple[bool, str], given: Given) -> DenseLists | SparseLists:
    """Returns lists, given whether their labels are sparse, and their dtype."""
    sparse_labels, dtype = kind
    return (sparse_lists if sparse_labels else dense_lists)(dtype, given)


def dense_lists(dtype: str, given: Given) -> DenseLists:
    """Casts what users pass to a metric, and determines which positions are items.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        given: what users pass.

    Returns:
        `DenseLists`, all of whose tensors have the shape `(batch, list_size)`.
    """
    labels, scores, mask, weights, _ = map(as_tensor, given)
    wide = wide_or_none(labels, dtype)
    labels, scores = cast_finite(labels, dtype), ranked_as(scores)
    if mask is not None:
        mask = ops.cast(mask, "bool")
    if weights is not None:
        weights = ops.broadcast_to(cast_finite(weights, dtype), ops.shape(labels))
    if labels.shape[1] in (0, None):
        # A position of padding changes no number, and spares every operation
        # the case of an axis of size 0, as one of unknown size may be.
        wide = None if wide is None else ranked_as(wide)
        labels, scores, mask, weights, wide = (
            None if x is None else ops.pad(x, [(0, 0), (0, 1)], constant_values=fill)
            for x, fill in (
                *((labels, -1), (scores, 0), (mask, 0), (weights, 0)),
                (wide, -1),
            )
        )
    return DenseLists(labels, scores, mask, weights, wide)


def sparse_lists(dtype: str, given: Given) -> SparseLists:
    """Casts the ids of relevant items, and the scores of a catalogue.

    Args:
        dtype: the dtype of labels and weights: float32 or float64.
        given: what users pass.

    Returns:
        `SparseLists`. An id that is given twice in a list counts once.
    """
    ids, scores, mask, weights, labels = map(as_tensor, given)
    ids, labels = _of_lists(*_targets(ids, labels, mask))
    if labels is None:
        check_no_matrix("y_true", ids, scores.shape[1], are_relevant=True)
    items = size_of(scores, 1)
    if is_traced(ids):
        # The ids can't be seen later.
        check_items("y_true", ids, items)
    are_in_catalogue = are_items(ids, items)
    lists = _target_lists(ids, labels, are_in_catalogue, items, weights, dtype)
    if scores.shape[1] == 0:
        # An item that was not retrieved avoids an axis of size 0.
        scores = ops.pad(ranked_as(scores), [(0, 0), (0, 1)], constant_values=-np.inf)
    return SparseLists(
        **lists.fields(),
        all_scores=ranked_as(scores),
        given_ids=ids,
        are_ids=ops.all(are_in_catalogue),
    )


def check_told_apart(argument: str, value: Any, sparse_labels: bool) -> None:
    """Raises for different labels of a list that tie as they are compared.

    Args:
        argument: the name of the argument.
        value: labels, as for `read`; or ids and their labels, as for `read_sparse`.
            Those that are traced can't be seen, and those on a device are read only
            where it has no float64.
        sparse_labels: which of both.
    """
    if isinstance(value, keras.KerasTensor):
        return
    if sparse_labels:
        _, labels, _ = _ids_labels_and_mask(argument, value, 0)
    else:
        labels, _ = _labels_and_mask(value)
    (labels,) = ragged.rectangular(y_true=labels)
    dtype = widest("float64")
    is_on_device = ops.is_tensor(labels) and not isinstance(labels, np.ndarray)
    if labels is None or (dtype == "float64" and is_on_device):
        return
    if is_sparse(labels) or is_traced(labels) or not np.ndim(labels):
        return
    labels = np.asarray(labels)
    is_exact = np.can_cast(labels.dtype, dtype)
    if labels.dtype.kind not in "iuf" or (is_exact and labels.max(initial=0) <= 2**53):
        return
    in_order = np.sort(labels, axis=-1)
    compared = in_order.astype(dtype)
    differ, tie = (
        in_order[..., 1:] != in_order[..., :-1],
        compared[..., 1:] == compared[..., :-1],
    )
    if np.any(differ & tie & (in_order[..., :-1] >= 0)):
        way_out = "subtract the same number from all labels of a list"
        if dtype == "float32":
            way_out += (
                ', or call `jax.config.update("jax_enable_x64", True)`, as JAX has no '
                "float64 unless asked for"
            )
        raise ValueError(
            f"`{argument}` should hold labels that {dtype} tells apart: {way_out}. "
            f"Received: different labels in a list that {dtype} rounds to the same"
        )


def standardize_targets(
    targets: Any, items: int, sample_weight: Any = None, dtype: str = "float32"
) -> TargetLists:
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
        `TargetLists`. An id that is given twice in a list counts once.
    """
    ids, labels, mask = _read_ids("targets", targets, items)
    if len(ids.shape) not in (1, 2):
        raise ValueError(
            "`targets` should have the shape (batch,) or (batch, targets). Received: "
            f"targets.shape={shape_of(ids)}"
        )
    weights = _weights_of_lists(sample_weight, ids)
    return _targets_of((items, dtype), ids, labels, mask, weights)


@program
def _targets_of(
    catalogue: tuple[int, str],
    ids: Tensor,
    labels: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
) -> TargetLists:
    items, dtype = catalogue
    ids, labels, mask, weights = map(as_tensor, (ids, labels, mask, weights))
    ids, labels = _of_lists(*_targets(ids, labels, mask))
    if labels is None:
        check_no_matrix("targets", ids, items, are_relevant=True)
    check_items("targets", ids, items)
    return _target_lists(ids, labels, are_items(ids, items), items, weights, dtype)


def read_targets(argument: str, value: Any) -> tuple[Tensor, Tensor | None]:
    """Returns ids, and their labels if there are any, of the same shape.

    The id is below 0 where there is no target: if it is masked, or its label is not
    above 0. With labels, `NO_CANDIDATE` is the id of a target that is not among the
    items.
    """
    return _targets(*map(as_tensor, _read_ids(argument, value, 0)))


def _read_ids(
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


def _targets(
    ids: Tensor, labels: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Returns ids, below 0 where there is no target, and the labels of targets."""
    is_float = keras.backend.is_float_dtype(ids.dtype)
    if labels is None and mask is None and not is_float:
        return ids, None
    # A comparison with NaN is False.
    is_target = ids >= 0
    if labels is not None:
        labels = ranked_as(labels)
        is_target = ops.logical_or(is_target, ids == NO_CANDIDATE)
        is_worth = labels >= smallest_normal(labels)
        is_target = ops.logical_and(is_target, is_worth)
        labels = where(is_worth, labels, 0.0)
    if mask is not None:
        is_target = ops.logical_and(is_target, ops.cast(mask, "bool"))
    return where(is_target, ids, -1), labels


def _of_lists(ids: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Ids and labels of shape `(batch, targets)`, of one target or more."""
    if len(ids.shape) == 1:
        ids, labels = (None if x is None else x[:, None] for x in (ids, labels))
    if ids.shape[1] == 0:
        ids = ops.pad(ids, [(0, 0), (0, 1)], constant_values=-1)
        labels = None
    return ids, labels


def _target_lists(
    ids: Tensor,
    labels: Tensor | None,
    are_in_catalogue: Tensor,
    items: Tensor | int,
    weights: Tensor | None,
    dtype: str,
) -> TargetLists:
    is_target = ids >= 0 if labels is None else ids != -1
    has_items = True
    # A branch: torch.compile can't make a tensor of a condition on an unknown size.
    if isinstance(items, int) and items == 0:
        has_items = False
    counts = ops.broadcast_to(constant(has_items, is_target), (size_of(ids, 0),))
    if ids.shape[1] != 1:
        is_first = ops.logical_not(are_repeated(ids, labels))
        is_target = ops.logical_and(is_target, is_first)
    if weights is not None:
        weights = cast_finite(weights, dtype)
        weights = ops.broadcast_to(weights, (size_of(ids, 0), 1))
        is_weighed = weights >= smallest_normal(weights)
        counts = ops.logical_and(counts, is_weighed[:, 0])
        is_target = ops.logical_and(is_target, is_weighed)
        weights = where(is_weighed, at_most(weights, LARGEST_WEIGHT), 0.0)
    can_be_found = ops.logical_and(is_target, are_in_catalogue)
    targets, wide_targets = ops.cast(is_target, dtype), None
    if labels is not None:
        can_be_found = ops.logical_and(can_be_found, ids >= 0)
        wide_targets = wide_or_none(labels, dtype)
        if wide_targets is not None:
            wide_targets = where(is_target, within_limits(wide_targets), 0.0)
        targets = where(is_target, within_limits(cast_finite(labels, dtype)), 0.0)
    return TargetLists(
        targets=targets,
        wide_targets=wide_targets,
        is_target=is_target,
        list_weights=weights,
        # Only now, as a large id might change.
        ids=ops.cast(where(can_be_found, ids, 0), "int32"),
        can_be_found=can_be_found,
        counts=counts,
        # Without targets, one that was not retrieved avoids an axis of size 0.
        items=items if has_items else 1,
    )


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
    if "ids" not in value:
        # The ids take the place of the labels of dense lists.
        ids, mask = _labels_and_mask(value)
        if mask is None:
            return _ids_labels_and_mask(argument, ids, items)
        value = {"ids": ids, "mask": mask}
    unknown = sorted(str(key) for key in value if key not in ("ids", "labels", "mask"))
    if unknown:
        raise ValueError(
            f'`{argument}` should be ids, or a dict with the keys "ids", "labels" '
            f'(optional) and "mask" (optional). Received: {argument} with the keys '
            f"{list(value)}, of which {unknown} are unknown"
        )
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


def _lists(argument: str, value: Any) -> Tensor:
    """Converts to a tensor, without the last axis of size 1 that `Dense(1)` returns.

    It is also detached from torch's gradients.
    """
    check_values(argument, value)
    x = to_array(argument, value)
    x = without_gradient(x) if ops.is_tensor(x) else x
    try:
        rank = len(x.shape)
    except ValueError as error:
        # TensorFlow may not know it in a graph.
        raise ValueError(
            f"`{argument}` should have a known number of axes, such as after "
            f"`tf.ensure_shape`. Received: {argument} of unknown rank"
        ) from error
    if rank != 3:
        return x
    if x.shape[2] not in (1, None):
        raise ValueError(
            f"`{argument}` should have one number for each item, in the shape "
            "(batch, list_size) or (batch, list_size, 1). Where each position of "
            "(batch, time, items) is a list, reshape everything to lists: scores and "
            "labels to (batch * time, items), ids to (batch * time,). "
            f"Received: {argument}.shape={shape_of(x)}"
        )
    if isinstance(x, np.ndarray):
        return x[:, :, 0]
    # `ops.squeeze` fails for an axis of unknown size in a graph.
    return ops.reshape(x, ops.shape(x)[:2])


def _require_same_shape(argument: str, x: Tensor, labels: Tensor) -> None:
    if not sizes_agree(shape_of(x), shape_of(labels)):
        # The scores of a model of single items: with labels reshaped to match, the
        # shapes would be those of lists of one item.
        are_single = argument == "y_pred" and shape_of(x)[1:] == (1,)
        hint = f"Scores of shape (n, 1) are {_SINGLE}. "
        raise ValueError(
            f"`{argument}` should have the same shape as `y_true`, a row for each list "
            f"with a number for each item. {hint if are_single else ''}Received: "
            f"{argument}.shape={shape_of(x)}, y_true.shape={shape_of(labels)}"
        )


def _weights_of_lists(sample_weight: Any, ids: Tensor) -> Tensor | None:
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
