"""The mean of each metric, over all lists or by slices, with its error."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.arguments import suggestion
from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import truncates
from keras_rank.evaluation.lists.result_columns import GRADED
from keras_rank.evaluation.report.intervals import How, Values, estimate
from keras_rank.evaluation.report.table import Table, columns_of

# The numbers of lists, and of units of a row. No kept column has such a name.
_NUMBERS, _UNITS = "health/", "health/units"
# The columns of a summary, without those of the slices.
_COLUMNS = (
    *("metric", "value", "standard_error", "low", "high", "lists"),
    "effective_lists",
)
# With fewer lists, or clusters of them, intervals are rough.
_FEW = 10
# Whose numbers rules give.
_TOOLS = {"trec_eval": " (version 10)", "trec_eval-9": " (version 9, pytrec_eval)"}
# The gains of a label.
_GAINS = {"exponential": "exponential, 2**label - 1", "linear": "linear, the label"}


def summarized(lists: ListTable, how: How) -> Table:
    """Returns the means and their errors, as `Evaluation.summary` does."""
    require_slices(lists, how.by, _COLUMNS)
    metrics = {x.name: (Values.of(lists, x),) for x in lists.metrics}
    rows = [*estimates_of(lists, metrics, how)]
    notes = [] if lists.rules is None else [f"Rules: {rules_of(lists.rules)}"]
    notes += notes_of_gains(lists, metrics)
    notes += notes_of_rows(lists)
    fractional = lists.health_of("fractional labels")
    if truncates(lists.rules) and fractional is not None and fractional.any():
        notes.append("Labels that are fractions were truncated, as in trec_eval.")
    notes += of_few_lists(rows, how.cluster)
    # Without different weights, all lists are effective.
    is_weighted = any(round(x["effective_lists"], 6) < x["lists"] for x in rows)
    names = [*how.by, *_COLUMNS[: None if is_weighted else -1]]
    return Table(columns_of(rows, names), notes=notes)


def rules_of(rules: str) -> str:
    """Rules with the version of the tool whose numbers they give."""
    name, comma, others = rules.partition(",")
    return f"{name}{_TOOLS.get(name, '')}{comma}{others}"


def notes_of_gains(lists: ListTable, names: Container[str]) -> list[str]:
    """Returns a note with the gains of metrics, unless all labels are 0 or 1.

    Args:
        lists: the lists.
        names: the names of the metrics whose gains are stated.
    """
    graded = lists.health_of(GRADED)
    if graded is not None and not graded.any():
        return []
    metrics_by_gain: dict[str, list[str]] = {}
    for metric in lists.metrics:
        gain = (metric.definition or {}).get("gain_fn")
        if gain is not None and metric.name in names:
            metrics_by_gain.setdefault(_name_of_gain(gain), []).append(metric.name)
    if len(metrics_by_gain) < 2:
        return [f"Gains: {gain}." for gain in metrics_by_gain]
    shown = (f"{gain} ({', '.join(x)})" for gain, x in metrics_by_gain.items())
    return [f"Gains: {'; '.join(shown)}."]


def _name_of_gain(gain: Any) -> str:
    """The name of a gain function, given its config in a metric."""
    if isinstance(gain, str):
        return _GAINS.get(gain, gain)
    if gain["class_name"] == "ByLabel":
        pairs = gain["config"]["gains"]
        return ", ".join(f"{x:g} is worth {y:g}" for x, y in pairs)
    name = gain["config"]
    return name if isinstance(name, str) else str(gain["class_name"])


def unlabeled_of(lists: ListTable) -> tuple[str, int, int] | None:
    """The rule for rows of a table without labels, their number, and that of all.

    It is `None` for a run, and if the numbers are not known.
    """
    names = ("items", "judged", "padding")
    items, judged, padding = (
        None if found is None else int(found.sum())
        for found in map(lists.health_of, names)
    )
    if lists.rules is not None or items is None or judged is None:
        return None
    if padding is not None:
        return "drop", padding, items + padding
    return "irrelevant", items - judged, items


def notes_of_rows(lists: ListTable, owner: str = "") -> list[str]:
    """Says how many rows of a table have no labels, and no scores, and whose."""
    return notes_of_labels(lists) + _notes_of_scores(lists, owner)


def _notes_of_scores(lists: ListTable, owner: str) -> list[str]:
    found, items = (lists.health_of(name) for name in ("unscored", "items"))
    if lists.rules is not None or found is None or items is None or not found.any():
        return []
    return [
        f"Missing scores{owner}: {found.sum():,} of {items.sum():,} items, not "
        "retrieved."
    ]


def notes_of_labels(lists: ListTable) -> list[str]:
    """Says what rows of a table without labels are, and how many, if there are any."""
    rule, number, rows = unlabeled_of(lists) or ("", 0, 0)
    if number == 0:
        return []
    what = {"drop": "left out as padding", "irrelevant": "counted as irrelevant"}
    return [
        f"Missing or negative labels: {number:,} of {rows:,} rows, {what[rule]} "
        f"(unjudged={rule})."
    ]


def of_few_lists(rows: Sequence[Mapping[str, Any]], cluster: str | None) -> list[str]:
    """Warns of intervals of few lists."""
    few = sum(0 < row[_UNITS] < _FEW for row in rows)
    if not few:
        return []
    which = "all" if few == len(rows) else f"{few} of {len(rows)}"
    units = "lists" if cluster is None else f"clusters by {cluster!r}"
    return [
        f"Warning: {which} rows have fewer than {_FEW} {units}, too few for reliable "
        "intervals."
    ]


def require_slices(lists: ListTable, by: Sequence[str], others: Sequence[str]) -> None:
    """Raises for slices that were not kept, or are other columns of the result."""
    for name in by:
        _require_kept(lists, "by", name)
        if name in others:
            raise ValueError(
                "`by` should not name a column of the result: "
                f"{', '.join(others)}. Received: by={name!r}"
            )


def estimates_of(
    lists: ListTable, metrics: Mapping[str, tuple[Values, ...]], how: How
) -> Iterator[dict[str, Any]]:
    """Yields a row for each slice and metric: its mean, or its mean difference.

    Args:
        lists: the lists.
        metrics: the values of each metric, and those of a baseline, if there is one.
        how: how they are estimated.
    """
    clusters, confidence = _clusters_of(lists, how.cluster), how.confidence
    lowest = {
        x.name: x.lowest
        for x in lists.metrics
        if x.lowest is not None
        and all(values.are_from(x.lowest) for values in metrics.get(x.name, ()))
    }
    up = {x.name: x.direction == "up" for x in lists.metrics}
    for slice_, chosen in _slices_of(lists, how.by):
        for name, (new, *old) in metrics.items():
            known = ~np.isnan(sum(x.values[chosen] for x in (new, *old)))
            counted = chosen[known]
            of_cluster = None if clusters is None else clusters[counted]
            mean, *before = (x.mean(counted) for x in (new, *old))
            change = mean - before[0] if before else mean
            permute = how.test == "permutation"
            found = estimate(change, of_cluster, confidence, permute)
            if mean.is_log:
                found = found.exp(*(x.number for x in before))
            if name in lowest:
                low = lowest[name]
                limits = (low - 1.0, 1.0 - low) if old else (low, 1.0)
                found = found.within(*limits)
            row = {"metric": name, **found._asdict(), **slice_, _UNITS: found.units}
            row["effective_lists"] = new.count_effective_lists(counted)
            if before:
                row |= {"value": mean.number, "difference": found.value}
                row["baseline"] = before[0].number
                row |= _count_wins(
                    new.values[counted], old[0].values[counted], up[name]
                )
            elif clusters is None and new.are_hits(counted):
                row["low"], row["high"] = new.share_interval(counted, confidence)
            yield row


def _count_wins(new: Array, old: Array, higher_is_better: bool) -> dict[str, int]:
    """Returns the numbers of lists with better, equal and worse values than before.

    Differences within the rounding of float32 count as equal.
    """
    is_tie = np.isclose(new, old, rtol=5e-7, atol=5e-7)
    is_win = ~is_tie & ((new > old) == higher_is_better)
    counts = {"wins": is_win, "ties": is_tie, "losses": ~is_tie & ~is_win}
    return {name: int(np.sum(x)) for name, x in counts.items()}


def _slices_of(
    lists: ListTable, by: Sequence[str]
) -> Iterator[tuple[dict[str, Any], Array]]:
    """Yields the values of the columns, and the numbers of their lists."""
    numbers = np.arange(len(lists))
    if not by:
        yield {}, numbers
        return
    table = lists.table.select(by).append_column(_NUMBERS, pa.array(numbers))
    groups = table.group_by(by, use_threads=False).aggregate([(_NUMBERS, "list")])
    groups = groups.sort_by([(name, "ascending") for name in by])
    values, chosen = groups.select(by).to_pylist(), groups[f"{_NUMBERS}_list"]
    for slice_, each in zip(values, chosen, strict=True):
        yield slice_, each.values.to_numpy()


def _clusters_of(lists: ListTable, cluster: str | None) -> Array | None:
    """The number of the cluster of each list, if there are clusters."""
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
    if name not in lists.kept:
        raise ValueError(
            f"`{argument}` should name kept columns, as in "
            f"`evaluate(..., keep=[{name!r}])`. Received: {argument}={name!r}"
            f"{suggestion(name, lists.kept)}"
        )
