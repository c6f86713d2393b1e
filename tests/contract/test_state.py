"""States of metrics: exact sums, exported and merged states, default precision."""

import keras
import numpy as np
import pytest
from keras import ops
from precision import default_precision
from registry import FIRST_CASES
from strategies import LIST_SIZE
from test_code_paths import dense_batch

from keras_rank import functional, metrics, utils
from keras_rank import state as state_sums
from keras_rank.backends import backend


@pytest.fixture(params=["float64", "float32"])
def dtype(request, monkeypatch):
    """Sets the dtype of additions. A device without float64 adds pairs of float32."""
    monkeypatch.setattr(backend, "has_float64", lambda: request.param == "float64")
    if request.param == "float32":
        monkeypatch.setattr(backend, "compute_in_float64", None)
    return request.param


def sums_with(columns, start=0.0):
    """Returns the totals after adding lists one by one, each with its columns."""
    high = np.full((4, 4), start, "float32")
    totals = ops.convert_to_tensor(np.stack([high, np.zeros_like(high)]))
    rest = ops.zeros((4, 4))
    for column in columns:
        inputs = ops.convert_to_tensor(column[:, None])
        totals, rest, numbers = state_sums.add(totals, rest, inputs)
        assert int(numbers[state_sums.LISTS, state_sums.LISTS]) == int(column[-1] ** 2)
    return np.asarray(ops.convert_to_numpy(totals), "float64").sum(axis=0)


def test_sums_are_exact_beyond_two_to_the_24(dtype):
    """`keras.metrics.Mean` stops counting at 2**24."""
    start = np.float32(2**24)
    assert start + np.float32(1) == start
    column = np.float32([1.0, 0.7, 1e-3, 0.0])
    actual = sums_with([column] * 100, start) - 2**24
    expected = 100 * np.outer(*np.float64([column, column]))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.programs
def test_sums_of_many_lists_are_exact(dtype, rng):
    columns = (rng.random((3000, 4)) * 100).astype("float32")
    columns[:, -1] = 1.0
    factors = columns.astype(dtype)
    products = (factors[:, :, None] * factors[:, None]).astype("float64")
    np.testing.assert_allclose(sums_with(columns), products.sum(0), rtol=1e-11)


@pytest.mark.parametrize("value", [1 / 3, 0.1, 0.7])
def test_means_in_float64_use_remainders(value):
    """Two float32 numbers hold only 48 of the 53 bits of a float64."""
    if backend.supported_dtype("float64") != "float64":
        pytest.skip("JAX has no float64 unless enabled")
    column = backend.to_tensor(np.array([[value], [1.0], [1.0], [1.0]]))
    totals, remainders, _ = state_sums.add(
        ops.zeros((2, 4, 4)), ops.zeros((4, 4)), column
    )
    actual = state_sums.mean(totals, remainders, empty_value=None, dtype="float64")
    assert float(actual) == value


def make_metric():
    return metrics.NDCG(k=2, seed=1)


def make_group(names=("ndcg@2", "mrr")):
    return metrics.RankingMetrics(list(names), prefix="test_")


@pytest.mark.compiles_long
@pytest.mark.parametrize("make", [make_metric, make_group])
def test_merging_equals_adding_variables(make, rng, tmp_path):
    """States may also be saved to files, as workers on several machines do."""
    labels, scores = rng.integers(-1, 4, (9, 6)), rng.normal(size=(9, 6))
    batch = labels, scores, rng.random((9, 6))
    whole, merged, *parts = (make() for _ in range(5))
    whole.update_state(*batch)
    parts[0].update_state(*batch)
    parts[0].reset_state()
    states = []
    for part, rows in zip(parts, (slice(4), slice(0), slice(4, 9)), strict=True):
        part.update_state(*(x[rows] for x in batch))
        np.savez(tmp_path / "state.npz", **utils.export_state(part))
        states.append(dict(np.load(tmp_path / "state.npz")))
    assert utils.merge_state(merged, parts) is merged
    exported = utils.merge_state(make(), states)
    added = [sum(vs) for vs in zip(*(part.variables for part in parts), strict=True)]
    for merged_variable, exported_variable in zip(
        merged.variables, exported.variables, strict=True
    ):
        np.testing.assert_array_equal(
            *map(ops.convert_to_numpy, (merged_variable, exported_variable))
        )
    assert np.all(ops.convert_to_numpy(merged.variables[-1] == whole.variables[-1]))
    for name in ("result", "standard_error"):
        expected = keras.tree.map_structure(float, getattr(whole, name)())
        actual = [getattr(merged, name)()]
        with keras.StatelessScope(zip(merged.variables, added, strict=True)):
            actual.append(getattr(merged, name)())
        for each in keras.tree.map_structure(float, actual):
            assert each == pytest.approx(expected, rel=1e-6)


WRONG_NAMES = r"states with the names.*Received: \{"
OLD_STATE = {"totals": np.zeros((2, 4)), "remainders": np.zeros(4), "lists_seen": 0}
OLD_STATE = {f"ndcg_at_1/{name}": value for name, value in OLD_STATE.items()}
WRONG_STATES = [
    (None, "an element of type NoneType"),
    (metrics.NDCG(k=2), "`others` should be metrics of the same"),
    (metrics.DCG(k=1), "Received: DCG with"),
    (metrics.RankingMetrics(["ndcg@2"]), "same class and configuration"),
    (utils.export_state(metrics.NDCG(k=2)), WRONG_NAMES),
    (utils.export_state(make_group(["mrr"])), WRONG_NAMES),
    ({}, WRONG_NAMES),
    # Older sums have no columns for standard errors.
    (OLD_STATE, f"{WRONG_NAMES}.*, as an older version exports them, without"),
]


@pytest.mark.parametrize(("other", "message"), WRONG_STATES)
def test_merging_states_of_another_metric_is_an_error(other, message):
    """After an error, nothing is merged, so that no state is counted twice."""
    seen = metrics.NDCG(k=1)
    seen.update_state([[1.0, 0.0]], [[0.2, 0.1]])
    for metric in (metrics.NDCG(k=1), metrics.RankingMetrics(["ndcg@1"])):
        with pytest.raises(ValueError, match=message):
            utils.merge_state(metric, [utils.export_state(seen), other])
        assert utils.export_state(metric)["ndcg_at_1/lists_seen"] == 0


def test_names_of_exported_states():
    """The names are those of the results, in any name scope and for each instance."""
    for _ in range(2):
        with keras.name_scope("somewhere"):
            single, group = metrics.NDCG(k=10), make_group()
        variables = {"totals": (2, 4, 4), "remainders": (4, 4), "lists_seen": ()}
        group_names = ["test_ndcg_at_2", "test_mrr"]
        for metric, names in ((single, ["ndcg_at_10"]), (group, group_names)):
            state = utils.export_state(metric)
            assert type(state) is dict
            assert {name: value.shape for name, value in state.items()} == {
                f"{name}/{variable}": shape
                for name in names
                for variable, shape in variables.items()
            }


def test_exported_states_and_results_do_not_change():
    """A metric may also be merged with itself."""
    metric = metrics.NDCG()
    metric.update_state([[1.0, 0.0]], [[0.2, 0.1]])
    state, result = utils.export_state(metric), metric.result()
    utils.merge_state(metric, [metric, metric])
    assert utils.export_state(metric)["ndcg/lists_seen"] == 3
    metric.update_state([[1.0, 0.0]], [[0.1, 0.2]])
    metric.reset_state()
    assert state["ndcg/lists_seen"] == 1
    sums = state["ndcg/totals"].sum(axis=0)
    np.testing.assert_array_equal(sums[state_sums.LISTS], [1] * 4)
    assert float(result) == 1.0
    assert float(metric.result()) == 0.0


PRECISIONS = ["float16", "bfloat16", "mixed_float16", "mixed_bfloat16"]


def compute_results(members, *batch):
    """Returns results by name. Sums are float32, as bfloat16 sums would stop at 256."""
    group = metrics.RankingMetrics(members)
    group.update_state(*batch)
    assert {str(x.dtype) for x in group.variables} == {"float32", "int32"}
    return {name: float(value) for name, value in group.result().items()}


def all_results(*batch):
    return compute_results([case.make(k=3) for case in FIRST_CASES], *batch)


@pytest.mark.compiles_long
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_default_precision_changes_no_value(precision, rng):
    """Labels and weights are not rounded. Scores may have been rounded before."""
    labels, scores, _ = dense_batch(rng, LIST_SIZE, 4)
    labels = np.where(labels < 0, labels, labels * np.float32(0.999))
    weights = rng.random(labels.shape).astype("float32")
    scores = ops.cast(scores, precision.removeprefix("mixed_"))
    expected = all_results(labels, ops.cast(scores, "float32"), weights)
    with default_precision(precision):
        assert all_results(labels, scores, weights) == expected
        assert all_results(labels.tolist(), scores, weights.tolist()) == expected


@pytest.mark.compiles_long
def test_a_wider_default_precision_changes_no_value(rng):
    """A wider default changes no value, and is not saved in configs."""
    labels, scores, weights = dense_batch(rng, LIST_SIZE, 4)
    expected = all_results(labels, scores, weights)
    with default_precision("float64"):
        assert all_results(labels, scores, weights) == expected
        metric = metrics.NDCG()
        assert metric.get_config()["dtype"] == "float32"
        # Keras uses the default precision of JAX when it draws a seed.
        results = [metric(labels, scores), functional.ndcg(labels, scores, seed=1)]
        results.append(functional.pairwise_accuracy(labels, scores, seed=1))
    assert {result.dtype for result in results} == {ops.cast(0, "float32").dtype}


@pytest.mark.programs
@pytest.mark.parametrize("precision", PRECISIONS[:2])
def test_the_default_precision_changes_no_order_of_long_lists(precision, rng):
    """Long lists have separate code paths for sorting and selection."""
    batch = dense_batch(rng, 600, 50)[:2]

    def results():
        return compute_results([metrics.NDCG(k, seed=1) for k in (None, 5)], *batch)

    expected = results()
    with default_precision(precision):
        assert results() == expected
