"""Values of other libraries on all backends, for metrics with equal definitions.

`test_dialects.py` compares with more libraries, on NumPy alone.
"""

import numpy as np
import pytest
from arrays import compute_values
from registry import IS_SLOW

from keras_rank import functional, metrics

pytestmark = pytest.mark.slow


CORRELATIONS = [("kendall_tau", "kendalltau"), ("spearman_correlation", "spearmanr")]


@pytest.mark.programs
@pytest.mark.parametrize(("ours", "theirs"), CORRELATIONS)
def test_correlations_equal_those_of_scipy(ours, theirs, rng):
    """The lists have 2 to 5,000 items, padding, and ties of labels and of scores."""
    from scipy import stats

    function, expected_of = getattr(functional, ours), getattr(stats, theirs)
    for size in (2, 12, 5000) if IS_SLOW else (2, 3, 7, 12, 100, 1000, 5000):
        scores = rng.normal(size=(6, size)).astype("float32")
        labels = np.abs(scores + rng.normal(size=(6, size)))
        # The digits give from many ties to few.
        for digits in (0, 1, 2) if size < 5000 else (0, 4):
            pair = np.round(labels, digits), np.round(scores, digits)
            mask = rng.random((6, size)) < 0.8
            mask[:, :2] = True
            actual = compute_values(
                function, {"labels": pair[0], "mask": mask}, pair[1]
            )
            for value, real, *each in zip(actual, mask, *pair, strict=True):
                label, score = (x[real] for x in each)
                if len(set(label)) == 1:
                    assert np.isnan(value)
                elif len(set(score)) == 1:
                    assert value == 0.0
                else:
                    expected = expected_of(label, score).statistic
                    assert value == pytest.approx(expected, abs=1e-6)


def test_keras_rs_shuffles_on_all_backends_but_torch(backend):
    """KerasRS shuffles even with `shuffle_ties=False`, as docs/dialects.md says."""
    theirs = pytest.importorskip("keras_rs").metrics
    labels, scores = [[1.0] + [0.0] * 9], [[0.5] * 10]
    for make, ties in ((theirs.NDCG, backend != "torch"), (metrics.NDCG, False)):
        values = {
            float(make(shuffle_ties=False, seed=seed)(np.array(labels), scores))
            for seed in range(9)
        }
        assert (len(values) > 1) == ties
        assert ties or values == {1.0}
