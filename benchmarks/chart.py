"""Draws the time per list against its size, of us and of each peer.

python benchmarks/chart.py OUTPUT.png RESULTS.json...
"""

import json
import math
import pathlib
import sys

import matplotlib.pyplot as plt
from matplotlib.ticker import StrMethodFormatter

TITLES = {
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "numpy": "NumPy",
}
# Of keras-rs on every backend, and of those that are on one or two.
COLOURS = ("#d55e00", "#0072b2", "#009e73")

# A page is about 800 pixels wide, which makes 17 pixels of 12 points.
plt.rcParams.update(
    {
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titleweight": "bold",
        "font.size": 12,
    }
)


def main():
    output, *paths = map(pathlib.Path, sys.argv[1:])
    results = [json.loads(path.read_text()) for path in paths]
    rows = math.ceil(len(results) / 2)
    figure, axes = plt.subplots(
        rows,
        min(len(results), 2),
        figsize=(8, 0.6 + 3 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, result in zip(axes.flat, results, strict=False):
        draw(axis, result)
    figure.supxlabel("items per list")
    figure.supylabel("milliseconds per list")
    figure.suptitle(f"One update of NDCG@10 ({results[0]['machine']})")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=200)


def draw(axis, result):
    """The lines of one backend, ours above the others."""
    per_list = result["per_list"]
    ours, *others = dict.fromkeys(n for times in per_list.values() for n in times)
    styles = {ours: {"color": "black", "linewidth": 3, "zorder": 3}}
    styles |= {n: {"color": c} for n, c in zip(others, COLOURS, strict=False)}
    for name, style in styles.items():
        points = [(int(i), t[name]) for i, t in per_list.items() if name in t]
        axis.plot(*zip(*points, strict=True), marker="o", label=name, **style)
    axis.set(xscale="log", yscale="log", title=TITLES[result["backend"]])
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", frameon=False, borderaxespad=0)


if __name__ == "__main__":
    main()
