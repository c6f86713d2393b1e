"""The functions that evaluate tables and runs, and compare runs without judgments."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keras_rank.arguments import check_fraction, check_positive
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists import per_list_values
from keras_rank.evaluation.lists.list_table import ListTable, add_provenance
from keras_rank.evaluation.lists.metric_names import (
    MetricInfo,
    resolve_metrics,
    should_truncate,
)
from keras_rank.evaluation.lists.per_list_values import Progress
from keras_rank.evaluation.lists.result_columns import AGREEMENT, WEIGHT
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.evaluation.report.intervals import check_column_names
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.rows import Columns
from keras_rank.reading.runs import Protocol, read_rankings


def evaluate(
    rows: Any,
    metrics: RankingMetrics | RankingMetric | Sequence[RankingMetric | str],
    *,
    query: str = "query_id",
    label: str = "label",
    score: str = "score",
    item: str | None = None,
    weight: str | None = None,
    keep: str | Sequence[str] = (),
    ties: str = "metric",
    unjudged: str | None = None,
    duplicates: str = "error",
    lower_is_better: bool = False,
    keep_items: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a table with one row per query and item.

    The rows of a query may be anywhere in the table, in any of its files. They are
    sorted on disk if they do not fit in memory, and read as a stream.

    A row whose label is missing, NaN or below 0 is padding, as in `fit`: it has no rank
    and does not count, and a query without other rows is left out of the means. An item
    whose score is missing or NaN counts as not retrieved. The summary reports the
    numbers of such rows and items. Missing queries or weights, labels that are not
    numbers, and duplicate items of a query are errors.

    Args:
        rows: Parquet, CSV, JSON lines or Arrow files: a path, a pattern such as
            `"rows/*.parquet"`, or a list of paths and patterns. The type of a column
            may differ between files if the types can be compared. Ids in text files are
            text. Or a table in memory: a table of pyarrow, pandas, Polars or DuckDB, an
            object with `__arrow_c_stream__`, or a dict of columns. Or a
            `ray.data.Dataset`, which is evaluated on the workers: see `docs/tables.md`.
        metrics: list of ranking metrics, or of strings with a name and a cutoff, such
            as `"ndcg@10"`, and optional arguments, such as
            `"rbp(persistence=0.9)@10"`. Or a single metric or string, or
            `RankingMetrics`. A string in the spelling of trec_eval (`"ndcg_cut_10"`) or
            ir_measures (`"nDCG@10"`) has the meaning of these tools: gains are linear,
            and precision divides by k. The result of a string has the string as its
            name. Metrics without a `seed` get the seed 0, so that results are
            reproducible.
        query: str. The column that identifies the list of a row: the query, user or
            session. Defaults to `"query_id"`, or a name that known tools use, as for
            `evaluate_run`.
        label: str. The column of the relevance labels, 0 for irrelevant items. Defaults
            to `"label"`, or a name that known tools use.
        score: str. The column of the scores of the model. Defaults to `"score"`.
        item: str. The column of the items, to detect duplicates. If it is given,
            results do not depend on the order of the rows, except for metrics with
            `shuffle_ties=False`, and for duplicate items that are counted and tied.
            Defaults to `None`.
        weight: str. The column of the weights of the items. Defaults to `None`.
        keep: str or list of strings. Columns with one value per query, to slice and
            cluster by. Defaults to none.
        ties: `"metric"`: tied items are ordered by the rule of each metric; the item of
            the earlier row is the earlier item. `"trec_eval"`: the item whose id is
            larger as text comes first, and an item with a score of -inf is the last
            item. `"trec_eval-9"`: like `"trec_eval"`, but scores that are equal in
            float32 are tied. Defaults to `"metric"`.
        unjudged: `"drop"`: a row whose label is missing, NaN or below 0 is padding.
            `"irrelevant"`: the row is an item with the label 0, which only `BPref`
            leaves out. Defaults to `None`: `"drop"`.
        duplicates: `"error"`, or `"count"`: duplicate items of a query count each time,
            and `health` reports them. Defaults to `"error"`.
        lower_is_better: bool. Whether scores are distances, so that the item with the
            lowest score is at rank 1. Defaults to `False`.
        keep_items: positive int. The number of items of each query to keep for `report`
            and `ranking`: the items with the highest scores, and the items with the
            highest labels. Needs `item`. Defaults to `None`: no items.
        memory_limit: str. A size such as `"2GB"`, of at least 100 MB. Half of the
            memory is for sorting; rows that do not fit are written to the folder for
            temporary files. The rest is for reading files, which takes up to 200 MB,
            and for the computation, which needs about 150 bytes per list, the kept
            items, and about 150 bytes per row of the longest list if it has over
            500,000 rows. Python and Keras need about 400 MB more, and a table in memory
            is not included either. Defaults to `None`: most of the available memory.
        progress: function that is called with the numbers of rows and lists that are
            done so far. Defaults to `None`.

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
    if isinstance(score, list | tuple):
        raise ValueError(
            "`score` should be one column, the scores of one model. Evaluate each, and "
            "compare these: `found = {name: evaluate(..., score=name) for name in "
            "names}`, `compare(found.pop(names[0]), found)`. "
            f"Received: score={score!r}"
        )
    columns = Columns(
        *(query, label, score, item, weight, check_column_names("keep", keep)),
        lower_is_better=lower_is_better,
    )
    members = resolve_metrics(metrics)
    settings = Settings(
        members,
        columns,
        ties,
        "drop" if unjudged is None else unjudged,
        duplicates,
        memory_limit,
        keep_items=keep_items,
    )
    per_list_values.check_progress(progress)
    if type(rows).__module__.startswith("ray.data"):
        from keras_rank.evaluation.lists.per_list_values import (
            create_table_from_dataset,
        )

        table = create_table_from_dataset(rows, settings)
    else:
        table = per_list_values.create_table_from_rows(rows, settings, progress)
    return Evaluation(add_provenance(table, settings), metrics=members, query=query)


def evaluate_run(
    qrels: Any,
    run: Any,
    metrics: RankingMetrics | RankingMetric | Sequence[RankingMetric | str],
    *,
    query: str = "query_id",
    item: str = "item_id",
    label: str = "label",
    score: str = "score",
    subtopic: str = "subtopic_id",
    rules: str = "trec_eval",
    ties: str | None = None,
    unjudged: str | None = None,
    duplicates: str = "error",
    missing: str = "zero",
    ignore_identical_ids: bool = False,
    lower_is_better: bool = False,
    keep_items: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a run against judgments, with the numbers of `trec_eval -c`.

    The run and the judgments are joined by query and item. A relevant item that was not
    retrieved has no rank, but counts as relevant. An item that was retrieved but not
    judged is irrelevant. A negative judgment counts as 0. A query that is only in the
    judgments counts as a query without retrieved items. A query that is only in the run
    is left out, and `health` reports it. Duplicate items of a query are an error.
    `"judged@10"` is the share of the top 10 items that have a judgment.

    If a metric reads subtopics, such as `"alpha_nDCG@20"`, the judgments should have
    subtopics. The label of an item for other metrics is then the highest of its labels.

    Args:
        qrels: the relevance judgments: a file with lines of `query iteration item
            label`, as in TREC, or of `query item label`; a dict `{query: {item:
            label}}`, also as a JSON file, or of relevant items only, `{query: [items]}`
            or `{query: {items}}`; or a table, as for `evaluate`, with the columns
            `query`, `item` and `label`. With subtopics: lines of `query subtopic item
            label`, a dict `{query: {subtopic: {item: label}}}`, or a table that also
            has the column `subtopic`. If a table lacks the default names, the names in
            BEIR, ir_measures, ranx, PyTerrier, Hugging Face and Quepid are recognized,
            such as `query-id`, `corpus-id` and `score`. Columns without names are named
            by their positions: `"column0"`, `"column1"` and so on. A table may also
            have one row per query, with a list of items and an optional list of labels.
            Names are compared without case; two columns with accepted names are an
            error. If there are no labels, all items have the label 1.
        run: a file with lines of `query Q0 item rank score tag`, whose rank is
            ignored, or of `query item score`; `"-"` for such a file as standard input;
            a dict `{query: {item: score}}`, `{query: [(item, score), ...]}` or
            `{query: [items]}`, the best first; or a table with the columns `query`,
            `item` and `score`, or lists of items and scores, or only of items, the best
            first. Ids may be bytes of text in UTF-8. Or an array of shape `(queries,
            k)` of retrieved ids, with -1 as padding at the end of rows, or lists of
            ids: then `qrels` are lists of the relevant ids in the same order of
            queries, or one id for each query. A run without retrieved items has the
            value 0, and `health` warns of it.
        metrics: list of ranking metrics, or of strings with a name and a cutoff, such
            as `"ndcg@10"`, and optional arguments, such as
            `"rbp(persistence=0.9)@10"`. Or a single metric or string, or
            `RankingMetrics`. Strings may be in the spelling of trec_eval
            (`"ndcg_cut_10"`), ir_measures (`"AP(rel=2)@10"`) or ndeval (`"strec@10"`).
            The result of a string has the string as its name. `"official"` stands for
            all measures that trec_eval prints by default. Metrics without a `seed` get
            the seed 0.
        query: str. The column of the queries, in tables and in the results. If only the
            judgments or only the run has the column, the other table should have a
            column with a known name. Defaults to `"query_id"`.
        item: str. The column of the items in tables, as for `query`. Defaults to
            `"item_id"`.
        label: str. The column of the labels in a table. Defaults to `"label"`.
        score: str. The column of the scores in a table. Defaults to `"score"`.
        subtopic: str. The column of the subtopics in a table of judgments. Defaults to
            `"subtopic_id"`; `"subtopic"` and `"iteration"` are recognized.
        rules: the meaning of strings and the order of items. `"trec_eval"`: as in
            version 10 of trec_eval, with linear gains, precision over k, and
            `ties="trec_eval"`; subtopics as in ndeval, with `normalizer="maximum"`.
            `"trec_eval-9"`: as in earlier versions, pytrec_eval, BEIR and MTEB, which
            compare scores as floats: `ties="trec_eval-9"`. `"keras"`: metrics have the
            defaults of this package, and `ties="metric"`. The spellings of trec_eval,
            ndeval and ir_measures always have the meaning of these tools, and metrics
            that are not strings keep their own arguments. Defaults to `"trec_eval"`.
        ties: `"metric"`: tied items are ordered by the rule of each metric; the item of
            the earlier line is the earlier item. `"trec_eval"` and `"trec_eval-9"`: as
            for `evaluate`, except that for metrics of subtopics the item whose id is
            smaller comes first, as in pyndeval. Defaults to `None`: the order of
            `rules`.
        unjudged: `"irrelevant"`: an item without a judgment, or with a negative
            judgment, has the label 0. `"drop"`: the item is left out, like `-J` in
            trec_eval. `BPref` always leaves it out. Defaults to `None`: `"irrelevant"`.
        duplicates: the treatment of an item that the judgments or the run have several
            times for a query, before any cutoff. `"error"`: an error. `"first"`: the
            first row counts. `"max"`: the row with the highest label or score counts.
            Defaults to `"error"`.
        missing: `"zero"`: a query that is only in the judgments has the value 0.
            `"skip"`: the query is left out of the mean, as in trec_eval without `-c`,
            BEIR and MTEB. A query with an empty list is in the run. Defaults to
            `"zero"`.
        ignore_identical_ids: bool. Whether retrieved items with the id of their query
            are left out, as in BEIR and MTEB. Defaults to `False`.
        lower_is_better: bool. Whether the scores of the run are distances, so that the
            item with the lowest score is at rank 1. Defaults to `False`.
        keep_items: positive int. The number of items of each query to keep, as for
            `evaluate`. Defaults to `None`: no items.
        memory_limit: str. A size such as `"2GB"`: as for `evaluate`. Defaults to
            `None`: most of the available memory.
        progress: function that is called with the numbers of rows and lists that are
            done so far. Defaults to `None`.

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
    members = resolve_metrics(metrics, rules)
    protocol = Protocol(duplicates, missing, ignore_identical_ids)
    description = rules if ties is None else f"{rules}, ties={ties}"
    description += ", unjudged=drop" * (unjudged == "drop")
    description += ", missing=skip" * (missing == "skip")
    description += ", ignore_identical_ids" * bool(ignore_identical_ids)
    if ties is None:
        ties = "metric" if rules == "keras" else rules
    has_subtopics = any(member.takes_subtopics for member in members)
    subtopic_column = subtopic if has_subtopics else None
    columns = Columns(
        *(query, label, score, item),
        subtopic=subtopic_column,
        lower_is_better=lower_is_better,
    )
    settings = Settings(
        members,
        columns,
        ties,
        "irrelevant" if unjudged is None else unjudged,
        memory_limit=memory_limit,
        should_truncate=should_truncate(rules),
        keep_items=keep_items,
    )
    per_list_values.check_progress(progress)
    table, left_out = per_list_values.create_table_from_run(
        qrels, run, settings, protocol, progress
    )
    return Evaluation(
        add_provenance(table, settings),
        metrics=members,
        query=query,
        left_out=left_out,
        rules=description,
    )


def agreement(
    run: Any,
    other: Any,
    k: int = 10,
    persistence: float = 0.9,
    *,
    query: str = "query_id",
    item: str = "item_id",
    score: str = "score",
    lower_is_better: bool = False,
) -> Evaluation:
    """Measures the agreement of two runs for each query, without judgments.

    `overlap@k = common items in both top k / k`

    `jaccard@k = common items in both top k / distinct items in both top k`

    `rbo = (1 - p) * sum(p**(d - 1) * overlap@d for d = 1, 2, 3, ...)`

    where p is the persistence. Beyond the ends of the lists, the rank-biased overlap
    is extrapolated (RBO_EXT). All values are between 0 and 1. Tied items are in the
    order of trec_eval, and items with scores of NaN or -inf are not retrieved. Queries
    that only one run has are left out, and so are queries without any items. Runs with
    fewer than k items lower `overlap@k`: it is 0.2 for two equal runs of two items at
    k = 10.

    Args:
        run: a run, as for `evaluate_run`.
        other: another run, as for `evaluate_run`.
        k: positive int. The cutoff of `overlap@k` and `jaccard@k`. Defaults to 10.
        persistence: float between 0 and 1. The probability that a user who views a
            rank also views the next rank. Defaults to 0.9.
        query: str. The column of the queries, as for `evaluate_run`.
        item: str. The column of the items, as for `evaluate_run`.
        score: str. The column of the scores, as for `evaluate_run`.
        lower_is_better: bool. Whether the scores of both runs are distances, so that
            the item with the lowest score is first. Defaults to `False`.

    Returns:
        An `Evaluation` with the metrics `overlap@k`, `jaccard@k` and `rbo`. Its
        `health` has no checks. A note of its `summary` counts queries that only one
        run has.

    Raises:
        ValueError: if a run cannot be read or has an item twice for a query, the runs
            have no query in common, or an argument is invalid.

    Example:

    >>> from keras_rank.evaluation import agreement
    >>> run = {"a": ["x", "y", "z"], "b": ["x"]}
    >>> other = {"a": ["y", "x", "w"], "b": ["x"]}
    >>> for name, value in agreement(run, other, k=3).items():
    ...     print(name, f"{value:.4f}")
    overlap@3 0.5000
    jaccard@3 0.7500
    rbo 0.8150

    Reference:
        Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", ACM
        TOIS 28(4), 2010.
    """
    k = check_positive("k", k)
    persistence = check_fraction("persistence", persistence)
    columns = Columns(query, "label", score, item, lower_is_better=lower_is_better)
    rankings = read_rankings(run, other, columns)
    common = rankings.drop_null()
    if not len(common):
        raise ValueError(
            "`run` and `other` should have queries in common. Received: none"
        )
    pairs = zip(*(common[x].to_pylist() for x in common.column_names[1:]), strict=True)
    values = np.array([_compare_rankings(x, y, k, persistence) for x, y in pairs])
    metrics = [
        MetricInfo(f"overlap@{k}", k, None, "up", {"class_name": "Overlap", "k": k}),
        MetricInfo(f"jaccard@{k}", k, None, "up", {"class_name": "Jaccard", "k": k}),
        MetricInfo(
            *("rbo", None, None, "up"),
            {"class_name": "RankBiasedOverlap", "persistence": persistence},
        ),
    ]
    names = [metric.name for metric in metrics]
    table = pa.table(
        {query: common["query"], WEIGHT: np.ones(len(common))}
        | {
            x: pa.array(y, from_pandas=True)
            for x, y in zip(names, values.T, strict=True)
        }
    )
    left_out = len(rankings) - len(common)
    return Evaluation(ListTable(table, metrics, query, left_out, AGREEMENT).table)


def _compare_rankings(
    items: list[Any], others: list[Any], k: int, persistence: float
) -> tuple[float, float, float]:
    """Returns the overlap, the Jaccard index and the rank-biased overlap of two lists.

    All are NaN for two empty lists.
    """
    if not items and not others:
        return math.nan, math.nan, math.nan
    top, other_top = set(items[:k]), set(others[:k])
    common = len(top & other_top)
    rbo = _compute_rank_biased_overlap(items, others, persistence)
    return common / k, common / len(top | other_top), rbo


def _compute_rank_biased_overlap(
    items: list[Any], others: list[Any], p: float
) -> float:
    """Returns the extrapolated rank-biased overlap of two lists of distinct items.

    It is equation 32 of Webber et al. (2010), where `overlaps[d - 1]` is the number of
    common items of the first d ranks.
    """
    short, long = sorted(map(len, (items, others)))
    if short == 0:
        return 0.0
    other_ranks = {item: rank for rank, item in enumerate(others)}
    depths = [
        max(rank, other_ranks[item])
        for rank, item in enumerate(items)
        if item in other_ranks
    ]
    overlaps = np.cumsum(np.bincount(depths, minlength=long))
    depth = np.arange(1, long + 1)
    shared, last = overlaps[short - 1], overlaps[-1]
    # Below the end of the shorter list, its items are assumed to agree as before.
    agreements = overlaps / depth
    agreements[short:] += shared * (depth[short:] - short) / (short * depth[short:])
    extrapolated = (last - shared) / long + shared / short
    total = (1 - p) * np.sum(agreements * p ** (depth - 1)) + extrapolated * p**long
    return float(min(total, 1.0))
