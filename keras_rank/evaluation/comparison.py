"""Differences between evaluations, list by list."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arguments import check_choice, check_fraction
from keras_rank.evaluation import statistics
from keras_rank.evaluation.measures import Measured
from keras_rank.evaluation.plots import intervals, pyplot
from keras_rank.evaluation.statistics import Array
from keras_rank.evaluation.table import Table, table_of
from keras_rank.evaluation.values import ListValues

TESTS = ("t", "permutation")
CORRECTIONS = ("holm", "bh", "by")
# The columns of a comparison, but for those of the slices.
_OF_A_DIFFERENCE = ("model", "baseline", "difference", "p", "corrected_p")
_COLUMNS = ("metric", "value", "low", "high", "lists", *_OF_A_DIFFERENCE)


class Comparison(Table):
    """The differences between evaluations, with their intervals, and of each list.

    Args:
        columns: as for `Table`.
        notes: as for `Table`.
        differences: `pyarrow.Table` with the differences of each metric for each query,
            and for each of several models.

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
        """Plots the differences with their intervals, or those of each list.

        Args:
            metric: str. The metric whose differences are plotted for all lists, the
                largest first. Defaults to `None`: the mean differences.

        Returns:
            Matplotlib's axes.
        """
        if metric is None:
            return intervals(self, "difference")
        check_choice("metric", metric, list(dict.fromkeys(self["metric"])))
        _, axes = pyplot().subplots()
        differences = self.differences
        models = differences["model"].to_pylist() if "model" in self.columns else None
        for model in sorted(set(models)) if models else [None]:
            values = differences[metric].to_numpy()
            if models:
                values = values[np.array(models) == model]
            values = np.sort(values[~np.isnan(values)])[::-1]
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
    *,
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
    for name, model in models.items():
        paired = _Paired(model, baseline, *pairs_of(model, baseline))
        notes += _unpaired(name, model, baseline, paired.mine, paired.theirs)
        of_model = {"model": name} if len(models) > 1 else {}
        of_lists = paired.differences()
        for column, value in of_model.items():
            of_lists = of_lists.add_column(0, column, pa.array([value] * len(of_lists)))
        differences.append(of_lists)
        clusters = model.clusters(cluster)
        for slice_, chosen in model.slices(model.sliced_by(by, _COLUMNS)):
            for metric in paired.metrics():
                row = paired.compared(
                    metric, chosen, clusters, confidence, test == "permutation"
                )
                rows.append({**of_model, **slice_, **row})
    columns = table_of(rows).columns
    if correction is not None:
        lists = columns.pop("lists")
        p = statistics.corrected(np.array(columns["p"]), correction)
        columns |= {"corrected_p": p.tolist(), "lists": lists}
    # The differences of a metric that not all models have are missing.
    return Comparison(
        columns,
        notes=notes,
        differences=pa.concat_tables(differences, promote_options="default"),
    )


class _Paired(NamedTuple):
    """A model and the baseline, and the numbers of the lists that both have."""

    model: ListValues
    baseline: ListValues
    mine: Array
    theirs: Array

    def metrics(self) -> list[Measured]:
        """The metrics that both have."""
        names = self.baseline.metric_names
        common = [
            metric
            for metric in self.model.metrics
            if self.baseline.find(metric.name) is not None
        ]
        if not common:
            raise ValueError(
                "`baseline` should have metrics in common with the models. "
                f"Received: {names} and {self.model.metric_names}"
            )
        for metric in common:
            _require_one_definition(metric, self.baseline.measured(metric.name))
        return common

    def differences(self) -> pa.Table:
        """The differences of all metrics, list by list."""
        queries = self.baseline.table[self.baseline.query].take(pa.array(self.theirs))
        columns = {self.baseline.query: queries}
        for metric in self.metrics():
            new = self.model.array(metric.name)[self.mine]
            of_baseline = self.baseline.measured(metric.name)
            old = self.baseline.array(of_baseline.name)[self.theirs]
            columns[metric.name] = pa.array(new - old, from_pandas=True)
        return pa.table(columns)

    def compared(
        self,
        metric: Measured,
        chosen: Array,
        clusters: Array | None,
        confidence: float,
        permute: bool,
    ) -> dict[str, Any]:
        """The difference of a metric over chosen lists of the model."""
        pair = np.full(len(self.model), -1)
        pair[self.mine] = self.theirs
        is_known = ~np.isnan(self.model.array(metric.name)[chosen])
        of_both = chosen[is_known & (pair[chosen] >= 0)]
        of_baseline = self.baseline.measured(metric.name)
        before = self.baseline.array(of_baseline.name)[pair[of_both]]
        of_both = of_both[~np.isnan(before)]
        old = self.baseline.mean(of_baseline, pair[of_both])
        new = self.model.mean(metric, of_both)
        found = statistics.estimate(
            new.value - old.value,
            new.influence - old.influence,
            None if clusters is None else clusters[of_both],
            confidence,
            permute=permute,
        )
        return {
            "metric": metric.name,
            "baseline": old.value,
            "value": new.value,
            "difference": found.value,
            "low": found.low,
            "high": found.high,
            "p": found.p,
            "lists": found.lists,
        }


def pairs_of(model: ListValues, baseline: ListValues) -> tuple[Array, Array]:
    """The numbers of the lists of the queries that both have, in both."""
    mine, theirs = model.table[model.query], baseline.table[baseline.query]
    are_integers = all(pa.types.is_integer(each.type) for each in (mine, theirs))
    if mine.type != theirs.type and are_integers:
        # Integers of other sizes are the same, of which no size has room for all.
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
            f"Received: none, such as {theirs[0].as_py()!r} beside "
            f"{mine[0].as_py()!r}"
        )
    places = found.drop_null().to_numpy()
    return np.flatnonzero(has_pair), places


def _require_one_definition(mine: Measured, theirs: Measured) -> None:
    """Raises for metrics of one name that do not compute the same."""
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
    name: str, model: ListValues, baseline: ListValues, mine: Array, theirs: Array
) -> Iterator[str]:
    """Names the queries that only one side has."""
    model_name = name or "the new one"
    for owner, evaluation, paired in (
        (model_name, model, mine),
        ("the baseline", baseline, theirs),
    ):
        alone = np.setdiff1d(np.arange(len(evaluation)), paired)
        if len(alone):
            ids = evaluation.table[evaluation.query].take(pa.array(alone[:3]))
            names = ", ".join(map(repr, ids.to_pylist()))
            more = ", ..." if len(alone) > 3 else ""
            yield (
                f"Warning: {len(alone)} queries are left out, as only {owner} has "
                f"them: {names}{more}."
            )
