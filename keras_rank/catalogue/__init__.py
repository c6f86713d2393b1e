"""Exact ranks among candidates too many for a matrix of scores."""

from keras_rank.catalogue.best import top_k
from keras_rank.catalogue.evaluation import evaluate
from keras_rank.catalogue.ranks import rank
from keras_rank.catalogue.shards import Shards

__all__ = ["Shards", "evaluate", "rank", "top_k"]
