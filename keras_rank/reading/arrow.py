"""Tables of Arrow and files of Parquet and Arrow, whose columns have types."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset, fs

from keras_rank.reading.engine import Connection, Relation, query
from keras_rank.reading.files import folders_of
from keras_rank.reading.part import Part


class ArrowPart(Part):
    """A table of Arrow, or files with the same columns.

    Args:
        connection: a DuckDB.
        name: as for `Part`.
        source: a table, data set or stream of Arrow, or a relation of DuckDB.
        file: as for `Part`.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        source: Any,
        file: str = "",
    ) -> None:
        # A connection of DuckDB has one open result, so a relation is opened last.
        is_relation = isinstance(source, Relation)
        empty = source.limit(0).to_arrow_table() if is_relation else source
        super().__init__(name, empty.schema.names, file)
        self._connection, self._source = connection, source
        self._schema = pa.schema(map(_without_half, empty.schema))

    def type_of(self, place: int) -> str:
        if place >= len(self._schema):
            return "VARCHAR"
        empty = pa.schema([self._schema.field(place)]).empty_table()
        return str(self._connection.from_arrow(empty).types[0])

    def sizes_of_files(self, selected: Relation) -> list[int]:
        # A stream can't be counted before it is read, but files tell.
        # Of one column, as others may have the same name.
        first = pa.schema([self._source.schema.field(0)])
        fragments = self._source.get_fragments()
        return [x.scanner(schema=first).count_rows() for x in fragments]

    def scan(self, places: Sequence[int]) -> Relation:
        # One is read in any case, as all others may be those of folders.
        read = sorted({x for x in (*places, 0) if x < len(self._schema)})
        chosen, source = [self._schema.field(x) for x in read], self._source
        if isinstance(source, Relation):
            source = source.to_arrow_reader()
        if isinstance(source, dataset.Dataset):
            source = source.scanner([field.name for field in chosen]).to_reader()
        elif isinstance(source, pa.Table):
            source = source.select(read)
        else:
            batches = (batch.select(read) for batch in source)
            schema = pa.schema(source.schema.field(x) for x in read)
            source = pa.RecordBatchReader.from_batches(schema, batches)
        # By place, as DuckDB takes names in upper and lower case for the same.
        names = ", ".join(f'"{x}"' for x in read)
        table = self._connection.from_arrow(source.cast(pa.schema(chosen)))
        return query(table, f"SELECT * FROM source AS by_place({names})")


def parts_of_files(
    connection: Connection, files: Sequence[str], format_: str
) -> Iterator[ArrowPart]:
    """Yields runs of consecutive files with the same columns and folders."""
    formats = {"parquet": dataset.ParquetFileFormat, "ipc": dataset.IpcFileFormat}
    read, local = formats[format_](), fs.LocalFileSystem()

    def columns_of(file: str) -> tuple[Any, ...]:
        return folders_of(file), read.inspect(file, local).remove_metadata()

    for (_, schema), same in itertools.groupby(files, columns_of):
        shards = list(same)
        source = dataset.FileSystemDataset.from_paths(
            shards, schema=schema, format=read, filesystem=local
        )
        yield ArrowPart(connection, shards[0], source, shards[0])


def _without_half(field: pa.Field) -> pa.Field:
    """Returns a field in float32 if it is in float16, which DuckDB does not have."""
    if pa.types.is_float16(field.type):
        return field.with_type(pa.float32())
    is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
    if is_list and pa.types.is_float16(field.type.value_type):
        return field.with_type(pa.large_list(pa.float32()))
    return field
