"""Passes over the candidates: the blocks, their scores and sizes."""

import collections
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.arrays.arithmetic import in_one_dtype, product
from keras_rank.arrays.counting import are_few
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.candidates import Block, Candidates, are_alike, rows_of
from keras_rank.lists.input_arrays import refused
from keras_rank.lists.tensors import as_tensor, ranked_as, shape_of
from keras_rank.ranking.base import item_keys

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def dot(queries: Tensor, candidates: Tensor) -> Tensor:
    """The products of embeddings, of shape `(queries, candidates)`."""
    return product(queries, ops.transpose(candidates))


def cosine(queries: Tensor, candidates: Tensor) -> Tensor:
    """The cosines between queries of length one and candidates, 0 for zeros."""
    return dot(queries, _of_length_one(candidates))


def prepared(score: Any, queries: Tensor) -> Tensor:
    """Queries as they are scored, which is done once."""
    is_cosine = isinstance(score, str) and score == "cosine"
    return backend.enter(_of_length_one, queries) if is_cosine else queries


def _of_length_one(embeddings: Tensor) -> Tensor:
    # Scaled, so that squares neither overflow nor vanish.
    largest = backend.largest_size(embeddings)
    embeddings = embeddings / backend.where(largest > 0.0, largest, 1.0)
    # The largest is 1 now, unless all are 0.
    return embeddings / backend.maximum(backend.lengths(embeddings), 1.0)


def check_score(score: Any) -> Score:
    """Returns the function that `score` stands for."""
    if isinstance(score, str) and score in _BY_NAME:
        return _BY_NAME[score]
    if callable(score):
        return _checked(score)
    accepted = '"dot", "cosine", or a function of queries and candidates'
    raise argument_error("score", accepted, score)


def _checked(score: Score) -> Score:
    def scores_of(queries: Tensor, candidates: Tensor) -> Tensor:
        scores = score(*in_one_dtype(queries, candidates))
        shape = (queries.shape[0], candidates.shape[0])
        if shape_of(scores) != shape:
            expected = "return one number for each query and candidate, of shape "
            received = f"scores of shape {shape_of(scores)}"
            raise refused("score", f"{expected}{shape}", received)
        return ranked_as(ops.stop_gradient(scores))

    return scores_of


def check_pairs(score: Score, queries: Tensor, candidates: Tensor) -> None:
    """Raises if a user's function gives a pair a score that changes with the others."""
    # Compiled, as it is in the pass.
    scores_of = backend.compiled(check_score(score), is_ours=False)
    given = queries, candidates
    # The first half of each, and others in the place of the second.
    scores, beside_others = (
        ops.convert_to_numpy(scores_of(*pair))
        for pair in (given, map(_beside_others, given))
    )
    rows, columns = (-(-x.shape[0] // 2) for x in given)
    scores, beside_others = (x[:rows, :columns] for x in (scores, beside_others))
    if not are_alike(scores, beside_others):
        expected = "give each pair of a query and a candidate a score of its own, "
        expected += "whatever the other pairs are"
        received = "a function whose scores change with the other pairs"
        raise refused("score", expected, received)


def _beside_others(x: Tensor) -> Tensor:
    """Rows of which those of the second half are replaced by the first one."""
    half = -(-x.shape[0] // 2)
    others = ops.repeat(x[:1], x.shape[0] - half, axis=0)
    return ops.concatenate([x[:half], others], axis=0)


_BY_NAME: dict[str, Score] = {"dot": dot, "cosine": cosine}


State = TypeVar("State")

# A second pass asks as many queries as these in the time of one.
_FEWEST = 16


class Queries(NamedTuple):
    """Queries, and what is asked of their candidates.

    Attributes:
        embeddings: tensor of shape `(queries, features)`.
        ids: int32 array of shape `(queries, targets)`, padded with -1. `None` if only
            the best candidates are sought.
        excluded: int32 array of ids, padded with -1, or `None`.
        keys: int32 tensor of shape `(queries,)`, or `None` if the earlier of tied
            candidates goes first.
        targets: array of the scores of the targets, once they are known.
    """

    embeddings: Tensor
    ids: Array | None
    excluded: Array | None
    keys: Tensor | None
    targets: Array | None = None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Queries":
        return Queries(*(None if x is None else function(x) for x in self))

    def chunk(self, rows: Array, number: int, width: int = 0) -> "Chunk":
        """Some queries, of which the first ones are asked for their first targets."""
        asked = rows[:number]
        targets = least = None
        if self.targets is not None:
            targets = self.targets[asked, :width]
            least = least_scores(targets)
        ids = None if self.ids is None else self.ids[asked, :width]
        excluded = None if self.excluded is None else self.excluded[asked]
        wanted = [x for x in (ids, excluded) if x is not None]
        arrays = (
            rows_of(self.embeddings, rows),
            ids,
            np.concatenate(wanted, axis=1) if wanted else None,
            None if self.keys is None else rows_of(self.keys, asked),
            targets,
            least,
        )
        return Chunk(*map(as_tensor, arrays))


class Chunk(NamedTuple):
    """The same for some queries, in tensors. Only the first of them may be asked.

    Attributes:
        wanted: the ids of the targets, and then those of excluded candidates.
        least: tensor of shape `(asked, 2 * targets)`: see `least_scores`.
    """

    embeddings: Tensor
    ids: Tensor
    wanted: Tensor
    keys: Tensor
    targets: Tensor
    least: Tensor

    def keys_of(self, ids: Tensor) -> Tensor:
        """Int32 keys of candidates, of which the tied one with the larger is first."""
        return item_keys(self.keys, ids + 1)


def least_scores(targets: Array) -> Array:
    """The least scores above each target, and then those not below it.

    NaN where there is none. Denormal numbers equal 0.
    """
    normal = np.finfo(targets.dtype).smallest_normal
    with np.errstate(over="ignore"):
        above = np.nextafter(targets, targets.dtype.type(math.inf))
    above[targets == math.inf] = math.nan
    above[targets == 0.0] = normal
    not_below = np.where(targets == 0.0, -np.nextafter(normal, 0 * normal), targets)
    return np.concatenate([above, not_below], axis=1)


def chunks_of(
    rows: Array, candidates: Candidates, queries: int, again: bool
) -> Iterator[tuple[Array, int]]:
    """Cuts rows into chunks of one size, which repeat one of them.

    Yields:
        The rows of a chunk, and how many of them are asked: in a second pass fewer,
        next to others that give the product the shape of the first one.
    """
    size = candidates.queries_at_once(queries)
    most = candidates.queries_again(size) if again else size
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        # Of few sizes, as programs are compiled for each.
        asked = max(_FEWEST, 1 << (len(some) - 1).bit_length()) if again else size
        asked = min(most, asked)
        yield np.concatenate([some, np.repeat(some[-1:], size - len(some))]), asked


def chunks_of_queries(
    queries: Queries, candidates: Candidates, again: bool = False
) -> list[tuple[Array, Chunk]]:
    """The queries in chunks, each with as many targets as those of them need.

    Those with few targets, which are compared, are apart from those with many. Widths
    are powers of two, so that few are compiled. In a second pass, products have the
    shape of the first one, as others may be rounded otherwise.

    Returns:
        A list of the rows of the queries that are asked, and these queries.
    """
    ids = queries.ids
    assert ids is not None
    number, width = ids.shape
    widths = ((ids >= 0) * np.arange(1, width + 1, dtype="int32")).max(axis=1)
    rows = np.flatnonzero(widths) if again else np.arange(number)
    widths = np.minimum(2 ** np.ceil(np.log2(widths.clip(1))), width).astype(int)
    order = rows[np.argsort(widths[rows], kind="stable")].astype("int32")
    distinct, numbers = np.unique(widths[order], return_counts=True)
    are_compared = [are_few(ids[:, :n]) for n in distinct]
    chunks = list[tuple[Array, Chunk]]()
    for group in np.split(order, [numbers[are_compared].sum()]):
        all_rows = number if backend.on_accelerator() else len(group)
        for some, asked in chunks_of(group, candidates, all_rows, again):
            chunk = queries.chunk(some, asked, widths[some].max())
            chunks.append((some[:asked], chunk))
    return chunks


def of_all(
    queries: Queries, chunks: Sequence[tuple[Array, Chunk]], parts: Sequence[Array]
) -> Array:
    """What is known of the targets of each chunk, as one array."""
    assert queries.ids is not None
    fill = -math.inf if parts[0].dtype.kind == "f" else 0
    whole = np.full(queries.ids.shape, fill, parts[0].dtype)
    for (rows, _), part in zip(chunks, parts, strict=True):
        whole[rows, : part.shape[1]] = part
    return whole


def scores_in(
    score: str | Score, embeddings: Tensor, block: Block, number: int
) -> Tensor:
    """The scores of a block, `-inf` where candidates don't count.

    They are those of the first queries, out of one product for all.
    """
    scores = check_score(score)(embeddings, block.embeddings)
    if number < scores.shape[0]:
        # Or XLA might compute another product.
        scores = backend.fusion_barrier(scores)[:number]
    if block.bounds is None:
        return scores
    return backend.where(block.hold(block.columns), scores, -math.inf)


def places_in(block: Block, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of candidates, and whether they are those of the ids."""
    place = ids - block.first_id
    start, end = block.bounds or (0, block.embeddings.shape[0])
    column = backend.clip(place, start, end - 1)
    return column, column == place


def fold_blocks(
    candidates: Candidates,
    chunks: Sequence[Chunk],
    score: str | Score,
    step: Callable[[Chunk, Block, State], State],
    states: Sequence[State],
    after_block: Callable[[int], None] = lambda done: None,
) -> list[State]:
    """Reads candidates once, and returns what is found for each chunk of queries.

    Args:
        candidates: the candidates.
        chunks: the chunks.
        score: how queries score candidates. A user's function is checked.
        step: function of a chunk, a block, and what is found so far.
        states: what is found before the first block.
        after_block: function that is called after each block, with the number of
            candidates so far.
    """
    found, waiting = list(states), collections.deque[Callable[[], Any]]()
    for number, block in enumerate(candidates.blocks(), 1):
        with backend.full_precision():
            if number == 1 and callable(score):
                check_pairs(score, chunks[0].embeddings, block.embeddings)
            pairs = zip(chunks, found, strict=True)
            found = [step(chunk, block, so_far) for chunk, so_far in pairs]
        # Not further ahead of a device, which would hold more blocks.
        waiting.append(backend.waiting_for(found))
        if len(waiting) > 2:
            waiting.popleft()()
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
