"""Times of metric calls outside of compiled functions: first, new shape, steady.

    python benchmarks/calls.py [--output results.json] [--backends jax ...]

Each library runs in its own process on each backend, so that no library profits from
code that the other one has compiled. A time is the wall-clock time of an update and a
result of NDCG(k=10), in seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FIRST_SHAPE, NEW_SHAPES, STEADY_SHAPE = (
    (32, 20),
    [(32, 41), (32, 83), (64, 150)],
    (128, 100),
)
BACKENDS = ["jax", "tensorflow", "torch", "numpy"]
LIBRARIES = ["keras_rank", "keras_rs"]


def measure_library(library: str) -> dict[str, float]:
    """Returns the times of a library, measured in this process."""
    import keras
    import numpy as np

    if library == "keras_rank":
        import keras_rank as package
    else:
        import keras_rs as package

    rng = np.random.default_rng(0)
    make_metric = package.metrics.NDCG

    def make_batch(lists: int, items: int):
        labels = rng.integers(0, 5, size=(lists, items)).astype("float32")
        return labels, rng.random((lists, items), "float32")

    def make_ragged_batch(longest: int):
        sizes = [longest, *rng.integers(1, longest + 1, size=31)]
        labels, scores = (
            [rng.integers(0, 5, n) for n in sizes],
            [*map(rng.random, sizes)],
        )
        if library == "keras_rank":
            return labels, scores
        # keras_rs does not accept ragged lists, so they are padded.
        return tuple(
            np.stack(
                [
                    np.pad(values, (0, longest - len(values)), constant_values=padding)
                    for values in rows
                ]
            )
            for rows, padding in ((labels, -1), (scores, 0))
        )

    def time_updates(metric, *batches) -> float:
        start = time.perf_counter()
        for batch in batches:
            metric.update_state(*batch)
            float(metric.result())
        return time.perf_counter() - start

    # Initialize the backend, which is not timed.
    float(keras.ops.sum(keras.ops.ones((2, 2))))
    metric = make_metric(k=10)
    times = {"first": time_updates(metric, make_batch(*FIRST_SHAPE))}
    times["new shape"] = min(
        time_updates(metric, make_batch(*shape)) for shape in NEW_SHAPES
    )
    batches = [make_batch(*STEADY_SHAPE)] * 20
    time_updates(metric, *batches[:2])
    times["steady"] = min(time_updates(metric, *batches) for _ in range(5)) / 20
    longest = rng.permutation(np.arange(25, 225, 10))
    times["20 ragged"] = time_updates(
        make_metric(k=10), *(make_ragged_batch(int(n)) for n in longest)
    )
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--library", help="library to measure in this process")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure_library(options.library)))
        return
    results = {}
    for backend in options.backends:
        for library in LIBRARIES:
            stdout = subprocess.run(
                [sys.executable, __file__, "--library", library],
                env={**os.environ, "KERAS_BACKEND": backend},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            times = json.loads(stdout.splitlines()[-1])
            results.setdefault(backend, {})[library] = times
            cells = "".join(
                f"{name:>12} {seconds:8.4f}" for name, seconds in times.items()
            )
            print(f"{backend:>10} {library:>10} {cells}", flush=True)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
