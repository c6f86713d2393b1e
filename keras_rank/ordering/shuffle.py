"""The shuffle of tied items: a hash, the same on every backend."""

import hashlib

from keras import ops

from keras_rank.arithmetic import Tensor, at_least
from keras_rank.ordering.backends import INT32_MIN, constant


def shuffle_keys(list_keys: Tensor, item_numbers: Tensor) -> Tensor:
    """Random int32 numbers, a function of the seed, the list and the item alone.

    Lists and items are counted without padding, so that padding changes nothing.
    Counters are hashed instead of numbers drawn: Keras's generators give another
    stream on each backend, stand still inside a metric on JAX, and can't be drawn
    from inside `ops.cond`.

    Args:
        list_keys: int32 tensor of shape `(batch,)`, of `list_keys`.
        item_numbers: int32 tensor of shape `(batch, list_size)` or `(1, list_size)`:
            1, 2, 3, ... for the items of a list.

    Returns:
        An int32 tensor of shape `(batch, list_size)`.
    """
    keys = _mix(_mix(item_numbers) ^ list_keys[:, None])
    # The lowest number has no negative, which keys are sorted by.
    return at_least(keys, INT32_MIN + 1)


def list_keys(key: int, has_items: Tensor, first_list: Tensor | int) -> Tensor:
    """Random int32 numbers, a function of the seed and the list.

    Args:
        key: the key of the seed, from `key_of`.
        has_items: boolean tensor of shape `(batch,)`. The lists that count.
        first_list: the number of lists before this batch.

    Returns:
        An int32 tensor of shape `(batch,)`.
    """
    list_numbers = first_list + ops.cumsum(ops.cast(has_items, "int32")) - 1
    return _mix(_mix(list_numbers) ^ constant(key, list_numbers))


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
