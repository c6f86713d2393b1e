r"""Text files, all of whose columns are text: delimited, JSON, or lines of fields.

Ids are read as written. A line ends with `\n`, `\r\n` or `\r`.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from keras_rank.reading.engine import Connection, Relation, in_sql, query
from keras_rank.reading.files import (
    is_number,
    named,
    no_rows,
    opened,
    text_of,
)
from keras_rank.reading.layouts import delimited, fields_of, is_row
from keras_rank.reading.part import Part, Sought

# The bytes that are parsed at a time. A row has to fit.
_BLOCK = 2**24
# The fields of lines in TREC files, and the place of the number by how many there are.
_FIELDS = {
    "qrels": ("query", "iteration", "item", "label"),
    "run": ("query", "Q0", "item", "rank", "score", "tag"),
}
_NUMBERS = {"qrels": "label", "run": "score"}
_TRIMMED = r"trim(line, E' \t\f\r')"
# The numbers of tables.
_TABLES = itertools.count()
# A row of JSON, in messages.
_SHOWN = "'. Received, as number ' || row || ': ' || line"
# The name of a column without a name.
PLACE = re.compile(r"column\d+")


class Text(NamedTuple):
    """A text file, or the content of standard input.

    Attributes:
        connection: a DuckDB.
        argument: the name of the argument that is the file.
        file: the file, or its content.
    """

    connection: Connection
    argument: str
    file: str | bytes

    def first(self) -> str:
        """The first lines. Raises for other files than text."""
        return text_of(self.argument, self.file)

    def numbered(
        self, names: Sequence[str], read: Sequence[str], **parse: Any
    ) -> Relation:
        """Returns columns, of which all have names, and the number of the `row`."""
        reader = arrow_csv.open_csv(
            opened(self.file),
            # With threads, errors do not name the row.
            arrow_csv.ReadOptions(
                column_names=names, block_size=_BLOCK, use_threads=False
            ),
            arrow_csv.ParseOptions(**parse),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=read
            ),
        )
        rows = self.connection.from_arrow(reader)
        return query(rows, "SELECT *, row_number() OVER () AS row FROM source")

    def lines(self) -> Relation:
        """Returns each `line` and the number of its `row`."""
        parse = {"delimiter": "\x01", "quote_char": False, "ignore_empty_lines": False}
        return self.numbered(["line"], ["line"], **parse)


class TextPart(Part):
    """A text file.

    Args:
        text: the file.
        columns: the names of the columns.
        values: the expression of each as a text, empty if it is missing.
        has_names: whether the file names them.
    """

    # Whether integers that float64 does not hold are an error.
    is_exact = True
    # Whether texts are computed once and kept.
    is_kept = True
    # What the number of a row counts.
    unit = "line"
    others = ", row"

    def __init__(
        self,
        text: Text,
        columns: Iterable[str],
        values: Iterable[str],
        has_names: bool = True,
    ) -> None:
        super().__init__(named(text.file), columns, values, text.file)
        self.text, self.has_names, self._kept = (
            text,
            has_names,
            dict[tuple[int, ...], str](),
        )

    def line_of(self, row: int) -> int:
        """The line in which a row ends."""
        return row

    def read(self, places: Sequence[int]) -> Relation:
        if not self.is_kept:
            return super().read(places)
        # DuckDB would compute a text again wherever it is used.
        key = tuple(places)
        if key not in self._kept:
            self._kept[key] = f"texts_{next(_TABLES)}"
            super().read(places).create(self._kept[key])
        return self.text.connection.table(self._kept[key])

    def type_of(self, place: int) -> str:
        return "VARCHAR"

    def number_type(self, sought: Sought) -> str:
        self.place(sought)
        return "DOUBLE"

    def place_of(self, row: Sequence[Any]) -> str:
        return f"{self.unit} {self.line_of(row[-1])} of {self.name}"

    def value(self, i: int, sought: Sought, type_: str) -> str:
        if type_ != "DOUBLE":
            return f"nullif(\"{i}\", '')"
        text = f'lower(trim("{i}"))'
        return (
            f"CASE {text} WHEN '' THEN NULL WHEN 'true' THEN 1 WHEN 'false' THEN 0 "
            f"ELSE CAST({text} AS DOUBLE) END"
        )

    def select(
        self, sought: Mapping[str, Sought], types: Mapping[str, str]
    ) -> Relation:
        """Raises for the first row with a text that is no value of its column."""
        columns = list(sought.values())
        wrong = [
            self._is_wrong(i, each, types[key])
            for i, (key, each) in enumerate(sought.items())
        ]
        try:
            first = f"SELECT min(row) FROM source WHERE {' OR '.join(wrong)}"
            ((found,),) = query(self.read_sought(sought), first).fetchall()
        except (duckdb.Error, pa.ArrowInvalid) as error:
            parsed = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
            where = self.place_of([int(parsed[1])]) if parsed else self.name
            reason = parsed[2] if parsed else str(error)
            raise ValueError(
                f"`{self.text.argument}` should be a table that can be read. Received: "
                f"{where}, and the error: {reason.strip()}"
            ) from error
        if found is not None:
            checked = f"SELECT [{', '.join(wrong)}], * FROM source WHERE row = {found}"
            ((are_wrong, *row),) = query(self.read_sought(sought), checked).fetchall()
            i = are_wrong.index(True)
            raise self.error(columns[i], row[i], row)
        return super().select(sought, types)

    def error(self, sought: Sought, text: str, row: Sequence[Any]) -> ValueError:
        """The error for a text that is no value of a column."""
        accepted = "of numbers" if text else "without missing values"
        return ValueError(
            f"`{sought.argument}` should name a column {accepted}. Received: "
            f"{sought.argument}={sought.name!r}, with {text!r} in {self.place_of(row)}"
        )

    def _is_wrong(self, i: int, sought: Sought, type_: str) -> str:
        """The condition that a text is no value of its column."""
        text, is_missing = f'trim("{i}")', str(sought.is_required)
        if type_ != "DOUBLE":
            return f"(\"{i}\" = '' AND {is_missing})"
        number = f"TRY_CAST({text} AS DOUBLE)"
        # DuckDB reads 1_0 and +-1 as numbers.
        is_wrong = f"contains({text}, '_') OR starts_with({text}, '+-')"
        if sought.is_finite:
            is_wrong += f" OR NOT isfinite({number})"
        if self.is_exact:
            is_wrong += (
                f" OR CASE WHEN length({text}) > 15 THEN coalesce(TRY_CAST({text} AS "
                f"HUGEINT) <> TRY_CAST({number} AS HUGEINT), false) ELSE false END"
            )
        accepted = "('true', 'false', '')" if sought.argument == "label" else "('')"
        return (
            f"CASE WHEN {number} IS NOT NULL THEN {is_wrong} WHEN {text} = '' THEN "
            f"{is_missing} ELSE lower({text}) NOT IN {accepted} END"
        )


class CsvPart(TextPart):
    """A file whose columns are separated by tabs, commas, semicolons or bars.

    Args:
        text: the file.
        names: names of columns that are looked for.
    """

    is_kept = False

    def __init__(self, text: Text, names: Collection[str]) -> None:
        delimiter, rows = delimited(text.first())
        self._delimiter = delimiter or ","
        columns = [name.strip() for name in rows[0]]
        has_names = bool(set(names) & set(columns)) or not any(map(is_number, columns))
        self._names = [f"column{i}" for i in range(len(columns))]
        columns = columns if has_names else self._names
        super().__init__(text, columns, self._names, has_names)

    def scan(self, places: Sequence[int]) -> Relation:
        # One is read in any case, as all others may be those of folders.
        read = {self._names[x]: x for x in (*places, 0) if x < len(self._names)}
        rows = self.text.numbered(
            self._names,
            list(read),
            delimiter=self._delimiter,
            newlines_in_values=True,
            invalid_row_handler=lambda x: "error" if is_row([x.text]) else "skip",
        )
        return rows.filter(f"row > {int(self.has_names)}")

    def line_of(self, row: int) -> int:
        stream = io.BufferedReader(opened(self.text.file))
        with io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
            rows = csv.reader(text, delimiter=self._delimiter)
            next(itertools.islice(filter(is_row, rows), row - 1, None), None)
            return rows.line_num


class JsonPart(TextPart):
    """A file with an object in each line, or with a list of objects."""

    def __init__(self, text: Text) -> None:
        if text.first().lstrip().startswith("["):
            self.unit = "row"
        super().__init__(text, [], [])
        wrong = f"an object of JSON should be in each {self.unit}, with each key once"
        checked = (
            "SELECT row, CASE WHEN json_valid(line) AND json_type(line) = 'OBJECT' AND "
            "len(json_keys(line)) = len(list_distinct(json_keys(line))) THEN "
            f"json_keys(line) ELSE error({in_sql(wrong)} || {_SHOWN}) END AS keys"
        )
        keys = query(
            query(self.scan([]), f"{checked} FROM source"),
            "SELECT key FROM (SELECT unnest(keys) AS key, row FROM source) "
            "GROUP BY key ORDER BY min(row), key",
        ).fetchall()
        columns = [key for (key,) in keys]
        if not columns:
            raise no_rows(text.argument, text.file)
        super().__init__(text, columns, map(_text_at, columns))

    def scan(self, places: Sequence[int]) -> Relation:
        lines = self.text.lines().filter("trim(line) <> ''")
        if self.unit == "row":
            objects = pa.array(map(json.dumps, json_of(self.text.file)), pa.string())
            columns = {"line": objects, "row": np.arange(1, len(objects) + 1)}
            lines = self.text.connection.from_arrow(pa.table(columns))
        return lines


def _text_at(key: str) -> str:
    """The expression of a value of JSON as a text."""
    pointer = in_sql("/" + key.replace("~", "~0").replace("/", "~1"))
    message = in_sql(f"{key!r} should be a text or a number")
    return (
        f"CASE WHEN json_type(line, {pointer}) IN ('OBJECT', 'ARRAY') THEN "
        f"error({message} || {_SHOWN}) ELSE "
        f"coalesce(json_extract_string(line, {pointer}), '') END"
    )


class LinesPart(TextPart):
    """Lines of fields between spaces, as in TREC. A comment starts with `#`."""

    is_exact = False

    def __init__(self, text: Text) -> None:
        self._fields = _FIELDS[text.argument]
        if len(fields_of(text.first())) == 3:
            self._fields = ("query", "item", _NUMBERS[text.argument])
        width = len(self._fields)
        # The tag may be missing, or contain spaces.
        is_whole = "len(fields) > 4" if width == 6 else f"len(fields) = {width}"
        texts = [
            f"CASE WHEN {is_whole} THEN fields[{i + 1}] ELSE '' END"
            for i in range(width)
        ]
        columns = [f"column{i}" for i in range(width)]
        super().__init__(text, columns, texts, has_names=False)

    def scan(self, places: Sequence[int]) -> Relation:
        return query(
            self.text.lines(),
            f"SELECT string_split_regex({_TRIMMED}, '\\s+') AS fields, row FROM source "
            f"WHERE {_TRIMMED} <> '' AND NOT starts_with(line, '#')",
        )

    def error(self, sought: Sought, text: str, row: Sequence[Any]) -> ValueError:
        ((line, _),) = self.text.lines().filter(f"row = {row[-1]}").fetchall()
        argument, width = self.text.argument, len(line.split())
        other = {5: "a run", 6: "a run", 4: "qrels"}.get(width)
        is_swapped = other and not other.endswith(argument)
        return ValueError(
            f"`{argument}` should have lines of the fields {' '.join(self._fields)}, "
            f"with a number as {_NUMBERS[argument]}. Received: {self.place_of(row)}, "
            f"{line!r}" + f", as in {other}: are they swapped?" * bool(is_swapped)
        )


def json_of(file: str | bytes) -> Any:
    """The content of a JSON file. Raises for duplicate keys."""

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        for i, (key, _) in enumerate(pairs if len(found) < len(pairs) else []):
            if key in dict(pairs[:i]):
                raise ValueError(
                    "Objects of JSON should have each key once. Received twice: "
                    f"{key!r}, in {named(file)}"
                )
        return found

    with opened(file) as stream:
        return json.loads(stream.read(), object_pairs_hook=of_pairs)
