"""The base classes of callbacks that evaluate a model at the end of an epoch."""

import contextlib
import numbers
import re
import sys
import types
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.callbacks import Callback, CallbackList, SwapEMAWeights

from keras_rank.arguments import check_positive, unaccepted
from keras_rank.backends import Array, backend
from keras_rank.catalogue.catalogue_metrics import Metrics, check_verbose
from keras_rank.lists.groups import ids_of, labels_of
from keras_rank.lists.input_arrays import look
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.group import SegmentedSums, as_group, by_kind
from keras_rank.metrics.update import columns_of
from keras_rank.metrics.variables import State
from keras_rank.state import LISTS, RELEVANT

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


# What to do where predictions are not scores alone.
WHICH = (
    "For one of several outputs, pass its name as `output`; for one of several "
    "columns, pass a `model` that returns it."
)


def output_names(model: Any) -> list[str] | None:
    """Returns the names of the outputs of a model, in order, `None` if unknown."""
    names = getattr(model, "output_names", None)
    return None if names is None else list(names)


def scores_of(predicted: Any, output: str | None, names: list[str] | None) -> Array:
    """Returns the scores in what `predict` returns.

    Args:
        predicted: an array, or a dict, list or tuple of one for each output.
        output: the name of the output that holds the scores, `None` if there is one.
        names: the names of the outputs in their order, `None` if unknown.
    """
    if output is not None and not isinstance(predicted, Mapping | list | tuple):
        predicted = [predicted]
    scores = _of_output(predicted, output, names)
    if not hasattr(scores, "shape"):
        raise ValueError(
            "`output` should be the name of an output that is one array. Received: "
            f"output={output!r}, which is of type {type(scores).__name__}"
        )
    # A model may return the same memory again.
    scores = np.array(scores)
    # NumPy has no bfloat16 of its own.
    return scores if scores.dtype.kind in "biuf" else scores.astype("float32")


def _of_output(predicted: Any, output: str | None, names: list[str] | None) -> Any:
    """Returns the predictions of one output."""
    by_name = predicted
    if isinstance(predicted, list | tuple):
        are_named = names is not None and len(names) == len(predicted)
        by_name = dict(zip(names or [], predicted, strict=True)) if are_named else {}
    if not isinstance(by_name, Mapping):
        return predicted
    if output is None and len(predicted) == 1:
        (only,) = predicted.values() if isinstance(predicted, Mapping) else predicted
        return only
    if output in by_name:
        return by_name[output]
    known = f"are {sorted(map(str, by_name))}" if by_name else "are unknown"
    raise ValueError(
        "`output` should be the name of the output whose scores are evaluated. "
        f"Received: output={output!r}, where the names {known}"
    )


def of_rows(scores: Array, rows: int) -> Array:
    """Returns scores as one column. Raises unless there is one for each row."""
    if scores.shape[:1] != (rows,) or set(scores.shape[1:]) - {1}:
        raise ValueError(
            "The model should return one score for each row, of shape (rows,) or "
            f"(rows, 1), and each row should have one id in `group_ids`. {WHICH} "
            f"Received: predictions of shape {scores.shape} for {rows} ids"
        )
    return scores.reshape(-1)


class EpochEvaluation(Callback):
    """Adds results to the logs at the end of an epoch, under names of their own.

    A subclass implements `evaluated`.

    Args:
        metrics: the metrics. They are created once, so that ties are broken alike in
            all epochs.
        batch_size: positive int. The batch size of `predict`, or `None`.
        prefix: str. A prefix for the names of the results.
        frequency: positive int. The number of epochs from one evaluation to the next.
        verbose: 0, 1, 2 or `"auto"`.
    """

    def __init__(
        self,
        metrics: RankingMetrics,
        *,
        batch_size: int | None,
        prefix: str,
        frequency: int,
        verbose: Any,
    ) -> None:
        super().__init__()
        if not isinstance(prefix, str):
            raise unaccepted("prefix", "a string", prefix)
        if batch_size is not None:
            check_positive("batch_size", batch_size, "a positive integer or None")
        self.metrics, self.batch_size = metrics, batch_size
        self.prefix, self.verbose = prefix, check_verbose(verbose)
        self.frequency = check_positive("frequency", frequency)
        self._was_evaluated = False

    def evaluated(self) -> dict[str, float]:
        """Computes the results by the names of the metrics."""
        raise NotImplementedError

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Warns of callbacks that would miss the results."""
        _warn_of_readers_before(self)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the results to the logs."""
        logs = {} if logs is None else logs
        self._check_free(self.metrics._result_names(), logs)
        if (epoch + 1) % self.frequency:
            return
        with weights_of_validation(self):
            results = self.evaluated()
        self._was_evaluated = True
        self._check_free(results, logs)
        logs.update({self._key(name): x for name, x in results.items()})

    def _check_free(self, names: Iterable[str], logs: dict[str, Any]) -> None:
        """Raises if the logs already have a key of results."""
        taken = [x for x in map(self._key, names) if x in logs]
        if taken:
            raise ValueError(
                "`prefix` should give keys that are not in the logs yet. Compiled "
                'metrics of the same names have the prefix "val_" on validation data. '
                f"Received: prefix={self.prefix!r}, which gives {taken}"
            )

    def warn_of_lists(self, sums: State, sample_weight: Any) -> None:
        """Warns once of lists that count without relevant items, and weights below 0.

        Args:
            sums: the sums of all metrics.
            sample_weight: the weights as they were given.
        """
        if self._was_evaluated:
            return
        if sample_weight is not None:
            _warn_of_weights(sample_weight)
        for index, metric in enumerate(by_kind(self.metrics.members)[0]):
            totals = ops.convert_to_numpy(sums.one(index).totals)
            numbers = totals[:, LISTS].sum(axis=0).astype(int)
            empty = numbers[LISTS] - numbers[RELEVANT]
            # Any other value was chosen.
            if empty and metric.empty_value == 0.0:
                name = self._key(self.metrics.prefix + metric.name)
                warnings.warn(
                    f"{empty} of {numbers[LISTS]} lists have no relevant item, and "
                    f"count as {metric.empty_value} in {name!r}. To leave them out, "
                    "pass only lists that have one, or "
                    f"`{type(metric).__name__}(..., empty_value=None)`.",
                    stacklevel=2,
                )
                break

    def _key(self, name: str) -> str:
        return self.prefix + name


def check_model(argument: str, model: Any) -> Any:
    """Returns a model that predicts, or `None` for the trained one."""
    if model is None or hasattr(model, "predict"):
        return model
    raise unaccepted(argument, "a model with a method `predict`, or None", model)


def _warn_of_weights(sample_weight: Any) -> None:
    given = look("sample_weight", sample_weight).tensor()
    weights = ops.convert_to_numpy(given)
    places = np.argwhere(~(weights >= 0))
    if len(places):
        first = tuple(places[0])
        warnings.warn(
            f"`sample_weight` should be 0 or more. Received: {len(places)} of "
            f"{weights.size} weights that are negative or NaN, the first, "
            f"{weights[first]}, in row {first[0]}. They count as 0.",
            stacklevel=2,
        )


@contextlib.contextmanager
def weights_of_validation(callback: Callback) -> Iterator[None]:
    """A context at the end of an epoch, with the weights that validation sees.

    `SwapEMAWeights` has averaged weights in the model while compiled metrics are
    computed on validation data, and with `swap_on_epoch` also from its own turn at the
    end of an epoch on.
    """
    before, after = _callbacks_around(callback)
    averages = [x for x in (*before, *after) if isinstance(x, SwapEMAWeights)]
    with contextlib.ExitStack() as stack:
        for other in averages:
            if not (other.swap_on_epoch and other in before):
                other.on_test_begin()
                stack.callback(other.on_test_end)
            elif backend.frees_shared_memory():
                # After the last epoch, weights and averages are the same memory, which
                # `predict` would free. To swap them there and back copies it.
                other.on_test_end()
                other.on_test_begin()
        yield


def _warn_of_readers_before(callback: EpochEvaluation) -> None:
    """Warns of callbacks that read the logs before this one has added to them."""
    name = callback._key(callback.metrics._result_names()[0])
    before, _ = _callbacks_around(callback)
    for other in filter(_reads_logs, before):
        warnings.warn(
            f"`{type(other).__name__}` should be listed after "
            f"`{type(callback).__name__}`: it reads the logs before results such as "
            f"{name!r} are in them, so it misses these or raises a `KeyError`.",
            stacklevel=4,
        )


def _callbacks_around(
    callback: Callback,
) -> tuple[list[Callback], list[Callback]]:
    """The callbacks that are called before and after this one.

    Keras does not tell a callback of the others, but the list that calls it, or calls
    another callback that calls it, is one of its callers.
    """
    called = {id(callback)}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackList):
            callbacks = list(caller.callbacks)
            for place, other in enumerate(callbacks):
                if id(other) in called:
                    return callbacks[:place], callbacks[place + 1 :]
        called.add(id(caller))
        frame = frame.f_back
    return [], []


def _reads_logs(callback: Callback) -> bool:
    """Whether a callback does something at the end of an epoch, with the logs."""
    if isinstance(callback, _NO_READERS):
        return False
    does_nothing = Callback.on_epoch_end
    return getattr(callback.on_epoch_end, "__func__", None) is not does_nothing


# These do not use results at the end of an epoch.
_NO_READERS = (
    EpochEvaluation,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.LearningRateScheduler,
    SwapEMAWeights,
)


class ScoredEvaluation(EpochEvaluation):
    """Evaluates lists by the scores that a model predicts at the end of an epoch.

    Args:
        metrics: metrics of lists, as for `RankingMetrics`.
        model: the model that predicts, or `None`: the trained one.
        output: the name of the output that holds the scores, or `None`.
        **settings: as for `EpochEvaluation`.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        model: keras.Model | None,
        output: str | None,
        **settings: Any,
    ) -> None:
        group = as_group(metrics, as_written=False)
        self.members, of_exposure = by_kind(group.members)
        for member in of_exposure:
            raise ValueError(
                "`metrics` should be means over lists. Those of exposure go to "
                "`compile`, or to `keras_rank.callbacks.CatalogueEvaluation`. "
                f"Received: {member.name!r} ({type(member).__name__})"
            )
        super().__init__(group, **settings)
        self.scoring_model, self.output = check_model("model", model), output

    @property
    def _scoring(self) -> Any:
        return self.scoring_model or self.model

    def predicted(self, x: Any, batch_size: int | None) -> Array:
        """Returns the scores that the model predicts for inputs."""
        model = self._scoring
        predicted = model.predict(x, batch_size=batch_size, verbose=0)
        return scores_of(predicted, self.output, output_names(model))

    def results_of(
        self,
        lists: Iterable[tuple[int, Sequence[Any]]],
        labels: Array | None,
        sample_weight: Any,
    ) -> dict[str, float]:
        """Returns the results of all lists, and those of each segment.

        Args:
            lists: the number of a list, and labels, scores and weights from this one
                on: as many as are computed at a time.
            labels: the label of the segment of each list, if there are any.
            sample_weight: the weights as they were given.
        """
        sums = sums_of(self.metrics, labels)
        for first, given in lists:
            for indices, columns in columns_of(self.members, given, sums.whole):
                sums.add(indices, columns, first)
        self.warn_of_lists(sums.whole, sample_weight)
        return sums.results()
