"""Candidates in parts, each counted by a worker. The counts add up."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor
from keras_rank.catalogue.candidates import (
    Candidates,
    check_as_many,
    no_ids,
    open_candidates,
)
from keras_rank.catalogue.counting import (
    Counts,
    Queries,
    Steps,
    count_above,
    count_by_passes,
    score_targets,
    steps_of,
)
from keras_rank.catalogue.scoring import Score
from keras_rank.lists.tensors import to_tensor

Map: TypeAlias = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]


class Shards:
    """Candidates in parts, on several machines or in several files.

    Pass it as `candidates` to `keras_rank.catalogue.rank`,
    `keras_rank.catalogue.evaluate`, `keras_rank.catalogue.top_k` or
    `keras_rank.callbacks.CatalogueEvaluation`. Each worker counts the higher scores in
    its part, and the counts add up: the ranks are those among all candidates.

    Args:
        parts: list of candidates, in the order of their ids: the first item of a part
            follows the last one of the previous part. Each is anything that can be
            `candidates`, except `Shards`. A function is called by the worker, so its
            embeddings are not sent. It is called several times, to count the items, to
            score the targets, to count the items above them, and for metrics of
            exposure, so it should read embeddings rather than encode items.
        map_fn: function that is called like the builtin `map`, with a function and a
            list of arguments, one for each part. It returns or yields the results, in
            order, and may compute them anywhere, like `ProcessPoolExecutor().map`.
            Defaults to the builtin, which computes one after the other.

    Raises:
        ValueError: if `parts` is not a list of parts, or `map_fn` is not a function.

    Example:

    >>> candidates = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]
    >>> shards = keras_rank.catalogue.Shards([candidates[:2], candidates[2:]])
    >>> queries, metrics = [[1.0, 0.0], [0.0, 1.0]], ["mrr", "recall@2"]
    >>> keras_rank.catalogue.evaluate([0, 1], queries, shards, metrics, verbose=0)
    {'mrr': 0.75, 'recall@2': 1.0}
    """

    def __init__(
        self,
        parts: Iterable[Any],
        map_fn: Map = map,
    ) -> None:
        if not isinstance(parts, list | tuple) or len(parts) == 0:
            raise ValueError(
                "`parts` should be a list of one or more parts. "
                f"Received: parts of type {type(parts).__name__}"
            )
        if not callable(map_fn):
            raise ValueError(
                f"`map_fn` should be a function. Received: map_fn={map_fn!r}"
            )
        self.parts, self.map_fn = list(parts), map_fn


class Part(NamedTuple):
    """A part of the candidates as passed, its first id, and its number of items."""

    candidates: Any
    first_id: int
    items: int

    def opened(
        self, block_size: int, wanted: Callable[[], Array] = no_ids
    ) -> Candidates:
        """Opens the candidates, given what returns the ids that will be asked for."""
        found = open_candidates(self.candidates, block_size, wanted, self.first_id)
        check_as_many(self.items, found.items)
        return found


@dataclasses.dataclass(frozen=True)
class OpenShards:
    """Parts with known numbers of items."""

    parts: list[Part]
    map_fn: Map
    items: int
    features: int
    block_size: int


def open_shards(shards: Shards, block_size: int) -> OpenShards:
    """Asks each part for its number of items and of features."""
    shape = functools.partial(_shape, block_size=block_size)
    shapes = list(map_parts(shards.map_fn, shape, shards.parts))
    items, features = np.array(shapes, "int64").T
    if len(set(features)) > 1:
        raise ValueError(
            "`parts` should have the same number of features. Received: "
            f"parts with {features.tolist()} features"
        )
    starts = np.cumsum(items) - items
    each = zip(shards.parts, starts.tolist(), items.tolist(), strict=True)
    parts = [Part(*x) for x in each]
    return OpenShards(
        parts, shards.map_fn, int(sum(items)), int(features[0]), block_size
    )


def count_in_shards(
    queries: Queries,
    shards: OpenShards,
    score: str | Score,
    averages: bool,
    after_part: Callable[[int], None],
) -> Counts:
    """Counts the candidates above the targets of all queries, over all parts.

    `after_part` is called after each part, with the number of candidates so far.
    """
    work = functools.partial(
        Work,
        queries.each(_array),
        score,
        averages,
        shards.block_size,
    )

    def count_parts(target_scores: Array) -> Counts:
        counts = list[Counts]()
        count_part = work(target_scores).count
        counted = map_parts(shards.map_fn, count_part, shards.parts)
        for part, of_part in zip(shards.parts, counted, strict=True):
            counts.append(of_part)
            after_part(part.first_id + part.items)
        above, tied, before, scores = zip(*counts, strict=True)
        return Counts(sum(above), sum(tied), sum(before), _maximum(scores))

    target_scores = _maximum(map_parts(shards.map_fn, work().score, shards.parts))
    return count_by_passes(target_scores, count_parts)


@dataclasses.dataclass(frozen=True)
class Work:
    """The work on a part, sent to its worker as NumPy arrays."""

    queries: Queries
    scoring: str | Score
    averages: bool
    block_size: int
    target_scores: Array | None = None

    def score(self, part: Part) -> Array:
        """Scores the targets that are in the part, `-inf` for the others."""
        return score_targets(*self._opened(part))

    def count(self, part: Part) -> Counts:
        """Counts the candidates of the part above the targets."""
        queries, candidates, steps = self._opened(part)
        scores = np.asarray(self.target_scores)
        return count_above(queries, scores, candidates, steps)

    def _opened(self, part: Part) -> tuple[Queries, Candidates, Steps]:
        ids = self.queries.ids
        candidates = part.opened(self.block_size, lambda: np.unique(ids))
        queries = self.queries.each(functools.partial(to_tensor, "queries"))
        return queries, candidates, steps_of(self.scoring, self.averages)


def map_parts(
    map_fn: Map, function: Callable[[Any], Any], parts: list[Any]
) -> Iterator[Any]:
    """Yields the result of a function for each part."""
    results = map_fn(function, parts)
    if not isinstance(results, Iterable):
        raise ValueError(
            "`map_fn` should return or yield the result of the function for each part. "
            f"Received: {type(results).__name__}"
        )
    number = 0
    for number, result in enumerate(results, 1):
        if result is None:
            raise ValueError(
                "`map_fn` should return the result of the function for each part. "
                f"Received: None for part {number - 1}"
            )
        if number <= len(parts):
            yield result
    if number != len(parts):
        raise ValueError(
            "`map_fn` should return one result for each part. Received: "
            f"{number} results for {len(parts)} parts"
        )


def _shape(part: Any, block_size: int) -> tuple[int, int]:
    candidates = open_candidates(part, block_size)
    return candidates.items, candidates.features


def _array(tensor: Tensor) -> Array:
    array: Array = ops.convert_to_numpy(tensor)
    return array


def _maximum(scores: Iterable[Array]) -> Array:
    return functools.reduce(np.maximum, scores)
