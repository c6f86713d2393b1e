"""Candidates of any form, as blocks of one size."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import own, refused, to_tensor
from keras_rank.lists.tensors import ranked_as, shape_of

# The number of scores that are held at a time on a CPU, and of candidates in a block.
TILE = 2**21
BLOCK_SIZE = 4096

# More scores than these take an accelerator no less time.
_MOST = 2**28
# Where its memory is unknown.
_FEW = 2**24
# What is computed of a score takes these bytes at a time, in all at most this share of
# the free memory.
_BYTES = 16
_SHARE = 16


def tile_size() -> int:
    """The number of scores that are held at a time."""
    if not backend.on_accelerator():
        return TILE
    free = backend.free_memory()
    if free is None:
        return _FEW
    return _power_of_two(min(free // _SHARE // _BYTES, _MOST))


def block_size_of(given: int | None, tile: int, queries: int, features: int) -> int:
    """The number of candidates in a block, as given or as the tile allows.

    On an accelerator all queries are in one chunk if these are not too many, and a
    block of embeddings takes at most the memory of the scores.
    """
    if given is not None:
        return given
    if not backend.on_accelerator():
        return BLOCK_SIZE
    least = min(tile, 4 * math.isqrt(tile))
    most = min(tile // max(features, 1), max(least, tile // max(queries, 1)))
    return _power_of_two(most)


def _power_of_two(most: int) -> int:
    """A power of two, as free memory varies, and programs are compiled for sizes."""
    return 1 << (max(most, 1).bit_length() - 1)


class Block(NamedTuple):
    """Consecutive candidates, all of which count if `bounds` is `None`.

    Otherwise the columns from the first bound to the second do. All are tensors, or
    arrays where programs accept these.
    """

    embeddings: Tensor
    first_id: Tensor
    bounds: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, embeddings: Tensor, first_id: int, start: int, end: int) -> "Block":
        first, *bounds = map(backend.scalar, (first_id, start, end))
        is_whole = start == 0 and end == embeddings.shape[0]
        return cls(embeddings, first, None if is_whole else (bounds[0], bounds[1]))

    def on_host(self) -> "Block":
        """The same, with numbers that arrays can be compared with."""
        bounds = self.bounds and (int(self.bounds[0]), int(self.bounds[1]))
        return self._replace(first_id=int(self.first_id), bounds=bounds)

    @property
    def columns(self) -> Tensor:
        return ops.arange(self.embeddings.shape[0], dtype="int32")[None, :]

    def hold(self, column: Tensor) -> Tensor:
        """Whether a column counts."""
        start, end = self.bounds or (0, self.embeddings.shape[0])
        return (column >= start) & (column < end)


# Of a second pass, compared with a first one.
_MORE_MEMORY = 4


class Candidates:
    """Candidates, and how many scores of theirs are held at a time.

    Attributes:
        items: their number.
        features: the number of features of each.
        first_id: the id of the first one.
        block_size: the number of candidates in a block.
    """

    def __init__(
        self, shape: Any, block_size: int | None, queries: int, first_id: int
    ) -> None:
        self.items, self.features = map(int, shape)
        self.first_id, self._tile = first_id, tile_size()
        most = block_size_of(block_size, self._tile, queries, self.features)
        self.block_size = min(most, self.items)

    def queries_at_once(self, number: int) -> int:
        """The size of chunks of a number of queries."""
        chunks = -(-number * self.block_size // self._tile)
        return max(1, -(-number // max(1, chunks)))

    def queries_again(self, size: int) -> int:
        """How many of a chunk are asked in a second pass, which takes more memory."""
        return min(size, max(1, self._tile // self.block_size // _MORE_MEMORY))

    def blocks(self) -> Iterator[Block]:
        """Reads all candidates once, in blocks of one size."""
        raise NotImplementedError

    def has_nan(self) -> bool:
        """Returns whether any embedding has NaN."""
        raise NotImplementedError

    def columns(self, places: Array) -> Array:
        """The columns that candidates have in their blocks."""
        raise NotImplementedError

    def rows(self, ids: Array) -> Tensor:
        """Returns some of the candidates that were asked for."""
        raise NotImplementedError


class Table(Candidates):
    """Candidates in an array, of which any rows can be read."""

    def __init__(self, array: Any, *options: Any) -> None:
        super().__init__(array.shape, *options)
        self._array = array

    def blocks(self) -> Iterator[Block]:
        last = self.items - self.block_size
        for start in range(0, self.items, self.block_size):
            # The last block is as large as the others, and overlaps the one before.
            first = min(start, last)
            rows = _sent(backend.row_slice(self._array, first, self.block_size))
            yield Block.of(rows, self.first_id + first, start - first, self.block_size)

    def has_nan(self) -> bool:
        if not isinstance(self._array, np.ndarray):
            return holds_nan(self._array)
        starts = range(0, self.items, self.block_size)
        rows = (self._array[start : start + self.block_size] for start in starts)
        return any(map(holds_nan, rows))

    def columns(self, places: Array) -> Array:
        last = self.items - self.block_size
        columns: Array = np.maximum(places % self.block_size, places - last)
        return columns

    def rows(self, ids: Array) -> Tensor:
        return as_scored(rows_of(self._array, ids - self.first_id))


class Stream(Candidates):
    """Candidates that are read in blocks of any size, from the first one each time.

    A first pass counts them, and keeps those that will be asked for.
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
        kept, end, self._dtype = list[Any](), first_id, "float32"
        self._first: Tensor | None = None
        self._has_nan = False
        for part in _parts(read()):
            if self._first is None and part.shape[0]:
                self._first = part[:1]
            if keras.backend.standardize_dtype(part.dtype) == "float64":
                self._dtype = "float64"
            start, end = end, end + int(part.shape[0])
            here = ids[(ids >= start) & (ids < end)]
            rows = backend.to_tensor((here - start).astype("int32"))
            kept.append(ops.take(part, rows, axis=0))
            self._has_nan = self._has_nan or holds_nan(part)
        if end == first_id:
            raise refused("candidates", "have one or more items", "no blocks")
        self._kept = self._joined(kept)
        shape = end - first_id, self._kept.shape[1]
        super().__init__(shape, block_size, queries, first_id)
        self._ids = ids[(ids >= first_id) & (ids < end)]

    def blocks(self) -> Iterator[Block]:
        first, parts, waiting = self.first_id, list[Any](), 0
        for rest in _parts(self._read()):
            if first + waiting == self.first_id and rest.shape[0]:
                _check_same(self._first, rest[:1])
            while rest.shape[0]:
                parts.append(rest[: self.block_size - waiting])
                rest = rest[self.block_size - waiting :]
                waiting += int(parts[-1].shape[0])
                if waiting == self.block_size:
                    yield Block.of(self._joined(parts), first, 0, waiting)
                    first, parts, waiting = first + waiting, [], 0
        check_as_many(self.items, first + waiting - self.first_id)
        if waiting:
            filling = [(0, self.block_size - waiting), (0, 0)]
            rows = ops.pad(self._joined(parts), filling)
            yield Block.of(rows, first, 0, waiting)

    def has_nan(self) -> bool:
        return self._has_nan

    def columns(self, places: Array) -> Array:
        return places % self.block_size

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return ops.concatenate([ops.cast(x, self._dtype) for x in parts], axis=0)

    def rows(self, ids: Array) -> Tensor:
        places = np.searchsorted(self._ids, ids).clip(0, max(len(self._ids) - 1, 0))
        if not len(self._ids):
            return ops.zeros((len(ids), self.features), self._kept.dtype)
        return ops.take(self._kept, backend.to_tensor(places.astype("int32")), axis=0)


def holds_nan(x: Tensor) -> bool:
    """Returns whether any entry is NaN.

    A sum needs no memory for an array of conditions. It is also NaN where infinities
    cancel each other.
    """
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return False
    library = np if isinstance(x, np.ndarray) else ops
    with np.errstate(all="ignore"):
        if not bool(library.isnan(library.sum(x))):
            return False
        return bool(library.any(library.isnan(x)))


def no_ids() -> Array:
    """The ids of no candidates."""
    return np.zeros(0, "int64")


def open_candidates(
    candidates: Any,
    block_size: int | None,
    queries: int,
    wanted: Callable[[], Array] = no_ids,
    first_id: int = 0,
) -> Candidates:
    """Returns the candidates that users pass, to be read in blocks.

    The size of these depends on the number of queries, if it is not given. `wanted`
    returns the ids of candidates that will be asked for.
    """
    check_no_model(candidates)
    is_layer = isinstance(candidates, keras.layers.Embedding)
    is_read = callable(candidates) and not hasattr(candidates, "shape")
    read = candidates if is_read and not is_layer else lambda: candidates
    given = read()
    if isinstance(given, keras.layers.Embedding):
        given = _embeddings(given)
    if _is_stream(given):
        if given is candidates and isinstance(given, Iterator):
            expected = "be readable more than once: instead of a generator, pass the "
            expected += "function that creates it"
            received = f"candidates of type {type(given).__name__}"
            raise refused("candidates", expected, received)
        return Stream(read, wanted(), block_size, queries, first_id)
    # A file that is mapped to memory stays there, and is read block by block.
    if not isinstance(given, np.ndarray):
        given = to_tensor("candidates", given)
    if len(given.shape) != 2 or 0 in tuple(given.shape):
        expected = "have the shape (items, features), with one or more items"
        raise refused("candidates", expected, f"candidates.shape={shape_of(given)}")
    return Table(given, block_size, queries, first_id)


def check_no_model(candidates: Any) -> None:
    """Raises for a model, which has no embeddings until it gets inputs."""
    is_layer = isinstance(candidates, keras.Layer)
    if is_layer and not isinstance(candidates, keras.layers.Embedding):
        accepted = "embeddings, or a function such as `lambda: model.predict(items)`"
        raise argument_error("candidates", accepted, candidates)


def rows_of(x: Any, rows: Array) -> Any:
    """Some rows of a tensor, or an array where a program would be compiled for them."""
    x = backend.on_host(x)
    if isinstance(x, np.ndarray):
        return x[rows]
    return backend.enter(_rows_of, x, backend.to_tensor(rows))


def _rows_of(x: Tensor, rows: Tensor) -> Tensor:
    return ops.take(x, rows, axis=0)


def as_scored(embeddings: Any) -> Tensor:
    """Embeddings in the precision of their scores: float32, or float64 if given so."""
    return ranked_as(to_tensor("candidates", embeddings))


def _sent(embeddings: Any) -> Tensor:
    """The same, of an array while a device still works on the block before."""
    is_plain = isinstance(embeddings, np.ndarray) and embeddings.dtype == "float32"
    return as_scored(backend.sent(embeddings) if is_plain else embeddings)


def _embeddings(layer: keras.layers.Embedding) -> Any:
    if layer.built:
        return layer.embeddings
    expected = "be a built layer: call it or `build` it first"
    raise refused("candidates", expected, f"{layer.name}, which is not built")


def _is_stream(candidates: Any) -> bool:
    """Whether an argument is an iterable of blocks, rather than an array."""
    if hasattr(candidates, "shape"):
        return False
    if isinstance(candidates, list | tuple):
        first = candidates[0] if candidates else ()
        block = _block_in(first)
        shape = block.shape if hasattr(block, "shape") else np.shape(first)
        return len(shape) == 2
    return isinstance(candidates, Iterable | keras.utils.PyDataset)


def batches_of(data_set: Any) -> Iterator[Any]:
    """Reads a data set, of any library that Keras takes."""
    if isinstance(data_set, keras.utils.PyDataset):
        return (data_set[i] for i in range(int(data_set.num_batches or 0)))
    return iter(data_set)


def _block_in(element: Any) -> Any:
    """The block in an element of a data set: a tuple may hold inputs and labels."""
    is_several = isinstance(element, list | tuple) and len(element) > 0
    return element[0] if is_several else element


def check_as_many(items: int, found: int) -> None:
    """Raises if another pass read another number of candidates."""
    if found != items:
        expected = "hold the same items each time they are read"
        received = f"{items} items at first, {found} when they were read again"
        raise refused("candidates", expected, received)


def _check_same(first: Any, found: Tensor) -> None:
    """Raises if another candidate is the first one when they are read again."""
    if not are_alike(*map(ops.convert_to_numpy, (first, found))):
        expected = "hold the same items in the same order each time they are read"
        received = "another first item when they were read again"
        raise refused("candidates", expected, received)


def are_alike(numbers: Array, others: Array) -> bool:
    """Whether numbers differ by no more than rounding errors."""
    size = np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0)
    return np.allclose(numbers, others, 1e-3, 1e-4 * size, equal_nan=True)


def _parts(blocks: Any) -> Iterator[Tensor]:
    """The given blocks, in the precision of their scores."""
    features = None
    for part in map(_block_in, batches_of(blocks)):
        if not hasattr(part, "shape"):
            received = f"{type(blocks).__name__} with a block of type "
            received += f"{type(part).__name__}"
            raise refused("candidates", "be embeddings, or blocks of them", received)
        if len(part.shape) != 2:
            expected = "have blocks of the shape (items, features)"
            raise refused("candidates", expected, f"a block of shape {shape_of(part)}")
        features = int(part.shape[1]) if features is None else features
        if part.shape[1] != features:
            expected = "have the same number of features in each block"
            received = f"blocks with {features} and {part.shape[1]} features"
            raise refused("candidates", expected, received)
        # The next one may be written to the same memory.
        yield as_scored(own(part))
