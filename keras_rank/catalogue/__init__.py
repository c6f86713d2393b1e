"""Exact ranks among candidates that are too many for a matrix of scores."""

from keras_rank.catalogue.catalogue_metrics import evaluate
from keras_rank.catalogue.shards import Shards
from keras_rank.catalogue.target_ranks import rank
from keras_rank.catalogue.top_candidates import top_k

__all__ = ["Shards", "evaluate", "rank", "top_k"]
