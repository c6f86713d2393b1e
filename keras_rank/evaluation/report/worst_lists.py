"""The worst lists on a page, with their items."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keras_rank.evaluation.report import markup
from keras_rank.evaluation.report.markup import Html, filled, section
from keras_rank.evaluation.report.table import Table, rows_where

if TYPE_CHECKING:
    from keras_rank.evaluation.evaluation import Evaluation

# How many are shown.
_WORST = 10


def worst_of(new: "Evaluation", baseline: "Evaluation | None") -> Iterator[Html]:
    """Yields a section, none if the baseline lacks the first metric.

    Args:
        new: the evaluation.
        baseline: what it is compared with, if anything. The worst lists are then those
            that lost most.
    """
    metric = new.metric_names[0]
    if baseline is not None and baseline._values.find(metric) is None:
        return
    worst = new.worst(metric, _WORST, baseline=baseline)
    title = f"The worst lists by {metric}"
    if baseline is not None:
        sign = 1.0 if new._values.measured(metric).direction == "up" else -1.0
        worst = rows_where(worst, [sign * x < 0.0 for x in worst["difference"]])
        title = f"The largest losses of {metric}"
    if not len(worst):
        yield section(title, [filled("paragraph", text="There are none.")])
        return
    body = [markup.table(worst, title)]
    if new._values.has_items:
        body += _with_items(new, baseline, worst)
    else:
        call = "evaluate_run(..., " if new.rules else "evaluate(..., item=..., "
        text = (
            f"Their items are shown if the evaluation keeps them: {call}keep_items=10)."
        )
        body.append(filled("note", text=text))
    yield section(title, body)


def _with_items(
    new: "Evaluation", baseline: "Evaluation | None", worst: Table
) -> Iterator[Html]:
    """Yields the items of the lists of a table, with their ranks in the baseline."""
    if baseline is not None and not baseline._values.has_items:
        baseline = None
    if baseline is not None:
        text = (
            "An item without a baseline rank was not retrieved by the baseline, or "
            "is not one of the items that it keeps."
        )
        yield filled("note", text=text)
    queries = markup.joined(_query(new, baseline, row) for row in worst)
    yield filled("queries", queries=queries)


def _query(
    new: "Evaluation", baseline: "Evaluation | None", row: Mapping[str, Any]
) -> Html:
    """The items of a query."""
    name = new.query
    items = new.items(row[name])
    if baseline is not None:
        theirs = baseline.items(row[name])
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
