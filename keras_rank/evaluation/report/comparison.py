"""Differences between evaluations, list by list, and the worst queries."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def beside(metric: Measured, baseline: ListTable, places: Array) -> Values:
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
                "`baseline` should have metrics that are computed as those of the "
                f"models. Received: {metric.name!r} with {one} and {other}"
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


def places_of(model: ListTable, baseline: ListTable) -> Array:
    """The place of each query of a model in a baseline, -1 if it is not there."""
    mine, theirs = model.table[model.query], baseline.table[baseline.query]
    if not (len(mine) and len(theirs)):
        raise ValueError(
            "`baseline` and the models should have queries. Received: "
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
            "`baseline` should have query ids of the same type as the models. "
            f"Received: {theirs.type}, such as {theirs[0].as_py()!r}, and {mine.type}, "
            f"such as {mine[0].as_py()!r}"
        )
    found = pc.index_in(mine, value_set=theirs.combine_chunks())
    if found.null_count == len(found):
        raise ValueError(
            "`baseline` should have queries in common with the models. "
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
