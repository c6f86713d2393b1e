"""Orders the items of lists with labels for all items."""

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from keras_rank.arrays.arithmetic import (
    as_ranked,
    counted,
    highest,
    seen_maximum,
    size_of,
)
from keras_rank.arrays.hashing import unhashed
from keras_rank.arrays.ordering import Keys, best_first, highest_first, tie_groups
from keras_rank.arrays.selection import at_most_size, is_all
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import DenseLists, Lists
from keras_rank.ranking.base import (
    TIE_BOUNDS,
    Ranking,
    TiedItems,
    Ties,
    item_keys,
    list_keys,
)
from keras_rank.ranking.pairs import pairs_of_items


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class DenseRanking(Ranking):
    """A ranking of lists with labels and scores for all items."""

    def tied_items(self, lists: Lists, values: Tensor) -> TiedItems:
        assert isinstance(lists, DenseLists)
        # To the end of the group at the cutoff, which may be that of the list.
        whole = rank_dense(lists, None, "average", 0, 0)
        above = whole.ranks - whole.places
        is_in = above < backend.constant(self.cutoff, above)
        ends = backend.where(is_in, above + whole.group_sizes, 0.0)
        return TiedItems(
            values=whole.in_order(values),
            above=above,
            group_size=whole.group_sizes,
            so_far=whole.places,
            is_first=whole.places == 1.0,
            others_first=False,
            last=seen_maximum(ends, size_of(above, 1)),
        )

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        # All below the last rank are tied, at the highest of their scores.
        scores = as_ranked(lists.scores)
        if self.tie_bound is not None:
            assert isinstance(lists, DenseLists)
            scores = _untied_scores(lists, self.tie_bound)
        if not is_all(self.cutoff, size_of(scores, 1)):
            last = self.best(scores)[:, -1:]
            cut = ops.logical_and(scores < last, scores > -math.inf)
            below = highest(backend.where(cut, scores, -math.inf), keepdims=True)
            scores = backend.where(cut, below, scores)
        return pairs_of_items(labels, scores, lists.mask, lists.weights, lists.dtype)


def rank_dense(
    lists: DenseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Orders the items of lists with labels for all items."""
    scores, list_size = lists.scores, size_of(lists.scores, 1)
    depth = list_size if k is None else at_most_size(k, list_size)
    ranks = counted(1, depth, lists.dtype, like=scores)
    groups = keys = positions_of = None
    if ties == "average":
        by_rank, order, none = highest_first(scores, depth)
        groups = tie_groups(scores, by_rank, none, lists.dtype)
    else:
        if ties == "shuffle":
            given = lists.mask, key, first_list, lists.has_items
            keys, positions_of = _random_keys(*given)
        elif ties in TIE_BOUNDS:
            keys = _label_keys(lists, ties)
        by_rank, order, _ = best_first(scores, depth, keys, positions_of)
    return DenseRanking(
        order=order,
        occupied=order.occupied(by_rank, ranks, lambda: lists.retrieved),
        ranks=ranks,
        cutoff=depth,
        ideal_ranks=ranks,
        ties=groups,
        tie_bound=ties if ties in TIE_BOUNDS else None,
    )


def _label_keys(lists: DenseLists, ties: Ties) -> Keys:
    """Returns a function from positions to keys that order tied items by labels.

    The highest labels precede for `"best"`, and the lowest labels for `"worst"`. Of
    equal labels, the earlier item precedes.
    """
    labels = lists.compared_labels
    if lists.given_subtopics is not None:
        labels = ops.sum(backend.maximum(lists.given_subtopics, 0.0), axis=1)
    order = backend.argsort(-labels if ties == "best" else labels)
    item_keys = -backend.argsort(order)

    def keys(positions: Tensor | None) -> Tensor:
        return item_keys if positions is None else backend.take(item_keys, positions)

    return keys


def _untied_scores(lists: DenseLists, ties: Ties) -> Tensor:
    """Returns scores in the same order in which no items tie, `-inf` without a rank."""
    list_size = size_of(lists.scores, 1)
    _, order, _ = best_first(lists.scores, list_size, _label_keys(lists, ties))
    ranks = ops.cast(backend.argsort(order.positions), lists.dtype)
    return backend.where(lists.scores > -math.inf, -ranks, -math.inf)


def _random_keys(
    mask: Tensor, key: Tensor | int, first_list: Tensor | int, has_items: Tensor
) -> tuple[Keys, Callable[[Tensor], Tensor]]:
    """Returns a function from positions to keys that shuffle ties, and its inverse."""

    def keys(positions: Tensor | None) -> Tensor:
        index = backend.running_count(mask)
        index = index if positions is None else backend.take(index, positions)
        return item_keys(list_keys(key, first_list, has_items), index)

    def positions_of(keys: Tensor) -> Tensor:
        # The hash is one to one.
        of_lists = list_keys(key, first_list, has_items)
        index = unhashed(keys, of_lists[:, None])
        last = size_of(mask, 1) - 1
        places = ops.arange(last + 1, dtype="int32")
        of_items = backend.sort(backend.where(mask, places, last))
        # The index of padding is 0.
        return backend.take(of_items, ops.clip(index - 1, 0, last))

    return keys, positions_of
