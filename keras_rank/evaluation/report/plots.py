"""Plots of tables."""

from typing import Any

import numpy as np

from keras_rank.evaluation.report.table import Table


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
