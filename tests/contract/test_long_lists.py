"""Long lists, which have fast paths: values equal the oracle's, and sums are exact.

`test_code_paths.py` and `test_best_first.py` compare the fast paths with other paths.
"""

import numpy as np
import oracle
import pytest
from keras import ops
from registry import IS_SLOW
from test_code_paths import LEVELS, dense_batch

from keras_rank import functional
from keras_rank.arrays import selection
from keras_rank.backends import backend

ITEMS = 1500
FORMULAS = ["ndcg", "dcg", "average_precision", "recall", "precision", "hit_rate"]

pytestmark = pytest.mark.optimized


@pytest.mark.compiles_long
@pytest.mark.parametrize("levels", [4, 10**6] if IS_SLOW else LEVELS)
def test_functions_equal_the_oracle(levels, rng, monkeypatch):
    """The lists are short enough for the oracle, and use the path of longer lists."""
    monkeypatch.setattr(backend, "LONG_ROW", 512)
    labels, scores, weights = dense_batch(rng, ITEMS, levels)
    labels[rng.random(labels.shape) < 0.8] = 0.0
    scores[-4:, 4:] = -np.inf
    assert selection.is_long(scores, 4 * 11)
    is_denormal = np.abs(scores) < np.finfo("float32").tiny
    rows = zip(labels, np.where(is_denormal, 0.0, scores), weights, strict=True)
    lists = [oracle.make_items(*row) for row in rows]
    numbers = np.cumsum([bool(items) for items in lists]) - 1
    for shuffle_ties in (True,) if IS_SLOW else (True, False):
        make = {"sample_weight": weights, "k": 10, "shuffle_ties": shuffle_ties}
        order = functional.rank(labels, scores, seed=1, **make)
        ties = "shuffle" if shuffle_ties else "stable"
        orders = [
            [*oracle.possible_orders(items, ties, 1, int(number))]
            for items, number in zip(lists, numbers, strict=True)
        ]
        for name in FORMULAS:
            for k in (10,) if IS_SLOW else (3, 10):
                actual = ops.convert_to_numpy(getattr(functional, name)(order, k=k))
                expected = [
                    getattr(oracle, name)(ranked[:k], items, k) if items else np.nan
                    for items, (ranked,) in zip(lists, orders, strict=True)
                ]
                np.testing.assert_allclose(
                    actual, expected, rtol=3e-6, atol=3e-6, err_msg=f"{name}@{k}"
                )


@pytest.mark.compiles_long
@pytest.mark.parametrize("relevant", [8999, 4500])
def test_running_sums_of_thousands_do_not_drift(relevant):
    """Sums of float32 that are added one by one would be wrong by whole items."""
    items = 9000
    labels = np.zeros((1, items), "float32")
    labels[:, :relevant] = 1.0
    # The probability that the item at a rank is relevant, and that an item above a
    # relevant item is relevant.
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
        actual = function(labels, np.zeros_like(labels), shuffle_ties="average")
        assert float(actual[0]) == pytest.approx(value, rel=3e-6), name


def test_correlations_are_at_most_1():
    """The correlation of almost equal orders rounds to a number above 1."""
    ranks = np.arange(1200.0, dtype="float32")
    swaps = np.arange(0, 1199, 30)
    scores = np.tile(ranks, (len(swaps), 1))
    lists = np.arange(len(swaps))
    scores[lists, swaps], scores[lists, swaps + 1] = swaps + 1, swaps
    labels = np.tile(ranks, (len(swaps), 1))
    values = functional.spearman_correlation(labels, scores)
    assert 0.999999 < float(ops.min(values)) <= float(ops.max(values)) <= 1.0
