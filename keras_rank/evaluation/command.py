"""The subcommands of `keras-rank`: evaluate, compare and report."""

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
from keras_rank.evaluation.lists.metric_names import MetricInfo, describe_metric, find
from keras_rank.evaluation.report.comparison import find_baseline_rows
from keras_rank.evaluation.report.plots import require_matplotlib
from keras_rank.evaluation.report.table import Table, drop_notes, plain_rows
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.files import is_table

# The direction of the metrics of a gate, and the word for better values, by the side of
# the bound on which the gate fails.
SIDES = {"below": ("up", "higher"), "above": ("down", "lower")}


class Gate(NamedTuple):
    """A bound of a metric, and the side of the bound on which the gate fails."""

    side: str
    metric: str
    bound: float

    @classmethod
    def parse(cls, side: str, text: str) -> "Gate":
        """Parses the text of a gate, such as `ndcg@10=0.40`."""
        metric, _, bound = text.rpartition("=")
        try:
            if metric and math.isfinite(float(bound)):
                return cls(side, metric.strip(), float(bound))
        except ValueError:
            pass
        raise ValueError(
            f"--fail-{side} should be such as ndcg@10=0.40. Received: {text!r}"
        )

    def is_failing(self, value: float) -> bool:
        """Returns whether the gate fails for a value."""
        # Numbers are rounded as they are printed: a float32 mean of 0.7 may be
        # 0.69999999.
        value, bound = float(_format_digits(value)), float(_format_digits(self.bound))
        # All comparisons with NaN are False, so that the gate fails.
        is_passed = value >= bound if self.side == "below" else value <= bound
        return not is_passed

    def resolve_metric(
        self, metrics: Sequence[MetricInfo], rules: str | None
    ) -> "Gate":
        """Returns the gate with the exact name of its metric.

        Raises `ValueError` if there is no such metric, or its direction is wrong.

        Args:
            metrics: the metrics of the evaluation.
            rules: the rules of the evaluation, `None` for a table.
        """
        direction, better = SIDES[self.side]
        metric = find(self.metric, metrics, rules)
        if metric is None or metric.direction != direction:
            names = [each.name for each in metrics if each.direction == direction]
            raise ValueError(
                f"--fail-{self.side} should name a metric where {better} is better"
                f"{f', one of {names}' if names else ', and there is none'}. "
                f"Received: {self.metric!r}"
            )
        return self._replace(metric=metric.name)


def describe_failures(bounds: Sequence[Gate], summary: Table) -> Iterator[str]:
    """Yields descriptions of the rows for which gates fail."""
    for gate in bounds:
        for row in summary:
            if row["metric"] == gate.metric and gate.is_failing(row["value"]):
                value, bound = _format_digits(row["value"]), _format_digits(gate.bound)
                yield f"{_describe_row(row)} is {value}, {gate.side} {bound}"


def describe_incomplete(
    models: Mapping[str, ListTable], baseline: ListTable
) -> Iterator[str]:
    """Yields descriptions of queries and metrics of the baseline that models lack.

    A model that lacks them may be worse than the baseline.
    """
    for name, model in models.items():
        for metric in baseline.metric_names:
            if model.find(metric) is None:
                yield f"{name} lacks {metric} of the baseline"
        missing = len(baseline) - int((find_baseline_rows(model, baseline) >= 0).sum())
        if missing:
            yield f"{name} lacks {missing} of {len(baseline)} queries of the baseline"


def describe_worse(
    comparison: Table, baseline: ListTable, confidence: float
) -> tuple[list[str], list[str]]:
    """Returns descriptions of metrics that are significantly worse, and warnings.

    The corrected p-value decides if there is a correction. It grows with the number of
    rows. Metrics that are significantly worse by the uncorrected p-value alone would
    fail if they were compared alone, so there are warnings about them.
    """
    failed, doubtful = [], []
    for row in comparison:
        metric = baseline.get_metric(row["metric"])
        sign = 1.0 if metric.direction == "up" else -1.0
        loss, level = -sign * row["difference"], 1.0 - confidence
        # If the loss or p is NaN, as for too few lists, the comparisons are False and
        # the metric counts as worse. A smaller sum is not worse.
        if loss <= 0.0 or row["p"] >= level or metric.reduction == "sum":
            continue
        text = f"{_describe_row(row)} is worse by {loss:.4f}, p={row['p']:.2g}"
        if "corrected_p" in row:
            text += f", corrected p={row['corrected_p']:.2g}"
        if row.get("corrected_p", row["p"]) >= level:
            doubtful.append(f"Warning: {text}: the gate reads the corrected p")
        else:
            failed.append(text)
    return failed, doubtful


def _format_digits(value: float) -> str:
    """Returns a number with the significant digits of float32."""
    return f"{value:.6g}"


def _describe_row(row: Mapping[str, Any]) -> str:
    """Returns the metric of a row, with its run, model and slice."""
    parts = [str(row[x]) for x in itertools.takewhile(lambda x: x != "metric", row)]
    return f"{row['metric']} of {' '.join(parts)}" if parts else row["metric"]


# The functions that format a table for `--output`.
_FORMATTERS: dict[str, Callable[[Table], str]] = {
    "table": str,
    "tsv": Table.to_tsv,
    "markdown": Table.to_markdown,
    "html": Table.to_html,
    "trec_eval": lambda table: "\n".join(table["line"]),
}


def print_results(results: dict[str, Table], warnings: list[str], output: str) -> None:
    """Prints tables, notes and warnings.

    Args:
        results: dict from names to tables.
        warnings: the warnings.
        output: the value of `--output`.
    """
    notes = [note for table in results.values() for note in table.notes]
    if output == "json":
        data = {name: plain_rows(table) for name, table in results.items()}
        print(json.dumps({**data, "notes": notes, "warnings": warnings}, indent=1))
    elif results:
        print("\n\n".join(map(_FORMATTERS[output], results.values())))
    has_separate_notes = output in ("tsv", "trec_eval")
    for line in [*(notes if has_separate_notes else []), *warnings]:
        print_message(line)


def join_tables(tables: Mapping[str, Table]) -> Table:
    """Concatenates the tables of runs, with a column of names if there are several."""
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
    marked = [x for table in tables.values() for x in table.marks.is_marked]
    marks = first.marks._replace(is_marked=marked)
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


def print_message(text: str) -> None:
    """Prints a line to stderr."""
    print(f"keras-rank: {text}", file=sys.stderr)


# The classes of metrics that trec_eval prints for all queries together, not per query.
_SUMMARY_METRICS = ("NumQ", "GeometricMeanAveragePrecision")


def resolve_output(parsed: Namespace) -> None:
    """Sets the default of `--output`.

    Raises `ValueError` if an option does not apply to the format.
    """
    default = "trec_eval" if "official" in parsed.metrics else "table"
    parsed.output = parsed.output or default
    unused = [x for x in ("by", "cluster", "health") if getattr(parsed, x)]
    if parsed.output == "trec_eval" and unused:
        raise ValueError(
            f"--{unused[0]} should come with another format, such as --output table: "
            f"trec_eval has no place for it. Received: --{unused[0]}"
        )


def iter_lines(
    evaluations: Mapping[str, Evaluation], has_queries: bool
) -> Iterator[str]:
    """Yields lines in the format of trec_eval.

    Args:
        evaluations: dict from names to evaluations. The names become run ids if there
            are several.
        has_queries: whether there are lines for each query.
    """
    for name, ev in evaluations.items():
        list_names = [
            x.name for x in ev._values.metrics if x.class_name not in _SUMMARY_METRICS
        ]
        rows = ev.per_list.to_pylist() if has_queries else []
        for row in sorted(rows, key=lambda row: str(row[ev.query])):
            yield from _iter_value_lines({x: row[x] for x in list_names}, row[ev.query])
        ids = {"runid": name} if len(evaluations) > 1 else {}
        yield from _iter_value_lines(ids | ev.to_dict(), "all")


def _iter_value_lines(values: Mapping[str, Any], query: Any) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            text = f"{value:6.4f}" if isinstance(value, float) else value
            yield f"{name:<22}\t{query}\t{text}"


# Tables by name, warnings, and descriptions of failures.
_Report: TypeAlias = tuple[dict[str, Table], list[str], list[str]]
# The default name of the page, and the default number of items of the worst queries.
_DEFAULT_PAGE = "report.html"
_NUM_PAGE_ITEMS = 10
_TABLE_HINT = "the name of a table should end in .parquet, .csv, .jsonl or .arrow"


def run(parsed: Namespace) -> int:
    """Runs the command with parsed options, and returns its exit code."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:
            # Standard error is closed. Otherwise the next file to be opened would get
            # its file descriptor.
            null_file = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(null_file))
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
            # The reader has closed the pipe, so the rest of the output is discarded.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        for line in failed:
            print_message(line)
        return int(bool(failed))
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        print_message(f"error: {' '.join(str(error).split())}")
        return 2
    except Exception:
        # The exit code 1 means that a gate failed.
        traceback.print_exc()
        return 2


def _evaluate(parsed: Namespace) -> _Report:
    resolve_output(parsed)
    models = command_inputs.get_models(parsed)
    if not models:
        raise ValueError(
            f"Qrels should be followed by runs, and {_TABLE_HINT}. "
            f"Received: {parsed.qrels!r}"
        )
    rows = _find_row_files(parsed, models, models)
    sources = models if parsed.qrels is not None or not rows else [models]
    if rows != models and len(models) > 1:
        raise ValueError(
            "A file written by --per-list should be the only file of evaluate; compare "
            f"takes several. Received: {', '.join(models)}"
        )
    if parsed.per_list is not None:
        command_inputs.require_writable(parsed, models, len(sources) == 1)
    if rows:
        metrics, rules = (
            command_inputs.create_metrics(parsed),
            command_inputs.get_rules(parsed),
        )
        known = [describe_metric(metric) for metric in metrics.members]
        bounds = [Gate.parse(*x).resolve_metric(known, rules) for x in parsed.gates]
        evaluations = {
            str(x): command_inputs.create_evaluation(parsed, x, metrics)
            for x in sources
        }
    else:
        stored = command_inputs.create_evaluation(parsed, models[0])
        known = stored._values.metrics
        bounds = [
            Gate.parse(*x).resolve_metric(known, stored.rules) for x in parsed.gates
        ]
        evaluations = {models[0]: stored}
    if parsed.per_list is not None:
        next(iter(evaluations.values())).write(parsed.per_list)
    results = _create_tables(parsed, evaluations)
    failed = list(describe_failures(bounds, results["summary"]))
    if parsed.output == "trec_eval":
        lines = [*iter_lines(evaluations, parsed.print_lists)]
        results = {"": Table({"line": lines}, notes=results["summary"].notes)}
    return results, _collect_warnings(evaluations), failed


def _compare(parsed: Namespace) -> _Report:
    first, *others = files = parsed.files
    if not others:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {first}"
        )
    for file in files:
        if parsed.qrels is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgments: --qrels FILE; and "
                f"{_TABLE_HINT}. Received: {file!r}"
            )
    metrics = (
        command_inputs.create_metrics(parsed)
        if _find_row_files(parsed, files, others)
        else None
    )
    base = _evaluate_baseline(parsed, first, metrics)
    models = {
        file: command_inputs.create_evaluation(parsed, file, metrics) for file in others
    }
    comparison = compare(base, models, **_get_comparison_arguments(parsed))
    notes = [*comparison.notes, *_collect_warnings({first: base, **models})]
    failed: list[str] = []
    if parsed.fail_if_worse:
        values = {file: model._values for file, model in models.items()}
        worse, doubtful = describe_worse(comparison, base._values, parsed.confidence)
        failed += [*describe_incomplete(values, base._values), *worse]
        notes += doubtful
    return {"comparison": drop_notes(comparison)}, notes, failed


def _write_page(parsed: Namespace) -> _Report:
    require_matplotlib("report")
    if parsed.output is None and os.path.exists(_DEFAULT_PAGE):
        raise ValueError(
            f"--output should name the page, as {_DEFAULT_PAGE} is there already: "
            f"--output {_DEFAULT_PAGE} replaces it. Received: no --output"
        )
    output = _DEFAULT_PAGE if parsed.output is None else parsed.output
    sources = command_inputs.get_models(parsed)
    baseline = [parsed.baseline] if parsed.baseline else []
    rows = _find_row_files(parsed, [*sources, *baseline], sources) if sources else []
    is_table = parsed.qrels is None and set(sources) <= set(rows)
    if not (is_table or len(sources) == 1):
        raise ValueError(
            "A page should be of one model, to compare with a --baseline. Received: "
            f"{', '.join(sources) or 'none'}"
        )
    command_inputs.require_no_input("--output", output, [*sources, *baseline], parsed)
    if parsed.keep_items is None and (parsed.qrels or parsed.item):
        parsed.keep_items = _NUM_PAGE_ITEMS
    metrics = command_inputs.create_metrics(parsed) if rows else None
    source = sources if is_table else sources[0]
    new = command_inputs.create_evaluation(parsed, source, metrics)
    base = _evaluate_baseline(parsed, parsed.baseline, metrics) if baseline else None
    arguments = {"title": parsed.title, **_get_comparison_arguments(parsed)}
    arguments["names"] = [", ".join(sources), *baseline]
    new.report(output, baseline=base, **arguments)
    return {}, [f"The page is in {output}", *new.warnings], []


def _evaluate_baseline(
    parsed: Namespace, file: str, metrics: RankingMetrics | None
) -> Evaluation:
    """Evaluates a baseline, without kept columns, slices and clusters."""
    overrides: dict[str, Any] = {"by": [], "keep": [], "cluster": None}
    return command_inputs.create_evaluation(
        Namespace(**{**vars(parsed), **overrides}), file, metrics
    )


def _get_comparison_arguments(parsed: Namespace) -> dict[str, Any]:
    """Returns the keyword arguments of `compare`."""
    names = ("by", "test", "cluster", "confidence")
    correction = None if parsed.correction == "none" else parsed.correction
    return {name: getattr(parsed, name) for name in names} | {"correction": correction}


def _find_row_files(
    parsed: Namespace, files: list[str], models: list[str]
) -> list[str]:
    """Returns the files that hold rows. Raises `ValueError` for conflicting files."""
    command_inputs.require_distinct(parsed.qrels, files, models)
    rows = [file for file in files if not command_inputs.is_per_list_file(file)]
    if parsed.qrels is not None and not rows:
        raise ValueError(
            "Qrels should be left out with files written by --per-list, whose values "
            f"are already computed. Received: {parsed.qrels!r}"
        )
    return rows


def _create_tables(
    parsed: Namespace, evaluations: dict[str, Evaluation]
) -> dict[str, Table]:
    """Returns the tables to print, by name."""
    arguments = {"cluster": parsed.cluster, "confidence": parsed.confidence}
    tables: dict[str, Callable[[Evaluation], Table]] = {}
    if parsed.print_lists:
        tables["per_list"] = lambda ev: Table(ev.per_list.to_pydict())
    if parsed.health:
        tables["health"] = lambda ev: drop_notes(ev.health())
    tables["summary"] = lambda ev: ev.summary(parsed.by, **arguments)
    return {
        name: join_tables({name: table_of(ev) for name, ev in evaluations.items()})
        for name, table_of in tables.items()
    }


def _collect_warnings(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Returns the warnings of evaluations, with their names if there are several."""
    return [
        f"{name}: {warning}" if len(evaluations) > 1 else warning
        for name, ev in evaluations.items()
        for warning in ev.warnings
    ]
