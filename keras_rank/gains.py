"""Gains: what an item of a given label is worth.

`keras_rank.lists.relevance` caps gains, sets those below a threshold to 0, and scales
the exponential ones of a list where only their ratios matter.
"""

from collections.abc import Callable

import keras

from keras_rank.arrays.arithmetic import floats
from keras_rank.backends import Tensor, backend

__all__ = ["exponential", "linear"]

GainFn = Callable[[Tensor], Tensor]


@keras.saving.register_keras_serializable(package="keras_rank")
def exponential(labels: Tensor) -> Tensor:
    """The gain `2**label - 1`: each grade is worth about twice the one below.

    Args:
        labels: tensor of any shape. The graded labels, 0 for irrelevant. Those
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
    # 2**128 is more than float32 holds, and NumPy would warn.
    return 2.0 ** backend.minimum(floats(labels), 127.0) - 1.0


@keras.saving.register_keras_serializable(package="keras_rank")
def linear(labels: Tensor) -> Tensor:
    """The gain `label`: what trec_eval and scikit-learn use.

    Args:
        labels: tensor of any shape. The graded labels, 0 for irrelevant.

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
