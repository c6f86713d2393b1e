"""One pass over the candidates: how many score higher than each target, or equal."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import keras
import numpy as np
from keras import ops

from keras_rank.arrays.buckets import rounded_up
from keras_rank.arrays.counting import (
    are_few,
    count,
    count_before,
    counts_in_order,
)
from keras_rank.arrays.searching import search, search_before
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.scoring import Score, check_score, checked
from keras_rank.lists.limits import as_compared, smallest_normal
from keras_rank.ranking.tie_breaking import item_keys

# The number of scores that are held at a time.
TILE = 2**21


class Queries(NamedTuple):
    """Some queries, the ids of their targets and of their excluded candidates.

    Ids are padded with -1. `keys` is `None` if the earlier of tied candidates is first.
    """

    embeddings: Tensor
    ids: Tensor
    excluded: Tensor | None
    keys: Tensor | None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Queries":
        return Queries(*(None if x is None else function(x) for x in self))

    def at(self, rows: Tensor) -> "Queries":
        """Some of the queries."""
        return backend.enter(_rows_of, None, self, rows)


def _rows_of(_: None, queries: Queries, rows: Tensor) -> Queries:
    return queries.each(lambda x: ops.take(x, rows, axis=0))


class Counts(NamedTuple):
    """What is counted for the targets of some queries, of shape `(queries, targets)`.

    Attributes:
        above: the number of candidates with a higher score.
        tied: the number with the same score.
        before: the number of tied ones that go first.
        scores: the scores that the targets have among the candidates, `-inf` where they
            are none of these. Of parts, the maximum; counts add up.
    """

    above: Tensor
    tied: Tensor
    before: Tensor
    scores: Tensor


class Columns(NamedTuple):
    """Which candidates the columns of a block are: `start` to `end` count."""

    first_id: Tensor
    start: Tensor
    end: Tensor

    @classmethod
    def of(cls, block: Block) -> "Columns":
        bounds = (block.first_id, block.start, block.end)
        return cls(*(ops.convert_to_tensor(x, "int32") for x in bounds))

    def hold(self, column: Tensor) -> Tensor:
        """Whether a column counts."""
        return (column >= self.start) & (column < self.end)

    def of_held(self, scores: Tensor) -> Tensor:
        """The scores of a block, `-inf` in the columns that don't count."""
        column = ops.arange(scores.shape[1], dtype="int32")[None, :]
        return backend.where(self.hold(column), scores, -math.inf)


class Scored(NamedTuple):
    """The scores of the candidates in a block, and of those excluded.

    Candidates that don't count have `-inf`, excluded ones that are elsewhere NaN.
    """

    candidates: Tensor
    excluded: Tensor | None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Scored":
        return Scored(*(None if x is None else function(x) for x in self))


class Steps(NamedTuple):
    """The functions of a pass, most of them compiled.

    Attributes:
        score_targets: function of embeddings of queries and of candidates, and of the
            columns of the targets among these.
        count_block: function of queries, the scores of their targets, counts, a block,
            its columns, and whether all of them count, to new counts.
        unknown_score: the user's function, to be checked. `None` if it is one of ours.
    """

    score_targets: Callable[..., Tensor]
    count_block: Callable[..., Counts]
    unknown_score: Score | None


def steps_of(score: str | Score, averages: bool) -> Steps:
    """Compiles the steps for each block. With `averages`, no tied one goes first."""
    # A user's function may change with its weights, which compiling would freeze.
    return (_steps_kept if isinstance(score, str) else _steps_of)(score, averages)


def _steps_of(score: str | Score, averages: bool) -> Steps:
    score, is_ours = check_score(score), isinstance(score, str)
    compile_step = functools.partial(backend.compiled, is_ours=is_ours)
    compare_steps, score_steps = (
        of_whole_and_part(function, compile_step)
        for function in (
            functools.partial(_compare_block, score, averages),
            functools.partial(_score_block_as_compared, score),
        )
    )

    def score_targets(queries: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
        return compared(backend.take(score(queries, targets), columns))

    def count_block(
        queries: Queries,
        targets: Tensor,
        counts: Counts,
        block: Tensor,
        columns: Columns,
        is_whole: bool,
    ) -> Counts:
        if not is_searched(targets):
            added: Counts = compare_steps[is_whole](
                queries, targets, counts, block, columns
            )
            return added
        # Without targets, of which each number would be compiled anew.
        seekers = queries._replace(ids=None, keys=None)
        scored = score_steps[is_whole](seekers, block, columns)
        return _searched(
            queries._replace(embeddings=None).each(ops.convert_to_numpy),
            targets,
            counts,
            scored.each(ops.convert_to_numpy),
            Columns(*map(int, columns)),
            averages,
        )

    return Steps(
        compile_step(score_targets),
        count_block,
        None if is_ours else compile_step(score),
    )


def _score_block(
    score: Score, queries: Queries, block: Tensor, columns: Columns, is_whole: bool
) -> Scored:
    scores = score(queries.embeddings, block)
    if not is_whole:
        scores = columns.of_held(scores)
    if queries.excluded is None:
        return Scored(scores, None)
    is_out, out = _in_block(queries.excluded, scores, columns)
    return Scored(scores, backend.where(is_out, out, math.nan))


def _score_block_as_compared(
    score: Score, queries: Queries, block: Tensor, columns: Columns, is_whole: bool
) -> Scored:
    return _score_block(score, queries, block, columns, is_whole).each(compared)


def _compare_block(
    score: Score,
    averages: bool,
    queries: Queries,
    targets: Tensor,
    counts: Counts,
    block: Tensor,
    columns: Columns,
    is_whole: bool,
) -> Counts:
    """Adds what a block has to the counts, by comparing or, if need be, by sorting."""
    scored = _score_block(score, queries, block, columns, is_whole)
    low, high = equal_to(targets)

    def above_and_not_below(scores: Tensor) -> Sequence[Tensor]:
        if not are_few(targets):
            return counts_in_order(backend.sort(compared(scores)), targets)
        pairs = (scores, high), (scores, low)
        return count(pairs, _is_above, _is_not_below)

    added, are_tied = _counted(
        queries, targets, counts, scored, columns, above_and_not_below
    )
    if averages:
        return added

    def going_first() -> Tensor:
        own_keys = item_keys(queries.keys, queries.ids + 1)
        column = ops.arange(scored.candidates.shape[1], dtype="int32")[None, :]
        ids = columns.first_id + column
        before = list[Tensor]()
        for x, keys in _with_keys(queries, scored.each(compared), ids):
            keys = ops.broadcast_to(keys, ops.shape(x))
            before.append(count_before(x, targets, keys, own_keys, "int32"))
        return counts.before + _difference(before)

    before = backend.branch(
        ops.logical_not(ops.any(are_tied)), lambda: counts.before, going_first
    )
    return added._replace(before=before)


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

    `after_block` is called after each block, with the number of candidates so far.
    """
    steps = steps_of(score, averages)

    def make_pass(target_scores: Array) -> Counts:
        return count_above(queries, target_scores, candidates, steps, after_block)

    return count_by_passes(score_targets(queries, candidates, steps), make_pass)


def count_by_passes(
    target_scores: Array, count_above: Callable[[Array], Counts]
) -> Counts:
    """Counts with the scores that the targets have in a pass over all candidates.

    A target must have the same score as its own column in its block, to the last bit,
    or nothing would tie. So targets are scored in blocks of the same size, where need
    be in the same columns, and compared in the pass with their own columns. If any
    differs, the pass is repeated with the scores of the columns.
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
    return Counts(*map(backend.from_host, counts))


def _differ(scores: Array, others: Array) -> bool:
    return bool(np.any(scores != others))


def score_targets(queries: Queries, candidates: Candidates, steps: Steps) -> Array:
    """Scores targets in blocks of the same size as all others, `-inf` for padding."""
    first, size = candidates.first_id, candidates.block_size
    chunks = chunks_of_queries(queries, size)
    given = [ops.convert_to_numpy(chunk.ids) - first for _, chunk in chunks]
    numbers = [x.clip(0, candidates.items - 1) for x in given]
    places = [_places(x, candidates.items) for x in numbers]
    known = np.unique(np.concatenate([unique for unique, _ in places]))
    # Each number of them would be compiled.
    number_read = (
        rounded_up(len(known), 1) if backend.should_bucket(known) else len(known)
    )
    embeddings = candidates.rows(first + np.resize(known, number_read))
    scored = list[Array]()
    are_held = map(np.equal, numbers, given)
    for (_, chunk), (unique, place), is_held in zip(
        chunks, places, are_held, strict=True
    ):
        columns, block_numbers = _layout(unique, candidates)
        known_rows = np.searchsorted(known, unique).astype("int32")
        own_columns = backend.to_tensor(columns[place])
        found: Any = -math.inf
        for number in range(block_numbers.max() + 1):
            are_here = block_numbers == number
            rows = np.zeros(size, "int32")
            rows[columns[are_here]] = known_rows[are_here]
            block = ops.take(embeddings, backend.to_tensor(rows), axis=0)
            with backend.full_precision(), backend.quiet():
                scores = steps.score_targets(chunk.embeddings, block, own_columns)
            is_here = is_held & are_here[place]
            found = np.where(is_here, ops.convert_to_numpy(scores), found)
        scored.append(found)
    return _of_all(queries, chunks, scored, -math.inf)


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


def _places(numbers: Array, end: int) -> tuple[Array, Array]:
    """The distinct of whole numbers below an end, and which of these each is."""
    if end > TILE:
        unique, place = np.unique(numbers, return_inverse=True)
        return unique, place.reshape(numbers.shape).astype("int32")
    # Without sorting them, in no more memory than the scores of a tile.
    places = np.zeros(end, "int32")
    places[numbers] = 1
    unique = np.flatnonzero(places)
    places[unique] = np.arange(len(unique))
    return unique, places[numbers]


def count_above(
    queries: Queries,
    target_scores: Array,
    candidates: Candidates,
    steps: Steps,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Reads candidates once, and counts those above and tied with each target."""
    chunks = chunks_of_queries(queries, candidates.block_size)
    counted = [
        Chunk.of(queries, target_scores[rows, : queries.ids.shape[1]])
        for rows, queries in chunks
    ]
    some = chunks[0][1].embeddings
    for block in checked(candidates.blocks(), steps.unknown_score, some):
        columns = Columns.of(block)
        with backend.full_precision(), backend.quiet():
            for i, chunk in enumerate(counted):
                counts = steps.count_block(
                    chunk.queries,
                    chunk.targets,
                    chunk.counts,
                    block.embeddings,
                    columns,
                    block.is_whole,
                )
                counted[i] = chunk._replace(counts=counts)
        after_block(block.first_id + block.end)
    fills = 0, 0, 0, -math.inf
    parts = zip(*(chunk.in_place() for chunk in counted), strict=True)
    whole = map(functools.partial(_of_all, queries, chunks), parts, fills)
    return Counts(*whole)


class Chunk(NamedTuple):
    """Queries that are counted together, and the scores of their `targets`.

    Many targets are ordered by their scores. Then `order` is where they were.
    """

    queries: Queries
    targets: Tensor
    counts: Counts
    order: Array | None

    @classmethod
    def of(cls, queries: Queries, targets: Array) -> "Chunk":
        """Returns queries of which nothing is counted."""
        order, make = None, cast(Callable[[Array], Tensor], backend.to_tensor)
        if is_searched(targets):
            # Those that follow each other are found near each other.
            order, make = np.argsort(targets, axis=1), np.asarray
            targets = np.take_along_axis(targets, order, axis=1)
            ids = np.take_along_axis(ops.convert_to_numpy(queries.ids), order, axis=1)
            queries = queries._replace(ids=ids)
        above, tied, before = (make(np.zeros(targets.shape, "int32")) for _ in range(3))
        scores = make(np.full_like(targets, -math.inf))
        counts = Counts(above, tied, before, scores)
        return cls(queries, make(targets), counts, order)

    def in_place(self) -> Counts:
        """The counts of the targets in the order that they were given in."""
        counts = Counts(*map(ops.convert_to_numpy, self.counts))
        if self.order is None:
            return counts
        placed = Counts(*map(np.empty_like, counts))
        for x, of_order in zip(placed, counts, strict=True):
            np.put_along_axis(x, self.order, of_order, axis=1)
        return placed


def is_searched(targets: Tensor) -> bool:
    """Whether targets are so many that they are searched in sorted rows, on a CPU."""
    return not (backend.on_accelerator() or are_few(targets))


def chunks_of_queries(queries: Queries, block_size: int) -> list[tuple[Array, Queries]]:
    """The queries in chunks, each with as many targets as those of them need.

    Those with few targets, which are compared, are apart from those with many. Widths
    are powers of two, so that few are compiled.

    Returns:
        A list of the rows of the queries, and these queries.
    """
    ids = ops.convert_to_numpy(queries.ids)
    others, width = queries._replace(ids=None), ids.shape[1]
    widths = ((ids >= 0) * np.arange(1, width + 1, dtype="int32")).max(axis=1)
    widths = np.minimum(2 ** np.ceil(np.log2(widths.clip(1))), width).astype(int)
    order = np.argsort(widths, kind="stable")
    distinct, numbers = np.unique(widths, return_counts=True)
    are_compared = [are_few(ids[:, :n]) for n in distinct]
    chunks = list[tuple[Array, Queries]]()
    for group in np.split(order, [numbers[are_compared].sum()]):
        for places in chunks_of(len(group), block_size):
            rows = group[places]
            some = others.at(backend.to_tensor(rows.astype("int32")))
            of_rows = np.ascontiguousarray(ids[rows, : widths[rows].max()])
            chunks.append((rows, some._replace(ids=backend.to_tensor(of_rows))))
    return chunks


def _of_all(
    queries: Queries,
    chunks: Sequence[tuple[Array, Queries]],
    parts: Sequence[Array],
    fill: float,
) -> Array:
    """What is known of the targets of each chunk, as one array."""
    whole = np.full(queries.ids.shape, fill, parts[0].dtype)
    for (rows, _), part in zip(chunks, parts, strict=True):
        whole[rows, : part.shape[1]] = part
    return whole


def chunks_of(number: int, block_size: int) -> Iterator[Array]:
    """The rows of chunks of one size, of which the last one repeats a query."""
    size = max(1, -(-number // max(1, -(-number * block_size // TILE))))
    for start in range(0, number, size):
        yield np.minimum(np.arange(start, start + size, dtype="int32"), number - 1)


def _in_block(ids: Tensor, scores: Tensor, columns: Columns) -> tuple[Tensor, Tensor]:
    """Whether candidates are in a block, and their scores if they are."""
    column = ids - columns.first_id
    found = backend.take(scores, backend.clip(column, 0, scores.shape[1] - 1))
    return ops.logical_and(columns.hold(column), ids >= 0), found


def _with_keys(
    queries: Queries, scored: Scored, ids: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The scores and the keys of the candidates with these ids, and of the excluded.

    The keys are one row for all queries if the earlier of tied candidates goes first.
    """
    return [
        (x, item_keys(queries.keys, their_ids + 1))
        for x, their_ids in zip(scored, (ids, queries.excluded), strict=True)
        if x is not None
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
    columns: Columns,
    above_and_not_below: Callable[[Tensor], Sequence[Tensor]],
) -> tuple[Counts, Tensor]:
    """Adds the counts of a block, except for which tied candidates go first.

    Also tells which targets tie with another candidate.
    """
    is_own, own = _in_block(queries.ids, scored.candidates, columns)
    parts = [above_and_not_below(x) for x in scored if x is not None]
    above, not_below = (_difference(x) for x in zip(*parts, strict=True))
    tied = not_below - above
    are_tied = ops.logical_and(tied > ops.cast(is_own, "int32"), targets > -math.inf)
    added = Counts(
        above=counts.above + above,
        tied=counts.tied + tied,
        before=counts.before,
        scores=backend.where(is_own, compared(own), counts.scores),
    )
    return added, are_tied


def _searched(
    queries: Queries,
    targets: Array,
    counts: Counts,
    scored: Scored,
    columns: Columns,
    averages: bool,
) -> Counts:
    """Adds what a block has to the counts, all of them arrays, in their place."""
    ids, first = queries.ids, columns.first_id
    is_own = columns.hold(ids - first)
    rows, places = np.nonzero(is_own)
    counts.scores[rows, places] = scored.candidates[rows, ids[rows, places] - first]
    parts = [search(x, targets) for x in scored if x is not None]
    above, tied = (_difference(x) for x in zip(*parts, strict=True))
    np.add(counts.above, above, out=counts.above)
    np.add(counts.tied, tied, out=counts.tied)
    are_tied = (tied > is_own) & (targets > -math.inf)
    rows = np.flatnonzero(are_tied.any(axis=1))
    if len(rows) and not averages:
        some = queries.each(lambda x: x[rows])
        their_scores = scored.each(lambda x: x[rows])
        own_keys = item_keys(some.keys, some.ids + 1)
        size = scored.candidates.shape[1]
        column_ids = np.arange(first, first + size, dtype="int32")[None, :]
        counts.before[rows] += _difference(
            [
                search_before(x, keys, targets[rows], own_keys)
                for x, keys in _with_keys(some, their_scores, column_ids)
            ]
        )
    return counts


def _is_above(score: Tensor, high: Tensor, same_score: Tensor, low: Tensor) -> Tensor:
    return score > high


def _is_not_below(score: Tensor, high: Tensor, same: Tensor, low: Tensor) -> Tensor:
    return same >= low


def compared(scores: Tensor) -> Tensor:
    """Scores as they are compared, `-inf` for NaN."""
    return as_compared(scores)


def equal_to(targets: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest scores that count as equal to those of the targets.

    All denormal numbers equal 0, so scores need not be rounded before a comparison.
    """
    dtype = keras.backend.standardize_dtype(targets.dtype)
    near = float(np.nextafter(np.asarray(smallest_normal(targets), dtype), 0))
    is_zero = targets == 0.0
    return backend.where(is_zero, -near, targets), backend.where(is_zero, near, targets)
