"""`GroupedEvaluation`: results of rows of items, which equal those of padded lists."""

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
    """Returns features, labels and list ids. The rows of a list are not adjacent."""
    x = rng.normal(size=(ROWS, FEATURES)).astype("float32")
    return x, rng.integers(0, 4, ROWS), rng.integers(0, 12, ROWS) * 1000 - 5


def build_scorer(*, as_dict=False, outputs=None):
    """Returns a model of single items, which need not be trained."""
    keras.utils.set_random_seed(1)
    features = keras.Input((FEATURES,), name="features")
    hidden = keras.layers.Dense(4, activation="tanh")(features)
    scores = keras.layers.Dense(1, name="score")(hidden)
    model_inputs = {"features": features} if as_dict else features
    return keras.Model(model_inputs, outputs(scores, hidden) if outputs else scores)


def make_callback(*arrays, metrics=("ndcg@3",), **arguments):
    arguments = {"batch_size": BATCH_SIZE, **arguments}
    return GroupedEvaluation(*arrays, metrics, **arguments)


def evaluate_ndcg(model, /, *arrays, **arguments):
    """Returns the NDCG in the logs of an epoch."""
    logs = run_epoch(make_callback(*arrays, **arguments), model)
    assert set(logs) == {"val_ndcg_at_3"}
    return logs["val_ndcg_at_3"]


def predict_scores(model, x):
    return model.predict(x, batch_size=BATCH_SIZE, verbose=0)[:, 0]


def evaluate_padded(labels, scores, ids, weights=None, metric=None):
    """Returns the result of a metric for padded lists, by default of NDCG."""
    metric = metric or NDCG(k=3)
    if weights is not None:
        weights = pad_lists(weights, group_ids=ids, padding_value=0)
    labels = pad_lists(labels, group_ids=ids)
    return float(metric(labels, pad_lists(scores, group_ids=ids), weights))


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    "convert_ids",
    [
        lambda ids: ids.tolist(),
        lambda ids: ids.astype(str),
        lambda ids: ids.astype(bytes),
        lambda ids: [("user", number) for number in ids.tolist()],
        lambda ids: ids[:, None],
        ops.convert_to_tensor,
    ],
)
def test_ids_may_be_of_any_type(data, convert_ids):
    x, labels, ids = data
    model, members = build_scorer(), [NDCG(k=3, seed=1), MeanAveragePrecision(seed=1)]
    callback = make_callback(x, labels, convert_ids(ids), metrics=members)
    lists = labels, predict_scores(model, x), ids
    assert run_epoch(callback, model) == {
        f"val_{metric.name}": evaluate_padded(*lists, metric=metric)
        for metric in members
    }


@pytest.mark.compiles_long
@pytest.mark.parametrize("source", SOURCES)
def test_inputs_may_be_batches(data, source, rng):
    """The targets of the batches are ignored. Labels and ids are arrays."""
    x, labels, ids = data
    model, weights = build_scorer(as_dict=True), rng.random(ROWS)
    scores = predict_scores(model, {"features": x})
    expected_result = evaluate_padded(labels, scores, ids, weights)
    batches = source({"features": x}, np.zeros(ROWS), np.zeros(ROWS))
    callback = make_callback(batches, labels, ids, sample_weight=weights)
    for _ in range(2):
        assert run_epoch(callback, model) == {"val_ndcg_at_3": expected_result}


@pytest.mark.parametrize("source", SOURCES)
def test_different_numbers_of_predictions_and_ids_are_an_error(data, source):
    x, labels, ids = data
    batches = source({"features": x}, labels)
    message = r"predictions of shape \(70, 1\) for 69 ids"
    with pytest.raises(ValueError, match=message):
        evaluate_ndcg(build_scorer(as_dict=True), batches, labels[1:], ids[1:])


NO_NAMES = "`{}` should be an array with one value for each row of `x`. Nothing is re"


@pytest.mark.parametrize("make_batches", [lambda x, _: x, *SOURCES])
def test_names_and_targets_of_data_sets_are_not_read(data, make_batches):
    """The error message shows how to convert the batches to arrays."""
    x, labels, ids = data
    batches = make_batches({"features": x, "query": ids}, labels)
    arguments = {"x": batches, "labels": labels, "group_ids": ids, "metrics": ["mrr"]}
    named_columns = [
        (x, "query") for x in ("labels", "group_ids", "sample_weight", "by")
    ]
    for name, value in [*named_columns, ("labels", None)]:
        with pytest.raises(ValueError, match=NO_NAMES.format(name)) as error:
            GroupedEvaluation(**{**arguments, name: value})
        source = "y" if value is None else "x['query']"
        message = f"pass `np.concatenate([{source} for x, y in data_set])`"
        assert message in str(error.value)


OUTPUT = "`output` should be the name of the output whose scores are evaluated. Rec"


@pytest.mark.parametrize(
    "outputs", [lambda *x: list(x), lambda s, h: {"score": s, "h": h}]
)
def test_one_of_several_outputs(data, outputs):
    x, labels, ids = data
    model = build_scorer(outputs=outputs)
    predictions = model.predict(x, batch_size=BATCH_SIZE, verbose=0)
    scores = predictions["score" if isinstance(predictions, dict) else 0][:, 0]
    arrays = x, labels, ids
    assert evaluate_ndcg(model, *arrays, output="score") == evaluate_padded(
        labels, scores, ids
    )
    for name in (None, "scores"):
        with pytest.raises(ValueError, match=OUTPUT):
            evaluate_ndcg(model, *arrays, output=name)


def test_weights_of_rows_and_of_lists(data, rng):
    x, labels, ids = data
    row_weights = rng.choice([0.0, 0.5, 2.0], ROWS)
    _, first_rows, list_index = np.unique(ids, return_index=True, return_inverse=True)
    list_weights = rng.random(len(first_rows))
    ordered_weights = list_weights[np.argsort(first_rows)]
    model = build_scorer()
    scores = predict_scores(model, x)
    row_result = evaluate_padded(labels, scores, ids, row_weights)
    list_result = evaluate_padded(labels, scores, ids, list_weights[list_index])
    for weights, expected_result in (
        (row_weights, row_result),
        (ordered_weights, list_result),
    ):
        metric = NDCG(k=3)
        arguments = {"metrics": [metric], "sample_weight": weights}
        assert evaluate_ndcg(model, *data, **arguments) == expected_result
        # The callback does not change the metric that the user passed.
        assert float(metric.result()) == 0.0


@pytest.mark.compiles_long
def test_results_do_not_depend_on_parts_and_batches(data, monkeypatch):
    """The order of ties depends on the number of the list, not on its batch."""
    x, labels, ids = data
    x, model = np.sign(x), build_scorer()
    members = [NDCG(k=2, seed=3), NDCG(k=2, shuffle_ties="average", name="average")]
    group = RankingMetrics(members, standard_errors=True)
    expected = run_epoch(make_callback(x, labels, ids, metrics=group), model)
    assert list(expected) == [
        *("val_ndcg_at_2", "val_ndcg_at_2_stderr", "val_average", "val_average_stderr")
    ]
    monkeypatch.setattr(model_inputs, "MAX_ROWS", 2 * BATCH_SIZE + 1)
    monkeypatch.setattr(grouped_evaluation, "_MAX_ITEMS", 24)
    actual = run_epoch(make_callback(x, labels, ids, metrics=group), model)
    assert actual == expected


def test_sizes_of_predicted_parts_are_limited(data, monkeypatch):
    """The limit in bytes is rounded down to whole batches of `predict`."""
    x, labels, ids = data
    model = build_scorer(as_dict=True)
    sizes = record_predict_sizes(model, monkeypatch)
    monkeypatch.setattr(model_inputs, "MAX_BYTES", 40 * x[0].nbytes)
    evaluate_ndcg(model, {"features": x}, labels, ids)
    assert sizes == [(16, 16), (32, 16), (32, 16), (6, 16)]


@pytest.mark.filterwarnings("ignore:`y_pred` has .* NaN")
def test_rows_without_a_rank(data):
    """Labels of -1 are padding, and items with a score of NaN are not retrieved."""
    x, labels, ids = data
    labels, x = labels.copy(), x.copy()
    labels[::7], x[::5] = -1, np.nan
    # A list of padding alone does not count, and causes no warning.
    labels[ids == ids[0]] = -1
    model = build_scorer()
    scores = predict_scores(model, x)
    assert np.isnan(scores).sum() == 14
    assert evaluate_ndcg(model, x, labels, ids) == evaluate_padded(labels, scores, ids)


def test_ids_that_never_repeat_are_warned_about(data):
    x, labels, _ = data
    with pytest.warns(UserWarning, match="`group_ids` should repeat where rows are"):
        make_callback(x, labels, np.arange(ROWS))


IDS = "(?s)`group_ids` should be ids of one type, without missing ones. Received.*"


def invalid_calls(x, labels, ids):
    """Yields the arguments of invalid calls and the messages of their errors."""
    missing = ids.astype(object)
    missing[[7, 9]] = None
    with_nan = np.where(ids == ids[3], np.nan, ids)
    columns = build_scorer(outputs=lambda _, hidden: keras.layers.Dense(2)(hidden))
    yield (x, np.eye(ROWS), ids), r"`labels` should have .* labels.shape=\(70, 70\)"
    yield (x, labels.astype(str), ids), "`labels` should be an array of numbers, a row"
    yield (x, None, ids), NO_NAMES.format("labels")
    yield (x, labels, None), NO_NAMES.format("group_ids")
    yield (x, labels, b"query"), NO_NAMES.format("group_ids")
    yield (x, labels, [[1]] * ROWS), IDS
    yield (x, labels, missing), f"{IDS} with None in row 7"
    yield (x, labels, with_nan), f"{IDS} with nan in row "
    yield (x[:0], [], []), "`x` should hold arrays with one row for each item. Rec"
    yield (iter([x]), labels, ids), "read again after each epoch.* A generator is read"
    yield (Batches(x), [], []), "`group_ids` should have one id for each row. Received"
    yield (x[1:], labels, ids), "`group_ids` should .* Received: 70 ids for 69 rows"
    arrays = x, labels, ids
    yield (x, labels[1:], ids), "`labels` should have .* Received: 69 values for 70 ro"
    weight = {"sample_weight": [1.0]}
    yield (*arrays, weight), "`sample_weight` should have one weight for each row,"
    yield (
        (*arrays, {"model": columns}),
        r"The model should return one score .* \(16, 2\) for 16 ids",
    )
    options = {"metrics": [NDCG(sparse_labels=True)]}
    yield (*arrays, options), "`metrics` should be of lists with a label for each"
    options = {"metrics": [Gini(items=9, k=2)]}
    yield (*arrays, options), "`metrics` should be means over lists. Pass exposure met"
    # A model without inputs does not know the name of its output.
    unnamed = {"model": keras.Sequential([keras.layers.Dense(1)]), "output": "score"}
    yield (*arrays, unnamed), "output='score', where the names are unknown"


def test_invalid_arguments_are_errors(data):
    for (x, labels, ids, *arguments), message in invalid_calls(*data):
        with pytest.raises(ValueError, match=message):
            evaluate_ndcg(build_scorer(), x, labels, ids, **dict(*arguments))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x[:, None], "torch"])
def test_arguments_may_change_after_construction(data, form, rng):
    """The callback copies all arguments except inputs, which it reads in each epoch."""
    x, labels, ids = data
    if form == "torch":
        form = pytest.importorskip("torch").from_numpy
    model, weights = build_scorer(), rng.random(ROWS).astype("float32")
    expected_ndcg = evaluate_padded(labels, predict_scores(model, x), ids, weights)
    arrays = [form(values.copy()) for values in (labels, ids, weights)]
    callback = make_callback(x, *arrays[:2], sample_weight=arrays[2])
    for values in arrays:
        values[:] = 1
    assert run_epoch(callback, model) == {"val_ndcg_at_3": expected_ndcg}


def test_a_model_may_reuse_the_memory_of_its_predictions(data, monkeypatch):
    x, labels, ids = data
    monkeypatch.setattr(model_inputs, "MAX_ROWS", BATCH_SIZE)

    class Scorer:
        scores = np.zeros((BATCH_SIZE, 1), "float32")

        def predict(self, x, **arguments):
            self.scores[: len(x)] = x[:, :1]
            return self.scores[: len(x)]

    expected_ndcg = evaluate_padded(labels, x[:, 0], ids)
    assert (
        evaluate_ndcg(build_scorer(), x, labels, ids, model=Scorer()) == expected_ndcg
    )
