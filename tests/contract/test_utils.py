"""`keras_rank.utils`: padding and unpadding lists, masking labels, excluding items."""

import functools
import re
import tracemalloc

import keras
import numpy as np
import pytest
import scipy.sparse
from arrays import assert_equal
from keras import ops

from keras_rank import utils
from keras_rank.metrics import NDCG

FOUR, BIG = np.array([3, 0, 1, 2]), np.array([3, 0, 2**24 + 1])
# Sizes that Polars counts are unsigned.
SIZES = [np.array([2, 0, 1], dtype) for dtype in ("int64", "uint8", "uint32", "uint64")]
TENSORS = [*map(ops.convert_to_tensor, (7, 7, 5, 5))]
PADDED = [[3, 0], [-1, -1], [2**24 + 1, -1]]
ROWS = np.eye(3, dtype="float32")
PADDED_ROWS = [[ROWS[0], [0.5] * 3], ROWS[1:]]


LISTS = [
    # Numbers beyond float32, also in the other byte order.
    *((BIG, {"group_sizes": sizes}, PADDED) for sizes in SIZES),
    *((BIG.astype(x), {"group_sizes": [2, 0, 1]}, PADDED) for x in (">f8", ">i8")),
    (FOUR, {"group_ids": TENSORS}, [[3, 0], [1, 2]]),
    # Longer lists are only cut to a given `list_size`.
    (FOUR, {"group_sizes": [3, 1], "list_size": 2}, [[3, 0], [2, -1]]),
    (FOUR, {"group_sizes": [1, 3], "list_size": 4}, [[3, *[-1] * 3], [0, 1, 2, -1]]),
    ([], {"group_sizes": []}, np.zeros((0, 0))),
    (np.zeros((0, 3)), {"group_sizes": [0, 0]}, np.zeros((2, 0, 3))),
    # Features of items.
    (ROWS, {"group_sizes": [1, 2], "padding_value": 0.5}, PADDED_ROWS),
]


@pytest.mark.parametrize(("values", "arguments", "expected"), LISTS)
def test_pad_lists(values, arguments, expected):
    padded = utils.pad_lists(values, **arguments)
    np.testing.assert_array_equal(padded, expected)
    assert padded.dtype.isnative
    assert padded.dtype.itemsize <= np.asarray(values).itemsize


GROUPS = [
    {"group_sizes": [2, 0, 3, 0]},
    {"group_sizes": np.array([2, 0, 3, 0], "uint64")},
    {"group_ids": [1, 2, 1, 3, 2]},
]


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_unpad_lists_inverts_pad_lists(groups, shape, rng):
    rows = rng.normal(size=shape)
    padded = utils.pad_lists(rows, **groups)
    np.testing.assert_array_equal(utils.unpad_lists(padded, **groups), rows)
    tensor = ops.convert_to_tensor(padded.astype("float32"))
    actual = utils.unpad_lists(tensor, **groups)
    np.testing.assert_array_equal(actual, rows.astype("float32"))


pad = functools.partial(utils.pad_lists, [1, 2])
unpad, merge = utils.unpad_lists, utils.merge_state
exclude = functools.partial(utils.exclude_items, [[0.1, 0.2]])
BOTH_SHAPES = "(batch, n) or (batch, time, n). Received: y_pred.shape=(1, 2), item_ids."
LENGTHS = "the shape (batch, list_size, ...), with the number and size of the lists "
LENGTHS += "that the groups describe. Received: 1 groups of up to 3 rows, values.sh"
NO_SIZE = "should be a positive integer or None."
MASK_SHAPE = "mask.shape=(1, 1), labels.shape=("
KEEP_SHAPE = "and `keep` the shape (batch, n) or (batch, time, n). Received: y_pred.sha"
# The end of each message. `test_bad_input.py` tests the names of arguments.
ERRORS = [
    (lambda: pad(group_sizes=[3]), "of rows. Received: a sum of 3 for 2 rows"),
    (lambda: pad(group_sizes=[3, -1]), "should be integers of 0 or more, one per list"),
    (lambda: pad(group_ids=[1]), "one id per row. Received: group_ids.shape=(1,) for"),
    (lambda: pad(group_ids=scipy.sparse.csr_array([[1, 2]])), "which is sparse"),
    (lambda: pad(group_ids=["a", None]), "['a', None], with None in row 1"),
    (
        lambda: pad(),
        "Either `group_sizes` or `group_ids` should be given. Received:",
    ),
    (lambda: pad(group_sizes=[2], list_size=0), NO_SIZE),
    (lambda: utils.pad_lists(["a"], group_sizes=[1]), "of shape (1,) and dtype <U1"),
    (lambda: unpad([[1, 2]], group_sizes=[3]), LENGTHS),
    # The ids of other lists, for example of validation data.
    (lambda: unpad(np.ones((3, 4)), group_ids=["b", "c", "b"]), "2 groups of up to 2 "),
    (lambda: unpad(np.ones((3, 4)), group_sizes=[4, 0]), "2 groups of up to 4 rows"),
    (lambda: exclude([[2]]), "of items, 2. Received: a larger id, 2, in row 0"),
    (lambda: exclude([1]), BOTH_SHAPES),
    (lambda: exclude([[1]], keep=[1, 2]), KEEP_SHAPE),
    (lambda: exclude([[1]], keep=[2]), "Received: a larger id, 2, in row 0"),
    (lambda: utils.mask_labels([[2, 1]], [[True]]), MASK_SHAPE),
    (lambda: merge(NDCG(), NDCG()), "metrics or states. Received: a single NDCG"),
    (lambda: merge(NDCG(), {"a": 0}), "metrics or states. Received: a single dict"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_wrong_calls_are_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_exclude_items(rng):
    scores = rng.normal(size=(3, 6)).astype("float32")
    seen = np.array([[0, 5, -1, 0], [-1, -1, -1, -1], [3, 4, 2, 1]])
    keep = np.array([[5, -1], [2, 2], [-1, 1]])
    expected = scores.copy()
    expected[0, 0] = expected[2, [2, 3, 4]] = -np.inf
    floats = ops.convert_to_tensor(keep.astype("float32"))
    # `keep` may be one id per list.
    for kept_ids in (keep, floats, [5, 0, 1]):
        assert_equal(utils.exclude_items(scores, seen, keep=kept_ids), expected)
    expected[0, 5] = expected[2, 1] = -np.inf
    actual = utils.exclude_items(ops.convert_to_tensor(scores), seen)
    assert_equal(actual, expected)


@pytest.mark.skipif(keras.backend.backend() != "numpy", reason="memory of NumPy")
def test_exclude_items_copies_scores_once():
    """The matrix of all scores of a catalog may be large."""
    scores, seen = np.zeros((16, 10**5), "float32"), np.tile([[7, 1, 4]], (16, 1))
    utils.exclude_items(scores, seen)
    tracemalloc.start()
    utils.exclude_items(scores, seen)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.5 * scores.nbytes


IN_MODELS = [
    (utils.exclude_items, "int32", [2, -1, -1], [2.0, 0.0, -np.inf]),
    (utils.mask_labels, "bool", [True, True, False], [2.0, 0.0, -1.0]),
]


@pytest.mark.parametrize(("function", "second", "second_input", "expected"), IN_MODELS)
def test_utilities_in_a_model(function, second, second_input, expected):
    """Within a model, the batch size is unknown."""
    inputs = keras.Input((3,)), keras.Input((3,), dtype=second)
    model = keras.Model(inputs, function(*inputs))
    actual = model([ops.array([[2.0, 0.0, 1.0]]), ops.array([second_input])])
    assert_equal(actual, [expected])


IDS = [
    np.array([-100, 100, -100, 127, -128], "int8"),
    np.array([2**63, 2**63 + 70_000, 2**63, 2**63 + 1, 2**64 - 1], "uint64"),
    np.array([2**63, 2**63 + 70_000, 2**63, 2**63 + 70_000, 2**63 + 1], "uint64"),
    np.array([-(2**63), 2**63 - 1, 0, 0, -(2**63)]),
    np.array([70_000, 4, 70_000, 65_540, 4]),
    np.arange(300) % 3 * 70_000,
    np.array([0.5, -1.0, 0.5, 3.0, 0.5]),
    np.array(["b", "a", "b", "c", "b"], object),
    np.array([True, False, True, False, False]),
    np.array([], "int64"),
]


@pytest.mark.parametrize("ids", IDS, ids=lambda ids: str(ids.dtype))
def test_group_ids_of_any_type(ids):
    """Lists are in the order of their first rows, and keep the order of their rows."""
    rows = {}
    for row, group in enumerate(ids.tolist()):
        rows.setdefault(group, []).append(row)
    padded = utils.pad_lists(np.arange(len(ids)), group_ids=ids, padding_value=-1)
    assert padded.dtype == np.arange(0).dtype
    assert [row[row >= 0].tolist() for row in padded] == list(rows.values())


PADDED_DTYPES = [
    ("bool", -1, "int8"),
    ("bool", 0, "bool"),
    ("bool", -1.0, "float32"),
    ("uint8", -1, "int16"),
    ("uint8", 0, "uint8"),
    ("int8", np.int64(300), "int32"),
    ("int64", -1, "int64"),
    ("uint64", -1, "int64"),
    ("float16", -1, "float16"),
    ("float16", -1e9, "float32"),
    ("float32", -np.inf, "float32"),
    ("int32", -1e39, "float64"),
]


@pytest.mark.parametrize(("dtype", "padding", "expected"), PADDED_DTYPES)
def test_padded_lists_represent_values_and_padding(dtype, padding, expected):
    values = np.array([1, 0, 1], dtype)
    padded = utils.pad_lists(values, group_sizes=[2, 1], padding_value=padding)
    assert padded.dtype == expected
    assert padded.astype("float64").tolist() == [[1, 0], [1, pytest.approx(padding)]]


# A time in nanoseconds.
TIME = 1_700_000_000_000_000_001


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("padding", [-1.0, -1, 0])
def test_large_integers_are_padded_without_rounding(dtype, padding):
    """Floats would round them, so they stay integers for any integer padding."""
    values = np.array([TIME, TIME + 1, TIME + 2], dtype)
    padded = utils.pad_lists(values, group_sizes=[1, 2], padding_value=padding)
    assert padded.tolist() == [[TIME, padding], [TIME + 1, TIME + 2]]


LARGEST = np.array([2**64 - 1, 1], "uint64")
LARGE_PADDING = [([TIME, 1], 0.5), ([TIME, 1], np.nan), ([1, 2], 10**30)]
LARGE_PADDING += [(LARGEST, -1), (LARGEST, -1.0)]


@pytest.mark.parametrize(("values", "padding"), LARGE_PADDING)
def test_padding_without_a_common_dtype_is_an_error(values, padding):
    with pytest.raises(ValueError, match=r"`padding_value` should .* Received: pad"):
        utils.pad_lists(values, group_sizes=[2], padding_value=padding)


def test_pad_lists_takes_one_column_at_a_time():
    with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
        utils.pad_lists([1, 0], [0.3, 0.2], group_ids=[1, 1])


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="one backend is enough")
def test_exclude_items_keeps_gradients_of_other_items():
    scores = keras.Variable([[3.0, 2.0, 1.0]]).value
    utils.exclude_items(scores, [[0, -1]])[0, 1].backward()
    np.testing.assert_array_equal(scores.grad, [[0.0, 1.0, 0.0]])


def test_mask_labels_returns_no_view():
    """The labels are copied even if no item is masked."""
    for shape in ((2, 3), (100, 100)):
        labels = ops.convert_to_tensor(np.ones(shape, "float32"))
        masked = utils.mask_labels(labels, np.ones(shape, bool))
        assert masked is not labels
        if keras.backend.backend() == "numpy":
            assert not np.shares_memory(masked, labels)
        if keras.backend.backend() == "torch":
            assert masked.data_ptr() != labels.data_ptr()
