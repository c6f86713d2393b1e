"""What was evaluated: a row for each list, and the tables that are read off it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from keras_rank.evaluation.comparison import Comparison, compared, pairs_of
from keras_rank.evaluation.health import checks_of, table_of_checks, warnings_of
from keras_rank.evaluation.plots import intervals
from keras_rank.evaluation.summary import summarized
from keras_rank.evaluation.table import Table
from keras_rank.evaluation.values import ListValues, Measured
from keras_rank.metrics.base import RankingMetric


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
        measured = None
        if metrics is not None:
            measured = [
                Measured(m.name, m.k, m.empty_value, m._direction) for m in metrics
            ]
        self._values = ListValues(table, measured, query, left_out)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Reads the Parquet file that `write` wrote."""
        return cls(parquet.read_table(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes all that is known of each list to a Parquet file."""
        parquet.write_table(self.table, path)

    @property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` of all that is known of each list, as `write` writes it."""
        return self._values.table

    @property
    def query(self) -> str:
        """The name of the column of the lists."""
        return self._values.query

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics."""
        return self._values.metric_names

    @property
    def per_list(self) -> pa.Table:
        """A `pyarrow.Table`: the query, what was kept, the metrics, and the weight.

        A metric is null for a list that is left out of its mean. The weight is null
        for a list without relevant items, which weighs the average of the others.
        Where metrics give a list other weights, as items have other ones and not all
        are relevant to all metrics, there is a column for each: `ndcg@10_weight`.
        """
        return self._values.per_list()

    @property
    def kept(self) -> list[str]:
        """The names of the columns that are known of a query."""
        return self._values.kept

    def __len__(self) -> int:
        return len(self._values)

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
        return summarized(self._values, by, cluster, confidence)

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
        checks = checks_of(self._values)
        return table_of_checks(checks, warnings_of(self._values, checks))

    @property
    def warnings(self) -> list[str]:
        """The warnings of `health`."""
        has_health = bool(self._values.health)
        return warnings_of(self._values, checks_of(self._values)) if has_health else []

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
        measured = self._values.measured(metric)
        names = [self.query, *self.kept]
        values, chosen = self._values.array(metric), np.arange(len(self))
        if baseline is not None:
            baseline._values.measured(metric)
            chosen, theirs = pairs_of(self._values, baseline._values)
            before = baseline._values.array(metric)[theirs]
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
        return intervals(
            self.summary(by, cluster=cluster, confidence=confidence), "value"
        )


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
    return compared(
        baseline._values,
        {name: model._values for name, model in models.items()},
        by=by,
        test=test,
        correction=correction,
        cluster=cluster,
        confidence=confidence,
    )
