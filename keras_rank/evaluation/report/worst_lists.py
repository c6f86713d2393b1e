"""The worst lists on a page, with their items."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from keras_rank.evaluation.lists import columns
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import comparison, markup
from keras_rank.evaluation.report.markup import Html, filled, section
from keras_rank.evaluation.report.table import Table, columns_of, rows_where

# How many are shown.
_WORST = 10


def worst_of(new: ListTable, baseline: ListTable | None) -> Iterator[Html]:
    """Yields a section, none if the baseline lacks the first metric.

    Args:
        new: the evaluation.
        baseline: what it is compared with, if anything. The worst lists are then those
            that lost most.
    """
    metric = new.first_metric
    if baseline is not None and baseline.find(metric) is None:
        return
    worst = comparison.worst_of(new, metric, _WORST, baseline)
    title = f"The worst lists by {metric}"
    if baseline is not None:
        sign = 1.0 if new.measured(metric).direction == "up" else -1.0
        worst = rows_where(worst, [sign * x < 0.0 for x in worst["difference"]])
        title = f"The largest losses of {metric}"
    if not len(worst):
        yield section(title, [filled("paragraph", text="There are none.")])
        return
    body = [markup.table(worst, title)]
    if new.has_items:
        body += _with_items(new, baseline, worst)
    else:
        call = "evaluate_run(..., " if new.rules else "evaluate(..., item=..., "
        text = (
            f"Their items are shown if the evaluation keeps them: {call}keep_items=10)."
        )
        body.append(filled("note", text=text))
    yield section(title, body)


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


def _with_items(
    new: ListTable, baseline: ListTable | None, worst: Table
) -> Iterator[Html]:
    """Yields the items of the lists of a table, with their ranks in the baseline."""
    if baseline is not None and not baseline.has_items:
        baseline = None
    if baseline is not None:
        text = (
            "An item without a baseline rank was not retrieved by the baseline, or "
            "is not one of the items that it keeps."
        )
        yield filled("note", text=text)
    queries = markup.joined(_query(new, baseline, row) for row in worst)
    yield filled("queries", queries=queries)


def _query(new: ListTable, baseline: ListTable | None, row: Mapping[str, Any]) -> Html:
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
    body = markup.table(items, f"Items of {query}")
    return filled("query", query=query, values=values, body=body)
