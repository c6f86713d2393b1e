"""The shuffle of tied items: a hash, the same on every backend."""

import hashlib

from keras import ops

from keras_rank.arrays.arithmetic import Tensor, at_least
from keras_rank.arrays.backends import INT32_MIN, constant


def _mix(x: Tensor) -> Tensor:
    """Scrambles int32 numbers, one to one (Wellons' "lowbias32").

    On int32, as unsigned numbers become int64 on torch. By operators where there are
    such on all backends, as Keras copies what it is given on NumPy.
    """
    x = (x ^ _logical_right_shift(x, 16)) * 0x7FEB352D
    x = (x ^ _logical_right_shift(x, 15)) * (0x846CA68B - 2**32)
    return x ^ _logical_right_shift(x, 16)


def _logical_right_shift(x: Tensor, bits: int) -> Tensor:
    """Shifts in zeros, where the shift of a signed number copies its sign."""
    return ops.right_shift(x, bits) & ((1 << (32 - bits)) - 1)


def key_of(seed: int) -> int:
    """Folds a seed of any size into an int32."""
    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)
