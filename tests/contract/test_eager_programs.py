"""Programs of eager calls: a call enters one program, and programs don't nest."""

import itertools

import keras
import numpy as np
import pytest
from registry import FIRST_CASES

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "jax",
    reason="JAX would compile each operation, and calls are equal on all backends",
)

LABELS = np.array([[0.0, 2.0, 1.0, 0.0], [1.0, 0.0, 0.0, 3.0]])
SCORES = np.array([[0.5, 0.5, 0.1, 0.3], [0.2, 0.9, 0.2, 0.2]], "float32")
IDS, ITEMS = np.array([[1, 2], [3, 0]]), 4
GRADED = {"ids": IDS, "labels": np.ones((2, 2))}
QUERIES, CANDIDATES = SCORES[:, :2], SCORES.T


class UserMetric(metrics.NDCG):
    """A metric of a user, which can't become a program."""


@pytest.fixture
def depths(monkeypatch):
    """Records the nesting depth of each entered program: 1 means not nested."""
    entered, active = [], []

    def enter(function, /, *tensors, **static):
        active.append(function)
        entered.append(len(active))
        try:
            return function(*tensors, **static)
        finally:
            active.pop()

    monkeypatch.setattr(backend, "run_program", enter)
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


SEVERAL_CALLS = {
    "a metric of a user": lambda **options: UserMetric(**options)(LABELS, SCORES),
    "a sparse one": lambda **options: UserMetric(sparse_labels=True, **options)(
        IDS, SCORES
    ),
    "with others": lambda **options: metrics.RankingMetrics(
        [UserMetric(**options), metrics.MeanReciprocalRank(**options)]
    )(LABELS, SCORES),
    "a gain of a user": lambda **options: (
        metrics.DCG(gain_fn=lambda x: x, **options)(LABELS, SCORES),
        functional.dcg(LABELS, SCORES, gain_fn=lambda x: x, **options),
    ),
    # The number of ranks depends on the values of the lists.
    "sparse": lambda **options: (
        metrics.NDCG(sparse_labels=True, **options)(GRADED, SCORES),
        functional.ndcg(GRADED, SCORES, sparse_labels=True, **options),
        functional.rank(GRADED, SCORES, sparse_labels=True, **options),
    ),
    "rank": lambda **options: (
        functional.rank(LABELS, SCORES, **options),
        catalogue.rank(IDS, QUERIES, CANDIDATES, exclude=IDS[:, ::-1] - 1, **options),
        catalogue.rank(GRADED, QUERIES, CANDIDATES, block_size=2, **options),
    ),
    "evaluate": lambda **options: catalogue.evaluate(
        GRADED,
        QUERIES,
        CANDIDATES,
        [
            metrics.NDCG(**options),
            UserMetric(name="own", **options),
            metrics.Gini(2, items=ITEMS),
        ],
    ),
}


ITEM_CALLS = {
    "top_k": lambda: catalogue.top_k(QUERIES, CANDIDATES, 2, shuffle_ties=True),
    "top_k of blocks": lambda: catalogue.top_k(
        QUERIES, CANDIDATES, 2, exclude=IDS, block_size=2
    ),
    "exclude_items": lambda: utils.exclude_items(SCORES, IDS, keep=IDS[:, :1]),
    **{
        f"{metric.name} of {name}": lambda metric=metric, recommended=recommended: (
            metric(*recommended)
        )
        for metric in (
            metrics.Coverage(2, items=ITEMS),
            metrics.Gini(2, items=ITEMS),
            metrics.AveragePopularity(2, popularity=[4.0, 3.0, 2.0, 1.0]),
            metrics.Novelty(2, popularity=[0.4, 0.3, 0.2, 0.1]),
            metrics.Personalization(2, items=ITEMS),
            metrics.IntraListDiversity(2, item_vectors=np.eye(ITEMS)),
        )
        for name, recommended in {"ids": (IDS,), "lists": (LABELS, SCORES)}.items()
    },
}


@pytest.mark.parametrize("call", [*SEVERAL_CALLS, *ITEM_CALLS])
def test_programs_do_not_nest(call, depths):
    if call in ITEM_CALLS:
        ITEM_CALLS[call]()
        assert set(depths) <= {1}
        return
    for values in itertools.product([True, False, "average"], [2, None]):
        depths.clear()
        SEVERAL_CALLS[call](**dict(zip(("shuffle_ties", "k"), values, strict=True)))
        assert set(depths) == {1}
