"""Settings of the computation of lists from rows."""

import dataclasses
from collections.abc import Sequence
from typing import cast

from keras_rank.arguments import check_choice, check_positive
from keras_rank.evaluation.lists.result_columns import require_distinct_names
from keras_rank.metrics.base import RankingMetric
from keras_rank.ranking.base import TIE_BOUNDS, Ties
from keras_rank.reading.rows import Columns, Order

# The accepted values of arguments. `ties` is the rule for the order of tied items, by
# the metric or by a version of trec_eval. `unjudged` is the treatment of an item
# without a label, which gets the label 0 or is left out. `duplicates` is the treatment
# of duplicate items of a query.
CHOICES = {
    "ties": ("metric", "trec_eval", "trec_eval-9"),
    "unjudged": ("irrelevant", "drop"),
    "duplicates": ("error", "count"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the computation of lists from rows.

    Attributes:
        metrics: metrics with distinct names.
        columns: the names of the columns.
        ties: as for `evaluate`.
        unjudged: the treatment of items without a label.
        duplicates: the treatment of duplicate items of a query.
        memory_limit: the memory to use.
        should_truncate: whether labels are truncated to integers, as in trec_eval.
        keep_items: the number of items of each list to keep, `None` for none.
    """

    metrics: Sequence[RankingMetric]
    columns: Columns
    ties: str
    unjudged: str
    duplicates: str = "error"
    memory_limit: str | None = None
    should_truncate: bool = False
    keep_items: int | None = None

    def __post_init__(self) -> None:
        for argument, choices in CHOICES.items():
            check_choice(argument, getattr(self, argument), choices)
        subtopic_metrics = [x.name for x in self.metrics if x.takes_subtopics]
        if subtopic_metrics and self.columns.subtopic is None:
            raise ValueError(
                "`metrics` should read one label for each item, as a table has no "
                "subtopics; `evaluate_run` takes subtopics. Received: "
                f"{', '.join(subtopic_metrics)}"
            )
        for metric in self.metrics:
            if getattr(metric, "subtopic_weights", None) is not None:
                raise ValueError(
                    "`metrics` should have `subtopic_weights=None`, as each query has "
                    f"subtopics of its own. Received: {metric.name!r} with weights"
                )
        bounds = [x.name for x in self.metrics if x.shuffle_ties in TIE_BOUNDS]
        if bounds and self.ties != "metric":
            raise ValueError(
                '`ties` should be "metric" if a metric has `shuffle_ties="worst"` or '
                f'`shuffle_ties="best"`, as ties="{self.ties}" leaves no ties. '
                f"Received: {', '.join(bounds)}"
            )
        if self.ties != "metric" and self.columns.item is None:
            raise ValueError(
                f'`item` should name a column with `ties="{self.ties}"`, which orders '
                "tied items by their ids. Received: item=None"
            )
        if self.keep_items is not None:
            check_positive("keep_items", self.keep_items)
            if self.columns.item is None:
                raise ValueError(
                    "`item` should name the column of the items with `keep_items`. "
                    f"Received: item=None, keep_items={self.keep_items}"
                )
        names = [metric.name for metric in self.metrics]
        columns = [self.columns.query, *self.columns.keep]
        require_distinct_names([*columns, *names], names)

    @property
    def order(self) -> Order:
        """The order of the rows of a list, which determines the order of tied items.

        Rows are ordered by item if the items are known, so that results don't depend on
        the order of the rows. The order is kept for metrics with `shuffle_ties=False`,
        which put the earlier item first.
        """
        if self.ties != "metric":
            return cast(Order, self.ties)
        is_stable = [metric.shuffle_ties is False for metric in self.metrics]
        return "row" if self.columns.item is None or any(is_stable) else "item"

    @property
    def tie_order(self) -> Ties | None:
        """The order of ties of all metrics, `None` for the order of each metric.

        The rows are in the order of trec_eval already if `ties` names it.
        """
        return None if self.ties == "metric" else "stable"
