"""Masks that Keras's layers attach to scores: masked items are padding."""

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


class MaskingIdentity(keras.layers.Layer):
    """A layer that returns its input, and passes on the mask."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.supports_masking = True

    def call(self, x, mask=None):
        return x


LAYER = MaskingIdentity(name="passes", autocast=False)


def attach_mask(scores, mask):
    """Returns scores with a mask, as a layer returns them."""
    return LAYER(ops.convert_to_tensor(scores), mask=ops.convert_to_tensor(mask))


@pytest.fixture
def lists(rng):
    """Returns labels with padding, tied scores, weights with 0, and two masks."""
    shape = BATCH, LIST_SIZE
    labels = rng.integers(-1, 4, shape).astype("float32")
    scores = rng.integers(0, 4, shape).astype("float32")
    weights = rng.integers(0, 3, shape).astype("float32")
    label_mask, layer_mask = rng.random((2, *shape)) < 0.7
    layer_mask[0] = False
    return labels, scores, weights, label_mask, layer_mask


def assert_equal(*values):
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, values))


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_functions_and_metrics(case, lists):
    """A layer's mask equals a mask in `y_true`, and both masks are combined."""
    labels, scores, weights, label_mask, layer_mask = lists
    for y_true, combined_mask in (
        (labels, layer_mask),
        ({"labels": labels, "mask": label_mask}, label_mask & layer_mask),
    ):
        for weight in (None, weights):
            actual = case.values(y_true, attach_mask(scores, layer_mask), weight)
            expected = case.values(
                {"labels": labels, "mask": combined_mask}, scores, weight
            )
            assert_equal(actual, expected)
            assert np.isnan(ops.convert_to_numpy(actual)[0])
    actual = case.make()(
        case.labels(labels), attach_mask(scores[..., None], layer_mask)
    )
    expected = case.make()(case.labels({"labels": labels, "mask": layer_mask}), scores)
    assert float(actual) == float(expected)


@pytest.mark.compiles_long
def test_groups_and_ranked_lists(lists):
    labels, scores, weights, _, layer_mask = lists
    all_metrics = [case.make(name=case.name) for case in FIRST_CASES]
    dense = [x for x in all_metrics if not x.takes_subtopics]
    expected = {"labels": labels, "mask": layer_mask}
    for members in (dense, ["ndcg@3", Coverage(2, items=LIST_SIZE)]):
        group = RankingMetrics(members)
        group.update_state(labels, attach_mask(scores, layer_mask), weights)
        actual = results(group)
        group.reset_state()
        group.update_state(expected, scores, weights)
        assert actual == results(group)
    ranked = functional.rank(labels, attach_mask(scores, layer_mask), seed=1)
    actual = functional.ndcg(ranked, k=3)
    assert_equal(actual, functional.ndcg(expected, scores, k=3, seed=1))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_code_reads_masks(compiler, lists):
    """Keras stores masks by the addresses of tensors on JAX."""
    labels, scores, _, label_mask, layer_mask = lists
    tensors = [
        ops.convert_to_tensor(x) for x in (labels, scores, label_mask, layer_mask)
    ]

    def values(labels, scores, label_mask, layer_mask):
        y_true = {"labels": labels, "mask": label_mask}
        return functional.ndcg(y_true, attach_mask(scores, layer_mask), k=3, seed=1)

    actual = compiled.compile_function(compiler, values)(*tensors)
    y_true = {"labels": labels, "mask": label_mask & layer_mask}
    expected = functional.ndcg(y_true, scores, k=3, seed=1)
    np.testing.assert_allclose(
        *map(ops.convert_to_numpy, (actual, expected)), rtol=1e-6
    )


@pytest.mark.compiles_long
@pytest.mark.parametrize("ties", [True, False, "average"])
@pytest.mark.parametrize("graded", [False, True])
def test_ids_among_masked_items(graded, ties, lists, rng):
    """Results equal those of dense labels, also for targets at padding."""
    _, scores, _, _, layer_mask = lists
    ids = np.argsort(rng.random(scores.shape), axis=1)[:, :3]
    ids[1, 1:] = -1
    grades = rng.integers(0, 4, ids.shape) if graded else np.ones(ids.shape, int)
    dense = np.zeros(scores.shape, "float32")
    for row, row_ids, labels in zip(dense, ids, grades, strict=True):
        row[row_ids[row_ids >= 0]] = labels[row_ids >= 0]
    sparse = {"ids": ids, "labels": grades} if graded else ids
    weights = rng.random(len(ids)).astype("float32")
    for k in (2, None):
        for case in cases_for_cutoff(k, FIRST_CASES):
            # `PairwiseAccuracy` needs all pairs of graded items.
            is_pairwise = case.metric is metrics.PairwiseAccuracy
            if is_pairwise and (k or not graded):
                continue
            if not case.metric.takes_sparse_labels:
                continue
            actual = case.make(k=k, shuffle_ties=ties, sparse_labels=True)
            reference = case.make(k=k, shuffle_ties=ties)
            actual = actual(sparse, attach_mask(scores, layer_mask), weights)
            reference = reference(
                {"labels": dense, "mask": layer_mask}, scores, weights
            )
            expected = pytest.approx(float(reference), abs=1e-6)
            assert float(actual) == expected, (case.name, k)


@pytest.mark.compiles_long
@pytest.mark.parametrize("sparse_labels", [False, True])
def test_exposure(sparse_labels, lists):
    labels, scores, _, _, layer_mask = lists
    labels = np.abs(labels)
    expected = {"labels": labels, "mask": layer_mask}
    y_true = np.arange(BATCH) % LIST_SIZE if sparse_labels else labels
    for metric_class in (metrics.Coverage, metrics.Gini, metrics.Personalization):
        metric = metric_class(2, items=LIST_SIZE, seed=1, sparse_labels=sparse_labels)
        expected_value = metric_class(2, items=LIST_SIZE, seed=1)(expected, scores)
        assert float(metric(y_true, attach_mask(scores, layer_mask))) == float(
            expected_value
        )


@pytest.mark.compiles_long
def test_masks_of_positions(rng):
    """Masked positions are no lists, and do not count in the numbers of lists."""
    scores = rng.integers(0, 4, (3, 4, LIST_SIZE)).astype("float32")
    ids = rng.integers(-1, LIST_SIZE, (3, 4))
    mask, weights = rng.random((3, 4)) < 0.6, rng.random((3, 4)).astype("float32")
    unmasked, labels = np.where(mask, ids, -1), np.abs(ids)
    for targets, expected in (
        (ids, unmasked),
        (ids[..., None], unmasked[..., None]),
        ({"ids": ids, "labels": labels}, {"ids": unmasked, "labels": labels}),
    ):
        for weight in (None, weights):
            calls = (
                (targets, attach_mask(scores, mask), weight),
                (expected, scores, weight),
            )
            actual, expected_value = (
                NDCG(2, sparse_labels=True, seed=1)(*x) for x in calls
            )
            assert float(actual) == float(expected_value)


@pytest.mark.compiles_long
def test_mask_of_lists(lists):
    """A mask with one entry per list leaves out lists, as a weight of 0 does."""
    _, scores, *_ = lists
    ids, mask = np.arange(BATCH) % LIST_SIZE, np.arange(BATCH) % 3 > 0
    actual, expected = (
        metrics.HitRate(2, sparse_labels=True, shuffle_ties="average") for _ in range(2)
    )
    actual.update_state(ids, attach_mask(scores, mask))
    expected.update_state(ids, scores, mask.astype("float32"))
    assert float(actual.result()) == float(expected.result())


@pytest.mark.compiles_long
@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, LIST_SIZE + 1), (BATCH, 1)])
def test_masks_of_other_axes_are_ignored(shape, lists):
    labels, scores, *_ = lists
    scores_with_mask = attach_mask(scores, np.zeros(shape, bool))
    actual, expected = (NDCG(seed=1)(labels, x) for x in (scores_with_mask, scores))
    assert float(actual) == float(expected)
    positions = np.stack([scores] * 2, axis=1)
    for other_shape in ((BATCH, 2, LIST_SIZE), (BATCH,)):
        hits = [
            metrics.HitRate(2, sparse_labels=True, seed=1)(np.zeros((BATCH, 2), int), x)
            for x in (attach_mask(positions, np.zeros(other_shape, bool)), positions)
        ]
        assert float(hits[0]) == float(hits[1])


def words_and_labels(rng):
    """Returns numbers of items, which are 0 at padding, and labels of all positions."""
    words = rng.integers(1, 30, (3 * BATCH, LIST_SIZE))
    words[np.arange(LIST_SIZE) >= rng.integers(0, LIST_SIZE + 1, (len(words), 1))] = 0
    return words, rng.integers(0, 3, words.shape).astype("float32")


def build(model_class, names=("scores",), layers=()):
    words = keras.Input((LIST_SIZE,), dtype="int32")
    embedded = keras.layers.Embedding(30, 4, mask_zero=True)(words)
    for layer in layers:
        embedded = layer(embedded)
    scores = [keras.layers.Dense(1, name=name)(embedded) for name in names]
    return model_class(words, scores[0] if len(scores) == 1 else scores)


@pytest.mark.compiles_long
@pytest.mark.parametrize("model_class", [keras.Model, RankingModel])
def test_evaluate(model_class, rng):
    words, labels = words_and_labels(rng)
    model = build(model_class)
    group = RankingMetrics([metrics.MeanAveragePrecision(2, seed=1)])
    model.compile(metrics=[NDCG(3, seed=1), group], loss="mse")
    y = labels[..., None]
    logs = model.evaluate(words, y, batch_size=BATCH, return_dict=True, verbose=0)
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


def fit_and_validate(model, x, y, weights=None):
    """Returns the logs of an epoch, with equal data for validation."""
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    options["validation_data"] = (x, y, weights)
    history = model.fit(x, y, sample_weight=weights, **options).history
    return {name: values[0] for name, values in history.items()}


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("layers", LAYERS)
def test_fit(layers, rng):
    """Masks reach the metrics of several outputs, as they reach Keras's metrics."""
    words, labels = words_and_labels(rng)
    model = build(RankingModel, ["clicks", "sales"], layers())
    metrics = [[NDCG(3, seed=1), "mse"] for _ in range(2)]
    model.compile(keras.optimizers.SGD(0.0), ["mse", "mse"], metrics=metrics)
    y = [labels[..., None], labels[..., None] + 1]
    logs = fit_and_validate(model, words, y)
    scores = model.predict(words, verbose=0)
    for name, output_scores, output_labels in zip(
        ("clicks", "sales"), scores, y, strict=True
    ):
        y_true = {"labels": output_labels[..., 0], "mask": words > 0}
        expected = pytest.approx(
            float(NDCG(3, seed=1)(y_true, output_scores)), abs=1e-5
        )
        assert logs[f"val_{name}_ndcg_at_3"] == expected
        if layers is not LAYERS[0]:
            # Layers without dropout give equal scores in training.
            assert logs[f"{name}_ndcg_at_3"] == expected
            error = pytest.approx(logs[f"val_{name}_mse"], rel=1e-5)
            assert logs[f"{name}_mse"] == error


def squared_error(y_true, y_pred):
    return ops.square(y_true - y_pred)


def weighted_ndcg(name="ndcg"):
    return NDCG(3, shuffle_ties="average", name=name)


def expected_ndcg(words, labels, scores, weights):
    """Returns the value of a metric outside of Keras, updated in equal batches."""
    metric = weighted_ndcg()
    for start in range(0, len(labels), BATCH):
        part = slice(start, start + BATCH)
        y_true = {"labels": labels[part], "mask": words[part] > 0}
        metric.update_state(y_true, scores[part], weights[part])
    return pytest.approx(float(metric.result()), abs=1e-6)


def copy_to_tensor(weights):
    return ops.convert_to_tensor(np.copy(weights))


LOSSES = ["mse", squared_error, lambda: keras.losses.MeanAbsoluteError(reduction="sum")]


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("loss", LOSSES, ids=["keras", "function", "class"])
def test_weights_of_metrics_are_those_of_the_user(loss, rng):
    """On torch, Keras multiplies weights by the mask in place."""
    words, labels = words_and_labels(rng)
    weights = rng.uniform(0.2, 2.0, labels.shape).astype("float32")
    weight_array = np.copy(weights)
    loss = loss() if loss is LOSSES[2] else loss
    model = build(RankingModel)
    metrics = ["mae", weighted_ndcg()]
    model.compile(keras.optimizers.SGD(0.0), loss, weighted_metrics=metrics)
    expected = expected_ndcg(words, labels, model.predict(words, verbose=0), weights)
    logs = fit_and_validate(model, words, labels[..., None], weight_array)
    assert [logs["ndcg"], logs["val_ndcg"]] == [expected] * 2
    tensors = copy_to_tensor(weights)
    for on_batch in (model.train_on_batch, model.test_on_batch):
        for sample_weight in (weight_array, tensors):
            model.reset_metrics()
            batch = words[:BATCH], labels[:BATCH, :, None], sample_weight[:BATCH]
            logs = on_batch(*batch, return_dict=True)
            scores = model.predict(batch[0], verbose=0)
            expected = expected_ndcg(
                words[:BATCH], labels[:BATCH], scores, weights[:BATCH]
            )
            assert logs["ndcg"] == expected
    assert_equal(weight_array, weights)
    assert_equal(tensors, weights)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("form", ["dict", "same", "one"])
def test_weights_of_several_outputs(form, rng):
    """Outputs may share one tensor of weights, although their masks differ."""
    data = [words_and_labels(rng)[0] for _ in range(2)]
    labels = rng.integers(0, 3, data[0].shape).astype("float32")
    weights = rng.uniform(0.2, 2.0, (2, *labels.shape)).astype("float32")
    if form != "dict":
        weights[1] = weights[0]
    tensors = [copy_to_tensor(x) for x in weights]
    tensors[1] = tensors[1] if form == "dict" else tensors[0]
    inputs, outputs = [], {}
    for name in ("clicks", "sales"):
        inputs.append(keras.Input((LIST_SIZE,), dtype="int32"))
        embedded = keras.layers.Embedding(30, 4, mask_zero=True)(inputs[-1])
        outputs[name] = keras.layers.Dense(1, name=name)(embedded)
    model = RankingModel(inputs, outputs)
    metrics = {name: ["mae", weighted_ndcg()] for name in outputs}
    model.compile(loss="mse", weighted_metrics=metrics)
    y = dict.fromkeys(outputs, labels[..., None])
    sample_weight = (
        tensors[0] if form == "one" else dict(zip(outputs, tensors, strict=True))
    )
    logs = model.test_on_batch(data, y, sample_weight, return_dict=True)
    scores = model.predict(data, verbose=0)
    for name, words, weight, tensor in zip(
        outputs, data, weights, tensors, strict=True
    ):
        y_true = {"labels": labels, "mask": words > 0}
        expected = float(weighted_ndcg()(y_true, scores[name], weight))
        assert logs[f"{name}_ndcg"] == pytest.approx(expected, abs=1e-6)
        assert_equal(tensor, weight)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_training_steps_of_users(rng):
    """Custom training steps may read the outputs, also on JAX."""
    words, labels = words_and_labels(rng)

    class CustomStep(RankingModel):
        def train_step(self, *data):
            return super().train_step(*data)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            assert tuple(y_pred.shape)[1:] == (LIST_SIZE, 1)
            return super().compute_metrics(x, y, y_pred, sample_weight)

    class CustomLoss(RankingModel):
        def compute_loss_and_updates(self, *data, **arguments):
            loss, aux = super().compute_loss_and_updates(*data, **arguments)
            assert tuple(aux[1].shape)[1:] == (LIST_SIZE, 1)
            return loss, aux

    for model_class in (CustomStep, CustomLoss):
        model = build(model_class)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[NDCG(3, seed=1)])
        logs = fit_and_validate(model, words, labels[..., None])
        if model_class is CustomStep or BACKEND != "jax":
            assert logs["ndcg_at_3"] == pytest.approx(logs["val_ndcg_at_3"], abs=1e-6)


@pytest.mark.compiles_long
def test_other_layers_keep_their_names():
    keras.utils.clear_session()
    NDCG()(np.eye(2), ops.ones((2, 2)))
    assert keras.layers.Dense(1).name == "dense"
    assert NDCG().name == "ndcg"
