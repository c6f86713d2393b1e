"""Ranking metrics for Keras 3: one number, on every backend."""

import os as _os
import sys as _sys

# Keras reads its backend when it is imported, which is below: the command needs none
# that trains, and NumPy starts in the shortest time.
if _os.path.basename(_sys.argv[0]) in ("keras-rank", "keras-rank.exe") or (
    _sys.argv[0] == "-m" and "keras_rank" in _sys.orig_argv
):
    _os.environ.setdefault("KERAS_BACKEND", "numpy")

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
