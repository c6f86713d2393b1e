"""Arrow tables, and files of Parquet, Arrow and JSON lines."""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset, fs

from keras_rank.reading import files
from keras_rank.reading.engine import Connection, Relation, in_sql, query
from keras_rank.reading.files import folders_of
from keras_rank.reading.part import IDS, ColumnRef, Part
from keras_rank.reading.text import TextPart


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


class JsonPart(TextPart):
    """A file with an object in each line."""

    others = ", line, row"

    def names(self, sought: Collection[str]) -> Iterable[str]:
        if self.first.lstrip().startswith("["):
            raise ValueError(
                f"`{self.argument}` should have one object in each line of JSON. "
                f"Received: a list, in {files.named(self.file)}: write JSON lines, or "
                "pass `pandas.DataFrame(rows)`, where `rows = json.load(file)`"
            )
        self._keys: dict[str, None] = {}
        of_lines = query(
            self._objects(),
            "SELECT TRY(json_keys(line)) AS keys, min(row), arg_min(line, row) "
            "FROM source GROUP BY keys ORDER BY min(row)",
        ).fetchall()
        for keys, row, line in of_lines:
            if not keys or len(set(keys)) < len(keys):
                raise ValueError(
                    f"`{self.argument}` should have an object of JSON in each line, "
                    f"with each key once. Received, as number {row}: "
                    f"{files.shortened(line)}, in {files.named(self.file)}"
                )
            self._keys.update(dict.fromkeys(keys))
        if not self._keys:
            raise files.no_rows(self.argument, self.file)
        return self._keys

    def scan(self, places: Sequence[int]) -> Relation:
        keys = list(self._keys)
        read = list(dict.fromkeys(x for x in (*places, 0) if x < len(keys)))
        pointers, texts = [_pointer(keys[x]) for x in read], []
        for i, (x, pointer) in enumerate(zip(read, pointers, strict=True), 1):
            message = f"{keys[x]!r} should be a text or a number. Received, as number "
            texts.append(
                f"CASE WHEN texts[{i}][1] IN ('{{', '[') AND json_type(line, {pointer})"
                f" IN ('OBJECT', 'ARRAY') THEN error({in_sql(message)} || row || ': ' "
                f"|| line) ELSE coalesce(texts[{i}], '') END AS \"{x}\""
            )
        # Together, as each call parses the line.
        extracted = f"json_extract_string(line, [{', '.join(pointers)}]) AS texts"
        return query(
            query(self._objects(), f"SELECT *, {extracted} FROM source"),
            f"SELECT {', '.join(texts)}, line, row FROM source",
        )

    def error(self, sought: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        if not text or sought.argument not in IDS:
            return super().error(sought, text, row)
        return sought.refused(
            "a column of texts or integers, as 1.10 and 1.1 are one number",
            f"with {text} in {self.place_of(row)}: write it as a text",
        )

    def _is_wrong(self, i: int, sought: ColumnRef, type_: str) -> str:
        is_wrong = super()._is_wrong(i, sought, type_)
        if sought.argument in IDS and sought.name in self._keys:
            type_ = f"json_type(line, {_pointer(sought.name)})"
            is_wrong += f" OR (regexp_matches(\"{i}\", '[.eE]') AND {type_} = 'DOUBLE')"
        return is_wrong

    def with_lists(self, name: str) -> Part:
        ((first, _),) = self._objects().limit(1).fetchall()
        if not isinstance(json.loads(first).get(name), list):
            return self
        rows = [json.loads(line) for line, _ in self._objects().fetchall()]
        columns = {key: [row.get(key) for row in rows] for key in self._keys}
        return ArrowPart(self.connection, self.name, pa.table(columns), self.name)

    def _objects(self) -> Relation:
        return self._lines().filter(r"regexp_matches(line, '\S')")


def _pointer(key: str) -> str:
    """The place of a value in an object of JSON, as SQL."""
    return in_sql("/" + key.replace("~", "~0").replace("/", "~1"))


def json_of(file: str | bytes) -> Any:
    """The content of a JSON file. Raises for duplicate keys."""

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            last = {key: i for i, (key, _) in enumerate(pairs)}
            twice = next(key for i, (key, _) in enumerate(pairs) if i < last[key])
            raise ValueError(
                "Objects of JSON should have each key once. Received twice: "
                f"{twice!r}, in {files.named(file)}"
            )
        return found

    with files.opened(file) as stream:
        try:
            return json.loads(stream.read(), object_pairs_hook=of_pairs)
        except ValueError as error:
            # Such as that of an integer with too many digits.
            raise pa.ArrowInvalid(str(error)) from error
