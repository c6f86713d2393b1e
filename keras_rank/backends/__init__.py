"""What backends do in ways of their own: `backend` has the functions of the one in use.

They are those of `generic`, the reference, in which all are documented, and in their
place those of the same name in the module of the backend. Keras has imported its
backend by then, so that module may import it at the top.
"""

import importlib
import types
from typing import TYPE_CHECKING

import keras

from keras_rank.backends import generic
from keras_rank.backends.generic import Array, Tensor

if TYPE_CHECKING:
    backend = generic
else:
    _own = importlib.import_module(f"{__name__}.{keras.backend.backend()}")
    backend = types.SimpleNamespace(**vars(generic) | vars(_own))

__all__ = ["Array", "Tensor", "backend"]
