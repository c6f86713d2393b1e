"""What a reader copies from the book in docs/ runs, and prints what it shows."""

import contextlib
import io
import re

import pytest
from compiled import requires_layer_masks
from pages import PAGES, README, read_blocks
from registry import IS_SLOW

# The page of masks has those of layers.
READ = [
    pytest.param(x, marks=[requires_layer_masks] * (x.stem == "masks")) for x in PAGES
]


@pytest.mark.programs
@pytest.mark.parametrize("page", READ, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_order(page, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, blocks = {"__name__": "__main__"}, list(read_blocks(page))
    for_this = any(block.backends == [backend] for block in blocks)
    if IS_SLOW and not for_this and page.stem != "index":
        pytest.skip("the same on all backends: run on the quickest")
    for block in blocks:
        if backend not in block.backends:
            continue
        if block.trains and backend == "numpy":
            pytest.skip(f"Keras does not train on NumPy: ran up to line {block.line}")
        printed = io.StringIO()
        # As many lines before it as in the page, so that a traceback tells the line.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{page.name}:{block.line}"
        else:
            assert not printed.getvalue(), f"{page.name}:{block.line} prints"


def test_the_readme_trains_and_compares(backend):
    """It shows the last lines. Other versions may train to slightly other numbers."""
    if backend != "torch":
        pytest.skip("its outputs are those of torch")
    names = {"__name__": "__main__"}
    for block in read_blocks(README):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block.code, names)
        shown = block.output.split()
        last = printed.getvalue().split()[-len(shown) :]
        for word, got in zip(shown, last, strict=True):
            if re.fullmatch(r"<?-?\d+\.\d+\*?", word):
                number = float(word.strip("<*"))
                assert float(got.strip("<*")) == pytest.approx(number, abs=0.05)
            elif not re.match(r"\d+m?s", word):
                assert got == word
