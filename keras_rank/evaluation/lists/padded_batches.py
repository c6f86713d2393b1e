"""Values of lists, computed in padded batches of lists of similar length.

The columns of `health` are computed from the same batches.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from keras import ops
from scipy import stats

from keras_rank.arrays.arithmetic import float_limits
from keras_rank.backends import Array, backend
from keras_rank.evaluation.lists import result_columns
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.evaluation.lists.trec_eval_measures import IPrec
from keras_rank.lists.inputs import Inputs, check_distinguishable, read
from keras_rank.lists.standardize import bucket_shapes
from keras_rank.metrics import update
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import BPref
from keras_rank.metrics.update import group_by
from keras_rank.ranking.base import TIE_BOUNDS, Ties

# Arrays of padded lists, or of the values of lists, by name.
Batch: TypeAlias = dict[str, Array]
# The names of arrays with -1 at padding.
_LABEL_ARRAYS = {"label", "judgment", "judged", "subtopics"}
# The maximum size of a batch of several padded lists, so that CPU caches can hold it.
_MAX_POSITIONS = 2**17
# Scores with smaller absolute values are ranked as 0.
_SMALLEST_NORMAL = float_limits("float64").smallest_normal
# The maximum ratio of the padded size of a batch to the size of its shortest list.
_MAX_PADDING_RATIO = 1.4


def compute_list_values(
    settings: Settings,
    items: Batch,
    starts: Array,
    sizes: Array,
    list_hashes: Array,
) -> Batch:
    """Returns the columns of values, weights and health, by name.

    Args:
        settings: the metrics and the order of their ties.
        items: arrays of shape `(items,)`, by name.
        starts: int array of shape `(lists,)`. The index of the first item of each list.
        sizes: int array of the same shape. The number of items of each list.
        list_hashes: int32 array of the same shape. The keys of the shuffle of ties.
    """
    columns: Batch = {}
    for indices, size in _split_into_batches(sizes):
        offsets = np.arange(size)
        is_item = offsets < sizes[indices, None]
        positions = starts[indices, None] + np.where(is_item, offsets, 0)
        batch = {name: values[positions] for name, values in items.items()}
        for name in _LABEL_ARRAYS & batch.keys():
            batch[name][~is_item] = -1.0
        for name, values in _compute_batch(
            settings, batch, list_hashes[indices]
        ).items():
            if name not in columns:
                columns[name] = np.empty(len(starts), values.dtype)
            columns[name][indices] = values
    return columns


def _compute_batch(settings: Settings, batch: Batch, list_hashes: Array) -> Batch:
    """Returns the columns of the lists of a padded batch."""
    metrics, ties = settings.metrics, settings.tie_order
    columns: Batch = {}
    health = _compute_batch_health(batch, metrics)
    item_labels = np.where(batch["label"] >= 0.0, 1.0, -1.0)
    batch = batch | {"score": _convert_scores(batch["score"]), "item": item_labels}
    # The values with each order of ties are stored in float32, the precision of most
    # metrics, as the columns of these values take most of the memory.
    spread: Batch = {}
    for metric, has_relevant, values, weights in _compute_metrics(
        metrics, batch, list_hashes, ties
    ):
        columns[metric.name] = values
        if "weight" in batch or metric.list_weight != "mean":
            columns[result_columns.METRIC_WEIGHT.format(metric.name)] = weights
        columns[result_columns.RELEVANT.format(metric.name)] = has_relevant
        for order in result_columns.ORDERS:
            spread[result_columns.SPREAD.format(metric.name, order)] = values.astype(
                "float32"
            )
    if health["ties"].any():
        _set_spread(spread, metrics, batch, np.flatnonzero(health["ties"]))
    return (
        columns
        | {result_columns.HEALTH + name: x for name, x in health.items()}
        | spread
    )


def _set_spread(
    spread: Batch,
    metrics: Sequence[RankingMetric],
    batch: Batch,
    indices: Array,
) -> None:
    """Sets the values of lists with each order of their ties.

    Args:
        spread: the arrays whose values are set, by the names of their columns.
        metrics: the metrics.
        batch: the padded batch.
        indices: int array. The indices of the lists with ties in the batch.
    """
    # Metrics that are bounds over ties have one value, which all columns contain.
    metrics = [metric for metric in metrics if metric._ties not in TIE_BOUNDS]
    tied = {name: x[indices] for name, x in batch.items() if name != "place"}
    list_hashes = np.zeros(len(indices), np.int32)
    column = result_columns.SPREAD.format
    for ties in result_columns.ORDERS:
        for metric, _, values, _ in _compute_metrics(metrics, tied, list_hashes, ties):
            spread[column(metric.name, ties)][indices] = values
    for metric in metrics:
        # The best order may have the lower value: one more relevant item may reduce a
        # precision averaged over retrieved items, or a value with weights of items.
        worst, best = (spread[column(metric.name, x)] for x in ("worst", "best"))
        low, high = np.minimum(worst, best), np.maximum(worst, best)
        is_up = metric._direction == "up"
        worst[:], best[:] = (low, high) if is_up else (high, low)
        if isinstance(metric, IPrec):
            # The mean of a maximum over all orders has no formula.
            spread[column(metric.name, "average")][indices] = np.nan


def _read_lists(batch: Batch, label: str) -> Inputs:
    """Returns the inputs of a metric from a padded batch.

    Args:
        batch: the padded batch.
        label: the name of the array of labels.
    """
    has_subtopics, score = label == "subtopics", batch["score"]
    if has_subtopics:
        score = batch.get("place", score)
    reading = read(batch[label], score, batch.get("weight"), has_subtopics)
    # The weights of a table belong to items, also in lists of one item.
    lists = reading.batch._replace(list_weights=None)
    return reading._replace(batch=bucket_shapes(lists))


def _convert_scores(scores: Array) -> Array:
    """Returns scores of the same order and ties that the backend does not round.

    If the backend lacks float64, scores that float32 would round are replaced by their
    dense ranks in the list.
    """
    if scores.dtype != "float64" or backend.supported_dtype("float64") == "float64":
        return scores
    with np.errstate(over="ignore"):
        if np.array_equal(scores, scores.astype("float32"), equal_nan=True):
            return scores
    is_ranked, is_tiny = scores > -np.inf, np.abs(scores) < _SMALLEST_NORMAL
    compared = np.where(is_ranked, np.where(is_tiny, 0.0, scores), -np.inf)
    return np.where(is_ranked, stats.rankdata(compared, "dense", axis=1), scores)


def _compute_metrics(
    metrics: Sequence[RankingMetric],
    batch: Batch,
    list_hashes: Array,
    ties: Ties | None,
) -> Iterator[tuple[RankingMetric, Array, Array, Array]]:
    """Yields metrics with their results.

    A result has three arrays of shape `(lists,)`: whether the list has relevant items,
    the value of the list, and the weight of the list.

    Args:
        metrics: the metrics.
        batch: the padded batch.
        list_hashes: int32 array of shape `(lists,)`. The keys of the shuffle of ties.
        ties: the order of ties, `None` for the order of each metric.
    """
    for label, label_metrics in group_by(metrics, _get_label_name).items():
        lists, labels, *_ = _read_lists(batch, label)
        # The keys of the shuffle are hashes of queries, so that the shuffle of a list
        # does not depend on the position of the list in the table.
        padded = np.pad(list_hashes, (0, lists.labels.shape[0] - len(list_hashes)))
        keys = ops.convert_to_tensor(padded)
        for indices in update.group_by_inputs(label_metrics).values():
            members = [label_metrics[index] for index in indices]
            if any(metric._compares_labels for metric in members):
                check_distinguishable(labels, "label")
            spec = update.UpdateSpec.from_metrics(members, ties)
            results = backend.run_program(
                update.compute_values, lists, spec.keys, keys, spec=spec
            )
            for metric, result in zip(members, results, strict=True):
                has_relevant, values, weights = (
                    ops.convert_to_numpy(x)[: len(list_hashes)] for x in result
                )
                # The weight is NaN if the list gets the average weight of other lists.
                has_weight = has_relevant | metric._weighs_empty_lists
                weights = np.where(has_weight, weights, np.nan).astype("float64")
                yield metric, has_relevant, values.astype("float64"), weights


def _get_label_name(metric: RankingMetric) -> str:
    """Returns the name of the labels that a metric reads."""
    if metric.takes_subtopics:
        return "subtopics"
    # An item without a judgment is always padding for `BPref`. For other metrics, it
    # depends on `unjudged`.
    labels = "judgment" if isinstance(metric, BPref) else "label"
    return getattr(metric, "_reads", labels)


def _compute_batch_health(batch: Batch, metrics: Sequence[RankingMetric]) -> Batch:
    """Returns the columns of health for a padded batch."""
    is_item, has_score = batch["label"] >= 0.0, batch["score"] > -np.inf
    is_judged = batch["judged"] > 0.0
    is_retrieved = is_item & has_score
    retrieved_scores = np.where(is_retrieved, batch["score"], -np.inf)
    sorted_scores = np.sort(retrieved_scores, axis=1)[:, ::-1]
    retrieved = is_retrieved.sum(axis=1).astype(np.int32)
    tied = (sorted_scores[:, 1:] == sorted_scores[:, :-1]) & (
        sorted_scores[:, 1:] > -np.inf
    )
    columns: Batch = {
        "retrieved": retrieved,
        "unjudged": (retrieved > 0) & ~np.any(is_retrieved & is_judged, axis=1),
        "constant": (np.sum(tied, axis=1) == retrieved - 1) & (retrieved > 1),
        "ties": np.any(tied, axis=1),
    }
    for k in sorted({metric.k for metric in metrics if metric.k is not None}):
        all_false = np.zeros(len(tied), bool)
        columns[f"tied@{k}"] = tied[:, k - 1] if k <= tied.shape[1] else all_false
        lowest = sorted_scores[:, min(k, sorted_scores.shape[1]) - 1, None]
        columns[f"judged@{k}"] = _compute_judged_share(
            is_judged, retrieved_scores, lowest, retrieved, k
        )
    # All orders of a list are equally good if all items were retrieved, and have the
    # same label above 0 or are all relevant to a binary metric.
    lowest = np.min(batch["label"], axis=1, where=is_item, initial=np.inf)
    highest = np.max(batch["label"], axis=1)
    thresholds = [m.relevance_threshold for m in metrics if m._relevance.is_binary]
    lowest_threshold = min(
        (level for level in thresholds if level is not None), default=np.inf
    )
    is_equal = (lowest >= lowest_threshold) | ((lowest == highest) & (lowest > 0.0))
    columns["only relevant"] = np.all(has_score | ~is_item, axis=1) & is_equal
    return columns


def _compute_judged_share(
    is_judged: Array, scores: Array, lowest: Array, retrieved: Array, k: int
) -> Array:
    """Returns the share of the first k items that have a judgment, NaN without items.

    If the cutoff divides a group of tied items, the number of judged items among the
    first k is the average over all orders of the group.

    Args:
        is_judged: bool array of shape `(lists, size)`.
        scores: array of the same shape, -inf for items that were not retrieved.
        lowest: array of shape `(lists, 1)`. The lowest score among the first k items.
        retrieved: int array of shape `(lists,)`. The number of retrieved items.
        k: the cutoff.
    """
    is_above, is_tied = scores > lowest, (scores == lowest) & (scores > -np.inf)
    num_above, num_tied = is_above.sum(axis=1), is_tied.sum(axis=1)
    num_first = np.minimum(retrieved, k)
    num_judged = (is_above & is_judged).sum(axis=1)
    num_judged_tied = (is_tied & is_judged).sum(axis=1)
    num_judged = num_judged + num_judged_tied * (num_first - num_above) / np.maximum(
        num_tied, 1
    )
    share = np.where(num_first > 0, num_judged / np.maximum(num_first, 1), np.nan)
    return np.asarray(share, "float32")


def _split_into_batches(sizes: Array) -> Iterator[tuple[Array, int]]:
    """Yields the indices of lists of similar size, with their padded size."""
    padded_sizes = [1]
    while padded_sizes[-1] < sizes.max():
        padded_sizes.append(
            max(padded_sizes[-1] + 1, int(padded_sizes[-1] * _MAX_PADDING_RATIO))
        )
    size_classes = np.searchsorted(padded_sizes, sizes)
    sorted_indices = np.argsort(size_classes, kind="stable")
    for class_indices in np.split(
        sorted_indices, np.flatnonzero(np.diff(size_classes[sorted_indices])) + 1
    ):
        size = padded_sizes[size_classes[class_indices[0]]]
        batch_size = max(1, _MAX_POSITIONS // size)
        for start in range(0, len(class_indices), batch_size):
            yield class_indices[start : start + batch_size], size
