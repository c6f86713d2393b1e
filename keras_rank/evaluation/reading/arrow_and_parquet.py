"""Arrow and Parquet, whose columns have types."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from keras_rank.evaluation.reading.engine import (
    Connection,
    Relation,
    in_sql,
    read_parquet,
)
from keras_rank.evaluation.reading.files import folders_of, literally
from keras_rank.evaluation.reading.part import Part, of_places


class ArrowPart(Part):
    """An Arrow table."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        schema: pa.Schema,
        source: pa.Table | dataset.Dataset | Iterable[pa.RecordBatch],
    ) -> None:
        super().__init__(name, schema.names)
        self._connection, self._source = connection, source
        self._schema = pa.schema(map(_without_half, schema))

    def type_of(self, place: int) -> str:
        empty = pa.schema([self._schema.field(place)]).empty_table()
        return str(self._connection.from_arrow(empty).types[0])

    def read(self, places: Sequence[int]) -> Relation:
        schema = pa.schema([self._schema.field(place) for place in places])
        named = pa.schema(field.with_name(str(i)) for i, field in enumerate(schema))
        if isinstance(self._source, pa.Table):
            table = self._source.select(places).cast(schema)
            return self._connection.from_arrow(table.rename_columns(named.names))
        batches: Iterable[pa.RecordBatch] = self._source
        if isinstance(self._source, dataset.Dataset):
            read = list(dict.fromkeys(places))
            batches = self._source.to_batches(
                columns=[self._schema.names[place] for place in read]
            )
            places = [read.index(place) for place in places]
        of_places = (
            batch.select(places).cast(schema).rename_columns(named.names)
            for batch in batches
        )
        return self._connection.from_arrow(
            pa.RecordBatchReader.from_batches(named, of_places)
        )


class ParquetPart(Part):
    """Parquet files."""

    def __init__(self, connection: Connection, files: Sequence[str]) -> None:
        rows = connection.sql(
            "SELECT name, num_children FROM "
            f"parquet_schema({in_sql(literally(files[0]))}) ORDER BY column_id"
        ).fetchall()
        # A column is followed by its nested columns, and these by theirs.
        top: list[str] = []
        left = 0
        for name, children in rows[1:]:
            if left == 0:
                top.append(name)
            left = max(left - 1, 0) + (children or 0)
        self._table = read_parquet(connection, files, top)
        # The names of folders such as `market=de` come last.
        super().__init__(files[0], top + self._table.columns[len(top) :])

    def type_of(self, place: int) -> str:
        return str(self._table.types[place])

    def read(self, places: Sequence[int]) -> Relation:
        return of_places(self._table, places)


def alike(
    connection: Connection, files: list[str], names: list[str]
) -> Iterator[list[str]]:
    """Yields runs of consecutive Parquet files with columns of the same types."""
    rows = connection.sql(
        "SELECT file_name, column_id, name, duckdb_type FROM "
        f"parquet_schema({in_sql(list(map(literally, files)))}) "
        f"WHERE column_id = 0 OR list_contains({in_sql(names)}, name)"
    ).fetchall()
    columns: dict[str, list[tuple[Any, ...]]] = {}
    for file, *column in rows:
        columns.setdefault(file, []).append(tuple(column))

    def types(file: str) -> tuple[Any, ...]:
        # The first column is the file itself.
        return set(folders_of(file)), [each[1:] for each in sorted(columns[file])[1:]]

    for _, same in itertools.groupby(columns, types):
        yield list(same)


def _without_half(field: pa.Field) -> pa.Field:
    """The field in float32 if it is in float16, which DuckDB does not have."""
    is_half = pa.types.is_float16(field.type)
    return field.with_type(pa.float32()) if is_half else field
