"""Warnings about the first batch of a metric, whose values only eager code can see."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.ids import NO_CANDIDATE
from keras_rank.lists.inputs import SINGLE, RawBatch, Reading
from keras_rank.lists.tensors import seen

# Labels that mark padding here, and labels that other libraries ignore.
_PADDING = (-1, -100)


def warnings_of_first_batch(
    reading: Reading,
    sparse_labels: bool,
    metrics: Sequence[Any],
    warns_of_weights: bool,
) -> Iterator[str]:
    """Yields warnings about values that are valid but probably not intended.

    Values that Python can't see without waiting for a device are not inspected.

    Args:
        reading: the lists.
        sparse_labels: whether they are lists of ids.
        metrics: the metrics that get them.
        warns_of_weights: whether to inspect weights too.
    """
    given = reading.batch
    weights = None if given.weights is None else _values(given.weights)
    if not sparse_labels:
        yield from warnings_of_rows(reading)
    is_weighted = _is_weighted(given, weights)
    is_kept = _all_of(
        is_weighted, given.mask, None if sparse_labels else given.layer_mask
    )
    labels = given.grades if sparse_labels else given.labels
    labels = None if labels is None else _values(labels)
    if warns_of_weights and weights is not None:
        is_kept_by_mask = None if sparse_labels else _kept_by_masks(given, labels)
        yield from _of_weights(weights, is_kept_by_mask)
    if labels is not None and is_kept is not None:
        yield from _of_labels(labels, is_kept, sparse_labels, metrics)
    if sparse_labels:
        is_scored = _all_of(is_weighted, given.layer_mask)
    else:
        is_scored = None if labels is None else _is_item(labels, is_kept)
    yield from _of_scores(given.scores, is_scored)
    if sparse_labels and given.mask is None:
        yield from _of_low_ids(given)
    if sparse_labels and reading.labels is None and not reading.at_positions:
        yield from _of_no_targets(given, metrics)


def warn(messages: Iterable[str]) -> None:
    """Warns of each message once."""
    for message in dict.fromkeys(messages):
        warnings.warn(message, stacklevel=2)


def _values(x: Tensor) -> Array | None:
    """Returns real numbers or booleans as an array, `None` where there are none."""
    if not hasattr(x, "shape") or not backend.is_at_hand(x):
        return None
    array = seen(x)
    has_numbers = array is not None and array.size and array.dtype.kind in "iufb"
    return array if has_numbers else None


def _is_weighted(given: RawBatch, weights: Array | None) -> Array | None:
    """Returns where weights are above 0, `None` if they are not visible."""
    if given.weights is None:
        return np.array(True)
    return None if weights is None else weights > 0


def _all_of(condition: Array | None, *masks: Tensor | None) -> Array | None:
    """Returns where a condition and all masks hold, `None` if any is not visible."""
    for mask in masks:
        values = np.array(True) if mask is None else _values(mask)
        if values is None or condition is None:
            return None
        if values.ndim == 1 and condition.ndim == 2:
            values = values[:, None]
        condition = condition & values.astype(bool)
    return condition


def _is_item(labels: Array, is_kept: Array | None) -> Array | None:
    """Returns where the items are, `None` if that is not visible."""
    if is_kept is None:
        return None
    has_label = labels >= 0
    return is_kept & (has_label.any(axis=2) if labels.ndim == 3 else has_label)


@np.errstate(invalid="ignore")
def _of_labels(
    labels: Array, is_kept: Array, sparse_labels: bool, metrics: Sequence[Any]
) -> Iterator[str]:
    """Yields warnings about labels that are all irrelevant, all relevant, or negative.

    Args:
        labels: labels of shape `(batch, list_size)`, `(batch, list_size, subtopics)` or
            `(batch, targets)`.
        is_kept: where masks and weights leave an item, of a shape that broadcasts.
        sparse_labels: whether all other items have the label 0.
        metrics: the metrics of these labels.
    """
    is_kept = is_kept[..., None] if labels.ndim == 3 and is_kept.ndim else is_kept
    kept = labels[np.broadcast_to(is_kept, labels.shape)]
    odd = kept[(kept < 0) & ~np.isin(kept, _PADDING)]
    if odd.size:
        yield (
            f"Labels below 0 are padding, and some are not -1: {odd.size} of the first "
            f"batch, such as {odd[0]:.4g}. If they are labels, add the same number to "
            "all labels so that the lowest is 0. Mark padding by -1."
        )
    items = kept[kept >= 0]
    if not items.size:
        return
    lowest, highest = float(items.min()), float(items.max())
    thresholds = [metric.relevance_threshold or 0.0 for metric in metrics]
    if 0.0 < highest < min(1.0, max(thresholds, default=0.0)):
        yield (
            f"No label reaches `relevance_threshold={max(thresholds)}`: the highest is "
            f"{highest:.4g}, so that no item is relevant. Pass a lower threshold."
        )
    reached = [metric for metric in metrics if metric._has_equal_relevance_from(lowest)]
    if reached and lowest < highest and not sparse_labels:
        names = ", ".join(repr(metric.name) for metric in reached[:10])
        yield (
            f"All items are relevant to {names}: labels are {lowest:.4g} to "
            f"{highest:.4g} in the first batch, and `relevance_threshold` is "
            f"{reached[0].relevance_threshold}. Pass a higher threshold, such as "
            f"`{type(reached[0]).__name__}(relevance_threshold={highest:.4g})`."
        )


def _of_scores(scores: Tensor, is_scored: Array | None) -> Iterator[str]:
    """Yields a warning if items have NaN as their scores."""
    values = None if is_scored is None else _values(scores)
    if values is None or is_scored is None or values.dtype.kind != "f":
        return
    number = int(np.sum(np.isnan(values) & is_scored))
    if number:
        yield (
            f"`y_pred` has {number} NaN among {values.size} scores of the first batch. "
            "These items have no rank, which can raise the result. Check the model, "
            "and score items that were not retrieved `-inf`."
        )


def _of_low_ids(given: RawBatch) -> Iterator[str]:
    """Yields a warning about ids below 0 that may have wrapped in a small dtype."""
    ids = _values(given.labels)
    if ids is None or ids.dtype.kind != "i":
        return
    # `NO_CANDIDATE` marks a relevant item with a grade that is no candidate.
    accepted = _PADDING if given.grades is None else (*_PADDING, NO_CANDIDATE)
    if np.any((ids < 0) & ~np.isin(ids, accepted)):
        yield (
            f"Ids below -1 are no targets, as -1 is: the lowest is {ids.min()}. They "
            "may have wrapped in a small integer type."
        )


def _kept_by_masks(given: RawBatch, labels: Array | None) -> Array | None:
    """Returns where labels and masks leave an item, `None` if that is not visible."""
    masks = _all_of(np.array(True), given.mask, given.layer_mask)
    return None if labels is None else _is_item(labels, masks)


def _of_weights(weights: Array, is_item: Array | None) -> Iterator[str]:
    """Yields warnings about weights of items that are NaN or negative.

    Args:
        weights: the weights.
        is_item: where the items are, or `None` if that is not known.
    """
    is_used = np.array(True) if is_item is None else is_item
    if weights.shape != is_used.shape:
        # Weights of lists: of those that have any item.
        keep = weights.ndim == 2 and is_used.ndim == 2
        axis = 1 if keep else None
        is_used = np.asarray(is_used.any(axis=axis, keepdims=keep))
    for name, number in (
        ("NaN", np.sum(np.isnan(weights) & is_used)),
        ("negative weights", np.sum((weights < 0) & is_used)),
    ):
        if number:
            yield (
                f"`sample_weight` has {name} in the first batch: {number} of "
                f"{weights.size}. What they weigh is left out of the mean, as with a "
                "weight of 0. Pass weights of 0 or more."
            )


def _of_no_targets(given: RawBatch, metrics: Sequence[Any]) -> Iterator[str]:
    """Yields a warning about rows without an id, which may be positions, not lists."""
    ids = _values(given.labels)
    if ids is None or given.weights is not None or given.scores.shape[1] == 0:
        # Weights may be 0 where there is no list.
        return
    empty = int(np.sum(np.all(~(ids >= 0), axis=1)))
    for metric in metrics:
        is_chosen = metric.empty_value != 0.0 or metric.empty_weight != "average"
        if empty and not is_chosen:
            yield (
                f"{empty} of {len(ids)} lists have no relevant item, as all their ids "
                f"are -1, and count as 0 in {metric.name!r}. To leave them out, as "
                "positions of sequences without an id, pass `empty_value=None`."
            )
            break


def warnings_of_rows(reading: Reading) -> Iterator[str]:
    """Yields a warning about lists of one item, which a model of single items returns.

    There is none if a mask or a ragged type marks them as lists.
    """
    given = reading.batch
    lists, items = given.scores.shape
    if items == 1 and lists != 1 and not reading.are_lists:
        yield (
            "One item has no order, so that most metrics are the share of relevant "
            f"items. Labels and scores of shape (n, 1) are {SINGLE}. See "
            "docs/rows.md."
        )
