"""Formulas of what is shown: of how often each item is, and of the items of lists."""

from keras import ops

from keras_rank.backends import Tensor, backend


def share_shown(counts: Tensor) -> Tensor:
    """The formula of coverage. `shown items / items`.

    Args:
        counts: int32 tensor of shape `(items,)`. How often each item is shown.
    """
    shown = ops.sum(ops.cast(counts > 0, "int32"))
    return ops.cast(shown, "float32") / max(counts.shape[0], 1)


def concentration(counts: Tensor) -> Tensor:
    """The formula of the Gini index. `sum((2 * i - n - 1) * c_i) / (n * sum(c_i))`.

    The counts c_i of the n items are in ascending order.
    """
    in_order, items = backend.sort(counts[None])[0], counts.shape[0]
    place = 2 * ops.arange(items, dtype="int32") + 1 - items
    return mean_over_shown(in_order, place) / max(items, 1)


def mean_over_shown(counts: Tensor, values: Tensor) -> Tensor:
    """The mean value of shown items. `sum(c_i * value_i) / sum(c_i)`.

    In float64, where counts and most of their sums are exact.

    Args:
        counts: int32 tensor of shape `(items,)`. How often each item is shown.
        values: tensor of the same shape.

    Returns:
        A float32 scalar tensor, 0 if nothing is shown.
    """
    with backend.quiet():
        mean = backend.in_float64(_mean, counts, values)
    return backend.where(ops.any(counts > 0), mean, 0.0)


def personalization(counts: Tensor, lists: Tensor) -> Tensor:
    """The share of the other lists that do not show a shown item.

    `sum(c_i * (n - c_i)) / (sum(c_i) * (n - 1))`

    Args:
        counts: int32 tensor of shape `(items,)`. How often each item is shown.
        lists: int32 scalar tensor. The number n of lists that show anything.
    """
    without = mean_over_shown(counts, lists - counts)
    return without / ops.cast(backend.maximum(lists - 1, 1), "float32")


def intra_list_diversity(unit_vectors: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """One minus the mean of `dot(u_i, u_j)` over the pairs of shown items.

    The sum over pairs is `(norm(sum(u_i))**2 - sum(norm(u_i)**2)) / 2`.

    Args:
        unit_vectors: tensor of shape `(items + 1, size)`. The last one is of zeros.
        ids: int32 tensor of shape `(batch, k)`. Those of no item are padding.

    Returns:
        A tensor of shape `(batch,)`, and whether there are pairs.
    """
    items = unit_vectors.shape[0] - 1
    is_shown = ops.logical_and(ids >= 0, ids < items)
    rows = backend.where(is_shown, ids, items)
    vectors = backend.take_rows(unit_vectors, rows)
    of_sum = ops.sum(ops.sum(vectors, axis=1) ** 2, axis=1)
    similar = of_sum - ops.sum(vectors**2, axis=(1, 2))
    number = ops.sum(ops.cast(is_shown, similar.dtype), axis=1)
    pairs = number * (number - 1.0)
    # Rounding errors would make it less than 0 for equal vectors.
    diversity = ops.clip(1.0 - similar / backend.maximum(pairs, 1.0), 0.0, 2.0)
    return diversity, pairs > 0.0


def _mean(counts: Tensor, values: Tensor) -> Tensor:
    of = backend.library_of(counts)
    return ops.cast(of.sum(counts * values) / of.sum(counts), "float32")
