"""Ranking metrics as functions that return one value per list.

In `compile`, use the classes of `keras_rank.metrics`: the mean that Keras takes of a
function is NaN with a list of padding, and ignores the weights of lists.

The functions have the arguments below, and document only their own.

Args:
    y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of uneven
        length, or a dict `{"labels": ..., "mask": ...}`. A position whose label is
        below 0 or NaN, or whose mask is False, is padding. All functions but
        `keras_rank.functional.rank` also take the ranked lists that it returns, in
        place of all its arguments but `k`.
    y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item scored `-inf`
        or NaN is judged, but not retrieved: it has no rank. Where a mask that layers
        have passed on to the scores is False, there is padding.
    sample_weight: `None`, a number, or weights of shape `(batch,)`, `(batch, 1)` or
        `(batch, list_size)`; `(list_size,)` for a single list. An item whose weight is
        not above 0 is padding. Other weights of items matter only where the equation
        has them. One weight for a whole list does not change its value: it only weights
        the list in a mean.
    k: positive int. The number of ranks that count. Defaults to `None`: all.
    shuffle_ties: how tied items are ordered. `True`: at random, from `seed`. `False`:
        the earlier item first. `"average"`: the exact mean over all their orders.
        Defaults to `True`.
    seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
        `None`: each call draws a seed from Keras's global generator, as seedless random
        operations of Keras do. Code that is compiled takes it from the state of
        Python's generator instead. `keras.utils.set_random_seed` sets both.
    empty_value: float. The value of a list that has items, but no relevant ones.
        Defaults to 0.0. `None` gives NaN.
    relevance_threshold: float. Items with this label or a higher one are relevant.
        Defaults to 1.0. `None`: those with any label above 0.
    sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of shape
        `(batch,)` or `(batch, targets)` padded with -1, or a dict of `"ids"` and
        `"labels"` of this shape that grades them, and `y_pred` the scores of a whole
        catalogue, of shape `(batch, items)`. An id that is not in the catalogue is an
        error in eager code, and counts as not retrieved in compiled code. Defaults to
        `False`.
    dtype: `"float64"` to compute in float64. Defaults to float32.
"""

from typing import TYPE_CHECKING, NoReturn

from keras_rank.functional.binary import (
    average_precision,
    average_precision_at_r,
    bpref,
    f1,
    f_beta,
    fall_out,
    hit_rate,
    precision,
    r_precision,
    rank_biased_precision,
    recall,
    reciprocal_rank,
)
from keras_rank.functional.graded import dcg, expected_reciprocal_rank, ndcg
from keras_rank.functional.pairwise import (
    average_relevance_position,
    kendall_tau,
    pairwise_accuracy,
    spearman_correlation,
)
from keras_rank.functional.per_list import rank
from keras_rank.functional.subtopics import (
    alpha_dcg,
    alpha_ndcg,
    expected_reciprocal_rank_ia,
    precision_ia,
    subtopic_recall,
)
from keras_rank.spelling import no_attribute

__all__ = [
    "alpha_dcg",
    "alpha_ndcg",
    "average_precision",
    "average_precision_at_r",
    "average_relevance_position",
    "bpref",
    "dcg",
    "expected_reciprocal_rank",
    "expected_reciprocal_rank_ia",
    "f1",
    "f_beta",
    "fall_out",
    "hit_rate",
    "kendall_tau",
    "ndcg",
    "pairwise_accuracy",
    "precision",
    "precision_ia",
    "r_precision",
    "rank",
    "rank_biased_precision",
    "recall",
    "reciprocal_rank",
    "spearman_correlation",
    "subtopic_recall",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
