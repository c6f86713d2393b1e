"""Ranking metrics for `model.compile` and standalone use."""

from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.graded import DCG, NDCG

__all__ = ["DCG", "NDCG", "RankingMetric"]
