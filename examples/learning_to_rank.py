"""Learning to rank: a listwise ranker on svmlight files, with masks in `fit`.

    python examples/learning_to_rank.py --train rank.train --groups rank.train.query

Lines are `label qid:7 1:0.5 12:0.1`; without `qid:`, `--groups` names a file with the
number of lines of each query.

The model is compared with a random order, and with the best single feature, which is
chosen on the training queries. Cross-validation holds out each query once per seed.
Standard errors are over queries; seeds show the variation due to training.

LightGBM has such files in `examples/lambdarank`, with 201 queries. On them, NDCG@10 is
0.75 for the model and 0.71 for the best feature. The difference is about five standard
errors. A single split of 40 queries would miss it one time in three.
"""

import argparse
import functools
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
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--folds", type=int, default=5)
parser.add_argument("--seeds", type=int, default=3)
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402

from keras_rank import RankingModel, functional  # noqa: E402
from keras_rank.metrics import NDCG  # noqa: E402
from keras_rank.utils import pad_lists  # noqa: E402

COLUMNS = ["random", "feature", "model"]

# Functions that return the value of each query. Labels of 1 or more are relevant.
METRICS = {
    **{f"ndcg@{k}": functools.partial(functional.ndcg, k=k) for k in (1, 3, 5, 10)},
    "map": functional.average_precision,
    "mrr": functional.reciprocal_rank,
}


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


def replace_by_ranks(x, mask):
    """Replaces each feature by its rank in the list, from 0.5 (highest) to -0.5.

    Values have different meanings in different queries, and the queries are too few to
    learn them. Ranks are comparable between queries.
    """
    x = x.copy()
    for features, is_item in zip(x, mask, strict=True):
        items = features[is_item]
        features[is_item] = np.sign(items[:, None] - items).mean(axis=1) / 2
    return x


def listwise_loss(labels, scores):
    """Returns the softmax cross-entropy of gains. `RankingModel` masks labels by -1."""
    is_item = labels >= 0
    target = ops.where(is_item, 2.0**labels - 1.0, 0.0)
    target = target / ops.maximum(ops.sum(target, axis=1, keepdims=True), 1e-9)
    log_probabilities = ops.log_softmax(ops.where(is_item, scores, -1e9))
    return -ops.sum(target * log_probabilities, axis=1)


def build_ranker(list_size, features):
    """Builds a model that scores each item by its features."""
    inputs = keras.Input((list_size, features))
    x = layers.Dropout(0.5)(inputs)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    scores = layers.Reshape((list_size,))(layers.Dense(1)(x))
    return RankingModel(inputs, scores)


def evaluate_queries(metric, y, scores):
    """Returns the value of each query. Averaged ties make constant scores random."""
    return ops.convert_to_numpy(metric(y, scores, shuffle_ties="average"))


def evaluate_features(features, y):
    """Returns NDCG@10 of each feature for each query, computed in one batch."""
    y = {name: np.tile(values, (len(features), 1)) for name, values in y.items()}
    scores = features.reshape(-1, features.shape[-1])
    return evaluate_queries(METRICS["ndcg@10"], y, scores).reshape(features.shape[:2])


def cross_validate(x, y, features, feature_values, seed):
    """Scores each query by a model and a feature that were fitted on other queries."""
    keras.utils.set_random_seed(seed)
    model = build_ranker(*x.shape[1:])
    model.compile(keras.optimizers.Adam(2e-3), listwise_loss, metrics=[NDCG(k=10)])
    model.optimizer.build(model.trainable_variables)
    untrained = model.get_state_tree("numpy_array")

    scores = {name: np.zeros(x.shape[:2], "float32") for name in COLUMNS}
    order = np.random.default_rng(seed).permutation(len(x))
    for held_out in np.array_split(order, arguments.folds):
        training = np.setdiff1d(order, held_out)
        best = feature_values[:, training].mean(axis=1).argmax()
        scores["feature"][held_out] = features[best, held_out]
        # The model is compiled once, and reset for each fold.
        model.set_state_tree(untrained)
        model.fit(
            x[training],
            {name: values[training] for name, values in y.items()},
            batch_size=32,
            epochs=arguments.epochs,
            verbose=0,
        )
        scores["model"][held_out] = model.predict(x[held_out], verbose=0)
    return scores


def compute_mean_and_error(values):
    """Returns the mean over queries and its standard error."""
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def main():
    """Prints the table of held-out queries, and the difference with its error."""
    x, y = read(arguments.train, arguments.groups)
    x = replace_by_ranks(x, y["mask"])
    features = np.moveaxis(np.concatenate([x, -x], axis=2), 2, 0)
    feature_values = evaluate_features(features, y)
    values = {name: {metric: [] for metric in METRICS} for name in COLUMNS}
    for seed in range(arguments.seeds):
        scores = cross_validate(x, y, features, feature_values, seed)
        for name in COLUMNS:
            for metric, function in METRICS.items():
                values[name][metric].append(evaluate_queries(function, y, scores[name]))
        model_value = np.mean(values["model"]["ndcg@10"][-1])
        print(f"seed {seed}: ndcg@10 of the model {model_value:.4f}", flush=True)
    # Values of a query are averaged over seeds.
    values = {
        name: {metric: np.mean(seeds, axis=0) for metric, seeds in column.items()}
        for name, column in values.items()
    }

    columns = "".join(f"{name:>18}" for name in COLUMNS)
    print(f"\n{f'{len(x)} held-out queries':22}{columns}")
    for metric in METRICS:
        cells = (compute_mean_and_error(values[name][metric]) for name in COLUMNS)
        row = "".join(f"{f'{mean:.4f} ± {error:.4f}':>18}" for mean, error in cells)
        print(f"{metric:22}{row}")

    # Differences per query cancel the difficulty of the query.
    difference = values["model"]["ndcg@10"] - values["feature"]["ndcg@10"]
    mean, error = compute_mean_and_error(difference)
    low, high = mean - 1.96 * error, mean + 1.96 * error
    print(f"\nmodel - feature, ndcg@10: {mean:.4f} ± {error:.4f}")
    print(f"between {low:.4f} and {high:.4f}, 19 times out of 20")
    # 1.96 and 0.84 are the quantiles of a two-sided test at 5% and of a power of 80%.
    num_queries = ((1.96 + 0.84) * difference.std(ddof=1) / mean) ** 2
    print(f"{num_queries:.0f} queries would show it, 4 times out of 5")


if __name__ == "__main__":
    main()
