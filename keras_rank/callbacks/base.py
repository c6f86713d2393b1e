"""Base classes of callbacks that evaluate a model at the end of an epoch."""

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

from keras_rank.arguments import argument_error, check_positive
from keras_rank.backends import Array, backend
from keras_rank.catalogue.catalogue_metrics import Metrics, check_verbose
from keras_rank.lists.groups import convert_ids, convert_labels
from keras_rank.lists.input_arrays import read_array
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.group import SegmentedSums, as_group, split_by_type
from keras_rank.metrics.update import compute_columns
from keras_rank.metrics.variables import State
from keras_rank.state import LISTS, RELEVANT

# The name of the argument for segments.
BY = "by"
# The largest number of segments. The limit rejects ids of users, for example.
_MAX_SEGMENTS = 50
# The largest number of characters of a segment's name. MLflow accepts names of 250
# characters, which include the name of the metric.
_MAX_NAME_LENGTH = 200
_ACCENTS = re.compile("[\u0300-\u036f]")
_NON_IDENTIFIER = re.compile("[^0-9A-Za-z_]")


def read_segment_labels(lists: int, by: Any, noun: str) -> Array | None:
    """Returns the segment label of each list, or `None` if there are no segments.

    Args:
        lists: the number of lists.
        by: the argument of the user, or `None`.
        noun: a name for a list, for error messages.

    Raises:
        ValueError: if the number of labels differs from the number of lists.
    """
    labels = None if by is None else convert_labels(BY, by)
    if labels is not None and len(labels) != lists:
        raise ValueError(
            f"`{BY}` should have one label for each {noun}. Received: {len(labels)} "
            f"labels for {lists} {noun.split()[0]}s"
        )
    return labels


def create_sums(metrics: RankingMetrics, labels: Array | None) -> SegmentedSums:
    """Returns the empty sums of metrics, and checks the names of segments.

    Args:
        metrics: the metrics.
        labels: the segment label of each list, or `None` if there are no segments.
    """
    if labels is None:
        return SegmentedSums(metrics)
    known: dict[Any, int] = {}
    segment_of = convert_ids(labels, known, BY)
    if len(known) > _MAX_SEGMENTS:
        raise ValueError(
            f"`{BY}` should be labels of at most {_MAX_SEGMENTS} segments. Received: "
            f"{len(known)} different labels"
        )
    return SegmentedSums(metrics, {x: _format_label(x) for x in known}, segment_of)


def _format_label(label: Any) -> str:
    """Returns an identifier for a segment label.

    Experiment trackers accept no other names.
    """
    text = label.decode(errors="replace") if isinstance(label, bytes) else label
    if isinstance(text, float | np.floating) and text.is_integer():
        text = int(text)
    if isinstance(text, str | numbers.Real | np.bool_):
        plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", str(text)))
        name = _NON_IDENTIFIER.sub("_", plain)
        if name.strip("_") and len(name) <= _MAX_NAME_LENGTH:
            return name
    accepted = "strings with ASCII letters or digits, numbers or booleans, of at most "
    raise argument_error(BY, f"{accepted}{_MAX_NAME_LENGTH} characters", label)


# Advice for errors about predictions that are not a single array of scores.
OUTPUT_ADVICE = (
    "For one of several outputs, pass its name as `output`; for one of several "
    "columns, pass a `model` that returns it."
)


def output_names(model: Any) -> list[str] | None:
    """Returns the ordered names of the outputs of a model, or `None` if unknown."""
    names = getattr(model, "output_names", None)
    return None if names is None else list(names)


def select_scores(predicted: Any, output: str | None, names: list[str] | None) -> Array:
    """Returns a copy of the scores in the result of `predict`.

    Args:
        predicted: an array, or a dict, list or tuple with an array for each output.
        output: the name of the output that holds the scores, or `None` if there is only
            one output.
        names: the ordered names of the outputs, or `None` if unknown.
    """
    if output is not None and not isinstance(predicted, Mapping | list | tuple):
        predicted = [predicted]
    scores = _select_output(predicted, output, names)
    if not hasattr(scores, "shape"):
        raise ValueError(
            "`output` should be the name of an output that is one array. Received: "
            f"output={output!r}, which is of type {type(scores).__name__}"
        )
    # The array is copied, as a model may write its next predictions to the same memory.
    scores = np.array(scores)
    # NumPy does not support bfloat16.
    return scores if scores.dtype.kind in "biuf" else scores.astype("float32")


def _select_output(predicted: Any, output: str | None, names: list[str] | None) -> Any:
    """Returns the predictions of one output."""
    by_name = predicted
    if isinstance(predicted, list | tuple):
        has_names = names is not None and len(names) == len(predicted)
        by_name = dict(zip(names or [], predicted, strict=True)) if has_names else {}
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


def flatten_row_scores(scores: Array, rows: int) -> Array:
    """Returns scores of shape `(rows,)`, and raises unless each row has one score."""
    if scores.shape[:1] != (rows,) or set(scores.shape[1:]) - {1}:
        raise ValueError(
            "The model should return one score for each row, of shape (rows,) or "
            "(rows, 1), and each row should have one id in `group_ids`. "
            f"{OUTPUT_ADVICE} Received: predictions of shape {scores.shape} for {rows} "
            "ids"
        )
    return scores.reshape(-1)


class EpochEvaluation(Callback):
    """Base class of callbacks that add results to the logs at the end of an epoch.

    A subclass implements `evaluated`.

    Args:
        metrics: the metrics. They are created once, so that ties are broken in the same
            order in all epochs.
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
            raise argument_error("prefix", "a string", prefix)
        if batch_size is not None:
            check_positive("batch_size", batch_size, "a positive integer or None")
        self.metrics, self.batch_size = metrics, batch_size
        self.prefix, self.verbose = prefix, check_verbose(verbose)
        self.frequency = check_positive("frequency", frequency)
        self._was_evaluated = False

    def evaluated(self) -> dict[str, float]:
        """Returns the results by name. The names are those of metrics and segments."""
        raise NotImplementedError

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Warns about callbacks that would miss the results."""
        _warn_about_earlier_readers(self)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the results to the logs."""
        logs = {} if logs is None else logs
        self._check_free(self.metrics._result_names(), logs)
        if (epoch + 1) % self.frequency:
            return
        with use_validation_weights(self):
            results = self.evaluated()
        self._was_evaluated = True
        self._check_free(results, logs)
        logs.update({self._key(name): x for name, x in results.items()})

    def _check_free(self, names: Iterable[str], logs: dict[str, Any]) -> None:
        """Raises `ValueError` if the logs already contain a key of the results."""
        taken = [x for x in map(self._key, names) if x in logs]
        if taken:
            raise ValueError(
                "`prefix` should give keys that are not in the logs yet. Compiled "
                'metrics of the same names have the prefix "val_" on validation data. '
                f"Received: prefix={self.prefix!r}, which gives {taken}"
            )

    def warn_about_lists(self, sums: State, sample_weight: Any) -> None:
        """Warns about lists without relevant items, and about negative weights.

        It warns only in the first evaluation, and only about lists that metrics count
        as 0 by default.

        Args:
            sums: the sums of all metrics.
            sample_weight: the weights that the user passed.
        """
        if self._was_evaluated:
            return
        if sample_weight is not None:
            _warn_about_weights(sample_weight)
        for index, metric in enumerate(split_by_type(self.metrics.members)[0]):
            totals = ops.convert_to_numpy(sums.get(index).totals)
            numbers = totals[:, LISTS].sum(axis=0).astype(int)
            empty = numbers[LISTS] - numbers[RELEVANT]
            # A value other than the default 0 was chosen by the user.
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
    """Returns the model, or `None` for the trained model.

    Raises:
        ValueError: if the model has no method `predict`.
    """
    if model is None or hasattr(model, "predict"):
        return model
    raise argument_error(argument, "a model with a method `predict`, or None", model)


def _warn_about_weights(sample_weight: Any) -> None:
    """Warns if weights are negative or NaN."""
    tensor = read_array("sample_weight", sample_weight).tensor()
    weights = ops.convert_to_numpy(tensor)
    invalid = np.argwhere(~(weights >= 0))
    if len(invalid):
        first = tuple(invalid[0])
        warnings.warn(
            f"`sample_weight` should be 0 or more. Received: {len(invalid)} of "
            f"{weights.size} weights that are negative or NaN, the first, "
            f"{weights[first]}, in row {first[0]}. They count as 0.",
            stacklevel=2,
        )


@contextlib.contextmanager
def use_validation_weights(callback: Callback) -> Iterator[None]:
    """Returns a context in which the model has the weights of validation.

    It is entered at the end of an epoch. `SwapEMAWeights` puts averaged weights into
    the model while compiled metrics are computed on validation data. With
    `swap_on_epoch`, it does so also at the end of an epoch, when it is called itself.
    """
    before, after = _callbacks_around(callback)
    swaps = [x for x in (*before, *after) if isinstance(x, SwapEMAWeights)]
    with contextlib.ExitStack() as stack:
        for swap in swaps:
            if not (swap.swap_on_epoch and swap in before):
                swap.on_test_begin()
                stack.callback(swap.on_test_end)
            elif backend.has_buffer_donation():
                # After the last epoch, weights and averages share memory, which
                # `predict` would free. Swapping them twice copies the memory.
                swap.on_test_end()
                swap.on_test_begin()
        yield


def _warn_about_earlier_readers(callback: EpochEvaluation) -> None:
    """Warns about callbacks that read the logs before this callback adds results."""
    name = callback._key(callback.metrics._result_names()[0])
    before, _ = _callbacks_around(callback)
    for reader in filter(_reads_logs, before):
        warnings.warn(
            f"`{type(reader).__name__}` should be listed after "
            f"`{type(callback).__name__}`: it reads the logs before results such as "
            f"{name!r} are in them, so it misses these or raises a `KeyError`.",
            stacklevel=4,
        )


def _callbacks_around(
    callback: Callback,
) -> tuple[list[Callback], list[Callback]]:
    """Returns the callbacks that are called before and after a callback.

    Keras gives a callback no access to the other callbacks. The stack frames are
    searched for the list of callbacks that calls it, directly or through another
    callback.
    """
    called = {id(callback)}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackList):
            callbacks = list(caller.callbacks)
            for index, other in enumerate(callbacks):
                if id(other) in called:
                    return callbacks[:index], callbacks[index + 1 :]
        called.add(id(caller))
        frame = frame.f_back
    return [], []


def _reads_logs(callback: Callback) -> bool:
    """Returns whether a callback may read the logs at the end of an epoch."""
    if isinstance(callback, _NON_READERS):
        return False
    base_method = Callback.on_epoch_end
    return getattr(callback.on_epoch_end, "__func__", None) is not base_method


# Callbacks that do not use results at the end of an epoch.
_NON_READERS = (
    EpochEvaluation,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.LearningRateScheduler,
    SwapEMAWeights,
)


class ScoredEvaluation(EpochEvaluation):
    """Base class of callbacks that evaluate lists by the scores of a model.

    Args:
        metrics: metrics of lists, as for `RankingMetrics`.
        model: the model that predicts, or `None` for the trained model.
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
        self.members, exposure_metrics = split_by_type(group.members)
        for member in exposure_metrics:
            raise ValueError(
                "`metrics` should be means over lists. Pass exposure metrics to "
                "`compile`, or to `keras_rank.callbacks.CatalogueEvaluation`. "
                f"Received: {member.name!r} ({type(member).__name__})"
            )
        super().__init__(group, **settings)
        self.scoring_model, self.output = check_model("model", model), output

    @property
    def _predicting_model(self) -> Any:
        return self.scoring_model or self.model

    def predict_scores(self, x: Any, batch_size: int | None) -> Array:
        """Returns the scores that the model predicts for the inputs."""
        model = self._predicting_model
        predicted = model.predict(x, batch_size=batch_size, verbose=0)
        return select_scores(predicted, self.output, output_names(model))

    def compute_results(
        self,
        lists: Iterable[tuple[int, Sequence[Any]]],
        labels: Array | None,
        sample_weight: Any,
    ) -> dict[str, float]:
        """Returns the results of all lists, and the results of each segment.

        Args:
            lists: pairs, one for each batch: the index of the first list, and the
                labels, scores and weights of the lists.
            labels: the segment label of each list, or `None`.
            sample_weight: the weights that the user passed.
        """
        sums = create_sums(self.metrics, labels)
        for first, inputs in lists:
            for indices, columns in compute_columns(
                self.members, inputs, sums.overall_state
            ):
                sums.add(indices, columns, first)
        self.warn_about_lists(sums.overall_state, sample_weight)
        return sums.results()
