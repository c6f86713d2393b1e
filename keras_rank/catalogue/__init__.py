"""Exact ranks among more candidates than a matrix of scores could hold."""

from keras_rank.catalogue.best import top_k
from keras_rank.catalogue.evaluation import evaluate
from keras_rank.catalogue.ranks import rank
from keras_rank.catalogue.shards import Shards

__all__ = ["Shards", "evaluate", "rank", "top_k"]
