"""Runs the command: evaluates or compares, and returns an exit code."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence

from keras_rank.evaluation import compare
from keras_rank.evaluation.command import gates, inputs, option_checks
from keras_rank.evaluation.command.options import parser_of
from keras_rank.evaluation.command.printing import joined, print_results, say
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.metric_names import measured_of
from keras_rank.evaluation.report.table import Table
from keras_rank.reading.layouts import is_table

_TABLES = "the name of a table should end in .parquet, .csv, .jsonl or .arrow"


def run(arguments: Sequence[str]) -> int:
    """Runs the command, and returns its exit code."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:
            # Closed. The next file that is opened must not take its place.
            nothing = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nothing))
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        if sys.stdout is None:
            raise ValueError("Standard output should be open, as results go there.")
        parsed = parser_of(_evaluate, _compare).parse_args(arguments)
        exit_code: int = parsed.function(parsed)
        sys.stdout.flush()
        return exit_code
    except BrokenPipeError:
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        say(f"error: {' '.join(str(error).split())}")
        return 2
    except Exception:
        # Not 1, which is the code of a gate.
        traceback.print_exc()
        return 2


def _evaluate(parsed: argparse.Namespace) -> int:
    files = inputs.files_of(parsed)
    if parsed.qrels is None and inputs.start_with_judgements(files, parsed):
        parsed.qrels, *files = files
        if not files:
            raise ValueError(
                f"Qrels should be followed by runs, and {_TABLES}. "
                f"Received: {parsed.qrels!r}"
            )
    rows = _rows_of(parsed, files, files)
    sources = files if parsed.qrels is not None or not rows else [files]
    if rows != files and len(files) > 1:
        raise ValueError(
            "A file written by --per-list should be the only file of evaluate; compare "
            f"takes several. Received: {', '.join(files)}"
        )
    if parsed.per_list is not None:
        option_checks.require_writable(parsed, files, len(sources) == 1)
    if rows:
        metrics, rules = inputs.metrics_of(parsed), inputs.rules_of(parsed)
        known = [measured_of(metric) for metric in metrics.members]
        bounds = [gate.among(known, rules) for gate in parsed.gates]
        found = {str(x): inputs.evaluation_of(parsed, x, metrics) for x in sources}
    else:
        stored = inputs.evaluation_of(parsed, files[0])
        known = stored._values.metrics
        bounds = [gate.among(known, stored.rules) for gate in parsed.gates]
        found = {files[0]: stored}
    if parsed.per_list is not None:
        next(iter(found.values())).write(parsed.per_list)
    results = _results(parsed, found)
    failed = gates.shut(bounds, results["summary"])
    return _reported(results, _warnings_of(found), parsed.output, failed)


def _compare(parsed: argparse.Namespace) -> int:
    first, *others = files = inputs.files_of(parsed)
    if not others:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {first}"
        )
    for file in files:
        if parsed.qrels is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgements: --qrels FILE; and "
                f"{_TABLES}. Received: {file!r}"
            )
    metrics = inputs.metrics_of(parsed) if _rows_of(parsed, files, others) else None
    # Those of a baseline need not be kept.
    of_baseline = argparse.Namespace(**{**vars(parsed), "by": [], "cluster": None})
    base = inputs.evaluation_of(of_baseline, first, metrics)
    models = {file: inputs.evaluation_of(parsed, file, metrics) for file in others}
    comparison = compare(
        base,
        models,
        by=parsed.by,
        test=parsed.test,
        correction=None if parsed.correction == "none" else parsed.correction,
        cluster=parsed.cluster,
        confidence=parsed.confidence,
    )
    notes = [*comparison.notes, *_warnings_of({first: base, **models})]
    failed: list[str] = []
    if parsed.fail_if_worse:
        values = {file: model._values for file, model in models.items()}
        failed += gates.incomplete(values, base._values)
        failed += gates.worse(comparison, base._values, parsed.confidence)
    results = {"comparison": Table(comparison.columns)}
    return _reported(results, notes, parsed.output, failed)


def _rows_of(
    parsed: argparse.Namespace, files: Sequence[str], models: Sequence[str]
) -> list[str]:
    """The files that hold rows. Raises for files and options that contradict."""
    option_checks.require_distinct(parsed.qrels, files, models)
    rows = [file for file in files if not inputs.are_lists(file)]
    option_checks.require_used(parsed, rows)
    return rows


def _results(
    parsed: argparse.Namespace, found: Mapping[str, Evaluation]
) -> dict[str, Table]:
    """The tables to print, by name."""
    how = {"cluster": parsed.cluster, "confidence": parsed.confidence}
    tables: dict[str, Callable[[Evaluation], Table]] = {}
    if parsed.print_lists:
        tables["per_list"] = lambda ev: Table(ev.per_list.to_pydict())
    if parsed.health:
        tables["health"] = lambda ev: Table(ev.health().columns)
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


def _reported(
    results: Mapping[str, Table],
    warnings: Sequence[str],
    output: str,
    failed: Iterable[str],
) -> int:
    """Prints results and which gates failed, and returns the exit code."""
    lines = list(failed)
    try:
        print_results(results, warnings, output)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    for line in lines:
        say(line)
    return int(bool(lines))


def _drop_output() -> None:
    """Drops the rest of the output, as its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
