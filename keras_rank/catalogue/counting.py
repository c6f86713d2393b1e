"""One pass over the candidates: how many score higher than each target, or equal."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

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
    sorted_pairs,
    sorted_rows,
    stable_argsort,
    take,
    without_warnings,
)
from keras_rank.arrays.counting import (
    are_few,
    count,
    count_before,
    count_before_in_order,
    counts_in_order,
)
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.scoring import Score, check_pairs, check_score
from keras_rank.lists.base import as_ranked, smallest_normal
from keras_rank.ordering.preference import item_keys

# The number of scores that are held at a time.
TILE = 2**21


class Queries(NamedTuple):
    """Some queries, their targets, and their excluded candidates.

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
    """What is counted for the targets of some queries. Counts add up over candidates.

    Attributes:
        above: int32 tensor of shape `(queries, targets)`. The number of candidates
            with a higher score.
        tied: int32 tensor of the same shape. The number with the same score.
        before: int32 tensor of the same shape. The number of tied ones that go first.
        scores: tensor of the same shape. The scores that the targets have among the
            candidates, `-inf` where they are none of these: of parts, the maximum.
    """

    above: Tensor
    tied: Tensor
    before: Tensor
    scores: Tensor


class Columns(NamedTuple):
    """Which candidates the columns of a block are, as int32 scalar tensors.

    Attributes:
        first_id: the id of the first column.
        start: the first column that counts.
        end: the column after the last one that counts.
    """

    first_id: Tensor
    start: Tensor
    end: Tensor

    @classmethod
    def of(cls, block: Block) -> "Columns":
        """Returns the columns of a block."""
        bounds = (block.first_id, block.start, block.end)
        return cls(*(ops.convert_to_tensor(x, "int32") for x in bounds))

    def hold(self, column: Tensor) -> Tensor:
        """Whether a column counts."""
        return ops.logical_and(column >= self.start, column < self.end)


class Scored(NamedTuple):
    """The scores of a block.

    Attributes:
        candidates: tensor of shape `(queries, block)`. `-inf` for those that don't
            count.
        excluded: tensor of shape `(queries, n)`, or `None`. NaN for those that are not
            in the block.
    """

    candidates: Tensor
    excluded: Tensor | None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Scored":
        """Returns what a function makes of each of the tensors."""
        return Scored(*(None if x is None else function(x) for x in self))

    def at(self, rows: Tensor) -> "Scored":
        """The scores of some of the queries."""
        return self.each(lambda x: ops.take(x, rows, axis=0))


class Steps(NamedTuple):
    """The functions of a pass, most of them compiled.

    Attributes:
        score_targets: function of embeddings of queries and of candidates, and of the
            columns of the targets among these.
        count_block: function of queries, the scores of their targets, counts, a block,
            its columns, and whether all of them count, to new counts.
        check_block: function of queries and a block, which raises if a score depends on
            others. `None` if it is known that none does.
    """

    score_targets: Callable[..., Tensor]
    count_block: Callable[..., Counts]
    check_block: Callable[..., None] | None


def steps_of(score: str | Score, averages: bool) -> Steps:
    """Compiles the steps for each block.

    Args:
        score: `"dot"`, `"cosine"`, or a function of queries and candidates.
        averages: whether ties are averaged, so that none of the tied goes first.
    """
    # A user's function may change with its weights, which compiling would freeze.
    return (_steps_kept if isinstance(score, str) else _steps_of)(score, averages)


def _steps_of(score: str | Score, averages: bool) -> Steps:
    score, is_ours = check_score(score), isinstance(score, str)

    def score_targets(queries: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
        return compared(take(score(queries, targets), columns))

    def score_block(
        queries: Queries, block: Tensor, columns: Columns, is_whole: bool
    ) -> Scored:
        scores = score(queries.embeddings, block)
        if not is_whole:
            column = ops.arange(scores.shape[1], dtype="int32")[None, :]
            scores = where(columns.hold(column), scores, -math.inf)
        if queries.excluded is None:
            return Scored(scores, None)
        is_out, out = _in_block(queries.excluded, scores, columns)
        return Scored(scores, where(is_out, out, math.nan))

    def compare_block(
        queries: Queries,
        targets: Tensor,
        counts: Counts,
        block: Tensor,
        columns: Columns,
        is_whole: bool,
    ) -> Counts:
        scored = score_block(queries, block, columns, is_whole)
        low, high = equal_to(targets)

        def above_and_not_below(scores: Tensor) -> Sequence[Tensor]:
            pairs = (scores, high), (scores, low)
            return count(pairs, _is_above, _is_not_below)

        added, are_tied = _counted(
            queries, targets, counts, scored, scored, columns, above_and_not_below
        )
        if averages:
            return added

        def going_first() -> Tensor:
            own_keys = item_keys(queries.keys, queries.ids + 1)
            pairs = _with_keys(queries, scored.each(compared), columns)
            return counts.before + _difference(
                [count_before(x, targets, key, own_keys, "int32") for x, key in pairs]
            )

        before = shortcut(none_of(are_tied), lambda: counts.before, going_first)
        return added._replace(before=before)

    def compared_block(
        queries: Queries, block: Tensor, columns: Columns, is_whole: bool
    ) -> Scored:
        return score_block(queries, block, columns, is_whole).each(compared)

    def count_sorted(
        queries: Queries,
        targets: Tensor,
        counts: Counts,
        scored: Scored,
        in_order: Scored,
        columns: Columns,
    ) -> tuple[Counts, Tensor]:
        def above_and_not_below(scores: Tensor) -> Sequence[Tensor]:
            return counts_in_order(scores, targets)

        added, are_tied = _counted(
            queries, targets, counts, scored, in_order, columns, above_and_not_below
        )
        return added, ops.any(are_tied, axis=1)

    def count_tied(
        queries: Queries, targets: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]
    ) -> Tensor:
        own_keys = item_keys(queries.keys, queries.ids + 1)
        return _difference(
            [count_before_in_order(*pair, targets, own_keys) for pair in pairs]
        )

    compile_step = functools.partial(compiled, is_ours=is_ours)
    compare_steps, score_steps = (
        of_whole_and_part(function, compile_step)
        for function in (compare_block, compared_block)
    )
    count_step, keys_step, tied_step = map(
        compile_step, (count_sorted, _with_keys, count_tied)
    )

    def sort_block(
        queries: Queries,
        targets: Tensor,
        counts: Counts,
        block: Tensor,
        columns: Columns,
        is_whole: bool,
    ) -> Counts:
        # Sorted between what is compiled, as NumPy may do so.
        scored = score_steps[is_whole](queries, block, columns)
        in_order = scored.each(sorted_rows)
        added: Counts
        added, are_tied = count_step(
            queries, targets, counts, scored, in_order, columns
        )
        rows = np.flatnonzero(ops.convert_to_numpy(are_tied))
        if averages or not len(rows):
            return added
        # Those few queries with ties, in so many rows that few sizes are compiled.
        some = np.resize(rows, 2 ** (len(rows) - 1).bit_length()).astype("int32")
        of_some = ops.convert_to_tensor(some)
        tied = queries.at(of_some)
        pairs = keys_step(tied, scored.at(of_some), columns)
        pairs = [sorted_pairs(*pair) for pair in pairs]
        first = tied_step(tied, ops.take(targets, of_some, axis=0), pairs)
        before = np.array(ops.convert_to_numpy(counts.before))
        before[rows] += ops.convert_to_numpy(first)[: len(rows)]
        return added._replace(before=ops.convert_to_tensor(before))

    def count_block(queries: Queries, targets: Tensor, *block: Any) -> Counts:
        if not are_few(targets):
            return sort_block(queries, targets, *block)
        *arguments, is_whole = block
        counts: Counts = compare_steps[is_whole](queries, targets, *arguments)
        return counts

    def check_block(queries: Queries, block: Tensor) -> None:
        check_pairs(score_all, queries.embeddings, block)

    score_all = compile_step(score)
    return Steps(
        compile_step(score_targets), count_block, None if is_ours else check_block
    )


def of_whole_and_part(
    function: Callable[..., Any], compile_step: Callable[..., Any]
) -> dict[bool, Callable[..., Any]]:
    """Compiles a function for blocks that count as a whole, and for others."""
    return {
        is_whole: compile_step(functools.partial(function, is_whole=is_whole))
        for is_whole in (True, False)
    }


_steps_kept = functools.lru_cache(maxsize=8)(_steps_of)


def count_candidates(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None],
) -> Counts:
    """Counts the candidates above and tied with the targets of all queries.

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

    A target must have the same score as its own column in its block, to the last bit,
    or nothing would tie. So targets are scored in blocks of the same size, and compared
    in the pass with their own columns. If any differs, the pass is repeated with the
    scores of the columns.

    Args:
        target_scores: tensor of shape `(queries, targets)`. The scores of targets.
        count_above: function that makes a pass over all candidates with these.
    """
    counts = count_above(target_scores)
    if _differ(counts.scores, target_scores):
        first, counts = counts, count_above(counts.scores)
        if _differ(counts.scores, first.scores):
            raise ValueError(
                "`candidates` should hold the same items in the same order each time "
                "they are read, and `score` return the same numbers for them. "
                "Received: targets whose scores changed from one pass to the next"
            )
    return counts


def _differ(scores: Tensor, others: Tensor) -> bool:
    return bool(ops.any(scores != others))


def score_targets(queries: Queries, candidates: Candidates, steps: Steps) -> Tensor:
    """Scores targets in blocks of the same size as all others, `-inf` for padding.

    Args:
        queries: all queries.
        candidates: all candidates, or consecutive ones.
        steps: the steps for each block.
    """
    first, last = candidates.first_id, candidates.first_id + candidates.items - 1
    chunks = [
        queries.at(rows)
        for rows in chunks_of(int(queries.ids.shape[0]), candidates.block_size)
    ]
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
            with full_precision(), without_warnings():
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
        candidates: all candidates, or consecutive ones.
        steps: the steps for each block.
        after_block: called after each block, with the number of candidates so far.
    """
    order = None
    if not are_few(target_scores):
        # Consecutive queries are found near each other.
        order = stable_argsort(target_scores)
        target_scores = take(target_scores, order)
        queries = queries._replace(ids=take(queries.ids, order))
    rows = list(chunks_of(int(queries.ids.shape[0]), candidates.block_size))
    chunks = [queries.at(each) for each in rows]
    check_block = steps.check_block
    targets = [ops.take(target_scores, each, axis=0) for each in rows]
    counts = list[Counts]()
    for chunk, scores in zip(chunks, targets, strict=True):
        zero = ops.zeros_like(chunk.ids)
        counts.append(Counts(zero, zero, zero, ops.full_like(scores, -math.inf)))
    for block in candidates.blocks():
        columns = Columns.of(block)
        with full_precision(), without_warnings():
            if check_block is not None:
                check_block(chunks[0], block.embeddings)
                check_block = None
            for i, (chunk, scores) in enumerate(zip(chunks, targets, strict=True)):
                counts[i] = steps.count_block(
                    chunk,
                    scores,
                    counts[i],
                    block.embeddings,
                    columns,
                    block.is_whole,
                )
        after_block(block.first_id + block.end)
    number = int(queries.ids.shape[0])
    joined = [ops.concatenate(x, axis=0)[:number] for x in zip(*counts, strict=True)]
    if order is not None:
        joined = [take(x, stable_argsort(order)) for x in joined]
    return Counts(*joined)


def chunks_of(number: int, block_size: int) -> Iterator[Tensor]:
    """The rows of chunks of one size, of which the last one repeats a query."""
    size = -(-number // max(1, -(-number * block_size // TILE)))
    for start in range(0, number, size):
        rows = np.minimum(np.arange(start, start + size), number - 1)
        yield ops.convert_to_tensor(rows.astype("int32"))


def _in_block(ids: Tensor, scores: Tensor, columns: Columns) -> tuple[Tensor, Tensor]:
    """Whether candidates are in a block, and their scores if they are."""
    column = ids - columns.first_id
    found = take(scores, within(column, 0, scores.shape[1] - 1))
    return ops.logical_and(columns.hold(column), ids >= 0), found


def _with_keys(
    queries: Queries, scored: Scored, columns: Columns
) -> list[tuple[Tensor, Tensor]]:
    """Scores as they are compared and the keys of their candidates, and of excluded."""
    column = ops.arange(1, scored.candidates.shape[1] + 1, dtype="int32")[None, :]
    numbers = [columns.first_id + column]
    if queries.excluded is not None:
        numbers.append(queries.excluded + 1)
    keys = [item_keys(queries.keys, x) for x in numbers]
    return [
        (x, ops.broadcast_to(key, ops.shape(x)))
        for x, key in zip(scored, keys, strict=False)
    ]


def _difference(counts: Sequence[Tensor]) -> Tensor:
    """What is counted among candidates, without what is among the excluded."""
    all_of, *excluded = counts
    return all_of - sum(excluded)


def _counted(
    queries: Queries,
    targets: Tensor,
    counts: Counts,
    scored: Scored,
    entries: Scored,
    columns: Columns,
    above_and_not_below: Callable[[Tensor], Sequence[Tensor]],
) -> tuple[Counts, Tensor]:
    """Adds the counts of a block, except for which tied candidates go first.

    Args:
        queries: the queries.
        targets: tensor of shape `(queries, targets)`. The scores of the targets.
        counts: the counts so far.
        scored: the scores of the block.
        entries: the same, in any order.
        columns: the columns of the scores.
        above_and_not_below: function of entries, to the numbers of those with a
            higher score than each target, and of those with no lower one.

    Returns:
        The counts, and which targets tie with another candidate.
    """
    is_own, own = _in_block(queries.ids, scored.candidates, columns)
    parts = [above_and_not_below(x) for x in entries if x is not None]
    above, not_below = (_difference(x) for x in zip(*parts, strict=True))
    tied = not_below - above
    are_tied = ops.logical_and(tied > ops.cast(is_own, "int32"), targets > -math.inf)
    added = Counts(
        above=counts.above + above,
        tied=counts.tied + tied,
        before=counts.before,
        scores=where(is_own, compared(own), counts.scores),
    )
    return added, are_tied


def _is_above(score: Tensor, high: Tensor, same_score: Tensor, low: Tensor) -> Tensor:
    return score > high


def _is_not_below(score: Tensor, high: Tensor, same: Tensor, low: Tensor) -> Tensor:
    return same >= low


def compared(scores: Tensor) -> Tensor:
    """Scores as they are compared, `-inf` for NaN."""
    return as_ranked(where(scores > -math.inf, scores, -math.inf))


def equal_to(targets: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest scores that count as equal to those of the targets.

    All denormal numbers equal 0, so scores need not be rounded before a comparison.
    """
    dtype = keras.backend.standardize_dtype(targets.dtype)
    near = float(np.nextafter(np.asarray(smallest_normal(targets), dtype), 0))
    is_zero = targets == 0.0
    return where(is_zero, -near, targets), where(is_zero, near, targets)
