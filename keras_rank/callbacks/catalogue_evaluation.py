"""A callback that evaluates a retrieval model over its whole catalogue in `fit`."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_rank.backends import Array, Tensor
from keras_rank.callbacks.base import EpochEvaluation, check_model, labels_for, sums_of
from keras_rank.catalogue import catalogue_metrics
from keras_rank.catalogue.blocks import check_score
from keras_rank.catalogue.candidates import check_no_model
from keras_rank.catalogue.target_ranks import check_block_size, retrieval
from keras_rank.lists.input_arrays import own
from keras_rank.lists.standardize import read_targets


class CatalogueEvaluation(EpochEvaluation):
    """Evaluates a retrieval model over all candidates at the end of an epoch.

    The results are added to the logs of the epoch, under names such as
    `val_ndcg_at_10`, for the history and all callbacks that are listed after this one.
    Callbacks that are listed before it miss them, and a warning says so. Set
    `mode="max"` in callbacks that monitor a result, as Keras infers the direction of
    compiled metrics only.

    The weights are those that compiled metrics see on validation data: the averaged
    ones if there is a `keras.callbacks.SwapEMAWeights`, listed before or after.

    Args:
        x: the inputs of the query model, as for `predict`. They are read again at each
            evaluation, unlike targets, weights and what is excluded, which are copied.
        targets: as for `keras_rank.catalogue.rank`: ids of shape `(batch, n)`.
        candidates: a function that embeds all items at each evaluation, such as
            `lambda: item_model.predict(items)`, or an `Embedding` layer. An array, or
            any other form that `keras_rank.catalogue.rank` takes, is right for items
            that are not trained: it holds the embeddings of when it was made. A warning
            says so after the first evaluation where the model trains other weights.
        metrics: list of ranking metrics: instances, or strings such as `"ndcg@10"` and
            `"rbp(persistence=0.9)@10"`. Or a single one, or a `RankingMetrics`.
        query_model: model that embeds queries. Defaults to `None`: the trained one.
        by: list or array of a label for each row of `targets`: strings, numbers or
            booleans, of one type. The results of the lists of each of at most 50 labels
            follow those of all, with the label at the end of their names, in which all
            but ASCII letters, digits and underscores become underscores. Defaults to
            `None`: no segments.
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
        ValueError: if an argument does not have the type stated above, a label is
            missing, or two labels have the same name. Before the first epoch: if the
            embeddings of queries and candidates don't match, or an id is out of range.
            At the end of an epoch: if the logs already have a key of the results.

    Example:

    >>> callback = keras_rank.callbacks.CatalogueEvaluation(
    ...     x=[[0], [1]], targets=[3, 5], candidates=[[0.1]] * 9, metrics=["ndcg@10"]
    ... )
    >>> callback.prefix, callback.frequency
    ('val_', 1)

    Results of segments, here of a model that has embeddings as its inputs:

    >>> class Embedded:
    ...     def predict(self, x, **settings):
    ...         return x
    >>> callback = keras_rank.callbacks.CatalogueEvaluation(
    ...     x=[[1.0, 0.0], [0.0, 1.0], [0.9, 0.2]], targets=[0, 1, 0],
    ...     candidates=[[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]], metrics=["mrr"],
    ...     by=["new users", "others", "others"], query_model=Embedded(),
    ... )
    >>> logs = {}
    >>> callback.on_epoch_end(0, logs)
    >>> {name: f"{value:.3f}" for name, value in logs.items()}
    {'val_mrr': '0.833', 'val_mrr_new_users': '1.000', 'val_mrr_others': '0.750'}

    In `fit`, list it before callbacks that monitor its results:

    ```python
    model.fit(pairs, callbacks=[
        CatalogueEvaluation(users, next_items, item_embedding, ["ndcg@10"]),
        keras.callbacks.EarlyStopping(monitor="val_ndcg_at_10", mode="max", patience=3),
    ])
    ```
    """

    def __init__(
        self,
        x: Any,
        targets: Any,
        candidates: Any,
        metrics: catalogue_metrics.Metrics,
        *,
        query_model: keras.Model | None = None,
        sample_weight: Any = None,
        exclude: Any = None,
        by: Any = None,
        score: str | Callable[[Tensor, Tensor], Tensor] = "dot",
        block_size: int | None = None,
        batch_size: int | None = None,
        prefix: str = "val_",
        frequency: int = 1,
        verbose: Any = 0,
    ) -> None:
        super().__init__(
            # A string has the default name as its result, which goes into the logs.
            catalogue_metrics.check_metrics(metrics, as_written=False),
            batch_size=batch_size,
            prefix=prefix,
            frequency=frequency,
            verbose=verbose,
        )
        self.query_model = check_model("query_model", query_model)
        check_score(score)
        check_no_model(candidates)
        self.x, self.candidates = x, candidates
        given = targets, sample_weight, exclude
        self.targets, self.sample_weight, self.exclude = map(own, given)
        self.score, self.block_size = score, check_block_size(block_size)
        # What they hold is checked at once.
        lists = len(read_targets("targets", self.targets))
        self._labels = labels_for(lists, by, "row of `targets`")
        sums_of(self.metrics, self._labels)
        # The first rows of an array, which tell whether it has changed.
        self._before: Array | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that queries, targets and candidates match."""
        super().on_train_begin(logs)
        if isinstance(self.candidates, np.ndarray) and self.candidates.ndim == 2:
            self._before = self.candidates[:16].copy()
        inputs = keras.tree.flatten(self.x)
        if not all(hasattr(each, "shape") for each in inputs):
            return  # A data set, which can only be read in order.
        query = self._embedded(keras.tree.map_structure(lambda x: x[:1], self.x))
        repeated = np.repeat(query, int(inputs[0].shape[0]), axis=0)
        retrieval(*(*self._given(repeated), "float32"))

    def evaluated(self) -> dict[str, float]:
        """Embeds the queries, and computes the metrics of their targets."""
        given = self._given(self._embedded(self.x))
        sums, warns = sums_of(self.metrics, self._labels), not self._was_evaluated
        catalogue_metrics.add_lists(sums, self.metrics, given, self.verbose, warns)
        self.warn_of_lists(sums.whole, self.sample_weight)
        if warns:
            self._warn_of_stale_candidates()
        return sums.results()

    def _given(self, queries: Any) -> tuple[Any, ...]:
        """What is evaluated, in the order of `retrieval`."""
        names = ("candidates", "sample_weight", "score", "exclude", "block_size")
        return self.targets, queries, *(getattr(self, name) for name in names)

    def _warn_of_stale_candidates(self) -> None:
        """Warns of an array that stays as it is while the model trains embeddings."""
        if self._before is None or np.any(self._before != self.candidates[:16]):
            return
        weights = getattr(self.model, "trainable_variables", [])
        known = {*map(id, getattr(self.query_model, "trainable_variables", weights))}
        for trained in weights:
            is_other = id(trained) not in known and len(trained.shape) > 1
            if is_other or trained.shape == self.candidates.shape:
                warnings.warn(
                    "`candidates` should be a function where the model trains what "
                    "embeds them, such as `lambda: item_model.predict(items)`. "
                    "Received: an array that has not changed while the model trained "
                    f"{trained.path!r}. If that is right, pass `lambda: candidates`.",
                    stacklevel=2,
                )
                break

    def _embedded(self, x: Any) -> Any:
        model = self.query_model or self.model
        return model.predict(x, batch_size=self.batch_size, verbose=0)
