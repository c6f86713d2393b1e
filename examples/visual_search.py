"""Visual search: rank a gallery of handwritten digits for a query image.

Trains a small ranker on scikit-learn's digits, with NDCG in the progress bar and early
stopping by it, and draws the top five of some queries before and after training.

    python examples/visual_search.py --backend jax
"""

import argparse
import os
import pathlib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--backend",
    default=os.environ.get("KERAS_BACKEND", "jax"),
    choices=["jax", "tensorflow", "torch"],
)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--output", type=pathlib.Path, default="outputs/visual_search.png")
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

from keras_rank.metrics import NDCG  # noqa: E402
from keras_rank.utils import mask_labels  # noqa: E402

PIXELS, MAX_GALLERY_SIZE = 64, 40


def make_searches(images, digits, searches, rng):
    """Draws queries, galleries of 20 to 40 candidates, and their relevance.

    A candidate of the same digit has grade 2, and of a similar digit grade 1. Shorter
    galleries are padded with labels of -1.
    """
    similar = {(1, 7), (3, 8), (4, 9), (5, 6)}
    query = rng.integers(len(images), size=searches)
    gallery = rng.integers(len(images), size=(searches, MAX_GALLERY_SIZE))
    pairs = np.stack(np.broadcast_arrays(digits[query][:, None], digits[gallery]), -1)
    low_high = np.sort(pairs, axis=-1)
    labels = 2.0 * (low_high[..., 0] == low_high[..., 1])
    for low, high in similar:
        labels[(low_high == (low, high)).all(axis=-1)] = 1.0
    sizes = rng.integers(20, MAX_GALLERY_SIZE + 1, size=(searches, 1))
    labels = ops.convert_to_numpy(
        mask_labels(labels, np.arange(MAX_GALLERY_SIZE) < sizes)
    )
    return {"query": images[query], "gallery": images[gallery]}, labels


def build_ranker():
    """Builds a model whose scores are cosines of embeddings of query and candidate."""
    query = keras.Input((PIXELS,), name="query")
    gallery = keras.Input((MAX_GALLERY_SIZE, PIXELS), name="gallery")
    hidden, embedding = layers.Dense(64, activation="relu"), layers.Dense(16)

    def embed(pixels):
        return layers.UnitNormalization()(embedding(hidden(pixels)))

    scores = layers.Dot(axes=(1, 2))([embed(query), embed(gallery)])
    return keras.Model([query, gallery], scores)


def listwise_loss(labels, scores):
    """Returns the softmax cross-entropy over each gallery, without its padding."""
    is_item = labels >= 0
    target = ops.where(is_item, labels, 0.0)
    target = target / ops.maximum(ops.sum(target, axis=1, keepdims=True), 1.0)
    logits = ops.where(is_item, 10.0 * scores, -1e9)
    return -ops.sum(target * ops.log_softmax(logits), axis=1)


def draw(path, x, labels, before, after, queries=6):
    """Draws each query with its top five: before, then after training."""
    figure, axes = plt.subplots(queries, 12, figsize=(12, queries * 1.1))
    colors = {0: "tab:red", 1: "tab:orange", 2: "tab:green"}
    for row in range(queries):
        axes[row, 0].imshow(x["query"][row].reshape(8, 8), cmap="gray_r")
        for start, scores in ((1, before), (7, after)):
            ranked = np.argsort(np.where(labels[row] >= 0, -scores[row], np.inf))
            for offset, item in enumerate(ranked[:5]):
                axis = axes[row, start + offset]
                axis.imshow(x["gallery"][row, item].reshape(8, 8), cmap="gray_r")
                for spine in axis.spines.values():
                    spine.set(color=colors[int(labels[row, item])], linewidth=3)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for gap in axes[:, 6]:
        gap.axis("off")
    for column, title in ((0, "query"), (3, "before"), (9, "after")):
        axes[0, column].set_title(title)
    figure.suptitle("green: the same digit, orange: a similar one, red: another")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main():
    """Trains a ranker, and prints NDCG before and after training."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    images, digits = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    # Training and test images are disjoint.
    train, test = np.split(rng.permutation(len(images)), [1200])
    x, y = make_searches(images[train], digits[train], 4000, rng)
    x_test, y_test = make_searches(images[test], digits[test], 1000, rng)

    model = build_ranker()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=listwise_loss,
        metrics=[NDCG(k=5), NDCG(k=10)],
    )
    before = model.predict(x_test, verbose=0)
    model.fit(
        x,
        y,
        validation_split=0.2,
        batch_size=64,
        epochs=arguments.epochs,
        callbacks=[
            keras.callbacks.EarlyStopping(
                monitor="val_ndcg_at_10", patience=3, restore_best_weights=True
            )
        ],
    )
    after = model.predict(x_test, verbose=0)

    # The mean over all orders of ties is the expected value of random scores.
    random = {k: NDCG(k=k, shuffle_ties="average") for k in (5, 10)}
    print(f"\n{'on new images':16}{'random':>9}{'before':>9}{'after':>9}")
    for k in (5, 10):
        values = (
            random[k](y_test, np.zeros_like(y_test)),
            NDCG(k=k)(y_test, before),
            NDCG(k=k)(y_test, after),
        )
        print(f"{f'NDCG@{k}':16}" + "".join(f"{float(v):9.4f}" for v in values))
    draw(arguments.output, x_test, y_test, before, after)
    print(f"\nThe top five of six queries, before and after: {arguments.output}")


if __name__ == "__main__":
    main()
