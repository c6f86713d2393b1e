"""How many scores are held at a time, and how they are cut."""

import math

from keras_rank.backends import backend

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
