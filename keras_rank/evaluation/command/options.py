"""The options of the command, and the parser of its arguments."""

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import keras_rank
from keras_rank.arguments import GAINS
from keras_rank.evaluation.command.gates import SIDES, gate_of
from keras_rank.evaluation.command.printing import OUTPUTS
from keras_rank.evaluation.lists.metric_names import RULES
from keras_rank.evaluation.lists.settings import CHOICES
from keras_rank.evaluation.report.comparison import CORRECTIONS, TESTS

EXAMPLES = """examples:
  keras-rank evaluate qrels run -m map ndcg@10
  keras-rank evaluate 'rows/*.parquet' --query qid --score pred --by market
  keras-rank compare base.parquet new.parquet -m ndcg@10 mrr --fail-if-worse"""
# How columns and choices are declared; the functions have the defaults.
_COLUMN = {"metavar": "COLUMN", "default": argparse.SUPPRESS}
_COLUMNS: dict[str, Any] = {"metavar": "COLUMN", "nargs": "+", "default": []}


class _Parser(argparse.ArgumentParser):
    """A parser with errors in one line, and without abbreviated options."""

    def __init__(self, **arguments: Any) -> None:
        # Options that are added later could make an abbreviation ambiguous.
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")

    def add(self, helps: Mapping[str, str], **arguments: Any) -> None:
        """Adds options with the same declaration."""
        for names, help_ in helps.items():
            self.add_argument(*names.split(), help=help_, **arguments)


def parser_of(
    evaluate: Callable[[argparse.Namespace], int],
    compare: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Returns the parser, which sets `function` to one of the two."""
    parser = _Parser(
        prog="keras-rank",
        description="Evaluates rankings that are already scored.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=keras_rank.__version__)
    commands = parser.add_subparsers(required=True, metavar="evaluate | compare")
    for_evaluate = commands.add_parser(
        "evaluate",
        help="metrics of a table, or of runs against judgements",
        description="Evaluates a table with one row per query and item, in one or more "
        "Parquet, CSV, JSON lines or Arrow files; a file written by --per-list; or "
        "runs against judgements, as TREC files, JSON or tables.",
    )
    files = "the files of one table, with the scores of one model; or qrels and runs"
    for_evaluate.add({"files": files}, nargs="*")
    _add_common(for_evaluate)
    _add_of_evaluate(for_evaluate)
    for_evaluate.set_defaults(function=evaluate)
    for_compare = commands.add_parser(
        "compare",
        help="models against a baseline, query by query",
        description="Compares models with the first one, query by query. Each is a "
        "table of rows, a file written by --per-list, or a run.",
    )
    for_compare.add({"files": "the baseline, then the models"}, nargs="*")
    _add_common(for_compare)
    _add_of_compare(for_compare)
    for_compare.set_defaults(function=compare, keep=[])
    return parser


def _add_common(parser: _Parser) -> None:
    metrics = (
        "such as recall@20; spelled as in trec_eval or ir_measures (ndcg_cut_10, "
        "nDCG@10), with the meaning that they have there (default: ndcg@10 map mrr)"
    )
    parser.add({"-m --metrics": metrics}, nargs="+", action="extend")
    qrels = "relevance judgements (qrels) of the runs"
    parser.add({"-j --qrels": qrels}, metavar="FILE")
    of_columns = {
        "--query": "the column of the queries (default: query_id)",
        "--label": "the column of the labels (default: label)",
        "--score": "the column of the scores (default: score)",
        "--item": "the column of the items, to detect duplicates",
        "--weight": "the column of the weights of the items",
    }
    parser.add(of_columns, **_COLUMN)
    parser.add({"--by": "compute a mean for each value of the columns"}, **_COLUMNS)
    cluster = "a column, such as the user, whose lists are not independent"
    parser.add({"--cluster": cluster}, metavar="COLUMN")
    of_choices = {
        "rules": "whose definitions to use for qrels and runs: those of trec_eval 10 "
        "(default), those of trec_eval 9, pytrec_eval, BEIR and MTEB, or our own",
        "ties": "the order of tied items: as each metric says, or as in trec_eval, "
        "which is the default for qrels and runs",
        "unjudged": "how to treat items without a label",
        "duplicates": "how to treat duplicate items of a query; needs --item",
    }
    for name, choices in {"rules": RULES, **CHOICES}.items():
        help_ = {f"--{name}": of_choices[name]}
        parser.add(help_, choices=choices, default=argparse.SUPPRESS)
    memory = "the memory limit, such as 2GB"
    parser.add({"--memory-limit": memory}, metavar="SIZE", default=argparse.SUPPRESS)
    gains = (
        "the gains of labels in ndcg and dcg (default: exponential for tables, and "
        "by --rules for qrels and runs)"
    )
    parser.add({"--gains": gains}, choices=sorted(GAINS))
    threshold = "the lowest label of a relevant item"
    parser.add({"--relevance-threshold": threshold}, type=float, metavar="LABEL")
    level = "the confidence level of the intervals (default: 0.95)"
    parser.add({"--confidence": level}, type=float, metavar="LEVEL", default=0.95)
    output = "the format of the results (default: table)"
    parser.add({"-o --output": output}, choices=OUTPUTS, default=OUTPUTS[0])


def _add_of_evaluate(parser: _Parser) -> None:
    of_flags = {
        "-q --print-lists": "print the values of each query",
        "--health": "print all checks for problems that can make numbers misleading",
    }
    parser.add(of_flags, action="store_true")
    file = "write the values of each query to a Parquet file for evaluate and compare"
    parser.add({"--per-list": file}, metavar="FILE")
    keep = "columns to show with --print-lists, and to write with --per-list"
    parser.add({"--keep": keep}, **_COLUMNS)
    for side, (_, better) in SIDES.items():
        help_ = (
            f"exit with 1 if a metric is {side} a value, in any slice of --by; for "
            f"metrics where {better} is better; may be repeated"
        )
        parser.add(
            {f"--fail-{side}": help_},
            metavar="METRIC=VALUE",
            dest="gates",
            action="append",
            default=[],
            type=functools.partial(gate_of, side),
        )


def _add_of_compare(parser: _Parser) -> None:
    test = "the paired t-test, or a permutation test (default: t)"
    parser.add({"--test": test}, choices=TESTS, default=TESTS[0])
    correction = "the correction of p for multiple comparisons (default: holm)"
    choices = [*CORRECTIONS, "none"]
    parser.add({"--correction": correction}, choices=choices, default=choices[0])
    worse = "exit with 1 if a model is worse, and p is below 1 - confidence"
    parser.add({"--fail-if-worse": worse}, action="store_true")
