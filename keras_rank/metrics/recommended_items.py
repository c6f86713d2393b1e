"""The recommended items of each list, and updates of exposure metrics with them."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from keras import ops

from keras_rank.arrays.arithmetic import axis_size
from keras_rank.backends import Tensor, backend
from keras_rank.lists.first_batch_warnings import get_first_batch_warnings, warn
from keras_rank.lists.ids import cast_ids, check_items, is_repeated
from keras_rank.lists.input_arrays import SPARSE, read_array
from keras_rank.lists.inputs import RawBatch, read, read_sparse
from keras_rank.lists.item_lists import DenseLists, SparseLists
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.tensors import as_tensor, sizes_agree, static_shape
from keras_rank.metrics.update import OrderedMetric, group_by, has_first_batch
from keras_rank.metrics.variables import SumVariable, Update, end_compiling
from keras_rank.ranking.base import Ties
from keras_rank.ranking.dense_ranking import rank_dense
from keras_rank.ranking.order_spec import RankedLists


class TopKSpec(NamedTuple):
    """A specification of how the top k items of each list are found.

    Attributes:
        sparse_labels: whether `y_true` holds ids of relevant items.
        ties: how tied items are ordered.
        k: the number of recommended items of a list.
        items: the number of catalog items.
    """

    sparse_labels: bool
    ties: Ties
    k: int
    items: int


class RecommendedItems:
    """The recommended items of each list: its top k.

    Attributes:
        ids: int32 tensor of shape `(batch, k)`. The ids of the recommended items, the
            best item first, padded with -1.
        counts: cached function of a cutoff. It returns the number of lists that have
            each item in their top items up to the cutoff, for metrics to share.
    """

    def __init__(self, ids: Tensor, items: int) -> None:
        self.ids = ids
        self.counts = functools.cache(
            lambda k: backend.run_program(_count_items, ids, k=k, items=items)
        )


class CatalogMetric(OrderedMetric, Protocol):
    """Attributes of an `ExposureMetric` that an update reads."""

    k: int
    items: int | None
    sparse_labels: bool
    name: str

    def _add(self, sums: Sequence[Tensor], lists: RecommendedItems) -> list[Tensor]: ...


def compute_updates(
    metrics: Sequence[CatalogMetric],
    sums: Sequence[Sequence[SumVariable]],
    inputs: tuple[Any, Any, Any],
    *,
    should_warn: bool = True,
) -> list[Update]:
    """Returns the variables of metrics with their new values after a batch of lists.

    The lists are ranked once for all metrics with the same order.

    Args:
        metrics: the metrics.
        sums: the variables of each metric.
        inputs: `y_true`, `y_pred` and `sample_weight` of `ExposureMetric.update_state`.
        should_warn: whether to warn about the values of a first batch.
    """
    end_compiling()
    should_warn &= has_first_batch(metrics)
    updates: list[Update] = []
    pairs = list(zip(metrics, sums, strict=True))
    for (items, is_sparse, (ties, key)), group in group_by(
        pairs, _get_order_key
    ).items():
        k = max(metric.k for metric, _ in group)
        first_list = group[0][1][-1].value
        spec = TopKSpec(is_sparse, ties, k, items)
        recommended, num_lists = read_recommended(
            spec, inputs, key, first_list, should_warn=should_warn
        )
        should_warn = False
        for metric, (*variables, lists_seen) in group:
            new_sums = metric._add([x.value for x in variables], recommended)
            updates += zip(variables, new_sums, strict=True)
            updates.append((lists_seen, lists_seen.value + num_lists))
    return updates


def _get_order_key(
    pair: tuple[CatalogMetric, Sequence[SumVariable]],
) -> tuple[int, bool, tuple[Ties, int]]:
    """Returns the settings that metrics must have in common to share a ranking."""
    metric, _ = pair
    if metric.items is None:
        raise ValueError(
            "`items` should be the number of items of the catalogue. Only "
            "`keras_rank.catalogue` can infer it. Received: items=None, of "
            f"{metric.name!r}"
        )
    return metric.items, metric.sparse_labels, metric._order


def read_recommended(
    spec: TopKSpec,
    inputs: tuple[Any, Any, Any],
    key: int,
    first_list: Tensor,
    *,
    should_warn: bool,
) -> tuple[RecommendedItems, Tensor | int]:
    """Returns the recommended items of each list, and the number of ranked lists.

    Args:
        spec: how the items are found.
        inputs: `y_true`, `y_pred` and `sample_weight`. If `y_pred` is `None`, `y_true`
            holds recommended ids. No lists are ranked, so the number of lists is 0.
        key: the key of the seed of the shuffle.
        first_list: the number of lists ranked before.
        should_warn: whether to warn about the values of a first batch.
    """
    y_true, y_pred, sample_weight = inputs
    if y_pred is None:
        ids, num_lists = _read_ids(y_true, sample_weight, spec.items, spec.k), 0
    else:
        batch = _read_lists(spec, *inputs, should_warn=should_warn)
        ids, num_lists = backend.run_program(
            _find_top_ids, batch, key, first_list, spec=spec
        )
    return RecommendedItems(ids, spec.items), num_lists


def _read_lists(
    spec: TopKSpec, y_true: Any, y_pred: Any, sample_weight: Any, *, should_warn: bool
) -> RawBatch:
    """Reads lists that have a score for each catalog item."""
    items, is_sparse = spec.items, spec.sparse_labels
    read_batch = read_sparse if is_sparse else read
    reading = read_batch(y_true, y_pred, sample_weight)
    if should_warn:
        warn(get_first_batch_warnings(reading, is_sparse, [], True))
    batch = reading.batch
    shape = static_shape(batch.scores)
    if not sizes_agree(shape[1:], (items,)):
        raise ValueError(
            "`y_pred` should have a score for each item of the catalogue, of shape "
            f"(batch, {items}). Received: y_pred.shape={shape}"
        )
    if shape[1] is None:
        names = ["scores", "labels", "mask", "layer_mask"]
        # Sparse labels have a different size, so only the size of the scores is set.
        names = names[:1] if is_sparse else names
        parts = {name: getattr(batch, name) for name in names}
        batch = batch._replace(
            **{name: _set_width(x, items) for name, x in parts.items() if x is not None}
        )
    return bucket_shapes(batch, is_sparse)


def _find_top_ids(
    batch: RawBatch, key: Tensor, first_list: Tensor, *, spec: TopKSpec
) -> tuple[Tensor, Tensor]:
    """Returns the ids of the top k items of each list, and the number of lists."""
    lists = standardize(batch, kind=Kind(spec.sparse_labels, "float32"))
    lists = _to_dense_lists(lists) if isinstance(lists, SparseLists) else lists
    ranking = rank_dense(lists, spec.k, spec.ties, key, first_list)
    assert ranking.order is not None
    positions = ops.cast(ranking.order.positions, "int32")
    ids = backend.where(ranking.occupied, positions, -1)
    return ids, ops.sum(ops.cast(lists.has_items, "int32"))


def _to_dense_lists(lists: SparseLists) -> DenseLists:
    """Returns lists of all catalog items, in which all labels are 0."""
    scores = lists.scores
    labels = ops.cast(ops.zeros_like(scores), lists.dtype)
    labels = backend.where(lists.has_items[:, None], labels, -1.0)
    return DenseLists(labels, scores, lists.is_item)


def _read_ids(ids: Any, sample_weight: Any, items: int, k: int) -> Tensor:
    """Reads the ids of recommended items, the best item first."""
    if isinstance(ids, RankedLists) or sample_weight is not None:
        raise ValueError(
            "`y_true` should hold ids of recommended items, or come with the scores "
            "of all items in `y_pred`. Received: "
            + ("ranked lists" if sample_weight is None else "weights without scores")
        )
    array = read_array("y_true", ids, -1)
    if array.form in SPARSE:
        raise ValueError(
            "Without `y_pred`, `y_true` should hold ids in order, the best first. A "
            "sparse matrix has no order. Received: y_true of type "
            f"{type(ids).__name__}"
        )
    ids = cast_ids(array, items).tensor()
    shape = static_shape(ids)
    if len(shape) != 2 or not (shape[1] is None or shape[1] >= k):
        raise ValueError(
            f"Without `y_pred`, `y_true` should hold the ids of the best {k} items of "
            f"each list, padded with -1. Received: y_true.shape={shape}"
        )
    ids = _set_width(ids[:, :k], k) if shape[1] is None else ids
    return backend.run_program(_remove_repeats, ids, items=items)


def _remove_repeats(ids: Tensor, *, items: int) -> Tensor:
    """Checks ids, casts them to int32, and sets repeated ids of a list to -1."""
    ids = as_tensor(ids)
    # A large negative id would wrap around to the id of an item in int32.
    ids = backend.where(ids >= 0, ids, -1)
    check_items("y_true", ids, items)
    ids = ops.cast(ids, "int32")
    return backend.where(is_repeated(ids), -1, ids)


def _count_items(ids: Tensor, *, k: int, items: int) -> Tensor:
    """Counts how often each item is among the first k ids. Ids below 0 are padding."""
    ids = ids[:, :k]
    return backend.bincount(backend.where(ids >= 0, ids, items), items)


def _set_width(x: Tensor, width: int) -> Tensor:
    """Sets the unknown size of rows. Other sizes raise an error when the graph runs."""
    return ops.reshape(x, (axis_size(x, 0), width))
