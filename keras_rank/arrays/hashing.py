"""Pseudorandom int32 numbers from a hash, equal on all backends, and their seeds."""

import array
import hashlib
import random

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

_CONSTANTS = (16, 15, 0xFFFF, 0x1FFFF, 0x7FEB352D, 0x846CA68B - 2**32)


def _to_int32(number: int) -> int:
    return number - 2**32 * (number >= 2**31)


# The two factors are the inverses, modulo 2**32, of the factors in `_CONSTANTS`.
_INVERSE_CONSTANTS = (
    *(16, 15, 30, 0xFFFF, 0x1FFFF, 3),
    _to_int32(pow(0x846CA68B, -1, 2**32)),
    _to_int32(pow(0x7FEB352D, -1, 2**32)),
)


def hash_numbers(numbers: Tensor, keys: Tensor) -> Tensor:
    """Returns pseudorandom int32 numbers, a function of a number and a key.

    Keras's random generators are not used: their numbers differ between backends, they
    don't advance inside a metric on JAX, and they can't be used inside `ops.cond`.

    Args:
        numbers: int32 tensor.
        keys: int32 tensor whose shape broadcasts with that of the numbers.
    """
    constants = [backend.constant(number, numbers) for number in _CONSTANTS]
    n16, n15, low16, low17, first, second = constants

    def mix(x: Tensor) -> Tensor:
        """Permutes the int32 numbers by Wellons' hash "lowbias32".

        The dtype is int32, as unsigned numbers become int64 on torch. Operators are
        used where all backends have them, as functions of Keras copy their inputs on
        NumPy.
        """
        shift = (np if isinstance(x, np.ndarray) else ops).right_shift
        # A shift of a signed number copies its sign bit, so the result is masked.
        # Operations in place save the time to allocate memory, on backends with them.
        x = x ^ (shift(x, n16) & low16)
        x *= first
        x ^= shift(x, n15) & low17
        x *= second
        x ^= shift(x, n16) & low16
        return x

    return mix(mix(numbers) ^ keys)


def unhash_numbers(hashes: Tensor, keys: Tensor) -> Tensor:
    """Returns the numbers of hashes: the inverse of `hash_numbers`."""
    constants = [backend.constant(number, hashes) for number in _INVERSE_CONSTANTS]
    n16, n15, n30, low16, low17, low2, first, second = constants
    shift = ops.right_shift

    def unmix(x: Tensor) -> Tensor:
        x = (x ^ (shift(x, n16) & low16)) * first
        x = (x ^ (shift(x, n15) & low17) ^ (shift(x, n30) & low2)) * second
        return x ^ (shift(x, n16) & low16)

    return unmix(unmix(hashes) ^ keys)


def default_seed() -> int:
    """Returns a seed that depends on the state of Python's random generator.

    `keras.utils.set_random_seed` sets that state, so that programs are reproducible.
    The state is hashed, as a draw would change the numbers that are drawn next, such as
    the initial weights of a layer.
    """
    state = array.array("Q", random.getstate()[1]).tobytes()
    return int.from_bytes(hashlib.blake2b(state, digest_size=4).digest()) >> 1


def draw_seed() -> int:
    """Draws a seed from Keras's global random generator.

    `keras.utils.set_random_seed` resets that generator, except in Keras 3.12.
    """
    seed = keras.random.randint((), 0, 2**31 - 1, dtype="int32")
    return int(ops.convert_to_numpy(seed))


def fold_seed(seed: int) -> int:
    """Returns the hash of a seed of any size as an int32: the key of the seed."""
    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)
