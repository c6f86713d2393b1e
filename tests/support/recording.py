"""A metric that keeps the scores that it gets, for what others make of the same.

The scores of another call of a model may be rounded in another way: a CPU may multiply
one way in a graph, and another one in eager code.
"""

import keras
import numpy as np
from keras import ops


def results(*metrics):
    """Results by name, those of groups too."""
    found = {}
    for metric in metrics:
        result = metric.result()
        found |= result if isinstance(result, dict) else {metric.name: result}
    return {name: float(value) for name, value in found.items()}


class Recorded(keras.metrics.Metric):
    """Keeps the scores of the lists since the last reset."""

    def __init__(self, lists, items, name="recorded"):
        super().__init__(name=name)
        self.kept = self.add_variable((lists, items), "zeros", dtype="float32")
        self.lists_seen = self.add_variable((), "zeros", dtype="int32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        scores = ops.cast(y_pred, "float32")
        # On torch, older versions of Keras can't take a slice of no known place.
        rows = self.lists_seen.value + ops.arange(ops.shape(scores)[0], dtype="int32")
        self.kept.assign(ops.scatter_update(self.kept.value, rows[:, None], scores))
        self.lists_seen.assign(self.lists_seen + ops.shape(scores)[0])

    def result(self):
        return self.lists_seen * 1

    def scores(self):
        return np.array(ops.convert_to_numpy(self.kept.value))
