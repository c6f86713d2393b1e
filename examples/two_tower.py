"""A two-tower model of users and items, evaluated over all 100,000 items.

One tower embeds users and the other one items, so that a user and a matching item have
a large product. The loss is an in-batch softmax: items of other users in the batch are
the negatives. After each epoch, the next item of each user is ranked among all items,
except those that the user has taken before. Training stops when NDCG@10 no longer
rises. The results include popularity and chance.

    python examples/two_tower.py --backend jax

Interactions are generated: a user sees some hundred items, popular items more often,
and takes the items that match best. Items have noisy features. The model learns the
taste of users.
"""

import argparse
import os

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--backend",
    default=os.environ.get("KERAS_BACKEND", "jax"),
    choices=["jax", "tensorflow", "torch"],
)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--users", type=int, default=6000, help="users to generate")
parser.add_argument("--items", type=int, default=100_000, help="items to generate")
arguments = parser.parse_args()
os.environ["KERAS_BACKEND"] = arguments.backend

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402

from keras_rank import catalogue, functional  # noqa: E402
from keras_rank.callbacks import CatalogueEvaluation  # noqa: E402

FEATURES, WIDTH = 8, 32

# Number of users that are evaluated. To save time, sample users, but never items.
NUM_EVALUATED = 2000

# Metrics, and functions that return the value of each user.
METRICS = {
    "ndcg@10": lambda order: functional.ndcg(order, k=10),
    "recall@100": lambda order: functional.recall(order, k=100),
    "mrr": functional.reciprocal_rank,
}


def generate(users, items, rng, num_seen=400, num_taken=16):
    """Returns the items of each user by time, and the features of the items."""
    traits = rng.normal(size=(items, FEATURES)).astype("float32")
    tastes = 1.5 * rng.normal(size=(users, FEATURES)).astype("float32")
    popularity = 1.0 / np.arange(1, items + 1) ** 0.8
    popularity /= popularity.sum()
    seen = np.sort(rng.choice(items, p=popularity, size=(users, num_seen)), axis=1)
    appeal = np.einsum("uf,umf->um", tastes, traits[seen])
    appeal += rng.gumbel(size=seen.shape)
    appeal[:, 1:][seen[:, 1:] == seen[:, :-1]] = -np.inf  # Skip repeats.
    best = np.argsort(-appeal, axis=1)[:, :num_taken]
    taken = rng.permuted(np.take_along_axis(seen, best, axis=1), axis=1)
    features = traits + 0.3 * rng.normal(size=traits.shape)
    return taken.astype("int32"), features.astype("float32")


def build_towers(users):
    """Builds the towers: users are ids, and items are features."""
    user_tower = keras.Sequential(
        [keras.Input((), dtype="int32"), layers.Embedding(users, WIDTH)]
    )
    item_tower = keras.Sequential(
        [
            keras.Input((FEATURES + 1,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(WIDTH),
        ]
    )
    return user_tower, item_tower


def build_model(user_tower, item_tower):
    """Builds a model that scores each user of a batch with each item of the batch.

    Popular items are more often negatives in a batch, which would lower their scores.
    Training corrects for this by subtracting the logarithm of their frequency.
    """
    user = keras.Input((), dtype="int32", name="user")
    item = keras.Input((FEATURES + 1,), name="item")
    log_frequency = keras.Input((), name="log_frequency")
    scores = ops.matmul(user_tower(user), ops.transpose(item_tower(item)))
    inputs = {"user": user, "item": item, "log_frequency": log_frequency}
    return keras.Model(inputs, scores - log_frequency)


def in_batch_softmax(item, scores):
    """Returns the cross-entropy of the item of each user among those of the batch."""
    item = ops.reshape(item, (-1, 1))
    # An item may be in the batch twice. Both positions are targets.
    is_same = ops.cast(item == ops.transpose(item), scores.dtype)
    target = is_same / ops.sum(is_same, axis=1, keepdims=True)
    return ops.categorical_crossentropy(target, scores, from_logits=True)


def main():
    """Trains a model, and prints its results with popularity and chance."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    taken, features = generate(arguments.users, arguments.items, rng)
    train, validation, test = taken[:, :-2], taken[:, -2], taken[:, -1]
    counts = np.bincount(train.ravel(), minlength=arguments.items).astype("float32")
    features = np.column_stack([features, np.log1p(counts)])
    evaluated = np.arange(min(NUM_EVALUATED, arguments.users), dtype="int32")

    user_tower, item_tower = build_towers(arguments.users)
    model = build_model(user_tower, item_tower)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=in_batch_softmax)

    def embed_items():
        return item_tower.predict(features, batch_size=4096, verbose=0)

    items = train.ravel()
    model.fit(
        {
            "user": np.repeat(np.arange(len(train), dtype="int32"), train.shape[1]),
            "item": features[items],
            "log_frequency": np.log(counts[items] / len(items)),
        },
        items,
        batch_size=512,
        epochs=arguments.epochs,
        callbacks=[
            # The evaluation precedes the callbacks that read its results.
            CatalogueEvaluation(
                x=evaluated,
                targets=validation[evaluated],
                candidates=embed_items,
                metrics=list(METRICS),
                query_model=user_tower,
                exclude=train[evaluated],
            ),
            keras.callbacks.EarlyStopping(
                monitor="val_ndcg_at_10",
                mode="max",
                patience=2,
                restore_best_weights=True,
            ),
        ],
        verbose=2,
    )

    target, past_items = test[evaluated], taken[evaluated, :-1]
    ones = np.ones((len(evaluated), 1), "float32")
    rows = {
        # Equal scores give chance: ties are shuffled, by the seed below.
        "random": (ones, np.ones((arguments.items, 1), "float32")),
        "popularity": (ones, counts[:, None]),
        "model": (user_tower.predict(evaluated, verbose=0), embed_items()),
    }
    print(f"\n{'what users took last':22}" + "".join(f"{name:>20}" for name in METRICS))
    for name, (queries, candidates) in rows.items():
        ranked = catalogue.rank(target, queries, candidates, exclude=past_items, seed=0)
        cells = []
        for function in METRICS.values():
            values = ops.convert_to_numpy(function(ranked))
            # The standard error of the mean is the standard deviation over sqrt(n).
            error = values.std(ddof=1) / np.sqrt(len(values))
            cells.append(f"{values.mean():.4f} ± {error:.4f}")
        print(f"{name:22}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
