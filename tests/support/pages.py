"""The blocks of Python of the book in docs/, and what they print."""

import dataclasses
import pathlib
import re
import textwrap

DOCS = pathlib.Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
# What `devices.md` shows needs several processes, and `trackers.md` needs trackers:
# `test_devices.py` and `test_trackers.py` run it.
PAGES = sorted(
    page
    for page in DOCS.glob("*.md")
    if "```python" in page.read_text() and page.stem not in ("devices", "trackers")
)
BACKENDS = ("jax", "tensorflow", "torch")

# A block of Python, and the block of text that follows it: what it prints.
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
        """A block that imports a backend is for that one."""
        named = [name for name in BACKENDS if f"import {name}" in self.code]
        return named or [*BACKENDS, "numpy"]

    @property
    def trains(self):
        return ".fit(" in self.code


def blocks_of(page):
    text = page.read_text()
    for found in BLOCK.finditer(text):
        output = found["output"]
        yield Block(
            line=text.count("\n", 0, found.start("code")) + 1,
            code=textwrap.dedent(found["code"]),
            output=None if output is None else textwrap.dedent(output),
        )
