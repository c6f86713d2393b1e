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

BACKEND = keras.backend.backend()


def value(*inputs, **arguments):
    labels, scores, *weights = inputs
    arguments["sample_weight"] = weights[0] if weights else None
    return float(functional.ndcg(labels, scores, seed=1, **arguments)[0])


LABELS, SCORES = [[0, 2, 1, 0]], [[0.4, 0.3, 0.2, 0.1]]


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


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">i4", ">i8", ">u4"])
def test_bytes_in_the_other_order(dtype):
    expected = value(LABELS, SCORES, [[1, 2, 3, 1]])
    scores = np.multiply(SCORES, 10).astype(dtype)
    given = [np.array(x, dtype) for x in (LABELS, [[1, 2, 3, 1]])]
    assert value(given[0], scores, given[1]) == pytest.approx(expected)
    if "f" not in dtype:
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


IS_SPARSE = (
    "type csr_matrix, which is sparse: pass `y_true.toarray()`, which has 0 where "
)
IS_SPARSE += "nothing is stored"


@pytest.mark.parametrize(
    ("labels", "received"),
    [
        (scipy.sparse.csr_matrix(LABELS), IS_SPARSE),
        (iter(LABELS), "type list_iterator: pass `list(y_true)`"),
        ((row for row in LABELS), "type generator: pass `list(y_true)`"),
        (None, "type NoneType"),
        ([["a"] * 4], "dtype <U1"),
        (np.full((1, 4), 1j), "dtype complex128"),
        (np.full((1, 4), None), "dtype object"),
    ],
)
def test_what_is_to_be_converted_first(labels, received):
    message = f"`y_true` should hold real numbers. Received: y_true of {received}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        value(labels, SCORES)


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
    dense = {
        "y_true": lambda x: value(x, SCORES),
        "y_pred": lambda x: value(LABELS, x),
        "sample_weight": lambda x: value(LABELS, SCORES, x),
        "mask": lambda x: value({"labels": LABELS, "mask": x}, SCORES),
        "labels": lambda x: utils.mask_labels(x, LABELS),
        "values": lambda x: utils.pad_lists(x, group_sizes=[1]),
        "queries": lambda x: catalogue.top_k(x, queries, 1),
        "candidates": lambda x: catalogue.top_k(queries, x, 1),
    }
    of_ids = {
        "y_true": lambda x: functional.ndcg(x, SCORES, sparse_labels=True),
        "targets": lambda x: catalogue.rank(x, queries, np.ones((3, 1))),
        "exclude": lambda x: catalogue.top_k(queries, queries, 1, exclude=x),
        "item_ids": lambda x: utils.exclude_items(SCORES, x),
        "keep": lambda x: utils.exclude_items(SCORES, ids, keep=x),
    }
    for tensor, way in sparse_tensors():
        for argument, call in dense.items():
            message = f"(?s)`{argument}` should.*spars.*{re.escape(way)}"
            with pytest.raises(ValueError, match=message):
                call(tensor)
        if not isinstance(tensor, scipy.sparse.sparray):  # Its columns are ids.
            for argument, call in of_ids.items():
                message = f"(?s)`{argument}` should hold ids(?!.*dense)"
                with pytest.raises(ValueError, match=message):
                    call(tensor)


# A third axis of 1, which `Dense(1)` over the items of lists leaves.


@pytest.mark.programs
@pytest.mark.parametrize("shape", [(24, 7), (8, 1), (1, 7), (1, 1), (0, 7), (8, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_third_axis_of_one(shape, weighted, rng):
    """With ties, which are shuffled by the numbers of lists and items."""
    labels = rng.integers(-1, 3, size=shape).astype("float32")
    scores = rng.integers(0, 3, size=shape).astype("float32")
    weights = rng.random(shape).astype("float32") if weighted else None
    mask = rng.random(shape) < 0.8

    def results(labels, mask, scores, weights):
        given = {"labels": labels, "mask": mask}
        values = functional.ndcg(given, scores, sample_weight=weights, seed=1)
        metric = metrics.NDCG(seed=1)
        metric.update_state(given, scores, weights)
        return [*ops.convert_to_numpy(values).tolist(), float(metric.result())]

    parts = labels, mask, scores, weights
    expected = results(*parts)
    assert len(expected) == shape[0] + 1
    deep = [None if part is None else part[:, :, None] for part in parts]
    for places in ({2}, {2, 3}, {0}, {0, 1, 2, 3}):
        mixed = [(deep if i in places else parts)[i] for i in range(4)]
        assert results(*mixed) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def test_a_third_axis_of_a_catalogue(rng):
    ids, scores = rng.integers(-1, 7, (24, 2)), rng.integers(0, 3, (24, 7))
    deep = [x[..., None] for x in (ids, scores)]
    expected, *others = (
        ops.convert_to_numpy(functional.ndcg(*given, sparse_labels=True, seed=1))
        for given in ((ids, scores), (ids, deep[1]), deep)
    )
    for found in others:
        np.testing.assert_array_equal(found, expected)


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
        given = {"metrics": [metrics.NDCG(k=2, seed=1)]}
        given["weighted_metrics"] = [metrics.MeanReciprocalRank(seed=1)]
        model.compile(keras.optimizers.SGD(0.0), "mse", **given)
        target = y[:, :, None] if deep and last is outputs else y
        history = model.fit(x, target, batch_size=6, verbose=0).history
        evaluated = model.evaluate(x, target, return_dict=True, verbose=0)
        logs.append([history["ndcg_at_2"][0], evaluated["ndcg_at_2"], evaluated["mrr"]])
    np.testing.assert_allclose(*logs, rtol=1e-6)


@pytest.fixture
def tf(backend):
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    return pytest.importorskip("tensorflow")


def test_a_third_axis_that_a_graph_does_not_know(tf):
    unknown = tf.TensorSpec((None, None, None), "float32")
    ndcg = tf.function(functional.ndcg, input_signature=[unknown] * 2)
    labels, scores = tf.constant(LABELS, "float32"), tf.constant(SCORES)
    assert float(ndcg(labels[..., None], scores[..., None])[0]) == value(LABELS, SCORES)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ndcg(tf.ones((1, 2, 2)), tf.ones((1, 2, 2)))


def test_an_unknown_number_of_axes_is_named(tf):
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
    tf, name, with_xla
):
    """As a batch of a ragged dataset may have."""
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


@pytest.mark.parametrize(
    ("scores", "in_jax"),
    [
        (np.array([1.0, 1.0 + 1e-12]), "a tie"),
        ([2**24, 2**24 + 1], "a tie"),
        ([2**33 - 1, 2**33], "a tie"),
        ([-(2**40), 2**62], "in order"),
        # A number is retrieved, however low it is.
        ([-np.inf, -1e300], "in order"),
        ([-1e300, 1e300], "in order"),
    ],
)
def test_scores_are_ranked_in_64_bits_where_the_backend_has_them(
    scores, in_jax, backend
):
    found = value([[0, 1]], [scores], shuffle_ties="average")
    is_tie = backend == "jax" and in_jax == "a tie"
    tie = value([[0, 1]], [[1, 1]], shuffle_ties="average")
    assert found == pytest.approx(tie if is_tie else 1.0)


def test_low_precision_scores_tie_only_where_they_are_equal():
    scores = ops.cast(ops.array([[1.0, 1.0078125]]), "bfloat16")
    assert value([[0, 1]], scores, shuffle_ties="average") == 1.0


@pytest.mark.parametrize("junk", [-1.0, -0.5, np.nan, -np.inf])
@pytest.mark.parametrize("junk_score", [0.0, 1e30, np.inf, -np.inf, np.nan])
def test_labels_below_zero_and_weights_of_none_are_padding(junk, junk_score):
    labels = [[0.0, junk, 2.0, 1.0, 0.0, junk]]
    scores = [[0.4, junk_score, 0.3, 0.2, 0.1, junk_score]]
    assert value(labels, scores) == value(LABELS, SCORES)
    labels, weights = [[0, 3, 2, 1, 0, 3]], [[1.0, junk, 1.0, 1.0, 1.0, 0.0]]
    assert value(labels, scores, weights) == value(LABELS, SCORES)


def test_signed_zeros_and_denormal_scores_tie():
    expected = value([[1, 0]], [[0.0, 0.0]], shuffle_ties="average")
    for scores in ([[0.0, -0.0]], [[-0.0, 0.0]], [[1e-40, -1e-40]]):
        for labels, is_sparse in (([[1, 0]], False), ([0], True)):
            given = labels, np.array(scores, "float32")
            how = {"sparse_labels": is_sparse, "shuffle_ties": "average"}
            assert value(*given, **how) == expected


@pytest.mark.programs
def test_denormal_scores_tie_with_zeros_beyond_the_candidates():
    scores = np.full((1, 2048), -1e-40, "float32")
    scores[0, :2] = 0.0
    labels = np.zeros_like(scores)
    labels[0, -1] = 1.0
    share = functional.hit_rate(labels, scores, k=1, shuffle_ties="average")
    assert float(share[0]) == pytest.approx(1 / 2048)


RAGGED = ([[1, 0, 2], [0, 1], [3]], [[0.3, 0.2, 0.1], [0.9, 0.5], [0.0]])


def ragged_by(library, rows, dtype="float32"):
    """A ragged tensor, which some backends have, and which others take too."""
    module = pytest.importorskip(library)
    if library == "tensorflow":
        return module.cast(module.ragged.constant(rows, dtype="float64"), dtype)
    parts = [module.tensor(row, dtype=getattr(module, dtype)) for row in rows]
    return module.nested.nested_tensor(parts, layout=module.jagged)


FORMS = {
    "lists": list,
    "tuples": lambda rows: tuple(map(tuple, rows)),
    "arrays": lambda rows: [np.array(row) for row in rows],
    # A column of lists, as of pandas, is an array of objects.
    "columns": lambda rows: np.array(rows, dtype=object),
    "ragged tensors": functools.partial(ragged_by, "tensorflow"),
    "nested tensors": functools.partial(ragged_by, "torch"),
}


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_uneven_length(form):
    expected = [value(*row) for row in zip(*RAGGED, strict=True)]
    ragged = [FORMS[form](rows) for rows in RAGGED]
    found = ops.convert_to_numpy(functional.ndcg(*ragged, seed=1))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    metric = metrics.NDCG()
    assert float(metric(*ragged)) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("library", ["tensorflow", "torch"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float64"])
def test_ragged_labels_of_any_dtype(library, dtype):
    expected = [value(*row) for row in zip(*RAGGED, strict=True)]
    labels, scores = ragged_by(library, RAGGED[0], dtype), RAGGED[1]
    found = ops.convert_to_numpy(functional.ndcg(labels, scores, seed=1))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("library", ["tensorflow", "torch"])
def test_ragged_tensors_keep_their_dtype(library):
    """But for padding that it does not have."""
    rows = [[1, 0, 2], [3]]
    for dtype, padding, expected in (
        ("int64", -1, "int64"),
        ("int64", -np.inf, "float64"),
        ("float32", -np.inf, "float32"),
    ):
        found = look("y_true", ragged_by(library, rows, dtype), padding)
        assert dtype_name(found.numbers) == expected
        assert list(found.lengths) == [3, 1]
        numbers = np.asarray(found.numbers).tolist()
        assert numbers == [[1, 0, 2], [3, padding, padding]]
    with pytest.raises(ValueError, match="in rows of the same length"):
        look("y_true", ragged_by(library, rows, "int64"))


@pytest.mark.parametrize("large", [2**53 + 1, 2**62 + 1])
def test_large_numbers_in_ragged_tensors_of_tensorflow(large):
    tf = pytest.importorskip("tensorflow")
    found = look("y_true", tf.ragged.constant([[large], [1, 2]], dtype="int64"), -1)
    assert np.asarray(found.numbers).tolist() == [[large, -1], [1, 2]]


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
    "make",
    [metrics.NDCG, lambda: metrics.RankingMetrics(["mrr"]), lambda: functional.ndcg],
)
@pytest.mark.parametrize("last_axis", [(), (1,)])
def test_lists_of_one_item_have_no_order(make, last_axis):
    labels, scores = (np.float32(x) for x in SINGLE)
    with pytest.warns(UserWarning, match="of one item: make lists of single items by"):
        make()(labels, scores.reshape(3, 1, *last_axis))


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
        ([0, 0, 0], SINGLE[1], {"sparse_labels": True}),
        (np.zeros((0, 0)), np.zeros((0, 0)), {}),
    ],
)
def test_what_is_meant_as_lists_is_not_warned_of(labels, scores, arguments):
    metrics.MeanReciprocalRank(**arguments)(labels, scores)
    functional.reciprocal_rank(labels, scores, **arguments)


HALF = [[0.3, 0.9], [0.2, 0.1]]
LOW = "No label reaches `relevance_threshold=1.0`: the highest is 0.9"
BELOW = "Labels below 0 are padding, and some are not -1"
NONE = "1 of 2 lists have no relevant item, as all their ids are -1, and count as 0"
NAN = "`sample_weight` has 1 NaN in the first batch"
WRAPPED = "Ids below -1 are no targets, as -1 is: the lowest is -7"
IDS = {"sparse_labels": True}


@pytest.mark.parametrize(
    ("metric", "given", "message"),
    [
        (metrics.HitRate(1), (HALF, HALF), LOW),
        (metrics.HitRate(1, relevance_threshold=0.5), (HALF, HALF), None),
        (metrics.NDCG(1), (HALF, HALF), None),
        (metrics.HitRate(1), ([[0, 0], [-1, 0]], HALF), None),
        (
            metrics.HitRate(1, **IDS),
            ({"ids": [[0, 1], [1, -1]], "labels": HALF}, HALF),
            LOW,
        ),
        (metrics.KendallTau(), ([[-0.3, 1.2], [0.1, -1.0]], HALF), BELOW),
        (metrics.PairwiseAccuracy(), ([[-2, 1], [1, 0]], HALF), BELOW),
        (metrics.KendallTau(), ([[-1, 1], [1, 0]], HALF), None),
        (metrics.NDCG(), ([[-2, 1], [1, 0]], HALF), None),
        (metrics.HitRate(1, **IDS), ([0, -1], HALF), NONE),
        (metrics.HitRate(1, **IDS), ([[0, -1], [-1, -1]], HALF), NONE),
        (metrics.HitRate(1, empty_value=None, **IDS), ([0, -1], HALF), None),
        (metrics.HitRate(1, **IDS), ([0, -1], HALF, [1.0, 0.0]), None),
        (metrics.HitRate(1, **IDS), ([[0, -1]], [HALF]), None),
        (metrics.NDCG(1), ([[1, 0], [0, 1]], HALF, [np.nan, 1.0]), NAN),
        (metrics.HitRate(1, **IDS), ([0, -7], HALF, [1.0, 1.0]), WRAPPED),
        (metrics.HitRate(1, **IDS), ([[[0], [-7]]], [HALF]), WRAPPED),
        (metrics.HitRate(1, **IDS), ([[0, -100]], [HALF]), None),
    ],
)
def test_what_the_first_batch_is_warned_of(metric, given, message):
    """Once, and as a member of a group too."""
    group = metrics.RankingMetrics([type(metric).from_config(metric.get_config())])
    for each in (metric, group):
        context = pytest.warns(UserWarning, match=re.escape(message or ""))
        with context if message else nullcontext():
            each.update_state(*given)
        each.update_state(*given)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX ranks integers as float32")
def test_integers_that_float64_rounds_to_one_are_an_error():
    """Such as times in nanoseconds, which would tie."""
    scores = np.array([[2**53, 2**53 + 1, 2**53 - 5]])
    message = "`y_pred` should hold scores that float64 tells apart: subtract the same"
    for given in (scores, ops.convert_to_tensor(scores, "int64"), -scores):
        for labels, how in (([[0, 1, 0]], {}), ([1], IDS)):
            with pytest.raises(ValueError, match=message):
                functional.reciprocal_rank(labels, given, **how)
    near = scores - 2**53
    assert float(functional.reciprocal_rank([[0, 1, 0]], near)[0]) == 1.0
    functional.reciprocal_rank([[0, 1, 0]], scores * [[1, 2, 1]])


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
