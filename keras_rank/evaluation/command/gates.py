"""Gates: what a metric has to hold, or the command exits with 1."""

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_rank.evaluation.lists.measures import Measured, find
from keras_rank.evaluation.lists.values import ListValues
from keras_rank.evaluation.report.comparison import places_of
from keras_rank.evaluation.report.table import Table

# On which side of a bound a gate is shut: the direction of its metrics, in words too.
SIDES = {"below": ("up", "higher"), "above": ("down", "lower")}


class Gate(NamedTuple):
    """What a metric has to hold, and on which side of it the gate is shut."""

    side: str
    metric: str
    bound: float

    def is_shut(self, value: float) -> bool:
        """Whether a value does not hold."""
        # As they are printed: a mean of float32 may be 0.69999999 where it is 0.7.
        value, bound = float(_digits(value)), float(_digits(self.bound))
        # A value that is not known, NaN, does not pass either.
        is_held = value >= bound if self.side == "below" else value <= bound
        return not is_held

    def among(self, metrics: Sequence[Measured], rules: str | None) -> "Gate":
        """The gate by the name of its metric, which is there and better this way."""
        direction, better = SIDES[self.side]
        of_side = [metric for metric in metrics if metric.direction == direction]
        metric = find(self.metric, of_side, rules)
        if metric is None:
            raise ValueError(
                f"--fail-{self.side} should name one of the metrics where {better} is "
                f"better, {[each.name for each in of_side]}. Received: {self.metric!r}"
            )
        return self._replace(metric=metric.name)


def gate_of(side: str, text: str) -> Gate:
    """Reads a gate, such as `ndcg@10=0.40`."""
    metric, _, bound = text.rpartition("=")
    try:
        if not metric or not math.isfinite(float(bound)):
            raise ValueError
        return Gate(side, metric.strip(), float(bound))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"should be such as ndcg@10=0.40. Received: {text!r}"
        ) from None


def shut(gates: Sequence[Gate], summary: Table) -> Iterator[str]:
    """Says of each gate where it is shut."""
    for gate in gates:
        for row in summary:
            if row["metric"] == gate.metric and gate.is_shut(row["value"]):
                value, bound = _digits(row["value"]), _digits(gate.bound)
                yield f"{_metric_of(row)} is {value}, {gate.side} {bound}"


def incomplete(models: Mapping[str, ListValues], baseline: ListValues) -> Iterator[str]:
    """Says which models lack queries of the baseline, which might be the worse ones."""
    for name, model in models.items():
        missing = len(baseline) - len(places_of(model, baseline).theirs)
        if missing:
            yield f"{name} lacks {missing} of {len(baseline)} queries of the baseline"


def worse(comparison: Table, baseline: ListValues, confidence: float) -> Iterator[str]:
    """Says which metrics are worse than those of the baseline, by more than chance."""
    for row in comparison:
        sign = 1.0 if baseline.measured(row["metric"]).direction == "up" else -1.0
        p = row.get("corrected_p", row["p"])
        if sign * row["difference"] < 0.0 and p < 1.0 - confidence:
            loss = abs(row["difference"])
            yield f"{_metric_of(row)} is worse by {loss:.4f}, p={p:.2g}"


def _digits(value: float) -> str:
    """The digits that are sure in a number of float32."""
    return f"{value:.6g}"


def _metric_of(row: Mapping[str, Any]) -> str:
    """The metric of a row, and the run, the model and the slice that it is of."""
    of_which = [str(row[x]) for x in itertools.takewhile(lambda x: x != "metric", row)]
    return f"{row['metric']} of {' '.join(of_which)}" if of_which else row["metric"]
