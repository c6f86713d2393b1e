"""A page of an evaluation, in one file of HTML, for people who don't run it."""

import dataclasses
import datetime
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras_rank
from keras_rank.evaluation.lists import result_columns
from keras_rank.evaluation.lists.list_table import ListTable, stamp_of
from keras_rank.evaluation.lists.metric_names import Measured
from keras_rank.evaluation.report import comparison, health, plots
from keras_rank.evaluation.report.comparison import compared
from keras_rank.evaluation.report.intervals import CORRECTIONS, TESTS, How
from keras_rank.evaluation.report.summary import notes_of_labels, rules_of, summarized
from keras_rank.evaluation.report.table import (
    Table,
    columns_of,
    needing,
    rows_where,
    without_notes,
)


def counts_of(lists: ListTable) -> str:
    """The numbers of lists and items."""
    found, items = counted(len(lists), "list"), lists.health_of("items")
    return found if items is None else f"{found}, {counted(int(items.sum()), 'item')}"


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def tests_of(how: How) -> str:
    """What p is, in a comparison."""
    units = "" if how.cluster is None else f" of lists clustered by {how.cluster}"
    corrected = "It is not corrected for the number of comparisons."
    if how.correction is not None:
        method = f"{CORRECTIONS[how.correction]}'s method"
        corrected = f"corrected_p is corrected for all rows by {method}."
    return (
        "A difference is the new value minus that of the baseline, list by list. p is "
        f"that of the {TESTS[how.test]}{units}: the probability that chance alone "
        f"gives such a difference, or a larger one. {corrected}"
    )


def result_of(lists: ListTable, table: Table, how: How) -> str:
    """The first row of a summary, or of a comparison, in a sentence."""
    row = table.rows[0]
    is_up = lists.measured(row["metric"]).direction == "up"
    name = row["metric"] + " (lower is better)" * (not is_up)
    if math.isnan(row["value"]):
        return f"{name} has no value, as no list counts."
    value = f"{name} is {row['value']:.4f}"
    if row["lists"] < len(lists):
        value += f" over {row['lists']:,} of {counted(len(lists), 'list')}"
    if "difference" not in row:
        return f"{value}{_interval_of(row, how)}."
    change = row["difference"]
    side = "above" if change >= 0.0 else "below"
    verdict = "not a significant difference"
    if table.marks.are_marked[0]:
        verdict = f"significantly {'better' if is_up == (change > 0) else 'worse'}"
    p = plots.written_p(table)[0].rstrip("*")
    if p and how.correction is not None:
        p = f"corrected {p}"
    return (
        f"{value}, which is {abs(change):.4f} {side} the baseline's "
        f"{row['baseline']:.4f}: {verdict}{p and f' ({p})'}."
    )


def _interval_of(row: Mapping[str, Any], how: How) -> str:
    if math.isnan(row["low"]):
        return ""
    return (
        f", with a {100 * how.confidence:g}% confidence interval from "
        f"{row['low']:.4f} to {row['high']:.4f}"
    )


def facts_of(lists: ListTable, how: How) -> Iterator[tuple[str, str]]:
    """Yields names and values of what an evaluation is, and how it was made."""
    stamp = stamp_of(lists.table)
    yield "Data", f"{counts_of(lists)}; lists by {lists.query}"
    if lists.left_out:
        number = counted(lists.left_out, "list")
        yield "Left out", f"{number} without judgments{lists.some_left_out}"
    if lists.rules is not None:
        yield "Rules", rules_of(lists.rules)
    for note in notes_of_labels(lists):
        yield "Labels", note
    for metric in lists.metrics:
        yield metric.name, _definition_of(metric)
    for order in dict.fromkeys(stamp["ties"].values()):
        names = [name for name, x in stamp["ties"].items() if x == order]
        of = "" if len(names) == len(stamp["ties"]) else f" ({', '.join(names)})"
        yield "Tied items", order + of
    units = "independent lists"
    if how.cluster is not None:
        units = f"lists clustered by {how.cluster}"
    kind = "Student's t, or Wilson's if all values are 0 or 1"
    yield "Intervals", f"{100 * how.confidence:g}%, of {units}: {kind}"
    versions = ", ".join(map(" ".join, stamp["versions"].items()))
    yield "Evaluated by", versions or "an unknown version of keras_rank"
    yield "Page by", f"keras_rank {keras_rank.__version__}"


def _definition_of(metric: Measured) -> str:
    """The class of a metric and its arguments."""
    if metric.definition is None:
        return "a metric that is defined by a function"
    shown = {
        name: value.get("config", value) if isinstance(value, dict) else value
        for name, value in metric.definition.items()
        if name != "class_name" and value is not None and value is not False
    }
    arguments = ", ".join(f"{name}={value}" for name, value in shown.items())
    return f"{metric.definition['class_name']}({arguments})"


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
    rows = lists.table[result_columns.ITEMS][lists.places[query]].as_py()
    if result_columns.NO_SCORES.encode() in (lists.table.schema.metadata or {}):
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


# The maximum number of slices on a page.
_SLICES = 40


class Section(NamedTuple):
    """A section of the page with estimates.

    Attributes:
        title: the heading.
        label: what the table holds, for screen readers.
        table: the estimates.
        warnings: the notes that are warnings.
        notes: the other notes.
        plots: SVG of the plots.
        text: a paragraph above the plots.
    """

    title: str
    label: str
    table: Table
    warnings: Sequence[str]
    notes: Sequence[str]
    plots: Sequence[str] = ()
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        new: the evaluation.
        baseline: what it is compared with, if anything.
        how: how means and differences are estimated.
        title: the title.
        names: the names of the evaluation and of the baseline, if they are given.
    """

    new: ListTable
    baseline: ListTable | None
    how: How
    title: str
    names: Sequence[str]

    def html(self) -> str:
        """Returns the page."""
        template = _template()
        whole = self._estimates(self.how._replace(by=[]))
        now = datetime.datetime.now(datetime.UTC)
        caption = f"{self._what}, with {100 * self.how.confidence:g}% confidence "
        has_corrected_p = self.baseline is not None and self.how.correction is not None
        html: str = template.render(
            title=self.title,
            counts=f"{self._named()}{counts_of(self.new)}. "
            f"Written on {now:%Y-%m-%d at %H:%M} UTC.",
            lead=result_of(self.new, plots.estimates_in(whole), self.how),
            caption=caption + "intervals." + " p is corrected." * has_corrected_p,
            estimates=[*self._whole(whole), *self._slices(whole)],
            checks=health.table_of_checks(self.new) if self.new.has_health else None,
            warnings=self._warnings(),
            worst=worst_of(self.new, self.baseline),
            facts=facts_of(self.new, self.how),
            without_notes=without_notes,
        )
        return html

    def _named(self) -> str:
        """What is evaluated, as far as it has names."""
        names = [self.names] if isinstance(self.names, str) else self.names
        roles = ["Model"] + ["Baseline"] * (self.baseline is not None)
        if not isinstance(names, list | tuple) or len(names) > len(roles):
            raise ValueError(
                "`names` should be a list with the name of the model, and that of the "
                f"`baseline` if there is one. Received: names={names!r}"
            )
        return "".join(f"{x}: {y}. " for x, y in zip(roles, names, strict=False))

    def _estimates(self, how: How) -> Table:
        """The differences from the baseline, or the means if there is none."""
        if self.baseline is None:
            return summarized(self.new, how)
        return compared(self.baseline, {"": self.new}, how)

    def _whole(self, whole: Table) -> list[Section]:
        """Returns the sections of the estimates over all lists."""
        svgs, notes = self._plots(whole, self._scale, "all"), _notes(whole)
        if self.baseline is None:
            return [Section(self._what, self._what, whole, *notes, svgs)]
        notes[1].append(tests_of(self.how))
        means = summarized(self.new, self.how._replace(by=[]))
        return [
            Section("Compared with the baseline", self._what, whole, *notes, svgs),
            Section("Means", "Means", means, *_notes(means, whole)),
        ]

    def _slices(self, whole: Table) -> list[Section]:
        """Returns the section of the slices, if any."""
        if not self.how.by:
            return []
        every = self._estimates(self.how)
        found = _largest(every, self.how.by)
        svgs = self._plots(found, lambda row: str(row["metric"]), "by")
        text = (
            f"These are the {_SLICES} slices with the most lists; "
            f"{counted(len(every), 'row')} are too many for a page."
        ) * (len(found) < len(every))
        title = f"By {' and '.join(self.how.by)}"
        return [Section(title, title, found, *_notes(every, whole), svgs, text)]

    def _warnings(self) -> list[str]:
        """Returns the warnings of the checks, also those of the baseline."""
        found = health.warnings_of(self.new)
        if self.baseline is not None:
            of_baseline = health.warnings_of(self.baseline)
            texts = (x.removeprefix("Warning: ") for x in of_baseline)
            found += [f"In the baseline, {x}" for x in texts]
        return found

    @property
    def _what(self) -> str:
        """What is estimated."""
        return "Means" if self.baseline is None else "Differences from the baseline"

    def _scale(self, row: Mapping[str, Any]) -> str:
        return str(self.new.measured(row["metric"]).lowest)

    def _plots(
        self, table: Table, panel: Callable[[Mapping[str, Any]], str], of: str
    ) -> list[str]:
        """Returns a plot for each panel of rows, as the scales of metrics differ.

        Args:
            table: the estimates.
            panel: function from a row to its panel.
            of: a name of the plots.
        """
        table = plots.estimates_in(table)
        value = "value" if self.baseline is None else "difference"
        panels = [panel(row) for row in table]
        return [
            plots.svg_of_intervals(
                rows_where(table, [each == name for each in panels]), value, f"{of}{i}-"
            )
            for i, name in enumerate(dict.fromkeys(panels))
        ]


@functools.cache
def _template() -> Any:
    """Returns the template of the page, which escapes values."""
    # The import of Jinja2 takes time, and only pages need it.
    with needing("report", "Jinja2, which the extra `evaluation` installs", "jinja2"):
        import jinja2
    return jinja2.Environment(
        loader=jinja2.PackageLoader("keras_rank.evaluation.report"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    ).get_template("page.html")


def _notes(table: Table, *others: Table) -> tuple[list[str], list[str]]:
    """Returns the warnings and the other notes of a table that `others` lack."""
    known = {note for other in others for note in other.notes}
    new = [note for note in table.notes if note not in known]
    warnings = [note for note in new if note.startswith("Warning: ")]
    return warnings, [note for note in new if note not in warnings]


def _largest(table: Table, by: Sequence[str]) -> Table:
    """The slices with the most lists."""
    keys = [tuple(row[name] for name in by) for row in table]
    sizes: dict[tuple[Any, ...], int] = {}
    for key, size in zip(keys, table["lists"], strict=True):
        sizes[key] = max(size, sizes.get(key, 0))
    chosen = set(sorted(sizes, key=lambda key: -sizes[key])[:_SLICES])
    return rows_where(table, [key in chosen for key in keys])
