"""Functions that find and open files, detect their formats, and describe errors."""

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
# The values of the iteration field in TREC files without iterations.
ITERATION_PLACEHOLDERS = ("0", "Q0")
# The index of the number among the fields of a line, by the number of fields.
_NUMBER_INDEX = {3: 2, 4: 3}


def detect_layout(argument: str, file: str | bytes) -> str:
    """Detects the layout of a file, which determines how the file is read.

    Returns:
        `"parquet"` or `"ipc"`; `"csv"`, `"json"`, `"nested"` JSON of objects of
        queries, or `"lines"` of fields; `"nothing"` if it is an empty text.
    """
    with reraise_errors(argument, file):
        format_ = detect_format(file)
        if format_ != "text":
            return format_
        text = read_first_lines(argument, file)
    layout = _detect_text_layout(text) if text.strip() else "nothing"
    if argument == "rows" and layout == "nested":
        return "json"
    # A file whose extension is that of a table is not a file of TREC lines.
    is_csv = layout == "lines" and is_named_table(describe_source(file))
    return "csv" if argument == "rows" and is_csv else layout


def is_table(source: Any) -> bool:
    """Returns whether a source is a table with columns, rather than lines of fields."""
    if not isinstance(source, str | os.PathLike):
        return True
    path = os.fspath(source)
    file = path if os.path.exists(path) else min(glob.glob(path), default="")
    return is_named_table(path) or (
        os.path.isfile(file)
        and detect_layout("qrels", file) not in ("lines", "nothing")
    )


def _detect_text_layout(text: str) -> str:
    if text.lstrip().startswith(("{", "[")):
        return "nested" if _is_nested(text.lstrip()) else "json"
    lines = split_lines(text)
    if not lines:
        return "lines"
    fields = lines[0].split()
    has_number = len(fields) > 2 and (
        is_number(fields[_NUMBER_INDEX.get(len(fields), 4)]) or fields[1] == "Q0"
    )
    # A TREC iteration identifies a line even if its number is invalid or an empty field
    # stands between tabs.
    tab_fields = split_fields(lines[0])
    has_iteration = any(
        len(x) > 2 and x[1] in ITERATION_PLACEHOLDERS for x in (fields, tab_fields)
    )
    is_line = has_number or has_iteration
    delimiter, rows = split_delimited("\n".join(lines) if is_line else text)
    if is_line and delimiter == "\t":
        # In a table that is separated by tabs, ids may contain spaces.
        may_be_empty = has_iteration or len(tab_fields) == 3
        word_counts = {len(x.split()) or may_be_empty for row in rows for x in row}
        widths = set(map(len, rows))
        is_line = len(widths) > 1 or (
            word_counts == {1} and (has_number or widths == {4})
        )
    elif is_line and delimiter and fields[1] not in ("0", "Q0"):
        # A delimiter within an id or a tag splits the line into parts with spaces.
        has_spaces = [len(x.split()) > 1 for x in rows[0]]
        is_line = any(has_spaces) and not is_number(rows[0][-1])
    return "csv" if delimiter and not is_line else "lines"


def _is_nested(text: str) -> bool:
    """Returns whether a text starts with a JSON object of queries, not of columns."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        # The object may continue after the part of the file that was read.
        return _NESTED.match(text) is not None
    if not isinstance(value, dict):
        return False
    is_object = [isinstance(item, dict) for item in value.values()]
    is_whole_text = not text[end:].strip()
    return (is_whole_text and any(is_object)) or all(
        item is None or isinstance(item, dict | list) for item in value.values()
    )


def split_delimited(text: str) -> tuple[str, list[list[str]]]:
    """Returns the delimiter of a text, or an empty string, and the rows of the text."""
    rows_by_delimiter = {}
    for delimiter in "\t,;|":
        with open_csv_reader(io.StringIO(text, newline=""), delimiter) as reader:
            rows_by_delimiter[delimiter] = list(filter(is_row, reader)) or [[]]
    # A delimiter that gives rows of one length is preferred. Of several delimiters, the
    # one with the most columns in the first row is chosen.
    lengths = {x: set(map(len, rows)) for x, rows in rows_by_delimiter.items()}
    even_delimiters = [
        x for x, counts in lengths.items() if len(counts) == 1 and counts != {1}
    ]
    delimiter = max(
        even_delimiters or rows_by_delimiter, key=lambda x: len(rows_by_delimiter[x][0])
    )
    rows = rows_by_delimiter[delimiter]
    return (delimiter if len(rows[0]) > 1 else ""), rows


@contextlib.contextmanager
def open_csv_reader(
    lines: Iterable[str], delimiter: str, strict: bool = False
) -> Iterator[Any]:
    """Yields a reader of the rows of delimited text, with fields of any size."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield csv.reader(lines, delimiter=delimiter, strict=strict)
    finally:
        csv.field_size_limit(limit)


def is_row(fields: Sequence[str]) -> bool:
    """Returns whether the fields of a line are not all blank."""
    return len(fields) > 1 or bool("".join(fields).strip())


def split_fields(line: str) -> list[str]:
    """Splits a line at white space, or at tabs if it has tabs but no spaces."""
    return line.split("\t" if "\t" in line and " " not in line else None)


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text that are neither blank nor comments."""
    lines = re.split("[\r\n]", text)
    return [line for line in lines if line.strip() and not line.startswith("#")]


def normalize_name(name: str) -> str:
    """Returns the name of a column in lower case, with underscores between words."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_number(text: str) -> bool:
    """Returns whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# The format of a file, by its extension. The extension of a compression may follow.
FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
}
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
# The format of a file, by its first bytes.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc"}
# The number of bytes that are read to detect the format.
_BEGINNING_SIZE = 2**18
# The layout is detected from this many characters, and the rest of the last line.
_LAYOUT_LENGTH = 2**14
# The largest number of characters of a text in a message.
_MESSAGE_LENGTH = 300
_ERRORS = (
    *(duckdb.Error, pa.ArrowException, json.JSONDecodeError, UnicodeError),
    *(OSError, EOFError, OverflowError, RecursionError),
)
# The byte order marks of UTF-8 at the start of a line.
_MARKS = re.compile(rb"(?<=[\r\n])(?:%b)+" % codecs.BOM_UTF8)
# The starts of lines in DuckDB's errors with advice that only fits users of DuckDB.
_ADVICE = ("Possible", "Potential", "If you are trying", "Try ")


class Content(bytes):
    """The content of a file that was read from standard input."""


def detect_format(file: str | bytes) -> str:
    """Returns the format of a file: `parquet`, `ipc`, or `text`."""
    if isinstance(file, bytes):
        return "text"
    format_ = FORMATS.get(_extension(file))
    if format_ is None:
        first = read_beginning(file)
        formats = [x for magic, x in _MAGIC.items() if first.startswith(magic)]
        format_ = formats[0] if formats else "text"
    return format_ if format_ in _MAGIC.values() else "text"


def is_named_table(file: str) -> bool:
    """Returns whether the name of a file ends in an extension of tables."""
    return _extension(file) in FORMATS


def _extension(file: str) -> str:
    name, extension = os.path.splitext(file.lower())
    return os.path.splitext(name)[1] if extension in _COMPRESSED else extension


class TextStream(io.RawIOBase):
    """A stream of text without the byte order marks at the starts of its lines.

    A file that was made by concatenating files may have a mark at the start of each.

    Args:
        stream: a binary stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # The text to return next, the bytes after it that may be the start of a mark,
        # and the last byte before the text.
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
        partial_marks = [n for n in (2, 1) if block and text.endswith(mark[:n])][:1]
        end = len(text) - sum(partial_marks)
        text, self._rest = text[:end], text[end:]
        if mark in text:
            text = _MARKS.sub(b"", self._last + text)[1:]
        self._text, self._last = text, text[-1:] or self._last
        return not block


def open_stream(file: str | bytes) -> TextStream:
    """Opens a file, or the bytes of standard input, as a decompressed stream."""
    if isinstance(file, bytes):
        return TextStream(pa.BufferReader(file))
    compression = _COMPRESSED.get(os.path.splitext(file.lower())[1])
    return TextStream(pa.input_stream(file, compression=compression))


def read_beginning(file: str | bytes) -> bytes:
    """Returns the first block of a file that is not all white space."""
    with open_stream(file) as stream:
        while (first := bytes(stream.read(_BEGINNING_SIZE))).isspace():
            pass
        return first


def read_first_lines(argument: str, file: str | bytes) -> str:
    """Returns the first lines of a text file, and raises `ValueError` for other files.

    Args:
        argument: the name of the argument whose value is the source.
        file: the path of the file, or the bytes of standard input.
    """
    first = read_beginning(file)
    # The mark of UTF-32 is checked first, as it starts with the mark of UTF-16.
    if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table. Received: "
            f"{describe_source(file)}, which is text in UTF-32: save it as UTF-8"
        )
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table. Received: "
            f"{describe_source(file)}, which is text in UTF-16, as Excel writes "
            "Unicode text: save it as UTF-8"
        )
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(first)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table, and compressed by gzip "
            f"or zstd only, with a name that ends in {' or '.join(_COMPRESSED)}. "
            f"Received: {describe_source(file)}: decompress or convert it"
        )
    blank = len(text) - len(text.lstrip())
    end = re.compile("[\r\n]").search(text, blank + _LAYOUT_LENGTH)
    return text[: end.end()] if end else text


def is_file_source(source: Any) -> bool:
    """Returns whether a source is a path, a list of paths, or standard input."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return bool(source) and all(isinstance(x, str | os.PathLike) for x in source)
    return isinstance(source, str | Content | os.PathLike)


def list_files(argument: str, source: Any) -> list[Any]:
    """Returns the files of paths and patterns, and raises `ValueError` for duplicates.

    The bytes of standard input are returned as the only file.
    """
    if isinstance(source, bytes):
        return [source]
    paths = [source] if isinstance(source, str | os.PathLike) else source
    files = [
        file for path in paths for file in matching_files(argument, os.fspath(path))
    ]
    first_indices: dict[str, int] = {}
    for i, file in enumerate(files):
        if first_indices.setdefault(os.path.realpath(file), i) < i:
            raise ValueError(
                f"`{argument}` should be distinct files, as rows would count twice. "
                f"Received twice: {file}"
            )
    return files


def parse_partitions(file: str | bytes) -> dict[str, str]:
    """Returns the columns and values in the names of folders, such as `market=de`."""
    partitions = (
        [] if isinstance(file, bytes) else re.findall("([^/=]+)=([^/]*)/", file)
    )
    return {name: urllib.parse.unquote(value) for name, value in partitions}


def describe_source(source: Any) -> str:
    """Returns the description of a source in error messages."""
    if isinstance(source, bytes):
        return "standard input"
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if is_file_source(source):
        return ", ".join(map(describe_source, source[:3])) + ", ..." * (len(source) > 3)
    return f"a {type(source).__name__}"


def shorten(text: str) -> str:
    """Returns a text that is cut to the length that messages show."""
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}..."


def no_rows_error(argument: str, source: Any) -> ValueError:
    """Returns the error for a source without rows."""
    return ValueError(
        f"`{argument}` should have rows. Received: none, from {describe_source(source)}"
    )


@contextlib.contextmanager
def reraise_errors(argument: str, source: Any) -> Iterator[None]:
    """Reraises errors of readers as a `ValueError` that names the argument."""
    try:
        yield
    except _ERRORS as error:
        raise ValueError(
            f"`{argument}` should be a table that can be read. Received: "
            f"{describe_source(source)}, and the error: {format_reason(error)}"
        ) from error


def format_reason(error: Exception) -> str:
    """Returns the message of an error, without its type and advice for DuckDB users."""
    if isinstance(error, RecursionError):
        return "objects or lists are nested too deeply"
    text = re.sub(r"^([A-Z]\w+ )+Error: ", "", str(error).strip())
    lines = itertools.takewhile(
        lambda line: line and not line.startswith(_ADVICE), text.splitlines()
    )
    return shorten("; ".join(line.strip().rstrip(".") for line in lines))
