"""How many candidates score higher than each target, or equal."""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import numpy as np
from keras import ops

from keras_rank.arrays import counting
from keras_rank.arrays.arithmetic import as_compared, rounded_up
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue.blocks import (
    Chunk,
    Queries,
    Score,
    chunks_of_queries,
    of_all,
    scores_in,
    step_of,
)
from keras_rank.catalogue.candidates import TILE, Block, Candidates, rows_of
from keras_rank.catalogue.shards import OpenShards, in_each_part
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.tensors import as_tensor

# More threads wait for each other, as Python runs between two sorts.
_MOST_THREADS = 8
# Fewer rows take longer in another thread.
_FEW_ROWS = 64


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
        in_order, wanted = np.sort(entries[i]), thresholds[i]
        below = in_order.searchsorted(wanted)
        # Few thresholds equal an entry, and only these are searched again.
        is_there = in_order.take(below, mode="clip") == wanted
        not_above = in_order.searchsorted(wanted[is_there], "right")
        tied[i, is_there] = not_above - below[is_there]
        above[i] = in_order.size - below
        above[i] -= tied[i]

    _for_each(search_row, len(entries))
    return above, tied


def search_before(
    entries: Array, thresholds: Array, keys: Array, own_keys: Array
) -> Array:
    """Counts the entries of each row that equal a threshold and have a larger key.

    Args:
        entries: array of shape `(batch, size)`, without NaN.
        thresholds: array of shape `(batch, number)`.
        keys: int32 array of the shape of the entries, or of one row for all.
        own_keys: int32 array of the shape of the thresholds.

    Returns:
        An int32 array of the shape of the thresholds.
    """
    before = np.zeros(thresholds.shape, "int32")
    keys = np.broadcast_to(keys, entries.shape)

    def search_row(i: int) -> None:
        distinct, which = np.unique(entries[i], return_inverse=True)
        pairs = np.sort((which << 32) + keys[i])
        wanted = distinct.searchsorted(thresholds[i])
        is_there = distinct.take(wanted, mode="clip") == thresholds[i]
        equal = pairs.searchsorted((wanted << 32) + 2**31)
        not_before = pairs.searchsorted((wanted << 32) + own_keys[i], "right")
        before[i] = np.where(is_there, equal - not_before, 0)

    _for_each(search_row, len(entries))
    return before


def _for_each(function: Callable[[int], None], number: int) -> None:
    """Calls a function for each row, in threads: NumPy sorts without Python's lock."""
    threads = min(os.cpu_count() or 1, _MOST_THREADS, -(-number // _FEW_ROWS))

    def for_some(first: int) -> None:
        for row in range(first, number, threads):
            function(row)

    if threads < 2:
        for_some(0)
        return
    # No threads are kept: forked processes would wait for them.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(for_some, range(threads)))


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


class Counts(NamedTuple):
    """What is counted for the targets of some queries, of shape `(queries, targets)`.

    Attributes:
        above: the number of candidates with a higher score.
        tied: the number with the same score.
        before: the number of tied ones that go first.
        scores: the scores that the targets have among the candidates, `-inf` where they
            are none of these.
    """

    above: Tensor
    tied: Tensor
    before: Tensor
    scores: Tensor

    def joined(self, other: "Counts") -> "Counts":
        """What is counted among the candidates of both."""
        return Counts(
            self.above + other.above,
            self.tied + other.tied,
            self.before + other.before,
            np.maximum(self.scores, other.scores),
        )


class Found(NamedTuple):
    """What is counted for some queries so far.

    Attributes:
        reach: the number of candidates that reach each of the least scores of a chunk.
        before: the number of tied ones that go before each target.
        scores: those of the targets and of the excluded candidates, once they came by.
    """

    reach: Tensor
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

    A target must have the same score as its own column in its block, to the last bit,
    or nothing would tie. So targets are scored in blocks of the same size, where need
    be in the same columns, and compared in the pass with their own columns. If any
    differs, the pass is repeated with the scores of the columns.

    Args:
        queries: the queries.
        candidates: the candidates.
        score: how queries score them.
        averages: whether no tied candidate goes first.
        after_block: function that is called after each block, or each part, with the
            number of candidates so far.
    """

    def pass_with(targets: Array) -> Counts:
        asked = queries._replace(targets=targets)
        counts = in_each_part(
            count_above, asked, candidates, score, averages, after_block=after_block
        )
        return cast(Counts, functools.reduce(Counts.joined, counts))

    targets = functools.reduce(
        np.maximum, in_each_part(score_targets, queries, candidates, score)
    )
    counts = pass_with(targets)
    if np.any(counts.scores != targets):
        targets = counts.scores
        counts = pass_with(targets)
        if np.any(counts.scores != targets):
            expected = "hold the same items in the same order each time they are read, "
            expected += "and `score` return the same numbers for them"
            received = "targets whose scores changed from one pass to the next"
            raise refused("candidates", expected, received)
    return Counts(*map(backend.from_host, counts))


def count_above(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Reads candidates once, and counts those above and tied with each target.

    On an accelerator, where to ask whether any tie takes long, candidates are read once
    more to order those that tie with the few targets for which any do.
    """
    in_turns = backend.on_accelerator()
    orders = not (averages or in_turns)
    counts = _one_pass(queries, candidates, score, orders, False, after_block)
    if averages or not in_turns:
        return counts
    ids, targets = _asked(queries)
    are_tied = (counts.tied > (counts.scores > -math.inf)) & (targets > -math.inf)
    if are_tied.any():
        lowest = np.full_like(targets, -math.inf)
        some = queries._replace(
            ids=np.where(are_tied, ids, np.int32(-1)),
            targets=np.where(are_tied, targets, lowest),
        )
        again = _one_pass(some, candidates, score, True, True)
        counts.before[are_tied] = again.before[are_tied]
    return counts


def _one_pass(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    orders: bool,
    again: bool,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Counts in one pass, with those that go first if ties are to be ordered."""
    # Those that follow each other are found near each other.
    order = np.argsort(-_asked(queries)[1], axis=1)
    ids, targets = (np.take_along_axis(x, order, axis=1) for x in _asked(queries))
    in_order = queries._replace(ids=ids, targets=targets)
    chunks = blocks.chunks_of_queries(in_order, candidates, again)
    compare = blocks.step_of(_compare, score, orders)
    score_block = blocks.step_of(_as_compared, score)

    def step(chunk: Chunk, block: Block, found: Found) -> Found:
        if not is_searched(chunk.ids):
            return cast(Found, compare(chunk, block, found))
        scores = ops.convert_to_numpy(score_block(chunk.embeddings, block))
        return _search(orders, _on_host(chunk), scores, block.on_host(), found)

    found = blocks.fold_blocks(
        candidates,
        [chunk for _, chunk in chunks],
        score,
        step,
        [_nothing(chunk, targets.dtype) for _, chunk in chunks],
        after_block,
    )
    parts = list[Tensor]()
    for (_, chunk), of_chunk in zip(chunks, found, strict=True):
        if is_searched(chunk.ids):
            parts += _finish(_on_host(chunk), of_chunk, orders=orders)
        else:
            parts += backend.enter(_finish, chunk, of_chunk, orders=orders)
    arrays = backend.read(parts)
    counts = list[Array]()
    for i in range(len(Counts._fields)):
        of_order = blocks.of_all(queries, chunks, arrays[i :: len(Counts._fields)])
        counts.append(np.empty_like(of_order))
        np.put_along_axis(counts[-1], order, of_order, axis=1)
    return Counts(*counts)


def _asked(queries: Queries) -> tuple[Array, Array]:
    """The ids and the scores of targets."""
    assert queries.ids is not None
    assert queries.targets is not None
    return queries.ids, queries.targets


def is_searched(targets: Tensor) -> bool:
    """Whether targets are so many that they are searched in sorted rows, on a CPU."""
    return not (backend.on_accelerator() or counting.are_few(targets))


def _on_host(chunk: Chunk) -> Chunk:
    """What is asked, in arrays."""
    arrays = (None if x is None else ops.convert_to_numpy(x) for x in chunk[1:])
    return Chunk(None, *arrays)


def _nothing(chunk: Chunk, dtype: Any) -> Found:
    """What is found before the first block."""
    found = Found(
        np.zeros(chunk.least.shape, "int32"),
        np.zeros(chunk.ids.shape, "int32"),
        np.full(chunk.wanted.shape, -math.inf, dtype),
    )
    return found if is_searched(chunk.ids) else Found(*map(backend.to_tensor, found))


def _compare(
    score: str | Score, orders: bool, chunk: Chunk, block: Block, found: Found
) -> Found:
    """Counts by comparing or, for many targets, by sorting these."""
    asked = chunk.ids.shape[0]
    scores = blocks.scores_in(score, chunk.embeddings, block, asked)
    if scores.dtype != chunk.targets.dtype:
        # Of a part of single precision, beside others of double.
        scores = ops.cast(scores, chunk.targets.dtype)
    column, is_here = blocks.places_in(block, chunk.wanted)
    known = backend.where(is_here, backend.take(scores, column), found.scores)
    if not counting.are_few(chunk.ids):
        scores = backend.without_nan(scores)
    ids = block.first_id + block.columns if orders else None
    return _with_block(chunk, scores, is_here, ids, found._replace(scores=known))


def _with_block(
    chunk: Chunk, scores: Tensor, is_here: Tensor, ids: Tensor | None, found: Found
) -> Found:
    """Adds what is counted in a block, of whose columns the ids order ties."""
    reach, before = _reach(scores, chunk), found.before
    if ids is not None:
        are_tied = _are_tied(reach, is_here[:, : chunk.ids.shape[1]], chunk)
        before = before + _before(scores, ids, chunk, are_tied)
    return Found(found.reach + reach, before, found.scores)


def _as_compared(score: str | Score, embeddings: Tensor, block: Block) -> Tensor:
    scores = blocks.scores_in(score, embeddings, block, embeddings.shape[0])
    return as_compared(scores)


def _search(
    orders: bool, chunk: Chunk, scores: Array, block: Block, found: Found
) -> Found:
    """Counts by searching, in arrays."""
    column, is_here = blocks.places_in(block, chunk.wanted)
    rows, places = np.nonzero(is_here)
    found.scores[rows, places] = scores[rows, column[rows, places]]
    columns = np.arange(scores.shape[1], dtype="int32")[None, :]
    ids = block.first_id + columns if orders else None
    return _with_block(chunk, scores, is_here, ids, found)


def _finish(chunk: Chunk, found: Found, *, orders: bool) -> Counts:
    """What is counted, without what is excluded."""
    number, (reach, before, scores) = chunk.ids.shape[1], found
    if not is_searched(chunk.ids):
        scores = as_compared(scores)
    own, excluded = scores[:, :number], scores[:, number:]
    if excluded.shape[1]:
        are_tied = _are_tied(reach, own > -math.inf, chunk)
        reach = reach - _reach(excluded, chunk)
        if orders:
            before = before - _before(
                excluded, chunk.wanted[:, number:], chunk, are_tied
            )
    above, not_below = reach[:, :number], reach[:, number:]
    return Counts(above, not_below - above, before, own)


def _reach(scores: Tensor, chunk: Chunk) -> Tensor:
    """Counts the scores of each query that reach each of the least ones."""
    if is_searched(chunk.ids):
        above, tied = search(scores, chunk.targets)
        return np.concatenate([above, above + tied], axis=1)
    compares = counting.are_few(chunk.ids)
    return counting.count_at_least(scores, chunk.least, compares)


def _are_tied(reach: Tensor, is_own: Tensor, chunk: Chunk) -> Tensor:
    """Whether others tie with a target."""
    number = chunk.ids.shape[1]
    tied = reach[:, number:] - reach[:, :number]
    is_tied = (tied > 1) | ((tied == 1) & ~is_own)
    return is_tied & (chunk.targets > -math.inf)


def _before(scores: Tensor, ids: Tensor, chunk: Chunk, are_tied: Tensor) -> Tensor:
    """Counts the scores of some ids that tie with each target, and go first."""
    if is_searched(chunk.ids):
        return _before_by_searching(scores, ids, chunk, are_tied)

    def count() -> Tensor:
        keys = ops.broadcast_to(chunk.keys_of(ids), ops.shape(scores))
        own_keys = chunk.keys_of(chunk.ids)
        return counting.count_before(scores, chunk.targets, keys, own_keys, "int32")

    if backend.on_accelerator():
        return count()
    nothing = ops.zeros_like(chunk.ids)
    is_none = ops.logical_not(ops.any(are_tied))
    return backend.branch(is_none, lambda: nothing, count)


def _before_by_searching(
    scores: Array, ids: Array, chunk: Chunk, are_tied: Array
) -> Array:
    """The same in arrays, for the queries with ties."""
    before: Array = np.zeros_like(chunk.ids)
    rows = np.flatnonzero(are_tied.any(axis=1))
    if len(rows):
        some = Chunk(*(None if x is None else x[rows] for x in chunk))
        ids = ids if len(ids) == 1 else ids[rows]
        keys, own_keys = some.keys_of(ids), some.keys_of(some.ids)
        before[rows] = search_before(scores[rows], some.targets, keys, own_keys)
    return before
