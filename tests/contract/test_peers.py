"""The same numbers as other libraries, where they mean the same.

`test_dialects.py` compares with more of them on NumPy.
"""

import numpy as np
import pytest
from arrays import values_of
from registry import IS_SLOW

from keras_rank import functional, metrics

# That of `test_dialects.py` among them. Each is compiled anew on JAX.
CUTOFFS = [1, 5] if IS_SLOW else [1, 3, 5, 10]

pytestmark = pytest.mark.slow


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
    arguments = {"k": k, "gain_fn": "linear", "shuffle_ties": "average"}
    pairs = (functional.ndcg, ndcg_score), (functional.dcg, dcg_score)
    for y_pred in (scores, tied):
        for ours, theirs in pairs:
            found = values_of(ours, labels, y_pred, **arguments).mean()
            assert found == pytest.approx(theirs(labels, y_pred, k=k), rel=1e-6)


CORRELATIONS = [("kendall_tau", "kendalltau"), ("spearman_correlation", "spearmanr")]


@pytest.mark.programs
@pytest.mark.parametrize(("ours", "theirs"), CORRELATIONS)
def test_scipy(ours, theirs, rng):
    """Ties on both sides, padding, and lists of 2 to 5,000 items."""
    from scipy import stats

    function, expected_of = getattr(functional, ours), getattr(stats, theirs)
    for size in (2, 12, 5000) if IS_SLOW else (2, 3, 7, 12, 100, 1000, 5000):
        scores = rng.normal(size=(6, size)).astype("float32")
        labels = np.abs(scores + rng.normal(size=(6, size)))
        # From few ties to many.
        for digits in (0, 1, 2) if size < 5000 else (0, 4):
            pair = np.round(labels, digits), np.round(scores, digits)
            mask = rng.random((6, size)) < 0.8
            mask[:, :2] = True
            found = values_of(function, {"labels": pair[0], "mask": mask}, pair[1])
            for value, real, *each in zip(found, mask, *pair, strict=True):
                label, score = (x[real] for x in each)
                if len(set(label)) == 1:
                    assert np.isnan(value)
                elif len(set(score)) == 1:
                    assert value == 0.0
                else:
                    expected = expected_of(label, score).statistic
                    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), CORRELATIONS)
def test_what_is_not_retrieved_is_last_in_scipy(ours, theirs):
    from scipy import stats

    labels, scores = [3, 0, 1, 2, 0, 1], [0.5, 0.1, np.nan, 0.2, -np.inf, -3.0]
    last = [0.5, 0.1, -9.0, 0.2, -9.0, -3.0]
    expected = getattr(stats, theirs)(labels, last).statistic
    padded = values_of(getattr(functional, ours), [[*labels, -1]], [[*scores, 7.0]])
    assert padded[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 10.0, 1e38])
@pytest.mark.parametrize("k", CUTOFFS)
def test_f_beta_of_sklearn(lists, k, beta):
    from sklearn.metrics import fbeta_score

    labels, scores = lists
    expected = [
        fbeta_score(label >= 1, score > np.sort(score)[-1 - k], beta=beta)
        for label, score in zip(labels, scores, strict=True)
    ]
    found = values_of(functional.f_beta, labels, scores, k=k, beta=beta)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_keras_rs_shuffles_on_all_backends_but_torch(backend):
    """Even where it is told not to, as the page says."""
    theirs = pytest.importorskip("keras_rs").metrics
    labels, scores = [[1.0] + [0.0] * 9], [[0.5] * 10]
    for make, ties in ((theirs.NDCG, backend != "torch"), (metrics.NDCG, False)):
        values = {
            float(make(shuffle_ties=False, seed=seed)(np.array(labels), scores))
            for seed in range(9)
        }
        assert (len(values) > 1) == ties
        assert ties or values == {1.0}
