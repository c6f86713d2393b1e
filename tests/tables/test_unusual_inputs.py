"""Values and errors for unusual dicts, files and columns."""

import collections
import enum
import fractions
import json

import numpy as np
import pandas as pd
import pytest
from commands import run_command
from keras import ops
from tables import raises, write_texts

from keras_rank.callbacks import GroupedEvaluation
from keras_rank.evaluation import Evaluation, evaluate, evaluate_run

QRELS, RUN = {"q": {"a": 1, "b": 0}}, {"q": {"a": 0.5, "b": 0.6}}


class Text(str, enum.Enum):  # noqa: UP042 -- `str` of a `StrEnum` is its value
    A, B, Z = "a", "b", "z"


class Lazy(dict):
    """A dict that creates its values on access, as a shelf does."""

    def __getitem__(self, key):
        return {"a": 1.0}

    def values(self):
        return [self[key] for key in self]

    def items(self):
        return [(key, self[key]) for key in self]


def compute_values(qrels, run, **arguments):
    """Returns the values of queries, which are equal with and without DuckDB."""
    found = [
        evaluate_run(qrels, run, ["mrr"], memory_limit=limit, **arguments).per_list
        for limit in (None, "1GB")
    ]
    assert found[0].equals(found[1])
    return found[0]["mrr"].to_pylist()


def test_members_of_enumerations_are_text():
    """Members of text enumerations are ids, although `str` returns other texts."""
    qrels = {"q": {"a": 1}}
    assert compute_values(qrels, {"q": {"a": 1.0, Text.B: 1.0}}) == [0.5]
    qrels, run = {"z": {"a": 1, Text.A: 1}}, {"z": {"a": 0.5, Text.Z: 0.9}}
    assert compute_values(qrels, run) == [0.5]
    assert compute_values(qrels, run, ignore_identical_ids=True) == [1.0]


@pytest.mark.parametrize(
    "kind",
    [
        collections.OrderedDict,
        collections.Counter,
        lambda x: collections.defaultdict(float, x),
        collections.UserDict,
    ],
)
def test_dicts_of_other_types(kind):
    run = kind({"q": kind({"a": 0.5, "b": 0.6})})
    assert compute_values(QRELS, run) == [0.5]
    assert list(run) == ["q"]
    assert list(run["q"]) == ["a", "b"]


def test_dicts_that_load_their_values():
    assert compute_values({"q": {"a": 1}}, Lazy(q=None)) == [1.0]


def recursive():
    found = {}
    found["q"] = found
    return found


TENSORS = {"q": [ops.convert_to_tensor([1, 2]), ops.convert_to_tensor([3, 4])]}
WRONG = [
    (recursive(), RUN, "`qrels` should have a number for each item. Received: "),
    (QRELS, {"q": {"a": {}}}, "`run` should have a number for each item. Received: {}"),
    (TENSORS, {"q": [1]}, "`qrels` should be a dict of columns, or have a dict"),
    ({"q": [1]}, TENSORS, "`run` should be a dict of columns, or have a dict"),
    (QRELS, {"q": {"a": fractions.Fraction(10**400)}}, "`run` should have a number"),
    ({"q": {"\ud800": 1}}, RUN, "`qrels` should have ids of one type, integers below"),
    (b"qrels", RUN, "`qrels` should be files (Parquet, CSV, JSON lines or Arrow), or"),
]


@pytest.mark.parametrize(("qrels", "run", "message"), WRONG)
def test_wrong_dicts(qrels, run, message):
    with raises(message):
        evaluate_run(qrels, run, ["mrr"])


def test_padding_of_subtopics_is_not_an_item():
    """The id -1 is padding at the end of a list of a subtopic, and an error before."""
    metrics = ["alpha_ndcg@5"]
    found = evaluate_run({"q": {"s": [1, -1]}}, {"q": [1]}, metrics)
    assert found["alpha_ndcg@5"] == 1.0
    with raises("`qrels` should be a dict of columns, or have a dict of items"):
        evaluate_run({"q": {"s": [-1, 1]}}, {"q": [1]}, metrics)


def test_scores_of_float16():
    scores = {"a": np.float16(0.5), "b": np.float16(0.75)}
    assert compute_values(QRELS, {"q": scores}) == [0.5]
    assert compute_values(QRELS, {"q": list(scores.items())}) == [0.5]


@pytest.mark.parametrize("values", [{3, 0, 1}, frozenset("abc"), "abc", b"abc"])
@pytest.mark.parametrize("name", ["item_id", "label"])
def test_sets_and_texts_are_not_columns(name, values):
    rows = {"query_id": ["q"] * 3, "item_id": ["a", "b", "c"], "label": [1, 0, 0]}
    rows |= {"score": [0.3, 0.2, 0.1], name: values}
    with raises("`rows` should be files (Parquet, CSV, JSON lines or Arrow), or a"):
        evaluate(rows, ["mrr"])
    with raises("`qrels` should be files (Parquet, CSV, JSON lines or Arrow), or a"):
        evaluate_run(rows, RUN, ["mrr"])


def test_integers_that_are_too_large():
    rows = {"query_id": [2**70, 2**70], "label": [1, 0], "score": [1, 2]}
    with raises("`rows` should be a table that can be read"):
        evaluate(rows, ["mrr"])
    columns = {"query_id": ["q"], "item_id": ["a"], "score": [10**400]}
    with raises("`run` should be a table that can be read"):
        evaluate_run(QRELS, columns, ["mrr"])


@pytest.mark.parametrize("blank", ["\n" * 20_000, " " * 20_000 + "\n", "\n" * 300_000])
def test_blank_starts_of_files(tmp_path, blank):
    qrels, run, nested, rows = write_texts(
        tmp_path,
        qrels=blank + "q 0 a 1\nq 0 b 0\n",
        run=blank + "q Q0 a 1 0.5 t\nq Q0 b 2 0.6 t\n",
        nested=blank + json.dumps(RUN),
        rows=blank + "query_id,label,score\nq,1,0.5\nq,0,0.6\n",
    )
    for found in (run, nested, RUN):
        assert evaluate_run(qrels, found, ["mrr"])["mrr"] == 0.5
    assert evaluate(rows, ["mrr"])["mrr"] == 0.5


def test_invalid_json_values(tmp_path, capsys):
    digits = "9" * 5_000
    qrels, twice, large = write_texts(
        tmp_path,
        qrels=f'{{"q": {{"a": {digits}}}}}',
        twice='{"q": {"a": 1, "a": 0}}',
        large='{"query_id": "q", "item_id": [99999999999999999999999]}\n',
    )
    for file, reason in ((qrels, "4300 digits"), (twice, "each key once"), (large, "")):
        with raises(f"`qrels` should be a table that can be read. Received: {file}"):
            evaluate_run(file, RUN, ["mrr"])
        _, run = write_texts(tmp_path, x="", run="q Q0 a 1 0.5 t\n")
        assert run_command(["evaluate", str(file), str(run), "-m", "mrr"]) == 2
        assert reason in capsys.readouterr().err


def test_long_ids_are_shortened_in_errors(tmp_path):
    with raises("with judgments of queries such as '1111") as found:
        evaluate_run({"1" * 10_000: ["a"]}, {"q": ["a"]}, ["mrr"])
    assert len(str(found.value)) < 1_000


def test_files_that_cannot_be_written_or_read(tmp_path):
    found = evaluate_run(QRELS, RUN, ["mrr"])
    for suffix in ("parquet", "csv", "json"):
        with raises("`path` should name a file that ends in"):
            found.write(tmp_path / "absent" / f"lists.{suffix}")
    (path,) = write_texts(tmp_path, **{"lists.parquet": "no Parquet"})
    with raises("`path` should be a table that can be read"):
        Evaluation.read(path)


def test_an_error_does_not_change_a_page(tmp_path):
    pytest.importorskip("matplotlib")
    (path,) = write_texts(tmp_path, **{"page.html": "before"})
    with pytest.raises(UnicodeEncodeError):
        evaluate_run(QRELS, RUN, ["mrr"]).report(path, title="\ud800")
    assert path.read_text() == "before"


def test_invalid_names_of_columns():
    rows = {"query_id": ["q"], "label": [1], "score": [0.5]}
    with raises("`keep` should be names of columns. Received: keep=5"):
        evaluate(rows, ["mrr"], keep=5)
    with raises("`score` should be one column"):
        evaluate(rows, ["mrr"], score=[])
    for by in (5, [["query_id"]]):
        with raises("`by` should be names of columns. Received: by="):
            evaluate(rows, ["mrr"]).summary(by=by)


@pytest.mark.parametrize("ids", [5, {1, 2}, {1: 2}, (x for x in (1, 2))])
def test_group_ids_are_an_array(ids):
    with raises("`group_ids` should be an array or a list of values for rows"):
        GroupedEvaluation(np.ones((2, 3)), [1, 0], ids, ["mrr"])


def test_group_ids_may_be_a_column_of_a_table():
    ids = pd.DataFrame({"query": ["a", "a"]})
    GroupedEvaluation(np.ones((2, 3)), [1, 0], ids, ["mrr"], by=ids)
