"""A metric that records scores, so that tests can compare metrics on equal scores.

A second call of a model may round scores differently: a CPU may use one matrix product
in a graph and another one in eager code.
"""

import keras
import numpy as np
from keras import ops


def results(*metrics):
    """Returns the results of metrics and of groups of metrics by name."""
    values = {}
    for metric in metrics:
        result = metric.result()
        values |= result if isinstance(result, dict) else {metric.name: result}
    return {name: float(value) for name, value in values.items()}


class RecordedScores(keras.metrics.Metric):
    """A metric that stores the scores of all lists since the last reset."""

    def __init__(self, lists, items, name="recorded"):
        super().__init__(name=name)
        self.stored = self.add_variable((lists, items), "zeros", dtype="float32")
        self.lists_seen = self.add_variable((), "zeros", dtype="int32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        scores = ops.cast(y_pred, "float32")
        # On torch, older versions of Keras can't slice at a position that is a tensor.
        rows = self.lists_seen.value + ops.arange(ops.shape(scores)[0], dtype="int32")
        stored = ops.scatter_update(self.stored.value, rows[:, None], scores)
        self.stored.assign(stored)
        self.lists_seen.assign(self.lists_seen + ops.shape(scores)[0])

    def result(self):
        return self.lists_seen * 1

    def scores(self):
        return np.array(ops.convert_to_numpy(self.stored.value))
