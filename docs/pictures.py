"""Program that draws the pictures of the pages, as `make pictures` does.

    python docs/pictures.py [FOLDER]

The named libraries compute the values. A test compares the digest of this file with the
digest in each picture: a picture that was drawn before a change is stale.
"""

import hashlib
import logging
import os
import pathlib
import random
import sys
import warnings

os.environ["KERAS_BACKEND"] = "torch"  # ignite needs torch.

import matplotlib as mpl

mpl.use("agg")

import keras
import keras_rs
import matplotlib.pyplot as plt
import numpy as np
import pytrec_eval
import torch
from keras import ops
from sklearn.metrics import ndcg_score

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ignite.metrics import rec_sys

import keras_rank
from keras_rank.discounts import clipped_log2, geometric, log2, reciprocal

PICTURES = pathlib.Path(__file__).parent / "pictures"
DIGEST = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
ITEMS = 20
BLUE, ORANGE, GREEN, PINK, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666"

plt.rcParams.update(
    {
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 11,
        "svg.hashsalt": "keras_rank",
    }
)


def main() -> None:
    """Writes all pictures."""
    folder = pathlib.Path(*sys.argv[1:] or [PICTURES])
    folder.mkdir(exist_ok=True)
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    for name, draw in (
        ("ties", draw_ties),
        ("discounts", draw_discounts),
        ("house", draw_modules),
        ("uncertainty", draw_uncertainty),
    ):
        figure = draw()
        figure.savefig(
            folder / f"{name}.svg",
            bbox_inches="tight",
            metadata={"Date": None, "Description": DIGEST},
        )
        plt.close(figure)


def draw_ties() -> plt.Figure:
    """Draws NDCG of a constant model, by the position of the only relevant item."""
    positions = np.arange(1, ITEMS + 1)
    figure, axes = plt.subplots(figsize=(6, 4.8), layout="constrained")
    for name, library, style in (
        (
            "ignite: the first stored comes first",
            compute_with_ignite,
            {"color": ORANGE},
        ),
        (
            "trec_eval: the last name comes first",
            compute_with_trec_eval,
            {"color": GREEN},
        ),
        (
            "keras-rs: one order at random",
            compute_with_keras_rs,
            {"color": PINK, "ls": "", "marker": "o", "ms": 5},
        ),
        (
            "scikit-learn: the mean over all orders",
            compute_with_scikit_learn,
            {"color": BLUE},
        ),
        (
            'keras_rank: shuffle_ties="average"',
            compute_with_keras_rank,
            {"color": "black", "ls": "", "marker": "x", "ms": 5},
        ),
    ):
        values = [library(index) for index in range(ITEMS)]
        axes.plot(positions, values, label=name, lw=2, **style)
    figure.legend(loc="outside lower left", frameon=False, ncols=1)
    axes.set(
        title="NDCG of a model that scores all items alike",
        xlabel=f"where the one relevant item of {ITEMS} is stored",
        ylabel="NDCG",
        xticks=[1, 5, 10, 15, 20],
        ylim=(0, 1.03),
    )
    return figure


def make_list(index: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the labels and scores of a list, of shape (1, ITEMS)."""
    labels = np.zeros((1, ITEMS), "float32")
    labels[0, index] = 1.0
    return labels, np.full((1, ITEMS), 0.5, "float32")


def compute_with_ignite(index: int) -> float:
    """Returns NDCG of ignite."""
    labels, scores = map(torch.as_tensor, make_list(index))
    metric = rec_sys.NDCG(top_k=[ITEMS])
    metric.update((scores, labels))
    return float(metric.compute()[0])


def compute_with_trec_eval(index: int) -> float:
    """Returns ndcg of trec_eval, with names of documents in the order of storage."""
    names = [f"document {i:02}" for i in range(ITEMS)]
    qrels = {"topic": {name: int(i == index) for i, name in enumerate(names)}}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg"})
    return evaluator.evaluate({"topic": dict.fromkeys(names, 0.5)})["topic"]["ndcg"]


def compute_with_keras_rs(index: int) -> float:
    """Returns NDCG of keras-rs, which is one draw."""
    return float(keras_rs.metrics.NDCG(seed=index)(*make_list(index)))


def compute_with_scikit_learn(index: int) -> float:
    """Returns ndcg_score of scikit-learn."""
    return float(ndcg_score(*make_list(index)))


def compute_with_keras_rank(index: int) -> float:
    """Returns NDCG of keras_rank, averaged over ties."""
    metric = keras_rank.metrics.NDCG(shuffle_ties="average")
    return float(metric(*make_list(index)))


def draw_discounts() -> plt.Figure:
    """Draws the discounts by rank."""
    ranks = np.arange(1, 21)
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for name, discount, color in (
        ("clipped_log2: 1 / max(1, log2(r))", clipped_log2, GREEN),
        ("log2, the default: 1 / log2(r + 1)", log2, BLUE),
        ("geometric(0.8): 0.8**(r - 1)", geometric(0.8), PINK),
        ("reciprocal: 1 / r", reciprocal, ORANGE),
    ):
        values = ops.convert_to_numpy(discount(ops.cast(ranks, "float32")))
        axes.plot(ranks, values, label=name, color=color, marker="o", ms=4, lw=2)
    axes.legend(frameon=False)
    axes.set(
        title="The share of a gain that counts at each rank",
        xlabel="rank",
        ylabel="discount",
        xticks=[1, 5, 10, 15, 20],
        ylim=(0, 1.03),
    )
    return figure


def draw_uncertainty() -> plt.Figure:
    """Draws NDCG of a small model on 200 lists, by epoch, with intervals."""
    # `keras.utils.set_random_seed` would import TensorFlow, which takes seconds.
    random.seed(0)
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(600, 10, 8)).astype("float32")
    y = np.clip(np.round(x[:, :, 0] + x[:, :, 1] * x[:, :, 2]), 0, 3)
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1),
            keras.layers.Reshape((10,)),
        ]
    )
    metrics = keras_rank.metrics.RankingMetrics(["ndcg@5"], standard_errors=True)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=[metrics])
    history = model.fit(x, y, validation_split=1 / 3, epochs=12, verbose=0)
    values, errors = (
        np.array(history.history[name])
        for name in ("val_ndcg_at_5", "val_ndcg_at_5_stderr")
    )
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    epochs = np.arange(1, len(values) + 1)
    axes.errorbar(
        epochs, values, 1.96 * errors, color=BLUE, capsize=3, marker="o", ms=4, lw=2
    )
    axes.set(
        title="NDCG@5 of 200 lists, with intervals of 95%",
        xlabel="epoch",
        ylabel="val_ndcg_at_5",
        xticks=epochs,
    )
    return figure


def draw_modules() -> plt.Figure:
    """Draws the modules, and the steps of a batch through them."""
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.set(xlim=(0, 10), ylim=(0, 5.2))
    axes.axis("off")
    for x, y, title, note, color in (
        (0.1, 2.6, "lists/", "items, labels, relevance", GREEN),
        (3.6, 2.6, "ranking/", "order, ties, cutoff", GREEN),
        (7.1, 2.6, "metrics/", "compute: one value per list", GREEN),
        (3.6, 0.8, "lists/relevance.py", "the weight of a list", ORANGE),
        (7.1, 0.8, "state.py", "sums, mean, error", ORANGE),
    ):
        box = plt.Rectangle((x, y), 2.8, 1.0, fc=color + "18", ec=color, lw=1.5)
        axes.add_patch(box)
        axes.text(x + 1.4, y + 0.66, title, ha="center", va="center", weight="bold")
        axes.text(x + 1.4, y + 0.3, note, ha="center", va="center", size=9)
    for start, end in (
        ((1.5, 4.4), (1.5, 3.6)),
        ((2.9, 3.1), (3.6, 3.1)),
        ((6.4, 3.1), (7.1, 3.1)),
        ((8.5, 2.6), (8.5, 1.8)),
        ((8.5, 3.6), (8.5, 4.4)),
        ((2.2, 2.6), (3.6, 1.4)),
        ((6.4, 1.3), (7.1, 1.3)),
        ((8.5, 0.8), (8.5, 0.35)),
    ):
        style = {"arrowstyle": "-|>", "color": GRAY, "lw": 1.5}
        axes.annotate("", end, start, arrowprops=style)
    for x, y, text in (
        (1.5, 4.75, "y_true, y_pred,\nsample_weight"),
        (8.5, 4.75, "a function:\none value per list"),
        (8.5, 0.1, "a metric: result()"),
    ):
        axes.text(x, y, text, ha="center", va="center", color=BLUE)
    return figure


if __name__ == "__main__":
    main()
