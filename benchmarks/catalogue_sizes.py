"""Times of three metrics of 512 queries, by the number of candidates.

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
# The full matrix is limited to a number of scores that take 1 GB.
MAX_SCORES = 2**28
METRICS = ["ndcg@10", "recall@100", "mrr"]
SPARSE = {"sparse_labels": True}


def time_call(call):
    """Returns the shortest time of three calls, after a call that compiles."""
    call()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def make_counting(users, items, targets):
    """Returns a call that counts exact ranks, from which any metric follows."""
    return lambda: catalogue.evaluate(targets, users, items, METRICS, verbose=0)


def make_streaming_top_100(users, items, targets):
    """Returns a call that keeps the best 100 scores, for metrics at 100 only."""

    def update_top_100(users, block, best_scores):
        values, _ = backend.top_k(ops.matmul(users, ops.transpose(block)), 100)
        return backend.top_k(ops.concatenate([best_scores, values], axis=1), 100)[0]

    step = backend.compile_function(update_top_100, is_package_code=True)

    def stream():
        best_scores = ops.full((QUERIES, 100), -np.inf, "float32")
        for start in range(0, len(items), BLOCK):
            block = ops.slice(items, [start, 0], [BLOCK, FEATURES])
            best_scores = step(users, block, best_scores)
        ops.convert_to_numpy(best_scores)

    return stream


def make_full_matrix(users, items, targets):
    """Returns a call that computes the ranks from all scores at once."""
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

    def make_embeddings(number):
        array = rng.normal(size=(number, FEATURES)).astype("float32")
        return ops.convert_to_tensor(array)

    users, results = make_embeddings(QUERIES), {}
    for make_call, label in (
        (make_counting, "counting: keras_rank.catalogue"),
        (make_streaming_top_100, "top 100 in a stream"),
        (make_full_matrix, "the full matrix of scores"),
    ):
        times = results[label] = {}
        for size in SIZES:
            if make_call is make_full_matrix and size * QUERIES > MAX_SCORES:
                continue
            targets = rng.integers(0, size, size=(QUERIES, 1)).astype("int32")
            times[size] = time_call(make_call(users, make_embeddings(size), targets))
        print(label, {size: f"{seconds:.3f}" for size, seconds in times.items()})
    report = {"backend": keras.backend.backend(), "seconds": results}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
