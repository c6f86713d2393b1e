"""Gains: functions that map graded labels to the values of items.

`keras_rank.lists.relevance` caps gains, sets gains below a threshold to 0, and scales
the exponential gains of a list where only their ratios matter.
"""

from collections.abc import Callable

import keras

from keras_rank.arrays.arithmetic import cast_to_float
from keras_rank.backends import Tensor, backend

__all__ = ["exponential", "linear"]

GainFn = Callable[[Tensor], Tensor]


@keras.saving.register_keras_serializable(package="keras_rank")
def exponential(labels: Tensor) -> Tensor:
    """Returns the gains `2**label - 1`, which about double from grade to grade.

    Args:
        labels: tensor of any shape. The graded labels, 0 for irrelevant items. Labels
            above 127 count as 127.

    Returns:
        A tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(keras_rank.gains.exponential(ops.array([0.0, 1.0, 3.0])))
    array([0., 1., 7.], dtype=float32)

    Reference:
        Burges et al., "Learning to rank using gradient descent", ICML 2005.
    """
    # 2**128 overflows float32, and NumPy would warn.
    return 2.0 ** backend.minimum(cast_to_float(labels), 127.0) - 1.0


@keras.saving.register_keras_serializable(package="keras_rank")
def linear(labels: Tensor) -> Tensor:
    """Returns the labels as gains, as trec_eval and scikit-learn do.

    Args:
        labels: tensor of any shape. The graded labels, 0 for irrelevant items.

    Returns:
        A tensor of the same shape.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(keras_rank.gains.linear(ops.array([0.0, 1.0, 3.0])))
    array([0., 1., 3.], dtype=float32)

    Reference:
        Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR
        techniques", ACM TOIS 20(4), 2002.
    """
    return labels
