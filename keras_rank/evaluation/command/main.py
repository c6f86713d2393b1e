"""Runs the command: evaluates or compares, and returns an exit code."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence

from keras_rank.evaluation import compare
from keras_rank.evaluation.command.contradictions import (
    require_apart,
    require_kept,
    require_once,
    require_used,
    require_writable,
)
from keras_rank.evaluation.command.gates import incomplete, shut, worse
from keras_rank.evaluation.command.inputs import (
    are_lists,
    evaluated,
    files_of,
    lists_of,
    metrics_of,
    rules_of,
    start_with_judgements,
)
from keras_rank.evaluation.command.options import parser_of
from keras_rank.evaluation.command.printing import joined, print_results, say
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.measures import measured_of
from keras_rank.evaluation.report.table import Table
from keras_rank.reading.forms import is_table

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
    files = files_of(parsed)
    if parsed.qrels is None and start_with_judgements(files, parsed):
        parsed.qrels, *files = files
        if not files:
            raise ValueError(
                f"Qrels should be followed by runs, and {_TABLES}. "
                f"Received: {parsed.qrels!r}"
            )
    require_once(files)
    require_apart(parsed.qrels, files)
    rows = [file for file in files if not are_lists(file)]
    require_used(parsed, rows)
    sources = files if parsed.qrels is not None else [files]
    if parsed.per_list is not None:
        inputs = [*files, *filter(None, [parsed.qrels])]
        require_writable(parsed.per_list, sources, inputs)
    if rows == files:
        metrics = metrics_of(parsed)
        measured, rules = [*map(measured_of, metrics.members)], rules_of(parsed)
        gates = [gate.among(measured, rules) for gate in parsed.gates]
        found = {str(each): evaluated(parsed, each, metrics) for each in sources}
    elif len(files) > 1:
        raise ValueError(
            "A file written by --per-list should be the only file of evaluate; compare "
            f"takes several. Received: {', '.join(files)}"
        )
    else:
        lists = lists_of(files[0], parsed.metrics)
        require_kept(parsed, files[0], lists._values.kept)
        gates = [x.among(lists._values.metrics, lists.rules) for x in parsed.gates]
        found = {files[0]: lists}
    if parsed.per_list is not None:
        next(iter(found.values())).write(parsed.per_list)
    results = _results(parsed, found)
    failed = shut(gates, results["summary"])
    return _reported(results, _warnings_of(found), parsed.output, failed)


def _compare(parsed: argparse.Namespace) -> int:
    files = files_of(parsed)
    if len(files) < 2:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {', '.join(files)}"
        )
    require_once(files[1:])
    require_apart(parsed.qrels, files)
    for file in files:
        if parsed.qrels is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgements: --qrels FILE; and "
                f"{_TABLES}. Received: {file!r}"
            )
    rows = [file for file in files if not are_lists(file)]
    require_used(parsed, rows)
    metrics = metrics_of(parsed) if rows else None
    found = {
        file: evaluated(parsed, file, metrics)
        if metrics is not None and file in rows
        else lists_of(file, parsed.metrics)
        for file in files
    }
    for file in files[1:]:
        if file not in rows:
            require_kept(parsed, file, found[file]._values.kept)
    base = found[files[0]]
    comparison = compare(
        base,
        {file: found[file] for file in files[1:]},
        by=parsed.by,
        test=parsed.test,
        correction=None if parsed.correction == "none" else parsed.correction,
        cluster=parsed.cluster,
        confidence=parsed.confidence,
    )
    notes = [*comparison.notes, *_warnings_of(found)]
    failed: list[str] = []
    if parsed.fail_if_worse:
        models = {file: found[file]._values for file in files[1:]}
        failed += incomplete(models, base._values)
        failed += worse(comparison, base._values, parsed.confidence)
    results = {"comparison": Table(comparison.columns)}
    return _reported(results, notes, parsed.output, failed)


def _results(
    parsed: argparse.Namespace, found: Mapping[str, Evaluation]
) -> dict[str, Table]:
    """The tables to print, by name."""
    results: dict[str, dict[str, Table]] = {}
    for name, ev in found.items():
        of_run = {}
        if parsed.print_lists:
            of_run["per_list"] = Table(ev.per_list.to_pydict())
        if parsed.health:
            of_run["health"] = Table(ev.health().columns)
        cluster, confidence = parsed.cluster, parsed.confidence
        of_run["summary"] = ev.summary(
            parsed.by, cluster=cluster, confidence=confidence
        )
        for kind, table in of_run.items():
            results.setdefault(kind, {})[name] = table
    return {kind: joined(tables) for kind, tables in results.items()}


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
