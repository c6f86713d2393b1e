"""The sources of rows: files and tables in memory, read column by column.

A column is found by its exact name. Several files are read in types that lose no
information, or not at all. Ids are read as written.
"""

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
from keras import ops
from pyarrow import dataset

from keras_rank.reading import engine, files, text
from keras_rank.reading.files import layout_of
from keras_rank.reading.part import ColumnRefs, Part, common_type
from keras_rank.reading.typed_files import ArrowPart, JsonPart, parts_of_files

_TEXTS: dict[str, Callable[..., Part]] = {
    "csv": text.CsvPart,
    "json": JsonPart,
    "lines": text.LinesPart,
}
# What is no table of rows.
_OF_QUERIES = ", with the items of each query, which `evaluate_run` takes"


def select(
    parts: Sequence[Part], ids: ColumnRefs, numbers: ColumnRefs
) -> list[engine.Relation]:
    """Returns columns of each part of a table under new names, in the order of rows.

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
    return [part.select({**ids, **numbers}, types) for part in parts]


def union(tables: Sequence[engine.Relation]) -> engine.Relation:
    """Concatenates tables."""
    if len(tables) == 1:
        return tables[0]
    # In halves, as DuckDB limits the depth of a query.
    half = len(tables) // 2
    return union(tables[:half]).union(union(tables[half:]))


def parts_of(
    connection: engine.Connection, argument: str, source: Any, names: Collection[str]
) -> Sequence[Part]:
    """Returns the tables of files, or of anything that Arrow can read, lazily.

    Args:
        connection: a DuckDB.
        argument: the name of the argument that is the source.
        source: files, or a table in memory.
        names: names of columns that may be looked for.
    """
    if not files.are_files(source):
        return [ArrowPart(connection, "a table", _tabular(argument, source))]
    layouts = {x: layout_of(argument, x) for x in files.files_of(argument, source)}
    filled = [file for file, layout in layouts.items() if layout != "nothing"]
    if not filled and argument == "run":
        # Nothing was found.
        nothing = pa.table({name: pa.nulls(0) for name in names})
        return [ArrowPart(connection, files.named(source), nothing)]
    if not filled:
        raise files.no_rows(argument, source)
    found = {layouts[file] for file in filled}
    if len(found) > 1 or (argument == "rows" and "lines" in found):
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(files.FORMATS)}"
            + ". `evaluate_run` reads files of lines, such as TREC's"
            * ("lines" in found and argument == "rows")
            + f". Received: {files.named(filled)}"
        )
    (layout,) = found
    with files.errors_of(argument, filled[0] if len(filled) == 1 else source):
        if layout in _TEXTS:
            parts = [_TEXTS[layout](connection, argument, x, names) for x in filled]
            is_other = argument == "rows" and set(names).isdisjoint(parts[0].columns)
            if is_other and layout_of("qrels", filled[0]) == "nested":
                raise not_understood(argument, files.named(source) + _OF_QUERIES)
            return parts
        return list(parts_of_files(connection, filled, layout))


def _tabular(argument: str, source: Any) -> Any:
    """Returns a table in memory as one of Arrow, or a relation of DuckDB."""
    of_arrow = pa.Table | pa.RecordBatchReader | dataset.Dataset
    if isinstance(source, of_arrow | engine.Relation):
        return source
    is_series = argument != "rows" and hasattr(source, "to_list")
    is_table = hasattr(source, "__arrow_c_stream__") or isinstance(source, Mapping)
    if is_series or not is_table:
        advice = "`to_list` makes lists" if is_series else "`collect` makes a table"
        has_method = is_series or hasattr(source, "collect")
        reason = f", which its method {advice}" * has_method
        if isinstance(source, Iterable) and not has_method:
            reason = ". If it has a row for each item, pass `pandas.DataFrame(rows)`"
        raise not_understood(argument, files.named(source) + reason)
    of_queries = isinstance(source, Mapping) and any(
        isinstance(items, Mapping) for items in source.values()
    )
    if argument == "rows" and of_queries:
        raise not_understood(argument, files.named(source) + _OF_QUERIES)
    try:
        if isinstance(source, Mapping):
            for name, values in source.items():
                if isinstance(values, str | bytes | Set):
                    raise not_understood(
                        argument,
                        f"the column {name!r} as {reprlib.repr(values)}, which should "
                        "be a list or an array",
                    )
            source = {name: _flat(values) for name, values in source.items()}
        return pa.table(source)
    except (TypeError, ValueError, OverflowError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def not_understood(argument: str, received: str) -> ValueError:
    """The error for what is no source of rows."""
    accepted = (
        ", or a dict of items for each query, or, on both sides, lists of the ids of "
        "each query"
    ) * (argument != "rows")
    return ValueError(
        f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
        "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns"
        f"{accepted}. Received: {received}"
    )


def _flat(values: Any) -> Any:
    """A column of a dict: maybe a tensor, or `(rows, 1)` numbers, as predicted."""
    if ops.is_tensor(values) and not isinstance(values, np.ndarray):
        # Arrow reads no tensors.
        values = ops.convert_to_numpy(values)
    is_column = getattr(values, "ndim", 1) == 2 and values.shape[1] == 1
    return np.asarray(values)[:, 0] if is_column else values


def received_twice(
    argument: str, source: Any, ids: ColumnRefs, values: Sequence[Any], hint: str = ""
) -> ValueError:
    """The error for duplicate items of a query, which names files and lines.

    Args:
        argument: the name of the argument that is the source.
        source: the source of the rows.
        ids: the columns of queries and items in files, if they have a row for each.
        values: a query, and an item that it has twice, perhaps for a subtopic.
        hint: the options that count one or each of them.
    """
    found: list[str] = []
    if ids and files.are_files(source):
        names = {each.name for each in ids.values()}
        # Another DuckDB, as the first one is still reading rows.
        with engine.connect() as connection:
            for file in files.files_of(argument, source):
                for part in parts_of(connection, argument, file, names):
                    found += part.where(ids, values)
    query, item, *subtopic = values
    return ValueError(
        f"`{argument}` should have each item of a query once. Received twice: the item "
        f"{item!r} of the query {query!r}"
        + "".join(f" and the subtopic {x!r}" for x in subtopic)
        + ", in "
        + (" and ".join(found) or files.named(source))
        + hint
    )
