"""Eager calls enter one program where they can, and none lies within another."""

import itertools

import keras
import numpy as np
import pytest
from registry import FIRST_CASES

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "jax",
    reason="it would compile each operation, and calls are the same on all backends",
)

LABELS = np.array([[0.0, 2.0, 1.0, 0.0], [1.0, 0.0, 0.0, 3.0]])
SCORES = np.array([[0.5, 0.5, 0.1, 0.3], [0.2, 0.9, 0.2, 0.2]], "float32")
IDS, ITEMS = np.array([[1, 2], [3, 0]]), 4
GRADED = {"ids": IDS, "labels": np.ones((2, 2))}
QUERIES, CANDIDATES = SCORES[:, :2], SCORES.T


class Own(metrics.NDCG):
    """A user's, of which no program can be made."""


@pytest.fixture
def depths(monkeypatch):
    """How deep each program lies that is entered: 1 where it lies in no other."""
    entered, within = [], []

    def enter(function, /, *tensors, **static):
        within.append(function)
        entered.append(len(within))
        try:
            return function(*tensors, **static)
        finally:
            within.pop()

    monkeypatch.setattr(backend, "enter", enter)
    return entered


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_a_call_is_one_program(case, shuffle_ties, depths):
    arguments = {"shuffle_ties": shuffle_ties, "k": 2 if case.has_cutoff else None}
    metric = case.make(**arguments)
    ranked = functional.rank(LABELS, SCORES, **arguments)
    for call in (
        lambda: metric.update_state(LABELS, SCORES),
        lambda: metric.update_state(ranked),
        metric.result,
        metric.standard_error,
        lambda: case.values(LABELS, SCORES, **arguments),
        lambda: case.function(ranked, k=arguments["k"]),
    ):
        depths.clear()
        call()
        assert depths == [1]


@pytest.mark.parametrize("k", [2, None])
def test_a_group_is_one_program(k, depths):
    group = metrics.RankingMetrics([case.make(k=k) for case in FIRST_CASES])
    group.update_state(LABELS, SCORES)
    assert depths == [1]
    group.result()
    group.standard_error()
    assert set(depths) == {1}


SEVERAL = {
    "a metric of a user": lambda **how: Own(**how)(LABELS, SCORES),
    "a sparse one": lambda **how: Own(sparse_labels=True, **how)(IDS, SCORES),
    "with others": lambda **how: metrics.RankingMetrics(
        [Own(**how), metrics.MeanReciprocalRank(**how)]
    )(LABELS, SCORES),
    "a gain of a user": lambda **how: (
        metrics.DCG(gain_fn=lambda x: x, **how)(LABELS, SCORES),
        functional.dcg(LABELS, SCORES, gain_fn=lambda x: x, **how),
    ),
    # How many ranks are listed depends on the values of the lists.
    "sparse": lambda **how: (
        metrics.NDCG(sparse_labels=True, **how)(GRADED, SCORES),
        functional.ndcg(GRADED, SCORES, sparse_labels=True, **how),
        functional.rank(GRADED, SCORES, sparse_labels=True, **how),
    ),
    "rank": lambda **how: (
        functional.rank(LABELS, SCORES, **how),
        catalogue.rank(IDS, QUERIES, CANDIDATES, exclude=IDS[:, ::-1] - 1, **how),
        catalogue.rank(GRADED, QUERIES, CANDIDATES, block_size=2, **how),
    ),
    "evaluate": lambda **how: catalogue.evaluate(
        GRADED,
        QUERIES,
        CANDIDATES,
        [metrics.NDCG(**how), Own(name="own", **how), metrics.Gini(2, items=ITEMS)],
    ),
}


OF_ITEMS = {
    "top_k": lambda: catalogue.top_k(QUERIES, CANDIDATES, 2, shuffle_ties=True),
    "top_k of blocks": lambda: catalogue.top_k(
        QUERIES, CANDIDATES, 2, exclude=IDS, block_size=2
    ),
    "exclude_items": lambda: utils.exclude_items(SCORES, IDS, keep=IDS[:, :1]),
    **{
        f"{metric.name} of {name}": lambda metric=metric, shown=shown: metric(*shown)
        for metric in (
            metrics.Coverage(2, items=ITEMS),
            metrics.Gini(2, items=ITEMS),
            metrics.AveragePopularity(2, popularity=[4.0, 3.0, 2.0, 1.0]),
            metrics.Novelty(2, popularity=[0.4, 0.3, 0.2, 0.1]),
            metrics.Personalization(2, items=ITEMS),
            metrics.IntraListDiversity(2, item_vectors=np.eye(ITEMS)),
        )
        for name, shown in {"ids": (IDS,), "lists": (LABELS, SCORES)}.items()
    },
}


@pytest.mark.parametrize("call", [*SEVERAL, *OF_ITEMS])
def test_no_program_lies_within_another(call, depths):
    if call in OF_ITEMS:
        OF_ITEMS[call]()
        assert set(depths) <= {1}
        return
    for how in itertools.product([True, False, "average"], [2, None]):
        depths.clear()
        SEVERAL[call](**dict(zip(("shuffle_ties", "k"), how, strict=True)))
        assert set(depths) == {1}
