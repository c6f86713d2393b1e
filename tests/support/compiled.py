"""The ways in which an update is compiled, by backend."""

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
    "jax": {"jax.jit": _jax_jit},
    "tensorflow": {
        "tf.function": _tf_function,
        "tf.function with XLA": functools.partial(_tf_function, jit_compile=True),
    },
    "torch": {"torch.compile": _torch_compile},
}


def is_old_torch():
    """Whether this is torch 2.6, whose compiler fails where a seed is hashed."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


# Those of this backend, if its version can take them.
WAYS = _WAYS.get(BACKEND, {})
if BACKEND == "torch" and is_old_torch():
    WAYS = {}

# One graph on torch, which takes what Keras does to be traced as well.
in_one_graph = pytest.mark.skipif(
    keras.__version__ < "3.15", reason="torch can't trace the trees of older ones"
)

# Masks that layers pass on.
with_layer_masks = pytest.mark.skipif(
    BACKEND == "numpy" and keras.__version__ < "3.14", reason="Keras ignores them"
)


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
