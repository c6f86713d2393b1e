"""How a file is laid out, by its name and its first bytes or lines."""

import contextlib
import csv
import glob
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_rank.reading import files

# The start of a JSON file with an object for each query.
_NESTED = re.compile(r'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*(?:\{|\[|null)')
# What stands in the place of the iteration, where there is none.
NO_ITERATION = ("0", "Q0")
# The place of the number among the fields of a line, by how many there are.
_NUMBER_AT = {3: 2, 4: 3}


def layout_of(argument: str, file: str | bytes) -> str:
    """How a file is read.

    Returns:
        `"parquet"` or `"ipc"`; `"csv"`, `"json"`, `"nested"` JSON of objects of
        queries, or `"lines"` of fields; `"nothing"` if it is an empty text.
    """
    with files.errors_of(argument, file):
        format_ = files.format_of(file)
        if format_ != "text":
            return format_
        text = files.text_of(argument, file)
    layout = _layout_of_text(text) if text.strip() else "nothing"
    if argument == "rows" and layout == "nested":
        return "json"
    # Its name says so.
    is_csv = layout == "lines" and files.is_named_table(files.named(file))
    return "csv" if argument == "rows" and is_csv else layout


def is_table(source: Any) -> bool:
    """Whether a source is a table with columns, not lines of fields."""
    if not isinstance(source, str | os.PathLike):
        return True
    path = os.fspath(source)
    file = path if os.path.exists(path) else min(glob.glob(path), default="")
    return files.is_named_table(path) or (
        os.path.isfile(file) and layout_of("qrels", file) not in ("lines", "nothing")
    )


def _layout_of_text(text: str) -> str:
    if text.lstrip().startswith(("{", "[")):
        return "nested" if _is_nested(text.lstrip()) else "json"
    lines = lines_of(text)
    if not lines:
        return "lines"
    fields = lines[0].split()
    is_scored = len(fields) > 2 and (
        is_number(fields[_NUMBER_AT.get(len(fields), 4)]) or fields[1] == "Q0"
    )
    # Also if the number is wrong, or there is an empty field between tabs.
    between_tabs = fields_of(lines[0])
    of_trec = any(len(x) > 2 and x[1] in NO_ITERATION for x in (fields, between_tabs))
    is_line = is_scored or of_trec
    delimiter, rows = delimited("\n".join(lines) if is_line else text)
    if is_line and delimiter == "\t":
        # Ids may contain spaces between tabs.
        may_be_empty = of_trec or len(between_tabs) == 3
        words = {len(x.split()) or may_be_empty for row in rows for x in row}
        widths = set(map(len, rows))
        is_line = len(widths) > 1 or (words == {1} and (is_scored or widths == {4}))
    elif is_line and delimiter and fields[1] not in ("0", "Q0"):
        # In an id or a tag, it stands beside what spaces separate.
        have_spaces = [len(x.split()) > 1 for x in rows[0]]
        is_line = any(have_spaces) and not is_number(rows[0][-1])
    return "csv" if delimiter and not is_line else "lines"


def _is_nested(text: str) -> bool:
    """Whether a text starts with an object of queries, not with one of columns."""
    try:
        first, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        # It may be longer than the text.
        return _NESTED.match(text) is not None
    if not isinstance(first, dict):
        return False
    are_objects = [isinstance(value, dict) for value in first.values()]
    is_alone = not text[end:].strip()
    return (is_alone and any(are_objects)) or all(
        value is None or isinstance(value, dict | list) for value in first.values()
    )


def delimited(text: str) -> tuple[str, list[list[str]]]:
    """The delimiter of a text, if it has any, and its rows."""
    found = {}
    for delimiter in "\t,;|":
        with rows_of(io.StringIO(text, newline=""), delimiter) as read:
            found[delimiter] = list(filter(is_row, read)) or [[]]
    # The one that gives rows of the same length, or else most columns in the first.
    lengths = {x: set(map(len, rows)) for x, rows in found.items()}
    are_even = [x for x, each in lengths.items() if len(each) == 1 and each != {1}]
    delimiter = max(are_even or found, key=lambda x: len(found[x][0]))
    rows = found[delimiter]
    return (delimiter if len(rows[0]) > 1 else ""), rows


@contextlib.contextmanager
def rows_of(
    lines: Iterable[str], delimiter: str, strict: bool = False
) -> Iterator[Any]:
    """The rows of delimited text, as read by `csv`, whose fields have any size."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield csv.reader(lines, delimiter=delimiter, strict=strict)
    finally:
        csv.field_size_limit(limit)


def is_row(fields: Sequence[str]) -> bool:
    """Whether a line is not blank."""
    return len(fields) > 1 or bool("".join(fields).strip())


def fields_of(line: str) -> list[str]:
    """The fields of a line, between tabs if it has any but no spaces."""
    return line.split("\t" if "\t" in line and " " not in line else None)


def lines_of(text: str) -> list[str]:
    """The lines that are neither blank nor comments."""
    lines = re.split("[\r\n]", text)
    return [line for line in lines if line.strip() and not line.startswith("#")]


def plain_name(name: str) -> str:
    """The name of a column in lower case, its words separated by underscores."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
