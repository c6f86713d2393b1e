"""A callback that evaluates a retrieval model over its whole catalog in `fit`."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_rank.backends import Array, Tensor
from keras_rank.callbacks.base import (
    EpochEvaluation,
    check_model,
    create_sums,
    read_segment_labels,
)
from keras_rank.catalogue import catalogue_metrics
from keras_rank.catalogue.blocks import check_score
from keras_rank.catalogue.candidates import check_no_model
from keras_rank.catalogue.target_ranks import check_block_size, prepare_retrieval
from keras_rank.lists.input_arrays import copy_arrays
from keras_rank.lists.standardize import read_targets


class CatalogueEvaluation(EpochEvaluation):
    """Evaluates a retrieval model over all candidates at the end of an epoch.

    The results are added to the logs of the epoch, under names such as
    `val_ndcg_at_10`. The history and the callbacks that are listed after this callback
    receive them. Callbacks that are listed before it do not, and a warning names them.
    Set `mode="max"` in callbacks that monitor a result, as Keras infers the direction
    only for compiled metrics.

    The model has the weights that it has on validation data: the averaged weights if
    there is a `keras.callbacks.SwapEMAWeights`, listed before or after this callback.

    Args:
        x: the inputs of the query model, as for `predict`. They are read again at each
            evaluation. `targets`, `sample_weight` and `exclude` are copied instead.
        targets: as for `keras_rank.catalogue.rank`: ids of shape `(batch, n)`.
        candidates: a function that embeds all items at each evaluation, such as
            `lambda: item_model.predict(items)`, or an `Embedding` layer. An array, or
            any other form that `keras_rank.catalogue.rank` takes, is suitable for items
            that are not trained, as its embeddings do not change. A warning is shown
            after the first evaluation if the model seems to train the embeddings.
        metrics: list of ranking metrics: instances, or strings such as `"ndcg@10"` and
            `"rbp(persistence=0.9)@10"`. Or a single metric, or a `RankingMetrics`.
        query_model: model that embeds queries. Defaults to `None`: the trained model.
        by: list or array with a segment label for each row of `targets`: strings,
            numbers or booleans, of one type, with at most 50 different values. The
            results of each segment follow those of all lists. Their names end with the
            label, in which all characters except ASCII letters, digits and underscores
            are replaced by underscores. Defaults to `None`: no segments.
        batch_size: positive int. The batch size of `predict`. Defaults to `None`: 32.
        prefix: str. A prefix for the names of the results. If compiled metrics have the
            same names, choose another prefix. Defaults to `"val_"`.
        frequency: positive int. The number of epochs from one evaluation to the next.
            The logs of other epochs have no results, so a `ModelCheckpoint` whose path
            contains a result then raises a `KeyError`. Defaults to 1.
        verbose: `0`: silent, `1` or `2`: with a progress bar, or `"auto"`: with a
            progress bar if the evaluation takes long. Defaults to 0.
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

    An example of segments, with a model whose inputs are embeddings:

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

    In `fit`, list the callback before callbacks that monitor its results:

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
            # The logs contain default names, even for metrics given as strings.
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
        arrays = targets, sample_weight, exclude
        self.targets, self.sample_weight, self.exclude = map(copy_arrays, arrays)
        self.score, self.block_size = score, check_block_size(block_size)
        # Reading the targets checks them before the model is trained.
        lists = len(read_targets("targets", self.targets))
        self._labels = read_segment_labels(lists, by, "row of `targets`")
        create_sums(self.metrics, self._labels)
        # The first rows of `candidates`, to detect whether an array has changed.
        self._first_rows: Array | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Checks that queries, targets and candidates match."""
        super().on_train_begin(logs)
        if isinstance(self.candidates, np.ndarray) and self.candidates.ndim == 2:
            self._first_rows = self.candidates[:16].copy()
        inputs = keras.tree.flatten(self.x)
        if not all(hasattr(x, "shape") for x in inputs):
            return  # The rows of a data set can only be read in order.
        query = self._embed(keras.tree.map_structure(lambda x: x[:1], self.x))
        repeated = np.repeat(query, int(inputs[0].shape[0]), axis=0)
        prepare_retrieval(*(*self._retrieval_arguments(repeated), "float32"))

    def evaluated(self) -> dict[str, float]:
        """Embeds the queries, and returns the metrics of their targets."""
        arguments = self._retrieval_arguments(self._embed(self.x))
        sums, warns = create_sums(self.metrics, self._labels), not self._was_evaluated
        catalogue_metrics.add_lists(sums, self.metrics, arguments, self.verbose, warns)
        self.warn_about_lists(sums.overall_state, self.sample_weight)
        if warns:
            self._warn_about_stale_candidates()
        return sums.results()

    def _retrieval_arguments(self, queries: Any) -> tuple[Any, ...]:
        """Returns the positional arguments of `retrieval`, except for the dtype."""
        names = ("candidates", "sample_weight", "score", "exclude", "block_size")
        return self.targets, queries, *(getattr(self, name) for name in names)

    def _warn_about_stale_candidates(self) -> None:
        """Warns if `candidates` is constant while the model trains embeddings."""
        if self._first_rows is None or np.any(self._first_rows != self.candidates[:16]):
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

    def _embed(self, x: Any) -> Any:
        model = self.query_model or self.model
        return model.predict(x, batch_size=self.batch_size, verbose=0)
