"""Exact ranks among candidates of which no matrix of scores could be held."""

from keras_rank.catalogue.evaluation import evaluate
from keras_rank.catalogue.ranks import rank
from keras_rank.catalogue.shards import Shards

__all__ = ["Shards", "evaluate", "rank"]
