"""Reasons to mistrust a number: what is odd about the lists, in words."""

import dataclasses
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Check:
    """What is looked for in all lists.

    Attributes:
        name: its name.
        lists: the number of lists that have it.
        share: these among all lists, or what else is held against the threshold.
        threshold: what the share may be.
        warning: what to say where it is not within the threshold.
        at_least: whether the share should be at least the threshold, not at most.
        spread: the worst, the average and the best value by the order of ties.
    """

    name: str
    lists: int
    share: float
    threshold: float
    warning: str
    at_least: bool = False
    spread: tuple[float, float, float] | None = None

    @property
    def is_passed(self) -> bool:
        """Whether there is nothing to warn of."""
        if self.at_least:
            return self.share >= self.threshold
        # Of no lists, the share is NaN, which is nothing to warn of.
        return not self.share > self.threshold


def share_of(has: Array, name: str, threshold: float, warning: str) -> Check:
    """A check of how many lists have something."""
    return Check(name, int(np.sum(has)), float(np.mean(has)), threshold, warning)


def checks_of(columns: dict[str, Array], first_metric: str) -> list[Check]:
    """The checks of lists, by what is known of each.

    Args:
        columns: arrays of shape `(lists,)` by what they hold. Those that are not
            known are missing.
        first_metric: the name of the metric that tells what is relevant.
    """
    items, retrieved = columns["items"], columns["retrieved"]
    checks = [
        share_of(
            ~columns["relevant"].astype(bool),
            "nothing relevant",
            0.1,
            f"have no relevant item, to {first_metric}: no order of theirs is better "
            "than another, so that they move the mean whatever the model does",
        ),
        share_of(
            items == 1,
            "one item",
            0.5,
            "have one item, where there is nothing to order: does `query` name the "
            "column of the lists, not that of the items?",
        ),
        share_of(
            retrieved == 0,
            "nothing retrieved",
            0.0,
            "have no item with a score, as of a query that the model was not asked: "
            "nothing is found in them, and that counts",
        ),
        share_of(
            columns["constant"].astype(bool),
            "constant scores",
            0.01,
            "have one score for all items: their order is chance",
        ),
        share_of(
            columns["nan"] > 0,
            "NaN scores",
            0.0,
            "have scores that are NaN: these items count as not retrieved",
        ),
    ]
    if "unjudged" in columns:
        checks.append(
            share_of(
                columns["unjudged"].astype(bool),
                "nothing judged",
                0.5,
                "have no item with a score that anybody judged: do the judgements and "
                "the run have the same ids of items?",
            )
        )
    if "duplicates" in columns:
        checks.append(
            share_of(
                columns["duplicates"] > 0,
                "duplicated items",
                0.0,
                "have an item more than once: each time it is found counts",
            )
        )
    if "weightless" in columns:
        checks.append(
            share_of(
                columns["weightless"] > 0,
                "items without weight",
                0.0,
                "have items with a weight of 0 or less: these are left out, as if "
                "they were not there",
            )
        )
    has_fractions = columns["fractional labels"] > 0
    if np.all(columns["fractional scores"] == 0):
        checks.append(
            share_of(
                has_fractions,
                "labels like scores",
                0.5,
                "have labels that are fractions, and no score is one: are `label` and "
                "`score` swapped?",
            )
        )
    return checks


def checks_of_cutoff(columns: dict[str, Array], k: int) -> list[Check]:
    """The checks of what is asked of the first k items."""
    judged = columns[f"judged@{k}"]
    share = float(np.mean(judged))
    return [
        share_of(
            columns["items"] < k,
            f"shorter than {k}",
            0.5,
            f"have fewer than {k} items, all of which are in their top {k}",
        ),
        share_of(
            columns[f"tied@{k}"].astype(bool),
            f"tied at {k}",
            0.05,
            f"have the same score at the ranks {k} and {k + 1}: what is in their top "
            f"{k} is up to the order of tied items",
        ),
        Check(
            f"judged@{k}",
            int(np.sum(judged < 1.0)),
            share,
            0.9,
            f"have items in their top {k} that nobody judged, "
            f"{1.0 - share:.0%} on average: they count as irrelevant, which they need "
            "not be",
            at_least=True,
        ),
    ]


def check_of_spread(
    metric: str, has_ties: Array, worst: float, average: float, best: float
) -> Check:
    """The check of what the order of tied items makes of a metric."""
    return Check(
        f"ties of {metric}",
        int(np.sum(has_ties)),
        abs(best - worst),
        0.01,
        f"have tied items: {metric} is {worst:.4f} with the worst order of these, "
        f"{best:.4f} with the best one, and {average:.4f} on average",
        spread=(worst, average, best),
    )
