"""Measures one backend: both sides of each ratio in one process.

    KERAS_BACKEND=jax python benchmarks/measure.py [--output FILE] [--device gpu]
    KERAS_BACKEND=torch python benchmarks/measure.py --only busy --busy 2

`figures.py` writes the results of `--output` into the pages.

Times are those of one update, compiled as users would: jax.jit, tf.function, eager
torch and NumPy. Trust the ratios. `ops` and `waits` are the operations of one update,
and how often the host may wait for a value, from `counts.py`.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import unittest.mock
import warnings

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import peers
import timing
from counts import counts_of
from keras import ops
from timing import (
    NINE,
    batch_of,
    compiled,
    has_gpu,
    milliseconds,
    seconds_of,
    sparse_batch_of,
    tensors,
    update_of,
    waiting,
)

import keras_rank
from keras_rank.backends import backend
from keras_rank.metrics import NDCG, HitRate, MeanReciprocalRank, RankingMetrics

BACKEND = keras.backend.backend()
SHAPES = [
    (1024, 100, 10),
    (256, 1000, 10),
    (256, 1000, None),
    (64, 100_000, 10),
    (64, 100_000, 100),
]


def ndcg(labels, scores, k, **arguments):
    return milliseconds(update_of(NDCG(k=k, **arguments), *tensors(labels, scores)))


def counted(metric, *arrays):
    """The cells of its operations and waits."""
    counts = counts_of(metric, *tensors(*arrays))
    return ["-", "-"] if counts is None else [str(n) for n in counts[:2]]


def summing(*arrays):
    """The time of reading the inputs once."""
    return milliseconds(
        compiled(lambda *x: sum(ops.sum(each) for each in x), *tensors(*arrays))
    )


def head(title, columns):
    print(f"\n{title}\n{'':>20}" + "".join(f"{name:>19}" for name in columns))


def row(name, cells):
    print(f"{name:>20}" + "".join(f"{cell:>19}" for cell in cells), flush=True)


def named(lists, items, k):
    return f"{lists} x {items}, {'all' if k is None else k}"


def update():
    """NDCG compared with keras-rs, and on inputs that need more work."""
    others = ("tied", "average", "average, tied", "padded")
    head(
        "NDCG: times of keras-rs over ours, and ours over that of plain inputs",
        ["ms", "ops", "waits", "keras-rs", "to the sum", *others],
    )
    keras_rs = next(iter(peers.peers().values()))
    results = {}
    for lists, items, k in SHAPES:
        labels, scores = batch_of(lists, items)
        tied, padded = np.round(scores, 1), labels.copy()
        padded[:, items // 10 :] = -1.0
        plain = ndcg(labels, scores, k)
        found = {
            "ms": plain,
            "keras-rs": milliseconds(keras_rs(labels, scores, k)) / plain,
            "ms of the sum": summing(labels, scores),
            "tied": ndcg(labels, tied, k) / plain,
            "average": ndcg(labels, scores, k, shuffle_ties="average") / plain,
            "average, tied": ndcg(labels, tied, k, shuffle_ties="average") / plain,
            "padded": ndcg(padded, scores, k) / plain,
        }
        row(
            named(lists, items, k),
            [f"{plain:.2f}", *counted(NDCG(k=k), labels, scores)]
            + [f"{found['keras-rs']:.1f}x", f"{plain / found['ms of the sum']:.1f}"]
            + [f"{found[name]:.1f}" for name in others],
        )
        results[named(lists, items, k)] = found
    return results


def per_list():
    """The milliseconds per list by list size, of keras_rank and each peer."""
    libraries = peers.peers()
    head("NDCG@10: ms per list", ["ours", *libraries])
    results = {}
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
        results[f"{lists} x {items}"] = found
    return results


def instead():
    """NDCG@10 compared with a few naive lines, and with a metric of Keras."""
    head(
        "NDCG@10: times of a naive one, and of Keras's top-k accuracy",
        ["ms", "of naive", "of Keras's"],
    )
    results = {}
    for lists, items in ((32, 20), (1024, 100), (256, 1000)):
        batch = tensors(*batch_of(lists, items))
        metrics = (
            NDCG(k=10),
            keras.metrics.MeanMetricWrapper(peers.naive_ndcg, k=10),
            keras.metrics.TopKCategoricalAccuracy(k=10),
        )
        calls = [update_of(metric, *batch) for metric in metrics]
        # In turns, as the speed of the machine varies.
        rounds = [[milliseconds(call) for call in calls] for _ in range(5)]
        ours, naive, keras_own = np.min(rounds, axis=0)
        found = {"ms": ours, "naive": ours / naive, "Keras": ours / keras_own}
        row(
            f"{lists} x {items}",
            [f"{ours:.3f}", f"{found['naive']:.2f}", f"{found['Keras']:.2f}"],
        )
        results[f"{lists} x {items}"] = found
    return results


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
    """Nine metrics as a group, compared with one, and with nine separate ones."""
    head(
        "Nine metrics: times of one NDCG@20",
        ["ms of one", "group", "ops", "waits", "nine alone"],
    )
    results = {}
    for lists, items in ((256, 1000), (64, 100_000)):
        arrays = batch_of(lists, items)
        batch = tensors(*arrays)
        one = milliseconds(update_of(NDCG(k=20), *batch))
        group = milliseconds(update_of(RankingMetrics(NINE), *batch)) / one
        alone = sum(
            milliseconds(update_of(RankingMetrics([name]), *batch)) for name in NINE
        )
        row(
            f"{lists} x {items}",
            [
                f"{one:.2f}",
                f"{group:.2f}",
                *counted(RankingMetrics(NINE), *arrays),
                f"{alone / one:.2f}",
            ],
        )
        results[f"{lists} x {items}"] = group
    return results


def passes():
    """Ids of relevant items, in times of one maximum of the scores of all items."""
    head(
        "Sparse targets: times of one maximum of the scores",
        ["ms", "ms of maximum", "passes", "ops", "waits"],
    )
    results = {}
    for lists, items, targets, k in (
        (256, 100_000, 1, 10),
        (256, 100_000, 10, 10),
        (256, 100_000, 1, None),
        (512, 20_000, 1, 10),
    ):
        ids, scores = sparse_batch_of(lists, items)
        ids = (ids[:, None] + np.arange(targets, dtype="int32")) % items
        if k is None:
            # Where no scores tie by chance.
            scores = np.argsort(scores, axis=1).astype("float32")
        family = MeanReciprocalRank if k is None else HitRate
        metric, batch = family(k=k, sparse_labels=True), tensors(ids, scores)
        counts = counted(metric, ids, scores)
        time = milliseconds(update_of(metric, *batch))
        once = milliseconds(compiled(lambda x: ops.max(x, axis=1), batch[1]))
        name = f"{named(lists, items, k)}, {targets}"
        row(name, [f"{time:.2f}", f"{once:.2f}", f"{time / once:.1f}", *counts])
        results[name] = time / once
    return results


def catalogues(items=2**18, queries=512, block_size=4096):
    """Ranks counted from embeddings, compared with the bare products."""
    rng = np.random.default_rng(0)

    def embeddings(number):
        return rng.normal(size=(number, 64)).astype("float32")

    users, table = tensors(embeddings(queries), embeddings(items))
    blocks = [
        table[first : first + block_size] for first in range(0, items, block_size)
    ]
    targets = rng.integers(0, items, size=(queries, 10)).astype("int32")

    def product(users, block):
        return ops.matmul(users, ops.transpose(block))

    def best(users, block, first, values, ids):
        """The best 100 so far, and what they are."""
        found, columns = backend.top_k(product(users, block), 100)
        values = ops.concatenate([values, found], axis=1)
        ids = ops.concatenate([ids, ops.cast(columns, "int32") + first], axis=1)
        values, places = backend.top_k(values, 100)
        return values, backend.take(ids, places)

    multiply, keep_best = waiting(product), waiting(best)

    def products():
        for block in blocks:
            multiply(users, block)

    def stream():
        kept = tensors(
            np.full((queries, 100), -np.inf, "float32"),
            np.full((queries, 100), -1, "int32"),
        )
        for i, block in enumerate(blocks):
            first = ops.convert_to_tensor(i * block_size, "int32")
            kept = keep_best(users, block, first, *kept)

    def counting(number):
        return lambda: keras_rank.catalogue.evaluate(
            targets[:, :number],
            users,
            table,
            ["ndcg@10", "recall@100", "mrr"],
            block_size=block_size,
            verbose=0,
        )

    bare = milliseconds(products)
    head(
        "Ranks in a catalogue: times of the products of the same blocks",
        ["ms of products", "one target", "10 targets", "top 100", "top_k(100)"],
    )

    def top_100():
        keras_rank.catalogue.top_k(users, table, 100, block_size=block_size)

    calls = {
        "one": counting(1),
        "ten": counting(10),
        "top 100": stream,
        "top_k(100)": top_100,
    }
    results = {name: milliseconds(call) / bare for name, call in calls.items()}
    ratios = [f"{ratio:.2f}" for ratio in results.values()]
    row(f"{queries} x {items}", [f"{bare:.1f}", *ratios])
    return results


def from_file(items):
    """A catalogue that is read from a file, in a separate process."""
    seconds, megabytes = json.loads(alone("memory.py", "catalogue", str(items)))
    head(f"1024 queries among {items:,} items of a file", ["s", "MB"])
    row("", [f"{seconds:.0f}", f"{megabytes:.0f}"])
    return {"items": items, "seconds": seconds, "MB": megabytes}


def alone(script, *arguments):
    """Returns what a script beside this one prints."""
    path = str(pathlib.Path(__file__).with_name(script))
    call = [sys.executable, path, *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout


def many_targets():
    """Many targets of typical shapes, compared with one target per query."""
    rng = np.random.default_rng(0)

    def targets_of(items, numbers):
        ids = np.full((len(numbers), max(numbers)), -1, "int32")
        for row, number in zip(ids, numbers, strict=True):
            row[:number] = rng.choice(items, number, replace=False)
        return ids

    cases = {
        "as MS MARCO": (2**16, [1] * 7000),
        "as TREC": (2**18, [500] * 50),
        "as ratings": (2**13, rng.integers(30, 901, 6000).tolist()),
        "1,000 users, 1,000 each": (100_000, [1000] * 1000),
        "one of 1,000 has 1,000": (5000, [1000] + [1] * 999),
    }
    head(
        "Many targets: seconds, and times of one target for each query",
        ["first call", "s", "of one"],
    )
    results = {}
    for name, (items, numbers) in cases.items():
        queries, table = tensors(
            *(
                rng.normal(size=(number, 64)).astype("float32")
                for number in (len(numbers), items)
            )
        )
        targets = targets_of(items, numbers)

        def evaluation(targets, queries=queries, table=table):
            return lambda: keras_rank.catalogue.evaluate(
                targets, queries, table, ["ndcg@10", "recall@100", "mrr"], verbose=0
            )

        first = seconds_of(evaluation(targets))
        times = [
            min(seconds_of(evaluation(each)) for _ in range(3))
            for each in (targets, targets[:, :1])
        ]
        ratio = times[0] / times[1]
        row(name, [f"{first:.1f}", f"{times[0]:.2f}", f"{ratio:.1f}x"])
        results[name] = {"seconds": times[0], "ratio": ratio}
    return results


def launches():
    """The operations of an update on an accelerator, which need not be present."""
    if BACKEND == "numpy":
        return None
    import keras_rs

    labels, scores = batch_of(256, 1000)
    plain, tied = (labels, scores), (labels, np.round(scores, 1))
    average = {"shuffle_ties": "average"}
    peer = keras_rs.metrics
    head("One update as on an accelerator", ["ops", "waits"])
    results = {}
    with unittest.mock.patch.object(backend, "on_accelerator", return_value=True):
        for name, metric, batch in (
            ("NDCG@10", NDCG(k=10), plain),
            ("tied", NDCG(k=10), tied),
            ("average", NDCG(k=10, **average), plain),
            ("average, tied", NDCG(k=10, **average), tied),
            ("keras-rs", peer.NDCG(k=10), plain),
            ("NDCG", NDCG(), plain),
            ("nine as a group", RankingMetrics(NINE), plain),
            (
                "sparse HitRate@10",
                HitRate(k=10, sparse_labels=True),
                sparse_batch_of(256, 100_000),
            ),
        ):
            results[name] = counts_of(metric, *tensors(*batch))[:2]
    # All of the nine but the hit rate, which keras-rs does not have.
    eight = [peer.NDCG(k=k) for k in (1, 5, 10, 20)]
    eight += [peer.MeanReciprocalRank(k=20), peer.MeanAveragePrecision(k=10)]
    eight += [peer.RecallAtK(k=10), peer.PrecisionAtK(k=10)]
    counts = [counts_of(metric, *tensors(*plain))[:2] for metric in eight]
    results["keras-rs, eight"] = np.sum(counts, axis=0).tolist()
    for name, counts in results.items():
        row(name, counts)
    return results


def busy(processes):
    """Updates on busy cores, as with data loaders."""
    keras_rs = next(iter(peers.peers().values()))
    head(
        f"Beside {processes} busy processes: ms, and times of it before",
        ["ms", "slower", "keras-rs, ms", "slower"],
    )
    results = {}
    for lists, items in ((128, 100), (256, 1000), (64, 100_000)):
        labels, scores = batch_of(lists, items)
        ours = update_of(NDCG(k=10), *tensors(labels, scores))
        calls = ours, keras_rs(labels, scores, 10)
        quiet = [milliseconds(call) for call in calls]
        with working(processes):
            loaded = [milliseconds(call) for call in calls]
        cells = []
        for before, now in zip(quiet, loaded, strict=True):
            cells += [f"{now:.2f}", f"{now / before:.1f}x"]
        row(f"{lists} x {items}", cells)
        results[f"{lists} x {items}"] = {"quiet": quiet, "busy": loaded}
    return results


@contextlib.contextmanager
def working(processes):
    """Processes that keep a core busy each."""
    call = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(call) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def first_epoch():
    """What metrics add to the first epoch of `fit`: tracing, compiling, four steps."""
    if BACKEND == "numpy":
        return None
    import keras_rs

    def four(library):
        return [
            library.NDCG(k=5, name="ndcg@5"),
            library.NDCG(k=10, name="ndcg@10"),
            library.MeanAveragePrecision(name="map"),
            library.MeanReciprocalRank(name="mrr"),
        ]

    makers = {
        "without": lambda: [],
        "NDCG@10": lambda: [NDCG(k=10)],
        "keras-rs": lambda: [keras_rs.metrics.NDCG(k=10)],
        "four": lambda: four(keras_rank.metrics),
        "group of four": lambda: [RankingMetrics(four(keras_rank.metrics))],
        "keras-rs, four": lambda: four(keras_rs.metrics),
    }

    # What is traced or compiled stays so: another model needs another size of lists.
    sizes = itertools.count(100)

    def epoch(make):
        items = next(sizes)
        labels, x = batch_of(4 * 256, items)
        inputs = keras.Input((items, 1))
        outputs = keras.layers.Reshape((items,))(keras.layers.Dense(1)(inputs))
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse", metrics=make())
        return seconds_of(
            lambda: model.fit(x[..., None], labels, batch_size=256, verbose=0)
        )

    rounds = [{name: epoch(make) for name, make in makers.items()} for _ in range(3)]
    names = list(makers)[1:]
    added = [
        statistics.median(e[name] - e["without"] for e in rounds) for name in names
    ]
    head("What metrics add to the first epoch of fit", names)
    row("seconds", [f"{time:.2f}" for time in added])
    return dict(zip(names, added, strict=True))


def grouped_rows(rows=50_000, items=50):
    """What `GroupedEvaluation` takes, relative to the prediction of its rows."""
    if BACKEND == "numpy":
        return None
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 32)).astype("float32")
    labels, lists = rng.integers(0, 5, rows), rng.integers(0, rows // items, rows)
    hidden = [keras.layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((32,)), *hidden, keras.layers.Dense(1)])
    callback = keras_rank.callbacks.GroupedEvaluation(
        x, labels, lists, ["ndcg@10", "mrr"], model=model, batch_size=128
    )
    evaluate = lambda: callback.on_epoch_end(0, {})  # noqa: E731
    predict = lambda: model.predict(x, batch_size=128, verbose=0)  # noqa: E731
    times = [(seconds_of(evaluate), seconds_of(predict)) for _ in range(4)][1:]
    ratio = statistics.median(ours / bare for ours, bare in times)
    head("Rows of items, evaluated in lists", ["of predict"])
    row(f"{rows} rows", [f"{ratio:.2f}"])
    return ratio


def fitting():
    """An epoch of training with the metric and without it."""
    if BACKEND == "numpy":
        return None
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

    # In turns, as the speed of the machine varies. The first ones compile.
    epochs = epoch([]), epoch([NDCG(k=10)])
    times = [[seconds_of(each) for each in epochs] for _ in range(10)]
    without, with_metric = 1000 * np.min(times, axis=0)
    head(
        "fit, 4096 lists of 100: the fastest of ten epochs",
        ["ms without", "with NDCG@10"],
    )
    added = 100 * (with_metric / without - 1)
    row("", [f"{without:.0f}", f"{added:+.1f}%"])
    return added


def memory():
    """Peak memory of one update, each in a separate process."""
    head("Peak memory beyond the inputs, over the size of one", ["ours", "keras-rs"])
    results = {
        library: float(alone("memory.py", library))
        for library in ("keras_rank", "keras_rs")
    }
    row("64 x 100000, 10", [f"{ratio:.2f}" for ratio in results.values()])
    return results


def on_gpu():
    """What a GPU takes: updates, results, catalogues, and an epoch of training."""
    updates_on_gpu()
    results_on_gpu()
    catalogues(items=1_000_000, queries=4096, block_size=2**16)
    fitting()


def results_on_gpu():
    """The results, which PyTorch's trainer asks for at each step."""
    import keras_rs

    batch = tensors(*batch_of(256, 1000))
    head("Results on the GPU", ["us"])
    for name, metric in (
        ("NDCG@10", NDCG(k=10)),
        ("nine as a group", RankingMetrics(NINE)),
        ("keras-rs, NDCG@10", keras_rs.metrics.NDCG(k=10)),
    ):
        metric.update_state(*batch)
        row(name, [f"{1000.0 * milliseconds(metric.result):.0f}"])


def updates_on_gpu():
    """Absolute times, and the bytes of the inputs against the bandwidth of a copy."""
    libraries = peers.peers()
    head(
        "NDCG on the GPU, and times of others over ours",
        ["ms", "ops", "waits", "GB/s", "copy, GB/s", "tied, ms", *libraries],
    )
    for lists, items, k in [*SHAPES, (1024, 100_000, 10)]:
        labels, scores = batch_of(lists, items)
        time = ndcg(labels, scores, k)
        tied = ndcg(labels, np.round(scores, 1), k)
        copy = milliseconds(compiled(lambda x: x + 1.0, *tensors(scores)))
        read, copied = labels.nbytes + scores.nbytes, 2 * scores.nbytes
        cells = [f"{time:.3f}", *counted(NDCG(k=k), labels, scores)]
        cells += [f"{read / time / 1e6:.0f}", f"{copied / copy / 1e6:.0f}"]
        cells += [f"{tied:.3f}"]
        for maker in libraries.values():
            call = maker(labels, scores, k)
            cells += ["-" if call is None else f"{milliseconds(call) / time:.1f}x"]
        row(named(lists, items, k), cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the times")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument(
        "--busy",
        type=int,
        default=os.cpu_count(),
        metavar="PROCESSES",
        help="beside how many processes to measure; all cores by default",
    )
    parser.add_argument(
        "--seconds", type=float, default=timing.SECONDS, help="the time of a call"
    )
    parser.add_argument(
        "--items", type=int, default=10_000_000, help="of the catalogue in a file"
    )
    sections = {section.__name__: section for section in SECTIONS}
    parser.add_argument("--only", nargs="+", choices=sections, default=[*sections])
    arguments = parser.parse_args()
    device = "gpu" if has_gpu() else "cpu"
    if arguments.device != device:
        parser.error(f"--device {arguments.device}: {BACKEND} computes on a {device}.")
    warnings.simplefilter("ignore")
    timing.SECONDS = arguments.seconds
    versions = {name: importlib.metadata.version(name) for name in ("keras", "numpy")}
    if BACKEND != "numpy":
        versions[BACKEND] = sys.modules[BACKEND].__version__
    machine = f"{os.cpu_count()} cores, {datetime.date.today()}"
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"\n== {BACKEND}: keras_rank {keras_rank.__version__}, {told}; {machine}")
    if arguments.device == "gpu":
        on_gpu()
        return
    setting = {"backend": BACKEND, "cores": os.cpu_count(), "versions": versions}
    results = {**setting, "dates": {}}
    if len(arguments.only) < len(sections) and arguments.output:
        # The others stay as they were measured.
        with contextlib.suppress(FileNotFoundError):
            results = json.loads(arguments.output.read_text())
        if setting != {name: results[name] for name in setting}:
            parser.error("--only: the other sections were measured in another setting.")
    asks = {"busy": [arguments.busy], "from_file": [arguments.items]}
    for name in arguments.only:
        results[name] = sections[name](*asks.get(name, []))
        results["dates"][name] = str(datetime.date.today())
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


SECTIONS = (
    update,
    per_list,
    instead,
    groups,
    passes,
    catalogues,
    many_targets,
    from_file,
    growth,
    grouped_rows,
    launches,
    busy,
    first_epoch,
    fitting,
    memory,
)

if __name__ == "__main__":
    main()
