"""Inputs as lists: accepted types and shapes, padding, errors and warnings."""

import copy
import functools
import pickle
import re
import warnings

import keras
import numpy as np
import pytest
import scipy.sparse
from arrays import assert_close, assert_equal
from keras import ops

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.lists.input_arrays import read_array
from keras_rank.lists.tensors import dtype_name

BACKEND = keras.backend.backend()


def value(labels, scores, weights=None, **arguments):
    arguments = {"sample_weight": weights, "seed": 1, **arguments}
    return float(functional.ndcg(labels, scores, **arguments)[0])


LABELS, SCORES = [[0, 2, 1, 0]], [[0.4, 0.3, 0.2, 0.1]]


DTYPES = ["int32", "int64", "uint8", "float16", "float64", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_any_dtype(dtype, backend):
    if backend == "jax" and dtype.endswith("64"):
        pytest.skip("JAX has no 64 bits unless it is enabled")
    inputs = LABELS, [[4, 3, 2, 1]]
    tensors = [ops.cast(ops.array(x, dtype="int32"), dtype) for x in inputs]
    assert value(*tensors) == value(*inputs)


def variables(values, dtype):
    """Yields a variable of Keras, and of the backend if it has variables."""
    yield keras.Variable(values, dtype=dtype, trainable=False)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        yield tf.Variable(values, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_variables_are_accepted(dtype, backend):
    labels = np.array([[0, 1, 1, 0]], dtype)
    expected = value(labels, SCORES, labels + 1)
    for variable in variables(labels, dtype):
        scores, *_ = variables(SCORES, "float32")
        weights, *_ = variables(labels + 1.0, "float32")
        assert value(variable, scores, weights) == expected
        masked = {"labels": np.ones_like(labels), "mask": variable}
        assert value(masked, SCORES) == 1.0
        metric = metrics.NDCG()
        if backend == "tensorflow":
            import tensorflow as tf

            tf.function(metric.update_state)(variable, scores, weights)
        assert float(metric(variable, scores, weights)) == pytest.approx(expected)


COLUMNS = [
    ("pandas", lambda pandas: pandas.Series),
    ("polars", lambda polars: polars.Series),
    ("pyarrow", lambda arrow: arrow.array),
    ("pyarrow", lambda arrow: lambda x: arrow.chunked_array([x[:1], x[1:]])),
]


@pytest.mark.parametrize(("module", "column_of"), COLUMNS)
def test_columns_of_tables_are_accepted(module, column_of):
    column = column_of(pytest.importorskip(module))
    inputs = [0, 2, 1, 0], [0.4, 0.3, 0.2, 0.1], [1.0, 2.0, 1.0, 1.0]
    assert value(*map(column, inputs)) == value(*inputs)
    for rows in RAGGED, EVEN:
        actual = functional.ndcg(*map(column, rows), seed=1)
        assert_equal(actual, functional.ndcg(*rows, seed=1))
    subtopics, of_two = [[[1.0], [0.0]], [[1.0]]], [[0.1, 0.2], [0.3]]
    actual = functional.precision_ia(column(subtopics), column(of_two), k=1)
    assert_equal(actual, [0.0, 1.0])
    ids, catalogue = column([[1], [0, 2]]), column([[3.0, 2.0, 1.0]] * 2)
    actual = functional.recall(ids, catalogue, sparse_labels=True, k=1)
    assert_equal(actual, [0.0, 0.5])
    with pytest.raises(ValueError, match="`y_true` should hold real numbers"):
        value(column(["a", "b"]), column([0.1, 0.2]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_tensors_are_accepted_on_any_backend(dtype):
    """Tensors may need gradients, or be bfloat16, which NumPy doesn't have."""
    torch = pytest.importorskip("torch")
    options = {"dtype": getattr(torch, dtype), "requires_grad": dtype == "float32"}
    for rows in RAGGED, EVEN:
        inputs = [[torch.tensor(row, **options) for row in part] for part in rows]
        assert_close(functional.ndcg(*inputs, seed=1), compute_values(rows), rtol=1e-6)
    labels = torch.tensor([[3.0, 1.0, 2.0]], **options)
    actual = functional.pairwise_accuracy(labels, [[3.0, 1.0, 2.0]])
    assert float(actual[0]) == 1.0


def sparse_tensors():
    """Returns sparse tensors with the method or function that makes them dense."""
    labels = np.float32(LABELS)
    if BACKEND == "torch":
        import torch

        tensor = torch.tensor(labels)
        tensors = [tensor.to_sparse(), tensor.to_sparse_csr(), tensor.to_sparse_csc()]
        return [(x, ".to_dense()") for x in tensors]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return [(tf.sparse.from_dense(labels), "tf.sparse.to_dense(")]
    if BACKEND == "jax":
        from jax.experimental import sparse

        kinds = sparse.BCOO, sparse.BCSR
        return [(kind.fromdense(labels), ".todense()") for kind in kinds]
    return [(scipy.sparse.coo_array(labels), ".toarray()")]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_sparse_tensors_are_errors():
    """Errors don't suggest a dense tensor where ids are expected."""
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
    sparse_calls = {
        "y_true": lambda x: functional.ndcg(x, SCORES, sparse_labels=True),
        "targets": lambda x: catalogue.rank(x, queries, np.ones((3, 1))),
        "exclude": lambda x: catalogue.top_k(queries, queries, 1, exclude=x),
        "item_ids": lambda x: utils.exclude_items(SCORES, x),
        "keep": lambda x: utils.exclude_items(SCORES, ids, keep=x),
    }
    for tensor, way in sparse_tensors():
        kinds = [(dense, f".*spars.*{re.escape(way)}")]
        if not isinstance(tensor, scipy.sparse.sparray):  # Columns are ids.
            kinds.append((sparse_calls, " hold ids(?!.*dense)"))
        for calls, message in kinds:
            for argument, call in calls.items():
                with pytest.raises(
                    ValueError, match=f"(?s)`{argument}` should{message}"
                ):
                    call(tensor)


# A third axis of size 1, which `Dense(1)` over the items of lists returns.


@pytest.mark.programs
@pytest.mark.parametrize("shape", [(24, 7), (8, 1), (1, 7), (1, 1), (0, 7), (8, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_third_axis_of_size_1_is_dropped(shape, weighted, rng):
    """Ties are shuffled by the numbers of lists and items, which stay equal."""
    labels = rng.integers(-1, 3, size=shape).astype("float32")
    scores = rng.integers(0, 3, size=shape).astype("float32")
    weights = rng.random(shape).astype("float32") if weighted else None
    mask = rng.random(shape) < 0.8

    def results(labels, mask, scores, weights):
        inputs = {"labels": labels, "mask": mask}
        values = functional.ndcg(inputs, scores, sample_weight=weights, seed=1)
        mean = metrics.NDCG(seed=1)(inputs, scores, weights)
        return [*ops.convert_to_numpy(values).tolist(), float(mean)]

    parts = labels, mask, scores, weights
    expected = results(*parts)
    assert len(expected) == shape[0] + 1
    deep = [None if part is None else part[:, :, None] for part in parts]
    for places in ({2}, {2, 3}, {0}, {0, 1, 2, 3}):
        mixed = [(deep if i in places else parts)[i] for i in range(4)]
        assert results(*mixed) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@pytest.mark.compiles_long
def test_a_third_axis_of_catalogue_scores_is_dropped(rng):
    ids, scores = rng.integers(-1, 7, (24, 2)), rng.integers(0, 3, (24, 7))
    options = {"sparse_labels": True, "seed": 1}
    for y_true in (ids, ids[..., None]):
        actual = functional.ndcg(y_true, scores[..., None], **options)
        assert_equal(actual, functional.ndcg(ids, scores, **options))


@pytest.fixture
def tf(backend):
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    return pytest.importorskip("tensorflow")


def test_a_third_axis_of_unknown_size(tf):
    unknown = tf.TensorSpec((None, None, None), "float32")
    ndcg = tf.function(functional.ndcg, input_signature=[unknown] * 2)
    labels, scores = tf.constant(LABELS, "float32"), tf.constant(SCORES)
    assert float(ndcg(labels[..., None], scores[..., None])[0]) == value(LABELS, SCORES)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ndcg(tf.ones((1, 2, 2)), tf.ones((1, 2, 2)))


def test_an_unknown_number_of_axes_is_an_error(tf):
    known, unknown = tf.TensorSpec((None, 3)), tf.TensorSpec(None)
    for argument, signature in (
        ("y_true", [unknown, known]),
        ("y_pred", [known, unknown]),
        ("sample_weight", [known, known, unknown]),
    ):
        update = tf.function(metrics.NDCG().update_state, input_signature=signature)
        with pytest.raises(ValueError, match=f"`{argument}` should have a known num"):
            update.get_concrete_function()


NAMES = ["ndcg", "expected_reciprocal_rank", "pairwise_accuracy"]


@pytest.mark.parametrize("with_xla", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_empty_lists_in_a_graph_of_unknown_sizes(tf, name, with_xla):
    """A batch of a ragged dataset may have no items."""
    call = functools.partial(getattr(functional, name), shuffle_ties="average")
    unknown = tf.TensorSpec((None, None), "float32")
    signature = [unknown] * 2
    values = tf.function(call, input_signature=signature, jit_compile=with_xla)
    assert np.isnan(values(tf.zeros((2, 0)), tf.zeros((2, 0)))).all()
    batch = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.1, 0.2]]
    assert_close(values(*map(tf.constant, batch)), call(*batch), rtol=1e-6)


CLOSE_SCORES = [
    (np.array([1.0, 1.0 + 1e-12]), "a tie"),
    ([2**24, 2**24 + 1], "a tie"),
    ([2**33 - 1, 2**33], "a tie"),
    ([-(2**40), 2**62], "in order"),
    # All finite scores are retrieved, however low.
    ([-np.inf, -1e300], "in order"),
    ([-1e300, 1e300], "in order"),
]


@pytest.mark.parametrize(("scores", "in_jax"), CLOSE_SCORES)
def test_scores_are_compared_in_64_bits(scores, in_jax, backend):
    actual = value([[0, 1]], [scores], shuffle_ties="average")
    is_tie = backend == "jax" and in_jax == "a tie"
    tie = value([[0, 1]], [[1, 1]], shuffle_ties="average")
    assert actual == pytest.approx(tie if is_tie else 1.0)


def test_low_precision_scores_tie_only_if_equal():
    scores = ops.cast(ops.array([[1.0, 1.0078125]]), "bfloat16")
    assert value([[0, 1]], scores, shuffle_ties="average") == 1.0


RAGGED = ([[1, 0, 2], [0, 1], [3]], [[0.3, 0.2, 0.1], [0.9, 0.5], [0.0]])
EVEN = ([[1, 0], [0, 2]], [[0.5, 0.25], [0.125, 0.5]])


def compute_values(rows):
    """Returns the value of each list on its own."""
    return [value(*row) for row in zip(*rows, strict=True)]


def make_ragged(library, rows, dtype="float32"):
    """Returns a ragged tensor of a library, which all backends accept."""
    module = pytest.importorskip(library)
    if library == "tensorflow":
        return module.cast(module.ragged.constant(rows, dtype="float64"), dtype)
    parts = [module.tensor(row, dtype=getattr(module, dtype)) for row in rows]
    return module.nested.nested_tensor(parts, layout=module.jagged)


FORMS = {
    "lists": list,
    "tuples": lambda rows: tuple(map(tuple, rows)),
    "arrays": lambda rows: [np.array(row) for row in rows],
    # A column of lists, as in pandas, is an array of objects.
    "columns": lambda rows: np.array(rows, dtype=object),
    "ragged tensors": functools.partial(make_ragged, "tensorflow"),
    "nested tensors": functools.partial(make_ragged, "torch"),
}


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_uneven_length(form):
    ragged = [FORMS[form](rows) for rows in RAGGED]
    expected = compute_values(RAGGED)
    assert_close(functional.ndcg(*ragged, seed=1), expected, rtol=1e-6)
    assert float(metrics.NDCG()(*ragged)) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("library", ["tensorflow", "torch"])
def test_ragged_tensors_keep_their_dtype(library):
    """The dtype changes only if it can't represent the padding."""
    rows, is_torch = [[1, 0, 2], [3]], library == "torch"
    for dtype, padding, expected in (
        ("uint8", -1, "int64" if is_torch else "float32"),
        ("int32", -1, "int64" if is_torch else "int32"),
        ("int64", -1, "int64"),
        ("int64", -np.inf, "float64"),
        ("float32", -np.inf, "float32"),
        ("float64", -1, "float64"),
    ):
        actual = read_array("y_true", make_ragged(library, rows, dtype), padding)
        assert dtype_name(actual.numbers) == expected
        assert list(actual.lengths) == [3, 1]
        numbers = np.asarray(actual.numbers).tolist()
        assert numbers == [[1, 0, 2], [3, padding, padding]]
    with pytest.raises(ValueError, match="in rows of the same length"):
        read_array("y_true", make_ragged(library, rows, "int64"))


@pytest.mark.parametrize("large", [2**53 + 1, 2**62 + 1])
def test_large_numbers_in_ragged_tensors_of_tensorflow(large):
    tf = pytest.importorskip("tensorflow")
    actual = read_array(
        "y_true", tf.ragged.constant([[large], [1, 2]], dtype="int64"), -1
    )
    assert np.asarray(actual.numbers).tolist() == [[large, -1], [1, 2]]


def test_uneven_masks_and_weights():
    labels, scores = RAGGED
    masked = {"labels": labels, "mask": [[True, False, True], [True, True], [True]]}
    weights = [[1.0, 0.0, 1.0], [1.0, 1.0], [1.0]]
    expected = pytest.approx(value([1, 2], [0.3, 0.1]))
    assert value(masked, scores) == expected
    assert value(labels, scores, weights) == expected
    assert float(metrics.NDCG()(labels, scores, [2.0, 1.0, 1.0])) > 0


SINGLE = ([[1.0], [0.0], [1.0]], [[0.1], [0.2], [0.3]])


CALLS = [metrics.NDCG, lambda: metrics.RankingMetrics(["mrr"]), lambda: functional.ndcg]


@pytest.mark.parametrize("make", CALLS)
@pytest.mark.parametrize("last_axis", [(), (1,)])
def test_lists_of_one_item_are_warned_about(make, last_axis):
    labels, scores = (np.float32(x) for x in SINGLE)
    with pytest.warns(UserWarning, match="of one item: make lists of single items by"):
        make()(labels, scores.reshape(3, 1, *last_axis))


def test_only_the_first_batch_is_warned_about():
    metric = metrics.NDCG()
    with pytest.warns(UserWarning, match="One item has no order"):
        metric.update_state(*SINGLE)
    metric.update_state(*SINGLE)
    by_row = metrics.NDCG()
    by_row.update_state([[1.0]], [[0.1]])
    with pytest.warns(UserWarning, match="One item has no order"):
        by_row.update_state(*SINGLE)
    # Short lists after longer ones cause no warning, which would be an error here.
    sorted_by_size = metrics.NDCG()
    sorted_by_size.update_state(LABELS, SCORES)
    sorted_by_size.update_state(*SINGLE)


MEANT_AS_LISTS = [
    ([[1.0]], [[0.1]], {}),
    ([1.0, 0.0, 1.0], [0.1, 0.2, 0.3], {}),
    ([[1.0], [], [0.0]], [[0.1], [], [0.3]], {}),
    ({"labels": SINGLE[0], "mask": [[True], [True], [False]]}, SINGLE[1], {}),
    ([0, 0, 0], SINGLE[1], {"sparse_labels": True}),
    (np.zeros((0, 0)), np.zeros((0, 0)), {}),
]


@pytest.mark.parametrize(("labels", "scores", "arguments"), MEANT_AS_LISTS)
def test_intended_lists_are_not_warned_about(labels, scores, arguments):
    metrics.MeanReciprocalRank(**arguments)(labels, scores)
    functional.reciprocal_rank(labels, scores, **arguments)


HALF = [[0.3, 0.9], [0.2, 0.1]]
LOW = "No label reaches `relevance_threshold=1.0`: the highest is 0.9"
BELOW = "Labels below 0 are padding, and some are not -1"
NONE = "1 of 2 lists have no relevant item, as all their ids are -1, and count as 0"
NAN = "`sample_weight` has NaN in the first batch: 1 of 2"
WRAPPED = "Ids below -1 are padding, like -1: the lowest is -7"


class TopLabel(metrics.RankingMetric):
    """A metric that reads graded labels: the label of the first item."""

    def compute(self, lists, ranking):
        return ranking.take(lists.labels)[:, 0]


NO_RANK = "`y_pred` has 3 NaN among 4 scores of the first batch"
RELEVANT = "All items are relevant to 'mrr': labels are 1 to 5 in the first batch"
NEGATIVE = "`sample_weight` has negative weights in the first batch: 1 of 2"
RATINGS, ODD = [[5, 1], [2, 3]], [[np.nan, np.nan, np.nan, 0.1]]
MASKED = {"labels": [[-2, 1], [1, 0]], "mask": [[False, True], [True, True]]}
IDS, GRADED = {"sparse_labels": True}, {"ids": [[0, 1], [1, -1]], "labels": HALF}


WARNINGS = [
    (metrics.HitRate(1), (HALF, HALF), LOW),
    (metrics.HitRate(1, relevance_threshold=0.5), (HALF, HALF), None),
    (metrics.NDCG(1), (HALF, HALF), None),
    (metrics.HitRate(1), ([[0, 0], [-1, 0]], HALF), None),
    (metrics.HitRate(1, **IDS), (GRADED, HALF), LOW),
    (metrics.KendallTau(), ([[-0.3, 1.2], [0.1, -1.0]], HALF), BELOW),
    (metrics.PairwiseAccuracy(), ([[-2, 1], [1, 0]], HALF), BELOW),
    (metrics.KendallTau(), ([[-1, 1], [1, 0]], HALF), None),
    (metrics.NDCG(), ([[-2, 1], [1, 0]], HALF), BELOW),
    (metrics.NDCG(), ([[-0.89, -0.5, 0.4]], [[1, 2, 3]]), BELOW),
    (metrics.NDCG(), ([[-100, 1], [1, 0]], HALF), None),
    (metrics.NDCG(), (MASKED, HALF), None),
    (metrics.NDCG(), ([[-2, 1], [1, 0]], HALF, [[0, 1], [1, 1]]), None),
    (metrics.HitRate(1, **IDS), ({**GRADED, "labels": [[-3, 1], [1, 0]]}, HALF), BELOW),
    (metrics.Coverage(1, items=2), ([[-3, 1], [1, 0]], HALF), BELOW),
    (metrics.MeanReciprocalRank(), ([[0, 0, 0, 1]], ODD), NO_RANK),
    (metrics.HitRate(1, **IDS), ([1], ODD), NO_RANK),
    (metrics.Coverage(1, items=4), ([[0, 0, 0, 1]], ODD), NO_RANK),
    (metrics.NDCG(), ([[1, 0, -1]], [[3, 2, 1]], [[1, 1, -1]]), None),
    (metrics.NDCG(), ([[1, 0], [-1, -1]], HALF, [1.0, np.nan]), None),
    (TopLabel(), (RATINGS, HALF), None),
    (metrics.NDCG(), ([[-1, 0, 0, 1]], [[np.nan, -np.inf, 2, 3]]), None),
    (metrics.NDCG(), ([[1, 0, 0, 1]], [[np.nan, 1, 2, 3]], [[0, 1, 1, 1]]), None),
    (metrics.MeanReciprocalRank(), (RATINGS, HALF), RELEVANT),
    (metrics.MeanReciprocalRank(relevance_threshold=None), (RATINGS, HALF), RELEVANT),
    (metrics.MeanReciprocalRank(relevance_threshold=3), (RATINGS, HALF), None),
    (metrics.NDCG(), (RATINGS, HALF), None),
    (metrics.ExpectedReciprocalRank(max_grade=5), (RATINGS, HALF), None),
    (metrics.KendallTau(), (RATINGS, HALF), None),
    (metrics.MeanReciprocalRank(), ([[1, -1], [1, 1]], HALF), None),
    (metrics.NDCG(1), ([[1, 0], [0, 1]], HALF, [-1.0, 1.0]), NEGATIVE),
    (metrics.HitRate(1, **IDS), ([0, 1], HALF, [-1.0, 1.0]), NEGATIVE),
    (metrics.Coverage(1, items=2), ([[1, 0], [0, 1]], HALF, [-1.0, 1.0]), NEGATIVE),
    (metrics.HitRate(1, **IDS), ([0, -1], HALF), NONE),
    (metrics.HitRate(1, **IDS), ([[0, -1], [-1, -1]], HALF), NONE),
    (metrics.HitRate(1, empty_value=None, **IDS), ([0, -1], HALF), None),
    (metrics.HitRate(1, **IDS), ([0, -1], HALF, [1.0, 0.0]), None),
    (metrics.HitRate(1, **IDS), ([[0, -1]], [HALF]), None),
    (metrics.NDCG(1), ([[1, 0], [0, 1]], HALF, [np.nan, 1.0]), NAN),
    (metrics.HitRate(1, **IDS), ([0, -7], HALF, [1.0, 1.0]), WRAPPED),
    (metrics.HitRate(1, **IDS), ([[[0], [-7]]], [HALF]), WRAPPED),
    (metrics.HitRate(1, **IDS), ([[0, -100]], [HALF]), None),
]


@pytest.mark.parametrize(("metric", "given", "message"), WARNINGS)
def test_warnings_of_the_first_batch(metric, given, message):
    """The warning comes once, also for members of a group."""
    group = metrics.RankingMetrics([type(metric).from_config(metric.get_config())])
    for each in (metric, group):
        with warnings.catch_warnings(record=True, action="always") as actual:
            each.update_state(*given)
        text = [str(warning.message) for warning in actual]
        assert len(text) == (message is not None)
        assert message is None or text[0].startswith(message)
        with warnings.catch_warnings(action="error"):
            each.update_state(*given)


def test_a_group_warns_once_for_all_members():
    """Members may read the batch separately, or be metrics of exposure."""
    members = ["ndcg@1", "mrr", "map", metrics.NDCG(dtype="float64", name="double")]
    exposure = [metrics.Coverage(1, items=3), metrics.Gini(1, items=3)]
    for group, actual in ((members + exposure, "'mrr', 'map'"), (exposure, None)):
        group = metrics.RankingMetrics(group)
        with warnings.catch_warnings(record=True, action="always") as warned:
            group.update_state(
                [[5, 1, 3], [-7, 2, 1]],
                [[np.nan, 1, 2], [2, 3, 1]],
                [[1, 1, -1], [1, 1, 1]],
            )
        # JAX also warns about float64.
        text = [str(x.message) for x in warned if "first batch" in str(x.message)]
        assert len(text) == (3 if actual is None else 4)
        assert actual is None or actual in " ".join(text)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX ranks integers as float32")
def test_integers_that_tie_in_float64_are_errors():
    """Such integers, as times in nanoseconds, would tie."""
    scores = np.array([[2**53, 2**53 + 1, 2**53 - 5]])
    message = "`y_pred` should hold scores that float64 tells apart: subtract the same"
    for inputs in (scores, ops.convert_to_tensor(scores, "int64"), -scores):
        for labels, options in (([[0, 1, 0]], {}), ([1], IDS)):
            with pytest.raises(ValueError, match=message):
                functional.reciprocal_rank(labels, inputs, **options)
    assert float(functional.reciprocal_rank([[0, 1, 0]], scores - 2**53)[0]) == 1.0
    functional.reciprocal_rank([[0, 1, 0]], scores * [[1, 2, 1]])
    functional.reciprocal_rank([[-1, 1, 0]], scores)


def test_integers_of_uneven_lists_that_tie_are_errors():
    """Uneven lists are padded with floats, which must not round different integers."""
    large, labels = [2**53, 2**53 + 1, 2**53 - 5], [[0, 1, 0], [1]]
    for row in (large, np.array(large), np.array(large, "uint64")):
        for y_true, y_pred in (
            (labels, [row, [5]]),
            ([np.array(row, "uint64"), [5]], labels),
        ):
            with pytest.raises(
                ValueError, match=r"uneven length: .* Received: different"
            ):
                functional.reciprocal_rank(y_true, y_pred)
    scores = [np.array(large) - 2**53, np.array([5])]
    assert ops.convert_to_numpy(functional.reciprocal_rank(labels, scores))[0] == 1.0


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors_without_items(layout):
    torch = pytest.importorskip("torch")
    rows = [torch.zeros(0), torch.zeros(0)]
    nested = torch.nested.nested_tensor(rows, layout=getattr(torch, layout))
    assert_equal(functional.ndcg(nested, nested), [np.nan, np.nan])


def test_classes_without_a_module():
    """A class that `exec` creates in an empty namespace has no module."""
    names = {}
    code = """
import keras_rank

class Top(keras_rank.metrics.RankingMetric):
    def compute(self, lists, ranking):
        return ranking.take(lists.labels)[:, 0]
"""
    exec(code, names)
    assert float(names["Top"]()([[3, 0, 1]], [[0.9, 0.5, 0.1]])) == 3.0


class CopiesLists(metrics.RankingMetric):
    """A metric that copies lists and changes the copy."""

    takes_sparse_labels = True

    def compute(self, lists, ranking):
        copied = self.copy_lists(lists)
        copied.relevance = 0.0 * lists.relevance
        assert not hasattr(copied, "unknown")
        assert copied.dtype == lists.dtype
        copied.hits(ranking)
        return lists.hits(ranking)


def pickled(lists):
    return pickle.loads(pickle.dumps(lists))


@pytest.mark.parametrize("copy_lists", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("sparse_labels", [False, True])
def test_lists_can_be_copied_in_compute(copy_lists, sparse_labels):
    """A copy does not share cached results with the original lists."""
    metric = CopiesLists(k=2, sparse_labels=sparse_labels, shuffle_ties="average")
    metric.copy_lists = copy_lists
    labels = [[0], [2]] if sparse_labels else [[1, 0, 0], [0, 0, 1]]
    if BACKEND == "jax" and copy_lists is pickled:
        pytest.skip("JAX traces the method, and what it traces can't be pickled")
    assert float(metric(labels, [[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]])) == 0.5
