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
from keras_rank.arrays.arithmetic import comparable_scores, flush_subnormals
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue.blocks import Chunk, Queries, Score
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.shards import OpenShards, apply_to_parts
from keras_rank.catalogue.target_ranks import open_inputs, query_keys, read_excluded
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
    embeddings, opened = open_inputs(queries, candidates, score, block_size)
    number = int(embeddings.shape[0])
    if number == 0:
        return ops.zeros((0, k), dtype), ops.zeros((0, k), "int32")
    padding = np.full((number, 1), -1, "int32")
    excluded = read_excluded(exclude, padding, opened.items)
    keys = query_keys(ties, key, np.ones(number, "bool"))
    best = find_best(Queries(embeddings, None, excluded, keys), opened, score, k)
    return cast_finite(best.scores, dtype), best.ids


class Best(NamedTuple):
    """The best candidates, in arrays or tensors of shape `(queries, k)`.

    If there are fewer candidates, the rest is `-inf` and -1.
    """

    scores: Tensor
    ids: Tensor


def find_best(
    queries: Queries, candidates: Candidates | OpenShards, score: str | Score, k: int
) -> Best:
    """Returns the best candidates of each query.

    Equal scores are ordered by decreasing keys.
    """
    parts = list(apply_to_parts(find_best_in_part, queries, candidates, score, k))
    # Keras would concatenate float32 and float64 as float32 on the NumPy backend.
    dtype = np.result_type(*(x.scores for x in parts))
    scores = np.concatenate([x.scores.astype(dtype) for x in parts], axis=1)
    ids = np.concatenate([x.ids for x in parts], axis=1)
    best = Best(*map(as_tensor, (scores, ids)))
    return (
        best
        if len(parts) == 1
        else backend.run_program(_take_first, queries.keys, best, k=k)
    )


def find_best_in_part(
    queries: Queries, candidates: Candidates, score: str | Score, k: int
) -> Best:
    """Returns the best of all candidates, or of a part of them, as arrays.

    A first pass stores two more candidates, which show whether others tie with the last
    of the best. Queries for which two are not enough are searched again, and all scores
    are sorted.
    """
    rows = np.arange(queries.embeddings.shape[0], dtype="int32")
    best, is_final = _one_pass(queries, candidates, score, k, rows, False)
    rows = np.flatnonzero(~is_final).astype("int32")
    if len(rows):
        repeated, _ = _one_pass(queries, candidates, score, k, rows, True)
        for target, part in zip(best, repeated, strict=True):
            target[rows] = part
    return best


def _one_pass(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    k: int,
    rows: Array,
    is_second_pass: bool,
) -> tuple[Best, Array]:
    """Reads candidates once for some queries.

    Returns:
        The best candidates, and whether they are final.
    """
    number = int(queries.embeddings.shape[0])
    parts = list(blocks.split_rows(rows, candidates, number, is_second_pass))
    chunks = [queries.chunk(*part) for part in parts]
    num_stored = min(k if is_second_pass else k + 2, candidates.items)
    states = blocks.fold_blocks(
        candidates,
        chunks,
        score,
        blocks.compile_step(_add_block, is_second_pass, score),
        [_initial_best(num_searched, num_stored) for _, num_searched in parts],
    )
    holds_all = num_stored == candidates.items or is_second_pass
    tensors = list[Tensor]()
    for chunk, state in zip(chunks, states, strict=True):
        tensors += backend.run_program(
            _finish, chunk.keys, state, k=k, holds_all=holds_all
        )
    arrays = backend.read(tensors)
    scores, ids, is_final = (
        np.concatenate(arrays[i::3])[: len(rows)] for i in range(3)
    )
    return Best(scores, ids), is_final


class BestSoFar(NamedTuple):
    """The best candidates so far, and whether any scores were NaN.

    `has_nan` has the shape `(queries, 1)`.
    """

    scores: Tensor
    ids: Tensor
    has_nan: Tensor


def _initial_best(num_queries: int, num_stored: int) -> BestSoFar:
    scores = np.full((num_queries, num_stored), -math.inf, "float32")
    ids, has_nan = (
        np.full((num_queries, num_stored), -1, "int32"),
        np.zeros((num_queries, 1), "bool"),
    )
    return BestSoFar(*map(backend.to_tensor, (scores, ids, has_nan)))


def _add_block(
    is_second_pass: bool,
    score: str | Score,
    chunk: Chunk,
    block: Block,
    state: BestSoFar,
) -> BestSoFar:
    """Adds the best candidates of a block.

    In a first pass, any of the candidates with equal scores are stored. In a second
    pass, all scores are sorted together with their keys.
    """
    num_queries, num_stored = state.scores.shape
    scores = blocks.compute_block_scores(score, chunk.embeddings, block, num_queries)
    size = scores.shape[1]
    if callable(score) and not backend.is_concrete(scores):
        # Top-k ranks NaN first, which reveals it, except in graphs of TensorFlow. A
        # user's function may need such a graph, so NaN is replaced here, which costs a
        # pass over memory.
        scores = comparable_scores(scores)
    if chunk.tracked_ids is not None:
        column, is_in_block = blocks.locate_ids(block, chunk.tracked_ids)
        if callable(score):
            # A user's function may still use the tensor that it returned.
            scores = ops.copy(scores)
        scores = backend.set_to_lowest(scores, backend.where(is_in_block, column, size))
    if is_second_pass:
        scores = comparable_scores(scores)
        column = ops.broadcast_to(block.columns, (num_queries, size))
        values, positions = _sort_first(
            scores, block.first_id + column, chunk, num_stored
        )
    else:
        values, positions = backend.top_k(scores, min(num_stored, size))
    ids = block.first_id + ops.cast(positions, "int32")
    has_nan = ops.any(ops.isnan(values), axis=1, keepdims=True) | state.has_nan
    pairs = (state.scores, backend.replace_nan(values)), (state.ids, ids)
    scores, ids = (backend.get_library(x[0]).concatenate(x, axis=1) for x in pairs)
    scores, positions = (
        _sort_first(scores, ids, chunk, num_stored)
        if is_second_pass
        else backend.top_k(scores, num_stored)
    )
    return BestSoFar(scores, backend.take(ids, positions), has_nan)


def _sort_first(
    scores: Tensor, ids: Tensor, chunk: Chunk, number: int
) -> tuple[Tensor, Tensor]:
    """Returns the highest scores and their positions.

    Equal scores are ordered by decreasing keys.
    """
    sorted_scores, order = backend.sort_scores(scores, chunk.tie_keys(ids))
    return sorted_scores[:, :number], order[:, :number]


def _finish(
    keys: Tensor | None, state: BestSoFar, *, k: int, holds_all: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the best k in order, and whether they are final.

    The best k are final if no other candidate ties with the last one, or if all
    candidates that could tie with it are stored.
    """
    scores, ids, has_nan = (
        flush_subnormals(state.scores),
        state.ids,
        state.has_nan[:, 0],
    )
    is_final = ops.logical_not(has_nan)
    if not holds_all:
        last_score, next_score = scores[:, k - 1], scores[:, -1]
        is_final = is_final & ((next_score < last_score) | (last_score == -math.inf))
    best = _take_first(keys, Best(scores, ids), k=k)
    missing = [(0, 0), (0, k - best.ids.shape[1])]
    ids = backend.where(best.scores > -math.inf, best.ids, -1)
    return (
        ops.pad(best.scores, missing, constant_values=-math.inf),
        ops.pad(ids, missing, constant_values=-1),
        is_final,
    )


def _take_first(keys: Tensor | None, best: Best, *, k: int) -> Best:
    """Returns the best k. Equal scores are ordered by decreasing keys."""
    scores, ids = map(as_tensor, best)
    scores, order = backend.sort_scores(scores, item_keys(keys, ids + 1))
    return Best(scores[:, :k], backend.take(ids, order[:, :k]))
