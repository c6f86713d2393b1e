"""Where rows come from: files and tables in memory, read column by column.

A column is found by its name as it is written. Several files are read in types that
lose nothing of any of them, or not at all. Ids are read as they are written.
"""

import abc
import contextlib
import glob
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import duckdb
import pyarrow as pa
from pyarrow import dataset

Connection: TypeAlias = duckdb.DuckDBPyConnection
Relation: TypeAlias = duckdb.DuckDBPyRelation

# What reads a file, by the end of its name, which `.gz` or `.zst` may follow.
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
# What else tells a format, at the beginning of a file, of which so much is looked at.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "ipc"}
_BEGINNING = 2**16
_SMALL = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL")}
_SMALL |= {"INTEGER", "UINTEGER"}
_LARGE = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
_INTEGERS = _SMALL | _LARGE
_FLOATS = {"FLOAT", "DOUBLE"}
_NUMBERS = (*_INTEGERS, *_FLOATS, "BOOLEAN", "DECIMAL")
# The type of a column that has no values.
_NOTHING = '"NULL"'
# What is the same in text, so that it meets ids that are text.
_AS_TEXT = {*_INTEGERS, "DATE", "UUID", "VARCHAR"}
# From here on, float64 does not have all integers.
_LARGEST_INTEGER = 2**53
# How the lines of an error start in which DuckDB advises its own users.
_ADVICE = ("Possible", "Potential", "If you are trying", "Try ")


class Sought(NamedTuple):
    """A column that an argument names.

    Attributes:
        argument: the name of the argument.
        name: the name of the column.
    """

    argument: str
    name: str


def select(
    connection: Connection,
    argument: str,
    source: Any,
    ids: Mapping[str, Sought],
    numbers: Mapping[str, Sought],
) -> Relation:
    """Returns columns of a source, under names of their own, in the order of its rows.

    Args:
        connection: a DuckDB.
        argument: the name of the argument that is the source.
        source: files, or a table in memory.
        ids: the columns of ids, and of what is known of a query.
        numbers: the columns of numbers, which become float32 where all of a column
            are, and else float64.
    """
    with errors_of(argument, source):
        parts = _parts(connection, argument, source, {*ids.values(), *numbers.values()})
        types = {
            key: common_type(
                sought.argument,
                {_described(part, sought): part.id_type(sought) for part in parts},
            )
            for key, sought in ids.items()
        }
        for key, sought in numbers.items():
            of_parts = {part.number_type(sought) for part in parts}
            types[key] = "FLOAT" if of_parts == {"FLOAT"} else "DOUBLE"
        tables = [part.select({**ids, **numbers}, types) for part in parts]
    return _union(tables)


def tabular(argument: str, source: Any) -> Any:
    """Returns files as they are, and a table in memory as one of Arrow."""
    if _are_files(source) or isinstance(
        source, pa.Table | pa.RecordBatchReader | dataset.Dataset
    ):
        return source
    if isinstance(source, duckdb.DuckDBPyRelation):
        return source.to_arrow_reader()
    is_stream = hasattr(source, "__arrow_c_stream__")
    if not (is_stream or isinstance(source, Mapping | pa.RecordBatch)):
        raise ValueError(
            f"`{argument}` should be files (Parquet, CSV, JSON lines or Arrow), or "
            "a table of pyarrow, pandas, Polars or DuckDB, or a dict of columns. "
            f"Received: {named(source)}"
        )
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    return pa.table(source)


def columns_of(argument: str, source: Any) -> list[str]:
    """The names of the columns of a table, or of the first of its files."""
    if _are_files(source):
        source = files_of(argument, source)[:1]
    with errors_of(argument, source), duckdb.connect() as connection:
        return _parts(connection, argument, source, set())[0].columns


def beginning(source: str | os.PathLike[str]) -> bytes | None:
    """The first bytes of a file, or of the first of a pattern, if it can be reread."""
    path = os.fspath(source)
    if "://" not in path and not os.path.exists(path):
        path = min(glob.glob(path, recursive=True), default=path)
    if not os.path.isfile(path):
        return None
    with pa.input_stream(path, compression="detect") as stream:
        return bytes(stream.read(_BEGINNING))


def common_type(argument: str, types: Mapping[str, str]) -> str:
    """Returns the type in which ids of other types are compared, and lose nothing.

    Args:
        argument: the name of the argument that names the ids.
        types: the types by where they are found.
    """
    types = {where: type_ for where, type_ in types.items() if type_ != _NOTHING}
    found = set(types.values()) or {"VARCHAR"}
    if len(found) == 1:
        return found.pop()
    if found <= _SMALL | {"BIGINT"}:
        return "BIGINT"
    if found <= _FLOATS:
        return "DOUBLE"
    if found <= _INTEGERS or ("VARCHAR" in found and found <= _AS_TEXT):
        return "VARCHAR"
    (one, type_), *others = types.items()
    other, other_type = next(each for each in others if each[1] != type_)
    raise ValueError(
        f"`{argument}` should have ids of types that can be compared. Received: "
        f"{type_} in {one}, and {other_type} in {other}"
    )


def is_table(source: Any) -> bool:
    """Whether a source is a table, of which the columns have names, not of TREC."""
    return not isinstance(source, str | os.PathLike) or _format(source) is not None


def named(source: Any) -> str:
    """What a source is called in messages."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    if _are_files(source):
        return ", ".join(map(named, source[:3])) + ", ..." * (len(source) > 3)
    return f"a {type(source).__name__}"


def files_with(source: Any, ids: Mapping[str, Sought], values: Sequence[Any]) -> str:
    """Names the files that have a row with the values in columns of ids."""
    if not _are_files(source):
        return named(source)
    is_row = " AND ".join(f'CAST("{key}" AS VARCHAR) = ?' for key in ids)
    texts = [str(value) for value in values]
    found = []
    # Another DuckDB, as the rows are still read from the one.
    with duckdb.connect() as connection:
        for file in files_of("rows", source):
            rows = select(connection, "rows", file, ids, {})
            connection.register("rows_of_file", rows)
            sql = f"SELECT count(*) FROM rows_of_file WHERE {is_row}"
            ((number,),) = connection.execute(sql, texts).fetchall()
            found += [file] * bool(number)
    return named(found or source)


def files_of(argument: str, source: Any) -> list[str]:
    """The files that paths and patterns stand for, each of them once."""
    if not isinstance(source, str | os.PathLike):
        files = [file for each in source for file in files_of(argument, each)]
        seen = set()
        for file in files:
            path = file if "://" in file else os.path.realpath(file)
            if path in seen:
                raise ValueError(
                    f"`{argument}` should be files that are there once, as their rows "
                    f"would count twice. Received twice: {file}"
                )
            seen.add(path)
        return files
    path = os.fspath(source)
    if "://" in path:
        return [path]
    files = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not files:
        raise ValueError(
            f"`{argument}` should be files that exist. Received: {path!r}, which "
            "matches no file"
        )
    for file in files:
        if os.path.isdir(file):
            raise ValueError(
                f"`{argument}` should be files. Received: {file!r}, which is a folder: "
                f"give {os.path.join(file, '*.parquet')!r} for the files in it"
            )
    return files


def literally(file: str) -> str:
    """The pattern of a file, as DuckDB takes each path for one."""
    return file if "://" in file else glob.escape(file)


def no_rows(argument: str, source: Any) -> ValueError:
    """The error for a source without rows."""
    return ValueError(
        f"`{argument}` should have rows. Received: none, from {named(source)}"
    )


@contextlib.contextmanager
def errors_of(argument: str, source: Any) -> Iterator[None]:
    """Turns errors of reading into errors that name the argument."""
    try:
        yield
    except (
        duckdb.Error,
        pa.ArrowException,
        json.JSONDecodeError,
        OSError,
    ) as error:
        reasons = itertools.takewhile(
            lambda line: line and not line.startswith(_ADVICE),
            str(error).strip().splitlines(),
        )
        reason = "; ".join(reason.strip().rstrip(".") for reason in reasons)
        raise ValueError(
            f"`{argument}` should be a table that can be read. "
            f"Received: {named(source)}, and the error: {reason}"
        ) from error


def query(table: Relation, sql: str) -> Relation:
    """Returns what a query selects from the table, which it calls `source`."""
    return cast(Relation, table.query("source", sql))


class _Part(abc.ABC):
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
        if type_ == _NOTHING:
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
            if types[key] in _FLOATS:
                # An id of -0.0 is that of 0.0.
                value = f"{value} + CAST(0 AS {types[key]})"
                if self.type_of(place) in _LARGE:
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


class _Arrow(_Part):
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


class _Parquet(_Part):
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
        self._table = _table_of(connection, "read_parquet", files)
        # The names of folders such as `market=de` come last.
        of_folders = self._table.columns[len(top) :]
        super().__init__(files[0], top + of_folders)

    def type_of(self, place: int) -> str:
        return str(self._table.types[place])

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        return _of_places(self._table, places)


class _Text(_Part):
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
        if type_ not in _INTEGERS:
            return "VARCHAR"
        texts = self.read([self.place(sought)], ["VARCHAR"])
        as_written = f'CAST(TRY_CAST("0" AS {type_}) AS VARCHAR) = "0"'
        others = texts.filter(f'NOT coalesce({as_written}, "0" IS NULL)')
        return "VARCHAR" if others.limit(1).fetchall() else type_


class _Csv(_Text):
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
        return _of_places(self._read(dict(zip(places, types, strict=True))), places)

    def _read(self, types: Mapping[int, str], **others: Any) -> Relation:
        columns = {
            name: types.get(place, "VARCHAR") for place, name in enumerate(self._names)
        }
        arguments = {**self._dialect, **others, "auto_detect": False}
        return _table_of(
            self._connection, "read_csv", [self._file], columns=columns, **arguments
        )


class _Json(_Text):
    """A file of JSON lines, or of a list of objects."""

    def __init__(self, connection: Connection, file: str) -> None:
        table = _table_of(connection, "read_json", [file])
        names = table.columns
        if any(_seems_renamed(name, names) for name in names):
            names = _keys(connection, file, names)
        super().__init__(connection, file, names, list(map(str, table.types)))

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        columns = {self.columns[p]: t for p, t in zip(places, types, strict=True)}
        table = _table_of(self._connection, "read_json", [self.name], columns=columns)
        return _of_places(
            table, [list(columns).index(self.columns[place]) for place in places]
        )


def _parts(
    connection: Connection, argument: str, source: Any, sought: set[Sought]
) -> list[_Part]:
    """Returns the tables of files, or of anything that Arrow knows, unread."""
    if _are_files(source):
        return _parts_of_files(connection, argument, source, sought)
    table = tabular(argument, source)
    return [_Arrow(connection, "a table", table.schema, table)]


def _parts_of_files(
    connection: Connection, argument: str, source: Any, sought: set[Sought]
) -> list[_Part]:
    files = files_of(argument, source)
    formats = {_format(file) for file in files}
    if len(formats) > 1 or None in formats:
        raise ValueError(
            f"`{argument}` should be files of one format, with names that end in one "
            f"of {sorted(_FORMATS)}. Received: {named(files)}"
        )
    (format_,) = formats
    if format_ == "ipc":
        shards = [dataset.dataset(file, format="ipc") for file in files]
        return [
            _Arrow(connection, file, shard.schema, shard)
            for file, shard in zip(files, shards, strict=True)
        ]
    if format_ == "parquet":
        names = list({each.name for each in sought})
        return [_Parquet(connection, x) for x in _alike(connection, files, names)]
    # DuckDB would find a column in them, of a name that nobody has given.
    files = [file for file in files if "://" in file or os.path.getsize(file)]
    if not files:
        raise no_rows(argument, source)
    read = {"csv": _Csv, "json": _Json}[str(format_)]
    return [read(connection, file) for file in files]


def _alike(
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

    def types(file: str) -> list[tuple[Any, ...]]:
        return [column[1:] for column in sorted(columns[file])[1:]]

    for _, alike in itertools.groupby(columns, types):
        yield list(alike)


def _described(part: _Part, sought: Sought) -> str:
    return f"the column {sought.name!r} of {part.name}"


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
    connection: Connection, function: str, files: Sequence[str], **arguments: Any
) -> Relation:
    """Returns what a function of DuckDB reads from files."""
    # What the names of folders say is read as it is written too.
    arguments["hive_types_autocast"] = False
    given = "".join(f", {name} := {_sql(value)}" for name, value in arguments.items())
    paths = _sql(list(map(literally, files)))
    return connection.sql(f"SELECT * FROM {function}({paths}{given})")


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


def _union(tables: Sequence[Relation]) -> Relation:
    """Returns the rows of tables, below each other."""
    if len(tables) == 1:
        return tables[0]
    # In halves, as DuckDB bounds how deep a query is nested.
    half = len(tables) // 2
    return _union(tables[:half]).union(_union(tables[half:]))


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


def _format(path: str | os.PathLike[str]) -> str | None:
    """What a file is, by its name, or else by its first bytes."""
    name = os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst")
    by_name = _FORMATS.get(os.path.splitext(name)[1])
    first = None if by_name else beginning(path)
    if first is None:
        return by_name
    for magic, format_ in _MAGIC.items():
        if first.startswith(magic):
            return format_
    text = first.decode("utf-8-sig", errors="replace").strip()
    if text.startswith(("{", "[")):
        return "json"
    names = re.split("[\t,;]", text.partition("\n")[0])
    has_header = len(names) > 1 and all(map(str.strip, names))
    return "csv" if has_header and not any(map(is_number, names)) else None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _are_files(source: Any) -> bool:
    if isinstance(source, Sequence) and not isinstance(source, str):
        return bool(source) and all(map(_are_files, source))
    return isinstance(source, str | os.PathLike)
