"""Rankings of lists by scores, their ties, and the keys that break ties."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_rank.arrays.hashing import hash_numbers
from keras_rank.arrays.ordering import Order, TieGroups, add_subtopic_axis
from keras_rank.arrays.selection import is_full_size, largest_values, limit_to_size
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Result
from keras_rank.lists.item_lists import Lists

Ties = Literal["shuffle", "stable", "average", "worst", "best"]
# The treatments of ties that order tied items by their labels.
TIE_BOUNDS: tuple[Ties, ...] = ("worst", "best")
# The treatments of ties for which tied items of targets are only counted.
COUNTED_TIES: tuple[Ties, ...] = ("average", *TIE_BOUNDS)


class OrderSpec(NamedTuple):
    """A specification of a ranking: the treatment of ties and the number of ranks.

    Attributes:
        is_for_targets: whether the lists hold only the relevant items.
        ties: the treatment of tied items: `"shuffle"`, `"stable"` (the order of the
            list), `"worst"` (the lowest labels first), `"best"` (the highest labels
            first) or `"average"` (see `Ranking.take`).
        k: the number of ranks, or `None` for all ranks.
    """

    is_for_targets: bool
    ties: Ties
    k: int | None

    @property
    def is_stepwise(self) -> bool:
        """Whether the ranking is computed in several programs.

        With averaged ties and no cutoff, the number of listed ranks of targets depends
        on values, as all ranks could be too many. A single program can't compute the
        size of a tensor from values.
        """
        return self.is_for_targets and self.ties == "average" and self.k is None

    def run_step(
        self, function: Callable[..., Result], /, *tensors: Any, **static: Any
    ) -> Result:
        """Returns the result of a function, run as one program if `is_stepwise`."""
        if self.is_stepwise:
            return backend.run_program(function, *tensors, **static)
        return function(*tensors, **static)


def list_keys(key: Tensor | int, first_list: Tensor | int, has_items: Tensor) -> Tensor:
    """Returns pseudorandom int32 keys of lists, a function of the seed and the list.

    Args:
        key: the key of the seed, from `fold_seed`.
        first_list: the number of lists before this batch.
        has_items: boolean tensor of shape `(batch,)`. Lists without items are not
            counted.

    Returns:
        An int32 tensor of shape `(batch,)`.
    """
    list_numbers = first_list + ops.cumsum(ops.cast(has_items, "int32")) - 1
    return hash_numbers(list_numbers, backend.constant(key, list_numbers))


def item_keys(list_keys: Tensor | None, item_index: Tensor) -> Tensor:
    """Returns int32 keys of items. Of tied items, those with larger keys precede.

    Pseudorandom keys are a function of the seed, the list and the item. Lists and items
    are counted without padding, so that padding doesn't change the keys.

    Args:
        list_keys: int32 tensor of shape `(batch,)`, from the function `list_keys`, or
            `None` to keep tied items in the order of the list.
        item_index: int32 tensor of shape `(batch, list_size)` or `(1, list_size)`:
            1, 2, 3, ... for the items of a list.

    Returns:
        An int32 tensor of shape `(batch, list_size)`.
    """
    if list_keys is None:
        return -item_index
    keys = hash_numbers(item_index, list_keys[:, None])
    # Keys are negated to sort them, and the lowest int32 has no negative.
    return backend.maximum(keys, backend.INT32_MIN + 1)


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """A ranking of each list: the items at its first `depth` ranks.

    A formula reads a ranking as a sequence of groups of tied items. If ties are broken,
    at random or by position, each group has one item.

    Attributes:
        order: the order of the items, or `None` if the targets are already in order.
        occupied: boolean tensor of shape `(batch, depth)`. Whether a rank has an item.
            Items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ... For sparse labels, tensor of
            shape `(batch, targets)`: the ranks of the targets.
        cutoff: the number of ranks that count: k, or the size of the list.
        ideal_ranks: tensor of one dimension. The ranks of the ideal order: 1, 2, 3, ...
            up to the cutoff.
        ties: the groups of tied items if ties are averaged, otherwise `None`.
        whole: the ranking before it was cut at `k`, or `None` if it was not cut.
        largest_k: the largest cutoff of several rankings that are cut from one ranking,
            or `None`. The ideal order is computed up to this cutoff.
        tie_bound: `"worst"` or `"best"` if tied items are ordered by their labels,
            otherwise `None`.
    """

    order: Order | None
    occupied: Tensor
    ranks: Tensor
    cutoff: Tensor | int
    ideal_ranks: Tensor
    ties: TieGroups | None = None
    whole: "Ranking | None" = None
    largest_k: int | None = None
    tie_bound: Ties | None = None

    def cut(self, k: int | None, largest_k: int | None = None) -> "Ranking":
        """Returns the first k ranks, which share the results cached for all ranks.

        Args:
            k: the cutoff, or `None` for all ranks.
            largest_k: the largest cutoff of all rankings that are cut from this one.
        """
        if k is None or is_full_size(k, self.cutoff):
            return self
        return dataclasses.replace(
            self,
            cutoff=limit_to_size(k, self.cutoff),
            whole=self.uncut,
            largest_k=largest_k or k,
            **self._cut(k),
        )

    def _cut(self, k: int) -> dict[str, Any]:
        """Returns the values of the fields that differ if the ranking is cut at `k`."""
        ranks = self.ranks[:k]
        return {
            "order": None if self.order is None else self.order.cut(k),
            "occupied": self.occupied[:, :k],
            "ranks": ranks,
            "ideal_ranks": ranks,
            "ties": None if self.ties is None else self.ties.cut(k),
        }

    @property
    def uncut(self) -> "Ranking":
        """The ranking before it was cut at `k`."""
        return self if self.whole is None else self.whole

    @property
    def is_largest(self) -> bool:
        """Whether the cutoff of this ranking is the largest of several cutoffs."""
        is_static = isinstance(self.cutoff, int)
        return self.largest_k is None or (is_static and self.largest_k == self.cutoff)

    @property
    def ideal_depth(self) -> Tensor | int:
        """The number of ranks of the ideal order that several cutoffs share."""
        if self.largest_k is None:
            return self.cutoff
        return limit_to_size(self.largest_k, self.uncut.cutoff)

    def up_to_cutoff(self, values_by_rank: Tensor) -> Tensor:
        """Returns the values at ranks up to the cutoff, of values at uncut ranks."""
        return (
            values_by_rank if self.whole is None else values_by_rank[..., : self.cutoff]
        )

    def take(self, values: Tensor) -> Tensor:
        """Returns the values of the items by rank, 0 for a rank without an item.

        If ties are averaged, the result is the mean over the tied items. The mean is
        the expected value at the rank if the tied items are shuffled.

        Args:
            values: tensor of shape `(batch, list_size)`, or
                `(batch, subtopics, list_size)`.

        Returns:
            A tensor of shape `(batch, depth)`, or `(batch, subtopics, depth)`.
        """
        if self.whole is not None:
            return self.up_to_cutoff(self.whole.take(values))
        return self.averaged(self.in_order(values), lambda: values)

    def in_order(self, values: Tensor) -> Tensor:
        """Returns the values of the items by rank, without averaging over ties."""
        if self.order is not None:
            values = self.order.take(values)
        return backend.where(add_subtopic_axis(self.occupied, values), values, 0.0)

    def averaged(self, by_rank: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """Returns the values by rank, averaged over tied items if ties are averaged.

        Args:
            by_rank: the values of the items by rank.
            values: function that returns the values of all items in the order of the
                list.
        """
        return by_rank if self.ties is None else self.ties.mean(by_rank, values)

    def best(self, values: Tensor) -> Tensor:
        """Returns the largest values of each list in descending order.

        Args:
            values: tensor of shape `(batch, list_size)`.

        Returns:
            A tensor of shape `(batch, cutoff)`: the values in the ideal order.
        """
        return largest_values(values, self.cutoff)

    @property
    def averages(self) -> bool:
        """Whether ties are averaged."""
        return self.ties is not None

    @property
    def no_ties(self) -> Tensor | bool:
        """Whether no items are tied, or ties are broken."""
        return self.ties is None or self.ties.has_no_ties

    @property
    def group_sizes(self) -> Tensor:
        """The number of items in the group of tied items at each rank.

        The shape is `(batch, depth)`. The value is 1 if ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.sizes

    @property
    def places(self) -> Tensor:
        """The position of each rank in its group of tied items: 1, 2, ..., group size.

        The shape is `(batch, depth)`. The value is 1 if ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.places

    def tied_items(self, lists: Lists, values: Tensor) -> "TiedItems":
        """Returns the items and their values in the order of their tied groups.

        Args:
            lists: the lists.
            values: tensor of shape `(batch, list_size)`. If the lists hold only
                targets, all other items have the value 0.
        """
        raise NotImplementedError

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        """Returns the weight of ordered pairs, of ordered or tied pairs, and of all.

        Args:
            lists: the lists.
            labels: tensor of shape `(batch, list_size)`, infinite for padding.
        """
        raise NotImplementedError


class TiedItems(NamedTuple):
    """Items in the order of their groups, as tensors of shape `(batch, items)`.

    Attributes:
        values: the value of each item.
        above: the number of items with a higher score.
        group_size: the number of items in the group.
        place: the position of the item in its group: 1, 2, ...
        is_first: whether the item is the first one of its group that is listed.
        has_zeros_first: whether each group starts with items of value 0 that are not
            listed.
        num_items: the number of items in groups up to the cutoff.
    """

    values: Tensor
    above: Tensor
    group_size: Tensor
    place: Tensor
    is_first: Tensor
    has_zeros_first: bool
    num_items: Tensor | int
