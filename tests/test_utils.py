"""Padding, excluding, and the model that takes a mask."""

import keras
import numpy as np
import oracle
import pytest
from keras import ops

import keras_rank
from keras_rank import utils
from keras_rank.metrics import NDCG, HitRate, MeanReciprocalRank


def test_pad_lists_by_sizes_and_by_ids():
    labels = np.array([3, 0, 1, 2, 0])
    expected = [[3, 0, 1], [-1, -1, -1], [2, 0, -1]]
    np.testing.assert_array_equal(
        utils.pad_lists(labels, group_sizes=[3, 0, 2]), expected
    )
    by_ids = utils.pad_lists(labels, group_ids=[7, 7, 7, 5, 5], padding=-1)
    np.testing.assert_array_equal(by_ids, [[3, 0, 1], [2, 0, -1]])
    assert by_ids.dtype == labels.dtype
    scattered = utils.pad_lists(labels, group_ids=["b", "a", "b", "a", "b"])
    np.testing.assert_array_equal(scattered, [[3, 1, 0], [0, 2, -1]])


def test_pad_lists_of_features(rng):
    rows = rng.normal(size=(6, 4)).astype("float32")
    padded = utils.pad_lists(rows, group_sizes=[1, 5], padding=0.0)
    assert padded.shape == (2, 5, 4)
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded[0, 0], rows[0])
    np.testing.assert_array_equal(padded[0, 1:], 0.0)
    np.testing.assert_array_equal(padded[1], rows[1:])


def test_whole_numbers_are_not_rounded():
    rows = np.array([2**24 + 1, 5, 7])
    padded = utils.pad_lists(rows, group_sizes=[2, 1])
    np.testing.assert_array_equal(padded, [[2**24 + 1, 5], [7, -1]])


@pytest.mark.parametrize("dtype", [">f4", ">i8"])
def test_bytes_in_the_other_order_come_in_that_of_the_machine(dtype):
    padded = utils.pad_lists(np.array([3, 1, 2], dtype), group_sizes=[2, 1])
    assert padded.dtype.isnative
    np.testing.assert_array_equal(padded, [[3, 1], [2, -1]])


def test_longer_lists_are_cut_only_on_request():
    labels = [1, 2, 3, 4]
    cut = utils.pad_lists(labels, group_sizes=[3, 1], list_size=2)
    np.testing.assert_array_equal(cut, [[1, 2], [4, -1]])
    wide = utils.pad_lists(labels, group_sizes=[3, 1], list_size=4)
    np.testing.assert_array_equal(wide, [[1, 2, 3, -1], [4, -1, -1, -1]])


@pytest.mark.parametrize(
    "groups", [{"group_sizes": [2, 0, 3]}, {"group_ids": [1, 2, 1, 3, 2]}]
)
@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_unpad_is_the_inverse(groups, shape, rng):
    rows = rng.normal(size=shape)
    padded = utils.pad_lists(rows, **groups)
    np.testing.assert_array_equal(utils.unpad_lists(padded, **groups), rows)
    tensor = ops.convert_to_tensor(padded.astype("float32"))
    np.testing.assert_array_equal(
        utils.unpad_lists(tensor, **groups), rows.astype("float32")
    )


def test_nothing_to_pad():
    assert utils.pad_lists([], group_sizes=[]).shape == (0, 0)
    assert utils.pad_lists(np.zeros((0, 3)), group_sizes=[0, 0]).shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: utils.pad_lists([1, 2], group_sizes=[3]),
            "`group_sizes` should add up to the number of rows. Received: a sum of 3 "
            "for 2 rows",
        ),
        (
            lambda: utils.pad_lists([1, 2], group_sizes=[3, -1]),
            "`group_sizes` should be integers of 0 or more, one per list. "
            "Received: group_sizes=[3, -1]",
        ),
        (
            lambda: utils.pad_lists([1, 2], group_ids=[1]),
            "`group_ids` should have one id per row. Received: group_ids.shape=(1,) "
            "for 2 rows",
        ),
        (
            lambda: utils.pad_lists([1, 2], group_ids=["a", None]),
            "`group_ids` should be ids of one type, none of which is missing. "
            "Received: group_ids=['a', None]",
        ),
        (
            lambda: utils.pad_lists([1, 2]),
            "Either `group_sizes` or `group_ids` should be given. Received: "
            "group_sizes=None, group_ids=None",
        ),
        (
            lambda: utils.pad_lists([1, 2], group_sizes=[2], list_size=0),
            "`list_size` should be a positive integer or None. Received: list_size=0",
        ),
        (
            lambda: utils.pad_lists(["a"], group_sizes=[1]),
            "`values` should be an array of numbers with one row per item. Received: "
            "values of shape (1,) and dtype <U1",
        ),
        (
            lambda: utils.unpad_lists([[1, 2]], group_sizes=[3]),
            "`values` should have the shape (batch, list_size, ...), with as many "
            "lists, and as long, as there are in the groups. Received: 1 groups of up "
            "to 3 rows, values.shape=(1, 2)",
        ),
        (
            lambda: utils.exclude_items([[0.1, 0.2]], [[2]]),
            "`item_ids` should hold ids below the number of items, 2. "
            "Received: a larger id",
        ),
        (
            lambda: utils.exclude_items([[0.1, 0.2]], [1]),
            "`y_pred` should have the shape (batch, items) and `item_ids` the shape "
            "(batch, n). Received: y_pred.shape=(1, 2), item_ids.shape=(1,)",
        ),
        (
            lambda: utils.exclude_items([[0.1, 0.2]], [[1]], keep=[1, 2]),
            "`keep` should have the shape (batch,) or (batch, m). Received: "
            "keep.shape=(2, 1), item_ids.shape=(1, 1)",
        ),
        (
            lambda: utils.merge_state(NDCG(), NDCG()),
            "`others` should be a list of metrics or states. Received: one NDCG",
        ),
        (
            lambda: utils.merge_state(NDCG(), utils.export_state(NDCG())),
            "`others` should be a list of metrics or states. Received: one dict",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == message


def test_exclude_items(rng):
    scores = rng.normal(size=(3, 6)).astype("float32")
    seen = np.array([[0, 5, -1, 0], [-1, -1, -1, -1], [3, 4, 2, 1]])
    keep = np.array([[5, -1], [2, 2], [-1, 1]])
    expected = scores.copy()
    expected[0, 0] = expected[2, [2, 3, 4]] = -np.inf
    found = utils.exclude_items(scores, seen, keep=keep)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    expected[0, 5] = expected[2, 1] = -np.inf
    found = utils.exclude_items(ops.convert_to_tensor(scores), seen)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    with_target = utils.exclude_items(scores, seen, keep=[5, 0, 1])
    assert np.isfinite(ops.convert_to_numpy(with_target)[[0, 2], [5, 1]]).all()
    metric = HitRate(k=2, sparse_labels=True)
    found = float(metric([0, 5, 3], utils.exclude_items(scores, seen)))
    in_top_two = float(scores[1, 5] in np.sort(scores[1])[-2:])
    assert found == pytest.approx(in_top_two / 3)


def test_exclude_items_in_a_model():
    """Where the size of the batch is not known."""
    scores, seen = keras.Input((4,)), keras.Input((2,), dtype="int32")
    model = keras.Model([scores, seen], utils.exclude_items(scores, seen))
    found = model([ops.array([[4.0, 3.0, 2.0, 1.0]]), ops.array([[2, -1]])])
    expected = [[4.0, 3.0, -np.inf, 1.0]]
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


# RankingModel

LISTS, ITEMS, FEATURES = 12, 5, 3


@pytest.fixture
def data(rng):
    x = rng.normal(size=(LISTS, ITEMS, FEATURES)).astype("float32")
    labels = rng.integers(0, 4, size=(LISTS, ITEMS)).astype("float32")
    mask = rng.random((LISTS, ITEMS)) < 0.7
    mask[:, 0] = True
    return x, {"labels": labels, "mask": mask}


def masked_loss(y_true, y_pred):
    is_item = ops.cast(y_true >= 0, "float32")
    return ops.sum(is_item * (y_true - y_pred) ** 2, axis=1)


class Subclassed(keras_rank.RankingModel):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)[..., 0]


def build(kind="functional", **arguments):
    keras.utils.set_random_seed(3)
    if kind == "subclassed":
        model = Subclassed()
    else:
        inputs = keras.Input((ITEMS, FEATURES))
        outputs = keras.layers.Reshape((ITEMS,))(keras.layers.Dense(1)(inputs))
        model = keras_rank.RankingModel(inputs, outputs)
    arguments = {
        "optimizer": keras.optimizers.SGD(0.0),
        "loss": masked_loss,
        "metrics": [NDCG(k=3, seed=1), MeanReciprocalRank(seed=1)],
        **arguments,
    }
    model.compile(**arguments)
    return model


def expected_logs(model, x, y, weights=None):
    scores = ops.convert_to_numpy(model.predict(x, verbose=0))
    labels = np.where(y["mask"], y["labels"], -1.0)
    weights = np.ones_like(labels) if weights is None else weights
    weights = np.broadcast_to(weights, labels.shape)
    lists = [oracle.items_of(*row) for row in zip(labels, scores, weights, strict=True)]
    logs = {}
    for name, formula, relevance, k in (
        ("ndcg@3", oracle.ndcg, oracle.exponential, 3),
        ("mrr", oracle.reciprocal_rank, oracle.at_least_one, None),
    ):
        kept = [items for items in lists if items]
        values = [oracle.value(formula, items, k=k) for items in kept]
        weights_of_lists = [oracle.list_weight(items, relevance) for items in kept]
        logs[name] = oracle.mean(values, weights_of_lists)
    squares = np.where(y["mask"], (y["labels"] - scores) ** 2, 0.0).sum(axis=1)
    logs["loss"] = squares.mean()
    return logs


def assert_close(logs, expected):
    assert {name: float(logs[name]) for name in expected} == pytest.approx(
        expected, rel=1e-5, abs=2e-6
    )


def sources(x, y, backend):
    """The same data, from everywhere that Keras takes it."""
    yield "numpy", lambda: ((x, y), {"batch_size": 5})

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            rows = slice(4 * i, 4 * i + 4)
            return x[rows], {name: part[rows] for name, part in y.items()}

    yield "PyDataset", lambda: ((Batches(),), {})

    def tf_data():
        import tensorflow as tf

        return (tf.data.Dataset.from_tensor_slices((x, y)).batch(5),), {
            "shuffle": False
        }

    def torch_data():
        import torch

        rows = [
            (x[i], {name: part[i] for name, part in y.items()}) for i in range(len(x))
        ]
        return (torch.utils.data.DataLoader(rows, batch_size=5),), {"shuffle": False}

    yield "tf.data", tf_data
    yield "DataLoader", torch_data


@pytest.mark.trains
@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("functional", "numpy"),
        ("subclassed", "PyDataset"),
        ("functional", "tf.data"),
        ("functional", "DataLoader"),
    ],
)
def test_a_mask_reaches_loss_and_metrics(data, kind, source, backend):
    x, y = data
    make = dict(sources(x, y, backend))[source]
    model = build(kind)
    (positional, arguments) = make()
    history = model.fit(*positional, epochs=1, verbose=0, **arguments).history
    expected = expected_logs(model, x, y)
    assert_close({name: values[-1] for name, values in history.items()}, expected)
    positional, arguments = make()
    arguments.pop("shuffle", None)
    logs = model.evaluate(*positional, return_dict=True, verbose=0, **arguments)
    assert_close(logs, expected)


@pytest.mark.trains
def test_validation_data_and_train_on_batch(data):
    x, y = data
    model = build()
    history = model.fit(x, y, validation_data=(x, y), verbose=0).history
    expected = expected_logs(model, x, y)
    assert_close({name: history[f"val_{name}"][-1] for name in expected}, expected)
    assert_close(model.train_on_batch(x, y, return_dict=True), expected)
    assert_close(model.test_on_batch(x, y, return_dict=True), expected)


@pytest.mark.trains
@pytest.mark.parametrize(
    "way", [{"run_eagerly": True}, {"jit_compile": False}], ids=str
)
def test_other_ways_to_compile(data, way):
    x, y = data
    model = build(**way)
    history = model.fit(x, y, verbose=0).history
    assert_close({n: v[-1] for n, v in history.items()}, expected_logs(model, x, y))


@pytest.mark.trains
@pytest.mark.parametrize("per_item", [False, True])
def test_weighted_metrics(data, per_item, rng):
    x, y = data
    shape = (LISTS, ITEMS) if per_item else (LISTS, 1)
    weights = rng.choice([0.5, 1.0, 4.0], size=shape).astype("float32")

    def loss(y_true, y_pred):
        return ops.cast(y_true >= 0, "float32") * (y_true - y_pred) ** 2

    model = build(loss=loss, metrics=[], weighted_metrics=[NDCG(k=3, seed=1)])
    history = model.fit(x, y, sample_weight=weights, batch_size=5, verbose=0).history
    expected = expected_logs(model, x, y, weights)["ndcg@3"]
    assert history["ndcg@3"][0] == pytest.approx(expected, abs=2e-6)


def test_plain_labels_stay_what_they_are(data):
    x, y = data
    labels = np.where(y["mask"], y["labels"], -1.0)
    model = build()
    logs = model.evaluate(x, labels, return_dict=True, verbose=0)
    assert_close(logs, expected_logs(model, x, y))
    unmasked = model.evaluate(x, {"labels": labels}, return_dict=True, verbose=0)
    assert_close(unmasked, expected_logs(model, x, y))


def test_unknown_keys_are_an_error(data):
    x, y = data
    with pytest.raises(ValueError, match=r"Received: y with the keys \['labels', 'm"):
        build().evaluate(x, {"labels": y["labels"], "masks": y["mask"]}, verbose=0)


def test_it_is_saved(data, tmp_path):
    x, y = data
    model = build(loss="mse")
    expected = model.evaluate(x, y, return_dict=True, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, keras_rank.RankingModel)
    found = loaded.evaluate(x, y, return_dict=True, verbose=0)
    assert found == pytest.approx(expected, abs=1e-6)


def test_two_outputs_with_a_mask_each(data):
    x, y = data
    inputs = keras.Input((ITEMS, FEATURES))
    outputs = {
        name: keras.layers.Reshape((ITEMS,))(keras.layers.Dense(1)(inputs))
        for name in ("buy", "click")
    }
    model = keras_rank.RankingModel(inputs, outputs)
    model.compile(
        loss={"buy": masked_loss, "click": masked_loss},
        metrics={"buy": [NDCG(k=3, seed=1)], "click": [NDCG(k=3, seed=1)]},
    )
    logs = model.evaluate(x, {"buy": y, "click": y}, return_dict=True, verbose=0)
    labels = np.where(y["mask"], y["labels"], -1.0)
    scores = model.predict(x, verbose=0)
    for name in ("buy", "click"):
        expected = float(NDCG(k=3, seed=1)(labels, scores[name]))
        assert logs[f"{name}_ndcg@3"] == pytest.approx(expected, abs=2e-6)
