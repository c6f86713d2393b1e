"""Budgets of an update on a device: operations and waits, counted without a GPU."""

import keras
import numpy as np
import pytest
from counts import count_operations
from timing import NINE, make_batch, make_sparse_batch, tensors

from keras_rank import metrics
from keras_rank.backends import backend
from keras_rank.metrics import NDCG, RankingMetrics

BACKEND = keras.backend.backend()

pytestmark = [
    pytest.mark.optimized,
    pytest.mark.skipif(
        BACKEND == "numpy", reason="NumPy dispatches no operations and has no waits"
    ),
    pytest.mark.skipif(
        keras.__version__ < "3.15", reason="Keras's own operations are counted too"
    ),
]


def tied(lists, items):
    labels, scores = make_batch(lists, items)
    return labels, np.round(scores, 1)


CASES = {
    "NDCG@10, 1024 x 100": lambda: (NDCG(k=10), make_batch(1024, 100)),
    "NDCG@10, 256 x 1000": lambda: (NDCG(k=10), make_batch(256, 1000)),
    "NDCG@10 tied, 1024 x 100": lambda: (NDCG(k=10), tied(1024, 100)),
    "NDCG@10 tied, 256 x 1000": lambda: (NDCG(k=10), tied(256, 1000)),
    "ERR@10 of tied means, 256 x 1000": lambda: (
        metrics.ExpectedReciprocalRank(k=10, shuffle_ties="average"),
        tied(256, 1000),
    ),
    "pairs, 256 x 1000": lambda: (metrics.PairwiseAccuracy(), make_batch(256, 1000)),
    "nine metrics, 256 x 1000": lambda: (RankingMetrics(NINE), make_batch(256, 1000)),
    "HitRate@10 sparse, 256 x 100000": lambda: (
        metrics.HitRate(k=10, sparse_labels=True),
        make_sparse_batch(256, 100_000),
    ),
}
# Operations and waits. On TensorFlow, those of the graph before it is optimized. On
# torch, those on a CPU, and those on an accelerator. On a CPU, ties are searched once
# more, as reading a value does not wait for a device.
BUDGETS = {
    "torch": {
        "NDCG@10, 1024 x 100": [(85, 1), (82, 1)],
        "NDCG@10, 256 x 1000": [(82, 1), (82, 1)],
        "NDCG@10 tied, 1024 x 100": [(163, 2), (160, 1)],
        "NDCG@10 tied, 256 x 1000": [(160, 2), (160, 1)],
        "ERR@10 of tied means, 256 x 1000": [(1562, 3), (1556, 3)],
        "nine metrics, 256 x 1000": [(219, 1), (212, 1)],
        # Ids are checked, and no keys are hashed for 100,000 items without ties. On a
        # CPU, values decide whether the largest scores suffice, and whether any tie.
        "HitRate@10 sparse, 256 x 100000": [(105, 3), (74, 2)],
    },
    "jax": {
        "NDCG@10, 256 x 1000": [(348, 1)],
        "pairs, 256 x 1000": [(595, 1)],
        "nine metrics, 256 x 1000": [(649, 1)],
    },
    "tensorflow": {
        "NDCG@10, 256 x 1000": [(321, 1)],
        "pairs, 256 x 1000": [(546, 1)],
        "nine metrics, 256 x 1000": [(651, 1)],
    },
}.get(BACKEND, {})
if BACKEND == "jax":
    import jax

    if jax.__version_info__ >= (0, 12):
        # The loop of JAX 0.12 has 74 more operations than that of JAX 0.10.
        BUDGETS["pairs, 256 x 1000"] = [(595 + 87, 1)]


@pytest.mark.parametrize("case", BUDGETS)
def test_counts_are_within_budget(case, monkeypatch):
    metric, batch = CASES[case]()
    for most_operations, most_waits in BUDGETS[case]:
        counts = count_operations(metric, *tensors(*batch))
        assert counts.operations <= most_operations
        assert counts.waits <= most_waits
        # The second pair is the budget on an accelerator.
        monkeypatch.setattr(backend, "on_accelerator", lambda: True)


@pytest.mark.skipif(BACKEND != "torch", reason="`fit` needs results at each step")
@pytest.mark.parametrize(
    ("metric", "most"), [(NDCG(k=10), 10), (RankingMetrics(NINE), 11)]
)
def test_results_are_within_budget(metric, most):
    update, metric.update_state = metric.update_state, lambda *_: metric.result()
    update(*tensors(*make_batch(32, 10)))
    counts = count_operations(metric)
    assert (counts.operations, counts.waits) == (most, 0)


@pytest.mark.skipif(BACKEND != "torch", reason="eager torch would create them")
def test_an_update_creates_no_constant():
    assert count_operations(NDCG(k=10), *tensors(*make_batch(256, 1000))).constants == 0


@pytest.mark.skipif(BACKEND != "torch", reason="a test of how torch is counted")
def test_constants_are_counted():
    """A constant is created from numbers, or copied from a tensor of no operation."""
    import torch

    class Metric:
        stored = torch.ones(3, dtype=torch.float64)

        def update_state(self, x):
            shifted = x + torch.tensor([1.0, 2.0, 3.0])
            return shifted.double() + self.stored.float() + float(x[0])

    assert count_operations(Metric(), torch.ones(3)) == (8, 1, 2)
