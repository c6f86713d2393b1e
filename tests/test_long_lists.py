"""Long lists take shorter ways: the same numbers, whatever there is to mask."""

import keras
import numpy as np
import oracle
import pytest
from keras import ops
from registry import IS_SLOW
from strategies import lists_of

from keras_rank import functional
from keras_rank.arrays import selection
from keras_rank.arrays.hashing import key_of_seed
from keras_rank.backends import backend
from keras_rank.metrics.ordered import SHUFFLE_TIES
from keras_rank.ranking.ranked import OrderSpec, rank_by_scores
from keras_rank.ranking.tie_breaking import item_keys, list_keys

LISTS, ITEMS = 3, 1500

pytestmark = pytest.mark.optimized


@pytest.fixture(autouse=True)
def _are_long(monkeypatch):
    """Lists of a length that the oracle can take, in the way of longer ones."""
    monkeypatch.setattr(backend, "LONG_ROW", 512)


FORMULAS = {
    "ndcg": oracle.ndcg,
    "dcg": oracle.dcg,
    "average_precision": oracle.average_precision,
    "recall": oracle.recall,
    "precision": oracle.precision,
    "hit_rate": oracle.hit_rate,
}


def plain(rng):
    labels = rng.integers(0, 5, size=(LISTS, ITEMS)) * (
        rng.random((LISTS, ITEMS)) < 0.1
    )
    return labels.astype("float32"), rng.normal(size=(LISTS, ITEMS)).astype("float32")


def padded(labels, scores, rng):
    labels[:, ITEMS // 3 :] = -1.0
    labels[2] = -1.0
    scores[:, ITEMS // 3 :] += 10.0
    return {"labels": labels}, scores, None


def masked(labels, scores, rng):
    mask = rng.random((LISTS, ITEMS)) < 0.6
    labels[~mask], scores[~mask] = 5.0, 100.0
    return {"labels": labels, "mask": mask}, scores, None


def weighted(labels, scores, rng):
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=(LISTS, ITEMS)).astype("float32")
    scores[weights == 0.0] = 100.0
    return {"labels": labels}, scores, weights


def with_nan(labels, scores, rng):
    labels[rng.random((LISTS, ITEMS)) < 0.1] = np.nan
    scores[rng.random((LISTS, ITEMS)) < 0.1] = np.nan
    scores[rng.random((LISTS, ITEMS)) < 0.1] = -np.inf
    return {"labels": labels}, scores, None


def few_retrieved(labels, scores, rng):
    scores[:, 4:] = -np.inf
    return {"labels": labels}, scores, None


def tied(labels, scores, rng):
    return {"labels": labels}, np.round(scores, 1), None


def constant(labels, scores, rng):
    return {"labels": labels}, np.zeros_like(scores), None


def signed_zeros(labels, scores, rng):
    scores = np.where(scores > 0.0, np.float32(-0.0), np.float32(0.0))
    return {"labels": labels}, scores, None


def untouched(labels, scores, rng):
    return {"labels": labels}, scores, None


KINDS = [untouched, padded, masked, weighted, with_nan, few_retrieved, tied, constant]
KINDS += [signed_zeros]
TIES, CUTOFFS = ["shuffle", "stable"], [3, 10]
if IS_SLOW:
    # Each kind is compiled anew there: those that take ways of their own.
    KINDS, TIES, CUTOFFS = [padded, weighted, with_nan, tied], ["shuffle"], [10]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_functions_equal_the_oracle(kind, ties, rng):
    y_true, scores, weights = kind(*plain(rng), rng)
    assert selection.is_long(scores, 4 * 11)
    labels = np.where(y_true.get("mask", True), y_true["labels"], -1.0)
    ones = np.ones_like(labels)
    rows = zip(labels, scores, ones if weights is None else weights, strict=True)
    lists = [oracle.items_of(*row) for row in rows]
    shuffle_ties = ties == "shuffle"
    make = {"sample_weight": weights, "k": 10, "seed": 1}
    order = functional.rank(y_true, scores, shuffle_ties=shuffle_ties, **make)
    numbers = np.cumsum([bool(items) for items in lists]) - 1
    for name, formula in FORMULAS.items():
        for k in CUTOFFS:
            found = ops.convert_to_numpy(getattr(functional, name)(order, k=k))
            for value, items, number in zip(found, lists, numbers, strict=True):
                arguments = {"k": k, "ties": ties, "seed": 1, "number": int(number)}
                if items:
                    expected = oracle.value(formula, items, **arguments)
                    assert value == pytest.approx(expected, rel=3e-6, abs=3e-6), name
                else:
                    assert np.isnan(value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_averages_equal_those_of_the_longer_way(kind, rng, monkeypatch):
    """Which the laws compare with the oracle, whose orders are too many here."""
    given = kind(*plain(rng), rng)

    def averages(y_true, scores, weights):
        order = functional.rank(
            y_true, scores, sample_weight=weights, k=10, shuffle_ties="average"
        )
        return [getattr(functional, name)(order, k=10) for name in FORMULAS]

    found = averages(*given)
    monkeypatch.setattr(backend, "LONG_ROW", 10**9)
    if keras.backend.backend() == "jax":
        import jax

        # The programs that have just been compiled would run again.
        averages = jax.jit(averages)
    expected = averages(*given)
    for value, expected_value in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(value),
            ops.convert_to_numpy(expected_value),
            rtol=3e-6,
            atol=3e-6,
        )


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="others sort by their own library"
)
@pytest.mark.parametrize("ties", ["average", *TIES])
@pytest.mark.parametrize("k", [10, None])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_numpy_sorts_as_torch_does(kind, k, ties, rng, monkeypatch):
    """Many entries on a CPU are sorted by NumPy."""
    y_true, scores, weights = kind(*plain(rng), rng)
    monkeypatch.setattr(backend, "LONG_ROW", 10**9)

    def values(fewest):
        monkeypatch.setattr("keras_rank.backends.torch._MANY_ENTRIES", fewest)
        order = functional.rank(
            y_true,
            scores,
            sample_weight=weights,
            k=k,
            shuffle_ties=SHUFFLE_TIES[ties],
            seed=1,
        )
        found = [getattr(functional, name)(order, k=k) for name in FORMULAS]
        return [ops.convert_to_numpy(value) for value in found]

    for found, expected in zip(values(1), values(10**9), strict=True):
        np.testing.assert_array_equal(found, expected)


def has_order_by_score_then_by_hash(scores):
    lists = lists_of(np.ones_like(scores), scores)
    kind = OrderSpec(False, "shuffle", None)
    ranking = rank_by_scores(kind, lists, key_of_seed(7), 5)
    numbers = np.arange(1, scores.shape[1] + 1, dtype="int32")[None]
    keys = item_keys(
        list_keys(key_of_seed(7), 5, lists.has_items), ops.convert_to_tensor(numbers)
    )
    keys = ops.convert_to_numpy(keys).astype("int64")
    expected = np.lexsort((-keys, -scores), axis=1)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(ranking.order.positions), expected
    )


@pytest.mark.parametrize("distinct", [2, 30, 1400, 8000, 10**9])
def test_a_full_order_is_by_score_then_by_hash(distinct, rng):
    """Where few items tie, these are sorted apart."""
    scores = rng.integers(0, distinct, size=(LISTS, 400)).astype("float32")
    has_order_by_score_then_by_hash(scores)


@pytest.mark.parametrize("most", [32, 33])
def test_few_ties_at_the_ends_of_long_lists(most, rng):
    """In one list of a batch none, and in one as many as are sorted apart, or more."""
    by_rank = np.tile(np.arange(700.0, 0.0, -1.0, dtype="float32"), (4, 1))
    by_rank[1, -2:] = 1.0
    by_rank[2, :3] = 700.0
    by_rank[3, 300 : 300 + most] = 400.0
    has_order_by_score_then_by_hash(rng.permuted(by_rank, axis=1))


@pytest.mark.parametrize(("batch", "k"), [(60, 10), (1, None), (60, None)])
def test_many_entries_are_sorted_in_the_same_order(k, batch, rng):
    """By their bits, on JAX: of either sign, infinite, and tied."""
    scores = rng.choice([-2.5, -1.0, 0.0, 1e-30, 3.0, np.inf], size=(batch, 700))
    scores = np.where(
        rng.random(scores.shape) < 0.9, rng.normal(size=scores.shape), scores
    )
    scores = scores.astype("float32")
    lists = lists_of(np.ones_like(scores), scores)
    ranking = rank_by_scores(OrderSpec(False, "stable", k), lists)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(ranking.order.positions), expected
    )


@pytest.mark.parametrize("relevant", [8999, 4500])
def test_running_sums_of_thousands_do_not_drift(relevant):
    """Of float32 added one by one, they would be off by whole items."""
    items = 9000
    labels = np.zeros((1, items), "float32")
    labels[:, :relevant] = 1.0
    # At each rank, an item is relevant by this chance, and each above it by another.
    chance, other = relevant / items, (relevant - 1) / (items - 1)
    ranks = np.arange(1.0, items + 1.0)
    discounts = 1.0 / np.log2(ranks + 1.0)
    expected = {
        # Half of the items without relevance are above each relevant one.
        "bpref": 0.5,
        "average_precision": np.sum((1 + (ranks - 1) * other) / ranks) / items,
        "ndcg": chance * np.sum(discounts) / np.sum(discounts[:relevant]),
    }
    for name, value in expected.items():
        function = getattr(functional, name)
        found = function(labels, np.zeros_like(labels), shuffle_ties="average")
        assert float(found[0]) == pytest.approx(value, rel=3e-6), name
