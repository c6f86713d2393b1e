"""Results as trec_eval prints them: a line for each metric, of a query or of `all`."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from keras_rank.evaluation.evaluation import Evaluation

# What it prints of all queries alone.
_OF_ALL = ("NumQ", "GeometricMeanAveragePrecision")


def require_used(parsed: Namespace) -> None:
    """Sets the format of results, and raises for what this one has no place for."""
    default = "trec_eval" if "official" in parsed.metrics else "table"
    parsed.output = parsed.output or default
    unused = [x for x in ("by", "cluster", "health") if getattr(parsed, x)]
    if parsed.output == "trec_eval" and unused:
        raise ValueError(
            f"--{unused[0]} should come with another format, such as --output table: "
            f"trec_eval has no place for it. Received: --{unused[0]}"
        )


def lines_of(found: Mapping[str, Evaluation], has_queries: bool) -> Iterator[str]:
    """Yields the lines of evaluations. Several have their names as run ids."""
    for name, ev in found.items():
        shown = [x.name for x in ev._values.metrics if x.class_name not in _OF_ALL]
        rows = ev.per_list.to_pylist() if has_queries else []
        for row in sorted(rows, key=lambda row: str(row[ev.query])):
            yield from _lines_of({x: row[x] for x in shown}, row[ev.query])
        ids = {"runid": name} if len(found) > 1 else {}
        yield from _lines_of(ids | ev.to_dict(), "all")


def _lines_of(values: Mapping[str, Any], query: Any) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            text = f"{value:6.4f}" if isinstance(value, float) else value
            yield f"{name:<22}\t{query}\t{text}"
