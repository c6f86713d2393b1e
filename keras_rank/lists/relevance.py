"""Relevance functions, which compute the relevance of items from labels."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank import gains
from keras_rank.arrays.arithmetic import LARGEST_GAIN, SMALLEST_LABEL
from keras_rank.backends import Tensor, backend
from keras_rank.lists.tensors import check_result_shape, static_shape


@dataclasses.dataclass(frozen=True, eq=False)
class Relevance:
    """A function from labels to the relevance of items, with its properties.

    Two instances are equal if their functions and arguments are equal.

    Attributes:
        function: function of labels and a scale that returns a relevance of at least 0.
        arguments: further arguments of the function.
        is_monotone: whether relevance does not decrease with the label.
        is_zero_at_zero: whether a label of 0 has the relevance 0.
        is_binary: whether relevance is boolean.
        compute_scale: function from the highest label of each list, of shape
            `(batch, 1)`, to the scale. `None` if relevance depends on the label only.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    is_monotone: bool
    is_zero_at_zero: bool
    is_binary: bool = False
    compute_scale: Callable[[Tensor], Any] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Relevance) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.function, *map(_hashable_key, self.arguments)


def _hashable_key(argument: Any) -> Any:
    """Returns the argument, or its id if it has no hash, as some users' functions."""
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return argument


def from_threshold(threshold: float | None) -> Relevance:
    """Returns a relevance of 1 for labels of at least the threshold, or above 0."""
    is_zero_at_zero = threshold is None or threshold >= SMALLEST_LABEL
    return Relevance(is_relevant, (threshold,), True, is_zero_at_zero, is_binary=True)


def is_relevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Returns whether labels are at least the threshold, or above 0 if it is `None`."""
    return labels >= (SMALLEST_LABEL if threshold is None else threshold)


def below_threshold(threshold: float | None) -> Relevance:
    """Returns a relevance of 1 for items that are irrelevant to `from_threshold`."""
    return Relevance(is_irrelevant, (threshold,), False, False, is_binary=True)


def is_irrelevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Returns the negation of `is_relevant`."""
    return ops.logical_not(is_relevant(labels, scale, threshold))


def from_positive_label(threshold: float | None) -> Relevance:
    """Returns `from_threshold`, with a relevance of 0 for labels of 0."""
    is_positive = threshold is None or threshold > 0.0
    return from_threshold(threshold if is_positive else None)


def from_gain(gain_fn: gains.GainFn, threshold: float | None) -> Relevance:
    """Returns a relevance that is the gain of the label, or 0 below the threshold."""
    # The gain functions of this package are monotone, and 0 for a label of 0.
    is_known = gain_fn in (gains.exponential, gains.linear)
    excludes_zero = threshold is not None and threshold >= SMALLEST_LABEL
    return Relevance(
        absolute_gains, (gain_fn, threshold), is_known, is_known or excludes_zero
    )


def absolute_gains(
    labels: Tensor, scale: None, gain_fn: gains.GainFn, threshold: float | None
) -> Tensor:
    """Returns the gains of labels, from 0 to `LARGEST_GAIN`."""
    gains_of_labels = gain_fn(labels)
    check_result_shape(
        gains_of_labels,
        labels,
        lambda: (
            "`gain_fn` should return a gain for each label, of the shape of the "
            f"labels, {static_shape(labels)}"
        ),
    )
    return _cap_gains(threshold, labels, ops.cast(gains_of_labels, labels.dtype))


def from_gain_ratio(gain_fn: gains.GainFn, threshold: float | None) -> Relevance:
    """Returns a relevance that is the gain of the label, up to a factor per list."""
    if gain_fn is not gains.exponential:
        return from_gain(gain_fn, threshold)
    return Relevance(
        relative_gains, (threshold,), True, True, compute_scale=shift_and_floor
    )


def relative_gains(
    labels: Tensor, scale: tuple[Tensor, Tensor], threshold: float | None
) -> Tensor:
    """Returns the exponential gains of labels, up to a factor for each list.

    Gains overflow float32 at a label of 128. Only ratios of gains are used, so the
    gains of a list with high labels are divided by a power of two:
    `2**(label + shift) - 2**shift`, with a shift below 0.
    """
    shift, floor = scale
    return _cap_gains(threshold, labels, backend.power_of_two(labels + shift) - floor)


def shift_and_floor(highest_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the shift of the labels of each list, and `2**shift`."""
    shift = backend.minimum(math.log2(LARGEST_GAIN) - highest_labels, 0.0)
    return shift, backend.power_of_two(shift)


def _cap_gains(
    threshold: float | None, labels: Tensor, gains_of_labels: Tensor
) -> Tensor:
    """Returns gains from 0 to `LARGEST_GAIN`, and 0 for labels below the threshold."""
    gains_of_labels = backend.clip(gains_of_labels, 0.0, LARGEST_GAIN)
    if threshold is None:
        return gains_of_labels
    return backend.where(labels >= threshold, gains_of_labels, 0.0)
