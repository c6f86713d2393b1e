"""Conversion and comparison of tensors of any backend as NumPy arrays."""

import numpy as np
from keras import ops


def array(tensor):
    return ops.convert_to_numpy(tensor)


def values_of(function, *batch, **arguments):
    return array(function(*batch, **arguments))


def assert_equal(found, expected):
    np.testing.assert_array_equal(array(found), array(expected))


def assert_close(found, expected, **tolerances):
    np.testing.assert_allclose(array(found), array(expected), **tolerances)
