"""Rankings of lists that have labels and scores for all items."""

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from keras_rank.arrays.arithmetic import (
    axis_size,
    flush_subnormals,
    inclusive_range,
    max_or_bound,
    max_over_axis,
)
from keras_rank.arrays.hashing import unhash_numbers
from keras_rank.arrays.ordering import (
    KeyFunction,
    find_tie_groups,
    select_best,
    select_highest,
)
from keras_rank.arrays.selection import is_full_size, limit_to_size
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
from keras_rank.ranking.pairs import item_pair_weights


@backend.register_tree
@dataclasses.dataclass(frozen=True, eq=False)
class DenseRanking(Ranking):
    """A ranking of lists with labels and scores for all items."""

    def tied_items(self, lists: Lists, values: Tensor) -> TiedItems:
        assert isinstance(lists, DenseLists)
        # The group at the cutoff may extend to the end of the list, so all are ranked.
        whole = rank_dense(lists, None, "average", 0, 0)
        above = whole.ranks - whole.places
        is_before_cutoff = above < backend.constant(self.cutoff, above)
        ends = backend.where(is_before_cutoff, above + whole.group_sizes, 0.0)
        return TiedItems(
            values=whole.in_order(values),
            above=above,
            group_size=whole.group_sizes,
            place=whole.places,
            is_first=whole.places == 1.0,
            has_zeros_first=False,
            num_items=max_or_bound(ends, axis_size(above, 1)),
        )

    def pairs(self, lists: Lists, labels: Tensor) -> list[Tensor]:
        # Items below the last rank count as tied, so they get the highest of their
        # scores.
        scores = flush_subnormals(lists.scores)
        if self.tie_bound is not None:
            assert isinstance(lists, DenseLists)
            scores = _untie_scores(lists, self.tie_bound)
        if not is_full_size(self.cutoff, axis_size(scores, 1)):
            last_score = self.best(scores)[:, -1:]
            is_below = ops.logical_and(scores < last_score, scores > -math.inf)
            highest = max_over_axis(
                backend.where(is_below, scores, -math.inf), keepdims=True
            )
            scores = backend.where(is_below, highest, scores)
        return item_pair_weights(labels, scores, lists.mask, lists.weights, lists.dtype)


def rank_dense(
    lists: DenseLists,
    k: int | None,
    ties: Ties,
    key: Tensor | int,
    first_list: Tensor | int,
) -> Ranking:
    """Ranks the items of lists with labels and scores for all items.

    Args:
        lists: the lists.
        k: the number of ranks, or `None` for all ranks.
        ties: the treatment of tied items.
        key: the key of the seed, from `fold_seed`. Only used to shuffle ties.
        first_list: the number of lists before this batch. Only used to shuffle ties.
    """
    scores, list_size = lists.scores, axis_size(lists.scores, 1)
    depth = list_size if k is None else limit_to_size(k, list_size)
    ranks = inclusive_range(1, depth, lists.dtype, like=scores)
    groups = get_keys = invert_keys = None
    if ties == "average":
        by_rank, order, has_no_ties = select_highest(scores, depth)
        groups = find_tie_groups(scores, by_rank, has_no_ties, lists.dtype)
    else:
        if ties == "shuffle":
            inputs = lists.mask, key, first_list, lists.has_items
            get_keys, invert_keys = _create_key_functions(*inputs)
        elif ties in TIE_BOUNDS:
            get_keys = _create_label_keys(lists, ties)
        by_rank, order, _ = select_best(scores, depth, get_keys, invert_keys)
    return DenseRanking(
        order=order,
        occupied=order.occupied(by_rank, ranks, lambda: lists.retrieved),
        ranks=ranks,
        cutoff=depth,
        ideal_ranks=ranks,
        ties=groups,
        tie_bound=ties if ties in TIE_BOUNDS else None,
    )


def _create_label_keys(lists: DenseLists, ties: Ties) -> KeyFunction:
    """Returns a function from positions to keys that order tied items by label.

    The highest label precedes for `"best"`, and the lowest label for `"worst"`. Of
    items with equal labels, the earlier item precedes.
    """
    labels = lists.compared_labels
    if lists.given_subtopics is not None:
        labels = ops.sum(backend.maximum(lists.given_subtopics, 0.0), axis=1)
    order = backend.argsort(-labels if ties == "best" else labels)
    keys = -backend.argsort(order)

    def get_keys(positions: Tensor | None) -> Tensor:
        return keys if positions is None else backend.take(keys, positions)

    return get_keys


def _untie_scores(lists: DenseLists, ties: Ties) -> Tensor:
    """Returns scores without ties in the same order, `-inf` for unretrieved items."""
    list_size, get_keys = axis_size(lists.scores, 1), _create_label_keys(lists, ties)
    _, order, _ = select_best(lists.scores, list_size, get_keys)
    ranks = ops.cast(backend.argsort(order.positions), lists.dtype)
    return backend.where(lists.scores > -math.inf, -ranks, -math.inf)


def _create_key_functions(
    mask: Tensor, key: Tensor | int, first_list: Tensor | int, has_items: Tensor
) -> tuple[KeyFunction, Callable[[Tensor], Tensor]]:
    """Returns a function from positions to random keys, and its inverse."""

    def get_keys(positions: Tensor | None) -> Tensor:
        index = backend.running_count(mask)
        index = index if positions is None else backend.take(index, positions)
        return item_keys(list_keys(key, first_list, has_items), index)

    def invert_keys(keys: Tensor) -> Tensor:
        # The hash is a bijection of int32 numbers, so it can be inverted.
        keys_by_list = list_keys(key, first_list, has_items)
        index = unhash_numbers(keys, keys_by_list[:, None])
        last = axis_size(mask, 1) - 1
        positions = ops.arange(last + 1, dtype="int32")
        item_positions = backend.sort(backend.where(mask, positions, last))
        # Padding has the index 0, which is clipped to the first item.
        return backend.take(item_positions, ops.clip(index - 1, 0, last))

    return get_keys, invert_keys
