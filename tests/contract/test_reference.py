"""The reference backend, apart from what a backend replaces."""

import numpy as np
import pytest
from keras import ops

from keras_rank import gains, metrics
from keras_rank.backends import backend, generic
from keras_rank.metrics.update import UpdateSpec
from keras_rank.ranking.ranked import OrderSpec


@pytest.mark.parametrize("size", [0, 1, 7, 5000])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_equal_entries_stay_in_their_order(dtype, size, rng):
    """Also where NumPy and torch sort or partition long rows, and both zeros."""
    x = rng.integers(-2, 3, size=(3, size)).astype(dtype)
    x = np.where(x == -2, np.array(-0.0, dtype), x)
    found = generic.argsort(ops.convert_to_tensor(x))
    expected = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


def test_set_bits_are_counted(rng):
    words = rng.integers(-(2**31), 2**31, size=(2, 50))
    words[0, :4] = -(2**31), -1, 0, 2**31 - 1
    found = generic.popcount(ops.convert_to_tensor(words.astype("int32")))
    expected = [[f"{word % 2**32:b}".count("1") for word in row] for row in words]
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


@pytest.mark.parametrize("function", [generic.count_at_least, backend.count_at_least])
@pytest.mark.parametrize("number", [1, 3, 8, 9, 17])
@pytest.mark.parametrize("transposed", ["entries", "thresholds", "both", "none"])
def test_entries_are_counted(transposed, number, function, rng, monkeypatch):
    """In each of the ways that several thresholds come together, and of any layout.

    On an accelerator, torch reads the memory of comparisons as bytes.
    """
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)
    entries, thresholds = (
        rng.integers(0, 5, size=(6, size)).astype("float32") for size in (32, number)
    )
    given = {"entries": entries, "thresholds": thresholds}
    for name, x in given.items():
        given[name] = ops.convert_to_tensor(x)
        if transposed in (name, "both"):
            given[name] = ops.transpose(ops.convert_to_tensor(x.T.copy()))
    found = ops.convert_to_numpy(function(*given.values()))
    expected = np.sum(entries[:, None] >= thresholds[..., None], axis=2)
    np.testing.assert_array_equal(found, expected)


def test_what_a_program_can_compute():
    """Not where values determine sizes, nor the functions of a user."""
    assert generic.is_ours(OrderSpec(True, "average", 5))
    assert generic.is_ours(UpdateSpec.of([metrics.NDCG(gain_fn=gains.linear)]))
    assert not generic.is_ours(OrderSpec(True, "average", None))
    assert not generic.is_ours((OrderSpec(False, "average", 5), lambda x: x))


def test_numbers_are_counted(rng):
    """Those from the end on are not."""
    numbers = rng.integers(0, 6, (4, 50)).astype("int32")
    given = ops.convert_to_tensor(numbers)
    expected = [np.sum(numbers == number) for number in range(5)]
    found = ops.convert_to_numpy(generic.bincount(given, 5))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == "int32"
    by_row = [[np.sum(row == number) for number in range(6)] for row in numbers]
    found = ops.convert_to_numpy(generic.histogram(given, 6))
    np.testing.assert_array_equal(found, by_row)


def test_groups_are_summed(rng):
    values = rng.integers(0, 9, (3, 8)).astype("float32")
    groups = rng.integers(0, 24, 24).astype("int32")
    found = generic.group_totals(*map(ops.convert_to_tensor, (values, groups)))
    expected = [values.ravel()[groups == group].sum() for group in groups]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found), np.reshape(expected, (3, 8))
    )


def test_the_first_true_entry(rng):
    conditions = np.array([[False, True, True], [True, False, True]])
    like = ops.zeros((), "float32")
    found = generic.first_true(ops.convert_to_tensor(conditions), like)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    )


def test_rows_are_sorted_by_two_keys(rng):
    x = rng.integers(0, 4, (3, 40)).astype("float32")
    keys = rng.integers(-(2**31) + 1, 2**31, (3, 40)).astype("int32")
    given = [ops.convert_to_tensor(part) for part in (x, keys)]
    rows = [sorted(zip(*row, strict=True)) for row in zip(x, keys, strict=True)]
    expected = np.moveaxis(np.array(rows, "float64"), 2, 0)
    found = generic.sort_pairs(*given)
    np.testing.assert_array_equal([*map(ops.convert_to_numpy, found)], expected)
    # The highest first, and of equal ones those with the largest keys.
    descending, order = map(ops.convert_to_numpy, generic.sorted_descending(*given))
    np.testing.assert_array_equal(descending, expected[0, :, ::-1])
    by_rank = np.take_along_axis(keys, order, axis=1)
    np.testing.assert_array_equal(by_rank, expected[1, :, ::-1])
