"""Rows of single items, evaluated list by list: the number is that of padded lists."""

import keras
import numpy as np
import pytest
from data_sets import SOURCES, Batches, tf_data
from epochs import evaluated, sizes_predicted
from keras import ops

from keras_rank.callbacks import GroupedEvaluation, grouped, inputs
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


def evaluation(*given, metrics=("ndcg@3",), **arguments):
    arguments = {"batch_size": BATCH_SIZE, **arguments}
    return GroupedEvaluation(*given, metrics, **arguments)


def result(model, /, *given, **arguments):
    """NDCG, evaluated after an epoch."""
    logs = evaluated(evaluation(*given, **arguments), model)
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
    assert evaluated(callback, model) == {
        f"val_{each.name}": expected(*given, metric=each) for each in members
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
    number = expected(labels, predicted(model, inputs), ids)
    assert result(model, batches, None, "query") == number


OUTPUT = "`output` should be the name of the output whose scores are evaluated. Rec"


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
    scores = predictions["score" if is_dict else 0][:, 0]
    arrays = given = {"features": x}, labels, ids
    if in_data_set:
        others = np.zeros((ROWS, 4))
        y = {"score": labels, "h": others} if is_dict else (labels, others)
        given = Batches({"features": x, "query": ids}, y), None, "query"
    assert result(model, *given, output="score") == expected(labels, scores, ids)
    for name in (None, "scores"):
        with pytest.raises(ValueError, match=OUTPUT):
            result(model, *arrays, output=name)


def test_weights_of_rows_and_of_lists(data, rng):
    x, labels, ids = data
    of_rows = rng.choice([0.0, 0.5, 2.0], ROWS)
    _, first_rows, of_list = np.unique(ids, return_index=True, return_inverse=True)
    of_lists = rng.random(len(first_rows))
    in_order = of_lists[np.argsort(first_rows)]
    model, named = scorer(), scorer(as_dict=True)
    unweighted = {"features": x, "query": ids}
    inputs = {**unweighted, "weight": of_rows}
    scores = predicted(model, x)
    by_rows = expected(labels, scores, ids, of_rows)
    by_lists = expected(labels, scores, ids, of_lists[of_list])
    for which, given, weights, number in (
        (model, data, of_rows, by_rows),
        (model, data, in_order, by_lists),
        (named, (Batches(unweighted, labels, of_rows), None, "query"), None, by_rows),
        (named, (Batches(inputs, labels), None, "query"), "weight", by_rows),
        (named, (inputs, labels, "query"), "weight", by_rows),
    ):
        metric = NDCG(k=3)
        arguments = {"metrics": [metric], "sample_weight": weights}
        assert result(which, *given, **arguments) == number
        # What was given is not changed.
        assert float(metric.result()) == 0.0


@pytest.mark.compiles_long
def test_parts_and_batches_of_lists_change_nothing(data, monkeypatch):
    """Nor does the order of ties, which is that of the lists."""
    x, labels, ids = data
    x, model = np.sign(x), scorer()
    members = [NDCG(k=2, seed=3), NDCG(k=2, shuffle_ties="average", name="average")]
    group = RankingMetrics(members, standard_errors=True)
    whole = evaluated(evaluation(x, labels, ids, metrics=group), model)
    assert list(whole) == [
        *("val_ndcg_at_2", "val_ndcg_at_2_stderr", "val_average", "val_average_stderr")
    ]
    monkeypatch.setattr(inputs, "MOST_ROWS", 2 * BATCH_SIZE + 1)
    monkeypatch.setattr(grouped, "_MOST_ITEMS", 24)
    found = evaluated(evaluation(x, labels, ids, metrics=group), model)
    assert found == whole
    batches, named = (
        Batches({"features": x, "query": ids}, labels),
        scorer(as_dict=True),
    )
    found = evaluated(evaluation(batches, None, "query", metrics=group), named)
    assert found == whole


def test_what_is_predicted_at_a_time_is_bounded(data, monkeypatch):
    """In bytes too, and in batches of `predict` on all rows."""
    x, labels, ids = data
    model = scorer(as_dict=True)
    sizes = sizes_predicted(model, monkeypatch)
    monkeypatch.setattr(inputs, "MOST_BYTES", 40 * x[0].nbytes)
    batches = Batches({"features": x, "query": ids}, labels)
    arrays, batches = ({"features": x}, labels, ids), (batches, None, "query")
    for given, last in ((arrays, 16), (batches, 6)):
        del sizes[:]
        result(model, *given)
        assert sizes == [(16, 16), (32, 16), (32, 16), (6, last)]


class Shuffled(Batches):
    """In another order in each pass."""

    passes = read = 0

    def __getitem__(self, index):
        self.read += 1
        if index == 0:
            order = np.random.default_rng(self.passes).permutation(ROWS)
            parts = keras.tree.map_structure(lambda each: each[order], self.parts)
            self.shuffled = Batches(*parts)
            self.passes += 1
        return self.shuffled[index]


IN_BATCHES = "put them into its batches and name them, such as `labels=None, group_id"


@pytest.mark.parametrize("source", SOURCES)
def test_values_for_all_rows_go_with_arrays(data, source):
    """Beside a data set, whose order may differ in each pass, they are an error."""
    x, labels, ids = data
    batches = source({"features": x, "query": ids}, labels)
    by = np.where(ids % 2, "odd", "even")
    for name, values in (
        *(("labels", each) for each in (labels, labels.tolist())),
        *(("group_ids", each) for each in (ids, ids.tolist(), None)),
        ("sample_weight", np.ones(ROWS)),
        ("by", by),
    ):
        given = {"labels": None, "group_ids": "query", name: values}
        given |= {"x": batches, "metrics": ["ndcg@3"]}
        message = (
            f"`{name}` should be the name of an input or .* {IN_BATCHES}.* {name}="
        )
        with pytest.raises(ValueError, match=message):
            GroupedEvaluation(**given)


def test_a_data_set_may_be_shuffled(data):
    """Each pass has an order of its own: that of ties alone depends on it.

    It is read once at each evaluation, and for one batch before the first epoch.
    """
    x, labels, ids = data
    shuffled = Shuffled({"features": x, "query": ids}, labels)
    model = scorer(as_dict=True)
    callback = evaluation(shuffled, None, "query")
    number = expected(labels, predicted(model, {"features": x}), ids)
    for _ in range(2):
        logs = evaluated(callback, model)
        assert logs == pytest.approx({"val_ndcg_at_3": number}, abs=1e-6)
    assert shuffled.passes == 4
    assert shuffled.read == 2 * (1 + len(shuffled))


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
GIVEN = "`{}` should be given for each row of the arrays `x`"


def errors(x, labels, ids):
    """The arguments of calls, and what the errors say."""
    named, missing = {"features": x}, ids.astype(object)
    missing[[7, 9]] = None
    some = np.where(ids == ids[3], np.nan, ids)
    columns = scorer(outputs=lambda _, hidden: keras.layers.Dense(2)(hidden))
    yield (x, np.eye(ROWS), ids), r"`labels` should have .* labels.shape=\(70, 70\)"
    yield (x, labels.astype(str), ids), "`labels` should be an array of numbers, a row"
    yield (x, None, ids), GIVEN.format("labels")
    yield (x, labels, None), GIVEN.format("group_ids")
    yield (x, labels, [[1]] * ROWS), IDS
    yield (x, labels, missing), f"{IDS} with None in row 7"
    yield (x, labels, some), f"{IDS} with nan in row "
    yield (x, "label", ids), r"pass `df\['label'\]`. Received: labels='label', where"
    yield (x, labels, "query"), r"pass `df\['query'\]`. Received: group_ids='query'"
    yield (named, "label", ids), r"pass `df\['label'\]`. .* names are \['features'\]"
    yield (x[:0], [], []), "`x` should hold arrays with one row for each item. Rec"
    yield (3, labels, ids), "`x` should be arrays, as `predict` takes them, or a"
    yield (iter([x]), labels, ids), "A generator is read once: make a data set of"
    yield (Batches(x, number=None), None, "query"), "`x` should be .*, and end. Rec"
    both = {**named, "query": ids}
    yield (Batches(both), None, "query"), "`labels` should be .* has no targets. Rec"
    yield (Batches(x, labels), None, "query"), "`group_ids` should be the name of one"
    yield (Batches(x[:0], labels, number=1), None, "query"), "batches of rows. Received"
    given = x, labels, ids
    yield (x, labels[1:], ids), "`labels` should have .* Received: 69 values for 70 ro"
    one = {"sample_weight": [1.0]}
    yield (*given, one), "`sample_weight` should have one weight for each row,"
    yield (*given, {"model": columns}), r"The model should return one score .* \(16, 2"
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


def test_what_is_not_understood_in_batches_is_an_error(data):
    """Some of it before the first epoch."""
    x, labels, ids = data
    inputs = {"features": x, "query": ids}

    class SomeWeights(Batches):
        """As many as there are lists."""

        def __getitem__(self, index):
            return super().__getitem__(index)[: 3 if index == 0 else 2]

    class Changing(Batches):
        """Ids of another type from the second batch on."""

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return {**x, "query": x["query"].astype(str if index else int)}, y

    some = {**inputs, "query": np.arange(ROWS) % 16}
    for batches, message in (
        (SomeWeights(some, labels, labels), "`sample_weight` should come with each"),
        (Batches(inputs, np.eye(ROWS, 2)), r"`labels` should have .*shape=\(16, 2\)"),
        (Changing(inputs, labels), f"{IDS} with '{ids[BATCH_SIZE]}' in row 0"),
    ):
        with pytest.raises(ValueError, match=message):
            result(scorer(as_dict=True), batches, None, "query")


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
    assert evaluated(callback, model) == {"val_ndcg_at_3": number}


class Refilled(Batches):
    """Batches that are written to the same memory, one after the other."""

    made = None

    def __getitem__(self, index):
        batch = super().__getitem__(index)
        self.made = self.made or keras.tree.map_structure(np.copy, batch)
        keras.tree.map_structure(np.copyto, self.made, batch)
        return self.made


def test_batches_may_be_read_into_the_same_memory(data):
    x, labels, ids = data
    model, inputs = scorer(as_dict=True), {"features": x}
    number = expected(labels, predicted(model, inputs), ids)
    batches = Refilled({**inputs, "query": ids}, labels, size=ROWS // 5)
    assert result(model, batches, None, "query") == number


def test_a_model_may_predict_into_the_same_memory(data, monkeypatch):
    x, labels, ids = data
    monkeypatch.setattr(inputs, "MOST_ROWS", BATCH_SIZE)

    class Scorer:
        scores = np.zeros((BATCH_SIZE, 1), "float32")

        def predict(self, x, **arguments):
            self.scores[: len(x)] = x[:, :1]
            return self.scores[: len(x)]

    number = expected(labels, x[:, 0], ids)
    assert result(scorer(), x, labels, ids, model=Scorer()) == number
