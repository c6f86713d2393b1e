"""Draws the time per list against its size, of us and of each peer.

python benchmarks/chart.py OUTPUT.png RESULTS.json...
"""

import json
import pathlib
import sys

import matplotlib.pyplot as plt

TITLES = {
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "numpy": "NumPy",
}


def main():
    output, *paths = map(pathlib.Path, sys.argv[1:])
    results = [json.loads(path.read_text()) for path in paths]
    figure, axes = plt.subplots(
        1, len(results), figsize=(3.4 * len(results), 3.6), sharey=True, squeeze=False
    )
    for axis, result in zip(axes[0], results, strict=True):
        per_list = result["per_list"]
        for name in dict.fromkeys(n for times in per_list.values() for n in times):
            points = [(int(i), t[name]) for i, t in per_list.items() if name in t]
            ours = name == "keras_rank"
            axis.plot(
                *zip(*points, strict=True),
                marker="o",
                linewidth=2.5 if ours else 1.2,
                color="black" if ours else None,
                label=name,
            )
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="items per list",
            title=TITLES[result["backend"]],
        )
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, frameon=False)
    axes[0][0].set_ylabel("ms per list, NDCG@10")
    figure.suptitle(f"One update ({results[0]['machine']})", fontsize=9)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=130)


if __name__ == "__main__":
    main()
