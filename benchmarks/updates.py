"""The time of one update beside others in the same process: ratios, not records.

    KERAS_BACKEND=jax python benchmarks/updates.py

Compiled as a user would: jax.jit, tf.function, eager torch and NumPy. Dense lists
beside keras-rs; sparse targets beside reading the scores once.
"""

import importlib.metadata
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import ops

import keras_rank
from keras_rank.metrics import NDCG, HitRate

SHAPES = [
    (1024, 100, 10),
    (256, 1000, 10),
    (256, 1000, None),
    (64, 100_000, 10),
    (64, 100_000, 100),
]


def compiled(function, *tensors):
    """Returns a call of the function that waits for its result."""
    if keras.backend.backend() == "jax":
        import jax

        jitted = jax.jit(function)
        return lambda: jax.block_until_ready(jitted(*tensors))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        graph = tf.function(function)
        return lambda: graph(*tensors)
    return lambda: function(*tensors)


def update_of(metric, *batch):
    if keras.backend.backend() == "jax":
        variables = [v.value for v in metric.variables]
        return compiled(
            lambda *batch: metric.stateless_update_state(variables, *batch), *batch
        )
    return compiled(lambda *batch: metric.update_state(*batch), *batch)


def milliseconds(call, seconds=2.0):
    call()
    call()
    times = []
    while sum(times) < seconds and len(times) < 30:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000.0 * statistics.median(times)


def main():
    try:
        import keras_rs

        peer = f"keras-rs {importlib.metadata.version('keras-rs')}"
    except ImportError:
        keras_rs, peer = None, "keras-rs missing"
    print(
        f"keras_rank {keras_rank.__version__}, keras {keras.__version__} on "
        f"{keras.backend.backend()}, {peer}, {os.cpu_count()} cores\n"
    )
    rng = np.random.default_rng(0)
    columns = "".join(f"{name:>9}" for name in ("shuffle", "tied", "average", "peer"))
    print(f"{'NDCG, ms':>20}{columns}{'ratio':>9}")
    for lists, items, k in SHAPES:
        labels = rng.integers(0, 5, size=(lists, items)).astype("float32")
        scores = rng.normal(size=(lists, items)).astype("float32")
        tied = np.round(scores, 1)
        y, s, t = map(ops.convert_to_tensor, (labels, scores, tied))
        ours = milliseconds(update_of(NDCG(k=k), y, s))
        ours_tied = milliseconds(update_of(NDCG(k=k), y, t))
        average = milliseconds(update_of(NDCG(k=k, shuffle_ties="average"), y, s))
        theirs = (
            milliseconds(update_of(keras_rs.metrics.NDCG(k=k), y, s))
            if keras_rs
            else float("nan")
        )
        print(
            f"{f'{lists}x{items}, {k}':>20}{ours:9.2f}{ours_tied:9.2f}"
            f"{average:9.2f}{theirs:9.1f}{theirs / ours:8.1f}x",
            flush=True,
        )
    ids = ops.convert_to_tensor(rng.integers(0, 100_000, size=256).astype("int32"))
    catalogue = ops.convert_to_tensor(rng.normal(size=(256, 100_000)).astype("float32"))
    hit_rate = update_of(HitRate(k=10, sparse_labels=True), ids, catalogue)
    ours = milliseconds(hit_rate)
    reading = milliseconds(compiled(ops.sum, catalogue))
    print(
        f"\nHitRate@10 of 256 sparse targets in 100,000 items: {ours:.2f} ms, "
        f"{ours / reading:.1f} times the {reading:.2f} ms of summing the scores"
    )


if __name__ == "__main__":
    main()
