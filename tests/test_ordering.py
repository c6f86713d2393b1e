"""The order: every path of the top k against a full sort in NumPy."""

import itertools

import keras
import numpy as np
import oracle
import pytest
from keras import ops
from strategies import lists_of

from keras_rank.arrays import arithmetic, selection
from keras_rank.arrays.hashing import key_of_seed
from keras_rank.backends import backend
from keras_rank.ranking import dense, tie_breaking
from keras_rank.ranking.ranked import OrderSpec, rank_by_scores

pytestmark = pytest.mark.programs

SHAPES = [(3, 50), (2, 2500), (2, 5000), (1, 4099)]
CUTOFFS = [1, 7, 40]
if keras.backend.backend() == "jax":
    # Each shape and cutoff is compiled anew there.
    SHAPES, CUTOFFS = [(3, 50), (1, 4099)], [7]


def ranked(scores, k, ties, seed=3, labels=None):
    labels = np.zeros_like(scores) if labels is None else labels
    lists = lists_of(labels, scores)
    return rank_by_scores(OrderSpec(False, ties, k), lists, key_of_seed(seed))


def expected_order(row, k, preference):
    order = np.lexsort((-np.asarray(preference), -row))
    return order[np.isfinite(row[order])][:k]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("levels", [2, 10, 10**6])
def test_top_k_is_the_start_of_a_full_sort(shape, k, levels, rng):
    """Short lists, blocks, blocks with padding; few ties and many."""
    scores = rng.integers(0, levels, size=shape).astype("float32")
    scores[rng.random(shape) < 0.1] = -np.inf
    for ties in ("stable", "shuffle"):
        ranking = ranked(scores, k, ties)
        order = ops.convert_to_numpy(ranking.order.positions)
        occupied = ops.convert_to_numpy(ranking.occupied)
        for number, row in enumerate(scores):
            items = range(len(row))
            preference = (
                [-i for i in items]
                if ties == "stable"
                else [oracle.shuffle_key(3, number, i) for i in items]
            )
            expected = expected_order(row, k, preference)
            np.testing.assert_array_equal(order[number][: len(expected)], expected)
            assert occupied[number].sum() == len(expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ties", ["stable", "shuffle", "average"])
@pytest.mark.parametrize("retrieved", [0, 1, 3])
def test_ranks_beyond_the_retrieved_items_are_empty(shape, ties, retrieved):
    """Also where rows are padded to whole blocks: no position is beyond the row."""
    scores = np.full(shape, -np.inf, "float32")
    scores[:, shape[1] - retrieved :] = 0.5
    ranking = ranked(scores, 7, ties)
    order = ops.convert_to_numpy(ranking.order.positions)
    assert order.min() >= 0
    assert order.max() < shape[1]
    assert ops.convert_to_numpy(ranking.occupied).sum() == shape[0] * retrieved
    taken = ops.convert_to_numpy(ranking.take(ops.ones(shape)))
    assert taken.sum() == pytest.approx(shape[0] * retrieved)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("levels", [1, 3, 30, 10**6])
def test_average_takes_the_mean_of_tied_values(shape, levels, rng):
    scores = rng.integers(0, levels, size=shape).astype("float32")
    values = rng.integers(0, 9, size=shape).astype("float32")
    for k in CUTOFFS:
        ranking = ranked(scores, k, "average")
        taken = ops.convert_to_numpy(ranking.take(ops.convert_to_tensor(values)))
        sizes, places = (
            np.broadcast_to(ops.convert_to_numpy(x), taken.shape)
            for x in (ranking.group_sizes, ranking.places)
        )
        for row, score in enumerate(scores):
            by_rank = np.sort(score)[::-1][:k]
            for rank, s in enumerate(by_rank):
                tied = score == s
                assert taken[row, rank] == pytest.approx(values[row][tied].mean())
                assert sizes[row, rank] == tied.sum()
                assert places[row, rank] == rank - (score > s).sum() + 1


def test_shuffle_is_the_hash_of_seed_list_and_item():
    """The numbers themselves: the same on every backend, and in every release."""
    lists = lists_of(np.zeros((2, 4)), np.zeros((2, 4)))
    keys = ops.convert_to_numpy(
        tie_breaking.item_keys(
            tie_breaking.list_keys(key_of_seed(7), 5, lists.has_items),
            ops.arange(1, 5, dtype="int32")[None],
        )
    )
    expected = [[oracle.shuffle_key(7, 5 + b, i) for i in range(4)] for b in range(2)]
    np.testing.assert_array_equal(keys, expected)
    assert keys[0, 0] == -1833678159


def test_shuffle_is_uniform():
    """Each of the 24 orders of four tied items comes as often as the others."""
    order = ranked(np.zeros((24_000, 4), "float32"), None, "shuffle").order.positions
    orders = ops.convert_to_numpy(order)
    counts = [
        np.all(orders == order, axis=1).sum()
        for order in itertools.permutations(range(4))
    ]
    assert sum(counts) == 24_000
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts)
    assert chi_square < 49.7  # the 99.9 % quantile of 23 degrees of freedom


def test_top_values_are_the_largest(rng):
    for shape in SHAPES:
        values = rng.normal(size=shape).astype("float32")
        for count in (1, 5, shape[1]):
            found = selection.largest_values(ops.convert_to_tensor(values), count)
            expected = np.sort(values, axis=1)[:, ::-1][:, :count]
            np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


@pytest.mark.parametrize("start", [-(2**31) + 1, -300, 2**30])
def test_preferences_that_float32_does_not_tell_apart(start, rng, monkeypatch):
    """Nor do numbers that are sums or products in float32."""
    keys = start + 16 * np.stack([rng.permutation(60) for _ in range(4)])
    keys = keys.astype("int32")
    monkeypatch.setattr(
        dense,
        "item_keys",
        lambda list_keys, numbers: backend.take(
            ops.convert_to_tensor(keys), numbers - 1
        ),
    )
    for k in (1, 7, 50):
        order = ranked(np.zeros((4, 60), "float32"), k, "shuffle").order.positions
        expected = np.argsort(-keys.astype("int64"), axis=1)[:, :k]
        np.testing.assert_array_equal(ops.convert_to_numpy(order), expected)


def test_keras_sorts_are_still_unstable_on_numpy():
    """When this fails, `stable_argsort` may ask Keras on NumPy too."""
    if keras.backend.backend() != "numpy":
        pytest.skip("about Keras's sort on NumPy")
    tied = np.tile([1.0, 0.0], 500)[None]
    order = ops.argsort(tied, axis=1)[0]
    expected = np.argsort(tied[0], kind="stable")
    assert not np.array_equal(order, expected)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100, 1000])
def test_items_are_numbered_by_the_bits_of_words(size, rng, monkeypatch):
    monkeypatch.setattr(backend, "scans_anew", lambda: True)
    for share in (0.0, 0.5, 1.0):
        mask = rng.random((3, size)) < share
        found = arithmetic.running_count(ops.convert_to_tensor(mask))
        expected = np.cumsum(mask, axis=1) * mask
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
