"""The scores of targets, before all candidates are compared with them."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_rank.arrays.buckets import rounded_up
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.blocks import (
    TILE,
    Queries,
    chunks_of_queries,
    of_all,
    step_of,
)
from keras_rank.catalogue.candidates import Candidates
from keras_rank.catalogue.scoring import Score, check_score
from keras_rank.lists.limits import as_compared


def score_targets(
    queries: Queries, candidates: Candidates, score: str | Score
) -> Array:
    """Scores targets in blocks of the same size as all others, `-inf` for padding."""
    first, size = candidates.first_id, candidates.block_size
    chunks = chunks_of_queries(queries, size)
    numbers = [ops.convert_to_numpy(chunk.ids) - first for _, chunk in chunks]
    places = [
        _places(x.clip(0, candidates.items - 1), candidates.items) for x in numbers
    ]
    known = np.unique(np.concatenate([unique for unique, _ in places]))
    # Each number of them would be compiled.
    is_rounded = backend.should_bucket(known)
    number_read = rounded_up(len(known), 1) if is_rounded else len(known)
    embeddings = candidates.rows(first + np.resize(known, number_read))
    score_block = step_of(_score_targets, score)
    scored = list[Array]()
    for (_, chunk), wanted, (unique, place) in zip(
        chunks, numbers, places, strict=True
    ):
        columns, block_numbers = _layout(unique, candidates)
        rows_known = np.searchsorted(known, unique)
        own_columns = backend.to_tensor(columns[place])
        found: Any = -math.inf
        for number in range(block_numbers.max() + 1):
            are_here = block_numbers == number
            rows = np.zeros(size, "int32")
            rows[columns[are_here]] = rows_known[are_here]
            block = ops.take(embeddings, backend.to_tensor(rows), axis=0)
            with backend.full_precision(), backend.quiet():
                scores = score_block(chunk.embeddings, block, own_columns)
            is_here = (unique[place] == wanted) & are_here[place]
            found = np.where(is_here, ops.convert_to_numpy(scores), found)
        scored.append(found)
    return of_all(queries, chunks, scored, -math.inf)


def _score_targets(
    score: str | Score, queries: Tensor, block: Tensor, columns: Tensor
) -> Tensor:
    return as_compared(backend.take(check_score(score)(queries, block), columns))


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
