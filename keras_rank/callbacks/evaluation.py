"""What all callbacks share that evaluate a model at the end of an epoch."""

import contextlib
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.callbacks import Callback, CallbackList, SwapEMAWeights

from keras_rank.arguments import check_positive, unaccepted
from keras_rank.backends import backend
from keras_rank.catalogue.evaluation import check_verbose
from keras_rank.lists.given import look
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.group import by_kind
from keras_rank.metrics.variables import State
from keras_rank.state import LISTS, RELEVANT


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
