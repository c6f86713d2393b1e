"""A page of an evaluation, in one file of HTML, for people who don't run it."""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.report import facts, health, plots, worst_lists
from keras_rank.evaluation.report.comparison import compared
from keras_rank.evaluation.report.how import How
from keras_rank.evaluation.report.summary import summarized
from keras_rank.evaluation.report.table import (
    Table,
    needing,
    rows_where,
    without_notes,
)

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
            counts=f"{self._named()}{facts.counts_of(self.new)}. "
            f"Written on {now:%Y-%m-%d at %H:%M} UTC.",
            lead=facts.result_of(self.new, plots.estimates_in(whole), self.how),
            caption=caption + "intervals." + " p is corrected." * has_corrected_p,
            estimates=[*self._whole(whole), *self._slices(whole)],
            checks=health.table_of_checks(self.new) if self.new.has_health else None,
            warnings=self._warnings(),
            worst=worst_lists.worst_of(self.new, self.baseline),
            facts=facts.facts_of(self.new, self.how),
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
        notes[1].append(facts.tests_of(self.how))
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
            f"{facts.counted(len(every), 'row')} are too many for a page."
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
