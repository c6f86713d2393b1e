"""What the command prints: results on stdout, all else on stderr."""

import json
import sys
from collections.abc import Callable, Mapping

from keras_rank.evaluation.report.table import Table, plain_rows

# The formats of `--output`.
_TEXTS: dict[str, Callable[[Table], str]] = {
    "table": str,
    "tsv": Table.to_tsv,
    "markdown": Table.to_markdown,
    "html": Table.to_html,
    "trec_eval": lambda table: "\n".join(table["line"]),
}


def print_results(results: dict[str, Table], warnings: list[str], output: str) -> None:
    """Prints tables with their names, and warnings."""
    notes = [note for table in results.values() for note in table.notes]
    if output == "json":
        data = {name: plain_rows(table) for name, table in results.items()}
        print(json.dumps({**data, "notes": notes, "warnings": warnings}, indent=1))
    elif results:
        print("\n\n".join(map(_TEXTS[output], results.values())))
    are_apart = output in ("tsv", "trec_eval")
    for line in [*(notes if are_apart else []), *warnings]:
        say(line)


def joined(tables: Mapping[str, Table]) -> Table:
    """Concatenates the tables of runs, with names if there are several."""
    first = next(iter(tables.values()))
    if len(tables) == 1:
        return first
    runs = [name for name, table in tables.items() for _ in range(len(table))]
    columns = {
        name: [value for table in tables.values() for value in table[name]]
        for name in first.columns
    }
    marked = [x for table in tables.values() for x in table.marks.are_marked]
    marks = first.marks._replace(are_marked=marked)
    shared = [
        x for x in first.notes if all(x in table.notes for table in tables.values())
    ]
    notes = shared + [
        f"{name}: {note}"
        for name, table in tables.items()
        for note in table.notes
        if note not in shared
    ]
    return Table({"run": runs, **columns}, notes=notes, marks=marks)


def say(text: str) -> None:
    """Prints a line to stderr."""
    print(f"keras-rank: {text}", file=sys.stderr)


def show_progress(rows: int, lists: int) -> None:
    """Shows progress in the last line of a terminal."""
    text = f"\r{rows:,} rows read, {lists:,} queries done"
    print(text, end="", file=sys.stderr, flush=True)
