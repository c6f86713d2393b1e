"""Prepares lists for a metric: pads, masks, excludes."""

import numbers
import reprlib
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import check_positive
from keras_rank.arrays.arithmetic import size_of
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists import tensors
from keras_rank.lists.ids import are_items, checked_ids, to_ids
from keras_rank.lists.reading import check_told_apart


def pad_lists(
    values: Any,
    *,
    group_sizes: Any = None,
    group_ids: Any = None,
    padding_value: float = -1.0,
    list_size: int | None = None,
) -> np.ndarray[Any, Any]:
    """Turns flat rows, such as those of svmlight files, into lists of equal size.

    Either `group_sizes` or `group_ids` is required.

    Args:
        values: array of shape `(rows,)` or `(rows, features)`: labels, scores or
            features.
        group_sizes: ints of shape `(batch,)`. The number of rows of each list, as for
            LightGBM and XGBoost.
        group_ids: array of shape `(rows,)`. The list that each row belongs to, as `qid`
            in svmlight files. Lists come in the order of their first rows.
        padding_value: number. The value that pads shorter lists. Defaults to -1, the
            label of padding.
        list_size: int. The size of all lists. Longer ones are truncated to their first
            rows. Defaults to `None`: the size of the longest.

    Returns:
        A NumPy array of shape `(batch, list_size)` or `(batch, list_size, features)`.

    Raises:
        ValueError: if neither or both of sizes and ids are given, they don't match the
            rows, or an id is missing.

    Example:

    >>> keras_rank.utils.pad_lists([2, 0, 1], group_sizes=[1, 2])
    array([[ 2., -1.],
           [ 0.,  1.]], dtype=float32)
    >>> groups = ["a", "b", "a"]
    >>> keras_rank.utils.pad_lists([2, 0, 1], group_ids=groups, padding_value=0)
    array([[2, 1],
           [0, 0]])
    """
    values = _rows("values", values)
    group, place = _places(len(values), group_sizes, group_ids)
    if not isinstance(padding_value, numbers.Real):
        raise ValueError(
            "`padding_value` should be a number. "
            f"Received: padding_value={padding_value!r}"
        )
    size = int(place.max(initial=-1)) + 1
    if list_size is not None:
        size = check_positive("list_size", list_size, "a positive integer or None")
    lists = int(group.max(initial=-1)) + 1 if group_sizes is None else len(group_sizes)
    dtype = values.dtype
    # Integers stay integers if the padding is one.
    if dtype.kind != "f" and np.asarray(padding_value).dtype.kind not in "iu":
        fits = np.array_equal(values.astype("float32"), values)
        dtype = np.dtype("float32" if fits else "float64")
    padded = np.full((lists, size, *values.shape[1:]), padding_value, dtype)
    kept = place < size
    padded[group[kept], place[kept]] = values[kept]
    return padded


def unpad_lists(
    values: Any, *, group_sizes: Any = None, group_ids: Any = None
) -> np.ndarray[Any, Any]:
    """Turns padded lists back into flat rows: the inverse of `pad_lists`.

    Args:
        values: array of shape `(batch, list_size)` or `(batch, list_size, features)`.
        group_sizes: as given to `pad_lists`.
        group_ids: as given to `pad_lists`.

    Returns:
        A NumPy array of shape `(rows,)` or `(rows, features)`, in the order of the
        rows.

    Raises:
        ValueError: if neither or both of sizes and ids are given, or lists were
            truncated.

    Example:

    >>> scores = [[0.5, 0.0], [0.1, 0.2]]
    >>> keras_rank.utils.unpad_lists(scores, group_sizes=[1, 2])
    array([0.5, 0.1, 0.2])
    """
    values = _rows("values", values)
    group, place = _places(None, group_sizes, group_ids)
    lists, longest = int(group.max(initial=-1)) + 1, int(place.max(initial=-1)) + 1
    if values.ndim < 2 or len(values) < lists or values.shape[1] < longest:
        raise ValueError(
            "`values` should have the shape (batch, list_size, ...), with the number "
            "and size of the lists that the groups describe. "
            f"Received: {lists} groups of up to {longest} rows, "
            f"values.shape={values.shape}"
        )
    rows: Array = values[group, place]
    return rows


def _rows(argument: str, values: Any) -> Array:
    tensors.check_dense(argument, values)
    values = ops.convert_to_numpy(values) if ops.is_tensor(values) else values
    try:
        array = np.asarray(values)
        received = f"{argument} of shape {array.shape} and dtype {array.dtype}"
    except ValueError:
        array, received = np.asarray(None), f"{argument}={reprlib.repr(values)}"
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"`{argument}` should be an array of numbers with one row per item. "
            f"Received: {received}"
        )
    return tensors.in_native_order(array)


def _places(rows: int | None, group_sizes: Any, group_ids: Any) -> tuple[Array, Array]:
    """Returns, for each row, its list and its place in it.

    The number of rows is `None` if only the groups determine it.
    """
    if (group_sizes is None) == (group_ids is None):
        raise ValueError(
            "Either `group_sizes` or `group_ids` should be given. Received: "
            f"group_sizes={reprlib.repr(group_sizes)}, "
            f"group_ids={reprlib.repr(group_ids)}"
        )
    tensors.check_dense("group_sizes", group_sizes)
    tensors.check_dense("group_ids", group_ids)
    if group_ids is not None:
        return _places_by_id(rows, np.asarray(group_ids))
    sizes = np.asarray(group_sizes)
    are_integers = sizes.dtype.kind in "iu" or sizes.size == 0
    # As int64, as NumPy takes no unsigned numbers for places.
    sizes = sizes.astype("int64") if are_integers else sizes
    if sizes.ndim != 1 or not are_integers or np.any(sizes < 0):
        raise ValueError(
            "`group_sizes` should be integers of 0 or more, one per list. "
            f"Received: group_sizes={reprlib.repr(group_sizes)}"
        )
    if rows is not None and sizes.sum() != rows:
        raise ValueError(
            "`group_sizes` should add up to the number of rows. Received: "
            f"a sum of {sizes.sum()} for {rows} rows"
        )
    return np.repeat(np.arange(len(sizes)), sizes), _numbered(sizes)


def _places_by_id(rows: int | None, ids: Array) -> tuple[Array, Array]:
    rows = ids.size if rows is None else rows
    if ids.shape != (rows,):
        raise ValueError(
            "`group_ids` should have one id per row. Received: "
            f"group_ids.shape={ids.shape} for {rows} rows"
        )
    try:
        by_id = _sorting(ids)
        are_known = bool(np.all(ids == ids))
    except TypeError:
        # Ids of several types, such as None, have no order.
        are_known = False
    if not are_known:
        raise ValueError(
            "`group_ids` should be ids of one type, without missing ones. "
            f"Received: group_ids={reprlib.repr(ids.tolist())}"
        )
    is_first = np.concatenate([[True], ids[by_id[1:]] != ids[by_id[:-1]]])[:rows]
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=rows)
    # In the order of their first rows, not of the ids.
    number = np.argsort(np.argsort(by_id[starts]))
    group, place = np.empty(rows, int), np.empty(rows, int)
    group[by_id], place[by_id] = np.repeat(number, sizes), _numbered(sizes)
    return group, place


def _numbered(sizes: Array) -> Array:
    """The numbers from 0 on in each list of a size."""
    ends = np.cumsum(sizes)
    numbers: Array = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
    return numbers


def _sorting(ids: Array) -> Array:
    """The positions that sort ids; equal ones keep their order."""
    is_integer = ids.dtype.kind in "iu" and ids.size > 0
    if not (is_integer and int(ids.max()) - int(ids.min()) < 2**32):
        return np.argsort(ids, kind="stable")
    # NumPy sorts 16-bit integers by counting, ten times as fast as by comparing.
    offsets = ids.astype("uint32") - np.uint32(int(ids.min()) % 2**32)
    order = np.argsort(offsets.astype("uint16"), kind="stable")
    high = (offsets >> np.uint32(16)).astype("uint16")
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def exclude_items(y_pred: Any, item_ids: Any, *, keep: Any = None) -> Tensor:
    """Sets the scores of items to -inf, which means that they are not retrieved.

    For example, items that the user has already seen are then not ranked.

    Args:
        y_pred: scores of shape `(batch, items)`.
        item_ids: ids of shape `(batch, n)`, padded with -1. The items to exclude. Or a
            sparse matrix of SciPy of shape `(batch, items)`, whatever values it stores.
        keep: ids of shape `(batch,)` or `(batch, m)`, padded with -1, or such a matrix.
            Items that keep their scores even if they are in `item_ids`, such as the
            targets.

    Returns:
        A tensor of the shape of `y_pred`.

    Raises:
        ValueError: if shapes don't match, or an id is not below the number of items. In
            compiled code, such an id is ignored. Or if `item_ids` is a dense matrix
            with a column for each item, which compiled code reads as ids.

    Example:

    >>> seen, target = [[0, 2, -1]], [2]
    >>> scores = keras_rank.utils.exclude_items([[3.0, 2.0, 1.0]], seen, keep=target)
    >>> [float(score) for score in scores[0]]
    [-inf, 2.0, 1.0]
    """
    scores = tensors.to_tensor("y_pred", y_pred)
    items = scores.shape[1] if len(scores.shape) == 2 else None
    ids = to_ids("item_ids", item_ids, items)
    if not keras.backend.is_float_dtype(scores.dtype):
        scores = tensors.ranked_as(scores)
    batch, is_matrix = scores.shape[:1], len(scores.shape) == len(ids.shape) == 2
    if not (is_matrix and tensors.sizes_agree(batch, ids.shape[:1])):
        raise ValueError(
            "`y_pred` should have the shape (batch, items) and `item_ids` the shape "
            f"(batch, n). Received: y_pred.shape={tuple(scores.shape)}, "
            f"item_ids.shape={tuple(ids.shape)}"
        )
    kept = None
    if keep is not None:
        kept = to_ids("keep", keep, items)
        kept = kept[:, None] if len(kept.shape) == 1 else kept
        is_matrix = len(kept.shape) == 2
        if not (is_matrix and tensors.sizes_agree(kept.shape[:1], ids.shape[:1])):
            raise ValueError(
                "`keep` should have the shape (batch,) or (batch, m). Received: "
                f"keep.shape={tuple(kept.shape)}, item_ids.shape={tuple(ids.shape)}"
            )
    return backend.enter(_excluded, None, scores, ids, kept)


def _excluded(_: None, scores: Tensor, ids: Tensor, kept: Tensor | None) -> Tensor:
    items = size_of(scores, 1)
    columns = _columns_of("item_ids", ids, items)
    excluded = columns >= 0
    if kept is not None:
        kept = _columns_of("keep", kept, items)
        is_kept = ops.any(columns[:, :, None] == kept[:, None, :], axis=2)
        excluded = ops.logical_and(excluded, ops.logical_not(is_kept))
    # Padding is written to an extra column, which is cut off.
    columns = backend.where(excluded, columns, items)
    # Not `ops.arange`, as the size of the batch may not be known.
    rows = ops.cumsum(ops.ones_like(columns), axis=0) - 1
    places = ops.reshape(ops.stack([rows, columns], axis=2), (-1, 2))
    nothing = ops.cast(ops.zeros_like(places[:, 0]), scores.dtype) + float("-inf")
    widened = ops.pad(scores, [(0, 0), (0, 1)])
    return ops.scatter_update(widened, places, nothing)[:, :-1]


def _columns_of(argument: str, ids: Tensor, items: Tensor | int) -> Tensor:
    """Ids of items as int32, with -1 for all that are none."""
    ids = checked_ids((argument, items), ids)
    is_item = ops.logical_and(are_items(ids, items), ids >= 0)
    return ops.cast(backend.where(is_item, ids, -1), "int32")


def mask_labels(labels: Any, mask: Any) -> Tensor:
    """Sets labels to -1, which means padding, where the mask is False.

    Keras passes only labels to the metrics of `compile`, so this is a way to pass a
    mask.

    Args:
        labels: tensor of shape `(list_size,)` or `(batch, list_size)`, or
            `(batch, list_size, subtopics)`.
        mask: tensor of the same shape, but without subtopics. False where there is no
            item.

    Returns:
        A tensor of the shape of the labels: of the integers that were given, or of
        floats.

    Example:

    >>> from keras import ops
    >>> labels = keras_rank.utils.mask_labels([[2, 1, 0]], [[True, True, False]])
    >>> [[int(label) for label in row] for row in labels]
    [[2, 1, -1]]
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        # Before JAX makes floats of them.
        check_told_apart("labels", labels, sparse_labels=False)
    labels = tensors.to_tensor("labels", labels)
    dtype = keras.backend.standardize_dtype(labels.dtype)
    if dtype == "bool" or dtype.startswith("uint"):
        # Which have no -1.
        labels = ops.cast(labels, "float32")
    mask = ops.cast(tensors.to_tensor("mask", mask), "bool")
    if len(labels.shape) == 3 and len(mask.shape) == 2:
        mask = mask[:, :, None]
        sizes = (*labels.shape[:2], 1)
    else:
        sizes = labels.shape
    if not tensors.sizes_agree(mask.shape, sizes):
        raise ValueError(
            "`mask` should have the same shape as `labels`. Received: "
            f"mask.shape={tuple(mask.shape)}, labels.shape={tuple(labels.shape)}"
        )
    return backend.where(mask, labels, -1.0)
