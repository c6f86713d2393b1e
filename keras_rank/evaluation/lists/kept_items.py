"""The items of each list that are kept: the first ones, and the most relevant ones."""

import numpy as np
import pyarrow as pa

from keras_rank.backends import Array


def items_of_lists(
    labels: Array, scores: Array, items: pa.Array, of_row: Array, number: int
) -> pa.Array:
    """Returns the items of each list with their ranks, labels and scores.

    Args:
        labels: array of shape `(rows,)`, below 0 for padding.
        scores: array of the same shape, NaN or -inf for items that were not retrieved.
        items: the item of each row.
        of_row: int array of the same shape. The number of the list, ascending.
        number: how many items with the highest scores are kept, and how many relevant
            ones with the highest labels.
    """
    is_ranked = (labels >= 0.0) & (scores > -np.inf)
    ranks = _places(np.where(is_ranked, -scores, np.inf), of_row) + 1
    is_relevant = labels > 0.0
    by_label = _places(np.where(is_relevant, -labels, np.inf), of_row)
    is_kept = (is_ranked & (ranks <= number)) | (is_relevant & (by_label < number))
    (kept,) = np.nonzero(is_kept)
    kept = kept[np.lexsort((ranks[kept], of_row[kept]))]
    sizes = np.bincount(of_row[kept], minlength=of_row[-1] + 1)
    found = {
        "rank": pa.array(ranks[kept], pa.int64(), mask=~is_ranked[kept]),
        "item": items.take(pa.array(kept)),
        "label": pa.array(labels[kept]),
        "score": pa.array(scores[kept], from_pandas=True),
    }
    rows = pa.StructArray.from_arrays(list(found.values()), list(found))
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(sizes)), rows)


def _places(keys: Array, of_row: Array) -> Array:
    """The place of each row in its list by ascending keys, from 0 on."""
    order = np.lexsort((keys, of_row))
    starts = np.searchsorted(of_row, np.arange(of_row[-1] + 1))
    places = np.empty(len(keys), np.int64)
    places[order] = np.arange(len(keys)) - starts[of_row[order]]
    return places
