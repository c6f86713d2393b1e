"""The best candidates of each query, selected exactly from a stream of blocks."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_positive,
    check_ties_broken,
    names_arguments,
    shuffle_key,
)
from keras_rank.arrays.sorting import with_entries
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.candidates import Candidates
from keras_rank.catalogue.counting import (
    Columns,
    chunks_of,
    of_whole_and_part,
)
from keras_rank.catalogue.ranks import excluded_ids, keys_of_queries, open_scored
from keras_rank.catalogue.scoring import Score, check_score, checked
from keras_rank.catalogue.shards import OpenShards, Part, map_parts
from keras_rank.lists.limits import as_ranked
from keras_rank.lists.tensors import as_tensor, cast_finite, to_tensor
from keras_rank.ranking.tie_breaking import item_keys


@names_arguments
def top_k(
    queries: Any,
    candidates: Any,
    k: int,
    *,
    score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
    exclude: Any = None,
    shuffle_ties: ShuffleTies = False,
    seed: Seed = None,
    block_size: int | None = None,
    dtype: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the best candidates of each query, without building a matrix of scores.

    Their order agrees with `keras_rank.catalogue.rank`: with the same `shuffle_ties`
    and `seed`, a target of rank r is the r-th candidate here.

    Args:
        queries: as for `keras_rank.catalogue.rank`: of shape `(batch, features)`.
        candidates: as for `keras_rank.catalogue.rank`: of shape `(items, features)`.
        k: positive int. The number of candidates for each query.
        exclude: ids of shape `(batch, n)`, padded with -1: items that are left out,
            such as seen items. Or a sparse matrix of SciPy of shape `(batch, items)`,
            whatever values it stores.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `False`.
        dtype: `"float64"` for scores in float64. Defaults to float32.
        **arguments: as for `keras_rank.catalogue.rank`: score, seed, block_size.

    Returns:
        The scores and the ids of the best candidates, two tensors of shape
        `(batch, k)`. If there are fewer than k, the rest is `-inf` and -1.

    Raises:
        ValueError: if shapes don't match, or an id is out of range.

    Example:

    >>> queries = [[1.0, 0.0], [0.0, 1.0]]
    >>> candidates = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]
    >>> scores, ids = keras_rank.catalogue.top_k(queries, candidates, k=2)
    >>> [[int(i) for i in row] for row in ids]
    [[0, 1], [2, 1]]
    """
    k, ties = check_positive("k", k), check_ties_broken(shuffle_ties)
    key, dtype = shuffle_key(ties, seed), check_dtype(dtype)
    embeddings, found = open_scored(queries, candidates, score, block_size)
    number = int(embeddings.shape[0])
    if number == 0:
        return ops.zeros((0, k), dtype), ops.zeros((0, k), "int32")
    excluded = None
    if exclude is not None:
        nothing = np.full((number, 1), -1, "int32")
        excluded = excluded_ids(exclude, nothing, found.items)
    keys = None
    if ties == "shuffle":
        everyone = np.ones(number, "bool")
        keys = backend.enter(keys_of_queries, None, key, everyone)
    best = best_among(Seekers(embeddings, excluded, keys), found, score, k)
    return cast_finite(best.scores, dtype), best.ids


class Seekers(NamedTuple):
    """Some queries, and the candidates that are excluded for them, padded with -1.

    `keys` is `None` if the earlier of tied candidates goes first.
    """

    embeddings: Tensor
    excluded: Tensor | None
    keys: Tensor | None

    def each(self, function: Callable[[Tensor], Tensor]) -> "Seekers":
        return Seekers(*(None if x is None else function(x) for x in self))


class Best(NamedTuple):
    """The best candidates so far, of shape `(queries, k)`: `-inf` and -1 for none."""

    scores: Tensor
    ids: Tensor


def best_among(
    seekers: Seekers,
    candidates: Candidates | OpenShards,
    score: str | Score,
    k: int,
) -> Best:
    """Reads candidates once, and keeps the best of each query."""
    if isinstance(candidates, OpenShards):
        return best_in_shards(seekers, candidates, score, k)
    return best_of(seekers, candidates, score, k)


def best_of(
    seekers: Seekers, candidates: Candidates, score: str | Score, k: int
) -> Best:
    """Returns the best of all candidates, or of consecutive ones."""
    # A user's function may change with its weights, which compiling would freeze.
    steps = _steps_kept if isinstance(score, str) else _steps_of
    search, join = steps(score, min(k, candidates.block_size)), _joining(k)
    number = int(seekers.embeddings.shape[0])
    rows = list(chunks_of(number, candidates.block_size))
    chunks = [seekers]
    if len(rows) > 1:
        whole = seekers.each(as_tensor)
        chunks = [
            whole.each(
                functools.partial(ops.take, indices=backend.to_tensor(each), axis=0)
            )
            for each in rows
        ]
    best = dict[int, Best]()
    is_ours = isinstance(score, str)
    unknown = None if is_ours else backend.compiled(check_score(score), is_ours=False)
    for block in checked(candidates.blocks(), unknown, chunks[0].embeddings):
        columns = Columns.of(block)
        with backend.full_precision(), backend.quiet():
            for i, chunk in enumerate(chunks):
                found = search(block.is_whole, chunk, block.embeddings, columns)
                best[i] = join(chunk.keys, best[i], found) if i in best else found
    return backend.enter(_in_order, (number, k), seekers.keys, list(best.values()))


def best_in_shards(
    seekers: Seekers, shards: OpenShards, score: str | Score, k: int
) -> Best:
    """Returns the best of all parts."""
    search = Search(seekers.each(ops.convert_to_numpy), score, shards.block_size, k)
    found = list(map_parts(shards.map_fn, search, shards.parts))
    # On NumPy, Keras would join float32 and float64 as float32.
    dtype = np.result_type(*(scores for scores, _ in found))
    parts = [
        Best(
            to_tensor("candidates", scores.astype(dtype)),
            to_tensor("candidates", ids),
        )
        for scores, ids in found
    ]
    best = functools.reduce(functools.partial(_joining(k), seekers.keys), parts)
    return backend.enter(_in_order, (len(best.ids), k), seekers.keys, [best])


@dataclasses.dataclass(frozen=True)
class Search:
    """The work on a part, sent to its worker as NumPy arrays."""

    seekers: Seekers
    scoring: str | Score
    block_size: int
    k: int

    def __call__(self, part: Part) -> tuple[Array, Array]:
        """Returns the scores and the ids of the best in the part."""
        candidates = part.opened(self.block_size)
        seekers = self.seekers.each(functools.partial(to_tensor, "queries"))
        best = best_of(seekers, candidates, self.scoring, self.k)
        scores, ids = map(ops.convert_to_numpy, best)
        return scores, ids


def _steps_of(score: str | Score, of_block: int) -> Callable[..., Best]:
    is_ours, scores_of = isinstance(score, str), check_score(score)

    def scored(
        seekers: Seekers, block: Tensor, columns: Columns, is_whole: bool
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The scores of a block, and the keys of its candidates."""
        scores = scores_of(seekers.embeddings, block)
        if not (is_ours or backend.is_concrete(scores)):
            # A pass over memory: all but the graphs of TensorFlow, which a user's
            # function may need, tell NaN by an entry that is first.
            scores = _with_number(scores)
        if not is_whole:
            scores = columns.of_held(scores)
        if seekers.excluded is not None:
            size = scores.shape[1]
            # Those of other blocks are written to a column that is cut off.
            place = seekers.excluded - columns.first_id
            is_here = ops.logical_and(place >= 0, place < size)
            place = backend.where(is_here, place, size)
            nothing = ops.full_like(ops.cast(place, scores.dtype), -math.inf)
            widened = ops.pad(scores, [(0, 0), (0, 1)])
            scores = with_entries(widened, place, nothing)[:, :size]
        return scores, lambda places: item_keys(
            seekers.keys, columns.first_id + 1 + places
        )

    def find(
        seekers: Seekers, block: Tensor, columns: Columns, is_whole: bool
    ) -> tuple[Best, Tensor | bool]:
        scores, keys = scored(seekers, block, columns, is_whole)
        values, places, are_best = _found(scores, keys, of_block)
        return Best(values, columns.first_id + places), are_best

    def find_in_full(
        seekers: Seekers, block: Tensor, columns: Columns, is_whole: bool
    ) -> Best:
        scores, keys = scored(seekers, block, columns, is_whole)
        values, places = _found_in_full(scores, keys, of_block)
        return Best(values, columns.first_id + places)

    compile_step = functools.partial(backend.compiled, is_ours=is_ours)
    found, found_in_full = (
        of_whole_and_part(function, compile_step) for function in (find, find_in_full)
    )

    def search(is_whole: bool, *block: Any) -> Best:
        # A branch of one program would take XLA as long as both of them.
        if not backend.on_accelerator():
            best: Best
            best, are_best = found[is_whole](*block)
            if are_best:
                return best
        return cast(Best, found_in_full[is_whole](*block))

    return search


_steps_kept = functools.lru_cache(maxsize=8)(_steps_of)


@functools.lru_cache(maxsize=8)
def _joining(k: int) -> Callable[..., Best]:
    """Compiles the step that joins the best of two blocks."""
    return backend.compiled(functools.partial(_joined, k=k), is_ours=True)


def _joined(keys: Tensor | None, best: Best, found: Best, k: int) -> Best:
    scores, ids = (
        ops.concatenate(pair, axis=1) for pair in zip(best, found, strict=True)
    )
    size = scores.shape[1]

    def keys_at(places: Tensor) -> Tensor:
        return item_keys(keys, backend.take(ids, places) + 1)

    values, order = _selected(scores, keys_at, min(k, size))
    return Best(values, backend.take(ids, order))


def _selected(
    scores: Tensor, keys: Callable[[Tensor], Tensor], number: int
) -> tuple[Tensor, Tensor]:
    """The highest scores of each row, and their positions: see `_found`."""
    *found, are_best = _found(scores, keys, number)
    values, places = backend.branch(
        are_best, lambda: tuple(found), lambda: _found_in_full(scores, keys, number)
    )
    return values, places


def _found(
    scores: Tensor, keys: Callable[[Tensor], Tensor], number: int
) -> tuple[Tensor, Tensor, Tensor | bool]:
    """The highest scores of each row, as they are compared, and their positions.

    Of equal scores those with larger keys are in. `scores`, of shape `(queries, size)`,
    should be without NaN in a graph of TensorFlow.

    Returns:
        The scores, the positions, and whether they are right: not where three or more
        scores are equal, of which some are in and others not, or where any is NaN.
    """
    # One more tells whether any other equals the last one. In large blocks two often
    # do by chance, and so there is another.
    values, places = backend.top_k(scores, min(number + 2, scores.shape[1]))
    values, places = as_ranked(values), ops.cast(places, "int32")
    last, following = values[:, number - 1 : number], values[:, number:]
    are_tied = ops.logical_and(following == last, last > -math.inf)

    def by_keys() -> tuple[Tensor, Tensor]:
        order = backend.lexsort(-values, -keys(places))[:, :number]
        return backend.take(values, order), backend.take(places, order)

    are_odd = ops.concatenate([ops.isnan(values), are_tied[:, 1:]], axis=1)
    values, places = backend.branch(
        ops.logical_not(ops.any(are_tied)),
        lambda: (values[:, :number], places[:, :number]),
        by_keys,
    )
    return values, places, ops.logical_not(ops.any(are_odd))


def _found_in_full(
    scores: Tensor, keys: Callable[[Tensor], Tensor], number: int
) -> tuple[Tensor, Tensor]:
    """The same, in order, by sorting all of them."""
    in_order = as_ranked(_with_number(scores))
    column = ops.arange(scores.shape[1], dtype="int32")[None, :]
    all_keys = keys(ops.broadcast_to(column, ops.shape(scores)))
    order = backend.lexsort(-in_order, -all_keys)[:, :number]
    return backend.take(in_order, order), ops.cast(order, "int32")


def _with_number(scores: Tensor) -> Tensor:
    """Scores with `-inf` for NaN."""
    return backend.where(scores > -math.inf, scores, -math.inf)


def _in_order(
    number_and_k: tuple[int, int], keys: Tensor | None, chunks: list[Best]
) -> Best:
    """The best of all queries, of equal scores those with larger keys first.

    `chunks` are those of some queries after the other. Queries after the number in
    `number_and_k` repeat others. Rows of fewer than k are padded.
    """
    number, k = number_and_k
    scores, ids = (
        ops.concatenate(x, axis=0)[:number] for x in zip(*chunks, strict=True)
    )
    order = backend.lexsort(-scores, -item_keys(keys, ids + 1))
    scores, ids = backend.take(scores, order), backend.take(ids, order)
    ids = backend.where(scores > -math.inf, ids, -1)
    missing = [(0, 0), (0, k - scores.shape[1])]
    return Best(
        ops.pad(scores, missing, constant_values=-math.inf),
        ops.pad(ids, missing, constant_values=-1),
    )
