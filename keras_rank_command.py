"""The command `keras-rank`: parses the options and chooses the backend.

Keras chooses its backend when it is imported, and `keras_rank` imports Keras. This
module is outside of that package, so that it can set the backend first. Help, and
errors about options and paths, need no import of Keras.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

_PACKAGE = pathlib.Path(__file__).with_name("keras_rank")
_EXAMPLES = """examples:
  keras-rank evaluate qrels run -m map ndcg@10
  keras-rank evaluate 'rows/*.parquet' --query qid --score pred --by market
  keras-rank compare base.parquet new.parquet -m ndcg@10 mrr --fail-if-worse
  keras-rank report new.parquet --baseline base.parquet -o report.html"""
_FORMATS = ["table", "tsv", "markdown", "html", "json"]
_MANY: Any = {"nargs": "+", "action": "extend", "default": []}


class _Parser(argparse.ArgumentParser):
    """A parser with one-line errors and without abbreviated options."""

    def __init__(self, **arguments: Any) -> None:
        # Options that are added later could make an abbreviation ambiguous.
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    parsed = parse_arguments()
    # NumPy is the fastest backend for the command. Keras's NumPy backend needs JAX.
    installed = [
        x for x in ("jax", "torch", "tensorflow") if importlib.util.find_spec(x)
    ]
    backend = installed[0] if installed and installed[0] != "jax" else "numpy"
    os.environ.setdefault("KERAS_BACKEND", backend)
    try:
        from keras_rank.evaluation.command import run
    except Exception as error:
        extras = ". The extras `numpy` and `evaluation` install what the command needs"
        text = " ".join(str(error).split()) + extras * isinstance(error, ImportError)
        print(f"keras-rank: error: {text}", file=sys.stderr)
        # The exit code 1 means that a gate failed.
        sys.exit(2)
    sys.exit(run(parsed))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the parsed arguments.

    The process exits after printing help, the version, or an error about arguments.
    """
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    try:
        paths = runpy.run_path(str(_PACKAGE / "reading" / "paths.py"))
        paths["check_command"](vars(parsed))
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    return parsed


def build_parser() -> _Parser:
    """Returns the argument parser. Its results have the subcommand as `command`."""
    about = "Evaluates rankings that are already scored."
    kind: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = _Parser(prog="keras-rank", description=about, epilog=_EXAMPLES, **kind)
    source = (_PACKAGE / "__init__.py").read_text("utf-8")
    (version,) = re.findall('^__version__ = "(.+)"', source, re.MULTILINE)
    parser.add_argument("--version", action="version", version=version)
    add_command = parser.add_subparsers(required=True, dest="command").add_parser
    shared = _build_shared_parser()
    tests = _Parser(add_help=False, parents=[shared])
    add = tests.add_argument_group("statistical tests").add_argument
    add("--test", choices=["t", "permutation"], default="t", help="default: t")
    text = "correction of p for the number of comparisons (default: holm)"
    add("--correction", choices=["holm", "bh", "by", "none"], default="holm", help=text)

    about = "evaluate a table, a file written by --per-list, or runs against judgments"
    command = add_command("evaluate", help=about, description=about, parents=[shared])
    add = command.add_argument
    add("files", nargs="*", help="files of one table, of one model; or qrels and runs")
    add("-o", "--output", choices=[*_FORMATS, "trec_eval"], help="default: table")
    add("-q", "--print-lists", action="store_true", help="print values of each query")
    add("--health", action="store_true", help="print all checks for problems")
    add("--per-list", metavar="FILE", help="write values of each query, as Parquet")
    add("--keep", metavar="COLUMN", **_MANY, help="for --print-lists and --per-list")
    add = command.add_argument_group("gates (exit code 1, in any slice)").add_argument
    kind = {"dest": "gates", "action": "append", "metavar": "METRIC=VALUE"}
    add("--fail-below", **kind, type=lambda x: ("below", x), help="fail below a value")
    add("--fail-above", **kind, type=lambda x: ("above", x), help="fail above a value")

    about = "compare tables, files written by --per-list, or runs, query by query"
    command = add_command("compare", help=about, description=about, parents=[tests])
    add = command.add_argument
    add("files", nargs="*", help="the baseline, then the models")
    add("-o", "--output", choices=_FORMATS, help="default: table")
    text = "exit with 1 if corrected_p, or p without a correction, shows a worse model"
    add("--fail-if-worse", action="store_true", help=text)

    about = "write a page for a colleague: one file of HTML, which needs no network"
    command = add_command("report", help=about, description=about, parents=[tests])
    add = command.add_argument
    add("files", nargs="*", help="files of one table, of one model; or qrels and a run")
    text = "page to write or replace (default: report.html, which must not exist)"
    add("-o", "--output", metavar="FILE", help=text)
    add("--baseline", metavar="FILE", help="table, --per-list file, or run")
    add("--title", metavar="TEXT", default="Ranking evaluation", help="of the page")
    add("--keep", metavar="COLUMN", **_MANY, help="columns of the worst queries")
    text = "items of the worst queries; tables need --item (default: 10)"
    add("--keep-items", metavar="NUMBER", type=int, help=text)
    return parser


def _build_shared_parser() -> _Parser:
    """Returns a parser of the options that all subcommands share."""
    parser = _Parser(add_help=False)
    parser.set_defaults(keep=[], keep_items=None, gates=[])
    add = parser.add_argument
    text = "as here, in trec_eval or in ir_measures (default: ndcg@10 map mrr)"
    add("-m", "--metrics", metavar="METRIC", **_MANY, help=text)
    add("--confidence", metavar="LEVEL", type=float, default=0.95, help="default: 0.95")
    title = "tables and runs (not files written by --per-list)"
    add = parser.add_argument_group(title).add_argument
    add("--query", metavar="COLUMN", help="queries (default: query_id)")
    add("--label", metavar="COLUMN", help="labels (default: label)")
    add("--score", metavar="COLUMN", help="scores (default: score)")
    text = "scores are distances, the lowest comes first"
    add("--lower-is-better", action="store_true", help=text)
    add("--item", metavar="COLUMN", help="items, to detect duplicates")
    text = "order of tied items (default: metric in tables, by --rules in runs)"
    add("--ties", choices=["metric", "trec_eval", "trec_eval-9"], help=text)
    text = "items without a label (default: drop in tables, irrelevant in runs)"
    add("--unjudged", choices=["irrelevant", "drop"], help=text)
    text = "for --item: error (default) or count in tables; error, first or max in runs"
    add("--duplicates", choices=["error", "count", "first", "max"], help=text)
    add("--memory-limit", metavar="SIZE", help="such as 2GB")
    text = "gains of labels (default: exponential in tables, by --rules in runs)"
    add("--gains", choices=["exponential", "linear"], help=text)
    text = "lowest label of relevant items"
    add("--relevance-threshold", metavar="LABEL", type=float, help=text)
    add = parser.add_argument_group("tables (not runs)").add_argument
    add("--weight", metavar="COLUMN", help="weights of items")
    add("--by", metavar="COLUMN", **_MANY, help="slices; also of --per-list files")
    add("--cluster", metavar="COLUMN", help="such as users, whose lists are dependent")
    add = parser.add_argument_group("runs (not tables)").add_argument
    add("-j", "--qrels", metavar="FILE", help="relevance judgments")
    add("--subtopic", metavar="COLUMN", help="subtopics (default: subtopic_id)")
    text = "trec_eval 10 (default); trec_eval 9, pytrec_eval, BEIR, MTEB; or our own"
    add("--rules", choices=["trec_eval", "trec_eval-9", "keras"], help=text)
    add("--missing", choices=["zero", "skip"], help="absent queries (default: zero)")
    add("--ignore-identical-ids", action="store_true", help="leave out the query's id")
    return parser


if __name__ == "__main__":
    main()
