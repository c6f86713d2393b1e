"""A callback that evaluates a retrieval model over its whole catalogue in `fit`."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import check_positive, names_arguments
from keras_rank.arrays.backends import Tensor
from keras_rank.catalogue.evaluation import (
    Metrics,
    check_metrics,
    check_verbose,
    evaluate,
)
from keras_rank.catalogue.ranks import check_block_size, retrieval
from keras_rank.catalogue.scoring import check_score

__all__ = ["CatalogueEvaluation"]


class CatalogueEvaluation(keras.callbacks.Callback):
    """Evaluates a retrieval model over all candidates at the end of an epoch.

    The results are added to the logs of the epoch as `val_ndcg@10` and the like: the
    history and all callbacks that are listed after this one see them. Give these
    `mode="max"`, as Keras infers the direction of compiled metrics only.

    Args:
        x: the inputs of the query model, as for `predict`.
        targets: ids of the relevant items of each query, of shape `(batch,)` or
            `(batch, n)`, padded with -1.
        candidates: embeddings of all items, as for `keras_rank.catalogue.evaluate`. To
            encode them anew each time, give a function, such as
            `lambda: item_model.predict(items)`. An `Embedding` layer is read anew too.
        metrics: list of ranking metrics: instances, or strings of the name and the
            cutoff, such as `"ndcg@10"`. Or a `RankingMetrics`.
        query_model: the model that embeds queries. Defaults to `None`: the model that
            is trained.
        sample_weight: `None`, or weights of shape `(batch,)` or `(batch, 1)`.
        exclude: ids of shape `(batch, n)`, padded with -1: items that take no rank,
            such as those that were seen. A target of the same list is never excluded.
        score: `"dot"`, `"cosine"`, or a function of queries and candidates that
            returns scores of shape `(batch, candidates)`, each of its own pair alone.
            Defaults to `"dot"`.
        block_size: positive int. The number of candidates that are scored at a time.
            Defaults to `None`: 4,096.
        batch_size: positive int. The batch size of `predict`. Defaults to `None`: 32.
        prefix: str. Put before the names of the results. Defaults to `"val_"`: give
            another one where compiled metrics have the same names.
        frequency: positive int. The number of epochs from one evaluation to the next.
            Defaults to 1.
        verbose: `0`: silent, `1` or `2`: with a progress bar, or `"auto"`: with a
            progress bar where it takes long. Defaults to 0.

    Raises:
        ValueError: if an argument does not have the type stated above. Before the first
            epoch: if the embeddings of queries and candidates don't fit each other, or
            an id is not that of a candidate. At the end of an epoch: if the logs have
            a key of the results already.

    Example:

    >>> callback = keras_rank.callbacks.CatalogueEvaluation(
    ...     x=[[0], [1]], targets=[3, 5], candidates=[[0.1]] * 9, metrics=["ndcg@10"]
    ... )
    >>> callback.prefix, callback.frequency
    ('val_', 1)

    In `fit`, before the callbacks that monitor it:

    ```python
    model.fit(pairs, callbacks=[
        CatalogueEvaluation(users, next_items, item_embedding, ["ndcg@10"]),
        keras.callbacks.EarlyStopping(monitor="val_ndcg@10", mode="max", patience=3),
    ])
    ```
    """

    @names_arguments
    def __init__(
        self,
        x: Any,
        targets: Any,
        candidates: Any,
        metrics: Metrics,
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
            raise ValueError(
                f"`prefix` should be a string. Received: prefix={prefix!r}"
            )
        self.x, self.targets, self.candidates = x, targets, candidates
        # Made once, so that ties fall alike in all epochs.
        self.metrics = check_metrics(metrics)
        self.query_model = query_model
        self.sample_weight, self.exclude = sample_weight, exclude
        check_score(score)
        self.score, self.block_size = score, check_block_size(block_size)
        if batch_size is not None:
            check_positive("batch_size", batch_size, "a positive integer or None")
        self.batch_size = batch_size
        self.prefix, self.verbose = prefix, check_verbose(verbose)
        self.frequency = check_positive("frequency", frequency)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that queries, targets and candidates fit each other."""
        _warn_of_monitors_before(self)
        inputs = keras.tree.flatten(self.x)
        if not all(hasattr(each, "shape") for each in inputs):
            return  # A data set, which is read in order.
        query = self._embedded(keras.tree.map_structure(lambda x: x[:1], self.x))
        number = int(inputs[0].shape[0])
        retrieval(
            self.targets,
            np.repeat(query, number, axis=0),
            self.candidates,
            self.sample_weight,
            score=self.score,
            exclude=self.exclude,
            block_size=self.block_size,
            dtype="float32",
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the results to the logs."""
        logs = {} if logs is None else logs
        taken = [x for x in map(self._key, self.metrics.result()) if x in logs]
        if taken:
            raise ValueError(
                "`prefix` should make keys that the logs don't have, as compiled "
                'metrics of the same names on validation data have with "val_". '
                f"Received: prefix={self.prefix!r}, which makes {taken}"
            )
        if (epoch + 1) % self.frequency:
            return
        results = evaluate(
            self.targets,
            self._embedded(self.x),
            self.candidates,
            self.metrics,
            sample_weight=self.sample_weight,
            exclude=self.exclude,
            score=self.score,
            block_size=self.block_size,
            verbose=self.verbose,
        )
        logs.update({self._key(name): x for name, x in results.items()})

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _embedded(self, x: Any) -> Any:
        model = self.query_model or self.model
        return model.predict(x, batch_size=self.batch_size, verbose=0)


def _warn_of_monitors_before(callback: keras.callbacks.Callback) -> None:
    """Warns of callbacks that monitor something before this one has added to the logs.

    Keras tells a callback nothing of the others. Who calls it has the list.
    """
    frame = sys._getframe(2)
    callbacks = getattr(frame.f_locals.get("self"), "callbacks", [])
    if callback not in callbacks:
        return
    for other in callbacks[: callbacks.index(callback)]:
        if hasattr(other, "monitor"):
            warnings.warn(
                f"`{type(other).__name__}` should be listed after "
                f"`{type(callback).__name__}`, to see its results.",
                stacklevel=2,
            )
