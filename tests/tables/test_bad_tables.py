"""Errors for invalid tables, runs and calls, and the messages that users read."""

import codecs
import contextlib
import gzip
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tables import raises, write, write_texts

from keras_rank.evaluation import Evaluation, compare, evaluate, evaluate_run
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics
from keras_rank.utils import targets_from_qrels

ROWS = {"query_id": [1, 1, 2], "label": [1, 0, 1], "score": [0.3, 0.2, 0.1]}


def replace_columns(**columns):
    return {name: x for name, x in {**ROWS, **columns}.items() if x is not None}


MISSING = (
    "query='group', which is not in a table. Known names are ['query_id', 'label', "
)
NUMBERS = "of numbers. Received: score='score', which is of the type {}, such as {}"
TYPES = (
    "`{0}` should name columns of numbers, text, or dates. Received: {0}='{0}', which "
    "is of the type {1}"
)
IDS = "`query` should name a column without missing ids. Received: query='query_id'"
TAKEN = (
    "should have distinct names, as all become columns of the result. It also has "
    '"weight", "mrr_weight" and columns that start with "health/". Received: '
)
SIZE = '`memory_limit` should be a size such as "2GB"'
FRAME = pd.DataFrame(ROWS)
WRONG_ROWS = [
    ({}, {"query": "group"}, MISSING),
    ({"score": ["0.3", "NA", "1"]}, {}, NUMBERS.format("VARCHAR", "'NA'")),
    ({"score": ["-.1e5", "1", "x"]}, {}, NUMBERS.format("VARCHAR", "'x'")),
    ({"score": [[0.1]] * 3}, {}, NUMBERS.format("DOUBLE[]", "[0.1]")),
    ({"item": [{"id": 1}] * 3}, {"item": "item"}, TYPES.format("item", "STRUCT(")),
    ({"keep": [["a"]] * 3}, {"keep": "keep"}, TYPES.format("keep", "VARCHAR[]")),
    ({x: [] for x in ROWS}, {}, "should have rows. Received: none, from a dict"),
    ({"query_id": [1, None, 2]}, {}, IDS),
    ({"query_id": [1.0, np.nan, 2.0]}, {}, IDS),
    ({"label": [np.nan, np.inf, 1]}, {}, "the column 'label' has infinite values"),
    ({"label": np.float32([np.nan, -np.inf, 1])}, {}, "'label' has infinite values"),
    ({"w": [1, 1, None]}, {"weight": "w"}, "weight='w', with one missing in the query"),
    ({"m": [1, 2, 1]}, {"keep": "m"}, "keep='m', with 1 and 2 in the query 1"),
    ({}, {"ties": "trec_eval"}, '`item` should name a column with `ties="trec_eval"`'),
    ({}, {"ties": True}, "`ties` should be one of ['metric'"),
    ({}, {"label": 3}, "`label` should be the name of a column. Received: label=3"),
    ({"weight": [1] * 3}, {"keep": ["weight"]}, TAKEN + "'weight'"),
    ({"m": [1] * 3}, {"query": "m", "keep": ["m"]}, TAKEN),
    ({"mrr_weight": [1] * 3}, {"keep": ["mrr_weight"]}, TAKEN + "'mrr_weight'"),
    ({"health/x": [1] * 3}, {"keep": ["health/x"]}, TAKEN + "'health/x'"),
    ({}, {"memory_limit": "a lot"}, SIZE),
    ({}, {"memory_limit": "-1"}, SIZE),
    ({}, {"memory_limit": "40MB"}, SIZE + ', of at least "100MB". Received: memory_li'),
    ({"score": [1.0]}, {}, "a table that can be read. Received: a dict, and the err"),
]


@pytest.mark.parametrize(("columns", "arguments", "message"), WRONG_ROWS)
def test_wrong_rows(columns, arguments, message):
    with raises(message):
        evaluate(replace_columns(**columns), ["mrr"], **arguments)


INVALID_TABLES = [
    ({"query_id": "1", "label": 1, "score": 0.5}, "a dict, and the error: "),
    (FRAME.set_axis(["label"] * 3, axis=1), "a DataFrame, and the error: "),
    (FRAME.astype(pd.SparseDtype("float", 0.0)), "a DataFrame, and the error: "),
    (pl.from_pandas(FRAME).lazy(), "a LazyFrame, which its method `col"),
    (3, "a int"),
]


@pytest.mark.parametrize(("source", "message"), INVALID_TABLES)
def test_sources_that_are_not_tables_are_errors(source, message):
    with raises("`rows` should be ") as error:
        evaluate(source, ["mrr"])
    assert f"Received: {message}" in str(error.value)
    with raises("`run` should be "):
        evaluate_run({1: {2: 1}}, source, ["mrr"])
    with raises("or a dict of columns. Received: a list"):
        evaluate([ROWS], ["mrr"])


def test_wrong_metrics():
    with raises("`metrics` should have `sparse_labels=False`"):
        evaluate(ROWS, [NDCG(k=10, sparse_labels=True)])


@pytest.mark.parametrize("name", ["weight", "mrr_weight", "health/mrr", "query_id"])
def test_metrics_with_reserved_names_are_errors(name):
    with raises("distinct names, as all become columns of the result."):
        evaluate(ROWS, ["mrr", NDCG(name=name)])
    table = evaluate(ROWS, ["mrr", NDCG(name="x")]).per_list
    names = [{"x": name}.get(each, each) for each in table.column_names]
    metrics = RankingMetrics(["mrr", NDCG(name=name)]).members
    with raises("should have distinct names"):
        Evaluation(table.rename_columns(names), metrics=metrics, query="query_id")


def test_a_missing_file_suggests_a_close_name(tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").touch()
    monkeypatch.chdir(tmp_path)
    end = re.escape(f"no file in {str(tmp_path)!r}. Did you mean 'rows.parquet'?")
    with pytest.raises(ValueError, match=f"'row.parquet', which matches {end}"):
        evaluate("row.parquet", ["mrr"])
    with raises(f"{str(tmp_path)!r}, which is a folder: "):
        evaluate(tmp_path, ["mrr"])


NO_ROWS = "`rows` should have rows. Received: none, from "
HEAD = b"query_id,label,score\n"
WRONG_FILES = {
    "text.parquet": (b"a,b\n" * 9, "magic bytes not"),
    "empty.csv": (b"", NO_ROWS),
    "head.csv": (HEAD, NO_ROWS),
    "spaces.csv": (b"query_id, label, score\n1, 1, 1\n", "no spaces around the names"),
    "rows.txt": (b"1 1 1\n", "files of one format, with names that end in one of "),
    "run.trec": (b"1 Q0 a 1 1 t\n", "`evaluate_run` reads files of lines, such as TR"),
    "torn.csv.gz": (gzip.compress(HEAD * 99)[:40], "a table that can be read"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_files(tmp_path, name):
    content, message = WRONG_FILES[name]
    (tmp_path / name).write_bytes(content)
    with raises(message) as error:
        evaluate(tmp_path / name, ["mrr"])
    assert name in str(error.value)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "jsonl"])
def test_shards_with_different_columns(tmp_path, suffix):
    """A column of labels that one shard lacks is an error, not missing labels."""
    rows = pa.table(ROWS)
    write(rows, f"{tmp_path}/0.{suffix}")
    write(rows.drop_columns("label"), f"{tmp_path}/1.{suffix}")
    with raises(f"1.{suffix}. Known names are ['query_id', 'score']"):
        evaluate(f"{tmp_path}/*.{suffix}", ["mrr"])


def test_a_shard_without_a_header(tmp_path):
    """A shard without a header is an error: the first row would be the header."""
    write(pa.table(ROWS), tmp_path / "0.csv")
    (tmp_path / "1.csv").write_text("3,7,0.4\n")
    with raises("1.csv. Known names are ['3', '7', '0.4']: without names"):
        evaluate(f"{tmp_path}/*.csv", ["mrr"])


def test_duplicate_items_in_two_files(tmp_path):
    rows = pa.table(replace_columns(item=["a", "b", "a"]))
    for shard, place in enumerate((0, 1, 2, 1)):
        write(rows.slice(place, 1), f"{tmp_path}/{shard}.parquet")
    with raises("the item 'b' of the query 1, in ") as error:
        evaluate(f"{tmp_path}/*.parquet", ["mrr"], item="item")
    assert re.findall(r"(\d)\.parquet", str(error.value)) == ["1", "3"]
    assert str(error.value).endswith('; `duplicates="count"` counts each')


QRELS, RUN = ["1 0 a 1", "2 0 a 1"], ["1 Q0 a 1 0.9 t", "2 Q0 a 1 0.8 t"]
LINES = "`{}` should have lines of the fields {}, with a number as {}. Received: line "
OF_QRELS = LINES.format("qrels", "query iteration item label", "label") + "1 of QRELS, "
OF_RUN = LINES.format("run", "query Q0 item rank score tag", "score")
TWICE = "Received twice: the item 'a' of the query '2', in line "
WRONG_RUNS = [
    (RUN, QRELS, OF_QRELS + "'1 Q0 a 1 0.9 t', as in a run: are they swapped?"),
    (["1 0 a good"], RUN, OF_QRELS + "'1 0 a good'"),
    (QRELS, QRELS, OF_RUN + "1 of RUN, '1 0 a 1', as in qrels: are they swapped?"),
    (QRELS, [*RUN, "", "3 Q0 a 1 - t"], OF_RUN + "4 of RUN, '3 Q0 a 1 - t'"),
    (["1 0 a nan"], RUN, OF_QRELS + "'1 0 a nan'"),
    (["1 0 a 1_0"], RUN, OF_QRELS + "'1 0 a 1_0'"),
    (
        ["01 0 a 1"],
        RUN,
        "`qrels` and `run` should have queries in common. Received: none, "
        "with judgments of queries such as '01' and a run of queries such as '1'",
    ),
    (QRELS, [*RUN, "2 Q0 a 2 0.7 t"], f"{TWICE}2 of RUN and line 3 of RUN"),
    ([*QRELS, "2 0 a 0"], RUN, f"{TWICE}2 of QRELS and line 3 of QRELS"),
    ([], RUN, "`qrels` should have rows. Received: none, from "),
    # The first line of a CSV file is the header, even if it might be a title.
    (["q0,d9", "1,a,1", "2,a,1"], RUN, "QRELS. Known names are ['q0', 'd9']"),
    # The first row may be a header, or the fields may not be a query and an item.
    (["q\ta", "1\ta"], RUN, "QRELS. Known names are ['q', 'a']"),
    (["1\t7", "2\t8"], RUN, "QRELS. Known names are ['1', '7']: without names, they"),
    (["query_id doc_id", "1 a"], RUN, "Received: line 1 of"),
    (["1 a", "2 0 a 1"], RUN, "lines of the fields query item. Received: line 2"),
    # The runs of MS MARCO have a query, an item and a rank.
    (QRELS, ["1\ta\t1", "1\tb\t2", "2\tx\t1"], "as if they were ranks"),
    (QRELS, ["1,a,1", "1,b,2"], "RUN. Known names are ['1', 'a', '1']: without names"),
    (QRELS, ["what is\ta\t1"], "RUN. Known names are ['what is', 'a', '1']: without"),
    (QRELS, ["1\ta\t0", "1\tb\t1", "2\tx\t0"], "as if they were ranks"),
    (QRELS, ['{"1": ["a"], "2": null}'], "counts as 0. Received: None, for the query"),
    (QRELS, ['{"1": {"a": 1}, "1": {"b": 2}}'], "each key once. Received twice: '1'"),
    (QRELS, ['{"1": {"a": 1'], "`run` should be a table that can be read"),
    (QRELS, ['{"1": {"a": 1}, "2": 3}'], "a dict of items and numbers for each query"),
]


@pytest.mark.parametrize(("qrels", "run", "message"), WRONG_RUNS)
def test_wrong_runs(tmp_path, qrels, run, message):
    write_texts(tmp_path, QRELS="\n".join(qrels), RUN="\n".join(run))
    with contextlib.chdir(tmp_path), raises(message):
        evaluate_run("QRELS", "RUN", ["mrr"])


NO_LABEL = "with a number as label. Received: line {} of QRELS, "
OF_TABS = {
    "no label": ("{0}\t0\t{1}\t", True),
    "a word": ("{0}\t0\t{1}\tyes", False),
    "a tab at the end": ("{0}\t0\t{1}\t1\t", True),
    "a tab at the start": ("\t{0}\t0\t{1}\t1", True),
    "no query": ("\t0\t{1}\t1", True),
    "no item": ("{0}\t0\t\t1", True),
    "two tabs": ("{0}\t\t0\t{1}\t1", True),
    "a fifth field": ("{0}\t0\t{1}\t1\tx", False),
    "three fields": ("{0}\t0\t{1}", False),
}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", OF_TABS)
def test_a_bad_field_between_tabs(tmp_path, name, place):
    """A bad field in any line of a TREC file does not turn the file into a table."""
    bad, is_empty = OF_TABS[name]
    lines = [f"{i}\t0\t{x}\t1" for i, x in enumerate("abc")]
    lines[place] = bad.format(place, "abc"[place])
    write_texts(tmp_path, QRELS="\n".join(lines))
    end = ", with an empty field between tabs" * is_empty
    with contextlib.chdir(tmp_path), raises(NO_LABEL.format(place + 1)) as error:
        evaluate_run("QRELS", {"0": ["a"]}, ["mrr"])
    assert f"{lines[place]!r}{end}" in str(error.value)
    # The bad line is the only line of the file.
    write_texts(tmp_path, QRELS=lines[place])
    if name not in ("a fifth field", "three fields"):
        with contextlib.chdir(tmp_path), raises(NO_LABEL.format(1)):
            evaluate_run("QRELS", {"0": ["a"]}, ["mrr"])


@pytest.mark.slow
def test_a_bad_field_between_tabs_of_a_run(tmp_path):
    good = "1\tQ0\ta\t1\t.9\tt"
    for bad in ("2\tQ0\ta\t1\t\tt", "2\tQ0\t\t1\t.9\tt", "\t2\tQ0\ta\t1\t.9\tt"):
        for lines, number in (([good, bad], 2), ([bad, good], 1)):
            write_texts(tmp_path, RUN="\n".join(lines))
            with contextlib.chdir(tmp_path), raises(f"line {number} of RUN"):
                evaluate_run({"1": ["a"]}, "RUN", ["mrr"])
    # A missing tag is not an error.
    (run,) = write_texts(tmp_path, RUN="1\tQ0\ta\t1\t.9\t\n1\tQ0\tb\t2\t.8\t\n")
    assert evaluate_run({"1": ["b"]}, run, ["mrr"])["mrr"] == 0.5


DEEP = "[" * 100_000 + "]" * 100_000
NESTED = {
    "a.json": f'{{"1": {DEEP}}}',
    "b.json": DEEP,
    "c.jsonl": f'{{"query_id": 1, "item_id": {DEEP}, "label": 1, "score": 1}}\n',
    "d.jsonl": '{"query_id": 1, "item_id": ["a"]}\n' * 2000 + f'{{"item_id": {DEEP}}}',
    "e.json": '{"1": ' * 100_000 + "1" + "}" * 100_000,
}


@pytest.mark.parametrize("name", NESTED)
def test_deeply_nested_json(tmp_path, name):
    (tmp_path / name).write_text(NESTED[name])
    for call in (
        lambda x: evaluate_run(x, {"1": ["a"]}, ["mrr"]),
        lambda x: evaluate_run({"1": ["a"]}, x, ["mrr"]),
        lambda x: targets_from_qrels(str(x), ["1"], ["a"]),
    ):
        with raises("should be a table that can be read. Received: ") as error:
            call(tmp_path / name)
        assert f"{tmp_path / name}, and the error: objects or lists are nest" in str(
            error.value
        )


def test_text_in_utf_16(tmp_path):
    """Text in UTF-16, as Excel writes it, is an error that names the encoding."""
    for name, text in (
        ("rows.csv", "query_id,label,score\n1,1,.5\n"),
        ("a.txt", "1 1"),
    ):
        for encoding in ("utf-16", "utf-16-be"):
            mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
            content = mark + text.encode(encoding)
            for suffix, compress in (("", bytes), (".gz", gzip.compress)):
                file = tmp_path / f"{name}{suffix}"
                file.write_bytes(compress(content))
                with raises(f"Received: {file}, which is text in UTF-16, as Excel"):
                    evaluate(file, ["mrr"])


def test_text_in_utf_32(tmp_path):
    for encoding, mark in (("le", codecs.BOM_UTF32_LE), ("be", codecs.BOM_UTF32_BE)):
        file = tmp_path / "rows.csv"
        file.write_bytes(mark + "query_id,label\n1,1\n".encode(f"utf-32-{encoding}"))
        with raises(f"Received: {file}, which is text in UTF-32: save it as UTF-8"):
            evaluate(file, ["mrr"])


def evaluate_with_columns(**columns):
    """Returns an evaluation that keeps all columns except the default ones."""
    keep = [name for name in columns if name not in ROWS]
    return evaluate(replace_columns(**columns), ["mrr"], keep=keep)


def rank_items(query):
    rows = replace_columns(item=[1, 2, 1])
    return evaluate(rows, ["mrr"], item="item", keep_items=3).ranking(query)


def remove_lists(evaluation):
    return Evaluation(evaluation.table.slice(0, 0))


ODD_RULE = "`progress` should be a function that is called with the numbers"
ODD_BASELINE = "`baseline` should be an `Evaluation`; "
NO_CLUSTER = "cluster='user', with 1 of 2 lists without one"
NO_QUERIES = "`baseline` and the models should have queries. Received: "
NO_QUERY = "`query` should be one of the evaluation, such as [1]. Received: query="
WRONG_CALLS = [
    (
        lambda x: x.compare(evaluate_with_columns(query_id=["1", "1", "2"])),
        "query ids of the same",
    ),
    (
        lambda x: x.compare(evaluate_with_columns(query_id=[7, 7, 8])),
        "no common ones, such as 7 a",
    ),
    (lambda x: x.compare(evaluate(ROWS, ["map"])), "the models. Received: ['map'] and"),
    (lambda x: x.compare(x, test="wilcoxon"), "`test` should be one of "),
    (lambda x: x.compare(x, correction="bonferroni"), "`correction` should be one of "),
    (lambda x: compare(x, {}), "`models` should be"),
    (lambda x: compare(x, {"a": ROWS}), "`models` should be an `Evaluation`; "),
    (lambda x: compare(ROWS, {"a": x}), ODD_BASELINE),
    (lambda x: x.compare(x.per_list), ODD_BASELINE),
    (lambda x: x.worst("mrr", baseline=3), ODD_BASELINE),
    (lambda x: x.worst("mrr", baseline=x), "Received: ['difference']"),
    (lambda x: x.worst("map"), "`metric` should be one of"),
    (lambda x: x.compare(remove_lists(x)), NO_QUERIES),
    (lambda x: remove_lists(x).compare(x), NO_QUERIES),
    (lambda x: x.summary(by="shop"), "`by` should name kept columns"),
    (lambda x: x.summary(by="value"), "`by` should not name a column of the result"),
    (lambda x: x.compare(x, by="p"), "lists, wins, ties, losses. Received: by='p'"),
    (lambda x: x.summary(cluster="shop"), "`cluster` should name kept columns"),
    (lambda x: x.summary(cluster="user"), NO_CLUSTER),
    (lambda x: x.compare(x, cluster="user"), NO_CLUSTER),
    (lambda x: evaluate(ROWS, ["mrr"], score=["a", "b"]), "should be one column, the"),
    (lambda x: evaluate(ROWS, ["mrr"], progress=True), ODD_RULE),
    (lambda x: evaluate_run({1: [2]}, {1: [2]}, ["mrr"], progress=3), ODD_RULE),
    (lambda x: evaluate(ROWS, ["mrr"], keep_items=0), "should be a positive integer"),
    (lambda x: x.ranking(1), "`ranking` needs the items, which `evaluate` and"),
    (lambda x: rank_items(77), NO_QUERY),
    (lambda x: rank_items([1]), NO_QUERY),
]


@pytest.mark.parametrize(("call", "message"), WRONG_CALLS)
def test_wrong_calls(call, message):
    kept = {x: [1, 1, 2] for x in ("market", "value", "p", "difference")}
    evaluation = evaluate_with_columns(user=["a", "a", None], **kept)
    with raises(message):
        call(evaluation)


def test_positional_slices_are_errors():
    evaluation = evaluate_with_columns(market=[1, 1, 2], p=[1, 1, 2])
    for call in (evaluation.summary, evaluation.plot, evaluation.compare):
        # A second positional argument would be ambiguous: a cluster or a slice.
        with pytest.raises(TypeError, match="positional argument"):
            call(evaluation, "market")
    assert evaluation.summary(by="p")["p"] == [1, 2]
    assert compare(evaluation, evaluation).rows == evaluation.compare(evaluation).rows
    by_model = evaluate(replace_columns(model=[1, 1, 2]), ["mrr"], query="model")
    with raises("a column named 'model', which would name the models"):
        compare(by_model, {"a": by_model, "b": by_model})


def test_queries_with_other_types_of_text():
    lists = evaluate_with_columns(query_id=["a", "a", "b"]).per_list
    schema = lists.schema.set(0, pa.field("query_id", pa.large_string()))
    metrics = {"metrics": [MeanReciprocalRank()], "query": "query_id"}
    ours, others = (Evaluation(x, **metrics) for x in (lists, lists.cast(schema)))
    assert ours.compare(others)["lists"] == [2]


CLOSE = [
    *(("query", "query_id", x) for x in ("QueryID", "query_ids", "queri")),
    *(("label", "label", x) for x in ("labels", "LABELS")),
    *(("score", "score", x) for x in ("scores", "SCORES")),
    *(("item", "item_id", x) for x in ("Item ID", "item_ids")),
    ("weight", "weight", "weights"),
    ("keep", "market", "markets"),
]


@pytest.mark.parametrize(("argument", "given", "there"), CLOSE)
def test_an_unknown_column_suggests_a_close_one(argument, given, there):
    rows = replace_columns(item_id=list("abc"), weight=[1.0] * 3, market=["de"] * 3)
    rows = {there if x == given else x: values for x, values in rows.items()}
    arguments = {"item": "item_id", "weight": "weight", "keep": "market"}
    with raises(f"Received: {argument}={given!r}") as error:
        evaluate(rows, ["mrr"], **arguments)
    assert str(error.value).endswith(f'Did you mean {argument}="{there}"?')


def test_an_unknown_column_without_close_ones_lists_at_most_ten():
    rows = {"a": [1], "b": [1], "c": [0.5]}
    with raises("which is not in a table. Known names are ['a', 'b', 'c']") as error:
        evaluate(rows, ["mrr"])
    assert "Did you mean" not in str(error.value)
    rows = {str(place): [1] for place in range(11)} | {"x": [1]}
    with raises("'8', '9'] and others"):
        evaluate(rows, ["mrr"])
