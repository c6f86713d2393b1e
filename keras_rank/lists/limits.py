"""The limits of labels, weights and scores, within which all backends agree."""

import functools
from typing import Any

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


@functools.lru_cache(maxsize=16)
def _limits(dtype: Any) -> tuple[float, float]:
    limits = np.finfo(keras.backend.standardize_dtype(dtype))
    return float(limits.smallest_normal), float(limits.max)


def smallest_normal(x: Tensor) -> float:
    """The smallest number of a dtype that all backends distinguish from 0."""
    return _limits(x.dtype)[0]


def as_ranked(scores: Tensor) -> Tensor:
    """Scores for comparison, with denormal ones set to 0.

    XLA distinguishes -0.0 from 0.0, and some backends treat denormal numbers as 0.
    """
    is_zero = ops.abs(scores) < smallest_normal(scores)
    return backend.where(is_zero, 0.0, scores)


def as_compared(scores: Tensor) -> Tensor:
    """The same, with `-inf` for NaN."""
    return as_ranked(backend.where(scores > -np.inf, scores, -np.inf))


def without_denormal(labels: Tensor) -> Tensor:
    """Sets denormal labels to 0, as some backends do, and NaN and padding too."""
    return backend.where(labels >= smallest_normal(labels), labels, 0.0)


def within_limits(labels: Tensor) -> Tensor:
    """The same, and caps infinite labels."""
    return backend.minimum(without_denormal(labels), _limits(labels.dtype)[1])
