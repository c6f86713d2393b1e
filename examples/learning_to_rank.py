"""Learning to rank: a listwise ranker on svmlight files, with masks through fit.

    python examples/learning_to_rank.py --train rank.train --groups rank.train.query

Lines are `label qid:7 1:0.5 12:0.1`; without `qid:`, `--groups` names a file with the
number of lines of each query. A fifth of the queries is held out, and the model is
compared there with a random order and with the best single feature.
"""

import argparse
import os
import pathlib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--train", type=pathlib.Path, required=True)
parser.add_argument("--groups", type=pathlib.Path)
parser.add_argument(
    "--backend",
    default=os.environ.get("KERAS_BACKEND", "jax"),
    choices=["jax", "tensorflow", "torch"],
)
parser.add_argument("--epochs", type=int, default=60)
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402

from keras_rank import RankingModel  # noqa: E402
from keras_rank.metrics import NDCG, MeanAveragePrecision, MeanReciprocalRank  # noqa: E402
from keras_rank.utils import pad_lists  # noqa: E402


def read(path, groups_path):
    """Reads labels, features and masks, one list per query, padded to one size."""
    labels, queries, rows = [], [], []
    for line in path.read_text().splitlines():
        label, *pairs = line.partition("#")[0].split()
        pairs = [pair.split(":") for pair in pairs]
        labels.append(float(label))
        queries.extend(value for name, value in pairs if name == "qid")
        rows.append({int(name): float(v) for name, v in pairs if name != "qid"})
    features = np.zeros((len(rows), 1 + max(max(row) for row in rows)), "float32")
    for row, values in zip(features, rows, strict=True):
        row[list(values)] = list(values.values())
    if groups_path is None:
        if len(queries) != len(rows):
            parser.error("there are lines without `qid:`: name a file with `--groups`")
        groups = {"group_ids": queries}
    else:
        groups = {"group_sizes": np.loadtxt(groups_path, dtype=int, ndmin=1)}
    y = {
        "labels": pad_lists(labels, padding_value=0.0, **groups),
        "mask": pad_lists(np.ones(len(rows)), padding_value=0.0, **groups) > 0,
    }
    return pad_lists(features, padding_value=0.0, **groups), y


def listwise_loss(labels, scores):
    """Softmax cross-entropy of the gains. `RankingModel` made what is masked -1."""
    is_item = labels >= 0
    target = ops.where(is_item, 2.0**labels - 1.0, 0.0)
    target = target / ops.maximum(ops.sum(target, axis=1, keepdims=True), 1e-9)
    log_chances = ops.log_softmax(ops.where(is_item, scores, -1e9))
    return -ops.sum(target * log_chances, axis=1)


def build_ranker(list_size, features):
    """Scores each item of a list by its own features."""
    inputs = keras.Input((list_size, features))
    x = layers.Dropout(0.3)(inputs)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.3)(x)
    scores = layers.Reshape((list_size,))(layers.Dense(1)(x))
    return RankingModel(inputs, scores)


def metrics(**ties):
    """NDCG at four cutoffs, MAP and MRR; labels from 1 on are relevant."""
    return [
        *(NDCG(k=k, **ties) for k in (1, 3, 5, 10)),
        MeanAveragePrecision(**ties),
        MeanReciprocalRank(**ties),
    ]


def main():
    """Trains, and prints the table of held-out queries."""
    keras.utils.set_random_seed(0)
    x, y = read(arguments.train, arguments.groups)
    order = np.random.default_rng(0).permutation(len(x))
    train, validation, test = np.split(order, [len(x) * 7 // 10, len(x) * 8 // 10])

    def part(rows):
        return x[rows], {name: values[rows] for name, values in y.items()}

    model = build_ranker(*x.shape[1:])
    model.compile(keras.optimizers.Adam(1e-3), loss=listwise_loss, metrics=metrics())
    stop = keras.callbacks.EarlyStopping(
        monitor="val_ndcg@10", patience=10, restore_best_weights=True
    )
    model.fit(
        *part(train),
        validation_data=part(validation),
        batch_size=16,
        epochs=arguments.epochs,
        callbacks=[stop],
    )

    x_test, y_test = part(test)
    x_seen, y_seen = part(np.concatenate([train, validation]))
    on_seen = [
        float(NDCG(k=10, shuffle_ties="average")(y_seen, sign * x_seen[:, :, i]))
        for i in range(x.shape[2])
        for sign in (1, -1)
    ]
    best, sign = divmod(int(np.argmax(on_seen)), 2)
    columns = {
        "random": np.zeros_like(y_test["labels"]),
        f"feature {best}": (1 - 2 * sign) * x_test[:, :, best],
        "model": model.predict(x_test, verbose=0),
    }
    # The exact mean over ties: a constant score is the random order.
    values = {
        name: [metric(y_test, scores) for metric in metrics(shuffle_ties="average")]
        for name, scores in columns.items()
    }
    print(
        f"\n{f'{len(test)} held-out queries':22}" + "".join(f"{n:>14}" for n in columns)
    )
    for i, metric in enumerate(metrics()):
        numbers = "".join(f"{float(column[i]):14.4f}" for column in values.values())
        print(f"{metric.name:22}{numbers}")


if __name__ == "__main__":
    main()
