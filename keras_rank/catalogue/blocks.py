"""Passes over the candidates in blocks, and the scores of blocks."""

import collections
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.arrays.arithmetic import product, promote_dtypes
from keras_rank.arrays.counting import is_comparison_faster
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.candidates import Block, Candidates, is_close, take_rows
from keras_rank.lists.input_arrays import value_error
from keras_rank.lists.tensors import as_tensor, static_shape, upcast
from keras_rank.ranking.base import item_keys

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def dot(queries: Tensor, candidates: Tensor) -> Tensor:
    """Returns the dot products of embeddings, of shape `(queries, candidates)`."""
    return product(queries, ops.transpose(candidates))


def cosine(queries: Tensor, candidates: Tensor) -> Tensor:
    """Returns the cosines between normalized queries and candidates.

    The cosine is 0 for a candidate that is all zeros.
    """
    return dot(queries, _normalize(candidates))


def prepare_queries(score: Any, queries: Tensor) -> Tensor:
    """Normalizes queries once, if scores are cosines."""
    is_cosine = isinstance(score, str) and score == "cosine"
    return backend.run_program(_normalize, queries) if is_cosine else queries


def _normalize(embeddings: Tensor) -> Tensor:
    # Embeddings are scaled, so that squares neither overflow nor vanish.
    largest = backend.row_max_abs(embeddings)
    embeddings = embeddings / backend.where(largest > 0.0, largest, 1.0)
    # The largest number is 1 after scaling, unless all are 0.
    return embeddings / backend.maximum(backend.row_norms(embeddings), 1.0)


def check_score(score: Any) -> Score:
    """Returns the function that `score` names, or that it is."""
    if isinstance(score, str) and score in _SCORES:
        return _SCORES[score]
    if callable(score):
        return _check_results(score)
    accepted = '"dot", "cosine", or a function of queries and candidates'
    raise argument_error("score", accepted, score)


def _check_results(score: Score) -> Score:
    def compute_scores(queries: Tensor, candidates: Tensor) -> Tensor:
        scores = score(*promote_dtypes(queries, candidates))
        shape = (queries.shape[0], candidates.shape[0])
        if static_shape(scores) != shape:
            expected = "return one number for each query and candidate, of shape "
            received = f"scores of shape {static_shape(scores)}"
            raise value_error("score", f"{expected}{shape}", received)
        return upcast(ops.stop_gradient(scores))

    return compute_scores


def check_pairs(score: Score, queries: Tensor, candidates: Tensor) -> None:
    """Raises `ValueError` if the score of a pair depends on the other pairs.

    Each score of a user's function may depend on its own query and candidate only.
    """
    # The function is compiled here, as it is in the pass.
    compute_scores = backend.compile_function(check_score(score), is_package_code=False)
    inputs = queries, candidates
    # The pairs in the first half are scored again, next to other pairs.
    scores, other_scores = (
        ops.convert_to_numpy(compute_scores(*pair))
        for pair in (inputs, map(_replace_second_half, inputs))
    )
    rows, columns = (-(-x.shape[0] // 2) for x in inputs)
    scores, other_scores = (x[:rows, :columns] for x in (scores, other_scores))
    if not is_close(scores, other_scores):
        expected = "give each pair of a query and a candidate a score that does not "
        expected += "depend on the other pairs"
        received = "a function whose scores change with the other pairs"
        raise value_error("score", expected, received)


def _replace_second_half(x: Tensor) -> Tensor:
    """Returns rows of which the second half is replaced by copies of the first row."""
    half = -(-x.shape[0] // 2)
    copies = ops.repeat(x[:1], x.shape[0] - half, axis=0)
    return ops.concatenate([x[:half], copies], axis=0)


_SCORES: dict[str, Score] = {"dot": dot, "cosine": cosine}


State = TypeVar("State")

# The number of queries that a second pass searches in the time of one query.
_MIN_REPEATED_QUERIES = 16


class Queries(NamedTuple):
    """Queries, with the ids of their targets and of their excluded candidates.

    Attributes:
        embeddings: tensor of shape `(queries, features)`.
        ids: int32 array of shape `(queries, targets)`, padded with -1. `None` if only
            the best candidates are searched.
        excluded: int32 array of ids, padded with -1, or `None`.
        keys: int32 tensor of shape `(queries,)`, or `None` if the earlier of tied
            candidates precedes.
        targets: array of the scores of the targets, once they are known.
    """

    embeddings: Tensor
    ids: Array | None
    excluded: Array | None
    keys: Tensor | None
    targets: Array | None = None

    def apply(self, function: Callable[[Tensor], Tensor]) -> "Queries":
        return Queries(*(None if x is None else function(x) for x in self))

    def chunk(self, rows: Array, num_searched: int, width: int = 0) -> "Chunk":
        """Returns a chunk of queries. The first `num_searched` of them have targets.

        The other queries only give the product its shape.

        Args:
            rows: the rows of the queries.
            num_searched: the number of queries whose results are computed.
            width: the number of targets of each query, from the first one.
        """
        first_rows = rows[:num_searched]
        targets = thresholds = None
        if self.targets is not None:
            targets = self.targets[first_rows, :width]
            thresholds = compute_thresholds(targets)
        ids = None if self.ids is None else self.ids[first_rows, :width]
        excluded = None if self.excluded is None else self.excluded[first_rows]
        tracked_ids = [x for x in (ids, excluded) if x is not None]
        arrays = (
            take_rows(self.embeddings, rows),
            ids,
            np.concatenate(tracked_ids, axis=1) if tracked_ids else None,
            None if self.keys is None else take_rows(self.keys, first_rows),
            targets,
            thresholds,
        )
        return Chunk(*map(as_tensor, arrays))


class Chunk(NamedTuple):
    """A chunk of queries in tensors. Only the first queries may be searched.

    Attributes:
        embeddings: tensor of shape `(queries, features)`.
        ids: the ids of the targets of searched queries, or `None`.
        tracked_ids: the ids of the targets, and then the ids of excluded candidates.
        keys: the keys of searched queries, or `None`.
        targets: the scores of the targets, or `None`.
        thresholds: tensor of shape `(searched, 2 * targets)`: see `compute_thresholds`.
    """

    embeddings: Tensor
    ids: Tensor
    tracked_ids: Tensor
    keys: Tensor
    targets: Tensor
    thresholds: Tensor

    def tie_keys(self, ids: Tensor) -> Tensor:
        """Returns int32 keys of candidates.

        The tied candidate with the larger key precedes.
        """
        return item_keys(self.keys, ids + 1)


def compute_thresholds(targets: Array) -> Array:
    """Returns the least scores above each target, and then the least that tie with it.

    Thresholds are NaN if there is no such score. Subnormals equal 0.
    """
    smallest_normal = np.finfo(targets.dtype).smallest_normal
    with np.errstate(over="ignore"):
        above = np.nextafter(targets, targets.dtype.type(math.inf))
    above[targets == math.inf] = math.nan
    above[targets == 0.0] = smallest_normal
    not_below = np.where(
        targets == 0.0, -np.nextafter(smallest_normal, 0 * smallest_normal), targets
    )
    return np.concatenate([above, not_below], axis=1)


def split_rows(
    rows: Array, candidates: Candidates, num_queries: int, is_second_pass: bool
) -> Iterator[tuple[Array, int]]:
    """Splits rows into chunks of one size. A chunk may repeat a row to fill it.

    Args:
        rows: the rows of queries.
        candidates: the candidates.
        num_queries: the number of queries.
        is_second_pass: whether candidates are read again for some queries.

    Yields:
        The rows of a chunk, and the number of them that are searched. In a second pass
        only some are searched. The others give the product the shape of the first pass.
    """
    size = candidates.chunk_size(num_queries)
    largest_size = candidates.second_pass_size(size) if is_second_pass else size
    for start in range(0, len(rows), largest_size):
        selected_rows = rows[start : start + largest_size]
        # Sizes are powers of two, as a program is compiled for each size.
        num_searched = (
            max(_MIN_REPEATED_QUERIES, 1 << (len(selected_rows) - 1).bit_length())
            if is_second_pass
            else size
        )
        num_searched = min(largest_size, num_searched)
        yield (
            np.concatenate(
                [
                    selected_rows,
                    np.repeat(selected_rows[-1:], size - len(selected_rows)),
                ]
            ),
            num_searched,
        )


def split_queries(
    queries: Queries, candidates: Candidates, is_second_pass: bool = False
) -> list[tuple[Array, Chunk]]:
    """Splits queries into chunks, with as many targets as the queries of a chunk need.

    Queries with few targets, which are counted by comparing, are in other chunks than
    queries with many. Widths are powers of two, so that few programs are compiled. In a
    second pass, products have the shape of the first pass, as other shapes may be
    rounded differently.

    Returns:
        A list of the rows of the queries that are searched, and the chunk.
    """
    ids = queries.ids
    assert ids is not None
    num_queries, width = ids.shape
    widths = ((ids >= 0) * np.arange(1, width + 1, dtype="int32")).max(axis=1)
    rows = np.flatnonzero(widths) if is_second_pass else np.arange(num_queries)
    widths = np.minimum(2 ** np.ceil(np.log2(widths.clip(1))), width).astype(int)
    order = rows[np.argsort(widths[rows], kind="stable")].astype("int32")
    distinct_widths, group_sizes = np.unique(widths[order], return_counts=True)
    should_compare = [is_comparison_faster(ids[:, :n]) for n in distinct_widths]
    chunks = list[tuple[Array, Chunk]]()
    for chunk_rows in np.split(order, [group_sizes[should_compare].sum()]):
        all_rows = num_queries if backend.on_accelerator() else len(chunk_rows)
        for selected_rows, num_searched in split_rows(
            chunk_rows, candidates, all_rows, is_second_pass
        ):
            chunk = queries.chunk(
                selected_rows, num_searched, widths[selected_rows].max()
            )
            chunks.append((selected_rows[:num_searched], chunk))
    return chunks


def merge_chunks(
    queries: Queries, chunks: Sequence[tuple[Array, Chunk]], parts: Sequence[Array]
) -> Array:
    """Returns the values of the targets of all chunks as one array."""
    assert queries.ids is not None
    fill = -math.inf if parts[0].dtype.kind == "f" else 0
    merged = np.full(queries.ids.shape, fill, parts[0].dtype)
    for (rows, _), part in zip(chunks, parts, strict=True):
        merged[rows, : part.shape[1]] = part
    return merged


def compute_block_scores(
    score: str | Score, embeddings: Tensor, block: Block, num_queries: int
) -> Tensor:
    """Returns the scores of a block, `-inf` at candidates that are out of bounds.

    The scores are those of the first queries, computed in one product for all queries.
    """
    scores = check_score(score)(embeddings, block.embeddings)
    if num_queries < scores.shape[0]:
        # XLA might compute a smaller product, with other rounding errors, without the
        # barrier.
        scores = backend.fusion_barrier(scores)[:num_queries]
    if block.bounds is None:
        return scores
    return backend.where(block.contains(block.columns), scores, -math.inf)


def locate_ids(block: Block, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns columns of a block, and whether they are the columns of the ids."""
    position = ids - block.first_id
    start, end = block.bounds or (0, block.embeddings.shape[0])
    column = backend.clip(position, start, end - 1)
    return column, column == position


def fold_blocks(
    candidates: Candidates,
    chunks: Sequence[Chunk],
    score: str | Score,
    step: Callable[[Chunk, Block, State], State],
    states: Sequence[State],
    after_block: Callable[[int], None] = lambda done: None,
) -> list[State]:
    """Reads candidates once, and returns the final state of each chunk of queries.

    Args:
        candidates: the candidates.
        chunks: the chunks.
        score: the name of a score, or a user's function, which is checked.
        step: function of a chunk, a block and a state that returns the next state.
        states: the states before the first block.
        after_block: function that is called after each block, with the number of
            candidates so far.
    """
    results, pending = list(states), collections.deque[Callable[[], Any]]()
    for number, block in enumerate(candidates.blocks(), 1):
        with backend.full_precision():
            if number == 1 and callable(score):
                check_pairs(score, chunks[0].embeddings, block.embeddings)
            pairs = zip(chunks, results, strict=True)
            results = [step(chunk, block, state) for chunk, state in pairs]
        # The host waits for the device, which would otherwise hold more blocks.
        pending.append(backend.make_waiter(results))
        if len(pending) > 2:
            pending.popleft()()
        after_block(min(number * candidates.block_size, candidates.items))
    return results


def compile_step(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Returns `function(*arguments, ...)` as a compiled program.

    Programs are cached, except those that depend on a user's score: the score may
    change with its weights, which are constants of the program.
    """
    is_package_code = not any(map(callable, arguments))
    return (_cached_step if is_package_code else _compile_step)(
        function, *arguments, is_package_code=is_package_code
    )


def _compile_step(
    function: Callable[..., Any], *arguments: Any, is_package_code: bool
) -> Callable[..., Any]:
    return backend.compile_function(
        functools.partial(function, *arguments), is_package_code=is_package_code
    )


_cached_step = functools.lru_cache(maxsize=32)(_compile_step)
