"""What is accepted as lists, what is padding, and what the errors say."""

import functools
import re
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import scipy.sparse
from keras import ops
from strategies import lists_of

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.lists.given import look
from keras_rank.lists.tensors import dtype_name
from keras_rank.metrics import HitRate


def value(*inputs, **arguments):
    labels, scores, *weights = inputs
    arguments["sample_weight"] = weights[0] if weights else None
    return float(functional.ndcg(labels, scores, seed=1, **arguments)[0])


LABELS, SCORES = [[0, 2, 1, 0]], [[0.4, 0.3, 0.2, 0.1]]


@pytest.mark.parametrize(
    ("labels", "scores", "weights", "message"),
    [
        (
            [[[[1.0]]]],
            [[[1.0]]],
            None,
            "`y_true` should have the shape (list_size,) or (batch, list_size). "
            "Received: y_true.shape=(1, 1, 1, 1)",
        ),
        (
            1.0,
            1.0,
            None,
            "`y_true` should have the shape (list_size,) or (batch, list_size). "
            "Received: y_true.shape=()",
        ),
        (
            [[1, 0]],
            [[0.1, 0.2, 0.3]],
            None,
            "`y_pred` should have the same shape as `y_true`, a row for each list "
            "with a number for each item. Received: "
            "y_pred.shape=(1, 3), y_true.shape=(1, 2)",
        ),
        (
            [1, 0],
            [[0.1], [0.2]],
            None,
            "`y_pred` should have the same shape as `y_true`, a row for each list "
            "with a number for each item. Scores of shape (n, 1) are n lists of one "
            "item: make lists of single items by `keras_rank.utils.pad_lists(scores, "
            "group_ids=...)`, or in `fit` by "
            "`keras_rank.callbacks.GroupedEvaluation`. Received: y_pred.shape=(2, 1), "
            "y_true.shape=(2,)",
        ),
        (
            [[1, 0]],
            [[[0.1, 0.2], [0.2, 0.1]]],
            None,
            "`y_pred` should have one number for each item, in the shape "
            "(batch, list_size) or (batch, list_size, 1). "
            "Where each position of (batch, time, items) is a list, give the ids of "
            "its relevant items with `sparse_labels=True`, or reshape scores and "
            "labels to (batch * time, items). Received: y_pred.shape=(1, 2, 2)",
        ),
        (
            {"labels": [[1, 0]], "mask": [[True]]},
            [[0.1, 0.2]],
            None,
            "`mask` should have the same shape as `y_true`, a row for each list "
            "with a number for each item. Received: "
            "mask.shape=(1, 1), y_true.shape=(1, 2)",
        ),
        (
            {"labels": [[1, 0]], "masks": [[True, True]]},
            [[0.1, 0.2]],
            None,
            '`y_true` should be labels, or a dict with the keys "labels" and "mask" '
            "(optional). Received: y_true with the keys ['labels', 'masks'], of which "
            "['masks'] are unknown",
        ),
        (
            {"mask": [[True, True]]},
            [[0.1, 0.2]],
            None,
            '`y_true` should be labels, or a dict with the keys "labels" and "mask" '
            "(optional). Received: y_true with the keys ['mask']",
        ),
        (
            [["a", "b"]],
            [[0.1, 0.2]],
            None,
            "`y_true` should hold real numbers. Received: y_true of dtype <U1",
        ),
        (
            [[1, 0]],
            np.array([[1j, 2j]]),
            None,
            "`y_pred` should hold real numbers. Received: y_pred of dtype complex128",
        ),
        (
            [[1, 0]],
            np.array([[None, 1]]),
            None,
            "`y_pred` should hold real numbers. Received: y_pred of dtype object",
        ),
        (
            [[1, 0], [0, 1]],
            [[0.1, 0.2], [0.1, 0.2]],
            [1.0, 2.0, 3.0],
            "`sample_weight` should be a number, have one weight per list, of shape "
            "(batch,) or (batch, 1), or have the same shape as `y_true`, "
            "(batch, list_size). Received: sample_weight.shape=(3,), "
            "y_true.shape=(2, 2)",
        ),
        (
            [[1, 0, 0]],
            [[0.1, 0.2, 0.3]],
            [1.0, 1.0, 1.0, 1.0],
            "`sample_weight` should be a number, have one weight per list, of shape "
            "(batch,) or (batch, 1), or have the same shape as `y_true`, "
            "(batch, list_size). Received: sample_weight.shape=(4,), "
            "y_true.shape=(1, 3)",
        ),
        (
            [1, 0, 0],
            [0.1, 0.2, 0.3],
            [1.0],
            "`sample_weight` should be a number or have the same shape as `y_true`. "
            "Received: sample_weight.shape=(1,), y_true.shape=(3,)",
        ),
        (
            [[1, 0], [1]],
            [[0.1, 0.2], [0.1, 0.2]],
            None,
            "`y_pred` should have as many items as `y_true` in every list. "
            "Received: 2 items in list 1 of y_pred, 1 in y_true",
        ),
        (
            [[1, 0], [1]],
            [[0.1, 0.2]],
            None,
            "`y_pred` should have as many lists as `y_true`. "
            "Received: 1 lists in y_pred, 2 in y_true",
        ),
        (
            [[1, 0], [[1]]],
            [[0.1, 0.2], [0.1]],
            None,
            "`y_true` should be a list of items or a batch of such lists. "
            "Received: list 1 of y_true, which holds lists",
        ),
    ],
)
def test_error_names_the_argument_and_leaves_the_state(
    labels, scores, weights, message
):
    metric = metrics.NDCG(k=2)
    expected = float(metric(LABELS, SCORES))
    with pytest.raises(ValueError) as error:
        metric.update_state(labels, scores, weights)
    assert str(error.value) == message
    assert float(metric.result()) == expected


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "uint8", "float16", "float64", "bfloat16"]
)
def test_any_number_will_do(dtype, backend):
    expected = value([[0, 2, 1, 0]], [[4, 3, 2, 1]])
    if backend == "jax" and dtype.endswith("64"):
        pytest.skip("JAX has no 64 bits unless asked for")
    labels = ops.cast(ops.array([[0, 2, 1, 0]], dtype="int32"), dtype)
    scores = ops.cast(ops.array([[4, 3, 2, 1]], dtype="int32"), dtype)
    assert value(labels, scores) == expected


def test_any_array_will_do():
    expected = value([[0, 2, 1, 0]], [[4, 3, 2, 1]])
    assert value([0, 2, 1, 0], (4, 3, 2, 1)) == expected
    labels, scores = np.array([[0, 2, 1, 0]]), np.array([[4, 3, 2, 1]])
    for dtype in ("int64", "uint8", "float16", "float64"):
        assert value(labels.astype(dtype), scores.astype(dtype)) == expected


def variables(values, dtype):
    """Of Keras, and of the backend where it has its own."""
    yield keras.Variable(values, dtype=dtype, trainable=False)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        yield tf.Variable(values, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_variables(dtype, backend):
    labels = np.array([[0, 1, 1, 0]], dtype)
    expected = value(labels, SCORES, labels + 1)
    for variable in variables(labels, dtype):
        weights, *_ = variables(labels + 1.0, "float32")
        assert value(variable, SCORES, weights) == expected
        masked = {"labels": np.ones_like(labels), "mask": variable}
        assert value(masked, SCORES) == 1.0
        metric = metrics.NDCG()
        if backend == "tensorflow":
            import tensorflow as tf

            tf.function(metric.update_state)(variable, SCORES, weights)
        assert float(metric(variable, SCORES, weights)) == pytest.approx(expected)


def test_variables_of_ids_and_scores():
    for ids in variables(np.array([[1, 2]]), "int32"):
        for scores in variables(np.array(SCORES), "float32"):
            found = functional.recall(ids, scores, sparse_labels=True, k=2)
            assert float(found[0]) == 0.5


def test_bytes_in_the_other_order():
    expected = value(LABELS, SCORES, [[1, 2, 3, 1]])
    for dtype in (">f4", ">f8"):
        given = [np.array(x, dtype) for x in (LABELS, SCORES, [[1, 2, 3, 1]])]
        assert value(*given) == pytest.approx(expected)
    for dtype in (">i2", ">i4", ">i8", ">u4"):
        assert value(np.array(LABELS, dtype), SCORES) == value(LABELS, SCORES)
        ids = np.array([1], dtype)
        found = functional.reciprocal_rank(ids, SCORES, sparse_labels=True)
        assert float(found[0]) == 0.5


def columns(module):
    if module == "pyarrow":
        arrow = pytest.importorskip(module)
        yield arrow.array
        yield lambda rows: arrow.chunked_array([rows[:1], rows[1:]])
    else:
        yield pytest.importorskip(module).Series


@pytest.mark.parametrize("module", ["pandas", "polars", "pyarrow"])
def test_columns_of_tables(module):
    labels, scores, weights = [0, 2, 1, 0], [0.4, 0.3, 0.2, 0.1], [1.0, 2.0, 1.0, 1.0]
    for column in columns(module):
        given = [column(x) for x in (labels, scores, weights)]
        assert value(*given) == value(labels, scores, weights)
        for rows in RAGGED, ([[1, 0], [0, 2]], [[0.3, 0.2], [0.1, 0.4]]):
            found = functional.ndcg(*map(column, rows), seed=1)
            expected = functional.ndcg(*rows, seed=1)
            np.testing.assert_array_equal(
                ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
            )
        ids, catalogue = column([[1], [0, 2]]), column([[3.0, 2.0, 1.0]] * 2)
        found = functional.recall(ids, catalogue, sparse_labels=True, k=1)
        np.testing.assert_array_equal(ops.convert_to_numpy(found), [0.0, 0.5])
        with pytest.raises(ValueError, match="`y_true` should hold real numbers"):
            value(column(["a", "b"]), column([0.1, 0.2]))


def test_rows_of_torch_on_any_backend():
    """With gradients, or in bfloat16, which NumPy doesn't have."""
    torch = pytest.importorskip("torch")
    for rows in RAGGED, ([[1, 0], [0, 2]], [[0.5, 0.25], [0.125, 0.5]]):
        expected = [value(*row) for row in zip(*rows, strict=True)]
        for make in (
            lambda row: torch.tensor(row, dtype=torch.float32, requires_grad=True),
            lambda row: torch.tensor(row, dtype=torch.bfloat16),
        ):
            given = [[make(row) for row in part] for part in rows]
            found = functional.ndcg(*given, seed=1)
            np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-6)


def test_labels_of_torch_with_gradients_are_compared():
    torch = pytest.importorskip("torch")
    labels = torch.tensor([[3.0, 1.0, 2.0]], requires_grad=True)
    found = functional.pairwise_accuracy(labels, [[3.0, 1.0, 2.0]])
    assert float(found[0]) == 1.0


@pytest.mark.parametrize(
    ("labels", "received"),
    [
        (
            scipy.sparse.csr_matrix(LABELS),
            "csr_matrix, which is sparse: pass `y_true.toarray()`, which has 0 where "
            "nothing is stored",
        ),
        (iter(LABELS), "list_iterator: pass `list(y_true)`"),
        ((row for row in LABELS), "generator: pass `list(y_true)`"),
        (None, "NoneType"),
    ],
)
def test_what_is_to_be_converted_first(labels, received):
    with pytest.raises(ValueError) as error:
        value(labels, SCORES)
    assert str(error.value) == (
        f"`y_true` should hold real numbers. Received: y_true of type {received}"
    )


def sparse_tensors():
    """Those of the backend, and the method or function that makes them dense."""
    backend, labels = keras.backend.backend(), np.float32(LABELS)
    if backend == "torch":
        import torch

        tensor = torch.tensor(labels)
        tensors = [tensor.to_sparse(), tensor.to_sparse_csr(), tensor.to_sparse_csc()]
        return [(x, ".to_dense()") for x in tensors]
    if backend == "tensorflow":
        import tensorflow as tf

        return [(tf.sparse.from_dense(labels), "tf.sparse.to_dense(")]
    if backend == "jax":
        from jax.experimental import sparse

        kinds = sparse.BCOO, sparse.BCSR
        return [(kind.fromdense(labels), ".todense()") for kind in kinds]
    return [(scipy.sparse.coo_array(labels), ".toarray()")]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_sparse_tensors_are_refused_by_name():
    """Where ids are expected, a dense tensor would be misread."""
    ids, queries = [[1]], np.ones((1, 1))
    for tensor, way in sparse_tensors():
        for argument, call in {
            "y_true": lambda x: value(x, SCORES),
            "y_pred": lambda x: value(LABELS, x),
            "sample_weight": lambda x: value(LABELS, SCORES, x),
            "mask": lambda x: value({"labels": LABELS, "mask": x}, SCORES),
            "labels": lambda x: utils.mask_labels(x, LABELS),
            "values": lambda x: utils.pad_lists(x, group_sizes=[1]),
            "queries": lambda x: catalogue.top_k(x, queries, 1),
            "candidates": lambda x: catalogue.top_k(queries, x, 1),
        }.items():
            with pytest.raises(
                ValueError, match=f"`{argument}` should.*spars"
            ) as error:
                call(tensor)
            assert way in str(error.value)
        if isinstance(tensor, scipy.sparse.sparray):
            continue  # Its columns are ids.
        for argument, call in {
            "y_true": lambda x: functional.ndcg(x, SCORES, sparse_labels=True),
            "targets": lambda x: catalogue.rank(x, queries, np.ones((3, 1))),
            "exclude": lambda x: catalogue.top_k(queries, queries, 1, exclude=x),
            "item_ids": lambda x: utils.exclude_items(SCORES, x),
            "keep": lambda x: utils.exclude_items(SCORES, ids, keep=x),
        }.items():
            with pytest.raises(
                ValueError, match=f"`{argument}` should hold ids"
            ) as error:
                call(tensor)
            assert "dense" not in str(error.value)


# Scores at every position.


def test_the_advice_for_scores_at_every_position_is_right(rng):
    """Each position is a list: what is flattened to `(batch, time * items)` is not."""
    ids, scores = rng.integers(0, 7, (6, 4)), rng.normal(size=(6, 4, 7))
    labels, weights = np.eye(7)[ids], rng.random((6, 4))
    with pytest.raises(ValueError, match=r"reshape scores and labels to \(batch \* ti"):
        HitRate(k=2).update_state(labels, scores)
    # The rank of the item at each position, as a hit is one of 1 or 2.
    own = np.take_along_axis(scores, ids[:, :, None], axis=2)
    are_hits = np.sum(scores > own, axis=2) < 2
    expected = np.sum(are_hits * weights) / np.sum(weights)
    sparse = HitRate(k=2, sparse_labels=True)(ids, scores, weights)
    assert float(sparse) == pytest.approx(expected, rel=1e-6)
    given = scores.reshape(6 * 4, 7), weights.reshape(6 * 4)
    dense = HitRate(k=2)(labels.reshape(6 * 4, 7), *given)
    assert float(dense) == pytest.approx(expected, rel=1e-6)


# A third axis of 1, which `Dense(1)` over the items of lists leaves.


def with_third_axis(*parts):
    return [None if part is None else part[:, :, None] for part in parts]


@pytest.mark.programs
@pytest.mark.parametrize("shape", [(8, 7), (8, 1), (1, 7), (1, 1), (0, 7), (8, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_third_axis_of_one(shape, weighted, rng):
    labels = rng.integers(-1, 3, size=shape).astype("float32")
    scores = rng.normal(size=shape).astype("float32")
    weights = rng.random(shape).astype("float32") if weighted else None
    mask = rng.random(shape) < 0.8
    given = {"labels": labels, "mask": mask}
    expected = functional.ndcg(given, scores, sample_weight=weights)
    expected_mean = metrics.NDCG()(given, scores, weights)
    deep_labels, deep_mask, deep_scores, deep_weights = with_third_axis(
        labels, mask, scores, weights
    )
    for parts in (
        (given, deep_scores, weights),
        (given, deep_scores, deep_weights),
        ({"labels": deep_labels, "mask": mask}, scores, weights),
        ({"labels": deep_labels, "mask": deep_mask}, deep_scores, deep_weights),
    ):
        found = functional.ndcg(*parts[:2], sample_weight=parts[2])
        assert tuple(found.shape) == (shape[0],)
        np.testing.assert_array_equal(
            ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
        )
        assert float(metrics.NDCG()(*parts)) == float(expected_mean)


def test_a_third_axis_of_a_catalogue(rng):
    ids, scores = np.array([[1, 2], [0, -1]]), rng.normal(size=(2, 4))
    expected = functional.ndcg(ids, scores, sparse_labels=True)
    for inputs in ((ids, scores[..., None]), (ids[..., None], scores[..., None])):
        found = functional.ndcg(*inputs, sparse_labels=True)
        np.testing.assert_array_equal(
            ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
        )


@pytest.mark.trains
@pytest.mark.parametrize("deep", [False, True])
def test_a_model_that_ends_with_one_score_per_item(deep, rng):
    """In `fit` and `evaluate`, as if there were a `Reshape` at its end."""
    x = rng.normal(size=(6, 4, 3)).astype("float32")
    y = rng.integers(-1, 3, size=(6, 4)).astype("float32")
    inputs = keras.Input((None, 3))
    outputs = keras.layers.Dense(1)(inputs)
    logs = []
    for last in (outputs, keras.layers.Reshape((-1,))(outputs)):
        model = keras.Model(inputs, last)
        model.compile(
            keras.optimizers.SGD(0.0),
            "mse",
            metrics=[metrics.NDCG(k=2, seed=1)],
            weighted_metrics=[metrics.MeanReciprocalRank(seed=1)],
        )
        target = y[:, :, None] if deep and last is outputs else y
        history = model.fit(x, target, batch_size=6, verbose=0).history
        evaluated = model.evaluate(x, target, return_dict=True, verbose=0)
        logs.append([history["ndcg_at_2"][0], evaluated["ndcg_at_2"], evaluated["mrr"]])
    np.testing.assert_allclose(*logs, rtol=1e-6)


def test_a_third_axis_that_a_graph_does_not_know(backend):
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    import tensorflow as tf

    unknown = tf.TensorSpec((None, None, None), "float32")
    ndcg = tf.function(functional.ndcg, input_signature=[unknown] * 2)
    labels, scores = tf.constant(LABELS, "float32"), tf.constant(SCORES)
    assert float(ndcg(labels[..., None], scores[..., None])[0]) == value(LABELS, SCORES)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ndcg(tf.ones((1, 2, 2)), tf.ones((1, 2, 2)))


def test_an_unknown_number_of_axes_is_named(backend):
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    import tensorflow as tf

    known, unknown = tf.TensorSpec((None, 3)), tf.TensorSpec(None)
    for argument, signature in (
        ("y_true", [unknown, known]),
        ("y_pred", [known, unknown]),
        ("sample_weight", [known, known, unknown]),
    ):
        update = tf.function(
            lambda *given: metrics.NDCG().update_state(*given),
            input_signature=signature,
        )
        with pytest.raises(ValueError, match=f"`{argument}` should have a known num"):
            update.get_concrete_function()


@pytest.mark.parametrize("with_xla", [False, True])
@pytest.mark.parametrize(
    "name", ["ndcg", "expected_reciprocal_rank", "pairwise_accuracy"]
)
def test_lists_without_items_in_a_graph_that_does_not_know_their_size(
    backend, name, with_xla
):
    """As a batch of a ragged dataset may have."""
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    import tensorflow as tf

    function = getattr(functional, name)
    unknown = tf.TensorSpec((None, None), "float32")
    values = tf.function(
        lambda labels, scores: function(labels, scores, shuffle_ties="average"),
        input_signature=[unknown] * 2,
        jit_compile=with_xla,
    )
    assert np.isnan(values(tf.zeros((2, 0)), tf.zeros((2, 0)))).all()
    labels, scores = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.1, 0.2]]
    expected = function(labels, scores, shuffle_ties="average")
    np.testing.assert_allclose(
        values(tf.constant(labels), tf.constant(scores)), expected, rtol=1e-6
    )


def test_boolean_labels_and_masks_of_numbers():
    assert value([[False, True]], [[0.1, 0.2]]) == 1.0
    masked = {"labels": [[1, 1, 0]], "mask": [[0, 2, 1]]}
    assert value(masked, [[0.9, 0.2, 0.1]]) == 1.0


def test_scores_are_ranked_in_float64_where_the_backend_has_it(backend):
    close = np.array([[1.0, 1.0 + 1e-12]])
    average = value([[0, 1]], close, shuffle_ties="average")
    rounded = value([[0, 1]], [[1.0, 1.0]], shuffle_ties="average")
    assert average == (rounded if backend == "jax" else 1.0)


def test_low_precision_scores_tie_only_where_they_are_equal():
    scores = ops.cast(ops.array([[1.0, 1.0078125]]), "bfloat16")
    assert value([[0, 1]], scores, shuffle_ties="average") == 1.0


@pytest.mark.parametrize("junk_label", [-1.0, -0.5, np.nan, -np.inf])
@pytest.mark.parametrize("junk_score", [0.0, 1e30, np.inf, -np.inf, np.nan])
def test_labels_below_zero_are_padding(junk_label, junk_score):
    labels = [[0.0, junk_label, 2.0, 1.0, 0.0, junk_label]]
    scores = [[0.4, junk_score, 0.3, 0.2, 0.1, junk_score]]
    assert value(labels, scores) == value(LABELS, SCORES)


@pytest.mark.parametrize("junk_weight", [0.0, -1.0, np.nan, -np.inf])
def test_weights_of_zero_or_less_are_padding(junk_weight):
    labels, scores = [[0, 3, 2, 1, 0]], [[0.4, np.inf, 0.3, 0.2, 0.1]]
    weights = [[1.0, junk_weight, 1.0, 1.0, 1.0]]
    assert value(labels, scores, weights) == value(LABELS, SCORES)


def test_infinite_and_huge_values_are_finite_in_the_end():
    assert value([[np.inf, 0.0]], [[0.1, 0.9]]) == pytest.approx(1 / np.log2(3))
    assert value([[1.0, 2.0]], [[np.inf, -np.inf]]) > 0
    weights = [[np.inf, 1.0]]
    assert np.isfinite(value([[1.0, 2.0]], [[0.9, 0.1]], weights))


def test_items_that_were_not_retrieved_count_in_the_ideal():
    """The one of three relevant items that was retrieved is first."""
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    for missing in (-np.inf, np.nan):
        scores = [[0.5, missing, missing, 0.1]]
        assert value([[1, 1, 1, 0]], scores) == pytest.approx(1 / ideal)


def test_signed_zeros_and_denormal_scores_tie():
    expected = value([[1, 0]], [[0.0, 0.0]], shuffle_ties="average")
    for scores in ([[0.0, -0.0]], [[-0.0, 0.0]], [[1e-40, -1e-40]]):
        scores = np.array(scores, "float32")
        assert value([[1, 0]], scores, shuffle_ties="average") == expected
        sparse = functional.ndcg(
            [0], scores, sparse_labels=True, shuffle_ties="average"
        )
        assert float(sparse[0]) == expected


@pytest.mark.programs
def test_denormal_scores_tie_with_zeros_beyond_the_candidates():
    scores = np.full((1, 2048), -1e-40, "float32")
    scores[0, :2] = 0.0
    labels = np.zeros_like(scores)
    labels[0, -1] = 1.0
    share = functional.hit_rate(labels, scores, k=1, shuffle_ties="average")
    assert float(share[0]) == pytest.approx(1 / 2048)


@pytest.mark.programs
@pytest.mark.parametrize("shape", [(0, 5), (0, 300), (3, 0), (0, 0), (0,)])
def test_nothing_counts_nothing(shape):
    metric = metrics.NDCG(k=2)
    expected = float(metric(LABELS, SCORES))
    metric.update_state(np.zeros(shape), np.zeros(shape))
    assert float(metric.result()) == expected
    values = functional.ndcg(np.zeros(shape), np.zeros(shape))
    assert np.all(np.isnan(ops.convert_to_numpy(values)))
    assert tuple(values.shape) == (shape[0] if len(shape) == 2 else 1,)


RAGGED = ([[1, 0, 2], [0, 1], [3]], [[0.3, 0.2, 0.1], [0.9, 0.5], [0.0]])


def ragged_forms():
    yield "lists", RAGGED
    yield "tuples", tuple(tuple(map(tuple, rows)) for rows in RAGGED)
    yield "arrays", tuple([np.array(row) for row in rows] for rows in RAGGED)
    # A column of lists, as of pandas, is an array of objects.
    yield "columns", tuple(np.array(rows, dtype=object) for rows in RAGGED)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        yield "tf.ragged", tuple(tf.ragged.constant(rows) for rows in RAGGED)
    if keras.backend.backend() == "torch":
        import torch

        yield (
            "torch.nested",
            tuple(
                torch.nested.nested_tensor(
                    [torch.tensor(row) for row in rows], layout=torch.jagged
                )
                for rows in RAGGED
            ),
        )


@pytest.mark.parametrize(("form", "ragged"), list(ragged_forms()))
def test_lists_of_uneven_length(form, ragged):
    expected = [value(*row) for row in zip(*RAGGED, strict=True)]
    found = ops.convert_to_numpy(functional.ndcg(*ragged, seed=1))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    metric = metrics.NDCG()
    assert float(metric(*ragged)) == pytest.approx(np.mean(expected))


def test_ragged_tensors_on_any_backend():
    """TensorFlow makes them, whoever computes."""
    tf = pytest.importorskip("tensorflow")

    expected = [value(*row) for row in zip(*RAGGED, strict=True)]
    for dtype in ("int32", "uint8", "float32"):
        labels, scores = (tf.ragged.constant(rows) for rows in RAGGED)
        values = functional.ndcg(tf.cast(labels, dtype), scores, seed=1)
        np.testing.assert_allclose(
            ops.convert_to_numpy(values), expected, rtol=1e-6, err_msg=dtype
        )


@pytest.mark.parametrize("library", ["tensorflow", "torch"])
def test_ragged_tensors_keep_their_dtype(library):
    """But for padding that it does not have."""
    pytest.importorskip(library)

    def ragged(rows, dtype):
        if library == "torch":
            import torch

            rows = [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]
            return torch.nested.nested_tensor(rows, layout=torch.jagged)
        import tensorflow as tf

        return tf.cast(tf.ragged.constant(rows, dtype="int64"), dtype)

    rows, large = [[1, 0, 2], [3]], 2**53 + 1
    for dtype, padding, expected in (
        ("int64", -1, "int64"),
        ("int64", -np.inf, "float64"),
        ("float32", -np.inf, "float32"),
    ):
        found = look("y_true", ragged(rows, dtype), padding)
        assert dtype_name(found.numbers) == expected
        assert list(found.lengths) == [3, 1]
        numbers = np.asarray(found.numbers).tolist()
        assert numbers == [[1, 0, 2], [3, padding, padding]]
    if library == "tensorflow":
        found = look("y_true", ragged([[large], [1, 2]], "int64"), -1)
        assert np.asarray(found.numbers).tolist() == [[large, -1], [1, 2]]
    with pytest.raises(ValueError, match="in rows of the same length"):
        look("y_true", ragged(rows, "int64"))


def test_uneven_masks_and_weights():
    labels, scores = RAGGED
    masked = {"labels": labels, "mask": [[True, False, True], [True, True], [True]]}
    expected = value([1, 2], [0.3, 0.1])
    assert value(masked, scores) == pytest.approx(expected)
    weights = [[1.0, 0.0, 1.0], [1.0, 1.0], [1.0]]
    assert value(labels, scores, weights) == pytest.approx(expected)
    per_list = [2.0, 1.0, 1.0]
    assert float(metrics.NDCG()(labels, scores, per_list)) > 0


def test_even_lists_under_an_uneven_name():
    """Uneven lists of even length are just a batch."""
    lists = lists_of([[1, 0], [0, 1]], [[0.1, 0.2], [0.3, 0.4]])
    assert tuple(lists.labels.shape) == (2, 2)


SINGLE = ([[1.0], [0.0], [1.0]], [[0.1], [0.2], [0.3]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.NDCG(),
        lambda: metrics.RankingMetrics(["mrr", "ndcg"]),
        lambda: functional.ndcg,
    ],
)
@pytest.mark.parametrize("last_axis", [(), (1,)])
def test_lists_of_one_item_have_no_order(call, last_axis):
    labels, scores = (np.float32(x) for x in SINGLE)
    with pytest.warns(UserWarning, match="of one item: make lists of single items by"):
        call()(labels, scores.reshape(3, 1, *last_axis))


def test_a_metric_warns_of_its_first_batch_alone():
    metric = metrics.NDCG()
    with pytest.warns(UserWarning, match="One item has no order"):
        metric.update_state(*SINGLE)
    metric.update_state(*SINGLE)
    by_row = metrics.NDCG()
    by_row.update_state([[1.0]], [[0.1]])
    with pytest.warns(UserWarning, match="One item has no order"):
        by_row.update_state(*SINGLE)
    # A batch of short lists among others, as warnings are errors here.
    sorted_by_size = metrics.NDCG()
    sorted_by_size.update_state(LABELS, SCORES)
    sorted_by_size.update_state(*SINGLE)


@pytest.mark.parametrize(
    ("labels", "scores", "arguments"),
    [
        ([[1.0]], [[0.1]], {}),
        ([1.0, 0.0, 1.0], [0.1, 0.2, 0.3], {}),
        ([[1.0], [], [0.0]], [[0.1], [], [0.3]], {}),
        ({"labels": SINGLE[0], "mask": [[True], [True], [False]]}, SINGLE[1], {}),
        ([0, 0, -1], SINGLE[1], {"sparse_labels": True}),
        (np.zeros((0, 0)), np.zeros((0, 0)), {}),
    ],
)
def test_what_is_meant_as_lists_is_not_warned_of(labels, scores, arguments):
    metrics.MeanReciprocalRank(**arguments)(labels, scores)
    functional.reciprocal_rank(labels, scores, **arguments)


@pytest.mark.parametrize(
    ("labels", "scores", "warns"),
    [
        ([[0.3, 0.9]], [[True, False]], True),
        ([[0.3, 0.9]], [[0, 1]], True),
        ([[0.5, 1.0]], [[7, 3]], False),
        ([[0.5, 1.0]], [[1.0, 0.0]], False),
        ([[1.0, 0.0]], [[1, 0]], False),
        # Grades, with padding too.
        ([[0.3, 0.9, 0.1]], [[0, 3, 1]], True),
        ([[0.3, -1.9, 0.1]], [[4.0, 0.0, 0.0]], True),
        ([[0.3, 0.9, 0.1]], [[2.0, 0.0, -1.0]], True),
        # Soft labels, and a model that is saturated, or returns places or halves.
        ([[0.3, 0.9, 0.1]], [[0.0, 1.0, 1.0]], False),
        ([[0.3, 0.9, 0.1]], [[2.0, 0.0, 1.0]], False),
        ([[0.3, 0.9, 0.1]], [[2, 3, 1]], False),
        ([[0.3, 0.9, 0.1]], [[2.0, 0.0, 1.5]], False),
        ([[0.5, 3.5, 2.5]], [[4, 0, 0]], False),
        ([[0.3, 0.0, 0.0]], [[4, 0, 0]], False),
        ([[0.3, np.nan, np.nan]], [[4, 0, 0]], False),
        ([[0.3, 0.9, 0.1]], [[70, 0, 0]], False),
        ([[2.0, 0.0, 1.0]], [[0.3, 0.9, 0.1]], False),
    ],
)
def test_swapped_arguments_are_warned_of_once(labels, scores, warns):
    """Labels in the place of scores, as where torchmetrics has them."""
    message = re.escape("are they swapped? The order of Keras is (y_true, y_pred)")
    metric = metrics.NDCG(shuffle_ties=False)
    labels, scores = np.array(labels), np.array(scores)
    with pytest.warns(UserWarning, match=message) if warns else nullcontext():
        metric.update_state(labels, scores)
    metric.update_state(labels, scores)
    for way in (
        functools.partial(functional.ndcg, shuffle_ties=False),
        functools.partial(functional.ndcg, shuffle_ties=False, gain_fn=abs),
        functools.partial(functional.rank, shuffle_ties=False),
        First(),
    ):
        with pytest.warns(UserWarning, match=message) if warns else nullcontext():
            way(labels, scores)


class First(metrics.RankingMetric):
    """A metric of a user's."""

    def compute(self, lists, ranking):
        return ranking.take(lists.relevance)[:, 0]


@pytest.mark.parametrize("sparse_labels", [False, True])
def test_labels_without_scores(sparse_labels):
    message = re.escape("labels and scores are passed together, as (y_true, y_pred)")
    metric = metrics.NDCG(sparse_labels=sparse_labels)
    for call in (metric, metric.update_state, metrics.RankingMetrics([metric])):
        with pytest.raises(ValueError, match=message):
            call([[0, 1]])


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors_without_items(layout):
    torch = pytest.importorskip("torch")
    rows = [torch.zeros(0), torch.zeros(0)]
    nested = torch.nested.nested_tensor(rows, layout=getattr(torch, layout))
    values = functional.ndcg(nested, nested)
    np.testing.assert_array_equal(ops.convert_to_numpy(values), [np.nan, np.nan])
