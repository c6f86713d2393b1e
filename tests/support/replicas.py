"""Fits and evaluates on several devices: what `test_devices.py` runs in a process.

    KERAS_BACKEND=jax python tests/support/replicas.py

Prints, as JSON, the results on one device and on several, by their names. Devices have
to be told before a backend is used, so that this has a process of its own.
"""

import contextlib
import json
import multiprocessing
import pathlib
import re
import sys
import tempfile

import keras
import numpy as np
from recording import results

from keras_rank.callbacks import GroupedEvaluation
from keras_rank.metrics import NDCG, Gini, RankingMetrics
from keras_rank.utils import export_state, merge_state

LISTS, ITEMS, FEATURES = 24, 6, 3
CONSTANT_LISTS = 10_000
DOCUMENTATION = pathlib.Path(__file__).parents[2] / "docs" / "devices.md"


def data(rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(LISTS + 1, ITEMS, FEATURES)).astype("float32")
    labels = rng.integers(-1, 4, x.shape[:2]).astype("float32")
    weights = rng.choice([0.0, 0.5, 1.0, 4.0], x.shape[:2]).astype("float32")
    return x[rows], labels[rows], weights[rows]


def make_metrics():
    """A metric, a group, and those that see the weights: one counts items."""
    return [
        NDCG(k=3, seed=1),
        RankingMetrics(["map@3", "mrr"], prefix="group_", standard_errors=True),
        NDCG(k=5, seed=1, name="weighted_ndcg_at_5"),
        Gini(k=2, items=ITEMS, seed=1, name="weighted_gini_at_2"),
    ]


def squared_error(labels, scores):
    return (labels - scores) ** 2


def build(rate):
    """Returns a model and its metrics."""
    metrics = make_metrics()
    # `keras.utils.set_random_seed` would import TensorFlow into each process of torch.
    initializer = keras.initializers.GlorotUniform(seed=1)
    dense = keras.layers.Dense(1, kernel_initializer=initializer)
    inputs = keras.Input((ITEMS, FEATURES))
    scores = keras.layers.Reshape((ITEMS,))(dense(inputs))
    model = keras.Model(inputs, scores)
    given = {"metrics": metrics[:2], "weighted_metrics": metrics[2:]}
    model.compile(keras.optimizers.SGD(rate), squared_error, **given)
    return model, metrics


def named(way, found):
    return {f"{way} {name}": float(value) for name, value in found.items()}


def fit_and_evaluate(model, metrics, x, labels, weights):
    """Returns what Keras logs, and the states of the metrics after it."""
    given = {"sample_weight": weights, "batch_size": 8, "verbose": 0}
    history = model.fit(x, labels, shuffle=False, **given).history
    fitted = {name: values[-1] for name, values in history.items()}
    evaluated = model.evaluate(x, labels, return_dict=True, **given)
    # The loss is not ours: on torch, Keras leaves it to each process.
    del fitted["loss"], evaluated["loss"]
    logs = {**named("fit", fitted), **named("evaluate", evaluated)}
    return logs, [export_state(metric) for metric in metrics]


def evaluate_rows():
    """In `fit`, on rows in any order: the last batch is smaller, but not for JAX."""
    x, labels, _ = data(slice(LISTS))
    order = np.random.default_rng(1).permutation(LISTS * ITEMS)
    rows, labels = x.reshape(-1, FEATURES)[order], labels.reshape(-1)[order]
    ids = np.repeat(np.arange(LISTS), ITEMS)[order]
    initializer = keras.initializers.GlorotUniform(seed=1)
    inputs = keras.Input((FEATURES,))
    scores = keras.layers.Dense(1, kernel_initializer=initializer)(inputs)
    model = keras.Model(inputs, scores)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    size = 8 if keras.backend.backend() == "jax" else 7
    given = rows, labels, ids, [NDCG(k=3, seed=1), "mrr"]
    callbacks = [GroupedEvaluation(*given, batch_size=size)]
    fitted = model.fit(rows, labels, 8, callbacks=callbacks, verbose=0)
    del fitted.history["loss"]
    return {f"rows {name}": values[-1] for name, values in fitted.history.items()}


def with_exported(logs, states):
    """Adds what the states give to metrics that were on no device."""
    pairs = zip(make_metrics(), states, strict=True)
    merged = [merge_state(metric, [state]) for metric, state in pairs]
    return {**logs, **named("exported", results(*merged))}


def rank_constant_scores():
    """The best order comes first: an order of ties that is not fair flatters."""
    ways = {"shuffled": True, "stable": False, "average": "average"}
    inputs = keras.Input((ITEMS,))
    model = keras.Model(inputs, keras.layers.Rescaling(0.0)(inputs))
    metrics = [NDCG(3, shuffle_ties=x, seed=1, name=name) for name, x in ways.items()]
    model.compile(loss="mse", metrics=metrics)
    labels = np.tile(np.float32([3, 2, 1, 0, 0, 0]), (CONSTANT_LISTS, 1))
    logs = model.evaluate(labels, labels, 1000, return_dict=True, verbose=0)
    return {name: logs[name] for name in ways}


def on_jax():
    """One host device, and four."""
    for number in (1, 4):
        if number > 1:
            devices = [f"cpu:{i}" for i in range(number)]
            distribution = keras.distribution.DataParallel(devices=devices)
            keras.distribution.set_distribution(distribution)
        model, metrics = build(rate=0.1)
        found = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
        constant = rank_constant_scores() | evaluate_rows()
        keras.distribution.set_distribution(None)
        yield f"{number} devices", {**with_exported(*found), **constant}


def on_tensorflow():
    """Two virtual CPUs."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    virtual = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, virtual)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for number, scope in ((1, contextlib.nullcontext), (2, mirrored.scope)):
        with scope():
            model, metrics = build(rate=0.1)
            even = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
            # The last batch has one list, and the second replica none of it. Keras
            # weighs the gradients of both alike, so that nothing is learned here.
            model.optimizer.learning_rate = 0.0
            uneven = fit_and_evaluate(model, metrics, *data(slice(LISTS + 1)))
            constant = rank_constant_scores() | evaluate_rows()
        found = {**with_exported(*even), **constant}
        found |= named("uneven", with_exported(*uneven))
        yield f"{number} devices", found


def on_torch():
    """Two and three processes, of which the third has no data."""
    import torch

    model, metrics = build(rate=0.0)
    logs, _ = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
    yield "1 devices", {**logs, **evaluate_rows()}
    multiprocessing.set_forkserver_preload(["keras_rank", "torch.distributed"])
    with tempfile.TemporaryDirectory() as folder:
        # One group for each process: torch 2.6 may wait forever where one is destroyed.
        for world in (2, 3):
            # Which ends the others if one fails, where they would wait for it.
            torch.multiprocessing.start_processes(
                run_rank, (world, folder), nprocs=world, start_method="forkserver"
            )
        for path in pathlib.Path(folder).glob("*.json"):
            yield path.stem, json.loads(path.read_text())


def run_rank(rank, world, folder):
    import torch.distributed as dist

    rows = (slice(0, 17), slice(17, LISTS), slice(0))[rank]
    store = f"file://{folder}/store-{world}"
    dist.init_process_group("gloo", store, rank=rank, world_size=world)
    found = {**follow_the_recipe(rows), **evaluate_rows()}
    path = pathlib.Path(folder) / f"rank {rank} of {world} devices.json"
    path.write_text(json.dumps(found))
    # No rank leaves before all have what they wait for.
    dist.barrier()


def follow_the_recipe(rows):
    """Each rank fits and evaluates its shard; a function of the book does the rest."""
    names, text = {}, DOCUMENTATION.read_text()
    exec(re.search(r"```python\n(import torch.*?)```", text, re.DOTALL)[1], names)
    model, metrics = build(rate=0.0)
    x, labels, weights = data(rows)
    found = {}
    for way, use in (("fit", model.fit), ("evaluate", model.evaluate)):
        if len(x):
            use(x, labels, sample_weight=weights, batch_size=8, verbose=0)
        found |= named(way, results(*map(names["over_all_ranks"], metrics)))
    return found


if __name__ == "__main__":
    backends = {"jax": on_jax, "tensorflow": on_tensorflow, "torch": on_torch}
    json.dump(dict(backends[keras.backend.backend()]()), sys.stdout)
