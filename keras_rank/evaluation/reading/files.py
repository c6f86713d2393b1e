"""Files: the files of a path, their formats, and their names in errors."""

import contextlib
import glob
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

# The format of a file, by its extension, which `.gz` or `.zst` may follow.
FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
}
# The format by the first bytes of a file, and how many are read.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc"}
_BEGINNING = 2**16
# The starts of lines in DuckDB's errors that advise its own users.
_ADVICE = ("Possible", "Potential", "If you are trying", "Try ")


def is_table(source: Any) -> bool:
    """Whether a source is a table with named columns, not TREC lines."""
    return not isinstance(source, str | os.PathLike) or format_of(source) is not None


def format_of(path: str | os.PathLike[str]) -> str | None:
    """The format of a file, by its name, or else by its first bytes."""
    name = os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst")
    by_name = FORMATS.get(os.path.splitext(name)[1])
    first = None if by_name else beginning(path)
    if first is None:
        return by_name
    for magic, format_ in _MAGIC.items():
        if first.startswith(magic):
            return format_
    text = first.decode("utf-8-sig", errors="replace").strip()
    if text.startswith(("{", "[")):
        return "json"
    names = re.split("[\t,;]", text.partition("\n")[0])
    has_header = len(names) > 1 and all(map(str.strip, names))
    return "csv" if has_header and not any(map(is_number, names)) else None


def beginning(source: str | os.PathLike[str]) -> bytes | None:
    """The first bytes of a file, or of the first one of a pattern, if rereadable."""
    path = os.fspath(source)
    if "://" not in path and not os.path.exists(path):
        path = min(glob.glob(path, recursive=True), default=path)
    if not os.path.isfile(path):
        return None
    with pa.input_stream(path, compression="detect") as stream:
        return bytes(stream.read(_BEGINNING))


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def are_files(source: Any) -> bool:
    """Whether a source is a path, or a list of paths."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return bool(source) and all(map(are_files, source))
    return isinstance(source, str | os.PathLike)


def files_of(argument: str, source: Any) -> list[str]:
    """The files of paths and patterns. Raises for duplicates."""
    if not isinstance(source, str | os.PathLike):
        files = [file for each in source for file in files_of(argument, each)]
        seen = set()
        for file in files:
            path = file if "://" in file else os.path.realpath(file)
            if path in seen:
                raise ValueError(
                    f"`{argument}` should be distinct files, as rows would count "
                    f"twice. Received twice: {file}"
                )
            seen.add(path)
        return files
    path = os.fspath(source)
    if "://" in path:
        return [path]
    files = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not files:
        raise ValueError(
            f"`{argument}` should be files that exist. Received: {path!r}, which "
            "matches no file"
        )
    for file in files:
        if os.path.isdir(file):
            raise ValueError(
                f"`{argument}` should be files. Received: {file!r}, which is a folder: "
                f"give {os.path.join(file, '*.parquet')!r} for the files in it"
            )
    return files


def literally(file: str) -> str:
    """The path as a pattern for this file only, as DuckDB reads paths as patterns."""
    return file if "://" in file else glob.escape(file)


def folders_of(file: str) -> set[str]:
    """The names of columns in folder names, such as `market=de`."""
    return set(re.findall("([^/=]+)=[^/]*/", file))


def named(source: Any) -> str:
    """The name of a source in messages."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
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
    except (duckdb.Error, pa.ArrowException, json.JSONDecodeError, OSError) as error:
        reasons = itertools.takewhile(
            lambda line: line and not line.startswith(_ADVICE),
            str(error).strip().splitlines(),
        )
        reason = "; ".join(reason.strip().rstrip(".") for reason in reasons)
        raise ValueError(
            f"`{argument}` should be a table that can be read. "
            f"Received: {named(source)}, and the error: {reason}"
        ) from error
