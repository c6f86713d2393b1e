"""The command `keras-rank`: its options, and the backend that it runs on.

Keras reads its backend when it is imported, as `keras_rank` does, so this module is
outside of that package. What needs no Keras is answered without importing it.
"""

import argparse
import functools
import importlib.util
import math
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

_PACKAGE = pathlib.Path(__file__).with_name("keras_rank")
# The names of standard input.
_STREAMS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")

_EXAMPLES = """examples:
  keras-rank evaluate qrels run -m map ndcg@10
  keras-rank evaluate 'rows/*.parquet' --query qid --score pred --by market
  keras-rank compare base.parquet new.parquet -m ndcg@10 mrr --fail-if-worse
  keras-rank report new.parquet --baseline base.parquet -o report.html"""
# The commands, each with what it is, what it does, and its files.
_COMMANDS = {
    "evaluate": (
        "metrics of a table, or of runs against judgments",
        "Evaluates a table with one row per query and item, in one or more Parquet, "
        "CSV, JSON lines or Arrow files; a file written by --per-list; or runs against "
        "judgments, as TREC files, JSON or tables.",
        "the files of one table, with the scores of one model; or qrels and runs",
    ),
    "compare": (
        "models against a baseline, query by query",
        "Compares models with the first one, query by query. Each is a table of rows, "
        "a file written by --per-list, or a run.",
        "the baseline, then the models",
    ),
    "report": (
        "a page for a colleague",
        "Writes a page of a model, also compared with a baseline: one file of HTML, "
        "which needs no network.",
        "the files of one table, with the scores of one model; a file written by "
        "--per-list; or qrels and a run",
    ),
}
# The options of all commands, and of some. Each has its values, on what it has an
# effect, if not on all (tables of `rows`, `runs`, `lists` written by --per-list), and
# what it is.
_ALL = """
-m --metrics METRIC... (all): such as recall@20; spelled as in trec_eval or ir_measures
    (ndcg_cut_10, nDCG@10), with the meaning that they have there; official: all that
    trec_eval prints (default: ndcg@10 map mrr)
-j --qrels FILE (rows runs): relevance judgments (qrels) of the runs
--query COLUMN (rows runs): the column of the queries (default: query_id)
--label COLUMN (rows runs): the column of the labels (default: label)
--score COLUMN (rows runs): the column of the scores (default: score)
--item COLUMN (rows runs): the column of the items, to detect duplicates
--subtopic COLUMN (runs): the column of the subtopics (default: subtopic_id)
--weight COLUMN (rows): the column of the weights of the items
--by COLUMN... (rows lists): compute a mean for each value of the columns
--cluster COLUMN (rows lists): a column, such as the user, whose lists are not
    independent
--rules trec_eval|trec_eval-9|keras (runs): whose definitions to use for qrels and
    runs: those of trec_eval 10 (default), those of trec_eval 9, pytrec_eval, BEIR and
    MTEB, or our own
--ties metric|trec_eval|trec_eval-9 (rows runs): the order of tied items: as each metric
    says, or as in trec_eval, which is the default for qrels and runs
--unjudged irrelevant|drop (rows runs): whether items without a label, or with one below
    0, are irrelevant, which is the default for qrels and runs, or left out as padding,
    which is that for tables
--duplicates error|count|first|max (rows runs): how to treat duplicate items of a query:
    error; in tables, which need --item, count each; in runs, count the first or highest
    one
--missing zero|skip (runs): whether queries that a run lacks score 0 or are left out
--ignore-identical-ids (runs): leave out retrieved items with the id of their query
--memory-limit SIZE (rows runs): the memory limit, such as 2GB
--gains exponential|linear (rows runs): the gains of labels in ndcg and dcg (default:
    exponential for tables, and by --rules for qrels and runs)
--relevance-threshold LABEL (rows runs): the lowest label of a relevant item
--confidence LEVEL (all): the confidence level of the intervals (default: 0.95)
"""
_EVALUATE = """
-o --output table|tsv|markdown|html|json|trec_eval (all): the format of the results
    (default: table, or trec_eval with -m official)
-q --print-lists (all): print the values of each query
--health (all): print all checks for problems that can make numbers misleading
--per-list FILE (all): write the values of each query to a Parquet file for evaluate and
    compare
--keep COLUMN... (rows): columns to show with --print-lists, and to write with
    --per-list
--fail-below METRIC=VALUE (all): exit with 1 if a metric is below a value, in any slice
    of --by; for metrics where higher is better; may be repeated
--fail-above METRIC=VALUE (all): exit with 1 if a metric is above a value, in any slice
    of --by; for metrics where lower is better; may be repeated
"""
_TESTS = """
--test t|permutation (all): the paired t-test, or a permutation test (default: t)
--correction holm|bh|by|none (all): the correction of p for multiple comparisons
    (default: holm)
"""
_COMPARE = """
-o --output table|tsv|markdown|html|json (all): the format of the results (default:
    table)
--fail-if-worse (all): exit with 1 if a model is worse, and corrected_p (p with
    --correction none) is below 1 - confidence; what is worse by p alone is a warning
"""
_REPORT = """
-o --output FILE (all): the page, which replaces a file of this name (default:
    report.html, which replaces none)
--baseline FILE (all): what to compare with: a table, a file written by --per-list, or a
    run
--title TEXT (all): the title of the page
--keep COLUMN... (rows): columns to show with the worst queries
--keep-items NUMBER (rows runs): how many items of these queries to show; tables need
    --item (default: 10)
"""
_OF_COMMANDS = {
    "evaluate": _ALL + _EVALUATE,
    "compare": _ALL + _TESTS + _COMPARE,
    "report": _ALL + _TESTS + _REPORT,
}
_OPTION = re.compile(r"((?:-\w )?--(\S+)) ?([\w=|-]*)(\.*) \(([\w ]+)\): (.+)")


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    parsed = parsed_arguments()
    os.environ.setdefault("KERAS_BACKEND", _backend())
    try:
        from keras_rank.evaluation.command import run
    except Exception as error:
        print(f"keras-rank: error: {_explained(error)}", file=sys.stderr)
        # Not 1, which is the code of a gate.
        sys.exit(2)
    sys.exit(run(parsed))


def parsed_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options. Exits after help, the version, and errors of options."""
    parser = parser_of_command()
    parsed = parser.parse_args(arguments)
    try:
        _check_paths(parsed)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    return parsed


def _check_paths(parsed: argparse.Namespace) -> None:
    """Raises unless inputs can be read, and outputs are in folders that exist."""
    paths = runpy.run_path(str(_PACKAGE / "reading" / "paths.py"))
    options = vars(parsed)
    if not parsed.files:
        raise ValueError(
            "There should be files to read, before the options or after `--`, as in "
            "`-m map -- qrels run`. Received: none"
        )
    inputs = [("files", file) for file in parsed.files]
    inputs += [(f"--{x}", options.get(x)) for x in ("qrels", "baseline")]
    inputs = [(argument, file) for argument, file in inputs if file is not None]
    streams = [file for _, file in inputs if file in _STREAMS]
    if len(streams) > 1:
        raise ValueError(
            "Standard input should be given once, as it can be read only once. "
            f"Received: {' and '.join(streams)}"
        )
    for argument, file in inputs:
        if file != "-":
            paths["matching_files"](argument, file)
    if options.get("per_list") is not None:
        # `compare` recognizes such a file by its suffix.
        paths["check_output"]("--per-list", parsed.per_list, (".parquet",))
    if parsed.command == "report" and parsed.output is not None:
        paths["check_output"]("--output", parsed.output, (".html", ".htm"))


def _backend() -> str:
    """NumPy, the fastest for the command, or what is installed if Keras has no JAX."""
    found = [x for x in ("jax", "torch", "tensorflow") if importlib.util.find_spec(x)]
    return found[0] if found and found[0] != "jax" else "numpy"


def _explained(error: Exception) -> str:
    """Why the command can't be imported, in one line."""
    said = " ".join(str(error).split())
    extras = ". The extras `numpy` and `evaluation` install what the command needs"
    return said + extras * isinstance(error, ImportError)


def _version() -> str:
    """The version that the package beside this module has, without importing it."""
    source = (_PACKAGE / "__init__.py").read_text("utf-8")
    (version,) = re.findall('^__version__ = "(.+)"', source, re.MULTILINE)
    return str(version)


class _Parser(argparse.ArgumentParser):
    """A parser with errors in one line, and without abbreviated options."""

    def __init__(self, **arguments: Any) -> None:
        # Options that are added later could make an abbreviation ambiguous.
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")

    def add(self, table: str) -> None:
        """Adds the options of a table, and on what they have an effect."""
        effects = {}
        for names, name, value, is_many, files, help_ in options_of(table):
            kind: dict[str, Any] = {"metavar": value}
            if not value:
                kind = {"action": "store_true"}
            elif "|" in value:
                kind = {"choices": value.split("|")}
            elif value in ("LABEL", "LEVEL", "NUMBER"):
                kind["type"] = int if value == "NUMBER" else float
            elif value == "METRIC=VALUE":
                of_side = functools.partial(_gate_of, name.removeprefix("fail-"))
                kind |= {"type": of_side, "action": "append", "dest": "gates"}
            elif is_many:
                kind |= {"nargs": "+", "action": "extend", "default": []}
            action = self.add_argument(*names.split(), help=help_, **kind)
            effects[action.dest] = files
        self.set_defaults(effects=effects)


def options_of(table: str) -> list[tuple[str, ...]]:
    """The options of a table: names, the long one, value, `...`, effects, and help."""
    return _OPTION.findall(table.replace("\n    ", " "))


def parser_of_command() -> _Parser:
    """Returns the parser, whose `command` is the name of the command."""
    parser = _Parser(
        prog="keras-rank",
        description="Evaluates rankings that are already scored.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(
        required=True, metavar=" | ".join(_COMMANDS), dest="command"
    )
    for name, (what, description, files) in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=description)
        command.add_argument("files", help=files, nargs="*")
        command.add(_OF_COMMANDS[name])
        command.set_defaults(confidence=0.95, keep=[], gates=[], keep_items=None)
        command.set_defaults(test="t", correction="holm", title="Ranking evaluation")
    return parser


def _gate_of(side: str, text: str) -> tuple[str, str, float]:
    """Reads a gate, such as `ndcg@10=0.40`: its side, metric and bound."""
    metric, _, bound = text.rpartition("=")
    try:
        if not metric or not math.isfinite(float(bound)):
            raise ValueError
        return side, metric.strip(), float(bound)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"should be such as ndcg@10=0.40. Received: {text!r}"
        ) from None


if __name__ == "__main__":
    main()
