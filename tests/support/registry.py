"""The list of all metrics, with the arguments and the oracle of each test case.

The property tests run for every case in this list: add a new metric here.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import keras
import oracle

import keras_rank
from keras_rank import functional, metrics


@dataclasses.dataclass(frozen=True)
class Case:
    """A metric with one set of arguments, as class, function and oracle formula."""

    name: str
    metric: type[metrics.RankingMetric]
    # The formula of the oracle has the name of this function.
    function: Callable[..., Any]
    # Arguments of the class and the function.
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The oracle's relevance of a label. `None`: 1 for all labels above the lowest one.
    relevance: Callable[[float], float] | None = oracle.at_least_one
    # Arguments of the oracle that differ from `arguments`.
    oracle_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Whether averaged ties give the mean over all orders of the tied items.
    averages_ties: bool = True
    # Whether the metric ignores `empty_value` and always leaves out empty lists.
    leaves_out_empty: bool = False
    # Whether the metric accepts a cutoff.
    has_cutoff: bool = True
    # Whether the binary digits of a label stand for several subtopics.
    has_digits: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def ignores_longer_cutoffs(self) -> bool:
        """Returns whether a cutoff beyond the list size changes no value.

        It changes the value if the cutoff is a divisor.
        """
        return not {"k", "maximum"} & {*map(str, self.arguments.values())}

    @property
    def has_tie_bounds(self) -> bool:
        """Returns whether the metric accepts `"worst"` and `"best"` orders of ties."""
        refused = metrics.KendallTau, metrics.SpearmanCorrelation
        is_refused = self.metric.takes_subtopics or self.metric in refused
        return not (is_refused or self.arguments.get("normalizer") == "retrieved")

    def make(self, **arguments: Any) -> metrics.RankingMetric:
        return self.metric(**self._accepted(arguments))

    def values(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, **arguments: Any
    ) -> Any:
        arguments = self._accepted(arguments)
        y_true = self.labels(y_true)
        return self.function(y_true, y_pred, sample_weight=sample_weight, **arguments)

    def labels(self, y_true: Any) -> Any:
        """Returns the labels for the metric, with an axis of subtopics if needed."""
        if not self.has_digits:
            return y_true
        if isinstance(y_true, dict):
            return {**y_true, "labels": self.labels(y_true["labels"])}
        return oracle.subtopic_labels(y_true)

    def _accepted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns all arguments, without those that the metric does not accept."""
        refused = {"empty_value", "empty_weight"} if self.leaves_out_empty else set()
        refused |= set() if self.has_cutoff else {"k"}
        merged = {"seed": 1, **self.arguments, **arguments}
        return {name: x for name, x in merged.items() if name not in refused}

    def list_weight(self, items) -> float | None:
        lowest = min((item.label for item in items), default=0.0)
        relevance = self.relevance or (lambda label: float(label > lowest))
        return oracle.list_weight(items, relevance)

    def oracle_value(self, items, **arguments: Any) -> float:
        """Returns the value of the oracle for one list.

        Arguments that the formula does not have are contained in `relevance`.
        """
        formula = getattr(oracle, self.function.__name__)
        options = {"relevance": self.relevance, **self.arguments}
        options |= self.oracle_arguments
        parameters = inspect.signature(formula).parameters
        accepted = {name: options[name] for name in parameters if name in options}
        return oracle.value(formula, items, **{"seed": 1, **accepted, **arguments})


def cases(metric, function, *variants, **shared) -> list[Case]:
    """Returns cases of a metric. Each variant is a name and the fields after it."""
    return [
        Case(name, metric, function, *fields, **shared) for name, *fields in variants
    ]


def above_0(label: float) -> float:
    return float(label > 0)


def gain_from_2(label: float) -> float:
    return oracle.exponential(label) if label >= 2 else 0.0


def label_from_2(label: float) -> float:
    return label if label >= 2 else 0.0


CORRELATION: dict[str, Any] = {"relevance": None, "averages_ties": False}
CORRELATION |= {"leaves_out_empty": True, "has_cutoff": False}
CASES = [
    *cases(
        metrics.ExpectedReciprocalRank,
        functional.expected_reciprocal_rank,
        ("err", {}, above_0),
        (
            "err from grade 2 of 5",
            {"max_grade": 5, "relevance_threshold": 2.0},
            oracle.binary(2.0),
        ),
    ),
    *cases(
        metrics.NDCG,
        functional.ndcg,
        ("ndcg", {}, oracle.exponential),
        (
            "ndcg of linear gains, clipped discount",
            {"gain_fn": "linear", "rank_discount_fn": "clipped_log2"},
            oracle.linear,
        ),
        ("ndcg from grade 2", {"relevance_threshold": 2.0}, gain_from_2),
    ),
    *cases(
        metrics.DCG,
        functional.dcg,
        ("dcg", {}, oracle.exponential),
        (
            "dcg of geometric discount",
            {"rank_discount_fn": keras_rank.discounts.geometric(0.7)},
            oracle.exponential,
            {"rank_discount_fn": lambda rank: 0.7 ** (rank - 1)},
        ),
    ),
    *cases(
        metrics.MeanAveragePrecision,
        functional.average_precision,
        ("map",),
        ("map, clipped", {"normalizer": "clipped"}),
        (
            "map of the retrieved, from grade 3",
            {"normalizer": "retrieved", "relevance_threshold": 3.0},
            oracle.binary(3.0),
        ),
    ),
    Case("mrr", metrics.MeanReciprocalRank, functional.reciprocal_rank),
    *cases(
        metrics.PrecisionAtK,
        functional.precision,
        ("precision",),
        ("precision of the retrieved", {"denominator": "retrieved"}),
        ("precision of k", {"denominator": "k"}),
    ),
    *cases(
        metrics.RecallAtK,
        functional.recall,
        ("recall",),
        ("recall, clipped", {"normalizer": "clipped"}),
    ),
    Case("hit rate", metrics.HitRate, functional.hit_rate),
    Case("f1", metrics.F1AtK, functional.f1),
    *cases(
        metrics.FBetaAtK,
        functional.f_beta,
        ("f-beta",),
        ("f-beta of 0.3, of the retrieved", {"beta": 0.3, "denominator": "retrieved"}),
    ),
    Case(
        "map at r", metrics.MeanAveragePrecisionAtR, functional.average_precision_at_r
    ),
    Case("r-precision", metrics.RPrecision, functional.r_precision),
    *cases(
        metrics.RankBiasedPrecision,
        functional.rank_biased_precision,
        ("rbp", {"persistence": 0.7}),
        (
            "rbp of grades",
            {"gain_fn": "exponential", "max_grade": 4},
            oracle.exponential,
        ),
        ("rbp, normalized", {"normalized": True}),
        (
            "rbp of grades from 2, normalized",
            {
                "gain_fn": "linear",
                "max_grade": 5,
                "relevance_threshold": 2.0,
                "normalized": True,
            },
            label_from_2,
        ),
    ),
    Case("bpref", metrics.BPref, functional.bpref),
    Case(
        "fall-out",
        metrics.FallOut,
        functional.fall_out,
        relevance=lambda label: float(label < 1.0),
    ),
    Case(
        "arp",
        metrics.AverageRelevancePosition,
        functional.average_relevance_position,
        leaves_out_empty=True,
    ),
    *cases(
        metrics.PairwiseAccuracy,
        functional.pairwise_accuracy,
        ("pairwise accuracy", {}, None),
        ("pairwise accuracy, tied pairs wrong", {"tied_value": 0.0}, None, {}, False),
        leaves_out_empty=True,
    ),
    Case("kendall's tau", metrics.KendallTau, functional.kendall_tau, **CORRELATION),
    Case(
        "spearman's correlation",
        metrics.SpearmanCorrelation,
        functional.spearman_correlation,
        **CORRELATION,
    ),
    Case("alpha-ndcg", metrics.AlphaNDCG, functional.alpha_ndcg),
    Case("alpha-dcg", metrics.AlphaDCG, functional.alpha_dcg),
    Case(
        "err-ia",
        metrics.ExpectedReciprocalRankIA,
        functional.expected_reciprocal_rank_ia,
    ),
    Case("precision-ia", metrics.PrecisionIA, functional.precision_ia),
    Case("subtopic recall", metrics.SubtopicRecall, functional.subtopic_recall),
]


def cases_for_cutoff(k: int | None, cases: list[Case] = CASES) -> list[Case]:
    """Returns the cases that accept the cutoff `k`."""
    return [case for case in cases if k is None or case.has_cutoff]


# The cases of metrics of subtopics with several subtopics, and with more arguments.
MORE_ARGUMENTS = {
    metrics.AlphaNDCG: [{"alpha": 0.3, "rank_discount_fn": "reciprocal"}],
    metrics.AlphaDCG: [{"alpha": 0.9, "normalizer": "maximum"}],
    metrics.ExpectedReciprocalRankIA: [
        {"normalizer": "maximum"},
        {"alpha": 0.2, "subtopic_weights": [1, 0.5, 3]},
    ],
    metrics.PrecisionIA: [{"denominator": "k", "subtopic_weights": [2, 0, 1]}],
}
SUBTOPIC_CASES = [
    dataclasses.replace(
        case,
        name=f"{case.name} of subtopics",
        relevance=above_0,
        arguments=arguments,
        oracle_arguments={"topics": oracle.subtopics_in_digits},
        has_digits=True,
    )
    for case in CASES
    if case.metric.takes_subtopics
    for arguments in [{}, *MORE_ARGUMENTS.get(case.metric, [])]
]

# Metrics that need no labels, which `test_exposure.py` tests.
EXPOSURE_METRICS = {
    metrics.AveragePopularity,
    metrics.Coverage,
    metrics.Gini,
    metrics.IntraListDiversity,
    metrics.Novelty,
    metrics.Personalization,
}

# One case of each metric, for slow tests.
FIRST_CASES = list({case.metric: case for case in reversed(CASES)}.values())[::-1]
# Operations are slow on these backends, or are compiled one by one.
IS_SLOW = keras.backend.backend() in ("jax", "tensorflow")
BACKEND_CASES = FIRST_CASES if IS_SLOW else CASES
