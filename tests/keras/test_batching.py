"""Results of `evaluate`, which do not depend on the batch size.

`test_properties.py` tests the same property of updates without `evaluate`.
"""

import keras
import pytest
from recording import results
from registry import IS_SLOW
from strategies import BATCH, LIST_SIZE

from keras_rank import metrics
from keras_rank.arrays.arithmetic import round_up_size


def make_metrics():
    """Returns metrics for each order of ties, in a group and alone."""
    members = [
        metrics.MeanAveragePrecision(k=3, seed=1),
        metrics.RecallAtK(k=3, seed=1, shuffle_ties=False),
        metrics.AverageRelevancePosition(shuffle_ties="average"),
    ]
    return [metrics.RankingMetrics(members), metrics.NDCG(k=3, seed=1)]


@pytest.mark.compiles_long
def test_evaluate_with_any_batch_size(rng):
    """The last batch may be smaller, and one batch may hold all lists."""
    # Scores have three values and often tie, and some labels are padding.
    scores = rng.integers(0, 3, size=(BATCH, LIST_SIZE)).astype("float32")
    labels = rng.integers(-1, 4, size=(BATCH, LIST_SIZE)).astype("float32")
    weights = rng.choice([0.5, 1.0, 4.0], size=(BATCH, 1)).astype("float32")
    expected = make_metrics()
    for metric in expected:
        metric.update_state(labels, scores, weights)
    inputs = keras.Input((LIST_SIZE,))
    # The model returns its inputs, so that equal scores stay equal.
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    model.compile(loss="mse", weighted_metrics=make_metrics())
    options = {"sample_weight": weights, "return_dict": True, "verbose": 0}
    # Slow backends compile each size, so they test a single one.
    for batch_size in (3,) if IS_SLOW else (1, 3, 64):
        logs = model.evaluate(scores, labels, batch_size=batch_size, **options)
        del logs["loss"]
        assert logs == pytest.approx(results(*expected), abs=2e-6)


def test_sizes_are_rounded_up_to_few_values():
    assert [round_up_size(n, 8) for n in (0, 8, 9, 200, 257)] == [8, 8, 16, 256, 320]
    sizes = {round_up_size(n, 1) for n in range(1, 4097)}
    assert len(sizes) == 9 + 4 * 4
    assert all(n <= round_up_size(n, 1) <= max(2 * n - 1, 1) for n in range(1, 4097))
