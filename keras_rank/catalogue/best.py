"""The best candidates of each query, selected exactly from a stream of blocks."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_positive,
    check_ties_broken,
    names_arguments,
    shuffle_key,
)
from keras_rank.arrays.arithmetic import none_of
from keras_rank.arrays.sorting import with_entries
from keras_rank.backends import Tensor, backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue.blocks import Queries
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.ranks import excluded_ids, keys_of_queries, open_scored
from keras_rank.catalogue.scoring import Score
from keras_rank.catalogue.shards import OpenShards, in_each_part
from keras_rank.lists.limits import as_compared, as_ranked
from keras_rank.lists.tensors import as_tensor, cast_finite
from keras_rank.ranking.tie_breaking import item_keys


@names_arguments
def top_k(
    queries: Any,
    candidates: Any,
    k: int,
    *,
    score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
    exclude: Any = None,
    shuffle_ties: ShuffleTies = False,
    seed: Seed = None,
    block_size: int | None = None,
    dtype: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the best candidates of each query, without building a matrix of scores.

    Their order agrees with `keras_rank.catalogue.rank`: with the same `shuffle_ties`
    and `seed`, a target of rank r is the r-th candidate here.

    Args:
        queries: as for `keras_rank.catalogue.rank`: of shape `(batch, features)`.
        candidates: as for `keras_rank.catalogue.rank`: of shape `(items, features)`.
        k: positive int. The number of candidates for each query.
        exclude: ids of shape `(batch, n)`, padded with -1: items that are left out,
            such as seen items. Or a sparse matrix of SciPy of shape `(batch, items)`,
            whatever values it stores.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `False`.
        dtype: `"float64"` for scores in float64. Defaults to float32.
        **arguments: as for `keras_rank.catalogue.rank`: score, seed, block_size.

    Returns:
        The scores and the ids of the best candidates, two tensors of shape
        `(batch, k)`. If there are fewer than k, the rest is `-inf` and -1.

    Raises:
        ValueError: if shapes don't match, or an id is out of range.

    Example:

    >>> queries = [[1.0, 0.0], [0.0, 1.0]]
    >>> candidates = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]
    >>> scores, ids = keras_rank.catalogue.top_k(queries, candidates, k=2)
    >>> [[int(i) for i in row] for row in ids]
    [[0, 1], [2, 1]]
    """
    k, ties = check_positive("k", k), check_ties_broken(shuffle_ties)
    key, dtype = shuffle_key(ties, seed), check_dtype(dtype)
    embeddings, found = open_scored(queries, candidates, score, block_size)
    number = int(embeddings.shape[0])
    if number == 0:
        return ops.zeros((0, k), dtype), ops.zeros((0, k), "int32")
    nothing = np.full((number, 1), -1, "int32")
    excluded = excluded_ids(exclude, nothing, found.items)
    keys = keys_of_queries(ties, key, np.ones(number, "bool"))
    best = best_among(Queries(embeddings, None, excluded, keys), found, score, k)
    return cast_finite(best.scores, dtype), best.ids


class Best(NamedTuple):
    """The best candidates so far, of shape `(queries, k)`: `-inf` and -1 for none."""

    scores: Tensor
    ids: Tensor


def best_among(
    queries: Queries, candidates: Candidates | OpenShards, score: str | Score, k: int
) -> Best:
    """Reads candidates once, and keeps the best of each query."""
    found = list(in_each_part(best_of, queries, candidates, score, k))
    if len(found) == 1:
        return Best(*map(as_tensor, found[0]))
    # On NumPy, Keras would join float32 and float64 as float32.
    dtype, join = np.result_type(*(x.scores for x in found)), blocks.step_of(_joined, k)
    parts = [Best(as_tensor(x.scores.astype(dtype)), as_tensor(x.ids)) for x in found]
    best = functools.reduce(functools.partial(join, queries.keys), parts)
    return backend.enter(_in_order, (len(best.ids), k), queries.keys, [best])


def best_of(
    queries: Queries, candidates: Candidates, score: str | Score, k: int
) -> Best:
    """Returns the best of all candidates, or of consecutive ones."""
    of_block = min(k, candidates.block_size)
    find, find_in_full = (
        blocks.step_of(_find, in_full, score, of_block) for in_full in (False, True)
    )

    def search(chunk: Queries, block: Block) -> Best:
        # A branch of one program would take XLA as long as both of them.
        if not backend.on_accelerator():
            best, are_best = find(chunk, block)
            if are_best:
                return cast(Best, best)
        return cast(Best, find_in_full(chunk, block)[0])

    number, join = int(queries.embeddings.shape[0]), blocks.step_of(_joined, k)
    rows = list(blocks.chunks_of(number, candidates.block_size))
    chunks = [queries] if len(rows) == 1 else [queries.at(each) for each in rows]
    best = blocks.fold_blocks(
        candidates, chunks, score, search, lambda chunk, *both: join(chunk.keys, *both)
    )
    return backend.enter(_in_order, (number, k), queries.keys, best)


def _find(
    in_full: bool, score: str | Score, number: int, queries: Queries, block: Block
) -> tuple[Any, ...]:
    """The best of a block, and whether they are if not all are sorted: see `_found`."""
    scores = blocks.scores_in(score, queries, block)
    if callable(score) and not backend.is_concrete(scores):
        # A pass over memory: all but the graphs of TensorFlow, which a user's
        # function may need, tell NaN by an entry that is first.
        scores = as_compared(scores)
    if queries.excluded is not None:
        size = scores.shape[1]
        # Those of other blocks are written to a column that is cut off.
        place = queries.excluded - block.first_id
        is_here = ops.logical_and(place >= 0, place < size)
        place = backend.where(is_here, place, size)
        nothing = ops.full_like(ops.cast(place, scores.dtype), -math.inf)
        widened = ops.pad(scores, [(0, 0), (0, 1)])
        scores = with_entries(widened, place, nothing)[:, :size]
    select = _found_in_full if in_full else _found
    values, places, *are_best = select(
        scores, lambda places: queries.keys_of(block.first_id + places), number
    )
    return Best(values, block.first_id + places), *are_best


def _joined(k: int, keys: Tensor | None, best: Best, found: Best) -> Best:
    scores, ids = (
        ops.concatenate(pair, axis=1) for pair in zip(best, found, strict=True)
    )

    def keys_at(places: Tensor) -> Tensor:
        return item_keys(keys, backend.take(ids, places) + 1)

    selected = scores, keys_at, min(k, scores.shape[1])
    *first, are_best = _found(*selected)
    values, order = backend.branch(
        are_best, lambda: tuple(first), lambda: _found_in_full(*selected)
    )
    return Best(values, backend.take(ids, order))


def _found(
    scores: Tensor, keys: Callable[[Tensor], Tensor], number: int
) -> tuple[Tensor, Tensor, Tensor | bool]:
    """The highest scores of each row, as they are compared, and their positions.

    Of equal scores those with larger keys are in. `scores`, of shape `(queries, size)`,
    should be without NaN in a graph of TensorFlow.

    Returns:
        The scores, the positions, and whether they are right: not where three or more
        scores are equal, of which some are in and others not, or where any is NaN.
    """
    # One more tells whether any other equals the last one. In large blocks two often
    # do by chance, and so there is another.
    values, places = backend.top_k(scores, min(number + 2, scores.shape[1]))
    values, places = as_ranked(values), ops.cast(places, "int32")
    last, following = values[:, number - 1 : number], values[:, number:]
    are_tied = ops.logical_and(following == last, last > -math.inf)

    def by_keys() -> tuple[Tensor, Tensor]:
        order = backend.lexsort(-values, -keys(places))[:, :number]
        return backend.take(values, order), backend.take(places, order)

    are_odd = ops.concatenate([ops.isnan(values), are_tied[:, 1:]], axis=1)
    values, places = backend.branch(
        none_of(are_tied),
        lambda: (values[:, :number], places[:, :number]),
        by_keys,
    )
    return values, places, none_of(are_odd)


def _found_in_full(
    scores: Tensor, keys: Callable[[Tensor], Tensor], number: int
) -> tuple[Tensor, Tensor]:
    """The same, in order, by sorting all of them."""
    in_order = as_compared(scores)
    column = ops.arange(scores.shape[1], dtype="int32")[None, :]
    all_keys = keys(ops.broadcast_to(column, ops.shape(scores)))
    order = backend.lexsort(-in_order, -all_keys)[:, :number]
    return backend.take(in_order, order), ops.cast(order, "int32")


def _in_order(
    number_and_k: tuple[int, int], keys: Tensor | None, chunks: list[Best]
) -> Best:
    """The best of all queries, of equal scores those with larger keys first.

    `chunks` are those of some queries after the other. Queries after the number in
    `number_and_k` repeat others. Rows of fewer than k are padded.
    """
    number, k = number_and_k
    scores, ids = (
        ops.concatenate(x, axis=0)[:number] for x in zip(*chunks, strict=True)
    )
    order = backend.lexsort(-scores, -item_keys(keys, ids + 1))
    scores, ids = backend.take(scores, order), backend.take(ids, order)
    ids = backend.where(scores > -math.inf, ids, -1)
    missing = [(0, 0), (0, k - scores.shape[1])]
    return Best(
        ops.pad(scores, missing, constant_values=-math.inf),
        ops.pad(ids, missing, constant_values=-1),
    )
