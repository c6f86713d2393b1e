"""The sums of metrics over all lists, and over those of each of some segments."""

from collections.abc import Iterator, Sequence

import numpy as np
from keras import ops

from keras_rank.backends import Array, Tensor, backend
from keras_rank.metrics.exposure import ExposureMetric
from keras_rank.metrics.group import RankingMetrics
from keras_rank.metrics.update import with_columns
from keras_rank.metrics.variables import State


class SegmentedSums:
    """What metrics sum up over all lists, and over those of each segment.

    A list is computed once, and added to the sums of all and to those of its segment.

    Attributes:
        whole: the sums of all lists.
    """

    def __init__(
        self, group: RankingMetrics, segment_of: Array | None = None, number: int = 0
    ) -> None:
        """Starts from no lists.

        Args:
            group: the metrics.
            segment_of: int array of shape `(lists,)`. The number of the segment of each
                list, or `None`.
            number: the number of segments.
        """
        self._group, self._segment_of = group, segment_of
        self._states = [group._sums.zeros()] * (1 + number)
        self._of_exposure: list[dict[str, Tensor]] = [{} for _ in self._states]

    @property
    def whole(self) -> State:
        return self._states[0]

    def add(self, slots: Sequence[int], columns: Tensor, first: int = 0) -> None:
        """Adds the columns of lists for some metrics, from the list `first` on."""
        for number, is_in in self._masks(first, int(columns.shape[-1])):
            its = columns if is_in is None else backend.where(is_in, columns, 0.0)
            state = self._states[number]
            new = backend.enter(with_columns, None, its, state.of(slots))
            self._states[number] = state.replaced(slots, new)

    def add_shown(self, metric: ExposureMetric, shown: Tensor, items: int) -> None:
        """Adds the ids that all lists show, in a catalogue of `items` items."""
        for number, is_in in self._masks(0, int(shown.shape[0])):
            ids = shown if is_in is None else backend.where(is_in[:, None], shown, -1)
            self._of_exposure[number][metric.name] = metric.of_shown(ids, items)

    def results(self) -> list[dict[str, float]]:
        """Returns the results of all lists, and those of each segment."""
        each = zip(self._states, self._of_exposure, strict=True)
        results = (self._group._results_of(*its) for its in each)
        return [{name: float(x) for name, x in its.items()} for its in results]

    def _masks(self, first: int, number: int) -> Iterator[tuple[int, Tensor | None]]:
        """Which lists belong to all, and to each segment that has any of them."""
        yield 0, None
        if self._segment_of is not None:
            segments = self._segment_of[first : first + number]
            for segment in np.unique(segments).tolist():
                yield 1 + segment, ops.convert_to_tensor(segments == segment)
