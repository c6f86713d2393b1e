r"""Text files, all of whose columns are text: delimited, or lines as in TREC.

Ids are read as written. A line ends with `\n`, `\r\n` or `\r`.
"""

import abc
import contextlib
import csv
import functools
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from keras_rank.reading import files
from keras_rank.reading.engine import Connection, Relation, numbered, query, stored
from keras_rank.reading.files import NO_ITERATION
from keras_rank.reading.part import LARGEST_INTEGER, ColumnRef, ColumnRefs, Part

# The bytes that are parsed at a time. A row has to fit.
_BLOCK = 2**24
# The fields of lines in TREC files, and the place of the number by how many there are.
_FIELDS = {
    "qrels": ("query", "iteration", "item", "label"),
    "run": ("query", "Q0", "item", "rank", "score", "tag"),
}
# The kind of the numbers of judgments and runs.
NUMBERS = {"qrels": "label", "run": "score"}
_TRIMMED = r"trim(line, E' \t\f\r')"
# The name of a column without a name.
PLACE = re.compile(r"column\d+")


class TextPart(Part):
    """A text file, or the content of standard input.

    Args:
        connection: a DuckDB.
        argument: the name of the argument that is the file.
        file: the file, or its content.
        names: names of columns that are looked for.
    """

    # Whether integers that float64 does not hold are an error.
    is_exact = True
    others = ", row"

    def __init__(
        self,
        connection: Connection,
        argument: str,
        file: str | bytes,
        names: Collection[str],
    ) -> None:
        self.connection, self.argument, self.file = connection, argument, file
        self.first = files.text_of(argument, file)
        super().__init__(files.named(file), self.names(names), file)

    @abc.abstractmethod
    def names(self, sought: Collection[str]) -> Iterable[str]:
        """The names of the columns."""

    def line_of(self, row: int) -> int:
        """The line in which a row ends."""
        return row

    def type_of(self, place: int) -> str:
        return "VARCHAR"

    def number_type(self, sought: ColumnRef) -> str:
        self.place(sought)
        return "DOUBLE"

    def place_of(self, row: Sequence[Any]) -> str:
        return f"line {self.line_of(row[-1])} of {self.name}"

    def value(self, i: int, sought: ColumnRef, type_: str) -> str:
        value = f"nullif(\"{i}\", '')"
        if type_ == "DOUBLE":
            text = f'lower(trim("{i}"))'
            value = (
                f"coalesce(TRY_CAST(\"{i}\" AS DOUBLE), CASE {text} WHEN 'true' THEN 1 "
                "WHEN 'false' THEN 0 END)"
            )
        wrong = self._is_wrong(i, sought, type_)
        return f"CASE WHEN {wrong} THEN error('') ELSE {value} END"

    def select(self, sought: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Raises for the first row with a text that is no value of its column."""
        columns = list(sought.values())
        try:
            try:
                # Now, as DuckDB may come to a later row first.
                return stored(self.connection, super().select(sought, types))
            except duckdb.InvalidInputException:
                wrong = ", ".join(
                    self._is_wrong(i, each, types[key])
                    for i, (key, each) in enumerate(sought.items())
                )
                ((are_wrong, *row),) = query(
                    self.read(columns),
                    f"SELECT * FROM (SELECT [{wrong}] AS wrong, * FROM source) "
                    "WHERE list_contains(wrong, true) ORDER BY row LIMIT 1",
                ).fetchall()
        except (duckdb.Error, pa.ArrowInvalid) as error:
            parsed = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
            where = self.place_of([int(parsed[1])]) if parsed else self.name
            reason = parsed[2] if parsed else files.reason_of(error)
            raise ValueError(
                f"`{self.argument}` should be a table that can be read. Received: "
                f"{where}, and the error: {reason.strip()}"
            ) from error
        i = are_wrong.index(True)
        raise self.error(columns[i], row[i], row)

    def error(self, sought: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        """The error for a text that is no value of a column."""
        accepted = "of numbers" if text else "without missing values"
        reason = f"with {text!r} in {self.place_of(row)}"
        return sought.refused(f"a column {accepted}", reason)

    def _is_wrong(self, i: int, sought: ColumnRef, type_: str) -> str:
        """The condition that a text is no value of its column."""
        text, is_missing = f'"{i}"', str(sought.is_required)
        if type_ != "DOUBLE":
            return f"({text} = '' AND {is_missing})"
        number = f"TRY_CAST({text} AS DOUBLE)"
        # DuckDB reads 1_0 and +-1 as numbers.
        is_wrong = f"contains({text}, '_') OR contains({text}, '+-')"
        if sought.is_finite:
            test = "NOT isfinite" if sought.is_required else "isinf"
            is_wrong += f" OR {test}({number})"
        if self.is_exact:
            is_wrong += (
                f" OR CASE WHEN abs({number}) >= {LARGEST_INTEGER} THEN TRY_CAST({text}"
                f" AS HUGEINT) <> TRY_CAST({number} AS HUGEINT) END"
            )
        accepted = "('true', 'false', '')" if sought.argument == "label" else "('')"
        return (
            f"CASE WHEN {number} IS NOT NULL THEN {is_wrong} WHEN trim({text}) = '' "
            f"THEN {is_missing} ELSE lower(trim({text})) NOT IN {accepted} END"
        )

    def _parsed(self, names: list[str], read: list[str], **parse: Any) -> Relation:
        """Returns columns, of which all have names, and the number of the `row`."""
        reader = arrow_csv.open_csv(
            files.opened(self.file),
            # With threads, errors do not name the row.
            arrow_csv.ReadOptions(
                column_names=names, block_size=_BLOCK, use_threads=False
            ),
            arrow_csv.ParseOptions(**parse),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=read
            ),
        )
        return numbered(self.connection.from_arrow(reader))

    def _contains(self, *texts: bytes) -> bool:
        """Returns whether the file, after a line feed, contains one of short texts."""
        return any(text in block for block in self._blocks() for text in texts)

    def _blocks(self) -> Iterator[bytes]:
        """Yields a line feed and the file. Each block starts with the last byte."""
        last = b"\n"
        with files.opened(self.file) as stream:
            while block := stream.read(_BLOCK):
                yield (block := last + block)
                last = block[-1:]

    def _lines(self) -> Relation:
        """Returns each `line` and the number of its `row`."""
        parse = {"delimiter": "\x01", "quote_char": False, "ignore_empty_lines": False}
        return self._parsed(["line"], ["line"], **parse)


class CsvPart(TextPart):
    """A file whose columns are separated by tabs, commas, semicolons or bars."""

    def names(self, sought: Collection[str]) -> Iterable[str]:
        delimiter, (first, *_) = files.delimited(self.first)
        self._delimiter, self._width = delimiter or ",", len(first)
        names = {*first, *map(files.plain_name, first)}
        is_placed = any(map(PLACE.fullmatch, sought)) and names.isdisjoint(sought)
        self._first_row = 1 if is_placed else 2
        if is_placed:
            return [f"column{i}" for i in range(len(first))]
        if any(name != name.strip() for name in first):
            raise ValueError(
                f"`{self.argument}` should have no spaces around the names of columns, "
                f"as ids would have them too. Received: {first} in "
                f"{files.named(self.file)}"
            )
        return first

    def scan(self, places: Sequence[int]) -> Relation:
        # One is read in any case, as all others may be those of folders.
        read = dict.fromkeys(str(x) for x in (*places, 0) if x < self._width)
        rows = self._parsed(
            list(map(str, range(self._width))),
            list(read),
            delimiter=self._delimiter,
            newlines_in_values=True,
            invalid_row_handler=lambda x: "error" if x.text.strip() else "skip",
        )
        return rows.filter(f"row >= {self._first_row}")

    def select(self, sought: ColumnRefs, types: Mapping[str, str]) -> Relation:
        if self._contains(b'"'):
            self._require_closed_quotes()
        return super().select(sought, types)

    def _require_closed_quotes(self) -> None:
        """Raises for quotes that don't enclose fields, after which Arrow reads on."""
        last = 0
        with self._rows(strict=True) as rows:
            try:
                for _ in rows:
                    last = rows.line_num
            except csv.Error as error:
                raise ValueError(
                    f"`{self.argument}` should be a table whose quotes enclose whole "
                    f"fields. Received: the row that starts in line {last + 1} of "
                    f"{self.name}, and the error: {error}"
                ) from error

    def line_of(self, row: int) -> int:
        with self._rows() as rows:
            next(itertools.islice(filter(files.is_row, rows), row - 1, None), None)
            return int(rows.line_num)

    @contextlib.contextmanager
    def _rows(self, strict: bool = False) -> Iterator[Any]:
        stream = io.BufferedReader(files.opened(self.file))
        with (
            io.TextIOWrapper(stream, "utf-8", "replace", newline="") as text,
            files.rows_of(text, self._delimiter, strict) as rows,
        ):
            yield rows


class LinesPart(TextPart):
    """Lines of fields between spaces, as in TREC. A comment starts with `#`."""

    is_exact = False

    def names(self, sought: Collection[str]) -> Iterable[str]:
        (line, *_) = [*files.lines_of(self.first), ""]
        self._first_line = line
        width, number = len(files.fields_of(line)), NUMBERS[self.argument]
        self.fields = _FIELDS[self.argument]
        are_names = not set(sought).isdisjoint(map(files.plain_name, line.split()))
        if width == 3:
            self.fields = ("query", "item", number)
        elif width == 2 and number == "label" and not are_names:
            self.fields = ("query", "item")
        elif width == 4 and number == "score" and "\t" in line:
            # Such as query, item, rank and score of ColBERT, but nothing says so.
            self.fields = ("",) * width
        return [f"column{i}" for i in range(len(self.fields))]

    def are_clear(self, have_subtopics: bool) -> bool:
        """Whether it is clear what the fields are, of which tabs may separate others.

        Judgments that are not of TREC may have an item in the place of the iteration.
        """
        lines = "".join(files.lines_of(self.first))
        may_be_others = "iteration" in self.fields and "\t" in lines
        if have_subtopics or not may_be_others:
            return "query" in self.fields
        # Empty iterations are those of lines with missing fields.
        others = f'"0" NOT IN {(*NO_ITERATION, "")}'
        return not self.read([1]).filter(others).limit(1).fetchall()

    def select(self, sought: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Reads plain lines with Arrow, which takes a fifth of the time of DuckDB."""
        # A run may have no tag.
        missing = len(self.fields) - len(files.fields_of(self._first_line))
        if missing in (0, 1) and self._separator:
            # DuckDB reads other numbers, and names the lines that are wrong.
            with contextlib.suppress(pa.ArrowException):
                return self._plain_rows(sought, types)
        return super().select(sought, types)

    @functools.cached_property
    def _separator(self) -> str | None:
        """The space or tab that separates the fields of plain lines.

        These are ASCII, without comments and empty fields. It is `None` for others.
        """
        separator = "\t" if "\t" in self._first_line else " "
        ends = np.zeros(256, bool)
        ends[[ord(separator), ord("\n")]] = True
        others = [x.encode() for x in {*" \t\r\f"} - {separator}] + [b"\n#"]
        for block in self._blocks():
            are_ends = ends[np.frombuffer(block, np.uint8)]
            # A line feed precedes the file, so an empty first field is seen too.
            has_empty = bool((are_ends[1:] & are_ends[:-1]).any())
            has_others = any(text in block for text in others)
            if has_empty or has_others or not block.isascii():
                return None
        return separator

    def _plain_rows(self, sought: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Returns columns of plain lines. Raises `ArrowInvalid` for other numbers."""
        read = {key: str(self.place(column)) for key, column in sought.items()}
        of_arrow = {
            read[key]: pa.float64() if type_ == "DOUBLE" else pa.string()
            for key, type_ in types.items()
        }
        width = len(files.fields_of(self._first_line))
        with files.opened(self.file) as stream:
            table = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(
                    column_names=list(map(str, range(width))), block_size=_BLOCK
                ),
                arrow_csv.ParseOptions(delimiter=self._separator, quote_char=False),
                arrow_csv.ConvertOptions(
                    column_types=of_arrow,
                    include_columns=list(of_arrow),
                    null_values=[],
                ),
            )
        for name, type_ in of_arrow.items():
            if type_ == pa.float64() and not pc.all(pc.is_finite(table[name])).as_py():
                raise pa.ArrowInvalid("numbers that are not finite")
        columns = [table[read[key]] for key in sought]
        return self.connection.from_arrow(pa.table(columns, [*sought]))

    def scan(self, places: Sequence[int]) -> Relation:
        is_whole = self._is_whole()
        texts = ", ".join(
            f"CASE WHEN {is_whole} THEN coalesce(fields[{x + 1}], '') ELSE '' END "
            f'AS "{x}"'
            for x in range(len(self.fields))
        )
        return query(self._split("NOT"), f"SELECT {texts}, row FROM source")

    def warnings(self) -> list[str]:
        """Counts the comments that have all fields, as if an id started with `#`."""
        if self._separator or not self._contains(b"\n#", b"\r#"):
            return []
        # A `#` followed by white space is no id.
        is_like = f"{self._is_whole()} AND fields[1] <> '#'"
        if len(self.fields) > 2:
            at = self.fields.index(NUMBERS[self.argument]) + 1
            is_like += f" AND TRY_CAST(fields[{at}] AS DOUBLE) IS NOT NULL"
        alike = self._split("").filter(is_like)
        ((number, line),) = alike.aggregate("count(*), arg_min(line, row)").fetchall()
        warning = (
            f"`{self.argument}` has lines that start with # but have all fields "
            f"({number}), such as {line!r} in {self.name}: they are comments, as in "
            "trec_eval. If they are not, rename the ids that start with #"
        )
        return [warning] * (number > 0)

    def _split(self, is_comment: str) -> Relation:
        """Returns the `fields` of lines that are comments, or are not."""
        return query(
            self._lines(),
            f"SELECT string_split_regex({_TRIMMED}, '\\s+') AS fields, line, row "
            f"FROM source WHERE {_TRIMMED} <> '' AND {is_comment} "
            "starts_with(line, '#')",
        )

    def _is_whole(self) -> str:
        """The condition that a line has all fields, none of which is empty."""
        width = len(self.fields)
        # No field between tabs may be empty, except for the tag.
        tab = "'\t'"
        has_empty = (
            f"(starts_with(line, {tab}) OR ends_with(line, {tab}) "
            f"OR contains(line, {tab} || {tab})) AND regexp_matches(line, "
            rf"'^([^\t ]+\t){{0,{min(width, 4)}}}(\t|$)')"
        )
        condition = f"NOT ({has_empty})"
        if width != 6:
            return f"{condition} AND len(fields) = {width}"
        # A tag may contain spaces, but not the mark at the start of another file.
        return f"{condition} AND len(fields) > 4 AND NOT contains(line, '\ufeff')"

    def error(self, sought: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        ((line, _),) = self._lines().filter(f"row = {row[-1]}").fetchall()
        argument, fields = self.argument, files.fields_of(line)
        other = {5: "a run", 6: "a run", 4: "qrels"}.get(len(fields))
        hint = ""
        if "" in fields:
            hint = ", with an empty field between tabs"
        elif other and not other.endswith(argument):
            hint = f", as in {other}: are they swapped?"
        return ValueError(
            f"`{argument}` should have lines of the fields {' '.join(self.fields)}"
            + f", with a number as {NUMBERS[argument]}" * (len(self.fields) > 2)
            + f". Received: {self.place_of(row)}, "
            f"{line!r}{hint}"
        )
