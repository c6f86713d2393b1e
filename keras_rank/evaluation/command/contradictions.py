"""Contradictions: options without an effect, and files given twice."""

import argparse
import glob
import itertools
import os
from collections.abc import Sequence

from keras_rank.reading.forms import is_table
from keras_rank.reading.text import PLACE

# Options without an effect on runs, which have no such columns.
_OF_ROWS = ("by", "cluster", "keep", "weight", "duplicates")
# Options without an effect on values that are already computed.
_OF_READING = (
    *("qrels", "query", "label", "score", "item", "weight", "keep", "memory_limit"),
    *("rules", "ties", "unjudged", "duplicates", "gains", "relevance_threshold"),
)


def require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options without an effect, given the files that hold rows."""
    if not rows:
        where = "files written by --per-list, whose values are already computed"
        _require_left_out(parsed, _OF_READING, where)
    elif parsed.qrels is None:
        _require_left_out(parsed, ["rules"], "tables, where the metrics say what to do")
        if "duplicates" in parsed and "item" not in parsed:
            raise ValueError(
                "--duplicates should come with --item, the column of the items. "
                f"Received: --duplicates {parsed.duplicates}"
            )
    else:
        _require_left_out(parsed, _OF_ROWS, "qrels and runs, where it has no effect")
        both = [parsed.qrels, *rows]
        of_tables = {"label": [parsed.qrels], "score": rows}
        of_tables |= {"query": both, "item": both}
        named = [x for x in of_tables if not PLACE.fullmatch(getattr(parsed, x, ""))]
        unused = [name for name in named if not any(map(is_table, of_tables[name]))]
        _require_left_out(parsed, unused, "TREC files, whose columns have no names")
    if parsed.keep and not (parsed.print_lists or parsed.per_list):
        raise ValueError(
            "--keep should come with --print-lists or --per-list. Received: --keep "
            f"{' '.join(parsed.keep)}"
        )


def require_kept(parsed: argparse.Namespace, file: str, kept: Sequence[str]) -> None:
    """Raises for slices and clusters that a file of `--per-list` does not have."""
    clusters = [parsed.cluster] if parsed.cluster else []
    for option, names in (("--by", parsed.by or []), ("--cluster", clusters)):
        for name in names:
            if name not in kept:
                raise ValueError(
                    f"{option} should name columns that were kept: --keep {name} "
                    f"--per-list {file}. Received: {option} {name}, and a file with "
                    f"{', '.join(kept) or 'none'}"
                )


def require_once(names: Sequence[str]) -> None:
    """Raises for duplicate runs or models, as names identify results."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Each file should be given once. Received twice: {name}")


def require_apart(qrels: str | None, runs: Sequence[str]) -> None:
    """Raises for judgements that are also given as a run."""
    for run in runs:
        if qrels is not None and _are_one_file(qrels, run):
            raise ValueError(
                "Qrels and runs should be different files. Received: "
                f"{qrels!r} and {run!r}"
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
