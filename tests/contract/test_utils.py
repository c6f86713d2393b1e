"""Padding, excluding, exporting and merging."""

import functools
import re
import tracemalloc

import keras
import numpy as np
import pytest
from keras import ops

from keras_rank import utils
from keras_rank.metrics import NDCG, HitRate


def test_pad_lists_by_sizes_and_by_ids():
    labels = np.array([3, 0, 1, 2, 0])
    expected = [[3, 0, 1], [-1, -1, -1], [2, 0, -1]]
    np.testing.assert_array_equal(
        utils.pad_lists(labels, group_sizes=[3, 0, 2]), expected
    )
    by_ids = utils.pad_lists(labels, group_ids=[7, 7, 7, 5, 5], padding_value=-1)
    np.testing.assert_array_equal(by_ids, [[3, 0, 1], [2, 0, -1]])
    assert by_ids.dtype == labels.dtype
    one_by_one = [ops.convert_to_tensor(x) for x in (7, 7, 7, 5, 5)]
    by_tensors = utils.pad_lists(labels, group_ids=one_by_one, padding_value=-1)
    np.testing.assert_array_equal(by_tensors, by_ids)
    scattered = utils.pad_lists(labels, group_ids=["b", "a", "b", "a", "b"])
    np.testing.assert_array_equal(scattered, [[3, 1, 0], [0, 2, -1]])


def test_pad_lists_of_features(rng):
    rows = rng.normal(size=(6, 4)).astype("float32")
    padded = utils.pad_lists(rows, group_sizes=[1, 5], padding_value=0.0)
    assert padded.shape == (2, 5, 4)
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded[0], [rows[0], *np.zeros((4, 4))])
    np.testing.assert_array_equal(padded[1], rows[1:])


def test_whole_numbers_are_not_rounded():
    padded = utils.pad_lists(np.array([2**24 + 1, 5, 7]), group_sizes=[2, 1])
    np.testing.assert_array_equal(padded, [[2**24 + 1, 5], [7, -1]])


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_sizes_may_be_unsigned(dtype):
    """Those that Polars counts are."""
    sizes = np.array([2, 0, 1], dtype)
    padded = utils.pad_lists([1, 2, 3], group_sizes=sizes)
    np.testing.assert_array_equal(padded, [[1, 2], [-1, -1], [3, -1]])
    rows = utils.unpad_lists(padded, group_sizes=sizes)
    np.testing.assert_array_equal(rows, [1, 2, 3])


@pytest.mark.parametrize("dtype", [">f4", ">i8"])
def test_bytes_in_the_other_order_come_in_that_of_the_machine(dtype):
    padded = utils.pad_lists(np.array([3, 1, 2], dtype), group_sizes=[2, 1])
    assert padded.dtype.isnative
    np.testing.assert_array_equal(padded, [[3, 1], [2, -1]])


@pytest.mark.parametrize(
    ("list_size", "expected"),
    [(2, [[1, 2], [4, -1]]), (4, [[1, 2, 3, -1], [4, -1, -1, -1]])],
)
def test_longer_lists_are_cut_only_on_request(list_size, expected):
    given = {"group_sizes": [3, 1], "list_size": list_size}
    np.testing.assert_array_equal(utils.pad_lists([1, 2, 3, 4], **given), expected)


@pytest.mark.parametrize(
    "groups", [{"group_sizes": [2, 0, 3, 0]}, {"group_ids": [1, 2, 1, 3, 2]}]
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


pad = functools.partial(utils.pad_lists, [1, 2])
unpad, merge = utils.unpad_lists, utils.merge_state
exclude = functools.partial(utils.exclude_items, [[0.1, 0.2]])
BOTH_SHAPES = (
    "`y_pred` should have the shape (batch, items) and `item_ids` the shape (batch, n)."
    " Received: y_pred.shape=(1, 2), item_ids.shape=(1,)"
)
OTHER_LISTS = (
    "the shape (batch, list_size, ...), with the number and size of the lists that the "
    "groups describe. Received: 1 groups of up to 3 rows, values.shape=(1, 2)"
)
# What is said of each, but for its name, of which `test_bad_input.py` has more.
ERRORS = [
    (lambda: pad(group_sizes=[3]), "of rows. Received: a sum of 3 for 2 rows"),
    (lambda: pad(group_sizes=[3, -1]), "should be integers of 0 or more, one per list"),
    (lambda: pad(group_ids=[1]), "one id per row. Received: group_ids.shape=(1,) for"),
    (lambda: pad(group_ids=["a", None]), "['a', None], with None in row 1"),
    (lambda: pad(), "Either `group_sizes` or `group_ids` should be given. Received:"),
    (
        lambda: pad(group_sizes=[2], list_size=0),
        "should be a positive integer or None.",
    ),
    (lambda: utils.pad_lists(["a"], group_sizes=[1]), "of shape (1,) and dtype <U1"),
    (lambda: unpad([[1, 2]], group_sizes=[3]), OTHER_LISTS),
    # The ids of other lists, such as of those for validation.
    (lambda: unpad(np.ones((3, 4)), group_ids=["b", "c", "b"]), "2 groups of up to 2 "),
    (lambda: unpad(np.ones((3, 4)), group_sizes=[4, 0]), "2 groups of up to 4 rows"),
    (lambda: exclude([[2]]), "of items, 2. Received: a larger id, 2, in row 0"),
    (lambda: exclude([1]), BOTH_SHAPES),
    (
        lambda: exclude([[1]], keep=[1, 2]),
        "(batch,) or (batch, m). Received: keep.shap",
    ),
    (lambda: exclude([[1]], keep=[2]), "Received: a larger id, 2, in row 0"),
    (lambda: exclude([[1]], keep=[0.5]), "Received: a fraction, 0.5, in row 0"),
    (
        lambda: utils.mask_labels([[2, 1]], [[True]]),
        "mask.shape=(1, 1), labels.shape=(",
    ),
    (lambda: merge(NDCG(), NDCG()), "metrics or states. Received: a single NDCG"),
    (lambda: merge(NDCG(), {"a": 0}), "metrics or states. Received: a single dict"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_exclude_items(rng):
    scores = rng.normal(size=(3, 6)).astype("float32")
    seen = np.array([[0, 5, -1, 0], [-1, -1, -1, -1], [3, 4, 2, 1]])
    keep = np.array([[5, -1], [2, 2], [-1, 1]])
    expected = scores.copy()
    expected[0, 0] = expected[2, [2, 3, 4]] = -np.inf
    found = utils.exclude_items(scores, seen, keep=keep)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    floats = ops.convert_to_tensor(keep.astype("float32"))
    found = utils.exclude_items(scores, seen, keep=floats)
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


@pytest.mark.skipif(keras.backend.backend() != "numpy", reason="memory of NumPy")
def test_scores_are_copied_once():
    """A matrix of all scores of a catalogue is large."""
    scores, seen = np.zeros((16, 10**5), "float32"), np.tile([[7, 1, 4]], (16, 1))
    utils.exclude_items(scores, seen)
    tracemalloc.start()
    utils.exclude_items(scores, seen)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.5 * scores.nbytes


@pytest.mark.parametrize(
    ("function", "second", "given", "expected"),
    [
        (utils.exclude_items, "int32", [2, -1, -1], [2.0, 0.0, -np.inf]),
        (utils.mask_labels, "bool", [True, True, False], [2.0, 0.0, -1.0]),
    ],
)
def test_in_a_model(function, second, given, expected):
    """Where the size of the batch is not known."""
    inputs = keras.Input((3,)), keras.Input((3,), dtype=second)
    model = keras.Model(inputs, function(*inputs))
    found = model([ops.array([[2.0, 0.0, 1.0]]), ops.array([given])])
    np.testing.assert_array_equal(ops.convert_to_numpy(found), [expected])


@pytest.mark.parametrize(
    "ids",
    [
        np.array([-100, 100, -100, 127, -128], "int8"),
        np.array([2**63, 2**63 + 70_000, 2**63, 2**63 + 1, 2**64 - 1], "uint64"),
        np.array([2**63, 2**63 + 70_000, 2**63, 2**63 + 70_000, 2**63 + 1], "uint64"),
        np.array([-(2**63), 2**63 - 1, 0, 0, -(2**63)]),
        np.array([70_000, 4, 70_000, 65_540, 4]),
        np.array([0.5, -1.0, 0.5, 3.0, 0.5]),
        np.array(["b", "a", "b", "c", "b"], object),
        np.array([True, False, True, False, False]),
        np.array([], "int64"),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_group_ids_of_any_type(ids):
    """Lists come in the order of their first rows, and their rows as they are."""
    rows = {}
    for row, group in enumerate(ids.tolist()):
        rows.setdefault(group, []).append(row)
    padded = utils.pad_lists(np.arange(len(ids)), group_ids=ids).tolist()
    assert [[x for x in row if x >= 0] for row in padded] == list(rows.values())


def test_pad_lists_takes_one_column_at_a_time():
    message = r"`pad_lists\(values, group_sizes=\.\.\., .*Received: \[0.3, 0.2\] by pos"
    with pytest.raises(TypeError, match=message):
        utils.pad_lists([1, 0], [0.3, 0.2], group_ids=[1, 1])


@pytest.mark.parametrize("size", [(8, 32), (64, 4000)])
def test_arrays_may_change_right_after_a_call(size, rng):
    """JAX computes after a call has returned, and may read the memory of an array."""
    for _ in range(20):
        scores = rng.normal(size=size).astype("float32")
        labels = rng.integers(0, 5, size).astype("float32")
        mask = rng.random(size) < 0.5
        ids = rng.integers(0, size[1], (size[0], 5))
        excluded = scores.copy()
        np.put_along_axis(excluded, ids, -np.inf, axis=1)
        masked = np.where(mask, labels, -1)
        found = utils.exclude_items(scores, ids), utils.mask_labels(labels, mask)
        for array in (scores, labels, mask, ids):
            array[:] = 0
        for array, right in zip(found, (excluded, masked), strict=True):
            np.testing.assert_array_equal(ops.convert_to_numpy(array), right)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="one way is enough")
def test_excluded_items_leave_gradients_to_the_others():
    scores = keras.Variable([[3.0, 2.0, 1.0]]).value
    utils.exclude_items(scores, [[0, -1]])[0, 1].backward()
    np.testing.assert_array_equal(scores.grad, [[0.0, 1.0, 0.0]])


def test_masked_labels_are_no_view_of_the_given_ones():
    """Not even where nothing is masked."""
    for shape in ((2, 3), (100, 100)):
        labels = ops.convert_to_tensor(np.ones(shape, "float32"))
        masked = utils.mask_labels(labels, np.ones(shape, bool))
        assert masked is not labels
        if keras.backend.backend() == "numpy":
            assert not np.shares_memory(masked, labels)
        if keras.backend.backend() == "torch":
            assert masked.data_ptr() != labels.data_ptr()
