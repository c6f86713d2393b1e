"""HTML from the templates of a page. What is not HTML yet is escaped."""

import functools
import html
import pathlib
import re
import string
from collections.abc import Iterable, Sequence
from typing import Any

from keras_rank.evaluation.report.table import Table, without_notes

_FOLDER = pathlib.Path(__file__).with_name("templates")
_PART = re.compile(r'<template id="(\w+)">\n(.*?)</template>', re.DOTALL)


class Html(str):
    """Text that is HTML, as opposed to text that is shown as it is."""


def filled(part: str, **values: Any) -> Html:
    """A part of the templates, with values in the place of their names."""
    safe = {
        name: value if isinstance(value, Html) else html.escape(str(value))
        for name, value in values.items()
    }
    return Html(_parts()[part].substitute(safe))


def joined(parts: Iterable[Html]) -> Html:
    """Parts one after the other."""
    return Html("".join(parts))


def section(title: str, body: Iterable[Html]) -> Html:
    """Parts under a heading."""
    return filled("section", title=title, body=joined(body))


def table(found: Table, label: str) -> Html:
    """A table that scrolls by itself where it is wide, without its notes."""
    return filled("table", table=Html(without_notes(found).to_html()), label=label)


def warnings(texts: Sequence[str]) -> Html:
    """A list of warnings, nothing if there are none."""
    texts = [text.removeprefix("Warning: ") for text in texts]
    items = [filled("warning", text=x[:1].upper() + x[1:]) for x in texts]
    return filled("warnings", items=joined(items)) if items else Html("")


@functools.cache
def _parts() -> dict[str, string.Template]:
    page, parts = (
        (_FOLDER / f"{name}.html").read_text("utf-8") for name in ("page", "parts")
    )
    found = {"page": page, **dict(_PART.findall(parts))}
    return {name: string.Template(text) for name, text in found.items()}
