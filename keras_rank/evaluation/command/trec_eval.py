"""Results as trec_eval prints them: a line for each metric, of a query or of `all`."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence

from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.report.table import Table

# What it prints of all queries alone.
_OF_ALL = ("NumQ", "GeometricMeanAveragePrecision")
_COLUMNS = ("metric", "query", "value")


def require_used(parsed: Namespace) -> None:
    """Sets the format of results, and raises for what this one has no place for."""
    default = "trec_eval" if "official" in parsed.metrics else "table"
    parsed.output = parsed.output or default
    if parsed.output == "trec_eval":
        for option in ("by", "cluster", "health"):
            if getattr(parsed, option):
                raise ValueError(
                    f"--{option} should come with another format, such as --output "
                    "table, as trec_eval's has a line for each metric alone. "
                    f"Received: --{option}"
                )


def table_of(
    found: Mapping[str, Evaluation], has_queries: bool, notes: Sequence[str]
) -> Table:
    """Returns the lines of evaluations. Several start with their names, as run ids."""
    rows: list[tuple[str, str, str]] = []
    for name, ev in found.items():
        rows += [*(_of_queries(ev) if has_queries else [])]
        rows += [("runid", "all", name)] * (len(found) > 1)
        rows += [(metric, "all", _text(ev[metric])) for metric in ev]
    columns = zip(*rows, strict=True)
    return Table(dict(zip(_COLUMNS, map(list, columns), strict=True)), notes=notes)


def text_of(table: Table) -> str:
    """Returns the lines as one text."""
    lines = zip(*(table[name] for name in _COLUMNS), strict=True)
    return "\n".join(f"{name:<22}\t{query}\t{value}" for name, query, value in lines)


def _of_queries(ev: Evaluation) -> Iterator[tuple[str, str, str]]:
    """Yields the lines of queries, which trec_eval orders as text."""
    for row in sorted(ev.per_list.to_pylist(), key=lambda row: str(row[ev.query])):
        for metric in ev._values.metrics:
            value = row[metric.name]
            is_shown = (metric.definition or {}).get("class_name") not in _OF_ALL
            if is_shown and value is not None:
                number = int(value) if metric.reduction == "sum" else value
                yield metric.name, str(row[ev.query]), _text(number)


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:6.4f}"
