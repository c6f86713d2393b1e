"""Scores of a catalog at every position of a sequence: each position is a list."""

import functools

import keras
import numpy as np
import pytest
from arrays import compute_values
from keras import ops
from scipy.sparse import csr_matrix

from keras_rank import RankingModel, functional, metrics
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics
from keras_rank.utils import exclude_items

SEQUENCES, TIME, ITEMS, TARGETS = 5, 4, 7, 3
LENGTHS = [4, 1, 3, 0, 2]
IS_POSITION = np.arange(TIME) < np.array(LENGTHS)[:, None]
SPARSE = {"sparse_labels": True, "seed": 1}


@pytest.fixture
def scores(rng):
    """Returns scores with ties, which are shuffled by the number of the list."""
    return rng.integers(0, 4, (SEQUENCES, TIME, ITEMS)).astype("float32")


@pytest.fixture
def ids(rng):
    """Returns one target for each position, and -1 after the end of a sequence."""
    return np.where(IS_POSITION, rng.integers(0, ITEMS, (SEQUENCES, TIME)), -1)


@pytest.fixture
def graded(rng):
    """Returns several targets with labels. Some positions have no relevant label."""
    ids = np.argsort(rng.random((SEQUENCES, TIME, ITEMS)), axis=2)[..., :TARGETS]
    labels = rng.integers(-1, 4, ids.shape).astype("float32")
    labels[0, 0], labels[0, 1], labels[2, 0] = 0.0, -1.0, np.nan
    return np.where(IS_POSITION[..., None], ids, -1), labels


def make_metrics():
    """Returns metrics with each tie mode, and with equal and unequal list weights."""
    return [
        NDCG(k=3, **SPARSE),
        MeanReciprocalRank(shuffle_ties=False, **SPARSE),
        metrics.PrecisionAtK(k=2, shuffle_ties="average", **SPARSE),
    ]


def result(metric, *inputs):
    metric.reset_state()
    metric.update_state(*inputs)
    return float(metric.result())


def select_lists(keep, *parts):
    """Returns the lists of some positions."""
    return [x if x is None or np.ndim(x) == 0 else x[keep] for x in parts]


def cut_at_end(x):
    """Returns the sequences without the positions after their end."""
    return [row[:length] for row, length in zip(x, LENGTHS, strict=True)]


def assert_equal_results(given, *others):
    """Checks that inputs of different forms have equal results."""
    for metric in make_metrics():
        expected = result(metric, *given)
        for other in others:
            assert result(metric, *other) == expected


WEIGHTS = {
    "none": None,
    "a number": 2.0,
    "of sequences": np.array([1.0, 0.5, 2.0, 1.0, 0.0]),
    "of sequences, in a column": np.array([[1.0], [0.5], [2.0], [1.0], [3.0]]),
    "of positions": np.arange(20.0).reshape(5, 4) % 3,
    "of positions, in a column": np.arange(20.0).reshape(5, 4, 1) % 3,
}


@pytest.mark.compiles_long
@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_each_position_is_a_list(ids, scores, weights):
    list_weights = weights
    if np.ndim(weights) > 0:
        columns = np.reshape(weights, (SEQUENCES, -1))
        list_weights = np.broadcast_to(columns, ids.shape)
    inputs = ids, scores, weights
    tensors = [None if x is None else ops.convert_to_tensor(x) for x in inputs]
    assert_equal_results(
        select_lists(IS_POSITION, ids, scores, list_weights), inputs, tensors
    )


@pytest.mark.compiles_long
def test_graded_targets(graded, scores, rng):
    """A position with a label of 0 is a list. One with negative labels is none."""
    ids, labels = graded
    mask = rng.random(ids.shape) < 0.8
    is_list = np.any((ids >= 0) & (labels >= 0) & mask, axis=2)
    flat = select_lists(is_list, ids, labels, mask, scores)
    parts = dict(zip(("ids", "labels", "mask"), flat[:3], strict=True))
    whole = {"ids": ids, "labels": labels, "mask": mask}
    stacked = np.stack([np.where(mask, ids, -1), labels], axis=-1)
    assert_equal_results((parts, flat[3]), (whole, scores), (stacked, scores))


@pytest.mark.compiles_long
@pytest.mark.parametrize("number", [1, 2, 3])
def test_several_targets_and_masks(rng, scores, number):
    """The mask is that of targets. Without labels, the key "labels" holds the ids."""
    ids = np.argsort(rng.random((SEQUENCES, TIME, ITEMS)), axis=2)[..., :number]
    mask = rng.random(ids.shape) < 0.5
    masked = np.where(mask, ids, -1)
    named = [({name: ids, "mask": mask}, scores) for name in ("ids", "labels")]
    flat = select_lists(np.any(mask, axis=2), masked, scores)
    assert_equal_results(flat, (masked, scores), *named)


@pytest.mark.compiles_long
def test_sequences_of_uneven_length(ids, scores, graded):
    inputs = ids, scores, np.arange(20.0).reshape(5, 4) % 3
    rows = [*map(cut_at_end, inputs)]
    assert_equal_results(inputs, rows, [[row.tolist() for row in x] for x in rows])
    labels = {"ids": graded[0], "labels": graded[1]}
    uneven = {name: cut_at_end(x) for name, x in labels.items()}
    assert_equal_results((labels, scores), (uneven, cut_at_end(scores)))
    # `rank` reads the labels, as a metric may compare them.
    order = functional.rank(uneven, cut_at_end(scores), **SPARSE)
    expected = compute_values(functional.ndcg, uneven, cut_at_end(scores), **SPARSE)
    np.testing.assert_array_equal(compute_values(functional.ndcg, order), expected)


def test_columns_of_tables(ids, scores):
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    inputs = ids, scores
    list_weights = [
        [f(x.tolist()) for x in inputs] for f in (pandas.Series, arrow.array)
    ]
    assert_equal_results(inputs, *list_weights)


@pytest.mark.compiles_long
def test_stacked_lists_equal_stacked_arrays(graded, scores):
    stacked = np.stack(graded, axis=-1)
    for y_true, y_pred in ((stacked, scores), (stacked[:, 0], scores[:, 0])):
        assert_equal_results((y_true, y_pred), (y_true.tolist(), y_pred))


def test_ragged_tensors(ids, scores, backend):
    if backend == "tensorflow":
        import tensorflow as tf

        inputs = [tf.RaggedTensor.from_tensor(x, LENGTHS) for x in (ids, scores)]
    elif backend == "torch":
        import torch

        nested = functools.partial(torch.nested.nested_tensor, layout=torch.jagged)
        rows = ([x for x in cut_at_end(part) if len(x)] for part in (ids, scores))
        inputs = [nested([*map(torch.as_tensor, part)]) for part in rows]
    else:
        pytest.skip("has no ragged tensors")
    assert_equal_results((ids, scores), inputs)


@pytest.mark.compiles_long
def test_functions_groups_and_exposure(ids, scores):
    """Inputs may have more axes, as for several samples of a sequence."""
    flat = select_lists(IS_POSITION, ids, scores)
    in_group = functools.partial(RankingMetrics, standard_errors=True)
    actual = in_group(make_metrics())(ids[None], scores[None])
    assert actual == in_group(make_metrics())(*flat)
    values = compute_values(functional.ndcg, ids, scores, k=3, **SPARSE)
    np.testing.assert_array_equal(np.isnan(values), ~IS_POSITION.reshape(-1))
    order = functional.rank(ids, scores, k=3, **SPARSE)
    np.testing.assert_array_equal(compute_values(functional.ndcg, order, k=3), values)
    gini = metrics.Gini(k=2, items=ITEMS, shuffle_ties=False, **SPARSE)
    assert result(gini, ids, scores) == result(gini, *flat)


def test_wrong_inputs_are_errors(ids, scores):
    metric = MeanReciprocalRank(sparse_labels=True)
    uneven = [x[:2] for x in ids[:2]] + [ids[2]], list(scores[:3])
    shorter = [ids[0], ids[1][:2]], [scores[0], scores[1][:3]]
    matrix = csr_matrix(np.eye(5, 7))
    for *inputs, message in (
        (ids[:, :3], scores, "`y_pred` should have the shape .batch, time, items"),
        (ids[0], scores, r"Received: y_true.shape=\(4,\), y_pred.shape=\(5, 4, 7"),
        (np.eye(ITEMS)[ids], scores, "`y_true` should hold ids of items. Of a matr"),
        (np.ones((5, 4, 2)), scores, "with floats, which may be two ids, or an"),
        ({"id": ids}, scores, '`y_true` should be ids, or a dict with the keys "'),
        ({"ids": ids, "labels": ids[:2]}, scores, r"labels.shape=\(2, 4\), y_pred"),
        (ids + 9, scores, "below the number of items, 7"),
        ([[True], [False, True]], scores[:2], "of dtype bool"),
        ([{1, 2}, {0}], scores[:2], "of dtype object, of sets: pass lists"),
        (matrix, scores, "a sparse matrix, which has rows"),
        (ids, scores, np.ones(4), "`sample_weight` should be a number or have the sh"),
        (*uneven, "as many items"),
        (*shorter, "as many items as `y_pr"),
    ):
        with pytest.raises(ValueError, match=message):
            metric.update_state(*inputs)
    assert float(metric.result()) == 0.0


@pytest.mark.compiles_long
def test_empty_inputs_have_no_values():
    """Inputs may have no items, no targets, no sequences or no positions."""
    for shape, items in (((3, 2), 0), ((3, 2, 0), 4), ((0, 2), 4), ((3, 0, 1), 4)):
        inputs = np.full(shape, -1), np.zeros((*shape[:2], items))
        values = compute_values(functional.ndcg, *inputs, sparse_labels=True)
        assert values.shape == (shape[0] * shape[1],)
        assert np.isnan(values).all()
        assert result(MeanReciprocalRank(sparse_labels=True), *inputs) == 0.0


def test_items_are_excluded_at_each_position(rng, scores):
    seen = rng.integers(-1, ITEMS, (SEQUENCES, TIME, 3))
    actual = compute_values(exclude_items, scores, seen)
    flat = compute_values(exclude_items, scores.reshape(-1, ITEMS), seen.reshape(-1, 3))
    np.testing.assert_array_equal(actual.reshape(-1, ITEMS), flat)
    kept_targets = compute_values(exclude_items, scores, seen, keep=seen[:, :, 0])
    one = compute_values(exclude_items, scores, seen, keep=seen[:, :, :1])
    np.testing.assert_array_equal(kept_targets, one)
    assert (kept_targets != actual).any()
    with pytest.raises(ValueError, match=r"`item_ids` the shape .* or .batch, time, n"):
        exclude_items(scores, seen[:, 0])


def sequence_model(model_class, members, **weighted):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(ITEMS + 1, 4)(inputs + 1)
    hidden = keras.layers.GRU(8, return_sequences=True)(embedded)
    model = model_class(inputs, keras.layers.Dense(ITEMS)(hidden))
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=members, **weighted)
    return model


def loss(ids, scores):
    return ops.mean(ops.square(scores))


@pytest.fixture
def x(ids, rng):
    """Returns the input item of each position."""
    return np.where(IS_POSITION, rng.integers(0, ITEMS, ids.shape), -1)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("model_class", [keras.Model, RankingModel])
def test_fit_and_evaluate(x, ids, rng, model_class):
    mrr, ndcg = MeanReciprocalRank(**SPARSE), NDCG(k=3, **SPARSE)
    group = RankingMetrics([NDCG(k=3, **SPARSE)])
    model = sequence_model(model_class, [mrr], weighted_metrics=[group])
    y = ids
    if model_class is RankingModel:
        y = {"ids": np.maximum(ids, 0), "mask": IS_POSITION}
    weights = rng.random(ids.shape).astype("float32")
    options = {"sample_weight": weights, "batch_size": 2, "verbose": 0}
    logs = model.evaluate(x, y, return_dict=True, **options)
    history = model.fit(x, y, shuffle=False, **options).history
    flat = select_lists(IS_POSITION, ids, model.predict(x, verbose=0), weights)
    assert logs["mrr"] == pytest.approx(result(mrr, *flat[:2]), abs=1e-6)
    assert logs["ndcg_at_3"] == pytest.approx(result(ndcg, *flat), abs=1e-6)
    assert history["mrr"] == [pytest.approx(logs["mrr"], abs=1e-6)]


@pytest.mark.compiles_long
@pytest.mark.trains
def test_graded_targets_in_a_ranking_model(x, graded):
    ids, labels = graded
    ndcg = NDCG(k=3, **SPARSE)
    model = sequence_model(RankingModel, [NDCG(k=3, **SPARSE)])
    scores = model.predict(x, verbose=0)
    masked = {"ids": ids, "labels": labels, "mask": np.ones(ids.shape, bool)}
    first = {"ids": ids[..., :1], "labels": labels[..., :1]}
    for y in (masked, first):
        logs = model.evaluate(x, y, batch_size=2, return_dict=True, verbose=0)
        assert logs["ndcg_at_3"] == pytest.approx(result(ndcg, y, scores), abs=1e-6)
    # The error comes last, as the model is not usable after it on JAX. The model is
    # compiled again, as TensorFlow would trace both shapes as one of unknown rank.
    model.compile("sgd", loss, metrics=[NDCG(k=3, **SPARSE)])
    y = {name: each[..., 0] for name, each in first.items()}
    with pytest.raises(ValueError, match=r"in the shape .batch, time, 1."):
        model.evaluate(x, y, verbose=0)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_ragged_sequences_of_tf_data(x, ids):
    tf = pytest.importorskip("tensorflow")
    x = x.astype("int32")
    model = sequence_model(RankingModel, [NDCG(k=3, **SPARSE)])
    dense = model.evaluate(x, ids, return_dict=True, verbose=0)
    ragged = [tf.RaggedTensor.from_tensor(each, LENGTHS) for each in (x, ids)]
    batches = tf.data.Dataset.from_tensor_slices(tuple(ragged)).batch(2)
    logs = model.evaluate(batches, return_dict=True, verbose=0)
    assert logs["ndcg_at_3"] == pytest.approx(dense["ndcg_at_3"], abs=1e-6)
