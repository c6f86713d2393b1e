"""Rows of single items, evaluated list by list: the number is that of padded lists."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_rank.callbacks import GroupedEvaluation, grouped, rows
from keras_rank.metrics import NDCG, Gini, MeanAveragePrecision, RankingMetrics
from keras_rank.utils import pad_lists

ROWS, FEATURES, BATCH_SIZE = 70, 3, 16


@pytest.fixture
def data(rng):
    """Features, labels and ids: lists of 1 to 12 rows, spread over all batches."""
    x = rng.normal(size=(ROWS, FEATURES)).astype("float32")
    return x, rng.integers(0, 4, ROWS), rng.integers(0, 12, ROWS) * 1000 - 5


def scorer(*, as_dict=False, outputs=None):
    """A model of single items, which need not be trained."""
    keras.utils.set_random_seed(1)
    features = keras.Input((FEATURES,), name="features")
    hidden = keras.layers.Dense(4, activation="tanh")(features)
    scores = keras.layers.Dense(1, name="score")(hidden)
    inputs = {"features": features} if as_dict else features
    return keras.Model(inputs, outputs(scores, hidden) if outputs else scores)


def evaluated(model, callback):
    """The logs of an epoch."""
    logs = {}
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_end(0, logs)
    return logs


def predicted(model, x):
    return model.predict(x, batch_size=BATCH_SIZE, verbose=0)[:, 0]


def expected(metric, labels, scores, ids, weights=None):
    if weights is not None:
        weights = pad_lists(weights, group_ids=ids, padding_value=0)
    labels = pad_lists(labels, group_ids=ids)
    metric.reset_state()
    return float(metric(labels, pad_lists(scores, group_ids=ids), weights))


class Batches(keras.utils.PyDataset):
    """Batches of parts of arrays; infinite without a number."""

    def __init__(self, *parts, number=-(-ROWS // BATCH_SIZE)):
        super().__init__()
        self.parts, self.number = parts, number

    @property
    def num_batches(self):
        return self.number

    def __getitem__(self, index):
        part = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return keras.tree.map_structure(lambda each: each[part], self.parts)


def tf_data(*parts):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(parts).batch(BATCH_SIZE)


class Items:
    """A data set of PyTorch, of single rows."""

    def __init__(self, parts):
        self.parts = parts

    def __len__(self):
        return len(keras.tree.flatten(self.parts)[0])

    def __getitem__(self, index):
        return keras.tree.map_structure(lambda each: each[index], self.parts)


def data_loader(*parts, **arguments):
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(Items(parts), BATCH_SIZE, **arguments)


SOURCES = [Batches, tf_data, data_loader]


@pytest.mark.parametrize(
    "as_ids",
    [
        lambda ids: ids,
        lambda ids: ids.tolist(),
        lambda ids: ids.astype("float64"),
        lambda ids: ids.astype(str),
        lambda ids: ids.astype(bytes),
        lambda ids: ids.astype(str).astype(object),
        lambda ids: [("user", each) for each in ids.tolist()],
        lambda ids: ids[:, None],
        ops.convert_to_tensor,
    ],
)
def test_arrays(data, as_ids):
    x, labels, ids = data
    model, members = scorer(), [NDCG(k=3, seed=1), MeanAveragePrecision(seed=1)]
    callback = GroupedEvaluation(x, labels, as_ids(ids), members, batch_size=BATCH_SIZE)
    scores = predicted(model, x)
    assert evaluated(model, callback) == {
        f"val_{each.name}": expected(each, labels, scores, ids) for each in members
    }


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("as_ids", ["int64", str, bytes])
def test_data_sets(data, source, as_ids):
    """Ids that the model takes no input for are not passed on."""
    x, labels, ids = data
    model, inputs = scorer(as_dict=True), {"features": x}
    if source is tf_data and as_ids is bytes:
        as_ids = str
    batches = source({**inputs, "query": ids.astype(as_ids)}, labels)
    logs = evaluated(model, GroupedEvaluation(batches, None, "query", ["ndcg@3"]))
    number = expected(NDCG(k=3), labels, predicted(model, inputs), ids)
    assert logs == {"val_ndcg_at_3": number}


@pytest.mark.parametrize("source", SOURCES)
def test_arrays_beside_a_data_set(data, source):
    x, labels, ids = data
    model = scorer()
    callback = GroupedEvaluation(source(x, labels), labels, ids, ["ndcg@3"])
    number = expected(NDCG(k=3), labels, predicted(model, x), ids)
    assert evaluated(model, callback) == {"val_ndcg_at_3": number}


def test_several_inputs(data):
    x, labels, ids = data
    inputs = [keras.Input((1,)), keras.Input((FEATURES - 1,))]
    joined = keras.layers.Concatenate()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    parts = [x[:, :1], x[:, 1:]]
    number = expected(NDCG(k=3), labels, predicted(model, parts), ids)
    callback = GroupedEvaluation(parts, labels, ids, ["ndcg@3"], batch_size=BATCH_SIZE)
    assert evaluated(model, callback) == {"val_ndcg_at_3": number}


@pytest.mark.parametrize(
    "outputs", [lambda *x: list(x), lambda s, h: {"score": s, "h": h}]
)
@pytest.mark.parametrize("in_data_set", [False, True])
def test_one_of_several_outputs(data, outputs, in_data_set):
    """Its targets and weights too, where they come with the batches."""
    x, labels, ids = data
    model = scorer(outputs=outputs, as_dict=True)
    predictions = model.predict({"features": x}, batch_size=BATCH_SIZE, verbose=0)
    is_dict = isinstance(predictions, dict)
    scores = (predictions["score"] if is_dict else predictions[0])[:, 0]
    given = {"features": x}, labels, ids
    if in_data_set:
        others = np.zeros((ROWS, 4))
        names = model.output_names
        y = {"score": labels, "h": others} if is_dict else (labels, others)
        assert len(names) == 2
        given = Batches({"features": x, "query": ids}, y), None, "query"
    callback = GroupedEvaluation(
        *given, ["ndcg@3"], output="score", batch_size=BATCH_SIZE
    )
    number = expected(NDCG(k=3), labels, scores, ids)
    assert evaluated(model, callback) == {"val_ndcg_at_3": number}
    message = (
        "`output` should be the name of the output whose scores are evaluated. Rec"
    )
    for name in (None, "scores"):
        callback = GroupedEvaluation({"features": x}, labels, ids, ["mrr"], output=name)
        with pytest.raises(ValueError, match=message):
            evaluated(model, callback)


def test_weights_of_rows_and_of_lists(data, rng):
    x, labels, ids = data
    model, metric = scorer(), NDCG(k=3)
    of_rows = rng.choice([0.0, 0.5, 2.0], ROWS)
    first_rows = np.sort(np.unique(ids, return_index=True)[1])
    of_lists = rng.random(len(first_rows))
    scores = predicted(model, x)
    by_rows = dict(zip(ids[first_rows], of_lists, strict=True))
    for given, padded in (
        (of_rows, of_rows),
        (of_lists, np.array([by_rows[each] for each in ids])),
    ):
        callback = GroupedEvaluation(
            x, labels, ids, [metric], sample_weight=given, batch_size=BATCH_SIZE
        )
        number = expected(metric, labels, scores, ids, padded)
        assert evaluated(model, callback) == {"val_ndcg_at_3": number}
        # What was given is not changed.
        assert float(metric.result()) == number
    unweighted = {"features": x, "query": ids}
    inputs = {**unweighted, "weight": of_rows}
    model, number = scorer(as_dict=True), expected(metric, labels, scores, ids, of_rows)
    for batches, weights in (
        (Batches(unweighted, labels, of_rows), None),
        (Batches(inputs, labels), "weight"),
        (inputs, "weight"),
    ):
        callback = GroupedEvaluation(
            batches,
            labels if batches is inputs else None,
            "query",
            [metric],
            sample_weight=weights,
            batch_size=BATCH_SIZE,
        )
        assert evaluated(model, callback) == {"val_ndcg_at_3": number}


def test_parts_and_batches_of_lists_change_nothing(data, monkeypatch):
    """Nor does the order of ties, which is that of the lists."""
    x, labels, ids = data
    x = np.round(x)
    model = scorer()
    group = RankingMetrics(
        [NDCG(k=2, seed=3), NDCG(k=2, shuffle_ties="average", name="average")],
        standard_errors=True,
    )
    given = x, labels, ids, group
    whole = evaluated(model, GroupedEvaluation(*given, batch_size=BATCH_SIZE))
    assert set(whole) == {
        *("val_ndcg_at_2", "val_ndcg_at_2_stderr", "val_average", "val_average_stderr")
    }
    monkeypatch.setattr(rows, "_MOST_ROWS", 2 * BATCH_SIZE + 1)
    monkeypatch.setattr(grouped, "_MOST_ITEMS", 24)
    parts = evaluated(model, GroupedEvaluation(*given, batch_size=BATCH_SIZE))
    assert parts == whole
    batches = Batches(x, labels)
    assert evaluated(model, GroupedEvaluation(batches, labels, ids, group)) == whole


def test_what_is_predicted_at_a_time_is_bounded(data, monkeypatch):
    """In bytes too, and in batches of `predict` on all rows."""
    x, labels, ids = data
    model, sizes = scorer(), []
    predict = model.predict

    def recorded(x, batch_size, verbose):
        sizes.append((len(x), batch_size))
        return predict(x, batch_size=batch_size, verbose=verbose)

    monkeypatch.setattr(model, "predict", recorded)
    monkeypatch.setattr(rows, "_MOST_BYTES", 40 * x[0].nbytes)
    callback = GroupedEvaluation(x, labels, ids, ["mrr"], batch_size=BATCH_SIZE)
    evaluated(model, callback)
    assert sizes == [(16, 16), (32, 16), (32, 16), (6, 16)]
    del sizes[:]
    evaluated(model, GroupedEvaluation(Batches(x), labels, ids, ["mrr"]))
    assert sizes == [(16, 16), (32, 16), (32, 16), (6, 6)]


class Shuffled(Batches):
    """In another order in each pass."""

    def __getitem__(self, index):
        if index == 0:
            order = np.random.default_rng(self.passes).permutation(len(self.parts[0]))
            self.shuffled = [each[order] for each in self.parts]
            self.passes += 1
        part = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return tuple(each[part] for each in self.shuffled)

    passes = 0


@pytest.mark.parametrize(
    "shuffled",
    [
        Shuffled,
        lambda *parts: tf_data(*parts).unbatch().shuffle(ROWS).batch(BATCH_SIZE),
        lambda *parts: tf_data(*parts).shuffle(3),
        lambda *parts: data_loader(*parts, shuffle=True),
    ],
)
def test_a_shuffled_data_set_is_an_error(data, shuffled):
    x, labels, ids = data
    batches = shuffled(x)
    message = "`x` should have its rows in the order of the labels and ids that are giv"
    with pytest.raises(ValueError, match=message):
        evaluated(scorer(), GroupedEvaluation(batches, labels, ids, ["mrr"]))


def test_an_order_of_its_own_is_an_error(data):
    """The same in each pass, but not that of the labels."""
    x, labels, ids = data
    batches = Batches(x[::-1], labels[::-1])
    with pytest.raises(ValueError, match="a data set that has the labels in another"):
        evaluated(scorer(), GroupedEvaluation(batches, labels, ids, ["mrr"]))


def test_a_data_set_that_is_shuffled_later_is_an_error(data):
    x, labels, ids = data
    batches, model = Batches(x), scorer()
    callback = GroupedEvaluation(batches, labels, ids, ["mrr"])
    evaluated(model, callback)
    batches.parts = (x[::-1],)
    with pytest.raises(ValueError, match="another order of them, in each pass"):
        callback.on_epoch_end(1, {})


def test_what_comes_with_the_batches_may_be_shuffled(data):
    """Each pass has an order of its own: that of ties alone depends on it."""
    x, labels, ids = data
    shuffled = Shuffled(np.concatenate([x, ids[:, None]], axis=1), labels)

    class Named(Batches):
        def __getitem__(self, index):
            x, labels = shuffled[index]
            return {"features": x[:, :-1], "query": x[:, -1].astype(int)}, labels

    model = scorer(as_dict=True)
    callback = GroupedEvaluation(Named(), None, "query", ["ndcg@3"])
    number = expected(NDCG(k=3), labels, predicted(model, {"features": x}), ids)
    logs = evaluated(model, callback), evaluated(model, callback)
    assert logs[0] == pytest.approx({"val_ndcg_at_3": number}, abs=1e-6)
    assert logs[1] == pytest.approx(logs[0], abs=1e-6)
    assert shuffled.passes == 4


def test_rows_without_a_rank(data):
    """Labels of -1 are padding, and scores of NaN are not retrieved."""
    x, labels, ids = data
    labels, x = labels.copy(), x.copy()
    labels[::7], x[::5] = -1, np.nan
    model = scorer()
    callback = GroupedEvaluation(x, labels, ids, ["ndcg@3"], batch_size=BATCH_SIZE)
    scores = predicted(model, x)
    assert np.isnan(scores).sum() == 14
    number = expected(NDCG(k=3), labels, scores, ids)
    assert evaluated(model, callback) == {"val_ndcg_at_3": number}


def test_ids_of_their_own_warn(data):
    x, labels, _ = data
    with pytest.warns(UserWarning, match="`group_ids` should repeat where rows are"):
        GroupedEvaluation(x, labels, np.arange(ROWS), ["mrr"])


@pytest.mark.trains
def test_fit_shows_results_to_the_callbacks_after(data, tmp_path):
    x, labels, ids = data
    model = scorer()
    model.compile(keras.optimizers.Adam(0.05), "mse")
    callback = GroupedEvaluation(
        x, labels, ids, ["ndcg@3"], prefix="rows_", frequency=2, verbose=0
    )
    monitored = {"monitor": "rows_ndcg_at_3", "mode": "max"}
    stop = keras.callbacks.EarlyStopping(**monitored, patience=9)
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.weights.h5",
        **monitored,
        save_best_only=True,
        save_weights_only=True,
    )
    given = x, labels.astype("float32")
    history = model.fit(*given, epochs=4, verbose=0, callbacks=[callback]).history
    assert len(history["rows_ndcg_at_3"]) == 2
    callback.frequency = 1
    callbacks = [callback, stop, best]
    history = model.fit(*given, epochs=2, verbose=0, callbacks=callbacks).history
    assert stop.best == max(history["rows_ndcg_at_3"])
    scores = model.predict(x, verbose=0)[:, 0]
    assert history["rows_ndcg_at_3"][-1] == expected(NDCG(k=3), labels, scores, ids)
    assert (tmp_path / "best.weights.h5").exists()
    early = keras.callbacks.EarlyStopping("loss")
    with pytest.warns(UserWarning, match="`EarlyStopping` should be listed after `G"):
        model.fit(*given, verbose=0, callbacks=[early, callback])
    callback.prefix = ""
    model.compile("sgd", "mse", metrics=[keras.metrics.MeanSquaredError("ndcg_at_3")])
    with pytest.raises(ValueError, match="`prefix` should give keys that are not in"):
        model.fit(*given, verbose=0, callbacks=[callback])


@pytest.mark.trains
@pytest.mark.parametrize("swap_on_epoch", [False, True])
def test_averaged_weights_are_evaluated_as_in_validation(data, swap_on_epoch):
    """The rows are one list, which a compiled metric of a batch sees whole."""
    x, labels, _ = data
    labels = labels.astype("float32")

    def logs(*callbacks, **validation):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((FEATURES,))
        model = keras.Model(inputs, ops.squeeze(keras.layers.Dense(1)(inputs), 1))
        adam = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.9)
        model.compile(adam, "mse", metrics=[NDCG(seed=1)])
        given = {"epochs": 2, "batch_size": ROWS, "verbose": 0, **validation}
        history = model.fit(x, labels, callbacks=callbacks, **given).history
        return {name: each for name, each in history.items() if name.endswith("_ndcg")}

    def evaluation(prefix):
        given = {"prefix": prefix, "batch_size": ROWS}
        return GroupedEvaluation(x, labels, [0] * ROWS, [NDCG(seed=1)], **given)

    raw = logs(evaluation("raw_"))["raw_ndcg"]
    found = []
    for validation in ({"validation_data": (x, labels)}, {}):
        first, second = (keras.callbacks.SwapEMAWeights(swap_on_epoch) for _ in "12")
        found.append(logs(evaluation("own_"), first, **validation))
        found.append(logs(second, evaluation("own_"), **validation))
    averaged = found[0]["val_ndcg"]
    assert raw != averaged
    assert [len(each) for each in found] == [2, 2, 1, 1]
    for values in (values for each in found for values in each.values()):
        assert values == pytest.approx(averaged, abs=1e-6)


def two_columns(scores, hidden):
    return keras.layers.Dense(2)(hidden)


def test_what_is_not_understood_is_an_error(data):
    x, labels, ids = data
    model = scorer()
    named = scorer(as_dict=True)
    inputs = {"features": x, "query": ids}

    def generator():
        yield x, labels

    class Endless:
        def __iter__(self):
            while True:
                yield x

    for x_, labels_, ids_, message, arguments in (
        (x, labels[1:], ids, "`labels` should have one value for each row. Rec", {}),
        (x, labels, ids[1:], "`group_ids` should have one value for each row. R", {}),
        (x, np.eye(ROWS), ids, r"`labels` should have .* labels.shape=\(70, 70\)", {}),
        (x, labels.astype(str), ids, "`labels` should be an array of numbers wi", {}),
        (x, None, ids, "`labels` should be given for each row of the arrays `x`", {}),
        (x, labels, None, "`group_ids` should be given for each row of the arr", {}),
        (x, labels, "query", "`group_ids` should be values for each row, or the", {}),
        (x, labels, [*ids[1:], None], "`group_ids` should be ids of one type, wit", {}),
        (x, labels, [*ids[1:], "7"], "`group_ids` should be ids of one type, with", {}),
        (x, labels, ids + np.nan, "`group_ids` should be ids of one type, without", {}),
        (x, labels, np.ma.array(ids, mask=ids > 9), "`group_ids` should be", {}),
        (x, labels, [[1]] * ROWS, "`group_ids` should be ids of one type, without", {}),
        ([x, x[1:]], labels, ids, "`x` should hold arrays with one row for each", {}),
        (x[:0], [], [], "`x` should hold arrays with one row for each item. Rec", {}),
        (3, labels, ids, "`x` should be arrays, as `predict` takes them, or a", {}),
        (generator(), labels, ids, "A generator is read once: make a data set of", {}),
        (Batches(x, number=None), labels, ids, "`x` should be .*, and end. Rec", {}),
        (Endless(), labels, ids, "Received: 70 values for 140 or more rows", {}),
        (Batches(x), None, ids, "`labels` should be given, as the data set `x` ha", {}),
        (Batches(x), labels, None, "`group_ids` should be ids, or the name of th", {}),
        (Batches(x), labels, "query", "`group_ids` should be values for each row", {}),
        (Batches(x[1:]), labels, ids, "Received: 70 values for 69 rows", {}),
        (
            x,
            labels,
            ids,
            "`output` should be the name of an output of the mod",
            {"output": "a"},
        ),
        (
            x,
            labels,
            ids,
            "`sample_weight` should have one weight for each row,",
            {"sample_weight": [1.0]},
        ),
        (
            x,
            labels,
            ids,
            "`batch_size` should be a positive integer or None.",
            {"batch_size": 0},
        ),
        (
            x,
            labels,
            ids,
            "`prefix` should be a string. Received: prefix=None",
            {"prefix": None},
        ),
        (
            x,
            labels,
            ids,
            "`model` should be a model with a method `predict`",
            {"model": 3},
        ),
        (
            x,
            labels,
            ids,
            r"The model should return one score .* \(16, 2\)",
            {"model": scorer(outputs=two_columns)},
        ),
    ):
        with pytest.raises(ValueError, match=message):
            evaluated(
                model,
                GroupedEvaluation(
                    x_,
                    labels_,
                    ids_,
                    ["mrr"],
                    **{"batch_size": BATCH_SIZE, **arguments},
                ),
            )
    for metric in (NDCG(sparse_labels=True), Gini(items=9, k=2)):
        with pytest.raises(ValueError, match="`metrics` should be of lists with a la"):
            GroupedEvaluation(x, labels, ids, [metric])
    # A model of one output that tells no names, and weights of some batches: as many as
    # there are lists.
    subclass = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="output='score', where the names are unknown"):
        evaluated(subclass, GroupedEvaluation(x, labels, ids, ["mrr"], output="score"))

    class SomeWeights(Batches):
        def __getitem__(self, index):
            return super().__getitem__(index)[: 3 if index == 0 else 2]

    some = SomeWeights({"features": x, "query": np.arange(ROWS) % 16}, labels, labels)
    with pytest.raises(ValueError, match="Received: weights of 16 of 70 rows"):
        evaluated(named, GroupedEvaluation(some, None, "query", ["mrr"]))
    # What comes in batches is looked at before the first epoch too.
    batches = Batches(inputs, labels[:, None] * np.ones(2))
    with pytest.raises(ValueError, match=r"`labels` should have .*shape=\(16, 2\)"):
        evaluated(named, GroupedEvaluation(batches, None, "query", ["mrr"]))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x[:, None], "torch"])
def test_what_a_callback_keeps_may_change_afterwards(data, form, rng):
    """All but inputs, which are read again after each epoch."""
    x, labels, ids = data
    if form == "torch":
        form = pytest.importorskip("torch").from_numpy
    weights = rng.random(ROWS).astype("float32")
    given = [form(each.copy()) for each in (labels, ids, weights)]
    for x_ in (x, Batches(x)):
        callback = GroupedEvaluation(
            x_,
            *given[:2],
            [NDCG(k=3, seed=1)],
            sample_weight=given[2],
            batch_size=BATCH_SIZE,
        )
        before = [np.array(each) for each in given]
        for each in given:
            each[:] = 1
        model = scorer()
        number = expected(NDCG(k=3, seed=1), labels, predicted(model, x), ids, weights)
        assert evaluated(model, callback) == {"val_ndcg_at_3": number}
        for each, value in zip(given, before, strict=True):
            each[:] = form(value.reshape(-1)) if value.ndim == 1 else value


class Refilled(Batches):
    """Batches that are written to the same memory, one after the other."""

    made = None

    def __getitem__(self, index):
        batch = super().__getitem__(index)
        if self.made is None or index == self.num_batches - 1:
            made = keras.tree.map_structure(np.copy, batch)
            self.made = self.made or made
            return made
        for old, new in zip(*map(keras.tree.flatten, (self.made, batch)), strict=True):
            old[:] = new
        return self.made


@pytest.mark.parametrize("labels_are_given", [False, True])
def test_batches_may_be_read_into_the_same_memory(data, labels_are_given):
    x, labels, ids = data
    batches = Refilled({"features": x, "query": ids}, labels)
    given = (labels, ids) if labels_are_given else (None, "query")
    model = scorer(as_dict=True)
    if labels_are_given:
        batches = Refilled({"features": x}, labels)
    logs = evaluated(model, GroupedEvaluation(batches, *given, ["ndcg@3"]))
    scores = predicted(model, {"features": x})
    assert logs == {"val_ndcg_at_3": expected(NDCG(k=3), labels, scores, ids)}


def test_a_model_may_predict_into_the_same_memory(data, monkeypatch):
    x, labels, ids = data
    monkeypatch.setattr(rows, "_MOST_ROWS", BATCH_SIZE)

    class Scorer:
        scores = np.zeros((BATCH_SIZE, 1), "float32")

        def predict(self, x, **arguments):
            self.scores[: len(x)] = x[:, :1]
            return self.scores[: len(x)]

    callback = GroupedEvaluation(
        x, labels, ids, ["ndcg@3"], model=Scorer(), batch_size=BATCH_SIZE
    )
    number = expected(NDCG(k=3), labels, x[:, 0], ids)
    assert evaluated(scorer(), callback) == {"val_ndcg_at_3": number}


def test_lists_without_a_relevant_item_are_warned_of(data):
    """Once, and not where they are left out, nor of lists of padding."""
    x, labels, ids = data
    model = scorer()
    groups = np.unique(ids)
    padded = labels.copy()
    labels = np.where(np.isin(ids, groups[:3]), 0, np.maximum(labels, 1))
    padded = np.where(np.isin(ids, groups[:3]), -1, labels)
    message = (
        rf"3 of {len(groups)} lists have no relevant item, and count as 0.0 in "
        r"'val_ndcg'. To leave them out, pass only lists that have one, or `NDCG\("
    )
    batches = Batches({"features": x, "query": ids}, labels)
    for scoring, given in (
        (model, (x, labels, ids)),
        (scorer(as_dict=True), (batches, None, "query")),
    ):
        callback = GroupedEvaluation(*given, ["ndcg"])
        with pytest.warns(UserWarning, match=message):
            evaluated(scoring, callback)
        evaluated(scoring, callback)
    evaluated(model, GroupedEvaluation(x, labels, ids, [NDCG(empty_value=None)]))
    evaluated(model, GroupedEvaluation(x, padded, ids, ["ndcg"]))
    evaluated(
        model, GroupedEvaluation(x, labels, ids, ["ndcg"], sample_weight=padded >= 0)
    )


def test_weights_that_are_none_are_warned_of(data):
    x, labels, ids = data
    labels = np.maximum(labels, 1)
    weights = np.ones(ROWS)
    weights[[7, 9, 11]] = np.nan, -1.0, 0.0
    message = "2 of 70 weights that are negative or NaN, the first, nan, in row 7. Th"
    callback = GroupedEvaluation(x, labels, ids, ["mrr"], sample_weight=weights)
    with pytest.warns(UserWarning, match=message):
        evaluated(scorer(), callback)
    evaluated(scorer(), callback)
    inputs = {"features": x, "query": ids}
    callback = GroupedEvaluation(
        Batches(inputs, labels, weights), None, "query", ["mrr"]
    )
    with pytest.warns(UserWarning, match=message):
        evaluated(scorer(as_dict=True), callback)


def test_errors_say_where_and_what_to_do(data):
    x, labels, ids = data
    named = {"features": x}
    missing = ids.astype(object)
    missing[[7, 9]] = None
    as_text = ids.astype(str).tolist()
    for given, message in (
        ((x, "label", ids), r"pass `df\['label'\]`. Received: labels='label', where"),
        ((x, labels, "query"), r"pass `df\['query'\]`. Received: group_ids='query'"),
        ((named, "label", ids), r"pass `df\['label'\]`. .* names are \['features'\]"),
        ((x, labels, missing), "with None in row 7"),
        ((x, labels, [*ids[:5], np.nan, *ids[6:]]), "with nan in row 5"),
        ((x, labels, np.where(ids == ids[3], np.nan, ids)), "with nan in row "),
        (
            (x, labels, np.ma.array(ids, mask=np.arange(ROWS) == 8)),
            "with None in row 8",
        ),
        ((x, labels, [*as_text[:4], 5, *as_text[5:]]), "with 5 in row 4"),
    ):
        with pytest.raises(ValueError, match=message):
            GroupedEvaluation(*given, ["mrr"])

    class Changing(Batches):
        """Ids of another type from the second batch on."""

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return {**x, "query": x["query"].astype(str if index else int)}, y

    batches = Changing({"features": x, "query": ids}, labels)
    callback = GroupedEvaluation(batches, None, "query", ["mrr"])
    first = str(ids[BATCH_SIZE])
    with pytest.raises(ValueError, match=f"ids of one type.* with '{first}' in row 0"):
        evaluated(scorer(as_dict=True), callback)
