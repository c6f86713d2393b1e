"""Ranking metrics for Keras 3: one number, on every backend."""

from keras_rank import (
    callbacks,
    catalogue,
    discounts,
    functional,
    gains,
    metrics,
    utils,
)
from keras_rank.model import RankingModel

__all__ = [
    "RankingModel",
    "callbacks",
    "catalogue",
    "discounts",
    "functional",
    "gains",
    "metrics",
    "utils",
]

__version__ = "0.3.0"
