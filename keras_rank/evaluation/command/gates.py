"""Gates: bounds of metrics, beyond which the command exits with 1."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import Measured, find
from keras_rank.evaluation.report.comparison import places_of
from keras_rank.evaluation.report.table import Table

# On which side of its bound a gate fails: the direction of its metrics, in words too.
SIDES = {"below": ("up", "higher"), "above": ("down", "lower")}


class Gate(NamedTuple):
    """The bound of a metric, and the side on which the gate fails."""

    side: str
    metric: str
    bound: float

    @classmethod
    def of(cls, side: str, text: str) -> "Gate":
        """Reads the text of a gate, such as `ndcg@10=0.40`."""
        metric, _, bound = text.rpartition("=")
        try:
            if metric and math.isfinite(float(bound)):
                return cls(side, metric.strip(), float(bound))
        except ValueError:
            pass
        raise ValueError(
            f"--fail-{side} should be such as ndcg@10=0.40. Received: {text!r}"
        )

    def is_shut(self, value: float) -> bool:
        """Whether the gate fails for a value."""
        # As printed: a float32 mean of 0.7 may be 0.69999999.
        value, bound = float(_digits(value)), float(_digits(self.bound))
        # NaN fails too.
        is_held = value >= bound if self.side == "below" else value <= bound
        return not is_held

    def among(self, metrics: Sequence[Measured], rules: str | None) -> "Gate":
        """The gate with the name of its metric. Raises if its direction is wrong."""
        direction, better = SIDES[self.side]
        metric = find(self.metric, metrics, rules)
        if metric is None or metric.direction != direction:
            of_side = [each.name for each in metrics if each.direction == direction]
            raise ValueError(
                f"--fail-{self.side} should name a metric where {better} is better"
                f"{f', one of {of_side}' if of_side else ', and there is none'}. "
                f"Received: {self.metric!r}"
            )
        return self._replace(metric=metric.name)


def shut(gates: Sequence[Gate], summary: Table) -> Iterator[str]:
    """Describes where gates fail."""
    for gate in gates:
        for row in summary:
            if row["metric"] == gate.metric and gate.is_shut(row["value"]):
                value, bound = _digits(row["value"]), _digits(gate.bound)
                yield f"{_metric_of(row)} is {value}, {gate.side} {bound}"


def incomplete(models: Mapping[str, ListTable], baseline: ListTable) -> Iterator[str]:
    """Describes which models lack queries or metrics of the baseline.

    These may be the bad ones.
    """
    for name, model in models.items():
        for metric in baseline.metric_names:
            if model.find(metric) is None:
                yield f"{name} lacks {metric} of the baseline"
        missing = len(baseline) - int((places_of(model, baseline) >= 0).sum())
        if missing:
            yield f"{name} lacks {missing} of {len(baseline)} queries of the baseline"


def worse(
    comparison: Table, baseline: ListTable, confidence: float
) -> tuple[list[str], list[str]]:
    """Describes which metrics are significantly worse, and which by p alone.

    The corrected p decides, if there is one. It grows with the number of rows, so that
    the latter are no failures, but would be if they were compared alone.
    """
    failed, doubtful = [], []
    for row in comparison:
        metric = baseline.measured(row["metric"])
        sign = 1.0 if metric.direction == "up" else -1.0
        loss, level = -sign * row["difference"], 1.0 - confidence
        # NaN fails too: nothing is known of too few lists.
        # Fewer of what is summed are not worse.
        if loss <= 0.0 or row["p"] >= level or metric.reduction == "sum":
            continue
        text = f"{_metric_of(row)} is worse by {loss:.4f}, p={row['p']:.2g}"
        if "corrected_p" in row:
            text += f", corrected p={row['corrected_p']:.2g}"
        if row.get("corrected_p", row["p"]) >= level:
            doubtful.append(f"Warning: {text}: the gate reads the corrected p")
        else:
            failed.append(text)
    return failed, doubtful


def _digits(value: float) -> str:
    """The significant digits of a float32 number."""
    return f"{value:.6g}"


def _metric_of(row: Mapping[str, Any]) -> str:
    """The metric of a row, with its run, model and slice."""
    of_which = [str(row[x]) for x in itertools.takewhile(lambda x: x != "metric", row)]
    return f"{row['metric']} of {' '.join(of_which)}" if of_which else row["metric"]
