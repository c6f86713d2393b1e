"""What backends do in ways of their own: `backend` has the functions of the one in use.

They are those of `generic`, the reference, in which all are documented, and in their
place those of the same name in the module of the backend. Keras has imported its
backend by then, so that module may import it at the top.
"""

import types
from typing import TYPE_CHECKING

import keras

from keras_rank.backends import generic
from keras_rank.backends.generic import Array, Tensor

_name = keras.backend.backend()
if TYPE_CHECKING:
    backend = generic
else:
    if _name == "jax":
        from keras_rank.backends import jax as _own
    elif _name == "tensorflow":
        from keras_rank.backends import tensorflow as _own
    elif _name == "torch":
        from keras_rank.backends import torch as _own
    else:
        from keras_rank.backends import numpy as _own
    backend = types.SimpleNamespace(**vars(generic) | vars(_own))

__all__ = ["Array", "Tensor", "backend"]
