"""Masks that layers pass on to scores: what they mark is padding."""

import compiled
import keras
import numpy as np
import pytest
from compiled import COMPILERS
from keras import ops
from recording import results
from registry import FIRST_CASES, cases_for_cutoff
from strategies import BATCH, LIST_SIZE

from keras_rank import RankingModel, functional, metrics
from keras_rank.metrics import NDCG, Coverage, RankingMetrics

BACKEND = keras.backend.backend()
pytestmark = compiled.requires_layer_masks


class Passes(keras.layers.Layer):
    """A layer that passes a mask on."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.supports_masking = True

    def call(self, x, mask=None):
        return x


LAYER = Passes(name="passes", autocast=False)


def masked(scores, mask):
    """Scores as a layer returns them, with their mask."""
    return LAYER(ops.convert_to_tensor(scores), mask=ops.convert_to_tensor(mask))


@pytest.fixture
def lists(rng):
    """Labels with padding, scores with ties, weights with 0, and two masks."""
    shape = BATCH, LIST_SIZE
    labels = rng.integers(-1, 4, shape).astype("float32")
    scores = rng.integers(0, 4, shape).astype("float32")
    weights = rng.integers(0, 3, shape).astype("float32")
    own, of_layers = rng.random((2, *shape)) < 0.7
    of_layers[0] = False
    return labels, scores, weights, own, of_layers


def assert_equal(*values):
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, values))


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_functions_and_metrics(case, lists):
    """As with a mask in `y_true`, with which it is joined, bit for bit."""
    labels, scores, weights, own, of_layers = lists
    for y_true, both in (
        (labels, of_layers),
        ({"labels": labels, "mask": own}, own & of_layers),
    ):
        for weight in (None, weights):
            found = case.values(y_true, masked(scores, of_layers), weight)
            right = case.values({"labels": labels, "mask": both}, scores, weight)
            assert_equal(found, right)
            assert np.isnan(ops.convert_to_numpy(found)[0])
    found = case.make()(case.labels(labels), masked(scores[..., None], of_layers))
    right = case.make()(case.labels({"labels": labels, "mask": of_layers}), scores)
    assert float(found) == float(right)


@pytest.mark.compiles_long
def test_groups_and_ranked_lists(lists):
    labels, scores, weights, _, of_layers = lists
    given = [case.make(name=case.name) for case in FIRST_CASES]
    dense = [x for x in given if not x.takes_subtopics]
    expected = {"labels": labels, "mask": of_layers}
    for members in (dense, ["ndcg@3", Coverage(2, items=LIST_SIZE)]):
        group = RankingMetrics(members)
        group.update_state(labels, masked(scores, of_layers), weights)
        found = results(group)
        group.reset_state()
        group.update_state(expected, scores, weights)
        assert found == results(group)
    ranked = functional.rank(labels, masked(scores, of_layers), seed=1)
    found = functional.ndcg(ranked, k=3)
    assert_equal(found, functional.ndcg(expected, scores, k=3, seed=1))


@pytest.mark.parametrize("way", COMPILERS)
def test_compiled(way, lists):
    """Where JAX keeps masks by the addresses of tensors."""
    labels, scores, _, own, of_layers = lists
    given = [ops.convert_to_tensor(x) for x in (labels, scores, own, of_layers)]

    def values(labels, scores, own, of_layers):
        y_true = {"labels": labels, "mask": own}
        return functional.ndcg(y_true, masked(scores, of_layers), k=3, seed=1)

    found = compiled.compile_function(way, values)(*given)
    y_true = {"labels": labels, "mask": own & of_layers}
    expected = functional.ndcg(y_true, scores, k=3, seed=1)
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (found, expected)), rtol=1e-6)


@pytest.mark.parametrize("ties", [True, False, "average"])
@pytest.mark.parametrize("graded", [False, True])
def test_ids_among_masked_items(graded, ties, lists, rng):
    """The numbers of the dense labels, also for targets at padding."""
    _, scores, _, _, of_layers = lists
    ids = np.argsort(rng.random(scores.shape), axis=1)[:, :3]
    ids[1, 1:] = -1
    grades = rng.integers(0, 4, ids.shape) if graded else np.ones(ids.shape, int)
    dense = np.zeros(scores.shape, "float32")
    for row, its, labels in zip(dense, ids, grades, strict=True):
        row[its[its >= 0]] = labels[its >= 0]
    sparse = {"ids": ids, "labels": grades} if graded else ids
    weights = rng.random(len(ids)).astype("float32")
    for k in (2, None):
        for case in cases_for_cutoff(k, FIRST_CASES):
            # Which needs all pairs, of graded items.
            is_of_pairs = case.metric is metrics.PairwiseAccuracy
            if is_of_pairs and (k or not graded):
                continue
            if not case.metric.takes_sparse_labels:
                continue
            found = case.make(k=k, shuffle_ties=ties, sparse_labels=True)
            right = case.make(k=k, shuffle_ties=ties)
            found = found(sparse, masked(scores, of_layers), weights)
            right = right({"labels": dense, "mask": of_layers}, scores, weights)
            expected = pytest.approx(float(right), abs=1e-6)
            assert float(found) == expected, (case.name, k)


@pytest.mark.parametrize("sparse_labels", [False, True])
def test_exposure(sparse_labels, lists):
    labels, scores, _, _, of_layers = lists
    labels = np.abs(labels)
    expected = {"labels": labels, "mask": of_layers}
    y_true = np.arange(BATCH) % LIST_SIZE if sparse_labels else labels
    for kind in (metrics.Coverage, metrics.Gini, metrics.Personalization):
        found = kind(2, items=LIST_SIZE, seed=1, sparse_labels=sparse_labels)
        right = kind(2, items=LIST_SIZE, seed=1)(expected, scores)
        assert float(found(y_true, masked(scores, of_layers))) == float(right)


def test_positions(rng):
    """Where it is False, there is no list, and the next one has its number."""
    scores = rng.integers(0, 4, (3, 4, LIST_SIZE)).astype("float32")
    ids = rng.integers(-1, LIST_SIZE, (3, 4))
    mask, weights = rng.random((3, 4)) < 0.6, rng.random((3, 4)).astype("float32")
    seen, labels = np.where(mask, ids, -1), np.abs(ids)
    for targets, expected in (
        (ids, seen),
        (ids[..., None], seen[..., None]),
        ({"ids": ids, "labels": labels}, {"ids": seen, "labels": labels}),
    ):
        for weight in (None, weights):
            given = (targets, masked(scores, mask), weight), (expected, scores, weight)
            found, right = (NDCG(2, sparse_labels=True, seed=1)(*x) for x in given)
            assert float(found) == float(right)


@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, LIST_SIZE + 1), (BATCH, 1)])
def test_masks_of_other_axes_are_ignored(shape, lists):
    labels, scores, *_ = lists
    given = masked(scores, np.zeros(shape, bool))
    found, expected = (NDCG(seed=1)(labels, x) for x in (given, scores))
    assert float(found) == float(expected)
    positions = np.stack([scores] * 2, axis=1)
    for of_others in ((BATCH, 2, LIST_SIZE), (BATCH,)):
        hits = [
            metrics.HitRate(2, sparse_labels=True, seed=1)(np.zeros((BATCH, 2), int), x)
            for x in (masked(positions, np.zeros(of_others, bool)), positions)
        ]
        assert float(hits[0]) == float(hits[1])


def words_and_labels(rng):
    """Items by number, 0 at padding, whose labels there are those of items."""
    words = rng.integers(1, 30, (3 * BATCH, LIST_SIZE))
    words[np.arange(LIST_SIZE) >= rng.integers(0, LIST_SIZE + 1, (len(words), 1))] = 0
    return words, rng.integers(0, 3, words.shape).astype("float32")


def build(kind, names=("scores",), layers=()):
    words = keras.Input((LIST_SIZE,), dtype="int32")
    embedded = keras.layers.Embedding(30, 4, mask_zero=True)(words)
    for layer in layers:
        embedded = layer(embedded)
    scores = [keras.layers.Dense(1, name=name)(embedded) for name in names]
    return kind(words, scores[0] if len(scores) == 1 else scores)


@pytest.mark.parametrize("kind", [keras.Model, RankingModel])
def test_evaluate(kind, rng):
    words, labels = words_and_labels(rng)
    model = build(kind)
    group = RankingMetrics([metrics.MeanAveragePrecision(2, seed=1)])
    model.compile(metrics=[NDCG(3, seed=1), group], loss="mse")
    given = labels[..., None]
    logs = model.evaluate(words, given, batch_size=BATCH, return_dict=True, verbose=0)
    scores = model.predict(words, verbose=0)
    y_true = {"labels": labels, "mask": words > 0}
    for metric in (NDCG(3, seed=1), metrics.MeanAveragePrecision(2, seed=1)):
        expected = float(metric(y_true, scores))
        assert logs[metric.name] == pytest.approx(expected, abs=1e-6)


LAYERS = [
    lambda: [keras.layers.LSTM(3, return_sequences=True), keras.layers.Dropout(0.1)],
    lambda: [keras.layers.Bidirectional(keras.layers.GRU(2, return_sequences=True))],
    lambda: [keras.layers.TimeDistributed(keras.layers.Dense(3, "relu"))],
    lambda: [keras.layers.LayerNormalization(), keras.layers.Activation("tanh")],
]


def logs_of(model, x, y, weights=None):
    """The logs of an epoch, with the same data for validation."""
    given = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    given["validation_data"] = (x, y, weights)
    history = model.fit(x, y, sample_weight=weights, **given).history
    return {name: values[0] for name, values in history.items()}


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("layers", LAYERS)
def test_fit(layers, rng):
    """In each epoch, of several outputs, as Keras's own metric beside it."""
    words, labels = words_and_labels(rng)
    model = build(RankingModel, ["clicks", "sales"], layers())
    metrics = [[NDCG(3, seed=1), "mse"] for _ in range(2)]
    model.compile(keras.optimizers.SGD(0.0), ["mse", "mse"], metrics=metrics)
    y = [labels[..., None], labels[..., None] + 1]
    logs = logs_of(model, words, y)
    scores = model.predict(words, verbose=0)
    for name, of_output, its in zip(("clicks", "sales"), scores, y, strict=True):
        y_true = {"labels": its[..., 0], "mask": words > 0}
        expected = pytest.approx(float(NDCG(3, seed=1)(y_true, of_output)), abs=1e-5)
        assert logs[f"val_{name}_ndcg_at_3"] == expected
        if layers is not LAYERS[0]:
            # Which has no dropout.
            assert logs[f"{name}_ndcg_at_3"] == expected
            error = pytest.approx(logs[f"val_{name}_mse"], rel=1e-5)
            assert logs[f"{name}_mse"] == error


def own_loss(y_true, y_pred):
    return ops.square(y_true - y_pred)


def weighted_ndcg(name="ndcg"):
    return NDCG(3, shuffle_ties="average", name=name)


def right_ndcg(words, labels, scores, weights):
    """The value of a metric by itself, in the batches of Keras."""
    metric = weighted_ndcg()
    for start in range(0, len(labels), BATCH):
        part = slice(start, start + BATCH)
        y_true = {"labels": labels[part], "mask": words[part] > 0}
        metric.update_state(y_true, scores[part], weights[part])
    return pytest.approx(float(metric.result()), abs=1e-6)


def convert_to_own_tensor(weights):
    return ops.convert_to_tensor(np.copy(weights))


LOSSES = ["mse", own_loss, lambda: keras.losses.MeanAbsoluteError(reduction="sum")]


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("loss", LOSSES, ids=["keras", "function", "class"])
def test_weights_of_metrics_are_those_of_the_user(loss, rng):
    """On torch, Keras multiplies weights by the mask in place."""
    words, labels = words_and_labels(rng)
    weights = rng.uniform(0.2, 2.0, labels.shape).astype("float32")
    given = np.copy(weights)
    loss = loss() if loss is LOSSES[2] else loss
    model = build(RankingModel)
    metrics = ["mae", weighted_ndcg()]
    model.compile(keras.optimizers.SGD(0.0), loss, weighted_metrics=metrics)
    expected = right_ndcg(words, labels, model.predict(words, verbose=0), weights)
    logs = logs_of(model, words, labels[..., None], given)
    assert [logs["ndcg"], logs["val_ndcg"]] == [expected] * 2
    tensors = convert_to_own_tensor(weights)
    for on_batch in (model.train_on_batch, model.test_on_batch):
        for sample_weight in (given, tensors):
            model.reset_metrics()
            one = words[:BATCH], labels[:BATCH, :, None], sample_weight[:BATCH]
            logs = on_batch(*one, return_dict=True)
            scores = model.predict(one[0], verbose=0)
            its = right_ndcg(words[:BATCH], labels[:BATCH], scores, weights[:BATCH])
            assert logs["ndcg"] == its
    assert_equal(given, weights)
    assert_equal(tensors, weights)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("form", ["dict", "same", "one"])
def test_weights_of_several_outputs(form, rng):
    """Also of one tensor for all outputs, each of which has a mask of its own."""
    data = [words_and_labels(rng)[0] for _ in range(2)]
    labels = rng.integers(0, 3, data[0].shape).astype("float32")
    weights = rng.uniform(0.2, 2.0, (2, *labels.shape)).astype("float32")
    if form != "dict":
        weights[1] = weights[0]
    given = [convert_to_own_tensor(x) for x in weights]
    given[1] = given[1] if form == "dict" else given[0]
    inputs, outputs = [], {}
    for name in ("clicks", "sales"):
        inputs.append(keras.Input((LIST_SIZE,), dtype="int32"))
        embedded = keras.layers.Embedding(30, 4, mask_zero=True)(inputs[-1])
        outputs[name] = keras.layers.Dense(1, name=name)(embedded)
    model = RankingModel(inputs, outputs)
    metrics = {name: ["mae", weighted_ndcg()] for name in outputs}
    model.compile(loss="mse", weighted_metrics=metrics)
    y = dict.fromkeys(outputs, labels[..., None])
    its = given[0] if form == "one" else dict(zip(outputs, given, strict=True))
    logs = model.test_on_batch(data, y, its, return_dict=True)
    scores = model.predict(data, verbose=0)
    for name, words, weight, tensor in zip(outputs, data, weights, given, strict=True):
        y_true = {"labels": labels, "mask": words > 0}
        expected = float(weighted_ndcg()(y_true, scores[name], weight))
        assert logs[f"{name}_ndcg"] == pytest.approx(expected, abs=1e-6)
        assert_equal(tensor, weight)


@pytest.mark.trains
def test_training_steps_of_users(rng):
    """Which may look at the outputs, also on JAX."""
    words, labels = words_and_labels(rng)

    class OwnStep(RankingModel):
        def train_step(self, *given):
            return super().train_step(*given)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            assert tuple(y_pred.shape)[1:] == (LIST_SIZE, 1)
            return super().compute_metrics(x, y, y_pred, sample_weight)

    class OwnLoss(RankingModel):
        def compute_loss_and_updates(self, *given, **arguments):
            loss, aux = super().compute_loss_and_updates(*given, **arguments)
            assert tuple(aux[1].shape)[1:] == (LIST_SIZE, 1)
            return loss, aux

    for kind in (OwnStep, OwnLoss):
        model = build(kind)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[NDCG(3, seed=1)])
        logs = logs_of(model, words, labels[..., None])
        if kind is OwnStep or BACKEND != "jax":
            assert logs["ndcg_at_3"] == pytest.approx(logs["val_ndcg_at_3"], abs=1e-6)


@pytest.mark.compiles_long
def test_other_layers_keep_their_names():
    keras.utils.clear_session()
    NDCG()(np.eye(2), ops.ones((2, 2)))
    assert keras.layers.Dense(1).name == "dense"
    assert NDCG().name == "ndcg"
