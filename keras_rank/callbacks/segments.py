"""Segments of lists, by a label for each, and the names of their results."""

import numbers
import re
import unicodedata
from typing import Any

import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array
from keras_rank.lists.groups import ids_of, labels_of
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.segments import SegmentedSums

# The argument.
BY = "by"
# More results than anyone looks at. Ids of users are no segments.
_MOST = 50
# Of a name. MLflow takes 250 characters, with those of the metric.
_LONGEST = 200
_ACCENTS = re.compile("[\u0300-\u036f]")
_NO_IDENTIFIER = re.compile("[^0-9A-Za-z_]")


def labels_for(lists: int, by: Any, noun: str) -> Array | None:
    """Returns the label of each list, if there are any, and checks their number."""
    labels = None if by is None else labels_of(BY, by)
    if labels is not None and len(labels) != lists:
        raise ValueError(
            f"`{BY}` should have one label for each {noun}. Received: {len(labels)} "
            f"labels for {lists} {noun.split()[0]}s"
        )
    return labels


def sums_of(metrics: RankingMetrics, labels: Array | None) -> SegmentedSums:
    """Returns the sums of no lists yet, and checks the names of results.

    Args:
        metrics: the metrics.
        labels: the label of each list, or `None`: there are no segments.
    """
    if labels is None:
        return SegmentedSums(metrics)
    known: dict[Any, int] = {}
    segment_of = ids_of(labels, known, BY)
    if len(known) > _MOST:
        raise ValueError(
            f"`{BY}` should be labels of at most {_MOST} segments. Received: "
            f"{len(known)} different labels"
        )
    return SegmentedSums(metrics, {x: _name_of(x) for x in known}, segment_of)


def _name_of(label: Any) -> str:
    """Returns an identifier, as trackers take nothing else."""
    text = label.decode(errors="replace") if isinstance(label, bytes) else label
    if isinstance(text, float | np.floating) and text.is_integer():
        text = int(text)
    if isinstance(text, str | numbers.Real | np.bool_):
        plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", str(text)))
        name = _NO_IDENTIFIER.sub("_", plain)
        if name.strip("_") and len(name) <= _LONGEST:
            return name
    accepted = "strings with ASCII letters or digits, numbers or booleans, of at most "
    raise unaccepted(BY, f"{accepted}{_LONGEST} characters", label)
