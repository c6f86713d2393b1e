"""The code blocks of the pages in docs/, which run and print the documented output."""

import contextlib
import io
import re

import pytest
from compiled import requires_layer_masks
from pages import PAGES, README, read_blocks
from registry import IS_SLOW

# The page about masks contains masks of layers.
PAGE_CASES = [
    pytest.param(x, marks=[requires_layer_masks] * (x.stem == "masks")) for x in PAGES
]


@pytest.mark.programs
@pytest.mark.parametrize("page", PAGE_CASES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_order(page, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, blocks = {"__name__": "__main__"}, list(read_blocks(page))
    has_own_block = any(block.backends == [backend] for block in blocks)
    if IS_SLOW and not has_own_block and page.stem != "index":
        pytest.skip("the page does not depend on the backend and runs on faster ones")
    for block in blocks:
        if backend not in block.backends:
            continue
        if block.trains and backend == "numpy":
            pytest.skip(f"Keras does not train on NumPy: ran up to line {block.line}")
        printed = io.StringIO()
        # Empty lines before the code let tracebacks show line numbers of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{page.name}:{block.line}"
        else:
            assert not printed.getvalue(), f"{page.name}:{block.line} prints"


def test_the_readme_trains_and_compares(backend):
    """The README shows the last lines. Numbers may differ slightly between versions."""
    if backend != "torch":
        pytest.skip("the README shows the output of torch")
    names = {"__name__": "__main__"}
    for block in read_blocks(README):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block.code, names)
        expected_words = block.output.split()
        words = printed.getvalue().split()[-len(expected_words) :]
        for expected, actual in zip(expected_words, words, strict=True):
            if re.fullmatch(r"<?-?\d+\.\d+\*?", expected):
                number = float(expected.strip("<*"))
                assert float(actual.strip("<*")) == pytest.approx(number, abs=0.05)
            elif not re.match(r"\d+m?s", expected):
                assert actual == expected
