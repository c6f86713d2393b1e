"""Tests of the argument `list_weight`: the weight of a list in the mean."""

import json

import numpy as np
import pytest
from arrays import assert_close, compute_values
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import BACKEND_CASES, FIRST_CASES
from strategies import BATCH, LIST_SIZE, batches, cutoffs, splits
from test_properties import (
    WEIGHTINGS,
    is_close,
    items_by_list,
    oracle_values,
    result_of_parts,
)

from keras_rank import functional, metrics
from keras_rank.callbacks import GroupedEvaluation
from keras_rank.metrics import DCG, MeanReciprocalRank, RankingMetrics

all_metrics = pytest.mark.parametrize("case", BACKEND_CASES, ids=str)


def compute_list_weight(case, items, kind, weight):
    """Returns the weight of a list. `weight` is what was passed for the list, or 1."""
    if kind == "one":
        return weight
    lowest = min((item.label for item in items), default=0.0)
    relevance = case.relevance or (lambda label: float(label > lowest))
    return sum(item.weight * relevance(item.label) for item in items)


def compute_expected_mean(case, lists, values, kind, weights_by_list, empty_value):
    total = total_weight = 0.0
    for items, value, weight in zip(lists, values, weights_by_list, strict=True):
        if not items or (value is None and empty_value is None):
            continue
        list_value = empty_value if value is None else value
        list_weight = compute_list_weight(case, items, kind, weight)
        if value is not None and case.metric in (metrics.DCG, metrics.AlphaDCG):
            # The oracle divides by the mean weight, and the metric by its own weight.
            list_value = value * case.list_weight(items) / list_weight
        total += list_weight * list_value
        total_weight += list_weight
    return total / total_weight if total_weight else 0.0


@all_metrics
@given(
    batch=batches(weighted=True),
    weighting=st.sampled_from(["lists", "items", "none"]),
    splits=splits,
    k=cutoffs,
    kind=st.sampled_from(["sum", "one"]),
    empty_value=st.sampled_from([0.0, 0.5, None]),
)
def test_means_equal_the_oracle(case, batch, weighting, splits, k, kind, empty_value):
    """`empty_weight` changes no mean with these weights."""
    labels, scores, weights = batch
    batch = labels, scores, WEIGHTINGS[weighting](weights)
    lists = items_by_list(*batch)
    values = oracle_values(case, lists, k, False)
    weights_by_list = weights[:, 0] if weighting == "lists" else np.ones(BATCH)
    empty_value = None if case.leaves_out_empty else empty_value
    expected = compute_expected_mean(
        case, lists, values, kind, weights_by_list, empty_value
    )
    for empty_weight in ("average", "own"):
        arguments = {"empty_value": empty_value, "empty_weight": empty_weight}
        metric = case.make(k=k, shuffle_ties=False, list_weight=kind, **arguments)
        assert is_close(result_of_parts(case, metric, *batch, splits=splits), expected)


@pytest.mark.parametrize("kind", ["sum", "one"])
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_only_values_divided_by_the_weight_change(case, kind, rng):
    shape = (BATCH, LIST_SIZE)
    labels, scores = rng.integers(0, 4, shape), rng.random(shape)
    weights = rng.choice([0.5, 1.0, 3.0], shape)
    expected = compute_values(case.values, labels, scores, weights)
    actual = compute_values(case.values, labels, scores, weights, list_weight=kind)
    if case.metric in (metrics.DCG, metrics.AlphaDCG):
        lists = items_by_list(labels, scores, weights)
        scale = [
            (case.list_weight(x) or 1.0)
            / (compute_list_weight(case, x, kind, 1.0) or 1.0)
            for x in lists
        ]
        expected = expected * scale
    assert_close(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["mean", "sum", "one"])
def test_targets_have_the_weights_of_lists(kind, rng):
    ids, scores = np.array([[0, 3], [2, -1], [1, -1]]), rng.random((3, 5))
    weights = np.array([1.0, 2.0, 5.0])
    values = ops.convert_to_numpy(
        functional.dcg(ids, scores, sample_weight=weights, sparse_labels=True)
    )
    metric = DCG(sparse_labels=True, list_weight=kind)
    metric.update_state(ids, scores, weights)
    relevant = [2.0, 1.0, 1.0]
    expected = {
        "mean": np.average(values, weights=weights),
        "one": np.average(values, weights=weights),
        "sum": np.sum(weights * values) / np.sum(weights * relevant),
    }
    assert float(metric.result()) == pytest.approx(expected[kind], rel=1e-5)


ONE = np.ones((2, 1))
PER_LIST = [
    (ONE, ONE, np.array([2.0, 6.0])),
    (ONE, ONE, 3.0),
    ([[1, -1]] * 2, [[1.0, 0.0]] * 2, np.array([2.0, 6.0])),
    ([[1, -1]] * 2, [[1.0, 0.0]] * 2, np.array([[2.0], [6.0]])),
    ([[1], [1]], [[1.0], [1.0]], [2.0, 6.0]),
    ([1], [1.0], 2.0),
]


@pytest.mark.filterwarnings("ignore:One item has no order")
@pytest.mark.parametrize("batch", PER_LIST)
def test_weights_of_lists_do_not_multiply_gains(batch):
    """Lists of one item are no exception, and neither is padding."""
    metric = DCG(list_weight="one")
    metric.update_state(*batch)
    assert float(metric.result()) == 1.0


def test_weights_of_items_multiply_gains():
    metric = DCG(list_weight="one")
    metric.update_state([1, 0], [1.0, 0.0], [2.0, 1.0])
    metric.update_state([[1, 0]], [[1.0, 0.0]], [[4.0, 1.0]])
    assert float(metric.result()) == pytest.approx(3.0)


@pytest.mark.filterwarnings("ignore:One item has no order")
@pytest.mark.parametrize("kind", ["mean", "sum", "one"])
def test_batches_of_lists_with_one_item_have_weights_of_items(kind):
    """The split of lists of uneven length into batches changes no result."""
    labels = [[1, 0, 0], [1], [1], [0]]
    scores = [[0.2, 0.3, 0.1], [0.5], [0.4], [0.1]]
    weights = [[4.0, 1.0, 1.0], [2.0], [8.0], [1.0]]
    whole, parts = DCG(list_weight=kind), DCG(list_weight=kind)
    whole.update_state(labels, scores, weights)
    for part in (slice(0, 1), slice(1, 4)):
        parts.update_state(labels[part], scores[part], weights[part])
    assert float(parts.result()) == pytest.approx(float(whole.result()))
    column = np.ones((3, 1))
    mean = float(DCG(list_weight=kind)(column, column, np.array([[2.0], [3.0], [4.0]])))
    assert mean == pytest.approx(3.0 if kind == "one" else 1.0)


@pytest.mark.programs
@pytest.mark.filterwarnings("ignore:One item has no order")
def test_graphs_distinguish_weights_of_lists_and_items(backend):
    """A graph of unknown sizes must not serve weights of another kind."""
    if backend != "tensorflow":
        pytest.skip("graphs of unknown sizes")
    import tensorflow as tf

    all_labels = np.array([[1, 0, 0], [1, 0, 0]], "float32")
    all_scores = np.array([[3, 2, 1], [1, 2, 3]], "float32")
    items = np.array([[2, 1, 1], [6, 1, 1]], "float32")
    unknown = [None, None]
    cases = [
        (3, unknown, items, unknown),
        (3, [2, 3], np.float32([2, 6]), [2]),
        (3, unknown, np.float32([[2], [6]]), unknown),
        (3, unknown, np.float32([[2], [6]]), [2, 1]),
        (3, [2, 3], items, [2, 3]),
        (1, unknown, np.float32([[2], [6]]), unknown),
        (1, unknown, np.float32([[2], [6]]), [2, 1]),
        (1, [2, 1], np.float32([[2], [6]]), unknown),
        (1, unknown, np.float32([2, 6]), [2]),
    ]
    for size, shape, weights, weight_shape in cases:
        labels, scores = all_labels[:, :size], all_scores[:, :size]
        metric, expected = DCG(list_weight="one"), DCG(list_weight="one")
        expected.update_state(labels, scores, weights)

        @tf.function(
            input_signature=[
                tf.TensorSpec(shape),
                tf.TensorSpec(shape),
                tf.TensorSpec(weight_shape),
            ]
        )
        def update(labels, scores, weights, metric=metric):
            metric.update_state(labels, scores, weights)

        update(labels, scores, weights)
        assert float(metric.result()) == pytest.approx(float(expected.result()))


def test_grouped_evaluation_passes_weights_of_lists():
    class Identity:
        def predict(self, x, **arguments):
            return x

    scores = np.array([0.9, 0.1, 0.9, 0.1])
    for weights, expected in (([2.0, 6.0], 1.0), ([2.0, 1.0, 6.0, 1.0], 4.0)):
        callback = GroupedEvaluation(
            *(scores, [1, 0, 1, 0], ["a", "a", "b", "b"]),
            [DCG(list_weight="one")],
            sample_weight=weights,
            model=Identity(),
        )
        logs = {}
        callback.on_epoch_end(0, logs)
        assert logs == {"val_dcg": pytest.approx(expected)}


@pytest.mark.compiles_long
def test_groups_hold_metrics_with_different_weights(rng):
    labels, scores = rng.integers(0, 3, (6, 4)), rng.random((6, 4))
    weights = rng.choice([1.0, 4.0], (6, 4))
    members = [
        metric(k=2, list_weight=kind, name=f"{metric.base_name} {kind}")
        for kind in ("mean", "sum", "one")
        for metric in (DCG, MeanReciprocalRank, metrics.NDCG)
    ]
    group = RankingMetrics(members, standard_errors=True)
    group.update_state(labels, scores, weights)
    results = group.result()
    for member in members:
        alone = type(member).from_config(member.get_config())
        alone.update_state(labels, scores, weights)
        assert float(results[member.name]) == pytest.approx(float(alone.result()))
        error = results[f"{member.name}_stderr"]
        assert float(error) == pytest.approx(float(alone.standard_error()), rel=1e-4)


def test_the_sum_of_gains_does_not_depend_on_the_scale_of_a_list():
    """Exponential gains of lists with labels above 64 are scaled down."""
    labels = np.array([[70.0, 0.0], [69.0, 0.0]])
    scores = np.array([[2.0, 1.0], [1.0, 2.0]])
    metric = metrics.NDCG(list_weight="sum")
    metric.update_state(labels, scores)
    expected = (2.0 + 1.0 / np.log2(3)) / 3.0
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    values = [
        float(functional.ndcg([[100, 70]], [[1.0, 2.0]], list_weight=kind)[0])
        for kind in ("mean", "sum", "one")
    ]
    assert values[0] == values[1] == values[2] < 1.0


def test_configs_keep_the_argument():
    metric = DCG(list_weight="sum")
    config = json.loads(json.dumps(metric.get_config()))
    assert DCG.from_config(config).list_weight == "sum"
    # Configs of 0.6.0 lack the argument.
    del config["list_weight"]
    assert DCG.from_config(config).list_weight == "mean"
    for wrong in (None, "total", 1, True):
        with pytest.raises(ValueError, match="`list_weight` should be one of"):
            DCG(list_weight=wrong)


# Clicks of users who examine rank r with the probability 1 / r.


def draw_clicks(rng, relevance, examination):
    """Draws clicks at the ranks of a log: an examined relevant item is clicked."""
    examined = rng.random(relevance.shape) < examination
    return (examined & (rng.random(relevance.shape) < relevance)).astype("float32")


@pytest.mark.slow
def test_clicks_recover_the_value_of_full_labels(rng, backend):
    """The mean over draws of `"one"` is unbiased; the unweighted mean is not.

    With weights of 1 / propensity, DCG with `"one"` is the IPS estimator, and with
    `"sum"` the self-normalized one.
    """
    if backend in ("jax", "tensorflow"):
        pytest.skip("the estimator is the same on all backends")
    lists, items, draws = 40, 8, 2000
    relevance = np.where(rng.random((lists, items)) < 0.3, 1.0, 0.0)
    scores = rng.random((lists, items)) + 0.3 * relevance
    examination = np.broadcast_to(1.0 / np.arange(1, items + 1), (lists, items))
    settings = {"gain_fn": "linear", "shuffle_ties": False}
    known = DCG(**settings)
    known.update_state(relevance, scores)
    truth, estimates = float(known.result()), {"one": [], "unweighted": []}
    for _ in range(draws):
        clicks = draw_clicks(rng, relevance, examination)
        values = functional.dcg(
            clicks,
            scores,
            sample_weight=1.0 / examination,
            list_weight="one",
            **settings,
        )
        estimates["one"].append(np.mean(ops.convert_to_numpy(values)))
        values = functional.dcg(clicks, scores, **settings)
        estimates["unweighted"].append(np.mean(ops.convert_to_numpy(values)))
    errors = {
        name: (np.mean(x) - truth) / (np.std(x) / draws**0.5)
        for name, x in estimates.items()
    }
    assert abs(errors["one"]) < 3.0
    assert errors["unweighted"] < -30.0


@pytest.mark.compiles_long
def test_self_normalized_weights_reduce_the_variance(rng):
    """The standard error of `"sum"` is that of a ratio of sums over lists."""
    clicks = (rng.random((300, 6)) < 0.3).astype("float32")
    scores, weights = rng.random((300, 6)), rng.choice([1.0, 2.0, 6.0], (300, 6))
    metric = DCG(gain_fn="linear", list_weight="sum")
    metric.update_state(clicks, scores, weights)
    order = np.argsort(-scores, axis=1)
    gains = np.take_along_axis(clicks * weights, order, axis=1)
    sums = gains @ (1.0 / np.log2(np.arange(2, 8)))
    totals = gains.sum(axis=1)
    ratio = sums.sum() / totals.sum()
    residuals = sums - ratio * totals
    error = np.sqrt(300 / 299 * np.sum(residuals**2)) / totals.sum()
    assert float(metric.result()) == pytest.approx(ratio, rel=1e-5)
    assert float(metric.standard_error()) == pytest.approx(error, rel=1e-3)
