"""Functions that depend on the backend, as attributes of `backend`.

The module `generic` documents and implements all functions. The module of the backend
in use replaces functions of the same name. Keras has already imported the backend, so
this module may import it at the top.
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
        from keras_rank.backends import jax as _backend_module
    elif _name == "tensorflow":
        from keras_rank.backends import tensorflow as _backend_module
    elif _name == "torch":
        from keras_rank.backends import torch as _backend_module
    else:
        from keras_rank.backends import numpy as _backend_module
    backend = types.SimpleNamespace(**vars(generic) | vars(_backend_module))

__all__ = ["Array", "Tensor", "backend"]
