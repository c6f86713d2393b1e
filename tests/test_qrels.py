"""Judgments of a search collection: the numbers of trec_eval on the full ranking."""

import gzip
import json
import re
import sys

import numpy as np
import pytest

from keras_rank import catalogue, metrics
from keras_rank.utils import targets_from_qrels

pytestmark = pytest.mark.programs

QUERIES, ITEMS = ["q2", "q1", "q3"], ["d1", "d2", "d3", "d4"]
QRELS = {"q1": {"d1": 2, "d3": 0, "d4": 1}, "q2": {"d2": 1}, "q3": {"d1": -1}}
EXPECTED = {
    "ids": [[1, -1], [0, 3], [-1, -1]],
    "labels": [[1.0, -1.0], [2.0, 1.0], [-1.0, -1.0]],
}


def rows_of(qrels):
    return [(q, d, g) for q, row in qrels.items() for d, g in row.items()]


def trec_file(folder):
    path = folder / "qrels.txt"
    path.write_text("".join(f"{q} 0 {d} {g}\n" for q, d, g in rows_of(QRELS)))
    return path


def beir_file(folder):
    path = folder / "test.tsv"
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, r)) for r in rows())]
    path.write_text("\n".join(lines) + "\n")
    return path


def file_without_header(folder):
    path = folder / "test.tsv"
    path.write_text("\n".join("\t".join(map(str, row)) for row in rows()))
    return path


def file_with_blank_lines(folder):
    path = beir_file(folder)
    path.write_text("\n" + path.read_text().replace("\n", "\n \n"))
    return path


def rows():
    return rows_of(QRELS)


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: QRELS,
        lambda folder: rows(),
        lambda folder: iter(rows()),
        trec_file,
        beir_file,
        lambda folder: str(beir_file(folder)),
        file_without_header,
        file_with_blank_lines,
        lambda folder: np.array(rows(), dtype=object),
    ],
)
def test_any_form_of_judgments(given, tmp_path):
    found = targets_from_qrels(given(tmp_path), QUERIES, ITEMS)
    assert {name: x.tolist() for name, x in found.items()} == EXPECTED


def test_rows_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows(), columns=["query", "item", "grade"])
    found = targets_from_qrels(frame.itertuples(index=False), QUERIES, ITEMS)
    assert {name: x.tolist() for name, x in found.items()} == EXPECTED


@pytest.mark.parametrize("form", ["array", "chunked_array"])
def test_ids_of_pyarrow(form):
    pyarrow = pytest.importorskip("pyarrow")
    queries, items = (
        pyarrow.chunked_array([x]) if form == "chunked_array" else pyarrow.array(x)
        for x in (QUERIES, ITEMS)
    )
    found = targets_from_qrels(QRELS, queries, items)
    assert {name: x.tolist() for name, x in found.items()} == EXPECTED


def test_ids_of_torch():
    torch = pytest.importorskip("torch")
    found = targets_from_qrels({7: {5: 1}}, torch.tensor([7]), torch.tensor([4, 5]))
    assert found["ids"].tolist() == [[1]]


def test_what_is_missing_is_told():
    with pytest.warns(UserWarning, match=r"`query_ids` without judgments \(1\): 'q4'"):
        found = targets_from_qrels(QRELS, [*QUERIES, "q4"], ITEMS)
    assert found["ids"][3].tolist() == [-1, -1]
    message = r"Relevant items .* not in `item_ids` \(2\): 'd1', 'd4'"
    with pytest.warns(UserWarning, match=message):
        found = targets_from_qrels(QRELS, QUERIES, ["d2", "d3"])
    assert found["ids"].tolist() == [[0, -1], [-2, -2], [-1, -1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((QRELS, ["q1"], ITEMS), "judgments of other queries (2): 'q2', 'q3'"),
        ((QRELS, ["q1", "q1"], ITEMS), "`query_ids` should hold each id once"),
        (
            ([*rows(), ("q1", "d1", 3)], QUERIES, ITEMS),
            "item 'd1' twice for query 'q1'",
        ),
        (([("q1",)], QUERIES, ITEMS), "tuples of a query, an item and a number"),
        (([(["q1"], "d1", 1)], QUERIES, ITEMS), "Received: (['q1'], 'd1', 1) as row 0"),
        (([("q1", ["d1"], 1)], QUERIES, ITEMS), "Received: ('q1', ['d1'], 1) as row 0"),
        (({"q1": "d1"}, QUERIES, ITEMS), "Received: 'd1', for the query 'q1'"),
        (({"q1": {"d1": "1"}}, QUERIES, ITEMS), "finite numbers as grades"),
        (({"q1": {"d1": 2**60}}, QUERIES, ITEMS), "grades, and integers below 2**53"),
        (({"q1": {"d1": "high"}}, QUERIES, ITEMS), "finite numbers as grades"),
        (({"q1": {"d1": np.nan}}, QUERIES, ITEMS), "finite numbers as grades"),
        (({"q1": {"d1": "1_0"}}, QUERIES, ITEMS), "finite numbers as grades"),
        (({"q1": {"d1": 1e300}}, QUERIES, ITEMS), "finite numbers as grades"),
        ((QRELS, QUERIES, [1, 2, 3]), "Received: 1, 2, 3, and none of the 3"),
        ((QRELS, QUERIES, np.arange(3)), "Received: 0, 1, 2, and none of the 3"),
        ((QRELS, iter(QUERIES), ITEMS), "`query_ids` should be a sequence of ids"),
        ((QRELS, QUERIES, np.array([ITEMS])), "Received: [['d1', 'd2', 'd3', 'd4']]"),
        ((QRELS, QUERIES, [*ITEMS, ["d5"]]), "`item_ids` should be a sequence of ids"),
        ((QRELS, "q1", ITEMS), "of ids. Received: a single id, 'q1'"),
        ((QRELS, QUERIES, "d1"), "`item_ids` should be a sequence of ids"),
        ((QRELS, 3, ITEMS), "`query_ids` should be a sequence of ids"),
        ((3, QUERIES, ITEMS), "`qrels` should be a dict, rows of a query, an item"),
        (({"q1": {"x": 0}}, ["q1"], ITEMS), "none of the 1 of `qrels`, 'x'"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        targets_from_qrels(*arguments)


def test_a_line_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q1 0 d1 1\nq1 d2 1\n")
    with pytest.raises(ValueError, match=r"Received: line 2 of .*, 'q1 d2 1'"):
        targets_from_qrels(path, QUERIES, ITEMS)
    path.write_bytes("q1 0 d1 1\n".encode("utf-16"))
    with pytest.raises(ValueError, match="text in UTF-8"):
        targets_from_qrels(path, QUERIES, ITEMS)
    path.write_text("q1\td1\tnan\nq1\td2\t1\n")
    with pytest.raises(ValueError, match=r"a number as label. Received: line 1 of"):
        targets_from_qrels(path, QUERIES, ITEMS)
    path.write_text("q 1\td1\t1\nq 1\td2\n")
    with pytest.raises(ValueError, match=r"line 2 of .*Expected 3 columns, got 2"):
        targets_from_qrels(path, QUERIES, ITEMS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1\td1\t1\nq1\td2\t2,0\n", "line 2 of {}, 'q1\\td2\\t2,0'"),
        ("q1\td1\t2,0\nq1\td2\t1\n", "{} with the columns ['q1', 'd1', '2,0']"),
        ("q1 d1 high\nq1 d2 1\n", "line 1 of {}, 'q1 d1 high'"),
        ("\nq1 d1 high\n", "line 2 of {}, 'q1 d1 high'"),
        ("q1 0 d1 1\nq1 0 d1 0\n", "in line 1 of {0} and line 2 of {0}"),
        ("query-id\tcorpus-id\tscore\n\nq 1\td2\tx\n", "'x' in line 3 of {}"),
        ("q1 0 d1 1\n\nq1 d2 1\n", "line 3 of {}, 'q1 d2 1'"),
        ('{"q1": {"d1": 1, "d1": 0}}', "Received twice: 'd1', in {}"),
        ('[["q1", "d1", 1]]', 'number 1: ["q1", "d1", 1]'),
    ],
)
def test_files_that_are_not_understood(text, message, tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message.format(path))):
        targets_from_qrels(path, ["q1", "q"], ITEMS)


def test_files_need_an_extra_and_dicts_do_not(monkeypatch, tmp_path):
    for name in list(sys.modules):
        if name.startswith("keras_rank.reading"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for qrels in (QRELS, rows()):
        targets_from_qrels(qrels, QUERIES, ITEMS)
    message = r"the extra `evaluation` installs: `pip install .duckdb>=2. pyarrow`"
    with pytest.raises(ImportError, match=message):
        targets_from_qrels(trec_file(tmp_path), QUERIES, ITEMS)


def csv_text():
    rows_ = "".join(f"{q};{d};{g}\r\n" for q, d, g in rows())
    return f"query_id;item_id;label\r\n{rows_}"


def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows(), columns=["qid", "docno", "label"])


def parquet_file(folder):
    frame().to_parquet(folder / "qrels.parquet")
    return folder / "qrels.parquet"


def text_file(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: frame(),
        lambda folder: frame().to_dict("list"),
        lambda folder: [trec_file(folder)],
        parquet_file,
        lambda folder: text_file(folder, "qrels.csv", csv_text().encode()),
        lambda folder: text_file(
            folder, "qrels.csv.gz", gzip.compress(csv_text().encode())
        ),
        lambda folder: text_file(
            folder, "q.json", json.dumps(QRELS, indent=1).encode()
        ),
        lambda folder: text_file(
            folder,
            "q",
            b"#x\n" + trec_file(folder).read_bytes().replace(b"\n", b"\r", 2),
        ),
        lambda folder: text_file(
            folder,
            "q.tsv",
            b"".join(f"{q}\t{d}\t{g}\t0\n".encode() for q, d, g in rows()),
        ),
    ],
)
def test_all_that_evaluate_run_reads(given, tmp_path):
    found = targets_from_qrels(given(tmp_path), QUERIES, ITEMS)
    assert {name: x.tolist() for name, x in found.items()} == EXPECTED


@pytest.mark.parametrize("relevant", [["d3"], {"d3"}])
def test_relevant_items_without_grades(relevant):
    targets = targets_from_qrels({"q": relevant}, ["q"], ITEMS)
    assert targets["ids"].tolist() == [[2]]
    assert targets["labels"].tolist() == [[1.0]]


def test_the_numbers_of_trec_eval(rng):
    """Self-matches left out, and judged items that are no candidates."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    queries = rng.normal(size=(30, 8)).astype("float32")
    items = rng.normal(size=(400, 8)).astype("float32")
    query_ids = [f"d{i}" for i in range(30)]
    item_ids = [f"d{i}" for i in range(400)]
    qrels = {
        query: {
            f"d{item}": int(rng.integers(0, 4))
            for item in rng.choice(np.arange(30, 420), 25, replace=False)
        }
        for query in query_ids
    }
    with pytest.warns(UserWarning, match="are not in `item_ids`"):
        targets = targets_from_qrels(qrels, query_ids, item_ids)
    own = np.arange(30)[:, None]
    found = catalogue.evaluate(
        targets,
        queries,
        items,
        [
            metrics.NDCG(k=10, gain_fn="linear", name="ndcg"),
            metrics.MeanAveragePrecision(k=100, name="map"),
            metrics.RecallAtK(k=100, name="recall"),
            metrics.MeanReciprocalRank(name="mrr"),
        ],
        exclude=own,
    )
    scores = queries @ items.T
    run = {
        query: {d: float(s) for d, s in zip(item_ids, row, strict=True) if d != query}
        for query, row in zip(query_ids, scores, strict=True)
    }
    measures = {"ndcg_cut_10", "map_cut_100", "recall_100", "recip_rank"}
    values = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run).values()
    for name, measure in zip(
        ("ndcg", "map", "recall", "mrr"),
        ("ndcg_cut_10", "map_cut_100", "recall_100", "recip_rank"),
        strict=True,
    ):
        expected = np.mean([each[measure] for each in values])
        assert found[name] == pytest.approx(expected, abs=1e-6)
