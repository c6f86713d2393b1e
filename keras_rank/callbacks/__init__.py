"""Callbacks that evaluate a model in `fit`, where a compiled metric can't do it."""

from keras_rank.callbacks.catalogue import CatalogueEvaluation
from keras_rank.callbacks.grouped import GroupedEvaluation
from keras_rank.callbacks.lists import ListEvaluation

__all__ = ["CatalogueEvaluation", "GroupedEvaluation", "ListEvaluation"]
