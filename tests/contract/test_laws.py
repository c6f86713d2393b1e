"""The laws that every metric obeys on every backend, over the registry."""

import itertools

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import CASES, CASES_HERE, IS_SLOW, OF_EXPOSURE, OF_SUBTOPICS
from strategies import BATCH, LIST_SIZE, batches, cutoffs, splits, ties

import keras_rank

all_metrics = pytest.mark.parametrize("case", CASES_HERE + OF_SUBTOPICS, ids=str)

TIES = {True: "shuffle", False: "stable", "average": "average"}
# What lists without a relevant item count, and how much.
EMPTY = [
    {"empty_value": value, "empty_weight": weight}
    for value in (0.0, 0.5, None)
    for weight in ("average", "own")
]


def items_by_list(labels, scores, weights=None):
    weights = itertools.repeat(None) if weights is None else weights
    return [oracle.items_of(*row) for row in zip(labels, scores, weights, strict=False)]


def oracle_values(case, lists, k, shuffle_ties):
    """One value per list, `None` where a list has no relevant item."""
    number, values = 0, []
    for items in lists:
        relevant = case.list_weight(items) is not None
        values.append(
            case.oracle_value(items, k=k, ties=TIES[shuffle_ties], number=number)
            if relevant
            else None
        )
        number += bool(items)
    return values


def oracle_mean(case, values, lists, empty_value, empty_weight):
    kept = [(v, items) for v, items in zip(values, lists, strict=True) if items]
    weights = [case.list_weight(items) for _, items in kept]
    empty_value = None if case.leaves_out_empty else empty_value
    if empty_weight == "own" and empty_value is not None:
        weights = [
            np.mean([item.weight for item in items]) if weight is None else weight
            for weight, (_, items) in zip(weights, kept, strict=True)
        ]
    return oracle.mean([v for v, _ in kept], weights, empty_value)


def result_of(case, metric, *batch, splits=()):
    """The result after the batch, given in parts."""
    labels, scores, weights = batch
    labels = case.labels(labels)
    for part in np.split(np.arange(len(labels)), splits):
        metric.update_state(
            labels[part], scores[part], None if weights is None else weights[part]
        )
    return float(metric.result())


def close(value, expected):
    return value == pytest.approx(expected, rel=2e-6, abs=2e-6)


@all_metrics
@given(
    batch=batches(weighted=True),
    k=cutoffs,
    shuffle_ties=ties,
    empty_value=st.sampled_from([0.0, 0.5, None]),
)
def test_function_equals_the_oracle(case, batch, k, shuffle_ties, empty_value):
    labels, scores, weights = batch
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "empty_value": empty_value}
    for given_weights in (None, weights):
        lists = items_by_list(labels, scores, given_weights)
        values = ops.convert_to_numpy(
            case.values(labels, scores, given_weights, **arguments)
        )
        assert values.shape == (BATCH,)
        expected = oracle_values(case, lists, k, shuffle_ties)
        for value, items, expected_value in zip(values, lists, expected, strict=True):
            if expected_value is not None:
                assert close(value, expected_value)
            elif not items or empty_value is None or case.leaves_out_empty:
                assert np.isnan(value)
            else:
                assert value == empty_value


@all_metrics
def test_float64_is_computed_in_full(case, rng, backend):
    """Keras's own functions make float32 of it on NumPy and torch."""
    if backend == "jax":
        pytest.skip("JAX has no float64 unless asked for")
    shape = (BATCH, LIST_SIZE)
    labels, scores = rng.integers(0, 5, shape), rng.integers(0, 4, shape)
    lists = items_by_list(labels, scores, weights := rng.uniform(0.5, 2.0, shape))
    for k, shuffle_ties in itertools.product((3, None), TIES):
        arguments = {"k": k, "shuffle_ties": shuffle_ties, "dtype": "float64"}
        values = case.values(labels, scores, weights, **arguments)
        values = ops.convert_to_numpy(values)
        assert values.dtype == "float64"
        expected = oracle_values(case, lists, k, shuffle_ties)
        for value, expected_value in zip(values, expected, strict=True):
            if expected_value is not None:
                assert value == pytest.approx(expected_value, rel=1e-12, abs=1e-12)


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs, shuffle_ties=ties)
def test_class_is_the_weighted_mean_of_the_oracle(case, batch, k, shuffle_ties):
    lists = items_by_list(*batch)
    values = oracle_values(case, lists, k, shuffle_ties)
    for empty in EMPTY:
        metric = case.make(k=k, shuffle_ties=shuffle_ties, **empty)
        expected = oracle_mean(case, values, lists, **empty)
        assert close(result_of(case, metric, *batch), expected)


@all_metrics
@given(
    batch=batches(weighted=True),
    weighting=st.sampled_from(["none", "lists", "items"]),
    splits=splits,
    k=cutoffs,
    shuffle_ties=ties,
    empty=st.sampled_from(EMPTY),
)
def test_any_batching_gives_the_same(
    case, batch, weighting, splits, k, shuffle_ties, empty
):
    """Splits of no lists are among them, and one for each list."""
    *lists, weights = batch
    weights = {"none": None, "lists": weights[:, 0], "items": weights}[weighting]
    arguments = {"k": k, "shuffle_ties": shuffle_ties, **empty}
    whole = result_of(case, case.make(**arguments), *lists, weights)
    parts = result_of(case, case.make(**arguments), *lists, weights, splits=splits)
    assert close(parts, whole)


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs, shuffle_ties=ties)
def test_masked_is_removed_bit_for_bit(case, batch, k, shuffle_ties):
    """Padding anywhere, with any label, score and weight, changes nothing."""
    labels, scores, weights = batch
    weights = np.maximum(weights, 0.5)
    junk = np.array([[np.nan, np.inf, 1e30, -1e30, -np.inf]] * BATCH, "float32")
    positions = [0, 2, 2, 5, 7]
    mask = np.insert(labels >= 0, positions, False, axis=1)
    padded = {
        "labels": np.insert(labels, positions, np.abs(junk), axis=1),
        "mask": mask,
    }
    padded_scores = np.insert(scores, positions, junk, axis=1)
    padded_weights = np.insert(weights, positions, np.abs(junk), axis=1)
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = case.values(labels, scores, weights, **arguments)
    found = case.values(padded, padded_scores, padded_weights, **arguments)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
    )


@all_metrics
@given(
    plain=batches(weighted=True, ties=False),
    tied=batches(weighted=True),
    k=cutoffs,
    order=st.permutations(range(LIST_SIZE)),
)
def test_item_order_does_not_matter_without_ties_or_to_the_average(
    case, plain, tied, k, order
):
    if not case.ignores_item_order:
        pytest.skip("the earlier of equal items is taken for the ideal order")
    for batch, shuffle_ties in ((plain, True), (tied, "average")):
        shuffled = tuple(x[:, order] for x in batch)
        found, expected = (
            ops.convert_to_numpy(case.values(*each, k=k, shuffle_ties=shuffle_ties))
            for each in (shuffled, batch)
        )
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@all_metrics
def test_mean_over_many_seeds_tends_to_the_average(case):
    lists = 4000
    labels = np.tile([[0, 3, 1, 2, 0, 4, 0]], (lists, 1))
    scores = np.tile([[0.5, 0.5, 0.1, 0.5, 0.1, 0.1, 0.1]], (lists, 1))
    # Each operation is compiled anew for as many lists.
    for k in (3,) if IS_SLOW else (3, None):
        shuffled = ops.convert_to_numpy(case.values(labels, scores, k=k))
        # All are the same, so that a batch of the usual shape will do.
        average = case.values(
            labels[:BATCH], scores[:BATCH], k=k, shuffle_ties="average"
        )
        error = shuffled.std() / np.sqrt(lists)
        assert abs(shuffled.mean() - float(average[0])) < 4 * error + 1e-6


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs, shuffle_ties=ties)
def test_values_are_in_their_range(case, batch, k, shuffle_ties):
    values = case.values(*batch, k=k, shuffle_ties=shuffle_ties, empty_value=0.0)
    values = ops.convert_to_numpy(values)
    values = values[~np.isnan(values)]
    assert np.all(values >= case.lowest)
    if case.in_unit_interval:
        assert np.all(values <= 1.0)


def test_rank_biased_precision_is_not_rounded_to_more_than_1():
    """Where all of many items are relevant."""
    labels, scores = np.ones((1, 200)), np.arange(200.0)[None]
    for persistence in (0.5, 0.7, 0.8, 0.9):
        (value,) = keras_rank.functional.rank_biased_precision(
            labels, scores, persistence=persistence
        )
        assert float(value) <= 1.0


@all_metrics
@given(batch=batches(ties=False, unretrieved=False), k=cutoffs)
def test_a_perfect_order_scores_one(case, batch, k):
    if not case.perfect_is_one:
        pytest.skip("the value of a perfect order depends on its labels")
    labels, _, _ = batch
    values = ops.convert_to_numpy(case.values(labels, labels, k=k, empty_value=None))
    assert np.all(values[~np.isnan(values)] == 1.0)


@all_metrics
@pytest.mark.parametrize("k", [3, None])
def test_a_constant_model_is_not_flattered(case, k):
    """Wherever the relevant item stands, the value is the mean over its places."""
    if not case.averages_ties:
        pytest.skip("ties count less than their mean")
    # One list for each place, and one more for the shape of the other laws.
    place = np.arange(BATCH) % LIST_SIZE
    labels = 4.0 * np.eye(LIST_SIZE, dtype="float32")[place]
    constant = np.full_like(labels, 0.5)
    descending = np.tile(-np.arange(LIST_SIZE, dtype="float32"), (BATCH, 1))
    by_place = ops.convert_to_numpy(case.values(labels, descending, k=k))
    expected = np.mean(by_place[:LIST_SIZE])
    average = case.values(labels, constant, k=k, shuffle_ties="average")
    np.testing.assert_allclose(ops.convert_to_numpy(average), expected, rtol=1e-6)


@all_metrics
@given(batch=batches(weighted=True), shuffle_ties=ties)
def test_a_cutoff_beyond_the_list_is_no_cutoff(case, batch, shuffle_ties):
    if not case.ignores_longer_cutoffs:
        pytest.skip("the cutoff itself is the denominator")
    expected = case.values(*batch, shuffle_ties=shuffle_ties)
    for k in (LIST_SIZE, 1000) if IS_SLOW else (LIST_SIZE, LIST_SIZE + 1, 1000):
        found = case.values(*batch, k=k, shuffle_ties=shuffle_ties)
        np.testing.assert_array_equal(
            ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
        )


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs)
def test_weights_of_one_and_a_common_factor_change_nothing(case, batch, k):
    labels, scores, weights = batch
    arguments = {"k": k, "shuffle_ties": "average"}
    unweighted = result_of(case, case.make(**arguments), labels, scores, None)
    ones = result_of(case, case.make(**arguments), labels, scores, np.ones_like(scores))
    assert close(ones, unweighted)
    expected = result_of(case, case.make(**arguments), labels, scores, weights)
    for factor in (1e-3, 1e6):
        scaled = (weights * factor).astype("float32")
        assert close(
            result_of(case, case.make(**arguments), labels, scores, scaled), expected
        )


@all_metrics
@given(batch=batches(unretrieved=False), k=cutoffs, shuffle_ties=ties)
def test_a_monotone_map_of_the_scores_changes_nothing(case, batch, k, shuffle_ties):
    labels, scores, _ = batch
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = ops.convert_to_numpy(case.values(labels, scores, **arguments))
    for mapped in (scores * 1e-20, scores * 1e20 - 1e21, np.exp(scores), scores**3):
        found = case.values(labels, mapped, **arguments)
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


@all_metrics
def test_config_round_trip(case):
    metric = case.make(k=3, shuffle_ties="average", empty_value=None, name="mine")
    config = metric.get_config()
    restored = type(metric).from_config(config)
    assert restored.get_config() == config
    labels, scores = case.labels([[3, 0, 1, 0]]), [[0.1, 0.2, 0.2, 0.3]]
    assert float(restored(labels, scores)) == float(metric(labels, scores))


@all_metrics
def test_same_seed_gives_the_same_shuffle_after_reset_and_round_trip(case):
    metric = case.metric(**case.arguments)
    labels, scores = case.labels(np.tile([[3, 0, 1, 0]], (9, 1))), np.zeros((9, 4))
    first = float(metric(labels, scores))
    metric.update_state(labels, scores)
    metric.reset_state()
    again = float(metric(labels, scores))
    restored = type(metric).from_config(metric.get_config())
    assert first == again == float(restored(labels, scores))


@all_metrics
def test_inputs_are_not_changed(case, rng):
    shape = (BATCH, LIST_SIZE)
    labels = case.labels(rng.integers(-1, 5, size=shape).astype("float32"))
    scores = rng.integers(0, 3, size=shape).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    mask = rng.random(shape) < 0.8
    inputs = [labels, scores, weights, mask]
    before = [x.copy() for x in inputs]
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    for given_labels, given_scores, given_weights, given_mask in (inputs, tensors):
        case.make(k=3)(
            {"labels": given_labels, "mask": given_mask}, given_scores, given_weights
        )
    for x, tensor, original in zip(inputs, tensors, before, strict=True):
        np.testing.assert_array_equal(x, original)
        np.testing.assert_array_equal(ops.convert_to_numpy(tensor), original)


@all_metrics
def test_nothing_retrieved_scores_the_worst(case):
    """A model that diverged to NaN has found nothing."""
    for score in (np.nan, -np.inf):
        values = case.values([[3, 0, 1]], np.full((1, 3), score), k=2)
        assert float(values[0]) == case.worst


def test_every_metric_is_listed():
    public = {getattr(keras_rank.metrics, name) for name in keras_rank.metrics.__all__}
    listed = {case.metric for case in CASES}
    others = {keras_rank.metrics.RankingMetric, keras_rank.metrics.RankingMetrics}
    assert public - listed - OF_EXPOSURE == others
    functions = {
        getattr(keras_rank.functional, name) for name in keras_rank.functional.__all__
    }
    assert functions - {case.function for case in CASES} == {keras_rank.functional.rank}
