"""Times three metrics of 512 queries against the number of candidates.

KERAS_BACKEND=jax python benchmarks/catalogue_sizes.py OUTPUT.json
"""

import json
import pathlib
import sys
import time

import keras
import numpy as np
from keras import ops

from keras_rank import catalogue
from keras_rank.backends import backend
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics, RecallAtK

QUERIES, FEATURES, BLOCK = 512, 64, 4096
SIZES = [2**power for power in (12, 14, 16, 18, 20)]
# This many scores take 1 GB.
MAX_SCORES = 2**28
METRICS = ["ndcg@10", "recall@100", "mrr"]
SPARSE = {"sparse_labels": True}


def seconds(call):
    """The shortest time of three calls, after one that compiles."""
    call()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def counting(users, items, targets):
    """The exact ranks, from which any metric follows."""
    return lambda: catalogue.evaluate(targets, users, items, METRICS, verbose=0)


def streaming_top_100(users, items, targets):
    """The running best 100 over blocks, which gives only metrics at 100."""

    def best(users, block, kept):
        values, _ = backend.top_k(ops.matmul(users, ops.transpose(block)), 100)
        return backend.top_k(ops.concatenate([kept, values], axis=1), 100)[0]

    step = backend.compile_function(best, is_package_code=True)

    def stream():
        kept = ops.full((QUERIES, 100), -np.inf, "float32")
        for first in range(0, len(items), BLOCK):
            block = ops.slice(items, [first, 0], [BLOCK, FEATURES])
            kept = step(users, block, kept)
        ops.convert_to_numpy(kept)

    return stream


def full_matrix(users, items, targets):
    """Ranks counted from all scores at once."""
    members = (
        NDCG(k=10, **SPARSE),
        RecallAtK(k=100, **SPARSE),
        MeanReciprocalRank(**SPARSE),
    )
    group = RankingMetrics(members)

    def update():
        scores = ops.matmul(users, ops.transpose(items))
        group.update_state(targets, scores)
        float(group.result()["mrr"])

    return update


def main():
    rng = np.random.default_rng(0)

    def embeddings(number):
        array = rng.normal(size=(number, FEATURES)).astype("float32")
        return ops.convert_to_tensor(array)

    users, results = embeddings(QUERIES), {}
    for make, label in (
        (counting, "counting: keras_rank.catalogue"),
        (streaming_top_100, "top 100 in a stream"),
        (full_matrix, "the full matrix of scores"),
    ):
        times = results[label] = {}
        for size in SIZES:
            if make is full_matrix and size * QUERIES > MAX_SCORES:
                continue
            targets = rng.integers(0, size, size=(QUERIES, 1)).astype("int32")
            times[size] = seconds(make(users, embeddings(size), targets))
        print(label, {size: f"{each:.3f}" for size, each in times.items()})
    found = {"backend": keras.backend.backend(), "seconds": results}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
