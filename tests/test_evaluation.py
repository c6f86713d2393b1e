"""What is scored already: read, computed by the package's formulas, and summed up."""

import itertools
import time

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from elsewhere import path_of
from keras import ops
from pyarrow import csv, feather, parquet
from scipy import stats
from tables import lists_of, raises, rows_of

from keras_rank import functional
from keras_rank.evaluation import Evaluation, compare, evaluate, evaluate_run
from keras_rank.evaluation.lists import padded
from keras_rank.evaluation.report import intervals
from keras_rank.metrics import (
    DCG,
    NDCG,
    AverageRelevancePosition,
    ExpectedReciprocalRank,
    MeanAveragePrecision,
    MeanReciprocalRank,
    PairwiseAccuracy,
    PrecisionAtK,
    RankingMetric,
    RankingMetrics,
)

# What does not depend on the backend: one runs it.
pytestmark = pytest.mark.usefixtures("only_where_it_is_quick")
NAN = float("nan")


@pytest.fixture
def only_where_it_is_quick(request, backend):
    if backend != "numpy" and "on_all_backends" not in request.node.name:
        pytest.skip("reading and statistics are the same on all backends")


def test_correlations_of_a_table():
    """By any of their names, with intervals that reach below 0."""
    table = rows_of(noise=9.0)
    found = evaluate(table, ["tau", "rho", "map_at_r", "R_cap@3", "f_beta@3"])
    expected = []
    for labels, scores in zip(*lists_of(table, "label", "score"), strict=True):
        if len({*labels}) > 1:
            same = len({*scores}) == 1
            tau = 0.0 if same else stats.kendalltau(labels, scores).statistic
            expected.append(tau)
    row, *others = found.summary()
    assert row["metric"] == "tau"
    assert row["lists"] == len(expected)
    assert row["value"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert row["low"] < 0.0 < row["high"]
    assert found["kendall_tau"] == found["tau"]
    assert found["spearman"] == others[0]["value"]
    assert found["recall_cap_at_3"] == found["R_cap@3"]


def members():
    """Metrics of which each leaves out or weighs empty lists in a way of its own."""
    return [
        NDCG(k=5, shuffle_ties=False),
        NDCG(k=3, shuffle_ties="average", empty_value=None, name="left_out"),
        MeanAveragePrecision(shuffle_ties="average", empty_value=0.5),
        MeanReciprocalRank(shuffle_ties=False, relevance_threshold=2.0),
        AverageRelevancePosition(shuffle_ties=False),
        PairwiseAccuracy(shuffle_ties="average"),
    ]


def column(evaluation, name):
    return evaluation.per_list[name].to_numpy()


# The values of each list, and their mean.


@pytest.mark.parametrize("weight", [None, "weight", "item_weight"])
def test_means_are_those_of_the_metrics(weight):
    rows = rows_of()
    labels, scores = lists_of(rows, "label", "score")
    weights = None if weight is None else lists_of(rows, weight)[0]
    group = RankingMetrics(members())
    group.update_state(labels, scores, weights)
    found = evaluate(rows, members(), weight=weight).summary()
    expected = {name: float(value) for name, value in group.result().items()}
    assert found["metric"] == list(expected)
    assert dict(zip(found["metric"], found["value"], strict=True)) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(
    "weights", [[1e30, 1e20, 1.0], [np.inf, 1.0, 1.0], [1.0, 0.0, -1.0]]
)
def test_weights_are_cut_as_those_of_the_metrics(weights):
    rows = {"query_id": np.repeat(np.arange(3), 2), "label": [1, 0, 1, 0, 1, 0]}
    rows |= {"score": [2, 1, 1, 2, 1, 2], "weight": np.repeat(weights, 2)}
    labels, scores, weights = (
        np.reshape(rows[name], (3, 2)) for name in ("label", "score", "weight")
    )
    metric = MeanReciprocalRank()
    metric.update_state(labels, scores, weights)
    found = evaluate(rows, ["mrr"], weight="weight").summary()
    assert found["value"] == pytest.approx([float(metric.result())])


def test_it_evaluates_on_all_backends():
    """Five lists, as many as no backend that compiles each shape would take."""
    rows = {"query_id": np.repeat(np.arange(5), 6), "label": np.arange(30) * 7 % 3}
    rows |= {"score": np.arange(30) * 5 % 11, "weight": 1.0 + np.arange(30) % 4}
    metrics = [NDCG(k=3, shuffle_ties="average"), MeanReciprocalRank(seed=1)]
    found = evaluate(rows, metrics, weight="weight")
    arguments = {"k": 3, "shuffle_ties": "average"}
    labels, scores, weights = (
        rows[name].reshape(5, 6) for name in ("label", "score", "weight")
    )
    values = functional.ndcg(labels, scores, sample_weight=weights, **arguments)
    values = ops.convert_to_numpy(values)
    assert column(found, "ndcg_at_3") == pytest.approx(values, abs=1e-6)
    assert len(found.health()) > 5
    group = RankingMetrics([metrics[0]])
    group.update_state(labels, scores, weights)
    mean = float(group.result()["ndcg_at_3"])
    assert found.summary()["value"][0] == pytest.approx(mean, abs=1e-6)


def test_the_shuffle_is_the_same_on_all_backends():
    """And in each process: of four tied items, the relevant one comes at a rank."""
    rows = {"query_id": np.repeat(list("abcdefgh"), 4), "score": np.zeros(32)}
    rows["label"] = np.tile([0, 1, 0, 0], 8)
    found = column(evaluate(rows, ["mrr"]), "mrr")
    assert (1.0 / found).round().tolist() == [4.0, 2.0, 2.0, 4.0, 3.0, 2.0, 4.0, 2.0]


def test_values_are_those_of_the_functions():
    rows = rows_of()
    labels, scores = lists_of(rows, "label", "score")
    found = evaluate(rows, members())
    assert found.per_list.column_names == [
        "query_id",
        *[metric.name for metric in members()],
        "weight",
    ]
    expected = functional.ndcg(labels, scores, k=5, shuffle_ties=False)
    assert column(found, "ndcg_at_5") == pytest.approx(expected, abs=1e-6)
    expected = functional.ndcg(
        labels, scores, k=3, shuffle_ties="average", empty_value=None
    )
    assert np.any(np.isnan(expected))
    np.testing.assert_allclose(column(found, "left_out"), expected, atol=1e-6)
    assert column(found, "query_id").tolist() == sorted(
        set(rows["query_id"].to_pylist())
    )
    assert column(found, "weight").tolist() == [1.0] * 60


def test_lists_that_weigh_the_same_to_all_metrics_have_one_weight():
    rows, names = rows_of(), ["ndcg@5", "mrr"]
    (of_lists,) = lists_of(rows, "weight")
    (labels,) = lists_of(rows, "label")
    found = evaluate(rows, names, weight="weight")
    assert found.per_list.column_names == ["query_id", *names, "weight"]
    expected = [
        w[0] if any(y) else np.nan for w, y in zip(of_lists, labels, strict=True)
    ]
    np.testing.assert_allclose(column(found, "weight"), expected, rtol=1e-6)
    found = evaluate(rows, names, weight="item_weight")
    assert found.per_list.column_names[-2:] == ["ndcg@5_weight", "mrr_weight"]
    again = Evaluation(
        found.per_list,
        metrics=[NDCG(k=5, name="ndcg@5"), MeanReciprocalRank()],
        query="query_id",
    )
    assert again.summary().rows == found.summary().rows


def test_a_query_that_lies_in_two_parts_is_an_error():
    parts = [evaluate(rows_of(seed=seed), ["mrr"]).table for seed in (0, 1)]
    with pytest.raises(ValueError, match="`table` should have one row per query"):
        Evaluation(pa.concat_tables(parts))


def test_how_rows_are_cut_does_not_matter(monkeypatch):
    """Nor which other lists there are: ties are shuffled by the id of the query."""
    rows, names = rows_of(digits=0), ["ndcg@5", "map"]
    expected = evaluate(rows, names, weight="item_weight", keep=["market"])
    monkeypatch.setattr("keras_rank.reading.rows._ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(padded, "_POSITIONS", 40)
    found = evaluate(rows, names, weight="item_weight", keep=["market"])
    assert found.per_list.equals(expected.per_list)
    assert found.table.equals(expected.table)
    some = rows.filter(pa.compute.greater(rows["query_id"], 20))
    found = evaluate(some, names, weight="item_weight", keep=["market"])
    assert found.per_list.equals(expected.per_list.slice(21))
    other = evaluate(some, [NDCG(k=5, seed=3)])
    assert column(other, "ndcg_at_5").tolist() != column(found, "ndcg@5").tolist()


def test_the_order_of_rows_does_not_matter_where_items_are_known():
    rows = rows_of(digits=0).append_column("id", pa.array(range(len(rows_of()))))
    other = rows.take(np.random.default_rng(1).permutation(len(rows)))
    found = [evaluate(each, ["ndcg@5", "map"], item="id") for each in (rows, other)]
    assert found[0].table.equals(found[1].table)


def test_lists_of_similar_length_are_padded_by_less_than_a_third():
    sizes = np.random.default_rng(0).integers(1, 2000, 3000)
    seen = []
    for chosen, size in padded._batches_of(sizes):
        seen += chosen.tolist()
        assert size >= sizes[chosen].max()
        assert sizes[chosen].sum() > 2 / 3 * size * len(chosen)
    assert sorted(seen) == list(range(3000))


# Reading.


def written(rows, path):
    """Writes rows in the format that the name says, a half each if it has two."""
    if path.suffix == ".parquet":
        parquet.write_table(rows, path)
    elif path.suffix == ".csv":
        csv.write_csv(rows, path)
    elif path.suffix == ".arrow":
        feather.write_feather(rows, path)
    else:
        rows.to_pandas().to_json(path, orient="records", lines=True)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow"])
def test_files(tmp_path, suffix):
    """A query lies in both files, in rows apart."""
    rows = rows_of()
    if suffix in ("csv", "jsonl"):
        # Ids are text there.
        ids = rows["query_id"].cast(pa.string())
        rows = rows.set_column(rows.column_names.index("query_id"), "query_id", ids)
    expected = evaluate(rows, ["ndcg@5"], keep="market").per_list
    for i, part in enumerate((rows.slice(0, 200), rows.slice(200))):
        written(part, tmp_path / f"{i}.{suffix}")
    for source in (
        str(tmp_path / f"*.{suffix}"),
        [tmp_path / f"0.{suffix}", tmp_path / f"1.{suffix}"],
    ):
        found = evaluate(source, ["ndcg@5"], keep="market").per_list
        assert found.equals(expected)


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows.to_pydict(),
        lambda rows: rows.to_pandas(),
        lambda rows: rows.to_pandas().astype({"market": "category"}),
        lambda rows: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()),
        lambda rows: rows.combine_chunks().to_batches()[0],
        lambda rows: pytest.importorskip("duckdb").from_arrow(rows),
        lambda rows: pytest.importorskip("polars").from_arrow(rows),
    ],
    ids=["dict", "pandas", "category", "stream", "batch", "duckdb", "polars"],
)
def test_tables_in_memory(made):
    rows = rows_of()
    expected = evaluate(rows, ["ndcg@5"], keep="market").per_list
    found = evaluate(made(rows), ["ndcg@5"], keep="market").per_list
    assert found.to_pydict() == expected.to_pydict()


def test_rules_of_missing_labels_and_scores():
    rows = {
        "query_id": [1, 1, 1, 2, 2, 2, 3, 3],
        "label": [None, 1.0, -2.0, float("nan"), 1.0, 0.0, 1.0, 0.0],
        "score": [0.9, 0.5, 0.1, 0.9, 0.5, 0.1, float("nan"), None],
    }
    found = evaluate(rows, ["mrr"], unjudged="irrelevant")
    assert column(found, "mrr").tolist() == [0.5, 0.5, 0.0]
    rows = {name: [*values, values[0]] for name, values in rows.items()}
    rows["query_id"][-1] = 4
    dropped = evaluate(rows, ["mrr"])
    # Of the last one nothing is left, which is seen.
    assert column(dropped, "mrr") == pytest.approx([1.0, 1.0, 0.0, NAN], nan_ok=True)
    assert dropped.summary()["lists"] == [3]


def test_scores_keep_their_precision():
    """Two scores that differ in float64 only are no tie, but to trec_eval 9."""
    rows = {"query_id": [1, 1], "item_id": ["a", "b"], "label": [0, 1]}
    rows["score"] = [1.0, 1.0 + 1e-12]
    assert column(evaluate(rows, ["mrr"]), "mrr") == [1.0]
    rows["label"] = [1, 0]
    assert column(evaluate(rows, ["mrr"]), "mrr") == [0.5]
    for item_ids, expected in ((["a", "b"], 0.5), (["b", "a"], 1.0)):
        rows["item_id"] = item_ids
        found = evaluate(rows, [MeanReciprocalRank(shuffle_ties=False)], item="item_id")
        assert column(found, "mrr") == [0.5]
        found = evaluate(
            rows,
            [MeanReciprocalRank(shuffle_ties=False)],
            item="item_id",
            ties="trec_eval-9",
        )
        assert column(found, "mrr") == [expected]
        found = evaluate(rows, ["mrr"], item="item_id", ties="trec_eval")
        assert column(found, "mrr") == [0.5]


def test_trec_eval_compares_doubles_on_all_backends():
    """Also where a backend has float32 only: the rows are in its order."""
    qrels, run = {"1": {"a": 1}}, {"1": {"b": 25_000.0, "a": 25_000.0 + 1e-6}}
    run["1"] |= {"c": -1e39, "d": -2e39}
    for rules, expected in (("trec_eval", 1.0), ("trec_eval-9", 0.5)):
        assert evaluate_run(qrels, run, ["mrr"], rules=rules)["mrr"] == expected
        found = evaluate_run({"1": {"c": 1}}, run, ["mrr"], rules=rules)
        assert found["mrr"] == pytest.approx({"trec_eval": 1 / 3}.get(rules, 1 / 4))


def test_trec_eval_prints_the_same():
    printed = {}
    for line in path_of("trec_eval/out.test.aq").read_text().splitlines():
        measure, topic, value = line.split(maxsplit=2)
        printed[measure, topic] = value
    ours = {"map": "map", "recip_rank": "mrr", "Rprec": "r_precision", "ndcg": "ndcg"}
    ours |= {"P_10": "precision@10", "recall_100": "recall@100"}
    ours |= {"ndcg_cut_10": "ndcg@10", "map_cut_100": "map@100"}
    files = path_of("trec_eval/qrels.test"), path_of("trec_eval/results.test")
    evaluation = evaluate_run(*files, list(ours.values()), ties="trec_eval")
    means = dict(zip(ours, evaluation.summary()["value"], strict=True))
    topics = evaluation.per_list["query_id"].to_pylist()
    for measure, name in ours.items():
        assert f"{means[measure]:.4f}" == printed[measure, "all"]
        for topic, value in zip(topics, column(evaluation, name), strict=True):
            assert f"{value:.4f}" == printed[measure, topic]


def trec_files(tmp_path, qrels, run):
    for name, lines in (("qrels", qrels), ("run", run)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path / "qrels", tmp_path / "run"


QRELS = ["1 0 a 2", "1 0 b 0", "1 0 c -1", "1 0 d 1", "2 0 a 1", "3 0 a 0"]
RUN = ["1 Q0 x 1 0.9 t", "1\tQ0  a 2 0.8 t", "", "1 Q0 c 3 0.8 t", "9 Q0 a 1 1 t"]


def test_outer_join_of_trec_files(tmp_path):
    """As trec_eval -c: query 2 was not run, 3 has nothing relevant, 9 no judgments."""
    files = trec_files(tmp_path, QRELS, RUN)
    found = evaluate_run(*files, ["map", "mrr"], ties="trec_eval")
    assert found.per_list.to_pydict() == {
        "query_id": ["1", "2", "3"],
        "map": pytest.approx([1 / 3 / 2, 0.0, 0.0]),
        "mrr": pytest.approx([1 / 3, 0.0, 0.0]),
        "weight": [1.0, 1.0, 1.0],
    }
    assert any("judgments are left out (1)" in w for w in found.warnings)
    dropped = evaluate_run(*files, ["mrr"], ties="trec_eval", unjudged="drop")
    assert column(dropped, "mrr") == pytest.approx([1.0, 0.0, 0.0])


def test_trec_eval_agrees_on_the_join(tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    qrels, run = {}, {}
    for query in map(str, range(20)):
        items = [f"d{i}" for i in rng.permutation(30)]
        qrels[query] = {
            d: int(x) for d, x in zip(items[:15], rng.integers(-1, 3, 15), strict=True)
        }
        run[query] = {
            d: float(x) for d, x in zip(items[5:], rng.integers(0, 9, 25), strict=True)
        }
    files = trec_files(
        tmp_path,
        [f"{q} 0 {d} {x}" for q, row in qrels.items() for d, x in row.items()],
        [f"{q} Q0 {d} 0 {x} t" for q, row in run.items() for d, x in row.items()],
    )
    metrics = ["map", NDCG(k=10, gain_fn="linear"), PrecisionAtK(k=5), "mrr"]
    found = evaluate_run(*files, metrics, ties="trec_eval")
    names = {"map": "map", "ndcg_cut_10": "ndcg_at_10", "P_5": "precision_at_5"}
    names["recip_rank"] = "mrr"
    judged = pytrec_eval.RelevanceEvaluator(qrels, {*names, "ndcg_cut.10", "P.5"})
    expected = judged.evaluate(run)
    queries = found.per_list["query_id"].to_pylist()
    for theirs, ours in names.items():
        values = [expected[query][theirs] for query in queries]
        assert column(found, ours) == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("unjudged", ["irrelevant", "drop"])
def test_trec_eval_takes_judgments_below_0_for_none(tmp_path, unjudged):
    """Where it asks who judged: in bpref, and with -J. A query may have no others."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(1)
    qrels, run = {"none": {"d1": -1, "d2": -2}}, {"none": {"d2": 0.5, "x": 0.4}}
    for query in map(str, range(20)):
        items = [f"d{i:02d}" for i in rng.permutation(30)]
        labels, scores = rng.integers(-2, 3, 18), rng.integers(0, 12, 24)
        qrels[query] = dict(zip(items[:18], labels.tolist(), strict=True))
        run[query] = dict(zip(items[6:], scores.astype(float).tolist(), strict=True))
    files = trec_files(
        tmp_path,
        [f"{q} 0 {d} {x}" for q, row in qrels.items() for d, x in row.items()],
        [f"{q} Q0 {d} 0 {x} t" for q, row in run.items() for d, x in row.items()],
    )
    names = {"bpref": "bpref", "map": "map", "P_5": "precision@5", "recip_rank": "mrr"}
    found = evaluate_run(
        *files, list(names.values()), ties="trec_eval", unjudged=unjudged
    )
    judged = pytrec_eval.RelevanceEvaluator(
        qrels,
        {"bpref", "map", "P.5", "recip_rank"},
        judged_docs_only_flag=unjudged == "drop",
    )
    expected = judged.evaluate(run)
    queries = found.per_list["query_id"].to_pylist()
    assert set(queries) == set(qrels)
    for theirs, ours in names.items():
        values = [expected[query][theirs] for query in queries]
        assert column(found, ours) == pytest.approx(values, abs=1e-6)
        assert found.summary()["lists"] == [21] * len(names)


def test_ids_of_other_types_are_compared_as_text(tmp_path):
    run = trec_files(tmp_path, QRELS, RUN)[1]
    qrels = {"query_id": [1, 2], "item_id": ["a", "a"], "label": [2, 1]}
    found = evaluate_run(qrels, run, ["mrr"], ties="trec_eval")
    assert found.per_list["query_id"].to_pylist() == ["1", "2"]
    assert column(found, "mrr") == pytest.approx([1 / 3, 0.0])


@pytest.mark.slow
def test_the_least_memory_is_enough_for_any_number_of_rows(tmp_path, rng):
    """Of which 72 MB would not fit into the 50 MB that are for sorting."""
    lists = rng.permutation(3_000_000) // 5
    rows = {"query_id": lists, "label": lists % 2, "score": rng.normal(size=len(lists))}
    parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    arguments = {"memory_limit": "100MB"}
    found = evaluate(tmp_path / "rows.parquet", ["hit_rate@1"], **arguments)
    assert len(found) == 600_000
    assert found.summary()["value"] == pytest.approx([0.5])


# Summaries.


def test_standard_error_is_that_of_a_mean():
    evaluation = evaluate(rows_of(), ["ndcg@5", "arp"])
    for row in evaluation.summary(confidence=0.9):
        values = column(evaluation, row["metric"])
        values = values[~np.isnan(values)]
        assert row["lists"] == len(values)
        assert row["standard_error"] == pytest.approx(stats.sem(values))
        interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_weighted_errors_are_those_of_the_bootstrap(rng):
    rows = rows_of(lists=400)
    evaluation = evaluate(rows, [NDCG(k=5, empty_value=0.3)], weight="weight")
    (found,) = evaluation.summary()
    values, weights = column(evaluation, "ndcg_at_5"), column(evaluation, "weight")
    means = []
    for _ in range(1000):
        drawn = rng.integers(0, len(values), len(values))
        means.append(intervals.Values(values, weights, 0.3).mean(drawn).value)
    assert found["standard_error"] == pytest.approx(np.std(means), rel=0.1)


def test_slices():
    evaluation = evaluate(rows_of(), ["ndcg@5", "mrr"], keep=["market", "user"])
    summary = evaluation.summary(by="market")
    assert list(summary.columns)[:3] == ["market", "metric", "value"]
    assert summary["market"] == ["de", "de", "fr", "fr", "jp", "jp"]
    per_list = evaluation.per_list
    of_market = per_list.filter(pa.compute.equal(per_list["market"], "fr"))
    assert summary["value"][2] == pytest.approx(np.mean(of_market["ndcg@5"]))
    both = evaluation.summary(by=["market", "user"])
    assert sum(both["lists"]) == 120
    assert len(both) == 2 * len(per_list.group_by(["market", "user"]).aggregate([]))


def test_lists_of_a_cluster_stay_together():
    """As if there were one list for each: four times the same does not count more."""
    once = rows_of(lists=30)
    copies = []
    for copy in range(4):
        names = ["query_id", "label", "score"]
        copied = once.select(names).to_pydict()
        copied["query_id"] = [f"{query}/{copy}" for query in copied["query_id"]]
        copied["user"] = once["query_id"].to_pylist()
        copies.append(pa.table(copied))
    (expected,) = evaluate(once, [NDCG(k=5, shuffle_ties=False)]).summary()
    evaluation = evaluate(
        pa.concat_tables(copies), [NDCG(k=5, shuffle_ties=False)], keep="user"
    )
    (naive,), (found,) = evaluation.summary(), evaluation.summary(cluster="user")
    assert found["standard_error"] == pytest.approx(expected["standard_error"])
    assert (found["low"], found["lists"]) == (pytest.approx(expected["low"]), 120)
    assert naive["standard_error"] < 0.6 * found["standard_error"]


@pytest.mark.parametrize(("found", "lists"), [(3, 300), (0, 20), (20, 20), (5, 8)])
def test_shares_have_the_interval_of_wilson(found, lists):
    """By his formula: that of Student's t has no width where all values are 0."""
    rows = {"query_id": np.arange(lists), "label": np.ones(lists)}
    rows["score"] = np.where(np.arange(lists) < found, 1.0, NAN)
    (row,) = evaluate(rows, ["hit_rate@5"]).summary(confidence=0.9)
    z, share = stats.norm.ppf(0.95), found / lists
    middle = (share + z**2 / (2 * lists)) / (1 + z**2 / lists)
    half = share * (1 - share) / lists + z**2 / (4 * lists**2)
    half = z * np.sqrt(half) / (1 + z**2 / lists)
    assert row["value"] == pytest.approx(share)
    assert (row["low"], row["high"]) == pytest.approx((middle - half, middle + half))


def test_weighted_and_clustered_shares_have_that_of_the_delta_method(rng):
    rows = {"query_id": np.arange(30), "label": np.ones(30), "user": np.arange(30) // 3}
    rows["score"] = np.where(np.arange(30) < 12, 1.0, NAN)
    rows["weight"] = rng.uniform(1, 2, 30)
    arguments = {"keep": "user", "weight": "weight"}
    for cluster, weight in ((None, "weight"), ("user", None)):
        found = evaluate(rows, ["hit_rate"], **{**arguments, "weight": weight})
        (row,) = found.summary(cluster=cluster)
        assert row["high"] - row["value"] == pytest.approx(row["value"] - row["low"])


def test_intervals_stay_within_the_range_of_the_metric():
    """The interval of Student's t is wider on that side only."""
    rows = {"query_id": [1, 1, 2, 2, 3, 3], "label": [1, 0, 1, 0, 1, 0]}
    first, second = ({**rows, "score": x} for x in ([2, 1, 1, 2, 0, 0], [1, 2] * 3))
    mean = MeanReciprocalRank(shuffle_ties="average")
    metrics = [mean, "dcg", "arp", "tau"]
    one, other = (evaluate(x, metrics) for x in (first, second))
    by_name = {row["metric"]: row for row in one.summary()}
    # 1, 0.5, 0.75: the half width is 4.303 * 0.25 / sqrt(3).
    half = float(stats.t.ppf(0.975, 2)) * 0.25 / np.sqrt(3)
    assert by_name["mrr"]["low"] == pytest.approx(0.75 - half)
    assert by_name["mrr"]["high"] == 1.0
    for name in ("dcg", "arp"):
        row = by_name[name]
        middle = (row["low"] + row["high"]) / 2.0
        assert middle == pytest.approx(row["value"])
    assert (by_name["tau"]["low"], by_name["tau"]["high"]) == (-1.0, 1.0)
    wide = one.compare(other, confidence=0.999)
    (low, *_, least), (high, *_, most) = wide["low"], wide["high"]
    assert (low, high, least, most) == (-1.0, 1.0, -2.0, 2.0)
    assert wide["high"][1] > 1.0
    # What has no definition may have any range.
    table = one.table.select(["query_id", "mrr", "weight"]).replace_schema_metadata()
    found = Evaluation(table, metrics=[Unbounded(name="mrr")], query="query_id")
    assert found.summary()["high"] == pytest.approx([0.75 + half])


class Unbounded(RankingMetric):
    """A metric of which nothing is known."""

    base_name = "unbounded"


NO_PADDING = (
    "Missing or negative labels: 0 of {} rows, left out as padding (unjudged=drop)."
)


def test_few_lists_are_named():
    ten = evaluate(rows_of(lists=10), ["mrr"], keep=["market", "user"])
    assert ten.summary().notes == [NO_PADDING.format(80)]
    (_, note) = ten.summary(by="market").notes
    assert note == (
        "Warning: all rows have fewer than 10 lists, too few for reliable intervals."
    )
    assert note in ten.compare(ten, by="market").notes
    (_, note) = ten.summary(cluster="user").notes
    assert "all rows have fewer than 10 clusters by 'user'" in note
    many = evaluate(rows_of(lists=28), ["mrr"], keep="market")
    (_, note) = many.summary(by="market").notes
    assert "2 of 3 rows have fewer than 10 lists" in note


# Comparisons.


def two_models(**arguments):
    base = evaluate(rows_of(lists=80, noise=3.0), ["ndcg@5", "map"], **arguments)
    return base, evaluate(rows_of(lists=80, noise=1.0), ["ndcg@5", "map"], **arguments)


def test_paired_t_test_is_that_of_scipy():
    base, new = two_models()
    comparison = new.compare(base, confidence=0.9)
    for row in comparison:
        both = column(new, row["metric"]), column(base, row["metric"])
        expected = stats.ttest_rel(*both)
        interval = expected.confidence_interval(0.9)
        assert row["p"] == pytest.approx(expected.pvalue)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert row["difference"] == pytest.approx(np.mean(both[0]) - np.mean(both[1]))
        assert (row["value"], row["baseline"]) == pytest.approx(np.mean(both, axis=1))
        of_lists = comparison.differences[row["metric"]].to_numpy()
        assert of_lists == pytest.approx(both[0] - both[1])


def test_permutation_test_is_that_of_scipy():
    base, new = two_models()
    row = new.compare(base, test="permutation").rows[0]
    expected = stats.permutation_test(
        (column(new, "ndcg@5") - column(base, "ndcg@5"),),
        np.mean,
        permutation_type="samples",
        rng=np.random.default_rng(1),
    )
    assert row["p"] == pytest.approx(expected.pvalue, abs=0.005)


def test_equal_differences_are_not_certain_to_a_permutation_test():
    """Of 5 signs, all are equal in 2 of 2 ** 5 draws."""
    rows = {"query_id": np.repeat(np.arange(5), 2), "label": [1, 0] * 5}
    base = evaluate({**rows, "score": [1, 2] * 5}, ["mrr"])
    new = evaluate({**rows, "score": [2, 1] * 5}, ["mrr"])
    assert new.compare(base, test="permutation")["p"] == [pytest.approx(2 / 2**5)]
    assert new.compare(base)["p"] == [0.0]


def test_permutations_of_many_lists(rng):
    """In time, and with p as by signs for each: that of a normal distribution here."""
    lists = 200_000
    zeros = np.zeros(lists)
    columns = {"query_id": np.arange(lists), "weight": zeros + 1.0}
    values = rng.choice([0.0, 0.1, 0.5, 1.0], lists, p=[0.7, 0.1, 0.1, 0.1])
    metrics = [MeanReciprocalRank()]
    base, new = (
        Evaluation(pa.table({**columns, "mrr": x}), metrics=metrics, query="query_id")
        for x in (zeros, rng.choice([-1.0, 1.0], lists) * values)
    )
    start = time.perf_counter()
    (found,) = new.compare(base, test="permutation")["p"]
    assert time.perf_counter() - start < 60.0
    drawn = column(new, "mrr")
    z = abs(drawn.sum()) / np.sqrt(np.square(drawn).sum())
    assert found == pytest.approx(2.0 * stats.norm.sf(z), abs=0.02)


def test_a_few_large_differences_are_no_normal_distribution():
    """Among 20,000 small ones: half of the draws with one sign for all three."""
    differences = np.concatenate([np.full(3, 1e6), np.tile([1e-3, -1e-3], 10_000)])
    expected = 2 / 2**3 / 2
    assert intervals._permuted(differences) == pytest.approx(expected, abs=0.02)


def test_clusters_are_compared_as_wholes():
    base, new = two_models(keep="user")
    found = new.compare(base, cluster="user").rows[0]
    differences = column(new, "ndcg@5") - column(base, "ndcg@5")
    users = column(new, "user")
    of_users = [differences[users == user].mean() for user in np.unique(users)]
    assert found["p"] == pytest.approx(stats.ttest_1samp(of_users, 0.0).pvalue)


def test_signs_of_a_permutation_are_those_of_whole_units():
    """A change in the list or the user with most of the weight is one change."""
    users = np.repeat(np.arange(10), [100] + [1] * 9)
    values = (users == 0).astype(float)
    lists, ones = np.arange(len(users)), np.ones(len(users))
    nothing = intervals.Values(0.0 * ones, ones, 0.0).mean(lists)
    change = intervals.Values(values, ones, 0.0).mean(lists) - nothing
    assert intervals.estimate(change, users, 0.95, permute=True).p == 1.0
    weights = np.array([100.0] + [1.0] * 9)
    lists, nothing = np.arange(10), np.zeros(10)
    change = intervals.Values(1.0 * (weights > 1.0), weights, 0.0).mean(lists)
    change -= intervals.Values(nothing, weights, 0.0).mean(lists)
    assert intervals.estimate(change, None, 0.95, permute=True).p == 1.0


def test_permutations_with_weights_and_empty_lists(rng):
    """All signs of what lists contribute, which adds up to the difference."""
    n, lists = 8, np.arange(8)
    weights = np.where(rng.random(n) < 0.3, np.nan, rng.integers(1, 9, n))
    both = [intervals.Values(rng.random(n), weights, 0.25).mean(lists) for _ in "ab"]
    change = both[0] - both[1]
    assert change.terms.mean() == pytest.approx(change.value)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    sums = np.abs(signs @ change.terms)
    expected = np.mean(sums >= abs(change.terms.sum()) - 1e-12)
    found = intervals.estimate(change, None, 0.95, permute=True)
    assert found.p == pytest.approx(expected)


def test_corrections():
    p = np.array([0.01, 0.04, np.nan, 0.03, 0.005, 0.8])
    holm = intervals.corrected(p, "holm")
    assert holm == pytest.approx([0.04, 0.09, np.nan, 0.09, 0.025, 0.8], nan_ok=True)
    assert intervals.corrected(p, None) == pytest.approx(p, nan_ok=True)
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    known = ~np.isnan(p)
    for ours, theirs in (("holm", "holm"), ("bh", "fdr_bh"), ("by", "fdr_by")):
        expected = multitest.multipletests(p[known], method=theirs)[1]
        assert intervals.corrected(p, ours)[known] == pytest.approx(expected)


def test_several_models_are_corrected_together():
    base, new = two_models(keep="market")
    comparison = compare(base, {"same": base, "new": new}, by="market")
    assert list(comparison.columns) == [
        *["model", "market", "metric", "baseline", "value", "difference"],
        *["low", "high", "p", "corrected_p", "lists"],
    ]
    assert len(comparison) == 2 * 3 * 2
    assert comparison["p"][:6] == [1.0] * 6
    expected = intervals.corrected(np.array(comparison["p"]), "holm")
    assert comparison["corrected_p"] == pytest.approx(expected)
    assert comparison.differences.column_names == ["model", "query_id", "ndcg@5", "map"]
    assert "corrected_p" not in compare(base, {"new": new}, correction=None).columns


def test_models_may_differ_in_metrics_names_and_sizes_of_ids():
    """What a model does not have is missing from the differences."""
    rows = rows_of()
    base = evaluate(rows, ["ndcg@5", "mrr"])
    place = rows.column_names.index("query_id")
    short = rows.set_column(place, "qid", rows["query_id"].cast(pa.uint32()))
    models = {"a": evaluate(short, ["mrr"], query="qid"), "b": base}
    comparison = compare(base, models)
    assert comparison["metric"] == ["mrr", "ndcg@5", "mrr"]
    assert comparison["lists"] == [len(base)] * 3
    differences = comparison.differences.to_pydict()
    assert differences["query_id"] == base.per_list["query_id"].to_pylist() * 2
    assert differences["ndcg@5"] == [None] * len(base) + [0.0] * len(base)


def test_metrics_keep_their_seeds():
    metric, group = NDCG(k=2), RankingMetrics([MeanReciprocalRank()])
    seeds = metric.seed, group.members[0].seed
    for metrics in ([metric], group):
        evaluate(rows_of(), metrics)
    assert (metric.seed, group.members[0].seed) == seeds != (0, 0)


def test_the_mean_of_no_lists_is_unknown():
    """A slice whose lists are all left out is not one where the model finds nothing."""
    rows = {"query_id": [1, 2], "label": [1, 0], "score": [1, 1], "market": ["a", "b"]}
    left_out = NDCG(k=1, empty_value=None)
    evaluation = evaluate(rows, [left_out], keep="market")
    comparison = evaluation.compare(evaluation, by="market")
    for value in (
        evaluation.summary(by="market")["value"],
        comparison["baseline"],
        comparison["value"],
        comparison["difference"],
    ):
        assert np.isnan(value).tolist() == [False, True]
    nothing = evaluate({**rows, "label": [0, 0]}, [left_out])
    assert not any("ties" in warning for warning in nothing.warnings)


def test_what_only_one_side_has_is_named():
    rows = rows_of()
    keep = pa.compute.less(rows["query_id"], 57)
    base, new = evaluate(rows.filter(keep), ["mrr"]), evaluate(rows, ["mrr"])
    comparison = new.compare(base)
    assert comparison["lists"] == [57]
    note = comparison.notes[1]
    assert "queries that only the new one has are left out (3): 57, 58, 59." in note
    note = base.compare(new).notes[1]
    assert "only the baseline has are left out (3): 57, 58, 59." in note


def test_other_labels_of_the_same_queries_are_named():
    rows = rows_of()
    base = evaluate(rows, ["mrr"])
    assert base.compare(base).notes == [NO_PADDING.format(633)]
    more = pa.array(
        np.maximum(rows["label"].to_numpy(), rows["query_id"].to_numpy() == 3)
    )
    labels = rows.column_names.index("label")
    new = evaluate(rows.set_column(labels, "label", more), ["mrr"])
    (_, note) = new.compare(base).notes
    assert note.startswith("Warning: 1 queries have other labels in the baseline, by")
    of_an_earlier_edition = Evaluation(base.table.drop_columns(["health/label sum"]))
    assert new.compare(of_an_earlier_edition).notes == [NO_PADDING.format(633)]


# What went wrong.


def test_worst_queries():
    base, new = two_models(keep="market")
    worst = new.worst("ndcg@5", 3)
    assert list(worst.columns) == ["query_id", "market", "ndcg@5"]
    assert worst["ndcg@5"] == sorted(column(new, "ndcg@5"))[:3]
    lost = new.worst("map", 2, baseline=base)
    assert lost["difference"] == sorted(column(new, "map") - column(base, "map"))[:2]
    arp = evaluate(rows_of(), ["arp"]).worst("arp", 1)
    assert arp["arp"] == [np.nanmax(column(evaluate(rows_of(), ["arp"]), "arp"))]
    assert new.worst(n=3).columns == worst.columns
    for n in (0, 1.5):
        with pytest.raises(ValueError, match=f"`n` should be .* Received: n={n}"):
            new.worst("ndcg@5", n)


def checks(evaluation):
    return {row["check"]: row for row in evaluation.health()}


def test_a_table_in_good_health_has_no_warnings(rng):
    query, label = np.repeat(np.arange(50), 20), np.tile([3, 2, 1, 0], 250)
    rows = {"query_id": query, "label": label, "score": rng.normal(size=1000)}
    evaluation = evaluate(rows, ["ndcg@10"])
    assert evaluation.warnings == []
    assert evaluation.health().notes == []
    assert str(evaluation) == str(evaluation.summary())


def test_health_tells_why_to_mistrust_a_number():
    rows = {
        "query_id": [1, 1, 1, 2, 2, 3, 3, 4],
        "item_id": list("abcababa"),
        "label": [1, 0, None, 0, 0, 1, 0, 1],
        "score": [0.5, 0.5, 0.5, 0.3, float("nan"), 0.2, 0.1, 0.4],
    }
    evaluation = evaluate(
        rows, ["ndcg@2", "mrr"], item="item_id", unjudged="irrelevant"
    )
    found = {
        name: (row["lists"], row["share"]) for name, row in checks(evaluation).items()
    }
    assert found["nothing relevant"] == (1, 0.25)
    assert found["one item"] == (1, 0.25)
    assert found["shorter than 2"] == (1, 0.25)
    assert found["constant scores"] == (1, 0.25)
    assert found["NaN scores"] == (1, 0.25)
    assert found["tied at 2"] == (1, 0.25)
    assert found["judged@2"] == (1, pytest.approx((2 / 3 + 3) / 4))
    assert found["duplicated items"] == (0, 0.0)
    spread = checks(evaluation)["ties of mrr"]
    of_ties = {"worst": 1 / 3, "average": 11 / 18, "best": 1.0}
    for order, value in of_ties.items():
        assert spread[order] == pytest.approx((value + 0 + 1 + 1) / 4)
    assert any("1 of 4 lists have tied items: mrr is" in w for w in evaluation.warnings)
    assert all(warning in str(evaluation) for warning in evaluation.warnings)


@pytest.mark.parametrize(
    ("labels", "metrics", "found"),
    [
        ([1, 1, 1, 1], ["ndcg@2", "mrr"], 2),
        ([2, 2, 1, 0], ["ndcg"], 1),
        # To NDCG, their order makes a difference.
        ([2, 1, 5, 3], ["ndcg"], 0),
        ([2, 1, 5, 3], ["ndcg", "map"], 2),
        ([2, 1, 5, 4], ["ndcg", MeanReciprocalRank(relevance_threshold=4)], 1),
        ([2, 1, 4, 3], [ExpectedReciprocalRank()], 0),
        ([0, 0, 1, 0], ["map"], 0),
        # An item whose label is missing is none.
        ([1, None, 0.5, 0.7], ["map"], 1),
    ],
)
def test_where_every_item_is_relevant_no_order_is_better(labels, metrics, found):
    rows = {"query_id": [1, 1, 2, 2], "label": labels, "score": [0.1, 0.2, 0.3, 0.1]}
    evaluation = evaluate(rows, metrics)
    assert checks(evaluation)["every item relevant"]["lists"] == found
    warned = [w for w in evaluation.warnings if "have only relevant items" in w]
    assert len(warned) == (found == 2)


def test_items_that_were_not_retrieved_can_make_a_difference():
    rows = {"query_id": [1, 1], "label": [1, 1], "score": [0.5, None]}
    assert checks(evaluate(rows, ["recall"]))["every item relevant"]["lists"] == 0


def test_the_spread_over_ties_is_that_of_all_orders():
    rows = rows_of(lists=30, digits=0)
    labels, scores = lists_of(rows, "label", "score")
    evaluation = evaluate(rows, ["ndcg@3", "arp"])
    for name, function in (
        ("ndcg@3", functional.ndcg),
        ("arp", functional.average_relevance_position),
    ):
        arguments = {"k": 3} if name == "ndcg@3" else {}
        row = checks(evaluation)[f"ties of {name}"]
        average = function(labels, scores, shuffle_ties="average", **arguments)
        assert row["average"] == pytest.approx(np.nanmean(average), abs=1e-6)
        values = np.array(
            [function(labels, scores, seed=seed, **arguments) for seed in range(200)]
        )
        low, high = sorted((row["worst"], row["best"]))
        assert (row["best"] < row["worst"]) == (name == "arp")
        assert low <= np.nanmean(values.min(axis=0)) + 1e-6
        assert high >= np.nanmean(values.max(axis=0)) - 1e-6
        assert low == pytest.approx(np.nanmean(values.min(axis=0)), abs=0.02)
        assert high == pytest.approx(np.nanmean(values.max(axis=0)), abs=0.02)


@pytest.mark.parametrize("weight", [None, "weight"])
def test_the_spread_is_over_all_orders_whatever_an_item_adds(weight):
    """By weights, thresholds, and gains that fall: each query has one of all orders."""
    orders = np.array(list(itertools.permutations(range(4))))
    rows = {"query_id": np.repeat(np.arange(len(orders)), 4)}
    rows["score"] = np.zeros(orders.size)
    rows["label"] = np.array([2, 1, 1, 0])[orders].ravel()
    rows["weight"] = np.array([1.0, 10.0, 2.0, 5.0])[orders].ravel()
    metrics = [
        NDCG(k=3, shuffle_ties=False),
        DCG(k=2, shuffle_ties=False),
        NDCG(gain_fn=lambda labels: 2.0 - labels, shuffle_ties=False, name="falling"),
        MeanReciprocalRank(relevance_threshold=2.0, shuffle_ties=False),
        AverageRelevancePosition(shuffle_ties=False),
    ]
    evaluation = evaluate(rows, metrics, weight=weight)
    for metric in metrics:
        row, values = checks(evaluation)[f"ties of {metric.name}"], evaluation.per_list
        ends = np.sort(values[metric.name].to_numpy())[[0, -1]]
        worst, best = ends if metric.higher_is_better else ends[::-1]
        assert (row["worst"], row["best"]) == pytest.approx((worst, best), abs=1e-6)
        assert min(ends) < row["average"] < max(ends)


def test_the_worst_order_is_never_better_than_the_best():
    """With a relevant item at rank 3, the mean of precisions is 5/6, without it 1."""
    rows = {"query_id": [1] * 4, "label": [1, 0, 1, 0], "score": [3, 2, 1, 1]}
    metric = MeanAveragePrecision(k=3, normalizer="retrieved")
    (row,) = [x for x in evaluate(rows, [metric]).health() if "ties of" in x["check"]]
    assert (row["worst"], row["best"]) == pytest.approx((5 / 6, 1.0))


def test_health_of_chosen_metrics_is_not_that_of_others():
    """What is relevant is known of the first metric alone."""
    rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0], "score": [2, 0.5, 1, 2]}
    of_two, mrr = MeanReciprocalRank(relevance_threshold=2, name="2"), "mrr"
    evaluation = evaluate(rows, [of_two, mrr])
    assert checks(evaluation)["nothing relevant"]["lists"] == 2
    chosen = [
        Evaluation(evaluation._values.of_metrics([mrr]).table),
        Evaluation(evaluation.table, metrics=[MeanReciprocalRank()]),
    ]
    for each in chosen:
        assert "nothing relevant" not in checks(each)
        assert each.warnings == []
    first = Evaluation(evaluation._values.of_metrics(["2"]).table)
    assert checks(first)["nothing relevant"]["lists"] == 2


def test_nothing_is_said_of_no_lists():
    table = evaluate(rows_of(), ["mrr", "ndcg@5"]).table
    nothing = Evaluation(table.slice(0, 0))
    assert (nothing.warnings, len(nothing.health())) == ([], 0)
    assert str(nothing) == str(nothing.summary())


def test_duplicates_are_counted_where_that_is_asked_for():
    rows = {"query_id": [1, 1, 2], "item_id": [5, 5, 5], "label": [1, 0, 1]}
    rows["score"] = [0.1, 0.2, 0.3]
    evaluation = evaluate(rows, ["mrr"], item="item_id", duplicates="count")
    assert checks(evaluation)["duplicated items"]["lists"] == 1
    assert any("have duplicate items" in warning for warning in evaluation.warnings)


def test_health_tells_that_no_item_is_judged():
    """As where items are numbers on one side, and `d1` on the other."""
    qrels = {"query_id": [1, 2], "item_id": ["d1", "d1"], "label": [1, 1]}
    run = {"query_id": [1, 2], "item_id": [1, 1], "score": [0.5, 0.5]}
    evaluation = evaluate_run(qrels, run, ["mrr"])
    assert checks(evaluation)["nothing judged"]["lists"] == 2
    assert evaluation.warnings == [
        "Warning: 2 of 2 lists have no judged items with a score: do the judgments "
        "and the run have the same item ids?"
    ]


def test_few_items_are_no_mistake_in_a_run():
    """They may be all that was found: a table of rows has all that there are."""
    judged = {"1": {"a": 1, "b": 0}, "2": {"c": 1}, "3": {"c": 1}}
    of_run = evaluate_run(judged, {"1": {"a": 2, "b": 1}, "2": {"c": 1}}, ["ndcg@10"])
    rows = {"query_id": [1, 1, 2, 3], "label": [1, 0, 1, 1], "score": [2, 1, 1, 1]}
    of_rows = evaluate(rows, ["ndcg@10"])
    for text in ("fewer than 10 items", "does `query` name the column of the lists"):
        assert not any(text in warning for warning in of_run.warnings)
        assert any(text in warning for warning in of_rows.warnings)
    found = checks(of_run)
    assert (found["one item"]["lists"], found["shorter than 10"]["lists"]) == (2, 3)


def test_a_label_below_0_is_no_judgment_to_health():
    rows = {"query_id": [1, 1, 2, 2], "label": [-1, -1, 1, 0], "score": [2, 1, 2, 1]}
    found = checks(evaluate(rows, ["mrr@2"], unjudged="irrelevant"))
    assert (found["judged@2"]["lists"], found["judged@2"]["share"]) == (1, 0.5)
    assert found["nothing judged"]["lists"] == 1
    found = checks(evaluate(rows, ["mrr@2"]))
    assert (found["judged@2"]["lists"], found["judged@2"]["share"]) == (0, 1.0)
    assert found["nothing judged"]["lists"] == 0


def test_health_of_columns_that_seem_swapped():
    rows = rows_of().rename_columns({"label": "score", "score": "label"})
    warnings = evaluate(rows, ["mrr"]).warnings
    assert any("are `label` and `score` swapped?" in w for w in warnings)
    by_item = evaluate(rows_of().slice(0, 30), ["mrr"], query="item_id")
    assert any("does `query` name" in w for w in by_item.warnings)


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([3, 1, 2, 1, 0], 2),
        ([3, 1, 2, None, 1], 1),
        ([0, 2, 1, 2, None], 1),
        ([np.nan, 1, 2, np.inf, 1], 1),
        ([1, 3, 3, 2, 3], 0),
        ([1, 4, 2, 0.5, 1.5], 0),
        ([1, 2.5, 3, 1, -np.inf], 0),
        ([0, -1, -2, 5, 5], 0),
    ],
)
def test_health_of_scores_that_seem_to_be_ranks(scores, found):
    rows = {"query_id": [1, 1, 1, 2, 2], "label": [1, 0, 0, 1, 0], "score": scores}
    evaluation = evaluate(rows, ["mrr"])
    assert checks(evaluation)["scores like ranks"]["lists"] == found
    assert any("are they ranks?" in w for w in evaluation.warnings) == (found == 2)


# What is kept of it.


def test_queries_that_were_left_out_add_up(tmp_path):
    parts = []
    for shard in "ab":
        qrels = {"query_id": [shard], "item_id": [1], "label": [1]}
        run = {"query_id": [shard, "x", "y"], "item_id": [1] * 3, "score": [0.5] * 3}
        parts.append(evaluate_run(qrels, run, ["mrr"]))
    both = Evaluation(pa.concat_tables([part.table for part in parts]))
    other = Evaluation(both.table, left_out=7)
    for evaluation, number in ((parts[0], 2), (both, 4), (other, 7)):
        (warning,) = [w for w in evaluation.warnings if "left out" in w]
        assert f"without judgments are left out ({number}): 'x', 'y'" in warning


OTHER_METADATA = [
    b"[]",
    b"null",
    b"not json",
    b"{}",
    b'{"query": "query_id", "metrics": [["mrr", null, 0.0]]}',
    b'{"query": "query_id", "metrics": [["mrr", null, 0.0, "up", 1]]}',
    b'{"query": "query_id", "metrics": [["map", null, 0.0, "up"]]}',
    b'{"query": "qid", "metrics": [["mrr", null, 0.0, "up"]]}',
    b'{"query": "query_id", "metrics": []}',
]


@pytest.mark.parametrize("written", OTHER_METADATA, ids=str)
def test_metadata_of_another_version(written):
    table = evaluate(rows_of(), ["mrr"]).table
    table = table.replace_schema_metadata({b"keras_rank": written})
    with pytest.raises(ValueError, match="`table` should"):
        Evaluation(table)


def test_columns_that_an_evaluation_needs():
    table = evaluate(rows_of(), ["mrr", "ndcg@5"]).table
    with pytest.raises(ValueError, match='`table` should have a column "weight"'):
        Evaluation(table.drop_columns("weight"))
    for name in ("health/tied@5", "health/mrr/best", "health/ties"):
        assert Evaluation(table.drop_columns(name)).warnings == []


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "CSV"])
def test_lists_are_written_for_other_tools(tmp_path, suffix):
    rows = rows_of(lists=5).to_pydict()
    rows["market"] = ['a,"b"\n' + x if x == "de" else None for x in rows["market"]]
    evaluation = evaluate(rows, ["ndcg@5", "mrr"], keep="market")
    file = tmp_path / f"it's lists.{suffix}"
    evaluation.write(file)
    reads = {"csv": duckdb.read_csv, "json": duckdb.read_json}
    read = reads[suffix.lower().removesuffix("l")](str(file))
    again = read.to_arrow_table().to_pydict()
    for name, values in evaluation.per_list.to_pydict().items():
        assert again[name] == values
    with raises("`path` should be a Parquet file written by `write`"):
        Evaluation.read(file)


@pytest.mark.parametrize("name", ["lists", "lists.xlsx", "lists.csv.gz", "lists.pq"])
def test_files_of_other_kinds_are_not_written(tmp_path, name):
    evaluation = evaluate(rows_of(lists=5), ["mrr"])
    with raises("`path` should end in one of .parquet, .csv, .json, .jsonl. Received"):
        evaluation.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def items_of(evaluation, query):
    found = evaluation.items(query)
    return list(zip(found["rank"], found["item"], found["label"], strict=True))


def test_items_are_kept():
    """The first two and the two most relevant ones, in order, with their ranks."""
    rows = {
        "query_id": [1] * 6 + [2] * 2,
        "item_id": list("abcdefgh"),
        "label": [0, 0, 1, 3, 2, None, 0, -1],
        "score": [0.9, 0.8, 0.7, 0.6, NAN, 0.5, -np.inf, 0.1],
    }
    found = evaluate(rows, ["mrr"], item="item_id", keep_items=2)
    expected = [(1, "a", 0.0), (2, "b", 0.0), (4, "d", 3.0), (None, "e", 2.0)]
    assert items_of(found, 1) == expected
    assert items_of(found, 2) == []
    counted = evaluate(
        rows, ["mrr"], item="item_id", keep_items=2, unjudged="irrelevant"
    )
    assert items_of(counted, 2) == [(1, "h", 0.0)]
    assert found.items(1)["score"] == [0.9, 0.8, 0.6, None]
    assert found.per_list.equals(evaluate(rows, ["mrr"], item="item_id").per_list)
    qrels = {"1": {"a": 1, "b": 2}, "2": {"c": 1}}
    run = {"1": {"x": 0.5, "a": 0.5, "y": 0.1}}
    of_run = evaluate_run(qrels, run, ["mrr"], keep_items=2)
    # Of ties, the id that is larger as text.
    of_first = [(1, "x", 0.0), (2, "a", 1.0), (None, "b", 2.0)]
    assert items_of(of_run, "1") == of_first
    assert items_of(of_run, "2") == [(None, "c", 1.0)]


def test_items_are_written_and_concatenated(tmp_path, monkeypatch):
    arguments = {"item": "item_id", "duplicates": "count", "keep_items": 3}
    whole = evaluate(rows_of(), ["mrr"], **arguments)
    monkeypatch.setattr("keras_rank.reading.rows._ROWS_AT_A_TIME", 7)
    parts = evaluate(rows_of(), ["mrr"], **arguments)
    parts.write(tmp_path / "lists.parquet")
    again = Evaluation.read(tmp_path / "lists.parquet")
    for query in whole.per_list["query_id"].to_pylist():
        assert again.items(query).rows == whole.items(query).rows
    assert again.warnings == whole.warnings


def test_an_evaluation_is_written_and_read(tmp_path):
    evaluation = evaluate(rows_of(), ["ndcg@5", "mrr"], keep="market", weight="weight")
    evaluation.write(tmp_path / "lists.parquet")
    again = Evaluation.read(tmp_path / "lists.parquet")
    assert again.per_list.equals(evaluation.per_list)
    assert str(again) == str(evaluation)
    assert again.summary(by="market").rows == evaluation.summary(by="market").rows
    assert again.compare(evaluation)["difference"] == [0.0, 0.0]
    with pytest.raises(
        ValueError, match="`table` should be the table of an evaluation"
    ):
        Evaluation(evaluation.per_list)
    metrics = [NDCG(k=5, name="ndcg@5"), MeanReciprocalRank()]
    bare = Evaluation(evaluation.per_list, metrics=metrics, query="query_id")
    assert bare.summary().rows == evaluation.summary().rows
    assert bare.warnings == []
    with pytest.raises(ValueError, match="columns of health"):
        bare.health()


def test_tensors_and_predictions_are_columns_on_all_backends():
    scores, labels = np.float32([0.2, 0.1, 0.9, 0.3]), np.array([1, 0, 0, 1])
    tensor = ops.convert_to_tensor(scores)
    for label in (labels, labels[:, None]):
        for score in (tensor, tensor[:, None], scores[:, None]):
            rows = {"query_id": ["a", "a", "b", "b"], "label": label, "score": score}
            # The relevant items have the ranks 1 and 2.
            assert evaluate(rows, ["mrr"])["mrr"] == (1 + 1 / 2) / 2
    with pytest.raises(ValueError, match="only handle 1-dimensional arrays"):
        evaluate({**rows, "score": np.ones((4, 2))}, ["mrr"])
