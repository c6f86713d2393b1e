"""Scores of a catalogue at every position of a sequence: each is a list of its own."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.sparse import csr_matrix

from keras_rank import RankingModel, functional
from keras_rank.metrics import (
    NDCG,
    Gini,
    HitRate,
    MeanReciprocalRank,
    PrecisionAtK,
    RankingMetrics,
)
from keras_rank.utils import exclude_items

SEQUENCES, TIME, ITEMS, TARGETS = 5, 4, 7, 3
LENGTHS = [4, 1, 3, 0, 2]
ARE_POSITIONS = np.arange(TIME) < np.array(LENGTHS)[:, None]


@pytest.fixture
def scores(rng):
    """With ties, that are shuffled by the number of their list."""
    return rng.integers(0, 4, (SEQUENCES, TIME, ITEMS)).astype("float32")


@pytest.fixture
def ids(rng):
    """One target at each position, -1 after the end of a sequence."""
    return np.where(ARE_POSITIONS, rng.integers(0, ITEMS, (SEQUENCES, TIME)), -1)


@pytest.fixture
def graded(rng):
    """Several targets with labels, and some without any label that counts."""
    ids = np.argsort(rng.random((SEQUENCES, TIME, ITEMS)), axis=2)[..., :TARGETS]
    labels = rng.integers(-1, 4, ids.shape).astype("float32")
    labels[0, 0], labels[0, 1], labels[2, 0] = 0.0, -1.0, np.nan
    return np.where(ARE_POSITIONS[..., None], ids, -1), labels


def make_metrics(**arguments):
    """Under every rule of ties, weighed alike or by what is relevant."""
    return [
        NDCG(k=3, sparse_labels=True, seed=1, **arguments),
        MeanReciprocalRank(sparse_labels=True, shuffle_ties=False, **arguments),
        PrecisionAtK(k=2, sparse_labels=True, shuffle_ties="average", **arguments),
    ]


def result(metric, *given):
    metric.reset_state()
    metric.update_state(*given)
    return float(metric.result())


def kept(keep, *parts):
    """Lists of some of the positions alone."""
    return [x if x is None or np.ndim(x) == 0 else x[keep] for x in parts]


WEIGHTS = {
    "none": None,
    "a number": 2.0,
    "of sequences": np.array([1.0, 0.5, 2.0, 1.0, 0.0]),
    "of sequences, in a column": np.array([[1.0], [0.5], [2.0], [1.0], [3.0]]),
    "of positions": np.arange(20.0).reshape(5, 4) % 3,
    "of positions, in a column": np.arange(20.0).reshape(5, 4, 1) % 3,
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("is_tensor", [False, True])
def test_each_position_is_a_list(ids, scores, weights, is_tensor):
    of_lists = weights
    if np.ndim(weights) > 0:
        columns = np.reshape(weights, (SEQUENCES, -1))
        of_lists = np.broadcast_to(columns, ids.shape)
    given = (ids, scores, weights)
    if is_tensor:
        given = [None if x is None else ops.convert_to_tensor(x) for x in given]
    for metric in make_metrics():
        expected = result(metric, *kept(ARE_POSITIONS, ids, scores, of_lists))
        assert result(metric, *given) == expected


def test_an_example_by_hand():
    """Ranks 1, 2, none (padding) and 3 of four items: the third is no list."""
    scores = [[[4, 3, 2, 1], [3, 4, 2, 1]], [[4, 3, 2, 1], [4, 3, 2, 1]]]
    metric = MeanReciprocalRank(sparse_labels=True)
    metric.update_state([[0, 0], [-1, 2]], scores)
    assert float(metric.result()) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    values = functional.reciprocal_rank([[0, 0], [-1, 2]], scores, sparse_labels=True)
    np.testing.assert_allclose(
        ops.convert_to_numpy(values), [1, 1 / 2, np.nan, 1 / 3], rtol=1e-6
    )


def test_graded_targets(graded, scores, rng):
    """A label of 0 is that of a list without relevant items, one below 0 of none."""
    ids, labels = graded
    mask = rng.random(ids.shape) < 0.8
    are_lists = np.any((ids >= 0) & (labels >= 0) & mask, axis=2)
    flat = kept(are_lists, ids, labels, mask, scores)
    stacked = np.stack([np.where(mask, ids, -1), labels], axis=-1)
    for metric in make_metrics():
        parts = dict(zip(("ids", "labels", "mask"), flat[:3], strict=True))
        expected = result(metric, parts, flat[3])
        whole = {"ids": ids, "labels": labels, "mask": mask}
        assert result(metric, whole, scores) == expected
        assert result(metric, stacked, scores) == expected


@pytest.mark.parametrize("number", [1, 2, 3])
def test_several_targets_and_masks(rng, scores, number):
    """A mask of targets; without labels, "labels" are the ids."""
    ids = np.argsort(rng.random((SEQUENCES, TIME, ITEMS)), axis=2)[..., :number]
    mask = rng.random(ids.shape) < 0.5
    are_lists = np.any(mask, axis=2)
    for metric in make_metrics():
        masked = np.where(mask, ids, -1)
        expected = result(metric, *kept(are_lists, masked, scores))
        assert result(metric, masked, scores) == expected
        for name in ("ids", "labels"):
            assert result(metric, {name: ids, "mask": mask}, scores) == expected


def test_sequences_of_uneven_length(ids, scores, graded):
    def cut(x):
        return [row[:length] for row, length in zip(x, LENGTHS, strict=True)]

    labels = {"ids": graded[0], "labels": graded[1]}
    weights = np.arange(20.0).reshape(5, 4) % 3
    for metric in make_metrics():
        expected = result(metric, ids, scores, weights)
        assert result(metric, cut(ids), cut(scores), cut(weights)) == expected
        as_lists = [x.tolist() for x in cut(scores)]
        assert result(metric, cut(ids), as_lists, cut(weights)) == expected
        expected = result(metric, labels, scores)
        uneven = {name: cut(x) for name, x in labels.items()}
        assert result(metric, uneven, cut(scores)) == expected


def test_columns_of_lists(ids, scores):
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for column in (pandas.Series, arrow.array):
        given = [column(x.tolist()) for x in (ids, scores)]
        for metric in make_metrics():
            assert result(metric, *given) == result(metric, ids, scores)


def test_stacked_lists_are_what_stacked_arrays_are(graded, scores):
    stacked = np.stack(graded, axis=-1)
    for metric in make_metrics():
        expected = result(metric, stacked, scores)
        assert result(metric, stacked.tolist(), scores) == expected
        expected = result(metric, stacked[:, 0], scores[:, 0])
        assert result(metric, stacked[:, 0].tolist(), scores[:, 0]) == expected


def test_graded_targets_of_uneven_sequences_are_ranked(graded, scores):
    """Their labels are looked at, as a metric may compare them."""
    uneven = [[row[:n] for row, n in zip(x, LENGTHS, strict=True)] for x in graded]
    y_true = dict(zip(("ids", "labels"), uneven, strict=True))
    given = y_true, [row[:n] for row, n in zip(scores, LENGTHS, strict=True)]
    make = {"sparse_labels": True, "seed": 1}
    order = functional.rank(*given, **make)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(functional.ndcg(order)),
        ops.convert_to_numpy(functional.ndcg(*given, **make)),
    )


def test_ragged_tensors(ids, scores, backend):
    if backend == "tensorflow":
        import tensorflow as tf

        given = [tf.RaggedTensor.from_tensor(x, LENGTHS) for x in (ids, scores)]
    elif backend == "torch":
        import torch

        rows = [n for n in range(SEQUENCES) if LENGTHS[n]]
        given = [
            torch.nested.nested_tensor(
                [torch.as_tensor(x[n, : LENGTHS[n]]) for n in rows],
                layout=torch.jagged,
            )
            for x in (ids, scores)
        ]
    else:
        pytest.skip("has no ragged tensors")
    for metric in make_metrics():
        assert result(metric, *given) == result(metric, ids, scores)


def test_functions_groups_and_exposure(ids, scores):
    """Of more axes too, as of several samples of a sequence."""
    flat = kept(ARE_POSITIONS, ids, scores)
    group = RankingMetrics(make_metrics(), standard_errors=True)
    group.update_state(ids[None], scores[None])
    found = group.result()
    group.reset_state()
    group.update_state(*flat)
    assert {k: float(x) for k, x in found.items()} == {
        k: float(x) for k, x in group.result().items()
    }
    given = {"k": 3, "sparse_labels": True, "seed": 1}
    values = ops.convert_to_numpy(functional.ndcg(ids, scores, **given))
    np.testing.assert_array_equal(np.isnan(values), ~ARE_POSITIONS.reshape(-1))
    order = functional.rank(ids, scores, **given)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(functional.ndcg(order, k=3)), values
    )
    gini = Gini(k=2, items=ITEMS, sparse_labels=True, shuffle_ties=False)
    assert result(gini, ids, scores) == result(gini, *flat)


def test_what_is_not_understood_is_an_error(ids, scores):
    metric = HitRate(k=2, sparse_labels=True)
    for y_true, y_pred, weights, message in (
        (
            ids[:, :3],
            scores,
            None,
            "`y_pred` should have the shape .batch, time, items",
        ),
        (
            ids[0],
            scores,
            None,
            r"Received: y_true.shape=\(4,\), y_pred.shape=\(5, 4, 7",
        ),
        (np.eye(ITEMS)[ids], scores, None, "`y_true` should hold the ids of the relev"),
        (np.ones((5, 4, 2)), scores, None, "with floats, which may be two ids, or an"),
        (
            {"id": ids},
            scores,
            None,
            '`y_true` should be ids, or a dict with the keys "',
        ),
        (
            {"ids": ids, "labels": ids[:2]},
            scores,
            None,
            r"labels.shape=\(2, 4\), y_pred",
        ),
        (ids + 9, scores, None, "below the number of items, 7"),
        ([[True], [False, True]], scores[:2], None, "of dtype bool"),
        (csr_matrix(np.eye(5, 7)), scores, None, "a sparse matrix, which has rows"),
        (ids, scores, np.ones(4), "`sample_weight` should be a number, or have the sh"),
        ([x[:2] for x in ids[:2]] + [ids[2]], list(scores[:3]), None, "as many items"),
        (
            [ids[0], ids[1][:2]],
            [scores[0], scores[1][:3]],
            None,
            "as many items as `y_pr",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            metric.update_state(y_true, y_pred, weights)
    assert float(metric.result()) == 0.0


def test_items_are_excluded_at_each_position(rng, scores):
    seen = rng.integers(-1, ITEMS, (SEQUENCES, TIME, 3))
    found = ops.convert_to_numpy(exclude_items(scores, seen))
    flat = exclude_items(scores.reshape(-1, ITEMS), seen.reshape(-1, 3))
    np.testing.assert_array_equal(found.reshape(-1, ITEMS), ops.convert_to_numpy(flat))
    with pytest.raises(ValueError, match=r"with `item_ids` of the shape .batch, time"):
        exclude_items(scores, seen[:, 0])


def sequence_model(model_class=keras.Model):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(ITEMS + 1, 4)(inputs + 1)
    hidden = keras.layers.GRU(8, return_sequences=True)(embedded)
    return model_class(inputs, keras.layers.Dense(ITEMS)(hidden))


def loss(ids, scores):
    return ops.mean(ops.square(scores))


@pytest.mark.trains
@pytest.mark.parametrize("model_class", [keras.Model, RankingModel])
def test_in_fit_and_evaluate(ids, rng, model_class):
    x = np.where(ARE_POSITIONS, rng.integers(0, ITEMS, ids.shape), -1)
    model = sequence_model(model_class)
    weights = rng.random(ids.shape).astype("float32")
    model.compile(
        keras.optimizers.SGD(0.0),
        loss,
        metrics=[MeanReciprocalRank(sparse_labels=True)],
        weighted_metrics=[RankingMetrics([NDCG(k=3, sparse_labels=True, seed=1)])],
    )
    y = ids
    if model_class is RankingModel:
        y = {"ids": np.maximum(ids, 0), "mask": ARE_POSITIONS}
    logs = model.evaluate(
        x, y, sample_weight=weights, batch_size=2, return_dict=True, verbose=0
    )
    scores = model.predict(x, verbose=0)
    flat = kept(ARE_POSITIONS, ids, scores, weights)
    assert logs["mrr"] == pytest.approx(
        result(MeanReciprocalRank(sparse_labels=True), *flat[:2]), abs=1e-6
    )
    expected = result(NDCG(k=3, sparse_labels=True, seed=1), *flat)
    assert logs["ndcg_at_3"] == pytest.approx(expected, abs=1e-6)
    history = model.fit(
        x, y, sample_weight=weights, batch_size=2, shuffle=False, verbose=0
    ).history
    assert history["mrr"] == [pytest.approx(logs["mrr"], abs=1e-6)]


@pytest.mark.trains
def test_graded_targets_in_a_ranking_model(graded, rng):
    ids, labels = graded
    x = np.where(ARE_POSITIONS, rng.integers(0, ITEMS, ids.shape[:2]), -1)
    model = sequence_model(RankingModel)
    model.compile("sgd", loss, metrics=[NDCG(k=3, sparse_labels=True, seed=1)])
    y = {"ids": ids, "labels": labels, "mask": np.ones(ids.shape, bool)}
    logs = model.evaluate(x, y, batch_size=2, return_dict=True, verbose=0)
    scores = model.predict(x, verbose=0)
    expected = result(
        NDCG(k=3, sparse_labels=True, seed=1), {"ids": ids, "labels": labels}, scores
    )
    assert logs["ndcg_at_3"] == pytest.approx(expected, abs=1e-6)
    y = {"ids": ids[..., :1], "labels": labels[..., :1]}
    logs = model.evaluate(x, y, batch_size=2, return_dict=True, verbose=0)
    expected = result(NDCG(k=3, sparse_labels=True, seed=1), y, scores)
    assert logs["ndcg_at_3"] == pytest.approx(expected, abs=1e-6)
    # Last, as Keras leaves no usable model after an error on JAX, and compiled anew, as
    # TensorFlow would trace both shapes as one of unknown rank.
    model.compile("sgd", loss, metrics=[NDCG(k=3, sparse_labels=True)])
    y = {name: each[..., 0] for name, each in y.items()}
    with pytest.raises(ValueError, match=r"in the shape .batch, time, 1."):
        model.evaluate(x, y, verbose=0)


@pytest.mark.trains
def test_ragged_sequences_of_tf_data(ids, rng):
    tf = pytest.importorskip("tensorflow")
    x = np.where(ARE_POSITIONS, rng.integers(0, ITEMS, ids.shape), -1).astype("int32")
    model = sequence_model(RankingModel)
    model.compile("sgd", loss, metrics=[NDCG(k=3, sparse_labels=True, seed=1)])
    dense = model.evaluate(x, ids, return_dict=True, verbose=0)
    ragged = [tf.RaggedTensor.from_tensor(each, LENGTHS) for each in (x, ids)]
    batches = tf.data.Dataset.from_tensor_slices(tuple(ragged)).batch(2)
    logs = model.evaluate(batches, return_dict=True, verbose=0)
    assert logs["ndcg_at_3"] == pytest.approx(dense["ndcg_at_3"], abs=1e-6)
