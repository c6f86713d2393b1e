"""Ranking metrics for Keras 3: one number, on every backend."""

from keras_rank import discounts, functional, gains, metrics, utils

__all__ = ["discounts", "functional", "gains", "metrics", "utils"]

__version__ = "0.1.0"
