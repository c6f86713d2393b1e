"""Rows of single items, evaluated list by list: the number is that of padded lists."""

import keras
import numpy as np
import pytest
from data_sets import SOURCES, Batches
from epochs import record_predict_sizes, run_epoch
from keras import ops

from keras_rank.callbacks import GroupedEvaluation, grouped_evaluation, model_inputs
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
    model_inputs = {"features": features} if as_dict else features
    return keras.Model(model_inputs, outputs(scores, hidden) if outputs else scores)


def evaluation(*given, metrics=("ndcg@3",), **arguments):
    arguments = {"batch_size": BATCH_SIZE, **arguments}
    return GroupedEvaluation(*given, metrics, **arguments)


def result(model, /, *given, **arguments):
    """NDCG, evaluated after an epoch."""
    logs = run_epoch(evaluation(*given, **arguments), model)
    assert set(logs) == {"val_ndcg_at_3"}
    return logs["val_ndcg_at_3"]


def predicted(model, x):
    return model.predict(x, batch_size=BATCH_SIZE, verbose=0)[:, 0]


def expected(labels, scores, ids, weights=None, metric=None):
    """The same, of padded lists."""
    metric = metric or NDCG(k=3)
    if weights is not None:
        weights = pad_lists(weights, group_ids=ids, padding_value=0)
    labels = pad_lists(labels, group_ids=ids)
    return float(metric(labels, pad_lists(scores, group_ids=ids), weights))


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    "as_ids",
    [
        lambda ids: ids.tolist(),
        lambda ids: ids.astype(str),
        lambda ids: ids.astype(bytes),
        lambda ids: [("user", each) for each in ids.tolist()],
        lambda ids: ids[:, None],
        ops.convert_to_tensor,
    ],
)
def test_arrays(data, as_ids):
    x, labels, ids = data
    model, members = scorer(), [NDCG(k=3, seed=1), MeanAveragePrecision(seed=1)]
    callback = evaluation(x, labels, as_ids(ids), metrics=members)
    given = labels, predicted(model, x), ids
    assert run_epoch(callback, model) == {
        f"val_{each.name}": expected(*given, metric=each) for each in members
    }


@pytest.mark.parametrize("source", SOURCES)
def test_batches(data, source, rng):
    """Inputs in batches, whose targets are not read, and arrays in their order."""
    x, labels, ids = data
    model, weights = scorer(as_dict=True), rng.random(ROWS)
    scores = predicted(model, {"features": x})
    expected_result = expected(labels, scores, ids, weights)
    batches = source({"features": x}, np.zeros(ROWS), np.zeros(ROWS))
    callback = evaluation(batches, labels, ids, sample_weight=weights)
    for _ in range(2):
        assert run_epoch(callback, model) == {"val_ndcg_at_3": expected_result}


@pytest.mark.parametrize("source", SOURCES)
def test_numbers_of_predictions_and_ids_differ(data, source):
    x, labels, ids = data
    batches = source({"features": x}, labels)
    message = r"predictions of shape \(70, 1\) for 69 ids"
    with pytest.raises(ValueError, match=message):
        result(scorer(as_dict=True), batches, labels[1:], ids[1:])


NO_NAMES = "`{}` should be an array with one value for each row of `x`. Nothing is re"


@pytest.mark.parametrize("source", [lambda x, _: x, *SOURCES])
def test_names_and_targets_of_data_sets_are_not_read(data, source):
    """The error shows how to make arrays of them."""
    x, labels, ids = data
    batches = source({"features": x, "query": ids}, labels)
    given = {"x": batches, "labels": labels, "group_ids": ids, "metrics": ["mrr"]}
    by_name = [(x, "query") for x in ("labels", "group_ids", "sample_weight", "by")]
    for name, value in [*by_name, ("labels", None)]:
        with pytest.raises(ValueError, match=NO_NAMES.format(name)) as error:
            GroupedEvaluation(**{**given, name: value})
        place = "y" if value is None else "x['query']"
        message = f"pass `np.concatenate([{place} for x, y in data_set])`"
        assert message in str(error.value)


OUTPUT = "`output` should be the name of the output whose scores are evaluated. Rec"


@pytest.mark.parametrize(
    "outputs", [lambda *x: list(x), lambda s, h: {"score": s, "h": h}]
)
def test_one_of_several_outputs(data, outputs):
    x, labels, ids = data
    model = scorer(outputs=outputs)
    predictions = model.predict(x, batch_size=BATCH_SIZE, verbose=0)
    scores = predictions["score" if isinstance(predictions, dict) else 0][:, 0]
    given = x, labels, ids
    assert result(model, *given, output="score") == expected(labels, scores, ids)
    for name in (None, "scores"):
        with pytest.raises(ValueError, match=OUTPUT):
            result(model, *given, output=name)


def test_weights_of_rows_and_of_lists(data, rng):
    x, labels, ids = data
    of_rows = rng.choice([0.0, 0.5, 2.0], ROWS)
    _, first_rows, of_list = np.unique(ids, return_index=True, return_inverse=True)
    of_lists = rng.random(len(first_rows))
    in_order = of_lists[np.argsort(first_rows)]
    model = scorer()
    scores = predicted(model, x)
    by_rows = expected(labels, scores, ids, of_rows)
    by_lists = expected(labels, scores, ids, of_lists[of_list])
    for weights, number in ((of_rows, by_rows), (in_order, by_lists)):
        metric = NDCG(k=3)
        arguments = {"metrics": [metric], "sample_weight": weights}
        assert result(model, *data, **arguments) == number
        # What was given is not changed.
        assert float(metric.result()) == 0.0


@pytest.mark.compiles_long
def test_parts_and_batches_of_lists_change_nothing(data, monkeypatch):
    """Nor does the order of ties, which is that of the lists."""
    x, labels, ids = data
    x, model = np.sign(x), scorer()
    members = [NDCG(k=2, seed=3), NDCG(k=2, shuffle_ties="average", name="average")]
    group = RankingMetrics(members, standard_errors=True)
    whole = run_epoch(evaluation(x, labels, ids, metrics=group), model)
    assert list(whole) == [
        *("val_ndcg_at_2", "val_ndcg_at_2_stderr", "val_average", "val_average_stderr")
    ]
    monkeypatch.setattr(model_inputs, "MAX_ROWS", 2 * BATCH_SIZE + 1)
    monkeypatch.setattr(grouped_evaluation, "_MAX_ITEMS", 24)
    found = run_epoch(evaluation(x, labels, ids, metrics=group), model)
    assert found == whole


def test_what_is_predicted_at_a_time_is_bounded(data, monkeypatch):
    """In bytes too, and in batches of `predict` on all rows."""
    x, labels, ids = data
    model = scorer(as_dict=True)
    sizes = record_predict_sizes(model, monkeypatch)
    monkeypatch.setattr(model_inputs, "MAX_BYTES", 40 * x[0].nbytes)
    result(model, {"features": x}, labels, ids)
    assert sizes == [(16, 16), (32, 16), (32, 16), (6, 16)]


@pytest.mark.filterwarnings("ignore:`y_pred` has .* NaN")
def test_rows_without_a_rank(data):
    """Labels of -1 are padding, and scores of NaN are not retrieved."""
    x, labels, ids = data
    labels, x = labels.copy(), x.copy()
    labels[::7], x[::5] = -1, np.nan
    # A list of padding is none, of which nothing is said.
    labels[ids == ids[0]] = -1
    model = scorer()
    scores = predicted(model, x)
    assert np.isnan(scores).sum() == 14
    assert result(model, x, labels, ids) == expected(labels, scores, ids)


def test_ids_of_their_own_warn(data):
    x, labels, _ = data
    with pytest.warns(UserWarning, match="`group_ids` should repeat where rows are"):
        evaluation(x, labels, np.arange(ROWS))


IDS = "(?s)`group_ids` should be ids of one type, without missing ones. Received.*"


def errors(x, labels, ids):
    """The arguments of calls, and what the errors say."""
    missing = ids.astype(object)
    missing[[7, 9]] = None
    some = np.where(ids == ids[3], np.nan, ids)
    columns = scorer(outputs=lambda _, hidden: keras.layers.Dense(2)(hidden))
    yield (x, np.eye(ROWS), ids), r"`labels` should have .* labels.shape=\(70, 70\)"
    yield (x, labels.astype(str), ids), "`labels` should be an array of numbers, a row"
    yield (x, None, ids), NO_NAMES.format("labels")
    yield (x, labels, None), NO_NAMES.format("group_ids")
    yield (x, labels, b"query"), NO_NAMES.format("group_ids")
    yield (x, labels, [[1]] * ROWS), IDS
    yield (x, labels, missing), f"{IDS} with None in row 7"
    yield (x, labels, some), f"{IDS} with nan in row "
    yield (x[:0], [], []), "`x` should hold arrays with one row for each item. Rec"
    yield (iter([x]), labels, ids), "read again after each epoch.* A generator is read"
    yield (Batches(x), [], []), "`group_ids` should have one id for each row. Received"
    yield (x[1:], labels, ids), "`group_ids` should .* Received: 70 ids for 69 rows"
    given = x, labels, ids
    yield (x, labels[1:], ids), "`labels` should have .* Received: 69 values for 70 ro"
    one = {"sample_weight": [1.0]}
    yield (*given, one), "`sample_weight` should have one weight for each row,"
    yield (
        (*given, {"model": columns}),
        r"The model should return one score .* \(16, 2\) for 16 ids",
    )
    wrong = {"metrics": [NDCG(sparse_labels=True)]}
    yield (*given, wrong), "`metrics` should be of lists with a label for each"
    wrong = {"metrics": [Gini(items=9, k=2)]}
    yield (*given, wrong), "`metrics` should be means over lists. Those of exposure"
    # A model of one output that tells no names.
    unnamed = {"model": keras.Sequential([keras.layers.Dense(1)]), "output": "score"}
    yield (*given, unnamed), "output='score', where the names are unknown"


def test_what_is_not_understood_is_an_error(data):
    for (x, labels, ids, *arguments), message in errors(*data):
        with pytest.raises(ValueError, match=message):
            result(scorer(), x, labels, ids, **dict(*arguments))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x[:, None], "torch"])
def test_what_a_callback_keeps_may_change_afterwards(data, form, rng):
    """All but inputs, which are read again after each epoch."""
    x, labels, ids = data
    if form == "torch":
        form = pytest.importorskip("torch").from_numpy
    model, weights = scorer(), rng.random(ROWS).astype("float32")
    number = expected(labels, predicted(model, x), ids, weights)
    given = [form(values.copy()) for values in (labels, ids, weights)]
    callback = evaluation(x, *given[:2], sample_weight=given[2])
    for values in given:
        values[:] = 1
    assert run_epoch(callback, model) == {"val_ndcg_at_3": number}


def test_a_model_may_predict_into_the_same_memory(data, monkeypatch):
    x, labels, ids = data
    monkeypatch.setattr(model_inputs, "MAX_ROWS", BATCH_SIZE)

    class Scorer:
        scores = np.zeros((BATCH_SIZE, 1), "float32")

        def predict(self, x, **arguments):
            self.scores[: len(x)] = x[:, :1]
            return self.scores[: len(x)]

    number = expected(labels, x[:, 0], ids)
    assert result(scorer(), x, labels, ids, model=Scorer()) == number
