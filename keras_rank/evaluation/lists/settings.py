"""What is computed of rows, and how."""

import dataclasses
from collections.abc import Sequence
from typing import cast

from keras_rank.arguments import check_choice, check_positive
from keras_rank.evaluation.lists.result_columns import require_free_names
from keras_rank.metrics.base import RankingMetric
from keras_rank.ranking.base import Ties
from keras_rank.reading.rows import Columns, Order

# The accepted values of arguments. `ties`: which of tied items comes first, as the
# metric says, as in trec_eval 10, or as in trec_eval 9. `unjudged`: whether an item
# without a label has the label 0, or is none. `duplicates`: how duplicate items of a
# query are treated.
CHOICES = {
    "ties": ("metric", "trec_eval", "trec_eval-9"),
    "unjudged": ("irrelevant", "drop"),
    "duplicates": ("error", "count"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is computed of rows, and how.

    Attributes:
        metrics: metrics with distinct names.
        columns: the names of the columns.
        ties: as for `evaluate`.
        unjudged: what an item without a label is.
        duplicates: how duplicate items of a query are treated.
        memory_limit: the memory to use.
        truncates: whether labels are read as integers, as trec_eval reads them.
        keep_items: the number of items of each list to keep, `None` for none.
    """

    metrics: Sequence[RankingMetric]
    columns: Columns
    ties: str
    unjudged: str
    duplicates: str = "error"
    memory_limit: str | None = None
    truncates: bool = False
    keep_items: int | None = None

    def __post_init__(self) -> None:
        for argument, choices in CHOICES.items():
            check_choice(argument, getattr(self, argument), choices)
        of_subtopics = [x.name for x in self.metrics if x.takes_subtopics]
        if of_subtopics and self.columns.subtopic is None:
            raise ValueError(
                "`metrics` should read one label for each item, as a table has no "
                "subtopics; `evaluate_run` takes judgments of these. Received: "
                f"{', '.join(of_subtopics)}"
            )
        for metric in self.metrics:
            if getattr(metric, "subtopic_weights", None) is not None:
                raise ValueError(
                    "`metrics` should have `subtopic_weights=None`, as each query has "
                    f"subtopics of its own. Received: {metric.name!r} with weights"
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
        require_free_names([*columns, *names], names)

    @property
    def order(self) -> Order:
        """How the rows of a list are ordered, which decides between tied items.

        By item if these are known, so that the numbers don't depend on the order of the
        rows, except for a metric that puts the earlier item first.
        """
        if self.ties != "metric":
            return cast(Order, self.ties)
        are_stable = [metric.shuffle_ties is False for metric in self.metrics]
        return "row" if self.columns.item is None or any(are_stable) else "item"

    @property
    def order_of_ties(self) -> Ties | None:
        """How all metrics order ties. `None`: as each says.

        For trec_eval, the rows are in the order of its ties already.
        """
        return None if self.ties == "metric" else "stable"
