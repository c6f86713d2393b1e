"""Charts of the measured times, by size."""

import math

import matplotlib.pyplot as plt
from matplotlib.ticker import StrMethodFormatter

# Colors of the other libraries: keras-rs, which runs on all backends, is always first.
COLORS = ("#d55e00", "#0072b2", "#009e73")

# A page is about 800 pixels wide. A font of 12 points has 17 pixels then.
STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titleweight": "bold",
    "font.size": 12,
    "savefig.dpi": 200,
}


def draw_times_per_list(backends):
    """Draws the time per list by its size, for keras_rank and each other library."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            math.ceil(len(backends) / 2),
            2,
            figsize=(8, 0.6 + 3 * math.ceil(len(backends) / 2)),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axis, backend in zip(axes.flat, backends, strict=False):
            _draw_lines(axis, backend)
        figure.supxlabel("items per list")
        figure.supylabel("milliseconds per list")
        machine = f"{backends[0]['cores']} cores, {backends[0]['date']}"
        figure.suptitle(f"NDCG@10: the time of one update, per list ({machine})")
    return figure


def _draw_lines(axis, backend):
    """Draws the lines of one backend, with the line of keras_rank on top."""
    times = {shape.split(" x ")[1]: row for shape, row in backend["per_list"].items()}
    ours, *others = dict.fromkeys(name for row in times.values() for name in row)
    styles = {ours: {"color": "black", "linewidth": 3, "zorder": 3}}
    styles |= {x: {"color": c} for x, c in zip(others, COLORS, strict=False)}
    for name, style in styles.items():
        points = [(int(i), row[name]) for i, row in times.items() if name in row]
        axis.plot(*zip(*points, strict=True), marker="o", label=name, **style)
    axis.set(xscale="log", yscale="log", title=backend["title"])
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", frameon=False, borderaxespad=0)


def draw_times_by_size(report):
    """Draws the time of three metrics by the number of candidates."""
    with plt.rc_context({**STYLE, "savefig.dpi": 120}):
        figure, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        for i, (label, times) in enumerate(report["seconds"].items()):
            axis.plot(
                [int(size) for size in times],
                list(times.values()),
                marker="o",
                label=label,
                color=None if i else "black",
                linewidth=1.2 if i else 2.5,
            )
        axis.set(xscale="log", yscale="log", xlabel="items")
        axis.set(ylabel="seconds, 512 queries")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        axis.set_title(f"NDCG@10, recall@100 and MRR, {report['backend']}")
    return figure
