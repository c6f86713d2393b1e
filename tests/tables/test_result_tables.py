"""Formats of results: terminal, notebooks, text formats, and plots."""

import csv
import datetime
import html
import io
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
from tables import make_rows, raises

from keras_rank.evaluation import Evaluation, Table, compare, evaluate
from keras_rank.evaluation.report.plots import draw_intervals
from keras_rank.evaluation.report.table import Marks

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


def test_in_a_terminal():
    assert str(TABLE).splitlines() == [
        "market   value        p  lists",
        "<de>    0.1235  <0.0001  12345",
        "                 0.5000      0",
        "A note.",
    ]


def test_missing_pandas_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for each in (TABLE, evaluate(make_rows(), ["mrr"])):
        with pytest.raises(ImportError, match="`to_pandas` needs pandas: `pip install"):
            each.to_pandas()


def test_in_a_notebook():
    page = TABLE._repr_html_()
    right = 'style="text-align: right;"'
    page = re.sub(" *(<[^/]|</t)", r"\1", re.sub("> *", ">", page))
    assert f"<th>market</th><th {right}>value</th>" in page
    assert f"<td>&lt;de&gt;</td><td {right}>0.1235</td>" in page
    assert page.endswith("</table><p>A note.</p>")
    evaluation = evaluate(make_rows(lists=5), ["mrr"])
    for note in [*evaluation.summary().notes, *evaluation.warnings]:
        assert f"<p>{note}</p>" in evaluation._repr_html_()
    for each in (TABLE, evaluation):
        assert each.to_html() == each._repr_html_()


def test_significant_differences_are_marked():
    base, new = (evaluate(make_rows(noise=n), ["mrr", "arp"]) for n in (9.0, 0.5))
    comparison = new.compare(base)
    head, first, second, meaning = str(comparison).splitlines()
    assert head.endswith("lists  wins  ties  losses")
    assert "*     60 " in first
    assert len(head) == len(first) == len(second)
    assert meaning == "* corrected_p is below 0.05."
    bold = comparison.to_html().count("<b>") / len(comparison.columns)
    assert bold == sum(p < 0.05 for p in comparison["corrected_p"])
    assert r"\*" in comparison.to_markdown().splitlines()[2]
    assert r"\* corrected_p is below 0.05." in comparison.to_markdown().splitlines()
    for text in (comparison.to_tsv(), comparison.to_json(), str(base.compare(base))):
        assert "*" not in text
    plain = new.compare(base, correction=None, confidence=0.99)
    assert "* p is below 0.01." in str(plain)


def test_failed_checks_are_marked():
    rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0], "score": [1, 1, 1, 0]}
    health = evaluate(rows, ["mrr"]).health()
    shares = zip(health["check"], health.shown("share"), strict=True)
    failed = [check for check, share in shares if share.endswith("*")]
    assert "constant scores" in failed
    assert "one item" not in failed
    assert len(health.notes) == len(failed)


def test_scores_and_labels_keep_their_digits():
    table = Table({"label": [2.0], "score": [1.25e-7], "value": [1.25e-7]})
    assert str(table).splitlines()[1].split() == ["2", "1.25e-07", "0.0000"]
    days = [*(datetime.datetime(2026, 1, 2, hour) for hour in (0, 3)), "0 00:00:00"]
    shown = ["2026-01-02", "2026-01-02 03:00:00", "0 00:00:00"]
    assert Table({"day": days}).shown("day") == shown


def test_formats_that_programs_read():
    assert TABLE.to_markdown().splitlines() == [
        "| market     |   value |          p |   lists |",
        "|:-----------|--------:|-----------:|--------:|",
        "| &lt;de&gt; |  0.1235 | &lt;0.0001 |   12345 |",
        "|            |         |     0.5000 |       0 |",
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


def test_delimiters_in_values_are_escaped():
    table = Table({"market": ["a|b", "c\td\ne"], "value": [1, 2]})
    rows = table.to_markdown().splitlines()[2:]
    assert rows == [r"| a\|b     |       1 |", "| c d e    |       2 |"]
    script = Table({"a_b": ["<script>", "`*_x_*"]}, notes=["1 < 2"])
    assert script.to_markdown().splitlines() == [
        "| a_b            |",
        "|:---------------|",
        "| &lt;script&gt; |",
        r"| \`\*\_x\_\*    |",
        "",
        "1 &lt; 2",
    ]
    assert table.to_tsv().splitlines()[1:] == ["a|b\t1", "c d e\t2"]
    assert str(table).split()[2:] == ["a|b", "1", "c", "d", "e", "2"]


ODD = [
    "<script>alert(1)</script>",
    "<b>&amp; a<b>c",
    "a|b `code|d` \\| \\\\| e\\",
    "*a* **b** _c_ __d__ ~~e~~ f_g_h a__b__c _ *",
    "[a](http://b.c) ![d](e) $f$ [g]: h",
    "![](javascript:alert(1))",
    "&lt;script&gt; &#60; &",
]


@pytest.mark.parametrize("text", ODD)
def test_markdown_shows_text_as_it_is(text):
    """A renderer of GitHub's Markdown shows the text unchanged."""
    markdown_it = pytest.importorskip("markdown_it")
    table = Table({text: [text, f"{text}\n{text}"], "value": [1, 2]}, notes=[text])
    page = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(
        table.to_markdown()
    )
    cells = re.findall("<t[hd][^>]*>(.*)</t[hd]>", page)
    assert list(map(html.unescape, cells)) == [
        *(text, "value", text, "1", f"{text} {text}", "2")
    ]
    assert html.unescape(re.search("<p>(.*)</p>", page)[1]) == text
    allowed = {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert set(re.findall(r"</?(\w+)", page)) <= allowed
    found = re.findall("<t[hd][^>]*>(.*?)</t[hd]>", table.to_html())
    assert html.unescape(found[0]).strip() == html.unescape(found[2]).strip() == text


def test_latex_shows_text_as_it_is():
    text = "a_b & 5% #1 $x$ {y} ~ ^ \\"
    columns = {text: ["[a]", "b\nc"], "value": [1.0, NAN], "p": [0.5, 0.00001]}
    found = Table(columns, notes=["50% <b>"], marks=Marks("p", [False, True], "low_p"))
    escaped = r"a\_b \& 5\% \#1 \$x\$ \{y\} \textasciitilde{} \^{} \textbackslash{}"
    lines = [" ".join(line.split()) for line in found.to_latex().splitlines()]
    assert lines == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        rf"{escaped} & value & p \\",
        r"\midrule",
        # LaTeX would parse `[a]` as an argument of the row before it.
        r"{[}a] & 1.0000 & 0.5000 \\",
        r"b c & & \ensuremath{<}0.0001* \\",
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"* low\_p",
        "",
        r"50\% \ensuremath{<}b\ensuremath{>}",
    ]
    assert r"\begin{tabular}{r}" in Table({"metric": []}).to_latex()


FORMATS = ["__str__", "to_html", "to_markdown", "to_latex", "to_tsv"]


@pytest.mark.parametrize("name", FORMATS)
def test_ids_keep_their_digits(name):
    """Ids that are text keep their digits even if they look like numbers."""
    ids = ["007", "1e5", "1,000", "0x10", "nan", "True", "-0", "1.10"]
    shown = getattr(Table({"query_id": ids}), name)()
    assert [x for x in re.findall(r"[\w.,-]+", shown) if x in ids] == ids


def test_tsv_is_read_by_csv():
    rows = [["name", "value"], ['5" "disk"', "0.1"], ["a b", ""]]
    text = Table({"name": ['5" "disk"', "a\tb"], "value": [0.1, None]}).to_tsv()
    assert list(csv.reader(io.StringIO(text), "excel-tab")) == rows


def test_as_a_data_frame():
    frame = TABLE.to_pandas()
    assert frame["value"].iloc[0] == 0.123456789
    assert len(TABLE) == len(frame) == 2
    assert [row["p"] for row in TABLE] == TABLE["p"] == [0.00001, 0.5]
    assert (TABLE[0], TABLE[-1]) == (TABLE.rows[0], TABLE.rows[1])
    frame = evaluate(make_rows(), ["mrr"], keep="market").to_pandas()
    assert list(frame.columns) == ["query_id", "market", "mrr", "weight"]


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def two_models(*metrics, **arguments):
    return [evaluate(make_rows(noise=n), [*metrics], **arguments) for n in (3.0, 1.0)]


def get_texts(ticks):
    return [label.get_text() for label in ticks]


def test_intervals_are_drawn(pyplot):
    evaluation = evaluate(make_rows(), ["mrr", "ndcg@5"], keep="market")
    axes = evaluation.plot(by="market")
    assert get_texts(axes.get_yticklabels())[:2] == ["de mrr", "de ndcg@5"]
    summary = evaluation.summary(by="market")
    assert axes.lines[0].get_xdata() == pytest.approx(summary["value"])
    (bars,) = axes.collections
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    assert ends == pytest.approx(np.array([summary["low"], summary["high"]]).T)


def test_differences_are_drawn(pyplot):
    base, new = two_models("mrr", "map")
    comparison = new.compare(base)
    assert comparison.plot().get_xlabel() == "difference"
    with raises("`metric` should be one of"):
        comparison.plot("ndcg")
    (line, _) = comparison.plot("map").lines
    expected = sorted(comparison.differences["map"].to_pylist(), reverse=True)
    assert line.get_ydata() == pytest.approx(expected)
    # The names of models are shown as text, not as formulas or hidden labels.
    several = compare(base, {"_hidden": new, r"$\frac{": base}).plot("map")
    several.figure.savefig(io.BytesIO())
    texts = several.get_legend().get_texts()
    assert get_texts(texts) == [r"$\frac{", "_hidden"]
    assert several.lines[1].get_ydata() == pytest.approx(expected)


def test_titles_and_labels_of_plots(pyplot):
    base, new = two_models("mrr", keep="market")
    _, (one, two, three) = pyplot.subplots(3)
    assert new.plot(ax=one, confidence=0.9) is one
    assert new.compare(base, confidence=0.9).plot(ax=two) is two
    assert new.compare(base).plot("mrr", ax=three) is three
    named = compare(base, {"$x$": new}).plot()
    for axes, title in (
        (one, "Means with 90% confidence intervals"),
        (two, "with 90% confidence intervals"),
        (named, "$x$ compared with the baseline, with 95%"),
    ):
        assert title in axes.get_title()
    # With one metric, the labels of rows only have the slices.
    comparison = new.compare(base, by="market")
    axes = comparison.plot()
    assert get_texts(axes.get_yticklabels()) == ["de", "fr", "jp"]
    assert axes.get_xlabel() == "difference of mrr"
    (side,) = axes.child_axes
    p, *_ = get_texts(side.get_yticklabels())
    assert p.startswith(f"p = {comparison['corrected_p'][0]:.4f}")


def draw_rows(names, high=0.5):
    values = {"metric": "mrr", "value": 0.5, "low": 0.5, "high": high}
    columns = {name: [value] * len(names) for name, value in values.items()}
    rows = Table({"market": [*names], **columns})
    return draw_intervals(rows, "value", "Means").figure


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_saved_plots_have_all_labels(pyplot, rows):
    figure = draw_rows([f"{i} {'long ' * 20}" for i in range(rows)])
    figure.savefig(io.BytesIO())
    (axes,) = figure.axes
    width, height = figure.get_size_inches() * figure.dpi
    for text in [*axes.get_yticklabels(), axes.xaxis.label, axes.title]:
        box = text.get_window_extent()
        assert 0.0 <= box.x0 <= box.x1 <= width
        assert 0.0 <= box.y0 <= box.y1 <= height
    # The rows are within the axes and do not overlap.
    low, high = axes.get_ylim()
    assert low < 0.0
    assert high > rows - 1
    assert axes.get_window_extent().width > 0.3 * width
    assert axes.get_window_extent().height / rows > 15


@pytest.mark.slow
def test_many_rows_can_be_saved(pyplot):
    """A plot of 3000 rows can be saved, even if a rounded bound is past its value."""
    figure = draw_rows(range(3000), high=0.5 - 1e-16)
    assert figure.get_size_inches()[1] * figure.dpi < 2**15


def test_columns_have_equal_lengths():
    with raises("Received: {'a': 2, 'b': 1}"):
        Table({"a": [1, None], "b": [1]})


def test_wins_ties_and_losses_follow_the_direction(rng):
    """A lower rank is a win for a metric where lower is better."""
    base, new = (evaluate(make_rows(noise=n), ["mrr", "arp"]) for n in (9.0, 0.5))
    mrr, arp = new.compare(base)
    for row in (mrr, arp):
        before, after = (x.per_list[row["metric"]].to_numpy() for x in (base, new))
        sign = 1.0 if row["metric"] == "mrr" else -1.0
        gain = sign * (after - before)
        gain = gain[~np.isnan(gain)]
        counts = [np.sum(gain > 0), np.sum(gain == 0), np.sum(gain < 0)]
        assert [row["wins"], row["ties"], row["losses"]] == counts
        assert sum(counts) == row["lists"]
    same = base.compare(base)
    assert same["ties"] == same["lists"]
    assert same["wins"] == same["losses"] == [0, 0]


def test_differences_of_rounding_are_ties():
    rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0], "score": [2, 1, 1, 2]}
    base = evaluate(rows, ["mrr"])
    values = base.table["mrr"].to_numpy() * (1.0 + 2e-7)
    place = base.table.column_names.index("mrr")
    rounded = Evaluation(base.table.set_column(place, "mrr", pa.array(values)))
    assert rounded.compare(base)["ties"] == [2]


def test_effective_lists_are_shown_for_different_weights(rng):
    rows = {
        "query_id": np.repeat(np.arange(20), 3),
        "label": rng.integers(0, 2, 60),
        "score": rng.random(60),
        "weight": np.repeat(rng.choice([1.0, 2.0, 5.0], 20), 3),
    }
    assert "effective_lists" not in evaluate(rows, ["mrr"]).summary().columns
    evaluation = evaluate(rows, ["mrr", "dcg(list_weight=one)"], weight="weight")
    summary = evaluation.summary()
    weights = evaluation.table["mrr_weight"].to_numpy()
    weights = np.where(np.isnan(weights), np.nanmean(weights), weights)
    expected = weights.sum() ** 2 / np.sum(weights**2)
    assert summary["effective_lists"] == pytest.approx([expected, 20.0])
    assert summary["lists"] == [20, 20]
