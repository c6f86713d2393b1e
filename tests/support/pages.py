"""The Python blocks of the pages in docs/, and their printed output."""

import dataclasses
import pathlib
import re
import textwrap

DOCS = pathlib.Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
# The examples of `devices.md` need several processes, and those of `trackers.md` need
# trackers: `test_multi_device.py` and `test_experiment_trackers.py` run them.
PAGES = sorted(
    page
    for page in DOCS.glob("*.md")
    if "```python" in page.read_text() and page.stem not in ("devices", "trackers")
)
BACKENDS = ("jax", "tensorflow", "torch")

# A Python block, and the text block after it, which shows the printed output.
BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```\n"
    r"(\s*^(?P=indent)```text\n(?P<output>.*?)^(?P=indent)```\n)?",
    re.DOTALL | re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Block:
    line: int
    code: str
    output: str | None

    @property
    def backends(self):
        """Returns the backends that a block imports, or all if it imports none."""
        imported = [name for name in BACKENDS if f"import {name}" in self.code]
        return imported or [*BACKENDS, "numpy"]

    @property
    def trains(self):
        return ".fit(" in self.code


def read_blocks(page):
    text = page.read_text()
    for match in BLOCK.finditer(text):
        output = match["output"]
        yield Block(
            line=text.count("\n", 0, match.start("code")) + 1,
            code=textwrap.dedent(match["code"]),
            output=None if output is None else textwrap.dedent(output),
        )
