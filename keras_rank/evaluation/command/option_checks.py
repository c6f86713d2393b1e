"""Checks of the options and files of a command, before anything is read.

Options without an effect and files given twice are errors.
"""

import argparse
import glob
import os
from collections.abc import Sequence

from keras_rank.reading.layouts import is_table
from keras_rank.reading.text import PLACE

# What an option without an effect should be left out with, and options without one on
# tables, on runs, which have no such columns, and on values that are already computed.
_TABLES = "tables, where the metrics say what to do"
_RUNS = "qrels and runs, where it has no effect"
_LISTS = "files written by --per-list, whose values are already computed"
_UNUSED = {
    _TABLES: ("rules",),
    _RUNS: ("by", "cluster", "keep", "weight", "duplicates"),
    _LISTS: (
        *("qrels", "query", "label", "score", "item", "weight", "keep", "rules"),
        *("ties", "unjudged", "duplicates", "gains", "relevance_threshold"),
        "memory_limit",
    ),
}


def require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options without an effect, given the files that hold rows."""
    where = _TABLES if parsed.qrels is None else _RUNS
    where = where if rows else _LISTS
    unused = dict.fromkeys(_UNUSED[where], where)
    if where == _RUNS:
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
    parsed: argparse.Namespace, files: Sequence[str], is_one: bool
) -> None:
    """Raises unless `--per-list` can write a file of one run that is not an input.

    `compare` recognizes the file by its extension.
    """
    if not is_one:
        raise ValueError(f"--per-list takes one run. Received: {', '.join(files)}")
    file: str = parsed.per_list
    if not file.endswith(".parquet") or not os.path.isdir(os.path.dirname(file) or "."):
        raise ValueError(
            "--per-list should name a file that ends in .parquet, in a folder that "
            f"exists. Received: {file!r}"
        )
    for name in filter(None, [*files, parsed.qrels]):
        for each in glob.glob(name, recursive=True) or [name]:
            if _are_one_file(file, each):
                raise ValueError(
                    "--per-list should name a file that is not an input, which it "
                    f"would replace. Received: {file!r}, which is the input {each!r}"
                )


def _are_one_file(file: str, other: str) -> bool:
    return all(map(os.path.exists, (file, other))) and os.path.samefile(file, other)
