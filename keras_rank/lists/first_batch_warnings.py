"""Warnings about values in the first batch of a metric, which eager code can read."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.ids import NO_CANDIDATE
from keras_rank.lists.inputs import SINGLE_ITEMS_ADVICE, Inputs, RawBatch
from keras_rank.lists.tensors import to_numpy_or_none

# Labels that mark padding in this package (-1) or in other libraries (-100).
_PADDING = (-1, -100)


def get_first_batch_warnings(
    inputs: Inputs,
    sparse_labels: bool,
    metrics: Sequence[Any],
    should_check_weights: bool,
) -> Iterator[str]:
    """Yields warnings about values that are valid but probably not intended.

    Values are not checked if inputs them would wait for a device.

    Args:
        inputs: the lists.
        sparse_labels: whether the labels are ids.
        metrics: the metrics of the lists.
        should_check_weights: whether to check weights too.
    """
    batch = inputs.batch
    weights = None if batch.weights is None else _read_values(batch.weights)
    if not sparse_labels:
        yield from get_row_warnings(inputs)
    is_weighted = _is_weighted(batch, weights)
    is_included = _combine_masks(
        is_weighted, batch.mask, None if sparse_labels else batch.layer_mask
    )
    labels = batch.grades if sparse_labels else batch.labels
    labels = None if labels is None else _read_values(labels)
    if should_check_weights and weights is not None:
        is_unmasked = None if sparse_labels else _is_in_masks(batch, labels)
        yield from _get_weight_warnings(weights, is_unmasked)
    if labels is not None and is_included is not None:
        yield from _get_label_warnings(labels, is_included, sparse_labels, metrics)
    if sparse_labels:
        is_scored = _combine_masks(is_weighted, batch.layer_mask)
    else:
        is_scored = None if labels is None else _is_item(labels, is_included)
    yield from _get_score_warnings(batch.scores, is_scored)
    if sparse_labels and batch.mask is None:
        yield from _get_low_id_warnings(batch)
    if sparse_labels and inputs.labels is None and not inputs.has_positions:
        yield from _get_empty_list_warnings(batch, metrics)


def warn(messages: Iterable[str]) -> None:
    """Issues a warning for each distinct message."""
    for message in dict.fromkeys(messages):
        warnings.warn(message, stacklevel=2)


def _read_values(x: Tensor) -> Array | None:
    """Returns real numbers or booleans as an array, or `None` if they can't be read."""
    if not hasattr(x, "shape") or not backend.is_cheap_to_read(x):
        return None
    array = to_numpy_or_none(x)
    has_numbers = array is not None and array.size and array.dtype.kind in "iufb"
    return array if has_numbers else None


def _is_weighted(batch: RawBatch, weights: Array | None) -> Array | None:
    """Returns whether weights are above 0, or `None` if they can't be read."""
    if batch.weights is None:
        return np.array(True)
    return None if weights is None else weights > 0


def _combine_masks(condition: Array | None, *masks: Tensor | None) -> Array | None:
    """Returns whether a condition and all masks hold, or `None` if not known."""
    for mask in masks:
        values = np.array(True) if mask is None else _read_values(mask)
        if values is None or condition is None:
            return None
        if values.ndim == 1:
            # A mask may have one entry per list.
            values = values[:, None]
        condition = condition & values.astype(bool)
    return condition


def _is_item(labels: Array, is_included: Array | None) -> Array | None:
    """Returns whether entries are items, or `None` if that is not known."""
    if is_included is None:
        return None
    has_label = labels >= 0
    return is_included & (has_label.any(axis=2) if labels.ndim == 3 else has_label)


@np.errstate(invalid="ignore")
def _get_label_warnings(
    labels: Array, is_included: Array, sparse_labels: bool, metrics: Sequence[Any]
) -> Iterator[str]:
    """Yields warnings about labels that are all irrelevant, all relevant or negative.

    Args:
        labels: array of shape `(batch, list_size)`, `(batch, list_size, subtopics)` or
            `(batch, targets)`.
        is_included: boolean array whose shape broadcasts with the labels. False for
            items that are masked or have a weight of 0.
        sparse_labels: whether the items without a label have the label 0.
        metrics: the metrics of the labels.
    """
    is_included = (
        is_included[..., None] if labels.ndim == 3 and is_included.ndim else is_included
    )
    included = labels[np.broadcast_to(is_included, labels.shape)]
    negative = included[(included < 0) & ~np.isin(included, _PADDING)]
    if negative.size:
        yield (
            f"Labels below 0 are padding, and some are not -1: {negative.size} of the "
            f"first batch, such as {negative[0]:.4g}. If they are labels, add the same "
            "number to all labels so that the lowest is 0. Mark padding by -1."
        )
    items = included[included >= 0]
    if not items.size:
        return
    lowest, highest = float(items.min()), float(items.max())
    thresholds = [metric.relevance_threshold or 0.0 for metric in metrics]
    if 0.0 < highest < min(1.0, max(thresholds, default=0.0)):
        yield (
            f"No label reaches `relevance_threshold={max(thresholds)}`: the highest is "
            f"{highest:.4g}, so that no item is relevant. Pass a lower threshold."
        )
    constant_metrics = [
        metric for metric in metrics if metric._has_equal_relevance_from(lowest)
    ]
    if constant_metrics and lowest < highest and not sparse_labels:
        names = ", ".join(repr(metric.name) for metric in constant_metrics[:10])
        yield (
            f"All items are relevant to {names}: labels are {lowest:.4g} to "
            f"{highest:.4g} in the first batch, and `relevance_threshold` is "
            f"{constant_metrics[0].relevance_threshold}. Pass a higher threshold, such "
            f"as `{type(constant_metrics[0]).__name__}"
            f"(relevance_threshold={highest:.4g})`."
        )


def _get_score_warnings(scores: Tensor, is_scored: Array | None) -> Iterator[str]:
    """Yields a warning if scores of items are NaN."""
    values = None if is_scored is None else _read_values(scores)
    if values is None or is_scored is None or values.dtype.kind != "f":
        return
    number = int(np.sum(np.isnan(values) & is_scored))
    if number:
        yield (
            f"`y_pred` has {number} NaN among {values.size} scores of the first batch. "
            "These items have no rank, which can raise the result. Check the model, "
            "and score items that were not retrieved `-inf`."
        )


def _get_low_id_warnings(batch: RawBatch) -> Iterator[str]:
    """Yields a warning about ids below 0, which may have overflowed a small dtype."""
    ids = _read_values(batch.labels)
    if ids is None or ids.dtype.kind != "i":
        return
    # `NO_CANDIDATE` marks a graded relevant item that is not a candidate.
    accepted = _PADDING if batch.grades is None else (*_PADDING, NO_CANDIDATE)
    if np.any((ids < 0) & ~np.isin(ids, accepted)):
        yield (
            f"Ids below -1 are padding, like -1: the lowest is {ids.min()}. Such ids "
            "may have wrapped in a small integer type."
        )


def _is_in_masks(batch: RawBatch, labels: Array | None) -> Array | None:
    """Returns whether entries are unmasked items, or `None` if that is not known."""
    masks = _combine_masks(np.array(True), batch.mask, batch.layer_mask)
    return None if labels is None else _is_item(labels, masks)


def _get_weight_warnings(weights: Array, is_item: Array | None) -> Iterator[str]:
    """Yields warnings about weights of items that are NaN or negative.

    Args:
        weights: the weights of lists or items.
        is_item: whether entries are items, or `None` if that is not known.
    """
    is_used = np.array(True) if is_item is None else is_item
    if weights.shape != is_used.shape:
        # Weights of lists are checked for the lists that have items.
        has_two_axes = weights.ndim == 2 and is_used.ndim == 2
        axis = 1 if has_two_axes else None
        is_used = np.asarray(is_used.any(axis=axis, keepdims=has_two_axes))
    for name, number in (
        ("NaN", np.sum(np.isnan(weights) & is_used)),
        ("negative weights", np.sum((weights < 0) & is_used)),
    ):
        if number:
            yield (
                f"`sample_weight` has {name} in the first batch: {number} of "
                f"{weights.size}. The mean leaves out their lists or items, as with a "
                "weight of 0. Pass weights of 0 or more."
            )


def _get_empty_list_warnings(batch: RawBatch, metrics: Sequence[Any]) -> Iterator[str]:
    """Yields a warning about lists without ids, which may be positions of sequences."""
    ids = _read_values(batch.labels)
    if ids is None or batch.weights is not None or batch.scores.shape[1] == 0:
        # Lists without ids may have a weight of 0, so weighted lists are not checked.
        return
    num_empty = int(np.sum(np.all(~(ids >= 0), axis=1)))
    for metric in metrics:
        is_explicit = metric.empty_value != 0.0 or metric.empty_weight != "average"
        if num_empty and not is_explicit:
            yield (
                f"{num_empty} of {len(ids)} lists have no relevant item, as all their "
                f"ids are -1, and count as 0 in {metric.name!r}. To leave them out, as "
                "positions of sequences without an id, pass `empty_value=None`."
            )
            break


def get_row_warnings(inputs: Inputs) -> Iterator[str]:
    """Yields a warning about lists of one item, which are often rows of single items.

    There is no warning if a mask or a ragged type marks them as lists.
    """
    batch = inputs.batch
    lists, items = batch.scores.shape
    if items == 1 and lists != 1 and not inputs.rows_are_lists:
        yield (
            "One item has no order, so that most metrics are the share of relevant "
            f"items. Labels and scores of shape (n, 1) are {SINGLE_ITEMS_ADVICE}. See "
            "docs/rows.md."
        )
