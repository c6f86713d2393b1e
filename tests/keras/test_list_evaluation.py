"""`ListEvaluation`: results in `fit`, which equal those of metrics of predictions."""

import keras
import numpy as np
import pytest
import scipy.sparse
from epochs import Identity, record_predict_sizes, run_epoch
from keras import ops

from keras_rank import metrics
from keras_rank.callbacks import ListEvaluation, list_evaluation, model_inputs
from keras_rank.metrics import NDCG, Coverage, MeanAveragePrecision, RankingMetrics

LISTS, ITEMS, FEATURES, BATCH_SIZE = 40, 6, 3, 16
# Padding follows the items of a list, and some lists have none.
SIZES = 1 + np.arange(LISTS) * 5 % ITEMS
MASK = np.arange(ITEMS) < SIZES[:, None]
BY = np.where(np.arange(LISTS) % 3, "others", "new users")

# The tests need lists without a relevant item.
pytestmark = pytest.mark.filterwarnings("ignore:.*have no relevant item")


@pytest.fixture
def data(rng):
    """Returns features, some of which are equal, and labels with padding."""
    x = np.sign(rng.normal(size=(LISTS, ITEMS, FEATURES))).astype("float32")
    return x, np.where(MASK, rng.integers(0, 4, MASK.shape), -1)


def build_scorer(form=None):
    """Returns a model of lists, which need not be trained."""
    keras.utils.set_random_seed(1)
    if form is None:
        x = inputs = keras.Input((ITEMS, FEATURES))
    else:
        parts = [keras.Input((ITEMS, 1), name=f"x{i}") for i in range(FEATURES)]
        x, inputs = keras.layers.Concatenate()(parts), form(parts)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def make_dict(parts):
    return {f"x{i}": part for i, part in enumerate(parts)}


def make_metrics():
    return [NDCG(k=3, seed=1), MeanAveragePrecision(seed=1, empty_value=None)]


def evaluate(x, y, model=None, metrics=None, **arguments):
    """Returns the logs of an epoch by the names of the metrics."""
    arguments = {"batch_size": BATCH_SIZE, "prefix": "", **arguments}
    metrics = metrics or make_metrics()
    return run_epoch(
        ListEvaluation(x, y, metrics, **arguments), model or build_scorer()
    )


def predict_scores(x, model=None):
    return (model or build_scorer()).predict(x, batch_size=BATCH_SIZE, verbose=0)


def evaluate_metrics(y, scores, weights=None, metrics=None):
    """Returns the results of metrics outside of the callback."""
    metrics = metrics or make_metrics()
    for metric in metrics:
        metric.reset_state()
    return {metric.name: float(metric(y, scores, weights)) for metric in metrics}


def to_ragged(padded):
    return [row[:size].tolist() for row, size in zip(padded, SIZES, strict=True)]


FORMS = [
    lambda y: y,
    lambda y: y.tolist(),
    lambda y: np.where(MASK, y, np.nan),
    lambda y: y[:, :, None],
    lambda y: ops.convert_to_tensor(y),
    lambda y: pytest.importorskip("pandas").DataFrame(y),
    lambda y: pytest.importorskip("torch").from_numpy(y),
    to_ragged,
    lambda y: {"labels": y},
    lambda y: {"labels": np.abs(y), "mask": MASK},
    lambda y: {"labels": to_ragged(y), "mask": to_ragged(MASK)},
]


@pytest.mark.compiles_long
@pytest.mark.parametrize("form", FORMS)
def test_labels_in_any_form(data, form):
    x, y = data
    assert evaluate(x, form(y)) == evaluate_metrics(y, predict_scores(x))


@pytest.mark.compiles_long
@pytest.mark.parametrize("form", [list, tuple, make_dict])
def test_several_inputs(data, form):
    x, y = data
    parts, model = form(np.split(x, FEATURES, axis=2)), build_scorer(form)
    assert evaluate(parts, y, model) == evaluate_metrics(
        y, predict_scores(parts, model)
    )


WEIGHTS = [lambda w: w[:, 0], lambda w: w[:, :1], lambda w: w, lambda w: w.tolist()]


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights_of_lists_and_of_items(data, rng, form):
    x, y = data
    weights = form(rng.choice([0.0, 0.5, 2.0], y.shape))
    actual = evaluate(x, y, sample_weight=weights)
    assert actual == evaluate_metrics(y, predict_scores(x), weights)
    if np.shape(weights) == y.shape:
        ragged = to_ragged(np.asarray(weights))
        assert evaluate(x, to_ragged(y), sample_weight=ragged) == actual


@pytest.mark.compiles_long
def test_results_do_not_depend_on_parts(data, monkeypatch):
    """The numbers of scores, rows and bytes limit the batches of a part."""
    x, y = data
    group = RankingMetrics(NDCG(k=3, seed=1), standard_errors=True)
    expected = evaluate(x, y, metrics=group, by=BY)
    assert len(expected) == 2 * 3
    model = build_scorer()
    sizes = record_predict_sizes(model, monkeypatch)
    first = BATCH_SIZE, BATCH_SIZE
    for module, name, value, expected_sizes in (
        (list_evaluation, "MAX_SCORES", 1, [16, 16, 8]),
        (list_evaluation, "MAX_SCORES", 35 * ITEMS, [32, 8]),
        (model_inputs, "MAX_ROWS", 31, [16, 16, 8]),
        (model_inputs, "MAX_BYTES", 35 * x[0].nbytes, [32, 8]),
    ):
        del sizes[:]
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert evaluate(x, y, model, metrics=group, by=BY) == expected
        assert sizes == [first, *((size, BATCH_SIZE) for size in expected_sizes)]


TARGETS = np.stack([np.arange(LISTS) % ITEMS, np.arange(LISTS) % 4 - 1], axis=1)
GRADES = 1 + np.arange(2 * LISTS).reshape(LISTS, 2) % 3
IDS = [
    TARGETS,
    TARGETS[:, 0],
    TARGETS.astype("float32"),
    [row[: 1 + (row[1] >= 0)].tolist() for row in TARGETS],
    {"ids": TARGETS},
    {"ids": TARGETS[:, 0], "labels": GRADES[:, 0]},
    {"ids": TARGETS[:, :1], "labels": GRADES[:, :1], "mask": SIZES[:, None] > 2},
    {"labels": TARGETS, "mask": TARGETS > 1},
    scipy.sparse.coo_array(np.eye(LISTS, ITEMS)),
]


@pytest.mark.compiles_long
@pytest.mark.parametrize("ids", IDS)
def test_ids_of_a_catalogue(data, ids):
    x, _ = data
    id_metrics = [
        NDCG(k=3, sparse_labels=True, seed=1),
        metrics.MeanReciprocalRank(sparse_labels=True, shuffle_ties="average"),
    ]
    scores = predict_scores(x)[..., 0]
    model = {"model": Identity(), "metrics": id_metrics}
    actual = evaluate(scores, ids, sample_weight=SIZES, **model)
    assert actual == evaluate_metrics(ids, scores, SIZES, id_metrics)


@pytest.mark.compiles_long
def test_ids_at_every_position(rng):
    """Each position is a list, in the segment of its row."""
    scores = rng.integers(0, 4, (LISTS, 5, ITEMS)).astype("float32")
    ids = rng.integers(-1, ITEMS, (LISTS, 5))
    id_metrics = [NDCG(k=3, sparse_labels=True, shuffle_ties="average")]
    arguments = {"model": Identity(), "metrics": id_metrics}
    actual = evaluate(scores, ids, by=BY, **arguments)
    (name,) = expected = evaluate_metrics(ids, scores, metrics=id_metrics)
    for segment, suffix in (("new users", "new_users"), ("others", "others")):
        in_segment = segment == BY
        segment_result = evaluate_metrics(
            ids[in_segment], scores[in_segment], metrics=id_metrics
        )[name]
        expected[f"{name}_{suffix}"] = pytest.approx(segment_result)
    assert actual == expected


@pytest.mark.compiles_long
def test_labels_of_subtopics(data, rng):
    x, _ = data
    labels = np.where(MASK[..., None], rng.integers(0, 2, (*MASK.shape, 3)), -1)
    members = [metrics.AlphaNDCG(k=3, seed=1)]
    actual = evaluate(x, labels, metrics=members)
    assert actual == evaluate_metrics(labels, predict_scores(x), metrics=members)


def invalid_calls(x, y):
    """Yields the arguments of invalid calls and the messages of their errors."""
    ids, mixed = [NDCG(sparse_labels=True)], [NDCG(sparse_labels=True), NDCG(k=2)]
    identity, ragged = {"model": Identity()}, {"labels": to_ragged(y)}
    row = "have a row for each list. Received"
    one_each = "one score for each label, .* of shape"
    yield (x[1:], y), rf"`y` should {row}: y.shape=\(40, 6\) for 39 lists"
    yield (x, {"labels": y, "mask": MASK[1:]}), f"`mask` should {row}"
    yield (x, y, {"sample_weight": 2.0}), rf"{row}: sample_weight.shape=\(\) for 40"
    yield (x, y, {"by": BY[1:]}), "`by` should have one label for each list. .* 39 lab"
    yield ([x, x[1:]], y), r"`x` should hold arrays with one row for each list. .* \["
    yield (x.tolist(), y), "`x` should be arrays with a row for each list. Received"
    yield (x, y[:, 0]), r"`y` should .* or hold ids .* Received: y.shape=\(40,\)"
    yield (x, y.astype(str)), "`y` should hold real numbers. Received: y of dtype"
    yield (x, None), "`y` should hold real numbers. Received: y of type NoneType"
    yield (x, {"ids": y}), r"`y` should be labels, .* \['ids'\] are unknown"
    yield (x, {"id": y}, {"metrics": ids}), "`y` should be ids, or a dict with the keys"
    yield (
        (x, {**ragged, "mask": to_ragged(y[:, 1:])}),
        "as many items as `labels` in eve",
    )
    yield (x, ragged, {"sample_weight": to_ragged(y)[1:]}), "as many lists as `labels`"
    yield (x, y, {"metrics": mixed}), "`metrics` should all have `sparse_labels=True`"
    yield (x, y, {"metrics": [Coverage(2)]}), "`metrics` should be means .*'coverage_at"
    yield (x, y, {"output": "a"}), "`output` should be the name of the output whose sc"
    yield (x, y, {"model": 3}), "`model` should be a model with a method `predict`"
    yield (x, y[:, 1:]), rf"{one_each} \(16, 6, 1\), and y.shape=\(40, 5\)"
    yield (x, y, identity), rf"{one_each} \(16, 6, 3\), and y.shape=\(40, 6\)"
    yield (x[:, 0, 0], y, identity), rf"{one_each} \(16,\)"
    yield (x, y, {"model": Short()}), "The model should return the scores of each list"
    yield (x, y, {"sample_weight": y[:, 1:]}), r"`sample_weight` should .*=\(16, 5\)"
    large = np.where(np.arange(LISTS)[:, None] == 30, 6, TARGETS)
    for targets in (large, {"ids": large, "labels": GRADES}):
        arguments = x[..., 0], targets, {**identity, "metrics": ids}
        yield arguments, "`y` should .* a larger id, 6, in row 30"
    yield (x, np.stack([y, y], 2)), "`y_true` should have one number for each item"


class Short(Identity):
    def predict(self, x, **settings):
        return x[1:]


def start_training(x, y, metrics=("mrr",), **arguments):
    """Starts the training of a callback, without an epoch."""
    callback = ListEvaluation(x, y, metrics, batch_size=BATCH_SIZE, **arguments)
    callback.set_model(build_scorer())
    callback.on_train_begin()


def test_invalid_arguments_are_errors(data):
    for (x, y, *arguments), message in invalid_calls(*data):
        with pytest.raises(ValueError, match=message):
            start_training(x, y, **dict(*arguments))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"labels": x}, "torch"])
def test_arguments_may_change_after_construction(data, rng, form):
    """The callback copies all arguments except inputs, which it reads in each epoch."""
    x, y = data
    if form == "torch":
        form = pytest.importorskip("torch").from_numpy
    weights, by = rng.random(LISTS), BY.copy()
    expected = evaluate(x, y, by=BY, sample_weight=weights)
    copies, model = [y.copy(), weights.copy()], build_scorer()
    options = {"by": by, "sample_weight": copies[1], "batch_size": BATCH_SIZE}
    callback = ListEvaluation(x, form(copies[0]), make_metrics(), prefix="", **options)
    for array in (*copies, by):
        array[:] = array[0].copy()
    assert run_epoch(callback, model) == expected
    x[:] = -x
    logs = {}
    callback.on_epoch_end(1, logs)
    assert logs == evaluate(x, y, by=BY, sample_weight=weights)
    assert logs != expected
