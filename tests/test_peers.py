"""The same numbers as other libraries, where they mean the same."""

import keras
import numpy as np
import pytest
from keras import ops
from registry import IS_SLOW

from keras_rank import functional, metrics

# That of `test_dialects.py` among them. Each is compiled anew on JAX.
CUTOFFS = [1, 5] if IS_SLOW else [1, 3, 5, 10]

pytestmark = pytest.mark.slow


def values(function, *inputs, **arguments):
    return ops.convert_to_numpy(function(*inputs, **arguments))


@pytest.fixture
def lists(rng):
    """In the shape of those of `test_dialects.py`: compiled code is compiled once."""
    labels = rng.integers(0, 5, size=(30, 12)).astype("float32")
    return labels, rng.permuted(np.tile(np.arange(12.0), (30, 1)), axis=1)


@pytest.mark.programs
@pytest.mark.parametrize("k", [*CUTOFFS, None])
def test_sklearn(lists, k, rng):
    """Linear gains; ties averaged."""
    from sklearn.metrics import dcg_score, ndcg_score

    labels, scores = lists
    tied = rng.integers(0, 4, size=scores.shape)
    for y_pred in (scores, tied):
        arguments = {"k": k, "gain_fn": "linear", "shuffle_ties": "average"}
        for ours, theirs in (
            (functional.ndcg, ndcg_score),
            (functional.dcg, dcg_score),
        ):
            found = values(ours, labels, y_pred, **arguments).mean()
            assert found == pytest.approx(theirs(labels, y_pred, k=k), rel=1e-6)


@pytest.mark.parametrize("k", CUTOFFS)
def test_torchmetrics(lists, k):
    import torch
    from torchmetrics.functional.retrieval import retrieval_normalized_dcg

    labels, scores = lists
    expected = [
        float(
            retrieval_normalized_dcg(
                torch.as_tensor(score), torch.as_tensor(label).int(), top_k=k
            )
        )
        for label, score in zip(labels, scores, strict=True)
    ]
    found = values(functional.ndcg, labels, scores, k=k, gain_fn="linear")
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("k", CUTOFFS)
def test_ranx(lists, k):
    from ranx import Qrels, Run, evaluate

    labels, scores = (
        {
            f"q{i}": {f"d{j}": x for j, x in enumerate(row)}
            for i, row in enumerate(rows.tolist())
        }
        for rows in (lists[0].astype(int), lists[1])
    )
    for measure, gain_fn in (("ndcg", "linear"), ("ndcg_burges", "exponential")):
        expected = evaluate(Qrels(labels), Run(scores), f"{measure}@{k}")
        found = values(functional.ndcg, *lists, k=k, gain_fn=gain_fn).mean()
        assert found == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("empty_value", "expected"),
    [
        (None, [0.0, 0.3869, 0.3869, 0.6509]),
        (0.0, [0.0, 0.1934, 0.1934, 0.3255]),
    ],
)
def test_the_documented_example_of_ignite(empty_value, expected):
    labels = [[0, 0, 1, 1], [0, 0, 0, 0]]
    scores = [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    found = [
        float(metrics.NDCG(k=k, empty_value=empty_value)(labels, scores))
        for k in (1, 2, 3, 4)
    ]
    assert found == pytest.approx(expected, abs=5e-5)


def keras_rs_metrics():
    """keras-rs, or a skip where it cannot be had."""
    return pytest.importorskip("keras_rs").metrics


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # its own
@pytest.mark.parametrize("k", [*CUTOFFS, None])
@pytest.mark.parametrize("weighting", [None, "lists", "items"])
@pytest.mark.parametrize("name", ["NDCG", "DCG"])
def test_keras_rs_on_one_batch(lists, k, weighting, name, rng):
    """Weights, and lists without relevant items, on one batch."""
    labels, scores = (x.astype("float32") for x in lists)
    labels[3] = 0.0
    weights = {
        None: None,
        "lists": rng.choice([0.5, 1.0, 3.0], size=30).astype("float32"),
        "items": rng.choice([0.0, 0.5, 3.0], size=labels.shape).astype("float32"),
    }[weighting]
    expected = getattr(keras_rs_metrics(), name)(k=k)(labels, scores, weights)
    found = getattr(metrics, name)(k=k)(labels, scores, weights)
    assert float(found) == pytest.approx(float(expected), rel=2e-6)


def test_rax(lists):
    if keras.backend.backend() != "jax":
        pytest.skip("rax is for JAX")
    import rax

    labels, scores = lists
    for k in (*CUTOFFS, None):
        expected = rax.ndcg_metric(scores, labels, topn=k, reduce_fn=None)
        found = values(functional.ndcg, labels, scores, k=k)
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-5)
