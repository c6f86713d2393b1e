"""Ranking metrics for `model.compile` and standalone use."""

from keras_rank.metrics.base import ExposureMetric, RankingMetric
from keras_rank.metrics.binary import (
    BPref,
    F1AtK,
    FallOut,
    FBetaAtK,
    HitRate,
    MeanAveragePrecision,
    MeanAveragePrecisionAtR,
    MeanReciprocalRank,
    PrecisionAtK,
    RankBiasedPrecision,
    RecallAtK,
    RPrecision,
)
from keras_rank.metrics.diversity import IntraListDiversity, Personalization
from keras_rank.metrics.exposure import AveragePopularity, Coverage, Gini, Novelty
from keras_rank.metrics.graded import DCG, NDCG, ExpectedReciprocalRank
from keras_rank.metrics.group import RankingMetrics
from keras_rank.metrics.pairwise import (
    AverageRelevancePosition,
    KendallTau,
    PairwiseAccuracy,
    SpearmanCorrelation,
)
from keras_rank.metrics.subtopics import (
    AlphaDCG,
    AlphaNDCG,
    ExpectedReciprocalRankIA,
    PrecisionIA,
    SubtopicRecall,
)

__all__ = [
    "DCG",
    "NDCG",
    "AlphaDCG",
    "AlphaNDCG",
    "AveragePopularity",
    "AverageRelevancePosition",
    "BPref",
    "Coverage",
    "ExpectedReciprocalRank",
    "ExpectedReciprocalRankIA",
    "ExposureMetric",
    "F1AtK",
    "FBetaAtK",
    "FallOut",
    "Gini",
    "HitRate",
    "IntraListDiversity",
    "KendallTau",
    "MeanAveragePrecision",
    "MeanAveragePrecisionAtR",
    "MeanReciprocalRank",
    "Novelty",
    "PairwiseAccuracy",
    "Personalization",
    "PrecisionAtK",
    "PrecisionIA",
    "RPrecision",
    "RankBiasedPrecision",
    "RankingMetric",
    "RankingMetrics",
    "RecallAtK",
    "SpearmanCorrelation",
    "SubtopicRecall",
]
