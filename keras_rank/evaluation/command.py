"""The command `keras-rank`: values on stdout, all else on stderr, and an exit code.

0: done. 1: done, and a gate that was asked for (`--fail-below`, `--fail-if-worse`) is
shut. 2: it could not be done, of which one line on stderr tells.
"""

import argparse
import glob
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import parquet

from keras_rank import evaluation
from keras_rank.arguments import GAINS
from keras_rank.evaluation.evaluation import CORRECTIONS, TESTS, Evaluation, compare
from keras_rank.evaluation.reading import is_table
from keras_rank.evaluation.scored import DUPLICATES, TIES, UNJUDGED
from keras_rank.evaluation.table import FORMATS, Table
from keras_rank.metrics.group import RankingMetrics

EXAMPLES = """examples:
  keras-rank evaluate qrels run -m map ndcg@10
  keras-rank evaluate 'rows/*.parquet' --query qid --score pred --by market
  keras-rank compare base.parquet new.parquet -m ndcg@10 mrr --fail-if-worse"""


def run(arguments: Sequence[str]) -> int:
    """Runs the command, and returns its exit code."""
    try:
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
        print(f"keras-rank: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; --help tells more\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="keras-rank",
        description="Evaluates rankings that are scored already.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="evaluate | compare")
    evaluate = commands.add_parser(
        "evaluate",
        help="metrics of a table, or of runs against judgements",
        description="Evaluates a table with a row for each item of each query, in one "
        "or more files of Parquet, CSV, JSON lines or Arrow; or runs against "
        "judgements, all in the formats of TREC.",
    )
    evaluate.set_defaults(function=_evaluate)
    evaluate.add_argument(
        "files", nargs="*", help="the files of a table; or judgements, and runs"
    )
    _add_common(evaluate)
    evaluate.add_argument(
        "-q", "--per-query", action="store_true", help="print the values of each query"
    )
    evaluate.add_argument(
        "--per-list", metavar="FILE", help="write them, as Parquet that compare reads"
    )
    evaluate.add_argument(
        "--health", action="store_true", help="print what might mislead, all of it"
    )
    evaluate.add_argument(
        "--fail-below",
        metavar="METRIC=VALUE",
        action="append",
        default=[],
        type=_gate,
        help="exit with 1 if a metric is below a value; one where more is better",
    )
    compare = commands.add_parser(
        "compare",
        help="models against a baseline, query by query",
        description="Compares models with the first one, query by query. Each is a "
        "table of rows, a file that --per-list wrote, or a run.",
    )
    compare.set_defaults(function=_compare)
    compare.add_argument("files", nargs="*", help="the baseline, and what is compared")
    _add_common(compare)
    compare.add_argument("--test", choices=TESTS, default="t")
    compare.add_argument("--correction", choices=[*CORRECTIONS, "none"], default="holm")
    compare.add_argument(
        "--fail-if-worse",
        action="store_true",
        help="exit with 1 if a model is worse, and p is below 1 - confidence",
    )
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        *("-m", "--metrics"),
        nargs="+",
        action="extend",
        help="such as ndcg@10 map mrr, which are the default",
    )
    add("-j", "--judgements", metavar="FILE", help="of queries and items, for runs")
    for name in ("query", "label", "score", "item", "weight"):
        add(f"--{name}", metavar="COLUMN", default=argparse.SUPPRESS)
    add("--by", metavar="COLUMN", nargs="+", default=[], help="a mean for each value")
    add("--cluster", metavar="COLUMN", help="such as the user: lists not independent")
    add("--keep", metavar="COLUMN", nargs="+", default=[], help="for --per-list")
    add("--ties", choices=TIES, default=argparse.SUPPRESS)
    add("--unjudged", choices=UNJUDGED, default=argparse.SUPPRESS)
    add("--duplicates", choices=DUPLICATES, default=argparse.SUPPRESS)
    add("--gains", choices=sorted(GAINS), help="of labels, in ndcg and dcg")
    add(
        "--relevance-threshold",
        type=float,
        metavar="LABEL",
        help="the label from which on an item is relevant",
    )
    add("--confidence", type=float, default=0.95, help="of intervals")
    add("--memory-limit", metavar="SIZE", default=argparse.SUPPRESS, help="as 2GB")
    add("-o", "--output", choices=FORMATS, default="table")


def _gate(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"should be as ndcg@10=0.40, not {text!r}"
        ) from None


def _metrics(parsed: argparse.Namespace) -> RankingMetrics:
    """The metrics, with what was said of all of them."""
    group = RankingMetrics(parsed.metrics or ["ndcg@10", "map", "mrr"])
    members = []
    for member in group.members:
        config = member.get_config()
        changed: dict[str, Any] = {}
        if parsed.gains is not None and "gain_fn" in config:
            changed["gain_fn"] = parsed.gains
        if parsed.relevance_threshold is not None:
            changed["relevance_threshold"] = parsed.relevance_threshold
        members.append(type(member).from_config({**config, "seed": 0, **changed}))
    return RankingMetrics(members)


def _evaluate(parsed: argparse.Namespace) -> int:
    files, judgements = _files(parsed), parsed.judgements
    if judgements is None and not is_table(files[0]):
        judgements, *files = files
        if not files:
            raise ValueError(
                "Judgements should be followed by runs, and the name of a table should "
                f"end in .parquet, .csv, .jsonl or .arrow. Received: {judgements!r}"
            )
    metrics = _metrics(parsed)
    directions = {member.name: member._direction for member in metrics.members}
    for name, _ in parsed.fail_below:
        if directions.get(name) != "up":
            raise ValueError(
                "--fail-below should name one of the metrics, of which more is better. "
                f"Received: {name!r}"
            )
    sources = files if judgements is not None else [files]
    _require_once(files)
    if parsed.per_list is not None and len(sources) > 1:
        raise ValueError(
            f"--per-list takes one run. Received: {', '.join(map(str, sources))}"
        )
    if parsed.per_list is not None:
        _require_parquet(parsed.per_list)
    found = {
        str(source): _evaluation(parsed, source, judgements, metrics)
        for source in sources
    }
    results: dict[str, Table] = {}
    if parsed.per_query:
        lists = {name: Table(ev.per_list.to_pydict()) for name, ev in found.items()}
        results["per_query"] = _joined(lists)
    if parsed.health:
        results["health"] = _joined({name: ev.health() for name, ev in found.items()})
    results["summary"] = _joined(
        {
            name: ev.summary(parsed.by, parsed.cluster, parsed.confidence)
            for name, ev in found.items()
        }
    )
    warnings = [
        f"{name}: {warning}" if len(found) > 1 else warning
        for name, ev in found.items()
        for warning in ev.warnings
    ]
    if parsed.per_list is not None:
        found[str(sources[0])].write(parsed.per_list)
    _print(results, warnings, parsed.output)
    is_shut = False
    for name, ev in found.items():
        values = {row["metric"]: row["value"] for row in ev.summary()}
        for metric, least in parsed.fail_below:
            if not values[metric] >= least:
                is_shut = True
                of_run = f" of {name}" if len(found) > 1 else ""
                _say(f"{metric}{of_run} is {values[metric]:.4f}, below {least:g}")
    return int(is_shut)


def _compare(parsed: argparse.Namespace) -> int:
    files, judgements = _files(parsed), parsed.judgements
    if len(files) < 2:
        raise ValueError(
            "compare should get a baseline, and at least one file to compare with it. "
            f"Received: {', '.join(files)}"
        )
    _require_once(files[1:])
    for file in files:
        if judgements is None and not is_table(file):
            raise ValueError(
                "Runs should be compared with their judgements: --judgements FILE; and "
                "the name of a table should end in .parquet, .csv, .jsonl or .arrow. "
                f"Received: {file!r}"
            )
    metrics = _metrics(parsed)
    base, *models = [
        _read(file, parsed.metrics and [member.name for member in metrics.members])
        if _is_evaluation(file)
        else _evaluation(parsed, file, judgements, metrics)
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
    warnings = [
        f"{file}: {warning}"
        for file, ev in zip(files, [base, *models], strict=True)
        for warning in ev.warnings
    ]
    table = Table(comparison.columns)
    _print({"comparison": table}, [*comparison.notes, *warnings], parsed.output)
    if not parsed.fail_if_worse:
        return 0
    directions = {metric.name: metric.direction for metric in base._metrics}
    worse = []
    for row in comparison:
        sign = 1.0 if directions[row["metric"]] == "up" else -1.0
        p = row.get("corrected_p", row["p"])
        if sign * row["difference"] < 0.0 and p < 1.0 - parsed.confidence:
            worse.append(row)
            of_slice = [str(row[name]) for name in ("model", *parsed.by) if name in row]
            of_which = f" of {' '.join(of_slice)}" if of_slice else ""
            _say(
                f"{row['metric']}{of_which} is worse by {abs(row['difference']):.4f}, "
                f"p={p:.2g}"
            )
    return int(bool(worse))


def _files(parsed: argparse.Namespace) -> list[str]:
    """The files, also those that follow metrics: `-m map qrels run`."""
    files: list[str] = parsed.files
    if not files and parsed.metrics:
        are_files = [
            is_table(name) or os.path.exists(name) or bool(glob.glob(name))
            for name in parsed.metrics
        ]
        if any(are_files):
            first = are_files.index(True)
            parsed.metrics, files = parsed.metrics[:first], parsed.metrics[first:]
    if not files:
        raise ValueError("There should be files to read. Received: none")
    return files


def _require_once(names: Sequence[str]) -> None:
    """Raises for a run or a model that is there twice, as results go by the name."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Each file should be given once. Received twice: {name}")


def _require_parquet(file: str) -> None:
    """Raises for a file that `compare` would not know again, or that has no folder."""
    if not file.endswith(".parquet") or not os.path.isdir(os.path.dirname(file) or "."):
        raise ValueError(
            "--per-list should name a file that ends in .parquet, in a folder that "
            f"exists. Received: {file!r}"
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


def _read(file: str, names: Sequence[str] | None) -> Evaluation:
    """Reads what `--per-list` wrote, and chooses metrics where some are named."""
    found = Evaluation.read(file)
    if names is None:
        return found
    for name in names:
        if name not in found.metrics:
            raise ValueError(
                f"--metrics should be some of those in {file}, which has "
                f"{found.metrics}. Received: {name!r}"
            )
    found._metrics = [metric for metric in found._metrics if metric.name in names]
    return found


def _evaluation(
    parsed: argparse.Namespace,
    source: str | list[str],
    judgements: str | None,
    metrics: RankingMetrics,
) -> Evaluation:
    names = ["query", "label", "score", "item", "ties", "unjudged", "memory_limit"]
    if judgements is None:
        names += ["weight", "duplicates"]
    arguments = {name: getattr(parsed, name) for name in names if name in parsed}
    arguments["progress"] = _progress if sys.stderr.isatty() else None
    keep = [*parsed.by, *([parsed.cluster] if parsed.cluster else []), *parsed.keep]
    try:
        if judgements is None:
            arguments["keep"] = keep
            return evaluation.evaluate(source, metrics, **arguments)
        if keep or "weight" in parsed:
            raise ValueError(
                "--by, --cluster, --keep and --weight should be left out with "
                "judgements and runs, which have no such columns. Received: "
                f"{keep or parsed.weight}"
            )
        return evaluation.evaluate_run(judgements, source, metrics, **arguments)
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
    return Table({"run": runs, **columns})


def _print(results: dict[str, Table], warnings: Sequence[str], output: str) -> None:
    if output == "json":
        data = {name: table.to_data() for name, table in results.items()}
        print(json.dumps({**data, "warnings": list(warnings)}, indent=1))
    else:
        tables = [Table(table.columns).format(output) for table in results.values()]
        print("\n\n".join(tables))
    for warning in warnings:
        _say(warning)


def _say(text: str) -> None:
    print(f"keras-rank: {text}", file=sys.stderr)


def _progress(rows: int, lists: int) -> None:
    text = f"\r{rows:,} rows read, {lists:,} queries done"
    print(text, end="", file=sys.stderr, flush=True)
