"""Comparisons of evaluations, list by list, and the worst queries."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from keras_rank.arguments import check_choice, check_positive
from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import MetricInfo
from keras_rank.evaluation.lists.result_columns import LABEL_SUM
from keras_rank.evaluation.report import plots, summary, table
from keras_rank.evaluation.report.intervals import (
    EstimateOptions,
    Values,
    correct_p_values,
)

# The name that notes use for a model without a name.
_UNNAMED_MODEL = "the new one"
# The columns of a comparison. The columns of the slices follow the first column.
_COLUMNS = (
    *("model", "metric", "baseline", "value", "difference", "low", "high"),
    *("p", "corrected_p", "lists", "wins", "ties", "losses"),
)


class Comparison(table.Table):
    """A table of the differences between evaluations, with their intervals.

    Rows whose `corrected_p`, or `p` without a correction, is below `1 - confidence` are
    shown with a star.

    Args:
        columns: as for `Table`.
        notes: as for `Table`.
        differences: `pyarrow.Table` with the differences of each metric, per query, and
            per model if there are several.
        confidence: float. The confidence level of the intervals. Defaults to 0.95.
        models: list of strings. The names of the models, if they have any.

    Example:

    >>> from keras_rank.evaluation import evaluate
    >>> rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0]}
    >>> base = evaluate({**rows, "score": [2, 1, 1, 2]}, ["mrr"])
    >>> new = evaluate({**rows, "score": [2, 1, 2, 1]}, ["mrr"])
    >>> comparison = new.compare(base)
    >>> comparison["difference"]
    [0.25]
    >>> comparison.differences.to_pydict()
    {'query_id': [1, 2], 'mrr': [0.0, 0.5]}
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        *,
        notes: Sequence[str] = (),
        differences: pa.Table = None,
        confidence: float = 0.95,
        models: Sequence[str] = (),
    ) -> None:
        column = "corrected_p" if "corrected_p" in columns else "p"
        level = 1.0 - confidence
        meaning = f"{column} is below {level:.3g}."
        is_marked = [p < level for p in columns.get(column, ())]
        marks = table.Marks(column, is_marked, meaning)
        super().__init__(columns, notes=notes, marks=marks)
        self.differences, self.confidence = differences, confidence
        self.models = [name for name in models if name]

    def plot(self, metric: str | None = None, *, ax: Any = None) -> Any:
        """Plots the mean differences, or the differences of all lists in one metric.

        Args:
            metric: str. The metric whose differences are plotted for all lists, the
                largest first. Defaults to `None`: the mean differences of all metrics,
                with their intervals and p-values.
            ax: Matplotlib axes to draw on. Defaults to `None`: the axes of a new
                figure, whose height depends on the number of rows.

        Returns:
            The Matplotlib axes.
        """
        title = "Differences from the baseline"
        if len(self.models) == 1:
            title = f"{plots.shorten(self.models[0])} compared with the baseline"
        if metric is None:
            title += f", with {100 * self.confidence:g}% confidence intervals"
            return plots.draw_intervals(self, "difference", title, ax)
        check_choice("metric", metric, list(dict.fromkeys(self["metric"])))
        differences = self.differences
        if "model" in self.columns:
            values = [
                (name, differences.filter(pc.field("model") == name)[metric])
                for name in sorted(set(self["model"]))
            ]
        else:
            values = [("", differences[metric])]
        arrays = [(name, x.drop_null().to_numpy()) for name, x in values]
        return plots.draw_sorted(arrays, title, f"difference of {metric}", ax)


def compare_lists(
    baseline: ListTable, models: Mapping[str, ListTable], options: EstimateOptions
) -> Comparison:
    """Compares models with a baseline, list by list.

    Args:
        baseline: the lists of the baseline.
        models: dict from the names of the models to their lists.
        options: the options of the estimates.
    """
    if len(models) > 1 and baseline.query == "model":
        raise ValueError(
            "`models` should be compared one at a time if queries are in a column "
            f"named 'model', which would name the models. Received: {list(models)}"
        )
    rows: list[dict[str, Any]] = []
    notes = summary.describe_missing_values(baseline, " of the baseline")
    differences = []
    for name, model in models.items():
        model_column = {"model": name} if len(models) > 1 else {}
        baseline_rows = find_baseline_rows(model, baseline)
        notes += _describe_mismatches(
            name or _UNNAMED_MODEL, model, baseline, baseline_rows
        )
        pairs = _pair_values(model, baseline, baseline_rows)
        model_notes = [
            *summary.describe_gains(model, pairs),
            *summary.describe_missing_values(model, f" of {name or _UNNAMED_MODEL}"),
        ]
        notes += [x for x in model_notes if x not in notes]
        differences.append(
            _compute_differences(model_column, baseline, pairs, baseline_rows)
        )
        summary.require_slices(model, options.by, _COLUMNS)
        rows += [
            {**model_column, **x} for x in summary.iter_estimates(model, pairs, options)
        ]
    notes += summary.warn_about_few_lists(rows, options.cluster)
    p = correct_p_values(np.array([row["p"] for row in rows]), options.correction)
    rows = [{**row, "corrected_p": x} for row, x in zip(rows, p.tolist(), strict=True)]
    unused = {"corrected_p"} if options.correction is None else set()
    unused |= {"model"} if len(models) == 1 else set()
    names = [x for x in ("model", *options.by, *_COLUMNS[1:]) if x not in unused]
    return Comparison(
        table.select_columns(rows, names),
        notes=notes,
        # A model that lacks a metric has null in the column of the metric.
        differences=pa.concat_tables(differences, promote_options="default"),
        confidence=options.confidence,
        models=list(models),
    )


def _pair_values(
    model: ListTable, baseline: ListTable, baseline_rows: Array
) -> dict[str, tuple[Values, ...]]:
    """Returns the values of the model and the baseline for each common metric.

    Args:
        model: the lists of the model.
        baseline: the lists of the baseline.
        baseline_rows: the row of each query of the model in the baseline, or -1.
    """
    common_metrics = [x for x in model.metrics if baseline.find(x.name) is not None]
    if not common_metrics:
        raise ValueError(
            "`baseline` should have metrics in common with the models. "
            f"Received: {baseline.metric_names} and {model.metric_names}"
        )
    pairs: dict[str, tuple[Values, ...]] = {
        metric.name: (
            Values.from_table(model, metric),
            align_baseline(metric, baseline, baseline_rows),
        )
        for metric in common_metrics
    }
    _require_equal_rules(model, baseline)
    return pairs


def _require_equal_rules(
    model: ListTable, baseline: ListTable, argument: str = "baseline"
) -> None:
    """Raises `ValueError` if two evaluations treat ties or unjudged items differently.

    Args:
        model: the lists of the model.
        baseline: the lists of the baseline.
        argument: the name of the baseline in error messages.
    """
    others = _describe_others(argument)
    if None not in (baseline.rules, model.rules) and baseline.rules != model.rules:
        raise ValueError(
            f"`{argument}` should be evaluated by the rules of {others}. "
            f"Received: rules {baseline.rules!r} and {model.rules!r}"
        )
    old, new = summary.count_unlabeled(baseline), summary.count_unlabeled(model)
    if old and new and old[0] != new[0] and old[1] + new[1] > 0:
        raise ValueError(
            f"`{argument}` should be evaluated with the `unjudged` of {others}. "
            f"Received: unjudged={old[0]} and unjudged={new[0]}, with {old[1]} and "
            f"{new[1]} labels that are missing or below 0"
        )


def align_baseline(
    metric: MetricInfo,
    baseline: ListTable,
    baseline_rows: Array,
    argument: str = "baseline",
) -> Values:
    """Returns the values of the baseline for the queries of a model.

    A query that the baseline lacks has the value NaN. A metric of the baseline with the
    same name but another definition is an error.

    Args:
        metric: the metric of the model.
        baseline: the lists of the baseline.
        baseline_rows: the row of each query of the model in the baseline, or -1.
        argument: the name of the baseline in error messages.
    """
    baseline_metric = baseline.get_metric(metric.name)
    definition, baseline_definition = metric.definition, baseline_metric.definition
    if definition is not None and baseline_definition is not None:
        differing_keys = [
            key for key in definition if baseline_definition.get(key) != definition[key]
        ]
        if differing_keys:
            baseline_values, model_values = (
                {key: x.get(key) for key in differing_keys}
                for x in (baseline_definition, definition)
            )
            raise ValueError(
                f"`{argument}` should have metrics that are computed as those of "
                f"{_describe_others(argument)}. Received: {metric.name!r} with "
                f"{baseline_values} and {model_values}"
            )
    return Values.from_table(baseline, baseline_metric).take(baseline_rows)


def _describe_others(argument: str) -> str:
    """Returns what an evaluation is compared with, for error messages."""
    return "the models" if argument == "baseline" else "the other evaluations"


def _compute_differences(
    model_column: Mapping[str, str],
    baseline: ListTable,
    pairs: Mapping[str, tuple[Values, ...]],
    baseline_rows: Array,
) -> pa.Table:
    """Returns the differences of all metrics, list by list."""
    has_pair = baseline_rows >= 0
    queries = baseline.table[baseline.query].take(pa.array(baseline_rows[has_pair]))
    columns = {
        name: pa.repeat(value, len(queries)) for name, value in model_column.items()
    }
    columns[baseline.query] = queries
    for name, (new, old) in pairs.items():
        differences = (new.values - old.values)[has_pair]
        columns[name] = pa.array(differences, from_pandas=True)
    return pa.table(columns)


def find_baseline_rows(
    model: ListTable, baseline: ListTable, argument: str = "baseline"
) -> Array:
    """Returns the row of each query of a model in a baseline, -1 if it is missing.

    Args:
        model: the lists of the model.
        baseline: the lists of the baseline.
        argument: the name of the baseline in error messages.
    """
    queries, baseline_queries = model.table[model.query], baseline.table[baseline.query]
    if not (len(queries) and len(baseline_queries)):
        raise ValueError(
            f"`{argument}` and {_describe_others(argument)} should have queries. "
            f"Received: {len(baseline_queries)} and {len(queries)} queries"
        )
    has_common_kind = any(
        all(is_kind(ids.type) for ids in (queries, baseline_queries))
        for is_kind in (pa.types.is_integer, _is_text)
    )
    if queries.type != baseline_queries.type and has_common_kind:
        # The ids are compared as strings: no integer type holds all values of int64 and
        # uint64, and text types differ in the size of their offsets.
        queries, baseline_queries = (
            queries.cast(pa.string()),
            baseline_queries.cast(pa.string()),
        )
    if queries.type != baseline_queries.type:
        raise ValueError(
            f"`{argument}` should have query ids of the same type as "
            f"{_describe_others(argument)}: convert the column of one table before it "
            f"is evaluated. Received: {baseline_queries.type}, such as "
            f"{baseline_queries[0].as_py()!r}, and {queries.type}, such as "
            f"{queries[0].as_py()!r}"
        )
    positions = pc.index_in(queries, value_set=baseline_queries.combine_chunks())
    if positions.null_count == len(positions):
        raise ValueError(
            f"`{argument}` should have queries in common with "
            f"{_describe_others(argument)}. Received: no common ones, such as "
            f"{baseline_queries[0].as_py()!r} and {queries[0].as_py()!r}"
        )
    baseline_rows: Array = positions.fill_null(-1).to_numpy()
    return baseline_rows


def _is_text(type_: pa.DataType) -> bool:
    """Returns whether a type is text.

    pandas and Polars use different types for text.
    """
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _describe_mismatches(
    name: str, model: ListTable, baseline: ListTable, baseline_rows: Array
) -> Iterator[str]:
    """Yields warnings about queries, labels and metrics that are not the same in both.

    Args:
        name: the name of the model.
        model: the lists of the model.
        baseline: the lists of the baseline.
        baseline_rows: the row of each query of the model in the baseline, or -1.
    """
    has_pair = baseline_rows >= 0
    sides = ((name, model, baseline), ("the baseline", baseline, model))
    unpaired_baseline = np.delete(np.arange(len(baseline)), baseline_rows[has_pair])
    unpaired = (np.flatnonzero(~has_pair), unpaired_baseline)
    for (owner, lists, _), indices in zip(sides, unpaired, strict=True):
        if len(indices):
            ids = lists.table[lists.query].take(pa.array(indices[:3])).to_pylist()
            names = ", ".join(map(repr, ids)) + ", ..." * (len(indices) > 3)
            yield (
                f"Warning: queries that only {owner} has are left out "
                f"({len(indices)}): {names}."
            )
    label_sums, baseline_sums = (
        lists.get_health(LABEL_SUM) for lists in (model, baseline)
    )
    if label_sums is not None and baseline_sums is not None:
        is_equal = np.isclose(
            label_sums[has_pair], baseline_sums[baseline_rows[has_pair]]
        )
        if not is_equal.all():
            yield (
                f"Warning: {np.sum(~is_equal)} queries have other labels in the "
                "baseline, by their sum: were both evaluated with the same judgments?"
            )
    for owner, lists, other in sides:
        names = ", ".join(x for x in lists.metric_names if other.find(x) is None)
        if names:
            yield f"Warning: metrics that only {owner} has are left out: {names}."


def find_worst(
    lists: ListTable, name: str, n: int, baseline: ListTable | None
) -> table.Table:
    """Returns the queries with the worst values, or the largest losses.

    Args:
        lists: the lists.
        name: the name of the metric.
        n: the number of queries.
        baseline: the lists of a baseline, or `None` to return the worst values.
    """
    metric, n = lists.get_metric(name), check_positive("n", n)
    values_by_name = {metric.name: lists.array(metric.name)}
    keys = values_by_name[metric.name]
    if baseline is not None:
        conflicts = {"baseline", "difference"} & {lists.query, *lists.kept_columns}
        if conflicts:
            raise ValueError(
                "With `baseline`, no column of the evaluation should have the name of "
                "one of the result, baseline or difference. Received: "
                f"{sorted(conflicts)}"
            )
        baseline_rows = find_baseline_rows(lists, baseline)
        values_by_name["baseline"] = align_baseline(
            metric, baseline, baseline_rows
        ).values
        keys = values_by_name["difference"] = keys - values_by_name["baseline"]
    order = np.argsort(keys if metric.direction == "up" else -keys, kind="stable")
    indices = order[:n]
    indices = indices[~np.isnan(keys[indices])]
    columns = lists.table.select([lists.query, *lists.kept_columns]).take(
        pa.array(indices)
    )
    metric_columns = {
        name: values[indices].tolist() for name, values in values_by_name.items()
    }
    return table.Table({**columns.to_pydict(), **metric_columns})


# The columns of a table of corrected judgments.
_CORRECTED = (
    *("metric", "value", "standard_error", "low", "high"),
    *("human_value", "human_standard_error", "human_lists", "machine_lists"),
    "equivalent_human_lists",
)


def correct_by_humans(
    human: Sequence[ListTable], machine: Sequence[ListTable], confidence: float
) -> table.Table:
    """Returns the means, or differences of means, as `prediction_powered` does.

    Args:
        human: the values of one run or two by human judgments.
        machine: the values of the same runs by machine judgments.
        confidence: the confidence level of the intervals.
    """
    human_rows = [_require_rows(human[0], x, "human", True) for x in human]
    common_rows = [_require_rows(human[0], x, "machine", False) for x in machine]
    machine_rows = [_require_rows(machine[0], x, "machine", True) for x in machine]
    n, total = len(human[0]), len(machine[0])
    if n < 2 or total < n + 2:
        raise ValueError(
            "`human` should have at least two queries, and `machine` at least two "
            f"more. Received: {n} and {total} queries"
        )
    for lists in (*human, *machine):
        _require_equal_rules(human[0], lists, "machine")
    is_rest = np.ones(total, bool)
    is_rest[common_rows[0]] = False
    rows: list[dict[str, Any]] = []
    names = [name for lists in (*human, *machine) for name in lists.metric_names]
    left_out = set(names)
    for metric in human[0].metrics:
        if metric.reduction != "mean" or not all(
            x.find(metric.name) for x in (*human, *machine)
        ):
            continue
        left_out -= {metric.name}
        human_values, common_values, machine_values = (
            _get_values(metric, lists, rows_by_evaluation, argument)
            for lists, rows_by_evaluation, argument in (
                (human, human_rows, "human"),
                (machine, common_rows, "machine"),
                (machine, machine_rows, "machine"),
            )
        )
        rest = machine_values[is_rest]
        row = _correct(human_values, common_values, rest, confidence)
        rows.append({"metric": metric.name, "machine_lists": total, **row})
    if not rows:
        raise ValueError(
            "`human` and `machine` should have a common metric that is a mean over "
            f"lists. Received: {human[0].metric_names} and {machine[0].metric_names}"
        )
    text = ", ".join(name for name in dict.fromkeys(names) if name in left_out)
    notes = [f"Metrics without a mean in all evaluations are left out: {text}."]
    columns = table.select_columns(rows, _CORRECTED)
    return table.Table(columns, notes=notes * bool(text))


def _require_rows(
    lists: ListTable, others: ListTable, argument: str, is_exact: bool
) -> Array:
    """Returns the row of each query in other lists.

    Raises `ValueError` if a query is missing, or if other lists have more queries.

    Args:
        lists: the lists whose queries are sought.
        others: the lists in which they are sought.
        argument: the name of the other lists in error messages.
        is_exact: whether the other lists must have no more queries.
    """
    rows = find_baseline_rows(lists, others, argument)
    missing = np.flatnonzero(rows < 0)
    if len(missing) or (is_exact and len(others) > len(lists)):
        received = f"{len(lists)} and {len(others)} queries"
        if len(missing):
            query = lists.table[lists.query][int(missing[0])].as_py()
            received = f"an evaluation without the query {query!r}"
        expected = "the same queries in all its evaluations, and those of `human`"
        raise ValueError(f"`{argument}` should have {expected}. Received: {received}")
    return rows


def _get_values(
    metric: MetricInfo,
    lists: Sequence[ListTable],
    rows_by_evaluation: Sequence[Array],
    argument: str,
) -> Array:
    """Returns the values of a metric in rows, or their differences for two evaluations.

    Raises `ValueError` for missing values and for lists of different weights.
    """
    pairs = zip(lists, rows_by_evaluation, strict=True)
    evaluations = [align_baseline(metric, x, rows, argument) for x, rows in pairs]
    for values in evaluations:
        weights = values.weights[~np.isnan(values.weights)]
        if np.isnan(values.values).any() or np.any(weights != weights[:1]):
            raise ValueError(
                f"`{argument}` should have a value and the same weight for each list. "
                f"Received: {metric.name!r} with lists that are left out, or have "
                "different weights"
            )
    first, *second = (values.values for values in evaluations)
    return first - second[0] if second else first


def _correct(
    human: Array, machine: Array, rest: Array, confidence: float
) -> dict[str, float]:
    """Returns the estimate of prediction-powered inference with power tuning.

        value = mean(c * rest) + mean(human - c * machine)

    where c minimizes the variance.

    Args:
        human: array of shape `(n,)`. The values of lists by human judgments.
        machine: array of shape `(n,)`. The values of the lists by machine judgments.
        rest: array of shape `(N,)`. The values of all other lists by machine judgments.
        confidence: the confidence level of the interval.
    """
    n, others = len(human), len(rest)
    variance = np.var(np.concatenate([machine, rest]), ddof=1)
    covariance = np.cov(human, machine)[0, 1]
    c = covariance / variance / (1.0 + n / others) if variance > 0.0 else 0.0
    c = min(max(c, 0.0), 1.0)
    residuals = human - c * machine
    value = c * rest.mean() + residuals.mean()
    squared = c * c * rest.var(ddof=1) / others + residuals.var(ddof=1) / n
    error = float(np.sqrt(squared))
    half = error * float(stats.t.ppf((1.0 + confidence) / 2.0, n - 1))
    human_variance = human.var(ddof=1)
    return {
        "value": float(value),
        "standard_error": error,
        "low": float(value) - half,
        "high": float(value) + half,
        "human_value": float(human.mean()),
        "human_standard_error": float(np.sqrt(human_variance / n)),
        "human_lists": n,
        "equivalent_human_lists": float(human_variance / squared)
        if squared
        else math.nan,
    }
