"""Comparison with Keras's metric of ids, in training and evaluation.

`HitRate` equals `SparseTopKCategoricalAccuracy` as long as no scores tie.
"""

import keras
import numpy as np
import pytest

from keras_rank import RankingModel
from keras_rank.metrics import HitRate, RankingMetrics

pytestmark = pytest.mark.trains

BACKEND = keras.backend.backend()
LISTS, TIME, WORDS, ITEMS, K = 24, 4, 9, 11, 3


def make_metrics(prefix=""):
    """Returns Keras's metric and `HitRate`, alone and in a group.

    Keras adds no prefix to the results of a group, so the group adds it.
    """
    keras_metric = keras.metrics.SparseTopKCategoricalAccuracy(K, name="keras")
    names = ("ours", "ours_in_group")
    alone, in_group = (HitRate(K, sparse_labels=True, name=name) for name in names)
    return [keras_metric, alone, RankingMetrics([in_group], prefix=prefix)]


def make_model(
    shape,
    *,
    outputs=(),
    mask_zero=False,
    dtype=None,
    model_class=keras.Model,
    **arguments,
):
    """Returns a model with one order of the items for each word, without ties."""
    rng = np.random.default_rng(0)
    words = keras.Input(shape, dtype="int32")
    scores = {}
    for name in outputs or ["scores"]:
        table = np.array([rng.permutation(ITEMS) for _ in range(WORDS)], "float32")
        layer = keras.layers.Embedding(WORDS, ITEMS, mask_zero=mask_zero, dtype=dtype)
        # Keras's metric accepts no half precision on TensorFlow.
        scores[name] = keras.layers.Activation("linear", dtype="float32", name=name)(
            layer(words)
        )
        layer.set_weights([table])
    model = model_class(words, scores if outputs else scores["scores"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = dict.fromkeys(outputs, loss) if outputs else loss
    model.compile(keras.optimizers.SGD(0.0), loss, **arguments)
    return model


def make_data(shape=()):
    """Returns words, with padding at the end, ids and weights."""
    rng = np.random.default_rng(1)
    words = rng.integers(1, WORDS, (LISTS, *shape)).astype("int32")
    if shape:
        words[np.arange(TIME) >= rng.integers(1, TIME + 1, (LISTS, 1))] = 0
    ids = rng.integers(0, ITEMS, words.shape).astype("int32")
    return words, ids, rng.uniform(0.5, 2.0, words.shape).astype("float32")


def check_logs(logs):
    """Checks that the results of `HitRate` equal those of Keras, for any prefix."""
    pairs = [(name, logs[name]) for name in logs if name.endswith("keras")]
    assert pairs
    for name, value in pairs:
        assert 0.0 < np.max(value) < 1.0
        for hit_rate in ("ours", "ours_in_group"):
            actual = logs[name.removesuffix("keras") + hit_rate]
            assert actual == pytest.approx(value, abs=1e-6), name


def fit(model, words, ids, **arguments):
    """Returns the logs of an epoch."""
    history = model.fit(words, ids, batch_size=8, verbose=0, **arguments).history
    return {name: values[0] for name, values in history.items()}


def evaluate(model, *batch, should_fit=True):
    """Returns the logs of `evaluate`, and of `fit` with equal data for validation."""
    words, ids, *weights = batch
    weight = {"sample_weight": weights[0]} if weights else {}
    options = {"return_dict": True, "batch_size": 8, "verbose": 0}
    logs = [model.evaluate(words, ids, **weight, **options)]
    if should_fit:
        logs.append(fit(model, words, ids, validation_data=batch, **weight))
    return logs


COMPILE_OPTIONS = [
    {},
    {"run_eagerly": True},
    {"jit_compile": True},
    {"steps_per_execution": 2},
]
if BACKEND == "torch":
    # Keras has no steps of several batches on torch, and inductor takes minutes.
    COMPILE_OPTIONS = COMPILE_OPTIONS[:2]


@pytest.mark.compiles_long
@pytest.mark.parametrize("model_class", [keras.Model, RankingModel])
@pytest.mark.parametrize("options", COMPILE_OPTIONS, ids=str)
def test_results_equal_those_of_keras_however_compiled(options, model_class):
    """Masked positions do not count. `fit` of `keras.Model` loses the mask on JAX."""
    words, ids, _ = make_data((TIME,))
    model = make_model(
        (TIME,),
        mask_zero=True,
        model_class=model_class,
        metrics=make_metrics(),
        **options,
    )
    for logs in evaluate(model, words, ids):
        check_logs(logs)
    if BACKEND != "jax" or model_class is RankingModel:
        for name in ("keras", "ours"):
            assert logs[name] == pytest.approx(logs[f"val_{name}"], abs=1e-6)
    scores = model.predict(words, verbose=0)
    hits = np.sum(scores > np.take_along_axis(scores, ids[..., None], 2), 2) < K
    assert logs["val_ours"] == pytest.approx(hits[words > 0].mean(), abs=1e-6)


SHAPES = {
    "ids": lambda words, ids, weights: (words, ids),
    "ids (b, 1)": lambda words, ids, weights: (words, ids[:, None]),
    "float ids": lambda words, ids, weights: (words, ids.astype("float32")),
    "weights": lambda words, ids, weights: (words, ids, weights),
    "weights (b, 1)": lambda words, ids, weights: (words, ids, weights[:, None]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_ids_and_weights(shape, weighted):
    batch = SHAPES[shape](*make_data())
    metrics = {"weighted_metrics" if weighted else "metrics": make_metrics()}
    for logs in evaluate(make_model((), **metrics), *batch, should_fit=not weighted):
        check_logs(logs)


def test_masked_rows():
    """The mask has the shape of the ids."""
    words, ids, _ = make_data()
    words[::3] = 0
    check_logs(
        evaluate(make_model((), mask_zero=True, metrics=make_metrics()), words, ids)[0]
    )


MASKED = {"mask_zero": True}


@pytest.mark.parametrize("options", [{}, MASKED, MASKED | {"dtype": "mixed_bfloat16"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_positions(weighted, options):
    metrics = {"weighted_metrics" if weighted else "metrics": make_metrics()}
    for logs in evaluate(
        make_model((TIME,), **options, **metrics), *make_data((TIME,))
    ):
        check_logs(logs)


@pytest.mark.compiles_long
def test_batches_and_weights_of_classes():
    words, ids, weights = make_data()
    model = make_model((), weighted_metrics=make_metrics())
    check_logs(model.test_on_batch(words, ids, weights, return_dict=True))
    model.reset_metrics()
    check_logs(model.train_on_batch(words, ids, weights, return_dict=True))
    class_weights = {i: 0.5 + i % 3 for i in range(ITEMS)}
    check_logs(fit(model, words, ids, class_weight=class_weights))


@pytest.mark.compiles_long
@pytest.mark.parametrize("mask_zero", [False, True])
def test_several_outputs(mask_zero):
    """Each output has labels and weights, and a prefix in the logs."""
    outputs = ["clicks", "sales"]
    metrics = {name: make_metrics(f"{name}_") for name in outputs}
    options = {"outputs": outputs, "mask_zero": mask_zero, "weighted_metrics": metrics}
    model = make_model((TIME,), **options)
    words, ids, weights = make_data((TIME,))
    pairs = (ids, (ids + 1) % ITEMS), (weights, weights**2)
    by_output = [dict(zip(outputs, pair, strict=True)) for pair in pairs]
    for logs in evaluate(model, words, *by_output):
        check_logs(logs)
