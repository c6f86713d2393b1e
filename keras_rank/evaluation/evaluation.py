"""What was evaluated: a row for each list, and the tables that are read off it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from keras_rank.arguments import check_choice, check_fraction
from keras_rank.evaluation import statistics
from keras_rank.evaluation.health import (
    Check,
    check_of_spread,
    checks_of,
    checks_of_cutoff,
)
from keras_rank.evaluation.lists import HEALTH, ORDERS, OWN_WEIGHT, WEIGHT
from keras_rank.evaluation.table import Table
from keras_rank.metrics.base import RankingMetric

Array: TypeAlias = np.ndarray[Any, Any]

# What the schema of a table knows of its columns.
_KEY = b"keras_rank"
TESTS = ("t", "permutation")
CORRECTIONS = ("holm", "bh", "by")
# The columns of results, but for those of the slices.
_SUMMARY = ("metric", "value", "standard_error", "low", "high", "lists")
_OF_A_DIFFERENCE = ("model", "baseline", "difference", "p", "corrected_p")
_COMPARISON = ("metric", "value", "low", "high", "lists", *_OF_A_DIFFERENCE)


class _Measured(NamedTuple):
    """What has to be known of a metric once its values are there."""

    name: str
    k: int | None
    empty_value: float | None
    direction: str


class Evaluation:
    """The values of metrics for each list, and the tables that are read off them.

    `evaluate` and `evaluate_run` make it. Printing it shows the summary, and warnings
    where `health` found something.

    Args:
        table: `pyarrow.Table` with a row for each list, as `ev.table` and `per_list`
            give it, or several that are one below the other.
        metrics: the metrics of its columns. Defaults to `None`: as its schema says.
        query: str. The column of the lists. Defaults to `None`: as its schema says.
        left_out: int. The number of queries that were left out, as nobody judged them.
            Defaults to `None`: as its schema says.

    Raises:
        ValueError: if the table does not say what its columns are.

    Example:

    >>> from keras_rank.evaluation import evaluate
    >>> rows = {
    ...     "query_id": ["a", "a", "b", "b"],
    ...     "label": [1, 0, 0, 1],
    ...     "score": [0.9, 0.1, 0.8, 0.3],
    ... }
    >>> ev = evaluate(rows, ["mrr"])
    >>> ev.per_list.to_pydict()
    {'query_id': ['a', 'b'], 'mrr': [1.0, 0.5], 'weight': [1.0, 1.0]}
    >>> ev.summary()["value"]
    [0.75]
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        metrics: Sequence[RankingMetric] | None = None,
        query: str | None = None,
        left_out: int | None = None,
    ) -> None:
        known = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
        if metrics is not None:
            known["metrics"] = [
                (m.name, m.k, m.empty_value, m._direction) for m in metrics
            ]
        if query is not None:
            known["query"] = query
        if left_out is not None:
            known["left_out"] = left_out
        missing = {"metrics", "query"} - known.keys()
        missing |= {known.get("query")} - {None, *table.column_names}
        if missing:
            raise ValueError(
                "`table` should be the table of an evaluation, whose schema says what "
                "its columns are; else `metrics` and `query` have to. Received: a "
                f"table with the columns {table.column_names}"
            )
        self.query: str = known["query"]
        self._metrics = [_Measured(*metric) for metric in known["metrics"]]
        self._left_out: int = known.get("left_out", 0)
        metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(known).encode()}
        self.table = table.replace_schema_metadata(metadata)
        if pc.count_distinct(table[self.query]).as_py() < len(table):
            raise ValueError(
                "`table` should have each query once: of one that lies in several "
                "parts, no part has the value. Received: a table of "
                f"{len(table)} lists, some of the same query"
            )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Reads the Parquet file that `write` wrote."""
        return cls(parquet.read_table(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes all that is known of each list to a Parquet file."""
        parquet.write_table(self.table, path)

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.name for metric in self._metrics]

    @property
    def per_list(self) -> pa.Table:
        """A `pyarrow.Table`: the query, what was kept, the metrics, and the weight.

        A metric is null for a list that is left out of its mean. The weight is null
        for a list without relevant items, which weighs the average of the others.
        Where metrics give a list other weights, as items have other ones and not all
        are relevant to all metrics, there is a column for each: `ndcg@10_weight`.
        """
        names = [x for x in self.table.column_names if not x.startswith(HEALTH)]
        table = self.table.select(names).replace_schema_metadata()
        return _with_one_weight(table, self.metric_names)

    @property
    def kept(self) -> list[str]:
        """The names of the columns that are known of a query."""
        others = {self.query, WEIGHT, *self.metric_names}
        others |= {OWN_WEIGHT.format(name) for name in self.metric_names}
        return [
            name
            for name in self.table.column_names
            if name not in others and not name.startswith(HEALTH)
        ]

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return "\n".join([str(self.summary()), *self.warnings])

    def _repr_html_(self) -> str:
        summary = self.summary()
        return Table(summary.columns, notes=self.warnings)._repr_html_()

    def to_pandas(self) -> Any:
        """Returns the values of each list as a `pandas.DataFrame`."""
        return self.per_list.to_pandas()

    def summary(
        self,
        by: str | Sequence[str] | None = None,
        *,
        cluster: str | None = None,
        confidence: float = 0.95,
    ) -> Table:
        """Returns the mean of each metric, and how sure it is.

        Args:
            by: str or list of such. Columns that were kept: a mean for each of their
                values. Defaults to `None`: one over all lists.
            cluster: str. A column that was kept, such as the user: lists with the
                same value are not independent of each other, and stay together where
                the error is estimated. Defaults to `None`: each list for itself.
            confidence: float. How often such intervals hold the true mean. Defaults
                to 0.95.

        Returns:
            A `Table` with the columns of `by`, `metric`, `value`, `standard_error`,
            the interval from `low` to `high`, and `lists`, the number of these.

        Raises:
            ValueError: if a column was not kept.
        """
        confidence = check_fraction("confidence", confidence)
        by, clusters = self._by(by, _SUMMARY), self._clusters(cluster)
        rows = []
        for slice_, chosen in self._slices(by):
            for metric in self._metrics:
                of_metric = chosen[~np.isnan(self._array(metric.name)[chosen])]
                mean = self._mean(metric, of_metric)
                found = statistics.estimate(
                    mean.value,
                    mean.influence,
                    None if clusters is None else clusters[of_metric],
                    confidence,
                )
                rows.append(
                    {
                        **slice_,
                        "metric": metric.name,
                        "value": found.value,
                        "standard_error": found.standard_error,
                        "low": found.low,
                        "high": found.high,
                        "lists": found.lists,
                    }
                )
        return _table_of(rows)

    def compare(
        self,
        baseline: "Evaluation",
        *,
        by: str | Sequence[str] | None = None,
        test: str = "t",
        correction: str | None = "holm",
        cluster: str | None = None,
        confidence: float = 0.95,
    ) -> "Comparison":
        """Compares with a baseline, list by list.

        See `keras_rank.evaluation.compare`, which compares several with one.

        Args:
            baseline: `Evaluation` of the same queries.
            by: str or list of such. Columns that were kept here: a comparison for
                each of their values.
            test: `"t"`, the paired t-test, or `"permutation"`.
            correction: `"holm"`, `"bh"`, `"by"` or `None`.
            cluster: str. A column that was kept here: lists with the same value stay
                together.
            confidence: float. How often such intervals hold the true difference.

        Returns:
            A `Comparison`.

        Raises:
            ValueError: if nothing can be compared, or an argument is none of those.
        """
        return compare(
            baseline,
            {"": self},
            by=by,
            test=test,
            correction=correction,
            cluster=cluster,
            confidence=confidence,
        )

    def health(self) -> Table:
        """Returns what might make the numbers mislead, and warns of it in words.

        Returns:
            A `Table` with the columns `check`, `lists` (how many have it), `share`,
            `threshold` (from which on there is a warning), and for the order of tied
            items the `worst`, `average` and `best` value of a metric. Its notes are
            the warnings.

        Raises:
            ValueError: if the table has no columns for it.
        """
        checks = self._checks()
        nothing = (None, None, None)
        spreads = [check.spread or nothing for check in checks]
        columns: dict[str, list[Any]] = {
            "check": [check.name for check in checks],
            "lists": [check.lists for check in checks],
            "share": [check.share for check in checks],
            "threshold": [check.threshold for check in checks],
        }
        columns |= {
            order: [spread[i] for spread in spreads] for i, order in enumerate(ORDERS)
        }
        return Table(columns, notes=self._warnings(checks))

    @property
    def warnings(self) -> list[str]:
        """The warnings of `health`."""
        has_health = HEALTH + "items" in self.table.column_names
        return self._warnings(self._checks()) if has_health else []

    def worst(
        self, metric: str, n: int = 10, *, baseline: "Evaluation | None" = None
    ) -> Table:
        """Returns the queries that went wrong.

        Args:
            metric: str. The name of a metric.
            n: int. How many queries. Defaults to 10.
            baseline: `Evaluation`. Defaults to `None`: the queries of the worst
                values. Else those that lost most against it.

        Returns:
            A `Table` with the query, what was kept of it, the metric, and the value of
            the baseline and the difference to it where there is one.

        Raises:
            ValueError: if there is no such metric.
        """
        measured = self._measured(metric)
        names = [self.query, *self.kept]
        values, chosen = self._array(metric), np.arange(len(self))
        if baseline is not None:
            chosen, theirs = _pairs(self, baseline)
            before = baseline._array(baseline._measured(metric).name)[theirs]
            keys = values[chosen] - before
        else:
            keys = values[chosen]
        keys = keys if measured.direction == "up" else -keys
        first = np.argsort(keys, kind="stable")[: max(0, int(n))]
        first = first[~np.isnan(keys[first])]
        columns = self.table.select(names).take(pa.array(chosen[first])).to_pydict()
        columns[metric] = values[chosen][first].tolist()
        if baseline is not None:
            columns["baseline"] = before[first].tolist()
            columns["difference"] = (values[chosen] - before)[first].tolist()
        return Table(columns)

    def plot(
        self,
        by: str | Sequence[str] | None = None,
        *,
        cluster: str | None = None,
        confidence: float = 0.95,
    ) -> Any:
        """Draws the means and their intervals, and returns Matplotlib's axes.

        Args:
            by: as for `summary`.
            cluster: as for `summary`.
            confidence: as for `summary`.
        """
        return _drawn(self.summary(by, cluster=cluster, confidence=confidence), "value")

    def _checks(self) -> list[Check]:
        columns = {
            name.removeprefix(HEALTH): self._array(name)
            for name in self.table.column_names
            if name.startswith(HEALTH)
        }
        if not columns:
            raise ValueError(
                "`table` should have the columns of health, which `per_list` leaves "
                "out: write and read evaluations by `write` and `read`. Received: the "
                f"columns {self.table.column_names}"
            )
        checks = checks_of(columns, self.metric_names[0])
        for k in sorted({metric.k for metric in self._metrics if metric.k is not None}):
            checks += checks_of_cutoff(columns, k)
        for metric in self._metrics:
            counted = np.flatnonzero(~np.isnan(self._array(metric.name)))
            means = [
                self._mean(metric, counted, f"{HEALTH}{metric.name}/{order}").value
                for order in ORDERS
            ]
            checks.append(check_of_spread(metric.name, columns["ties"], *means))
        return checks

    def _warnings(self, checks: Sequence[Check]) -> list[str]:
        failed = [check for check in checks if not check.is_passed]
        warnings = [
            f"Warning: {check.lists} of {len(self)} lists {check.warning}"
            + "." * (not check.warning.endswith("?"))
            for check in failed
        ]
        if self._left_out:
            warnings.append(
                f"Warning: {self._left_out} queries of the run are left out, as nobody "
                "judged any of their items."
            )
        return warnings

    def _measured(self, name: str) -> _Measured:
        check_choice("metric", name, self.metric_names)
        return self._metrics[self.metric_names.index(name)]

    def _array(self, name: str) -> Array:
        """A column of numbers, NaN where they are missing."""
        array: Array = self.table[name].to_numpy()
        return array

    def _mean(
        self, metric: _Measured, chosen: Array, column: str | None = None
    ) -> statistics.Mean:
        """The mean of a metric over chosen lists, or of another column like it."""
        own = OWN_WEIGHT.format(metric.name)
        weight = own if own in self.table.column_names else WEIGHT
        values = self._array(column or metric.name)[chosen]
        return statistics.mean(values, self._array(weight)[chosen], metric.empty_value)

    def _by(self, by: str | Sequence[str] | None, columns: Sequence[str]) -> list[str]:
        """The columns of slices, beside the other columns of the result."""
        names = [by] if isinstance(by, str) else list(by or [])
        for name in names:
            self._require_kept("by", name)
            if name in columns:
                raise ValueError(
                    "`by` should name columns that are not called like one of the "
                    f"result: {', '.join(columns)}. Received: {name!r}"
                )
        return names

    def _require_kept(self, argument: str, name: str) -> None:
        if name not in self.kept:
            raise ValueError(
                f"`{argument}` should name columns that were kept, as of "
                f"`evaluate(..., keep=[{name!r}])`. Received: {name!r}, where "
                f"{self.kept} were kept"
            )

    def _clusters(self, cluster: str | None) -> Array | None:
        if cluster is None:
            return None
        self._require_kept("cluster", cluster)
        return _codes(self.table[cluster])[0]

    def _slices(self, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yields the values of the columns, and the numbers of the lists with them."""
        if not by:
            yield {}, np.arange(len(self))
            return
        coded = [_codes(self.table[name]) for name in by]
        codes = np.stack([codes for codes, _ in coded], axis=1)
        slices, of_list = np.unique(codes, axis=0, return_inverse=True)
        order = np.argsort(of_list, kind="stable")
        ends = np.cumsum(np.bincount(of_list))
        for slice_, chosen in zip(slices, np.split(order, ends[:-1]), strict=True):
            values = [
                names[code] for (_, names), code in zip(coded, slice_, strict=True)
            ]
            yield dict(zip(by, values, strict=True)), chosen


class Comparison(Table):
    """The differences between evaluations, how sure they are, and between which lists.

    Args:
        columns: as for `Table`.
        notes: as for `Table`.
        differences: `pyarrow.Table` with the query and the difference of each metric,
            for each of the models.

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
        """Draws the differences and their intervals, or those of each list.

        Args:
            metric: str. A metric, of which the differences of all lists are drawn, the
                largest first. Defaults to `None`: the means.

        Returns:
            Matplotlib's axes.
        """
        if metric is None:
            return _drawn(self, "difference")
        check_choice("metric", metric, list(dict.fromkeys(self["metric"])))
        pyplot = _pyplot()
        _, axes = pyplot.subplots()
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


def compare(
    baseline: Evaluation,
    models: Mapping[str, Evaluation],
    *,
    by: str | Sequence[str] | None = None,
    test: str = "t",
    correction: str | None = "holm",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compares models with a baseline, list by list.

    What counts is the difference and its interval; p tells how often chance alone
    would give such a difference. With many lists nearly every difference is
    significant, and few are worth something.

    Args:
        baseline: `Evaluation` that the others are held against.
        models: dict from names to `Evaluation`s of the same queries. A query that
            one side does not have is left out, and named in the notes.
        by: str or list of such. Columns that were kept of the models: a comparison
            for each of their values. Defaults to `None`: one over all lists.
        test: `"t"`: the paired t-test, or `"permutation"`, which draws the signs of
            the differences. Defaults to `"t"`.
        correction: what is done about many comparisons, all rows together. `"holm"`:
            the chance that any is wrong stays. `"bh"`, `"by"`: the share of wrong ones
            stays (Benjamini-Hochberg, Benjamini-Yekutieli). Defaults to `"holm"`;
            `None` leaves it.
        cluster: str. A column that was kept of the models: lists with the same value
            stay together. Defaults to `None`.
        confidence: float. How often such intervals hold the true difference.
            Defaults to 0.95.

    Returns:
        A `Comparison`: a `Table` with the columns `model` (of several), those of `by`,
        `metric`, `baseline`, `value`, `difference`, its interval from `low` to
        `high`, `p`, `corrected_p` and `lists`.

    Raises:
        ValueError: if nothing can be compared, or an argument is none of those.

    Example:

    >>> from keras_rank.evaluation import compare, evaluate
    >>> rows = {"query_id": [1, 1, 2, 2, 3, 3], "label": [1, 0, 1, 0, 1, 0]}
    >>> base = evaluate({**rows, "score": [1, 2, 1, 2, 2, 1]}, ["mrr"])
    >>> better = evaluate({**rows, "score": [2, 1, 2, 1, 2, 1]}, ["mrr"])
    >>> comparison = compare(base, {"same": base, "better": better})
    >>> for row in comparison:
    ...     print(row["model"], f"{row['difference']:.3f}", f"{row['p']:.3f}")
    same 0.000 1.000
    better 0.333 0.184
    """
    are_evaluations = isinstance(models, Mapping) and all(
        isinstance(each, Evaluation) for each in (baseline, *models.values())
    )
    if not (are_evaluations and models):
        raise ValueError(
            "`models` should be a dict from names to evaluations, and `baseline` an "
            f"evaluation. Received: models={models!r} and a {type(baseline).__name__}"
        )
    check_choice("test", test, TESTS)
    if correction is not None:
        check_choice("correction", correction, CORRECTIONS)
    confidence = check_fraction("confidence", confidence)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    differences = []
    for name, model in models.items():
        paired = _Paired(model, baseline, *_pairs(model, baseline))
        notes += _unpaired(name, model, baseline, paired.mine, paired.theirs)
        of_model = {"model": name} if len(models) > 1 else {}
        of_lists = paired.differences()
        for column, value in of_model.items():
            of_lists = of_lists.add_column(0, column, pa.array([value] * len(of_lists)))
        differences.append(of_lists)
        clusters = model._clusters(cluster)
        for slice_, chosen in model._slices(model._by(by, _COMPARISON)):
            for metric in paired.metrics():
                row = paired.compared(
                    metric, chosen, clusters, confidence, test == "permutation"
                )
                rows.append({**of_model, **slice_, **row})
    columns = _table_of(rows).columns
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

    model: Evaluation
    baseline: Evaluation
    mine: Array
    theirs: Array

    def metrics(self) -> list[_Measured]:
        """The metrics that both have."""
        names = self.baseline.metric_names
        common = [metric for metric in self.model._metrics if metric.name in names]
        if not common:
            raise ValueError(
                "`baseline` should have metrics in common with what is compared with "
                f"it. Received: {names} and {self.model.metric_names}"
            )
        return common

    def differences(self) -> pa.Table:
        """The differences of all metrics, list by list."""
        queries = self.baseline.table[self.baseline.query].take(pa.array(self.theirs))
        columns = {self.baseline.query: queries}
        for metric in self.metrics():
            new = self.model._array(metric.name)[self.mine]
            old = self.baseline._array(metric.name)[self.theirs]
            columns[metric.name] = pa.array(new - old, from_pandas=True)
        return pa.table(columns)

    def compared(
        self,
        metric: _Measured,
        chosen: Array,
        clusters: Array | None,
        confidence: float,
        permute: bool,
    ) -> dict[str, Any]:
        """The difference of a metric over chosen lists of the model."""
        pair = np.full(len(self.model), -1)
        pair[self.mine] = self.theirs
        is_known = ~np.isnan(self.model._array(metric.name)[chosen])
        of_both = chosen[is_known & (pair[chosen] >= 0)]
        before = self.baseline._array(metric.name)[pair[of_both]]
        of_both = of_both[~np.isnan(before)]
        of_baseline = self.baseline._measured(metric.name)
        old = self.baseline._mean(of_baseline, pair[of_both])
        new = self.model._mean(metric, of_both)
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


def _table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table({name: [row[name] for row in rows] for name in rows[0]})


def _codes(column: pa.ChunkedArray) -> tuple[Array, list[Any]]:
    """The values of a column in their order, and the number of that of each row."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.int64)
    place[np.asarray(order)] = np.arange(len(order))
    return place[np.asarray(encoded.indices)], encoded.dictionary.take(
        order
    ).to_pylist()


def _with_one_weight(table: pa.Table, metrics: Sequence[str]) -> pa.Table:
    """The table with one column of weights, if those of all metrics are the same."""
    own = [OWN_WEIGHT.format(name) for name in metrics]
    if not set(own) <= set(table.column_names):
        return table
    first = table[own[0]]
    if not all(table[name].equals(first) for name in own):
        return table
    place = table.column_names.index(own[0])
    return table.drop_columns(own).add_column(place, WEIGHT, first)


def _pairs(model: Evaluation, baseline: Evaluation) -> tuple[Array, Array]:
    """The numbers of the lists of the queries that both have, in both."""
    mine, theirs = model.table[model.query], baseline.table[baseline.query]
    are_integers = all(pa.types.is_integer(each.type) for each in (mine, theirs))
    if mine.type != theirs.type and are_integers:
        # Integers of other sizes are the same, of which no size has room for all.
        mine, theirs = mine.cast(pa.string()), theirs.cast(pa.string())
    if mine.type != theirs.type:
        raise ValueError(
            "`baseline` should have ids of queries of the same type. Received: "
            f"{theirs.type}, such as {theirs[0].as_py()!r}, beside {mine.type}, such "
            f"as {mine[0].as_py()!r}"
        )
    found = pc.index_in(mine, value_set=theirs.combine_chunks())
    has_pair = np.asarray(found.is_valid())
    if not has_pair.any():
        raise ValueError(
            "`baseline` should have queries in common with what is compared with it. "
            f"Received: none, such as {theirs[0].as_py()!r} beside "
            f"{mine[0].as_py()!r}"
        )
    places = found.drop_null().to_numpy()
    return np.flatnonzero(has_pair), places


def _unpaired(
    name: str, model: Evaluation, baseline: Evaluation, mine: Array, theirs: Array
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


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "`plot` needs Matplotlib: `pip install matplotlib`."
        ) from error
    return pyplot


def _drawn(table: Table, value: str) -> Any:
    """Draws the intervals of a table, a line for each row, and returns the axes."""
    pyplot = _pyplot()
    _, axes = pyplot.subplots()
    numbers = {"baseline", "value", "difference", "standard_error", "low", "high", "p"}
    numbers |= {"corrected_p", "lists"}
    names = [name for name in table.columns if name not in numbers]
    labels = [" ".join(str(row[name]) for name in names) for row in table.rows]
    middles, places = np.array(table[value]), np.arange(len(table))[::-1]
    sides = [middles - table["low"], table["high"] - middles]
    axes.errorbar(middles, places, xerr=sides, fmt="o", capsize=3)
    axes.set_yticks(places, labels)
    axes.set_xlabel(value)
    if value == "difference":
        axes.axvline(0.0, color="grey", linewidth=0.8)
    return axes
