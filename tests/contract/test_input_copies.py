"""Inputs that users change after a call: the call has read or copied them."""

import functools

import keras
import numpy as np
import pytest
from arrays import array, assert_equal
from keras import ops
from registry import FIRST_CASES

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend
from keras_rank.lists.input_arrays import read_array
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

BACKEND = keras.backend.backend()
SHAPE = (64, 500)

pytestmark = pytest.mark.programs


def assert_independent(make, use, batch, convert=np.array):
    """Checks that an object made from arrays does not change with the arrays."""
    expected = array(use(make(*map(np.copy, batch))))
    inputs = [convert(x) for x in batch]
    result = make(*inputs)
    for x in inputs:
        x[:] = 0
    assert_equal(use(result), expected)


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
def test_metrics_and_functions_copy_inputs(call, weighted, rng):
    """Repeats each call, as a program may read the memory before it changes."""
    for _ in range(30):
        labels = rng.integers(0, 4, size=SHAPE).astype("float32")
        scores = rng.normal(size=SHAPE).astype("float32")
        weights = [np.ones(SHAPE, "float32")] * weighted
        assert_independent(call, array, [labels, scores, *weights])


@pytest.mark.parametrize("size", [(8, 32), (64, 4000)])
def test_utilities_copy_inputs(size, rng):
    """JAX may read the memory of an array after the call has returned."""
    for _ in range(20):
        scores = rng.normal(size=size).astype("float32")
        labels = rng.integers(0, 5, size).astype("float32")
        ids = rng.integers(0, size[1], (size[0], 5))
        assert_independent(utils.exclude_items, array, [scores, ids])
        assert_independent(utils.mask_labels, array, [labels, rng.random(size) < 0.5])


# Mutable inputs: arrays, and tensors of torch.
MUTABLE = [np.array, *[ops.convert_to_tensor] * (BACKEND == "torch")]


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
@pytest.mark.parametrize("convert", MUTABLE)
def test_ranked_lists_copy_inputs(case, convert, rng):
    """Functions use ranked lists after the arrays have changed."""
    labels = rng.integers(-1, 4, size=(8, 12)).astype("float32")
    scores = rng.normal(size=(8, 12)).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.0], size=(8, 12)).astype("float32")
    mask = rng.random((8, 12)) < 0.8
    k = None if case.leaves_out_empty else 3

    def rank(labels, mask, scores, weights):
        y_true = {"labels": labels, "mask": mask}
        return functional.rank(y_true, scores, sample_weight=weights, seed=1)

    use = functools.partial(case.function, k=k, **case.arguments)
    assert_independent(rank, use, [labels, mask, scores, weights], convert)


def test_ranked_ids_copy_inputs(rng):
    ids = rng.integers(-1, 12, size=(8, 3))
    scores = rng.normal(size=(8, 12)).astype("float32")
    rank = functools.partial(functional.rank, sparse_labels=True, seed=1)
    assert_independent(rank, functional.ndcg, [ids, scores])


def test_ranked_candidates_copy_inputs(rng):
    shapes = (8, 2), (8, 2), (8, 3), (30, 3), 8
    ids, labels = (rng.integers(0, 30, shape) for shape in shapes[:2])
    others = (rng.random(shape).astype("float32") for shape in shapes[2:])

    def rank(ids, labels, queries, candidates, weights):
        inputs = {"ids": ids, "labels": labels}, queries, candidates
        return catalogue.rank(*inputs, sample_weight=weights, shuffle_ties=False)

    use = metrics.PairwiseAccuracy(shuffle_ties=False)
    assert_independent(rank, use, [ids, labels, *others])


def test_rank_detects_labels_that_a_dtype_rounds():
    """`rank` checks the labels, as they may have changed when a function uses them."""
    labels = np.array([[2**60, 2**60 + 1]])
    order = functional.rank(labels, [[0.5, 0.2]])
    labels[:] = 0
    with pytest.raises(ValueError, match="rounds to the same"):
        functional.pairwise_accuracy(order)


@pytest.mark.skipif(BACKEND != "jax", reason="programs of JAX read memory later")
def test_programs_of_jax_copy_arrays(rng):
    labels = rng.integers(0, 4, size=SHAPE).astype("float32")
    for x in (labels, labels[:, ::2], labels.astype("int32")):
        assert not np.shares_memory(read_array("y_true", x).tensor(), x)
    # The memory of a tensor can't change, and is not copied.
    tensor = ops.convert_to_tensor(labels)
    assert np.shares_memory(
        read_array("y_true", tensor).tensor(), backend.as_host_array(tensor)
    )
