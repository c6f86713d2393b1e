"""How many candidates score higher than each target, or equal."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import keras
import numpy as np
from keras import ops

from keras_rank.arrays import counting
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue import blocks, searching
from keras_rank.catalogue.blocks import Queries
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.scoring import Score
from keras_rank.catalogue.shards import OpenShards, in_each_part
from keras_rank.catalogue.targets import score_targets
from keras_rank.lists.limits import as_compared, limits_of


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
            backend.library_of(self.scores).maximum(self.scores, other.scores),
        )


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
            raise ValueError(
                "`candidates` should hold the same items in the same order each time "
                "they are read, and `score` return the same numbers for them. "
                "Received: targets whose scores changed from one pass to the next"
            )
    return Counts(*map(backend.from_host, counts))


def count_above(
    queries: Queries,
    candidates: Candidates,
    score: str | Score,
    averages: bool,
    after_block: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Reads candidates once, and counts those above and tied with each target."""
    ids, targets = map(ops.convert_to_numpy, (queries.ids, queries.targets))
    # Those that follow each other are found near each other.
    order = np.argsort(-targets, axis=1)
    ids, targets = (np.take_along_axis(x, order, axis=1) for x in (ids, targets))
    chunks = blocks.chunks_of_queries(
        queries._replace(ids=ids, targets=targets), candidates.block_size
    )
    compare = blocks.step_of(_compare, score, averages)
    score_block = blocks.step_of(_entries_as_compared, score)

    def search(chunk: Queries, block: Block) -> Counts:
        if not is_searched(chunk.ids):
            return cast(Counts, compare(chunk, block))
        # Without targets, of which each number would be compiled anew.
        scored = score_block(chunk._replace(ids=None, keys=None, targets=None), block)
        return _search(
            averages,
            chunk._replace(embeddings=None).each(ops.convert_to_numpy),
            list(map(ops.convert_to_numpy, scored)),
            block.on_host(),
        )

    found = blocks.fold_blocks(
        candidates,
        [chunk for _, chunk in chunks],
        score,
        search,
        lambda _, counts, added: counts.joined(added),
        after_block,
    )
    counts = list[Array]()
    for parts, fill in zip(zip(*found, strict=True), (0, 0, 0, -math.inf), strict=True):
        of_order = blocks.of_all(queries, chunks, parts, fill)
        counts.append(np.empty_like(of_order))
        np.put_along_axis(counts[-1], order, of_order, axis=1)
    return Counts(*counts)


def is_searched(targets: Tensor) -> bool:
    """Whether targets are so many that they are searched in sorted rows, on a CPU."""
    return not (backend.on_accelerator() or counting.are_few(targets))


def _entries(score: str | Score, queries: Queries, block: Block) -> tuple[Tensor, ...]:
    """The scores of a block, and of excluded candidates, which are counted off."""
    scores = blocks.scores_in(score, queries, block)
    if queries.excluded is None:
        return (scores,)
    return scores, _scores_of(queries.excluded, scores, block)


def _scores_of(ids: Tensor, scores: Tensor, block: Block) -> Tensor:
    """The scores that candidates have in a block, NaN for those that it has not."""
    column = ids - block.first_id
    found = backend.take(scores, backend.clip(column, 0, scores.shape[1] - 1))
    return backend.where(_are_in(block, ids), found, math.nan)


def _are_in(block: Block, ids: Tensor) -> Tensor:
    return block.hold(ids - block.first_id) & (ids >= 0)


def _without_excluded(counts: Sequence[Tensor]) -> Tensor:
    """What is counted among candidates, without what is among those excluded."""
    all_of, *excluded = counts
    return all_of - sum(excluded)


def _before(
    count: Callable[..., Tensor],
    queries: Queries,
    entries: Sequence[Tensor],
    ids: Tensor,
) -> Tensor:
    """Counts the tied candidates, of the ids of a block, that go first."""
    own_keys, targets = queries.keys_of(queries.ids), queries.targets
    keys = [queries.keys_of(x) for x in (ids, queries.excluded) if x is not None]
    each = zip(entries, keys, strict=True)
    return _without_excluded([count(x, targets, of_x, own_keys) for x, of_x in each])


def _compare(
    score: str | Score, averages: bool, queries: Queries, block: Block
) -> Counts:
    """Counts by comparing or, if need be, by sorting."""
    ids, targets = queries.ids, queries.targets
    entries = _entries(score, queries, block)
    parts = [_above_and_not_below(x, targets) for x in entries]
    above, not_below = map(_without_excluded, zip(*parts, strict=True))
    own = as_compared(_scores_of(ids, entries[0], block))
    tied, is_own = not_below - above, ops.cast(_are_in(block, ids), "int32")
    are_tied = ops.logical_and(tied > is_own, targets > -math.inf)
    before = nothing = ops.zeros_like(above)

    def count(x: Tensor, targets: Tensor, keys: Tensor, own_keys: Tensor) -> Tensor:
        keys = ops.broadcast_to(keys, ops.shape(x))
        return counting.count_before(as_compared(x), targets, keys, own_keys, "int32")

    if not averages:
        block_ids = block.first_id + block.columns
        before = backend.branch(
            ops.logical_not(ops.any(are_tied)),
            lambda: nothing,
            lambda: _before(count, queries, entries, block_ids),
        )
    return Counts(above, tied, before, own)


def _above_and_not_below(scores: Tensor, targets: Tensor) -> Sequence[Tensor]:
    if not counting.are_few(targets):
        in_order = backend.sort(as_compared(scores))
        return counting.counts_in_order(in_order, targets)
    # Without rounding all scores first: denormal numbers equal 0.
    dtype = keras.backend.standardize_dtype(targets.dtype)
    normal = limits_of(dtype).smallest_normal
    near = float(np.nextafter(np.asarray(normal, dtype), 0))
    low, high = (
        backend.where(targets == 0.0, bound, targets) for bound in (-near, near)
    )
    return counting.count(((scores, high), (scores, low)), _is_above, _is_not_below)


def _is_above(score: Tensor, high: Tensor, same_score: Tensor, low: Tensor) -> Tensor:
    return score > high


def _is_not_below(score: Tensor, high: Tensor, same: Tensor, low: Tensor) -> Tensor:
    return same >= low


def _entries_as_compared(
    score: str | Score, queries: Queries, block: Block
) -> list[Tensor]:
    return [as_compared(x) for x in _entries(score, queries, block)]


def _search(
    averages: bool, queries: Queries, entries: Sequence[Array], block: Block
) -> Counts:
    """Counts by searching, in arrays."""
    ids, targets, scores = queries.ids, queries.targets, entries[0]
    parts = [searching.search(x, targets) for x in entries]
    above, tied = map(_without_excluded, zip(*parts, strict=True))
    before, own = np.zeros_like(above), np.full_like(targets, -math.inf)
    is_own = _are_in(block, ids)
    rows, places = np.nonzero(is_own)
    own[rows, places] = scores[rows, ids[rows, places] - block.first_id]
    are_tied = (tied > is_own) & (targets > -math.inf)
    rows = np.flatnonzero(are_tied.any(axis=1))
    if len(rows) and not averages:
        some, of_some = queries.each(lambda x: x[rows]), [x[rows] for x in entries]
        columns = np.arange(scores.shape[1], dtype="int32")[None, :]
        block_ids = block.first_id + columns
        before[rows] = _before(searching.search_before, some, of_some, block_ids)
    return Counts(above, tied, before, own)
