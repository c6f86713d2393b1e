"""Times calls outside of compiled functions: the first, a new shape, and others.

    python benchmarks/calls.py [--output results.json] [--backends jax ...]

Each library runs in its own process on each backend, as one would profit from what the
other compiles. Times are wall-clock seconds of NDCG(k=10): an update and its result.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FIRST, NEW, STEADY = (32, 20), [(32, 41), (32, 83), (64, 150)], (128, 100)
BACKENDS = ["jax", "tensorflow", "torch", "numpy"]
LIBRARIES = ["keras_rank", "keras_rs"]


def measured(library: str) -> dict[str, float]:
    """The times of a library in this process."""
    import keras
    import numpy as np

    if library == "keras_rank":
        import keras_rank as package
    else:
        import keras_rs as package

    rng = np.random.default_rng(0)
    make = package.metrics.NDCG

    def batch_of(lists: int, items: int):
        labels = rng.integers(0, 5, size=(lists, items)).astype("float32")
        return labels, rng.random((lists, items), "float32")

    def ragged(longest: int):
        sizes = [longest, *rng.integers(1, longest + 1, size=31)]
        labels, scores = (
            [rng.integers(0, 5, n) for n in sizes],
            [*map(rng.random, sizes)],
        )
        if library == "keras_rank":
            return labels, scores
        # Ragged lists, which it does not accept: padded to the longest list.
        return tuple(
            np.stack(
                [np.pad(x, (0, longest - len(x)), constant_values=v) for x in rows]
            )
            for rows, v in ((labels, -1), (scores, 0))
        )

    def seconds_of(metric, *batches) -> float:
        start = time.perf_counter()
        for batch in batches:
            metric.update_state(*batch)
            float(metric.result())
        return time.perf_counter() - start

    # Without the backend's own initialization.
    float(keras.ops.sum(keras.ops.ones((2, 2))))
    metric = make(k=10)
    found = {"first": seconds_of(metric, batch_of(*FIRST))}
    found["new shape"] = min(seconds_of(metric, batch_of(*shape)) for shape in NEW)
    batches = [batch_of(*STEADY)] * 20
    seconds_of(metric, *batches[:2])
    found["steady"] = min(seconds_of(metric, *batches) for _ in range(5)) / 20
    longest = rng.permutation(np.arange(25, 225, 10))
    found["20 ragged"] = seconds_of(make(k=10), *(ragged(int(n)) for n in longest))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--library", help="measure this one here, and print JSON")
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measured(options.library)))
        return
    results = {}
    for backend in options.backends:
        for library in LIBRARIES:
            printed = subprocess.run(
                [sys.executable, __file__, "--library", library],
                env={**os.environ, "KERAS_BACKEND": backend},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            times = json.loads(printed.splitlines()[-1])
            results.setdefault(backend, {})[library] = times
            cells = "".join(f"{name:>12} {x:8.4f}" for name, x in times.items())
            print(f"{backend:>10} {library:>10} {cells}", flush=True)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
