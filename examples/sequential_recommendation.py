"""Next-item recommendation: a small self-attentive model over a whole catalogue.

The model predicts the next item at every position of a history: it returns scores of
shape (users, time, items). Labels are the ids of the next items, of shape (users,
time). Positions with a label of -1 have no target.

A tenth of the users are held out for validation, at every position. The test predicts
the last item of each other user. All items are ranked, except those that the user has
seen. The progress bar shows the metrics, training stops early by NDCG@10, and the
results include a popularity baseline.

    python examples/sequential_recommendation.py --backend jax
    python examples/sequential_recommendation.py --interactions ratings.csv

If there is no file, interactions are generated: each item has five likely successors,
which can be learned from the order. Otherwise users choose by popularity.
"""

import argparse
import collections
import csv
import os
import pathlib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--backend",
    default=os.environ.get("KERAS_BACKEND", "jax"),
    choices=["jax", "tensorflow", "torch"],
)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--users", type=int, default=2000, help="users to generate")
parser.add_argument(
    "--interactions",
    type=pathlib.Path,
    help="csv with a header: user, item, timestamp (or MovieLens's ratings.csv)",
)
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402

from keras_rank.metrics import NDCG, HitRate, MeanReciprocalRank  # noqa: E402
from keras_rank.utils import exclude_items  # noqa: E402

HISTORY, WIDTH = 20, 48


def generate(users, rng, items=400, length=12):
    """Generates histories: 70% of the steps go to a likely successor."""
    successors = rng.integers(items, size=(items, 5))
    popularity = 1.0 / np.arange(1, items + 1)
    popularity /= popularity.sum()
    sequences = []
    for _ in range(users):
        sequence = [rng.choice(items, p=popularity)]
        while len(sequence) < length:
            is_successor = rng.random() < 0.7
            last = sequence[-1]
            item = rng.choice(
                successors[last] if is_successor else items,
                p=None if is_successor else popularity,
            )
            if item in sequence:
                item = rng.choice(items, p=popularity)
            if item not in sequence:
                sequence.append(item)
        sequences.append(sequence)
    return sequences, items


def read(path):
    """Reads the items of each user by time, numbered from 0."""
    events = collections.defaultdict(list)
    with path.open(newline="") as file:
        rows = csv.reader(file)
        header = [name.lower() for name in next(rows)]
        user, item, time = (
            next(i for i, name in enumerate(header) if any(p in name for p in parts))
            for parts in (("user",), ("item", "movie"), ("time",))
        )
        numbers = {}
        for row in rows:
            number = numbers.setdefault(row[item], len(numbers))
            events[row[user]].append((float(row[time]), number))
    ordered = (
        list(dict.fromkeys(item for _, item in sorted(e))) for e in events.values()
    )
    return [items for items in ordered if len(items) >= 4], len(numbers)


def make_steps(sequences):
    """Returns histories and their next items, padded with -1 on the left.

    A long sequence is split into several rows.
    """
    rows = [
        sequence[max(0, end - HISTORY - 1) : end]
        for sequence in sequences
        for end in range(len(sequence), 1, -HISTORY)
    ]
    padded = np.full((len(rows), HISTORY + 1), -1, "int32")
    for line, row in zip(padded, rows, strict=True):
        line[-len(row) :] = row
    return padded[:, :-1], padded[:, 1:]


def make_last_steps(sequences):
    """Returns histories, with only the last item of each user as a target."""
    history, target = make_steps([sequence[-HISTORY - 1 :] for sequence in sequences])
    is_last = np.arange(HISTORY) == HISTORY - 1
    return history, np.where(is_last, target, -1)


@keras.saving.register_keras_serializable(package="examples")
class NextItem(keras.Model):
    """A self-attentive model of a history, which scores all items outside of it."""

    def __init__(self, items):
        super().__init__()
        self.item = layers.Embedding(items + 1, WIDTH)
        self.position = layers.Embedding(HISTORY, WIDTH)
        self.attention = layers.MultiHeadAttention(2, WIDTH // 2, dropout=0.2)
        self.hidden = layers.Dense(WIDTH, activation="relu")
        self.norms = [layers.LayerNormalization() for _ in range(2)]
        self.scores = layers.Dense(items)

    def call(self, history, training=False):
        x = self.item(history + 1) + self.position(ops.arange(HISTORY))
        # The items seen at a position are those up to the position.
        is_past = ops.arange(HISTORY)[:, None] >= ops.arange(HISTORY)
        seen = ops.where(is_past, history[:, None, :], -1)
        attended = self.attention(x, x, attention_mask=seen >= 0, training=training)
        x = self.norms[0](x + attended)
        x = self.norms[1](x + self.hidden(x))
        return exclude_items(self.scores(x), seen)


def metrics():
    """Returns the metrics at 5 and 10. Labels are the ids of the next items."""
    return [
        metric(k=k, sparse_labels=True)
        for metric in (HitRate, NDCG, MeanReciprocalRank)
        for k in (5, 10)
    ]


def main():
    """Trains a model, and prints its results and those of the popularity baseline."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    if arguments.interactions:
        sequences, items = read(arguments.interactions)
    else:
        sequences, items = generate(arguments.users, rng)
    held_out = len(sequences) // 10
    others = sequences[held_out:]
    train = make_steps([sequence[:-1] for sequence in others])
    validation = make_steps(sequences[:held_out])
    test = make_last_steps(others)

    model = NextItem(items)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=-1
        ),
        metrics=metrics(),
    )
    stop = keras.callbacks.EarlyStopping(
        monitor="val_ndcg_at_10", patience=2, restore_best_weights=True
    )
    model.fit(
        *train,
        validation_data=validation,
        batch_size=16,
        epochs=arguments.epochs,
        callbacks=[stop],
    )

    counts = np.bincount(np.concatenate([s[:-1] for s in others]), minlength=items)
    history, target = test
    popularity = exclude_items(np.tile(counts, (len(history), 1)), history)
    results = model.evaluate(*test, return_dict=True, verbose=0)
    print(f"\n{'held-out items':18}{'popularity':>12}{'model':>9}")
    for metric in metrics():
        baseline = float(metric(target[:, -1], popularity))
        print(f"{metric.name:18}{baseline:12.4f}{results[metric.name]:9.4f}")


if __name__ == "__main__":
    main()
