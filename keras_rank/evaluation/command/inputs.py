"""The files of a command: judgements, rows or computed values, and their options.

Files given twice and options without an effect are errors.
"""

import argparse
import glob
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from keras_rank import evaluation
from keras_rank.evaluation.command.printing import show_progress
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.lists.measures import RULES, members_of
from keras_rank.evaluation.lists.values import is_described
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.files import files_of as paths_of
from keras_rank.reading.forms import are_relevances, is_table
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import PLACE

# Options that are passed to the functions under the same names.
_OF_BOTH = ("query", "label", "score", "item", "ties", "unjudged", "memory_limit")
# Options without an effect on runs, which have no such columns.
_OF_ROWS = ("by", "cluster", "keep", "weight", "duplicates")
# Options without an effect on values that are already computed.
_OF_READING = (
    *("qrels", "query", "label", "score", "item", "weight", "keep", "memory_limit"),
    *("rules", "ties", "unjudged", "duplicates", "gains", "relevance_threshold"),
)


def files_of(parsed: argparse.Namespace) -> list[str]:
    """The files, also after names: `-m map qrels run`, `--by user rows`."""
    files: list[str] = parsed.files
    for option in ("metrics", "by", "keep"):
        names = getattr(parsed, option) or []
        are_files = [
            is_table(name) or os.path.exists(name) or bool(glob.glob(name))
            for name in names
        ]
        if not files and any(are_files):
            first = are_files.index(True)
            setattr(parsed, option, names[:first])
            files = names[first:]
    if not files:
        raise ValueError("There should be files to read. Received: none")
    for file in files:
        if file != "-":
            paths_of("files", file)
    return files


def start_with_relevances(files: Sequence[str], parsed: argparse.Namespace) -> bool:
    """Whether the first file holds judgements."""
    if len(files) == 1 or are_lists(files[0]):
        return not is_table(files[0])
    if not all(map(is_table, files[1:])):
        # Runs, which tables of rows don't come with.
        return True
    names = {"query": "query_id", "label": "label", "score": "score", "item": "item_id"}
    given: Any = {name: getattr(parsed, name, x) for name, x in names.items()}
    return are_relevances(files[0], Columns(**given))


def are_lists(file: str) -> bool:
    """Whether a file was written by `--per-list`."""
    if not (file.endswith(".parquet") and os.path.isfile(file)):
        return False
    try:
        return is_described(parquet.read_schema(file))
    except (pa.ArrowException, OSError):
        # The error is raised when it is read as a table.
        return False


def rules_of(parsed: argparse.Namespace) -> str:
    """The rules by which names of metrics are read."""
    return getattr(parsed, "rules", RULES[0]) if parsed.qrels is not None else "keras"


def metrics_of(parsed: argparse.Namespace) -> RankingMetrics:
    """The metrics, with the options for all of them."""
    members = []
    gains, threshold = parsed.gains, parsed.relevance_threshold
    rules = rules_of(parsed)
    is_trec = rules != "keras"
    own = [name for name in parsed.metrics or [] if "(rel=" in name]
    if threshold is not None and own:
        raise ValueError(
            "--relevance-threshold should be left out with metrics that name their own "
            f"level. Received: {', '.join(own)}"
        )
    named = members_of(parsed.metrics or ["ndcg@10", "map", "mrr"], rules)
    has_level = False
    for member in named:
        config = member.get_config()
        if gains is not None and "gain_fn" in config:
            config["gain_fn"] = gains
        # As trec_eval's -l, which leaves ndcg as it is.
        if threshold is not None and not (is_trec and "gain_fn" in config):
            config["relevance_threshold"], has_level = threshold, True
        members.append(type(member).from_config(config))
    if gains is not None and not any("gain_fn" in x.get_config() for x in members):
        raise ValueError(
            "--gains should be left out without a metric that has gains, such as ndcg. "
            f"Received: --gains {gains}"
        )
    if threshold is not None and not has_level:
        raise ValueError(
            "--relevance-threshold should be left out without a metric of relevant "
            "items, as by trec_eval's rules ndcg has the gains of all labels. "
            f"Received: --relevance-threshold {threshold}"
        )
    return RankingMetrics(members)


def evaluation_of(
    parsed: argparse.Namespace,
    source: str | list[str],
    metrics: RankingMetrics | None = None,
) -> Evaluation:
    """Evaluates a run or the rows of files, or reads a file of `--per-list`."""
    clusters = [parsed.cluster] if parsed.cluster else []
    of_options = {"--by": parsed.by, "--cluster": clusters, "--keep": parsed.keep}
    kept = {name: option for option, names in of_options.items() for name in names}
    if metrics is None or (isinstance(source, str) and are_lists(source)):
        return _of_lists(str(source), parsed.metrics, kept)
    of_one = ("weight", "duplicates") if parsed.qrels is None else ("rules",)
    names = [name for name in (*_OF_BOTH, *of_one) if name in parsed]
    arguments: dict[str, Any] = {name: getattr(parsed, name) for name in names}
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
        raise ValueError(text) from error
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _of_lists(
    file: str, metrics: Sequence[str] | None, columns: Mapping[str, str]
) -> Evaluation:
    """Reads a file of `--per-list`, and selects metrics if any are named."""
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
    for name, option in columns.items():
        if name not in values.kept:
            raise ValueError(
                f"{option} should name columns that were kept: --keep {name} "
                f"--per-list {file}. Received: {option} {name}, and a file with "
                f"{', '.join(values.kept) or 'none'}"
            )
    return Evaluation(values.of_metrics(names).table)


def require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options without an effect, given the files that hold rows."""
    if not rows:
        where = "files written by --per-list, whose values are already computed"
        unused = dict.fromkeys(_OF_READING, where)
    elif parsed.qrels is None:
        unused = {"rules": "tables, where the metrics say what to do"}
    else:
        unused = dict.fromkeys(_OF_ROWS, "qrels and runs, where it has no effect")
        both = [parsed.qrels, *rows]
        of_tables = {"query": both, "item": both, "label": both[:1], "score": rows}
        for name, files in of_tables.items():
            is_place = PLACE.fullmatch(getattr(parsed, name, ""))
            if not (is_place or any(map(is_table, files))):
                unused[name] = "TREC files, whose columns have no names"
    for name, where in unused.items():
        value = getattr(parsed, name, None)
        if value not in (None, []):
            option = f"--{name.replace('_', '-')}"
            values = " ".join(map(str, value)) if isinstance(value, list) else value
            raise ValueError(
                f"{option} should be left out with {where}. Received: {option} {values}"
            )
    if "duplicates" in parsed and "item" not in parsed:
        raise ValueError(
            "--duplicates should come with --item, the column of the items. "
            f"Received: --duplicates {parsed.duplicates}"
        )
    if parsed.keep and not (parsed.print_lists or parsed.per_list):
        raise ValueError(
            "--keep should come with --print-lists or --per-list. Received: --keep "
            f"{' '.join(parsed.keep)}"
        )


def require_distinct(
    qrels: str | None, files: Sequence[str], models: Sequence[str]
) -> None:
    """Raises for judgements that are also a run, and for duplicate models."""
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


def require_writable(
    file: str, sources: Sequence[str | list[str]], inputs: Sequence[str]
) -> None:
    """Raises unless `--per-list` can write a file of one run that is not an input.

    `compare` recognizes the file by its extension.
    """
    if len(sources) > 1:
        raise ValueError(
            f"--per-list takes one run. Received: {', '.join(map(str, sources))}"
        )
    if not file.endswith(".parquet") or not os.path.isdir(os.path.dirname(file) or "."):
        raise ValueError(
            "--per-list should name a file that ends in .parquet, in a folder that "
            f"exists. Received: {file!r}"
        )
    found = (glob.glob(name, recursive=True) or [name] for name in inputs)
    for each in itertools.chain.from_iterable(found):
        if _are_one_file(file, each):
            raise ValueError(
                "--per-list should name a file that is not an input, which it would "
                f"replace. Received: {file!r}, which is the input {each!r}"
            )


def _are_one_file(file: str, other: str) -> bool:
    return all(map(os.path.exists, (file, other))) and os.path.samefile(file, other)
