"""Sums of 33,554,432 updates with one list each: float32 sums stop at 2**24."""

import fractions

import keras
import numpy as np
import pytest
from keras import ops

from keras_rank import state
from keras_rank.metrics import DCG
from keras_rank.utils import export_state, merge_state

UPDATES = 2**25
# The updates use these lists in turn. Each has one item, so that an update is fast. The
# products round equally with all compilers, so that the sums are known exactly.
LABELS = np.float32([0.0, 0.7, 1.3, 2.9])
WEIGHTS = np.float32([1.0, 0.125, 4.0, 0.25])
SCORE = np.zeros((1, 1), "float32")
TURNS = UPDATES // len(LABELS)

pytestmark = pytest.mark.optimized


def make_metric():
    return DCG(k=1, gain_fn="linear", rank_discount_fn="reciprocal", shuffle_ties=False)


def assert_all_lists_count(metric):
    labels, weights = (
        list(map(fractions.Fraction, part.tolist())) for part in (LABELS, WEIGHTS)
    )
    value = sum(w * y for w, y in zip(weights, labels, strict=True)) * TURNS
    weight = sum(w for w, y in zip(weights, labels, strict=True) if y > 0) * TURNS
    sums = [value, weight, 3 * TURNS, 4 * TURNS]
    high, low = np.float64(export_state(metric)["dcg_at_1/totals"])[:, state.LISTS]
    np.testing.assert_allclose(high + low, np.float64(sums), rtol=1e-9)
    # The list without relevant items has the average weight of the others.
    mean = value / (weight * fractions.Fraction(4, 3))
    assert np.float32(ops.convert_to_numpy(metric.result())) == np.float32(mean)


def loop_on_jax(update, states):
    import jax

    run = jax.jit(lambda *states: jax.lax.fori_loop(0, UPDATES, update, states))
    return run(*states)


def loop_on_tensorflow(update, states):
    import tensorflow as tf

    # XLA reduces the time of an update from a hundred microseconds to 0.03.
    @tf.function(jit_compile=True)
    def run(*states):
        return tf.while_loop(
            lambda i, *_: i < UPDATES,
            lambda i, *states: (i + 1, *update(i, states)),
            (0, *states),
        )[1:]

    return run(*states)


@pytest.mark.compiles_long
def test_updates_in_a_compiled_loop(backend):
    """`keras.metrics.Mean`, which is updated in the loop too, stops half-way."""
    loops = {"jax": loop_on_jax, "tensorflow": loop_on_tensorflow}
    if backend not in loops:
        pytest.skip("no compiled loop here: the next test counts as far by merging")
    labels = ops.convert_to_tensor(LABELS[:, None, None])
    weights = ops.convert_to_tensor(WEIGHTS[:, None])
    metric, mean = make_metric(), keras.metrics.Mean()

    def update(i, states):
        turn = i % len(LABELS)
        batch = labels[turn], SCORE, weights[turn]
        return (
            metric.stateless_update_state(states[0], *batch),
            mean.stateless_update_state(states[1], labels[turn]),
        )

    states = [[v + 0 for v in each.variables] for each in (metric, mean)]
    states = loops[backend](update, states)
    for each, values in zip((metric, mean), states, strict=True):
        for variable, value in zip(each.variables, values, strict=True):
            variable.assign(value)
    assert_all_lists_count(metric)
    assert int(metric.variables[-1] + 0) == UPDATES
    assert float(mean.count + 0) == UPDATES / 2
    assert float(mean.result()) > 1.5 * LABELS.mean()


def test_merged_states_of_as_many_updates():
    """Sums are doubled and added to, so that no intermediate sum is a round number."""
    turn, metric = make_metric(), make_metric()
    for label, weight in zip(LABELS, WEIGHTS, strict=True):
        turn.update_state([[label]], SCORE, [weight])
    for digit in f"{TURNS - 1:b}":
        merge_state(metric, [metric])
        if digit == "1":
            merge_state(metric, [turn])
    merge_state(metric, [turn])
    assert_all_lists_count(metric)
    assert int(metric.variables[-1] + 0) == UPDATES
