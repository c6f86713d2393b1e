"""The input files of the command, and their evaluations."""

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
from keras_rank.evaluation.lists.list_table import has_description
from keras_rank.evaluation.lists.metric_names import RULES, resolve_metrics
from keras_rank.evaluation.lists.trec_eval_measures import expand_official
from keras_rank.metrics.group import RankingMetrics
from keras_rank.metrics.registry import parse_metric
from keras_rank.reading.column_roles import is_judgments_file
from keras_rank.reading.files import is_table
from keras_rank.reading.rows import Columns

# The options are passed as arguments of the same names to both functions, to
# `evaluate`, and to `evaluate_run`.
_SHARED_OPTIONS = (
    *("query", "label", "score", "item", "ties", "unjudged", "duplicates"),
    *("keep_items", "lower_is_better"),
)
_TABLE_OPTIONS = ("weight", "memory_limit")
_RUN_OPTIONS = ("subtopic", "rules", "missing", "ignore_identical_ids", "memory_limit")


def get_models(parsed: Namespace) -> list[str]:
    """Returns the files of models.

    If the first file holds judgments, it becomes `parsed.qrels` instead.
    """
    files: list[str] = parsed.files
    if parsed.qrels is None and _start_with_judgments(files, parsed):
        parsed.qrels, *files = files
    return files


def _start_with_judgments(files: Sequence[str], parsed: Namespace) -> bool:
    """Returns whether the first file holds judgments."""
    if len(files) == 1 or is_per_list_file(files[0]):
        return not is_table(files[0])
    if not all(map(is_table, files[1:])):
        # Files that are not tables are runs, which need judgments.
        return True
    names = {"query": "query_id", "label": "label", "score": "score", "item": "item_id"}
    column_names: Any = {name: getattr(parsed, name) or x for name, x in names.items()}
    return is_judgments_file(files[0], Columns(**column_names))


def is_per_list_file(file: str) -> bool:
    """Returns whether a file was written by `--per-list`."""
    if not (file.lower().endswith(".parquet") and os.path.isfile(file)):
        return False
    try:
        return has_description(parquet.read_schema(file))
    except (pa.ArrowException, OSError):
        # Reading the file as a table raises the error later.
        return False


def get_rules(parsed: Namespace) -> str:
    """Returns the rules that determine the meaning of the names of metrics."""
    return (parsed.rules or RULES[0]) if parsed.qrels is not None else "keras"


def create_metrics(parsed: Namespace) -> RankingMetrics:
    """Creates the metrics, with the options that apply to all metrics."""
    rules, level = get_rules(parsed), parsed.relevance_threshold
    if level is not None:
        _require_no_own_argument(parsed, "--relevance-threshold", "level")
    if parsed.gains is not None:
        _require_no_own_argument(parsed, "--gains", "gains")
    members = resolve_metrics(parsed.metrics or ["ndcg@10", "map", "mrr"], rules)
    configs = [member.get_config() for member in members]
    gain_configs = [config for config in configs if "gain_fn" in config]
    # The option `-l` of trec_eval does not change ndcg, so metrics with gains are left
    # out.
    level_configs = [x for x in configs if "relevance_threshold" in x]
    level_configs = [x for x in level_configs if rules == "keras" or "gain_fn" not in x]
    if parsed.gains is not None and not gain_configs:
        raise ValueError(
            "--gains should be left out without a metric that has gains, such as ndcg. "
            f"Received: --gains {parsed.gains}"
        )
    if level is not None and not level_configs:
        raise ValueError(
            "--relevance-threshold should be left out without a metric of relevant "
            "items, as by trec_eval's rules ndcg has the gains of all labels. "
            f"Received: --relevance-threshold {level}"
        )
    for config in gain_configs:
        config["gain_fn"] = parsed.gains or config["gain_fn"]
    for config in level_configs if level is not None else []:
        config["relevance_threshold"] = level
    for config in configs if parsed.output == "trec_eval" else []:
        # trec_eval computes in float64, so that results have the same digits.
        config["dtype"] = backend.supported_dtype("float64")
    pairs = zip(members, configs, strict=True)
    return RankingMetrics([type(x).from_config(config) for x, config in pairs])


def _require_no_own_argument(parsed: Namespace, option: str, kind: str) -> None:
    """Raises `ValueError` if a metric has an argument that an option sets.

    Args:
        parsed: the parsed options.
        option: the option.
        kind: the kind of the argument: "level" or "gains".
    """
    arguments = {
        "level": ("rel", "relevance_threshold"),
        "gains": ("dcg", "gain_fn", "gains"),
    }
    for name in parsed.metrics:
        parts = parse_metric(name)
        if parts is not None and not parts.arguments.keys().isdisjoint(arguments[kind]):
            raise ValueError(
                f"{option} should be left out with metrics that name their own {kind}. "
                f"Received: {name}"
            )


def create_evaluation(
    parsed: Namespace,
    source: str | list[str],
    metrics: RankingMetrics | None = None,
) -> Evaluation:
    """Evaluates a run or rows of files, or reads a file of `--per-list`.

    Args:
        parsed: the parsed options.
        source: the file, or the files of one table.
        metrics: the metrics. Defaults to `None`: the file was written by `--per-list`.
    """
    clusters = [parsed.cluster] if parsed.cluster else []
    columns_by_option = {
        "--by": parsed.by,
        "--cluster": clusters,
        "--keep": parsed.keep,
    }
    kept_columns = {
        name: option for option, names in columns_by_option.items() for name in names
    }
    if metrics is None or (isinstance(source, str) and is_per_list_file(source)):
        return _read_per_list_file(str(source), parsed.metrics, kept_columns)
    option_names = _TABLE_OPTIONS if parsed.qrels is None else _RUN_OPTIONS
    options = {
        name: getattr(parsed, name) for name in (*_SHARED_OPTIONS, *option_names)
    }
    arguments: Any = {name: x for name, x in options.items() if x is not None}
    arguments["progress"] = show_progress if sys.stderr.isatty() else None
    try:
        if parsed.qrels is not None:
            return evaluation.evaluate_run(parsed.qrels, source, metrics, **arguments)
        return evaluation.evaluate(
            source, metrics, keep=list(kept_columns), **arguments
        )
    except ValueError as error:
        text = str(error)
        for name, option in kept_columns.items():
            if f"keep={name!r}" in text:
                text = text.replace("`keep`", option)
                text = text.replace(f"keep={name!r}", f"{option} {name}")
                text = text.replace('keep="', f'{option} "')
        raise ValueError(text) from error
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _read_per_list_file(
    file: str, metrics: list[str], columns: dict[str, str]
) -> Evaluation:
    """Reads a file of `--per-list`, and selects metrics.

    Args:
        file: the file.
        metrics: the names of the metrics to select. Empty for all metrics.
        columns: dict from the names of kept columns to the options that need them.
    """
    values = Evaluation.read(file)._values
    names = []
    for name in expand_official(metrics) or values.metric_names:
        metric = values.find(name)
        if metric is None:
            raise ValueError(
                f"--metrics should be some of those in {file}. Received: {name!r}"
                f"{suggestion(name, values.metric_names)}"
            )
        names.append(metric.name)
    for name, option in columns.items():
        if name not in values.kept_columns:
            raise ValueError(
                f"{option} should name columns that were kept: --keep {name} "
                f"--per-list {file}. Received: {option} {name}"
                f"{suggestion(name, values.kept_columns)}"
            )
    return Evaluation(values.select_metrics(names).table)


def require_distinct(qrels: str | None, files: list[str], models: list[str]) -> None:
    """Raises `ValueError` if judgments are also a run, or a model is given twice."""
    for name in models:
        if models.count(name) > 1:
            # Results are identified by the names of files.
            raise ValueError(f"Each file should be given once. Received twice: {name}")
    for file in files:
        if qrels is not None and _is_same_file(qrels, file):
            raise ValueError(
                "Qrels and runs should be different files. Received: "
                f"{qrels!r} and {file!r}"
            )


def require_writable(parsed: Namespace, files: list[str], is_one: bool) -> None:
    """Raises `ValueError` if `--per-list` has several runs, or names an input."""
    if not is_one:
        raise ValueError(f"--per-list takes one run. Received: {', '.join(files)}")
    require_no_input("--per-list", parsed.per_list, files, parsed)


def require_no_input(
    option: str, file: str, files: list[str], parsed: Namespace
) -> None:
    """Raises `ValueError` if an output is also an input."""
    for name in filter(None, [*files, parsed.qrels]):
        for each in glob.glob(name, recursive=True) or [name]:
            if _is_same_file(file, each):
                raise ValueError(
                    f"{option} should name a file that is not an input, which it "
                    f"would replace. Received: {file!r}, which is the input {each!r}"
                )


def _is_same_file(file: str, other: str) -> bool:
    return all(map(os.path.exists, (file, other))) and os.path.samefile(file, other)


def show_progress(rows: int, lists: int) -> None:
    """Prints the progress in the last line of a terminal."""
    text = f"\r{rows:,} rows read, {lists:,} queries done"
    print(text, end="", file=sys.stderr, flush=True)
