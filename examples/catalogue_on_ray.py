"""A catalogue in parts: ranked by workers of Ray, each of which reads its own file.

    python examples/catalogue_on_ray.py
    python examples/catalogue_on_ray.py --parts 8 --workers 4 --items 1000000
    python examples/catalogue_on_ray.py /everywhere/embeddings/ --address auto

A part is an `.npy` file of embeddings, a row for each item; the ids go on from one
file to the next. Without a directory, embeddings are generated, and of queries too.

Workers count what is above each target in their parts, and counts add up. A worker that
dies has returned nothing, and Ray gives its part to another one.
"""

import argparse
import functools
import os
import pathlib
import tempfile

# Any backend gives the same numbers; NumPy is there wherever Keras is.
os.environ.setdefault("KERAS_BACKEND", "numpy")

import keras
import numpy as np
import ray

from keras_rank import catalogue, functional

FEATURES = 64


def generate(directory, items, parts):
    """Writes the embeddings of items, as so many files."""
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
    """Calls a function of a part, wherever Ray has a worker for it."""
    return function(part)


def map_on_ray(function, parts):
    """As the builtin `map`. The function holds all queries: they are sent once."""
    function_of_all = ray.put(function)
    # For Ray's dashboard: parts are opened, their targets scored, and ranks counted.
    task = work.options(name=getattr(function, "__name__", "open"))
    return ray.get([task.remote(function_of_all, part) for part in parts])


def main():
    """Has all parts counted, and prints the means and their standard errors."""
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
            # Read by the workers, block by block, and never as a whole.
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
