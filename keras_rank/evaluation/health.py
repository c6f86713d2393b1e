"""Reasons to mistrust a number: what is unusual about the lists, in words."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_rank.evaluation.statistics import Array
from keras_rank.evaluation.table import Table
from keras_rank.evaluation.values import ORDERS, SPREAD, ListValues


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


def _share_of(has: Array, name: str, threshold: float, warning: str) -> Check:
    """A check of how many lists have something."""
    return Check(name, int(np.sum(has)), float(np.mean(has)), threshold, warning)


# With fewer judgements than this in most lists, most items have none, however good.
_FEW_JUDGEMENTS = 10
# Where it is so, only this share of lists without any tells of ids that differ.
_NEARLY_ALL = 0.98


class Sought(NamedTuple):
    """What is looked for in a column that has a number for each list.

    Attributes:
        name: the name of the check.
        column: the column. Where it is not there, nothing is looked for.
        has: function of the column to whether each list has it.
        threshold: the share of the lists that may have it.
        warning: what to say where more have it.
    """

    name: str
    column: str
    has: Callable[[Array], Array]
    threshold: float
    warning: str


def _is_none(numbers: Array) -> Array:
    is_none: Array = numbers == 0
    return is_none


def _is_one(numbers: Array) -> Array:
    is_one: Array = numbers == 1
    return is_one


def _is_any(numbers: Array) -> Array:
    return numbers > 0


_SOUGHT = (
    Sought(
        "nothing relevant",
        "relevant",
        _is_none,
        0.1,
        "have no relevant items for {first_metric}: all orders of their items are "
        "equally good, so that they move the mean whatever the model does",
    ),
    Sought(
        "one item",
        "items",
        _is_one,
        0.5,
        "have one item, so that there is nothing to order: does `query` name the "
        "column of the lists, not that of the items?",
    ),
    Sought(
        "nothing retrieved",
        "retrieved",
        _is_none,
        0.0,
        "have no items with a score, as if the model was not run on their queries: "
        "they count as lists where nothing was found",
    ),
    Sought(
        "constant scores",
        "constant",
        _is_any,
        0.01,
        "have one score for all items: their order is random",
    ),
    Sought(
        "NaN scores",
        "nan",
        _is_any,
        0.0,
        "have scores that are NaN: these items count as not retrieved",
    ),
    Sought(
        "nothing judged",
        "unjudged",
        _is_any,
        0.5,
        "have no judged items with a score: do the judgements and the run have the "
        "same item ids?",
    ),
    Sought(
        "duplicated items",
        "duplicates",
        _is_any,
        0.0,
        "have an item more than once: each occurrence counts",
    ),
    Sought(
        "items without weight",
        "weightless",
        _is_any,
        0.0,
        "have items with a weight of 0 or less, which are left out",
    ),
    Sought(
        "labels like scores",
        # Where a score is a fraction too, this column is not looked at.
        "fractional labels",
        _is_any,
        0.5,
        "have labels that are fractions, while all scores are integers: are `label` "
        "and `score` swapped?",
    ),
)


def checks_of(values: ListValues) -> list[Check]:
    """All checks, the last ones of the order of tied items.

    Args:
        values: the values of lists, with the columns of health.
    """
    columns = values.health
    if not values.has_health:
        raise ValueError(
            "`table` should have the columns of health, which `per_list` leaves out: "
            "save evaluations by `write`. Received: the columns "
            f"{values.table.column_names}"
        )
    checks = _checks_of_lists(columns, values.metric_names[0])
    for k in sorted({metric.k for metric in values.metrics if metric.k is not None}):
        checks += _checks_of_cutoff(columns, k)
    for metric in values.metrics:
        counted = values.counted(metric)
        means = [
            values.mean(metric, counted, SPREAD.format(metric.name, order)).value
            for order in ORDERS
        ]
        checks.append(_check_of_spread(metric.name, columns["ties"], *means))
    return checks


def warnings_of(values: ListValues, checks: Sequence[Check]) -> list[str]:
    """Warns of what checks have found, and of queries that were left out."""
    warnings = [
        f"Warning: {check.lists} of {len(values)} lists {check.warning}"
        + "." * (not check.warning.endswith("?"))
        for check in checks
        if not check.is_passed
    ]
    if values.left_out:
        warnings.append(
            f"Warning: {values.left_out} queries of the run are left out, as they "
            "have no judgements."
        )
    return warnings


def table_of_checks(checks: Sequence[Check], warnings: Sequence[str]) -> Table:
    """The table of checks, with warnings as its notes."""
    nothing = (None, None, None)
    spreads = [check.spread or nothing for check in checks]
    columns: dict[str, list[Any]] = {
        "check": [check.name for check in checks],
        "lists": [check.lists for check in checks],
        "share": [check.share for check in checks],
        "threshold": [check.threshold for check in checks],
    }
    columns |= {
        order: [spread[i] for spread in spreads] for i, order in enumerate(ORDERS)
    }
    return Table(columns, notes=warnings)


def _checks_of_lists(columns: dict[str, Array], first_metric: str) -> list[Check]:
    """The checks of lists, by what is known of each.

    Args:
        columns: arrays of shape `(lists,)` by what they hold. Those that are not
            known are missing.
        first_metric: the name of the metric that tells what is relevant.
    """
    if np.any(columns["fractional scores"] > 0):
        columns = {k: v for k, v in columns.items() if k != "fractional labels"}
    thresholds = {each.name: each.threshold for each in _SOUGHT}
    if _has_few_judgements(columns, _FEW_JUDGEMENTS):
        thresholds["nothing judged"] = _NEARLY_ALL
    return [
        _share_of(
            sought.has(columns[sought.column]),
            sought.name,
            thresholds[sought.name],
            sought.warning.format(first_metric=first_metric),
        )
        for sought in _SOUGHT
        if sought.column in columns
    ]


def _has_few_judgements(columns: dict[str, Array], few: int) -> bool:
    """Whether most lists have few judgements, and more items than these."""
    judged = columns["judged"]
    return bool(np.mean((judged < few) & (judged < columns["items"])) > 0.5)


def _checks_of_cutoff(columns: dict[str, Array], k: int) -> list[Check]:
    """The checks of what is asked of the first k items."""
    judged = columns[f"judged@{k}"]
    share = float(np.mean(judged))
    # Where few items have a judgement, it is nothing to warn of that others have none.
    threshold = 0.0 if _has_few_judgements(columns, k) else 0.9
    return [
        _share_of(
            columns["items"] < k,
            f"shorter than {k}",
            0.5,
            f"have fewer than {k} items, all of which are in their top {k}",
        ),
        _share_of(
            columns[f"tied@{k}"].astype(bool),
            f"tied at {k}",
            0.05,
            f"have the same score at ranks {k} and {k + 1}: which items are in their "
            f"top {k} depends on the order of tied items",
        ),
        Check(
            f"judged@{k}",
            int(np.sum(judged < 1.0)),
            share,
            threshold,
            f"have items without a judgement in their top {k}, {1.0 - share:.0%} on "
            "average: these count as irrelevant, which they need not be",
            at_least=True,
        ),
    ]


def _check_of_spread(
    metric: str, has_ties: Array, worst: float, average: float, best: float
) -> Check:
    """The check of what the order of tied items makes of a metric."""
    return Check(
        f"ties of {metric}",
        int(np.sum(has_ties)),
        abs(best - worst),
        0.01,
        f"have tied items: {metric} is {worst:.4f} with their worst order, "
        f"{best:.4f} with the best one, and {average:.4f} on average",
        spread=(worst, average, best),
    )
