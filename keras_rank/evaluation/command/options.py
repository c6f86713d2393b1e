"""The options of the command that have no effect."""

import argparse
from collections.abc import Sequence

from keras_rank.reading.layouts import is_table
from keras_rank.reading.text import PLACE

# What an option without an effect should be left out with.
_WITHOUT_EFFECT = {
    "rows": "tables, where the metrics say what to do",
    "runs": "qrels and runs, where it has no effect",
    "lists": "files written by --per-list, whose values are already computed",
}


def require_used(parsed: argparse.Namespace, rows: Sequence[str]) -> None:
    """Raises for options without an effect, given the files that hold rows."""
    job = "rows" if parsed.qrels is None else "runs"
    job = job if rows else "lists"
    unused = {
        name: _WITHOUT_EFFECT[job]
        for name, files in parsed.effects.items()
        if job not in files.split() and files != "all"
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
