"""A program that fits and evaluates on one device and on several.

    KERAS_BACKEND=jax python tests/support/replicas.py

`test_multi_device.py` runs it. It prints the results as JSON, by name and number of
devices. It is a separate process because devices must be configured before the backend
is first used.
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
    """Returns a metric, a group, and two weighted metrics, the last of item counts."""
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
    arguments = {"metrics": metrics[:2], "weighted_metrics": metrics[2:]}
    model.compile(keras.optimizers.SGD(rate), squared_error, **arguments)
    return model, metrics


def add_prefix(prefix, values):
    return {f"{prefix} {name}": float(value) for name, value in values.items()}


def fit_and_evaluate(model, metrics, x, labels, weights):
    """Returns the logs of `fit` and `evaluate`, and the states of the metrics."""
    arguments = {"sample_weight": weights, "batch_size": 8, "verbose": 0}
    history = model.fit(x, labels, shuffle=False, **arguments).history
    fitted = {name: values[-1] for name, values in history.items()}
    evaluated = model.evaluate(x, labels, return_dict=True, **arguments)
    # Losses are not compared: on torch, Keras computes the loss of each process alone.
    del fitted["loss"], evaluated["loss"]
    logs = {**add_prefix("fit", fitted), **add_prefix("evaluate", evaluated)}
    return logs, [export_state(metric) for metric in metrics]


def evaluate_rows():
    """Returns the results of `GroupedEvaluation` in `fit` on shuffled rows.

    The last batch is smaller than the others, except on JAX.
    """
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
    task = rows, labels, ids, [NDCG(k=3, seed=1), "mrr"]
    callbacks = [GroupedEvaluation(*task, batch_size=size)]
    fitted = model.fit(rows, labels, 8, callbacks=callbacks, verbose=0)
    del fitted.history["loss"]
    return {f"rows {name}": values[-1] for name, values in fitted.history.items()}


def add_exported(logs, states):
    """Adds the results of the states, merged into new metrics, to the logs."""
    pairs = zip(make_metrics(), states, strict=True)
    merged = [merge_state(metric, [state]) for metric, state in pairs]
    return {**logs, **add_prefix("exported", results(*merged))}


def rank_constant_scores():
    """Returns values of NDCG for constant scores in each tie mode.

    The items are in the best order, so an unfair order of ties gives a high value.
    """
    tie_modes = {"shuffled": True, "stable": False, "average": "average"}
    inputs = keras.Input((ITEMS,))
    model = keras.Model(inputs, keras.layers.Rescaling(0.0)(inputs))
    metrics = [NDCG(3, shuffle_ties=x, seed=1, name=n) for n, x in tie_modes.items()]
    model.compile(loss="mse", metrics=metrics)
    labels = np.tile(np.float32([3, 2, 1, 0, 0, 0]), (CONSTANT_LISTS, 1))
    logs = model.evaluate(labels, labels, 1000, return_dict=True, verbose=0)
    return {name: logs[name] for name in tie_modes}


def run_on_jax():
    """Yields the results on one host device and on four."""
    for number in (1, 4):
        if number > 1:
            devices = [f"cpu:{i}" for i in range(number)]
            distribution = keras.distribution.DataParallel(devices=devices)
            keras.distribution.set_distribution(distribution)
        model, metrics = build(rate=0.1)
        logs_and_states = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
        constant = rank_constant_scores() | evaluate_rows()
        keras.distribution.set_distribution(None)
        yield f"{number} devices", {**add_exported(*logs_and_states), **constant}


def run_on_tensorflow():
    """Yields the results on one virtual CPU and on two."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    virtual = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, virtual)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for number, scope in ((1, contextlib.nullcontext), (2, mirrored.scope)):
        with scope():
            model, metrics = build(rate=0.1)
            even = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
            # The last batch has one list, so the second replica gets no list. Keras
            # gives the gradients of both replicas equal weights, which would make the
            # models differ: the learning rate of 0 prevents this.
            model.optimizer.learning_rate = 0.0
            uneven = fit_and_evaluate(model, metrics, *data(slice(LISTS + 1)))
            constant = rank_constant_scores() | evaluate_rows()
        values = {**add_exported(*even), **constant}
        values |= add_prefix("uneven", add_exported(*uneven))
        yield f"{number} devices", values


def run_on_torch():
    """Yields the results of one process, and of each of two and three processes.

    The third process has no data.
    """
    import torch

    model, metrics = build(rate=0.0)
    logs, _ = fit_and_evaluate(model, metrics, *data(slice(LISTS)))
    yield "1 devices", {**logs, **evaluate_rows()}
    multiprocessing.set_forkserver_preload(["keras_rank", "torch.distributed"])
    with tempfile.TemporaryDirectory() as folder:
        # Each process creates one group only: torch 2.6 may wait forever when a group
        # is destroyed.
        for world in (2, 3):
            # If one process fails, `start_processes` ends the others, which would wait.
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
    values = {**follow_the_recipe(rows), **evaluate_rows()}
    path = pathlib.Path(folder) / f"rank {rank} of {world} devices.json"
    path.write_text(json.dumps(values))
    # Each process waits for the others before it ends.
    dist.barrier()


def follow_the_recipe(rows):
    """Fits and evaluates the shard of a rank, and merges by the documented function."""
    names, text = {}, DOCUMENTATION.read_text()
    exec(re.search(r"```python\n(import torch.*?)```", text, re.DOTALL)[1], names)
    model, metrics = build(rate=0.0)
    x, labels, weights = data(rows)
    values = {}
    for name, method in (("fit", model.fit), ("evaluate", model.evaluate)):
        if len(x):
            method(x, labels, sample_weight=weights, batch_size=8, verbose=0)
        values |= add_prefix(name, results(*map(names["over_all_ranks"], metrics)))
    return values


if __name__ == "__main__":
    programs = {
        "jax": run_on_jax,
        "tensorflow": run_on_tensorflow,
        "torch": run_on_torch,
    }
    json.dump(dict(programs[keras.backend.backend()]()), sys.stdout)
