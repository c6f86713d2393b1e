"""Runs the command: evaluates or compares, and returns an exit code."""

import contextlib
import itertools
import json
import math
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from keras_rank.evaluation import command_inputs, compare
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import Measured, find, measured_of
from keras_rank.evaluation.report.comparison import places_of
from keras_rank.evaluation.report.plots import require_matplotlib
from keras_rank.evaluation.report.table import Table, plain_rows, without_notes
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.files import is_table

# On which side of its bound a gate fails: the direction of its metrics, in words too.
SIDES = {"below": ("up", "higher"), "above": ("down", "lower")}


class Gate(NamedTuple):
    """The bound of a metric, and the side on which the gate fails."""

    side: str
    metric: str
    bound: float

    @classmethod
    def of(cls, side: str, text: str) -> "Gate":
        """Reads the text of a gate, such as `ndcg@10=0.40`."""
        metric, _, bound = text.rpartition("=")
        try:
            if metric and math.isfinite(float(bound)):
                return cls(side, metric.strip(), float(bound))
        except ValueError:
            pass
        raise ValueError(
            f"--fail-{side} should be such as ndcg@10=0.40. Received: {text!r}"
        )

    def is_shut(self, value: float) -> bool:
        """Whether the gate fails for a value."""
        # As printed: a float32 mean of 0.7 may be 0.69999999.
        value, bound = float(_digits(value)), float(_digits(self.bound))
        # NaN fails too.
        is_held = value >= bound if self.side == "below" else value <= bound
        return not is_held

    def among(self, metrics: Sequence[Measured], rules: str | None) -> "Gate":
        """The gate with the name of its metric. Raises if its direction is wrong."""
        direction, better = SIDES[self.side]
        metric = find(self.metric, metrics, rules)
        if metric is None or metric.direction != direction:
            of_side = [each.name for each in metrics if each.direction == direction]
            raise ValueError(
                f"--fail-{self.side} should name a metric where {better} is better"
                f"{f', one of {of_side}' if of_side else ', and there is none'}. "
                f"Received: {self.metric!r}"
            )
        return self._replace(metric=metric.name)


def describe_failures(bounds: Sequence[Gate], summary: Table) -> Iterator[str]:
    """Describes where gates fail."""
    for gate in bounds:
        for row in summary:
            if row["metric"] == gate.metric and gate.is_shut(row["value"]):
                value, bound = _digits(row["value"]), _digits(gate.bound)
                yield f"{_metric_of(row)} is {value}, {gate.side} {bound}"


def describe_incomplete(
    models: Mapping[str, ListTable], baseline: ListTable
) -> Iterator[str]:
    """Describes which models lack queries or metrics of the baseline.

    These may be the bad ones.
    """
    for name, model in models.items():
        for metric in baseline.metric_names:
            if model.find(metric) is None:
                yield f"{name} lacks {metric} of the baseline"
        missing = len(baseline) - int((places_of(model, baseline) >= 0).sum())
        if missing:
            yield f"{name} lacks {missing} of {len(baseline)} queries of the baseline"


def describe_worse(
    comparison: Table, baseline: ListTable, confidence: float
) -> tuple[list[str], list[str]]:
    """Describes which metrics are significantly worse, and which by p alone.

    The corrected p decides, if there is one. It grows with the number of rows, so that
    the latter are no failures, but would be if they were compared alone.
    """
    failed, doubtful = [], []
    for row in comparison:
        metric = baseline.measured(row["metric"])
        sign = 1.0 if metric.direction == "up" else -1.0
        loss, level = -sign * row["difference"], 1.0 - confidence
        # NaN fails too: nothing is known of too few lists.
        # Fewer of what is summed are not worse.
        if loss <= 0.0 or row["p"] >= level or metric.reduction == "sum":
            continue
        text = f"{_metric_of(row)} is worse by {loss:.4f}, p={row['p']:.2g}"
        if "corrected_p" in row:
            text += f", corrected p={row['corrected_p']:.2g}"
        if row.get("corrected_p", row["p"]) >= level:
            doubtful.append(f"Warning: {text}: the gate reads the corrected p")
        else:
            failed.append(text)
    return failed, doubtful


def _digits(value: float) -> str:
    """The significant digits of a float32 number."""
    return f"{value:.6g}"


def _metric_of(row: Mapping[str, Any]) -> str:
    """The metric of a row, with its run, model and slice."""
    of_which = [str(row[x]) for x in itertools.takewhile(lambda x: x != "metric", row)]
    return f"{row['metric']} of {' '.join(of_which)}" if of_which else row["metric"]


# The formats of `--output`.
_TEXTS: dict[str, Callable[[Table], str]] = {
    "table": str,
    "tsv": Table.to_tsv,
    "markdown": Table.to_markdown,
    "html": Table.to_html,
    "trec_eval": lambda table: "\n".join(table["line"]),
}


def print_results(results: dict[str, Table], warnings: list[str], output: str) -> None:
    """Prints tables with their names, and warnings."""
    notes = [note for table in results.values() for note in table.notes]
    if output == "json":
        data = {name: plain_rows(table) for name, table in results.items()}
        print(json.dumps({**data, "notes": notes, "warnings": warnings}, indent=1))
    elif results:
        print("\n\n".join(map(_TEXTS[output], results.values())))
    are_apart = output in ("tsv", "trec_eval")
    for line in [*(notes if are_apart else []), *warnings]:
        say(line)


def joined(tables: Mapping[str, Table]) -> Table:
    """Concatenates the tables of runs, with names if there are several."""
    first = next(iter(tables.values()))
    if len(tables) == 1:
        return first
    runs = [name for name, table in tables.items() for _ in range(len(table))]
    columns = {
        # Only tables of lists with different weights have the column of their number.
        name: [
            value
            for table in tables.values()
            for value in table.columns.get(name, [None] * len(table))
        ]
        for name in dict.fromkeys(x for table in tables.values() for x in table.columns)
    }
    marked = [x for table in tables.values() for x in table.marks.are_marked]
    marks = first.marks._replace(are_marked=marked)
    shared = [
        x for x in first.notes if all(x in table.notes for table in tables.values())
    ]
    notes = shared + [
        f"{name}: {note}"
        for name, table in tables.items()
        for note in table.notes
        if note not in shared
    ]
    return Table({"run": runs, **columns}, notes=notes, marks=marks)


def say(text: str) -> None:
    """Prints a line to stderr."""
    print(f"keras-rank: {text}", file=sys.stderr)


# What it prints of all queries alone.
_OF_ALL = ("NumQ", "GeometricMeanAveragePrecision")


def require_used(parsed: Namespace) -> None:
    """Sets the format of results, and raises for what this one has no place for."""
    default = "trec_eval" if "official" in parsed.metrics else "table"
    parsed.output = parsed.output or default
    unused = [x for x in ("by", "cluster", "health") if getattr(parsed, x)]
    if parsed.output == "trec_eval" and unused:
        raise ValueError(
            f"--{unused[0]} should come with another format, such as --output table: "
            f"trec_eval has no place for it. Received: --{unused[0]}"
        )


def lines_of(found: Mapping[str, Evaluation], has_queries: bool) -> Iterator[str]:
    """Yields the lines of evaluations. Several have their names as run ids."""
    for name, ev in found.items():
        shown = [x.name for x in ev._values.metrics if x.class_name not in _OF_ALL]
        rows = ev.per_list.to_pylist() if has_queries else []
        for row in sorted(rows, key=lambda row: str(row[ev.query])):
            yield from _lines_of({x: row[x] for x in shown}, row[ev.query])
        ids = {"runid": name} if len(found) > 1 else {}
        yield from _lines_of(ids | ev.to_dict(), "all")


def _lines_of(values: Mapping[str, Any], query: Any) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            text = f"{value:6.4f}" if isinstance(value, float) else value
            yield f"{name:<22}\t{query}\t{text}"


# Tables by their names, warnings, and which gates failed.
_Report: TypeAlias = tuple[dict[str, Table], list[str], list[str]]
# The page, and how many items of the worst queries it shows.
_PAGE = "report.html"
_ITEMS = 10
_TABLES = "the name of a table should end in .parquet, .csv, .jsonl or .arrow"


def run(parsed: Namespace) -> int:
    """Runs the command with its options, and returns its exit code."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:
            # Closed. The next file that is opened must not take its place.
            nothing = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nothing))
        return _run(parsed)


def _run(parsed: Namespace) -> int:
    try:
        if sys.stdout is None:
            raise ValueError("Standard output should be open, as results go there.")
        commands = {"evaluate": _evaluate, "compare": _compare, "report": _write_page}
        results, notes, failed = commands[parsed.command](parsed)
        try:
            print_results(results, notes, parsed.output or "table")
            sys.stdout.flush()
        except BrokenPipeError:
            # Its reader has closed the pipe: the rest is dropped.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        for line in failed:
            say(line)
        return int(bool(failed))
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        say(f"error: {' '.join(str(error).split())}")
        return 2
    except Exception:
        # Not 1, which is the code of a gate.
        traceback.print_exc()
        return 2


def _evaluate(parsed: Namespace) -> _Report:
    require_used(parsed)
    given = command_inputs.models_of(parsed)
    if not given:
        raise ValueError(
            f"Qrels should be followed by runs, and {_TABLES}. "
            f"Received: {parsed.qrels!r}"
        )
    rows = _rows_of(parsed, given, given)
    sources = given if parsed.qrels is not None or not rows else [given]
    if rows != given and len(given) > 1:
        raise ValueError(
            "A file written by --per-list should be the only file of evaluate; compare "
            f"takes several. Received: {', '.join(given)}"
        )
    if parsed.per_list is not None:
        command_inputs.require_writable(parsed, given, len(sources) == 1)
    if rows:
        metrics, rules = (
            command_inputs.metrics_of(parsed),
            command_inputs.rules_of(parsed),
        )
        known = [measured_of(metric) for metric in metrics.members]
        bounds = [Gate.of(*x).among(known, rules) for x in parsed.gates]
        found = {
            str(x): command_inputs.evaluation_of(parsed, x, metrics) for x in sources
        }
    else:
        stored = command_inputs.evaluation_of(parsed, given[0])
        known = stored._values.metrics
        bounds = [Gate.of(*x).among(known, stored.rules) for x in parsed.gates]
        found = {given[0]: stored}
    if parsed.per_list is not None:
        next(iter(found.values())).write(parsed.per_list)
    results = _results(parsed, found)
    failed = list(describe_failures(bounds, results["summary"]))
    if parsed.output == "trec_eval":
        lines = [*lines_of(found, parsed.print_lists)]
        results = {"": Table({"line": lines}, notes=results["summary"].notes)}
    return results, _warnings_of(found), failed


def _compare(parsed: Namespace) -> _Report:
    first, *others = given = parsed.files
    if not others:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {first}"
        )
    for file in given:
        if parsed.qrels is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgments: --qrels FILE; and "
                f"{_TABLES}. Received: {file!r}"
            )
    metrics = (
        command_inputs.metrics_of(parsed) if _rows_of(parsed, given, others) else None
    )
    base = _baseline_of(parsed, first, metrics)
    models = {
        file: command_inputs.evaluation_of(parsed, file, metrics) for file in others
    }
    comparison = compare(base, models, **_how_to_compare(parsed))
    notes = [*comparison.notes, *_warnings_of({first: base, **models})]
    failed: list[str] = []
    if parsed.fail_if_worse:
        values = {file: model._values for file, model in models.items()}
        worse, doubtful = describe_worse(comparison, base._values, parsed.confidence)
        failed += [*describe_incomplete(values, base._values), *worse]
        notes += doubtful
    return {"comparison": without_notes(comparison)}, notes, failed


def _write_page(parsed: Namespace) -> _Report:
    require_matplotlib("report")
    if parsed.output is None and os.path.exists(_PAGE):
        raise ValueError(
            f"--output should name the page, as {_PAGE} is there already: --output "
            f"{_PAGE} replaces it. Received: no --output"
        )
    output = _PAGE if parsed.output is None else parsed.output
    sources = command_inputs.models_of(parsed)
    baseline = [parsed.baseline] if parsed.baseline else []
    rows = _rows_of(parsed, [*sources, *baseline], sources) if sources else []
    is_table = parsed.qrels is None and set(sources) <= set(rows)
    if not (is_table or len(sources) == 1):
        raise ValueError(
            "A page should be of one model, to compare with a --baseline. Received: "
            f"{', '.join(sources) or 'none'}"
        )
    command_inputs.require_no_input("--output", output, [*sources, *baseline], parsed)
    if parsed.keep_items is None and (parsed.qrels or parsed.item):
        parsed.keep_items = _ITEMS
    metrics = command_inputs.metrics_of(parsed) if rows else None
    source = sources if is_table else sources[0]
    new = command_inputs.evaluation_of(parsed, source, metrics)
    base = _baseline_of(parsed, parsed.baseline, metrics) if baseline else None
    how = {"title": parsed.title, **_how_to_compare(parsed)}
    how["names"] = [", ".join(sources), *baseline]
    new.report(output, baseline=base, **how)
    return {}, [f"The page is in {output}", *new.warnings], []


def _baseline_of(
    parsed: Namespace, file: str, metrics: RankingMetrics | None
) -> Evaluation:
    """The evaluation of a baseline, whose columns need not be kept."""
    without: dict[str, Any] = {"by": [], "keep": [], "cluster": None}
    return command_inputs.evaluation_of(
        Namespace(**{**vars(parsed), **without}), file, metrics
    )


def _how_to_compare(parsed: Namespace) -> dict[str, Any]:
    """The arguments of `compare`."""
    names = ("by", "test", "cluster", "confidence")
    correction = None if parsed.correction == "none" else parsed.correction
    return {name: getattr(parsed, name) for name in names} | {"correction": correction}


def _rows_of(parsed: Namespace, files: list[str], models: list[str]) -> list[str]:
    """Returns the files that hold rows. Raises `ValueError` for conflicting files."""
    command_inputs.require_distinct(parsed.qrels, files, models)
    rows = [file for file in files if not command_inputs.are_lists(file)]
    if parsed.qrels is not None and not rows:
        raise ValueError(
            "Qrels should be left out with files written by --per-list, whose values "
            f"are already computed. Received: {parsed.qrels!r}"
        )
    return rows


def _results(parsed: Namespace, found: dict[str, Evaluation]) -> dict[str, Table]:
    """The tables to print, by name."""
    how = {"cluster": parsed.cluster, "confidence": parsed.confidence}
    tables: dict[str, Callable[[Evaluation], Table]] = {}
    if parsed.print_lists:
        tables["per_list"] = lambda ev: Table(ev.per_list.to_pydict())
    if parsed.health:
        tables["health"] = lambda ev: without_notes(ev.health())
    tables["summary"] = lambda ev: ev.summary(parsed.by, **how)
    return {
        kind: joined({name: table_of(ev) for name, ev in found.items()})
        for kind, table_of in tables.items()
    }


def _warnings_of(found: Mapping[str, Evaluation]) -> list[str]:
    """The warnings of evaluations, with names if there are several."""
    return [
        f"{name}: {warning}" if len(found) > 1 else warning
        for name, ev in found.items()
        for warning in ev.warnings
    ]
