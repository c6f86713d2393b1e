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
