"""The sums of metrics over all lists, and over those of each of some segments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend
from keras_rank.metrics.base import ExposureMetric
from keras_rank.metrics.group import RankingMetrics, by_kind
from keras_rank.metrics.update import with_columns
from keras_rank.metrics.variables import State, zero_state


class SegmentedSums:
    """What metrics add up over all lists, and over those of each segment.

    A list is computed once, and added to the sums of all and to those of its segment.
    """

    def __init__(
        self,
        group: RankingMetrics,
        names: Mapping[Any, str] | None = None,
        segment_of: Array | Sequence[int] = (),
    ) -> None:
        """Starts from no lists.

        Args:
            group: the metrics.
            names: the names of the segments, by their labels, if there are segments.
            segment_of: the number of the segment of each list.
        """
        self._group, self._segment_of = group, np.asarray(segment_of, int)
        names = names or {}
        self._suffixes = ["", *(f"_{name}" for name in names.values())]
        results = group._result_names() if names else []
        keys = [key + suffix for key in results for suffix in self._suffixes]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            give_it = [
                label
                for label, suffix in zip(names, self._suffixes[1:], strict=True)
                if twice[0] in (key + suffix for key in results)
            ]
            raise ValueError(
                "`by` should be labels that give each result a name of its own, in "
                "which all but ASCII letters, digits and underscores are underscores. "
                f"Received: labels that give {twice[0]!r} twice: {give_it}"
            )
        members = len(by_kind(group.members)[0])
        self._states = [zero_state(members) for _ in self._suffixes]
        self._of_exposure: list[dict[str, list[Tensor]]] = [{} for _ in self._suffixes]

    @property
    def whole(self) -> State:
        """The sums of all lists."""
        return self._states[0]

    def add(self, indices: Sequence[int], columns: Tensor, first: int = 0) -> None:
        """Adds the columns of lists for some metrics, from the list `first` on."""
        for number, of_segment in self._in_segments(columns, 0.0, first):
            state = self._states[number]
            new = backend.enter(with_columns, of_segment, state.of(indices))
            self._states[number] = state.replaced(indices, new)

    def add_shown(self, metric: ExposureMetric, shown: Tensor, items: int) -> None:
        """Adds the ids that all lists show, in a catalogue of `items` items."""
        for number, ids in self._in_segments(ops.transpose(shown), -1):
            sums = metric.of_shown(ops.transpose(ids), items)
            self._of_exposure[number][metric.name] = sums

    def results(self) -> dict[str, float]:
        """Returns the results of all lists, and those of each segment, by their names.

        The name of a segment follows that of a result.
        """
        named = {}
        for number, suffix in enumerate(self._suffixes):
            given = self._states[number], self._of_exposure[number]
            for key, value in self._group._results_of(*given).items():
                named[key + suffix] = float(value)
        return named

    def _in_segments(
        self, values: Tensor, fill: float, first: int = 0
    ) -> Iterator[tuple[int, Tensor]]:
        """Values of lists, of all and of each segment that has any of them."""
        yield 0, values
        segments = self._segment_of[first : first + int(values.shape[-1])]
        for segment in np.unique(segments).tolist():
            is_in = ops.convert_to_tensor(segments == segment)
            yield 1 + segment, backend.where(is_in, values, fill)
