"""Segments of lists, by a label for each list, and the names of their results."""

import numbers
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array
from keras_rank.callbacks.rows import BY
from keras_rank.lists.groups import ids_of
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.segments import SegmentedSums

# More results than anyone looks at. Ids of users are no segments.
_MOST = 50
_ACCENTS = re.compile("[\u0300-\u036f]")
_NO_IDENTIFIER = re.compile("[^0-9A-Za-z_]")


class Segments:
    """The segments of lists, with identifiers as names: trackers take no others."""

    def __init__(self, labels: Array | None, metrics: RankingMetrics) -> None:
        """Names the segments, and checks that their results have names of their own.

        Args:
            labels: the label of each list, or `None`: there are no segments.
            metrics: the metrics.
        """
        known: dict[Any, int] = {}
        self._of_lists = None if labels is None else ids_of(labels, known, BY)
        if len(known) > _MOST:
            accepted = f"labels of at most {_MOST} segments"
            raise unaccepted(BY, accepted, f"{len(known)} distinct labels")
        by_name: dict[str, Any] = {}
        for label in known:
            other = by_name.setdefault(name := _name_of(label), label)
            if other is not label:
                raise ValueError(
                    f"`{BY}` should be labels that differ in their letters and digits, "
                    f"as these name the results. Received: {other!r} and {label!r}, "
                    f"which are both {name!r}"
                )
        self._names = list(by_name)
        if self._names:
            self.named([metrics.result()] * (1 + len(self._names)))

    def sums(self, metrics: RankingMetrics) -> SegmentedSums:
        """Returns the sums of no lists yet."""
        return SegmentedSums(metrics, self._of_lists, len(self._names))

    def named(self, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns the results of all lists and of each segment, by their names."""
        named, *others = map(dict, results)
        for segment, its in zip(self._names, others, strict=True):
            for name, value in its.items():
                key = f"{name}_{segment}"
                if key in named:
                    raise ValueError(
                        f"`{BY}` should be labels that give results names of their "
                        f"own. Received: a label that is {segment!r} in names, which "
                        f"gives {key!r} twice"
                    )
                named[key] = value
        return named


def _name_of(label: Any) -> str:
    """Returns the part of a name that stands for a label."""
    if isinstance(label, bytes):
        label = label.decode(errors="replace")
    if isinstance(label, str | bool | np.bool_ | numbers.Real):
        is_whole = isinstance(label, float) and label.is_integer()
        text = unicodedata.normalize("NFKD", str(int(label) if is_whole else label))
        name = _NO_IDENTIFIER.sub("_", _ACCENTS.sub("", text))
        if name.strip("_"):
            return name
    accepted = "strings with ASCII letters or digits, numbers or booleans"
    raise unaccepted(BY, accepted, label)
