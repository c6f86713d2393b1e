"""A page of an evaluation, in one file of HTML, for people who don't run it."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import facts, health, markup, plots, worst_lists
from keras_rank.evaluation.report.comparison import compared
from keras_rank.evaluation.report.how import How
from keras_rank.evaluation.report.markup import Html, filled, section
from keras_rank.evaluation.report.summary import summarized
from keras_rank.evaluation.report.table import Table, rows_where

# How many slices are shown.
_SLICES = 40


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

    def html(self) -> Html:
        """The page."""
        whole = self._estimates(self.how._replace(by=[]))
        sections = [*self._whole(whole), *self._slices(whole), self._trust()]
        sections += [*worst_lists.worst_of(self.new, self.baseline), self._facts()]
        now = datetime.datetime.now(datetime.UTC)
        return filled(
            "page",
            title=self.title,
            counts=f"{self._named()}{facts.counts_of(self.new)}. "
            f"Written on {now:%Y-%m-%d at %H:%M} UTC.",
            lead=facts.result_of(self.new, plots.estimates_in(whole), self.how),
            sections=markup.joined(sections),
        )

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

    def _whole(self, whole: Table) -> list[Html]:
        """The sections of what is estimated over all lists."""
        body = [
            *self._plots(whole, self._scale, "all"),
            markup.table(whole, self._what),
            *_notes(whole),
        ]
        if self.baseline is None:
            return [section(self._what, body)]
        body.append(filled("note", text=facts.tests_of(self.how)))
        means = summarized(self.new, self.how._replace(by=[]))
        of_means = [markup.table(means, "Means"), *_notes(means, whole)]
        return [section("Compared with the baseline", body), section("Means", of_means)]

    def _slices(self, whole: Table) -> list[Html]:
        if not self.how.by:
            return []
        every = self._estimates(self.how)
        found = _largest(every, self.how.by)
        name = " and ".join(self.how.by)
        body = [
            *self._plots(found, lambda row: str(row["metric"]), "by"),
            markup.table(found, f"By {name}"),
            *_notes(every, whole),
        ]
        if len(found) < len(every):
            text = (
                f"These are the {_SLICES} slices with the most lists; "
                f"{facts.counted(len(every), 'row')} are too many for a page."
            )
            body.insert(0, filled("paragraph", text=text))
        return [section(f"By {name}", body)]

    def _trust(self) -> Html:
        title = "Can these numbers be trusted?"
        if not self.new.has_health:
            text = (
                "This is not known, as the table of lists lacks the columns of health."
            )
            return section(title, [filled("paragraph", text=text)])
        found = health.warnings_of(self.new)
        if self.baseline is not None:
            of_baseline = (
                x.removeprefix("Warning: ") for x in health.warnings_of(self.baseline)
            )
            found = [*found, *(f"In the baseline, {x}" for x in of_baseline)]
        nothing = filled("paragraph", text="No check found a reason for doubt.")
        checks = markup.table(health.table_of_checks(self.new), "All checks")
        fold = filled("fold", title="All checks", body=checks)
        return section(title, [markup.warnings(found) if found else nothing, fold])

    def _facts(self) -> Html:
        found = facts.facts_of(self.new, self.how)
        items = [filled("fact", name=name, text=text) for name, text in found]
        return section(
            "How this was computed", [filled("facts", facts=markup.joined(items))]
        )

    @property
    def _what(self) -> str:
        """What is estimated."""
        return "Means" if self.baseline is None else "Differences from the baseline"

    def _scale(self, row: Mapping[str, Any]) -> str:
        return str(self.new.measured(row["metric"]).lowest)

    def _plots(
        self, table: Table, panel: Callable[[Mapping[str, Any]], str], of: str
    ) -> list[Html]:
        """A plot for each panel that rows belong to, as the scales of metrics differ.

        Args:
            table: the estimates.
            panel: function from a row to its panel.
            of: a name of the plots.
        """
        table = plots.estimates_in(table)
        value = "value" if self.baseline is None else "difference"
        level = 100 * self.how.confidence
        label = f"{self._what}, with {level:g}% confidence intervals."
        if self.baseline is not None and self.how.correction is not None:
            label += " p is corrected."
        panels = [panel(row) for row in table]
        found: list[Html] = []
        for name in dict.fromkeys(panels):
            rows = rows_where(table, [each == name for each in panels])
            svg = Html(plots.svg_of_intervals(rows, value, f"{of}{len(found)}-"))
            found.append(filled("figure", svg=svg, label=label))
        return found


def _notes(table: Table, *others: Table) -> list[Html]:
    """The notes of a table that others don't have."""
    known = {note for other in others for note in other.notes}
    new = [note for note in table.notes if note not in known]
    found = [note for note in new if note.startswith("Warning: ")]
    texts = [note for note in new if note not in found]
    return [markup.warnings(found), *(filled("note", text=text) for text in texts)]


def _largest(table: Table, by: Sequence[str]) -> Table:
    """The slices with the most lists."""
    keys = [tuple(row[name] for name in by) for row in table]
    sizes: dict[tuple[Any, ...], int] = {}
    for key, size in zip(keys, table["lists"], strict=True):
        sizes[key] = max(size, sizes.get(key, 0))
    chosen = set(sorted(sizes, key=lambda key: -sizes[key])[:_SLICES])
    return rows_where(table, [key in chosen for key in keys])
