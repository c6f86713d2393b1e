"""The ways in which an update is compiled, by backend."""

import functools

import keras
import pytest


def _jax_jit(metric):
    import jax

    stateless_update = jax.jit(metric.stateless_update_state)

    def update(*batch):
        variables = stateless_update([v.value for v in metric.variables], *batch)
        for variable, value in zip(metric.variables, variables, strict=True):
            variable.assign(value)

    return update


def _tf_function(metric, **options):
    import tensorflow as tf

    unknown = tf.TensorSpec((None, None), "float32")
    return tf.function(
        lambda *batch: metric.update_state(*batch),
        input_signature=[unknown] * 3,
        **options,
    )


def _torch_compile(metric):
    import torch

    # Functions are compiled a step further, below: updates take the longest to trace.
    return torch.compile(
        lambda *batch: metric.update_state(*map(torch.as_tensor, batch)),
        backend="eager",
    )


_WAYS = {
    "jax.jit": _jax_jit,
    "tf.function": _tf_function,
    "tf.function with XLA": functools.partial(_tf_function, jit_compile=True),
    "torch.compile": _torch_compile,
}

# One graph on torch, which takes what Keras does to be traced as well.
in_one_graph = pytest.mark.skipif(
    keras.__version__ < "3.15", reason="torch can't trace the trees of older ones"
)

_BACKENDS = {"jax": "jax", "tf": "tensorflow", "torch": "torch"}


def is_here(way):
    """Whether the way belongs to this backend."""
    return _BACKENDS[way.partition(".")[0]] == keras.backend.backend()


def skip_unless_here(way):
    """Skips the test where the way belongs to another backend, or does not work."""
    if not is_here(way):
        pytest.skip(f"{way} is a way of {_BACKENDS[way.partition('.')[0]]}")
    if not works_here(way):
        pytest.skip("the compiler of torch 2.6 fails where a seed is hashed")


def works_here(way):
    """Whether the way belongs to this backend, and its version can take it."""
    return is_here(way) and not (way == "torch.compile" and _is_too_old())


def _is_too_old():
    import torch

    major, minor, *_ = torch.__version__.split(".")
    return (int(major), int(minor)) < (2, 13)


# Those of this backend.
WAYS = {way: make for way, make in _WAYS.items() if works_here(way)}


def function(way, call):
    """Compiles a function of tensors in a way."""
    if way == "jax.jit":
        import jax

        return jax.jit(call)
    if way == "torch.compile":
        import torch

        return torch.compile(call, backend="aot_eager")
    import tensorflow as tf

    return tf.function(call, jit_compile="XLA" in way, autograph=False)
