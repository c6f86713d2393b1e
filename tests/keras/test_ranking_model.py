"""`RankingModel`, which accepts masks and lists of uneven length."""

import functools
import re
import warnings

import keras
import keras_rs
import numpy as np
import oracle
import pytest
from data_sets import SOURCES, Batches, tf_data
from keras import ops
from precision import default_precision
from recording import RecordedScores, results

from keras_rank import RankingModel, metrics
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

LISTS, ITEMS, FEATURES = 12, 5, 3


@pytest.fixture
def data(rng):
    x = rng.normal(size=(LISTS, ITEMS, FEATURES)).astype("float32")
    labels = rng.integers(0, 4, size=(LISTS, ITEMS)).astype("float32")
    mask = rng.random((LISTS, ITEMS)) < 0.7
    mask[:, 0] = True
    return x, {"labels": labels, "mask": mask}


def loss_of_items(y_true, y_pred):
    return ops.cast(y_true >= 0, "float32") * (y_true - y_pred) ** 2


@keras.saving.register_keras_serializable("tests")
def masked_loss(y_true, y_pred):
    return ops.sum(loss_of_items(y_true, y_pred), axis=1)


def make_tensors(*names):
    """Returns inputs, and scores of items for each name."""
    inputs = keras.Input((ITEMS, FEATURES))
    scores = [
        keras.layers.Reshape((ITEMS,), name=name)(keras.layers.Dense(1)(inputs))
        for name in names or [None]
    ]
    return inputs, scores if names else scores[0]


def build(model_class=None, **arguments):
    keras.utils.set_random_seed(3)
    model = model_class() if model_class else RankingModel(*make_tensors())
    metrics = [NDCG(k=3, seed=1), MeanReciprocalRank(seed=1)]
    arguments = {"loss": masked_loss, "metrics": metrics, **arguments}
    model.compile(keras.optimizers.SGD(0.0), **arguments)
    return model


def oracle_logs(labels, scores, weights):
    """Returns the logs of lists by the oracle. Labels of -1 are padding."""
    lists = list(zip(labels, scores, weights, strict=True))
    squares = [np.sum(np.where(y >= 0, (y - x) ** 2, 0.0)) for y, x, _ in lists]
    ndcg, mrr = oracle.ndcg, oracle.reciprocal_rank
    return {
        "loss": np.mean(squares),
        "ndcg_at_3": oracle.mean_over(lists, ndcg, oracle.exponential, k=3),
        "mrr": oracle.mean_over(lists, mrr, oracle.at_least_one),
    }


def expected_logs(model, x, y):
    labels = np.where(y["mask"], y["labels"], -1.0)
    return oracle_logs(labels, model.predict(x, verbose=0), np.ones_like(labels))


def assert_close(logs, expected):
    actual = {name: float(logs[name]) for name in expected}
    assert actual == pytest.approx(expected, rel=1e-5, abs=2e-6)


SOURCES = [None, *SOURCES]


def pass_data(source, x, y):
    """Returns arguments of `fit` and `evaluate` that pass data in one of many forms.

    The last batch is smaller for arrays alone, as each size is compiled.
    """
    if source is None:
        return {"x": x, "y": y, "batch_size": 5}
    return {"x": source(x, y, size=4)}


def fit(model, data, **arguments):
    """Returns the logs of one epoch."""
    history = model.fit(**data, shuffle=False, verbose=0, **arguments).history
    return {name: values[0] for name, values in history.items()}


def evaluate(model, *data, **arguments):
    """Returns the logs of `evaluate`."""
    return model.evaluate(*data, return_dict=True, verbose=0, **arguments)


def add_prefix(logs):
    return {f"val_{name}": value for name, value in logs.items()}


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("overrides", [False, True])
def test_a_mask_reaches_loss_and_metrics(data, overrides, source):
    """An override receives labels from every source, and may add a metric."""
    seen = set()

    class Overriding(RankingModel):
        def __init__(self):
            super().__init__(*make_tensors())
            self.first = MeanReciprocalRank(name="first", seed=1)

        # Keras accepts an override without the argument `training`.
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            seen.add(("loss", keras.backend.standardize_dtype(y.dtype), y.shape[1]))
            return super().compute_loss(x, y, y_pred, sample_weight)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            seen.add(("metrics", keras.backend.standardize_dtype(y.dtype), y.shape[1]))
            self.first.update_state(y, y_pred)
            logs = super().compute_metrics(x, y, y_pred, sample_weight)
            return {**logs, "first": self.first.result()}

    model = build(Overriding if overrides else None)
    logs = fit(model, pass_data(source, *data))
    expected = expected_logs(model, *data)
    if overrides:
        expected["first"] = expected["mrr"]
    assert_close(logs, expected)
    assert_close(evaluate(model, **pass_data(source, *data)), expected)
    methods = ("loss", "metrics") if overrides else ()
    assert seen == {(method, "float32", ITEMS) for method in methods}


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize(
    "options", [{}, {"run_eagerly": True}, {"jit_compile": False}], ids=str
)
def test_validation_data_and_train_on_batch(data, options):
    x, y = data
    model = build(**options)
    logs = fit(model, {"x": x, "y": y, "validation_data": data})
    expected = expected_logs(model, x, y)
    assert_close(logs, expected | add_prefix(expected))
    assert_close(model.train_on_batch(x, y, return_dict=True), expected)
    assert_close(model.test_on_batch(x, y, return_dict=True), expected)


def test_labels_without_a_mask_are_unchanged(data):
    x, y = data
    labels = np.where(y["mask"], y["labels"], -1.0)
    model = build()
    for plain in (labels, {"labels": labels}, {"labels": labels, "mask": None}):
        assert_close(evaluate(model, x, plain), expected_logs(model, x, y))


def test_unknown_keys_are_an_error(data):
    x, y = data
    with pytest.raises(ValueError, match=r"Received: y with the keys \['labels', 'm"):
        evaluate(build(), x, {"labels": y["labels"], "masks": y["mask"]})


@pytest.mark.parametrize("dtype", ["datetime64[D]", "timedelta64[s]"])
def test_dates_are_an_error(data, dtype):
    x, y = data
    dates = np.ones((LISTS, ITEMS), dtype)
    dated = {**y, "labels": dates}
    for batch, name in (
        ((x, dates), "y_true"),
        ((x, dated), "y_true"),
        ((x, y, dates), "sample_weight"),
    ):
        message = f"`{name}` should hold real numbers. Received: {name} of dtype "
        for call in (build().evaluate, build().test_on_batch):
            with pytest.raises(ValueError, match=re.escape(f"{message}{dtype}")):
                call(*batch[:2], sample_weight=batch[2] if len(batch) > 2 else None)


def test_metrics_of_symbolic_tensors_need_an_override():
    symbolic = keras.KerasTensor((None, ITEMS))
    with pytest.raises(ValueError, match="override the method `compute_metrics`"):
        NDCG()(symbolic, symbolic)


# Losses that count padding.

KERAS_LOSSES = ["mse", ["mse"], keras.losses.mean_absolute_error, keras.losses.Huber()]
LOSSES_WITHOUT_PADDING = [masked_loss, keras_rs.losses.ListMLELoss(), "kld"]


def collect_warnings(model, *data, **arguments):
    """Returns the warnings of training, if the backend trains, and of evaluation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if keras.backend.backend() != "numpy":
            model.fit(*data, epochs=2, verbose=0, **arguments)
        model.evaluate(*data, verbose=0, **arguments)
    return [
        str(warning.message) for warning in caught if warning.category is UserWarning
    ]


@pytest.mark.programs
@pytest.mark.parametrize("form", ["labels", "mask", "batches"])
@pytest.mark.parametrize("loss", KERAS_LOSSES)
def test_a_loss_that_counts_padding_is_warned_about_once(data, loss, form):
    x, y = data
    labels = np.where(y["mask"], y["labels"], -1.0)
    data_by_form = {"labels": (x, labels), "mask": data, "batches": [Batches(x, y)]}
    (message,) = collect_warnings(build(loss=loss), *data_by_form[form])
    assert message.startswith("Labels of -1 are padding to metrics, but labels to")


@pytest.mark.programs
@pytest.mark.parametrize("loss", LOSSES_WITHOUT_PADDING)
def test_a_loss_that_leaves_padding_out_is_not_warned_about(data, loss):
    assert collect_warnings(build(loss=loss), *data) == []


@pytest.mark.compiles_long
@pytest.mark.programs
def test_weights_and_masks_leave_padding_out_of_the_losses_of_keras(data):
    x, y = data
    labels = np.where(y["mask"], y["labels"], -1.0)[..., None]
    layers = [keras.layers.Identity(), keras.layers.Masking()]
    # Keras 3.12 ignores masks on NumPy, and raises a warning.
    for first in layers[:1] if keras.backend.backend() == "numpy" else layers:
        inputs = keras.Input((ITEMS, FEATURES))
        outputs = keras.layers.Dense(1)(first(inputs))
        model = RankingModel(inputs, outputs)
        model.compile("sgd", "mse", metrics=[NDCG(k=3)])
        is_masked = isinstance(first, keras.layers.Masking)
        weights = {} if is_masked else {"sample_weight": y["mask"]}
        assert collect_warnings(model, x, labels, **weights) == []
    # Labels without padding cause no warning.
    labels = {"labels": y["labels"], "mask": np.ones_like(y["mask"])}
    assert collect_warnings(build(loss="mse"), x, labels) == []


NAMES = ("buy", "click")


def expected_output_logs(y, scores):
    """Returns the logs of one metric of each output."""
    labels = [np.where(part.get("mask", True), part["labels"], -1.0) for part in y]
    return {
        f"{name}_ndcg_at_3": float(NDCG(k=3, seed=1)(*lists))
        for name, *lists in zip(NAMES, labels, scores, strict=True)
    }


def test_two_outputs_with_a_mask_each(data):
    x, y = data
    inputs, outputs = make_tensors(*NAMES)
    model = RankingModel(inputs, dict(zip(NAMES, outputs, strict=True)))
    metrics = {name: [NDCG(k=3, seed=1)] for name in NAMES}
    model.compile(loss=dict.fromkeys(NAMES, masked_loss), metrics=metrics)
    logs = evaluate(model, x, dict.fromkeys(NAMES, y))
    scores = model.predict(x, verbose=0)
    assert_close(logs, expected_output_logs([y, y], [scores[name] for name in NAMES]))


@pytest.mark.trains
@pytest.mark.parametrize("source", SOURCES)
def test_several_outputs_as_a_list(data, source):
    x, y = data
    y = [y, {"labels": y["labels"]}]
    seen = set()

    class Overriding(RankingModel):
        def compute_loss(self, x, y, *args, **kwargs):
            seen.add((type(y), *(type(labels) is dict for labels in y)))
            return super().compute_loss(x, y, *args, **kwargs)

    model = Overriding(*make_tensors(*NAMES))
    metrics = [[NDCG(k=3, seed=1)] for _ in NAMES]
    model.compile(keras.optimizers.SGD(0.0), [masked_loss] * 2, metrics=metrics)
    expected = expected_output_logs(y, model(x))
    assert_close(fit(model, pass_data(source, x, y)), expected)
    assert seen == {(tuple, False, False)}


# Lists of uneven length.


SIZES = (3, 1, 4, 2, 5)


@pytest.fixture
def uneven(rng):
    """Returns features and labels of lists of all sizes."""
    x = [rng.normal(size=(size, FEATURES)).astype("float32") for size in SIZES]
    return x, [rng.integers(0, 2, size) for size in SIZES]


def make_ragged(rows):
    tf = pytest.importorskip("tensorflow")

    sizes = [len(row) for row in rows]
    return tf.RaggedTensor.from_row_lengths(np.concatenate(rows), sizes)


def make_object_array(rows):
    """Returns an array of lists, which may have any length."""
    array = np.empty(len(rows), object)
    array[:] = list(rows)
    return array


def make_uneven_model():
    inputs = keras.Input((None, FEATURES))
    # Padding that counted as an item would increase the loss.
    scores = keras.layers.Dense(1, bias_initializer="ones")(inputs)
    return RankingModel(inputs, keras.layers.Reshape((-1,))(scores))


def expected_uneven_logs(model, x, y, weights=None):
    """Returns the logs of lists that are scored one by one, without padding."""
    scores = [ops.convert_to_numpy(model(features[None]))[0] for features in x]
    return oracle_logs(y, scores, weights or [np.ones(size) for size in SIZES])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32"])
def test_evaluate_takes_ragged_labels_of_any_dtype(uneven, dtype):
    x, y = uneven
    model = build(make_uneven_model)
    data = tf_data(
        make_ragged(x), make_ragged([labels.astype(dtype) for labels in y]), size=3
    )
    assert_close(evaluate(model, data), expected_uneven_logs(model, x, y))


FORMS = {
    "ragged": lambda x, y: (make_ragged(x), make_ragged(y)),
    "ragged in a list": lambda x, y: [make_ragged(x), make_ragged(y)],
    "labels in arrays": lambda x, y: (make_ragged(x), make_object_array(y)),
    "arrays of lists": lambda x, y: (make_object_array(x), make_object_array(y)),
}


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("in_generator", [False, True])
def test_fit_takes_ragged_batches(uneven, in_generator, form):
    batches = Batches(number=2, size=3)
    batches.parts = form(*uneven)

    def source():
        endless = (batches[i % 2] for i in range(100))
        return {"x": endless if in_generator else batches}

    model = build(make_uneven_model)
    expected = expected_uneven_logs(model, *uneven)
    steps = 2 if in_generator else None
    assert_close(fit(model, source(), steps_per_epoch=steps), expected)
    assert_close(evaluate(model, **source(), steps=steps), expected)


def test_batches_of_lists_of_one_length(rng):
    """A batch of uneven lists may happen to have lists of one length."""
    x = rng.normal(size=(3, 2, FEATURES)).astype("float32")
    y = rng.integers(0, 2, size=(3, 2))
    batch = make_object_array(x), make_object_array(y)
    model = build(make_uneven_model, metrics=[metrics.PrecisionAtK(k=1)])
    expected = model.evaluate(x, y, verbose=0)
    actual = model.evaluate((batch for _ in range(1)), steps=1, verbose=0)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("has_ids", [False, True])
def test_labels_of_64_bits_stay_distinct(has_ids, backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless it is enabled")
    x = np.array([[[1.0], [2.0], [3.0]]] * 2, "float32")
    labels = np.array([[1, 2, 3]] * 2) + 1_700_000_000
    inputs = keras.Input((3, 1))
    model = RankingModel(inputs, keras.layers.Reshape((3,))(inputs))
    loss = (lambda y, scores: ops.mean(scores)) if has_ids else "mse"
    metric = metrics.PairwiseAccuracy(sparse_labels=has_ids)
    model.compile(loss=loss, metrics=[metric])
    y = {"labels": labels, "mask": np.ones((2, 3), bool)}
    if has_ids:
        y["ids"] = np.array([[0, 1, 2]] * 2)
    assert evaluate(model, x, y)["pairwise_accuracy"] == 1.0


def nest_rows(samples):
    """Returns a batch of nested tensors from rows of a PyTorch data set."""
    import torch

    return [
        torch.nested.nested_tensor(list(map(torch.tensor, x)), layout=torch.jagged)
        for x in zip(*samples, strict=True)
    ]


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("source", ["tf.data", "tensors", "DataLoader"])
def test_fit_takes_ragged_lists(uneven, source):
    model = build(make_uneven_model)
    expected = expected_uneven_logs(model, *uneven)
    if source == "DataLoader":
        torch, rows = pytest.importorskip("torch"), list(zip(*uneven, strict=True))
        data = torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=nest_rows)
        data = {"x": data, "validation_data": data}
    else:
        x, y = parts = [make_ragged(part) for part in uneven]
        data = tf_data(*parts, size=3)
        data = {"x": data, "validation_data": data}
        if source == "tensors":
            data = {"x": x, "y": y, "validation_data": (x, y)}
            assert_close(model.train_on_batch(x, y, return_dict=True), expected)
            # `validation_data` is the eighth argument of `fit`.
            history = model.fit(x, y, 3, 1, 0, None, 0.0, (x, y)).history
            assert history["val_loss"] == [pytest.approx(expected["loss"], rel=1e-5)]
    assert_close(fit(model, data), expected | add_prefix(expected))


@pytest.mark.compiles_long
def test_ragged_masks_and_weights(uneven, rng):
    """A ragged mask may also accompany labels that are padded with 0."""
    x, labels = (make_ragged(part) for part in uneven)
    mask = make_ragged([np.ones(size, bool) for size in SIZES])
    weights = [rng.choice([0.5, 2.0], size).astype("float32") for size in SIZES]

    options = {"metrics": [], "weighted_metrics": [NDCG(k=3, seed=1)]}
    model = build(make_uneven_model, loss=loss_of_items, **options)
    expected = expected_uneven_logs(model, *uneven, weights)["ndcg_at_3"]
    weights, masked = make_ragged(weights), {"labels": labels, "mask": mask}
    filled = {"labels": labels.to_tensor(), "mask": mask}
    for data in (
        {"x": tf_data(x, masked, weights, size=3)},
        {"x": x, "y": masked, "sample_weight": weights},
        {"x": x, "y": filled, "sample_weight": weights},
    ):
        logs = evaluate(model, **data)
        assert logs["ndcg_at_3"] == pytest.approx(expected, abs=2e-6)


def test_predict_takes_ragged_features(uneven):
    """Generators may yield features without labels."""
    x, _ = uneven
    model = build(make_uneven_model)
    expected = model.predict(make_ragged(x).to_tensor().numpy(), verbose=0)
    for data in (
        make_ragged(x),
        tf_data(make_ragged(x), size=5),
        ((x,) for x in [make_ragged(x)]),
    ):
        actual = model.predict(data, steps=1, verbose=0)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    on_batch = ops.convert_to_numpy(model.predict_on_batch(make_ragged(x)))
    np.testing.assert_allclose(on_batch, expected)


def test_a_data_set_of_even_lists_is_not_mapped(data):
    dataset = tf_data(*data, size=3)
    dataset.map = None
    model = build()
    assert_close(evaluate(model, dataset), expected_logs(model, *data))


# Subclasses.


def define_models():
    """Returns functions that create models of all kinds, of newly defined classes."""

    class FunctionalInInit(RankingModel):
        def __init__(self, name=None):
            super().__init__(*make_tensors(), name=name)

        def get_config(self):
            return {"name": self.name}

    class Functional(RankingModel):
        pass

    class Subclass(RankingModel):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)[..., 0]

    class Base(RankingModel):
        """A base class of several models."""

    class FunctionalOnBase(Base, FunctionalInInit):
        pass

    class SubclassOnBase(Base, Subclass):
        pass

    for kind in (
        FunctionalInInit,
        Functional,
        Subclass,
        FunctionalOnBase,
        SubclassOnBase,
    ):
        keras.saving.register_keras_serializable("tests")(kind)
    return {
        "RankingModel": lambda: RankingModel(*make_tensors()),
        "FunctionalInInit": FunctionalInInit,
        "Functional": lambda: Functional(*make_tensors()),
        "Subclass": Subclass,
        "FunctionalOnBase": FunctionalOnBase,
        "SubclassOnBase": SubclassOnBase,
    }


KINDS = tuple(define_models())


@pytest.mark.parametrize("first", KINDS)
def test_kinds_of_models_are_independent(data, first, tmp_path):
    """The creation of a model changes no model that is created before or after it."""
    x, y = data
    make = define_models()
    models = {kind: make[kind]() for kind in (first, *KINDS)}
    scores = {kind: ops.convert_to_numpy(model(x)) for kind, model in models.items()}
    for kind, model in models.items():
        model.save(tmp_path / f"{kind}.keras")
    # New classes of equal names have created no models yet, as in another process.
    define_models()
    expected = np.mean(np.where(y["mask"], y["labels"], -1.0))
    for kind in (first, *KINDS):
        model = keras.saving.load_model(tmp_path / f"{kind}.keras")
        assert type(model).__name__ == type(models[kind]).__name__
        np.testing.assert_allclose(ops.convert_to_numpy(model(x)), scores[kind])
        model.compile(loss=lambda y_true, _: y_true, run_eagerly=True)
        assert evaluate(model, x, y)["loss"] == pytest.approx(expected)


GRADED = {
    "ids": np.array([[3, 1, -1], [0, -1, -1], [2, 4, 0], [1, 1, -1]]),
    "labels": np.float32([[2, 1, 0], [3, 4, 4], [1, 0, 2], [1, 1, 1]]),
}
MASK = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)


def graded_loss(targets, scores):
    """Returns minus the log softmax of the targets, weighted by their labels."""
    targets, scores = (ops.cast(x, "float32") for x in (targets, scores))
    ids, labels = targets[..., 0], targets[..., 1]
    is_target = ops.cast(ids >= 0, "float32")
    chosen = ops.one_hot(ops.cast(ids, "int32"), ITEMS, dtype="float32")
    logs = ops.sum(chosen * ops.log_softmax(scores)[:, None], axis=2)
    return -ops.sum(is_target * labels * logs, axis=1)


def build_catalogue_model(model_class=RankingModel, loss=graded_loss, **metrics):
    inputs = keras.Input((FEATURES,))
    model = model_class(inputs, keras.layers.Dense(ITEMS)(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss, **metrics)
    return model


def make_graded_metrics():
    arguments = {"sparse_labels": True, "seed": 1}
    err = metrics.ExpectedReciprocalRank(k=3, **arguments)
    group = metrics.RankingMetrics([err, metrics.Coverage(2, items=ITEMS, **arguments)])
    return [NDCG(k=3, **arguments), group]


def expected_ndcg(y, scores, weights=None):
    metric = NDCG(k=3, sparse_labels=True)
    return pytest.approx(float(metric(y, scores, weights)), abs=1e-6)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_graded_ids_that_keras_may_have_rounded(rng):
    """Keras casts floats to the default precision, but no integers."""
    x = rng.normal(size=(2, FEATURES)).astype("float32")

    def mrr(items, target, dtype, graded):
        # Each call builds a model, as Keras on JAX can't reuse a model that failed.
        inputs = keras.Input((FEATURES,))
        dense = keras.layers.Dense(items, kernel_initializer="zeros")
        model = RankingModel(inputs, dense(inputs))
        dense.bias.assign(np.eye(1, items, target, dtype="float32")[0])
        metric = MeanReciprocalRank(sparse_labels=True)
        model.compile("sgd", lambda y, y_pred: ops.mean(y_pred), metrics=[metric])
        ids = np.array([[target, -1]] * 2, dtype)
        y = {"ids": ids, "labels": np.ones((2, 2))} if graded else ids
        return model.fit(x, y, verbose=0).history["mrr"]

    with default_precision("bfloat16"):
        for graded in (False, True):
            assert mrr(400, 301, "int64", graded) == [1.0]
            assert mrr(250, 201, "float32", graded) == [1.0]
            with pytest.raises(ValueError, match="bfloat16 holds all numbers up"):
                mrr(400, 301, "float32", graded)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize(
    ("masked", "precision"), [(False, "float32"), (True, "float16")]
)
def test_graded_ids_in_fit(masked, precision, rng):
    """Ids stay exact even if Keras casts floats of the data to half precision."""
    x = rng.normal(size=(4, FEATURES)).astype("float32")
    y = {**GRADED, "mask": MASK} if masked else GRADED
    recorded = RecordedScores(4, ITEMS)
    model = build_catalogue_model(metrics=[*make_graded_metrics(), recorded])
    options = {"x": x, "y": y, "batch_size": 3}
    with default_precision(precision):
        fitted = fit(model, options | {"validation_data": (x, y)})
        logs = evaluate(model, **options)
    scores = recorded.scores()
    expected = make_graded_metrics()
    for metric in expected:
        metric.update_state(y, scores)
    for name, value in results(*expected).items():
        for log in (logs[name], fitted[name], fitted[f"val_{name}"]):
            assert log == pytest.approx(value, abs=2e-6)
    ids = np.where(MASK, GRADED["ids"], -1) if masked else GRADED["ids"]
    pairs = np.stack([ids, GRADED["labels"]], axis=2).astype("float32")
    loss = np.mean(ops.convert_to_numpy(graded_loss(pairs, scores)))
    assert logs["loss"] == pytest.approx(float(loss), rel=1e-2)


@pytest.mark.compiles_long
@pytest.mark.programs
def test_weights_of_lists_of_graded_ids(rng):
    """Keras repeats the weights for the arrays of ids, labels and masks."""
    x = rng.normal(size=(4, FEATURES)).astype("float32")
    y, weights = {**GRADED, "mask": MASK}, np.float32([1, 0, 3, 0.5])
    model = build_catalogue_model(weighted_metrics=[NDCG(k=3, sparse_labels=True)])
    logs = evaluate(model, x, y, sample_weight=weights, batch_size=3)
    scores = model.predict(x, verbose=0)
    assert logs["ndcg_at_3"] == expected_ndcg(y, scores, weights)
    pairs = np.stack([np.where(MASK, y["ids"], -1), y["labels"]], axis=2)
    losses = weights * ops.convert_to_numpy(graded_loss(pairs, scores))
    assert logs["loss"] == pytest.approx(losses.mean(), rel=1e-4)


@pytest.mark.compiles_long
def test_ids_and_labels_in_one_tensor(rng):
    """Metrics of a `keras.Model` accept ids and labels that are stacked."""
    scores = rng.normal(size=(4, ITEMS)).astype("float32")
    pairs = np.stack([GRADED["ids"], GRADED["labels"]], axis=2).astype("float32")
    for metric in make_graded_metrics():
        metric.update_state(pairs, scores)
        actual = metric.result()
        metric.reset_state()
        metric.update_state(GRADED, scores)
        assert actual == metric.result()
    model = build_catalogue_model(keras.Model, metrics=[NDCG(k=3, sparse_labels=True)])
    x = np.ones((4, FEATURES), "float32")
    scores = model.predict(x, verbose=0)
    assert evaluate(model, x, pairs)["ndcg_at_3"] == expected_ndcg(GRADED, scores)


@pytest.mark.compiles_long
def test_ids_alone_and_ids_of_one_target(rng):
    x = rng.normal(size=(3, FEATURES)).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = build_catalogue_model(loss=loss, metrics=[NDCG(k=3, sparse_labels=True)])
    ids = np.array([1, 0, 3])
    assert evaluate(model, x, ids) == evaluate(model, x, {"ids": ids})
    model.compile(loss=graded_loss, metrics=[NDCG(k=3, sparse_labels=True)])
    graded = {"ids": ids, "labels": np.float32([1, 2, 0])}
    scores = model.predict(x, verbose=0)
    assert evaluate(model, x, graded)["ndcg_at_3"] == expected_ndcg(graded, scores)


make_group_with_errors = functools.partial(RankingMetrics, standard_errors=True)
COLLIDING = {
    "ndcg_at_3": lambda: ([NDCG(3), RankingMetrics(["mrr", "ndcg@3"])], []),
    "ndcg_at_2": lambda: ([RankingMetrics(["ndcg@2", x]) for x in ("mrr", "map")], []),
    "mrr": lambda: ([RankingMetrics(["mrr"])], [RankingMetrics(["mrr"])]),
    "mrr_stderr": lambda: (
        [make_group_with_errors(["mrr"]), NDCG(name="mrr_stderr")],
        [],
    ),
}


@pytest.mark.parametrize("name", COLLIDING)
def test_duplicate_names_of_results_are_an_error(data, name):
    """Keras would log the last result. Prefixes or numbers make names unique."""
    x, y = data[0], data[1]["labels"]
    metrics, weighted = COLLIDING[name]()
    model = build(loss="mse", metrics=metrics, weighted_metrics=weighted)
    with pytest.raises(ValueError, match=f"Received twice: '{name}'"):
        evaluate(model, x, y)
    # The model can be compiled again after the error, on every backend.
    metrics, weighted = COLLIDING[name]()
    group = RankingMetrics(["mrr"], prefix="other_")
    alone = [x for x in metrics if not isinstance(x, RankingMetrics)]
    metrics = [*alone, NDCG(3), group]
    model.compile(loss="mse", metrics=metrics, weighted_metrics=weighted)
    for _ in range(2):
        logs = evaluate(model, x, y, sample_weight=np.ones(LISTS))
        assert {"other_mrr", "loss"} < set(logs)
