"""The order of each list by its scores, ties, and the keys that break them."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_rank.arrays.hashing import hashed
from keras_rank.arrays.ordering import Order, TieGroups, for_all_subtopics
from keras_rank.arrays.selection import at_most_size, is_all, largest_values
from keras_rank.backends import Tensor, backend
from keras_rank.backends.generic import Result
from keras_rank.lists.item_lists import Lists

Ties = Literal["shuffle", "stable", "average", "worst", "best"]
# The treatments of ties that order tied items by their labels.
TIE_BOUNDS: tuple[Ties, ...] = ("worst", "best")
# The treatments of ties for which tied items of targets are only counted.
COUNTED_TIES: tuple[Ties, ...] = ("average", *TIE_BOUNDS)


class OrderSpec(NamedTuple):
    """Of what lists a ranking is, how it orders ties, and how many ranks it has.

    Attributes:
        of_targets: whether it ranks the relevant items only.
        ties: how tied items are ordered: `"shuffle"`, `"stable"` (by position),
            `"worst"` (lowest labels first), `"best"` (highest labels first) or
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


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """The first `depth` ranks of each list.

    A formula reads a ranking as a sequence of groups of tied items. If ties are broken,
    at random or by position, each group has one item.

    Attributes:
        order: which item is at each rank. `None` where targets are in order.
        occupied: boolean tensor of shape `(batch, depth)`. Where a rank has an
            item: items that were not retrieved have no rank.
        ranks: tensor of shape `(depth,)`: 1, 2, 3, ... For sparse labels, of shape
            `(batch, targets)`: the ranks of the targets only.
        cutoff: the number of ranks that count: k, or the size of the list.
        ideal_ranks: tensor of one dimension. The ranks of the ideal order: 1, 2, 3, ...
            up to the cutoff.
        ties: `None`, or the groups of tied items if ties are averaged.
        whole: `None`, or the ranking of which these are the first ranks.
        largest_k: `None`, or the largest cutoff of several rankings that are cut from
            one: the ideal order is computed up to it.
        tie_bound: `"worst"` or `"best"` if tied items are ordered by their labels, else
            `None`.
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
        """Returns the first k ranks, which share what is already computed.

        Args:
            k: the cutoff, `None` for all ranks.
            largest_k: the largest cutoff of all cuts.
        """
        if k is None or is_all(k, self.cutoff):
            return self
        return dataclasses.replace(
            self,
            cutoff=at_most_size(k, self.cutoff),
            whole=self.uncut,
            largest_k=largest_k or k,
            **self._cut(k),
        )

    def _cut(self, k: int) -> dict[str, Any]:
        """The other fields if there are only k ranks."""
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
        """The ranking of which these are the first ranks."""
        return self if self.whole is None else self.whole

    @property
    def is_largest(self) -> bool:
        """Whether the ideal order is computed for this ranking."""
        is_known = isinstance(self.cutoff, int)
        return self.largest_k is None or (is_known and self.largest_k == self.cutoff)

    @property
    def ideal_depth(self) -> Tensor | int:
        """The number of ranks of the ideal order that is computed for several cuts."""
        if self.largest_k is None:
            return self.cutoff
        return at_most_size(self.largest_k, self.uncut.cutoff)

    def up_to_cutoff(self, values_by_rank: Tensor) -> Tensor:
        """Of values at all ranks of the uncut ranking, those up to the cutoff."""
        return (
            values_by_rank if self.whole is None else values_by_rank[..., : self.cutoff]
        )

    def take(self, values: Tensor) -> Tensor:
        """Returns the values of the items by rank, 0 where a rank has no item.

        If ties are averaged, it is the mean over the tied items: the expected value at
        that rank if they come in random order.

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
        """Returns the values of the items at the ranks, as if none were tied."""
        if self.order is not None:
            values = self.order.of(values)
        return backend.where(for_all_subtopics(self.occupied, values), values, 0.0)

    def averaged(self, by_rank: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """Returns values in order, or the means over tied items of those of all."""
        return by_rank if self.ties is None else self.ties.mean(by_rank, values)

    def best(self, values: Tensor) -> Tensor:
        """Returns the largest values of each list, the largest first.

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
        """Whether no items are tied, as far as can be seen."""
        return self.ties is None or self.ties.none

    @property
    def group_sizes(self) -> Tensor:
        """The number of items that are tied at a rank, including its own.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.sizes

    @property
    def places(self) -> Tensor:
        """The place of a rank in its group of tied items: 1, 2, ..., group size.

        Of shape `(batch, depth)`, or 1 where ties are broken.
        """
        return 1.0 if self.ties is None else self.ties.places

    def tied_items(self, lists: Lists, values: Tensor) -> "TiedItems":
        """Returns the items with their values, one group of tied items after another.

        Args:
            lists: the lists.
            values: tensor of shape `(batch, list_size)`. 0 for all items that lists of
                targets don't hold.
        """
        raise NotImplementedError

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        """Returns the weight of ordered pairs, of ordered and tied ones, and of all.

        Args:
            lists: the lists.
            labels: tensor of shape `(batch, list_size)`, infinite where there is no
                item.
        """
        raise NotImplementedError


class TiedItems(NamedTuple):
    """Items in the order of their groups, as tensors of shape `(batch, items)`.

    Attributes:
        values: the value of an item.
        above: the number of items that score higher.
        group_size: the number of items of its group.
        so_far: the number of items of its group up to this one.
        is_first: whether it is the first of its group.
        others_first: whether items of value 0, which are not among these, are the first
            of their groups.
        last: the number of items in groups up to the cutoff.
    """

    values: Tensor
    above: Tensor
    group_size: Tensor
    so_far: Tensor
    is_first: Tensor
    others_first: bool
    last: Tensor | int
