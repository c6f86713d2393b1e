"""Random int32 numbers that are a function of others, the same on every backend."""

import hashlib

import numpy as np
from keras import ops

from keras_rank.arrays.backends import Tensor


def hashed(numbers: Tensor, keys: Tensor) -> Tensor:
    """Random int32 numbers, a function of a number and a key.

    Counters are hashed instead of numbers drawn: Keras's generators give another
    stream on each backend, stand still inside a metric on JAX, and can't be drawn
    from inside `ops.cond`.

    Args:
        numbers: int32 tensor.
        keys: int32 tensor of a shape that broadcasts with it.
    """
    return _mix(_mix(numbers) ^ keys)


def _mix(x: Tensor) -> Tensor:
    """Scrambles int32 numbers, one to one (Wellons' "lowbias32").

    On int32, as unsigned numbers become int64 on torch. By operators where there are
    such on all backends, as Keras copies what it is given on NumPy.
    """
    shift = (np if isinstance(x, np.ndarray) else ops).right_shift
    # Masked, as the shift of a signed number copies its sign.
    x = (x ^ (shift(x, 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ (shift(x, 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    return x ^ (shift(x, 16) & 0xFFFF)


def key_of_seed(seed: int) -> int:
    """Folds a seed of any size into an int32."""
    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)
