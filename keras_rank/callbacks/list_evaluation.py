"""A callback that evaluates a model of padded lists in `fit`, with segments."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_rank.arguments import argument_error
from keras_rank.backends import Array
from keras_rank.callbacks.base import (
    OUTPUT_ADVICE,
    ScoredEvaluation,
    create_sums,
    read_segment_labels,
)
from keras_rank.callbacks.model_inputs import Inputs, has_only_arrays
from keras_rank.catalogue.catalogue_metrics import Metrics, progress
from keras_rank.lists.ids import IDS_DESCRIPTION, check_items
from keras_rank.lists.input_arrays import (
    InputArray,
    copy_arrays,
    is_dict,
    read_array,
    read_optional,
    require_same_lengths,
    split_dict,
    value_error,
)
from keras_rank.lists.inputs import LABELS_DESCRIPTION, has_positions
from keras_rank.lists.standardize import read_targets
from keras_rank.metrics import RankingMetric
from keras_rank.metrics.update import check_inputs

# The largest number of scores to predict at a time. A single batch may have more.
MAX_SCORES = 2**23

_PARTS = ("labels", "mask")


class ListEvaluation(ScoredEvaluation):
    """Evaluates a model of lists, and segments of lists, at the end of an epoch.

    It is for models that score all items of a padded list at once. Compiled metrics
    compute the same numbers on validation data, but not those of segments. The results
    are the same as from `metric(y, model.predict(x))`. They are added to the logs of
    the epoch, under names such as `val_ndcg_at_10`. The history and the callbacks that
    are listed after this callback receive them. Callbacks that are listed before it do
    not, and a warning names them. Set `mode="max"` in callbacks that monitor a result,
    as Keras infers the direction only for compiled metrics. If compiled metrics have
    the same names on validation data, choose another `prefix`.

    The model has the weights that it has on validation data: the averaged weights if
    there is a `keras.callbacks.SwapEMAWeights`, listed before or after this callback.

    Masks of layers, such as those of `Embedding(mask_zero=True)`, are lost after
    `predict`. Mark padding in `y` instead: by labels of -1, or by a mask.

    Args:
        x: the inputs of the model, as for `predict`: an array, or a list, tuple or dict
            of arrays, with a row for each list. They are read again at each evaluation.
            Labels, weights and segments are copied instead.
        y: labels of shape `(lists, items)`, where labels below 0 or NaN are padding,
            lists of uneven length, or a dict `{"labels": ..., "mask": ...}`. Labels may
            have another axis, of subtopics, for metrics that accept it. For metrics
            with `sparse_labels=True`: ids of relevant items, of shape `(lists,)` or
            `(lists, n)`, in all forms that these metrics accept. The model then scores
            a whole catalog.
        metrics: as for `keras_rank.callbacks.CatalogueEvaluation`.
        sample_weight: weights of shape `(lists,)`, `(lists, 1)` or `(lists, items)`.
            Defaults to `None`: no weights.
        by: list or array with a segment label for each list. The results of each
            segment follow those of all lists, as in
            `keras_rank.callbacks.CatalogueEvaluation`. Defaults to `None`: no segments.
        model: model that scores the lists. Defaults to `None`: the trained model.
        output: str. The name of the output that holds the scores, if the model has
            several outputs. The scores have the shape `(lists, items)` or
            `(lists, items, 1)`.
        **arguments: as for `keras_rank.callbacks.CatalogueEvaluation`: batch_size,
            prefix, frequency, verbose.

    Raises:
        ValueError: if an argument does not have the type stated above, or numbers of
            lists differ. Before the first epoch: if the model does not return a score
            for each label, or an id is out of range. At the end of an epoch: if the
            logs already have a key of the results.

    Example:

    An example with a model that returns its inputs:

    >>> import numpy as np
    >>> class Scored:
    ...     def predict(self, x, **settings):
    ...         return x
    >>> callback = keras_rank.callbacks.ListEvaluation(
    ...     x=np.array([[0.9, 0.1, 0.4], [0.4, 0.6, 0.0]]), y=[[1, 0, 0], [1, 0, -1]],
    ...     metrics=["mrr"], by=["new users", "others"], model=Scored(),
    ... )
    >>> logs = {}
    >>> callback.on_epoch_end(0, logs)
    >>> logs
    {'val_mrr': 0.75, 'val_mrr_new_users': 1.0, 'val_mrr_others': 0.5}

    In `fit`, list the callback before callbacks that monitor its results:

    ```python
    model.fit(x, y, callbacks=[
        ListEvaluation(x_val, y_val, ["ndcg@10"], by=languages_val),
        keras.callbacks.EarlyStopping(monitor="val_ndcg_at_10", mode="max", patience=3),
    ])
    ```
    """

    def __init__(
        self,
        x: Any,
        y: Any,
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
        if not has_only_arrays(x):
            raise argument_error("x", "arrays with a row for each list", x)
        self._inputs = Inputs(x, batch_size, "list")
        self._reads_ids = _check_sparse_labels(self.members)
        deep = self._reads_ids or all(metric.takes_subtopics for metric in self.members)
        labels = _read_labels(y, self._reads_ids, deep)
        weights = read_optional("sample_weight", sample_weight, 0, deep=deep)
        first, *others = labels.values()
        require_same_lengths(first, *others, weights)
        if not self._reads_ids and len(first.shape) not in (2, 3):
            expected = "have the shape (lists, items), or hold ids of a catalogue for "
            expected += "metrics with `sparse_labels=True`"
            raise value_error("y", expected, f"{first.argument}.shape={first.shape}")
        self._y = {name: self._copy_rows(part) for name, part in labels.items()}
        self.sample_weight = None if weights is None else self._copy_rows(weights)
        self._labels = read_segment_labels(self._inputs.num_rows, by, "list")
        create_sums(self.metrics, self._labels)
        # The shape of the scores of one row, which is known after the first prediction.
        self._row_shape: tuple[int, ...] | None = None
        self._lists_per_row = 1

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that the model scores the lists."""
        super().on_train_begin(logs)
        self._score_first_batch()

    def evaluated(self) -> dict[str, float]:
        """Predicts the scores of all lists, and returns their metrics."""
        shape = self._row_shape or self._score_first_batch()
        segments = self._labels
        if segments is not None:
            segments = segments.repeat(self._lists_per_row)
        lists = self._predict_parts(MAX_SCORES // max(math.prod(shape), 1))
        return self.compute_results(lists, segments, self.sample_weight)

    def _predict_parts(
        self, max_rows: int
    ) -> Iterator[tuple[int, tuple[Any, Array, Any]]]:
        """Yields the index of the first list of each part, and the inputs of metrics.

        The inputs are labels, scores and weights. A part has at most `max_rows` rows,
        but at least a batch.
        """
        show = progress(self.verbose, self._inputs.num_rows, "list")
        for start, stop in self._inputs.spans(max_rows):
            yield start * self._lists_per_row, self._predict_part(start, stop)
            show(stop)

    def _predict_part(self, start: int, stop: int) -> tuple[Any, Array, Any]:
        """Returns the labels, predicted scores and weights of a range of rows."""
        x = self._inputs.part(start, stop)
        scores = self.predict_scores(x, self._inputs.batch_size)
        if scores.shape[:1] != (stop - start,):
            raise ValueError(
                "The model should return the scores of each list. Received: "
                f"predictions of shape {scores.shape} for {stop - start} lists"
            )
        y = {name: part[start:stop] for name, part in self._y.items()}
        weights = self.sample_weight
        return y.get("y", y), scores, None if weights is None else weights[start:stop]

    def _score_first_batch(self) -> tuple[int, ...]:
        """Checks the scores of the first batch, and returns the shape of a row.

        The scores should match the labels and the weights.
        """
        _, scores, _ = inputs = self._predict_part(*self._inputs.first())
        labels = next(iter(self._y.values()))
        # A last axis of size 1 comes from `Dense(1)`.
        items = scores.shape[1:-1] if scores.shape[2:] == (1,) else scores.shape[1:]
        if not self._reads_ids and items != tuple(labels.shape[1:2]):
            raise ValueError(
                "The model should return one score for each label, of shape (lists, "
                f"items) or (lists, items, 1). {OUTPUT_ADVICE} Received: predictions "
                f"of shape {scores.shape}, and y.shape={tuple(labels.shape)}"
            )
        check_inputs(self.members, inputs)
        if self._reads_ids and len(labels.shape) < 3:
            # The ids of all lists are checked, not only those of the first batch.
            ids = read_targets("y", self._y.get("y", self._y))
            check_items("y", ids, items[-1])
        if self._reads_ids and has_positions(read_array("scores", scores)):
            # Each position is a list.
            self._lists_per_row = math.prod(scores.shape[1:-1])
        self._row_shape = scores.shape[1:]
        return self._row_shape

    def _copy_rows(self, array: InputArray) -> Any:
        """Returns a copy that can be sliced, with a row for each list."""
        if array.shape[:1] != (self._inputs.num_rows,):
            received = f"{array.argument}.shape={array.shape} for "
            received += f"{self._inputs.num_rows} lists"
            raise value_error(array.argument, "have a row for each list", received)
        if array.form == "matrix":
            return copy_arrays(array.numbers.tocsr())
        # The conversion of a row to a tensor raises for values that are not numbers.
        array._replace(numbers=array.numbers[:1]).tensor()
        return copy_arrays(array.numbers)


def _read_labels(y: Any, are_ids: bool, deep: bool) -> dict[str, InputArray]:
    """Returns the parts of `y` by name: those of a dict, or `y` itself."""
    if not is_dict(y):
        return {"y": read_array("y", y, -1, deep=deep)}
    names = ("ids", *_PARTS) if are_ids and "ids" in y else _PARTS
    parts = split_dict(
        "y", y, names, IDS_DESCRIPTION if are_ids else LABELS_DESCRIPTION
    )
    return {
        name: read_array(name, part, 0 if name == "mask" else -1, deep=deep)
        for name, part in zip(names, parts, strict=True)
        if part is not None
    }


def _check_sparse_labels(metrics: Sequence[RankingMetric]) -> bool:
    """Returns whether metrics read ids.

    Raises:
        ValueError: if some metrics read ids and others do not.
    """
    first, *others = metrics
    for metric in others:
        if metric.sparse_labels != first.sparse_labels:
            raise ValueError(
                "`metrics` should all have `sparse_labels=True`, for ids in `y`, or "
                f"none of them. Received: {first._format_call()} and "
                f"{metric._format_call()}"
            )
    return first.sparse_labels
