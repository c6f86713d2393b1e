"""The command `keras-rank`: values on stdout, all else on stderr, and an exit code.

0: done. 1: done, and a gate that was asked for (`--fail-below`, `--fail-above`,
`--fail-if-worse`) failed. 2: an error, which one line on stderr names.
"""

import argparse
import contextlib
import functools
import glob
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
from pyarrow import parquet

import keras_rank
from keras_rank import evaluation
from keras_rank.arguments import GAINS
from keras_rank.evaluation.comparison import CORRECTIONS, TESTS
from keras_rank.evaluation.evaluation import Evaluation, compare
from keras_rank.evaluation.files import is_table
from keras_rank.evaluation.measures import (
    RULES,
    Measured,
    find,
    measured_of,
    members_of,
)
from keras_rank.evaluation.reading import Columns
from keras_rank.evaluation.scored import DUPLICATES, TIES, UNJUDGED
from keras_rank.evaluation.table import Table, plain_rows
from keras_rank.evaluation.trec import are_judgements
from keras_rank.metrics.group import RankingMetrics

EXAMPLES = """examples:
  keras-rank evaluate qrels run -m map ndcg@10
  keras-rank evaluate 'rows/*.parquet' --query qid --score pred --by market
  keras-rank compare base.parquet new.parquet -m ndcg@10 mrr --fail-if-worse"""
# How a table is printed, by the name of `--output`.
_TEXTS: dict[str, Callable[[Table], str]] = {
    "table": str,
    "tsv": Table.to_tsv,
    "markdown": Table.to_markdown,
}
# The options that have no effect on runs, which have no such columns.
_OF_ROWS = ("by", "cluster", "keep", "weight", "duplicates")
# Those that have none on values that are computed already.
_OF_READING = (
    *("qrels", "query", "label", "score", "item", "weight", "keep", "memory_limit"),
    *("rules", "ties", "unjudged", "duplicates", "gains", "relevance_threshold"),
)
# On which side of a bound a gate is shut: the direction of its metrics, in words too.
_SIDES = {"below": ("up", "higher"), "above": ("down", "lower")}


def run(arguments: Sequence[str]) -> int:
    """Runs the command, and returns its exit code."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:
            # Closed: nobody reads, and what is opened next is not to be written to.
            nothing = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nothing))
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        if sys.stdout is None:
            raise ValueError("Standard output should be open, as results go there.")
        parsed = _parser().parse_args(arguments)
        exit_code: int = parsed.function(parsed)
        sys.stdout.flush()
        return exit_code
    except BrokenPipeError:
        # Whoever reads has enough. What is left to be written is dropped.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2
    except Exception:
        # An error of ours: not 1, which is that of a gate.
        traceback.print_exc()
        return 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line, and whose options are written in full."""

    def __init__(self, **arguments: Any) -> None:
        # An option that is added later would break what is abbreviated now.
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="keras-rank",
        description="Evaluates rankings that are already scored.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=keras_rank.__version__)
    commands = parser.add_subparsers(required=True, metavar="evaluate | compare")
    evaluate = commands.add_parser(
        "evaluate",
        help="metrics of a table, or of runs against judgements",
        description="Evaluates a table with a row for each item of each query, in one "
        "or more files of Parquet, CSV, JSON lines or Arrow; a file that --per-list "
        "wrote; or runs against judgements, in the formats of TREC.",
    )
    evaluate.set_defaults(function=_evaluate)
    evaluate.add_argument(
        "files",
        nargs="*",
        help="the files of one table, with the scores of one model; or qrels and runs",
    )
    _add_common(evaluate)
    _add_of_evaluate(evaluate)
    compare = commands.add_parser(
        "compare",
        help="models against a baseline, query by query",
        description="Compares models with the first one, query by query. Each is a "
        "table of rows, a file that --per-list wrote, or a run.",
    )
    compare.set_defaults(function=_compare, keep=[])
    compare.add_argument("files", nargs="*", help="the baseline, then the models")
    _add_common(compare)
    _add_of_compare(compare)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        *("-m", "--metrics"),
        nargs="+",
        action="extend",
        help="such as recall@20, recall_20 or R@20 (default: ndcg@10 map mrr)",
    )
    add(
        "-j", "--qrels", metavar="FILE", help="relevance judgements (qrels) of the runs"
    )
    _add_of_rows(parser)
    add(
        "--gains",
        choices=sorted(GAINS),
        help="the gains of labels in ndcg and dcg (default: as --rules says, and "
        "exponential in tables)",
    )
    add(
        "--relevance-threshold",
        type=float,
        metavar="LABEL",
        help="the lowest label of a relevant item",
    )
    add(
        "--confidence",
        type=float,
        metavar="LEVEL",
        default=0.95,
        help="the confidence level of the intervals (default: 0.95)",
    )
    add(
        *("-o", "--output"),
        choices=[*_TEXTS, "json"],
        default="table",
        help="the format of the results (default: table)",
    )


def _add_of_rows(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    of_columns = {
        "query": "the column of the queries (default: query_id)",
        "label": "the column of the labels (default: label)",
        "score": "the column of the scores (default: score)",
        "item": "the column of the items, to find those that a query has twice",
        "weight": "the column of the weights of the items",
    }
    for name, help_ in of_columns.items():
        add(f"--{name}", metavar="COLUMN", default=argparse.SUPPRESS, help=help_)
    add(
        "--by",
        metavar="COLUMN",
        nargs="+",
        default=[],
        help="compute a mean for each value of the columns",
    )
    add(
        "--cluster",
        metavar="COLUMN",
        help="a column, such as the user, whose lists are not independent",
    )
    choices = {
        "rules": (
            RULES,
            "whose numbers to print, for qrels and runs (default: trec_eval)",
        ),
        "ties": (
            TIES,
            "the order of tied items: as each metric says, or as in trec_eval, which "
            "is the default for qrels and runs",
        ),
        "unjudged": (UNJUDGED, "what to do with items without a label"),
        "duplicates": (
            DUPLICATES,
            "what to do with items that a query has twice; needs --item",
        ),
    }
    for name, (values, help_) in choices.items():
        add(f"--{name}", choices=values, default=argparse.SUPPRESS, help=help_)
    add(
        "--memory-limit",
        metavar="SIZE",
        default=argparse.SUPPRESS,
        help="the memory to use, such as 2GB",
    )


def _add_of_evaluate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        *("-q", "--print-lists"),
        action="store_true",
        help="print the values of each query",
    )
    add(
        "--per-list",
        metavar="FILE",
        help="write the values of each query to a Parquet file, which compare reads",
    )
    add(
        "--keep",
        metavar="COLUMN",
        nargs="+",
        default=[],
        help="columns to show with --print-lists, and to write with --per-list",
    )
    add(
        "--health",
        action="store_true",
        help="print all checks of what might make the numbers misleading",
    )
    for side, (_, better) in _SIDES.items():
        add(
            f"--fail-{side}",
            metavar="METRIC=VALUE",
            dest="gates",
            action="append",
            default=[],
            type=functools.partial(_gate, side),
            help=f"exit with 1 if a metric is {side} a value, in any slice of --by; "
            f"for metrics where {better} is better; may be repeated",
        )


def _add_of_compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--test",
        choices=TESTS,
        default="t",
        help="the paired t-test, or a permutation test (default: t)",
    )
    add(
        "--correction",
        choices=[*CORRECTIONS, "none"],
        default="holm",
        help="the correction of p for multiple comparisons (default: holm)",
    )
    add(
        "--fail-if-worse",
        action="store_true",
        help="exit with 1 if a model is worse, and p is below 1 - confidence",
    )


class _Gate(NamedTuple):
    """What a metric has to hold, and on which side of it the gate is shut."""

    side: str
    metric: str
    bound: float

    def is_shut(self, value: float) -> bool:
        # As they are printed: a mean of float32 may be 0.69999999 where it is 0.7.
        value, bound = float(_digits(value)), float(_digits(self.bound))
        # A value that is not known, NaN, does not pass either.
        is_held = value >= bound if self.side == "below" else value <= bound
        return not is_held


def _digits(value: float) -> str:
    """The digits that are sure in a number of float32."""
    return f"{value:.6g}"


def _gate(side: str, text: str) -> _Gate:
    metric, _, bound = text.rpartition("=")
    try:
        if not metric:
            raise ValueError
        return _Gate(side, metric.strip(), float(bound))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"should be such as ndcg@10=0.40. Received: {text!r}"
        ) from None


def _rules(parsed: argparse.Namespace) -> str:
    return getattr(parsed, "rules", RULES[0]) if parsed.qrels is not None else "keras"


def _metrics(parsed: argparse.Namespace) -> RankingMetrics:
    """The metrics, with what was said of all of them."""
    named = members_of(parsed.metrics or ["ndcg@10", "map", "mrr"], _rules(parsed))
    members = []
    has_gains = ["gain_fn" in member.get_config() for member in named]
    if parsed.gains is not None and not any(has_gains):
        raise ValueError(
            "--gains should be left out without a metric of gains, such as ndcg. "
            f"Received: --gains {parsed.gains}"
        )
    for member in named:
        config = member.get_config()
        changed: dict[str, Any] = {}
        if parsed.gains is not None and "gain_fn" in config:
            changed["gain_fn"] = parsed.gains
        if parsed.relevance_threshold is not None:
            changed["relevance_threshold"] = parsed.relevance_threshold
        members.append(type(member).from_config({**config, **changed}))
    return RankingMetrics(members)


def _evaluate(parsed: argparse.Namespace) -> int:
    files = _files(parsed)
    if parsed.qrels is None and _starts_with_judgements(files, parsed):
        parsed.qrels, *files = files
        if not files:
            raise ValueError(
                "Qrels should be followed by runs, and the name of a table should "
                f"end in .parquet, .csv, .jsonl or .arrow. Received: {parsed.qrels!r}"
            )
    _require_once(files)
    rows = [file for file in files if not _is_evaluation(file)]
    _require_used(parsed, rows)
    sources = files if parsed.qrels is not None else [files]
    if parsed.per_list is not None:
        _require_one_parquet(parsed.per_list, sources)
        _require_no_input(parsed.per_list, [*files, *filter(None, [parsed.qrels])])
    if len(rows) < len(files):
        ev = _read_alone(files, parsed.metrics)
        gates = _gates_of(parsed.gates, ev._values.metrics, ev.rules)
        found = {files[0]: ev}
    else:
        metrics = _metrics(parsed)
        measured = [measured_of(member) for member in metrics.members]
        gates = _gates_of(parsed.gates, measured, _rules(parsed))
        found = {
            str(source): _evaluation(parsed, source, metrics) for source in sources
        }
    if parsed.per_list is not None:
        next(iter(found.values())).write(parsed.per_list)
    results = _results(parsed, found)
    _print(results, _warnings_of(list(found.items())), parsed.output)
    shut = list(_shut(gates, results["summary"]))
    for line in shut:
        _say(line)
    return int(bool(shut))


def _starts_with_judgements(files: Sequence[str], parsed: argparse.Namespace) -> bool:
    if len(files) == 1 or _is_evaluation(files[0]):
        return not is_table(files[0])
    return are_judgements(
        files[0],
        Columns(
            getattr(parsed, "query", "query_id"),
            getattr(parsed, "label", "label"),
            getattr(parsed, "score", "score"),
            getattr(parsed, "item", "item_id"),
        ),
    )


def _results(
    parsed: argparse.Namespace, found: Mapping[str, Evaluation]
) -> dict[str, Table]:
    """The tables that are printed, by their names."""
    results: dict[str, Table] = {}
    if parsed.print_lists:
        lists = {name: Table(ev.per_list.to_pydict()) for name, ev in found.items()}
        results["per_list"] = _joined(lists)
    if parsed.health:
        results["health"] = _joined(
            {name: Table(ev.health().columns) for name, ev in found.items()}
        )
    results["summary"] = _joined(
        {
            name: ev.summary(
                parsed.by, cluster=parsed.cluster, confidence=parsed.confidence
            )
            for name, ev in found.items()
        }
    )
    return results


def _shut(gates: Sequence[_Gate], summary: Table) -> Iterator[str]:
    """Says of each gate where it is shut."""
    for gate in gates:
        for row in summary:
            if row["metric"] == gate.metric and gate.is_shut(row["value"]):
                value, bound = _digits(row["value"]), _digits(gate.bound)
                yield f"{_metric_of(row)} is {value}, {gate.side} {bound}"


def _compare(parsed: argparse.Namespace) -> int:
    files = _files(parsed)
    if len(files) < 2:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {', '.join(files)}"
        )
    _require_once(files[1:])
    for file in files:
        if parsed.qrels is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgements: --qrels FILE; and "
                "the name of a table should end in .parquet, .csv, .jsonl or .arrow. "
                f"Received: {file!r}"
            )
    rows = [file for file in files if not _is_evaluation(file)]
    _require_used(parsed, rows)
    metrics = _metrics(parsed) if rows else None
    base, *models = [
        _evaluation(parsed, file, metrics)
        if metrics is not None and file in rows
        else _read(file, parsed.metrics)
        for file in files
    ]
    comparison = compare(
        base,
        dict(zip(files[1:], models, strict=True)),
        by=parsed.by,
        test=parsed.test,
        correction=None if parsed.correction == "none" else parsed.correction,
        cluster=parsed.cluster,
        confidence=parsed.confidence,
    )
    of_files = list(zip(files, [base, *models], strict=True))
    notes = [*comparison.notes, *_warnings_of(of_files)]
    _print({"comparison": Table(comparison.columns)}, notes, parsed.output)
    if not parsed.fail_if_worse:
        return 0
    worse = list(_worse(comparison, base, parsed))
    for line in worse:
        _say(line)
    return int(bool(worse))


def _worse(
    comparison: Table, base: Evaluation, parsed: argparse.Namespace
) -> Iterator[str]:
    """Says which metrics are worse, by more than chance."""
    directions = _directions(base)
    for row in comparison:
        sign = 1.0 if directions[row["metric"]] == "up" else -1.0
        p = row.get("corrected_p", row["p"])
        if sign * row["difference"] < 0.0 and p < 1.0 - parsed.confidence:
            yield (
                f"{_metric_of(row)} is worse by {abs(row['difference']):.4f}, p={p:.2g}"
            )


def _directions(found: Evaluation) -> dict[str, str]:
    """Which way each metric is better."""
    return {metric.name: metric.direction for metric in found._values.metrics}


def _metric_of(row: Mapping[str, Any]) -> str:
    """The metric of a row, and the run, the model and the slice that it is of."""
    of_which = [str(row[x]) for x in itertools.takewhile(lambda x: x != "metric", row)]
    return f"{row['metric']} of {' '.join(of_which)}" if of_which else row["metric"]


def _warnings_of(found: Sequence[tuple[str, Evaluation]]) -> list[str]:
    """The warnings of evaluations, with their names where there are several."""
    return [
        f"{name}: {warning}" if len(found) > 1 else warning
        for name, ev in found
        for warning in ev.warnings
    ]


def _files(parsed: argparse.Namespace) -> list[str]:
    """The files, also those that follow names: `-m map qrels run`, `--by user rows`."""
    files: list[str] = parsed.files
    for option in ("metrics", "by", "keep"):
        if files:
            break
        names = getattr(parsed, option) or []
        are_files = [
            is_table(name) or os.path.exists(name) or bool(glob.glob(name))
            for name in names
        ]
        if any(are_files):
            first = are_files.index(True)
            setattr(parsed, option, names[:first])
            files = names[first:]
    if not files:
        raise ValueError("There should be files to read. Received: none")
    return files


def _gates_of(
    gates: Sequence[_Gate], metrics: Sequence[Measured], rules: str | None
) -> list[_Gate]:
    """The gates by the names of metrics, which have to be there and better this way."""
    found = []
    for gate in gates:
        direction, better = _SIDES[gate.side]
        of_side = [metric for metric in metrics if metric.direction == direction]
        metric = find(gate.metric, of_side, rules)
        if metric is None:
            names = [metric.name for metric in of_side]
            raise ValueError(
                f"--fail-{gate.side} should name one of the metrics where {better} is "
                f"better, {names}. Received: {gate.metric!r}"
            )
        found.append(gate._replace(metric=metric.name))
    return found


def _require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options that would do nothing, given the files that hold rows."""
    if not rows:
        _require_left_out(
            parsed,
            _OF_READING,
            "files that --per-list wrote, whose values are computed already",
        )
    elif parsed.qrels is None:
        _require_left_out(parsed, ["rules"], "tables, where the metrics say what to do")
    else:
        _require_left_out(parsed, _OF_ROWS, "qrels and runs, where it has no effect")
        both = [parsed.qrels, *rows]
        of_tables = {"label": [parsed.qrels], "score": rows}
        of_tables |= {"query": both, "item": both}
        unused = [name for name, of in of_tables.items() if not any(map(is_table, of))]
        _require_left_out(parsed, unused, "TREC files, whose columns have no names")
    if (
        rows
        and parsed.qrels is None
        and "duplicates" in parsed
        and "item" not in parsed
    ):
        raise ValueError(
            "--duplicates should come with --item, the column of the items. Received: "
            f"--duplicates {parsed.duplicates}"
        )
    if parsed.keep and not (parsed.print_lists or parsed.per_list):
        raise ValueError(
            "--keep should come with --print-lists or --per-list. Received: --keep "
            f"{' '.join(parsed.keep)}"
        )


def _require_left_out(
    parsed: argparse.Namespace, names: Sequence[str], where: str
) -> None:
    for name in names:
        value = getattr(parsed, name, None)
        if value not in (None, []):
            option = f"--{name.replace('_', '-')}"
            values = " ".join(map(str, value)) if isinstance(value, list) else value
            raise ValueError(
                f"{option} should be left out with {where}. Received: {option} {values}"
            )


def _require_once(names: Sequence[str]) -> None:
    """Raises for a run or a model that is there twice, as results go by the name."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Each file should be given once. Received twice: {name}")


def _require_one_parquet(file: str, sources: Sequence[str | list[str]]) -> None:
    """Raises for a file that `compare` would not know again, or that has no folder."""
    if len(sources) > 1:
        raise ValueError(
            f"--per-list takes one run. Received: {', '.join(map(str, sources))}"
        )
    if not file.endswith(".parquet") or not os.path.isdir(os.path.dirname(file) or "."):
        raise ValueError(
            "--per-list should name a file that ends in .parquet, in a folder that "
            f"exists. Received: {file!r}"
        )


def _require_no_input(file: str, inputs: Sequence[str]) -> None:
    """Raises for an output that is an input too, which it would replace."""
    if not os.path.exists(file):
        return
    for each in itertools.chain.from_iterable(
        glob.glob(name, recursive=True) or [name] for name in inputs
    ):
        if os.path.exists(each) and os.path.samefile(file, each):
            raise ValueError(
                "--per-list should name a file that is not read, as it would be "
                f"replaced. Received: {file!r}, which is the input {each!r}"
            )


def _is_evaluation(file: str) -> bool:
    """Whether a file is one that `--per-list` wrote."""
    if not (file.endswith(".parquet") and os.path.isfile(file)):
        return False
    try:
        return b"keras_rank" in (parquet.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError):
        # That it can't be read is said where it is read as a table.
        return False


def _read_alone(files: Sequence[str], metrics: Sequence[str] | None) -> Evaluation:
    """Reads the one file, which `--per-list` wrote."""
    if len(files) > 1:
        raise ValueError(
            "A file that --per-list wrote should be the only one of evaluate; compare "
            f"takes several. Received: {', '.join(files)}"
        )
    return _read(files[0], metrics)


def _read(file: str, metrics: Sequence[str] | None) -> Evaluation:
    """Reads what `--per-list` wrote, and chooses metrics where some are named."""
    values = Evaluation.read(file)._values
    names = []
    for name in metrics or values.metric_names:
        metric = values.find(name)
        if metric is None:
            raise ValueError(
                f"--metrics should be some of those in {file}, which has "
                f"{values.metric_names}. Received: {name!r}"
            )
        names.append(metric.name)
    return Evaluation(values.of_metrics(names).table)


def _kept(parsed: argparse.Namespace) -> dict[str, str]:
    """The columns to keep, and the options that name them."""
    clusters = [parsed.cluster] if parsed.cluster else []
    of_options = {"--by": parsed.by, "--cluster": clusters, "--keep": parsed.keep}
    return {name: option for option, names in of_options.items() for name in names}


def _evaluation(
    parsed: argparse.Namespace,
    source: str | list[str],
    metrics: RankingMetrics,
) -> Evaluation:
    names = ["query", "label", "score", "item", "ties", "unjudged", "memory_limit"]
    names += ["weight", "duplicates"] if parsed.qrels is None else ["rules"]
    arguments = {name: getattr(parsed, name) for name in names if name in parsed}
    arguments["progress"] = _progress if sys.stderr.isatty() else None
    kept = _kept(parsed)
    try:
        if parsed.qrels is not None:
            return evaluation.evaluate_run(parsed.qrels, source, metrics, **arguments)
        return evaluation.evaluate(source, metrics, keep=list(kept), **arguments)
    except ValueError as error:
        text = str(error)
        for name, option in kept.items():
            if f"keep={name!r}" in text:
                text = text.replace("`keep`", option)
                text = text.replace(f"keep={name!r}", f"{option} {name}")
        raise ValueError(text) from error
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _joined(tables: dict[str, Table]) -> Table:
    """Tables of several runs below each other."""
    if len(tables) == 1:
        return next(iter(tables.values()))
    first = next(iter(tables.values()))
    runs = [name for name, table in tables.items() for _ in range(len(table))]
    columns = {
        name: [value for table in tables.values() for value in table[name]]
        for name in first.columns
    }
    return Table({"run": runs, **columns}, notes=first.notes)


def _print(results: dict[str, Table], warnings: Sequence[str], output: str) -> None:
    if output == "json":
        data = {name: plain_rows(table) for name, table in results.items()}
        notes = [note for table in results.values() for note in table.notes]
        print(
            json.dumps({**data, "notes": notes, "warnings": list(warnings)}, indent=1)
        )
    else:
        tables = [_TEXTS[output](table) for table in results.values()]
        print("\n\n".join(tables))
    for warning in warnings:
        _say(warning)


def _say(text: str) -> None:
    print(f"keras-rank: {text}", file=sys.stderr)


def _progress(rows: int, lists: int) -> None:
    text = f"\r{rows:,} rows read, {lists:,} queries done"
    print(text, end="", file=sys.stderr, flush=True)
