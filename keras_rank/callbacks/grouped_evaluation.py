"""A callback that evaluates a model of single items in `fit`, list by list."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import argument_error
from keras_rank.backends import Array
from keras_rank.callbacks.base import (
    BY,
    ScoredEvaluation,
    create_sums,
    flatten_row_scores,
)
from keras_rank.callbacks.model_inputs import (
    IDS,
    LABELS,
    WEIGHTS,
    Inputs,
    has_only_arrays,
    read_column,
)
from keras_rank.catalogue.catalogue_metrics import Metrics, progress
from keras_rank.lists.groups import locate_rows
from keras_rank.metrics import RankingMetric
from keras_rank.utils import pad_lists

# The largest number of items, with padding, in a batch of lists. Batches also avoid
# padding short lists to the size of the longest list of all.
_MAX_ITEMS = 2**21


class GroupedEvaluation(ScoredEvaluation):
    """Evaluates a model of single items, list by list, at the end of an epoch.

    It is for models that are trained on rows: a row is an item, the rows of a list may
    be in any order, and a batch holds parts of many lists. The model predicts all rows,
    which are then grouped into lists by id. The results are the same as from
    `utils.pad_lists` and the metric. They are added to the logs of the epoch, under
    names such as `val_ndcg_at_10`. The history and the callbacks that are listed after
    this callback receive them. Callbacks that are listed before it do not, and a
    warning names them. Set `mode="max"` in callbacks that monitor a result, as Keras
    infers the direction only for compiled metrics.

    The model has the weights that it has on validation data: the averaged weights if
    there is a `keras.callbacks.SwapEMAWeights`, listed before or after this callback.

    Args:
        x: the inputs of the model, as for `predict`, in the same order at each
            evaluation: an array, a list, tuple or dict of arrays, or batches that are
            not shuffled, such as those of a `tf.data.Dataset`, a torch `DataLoader` or
            a `keras.utils.PyDataset`. Targets and weights in batches are ignored. `x`
            is read again at each evaluation. The arrays of `labels`, `group_ids`,
            `sample_weight` and `by` are copied instead.
        labels: array of shape `(rows,)`.
        group_ids: array or list of shape `(rows,)`. The id of the list of each row:
            integers, strings or anything hashable, in any order.
        metrics: list of ranking metrics: instances, or strings such as `"ndcg@10"` and
            `"rbp(persistence=0.9)@10"`. Or a single metric, or a `RankingMetrics`.
        sample_weight: array of shape `(rows,)`, or `(lists,)` in the order of the first
            rows of the lists. Defaults to `None`: no weights.
        by: list or array with a segment label for each row. All rows of a list have the
            same label. The results of each segment follow those of all lists, as in
            `keras_rank.callbacks.CatalogueEvaluation`. Defaults to `None`: no segments.
        model: model that scores the rows. Defaults to `None`: the trained model.
        output: str. The name of the output that holds the scores, if the model has
            several outputs.
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

    An example of segments, with a model that returns its inputs:

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

    In `fit`, list the callback before callbacks that monitor its results:

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
            raise argument_error("x", accepted, x, ". A generator is read once")
        self._x = x
        self._inputs = Inputs(x, batch_size, "item") if has_only_arrays(x) else None
        ids = read_column(IDS, group_ids)
        self._num_rows = rows = len(ids)
        if self._inputs is not None and self._inputs.num_rows != rows:
            raise ValueError(
                f"`{IDS}` should have one id for each row of `x`. Received: {rows} ids "
                f"for {self._inputs.num_rows} rows"
            )
        self._row_labels = read_column(LABELS, labels, rows)
        self._groups = _Groups(ids)
        # There may be a weight for each row, or for each list.
        weights = None if sample_weight is None else read_column(WEIGHTS, sample_weight)
        self._weights = weights
        self._row_weights, self._list_weights = self._groups.split_weights(weights)
        segments = None if by is None else read_column(BY, by, rows)
        self._segments = self._groups.find_list_labels(segments)
        create_sums(self.metrics, self._segments)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks the scores of the first batch, if the inputs are arrays."""
        super().on_train_begin(logs)
        if self._inputs is not None:
            self._predict_part(self._inputs, *self._inputs.first())

    def evaluated(self) -> dict[str, float]:
        """Predicts all rows, and returns the metrics of their lists."""
        return self.compute_results(self._pad_lists(), self._segments, self._weights)

    def _pad_lists(self) -> Iterator[tuple[int, list[Array | None]]]:
        """Yields batches: the index of the first list, and labels, scores, weights."""
        columns = self._row_labels, self._predict_rows(), self._row_weights
        for first, batch in self._groups.pad(*columns):
            if self._list_weights is not None:
                assert batch[0] is not None
                batch[2] = self._list_weights[first : first + len(batch[0])]
            yield first, batch

    def _predict_rows(self) -> Array:
        """Returns the predicted scores of all rows."""
        if self._inputs is None:
            return flatten_row_scores(
                self.predict_scores(self._x, self.batch_size), self._num_rows
            )
        parts: list[Array] = []
        show = progress(self.verbose, self._num_rows, "row")
        for start, stop in self._inputs.spans():
            parts.append(self._predict_part(self._inputs, start, stop))
            show(stop)
        return np.concatenate(parts)

    def _predict_part(self, inputs: Inputs, start: int, stop: int) -> Array:
        """Returns the predicted scores of a range of rows of arrays."""
        scores = self.predict_scores(inputs.part(start, stop), inputs.batch_size)
        return flatten_row_scores(scores, stop - start)


def _check_labeled(metrics: Sequence[RankingMetric]) -> None:
    """Raises `ValueError` if a metric reads ids instead of a label for each item."""
    for metric in metrics:
        if metric.sparse_labels:
            raise ValueError(
                "`metrics` should be of lists with a label for each item. "
                f"Received: {metric._format_call()}, which needs scores of a whole "
                "catalogue for each list"
            )


class _Groups:
    """The lists that rows belong to, in the order of their first rows."""

    def __init__(self, group_ids: Array) -> None:
        if not len(group_ids):
            raise ValueError(f"`{IDS}` should have one id for each row. Received: none")
        self._group, position = locate_rows(None, None, group_ids)
        self._sizes = np.bincount(self._group)
        self._ends = np.cumsum(self._sizes)
        self._starts = self._ends - self._sizes
        # The row indices of the first list, then those of the second list, and so on.
        self._rows = np.empty(len(self._group), int)
        self._rows[self._starts[self._group] + position] = np.arange(len(self._rows))
        if len(self._sizes) > 1 and self._sizes.max() == 1:
            warnings.warn(
                "`group_ids` should repeat where rows are items of one list. Here no "
                "id does. A list of one item has no order, so most metrics are the "
                "share of relevant items.",
                stacklevel=2,
            )

    def split_weights(self, weights: Array | None) -> tuple[Array | None, Array | None]:
        """Returns the weights as weights of rows, or as weights of lists."""
        if weights is None:
            return None, None
        rows, lists = len(self._group), len(self._sizes)
        if len(weights) not in (rows, lists):
            raise ValueError(
                "`sample_weight` should have one weight for each row, or for each list "
                "in the order of their first rows. Received: "
                f"{len(weights)} weights for {rows} rows in {lists} lists"
            )
        return (weights, None) if len(weights) == rows else (None, weights)

    def find_list_labels(self, row_labels: Array | None) -> Array | None:
        """Returns the segment label of each list, from the labels of rows.

        Raises:
            ValueError: if rows of a list have different labels.
        """
        if row_labels is None:
            return None
        list_labels: Array = row_labels[self._rows[self._starts]]
        (conflicts,) = np.nonzero(row_labels != list_labels[self._group])
        if len(conflicts):
            row = conflicts[0]
            raise ValueError(
                f"`{BY}` should have the same label in all rows of a list. Received: "
                f"{row_labels[row]!r} in row {row}, and before it "
                f"{list_labels[self._group[row]]!r} in the same list"
            )
        return list_labels

    def pad(self, *columns: Array | None) -> Iterator[tuple[int, list[Array | None]]]:
        """Yields batches: the index of the first list, and the padded columns."""
        for first, last in self._split_lists():
            rows = self._rows[self._starts[first] : self._ends[last - 1]]
            sizes = self._sizes[first:last]
            # A metric warns about a batch with one item per list, so pad to two.
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

    def _split_lists(self) -> Iterator[tuple[int, int]]:
        """Yields the start and stop of the lists of each batch."""
        first, longest = 0, 0
        for last, size in enumerate(self._sizes.tolist()):
            longest = max(longest, size)
            if last > first and longest * (last + 1 - first) > _MAX_ITEMS:
                yield first, last
                first, longest = last, size
        yield first, len(self._sizes)
