"""The worst lists on a page, with their items."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_rank.evaluation.lists import columns
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import comparison
from keras_rank.evaluation.report.table import Table, columns_of, rows_where

# The number of lists on a page.
_WORST = 10


class Query(NamedTuple):
    """A query with its items.

    Attributes:
        name: the id of the query.
        values: the values of the query, in words.
        items: the items with their ranks.
    """

    name: str
    values: str
    items: Table


class Worst(NamedTuple):
    """The section of the worst lists.

    Attributes:
        title: the heading.
        table: the lists.
        note: a sentence below the table.
        queries: the items of the lists, if the evaluation has items.
    """

    title: str
    table: Table
    note: str = ""
    queries: Sequence[Query] = ()


def worst_of(new: ListTable, baseline: ListTable | None) -> Worst | None:
    """Returns the section, or `None` if the baseline lacks the first metric.

    Args:
        new: the evaluation.
        baseline: what it is compared with, if anything. The worst lists are then those
            that lost most.
    """
    metric = new.first_metric
    if baseline is not None and baseline.find(metric) is None:
        return None
    worst = comparison.worst_of(new, metric, _WORST, baseline)
    title, note = f"The worst lists by {metric}", ""
    if baseline is not None:
        sign = 1.0 if new.measured(metric).direction == "up" else -1.0
        worst = rows_where(worst, [sign * x < 0.0 for x in worst["difference"]])
        title = f"The largest losses of {metric}"
    if not new.has_items:
        call = "evaluate_run(..., " if new.rules else "evaluate(..., item=..., "
        note = (
            f"Their items are shown if the evaluation keeps them: {call}keep_items=10)."
        )
        return Worst(title, worst, note)
    if baseline is not None and not baseline.has_items:
        baseline = None
    if baseline is not None:
        note = (
            "An item without a baseline rank was not retrieved by the baseline, or "
            "is not one of the items that it keeps."
        )
    return Worst(title, worst, note, [_query(new, baseline, row) for row in worst])


def items_of(lists: ListTable, query: Any) -> Table:
    """Returns the items of a query, as `Evaluation.ranking` does."""
    if not lists.has_items:
        raise ValueError(
            "`ranking` needs the items, which `evaluate` and `evaluate_run` keep where "
            "that is asked for: `keep_items=10`. Received: none"
        )
    if not isinstance(query, Hashable) or query not in lists.places:
        raise ValueError(
            "`query` should be one of the evaluation, such as "
            f"{list(lists.places)[:1]}. Received: query={query!r}"
        )
    rows = lists.table[columns.ITEMS][lists.places[query]].as_py()
    if columns.NO_SCORES.encode() in (lists.table.schema.metadata or {}):
        rows = [{**row, "score": None} for row in rows]
    return Table(columns_of(rows, ("rank", "item", "label", "score")))


def _query(new: ListTable, baseline: ListTable | None, row: Mapping[str, Any]) -> Query:
    """The items of a query."""
    name = new.query
    items = items_of(new, row[name])
    if baseline is not None:
        theirs = items_of(baseline, row[name])
        # Ids may be integers in one file, and text in another.
        ranks = dict(zip(map(str, theirs["item"]), theirs["rank"], strict=True))
        of_baseline = [ranks.get(str(item)) for item in items["item"]]
        rest = {x: items[x] for x in items.columns if x != "rank"}
        columns = {"rank": items["rank"], "baseline rank": of_baseline, **rest}
        items = Table(columns)
    shown = Table({name: [value] for name, value in row.items()})
    cells = {x: shown.shown(x)[0] for x in row}
    query = cells.pop(name)
    values = ", ".join(f"{name} {cell}" for name, cell in cells.items())
    return Query(query, values, items)
