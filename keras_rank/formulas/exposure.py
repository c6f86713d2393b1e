"""The equation that metrics of exposure share."""

from keras import ops

from keras_rank.backends import Tensor, backend


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
