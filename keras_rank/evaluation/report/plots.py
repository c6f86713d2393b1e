"""Matplotlib plots of means and differences with their intervals."""

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.evaluation.report.table import Table, explain_import_error, select_rows

# The maximum length of the labels of rows and models: longer labels leave too little
# space for the plot.
_MAX_LABEL_LENGTH = 32
# The width of a figure, the height of a row, and the height of the rest, in inches.
_WIDTH, _ROW_HEIGHT, _MARGIN_HEIGHT = 6.4, 0.3, 1.3
# Further rows don't increase the height, as Matplotlib can't save a figure that is too
# high.
_MAX_ROWS = 500
# The width, height of the rest, and maximum label length of figures on a page. They are
# small, as pages are read on phones, and the title is part of the page.
_PAGE_WIDTH, _PAGE_MARGIN_HEIGHT, _PAGE_MAX_LABEL_LENGTH = 4.1, 0.8, 18
# The colors of the text and of the intervals in plots on a page. They are placeholders,
# which `render_intervals` replaces by the colors of the page.
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


def require_matplotlib(feature: str) -> None:
    """Raises `ImportError` if Matplotlib is not installed."""
    with explain_import_error(
        feature, "Matplotlib, which the extra `plot` installs", "matplotlib"
    ):
        import matplotlib  # noqa: F401


def get_axes(ax: Any, rows: int | None = None) -> Any:
    """Returns `ax`, or the axes of a new figure if it is `None`.

    Args:
        ax: Matplotlib axes, or `None`.
        rows: the number of rows, which determines the height of a new figure. Defaults
            to `None`: the default height.
    """
    if ax is not None:
        return ax
    require_matplotlib("plot")
    from matplotlib import pyplot

    height = (
        4.8
        if rows is None
        else _MARGIN_HEIGHT + _ROW_HEIGHT * min(max(rows, 1), _MAX_ROWS)
    )
    # The constrained layout keeps all labels within a saved figure.
    return pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")[1]


def drop_sums(table: Table) -> Table:
    """Returns the rows of a table whose values are not sums.

    Sums are integers, and have no intervals. A table of nothing but sums is returned as
    it is.
    """
    is_estimate = [not isinstance(value, int) for value in table["value"]]
    return select_rows(table, is_estimate) if any(is_estimate) else table


def draw_intervals(
    table: Table,
    value: str,
    title: str,
    ax: Any = None,
    max_length: int = _MAX_LABEL_LENGTH,
    color: str = "C0",
) -> Any:
    """Draws the intervals of a table, one line per row, and returns the axes.

    Args:
        table: the table. All columns after `metric` are numbers.
        value: the column of the values.
        title: the title.
        ax: the axes to draw on. Defaults to `None`: the axes of a new figure.
        max_length: the maximum length of labels. Longer labels are shortened.
        color: the color of the intervals.
    """
    table = drop_sums(table)
    axes = get_axes(ax, len(table))
    columns, label = list(table.columns), value
    names, metrics = columns[: columns.index("metric") + 1], set(table["metric"])
    if len(names) > 1 and len(metrics) == 1:
        names, label = names[:-1], f"{value} of {table['metric'][0]}"
    cells = zip(*map(table.shown, names), strict=True)
    labels = [shorten(" ".join(row), max_length) for row in cells]
    centers, positions = np.array(table[value], "float64"), np.arange(len(table))[::-1]
    low, high = (np.array(table[x], "float64") for x in ("low", "high"))
    # Rounding may put a bound beyond the value, and Matplotlib refuses negative errors.
    errors = np.maximum([centers - low, high - centers], 0.0)
    axes.errorbar(centers, positions, xerr=errors, fmt="o", capsize=3, color=color)
    # Names may contain dollar signs, which Matplotlib would parse as equations.
    axes.set_yticks(positions, labels, parse_math=False)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel(label, parse_math=False)
    axes.set_title(title, parse_math=False, fontsize="medium")
    if value == "difference":
        axes.axvline(0.0, color="grey", linewidth=0.8, zorder=0)
        _draw_p(axes, table, positions)
    return axes


def draw_sorted(
    differences: Sequence[tuple[str, Any]], title: str, label: str, ax: Any = None
) -> Any:
    """Draws the differences of all lists of each model, the largest first."""
    axes = get_axes(ax)
    for _, values in differences:
        axes.plot(np.arange(1, len(values) + 1), np.sort(values)[::-1])
    lines = list(axes.lines)[-len(differences) :]
    axes.axhline(0.0, color="grey", linewidth=0.8)
    axes.set_xlabel("lists, the largest gain first")
    axes.set_ylabel(label, parse_math=False)
    axes.set_title(title, parse_math=False, fontsize="medium")
    if len(differences) > 1:
        names = [shorten(name) for name, _ in differences]
        for text in axes.legend(lines, names).get_texts():
            text.set_parse_math(False)
    return axes


def render_intervals(table: Table, value: str, prefix: str) -> str:
    """Returns the SVG of the intervals of a table, in the colors and fonts of the page.

    Args:
        table: as for `draw_intervals`.
        value: as for `draw_intervals`.
        prefix: the prefix of all ids, which makes them unique on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        # The defaults are restored, as users may have changed the style.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PAGE_STYLE)
        # Matplotlib warns of characters that its fonts lack. The text of the SVG is
        # drawn with the fonts of the browser.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        height = _PAGE_MARGIN_HEIGHT + _ROW_HEIGHT * max(len(table), 1)
        figure = Figure(figsize=(_PAGE_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        draw_intervals(table, value, "", axes, _PAGE_MAX_LABEL_LENGTH, _ACCENT)
        axes.locator_params(axis="x", nbins=6)
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = file.getvalue()
    colors = {_TEXT: "currentColor", _ACCENT: "var(--accent)"}

    def adapt_tag(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}", tag[0])
        return re.sub("|".join(colors), lambda color: colors[color[0]], text)

    # The pattern matches no text, as the text of an SVG escapes < and >.
    return re.sub("<[^>]*>", adapt_tag, svg[svg.index("<svg") :])


def shorten(name: str, max_length: int = _MAX_LABEL_LENGTH) -> str:
    """Returns a name in one line, without its middle if it is too long."""
    name, half_length = " ".join(name.split()), max_length // 2
    return (
        name
        if len(name) <= max_length
        else f"{name[:half_length]}…{name[-half_length:]}"
    )


def format_p(table: Table) -> list[str]:
    """Returns the p-value of each row as text, with a star if it is significant."""
    cells = table.shown("corrected_p" if "corrected_p" in table.columns else "p")
    prefixes = {True: "p < ", False: "p = "}
    return [x and prefixes[x[0] == "<"] + x.removeprefix("<") for x in cells]


def _draw_p(axes: Any, table: Table, positions: Any) -> None:
    side = axes.secondary_yaxis("right")
    side.set_yticks(positions, format_p(table))
    side.tick_params(length=0)
    side.spines["right"].set_visible(axes.spines["right"].get_visible())
