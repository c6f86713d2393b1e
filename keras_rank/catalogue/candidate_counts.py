"""Counts of candidates with higher and equal scores for each target."""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import numpy as np
from keras import ops

from keras_rank.arrays import counting
from keras_rank.arrays.arithmetic import comparable_scores, round_up_size
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue.blocks import (
    Chunk,
    Queries,
    Score,
    compile_step,
    compute_block_scores,
    merge_chunks,
    split_queries,
)
from keras_rank.catalogue.candidates import TILE, Block, Candidates, take_rows
from keras_rank.catalogue.shards import OpenShards, apply_to_parts
from keras_rank.lists.input_arrays import value_error
from keras_rank.lists.tensors import as_tensor

# More threads would wait for each other, as Python code runs between sorts.
_MAX_THREADS = 8
# Fewer rows take longer in an additional thread than without it.
_ROWS_PER_THREAD = 64


def search(entries: Array, thresholds: Array) -> tuple[Array, Array]:
    """Counts the entries of each row above each threshold, and those equal to it.

    Args:
        entries: array of shape `(batch, size)`, without NaN.
        thresholds: array of shape `(batch, number)`. Sorted rows are searched faster.

    Returns:
        Two int32 arrays of the shape of the thresholds.
    """
    above, tied = (np.zeros(thresholds.shape, "int32") for _ in range(2))

    def search_row(i: int) -> None:
        sorted_entries, row_thresholds = np.sort(entries[i]), thresholds[i]
        num_below = sorted_entries.searchsorted(row_thresholds)
        # Thresholds that equal an entry are searched again. There are few of them.
        is_equal = sorted_entries.take(num_below, mode="clip") == row_thresholds
        num_not_above = sorted_entries.searchsorted(row_thresholds[is_equal], "right")
        tied[i, is_equal] = num_not_above - num_below[is_equal]
        above[i] = sorted_entries.size - num_below
        above[i] -= tied[i]

    _for_each(search_row, len(entries))
    return above, tied


def search_before(
    entries: Array, thresholds: Array, keys: Array, threshold_keys: Array
) -> Array:
    """Counts the entries of each row that equal a threshold and have a larger key.

    Args:
        entries: array of shape `(batch, size)`, without NaN.
        thresholds: array of shape `(batch, number)`.
        keys: int32 array of the shape of the entries, or of one row for all.
        threshold_keys: int32 array of the shape of the thresholds.

    Returns:
        An int32 array of the shape of the thresholds.
    """
    before = np.zeros(thresholds.shape, "int32")
    keys = np.broadcast_to(keys, entries.shape)

    def search_row(i: int) -> None:
        distinct, inverse = np.unique(entries[i], return_inverse=True)
        pairs = np.sort((inverse << 32) + keys[i])
        indices = distinct.searchsorted(thresholds[i])
        is_equal = distinct.take(indices, mode="clip") == thresholds[i]
        ends = pairs.searchsorted((indices << 32) + 2**31)
        key_ends = pairs.searchsorted((indices << 32) + threshold_keys[i], "right")
        before[i] = np.where(is_equal, ends - key_ends, 0)

    _for_each(search_row, len(entries))
    return before


def _for_each(function: Callable[[int], None], number: int) -> None:
    """Calls a function for each row, in threads.

    NumPy releases Python's lock while it sorts, so threads run in parallel.
    """
    num_threads = min(os.cpu_count() or 1, _MAX_THREADS, -(-number // _ROWS_PER_THREAD))

    def call_every_nth(first: int) -> None:
        for row in range(first, number, num_threads):
            function(row)

    if num_threads < 2:
        call_every_nth(0)
        return
    # Threads end after each call: a forked process would wait for them.
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(call_every_nth, range(num_threads)))


def score_targets(
    queries: Queries, candidates: Candidates, score: str | Score
) -> Array:
    """Returns the scores of the targets, `-inf` for padding.

    Targets are scored in blocks of the size of all blocks, as other sizes may be
    rounded differently.
    """
    first, size = candidates.first_id, candidates.block_size
    assert queries.ids is not None
    chunks = split_queries(queries, candidates)
    chunk_positions = [
        queries.ids[rows, : chunk.ids.shape[1]] - first for rows, chunk in chunks
    ]
    distinct_positions = [
        _unique_with_inverse(x.clip(0, candidates.items - 1), candidates.items)
        for x in chunk_positions
    ]
    all_positions = np.unique(
        np.concatenate([unique for unique, _ in distinct_positions])
    )
    # A program is compiled for each number of embeddings, so it is rounded up.
    is_rounded = backend.should_bucket(all_positions)
    num_read = (
        round_up_size(len(all_positions), 1) if is_rounded else len(all_positions)
    )
    embeddings = candidates.read_rows(first + np.resize(all_positions, num_read))
    score_block, chunk_scores = compile_step(_add_target_scores, score), list[Tensor]()
    for (_, chunk), positions, (unique, inverse) in zip(
        chunks, chunk_positions, distinct_positions, strict=True
    ):
        columns, block_numbers = _arrange_in_blocks(unique, candidates)
        embedding_rows, is_target = (
            np.searchsorted(all_positions, unique),
            unique[inverse] == positions,
        )
        scores: Tensor | None = None
        for number in range(block_numbers.max() + 1):
            is_in_block = block_numbers == number
            rows = np.zeros(size, "int32")
            rows[columns[is_in_block]] = embedding_rows[is_in_block]
            block = as_tensor(take_rows(embeddings, rows))
            is_scored = is_target & is_in_block[inverse]
            target_columns = backend.to_tensor(
                np.where(is_scored, columns[inverse], np.int32(-1))
            )
            with backend.full_precision():
                scores = score_block(chunk.embeddings, block, target_columns, scores)
        chunk_scores.append(scores)
    return merge_chunks(queries, chunks, backend.read(chunk_scores))


def _add_target_scores(
    score: str | Score,
    queries: Tensor,
    embeddings: Tensor,
    target_columns: Tensor,
    previous_scores: Tensor | None,
) -> Tensor:
    """Adds the scores of the targets in a block, whose columns are 0 or more."""
    block = Block(embeddings, 0, None)
    scores = compute_block_scores(score, queries, block, target_columns.shape[0])
    scores = comparable_scores(backend.take(scores, backend.maximum(target_columns, 0)))
    return backend.where(
        target_columns >= 0,
        scores,
        -math.inf if previous_scores is None else previous_scores,
    )


def _unique_with_inverse(values: Array, end: int) -> tuple[Array, Array]:
    """Returns the distinct values, and the index of each value among them.

    The values are whole numbers below `end`.
    """
    if end > TILE:
        unique, inverse = np.unique(values, return_inverse=True)
        return unique, inverse.reshape(values.shape)
    # A table avoids sorting, and takes no more memory than the scores of a tile.
    table = np.zeros(end, "int32")
    table[values] = 1
    unique = np.flatnonzero(table)
    table[unique] = np.arange(len(unique))
    return unique, table[values]


def _arrange_in_blocks(positions: Array, candidates: Candidates) -> tuple[Array, Array]:
    """Returns the columns of distinct candidates, and the numbers of their blocks.

    The number of blocks is as small as the columns allow.
    """
    index = np.arange(len(positions), dtype="int32")
    if not backend.rounds_by_column():
        return index % candidates.block_size, index // candidates.block_size
    columns = candidates.columns(positions).astype("int32")
    order = np.argsort(columns, kind="stable")
    sorted_columns, block_numbers = columns[order], np.empty_like(index)
    block_numbers[order] = index - np.searchsorted(sorted_columns, sorted_columns)
    return columns, block_numbers


class Counts(NamedTuple):
    """The counts for the targets of some queries, of shape `(queries, targets)`.

    Attributes:
        above: the number of candidates with a higher score.
        tied: the number of candidates with the same score.
        before: the number of tied candidates that precede the target.
        scores: the scores of the targets among the candidates, `-inf` if they are not
            among these.
    """

    above: Tensor
    tied: Tensor
    before: Tensor
    scores: Tensor

    def merge(self, other: "Counts") -> "Counts":
        """Returns the counts among the candidates of two parts."""
        return Counts(
            self.above + other.above,
            self.tied + other.tied,
            self.before + other.before,
            np.maximum(self.scores, other.scores),
        )


class PartialCounts(NamedTuple):
    """The counts for a chunk of queries, among the candidates that were read so far.

    Attributes:
        num_reaching: the number of candidates that reach each threshold of a chunk.
        before: the number of tied candidates that precede each target.
        scores: the scores of targets and excluded candidates that were read so far.
    """

    num_reaching: Tensor
    before: Tensor
    scores: Tensor


def count_candidates(
    queries: Queries,
    candidates: Candidates | OpenShards,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None],
) -> Counts:
    """Counts the candidates above and tied with the targets of all queries.

    A target must have exactly the score that its own column has in its block, or it
    would not tie with itself. Targets are therefore scored in blocks of the same size,
    in the same columns if rounding depends on these, and compared with their own
    columns in the pass. If any score differs, the pass is repeated with the scores of
    the columns.

    Args:
        queries: the queries.
        candidates: the candidates.
        score: the name of a score, or a user's function.
        averages: whether ties are averaged, so that no tied candidate precedes.
        after_block: function that is called after each block, or each part, with the
            number of candidates so far.
    """

    def count_for(targets: Array) -> Counts:
        scored_queries = queries._replace(targets=targets)
        counts = apply_to_parts(
            count_above,
            scored_queries,
            candidates,
            score,
            averages,
            after_block=after_block,
        )
        return cast(Counts, functools.reduce(Counts.merge, counts))

    targets = functools.reduce(
        np.maximum, apply_to_parts(score_targets, queries, candidates, score)
    )
    counts = count_for(targets)
    if np.any(counts.scores != targets):
        targets = counts.scores
        counts = count_for(targets)
        if np.any(counts.scores != targets):
            expected = "hold the same items in the same order each time they are read, "
            expected += "and `score` return the same numbers for them"
            received = "targets whose scores changed from one pass to the next"
            raise value_error("candidates", expected, received)
    return Counts(*map(backend.to_program_input, counts))


def count_above(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Reads candidates once, and counts those above and tied with each target.

    On an accelerator, it takes long to read whether there are ties. Candidates are then
    read a second time to order those that tie, only for the targets with ties.
    """
    has_second_pass = backend.on_accelerator()
    should_order = not (averages or has_second_pass)
    counts = _one_pass(queries, candidates, score, should_order, False, after_block)
    if averages or not has_second_pass:
        return counts
    ids, targets = _ids_and_scores(queries)
    is_tied = (counts.tied > (counts.scores > -math.inf)) & (targets > -math.inf)
    if is_tied.any():
        lowest = np.full_like(targets, -math.inf)
        tied_queries = queries._replace(
            ids=np.where(is_tied, ids, np.int32(-1)),
            targets=np.where(is_tied, targets, lowest),
        )
        second_counts = _one_pass(tied_queries, candidates, score, True, True)
        counts.before[is_tied] = second_counts.before[is_tied]
    return counts


def _one_pass(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    should_order: bool,
    is_second_pass: bool,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Counts candidates in one pass.

    Tied candidates that precede a target are counted if `should_order`.
    """
    # Targets are sorted, as sorted thresholds are searched faster.
    order = np.argsort(-_ids_and_scores(queries)[1], axis=1)
    ids, targets = (
        np.take_along_axis(x, order, axis=1) for x in _ids_and_scores(queries)
    )
    sorted_queries = queries._replace(ids=ids, targets=targets)
    chunks = blocks.split_queries(sorted_queries, candidates, is_second_pass)
    compare = blocks.compile_step(_compare_block, score, should_order)
    score_block = blocks.compile_step(_score_block, score)

    def step(chunk: Chunk, block: Block, state: PartialCounts) -> PartialCounts:
        if not should_search(chunk.ids):
            return cast(PartialCounts, compare(chunk, block, state))
        scores = ops.convert_to_numpy(score_block(chunk.embeddings, block))
        return _search_block(
            should_order, _on_host(chunk), scores, block.on_host(), state
        )

    states = blocks.fold_blocks(
        candidates,
        [chunk for _, chunk in chunks],
        score,
        step,
        [_initial_counts(chunk, targets.dtype) for _, chunk in chunks],
        after_block,
    )
    parts = list[Tensor]()
    for (_, chunk), chunk_state in zip(chunks, states, strict=True):
        if should_search(chunk.ids):
            parts += _finish(_on_host(chunk), chunk_state, should_order=should_order)
        else:
            parts += backend.run_program(
                _finish, chunk, chunk_state, should_order=should_order
            )
    arrays = backend.read(parts)
    counts = list[Array]()
    for i in range(len(Counts._fields)):
        sorted_counts = blocks.merge_chunks(
            queries, chunks, arrays[i :: len(Counts._fields)]
        )
        counts.append(np.empty_like(sorted_counts))
        np.put_along_axis(counts[-1], order, sorted_counts, axis=1)
    return Counts(*counts)


def _ids_and_scores(queries: Queries) -> tuple[Array, Array]:
    """Returns the ids and the scores of targets."""
    assert queries.ids is not None
    assert queries.targets is not None
    return queries.ids, queries.targets


def should_search(targets: Tensor) -> bool:
    """Returns whether targets are searched in sorted rows.

    Sorting is faster for many targets on a CPU.
    """
    return not (backend.on_accelerator() or counting.is_comparison_faster(targets))


def _on_host(chunk: Chunk) -> Chunk:
    """Returns a chunk as arrays, without its embeddings."""
    arrays = (None if x is None else ops.convert_to_numpy(x) for x in chunk[1:])
    return Chunk(None, *arrays)


def _initial_counts(chunk: Chunk, dtype: Any) -> PartialCounts:
    """Returns the counts before the first block."""
    counts = PartialCounts(
        np.zeros(chunk.thresholds.shape, "int32"),
        np.zeros(chunk.ids.shape, "int32"),
        np.full(chunk.tracked_ids.shape, -math.inf, dtype),
    )
    return (
        counts
        if should_search(chunk.ids)
        else PartialCounts(*map(backend.to_tensor, counts))
    )


def _compare_block(
    score: str | Score,
    should_order: bool,
    chunk: Chunk,
    block: Block,
    state: PartialCounts,
) -> PartialCounts:
    """Adds the counts of a block, by comparing or by sorting the targets."""
    num_queries = chunk.ids.shape[0]
    scores = blocks.compute_block_scores(score, chunk.embeddings, block, num_queries)
    if scores.dtype != chunk.targets.dtype:
        # One part may have float32 scores, and another part float64 scores.
        scores = ops.cast(scores, chunk.targets.dtype)
    column, is_in_block = blocks.locate_ids(block, chunk.tracked_ids)
    tracked_scores = backend.where(
        is_in_block, backend.take(scores, column), state.scores
    )
    if not counting.is_comparison_faster(chunk.ids):
        scores = backend.replace_nan(scores)
    ids = block.first_id + block.columns if should_order else None
    return _add_block(
        chunk, scores, is_in_block, ids, state._replace(scores=tracked_scores)
    )


def _add_block(
    chunk: Chunk,
    scores: Tensor,
    is_in_block: Tensor,
    ids: Tensor | None,
    state: PartialCounts,
) -> PartialCounts:
    """Adds the counts of a block. Ties are ordered if the ids of columns are passed."""
    num_reaching, before = _count_reaching(scores, chunk), state.before
    if ids is not None:
        is_tied = _has_ties(num_reaching, is_in_block[:, : chunk.ids.shape[1]], chunk)
        before = before + _count_before(scores, ids, chunk, is_tied)
    return PartialCounts(state.num_reaching + num_reaching, before, state.scores)


def _score_block(score: str | Score, embeddings: Tensor, block: Block) -> Tensor:
    scores = blocks.compute_block_scores(score, embeddings, block, embeddings.shape[0])
    return comparable_scores(scores)


def _search_block(
    should_order: bool, chunk: Chunk, scores: Array, block: Block, state: PartialCounts
) -> PartialCounts:
    """Adds the counts of a block by searching, in arrays."""
    column, is_in_block = blocks.locate_ids(block, chunk.tracked_ids)
    rows, positions = np.nonzero(is_in_block)
    state.scores[rows, positions] = scores[rows, column[rows, positions]]
    columns = np.arange(scores.shape[1], dtype="int32")[None, :]
    ids = block.first_id + columns if should_order else None
    return _add_block(chunk, scores, is_in_block, ids, state)


def _finish(chunk: Chunk, state: PartialCounts, *, should_order: bool) -> Counts:
    """Returns the final counts, without excluded candidates."""
    num_targets, (num_reaching, before, scores) = chunk.ids.shape[1], state
    if not should_search(chunk.ids):
        scores = comparable_scores(scores)
    target_scores, excluded_scores = scores[:, :num_targets], scores[:, num_targets:]
    if excluded_scores.shape[1]:
        is_tied = _has_ties(num_reaching, target_scores > -math.inf, chunk)
        num_reaching = num_reaching - _count_reaching(excluded_scores, chunk)
        if should_order:
            before = before - _count_before(
                excluded_scores, chunk.tracked_ids[:, num_targets:], chunk, is_tied
            )
    above, not_below = num_reaching[:, :num_targets], num_reaching[:, num_targets:]
    return Counts(above, not_below - above, before, target_scores)


def _count_reaching(scores: Tensor, chunk: Chunk) -> Tensor:
    """Counts the scores of each query that reach each threshold."""
    if should_search(chunk.ids):
        above, tied = search(scores, chunk.targets)
        return np.concatenate([above, above + tied], axis=1)
    compares = counting.is_comparison_faster(chunk.ids)
    return counting.count_at_least(scores, chunk.thresholds, compares)


def _has_ties(num_reaching: Tensor, is_counted: Tensor, chunk: Chunk) -> Tensor:
    """Returns whether other candidates tie with each target."""
    num_targets = chunk.ids.shape[1]
    num_tied = num_reaching[:, num_targets:] - num_reaching[:, :num_targets]
    is_tied = (num_tied > 1) | ((num_tied == 1) & ~is_counted)
    return is_tied & (chunk.targets > -math.inf)


def _count_before(scores: Tensor, ids: Tensor, chunk: Chunk, is_tied: Tensor) -> Tensor:
    """Counts the scores of some ids that tie with each target, and precede it."""
    if should_search(chunk.ids):
        return _search_before(scores, ids, chunk, is_tied)

    def count() -> Tensor:
        keys = ops.broadcast_to(chunk.tie_keys(ids), ops.shape(scores))
        target_keys = chunk.tie_keys(chunk.ids)
        return counting.count_before(scores, chunk.targets, keys, target_keys, "int32")

    if backend.on_accelerator():
        return count()
    zeros = ops.zeros_like(chunk.ids)
    has_no_ties = ops.logical_not(ops.any(is_tied))
    return backend.branch(has_no_ties, lambda: zeros, count)


def _search_before(scores: Array, ids: Array, chunk: Chunk, is_tied: Array) -> Array:
    """Counts tied scores that precede, in arrays, for the queries with ties."""
    before: Array = np.zeros_like(chunk.ids)
    rows = np.flatnonzero(is_tied.any(axis=1))
    if len(rows):
        tied_chunk = Chunk(*(None if x is None else x[rows] for x in chunk))
        ids = ids if len(ids) == 1 else ids[rows]
        keys, target_keys = (
            tied_chunk.tie_keys(ids),
            tied_chunk.tie_keys(tied_chunk.ids),
        )
        before[rows] = search_before(
            scores[rows], tied_chunk.targets, keys, target_keys
        )
    return before
