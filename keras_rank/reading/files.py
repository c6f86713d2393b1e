"""Files: the files of a path, their formats, and their names in errors."""

import codecs
import contextlib
import csv
import glob
import io
import itertools
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from keras_rank.reading.paths import matching_files

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
    with errors_of(argument, file):
        format_ = format_of(file)
        if format_ != "text":
            return format_
        text = text_of(argument, file)
    layout = _layout_of_text(text) if text.strip() else "nothing"
    if argument == "rows" and layout == "nested":
        return "json"
    # Its name says so.
    is_csv = layout == "lines" and is_named_table(named(file))
    return "csv" if argument == "rows" and is_csv else layout


def is_table(source: Any) -> bool:
    """Whether a source is a table with columns, not lines of fields."""
    if not isinstance(source, str | os.PathLike):
        return True
    path = os.fspath(source)
    file = path if os.path.exists(path) else min(glob.glob(path), default="")
    return is_named_table(path) or (
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


# The format of a file, by its extension, which one of a compression may follow.
FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
}
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
# The format by the first bytes of a file, and how many are read.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc"}
_BEGINNING = 2**18
# The text that tells its format, if it does not end within a line.
_ENOUGH = 2**14
# The number of characters of a line that messages show.
_SHOWN = 300
_ERRORS = (
    *(duckdb.Error, pa.ArrowException, json.JSONDecodeError, UnicodeError),
    *(OSError, EOFError, OverflowError, RecursionError),
)
# The byte order marks of UTF-8 at the start of a line.
_MARKS = re.compile(rb"(?<=[\r\n])(?:%b)+" % codecs.BOM_UTF8)
# The starts of lines in DuckDB's errors that advise its own users.
_ADVICE = ("Possible", "Potential", "If you are trying", "Try ")


class Content(bytes):
    """The content of a file that was read from standard input."""


def format_of(file: str | bytes) -> str:
    """The format of a file: `parquet`, `ipc`, or `text`."""
    if isinstance(file, bytes):
        return "text"
    format_ = FORMATS.get(_extension(file))
    if format_ is None:
        first = beginning(file)
        found = [x for magic, x in _MAGIC.items() if first.startswith(magic)]
        format_ = found[0] if found else "text"
    return format_ if format_ in _MAGIC.values() else "text"


def is_named_table(file: str) -> bool:
    """Whether the name of a file ends in an extension of tables."""
    return _extension(file) in FORMATS


def _extension(file: str) -> str:
    name, extension = os.path.splitext(file.lower())
    return os.path.splitext(name)[1] if extension in _COMPRESSED else extension


class TextStream(io.RawIOBase):
    """A stream of text without the byte order marks at the starts of its lines.

    Files that were concatenated have one at the start of each.

    Args:
        stream: a binary stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # The text to return next, the start of a mark that may follow it, and the last
        # byte before both.
        self._text, self._rest, self._last = b"", b"", b"\n"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_at_end = False
        while not self._text and not is_at_end:
            is_at_end = self._read(len(buffer))
        size = min(len(buffer), len(self._text))
        buffer[:size], self._text = self._text[:size], self._text[size:]
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _read(self, size: int) -> bool:
        """Reads the next text, and returns whether it was the last one."""
        block = self._stream.read(size)
        text, mark = self._rest + block, codecs.BOM_UTF8
        held = [n for n in (2, 1) if block and text.endswith(mark[:n])][:1]
        end = len(text) - sum(held)
        text, self._rest = text[:end], text[end:]
        if mark in text:
            text = _MARKS.sub(b"", self._last + text)[1:]
        self._text, self._last = text, text[-1:] or self._last
        return not block


def opened(file: str | bytes) -> TextStream:
    """Opens a file, or the bytes of standard input, as a stream without compression."""
    if isinstance(file, bytes):
        return TextStream(pa.BufferReader(file))
    compression = _COMPRESSED.get(os.path.splitext(file.lower())[1])
    return TextStream(pa.input_stream(file, compression=compression))


def beginning(file: str | bytes) -> bytes:
    """Returns the first bytes of a file, without blocks of white space."""
    with opened(file) as stream:
        while (first := bytes(stream.read(_BEGINNING))).isspace():
            pass
        return first


def text_of(argument: str, file: str | bytes) -> str:
    """The first lines of a text file. Raises for other files."""
    first = beginning(file)
    # The mark of UTF-32 starts with the one of UTF-16.
    if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table. Received: "
            f"{named(file)}, which is text in UTF-32: save it as UTF-8"
        )
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table. Received: "
            f"{named(file)}, which is text in UTF-16, as Excel writes Unicode text: "
            "save it as UTF-8"
        )
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(first)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table, and compressed by gzip "
            f"or zstd only, with a name that ends in {' or '.join(_COMPRESSED)}. "
            f"Received: {named(file)}: decompress or convert it"
        )
    blank = len(text) - len(text.lstrip())
    end = re.compile("[\r\n]").search(text, blank + _ENOUGH)
    return text[: end.end()] if end else text


def are_files(source: Any) -> bool:
    """Whether a source is a path, or a list of paths, or read from standard input."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return bool(source) and all(isinstance(x, str | os.PathLike) for x in source)
    return isinstance(source, str | Content | os.PathLike)


def files_of(argument: str, source: Any) -> list[Any]:
    """The files of paths and patterns. Raises for duplicates."""
    if isinstance(source, bytes):
        return [source]
    paths = [source] if isinstance(source, str | os.PathLike) else source
    files = [
        file for path in paths for file in matching_files(argument, os.fspath(path))
    ]
    first: dict[str, int] = {}
    for i, file in enumerate(files):
        if first.setdefault(os.path.realpath(file), i) < i:
            raise ValueError(
                f"`{argument}` should be distinct files, as rows would count twice. "
                f"Received twice: {file}"
            )
    return files


def folders_of(file: str | bytes) -> dict[str, str]:
    """The columns of folder names, such as `market=de`, and their values."""
    found = [] if isinstance(file, bytes) else re.findall("([^/=]+)=([^/]*)/", file)
    return {name: urllib.parse.unquote(value) for name, value in found}


def named(source: Any) -> str:
    """The name of a source in messages."""
    if isinstance(source, bytes):
        return "standard input"
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if are_files(source):
        return ", ".join(map(named, source[:3])) + ", ..." * (len(source) > 3)
    return f"a {type(source).__name__}"


def shortened(text: str) -> str:
    """Returns the start of a text, to show it in a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def no_rows(argument: str, source: Any) -> ValueError:
    """The error for a source without rows."""
    return ValueError(
        f"`{argument}` should have rows. Received: none, from {named(source)}"
    )


@contextlib.contextmanager
def errors_of(argument: str, source: Any) -> Iterator[None]:
    """Turns errors of reading into errors that name the argument."""
    try:
        yield
    except _ERRORS as error:
        raise ValueError(
            f"`{argument}` should be a table that can be read. "
            f"Received: {named(source)}, and the error: {reason_of(error)}"
        ) from error


def reason_of(error: Exception) -> str:
    """What an error says, without its kind and advice for others."""
    if isinstance(error, RecursionError):
        return "objects or lists are nested too deeply"
    text = re.sub(r"^([A-Z]\w+ )+Error: ", "", str(error).strip())
    lines = itertools.takewhile(
        lambda line: line and not line.startswith(_ADVICE), text.splitlines()
    )
    return shortened("; ".join(line.strip().rstrip(".") for line in lines))
