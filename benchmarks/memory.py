"""Peak memory of an update or of an evaluation, each in its own process.

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
from timing import make_batch, make_update, tensors


def read_kilobytes(name):
    """Reads an entry of the status of this process, which Linux reports in kB."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1])


def measure_added_memory(call):
    """Returns the peak memory of a call, minus the memory before it, in kB."""
    # Writing 5 resets the peak memory of this process.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = read_kilobytes("VmRSS")
    call()
    return read_kilobytes("VmHWM") - before


def measure_update(library):
    if library == "keras_rank":
        from keras_rank.metrics import NDCG
    else:
        from keras_rs.metrics import NDCG
    labels, scores = make_batch(64, 100_000)
    call = make_update(NDCG(k=10), *tensors(labels, scores))
    # Compile first: the memory of the compiler is not counted.
    call()
    print(f"{1024 * measure_added_memory(call) / scores.nbytes:.2f}")


def measure_evaluation(items, queries=1024, features=64):
    """Prints the seconds and the memory of an evaluation that reads items from a file.

    The file is read instead of mapped: mapped pages count as memory of the process.
    """
    from keras_rank import catalogue

    rng = np.random.default_rng(0)
    block = 100_000
    users = rng.standard_normal((queries, features), "float32")
    targets = rng.integers(0, 4096, (queries, 1))
    with tempfile.TemporaryFile() as file:
        for _ in range(items // block):
            rng.standard_normal((block, features), "float32").tofile(file)

        def read_blocks(number):
            file.seek(0)
            for _ in range(number):
                values = np.fromfile(file, "float32", 4096 * features)
                yield values.reshape(-1, features)

        def call(number):
            catalogue.evaluate(
                targets,
                users,
                lambda: read_blocks(number),
                ["ndcg@10", "recall@100", "mrr"],
                verbose=0,
            )

        # Compile first: the time and the memory of the compiler are not counted.
        call(10)
        start = time.perf_counter()
        memory = measure_added_memory(lambda: call(items // 4096))
        print(json.dumps([time.perf_counter() - start, memory / 1024]))


if __name__ == "__main__":
    if sys.argv[1] == "catalogue":
        measure_evaluation(int(sys.argv[2]))
    else:
        measure_update(sys.argv[1])
