"""Tables of one backend: ratios side by side in one process, on stated shapes.

    KERAS_BACKEND=jax python benchmarks/measure.py [--output FILE] [--device gpu]

Times are those of one update, compiled as a user would: jax.jit, tf.function, eager
torch and NumPy. What counts are the ratios.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import warnings

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import peers
from keras import ops
from timing import batch_of, compiled, milliseconds, seconds_of, tensors, update_of

import keras_rank
from keras_rank.metrics import NDCG, HitRate, RankingMetrics

BACKEND = keras.backend.backend()
SHAPES = [
    (1024, 100, 10),
    (256, 1000, 10),
    (256, 1000, None),
    (64, 100_000, 10),
    (64, 100_000, 100),
]
NINE = ["ndcg@1", "ndcg@5", "ndcg@10", "ndcg@20", "mrr@20", "map@10", "recall@10"]
NINE += ["precision@10", "hit_rate@10"]


def ndcg(labels, scores, k, **arguments):
    return milliseconds(update_of(NDCG(k=k, **arguments), *tensors(labels, scores)))


def summing(*arrays):
    """The time of reading the inputs once."""
    return milliseconds(
        compiled(lambda *x: sum(ops.sum(each) for each in x), *tensors(*arrays))
    )


def head(title, columns):
    print(f"\n{title}\n{'':>20}" + "".join(f"{name:>15}" for name in columns))


def row(name, cells):
    print(f"{name:>20}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def named(lists, items, k):
    return f"{lists} x {items}, {'all' if k is None else k}"


def against_keras_rs():
    """NDCG beside keras-rs, and our own time on inputs that ask for more."""
    head(
        "NDCG: times of keras-rs over ours, and ours over that of plain inputs",
        ["ms", "keras-rs", "to the sum", "tied", "average", "average, tied", "padded"],
    )
    keras_rs = next(iter(peers.peers().values()))
    ratios = {}
    for lists, items, k in SHAPES:
        labels, scores = batch_of(lists, items)
        tied, padded = np.round(scores, 1), labels.copy()
        padded[:, items // 10 :] = -1.0
        plain = ndcg(labels, scores, k)
        theirs = milliseconds(keras_rs(labels, scores, k)) / plain
        ratios[named(lists, items, k)] = theirs
        others = [
            ndcg(labels, tied, k),
            ndcg(labels, scores, k, shuffle_ties="average"),
            ndcg(labels, tied, k, shuffle_ties="average"),
            ndcg(padded, scores, k),
        ]
        row(
            named(lists, items, k),
            [f"{plain:.2f}", f"{theirs:.1f}x", f"{plain / summing(labels, scores):.1f}"]
            + [f"{other / plain:.1f}" for other in others],
        )
    return ratios


def against_peers():
    """The time per list by its size, of us and of each peer."""
    libraries = peers.peers()
    head("NDCG@10: ms per list", ["ours", *libraries])
    times = {}
    for lists, items in ((1024, 100), (256, 1000), (64, 10_000), (64, 100_000)):
        labels, scores = batch_of(lists, items)
        found = {"keras_rank": ndcg(labels, scores, 10) / lists}
        for name, maker in libraries.items():
            if peers.fits(name, lists, items):
                call = maker(labels, scores, 10)
                found[name] = milliseconds(call) / lists
        row(
            f"{lists} x {items}",
            [
                f"{found[n]:.4f}" if n in found else "-"
                for n in ("keras_rank", *libraries)
            ],
        )
        times[items] = found
    labels, scores = batch_of(256, 1000)
    head("NDCG of whole lists, 256 x 1000: ms per list", ["ours", *libraries])
    calls = [maker(labels, scores, None) for maker in libraries.values()]
    cells = [ndcg(labels, scores, None)]
    cells += [None if call is None else milliseconds(call) for call in calls]
    row("", ["-" if cell is None else f"{cell / 256:.4f}" for cell in cells])
    return times


def few_relevant():
    """Whole lists with few relevant items are not sorted; with one more they are."""
    rng = np.random.default_rng(0)
    labels, scores = np.zeros((256, 1000), "float32"), batch_of(256, 1000)[1]
    most = 8
    for row_of_labels in labels:
        row_of_labels[rng.choice(1000, rng.integers(1, most + 1), replace=False)] = 1.0
    more = labels.copy()
    more[0] = 1.0
    few, full = ndcg(labels, scores, None), ndcg(more, scores, None)
    head("NDCG of whole lists, up to 8 of 1,000 relevant", ["ms", "to a full sort"])
    row("256 x 1000, all", [f"{few:.2f}", f"{few / full:.2f}"])


def growth():
    """The time per item and per list, which should not grow with their numbers."""
    head("NDCG@10: nanoseconds per item, of 4 million items", ["ns"])
    for items in (1000, 10_000, 100_000, 1_000_000):
        batch = batch_of(4_000_000 // items, items)
        row(f"{4_000_000 // items} x {items}", [f"{ndcg(*batch, 10) / 4:.2f}"])
    head("NDCG@10: microseconds per list of 100", ["us"])
    for lists in (16, 128, 1024, 16_384):
        time = 1000 * ndcg(*batch_of(lists, 100), 10) / lists
        row(f"{lists} x 100", [f"{time:.2f}"])


def groups():
    """Nine metrics as one group, beside one of them and beside nine by themselves."""
    head("Nine metrics: times of one NDCG@20", ["ms of one", "group", "nine alone"])
    for lists, items in ((256, 1000), (64, 100_000)):
        batch = tensors(*batch_of(lists, items))
        one = milliseconds(update_of(NDCG(k=20), *batch))
        group = milliseconds(update_of(RankingMetrics(NINE), *batch))
        alone = sum(
            milliseconds(update_of(RankingMetrics([name]), *batch), 0.3)
            for name in NINE
        )
        row(
            f"{lists} x {items}",
            [f"{one:.2f}", f"{group / one:.2f}", f"{alone / one:.2f}"],
        )


def sparse():
    """One target in a whole catalogue, beside reading its scores."""
    rng = np.random.default_rng(0)
    ids, scores = rng.integers(0, 100_000, 256), batch_of(256, 100_000)[1]
    batch = tensors(ids.astype("int32"), scores)
    time = milliseconds(update_of(HitRate(k=10, sparse_labels=True), *batch))
    head("HitRate@10 of sparse targets", ["ms", "to the sum"])
    row("256 x 100000", [f"{time:.2f}", f"{time / summing(scores):.1f}"])


def fitting():
    """An epoch of training with the metric and without it."""
    if BACKEND == "numpy":
        return
    lists, features = 4096, 50
    labels, _ = batch_of(lists, 100)
    x = np.random.default_rng(0).normal(size=(lists, 100, features)).astype("float32")
    inputs = keras.Input((100, features))
    hidden = inputs
    for _ in range(2):
        hidden = keras.layers.Dense(128, activation="relu")(hidden)
    outputs = keras.layers.Reshape((100,))(keras.layers.Dense(1)(hidden))

    def epoch(metrics):
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse", metrics=metrics)
        return lambda: model.fit(x, labels, batch_size=256, verbose=0)

    # In turns, as the machine is not always as fast; the first ones compile.
    epochs = epoch([]), epoch([NDCG(k=10)])
    times = [[seconds_of(each) for each in epochs] for _ in range(10)]
    without, with_metric = 1000 * np.min(times, axis=0)
    head(
        "fit, 4096 lists of 100: the fastest of ten epochs",
        ["ms without", "with NDCG@10"],
    )
    row("", [f"{without:.0f}", f"{100 * (with_metric / without - 1):+.1f}%"])


def memory():
    """Peak memory of one update, each in a process of its own."""
    head("Peak memory beyond the inputs, over the size of one", ["ours", "keras-rs"])
    script = str(pathlib.Path(__file__).with_name("memory.py"))
    cells = []
    for library in ("keras_rank", "keras_rs"):
        done = subprocess.run(
            [sys.executable, script, library],
            capture_output=True,
            text=True,
            check=True,
        )
        cells.append(done.stdout.strip())
    row("64 x 100000, 10", cells)


def on_gpu():
    """Absolute times, and the bytes of the inputs against the bandwidth of a copy."""
    head("NDCG on the GPU", ["ms", "GB/s", "copy, GB/s", "tied, ms", "keras-rs"])
    keras_rs = next(iter(peers.peers().values()))
    for lists, items, k in [*SHAPES, (1024, 100_000, 10)]:
        labels, scores = batch_of(lists, items)
        time = ndcg(labels, scores, k)
        copy = milliseconds(compiled(lambda x: x + 1.0, *tensors(scores)))
        read, copied = labels.nbytes + scores.nbytes, 2 * scores.nbytes
        theirs = milliseconds(keras_rs(labels, scores, k)) / time
        tied = ndcg(labels, np.round(scores, 1), k)
        bandwidths = (f"{read / time / 1e6:.0f}", f"{copied / copy / 1e6:.0f}")
        row(
            named(lists, items, k),
            [f"{time:.3f}", *bandwidths, f"{tied:.3f}", f"{theirs:.1f}x"],
        )


def has_gpu():
    if BACKEND == "jax":
        import jax

        return jax.default_backend() == "gpu"
    if BACKEND == "torch":
        import torch

        return torch.cuda.is_available()
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the times")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = {name: importlib.metadata.version(name) for name in ("keras", "numpy")}
    if BACKEND != "numpy":
        versions[BACKEND] = sys.modules[BACKEND].__version__
    machine = f"{os.cpu_count()} cores, {datetime.date.today()}"
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"\n== {BACKEND}: keras_rank {keras_rank.__version__}, {told}; {machine}")
    if arguments.device == "gpu":
        if not has_gpu():
            sys.exit(f"There is no GPU here that {BACKEND} knows.")
        on_gpu()
        return
    results = {
        "backend": BACKEND,
        "machine": machine,
        "keras_rs": against_keras_rs(),
        "per_list": against_peers(),
    }
    for section in (few_relevant, groups, sparse, growth, fitting, memory):
        section()
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
