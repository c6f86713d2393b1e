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


@pytest.mark.trains
def test_sequential_recommendation(backend):
    arguments = ["--backend", backend, "--epochs", 4, "--users", 600]
    printed = run("sequential_recommendation.py", *arguments)
    table = printed[printed.index("held-out items") :].splitlines()[1:]
    rows = {name: (float(a), float(b)) for name, a, b in map(str.split, table)}
    assert list(rows) == [
        f"{name}@{k}" for name in ("hit_rate", "ndcg", "mrr") for k in (5, 10)
    ]
    assert all(model > 1.5 * popularity for popularity, model in rows.values())


def test_interactions_from_a_file(backend, tmp_path, rng):
    """In the columns of MovieLens, and in any order of time."""
    if backend != "torch":
        pytest.skip("reading a file is the same on all: tested on the quickest")
    path = tmp_path / "ratings.csv"
    lines = [
        f"{user},{item},4.0,{time}"
        for user in range(40)
        for time, item in enumerate(rng.permutation(30)[:8])
    ]
    rng.shuffle(lines)
    path.write_text("\n".join(["userId,movieId,rating,timestamp", *lines]))
    arguments = ["--backend", backend, "--epochs", 1, "--interactions", path]
    assert "ndcg@10" in run("sequential_recommendation.py", *arguments)


@pytest.mark.trains
@pytest.mark.parametrize("by_qid", [False, True])
def test_learning_to_rank(backend, tmp_path, by_qid, rng):
    if by_qid and backend != "torch":
        pytest.skip("reading a file is the same on all: tested on the quickest")
    sizes = rng.integers(3, 9, size=40)
    lines = []
    for query, size in enumerate(sizes):
        for _ in range(size):
            value, noise = rng.random(2)
            qid = f"qid:{query} " if by_qid else ""
            lines.append(f"{int(4 * value)} {qid}1:{value:.3f} 3:{noise:.3f}")
    (tmp_path / "train").write_text("\n".join(lines))
    (tmp_path / "groups").write_text("\n".join(map(str, sizes)))
    arguments = ["--backend", backend, "--epochs", 2, "--train", tmp_path / "train"]
    if not by_qid:
        arguments += ["--groups", tmp_path / "groups"]
    printed = run("learning_to_rank.py", *arguments)
    table = printed[printed.index("held-out queries") :].splitlines()[1:]
    rows = {row.split()[0]: list(map(float, row.split()[1:])) for row in table}
    assert list(rows) == ["ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map", "mrr"]
    random, feature, _ = rows["ndcg@10"]
    assert feature == 1.0
    assert random < feature
