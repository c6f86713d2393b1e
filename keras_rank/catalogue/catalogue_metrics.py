"""Evaluation of metrics over all candidates."""

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import argument_error
from keras_rank.arrays.arithmetic import axis_size
from keras_rank.backends import Array, Tensor, backend
from keras_rank.catalogue.blocks import Queries
from keras_rank.catalogue.candidate_counts import Counts
from keras_rank.catalogue.candidates import Candidates, holds_nan
from keras_rank.catalogue.target_ranks import (
    Retrieval,
    make_ranked_lists,
    prepare_retrieval,
)
from keras_rank.catalogue.top_candidates import find_best
from keras_rank.lists.item_lists import TargetLists
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.group import SegmentedSums, as_group, split_by_type
from keras_rank.metrics.registry import Member
from keras_rank.metrics.update import (
    M,
    check_supports_targets,
    compute_ranked_columns,
    find_largest_cutoff,
    group_by,
)
from keras_rank.ranking.base import Ties

# The number of targets whose embeddings are compared to detect copies.
_MAX_CHECKED_EMBEDDINGS = 8


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

    The counts are inspected first, at no cost: some other candidates have the same
    score as a target, but not most of them, as a constant model would give. Embeddings
    are compared only then, as scores may be equal by chance. Shards are not inspected,
    as their workers would have to.
    """
    if not isinstance(task.candidates, Candidates) or task.queries.ids is None:
        return
    if task.candidates.features == 1:
        # A single number, such as the popularity of an item, is often shared by items.
        return
    tied, scores = map(ops.convert_to_numpy, (counts.tied, counts.scores))
    num_items, is_found = task.candidates.items, scores > -math.inf
    is_tied = is_found & (tied > 1) & (2 * tied <= num_items)
    if 2 * is_tied.sum() > is_found.sum():
        ids = np.unique(task.queries.ids[is_tied])
        ids = ids[:: -(-len(ids) // _MAX_CHECKED_EMBEDDINGS)]
        has_copy = _count_copies(task.candidates, ids) > 1
        if 2 * has_copy.sum() > len(ids):
            warnings.warn(
                "`candidates` should hold each item once. Received: most targets, such "
                f"as {ids[has_copy][0]}, have the embedding of another candidate. "
                "These are distinct items, and a copy of a target takes a rank: leave "
                "copies out of `candidates`, or `exclude` them.",
                stacklevel=5,
            )


def _count_copies(candidates: Candidates, ids: Array) -> Array:
    """Returns the number of candidates with the same embedding as each of some ids."""
    rows, counts = candidates.read_rows(ids)[:, None], np.zeros(len(ids), int)
    for block in candidates.blocks():
        is_same = ops.all(block.embeddings[None] == rows, axis=2)
        is_same = ops.logical_and(is_same, block.contains(block.columns))
        counts += ops.convert_to_numpy(ops.sum(is_same, axis=1))
    return counts


# The number of seconds after which `verbose="auto"` shows progress.
PROGRESS_DELAY = 5.0

# The number of ranks computed at a time. Averaged ties may have a rank for each
# candidate.
MAX_RANKS = 2**22

Metrics = RankingMetrics | Member | Sequence[Member | str | dict[str, Any]]


@backend.without_autograph
def evaluate(
    targets: Any,
    queries: Any,
    candidates: Any,
    metrics: Metrics,
    *,
    sample_weight: Any = None,
    score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
    exclude: Any = None,
    block_size: int | None = None,
    verbose: Literal["auto", 0, 1, 2] = "auto",
) -> dict[str, float]:
    """Computes metrics of the ranks of targets among all candidates.

    Ranks are counted in one pass over the candidates, block by block, for all metrics
    of the same tie rule. No matrix of scores is built, and no candidate is left out. A
    warning says where most targets have copies among the candidates, which take ranks.

    Args:
        targets: as for `keras_rank.catalogue.rank`: ids of shape `(batch, n)`.
        queries: as for `keras_rank.catalogue.rank`: of shape `(batch, features)`.
        candidates: as for `keras_rank.catalogue.rank`: of shape `(items, features)`.
        metrics: list of ranking metrics: instances, or strings such as `"ndcg@10"` and
            `"rbp(persistence=0.9)@10"`. Or a single one, or a `RankingMetrics`. Their
            state is not changed.
        verbose: `0`: silent, `1` or `2`: with a progress bar, or `"auto"`: with a
            progress bar if it takes long. Defaults to `"auto"`.
        **arguments: as for `keras_rank.catalogue.rank`: sample_weight, score, exclude,
            block_size.

    Returns:
        A dict from the names of the metrics to floats. The result of a string has that
        string as its name.

    Raises:
        ValueError: if shapes don't match, an id is out of range, or a metric needs the
            labels of all items.

    Example:

    >>> queries = [[1.0, 0.0], [0.0, 1.0]]
    >>> candidates = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]
    >>> metrics = ["mrr", "recall@2"]
    >>> keras_rank.catalogue.evaluate([0, 1], queries, candidates, metrics, verbose=0)
    {'mrr': 0.75, 'recall@2': 1.0}
    """
    group, verbose = check_metrics(metrics), check_verbose(verbose)
    arguments = targets, queries, candidates, sample_weight, score, exclude, block_size
    sums = SegmentedSums(group)
    add_lists(sums, group, arguments, verbose)
    return sums.results()


def add_lists(
    sums: SegmentedSums,
    group: RankingMetrics,
    arguments: tuple[Any, ...],
    verbose: Any,
    should_warn: bool = True,
) -> None:
    """Adds the results of the metrics of lists and of exposure to sums.

    Args:
        sums: the sums, which are still empty.
        group: the metrics.
        arguments: the arguments of the user, in the order of `prepare_retrieval`.
        verbose: the progress to show.
        should_warn: whether to warn about the embeddings.
    """
    list_metrics, exposure_metrics = split_by_type(group.members)
    # Inputs are opened once, as encoding or reading the candidates may take long.
    open_task = functools.cache(functools.partial(prepare_retrieval, *arguments))
    if should_warn:
        warn_of_nan(open_task(group.members[0]._compute_dtype))
    for (dtype, ties, key), members in _group_by_order(list_metrics).items():
        task, k = open_task(dtype), find_largest_cutoff(members)
        counts = task.count(ties, key, progress(verbose, task.candidates.items))
        if should_warn:
            warn_of_copies(task, counts)
            should_warn = False
        indices = [list_metrics.index(member) for member in members]
        for first, lists, part in _split_lists(task.lists, counts, ties, k):
            ranked = make_ranked_lists(lists, part, ties, k, task.tied_labels)
            sums.add(indices, compute_ranked_columns(members, ranked), first)
    for (dtype, ties, key), exposure_group in _group_by_order(exposure_metrics).items():
        task = open_task(dtype)
        recommended = _find_recommended(
            task, task.make_queries(ties, key), max(x.k for x in exposure_group)
        )
        for member in exposure_group:
            sums.sum_recommended(member, recommended, task.candidates.items)


def check_metrics(metrics: Metrics, *, as_written: bool = True) -> RankingMetrics:
    """Returns metrics as a group, and checks that they need only the relevant items."""
    group = as_group(metrics, as_written=as_written)
    for member in split_by_type(group.members)[0]:
        check_supports_targets(member)
    return group


def _group_by_order(metrics: Sequence[M]) -> dict[tuple[str, Ties, int], list[M]]:
    """Groups metrics by dtype, tie rule and seed, which determine the order."""
    return group_by(metrics, lambda m: (m._compute_dtype, *m._order))


def _find_recommended(task: Retrieval, queries: Queries, k: int) -> Tensor:
    """Returns the ids of the best candidates of each list.

    The ids of lists that are not counted are -1.
    """
    is_counted = task.lists.has_items
    if axis_size(is_counted, 0) == 0:
        return ops.zeros((0, k), "int32")
    best = find_best(queries, task.candidates, task.score, k)
    return backend.where(is_counted[:, None], best.ids, -1)


def _split_lists(
    lists: TargetLists, counts: Counts, ties: Ties, k: int | None
) -> Iterator[tuple[int, TargetLists, Counts]]:
    """Yields parts of the lists and their counts that fit into memory.

    Yields:
        The index of the first list, the lists, and the counts.
    """
    num_lists = int(axis_size(lists.ids, 0))
    size = max(num_lists, 1)
    if ties == "average":
        num_ranks = ops.convert_to_numpy(counts.tied).astype("int64").sum(axis=1)
        largest = int(min(num_ranks.max(initial=1), lists.items if k is None else k))
        size = max(1, MAX_RANKS // max(largest, 1))
    for start in range(0, num_lists, size):
        part = Counts(*(x[start : start + size] for x in counts))
        yield start, lists.slice_lists(start, start + size), part


def check_verbose(verbose: Any) -> Any:
    """Returns `verbose`, and raises `ValueError` for unknown values.

    The value 2, which `fit` accepts too, is the same as 1.
    """
    if isinstance(verbose, str | int) and verbose in ("auto", 0, 1, 2):
        return verbose
    raise argument_error("verbose", '"auto", 0, 1 or 2', verbose)


def progress(
    verbose: Any, number: int | None, unit: str = "candidate"
) -> Callable[[int], None]:
    """Returns a function that shows progress, given the number of units so far."""
    if not verbose:
        return lambda done: None
    started, bar = time.monotonic(), keras.utils.Progbar(number, unit_name=unit)

    def show(done: int) -> None:
        if verbose != "auto" or time.monotonic() - started > PROGRESS_DELAY:
            bar.update(done)

    return show
