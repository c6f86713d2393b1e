"""The scores of targets, before all candidates are compared with them."""

import math

import numpy as np

from keras_rank.arrays.buckets import rounded_up
from keras_rank.arrays.limits import as_compared
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.blocks import (
    Queries,
    chunks_of_queries,
    of_all,
    scores_in,
    step_of,
)
from keras_rank.catalogue.candidates import Block, Candidates, rows_of
from keras_rank.catalogue.scoring import Score
from keras_rank.catalogue.tiles import TILE
from keras_rank.lists.tensors import as_tensor


def score_targets(
    queries: Queries, candidates: Candidates, score: str | Score
) -> Array:
    """Scores targets in blocks of the same size as all others, `-inf` for padding."""
    first, size = candidates.first_id, candidates.block_size
    assert queries.ids is not None
    chunks = chunks_of_queries(queries, candidates)
    numbers = [
        queries.ids[rows, : chunk.ids.shape[1]] - first for rows, chunk in chunks
    ]
    places = [
        _places(x.clip(0, candidates.items - 1), candidates.items) for x in numbers
    ]
    known = np.unique(np.concatenate([unique for unique, _ in places]))
    # Each number of them would be compiled.
    is_rounded = backend.should_bucket(known)
    number_read = rounded_up(len(known), 1) if is_rounded else len(known)
    embeddings = candidates.rows(first + np.resize(known, number_read))
    score_block, scored = step_of(_with_scores, score), list[Tensor]()
    for (_, chunk), wanted, (unique, place) in zip(
        chunks, numbers, places, strict=True
    ):
        columns, block_numbers = _layout(unique, candidates)
        rows_known, is_wanted = np.searchsorted(known, unique), unique[place] == wanted
        found: Tensor | None = None
        for number in range(block_numbers.max() + 1):
            are_here = block_numbers == number
            rows = np.zeros(size, "int32")
            rows[columns[are_here]] = rows_known[are_here]
            block = as_tensor(rows_of(embeddings, rows))
            is_here = is_wanted & are_here[place]
            own = backend.to_tensor(np.where(is_here, columns[place], np.int32(-1)))
            with backend.full_precision():
                found = score_block(chunk.embeddings, block, own, found)
        scored.append(found)
    return of_all(queries, chunks, backend.read(scored))


def _with_scores(
    score: str | Score,
    queries: Tensor,
    embeddings: Tensor,
    own: Tensor,
    found: Tensor | None,
) -> Tensor:
    """Adds the scores of targets in a block, in columns that are 0 or more."""
    block = Block(embeddings, 0, None)
    scores = scores_in(score, queries, block, own.shape[0])
    scores = as_compared(backend.take(scores, backend.maximum(own, 0)))
    return backend.where(own >= 0, scores, -math.inf if found is None else found)


def _places(numbers: Array, end: int) -> tuple[Array, Array]:
    """The distinct of whole numbers below an end, and which of these each is."""
    if end > TILE:
        unique, place = np.unique(numbers, return_inverse=True)
        return unique, place.reshape(numbers.shape)
    # Without sorting them, in no more memory than the scores of a tile.
    table = np.zeros(end, "int32")
    table[numbers] = 1
    unique = np.flatnonzero(table)
    table[unique] = np.arange(len(unique))
    return unique, table[numbers]


def _layout(unique: Array, candidates: Candidates) -> tuple[Array, Array]:
    """The columns of distinct candidates, and the numbers of the fewest blocks."""
    index = np.arange(len(unique), dtype="int32")
    if not backend.rounds_by_column():
        return index % candidates.block_size, index // candidates.block_size
    columns = candidates.columns(unique).astype("int32")
    order = np.argsort(columns, kind="stable")
    ordered, block_numbers = columns[order], np.empty_like(index)
    block_numbers[order] = index - np.searchsorted(ordered, ordered)
    return columns, block_numbers
