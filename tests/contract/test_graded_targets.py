"""Graded targets in a catalog: values equal those of labels for every item."""

import re

import numpy as np
import pytest
from arrays import compute_values
from hypothesis import given
from hypothesis import strategies as st
from recording import results
from registry import IS_SLOW
from strategies import ties
from targets import SPARSE_CASES
from test_catalogue import ITEMS, QUERIES, score_matrix, tasks

from keras_rank import catalogue, functional, metrics

EVERY_K = [None, 4] if IS_SLOW else [None, 1, 4]

FUNCTIONS = [(case.function, case.arguments) for case in SPARSE_CASES]
FUNCTIONS += [
    (functional.ndcg, {"gain_fn": "linear"}),
    (functional.ndcg, {"relevance_threshold": 2.0}),
    (functional.recall, {"relevance_threshold": None}),
    (functional.expected_reciprocal_rank, {"relevance_threshold": 2.0}),
    (functional.pairwise_accuracy, {"relevance_threshold": 2.0, "tied_value": 0.0}),
    (functional.average_precision, {"relevance_threshold": 3.0}),
    (functional.recall, {"relevance_threshold": 3.0}),
    (functional.reciprocal_rank, {"relevance_threshold": 3.0}),
]


# `exclude` without any excluded id.
NO_EXCLUDED = np.full((QUERIES, 1), -1)


@st.composite
def graded_tasks(draw):
    """Draws targets with the labels of their items, some of which are masked."""
    ids, queries, candidates, _, weights = draw(tasks())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.integers(-1, 5, size=ITEMS).astype("float32")
    labels[rng.random(ITEMS) < 0.1] = np.nan
    targets = {"ids": ids, "labels": labels[ids], "mask": rng.random(ids.shape) < 0.9}
    return targets, queries, candidates, weights


def dense(targets):
    labels = np.zeros((QUERIES, ITEMS), "float32")
    for row, *parts in zip(labels, *targets.values(), strict=True):
        for item, label, is_there in zip(*parts, strict=True):
            if item >= 0 and is_there and label > 0:
                row[item] = label
    return labels


@pytest.mark.compiles_long
@given(task=graded_tasks(), shuffle_ties=ties, k=st.sampled_from(EVERY_K))
def test_functions_equal_those_of_dense_labels(task, shuffle_ties, k):
    targets, queries, candidates, weights = task
    scores = score_matrix(queries, candidates, NO_EXCLUDED)
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    arguments["sample_weight"] = weights
    expected = functional.rank(dense(targets), scores, **arguments)
    sparse = functional.rank(targets, scores, sparse_labels=True, **arguments)
    shards = catalogue.Shards([candidates[:7], candidates[7:]])
    counted = [
        catalogue.rank(targets, queries, each, block_size=5, **arguments)
        for each in (candidates, shards)
    ]
    for function, more in FUNCTIONS:
        if function is functional.pairwise_accuracy and k is not None:
            continue
        needs_retrieved = "retrieved" in more.values()
        for order in [sparse] if needs_retrieved else [sparse, *counted]:
            pair = (compute_values(function, x, k=k, **more) for x in (order, expected))
            which = f"{function.__name__}, {more}"
            np.testing.assert_allclose(*pair, rtol=2e-6, atol=4e-6, err_msg=which)


# Drawn embeddings are small integers, so that many are equal.
@pytest.mark.compiles_long
@pytest.mark.filterwarnings("ignore:`candidates` should hold each item once")
@pytest.mark.programs
@given(task=graded_tasks(), shuffle_ties=ties)
def test_metrics_equal_those_of_dense_labels(task, shuffle_ties):
    targets, queries, candidates, weights = task
    labels, scores = dense(targets), score_matrix(queries, candidates, NO_EXCLUDED)

    def group(**more):
        more |= {"shuffle_ties": shuffle_ties, "seed": 1}
        with_cutoff = (
            metrics.NDCG(k=4, **more),
            metrics.ExpectedReciprocalRank(k=4, **more),
        )
        average = metrics.MeanAveragePrecision(relevance_threshold=2.0, **more)
        pairs = metrics.PairwiseAccuracy(**more)
        return metrics.RankingMetrics([*with_cutoff, average, pairs])

    sparse, expected = group(sparse_labels=True), group()
    for part in (slice(0, 4), slice(4, QUERIES)):
        some = {name: x[part] for name, x in targets.items()}
        sparse.update_state(some, scores[part], weights[part])
        expected.update_state(labels[part], scores[part], weights[part])
    options = {"sample_weight": weights, "verbose": 0}
    counted = catalogue.evaluate(targets, queries, candidates, group(), **options)
    dense_labels = pytest.approx(results(expected), abs=4e-6)
    assert results(sparse) == dense_labels
    if shuffle_ties is not True:
        assert counted == dense_labels


SCORES = np.float32([[0.1, 0.9, 0.4, 0.3], [0.5, 0.2, 0.8, 0.1]])


def graded(ids, labels, function=functional.ndcg, **arguments):
    targets = {"ids": ids, "labels": labels}
    return function(targets, SCORES, sparse_labels=True, **arguments)


IDS, LABELS = [[1, 2], [0, -1]], [[3, 1], [2, -1]]
DENSE = [[0, 3, 1, 0], [2, 0, 0, 0]]


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    ("ids", "labels", "dense_labels", "arguments"),
    [
        # A gain function of a user is also called with a label of 0.
        (IDS, LABELS, DENSE, {"gain_fn": lambda labels: labels**2}),
        # Lists of uneven length.
        ([[1, 2], [0]], [[3, 1], [2]], DENSE, {}),
        # An id that is repeated with an equal label.
        ([[1, 1, 2], [0, 0, -1]], [[3, 3, 1], [2, 2, 1]], DENSE, {}),
        # Ids of no candidate with labels that have no gain.
        ([[1, 99], [0, 98]], [[3, 0], [2, -1]], [[0, 3, 0, 0], [2, 0, 0, 0]], {}),
    ],
)
def test_ids_and_labels_of_any_form(ids, labels, dense_labels, arguments):
    actual = compute_values(graded, ids, labels, **arguments)
    expected = compute_values(functional.ndcg, dense_labels, SCORES, **arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_relevant_item_that_is_no_candidate():
    """Such an item is not retrieved, but counts in the ideal and as relevant."""
    targets = [[1, -2, -2], [0, -1, -2]], [[3, 2, 1], [2, 4, 0]]
    actual = compute_values(graded, *targets, gain_fn="linear")
    ideal = 3 + 2 / np.log2(3) + 1 / np.log2(4)
    np.testing.assert_allclose(actual, [3 / ideal, 1 / np.log2(3)], rtol=1e-6)
    recall = compute_values(graded, *targets, functional.recall, k=2)
    np.testing.assert_allclose(recall, [1 / 3, 1.0], rtol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
@pytest.mark.parametrize("k", [None, 3, 10])
def test_more_relevant_items_than_candidates(k, shuffle_ties):
    """The ideal contains relevant items that are no candidates, up to the cutoff."""
    targets = {"ids": [[0, -2, -2, -2]], "labels": [[1, 1, 1, 1]]}
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    embeddings = np.array([[2.0], [1.0]])
    ranked = catalogue.rank(targets, np.ones((1, 1)), embeddings, **arguments)
    most = min(k or 4, 4)
    best = sum(1 / np.log2(rank + 1) for rank in range(1, most + 1))
    for inputs, options in (
        ((ranked,), {"k": k}),
        ((targets, embeddings.T), {"sparse_labels": True, **arguments}),
    ):
        ndcg = compute_values(functional.ndcg, *inputs, **options)
        np.testing.assert_allclose(ndcg, [1 / best], rtol=1e-6)
        precision = compute_values(functional.r_precision, *inputs, **options)
        np.testing.assert_allclose(precision, [1 / most], rtol=1e-6)


def recall_of_ranked(threshold):
    ranked = catalogue.rank([1], SCORES[:1], np.eye(4))
    metrics.RecallAtK(relevance_threshold=threshold)(ranked)


def ndcg_with_positive_gains(**arguments):
    return graded([1, 0], [3, 1], gain_fn=lambda labels: labels + 1.0, **arguments)


BELOW_0 = {"relevance_threshold": -1.0}
# Arguments with which every item would be relevant, or have a gain.
THRESHOLD = "`relevance_threshold` should be above 0 where only some items have "
THRESHOLD += "labels, as all others have the label 0. Received: relevance_threshold="
GAIN = "`gain_fn` should return 0 for a label of 0 where only some items have labels, "
GAIN += "as all others have the label 0. Received: a function that returns more"
TWO_LABELS = "`labels` should be the same where an id is given twice in a list. "
TWO_LABELS += "Received: an id with two labels"
ERRORS = [
    (lambda: graded([[1, 1], [0, -1]], [[3, 1], [1, 1]]), TWO_LABELS),
    (lambda: graded(IDS, [[3], [1]]), "`labels` should have the same shape"),
    (lambda: graded([[1, 2], [0]], [[3], [1]]), "`labels` should have as many items"),
    (ndcg_with_positive_gains, GAIN),
    (lambda: ndcg_with_positive_gains(relevance_threshold=0.0), GAIN),
    (lambda: recall_of_ranked(0.0), f"{THRESHOLD}0.0"),
    (lambda: graded(IDS, LABELS, functional.recall, **BELOW_0), f"{THRESHOLD}-1.0"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_wrong_calls_are_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
