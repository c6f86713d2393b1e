"""All metrics, and what the laws need to know of each.

A new metric gets the laws by being listed here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import oracle

import keras_rank
from keras_rank import functional, metrics


@dataclasses.dataclass(frozen=True)
class Case:
    """A metric with one set of arguments, as class, function and oracle."""

    name: str
    metric: type[metrics.RankingMetric]
    function: Callable[..., Any]
    formula: oracle.Formula
    # The oracle's relevance of a label.
    relevance: Callable[[float], float]
    # Arguments of the class and the function, and those of the oracle.
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    oracle_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Whether the value lies between 0 and 1, and is 1 for a perfect order.
    in_unit_interval: bool = True
    perfect_is_one: bool = True

    def __str__(self) -> str:
        return self.name

    def make(self, **arguments: Any) -> metrics.RankingMetric:
        return self.metric(**{"seed": 1, **self.arguments, **arguments})

    def values(self, *inputs: Any, **arguments: Any) -> Any:
        return self.function(*inputs, **{"seed": 1, **self.arguments, **arguments})

    def oracle_value(self, items, **arguments: Any) -> float:
        arguments = {"seed": 1, **self.oracle_arguments, **arguments}
        return oracle.value(self.formula, items, **arguments)


CASES = [
    Case(
        name="ndcg",
        metric=metrics.NDCG,
        function=functional.ndcg,
        formula=oracle.ndcg,
        relevance=oracle.exponential,
    ),
    Case(
        name="ndcg of linear gains, clipped discount",
        metric=metrics.NDCG,
        function=functional.ndcg,
        formula=oracle.ndcg,
        relevance=oracle.linear,
        arguments={"gain_fn": "linear", "rank_discount_fn": "clipped_log2"},
        oracle_arguments={
            "relevance": oracle.linear,
            "discount": oracle.clipped_log2,
        },
    ),
    Case(
        name="ndcg from grade 2",
        metric=metrics.NDCG,
        function=functional.ndcg,
        formula=oracle.ndcg,
        relevance=lambda label: oracle.exponential(label) if label >= 2 else 0.0,
        arguments={"relevance_threshold": 2.0},
        oracle_arguments={
            "relevance": lambda label: oracle.exponential(label) if label >= 2 else 0.0
        },
    ),
    Case(
        name="dcg",
        metric=metrics.DCG,
        function=functional.dcg,
        formula=oracle.dcg,
        relevance=oracle.exponential,
        in_unit_interval=False,
        perfect_is_one=False,
    ),
    Case(
        name="dcg of geometric discount",
        metric=metrics.DCG,
        function=functional.dcg,
        formula=oracle.dcg,
        relevance=oracle.exponential,
        arguments={"rank_discount_fn": keras_rank.discounts.geometric(0.7)},
        oracle_arguments={"discount": lambda rank: 0.7 ** (rank - 1)},
        in_unit_interval=False,
        perfect_is_one=False,
    ),
]
