"""Compiles a call as users would, and times it."""

import statistics
import time

import keras
import numpy as np
from keras import ops

# How long a call is repeated to be timed.
SECONDS = 0.5


def compiled(function, *tensors):
    """Returns a call of the function that waits for its result."""
    call = waiting(function)
    return lambda: call(*tensors)


def waiting(function):
    """Returns the compiled function, which waits for its result."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        jitted = jax.jit(function)
        return lambda *tensors: jax.block_until_ready(jitted(*tensors))
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    return function


def update_of(metric, *batch):
    """Returns a call of one update: jax.jit, tf.function, eager torch or NumPy."""
    if keras.backend.backend() == "jax":
        variables = [variable.value for variable in metric.variables]
        return compiled(
            lambda *batch: metric.stateless_update_state(variables, *batch), *batch
        )
    return compiled(lambda *batch: metric.update_state(*batch), *batch)


def milliseconds(call):
    """Returns the median time of a call in the second half of `SECONDS`.

    The first half warms up threads and caches to the state that they have in an epoch.
    """
    times = [seconds_of(call)]
    while sum(times) < SECONDS or len(times) < 3:
        times.append(seconds_of(call))
    return 1000.0 * statistics.median(times[len(times) // 2 :])


def seconds_of(call):
    """Returns the time of one call."""
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def wait():
    """Waits for pending work of a GPU. JAX's calls have already waited."""
    if keras.backend.backend() == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()


def has_gpu():
    """Whether the backend computes on a GPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() == "gpu"
    if backend == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("GPU"))
    if backend == "torch":
        import torch

        return torch.cuda.is_available()
    return False


# The members of a group that many runs have.
NINE = ["ndcg@1", "ndcg@5", "ndcg@10", "ndcg@20", "mrr@20", "map@10", "recall@10"]
NINE += ["precision@10", "hit_rate@10"]


def batch_of(lists, items, seed=0):
    """Returns labels from 0 to 4 and normal scores, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, size=(lists, items)).astype("float32")
    return labels, rng.normal(size=(lists, items)).astype("float32")


def sparse_batch_of(lists, items, seed=0):
    """Returns the id of one relevant item of each list, and normal scores."""
    ids = np.random.default_rng(seed).integers(0, items, lists).astype("int32")
    return ids, batch_of(lists, items, seed)[1]


def tensors(*arrays):
    return [ops.convert_to_tensor(array) for array in arrays]
