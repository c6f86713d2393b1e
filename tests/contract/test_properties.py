"""Property tests of every metric in the registry, on every backend."""

import itertools
import json

import keras
import numpy as np
import oracle
import pytest
from arrays import assert_close, assert_equal, compute_values
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import BACKEND_CASES, CASES, EXPOSURE_METRICS, IS_SLOW, SUBTOPIC_CASES
from strategies import BATCH, LIST_SIZE, batches, cutoffs, splits, ties

import keras_rank

all_metrics = pytest.mark.parametrize("case", BACKEND_CASES + SUBTOPIC_CASES, ids=str)

TIES = {True: "shuffle", False: "stable", "average": "average"}
BOUNDS = {"worst": "worst", "best": "best"}
# Values and weights of lists without a relevant item.
EMPTY = [
    {"empty_value": value, "empty_weight": weight}
    for value in (0.0, 0.5, None)
    for weight in ("average", "own")
]


# Functions that return the weights to pass. The scale of weights changes no value.
WEIGHTINGS = {
    "none": lambda weights: None,
    "ones": np.ones_like,
    "lists": lambda weights: weights[:, 0],
    "items": lambda weights: weights,
    "small": lambda weights: np.float32(1e-3) * weights,
    "large": lambda weights: np.float32(1e6) * weights,
}


def items_by_list(labels, scores, weights=None):
    weights = np.ones_like(labels) if weights is None else weights
    weights = np.broadcast_to(weights.T, labels.T.shape).T
    return [
        oracle.make_items(*row) for row in zip(labels, scores, weights, strict=True)
    ]


def oracle_values(case, lists, k, shuffle_ties):
    """Returns one value per list, `None` for lists without a relevant item."""
    numbers = itertools.accumulate(map(bool, lists), initial=0)
    options = {"k": k, "ties": (TIES | BOUNDS)[shuffle_ties]}
    return [
        case.oracle_value(items, number=number, **options)
        if case.list_weight(items) is not None
        else None
        for items, number in zip(lists, numbers, strict=False)
    ]


def oracle_mean(case, values, lists, empty_value, empty_weight):
    pairs = [(v, items) for v, items in zip(values, lists, strict=True) if items]
    weights = [case.list_weight(items) for _, items in pairs]
    empty_value = None if case.leaves_out_empty else empty_value
    if empty_weight == "own" and empty_value is not None:
        weights = [
            np.mean([item.weight for item in items]) if weight is None else weight
            for weight, (_, items) in zip(weights, pairs, strict=True)
        ]
    return oracle.mean([v for v, _ in pairs], weights, empty_value)


def result_of_parts(case, metric, labels, scores, weights, splits):
    """Returns the result after updates with the parts of a batch."""
    labels = case.labels(labels)
    for part in np.split(np.arange(len(labels)), splits):
        metric.update_state(
            labels[part], scores[part], None if weights is None else weights[part]
        )
    return float(metric.result())


def is_close(value, expected):
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
    for sample_weight in (None, weights):
        lists = items_by_list(labels, scores, sample_weight)
        values = compute_values(case.values, labels, scores, sample_weight, **arguments)
        assert values.shape == (BATCH,)
        expected = oracle_values(case, lists, k, shuffle_ties)
        for value, items, expected_value in zip(values, lists, expected, strict=True):
            if expected_value is not None:
                assert is_close(value, expected_value)
                # Rounding does not exceed the bounds of the metric.
                assert value <= 1.0 or expected_value > 1.0
                assert value >= (0.0 if expected_value >= 0.0 else -1.0)
            elif not items or empty_value is None or case.leaves_out_empty:
                assert np.isnan(value)
            else:
                assert value == empty_value


@all_metrics
def test_float64_keeps_its_precision(case, rng, backend):
    """Keras's functions would cast float64 to float32 on NumPy and torch."""
    if backend == "jax":
        pytest.skip("JAX has no float64 unless it is enabled")
    shape = (BATCH, LIST_SIZE)
    labels, scores = rng.integers(0, 5, shape), rng.integers(0, 4, shape)
    lists = items_by_list(labels, scores, weights := rng.uniform(0.5, 2.0, shape))
    for k, shuffle_ties in itertools.product((3, None), TIES):
        arguments = {"k": k, "shuffle_ties": shuffle_ties, "dtype": "float64"}
        values = compute_values(case.values, labels, scores, weights, **arguments)
        assert values.dtype == "float64"
        expected = oracle_values(case, lists, k, shuffle_ties)
        for value, expected_value in zip(values, expected, strict=True):
            if expected_value is not None:
                assert value == pytest.approx(expected_value, rel=1e-12, abs=1e-12)


@all_metrics
@given(
    batch=batches(weighted=True),
    weighting=st.sampled_from([*WEIGHTINGS]),
    splits=splits,
    k=cutoffs,
    shuffle_ties=ties,
)
def test_class_equals_the_weighted_mean_of_the_oracle(
    case, batch, weighting, splits, k, shuffle_ties
):
    """The batch is split into parts of any size, including no list and one list."""
    labels, scores, weights = batch
    batch = labels, scores, WEIGHTINGS[weighting](weights)
    lists = items_by_list(*batch)
    values = oracle_values(case, lists, k, shuffle_ties)
    for empty in EMPTY:
        metric = case.make(k=k, shuffle_ties=shuffle_ties, **empty)
        expected = oracle_mean(case, values, lists, **empty)
        assert is_close(result_of_parts(case, metric, *batch, splits=splits), expected)


@all_metrics
@given(batch=batches(weighted=True), k=cutoffs, shuffle_ties=ties)
def test_masked_items_change_no_bit(case, batch, k, shuffle_ties):
    """Masked items anywhere, with any label, score and weight, change no bit."""
    labels, scores, weights = batch
    weights = np.maximum(weights, 0.5)
    masked_values = np.array(
        [[np.nan, np.inf, 1e30, -1e30, -np.inf]] * BATCH, "float32"
    )
    positions = [0, 2, 2, 5, 7]
    mask = np.insert(labels >= 0, positions, False, axis=1)
    padded = {
        "labels": np.insert(labels, positions, np.abs(masked_values), axis=1),
        "mask": mask,
    }
    padded_scores = np.insert(scores, positions, masked_values, axis=1)
    padded_weights = np.insert(weights, positions, np.abs(masked_values), axis=1)
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = case.values(labels, scores, weights, **arguments)
    assert_equal(
        case.values(padded, padded_scores, padded_weights, **arguments), expected
    )


@pytest.mark.compiles_long
def test_rank_biased_precision_is_at_most_1():
    """All of 200 items are relevant, so that sums are close to 1."""
    labels, scores = np.ones((1, 200)), np.arange(200.0)[None]
    for persistence in (0.5, 0.7, 0.8, 0.9):
        (value,) = keras_rank.functional.rank_biased_precision(
            labels, scores, persistence=persistence
        )
        assert float(value) <= 1.0


@pytest.mark.parametrize("case", BACKEND_CASES, ids=str)
@given(batch=batches(ties=False, unretrieved=False), k=cutoffs)
def test_a_perfect_order_has_the_value_1(case, batch, k):
    """The value is exactly 1 if that of the oracle is exactly 1."""
    labels, _, _ = batch
    values = compute_values(case.values, labels, labels, k=k)
    expected = oracle_values(case, items_by_list(labels, labels), k, True)
    assert all(x == 1.0 for x, y in zip(values, expected, strict=True) if y == 1.0)


@all_metrics
@pytest.mark.parametrize("k", [3, None])
def test_constant_scores_have_the_mean_value(case, k):
    """Constant scores have the mean value over all ranks of the relevant item."""
    if not case.averages_ties:
        pytest.skip("ties count less than their mean")
    # One list for each index, and one more to get the shape of the other tests.
    index = np.arange(BATCH) % LIST_SIZE
    labels = 4.0 * np.eye(LIST_SIZE, dtype="float32")[index]
    constant = np.full_like(labels, 0.5)
    descending = np.tile(-np.arange(LIST_SIZE, dtype="float32"), (BATCH, 1))
    by_index = compute_values(case.values, labels, descending, k=k)
    average = case.values(labels, constant, k=k, shuffle_ties="average")
    assert_close(average, np.mean(by_index[:LIST_SIZE]), rtol=1e-6)


@pytest.mark.compiles_long
@all_metrics
@given(batch=batches(weighted=True), shuffle_ties=ties)
def test_a_cutoff_beyond_the_list_changes_no_value(case, batch, shuffle_ties):
    if not case.ignores_longer_cutoffs:
        pytest.skip("the cutoff itself is the denominator")
    expected = case.values(*batch, shuffle_ties=shuffle_ties)
    for k in (LIST_SIZE, 1000) if IS_SLOW else (LIST_SIZE, LIST_SIZE + 1, 1000):
        assert_equal(case.values(*batch, k=k, shuffle_ties=shuffle_ties), expected)


@all_metrics
@given(batch=batches(unretrieved=False), k=cutoffs, shuffle_ties=ties)
def test_a_monotone_map_of_scores_changes_no_value(case, batch, k, shuffle_ties):
    labels, scores, _ = batch
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = case.values(labels, scores, **arguments)
    for mapped in (scores * 1e-20, scores * 1e20 - 1e21, np.exp(scores), scores**3):
        assert_equal(case.values(labels, mapped, **arguments), expected)


@all_metrics
def test_reset_and_config_round_trip_keep_the_result(case):
    """Configs, which models save as JSON, contain the default seed of the shuffle."""
    labels, scores = case.labels(np.tile([[3, 0, 1, 0]], (9, 1))), np.zeros((9, 4))
    averaged = {"k": 3, "shuffle_ties": "average", "empty_value": None, "name": "mine"}
    for metric in (case.metric(**case.arguments), case.make(**averaged)):
        first = float(metric(labels, scores))
        metric.update_state(labels, scores)
        metric.reset_state()
        config = metric.get_config()
        restored = type(metric).from_config(json.loads(json.dumps(config)))
        assert restored.get_config() == config
        for copy in (metric, restored):
            assert float(copy(labels, scores)) == first


@all_metrics
def test_inputs_are_not_changed(case, rng):
    shape = (BATCH, LIST_SIZE)
    labels = case.labels(rng.integers(-1, 5, size=shape).astype("float32"))
    scores = rng.integers(0, 3, size=shape).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    arrays = {"labels": labels, "mask": rng.random(shape) < 0.8}, scores, weights
    before = keras.tree.map_structure(np.copy, arrays)
    for batch in (arrays, keras.tree.map_structure(ops.convert_to_tensor, arrays)):
        case.make(k=3)(*batch)
        keras.tree.map_structure(assert_equal, batch, before)


@all_metrics
def test_lists_without_retrieved_items_have_the_worst_value(case):
    """A model that diverged to NaN retrieves nothing."""
    for score in (np.nan, -np.inf):
        values = case.values([[3, 0, 1]], np.full((1, 3), score), k=2)
        items = oracle.make_items([3, 0, 1], [score] * 3)
        assert float(values[0]) == case.oracle_value(items, k=2)


def test_the_registry_lists_every_metric():
    public = {getattr(keras_rank.metrics, name) for name in keras_rank.metrics.__all__}
    listed = {case.metric for case in CASES}
    others = "ExposureMetric", "RankingMetric", "RankingMetrics"
    others = {getattr(keras_rank.metrics, name) for name in others}
    assert public - listed - EXPOSURE_METRICS == others
    functions = {
        getattr(keras_rank.functional, name) for name in keras_rank.functional.__all__
    }
    assert functions - {case.function for case in CASES} == {keras_rank.functional.rank}
