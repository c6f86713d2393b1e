"""Gains: functions that map graded labels to the values of items.

`keras_rank.lists.relevance` caps gains, sets the gains of labels below a threshold to
0, and scales the exponential gains of a list if a metric uses only their ratios.
"""

from collections.abc import Callable, ItemsView, Mapping, Sequence
from typing import Any

import keras
import numpy as np
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
    """The gain function that `by_label` returns, with a table of labels and gains."""

    def __init__(
        self, gains: Mapping[float, float] | Sequence[Sequence[float]]
    ) -> None:
        # Configs have a list of pairs, as the keys of JSON are text.
        pairs = gains.items() if isinstance(gains, Mapping) else gains
        table = _read_table(pairs)
        if table is None:
            raise ValueError(
                "`gains` should be a dict from labels to gains, numbers from 0 to "
                f"2**127. Received: gains={gains!r}"
            )
        self.gains = tuple(sorted(table.items()))

    def get_config(self) -> dict[str, Any]:
        return {"gains": [list(pair) for pair in self.gains]}

    def __call__(self, labels: Tensor) -> Tensor:
        labels = cast_to_float(labels)
        values = ops.zeros_like(labels)
        for label, gain in self.gains:
            values = backend.where(self._is_label(labels, label), gain, values)
        return values

    def has_gain(self, labels: Tensor) -> Tensor:
        """Returns whether each label has a gain. The label 0 always has a gain."""
        has_gain = labels == 0.0
        for label, _ in self.gains:
            has_gain = ops.logical_or(has_gain, self._is_label(labels, label))
        return has_gain

    def _is_label(self, labels: Tensor, label: float) -> Tensor:
        # The labels of the table are rounded to float32, so `labels` must be, too.
        return ops.cast(labels, "float32") == label


def _read_table(pairs: Any) -> dict[float, float] | None:
    """Returns gains by label, in float32, or `None` if they are invalid."""
    is_sequence = isinstance(pairs, Sequence | ItemsView) and not isinstance(pairs, str)
    if not is_sequence or not all(
        isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs
    ):
        return None
    numbers_in_pairs = [x for pair in pairs for x in pair]
    numbers_are_valid = all(
        isinstance(x, int | float | np.number)
        and not isinstance(x, bool)
        and 0 <= x <= 2.0**127
        for x in numbers_in_pairs
    )
    if not numbers_in_pairs or not numbers_are_valid:
        return None
    table = {float(np.float32(label)): float(gain) for label, gain in pairs}
    return table if len(table) == len(pairs) else None


def by_label(gains: Mapping[float, float]) -> GainFn:
    """Returns the gain function that looks up labels in a table.

    Args:
        gains: dict from labels to gains, numbers from 0 to `2**127`. The label 0 has
            the gain 0 if it is missing.

    Returns:
        A function of labels, for the argument `gain_fn`. In eager code, metrics raise
        `ValueError` for a label without a gain. In compiled code, its gain is 0.

    Raises:
        ValueError: if a label or a gain is not a number from 0 to `2**127`.

    Example:

    >>> metric = keras_rank.metrics.DCG(gain_fn=keras_rank.gains.by_label({1: 1, 2: 5}))
    >>> metric.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> f"{float(metric.result()):.4f}"
    '5.4307'
    """
    return ByLabel(gains)
