"""Plots of Matplotlib: intervals of means and differences, a row for each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.evaluation.report.table import Table

# The longest name of a row, and of a model, that leaves room for the plot.
_LONGEST = 32
# The sizes of a figure in inches: its width, the height of a row, and of the rest.
_WIDTH, _ROW, _REST = 6.4, 0.3, 1.3


def require_matplotlib(what: str) -> None:
    """Raises unless Matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"`{what}` needs Matplotlib, which the extra `plot` installs: "
            f"`pip install matplotlib`. Received: {error}"
        ) from error


def axes_of(ax: Any, rows: int | None = None) -> Any:
    """The axes to draw on: those given, or of a new figure as high as its rows."""
    require_matplotlib("plot")
    from matplotlib import pyplot

    if ax is not None:
        return ax
    height = 4.8 if rows is None else _REST + _ROW * max(rows, 1)
    # So that a saved figure has all of its labels.
    return pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")[1]


def draw_intervals(
    table: Table, value: str, title: str, label: str, ax: Any = None
) -> Any:
    """Draws the intervals of a table, a line for each row, and returns the axes.

    Args:
        table: the table. After `metric`, all of its columns are numbers.
        value: the column of the values.
        title: the title.
        label: what the values are.
        ax: the axes to draw on, `None` for those of a new figure.
    """
    axes = axes_of(ax, len(table))
    columns = list(table.columns)
    names = columns[: columns.index("metric") + 1]
    labels = [shortened(" ".join(str(row[x]) for x in names)) for row in table]
    middles, places = np.array(table[value], "float64"), np.arange(len(table))[::-1]
    low, high = (np.array(table[x], "float64") for x in ("low", "high"))
    # A bound may be beyond the value by a rounding.
    sides = np.maximum([middles - low, high - middles], 0.0)
    axes.errorbar(middles, places, xerr=sides, fmt="o", capsize=3)
    # Names are text, not equations.
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel(label)
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


def shortened(name: str) -> str:
    """A name in one line, whose middle is left out if it is long."""
    name = " ".join(name.split())
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[-half:]}"


def _write_p(axes: Any, table: Table, places: Any) -> None:
    """Writes p beside each row, with a star where it is significant."""
    column = "corrected_p" if "corrected_p" in table.columns else "p"
    cells = table.shown(column)
    sign = {True: "p ", False: "p = "}
    texts = [cell and sign[cell.startswith("<")] + cell for cell in cells]
    side = axes.secondary_yaxis("right")
    side.set_yticks(places, [text.replace("<", "< ") for text in texts])
    side.tick_params(length=0)
