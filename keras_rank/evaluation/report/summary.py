"""Means of metrics over all lists or by slices, with their standard errors."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.arguments import suggestion
from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import should_truncate
from keras_rank.evaluation.lists.result_columns import AGREEMENT, GRADED
from keras_rank.evaluation.report.intervals import EstimateOptions, Values, estimate
from keras_rank.evaluation.report.table import Table, select_columns

# The names of the columns of list indices and of the number of units. Kept columns
# can't have names that start with "health/".
_INDICES, _UNITS = "health/", "health/units"
# The columns of a summary, without the columns of the slices.
_COLUMNS = (
    *("metric", "value", "standard_error", "low", "high", "lists"),
    "effective_lists",
)
# Intervals of fewer lists or clusters are unreliable.
_MIN_LISTS = 10
# The versions of trec_eval, and other tools, with the same results as each rule set.
_TOOLS = {"trec_eval": " (version 10)", "trec_eval-9": " (version 9, pytrec_eval)"}
# Descriptions of the gains of labels.
_GAINS = {"exponential": "exponential, 2**label - 1", "linear": "linear, the label"}


def summarize(lists: ListTable, options: EstimateOptions) -> Table:
    """Returns a table of the means of all metrics, with their standard errors."""
    require_slices(lists, options.by, _COLUMNS)
    metrics = {x.name: (Values.from_table(lists, x),) for x in lists.metrics}
    rows = [*iter_estimates(lists, metrics, options)]
    notes = [] if lists.rules is None else [f"Rules: {describe_rules(lists.rules)}"]
    if lists.rules == AGREEMENT:
        number = lists.left_out
        text = f"Queries that only one of the runs has are left out ({number})."
        notes = [text] * bool(number)
    notes += describe_gains(lists, metrics)
    notes += describe_missing_values(lists)
    fractional = lists.get_health("fractional labels")
    if should_truncate(lists.rules) and fractional is not None and fractional.any():
        notes.append("Labels that are fractions were truncated, as in trec_eval.")
    notes += warn_about_few_lists(rows, options.cluster)
    # The number of effective lists is the number of lists if all weights are equal.
    is_weighted = any(round(x["effective_lists"], 6) < x["lists"] for x in rows)
    names = [*options.by, *_COLUMNS[: None if is_weighted else -1]]
    return Table(select_columns(rows, names), notes=notes)


def describe_rules(rules: str) -> str:
    """Returns the rules with the version of trec_eval that gives the same results."""
    name, comma, others = rules.partition(",")
    return f"{name}{_TOOLS.get(name, '')}{comma}{others}"


def describe_gains(lists: ListTable, names: Container[str]) -> list[str]:
    """Returns a note with the gains of metrics, unless all labels are 0 or 1.

    Args:
        lists: the lists.
        names: the names of the metrics whose gains are described.
    """
    graded = lists.get_health(GRADED)
    if graded is not None and not graded.any():
        return []
    metrics_by_gain: dict[str, list[str]] = {}
    for metric in lists.metrics:
        gain = (metric.definition or {}).get("gain_fn")
        if gain is not None and metric.name in names:
            metrics_by_gain.setdefault(_get_gain_name(gain), []).append(metric.name)
    if len(metrics_by_gain) < 2:
        return [f"Gains: {gain}." for gain in metrics_by_gain]
    shown = (f"{gain} ({', '.join(x)})" for gain, x in metrics_by_gain.items())
    return [f"Gains: {'; '.join(shown)}."]


def _get_gain_name(gain: Any) -> str:
    """Returns the name of a gain function from its config in a metric."""
    if isinstance(gain, str):
        return _GAINS.get(gain, gain)
    if gain["class_name"] == "ByLabel":
        pairs = gain["config"]["gains"]
        return "by label, " + ", ".join(f"{x:g}: {y:g}" for x, y in pairs)
    name = gain["config"]
    return name if isinstance(name, str) else str(gain["class_name"])


def count_unlabeled(lists: ListTable) -> tuple[str, int, int] | None:
    """Returns `unjudged`, the number of unlabeled rows, and the number of all rows.

    The result is `None` for a run, and if the numbers are not known.
    """
    names = ("items", "judged", "padding")
    items, judged, padding = (
        None if column is None else int(column.sum())
        for column in map(lists.get_health, names)
    )
    if lists.rules is not None or items is None or judged is None:
        return None
    if padding is not None:
        return "drop", padding, items + padding
    return "irrelevant", items - judged, items


def describe_missing_values(lists: ListTable, owner: str = "") -> list[str]:
    """Returns notes about rows of a table without labels and without scores.

    Args:
        lists: the lists.
        owner: the owner of the table, which starts with " of ". Defaults to none.
    """
    return describe_missing_labels(lists) + _describe_missing_scores(lists, owner)


def _describe_missing_scores(lists: ListTable, owner: str) -> list[str]:
    unscored, items = (lists.get_health(name) for name in ("unscored", "items"))
    if (
        lists.rules is not None
        or unscored is None
        or items is None
        or not unscored.any()
    ):
        return []
    return [
        f"Missing scores{owner}: {unscored.sum():,} of {items.sum():,} items, not "
        "retrieved."
    ]


def describe_missing_labels(lists: ListTable) -> list[str]:
    """Returns a note about rows of a table without labels, if there are any."""
    rule, number, rows = count_unlabeled(lists) or ("", 0, 0)
    if number == 0:
        return []
    treatments = {"drop": "left out as padding", "irrelevant": "counted as irrelevant"}
    return [
        f"Missing or negative labels: {number:,} of {rows:,} rows, {treatments[rule]} "
        f"(unjudged={rule})."
    ]


def warn_about_few_lists(
    rows: Sequence[Mapping[str, Any]], cluster: str | None
) -> list[str]:
    """Returns a warning about intervals of few lists, if there are any."""
    num_few = sum(0 < row[_UNITS] < _MIN_LISTS for row in rows)
    if not num_few:
        return []
    affected = "all" if num_few == len(rows) else f"{num_few} of {len(rows)}"
    units = "lists" if cluster is None else f"clusters by {cluster!r}"
    return [
        f"Warning: {affected} rows have fewer than {_MIN_LISTS} {units}, too few for "
        "reliable intervals."
    ]


def require_slices(
    lists: ListTable, by: Sequence[str], result_names: Sequence[str]
) -> None:
    """Raises `ValueError` if slices were not kept, or are columns of the result."""
    for name in by:
        _require_kept(lists, "by", name)
        if name in result_names:
            raise ValueError(
                "`by` should not name a column of the result: "
                f"{', '.join(result_names)}. Received: by={name!r}"
            )


def iter_estimates(
    lists: ListTable,
    metrics: Mapping[str, tuple[Values, ...]],
    options: EstimateOptions,
) -> Iterator[dict[str, Any]]:
    """Yields a row with the mean, or the mean difference, of each slice and metric.

    Args:
        lists: the lists.
        metrics: dict from the names of metrics to their values, followed by the values
            of the baseline, if there is one.
        options: the options of the estimates.
    """
    clusters, confidence = _get_clusters(lists, options.cluster), options.confidence
    lowest_values = {
        x.name: x.lowest
        for x in lists.metrics
        if x.lowest is not None
        and all(values.is_bounded(x.lowest) for values in metrics.get(x.name, ()))
    }
    is_up = {x.name: x.direction == "up" for x in lists.metrics}
    for slice_, slice_indices in _iter_slices(lists, options.by):
        for name, (new, *old) in metrics.items():
            is_known = ~np.isnan(sum(x.values[slice_indices] for x in (new, *old)))
            indices = slice_indices[is_known]
            list_clusters = None if clusters is None else clusters[indices]
            mean, *baseline_means = (x.mean(indices) for x in (new, *old))
            change = mean - baseline_means[0] if baseline_means else mean
            permute = options.test == "permutation"
            result = estimate(change, list_clusters, confidence, permute)
            if mean.is_log:
                result = result.exp(*(x.number for x in baseline_means))
            if name in lowest_values:
                low = lowest_values[name]
                limits = (low - 1.0, 1.0 - low) if old else (low, 1.0)
                result = result.clip(*limits)
            row = {"metric": name, **result._asdict(), **slice_, _UNITS: result.units}
            row["effective_lists"] = new.count_effective_lists(indices)
            if baseline_means:
                row |= {"value": mean.number, "difference": result.value}
                row["baseline"] = baseline_means[0].number
                values = new.values[indices], old[0].values[indices]
                row |= _count_wins(*values, is_up[name])
            elif clusters is None and new.is_proportion(indices):
                row["low"], row["high"] = new.wilson_interval(indices, confidence)
            yield row


def _count_wins(new: Array, old: Array, higher_is_better: bool) -> dict[str, int]:
    """Returns the numbers of lists with better, equal and worse values.

    Values that differ by the rounding of float32 count as equal.
    """
    is_tie = np.isclose(new, old, rtol=5e-7, atol=5e-7)
    is_win = ~is_tie & ((new > old) == higher_is_better)
    counts = {"wins": is_win, "ties": is_tie, "losses": ~is_tie & ~is_win}
    return {name: int(np.sum(x)) for name, x in counts.items()}


def _iter_slices(
    lists: ListTable, by: Sequence[str]
) -> Iterator[tuple[dict[str, Any], Array]]:
    """Yields the values of the columns of each slice, and the indices of its lists."""
    indices = np.arange(len(lists))
    if not by:
        yield {}, indices
        return
    table = lists.table.select(by).append_column(_INDICES, pa.array(indices))
    groups = table.group_by(by, use_threads=False).aggregate([(_INDICES, "list")])
    groups = groups.sort_by([(name, "ascending") for name in by])
    values, index_lists = groups.select(by).to_pylist(), groups[f"{_INDICES}_list"]
    for slice_, index_list in zip(values, index_lists, strict=True):
        yield slice_, index_list.values.to_numpy()


def _get_clusters(lists: ListTable, cluster: str | None) -> Array | None:
    """Returns the cluster index of each list, or `None` if there are no clusters."""
    if cluster is None:
        return None
    _require_kept(lists, "cluster", cluster)
    column = lists.table[cluster].combine_chunks()
    missing = column.is_null(nan_is_null=True).true_count
    if missing:
        raise ValueError(
            "`cluster` should name a column without missing ids: a list that belongs "
            "to no other should have an id of its own. Received: "
            f"cluster={cluster!r}, with {missing} of {len(lists)} lists without one"
        )
    return np.asarray(column.dictionary_encode().indices)


def _require_kept(lists: ListTable, argument: str, name: str) -> None:
    if name not in lists.kept_columns:
        raise ValueError(
            f"`{argument}` should name kept columns, as in "
            f"`evaluate(..., keep=[{name!r}])`. Received: {argument}={name!r}"
            f"{suggestion(name, lists.kept_columns)}"
        )
