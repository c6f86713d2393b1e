"""The options of the command: one table, the parser, and what has no effect."""

import argparse
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras_rank
from keras_rank.arguments import GAINS
from keras_rank.evaluation.command.gates import gate_of
from keras_rank.evaluation.command.printing import OUTPUTS
from keras_rank.evaluation.lists.metric_names import RULES
from keras_rank.evaluation.lists.settings import CHOICES
from keras_rank.evaluation.report.comparison import CORRECTIONS, TESTS
from keras_rank.reading.layouts import is_table
from keras_rank.reading.runs import CHOICES as OF_RUNS
from keras_rank.reading.text import PLACE

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
    (ndcg_cut_10, nDCG@10), with the meaning that they have there (default: ndcg@10 map
    mrr)
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
--rules CHOICE (runs): whose definitions to use for qrels and runs: those of trec_eval
    10 (default), those of trec_eval 9, pytrec_eval, BEIR and MTEB, or our own
--ties CHOICE (rows runs): the order of tied items: as each metric says, or as in
    trec_eval, which is the default for qrels and runs
--unjudged CHOICE (rows runs): how to treat items without a label
--duplicates CHOICE (rows runs): how to treat duplicate items of a query: error; in
    tables, which need --item, count each; in runs, count the first or highest one
--missing CHOICE (runs): whether queries that a run lacks score 0 or are left out
--ignore-identical-ids (runs): leave out retrieved items with the id of their query
--memory-limit SIZE (rows runs): the memory limit, such as 2GB
--gains CHOICE (rows runs): the gains of labels in ndcg and dcg (default: exponential
    for tables, and by --rules for qrels and runs)
--relevance-threshold LABEL (rows runs): the lowest label of a relevant item
--confidence LEVEL (all): the confidence level of the intervals (default: 0.95)
"""
_TABLES = """
-o --output CHOICE (all): the format of the results (default: table)
"""
_EVALUATE = """
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
--test CHOICE (all): the paired t-test, or a permutation test (default: t)
--correction CHOICE (all): the correction of p for multiple comparisons (default: holm)
"""
_COMPARE = """
--fail-if-worse (all): exit with 1 if a model is worse, and p is below 1 - confidence
"""
_REPORT = """
-o --output FILE (all): the page (default: report.html)
--baseline FILE (all): what to compare with: a table, a file written by --per-list, or a
    run
--title TEXT (all): the title of the page
--keep COLUMN... (rows): columns to show with the worst queries
--keep-items NUMBER (rows runs): how many items of these queries to show; tables need
    --item (default: 10)
"""
_OF_COMMANDS = {
    "evaluate": _ALL + _TABLES + _EVALUATE,
    "compare": _ALL + _TABLES + _TESTS + _COMPARE,
    "report": _ALL + _TESTS + _REPORT,
}
_OPTION = re.compile(r"((?:-\w )?--(\S+)) ?([\w=]*)(\.*) \(([\w ]+)\): (.+)")
_CHOICES: dict[str, Sequence[str]] = {
    **{"rules": RULES, **OF_RUNS, **CHOICES, "gains": sorted(GAINS), "output": OUTPUTS},
    "duplicates": ("error", "count", "first", "max"),
    **{"test": TESTS, "correction": (*CORRECTIONS, "none")},
}
# What an option without an effect should be left out with.
_WITHOUT_EFFECT = {
    "rows": "tables, where the metrics say what to do",
    "runs": "qrels and runs, where it has no effect",
    "lists": "files written by --per-list, whose values are already computed",
}


class _Parser(argparse.ArgumentParser):
    """A parser with errors in one line, and without abbreviated options."""

    def __init__(self, **arguments: Any) -> None:
        # Options that are added later could make an abbreviation ambiguous.
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")

    def add(self, table: str) -> None:
        """Adds the options of a table."""
        for names, name, value, is_many, _, help_ in _options_of(table):
            kind: dict[str, Any] = {"metavar": value}
            if not value:
                kind = {"action": "store_true"}
            elif value == "CHOICE":
                kind = {"choices": _CHOICES[name]}
            elif value in ("LABEL", "LEVEL", "NUMBER"):
                kind["type"] = int if value == "NUMBER" else float
            elif value == "METRIC=VALUE":
                of_side = functools.partial(gate_of, name.removeprefix("fail-"))
                kind |= {"type": of_side, "action": "append", "dest": "gates"}
            elif is_many:
                kind |= {"nargs": "+", "action": "extend", "default": []}
            self.add_argument(*names.split(), help=help_, **kind)


def _options_of(table: str) -> list[tuple[str, ...]]:
    """The options of a table: names, the long one, value, `...`, effects, and help."""
    return _OPTION.findall(table.replace("\n    ", " "))


def parser_of(**functions: Callable[[argparse.Namespace], Any]) -> _Parser:
    """Returns the parser, which sets `function` to that of the command."""
    parser = _Parser(
        prog="keras-rank",
        description="Evaluates rankings that are already scored.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=keras_rank.__version__)
    commands = parser.add_subparsers(required=True, metavar=" | ".join(_COMMANDS))
    for name, (what, description, files) in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=description)
        command.add_argument("files", help=files, nargs="*")
        command.add(_OF_COMMANDS[name])
        command.set_defaults(function=functions[name], confidence=0.95)
        command.set_defaults(output=OUTPUTS[0], test=TESTS[0], keep=[], gates=[])
        command.set_defaults(correction=CORRECTIONS[0], keep_items=None)
    # The last one.
    command.set_defaults(output="report.html", title="Ranking evaluation")
    return parser


def require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options without an effect, given the files that hold rows."""
    job = "rows" if parsed.qrels is None else "runs"
    job = job if rows else "lists"
    unused = {
        name.replace("-", "_"): _WITHOUT_EFFECT[job]
        for _, name, _, _, jobs, _ in _options_of(_ALL + _EVALUATE + _REPORT)
        if jobs != "all" and job not in jobs.split()
    }
    if job == "runs":
        both = [parsed.qrels, *rows]
        of_tables = {"query": both, "item": both, "label": both[:1], "score": rows}
        of_tables["subtopic"] = both[:1]
        for name, files in of_tables.items():
            is_place = PLACE.fullmatch(getattr(parsed, name) or "")
            if not (is_place or any(map(is_table, files))):
                unused[name] = "TREC files, whose columns have no names"
    for name, where in unused.items():
        value = getattr(parsed, name)
        if value not in (None, []) and value is not False:
            option = f"--{name.replace('_', '-')}"
            values = " ".join(map(str, value)) if isinstance(value, list) else value
            raise ValueError(
                f"{option} should be left out with {where}. Received: {option}"
                + f" {values}" * (value is not True)
            )
    if job == "rows" and parsed.duplicates is not None and parsed.item is None:
        raise ValueError(
            "--duplicates should come with --item, the column of the items. "
            f"Received: --duplicates {parsed.duplicates}"
        )
    is_shown = "per_list" not in parsed or parsed.print_lists or parsed.per_list
    if parsed.keep and not is_shown:
        raise ValueError(
            "--keep should come with --print-lists or --per-list. Received: --keep "
            f"{' '.join(parsed.keep)}"
        )
