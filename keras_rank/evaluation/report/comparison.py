"""Differences between evaluations, list by list, and the worst queries."""

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
from keras_rank.evaluation.lists.metric_names import Measured
from keras_rank.evaluation.lists.result_columns import LABEL_SUM
from keras_rank.evaluation.report import plots, summary, table
from keras_rank.evaluation.report.intervals import How, Values, corrected

# What a model is called that has no name.
_NEW = "the new one"
# The columns of a comparison, without those of the slices, which follow the first.
_COLUMNS = (
    *("model", "metric", "baseline", "value", "difference", "low", "high"),
    *("p", "corrected_p", "lists", "wins", "ties", "losses"),
)


class Comparison(table.Table):
    """The differences between evaluations, with their intervals.

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
        are_marked = [p < level for p in columns.get(column, ())]
        marks = table.Marks(column, are_marked, meaning)
        super().__init__(columns, notes=notes, marks=marks)
        self.differences, self.confidence = differences, confidence
        self.models = [name for name in models if name]

    def plot(self, metric: str | None = None, *, ax: Any = None) -> Any:
        """Plots the mean differences with their intervals and p, or those of all lists.

        Args:
            metric: str. The metric whose differences are plotted for all lists, the
                largest first. Defaults to `None`: mean differences with intervals.
            ax: Matplotlib's axes to draw on. Defaults to `None`: those of a new figure
                whose height is that of its rows.

        Returns:
            Matplotlib's axes.
        """
        title = "Differences from the baseline"
        if len(self.models) == 1:
            title = f"{plots.shortened(self.models[0])} compared with the baseline"
        if metric is None:
            title += f", with {100 * self.confidence:g}% confidence intervals"
            return plots.draw_intervals(self, "difference", title, ax)
        check_choice("metric", metric, list(dict.fromkeys(self["metric"])))
        found = self.differences
        if "model" in self.columns:
            values = [
                (name, found.filter(pc.field("model") == name)[metric])
                for name in sorted(set(self["model"]))
            ]
        else:
            values = [("", found[metric])]
        arrays = [(name, x.drop_null().to_numpy()) for name, x in values]
        return plots.draw_sorted(arrays, title, f"difference of {metric}", ax)


def compared(
    baseline: ListTable, models: Mapping[str, ListTable], how: How
) -> Comparison:
    """Compares models with a baseline, as `compare` does with evaluations."""
    if len(models) > 1 and baseline.query == "model":
        raise ValueError(
            "`models` should be compared one at a time if queries are in a column "
            f"named 'model', which would name the models. Received: {list(models)}"
        )
    rows: list[dict[str, Any]] = []
    notes = summary.notes_of_rows(baseline, " of the baseline")
    differences = []
    for name, model in models.items():
        of_model = {"model": name} if len(models) > 1 else {}
        places = places_of(model, baseline)
        notes += _notes_of(name or _NEW, model, baseline, places)
        pairs = _pairs_of(model, baseline, places)
        of_model_alone = [
            *summary.notes_of_gains(model, pairs),
            *summary.notes_of_rows(model, f" of {name or _NEW}"),
        ]
        notes += [x for x in of_model_alone if x not in notes]
        differences.append(_differences(of_model, baseline, pairs, places))
        summary.require_slices(model, how.by, _COLUMNS)
        rows += [{**of_model, **x} for x in summary.estimates_of(model, pairs, how)]
    notes += summary.of_few_lists(rows, how.cluster)
    p = corrected(np.array([row["p"] for row in rows]), how.correction)
    rows = [{**row, "corrected_p": x} for row, x in zip(rows, p.tolist(), strict=True)]
    unused = {"corrected_p"} if how.correction is None else set()
    unused |= {"model"} if len(models) == 1 else set()
    names = [x for x in ("model", *how.by, *_COLUMNS[1:]) if x not in unused]
    return Comparison(
        table.columns_of(rows, names),
        notes=notes,
        # The differences are missing for models without the metric.
        differences=pa.concat_tables(differences, promote_options="default"),
        confidence=how.confidence,
        models=list(models),
    )


def _pairs_of(
    model: ListTable, baseline: ListTable, places: Array
) -> dict[str, tuple[Values, ...]]:
    """The values of both for each common metric, list by list."""
    common = [x for x in model.metrics if baseline.find(x.name) is not None]
    if not common:
        raise ValueError(
            "`baseline` should have metrics in common with the models. "
            f"Received: {baseline.metric_names} and {model.metric_names}"
        )
    pairs: dict[str, tuple[Values, ...]] = {
        metric.name: (Values.of(model, metric), beside(metric, baseline, places))
        for metric in common
    }
    if None not in (baseline.rules, model.rules) and baseline.rules != model.rules:
        raise ValueError(
            "`baseline` should be evaluated by the rules of the models. "
            f"Received: rules {baseline.rules!r} and {model.rules!r}"
        )
    one, other = summary.unlabeled_of(baseline), summary.unlabeled_of(model)
    if one and other and one[0] != other[0] and one[1] + other[1] > 0:
        raise ValueError(
            "`baseline` should be evaluated with the `unjudged` of the models. "
            f"Received: unjudged={one[0]} and unjudged={other[0]}, with {one[1]} and "
            f"{other[1]} labels that are missing or below 0"
        )
    return pairs


def beside(
    metric: Measured, baseline: ListTable, places: Array, argument: str = "baseline"
) -> Values:
    """The values of the baseline for the queries of a model, NaN where missing.

    Raises for a metric of the same name with another definition.
    """
    of_baseline = baseline.measured(metric.name)
    mine, theirs = metric.definition, of_baseline.definition
    if mine is not None and theirs is not None:
        differ = [key for key in mine if theirs.get(key) != mine[key]]
        if differ:
            one, other = ({key: x.get(key) for key in differ} for x in (theirs, mine))
            raise ValueError(
                f"`{argument}` should have metrics with the definitions of the other "
                f"evaluations. Received: {metric.name!r} with {one} and {other}"
            )
    return Values.of(baseline, of_baseline).at(places)


def _differences(
    of_model: Mapping[str, str],
    baseline: ListTable,
    pairs: Mapping[str, tuple[Values, ...]],
    places: Array,
) -> pa.Table:
    """The differences of all metrics, list by list."""
    has_pair = places >= 0
    queries = baseline.table[baseline.query].take(pa.array(places[has_pair]))
    columns = {name: pa.repeat(value, len(queries)) for name, value in of_model.items()}
    columns[baseline.query] = queries
    for name, (new, old) in pairs.items():
        differences = (new.values - old.values)[has_pair]
        columns[name] = pa.array(differences, from_pandas=True)
    return pa.table(columns)


def places_of(
    model: ListTable, baseline: ListTable, argument: str = "baseline"
) -> Array:
    """The place of each query of a model in a baseline, -1 if it is not there.

    Args:
        model: the values of the model.
        baseline: the values of the baseline.
        argument: the name of the baseline in error messages.
    """
    mine, theirs = model.table[model.query], baseline.table[baseline.query]
    if not (len(mine) and len(theirs)):
        raise ValueError(
            f"`{argument}` and the other evaluations should have queries. Received: "
            f"{len(theirs)} and {len(mine)} queries"
        )
    of_one_kind = any(
        all(is_kind(each.type) for each in (mine, theirs))
        for is_kind in (pa.types.is_integer, _is_text)
    )
    if mine.type != theirs.type and of_one_kind:
        # Integers may differ in size, where no common type may hold all, as may the
        # places of texts.
        mine, theirs = mine.cast(pa.string()), theirs.cast(pa.string())
    if mine.type != theirs.type:
        raise ValueError(
            f"`{argument}` should have query ids of the same type as the other "
            f"evaluations. Received: {theirs.type}, such as {theirs[0].as_py()!r}, and {mine.type}, "
            f"such as {mine[0].as_py()!r}"
        )
    found = pc.index_in(mine, value_set=theirs.combine_chunks())
    if found.null_count == len(found):
        raise ValueError(
            f"`{argument}` should have queries in common with the other evaluations. "
            f"Received: no common ones, such as {theirs[0].as_py()!r} and "
            f"{mine[0].as_py()!r}"
        )
    places: Array = found.fill_null(-1).to_numpy()
    return places


def _is_text(type_: pa.DataType) -> bool:
    """Whether it is text, which pandas and Polars have in types of their own."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _notes_of(
    name: str, model: ListTable, baseline: ListTable, places: Array
) -> Iterator[str]:
    """Warns of queries and metrics that are not in both, and of other labels."""
    has_pair = places >= 0
    of_both = ((name, model, baseline), ("the baseline", baseline, model))
    theirs_alone = np.delete(np.arange(len(baseline)), places[has_pair])
    alone = (np.flatnonzero(~has_pair), theirs_alone)
    for (owner, lists, _), numbers in zip(of_both, alone, strict=True):
        if len(numbers):
            ids = lists.table[lists.query].take(pa.array(numbers[:3])).to_pylist()
            names = ", ".join(map(repr, ids)) + ", ..." * (len(numbers) > 3)
            yield (
                f"Warning: queries that only {owner} has are left out "
                f"({len(numbers)}): {names}."
            )
    mine, theirs = (lists.health_of(LABEL_SUM) for lists in (model, baseline))
    if mine is not None and theirs is not None:
        are_equal = np.isclose(mine[has_pair], theirs[places[has_pair]])
        if not are_equal.all():
            yield (
                f"Warning: {np.sum(~are_equal)} queries have other labels in the "
                "baseline, by their sum: were both evaluated with the same judgments?"
            )
    for owner, lists, other in of_both:
        names = ", ".join(x for x in lists.metric_names if other.find(x) is None)
        if names:
            yield f"Warning: metrics that only {owner} has are left out: {names}."


def worst_of(
    lists: ListTable, name: str, n: int, baseline: ListTable | None
) -> table.Table:
    """Returns the queries, as `Evaluation.worst` does."""
    metric, n = lists.measured(name), check_positive("n", n)
    found = {metric.name: lists.array(metric.name)}
    keys = found[metric.name]
    if baseline is not None:
        taken = {"baseline", "difference"} & {lists.query, *lists.kept}
        if taken:
            raise ValueError(
                "With `baseline`, no column of the evaluation should have the name of "
                "one of the result, baseline or difference. Received: "
                f"{sorted(taken)}"
            )
        places = places_of(lists, baseline)
        found["baseline"] = beside(metric, baseline, places).values
        keys = found["difference"] = keys - found["baseline"]
    order = np.argsort(keys if metric.direction == "up" else -keys, kind="stable")
    first = order[:n]
    first = first[~np.isnan(keys[first])]
    columns = lists.table.select([lists.query, *lists.kept]).take(pa.array(first))
    of_metric = {name: values[first].tolist() for name, values in found.items()}
    return table.Table({**columns.to_pydict(), **of_metric})


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
    places = [_require_places(human[0], x, "human", True) for x in human]
    places += [_require_places(human[0], x, "machine", False) for x in machine]
    of_machine = [_require_places(machine[0], x, "machine", True) for x in machine]
    n, total = len(human[0]), len(machine[0])
    if n < 2 or total < n + 2:
        raise ValueError(
            "`human` should have at least two queries, and `machine` at least two "
            f"more. Received: {n} and {total} queries"
        )
    is_rest = np.ones(total, bool)
    is_rest[places[len(human)]] = False
    rows, left_out = [], []
    for metric in human[0].metrics:
        if metric.reduction != "mean" or not all(
            x.find(metric.name) for x in (*human, *machine)
        ):
            left_out.append(metric.name)
            continue
        pairs = [
            _difference(metric, lists, of_lists, argument)
            for lists, of_lists, argument in (
                (human, places[: len(human)], "human"),
                (machine, places[len(human) :], "machine"),
                (machine, of_machine, "machine"),
            )
        ]
        row = _correct(pairs[0], pairs[1], pairs[2][is_rest], confidence)
        rows.append({"metric": metric.name, "machine_lists": total, **row})
    if not rows:
        raise ValueError(
            "`human` and `machine` should have a common metric that is a mean over "
            f"lists. Received: {human[0].metric_names} and {machine[0].metric_names}"
        )
    names = ", ".join(left_out)
    notes = [f"Metrics without a mean in all evaluations are left out: {names}."]
    return table.Table(table.columns_of(rows, _CORRECTED), notes=notes * bool(names))


def _require_places(
    lists: ListTable, others: ListTable, argument: str, all_common: bool
) -> Array:
    """Returns the places of queries in other lists. Raises `ValueError` for missing ones.

    Args:
        lists: the lists whose queries are sought.
        others: the lists in which they are sought.
        argument: the name of the other lists in error messages.
        all_common: whether the other lists must have no more queries.
    """
    places = places_of(lists, others, argument)
    missing = np.flatnonzero(places < 0)
    if len(missing) or (all_common and len(others) > len(lists)):
        received = f"{len(lists)} and {len(others)} queries"
        if len(missing):
            query = lists.table[lists.query][int(missing[0])].as_py()
            received = f"an evaluation without the query {query!r}"
        expected = "the same queries in all its evaluations, and those of `human`"
        raise ValueError(f"`{argument}` should have {expected}. Received: {received}")
    return places


def _difference(
    metric: Measured,
    lists: Sequence[ListTable],
    places: Sequence[Array],
    argument: str,
) -> Array:
    """Returns the values of a metric at places, or those of the first less the second.

    Raises `ValueError` for missing values and for lists of different weights.
    """
    pairs = zip(lists, places, strict=True)
    found = [beside(metric, x, of_lists, argument) for x, of_lists in pairs]
    for values in found:
        weights = values.weights[~np.isnan(values.weights)]
        if np.isnan(values.values).any() or np.any(weights != weights[:1]):
            raise ValueError(
                f"`{argument}` should have a value and the same weight for each list. "
                f"Received: {metric.name!r} with lists that are left out, or have "
                "different weights"
            )
    first, *second = (values.values for values in found)
    return first - second[0] if second else first


def _correct(
    human: Array, machine: Array, rest: Array, confidence: float
) -> dict[str, float]:
    """Returns the estimate of prediction-powered inference with power tuning.

        value = mean(c * rest) + mean(human - c * machine)

    where c minimizes the variance.

    Args:
        human: array of shape `(n,)`. The values of lists by human judgments.
        machine: array of the same shape. Their values by machine judgments.
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
    of_human = human.var(ddof=1)
    return {
        "value": float(value),
        "standard_error": error,
        "low": float(value) - half,
        "high": float(value) + half,
        "human_value": float(human.mean()),
        "human_standard_error": float(np.sqrt(of_human / n)),
        "human_lists": n,
        "equivalent_human_lists": float(of_human / squared) if squared else math.nan,
    }
