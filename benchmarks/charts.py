"""Draws the measured times against sizes."""

import math

import matplotlib.pyplot as plt
from matplotlib.ticker import StrMethodFormatter

# Of keras-rs on every backend, and of those that are on one or two.
COLORS = ("#d55e00", "#0072b2", "#009e73")

# A page is about 800 pixels wide, which makes 17 pixels of 12 points.
STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titleweight": "bold",
    "font.size": 12,
    "savefig.dpi": 200,
}


def per_list(backends):
    """The time per list against its size, for keras_rank and each peer."""
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
            _lines_of(axis, backend)
        figure.supxlabel("items per list")
        figure.supylabel("milliseconds per list")
        machine = f"{backends[0]['cores']} cores, {backends[0]['date']}"
        figure.suptitle(f"NDCG@10: the time of one update, per list ({machine})")
    return figure


def _lines_of(axis, backend):
    """The lines of one backend, ours above the others."""
    times = {name.split(" x ")[1]: each for name, each in backend["per_list"].items()}
    ours, *others = dict.fromkeys(n for of_size in times.values() for n in of_size)
    styles = {ours: {"color": "black", "linewidth": 3, "zorder": 3}}
    styles |= {n: {"color": c} for n, c in zip(others, COLORS, strict=False)}
    for name, style in styles.items():
        points = [(int(i), t[name]) for i, t in times.items() if name in t]
        axis.plot(*zip(*points, strict=True), marker="o", label=name, **style)
    axis.set(xscale="log", yscale="log", title=backend["title"])
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", frameon=False, borderaxespad=0)


def sizes(found):
    """The time of three metrics against the number of candidates."""
    with plt.rc_context({**STYLE, "savefig.dpi": 120}):
        figure, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        for i, (label, times) in enumerate(found["seconds"].items()):
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
        axis.set_title(f"NDCG@10, recall@100 and MRR, {found['backend']}")
    return figure
