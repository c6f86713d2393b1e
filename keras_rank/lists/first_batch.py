"""What the first batch of a metric tells, and compiled code can't: it is warned of."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.ids import NO_CANDIDATE
from keras_rank.lists.reading import SINGLE, RawBatch, Reading
from keras_rank.lists.tensors import seen

# What pads here, and what other libraries ignore.
_PADDING = (-1, -100)


def warn_of_first_batch(
    reading: Reading,
    sparse_labels: bool,
    metrics: Sequence[Any],
    warns_of_weights: bool,
) -> None:
    """Warns of what is no error, but hardly meant, as far as values are seen.

    Args:
        reading: the lists.
        sparse_labels: whether they are lists of ids.
        metrics: the metrics that get them.
        warns_of_weights: whether to warn of weights too.
    """
    given = reading.batch
    if warns_of_weights:
        _warn_of_weights(given.weights)
    if not sparse_labels:
        warn_of_rows(reading)
    if reading.labels is not None:
        is_masked = given.mask is not None or given.layer_mask is not None
        _warn_of_labels(reading.labels.numbers, is_masked, metrics)
    if sparse_labels and given.mask is None:
        _warn_of_low_ids(given)
    if sparse_labels and reading.labels is None and not reading.at_positions:
        _warn_of_no_targets(given, metrics)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


def _seen(x: Tensor) -> Array | None:
    """Real numbers of a tensor, `None` where Python can't see any."""
    if not hasattr(x, "shape") or not backend.is_at_hand(x):
        return None
    array = seen(x)
    has_numbers = array is not None and array.size and array.dtype.kind in "iuf"
    return array if has_numbers else None


@np.errstate(invalid="ignore")
def _warn_of_labels(given: Any, is_masked: bool, metrics: Sequence[Any]) -> None:
    """Warns of labels that are relevant nowhere, or padding by chance."""
    labels = _seen(given)
    if labels is None:
        return
    highest = np.fmax.reduce(labels, axis=None)
    thresholds = [metric.relevance_threshold or 0.0 for metric in metrics]
    if 0.0 < highest < min(1.0, max(thresholds, default=0.0)):
        _warn(
            f"No label reaches `relevance_threshold={max(thresholds)}`: the highest is "
            f"{highest:.4g}, so that no item is relevant. Pass a lower threshold.",
        )
    compare = any(metric._compares_labels for metric in metrics)
    if compare and not is_masked and _have_odd(labels):
        _warn(
            "Labels below 0 are padding, and some are not -1. If they are labels, add "
            "the same number to all of a list: only their order counts.",
        )


def _have_odd(numbers: Array, *others: int) -> bool:
    """Whether some are below 0, but neither pad, here or elsewhere, nor are others."""
    return bool(np.any((numbers < 0) & ~np.isin(numbers, (*_PADDING, *others))))


def _warn_of_low_ids(given: RawBatch) -> None:
    """Warns of ids below 0 that may have wrapped, as in a small integer type."""
    ids = _seen(given.labels)
    # Graded ids have one more, of relevant items that are no candidates.
    others = () if given.grades is None else (NO_CANDIDATE,)
    if ids is not None and ids.dtype.kind == "i" and _have_odd(ids, *others):
        _warn(
            f"Ids below -1 are no targets, as -1 is: the lowest is {ids.min()}. They "
            "may have wrapped in a small integer type.",
        )


def _warn_of_weights(given: Tensor | None) -> None:
    """Warns of weights that are NaN: what they weigh is padding, as with 0."""
    weights = None if given is None else _seen(given)
    number = 0 if weights is None else int(np.sum(np.isnan(weights)))
    if number:
        _warn(
            f"`sample_weight` has {number} NaN in the first batch. What they weigh is "
            "left out of the mean, as with a weight of 0.",
        )


def _warn_of_no_targets(given: RawBatch, metrics: Sequence[Any]) -> None:
    """Warns of rows without an id, as positions without one are no lists."""
    ids = _seen(given.labels)
    if ids is None or given.weights is not None or given.scores.shape[1] == 0:
        # Weights may be 0 where there is no list.
        return
    empty = int(np.sum(np.all(~(ids >= 0), axis=1)))
    for metric in metrics:
        is_chosen = metric.empty_value != 0.0 or metric.empty_weight != "average"
        if empty and not is_chosen:
            _warn(
                f"{empty} of {len(ids)} lists have no relevant item, as all their ids "
                f"are -1, and count as 0 in {metric.name!r}. To leave them out, as "
                "positions of sequences without an id, pass `empty_value=None`.",
            )
            break


def warn_of_rows(reading: Reading) -> None:
    """Warns of lists of one item, if no mask or ragged type says that they are lists.

    They are what a model returns that scores single items.
    """
    given = reading.batch
    lists, items = given.scores.shape
    if items == 1 and lists != 1 and not reading.are_lists:
        _warn(
            "One item has no order, so that most metrics are the share of relevant "
            f"items. Labels and scores of shape (n, 1) are {SINGLE}. See "
            "docs/rows.md.",
        )
