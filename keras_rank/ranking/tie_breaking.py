"""How lists are ordered, and which tied item goes first: the earlier, or by a hash."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_rank.arrays.hashing import hashed
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Result

Ties = Literal["shuffle", "stable", "average"]


class OrderSpec(NamedTuple):
    """Of what lists a ranking is, how it orders ties, and how many ranks it has.

    Attributes:
        of_targets: whether it ranks the relevant items only.
        ties: how tied items are ordered: `"shuffle"`, `"stable"` (by position) or
            `"average"` (not at all: see `Ranking.take`).
        k: the number of ranks, or `None` for all.
    """

    of_targets: bool
    ties: Ties
    k: int | None

    @property
    def by_steps(self) -> bool:
        """Whether the number of listed ranks depends on values, so that no program can.

        So it does for targets with averaged ties and no cutoff, as all ranks could be
        too many.
        """
        return self.of_targets and self.ties == "average" and self.k is None

    def step(
        self, function: Callable[..., Result], /, *tensors: Any, **static: Any
    ) -> Result:
        """Returns what one of these steps computes: each is a program of its own."""
        if self.by_steps:
            return backend.enter(function, *tensors, **static)
        return function(*tensors, **static)


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
