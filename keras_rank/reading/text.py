r"""Readers of text files, both delimited files and lines of fields as in TREC.

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
from keras_rank.reading.engine import (
    Connection,
    Relation,
    materialize,
    number_rows,
    query,
)
from keras_rank.reading.files import ITERATION_PLACEHOLDERS
from keras_rank.reading.part import LARGEST_INTEGER, ColumnRef, ColumnRefs, Part

# The number of bytes that are parsed at a time. A row must not be longer.
_BLOCK = 2**24
# The fields of the lines in TREC files.
_FIELDS = {
    "qrels": ("query", "iteration", "item", "label"),
    "run": ("query", "Q0", "item", "rank", "score", "tag"),
}
# The role of the numbers in judgments and in runs.
NUMBER_ROLES = {"qrels": "label", "run": "score"}
_TRIMMED = r"trim(line, E' \t\f\r')"
# The name by which users refer to a column without a name, such as `column0`.
UNNAMED_COLUMN = re.compile(r"column\d+")


class TextPart(Part):
    """A text file, or the content of standard input.

    Args:
        connection: a DuckDB connection.
        argument: the name of the argument that is the file.
        file: the path of the file, or the content of standard input.
        names: the names of columns that may be requested.
    """

    # Whether integers that float64 can't represent are an error.
    is_exact = True
    extra_columns = ", row"

    def __init__(
        self,
        connection: Connection,
        argument: str,
        file: str | bytes,
        names: Collection[str],
    ) -> None:
        self.connection, self.argument, self.file = connection, argument, file
        self.first = files.read_first_lines(argument, file)
        super().__init__(files.describe_source(file), self.read_names(names), file)

    @abc.abstractmethod
    def read_names(self, requested: Collection[str]) -> Iterable[str]:
        """Returns the names of the columns.

        Args:
            requested: the names of columns that may be requested.
        """

    def find_line(self, row: int) -> int:
        """Returns the number of the line in which a row ends."""
        return row

    def column_type(self, index: int) -> str:
        return "VARCHAR"

    def number_type(self, column: ColumnRef) -> str:
        self.find_index(column)
        return "DOUBLE"

    def locate_row(self, row: Sequence[Any]) -> str:
        return f"line {self.find_line(row[-1])} of {self.name}"

    def value_expression(self, i: int, column: ColumnRef, type_: str) -> str:
        value = f"nullif(\"{i}\", '')"
        if type_ == "DOUBLE":
            text = f'lower(trim("{i}"))'
            value = (
                f"coalesce(TRY_CAST(\"{i}\" AS DOUBLE), CASE {text} WHEN 'true' THEN 1 "
                "WHEN 'false' THEN 0 END)"
            )
        is_invalid = self._invalid_condition(i, column, type_)
        return f"CASE WHEN {is_invalid} THEN error('') ELSE {value} END"

    def select(self, refs: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Raises `ValueError` for the first row with an invalid value."""
        columns = list(refs.values())
        try:
            try:
                # All values are checked now. DuckDB may report a later row first, so
                # the error is replaced by that of the first row.
                return materialize(self.connection, super().select(refs, types))
            except duckdb.InvalidInputException:
                conditions = ", ".join(
                    self._invalid_condition(i, ref, types[key])
                    for i, (key, ref) in enumerate(refs.items())
                )
                ((invalid_columns, *row),) = query(
                    self.read(columns),
                    f"SELECT * FROM (SELECT [{conditions}] AS wrong, * FROM source) "
                    "WHERE list_contains(wrong, true) ORDER BY row LIMIT 1",
                ).fetchall()
        except (duckdb.Error, pa.ArrowInvalid) as error:
            match = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
            location = self.locate_row([int(match[1])]) if match else self.name
            reason = match[2] if match else files.format_reason(error)
            raise ValueError(
                f"`{self.argument}` should be a table that can be read. Received: "
                f"{location}, and the error: {reason.strip()}"
            ) from error
        i = invalid_columns.index(True)
        raise self.error(columns[i], row[i], row)

    def error(self, column: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        """Returns the error for a text that is not a valid value of a column."""
        accepted = "of numbers" if text else "without missing values"
        reason = f"with {text!r} in {self.locate_row(row)}"
        return column.refused(f"a column {accepted}", reason)

    def _invalid_condition(self, i: int, column: ColumnRef, type_: str) -> str:
        """Returns the SQL condition that a text is not a valid value of its column."""
        text, is_missing = f'"{i}"', str(column.is_required)
        if type_ != "DOUBLE":
            return f"({text} = '' AND {is_missing})"
        number = f"TRY_CAST({text} AS DOUBLE)"
        # DuckDB accepts 1_0 and +-1 as numbers, which are errors here.
        condition = f"contains({text}, '_') OR contains({text}, '+-')"
        if column.is_finite:
            test = "NOT isfinite" if column.is_required else "isinf"
            condition += f" OR {test}({number})"
        if self.is_exact:
            condition += (
                f" OR CASE WHEN abs({number}) >= {LARGEST_INTEGER} THEN TRY_CAST({text}"
                f" AS HUGEINT) <> TRY_CAST({number} AS HUGEINT) END"
            )
        accepted = "('true', 'false', '')" if column.argument == "label" else "('')"
        return (
            f"CASE WHEN {number} IS NOT NULL THEN {condition} WHEN trim({text}) = '' "
            f"THEN {is_missing} ELSE lower(trim({text})) NOT IN {accepted} END"
        )

    def _parse(self, names: list[str], include: list[str], **options: Any) -> Relation:
        """Returns the columns in `include` and the number of each `row`.

        Args:
            names: the names of all columns.
            include: the names of the columns to return.
            **options: Arrow's options of the parser.
        """
        reader = arrow_csv.open_csv(
            files.open_stream(self.file),
            # Errors of a reader with threads do not name the row.
            arrow_csv.ReadOptions(
                column_names=names, block_size=_BLOCK, use_threads=False
            ),
            arrow_csv.ParseOptions(**options),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=include
            ),
        )
        return number_rows(self.connection.from_arrow(reader))

    def _contains(self, *texts: bytes) -> bool:
        """Returns whether a line feed and the file contain one of the short texts."""
        return any(text in block for block in self._blocks() for text in texts)

    def _blocks(self) -> Iterator[bytes]:
        """Yields the blocks of a line feed and the file.

        Each block starts with the last byte of the block before it, so that texts of
        two bytes are never split.
        """
        last = b"\n"
        with files.open_stream(self.file) as stream:
            while block := stream.read(_BLOCK):
                yield (block := last + block)
                last = block[-1:]

    def _lines(self) -> Relation:
        """Returns a table with the text and the number of each line: `line`, `row`."""
        options = {
            "delimiter": "\x01",
            "quote_char": False,
            "ignore_empty_lines": False,
        }
        return self._parse(["line"], ["line"], **options)


class CsvPart(TextPart):
    """A file with columns that are separated by tabs, commas, semicolons or bars."""

    def read_names(self, requested: Collection[str]) -> Iterable[str]:
        delimiter, (first, *_) = files.split_delimited(self.first)
        self._delimiter, self._width = delimiter or ",", len(first)
        names = {*first, *map(files.normalize_name, first)}
        is_unnamed = any(map(UNNAMED_COLUMN.fullmatch, requested)) and names.isdisjoint(
            requested
        )
        self._first_row = 1 if is_unnamed else 2
        if is_unnamed:
            return [f"column{i}" for i in range(len(first))]
        if any(name != name.strip() for name in first):
            raise ValueError(
                f"`{self.argument}` should have no spaces around the names of columns, "
                f"as ids would have them too. Received: {first} in "
                f"{files.describe_source(self.file)}"
            )
        return first

    def scan(self, indices: Sequence[int]) -> Relation:
        # The first column is always read, as all requested columns may be folder names.
        column_names = dict.fromkeys(str(x) for x in (*indices, 0) if x < self._width)
        rows = self._parse(
            list(map(str, range(self._width))),
            list(column_names),
            delimiter=self._delimiter,
            newlines_in_values=True,
            invalid_row_handler=lambda x: "error" if x.text.strip() else "skip",
        )
        return rows.filter(f"row >= {self._first_row}")

    def select(self, refs: ColumnRefs, types: Mapping[str, str]) -> Relation:
        if self._contains(b'"'):
            self._require_closed_quotes()
        return super().select(refs, types)

    def _require_closed_quotes(self) -> None:
        """Raises `ValueError` for quotes that do not enclose whole fields.

        Arrow would read past the end of the row after such a quote.
        """
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

    def find_line(self, row: int) -> int:
        with self._rows() as rows:
            next(itertools.islice(filter(files.is_row, rows), row - 1, None), None)
            return int(rows.line_num)

    @contextlib.contextmanager
    def _rows(self, strict: bool = False) -> Iterator[Any]:
        stream = io.BufferedReader(files.open_stream(self.file))
        with (
            io.TextIOWrapper(stream, "utf-8", "replace", newline="") as text,
            files.open_csv_reader(text, self._delimiter, strict) as rows,
        ):
            yield rows


class LinesPart(TextPart):
    """A file of lines whose fields are separated by white space, as in TREC.

    Lines that start with `#` are comments.
    """

    is_exact = False

    def read_names(self, requested: Collection[str]) -> Iterable[str]:
        (line, *_) = [*files.split_lines(self.first), ""]
        self._first_line = line
        width, number = len(files.split_fields(line)), NUMBER_ROLES[self.argument]
        self.fields = _FIELDS[self.argument]
        has_header = not set(requested).isdisjoint(
            map(files.normalize_name, line.split())
        )
        if width == 3:
            self.fields = ("query", "item", number)
        elif width == 2 and number == "label" and not has_header:
            self.fields = ("query", "item")
        elif width == 4 and number == "score" and "\t" in line:
            # The fields may be query, item, rank and score, as in ColBERT's runs, but
            # the file does not name them.
            self.fields = ("",) * width
        return [f"column{i}" for i in range(len(self.fields))]

    def has_known_fields(self, has_subtopics: bool) -> bool:
        """Returns whether the roles of the fields are known.

        Judgments that are separated by tabs may not be TREC judgments, and have an item
        in the field of the iteration.
        """
        lines = "".join(files.split_lines(self.first))
        may_lack_iteration = "iteration" in self.fields and "\t" in lines
        if has_subtopics or not may_lack_iteration:
            return "query" in self.fields
        # Lines with missing fields are read with an empty iteration.
        is_other = f'"0" NOT IN {(*ITERATION_PLACEHOLDERS, "")}'
        return not self.read([1]).filter(is_other).limit(1).fetchall()

    def select(self, refs: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Reads plain lines with Arrow, which takes a fifth of the time of DuckDB."""
        # The tag at the end of a line of a run may be missing.
        missing = len(self.fields) - len(files.split_fields(self._first_line))
        if missing in (0, 1) and self._separator:
            # If Arrow fails, DuckDB reads further forms of numbers and names invalid
            # lines.
            with contextlib.suppress(pa.ArrowException):
                return self._read_plain_rows(refs, types)
        return super().select(refs, types)

    @functools.cached_property
    def _separator(self) -> str | None:
        """The space or tab that separates the fields of plain lines, or `None`.

        Plain lines are ASCII, and have neither comments nor empty fields.
        """
        separator = "\t" if "\t" in self._first_line else " "
        ends = np.zeros(256, bool)
        ends[[ord(separator), ord("\n")]] = True
        forbidden = [x.encode() for x in {*" \t\r\f"} - {separator}] + [b"\n#"]
        for block in self._blocks():
            is_end = ends[np.frombuffer(block, np.uint8)]
            # A line feed precedes the file, so an empty first field is found as well.
            has_empty = bool((is_end[1:] & is_end[:-1]).any())
            has_forbidden = any(text in block for text in forbidden)
            if has_empty or has_forbidden or not block.isascii():
                return None
        return separator

    def _read_plain_rows(self, refs: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Returns columns of plain lines.

        Raises `ArrowInvalid` for numbers that Arrow can't read or that are not finite.
        """
        names_by_key = {
            key: str(self.find_index(column)) for key, column in refs.items()
        }
        arrow_types = {
            names_by_key[key]: pa.float64() if type_ == "DOUBLE" else pa.string()
            for key, type_ in types.items()
        }
        width = len(files.split_fields(self._first_line))
        with files.open_stream(self.file) as stream:
            table = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(
                    column_names=list(map(str, range(width))), block_size=_BLOCK
                ),
                arrow_csv.ParseOptions(delimiter=self._separator, quote_char=False),
                arrow_csv.ConvertOptions(
                    column_types=arrow_types,
                    include_columns=list(arrow_types),
                    null_values=[],
                ),
            )
        for name, type_ in arrow_types.items():
            if type_ == pa.float64() and not pc.all(pc.is_finite(table[name])).as_py():
                raise pa.ArrowInvalid("numbers that are not finite")
        columns = [table[names_by_key[key]] for key in refs]
        return self.connection.from_arrow(pa.table(columns, [*refs]))

    def scan(self, indices: Sequence[int]) -> Relation:
        is_complete = self._complete_condition()
        texts = ", ".join(
            f"CASE WHEN {is_complete} THEN coalesce(fields[{x + 1}], '') ELSE '' END "
            f'AS "{x}"'
            for x in range(len(self.fields))
        )
        return query(self._split("NOT"), f"SELECT {texts}, row FROM source")

    def warnings(self) -> list[str]:
        """Returns a warning about comments that may be lines whose id starts with `#`.

        Such comments have all fields of a line.
        """
        if self._separator or not self._contains(b"\n#", b"\r#"):
            return []
        # A `#` that is followed by white space starts a comment, not an id.
        condition = f"{self._complete_condition()} AND fields[1] <> '#'"
        if len(self.fields) > 2:
            index = self.fields.index(NUMBER_ROLES[self.argument]) + 1
            condition += f" AND TRY_CAST(fields[{index}] AS DOUBLE) IS NOT NULL"
        comments = self._split("").filter(condition)
        ((number, line),) = comments.aggregate(
            "count(*), arg_min(line, row)"
        ).fetchall()
        warning = (
            f"`{self.argument}` has lines that start with # but have all fields "
            f"({number}), such as {line!r} in {self.name}: they are comments, as in "
            "trec_eval. If they are not, rename the ids that start with #"
        )
        return [warning] * (number > 0)

    def _split(self, negation: str) -> Relation:
        """Returns the `fields`, the `line` and the `row` of lines or of comments.

        Args:
            negation: `"NOT"` for lines that are not comments, and `""` for comments.
        """
        return query(
            self._lines(),
            f"SELECT string_split_regex({_TRIMMED}, '\\s+') AS fields, line, row "
            f"FROM source WHERE {_TRIMMED} <> '' AND {negation} "
            "starts_with(line, '#')",
        )

    def _complete_condition(self) -> str:
        """Returns the SQL condition that a line has all fields, and none is empty."""
        width = len(self.fields)
        # The fields between tabs must not be empty, except for the tag.
        tab = "'\t'"
        has_empty = (
            f"(starts_with(line, {tab}) OR ends_with(line, {tab}) "
            f"OR contains(line, {tab} || {tab})) AND regexp_matches(line, "
            rf"'^([^\t ]+\t){{0,{min(width, 4)}}}(\t|$)')"
        )
        condition = f"NOT ({has_empty})"
        if width != 6:
            return f"{condition} AND len(fields) = {width}"
        # A tag may contain spaces, but not the byte order mark of a concatenated file.
        return f"{condition} AND len(fields) > 4 AND NOT contains(line, '\ufeff')"

    def error(self, column: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        ((line, _),) = self._lines().filter(f"row = {row[-1]}").fetchall()
        argument, fields = self.argument, files.split_fields(line)
        other = {5: "a run", 6: "a run", 4: "qrels"}.get(len(fields))
        hint = ""
        if "" in fields:
            hint = ", with an empty field between tabs"
        elif other and not other.endswith(argument):
            hint = f", as in {other}: are they swapped?"
        return ValueError(
            f"`{argument}` should have lines of the fields {' '.join(self.fields)}"
            + f", with a number as {NUMBER_ROLES[argument]}" * (len(self.fields) > 2)
            + f". Received: {self.locate_row(row)}, "
            f"{line!r}{hint}"
        )
