"""Tables as they lie in files and in memory: their columns by name, place and type."""

import abc
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import duckdb
import pyarrow as pa
from pyarrow import dataset

from keras_rank.evaluation.files import literally

Connection: TypeAlias = duckdb.DuckDBPyConnection
Relation: TypeAlias = duckdb.DuckDBPyRelation

# The types of DuckDB: integers that float64 has, others, and those of numbers.
SMALL = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL")}
SMALL |= {"INTEGER", "UINTEGER"}
_BIG = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
INTEGERS = SMALL | _BIG
FLOATS = {"FLOAT", "DOUBLE"}
_LARGE = (*_BIG, "DECIMAL")
_NUMBERS = (*INTEGERS, *FLOATS, "BOOLEAN", "DECIMAL")
# The type of a column that has no values.
NOTHING = '"NULL"'
# From here on, float64 does not have all integers.
_LARGEST_INTEGER = 2**53


class Sought(NamedTuple):
    """A column that an argument names.

    Attributes:
        argument: the name of the argument.
        name: the name of the column.
    """

    argument: str
    name: str


class Part(abc.ABC):
    """A table in memory, or files that have the same columns.

    Args:
        name: what it is called in messages.
        columns: the names of the columns, as they are written.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name, self.columns = name, list(columns)

    @abc.abstractmethod
    def type_of(self, place: int) -> str:
        """Returns the type of the column of a place."""

    @abc.abstractmethod
    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        """Returns the columns of places, which are called `0`, `1`, ...

        Args:
            places: the places of the columns.
            types: what to read them as, where the file does not say.
        """

    def id_type(self, sought: Sought) -> str:
        """Returns the type of a column of ids, or of what is known of a query."""
        type_ = self.type_of(self.place(sought))
        if type_.endswith("]") or type_.startswith(("STRUCT", "MAP", "UNION")):
            raise ValueError(
                f"`{sought.argument}` should name columns of numbers, text, or dates. "
                f"Received: {sought.argument}={sought.name!r}, which is of the type "
                f"{type_}"
            )
        # Categories would be sorted by their codes, which files need not share.
        return "VARCHAR" if type_.startswith("ENUM") else type_

    def number_type(self, sought: Sought) -> str:
        """Returns the type of a column of numbers."""
        place = self.place(sought)
        type_ = self.type_of(place)
        if type_ == NOTHING:
            return type_
        if not type_.startswith(_NUMBERS) or type_.endswith("]"):
            found = self.read([place], [type_]).filter('"0" IS NOT NULL')
            if type_ == "VARCHAR":
                # Text that is no number, if there is any, is what to tell of.
                found = found.order('TRY_CAST("0" AS DOUBLE) IS NOT NULL')
            # A column without any value has a type of chance.
            for (value,) in found.limit(1).fetchall():
                raise ValueError(
                    f"`{sought.argument}` should name a column of numbers. Received: "
                    f"{sought.argument}={sought.name!r}, which is of the type {type_}, "
                    f"such as {value!r}"
                )
        return type_

    def select(
        self, sought: Mapping[str, Sought], types: Mapping[str, str]
    ) -> Relation:
        """Returns columns in types, under the names that these have."""
        places = [self.place(each) for each in sought.values()]
        table = self.read(places, [types[key] for key in sought])
        expressions = []
        for i, (key, place) in enumerate(zip(sought, places, strict=True)):
            value = f'CAST("{i}" AS {types[key]})'
            if types[key] in FLOATS:
                # An id of -0.0 is that of 0.0.
                value = f"{value} + CAST(0 AS {types[key]})"
                if self.type_of(place).startswith(_LARGE):
                    value = _if_exact(value, sought[key])
            expressions.append(f'{value} AS "{key}"')
        return query(table, f"SELECT {', '.join(expressions)} FROM source")

    def place(self, sought: Sought) -> int:
        """Returns the place of a column, which has to be there once."""
        number = self.columns.count(sought.name)
        if number == 1:
            return self.columns.index(sought.name)
        received = f"Received: {sought.argument}={sought.name!r}"
        if number:
            raise ValueError(
                f"`{sought.argument}` should name one column. {received}, which is the "
                f"name of {number} columns of {self.name}"
            )
        raise ValueError(
            f"`{sought.argument}` should name a column. {received}, and {self.name} "
            f"with the columns {self.columns}"
        )


class ArrowPart(Part):
    """A table of Arrow."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        schema: pa.Schema,
        source: pa.Table | dataset.Dataset | Iterable[pa.RecordBatch],
    ) -> None:
        super().__init__(name, schema.names)
        self._connection, self._schema, self._source = connection, schema, source

    def type_of(self, place: int) -> str:
        field = _without_half(self._schema.field(place))
        empty = self._connection.from_arrow(pa.schema([field]).empty_table())
        return str(empty.types[0])

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        fields = [_without_half(self._schema.field(place)) for place in places]
        schema = pa.schema(fields)
        named = pa.schema(field.with_name(str(i)) for i, field in enumerate(fields))
        if isinstance(self._source, pa.Table):
            table = self._source.select(places).cast(schema)
            return self._connection.from_arrow(table.rename_columns(named.names))
        batches: Iterable[pa.RecordBatch] = self._source
        if isinstance(self._source, dataset.Dataset):
            batches = self._source.to_batches(
                columns=[self._schema.names[place] for place in dict.fromkeys(places)]
            )
            places = [list(dict.fromkeys(places)).index(place) for place in places]
        return self._connection.from_arrow(
            pa.RecordBatchReader.from_batches(
                named,
                (
                    batch.select(places).cast(schema).rename_columns(named.names)
                    for batch in batches
                ),
            )
        )


class ParquetPart(Part):
    """Files of Parquet."""

    def __init__(self, connection: Connection, files: Sequence[str]) -> None:
        rows = connection.sql(
            "SELECT name, num_children FROM "
            f"parquet_schema({_sql(literally(files[0]))}) ORDER BY column_id"
        ).fetchall()
        # A column is followed by its parts, and these by theirs.
        top: list[str] = []
        left = 0
        for name, children in rows[1:]:
            if left == 0:
                top.append(name)
            left = max(left - 1, 0) + (children or 0)
        self._table = _table_of(connection, "read_parquet", files, top)
        # The names of folders such as `market=de` come last.
        of_folders = self._table.columns[len(top) :]
        super().__init__(files[0], top + of_folders)

    def type_of(self, place: int) -> str:
        return str(self._table.types[place])

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        return _of_places(self._table, places)


class TextPart(Part):
    """A file of text, which says nothing of types: what is read has to fit.

    Args:
        connection: a DuckDB.
        file: the file.
        columns: the names of the columns.
        types: what the columns seem to be, by the first rows.
    """

    def __init__(
        self,
        connection: Connection,
        file: str,
        columns: Sequence[str],
        types: Sequence[str],
    ) -> None:
        super().__init__(file, columns)
        self._connection, self._types = connection, list(types)

    def type_of(self, place: int) -> str:
        return self._types[place]

    def id_type(self, sought: Sought) -> str:
        """Returns an integer where all ids are written as these, and else text."""
        type_ = super().id_type(sought)
        if type_ not in INTEGERS:
            return "VARCHAR"
        texts = self.read([self.place(sought)], ["VARCHAR"])
        as_written = f'CAST(TRY_CAST("0" AS {type_}) AS VARCHAR) = "0"'
        others = texts.filter(f'NOT coalesce({as_written}, "0" IS NULL)')
        return "VARCHAR" if others.limit(1).fetchall() else type_


class CsvPart(TextPart):
    """A file of CSV."""

    def __init__(self, connection: Connection, file: str) -> None:
        (found,) = connection.sql(
            "SELECT Delimiter, Quote, Escape, Comment, SkipRows, HasHeader, Columns "
            f"FROM sniff_csv({_sql(literally(file))})"
        ).fetchall()
        *marks, skipped, has_header, columns = found
        # DuckDB makes the names distinct, in any case.
        self._names = [column["name"] for column in columns]
        marks = ["" if mark == "(empty)" else mark for mark in marks]
        self._dialect = dict(
            zip(("delim", "quote", "escape", "comment"), marks, strict=True),
            skip=skipped,
            header=has_header,
        )
        self._connection, self._file = connection, file
        head = self._read({}, header=False).limit(1)
        # The names of folders such as `market=de` come last.
        names, of_folders = self._names, head.columns[len(columns) :]
        if has_header:
            (row,) = head.fetchall()
            names = [str(name).strip() for name in row[: len(columns)]]
        types = [column["type"] for column in columns] + ["VARCHAR"] * len(of_folders)
        super().__init__(connection, file, names + of_folders, types)

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        return _of_places(self._read(_by_place(places, types)), places)

    def _read(self, types: Mapping[int, str], **others: Any) -> Relation:
        columns = {
            name: types.get(place, "VARCHAR") for place, name in enumerate(self._names)
        }
        arguments = {**self._dialect, **others, "columns": columns}
        return _table_of(
            self._connection,
            "read_csv",
            [self._file],
            self._names,
            auto_detect=False,
            **arguments,
        )


class JsonPart(TextPart):
    """A file of JSON lines, or of a list of objects."""

    def __init__(self, connection: Connection, file: str) -> None:
        self._keys = _table_of(connection, "read_json", [file], None).columns
        table = _table_of(connection, "read_json", [file], self._keys)
        names = table.columns
        if any(_seems_renamed(name, names) for name in names):
            names = _keys(connection, file, names)
        super().__init__(connection, file, names, list(map(str, table.types)))

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        by_place = _by_place(places, types)
        columns = {self.columns[place]: type_ for place, type_ in by_place.items()}
        table = _table_of(
            self._connection, "read_json", [self.name], self._keys, columns=columns
        )
        return _of_places(table, [list(by_place).index(place) for place in places])


def connect(**config: str) -> Connection:
    """A DuckDB that leaves standard output to what is asked for."""
    connection = duckdb.connect(config=dict(config))
    connection.execute("SET enable_progress_bar_print = false")
    return connection


def alike(
    connection: Connection, files: list[str], names: list[str]
) -> Iterator[list[str]]:
    """Yields files of Parquet that follow each other with columns of the same types."""
    rows = connection.sql(
        "SELECT file_name, name, duckdb_type, column_id FROM "
        f"parquet_schema({_sql(list(map(literally, files)))}) "
        f"WHERE column_id = 0 OR list_contains({_sql(names)}, name)"
    ).fetchall()
    columns: dict[str, list[tuple[Any, ...]]] = {}
    for file, *column in rows:
        columns.setdefault(file, []).append((column[-1], *column[:-1]))

    def types(file: str) -> tuple[Any, ...]:
        return _folders(file), [column[1:] for column in sorted(columns[file])[1:]]

    for _, alike in itertools.groupby(columns, types):
        yield list(alike)


def query(table: Relation, sql: str) -> Relation:
    """Returns what a query selects from the table, which it calls `source`."""
    return cast(Relation, table.query("source", sql))


def _if_exact(value: str, sought: Sought) -> str:
    """The expression of a number, or an error where it is too large an integer."""
    message = (
        f"the column {sought.name!r} has integers from 2**53 on, of which float64 does "
        "not have all"
    )
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST_INTEGER} THEN error({_sql(message)}) "
        f"ELSE {value} END"
    )


def _table_of(
    connection: Connection,
    function: str,
    files: Sequence[str],
    columns_inside: Sequence[str] | None,
    **arguments: Any,
) -> Relation:
    """Returns what a function of DuckDB reads from files.

    Args:
        connection: a DuckDB.
        function: the function.
        files: the files.
        columns_inside: the columns of the files, which those that folders name must not
            replace. `None`: without those of folders.
        arguments: the other arguments of the function.
    """
    folders = _folders(files[0])
    has_folders = columns_inside is not None and not folders & set(columns_inside)
    arguments["hive_partitioning"] = bool(folders) and has_folders
    # What the names of folders say is read as it is written too.
    arguments["hive_types_autocast"] = False
    given = "".join(f", {name} := {_sql(value)}" for name, value in arguments.items())
    paths = _sql(list(map(literally, files)))
    return connection.sql(f"SELECT * FROM {function}({paths}{given})")


def _folders(file: str) -> set[str]:
    """The names of columns in the names of folders, such as `market=de`."""
    return set(re.findall("([^/=]+)=[^/]*/", file))


def _by_place(places: Sequence[int], types: Sequence[str]) -> dict[int, str]:
    """The types to read columns as: text, where one is asked for in two types."""
    by_place: dict[int, str] = {}
    for place, type_ in zip(places, types, strict=True):
        by_place[place] = type_ if by_place.get(place, type_) == type_ else "VARCHAR"
    return by_place


def _sql(value: Any) -> str:
    """A value in SQL, as relations with parameters can't be put together."""
    if isinstance(value, dict):
        pairs = [f"{_sql(key)}: {_sql(each)}" for key, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_sql, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def _of_places(table: Relation, places: Sequence[int]) -> Relation:
    names = [_quoted(table.columns[place]) for place in places]
    expressions = [f'{name} AS "{i}"' for i, name in enumerate(names)]
    return query(table, f"SELECT {', '.join(expressions)} FROM source")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _keys(connection: Connection, file: str, names: Sequence[str]) -> list[str]:
    """The keys of JSON as they are written: DuckDB makes them distinct in any case."""
    rows = connection.sql(
        f"SELECT DISTINCT unnest(json_keys(json)) FROM "
        f"read_json_objects({_sql(literally(file))})"
    ).fetchall()
    keys = [key for (key,) in rows]
    renamed = {key.casefold(): key for key in keys if key not in names}
    return [
        name if name in keys else renamed.get(name.rpartition("_")[0].casefold(), name)
        for name in names
    ]


def _seems_renamed(name: str, names: Sequence[str]) -> bool:
    """Whether a number may have been added to a name that was there in another case."""
    base, _, number = name.rpartition("_")
    return number.isdecimal() and base.casefold() in map(str.casefold, names)


def _without_half(field: pa.Field) -> pa.Field:
    """The field in float32 where it is in float16, which DuckDB does not have."""
    is_half = pa.types.is_float16(field.type)
    return field.with_type(pa.float32()) if is_half else field
