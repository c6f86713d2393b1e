"""Files with different types, ids as written, names of columns, and encodings."""

import bz2
import codecs
import csv
import decimal
import gzip
import io
import json
import lzma
import re
import sys

import hypothesis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import dataset
from tables import raises, write, write_texts

from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.metrics import MeanReciprocalRank
from keras_rank.reading.engine import connect
from keras_rank.reading.files import TextStream

STABLE = MeanReciprocalRank(shuffle_ties=False)


def compute_mrr(source, metric="mrr", **arguments):
    """Returns the reciprocal rank of each query."""
    per_list = evaluate(source, [metric], **arguments).per_list
    return dict(zip(*per_list.select([0, "mrr"]).to_pydict().values(), strict=True))


def write_tables(folder, *tables, suffix="parquet"):
    files = [f"{folder}/{i}.{suffix}" for i in range(len(tables))]
    for table, file in zip(tables, files, strict=True):
        write(pa.table(table), file)
    return files


# Files with different types.

INTEGERS = {"query_id": [1, 1], "label": [1, 0], "score": [1, 0]}
FRACTIONS = {"query_id": [2, 2, 2], "label": [0, 1, 0], "score": [0.1, 0.4, 0.3]}
GRADED = {**FRACTIONS, "label": [2, 3, 0]}
NEAR = {**FRACTIONS, "score": np.array([1.0, 1.0 + 1e-12, 1.0])}
BOTH = {1: 1.0, 2: 1.0}
SMALL = [pd.DataFrame(INTEGERS, dtype=x) for x in ("int8", "int16", "int32", "uint16")]
SHARDS = [
    *((one, FRACTIONS, 1.0, BOTH) for one in (INTEGERS, *SMALL)),
    # The ids are text in one file and integers in the other.
    ({**INTEGERS, "query_id": ["1", "1"]}, FRACTIONS, 1.0, {"1": 1.0, "2": 1.0}),
    ({**INTEGERS, "score": np.float32([1, 0])}, NEAR, 1.0, BOTH),
    ({**INTEGERS, "label": [True, False]}, GRADED, 3.0, {1: 0.0, 2: 1.0}),
]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(("one", "other", "threshold", "expected"), SHARDS)
def test_shards_with_different_types_lose_no_information(
    tmp_path, suffix, one, other, threshold, expected
):
    files = write_tables(tmp_path, one, other, one, suffix=suffix)[:2]
    metric = MeanReciprocalRank(relevance_threshold=threshold, name="mrr")
    for order in (files, files[::-1]):
        assert compute_mrr(order, metric) == expected


def test_rows_of_shards_keep_their_order(tmp_path):
    """Tied items have the order of the files, even if types alternate between files."""
    query = {"query_id": [1], "label": [0], "score": [1]}
    shards = [query, {**query, "score": [1.0]}] * 3 + [{**query, "label": [1]}]
    files = write_tables(tmp_path, *shards)
    assert compute_mrr(files, STABLE) == {1: pytest.approx(1 / 7)}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_shards_of_ids_that_cannot_be_compared(tmp_path, suffix):
    shards = [{**FRACTIONS, "query_id": ids} for ids in ([2, 2, 2], [2.0, 2.5, 2.5])]
    files = write_tables(tmp_path, *shards, suffix=suffix)
    with raises("`query` should have ids of types that can be compared.") as error:
        evaluate(files, ["mrr"])
    for part in (*files, "BIGINT", "DOUBLE"):
        assert part in str(error.value)


def test_a_shard_without_a_kept_value(tmp_path):
    one, other = {**INTEGERS, "market": ["de"] * 2}, {**FRACTIONS, "market": [None] * 3}
    found = evaluate(
        write_tables(tmp_path, one, other), ["mrr"], keep="market"
    ).per_list
    assert found["market"].to_pylist() == ["de", None]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_names_of_files_that_look_like_patterns(tmp_path, suffix):
    """The file `rows[1]` is read by its name, not as a pattern for `rows1`."""
    query = 2 if suffix == "parquet" else "2"
    for name, scores in (("rows1", [1, 2, 3]), ("rows[1]", [1, 3, 2])):
        write(pa.table({**FRACTIONS, "score": scores}), tmp_path / f"{name}.{suffix}")
    assert compute_mrr(f"{tmp_path}/rows[1].{suffix}") == {query: 1.0}
    assert compute_mrr(f"{tmp_path}/rows1.{suffix}") == {query: 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_warning_about_queries_with_rows_in_several_files(tmp_path, suffix):
    """Queries with rows in several files give a warning if `item` is not named.

    The files may be those of two models.
    """
    one = {**FRACTIONS, "query_id": [1, 2, 2], "item": list("abc")}
    other = {**FRACTIONS, "query_id": [3, 1, 4], "item": list("xyz")}
    files = write_tables(
        tmp_path, one, {**one, "query_id": [5] * 3}, other, suffix=suffix
    )
    for given, number in ((files, 1), (files[:2], 0), (files[::2], 1), (files[0], 0)):
        found = evaluate(given, ["mrr"])
        warned = [x for x in found.warnings if "have rows in several files" in x]
        assert len(warned) == number
        expected = f"Warning: 1 of {found.lists} lists have rows in several files"
        assert all(x.startswith(expected) for x in warned)
    assert not any("files" in x for x in evaluate(files, ["mrr"], item="item").warnings)
    # A row of padding in another file does not count.
    other = {**other, "label": [1, None, 0]}
    files = write_tables(tmp_path, one, other, suffix="parquet")
    assert not any("several files" in x for x in evaluate(files, ["mrr"]).warnings)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_columns_named_as_in_other_tools(tmp_path, suffix):
    """Names of other tools are found if the default names are missing."""
    query, label, score = FRACTIONS.values()
    rows = {"Q-ID": query, "rel": label, "score": score}
    (file,) = write_tables(tmp_path, rows, suffix=suffix)
    found = evaluate(file, ["mrr"])
    assert (found["mrr"], found.query) == (1.0, "query_id")
    # A name that the user passes has to exist.
    with raises("`query` should name a column. Received: query='Q-IDs'"):
        evaluate(file, ["mrr"], query="Q-IDs")
    # A known name is not used if another column may be meant, or if it is in `keep`.
    rows = {"user_id": [1, 2, 3], "label": label, "score": score}
    for more, keep in (({"session": query}, ()), ({"visit": query}, "user_id")):
        (file,) = write_tables(tmp_path, {**rows, **more})
        with raises("`query` should name a column. Received: query='query_id', whi"):
            evaluate(file, ["mrr"], keep=keep)
    assert list(compute_mrr(file)) == [1, 2, 3]


def test_duplicate_files_are_errors(tmp_path):
    (file,) = write_tables(tmp_path, FRACTIONS)
    for twice in ([file, f"{tmp_path}/*.parquet"], [file, f"{tmp_path}/./0.parquet"]):
        with raises("`rows` should be distinct files, as rows would count twice."):
            evaluate(twice, ["mrr"])


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_columns_in_names_of_folders(tmp_path, suffix):
    """Folders add columns, but do not replace columns of the files."""
    markets = ["01", "1", "de"]
    names = [f"market={x}" for x in markets]
    for query, name in enumerate([*names, "query_id=9"]):
        file = tmp_path / name / f"rows.{suffix}"
        file.parent.mkdir()
        write(pa.table({**FRACTIONS, "query_id": [query] * 3}), file)
        assert compute_mrr(file) == {query if suffix == "parquet" else str(query): 1.0}
    found = evaluate(f"{tmp_path}/m*/rows.{suffix}", ["mrr"], keep="market").per_list
    assert found["market"].to_pylist() == markets


# Ids as written, and types that only appear in late rows.

LATE = 30_000
HEAD = "query_id,label,score"


def format_csv(*lines, head=HEAD):
    return "\n".join([head, *lines])


def format_csv_of_ids(*ids):
    return format_csv(*(f"{id_},1,0.5" for id_ in ids))


def format_json_of_ids(*ids):
    line = '{{"query_id": {}, "label": 1, "score": 0.5}}'
    return "\n".join(line.format(id_) for id_ in ids)


LONG = "x" * 200_000
BLANKS = '{"query_id": "a", "label": 1, "score": 1}\n\n \t\n\n'
# Quoted text may be long and contain line ends.
QUOTED = [f'"{LONG}\n1, 2, 3, 4, 5",1,1,.5,']
QUOTED += ['"a, ""b"" \n",1,0,.9,"c\nd, 1, 2, e, f"\n']
NO_NUMBER = format_csv(f'1,1,.5,"{LONG}"', "1,x,.5,", head=f"{HEAD},t")
# Ids that are read as written.
AS_WRITTEN = ["1.10", "1.1", "1e3", "1000", "01", "1", "+1", "2024-1-1", "2024-01-01"]
AS_WRITTEN += ["true", "True", "-2", "18446744073709551617", "NULL", "nan", " a", "a"]
AS_WRITTEN += ["#b", "#c", "'a'"]
IN_QUOTES = ['"1.10"', '"1.1"', '"2024-1-1"', '"2024-01-01"', '"7.5e"', '"1e3"']
TEXTS = [
    ("csv", format_csv_of_ids(*["1"] * LATE, *AS_WRITTEN), sorted(AS_WRITTEN)),
    ("csv", format_csv_of_ids(*["a"] * LATE, '"a"', '"a, b"'), ["a", "a, b"]),
    ("jsonl", format_json_of_ids("2", "1", 2**64 + 1), ["1", f"{2**64 + 1}", "2"]),
    ("jsonl", format_json_of_ids(*IN_QUOTES), sorted(map(json.loads, IN_QUOTES))),
    ("csv", format_csv(*QUOTED, head=f"title,{HEAD},text"), {"1": 0.5}),
    ("csv", NO_NUMBER, "of numbers. Received: label='label', with 'x' in line 3 of"),
    *(
        ("csv", format_csv("1,nan,2", f"1,{label},1"), f"'{label}' in line 3 of")
        for label in ("inf", "-inf", "1e400")
    ),
    ("jsonl", BLANKS + '{"score": 2, "query_id": "a", "label": 0}', {"a": 1 / 2}),
    ("jsonl", BLANKS + '{"score": "x", "query_id": "a"}', "with 'x' in line 5 of"),
    ("jsonl", '{"query_id": 1, "query_id": 2}', "each key once. Received, as number 1"),
]


@pytest.mark.parametrize(("suffix", "text", "found"), TEXTS, ids=lambda x: str(x)[:9])
def test_files_of_text(tmp_path, suffix, text, found):
    """Text files give the expected ids, values of queries, or error."""
    path = tmp_path / f"rows.{suffix}"
    path.write_text(text)
    if isinstance(found, str):
        with raises(found) as error:
            evaluate(path, ["mrr"])
        # The advice of DuckDB is left out, as its options do not exist here.
        assert "sample_size" not in str(error.value)
    else:
        values = compute_mrr(path)
        assert (list(values) if isinstance(found, list) else values) == found
    assert csv.field_size_limit() == 131_072


@pytest.mark.parametrize("id_", ["1.10", "1.0", "1e3"])
def test_ids_in_json_are_not_floats(tmp_path, id_):
    line = '{{"query_id": {}, "item": {}, "price": 1.5, "label": 1, "score": 0.5}}\n'
    file = tmp_path / "rows.jsonl"
    for argument, ids in (("query", (id_, 1)), ("item", (1, id_))):
        file.write_text(line.format(7, 7) * LATE + line.format(*ids))
        with raises(f"`{argument}` should name a column of texts") as error:
            evaluate(file, ["mrr"], item="item")
        assert f"in line {LATE + 1} of {file}: write it as a text" in str(error.value)
    file.write_text(line.format('"1.10"', 1) + line.format('"1.1"', 1))
    assert compute_mrr(file, item="item", keep="price") == {"1.1": 1.0, "1.10": 1.0}


def test_fractions_may_come_late(tmp_path):
    rows = [(0, 1, 1)] * LATE + [(1, 0, 0.1), (1, 1, 0.4)]
    objects = [json.dumps(dict(zip(HEAD.split(","), x, strict=True))) for x in rows]
    csv_text = format_csv(*(",".join(map(str, x)) for x in rows))
    contents = {"rows.csv": csv_text, "rows.jsonl": "\n".join(objects)}
    for file in write_texts(tmp_path, **contents):
        assert [*compute_mrr(file, STABLE).values()] == [1.0, 1.0]


QUOTES = [
    (["1,1,.5,a", "1,0,.9,'foo' bar"], 3),
    (["1,1,.5,'foo", "1,0,.9,bar"], 2),
    (["'1,1,.5,a", "1,0,.9,b", "'2,1,.5,c"], 2),
    # A quoted text may have several lines, but no text may follow the quote.
    (["1,1,.5,'foo", "1,0,.9,bar", "2',1,.5,c"], 4),
]


@pytest.mark.parametrize(("lines", "line"), QUOTES)
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_quotes_enclose_whole_fields(tmp_path, lines, line, delimiter):
    text = format_csv(*lines, head=f"{HEAD},title")
    text = text.replace(",", delimiter).replace("'", '"')
    (tmp_path / "rows.csv").write_text(text)
    with raises(f"line {line} of {tmp_path / 'rows.csv'}"):
        evaluate(tmp_path / "rows.csv", ["mrr"])


@pytest.mark.parametrize("zero", [np.float64, np.float32, np.float16])
def test_negative_zero_is_the_id_zero(zero):
    ids = np.array([0.0, -0.0, 0.0], zero)
    rows = {"query_id": ids, "label": [0, 0, 1], "score": [1, 2, 3]}
    assert evaluate(rows, ["mrr"]).per_list.num_rows == 1
    rows = {**rows, "query_id": [7] * 3, "market": ids}
    assert evaluate(rows, ["mrr"], keep="market").per_list["market"][0].as_py() == 0.0


def test_integers_that_float64_does_not_hold(tmp_path):
    rows = {"query_id": [1, 1], "label": [0, 1], "score": [2**53, 2**53 + 1]}
    decimals = {**rows, "score": [*map(decimal.Decimal, rows["score"])]}
    for source in (rows, *write_tables(tmp_path, rows), decimals):
        with raises("the column 'score' has integers of 2**53 or more, not all of"):
            evaluate(source, ["mrr"])
    assert compute_mrr({**rows, "score": [2**53 - 2, 2**53 - 1]}) == {1: 1.0}


def test_trec_eval_orders_numbers_as_text():
    """Tied items have descending ids as text: 9 precedes 2 and 10."""
    run = {"query_id": [1] * 3, "item_id": [10, 9, 2], "score": [0.5] * 3}
    assert evaluate_run({1: [9]}, run, ["mrr"])["mrr"] == 1.0
    rows = {**run, "label": [0, 1, 0]}
    assert compute_mrr(rows, item="item_id", ties="trec_eval") == {1: 1.0}


# The join of judgments and a run.


@pytest.mark.parametrize("other", [np.int16, np.int32, np.uint64, str])
def test_ids_that_can_be_joined(other):
    run = {"query_id": [1, 1], "item_id": np.array([8, 7]).astype(other)}
    assert evaluate_run({1: [7]}, {**run, "score": [0.1, 0.5]}, ["mrr"])["mrr"] == 1.0


def test_unicode_line_separators_do_not_end_lines(tmp_path, monkeypatch):
    run = "1 Q0 x\x85y 1 0.9 t\n1 Q0 a\u2028b 2 0.8 t\n"
    files = write_texts(tmp_path, qrels="1 0 a\u2028b 1\n", run=run)
    # Standard input is read as UTF-8, whatever its encoding is.
    stream = io.TextIOWrapper(io.BytesIO(run.encode()), "latin-1")
    monkeypatch.setattr(sys, "stdin", stream)
    for source in (files[1], "-"):
        assert evaluate_run(files[0], source, ["mrr"])["mrr"] == 0.5


# Standard output.


def test_duckdb_prints_no_progress(capfd):
    """DuckDB prints no progress, which would be mixed with the results."""
    with connect() as connection:
        connection.execute("SET progress_bar_time = 1")
        many = "SELECT count(*) FROM range(30_000_000) t(x) WHERE sqrt(x) > 3"
        connection.sql(many).to_arrow_reader().read_all()
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_kernel_of_jupyter_without_ipywidgets(tmp_path, monkeypatch):
    """Tables can be read in a kernel in which DuckDB rejects progress settings."""
    # Jupyter writes to the home folder.
    monkeypatch.setenv("HOME", str(tmp_path))
    import nbclient
    import nbformat

    cell = nbformat.v4.new_code_cell(
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from keras_rank.evaluation import evaluate\n"
        "rows = {'query_id': [1, 1], 'label': [1, 0], 'score': [0.2, 0.9]}\n"
        "evaluate(rows, ['mrr']).per_list['mrr'].to_pylist()"
    )
    nbclient.NotebookClient(nbformat.v4.new_notebook(cells=[cell])).execute()
    assert cell.outputs[-1]["data"]["text/plain"] == "[0.5]"


# Names and types of columns.


def make_sources(tmp_path, table):
    """Returns a table as files and in memory."""
    files = [
        *write_tables(tmp_path, table),
        *write_tables(tmp_path, table, suffix="arrow"),
    ]
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    return [*files, dataset.dataset(files[0]), table, stream]


@pytest.mark.slow
def test_columns_whose_names_differ_in_case(tmp_path):
    table = pa.table({**FRACTIONS, "Score": [3, 2, 1], "score_1": [1, 3, 2]})
    files = tmp_path / "cases.csv", tmp_path / "cases.jsonl"
    for file in files:
        write(table, file)
    for name, value in {"score": 1.0, "Score": 0.5, "score_1": 1.0}.items():
        for source in (*files, *make_sources(tmp_path, table)):
            assert [*compute_mrr(source, score=name).values()] == [value]


def test_two_columns_of_one_name(tmp_path):
    columns = [*map(pa.array, FRACTIONS.values()), pa.array([1.0, 2.0, 3.0])]
    table = pa.Table.from_arrays(columns, names=[*FRACTIONS, "score"])
    (tmp_path / "rows.csv").write_text("query_id,label,score,score\n1,1,1,1\n")
    files = write_tables(tmp_path, table, table)
    for source in (table, files[0], files, tmp_path / "rows.csv"):
        with raises("`score` should name one column. Received: score='score', which"):
            evaluate(source, ["mrr"])
        # Duplicate columns are accepted if no argument names them.
        evaluate(source, ["mrr"], score="label")


def test_columns_in_float16(tmp_path):
    rows = {**FRACTIONS, "w": np.float16([2, 2, 2])}
    rows |= {name: np.float16(FRACTIONS[name]) for name in ("query_id", "score")}
    nested = pa.array([np.float16([1])] * 3, pa.list_(pa.float16()))
    for source in make_sources(tmp_path, pa.table({**rows, "x": nested})):
        assert compute_mrr(source, weight="w") == {2.0: 1.0}
    assert (
        compute_mrr(pd.DataFrame(rows)) == compute_mrr(pl.DataFrame(rows)) == {2.0: 1.0}
    )


def test_one_column_for_two_arguments(tmp_path):
    for source in make_sources(tmp_path, pa.table(FRACTIONS)):
        assert compute_mrr(source, score="label", weight="query_id") == {2: 1.0}
    (tmp_path / "rows.csv").write_text("query_id,label\n1.10,1\n1.1,1\n")
    found = compute_mrr(tmp_path / "rows.csv", score="query_id")
    assert found == {"1.1": 1.0, "1.10": 1.0}


def test_nested_columns(tmp_path):
    """Fields of nested columns are not mistaken for columns of the same name."""
    parts = [{"score": 1.0, "x": [{"label": 1}]}] * 3
    table = pa.table({"nested": parts, **FRACTIONS})
    for source in make_sources(tmp_path, table):
        assert compute_mrr(source) == {2: 1.0}


def test_the_first_invalid_row_is_named(tmp_path):
    """The error names the first invalid row, whatever its column or block is."""
    path = tmp_path / "rows.csv"
    rows = [f"{query},1,{query}" for query in range(200_000)]
    rows[150_000] = "1,1,x"
    for last, message in (
        (",1,1", "score='score', with 'x' in line 150002 of"),
        ("1,1", f"line 200001 of {path}, and the error: Expected 3 columns, got 2"),
    ):
        path.write_text(format_csv(*rows[:-1], last))
        with raises(message):
            evaluate(path, ["mrr"])


# Byte order marks, which concatenated files have at the start of each file.

BOM = codecs.BOM_UTF8
MARKED = {
    "trec": (BOM + b"1 0 a 1\n", BOM + b"2 0 b 1\n"),
    "csv": (BOM + b'"query_id",item_id,label\n"1",a,1\n', BOM + b'"2",b,1\n'),
    "jsonl": tuple(
        BOM + json.dumps({"query_id": x, "item_id": y, "label": 1}).encode() + b"\n"
        for x, y in ("1a", "2b")
    ),
    "json": (BOM, BOM + b'{"1": {"a": 1}, "2": {"b": 1}}'),
}
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda x: pa.compress(x, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("form", MARKED)
def test_byte_order_marks_of_concatenated_files(tmp_path, form, compression, ending):
    shards = [x.replace(b"\n", ending) for x in MARKED[form]]
    for first in (b"", BOM):
        file = tmp_path / f"qrels.{form}{compression}"
        file.write_bytes(b"".join(map(COMPRESS[compression], [first, *shards])))
        found = evaluate_run(file, {"1": ["a"], "2": ["x", "b"]}, ["mrr"])
        assert found.per_list["query_id"].to_pylist() == ["1", "2"]
        assert found["mrr"] == 0.75


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
@pytest.mark.parametrize("form", ["", ".csv", ".json"])
def test_other_compression_is_an_error(tmp_path, suffix, form):
    compress = {".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    file = tmp_path / f"rows{form}{suffix}"
    file.write_bytes(compress(b"1 0 a 1\n"))
    message = " should be text in UTF-8 or a table, and compressed by gzip or zstd only"
    ending = f"with a name that ends in .gz or .zst. Received: {file}: decompress"
    for call, argument in (
        (lambda: evaluate(file, ["mrr"]), "rows"),
        (lambda: evaluate_run(file, {"1": ["a"]}, ["mrr"]), "qrels"),
        (lambda: evaluate_run({"1": ["a"]}, file, ["mrr"]), "run"),
    ):
        with raises(f"`{argument}`{message}") as error:
            call()
        assert ending in str(error.value)


@pytest.mark.parametrize("text", ['[{"query_id": "1", "label": 1}]', "[]", "[[1, 2]]"])
def test_lists_in_json_are_an_error(tmp_path, text):
    (file,) = write_texts(tmp_path, **{"rows.json": text})
    for call in (
        lambda: evaluate(file, ["mrr"]),
        lambda: evaluate_run(file, {"1": ["a"]}, ["mrr"]),
        lambda: evaluate_run({"1": ["a"]}, file, ["mrr"]),
    ):
        with raises("should have one object in each line of JSON. Received: ") as error:
            call()
        advice = "write JSON lines, or pass `pandas.DataFrame(rows)`"
        assert f"a list, in {file}: {advice}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("query_id,item_id,score\n1,a,.5\n", "CSV"),
        ('{"1": {"a": 0.5}}', "JSON"),
        ('{"query_id": "1", "item_id": "a", "score": 0.5}\n', "JSON"),
    ],
)
def test_standard_input_is_a_trec_file(monkeypatch, text, form):
    for side in ("qrels", "run"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        given = {"qrels": {"1": ["a"]}, "run": {"1": ["a"]}, side: "-"}
        message = f"`{side}` should be a TREC file if it is standard input. Received: "
        with raises(f"{message}{form}: write it to a file"):
            evaluate_run(**given, metrics=["mrr"])


def test_byte_order_marks_within_lines_are_errors(tmp_path):
    """A mark within a line is an error, as after a file without a final line end."""
    judged = {"1": ["a"], "2": ["a"]}
    for name, first, second in (
        ("run", "1 Q0 a 1 .9 t", "2 Q0 a 1 .9 t\n"),
        ("run", "1 a .9", "2 a .9\n"),
        ("run.csv", "query_id,item_id,score\n1,a,1", "2,a,1\n"),
    ):
        (tmp_path / name).write_text(f"{first}\ufeff{second}")
        with raises(f"of {tmp_path / name}"):
            evaluate_run(judged, tmp_path / name, ["mrr"])


@hypothesis.given(
    text=st.lists(
        st.sampled_from([BOM, b"\n", b"\r", b"a", BOM[:1], BOM[:2], BOM[2:]])
    ).map(b"".join),
    size=st.integers(1, 9),
)
def test_byte_order_marks_of_lines(text, size):
    expected = re.sub(rb"(?:^|(?<=[\r\n]))(?:\xef\xbb\xbf)+", b"", text)
    stream = TextStream(io.BytesIO(text))
    assert b"".join(iter(lambda: stream.read(size), b"")) == expected
    assert TextStream(io.BytesIO(text)).read() == expected
