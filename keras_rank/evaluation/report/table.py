"""Results as a table: in the terminal, in a notebook, as files, and plotted."""

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


class Table:
    """Results in named columns.

    `print` and notebooks show it. `table["value"]` is a column, and `table.rows` a list
    of dicts.

    Args:
        columns: dict from names to lists of values, all of the same length.
        notes: list of sentences that are shown below the table.

    Raises:
        ValueError: if columns differ in length, or there is no column of a name.

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
        self, columns: Mapping[str, Sequence[Any]], *, notes: Sequence[str] = ()
    ) -> None:
        self.columns = {name: list(values) for name, values in columns.items()}
        self.notes = list(notes)
        sizes = {name: len(values) for name, values in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"`columns` should have equally many values. Received: {sizes}"
            )

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            is_metric = name in self.columns.get("metric", ())
            hint = (
                f". It is a metric: its row is `[row for row in table if "
                f'row["metric"] == {name!r}]`, and its value `evaluation[{name!r}]`'
            )
            raise ValueError(
                f"The table should have the column. Received: {name!r}, and columns "
                f"{list(self.columns)}" + hint * is_metric
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
        cells = self._cells()
        columns = zip(self._are_numbers(), zip(*cells, strict=True), strict=True)
        specs = [
            f"{'>' if is_number else '<'}{max(map(len, column))}"
            for is_number, column in columns
        ]
        lines = ["  ".join(map(format, row, specs)).rstrip() for row in cells]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = [_tags("th", head), *(_tags("td", row) for row in body)]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>{notes}"

    def to_markdown(self) -> str:
        """Returns the table in Markdown."""
        head, *body = self._cells()
        marks = ["--:" if is_right else "---" for is_right in self._are_numbers()]
        rows = [
            [" ".join(cell.split()).replace("|", r"\|") for cell in row]
            for row in [head, marks, *body]
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def to_tsv(self) -> str:
        """Returns tab-separated values with a header and all digits."""
        rows = [self.columns, *(row.values() for row in self.rows)]
        return "\n".join("\t".join(map(_exact, row)) for row in rows)

    def to_json(self) -> str:
        """Returns the rows as JSON with all digits. Missing values are null."""
        return json.dumps(plain_rows(self), indent=1)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def _are_numbers(self) -> list[bool]:
        return [
            all(_is_number(value) or value is None for value in values)
            for values in self.columns.values()
        ]

    def _cells(self) -> list[list[str]]:
        columns = [
            [name, *(_short(name, value) for value in values)]
            for name, values in self.columns.items()
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def table_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], notes: Sequence[str] = ()
) -> Table:
    """The table of rows with named columns."""
    return Table({name: [row[name] for row in rows] for name in names}, notes=notes)


def plain_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table, as dicts of values that JSON has."""
    return [{name: _plain(value) for name, value in row.items()} for row in table]


def pyplot() -> Any:
    """Matplotlib, which only plots need."""
    try:
        from matplotlib import pyplot as module
    except ImportError as error:
        raise ImportError(
            "`plot` needs Matplotlib: `pip install matplotlib`."
        ) from error
    return module


def draw_intervals(table: Table, value: str) -> Any:
    """Draws the intervals of a table, a line for each row, and returns the axes."""
    _, axes = pyplot().subplots()
    columns = list(table.columns)
    # After these, all columns are numbers.
    names = columns[: columns.index("metric") + 1]
    labels = [" ".join(str(row[name]) for name in names) for row in table.rows]
    middles, places = np.array(table[value]), np.arange(len(table))[::-1]
    sides = [middles - table["low"], table["high"] - middles]
    axes.errorbar(middles, places, xerr=sides, fmt="o", capsize=3)
    axes.set_yticks(places, labels)
    axes.set_xlabel(value)
    if value == "difference":
        axes.axvline(0.0, color="grey", linewidth=0.8)
    return axes


def _tags(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(name: str, value: Any) -> str:
    """A cell for people: four places, empty for missing values."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        is_p = name in ("p", "corrected_p")
        return "<0.0001" if is_p and value < 1e-4 else f"{value:.4f}"
    return str(value)


def _exact(value: Any) -> str:
    """A cell with all digits, without tabs and line breaks."""
    text = "" if _plain(value) is None else str(value)
    return text.translate({ord("\t"): " ", ord("\n"): " ", ord("\r"): " "})


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return value if is_plain else str(value)
