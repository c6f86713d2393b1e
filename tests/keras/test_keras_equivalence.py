"""Keras's own metric beside ours: the same number in every way of training.

`HitRate` of ids is `SparseTopKCategoricalAccuracy`, as long as no scores tie.
"""

import keras
import numpy as np
import pytest

from keras_rank import RankingModel
from keras_rank.metrics import HitRate, RankingMetrics

pytestmark = pytest.mark.trains

BACKEND = keras.backend.backend()
LISTS, TIME, WORDS, ITEMS, K = 24, 4, 9, 11, 3


def both(prefix=""):
    """Keras's metric, and ours beside it, alone and in a group.

    Keras gives the results of groups no prefix.
    """
    theirs = keras.metrics.SparseTopKCategoricalAccuracy(K, name="keras")
    names = ("ours", "ours_in_group")
    alone, in_group = (HitRate(K, sparse_labels=True, name=name) for name in names)
    return [theirs, alone, RankingMetrics([in_group], prefix=prefix)]


def make_model(
    shape, *, outputs=(), mask_zero=False, dtype=None, kind=keras.Model, **arguments
):
    """A model that scores items by an order of their own for each word: none tie."""
    rng = np.random.default_rng(0)
    words = keras.Input(shape, dtype="int32")
    scores = {}
    for name in outputs or ["scores"]:
        table = np.array([rng.permutation(ITEMS) for _ in range(WORDS)], "float32")
        layer = keras.layers.Embedding(WORDS, ITEMS, mask_zero=mask_zero, dtype=dtype)
        # Keras's metric takes no half precision on TensorFlow.
        scores[name] = keras.layers.Activation("linear", dtype="float32", name=name)(
            layer(words)
        )
        layer.set_weights([table])
    model = kind(words, scores if outputs else scores["scores"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = dict.fromkeys(outputs, loss) if outputs else loss
    model.compile(keras.optimizers.SGD(0.0), loss, **arguments)
    return model


def data(shape=()):
    """Words, with padding at the end, ids, and weights."""
    rng = np.random.default_rng(1)
    words = rng.integers(1, WORDS, (LISTS, *shape)).astype("int32")
    if shape:
        words[np.arange(TIME) >= rng.integers(1, TIME + 1, (LISTS, 1))] = 0
    ids = rng.integers(0, ITEMS, words.shape).astype("int32")
    return words, ids, rng.uniform(0.5, 2.0, words.shape).astype("float32")


def check(logs):
    """That results of ours are those of Keras, under whatever prefixes."""
    pairs = [(name, logs[name]) for name in logs if name.endswith("keras")]
    assert pairs
    for name, value in pairs:
        assert 0.0 < np.max(value) < 1.0
        for ours in ("ours", "ours_in_group"):
            found = logs[name.removesuffix("keras") + ours]
            assert found == pytest.approx(value, abs=1e-6), name


def fit(model, words, ids, **arguments):
    """The logs of an epoch."""
    history = model.fit(words, ids, batch_size=8, verbose=0, **arguments).history
    return {name: values[0] for name, values in history.items()}


def evaluated(model, *given, fits=True):
    """The logs of `evaluate`, and of `fit` with the same data for validation."""
    words, ids, *weights = given
    weight = {"sample_weight": weights[0]} if weights else {}
    how = {"return_dict": True, "batch_size": 8, "verbose": 0}
    logs = [model.evaluate(words, ids, **weight, **how)]
    if fits:
        logs.append(fit(model, words, ids, validation_data=given, **weight))
    return logs


WAYS = [{}, {"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 2}]
if BACKEND == "torch":
    # Keras has no steps of several batches there, and inductor takes minutes.
    WAYS = WAYS[:2]


@pytest.mark.parametrize("kind", [keras.Model, RankingModel])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_ways_to_compile(way, kind):
    """Of masked positions, whose mask JAX loses in `fit` but for `RankingModel`."""
    words, ids, _ = data((TIME,))
    model = make_model((TIME,), mask_zero=True, kind=kind, metrics=both(), **way)
    for logs in evaluated(model, words, ids):
        check(logs)
    if BACKEND != "jax" or kind is RankingModel:
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
def test_rows(shape, weighted):
    given = SHAPES[shape](*data())
    metrics = {"weighted_metrics" if weighted else "metrics": both()}
    for logs in evaluated(make_model((), **metrics), *given, fits=not weighted):
        check(logs)


def test_masked_rows():
    """Whose mask has the shape of the ids."""
    words, ids, _ = data()
    words[::3] = 0
    check(evaluated(make_model((), mask_zero=True, metrics=both()), words, ids)[0])


MASKED = {"mask_zero": True}


@pytest.mark.parametrize("how", [{}, MASKED, MASKED | {"dtype": "mixed_bfloat16"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_positions(weighted, how):
    metrics = {"weighted_metrics" if weighted else "metrics": both()}
    for logs in evaluated(make_model((TIME,), **how, **metrics), *data((TIME,))):
        check(logs)


def test_batches_and_weights_of_classes():
    words, ids, weights = data()
    model = make_model((), weighted_metrics=both())
    check(model.test_on_batch(words, ids, weights, return_dict=True))
    model.reset_metrics()
    check(model.train_on_batch(words, ids, weights, return_dict=True))
    of_classes = {i: 0.5 + i % 3 for i in range(ITEMS)}
    check(fit(model, words, ids, class_weight=of_classes))


@pytest.mark.parametrize("mask_zero", [False, True])
def test_outputs(mask_zero):
    """With labels and weights of their own."""
    outputs = ["clicks", "sales"]
    metrics = {name: both(f"{name}_") for name in outputs}
    how = {"outputs": outputs, "mask_zero": mask_zero, "weighted_metrics": metrics}
    model = make_model((TIME,), **how)
    words, ids, weights = data((TIME,))
    pairs = (ids, (ids + 1) % ITEMS), (weights, weights**2)
    of_outputs = [dict(zip(outputs, pair, strict=True)) for pair in pairs]
    for logs in evaluated(model, words, *of_outputs):
        check(logs)
