"""Tests of the worst and the best order of tied items."""

import json

import keras
import numpy as np
import oracle
import pytest
from arrays import assert_close, assert_equal, compute_values
from hypothesis import given
from hypothesis import strategies as st
from registry import BACKEND_CASES, CASES, IS_SLOW
from strategies import BATCH, batches
from test_properties import is_close, items_by_list, oracle_values

from keras_rank import catalogue, functional, metrics
from keras_rank.metrics import NDCG, RankingMetrics

BOUNDS = ["worst", "best"]
WITH_BOUNDS = [case for case in BACKEND_CASES if case.has_tie_bounds]
all_metrics = pytest.mark.parametrize("case", WITH_BOUNDS, ids=str)
# JAX and TensorFlow compile a program for each cutoff.
cutoffs = st.sampled_from([None, 3] if IS_SLOW else [None, 1, 2, 3, 5, 20])


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs, ties=st.sampled_from(BOUNDS))
def test_bounds_equal_the_oracle(case, batch, k, ties):
    labels, scores, weights = batch
    for sample_weight in (None, weights):
        lists = items_by_list(labels, scores, sample_weight)
        values = compute_values(
            case.values, labels, scores, sample_weight, k=k, shuffle_ties=ties
        )
        expected = oracle_values(case, lists, k, ties)
        for value, expected_value in zip(values, expected, strict=True):
            assert expected_value is None or is_close(value, expected_value)


@all_metrics
@given(batch=batches(), k=cutoffs)
def test_bounds_enclose_the_average(case, batch, k):
    labels, scores, _ = batch
    results = {}
    for ties in ("worst", False, "best", "average"):
        metric = case.make(k=k, shuffle_ties=ties)
        metric.update_state(labels, scores)
        results[ties] = float(metric.result())
    sign = 1.0 if case.metric.higher_is_better else -1.0
    inner = [False, "average"] if case.averages_ties else [False]
    # The result for an order of a metric that values tied pairs may be outside.
    if case.metric is metrics.PairwiseAccuracy:
        inner = inner[1:]
    for ties in inner:
        assert sign * results["worst"] <= sign * results[ties] + 1e-6
        assert sign * results[ties] <= sign * results["best"] + 1e-6


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.has_tie_bounds], ids=str
)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    levels=st.integers(1, 3),
    k=st.sampled_from([None, 1, 2, 4]),
    seed=st.integers(0, 100),
)
def test_bounds_of_the_oracle_are_its_extremes(case, labels, levels, k, seed):
    """The values of the bounds are the extremes over all orders of tied items."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, size=len(labels)).astype("float64")
    scores[rng.random(len(labels)) < 0.1] = -np.inf
    items = oracle.make_items(labels, scores)
    k = k if case.has_cutoff else None
    if case.list_weight(items) is None:
        return
    values = [
        case.oracle_value(untied, k=k, ties="stable")
        for untied in oracle.untied_lists(items)
    ]
    worst, best = (case.oracle_value(items, k=k, ties=ties) for ties in BOUNDS)
    low, high = (worst, best) if case.metric.higher_is_better else (best, worst)
    assert low == pytest.approx(min(values), abs=1e-12)
    assert high == pytest.approx(max(values), abs=1e-12)


SPARSE_CASES = [case for case in WITH_BOUNDS if case.metric.takes_sparse_labels]


# Pairs of targets accept no cutoff.
SPARSE_PAIRS = [
    (case, k)
    for case in SPARSE_CASES
    for k in (None, 3)
    if k is None or case.metric is not metrics.PairwiseAccuracy
]


@pytest.mark.compiles_long
@pytest.mark.parametrize("ties", BOUNDS)
@pytest.mark.parametrize(("case", "k"), SPARSE_PAIRS, ids=str)
def test_targets_have_the_bounds_of_dense_labels(case, k, ties, rng):
    """Targets are ordered among themselves by their labels, and others have label 0."""
    lists, items, targets = 40, 9, 4
    for levels in (1, 2, 4):
        scores = rng.integers(0, levels, size=(lists, items)).astype("float32")
        scores[rng.random(scores.shape) < 0.1] = -np.inf
        ids = np.argsort(rng.random((lists, items)), axis=1)[:, :targets]
        grades = rng.integers(1, 4, size=ids.shape).astype("float32")
        ids = np.where(rng.random(ids.shape) < 0.3, -1, ids).astype("int32")
        dense = np.zeros((lists, items), "float32")
        rows, columns = np.nonzero(ids >= 0)
        dense[rows, ids[rows, columns]] = grades[rows, columns]
        y_true = {"ids": ids, "labels": grades}
        options = {"k": k, "shuffle_ties": ties}
        expected = case.values(dense, scores, **options)
        actual = case.values(y_true, scores, sparse_labels=True, **options)
        assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.parametrize("ties", BOUNDS)
@pytest.mark.parametrize("targets", [1, 3])
def test_catalogs_have_the_bounds_of_their_scores(ties, targets, rng):
    queries = rng.integers(0, 2, size=(20, 3)).astype("float32")
    candidates = rng.integers(0, 2, size=(50, 3)).astype("float32")
    ids = np.argsort(rng.random((20, 50)), axis=1)[:, :targets].astype("int32")
    y_true = {"ids": ids, "labels": rng.integers(1, 4, size=ids.shape)}
    ranked = catalogue.rank(
        y_true, queries, candidates, shuffle_ties=ties, block_size=16
    )
    scores = queries @ candidates.T
    for case in SPARSE_CASES:
        if "retrieved" in case.arguments.values():
            # The counts of targets don't include the number of retrieved items.
            continue
        expected = case.values(y_true, scores, sparse_labels=True, shuffle_ties=ties)
        actual = case.function(ranked, **case.arguments)
        assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_catalog_metrics_have_bounds(rng):
    queries, candidates = np.ones((2, 2), "float32"), np.ones((8, 2), "float32")
    members = [metrics.MeanReciprocalRank(shuffle_ties=x, name=x) for x in BOUNDS]
    results = catalogue.evaluate([0, 5], queries, candidates, members, verbose=0)
    assert results == {"worst": pytest.approx(1 / 8), "best": 1.0}


def test_ranked_lists_have_the_bounds_of_a_metric(rng):
    labels = rng.integers(0, 4, size=(BATCH, 7))
    scores = rng.integers(0, 2, size=(BATCH, 7)).astype("float32")
    for ties in BOUNDS:
        ranked = functional.rank(labels, scores, shuffle_ties=ties)
        metric = NDCG(k=3, shuffle_ties=ties)
        expected = NDCG(k=3, shuffle_ties=ties)
        metric.update_state(ranked)
        expected.update_state(labels, scores)
        assert float(metric.result()) == pytest.approx(float(expected.result()))
        message = "should be the same for the metric and the ranked lists"
        with pytest.raises(ValueError, match=message):
            NDCG(k=3).update_state(ranked)


def test_groups_and_strings_have_bounds():
    labels, scores = [[0, 1, 0, 0]], [[0.5, 0.5, 0.5, 0.1]]
    group = RankingMetrics(["mrr(shuffle_ties=worst)", "mrr(shuffle_ties=best)", "mrr"])
    group.update_state(labels, scores)
    result = group.result()
    assert float(result["mrr_shuffle_ties_worst"]) == pytest.approx(1 / 3)
    assert float(result["mrr_shuffle_ties_best"]) == 1.0


@pytest.mark.parametrize("ties", BOUNDS)
def test_configs_keep_the_bound(ties):
    metric = NDCG(k=2, shuffle_ties=ties)
    config = json.loads(json.dumps(metric.get_config()))
    assert NDCG.from_config(config).shuffle_ties == ties
    assert repr(metric) == f"<NDCG(k=2, shuffle_ties='{ties}') name=ndcg_at_2>"


class OwnReciprocalRank(metrics.RankingMetric):
    """A user's metric."""

    def compute(self, lists, ranking):
        relevant = ranking.take(lists.relevance)
        return keras.ops.max(relevant / ranking.ranks, axis=1)


def test_own_metrics_have_bounds():
    for ties, expected in (("worst", 1 / 3), ("best", 1.0)):
        metric = OwnReciprocalRank(shuffle_ties=ties)
        metric.update_state([[0, 1, 0]], [[0.5, 0.5, 0.5]])
        assert float(metric.result()) == pytest.approx(expected)


LABELS = [[1, 0]]
WITHOUT_BOUNDS = [case for case in CASES if not case.has_tie_bounds]


@pytest.mark.parametrize("ties", BOUNDS)
@pytest.mark.parametrize("case", WITHOUT_BOUNDS, ids=str)
def test_metrics_without_bounds_raise(case, ties):
    message = '`shuffle_ties` should be True, False or "average" for a metric without'
    with pytest.raises(ValueError, match=message):
        case.make(shuffle_ties=ties)
    ranked = functional.rank(LABELS, [[0.5, 0.5]], shuffle_ties=ties)
    with pytest.raises(ValueError, match=message):
        case.function(ranked, **case.arguments)


@pytest.mark.parametrize("ties", BOUNDS)
def test_metrics_without_labels_raise(ties):
    message = f'needs a single item. Received: shuffle_ties="{ties}"'
    with pytest.raises(ValueError, match=message):
        metrics.Coverage(k=1, items=2, shuffle_ties=ties)
    with pytest.raises(ValueError, match=message):
        catalogue.top_k([[1.0]], [[1.0]], k=1, shuffle_ties=ties)


def test_equal_labels_are_in_the_order_of_the_list():
    """Both bounds put the earlier of two equal items first."""
    labels, scores = np.array([[1, 1, 0]]), np.full((1, 3), 0.5)
    for ties, expected in (("worst", [2, 0, 1]), ("best", [0, 1, 2])):
        ranked = functional.rank(labels, scores, shuffle_ties=ties)
        positions = keras.ops.convert_to_numpy(ranked.ranking.order.positions)
        assert_equal(positions, [expected])
