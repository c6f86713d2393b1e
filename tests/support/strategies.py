"""Strategies of Hypothesis that draw batches of lists, splits, cutoffs and tie modes.

The lists are ragged and tied, with masked, empty and unretrieved items.
"""

import keras
import numpy as np
from hypothesis import strategies as st

from keras_rank.lists.inputs import read
from keras_rank.lists.standardize import dense_lists

# All examples have one shape, so that they are compiled once.
BATCH, LIST_SIZE = 8, 7


@st.composite
def batches(draw, weighted=False, ties=True, unretrieved=True):
    """Draws labels, scores and weights of shape `(BATCH, LIST_SIZE)`.

    Labels of -1 make lists shorter, and few distinct scores make many ties.
    """
    seed = draw(st.integers(0, 2**32 - 1))
    levels = draw(st.integers(1, 8)) if ties else 0
    share = draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    rng = np.random.default_rng(seed)
    shape = (BATCH, LIST_SIZE)
    labels = rng.integers(0, 5, size=shape).astype("float32")
    labels[rng.random(shape) < share * rng.random((BATCH, 1))] = 0.0
    labels[rng.random(shape) < rng.choice([0.0, 0.3, 0.9])] = -1.0
    labels[rng.random(BATCH) < 0.1] = -1.0
    if ties:
        scores = rng.integers(0, levels, size=shape).astype("float32") / 2
    else:
        scores = np.stack([rng.permutation(LIST_SIZE) for _ in range(BATCH)])
        scores = scores.astype("float32") - 3
    if unretrieved:
        scores[rng.random(shape) < rng.choice([0.0, 0.3])] = -np.inf
        scores[rng.random(shape) < rng.choice([0.0, 0.1])] = np.nan
    weights = None
    if weighted:
        weights = rng.choice([0.0, 0.5, 1.0, 2.0, 3.5], size=shape)
        weights = weights.astype("float32")
    return labels, scores, weights


def standardized_lists(labels, scores):
    """Returns the standardized lists that a metric computes from labels and scores."""
    return dense_lists("float32", read(labels, scores, None).batch)


# Indices at which a batch is split, including its start and its end.
splits = st.lists(st.integers(0, BATCH), max_size=BATCH).map(sorted)
cutoffs = st.sampled_from([None, 1, 2, 3, 5, 7, 20])
if keras.backend.backend() == "jax":
    # JAX compiles each operation again for each shape and cutoff.
    splits = st.sampled_from([[], [4], [0, 4, 4, 8]])
    cutoffs = st.sampled_from([None, 3])
ties = st.sampled_from([True, False, "average"])
