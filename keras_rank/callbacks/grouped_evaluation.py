"""A callback that evaluates a model of single items in `fit`, list by list."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array
from keras_rank.callbacks.base import BY, ScoredEvaluation, of_rows, sums_of
from keras_rank.callbacks.model_inputs import (
    IDS,
    LABELS,
    WEIGHTS,
    Inputs,
    are_arrays,
    column,
)
from keras_rank.catalogue.catalogue_metrics import Metrics, progress
from keras_rank.lists.groups import places
from keras_rank.metrics import RankingMetric
from keras_rank.utils import pad_lists

# How many items, with padding, a metric is given at a time: short lists are not padded
# to the longest of all.
_MOST_ITEMS = 2**21


class GroupedEvaluation(ScoredEvaluation):
    """Evaluates a model of single items, list by list, at the end of an epoch.

    For models that are trained on rows: one row is one item, the rows of a list may be
    anywhere, and a batch holds parts of many lists. All rows are predicted, and then
    grouped into lists by their ids. The results are those of `utils.pad_lists` and the
    metric. They are added to the logs of the epoch, under names such as
    `val_ndcg_at_10`, for the history and all callbacks that are listed after this one.
    Callbacks that are listed before it miss them, and a warning says so. Set
    `mode="max"` in callbacks that monitor a result, as Keras infers the direction of
    compiled metrics only.

    The weights are those that compiled metrics see on validation data: the averaged
    ones if there is a `keras.callbacks.SwapEMAWeights`, listed before or after.

    Args:
        x: the inputs of the model, as for `predict`, which reads them in the same order
            each time: an array, a list, tuple or dict of arrays, or batches that are
            not shuffled, such as those of a `tf.data.Dataset`, a torch `DataLoader` or
            a `keras.utils.PyDataset`. Targets and weights in batches are ignored. `x`
            is read again at each evaluation, unlike the arrays of the four arguments
            below, which are copied.
        labels: array of shape `(rows,)`.
        group_ids: array or list of shape `(rows,)`. The id of the list of each row:
            integers, strings or anything hashable, in any order.
        metrics: list of ranking metrics: instances, or strings such as `"ndcg@10"` and
            `"rbp(persistence=0.9)@10"`. Or a single one, or a `RankingMetrics`.
        sample_weight: array of shape `(rows,)`, or `(lists,)` in the order of the first
            rows of the lists. Defaults to `None`: no weights.
        by: list or array of a label for each row, the same in all rows of a list. The
            results of the lists of each label follow those of all, as in
            `keras_rank.callbacks.CatalogueEvaluation`. Defaults to `None`: no segments.
        model: model that scores the rows. Defaults to `None`: the trained one.
        output: str. The name of the output that holds the scores, if there are several.
        batch_size: positive int. The batch size of `predict`, for arrays. Defaults to
            `None`: 32.
        **arguments: as for `keras_rank.callbacks.CatalogueEvaluation`: prefix,
            frequency, verbose.

    Raises:
        ValueError: if an argument does not have the type stated above, or numbers of
            rows differ. Before the first epoch, or for batches at the end of an epoch:
            if the model does not return one score for each row. At the end of an epoch:
            if the logs already have a key of the results.

    Example:

    >>> import numpy as np
    >>> callback = keras_rank.callbacks.GroupedEvaluation(
    ...     x=np.ones((4, 2)), labels=[1, 0, 0, 2], group_ids=["a", "b", "a", "b"],
    ...     metrics=["ndcg@10"],
    ... )
    >>> callback.prefix, callback.frequency
    ('val_', 1)

    Results of segments, here of a model that returns its inputs:

    >>> class Scored:
    ...     def predict(self, x, **settings):
    ...         return x
    >>> callback = keras_rank.callbacks.GroupedEvaluation(
    ...     x=np.array([0.9, 0.1, 0.4, 0.6]), labels=[1, 0, 1, 0],
    ...     group_ids=["a", "a", "b", "b"], metrics=["mrr"],
    ...     by=["new users", "new users", "others", "others"], model=Scored(),
    ... )
    >>> logs = {}
    >>> callback.on_epoch_end(0, logs)
    >>> logs
    {'val_mrr': 0.75, 'val_mrr_new_users': 1.0, 'val_mrr_others': 0.5}

    In `fit`, list it before callbacks that monitor its results:

    ```python
    model.fit(rows, labels, callbacks=[
        GroupedEvaluation(rows_val, labels_val, query_ids_val, ["ndcg@10"]),
        keras.callbacks.EarlyStopping(monitor="val_ndcg_at_10", mode="max", patience=3),
    ])
    ```
    """

    def __init__(
        self,
        x: Any,
        labels: Any,
        group_ids: Any,
        metrics: Metrics,
        *,
        sample_weight: Any = None,
        by: Any = None,
        model: keras.Model | None = None,
        output: str | None = None,
        batch_size: int | None = None,
        prefix: str = "val_",
        frequency: int = 1,
        verbose: Any = 0,
    ) -> None:
        super().__init__(
            metrics,
            model=model,
            output=output,
            batch_size=batch_size,
            prefix=prefix,
            frequency=frequency,
            verbose=verbose,
        )
        _check_labeled(self.members)
        if hasattr(x, "__next__"):
            accepted = "inputs of `predict` that can be read again after each epoch"
            raise unaccepted("x", accepted, x, ". A generator is read once")
        self._x = x
        self._inputs = Inputs(x, batch_size, "item") if are_arrays(x) else None
        ids = column(IDS, group_ids)
        self._number = rows = len(ids)
        if self._inputs is not None and self._inputs.number != rows:
            raise ValueError(
                f"`{IDS}` should have one id for each row of `x`. Received: {rows} ids "
                f"for {self._inputs.number} rows"
            )
        self._row_labels = column(LABELS, labels, rows)
        self._groups = _Groups(ids)
        # Weights may be those of lists.
        weights = None if sample_weight is None else column(WEIGHTS, sample_weight)
        self._weights, self._row_weights = weights, self._groups.of_rows(weights)
        segments = None if by is None else column(BY, by, rows)
        self._segments = self._groups.labels(segments)
        sums_of(self.metrics, self._segments)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that the model scores the rows, if these are arrays."""
        super().on_train_begin(logs)
        if self._inputs is not None:
            self._scores_of(self._inputs, *self._inputs.first())

    def evaluated(self) -> dict[str, float]:
        """Predicts all rows, and computes the metrics of their lists."""
        columns = self._row_labels, self._scores(), self._row_weights
        lists = self._groups.lists(*columns)
        return self.results_of(lists, self._segments, self._weights)

    def _scores(self) -> Array:
        """Returns the predicted scores of all rows."""
        if self._inputs is None:
            return of_rows(self.predicted(self._x, self.batch_size), self._number)
        parts: list[Array] = []
        show = progress(self.verbose, self._number, "row")
        for start, stop in self._inputs.spans():
            parts.append(self._scores_of(self._inputs, start, stop))
            show(stop)
        return np.concatenate(parts)

    def _scores_of(self, inputs: Inputs, start: int, stop: int) -> Array:
        """Returns the predicted scores of some rows of arrays."""
        scores = self.predicted(inputs.part(start, stop), inputs.batch_size)
        return of_rows(scores, stop - start)


def _check_labeled(metrics: Sequence[RankingMetric]) -> None:
    """Raises for metrics that read ids instead of a label for each item."""
    for metric in metrics:
        if metric.sparse_labels:
            raise ValueError(
                "`metrics` should be of lists with a label for each item. "
                f"Received: {metric._as_call()}, which needs scores of a whole "
                "catalogue for each list"
            )


class _Groups:
    """The lists that rows belong to, in the order of their first rows."""

    def __init__(self, group_ids: Array) -> None:
        if not len(group_ids):
            raise ValueError(f"`{IDS}` should have one id for each row. Received: none")
        self._group, place = places(None, None, group_ids)
        self._sizes = np.bincount(self._group)
        self._ends = np.cumsum(self._sizes)
        self._starts = self._ends - self._sizes
        # The rows of each list, one list after the other.
        self._rows = np.empty(len(self._group), int)
        self._rows[self._starts[self._group] + place] = np.arange(len(self._rows))
        if len(self._sizes) > 1 and self._sizes.max() == 1:
            warnings.warn(
                "`group_ids` should repeat where rows are items of one list. Here no "
                "id does. A list of one item has no order, so most metrics are the "
                "share of relevant items.",
                stacklevel=2,
            )

    def of_rows(self, weights: Array | None) -> Array | None:
        """Weights of rows, given those or those of lists, if there are any."""
        if weights is None:
            return None
        rows, lists = len(self._group), len(self._sizes)
        if len(weights) not in (rows, lists):
            raise ValueError(
                "`sample_weight` should have one weight for each row, or for each list "
                "in the order of their first rows. Received: "
                f"{len(weights)} weights for {rows} rows in {lists} lists"
            )
        return weights if len(weights) == rows else weights[self._group]

    def labels(self, of_rows: Array | None) -> Array | None:
        """The labels of the lists, given those of rows, if there are any."""
        if of_rows is None:
            return None
        of_lists: Array = of_rows[self._rows[self._starts]]
        (others,) = np.nonzero(of_rows != of_lists[self._group])
        if len(others):
            row = others[0]
            raise ValueError(
                f"`{BY}` should have the same label in all rows of a list. Received: "
                f"{of_rows[row]!r} in row {row}, and before it "
                f"{of_lists[self._group[row]]!r} in the same list"
            )
        return of_lists

    def lists(self, *columns: Array | None) -> Iterator[tuple[int, list[Array | None]]]:
        """Yields the number of a list, and padded columns of lists from this one on."""
        for first, last in self._splits():
            rows = self._rows[self._starts[first] : self._ends[last - 1]]
            sizes = self._sizes[first:last]
            # With two items at least, as a metric warns of batches of single ones.
            size = max(2, int(sizes.max()))
            yield (
                first,
                [
                    None
                    if values is None
                    else pad_lists(values[rows], group_sizes=sizes, list_size=size)
                    for values in columns
                ],
            )

    def _splits(self) -> Iterator[tuple[int, int]]:
        """Yields the first list of each batch that fits in memory, and its end."""
        first, longest = 0, 0
        for last, size in enumerate(self._sizes.tolist()):
            longest = max(longest, size)
            if last > first and longest * (last + 1 - first) > _MOST_ITEMS:
                yield first, last
                first, longest = last, size
        yield first, len(self._sizes)
