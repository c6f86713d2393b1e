"""Time and memory of an evaluation of shuffled rows, from a Parquet file to a summary.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --lists 50000 --peers
    python benchmarks/evaluation.py --lists 3000000 --memory-limit 2GB --folder disk/

`--output` adds the results to a file that may have those of other numbers of lists.

Each library runs in its own process, so that its peak memory is measured. The other
libraries hold all rows in memory. Their times include the conversion of the rows.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("KERAS_BACKEND", "numpy")

import numpy as np
import pyarrow as pa
from pyarrow import parquet

METRICS = ["ndcg@10", "map", "mrr"]
# Number of lists that are written at a time.
_LISTS_PER_WRITE = 100_000


def generate(path, lists):
    """Writes lists of 6 to 58 items, with rows of all queries in random order."""
    rng = np.random.default_rng(0)
    types = {"query_id": "int64", "item_id": "int64", "label": "int32"}
    schema = pa.schema([*types.items(), ("score", "float32")])
    rows = 0
    with parquet.ParquetWriter(path, schema) as writer:
        # Each query has rows in both halves of the file.
        for part in range(2):
            for first in range(0, lists, _LISTS_PER_WRITE):
                queries = np.arange(first, min(first + _LISTS_PER_WRITE, lists))
                query = np.repeat(queries, rng.integers(3, 30, len(queries)))
                label = rng.choice(5, len(query), p=[0.6, 0.2, 0.1, 0.06, 0.04])
                score = label + 2.0 * rng.normal(size=len(query))
                item = 10**6 * part + np.arange(len(query))
                order = rng.permutation(len(query))
                columns = query[order], item, label[order], score[order]
                table = pa.table(list(columns), names=schema.names)
                writer.write_table(table.cast(schema))
                rows += len(query)
    return rows


def ours(path, memory_limit):
    from keras_rank.evaluation import evaluate

    start = time.perf_counter()
    summary = evaluate(path, METRICS, memory_limit=memory_limit).summary()
    return time.perf_counter() - start, summary["value"]


def pytrec_eval(path, memory_limit):
    import pytrec_eval

    start = time.perf_counter()
    qrels, run = _read_dicts(path)
    measures = {"ndcg_cut.10", "map", "recip_rank"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, measures)
    values_by_query = evaluator.evaluate(run)
    names = ("ndcg_cut_10", "map", "recip_rank")
    means = [
        np.mean([values[name] for values in values_by_query.values()]) for name in names
    ]
    return time.perf_counter() - start, means


def ranx(path, memory_limit):
    from ranx import Qrels, Run, evaluate

    start = time.perf_counter()
    qrels, run = _read_dicts(path)
    means = evaluate(Qrels(qrels), Run(run), METRICS, make_comparable=False)
    return time.perf_counter() - start, [means[name] for name in METRICS]


def _read_dicts(path):
    qrels, run = {}, {}
    table = parquet.read_table(path)
    columns = [table[name].to_pylist() for name in table.column_names]
    for query, item, label, score in zip(*columns, strict=True):
        qrels.setdefault(str(query), {})[str(item)] = label
        run.setdefault(str(query), {})[str(item)] = score
    return qrels, run


def read_peak_memory():
    """Returns the peak memory of this process, in GB."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024**2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=int, default=50_000)
    parser.add_argument("--memory-limit")
    parser.add_argument("--folder", help="where the file is written, and read")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        name, path = arguments.only
        before = read_peak_memory()
        seconds, values = globals()[name](path, arguments.memory_limit)
        print(json.dumps([seconds, values, before, read_peak_memory()]))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = os.path.join(folder, "rows.parquet")
        rows = generate(path, arguments.lists)
        measurement = {"date": str(datetime.date.today()), "rows": rows}
        print(f"{rows:,} rows of {arguments.lists:,} lists")
        print(f"{'':14}{'seconds':>10}{'rows/s':>12}{'GB before':>12}{'GB peak':>10}")
        for name in ["ours", "pytrec_eval", "ranx"] if arguments.peers else ["ours"]:
            limit = arguments.memory_limit
            call = [sys.executable, __file__, "--only", name, path]
            call += ["--memory-limit", limit] if limit else []
            process = subprocess.run(call, capture_output=True, text=True, check=True)
            seconds, values, before, after = json.loads(process.stdout)
            measurement[name] = {"seconds": seconds, "GB": after}
            print(
                f"{name:14}{seconds:10.2f}{rows / seconds:12,.0f}{before:12.2f}"
                f"{after:10.2f}   " + " ".join(f"{value:.6f}" for value in values)
            )
    if arguments.output:
        output = arguments.output
        results = json.loads(output.read_text()) if output.exists() else {}
        results[str(arguments.lists)] = measurement
        output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
