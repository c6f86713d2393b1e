"""The functions of the reference backend, `generic.py`, which backends may replace."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_rank import gains, metrics
from keras_rank.backends import backend, generic
from keras_rank.metrics.update import UpdateSpec
from keras_rank.ranking.order_spec import OrderSpec


def call_with_arrays(function, *arrays, **others):
    """Calls a function of tensors with arrays, and returns arrays."""
    actual = function(*map(ops.convert_to_tensor, arrays), **others)
    return keras.tree.map_structure(ops.convert_to_numpy, actual)


@pytest.mark.parametrize("size", [0, 1, 7, 5000])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_argsort_is_stable(dtype, size, rng):
    """Rows may be long, which NumPy and torch partition, and contain both zeros."""
    x = rng.integers(-2, 3, size=(3, size)).astype(dtype)
    x = np.where(x == -2, np.array(-0.0, dtype), x)
    expected = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(call_with_arrays(generic.argsort, x), expected)


def test_popcount_counts_set_bits(rng):
    words = rng.integers(-(2**31), 2**31, size=(2, 50))
    words[0, :4] = -(2**31), -1, 0, 2**31 - 1
    expected = [[f"{word % 2**32:b}".count("1") for word in row] for row in words]
    actual = call_with_arrays(generic.popcount, words.astype("int32"))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("function", [generic.count_at_least, backend.count_at_least])
@pytest.mark.parametrize("number", [1, 3, 8, 9, 17])
@pytest.mark.parametrize("transposed", [(), (0,), (1,), (0, 1)])
def test_count_at_least_counts_entries(transposed, number, function, rng, monkeypatch):
    """Numbers of thresholds select the code path, and tensors may be transposed.

    On an accelerator, torch reads the memory of comparisons as bytes.
    """
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)
    entries, thresholds = arrays = [
        rng.integers(0, 5, size=(6, size)).astype("float32") for size in (32, number)
    ]
    inputs = [ops.convert_to_tensor(x) for x in arrays]
    for i in transposed:
        inputs[i] = ops.transpose(ops.convert_to_tensor(arrays[i].T.copy()))
    actual = ops.convert_to_numpy(function(*inputs))
    expected = np.sum(entries[:, None] >= thresholds[..., None], axis=2)
    np.testing.assert_array_equal(actual, expected)


def test_is_compilable_accepts_only_values_of_the_package():
    """Programs can't contain sizes that depend on values, nor functions of a user."""
    assert generic.is_compilable(OrderSpec(True, "average", 5))
    assert generic.is_compilable(
        UpdateSpec.from_metrics([metrics.NDCG(gain_fn=gains.linear)])
    )
    assert not generic.is_compilable(OrderSpec(True, "average", None))
    assert not generic.is_compilable((OrderSpec(False, "average", 5), lambda x: x))
    assert generic.is_compilable()
    assert generic.is_compilable(5, OrderSpec(True, "average", 5))
    assert not generic.is_compilable(5, lambda x: x)


def test_histogram_and_bincount_count_numbers(rng):
    """Numbers of `end` or more are ignored."""
    numbers = rng.integers(0, 6, (4, 50)).astype("int32")
    by_row = [[np.sum(row == number) for number in range(6)] for row in numbers]
    np.testing.assert_array_equal(
        call_with_arrays(generic.histogram, numbers, end=6), by_row
    )
    actual = call_with_arrays(generic.bincount, numbers, number=5)
    np.testing.assert_array_equal(actual, np.sum(by_row, axis=0)[:5])
    assert actual.dtype == "int32"


def test_group_totals_sum_groups(rng):
    values = rng.integers(0, 9, (3, 8)).astype("float32")
    groups = rng.integers(0, 24, 24).astype("int32")
    expected = [values.ravel()[groups == group].sum() for group in groups]
    actual = call_with_arrays(generic.group_totals, values, groups)
    np.testing.assert_array_equal(actual, np.reshape(expected, (3, 8)))


def test_first_true_marks_the_first_true_entry():
    conditions = np.array([[False, True, True], [True, False, True]])
    actual = call_with_arrays(generic.first_true, conditions, np.float32(0.0))
    np.testing.assert_array_equal(actual, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def test_sort_pairs_sorts_by_two_keys(rng):
    x = rng.integers(0, 4, (3, 40)).astype("float32")
    keys = rng.integers(-(2**31) + 1, 2**31, (3, 40)).astype("int32")
    rows = [sorted(zip(*row, strict=True)) for row in zip(x, keys, strict=True)]
    expected = np.moveaxis(np.array(rows, "float64"), 2, 0)
    np.testing.assert_array_equal(
        call_with_arrays(generic.sort_pairs, x, keys), expected
    )
    # Scores are descending, and equal scores are sorted by descending keys.
    descending, order = call_with_arrays(generic.sort_scores, x, keys)
    np.testing.assert_array_equal(descending, expected[0, :, ::-1])
    by_rank = np.take_along_axis(keys, order, axis=1)
    np.testing.assert_array_equal(by_rank, expected[1, :, ::-1])
