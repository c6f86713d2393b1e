"""Gains: functions that map graded labels to the values of items.

`keras_rank.lists.relevance` caps gains, sets gains below a threshold to 0, and scales
the exponential gains of a list where only their ratios matter.
"""

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
from keras import ops

from keras_rank.arrays.arithmetic import cast_to_float
from keras_rank.backends import Tensor, backend

__all__ = ["by_label", "exponential", "linear"]

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


class ParametricFunction:
    """A function with arguments. Instances with equal arguments are equal."""

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ParametricFunction":
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={x}" for name, x in vars(self).items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))


@keras.saving.register_keras_serializable(package="keras_rank")
class ByLabel(ParametricFunction):
    """The gain that `by_label` returns: a table of labels and gains."""

    def __init__(
        self, gains: Mapping[float, float] | Iterable[Iterable[float]]
    ) -> None:
        pairs = [*gains.items()] if isinstance(gains, Mapping) else [*map(tuple, gains)]
        if not pairs or not all(_is_gain(x) for pair in pairs for x in pair):
            raise ValueError(
                "`gains` should be a dict from labels to gains, finite numbers of 0 or "
                f"more. Received: gains={gains!r}"
            )
        self.gains = tuple(sorted((float(x), float(y)) for x, y in pairs))

    def get_config(self) -> dict[str, Any]:
        return {"gains": [list(pair) for pair in self.gains]}

    def __call__(self, labels: Tensor) -> Tensor:
        labels = cast_to_float(labels)
        has_gain, found = labels == 0.0, ops.zeros_like(labels)
        for label, gain in self.gains:
            has_gain = ops.logical_or(has_gain, labels == label)
            found = backend.where(labels == label, gain, found)
        backend.require(
            ops.all(has_gain),
            f"`gains` should have a gain for each label, {dict(self.gains)}. Received: "
            "another label",
        )
        return found


def _is_gain(x: Any) -> bool:
    is_number = isinstance(x, numbers.Real) and not isinstance(x, bool)
    return is_number and 0.0 <= float(x) < math.inf


def by_label(gains: Mapping[float, float]) -> GainFn:
    """Returns the gain function that looks up labels in a table.

    Args:
        gains: dict from labels to gains, finite numbers of 0 or more. The label 0 has
            the gain 0 if it is missing.

    Returns:
        A function of labels, for the argument `gain_fn`. In eager code, it raises
        `ValueError` for a label without a gain. In compiled code, the gain is 0.

    Raises:
        ValueError: if a label or a gain is not a finite number of 0 or more.

    Example:

    >>> metric = keras_rank.metrics.DCG(gain_fn=keras_rank.gains.by_label({1: 1, 2: 5}))
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '5.4307'
    """
    return ByLabel(gains)
