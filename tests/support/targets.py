"""Cases of metrics that accept sparse labels, and patches of compiled block steps."""

import contextlib

import pytest
from registry import BACKEND_CASES

from keras_rank import metrics
from keras_rank.catalogue.blocks import _cached_step

SPARSE_CASES = [case for case in BACKEND_CASES if case.metric.takes_sparse_labels]
# Cases in which an id counts as an item with the label 1.
BINARY_SPARSE_CASES = [
    case
    for case in SPARSE_CASES
    if (case.arguments.get("relevance_threshold") or 1.0) <= 1.0
    # `PairwiseAccuracy` accepts no cutoff with ids, and other tests cover it.
    and case.metric is not metrics.PairwiseAccuracy
]


@contextlib.contextmanager
def patch_module(module, **changes):
    """Sets attributes of a module and compiles steps over candidates again."""
    _cached_step.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setattr(module, name, value)
        yield
    _cached_step.cache_clear()
