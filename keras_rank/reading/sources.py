"""Readers of columns from files and from tables in memory.

A column is found by its exact name. Several files are read with types that lose no
information, and files without common types are rejected. Ids are read as written.
"""

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
from keras import ops
from pyarrow import dataset

from keras_rank.reading import engine, files, text
from keras_rank.reading.files import detect_layout
from keras_rank.reading.part import ColumnRefs, Part, common_type
from keras_rank.reading.typed_files import ArrowPart, JsonPart, open_typed_parts

_TEXT_PARTS: dict[str, Callable[..., Part]] = {
    "csv": text.CsvPart,
    "json": JsonPart,
    "lines": text.LinesPart,
}
# The end of the error for sources that are not tables of rows.
_QUERY_DICT_HINT = ", with the items of each query, which `evaluate_run` takes"


def select(
    parts: Sequence[Part], ids: ColumnRefs, numbers: ColumnRefs
) -> list[engine.Relation]:
    """Returns columns of each part under new names, with common types for all parts.

    Args:
        parts: the parts.
        ids: the columns of ids, and those of the argument `keep`.
        numbers: the columns of numbers. A column becomes float32 if it is float32 in
            all parts, else float64.
    """
    types = {}
    for key, column in ids.items():
        prefix = f"the column {column.name!r} of"
        id_types = {f"{prefix} {part.name}": part.id_type(column) for part in parts}
        types[key] = common_type(column.argument, id_types)
    for key, column in numbers.items():
        part_types = {part.number_type(column) for part in parts}
        types[key] = "FLOAT" if part_types == {"FLOAT"} else "DOUBLE"
    return [part.select({**ids, **numbers}, types) for part in parts]


def union(tables: Sequence[engine.Relation]) -> engine.Relation:
    """Concatenates tables."""
    if len(tables) == 1:
        return tables[0]
    # DuckDB limits the depth of a query, so the tables are concatenated in halves.
    half = len(tables) // 2
    return union(tables[:half]).union(union(tables[half:]))


def open_parts(
    connection: engine.Connection, argument: str, source: Any, names: Collection[str]
) -> Sequence[Part]:
    """Opens files, or a table in memory that Arrow can read, as parts.

    Args:
        connection: a DuckDB connection.
        argument: the name of the argument whose value is the source.
        source: files, or a table in memory.
        names: the names of columns that may be requested.
    """
    if not files.is_file_source(source):
        return [ArrowPart(connection, "a table", _to_table(argument, source))]
    layouts = {
        x: detect_layout(argument, x) for x in files.list_files(argument, source)
    }
    filled = [file for file, layout in layouts.items() if layout != "nothing"]
    if not filled and argument == "run":
        # An empty file is a run in which nothing was retrieved.
        empty_table = pa.table({name: pa.nulls(0) for name in names})
        return [ArrowPart(connection, files.describe_source(source), empty_table)]
    if not filled:
        raise files.no_rows_error(argument, source)
    distinct_layouts = {layouts[file] for file in filled}
    if len(distinct_layouts) > 1 or (
        argument == "rows" and "lines" in distinct_layouts
    ):
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(files.FORMATS)}"
            + ". `evaluate_run` reads files of lines, such as TREC's"
            * ("lines" in distinct_layouts and argument == "rows")
            + f". Received: {files.describe_source(filled)}"
        )
    (layout,) = distinct_layouts
    with files.reraise_errors(argument, filled[0] if len(filled) == 1 else source):
        if layout in _TEXT_PARTS:
            parts = [
                _TEXT_PARTS[layout](connection, argument, x, names) for x in filled
            ]
            lacks_columns = argument == "rows" and set(names).isdisjoint(
                parts[0].columns
            )
            if lacks_columns and detect_layout("qrels", filled[0]) == "nested":
                raise source_error(
                    argument, files.describe_source(source) + _QUERY_DICT_HINT
                )
            return parts
        return list(open_typed_parts(connection, filled, layout))


def _to_table(argument: str, source: Any) -> Any:
    """Converts a table in memory to Arrow. DuckDB relations are returned unchanged."""
    arrow_types = pa.Table | pa.RecordBatchReader | dataset.Dataset
    if isinstance(source, arrow_types | engine.Relation):
        return source
    is_series = argument != "rows" and hasattr(source, "to_list")
    is_table = hasattr(source, "__arrow_c_stream__") or isinstance(source, Mapping)
    if is_series or not is_table:
        advice = "`to_list` makes lists" if is_series else "`collect` makes a table"
        has_method = is_series or hasattr(source, "collect")
        reason = f", which its method {advice}" * has_method
        if isinstance(source, Iterable) and not has_method:
            reason = ". If it has a row for each item, pass `pandas.DataFrame(rows)`"
        raise source_error(argument, files.describe_source(source) + reason)
    has_query_dicts = isinstance(source, Mapping) and any(
        isinstance(items, Mapping) for items in source.values()
    )
    if argument == "rows" and has_query_dicts:
        raise source_error(argument, files.describe_source(source) + _QUERY_DICT_HINT)
    try:
        if isinstance(source, Mapping):
            for name, values in source.items():
                if isinstance(values, str | bytes | Set):
                    raise source_error(
                        argument,
                        f"the column {name!r} as {reprlib.repr(values)}, which should "
                        "be a list or an array",
                    )
            source = {name: _flatten_column(values) for name, values in source.items()}
        return pa.table(source)
    except (TypeError, ValueError, OverflowError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def source_error(argument: str, received: str) -> ValueError:
    """Returns the error for a value that is not a source of rows."""
    accepted = (
        ", or a dict of items for each query, or, on both sides, lists of the ids of "
        "each query"
    ) * (argument != "rows")
    return ValueError(
        f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
        "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns"
        f"{accepted}. Received: {received}"
    )


def _flatten_column(values: Any) -> Any:
    """Returns a column of a dict that Arrow can read.

    Tensors become arrays, and arrays of shape `(rows, 1)`, such as predictions, become
    1D.
    """
    if ops.is_tensor(values) and not isinstance(values, np.ndarray):
        # Arrow does not read tensors.
        values = ops.convert_to_numpy(values)
    is_column = getattr(values, "ndim", 1) == 2 and values.shape[1] == 1
    return np.asarray(values)[:, 0] if is_column else values


def duplicate_items_error(
    argument: str, source: Any, ids: ColumnRefs, values: Sequence[Any], hint: str = ""
) -> ValueError:
    """Returns the error for duplicate items of a query, which names files and lines.

    Args:
        argument: the name of the argument whose value is the source.
        source: the source of the rows.
        ids: the columns of queries and items. Empty if the source has no row for each
            item.
        values: a query, an item that it has several times, and perhaps a subtopic.
        hint: the end of the message, with options that accept duplicates.
    """
    locations: list[str] = []
    if ids and files.is_file_source(source):
        names = {column.name for column in ids.values()}
        # A new connection is needed, as the first one is still reading rows.
        with engine.connect() as connection:
            for file in files.list_files(argument, source):
                for part in open_parts(connection, argument, file, names):
                    locations += part.locate_ids(ids, values)
    query, item, *subtopic = values
    return ValueError(
        f"`{argument}` should have each item of a query once. Received twice: the item "
        f"{item!r} of the query {query!r}"
        + "".join(f" and the subtopic {x!r}" for x in subtopic)
        + ", in "
        + (" and ".join(locations) or files.describe_source(source))
        + hint
    )
