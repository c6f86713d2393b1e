"""Padded lists, evaluated in `fit`: the number is that of the metric and `predict`."""

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
# A list has its items first, and one is full.
SIZES = 1 + np.arange(LISTS) * 5 % ITEMS
MASK = np.arange(ITEMS) < SIZES[:, None]
BY = np.where(np.arange(LISTS) % 3, "others", "new users")

# Part of what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*have no relevant item")


@pytest.fixture
def data(rng):
    """Features, of which some tie, and labels with padding."""
    x = np.sign(rng.normal(size=(LISTS, ITEMS, FEATURES))).astype("float32")
    return x, np.where(MASK, rng.integers(0, 4, MASK.shape), -1)


def scorer(form=None):
    """A model of lists, which need not be trained."""
    keras.utils.set_random_seed(1)
    if form is None:
        x = given = keras.Input((ITEMS, FEATURES))
    else:
        parts = [keras.Input((ITEMS, 1), name=f"x{i}") for i in range(FEATURES)]
        x, given = keras.layers.Concatenate()(parts), form(parts)
    return keras.Model(given, keras.layers.Dense(1)(x))


def by_name(parts):
    return {f"x{i}": part for i, part in enumerate(parts)}


def members():
    return [NDCG(k=3, seed=1), MeanAveragePrecision(seed=1, empty_value=None)]


def results(x, y, model=None, metrics=None, **arguments):
    """What is in the logs after an epoch, by the names of the metrics."""
    arguments = {"batch_size": BATCH_SIZE, "prefix": "", **arguments}
    metrics = metrics or members()
    return run_epoch(ListEvaluation(x, y, metrics, **arguments), model or scorer())


def predicted(x, model=None):
    return (model or scorer()).predict(x, batch_size=BATCH_SIZE, verbose=0)


def expected(y, scores, weights=None, metrics=None):
    """The same of the metrics by themselves."""
    metrics = metrics or members()
    for each in metrics:
        each.reset_state()
    return {each.name: float(each(y, scores, weights)) for each in metrics}


def uneven(padded):
    return [row[:size].tolist() for row, size in zip(padded, SIZES, strict=True)]


FORMS = [
    lambda y: y,
    lambda y: y.tolist(),
    lambda y: np.where(MASK, y, np.nan),
    lambda y: y[:, :, None],
    lambda y: ops.convert_to_tensor(y),
    lambda y: pytest.importorskip("pandas").DataFrame(y),
    lambda y: pytest.importorskip("torch").from_numpy(y),
    uneven,
    lambda y: {"labels": y},
    lambda y: {"labels": np.abs(y), "mask": MASK},
    lambda y: {"labels": uneven(y), "mask": uneven(MASK)},
]


@pytest.mark.compiles_long
@pytest.mark.parametrize("form", FORMS)
def test_labels(data, form):
    x, y = data
    assert results(x, form(y)) == expected(y, predicted(x))


@pytest.mark.parametrize("form", [list, tuple, by_name])
def test_several_inputs(data, form):
    x, y = data
    parts, model = form(np.split(x, FEATURES, axis=2)), scorer(form)
    assert results(parts, y, model) == expected(y, predicted(parts, model))


WEIGHTS = [lambda w: w[:, 0], lambda w: w[:, :1], lambda w: w, lambda w: w.tolist()]


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights_of_lists_and_of_items(data, rng, form):
    x, y = data
    weights = form(rng.choice([0.0, 0.5, 2.0], y.shape))
    found = results(x, y, sample_weight=weights)
    assert found == expected(y, predicted(x), weights)
    if np.shape(weights) == y.shape:
        ragged = uneven(np.asarray(weights))
        assert results(x, uneven(y), sample_weight=ragged) == found


@pytest.mark.compiles_long
def test_parts_change_nothing(data, monkeypatch):
    """They hold as many batches as there are scores or rows at a time."""
    x, y = data
    group = RankingMetrics(NDCG(k=3, seed=1), standard_errors=True)
    whole = results(x, y, metrics=group, by=BY)
    assert len(whole) == 2 * 3
    model = scorer()
    sizes = record_predict_sizes(model, monkeypatch)
    first = BATCH_SIZE, BATCH_SIZE
    for module, name, value, expected in (
        (list_evaluation, "MAX_SCORES", 1, [16, 16, 8]),
        (list_evaluation, "MAX_SCORES", 35 * ITEMS, [32, 8]),
        (model_inputs, "MAX_ROWS", 31, [16, 16, 8]),
        (model_inputs, "MAX_BYTES", 35 * x[0].nbytes, [32, 8]),
    ):
        del sizes[:]
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert results(x, y, model, metrics=group, by=BY) == whole
        assert sizes == [first, *((size, BATCH_SIZE) for size in expected)]


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
    of_ids = [
        NDCG(k=3, sparse_labels=True, seed=1),
        metrics.MeanReciprocalRank(sparse_labels=True, shuffle_ties="average"),
    ]
    scores = predicted(x)[..., 0]
    model = {"model": Identity(), "metrics": of_ids}
    found = results(scores, ids, sample_weight=SIZES, **model)
    assert found == expected(ids, scores, SIZES, of_ids)


@pytest.mark.compiles_long
def test_ids_at_every_position(rng):
    """Each is a list, in the segment of its row."""
    scores = rng.integers(0, 4, (LISTS, 5, ITEMS)).astype("float32")
    ids = rng.integers(-1, ITEMS, (LISTS, 5))
    of_ids = [NDCG(k=3, sparse_labels=True, shuffle_ties="average")]
    arguments = {"model": Identity(), "metrics": of_ids}
    found = results(scores, ids, by=BY, **arguments)
    (name,) = whole = expected(ids, scores, metrics=of_ids)
    for segment, suffix in (("new users", "new_users"), ("others", "others")):
        its = segment == BY
        alone = expected(ids[its], scores[its], metrics=of_ids)[name]
        whole[f"{name}_{suffix}"] = pytest.approx(alone)
    assert found == whole


@pytest.mark.compiles_long
def test_labels_of_subtopics(data, rng):
    x, _ = data
    labels = np.where(MASK[..., None], rng.integers(0, 2, (*MASK.shape, 3)), -1)
    members = [metrics.AlphaNDCG(k=3, seed=1)]
    found = results(x, labels, metrics=members)
    assert found == expected(labels, predicted(x), metrics=members)


def errors(x, y):
    """The arguments of calls, and what the errors say."""
    ids, other = [NDCG(sparse_labels=True)], [NDCG(sparse_labels=True), NDCG(k=2)]
    identity, ragged = {"model": Identity()}, {"labels": uneven(y)}
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
    yield (x, {**ragged, "mask": uneven(y[:, 1:])}), "as many items as `labels` in eve"
    yield (x, ragged, {"sample_weight": uneven(y)[1:]}), "as many lists as `labels`"
    yield (x, y, {"metrics": other}), "`metrics` should all have `sparse_labels=True`"
    yield (x, y, {"metrics": [Coverage(2)]}), "`metrics` should be means .*'coverage_at"
    yield (x, y, {"output": "a"}), "`output` should be the name of the output whose sc"
    yield (x, y, {"model": 3}), "`model` should be a model with a method `predict`"
    yield (x, y[:, 1:]), rf"{one_each} \(16, 6, 1\), and y.shape=\(40, 5\)"
    yield (x, y, identity), rf"{one_each} \(16, 6, 3\), and y.shape=\(40, 6\)"
    yield (x[:, 0, 0], y, identity), rf"{one_each} \(16,\)"
    yield (x, y, {"model": Short()}), "The model should return the scores of each list"
    yield (x, y, {"sample_weight": y[:, 1:]}), r"`sample_weight` should .*=\(16, 5\)"
    large = np.where(np.arange(LISTS)[:, None] == 30, 6, TARGETS)
    for each in (large, {"ids": large, "labels": GRADES}):
        of_ids = x[..., 0], each, {**identity, "metrics": ids}
        yield of_ids, "`y` should .* a larger id, 6, in row 30"
    yield (x, np.stack([y, y], 2)), "`y_true` should have one number for each item"


class Short(Identity):
    def predict(self, x, **settings):
        return x[1:]


def begun(x, y, metrics=("mrr",), **arguments):
    """A callback before the first epoch."""
    callback = ListEvaluation(x, y, metrics, batch_size=BATCH_SIZE, **arguments)
    callback.set_model(scorer())
    callback.on_train_begin()


def test_what_is_not_understood_is_an_error(data):
    for (x, y, *arguments), message in errors(*data):
        with pytest.raises(ValueError, match=message):
            begun(x, y, **dict(*arguments))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"labels": x}, "torch"])
def test_what_a_callback_keeps_may_change_afterwards(data, rng, form):
    """All but inputs, which are read again after each epoch."""
    x, y = data
    if form == "torch":
        form = pytest.importorskip("torch").from_numpy
    weights, by = rng.random(LISTS), BY.copy()
    whole = results(x, y, by=BY, sample_weight=weights)
    given, model = [y.copy(), weights.copy()], scorer()
    kept = {"by": by, "sample_weight": given[1], "batch_size": BATCH_SIZE}
    callback = ListEvaluation(x, form(given[0]), members(), prefix="", **kept)
    for each in (*given, by):
        each[:] = each[0].copy()
    assert run_epoch(callback, model) == whole
    x[:] = -x
    logs = {}
    callback.on_epoch_end(1, logs)
    assert logs == results(x, y, by=BY, sample_weight=weights)
    assert logs != whole
