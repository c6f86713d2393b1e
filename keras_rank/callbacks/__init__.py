"""Callbacks that evaluate a model in `fit` in cases that compiled metrics can't."""

from keras_rank.callbacks.catalogue_evaluation import CatalogueEvaluation
from keras_rank.callbacks.grouped_evaluation import GroupedEvaluation
from keras_rank.callbacks.list_evaluation import ListEvaluation

__all__ = ["CatalogueEvaluation", "GroupedEvaluation", "ListEvaluation"]
