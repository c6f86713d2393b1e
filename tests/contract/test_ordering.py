"""The order of items: means of tied values, the shuffle and the top k, against NumPy.

`test_best_first.py` compares the first items with those of a full sort.
"""

import itertools
import math

import keras
import numpy as np
import oracle
import pytest
from keras import ops
from strategies import standardized_lists

from keras_rank.arrays import arithmetic, hashing, selection
from keras_rank.arrays.hashing import fold_seed
from keras_rank.backends import backend, generic
from keras_rank.ranking import base
from keras_rank.ranking.order_spec import OrderSpec, rank_by_scores

pytestmark = pytest.mark.programs

SHAPES = [(3, 50), (2, 2500), (2, 5000), (1, 4099)]
CUTOFFS = [1, 7, 40]
if keras.backend.backend() == "jax":
    # JAX compiles each shape and cutoff separately.
    SHAPES, CUTOFFS = [(3, 50), (1, 4099)], [7]


def ranked(scores, k, ties):
    lists = standardized_lists(np.zeros_like(scores), scores)
    return rank_by_scores(lists, fold_seed(3), order=OrderSpec(False, ties, k))


@pytest.mark.compiles_long
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("levels", [1, 3, 30, 10**6])
def test_averaged_ties_take_the_mean_of_tied_values(shape, levels, rng):
    scores = rng.integers(0, levels, size=shape).astype("float32")
    values = rng.integers(0, 9, size=shape).astype("float32")
    for k in CUTOFFS:
        ranking = ranked(scores, k, "average")
        taken = ops.convert_to_numpy(ranking.take(ops.convert_to_tensor(values)))
        sizes, positions = (
            np.broadcast_to(ops.convert_to_numpy(x), taken.shape)
            for x in (ranking.group_sizes, ranking.places)
        )
        for row, score in enumerate(scores):
            by_rank = np.sort(score)[::-1][:k]
            for rank, s in enumerate(by_rank):
                tied = score == s
                assert taken[row, rank] == pytest.approx(values[row][tied].mean())
                assert sizes[row, rank] == tied.sum()
                assert positions[row, rank] == rank - (score > s).sum() + 1


def test_shuffle_is_the_hash_of_seed_list_and_item():
    """The keys are equal on every backend and in every release."""
    lists = standardized_lists(np.zeros((2, 4)), np.zeros((2, 4)))
    list_keys = base.list_keys(fold_seed(7), 5, lists.has_items)
    items = ops.arange(1, 5, dtype="int32")[None]
    keys = ops.convert_to_numpy(base.item_keys(list_keys, items))
    expected = [[oracle.shuffle_key(7, 5 + b, i) for i in range(4)] for b in range(2)]
    np.testing.assert_array_equal(keys, expected)
    assert keys[0, 0] == -1833678159


@pytest.mark.compiles_long
def test_shuffle_is_uniform():
    """The 24 orders of four tied items are equally frequent."""
    order = ranked(np.zeros((24_000, 4), "float32"), None, "shuffle").order.positions
    orders = ops.convert_to_numpy(order)
    all_orders = itertools.permutations(range(4))
    counts = [np.all(orders == order, axis=1).sum() for order in all_orders]
    assert sum(counts) == 24_000
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts)
    assert chi_square < 49.7  # the 99.9 % quantile of 23 degrees of freedom


@pytest.mark.compiles_long
@pytest.mark.parametrize("on_accelerator", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_top_k_and_largest_values(dtype, on_accelerator, rng, monkeypatch):
    """The rows have any number of blocks, and ties across blocks."""
    monkeypatch.setattr(backend, "on_accelerator", lambda: on_accelerator)
    for shape in SHAPES:
        entries = 1e9 * rng.normal(size=shape)
        entries[::2] = 1e9 * rng.integers(-2, 3, size=entries[::2].shape)
        entries = entries.clip(-(2**31), 2**31 - 128).astype(dtype)
        x = ops.convert_to_tensor(entries)
        for count in {1, 7, 8, 256, shape[1]}:
            some = min(count, shape[1])
            actual, positions = map(ops.convert_to_numpy, selection.top_k(x, some))
            expected = np.sort(entries, axis=1)[:, ::-1][:, :some]
            np.testing.assert_array_equal(actual, expected)
            at_positions = np.take_along_axis(entries, positions, axis=1)
            np.testing.assert_array_equal(at_positions, expected)
            assert all(len({*row}) == some for row in positions.tolist())
            if dtype == "float32":
                actual = ops.convert_to_numpy(selection.largest_values(x, count))
                np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100, 1000])
def test_running_counts_by_bits_of_words(size, rng):
    for share in (0.0, 0.5, 1.0):
        mask = rng.random((3, size)) < share
        actual = generic.count_in_words(ops.convert_to_tensor(mask.astype("int32")))
        expected = np.cumsum(mask, axis=1) * mask
        np.testing.assert_array_equal(ops.convert_to_numpy(actual), expected)


def test_padding_changes_no_bit_of_a_total(rng):
    """Appended zeros change no bit of a total."""
    for size in (1, 31, 33, 63, 64, 65, 129):
        values = rng.normal(size=(3, size)).astype("float32")
        padded = np.pad(values, [(0, 0), (0, 130 - size)])
        inputs = map(ops.convert_to_tensor, (values, padded))
        actual = [ops.convert_to_numpy(arithmetic.total(x)) for x in inputs]
        np.testing.assert_array_equal(*actual)
        np.testing.assert_allclose(actual[0], values.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_hashes_have_an_inverse(rng):
    numbers = rng.integers(-(2**31), 2**31, (3, 50), dtype="int64").astype("int32")
    keys = rng.integers(-(2**31), 2**31, (3, 1), dtype="int64").astype("int32")
    numbers[0, :2] = -(2**31), 2**31 - 1
    numbers, keys = map(ops.convert_to_tensor, (numbers, keys))
    actual = hashing.unhash_numbers(hashing.hash_numbers(numbers, keys), keys)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (actual, numbers)))


@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_packed_scores_and_keys_are_sorted(levels, rng):
    scores = rng.integers(-levels, levels, (3, 50)).astype("float32") / 8
    scores[:, ::7] = -math.inf
    scores[0, :3] = 0.0, -0.0, math.inf
    keys = rng.integers(1 - 2**31, 2**31, (3, 50), dtype="int64").astype("int32")
    inputs = map(ops.convert_to_tensor, (scores, keys))
    actual = map(ops.convert_to_numpy, backend.sort_packed(*inputs))
    order = np.lexsort((-1 - keys, -scores))
    for x, values in zip(actual, (scores, keys), strict=True):
        np.testing.assert_array_equal(x, np.take_along_axis(values, order, 1))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX packs them")
@pytest.mark.parametrize("k", [None, 1, 10])
def test_packed_sorting_gives_the_usual_order(k, rng, monkeypatch):
    labels = rng.integers(-1, 4, (6, 40)).astype("float32")
    scores = rng.integers(0, 5, (6, 40)).astype("float32")
    scores[:, ::9] = -math.inf
    labels[0] = -1.0

    def values(is_packed):
        monkeypatch.setattr(backend, "should_sort_packed", lambda _: is_packed)

        def program():
            lists = standardized_lists(labels, scores)
            ranking = rank_by_scores(lists, 3, order=OrderSpec(False, "shuffle", k))
            taken = (ranking.take(x) for x in (lists.scores, lists.labels))
            return ranking.occupied, *taken

        return jax.jit(program)()

    jax = pytest.importorskip("jax")
    for x, y in zip(values(True), values(False), strict=True):
        np.testing.assert_array_equal(x, y)
