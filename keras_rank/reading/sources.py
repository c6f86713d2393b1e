"""The sources of rows: files and tables in memory, read column by column.

A column is found by its exact name. Several files are read in types that lose no
information, or not at all. Ids are read as written.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import dataset

from keras_rank.reading.arrow import ArrowPart, parts_of_files
from keras_rank.reading.engine import Connection, Relation, connect
from keras_rank.reading.files import (
    FORMATS,
    are_files,
    errors_of,
    files_of,
    format_of,
    is_named_table,
    named,
    no_rows,
    text_of,
)
from keras_rank.reading.layouts import layout_of
from keras_rank.reading.objects import JsonPart
from keras_rank.reading.part import Part, Sought, common_type
from keras_rank.reading.text import CsvPart, LinesPart

_TEXTS: dict[str, Callable[..., Part]] = {
    "csv": CsvPart,
    "json": JsonPart,
    "lines": LinesPart,
}


def select(
    parts: Sequence[Part], ids: Mapping[str, Sought], numbers: Mapping[str, Sought]
) -> Relation:
    """Returns columns of the parts of a table under new names, in the order of rows.

    Args:
        parts: the parts.
        ids: the columns of ids, and the kept columns.
        numbers: the columns of numbers, which become float32 if all parts of a column
            are float32, else float64.
    """
    types = {}
    for key, sought in ids.items():
        where = f"the column {sought.name!r} of"
        of_ids = {f"{where} {part.name}": part.id_type(sought) for part in parts}
        types[key] = common_type(sought.argument, of_ids)
    for key, sought in numbers.items():
        of_parts = {part.number_type(sought) for part in parts}
        types[key] = "FLOAT" if of_parts == {"FLOAT"} else "DOUBLE"
    return _union([part.select({**ids, **numbers}, types) for part in parts])


def tabular(argument: str, source: Any) -> Any:
    """Returns files unchanged, and a table in memory as an Arrow table."""
    if are_files(source) or isinstance(
        source, pa.Table | pa.RecordBatchReader | dataset.Dataset
    ):
        return source
    if isinstance(source, duckdb.DuckDBPyRelation):
        return source.to_arrow_reader()
    if not (hasattr(source, "__arrow_c_stream__") or isinstance(source, Mapping)):
        accepted = "" if argument == "rows" else ", or a dict of items for each query"
        raise ValueError(
            f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
            "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns"
            f"{accepted}. Received: {named(source)}"
            + ", which its method `collect` makes a table"
            * hasattr(source, "collect")
        )
    try:
        return pa.table(source)
    except (TypeError, ValueError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def places_of(
    argument: str, source: Any, ids: Mapping[str, Sought], values: Sequence[Any]
) -> str:
    """Names the files with rows of the given ids, and their lines."""
    if not are_files(source):
        return named(source)
    names = {each.name for each in ids.values()}
    found: list[str] = []
    # Another DuckDB, as the first one is still reading rows.
    with connect() as connection:
        for file in files_of(argument, source):
            for part in parts_of(connection, argument, file, names):
                found += part.where(ids, values)
    return " and ".join(found) or named(source)


def parts_of(
    connection: Connection, argument: str, source: Any, names: Collection[str]
) -> Sequence[Part]:
    """Returns the tables of files, or of anything that Arrow can read, lazily.

    Args:
        connection: a DuckDB.
        argument: the name of the argument that is the source.
        source: files, or a table in memory.
        names: names of columns that may be looked for.
    """
    if not are_files(source):
        return [ArrowPart(connection, "a table", tabular(argument, source))]
    layouts = {
        file: layout_of_file(argument, file) for file in files_of(argument, source)
    }
    files = [file for file, layout in layouts.items() if layout != "nothing"]
    if not files:
        raise no_rows(argument, source)
    found = {layouts[file] for file in files}
    if len(found) > 1 or (argument == "rows" and "lines" in found):
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(FORMATS)}. Received: {named(files)}"
        )
    (layout,) = found
    with errors_of(argument, files[0] if len(files) == 1 else source):
        if layout in ("parquet", "ipc"):
            return list(parts_of_files(connection, files, layout))
        return [_TEXTS[layout](connection, argument, file, names) for file in files]


def layout_of_file(argument: str, file: str | bytes) -> str:
    """How a file is read, `nothing` if it is an empty text."""
    with errors_of(argument, file):
        format_ = format_of(file)
        if format_ != "text":
            return format_
        text = text_of(argument, file)
    layout = layout_of(text) if text.strip() else "nothing"
    if layout == "nested" and argument == "rows":
        return "json"
    # Its name says so.
    if layout == "lines" and argument == "rows" and is_named_table(named(file)):
        return "csv"
    return layout


def _union(tables: Sequence[Relation]) -> Relation:
    """Concatenates tables."""
    if len(tables) == 1:
        return tables[0]
    # In halves, as DuckDB limits the depth of a query.
    half = len(tables) // 2
    return _union(tables[:half]).union(_union(tables[half:]))
