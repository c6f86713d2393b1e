"""A catalogue in parts: Ray workers rank it, each reading its own file.

    python examples/catalogue_on_ray.py
    python examples/catalogue_on_ray.py --parts 8 --workers 4 --items 1000000
    python examples/catalogue_on_ray.py /everywhere/embeddings/ --address auto

A part is an `.npy` file of embeddings with one row per item. Ids continue from one file
to the next. Without a directory, embeddings of items and queries are generated.

Workers count the items above each target in their parts, and the counts are added. If a
worker dies, Ray gives its part to another worker.
"""

import argparse
import functools
import os
import pathlib
import tempfile

# Results are equal on all backends, and NumPy is always installed with Keras.
os.environ.setdefault("KERAS_BACKEND", "numpy")

import keras
import numpy as np
import ray

from keras_rank import catalogue, functional

FEATURES = 64


def generate(directory, items, parts):
    """Writes the embeddings of items to several files."""
    rng = np.random.default_rng(0)
    for part, rows in enumerate(np.array_split(np.arange(items), parts)):
        embeddings = rng.normal(size=(len(rows), FEATURES)).astype("float32")
        np.save(directory / f"{part:04}.npy", embeddings)


def make_queries(paths, number=256):
    """Returns queries near items of the first part, and the ids of these items."""
    rng = np.random.default_rng(1)
    items = np.load(paths[0], mmap_mode="r")
    targets = rng.integers(0, len(items), number)
    queries = items[targets] + 2.0 * rng.normal(size=(number, items.shape[1]))
    return targets, queries.astype("float32")


@ray.remote(max_retries=5)
def work(function, part):
    """Calls a function with a part, on any Ray worker."""
    return function(part)


def map_on_ray(function, parts):
    """Works like the builtin `map`. The queries are sent once, with the function."""
    function_reference = ray.put(function)
    # The dashboard of Ray shows these names: open parts, score targets, count ranks.
    task = work.options(name=getattr(function, "__name__", "open"))
    return ray.get([task.remote(function_reference, part) for part in parts])


def main():
    """Counts all parts, and prints the means with their standard errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, nargs="?")
    parser.add_argument("--items", type=int, default=200_000, help="to generate")
    parser.add_argument("--parts", type=int, default=2, help="to generate")
    parser.add_argument("--workers", type=int, default=2, help="on this machine")
    parser.add_argument("--address", help="of a cluster of Ray, in place of --workers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as generated:
        directory = arguments.directory or pathlib.Path(generated)
        if not arguments.directory:
            generate(directory, arguments.items, arguments.parts)
        paths = sorted(directory.resolve().glob("*.npy"))
        if not paths:
            parser.error(f"there is no *.npy in {directory}")
        if arguments.address:
            environment = {"env_vars": {"KERAS_BACKEND": keras.backend.backend()}}
            ray.init(arguments.address, runtime_env=environment)
        else:
            ray.init(num_cpus=arguments.workers, include_dashboard=False)
        shards = catalogue.Shards(
            # Workers read the files block by block, never as a whole.
            [functools.partial(np.load, path, mmap_mode="r") for path in paths],
            map_fn=map_on_ray,
        )
        targets, queries = make_queries(paths)
        ranked = catalogue.rank(targets, queries, shards, seed=0)
        ray.shutdown()
    for name, values in (
        ("ndcg@10", functional.ndcg(ranked, k=10)),
        ("recall@100", functional.recall(ranked, k=100)),
        ("mrr", functional.reciprocal_rank(ranked)),
    ):
        values = keras.ops.convert_to_numpy(values)
        error = values.std(ddof=1) / np.sqrt(len(values))
        print(f"{name:12}{values.mean():.6f} ± {error:.6f}")


if __name__ == "__main__":
    main()
