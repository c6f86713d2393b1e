"""The pages in docs/ and the README: structure, links and code blocks."""

import pathlib
import pydoc
import re
import sys

import keras
import numpy as np
import pytest
from pages import DOCS, README, read_blocks

REFERENCE = sorted((DOCS / "reference").glob("*.md"))


def test_the_readme_is_read_in_a_few_minutes():
    lines = README.read_text().splitlines()
    assert len(lines) <= 180
    assert lines.index("```text") < 20, "the first output is not on the first screen"


def test_the_loss_of_the_pages_masks_padding():
    text = "".join(page.read_text() for page in (README, *DOCS.glob("*.md")))
    losses = re.findall(r"\ndef listwise_loss\(.*?axis=1\)\n", text, re.DOTALL)
    assert len(losses) == 5
    assert len(set(losses)) == 1
    names = {"ops": keras.ops}
    exec(losses[0], names)
    labels, scores = np.float32([[2, 0, 1, -1, -1]]), np.float32([[3, 1, 2, 99, -9]])
    loss = names["listwise_loss"]
    padded, alone = (float(loss(labels[:, :n], scores[:, :n])[0]) for n in (5, 3))
    assert padded == pytest.approx(alone, rel=1e-6)
    log_p = np.log(np.exp([3.0, 1.0, 2.0]) / np.sum(np.exp([3.0, 1.0, 2.0])))
    assert alone == pytest.approx(-2 * log_p[0] - log_p[2], rel=1e-5)


def find_anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text().lower(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", x).replace(" ", "-") for x in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_outside_of_the_site_are_valid(name):
    for link in re.findall(r"\]\(([^)]+)\)", (DOCS.parent / name).read_text()):
        target, _, anchor = link.partition("#")
        page = DOCS.parent / (target or name)
        assert page.exists(), link
        assert not anchor or anchor in find_anchors(page), link


def test_pages_are_readable_without_a_build():
    """Code hosts show no tabs and boxes of the site, and pictures must exist."""
    for page in (README, *DOCS.rglob("*.md")):
        text = page.read_text()
        assert not re.findall(r"^ *(?:===|!!!|\?\?\?) .*", text, re.MULTILINE), page
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
            assert (page.parent / picture).is_file(), f"{page.name}: {picture}"


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_the_reference_names_its_source_files(page):
    text = page.read_text()
    (note,) = re.findall(r"^> In a checkout, (?:.*\n)+?\n", text, re.MULTILINE)
    linked = [page.parent / link for link in re.findall(r"\]\(([^)]+)\)", note)]
    files = {file.resolve() for each in linked for file in [each, *each.rglob("*.py")]}
    names = re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)
    for name in names:
        module = sys.modules[pydoc.locate(name).__module__]
        assert pathlib.Path(module.__file__).resolve() in files, name
    (entry,) = re.findall(r"`help\((.*?)\)`", note)
    assert entry in names


def test_targets_of_make_that_the_pages_name_exist():
    makefile = (DOCS.parent / "Makefile").read_text()
    text = README.read_text() + (DOCS.parent / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"make ([a-z-]+)", text):
        assert re.search(rf"^\.PHONY:.* {name}\b", makefile, re.MULTILINE), name


def test_every_block_of_python_is_found():
    """Blocks have no prompts, which readers could not copy."""
    for page in (README, *DOCS.rglob("*.md")):
        text = page.read_text()
        assert text.count("```python\n") == len(list(read_blocks(page))), page
        assert ">>>" not in text, page
        assert "```py\n" not in text, page
