"""`catalogue.top_k`: the best candidates, compared with the full matrix of scores."""

import keras
import numpy as np
import pytest
from arrays import compute_values
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from targets import patch_module
from test_catalogue import ITEMS, QUERIES, score_matrix, tasks

from keras_rank import catalogue, functional
from keras_rank.catalogue import top_candidates

pytestmark = pytest.mark.programs

BACKEND = keras.backend.backend()


def find_best(*arguments, **options):
    top_candidates = catalogue.top_k(*arguments, **options)
    return tuple(map(ops.convert_to_numpy, top_candidates))


def expected_best(task, k):
    """Returns the top k of the full matrix, without NaN and excluded items.

    Tied items are in the order of their ids.
    """
    _, queries, candidates, excluded, _ = task
    scores = compute_values(score_matrix, queries, candidates, excluded)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(scores, order, axis=1)
    order[values == -np.inf] = -1
    missing = [(0, 0), (0, max(k - ITEMS, 0))]
    values = np.pad(values, missing, constant_values=-np.inf)
    return values, np.pad(order, missing, constant_values=-1)


@pytest.mark.compiles_long
@pytest.mark.optimized
@given(
    task=tasks(), k=st.sampled_from([1, 10, 50]), block_size=st.sampled_from([7, ITEMS])
)
def test_equals_the_full_matrix(task, k, block_size):
    _, queries, candidates, excluded, _ = task
    expected = expected_best(task, k)
    blocks = [candidates[:5], candidates[5:6], candidates[6:]]
    for form in (candidates, lambda: iter(blocks), catalogue.Shards(blocks)):
        best = find_best(queries, form, k, exclude=excluded, block_size=block_size)
        for pair in zip(best, expected, strict=True):
            np.testing.assert_array_equal(*pair)
        assert best[1].dtype == "int32"


@pytest.mark.compiles_long
@given(task=tasks(), shuffle_ties=st.booleans())
def test_ids_are_in_the_order_of_ranks(task, shuffle_ties):
    _, queries, candidates, excluded, _ = task
    arguments = {"shuffle_ties": shuffle_ties, "seed": 3, "block_size": 16}
    arguments["exclude"] = excluded
    _, ids = find_best(queries, candidates, ITEMS, **arguments)
    shards = catalogue.Shards([candidates[:9], candidates[9:]])
    np.testing.assert_array_equal(
        find_best(queries, shards, ITEMS, **arguments)[1], ids
    )
    for index in (0, 1, 17, ITEMS - 1):
        targets = ids[:, index]
        order = catalogue.rank(targets, queries, candidates, **arguments)
        values = compute_values(functional.reciprocal_rank, order)
        expected = np.where(targets >= 0, 1.0 / (index + 1), 0.0)
        np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize(("equal", "sorts"), [(1, False), (2, False), (3, True)])
def test_few_equal_scores_sort_no_whole_block(equal, sorts):
    """Whole blocks are sorted only if `k + 2` scores don't decide which ids are in."""
    items, k, block_size, sizes = 50, 4, 20, []
    candidates = -np.arange(items, dtype="float32")[:, None]
    candidates[k - 1 : k - 1 + equal] = candidates[k - 1]
    queries = np.ones((QUERIES, 1), "float32")
    arguments = {"shuffle_ties": True, "seed": 1, "block_size": block_size}
    _, in_order = find_best(queries, candidates, items, **arguments)
    sorted_by_keys = top_candidates._sort_first

    def record_and_sort(scores, *options):
        sizes.append(scores.shape[1])
        return sorted_by_keys(scores, *options)

    with patch_module(top_candidates, _sort_first=record_and_sort):
        _, ids = find_best(queries, candidates, k, **arguments)
    np.testing.assert_array_equal(ids, in_order[:, :k])
    assert (block_size in sizes) == sorts


def test_cosine_and_score_functions(rng):
    queries, candidates = (rng.normal(size=(n, 4)).astype("float32") for n in (5, 60))
    cosines = queries @ candidates.T / np.linalg.norm(candidates, axis=1)
    _, ids = find_best(queries, candidates, 60, score="cosine")
    np.testing.assert_array_equal(ids, np.argsort(-cosines, axis=1))

    def nearness(queries, block):
        return -ops.sum(ops.square(queries[:, None] - block[None]), axis=2)

    _, ids = find_best(candidates, candidates, 1, score=nearness, block_size=16)
    np.testing.assert_array_equal(ids[:, 0], np.arange(60))


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has no float64 unless it is enabled")
def test_double_precision_is_kept(rng):
    """Scores of a shard in single precision don't tie with rounded scores of others."""
    options = {"dtype": "float64", "block_size": 16}
    queries, candidates = rng.normal(size=(5, 4)), 1 + 1e-9 * rng.normal(size=(60, 4))
    scores, ids = find_best(queries, candidates, 3, **options)
    expected = queries @ candidates.T
    np.testing.assert_array_equal(ids, np.argsort(-expected, axis=1)[:, :3])
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :3], rtol=1e-14)
    parts = np.array([[1.0]], "float32"), np.array([[1 + 1e-12]])
    for shards in (parts, parts[::-1]):
        inputs = np.ones((1, 1), "float32"), catalogue.Shards(shards), 2
        scores, ids = find_best(*inputs, **options)
        np.testing.assert_array_equal(scores, [[1 + 1e-12, 1.0]])
        assert shards[ids[0, 0]].dtype == "float64"


def test_tensors_of_score_functions_are_not_changed(rng):
    """A score function may return one tensor repeatedly, or an expanded tensor."""
    queries = rng.normal(size=(4, 3)).astype("float32")
    stored = ops.convert_to_tensor(rng.normal(size=(4, 30)).astype("float32"))
    before = ops.convert_to_numpy(stored).copy()
    expanded = ops.broadcast_to(stored[:1], (4, 30))
    ids = ops.convert_to_numpy(ops.argsort(-stored, axis=1))
    for score in (lambda some, candidates: stored, lambda some, candidates: expanded):
        inputs = queries, np.zeros((30, 3), "float32"), 30
        scores, _ = catalogue.top_k(*inputs, score=score, exclude=ids[:, :5])
        assert np.isneginf(ops.convert_to_numpy(scores)).any(axis=1).all()
        np.testing.assert_array_equal(ops.convert_to_numpy(stored), before)
