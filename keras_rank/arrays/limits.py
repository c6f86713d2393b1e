"""The limits of labels, weights and scores, within which all backends agree."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_rank.backends import Tensor, backend

# Weights are capped here, and gains at `LARGEST_GAIN`, so that sums of their products
# stay within float32.
LARGEST_WEIGHT = 2.0**50
LARGEST_GAIN = 2.0**64

# The smallest label above 0, as some backends treat denormal numbers as 0.
SMALLEST_LABEL = float(np.finfo("float32").smallest_normal)


class Limits(NamedTuple):
    """The smallest number that all backends distinguish from 0, and the largest."""

    largest_denormal: float
    smallest_normal: float
    largest: float


@functools.lru_cache(maxsize=16)
def limits_of(dtype: Any) -> Limits:
    """The limits of a dtype."""
    limits = np.finfo(keras.backend.standardize_dtype(dtype))
    normal = float(limits.smallest_normal)
    denormal = normal - float(limits.smallest_subnormal)
    return Limits(denormal, normal, float(limits.max))


def as_ranked(scores: Tensor) -> Tensor:
    """Scores for comparison, with denormal ones set to 0.

    XLA distinguishes -0.0 from 0.0, and some backends treat denormal numbers as 0.
    """
    return backend.shrunk(scores, limits_of(scores.dtype).largest_denormal)


def are_ranked_as(scores: Tensor, ranked: Tensor) -> Tensor:
    """Whether scores are equal to a number, once they are ranked: `as_ranked`."""
    least, most = range_of(ranked)
    return ops.logical_and(scores >= least, scores <= most)


def range_of(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest score that are ranked as a number."""
    denormal = limits_of(ranked.dtype).largest_denormal
    is_zero = ranked == 0.0
    least = backend.where(is_zero, -denormal, ranked)
    return least, backend.where(is_zero, denormal, ranked)


def as_compared(scores: Tensor) -> Tensor:
    """The same, with `-inf` for NaN."""
    return as_ranked(backend.without_nan(scores))


def within_limits(labels: Tensor) -> Tensor:
    """Labels of 0 or more: denormal ones are 0, and infinite ones are capped."""
    return backend.minimum(as_ranked(labels), limits_of(labels.dtype).largest)
