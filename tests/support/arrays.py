"""Conversion and comparison of tensors of any backend as NumPy arrays."""

import numpy as np
from keras import ops


def array(tensor):
    return ops.convert_to_numpy(tensor)


def compute_values(function, *batch, **arguments):
    return array(function(*batch, **arguments))


def assert_equal(actual, expected):
    np.testing.assert_array_equal(array(actual), array(expected))


def assert_close(actual, expected, **tolerances):
    np.testing.assert_allclose(array(actual), array(expected), **tolerances)
