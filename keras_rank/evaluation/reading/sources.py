"""The sources of rows: files and tables in memory, read column by column.

A column is found by its exact name. Several files are read in types that lose no
information, or not at all. Ids are read as written.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import dataset

from keras_rank.evaluation.reading.arrow_and_parquet import (
    ArrowPart,
    ParquetPart,
    alike,
)
from keras_rank.evaluation.reading.csv_and_json import CsvPart, JsonPart
from keras_rank.evaluation.reading.engine import Connection, Relation, connect, in_sql
from keras_rank.evaluation.reading.files import (
    FORMATS,
    are_files,
    errors_of,
    files_of,
    format_of,
    named,
    no_rows,
)
from keras_rank.evaluation.reading.part import (
    FLOATS,
    INTEGERS,
    NOTHING,
    SMALL,
    Part,
    Sought,
)

# Types whose text is unique, so that they can be compared with text.
_AS_TEXT = {*INTEGERS, "DATE", "UUID", "VARCHAR"}


def select(
    connection: Connection,
    argument: str,
    source: Any,
    ids: Mapping[str, Sought],
    numbers: Mapping[str, Sought],
) -> Relation:
    """Returns columns of a source under new names, in the order of its rows.

    Args:
        connection: a DuckDB.
        argument: the name of the argument that is the source.
        source: files, or a table in memory.
        ids: the columns of ids, and the kept columns.
        numbers: the columns of numbers, which become float32 if all parts of a column
            are float32, else float64.
    """
    with errors_of(argument, source):
        parts = _parts(connection, argument, source, {*ids.values(), *numbers.values()})
        types = {}
        for key, sought in ids.items():
            where = f"the column {sought.name!r} of"
            of_ids = {f"{where} {part.name}": part.id_type(sought) for part in parts}
            types[key] = common_type(sought.argument, of_ids)
        for key, sought in numbers.items():
            of_parts = {part.number_type(sought) for part in parts}
            types[key] = "FLOAT" if of_parts == {"FLOAT"} else "DOUBLE"
        tables = [part.select({**ids, **numbers}, types) for part in parts]
    return _union(tables)


def tabular(argument: str, source: Any) -> Any:
    """Returns files unchanged, and a table in memory as an Arrow table."""
    if are_files(source) or isinstance(
        source, pa.Table | pa.RecordBatchReader | dataset.Dataset
    ):
        return source
    if isinstance(source, duckdb.DuckDBPyRelation):
        return source.to_arrow_reader()
    if not (hasattr(source, "__arrow_c_stream__") or isinstance(source, Mapping)):
        raise ValueError(
            f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
            "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns. "
            f"Received: {named(source)}"
        )
    return pa.table(source)


def columns_of(argument: str, source: Any) -> list[str]:
    """The names of the columns of a table, or of the first of its files."""
    if are_files(source):
        source = files_of(argument, source)[:1]
    with errors_of(argument, source), connect() as connection:
        return _parts(connection, argument, source, set())[0].columns


def common_type(argument: str, types: Mapping[str, str]) -> str:
    """Returns a type in which ids of several types can be compared without loss.

    Args:
        argument: the name of the argument that names the ids.
        types: the types, by where they are found.
    """
    types = {where: type_ for where, type_ in types.items() if type_ != NOTHING}
    found = set(types.values()) or {"VARCHAR"}
    if len(found) == 1:
        return found.pop()
    if found <= SMALL | {"BIGINT"}:
        return "BIGINT"
    if found <= FLOATS:
        return "DOUBLE"
    if found <= INTEGERS or ("VARCHAR" in found and found <= _AS_TEXT):
        return "VARCHAR"
    (one, type_), *others = types.items()
    other, other_type = next(each for each in others if each[1] != type_)
    raise ValueError(
        f"`{argument}` should have ids of types that can be compared. Received: "
        f"{type_} in {one}, and {other_type} in {other}"
    )


def files_with(source: Any, ids: Mapping[str, Sought], values: Sequence[Any]) -> str:
    """Names the files with a row of the given ids."""
    if not are_files(source):
        return named(source)
    of_row = zip(ids, values, strict=True)
    is_row = " AND ".join(
        f'CAST("{key}" AS VARCHAR) = {in_sql(str(value))}' for key, value in of_row
    )
    # Another DuckDB, as the first one is still reading rows.
    with connect() as connection:
        found = [
            file
            for file in files_of("rows", source)
            if select(connection, "rows", file, ids, {})
            .filter(is_row)
            .limit(1)
            .fetchall()
        ]
    return named(found or source)


def _parts(
    connection: Connection, argument: str, source: Any, sought: set[Sought]
) -> Sequence[Part]:
    """Returns the tables of files, or of anything that Arrow can read, lazily."""
    if not are_files(source):
        table = tabular(argument, source)
        return [ArrowPart(connection, "a table", table.schema, table)]
    files = files_of(argument, source)
    formats = {format_of(file) for file in files}
    if len(formats) > 1 or None in formats:
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(FORMATS)}. Received: {named(files)}"
        )
    (format_,) = formats
    if format_ == "ipc":
        shards = {file: dataset.dataset(file, format="ipc") for file in files}
        return [ArrowPart(connection, x, y.schema, y) for x, y in shards.items()]
    if format_ == "parquet":
        names = list({each.name for each in sought})
        return [ParquetPart(connection, x) for x in alike(connection, files, names)]
    # DuckDB would invent a column for them.
    files = [file for file in files if "://" in file or os.path.getsize(file)]
    if not files:
        raise no_rows(argument, source)
    of_file = CsvPart if format_ == "csv" else JsonPart
    return [of_file(connection, file) for file in files]


def _union(tables: Sequence[Relation]) -> Relation:
    """Concatenates tables."""
    if len(tables) == 1:
        return tables[0]
    # In halves, as DuckDB limits the depth of a query.
    half = len(tables) // 2
    return _union(tables[:half]).union(_union(tables[half:]))
