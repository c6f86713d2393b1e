"""The best candidates of each query, selected exactly from a stream of blocks."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_positive,
    check_ties_broken,
    shuffle_key,
)
from keras_rank.arrays.arithmetic import as_compared, as_ranked
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue.blocks import Chunk, Queries, Score
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.shards import OpenShards, in_each_part
from keras_rank.catalogue.target_ranks import excluded_ids, keys_of_queries, open_scored
from keras_rank.lists.tensors import as_tensor, cast_finite
from keras_rank.ranking.base import item_keys


@backend.without_autograph
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
    """Returns the best of each query, of equal scores those with larger keys first."""
    found = list(in_each_part(best_of, queries, candidates, score, k))
    # On NumPy, Keras would join float32 and float64 as float32.
    dtype = np.result_type(*(x.scores for x in found))
    scores = np.concatenate([x.scores.astype(dtype) for x in found], axis=1)
    ids = np.concatenate([x.ids for x in found], axis=1)
    best = Best(*map(as_tensor, (scores, ids)))
    return best if len(found) == 1 else backend.enter(_first, queries.keys, best, k=k)


def best_of(
    queries: Queries, candidates: Candidates, score: str | Score, k: int
) -> Best:
    """The best of all candidates, or of consecutive ones, in arrays.

    A first pass keeps two more, which tell whether others equal the last of the best.
    Queries for which these are not enough are asked again, and all scores are sorted.
    """
    rows = np.arange(queries.embeddings.shape[0], dtype="int32")
    best, are_best = _one_pass(queries, candidates, score, k, rows, False)
    rows = np.flatnonzero(~are_best).astype("int32")
    if len(rows):
        of_rows, _ = _one_pass(queries, candidates, score, k, rows, True)
        for whole, part in zip(best, of_rows, strict=True):
            whole[rows] = part
    return best


def _one_pass(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    k: int,
    rows: Array,
    again: bool,
) -> tuple[Best, Array]:
    """Reads candidates once for some queries: the best, and whether they are."""
    number = int(queries.embeddings.shape[0])
    parts = list(blocks.chunks_of(rows, candidates, number, again))
    chunks = [queries.chunk(*part) for part in parts]
    most = min(k if again else k + 2, candidates.items)
    found = blocks.fold_blocks(
        candidates,
        chunks,
        score,
        blocks.step_of(_kept, again, score),
        [_nothing(asked, most) for _, asked in parts],
    )
    is_whole = most == candidates.items or again
    tensors = list[Tensor]()
    for chunk, kept in zip(chunks, found, strict=True):
        tensors += backend.enter(_finish, chunk.keys, kept, k=k, is_whole=is_whole)
    arrays = backend.read(tensors)
    scores, ids, are_best = (
        np.concatenate(arrays[i::3])[: len(rows)] for i in range(3)
    )
    return Best(scores, ids), are_best


class Kept(NamedTuple):
    """The best so far, and whether any were NaN, of shape `(queries, 1)`."""

    scores: Tensor
    ids: Tensor
    are_odd: Tensor


def _nothing(queries: int, most: int) -> Kept:
    scores = np.full((queries, most), -math.inf, "float32")
    ids, are_odd = np.full((queries, most), -1, "int32"), np.zeros((queries, 1), "bool")
    return Kept(*map(backend.to_tensor, (scores, ids, are_odd)))


def _kept(
    again: bool, score: str | Score, chunk: Chunk, block: Block, kept: Kept
) -> Kept:
    """Adds the best of a block, of any that are equal, or by all scores and keys."""
    asked, most = kept.scores.shape
    scores = blocks.scores_in(score, chunk.embeddings, block, asked)
    size = scores.shape[1]
    if callable(score) and not backend.is_concrete(scores):
        # A pass over memory: all but the graphs of TensorFlow, which a user's
        # function may need, tell NaN by an entry that is first.
        scores = as_compared(scores)
    if chunk.wanted is not None:
        column, is_here = blocks.places_in(block, chunk.wanted)
        if callable(score):
            # A user's function may keep what it returned.
            scores = ops.copy(scores)
        scores = backend.with_lowest(scores, backend.where(is_here, column, size))
    if again:
        scores = as_compared(scores)
        column = ops.broadcast_to(block.columns, (asked, size))
        values, places = _in_order(scores, block.first_id + column, chunk, most)
    else:
        values, places = backend.top_k(scores, min(most, size))
    ids = block.first_id + ops.cast(places, "int32")
    are_odd = ops.any(ops.isnan(values), axis=1, keepdims=True) | kept.are_odd
    pairs = (kept.scores, backend.without_nan(values)), (kept.ids, ids)
    scores, ids = (backend.library_of(x[0]).concatenate(x, axis=1) for x in pairs)
    scores, places = (
        _in_order(scores, ids, chunk, most) if again else backend.top_k(scores, most)
    )
    return Kept(scores, backend.take(ids, places), are_odd)


def _in_order(
    scores: Tensor, ids: Tensor, chunk: Chunk, number: int
) -> tuple[Tensor, Tensor]:
    """The first scores and their positions, of equal ones those with larger keys."""
    in_order, order = backend.sorted_descending(scores, chunk.keys_of(ids))
    return in_order[:, :number], order[:, :number]


def _finish(
    keys: Tensor | None, kept: Kept, *, k: int, is_whole: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The best k in order, and whether they are the best, or all are kept anyway."""
    scores, ids, are_odd = as_ranked(kept.scores), kept.ids, kept.are_odd[:, 0]
    are_best = ops.logical_not(are_odd)
    if not is_whole:
        last, beyond = scores[:, k - 1], scores[:, -1]
        are_best = are_best & ((beyond < last) | (last == -math.inf))
    best = _first(keys, Best(scores, ids), k=k)
    missing = [(0, 0), (0, k - best.ids.shape[1])]
    ids = backend.where(best.scores > -math.inf, best.ids, -1)
    return (
        ops.pad(best.scores, missing, constant_values=-math.inf),
        ops.pad(ids, missing, constant_values=-1),
        are_best,
    )


def _first(keys: Tensor | None, best: Best, *, k: int) -> Best:
    """The first k, of equal scores those with larger keys first."""
    scores, ids = map(as_tensor, best)
    scores, order = backend.sorted_descending(scores, item_keys(keys, ids + 1))
    return Best(scores[:, :k], backend.take(ids, order[:, :k]))
