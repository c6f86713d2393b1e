"""What is computed of rows, and how."""

import dataclasses
from collections.abc import Sequence

from keras_rank.arguments import check_choice
from keras_rank.evaluation.lists.columns import require_free_names
from keras_rank.evaluation.reading.rows import Columns, Order
from keras_rank.metrics.base import RankingMetric
from keras_rank.ordering.preference import Ties

# What an argument may say, by its name. `ties`: which of tied items comes first, as the
# metric says or as in trec_eval. `unjudged`: what an item without a label is.
# `duplicates`: what to do with an item that a query has twice.
CHOICES = {
    "ties": ("metric", "trec_eval"),
    "unjudged": ("irrelevant", "drop"),
    "duplicates": ("error", "count"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is computed of rows, and how.

    Attributes:
        metrics: metrics of names that differ.
        columns: the names of the columns.
        ties: as for `evaluate`, like all that follow.
        unjudged: what an item without a label is.
        duplicates: what to do with an item that a query has twice.
        memory_limit: the memory to use.
    """

    metrics: Sequence[RankingMetric]
    columns: Columns
    ties: str
    unjudged: str
    duplicates: str = "error"
    memory_limit: str | None = None

    def __post_init__(self) -> None:
        for argument, choices in CHOICES.items():
            check_choice(argument, getattr(self, argument), choices)
        if self.ties == "trec_eval" and self.columns.item is None:
            raise ValueError(
                '`item` should name a column with `ties="trec_eval"`, which orders '
                "tied items by their ids. Received: item=None"
            )
        names = [metric.name for metric in self.metrics]
        columns = [self.columns.query, *self.columns.keep]
        require_free_names([*columns, *names], names)

    @property
    def order(self) -> Order:
        """How the rows of a list are ordered, by which tied items are told apart.

        By the items where these are known, so that a table has the same numbers in any
        order of its rows; but for a metric that says that the earlier one is first.
        """
        if self.ties == "trec_eval":
            return "trec_eval"
        are_stable = [metric.shuffle_ties is False for metric in self.metrics]
        return "row" if self.columns.item is None or any(are_stable) else "item"

    @property
    def order_of_ties(self) -> Ties | None:
        """How all metrics order ties, `None`: as each says.

        Those of trec_eval are in order when they come.
        """
        return "stable" if self.ties == "trec_eval" else None
