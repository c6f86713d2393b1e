"""Candidates of any type, read as blocks of one size."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import copy_arrays, to_tensor, value_error
from keras_rank.lists.tensors import static_shape, upcast

# The number of scores that a CPU holds at a time, and of candidates in a block.
TILE = 2**21
BLOCK_SIZE = 4096

# Larger tiles save no time on an accelerator.
_MAX_TILE = 2**28
# The size of a tile if the memory of the accelerator is unknown.
_DEFAULT_TILE = 2**24
# A score and the values computed from it take this number of bytes. A tile takes at
# most the free memory divided by `_MEMORY_DIVISOR`.
_BYTES_PER_SCORE = 16
_MEMORY_DIVISOR = 16


def tile_size() -> int:
    """Returns the number of scores that are held at a time."""
    if not backend.on_accelerator():
        return TILE
    free = backend.free_memory()
    if free is None:
        return _DEFAULT_TILE
    return _round_to_power_of_two(
        min(free // _MEMORY_DIVISOR // _BYTES_PER_SCORE, _MAX_TILE)
    )


def choose_block_size(
    block_size: int | None, tile: int, num_queries: int, num_features: int
) -> int:
    """Returns the number of candidates in a block.

    It is the argument of the user, or else as large as the tile allows. On an
    accelerator, all queries are in one chunk unless there are too many, and a block of
    embeddings takes at most the memory of the scores.
    """
    if block_size is not None:
        return block_size
    if not backend.on_accelerator():
        return BLOCK_SIZE
    smallest = min(tile, 4 * math.isqrt(tile))
    largest = min(
        tile // max(num_features, 1), max(smallest, tile // max(num_queries, 1))
    )
    return _round_to_power_of_two(largest)


def _round_to_power_of_two(value: int) -> int:
    """Returns the largest power of two that is not above a value.

    Free memory varies, and a program is compiled for each size.
    """
    return 1 << (max(value, 1).bit_length() - 1)


class Block(NamedTuple):
    """A block of consecutive candidates.

    If `bounds` is `None`, all columns count. Otherwise those from the first bound to
    the second do. All fields are tensors, or arrays if programs accept arrays.
    """

    embeddings: Tensor
    first_id: Tensor
    bounds: tuple[Tensor, Tensor] | None

    @classmethod
    def create(cls, embeddings: Tensor, first_id: int, start: int, end: int) -> "Block":
        first, *bounds = map(backend.scalar, (first_id, start, end))
        is_whole = start == 0 and end == embeddings.shape[0]
        return cls(embeddings, first, None if is_whole else (bounds[0], bounds[1]))

    def on_host(self) -> "Block":
        """Returns the block with Python numbers, which arrays can be compared with."""
        bounds = self.bounds and (int(self.bounds[0]), int(self.bounds[1]))
        return self._replace(first_id=int(self.first_id), bounds=bounds)

    @property
    def columns(self) -> Tensor:
        return ops.arange(self.embeddings.shape[0], dtype="int32")[None, :]

    def contains(self, column: Tensor) -> Tensor:
        """Returns whether a column counts."""
        start, end = self.bounds or (0, self.embeddings.shape[0])
        return (column >= start) & (column < end)


# The memory of a second pass, as a multiple of that of the first pass.
_SECOND_PASS_MEMORY = 4


class Candidates:
    """Candidates that are read in blocks, and the sizes of blocks and chunks.

    Attributes:
        items: the number of candidates.
        features: the number of features of each candidate.
        first_id: the id of the first candidate.
        block_size: the number of candidates in a block.
    """

    def __init__(
        self, shape: Any, block_size: int | None, queries: int, first_id: int
    ) -> None:
        self.items, self.features = map(int, shape)
        self.first_id, self._tile = first_id, tile_size()
        largest_block = choose_block_size(
            block_size, self._tile, queries, self.features
        )
        self.block_size = min(largest_block, self.items)

    def chunk_size(self, num_queries: int) -> int:
        """Returns the number of queries in a chunk, for a number of queries."""
        num_chunks = -(-num_queries * self.block_size // self._tile)
        return max(1, -(-num_queries // max(1, num_chunks)))

    def second_pass_size(self, size: int) -> int:
        """Returns the number of queries of a chunk that a second pass searches.

        A second pass takes more memory.
        """
        return min(size, max(1, self._tile // self.block_size // _SECOND_PASS_MEMORY))

    def blocks(self) -> Iterator[Block]:
        """Reads all candidates once, in blocks of one size."""
        raise NotImplementedError

    def has_nan(self) -> bool:
        """Returns whether any embedding has NaN."""
        raise NotImplementedError

    def columns(self, positions: Array) -> Array:
        """Returns the columns that candidates have in their blocks."""
        raise NotImplementedError

    def read_rows(self, ids: Array) -> Tensor:
        """Returns the embeddings of some of the requested candidates."""
        raise NotImplementedError


class Table(Candidates):
    """Candidates in an array, of which any rows can be read."""

    def __init__(self, array: Any, *options: Any) -> None:
        super().__init__(array.shape, *options)
        self._array = array

    def blocks(self) -> Iterator[Block]:
        last = self.items - self.block_size
        for start in range(0, self.items, self.block_size):
            # The last block has the same size, so it may overlap the previous one.
            first = min(start, last)
            rows = _send(backend.row_slice(self._array, first, self.block_size))
            yield Block.create(
                rows, self.first_id + first, start - first, self.block_size
            )

    def has_nan(self) -> bool:
        if not isinstance(self._array, np.ndarray):
            return holds_nan(self._array)
        starts = range(0, self.items, self.block_size)
        rows = (self._array[start : start + self.block_size] for start in starts)
        return any(map(holds_nan, rows))

    def columns(self, positions: Array) -> Array:
        last = self.items - self.block_size
        columns: Array = np.maximum(positions % self.block_size, positions - last)
        return columns

    def read_rows(self, ids: Array) -> Tensor:
        return convert_embeddings(take_rows(self._array, ids - self.first_id))


class Stream(Candidates):
    """Candidates that are read in blocks of any size, from the first one each time.

    A first pass counts them, and stores the requested candidates.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        ids: Array,
        block_size: int | None,
        queries: int,
        first_id: int,
    ) -> None:
        self._read = read
        stored_rows, end, self._dtype = list[Any](), first_id, "float32"
        self._first: Tensor | None = None
        self._has_nan = False
        for part in _read_blocks(read()):
            if self._first is None and part.shape[0]:
                self._first = part[:1]
            if keras.backend.standardize_dtype(part.dtype) == "float64":
                self._dtype = "float64"
            start, end = end, end + int(part.shape[0])
            ids_in_part = ids[(ids >= start) & (ids < end)]
            rows = backend.to_tensor((ids_in_part - start).astype("int32"))
            stored_rows.append(ops.take(part, rows, axis=0))
            self._has_nan = self._has_nan or holds_nan(part)
        if end == first_id:
            raise value_error("candidates", "have one or more items", "no blocks")
        self._stored_rows = self._concatenate(stored_rows)
        shape = end - first_id, self._stored_rows.shape[1]
        super().__init__(shape, block_size, queries, first_id)
        self._ids = ids[(ids >= first_id) & (ids < end)]

    def blocks(self) -> Iterator[Block]:
        first, parts, num_buffered = self.first_id, list[Any](), 0
        for remaining in _read_blocks(self._read()):
            if first + num_buffered == self.first_id and remaining.shape[0]:
                _check_same_first(self._first, remaining[:1])
            while remaining.shape[0]:
                parts.append(remaining[: self.block_size - num_buffered])
                remaining = remaining[self.block_size - num_buffered :]
                num_buffered += int(parts[-1].shape[0])
                if num_buffered == self.block_size:
                    yield Block.create(self._concatenate(parts), first, 0, num_buffered)
                    first, parts, num_buffered = first + num_buffered, [], 0
        check_same_count(self.items, first + num_buffered - self.first_id)
        if num_buffered:
            padding = [(0, self.block_size - num_buffered), (0, 0)]
            rows = ops.pad(self._concatenate(parts), padding)
            yield Block.create(rows, first, 0, num_buffered)

    def has_nan(self) -> bool:
        return self._has_nan

    def columns(self, positions: Array) -> Array:
        return positions % self.block_size

    def _concatenate(self, parts: list[Tensor]) -> Tensor:
        return ops.concatenate([ops.cast(x, self._dtype) for x in parts], axis=0)

    def read_rows(self, ids: Array) -> Tensor:
        positions = np.searchsorted(self._ids, ids).clip(0, max(len(self._ids) - 1, 0))
        if not len(self._ids):
            return ops.zeros((len(ids), self.features), self._stored_rows.dtype)
        return ops.take(
            self._stored_rows, backend.to_tensor(positions.astype("int32")), axis=0
        )


def holds_nan(x: Tensor) -> bool:
    """Returns whether any entry is NaN.

    A sum is inspected first, as it needs no memory for an array of conditions. It is
    also NaN if infinities cancel each other.
    """
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return False
    library = np if isinstance(x, np.ndarray) else ops
    with np.errstate(all="ignore"):
        if not bool(library.isnan(library.sum(x))):
            return False
        return bool(library.any(library.isnan(x)))


def no_ids() -> Array:
    """Returns the ids of no candidates."""
    return np.zeros(0, "int64")


def open_candidates(
    candidates: Any,
    block_size: int | None,
    num_queries: int,
    get_requested_ids: Callable[[], Array] = no_ids,
    first_id: int = 0,
) -> Candidates:
    """Returns the candidates of a user, ready to be read in blocks.

    Args:
        candidates: the argument of the user.
        block_size: the number of candidates in a block, or `None` to choose it.
        num_queries: the number of queries, on which the size of blocks may depend.
        get_requested_ids: function that returns the ids of candidates whose rows will
            be read.
        first_id: the id of the first candidate.
    """
    check_no_model(candidates)
    is_layer = isinstance(candidates, keras.layers.Embedding)
    is_read = callable(candidates) and not hasattr(candidates, "shape")
    read = candidates if is_read and not is_layer else lambda: candidates
    opened = read()
    if isinstance(opened, keras.layers.Embedding):
        opened = _layer_embeddings(opened)
    if _is_stream(opened):
        if opened is candidates and isinstance(opened, Iterator):
            expected = "be readable more than once: instead of a generator, pass the "
            expected += "function that creates it"
            received = f"candidates of type {type(opened).__name__}"
            raise value_error("candidates", expected, received)
        return Stream(read, get_requested_ids(), block_size, num_queries, first_id)
    # A memory-mapped file is not loaded, but read block by block.
    if not isinstance(opened, np.ndarray):
        opened = to_tensor("candidates", opened)
    if len(opened.shape) != 2 or 0 in tuple(opened.shape):
        expected = "have the shape (items, features), with one or more items"
        raise value_error(
            "candidates", expected, f"candidates.shape={static_shape(opened)}"
        )
    return Table(opened, block_size, num_queries, first_id)


def check_no_model(candidates: Any) -> None:
    """Raises `ValueError` for a model, which has no embeddings until it gets inputs."""
    is_layer = isinstance(candidates, keras.Layer)
    if is_layer and not isinstance(candidates, keras.layers.Embedding):
        accepted = "embeddings, or a function such as `lambda: model.predict(items)`"
        raise argument_error("candidates", accepted, candidates)


def take_rows(x: Any, rows: Array) -> Any:
    """Returns some rows of a tensor.

    The result is an array if the backend would compile a program for them.
    """
    x = backend.as_host_array(x)
    if isinstance(x, np.ndarray):
        return x[rows]
    return backend.run_program(_take_rows, x, backend.to_tensor(rows))


def _take_rows(x: Tensor, rows: Tensor) -> Tensor:
    return ops.take(x, rows, axis=0)


def convert_embeddings(embeddings: Any) -> Tensor:
    """Casts embeddings to the dtype of their scores.

    The dtype is float32, or float64 if the embeddings have it.
    """
    return upcast(to_tensor("candidates", embeddings))


def _send(embeddings: Any) -> Tensor:
    """Converts embeddings, while a device still works on the previous block.

    Only float32 arrays can be sent early.
    """
    is_plain = isinstance(embeddings, np.ndarray) and embeddings.dtype == "float32"
    return convert_embeddings(
        backend.copy_to_device(embeddings) if is_plain else embeddings
    )


def _layer_embeddings(layer: keras.layers.Embedding) -> Any:
    if layer.built:
        return layer.embeddings
    expected = "be a built layer: call it or `build` it first"
    raise value_error("candidates", expected, f"{layer.name}, which is not built")


def _is_stream(candidates: Any) -> bool:
    """Returns whether an argument is an iterable of blocks, rather than an array."""
    if hasattr(candidates, "shape"):
        return False
    if isinstance(candidates, list | tuple):
        first = candidates[0] if candidates else ()
        block = _first_element(first)
        shape = block.shape if hasattr(block, "shape") else np.shape(first)
        return len(shape) == 2
    return isinstance(candidates, Iterable | keras.utils.PyDataset)


def iterate_batches(data_set: Any) -> Iterator[Any]:
    """Reads a data set of any library that Keras accepts."""
    if isinstance(data_set, keras.utils.PyDataset):
        return (data_set[i] for i in range(int(data_set.num_batches or 0)))
    return iter(data_set)


def _first_element(element: Any) -> Any:
    """Returns the block in an element of a data set.

    The element may be a tuple of inputs and labels.
    """
    is_several = isinstance(element, list | tuple) and len(element) > 0
    return element[0] if is_several else element


def check_same_count(items: int, num_read: int) -> None:
    """Raises `ValueError` if another pass read another number of candidates."""
    if num_read != items:
        expected = "hold the same items each time they are read"
        received = f"{items} items at first, {num_read} when they were read again"
        raise value_error("candidates", expected, received)


def _check_same_first(first: Any, embedding: Tensor) -> None:
    """Raises `ValueError` if another pass read another first candidate."""
    if not is_close(*map(ops.convert_to_numpy, (first, embedding))):
        expected = "hold the same items in the same order each time they are read"
        received = "another first item when they were read again"
        raise value_error("candidates", expected, received)


def is_close(numbers: Array, other_numbers: Array) -> bool:
    """Returns whether all numbers are equal up to rounding errors."""
    size = np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0)
    return np.allclose(numbers, other_numbers, 1e-3, 1e-4 * size, equal_nan=True)


def _read_blocks(blocks: Any) -> Iterator[Tensor]:
    """Yields blocks of any type as tensors, in the dtype of their scores."""
    features = None
    for part in map(_first_element, iterate_batches(blocks)):
        if not hasattr(part, "shape"):
            received = f"{type(blocks).__name__} with a block of type "
            received += f"{type(part).__name__}"
            raise value_error(
                "candidates", "be embeddings, or blocks of them", received
            )
        if len(part.shape) != 2:
            expected = "have blocks of the shape (items, features)"
            raise value_error(
                "candidates", expected, f"a block of shape {static_shape(part)}"
            )
        features = int(part.shape[1]) if features is None else features
        if part.shape[1] != features:
            expected = "have the same number of features in each block"
            received = f"blocks with {features} and {part.shape[1]} features"
            raise value_error("candidates", expected, received)
        # The block is copied, as the next one may overwrite its memory.
        yield convert_embeddings(copy_arrays(part))
