"""Pointwise ranking: a deep model on rows, with NDCG of its lists after each epoch.

A row has the features and the label of one item of one query. The model predicts the
label of a row, so a batch has rows of many queries, and incomplete lists. A metric in
`compile` would be meaningless. `GroupedEvaluation` predicts all rows after each epoch
instead, and groups them into lists by the ids of their queries.

    python examples/pointwise_ranking.py --backend jax
    python examples/pointwise_ranking.py --train train.txt --validation vali.txt

Lines are `label qid:7 1:0.5 12:0.1`, as in svmlight files. Without files, lines are
generated: labels depend on products and squares of some features, and on noise.
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
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--queries", type=int, default=600, help="queries to generate")
parser.add_argument("--train", type=pathlib.Path)
parser.add_argument("--validation", type=pathlib.Path)
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

from keras_rank.callbacks import GroupedEvaluation  # noqa: E402
from keras_rank.metrics import RankingMetrics  # noqa: E402


def generate(queries, rng, features=10):
    """Generates lines of 5 to 29 rows per query, in random order."""
    lines = []
    for query in range(queries):
        x = rng.normal(size=(rng.integers(5, 30), features))
        relevance = np.tanh(x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] ** 2
        relevance += rng.normal(size=len(x))
        labels = np.digitize(relevance, [0.0, 1.0, 2.0])
        for label, row in zip(labels, x, strict=True):
            pairs = " ".join(f"{i}:{value:.4f}" for i, value in enumerate(row, 1))
            lines.append(f"{label} qid:{query} {pairs}")
    return [lines[i] for i in rng.permutation(len(lines))]


def read(lines):
    """Reads the features, the label and the id of the query of each line."""
    labels, queries, rows = [], [], []
    for line in lines:
        label, query, *pairs = line.partition("#")[0].split()
        labels.append(float(label))
        queries.append(query.removeprefix("qid:"))
        rows.append({int(i): float(x) for i, x in (p.split(":") for p in pairs)})
    x = np.zeros((len(rows), 1 + max(max(row) for row in rows)), "float32")
    for values, row in zip(x, rows, strict=True):
        values[list(row)] = list(row.values())
    return x, np.array(labels, "float32"), queries


def build(normalization):
    """Builds a deep model that scores a row."""
    return keras.Sequential(
        [
            normalization,
            *(layers.Dense(width, activation="relu") for width in (64, 32)),
            layers.Dense(1),
        ]
    )


def main():
    """Trains a model, and prints its NDCG with standard errors for each epoch."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    if arguments.train:
        files = arguments.train, arguments.validation
        train, validation = (read(path.read_text().splitlines()) for path in files)
    else:
        train = read(generate(arguments.queries, rng))
        validation = read(generate(arguments.queries // 2, rng))
    x, labels, _ = train
    normalization = layers.Normalization()
    normalization.adapt(x)
    model = build(normalization)
    model.compile(keras.optimizers.Adam(3e-3), loss="mse")

    # The evaluation precedes the callbacks that read its results.
    evaluation = GroupedEvaluation(
        *validation,
        metrics=RankingMetrics(["ndcg@10", "mrr"], standard_errors=True),
        batch_size=1024,
    )
    stop = keras.callbacks.EarlyStopping(
        monitor="val_ndcg_at_10", mode="max", patience=3, restore_best_weights=True
    )
    history = model.fit(
        x,
        labels,
        validation_data=validation[:2],  # Rows are enough for the loss.
        batch_size=256,
        epochs=arguments.epochs,
        callbacks=[evaluation, stop],
    ).history

    print("\nepoch  loss  NDCG@10")
    columns = ("val_loss", "val_ndcg_at_10", "val_ndcg_at_10_stderr")
    for epoch, row in enumerate(zip(*map(history.get, columns), strict=True), 1):
        loss, ndcg, error = row
        print(f"{epoch:5}  {loss:.2f}  {ndcg:.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
