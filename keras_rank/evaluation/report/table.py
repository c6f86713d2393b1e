"""Tables of results, for the terminal, notebooks and files."""

import contextlib
import csv
import html
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from tabulate import LATEX_ESCAPE_RULES, tabulate

from keras_rank.arguments import suggestion

# Columns whose numbers may have any size. They are shown with six significant digits.
_UNSCALED_COLUMNS = ("label", "score")
# Characters that format text in Markdown. An underscore within a word formats nothing.
_MARKDOWN_CHARACTERS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
# Tabs and line breaks become spaces, as they would end a cell or a row.
_LINE_ESCAPES = str.maketrans("\t\n\r", "   ")
_LATEX_ESCAPES = str.maketrans(LATEX_ESCAPE_RULES)


class UnknownNameError(KeyError):
    """A `KeyError` whose message is printed as it is, not in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


def unknown_name_error(
    kind: str, name: Any, names: Sequence[str], hint: str = ""
) -> UnknownNameError:
    """Returns the error for the unknown name of a metric or a column."""
    return UnknownNameError(
        f"The key should be the name of a {kind}. Received: {name!r}"
        f"{hint or suggestion(name, names)}"
    )


class Marks(NamedTuple):
    """The rows of a table that are marked.

    Attributes:
        column: the column whose values get a star in marked rows.
        is_marked: whether each row is marked.
        meaning: the meaning of a star, shown below the table if a row is marked.
    """

    column: str
    is_marked: Sequence[bool]
    meaning: str = ""


class Table:
    """Results in named columns.

    `print` and notebooks show the table. `table["value"]` is a column, `table[0]` is a
    row as a dict, and `table.rows` is the list of all rows.

    Args:
        columns: dict from names to lists of values, all of the same length.
        notes: list of sentences that are shown below the table.
        marks: the rows that are shown with a star, such as the significant rows of a
            `Comparison`. Defaults to `None`: none.

    Raises:
        ValueError: if columns differ in length.
        KeyError: if a requested column does not exist.

    Example:

    >>> from keras_rank.evaluation import Table
    >>> table = Table({"metric": ["ndcg@10", "mrr"], "value": [0.41234, 0.5]})
    >>> print(table)
    metric    value
    ndcg@10  0.4123
    mrr      0.5000
    >>> table["value"]
    [0.41234, 0.5]
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        *,
        notes: Sequence[str] = (),
        marks: Marks | None = None,
    ) -> None:
        self.columns = {name: list(values) for name, values in columns.items()}
        self.notes = list(notes)
        self.marks = marks or Marks("", [False] * len(self))
        sizes = {name: len(values) for name, values in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"`columns` should have equally many values. Received: {sizes}"
            )

    @overload
    def __getitem__(self, name: str) -> list[Any]: ...
    @overload
    def __getitem__(self, name: int) -> dict[str, Any]: ...
    def __getitem__(self, name: str | int) -> list[Any] | dict[str, Any]:
        if isinstance(name, int):
            return self.rows[name]
        if not isinstance(name, str) or name not in self.columns:
            is_metric = name in self.columns.get("metric", ())
            hint = (
                f". It is a metric: its row is `[row for row in table if "
                f'row["metric"] == {name!r}]`, and its value `evaluation[{name!r}]`'
            )
            raise unknown_name_error(
                "column", name, list(self.columns), hint * is_metric
            )
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, as a list of dicts from the names of the columns to values."""
        return [
            dict(zip(self.columns, row, strict=True))
            for row in zip(*self.columns.values(), strict=True)
        ]

    def __repr__(self) -> str:
        # tabulate pads headers but not rows, so unmarked cells end in a space.
        cells = self._format_cells(_to_one_line, unmarked=" ")
        return "\n".join([self._tabulate("plain", cells), *self._create_footer()])

    def to_html(self) -> str:
        """Returns the table as HTML, as notebooks show it. Marked rows are bold."""
        header, *body = self._format_cells(html.escape)
        rows = [
            [f"<b>{cell}</b>" for cell in row] if is_marked else row
            for row, is_marked in zip(body, self.marks.is_marked, strict=True)
        ]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._create_footer())
        return self._tabulate("unsafehtml", rows, header) + notes

    _repr_html_ = to_html

    def to_markdown(self) -> str:
        """Returns the table as Markdown. Cells and notes are escaped."""
        header, *rows = self._format_cells(_to_markdown)
        notes = [f"\n{_to_markdown(note)}" for note in self._create_footer()]
        return "\n".join([self._tabulate("pipe", rows, header), *notes])

    def to_latex(self) -> str:
        """Returns the table as a `tabular` of LaTeX, for the package `booktabs`.

        Cells and notes are escaped. The notes are paragraphs below the table.
        """
        header, *rows = self._format_cells(_to_one_line)
        text = self._tabulate("latex_booktabs", rows or [[""] * len(header)], header)
        # After the end of a row, LaTeX reads `[` and `*` as arguments.
        text = re.sub(r"^(\s*)([\[*])", r"\1{\2}", text, flags=re.MULTILINE)
        notes = [f"\n{_to_latex(note)}" for note in self._create_footer()]
        return "\n".join([text, *notes])

    def to_tsv(self) -> str:
        """Returns tab-separated values with a header and all digits."""
        file = io.StringIO()
        writer = csv.writer(file, "excel-tab", lineterminator="\n")
        for row in (self.columns, *(row.values() for row in plain_rows(self))):
            writer.writerow("" if x is None else _to_one_line(str(x)) for x in row)
        return file.getvalue().removesuffix("\n")

    def to_json(self) -> str:
        """Returns the rows as JSON with all digits. Missing values are null."""
        return json.dumps(plain_rows(self), indent=1)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`."""
        return import_pandas().DataFrame(self.columns)

    def _find_numeric_columns(self) -> list[bool]:
        return [
            all(_is_number(value) or value is None for value in values)
            for values in self.columns.values()
        ]

    def shown(self, name: str, unmarked: str = "") -> list[str]:
        """Returns the cells of a column as text. Marked cells end in a star."""
        cells = [_format_value(name, value) for value in self[name]]
        if name != self.marks.column or not any(self.marks.is_marked):
            return cells
        suffixes = ("*" if x else unmarked for x in self.marks.is_marked)
        return list(map("".join, zip(cells, suffixes, strict=True)))

    def _format_cells(
        self, escape: Callable[[str], str], unmarked: str = ""
    ) -> list[list[str]]:
        """Returns the header and the rows, with escaped cells."""
        columns = [[name, *self.shown(name, unmarked)] for name in self.columns]
        return [list(map(escape, row)) for row in zip(*columns, strict=True)]

    def _tabulate(
        self, style: str, rows: list[list[str]], header: Sequence[str] = ()
    ) -> str:
        """Returns cells in a style of tabulate. Numbers are aligned to the right."""
        alignments = ["right" if x else "left" for x in self._find_numeric_columns()]
        # Cells are not parsed as numbers, so that ids such as 007 keep their zeros.
        keywords: Any = {"disable_numparse": True, "preserve_whitespace": True}
        return str(tabulate(rows, header, style, colalign=alignments, **keywords))

    def _create_footer(self) -> list[str]:
        has_meaning = self.marks.meaning and any(self.marks.is_marked)
        return [f"* {self.marks.meaning}"] * bool(has_meaning) + self.notes


@contextlib.contextmanager
def explain_import_error(feature: str, library: str, package: str) -> Iterator[None]:
    """Adds a hint to the `ImportError` of a library that is not installed.

    Args:
        feature: the function that needs the library.
        library: the name of the library.
        package: the package to install.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"`{feature}` needs {library}: `pip install {package}`. Received: {error}"
        ) from error


def import_pandas() -> Any:
    """Returns pandas. Raises `ImportError` if it is not installed."""
    with explain_import_error("to_pandas", "pandas", "pandas"):
        import pandas
    return pandas


def drop_notes(table: Table) -> Table:
    """Returns the table without its notes."""
    return Table(table.columns, marks=table.marks)


def select_columns(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, list[Any]]:
    """Returns the named columns of rows."""
    return {name: [row[name] for row in rows] for name in names}


def select_rows(table: Table, is_selected: Sequence[bool]) -> Table:
    """Returns the selected rows of a table, with their marks."""
    columns = {
        name: list(itertools.compress(values, is_selected))
        for name, values in table.columns.items()
    }
    marked = list(itertools.compress(table.marks.is_marked, is_selected))
    marks = table.marks._replace(is_marked=marked)
    return Table(columns, notes=table.notes, marks=marks)


def plain_rows(table: Table) -> list[dict[str, Any]]:
    """Returns the rows of a table as dicts of values that JSON supports."""
    return [
        {name: _to_json_value(value) for name, value in row.items()} for row in table
    ]


def _to_one_line(text: str) -> str:
    """Returns the text without tabs and line breaks, which would end its cell."""
    return text.translate(_LINE_ESCAPES)


def _to_latex(text: str) -> str:
    """Returns LaTeX that is shown as the text."""
    return _to_one_line(text).translate(_LATEX_ESCAPES)


def _to_markdown(text: str) -> str:
    """Returns one line of Markdown that is shown as the text."""
    line = html.escape(" ".join(text.split()), quote=False)
    return _MARKDOWN_CHARACTERS.sub(r"\\\g<0>", line)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_value(name: str, value: Any) -> str:
    """Returns the text of a cell: four decimal places, empty for missing values."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if name in _UNSCALED_COLUMNS:
            return f"{value:.6g}"
        is_p = name in ("p", "corrected_p")
        return "<0.0001" if is_p and value < 1e-4 else f"{value:.4f}"
    # pandas has no type for dates: Arrow returns them as times at midnight.
    return value if isinstance(value, str) else str(value).removesuffix(" 00:00:00")


def _to_json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return value if is_plain else str(value)
