"""Probabilities: which of several events is the first, and how many are drawn."""

import math

from keras import ops

from keras_rank.arrays.arithmetic import shifted, size_of, total
from keras_rank.backends import Tensor, backend


def first_success(chances: Tensor) -> Tensor:
    """The probability that the first of independent events is the one at each place.

    `chance[r] * product(1 - chance[s] for s < r)`

    The products are built in doubling steps, from earlier entries only, so appending
    zeros changes no bit. With `ops.cumprod` it might, which is used in a graph where
    the size is unknown.

    Args:
        chances: tensor of shape `(batch, size)`.

    Returns:
        A tensor of the same shape.
    """
    size = chances.shape[1]
    if size == 1:
        return chances
    none_yet = shifted(1.0 - chances, 1, 1.0)
    if size is None:
        return chances * ops.cumprod(none_yet, axis=1)
    step = 1
    while step < size:
        none_yet = none_yet * shifted(none_yet, step, 1.0)
        step *= 2
    return chances * none_yet


def hypergeometric(
    drawn: Tensor, marked: Tensor, size: Tensor, draws: Tensor
) -> Tensor:
    """The probabilities of the number of marked items drawn without replacement.

    From the ratio of one probability to the next: `p(x + 1) / p(x)
    = (marked - x) (draws - x) / ((x + 1) (size - marked - draws + x + 1))`.

    Args:
        drawn: tensor of one dimension: 0, 1, 2, ...
        marked: tensor of shape `(batch, 1)`. How many of the group are marked.
        size: tensor of the same shape. The size of the group.
        draws: tensor of the same shape. How many are drawn.

    Returns:
        A tensor of shape `(batch, size of drawn)`.
    """
    fewest = backend.maximum(draws - (size - marked), 0.0)
    possible = ops.logical_and(drawn >= fewest, drawn <= backend.minimum(marked, draws))
    up = (marked - drawn) * (draws - drawn)
    down = (drawn + 1.0) * (size - marked - draws + drawn + 1.0)
    log = backend.library_of(up).log
    steps = log(backend.where(up > 0.0, up, 1.0)) - log(
        backend.where(down > 0.0, down, 1.0)
    )
    logarithms = backend.running_total(backend.where(possible, steps, 0.0))
    logarithms = backend.where(possible, shifted(logarithms, 1, 0.0), -math.inf)
    return ops.softmax(logarithms, axis=1)


def mean_power_of_marked(
    base: float, marked: Tensor, size: Tensor, drawn: Tensor
) -> Tensor:
    """The mean of `base**x`, where x is the number of marked items that are drawn.

    The distribution of x is hypergeometric. One item after the other is drawn, along
    the places of a group of tied items, so that all terms stay positive.

    Args:
        base: number from 0 to 1.
        marked: tensor of shape `(batch, subtopics, depth)`. How many items are marked.
        size: tensor of shape `(batch, 1, depth)`. How many there are.
        drawn: tensor of the same shape. How many are drawn: 0, 1, 2, ... along the
            places of each group.

    Returns:
        A tensor of shape `(batch, subtopics, depth)`.
    """
    depth = size_of(marked, 2)
    none = 0.0 * marked
    index = ops.arange(depth, dtype="int32")
    fixed = (backend.constant(base, marked), marked, size, drawn, index)
    return ops.fori_loop(0, depth, _with_next_drawn, (none, none, *fixed))[0]


# No closure, which eager JAX would compile again at each call.
def _with_next_drawn(i: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Adds the mean at a place, and draws the next item.

    `terms[x]` is the probability of x marked ones, times `base**x`.
    """
    means, terms, base, marked, size, drawn, index = state
    # A TPU is slow to gather.
    here, others, before = (
        ops.sum(backend.where(index == i, x, 0.0), axis=2, keepdims=True)
        for x in (marked, size, drawn)
    )
    x = ops.cast(index, terms.dtype)
    terms = backend.where(before == 0.0, ops.cast(index == 0, terms.dtype), terms)
    means = backend.where(index == i, total(terms)[..., None], means)
    left = backend.maximum(others - before, 1.0)
    chance = backend.clip((here - x) / left, 0.0, 1.0)
    one_more = backend.no_fma(shifted(terms * chance, 1, 0.0) * base)
    terms = backend.no_fma(terms * (1.0 - chance)) + one_more
    return means, terms, base, marked, size, drawn, index
