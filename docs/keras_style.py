"""Lets mkdocstrings read docstrings in the style of Keras, for the site alone."""

import re
from typing import Any

import griffe

HEADING = re.compile(r"^(Example|Reference)s?:$")
END_OF_REFERENCE = re.compile(r"\d{4}\.$")


class KerasStyle(griffe.Extension):
    """Indents what stands below a heading, where Keras's style does not."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = in_google_style(obj.docstring.value)


def in_google_style(docstring: str) -> str:
    """Indents examples, which come last but for references, and lists these.

    Args:
        docstring: the docstring, without the indentation of its code.

    Returns:
        The docstring, in which examples and references are sections of their own.
    """
    section, starts, lines = "", True, []
    for line in docstring.splitlines():
        heading = HEADING.match(line)
        if heading:
            section, starts = heading[1], True
            lines.append(f"{section}s:")
        elif section and starts and not line:
            continue  # A section starts right below its heading.
        elif section == "Example":
            lines.append(f"    {line}" if line else line)
            starts = False
        elif section == "Reference":
            text = line.strip()
            lines.append(f"    - {text}" if starts else f"      {text}")
            starts = bool(END_OF_REFERENCE.search(text))
        else:
            lines.append(line)
    return "\n".join(lines)
