"""Ranking metrics as functions that return one value per list.

In `compile`, use the classes of `keras_rank.metrics`: the mean that Keras takes of a
function is NaN with a list of padding, and ignores the weights of lists.
"""

from keras_rank.functional.binary import (
    average_precision,
    bpref,
    f1,
    fall_out,
    hit_rate,
    precision,
    r_precision,
    rank_biased_precision,
    recall,
    reciprocal_rank,
)
from keras_rank.functional.graded import dcg, expected_reciprocal_rank, ndcg
from keras_rank.functional.pairwise import average_relevance_position, pairwise_accuracy
from keras_rank.functional.per_list import rank

__all__ = [
    "average_precision",
    "average_relevance_position",
    "bpref",
    "dcg",
    "expected_reciprocal_rank",
    "f1",
    "fall_out",
    "hit_rate",
    "ndcg",
    "pairwise_accuracy",
    "precision",
    "r_precision",
    "rank",
    "rank_biased_precision",
    "recall",
    "reciprocal_rank",
]
