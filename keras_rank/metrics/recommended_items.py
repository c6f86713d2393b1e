"""What lists show: the ids of their best items, and how often each is among them."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from keras import ops

from keras_rank.arrays.arithmetic import size_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.first_batch_warnings import warn, warnings_of_first_batch
from keras_rank.lists.ids import are_repeated, as_ids, check_items
from keras_rank.lists.input_arrays import SPARSE, look
from keras_rank.lists.inputs import RawBatch, read, read_sparse
from keras_rank.lists.item_lists import DenseLists, SparseLists
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.tensors import as_tensor, shape_of, sizes_agree
from keras_rank.metrics.update import OrderedMetric, grouped, has_first_batch
from keras_rank.metrics.variables import SumVariable, Update, end_compiling
from keras_rank.ranking.base import Ties
from keras_rank.ranking.dense_ranking import rank_dense
from keras_rank.ranking.order_spec import RankedLists


class Showing(NamedTuple):
    """How lists are given and ordered, how many ranks they show, and of how many items.

    Attributes:
        sparse_labels: whether `y_true` holds ids of relevant items.
        ties: how tied items are ordered.
        k: the number of ranks that are shown.
        items: the number of items of the catalogue.
    """

    sparse_labels: bool
    ties: Ties
    k: int
    items: int


class Shown:
    """What lists show.

    Attributes:
        ids: int32 tensor of shape `(batch, k)`. The best items first, padded with -1.
        counts: how often each item is in the top of a cutoff, for metrics to share.
    """

    def __init__(self, ids: Tensor, items: int) -> None:
        self.ids = ids
        self.counts = functools.cache(
            lambda k: backend.enter(_count_each, ids, k=k, items=items)
        )


class CatalogMetric(OrderedMetric, Protocol):
    """Attributes of an `ExposureMetric` that an update reads."""

    k: int
    items: int | None
    sparse_labels: bool
    name: str

    def _add(self, sums: Sequence[Tensor], lists: Shown) -> list[Tensor]: ...


def updates_of(
    metrics: Sequence[CatalogMetric],
    sums: Sequence[Sequence[SumVariable]],
    given: tuple[Any, Any, Any],
    *,
    warns: bool = True,
) -> list[Update]:
    """Returns the variables of metrics with their new values after a batch of lists.

    Lists are ordered once for all metrics with the same order.

    Args:
        metrics: the metrics.
        sums: the variables of each metric.
        given: `y_true`, `y_pred` and `sample_weight` of `ExposureMetric.update_state`.
        warns: whether to warn about the values of a first batch.
    """
    end_compiling()
    warns &= has_first_batch(metrics)
    updates: list[Update] = []
    pairs = list(zip(metrics, sums, strict=True))
    for (items, is_sparse, (ties, key)), alike in grouped(pairs, _reads).items():
        k = max(metric.k for metric, _ in alike)
        first_list = alike[0][1][-1].value
        showing = Showing(is_sparse, ties, k, items)
        shown, lists = read_shown(showing, given, key, first_list, warns=warns)
        warns = False
        for metric, (*variables, lists_seen) in alike:
            new = metric._add([variable.value for variable in variables], shown)
            updates += zip(variables, new, strict=True)
            updates.append((lists_seen, lists_seen.value + lists))
    return updates


def _reads(
    pair: tuple[CatalogMetric, Sequence[SumVariable]],
) -> tuple[int, bool, tuple[Ties, int]]:
    """Returns what metrics must have in common to order lists once."""
    metric, _ = pair
    if metric.items is None:
        raise ValueError(
            "`items` should be the number of items of the catalogue. Only "
            "`keras_rank.catalogue` knows it by itself. Received: items=None, of "
            f"{metric.name!r}"
        )
    return metric.items, metric.sparse_labels, metric._order


def read_shown(
    showing: Showing,
    given: tuple[Any, Any, Any],
    key: int,
    first_list: Tensor,
    *,
    warns: bool,
) -> tuple[Shown, Tensor | int]:
    """Returns what lists show, and the number of lists.

    Args:
        showing: how lists are given and ordered.
        given: `y_true`, `y_pred` and `sample_weight`.
        key: the key of the seed of the shuffle.
        first_list: the number of lists seen before. Shown ids are no lists.
        warns: whether to warn about the values of a first batch.
    """
    y_true, y_pred, sample_weight = given
    if y_pred is None:
        ids, lists = _read_ids(y_true, sample_weight, showing.items, showing.k), 0
    else:
        batch = _read(showing, *given, warns=warns)
        ids, lists = backend.enter(_best_ids, batch, key, first_list, showing=showing)
    return Shown(ids, showing.items), lists


def _read(
    showing: Showing, y_true: Any, y_pred: Any, sample_weight: Any, *, warns: bool
) -> RawBatch:
    """Reads lists with a score for each item."""
    items, is_sparse = showing.items, showing.sparse_labels
    reads = read_sparse if is_sparse else read
    reading = reads(y_true, y_pred, sample_weight)
    if warns:
        warn(warnings_of_first_batch(reading, is_sparse, [], True))
    given = reading.batch
    shape = shape_of(given.scores)
    if not sizes_agree(shape[1:], (items,)):
        raise ValueError(
            "`y_pred` should have a score for each item of the catalogue, of shape "
            f"(batch, {items}). Received: y_pred.shape={shape}"
        )
    if shape[1] is None:
        names = ["scores", "labels", "mask", "layer_mask"]
        # Those of ids have a size of their own.
        names = names[:1] if is_sparse else names
        parts = {name: getattr(given, name) for name in names}
        given = given._replace(
            **{name: _of_width(x, items) for name, x in parts.items() if x is not None}
        )
    return bucket_shapes(given, is_sparse)


def _best_ids(
    given: RawBatch, key: Tensor, first_list: Tensor, *, showing: Showing
) -> tuple[Tensor, Tensor]:
    """The ids of the best items of lists, and the number of lists."""
    lists = standardize(given, kind=Kind(showing.sparse_labels, "float32"))
    lists = _with_all_items(lists) if isinstance(lists, SparseLists) else lists
    ranking = rank_dense(lists, showing.k, showing.ties, key, first_list)
    assert ranking.order is not None
    positions = ops.cast(ranking.order.positions, "int32")
    ids = backend.where(ranking.occupied, positions, -1)
    return ids, ops.sum(ops.cast(lists.has_items, "int32"))


def _with_all_items(lists: SparseLists) -> DenseLists:
    """Lists of the whole catalogue, without relevant items."""
    scores = lists.scores
    labels = ops.cast(ops.zeros_like(scores), lists.dtype)
    labels = backend.where(lists.has_items[:, None], labels, -1.0)
    return DenseLists(labels, scores, lists.is_item)


def _read_ids(ids: Any, sample_weight: Any, items: int, k: int) -> Tensor:
    """Reads the ids that are shown, in order."""
    if isinstance(ids, RankedLists) or sample_weight is not None:
        raise ValueError(
            "`y_true` should hold the ids of the shown items, or come with the scores "
            "of all items in `y_pred`. Received: "
            + ("ranked lists" if sample_weight is None else "weights without scores")
        )
    given = look("y_true", ids, -1)
    if given.form in SPARSE:
        raise ValueError(
            "Without `y_pred`, `y_true` should hold ids in order, the best first. A "
            "sparse matrix has no order. Received: y_true of type "
            f"{type(ids).__name__}"
        )
    ids = as_ids(given, items).tensor()
    shape = shape_of(ids)
    if len(shape) != 2 or not (shape[1] is None or shape[1] >= k):
        raise ValueError(
            f"Without `y_pred`, `y_true` should hold the ids of the best {k} items of "
            f"each list, padded with -1. Received: y_true.shape={shape}"
        )
    ids = _of_width(ids[:, :k], k) if shape[1] is None else ids
    return backend.enter(_each_once, ids, items=items)


def _each_once(ids: Tensor, *, items: int) -> Tensor:
    """Checked ids, -1 where a list shows an item again."""
    ids = as_tensor(ids)
    # A large negative id would become that of an item in int32.
    ids = backend.where(ids >= 0, ids, -1)
    check_items("y_true", ids, items)
    ids = ops.cast(ids, "int32")
    return backend.where(are_repeated(ids), -1, ids)


def _count_each(ids: Tensor, *, k: int, items: int) -> Tensor:
    """How often each item is among the first ids. Those below 0 are padding."""
    ids = ids[:, :k]
    return backend.bincount(backend.where(ids >= 0, ids, items), items)


def _of_width(x: Tensor, width: int) -> Tensor:
    """Fails when the graph runs if the unknown size of its rows is another."""
    return ops.reshape(x, (size_of(x, 0), width))
