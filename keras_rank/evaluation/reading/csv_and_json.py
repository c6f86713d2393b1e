"""CSV and JSON, which have no types: ids are read as written."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_rank.evaluation.reading.engine import (
    Connection,
    Relation,
    in_sql,
    read_files,
)
from keras_rank.evaluation.reading.files import literally
from keras_rank.evaluation.reading.part import INTEGERS, Part, Sought, of_places


class TextPart(Part):
    """A text file, whose columns are read as the requested types.

    Args:
        connection: a DuckDB.
        file: the file.
        columns: the names of the columns.
        types: the types of the columns, guessed from the first rows.
    """

    def __init__(
        self,
        connection: Connection,
        file: str,
        columns: Sequence[str],
        types: Sequence[Any],
    ) -> None:
        super().__init__(file, columns)
        self._connection, self._types = connection, list(map(str, types))

    def type_of(self, place: int) -> str:
        return self._types[place]

    def id_type(self, sought: Sought) -> str:
        """Returns an integer type if all ids are written as integers, else text."""
        type_ = super().id_type(sought)
        if type_ not in INTEGERS:
            return "VARCHAR"
        texts = self.read([self.place(sought)], ["VARCHAR"])
        as_written = f'CAST(TRY_CAST("0" AS {type_}) AS VARCHAR) = "0"'
        others = texts.filter(f'NOT coalesce({as_written}, "0" IS NULL)')
        return "VARCHAR" if others.limit(1).fetchall() else type_


class CsvPart(TextPart):
    """A CSV file."""

    def __init__(self, connection: Connection, file: str) -> None:
        # By itself, DuckDB skips lines that start with `#` and short ones at the start,
        # and reads quotes that first occur late as part of ids.
        marks = {"quote": '"', "comment": "", "skip": 0}
        given = "".join(f", {name} := {in_sql(mark)}" for name, mark in marks.items())
        (found,) = connection.sql(
            "SELECT Delimiter, Escape, HasHeader, Columns "
            f"FROM sniff_csv({in_sql(literally(file))}{given})"
        ).fetchall()
        delimiter, escape, has_header, columns = found
        # DuckDB makes names distinct, ignoring case.
        self._names = [column["name"] for column in columns]
        self._dialect = {
            **marks,
            "delim": delimiter,
            "escape": "" if escape == "(empty)" else escape,
            "header": has_header,
        }
        self._connection, self.name = connection, file
        head = self._read({}, header=False).limit(1)
        # The names of folders such as `market=de` come last.
        names, of_folders = self._names, head.columns[len(columns) :]
        if has_header:
            (row,) = head.fetchall()
            names = [str(name).strip() for name in row[: len(columns)]]
        types = [column["type"] for column in columns] + ["VARCHAR"] * len(of_folders)
        super().__init__(connection, file, names + of_folders, types)

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        return of_places(self._read(_by_place(places, types)), places)

    def _read(self, types: Mapping[int, str], **others: Any) -> Relation:
        columns = {
            name: types.get(place, "VARCHAR") for place, name in enumerate(self._names)
        }
        arguments = {**self._dialect, **others, "columns": columns}
        return read_files(
            self._connection,
            "read_csv",
            [self.name],
            self._names,
            auto_detect=False,
            **arguments,
        )


class JsonPart(TextPart):
    """A file of JSON lines, or of a list of objects."""

    def __init__(self, connection: Connection, file: str) -> None:
        self._keys = read_files(connection, "read_json", [file], None).columns
        table = read_files(connection, "read_json", [file], self._keys)
        names = table.columns
        if any(_seems_renamed(name, names) for name in names):
            names = _keys(connection, file, names)
        super().__init__(connection, file, names, table.types)

    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        by_place = _by_place(places, types)
        columns = {self.columns[place]: type_ for place, type_ in by_place.items()}
        table = read_files(
            self._connection, "read_json", [self.name], self._keys, columns=columns
        )
        return of_places(table, [list(by_place).index(place) for place in places])


def _by_place(places: Sequence[int], types: Sequence[str]) -> dict[int, str]:
    """The types to read columns as: text, if a column is requested in two types."""
    by_place: dict[int, str] = {}
    for place, type_ in zip(places, types, strict=True):
        by_place[place] = type_ if by_place.get(place, type_) == type_ else "VARCHAR"
    return by_place


def _seems_renamed(name: str, names: Sequence[str]) -> bool:
    """Whether DuckDB may have added a number to a name that differs only in case."""
    base, _, number = name.rpartition("_")
    return number.isdecimal() and base.casefold() in map(str.casefold, names)


def _keys(connection: Connection, file: str, names: Sequence[str]) -> list[str]:
    """The keys of JSON as written, which DuckDB makes distinct ignoring case."""
    rows = connection.sql(
        "SELECT DISTINCT unnest(json_keys(json)) FROM "
        f"read_json_objects({in_sql(literally(file))})"
    ).fetchall()
    keys = [key for (key,) in rows]
    renamed = {key.casefold(): key for key in keys if key not in names}
    return [
        name if name in keys else renamed.get(name.rpartition("_")[0].casefold(), name)
        for name in names
    ]
