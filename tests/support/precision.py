"""A context with another default precision of Keras."""

import contextlib

import keras


@contextlib.contextmanager
def default_precision(precision):
    """Sets the default `floatx`, or the dtype policy if a mixed precision is given."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    try:
        if precision.startswith("mixed"):
            keras.config.set_dtype_policy(precision)
        else:
            keras.config.set_floatx(precision)
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
