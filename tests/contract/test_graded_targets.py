"""Graded targets in a whole catalogue: the numbers of labels for every item."""

import functools
import re

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import CASES_HERE
from strategies import BATCH, ties

from keras_rank import catalogue, functional, metrics
from keras_rank.callbacks import CatalogueEvaluation

BACKEND = keras.backend.backend()
ITEMS, TARGETS, FEATURES = 12, 5, 3
EVERY_K = [None, 1, 4] if BACKEND in ("numpy", "torch") else [None, 4]

# How the functions are called, beside their defaults.
FUNCTIONS = {
    str(case): functools.partial(case.function, **case.arguments)
    for case in CASES_HERE
    if case.metric.takes_sparse_labels
}
BINARY = (functional.average_precision, functional.recall, functional.reciprocal_rank)
FUNCTIONS |= {
    "linear": functools.partial(functional.ndcg, gain_fn="linear"),
    "threshold of 2": functools.partial(functional.ndcg, relevance_threshold=2.0),
    "any label": functools.partial(functional.recall, relevance_threshold=None),
    "err from 2": functools.partial(
        functional.expected_reciprocal_rank, relevance_threshold=2.0
    ),
    "pairs from 2": functools.partial(
        functional.pairwise_accuracy, relevance_threshold=2.0, tied_value=0.0
    ),
} | {f"{f.__name__}, 3": functools.partial(f, relevance_threshold=3.0) for f in BINARY}


@st.composite
def tasks(draw):
    """Ids, labels, masks, weights and embeddings whose products often tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = np.stack([rng.permutation(ITEMS)[:TARGETS] for _ in range(BATCH)])
    ids[rng.random(ids.shape) < 0.1] = -1
    labels = rng.integers(-1, 5, size=ids.shape).astype("float32")
    labels[rng.random(ids.shape) < 0.1] = np.nan
    mask = rng.random(ids.shape) < 0.9
    high = draw(st.integers(0, 3))
    queries = rng.integers(-high, high + 1, (BATCH, FEATURES)).astype("float32")
    candidates = rng.integers(-1, 2, (ITEMS, FEATURES)).astype("float32")
    candidates[rng.random(ITEMS) < rng.choice([0.0, 0.2])] = np.nan
    weights = rng.choice([0.0, 0.5, 2.0], size=BATCH).astype("float32")
    return {"ids": ids, "labels": labels, "mask": mask}, queries, candidates, weights


def dense(targets):
    labels = np.zeros((BATCH, ITEMS), "float32")
    parts = (targets[name].tolist() for name in ("ids", "labels", "mask"))
    for row, *items in zip(labels, *parts, strict=True):
        for item, label, is_there in zip(*items, strict=True):
            if item >= 0 and is_there and label > 0:
                row[item] = label
    return labels


def products(queries, candidates):
    scores = np.nansum(queries[:, None, :] * candidates[None], axis=2)
    scores[:, np.isnan(candidates).any(axis=1)] = np.nan
    return scores.astype("float32")


@given(task=tasks(), shuffle_ties=ties, k=st.sampled_from(EVERY_K))
def test_the_numbers_of_labels_for_every_item(task, shuffle_ties, k):
    targets, queries, candidates, weights = task
    labels, scores = dense(targets), products(queries, candidates)
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    arguments["sample_weight"] = weights
    expected = functional.rank(labels, scores, **arguments)
    orders = {
        "sparse": functional.rank(targets, scores, sparse_labels=True, **arguments),
        "counted": catalogue.rank(
            targets, queries, candidates, block_size=5, **arguments
        ),
        "shards": catalogue.rank(
            targets,
            queries,
            catalogue.Shards([candidates[:7], candidates[7:]]),
            block_size=5,
            **arguments,
        ),
    }
    for name, function in FUNCTIONS.items():
        is_of_pairs = function.func is functional.pairwise_accuracy
        if is_of_pairs and k is not None:
            continue
        for way, order in orders.items():
            counts_retrieved = "retrieved" in function.keywords.values()
            if way != "sparse" and counts_retrieved:
                continue
            np.testing.assert_allclose(
                *(
                    ops.convert_to_numpy(function(each, k=k))
                    for each in (order, expected)
                ),
                rtol=2e-6,
                atol=4e-6,
                err_msg=f"{name}, {way}",
            )


# Of small whole numbers, many are the same.
@pytest.mark.filterwarnings("ignore:`candidates` should hold each item once")
@pytest.mark.programs
@given(task=tasks(), shuffle_ties=ties)
def test_metrics_and_groups(task, shuffle_ties):
    targets, queries, candidates, weights = task
    labels, scores = dense(targets), products(queries, candidates)
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}

    def group(**more):
        return metrics.RankingMetrics(
            [
                metrics.NDCG(k=4, **arguments, **more),
                metrics.ExpectedReciprocalRank(k=4, **arguments, **more),
                metrics.PairwiseAccuracy(**arguments, **more),
                metrics.MeanAveragePrecision(
                    relevance_threshold=2.0, **arguments, **more
                ),
            ]
        )

    sparse, expected = group(sparse_labels=True), group()
    for part in (slice(0, 4), slice(4, BATCH)):
        some = {name: x[part] for name, x in targets.items()}
        sparse.update_state(some, scores[part], weights[part])
        expected.update_state(labels[part], scores[part], weights[part])
    counted = catalogue.evaluate(
        targets, queries, candidates, group(), sample_weight=weights, verbose=0
    )
    for name, value in expected.result().items():
        assert float(sparse.result()[name]) == pytest.approx(float(value), abs=4e-6)
        if shuffle_ties != True:  # noqa: E712, it may be "average"
            assert counted[name] == pytest.approx(float(value), abs=4e-6)


SCORES = np.float32([[0.1, 0.9, 0.4, 0.3], [0.5, 0.2, 0.8, 0.1]])


def graded(ids, labels, function=functional.ndcg, **arguments):
    targets = {"ids": ids, "labels": labels}
    return function(targets, SCORES, sparse_labels=True, **arguments)


IDS, LABELS = [[1, 2], [0, -1]], [[3, 1], [2, -1]]
DENSE = [[0, 3, 1, 0], [2, 0, 0, 0]]
SQUARES = {"gain_fn": lambda labels: labels**2}
SAME = {
    "lists of uneven length": (
        lambda: graded([[1, 2], [0]], [[3, 1], [2]]),
        lambda: functional.ndcg(DENSE, SCORES),
    ),
    "ids that are worth nothing, and no candidates": (
        lambda: graded([[1, 99], [0, 98]], [[3, 0], [2, -1]]),
        lambda: functional.ndcg([1, 0], SCORES, sparse_labels=True),
    ),
    "an id that is given twice with one label": (
        lambda: graded([[1, 1, 2], [0, 0, -1]], [[3, 3, 1], [1, 1, 1]]),
        lambda: graded(IDS, [[3, 1], [1, 1]]),
    ),
    "a gain of a user": (
        lambda: graded(IDS, LABELS, **SQUARES),
        lambda: functional.ndcg(DENSE, SCORES, **SQUARES),
    ),
}


@pytest.mark.parametrize(("found", "expected"), SAME.values(), ids=SAME)
def test_the_same_numbers(found, expected):
    found, expected = (ops.convert_to_numpy(values()) for values in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_relevant_item_that_is_no_candidate():
    """It is never found, and counts in the ideal and among all that are relevant."""
    targets = [[1, -2, -2], [0, -1, -2]], [[3, 2, 1], [2, 4, 0]]
    found = ops.convert_to_numpy(graded(*targets, gain_fn="linear"))
    ideal = 3 + 2 / np.log2(3) + 1 / np.log2(4)
    np.testing.assert_allclose(found, [3 / ideal, 1 / np.log2(3)], rtol=1e-6)
    recall = graded(*targets, functional.recall, k=2)
    np.testing.assert_allclose(ops.convert_to_numpy(recall), [1 / 3, 1.0], rtol=1e-6)


@pytest.mark.parametrize("shuffle_ties", [True, "average"])
@pytest.mark.parametrize("k", [None, 3, 10])
def test_more_relevant_items_than_candidates(k, shuffle_ties):
    """The ideal has those too that are no candidates, up to the cutoff."""
    targets = {"ids": [[0, -2, -2, -2]], "labels": [[1, 1, 1, 1]]}
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    embeddings = np.array([[2.0], [1.0]])
    ranked = catalogue.rank(targets, np.ones((1, 1)), embeddings, **arguments)
    best = sum(1 / np.log2(rank + 1) for rank in range(1, min(k or 4, 4) + 1))
    for inputs, options in (
        ((ranked,), {"k": k}),
        ((targets, embeddings.T), {"sparse_labels": True, **arguments}),
    ):
        ndcg = functional.ndcg(*inputs, **options)
        np.testing.assert_allclose(ops.convert_to_numpy(ndcg), [1 / best], rtol=1e-6)
        found = functional.r_precision(*inputs, **options)
        found = ops.convert_to_numpy(found)
        np.testing.assert_allclose(found, [1 / min(k or 4, 4)], rtol=1e-6)


class Identity:
    """A model that embeds what is embedded."""

    def predict(self, x, batch_size=None, verbose=0):
        return x


def test_the_callback_takes_them():
    targets = {"ids": IDS, "labels": LABELS}
    callback = CatalogueEvaluation(
        SCORES, targets, np.eye(4), ["ndcg@10"], query_model=Identity()
    )
    logs = {"loss": 0.1}
    callback.on_train_begin()
    callback.on_epoch_end(0, logs)
    expected = ops.convert_to_numpy(graded(IDS, LABELS, k=10)).mean()
    (name,) = set(logs) - {"loss"}
    assert logs[name] == pytest.approx(float(expected), rel=1e-6)


def recall_of_ranked(threshold):
    metric = metrics.RecallAtK(relevance_threshold=threshold)
    metric.update_state(catalogue.rank([1], SCORES[:1], np.eye(4)))


def gain_of_all(**arguments):
    return graded([1, 0], [3, 1], gain_fn=lambda labels: labels + 1.0, **arguments)


# Every item would be relevant, or gain something.
THRESHOLD = (
    "`relevance_threshold` should be above 0 where only some items have labels, as "
    "all others have the label 0. Received: relevance_threshold="
)
GAIN = (
    "`gain_fn` should return 0 for a label of 0 where only some items have labels, "
    "as all others have the label 0. Received: a function that returns more"
)
ERRORS = [
    (
        lambda: graded([[1, 1], [0, -1]], [[3, 1], [1, 1]]),
        "`labels` should be the same where an id is given twice in a list. "
        "Received: an id with two labels",
    ),
    (lambda: graded(IDS, [[3], [1]]), "`labels` should have the same shape"),
    (lambda: graded([[1, 2], [0]], [[3], [1]]), "`labels` should have as many items"),
    (
        lambda: functional.ndcg(
            {"ids": [1], "grades": [3]}, SCORES, sparse_labels=True
        ),
        "of which ['grades'] are unknown",
    ),
    (lambda: graded([1, 4], [3, 1]), "ids below the number of items, 4"),
    (gain_of_all, GAIN),
    (lambda: gain_of_all(relevance_threshold=0.0), GAIN),
    (lambda: recall_of_ranked(0.0), THRESHOLD + "0.0"),
    (
        lambda: graded([1, 0], [3, 1], functional.recall, relevance_threshold=-1.0),
        THRESHOLD + "-1.0",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
