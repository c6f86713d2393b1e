"""What the callbacks share that evaluate lists by the scores that a model predicts."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_rank.backends import Array
from keras_rank.callbacks.evaluation import EpochEvaluation, check_model
from keras_rank.callbacks.outputs import output_names, scores_of
from keras_rank.callbacks.segments import sums_of
from keras_rank.catalogue.evaluation import Metrics
from keras_rank.metrics.group import as_group, by_kind
from keras_rank.metrics.update import columns_of


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
