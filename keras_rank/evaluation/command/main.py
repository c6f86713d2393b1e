"""Runs the command: evaluates or compares, and returns an exit code."""

import contextlib
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from keras_rank.evaluation import compare
from keras_rank.evaluation.command import gates, inputs, printing, trec_eval
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.metric_names import measured_of
from keras_rank.evaluation.report.plots import require_matplotlib
from keras_rank.evaluation.report.table import Table, without_notes
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.layouts import is_table

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
            printing.print_results(results, notes, parsed.output or "table")
            sys.stdout.flush()
        except BrokenPipeError:
            # Its reader has closed the pipe: the rest is dropped.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        for line in failed:
            printing.say(line)
        return int(bool(failed))
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        printing.say(f"error: {' '.join(str(error).split())}")
        return 2
    except Exception:
        # Not 1, which is the code of a gate.
        traceback.print_exc()
        return 2


def _evaluate(parsed: Namespace) -> _Report:
    trec_eval.require_used(parsed)
    given = inputs.models_of(parsed)
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
        inputs.require_writable(parsed, given, len(sources) == 1)
    if rows:
        metrics, rules = inputs.metrics_of(parsed), inputs.rules_of(parsed)
        known = [measured_of(metric) for metric in metrics.members]
        bounds = [gates.Gate.of(*x).among(known, rules) for x in parsed.gates]
        found = {str(x): inputs.evaluation_of(parsed, x, metrics) for x in sources}
    else:
        stored = inputs.evaluation_of(parsed, given[0])
        known = stored._values.metrics
        bounds = [gates.Gate.of(*x).among(known, stored.rules) for x in parsed.gates]
        found = {given[0]: stored}
    if parsed.per_list is not None:
        next(iter(found.values())).write(parsed.per_list)
    results = _results(parsed, found)
    failed = list(gates.shut(bounds, results["summary"]))
    if parsed.output == "trec_eval":
        lines = [*trec_eval.lines_of(found, parsed.print_lists)]
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
    metrics = inputs.metrics_of(parsed) if _rows_of(parsed, given, others) else None
    base = _baseline_of(parsed, first, metrics)
    models = {file: inputs.evaluation_of(parsed, file, metrics) for file in others}
    comparison = compare(base, models, **_how_to_compare(parsed))
    notes = [*comparison.notes, *_warnings_of({first: base, **models})]
    failed: list[str] = []
    if parsed.fail_if_worse:
        values = {file: model._values for file, model in models.items()}
        worse, doubtful = gates.worse(comparison, base._values, parsed.confidence)
        failed += [*gates.incomplete(values, base._values), *worse]
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
    sources = inputs.models_of(parsed)
    baseline = [parsed.baseline] if parsed.baseline else []
    rows = _rows_of(parsed, [*sources, *baseline], sources) if sources else []
    is_table = parsed.qrels is None and set(sources) <= set(rows)
    if not (is_table or len(sources) == 1):
        raise ValueError(
            "A page should be of one model, to compare with a --baseline. Received: "
            f"{', '.join(sources) or 'none'}"
        )
    inputs.require_no_input("--output", output, [*sources, *baseline], parsed)
    if parsed.keep_items is None and (parsed.qrels or parsed.item):
        parsed.keep_items = _ITEMS
    metrics = inputs.metrics_of(parsed) if rows else None
    source = sources if is_table else sources[0]
    new = inputs.evaluation_of(parsed, source, metrics)
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
    return inputs.evaluation_of(Namespace(**{**vars(parsed), **without}), file, metrics)


def _how_to_compare(parsed: Namespace) -> dict[str, Any]:
    """The arguments of `compare`."""
    names = ("by", "test", "cluster", "confidence")
    correction = None if parsed.correction == "none" else parsed.correction
    return {name: getattr(parsed, name) for name in names} | {"correction": correction}


def _rows_of(parsed: Namespace, files: list[str], models: list[str]) -> list[str]:
    """Returns the files that hold rows. Raises `ValueError` for conflicting files."""
    inputs.require_distinct(parsed.qrels, files, models)
    rows = [file for file in files if not inputs.are_lists(file)]
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
        kind: printing.joined({name: table_of(ev) for name, ev in found.items()})
        for kind, table_of in tables.items()
    }


def _warnings_of(found: Mapping[str, Evaluation]) -> list[str]:
    """The warnings of evaluations, with names if there are several."""
    return [
        f"{name}: {warning}" if len(found) > 1 else warning
        for name, ev in found.items()
        for warning in ev.warnings
    ]
