"""The site of docs/, which is built without warnings and opens without a network."""

import hashlib
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import chromium
import pytest

import keras_rank

ROOT = pathlib.Path(__file__).parents[2]
WIDTHS = {"desktop": 1280, "phone": 390}
# The texts of code and tables that are too wide and scroll on their own.
SCROLLING = """
    [...document.querySelectorAll("pre > code, .md-typeset__scrollwrap")]
        .filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => box.textContent.trim().slice(0, 80))
"""
CONDITIONS = [
    "document.documentElement.scrollWidth <= window.innerWidth",
    "[...document.querySelectorAll('.equation')]"
    ".every((box) => box.scrollWidth <= box.clientWidth)",
    "[...document.images].every((image) => image.naturalWidth > 0)",
]
EQUATION = re.compile(r'<div class="equation".*?><math .*?</math></div>', re.DOTALL)

pytestmark = pytest.mark.slow
browser = chromium.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Builds the site as `make docs` does, and returns its folder."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    run("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    return folder


def run(*command):
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *command], cwd=ROOT, env=env, check=True)


def test_pictures_are_up_to_date(tmp_path):
    run("docs/pictures.py", tmp_path)
    digest = hashlib.sha256((ROOT / "docs" / "pictures.py").read_bytes()).hexdigest()
    pictures = ROOT / "docs" / "pictures"
    assert {x.name for x in tmp_path.iterdir()} == {x.name for x in pictures.iterdir()}
    for picture in pictures.iterdir():
        assert digest in picture.read_text("utf-8"), f"{picture.name}: make pictures"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


class Page(html.parser.HTMLParser):
    """The anchors of a page, and the links to pages and files."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.add(attrs.get("id"))
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]


def test_every_public_name_is_on_the_site(pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    for name in keras_rank.__all__:
        thing = getattr(keras_rank, name)
        for inner in getattr(thing, "__all__", []):
            assert f"keras_rank.{name}.{inner}" in anchors
    assert "keras_rank.RankingModel" in anchors


def test_no_program_is_on_the_site(site):
    assert not [*site.rglob("*.py"), *site.rglob("*.pyc")]


def test_no_link_is_broken(pages):
    links = 0
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            # Links of the page for missing pages start at the root.
            target = target.removeprefix("/") if path.name == "404.html" else target
            url = urllib.parse.urlsplit(target)
            assert url.scheme in ("", "data"), f"{path.name} needs a network: {link}"
            linked = (path.parent / urllib.parse.unquote(url.path)).resolve()
            linked = linked / "index.html" if linked.is_dir() else linked
            linked = path if not target else linked
            assert linked.exists(), f"{path.name}: {link}"
            if anchor and linked in pages:
                anchor = urllib.parse.unquote(anchor)
                assert anchor in pages[linked].anchors, f"{path.name}: {link}"
            links += 1
    assert links > 500


def test_no_argument_is_left_out(site):
    for page in (site / "reference").glob("*.html"):
        text = page.read_text()
        assert "In a checkout" not in text, page.name
        assert not re.search(r">\s*(\*\*)?arguments\s*<", text), page.name
        assert ">as for <code>keras_rank" not in text, page.name


def test_every_equation_is_rendered(site):
    """Equations are MathML without any LaTeX, and every metric has an equation."""
    for source in (ROOT / "docs").rglob("*.md"):
        page = site / source.relative_to(ROOT / "docs").with_suffix(".html")
        equations = EQUATION.findall(page.read_text())
        assert len(equations) == source.read_text().count("```math\n"), page.name
        assert not [text for text in equations if "\\" in text], page.name
    metrics = (site / "definitions.html").read_text().split("<h2 ")[2:]
    assert len(metrics) == 29
    assert [text for text in metrics if not EQUATION.search(text)] == []


def list_failures(request):
    """Returns the URL of a request, unless the opening of the next page aborted it."""
    return [] if request.failure == "net::ERR_ABORTED" else [request.url]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_every_page_opens(browser, site, pages, width):
    """Every request succeeds and stays on the host, and pages fit the screen.

    Pictures exist, and no equation is cut. Code and tables fit on a desktop, and scroll
    on their own on a phone, where calls of other libraries fit too.
    """
    view = browser.new_page(viewport={"width": width, "height": 900})
    errors, requests = [], []
    view.on("console", lambda message: errors.append(message.text))
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.on("requestfailed", lambda request: errors.extend(list_failures(request)))
    view.on("request", lambda request: requests.append(request.url))
    for path in pages:
        if path.name == "404.html":
            continue  # A server shows this page from its root.
        view.goto(path.as_uri(), wait_until="load")
        assert not errors, path.name
        for condition in CONDITIONS:
            assert view.evaluate(condition), f"{path.name}: {condition}"
        if width == WIDTHS["desktop"]:
            assert view.evaluate(SCROLLING) == [], path.name
        if path.name == "dialects.html":
            assert len(view.evaluate(SCROLLING)) <= 3, "more than the three programs"
    local = (site.as_uri(), "data:", "about:", "blob:")
    assert [url for url in requests if not url.startswith(local)] == []


EXPECTED_PAGES = {
    "persistence": "gains_discounts",
    "p-value": "uncertainty",
    "loss": "masks",
}
EXPECTED_PAGES |= {
    "plot": "uncertainty",
    "early stopping": "fit",
    "EarlyStopping": "fit",
}
EXPECTED_PAGES |= {"pad_lists": "utils", "ndcg": "metrics"}


@pytest.mark.parametrize("words", EXPECTED_PAGES)
def test_the_search_finds_pages(browser, site, words):
    view = browser.new_page(viewport={"width": WIDTHS["desktop"], "height": 900})
    view.goto((site / "index.html").as_uri())
    view.get_by_placeholder("Search").fill(words)
    results = view.locator(".md-search-result__item > .md-search-result__link")
    results.first.wait_for(timeout=10_000)
    links = [link.get_attribute("href") for link in results.all()]
    assert any(f"{EXPECTED_PAGES[words]}.html" in link for link in links[:4]), links


def test_pages_are_in_groups(browser, site):
    """The changelog is one click away."""
    view = browser.new_page(viewport={"width": WIDTHS["desktop"], "height": 900})
    view.goto((site / "reference" / "metrics.html").as_uri())
    groups = view.locator(".md-tabs__link").all_inner_texts()
    assert groups == ["Start", "Train", "Evaluate", "Reference", "Changelog"]
    view.get_by_role("link", name="Changelog").first.click()
    assert "what you must do" in view.inner_text("article")


def test_the_first_page_says_why_before_how(site):
    text = (site / "index.html").read_text().split("<article")[1]
    install = text.index('<h2 id="install">')
    assert text.index("inflate it") < install < text.index("pip install")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_are_those_of_the_system_until_switched(browser, site, scheme):
    view = browser.new_page(color_scheme=scheme)
    view.goto((site / "index.html").as_uri())
    assert is_dark(view) == (scheme == "dark")
    view.locator("label[for^=__palette]:visible").click()
    assert is_dark(view) != (scheme == "dark")


def is_dark(view):
    """Returns whether the text of a page is brighter than its background."""
    colors = view.evaluate(
        "['color', 'backgroundColor']"
        ".map((name) => getComputedStyle(document.body)[name])"
    )
    text, page = (sum(map(float, re.findall(r"[\d.]+", color)[:3])) for color in colors)
    return text > page
