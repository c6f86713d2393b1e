"""Evaluation on Ray gives the table of one machine, also where a worker dies."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from pyarrow import parquet
from tables import rows_of
from test_examples import processes_below

from keras_rank.evaluation import Evaluation, evaluate

SCRIPT = pathlib.Path(__file__).parent / "evaluated_on_ray.py"

pytestmark = pytest.mark.slow


def kill_a_worker(evaluation, output):
    """Kills a worker that evaluates lists, which takes it the time to import Keras."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and evaluation.poll() is None:
        for worker, command in processes_below(evaluation.pid):
            if command.startswith("ray::") and "MapBatches" in command:
                os.kill(worker, signal.SIGKILL)
                return
        time.sleep(0.1)
    pytest.fail(f"no worker was met in a task: {output.read_text()}")


def test_a_dataset_whose_worker_is_killed(backend, tmp_path):
    if backend != "numpy":
        pytest.skip("the workers use NumPy, whatever the backend of the tests")
    if not pathlib.Path("/proc/self/stat").exists():
        pytest.skip("the workers are found in /proc, which only Linux has")
    evaluated_on_ray = pytest.importorskip("evaluated_on_ray", exc_type=ImportError)
    rows, output = rows_of(lists=200, digits=0), tmp_path / "output"
    shards, lists = tmp_path / "rows", tmp_path / "lists.parquet"
    shards.mkdir()
    for shard in range(3):
        part = rows.slice(shard * 700, 700 if shard < 2 else None)
        parquet.write_table(part, shards / f"{shard}.parquet")
    # Short, as the paths of sockets are below.
    with tempfile.TemporaryDirectory(prefix="ray") as session, output.open("w") as file:
        evaluation = subprocess.Popen(
            [sys.executable, SCRIPT, shards, lists],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(SCRIPT.parents[1]),
                "RAY_TMPDIR": session,
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
            },
        )
        try:
            kill_a_worker(evaluation, output)
            assert evaluation.wait(300) == 0, output.read_text()
        finally:
            evaluation.terminate()
            evaluation.wait(10)
    expected = evaluate(rows, evaluated_on_ray.METRICS, **evaluated_on_ray.ARGUMENTS)
    found = Evaluation.read(lists)
    assert found.table.equals(expected.table)
    assert str(found) == str(expected)
