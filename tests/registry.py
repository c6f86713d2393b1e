"""All metrics, and what the laws need to know of each.

A new metric gets the laws by being listed here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
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
    # The oracle's relevance of a label; `None`: 1 above the lowest label of the list.
    relevance: Callable[[float], float] | None = oracle.at_least_one
    # Arguments of the class and the function, and those of the oracle.
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    oracle_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Whether the value lies between the lowest and 1, and is 1 for a perfect order.
    lowest: float = 0.0
    in_unit_interval: bool = True
    perfect_is_one: bool = True
    # Whether the value has ties to break, is the mean over their orders if these are
    # averaged, and leaves lists out whatever `empty_value` is.
    breaks_ties: bool = True
    averages_ties: bool = True
    leaves_out_empty: bool = False
    # Whether it takes a cutoff.
    has_cutoff: bool = True
    # Whether a cutoff beyond the list is the same as none.
    ignores_longer_cutoffs: bool = True
    # The value of labels 3, 0, 1 if nothing is retrieved.
    worst: float = 0.0
    # Whether the digits of a label are those of several subtopics.
    has_digits: bool = False
    # Whether the value is the same in any order of the items.
    ignores_item_order: bool = True

    def __str__(self) -> str:
        return self.name

    def make(self, **arguments: Any) -> metrics.RankingMetric:
        return self.metric(**self._taken(arguments))

    def values(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        arguments = self._taken(arguments)
        y_true = self.labels(y_true)
        return self.function(y_true, y_pred, sample_weight=sample_weight, **arguments)

    def labels(self, y_true: Any) -> Any:
        """The labels that the metric takes, of those of one axis less."""
        if not self.has_digits:
            return y_true
        if isinstance(y_true, dict):
            return {**y_true, "labels": self.labels(y_true["labels"])}
        return oracle.in_digits(y_true)

    def _taken(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """All arguments, but for those that the metric does not take."""
        refused = {"empty_value", "empty_weight"} if self.leaves_out_empty else set()
        refused |= set() if self.has_cutoff else {"k"}
        taken = {"seed": 1, **self.arguments, **arguments}
        return {name: x for name, x in taken.items() if name not in refused}

    def list_weight(self, items) -> float | None:
        lowest = min((item.label for item in items), default=0.0)
        relevance = self.relevance or (lambda label: float(label > lowest))
        return oracle.list_weight(items, relevance)

    def oracle_value(self, items, **arguments: Any) -> float:
        arguments = {"seed": 1, **self.oracle_arguments, **arguments}
        return oracle.value(self.formula, items, **arguments)


CASES = [
    Case(
        name="err",
        metric=metrics.ExpectedReciprocalRank,
        function=functional.expected_reciprocal_rank,
        formula=oracle.expected_reciprocal_rank,
        relevance=lambda label: float(label > 0),
        perfect_is_one=False,
    ),
    Case(
        name="err from grade 2 of 5",
        metric=metrics.ExpectedReciprocalRank,
        function=functional.expected_reciprocal_rank,
        formula=oracle.expected_reciprocal_rank,
        relevance=oracle.binary(2.0),
        arguments={"max_grade": 5, "relevance_threshold": 2.0},
        oracle_arguments={"max_grade": 5, "threshold": 2.0},
        perfect_is_one=False,
    ),
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
    Case(
        name="map",
        metric=metrics.MeanAveragePrecision,
        function=functional.average_precision,
        formula=oracle.average_precision,
        perfect_is_one=False,
    ),
    Case(
        name="map, clipped",
        metric=metrics.MeanAveragePrecision,
        function=functional.average_precision,
        formula=oracle.average_precision,
        arguments={"normalizer": "clipped"},
        oracle_arguments={"normalizer": "clipped"},
    ),
    Case(
        name="map of the retrieved, from grade 3",
        metric=metrics.MeanAveragePrecision,
        function=functional.average_precision,
        formula=oracle.average_precision,
        relevance=oracle.binary(3.0),
        arguments={"normalizer": "retrieved", "relevance_threshold": 3.0},
        oracle_arguments={"normalizer": "retrieved", "relevant": oracle.binary(3.0)},
    ),
    Case(
        name="mrr",
        metric=metrics.MeanReciprocalRank,
        function=functional.reciprocal_rank,
        formula=oracle.reciprocal_rank,
    ),
    Case(
        name="precision",
        metric=metrics.PrecisionAtK,
        function=functional.precision,
        formula=oracle.precision,
        perfect_is_one=False,
    ),
    Case(
        name="precision of k",
        metric=metrics.PrecisionAtK,
        function=functional.precision,
        formula=oracle.precision,
        arguments={"denominator": "k"},
        oracle_arguments={"denominator": "k"},
        perfect_is_one=False,
        ignores_longer_cutoffs=False,
    ),
    Case(
        name="precision of the retrieved",
        metric=metrics.PrecisionAtK,
        function=functional.precision,
        formula=oracle.precision,
        arguments={"denominator": "retrieved"},
        oracle_arguments={"denominator": "retrieved"},
        perfect_is_one=False,
    ),
    Case(
        name="recall",
        metric=metrics.RecallAtK,
        function=functional.recall,
        formula=oracle.recall,
        perfect_is_one=False,
    ),
    Case(
        name="recall, clipped",
        metric=metrics.RecallAtK,
        function=functional.recall,
        formula=oracle.recall,
        arguments={"normalizer": "clipped"},
        oracle_arguments={"normalizer": "clipped"},
    ),
    Case(
        name="hit rate",
        metric=metrics.HitRate,
        function=functional.hit_rate,
        formula=oracle.hit_rate,
    ),
    Case(
        name="f1",
        metric=metrics.F1AtK,
        function=functional.f1,
        formula=oracle.f1,
        perfect_is_one=False,
    ),
    Case(
        name="f-beta",
        metric=metrics.FBetaAtK,
        function=functional.f_beta,
        formula=oracle.f_beta,
        perfect_is_one=False,
    ),
    Case(
        name="f-beta of 0.3, of the retrieved",
        metric=metrics.FBetaAtK,
        function=functional.f_beta,
        formula=oracle.f_beta,
        arguments={"beta": 0.3, "denominator": "retrieved"},
        oracle_arguments={"beta": 0.3, "denominator": "retrieved"},
        perfect_is_one=False,
    ),
    Case(
        name="map at r",
        metric=metrics.MeanAveragePrecisionAtR,
        function=functional.average_precision_at_r,
        formula=oracle.average_precision_at_r,
    ),
    Case(
        name="r-precision",
        metric=metrics.RPrecision,
        function=functional.r_precision,
        formula=oracle.r_precision,
    ),
    Case(
        name="rbp",
        metric=metrics.RankBiasedPrecision,
        function=functional.rank_biased_precision,
        formula=oracle.rank_biased_precision,
        arguments={"persistence": 0.7},
        oracle_arguments={"persistence": 0.7},
        perfect_is_one=False,
    ),
    Case(
        name="rbp, normalized",
        metric=metrics.RankBiasedPrecision,
        function=functional.rank_biased_precision,
        formula=oracle.rank_biased_precision,
        arguments={"normalized": True},
        oracle_arguments={"normalized": True},
    ),
    Case(
        name="rbp of grades",
        metric=metrics.RankBiasedPrecision,
        function=functional.rank_biased_precision,
        formula=oracle.rank_biased_precision,
        relevance=oracle.exponential,
        arguments={"gain_fn": "exponential", "max_grade": 4},
        oracle_arguments={"relevant": lambda label: oracle.exponential(label) / 15},
        perfect_is_one=False,
    ),
    Case(
        name="rbp of grades from 2, normalized",
        metric=metrics.RankBiasedPrecision,
        function=functional.rank_biased_precision,
        formula=oracle.rank_biased_precision,
        relevance=lambda label: label if label >= 2 else 0.0,
        arguments={
            "gain_fn": "linear",
            "max_grade": 5,
            "relevance_threshold": 2.0,
            "normalized": True,
        },
        oracle_arguments={
            "relevant": lambda label: label / 5 if label >= 2 else 0.0,
            "normalized": True,
        },
    ),
    Case(
        name="bpref",
        metric=metrics.BPref,
        function=functional.bpref,
        formula=oracle.bpref,
        perfect_is_one=False,
    ),
    Case(
        name="fall-out",
        metric=metrics.FallOut,
        function=functional.fall_out,
        formula=oracle.fall_out,
        relevance=lambda label: float(label < 1.0),
        perfect_is_one=False,
    ),
    Case(
        name="arp",
        metric=metrics.AverageRelevancePosition,
        function=functional.average_relevance_position,
        formula=oracle.average_relevance_position,
        in_unit_interval=False,
        perfect_is_one=False,
        leaves_out_empty=True,
        worst=3.0,
    ),
    Case(
        name="pairwise accuracy",
        metric=metrics.PairwiseAccuracy,
        function=functional.pairwise_accuracy,
        formula=oracle.pairwise_accuracy,
        relevance=None,
        perfect_is_one=False,
        breaks_ties=False,
        leaves_out_empty=True,
    ),
    Case(
        name="pairwise accuracy, tied pairs wrong",
        metric=metrics.PairwiseAccuracy,
        function=functional.pairwise_accuracy,
        formula=oracle.pairwise_accuracy,
        relevance=None,
        arguments={"tied_value": 0.0},
        oracle_arguments={"tied_value": 0.0},
        perfect_is_one=False,
        breaks_ties=False,
        averages_ties=False,
        leaves_out_empty=True,
    ),
    *(
        Case(
            name=name,
            metric=metric,
            function=function,
            formula=formula,
            relevance=None,
            lowest=-1.0,
            breaks_ties=False,
            averages_ties=False,
            leaves_out_empty=True,
            has_cutoff=False,
        )
        for name, metric, function, formula in (
            (
                "kendall's tau",
                metrics.KendallTau,
                functional.kendall_tau,
                oracle.kendall_tau,
            ),
            (
                "spearman's correlation",
                metrics.SpearmanCorrelation,
                functional.spearman_correlation,
                oracle.spearman_correlation,
            ),
        )
    ),
    Case(
        name="alpha-ndcg",
        metric=metrics.AlphaNDCG,
        function=functional.alpha_ndcg,
        formula=oracle.alpha_ndcg,
        in_unit_interval=False,
    ),
    Case(
        name="alpha-dcg",
        metric=metrics.AlphaDCG,
        function=functional.alpha_dcg,
        formula=oracle.alpha_dcg,
        in_unit_interval=False,
        perfect_is_one=False,
    ),
    Case(
        name="err-ia",
        metric=metrics.ExpectedReciprocalRankIA,
        function=functional.expected_reciprocal_rank_ia,
        formula=oracle.expected_reciprocal_rank_ia,
        perfect_is_one=False,
    ),
    Case(
        name="precision-ia",
        metric=metrics.PrecisionIA,
        function=functional.precision_ia,
        formula=oracle.precision_ia,
        perfect_is_one=False,
    ),
    Case(
        name="subtopic recall",
        metric=metrics.SubtopicRecall,
        function=functional.subtopic_recall,
        formula=oracle.subtopic_recall,
    ),
]


def with_cutoff(k: int | None, cases: list[Case] = CASES) -> list[Case]:
    """The cases that take a cutoff, if there is one."""
    return [case for case in cases if k is None or case.has_cutoff]


# The same with several subtopics: the laws.
OF_SUBTOPICS = [
    dataclasses.replace(
        case,
        name=f"{case.name} of subtopics",
        relevance=lambda label: float(label > 0),
        arguments={**case.arguments, **arguments},
        oracle_arguments={"topics": oracle.digits, **oracle_arguments},
        has_digits=True,
        perfect_is_one=False,
        ignores_item_order=case.metric is not metrics.AlphaNDCG,
        ignores_longer_cutoffs=not {"normalizer", "denominator"} & {*arguments},
    )
    for case in CASES
    if case.metric.takes_subtopics
    for arguments, oracle_arguments in {
        metrics.AlphaNDCG: [
            ({}, {}),
            (
                {"alpha": 0.3, "rank_discount_fn": "reciprocal"},
                {"alpha": 0.3, "discount": lambda rank: 1 / rank},
            ),
        ],
        metrics.AlphaDCG: [
            ({}, {}),
            (
                {"alpha": 0.9, "normalizer": "maximum"},
                {"alpha": 0.9, "normalizer": "maximum"},
            ),
        ],
        metrics.ExpectedReciprocalRankIA: [
            ({}, {}),
            ({"normalizer": "maximum"}, {"normalizer": "maximum"}),
            (
                {"alpha": 0.2, "subtopic_weights": [1, 0.5, 3]},
                {"alpha": 0.2, "weights": [1, 0.5, 3]},
            ),
        ],
        metrics.PrecisionIA: [
            ({}, {}),
            (
                {"denominator": "k", "subtopic_weights": [2, 0, 1]},
                {"denominator": "k", "weights": [2, 0, 1]},
            ),
        ],
    }.get(case.metric, [({}, {})])
]

# Their values are none of lists: `test_exposure.py` has their laws.
OF_EXPOSURE = {
    metrics.AveragePopularity,
    metrics.Coverage,
    metrics.Gini,
    metrics.Novelty,
}

# One case of each metric, for what takes long.
FIRST_CASES = list({case.metric: case for case in reversed(CASES)}.values())[::-1]
# Where operations are compiled one by one, or slow by themselves.
IS_SLOW = keras.backend.backend() in ("jax", "tensorflow")
CASES_HERE = FIRST_CASES if IS_SLOW else CASES
