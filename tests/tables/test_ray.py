"""Results on Ray equal those of one machine, even if a worker dies.

One cluster serves all tests here, as each process imports Keras for seconds.
"""

import os
import pathlib
import runpy
import signal
import tempfile

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from tables import make_rows, raises

from keras_rank import catalogue, functional
from keras_rank.evaluation import evaluate
from keras_rank.utils import merge_state

ray = pytest.importorskip("ray")

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    # Ray forks this process, in which JAX may have threads.
    pytest.mark.filterwarnings("ignore:os.fork"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Starts a cluster of two workers, which the scripts use instead of their own."""
    # The folder has a short path, as the paths of sockets in it are limited.
    with (
        tempfile.TemporaryDirectory(prefix="ray") as session,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_TMPDIR", session)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False)
        shutdown = ray.shutdown
        patch.setattr(ray, "init", lambda *args, **kwargs: None)
        patch.setattr(ray, "shutdown", lambda: None)
        yield
        shutdown()


@pytest.fixture
def kill_first_worker(tmp_path):
    """Returns a decorator of functions whose worker dies before the first result.

    The worker has computed the result by then, but nobody has received it.
    """
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    def wrap(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            try:
                (deaths / "first").touch(exist_ok=False)
            except FileExistsError:
                return result
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    yield wrap
    assert list(deaths.iterdir()), "no worker has died"


@pytest.fixture
def example(monkeypatch, capsys):
    """Returns a loader of scripts: their names, and a function that calls `main`."""

    def load(script):
        names = runpy.run_path(str(ROOT / "examples" / script))
        main = names["main"]

        def printed(*arguments, **replaced):
            monkeypatch.setattr("sys.argv", [script, *map(str, arguments)])
            for name, value in replaced.items():
                monkeypatch.setitem(main.__globals__, name, value)
            main()
            return capsys.readouterr().out

        return names, printed

    return load


def test_distributed_evaluation(tmp_path, example, kill_first_worker):
    """The merged state equals that of one machine to the last bit."""
    script, printed = example("distributed_evaluation.py")
    shards, state = tmp_path / "shards", tmp_path / "state.npz"
    shards.mkdir()
    script["generate"](shards, shards=3)
    single = script["make_metrics"]()
    for shard in sorted(shards.iterdir()):
        for batch in script["batches"](shard):
            single.update_state(*batch)
    table = printed(shards, "--state", state, count=kill_first_worker(script["count"]))
    merged = merge_state(script["make_metrics"](), [np.load(state)])
    seen = [(each.variables[-1] + 0).tolist() for each in (merged, single)]
    assert seen[0] == seen[1]
    found, expected = (
        {k: float(v) for k, v in x.result().items()} for x in (merged, single)
    )
    assert found == expected
    for name, value in expected.items():
        assert f"{name:10}{value:.6f}" in table


def test_a_catalogue_in_parts(tmp_path, example, kill_first_worker):
    script, printed = example("catalogue_on_ray.py")
    parts = tmp_path / "parts"
    parts.mkdir()
    script["generate"](parts, items=50_000, parts=2)
    paths = sorted(parts.iterdir())
    targets, queries = script["make_queries"](paths)
    items = np.concatenate([*map(np.load, paths)])
    order = catalogue.rank(targets, queries, items)
    values = keras.ops.convert_to_numpy(functional.reciprocal_rank(order))

    def map_on_ray(function, parts):
        return script["map_on_ray"](kill_first_worker(function), parts)

    table = printed(parts, map_on_ray=map_on_ray)
    assert f"mrr         {values.mean():.6f} ±" in table


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray's own warnings
def test_a_dataset(tmp_path, kill_first_worker, monkeypatch):
    pytest.importorskip("ray.data")
    from keras_rank.evaluation.lists import per_list_values

    rows, shards = make_rows(lists=200, digits=0), tmp_path / "rows"
    # Some rows are padding, and some lists only have padding.
    query, item, label = (rows[i].to_numpy() for i in range(3))
    is_padding = (item % 5 == 0) | (query % 50 == 1)
    label = np.where(item % 7 == 0, np.nan, np.where(is_padding, -1.0, label))
    rows = rows.set_column(2, "label", pa.array(label, from_pandas=True))
    shards.mkdir()
    for shard, part in enumerate((rows[:700], rows[700:1400], rows[1400:])):
        parquet.write_table(part, shards / f"{shard}.parquet")
    context = ray.data.DataContext.get_current()
    context.default_hash_shuffle_parallelism = 3
    context.enable_progress_bars = False
    arguments = {"metrics": ["ndcg@5", "map"], "keep": ["market", "user"]}
    arguments |= {"item": "item_id", "duplicates": "count", "weight": "item_weight"}
    expected = evaluate(rows, **arguments)
    monkeypatch.setattr(
        per_list_values,
        "_evaluate_block",
        kill_first_worker(per_list_values._evaluate_block),
    )
    found = evaluate(ray.data.read_parquet(shards), **arguments)
    assert found.table.schema == expected.table.schema
    # The last bit depends on the other lists of the block on NumPy 2.0.
    pd.testing.assert_frame_equal(
        found.table.to_pandas(), expected.table.to_pandas(), rtol=1e-6
    )
    assert str(found) == str(expected)
    assert f"{np.sum(~(label >= 0.0))} of {len(label):,} rows, left out" in str(found)
    arguments["unjudged"] = "irrelevant"
    found = evaluate(ray.data.from_arrow(rows), **arguments)
    assert str(found) == str(evaluate(rows, **arguments)) != str(expected)
    with raises('Did you mean query="query_id" or query="user"?'):
        evaluate(ray.data.read_parquet(shards), ["mrr"], query="query")
