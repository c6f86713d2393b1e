"""How results are shown: in the terminal, in notebooks, as files and as pictures."""

import json

import numpy as np
import pytest
from tables import rows_of

from keras_rank.evaluation import Table, compare, evaluate

NAN = float("nan")
TABLE = Table(
    {
        "market": ["<de>", None],
        "value": [0.123456789, NAN],
        "p": [0.00001, 0.5],
        "lists": [12345, 0],
    },
    notes=["A note."],
)


@pytest.fixture(autouse=True)
def only_where_it_is_quick(backend):
    if backend != "numpy":
        pytest.skip("results are shown alike on all backends")


def test_in_a_terminal():
    assert str(TABLE).splitlines() == [
        "market   value        p  lists",
        "<de>    0.1235  <0.0001  12345",
        "                 0.5000      0",
        "A note.",
    ]


def test_in_a_notebook():
    html = TABLE._repr_html_()
    assert "<th>market</th><th>value</th>" in html
    assert "<td>&lt;de&gt;</td><td>0.1235</td>" in html
    assert html.endswith("</table><p>A note.</p>")


def test_as_text_that_is_read_again():
    assert TABLE.to_markdown().splitlines() == [
        "| market | value | p | lists |",
        "| --- | --: | --: | --: |",
        "| <de> | 0.1235 | <0.0001 | 12345 |",
        "|  |  | 0.5000 | 0 |",
        "",
        "A note.",
    ]
    assert TABLE.to_tsv().splitlines()[1:] == [
        "<de>\t0.123456789\t1e-05\t12345",
        "\t\t0.5\t0",
    ]
    first, second = json.loads(TABLE.to_json())
    assert first == {"market": "<de>", "value": 0.123456789, "p": 1e-05, "lists": 12345}
    assert (second["market"], second["value"]) == (None, None)


def test_no_value_ends_a_cell_or_a_row():
    table = Table({"market": ["a|b", "c\td\ne"], "value": [1, 2]})
    assert table.to_markdown().splitlines()[2:] == [r"| a\|b | 1 |", "| c d e | 2 |"]
    assert table.to_tsv().splitlines()[1:] == ["a|b\t1", "c d e\t2"]


def test_as_a_frame():
    frame = TABLE.to_pandas()
    assert frame["value"].iloc[0] == 0.123456789
    assert len(TABLE) == len(frame) == 2
    assert TABLE["lists"] == [12345, 0]
    assert [row["p"] for row in TABLE] == TABLE["p"]
    frame = evaluate(rows_of(), ["mrr"], keep="market").to_pandas()
    assert list(frame.columns) == ["query_id", "market", "mrr", "weight"]


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_intervals_are_drawn(pyplot):
    evaluation = evaluate(rows_of(), ["mrr", "ndcg@5"], keep="market")
    axes = evaluation.plot(by="market")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:2] == ["de mrr", "de ndcg@5"]
    summary = evaluation.summary(by="market")
    assert axes.lines[0].get_xdata() == pytest.approx(summary["value"])
    (bars,) = axes.collections
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    assert ends == pytest.approx(np.array([summary["low"], summary["high"]]).T)


def test_differences_are_drawn(pyplot):
    base, new = (evaluate(rows_of(noise=n), ["mrr", "map"]) for n in (3.0, 1.0))
    comparison = new.compare(base)
    assert comparison.plot().get_xlabel() == "difference"
    with pytest.raises(ValueError, match="`metric` should be one of"):
        comparison.plot("ndcg")
    (line, _) = comparison.plot("map").lines
    expected = sorted(comparison.differences["map"].to_pylist(), reverse=True)
    assert line.get_ydata() == pytest.approx(expected)
    several = compare(base, {"base": base, "new": new}).plot("map")
    names = [text.get_text() for text in several.get_legend().get_texts()]
    assert names == ["base", "new"]
    assert several.lines[1].get_ydata() == pytest.approx(expected)


def test_columns_are_of_one_length():
    with pytest.raises(ValueError, match=r"Received: \{'a': 2, 'b': 1\}"):
        Table({"a": [1, None], "b": [1]})
