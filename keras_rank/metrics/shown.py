"""What lists show: how often each item is in the top of a batch."""

from typing import Any, NamedTuple

from keras import ops

from keras_rank.arrays.arithmetic import size_of
from keras_rank.backends import Tensor, backend
from keras_rank.lists.dense import DenseLists
from keras_rank.lists.given import SPARSE, look
from keras_rank.lists.ids import as_ids, checked_ids
from keras_rank.lists.reading import RawBatch, read, read_sparse
from keras_rank.lists.standardize import Kind, bucket_shapes, standardize
from keras_rank.lists.targets import SparseLists
from keras_rank.lists.tensors import shape_of, sizes_agree
from keras_rank.ranking.dense import rank_dense
from keras_rank.ranking.ranked import RankedLists
from keras_rank.ranking.tie_breaking import Ties


class Showing(NamedTuple):
    """How lists are given and ordered, the cutoffs, and the number of items."""

    sparse_labels: bool
    ties: Ties
    cutoffs: tuple[int, ...]
    items: int


def count(
    showing: Showing, given: tuple[Any, Any, Any], key: int, first_list: Tensor
) -> tuple[list[Tensor], Tensor | int]:
    """How often each item is in the top of each cutoff, and the number of lists.

    Args:
        showing: how lists are given and ordered.
        given: `y_true`, `y_pred` and `sample_weight`.
        key: the key of the seed of the shuffle.
        first_list: the number of lists seen before. Shown ids are no lists.
    """
    y_true, y_pred, sample_weight = given
    if y_pred is not None:
        lists = _read(showing, *given)
        return backend.enter(_count_lists, showing, lists, key, first_list)
    ids = _read_ids(y_true, sample_weight, showing.items, max(showing.cutoffs))
    each = [ids[:, :k] for k in showing.cutoffs]
    return [backend.enter(count_each, showing.items, x) for x in each], 0


def _read(showing: Showing, y_true: Any, y_pred: Any, sample_weight: Any) -> RawBatch:
    """Reads lists with a score for each item."""
    items, is_sparse = showing.items, showing.sparse_labels
    reads = read_sparse if is_sparse else read
    given = reads(y_true, y_pred, sample_weight).batch
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


def _count_lists(
    showing: Showing, given: RawBatch, key: Tensor, first_list: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The same, of lists."""
    lists = standardize(Kind(showing.sparse_labels, "float32"), given)
    lists = _with_all_items(lists) if isinstance(lists, SparseLists) else lists
    ranking = rank_dense(lists, max(showing.cutoffs), showing.ties, key, first_list)
    assert ranking.order is not None
    positions = ops.cast(ranking.order.positions, "int32")
    ids = backend.where(ranking.occupied, positions, showing.items)
    counts = [backend.bincount(ids[:, :k], showing.items) for k in showing.cutoffs]
    return counts, ops.sum(ops.cast(lists.has_items, "int32"))


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
    return ops.cast(backend.enter(checked_ids, ("y_true", items), ids), "int32")


def count_each(items: int, ids: Tensor) -> Tensor:
    """How often each item is among ids, where those below 0 are padding."""
    return backend.bincount(backend.where(ids >= 0, ids, items), items)


def _of_width(x: Tensor, width: int) -> Tensor:
    """Fails when the graph runs if the unknown size of its rows is another."""
    return ops.reshape(x, (size_of(x, 0), width))
