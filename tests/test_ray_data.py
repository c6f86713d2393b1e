"""Evaluation on Ray gives the table of one machine, also where a worker dies."""

import pathlib

import pytest
from pyarrow import parquet
from ray_workers import run_and_kill_a_worker, skip_unless_workers_can_be_killed
from tables import rows_of

from keras_rank.evaluation import Evaluation, evaluate

SCRIPT = pathlib.Path(__file__).parent / "evaluated_on_ray.py"

pytestmark = pytest.mark.slow


def test_a_dataset_whose_worker_is_killed(backend, tmp_path):
    skip_unless_workers_can_be_killed(backend)
    evaluated_on_ray = pytest.importorskip("evaluated_on_ray", exc_type=ImportError)
    rows = rows_of(lists=200, digits=0)
    shards, lists = tmp_path / "rows", tmp_path / "lists.parquet"
    shards.mkdir()
    for shard in range(3):
        part = rows.slice(shard * 700, 700 if shard < 2 else None)
        parquet.write_table(part, shards / f"{shard}.parquet")
    # In a task, which takes it the time to import Keras.
    run_and_kill_a_worker(SCRIPT, [shards, lists], task="MapBatches")
    expected = evaluate(rows, evaluated_on_ray.METRICS, **evaluated_on_ray.ARGUMENTS)
    found = Evaluation.read(lists)
    assert found.table.equals(expected.table)
    assert str(found) == str(expected)
