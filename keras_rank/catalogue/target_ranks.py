"""The ranks of targets among all candidates."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_dtype,
    check_k,
    check_positive,
    check_ties,
    shuffle_key,
)
from keras_rank.arrays.arithmetic import axis_size
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.blocks import Queries, Score, check_score, prepare_queries
from keras_rank.catalogue.candidate_counts import Counts, count_candidates
from keras_rank.catalogue.candidates import Candidates, no_ids, open_candidates
from keras_rank.catalogue.shards import OpenShards, Shards, open_shards
from keras_rank.lists.ids import to_id_tensor, validate_ids
from keras_rank.lists.input_arrays import to_tensor, value_error
from keras_rank.lists.item_lists import RankCounts, TargetLists
from keras_rank.lists.standardize import read_targets, standardize_targets
from keras_rank.lists.tensors import as_tensor, static_shape, upcast
from keras_rank.ranking.base import COUNTED_TIES, Ranking, Ties, list_keys
from keras_rank.ranking.order_spec import OrderSpec, RankedLists
from keras_rank.ranking.target_ranking import rank_from_counts

# Ids are int32, so they are below this number.
LARGEST_ID = 2**31


@backend.without_autograph
def rank(
    targets: Any,
    queries: Any,
    candidates: Any,
    *,
    sample_weight: Any = None,
    score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
    exclude: Any = None,
    k: int | None = None,
    shuffle_ties: ShuffleTies = True,
    seed: Seed = None,
    block_size: int | None = None,
    dtype: str | None = None,
) -> RankedLists:
    """Ranks targets among all candidates, without building a matrix of scores.

    `rank = 1 + candidates with a higher score + tied candidates before it`

    The candidates above each target are counted in one pass, block by block. The counts
    are exact, and need the memory of one block. Blocks of unknown number, such as those
    of a `DataLoader`, are read once before, to count them and to find the targets. The
    other functions of this module have the same arguments, and document only their own.

    Args:
        targets: ids of the relevant items, of shape `(batch,)` or `(batch, n)`, padded
            with -1. The id of an item is its row among the candidates. Or a dict of
            `"ids"` and their graded `"labels"` of this shape, and optionally `"mask"`:
            all other items have the label 0. Or a sparse matrix of SciPy of shape
            `(batch, items)`, whose stored values are the labels.
        queries: embeddings of shape `(batch, features)`.
        candidates: embeddings of all items, of shape `(items, features)`: an array, a
            tensor, a `np.memmap`, a variable or a `keras.layers.Embedding`. Or blocks
            of them: a `tf.data.Dataset`, a torch `DataLoader` or a
            `keras.utils.PyDataset`. Or a function that returns any of these. Or
            `keras_rank.catalogue.Shards`, whose parts are read by workers. Equal
            candidates are distinct items: a copy of a target takes a rank.
        sample_weight: `None`, or weights of shape `(batch,)` or `(batch, 1)`.
        score: `"dot"`, `"cosine"`, or a function of queries and candidates that
            returns scores of shape `(batch, candidates)`. A score may depend only on
            its own query and candidate. Defaults to `"dot"`.
        exclude: ids of shape `(batch, n)`, padded with -1: items that take no rank,
            such as seen items. A target of the same list is never excluded. Or a sparse
            matrix of SciPy of shape `(batch, items)`, whatever values it stores.
        k: positive int. The largest cutoff of the functions. Defaults to `None`: any
            cutoff.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. `"worst"` and `"best"`: after and before the items that are
            not targets. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: as for `keras_rank.functional`.
        block_size: positive int. The number of candidates that are scored at a time.
            Defaults to `None`: 4,096, or on an accelerator by its free memory.
        dtype: `"float64"` to compute in float64. Defaults to float32.

    Returns:
        The ranked lists, to be passed to functions and `update_state` as `y_true`.

    Raises:
        ValueError: if shapes don't match, or an id is out of range.

    Example:

    >>> queries = [[1.0, 0.0], [0.0, 1.0]]
    >>> candidates = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]
    >>> ranked = keras_rank.catalogue.rank([0, 1], queries, candidates)
    >>> [float(value) for value in keras_rank.functional.reciprocal_rank(ranked)]
    [1.0, 0.5]
    """
    k, ties = check_k(k), check_ties(shuffle_ties)
    key, dtype = shuffle_key(ties, seed), check_dtype(dtype)
    task = prepare_retrieval(
        targets, queries, candidates, sample_weight, score, exclude, block_size, dtype
    )
    counts = task.count(ties, key)
    return make_ranked_lists(task.lists, counts, ties, k, task.tied_labels)


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Queries, their targets, and the candidates among which targets are ranked."""

    lists: TargetLists
    queries: Queries
    candidates: Candidates | OpenShards
    score: str | Score
    tied_labels: str | None

    def count(
        self, ties: Ties, key: int, after_block: Callable[[int], None] = lambda _: None
    ) -> Counts:
        """Counts the candidates above each target, in one pass."""
        lists = self.lists
        if axis_size(lists.ids, 0) == 0:
            zeros = ops.zeros_like(lists.ids)
            return Counts(zeros, zeros, zeros, ops.zeros_like(lists.labels))
        return count_candidates(
            self.make_queries(ties, key),
            self.candidates,
            self.score,
            ties in COUNTED_TIES,
            after_block,
        )

    def make_queries(self, ties: Ties, key: int) -> Queries:
        """Returns the queries, with keys for an order of ties."""
        keys = query_keys(ties, key, self.lists.has_items)
        return self.queries._replace(keys=keys)


def query_keys(ties: Ties, key: int, has_items: Tensor) -> Tensor | None:
    """Returns the random keys of queries if ties are shuffled, or `None`.

    See `list_keys`.
    """
    if ties != "shuffle":
        return None
    return backend.run_program(_list_keys, key, has_items)


def _list_keys(key: int, has_items: Tensor) -> Tensor:
    return list_keys(key, 0, as_tensor(has_items))


def make_ranked_lists(
    lists: TargetLists,
    counts: Counts,
    ties: Ties,
    k: int | None,
    tied_labels: str | None,
) -> RankedLists:
    """Returns ranked lists, with the ranks that follow from the counts."""
    order = OrderSpec(True, ties, k)
    if order.is_stepwise:
        lists, ranking = _rank_lists(lists, counts, order=order)
    else:
        lists, ranking = backend.run_program(_rank_lists, lists, counts, order=order)
    return RankedLists(lists, ranking, k, ties, tied_labels)


def _rank_lists(
    lists: TargetLists, counts: Counts, *, order: OrderSpec
) -> tuple[TargetLists, Ranking]:
    retrieved = ops.logical_and(counts.scores > -math.inf, lists.is_in_catalogue)
    tied = counts.tied if order.ties in COUNTED_TIES else counts.before + 1
    above, tied, equal = (
        ops.cast(x, lists.dtype) for x in (counts.above, tied, counts.tied)
    )
    ranking = rank_from_counts(order, lists, retrieved, above, tied)
    rank_counts = RankCounts(above, equal, retrieved)
    return dataclasses.replace(lists, counts=rank_counts), ranking


def prepare_retrieval(
    targets: Any,
    queries: Any,
    candidates: Any,
    sample_weight: Any,
    score: Any,
    exclude: Any,
    block_size: int | None,
    dtype: str,
) -> Retrieval:
    """Checks and casts the arguments of a user, in the order of `rank`."""
    embeddings, opened = open_inputs(
        queries, candidates, score, block_size, lambda: unique_target_ids(targets)
    )
    arguments = targets, opened.items, sample_weight, dtype
    lists, tied_labels = standardize_targets(*arguments)
    number = static_shape(embeddings)[:1]
    if static_shape(lists.ids)[:1] != number:
        received = f"{lists.ids.shape[0]} rows of targets for {number[0]} queries"
        raise value_error("targets", "have a row for each query", received)
    is_in_catalogue, ids = map(ops.convert_to_numpy, (lists.is_in_catalogue, lists.ids))
    ids = np.where(is_in_catalogue, ids, np.int32(-1))
    excluded = read_excluded(exclude, ids, opened.items)
    query_group = Queries(embeddings, ids, excluded, None)
    return Retrieval(lists, query_group, opened, score, tied_labels)


def open_inputs(
    queries: Any,
    candidates: Any,
    score: Any,
    block_size: int | None,
    get_requested_ids: Callable[[], Array] = no_ids,
) -> tuple[Tensor, Candidates | OpenShards]:
    """Returns queries and candidates of matching shapes, from the arguments of a user.

    Args:
        queries: the queries.
        candidates: the candidates.
        score: the name of a score, or a user's function.
        block_size: the number of candidates in a block, or `None`.
        get_requested_ids: function that returns the ids of candidates whose rows will
            be read.
    """
    is_symbolic = isinstance(queries, keras.KerasTensor)
    embeddings = queries
    if not is_symbolic:
        embeddings = upcast(to_tensor("queries", queries))
    if is_symbolic or not backend.is_concrete(embeddings):
        expected = "be concrete values, as candidates are ranked block by block, "
        expected += "outside compiled functions"
        raise value_error("queries", expected, "a traced tensor")
    is_built_in = isinstance(score, str)
    if len(embeddings.shape) < 2 or (is_built_in and len(embeddings.shape) != 2):
        received = f"queries.shape={static_shape(embeddings)}"
        raise value_error("queries", "have the shape (batch, features)", received)
    check_score(score)
    block_size = check_block_size(block_size)
    opened = (
        open_shards(candidates, block_size)
        if isinstance(candidates, Shards)
        else open_candidates(
            candidates, block_size, int(embeddings.shape[0]), get_requested_ids
        )
    )
    features = opened.features
    if is_built_in and features != embeddings.shape[1]:
        raise ValueError(
            "`queries` and `candidates` should have the same number of features. "
            f"Received: queries.shape={static_shape(embeddings)}, candidates with "
            f"{features} features"
        )
    return prepare_queries(score, embeddings), opened


def unique_target_ids(targets: Any) -> Array:
    """Returns the distinct ids of all targets."""
    ids = ops.convert_to_numpy(read_targets("targets", targets))
    return np.unique(ids[(ids >= 0) & (ids < LARGEST_ID)]).astype("int64")


def check_block_size(block_size: Any) -> int | None:
    """Returns the number of candidates in a block, or `None` by default."""
    if block_size is None:
        return None
    return check_positive("block_size", block_size, "a positive integer or None")


def read_excluded(exclude: Any, target_ids: Array, items: int) -> Array | None:
    """Returns the ids to exclude, without the targets of the same list.

    The ids of a list are distinct. The result is `None` if there are none. Both arrays
    of ids are padded with -1.

    Args:
        exclude: the argument of the user.
        target_ids: array of shape `(batch, targets)`.
        items: the number of candidates.
    """
    if exclude is None:
        return None
    ids = to_id_tensor("exclude", exclude, items)
    if len(ids.shape) != 2 or ids.shape[0] != len(target_ids):
        received = f"exclude.shape={static_shape(ids)}"
        raise value_error(
            "exclude", "have the shape (batch, n), padded with -1", received
        )
    ids = backend.run_program(validate_ids, ids, argument="exclude", items=items)
    # NumPy is fast enough for one call. Ids are sorted, so duplicates are adjacent.
    excluded = np.sort(ops.convert_to_numpy(ids), axis=1).astype("int32")
    excluded[:, 1:][excluded[:, 1:] == excluded[:, :-1]] = -1
    # An offset for each list prevents matches with the ids of other lists.
    first_of_list = 1 + (items + 1) * np.arange(len(excluded))[:, None]
    excluded[np.isin(first_of_list + excluded, first_of_list + target_ids)] = -1
    return excluded if excluded.shape[1] else None
