"""Rows of tables without a label, which are padding as in `fit`, and their notes."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from commands import run_command
from tables import make_rows as labeled_rows
from tables import raises, write

import keras_rank
from keras_rank.evaluation import Evaluation, compare, evaluate, evaluate_run
from keras_rank.utils import pad_lists

NAN = float("nan")
NAMES = ["ndcg@5", "ndcg", "map", "mrr@3", "recall@3", "precision@4", "bpref", "arp"]
NAMES += ["hit_rate@1", "pairwise_accuracy", "rbp", "err", "f1@3", "fall_out@3"]
COLUMNS = ["query_id", "item_id", "label", "score", "weight", "market"]


def make_rows(missing):
    """Returns sorted rows, some without a label. The third list has no labels."""
    table = labeled_rows(lists=40, digits=6).sort_by("query_id")
    rows = {name: table[name].to_numpy() for name in COLUMNS}
    is_missing = np.random.default_rng(0).random(len(table)) < 0.3
    is_missing |= rows["query_id"] == 2
    return {**rows, "label": np.where(is_missing, missing, rows["label"])}


def to_table_with_nulls(rows):
    """Converts rows to a table with integers as labels, and null for NaN."""
    label = pa.array(rows["label"], from_pandas=True).cast(pa.int16())
    return pa.table({**rows, "label": label})


def evaluate_by_both_rules(rows, names):
    return [evaluate(rows, names, unjudged=x) for x in ("drop", "irrelevant")]


def count_unlabeled(rows):
    return int(np.sum(~(rows["label"] >= 0.0)))


def compute_by_metrics(rows, names, weight=None):
    """Returns the values of metrics for padded lists of the rows, as in `fit`."""
    group = keras_rank.metrics.RankingMetrics(names)
    lists = {x: pad_lists(rows[x], group_ids=rows["query_id"]) for x in COLUMNS[2:5]}
    weights = None if weight is None else lists["weight"]
    group.update_state(lists["label"], lists["score"], weights)
    return [float(x) for x in group.result().values()]


@pytest.mark.filterwarnings("ignore:Labels below 0 are padding|`sample_weight` has")
@pytest.mark.parametrize("missing", [-1.0, -0.5, NAN])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_values_equal_those_of_fit(missing, weight):
    rows = make_rows(missing)
    expected = compute_by_metrics(rows, NAMES, weight)
    for table in (rows, pd.DataFrame(rows), pa.table(rows)):
        found = evaluate(table, NAMES, weight=weight).to_dict()
        np.testing.assert_allclose([*found.values()], expected, rtol=1e-6)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_values_with_nulls_equal_those_of_fit(tmp_path, monkeypatch, suffix):
    """Null labels give the values of `fit`, in memory, in files and in small blocks."""
    rows = make_rows(NAN)
    expected, table = compute_by_metrics(rows, NAMES), to_table_with_nulls(rows)
    assert table["label"].null_count == count_unlabeled(rows) > 0
    # One query has rows at the end of one file and at the start of the other.
    half = 1 + np.flatnonzero(np.diff(rows["query_id"]) == 0)[100]
    for i, part in enumerate((table.slice(0, half), table.slice(half))):
        write(part, tmp_path / f"{i}.{suffix}")
    for source in (table, f"{tmp_path}/*.{suffix}"):
        found = evaluate(source, NAMES).to_dict()
        np.testing.assert_allclose([*found.values()], expected, rtol=1e-6)
    whole = evaluate(table, NAMES, item="item_id", keep_items=3)
    monkeypatch.setattr("keras_rank.reading.rows.ROWS_AT_A_TIME", 5)
    parts = evaluate(table, NAMES, item="item_id", keep_items=3)
    assert parts.table.equals(whole.table)
    assert str(parts) == str(whole)


def test_padding_changes_no_bit():
    """Padding changes no bit, whatever its scores, items, weights and positions are."""
    rows = pd.DataFrame(make_rows(-1.0))
    is_item = rows["label"] >= 0.0
    odd = {"item_id": 7, "score": np.inf, "weight": NAN, "market": "nowhere"}
    padding = rows[~is_item].assign(**odd)
    padded = pd.concat([rows[is_item], padding, rows[~is_item]])
    padded = padded.sample(frac=1.0, random_state=0)
    arguments = {"item": "item_id", "weight": "weight", "keep": "market"}
    expected = evaluate(rows[is_item], NAMES, **arguments)
    found = evaluate(padded, NAMES, **arguments)
    queries = [each.per_list["query_id"] for each in (found, expected)]
    has_items = pa.compute.is_in(queries[0], queries[1])
    assert found.per_list.filter(has_items).equals(expected.per_list)
    assert found.to_dict() == expected.to_dict()


def test_a_list_of_padding_is_left_out():
    rows = {"query_id": [1, 1, 2, 2, 3], "label": [0, 1, -1, None, -2]}
    found = evaluate({**rows, "score": [3, 2, 1, 9, NAN]}, ["mrr@2", "arp"])
    assert found.per_list["mrr@2"].to_pylist() == [0.5, None, None]
    assert found.to_dict() == {"mrr@2": 0.5, "arp": 2.0}
    assert found.summary()["lists"] == [1, 1]
    left_out = "lists without a label of 0 or more are left out of the means (2 of 3)."
    assert found.warnings == [f"Warning: {left_out}"]
    assert max(x["lists"] for x in found.health() if x["check"] != "judged@2") == 0


def test_padding_next_to_labels_of_0():
    """A padding row is not an irrelevant item, so it does not change fall-out."""
    rows = {"query_id": ["1", "1"], "item_id": ["a", "b"], "label": [0, -1]}
    rows["score"] = [1, 2]
    for found in (
        evaluate(rows, ["fall_out@1"]),
        evaluate_run(rows, rows, ["fall_out@1"], unjudged="drop"),
    ):
        assert found["fall_out@1"] == 1.0


def test_a_table_without_any_label_has_no_value(tmp_path):
    rows = {"query_id": [1, 1, 2], "label": [None, NAN, -1], "score": [3, 2, 1]}
    found = evaluate(rows, ["mrr", "ndcg@2"])
    assert np.isnan(list(found.to_dict().values())).all()
    assert found.summary()["lists"] == [0, 0]
    assert "labels: 3 of 3 rows, left out as padding" in found.summary().notes[0]
    assert "left out of the means (2 of 2)" in str(found)
    found.write(tmp_path / "lists.parquet")
    assert str(Evaluation.read(tmp_path / "lists.parquet")) == str(found)


RULE_NOTES = {
    None: "left out as padding (unjudged=drop).",
    "drop": "left out as padding (unjudged=drop).",
    "irrelevant": "counted as irrelevant (unjudged=irrelevant).",
}


@pytest.mark.parametrize("missing", [-1.0, NAN])
def test_the_rule_is_noted(missing, tmp_path):
    rows = make_rows(missing)
    start = f"labels: {count_unlabeled(rows)} of {len(rows['label'])} rows, "
    found = {x: evaluate(rows, ["mrr"], unjudged=x, keep="market") for x in RULE_NOTES}
    for unjudged, text in RULE_NOTES.items():
        found[unjudged].write(tmp_path / "lists.parquet")
        note = f"Missing or negative {start}{text}"
        for each in (found[unjudged], Evaluation.read(tmp_path / "lists.parquet")):
            assert each.summary().notes == each.compare(each).notes == [note]
            assert each.summary(by="market").notes[0] == note
            assert note in str(each)
            assert note in each.to_html()
    assert found[None].per_list.equals(found["drop"].per_list)
    as_0 = {**rows, "label": np.maximum(np.nan_to_num(rows["label"]), 0.0)}
    expected = evaluate(as_0, ["mrr"], keep="market")
    assert found["irrelevant"].per_list.equals(expected.per_list)
    # Tables without such rows have no note.
    for unjudged in RULE_NOTES:
        whole = evaluate(as_0, ["mrr"], unjudged=unjudged)
        assert whole.summary().notes == whole.compare(whole).notes == []


def test_rules_are_not_mixed():
    rows = make_rows(-1.0)
    drop, irrelevant = evaluate_by_both_rules(rows, ["mrr"])
    with raises("the `unjudged` of the models"):
        compare(drop, irrelevant)
    tables = [irrelevant.table.slice(0, 9), drop.table.slice(9)]
    both = pa.concat_tables(tables, promote_options="default")
    with raises("the same rules"):
        Evaluation(both)
    # The rules are equal if all rows have labels.
    rows["label"] = np.abs(rows["label"])
    assert compare(*evaluate_by_both_rules(rows, ["mrr"]))["difference"] == [0.0]


def test_parts_add_up():
    """Results of parts of a table can be concatenated."""
    rows = to_table_with_nulls(make_rows(NAN))
    first = int(np.sum(rows["query_id"].to_numpy() < 20))
    parts = [evaluate(x, ["mrr"]).table for x in (rows[:first], rows[first:])]
    assert str(Evaluation(pa.concat_tables(parts))) == str(evaluate(rows, ["mrr"]))


@pytest.mark.parametrize("unjudged", ["dropp", True, 0])
def test_an_unknown_rule_is_an_error(unjudged):
    rows = {"query_id": ["1"], "item_id": ["a"], "label": [1], "score": [1]}
    for function, *given in ((evaluate, rows), (evaluate_run, rows, rows)):
        with raises("`unjudged` should be one of "):
            function(*given, ["mrr"], unjudged=unjudged)


@pytest.mark.slow
def test_the_command_prints_the_rule(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    write(to_table_with_nulls(make_rows(NAN)), "base.parquet")
    write(pa.table(make_rows(-1.0)), "new.parquet")

    def printed(line):
        assert run_command(line.split()) == 0
        return "".join(capsys.readouterr())

    for unjudged, text in RULE_NOTES.items():
        option = f" -m mrr --unjudged {unjudged}" if unjudged else " -m mrr"
        for line in ("evaluate new.parquet", "compare base.parquet new.parquet"):
            for output in ("table", "tsv", "json", "markdown", "html"):
                found = printed(f"{line} -o {output}{option}")
                assert found.count("Missing or negative labels: ") in (1, 2)
                assert text in found
        printed(f"evaluate new.parquet --per-list lists.parquet{option}")
        assert text in printed("evaluate lists.parquet")
        for others in ("", " --baseline base.parquet"):
            printed(f"report new.parquet -o page.html{option}{others}")
            assert (tmp_path / "page.html").read_text().count(text) == 2


@pytest.mark.parametrize("missing", [None, NAN])
def test_rows_without_a_score_are_counted(missing):
    """Missing scores are counted in a note, as a failed join lowers values silently."""
    rows = {"query_id": [1, 1, 1, 2, 2], "label": [1, 0, None, 1, 0]}
    whole = evaluate({**rows, "score": [2, 1, 1, -np.inf, 1]}, ["mrr"])
    assert not any("Missing scores" in note for note in whole.summary().notes)
    # A missing score of a padding row does not count.
    torn = evaluate({**rows, "score": [2.0, 1.0, missing, missing, 1.0]}, ["mrr"])
    assert "Missing scores: 1 of 4 items, not retrieved." in torn.summary().notes
    assert torn["mrr"] == (1 + 0) / 2
    for new, base, owner in ((torn, whole, "the new one"), (whole, torn, "baseline")):
        (note,) = (x for x in new.compare(base).notes if "Missing scores" in x)
        assert re.fullmatch(f"Missing scores of .*{owner}: 1 of 4 .*", note)
    # Items of a run without a score were not retrieved, so there is no note.
    of_run = evaluate_run({"1": {"a": 1, "b": 1}}, {"1": {"a": 0.5}}, ["mrr"])
    assert not any("Missing scores" in note for note in of_run.summary().notes)


def test_labels_below_0_are_warned_of_if_labels_are_compared():
    """Labels below 0, such as z-scores, give a warning for metrics of label pairs.

    The label -1 gives none, as it usually marks padding.
    """
    rows = {"query_id": [1] * 3 + [2] * 3, "score": [1.5, 2, 3, 3, 2, 1]}
    expected = "Warning: 2 of 2 lists have labels below 0, which are padding"
    for labels, metric, warns in (
        ([-1.5, 0.5, 1.5], "tau", True),
        ([-2, 0, 1], "pairwise_accuracy", True),
        ([-1, 0, 1], "tau", False),
        ([-1.5, 0.5, 1.5], "ndcg", False),
    ):
        warnings = evaluate({**rows, "label": labels * 2}, [metric]).warnings
        assert any(x.startswith(expected) for x in warnings) == warns
