"""What users do wrong with tables and runs, and the message that each gets."""

import contextlib
import gzip
import re

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from tables import only_where_it_is_quick, raises, rows_of

from keras_rank.evaluation import Evaluation, compare, evaluate, evaluate_run
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

ROWS = {"query_id": [1, 1, 2], "label": [1, 0, 1], "score": [0.3, 0.2, 0.1]}

pytestmark = only_where_it_is_quick


def changed(**columns):
    return {name: x for name, x in {**ROWS, **columns}.items() if x is not None}


COLUMNS = "Received: {}, and a table with the columns ['query_id', 'label', 'score']"
WRONG_ROWS = {
    "a missing column": (
        ROWS,
        {"query": "qid"},
        "`query` should name a column. " + COLUMNS.format("query='qid'"),
    ),
    "another name of a column": (
        {"query": ROWS["query_id"], "Rel": ROWS["label"], "score": ROWS["score"]},
        {"query": "query"},
        "`label` should name a column. Received: label='label', and a table with the "
        "columns ['query', 'Rel', 'score']. Did you mean label=\"Rel\"?",
    ),
    "a missing kept column": (
        ROWS,
        {"keep": ["market"]},
        "`keep` should name a column. " + COLUMNS.format("keep='market'"),
    ),
    "text labels": (
        changed(label=["good", "bad", "good"]),
        {},
        "`label` should name a column of numbers. Received: label='label', which is of "
        "the type VARCHAR, such as 'good'",
    ),
    "a number that is none, among numbers that are text": (
        changed(score=["0.3", "NA", "0.1"]),
        {},
        "`score` should name a column of numbers. Received: score='score', which is of "
        "the type VARCHAR, such as 'NA'",
    ),
    "a number as other languages write it, after plain ones": (
        changed(score=["0.3", "-.1e5", "1_000"]),
        {},
        "`score` should name a column of numbers. Received: score='score', which is of "
        "the type VARCHAR, such as '1_000'",
    ),
    "items of parts": (
        changed(item=[{"id": 1}, {"id": 2}, {"id": 1}]),
        {"item": "item"},
        "`item` should name columns of numbers, text, or dates. Received: item='item', "
        "which is of the type STRUCT(",
    ),
    "lists that are kept": (
        changed(tags=[["a"], ["a"], ["b"]]),
        {"keep": "tags"},
        "`keep` should name columns of numbers, text, or dates. Received: keep='tags', "
        "which is of the type VARCHAR[]",
    ),
    "a list of dicts": (
        [{"query_id": 1, "label": 1, "score": 0.3}],
        {},
        "or a dict of columns. Received: a list",
    ),
    "a list of scores in each row": (
        changed(score=[[0.1], [0.2], [0.3]]),
        {},
        "`score` should name a column of numbers. Received: score='score', which is of "
        "the type DOUBLE[], such as [0.1]",
    ),
    "no rows": (
        changed(query_id=[], label=[], score=[]),
        {},
        "`rows` should have rows. Received: none, from a dict",
    ),
    "a missing query": (
        changed(query_id=[1, None, 2]),
        {},
        "`query` should name a column without missing ids. Received: query='query_id'",
    ),
    "a query that is NaN": (
        changed(query_id=[1.0, float("nan"), 2.0]),
        {},
        "`query` should name a column without missing ids. Received: query='query_id'",
    ),
    "a missing weight": (
        changed(w=[1.0, 1.0, None]),
        {"weight": "w"},
        "`weight` should name a column without missing weights. Received: weight='w', "
        "with one missing in the query 2",
    ),
    "an item twice": (
        changed(item=["a", "a", "a"]),
        {"item": "item"},
        "`rows` should have each item of a query once. Received twice: the item 'a' of "
        "the query 1, in a dict",
    ),
    "a kept column that differs within a query": (
        changed(market=["de", "fr", "de"]),
        {"keep": "market"},
        "`keep` should name columns with one value for each query. Received: "
        "keep='market', with 'de' and 'fr' in the query 1",
    ),
    "trec_eval's order without items": (
        ROWS,
        {"ties": "trec_eval"},
        '`item` should name a column with `ties="trec_eval"`',
    ),
    "ties of another name": (ROWS, {"ties": True}, "`ties` should be one of ['metric'"),
    "a column that is no name": (
        ROWS,
        {"label": 3},
        "`label` should be the name of a column. Received: label=3",
    ),
    "names that clash": (
        changed(weight=[1, 1, 1]),
        {"keep": ["weight"]},
        "should have distinct names, as all become columns of the result. It also has "
        '"weight", "mrr_weight" and columns that start with "health/". Received: '
        "'weight'",
    ),
    "a name twice": (
        changed(market=[1, 1, 2]),
        {"query": "market", "keep": ["market"]},
        "should have distinct names, as all become columns of the result.",
    ),
    "a kept column like the weight of a metric": (
        changed(mrr_weight=[1, 1, 100]),
        {"keep": ["mrr_weight"]},
        "Received: 'mrr_weight'",
    ),
    "a query like the weight of a metric": (
        changed(mrr_weight=[1, 1, 100]),
        {"query": "mrr_weight"},
        "Received: 'mrr_weight'",
    ),
    "a kept column like those of health": (
        changed(**{"health/x": [1, 1, 2]}),
        {"keep": ["health/x"]},
        "Received: 'health/x'",
    ),
    "a size that is none": (
        ROWS,
        {"memory_limit": "a lot"},
        '`memory_limit` should be a size such as "2GB". Received: memory_limit=',
    ),
    "a size without a limit": (
        ROWS,
        {"memory_limit": "-1"},
        '`memory_limit` should be a size such as "2GB". Received: memory_limit=',
    ),
    "a size that is too small to sort in": (
        ROWS,
        {"memory_limit": "40MB"},
        'such as "2GB", of at least "100MB". Received: memory_limit=\'40MB\'',
    ),
    "no table": (3, {}, "`rows` should be files (Parquet, CSV, JSON lines or Arrow)"),
    "columns of other lengths": (
        changed(score=[1.0]),
        {},
        "`rows` should be a table that can be read. Received: a dict, and the error: ",
    ),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows(name):
    rows, arguments, message = WRONG_ROWS[name]
    with raises(message):
        evaluate(rows, ["mrr"], **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rows: {"query_id": "1", "label": 1, "score": 0.5}, "a dict, and the"),
        (lambda rows: rows.set_axis(["label"] * rows.shape[1], axis=1), "a DataFrame"),
        (lambda rows: rows.astype(pd.SparseDtype("float", 0.0)), "a DataFrame, and"),
        (
            lambda rows: pl.from_pandas(rows).lazy(),
            "a LazyFrame, which its method `col",
        ),
    ],
)
def test_what_arrow_cannot_read(make, message):
    source = make(pd.DataFrame({"query_id": [1, 1], "label": [1, 0], "score": [2, 1]}))
    with raises("`rows` should be ") as error:
        evaluate(source, ["mrr"])
    assert f"Received: {message}" in str(error.value)
    with raises("`run` should be "):
        evaluate_run({1: {2: 1}}, source, ["mrr"])


def test_wrong_metrics():
    with raises("Received: 'ndgc@10'"):
        evaluate(ROWS, ["ndgc@10"])
    sparse = NDCG(k=10, sparse_labels=True)
    with raises("`metrics` should have `sparse_labels=False`"):
        evaluate(ROWS, [sparse])


@pytest.mark.parametrize("name", ["weight", "mrr_weight", "health/mrr", "query_id"])
def test_metrics_of_names_that_are_taken(name):
    with raises("distinct names, as all become columns of the result."):
        evaluate(ROWS, ["mrr", NDCG(name=name)])
    table = evaluate(ROWS, ["mrr", NDCG(name="x")]).per_list
    names = [{"x": name}.get(each, each) for each in table.column_names]
    metrics = RankingMetrics(["mrr", NDCG(name=name)]).members
    with raises("should have distinct names"):
        Evaluation(table.rename_columns(names), metrics=metrics, query="query_id")


def half_written(path):
    parquet.write_table(rows_of(), path)
    path.write_bytes(path.read_bytes()[:1000])


def test_a_path_of_no_file_is_a_question(tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").touch()
    monkeypatch.chdir(tmp_path)
    end = re.escape(f"no file in {str(tmp_path)!r}. Did you mean 'rows.parquet'?")
    with pytest.raises(ValueError, match=f"'row.parquet', which matches {end}"):
        evaluate("row.parquet", ["mrr"])


WRONG_FILES = {
    "none.parquet": (
        lambda path: None,
        "`rows` should name files that exist. Received: ",
    ),
    "half.parquet": (half_written, "Parquet magic bytes not found in footer"),
    "empty.parquet": (lambda path: path.touch(), "Parquet file size is 0 bytes"),
    "text.parquet": (lambda path: path.write_text("a,b\n" * 9), "magic bytes not"),
    "empty.csv": (
        lambda path: path.touch(),
        "`rows` should have rows. Received: none, from ",
    ),
    "empty.jsonl": (
        lambda path: path.touch(),
        "`rows` should have rows. Received: none, from ",
    ),
    "head.csv": (
        lambda path: path.write_text("query_id,label,score\n"),
        "`rows` should have rows. Received: none, from ",
    ),
    "rows.txt": (
        lambda path: path.write_text("1 1 1\n"),
        "`rows` should be files of one format, with names that end in one of ",
    ),
    "run.trec": (
        lambda path: path.write_text("1 Q0 a 1 0.5 bm25\n"),
        "'.tsv']. `evaluate_run` reads files of lines, such as TREC's. Received: ",
    ),
    "folder.parquet": (lambda path: path.mkdir(), "which is a folder: "),
    "torn.csv.gz": (
        lambda path: path.write_bytes(gzip.compress(b"query_id,label\n" * 99)[:40]),
        "`rows` should be a table that can be read. Received: ",
    ),
    "late.csv": (
        lambda path: path.write_text(
            "query_id,label,score\n" + "1,1,0.5\n" * 30_000 + "1,good,0.5\n"
        ),
        "`label` should name a column of numbers. Received: label='label', with 'good' "
        "in line 30002 of ",
    ),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_files(tmp_path, name):
    make, message = WRONG_FILES[name]
    make(tmp_path / name)
    with raises(message) as error:
        evaluate(tmp_path / name, ["mrr"])
    if "should name a column" not in message:
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        ("parquet", parquet.write_table),
        ("csv", csv.write_csv),
        ("arrow", feather.write_feather),
    ],
)
def test_shards_of_other_columns(tmp_path, suffix, write):
    """A label that one shard lacks is not taken for one that is missing."""
    rows = pa.table(ROWS)
    write(rows, f"{tmp_path}/0.{suffix}")
    write(rows.drop_columns("label"), f"{tmp_path}/1.{suffix}")
    with raises(f"1.{suffix}") as error:
        evaluate(f"{tmp_path}/*.{suffix}", ["mrr"])
    assert "label" in str(error.value)
    # DuckDB's advice is of an argument that there is not here.
    assert "union_by_name" not in str(error.value)


def test_an_item_twice_in_two_files(tmp_path):
    rows = pa.table(changed(item=["a", "b", "a"]))
    for shard in range(3):
        parquet.write_table(rows.slice(shard, 1), tmp_path / f"{shard}.parquet")
    parquet.write_table(rows.slice(1, 1), tmp_path / "3.parquet")
    with raises("the item 'b' of the query 1, in ") as error:
        evaluate(f"{tmp_path}/*.parquet", ["mrr"], item="item")
    named = re.findall(r"(\d)\.parquet", str(error.value))
    assert named == ["1", "3"]


QRELS, RUN = ["1 0 a 1", "2 0 a 1"], ["1 Q0 a 1 0.9 t", "2 Q0 a 1 0.8 t"]
WRONG_RUNS = {
    "swapped": (
        RUN,
        QRELS,
        "`qrels` should have lines of the fields query iteration item label, with "
        "a number as label. Received: line 1 of QRELS, '1 Q0 a 1 0.9 t', as in a run: "
        "are they swapped?",
    ),
    "a decimal comma": (
        QRELS,
        ["1 Q0 a 1 0,9 t"],
        "`run` should have lines of the fields query Q0 item rank score tag, with a "
        "number as score. Received: line 1 of RUN, '1 Q0 a 1 0,9 t'",
    ),
    "a run of four fields": (
        QRELS,
        QRELS,
        "`run` should have lines of the fields query Q0 item rank score tag, with a "
        "number as score. Received: line 1 of RUN, '1 0 a 1', as in qrels: are "
        "they swapped?",
    ),
    "no score": (
        QRELS,
        [*RUN, "", "3 Q0 a 1 - t"],
        "Received: line 4 of RUN, '3 Q0 a 1 - t'",
    ),
    "a label that is text": (
        ["1 0 a good"],
        RUN,
        "Received: line 1 of QRELS, '1 0 a good'",
    ),
    "no common query": (
        ["01 0 a 1"],
        RUN,
        "`qrels` and `run` should have queries in common. Received: none, "
        "with judgments of queries such as '01' and a run of queries such as '1'",
    ),
    "an item twice in the run": (
        QRELS,
        [*RUN, "2 Q0 a 2 0.7 t"],
        "`run` should have each item of a query once. Received twice: the item 'a' of "
        "the query '2', in line 2 of RUN and line 3 of RUN",
    ),
    "an item twice in the judgments": (
        [*QRELS, "2 0 a 0"],
        RUN,
        "`qrels` should have each item of a query once. Received twice: the item "
        "'a' of the query '2', in line 2 of QRELS and line 3 of QRELS",
    ),
    "empty judgments": (
        [],
        RUN,
        "`qrels` should have rows. Received: none, from ",
    ),
}


@pytest.mark.parametrize("name", WRONG_RUNS)
def test_wrong_runs(tmp_path, name):
    qrels, run, message = WRONG_RUNS[name]
    with contextlib.chdir(tmp_path):
        for file, lines in (("QRELS", qrels), ("RUN", run)):
            (tmp_path / file).write_text("".join(f"{line}\n" for line in lines))
        with raises(message):
            evaluate_run("QRELS", "RUN", ["mrr"])


def test_wrong_tables_of_runs():
    qrels = {"query_id": [1], "item_id": ["a"], "label": [1]}
    run = {"query_id": [1], "doc": ["a"], "score": [0.5]}
    with raises("`item` should name a column. Received: item="):
        evaluate_run(qrels, run, ["mrr"])
    run = {"query_id": [None], "item_id": ["a"], "score": [0.5]}
    with raises("`run` should have a query in each row. Received: 1 without one"):
        evaluate_run(qrels, run, ["mrr"])


def test_wrong_comparisons():
    mine = evaluate(ROWS, ["mrr"])
    as_text = evaluate(changed(query_id=["1", "1", "2"]), ["mrr"])
    others = evaluate(changed(query_id=[7, 7, 8]), ["mrr"])
    with raises("query ids of the same type as the models. Received: st"):
        mine.compare(as_text)
    with raises("Received: no common ones, such as 7 and 1"):
        mine.compare(others)
    with raises("in common with the models. Received: ['map'] and"):
        mine.compare(evaluate(ROWS, ["map"]))
    for name, wrong in (("test", "wilcoxon"), ("correction", "bonferroni")):
        with raises(f"`{name}` should be one of "):
            mine.compare(mine, **{name: wrong})
    for base, models in ((mine, {}), (mine, {"a": ROWS}), (ROWS, {"a": mine})):
        with raises("`models` should be"):
            compare(base, models)
    with raises("Received: baseline of type Evaluation, models of type {'a': 'dict'}"):
        compare(mine, {"a": ROWS})
    assert compare(mine, mine).rows == mine.compare(mine).rows


def test_questions_of_another_step():
    with pytest.raises(TypeError, match=r"then `summary\(by=...\)`. Received: by='a'"):
        evaluate(ROWS, ["mrr"], by="a")
    with raises("`score` should be one column, the scores of one model. Evaluate each"):
        evaluate(ROWS, ["mrr"], score=["score", "other"])
    for progress in (True, 3):
        with raises("`progress` should be a function that is called with the numbers"):
            evaluate(ROWS, ["mrr"], progress=progress)
        with raises("`progress` should be a function that is called with the numbers"):
            evaluate_run({"1": {"a": 1}}, {"1": {"a": 1}}, ["mrr"], progress=progress)
    with raises("`keep_items` should be a positive integer"):
        evaluate(ROWS, ["mrr"], keep_items=0)
    with raises("`item` should name the column of the items with `keep_items`"):
        evaluate(ROWS, ["mrr"], keep_items=3)
    with raises("`items` needs the items, which `evaluate` and `evaluate_run` keep"):
        evaluate(ROWS, ["mrr"]).items(1)
    named = evaluate(changed(item=[1, 2, 1]), ["mrr"], item="item", keep_items=3)
    with raises("`query` should be one of the evaluation, such as [1]. Received: quer"):
        named.items(77)
    with raises("`query` should be one of the evaluation, such as [1]. Received: quer"):
        named.items([1])


def test_wrong_questions():
    evaluation = evaluate(changed(market=[1, 1, 2]), ["mrr"], keep="market")
    with raises("`by` should name kept columns"):
        evaluation.summary(by="user")
    named = evaluate(
        changed(value=[1, 1, 2], p=[1, 1, 2]), ["mrr"], keep=["value", "p"]
    )
    assert named.summary(by="p")["p"] == [1, 2]
    with raises("`by` should not name a column of the result"):
        named.summary(by="value")
    with raises("corrected_p, lists. Received: by='p'"):
        named.compare(named, by="p")
    with raises("`cluster` should name kept columns"):
        evaluation.summary(cluster="user")
    anonymous = evaluate(changed(user=["a", "a", None]), ["mrr"], keep="user")
    for call in (anonymous.summary, anonymous.compare):
        given = [anonymous] if call == anonymous.compare else []
        with raises("cluster='user', with 1 of 2 lists without one"):
            call(*given, cluster="user")
    with raises("`confidence` should be a number between"):
        evaluation.summary(confidence=95)
    for call in (evaluation.summary, evaluation.plot, evaluation.compare):
        # A second argument would be a cluster of the one, and a slice of the other.
        with pytest.raises(TypeError, match="positional argument"):
            call(evaluation, "market")
    with raises("`metric` should be one of"):
        evaluation.worst("map")


def test_what_a_baseline_may_be():
    evaluation = evaluate(changed(difference=[1, 1, 2]), ["mrr"], keep="difference")
    with raises("Received: ['difference']"):
        evaluation.worst("mrr", baseline=evaluation)
    for given in ({"a": evaluation}, evaluation.per_list, 3):
        for call in (evaluation.compare, lambda x: evaluation.worst("mrr", baseline=x)):
            with raises("`baseline` should be an `Evaluation`; "):
                call(given)
    named = {"metrics": [MeanReciprocalRank()], "query": "query_id"}
    nothing = Evaluation(evaluation.per_list.slice(0, 0), **named)
    for one, other in ((evaluation, nothing), (nothing, evaluation)):
        with raises("`baseline` and the models should have queries. Received: "):
            one.compare(other)
    by_model = evaluate({**ROWS, "model": ROWS["query_id"]}, ["mrr"], query="model")
    with raises("a column named 'model', which would name the models"):
        compare(by_model, {"a": by_model, "b": by_model})


def test_queries_in_the_type_of_text_of_other_tools():
    evaluation = evaluate(changed(query_id=["a", "a", "b"]), ["mrr"])
    of_pandas = evaluation.per_list.cast(
        evaluation.per_list.schema.set(0, pa.field("query_id", pa.large_string()))
    )
    other = Evaluation(of_pandas, metrics=[MeanReciprocalRank()], query="query_id")
    assert evaluation.compare(other)["lists"] == [2]


@pytest.mark.parametrize(
    ("argument", "given", "there"),
    [
        *(("query", "query_id", x) for x in ("qid", "q_id", "query-id", "QueryID")),
        *(("query", "query_id", x) for x in ("user_id", "session", "query_ids")),
        *(("label", "label", x) for x in ("relevance", "Label", "rating", "labels")),
        *(("score", "score", x) for x in ("prediction", "y_pred", "Score", "scores")),
        *(("item", "item_id", x) for x in ("doc_id", "docno", "Item ID", "item_ids")),
        ("weight", "weight", "sample_weight"),
        ("keep", "market", "markets"),
    ],
)
def test_a_missing_column_offers_the_one_that_is_meant(argument, given, there):
    rows = changed(item_id=list("abc"), weight=[1.0] * 3, market=["de"] * 3)
    rows = {there if x == given else x: values for x, values in rows.items()}
    arguments = {"item": "item_id", "weight": "weight", "keep": "market"}
    with raises(f"Received: {argument}={given!r}") as error:
        evaluate(rows, ["mrr"], **arguments)
    assert str(error.value).endswith(f'Did you mean {argument}="{there}"?')


def test_a_missing_column_that_nothing_resembles_offers_none():
    rows = {"a": [1], "b": [1], "c": [0.5]}
    with raises("and a table with the columns ['a', 'b', 'c']") as error:
        evaluate(rows, ["mrr"])
    assert "Did you mean" not in str(error.value)
