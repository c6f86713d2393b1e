"""A two-tower model of users and items, evaluated over all 100,000 items.

One tower embeds users, the other one items, so that the product of matching ones is
high. They are trained by in-batch softmax: the items of other users in the batch are
the negatives. After each epoch, the next item of each user is ranked among all items,
without those taken before, and training stops when NDCG@10 no longer rises. The results
include popularity and chance.

    python examples/two_tower.py --backend jax

Interactions are generated: a user sees some hundred items, popular ones more often, and
takes those that match best. Items have noisy features. The taste of users has to be
learned.
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

# The users that are evaluated. To save time, sample users, but never items.
EVALUATED = 2000

# The metrics, and the functions that return the value of each user.
METRICS = {
    "ndcg@10": lambda order: functional.ndcg(order, k=10),
    "recall@100": lambda order: functional.recall(order, k=100),
    "mrr": functional.reciprocal_rank,
}


def generate(users, items, rng, met=400, taken=16):
    """Returns the items of each user by time, and the features of the items."""
    traits = rng.normal(size=(items, FEATURES)).astype("float32")
    tastes = 1.5 * rng.normal(size=(users, FEATURES)).astype("float32")
    popularity = 1.0 / np.arange(1, items + 1) ** 0.8
    popularity /= popularity.sum()
    meets = np.sort(rng.choice(items, p=popularity, size=(users, met)), axis=1)
    appeal = np.einsum("uf,umf->um", tastes, traits[meets])
    appeal += rng.gumbel(size=meets.shape)
    appeal[:, 1:][meets[:, 1:] == meets[:, :-1]] = -np.inf  # Each item once.
    best = np.argsort(-appeal, axis=1)[:, :taken]
    takes = rng.permuted(np.take_along_axis(meets, best, axis=1), axis=1)
    features = traits + 0.3 * rng.normal(size=traits.shape)
    return takes.astype("int32"), features.astype("float32")


def build_towers(users):
    """The two towers: a user is an id, an item is its features."""
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
    """Scores each user of a batch with each item of it.

    Popular items are in a batch more often, and would be penalized for it. So in
    training, the logarithm of their frequency is subtracted.
    """
    user = keras.Input((), dtype="int32", name="user")
    item = keras.Input((FEATURES + 1,), name="item")
    log_frequency = keras.Input((), name="log_frequency")
    scores = ops.matmul(user_tower(user), ops.transpose(item_tower(item)))
    inputs = {"user": user, "item": item, "log_frequency": log_frequency}
    return keras.Model(inputs, scores - log_frequency)


def in_batch_softmax(item, scores):
    """Cross-entropy of the item that each user took, among the items of the batch."""
    item = ops.reshape(item, (-1, 1))
    # An item may be in the batch twice: both positions are right.
    is_same = ops.cast(item == ops.transpose(item), scores.dtype)
    target = is_same / ops.sum(is_same, axis=1, keepdims=True)
    return ops.categorical_crossentropy(target, scores, from_logits=True)


def main():
    """Trains a model, and prints its results with popularity and chance."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    takes, features = generate(arguments.users, arguments.items, rng)
    train, validation, test = takes[:, :-2], takes[:, -2], takes[:, -1]
    counts = np.bincount(train.ravel(), minlength=arguments.items).astype("float32")
    features = np.column_stack([features, np.log1p(counts)])
    evaluated = np.arange(min(EVALUATED, arguments.users), dtype="int32")

    user_tower, item_tower = build_towers(arguments.users)
    model = build_model(user_tower, item_tower)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=in_batch_softmax)

    def embedded_items():
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
            # The evaluation comes before the callbacks that read its results.
            CatalogueEvaluation(
                x=evaluated,
                targets=validation[evaluated],
                candidates=embedded_items,
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

    target, seen = test[evaluated], takes[evaluated, :-1]
    one = np.ones((len(evaluated), 1), "float32")
    rows = {
        # Equal scores: tied items are shuffled, by the seed below, which gives chance.
        "random": (one, np.ones((arguments.items, 1), "float32")),
        "popularity": (one, counts[:, None]),
        "model": (user_tower.predict(evaluated, verbose=0), embedded_items()),
    }
    print(f"\n{'what users took last':22}" + "".join(f"{name:>20}" for name in METRICS))
    for name, (queries, candidates) in rows.items():
        ranked = catalogue.rank(target, queries, candidates, exclude=seen, seed=0)
        cells = []
        for function in METRICS.values():
            values = ops.convert_to_numpy(function(ranked))
            # The standard error of the mean is the standard deviation over sqrt(n).
            error = values.std(ddof=1) / np.sqrt(len(values))
            cells.append(f"{values.mean():.4f} ± {error:.4f}")
        print(f"{name:22}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
