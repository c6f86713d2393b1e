"""Pseudorandom int32 numbers by a hash, the same on every backend."""

import array
import hashlib
import random

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

_CONSTANTS = (16, 15, 0xFFFF, 0x1FFFF, 0x7FEB352D, 0x846CA68B - 2**32)


def _signed(number: int) -> int:
    return number - 2**32 * (number >= 2**31)


# The factors are the inverses of those above, modulo 2**32.
_OF_INVERSE = (
    *(16, 15, 30, 0xFFFF, 0x1FFFF, 3),
    _signed(pow(0x846CA68B, -1, 2**32)),
    _signed(pow(0x7FEB352D, -1, 2**32)),
)


def hashed(numbers: Tensor, keys: Tensor) -> Tensor:
    """Pseudorandom int32 numbers, a function of a number and a key.

    Counters are hashed, as Keras's generators give a different stream on each backend,
    don't advance inside a metric on JAX, and can't be used inside `ops.cond`.

    Args:
        numbers: int32 tensor.
        keys: int32 tensor of a shape that broadcasts with it.
    """
    constants = [backend.constant(number, numbers) for number in _CONSTANTS]
    n16, n15, low16, low17, first, second = constants

    def mixed(x: Tensor) -> Tensor:
        """Scrambles numbers, one to one (Wellons' "lowbias32").

        On int32, as unsigned numbers become int64 on torch. By operators where all
        backends have them, as Keras copies its inputs on NumPy.
        """
        shift = (np if isinstance(x, np.ndarray) else ops).right_shift
        # Masked, as shifting a signed number copies its sign. In place where that can
        # be, as memory takes longer to get than to write.
        x = x ^ (shift(x, n16) & low16)
        x *= first
        x ^= shift(x, n15) & low17
        x *= second
        x ^= shift(x, n16) & low16
        return x

    return mixed(mixed(numbers) ^ keys)


def unhashed(hashes: Tensor, keys: Tensor) -> Tensor:
    """Returns the numbers whose hashes are given: the inverse of `hashed`."""
    constants = [backend.constant(number, hashes) for number in _OF_INVERSE]
    n16, n15, n30, low16, low17, low2, first, second = constants
    shift = ops.right_shift

    def unmixed(x: Tensor) -> Tensor:
        x = (x ^ (shift(x, n16) & low16)) * first
        x = (x ^ (shift(x, n15) & low17) ^ (shift(x, n30) & low2)) * second
        return x ^ (shift(x, n16) & low16)

    return unmixed(unmixed(hashes) ^ keys)


def default_seed() -> int:
    """The seed that follows from the state of Python's generator.

    `keras.utils.set_random_seed` sets that state, so that a program repeats itself. A
    draw would change what it draws next, such as the initial weights of a layer.
    """
    state = array.array("Q", random.getstate()[1]).tobytes()
    return int.from_bytes(hashlib.blake2b(state, digest_size=4).digest()) >> 1


def drawn_seed() -> int:
    """Draws a seed from Keras's global generator.

    `keras.utils.set_random_seed` resets that generator.
    """
    seed = keras.random.randint((), 0, 2**31 - 1, dtype="int32")
    return int(ops.convert_to_numpy(seed))


def key_of_seed(seed: int) -> int:
    """Folds a seed of any size into an int32."""
    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)
