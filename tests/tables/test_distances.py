"""Tests of scores that are distances, where lower is better."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import keras_rank_command
from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.evaluation.command import run as run_command

METRICS = ["ndcg@3", "mrr", "map"]


@pytest.fixture
def rows(rng):
    """Returns rows with tied scores, missing scores and infinite scores."""
    number = 200
    scores = rng.integers(-3, 4, size=number).astype("float64")
    scores[rng.random(number) < 0.1] = math.nan
    scores[rng.random(number) < 0.1] = -math.inf
    return {
        "query_id": np.repeat(np.arange(40), 5),
        "item_id": np.tile(np.arange(5), 40),
        "label": rng.integers(0, 3, size=number),
        "score": scores,
    }


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint8"])
@pytest.mark.parametrize("item", [None, "item_id"])
def test_tables_have_the_values_of_negative_scores(rows, item, dtype):
    rows["score"] = np.nan_to_num(rows["score"], neginf=-9.0)
    if dtype == "uint8":
        rows["score"] = rows["score"] + 9
    expected = evaluate({**rows, "score": -rows["score"]}, METRICS, item=item)
    rows["score"] = rows["score"].astype(dtype)
    actual = evaluate(rows, METRICS, item=item, lower_is_better=True)
    assert actual.per_list.equals(expected.per_list)


def test_infinite_distances_are_not_retrieved(rows):
    expected = evaluate(rows, METRICS)
    rows["score"] = -rows["score"]
    actual = evaluate(rows, METRICS, lower_is_better=True)
    assert actual.per_list.equals(expected.per_list)


@pytest.mark.parametrize("rules", ["trec_eval", "trec_eval-9", "keras"])
@pytest.mark.parametrize("duplicates", ["error", "max"])
@pytest.mark.parametrize("memory_limit", [None, "500MB"])
def test_runs_have_the_values_of_negative_scores(rows, rules, duplicates, memory_limit):
    """All readers of runs negate scores: of dicts, tables and TREC files."""
    frame = pd.DataFrame(rows).replace(-math.inf, -9.0).dropna()
    frame = frame.astype({"query_id": str, "item_id": str})
    qrels, run, distances = {}, {}, {}
    for q, i, label, score in frame.itertuples(index=False):
        qrels.setdefault(q, {})[i] = label
        run.setdefault(q, {})[i] = score
        distances.setdefault(q, {})[i] = -score
    options = {"rules": rules, "duplicates": duplicates}
    options |= {"memory_limit": memory_limit, "ignore_identical_ids": True}
    expected = evaluate_run(qrels, run, METRICS, **options)
    options |= {"lower_is_better": True}
    table = frame.assign(score=-frame["score"])
    for each in (distances, table):
        actual = evaluate_run(qrels, each, METRICS, **options)
        assert actual.per_list.equals(expected.per_list)


def test_the_lowest_of_duplicates_counts():
    run = pd.DataFrame({"query_id": ["q"] * 3, "item_id": ["a", "a", "b"]})
    run["score"] = [3.0, 1.0, 2.0]
    options = {"duplicates": "max", "lower_is_better": True}
    assert evaluate_run({"q": {"a": 1}}, run, ["mrr"], **options)["mrr"] == 1.0


def test_kept_items_have_the_scores_of_the_user(rows):
    rows["score"] = -rows["score"]
    options = {"item": "item_id", "keep_items": 3, "lower_is_better": True}
    evaluation = evaluate(rows, METRICS, **options)
    kept = evaluation.ranking(0)
    given = dict(zip(rows["item_id"][:5], rows["score"][:5], strict=True))
    for row in kept:
        if row["rank"] is not None:
            assert row["score"] == given[row["item"]]
    ranked = [row["score"] for row in kept if row["rank"] is not None]
    assert ranked == sorted(ranked)


def test_runs_without_scores_have_no_distances():
    message = "`lower_is_better` should be False for a run without scores"
    for run in ({"q": ["a", "b"]}, np.array([[1, 2, 3]])):
        qrels = {"q": ["a"]} if isinstance(run, dict) else np.array([[1, 3, 4]])
        with pytest.raises(ValueError, match=message):
            evaluate_run(qrels, run, ["mrr"], lower_is_better=True)
    for wrong in (None, 1, "yes"):
        with pytest.raises(ValueError, match="`lower_is_better` should be True or F"):
            evaluate(
                {"query_id": [1], "label": [1], "score": [1]},
                ["mrr"],
                lower_is_better=wrong,
            )


def test_the_command_takes_distances(rows, tmp_path, capsys):
    rows["score"] = np.nan_to_num(rows["score"], neginf=-9.0)
    path = tmp_path / "rows.parquet"
    pd.DataFrame(rows).to_parquet(path)
    arguments = ["evaluate", str(path), "-m", *METRICS, "--lower-is-better"]
    parsed = keras_rank_command.parse_arguments([*arguments, "-o", "json"])
    assert run_command(parsed) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    expected = evaluate({**rows, "score": -rows["score"]}, METRICS)
    assert [row["value"] for row in summary] == pytest.approx([*expected.values()])


def test_the_page_says_that_scores_are_distances(rows, tmp_path):
    pytest.importorskip("matplotlib")
    fact = "distances: lower is better"
    for lower_is_better in (True, False):
        found = evaluate(rows, METRICS, lower_is_better=lower_is_better)
        found.report(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert (fact in page) == lower_is_better
