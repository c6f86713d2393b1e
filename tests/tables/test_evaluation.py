"""Evaluation of scored tables: reading, metrics, summaries, comparisons and health."""

import itertools
import re
import time

import duckdb
import keras
import numpy as np
import pyarrow as pa
import pytest
from keras import ops
from pyarrow import parquet
from registry import FIRST_CASES
from scipy import stats
from tables import IN_MEMORY, columns_by_list, health_checks, make_rows, raises

from keras_rank.evaluation import Evaluation, Table, compare, evaluate, evaluate_run
from keras_rank.evaluation.lists import padded_batches
from keras_rank.evaluation.report import intervals
from keras_rank.metrics import (
    DCG,
    NDCG,
    AverageRelevancePosition,
    ExpectedReciprocalRank,
    MeanAveragePrecision,
    MeanReciprocalRank,
    RankingMetric,
    RankingMetrics,
)
from keras_rank.reading import engine

NAN = float("nan")


def column(evaluation, name):
    return evaluation.per_list[name].to_numpy()


# Values of each list, and their mean.


@pytest.mark.parametrize("ties", [False, "average"])
@pytest.mark.parametrize("weight", [None, "weight", "item_weight"])
def test_means_are_those_of_all_metrics(weight, ties):
    """The means equal the results of all metrics, which differ in empty lists."""
    rows = make_rows()
    cases = [case for case in FIRST_CASES if not case.metric.takes_subtopics]
    metrics = [case.make(shuffle_ties=ties, name=case.name) for case in cases]
    for value in (None, 0.5):
        metrics.append(NDCG(k=3, shuffle_ties=ties, empty_value=value, name=f"{value}"))
    labels, scores, weights = columns_by_list(
        rows, "label", "score", weight or "weight"
    )
    group = RankingMetrics(metrics)
    group.update_state(labels, scores, None if weight is None else weights)
    found = evaluate(rows, metrics, weight=weight).to_dict()
    expected = {name: float(value) for name, value in group.result().items()}
    assert found == pytest.approx(expected, abs=1e-6, rel=1e-5)


def rows_with_weights(weights):
    rows = {"query_id": [0, 0, 1, 1, 2, 2], "label": [1, 0, 1, 0, 1, 0]}
    return rows | {"score": [2, 1, 1, 2, 1, 2], "weight": np.repeat(weights, 2)}


@pytest.mark.parametrize("weights", [[1e30, 1e20, 1.0], [np.inf, 1.0, 1.0]])
def test_weights_above_the_limit_are_an_error(weights):
    with raises("`weight` should name a column of weights of at most 2**50"):
        evaluate(rows_with_weights(weights), ["mrr"], weight="weight")


@pytest.mark.filterwarnings("ignore:`sample_weight` has negative weights")
@pytest.mark.parametrize("weights", [[2.0**50, 1e10, 1.0], [1.0, 0.0, -1.0]])
def test_weights_count_as_those_of_the_metrics(weights):
    rows = rows_with_weights(weights)
    metric = MeanReciprocalRank()
    metric.update_state(*np.reshape([*rows.values()][1:], (3, 3, 2)))
    found = evaluate(rows, ["mrr"], weight="weight").summary()
    assert found["value"] == pytest.approx([float(metric.result())])


def test_lists_with_equal_weights_for_all_metrics_have_one_weight():
    rows, names = make_rows(), ["ndcg@5", "mrr"]
    of_lists, labels = columns_by_list(rows, "weight", "label")
    found = evaluate(rows, names, weight="weight")
    assert found.per_list.column_names == ["query_id", *names, "weight"]
    expected = np.where([*map(any, labels)], [w[0] for w in of_lists], np.nan)
    np.testing.assert_allclose(column(found, "weight"), expected, rtol=1e-6)
    found = evaluate(rows, names, weight="item_weight")
    assert found.per_list.column_names[-2:] == ["ndcg@5_weight", "mrr_weight"]
    metrics = [NDCG(k=5, name="ndcg@5"), MeanReciprocalRank()]
    again = Evaluation(found.per_list, metrics=metrics, query="query_id")
    assert again.summary().rows == found.summary().rows


def test_a_query_in_two_parts_is_an_error():
    parts = [evaluate(make_rows(seed=seed), ["mrr"]).table for seed in (0, 1)]
    with raises("`table` should have one row per query"):
        Evaluation(pa.concat_tables(parts))


def test_values_do_not_depend_on_batches_and_other_lists(monkeypatch):
    """Values do not depend on the batches, nor on the other lists.

    Ties are shuffled by the id of the query.
    """
    rows, names = make_rows(digits=0), ["ndcg@5", "map"]
    arguments = {"weight": "item_weight", "keep": ["market"]}
    expected = evaluate(rows, names, **arguments)
    monkeypatch.setattr("keras_rank.reading.rows.ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(padded_batches, "_MAX_POSITIONS", 40)
    found = evaluate(rows, names, **arguments)
    assert found.per_list.equals(expected.per_list)
    assert found.table.equals(expected.table)
    some = rows.filter(pa.compute.greater(rows["query_id"], 20))
    found = evaluate(some, names, **arguments)
    assert found.per_list.equals(expected.per_list.slice(21))
    other = evaluate(some, [NDCG(k=5, seed=3)])
    assert column(other, "ndcg_at_5").tolist() != column(found, "ndcg@5").tolist()


def test_the_order_of_rows_does_not_matter_if_items_are_known():
    rows = make_rows(digits=0).append_column("id", pa.array(range(len(make_rows()))))
    other = rows.take(np.random.default_rng(1).permutation(len(rows)))
    found = [evaluate(each, ["ndcg@5", "map"], item="id") for each in (rows, other)]
    assert found[0].table.equals(found[1].table)


def test_lists_of_similar_length_are_padded_by_less_than_a_third():
    sizes = np.random.default_rng(0).integers(1, 2000, 3000)
    seen = []
    for chosen, size in padded_batches._split_into_batches(sizes):
        seen += chosen.tolist()
        assert size >= sizes[chosen].max()
        assert sizes[chosen].sum() > 2 / 3 * size * len(chosen)
    assert sorted(seen) == list(range(3000))


# Reading.


@pytest.mark.parametrize("form", [*IN_MEMORY, "category"])
def test_tables_in_memory(form):
    rows = make_rows()
    expected = evaluate(rows, ["ndcg@5"], keep="market").per_list
    if form == "category":
        given = rows.to_pandas().astype({"market": "category"})
    else:
        given = IN_MEMORY[form](rows)
    found = evaluate(given, ["ndcg@5"], keep="market").per_list
    assert found.to_pydict() == expected.to_pydict()


@pytest.mark.parametrize(("limit", "threads"), [("2GB", 20), ("100MB", 1)])
def test_half_of_a_limit_is_for_sorting(limit, threads):
    """DuckDB gets half of the limit, and threads that can each spill to disk."""
    names = ("parse_formatted_bytes(current_setting('memory_limit'))",)
    names += ("current_setting('threads')",)
    with engine.connect_with_limit(limit) as connection:
        ((half, most),) = connection.sql(f"SELECT {', '.join(names)}").fetchall()
    size = {"2GB": 2e9, "100MB": 1e8}[limit]
    # DuckDB writes sizes with one decimal: 1.8 GiB.
    assert half == pytest.approx(size / 2, rel=0.05)
    assert 1 <= most <= threads


@pytest.mark.slow
def test_the_least_memory_is_enough_for_any_number_of_rows(tmp_path, rng):
    """The smallest limit is enough for 72 MB of rows, with 50 MB for sorting."""
    lists = rng.permutation(3_000_000) // 5
    rows = {"query_id": lists, "label": lists % 2, "score": rng.normal(size=len(lists))}
    parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    arguments = {"memory_limit": "100MB"}
    found = evaluate(tmp_path / "rows.parquet", ["hit_rate@1"], **arguments)
    assert found.lists == 600_000
    assert found.summary()["value"] == pytest.approx([0.5])


# Summaries.


def test_standard_error_is_that_of_a_mean():
    evaluation = evaluate(make_rows(), ["ndcg@5", "arp"])
    for row in evaluation.summary(confidence=0.9):
        values = column(evaluation, row["metric"])
        values = values[~np.isnan(values)]
        assert row["lists"] == len(values)
        assert row["standard_error"] == pytest.approx(stats.sem(values))
        interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_weighted_errors_are_those_of_the_bootstrap(rng):
    rows = make_rows(lists=400)
    evaluation = evaluate(rows, [NDCG(k=5, empty_value=0.3)], weight="weight")
    (found,) = evaluation.summary()
    values, weights = column(evaluation, "ndcg_at_5"), column(evaluation, "weight")
    means = []
    for _ in range(1000):
        drawn = rng.integers(0, len(values), len(values))
        means.append(intervals.Values(values, weights, 0.3).mean(drawn).value)
    assert found["standard_error"] == pytest.approx(np.std(means), rel=0.1)


def test_slices():
    evaluation = evaluate(make_rows(), ["ndcg@5", "mrr"], keep=["market", "user"])
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
    """Four copies of each list in a cluster give the standard error of single lists."""
    once, metrics = make_rows(lists=30), [NDCG(k=5, shuffle_ties=False)]
    once = once.set_column(7, "user", once["query_id"])
    ids = once["query_id"].to_numpy()
    copies = [once.set_column(0, "query_id", pa.array(ids + 30 * i)) for i in range(4)]
    (expected,) = evaluate(once, metrics).summary()
    evaluation = evaluate(pa.concat_tables(copies), metrics, keep="user")
    (naive,), (found,) = evaluation.summary(), evaluation.summary(cluster="user")
    assert found["standard_error"] == pytest.approx(expected["standard_error"])
    assert (found["low"], found["lists"]) == (pytest.approx(expected["low"]), 120)
    assert naive["standard_error"] < 0.6 * found["standard_error"]


@pytest.mark.parametrize(("found", "lists"), [(3, 300), (0, 20), (20, 20), (5, 8)])
def test_shares_have_the_interval_of_wilson(found, lists):
    """Shares have Wilson's interval, which has a width even if all values are 0."""
    rows = {"query_id": np.arange(lists), "label": np.ones(lists)}
    rows["score"] = np.where(np.arange(lists) < found, 1.0, NAN)
    (row,) = evaluate(rows, ["hit_rate@5"]).summary(confidence=0.9)
    z, share = stats.norm.ppf(0.95), found / lists
    middle = (share + z**2 / (2 * lists)) / (1 + z**2 / lists)
    half = share * (1 - share) / lists + z**2 / (4 * lists**2)
    half = z * np.sqrt(half) / (1 + z**2 / lists)
    assert row["value"] == pytest.approx(share)
    assert (row["low"], row["high"]) == pytest.approx((middle - half, middle + half))


def test_weighted_and_clustered_shares_have_intervals_of_the_delta_method(rng):
    rows = {"query_id": np.arange(30), "label": np.ones(30), "user": np.arange(30) // 3}
    rows["score"] = np.where(np.arange(30) < 12, 1.0, NAN)
    rows["weight"] = rng.uniform(1, 2, 30)
    for cluster, weight in ((None, "weight"), ("user", None)):
        found = evaluate(rows, ["hit_rate"], keep="user", weight=weight)
        (row,) = found.summary(cluster=cluster)
        assert row["high"] - row["value"] == pytest.approx(row["value"] - row["low"])


def test_intervals_stay_within_the_range_of_the_metric():
    """Intervals are clipped to the range of the metric."""
    rows = {"query_id": [1, 1, 2, 2, 3, 3], "label": [1, 0, 1, 0, 1, 0]}
    first, second = ({**rows, "score": x} for x in ([2, 1, 1, 2, 0, 0], [1, 2] * 3))
    metrics = [MeanReciprocalRank(shuffle_ties="average"), "dcg", "arp", "tau"]
    one, other = (evaluate(x, metrics) for x in (first, second))
    mrr, *unbounded, tau = one.summary()
    # The values are 1, 0.5 and 0.75: the half width is 4.303 * 0.25 / sqrt(3).
    half = float(stats.t.ppf(0.975, 2)) * 0.25 / np.sqrt(3)
    assert (mrr["low"], mrr["high"]) == (pytest.approx(0.75 - half), 1.0)
    for row in unbounded:
        assert (row["low"] + row["high"]) / 2.0 == pytest.approx(row["value"])
    assert (tau["low"], tau["high"]) == (-1.0, 1.0)
    wide = one.compare(other, confidence=0.999)
    (low, *_, least), (high, *_, most) = wide["low"], wide["high"]
    assert (low, high, least, most) == (-1.0, 1.0, -2.0, 2.0)
    assert wide["high"][1] > 1.0
    # A metric without a known definition may have any range.
    table = one.table.select(["query_id", "mrr", "weight"]).replace_schema_metadata()
    found = Evaluation(table, metrics=[Unbounded(name="mrr")], query="query_id")
    assert found.summary()["high"] == pytest.approx([0.75 + half])


class Unbounded(RankingMetric):
    """A metric without a known range."""

    base_name = "unbounded"


def test_few_lists_are_noted():
    ten = evaluate(make_rows(lists=10), ["mrr"], keep=["market", "user"])
    many = evaluate(make_rows(lists=28), ["mrr"], keep="market")
    assert ten.summary().notes == []
    for table, too_few in (
        (ten.summary(by="market"), "all rows have fewer than 10 lists"),
        (ten.compare(ten, by="market"), "all rows have fewer than 10 lists"),
        (ten.summary(cluster="user"), "all rows have fewer than 10 clusters by 'user'"),
        (many.summary(by="market"), "2 of 3 rows have fewer than 10 lists"),
    ):
        note = f"Warning: {too_few}, too few for reliable intervals."
        assert table.notes == [note]


EXPONENTIAL, LINEAR = "exponential, 2**label - 1", "linear, the label"


@pytest.mark.slow
def test_gains_of_graded_labels_are_stated(tmp_path):
    rows = {"query_id": [1, 1, 2, 2], "score": [2, 1, 2, 1], "item_id": [1, 2, 1, 2]}
    graded, binary = ({**rows, "label": [0, x, 1, 0]} for x in (2, 1))

    def find_gains_notes(found):
        notes = found.notes if isinstance(found, Table) else found.summary().notes
        return [x for x in notes if x.startswith("Gains: ")]

    own = NDCG(gain_fn=own_gains, name="own")
    for metrics, gains in (
        (["ndcg@10", "mrr"], [f"Gains: {EXPONENTIAL}."]),
        (["ndcg_cut_10", "nDCG@5"], [f"Gains: {LINEAR}."]),
        (
            ["dcg", "ndcg_cut_10"],
            [f"Gains: {EXPONENTIAL} (dcg); {LINEAR} (ndcg_cut_10)."],
        ),
        ([own, "rbp"], ["Gains: tests>own_gains."]),
        (["mrr", "err", "rbp"], []),
    ):
        found = evaluate(graded, metrics)
        assert (
            find_gains_notes(found) == find_gains_notes(found.compare(found)) == gains
        )
        assert not find_gains_notes(evaluate(binary, metrics))
    for rules, gains in (("trec_eval", LINEAR), ("keras", EXPONENTIAL)):
        both = (evaluate_run(x, rows, ["ndcg"], rules=rules) for x in (graded, binary))
        found, other = both
        assert (find_gains_notes(found), find_gains_notes(other)) == (
            [f"Gains: {gains}."],
            [],
        )
    # trec_eval truncates the label 1.5 to 1, so its labels are binary.
    for rules, stated in (("trec_eval", False), ("keras", True)):
        labels = {**rows, "label": [0, 1.5, 1, 0]}
        found = evaluate_run(labels, rows, ["ndcg"], rules=rules)
        assert bool(find_gains_notes(found)) == stated
    other.write(tmp_path / "lists.parquet")
    assert not find_gains_notes(Evaluation.read(tmp_path / "lists.parquet"))
    # A table of an earlier version does not tell whether labels are graded.
    found = Evaluation(other.table.drop_columns(["health/graded labels"]))
    assert find_gains_notes(found) == [f"Gains: {EXPONENTIAL}."]
    # A comparison only has the metrics of both evaluations.
    base, new = (evaluate(graded, x) for x in (["mrr"], ["mrr", "ndcg"]))
    assert not find_gains_notes(new.compare(base))


@keras.saving.register_keras_serializable(package="tests")
def own_gains(labels):
    return labels**2


# Comparisons.


def two_models(**arguments):
    base = evaluate(make_rows(lists=80, noise=3.0), ["ndcg@5", "map"], **arguments)
    return base, evaluate(
        make_rows(lists=80, noise=1.0), ["ndcg@5", "map"], **arguments
    )


def test_paired_t_test_is_that_of_scipy():
    base, new = two_models()
    comparison = new.compare(base, confidence=0.9)
    for row in comparison:
        both = column(new, row["metric"]), column(base, row["metric"])
        of_lists = comparison.differences[row["metric"]].to_numpy()
        assert of_lists == pytest.approx(both[0] - both[1])
        expected = stats.ttest_rel(*both)
        interval = expected.confidence_interval(0.9)
        assert row["p"] == pytest.approx(expected.pvalue)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert (row["value"], row["baseline"]) == pytest.approx(np.mean(both, axis=1))
        assert row["difference"] == pytest.approx(np.mean(of_lists))


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


def test_permutations_with_equal_differences():
    """All signs of 5 equal differences are equal in 2 of 2 ** 5 draws."""
    rows = {"query_id": np.repeat(np.arange(5), 2), "label": [1, 0] * 5}
    base = evaluate({**rows, "score": [1, 2] * 5}, ["mrr"])
    new = evaluate({**rows, "score": [2, 1] * 5}, ["mrr"])
    assert new.compare(base, test="permutation")["p"] == [pytest.approx(2 / 2**5)]
    assert new.compare(base)["p"] == [0.0]


def test_permutations_of_many_lists(rng):
    """Permutations of 200,000 lists take less than a minute and give the normal p."""
    values = rng.choice([0.0, 0.1, 0.5, 1.0], 200_000, p=[0.7, 0.1, 0.1, 0.1])
    drawn = rng.choice([-1.0, 1.0], 200_000) * values
    start = time.perf_counter()
    found = intervals._compute_permutation_p(drawn)
    assert time.perf_counter() - start < 60.0
    z = abs(drawn.sum()) / np.sqrt(np.square(drawn).sum())
    assert found == pytest.approx(2.0 * stats.norm.sf(z), abs=0.02)


def test_permutations_with_a_few_large_differences():
    """The p of 3 large differences among 20,000 small ones is that of their signs."""
    differences = np.concatenate([np.full(3, 1e6), np.tile([1e-3, -1e-3], 10_000)])
    expected = 2 / 2**3 / 2
    assert intervals._compute_permutation_p(differences) == pytest.approx(
        expected, abs=0.02
    )


def test_clusters_are_compared_as_wholes():
    base, new = two_models(keep="user")
    found = new.compare(base, cluster="user").rows[0]
    differences = column(new, "ndcg@5") - column(base, "ndcg@5")
    users = column(new, "user")
    of_users = [differences[users == user].mean() for user in np.unique(users)]
    assert found["p"] == pytest.approx(stats.ttest_1samp(of_users, 0.0).pvalue)


def test_signs_of_a_permutation_are_those_of_whole_units():
    """A change in the list or the user with most of the weight has one sign."""
    for users, weights in (
        (np.repeat(np.arange(10), [100] + [1] * 9), np.ones(109)),
        (None, np.array([100.0] + [1.0] * 9)),
    ):
        is_first = weights > 1.0 if users is None else users == 0
        values = intervals.Values(1.0 * is_first, weights, 0.0)
        change = values.mean(np.arange(len(weights)))
        assert intervals.estimate(change, users, 0.95, permute=True).p == 1.0


def test_permutations_with_weights_and_empty_lists(rng):
    """The test draws signs of the terms of lists, which add up to the difference."""
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
    holm = intervals.correct_p_values(p, "holm")
    assert holm == pytest.approx([0.04, 0.09, np.nan, 0.09, 0.025, 0.8], nan_ok=True)
    assert intervals.correct_p_values(p, None) == pytest.approx(p, nan_ok=True)
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    known = ~np.isnan(p)
    for ours, theirs in (("holm", "holm"), ("bh", "fdr_bh"), ("by", "fdr_by")):
        expected = multitest.multipletests(p[known], method=theirs)[1]
        assert intervals.correct_p_values(p, ours)[known] == pytest.approx(expected)


def test_several_models_are_corrected_together():
    base, new = two_models(keep="market")
    comparison = compare(base, {"same": base, "new": new}, by="market")
    names = "model market metric baseline value difference low high p corrected_p lists"
    names += " wins ties losses"
    assert list(comparison.columns) == names.split()
    assert len(comparison) == 2 * 3 * 2
    assert comparison["p"][:6] == [1.0] * 6
    expected = intervals.correct_p_values(np.array(comparison["p"]), "holm")
    assert comparison["corrected_p"] == pytest.approx(expected)
    assert comparison.differences.column_names == ["model", "query_id", "ndcg@5", "map"]
    assert "corrected_p" not in compare(base, {"new": new}, correction=None).columns


def test_models_may_differ_in_metrics_names_and_sizes_of_ids():
    """Metrics that a model does not have are missing from the differences."""
    rows = make_rows()
    base = evaluate(rows, ["ndcg@5", "mrr"])
    short = rows.append_column("qid", rows["query_id"].cast(pa.uint32()))
    models = {"a": evaluate(short, ["mrr"], query="qid"), "b": base}
    comparison = compare(base, models)
    assert comparison["metric"] == ["mrr", "ndcg@5", "mrr"]
    assert comparison["lists"] == [60] * 3
    differences = comparison.differences.to_pydict()
    assert differences["query_id"] == [*range(60)] * 2
    assert differences["ndcg@5"] == [None] * 60 + [0.0] * 60


def test_metrics_keep_their_seeds():
    metric, group = NDCG(k=2), RankingMetrics([MeanReciprocalRank()])
    seeds = metric.seed, group.members[0].seed
    for metrics in ([metric], group):
        evaluate(make_rows(), metrics)
    assert (metric.seed, group.members[0].seed) == seeds != (0, 0)


def test_the_mean_of_no_lists_is_unknown():
    """The mean of a slice whose lists are all left out is NaN, not 0."""
    rows = {"query_id": [1, 2], "label": [1, 0], "score": [1, 1], "market": ["a", "b"]}
    left_out = NDCG(k=1, empty_value=None)
    evaluation = evaluate(rows, [left_out], keep="market")
    comparison = evaluation.compare(evaluation, by="market")
    values = [comparison[name] for name in ("baseline", "value", "difference")]
    for value in (evaluation.summary(by="market")["value"], *values):
        assert np.isnan(value).tolist() == [False, True]
    nothing = evaluate({**rows, "label": [0, 0]}, [left_out])
    assert not any("ties" in warning for warning in nothing.warnings)


def test_queries_of_one_side_are_named():
    new = evaluate(make_rows(), ["mrr"])
    base = Evaluation(new.table.slice(0, 57))
    assert new.compare(base)["lists"] == [57]
    left_out = "has are left out (3): 57, 58, 59."
    assert f"queries that only the new one {left_out}" in new.compare(base).notes[0]
    assert f"only the baseline {left_out}" in base.compare(new).notes[0]


def test_different_labels_of_a_query_are_named():
    rows = make_rows()
    label, query = (rows[x].to_numpy() for x in ("label", "query_id"))
    more = np.maximum(label, query == 3)
    rows = rows.append_column("other", pa.array(more))
    base, new = (evaluate(rows, ["mrr"], label=name) for name in ("label", "other"))
    assert base.compare(base).notes == []
    (note,) = new.compare(base).notes
    assert note.startswith("Warning: 1 queries have other labels in the baseline, by")
    of_an_earlier_edition = Evaluation(base.table.drop_columns(["health/label sum"]))
    assert new.compare(of_an_earlier_edition).notes == []


# Worst queries and checks of health.


@pytest.mark.parametrize("bound", ["worst", "best"])
def test_bounds_over_ties_need_ties(bound):
    """The orders of trec_eval leave no ties, so that bounds would be meaningless."""
    names = ["mrr", f"mrr(shuffle_ties={bound})"]
    qrels, run = {"q": {"a": 1}}, {"q": {"b": 0.5, "a": 0.5, "c": 0.1}}
    for rules in ("trec_eval", "trec_eval-9"):
        with pytest.raises(ValueError, match='`ties` should be "metric" if a metric'):
            evaluate_run(qrels, run, names, rules=rules)
    expected = {"worst": 0.5, "best": 1.0}[bound]
    for arguments in ({"ties": "metric"}, {"rules": "keras"}):
        assert evaluate_run(qrels, run, names[1:], **arguments)[names[1]] == expected


def test_worst_queries():
    base, new = two_models(keep="market")
    worst = new.worst(n=3)
    assert list(worst.columns) == ["query_id", "market", "ndcg@5"]
    assert worst["ndcg@5"] == sorted(column(new, "ndcg@5"))[:3]
    lost = base.worst("map", 2, baseline=new)
    assert lost["difference"] == sorted(column(base, "map") - column(new, "map"))[:2]
    arp = evaluate(make_rows(), ["arp"])
    assert arp.worst("arp", 1)["arp"] == [np.nanmax(column(arp, "arp"))]
    for n in (0, 1.5):
        with pytest.raises(ValueError, match=f"`n` should be .* Received: n={n}"):
            new.worst("ndcg@5", n)


def test_a_table_in_good_health_has_no_warnings(rng):
    query, label = np.repeat(np.arange(50), 20), np.tile([3, 2, 1, 0], 250)
    rows = {"query_id": query, "label": label, "score": rng.normal(size=1000)}
    evaluation = evaluate(rows, ["ndcg@10"])
    assert evaluation.warnings == evaluation.health().notes == []
    assert str(evaluation) == str(evaluation.summary())


def test_health_reports_problems_of_rows():
    rows = {
        "query_id": [1, 1, 1, 2, 2, 3, 3, 4],
        "item_id": list("abcababa"),
        "label": [1, 0, None, 0, 0, 1, 0, 1],
        "score": [0.5, 0.5, 0.5, 0.3, NAN, 0.2, 0.1, 0.4],
    }
    arguments = {"item": "item_id", "unjudged": "irrelevant"}
    evaluation = evaluate(rows, ["ndcg@2", "mrr"], **arguments)
    found = health_checks(evaluation)
    for name, expected in {
        **dict.fromkeys(("nothing relevant", "one item", "shorter than 2"), (1, 0.25)),
        **dict.fromkeys(("constant scores", "NaN scores", "tied at 2"), (1, 0.25)),
        "judged@2": (1, pytest.approx((2 / 3 + 3) / 4)),
        "duplicated items": (0, 0.0),
    }.items():
        assert (found[name]["lists"], found[name]["share"]) == expected
    of_ties = {"worst": 1 / 3, "average": 11 / 18, "best": 1.0}
    for order, value in of_ties.items():
        assert found["ties of mrr"][order] == pytest.approx((value + 0 + 1 + 1) / 4)
    # All metrics share one warning about ties.
    (of_ties,) = (w for w in evaluation.warnings if "have tied items" in w)
    assert of_ties.startswith("Warning: 1 of 4 lists have tied items: ndcg@2 is ")
    assert of_ties.endswith(". Their order also changes mrr: see `health`.")
    assert all(warning in str(evaluation) for warning in evaluation.warnings)


ALL_RELEVANT = [
    ([1, 1, 1, 1], ["ndcg@2", "mrr"], 2),
    ([2, 2, 1, 0], ["ndcg"], 1),
    # The order of relevant items with different grades changes NDCG.
    ([2, 1, 5, 3], ["ndcg"], 0),
    ([2, 1, 5, 3], ["ndcg", "map"], 2),
    ([2, 1, 5, 4], ["ndcg", MeanReciprocalRank(relevance_threshold=4)], 1),
    ([2, 1, 4, 3], [ExpectedReciprocalRank()], 0),
    ([0, 0, 1, 0], ["map"], 0),
    # An item whose label is missing is not counted.
    ([1, None, 0.5, 0.7], ["map"], 1),
]


@pytest.mark.parametrize(("labels", "metrics", "found"), ALL_RELEVANT)
def test_lists_of_relevant_items_only_are_reported(labels, metrics, found):
    rows = {"query_id": [1, 1, 2, 2], "label": labels, "score": [0.1, 0.2, 0.3, 0.1]}
    evaluation = evaluate(rows, metrics)
    assert health_checks(evaluation)["every item relevant"]["lists"] == found
    warned = [w for w in evaluation.warnings if "have only relevant items" in w]
    assert len(warned) == (found == 2)
    # An item that was not retrieved can change the value.
    rows = {"query_id": [1, 1], "label": [1, 1], "score": [0.5, None]}
    assert (
        health_checks(evaluate(rows, ["recall"]))["every item relevant"]["lists"] == 0
    )


BELOW = "for mrr: .* of 12 of them are below `relevance_threshold`, 1.$"
NO_PAIRS = "no different labels, for {}: .* its mean leaves them out.$"
# Labels, the number of 12 lists that have them, metrics, and the expected warning.
NOTHING_TO_FIND = [
    ([3, 3, 3], 4, ["pairwise_accuracy"], NO_PAIRS.format("pairwise_accuracy")),
    ([0, 0, 0], 4, [NDCG(empty_value=None)], "items, .* its mean leaves them out"),
    ([0, 0, 0], 4, ["ndcg"], "items for ndcg: .* change the mean in the same way"),
    ([0, 0, 0], 12, ["mrr", "map"], "items for mrr, map: .* for any model.$"),
    # The grades are scaled to 0..1, which `relevance_threshold` does not reach.
    ([0, 0.5, 0.75], 12, ["ndcg", "mrr"], BELOW),
    ([0, 0.5, 1], 12, ["ndcg", "mrr"], None),
    # Lists without irrelevant items have no fall-out.
    ([1, 2, 3], 12, ["ndcg", "fall_out"], None),
    ([1, 1, 1], 12, ["map", "tau"], NO_PAIRS.format("tau")),
]


@pytest.mark.parametrize(("labels", "number", "metrics", "said"), NOTHING_TO_FIND)
def test_warnings_about_lists_without_relevant_items(labels, number, metrics, said):
    rows = {"query_id": np.repeat(np.arange(12), 3), "score": [1, 2, 3.5] * 12}
    rows["label"] = labels * number + [0, 1, 2] * (12 - number)
    warned = [x for x in evaluate(rows, metrics).warnings if "no relevant items" in x]
    assert len(warned) == (said is not None)
    assert all(re.search(f" {number} of 12 lists .*{said}", x) for x in warned)


@pytest.mark.parametrize("scores", [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
def test_the_range_over_ties_is_that_of_all_orders(scores):
    """The range over ties is that of all orders, with falling gains too.

    Each query has the items in one of all orders.
    """
    orders = np.array(list(itertools.permutations(range(4))))
    items = {"label": [2, 1, 1, 0], "score": scores}
    rows = {name: np.array(values)[orders].ravel() for name, values in items.items()}
    rows["query_id"] = np.repeat(np.arange(len(orders)), 4)
    metrics = [
        NDCG(k=3, shuffle_ties=False),
        DCG(k=2, shuffle_ties=False),
        NDCG(gain_fn=lambda labels: 2.0 - labels, shuffle_ties=False, name="falling"),
        MeanReciprocalRank(relevance_threshold=2.0, shuffle_ties=False),
        AverageRelevancePosition(shuffle_ties=False),
    ]
    evaluation = evaluate(rows, metrics)
    for metric in metrics:
        row = health_checks(evaluation)[f"ties of {metric.name}"]
        values = column(evaluation, metric.name)
        worst, best = np.sort(values)[[0, -1]][:: 1 if metric.higher_is_better else -1]
        expected = pytest.approx((worst, np.mean(values), best), abs=1e-6)
        assert (row["worst"], row["average"], row["best"]) == expected


@pytest.mark.parametrize("weight", [None, "weight"])
def test_the_spread_is_that_of_the_bounds(weight, rng):
    """A string in a table has the same bounds, with and without weights."""
    rows = {
        "query_id": np.repeat(np.arange(20), 6),
        "label": rng.integers(0, 3, size=120),
        "score": rng.integers(0, 2, size=120),
        "weight": rng.choice([1.0, 2.0], size=120),
    }
    for name in ("ndcg{}@4", "mrr{}", "arp{}", "pairwise_accuracy{}@3"):
        names = [name.format(f"(shuffle_ties={x})") for x in ("worst", "best")]
        values = evaluate(rows, names, weight=weight)
        checks = health_checks(evaluate(rows, [name.format("")], weight=weight))
        (row,) = (x for key, x in checks.items() if key.startswith("ties of"))
        expected = [values[name] for name in names]
        if weight is None:
            assert [row["worst"], row["best"]] == pytest.approx(expected, abs=1e-6)
        else:
            bounds = sorted([row["worst"], row["best"]])
            assert bounds[0] <= min(expected) + 1e-6
            assert max(expected) - 1e-6 <= bounds[1]


def test_the_worst_order_is_never_better_than_the_best():
    """The worst order is below the best even if one relevant item lowers the value.

    With a relevant item at rank 3, the mean of precisions is 5/6, without it 1.
    """
    rows = {"query_id": [1] * 4, "label": [1, 0, 1, 0], "score": [3, 2, 1, 1]}
    metric = MeanAveragePrecision(k=3, normalizer="retrieved", name="map")
    row = health_checks(evaluate(rows, [metric]))["ties of map"]
    assert (row["worst"], row["best"]) == pytest.approx((5 / 6, 1.0))


def test_health_is_reported_for_each_metric():
    """Health reports the lists without relevant items for each metric."""
    rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0], "score": [2, 0.5, 1, 2]}
    of_two = MeanReciprocalRank(relevance_threshold=2, name="2")
    for metrics in (["mrr", of_two], [of_two, "mrr"]):
        evaluation = evaluate(rows, metrics)
        found = health_checks(evaluation)
        assert found["nothing relevant to 2"]["lists"] == 2
        assert found["nothing relevant to mrr"]["lists"] == 0
    of_one = Evaluation(evaluation._values.select_metrics(["2"]).table)
    assert health_checks(of_one)["nothing relevant"]["lists"] == 2
    for each in (
        Evaluation(evaluation._values.select_metrics(["mrr"]).table),
        Evaluation(evaluation.table, metrics=[MeanReciprocalRank()]),
    ):
        assert health_checks(each)["nothing relevant"]["lists"] == 0
        assert each.warnings == []
    # A file of version 0.5.0 does not have this column.
    old = Evaluation(evaluation.table.drop_columns(["health/mrr/relevant"]))
    assert next(x for x in health_checks(old) if "relevant" in x) == "nothing relevant"


def test_an_evaluation_without_lists_has_no_warnings():
    table = evaluate(make_rows(), ["mrr", "ndcg@5"]).table
    nothing = Evaluation(table.slice(0, 0))
    assert (nothing.warnings, len(nothing.health())) == ([], 0)
    assert str(nothing) == str(nothing.summary())


def test_duplicates_can_be_counted():
    rows = {"query_id": [1, 1, 2], "item_id": [5, 5, 5], "label": [1, 0, 1]}
    rows["score"] = [0.1, 0.2, 0.3]
    evaluation = evaluate(rows, ["mrr"], item="item_id", duplicates="count")
    assert health_checks(evaluation)["duplicated items"]["lists"] == 1
    assert any("have duplicate items" in warning for warning in evaluation.warnings)


def test_short_lists_are_not_warned_of_in_runs():
    """Short lists are warned of in tables of rows, but not in runs.

    A run may have retrieved few items, whereas a table of rows has all items.
    """
    judged = {"1": {"a": 1, "b": 0}, "2": {"c": 1}, "3": {"c": 1}}
    of_run = evaluate_run(judged, {"1": {"a": 2, "b": 1}, "2": {"c": 1}}, ["ndcg@10"])
    rows = {"query_id": [1, 1, 2, 3], "label": [1, 0, 1, 1], "score": [2, 1, 1, 1]}
    of_rows = evaluate(rows, ["ndcg@10"])
    for text in ("fewer than 10 items", "does `query` name the column of the lists"):
        assert not any(text in warning for warning in of_run.warnings)
        assert any(text in warning for warning in of_rows.warnings)
    found = health_checks(of_run)
    assert (found["one item"]["lists"], found["shorter than 10"]["lists"]) == (2, 3)


def test_labels_below_0_are_not_judgments_in_health():
    rows = {"query_id": [1, 1, 2, 2], "label": [-1, -1, 1, 0], "score": [2, 1, 2, 1]}
    for unjudged, lists, share in (("irrelevant", 1, 0.5), (None, 0, 1.0)):
        found = health_checks(evaluate(rows, ["mrr@2"], unjudged=unjudged))
        judged = found["judged@2"]
        assert (judged["lists"], judged["share"]) == (lists, share)
        assert found["nothing judged"]["lists"] == lists


def test_plausible_labels_and_scores_give_no_warnings():
    """Scores of 1, 2, 3 and fractions as labels give no warnings."""
    query, label = np.repeat(np.arange(12), 3), np.tile([0, 0.5, 1.5], 12)
    rows = {"query_id": query, "label": label, "score": np.tile([1, 2, 3], 12)}
    assert evaluate(rows, ["ndcg@3"]).warnings == []
    # Lists with one item each are warned of.
    by_item = evaluate(make_rows().slice(0, 30), ["mrr"], query="item_id")
    assert any("does `query` name" in w for w in by_item.warnings)


# Stored evaluations.


def test_numbers_of_left_out_queries_are_summed():
    parts = [
        evaluate_run({q: [1]}, {x: [1] for x in (q, "x", "y")}, ["mrr"]) for q in "ab"
    ]
    both = Evaluation(pa.concat_tables([part.table for part in parts]))
    other = Evaluation(both.table, left_out=7)
    for evaluation, number in ((parts[0], 2), (both, 4), (other, 7)):
        (warning,) = [w for w in evaluation.warnings if "left out" in w]
        assert f"without judgments are left out ({number}): 'x', 'y'" in warning


OF_MRR = '{"query": "query_id", "rules": null, "metrics": [["mrr", null, 0.0'
# Version 0.2.0 stored no rules.
UNKNOWN = [f'{OF_MRR}, "up"]]}}'.replace('"rules": null, ', "")]
UNKNOWN += ["[]", "null", "not json", "{}", f"{OF_MRR}]]}}", f'{OF_MRR}, "up", 1]]}}']
OF_OTHERS = [f'{OF_MRR}, "up"]]}}'.replace(*x) for x in (("mrr", "map"), ("_id", ""))]
OF_OTHERS += ['{"query": "query_id", "rules": null, "metrics": []}']


@pytest.mark.parametrize("written", UNKNOWN + OF_OTHERS)
def test_metadata_of_another_version(written):
    table = evaluate(make_rows(), ["mrr"]).table
    ours = "have a schema that this version of keras_rank can read: otherwise evaluate"
    message = ours if written in UNKNOWN else "be the table of an evaluation, whose "
    with raises(f"`table` should {message}"):
        Evaluation(table.replace_schema_metadata({"keras_rank": written}))


def test_columns_that_an_evaluation_needs():
    table = evaluate(make_rows(), ["mrr", "ndcg@5"]).table
    with raises('`table` should have a column "weight"'):
        Evaluation(table.drop_columns("weight"))
    for name in ("health/tied@5", "health/mrr/best", "health/ties"):
        assert Evaluation(table.drop_columns(name)).warnings == []


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "CSV"])
def test_lists_are_written_for_other_tools(tmp_path, suffix):
    rows = make_rows(lists=5).to_pydict()
    rows["market"] = ['a,"b"\n' + x if x == "de" else None for x in rows["market"]]
    evaluation = evaluate(rows, ["ndcg@5", "mrr"], keep="market")
    file = tmp_path / f"it's lists.{suffix}"
    evaluation.write(file)
    read = duckdb.read_csv if suffix.lower() == "csv" else duckdb.read_json
    again = read(str(file)).to_arrow_table().to_pydict()
    for name, values in evaluation.per_list.to_pydict().items():
        assert again[name] == values
    with raises("`path` should be a Parquet file written by `write`"):
        Evaluation.read(file)


@pytest.mark.parametrize("name", ["lists", "lists.xlsx", "lists.csv.gz", "lists.pq"])
def test_other_suffixes_are_errors(tmp_path, name):
    evaluation = evaluate(make_rows(lists=5), ["mrr"])
    with raises("`path` should end in one of .parquet, .csv, .json, .jsonl. Received"):
        evaluation.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def list_ranked_items(evaluation, query):
    found = evaluation.ranking(query)
    return list(zip(found["rank"], found["item"], found["label"], strict=True))


def test_items_are_kept():
    """An evaluation keeps the first two and the two most relevant items, in order."""
    rows = {
        "query_id": [1] * 6 + [2] * 2,
        "item_id": list("abcdefgh"),
        "label": [0, 0, 1, 3, 2, None, 0, -1],
        "score": [0.9, 0.8, 0.7, 0.6, NAN, 0.5, -np.inf, 0.1],
    }
    arguments = {"item": "item_id", "keep_items": 2}
    found = evaluate(rows, ["mrr"], **arguments)
    of_first = [(1, "a", 0.0), (2, "b", 0.0), (4, "d", 3.0), (None, "e", 2.0)]
    assert (list_ranked_items(found, 1), list_ranked_items(found, 2)) == (of_first, [])
    counted = evaluate(rows, ["mrr"], unjudged="irrelevant", **arguments)
    assert list_ranked_items(counted, 2) == [(1, "h", 0.0)]
    assert found.ranking(1)["score"] == [0.9, 0.8, 0.6, None]
    assert found.per_list.equals(evaluate(rows, ["mrr"], item="item_id").per_list)
    qrels = {"1": {"a": 1, "b": 2}, "2": {"c": 1}}
    run = {"1": {"x": 0.5, "a": 0.5, "y": 0.1}}
    found = evaluate_run(qrels, run, ["mrr"], keep_items=2)
    # Tied items are in descending order of their ids as text.
    assert list_ranked_items(found, "1") == [
        (1, "x", 0.0),
        (2, "a", 1.0),
        (None, "b", 2.0),
    ]
    assert list_ranked_items(found, "2") == [(None, "c", 1.0)]


def test_an_evaluation_is_written_and_read(tmp_path):
    arguments = {"keep": "market", "weight": "weight", "item": "item_id"}
    arguments |= {"duplicates": "count", "keep_items": 3}
    evaluation = evaluate(make_rows(), ["ndcg@5", "mrr"], **arguments)
    evaluation.write(tmp_path / "lists.parquet")
    again = Evaluation.read(tmp_path / "lists.parquet")
    assert again.per_list.equals(evaluation.per_list)
    assert str(again) == str(evaluation)
    assert again.summary(by="market").rows == evaluation.summary(by="market").rows
    assert again.compare(evaluation)["difference"] == [0.0, 0.0]
    for query in range(60):
        assert again.ranking(query).rows == evaluation.ranking(query).rows
    with raises("`table` should be the table of an evaluation"):
        Evaluation(evaluation.per_list)
    metrics = [NDCG(k=5, name="ndcg@5"), MeanReciprocalRank()]
    bare = Evaluation(evaluation.per_list, metrics=metrics, query="query_id")
    assert bare.summary().rows == evaluation.summary().rows
    assert bare.warnings == []
    with raises("columns of health"):
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
