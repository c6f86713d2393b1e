"""The class `Evaluation`, and comparisons of evaluations."""

import os
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.arguments import check_fraction
from keras_rank.evaluation.lists import list_table
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import describe_metric
from keras_rank.evaluation.report import health, plots
from keras_rank.evaluation.report.comparison import (
    Comparison,
    compare_lists,
    correct_by_humans,
    find_worst,
)
from keras_rank.evaluation.report.intervals import EstimateOptions, Values
from keras_rank.evaluation.report.page import Page, get_items
from keras_rank.evaluation.report.summary import summarize
from keras_rank.evaluation.report.table import Table, import_pandas, unknown_name_error
from keras_rank.metrics.base import RankingMetric


class Evaluation(Mapping[str, float]):
    """The values of metrics for each list, and the tables computed from them.

    `evaluate` and `evaluate_run` return an evaluation. `print` shows the summary, and
    the warnings of `health`, if there are any. An evaluation is a mapping from the
    names of metrics to their values, as in `ev["ndcg@10"]` and `dict(ev)`. `ev[...]`,
    `in` and `get` accept any spelling of a metric. Evaluations are equal only if they
    are the same object.

    Args:
        table: `pyarrow.Table` with one row per list, as in `ev.table` and
            `ev.per_list`, or a concatenation of such tables with the same metrics and
            rules.
        metrics: list of ranking metrics. The metrics of the columns. Defaults to
            `None`: the metrics in the schema of the table.
        query: str. The column of the queries. Defaults to `None`: the column that the
            schema names.
        left_out: int. The number of queries that were left out because they have no
            judgments. Defaults to `None`: the number in the column `health/left out`.
        rules: str. The rules by which runs were evaluated, as shown by `summary`.
            Defaults to `None`: the rules in the schema.

    Attributes:
        table: `pyarrow.Table`: `per_list` and the columns that `health` needs.
        query: str. The name of the query column.
        lists: int. The number of lists.
        rules: str. The rules by which a run was evaluated, `None` for a table.
        metric_names: list of strings. The names of the metrics.
        kept: list of strings. The names of the kept columns.

    Raises:
        ValueError: if the schema of the table does not describe its columns, a query
            has several rows, or rows have metrics of different definitions.

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
    >>> ev["mrr"], dict(ev), ev.lists
    (0.75, {'mrr': 0.75}, 2)
    """

    # `Mapping` compares values, so that different evaluations could be equal, and
    # defines no hash.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self,
        table: pa.Table,
        *,
        metrics: Sequence[RankingMetric] | None = None,
        query: str | None = None,
        left_out: int | None = None,
        rules: str | None = None,
    ) -> None:
        metric_infos = (
            None if metrics is None else [describe_metric(each) for each in metrics]
        )
        self._values = values = ListTable(table, metric_infos, query, left_out, rules)
        self.table, self.query, self.rules = values.table, values.query, values.rules
        self.metric_names, self.kept = values.metric_names, values.kept_columns
        self.lists = len(values)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Reads a Parquet file written by `write`."""
        return cls(list_table.read(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per list, in the format of the suffix.

        Args:
            path: str. A file that ends in `.parquet`, which `read` can read. Or a file
                that ends in `.csv`, `.json` or `.jsonl`, with the columns of
                `per_list`, for other tools.
        """
        list_table.write(self.table, self.per_list, path)

    def __getitem__(self, name: str) -> float:
        metric = self._values.find(name)
        if metric is None:
            raise unknown_name_error("metric", name, self.metric_names)
        values = Values.from_table(self._values, metric)
        return values.mean(~np.isnan(values.values)).number

    def __iter__(self) -> Iterator[str]:
        return iter(self.metric_names)

    def __len__(self) -> int:
        return len(self.metric_names)

    def items(self, *args: Any, **kwargs: Any) -> ItemsView[str, float]:
        """Returns the names and values of the metrics.

        Raises:
            TypeError: if arguments are passed: `ranking` returns the items of a query.
        """
        if args or kwargs:
            raise TypeError(
                "`items` should have no arguments: `ranking(query)` returns the items "
                f"of a query. Received: {args or kwargs}"
            )
        return super().items()

    def to_dict(self) -> dict[str, float]:
        """Returns a dict from the names of the metrics to their values."""
        return {name: self[name] for name in self}

    @property
    def per_list(self) -> pa.Table:
        """A `pyarrow.Table`: query, kept columns, metrics and weight of each list.

        A metric is null for a list that is left out of the mean. The weight is null for
        a list without relevant items, which gets the average weight of the other lists.
        If items have different weights, metrics may weight a list differently: then
        each metric has its own column of weights, such as `ndcg@10_weight`.
        """
        return self._values.per_list()

    def __repr__(self) -> str:
        return "\n".join([str(self.summary()), *self.warnings])

    def to_html(self) -> str:
        """Returns the summary and the warnings in HTML, as notebooks show them."""
        summary = self.summary()
        return Table(summary.columns, notes=[*summary.notes, *self.warnings]).to_html()

    _repr_html_ = to_html

    def to_pandas(self) -> Any:
        """Returns `per_list` as a `pandas.DataFrame`."""
        import_pandas()
        return self.per_list.to_pandas()

    def summary(
        self,
        by: str | Sequence[str] | None = None,
        *,
        cluster: str | None = None,
        confidence: float = 0.95,
    ) -> Table:
        """Returns the mean of each metric, with its standard error and interval.

        Args:
            by: str or list of strings. Kept columns: there is a mean for each of their
                values. Defaults to `None`: one mean over all lists.
            cluster: str. A kept column, such as the user, without missing values. Lists
                with the same value are not independent, and count as one unit when the
                error is estimated. Defaults to `None`: all lists are independent.
            confidence: float. The confidence level of the intervals. Defaults to 0.95.

        Returns:
            A `keras_rank.evaluation.Table` with the columns of `by`, `metric`, `value`,
            `standard_error`, the interval from `low` to `high`, and the number of
            `lists`. The interval is Student's t, clipped to the range of the metric. If
            all values are 0 or 1, as for hit rates, and all lists have the same weight,
            it is Wilson's interval. A sum, such as `num_ret`, has no interval. If lists
            have different weights, there is a column `effective_lists`, the effective
            sample size `sum(weight)**2 / sum(weight**2)`. The notes are the rules of a
            run, the treatment of rows without labels, if there are any, the gains of
            graded labels, and warnings about intervals of fewer than ten lists or
            clusters.

        Raises:
            ValueError: if a column was not kept, or `cluster` has missing values.
        """
        return summarize(
            self._values, EstimateOptions.from_arguments(by, cluster, confidence)
        )

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
        """Compares this evaluation with a baseline, list by list.

        `keras_rank.evaluation.compare` compares several models with one baseline.

        Args:
            baseline: `Evaluation` of the same queries.
            by: str or list of strings. Columns kept in this evaluation: there is a
                comparison for each of their values. Defaults to `None`: one over all
                lists.
            test: `"t"`, the paired t-test, or `"permutation"`. Defaults to `"t"`.
            correction: `"holm"`, `"bh"`, `"by"` or `None`. Defaults to `"holm"`.
            cluster: str. A column kept in this evaluation: lists with the same value
                are not independent. Defaults to `None`.
            confidence: float. The confidence level of the intervals. Defaults to 0.95.

        Returns:
            A `Comparison`.

        Raises:
            ValueError: if nothing can be compared, or an argument is not one of the
                accepted values.
        """
        options = EstimateOptions.from_arguments(
            by, cluster, confidence, test, correction
        )
        return compare_lists(
            _get_list_table("baseline", baseline), {"": self._values}, options
        )

    def health(self) -> Table:
        """Returns checks for problems that can make the numbers misleading.

        Returns:
            A `keras_rank.evaluation.Table` with the columns `check`, `lists` (the
            number of affected lists), `share` (the share of all lists, or of lists with
            retrieved items for checks of scores; for `judged`, the mean share of judged
            items), and `threshold` (a larger share causes a warning; for `judged`, a
            smaller share does). Checks of ties also have the `worst`, `average` and
            `best` values over all orders of the tied items; the `share` is the
            difference between best and worst. They order tied items by their labels, as
            `shuffle_ties="worst"` and `"best"` do. Other orders may have values beyond
            them with weights of items, for `MeanAveragePrecision` with
            `normalizer="retrieved"`, for metrics of subtopics, and for metrics of your
            own. The notes are the warnings.

        Raises:
            ValueError: if the table lacks the columns of health.
        """
        return health.create_checks_table(self._values)

    @property
    def warnings(self) -> list[str]:
        """The warnings of `health`."""
        return health.get_warnings(self._values)

    def worst(
        self,
        metric: str | None = None,
        n: int = 10,
        *,
        baseline: "Evaluation | None" = None,
    ) -> Table:
        """Returns the queries with the worst values, or the largest losses.

        Args:
            metric: str. The name of a metric. Defaults to `None`: the first one.
            n: positive int. The number of queries. Defaults to 10.
            baseline: `Evaluation`. If it is passed, the queries with the largest losses
                compared with it are returned. Defaults to `None`: the queries with the
                worst values.

        Returns:
            A `keras_rank.evaluation.Table` with the query, the kept columns, and the
            metric. With a baseline, also the value of the baseline and the difference.

        Raises:
            ValueError: if there is no such metric, or `n` is not a positive int.
        """
        baseline_lists = (
            None if baseline is None else _get_list_table("baseline", baseline)
        )
        first = self._values.first_metric if metric is None else metric
        return find_worst(self._values, first, n, baseline_lists)

    def ranking(self, query: Any) -> Table:
        """Returns the items of a query that were kept with `keep_items`.

        Args:
            query: the id of the query.

        Returns:
            A `keras_rank.evaluation.Table` with the columns `rank` (missing for an item
            that was not retrieved), `item`, `label` and `score` (missing if the run has
            no scores). The order of items with equal scores may differ from the order
            in the metrics.

        Raises:
            ValueError: if there is no such query, or no items were kept.
        """
        return get_items(self._values, query)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        baseline: "Evaluation | None" = None,
        by: str | Sequence[str] | None = None,
        test: str = "t",
        correction: str | None = "holm",
        cluster: str | None = None,
        confidence: float = 0.95,
        title: str = "Ranking evaluation",
        names: Sequence[str] = (),
    ) -> None:
        """Writes an HTML page for colleagues: one file, which needs no network.

        The page has the summary, the comparison, slices, the warnings of `health`, the
        worst queries with the items that were kept, and the settings of the evaluation.
        Needs Matplotlib.

        Args:
            path: the name of a file that ends in `.html`.
            baseline: `Evaluation` of the same queries. Defaults to `None`: no baseline.
            by: str or list of strings. Kept columns to slice by. Defaults to `None`.
            test: as for `compare`.
            correction: as for `compare`.
            cluster: as for `compare`.
            confidence: as for `compare`.
            title: str. The title of the page. Defaults to `"Ranking evaluation"`.
            names: list of strings. The name of the evaluation, and the name of the
                baseline. Defaults to no names.

        Raises:
            ImportError: if Matplotlib is not installed.
            ValueError: if nothing can be written to `path`, or as for `compare`.
        """
        file = list_table.check_page_path(path)
        plots.require_matplotlib("report")
        options = EstimateOptions.from_arguments(
            by, cluster, confidence, test, correction
        )
        baseline_lists = (
            None if baseline is None else _get_list_table("baseline", baseline)
        )
        page = Page(self._values, baseline_lists, options, title, names)
        # The page is rendered before the file is opened, so that an error does not
        # change the file.
        content = page.html().encode("utf-8")
        file.write_bytes(content)

    def plot(
        self,
        by: str | Sequence[str] | None = None,
        *,
        cluster: str | None = None,
        confidence: float = 0.95,
        ax: Any = None,
    ) -> Any:
        """Plots the means with their intervals, and returns the axes of Matplotlib.

        Args:
            by: as for `summary`.
            cluster: as for `summary`.
            confidence: as for `summary`.
            ax: Matplotlib axes to draw on. Defaults to `None`: the axes of a new
                figure, whose height depends on the number of rows.
        """
        summary = self.summary(by, cluster=cluster, confidence=confidence)
        title = f"Means with {100 * confidence:g}% confidence intervals"
        return plots.draw_intervals(summary, "value", title, ax)


def compare(
    baseline: Evaluation,
    models: Mapping[str, Evaluation] | Evaluation,
    *,
    by: str | Sequence[str] | None = None,
    test: str = "t",
    correction: str | None = "holm",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compares models with a baseline, list by list.

    Look at the difference and its interval first; p is the probability that chance
    alone gives such a difference, or a larger one. With many lists, nearly every
    difference is significant, but few matter.

    Args:
        baseline: `Evaluation` that the models are compared with.
        models: dict from names to `Evaluation`s of the same queries, or an
            `Evaluation`. Queries that the baseline or the model lacks are left out,
            with a note.
        by: str or list of strings. Columns kept in the evaluations of the models:
            there is a comparison for each of their values. Defaults to `None`: one
            over all lists.
        test: `"t"`: the paired t-test, or `"permutation"`: 9,999 draws of random signs
            for the differences, where all but the 8,192 largest are drawn as one sum.
            Defaults to `"t"`.
        correction: the correction for multiple comparisons, over all rows. `"holm"`
            controls the family-wise error rate; `"bh"` and `"by"` control the false
            discovery rate (Benjamini-Hochberg, Benjamini-Yekutieli). `None`: no
            correction. Defaults to `"holm"`.
        cluster: str. A column kept in the evaluations of the models: lists with the
            same value are not independent. Defaults to `None`.
        confidence: float. The confidence level of the intervals. Defaults to 0.95.

    Returns:
        A `Comparison`: a `Table` with the columns `model` (if there are several), the
        columns of `by`, `metric`, `baseline`, `value`, `difference`, its interval from
        `low` to `high`, `p`, `corrected_p`, `lists`, and the numbers of lists that the
        model `wins`, `ties` and `losses`: lists with better, equal and worse values.

    Raises:
        ValueError: if nothing can be compared, metrics of the same name have different
            definitions, or an argument is not one of the accepted values.

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
    if isinstance(models, Evaluation):
        models = {"": models}
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            "`models` should be an evaluation, or a dict from names to evaluations. "
            f"Received: models={models!r}"
        )
    options = EstimateOptions.from_arguments(by, cluster, confidence, test, correction)
    base = _get_list_table("baseline", baseline)
    return compare_lists(
        base, {x: _get_list_table("models", y) for x, y in models.items()}, options
    )


def prediction_powered(
    human: Evaluation | tuple[Evaluation, Evaluation],
    machine: Evaluation | tuple[Evaluation, Evaluation],
    *,
    confidence: float = 0.95,
) -> Table:
    """Corrects many machine judgments by few human judgments.

    `value = mean(c * F over the other lists) + mean(Y - c * F over the human lists)`

    where Y and F are the values of a list by human and by machine judgments, and
    `c = cov(Y, F) / var(F) / (1 + n / N)`, clipped to [0, 1], for n lists with both and
    N other lists. The estimate has no bias, whatever the machine judgments are, if the
    human lists are a random sample. Its error is smaller than that of human judgments
    alone if both are correlated. See docs/uncertainty.md.

    Args:
        human: `Evaluation` of a run by human judgments, or a pair of them: then all
            numbers are differences of two runs, the first less the second.
        machine: `Evaluation` of the same run by machine judgments, of the human
            queries and at least two others, or a pair of them.
        confidence: float. The confidence level of the intervals. Defaults to 0.95.

    Returns:
        A `Table` with the columns `metric`, `value`, `standard_error`, the interval
        from `low` to `high` (Student's t with n - 1 degrees of freedom), `human_value`
        and `human_standard_error` of human judgments alone, `human_lists` (n),
        `machine_lists` (n + N), and `equivalent_human_lists`: how many human lists
        alone would have the same standard error.

    Raises:
        ValueError: if a human query has no machine judgments, there are fewer than two
            human or other lists, or lists are left out or have different weights.

    Example:

    >>> from keras_rank.evaluation import evaluate_run, prediction_powered
    >>> run = {query: {"a": 2.0, "b": 1.0} for query in "123456"}
    >>> by_machine = {x: {"a": 1} if x in "1346" else {"b": 1} for x in run}
    >>> by_human = {"1": {"a": 1}, "2": {"b": 1}, "3": {"b": 1}}
    >>> human, machine = (evaluate_run(x, run, ["mrr"]) for x in (by_human, by_machine))
    >>> for row in prediction_powered(human, machine):
    ...     print(f"{row['value']:.4f} +- {row['standard_error']:.4f}")
    0.6667 +- 0.1566

    Reference:
        Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered inference",
        2023.
    """
    sides = [x if isinstance(x, tuple) else (x,) for x in (human, machine)]
    if len(sides[0]) != len(sides[1]) or len(sides[0]) not in (1, 2):
        received = f"{len(sides[0])} and {len(sides[1])} evaluations"
        raise ValueError(
            "`human` and `machine` should be an evaluation each, or a pair of "
            f"evaluations each. Received: {received}"
        )
    human_tables = [_get_list_table("human", x) for x in sides[0]]
    machine_tables = [_get_list_table("machine", x) for x in sides[1]]
    confidence = check_fraction("confidence", confidence)
    return correct_by_humans(human_tables, machine_tables, confidence)


def _get_list_table(argument: str, value: Any) -> ListTable:
    """Returns the lists of an evaluation. Raises `ValueError` for other values."""
    if isinstance(value, Evaluation):
        return value._values
    raise ValueError(
        f"`{argument}` should be an `Evaluation`; `keras_rank.evaluation.compare` "
        "takes a dict of several models to compare with one. Received: "
        f"{argument} of type {type(value).__name__}"
    )
