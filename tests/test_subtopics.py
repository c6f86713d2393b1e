"""Metrics of subtopics: the numbers of their peers, and labels of three axes."""

import itertools
import math

import compiled
import keras
import numpy as np
import pytest
from keras import ops
from registry import FIRST_CASES, IS_SLOW, OF_SUBTOPICS
from strategies import BATCH, LIST_SIZE

import keras_rank
from keras_rank import functional, metrics

ALL = [case for case in FIRST_CASES if case.metric.takes_subtopics]
SUBTOPICS = 3

trains = pytest.mark.skipif(
    keras.backend.backend() == "numpy", reason="Keras does not train on NumPy"
)


def batch_of(rng, lists=BATCH, items=LIST_SIZE):
    """Labels, scores and weights with ties and padding."""
    labels = (rng.random((lists, items, SUBTOPICS)) < 0.4).astype("float32")
    labels[rng.random((lists, items)) < 0.2] = -1.0
    scores = rng.integers(0, 4, size=(lists, items)).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.5], size=(lists, items)).astype("float32")
    return labels, scores, weights


# The numbers of ndeval.

OF_NDEVAL = {
    "alpha-nDCG": (functional.alpha_ndcg, {}),
    "alpha-DCG": (functional.alpha_dcg, {"normalizer": "maximum"}),
    "ERR-IA": (functional.expected_reciprocal_rank_ia, {"normalizer": "maximum"}),
    "P-IA": (functional.precision_ia, {"denominator": "k"}),
    "strec": (functional.subtopic_recall, {}),
}


@pytest.mark.slow
def test_ndeval_on_random_judgments(rng):
    """Of items equal in the ideal order, ndeval takes the last by name."""
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
    measures = [f"{name}@{k}" for name in OF_NDEVAL for k in (5, 10, 20)]
    expected = pyndeval.ndeval(judgments, run, measures=measures)
    for name, (function, arguments) in OF_NDEVAL.items():
        for k in (5, 10, 20):
            found = ops.convert_to_numpy(function(labels, scores, k=k, **arguments))
            theirs = [expected[str(q)][f"{name}@{k}"] for q in range(lists)]
            np.testing.assert_allclose(found, theirs, atol=1e-6, err_msg=f"{name}@{k}")


# One subtopic.


@pytest.mark.parametrize("shuffle_ties", [False, "average"])
def test_those_of_one_subtopic(rng, shuffle_ties):
    """What they become, if there is nothing but relevant or not."""
    labels, scores, _ = batch_of(rng)
    labels = labels[:, :, 0]
    how = {"k": 3, "shuffle_ties": shuffle_ties}
    for of_subtopics, function, arguments in (
        (functional.precision_ia, functional.precision, {}),
        (functional.subtopic_recall, functional.hit_rate, {}),
        (
            functional.expected_reciprocal_rank_ia,
            functional.expected_reciprocal_rank,
            {"max_grade": 1},
        ),
    ):
        expected = ops.convert_to_numpy(function(labels, scores, **how, **arguments))
        for given in (labels, labels[:, :, None]):
            found = ops.convert_to_numpy(of_subtopics(given, scores, **how))
            np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


# Shapes.


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_single_list_is_one_of_a_batch(case, rng):
    labels, scores, weights = batch_of(rng, lists=1)
    expected = case.values(labels, scores, weights, k=3)
    found = case.values(labels[0], scores[0], weights[0], k=3)
    assert float(found[0]) == float(expected[0])


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_mask_is_padding(case, rng):
    labels, scores, weights = batch_of(rng)
    mask = labels[:, :, 0] >= 0
    masked = {"labels": np.abs(labels), "mask": mask}
    for arguments in ({"shuffle_ties": False}, {"shuffle_ties": "average"}):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(case.values(masked, scores, weights, **arguments)),
            ops.convert_to_numpy(case.values(labels, scores, weights, **arguments)),
        )
    folded = keras_rank.utils.mask_labels(np.abs(labels), mask)
    np.testing.assert_array_equal(ops.convert_to_numpy(folded), labels)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_subtopics_of_a_padded_axis_change_nothing(case, rng):
    """Queries have different numbers of them."""
    labels, scores, weights = batch_of(rng)
    for fill in (0.0, -1.0):
        padded = np.pad(labels, [(0, 0), (0, 0), (0, 2)], constant_values=fill)
        padded = np.where(labels[:, :, :1] < 0, -1.0, padded)
        np.testing.assert_allclose(
            ops.convert_to_numpy(case.values(padded, scores, weights, k=3)),
            ops.convert_to_numpy(case.values(labels, scores, weights, k=3)),
            rtol=1e-6,
        )


@pytest.mark.parametrize("as_rows", [np.ndarray.tolist, np.asarray])
def test_lists_of_uneven_length(rng, as_rows):
    labels, scores, weights = batch_of(rng)
    weights = np.maximum(weights, 0.5)
    sizes = 1 + np.arange(BATCH) % LIST_SIZE
    y_true, y_pred, sample_weight = (
        [as_rows(row[:size]) for row, size in zip(x, sizes, strict=True)]
        for x in (labels, scores, weights)
    )
    masked = {"labels": y_true, "mask": [[True] * size for size in sizes]}
    labels[np.arange(LIST_SIZE) >= sizes[:, None]] = -1.0
    for case in ALL:
        how = {"k": 3, "shuffle_ties": "average"}
        expected = case.values(labels, scores, weights, **how)
        for given in (y_true, masked):
            found = case.function(given, y_pred, sample_weight=sample_weight, **how)
            np.testing.assert_array_equal(*map(ops.convert_to_numpy, (found, expected)))


@pytest.mark.parametrize(
    ("y_true", "message"),
    [
        (
            [[[1, 0], [0, 1]], [[1, 1, 0]]],
            r"lists; 0 pads the subtopics of a list. Rec",
        ),
        (
            [[[1, 0], [0]], [[1, 1]]],
            "as many numbers for each item of a list. Received",
        ),
    ],
)
def test_items_of_uneven_numbers_of_subtopics_are_an_error(y_true, message):
    with pytest.raises(ValueError, match=message):
        functional.alpha_ndcg(y_true, [[0.1, 0.2], [0.3]])


def test_lists_without_items_count_nothing():
    for lists in (0, 2):
        for case in ALL:
            empty = np.zeros((lists, 0, SUBTOPICS)), np.zeros((lists, 0))
            values = ops.convert_to_numpy(case.values(*empty))
            assert np.isnan(values).tolist() == [True] * lists
            assert float(case.make()(*empty)) == 0.0


def test_a_relevance_of_its_own_is_an_error(rng):
    class Graded(metrics.AlphaDCG):
        def relevance(self, lists):
            return lists.labels

    labels, scores, _ = batch_of(rng)
    with pytest.raises(ValueError, match="`relevance` should be left as it is"):
        Graded(k=2)(labels, scores)


def test_labels_below_0_for_some_subtopics_are_not_relevant():
    labels = [[[1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]]
    expected = [[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]]
    scores = [[0.1, 0.2, 0.3]]
    for threshold in (1.0, None, 0.5):
        for case in ALL:
            values = [
                case.values(y, scores, relevance_threshold=threshold)
                for y in (labels, expected)
            ]
            assert float(values[0][0]) == float(values[1][0])
    # As with a threshold of 0 labels of 0 are relevant.
    (value,) = functional.precision_ia(labels, scores, relevance_threshold=-3.0)
    assert float(value) == 0.5


def test_nan_for_a_subtopic_is_padding():
    labels = [[[1.0, np.nan], [0.0, 1.0]]]
    (value,) = functional.subtopic_recall(labels, [[0.5, 0.1]], k=1)
    assert float(value) == 1.0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (np.ones((2, 3, 0)), np.ones((2, 3)), "of one subtopic or more"),
        (np.ones((2, 4, 2)), np.ones((2, 3)), r"y_true.shape=\(2, 4, 2\), y_pred"),
        (np.ones((2, 3, 4, 2)), np.ones((2, 3)), "should have the shape"),
        (np.ones((2, 3)), np.ones((2, 4)), "should have the same shape as `y_true`"),
    ],
)
def test_other_shapes_are_errors(y_true, y_pred, message):
    for call in (functional.alpha_dcg, metrics.AlphaNDCG(), functional.rank):
        with pytest.raises(ValueError, match=message):
            call(y_true, y_pred)


def test_others_take_no_subtopics(rng):
    labels, scores, _ = batch_of(rng)
    ranked = functional.rank(labels, scores, shuffle_ties=False)
    message = "should have one number for each item"
    for call in (
        functional.ndcg,
        metrics.NDCG(),
        metrics.RankingMetrics(["ndcg", "alpha_ndcg"]),
    ):
        with pytest.raises(ValueError, match=message):
            call(labels, scores)
    for metric in (functional.ndcg, metrics.NDCG(shuffle_ties=False)):
        with pytest.raises(ValueError, match="should get one label for each item"):
            metric(ranked)


@pytest.mark.parametrize(
    ("metric", "arguments", "message"),
    [
        (metrics.AlphaNDCG, {"alpha": 1.5}, "`alpha` should be a number from 0 to 1"),
        (metrics.AlphaDCG, {"normalizer": "total"}, "`normalizer` should be one of"),
        (metrics.AlphaDCG, {"normalizer": "maximum", "k": 2**21}, "`k` should be at"),
        (metrics.PrecisionIA, {"subtopic_weights": [0, 0]}, "`subtopic_weights`"),
        (metrics.PrecisionIA, {"subtopic_weights": [1, -1]}, "`subtopic_weights`"),
        (metrics.PrecisionIA, {"subtopic_weights": "ab"}, "`subtopic_weights`"),
        (metrics.PrecisionIA, {"denominator": "all"}, "`denominator` should be one"),
        (metrics.SubtopicRecall, {"sparse_labels": True}, "`sparse_labels` should be"),
    ],
)
def test_other_arguments_are_errors(metric, arguments, message):
    with pytest.raises(ValueError, match=message):
        metric(**arguments)


def test_subtopic_weights_of_another_number_are_an_error(rng):
    labels, scores, _ = batch_of(rng)
    metric = metrics.PrecisionIA(subtopic_weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="a number for each subtopic of `y_true`, 3"):
        metric(labels, scores)


# The greedy order.


def test_the_greedy_order_may_miss_the_best():
    """It takes the item of three subtopics first, and then gains less."""
    labels = [[[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]]]
    best = max(
        float(functional.alpha_ndcg(labels, [scores], k=2, alpha=1.0)[0])
        for scores in itertools.permutations([0.1, 0.2, 0.3])
    )
    assert best > 1.0


@pytest.mark.parametrize("alpha", [0.7, 0.9])
def test_of_equal_gains_the_ideal_takes_the_first(alpha):
    """Either of the first two gains 3, but only after one of them the third gains 2."""
    rows = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1]], "float32")
    left, second = 1 - alpha, 1 / math.log2(3)
    for order, gain in (([0, 1, 2], 1 + 2 * left), ([1, 0, 2], 2.0)):
        ideal = 3 + gain * second
        (value,) = functional.alpha_ndcg(
            rows[None, order], [[0.9, -np.inf, -np.inf]], alpha=alpha, k=2
        )
        assert float(value) == pytest.approx(3 / ideal, rel=1e-6)


# In groups, compiled, in Keras.


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_members_of_a_group_have_the_values_that_they_have_alone(rng, shuffle_ties):
    def members():
        return [
            case.make(k=k, shuffle_ties=shuffle_ties, name=f"{case}{place}@{k}")
            for place, case in enumerate(ALL if IS_SLOW else OF_SUBTOPICS)
            for k in (2, None)
        ]

    group, alone = metrics.RankingMetrics(members(), standard_errors=True), members()
    for batch in (batch_of(rng), batch_of(rng)):
        group.update_state(*batch)
        for member in alone:
            member.update_state(*batch)
    results = group.result()
    for member in alone:
        for name, expected in (
            (member.name, member.result()),
            (f"{member.name}_stderr", member.standard_error()),
        ):
            found = float(results[name])
            assert found == pytest.approx(float(expected), rel=2e-6, abs=2e-6), name


@pytest.mark.programs
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_ranked_lists_and_programs_have_the_same_values(case, rng, shuffle_ties):
    labels, scores, weights = batch_of(rng)
    how = {"k": 3, "shuffle_ties": shuffle_ties, "seed": 1}
    expected = case.values(labels, scores, weights, **how)
    ranked = functional.rank(labels, scores, sample_weight=weights, **how)
    np.testing.assert_allclose(
        ops.convert_to_numpy(case.function(ranked, k=3)),
        ops.convert_to_numpy(expected),
        rtol=2e-6,
    )


@pytest.mark.programs
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
@pytest.mark.parametrize("way", compiled.WAYS)
def test_compiled_values(way, shuffle_ties, rng):
    compiled.skip_unless_here(way)
    batch = batch_of(rng)

    def values(labels, scores, weights):
        how = {"k": 3, "shuffle_ties": shuffle_ties, "seed": 1}
        ranked = functional.rank(labels, scores, sample_weight=weights, **how)
        return ops.stack([case.function(ranked, k=3) for case in ALL])

    expected = ops.convert_to_numpy(values(*batch))
    inputs = [ops.convert_to_tensor(x) for x in batch]
    found = ops.convert_to_numpy(compiled.function(way, values)(*inputs))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="sizes are known elsewhere"
)
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
def test_a_graph_of_unknown_sizes(shuffle_ties, rng):
    import tensorflow as tf

    group = metrics.RankingMetrics(
        [
            case.make(k=k, shuffle_ties=shuffle_ties, name=f"{case}{k}")
            for case in ALL
            for k in (3, None)
        ]
    )
    alone = metrics.RankingMetrics.from_config(group.get_config())
    labels, scores, weights = batch_of(rng)
    spec = [tf.TensorSpec([None] * rank, "float32") for rank in (3, 2, 2)]
    update = tf.function(lambda *batch: group.update_state(*batch), spec)
    update(labels, scores, weights)
    alone.update_state(labels, scores, weights)
    for name, expected in alone.result().items():
        assert float(group.result()[name]) == pytest.approx(float(expected), rel=2e-6)


def model_of(rng, kind, size=LIST_SIZE):
    inputs = keras.Input((size, 2))
    outputs = keras.layers.Reshape((size or -1,))(keras.layers.Dense(1)(inputs))
    model = kind(inputs, outputs)

    def loss(y_true, y_pred):
        return ops.mean(ops.square(ops.max(y_true, axis=-1) - y_pred), axis=-1)

    model.compile(
        optimizer="sgd",
        loss=loss,
        metrics=[case.make(k=3, shuffle_ties=False) for case in ALL],
    )
    return model


@trains
@pytest.mark.trains
def test_fit_and_evaluate(rng):
    labels, _, _ = batch_of(rng, lists=12)
    x = rng.normal(size=(12, LIST_SIZE, 2)).astype("float32")
    model = model_of(rng, keras.Model)
    model.fit(x, labels, batch_size=5, verbose=0)
    logs = model.evaluate(x, labels, batch_size=5, return_dict=True, verbose=0)
    scores = model.predict(x, verbose=0)
    for case in ALL:
        metric = case.make(k=3, shuffle_ties=False)
        assert logs[metric.name] == pytest.approx(float(metric(labels, scores)), 2e-6)


@trains
@pytest.mark.trains
def test_a_ranking_model_takes_a_mask(rng):
    labels, _, _ = batch_of(rng, lists=12)
    x = rng.normal(size=(12, LIST_SIZE, 2)).astype("float32")
    y = {"labels": np.abs(labels), "mask": labels[:, :, 0] >= 0}
    model = model_of(rng, keras_rank.RankingModel)
    model.fit(x, y, batch_size=5, verbose=0)
    logs = model.evaluate(x, y, batch_size=5, return_dict=True, verbose=0)
    scores = model.predict(x, verbose=0)
    for case in ALL:
        metric = case.make(k=3, shuffle_ties=False)
        assert logs[metric.name] == pytest.approx(float(metric(labels, scores)), 2e-6)


@trains
@pytest.mark.trains
def test_a_ranking_model_takes_lists_of_uneven_length(rng):
    x = [rng.normal(size=(n, 2)).astype("float32") for n in (3, 1, 4, 2)]
    y = [(rng.random((len(row), SUBTOPICS)) < 0.5).astype("float32") for row in x]
    rows = [np.empty(len(x), object), np.empty(len(x), object)]
    rows[0][:], rows[1][:] = x, y
    model = model_of(rng, keras_rank.RankingModel, size=None)
    logs = model.evaluate(*rows, batch_size=2, return_dict=True, verbose=0)
    scores = [model.predict(row[None], verbose=0)[0] for row in x]
    for case in ALL:
        metric = case.make(k=3, shuffle_ties=False)
        assert logs[metric.name] == pytest.approx(float(metric(y, scores)), 2e-6)


@trains
@pytest.mark.trains
def test_a_saved_model_restores_them(rng, tmp_path):
    path = tmp_path / "model.keras"
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    made = [case.make(k=3, name=f"m{i}") for i, case in enumerate(OF_SUBTOPICS)]
    model.compile(loss="mse", metrics=made)
    model.save(path)
    labels, scores, _ = batch_of(rng)
    loaded = keras.saving.load_model(path)
    restored = loaded.get_compile_config()["metrics"]
    for metric, config in zip(made, restored, strict=True):
        again = keras.saving.deserialize_keras_object(config)
        assert float(again(labels, scores)) == float(metric(labels, scores))
