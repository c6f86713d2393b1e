"""Peaks of memory, each measured in its own process.

python benchmarks/memory.py keras_rank|keras_rs   # an update, in sizes of an input
python benchmarks/memory.py catalogue ITEMS       # seconds, MB beyond the queries
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from timing import batch_of, tensors, update_of


def kilobytes(name):
    """Reads a number about this process from Linux."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1])


def added(call):
    """Returns the peak memory of a call, in kB, beyond that before it."""
    # Forgets the peak so far.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    call()
    return kilobytes("VmHWM") - before


def of_update(library):
    if library == "keras_rank":
        from keras_rank.metrics import NDCG
    else:
        from keras_rs.metrics import NDCG
    labels, scores = batch_of(64, 100_000)
    call = update_of(NDCG(k=10), *tensors(labels, scores))
    # The memory of compiling is not counted.
    call()
    print(f"{1024 * added(call) / scores.nbytes:.2f}")


def of_catalogue(items, queries=1024, features=64):
    """By reading, not by mapping: what is mapped counts as memory of the process."""
    from keras_rank import catalogue

    rng = np.random.default_rng(0)
    block = 100_000
    users = rng.standard_normal((queries, features), "float32")
    targets = rng.integers(0, 4096, (queries, 1))
    with tempfile.TemporaryFile() as file:
        for _ in range(items // block):
            rng.standard_normal((block, features), "float32").tofile(file)

        def blocks(number):
            file.seek(0)
            for _ in range(number):
                read = np.fromfile(file, "float32", 4096 * features)
                yield read.reshape(-1, features)

        def call(number):
            catalogue.evaluate(
                targets,
                users,
                lambda: blocks(number),
                ["ndcg@10", "recall@100", "mrr"],
                verbose=0,
            )

        # Compiles.
        call(10)
        start = time.perf_counter()
        memory = added(lambda: call(items // 4096))
        print(json.dumps([time.perf_counter() - start, memory / 1024]))


if __name__ == "__main__":
    if sys.argv[1] == "catalogue":
        of_catalogue(int(sys.argv[2]))
    else:
        of_update(sys.argv[1])
