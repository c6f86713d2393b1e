"""The functions that evaluate tables and runs, and compare what comes of it."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.measures import members_of
from keras_rank.evaluation.lists.per_list import Progress, table_of_rows, table_of_run
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.evaluation.reading.rows import Columns
from keras_rank.evaluation.report.comparison import Comparison, compared
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.group import RankingMetrics


def evaluate(
    rows: Any,
    metrics: RankingMetrics | Sequence[RankingMetric | str],
    *,
    query: str = "query_id",
    label: str = "label",
    score: str = "score",
    item: str | None = None,
    weight: str | None = None,
    keep: str | Sequence[str] = (),
    ties: str = "metric",
    unjudged: str = "irrelevant",
    duplicates: str = "error",
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a table that has a row for each item of each query.

    The rows of a query may be anywhere in the table, in any of its files. They are
    sorted on disk if they do not fit into memory, and read as a stream.

    A label that is missing or below 0 counts as 0. An item whose score is missing or
    NaN was not retrieved. It is an error if a query or a weight is missing, a label is
    not a number, or a query has an item twice.

    Args:
        rows: files of Parquet, CSV, JSON lines or Arrow: a path, a pattern such as
            `"rows/*.parquet"`, or a list of these. Columns may have other types in
            other files, if these can be compared. Or a table in memory: of pyarrow,
            pandas, Polars or DuckDB, anything with `__arrow_c_stream__`, or a dict of
            columns. Or a `ray.data.Dataset`, which is evaluated on its workers: see
            `docs/tables.md`.
        metrics: list of ranking metrics, or of strings with a name and a cutoff, such
            as `"ndcg@10"`; or `RankingMetrics`. The result of a string is named as it
            is written. Metrics without a `seed` get the seed 0, so that a table always
            gives the same numbers.
        query: str. The column that says which list a row belongs to: the query, user
            or session. Defaults to `"query_id"`.
        label: str. The column of the labels: how relevant an item is, 0 if it is not.
            Defaults to `"label"`.
        score: str. The column of the scores of the model. Defaults to `"score"`.
        item: str. The column of the items, to find those that a query has twice. With
            it, the numbers do not depend on the order of the rows, except for metrics
            with `shuffle_ties=False`. Defaults to `None`.
        weight: str. The column of the weights of the items. Defaults to `None`.
        keep: str or list of strings. Columns with one value for each query, to slice
            and cluster by. Defaults to none.
        ties: `"metric"`: tied items are ordered as each metric says; the earlier item
            is that of the earlier row. `"trec_eval"`: the item with the larger id, as
            text, comes first; scores that are equal in float32 are ties. Defaults to
            `"metric"`.
        unjudged: `"irrelevant"`: an item whose label is missing or below 0 has the
            label 0. `"drop"`: it is left out, as `BPref` always does. Defaults to
            `"irrelevant"`.
        duplicates: `"error"`, or `"count"`: an item that a query has twice counts
            twice, and `health` reports it. Defaults to `"error"`.
        memory_limit: str. A size such as `"2GB"`, of at least 100 MB. Half of it is
            for reading and sorting: what does not fit is written to the folder of
            temporary files. The rest is for what is computed: about 150 bytes for
            each list, and for each row of the longest one if it has over 500,000.
            Python, Keras and a table in memory come on top. Defaults to `None`: most
            of the available memory.
        progress: function that is called with the numbers of rows and of lists that
            are done. Defaults to `None`.

    Returns:
        An `Evaluation`.

    Raises:
        ValueError: if the rows cannot be read, or an argument is not one of the
            accepted values.

    Example:

    >>> from keras_rank.evaluation import evaluate
    >>> rows = {
    ...     "query_id": ["a", "b", "a", "b", "c"],
    ...     "label": [1, 1, 0, 0, 2],
    ...     "score": [0.9, 0.1, 0.3, 0.8, 0.5],
    ...     "market": ["de", "fr", "de", "fr", "de"],
    ... }
    >>> ev = evaluate(rows, ["mrr", "ndcg@10"], keep=["market"])
    >>> for row in ev.summary(by="market"):
    ...     print(row["market"], row["metric"], f"{row['value']:.4f}", row["lists"])
    de mrr 1.0000 2
    de ndcg@10 1.0000 2
    fr mrr 0.5000 1
    fr ndcg@10 0.6309 1
    """
    columns = Columns(query, label, score, item, weight, _names("keep", keep))
    members = members_of(metrics)
    settings = Settings(members, columns, ties, unjudged, duplicates, memory_limit)
    if type(rows).__module__.startswith("ray.data"):
        from keras_rank.evaluation.lists.ray_data import table_of_dataset

        table = table_of_dataset(rows, settings)
    else:
        table = table_of_rows(rows, settings, progress)
    return Evaluation(table, metrics=members, query=query)


def evaluate_run(
    qrels: Any,
    run: Any,
    metrics: RankingMetrics | Sequence[RankingMetric | str],
    *,
    query: str = "query_id",
    item: str = "item_id",
    label: str = "label",
    score: str = "score",
    rules: str = "trec_eval",
    ties: str | None = None,
    unjudged: str = "irrelevant",
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a run against judgements: to the numbers of trec_eval with `-c`.

    Both are joined by query and item. A relevant item that was not retrieved has no
    rank, but counts as relevant. An item that was retrieved but not judged is
    irrelevant. A negative judgement counts as 0. A query that is only in the
    judgements counts as one where nothing was found. A query that is only in the run
    is left out, and `health` reports it. It is an error if a query has an item twice.

    Args:
        qrels: the relevance judgements: a file with lines of `query iteration item
            label`, as of TREC, or of `query item label`; a dict `{query: {item:
            label}}`, also as a file of JSON; or a table, as for `evaluate`, with the
            columns `query`, `item` and `label`. If there are none of the default
            names, those of BEIR, ir_measures, ranx, PyTerrier and Hugging Face are
            known, such as `query-id`, `corpus-id` and `score`.
        run: a file with lines of `query Q0 item rank score tag`, whose rank is
            ignored, or of `query item score`; `"-"` for standard input; a dict
            `{query: {item: score}}`; or a table with the columns `query`, `item` and
            `score`.
        metrics: list of ranking metrics, or of strings with a name and a cutoff, such
            as `"ndcg@10"`, as trec_eval writes them (`"ndcg_cut_10"`), or as
            ir_measures does (`"nDCG@10"`); or `RankingMetrics`. The result of a string
            is named as it is written. Metrics without a `seed` get the seed 0.
        query: str. The column of the queries, in tables and in the results. Defaults
            to `"query_id"`.
        item: str. The column of the items in tables. Defaults to `"item_id"`.
        label: str. The column of the labels in a table. Defaults to `"label"`.
        score: str. The column of the scores in a table. Defaults to `"score"`.
        rules: what strings mean, and how ties are ordered. `"trec_eval"`: gains are
            linear, precision divides by k, and `ties="trec_eval"`. `"keras"`: metrics
            have their own defaults, and `ties="metric"`. The spellings of trec_eval
            and ir_measures mean what they do there in any case, and metrics that are
            not strings what their arguments say. Defaults to `"trec_eval"`.
        ties: `"metric"`: tied items are ordered as each metric says; the earlier item
            is that of the earlier line. `"trec_eval"`: the item with the larger id, as
            text, comes first; scores that are equal in float32 are ties. Defaults to
            `None`: as `rules` says.
        unjudged: `"irrelevant"`: an item without a judgement, or with a negative one,
            has the label 0. `"drop"`: it is left out, as with `-J` of trec_eval, and
            as `BPref` always does. Defaults to `"irrelevant"`.
        memory_limit: str. A size such as `"2GB"`: as for `evaluate`. Defaults to
            `None`: most of the available memory.
        progress: function that is called with the numbers of rows and of lists that
            are done. Defaults to `None`.

    Returns:
        An `Evaluation`.

    Raises:
        ValueError: if the files cannot be read or have no query in common, or an
            argument is not one of the accepted values.

    Example:

    >>> from keras_rank.evaluation import evaluate_run
    >>> qrels = {
    ...     "query_id": ["a", "a", "b"],
    ...     "item_id": [1, 2, 1],
    ...     "label": [1, 2, 1],
    ... }
    >>> run = {"query_id": ["a", "a"], "item_id": [7, 2], "score": [0.9, 0.5]}
    >>> evaluate_run(qrels, run, ["mrr"]).per_list["mrr"].to_pylist()
    [0.5, 0.0]
    """
    members = members_of(metrics, rules)
    followed = rules if ties is None else f"{rules}, ties={ties}"
    if unjudged == "drop":
        followed += ", unjudged=drop"
    if ties is None:
        ties = "trec_eval" if rules == "trec_eval" else "metric"
    columns = Columns(query, label, score, item)
    settings = Settings(members, columns, ties, unjudged, memory_limit=memory_limit)
    table, left_out = table_of_run(qrels, run, settings, progress)
    return Evaluation(
        table, metrics=members, query=query, left_out=left_out, rules=followed
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

    Look at the difference and its interval first; p is the probability that chance
    alone gives such a difference, or a larger one. With many lists, nearly every
    difference is significant, but few matter.

    Args:
        baseline: `Evaluation` that the others are compared with.
        models: dict from names to `Evaluation`s of the same queries. Queries
            that only one side has are left out, with a note.
        by: str or list of strings. Columns kept in the evaluations of the models:
            there is a comparison for each of their values. Defaults to `None`: one
            over all lists.
        test: `"t"`: the paired t-test, or `"permutation"`: 9,999 random signs of the
            differences, of which those beyond the 8,192 largest are drawn as a sum.
            Defaults to `"t"`.
        correction: the correction for multiple comparisons, over all rows. `"holm"`
            controls the family-wise error rate; `"bh"` and `"by"` control the false
            discovery rate (Benjamini-Hochberg, Benjamini-Yekutieli). `None`: no
            correction. Defaults to `"holm"`.
        cluster: str. A column kept in the evaluations of the models: lists with the
            same value are not independent. Defaults to `None`.
        confidence: float. The share of such intervals that contain the true
            difference. Defaults to 0.95.

    Returns:
        A `Comparison`: a `Table` with the columns `model` (if there are several), those
        of `by`, `metric`, `baseline`, `value`, `difference`, its interval from `low`
        to `high`, `p`, `corrected_p` and `lists`.

    Raises:
        ValueError: if nothing can be compared, metrics of one name are not computed
            alike, or an argument is not one of the accepted values.

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
            f"evaluation. Received: models={reprlib.repr(models)} and a "
            f"{type(baseline).__name__}"
        )
    values = {name: model._values for name, model in models.items()}
    how = (by, test, correction, cluster, confidence)
    return compared(baseline._values, values, *how)


def _names(argument: str, names: str | Sequence[str]) -> tuple[str, ...]:
    names = [names] if isinstance(names, str) else list(names or [])
    if all(isinstance(name, str) for name in names):
        return tuple(dict.fromkeys(names))
    raise ValueError(
        f"`{argument}` should be names of columns. Received: {argument}={names!r}"
    )
