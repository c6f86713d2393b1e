"""Files: the files of a path, their formats, and their names in errors."""

import codecs
import contextlib
import itertools
import json
import lzma
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
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": None, ".zst": "zstd"}
# The format by the first bytes of a file, and how many are read.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc"}
_BEGINNING = 2**18
# The text that tells its format, if it does not end within a line.
_ENOUGH = 2**14
_ERRORS = (
    *(duckdb.Error, pa.ArrowException, json.JSONDecodeError, UnicodeDecodeError),
    *(OSError, EOFError, lzma.LZMAError),
)
# The starts of lines in DuckDB's errors that advise its own users.
_ADVICE = ("Possible", "Potential", "If you are trying", "Try ")


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


def opened(file: str | bytes) -> Any:
    """Opens a file, or the bytes of standard input, as a stream without compression."""
    if isinstance(file, bytes):
        return pa.BufferReader(file)
    extension = os.path.splitext(file.lower())[1]
    if extension == ".xz":
        with lzma.open(file) as stream:
            return pa.BufferReader(stream.read())
    return pa.input_stream(file, compression=_COMPRESSED.get(extension))


def beginning(file: str | bytes) -> bytes:
    """The first bytes of a file."""
    with opened(file) as stream:
        return bytes(stream.read(_BEGINNING))


def text_of(argument: str, file: str | bytes) -> str:
    """The first lines of a text file. Raises for other files."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(beginning(file))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            f"`{argument}` should be text in UTF-8 or a table, and compressed only if "
            f"its name ends in {tuple(_COMPRESSED)}. Received: {named(file)}, "
            "which is none of these: decompress or convert it"
        )
    end = re.compile("[\r\n]").search(text, _ENOUGH)
    return text[: end.end()] if end else text


def are_files(source: Any) -> bool:
    """Whether a source is a path, or a list of paths, or read from standard input."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return bool(source) and all(isinstance(x, str | os.PathLike) for x in source)
    return isinstance(source, str | bytes | os.PathLike)


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
    text = re.sub(r"^([A-Z]\w+ )+Error: ", "", str(error).strip())
    lines = itertools.takewhile(
        lambda line: line and not line.startswith(_ADVICE), text.splitlines()
    )
    return "; ".join(line.strip().rstrip(".") for line in lines)
