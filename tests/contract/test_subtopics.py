"""Metrics of subtopics: labels with an axis of subtopics, and values of ndeval."""

import functools
import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops
from registry import FIRST_CASES
from strategies import LIST_SIZE
from test_code_paths import LISTS, subtopics_batch

import keras_rank
from keras_rank import functional, metrics

ALL = [case for case in FIRST_CASES if case.metric.takes_subtopics]
SUBTOPICS = 3
all_metrics = pytest.mark.parametrize("case", ALL, ids=str)


@pytest.fixture
def batch(rng):
    """Returns labels, scores and weights with ties and padding."""
    return subtopics_batch(rng, LIST_SIZE, 4)


# Values of ndeval.

NDEVAL_FUNCTIONS = {
    "alpha-nDCG": (functional.alpha_ndcg, {}),
    "alpha-DCG": (functional.alpha_dcg, {"normalizer": "maximum"}),
    "ERR-IA": (functional.expected_reciprocal_rank_ia, {"normalizer": "maximum"}),
    "P-IA": (functional.precision_ia, {"denominator": "k"}),
    "strec": (functional.subtopic_recall, {}),
}


@pytest.mark.slow
def test_values_equal_those_of_ndeval(rng):
    """Of equal gains, the ideal order of ndeval takes the item with the last name."""
    pyndeval = pytest.importorskip("pyndeval")
    lists, items, subtopics = 200, 24, 5
    labels = rng.random((lists, items, subtopics)) < rng.uniform(
        0.02, 0.5, size=(lists, 1, subtopics)
    )
    scores = rng.permuted(np.tile(np.arange(items) / items, (lists, 1)), axis=1)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    names = [f"{number:02}" for number in reversed(range(items))]
    judgments = [
        (str(q), str(t), names[i], int(labels[q, i, t]))
        for q, i, t in np.ndindex(labels.shape)
    ]
    run = [
        (str(q), names[i], float(scores[q, i]))
        for q, i in np.ndindex(scores.shape)
        if scores[q, i] > -np.inf
    ]
    measures = [f"{name}@{k}" for name in NDEVAL_FUNCTIONS for k in (5, 10, 20)]
    expected = pyndeval.ndeval(judgments, run, measures=measures)
    for name, (function, arguments) in NDEVAL_FUNCTIONS.items():
        for k in (5, 10, 20):
            actual = ops.convert_to_numpy(function(labels, scores, k=k, **arguments))
            ndeval_values = [expected[str(q)][f"{name}@{k}"] for q in range(lists)]
            np.testing.assert_allclose(
                actual, ndeval_values, atol=1e-6, err_msg=f"{name}@{k}"
            )


# Shapes.


@pytest.mark.compiles_long
@all_metrics
def test_a_single_subtopic_may_have_an_axis(case, batch):
    """The values equal those of labels without the axis, which other tests check."""
    labels, *others = batch
    values = (case.values(x, *others, k=3) for x in (labels[:, :, 0], labels[:, :, :1]))
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, values))


@all_metrics
def test_a_single_list_equals_a_batch_of_one(case, batch):
    expected = case.values(*(x[:1] for x in batch), k=3)
    actual = case.values(*(x[0] for x in batch), k=3)
    assert float(actual[0]) == float(expected[0])


def test_a_mask_is_folded_into_labels(batch):
    labels, _, _ = batch
    mask = labels[:, :, 0] >= 0
    folded = keras_rank.utils.mask_labels(np.abs(labels), mask)
    np.testing.assert_array_equal(ops.convert_to_numpy(folded), labels)


@pytest.mark.compiles_long
@all_metrics
def test_padded_subtopics_change_no_value(case, batch):
    """Queries with few subtopics are padded to the largest number of subtopics."""
    labels, *others = batch
    expected = ops.convert_to_numpy(case.values(labels, *others, k=3))
    for fill in (0.0, -1.0):
        padded = np.pad(labels, [(0, 0), (0, 0), (0, 2)], constant_values=fill)
        padded = np.where(labels[:, :, :1] < 0, -1.0, padded)
        actual = ops.convert_to_numpy(case.values(padded, *others, k=3))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.parametrize("as_rows", [np.ndarray.tolist, np.asarray])
def test_lists_of_uneven_length(batch, as_rows):
    # Scores are rounded, as subnormals of float32 are not zero as Python floats.
    labels, scores, weights = batch[0], np.round(batch[1]), np.maximum(batch[2], 0.5)
    sizes = 1 + np.arange(LISTS) % LIST_SIZE
    y_true, y_pred, sample_weight = (
        [as_rows(row[:size]) for row, size in zip(x, sizes, strict=True)]
        for x in (labels, scores, weights)
    )
    masked = {"labels": y_true, "mask": [[True] * size for size in sizes]}
    labels[np.arange(LIST_SIZE) >= sizes[:, None]] = -1.0
    for case in ALL:
        options = {"k": 3, "shuffle_ties": "average"}
        expected = case.values(labels, scores, weights, **options)
        for inputs in (y_true, masked):
            actual = case.function(
                inputs, y_pred, sample_weight=sample_weight, **options
            )
            np.testing.assert_array_equal(
                *map(ops.convert_to_numpy, (actual, expected))
            )


@pytest.mark.compiles_long
def test_empty_lists_do_not_count():
    for lists in (0, 2):
        for case in ALL:
            empty = np.zeros((lists, 0, SUBTOPICS)), np.zeros((lists, 0))
            values = ops.convert_to_numpy(case.values(*empty))
            assert np.isnan(values).tolist() == [True] * lists
            assert float(case.make()(*empty)) == 0.0


@pytest.mark.compiles_long
def test_labels_below_0_for_some_subtopics_are_not_relevant():
    labels = [[[1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]]
    equivalent = [[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]]
    scores = [[0.1, 0.2, 0.3]]
    for threshold in (1.0, None, 0.5):
        options = {"relevance_threshold": threshold}
        for case in ALL:
            actual, expected = (
                case.values(y, scores, **options) for y in (labels, equivalent)
            )
            assert float(actual[0]) == float(expected[0])
    # Labels of 0 are relevant if the threshold is 0 or less.
    (value,) = functional.precision_ia(labels, scores, relevance_threshold=-3.0)
    assert float(value) == 0.5


def test_nan_for_a_subtopic_is_padding():
    labels = [[[1.0, np.nan], [0.0, 1.0]]]
    (value,) = functional.subtopic_recall(labels, [[0.5, 0.1]], k=1)
    assert float(value) == 1.0


class Graded(metrics.AlphaDCG):
    def relevance(self, lists):
        return lists.labels


SCORES = np.float32([[0.1, 0.2, 0.3], [0.5, 0.2, 0.1]])
LABELS, UNEVEN = np.ones((2, 3, 2)), [[0.1, 0.2], [0.3]]
WITHOUT_SUBTOPICS = (
    functional.ndcg,
    metrics.NDCG(),
    metrics.RankingMetrics(["ndcg", "err_ia"]),
)
WITH_SUBTOPICS = (functional.alpha_dcg, metrics.AlphaNDCG(), functional.rank)
SHAPES = [
    (np.ones((2, 3, 0)), SCORES, "of one subtopic or more"),
    (np.ones((2, 4, 2)), SCORES, r"y_true.shape=\(2, 4, 2\), y_pred"),
    (np.ones((2, 3, 4, 2)), SCORES, "should have the shape"),
    (np.ones((2, 4)), SCORES, "should have the same shape as `y_true`"),
    ([[[1, 0], [0, 1]], [[1, 1, 0]]], UNEVEN, "0 pads the subtopics of a list. Rec"),
    ([[[1, 0], [0]], [[1, 1]]], UNEVEN, "as many numbers for each item of a list. Rec"),
]
ERRORS = [
    *(
        (functools.partial(call, *inputs), message)
        for call in WITH_SUBTOPICS
        for *inputs, message in SHAPES
    ),
    # Metrics that call one label for each item.
    *(
        (functools.partial(call, LABELS, SCORES), "have one number for each item")
        for call in WITHOUT_SUBTOPICS
    ),
    *(
        (
            lambda call=call: call(functional.rank(LABELS, SCORES, shuffle_ties=False)),
            "should get one label for each item",
        )
        for call in (functional.ndcg, metrics.NDCG(shuffle_ties=False))
    ),
    # Arguments.
    (lambda: Graded(k=2)(LABELS, SCORES), "`relevance` should not be overridden"),
    (
        lambda: metrics.PrecisionIA(subtopic_weights=[1.0, 2.0, 3.0])(LABELS, SCORES),
        "a number for each subtopic of `y_true`, 2",
    ),
    *(
        (functools.partial(metric, **arguments), message)
        for metric, arguments, message in (
            (metrics.AlphaNDCG, {"alpha": 1.5}, "`alpha` should be a number from 0 to"),
            (metrics.AlphaDCG, {"normalizer": "total"}, "`normalizer` should be one"),
            (metrics.AlphaDCG, {"normalizer": "maximum", "k": 2**21}, "`k` should be"),
            (metrics.PrecisionIA, {"subtopic_weights": [0, 0]}, "`subtopic_weights`"),
            (metrics.PrecisionIA, {"subtopic_weights": [1, -1]}, "`subtopic_weights`"),
            (metrics.PrecisionIA, {"subtopic_weights": "ab"}, "`subtopic_weights`"),
            (metrics.PrecisionIA, {"denominator": "all"}, "`denominator` should be"),
            (metrics.SubtopicRecall, {"sparse_labels": True}, "`sparse_labels` should"),
        )
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_wrong_calls_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# The greedy order.


@pytest.mark.compiles_long
def test_the_greedy_ideal_may_miss_the_maximum():
    """The greedy order starts with the largest gain, which leaves less to gain next."""
    labels = [[[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]]]
    best = max(
        float(functional.alpha_ndcg(labels, [scores], k=2, alpha=1.0)[0])
        for scores in itertools.permutations([0.1, 0.2, 0.3])
    )
    assert best > 1.0


@pytest.mark.compiles_long
def test_rounding_does_not_exceed_1(rng):
    """Values above 1 are those of orders that are much better than the greedy order."""
    for _ in range(20):
        labels = rng.integers(0, 2, size=(512, 2, 5))
        scores = rng.random((512, 2))
        weights = rng.choice([0.3, 0.7, 1.1], size=(512, 2))
        values = functional.alpha_ndcg(labels, scores, sample_weight=weights, alpha=0.3)
        values = ops.convert_to_numpy(values)
        assert not ((values > 1.0) & (values < 1.001)).any()


@pytest.mark.parametrize("alpha", [0.7, 0.9])
def test_the_ideal_takes_the_first_of_equal_gains(alpha):
    """The first two items gain 3 each. The third one gains 2 after the second item."""
    rows = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1]], "float32")
    scores, left = [[0.9, -np.inf, -np.inf]], 1 - alpha
    for order, gain in (([0, 1, 2], 1 + 2 * left), ([1, 0, 2], 2.0)):
        ideal = 3 + gain / math.log2(3)
        (value,) = functional.alpha_ndcg(rows[None, order], scores, alpha=alpha, k=2)
        assert float(value) == pytest.approx(3 / ideal, rel=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "numpy", reason="a fault of OpenBLAS")
def test_warnings_of_openblas_are_suppressed(monkeypatch):
    multiply = np.matmul

    def multiply_and_warn(x, y):
        np.float32(np.inf) * np.float32(0.0)
        return multiply(x, y)

    with pytest.warns(RuntimeWarning, match="invalid value"):
        multiply_and_warn(np.eye(2), np.eye(2))
    monkeypatch.setattr(np, "matmul", multiply_and_warn)
    (value,) = functional.alpha_ndcg([[[1, 0], [0, 1]]], [[0.9, 0.1]])
    assert value == 1.0


# Models.


def make_model(rng, kind, size=LIST_SIZE):
    inputs = keras.Input((size, 2))
    outputs = keras.layers.Reshape((size or -1,))(keras.layers.Dense(1)(inputs))
    model = kind(inputs, outputs)

    def loss(y_true, y_pred):
        return ops.mean(ops.square(ops.max(y_true, axis=-1) - y_pred), axis=-1)

    members = [case.make(k=3, shuffle_ties=False) for case in ALL]
    model.compile("sgd", loss, metrics=members)
    return model


def assert_logs_match(logs, labels, scores):
    for case in ALL:
        metric = case.make(k=3, shuffle_ties=False)
        assert logs[metric.name] == pytest.approx(float(metric(labels, scores)), 2e-6)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("kind", [keras.Model, keras_rank.RankingModel])
def test_fit_and_evaluate(kind, batch, rng):
    """`RankingModel` also accepts a mask."""
    y = labels = batch[0]
    if kind is keras_rank.RankingModel:
        y = {"labels": np.abs(labels), "mask": labels[:, :, 0] >= 0}
    x = rng.normal(size=(LISTS, LIST_SIZE, 2)).astype("float32")
    model = make_model(rng, kind)
    model.fit(x, y, batch_size=10, verbose=0)
    logs = model.evaluate(x, y, batch_size=10, return_dict=True, verbose=0)
    assert_logs_match(logs, labels, model.predict(x, verbose=0))


@pytest.mark.compiles_long
@pytest.mark.trains
def test_a_ranking_model_takes_lists_of_uneven_length(rng):
    x = [rng.normal(size=(n, 2)).astype("float32") for n in (3, 1, 4, 2)]
    y = [(rng.random((len(row), SUBTOPICS)) < 0.5).astype("float32") for row in x]
    rows = [np.empty(len(x), object), np.empty(len(x), object)]
    rows[0][:], rows[1][:] = x, y
    model = make_model(rng, keras_rank.RankingModel, size=None)
    logs = model.evaluate(*rows, batch_size=2, return_dict=True, verbose=0)
    assert_logs_match(logs, y, [model.predict(row[None], verbose=0)[0] for row in x])
