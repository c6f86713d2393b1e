"""Program that uses the installed package: a metric, a function and a model."""

import importlib.metadata
import pathlib
import sys

import keras
import numpy as np

import keras_rank

labels, scores = [[3, 0, 1], [0, 2]], [[0.9, 0.5, 0.1], [0.3, 0.2]]
metric = keras_rank.metrics.NDCG(k=10)
metric.update_state(labels, scores)
assert f"{float(metric.result()):.4f}" == "0.8069"

values = keras_rank.functional.ndcg(labels, scores, k=10)
assert [f"{float(value):.4f}" for value in values] == ["0.9828", "0.6309"]

inputs = keras.Input((3, 2))
outputs = keras.layers.Reshape((3,))(keras.layers.Dense(1)(inputs))
model = keras_rank.RankingModel(inputs, outputs)
group = keras_rank.metrics.RankingMetrics(["ndcg@2", "mrr"])
model.compile(optimizer="sgd", loss="mse", metrics=[group])
x = np.ones((4, 3, 2), "float32")
y = {"labels": np.eye(4, 3), "mask": np.ones((4, 3), bool)}
if keras.backend.backend() != "numpy":
    model.fit(x, y, verbose=0)
logs = model.evaluate(x, y, return_dict=True, verbose=0)
assert sorted(logs) == ["loss", "mrr", "ndcg_at_2"]

package = pathlib.Path(keras_rank.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert (package / "py.typed").exists()
version = importlib.metadata.version("keras-rank")
assert version == keras_rank.__version__
print(f"keras-rank {version} on {keras.backend.backend()}: ok")
