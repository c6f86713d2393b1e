"""Warnings about embeddings: NaN, and distinct items with the same embedding."""

import math
import warnings

import numpy as np
from keras import ops

from keras_rank.backends import Array
from keras_rank.catalogue.candidates import Candidates, holds_nan
from keras_rank.catalogue.counting import Counts
from keras_rank.catalogue.ranks import Retrieval

# For so many targets, copies are looked for.
_FEW = 8


def warn_of_nan(task: Retrieval) -> None:
    """Warns about embeddings with NaN, whose scores are NaN.

    The embeddings of shards are not inspected, as their workers would have to.
    """
    inspected = {"queries": holds_nan(task.queries.embeddings)}
    if isinstance(task.candidates, Candidates):
        inspected["candidates"] = task.candidates.has_nan()
    for argument in (name for name, has_nan in inspected.items() if has_nan):
        warnings.warn(
            f"`{argument}` has embeddings with NaN. Their scores are NaN, and items "
            "with such scores have no rank, which can raise the results. Check the "
            "model that embeds them.",
            stacklevel=4,
        )


def warn_of_copies(task: Retrieval, counts: Counts) -> None:
    """Warns if most targets have a copy among the candidates.

    The sign costs nothing: a score that other candidates have too, but not most of
    them, as a constant model would give. Only then are embeddings compared, as scores
    may be equal by chance. Shards are not, as their workers would have to.
    """
    if not isinstance(task.candidates, Candidates) or task.queries.ids is None:
        return
    if task.candidates.features == 1:
        # A number such as popularity, which items share.
        return
    tied, scores = map(ops.convert_to_numpy, (counts.tied, counts.scores))
    number, is_found = task.candidates.items, scores > -math.inf
    is_tied = is_found & (tied > 1) & (2 * tied <= number)
    if 2 * is_tied.sum() > is_found.sum():
        ids = np.unique(task.queries.ids[is_tied])
        ids = ids[:: -(-len(ids) // _FEW)]
        has_copy = _numbers_of(task.candidates, ids) > 1
        if 2 * has_copy.sum() > len(ids):
            warnings.warn(
                "`candidates` should hold each item once. Received: most targets, such "
                f"as {ids[has_copy][0]}, have the embedding of another candidate. "
                "These are distinct items, and a copy of a target takes a rank: leave "
                "copies out of `candidates`, or `exclude` them.",
                stacklevel=5,
            )


def _numbers_of(candidates: Candidates, ids: Array) -> Array:
    """How many candidates have the embedding of each of a few."""
    rows, numbers = candidates.rows(ids)[:, None], np.zeros(len(ids), int)
    for block in candidates.blocks():
        is_same = ops.all(block.embeddings[None] == rows, axis=2)
        is_same = ops.logical_and(is_same, block.hold(block.columns))
        numbers += ops.convert_to_numpy(ops.sum(is_same, axis=1))
    return numbers
