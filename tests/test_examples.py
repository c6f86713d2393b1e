"""The examples run, from the command line, as a reader would run them."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "agg"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.trains
def test_visual_search(backend, tmp_path):
    picture = tmp_path / "picture.png"
    arguments = ["--backend", backend, "--epochs", 2, "--output", picture]
    printed = run("visual_search.py", *arguments)
    rows = [line.split() for line in printed.splitlines() if line.startswith("NDCG@")]
    assert [row[0] for row in rows] == ["NDCG@5", "NDCG@10"]
    for _, random, before, after in rows:
        assert float(random) < float(before) < float(after)
    assert picture.stat().st_size > 10_000
