"""`targets_from_qrels`: judgments of a search collection as targets in a catalog."""

import gzip
import sys

import numpy as np
import pandas
import pytest
from tables import raises

from keras_rank import catalogue, metrics
from keras_rank.utils import targets_from_qrels

pytestmark = pytest.mark.programs

QUERIES, ITEMS = ["q2", "q1", "q3"], ["d1", "d2", "d3", "d4"]
QRELS = {"q1": {"d1": 2, "d3": 0, "d4": 1}, "q2": {"d2": 1}, "q3": {"d1": -1}}
EXPECTED = {"ids": [[1, -1], [0, 3], [-1, -1]], "labels": [[1, -1], [2, 1], [-1, -1]]}


ROWS = [(q, d, g) for q, row in QRELS.items() for d, g in row.items()]
TREC = "{} 0 {} {}\n"
FRAME = pandas.DataFrame(ROWS, columns=["qid", "docno", "label"])
BEIR, TABS = "query-id\tcorpus-id\tscore\n", "{}\t{}\t{}\n"


def write_file(folder, name, content):
    if isinstance(content, str):
        content = content.encode()
    (folder / name).write_bytes(content)
    return folder / name


def format_rows(line):
    return "".join(line.format(*row) for row in ROWS)


FORMS = {
    "nested": lambda folder: QRELS,
    "a frame": lambda folder: FRAME,
    "columns": lambda folder: FRAME.to_dict("list"),
    "files": lambda folder: [write_file(folder, "qrels", format_rows(TREC))],
    "a path as text": lambda folder: str(
        write_file(folder, "qrels.txt", format_rows(TREC))
    ),
    "parquet": lambda folder: write_file(folder, "q.parquet", FRAME.to_parquet()),
}
SEMICOLONS = "query_id;item_id;label\r\n" + format_rows("{};{};{}\r\n")
FILES = {
    "blank.tsv": "\n" + f"{BEIR}{format_rows(TABS)}".replace("\n", "\n \n"),
    "q.csv.gz": gzip.compress(SEMICOLONS.encode()),
    "comment": "#x\n" + format_rows(TREC).replace("\n", "\r", 2),
}


def targets_as_lists(*inputs):
    return {name: x.tolist() for name, x in targets_from_qrels(*inputs).items()}


@pytest.mark.parametrize("form", [*FORMS, *FILES])
def test_judgments_of_any_form(form, tmp_path):
    make = FORMS.get(form, lambda folder: write_file(folder, form, FILES[form]))
    assert targets_as_lists(make(tmp_path), QUERIES, ITEMS) == EXPECTED


def test_ids_may_be_arrays_of_pyarrow():
    arrow = pytest.importorskip("pyarrow")
    for convert in (arrow.array, lambda x: arrow.chunked_array([x])):
        assert targets_as_lists(QRELS, *map(convert, (QUERIES, ITEMS))) == EXPECTED


def test_ids_may_be_tensors_of_torch():
    torch = pytest.importorskip("torch")
    targets = targets_as_lists({7: {5: 1}}, torch.tensor([7]), torch.tensor([4, 5]))
    assert targets["ids"] == [[1]]


def test_missing_judgments_and_items_are_warned_about():
    with pytest.warns(UserWarning, match=r"`query_ids` without judgments \(1\): 'q4'"):
        targets = targets_as_lists(QRELS, [*QUERIES, "q4"], ITEMS)
    assert targets["ids"][3] == [-1, -1]
    message = r"Relevant items .* not in `item_ids` \(2\): 'd1', 'd4'"
    with pytest.warns(UserWarning, match=message):
        targets = targets_as_lists(QRELS, QUERIES, ["d2", "d3"])
    assert targets["ids"] == [[0, -1], [-2, -2], [-1, -1]]


GRADES = "finite numbers as grades"
AS_TABLE = ". If it has a row for each judgment, pass `pandas.DataFrame(rows, columns=["


WRONG = [
    (QRELS, ["q1"], ITEMS, "judgments of other queries (2): 'q2', 'q3'"),
    (QRELS, ["q1", "q1"], ITEMS, "`query_ids` should hold each id once"),
    (pandas.concat([FRAME, FRAME]), QUERIES, ITEMS, "Received twice: the item 'd"),
    *((x, QUERIES, ITEMS, AS_TABLE) for x in (ROWS, iter(ROWS), FRAME.itertuples())),
    (np.array(ROWS, object), QUERIES, ITEMS, f"Received: ndarray{AS_TABLE}"),
    ({"q1": "d1"}, QUERIES, ITEMS, "Received: 'd1', for the query 'q1'"),
    *(({"q1": {"d1": x}}, QUERIES, ITEMS, GRADES) for x in ("1", np.nan, 1e300)),
    ({"q1": {"d1": 2**60}}, QUERIES, ITEMS, f"{GRADES}, and integers below 2**53"),
    (QRELS, QUERIES, np.arange(3), "Received: 0, 1, 2, and none of the 3"),
    (QRELS, iter(QUERIES), ITEMS, "`query_ids` should be a sequence of ids that"),
    (QRELS, QUERIES, np.array([ITEMS]), "Received: [['d1', 'd2', 'd3', 'd4']]"),
    (QRELS, QUERIES, [*ITEMS, ["d5"]], "`item_ids` should be a sequence of ids that"),
    (QRELS, "q1", ITEMS, "of ids. Received: a single id, 'q1'"),
    (3, QUERIES, ITEMS, "`qrels` should be a dict, a table, or the path of a"),
    ({"q1": {"x": 0}}, ["q1"], ITEMS, "none of the 1 of `qrels`, 'x'"),
]


@pytest.mark.parametrize(("qrels", "queries", "items", "message"), WRONG)
def test_wrong_judgments_are_errors(qrels, queries, items, message):
    with raises(message):
        targets_from_qrels(qrels, queries, items)


WRONG_FILES = [
    ("q1\td1\t1\nq1\td2\t2,0\n", "line 2 of {}, 'q1\\td2\\t2,0'"),
    ("q1\td1\t2,0\nq1\td2\t1\n", "{}. Known names are ['q1', 'd1', '2,0']"),
    ("q1 d1 high\nq1 d2 1\n", "line 1 of {}, 'q1 d1 high'"),
    ("\nq1 d1 high\n", "line 2 of {}, 'q1 d1 high'"),
    ("query-id\tcorpus-id\tscore\n\nq 1\td2\tx\n", "'x' in line 3 of {}"),
    ("q1 0 d1 1\n\nq1 d2 1\n", "line 3 of {}, 'q1 d2 1'"),
    ('[["q1", "d1", 1]]', "Received: a list, in {}: write JSON lines"),
    ("q1 0 d1 1\n".encode("utf-16"), "text in UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_FILES)
def test_malformed_files_are_errors(text, message, tmp_path):
    path = write_file(tmp_path, "qrels.txt", text)
    with raises(message.format(path)):
        targets_from_qrels(path, ["q1", "q"], ITEMS)


def test_files_need_an_extra_but_dicts_do_not(monkeypatch, tmp_path):
    for name in list(sys.modules):
        if name.startswith("keras_rank.reading"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    targets_from_qrels(QRELS, QUERIES, ITEMS)
    message = r"the extra `evaluation` installs: `pip install .duckdb>=2. pyarrow`"
    with pytest.raises(ImportError, match=message):
        targets_from_qrels(
            write_file(tmp_path, "qrels", format_rows(TREC)), QUERIES, ITEMS
        )


@pytest.mark.parametrize("relevant", [["d3"], {"d3"}])
def test_relevant_items_without_grades(relevant):
    targets = targets_as_lists({"q": relevant}, ["q"], ITEMS)
    assert targets == {"ids": [[2]], "labels": [[1.0]]}


@pytest.mark.compiles_long
def test_values_equal_those_of_trec_eval(rng):
    """Self-matches are excluded, and some judged items are no candidates."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    queries, items = (rng.normal(size=(n, 8)).astype("float32") for n in (30, 400))
    query_ids, item_ids = ([f"d{i}" for i in range(n)] for n in (30, 400))

    def judged():
        some = rng.choice(np.arange(30, 420), 25, replace=False)
        return {f"d{item}": int(rng.integers(0, 4)) for item in some}

    qrels = {query: judged() for query in query_ids}
    with pytest.warns(UserWarning, match="are not in `item_ids`"):
        targets = targets_from_qrels(qrels, query_ids, item_ids)
    measures = [
        metrics.NDCG(k=10, gain_fn="linear", name="ndcg_cut_10"),
        metrics.MeanAveragePrecision(k=100, name="map_cut_100"),
        metrics.RecallAtK(k=100, name="recall_100"),
        metrics.MeanReciprocalRank(name="recip_rank"),
    ]
    own = np.arange(30)[:, None]
    results = catalogue.evaluate(targets, queries, items, measures, exclude=own)
    run = {
        query: {d: float(s) for d, s in zip(item_ids, row, strict=True) if d != query}
        for query, row in zip(query_ids, queries @ items.T, strict=True)
    }
    values = pytrec_eval.RelevanceEvaluator(qrels, {*results}).evaluate(run).values()
    for name, value in results.items():
        assert value == pytest.approx(np.mean([x[name] for x in values]), abs=1e-6)
