"""Which tied item goes first: the earlier one, or one drawn by a hash."""

from typing import Literal

from keras import ops

from keras_rank.arrays.hashing import hashed
from keras_rank.backends import Tensor, backend

Ties = Literal["shuffle", "stable", "average"]


def list_keys(key: Tensor | int, first_list: Tensor | int, has_items: Tensor) -> Tensor:
    """Random int32 numbers, a function of the seed and the list.

    Args:
        key: the key of the seed, from `key_of_seed`.
        first_list: the number of lists before this batch.
        has_items: boolean tensor of shape `(batch,)`. The lists that count.

    Returns:
        An int32 tensor of shape `(batch,)`.
    """
    list_numbers = first_list + ops.cumsum(ops.cast(has_items, "int32")) - 1
    return hashed(list_numbers, backend.constant(key, list_numbers))


def item_keys(list_keys: Tensor | None, item_index: Tensor) -> Tensor:
    """Int32 keys, larger ones first: random, or by position.

    Random ones are a function of the seed, the list and the item alone. Lists and items
    are counted without padding, so that padding changes nothing.

    Args:
        list_keys: int32 tensor of shape `(batch,)`, of `list_keys`, or `None` if the
            earlier item goes first.
        item_index: int32 tensor of shape `(batch, list_size)` or `(1, list_size)`:
            1, 2, 3, ... for the items of a list.

    Returns:
        An int32 tensor of shape `(batch, list_size)`.
    """
    if list_keys is None:
        return -item_index
    keys = hashed(item_index, list_keys[:, None])
    # Keys are sorted by their negatives, which the lowest number lacks.
    return backend.maximum(keys, backend.INT32_MIN + 1)
