"""Program that measures one backend, with both sides of a ratio in one process.

    KERAS_BACKEND=jax python benchmarks/measure.py [--output FILE] [--device gpu]
    KERAS_BACKEND=torch python benchmarks/measure.py --only busy --busy 2

`figures.py` writes the results of `--output` into the pages.

Times are those of one update, compiled as users would: jax.jit, tf.function, eager
torch and NumPy. Ratios are more reliable than times. `ops` and `waits` are the numbers
of operations of one update and of values for which the host may wait, from `counts.py`.
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
from counts import count_operations
from keras import ops
from timing import (
    NINE,
    compile_call,
    compile_function,
    has_gpu,
    make_batch,
    make_sparse_batch,
    make_update,
    measure_ms,
    tensors,
    time_call,
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


def measure_ndcg(labels, scores, k, **arguments):
    return measure_ms(make_update(NDCG(k=k, **arguments), *tensors(labels, scores)))


def make_count_cells(metric, *arrays):
    """Returns cells with the numbers of operations and waits of an update."""
    counts = count_operations(metric, *tensors(*arrays))
    return ["-", "-"] if counts is None else [str(n) for n in counts[:2]]


def measure_sum(*arrays):
    """Returns the time of a sum, which reads the inputs once."""
    return measure_ms(
        compile_call(lambda *x: sum(ops.sum(values) for values in x), *tensors(*arrays))
    )


def print_head(title, columns):
    print(f"\n{title}\n{'':>20}" + "".join(f"{name:>19}" for name in columns))


def print_row(name, cells):
    print(f"{name:>20}" + "".join(f"{cell:>19}" for cell in cells), flush=True)


def format_shape(lists, items, k):
    return f"{lists} x {items}, {'all' if k is None else k}"


def update():
    """Compares NDCG with keras-rs, and plain inputs with inputs that need more work."""
    cases = ("tied", "average", "average, tied", "padded")
    print_head(
        "NDCG: times of keras-rs over ours, and ours over that of plain inputs",
        ["ms", "ops", "waits", "keras-rs", "to the sum", *cases],
    )
    keras_rs = next(iter(peers.get_peers().values()))
    results = {}
    for lists, items, k in SHAPES:
        labels, scores = make_batch(lists, items)
        tied, padded = np.round(scores, 1), labels.copy()
        padded[:, items // 10 :] = -1.0
        plain = measure_ndcg(labels, scores, k)
        result = {
            "ms": plain,
            "keras-rs": measure_ms(keras_rs(labels, scores, k)) / plain,
            "ms of the sum": measure_sum(labels, scores),
            "tied": measure_ndcg(labels, tied, k) / plain,
            "average": measure_ndcg(labels, scores, k, shuffle_ties="average") / plain,
            "average, tied": measure_ndcg(labels, tied, k, shuffle_ties="average")
            / plain,
            "padded": measure_ndcg(padded, scores, k) / plain,
        }
        print_row(
            format_shape(lists, items, k),
            [f"{plain:.2f}", *make_count_cells(NDCG(k=k), labels, scores)]
            + [f"{result['keras-rs']:.1f}x", f"{plain / result['ms of the sum']:.1f}"]
            + [f"{result[name]:.1f}" for name in cases],
        )
        results[format_shape(lists, items, k)] = result
    return results


def per_list():
    """Measures the milliseconds per list by list size, for all libraries."""
    libraries = peers.get_peers()
    print_head("NDCG@10: ms per list", ["ours", *libraries])
    results = {}
    for lists, items in ((1024, 100), (256, 1000), (64, 10_000), (64, 100_000)):
        labels, scores = make_batch(lists, items)
        times = {"keras_rank": measure_ndcg(labels, scores, 10) / lists}
        for name, maker in libraries.items():
            if peers.fits(name, lists, items):
                call = maker(labels, scores, 10)
                times[name] = measure_ms(call) / lists
        print_row(
            f"{lists} x {items}",
            [
                f"{times[n]:.4f}" if n in times else "-"
                for n in ("keras_rank", *libraries)
            ],
        )
        results[f"{lists} x {items}"] = times
    return results


def instead():
    """Compares NDCG@10 with a naive NDCG, and with a metric of Keras."""
    print_head(
        "NDCG@10: times of a naive one, and of Keras's top-k accuracy",
        ["ms", "of naive", "of Keras's"],
    )
    results = {}
    for lists, items in ((32, 20), (1024, 100), (256, 1000)):
        batch = tensors(*make_batch(lists, items))
        metrics = (
            NDCG(k=10),
            keras.metrics.MeanMetricWrapper(peers.naive_ndcg, k=10),
            keras.metrics.TopKCategoricalAccuracy(k=10),
        )
        calls = [make_update(metric, *batch) for metric in metrics]
        # The speed of the machine varies, so the calls take turns.
        rounds = [[measure_ms(call) for call in calls] for _ in range(5)]
        ours, naive, keras_metric = np.min(rounds, axis=0)
        result = {"ms": ours, "naive": ours / naive, "Keras": ours / keras_metric}
        print_row(
            f"{lists} x {items}",
            [f"{ours:.3f}", f"{result['naive']:.2f}", f"{result['Keras']:.2f}"],
        )
        results[f"{lists} x {items}"] = result
    return results


def growth():
    """Prints the time per item and per list, which should not grow with the sizes."""
    print_head("NDCG@10: nanoseconds per item, of 4 million items", ["ns"])
    for items in (1000, 10_000, 100_000, 1_000_000):
        batch = make_batch(4_000_000 // items, items)
        print_row(
            f"{4_000_000 // items} x {items}", [f"{measure_ndcg(*batch, 10) / 4:.2f}"]
        )
    print_head("NDCG@10: microseconds per list of 100", ["us"])
    for lists in (16, 128, 1024, 16_384):
        time = 1000 * measure_ndcg(*make_batch(lists, 100), 10) / lists
        print_row(f"{lists} x 100", [f"{time:.2f}"])


def groups():
    """Compares a group of nine metrics with one metric, and with nine separate ones."""
    print_head(
        "Nine metrics: times of one NDCG@20",
        ["ms of one", "group", "ops", "waits", "nine alone"],
    )
    results = {}
    for lists, items in ((256, 1000), (64, 100_000)):
        arrays = make_batch(lists, items)
        batch = tensors(*arrays)
        one = measure_ms(make_update(NDCG(k=20), *batch))
        group = measure_ms(make_update(RankingMetrics(NINE), *batch)) / one
        separate = sum(
            measure_ms(make_update(RankingMetrics([name]), *batch)) for name in NINE
        )
        print_row(
            f"{lists} x {items}",
            [
                f"{one:.2f}",
                f"{group:.2f}",
                *make_count_cells(RankingMetrics(NINE), *arrays),
                f"{separate / one:.2f}",
            ],
        )
        results[f"{lists} x {items}"] = group
    return results


def passes():
    """Measures sparse labels, in multiples of one maximum of all scores."""
    print_head(
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
        ids, scores = make_sparse_batch(lists, items)
        ids = (ids[:, None] + np.arange(targets, dtype="int32")) % items
        if k is None:
            # Distinct scores: no items tie by chance.
            scores = np.argsort(scores, axis=1).astype("float32")
        family = MeanReciprocalRank if k is None else HitRate
        metric, batch = family(k=k, sparse_labels=True), tensors(ids, scores)
        counts = make_count_cells(metric, ids, scores)
        time = measure_ms(make_update(metric, *batch))
        once = measure_ms(compile_call(lambda x: ops.max(x, axis=1), batch[1]))
        name = f"{format_shape(lists, items, k)}, {targets}"
        print_row(name, [f"{time:.2f}", f"{once:.2f}", f"{time / once:.1f}", *counts])
        results[name] = time / once
    return results


def catalogues(items=2**18, queries=512, block_size=4096):
    """Compares ranks counted from embeddings with the products alone."""
    rng = np.random.default_rng(0)

    def make_embeddings(number):
        return rng.normal(size=(number, 64)).astype("float32")

    users, table = tensors(make_embeddings(queries), make_embeddings(items))
    blocks = [
        table[first : first + block_size] for first in range(0, items, block_size)
    ]
    targets = rng.integers(0, items, size=(queries, 10)).astype("int32")

    def compute_product(users, block):
        return ops.matmul(users, ops.transpose(block))

    def merge_top_100(users, block, first, values, ids):
        """Returns the best 100 scores so far and the ids of their items."""
        block_values, columns = backend.top_k(compute_product(users, block), 100)
        values = ops.concatenate([values, block_values], axis=1)
        ids = ops.concatenate([ids, ops.cast(columns, "int32") + first], axis=1)
        values, indices = backend.top_k(values, 100)
        return values, backend.take(ids, indices)

    multiply, merge = compile_function(compute_product), compile_function(merge_top_100)

    def compute_products():
        for block in blocks:
            multiply(users, block)

    def stream_top_100():
        best = tensors(
            np.full((queries, 100), -np.inf, "float32"),
            np.full((queries, 100), -1, "int32"),
        )
        for i, block in enumerate(blocks):
            first = ops.convert_to_tensor(i * block_size, "int32")
            best = merge(users, block, first, *best)

    def make_counting(number):
        return lambda: keras_rank.catalogue.evaluate(
            targets[:, :number],
            users,
            table,
            ["ndcg@10", "recall@100", "mrr"],
            block_size=block_size,
            verbose=0,
        )

    bare = measure_ms(compute_products)
    print_head(
        "Ranks in a catalogue: times of the products of the same blocks",
        ["ms of products", "one target", "10 targets", "top 100", "top_k(100)"],
    )

    def compute_top_100():
        keras_rank.catalogue.top_k(users, table, 100, block_size=block_size)

    calls = {
        "one": make_counting(1),
        "ten": make_counting(10),
        "top 100": stream_top_100,
        "top_k(100)": compute_top_100,
    }
    results = {name: measure_ms(call) / bare for name, call in calls.items()}
    ratios = [f"{ratio:.2f}" for ratio in results.values()]
    print_row(f"{queries} x {items}", [f"{bare:.1f}", *ratios])
    return results


def from_file(items):
    """Measures a catalogue that is read from a file, in a separate process."""
    seconds, megabytes = json.loads(run_script("memory.py", "catalogue", str(items)))
    print_head(f"1024 queries among {items:,} items of a file", ["s", "MB"])
    print_row("", [f"{seconds:.0f}", f"{megabytes:.0f}"])
    return {"items": items, "seconds": seconds, "MB": megabytes}


def run_script(script, *arguments):
    """Returns the output of a script in the folder of this one."""
    path = str(pathlib.Path(__file__).with_name(script))
    call = [sys.executable, path, *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout


def many_targets():
    """Compares typical numbers of targets with one target per query."""
    rng = np.random.default_rng(0)

    def make_targets(items, numbers):
        ids = np.full((len(numbers), max(numbers)), -1, "int32")
        for list_ids, number in zip(ids, numbers, strict=True):
            list_ids[:number] = rng.choice(items, number, replace=False)
        return ids

    cases = {
        "as MS MARCO": (2**16, [1] * 7000),
        "as TREC": (2**18, [500] * 50),
        "as ratings": (2**13, rng.integers(30, 901, 6000).tolist()),
        "1,000 users, 1,000 each": (100_000, [1000] * 1000),
        "one of 1,000 has 1,000": (5000, [1000] + [1] * 999),
    }
    print_head(
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
        targets = make_targets(items, numbers)

        def make_evaluation(targets, queries=queries, table=table):
            return lambda: keras_rank.catalogue.evaluate(
                targets, queries, table, ["ndcg@10", "recall@100", "mrr"], verbose=0
            )

        first = time_call(make_evaluation(targets))
        times = [
            min(time_call(make_evaluation(ids)) for _ in range(3))
            for ids in (targets, targets[:, :1])
        ]
        ratio = times[0] / times[1]
        print_row(name, [f"{first:.1f}", f"{times[0]:.2f}", f"{ratio:.1f}x"])
        results[name] = {"seconds": times[0], "ratio": ratio}
    return results


def launches():
    """Counts the operations of an update on an accelerator, which may be absent."""
    if BACKEND == "numpy":
        return None
    import keras_rs

    labels, scores = make_batch(256, 1000)
    plain, tied = (labels, scores), (labels, np.round(scores, 1))
    average = {"shuffle_ties": "average"}
    peer = keras_rs.metrics
    print_head("One update as on an accelerator", ["ops", "waits"])
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
                make_sparse_batch(256, 100_000),
            ),
        ):
            results[name] = count_operations(metric, *tensors(*batch))[:2]
    # keras-rs has eight of the nine metrics: it lacks the hit rate.
    eight = [peer.NDCG(k=k) for k in (1, 5, 10, 20)]
    eight += [peer.MeanReciprocalRank(k=20), peer.MeanAveragePrecision(k=10)]
    eight += [peer.RecallAtK(k=10), peer.PrecisionAtK(k=10)]
    counts = [count_operations(metric, *tensors(*plain))[:2] for metric in eight]
    results["keras-rs, eight"] = np.sum(counts, axis=0).tolist()
    for name, counts in results.items():
        print_row(name, counts)
    return results


def busy(processes):
    """Measures updates on busy cores, which data loaders would use."""
    keras_rs = next(iter(peers.get_peers().values()))
    print_head(
        f"Beside {processes} busy processes: ms, and times of it before",
        ["ms", "slower", "keras-rs, ms", "slower"],
    )
    results = {}
    for lists, items in ((128, 100), (256, 1000), (64, 100_000)):
        labels, scores = make_batch(lists, items)
        ours = make_update(NDCG(k=10), *tensors(labels, scores))
        calls = ours, keras_rs(labels, scores, 10)
        quiet = [measure_ms(call) for call in calls]
        with keep_cores_busy(processes):
            loaded = [measure_ms(call) for call in calls]
        cells = []
        for before, now in zip(quiet, loaded, strict=True):
            cells += [f"{now:.2f}", f"{now / before:.1f}x"]
        print_row(f"{lists} x {items}", cells)
        results[f"{lists} x {items}"] = {"quiet": quiet, "busy": loaded}
    return results


@contextlib.contextmanager
def keep_cores_busy(processes):
    """Runs processes, each of which keeps a core busy."""
    call = [sys.executable, "-c", "while True: pass"]
    started_processes = [subprocess.Popen(call) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started_processes:
            process.kill()
            process.wait()


def first_epoch():
    """Measures the time that metrics add to the first epoch of `fit`.

    The epoch traces, compiles, and has four steps.
    """
    if BACKEND == "numpy":
        return None
    import keras_rs

    def make_four(library):
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
        "four": lambda: make_four(keras_rank.metrics),
        "group of four": lambda: [RankingMetrics(make_four(keras_rank.metrics))],
        "keras-rs, four": lambda: make_four(keras_rs.metrics),
    }

    # Compiled code is cached by shape. Each model has its own list size, so that it is
    # traced and compiled again.
    sizes = itertools.count(100)

    def run_epoch(make_metrics):
        items = next(sizes)
        labels, x = make_batch(4 * 256, items)
        inputs = keras.Input((items, 1))
        outputs = keras.layers.Reshape((items,))(keras.layers.Dense(1)(inputs))
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse", metrics=make_metrics())
        return time_call(
            lambda: model.fit(x[..., None], labels, batch_size=256, verbose=0)
        )

    rounds = [
        {name: run_epoch(make_metrics) for name, make_metrics in makers.items()}
        for _ in range(3)
    ]
    names = list(makers)[1:]
    added = [
        statistics.median(e[name] - e["without"] for e in rounds) for name in names
    ]
    print_head("What metrics add to the first epoch of fit", names)
    print_row("seconds", [f"{time:.2f}" for time in added])
    return dict(zip(names, added, strict=True))


def grouped_rows(rows=50_000, items=50):
    """Compares `GroupedEvaluation` with the prediction of its rows alone."""
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
    times = [(time_call(evaluate), time_call(predict)) for _ in range(4)][1:]
    ratio = statistics.median(ours / bare for ours, bare in times)
    print_head("Rows of items, evaluated in lists", ["of predict"])
    print_row(f"{rows} rows", [f"{ratio:.2f}"])
    return ratio


def fitting():
    """Compares an epoch of training with and without a metric."""
    if BACKEND == "numpy":
        return None
    lists, features = 4096, 50
    labels, _ = make_batch(lists, 100)
    x = np.random.default_rng(0).normal(size=(lists, 100, features)).astype("float32")
    inputs = keras.Input((100, features))
    hidden = inputs
    for _ in range(2):
        hidden = keras.layers.Dense(128, activation="relu")(hidden)
    outputs = keras.layers.Reshape((100,))(keras.layers.Dense(1)(hidden))

    def make_epoch(metrics):
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse", metrics=metrics)
        return lambda: model.fit(x, labels, batch_size=256, verbose=0)

    # The speed of the machine varies, so the models take turns. First epochs compile.
    epochs = make_epoch([]), make_epoch([NDCG(k=10)])
    times = [[time_call(epoch) for epoch in epochs] for _ in range(10)]
    plain, measured = 1000 * np.min(times, axis=0)
    print_head(
        "fit, 4096 lists of 100: the fastest of ten epochs",
        ["ms without", "with NDCG@10"],
    )
    added = 100 * (measured / plain - 1)
    print_row("", [f"{plain:.0f}", f"{added:+.1f}%"])
    return added


def memory():
    """Measures the peak memory of an update, in a separate process for each library."""
    print_head(
        "Peak memory beyond the inputs, over the size of one", ["ours", "keras-rs"]
    )
    results = {
        library: float(run_script("memory.py", library))
        for library in ("keras_rank", "keras_rs")
    }
    print_row("64 x 100000, 10", [f"{ratio:.2f}" for ratio in results.values()])
    return results


def measure_gpu():
    """Measures updates, results, catalogues and an epoch of training on a GPU."""
    measure_gpu_updates()
    measure_gpu_results()
    catalogues(items=1_000_000, queries=4096, block_size=2**16)
    fitting()


def measure_gpu_results():
    """Measures results, which the trainer of PyTorch computes at each step."""
    import keras_rs

    batch = tensors(*make_batch(256, 1000))
    print_head("Results on the GPU", ["us"])
    for name, metric in (
        ("NDCG@10", NDCG(k=10)),
        ("nine as a group", RankingMetrics(NINE)),
        ("keras-rs, NDCG@10", keras_rs.metrics.NDCG(k=10)),
    ):
        metric.update_state(*batch)
        print_row(name, [f"{1000.0 * measure_ms(metric.result):.0f}"])


def measure_gpu_updates():
    """Measures updates, and compares their bandwidth with the bandwidth of a copy."""
    libraries = peers.get_peers()
    print_head(
        "NDCG on the GPU, and times of others over ours",
        ["ms", "ops", "waits", "GB/s", "copy, GB/s", "tied, ms", *libraries],
    )
    for lists, items, k in [*SHAPES, (1024, 100_000, 10)]:
        labels, scores = make_batch(lists, items)
        time = measure_ndcg(labels, scores, k)
        tied = measure_ndcg(labels, np.round(scores, 1), k)
        copy = measure_ms(compile_call(lambda x: x + 1.0, *tensors(scores)))
        read, copied = labels.nbytes + scores.nbytes, 2 * scores.nbytes
        cells = [f"{time:.3f}", *make_count_cells(NDCG(k=k), labels, scores)]
        cells += [f"{read / time / 1e6:.0f}", f"{copied / copy / 1e6:.0f}"]
        cells += [f"{tied:.3f}"]
        for maker in libraries.values():
            call = maker(labels, scores, k)
            cells += ["-" if call is None else f"{measure_ms(call) / time:.1f}x"]
        print_row(format_shape(lists, items, k), cells)


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
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"\n== {BACKEND}: keras_rank {keras_rank.__version__}, {packages}; {machine}")
    if arguments.device == "gpu":
        measure_gpu()
        return
    setting = {"backend": BACKEND, "cores": os.cpu_count(), "versions": versions}
    results = {**setting, "dates": {}}
    if len(arguments.only) < len(sections) and arguments.output:
        # The file keeps the results of the other sections.
        with contextlib.suppress(FileNotFoundError):
            results = json.loads(arguments.output.read_text())
        if setting != {name: results[name] for name in setting}:
            parser.error("--only: the other sections were measured in another setting.")
    section_arguments = {"busy": [arguments.busy], "from_file": [arguments.items]}
    for name in arguments.only:
        results[name] = sections[name](*section_arguments.get(name, []))
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
