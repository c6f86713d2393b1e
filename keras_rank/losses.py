"""Which losses take labels of -1, the padding of metrics, for labels."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.backends import backend

# How many lists are searched for padding.
_LOOKED_AT = 10_000
# The losses of Keras that count padding. To the divergence, -1 is almost 0.
_DIVERGENCE = keras.losses.KLDivergence, keras.losses.kl_divergence
_LOSSES = [
    loss
    for loss in vars(keras.losses).values()
    if callable(loss) and loss not in _DIVERGENCE
]


def losses_that_count(model: keras.Model) -> list[str]:
    """The losses, if all count padding and the model did not warn of it."""
    names = []
    for each in [] if model._has_warned else keras.tree.flatten(model.loss):
        try:
            loss = keras.losses.get(each)
        except ValueError:
            # Keras raises its own error.
            return []
        is_of_keras = loss in _LOSSES or type(loss) in _LOSSES
        if not is_of_keras or getattr(loss, "ignore_class", None) is not None:
            return []
        names.append(getattr(loss, "name", None) or loss.__name__)
    return [] if _masks(model) else names


def have_padding(y: Any) -> bool:
    """Whether labels have padding, as far as can be seen of the first lists.

    Compiled code sees none, but a mask is there for padding.
    """

    def has_padding(path: tuple[Any, ...], labels: Any) -> bool:
        is_mask, is_tensor = path[-1:] == ("mask",), ops.is_tensor(labels)
        if isinstance(labels, keras.KerasTensor) or not getattr(labels, "shape", ()):
            return is_mask
        if is_tensor and not backend.is_concrete(labels):
            return is_mask
        first = labels[:_LOOKED_AT]
        first = ops.convert_to_numpy(first) if is_tensor else np.asarray(first)
        return bool(np.any(first == (0 if is_mask else -1)))

    return any(has_padding(*each) for each in keras.tree.flatten_with_path(y))


def are_of_items(weights: Any) -> bool:
    """Whether weights are those of items, which can be 0 for padding."""
    return len(getattr(weights, "shape", ())) > 1 and weights.shape[1] != 1


def _masks(layer: keras.layers.Layer) -> bool:
    """Whether a model masks the items of its outputs, and with them Keras's losses."""
    is_mask = isinstance(layer, keras.layers.Masking)
    is_mask = is_mask or getattr(layer, "mask_zero", False)
    return is_mask or any(map(_masks, getattr(layer, "layers", ())))
