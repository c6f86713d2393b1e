"""Formulas of exposure, from the number of times that each item is shown."""

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


def _mean(counts: Tensor, values: Tensor) -> Tensor:
    of = backend.library_of(counts)
    return ops.cast(of.sum(counts * values) / of.sum(counts), "float32")
