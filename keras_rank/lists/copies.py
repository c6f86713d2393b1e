"""Copies of what users pass, as they may fill the same memory again."""

from typing import Any

import numpy as np
from keras import ops


def own(value: Any) -> Any:
    """Returns arrays and tensors, alone or in dicts and lists, in memory of their own.

    They have no gradients.
    """
    # Asks the class, as TensorFlow is slow to report a missing attribute.
    kind = type(value)
    # Some matrices of SciPy are dicts.
    if isinstance(value, dict) and not hasattr(kind, "tocsr"):
        return {key: own(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [own(each) for each in value]
    if hasattr(kind, "detach"):
        return value.detach().clone()
    # Tensors of JAX and TensorFlow never change.
    may_change = isinstance(value, np.ndarray) or not ops.is_tensor(value)
    return value.copy() if may_change and hasattr(kind, "copy") else value
