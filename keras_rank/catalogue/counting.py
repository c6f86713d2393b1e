"""One pass over the candidates: how many score higher than each target, or the same."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.arithmetic import where, within
from keras_rank.arrays.backends import (
    Tensor,
    compiled,
    full_precision,
    none_of,
    shortcut,
    take,
)
from keras_rank.arrays.counting import count
from keras_rank.catalogue.candidates import Candidates
from keras_rank.catalogue.scoring import Score, check_score
from keras_rank.lists.base import as_ranked, smallest_normal
from keras_rank.ordering.preference import item_keys

# The scores of so many queries and candidates are held at a time.
TILE = 2**21


class Queries(NamedTuple):
    """Some queries, and what is asked about them.

    Attributes:
        embeddings: tensor of shape `(queries, features)`.
        ids: int32 tensor of shape `(queries, targets)`. -1 where there is no target.
        excluded: int32 tensor of shape `(queries, n)`, or `None`. The candidates
            that take no rank, -1 where there is none.
        keys: int32 tensor of shape `(queries,)`, or `None` if the earlier of tied
            candidates goes first.
    """

    embeddings: Tensor
    ids: Tensor
    excluded: Tensor | None
    keys: Tensor | None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Queries":
        """Returns what a function makes of each of the tensors."""
        return Queries(*(None if x is None else function(x) for x in self))

    def at(self, rows: Tensor) -> "Queries":
        """Some of the queries."""
        return self.each(lambda x: ops.take(x, rows, axis=0))


class Counts(NamedTuple):
    """What is counted for the targets of some queries: it adds up over candidates.

    Attributes:
        above: int32 tensor of shape `(queries, targets)`. The number of candidates
            with a higher score.
        tied: int32 tensor of the same shape. That of candidates with the same score.
        before: int32 tensor of the same shape. That of the tied ones that go first.
        scores: tensor of the same shape. The scores that the targets have among the
            candidates, `-inf` where they are none of these: of parts, the maximum.
    """

    above: Tensor
    tied: Tensor
    before: Tensor
    scores: Tensor


class Columns(NamedTuple):
    """What the columns of a block stand for, as int32 scalar tensors.

    Attributes:
        first_id: the id of the first column.
        start: the first column that counts.
        end: the column after the last one that counts.
    """

    first_id: Tensor
    start: Tensor
    end: Tensor

    def hold(self, column: Tensor) -> Tensor:
        """Whether a column counts."""
        return ops.logical_and(column >= self.start, column < self.end)


class Steps(NamedTuple):
    """The compiled functions of a pass: of a whole block, and of a part of one."""

    score_targets: Callable[..., Tensor]
    count_block: Callable[..., Counts]
    count_part: Callable[..., Counts]


def steps_of(score: str | Score, averages: bool) -> Steps:
    """Compiles what is done to each block.

    Args:
        score: `"dot"`, `"cosine"`, or a function of queries and candidates.
        averages: whether ties are averaged, so that none of the tied goes first.
    """
    # A function of the user's may change with its weights, which are compiled in.
    return (_steps_kept if isinstance(score, str) else _steps_of)(score, averages)


def _steps_of(score: str | Score, averages: bool) -> Steps:
    score, is_ours = check_score(score), isinstance(score, str)

    def score_targets(queries: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
        return _compared(take(score(queries, targets), columns))

    def count_in(is_whole: bool) -> Callable[..., Counts]:
        def count_block(
            queries: Queries,
            targets: Tensor,
            counts: Counts,
            block: Tensor,
            columns: Columns,
        ) -> Counts:
            scores = score(queries.embeddings, block)
            if not is_whole:
                column = ops.arange(scores.shape[1], dtype="int32")[None, :]
                scores = where(columns.hold(column), scores, -math.inf)
            return _counted(queries, targets, counts, scores, columns, averages)

        return compiled(count_block, is_ours=is_ours)

    score_steps = compiled(score_targets, is_ours=is_ours)
    return Steps(score_steps, count_in(True), count_in(False))


_steps_kept = functools.lru_cache(maxsize=8)(_steps_of)


def count_candidates(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None],
) -> Counts:
    """Counts what is above the targets of all queries, and what is tied with them.

    Args:
        queries: all queries.
        candidates: all candidates.
        score: `"dot"`, `"cosine"`, or a function of queries and candidates.
        averages: whether ties are averaged, so that none of the tied goes first.
        after_block: called after each block, with the number of candidates so far.
    """
    steps = steps_of(score, averages)

    def make_pass(target_scores: Tensor) -> Counts:
        return count_above(queries, target_scores, candidates, steps, after_block)

    return count_by_passes(score_targets(queries, candidates, steps), make_pass)


def count_by_passes(
    target_scores: Tensor, count_above: Callable[[Tensor], Counts]
) -> Counts:
    """Counts with the scores that the targets have in a pass over all candidates.

    A candidate must have the same score as a target and in its own block, to the last
    bit, or nothing would tie. So targets are scored in blocks of the same size, and
    compared in the pass with what their own columns show. Where any differs, the pass
    is made again with those.

    Args:
        target_scores: tensor of shape `(queries, targets)`. The scores of targets.
        count_above: function that makes a pass over all candidates, given these.
    """
    counts = count_above(target_scores)
    if bool(ops.any(counts.scores != target_scores)):
        counts = count_above(counts.scores)
    return counts


def score_targets(queries: Queries, candidates: Candidates, steps: Steps) -> Tensor:
    """Scores targets in blocks of the size of all others, `-inf` where there is none.

    Args:
        queries: all queries.
        candidates: all candidates, or some that follow each other.
        steps: what is done to each block.
    """
    first, last = candidates.first_id, candidates.first_id + candidates.items - 1
    chunks = [queries.at(rows) for rows in _chunks(queries, candidates.block_size)]
    ids = [ops.convert_to_numpy(chunk.ids).clip(first, last) for chunk in chunks]
    known = np.unique(np.concatenate([x.ravel() for x in ids]))
    embeddings, size = candidates.rows(known), candidates.block_size
    scored = list[Tensor]()
    for chunk, of_chunk in zip(chunks, ids, strict=True):
        unique, place = np.unique(of_chunk, return_inverse=True)
        place = place.reshape(of_chunk.shape).astype("int32")
        scores = ops.cast(ops.zeros_like(chunk.ids), embeddings.dtype)
        for start in range(0, len(unique), size):
            rows = np.searchsorted(known, unique[start : start + size])
            rows = np.pad(rows, (0, size - len(rows)), mode="edge").astype("int32")
            block = ops.take(embeddings, ops.convert_to_tensor(rows), axis=0)
            here = ops.convert_to_tensor((place >= start) & (place < start + size))
            columns = ops.convert_to_tensor(np.clip(place - start, 0, size - 1))
            with full_precision():
                found = steps.score_targets(chunk.embeddings, block, columns)
            scores = where(here, found, ops.cast(scores, found.dtype))
        is_held = ops.convert_to_tensor(of_chunk) == chunk.ids
        scored.append(where(is_held, scores, -math.inf))
    return ops.concatenate(scored, axis=0)[: queries.ids.shape[0]]


def count_above(
    queries: Queries,
    target_scores: Tensor,
    candidates: Candidates,
    steps: Steps,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Reads candidates once, and counts those above and tied with each target.

    Args:
        queries: all queries.
        target_scores: tensor of shape `(queries, targets)`. The scores of targets.
        candidates: all candidates, or some that follow each other.
        steps: what is done to each block.
        after_block: called after each block, with the number of candidates so far.
    """
    rows = list(_chunks(queries, candidates.block_size))
    chunks = [queries.at(each) for each in rows]
    targets = [ops.take(target_scores, each, axis=0) for each in rows]
    counts = list[Counts]()
    for chunk, scores in zip(chunks, targets, strict=True):
        zero = ops.zeros_like(chunk.ids)
        counts.append(Counts(zero, zero, zero, ops.full_like(scores, -math.inf)))
    for block in candidates.blocks():
        step = steps.count_block if block.is_whole else steps.count_part
        bounds = (block.first_id, block.start, block.end)
        columns = Columns(*(ops.convert_to_tensor(x, "int32") for x in bounds))
        with full_precision():
            for i, (chunk, scores) in enumerate(zip(chunks, targets, strict=True)):
                counts[i] = step(chunk, scores, counts[i], block.embeddings, columns)
        after_block(block.first_id + block.end)
    number = int(queries.ids.shape[0])
    return Counts(
        *(ops.concatenate(x, axis=0)[:number] for x in zip(*counts, strict=True))
    )


def _chunks(queries: Queries, block_size: int) -> Iterator[Tensor]:
    """The rows of chunks of one size, of which the last one repeats a query."""
    number = int(queries.ids.shape[0])
    size = -(-number // max(1, -(-number * block_size // TILE)))
    for start in range(0, number, size):
        rows = np.minimum(np.arange(start, start + size), number - 1)
        yield ops.convert_to_tensor(rows.astype("int32"))


def _counted(
    queries: Queries,
    targets: Tensor,
    counts: Counts,
    scores: Tensor,
    columns: Columns,
    averages: bool,
) -> Counts:
    """Adds what a block has to the counts.

    Args:
        queries: the queries.
        targets: tensor of shape `(queries, targets)`. The scores of the targets.
        counts: what is counted so far.
        scores: tensor of shape `(queries, block)`.
        columns: what the columns of the scores stand for.
        averages: whether ties are averaged.
    """
    low, high = _equal_to(targets)

    def at(ids: Tensor) -> tuple[Tensor, Tensor]:
        """Whether candidates are in the block, and their scores."""
        column = ids - columns.first_id
        found = take(scores, within(column, 0, scores.shape[1] - 1))
        return ops.logical_and(columns.hold(column), ids >= 0), found

    is_own, own = at(queries.ids)
    above, not_below = count(((scores, high), (scores, low)), _is_above, _is_not_below)
    if queries.excluded is not None:
        is_out, out = at(queries.excluded)
        out = where(is_out, out, math.nan)
        out_above, out_not_below = count(
            ((out, high), (out, low)), _is_above, _is_not_below
        )
        above, not_below = above - out_above, not_below - out_not_below
    tied = not_below - above
    before = counts.before
    if not averages:

        def going_first() -> Tensor:
            numbers = columns.first_id + ops.arange(
                1, scores.shape[1] + 1, dtype="int32"
            )
            keys = item_keys(queries.keys, numbers[None, :])
            keys = ops.broadcast_to(keys, ops.shape(scores))
            own_keys = item_keys(queries.keys, queries.ids + 1)
            pairs = (_compared(scores), targets), (keys, own_keys)
            (first,) = count(pairs, _goes_first)
            if queries.excluded is None:
                return counts.before + first
            keys = item_keys(queries.keys, queries.excluded + 1)
            pairs = (_compared(out), targets), (keys, own_keys)
            return counts.before + first - count(pairs, _goes_first)[0]

        are_tied = ops.logical_and(
            tied > ops.cast(is_own, "int32"), targets > -math.inf
        )
        before = shortcut(none_of(are_tied), lambda: counts.before, going_first)
    return Counts(
        above=counts.above + above,
        tied=counts.tied + tied,
        before=before,
        scores=where(is_own, _compared(own), counts.scores),
    )


def _is_above(score: Tensor, high: Tensor, same_score: Tensor, low: Tensor) -> Tensor:
    return score > high


def _is_not_below(score: Tensor, high: Tensor, same: Tensor, low: Tensor) -> Tensor:
    return same >= low


def _goes_first(score: Tensor, target: Tensor, key: Tensor, own_key: Tensor) -> Tensor:
    return ops.logical_and(score == target, key > own_key)


def _compared(scores: Tensor) -> Tensor:
    """Scores as they are compared, `-inf` for NaN."""
    return as_ranked(where(scores > -math.inf, scores, -math.inf))


def _equal_to(targets: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest scores that are compared as equal to the targets.

    All denormal numbers are as 0, so that scores need not be rounded to be compared.
    """
    dtype = keras.backend.standardize_dtype(targets.dtype)
    near = float(np.nextafter(np.asarray(smallest_normal(targets), dtype), 0))
    is_zero = targets == 0.0
    return where(is_zero, -near, targets), where(is_zero, near, targets)
