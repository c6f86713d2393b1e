"""Lists of ids of relevant items: the metrics that take them, and passes over these."""

import contextlib

import pytest
from registry import CASES_HERE

from keras_rank import metrics
from keras_rank.catalogue.blocks import _kept_step

OF_TARGETS = [case for case in CASES_HERE if case.metric.takes_sparse_labels]
# To whom an id is worth a label of 1.
OF_IDS = [
    case
    for case in OF_TARGETS
    if (case.arguments.get("relevance_threshold") or 1.0) <= 1.0
    # Whose pairs have no cutoff here, and which has laws of its own.
    and case.metric is not metrics.PairwiseAccuracy
]


@contextlib.contextmanager
def changed(place, **changes):
    """Other values of a module, for steps over candidates that are compiled anew."""
    _kept_step.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setattr(place, name, value)
        yield
    _kept_step.cache_clear()
