"""Differences between evaluations, list by list."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arguments import check_choice, check_fraction
from keras_rank.evaluation.lists.columns import LABEL_SUM
from keras_rank.evaluation.lists.measures import Measured
from keras_rank.evaluation.lists.values import ListValues
from keras_rank.evaluation.report.intervals import Places, Values, corrected, estimate
from keras_rank.evaluation.report.plots import intervals, pyplot
from keras_rank.evaluation.report.table import Table, table_of

TESTS = ("t", "permutation")
CORRECTIONS = ("holm", "bh", "by")
# The columns of a comparison, without those of the slices, which follow the first.
_COLUMNS = (
    *("model", "metric", "baseline", "value", "difference", "low", "high"),
    *("p", "corrected_p", "lists"),
)


class Comparison(Table):
    """The differences between evaluations, with their intervals.

    Args:
        columns: as for `Table`.
        notes: as for `Table`.
        differences: `pyarrow.Table` with the differences of each metric, per query, and
            per model if there are several.

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
    ) -> None:
        super().__init__(columns, notes=notes)
        self.differences = differences

    def plot(self, metric: str | None = None) -> Any:
        """Plots the mean differences with their intervals, or those of all lists.

        Args:
            metric: str. The metric whose differences are plotted for all lists, the
                largest first. Defaults to `None`: mean differences with intervals.

        Returns:
            Matplotlib's axes.
        """
        if metric is None:
            return intervals(self, "difference")
        check_choice("metric", metric, list(dict.fromkeys(self["metric"])))
        _, axes = pyplot().subplots()
        differences = self.differences
        models = sorted(set(self["model"])) if "model" in self.columns else []
        tables = {
            name: differences.filter(pc.field("model") == name) for name in models
        }
        for model, table in (tables or {None: differences}).items():
            values = np.sort(table[metric].drop_null().to_numpy())[::-1]
            axes.plot(np.arange(1, len(values) + 1), values, label=model)
        axes.axhline(0.0, color="grey", linewidth=0.8)
        axes.set_xlabel("lists, the largest gain first")
        axes.set_ylabel(f"difference of {metric}")
        if models:
            axes.legend()
        return axes


def compared(
    baseline: ListValues,
    models: Mapping[str, ListValues],
    by: str | Sequence[str] | None,
    test: str,
    correction: str | None,
    cluster: str | None,
    confidence: float,
) -> Comparison:
    """Compares models with a baseline, as `compare` does with evaluations."""
    check_choice("test", test, TESTS)
    if correction is not None:
        check_choice("correction", correction, CORRECTIONS)
    confidence = check_fraction("confidence", confidence)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    differences = []
    if len(models) > 1 and baseline.query == "model":
        raise ValueError(
            "`models` should be compared one at a time if queries are in a column "
            f"named 'model', which would name the models. Received: {list(models)}"
        )
    for name, model in models.items():
        of_model = {"model": name} if len(models) > 1 else {}
        places = places_of(model, baseline)
        notes += _unpaired(name, model, baseline, places)
        notes += _labeled_otherwise(model, baseline, places)
        notes += _unshared(name, model, baseline)
        pairs = {
            metric.name: (Values.of(model, metric), beside(metric, baseline, places))
            for metric in _common(model, baseline)
        }
        _require_one_way(model, baseline)
        differences.append(_differences(of_model, baseline, pairs, places))
        by = model.sliced_by(by, _COLUMNS)
        of_slices = _estimates(model, pairs, by, test, cluster, confidence)
        rows += [{**of_model, **row} for row in of_slices]
    p = corrected(np.array([row["p"] for row in rows]), correction)
    rows = [{**row, "corrected_p": x} for row, x in zip(rows, p.tolist(), strict=True)]
    unused = {"corrected_p"} if correction is None else set()
    unused |= {"model"} if len(models) == 1 else set()
    names = ["model", *(by or []), *_COLUMNS[1:]]
    return Comparison(
        table_of(rows, [name for name in names if name not in unused]).columns,
        notes=notes,
        # The differences are missing for models without the metric.
        differences=pa.concat_tables(differences, promote_options="default"),
    )


def _estimates(
    model: ListValues,
    pairs: Mapping[str, tuple[Values, Values]],
    by: list[str],
    test: str,
    cluster: str | None,
    confidence: float,
) -> Iterator[dict[str, Any]]:
    """The mean difference of each metric, with its interval, slice by slice."""
    clusters, permute = model.clusters(cluster), test == "permutation"
    for slice_, chosen in model.slices(by):
        for name, (new, old) in pairs.items():
            both = chosen[~np.isnan(new.values[chosen] - old.values[chosen])]
            after, before = new.mean(both), old.mean(both)
            of_cluster = None if clusters is None else clusters[both]
            found = estimate(after - before, of_cluster, confidence, permute)
            row = {"metric": name, **found._asdict(), "difference": found.value}
            row |= {"baseline": before.value, "value": after.value}
            yield {**row, **slice_}


def beside(metric: Measured, baseline: ListValues, places: Places) -> Values:
    """The values of the baseline for the queries of a model, NaN where missing."""
    of_baseline = baseline.measured(metric.name)
    _require_one_definition(metric, of_baseline)
    return Values.of(baseline, of_baseline).placed(places)


def _common(model: ListValues, baseline: ListValues) -> list[Measured]:
    """The metrics that both have."""
    common = [x for x in model.metrics if baseline.find(x.name) is not None]
    if not common:
        raise ValueError(
            "`baseline` should have metrics in common with the models. "
            f"Received: {baseline.metric_names} and {model.metric_names}"
        )
    return common


def _unshared(name: str, model: ListValues, baseline: ListValues) -> Iterator[str]:
    """Names the metrics that are not in both."""
    first, second = (name or "the new one", model), ("the baseline", baseline)
    for (owner, its), (_, other) in ((first, second), (second, first)):
        alone = [x.name for x in its.metrics if other.find(x.name) is None]
        if alone:
            names = ", ".join(alone)
            yield f"Warning: metrics that only {owner} has are left out: {names}."


def _differences(
    of_model: Mapping[str, str],
    baseline: ListValues,
    pairs: Mapping[str, tuple[Values, Values]],
    places: Places,
) -> pa.Table:
    """The differences of all metrics, list by list."""
    numbers = pa.array(places.theirs)
    columns = {name: pa.repeat(value, len(numbers)) for name, value in of_model.items()}
    columns[baseline.query] = baseline.table[baseline.query].take(numbers)
    for name, (new, old) in pairs.items():
        differences = (new.values - old.values)[places.mine]
        columns[name] = pa.array(differences, from_pandas=True)
    return pa.table(columns)


def places_of(model: ListValues, baseline: ListValues) -> Places:
    """The places of the common queries."""
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
    has_pair = np.asarray(found.is_valid())
    if not has_pair.any():
        raise ValueError(
            "`baseline` should have queries in common with the models. "
            f"Received: no common ones, such as {theirs[0].as_py()!r} and "
            f"{mine[0].as_py()!r}"
        )
    theirs_of_mine = found.drop_null().to_numpy()
    return Places(len(model), np.flatnonzero(has_pair), theirs_of_mine)


def _is_text(type_: pa.DataType) -> bool:
    """Whether it is text, which pandas and Polars have in types of their own."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _require_one_way(model: ListValues, baseline: ListValues) -> None:
    """Raises for runs that were evaluated by different rules."""
    both = baseline.rules, model.rules
    if None not in both and both[0] != both[1]:
        raise ValueError(
            "`baseline` should be evaluated by the rules of the models. "
            f"Received: rules {both[0]!r} and {both[1]!r}"
        )


def _require_one_definition(mine: Measured, theirs: Measured) -> None:
    """Raises for metrics of the same name with different definitions."""
    if mine.definition is None or theirs.definition is None:
        return
    both = theirs.definition, mine.definition
    differ = [key for key in both[1] if both[0].get(key) != both[1][key]]
    if differ:
        one, other = ({key: each.get(key) for key in differ} for each in both)
        raise ValueError(
            "`baseline` should have metrics that are computed as those of the models. "
            f"Received: {mine.name!r} with {one} and {other}"
        )


def _unpaired(
    name: str, model: ListValues, baseline: ListValues, places: Places
) -> Iterator[str]:
    """Names the queries that are not in both."""
    first = (name or "the new one", model, places.mine)
    for owner, lists, paired in (first, ("the baseline", baseline, places.theirs)):
        alone = np.delete(np.arange(len(lists)), paired)
        if len(alone):
            ids = lists.table[lists.query].take(pa.array(alone[:3])).to_pylist()
            names = ", ".join(map(repr, ids)) + ", ..." * (len(alone) > 3)
            yield (
                f"Warning: queries that only {owner} has are left out "
                f"({len(alone)}): {names}."
            )


def _labeled_otherwise(
    model: ListValues, baseline: ListValues, places: Places
) -> Iterator[str]:
    """Tells of queries whose labels have another sum in the baseline."""
    mine, theirs = (x.health.get(LABEL_SUM) for x in (model, baseline))
    if mine is None or theirs is None:
        return
    differ = int(np.sum(~np.isclose(mine[places.mine], theirs[places.theirs])))
    if differ:
        yield (
            f"Warning: {differ} queries have other labels in the baseline, by their "
            "sum: were both evaluated with the same judgements?"
        )
