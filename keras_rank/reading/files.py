"""Files: the files of a path, their formats, and their names in errors."""

import codecs
import contextlib
import io
import itertools
import json
import os
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from keras_rank.reading.paths import matching_files

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
