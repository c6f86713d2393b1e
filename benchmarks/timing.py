"""Functions that compile a call as users would, and time it."""

import statistics
import time

import keras
import numpy as np
from keras import ops

# The seconds for which a call is repeated.
SECONDS = 0.5


def compile_call(function, *tensors):
    """Returns a call of the function that waits for its result."""
    call = compile_function(function)
    return lambda: call(*tensors)


def compile_function(function):
    """Returns the compiled function. Its calls wait for their results."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        jitted = jax.jit(function)
        return lambda *tensors: jax.block_until_ready(jitted(*tensors))
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    return function


def make_update(metric, *batch):
    """Returns a call of one update: jax.jit, tf.function, eager torch or NumPy."""
    if keras.backend.backend() == "jax":
        variables = [variable.value for variable in metric.variables]
        return compile_call(
            lambda *batch: metric.stateless_update_state(variables, *batch), *batch
        )
    return compile_call(lambda *batch: metric.update_state(*batch), *batch)


def measure_ms(call):
    """Returns the median milliseconds of a call in the second half of `SECONDS`.

    The first half warms up threads and caches to the state that they have in an epoch.
    """
    times = [time_call(call)]
    while sum(times) < SECONDS or len(times) < 3:
        times.append(time_call(call))
    return 1000.0 * statistics.median(times[len(times) // 2 :])


def time_call(call):
    """Returns the time of one call, in seconds."""
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def wait():
    """Waits until a GPU is idle. Calls on JAX have already waited."""
    if keras.backend.backend() == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()


def has_gpu():
    """Returns whether the backend computes on a GPU."""
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


# The metrics of a typical group.
NINE = ["ndcg@1", "ndcg@5", "ndcg@10", "ndcg@20", "mrr@20", "map@10", "recall@10"]
NINE += ["precision@10", "hit_rate@10"]


def make_batch(lists, items, seed=0):
    """Returns labels from 0 to 4 and normal scores, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, size=(lists, items)).astype("float32")
    return labels, rng.normal(size=(lists, items)).astype("float32")


def make_sparse_batch(lists, items, seed=0):
    """Returns the id of one relevant item per list, and normal scores."""
    ids = np.random.default_rng(seed).integers(0, items, lists).astype("int32")
    return ids, make_batch(lists, items, seed)[1]


def tensors(*arrays):
    return [ops.convert_to_tensor(array) for array in arrays]
