"""Contents, escaping and rendering of the HTML page of an evaluation."""

import collections
import html.parser
import re
import sys

import chromium
import numpy as np
import pytest
from tables import make_rows, raises

from keras_rank.evaluation import Evaluation, evaluate, evaluate_run
from keras_rank.evaluation.report.page import _template
from keras_rank.metrics import MeanReciprocalRank

# Ids that are markup, placeholders, equations, text from right to left, or long.
ODD = [
    "<script>document.title='no'</script>",
    "a&amp;\"b\"'c'",
    "--><!--]]>",
    r"$title ${body} $\frac{1}{2}$ %s {0}",
    "שלום עולם",
    "😀\u202e日本語",
    "x" * 300,
    'id="y" fill: #010101 href="#z"',
    "_hidden\nin two lines",
]


browser = chromium.browser


@pytest.fixture(autouse=True)
def require_matplotlib():
    pytest.importorskip("matplotlib")


def odd_rows(noise):
    """Returns lists of 8 items with unusual ids, 4 lists for each unusual value."""
    rng = np.random.default_rng(int(noise))
    lists = np.repeat(np.arange(4 * len(ODD)), 8)
    label = np.tile([3, 2, 1, 0, 0, 0, 0, 0], 4 * len(ODD))
    odd = [ODD[i % len(ODD)] for i in lists]
    return {
        "query_id": [f"{x} {i}" for x, i in zip(odd, lists, strict=True)],
        "item_id": [f"{x} {i}" for i, x in enumerate(odd)],
        "label": label,
        "score": label + noise * rng.normal(size=len(label)),
        "mar<ket": [x if i % 5 else None for x, i in zip(odd, lists, strict=True)],
    }


@pytest.fixture(scope="module")
def models():
    arguments = {"item": "item_id", "keep": "mar<ket", "keep_items": 3}
    metrics = ["ndcg@5", "dcg@5", "arp"]
    return [evaluate(odd_rows(noise), metrics, **arguments) for noise in (4.0, 1.0)]


@pytest.fixture(scope="module")
def odd_page(models, tmp_path_factory):
    base, new = models
    path = tmp_path_factory.mktemp("page") / "report.html"
    new.report(path, baseline=base, by="mar<ket", title=f"{ODD[0]} {ODD[3]}")
    return path


class ParsedPage(html.parser.HTMLParser):
    """A parsed page, with its texts by tag, its tags, and its attributes."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes = collections.Counter(), []
        self.open, self.texts = [], collections.defaultdict(list)
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "td":
            # The cells of a column are padded to one width, which tests ignore.
            self.texts[tag][-1] = self.texts[tag][-1].strip()

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts[tag][-1] += data

    @property
    def text(self):
        return self.texts["body"][0]


def write_page(evaluation, tmp_path, **arguments):
    evaluation.report(tmp_path / "report.html", **arguments)
    return ParsedPage(tmp_path / "report.html")


def test_texts_of_a_page(tmp_path):
    arguments = {"item": "item_id", "keep": "market", "duplicates": "count"}
    arguments |= {"metrics": ["ndcg@5", "mrr"], "keep_items": 2}
    tables = [make_rows(lists=200, noise=noise) for noise in (-99.0, 1.0)]
    base, new = (evaluate(rows, **arguments) for rows in tables)
    page = write_page(new, tmp_path, baseline=base, by="market")
    assert page.texts["h2"] == [
        "Compared with the baseline",
        "Means",
        "By market",
        "Can these numbers be trusted?",
        "The largest losses of ndcg@5",
        "How this was computed",
    ]
    lost = new.worst(n=3, baseline=base)
    assert max(lost["difference"]) < 0.0
    compared = new.compare(base), new.compare(base, by="market")
    for table in (*compared, new.summary(), new.health(), lost):
        for name in table.columns:
            assert set(table.shown(name)) <= set(page.texts["td"])
    items = new.ranking(lost["query_id"][0]).shown("item")
    assert set(items) <= set(page.texts["td"])
    for words in (
        f"ndcg@5 is {new['ndcg@5']:.4f}, which is",
        "significantly better (corrected p < 0.0001)",
        *(note.removeprefix("Warning: ") for note in new.warnings),
        f"200 lists, {len(tables[1]):,} items",
        "gain_fn=exponential, rank_discount_fn=log2)",
        "shuffled, with the seed 0",
        "keras_rank 0.",
        "numpy 2",
    ):
        assert words in page.text
    # Points, intervals, p and names are text of the plots.
    of_plots = {"ndcg@5", "mrr", "p < 0.0001*", "de", "difference of mrr"}
    assert of_plots <= set(page.texts["text"])


def test_a_page_of_one_model(tmp_path):
    page = write_page(evaluate(make_rows(), ["mrr"]), tmp_path, title="Mine")
    assert page.texts["title"] == page.texts["h1"] == ["Mine"]
    assert page.tags["svg"] == 1
    assert "with a 95% confidence interval from" in page.text
    assert "keep_items=10" in page.text
    assert "baseline" not in page.text


def test_a_page_of_a_run(tmp_path):
    found = evaluate_run({"1": {"a": 2}}, {"1": {"b": 1}, "2": {"b": 1}}, ["map"])
    text = write_page(found, tmp_path).text
    assert "trec_eval (version 10)" in text
    assert "larger as text comes first" in text
    assert "1 list without judgments" in text


def test_a_metric_with_lower_values_for_better_models(tmp_path):
    base, new = (evaluate(make_rows(noise=n), ["arp"]) for n in (9.0, 0.5))
    text = write_page(new, tmp_path, baseline=base).text
    for words in ("arp (lower is better) is", "below the baseline's", "ly better"):
        assert words in text
    page = write_page(base, tmp_path, baseline=new)
    assert "significantly worse" in page.text
    losses = base.worst(n=10, baseline=new)
    assert losses["difference"][0] > 0.0
    assert losses.shown("difference")[0] in page.texts["td"]


def test_unusual_values_are_shown_as_text(odd_page, models):
    page = ParsedPage(odd_page)
    assert page.tags["script"] == 0
    assert page.texts["title"] == [f"{ODD[0]} {ODD[3]}"]
    assert set(ODD) <= set(page.texts["td"])
    assert "<script>docum" not in odd_page.read_text("utf-8")
    in_plots = "".join(page.texts["text"])
    for words in ("<script>", "שלום עולם", 'id="y" fi…href="#z"'):
        assert words in in_plots
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_all_texts_of_a_page_are_escaped(tmp_path):
    """Names, titles and metrics with markup appear as text."""
    metric, rows = MeanReciprocalRank(name="<i>mrr</i>"), odd_rows(1.0)
    base, new = (evaluate(rows, [metric], query="query_id") for _ in range(2))
    names = ["<b>new</b>", "a & b"]
    page = write_page(new, tmp_path, baseline=base, names=names, title="<u>title</u>")
    assert not {"i", "b", "u", "script"} & page.tags.keys()
    assert "Model: <b>new</b>. Baseline: a & b." in page.text
    for words in ("<i>mrr</i> is", "The largest losses of <i>mrr</i>", "<u>title</u>"):
        assert words in page.text


def test_a_page_is_self_contained(odd_page):
    page, text = ParsedPage(odd_page), odd_page.read_text("utf-8")
    names = ("src", "href", "xlink:href", "action", "data", "srcset")
    links = {x.removeprefix("#") for name, x in page.attributes if name in names}
    ids = [x for name, x in page.attributes if name == "id"]
    used = re.findall(r"url\(#([^)]+)\)", text)
    assert links
    assert links | {*used} <= set(ids)
    assert len(ids) == len(set(ids))
    assert page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_many_slices_are_too_many_for_a_page(tmp_path):
    found = evaluate(make_rows(lists=200), ["mrr"], keep=["user", "market"])
    page = write_page(found, tmp_path, by="user")
    assert "the 40 slices with the most lists; 50 rows are too many" in page.text
    assert len([x for x in page.texts["text"] if x.isdigit()]) == 40
    # Three slices are not too many.
    assert "too many" not in write_page(found, tmp_path, by=["market"]).text


@pytest.mark.parametrize("lists", [0, 1, 2])
def test_pages_of_few_lists(models, tmp_path, lists):
    base, new = (Evaluation(each.table.slice(0, lists)) for each in models)
    page = write_page(new, tmp_path, baseline=base if lists else None)
    assert f"{lists} list{'s' * (lists != 1)}, {8 * lists} items" in page.text
    assert ("no value" in page.text) == (lists == 0)
    assert "nan" not in page.text


def test_a_page_without_health(models, tmp_path):
    lists = models[1].per_list.rename_columns({"arp": "mrr"})
    bare = Evaluation(lists, metrics=[MeanReciprocalRank()], query="query_id")
    text = write_page(bare, tmp_path).text
    assert "lacks the columns of health" in text
    assert "an unknown version" in text


def test_a_page_compares_common_queries_and_items(tmp_path):
    rows = {"query_id": list("aabb"), "label": [1, 0] * 2, "score": [1, 2, 2, 1]}
    items = {"item": "item_id", "keep_items": 1}
    new = evaluate({**rows, "item_id": [1, 2, 3, 4]}, ["mrr"], **items)
    rows = {**rows, "query_id": list("aacc"), "score": [2, 1, 2, 1]}
    base = evaluate({**rows, "item_id": list("1234")}, ["mrr"], **items)
    page = write_page(new, tmp_path, baseline=base)
    # The models have one of the two lists in common.
    assert "mrr is 0.5000 over 1 of 2 lists, which is 0.5000 below" in page.text
    # Item 2 has no rank in the baseline, and item 1 has one although its id is text.
    assert "without a baseline rank was not retrieved by the baseline, or" in page.text
    cells = page.texts["td"]
    assert cells[-10:] == ["1", "", "2", "0", "2", "2", "1", "1", "1", "1"]


def test_a_page_reports_the_value_of_empty_lists(tmp_path):
    for value, shown in ((None, False), (0.0, True)):
        metric = MeanReciprocalRank(empty_value=value)
        page = write_page(evaluate(make_rows(), [metric]), tmp_path)
        assert ("empty_value=0.0" in page.text) == shown


def test_no_page_is_written_after_an_error(models, tmp_path, monkeypatch):
    base, new = models
    (tmp_path / "folder.html").mkdir()
    for name in ("report", "report.pdf", "nowhere/report.html", "folder.html"):
        with raises("should name a file that ends in .html"):
            new.report(tmp_path / name)
    path = tmp_path / "report.html"
    with raises("`by` should name kept columns"):
        new.report(path, by="user")
    with raises("`baseline` should be an `Evaluation`"):
        new.report(path, baseline={"base": base})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "`report` needs Matplotlib, which the extra `plot` installs: `pip install"
    with pytest.raises(ImportError, match=message):
        # The missing package is reported before `by` is checked.
        new.report(path, by="user")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    _template.cache_clear()
    with pytest.raises(ImportError, match="`report` needs Jinja2, which the extra"):
        new.report(path)
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_opens(browser, odd_page, width, scheme):
    """The page has no errors, loads no files, and only its tables scroll sideways."""
    view = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    troubles, requests = [], []
    view.on("console", lambda message: troubles.append(message.text))
    view.on("pageerror", lambda error: troubles.append(str(error)))
    view.on("request", lambda request: requests.append(request.url))
    view.goto(odd_page.as_uri(), wait_until="load")
    assert not troubles
    assert requests == [odd_page.as_uri()]
    assert view.title() == " ".join(f"{ODD[0]} {ODD[3]}".split())
    assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert view.evaluate(
        "[...document.querySelectorAll('svg, figure, p, h1, h2, li, dd, summary')]"
        ".every((x) => x.getBoundingClientRect().right <= window.innerWidth)"
    )
    # Text has enough contrast with the background, in plots as well.
    ground, *inks = view.evaluate(
        "[getComputedStyle(document.body).backgroundColor,"
        "...[...document.querySelectorAll('p, td, th, li, dd, svg text')]"
        ".map((x) => getComputedStyle(x)[x.matches('text') ? 'fill' : 'color'])]"
    )
    assert all(contrast(ground, ink) > 4.5 for ink in set(inks))


@pytest.mark.slow
def test_tables_of_common_names_fit_a_desktop(browser, tmp_path):
    """Tables of slices and of items fit the page without scrolling."""
    query, rng = np.repeat(np.arange(40), 9), np.random.default_rng(0)
    rows = {
        "query_id": [f"q-{i:03d} red shoes" for i in query],
        "device": np.array(["desktop", "mobile"])[query % 2],
        "item_id": [f"sku{i + 100_000}" for i in range(len(query))],
        "label": np.tile([3, 2, 1, 0, 0, 0, 0, 0, 0], 40),
    }
    metrics = ["ndcg@10", "precision@3"]
    arguments = {"item": "item_id", "keep": "device", "keep_items": 10}
    scores = rng.normal(size=(2, len(query)))
    base, new = (evaluate({**rows, "score": x}, metrics, **arguments) for x in scores)
    new.report(tmp_path / "page.html", baseline=base, by="device")
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    view.goto((tmp_path / "page.html").as_uri())
    scrolled = "[...document.querySelectorAll('.scroll')].filter("
    scrolled += "(x) => x.scrollWidth > x.clientWidth).map((x) => x.innerText)"
    assert view.evaluate(scrolled) == []


def luminance(color):
    parts = np.array(re.findall(r"\d+", color)[:3], "float64") / 255.0
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    """Returns the contrast ratio of two colors, as WCAG defines it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_a_page_prints(browser, odd_page):
    """Printed text is dark in both color schemes, and tables don't scroll."""
    view = browser.new_page(color_scheme="dark")
    view.emulate_media(media="print")
    view.goto(odd_page.as_uri())
    color = view.evaluate("getComputedStyle(document.querySelector('td')).color")
    assert contrast(color, "rgb(255, 255, 255)") > 7.0
    overflow = "getComputedStyle(document.querySelector('.scroll')).overflowX"
    assert view.evaluate(overflow) == "visible"
