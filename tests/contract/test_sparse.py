"""Sparse targets in a whole catalogue: the same as labels for every item."""

import functools
import re

import compiled
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import CASES_HERE, IS_SLOW
from strategies import BATCH, LIST_SIZE, cutoffs, ties
from test_ways import LEVELS, scores_of, sparse_batch

from keras_rank import functional, metrics
from keras_rank.backends import backend
from keras_rank.lists import standardize

SPARSE = [
    case
    for case in CASES_HERE
    if case.metric.takes_sparse_labels
    and (case.arguments.get("relevance_threshold") or 1.0) <= 1.0
    # Whose pairs have no cutoff here, and which has laws of its own.
    and case.metric is not metrics.PairwiseAccuracy
]
BACKEND = keras.backend.backend()
sparse_metrics = pytest.mark.parametrize("case", SPARSE, ids=str)

# The shape of the dense lists elsewhere, so that compiled code is compiled once.
ITEMS, TARGETS = LIST_SIZE, 4


@st.composite
def catalogues(draw, targets=TARGETS):
    """Draws ids with padding and repetitions, and scores with ties and gaps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = rng.integers(-1, ITEMS, size=(BATCH, targets))
    ids[rng.random(ids.shape) < rng.choice([0.0, 0.4])] = -1
    scores = rng.integers(0, draw(st.integers(1, 12)), size=(BATCH, ITEMS)) / 2
    scores = scores.astype("float32")
    scores[rng.random(scores.shape) < rng.choice([0.0, 0.2])] = -np.inf
    scores[rng.random(scores.shape) < rng.choice([0.0, 0.1])] = np.nan
    weights = rng.choice([0.0, 0.5, 2.0], size=BATCH).astype("float32")
    return ids, scores, weights


def one_hot(ids, items=ITEMS):
    labels = np.zeros((len(ids), items), "float32")
    for row, targets in enumerate(ids):
        labels[row, targets[targets >= 0]] = 1.0
    return labels


@pytest.mark.filterwarnings("ignore:.* lists have no relevant item")
@sparse_metrics
@given(catalogue=catalogues(), k=cutoffs, shuffle_ties=ties)
def test_sparse_equals_dense(case, catalogue, k, shuffle_ties):
    ids, scores, weights = catalogue
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = case.values(one_hot(ids), scores, **arguments)
    found = case.values(ids, scores, sparse_labels=True, **arguments)
    np.testing.assert_allclose(
        ops.convert_to_numpy(found),
        ops.convert_to_numpy(expected),
        rtol=2e-6,
        atol=2e-6,
    )
    dense, sparse = case.make(**arguments), case.make(sparse_labels=True, **arguments)
    for part in (slice(0, 4), slice(4, BATCH)):
        dense.update_state(one_hot(ids)[part], scores[part], weights[part])
        sparse.update_state(ids[part], scores[part], weights[part])
    assert float(sparse.result()) == pytest.approx(float(dense.result()), abs=2e-6)


@pytest.mark.parametrize(
    ("k", "shuffle_ties"),
    # Each is compiled anew where that is slow.
    [(5, True), (None, False), (5, "average"), (None, "average")]
    + [(5, False), (None, True)] * (not IS_SLOW),
)
def test_many_targets(k, shuffle_ties, rng):
    """Which are ranked by sorting, and by comparing where there are few."""
    for levels in (4, 50, 10**6):
        scores = scores_of(rng, (8, 300), levels)
        ids = np.stack([rng.permutation(300)[:100] for _ in scores])
        ids[0, 2:], ids[1, :50] = -1, ids[1, 50:]
        assert_sparse_is_dense(ids, scores, k, shuffle_ties)


def assert_sparse_is_dense(ids, scores, k, shuffle_ties):
    """The numbers of one order of targets, and of another of all items."""
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    sparse = functional.rank(ids, scores, sparse_labels=True, **arguments)
    targets = ids if ids.ndim == 2 else ids[:, None]
    dense = functional.rank(one_hot(targets, scores.shape[1]), scores, **arguments)
    for case in SPARSE:
        found, expected = (
            ops.convert_to_numpy(case.function(order, k=k, **case.arguments))
            for order in (sparse, dense)
        )
        np.testing.assert_allclose(found, expected, atol=4e-6, err_msg=case.name)


@pytest.mark.skipif(BACKEND != "jax", reason="what is compiled is counted")
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_what_is_compiled_does_not_grow_with_the_targets(shuffle_ties):
    import jax

    metric = metrics.NDCG(sparse_labels=True, seed=1, shuffle_ties=shuffle_ties)
    variables = [variable.value for variable in metric.variables]

    def size(targets):
        batch = np.zeros((4, targets), "int32"), np.zeros((4, 2000), "float32")
        program = jax.make_jaxpr(metric.stateless_update_state)(variables, *batch)
        return len(str(program).splitlines())

    assert size(800) < 1.1 * size(100)


@pytest.mark.programs
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_a_long_catalogue(shuffle_ties, rng, monkeypatch):
    """Blocks, ties at the cutoff, and one target per list, of shape (batch,)."""
    # In the way of longer ones.
    monkeypatch.setattr(backend, "MANY_TO_COUNT", 1)
    for digits in (0, 1, 5):
        scores = np.round(rng.normal(size=(40, 5000)), digits).astype("float32")
        best = np.argsort(-scores, axis=1)[:, :30]
        ids = best[np.arange(40), rng.integers(0, 30, 40)]
        assert_sparse_is_dense(ids, scores, 10, shuffle_ties)


@pytest.mark.optimized
@pytest.mark.parametrize("way", compiled.WAYS)
@pytest.mark.parametrize(("k", "shuffle_ties"), [(3, True), (None, "average")])
def test_compiled(way, k, shuffle_ties, rng):
    compiled.skip_unless_here(way)
    if way == "torch.compile":
        pytest.skip("takes long: in test_accelerators.py it is one graph")
    metric, eager = (
        metrics.NDCG(k=k, sparse_labels=True, seed=1, shuffle_ties=shuffle_ties)
        for _ in range(2)
    )
    update = compiled.WAYS[way](metric)
    for levels in LEVELS:
        ids, scores = sparse_batch(rng, ITEMS, levels)
        batch = ids.astype("float32"), scores, np.ones((len(ids), 1), "float32")
        update(*batch)
        eager.update_state(*batch)
        assert float(metric.result()) == pytest.approx(float(eager.result()), abs=2e-6)


@pytest.mark.parametrize(
    "ids", [[[2**24 + 1], [5, 2**24 + 1]], [[5.0, 2.0**24 + 1]], [[2**24 + 1, np.nan]]]
)
def test_ids_are_not_rounded(ids):
    tensor, _ = standardize.read_targets("y_true", ids)
    read = ops.convert_to_numpy(tensor)
    expected = [[x for x in row if not np.isnan(x)] for row in ids]
    assert [row[row >= 0].tolist() for row in read] == expected
    assert np.all(ops.convert_to_numpy(standardize.are_items(tensor, 2**24 + 2)))


def test_shapes_of_ids():
    scores = [[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]]
    for ids in ([1, 2], [[1], [2]], [[1, -1], [-1, 2]], [[1], [2, 2]], [1.0, 2.0]):
        values = functional.reciprocal_rank(ids, scores, sparse_labels=True)
        np.testing.assert_allclose(ops.convert_to_numpy(values), [1, 1 / 3])


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        (
            [3],
            [[0.1, 0.2, 0.3]],
            "`y_true` should hold ids below the number of items, 3. "
            "Received: a larger id, 3, in row 0",
        ),
        (
            [0, 1],
            [[0.1, 0.2, 0.3]],
            "`y_true` and `y_pred` should have the same number of lists. Received: "
            "y_true.shape=(2, 1), y_pred.shape=(1, 3)",
        ),
        (
            [0],
            [0.1, 0.2, 0.3],
            "With `sparse_labels=True`, `y_true` should have the shape (batch,) or "
            "(batch, targets) and `y_pred` the shape (batch, items). Received: "
            "y_true.shape=(1,), y_pred.shape=(3,)",
        ),
    ],
)
def test_bad_targets(ids, scores, message):
    metric = metrics.HitRate(k=1, sparse_labels=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        metric.update_state(ids, scores)
    assert float(metric.result()) == 0.0


@pytest.mark.parametrize(
    ("ids", "scores"),
    [
        ([[0, 1]], [[0.9, 0.1]]),
        ([[1, 0, -1]], [[0.9, 0.8, 0.1]]),
        ({"labels": [[1, 0, 0]], "mask": [[1, 1, 0]]}, [[0.9, 0.8, 0.1]]),
    ],
)
def test_ids_of_0_and_1_that_are_as_many_as_items(ids, scores):
    """Which no labels of items need be: none is given twice."""
    values = functional.recall(ids, scores, k=1, sparse_labels=True)
    assert float(values[0]) == 0.5


def test_no_ids_at_all_are_not_labels():
    metric = metrics.HitRate(k=1, sparse_labels=True)
    metric.update_state(np.zeros((0, 4)), np.zeros((0, 4)))
    assert float(metric.result()) == 0.0


NEEDS_ALL = (
    "`sparse_labels` should be False for a metric that needs the labels of all items. "
    "Received: sparse_labels=True"
)


@pytest.mark.parametrize(
    ("make", "flag", "message"),
    [
        (
            metrics.HitRate,
            "yes",
            "`sparse_labels` should be True or False. Received: sparse_labels='yes'",
        ),
        (metrics.BPref, True, NEEDS_ALL),
        (metrics.FallOut, True, NEEDS_ALL),
        (functools.partial(functional.bpref, [0], [[0.1, 0.2]]), True, NEEDS_ALL),
        (functools.partial(functional.fall_out, [0], [[0.1, 0.2]]), True, NEEDS_ALL),
    ],
)
def test_bad_flags(make, flag, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(sparse_labels=flag)


def test_a_metric_says_that_it_takes_them():
    class FirstRank(metrics.RankingMetric):
        def compute(self, lists, ranking):
            return ops.max(ranking.take(lists.relevance) / ranking.ranks, axis=1)

    with pytest.raises(ValueError, match="`sparse_labels` should be False"):
        FirstRank(sparse_labels=True)
    FirstRank.takes_sparse_labels = True
    found = FirstRank(sparse_labels=True)([1], [[0.9, 0.1, 0.5]])
    assert float(found) == pytest.approx(1 / 3)


def test_it_is_saved():
    metric = metrics.NDCG(k=3, sparse_labels=True)
    assert metrics.NDCG.from_config(metric.get_config()).sparse_labels


def test_lists_without_targets_weigh_as_items_do():
    """That is 1, unless there are weights."""
    metric = metrics.MeanReciprocalRank(sparse_labels=True, empty_weight="own")
    ids, scores = [[1], [0], [-1]], [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]]
    assert float(metric(ids, scores)) == pytest.approx((1 / 2 + 1 + 0) / (1 + 1 + 1))
    metric.reset_state()
    weighted = metric(ids, scores, sample_weight=[1.0, 1.0, 2.0])
    assert float(weighted) == pytest.approx((1 / 2 + 1 + 2.0 * 0) / (1 + 1 + 2.0))
