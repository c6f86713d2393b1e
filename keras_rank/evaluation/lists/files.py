"""Files with one row per list: Parquet, and text for other tools."""

import os
import pathlib

import pyarrow as pa
from pyarrow import parquet

from keras_rank.reading import engine
from keras_rank.reading.files import errors_of
from keras_rank.reading.paths import check_output

# How DuckDB writes a file of each suffix.
_OPTIONS = {
    ".csv": "FORMAT csv, HEADER",
    ".json": "FORMAT json, ARRAY true",
    ".jsonl": "FORMAT json",
}


def read(path: str | os.PathLike[str]) -> pa.Table:
    """Reads a table with all of its columns, and what its schema says of them."""
    if pathlib.Path(path).suffix.lower() in _OPTIONS:
        raise ValueError(
            "`path` should be a Parquet file written by `write`, as other files do not "
            f"tell what their columns are. Received: path={str(path)!r}"
        )
    with errors_of("path", path):
        return parquet.read_table(path)


def page(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the file of a page. Raises for other suffixes and folders."""
    return check_output("`path`", path, (".html", ".htm"))


def write(table: pa.Table, text: pa.Table, path: str | os.PathLike[str]) -> None:
    """Writes a table to a Parquet file, or its columns for text to another one."""
    suffix = pathlib.Path(path).suffix.lower()
    suffixes = [".parquet", *_OPTIONS]
    if suffix not in suffixes:
        raise ValueError(
            f"`path` should end in one of {', '.join(suffixes)}. Received: "
            f"path={str(path)!r}"
        )
    check_output("`path`", path, (suffix,))
    if suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with engine.connect() as connection:
        connection.register("lists", text)
        file = engine.in_sql(os.fspath(path))
        connection.execute(f"COPY lists TO {file} ({_OPTIONS[suffix]})")
