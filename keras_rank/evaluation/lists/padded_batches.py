"""Values of lists, computed in padded batches of lists of similar length.

A batch goes through the formulas of the metrics, and the checks of `health`.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from keras import ops
from scipy import stats

from keras_rank.arrays.arithmetic import limits_of
from keras_rank.backends import Array, backend
from keras_rank.evaluation.lists import result_columns
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.evaluation.lists.trec_eval_measures import IPrec
from keras_rank.lists.inputs import Reading, check_told_apart, read
from keras_rank.lists.standardize import bucket_shapes
from keras_rank.metrics import update
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import BPref
from keras_rank.metrics.update import group_by
from keras_rank.ranking.base import Ties

# Arrays of padded lists, or of their values, by what they hold.
Batch: TypeAlias = dict[str, Array]
# What is -1 where there is no item.
_LABELS = {"label", "judgment", "judged", "subtopics"}
# The positions of a padded batch: few enough to stay in the caches of a CPU.
_POSITIONS = 2**17
# Smaller numbers of float64 are ranked as 0.
_SMALLEST = limits_of("float64").smallest_normal
# The largest ratio of the padded size to that of the shortest list of a batch.
_GROWTH = 1.4


def values_of_lists(
    settings: Settings,
    items: Batch,
    starts: Array,
    sizes: Array,
    numbers: Array,
) -> Batch:
    """Returns the columns of values, weights and health, by their names.

    Args:
        settings: the metrics, and how their ties are ordered.
        items: arrays of shape `(items,)`, by name.
        starts: int array of shape `(lists,)`. The places where lists start.
        sizes: int array of the same shape.
        numbers: int32 array of the same shape, which key the shuffle of ties.
    """
    found: Batch = {}
    for chosen, size in _batches_of(sizes):
        places = np.arange(size)
        is_item = places < sizes[chosen, None]
        positions = starts[chosen, None] + np.where(is_item, places, 0)
        batch = {name: values[positions] for name, values in items.items()}
        for name in _LABELS & batch.keys():
            batch[name][~is_item] = -1.0
        for name, values in _of_batch(settings, batch, numbers[chosen]).items():
            if name not in found:
                found[name] = np.empty(len(starts), values.dtype)
            found[name][chosen] = values
    return found


def _of_batch(settings: Settings, batch: Batch, numbers: Array) -> Batch:
    """The columns of the lists of a padded batch."""
    metrics, ties = settings.metrics, settings.order_of_ties
    found: Batch = {}
    health = _health_of_batch(batch, metrics)
    of_items = np.where(batch["label"] >= 0.0, 1.0, -1.0)
    batch = batch | {"score": _told_apart(batch["score"]), "item": of_items}
    # In the precision of most metrics, as these columns take most of the memory.
    spread: Batch = {}
    for metric, has_relevant, values, weights in _computed(
        metrics, batch, numbers, ties
    ):
        found[metric.name] = values
        if "weight" in batch or metric.list_weight != "mean":
            found[result_columns.OWN_WEIGHT.format(metric.name)] = weights
        found[result_columns.RELEVANT.format(metric.name)] = has_relevant
        for order in result_columns.ORDERS:
            spread[result_columns.SPREAD.format(metric.name, order)] = values.astype(
                "float32"
            )
    if health["ties"].any():
        _set_spread(spread, metrics, batch, np.flatnonzero(health["ties"]))
    return (
        found | {result_columns.HEALTH + name: x for name, x in health.items()} | spread
    )


def _set_spread(
    spread: Batch,
    metrics: Sequence[RankingMetric],
    batch: Batch,
    chosen: Array,
) -> None:
    """Sets the values of chosen lists with each order of their ties."""
    tied = {name: x[chosen] for name, x in batch.items() if name != "place"}
    numbers = np.zeros(len(chosen), np.int32)
    column = result_columns.SPREAD.format
    for ties in result_columns.ORDERS:
        for metric, _, values, _ in _computed(metrics, tied, numbers, ties):
            spread[column(metric.name, ties)][chosen] = values
    for metric in metrics:
        # One more relevant item may reduce a precision that is averaged over the items
        # found, and a value with weights of items.
        worst, best = (spread[column(metric.name, x)] for x in ("worst", "best"))
        low, high = np.minimum(worst, best), np.maximum(worst, best)
        is_up = metric._direction == "up"
        worst[:], best[:] = (low, high) if is_up else (high, low)
        if isinstance(metric, IPrec):
            # The mean of a maximum has no formula.
            spread[column(metric.name, "average")][chosen] = np.nan


def _given(batch: Batch, label: str) -> Reading:
    """The lists of a padded batch, as a metric takes them."""
    of_subtopics, score = label == "subtopics", batch["score"]
    if of_subtopics:
        score = batch.get("place", score)
    given = read(batch[label], score, batch.get("weight"), of_subtopics)
    return given._replace(batch=bucket_shapes(given.batch))


def _told_apart(scores: Array) -> Array:
    """Scores in the same order, with the same ties, that the backend tells apart.

    Where it has float32 only, these are the places of the numbers that a list has.
    """
    if scores.dtype != "float64" or backend.widest("float64") == "float64":
        return scores
    with np.errstate(over="ignore"):
        if np.array_equal(scores, scores.astype("float32"), equal_nan=True):
            return scores
    is_ranked, is_tiny = scores > -np.inf, np.abs(scores) < _SMALLEST
    compared = np.where(is_ranked, np.where(is_tiny, 0.0, scores), -np.inf)
    return np.where(is_ranked, stats.rankdata(compared, "dense", axis=1), scores)


def _computed(
    metrics: Sequence[RankingMetric],
    batch: Batch,
    numbers: Array,
    ties: Ties | None,
) -> Iterator[tuple[RankingMetric, Array, Array, Array]]:
    """Yields each metric, which lists have relevant items, values and weights."""
    for label, of_label in group_by(metrics, _labels_of).items():
        lists, labels, *_ = _given(batch, label)
        # The shuffle of a list depends on its number, not on its place.
        padded = np.pad(numbers, (0, lists.labels.shape[0] - len(numbers)))
        keys = ops.convert_to_tensor(padded)
        for indices in update.group_by_inputs(of_label).values():
            members = [of_label[index] for index in indices]
            if any(metric._compares_labels for metric in members):
                check_told_apart(labels, "label")
            spec = update.UpdateSpec.from_metrics(members, ties)
            computed = backend.enter(
                update.compute_values, lists, spec.keys, keys, spec=spec
            )
            for metric, of_lists in zip(members, computed, strict=True):
                has_relevant, values, weights = (
                    ops.convert_to_numpy(x)[: len(numbers)] for x in of_lists
                )
                # Missing if a list has the average weight of the others.
                has_weight = has_relevant | metric._weighs_empty_lists
                weights = np.where(has_weight, weights, np.nan).astype("float64")
                yield metric, has_relevant, values.astype("float64"), weights


def _labels_of(metric: RankingMetric) -> str:
    """The labels that a metric reads."""
    if metric.takes_subtopics:
        return "subtopics"
    # To bpref, an item without a judgment is padding, whatever it is to others.
    labels = "judgment" if isinstance(metric, BPref) else "label"
    return getattr(metric, "_reads", labels)


def _health_of_batch(batch: Batch, metrics: Sequence[RankingMetric]) -> Batch:
    """The columns of health for a padded batch."""
    is_item, is_found = batch["label"] >= 0.0, batch["score"] > -np.inf
    is_judged = batch["judged"] > 0.0
    is_retrieved = is_item & is_found
    of_retrieved = np.where(is_retrieved, batch["score"], -np.inf)
    scores = np.sort(of_retrieved, axis=1)[:, ::-1]
    retrieved = is_retrieved.sum(axis=1).astype(np.int32)
    tied = (scores[:, 1:] == scores[:, :-1]) & (scores[:, 1:] > -np.inf)
    found: Batch = {
        "retrieved": retrieved,
        "unjudged": (retrieved > 0) & ~np.any(is_retrieved & is_judged, axis=1),
        "constant": (np.sum(tied, axis=1) == retrieved - 1) & (retrieved > 1),
        "ties": np.any(tied, axis=1),
    }
    for k in sorted({metric.k for metric in metrics if metric.k is not None}):
        none = np.zeros(len(tied), bool)
        found[f"tied@{k}"] = tied[:, k - 1] if k <= tied.shape[1] else none
        lowest = scores[:, min(k, scores.shape[1]) - 1, None]
        found[f"judged@{k}"] = _judged_share(
            is_judged, of_retrieved, lowest, retrieved, k
        )
    # No order is better where all items were retrieved, and have the same label above
    # 0, or are all relevant to one of the metrics.
    lowest = np.min(batch["label"], axis=1, where=is_item, initial=np.inf)
    highest = np.max(batch["label"], axis=1)
    levels = [m.relevance_threshold for m in metrics if m._relevance.is_binary]
    least = min((level for level in levels if level is not None), default=np.inf)
    are_equal = (lowest >= least) | ((lowest == highest) & (lowest > 0.0))
    found["only relevant"] = np.all(is_found | ~is_item, axis=1) & are_equal
    return found


def _judged_share(
    is_judged: Array, scores: Array, lowest: Array, retrieved: Array, k: int
) -> Array:
    """The share of the first k items that have a label, NaN if there are none.

    Of tied items that are partly among the first k, as many are counted as on average.

    Args:
        is_judged: bool array of shape `(lists, size)`.
        scores: array of the same shape, -inf for items that were not retrieved.
        lowest: array of shape `(lists, 1)`. The lowest score among the first k items.
        retrieved: int array of shape `(lists,)`. The number of retrieved items.
        k: the cutoff.
    """
    is_above, is_tied = scores > lowest, (scores == lowest) & (scores > -np.inf)
    above, tied = is_above.sum(axis=1), is_tied.sum(axis=1)
    number = np.minimum(retrieved, k)
    judged = (is_above & is_judged).sum(axis=1)
    judged_tied = (is_tied & is_judged).sum(axis=1)
    judged = judged + judged_tied * (number - above) / np.maximum(tied, 1)
    share = np.where(number > 0, judged / np.maximum(number, 1), np.nan)
    return np.asarray(share, "float32")


def _batches_of(sizes: Array) -> Iterator[tuple[Array, int]]:
    """Yields the numbers of lists of similar size, and their padded size."""
    grid = [1]
    while grid[-1] < sizes.max():
        grid.append(max(grid[-1] + 1, int(grid[-1] * _GROWTH)))
    classes = np.searchsorted(grid, sizes)
    by_class = np.argsort(classes, kind="stable")
    for chosen in np.split(by_class, np.flatnonzero(np.diff(classes[by_class])) + 1):
        size = grid[classes[chosen[0]]]
        lists = max(1, _POSITIONS // size)
        for first in range(0, len(chosen), lists):
            yield chosen[first : first + lists], size
