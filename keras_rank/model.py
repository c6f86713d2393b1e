"""A Keras model that takes a mask beside the labels."""

from typing import Any

import keras
from keras import ops

from keras_rank.utils import mask_labels


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingModel(keras.Model):
    """A `keras.Model` whose `y` may be `{"labels": ..., "mask": ...}`.

    Keras passes a `y` of two parts to the loss and the metrics of a single output in
    a way that drops the mask or fails. This model folds it into the labels first: -1
    where the mask is False, which is no item to the metrics here and to the ranking
    losses of keras-rs. It does so in `fit`, `evaluate` and `train_on_batch`, for the
    loss and all metrics, weighted or not. Everything else is as in `keras.Model`:
    make it of inputs and outputs, or subclass it and write `call`.

    With several outputs, the `y` of each may be such a dict.

    Args:
        inputs: as of `keras.Model`.
        outputs: as of `keras.Model`.
        name: as of `keras.Model`.

    Raises:
        ValueError: if `y` has keys beside `"labels"` and `"mask"`.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> inputs = keras.Input((3, 2))
    >>> outputs = keras.layers.Reshape((3,))(keras.layers.Dense(1)(inputs))
    >>> model = keras_rank.RankingModel(inputs, outputs)
    >>> model.compile(loss="mse", metrics=[keras_rank.metrics.NDCG(k=2)])
    >>> x = np.ones((4, 3, 2), "float32")
    >>> y = {"labels": np.eye(4, 3), "mask": np.ones((4, 3), bool)}
    >>> sorted(model.evaluate(x, y, return_dict=True, verbose=0))
    ['loss', 'ndcg@2']
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "RankingModel":
        if cls is RankingModel and (len(args) >= 2 or "outputs" in kwargs):
            cls = FunctionalRankingModel
        model: RankingModel = super().__new__(cls, *args, **kwargs)
        return model

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains the model, as `keras.Model.fit`; `y` may be a dict with a mask."""
        if isinstance(kwargs.get("validation_data"), tuple | list):
            x_val, *rest = kwargs["validation_data"]
            kwargs["validation_data"] = (
                x_val,
                *map(_folded_array, rest[:1]),
                *rest[1:],
            )
        return super().fit(x, _folded_array(y), *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model, as `keras.Model.evaluate`; `y` may have a mask."""
        return super().evaluate(x, _folded_array(y), *args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains on a batch, as `keras.Model.train_on_batch`; `y` may have a mask."""
        return super().train_on_batch(x, _folded_array(y), *args, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Tests on a batch, as `keras.Model.test_on_batch`; `y` may have a mask."""
        return super().test_on_batch(x, _folded_array(y), *args, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the loss of labels of -1 where the mask is False."""
        return super().compute_loss(
            x, _folded(y), y_pred, sample_weight, training=training
        )

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        """Computes the metrics of labels of -1 where the mask is False."""
        return super().compute_metrics(x, _folded(y), y_pred, sample_weight)


# Keras makes a model of inputs and outputs by changing the bases of its class, which
# would make every other subclass of `RankingModel` such a model too. A class of its
# own, which has the right bases from the start, keeps them apart. Keras does not
# export the base, but tells it.
_identity = keras.Input((1,), name="identity")
_Functional = type(keras.Model(_identity, _identity, name="identity"))


@keras.saving.register_keras_serializable(package="keras_rank")
class FunctionalRankingModel(RankingModel, _Functional):  # type: ignore[misc,valid-type]
    """What `RankingModel(inputs, outputs)` makes."""


def _folded_array(y: Any) -> Any:
    """Folds what is given as arrays before Keras takes a dict for several outputs.

    It would accept only weights of whole lists then.
    """
    if not isinstance(y, dict):
        return y
    return keras.tree.map_structure(ops.convert_to_numpy, _folded(y))


def _folded(y: Any) -> Any:
    """Writes each mask into the labels beside it."""
    if not isinstance(y, dict):
        return y
    if "labels" not in y and "mask" not in y:
        return {output: _folded(part) for output, part in y.items()}
    unknown = sorted(set(y) - {"labels", "mask"})
    if unknown or "labels" not in y:
        raise ValueError(
            '`y` should be labels, or a dict with the keys "labels" and "mask" '
            f"(optional). Received: y with the keys {sorted(y)}"
        )
    return mask_labels(y["labels"], y["mask"]) if "mask" in y else y["labels"]
