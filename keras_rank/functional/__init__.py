"""Ranking metrics as functions that return one value per list."""

from keras_rank.functional.graded import dcg, ndcg

__all__ = ["dcg", "ndcg"]
