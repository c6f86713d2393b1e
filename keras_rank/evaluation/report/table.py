"""Results as a table: in the terminal, in a notebook, and as files."""

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

# Columns of numbers of any size.
_OF_ANY_SIZE = ("label", "score")
# Characters that format text in Markdown. An underscore within a word does not.
_FORMATS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
# Of tabs and line breaks, which would end a cell or its row.
_IN_ONE_LINE = str.maketrans("\t\n\r", "   ")
_IN_LATEX = str.maketrans(LATEX_ESCAPE_RULES)


class UnknownNameError(KeyError):
    """A `KeyError` whose message is printed as it is, not in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


def unknown_name(
    kind: str, name: Any, names: Sequence[str], hint: str = ""
) -> UnknownNameError:
    """Returns the error for the unknown name of a metric or a column."""
    return UnknownNameError(
        f"The key should be the name of a {kind}. Received: {name!r}"
        f"{hint or suggestion(name, names)}"
    )


class Marks(NamedTuple):
    """Which rows are marked.

    Attributes:
        column: the column whose values have a star.
        are_marked: whether each row is marked.
        meaning: what a star means, shown below the table if there is one.
    """

    column: str
    are_marked: Sequence[bool]
    meaning: str = ""


class Table:
    """Results in named columns.

    `print` and notebooks show it. `table["value"]` is a column, `table[0]` a row, and
    `table.rows` a list of these dicts.

    Args:
        columns: dict from names to lists of values, all of the same length.
        notes: list of sentences that are shown below the table.
        marks: which rows are shown with a star, as those of a `Comparison` that are
            significant. Defaults to `None`: none.

    Raises:
        ValueError: if columns differ in length.
        KeyError: if there is no column of a name.

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
            raise unknown_name("column", name, list(self.columns), hint * is_metric)
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
        # tabulate pads headers, but not rows.
        cells = self._cells(_in_one_line, unmarked=" ")
        return "\n".join([self._tabulated("plain", cells), *self._lines_below()])

    def to_html(self) -> str:
        """Returns the table in HTML, as notebooks show it. Marked rows are bold."""
        head, *body = self._cells(html.escape)
        rows = [
            [f"<b>{cell}</b>" for cell in row] if is_marked else row
            for row, is_marked in zip(body, self.marks.are_marked, strict=True)
        ]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._lines_below())
        return self._tabulated("unsafehtml", rows, head) + notes

    _repr_html_ = to_html

    def to_markdown(self) -> str:
        """Returns the table in Markdown. Cells and notes are shown as they are."""
        head, *rows = self._cells(_in_markdown)
        notes = [f"\n{_in_markdown(note)}" for note in self._lines_below()]
        return "\n".join([self._tabulated("pipe", rows, head), *notes])

    def to_latex(self) -> str:
        """Returns a `tabular` of LaTeX, for the package `booktabs`.

        Cells and notes are shown as they are. The notes are paragraphs below the table.
        """
        head, *rows = self._cells(_in_one_line)
        text = self._tabulated("latex_booktabs", rows or [[""] * len(head)], head)
        # After the end of a row, LaTeX reads `[` and `*` as arguments.
        text = re.sub(r"^(\s*)([\[*])", r"\1{\2}", text, flags=re.MULTILINE)
        notes = [f"\n{_in_latex(note)}" for note in self._lines_below()]
        return "\n".join([text, *notes])

    def to_tsv(self) -> str:
        """Returns tab-separated values with a header and all digits."""
        file = io.StringIO()
        writer = csv.writer(file, "excel-tab", lineterminator="\n")
        for row in (self.columns, *(row.values() for row in plain_rows(self))):
            writer.writerow("" if x is None else _in_one_line(str(x)) for x in row)
        return file.getvalue().removesuffix("\n")

    def to_json(self) -> str:
        """Returns the rows as JSON with all digits. Missing values are null."""
        return json.dumps(plain_rows(self), indent=1)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`."""
        return pandas().DataFrame(self.columns)

    def _are_numbers(self) -> list[bool]:
        return [
            all(_is_number(value) or value is None for value in values)
            for values in self.columns.values()
        ]

    def shown(self, name: str, unmarked: str = "") -> list[str]:
        """The cells of a column as people read them. Marked ones end in a star."""
        cells = [_short(name, value) for value in self[name]]
        if name != self.marks.column or not any(self.marks.are_marked):
            return cells
        ends = ("*" if x else unmarked for x in self.marks.are_marked)
        return list(map("".join, zip(cells, ends, strict=True)))

    def _cells(
        self, escape: Callable[[str], str], unmarked: str = ""
    ) -> list[list[str]]:
        """Returns the header and the rows, with escaped cells."""
        columns = [[name, *self.shown(name, unmarked)] for name in self.columns]
        return [list(map(escape, row)) for row in zip(*columns, strict=True)]

    def _tabulated(
        self, style: str, rows: list[list[str]], head: Sequence[str] = ()
    ) -> str:
        """Returns cells in a format of tabulate. Numbers are on the right."""
        sides = ["right" if x else "left" for x in self._are_numbers()]
        # Cells are text already: ids such as 007 keep their zeros.
        kind: Any = {"disable_numparse": True, "preserve_whitespace": True}
        return str(tabulate(rows, head, style, colalign=sides, **kind))

    def _lines_below(self) -> list[str]:
        has_meaning = self.marks.meaning and any(self.marks.are_marked)
        return [f"* {self.marks.meaning}"] * bool(has_meaning) + self.notes


@contextlib.contextmanager
def needing(what: str, called: str, name: str) -> Iterator[None]:
    """Imports within it say what needs them, where they are not installed."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"`{what}` needs {called}: `pip install {name}`. Received: {error}"
        ) from error


def pandas() -> Any:
    """The module. Raises unless it is installed."""
    with needing("to_pandas", "pandas", "pandas"):
        import pandas
    return pandas


def without_notes(table: Table) -> Table:
    """The table without its notes, which are shown elsewhere."""
    return Table(table.columns, marks=table.marks)


def columns_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, list[Any]]:
    """The named columns of rows."""
    return {name: [row[name] for row in rows] for name in names}


def rows_where(table: Table, are_chosen: Sequence[bool]) -> Table:
    """The chosen rows of a table, with their marks."""
    columns = {
        name: list(itertools.compress(values, are_chosen))
        for name, values in table.columns.items()
    }
    marked = list(itertools.compress(table.marks.are_marked, are_chosen))
    marks = table.marks._replace(are_marked=marked)
    return Table(columns, notes=table.notes, marks=marks)


def plain_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table, as dicts of values that JSON has."""
    return [{name: _plain(value) for name, value in row.items()} for row in table]


def _in_one_line(text: str) -> str:
    """Returns the text without tabs and line breaks, which would end its cell."""
    return text.translate(_IN_ONE_LINE)


def _in_latex(text: str) -> str:
    """Returns LaTeX that is shown as the text."""
    return _in_one_line(text).translate(_IN_LATEX)


def _in_markdown(text: str) -> str:
    """Returns one line of Markdown that is shown as the text."""
    line = html.escape(" ".join(text.split()), quote=False)
    return _FORMATS.sub(r"\\\g<0>", line)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(name: str, value: Any) -> str:
    """A cell for people: four places, empty for missing values."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if name in _OF_ANY_SIZE:
            return f"{value:.6g}"
        is_p = name in ("p", "corrected_p")
        return "<0.0001" if is_p and value < 1e-4 else f"{value:.4f}"
    # A day, which Arrow has no date for where it comes from pandas.
    return value if isinstance(value, str) else str(value).removesuffix(" 00:00:00")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return value if is_plain else str(value)
