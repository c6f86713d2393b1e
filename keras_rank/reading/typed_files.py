"""Readers of Arrow tables, and of files of Parquet, Arrow and JSON lines."""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset, fs

from keras_rank.reading import files
from keras_rank.reading.engine import Connection, Relation, query, sql_literal
from keras_rank.reading.files import parse_partitions
from keras_rank.reading.part import ID_ARGUMENTS, ColumnRef, Part
from keras_rank.reading.text import TextPart


class ArrowPart(Part):
    """An Arrow table, or several files with equal columns.

    Args:
        connection: a DuckDB connection.
        name: the name of the table in messages.
        source: an Arrow table, dataset or stream, or a DuckDB relation.
        file: a file. The names of its folders may add columns.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        source: Any,
        file: str = "",
    ) -> None:
        # A DuckDB connection has only one open result, so `scan` opens a relation.
        is_relation = isinstance(source, Relation)
        empty = source.limit(0).to_arrow_table() if is_relation else source
        super().__init__(name, empty.schema.names, file)
        self._connection, self._source = connection, source
        self._schema = pa.schema(map(_widen_float16, empty.schema))

    def column_type(self, index: int) -> str:
        if index >= len(self._schema):
            return "VARCHAR"
        empty = pa.schema([self._schema.field(index)]).empty_table()
        return str(self._connection.from_arrow(empty).types[0])

    def count_rows_by_file(self, selected: Relation) -> list[int]:
        # The rows of a stream can't be counted before it is read, so the files are
        # counted. The schema has one column, as several columns may have one name.
        first = pa.schema([self._source.schema.field(0)])
        fragments = self._source.get_fragments()
        return [x.scanner(schema=first).count_rows() for x in fragments]

    def scan(self, indices: Sequence[int]) -> Relation:
        # The first column is always read, as all requested columns may be folder names.
        columns_read = sorted({x for x in (*indices, 0) if x < len(self._schema)})
        fields, source = [self._schema.field(x) for x in columns_read], self._source
        if isinstance(source, Relation):
            source = source.to_arrow_reader()
        if isinstance(source, dataset.Dataset):
            source = source.scanner([field.name for field in fields]).to_reader()
        elif isinstance(source, pa.Table):
            source = source.select(columns_read)
        else:
            batches = (batch.select(columns_read) for batch in source)
            schema = pa.schema(source.schema.field(x) for x in columns_read)
            source = pa.RecordBatchReader.from_batches(schema, batches)
        # Columns are named by index, as DuckDB ignores the case of names.
        names = ", ".join(f'"{x}"' for x in columns_read)
        table = self._connection.from_arrow(source.cast(pa.schema(fields)))
        return query(table, f"SELECT * FROM source AS by_place({names})")


def open_typed_parts(
    connection: Connection, files: Sequence[str], format_: str
) -> Iterator[ArrowPart]:
    """Yields a part for each sequence of files with equal columns and partitions."""
    formats = {"parquet": dataset.ParquetFileFormat, "ipc": dataset.IpcFileFormat}
    file_format, file_system = formats[format_](), fs.LocalFileSystem()

    def read_schema(file: str) -> tuple[Any, ...]:
        return parse_partitions(file), file_format.inspect(
            file, file_system
        ).remove_metadata()

    for (_, schema), group in itertools.groupby(files, read_schema):
        shards = list(group)
        source = dataset.FileSystemDataset.from_paths(
            shards, schema=schema, format=file_format, filesystem=file_system
        )
        yield ArrowPart(connection, shards[0], source, shards[0])


def _widen_float16(field: pa.Field) -> pa.Field:
    """Returns a float16 field as a float32 field, as DuckDB has no float16."""
    if pa.types.is_float16(field.type):
        return field.with_type(pa.float32())
    is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
    if is_list and pa.types.is_float16(field.type.value_type):
        return field.with_type(pa.large_list(pa.float32()))
    return field


class JsonPart(TextPart):
    """A file of JSON lines, with an object in each line."""

    extra_columns = ", line, row"

    def read_names(self, requested: Collection[str]) -> Iterable[str]:
        if self.first.lstrip().startswith("["):
            raise ValueError(
                f"`{self.argument}` should have one object in each line of JSON. "
                f"Received: a list, in {files.describe_source(self.file)}: write JSON "
                "lines, or pass `pandas.DataFrame(rows)`, where "
                "`rows = json.load(file)`"
            )
        self._keys: dict[str, None] = {}
        key_groups = query(
            self._objects(),
            "SELECT TRY(json_keys(line)) AS keys, min(row), arg_min(line, row) "
            "FROM source GROUP BY keys ORDER BY min(row)",
        ).fetchall()
        for keys, row, line in key_groups:
            if not keys or len(set(keys)) < len(keys):
                raise ValueError(
                    f"`{self.argument}` should have an object of JSON in each line, "
                    f"with each key once. Received, as number {row}: "
                    f"{files.shorten(line)}, in {files.describe_source(self.file)}"
                )
            self._keys.update(dict.fromkeys(keys))
        if not self._keys:
            raise files.no_rows_error(self.argument, self.file)
        return self._keys

    def scan(self, indices: Sequence[int]) -> Relation:
        keys = list(self._keys)
        columns_read = list(dict.fromkeys(x for x in (*indices, 0) if x < len(keys)))
        pointers, texts = [_json_pointer(keys[x]) for x in columns_read], []
        for i, (x, pointer) in enumerate(zip(columns_read, pointers, strict=True), 1):
            message = f"{keys[x]!r} should be a text or a number. Received, as number "
            texts.append(
                f"CASE WHEN texts[{i}][1] IN ('{{', '[') AND json_type(line, {pointer})"
                f" IN ('OBJECT', 'ARRAY') THEN error({sql_literal(message)} || row || "
                f"': ' || line) ELSE coalesce(texts[{i}], '') END AS \"{x}\""
            )
        # All keys are extracted in one call, as each call parses the line.
        extracted = f"json_extract_string(line, [{', '.join(pointers)}]) AS texts"
        return query(
            query(self._objects(), f"SELECT *, {extracted} FROM source"),
            f"SELECT {', '.join(texts)}, line, row FROM source",
        )

    def error(self, column: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        if not text or column.argument not in ID_ARGUMENTS:
            return super().error(column, text, row)
        return column.refused(
            "a column of texts or integers, as 1.10 and 1.1 are one number",
            f"with {text} in {self.locate_row(row)}: write it as a text",
        )

    def _invalid_condition(self, i: int, column: ColumnRef, type_: str) -> str:
        condition = super()._invalid_condition(i, column, type_)
        if column.argument in ID_ARGUMENTS and column.name in self._keys:
            type_ = f"json_type(line, {_json_pointer(column.name)})"
            condition += (
                f" OR (regexp_matches(\"{i}\", '[.eE]') AND {type_} = 'DOUBLE')"
            )
        return condition

    def parse_lists(self, name: str) -> Part:
        ((first, _),) = self._objects().limit(1).fetchall()
        if not isinstance(json.loads(first).get(name), list):
            return self
        rows = [json.loads(line) for line, _ in self._objects().fetchall()]
        columns = {key: [row.get(key) for row in rows] for key in self._keys}
        return ArrowPart(self.connection, self.name, pa.table(columns), self.name)

    def _objects(self) -> Relation:
        return self._lines().filter(r"regexp_matches(line, '\S')")


def _json_pointer(key: str) -> str:
    """Returns the JSON pointer of the value of a key, as an SQL literal."""
    return sql_literal("/" + key.replace("~", "~0").replace("/", "~1"))


def read_json(file: str | bytes) -> Any:
    """Returns the content of a JSON file, and raises for duplicate keys."""

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            last = {key: i for i, (key, _) in enumerate(pairs)}
            duplicate = next(key for i, (key, _) in enumerate(pairs) if i < last[key])
            raise ValueError(
                "Objects of JSON should have each key once. Received twice: "
                f"{duplicate!r}, in {files.describe_source(file)}"
            )
        return result

    with files.open_stream(file) as stream:
        try:
            return json.loads(stream.read(), object_pairs_hook=to_dict)
        except ValueError as error:
            # An integer with too many digits raises a `ValueError` that is not a
            # `JSONDecodeError`.
            raise pa.ArrowInvalid(str(error)) from error
