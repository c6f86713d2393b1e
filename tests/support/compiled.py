"""Compilers of updates and of functions by backend, and marks of tests that skip."""

import functools

import keras
import pytest

BACKEND = keras.backend.backend()


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

    spec = tf.TensorSpec((None, None), "float32")
    return tf.function(
        lambda *batch: metric.update_state(*batch),
        input_signature=[spec] * 3,
        **options,
    )


def _torch_compile(metric):
    import torch

    # `backend="eager"` only traces the update, as updates take the longest to trace.
    # `compile_function` compiles functions one step further.
    return torch.compile(
        lambda *batch: metric.update_state(*map(torch.as_tensor, batch)),
        backend="eager",
    )


_COMPILERS = {
    "jax": {"jax.jit": _jax_jit},
    "tensorflow": {
        "tf.function": _tf_function,
        "tf.function with XLA": functools.partial(_tf_function, jit_compile=True),
    },
    "torch": {"torch.compile": _torch_compile},
}


def is_old_torch():
    """Returns whether torch is older than 2.13 and can't compile the hash of a seed."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


# The compilers of this backend: a name, and a function that compiles the update of a
# metric. Empty if the version of the backend can't compile updates.
COMPILERS = _COMPILERS.get(BACKEND, {})
if BACKEND == "torch" and is_old_torch():
    COMPILERS = {}

# Tests of a single graph on torch, in which Keras's own code is traced too.
requires_full_graph = pytest.mark.skipif(
    keras.__version__ < "3.15", reason="torch can't trace trees of older Keras versions"
)

# Tests of masks that layers attach to their outputs.
requires_layer_masks = pytest.mark.skipif(
    BACKEND == "numpy" and keras.__version__ < "3.14", reason="Keras ignores the masks"
)


def compile_function(compiler, call):
    """Compiles a function of tensors with the compiler of the given name."""
    if compiler == "jax.jit":
        import jax

        return jax.jit(call)
    if compiler == "torch.compile":
        import torch

        return torch.compile(call, backend="aot_eager")
    import tensorflow as tf

    return tf.function(call, jit_compile="XLA" in compiler, autograph=False)
