"""The reference backend, apart from what a backend replaces."""

import numpy as np
import pytest
from keras import ops

from keras_rank.backends import generic


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
