"""A callback that evaluates a retrieval model over its whole catalogue in `fit`."""

import contextlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras.callbacks import Callback, CallbackList, SwapEMAWeights

from keras_rank.arguments import check_positive, names_arguments, unaccepted
from keras_rank.backends import Tensor, backend
from keras_rank.catalogue import evaluation
from keras_rank.catalogue.ranks import check_block_size, retrieval
from keras_rank.catalogue.scoring import check_score

__all__ = ["CatalogueEvaluation"]


class CatalogueEvaluation(Callback):
    """Evaluates a retrieval model over all candidates at the end of an epoch.

    The results are added to the logs of the epoch, under names such as
    `val_ndcg_at_10`, for the history and all callbacks that are listed after this one.
    Callbacks that are listed before it miss them, with a warning. Set `mode="max"` in
    callbacks that monitor a result, as Keras infers the direction of compiled metrics
    only.

    The weights are those that compiled metrics see on validation data: the averaged
    ones if there is a `keras.callbacks.SwapEMAWeights`, listed before or after.

    Args:
        x: the inputs of the query model, as for `predict`.
        targets: as for `keras_rank.catalogue.rank`: ids of shape `(batch, n)`.
        candidates: embeddings of all items, in any form that
            `keras_rank.catalogue.rank` takes. To encode them again at each evaluation,
            pass a function, such as `lambda: item_model.predict(items)`. An `Embedding`
            layer is also read again at each evaluation.
        metrics: list of ranking metrics: instances, or strings of a name and a
            cutoff, such as `"ndcg@10"`. Or a `RankingMetrics`.
        query_model: model that embeds queries. Defaults to `None`: the trained one.
        batch_size: positive int. The batch size of `predict`. Defaults to `None`: 32.
        prefix: str. A prefix for the names of the results. If compiled metrics have the
            same names, choose another one. Defaults to `"val_"`.
        frequency: positive int. The number of epochs from one evaluation to the next.
            The logs of other epochs have no results, so a `ModelCheckpoint` with one in
            its path raises a `KeyError` there. Defaults to 1.
        verbose: `0`: silent, `1` or `2`: with a progress bar, or `"auto"`: with a
            progress bar if it takes long. Defaults to 0.
        **arguments: as for `keras_rank.catalogue.rank`: sample_weight, exclude, score,
            block_size.

    Raises:
        ValueError: if an argument does not have the type stated above. Before the first
            epoch: if the embeddings of queries and candidates don't match, or an id is
            out of range. At the end of an epoch: if the logs already have a key of the
            results.

    Example:

    >>> callback = keras_rank.callbacks.CatalogueEvaluation(
    ...     x=[[0], [1]], targets=[3, 5], candidates=[[0.1]] * 9, metrics=["ndcg@10"]
    ... )
    >>> callback.prefix, callback.frequency
    ('val_', 1)

    In `fit`, list it before callbacks that monitor its results:

    ```python
    model.fit(pairs, callbacks=[
        CatalogueEvaluation(users, next_items, item_embedding, ["ndcg@10"]),
        keras.callbacks.EarlyStopping(monitor="val_ndcg_at_10", mode="max", patience=3),
    ])
    ```
    """

    @names_arguments
    def __init__(
        self,
        x: Any,
        targets: Any,
        candidates: Any,
        metrics: evaluation.Metrics,
        *,
        query_model: keras.Model | None = None,
        sample_weight: Any = None,
        exclude: Any = None,
        score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
        block_size: int | None = None,
        batch_size: int | None = None,
        prefix: str = "val_",
        frequency: int = 1,
        verbose: Any = 0,
    ) -> None:
        super().__init__()
        if not isinstance(prefix, str):
            raise unaccepted("prefix", "a string", prefix)
        if query_model is not None and not hasattr(query_model, "predict"):
            accepted = "a model with a method `predict`, or None"
            raise unaccepted("query_model", accepted, query_model)
        self.x, self.targets, self.candidates = x, targets, candidates
        # Created once, so that ties are broken alike in all epochs.
        self.metrics = evaluation.check_metrics(metrics, as_written=False)
        self.query_model = query_model
        check_score(score)
        self.sample_weight, self.exclude = sample_weight, exclude
        self.score, self.block_size = score, check_block_size(block_size)
        if batch_size is not None:
            check_positive("batch_size", batch_size, "a positive integer or None")
        self.batch_size = batch_size
        self.prefix, self.verbose = prefix, evaluation.check_verbose(verbose)
        self.frequency = check_positive("frequency", frequency)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that queries, targets and candidates match."""
        _warn_of_readers_before(self)
        inputs = keras.tree.flatten(self.x)
        if not all(hasattr(each, "shape") for each in inputs):
            return  # A data set, which can only be read in order.
        query = self._embedded(keras.tree.map_structure(lambda x: x[:1], self.x))
        repeated = np.repeat(query, int(inputs[0].shape[0]), axis=0)
        retrieval(**self._given(repeated), dtype="float32")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the results to the logs."""
        logs = {} if logs is None else logs
        taken = [x for x in map(self._key, self.metrics.result()) if x in logs]
        if taken:
            raise ValueError(
                "`prefix` should give keys that are not in the logs yet. Compiled "
                'metrics of the same names have the prefix "val_" on validation data. '
                f"Received: prefix={self.prefix!r}, which gives {taken}"
            )
        if (epoch + 1) % self.frequency:
            return
        with weights_of_validation(self):
            given = self._given(self._embedded(self.x))
            results = evaluation.evaluate(
                **given, metrics=self.metrics, verbose=self.verbose
            )
        logs.update({self._key(name): x for name, x in results.items()})

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _given(self, queries: Any) -> dict[str, Any]:
        """What is evaluated, by the names of arguments."""
        names = ("targets", "candidates", "sample_weight", "score", "exclude")
        given = {name: getattr(self, name) for name in (*names, "block_size")}
        return {"queries": queries, **given}

    def _embedded(self, x: Any) -> Any:
        model = self.query_model or self.model
        return model.predict(x, batch_size=self.batch_size, verbose=0)


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


def _warn_of_readers_before(callback: CatalogueEvaluation) -> None:
    """Warns of callbacks that read the logs before this one has added to them."""
    name = callback.prefix + next(iter(callback.metrics.result()))
    before, _ = _callbacks_around(callback)
    for other in filter(_reads_logs, before):
        warnings.warn(
            f"`{type(other).__name__}` should be listed after "
            f"`{type(callback).__name__}`: it reads the logs before results such as "
            f"{name!r} are in them, so it misses these or raises a `KeyError`.",
            stacklevel=3,
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
    CatalogueEvaluation,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.LearningRateScheduler,
    SwapEMAWeights,
)
