"""Whole orders of lists with few relevant items: counted, and the same numbers."""

import functools

import compiled
import numpy as np
import oracle
import pytest
from keras import ops
from registry import CASES

from keras_rank import functional
from keras_rank.metrics import PairwiseAccuracy
from keras_rank.ordering import few, ranking
from keras_rank.ordering.few import FEW

LISTS, ITEMS = 4, 300


def batch_of(rng, most):
    """Lists with padding and ties, and up to so many relevant items."""
    labels = np.zeros((LISTS, ITEMS), "float32")
    scores = np.round(rng.normal(size=(LISTS, ITEMS)), 1).astype("float32")
    weights = rng.choice([0.5, 1.0, 3.0], size=(LISTS, ITEMS)).astype("float32")
    for row, number in zip(labels, [most, 1, 0, most], strict=True):
        row[rng.choice(ITEMS, number, replace=False)] = rng.integers(1, 5, number)
    labels[1, 10:200] = -1.0
    labels[3, ::3] = np.where(labels[3, ::3] > 0.0, labels[3, ::3], -1.0)
    # A relevant item that is not retrieved, in a list with others that are not.
    scores[0, np.argmax(labels[0])] = -np.inf
    scores[0, 50:60] = np.nan
    return labels, scores, weights


def orders_of(batch, shuffle_ties):
    labels, scores, *weights = batch
    make = {"sample_weight": weights[0] if weights else None, "seed": 1}
    return functional.rank(labels, scores, shuffle_ties=shuffle_ties, **make)


@pytest.mark.parametrize(
    ("most", "shuffle_ties", "weighted"),
    [
        (2, True, False),
        (FEW, True, True),
        (FEW, False, False),
        (FEW + 1, True, False),
        (FEW + 1, False, True),
    ],
)
def test_functions_equal_the_oracle(most, shuffle_ties, weighted, rng):
    labels, scores, weights = batch_of(rng, most)
    weights = weights if weighted else np.ones_like(scores)
    order = orders_of((labels, scores, weights if weighted else None), shuffle_ties)
    assert bool(order.ranking.are_few) == (most <= FEW)
    lists = [oracle.items_of(*row) for row in zip(labels, scores, weights, strict=True)]
    ties = "shuffle" if shuffle_ties else "stable"
    for case in CASES:
        values = case.function(order, **case.arguments)
        for number, items in enumerate(lists):
            value = float(values[number])
            if case.list_weight(items) is None:
                assert np.isnan(value) if case.leaves_out_empty else value == 0.0
            else:
                expected = case.oracle_value(items, k=None, ties=ties, number=number)
                assert value == pytest.approx(expected, rel=3e-6, abs=3e-6), case.name


def test_values_of_irrelevant_items_are_taken_too(rng):
    labels, scores, _ = batch_of(rng, 3)
    labels[labels < 0.0] = 0.0
    scores[0] = rng.permutation(ITEMS)
    ranking = orders_of((labels, scores), False).ranking
    assert bool(ranking.are_few)
    values = rng.normal(size=labels.shape).astype("float32")
    taken = ops.convert_to_numpy(ranking.take(ops.convert_to_tensor(values)))
    by_rank = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(taken, np.take_along_axis(values, by_rank, axis=1))
    cut = ops.convert_to_numpy(ranking.cut(7).take(ops.convert_to_tensor(values)))
    np.testing.assert_array_equal(cut, taken[:, :7])


def plus_one(labels):
    return labels + 1.0


def test_a_label_of_zero_may_be_relevant(rng):
    """With a threshold that it reaches, in the precision of labels."""
    labels, scores, _ = batch_of(rng, 3)
    labels[labels < 0.0] = 0.0
    scores[0] = rng.permutation(ITEMS)
    for threshold in (-1.0, 0.0, 1e-50):
        order = orders_of((labels, scores), True)
        for function in (functional.precision, functional.recall):
            values = function(order, relevance_threshold=threshold)
            np.testing.assert_allclose(ops.convert_to_numpy(values), 1.0)


def test_the_order_is_found_once(monkeypatch, rng):
    """Whatever asks for it, and only if something does."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return ranking.sort(*arguments)

    monkeypatch.setattr(few, "sort", counted)
    labels, scores, _ = batch_of(rng, 3)
    order = orders_of((labels, scores), True)
    for case in CASES:
        if case.metric is not PairwiseAccuracy:
            case.function(order, **case.arguments)
    assert not calls
    for _ in range(3):
        order.ranking.take(ops.convert_to_tensor(rng.random(labels.shape)))
    assert order.ranking.cut(5).order.shape == (LISTS, 5)
    assert len(calls) == 1


@pytest.mark.parametrize("way", compiled.WAYS)
def test_compiled(way, rng):
    """One compilation decides, for each batch, which way it goes."""
    compiled.skip_unless_here(way)
    if way == "torch.compile":
        pytest.skip("it breaks its graph to decide, so that this is as eager")
    # The last has a gain that is not known to be nothing for a label of 0.
    formulas = [functional.ndcg, functional.average_precision, functional.precision]
    formulas += [functools.partial(functional.dcg, gain_fn=plus_one)]

    def values(*batch):
        order = orders_of(batch, True)
        return ops.stack([formula(order) for formula in formulas])

    call = compiled.function(way, values)
    for most in (FEW, FEW + 1):
        batch = [ops.convert_to_tensor(x) for x in batch_of(rng, most)]
        np.testing.assert_allclose(
            ops.convert_to_numpy(call(*batch)),
            ops.convert_to_numpy(values(*batch)),
            rtol=2e-6,
            atol=2e-6,
        )
