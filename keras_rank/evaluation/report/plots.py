"""Plots of Matplotlib: intervals of means and differences, a row for each."""

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.evaluation.report.table import Table, needing, rows_where

# The longest name of a row, and of a model, that leaves room for the plot.
_LONGEST = 32
# The sizes of a figure in inches: its width, the height of a row, and of the rest.
_WIDTH, _ROW, _REST = 6.4, 0.3, 1.3
# More rows would make a picture that can't be saved.
_MOST_ROWS = 500
# The same on a page, where it is read on phones, and has its title below.
_PAGE_WIDTH, _PAGE_REST, _PAGE_LONGEST = 4.1, 0.8, 18
# The colors of a plot on a page, which are those of the page: its text, and another.
_TEXT, _ACCENT = "#010101", "#020202"
_NO_METADATA = dict.fromkeys(["Creator", "Date", "Format", "Type"])
_PAGE_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": "#80808050",
    "ytick.major.size": 0.0,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}


def require_matplotlib(what: str) -> None:
    """Raises unless Matplotlib is installed."""
    with needing(what, "Matplotlib, which the extra `plot` installs", "matplotlib"):
        import matplotlib  # noqa: F401


def axes_of(ax: Any, rows: int | None = None) -> Any:
    """The axes to draw on: those given, or of a new figure as high as its rows."""
    if ax is not None:
        return ax
    require_matplotlib("plot")
    from matplotlib import pyplot

    height = 4.8 if rows is None else _REST + _ROW * min(max(rows, 1), _MOST_ROWS)
    # So that a saved figure has all of its labels.
    return pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")[1]


def estimates_in(table: Table) -> Table:
    """The rows of a table without sums, which are integers, if any row is left."""
    are_estimates = [not isinstance(value, int) for value in table["value"]]
    return rows_where(table, are_estimates) if any(are_estimates) else table


def draw_intervals(
    table: Table,
    value: str,
    title: str,
    ax: Any = None,
    longest: int = _LONGEST,
    color: str = "C0",
) -> Any:
    """Draws the intervals of a table, a line for each row, and returns the axes.

    Args:
        table: the table. After `metric`, all of its columns are numbers.
        value: the column of the values.
        title: the title.
        ax: the axes to draw on, `None` for those of a new figure.
        longest: the length of the longest label that is not shortened.
        color: the color of the intervals.
    """
    table = estimates_in(table)
    axes = axes_of(ax, len(table))
    columns, label = list(table.columns), value
    names, metrics = columns[: columns.index("metric") + 1], set(table["metric"])
    if len(names) > 1 and len(metrics) == 1:
        names, label = names[:-1], f"{value} of {table['metric'][0]}"
    cells = zip(*map(table.shown, names), strict=True)
    labels = [shortened(" ".join(row), longest) for row in cells]
    middles, places = np.array(table[value], "float64"), np.arange(len(table))[::-1]
    low, high = (np.array(table[x], "float64") for x in ("low", "high"))
    # A bound may be beyond the value by a rounding.
    sides = np.maximum([middles - low, high - middles], 0.0)
    axes.errorbar(middles, places, xerr=sides, fmt="o", capsize=3, color=color)
    # Names are text, not equations.
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel(label, parse_math=False)
    axes.set_title(title, parse_math=False, fontsize="medium")
    if value == "difference":
        axes.axvline(0.0, color="grey", linewidth=0.8, zorder=0)
        _write_p(axes, table, places)
    return axes


def draw_sorted(
    differences: Sequence[tuple[str, Any]], title: str, label: str, ax: Any = None
) -> Any:
    """Draws the differences of all lists of each model, the largest first."""
    axes = axes_of(ax)
    for _, values in differences:
        axes.plot(np.arange(1, len(values) + 1), np.sort(values)[::-1])
    lines = list(axes.lines)[-len(differences) :]
    axes.axhline(0.0, color="grey", linewidth=0.8)
    axes.set_xlabel("lists, the largest gain first")
    axes.set_ylabel(label, parse_math=False)
    axes.set_title(title, parse_math=False, fontsize="medium")
    if len(differences) > 1:
        names = [shortened(name) for name, _ in differences]
        for text in axes.legend(lines, names).get_texts():
            text.set_parse_math(False)
    return axes


def svg_of_intervals(table: Table, value: str, prefix: str) -> str:
    """Draws the same for a page, in its colors and fonts.

    Args:
        table: as for `draw_intervals`.
        value: as for `draw_intervals`.
        prefix: the start of all ids, which are those of one plot on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Whatever the style of other plots.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PAGE_STYLE)
        # Of characters that its fonts lack, but those of a browser have.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        height = _PAGE_REST + _ROW * max(len(table), 1)
        figure = Figure(figsize=(_PAGE_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        draw_intervals(table, value, "", axes, _PAGE_LONGEST, _ACCENT)
        axes.locator_params(axis="x", nbins=6)
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = file.getvalue()
    colors = {_TEXT: "currentColor", _ACCENT: "var(--accent)"}

    def as_of_page(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}", tag[0])
        return re.sub("|".join(colors), lambda color: colors[color[0]], text)

    # In tags alone: in texts, < and > are escaped.
    return re.sub("<[^>]*>", as_of_page, svg[svg.index("<svg") :])


def shortened(name: str, longest: int = _LONGEST) -> str:
    """A name in one line, whose middle is left out if it is long."""
    name, half = " ".join(name.split()), longest // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


def written_p(table: Table) -> list[str]:
    """The p of each row, if it has one, with a star where it is significant."""
    cells = table.shown("corrected_p" if "corrected_p" in table.columns else "p")
    sign = {True: "p < ", False: "p = "}
    return [x and sign[x[0] == "<"] + x.removeprefix("<") for x in cells]


def _write_p(axes: Any, table: Table, places: Any) -> None:
    side = axes.secondary_yaxis("right")
    side.set_yticks(places, written_p(table))
    side.tick_params(length=0)
    side.spines["right"].set_visible(axes.spines["right"].get_visible())
