"""Distributed evaluation: Ray workers evaluate Parquet shards of scored lists.

    python examples/distributed_evaluation.py
    python examples/distributed_evaluation.py shards/ --workers 8
    python examples/distributed_evaluation.py /everywhere/shards/ --address auto

A shard is a Parquet file with one row per list, and the columns `labels` and `scores`,
with one number per item. Without a directory, shards are generated.

Each shard is a task: a worker updates its own metrics and returns their state. If a
worker dies, Ray gives its shard to another worker, so no list is lost or counted twice.
"""

import argparse
import os
import pathlib
import tempfile

# Results are equal on all backends, and NumPy is always installed with Keras.
os.environ.setdefault("KERAS_BACKEND", "numpy")

import keras
import numpy as np
import pyarrow as pa
import ray
from pyarrow import parquet

from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics
from keras_rank.utils import export_state, merge_state, pad_lists


def generate(directory, shards=8, lists=20_000):
    """Writes shards of lists of 5 to 40 items. Scores depend on the labels."""
    for shard in range(shards):
        rng = np.random.default_rng(shard)
        ends = np.cumsum(rng.integers(5, 41, lists))
        labels = rng.choice(5, ends[-1], p=[0.6, 0.2, 0.1, 0.06, 0.04])
        # Rounded scores have ties.
        scores = np.round(labels + 2.0 * rng.normal(size=len(labels)), 1)
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        columns = {
            name: pa.ListArray.from_arrays(offsets, pa.array(values.astype("float32")))
            for name, values in (("labels", labels), ("scores", scores))
        }
        parquet.write_table(pa.table(columns), directory / f"{shard:04}.parquet")


def make_metrics():
    """Returns metrics that average ties: the distribution of lists has no effect."""
    return RankingMetrics(
        [
            NDCG(k=5, shuffle_ties="average"),
            NDCG(k=10, shuffle_ties="average"),
            MeanReciprocalRank(shuffle_ties="average"),
        ]
    )


def batches(path):
    """Yields the labels and scores of one shard, as padded lists."""
    for rows in parquet.ParquetFile(path).iter_batches(1024):
        yield tuple(
            pad_lists(column.flatten(), group_sizes=column.value_lengths())
            for column in (rows["labels"], rows["scores"])
        )


def count(path):
    """Returns the state of metrics that have seen the lists of one shard."""
    metrics = make_metrics()
    for labels, scores in batches(path):
        metrics.update_state(labels, scores)
    return export_state(metrics)


def count_all(paths):
    """Returns the state for each shard, by its path, with a progress bar."""
    task = ray.remote(max_retries=5)(count)
    running = {task.remote(path): path for path in paths}
    states = {}
    progress = keras.utils.Progbar(len(paths), unit_name="shard")
    while running:
        (reference,), _ = ray.wait(list(running))
        states[running.pop(reference)] = ray.get(reference)
        progress.update(len(states))
    return states


def main():
    """Evaluates all shards, merges the states, and prints the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, nargs="?")
    parser.add_argument("--workers", type=int, default=2, help="on this machine")
    parser.add_argument("--address", help="of a cluster of Ray, in place of --workers")
    parser.add_argument("--state", type=pathlib.Path, help=".npz file to write sums to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as generated:
        directory = arguments.directory or pathlib.Path(generated)
        if not arguments.directory:
            generate(directory)
        paths = sorted(map(str, directory.resolve().glob("*.parquet")))
        if not paths:
            parser.error(f"there is no *.parquet in {directory}")
        if arguments.address:
            environment = {"env_vars": {"KERAS_BACKEND": keras.backend.backend()}}
            ray.init(arguments.address, runtime_env=environment)
        else:
            ray.init(num_cpus=arguments.workers, include_dashboard=False)
        states = count_all(paths)
        ray.shutdown()
    # States are added in the order of the shards, so that even the last bit of the sums
    # does not depend on the workers.
    metrics = merge_state(make_metrics(), [states[path] for path in paths])
    for name, value in metrics.result().items():
        print(f"{name:10}{float(value):.6f}")
    if arguments.state:
        np.savez(arguments.state, **export_state(metrics))


if __name__ == "__main__":
    main()
