"""The scripts in examples/, run with the arguments that a reader would pass."""

import importlib.util
import pathlib
import re
import runpy
import subprocess
import sys

import matplotlib
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.programs]


@pytest.fixture
def run(backend, monkeypatch, capsys):
    """Returns a function that runs a script in this process and returns its output.

    Training takes long, so each example that trains runs on one backend.
    """

    def run(script, *arguments, on=None):
        if on not in (None, backend):
            pytest.skip(f"this example takes long and runs on {on} only")
        arguments = [*arguments, *(["--backend", backend] if on else [])]
        monkeypatch.setattr("sys.argv", [script, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out

    return run


# Examples that train have an option for the backend. Other examples use any backend.
LINES_WITH_OPTION = [
    'default=os.environ.get("KERAS_BACKEND", "jax"),\n',
    'choices=["jax", "tensorflow", "torch"],\n)\n',
    'os.environ["KERAS_BACKEND"] = arguments.backend\n\nimport keras  # noqa: E402\n',
]
LINES_WITHOUT_OPTION = [
    'with Keras.\nos.environ.setdefault("KERAS_BACKEND", "numpy")\n\nimport'
]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_examples_select_the_backend_by_equal_lines(path):
    """A reader of one example need not read these lines again in another example."""
    text = path.read_text()
    lines = LINES_WITH_OPTION if "fit(" in text else LINES_WITHOUT_OPTION
    assert all(text.count(line) == 1 for line in lines)


def test_visual_search(tmp_path, run):
    matplotlib.use("agg")
    picture = tmp_path / "picture.png"
    printed = run("visual_search.py", "--epochs", 2, "--output", picture, on="jax")
    rows = [line.split() for line in printed.splitlines() if line.startswith("NDCG@")]
    assert [row[0] for row in rows] == ["NDCG@5", "NDCG@10"]
    for _, random, before, after in rows:
        assert float(random) < float(before) < float(after)
    assert picture.stat().st_size > 10_000


def test_semantic_search(tmp_path, run):
    """The printed values equal those of trec_eval for the run that is written."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    example = runpy.run_path(str(EXAMPLES / "semantic_search.py"))
    example["generate"](tmp_path, documents=300, queries=12, topics=8)
    printed = run("semantic_search.py", tmp_path, "--run", tmp_path / "run.trec")
    printed_values = dict(line.split() for line in printed.splitlines()[:4])
    qrels, rows = {}, {}
    for line in (tmp_path / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, item, grade = line.split("\t")
        qrels.setdefault(query, {})[item] = int(grade)
    for line in (tmp_path / "run.trec").read_text().splitlines():
        query, _, item, _, score, _ = line.split()
        rows.setdefault(query, {})[item] = float(score)
    measures = {"nDCG@10": "ndcg_cut_10", "MAP@100": "map_cut_100"}
    measures["Recall@100"] = "recall_100"
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, set(measures.values()))
    values = evaluator.evaluate(rows).values()
    for name, measure in measures.items():
        expected = sum(query_values[measure] for query_values in values) / len(values)
        assert float(printed_values[name]) == pytest.approx(expected, abs=5.1e-5)
    assert 0.2 < float(printed_values["nDCG@10"]) < 1.0


def test_sequential_recommendation(run):
    arguments = ["--epochs", 4, "--users", 600]
    printed = run("sequential_recommendation.py", *arguments, on="tensorflow")
    table = printed[printed.index("held-out items") :].splitlines()[1:]
    rows = {name: (float(a), float(b)) for name, a, b in map(str.split, table)}
    assert list(rows) == [
        f"{name}_at_{k}" for name in ("hit_rate", "ndcg", "mrr") for k in (5, 10)
    ]
    assert all(model > 1.5 * popularity for popularity, model in rows.values())


def test_pointwise_ranking(run):
    arguments = ["--epochs", 3, "--queries", 100]
    printed = run("pointwise_ranking.py", *arguments, on="torch")
    table = printed[printed.index("epoch  loss") :].splitlines()[1:]
    rows = [list(map(float, row.replace("±", "").split())) for row in table]
    assert [row[0] for row in rows] == [1, 2, 3]
    (_, _, first, _), *_, (_, _, last, error) = rows
    assert first < last < 1.0
    assert 0.0 < error < 0.1


def test_pointwise_ranking_of_files(tmp_path, rng, run):
    """Rows are grouped by the queries of the file, and need not be adjacent."""
    for name, queries in (("train", 30), ("validation", 1)):
        lines = [
            f"{int(3 * value)} qid:{row % queries} 1:{value:.3f}"
            for row, value in enumerate(rng.random(10 * queries))
        ]
        (tmp_path / name).write_text("\n".join(lines))
    arguments = ["--train", tmp_path / "train", "--validation", tmp_path / "validation"]
    printed = run("pointwise_ranking.py", "--epochs", 1, *arguments, on="torch")
    # A single list has no standard error.
    assert printed.splitlines()[-1].endswith("± nan")


def test_two_tower(run):
    arguments = ["--epochs", 3, "--users", 800, "--items", 3000]
    printed = run("two_tower.py", *arguments, on="jax")
    assert "val_ndcg_at_10" in printed
    table = printed[printed.index("what users took last") :].splitlines()
    assert table[0].split()[-3:] == ["ndcg@10", "recall@100", "mrr"]
    cells = [row.replace("±", "").split() for row in table[1:]]
    assert [row[0] for row in cells] == ["random", "popularity", "model"]
    for random, popularity, model in zip(*(row[1::2] for row in cells), strict=True):
        assert float(random) < float(popularity) < float(model)
    assert all(0 < float(error) < 0.05 for row in cells for error in row[2::2])


def test_interactions_from_a_file(tmp_path, rng, run):
    """The file has the columns of MovieLens, and its rows are in any order."""
    path = tmp_path / "ratings.csv"
    lines = [
        f"{user},{item},4.0,{time}"
        for user in range(40)
        for time, item in enumerate(rng.permutation(30)[:8])
    ]
    rng.shuffle(lines)
    path.write_text("\n".join(["userId,movieId,rating,timestamp", *lines]))
    arguments = ["--epochs", 1, "--interactions", path]
    printed = run("sequential_recommendation.py", *arguments, on="torch")
    assert "ndcg_at_10" in printed


@pytest.mark.parametrize("by_qid", [False, True])
def test_learning_to_rank(tmp_path, by_qid, rng, run):
    sizes = rng.integers(3, 9, size=40)
    lines = []
    for query, size in enumerate(sizes):
        for _ in range(size):
            value, noise = rng.random(2)
            qid = f"qid:{query} " if by_qid else ""
            lines.append(f"{int(4 * value)} {qid}1:{value:.3f} 3:{noise:.3f}")
    (tmp_path / "train").write_text("\n".join(lines))
    (tmp_path / "groups").write_text("\n".join(map(str, sizes)))
    arguments = ["--epochs", 2, "--folds", 2, "--seeds", 1]
    arguments += ["--train", tmp_path / "train"]
    arguments += [] if by_qid else ["--groups", tmp_path / "groups"]
    printed = run("learning_to_rank.py", *arguments, on="torch")
    table, difference = printed.split("held-out queries")[1].split("\n\n")
    cells = [row.replace("±", "").split() for row in table.splitlines()[1:]]
    rows = {row[0]: list(map(float, row[1::2])) for row in cells}
    assert list(rows) == ["ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map", "mrr"]
    random, feature, model = rows["ndcg@10"]
    assert random < feature
    assert feature == 1.0
    numbers = map(float, re.findall(r"(-?\d\.\d{4})", difference))
    mean_difference, error, low, high = numbers
    assert mean_difference == pytest.approx(model - feature, abs=1e-4)
    assert low < mean_difference < high
    assert high - low == pytest.approx(2 * 1.96 * error, abs=4e-4)


def test_evaluate_on_spark(backend):
    if backend != "numpy":
        pytest.skip("the script does not depend on the backend")
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark is not installed")
    command = [sys.executable, EXAMPLES / "evaluate_on_spark.py"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    names = [row.split()[0] for row in process.stdout.splitlines()[:3]]
    assert names == ["metric", "ndcg@10", "mrr"]
