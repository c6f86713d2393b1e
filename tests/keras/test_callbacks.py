"""Behavior that all evaluation callbacks share, such as equal results in `fit`."""

import re

import keras
import numpy as np
import pytest
from epochs import run_epoch

from keras_rank.callbacks import CatalogueEvaluation, GroupedEvaluation, ListEvaluation
from keras_rank.metrics import MeanReciprocalRank

USERS, ITEMS = np.arange(6), 30
TARGETS = USERS * 4
PAIRS = np.stack([np.repeat(USERS, ITEMS), np.tile(np.arange(ITEMS), 6)], axis=1)
SEGMENTS = np.array(["new users", "others", "others"] * 2)


class PairModel:
    """A model that scores pairs of users and items by a model of users."""

    def __init__(self, model):
        self.model = model

    def predict(self, x, batch_size=None, verbose=0):
        return self.model.predict(USERS, verbose=0)[x[:, 0], x[:, 1]]


def make_catalogue_callback(model, targets=TARGETS, metrics=("mrr",), **arguments):
    """Returns a callback with unit vectors as candidates: queries are the scores."""
    return CatalogueEvaluation(USERS, targets, np.eye(ITEMS), metrics, **arguments)


def make_grouped_callback(
    model, targets=TARGETS, metrics=("mrr",), by=None, **arguments
):
    labels = PAIRS[:, 1] == targets[PAIRS[:, 0]]
    by = None if by is None else by[PAIRS[:, 0]]
    arguments |= {"model": PairModel(model), "by": by}
    return GroupedEvaluation(PAIRS, labels, PAIRS[:, 0], metrics, **arguments)


def make_list_callback(model, targets=TARGETS, metrics=("mrr",), **arguments):
    labels = np.arange(ITEMS) == targets[:, None]
    return ListEvaluation(USERS, labels, metrics, **arguments)


def make_weighted_callback(model, *arguments, sample_weight=None):
    """Returns a callback of rows, each of which has the weight of its list."""
    weights = None if sample_weight is None else sample_weight[PAIRS[:, 0]]
    return make_grouped_callback(model, *arguments, sample_weight=weights)


CALLBACKS = [make_catalogue_callback, make_grouped_callback, make_list_callback]
all_callbacks = pytest.mark.parametrize("make", [*CALLBACKS, make_weighted_callback])


def build(**averaging):
    """Returns a model that scores all items, compiled with a metric of its lists."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Embedding(6, 4), keras.layers.Dense(ITEMS)]
    model = keras.Sequential([keras.Input((), dtype="int32"), *layers])
    metric = MeanReciprocalRank(sparse_labels=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1, **averaging), loss, metrics=[metric])
    return model


def fit(model, *callbacks, epochs=2, **validation):
    options = {"epochs": epochs, "batch_size": 3, "shuffle": False, "verbose": 0}
    options |= {"callbacks": [*callbacks], **validation}
    return model.fit(USERS, TARGETS, **options).history


@pytest.mark.compiles_long
@pytest.mark.trains
def test_later_callbacks_read_the_results_in_the_logs(tmp_path):
    model, path = build(), tmp_path / "best.weights.h5"
    monitor = {"monitor": "rows_mrr", "mode": "max"}
    stop = keras.callbacks.EarlyStopping(**monitor, patience=9)
    save_options = {"save_best_only": True, "save_weights_only": True}
    history = fit(
        model,
        # Callbacks that read no results may be listed before.
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        make_catalogue_callback(model, by=SEGMENTS, prefix="all_"),
        make_grouped_callback(model, by=SEGMENTS, prefix="rows_"),
        make_list_callback(model, by=SEGMENTS, prefix="lists_"),
        make_grouped_callback(model, prefix="rare_", frequency=2),
        stop,
        keras.callbacks.ModelCheckpoint(path, **monitor, **save_options),
        epochs=4,
        validation_data=(USERS, TARGETS),
    )
    expected = history["val_mrr"]
    assert len(set(expected)) > 1
    assert history["rare_mrr"] == pytest.approx(expected[1::2])
    for prefix in ("all_", "rows_", "lists_"):
        assert history[f"{prefix}mrr"] == pytest.approx(expected)
        names = [f"{prefix}mrr_{name}" for name in ("new_users", "others")]
        mean = np.average([history[name] for name in names], axis=0, weights=[2, 4])
        assert mean == pytest.approx(expected)
    assert stop.best == max(history["rows_mrr"])
    assert path.exists()


class Caller(keras.callbacks.Callback):
    """A user's callback that calls an evaluation callback."""

    def __init__(self, callback):
        super().__init__()
        self.callback = callback

    def on_epoch_end(self, epoch, logs=None):
        self.callback.set_model(self.model)
        self.callback.on_epoch_end(epoch, logs)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("swap_on_epoch", [False, True])
def test_averaged_weights_are_evaluated_as_in_validation(swap_on_epoch):
    """`SwapEMAWeights` may be listed before or after the evaluation callbacks."""

    def mrr_logs(index, **validation):
        model = build(use_ema=True, ema_momentum=0.9)
        callbacks = [
            make_catalogue_callback(model, prefix="first_"),
            make_grouped_callback(model, prefix="second_"),
            make_list_callback(model, prefix="third_"),
            Caller(make_catalogue_callback(model, prefix="fourth_")),
        ]
        callbacks.insert(index, keras.callbacks.SwapEMAWeights(swap_on_epoch))
        history = fit(model, *callbacks, **validation)
        return {name: x for name, x in history.items() if name.endswith("_mrr")}

    raw = fit(build(use_ema=True), validation_data=(USERS, TARGETS))["val_mrr"]
    validated = [mrr_logs(index, validation_data=(USERS, TARGETS)) for index in (0, 4)]
    all_logs = [*validated, mrr_logs(0), mrr_logs(4)]
    averaged = all_logs[0]["val_mrr"]
    assert raw != averaged
    assert [len(logs) for logs in all_logs] == [5, 5, 4, 4]
    for values in (values for logs in all_logs for values in logs.values()):
        assert values == pytest.approx(averaged, abs=1e-6)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_averaged_weights_outlive_an_evaluation(tmp_path):
    """Weights and averages may share memory in Keras after the last epoch."""
    model, path = build(use_ema=True), tmp_path / "model.weights.h5"
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    fit(model, swap, make_catalogue_callback(model), save)
    assert np.isfinite(model.evaluate(USERS, TARGETS, verbose=0)).all()


@pytest.mark.trains
@pytest.mark.parametrize(
    "early",
    [
        keras.callbacks.EarlyStopping("loss"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None),
    ],
)
def test_callbacks_that_read_the_logs_too_early_are_warned_about(early):
    model = build()
    evaluations = [make(model, prefix=f"{make.__name__}_") for make in CALLBACKS]
    with pytest.warns(UserWarning, match="listed after") as caught:
        fit(model, early, *evaluations, epochs=1)
    messages = [str(x.message) for x in caught if "listed after" in str(x.message)]
    for message, callback in zip(messages, evaluations, strict=True):
        first, second = (f"`{type(each).__name__}`" for each in (early, callback))
        assert message.startswith(f"{first} should be listed after {second}: it reads")
        assert f"such as '{callback.prefix}mrr'" in message


@pytest.mark.parametrize("make", CALLBACKS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frequency": 0}, "`frequency` should be a positive integer. Received: freq"),
        ({"batch_size": 0}, "`batch_size` should be a positive integer or None. Recei"),
        ({"prefix": None}, "`prefix` should be a string. Received: prefix=None"),
        ({"verbose": 7}, '`verbose` should be "auto", 0, 1 or 2. Received: verbose=7'),
        ({}, "`prefix` should give keys that are not in the logs yet"),
    ],
)
def test_invalid_arguments_are_errors(make, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(None, **arguments).on_epoch_end(0, {"loss": 0.1, "val_mrr": 0.5})


HALF = np.where(USERS % 2, -1, TARGETS)


@pytest.mark.compiles_long
@all_callbacks
def test_lists_without_a_relevant_item_are_warned_about(make):
    """A callback warns once, and not if the lists are left out."""
    model = build()
    callback = make(model, HALF)
    message = re.escape(
        "3 of 6 lists have no relevant item, and count as 0.0 in 'val_mrr'. To leave "
        "them out, pass only lists that have one, or "
        "`MeanReciprocalRank(..., empty_value=None)`"
    )
    with pytest.warns(UserWarning, match=message):
        run_epoch(callback, model)
    run_epoch(callback, model)
    run_epoch(make(model, HALF, [MeanReciprocalRank(empty_value=None)]), model)
    run_epoch(make(model, HALF, sample_weight=HALF >= 0), model)


@all_callbacks
def test_invalid_weights_are_warned_about(make):
    model = build()
    weights = np.array([1.0, np.nan, 1.0, -2.0, 0.0, 1.0])
    callback = make(model, sample_weight=weights)
    rows = ITEMS if make is make_weighted_callback else 1
    message = f"{2 * rows} of {6 * rows} weights that are negative or NaN, the first,"
    message += f" nan, in row {rows}"
    with pytest.warns(UserWarning, match=message):
        run_epoch(callback, model)
    run_epoch(callback, model)
