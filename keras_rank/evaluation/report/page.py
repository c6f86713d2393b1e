"""The HTML page that reports an evaluation in one file."""

import dataclasses
import datetime
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras_rank
from keras_rank.evaluation.lists import result_columns
from keras_rank.evaluation.lists.list_table import ListTable, read_provenance
from keras_rank.evaluation.lists.metric_names import MetricInfo
from keras_rank.evaluation.report import comparison, health, plots
from keras_rank.evaluation.report.comparison import compare_lists
from keras_rank.evaluation.report.intervals import CORRECTIONS, TESTS, EstimateOptions
from keras_rank.evaluation.report.summary import (
    describe_missing_labels,
    describe_rules,
    summarize,
)
from keras_rank.evaluation.report.table import (
    Table,
    drop_notes,
    explain_import_error,
    select_columns,
    select_rows,
)


def format_counts(lists: ListTable) -> str:
    """Returns the numbers of lists and items as text."""
    text, items = format_count(len(lists), "list"), lists.get_health("items")
    return (
        text if items is None else f"{text}, {format_count(int(items.sum()), 'item')}"
    )


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_test(options: EstimateOptions) -> str:
    """Returns an explanation of the differences and p-values of a comparison."""
    units = (
        "" if options.cluster is None else f" of lists clustered by {options.cluster}"
    )
    correction = "It is not corrected for the number of comparisons."
    if options.correction is not None:
        method = f"{CORRECTIONS[options.correction]}'s method"
        correction = f"corrected_p is corrected for all rows by {method}."
    return (
        "A difference is the new value minus that of the baseline, list by list. p is "
        f"that of the {TESTS[options.test]}{units}: the probability that chance alone "
        f"gives such a difference, or a larger one. {correction}"
    )


def describe_result(lists: ListTable, table: Table, options: EstimateOptions) -> str:
    """Returns a sentence about the first row of a summary or a comparison."""
    row = table.rows[0]
    is_up = lists.get_metric(row["metric"]).direction == "up"
    name = row["metric"] + " (lower is better)" * (not is_up)
    if math.isnan(row["value"]):
        return f"{name} has no value, as no list counts."
    value = f"{name} is {row['value']:.4f}"
    if row["lists"] < len(lists):
        value += f" over {row['lists']:,} of {format_count(len(lists), 'list')}"
    if "difference" not in row:
        return f"{value}{_describe_interval(row, options)}."
    change = row["difference"]
    side = "above" if change >= 0.0 else "below"
    verdict = "not a significant difference"
    if table.marks.is_marked[0]:
        verdict = f"significantly {'better' if is_up == (change > 0) else 'worse'}"
    p = plots.format_p(table)[0].rstrip("*")
    if p and options.correction is not None:
        p = f"corrected {p}"
    return (
        f"{value}, which is {abs(change):.4f} {side} the baseline's "
        f"{row['baseline']:.4f}: {verdict}{p and f' ({p})'}."
    )


def _describe_interval(row: Mapping[str, Any], options: EstimateOptions) -> str:
    if math.isnan(row["low"]):
        return ""
    return (
        f", with a {100 * options.confidence:g}% confidence interval from "
        f"{row['low']:.4f} to {row['high']:.4f}"
    )


def iter_facts(lists: ListTable, options: EstimateOptions) -> Iterator[tuple[str, str]]:
    """Yields names and values of facts about an evaluation and its computation."""
    provenance = read_provenance(lists.table)
    yield "Data", f"{format_counts(lists)}; lists by {lists.query}"
    if lists.left_out:
        number = format_count(lists.left_out, "list")
        yield "Left out", f"{number} without judgments{lists.left_out_examples}"
    if lists.rules is not None:
        yield "Rules", describe_rules(lists.rules)
    for note in describe_missing_labels(lists):
        yield "Labels", note
    for metric in lists.metrics:
        yield metric.name, _describe_definition(metric)
    for order in dict.fromkeys(provenance["ties"].values()):
        names = [name for name, x in provenance["ties"].items() if x == order]
        suffix = (
            "" if len(names) == len(provenance["ties"]) else f" ({', '.join(names)})"
        )
        yield "Tied items", order + suffix
    if provenance["lower_is_better"]:
        yield "Scores", "distances: lower is better"
    units = "independent lists"
    if options.cluster is not None:
        units = f"lists clustered by {options.cluster}"
    method = "Student's t, or Wilson's if all values are 0 or 1"
    yield "Intervals", f"{100 * options.confidence:g}%, of {units}: {method}"
    versions = ", ".join(map(" ".join, provenance["versions"].items()))
    yield "Evaluated by", versions or "an unknown version of keras_rank"
    yield "Page by", f"keras_rank {keras_rank.__version__}"


def _describe_definition(metric: MetricInfo) -> str:
    """Returns the class of a metric with its arguments, as text."""
    if metric.definition is None:
        return "a metric that is defined by a function"
    values = {
        name: value.get("config", value) if isinstance(value, dict) else value
        for name, value in metric.definition.items()
        if name != "class_name" and value is not None and value is not False
    }
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{metric.definition['class_name']}({arguments})"


# The maximum number of worst lists on a page.
_NUM_WORST = 10


class Query(NamedTuple):
    """A query with its items.

    Attributes:
        name: the id of the query.
        values: the names and values of the other columns, as text.
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


def find_worst_section(new: ListTable, baseline: ListTable | None) -> Worst | None:
    """Returns the section of the worst lists by the first metric.

    The result is `None` if the baseline lacks the metric.

    Args:
        new: the evaluation.
        baseline: the evaluation that `new` is compared with, or `None`. The worst lists
            are the lists with the largest losses if there is a baseline.
    """
    metric = new.first_metric
    if baseline is not None and baseline.find(metric) is None:
        return None
    worst = comparison.find_worst(new, metric, _NUM_WORST, baseline)
    title, note = f"The worst lists by {metric}", ""
    if baseline is not None:
        sign = 1.0 if new.get_metric(metric).direction == "up" else -1.0
        worst = select_rows(worst, [sign * x < 0.0 for x in worst["difference"]])
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
    return Worst(
        title, worst, note, [_create_query(new, baseline, row) for row in worst]
    )


def get_items(lists: ListTable, query: Any) -> Table:
    """Returns the items of a query that the evaluation keeps.

    Args:
        lists: the lists of the evaluation.
        query: the id of the query.
    """
    if not lists.has_items:
        raise ValueError(
            "`ranking` needs the items, which `evaluate` and `evaluate_run` keep where "
            "that is asked for: `keep_items=10`. Received: none"
        )
    if not isinstance(query, Hashable) or query not in lists.row_indices:
        raise ValueError(
            "`query` should be one of the evaluation, such as "
            f"{list(lists.row_indices)[:1]}. Received: query={query!r}"
        )
    rows = lists.table[result_columns.ITEMS][lists.row_indices[query]].as_py()
    if result_columns.NO_SCORES.encode() in (lists.table.schema.metadata or {}):
        rows = [{**row, "score": None} for row in rows]
    return Table(select_columns(rows, ("rank", "item", "label", "score")))


def _create_query(
    new: ListTable, baseline: ListTable | None, row: Mapping[str, Any]
) -> Query:
    """Returns the query of a row of the worst lists, with its items."""
    name = new.query
    items = get_items(new, row[name])
    if baseline is not None:
        baseline_items = get_items(baseline, row[name])
        # Ids are compared as text, as they may be integers in one file and text in the
        # other.
        ranks = dict(
            zip(map(str, baseline_items["item"]), baseline_items["rank"], strict=True)
        )
        baseline_ranks = [ranks.get(str(item)) for item in items["item"]]
        other_columns = {x: items[x] for x in items.columns if x != "rank"}
        columns = {
            "rank": items["rank"],
            "baseline rank": baseline_ranks,
            **other_columns,
        }
        items = Table(columns)
    row_table = Table({name: [value] for name, value in row.items()})
    cells = {x: row_table.shown(x)[0] for x in row}
    query = cells.pop(name)
    values = ", ".join(f"{name} {cell}" for name, cell in cells.items())
    return Query(query, values, items)


# The maximum number of slices on a page.
_MAX_SLICES = 40


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
    """The page of an evaluation.

    Attributes:
        new: the evaluation.
        baseline: the evaluation that `new` is compared with, or `None`.
        options: the options of the estimates.
        title: the title.
        names: the names of the evaluation and of the baseline. May be empty.
    """

    new: ListTable
    baseline: ListTable | None
    options: EstimateOptions
    title: str
    names: Sequence[str]

    def html(self) -> str:
        """Returns the page as HTML."""
        template = _template()
        estimates = self._compute_estimates(self.options._replace(by=[]))
        now = datetime.datetime.now(datetime.UTC)
        caption = (
            f"{self._estimate_title}, with {100 * self.options.confidence:g}% "
            "confidence "
        )
        has_corrected_p = (
            self.baseline is not None and self.options.correction is not None
        )
        html: str = template.render(
            title=self.title,
            counts=f"{self._format_names()}{format_counts(self.new)}. "
            f"Written on {now:%Y-%m-%d at %H:%M} UTC.",
            lead=describe_result(self.new, plots.drop_sums(estimates), self.options),
            caption=caption + "intervals." + " p is corrected." * has_corrected_p,
            estimates=[
                *self._create_overall_sections(estimates),
                *self._create_slice_sections(estimates),
            ],
            checks=health.create_checks_table(self.new)
            if self.new.has_health
            else None,
            warnings=self._get_warnings(),
            worst=find_worst_section(self.new, self.baseline),
            facts=iter_facts(self.new, self.options),
            drop_notes=drop_notes,
        )
        return html

    def _format_names(self) -> str:
        """Returns a sentence with each name. Raises `ValueError` for invalid names."""
        names = [self.names] if isinstance(self.names, str) else self.names
        roles = ["Model"] + ["Baseline"] * (self.baseline is not None)
        if not isinstance(names, list | tuple) or len(names) > len(roles):
            raise ValueError(
                "`names` should be a list with the name of the model, and that of the "
                f"`baseline` if there is one. Received: names={names!r}"
            )
        return "".join(f"{x}: {y}. " for x, y in zip(roles, names, strict=False))

    def _compute_estimates(self, options: EstimateOptions) -> Table:
        """Returns the differences from the baseline, or the means if there is none."""
        if self.baseline is None:
            return summarize(self.new, options)
        return compare_lists(self.baseline, {"": self.new}, options)

    def _create_overall_sections(self, estimates: Table) -> list[Section]:
        """Returns the sections of the estimates over all lists."""
        svgs, notes = (
            self._draw_plots(estimates, self._get_scale, "all"),
            _split_notes(estimates),
        )
        if self.baseline is None:
            return [
                Section(
                    self._estimate_title, self._estimate_title, estimates, *notes, svgs
                )
            ]
        notes[1].append(describe_test(self.options))
        means = summarize(self.new, self.options._replace(by=[]))
        return [
            Section(
                "Compared with the baseline",
                self._estimate_title,
                estimates,
                *notes,
                svgs,
            ),
            Section("Means", "Means", means, *_split_notes(means, estimates)),
        ]

    def _create_slice_sections(self, estimates: Table) -> list[Section]:
        """Returns a list with the section of the slices, empty without slices."""
        if not self.options.by:
            return []
        all_rows = self._compute_estimates(self.options)
        largest = _select_largest_slices(all_rows, self.options.by)
        svgs = self._draw_plots(largest, lambda row: str(row["metric"]), "by")
        text = (
            f"These are the {_MAX_SLICES} slices with the most lists; "
            f"{format_count(len(all_rows), 'row')} are too many for a page."
        ) * (len(largest) < len(all_rows))
        title = f"By {' and '.join(self.options.by)}"
        return [
            Section(
                title, title, largest, *_split_notes(all_rows, estimates), svgs, text
            )
        ]

    def _get_warnings(self) -> list[str]:
        """Returns the warnings of the checks, including the checks of the baseline."""
        result = health.get_warnings(self.new)
        if self.baseline is not None:
            baseline_warnings = health.get_warnings(self.baseline)
            texts = (x.removeprefix("Warning: ") for x in baseline_warnings)
            result += [f"In the baseline, {x}" for x in texts]
        return result

    @property
    def _estimate_title(self) -> str:
        """The title of the estimates."""
        return "Means" if self.baseline is None else "Differences from the baseline"

    def _get_scale(self, row: Mapping[str, Any]) -> str:
        return str(self.new.get_metric(row["metric"]).lowest)

    def _draw_plots(
        self, table: Table, get_panel: Callable[[Mapping[str, Any]], str], prefix: str
    ) -> list[str]:
        """Returns the SVG of a plot for each panel, as the scales of metrics differ.

        Args:
            table: the estimates.
            get_panel: function that returns the name of the panel of a row.
            prefix: the prefix of the ids in all plots.
        """
        table = plots.drop_sums(table)
        value = "value" if self.baseline is None else "difference"
        panels = [get_panel(row) for row in table]
        return [
            plots.render_intervals(
                select_rows(table, [each == name for each in panels]),
                value,
                f"{prefix}{i}-",
            )
            for i, name in enumerate(dict.fromkeys(panels))
        ]


@functools.cache
def _template() -> Any:
    """Returns the template of the page, which escapes values."""
    # Jinja2 is imported here, as the import takes time and pages alone need it.
    with explain_import_error(
        "report", "Jinja2, which the extra `evaluation` installs", "jinja2"
    ):
        import jinja2
    return jinja2.Environment(
        loader=jinja2.PackageLoader("keras_rank.evaluation.report"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    ).get_template("page.html")


def _split_notes(table: Table, *others: Table) -> tuple[list[str], list[str]]:
    """Returns the warnings and the other notes of a table that `others` lack."""
    known = {note for other in others for note in other.notes}
    new = [note for note in table.notes if note not in known]
    warnings = [note for note in new if note.startswith("Warning: ")]
    return warnings, [note for note in new if note not in warnings]


def _select_largest_slices(table: Table, by: Sequence[str]) -> Table:
    """Returns the rows of the slices with the most lists."""
    keys = [tuple(row[name] for name in by) for row in table]
    sizes: dict[tuple[Any, ...], int] = {}
    for key, size in zip(keys, table["lists"], strict=True):
        sizes[key] = max(size, sizes.get(key, 0))
    chosen = set(sorted(sizes, key=lambda key: -sizes[key])[:_MAX_SLICES])
    return select_rows(table, [key in chosen for key in keys])
