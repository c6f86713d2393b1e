"""What a label is worth: the relevance of items, computed where it is needed."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_rank import gains
from keras_rank.arrays.arithmetic import LARGEST_GAIN, SMALLEST_LABEL
from keras_rank.backends import Tensor, backend
from keras_rank.lists.tensors import check_returned, shape_of


@dataclasses.dataclass(frozen=True, eq=False)
class Relevance:
    """What finding an item is worth, by its label.

    Two are equal if function and arguments are.

    Attributes:
        function: function of labels and their scale that returns their relevance, 0 or
            more.
        arguments: further arguments of the function.
        is_monotone: whether a higher label is never worth less.
        zero_at_zero: whether a label of 0 is worth nothing.
        is_binary: whether relevance is boolean.
        scale_of: function of the highest label of each list, of shape `(batch, 1)`,
            that returns the scale. `None` if the label is enough.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    is_monotone: bool
    zero_at_zero: bool
    is_binary: bool = False
    scale_of: Callable[[Tensor], Any] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Relevance) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.function, *map(_key_of, self.arguments)


def _key_of(argument: Any) -> Any:
    """The argument, or its identity for some users' functions, which have no hash."""
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return argument


def from_threshold(threshold: float | None) -> Relevance:
    """Relevance is 1 from the threshold on, or above 0 without a threshold."""
    excludes_zero = threshold is None or threshold >= SMALLEST_LABEL
    return Relevance(is_relevant, (threshold,), True, excludes_zero, is_binary=True)


def is_relevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Whether items of these labels are relevant."""
    return labels >= (SMALLEST_LABEL if threshold is None else threshold)


def below_threshold(threshold: float | None) -> Relevance:
    """Relevance is 1 where that of `from_threshold` is 0, and 0 elsewhere."""
    return Relevance(is_irrelevant, (threshold,), False, False, is_binary=True)


def is_irrelevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Whether items of these labels are irrelevant."""
    return ops.logical_not(is_relevant(labels, scale, threshold))


def of_label_above_zero(threshold: float | None) -> Relevance:
    """Relevance is 1 from the threshold on, except for labels of 0."""
    is_above = threshold is None or threshold > 0.0
    return from_threshold(threshold if is_above else None)


def of_gain(gain_fn: gains.GainFn, threshold: float | None) -> Relevance:
    """Relevance is the gain of the label, 0 below the threshold."""
    # Known properties of this package's gain functions.
    is_known = gain_fn in (gains.exponential, gains.linear)
    excludes_zero = threshold is not None and threshold >= SMALLEST_LABEL
    return Relevance(
        absolute_gains, (gain_fn, threshold), is_known, is_known or excludes_zero
    )


def absolute_gains(
    labels: Tensor, scale: None, gain_fn: gains.GainFn, threshold: float | None
) -> Tensor:
    """The gains of labels, from 0 to `LARGEST_GAIN`."""
    found = gain_fn(labels)
    check_returned(
        found,
        labels,
        lambda: (
            "`gain_fn` should return a gain for each label, of the shape of the "
            f"labels, {shape_of(labels)}"
        ),
    )
    return _capped(threshold, labels, ops.cast(found, labels.dtype))


def of_gain_ratio(gain_fn: gains.GainFn, threshold: float | None) -> Relevance:
    """Relevance is the gain of the label, up to a factor for each list."""
    if gain_fn is not gains.exponential:
        return of_gain(gain_fn, threshold)
    return Relevance(relative_gains, (threshold,), True, True, scale_of=shift_and_floor)


def relative_gains(
    labels: Tensor, scale: tuple[Tensor, Tensor], threshold: float | None
) -> Tensor:
    """The exponential gains of labels up to a factor for each list.

    They overflow float32 at a label of 128. Only their ratios matter here, so a list
    with such labels has all its gains divided by a power of two:
    `2**(label + shift) - 2**shift`, with a shift below 0.
    """
    shift, floor = scale
    return _capped(threshold, labels, backend.power_of_two(labels + shift) - floor)


def shift_and_floor(highest_labels: Tensor) -> tuple[Tensor, Tensor]:
    """The power of two by which gains are multiplied, and what it makes of 1."""
    shift = backend.minimum(math.log2(LARGEST_GAIN) - highest_labels, 0.0)
    return shift, backend.power_of_two(shift)


def _capped(threshold: float | None, labels: Tensor, gains_of_labels: Tensor) -> Tensor:
    """Gains from 0 to `LARGEST_GAIN`, and 0 for labels below the threshold."""
    gains_of_labels = backend.clip(gains_of_labels, 0.0, LARGEST_GAIN)
    if threshold is None:
        return gains_of_labels
    return backend.where(labels >= threshold, gains_of_labels, 0.0)
