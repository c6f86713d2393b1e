"""Any batching of the data gives the same result: by `tf.data` and `evaluate`.

By hand, it is a law of `test_laws.py`.
"""

import keras
import pytest
from registry import IS_SLOW
from strategies import BATCH, LIST_SIZE

from keras_rank.arrays.buckets import rounded_up
from keras_rank.metrics import (
    NDCG,
    AverageRelevancePosition,
    MeanAveragePrecision,
    RankingMetrics,
    RecallAtK,
)


def metrics_of():
    """Of all ways to order ties."""
    members = [
        MeanAveragePrecision(k=3, seed=1),
        RecallAtK(k=3, seed=1, shuffle_ties=False),
        AverageRelevancePosition(shuffle_ties="average"),
    ]
    return [RankingMetrics(members), NDCG(k=3, seed=1)]


def results_of(metrics):
    group, alone = metrics
    results = {**group.result(), alone.name: alone.result()}
    return {name: float(value) for name, value in results.items()}


@pytest.fixture
def data(rng):
    """Scores with many ties, labels with padding, and weights."""
    scores = rng.integers(0, 3, size=(BATCH, LIST_SIZE)).astype("float32")
    labels = rng.integers(-1, 4, size=(BATCH, LIST_SIZE)).astype("float32")
    weights = rng.choice([0.5, 1.0, 4.0], size=(BATCH, 1)).astype("float32")
    return scores, labels, weights


def expected_of(data):
    scores, labels, weights = data
    metrics = metrics_of()
    for metric in metrics:
        metric.update_state(labels, scores, weights)
    return pytest.approx(results_of(metrics), abs=2e-6)


def test_evaluate_with_any_batch_size(data):
    """The last batch is smaller, and a batch of more lists than there are is one."""
    scores, labels, weights = data
    inputs = keras.Input((LIST_SIZE,))
    # The scores are the inputs, so that ties stay ties.
    model = keras.Model(inputs, keras.layers.Identity()(inputs))
    expected = expected_of(data)
    metrics = metrics_of()
    model.compile(loss="mse", weighted_metrics=metrics)
    # Each size is compiled anew where that is slow.
    for batch_size in (3,) if IS_SLOW else (1, 3, 64):
        logs = model.evaluate(
            scores,
            labels,
            sample_weight=weights,
            batch_size=batch_size,
            return_dict=True,
            verbose=0,
        )
        assert {name: logs[name] for name in results_of(metrics)} == expected


def test_tf_data_keeps_the_remainder(data, backend):
    if backend != "tensorflow":
        pytest.skip("tf.data is tested where TensorFlow is the backend")
    import tensorflow as tf

    scores, labels, weights = data
    dataset = tf.data.Dataset.from_tensor_slices((labels, scores, weights))
    metrics, expected = metrics_of(), expected_of(data)

    @tf.function(reduce_retracing=True)
    def update(*batch):
        for metric in metrics:
            metric.update_state(*batch)

    for batch_size in (3, 5, 64):
        for batch in dataset.batch(batch_size, drop_remainder=False):
            update(*batch)
        assert results_of(metrics) == expected
        for metric in metrics:
            metric.reset_state()


def test_sizes_are_rounded_up_to_few():
    assert [rounded_up(n, 8) for n in (0, 8, 9, 200, 257)] == [8, 8, 16, 256, 320]
    sizes = {rounded_up(n, 1) for n in range(1, 4097)}
    assert len(sizes) == 9 + 4 * 4
    assert all(n <= rounded_up(n, 1) <= max(2 * n - 1, 1) for n in range(1, 4097))
