"""Tables of Arrow and files of Parquet and Arrow, whose columns have types."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset, fs

from keras_rank.reading.engine import Connection, Relation
from keras_rank.reading.files import folders_of
from keras_rank.reading.part import Part


class ArrowPart(Part):
    """A table of Arrow, or files with the same columns.

    Args:
        connection: a DuckDB.
        name: as for `Part`.
        schema: the schema.
        source: the table, or what yields its batches.
        file: as for `Part`.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        schema: pa.Schema,
        source: pa.Table | dataset.Dataset | Iterable[pa.RecordBatch],
        file: str = "",
    ) -> None:
        super().__init__(name, schema.names, file)
        self._connection, self._source = connection, source
        self._schema = pa.schema(map(_without_half, schema))

    def type_of(self, place: int) -> str:
        if place >= len(self._schema):
            return "VARCHAR"
        empty = pa.schema([self._schema.field(place)]).empty_table()
        return str(self._connection.from_arrow(empty).types[0])

    def scan(self, places: Sequence[int]) -> Relation:
        # One is read in any case, as all others may be those of folders.
        read = sorted({x for x in (*places, 0) if x < len(self._schema)})
        schema = pa.schema(self._schema.field(x).with_name(str(x)) for x in read)
        if isinstance(self._source, pa.Table):
            table = self._source.select(read).rename_columns(schema.names)
            return self._connection.from_arrow(table.cast(schema))
        batches: Iterable[pa.RecordBatch] = self._source
        if isinstance(self._source, dataset.Dataset):
            names = [self._schema.names[x] for x in read]
            batches = self._source.to_batches(columns=names)
        else:
            batches = (batch.select(read) for batch in self._source)
        named = (batch.rename_columns(schema.names).cast(schema) for batch in batches)
        reader = pa.RecordBatchReader.from_batches(schema, named)
        return self._connection.from_arrow(reader)


def parts_of_files(
    connection: Connection, files: Sequence[str], format_: str
) -> Iterator[ArrowPart]:
    """Yields runs of consecutive files with the same columns and folders."""
    local = fs.LocalFileSystem()
    read = {"parquet": dataset.ParquetFileFormat, "ipc": dataset.IpcFileFormat}[format_]

    def alike(file: str) -> tuple[Any, ...]:
        return folders_of(file), read().inspect(file, local).remove_metadata()

    for (_, schema), same in itertools.groupby(files, alike):
        shards = list(same)
        source = dataset.FileSystemDataset.from_paths(
            shards, schema=schema, format=read(), filesystem=local
        )
        yield ArrowPart(connection, shards[0], schema, source, shards[0])


def _without_half(field: pa.Field) -> pa.Field:
    """The field in float32 if it is in float16, which DuckDB does not have."""
    is_half = pa.types.is_float16(field.type)
    return field.with_type(pa.float32()) if is_half else field
