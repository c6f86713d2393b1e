"""What a call was given, it has read when it returns: users change their arrays."""

import functools

import keras
import numpy as np
import pytest
from arrays import array, assert_equal
from keras import ops
from registry import FIRST_CASES

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend
from keras_rank.lists.input_arrays import look
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

BACKEND = keras.backend.backend()
SHAPE = (64, 500)

pytestmark = pytest.mark.programs


def assert_kept(make, use, batch, convert=np.array):
    """Compares what is used after arrays have changed with what others give."""
    expected = array(use(make(*map(np.copy, batch))))
    given = [convert(x) for x in batch]
    made = make(*given)
    for x in given:
        x[:] = 0
    assert_equal(use(made), expected)


CALLS = {
    "metric": lambda *batch: NDCG(k=10)(*batch),
    "group": lambda *batch: ops.stack(
        [*RankingMetrics([NDCG(k=10), MeanReciprocalRank()])(*batch).values()]
    ),
    "function": lambda *batch: functional.ndcg(
        *batch[:2], sample_weight=batch[2] if len(batch) > 2 else None, k=10
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("weighted", [False, True])
def test_calls(call, weighted, rng):
    """Thirty times, as a program may happen to read memory before it is changed."""
    for _ in range(30):
        labels = rng.integers(0, 4, size=SHAPE).astype("float32")
        scores = rng.normal(size=SHAPE).astype("float32")
        weights = [np.ones(SHAPE, "float32")] * weighted
        assert_kept(call, array, [labels, scores, *weights])


@pytest.mark.parametrize("size", [(8, 32), (64, 4000)])
def test_utilities(size, rng):
    """JAX computes after a call has returned, and may read the memory of an array."""
    for _ in range(20):
        scores = rng.normal(size=size).astype("float32")
        labels = rng.integers(0, 5, size).astype("float32")
        ids = rng.integers(0, size[1], (size[0], 5))
        assert_kept(utils.exclude_items, array, [scores, ids])
        assert_kept(utils.mask_labels, array, [labels, rng.random(size) < 0.5])


# What a user may change: an array, or a tensor of torch.
MAY_CHANGE = [np.array, *[ops.convert_to_tensor] * (BACKEND == "torch")]


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
@pytest.mark.parametrize("convert", MAY_CHANGE)
def test_ranked_lists(case, convert, rng):
    """They are asked after their arrays have changed."""
    labels = rng.integers(-1, 4, size=(8, 12)).astype("float32")
    scores = rng.normal(size=(8, 12)).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.0], size=(8, 12)).astype("float32")
    mask = rng.random((8, 12)) < 0.8
    k = None if case.leaves_out_empty else 3

    def rank(labels, mask, scores, weights):
        given = {"labels": labels, "mask": mask}
        return functional.rank(given, scores, sample_weight=weights, seed=1)

    use = functools.partial(case.function, k=k, **case.arguments)
    assert_kept(rank, use, [labels, mask, scores, weights], convert)


def test_ranked_ids(rng):
    ids = rng.integers(-1, 12, size=(8, 3))
    scores = rng.normal(size=(8, 12)).astype("float32")
    rank = functools.partial(functional.rank, sparse_labels=True, seed=1)
    assert_kept(rank, functional.ndcg, [ids, scores])


def test_candidates(rng):
    shapes = (8, 2), (8, 2), (8, 3), (30, 3), 8
    ids, labels = (rng.integers(0, 30, shape) for shape in shapes[:2])
    others = (rng.random(shape).astype("float32") for shape in shapes[2:])

    def rank(ids, labels, queries, candidates, weights):
        given = {"ids": ids, "labels": labels}, queries, candidates
        return catalogue.rank(*given, sample_weight=weights, shuffle_ties=False)

    use = metrics.PairwiseAccuracy(shuffle_ties=False)
    assert_kept(rank, use, [ids, labels, *others])


def test_labels_that_a_dtype_rounds_are_known_when_they_are_ranked():
    """Not looked at again, when they may have changed."""
    labels = np.array([[2**60, 2**60 + 1]])
    order = functional.rank(labels, [[0.5, 0.2]])
    labels[:] = 0
    with pytest.raises(ValueError, match="rounds to the same"):
        functional.pairwise_accuracy(order)


@pytest.mark.skipif(BACKEND != "jax", reason="programs of JAX read memory later")
def test_no_program_reads_the_memory_of_users(rng):
    labels = rng.integers(0, 4, size=SHAPE).astype("float32")
    for given in (labels, labels[:, ::2], labels.astype("int32")):
        assert not np.shares_memory(look("y_true", given).tensor(), given)
    # That of a tensor can't be changed, and is not copied.
    tensor = ops.convert_to_tensor(labels)
    assert np.shares_memory(look("y_true", tensor).tensor(), backend.on_host(tensor))
