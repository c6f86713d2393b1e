"""Candidates in parts. A worker counts the higher scores in each part."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.catalogue.blocks import Queries
from keras_rank.catalogue.candidates import (
    Candidates,
    check_same_count,
    no_ids,
    open_candidates,
)
from keras_rank.lists.input_arrays import value_error
from keras_rank.lists.tensors import as_tensor

Map: TypeAlias = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]


class Shards:
    """Candidates in parts, on several machines or in several files.

    Pass it as `candidates` to `keras_rank.catalogue.rank`,
    `keras_rank.catalogue.evaluate`, `keras_rank.catalogue.top_k` or
    `keras_rank.callbacks.CatalogueEvaluation`. Each worker counts the higher scores in
    its part. The sums of these counts give the ranks among all candidates.

    Args:
        parts: list of candidates, in the order of their ids: the first item of a part
            follows the last one of the previous part. A part is any valid value of
            `candidates`, except `Shards`. If a part is a function, the worker calls it,
            so no embeddings are sent to the worker. The function is called several
            times, to count the items, to score the targets, to count the items above
            the targets, and for metrics of exposure, so it should read embeddings
            rather than encode items.
        map_fn: function that is called like the built-in `map`, with a function and a
            list of arguments, one for each part. It returns or yields the results, in
            order, and may compute them anywhere, like `ProcessPoolExecutor().map`.
            Defaults to the built-in `map`, which computes one part after the other.

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
            received = f"parts of type {type(parts).__name__}"
            raise value_error("parts", "be a list of one or more parts", received)
        if not callable(map_fn):
            raise argument_error("map_fn", "a function", map_fn)
        self.parts, self.map_fn = list(parts), map_fn


class Part(NamedTuple):
    """The candidates of a part, its first id, and its number of items."""

    candidates: Any
    first_id: int
    items: int


@dataclasses.dataclass(frozen=True)
class OpenShards:
    """Shards whose numbers of items and features are known."""

    parts: list[Part]
    map_fn: Map
    items: int
    features: int
    block_size: int | None


def open_shards(shards: Shards, block_size: int | None) -> OpenShards:
    """Reads the number of items and of features of each part."""
    read_shape = functools.partial(_read_shape, block_size=block_size)
    shapes = list(_map_parts(shards.map_fn, read_shape, shards.parts))
    items, features = np.array(shapes, "int64").T
    if len(set(features)) > 1:
        received = f"parts with {features.tolist()} features"
        raise value_error("parts", "have the same number of features", received)
    starts = np.cumsum(items) - items
    part_fields = zip(shards.parts, starts.tolist(), items.tolist(), strict=True)
    parts = [Part(*x) for x in part_fields]
    return OpenShards(
        parts, shards.map_fn, int(sum(items)), int(features[0]), block_size
    )


def _read_shape(part: Any, block_size: int | None) -> tuple[int, int]:
    candidates = open_candidates(part, block_size, 1)
    return candidates.items, candidates.features


def apply_to_parts(
    function: Callable[..., Any],
    queries: Queries,
    candidates: Candidates | OpenShards,
    *options: Any,
    after_block: Callable[[int], None] | None = None,
) -> Iterator[Any]:
    """Yields the result of a function for each part, or for all candidates at once.

    Args:
        function: module-level function of queries, candidates and the options.
        queries: the queries.
        candidates: the candidates. Only shards have parts.
        *options: further arguments of the function.
        after_block: function that is called with the number of candidates so far. It
            is called after each part. If there are no parts, it is passed to
            `function`, which calls it after each block.
    """
    if not isinstance(candidates, OpenShards):
        keywords = {} if after_block is None else {"after_block": after_block}
        yield function(queries, candidates, *options, **keywords)
        return
    arrays = queries.apply(ops.convert_to_numpy)
    task = PartTask(function, arrays, candidates.block_size, options)
    results = _map_parts(candidates.map_fn, task, candidates.parts)
    for part, result in zip(candidates.parts, results, strict=True):
        yield result
        if after_block is not None:
            after_block(part.first_id + part.items)


@dataclasses.dataclass(frozen=True)
class PartTask:
    """The task of a worker: to call a function with queries and a part."""

    function: Callable[..., Any]
    queries: Queries
    block_size: int | None
    options: tuple[Any, ...]

    def __call__(self, part: Part) -> Any:
        """Returns the result of the function for a part, as NumPy arrays."""
        ids = self.queries.ids
        get_requested_ids = no_ids if ids is None else lambda: np.unique(ids)
        candidates = open_candidates(
            part.candidates,
            self.block_size,
            len(self.queries.embeddings),
            get_requested_ids,
            part.first_id,
        )
        check_same_count(part.items, candidates.items)
        queries = self.queries._replace(
            embeddings=as_tensor(self.queries.embeddings),
            keys=as_tensor(self.queries.keys),
        )
        result = self.function(queries, candidates, *self.options)
        return keras.tree.map_structure(ops.convert_to_numpy, result)


def _map_parts(
    map_fn: Map, function: Callable[[Any], Any], parts: list[Any]
) -> Iterator[Any]:
    """Yields the result of a function for each part."""
    results = map_fn(function, parts)
    if not isinstance(results, Iterable):
        expected = "return or yield the result of the function for each part"
        raise value_error("map_fn", expected, type(results).__name__)
    number = 0
    for number, result in enumerate(results, 1):
        if result is None:
            expected = "return the result of the function for each part"
            raise value_error("map_fn", expected, f"None for part {number - 1}")
        if number <= len(parts):
            yield result
    if number != len(parts):
        received = f"{number} results for {len(parts)} parts"
        raise value_error("map_fn", "return one result for each part", received)
