"""The files of a command, and the evaluations of what they hold.

Files given twice are errors.
"""

import glob
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from keras_rank import evaluation
from keras_rank.arguments import suggestion
from keras_rank.backends import backend
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.list_table import is_described
from keras_rank.evaluation.lists.metric_names import RULES, members_of
from keras_rank.evaluation.lists.trec_eval_measures import expanded
from keras_rank.metrics.group import RankingMetrics
from keras_rank.metrics.registry import parse_metric
from keras_rank.reading.column_roles import are_judgments
from keras_rank.reading.files import is_table
from keras_rank.reading.rows import Columns

# Options that are passed to the functions under the same names.
_OF_BOTH = (
    *("query", "label", "score", "item", "ties", "unjudged", "duplicates"),
    *("keep_items", "lower_is_better"),
)
_OF_ROWS = ("weight", "memory_limit")
_OF_RUNS = ("subtopic", "rules", "missing", "ignore_identical_ids", "memory_limit")


def models_of(parsed: Namespace) -> list[str]:
    """The given files without the judgments, if these are the first one."""
    given: list[str] = parsed.files
    if parsed.qrels is None and _start_with_judgments(given, parsed):
        parsed.qrels, *given = given
    return given


def _start_with_judgments(files: Sequence[str], parsed: Namespace) -> bool:
    """Whether the first file holds judgments."""
    if len(files) == 1 or are_lists(files[0]):
        return not is_table(files[0])
    if not all(map(is_table, files[1:])):
        # Runs, which tables of rows don't come with.
        return True
    names = {"query": "query_id", "label": "label", "score": "score", "item": "item_id"}
    given: Any = {name: getattr(parsed, name) or x for name, x in names.items()}
    return are_judgments(files[0], Columns(**given))


def are_lists(file: str) -> bool:
    """Whether a file was written by `--per-list`."""
    if not (file.lower().endswith(".parquet") and os.path.isfile(file)):
        return False
    try:
        return is_described(parquet.read_schema(file))
    except (pa.ArrowException, OSError):
        # The error is raised when it is read as a table.
        return False


def rules_of(parsed: Namespace) -> str:
    """The rules by which names of metrics are read."""
    return (parsed.rules or RULES[0]) if parsed.qrels is not None else "keras"


def metrics_of(parsed: Namespace) -> RankingMetrics:
    """The metrics, with the options for all of them."""
    rules, level = rules_of(parsed), parsed.relevance_threshold
    if level is not None:
        _require_none_of_its_own(parsed, "--relevance-threshold", "level")
    if parsed.gains is not None:
        _require_none_of_its_own(parsed, "--gains", "gains")
    members = members_of(parsed.metrics or ["ndcg@10", "map", "mrr"], rules)
    configs = [member.get_config() for member in members]
    with_gains = [config for config in configs if "gain_fn" in config]
    # As trec_eval's -l, which leaves ndcg as it is.
    with_level = [x for x in configs if "relevance_threshold" in x]
    with_level = [x for x in with_level if rules == "keras" or "gain_fn" not in x]
    if parsed.gains is not None and not with_gains:
        raise ValueError(
            "--gains should be left out without a metric that has gains, such as ndcg. "
            f"Received: --gains {parsed.gains}"
        )
    if level is not None and not with_level:
        raise ValueError(
            "--relevance-threshold should be left out without a metric of relevant "
            "items, as by trec_eval's rules ndcg has the gains of all labels. "
            f"Received: --relevance-threshold {level}"
        )
    for config in with_gains:
        config["gain_fn"] = parsed.gains or config["gain_fn"]
    for config in with_level if level is not None else []:
        config["relevance_threshold"] = level
    for config in configs if parsed.output == "trec_eval" else []:
        # Its digits are those of doubles.
        config["dtype"] = backend.widest("float64")
    pairs = zip(members, configs, strict=True)
    return RankingMetrics([type(x).from_config(config) for x, config in pairs])


def _require_none_of_its_own(parsed: Namespace, option: str, what: str) -> None:
    """Raises for metrics whose strings have what an option is for."""
    arguments = {
        "level": ("rel", "relevance_threshold"),
        "gains": ("dcg", "gain_fn", "gains"),
    }
    for name in parsed.metrics:
        parts = parse_metric(name)
        if parts is not None and not parts.arguments.keys().isdisjoint(arguments[what]):
            raise ValueError(
                f"{option} should be left out with metrics that name their own {what}. "
                f"Received: {name}"
            )


def evaluation_of(
    parsed: Namespace,
    source: str | list[str],
    metrics: RankingMetrics | None = None,
) -> Evaluation:
    """Evaluates a run or the rows of files, or reads a file of `--per-list`."""
    clusters = [parsed.cluster] if parsed.cluster else []
    of_options = {"--by": parsed.by, "--cluster": clusters, "--keep": parsed.keep}
    kept = {name: option for option, names in of_options.items() for name in names}
    if metrics is None or (isinstance(source, str) and are_lists(source)):
        return _of_lists(str(source), parsed.metrics, kept)
    of_one = _OF_ROWS if parsed.qrels is None else _OF_RUNS
    given = {name: getattr(parsed, name) for name in (*_OF_BOTH, *of_one)}
    arguments: Any = {name: x for name, x in given.items() if x is not None}
    arguments["progress"] = show_progress if sys.stderr.isatty() else None
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
                text = text.replace('keep="', f'{option} "')
        raise ValueError(text) from error
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _of_lists(file: str, metrics: list[str], columns: dict[str, str]) -> Evaluation:
    """Reads a file of `--per-list`, and selects metrics if any are named."""
    values = Evaluation.read(file)._values
    names = []
    for name in expanded(metrics) or values.metric_names:
        metric = values.find(name)
        if metric is None:
            raise ValueError(
                f"--metrics should be some of those in {file}. Received: {name!r}"
                f"{suggestion(name, values.metric_names)}"
            )
        names.append(metric.name)
    for name, option in columns.items():
        if name not in values.kept:
            raise ValueError(
                f"{option} should name columns that were kept: --keep {name} "
                f"--per-list {file}. Received: {option} {name}"
                f"{suggestion(name, values.kept)}"
            )
    return Evaluation(values.of_metrics(names).table)


def require_distinct(qrels: str | None, files: list[str], models: list[str]) -> None:
    """Raises for judgments that are also a run, and for duplicate models."""
    for name in models:
        if models.count(name) > 1:
            # Names identify results.
            raise ValueError(f"Each file should be given once. Received twice: {name}")
    for file in files:
        if qrels is not None and _are_one_file(qrels, file):
            raise ValueError(
                "Qrels and runs should be different files. Received: "
                f"{qrels!r} and {file!r}"
            )


def require_writable(parsed: Namespace, files: list[str], is_one: bool) -> None:
    """Raises unless `--per-list` writes a file of one run that is not an input."""
    if not is_one:
        raise ValueError(f"--per-list takes one run. Received: {', '.join(files)}")
    require_no_input("--per-list", parsed.per_list, files, parsed)


def require_no_input(
    option: str, file: str, files: list[str], parsed: Namespace
) -> None:
    """Raises if an output is also an input."""
    for name in filter(None, [*files, parsed.qrels]):
        for each in glob.glob(name, recursive=True) or [name]:
            if _are_one_file(file, each):
                raise ValueError(
                    f"{option} should name a file that is not an input, which it "
                    f"would replace. Received: {file!r}, which is the input {each!r}"
                )


def _are_one_file(file: str, other: str) -> bool:
    return all(map(os.path.exists, (file, other))) and os.path.samefile(file, other)


def show_progress(rows: int, lists: int) -> None:
    """Shows progress in the last line of a terminal."""
    text = f"\r{rows:,} rows read, {lists:,} queries done"
    print(text, end="", file=sys.stderr, flush=True)
