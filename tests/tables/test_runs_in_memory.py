"""Judgments and runs in memory: dicts, lists of ids, pairs, and scalar types."""

import collections
import decimal
import fractions

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from commands import run_command
from tables import IN_MEMORY, raises, write_texts

from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.metrics import ExpectedReciprocalRank
from keras_rank.utils import targets_from_qrels


def mrr(qrels, run, **arguments):
    return evaluate_run(qrels, run, ["mrr"], **arguments)["mrr"]


# Lists of ids, and lists that may be rows of a query and an item.


def table(names, *columns):
    return pd.DataFrame(dict(zip(names.split(), columns, strict=True)))


OF_ONE_TYPE = "`qrels` and `run` should be lists of the ids of each query, of one type"
# Pairs of ids on both sides, which may be rows, and lists of several types.
UNCLEAR = [
    ([(1, 7), (1, 9), (2, 3)], [(1, 5), (1, 9), (2, 3)]),
    ([(1, 5), (2, 6), (3, 7)], [(3, 5), (1, 9), (2, 8)]),
    ([("d1", "d2")], [("d2", "d3")]),
    ([(1, 7), (2, 3)], [(4, 5), (6, -1)]),
    ([("q", "d", 1), ("q", "e", 0)], [("q", "d", 0.5), ("q", "e", 0.9)]),
    ([("q", "d", 1)], [(1, 2, 3)]),
    ([(1, 2, 3)], [("q", "d", 1)]),
    ([(1, 2, 3)], [(1, 7, 0.5)]),
    ([(1, 2, 3)], [(1, None, 3)]),
    ([(1, 0, "d", 1)], [(1, 2, 3)]),
]


@pytest.mark.parametrize(("judged", "found"), UNCLEAR)
@pytest.mark.parametrize("convert", [list, lambda x: np.array(x, object)])
def test_lists_that_may_be_rows(judged, found, convert):
    """Lists that may be rows are an error, which advises to pass tables or dicts."""
    lists = [list(map(list, side)) for side in (judged, found)]
    with raises(OF_ONE_TYPE) as error:
        mrr(*map(convert, lists))
    assert "in dicts, such as `dict(enumerate(run))`" in str(error.value)
    table_of_rows = "columns=['query_id', 'item_id', 'score'])`"
    assert f"`pandas.DataFrame(rows, {table_of_rows}" in str(error.value)
    for one, other in ((lists[0], found), (judged, lists[1])):
        with raises("If it has a row for each item, pass `pandas.DataFrame(rows, col"):
            mrr(one, other)


def test_lists_of_two_ids_should_be_in_dicts():
    judged, found = np.array([[1, 7], [2, 3]]), np.array([[7, 8], [4, 2]])
    for given in ((judged, found), (judged.tolist(), [*found])):
        with raises(OF_ONE_TYPE):
            mrr(*given)
        assert mrr(*(dict(enumerate(x)) for x in given)) == (1 + 1 / 2) / 2
    # The lists are accepted if the other side has no pairs.
    assert mrr([7, 3], [[5, 7], [3, 1]]) == mrr([[7, 3], [3]], [[5, 7], [3, 1]]) == 0.75
    assert mrr(judged, np.array([[7, 8, 9], [4, 2, 1]])) == (1 + 1 / 2) / 2


def test_lists_of_ids():
    """Lists of three ids, as `catalogue.top_k` returns, give the reciprocal rank.

    The first ids of lists repeat, as ids of queries would in rows.
    """
    rng = np.random.default_rng(0)
    ranked = np.argsort(rng.random((1000, 100)), axis=1)[:, :3]
    judged, found = ranked[:500], ranked[500:]
    expected = [
        next((1 / (i + 1) for i, x in enumerate(y) if x in z), 0.0)
        for y, z in zip(found, judged, strict=True)
    ]
    for convert in (np.array, np.ndarray.tolist, list):
        values = mrr(convert(judged), convert(found))
        assert values == pytest.approx(np.mean(expected))


# Rows, which users should convert with pandas.

Qrel = collections.namedtuple("Qrel", "query_id doc_id relevance iteration")
ScoredDoc = collections.namedtuple("ScoredDoc", "query_id doc_id score")
QRELS = [("Q0", "D0", 0), ("Q0", "D1", 1), ("Q1", "D0", 0), ("Q1", "D3", 2)]
RUN = [("Q0", "D0", 1.2), ("Q0", "D1", 1.0), ("Q1", "D0", 2.4), ("Q1", "D3", 3.6)]
FRAMES = [
    pd.DataFrame(rows, columns=["query_id", "item_id", number])
    for rows, number in ((QRELS, "label"), (RUN, "score"))
]
NAMED = [Qrel(*x, "0") for x in QRELS], [ScoredDoc(*x) for x in RUN]
ROWS = {
    "tuples": (QRELS, RUN),
    "tuples of tuples": (tuple(QRELS), tuple(RUN)),
    "lists": ([list(x) for x in QRELS], [list(x) for x in RUN]),
    "named tuples": NAMED,
    "dicts": [x.to_dict("records") for x in FRAMES],
    "structured arrays": [x.to_records(index=False) for x in FRAMES],
}
NAMED_ROWS = "named tuples", "dicts", "structured arrays"
# The relevant items are D1 at rank 2 and D3 at rank 1.
NDCG = (1 / np.log2(3) + 1) / 2


@pytest.mark.parametrize("form", ROWS)
def test_rows_are_an_error_that_names_a_table(form):
    names = [["query_id", "item_id", x] for x in ("label", "score")]
    names = [None, None] if form in NAMED_ROWS else names
    tables = []
    for side, rows, columns in zip(("qrels", "run"), ROWS[form], names, strict=True):
        end = f", columns={columns})" if columns else ")"
        for other in ({"Q0": {"D1": 1}}, FRAMES[side == "qrels"]):
            with raises(". If it has a row for each item, pass `pandas.DataFrame(row"):
                mrr(**{"qrels": other, "run": other, side: rows})
        with raises(f"`pandas.DataFrame(rows{end}`") as error:
            mrr(**{"qrels": FRAMES[0], "run": FRAMES[1], side: rows})
        assert f"`{side}` should be files (Parquet, CSV" in str(error.value)
        tables.append(pd.DataFrame(rows, columns=columns))
    assert evaluate_run(*tables, ["nDCG@10"])["nDCG@10"] == pytest.approx(NDCG)
    if form != "lists":
        with raises("`pandas.DataFrame(rows"):
            mrr(*ROWS[form])
    with raises("a row for each item, pass `pandas.DataFrame(rows)`"):
        evaluate(ROWS[form][0], ["mrr"])
    with raises("`pandas.DataFrame(rows, columns=['query_id', 'item_id', 'label'])`,"):
        targets_from_qrels(ROWS[form][0], ["Q1", "Q0"], ["D0", "D1", "D3"])
    targets = targets_from_qrels(tables[0], ["Q1", "Q0"], ["D0", "D1", "D3"])
    assert targets["ids"].tolist() == [[2], [1]]


@pytest.mark.parametrize(
    "rows", [iter(QRELS), map(tuple, QRELS), zip(*[QRELS], strict=True)]
)
def test_iterators_are_not_read(rows):
    for side in ("qrels", "run"):
        with raises("a row for each item, pass `pandas.DataFrame(rows, columns="):
            mrr(**{"qrels": FRAMES[0], "run": FRAMES[1], side: rows})
    with raises("a row for each item, pass `pandas.DataFrame(rows)`"):
        evaluate(rows, ["mrr"])
    assert next(rows)


INVALID_SOURCES = [
    ([1, 2], "Received: [1, 2]"),
    ([], "Received: []"),
    ([[1, 2, 3], [4, 5, 6]], "Received: [[1, 2, 3], [4, 5, 6]]"),
    ([1, None], "Received: [1, None]"),
    ([("q", "d", 1), None], "Received: [('q', 'd', 1), None]"),
    (np.array([[1.0, 2.0, 3.0]]), "Received: [[1.0, 2.0, 3.0]]"),
    ({("q", "d", 1)}, "Received: a set"),
    ({"a": ["x"]}.values(), "Received: dict_values([['x']])"),
    (np.array(7), "Received: a ndarray"),
]


@pytest.mark.parametrize("side", ["qrels", "run"])
@pytest.mark.parametrize(("source", "message"), INVALID_SOURCES)
def test_invalid_sources_are_errors(source, message, side):
    """Invalid sources are an error, such as lists of ids on one side only."""
    with raises(message) as error:
        mrr(**{"qrels": {"q": ["d"]}, "run": {"q": ["d"]}, side: source})
    assert f"`{side}` should be files" in str(error.value)
    assert "or, on both sides, lists of the ids of each query." in str(error.value)


FINITE = "`qrels` should have a finite label in each row"
JUDGED = "query_id item_id label"
WRONG = [
    (table(JUDGED, ["q"], ["d"], [None]), FRAMES[1], FINITE),
    (table(JUDGED, ["q"], ["d"], [np.nan]), FRAMES[1], FINITE),
    (table(JUDGED, ["q"], ["d"], [pd.NaT]), FRAMES[1], FINITE),
    ({"a": ["x"]}, {"z": []}, "should have queries in common"),
    ({"a": ["x"]}, pd.DataFrame(), "`query` should name a column"),
    ([], [], "`qrels` should have rows"),
    ({1.5: ["a"]}, {1: ["a"]}, "DOUBLE in `qrels`, and BIGINT in `run`"),
    (FRAMES[0], table("query_id item_id rank", [1], [1], [1]), "`score` should name"),
    ([[1, 2, 3], (3, 4)], [[5], [3]], "pass `pandas.DataFrame(rows, columns="),
    ([[1], [2]], [[1], {2: 1}], "pass `pandas.DataFrame(rows, columns="),
    ([*np.array([("q", "d")], "U1,U1")], [["d"]], "pass `pandas.DataFrame(rows)`"),
    ([{1}, {2}], [[1], {2}], "`run` should be a dict of columns"),
    ([[1]], np.array([[[1]]]), "Received: an array of shape (1, 1, 1)"),
]


@pytest.mark.parametrize(("qrels", "run", "message"), WRONG)
def test_wrong_tables_and_lists(qrels, run, message):
    with raises(message):
        mrr(qrels, run)


# Judgments without labels.


@pytest.mark.parametrize("form", IN_MEMORY)
def test_tables_without_labels(form):
    columns = {"qid": ["q", "q", "r"], "docno": ["a", "b", "c"]}
    run = {"q": ["x", "b"], "r": ["c"]}

    def qrels(**more):
        return IN_MEMORY[form](pa.table({**columns, **more}))

    assert mrr(qrels(), run) == (1 / 2 + 1) / 2
    for more in ("grade", "rank"):
        with raises("`label` should name a column. Received: label='label'"):
            mrr(qrels(**{more: [1, 2, 1]}), run)
    with raises("`label` should name a column. Received: label='grade'"):
        mrr(qrels(), run, label="grade")


FILES = {
    "q.tsv": "query_id\tdoc_id\nq\t7\nq\t9\nr\t3\n",
    "q.csv": "QUERY,DOC_ID\nq,7\nq,9\nr,3\n",
    "lines": "q 7\nq 9\n\nr 3\n",
    "q.jsonl": '{"qid": "q", "docno": "7"}\n{"qid": "q", "docno": "9"}\n'
    '{"qid": "r", "docno": "3"}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_files_without_labels(tmp_path, capsys, name):
    (tmp_path / name).write_text(FILES[name])
    run = [("q", "5", 0.9), ("q", "9", 0.8), ("r", "3", 0.1)]
    frame = table("qid docno score", *zip(*run, strict=True))
    assert mrr(tmp_path / name, frame) == (1 / 2 + 1) / 2
    frame.to_csv(tmp_path / "run.csv", index=False)
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 0 {s} t\n" for q, d, s in run))
    for other in ("run", "run.csv"):
        files = [str(tmp_path / x) for x in (name, other)]
        assert run_command(["evaluate", *files, "-m", "mrr", "-o", "tsv"]) == 0
        assert "mrr\t0.75\t" in capsys.readouterr().out


def test_columns_without_names_or_labels_are_named_by_index(tmp_path):
    (qrels,) = write_texts(tmp_path, qrels="q\ta\nr\tb\n")
    run = {"q": ["a"], "r": ["x", "b"]}
    assert mrr(qrels, run, query="column0", item="column1") == (1 + 1 / 2) / 2


# Runs without retrieved items.

NOTHING = {
    "a dict of lists": lambda query: {query: []},
    "a dict of dicts": lambda query: {query: {}},
    "a dict of arrays": lambda query: {query: np.array([])},
    "a dict": lambda _: {},
    "a frame": lambda _: pd.DataFrame({"query_id": [], "item_id": [], "score": []}),
    "a frame of columns": lambda _: pd.DataFrame(columns=["qid", "docno", "score"]),
    "columns of lists": lambda query: {"query_id": [query], "item_id": [[]]},
    "run": "",
    "comments": "# nothing\n",
    "run.csv": "query_id,item_id,score\n",
    "run.json": "{}",
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("ids", [str, int])
def test_a_run_without_retrieved_items(tmp_path, name, ids):
    """A run without items counts as 0, as with `trec_eval -c`, and gives a warning."""
    run, (a, b, x) = NOTHING[name], map(ids, (1, 2, 3))
    run = write_texts(tmp_path, **{name: run}) if isinstance(run, str) else run(a)
    found = evaluate_run({a: [x], b: {x}}, run, ["mrr", "ndcg@5"], keep_items=2)
    assert found.to_dict() == {"mrr": 0.0, "ndcg@5": 0.0}
    assert found.per_list["query_id"].to_pylist() == [a, b]
    assert any("2 of 2 lists have no items with a score" in x for x in found.warnings)
    assert [row["item"] for row in found.ranking(a)] == [x]


def test_numbered_queries_without_retrieved_items():
    for run in ([[], []], np.zeros((2, 0), int), np.full((2, 3), -1)):
        found = evaluate_run([[1], [2]], run, ["mrr"])
        assert found.per_list["mrr"].to_pylist() == [0.0, 0.0]


def test_arrays_of_three_axes_are_errors():
    """An array of items and scores would be read as pairs, whose order is a guess."""
    run = np.array([[[7, 1], [5, 2]], [[3, 9], [4, 1]]])
    with raises("Received: an array of shape (2, 2, 2)"):
        evaluate_run([[7], [3]], run, ["mrr"])
    with raises("Received: an array of shape (2, 2, 2)"):
        evaluate_run(run, [[7], [3]], ["mrr"])


def test_an_empty_run_is_not_skipped():
    assert mrr({"a": ["x"], "b": ["y"]}, {"a": []}, missing="skip") == 0.0
    with raises("`run` should have rows. Received: none"):
        mrr({"a": ["x"]}, {}, missing="skip")


# Numbers of all libraries.

SCALARS = [
    *(np.float16(2), np.float32(2), np.int8(2), np.array(2), np.array(2.0)),
    *(True, np.bool_(True), decimal.Decimal(2), fractions.Fraction(2)),
]


def make_scalars(name):
    module = pytest.importorskip(name)
    if name == "torch":
        half = module.tensor(2.0, dtype=module.bfloat16)
        return [module.tensor(2), module.tensor(2.0, requires_grad=True), half]
    if name == "jax":
        return [module.numpy.float32(2), module.numpy.bfloat16(2)]
    return [module.constant(2), module.constant(2.0)]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "tensorflow"])
def test_scalars_of_any_library(library):
    for scalar in SCALARS if library == "numpy" else make_scalars(library):
        qrels, run = {"q": {"a": scalar, "b": 0}}, {"q": {"a": scalar, "b": 2.5}}
        assert mrr(qrels, run) == 1 / 2
        label = float(scalar.detach() if library == "torch" else scalar)
        if library != "torch" or not scalar.requires_grad:
            targets = targets_from_qrels(qrels, ["q"], ["a", "b"])
            assert targets["labels"].tolist() == [[label]]


INVALID_NUMBERS = [
    *("2", "high", b"2", [2], (2,), {"x": 2}, 2j, np.complex64(2), object()),
    *(np.array([2.0]), np.datetime64("2020-01-01"), pd.Timestamp(0), pd.NaT),
]


@pytest.mark.parametrize("value", INVALID_NUMBERS)
@pytest.mark.parametrize("others", [{}, {"b": 0}])
def test_values_that_are_not_numbers_are_named(value, others):
    wrong, right = {"q": {"a": value, **others}}, {"q": {"a": 1, **others}}
    place = "for the item 'a' of the query 'q'"
    for qrels, run, side in ((wrong, right, "qrels"), (right, wrong, "run")):
        with raises(f"`{side}` should have a number for each item. Received") as error:
            mrr(qrels, run)
        assert place in str(error.value)
    with raises(place):
        targets_from_qrels(wrong, ["q"], ["a", "b"])
    with raises(place):
        evaluate_run({"q": {"s": wrong["q"]}}, right, ["subtopic_recall@5"])


def test_pairs_in_place_of_lists():
    qrels, pairs = {"q": ["a"]}, [("a", 0.5), ("b", 0.4)]
    for found in (pairs, [list(x) for x in pairs], tuple(pairs)):
        assert mrr(qrels, {"q": found}) == 1.0
    for judged in (pairs, [list(x) for x in pairs], tuple(pairs)):
        with raises("query 'q'; pass the pairs as a dict of items and numbers"):
            mrr({"q": judged}, qrels)
    with raises("for the query 'q'"):
        mrr({"q": pd.Series({"a": 1, "b": 0})}, qrels)
    assert mrr({"q": pd.Series(["a"], index=[7])}, {"q": dict(pairs)}) == 1.0


# Names of columns.


BOTH_MEANT = [
    ("qid Doc_ID docno score", "'Doc_ID' and 'docno'", "item='Doc_ID' (--item"),
    ("qid corpus-id docid score", "'corpus-id' and 'docid'", "item='corpus-id'"),
    ("user_id qid docno score", "'user_id' and 'qid'", "query='user_id'"),
    ("docno user_id query score", "'user_id' and 'query'", "query='user_id'"),
    ("docno qid Score SCORE", "'Score' and 'SCORE'", "score='Score'"),
]


@pytest.mark.parametrize(("names", "both", "argument"), BOTH_MEANT)
def test_ambiguous_columns_are_errors(names, both, argument):
    run = table(names, ["q"], ["q"], ["q"], ["q"])
    with raises(f"and a table with {both}: say which, such as {argument}"):
        mrr({"q": ["q"]}, run)


def test_one_of_two_columns_of_ids():
    run = table("qid doc_id docno score", ["q"], [5], ["d"], [1.0])
    assert mrr({"q": ["d"]}, run, item="docno") == 1.0
    # The default name takes precedence over known names.
    assert mrr({"q": ["d"]}, run.rename(columns={"docno": "item_id"})) == 1.0
    # PyTerrier also has the number of a document in the index and the query's text.
    names = "qid docid docno rank score query"
    run = table(names, ["q"], [5], ["d"], [0], [1.0], ["what"])
    assert mrr({"q": ["d"]}, run) == 1.0
    labels = table("qid docno relevance rating", ["q"], ["d"], [1], [5])
    assert mrr(labels, run, label="rating") == 1.0


# Texts of errors and pages.


@pytest.mark.parametrize("rules", ["trec_eval", "keras"])
def test_labels_above_the_highest_grade(rules):
    qrels, run = {"a": {"x": 4}, "b": {"x": 7}}, {"a": ["x"], "b": ["x"]}
    with raises(
        "`metrics` should have the highest label as their `max_grade`. Received: "
        "'err@10' with max_grade=4, and the label 7 in the query 'b'. Pass "
        "`keras_rank.metrics.ExpectedReciprocalRank(k=10, max_grade=7)`"
    ):
        evaluate_run(qrels, run, ["mrr", "err@10"], rules=rules)
    metric = ExpectedReciprocalRank(k=10, max_grade=7)
    values = evaluate_run(qrels, run, [metric], rules=rules).per_list[metric.name]
    assert values.to_pylist() == pytest.approx([(2**4 - 1) / 2**7, (2**7 - 1) / 2**7])


def test_err_with_the_name_of_ir_measures():
    qrels, run = {"a": {"x": 3, "y": 1}}, {"a": {"y": 0.9, "x": 0.7}}
    first, second = (2**1 - 1) / 2**4, (2**3 - 1) / 2**4
    expected = first + (1 - first) * second / 2
    found = evaluate_run(qrels, run, ["ERR@10", "err@10", "ERR", "ERR@1"])
    values = list(found.to_dict().values())
    assert values == pytest.approx([*[expected] * 3, first])


def test_some_left_out_queries_are_named():
    found = evaluate_run({"a": ["x"]}, {q: ["x"] for q in "adcb"} | {"e": []}, ["mrr"])
    message = "of the run without judgments are left out (4): 'b', 'c', 'd', ..."
    assert any(message in x for x in found.warnings)


def test_ids_without_scores_have_no_scores():
    for run, scores in (
        ({"q": ["a", "b"]}, [None, None]),
        ({"q": {"a": 0, "b": -1}}, [0.0, -1.0]),
    ):
        items = evaluate_run({"q": ["b"]}, run, ["mrr"], keep_items=5).ranking("q")
        assert (items["rank"], items["score"]) == ([1, 2], scores)


def test_a_page_of_a_run(tmp_path):
    pytest.importorskip("matplotlib")
    qrels, page = {"q": ["b"], "r": ["c"]}, tmp_path / "page.html"
    found, base, scored = (
        evaluate_run(qrels, {"q": x, "r": y}, ["mrr"])
        for x, y in ((["a", "b"], ["d"]), (["b"], ["d"]), ({"a": 2, "b": 1}, {"d": 2}))
    )
    rows = evaluate({"query_id": [1, 1], "label": [1, 0], "score": [1, 2]}, ["mrr"])
    named = {"baseline": base, "names": ["DPR & co", "BM25"]}
    said = "<p>Model: DPR &amp; co. Baseline: BM25. 2 lists, "
    for evaluation, arguments, words, absent in (
        (found, named, said, "Tied items"),
        (found, {}, "evaluate_run(..., keep_items=10)", "Model: "),
        (scored, {}, "Tied items", "Model: "),
        (rows, {}, "evaluate(..., item=..., keep_items=10)", "Model: "),
    ):
        evaluation.report(page, **arguments)
        assert words in page.read_text("utf-8")
        assert absent not in page.read_text("utf-8")
    for names in (None, 5, ["DPR", "BM25"]):
        with raises("`names` should be a list with the name of the model"):
            found.report(page, names=names)


def test_the_command_names_the_files_of_a_page(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path, qrels="q 0 b 1", bm25='{"q": ["a"]}', dpr='{"q": ["b"]}')
    line = "report qrels dpr --baseline bm25 -o page.html"
    assert run_command(line.split()) == 0
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "Model: dpr. Baseline: bm25. 1 list" in text


# Judgments as targets.


def test_no_judgments_as_targets():
    with pytest.warns(UserWarning, match="without judgments"):
        targets = targets_from_qrels({}, ["q", "r"], ["a"])
    assert targets["ids"].tolist() == [[-1], [-1]]


# Pairs of an item and a score for each query, as retrievers return them.

PAIRS = {
    "tuples": [("x", 0.5), ("a", 0.9), ("b", 0.1)],
    "lists": [["x", 0.5], ["a", 0.9], ["b", 0.1]],
    "scalars": [("x", np.float32(0.5)), (np.str_("a"), np.int64(9)), ("b", None)][:2],
    "an array": np.array([("x", 0.5), ("a", 0.9)], object),
    "a structured array": np.array(
        [("x", 0.5), ("a", 0.9)], [("i", "U1"), ("s", "f4")]
    ),
    "bytes": [(b"x", 0.5), (b"a", decimal.Decimal("0.9"))],
}


@pytest.mark.parametrize("form", PAIRS)
def test_pairs_of_items_and_scores(form):
    """Pairs are ranked by their scores, and a query may have none."""
    assert mrr({"1": ["a"], "2": ["a"]}, {"1": PAIRS[form], "2": []}) == 0.5
    assert mrr([["a"], ["x", "y"]], [PAIRS[form], PAIRS[form]]) == (1 + 1 / 2) / 2


def test_pairs_of_integers(tmp_path):
    large = 2**60 + 1
    assert mrr({1: [large]}, {1: [(large, 0.1), (large - 1, 0.9)]}) == 0.5
    (run,) = write_texts(tmp_path, run='{"1": [["b", 0.9], ["a", 0.1]]}')
    assert mrr({"1": ["a"]}, run) == 0.5


def test_pairs_with_duplicates():
    qrels, run = {"1": ["a"]}, {"1": [("b", 0.7), ("a", 0.6), ("a", 0.9)]}
    with raises("Received twice: the item 'a' of the query '1', in a dict; `dupl"):
        mrr(qrels, run)
    assert mrr(qrels, run, duplicates="first") == 0.5
    assert mrr(qrels, run, duplicates="max") == 1.0


PAIRED, SUBTOPICS = "; pairs have an item and its score, in", "pass the groups as subto"
INVALID_PAIRS = [
    # Queries have different forms.
    ({"1": ["a"]}, {"1": [("a", 0.9)], "2": {"a": 0.9}}, PAIRED),
    (
        {"1": ["a"]},
        {"1": [("a", 0.9)], "2": ["a"]},
        "for the query '2'; either all queries or none should have ids with scores",
    ),
    (
        {"1": {"a": 1}, "2": ["a"]},
        {"1": ["a"]},
        "for the query '2'; either all queries or none should have ids with labels",
    ),
    ({"1": ["a"]}, {"1": [("a", 0.9), "b"]}, PAIRED),
    ({"1": ["a"]}, {"1": ("a", 0.9)}, "Received: ('a', 0.9), for the query '1'"),
    # The score comes first, is a text, or has a third value after it.
    ({"1": ["a"]}, {"1": [(0.9, "a")]}, PAIRED),
    ({"1": ["a"]}, {"1": [("a", "0.9")]}, PAIRED),
    ({"1": ["a"]}, {"1": [("a", 0.9, 1)]}, PAIRED),
    ({"1": ["a"]}, {"1": [(True, 0.9)]}, PAIRED),
    ({"1": ["a"]}, {"1": [("a", None)]}, "a score in each row. Received: 1 without"),
    ({"1": ["a"]}, {"1": [["a", "b"], ["c", "d"]]}, PAIRED),
    # Groups of items, of which any item may be relevant, should be subtopics.
    ({"1": [["a", "b"], ["c"]]}, {"1": ["a"]}, SUBTOPICS),
    ({"1": [["a", "b"], ["c", "d"]]}, {"1": ["a"]}, SUBTOPICS),
    ({"1": [[1, 2], [3, 4]]}, {"1": [1]}, SUBTOPICS),
    ({"1": [("a", 1), ("b", 0)]}, {"1": ["a"]}, "; pass the pairs as a dict"),
    ({"1": [["a", 0.5], ["b", 1.0]]}, {"1": ["a"]}, "; pass the pairs as a dict"),
    ({"1": [["a", 1], ["b", 0]]}, {"1": ["a"]}, "; pass the pairs as a dict"),
]


@pytest.mark.parametrize(("qrels", "run", "message"), INVALID_PAIRS)
def test_invalid_pairs_are_errors(qrels, run, message):
    with raises(message):
        mrr(qrels, run)


@pytest.mark.slow
def test_the_first_or_the_highest_of_duplicate_judgments(tmp_path):
    (file,) = write_texts(tmp_path, qrels="q 0 a 0\nq 0 a 2\nq 0 b 1\n")
    ids = {"query_id": ["q"] * 3, "item_id": list("aab"), "label": [0, 2, 1]}
    for qrels in (file, ids):
        with raises("`qrels` should have each item of a query once.") as error:
            mrr(qrels, {"q": ["a", "b"]})
        assert str(error.value).endswith(
            '`duplicates="first"` or "max" counts one of them'
        )
        assert mrr(qrels, {"q": ["a", "b"]}, duplicates="first") == 0.5
        assert mrr(qrels, {"q": ["a", "b"]}, duplicates="max") == 1.0
    recall = evaluate_run(
        {"q": ["a", "a"]}, {"q": ["a"]}, ["recall"], duplicates="first"
    )
    assert recall["recall"] == 1.0
    (file,) = write_texts(tmp_path, qrels="q 1 a 1\nq 1 a 0\nq 2 a 1\nq 2 b 1\n")
    found = evaluate_run(file, {"q": ["a"]}, ["StRecall@1"], duplicates="first")
    assert found["StRecall@1"] == 1.0


OF_BYTES = {
    "dicts": ({b"1": {b"a": 1}}, {"1": {"x": 0.9, "a": 0.8}}),
    "both dicts": ({b"1": {b"a": 1}}, {b"1": {b"x": 0.9, b"a": 0.8}}),
    "lists": ({"1": ["a"]}, {b"1": [b"x", b"a"]}),
    "sets": ({b"1": {b"a"}}, {"1": ["x", "a"]}),
    "mixed": ({b"1": ["a", b"b"]}, {"1": [b"x", "a"]}),
    "arrays": ({"1": np.array([b"a"])}, {"1": np.array([b"x", b"a"])}),
    "in order": ([[b"a"]], [["x", "a", "b"]]),
    "one id each": ([b"a"], np.array([[b"x", b"a", b"b"]])),
    "columns": (
        table("query_id item_id label", [b"1"], [b"a"], [1]),
        {"1": ["x", "a"]},
    ),
    "lists in columns": (
        pa.table({"query_id": [b"1"], "item_id": [[b"a"]]}),
        pa.table({"query_id": ["1"], "item_id": [["x", "a"]]}),
    ),
    "categories": (
        pa.table({"query_id": pa.array([b"1"]).dictionary_encode(), "item_id": [b"a"]}),
        {"1": ["x", "a"]},
    ),
    "beside integers": ({1: [7]}, {b"1": [b"8", b"7"]}),
}


@pytest.mark.parametrize("form", OF_BYTES)
def test_ids_of_bytes(form):
    found = evaluate_run(*OF_BYTES[form], ["mrr"])
    assert found["mrr"] == 0.5
    assert found.per_list["query_id"].to_pylist() in (["1"], [0])


def test_ids_of_bytes_are_text_in_utf_8():
    assert mrr({"é": ["ü"]}, {"é".encode(): ["ü".encode()]}) == 1.0
    for qrels in ({b"1": [b"\xff"]}, {b"\xff": [b"a"]}):
        with raises("`qrels` should have ids that are text, or bytes of text in UTF-8"):
            mrr(qrels, {"1": ["a"]})
