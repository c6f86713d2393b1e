"""What all callbacks do in `fit`: of a catalogue, rows or lists, it is one number."""

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


class OfPairs:
    """A model of pairs of users and items, by one of users that scores all items."""

    def __init__(self, model):
        self.model = model

    def predict(self, x, batch_size=None, verbose=0):
        return self.model.predict(USERS, verbose=0)[x[:, 0], x[:, 1]]


def of_catalogue(model, targets=TARGETS, metrics=("mrr",), **arguments):
    """Of the scores of all items, as if these were embeddings."""
    return CatalogueEvaluation(USERS, targets, np.eye(ITEMS), metrics, **arguments)


def of_rows(model, targets=TARGETS, metrics=("mrr",), by=None, **arguments):
    labels = PAIRS[:, 1] == targets[PAIRS[:, 0]]
    by = None if by is None else by[PAIRS[:, 0]]
    arguments |= {"model": OfPairs(model), "by": by}
    return GroupedEvaluation(PAIRS, labels, PAIRS[:, 0], metrics, **arguments)


def of_lists(model, targets=TARGETS, metrics=("mrr",), **arguments):
    labels = np.arange(ITEMS) == targets[:, None]
    return ListEvaluation(USERS, labels, metrics, **arguments)


def of_row_weights(model, *given, sample_weight=None):
    """With a weight for each row, where there are weights."""
    weights = None if sample_weight is None else sample_weight[PAIRS[:, 0]]
    return of_rows(model, *given, sample_weight=weights)


FORMS = [of_catalogue, of_rows, of_lists]
ALL = pytest.mark.parametrize("make", [*FORMS, of_row_weights])


def build(**averaging):
    """A model that scores all items for each user, and a metric of the same lists."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Embedding(6, 4), keras.layers.Dense(ITEMS)]
    model = keras.Sequential([keras.Input((), dtype="int32"), *layers])
    metric = MeanReciprocalRank(sparse_labels=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1, **averaging), loss, metrics=[metric])
    return model


def fit(model, *callbacks, epochs=2, **validation):
    given = {"epochs": epochs, "batch_size": 3, "shuffle": False, "verbose": 0}
    given |= {"callbacks": [*callbacks], **validation}
    return model.fit(USERS, TARGETS, **given).history


@pytest.mark.compiles_long
@pytest.mark.trains
def test_results_are_in_the_logs_for_the_callbacks_after(tmp_path):
    model, path = build(), tmp_path / "best.weights.h5"
    monitored = {"monitor": "rows_mrr", "mode": "max"}
    stop = keras.callbacks.EarlyStopping(**monitored, patience=9)
    saves = {"save_best_only": True, "save_weights_only": True}
    history = fit(
        model,
        # These read no results, and are told nothing.
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        of_catalogue(model, by=SEGMENTS, prefix="all_"),
        of_rows(model, by=SEGMENTS, prefix="rows_"),
        of_lists(model, by=SEGMENTS, prefix="lists_"),
        of_rows(model, prefix="rare_", frequency=2),
        stop,
        keras.callbacks.ModelCheckpoint(path, **monitored, **saves),
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
    """A callback of one's own that calls another one."""

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
    """Before and after the callback that swaps them in, and by one of one's own."""

    def logs(place, **validation):
        model = build(use_ema=True, ema_momentum=0.9)
        callbacks = [
            of_catalogue(model, prefix="first_"),
            of_rows(model, prefix="second_"),
            of_lists(model, prefix="third_"),
            Caller(of_catalogue(model, prefix="fourth_")),
        ]
        callbacks.insert(place, keras.callbacks.SwapEMAWeights(swap_on_epoch))
        history = fit(model, *callbacks, **validation)
        return {name: x for name, x in history.items() if name.endswith("_mrr")}

    raw = fit(build(use_ema=True), validation_data=(USERS, TARGETS))["val_mrr"]
    validated = [logs(place, validation_data=(USERS, TARGETS)) for place in (0, 4)]
    found = [*validated, logs(0), logs(4)]
    averaged = found[0]["val_mrr"]
    assert raw != averaged
    assert [len(each) for each in found] == [5, 5, 4, 4]
    for values in (values for each in found for values in each.values()):
        assert values == pytest.approx(averaged, abs=1e-6)


@pytest.mark.trains
def test_averaged_weights_outlive_an_evaluation(tmp_path):
    """Where Keras makes weights and averages the same memory, after the last epoch."""
    model, path = build(use_ema=True), tmp_path / "model.weights.h5"
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    fit(model, swap, of_catalogue(model), save)
    assert np.isfinite(model.evaluate(USERS, TARGETS, verbose=0)).all()


@pytest.mark.trains
@pytest.mark.parametrize(
    "early",
    [
        keras.callbacks.EarlyStopping("loss"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None),
    ],
)
def test_who_reads_the_logs_too_early_is_told(early):
    model = build()
    evaluations = [make(model, prefix=f"{make.__name__}_") for make in FORMS]
    with pytest.warns(UserWarning, match="listed after") as caught:
        fit(model, early, *evaluations, epochs=1)
    told = [str(each.message) for each in caught if "listed after" in str(each.message)]
    for words, callback in zip(told, evaluations, strict=True):
        first, second = (f"`{type(each).__name__}`" for each in (early, callback))
        assert words.startswith(f"{first} should be listed after {second}: it reads")
        assert f"such as '{callback.prefix}mrr'" in words


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"frequency": 0}, "`frequency` should be a positive integer. Received: freq"),
        ({"batch_size": 0}, "`batch_size` should be a positive integer or None. Recei"),
        ({"prefix": None}, "`prefix` should be a string. Received: prefix=None"),
        ({"verbose": 7}, '`verbose` should be "auto", 0, 1 or 2. Received: verbose=7'),
        ({}, "`prefix` should give keys that are not in the logs yet"),
    ],
)
def test_errors(make, arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make(None, **arguments).on_epoch_end(0, {"loss": 0.1, "val_mrr": 0.5})


HALF = np.where(USERS % 2, -1, TARGETS)


@ALL
def test_lists_without_a_relevant_item_are_warned_of(make):
    """Once, and not where they are left out."""
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


@ALL
def test_weights_that_are_none_are_warned_of(make):
    model = build()
    weights = np.array([1.0, np.nan, 1.0, -2.0, 0.0, 1.0])
    callback = make(model, sample_weight=weights)
    times = ITEMS if make is of_row_weights else 1
    message = f"{2 * times} of {6 * times} weights that are negative or NaN, the first,"
    message += f" nan, in row {times}"
    with pytest.warns(UserWarning, match=message):
        run_epoch(callback, model)
    run_epoch(callback, model)
