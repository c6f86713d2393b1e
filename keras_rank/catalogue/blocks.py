"""One pass over the candidates: each block is scored for chunks of the queries."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_rank.arrays.counting import are_few
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.candidates import Block, Candidates
from keras_rank.catalogue.scoring import Score, check_pairs, check_score
from keras_rank.ranking.tie_breaking import item_keys

# The number of scores that are held at a time.
TILE = 2**21


class Queries(NamedTuple):
    """Some queries, and what is asked of their candidates.

    Attributes:
        embeddings: tensor of shape `(queries, features)`.
        ids: int32 tensor of shape `(queries, targets)`, padded with -1. `None` if only
            the best candidates are sought.
        excluded: int32 tensor of ids, padded with -1, or `None`.
        keys: int32 tensor of shape `(queries,)`, or `None` if the earlier of tied
            candidates goes first.
        targets: the scores of the targets, once they are known.
    """

    embeddings: Tensor
    ids: Tensor
    excluded: Tensor | None
    keys: Tensor | None
    targets: Tensor = None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Queries":
        return Queries(*(None if x is None else function(x) for x in self))

    def at(self, rows: Array) -> "Queries":
        """Some of the queries."""
        return backend.enter(_rows_of, None, self, backend.to_tensor(rows))

    def keys_of(self, ids: Tensor) -> Tensor:
        """Int32 keys of candidates, of which the tied one with the larger is first."""
        return item_keys(self.keys, ids + 1)


def _rows_of(_: None, queries: Queries, rows: Tensor) -> Queries:
    return queries.each(lambda x: ops.take(x, rows, axis=0))


def chunks_of(number: int, block_size: int) -> Iterator[Array]:
    """The rows of chunks of one size, of which the last one repeats a query."""
    size = max(1, -(-number // max(1, -(-number * block_size // TILE))))
    for start in range(0, number, size):
        yield np.minimum(np.arange(start, start + size, dtype="int32"), number - 1)


def chunks_of_queries(queries: Queries, block_size: int) -> list[tuple[Array, Queries]]:
    """The queries in chunks, each with as many targets as those of them need.

    Those with few targets, which are compared, are apart from those with many. Widths
    are powers of two, so that few are compiled.

    Returns:
        A list of the rows of the queries, and these queries.
    """
    ids = ops.convert_to_numpy(queries.ids)
    others, width = queries._replace(ids=None, targets=None), ids.shape[1]
    widths = ((ids >= 0) * np.arange(1, width + 1, dtype="int32")).max(axis=1)
    widths = np.minimum(2 ** np.ceil(np.log2(widths.clip(1))), width).astype(int)
    order = np.argsort(widths, kind="stable")
    distinct, numbers = np.unique(widths, return_counts=True)
    are_compared = [are_few(ids[:, :n]) for n in distinct]
    chunks = list[tuple[Array, Queries]]()
    for group in np.split(order, [numbers[are_compared].sum()]):
        for places in chunks_of(len(group), block_size):
            rows = group[places]
            of_rows, targets = (
                None if x is None else backend.to_tensor(x[rows, : widths[rows].max()])
                for x in (ids, queries.targets)
            )
            some = others.at(rows.astype("int32"))
            chunks.append((rows, some._replace(ids=of_rows, targets=targets)))
    return chunks


def of_all(
    queries: Queries,
    chunks: Sequence[tuple[Array, Queries]],
    parts: Sequence[Tensor],
    fill: float,
) -> Array:
    """What is known of the targets of each chunk, as one array."""
    arrays = list(map(ops.convert_to_numpy, parts))
    whole = np.full(queries.ids.shape, fill, arrays[0].dtype)
    for (rows, _), part in zip(chunks, arrays, strict=True):
        whole[rows, : part.shape[1]] = part
    return whole


def scores_in(score: str | Score, queries: Queries, block: Block) -> Tensor:
    """The scores of a block, `-inf` where candidates don't count."""
    scores = check_score(score)(queries.embeddings, block.embeddings)
    if block.bounds is None:
        return scores
    return backend.where(block.hold(block.columns), scores, -math.inf)


def fold_blocks(
    candidates: Candidates,
    chunks: list[Queries],
    score: str | Score,
    search: Callable[[Queries, Block], Any],
    join: Callable[[Queries, Any, Any], Any],
    after_block: Callable[[int], None] = lambda done: None,
) -> list[Any]:
    """Reads candidates once, and returns what is found for each chunk of queries.

    Args:
        candidates: the candidates.
        chunks: the chunks.
        score: how queries score candidates. A user's function is checked.
        search: function of a chunk and a block.
        join: function of a chunk and two results that joins these.
        after_block: function that is called after each block, with the number of
            candidates so far.
    """
    found = list[Any]()
    for number, block in enumerate(candidates.blocks(), 1):
        with backend.full_precision(), backend.quiet():
            if number == 1 and callable(score):
                check_pairs(score, chunks[0].embeddings, block.embeddings)
            added = [search(chunk, block) for chunk in chunks]
            found = list(map(join, chunks, found, added)) if found else added
        after_block(min(number * candidates.block_size, candidates.items))
    return found


def step_of(function: Callable[..., Any], *depends: Any) -> Callable[..., Any]:
    """Compiles `function(*depends, ...)`, and keeps it if it depends on no function.

    That would be a user's score, which may change with its weights: these are constants
    of what is compiled.
    """
    is_ours = not any(map(callable, depends))
    return (_kept_step if is_ours else _step)(function, *depends, is_ours=is_ours)


def _step(
    function: Callable[..., Any], *depends: Any, is_ours: bool
) -> Callable[..., Any]:
    return backend.compiled(functools.partial(function, *depends), is_ours=is_ours)


_kept_step = functools.lru_cache(maxsize=32)(_step)
