"""The relevance of an item, by its label."""

import math

import numpy as np
from keras import ops

from keras_rank import gains
from keras_rank.arrays.arithmetic import at_most, where, within
from keras_rank.arrays.backends import Tensor, power_of_two
from keras_rank.lists.base import LARGEST_GAIN
from keras_rank.lists.judged import Judgement
from keras_rank.lists.tensors import check_returned, shape_of

# The smallest label above 0, as some backends treat denormal numbers as 0.
SMALLEST_LABEL = float(np.finfo("float32").smallest_normal)


def from_threshold(threshold: float | None) -> Judgement:
    """Relevance is 1 from the threshold on, or above 0 without a threshold."""
    above_zero = threshold is None or excludes_zero(threshold)
    return Judgement(
        is_relevant,
        (threshold,),
        grows=True,
        only_relevant=above_zero,
        is_binary=True,
    )


def excludes_zero(threshold: float | None) -> bool:
    """Whether there is a threshold above 0."""
    return threshold is not None and threshold >= SMALLEST_LABEL


def is_relevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Whether items of these labels are relevant."""
    return labels >= (SMALLEST_LABEL if threshold is None else threshold)


def below_threshold(threshold: float | None) -> Judgement:
    """Relevance is 1 where that of `from_threshold` is 0, and 0 elsewhere."""
    return Judgement(
        is_irrelevant,
        (threshold,),
        grows=False,
        only_relevant=False,
        is_binary=True,
    )


def is_irrelevant(labels: Tensor, scale: None, threshold: float | None) -> Tensor:
    """Whether items of these labels are irrelevant. Below 0 there is no item."""
    is_below = ops.logical_not(is_relevant(labels, scale, threshold))
    return ops.logical_and(is_below, labels >= 0.0)


def of_gain(gain_fn: gains.GainFn, threshold: float | None) -> Judgement:
    """Relevance is the gain of the label, 0 below the threshold."""
    # Known properties of this package's gain functions.
    grows_from_zero = gain_fn in (gains.exponential, gains.linear)
    return Judgement(
        absolute_gains,
        (gain_fn, threshold),
        grows=grows_from_zero,
        only_relevant=grows_from_zero or excludes_zero(threshold),
    )


def of_gain_ratio(gain_fn: gains.GainFn, threshold: float | None) -> Judgement:
    """Relevance is the gain of the label, up to a factor for each list."""
    if gain_fn is not gains.exponential:
        return of_gain(gain_fn, threshold)
    return Judgement(
        relative_gains,
        (threshold,),
        grows=True,
        only_relevant=True,
        scale_of=shift_and_floor,
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
    return _from(threshold, labels, ops.cast(found, labels.dtype))


def relative_gains(
    labels: Tensor, scale: tuple[Tensor, Tensor], threshold: float | None
) -> Tensor:
    """The exponential gains of labels up to a factor for each list.

    They overflow float32 at a label of 128. Only their ratios matter here, so a list
    with such labels has all its gains divided by a power of two:
    `2**(label + shift) - 2**shift`, with a shift below 0.
    """
    shift, floor = scale
    gains_of_labels = power_of_two(labels + shift) - floor
    return _from(threshold, labels, gains_of_labels)


def shift_and_floor(highest_labels: Tensor) -> tuple[Tensor, Tensor]:
    """The power of two by which gains are multiplied, and what it makes of 1."""
    shift = at_most(math.log2(LARGEST_GAIN) - highest_labels, 0.0)
    return shift, power_of_two(shift)


def _from(threshold: float | None, labels: Tensor, gains_of_labels: Tensor) -> Tensor:
    gains_of_labels = within(gains_of_labels, 0.0, LARGEST_GAIN)
    if threshold is None:
        return gains_of_labels
    return where(labels >= threshold, gains_of_labels, 0.0)


def of_label_above_zero(threshold: float | None) -> Judgement:
    """Relevance is 1 from the threshold on, except for labels of 0."""
    is_above = threshold is None or threshold > 0.0
    return from_threshold(threshold if is_above else None)
