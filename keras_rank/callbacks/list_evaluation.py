"""A callback that evaluates a model of padded lists in `fit`, and segments of them."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array
from keras_rank.callbacks.base import WHICH, ScoredEvaluation, labels_for, sums_of
from keras_rank.callbacks.model_inputs import Inputs, are_arrays
from keras_rank.catalogue.catalogue_metrics import Metrics, progress
from keras_rank.lists.ids import PARTS_OF_IDS, check_items
from keras_rank.lists.input_arrays import (
    Given,
    if_given,
    is_dict,
    look,
    own,
    parts_of,
    refused,
    require_same_lengths,
)
from keras_rank.lists.inputs import PARTS_OF_LABELS, are_at_positions
from keras_rank.lists.standardize import read_targets
from keras_rank.metrics import RankingMetric
from keras_rank.metrics.update import check_given

# How many scores are predicted at a time: a batch may be more.
MOST_SCORES = 2**23

_PARTS = ("labels", "mask")


class ListEvaluation(ScoredEvaluation):
    """Evaluates a model of lists, and segments of them, at the end of an epoch.

    For models that score all items of a list at once, whose lists are padded. Compiled
    metrics give the same numbers on validation data; this gives those of segments too.
    The results are those of `metric(y, model.predict(x))`. They are added to the logs
    of the epoch, under names such as `val_ndcg_at_10`, for the history and all
    callbacks that are listed after this one. Callbacks that are listed before it miss
    them, and a warning says so. Set `mode="max"` in callbacks that monitor a result, as
    Keras infers the direction of compiled metrics only. If compiled metrics have the
    same names on validation data, choose another `prefix`.

    The weights are those that compiled metrics see on validation data: the averaged
    ones if there is a `keras.callbacks.SwapEMAWeights`, listed before or after.

    Masks of layers, such as those of `Embedding(mask_zero=True)`, don't outlive
    `predict`. So mark padding in `y`: by labels of -1, or by a mask.

    Args:
        x: the inputs of the model, as for `predict`: an array, or a list, tuple or dict
            of arrays, with a row for each list. They are read again at each evaluation,
            unlike labels, weights and segments, which are copied.
        y: labels of shape `(lists, items)`, where those below 0 or NaN are padding,
            lists of uneven length, or a dict `{"labels": ..., "mask": ...}`. With
            another axis, of subtopics, for metrics that take it. For metrics with
            `sparse_labels=True`: ids of relevant items, of shape `(lists,)` or
            `(lists, n)`, as for these metrics, where the model scores a whole
            catalogue.
        metrics: as for `keras_rank.callbacks.CatalogueEvaluation`.
        sample_weight: weights of shape `(lists,)`, `(lists, 1)` or `(lists, items)`.
            Defaults to `None`: no weights.
        by: list or array of a label for each list. The results of the lists of each
            label follow those of all, as in
            `keras_rank.callbacks.CatalogueEvaluation`. Defaults to `None`: no segments.
        model: model that scores the lists. Defaults to `None`: the trained one.
        output: str. The name of the output that holds the scores, if there are several.
            They have the shape `(lists, items)` or `(lists, items, 1)`.
        **arguments: as for `keras_rank.callbacks.CatalogueEvaluation`: batch_size,
            prefix, frequency, verbose.

    Raises:
        ValueError: if an argument does not have the type stated above, or numbers of
            lists differ. Before the first epoch: if the model does not return a score
            for each label, or an id is out of range. At the end of an epoch: if the
            logs already have a key of the results.

    Example:

    Here of a model that returns its inputs:

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

    In `fit`, list it before callbacks that monitor its results:

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
        if not are_arrays(x):
            raise unaccepted("x", "arrays with a row for each list", x)
        self._inputs = Inputs(x, batch_size, "list")
        self._are_ids = _read_ids(self.members)
        deep = self._are_ids or all(each.takes_subtopics for each in self.members)
        labels = _looked_at(y, self._are_ids, deep)
        weights = if_given("sample_weight", sample_weight, 0, deep=deep)
        first, *others = labels.values()
        require_same_lengths(first, *others, weights)
        if not self._are_ids and len(first.shape) not in (2, 3):
            expected = "have the shape (lists, items), or hold ids of a catalogue for "
            expected += "metrics with `sparse_labels=True`"
            raise refused("y", expected, f"{first.argument}.shape={first.shape}")
        self._y = {name: self._copied(each) for name, each in labels.items()}
        self.sample_weight = None if weights is None else self._copied(weights)
        self._labels = labels_for(self._inputs.number, by, "list")
        sums_of(self.metrics, self._labels)
        # Of the scores of one row, known once the model has predicted some.
        self._shape: tuple[int, ...] | None = None
        self._lists_of_row = 1

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that the model scores the lists."""
        super().on_train_begin(logs)
        self._score_first_batch()

    def evaluated(self) -> dict[str, float]:
        """Predicts the scores of all lists, and computes their metrics."""
        shape = self._shape or self._score_first_batch()
        segments = self._labels
        if segments is not None:
            segments = segments.repeat(self._lists_of_row)
        lists = self._scored(MOST_SCORES // max(math.prod(shape), 1))
        return self.results_of(lists, segments, self.sample_weight)

    def _scored(self, most: int) -> Iterator[tuple[int, tuple[Any, Array, Any]]]:
        """Labels, scores and weights of lists, from a first one on.

        As many as fit in memory.
        """
        show = progress(self.verbose, self._inputs.number, "list")
        for start, stop in self._inputs.spans(most):
            yield start * self._lists_of_row, self._given(start, stop)
            show(stop)

    def _given(self, start: int, stop: int) -> tuple[Any, Array, Any]:
        """Labels, predicted scores and weights of some rows."""
        x = self._inputs.part(start, stop)
        scores = self.predicted(x, self._inputs.batch_size)
        if scores.shape[:1] != (stop - start,):
            raise ValueError(
                "The model should return the scores of each list. Received: "
                f"predictions of shape {scores.shape} for {stop - start} lists"
            )
        y = {name: each[start:stop] for name, each in self._y.items()}
        weights = self.sample_weight
        return y.get("y", y), scores, None if weights is None else weights[start:stop]

    def _score_first_batch(self) -> tuple[int, ...]:
        """Checks that scores match labels and weights, and returns those of a row."""
        _, scores, _ = given = self._given(*self._inputs.first())
        labels = next(iter(self._y.values()))
        # A last axis of 1 is that of `Dense(1)`.
        items = scores.shape[1:-1] if scores.shape[2:] == (1,) else scores.shape[1:]
        if not self._are_ids and items != tuple(labels.shape[1:2]):
            raise ValueError(
                "The model should return one score for each label, of shape (lists, "
                f"items) or (lists, items, 1). {WHICH} Received: predictions of shape "
                f"{scores.shape}, and y.shape={tuple(labels.shape)}"
            )
        check_given(self.members, given)
        if self._are_ids and len(labels.shape) < 3:
            # Those of all lists.
            ids = read_targets("y", self._y.get("y", self._y))
            check_items("y", ids, items[-1])
        if self._are_ids and are_at_positions(look("scores", scores)):
            # Each position is a list.
            self._lists_of_row = math.prod(scores.shape[1:-1])
        self._shape = scores.shape[1:]
        return self._shape

    def _copied(self, given: Given) -> Any:
        """A copy with a row for each list, which can be cut."""
        if given.shape[:1] != (self._inputs.number,):
            received = f"{given.argument}.shape={given.shape} for "
            received += f"{self._inputs.number} lists"
            raise refused(given.argument, "have a row for each list", received)
        if given.form == "matrix":
            return own(given.numbers.tocsr())
        # It raises for what are no numbers.
        given._replace(numbers=given.numbers[:1]).tensor()
        return own(given.numbers)


def _looked_at(y: Any, are_ids: bool, deep: bool) -> dict[str, Given]:
    """What is in a dict of labels or ids, by name, or labels alone."""
    if not is_dict(y):
        return {"y": look("y", y, -1, deep=deep)}
    names = ("ids", *_PARTS) if are_ids and "ids" in y else _PARTS
    parts = parts_of("y", y, names, PARTS_OF_IDS if are_ids else PARTS_OF_LABELS)
    return {
        name: look(name, part, 0 if name == "mask" else -1, deep=deep)
        for name, part in zip(names, parts, strict=True)
        if part is not None
    }


def _read_ids(metrics: Sequence[RankingMetric]) -> bool:
    """Whether metrics read ids, and checks that all do or none."""
    first, *others = metrics
    for metric in others:
        if metric.sparse_labels != first.sparse_labels:
            raise ValueError(
                "`metrics` should all have `sparse_labels=True`, for ids in `y`, or "
                f"none of them. Received: {first._as_call()} and {metric._as_call()}"
            )
    return first.sparse_labels
