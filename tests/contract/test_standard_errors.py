"""How sure the number is: the standard error of every metric, and its laws."""

import compiled
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import FIRST_CASES
from strategies import BATCH, LIST_SIZE, batches, splits, ties

from keras_rank import state
from keras_rank.metrics import NDCG, Coverage, RankingMetric, RankingMetrics
from keras_rank.utils import merge_state


class FirstLabel(RankingMetric):
    """The value is what is given as label, of lists of one item."""

    def compute(self, lists, ranking):
        return lists.labels[:, 0]


def first_labels(*values_and_weights, **arguments):
    """A metric that has seen these values. Those of 0 have no relevant item."""
    metric = FirstLabel(relevance_threshold=1e-6, shuffle_ties=False, **arguments)
    for values, weights in values_and_weights:
        values = np.float32(values)[:, None]
        # A mask says that lists of one item are meant.
        labels = {"labels": values, "mask": np.ones_like(values)}
        metric.update_state(labels, np.zeros_like(values), weights)
    return metric


def close(expected):
    """To rounding, also beside values that are much larger than their differences."""
    return pytest.approx(expected, rel=2e-6, abs=2e-6, nan_ok=True)


def mean_of(values, weights, axis=-1):
    """The weighted mean, where lists of weight 0 score 0 at the mean weight."""
    relevant = weights > 0
    share = relevant.mean(axis=axis)
    return (weights * values).sum(axis=axis) / weights.sum(axis=axis) * share


def by_contributions(values, weights, empty_value):
    """The error from what each list has contributed to the mean.

    Args:
        values: the value of each list, whatever it is where the weight is 0.
        weights: 0 for the lists without relevant items.
        empty_value: what these score; they are left out already if it is `None`.
    """
    relevant, number = weights > 0, len(weights)
    if number < 2:
        return np.nan
    weight = weights.sum() or 1.0
    among = (weights * values).sum() / weight
    filled = np.where(relevant, among, empty_value or 0.0)
    own = relevant.sum() * weights * (values - among) / weight
    parts = np.where(relevant, own, 0.0) + filled - filled.mean()
    return np.sqrt((parts**2).sum() / (number * (number - 1)))


def test_empty_lists_with_weights_of_their_own_are_as_any_other():
    values, weights = np.array([0.0, 0.5, 1.0, 0.0]), np.array([4.0, 1.0, 2.0, 3.0])
    metric = first_labels((values, weights), empty_value=0.25, empty_weight="own")
    filled = np.where(values > 0, values, 0.25)
    assert float(metric.result()) == close(np.average(filled, weights=weights))
    expected = by_contributions(filled, weights, None)
    assert float(metric.standard_error()) == close(expected)


@pytest.mark.compiles_long
@given(
    batch=batches(weighted=True),
    weighted=st.booleans(),
    splits=splits,
    shuffle_ties=ties,
    empty_value=st.sampled_from([0.0, 0.5, None]),
)
def test_it_is_that_of_the_contributions(
    batch, weighted, splits, shuffle_ties, empty_value
):
    """However the batch is split."""
    labels, scores, weights = batch
    # One for each list, which changes no value.
    weights = 0.5 + weights[:, 0] if weighted else np.ones(BATCH)
    arguments = {"k": 3, "shuffle_ties": shuffle_ties}
    expected = {}
    for case in FIRST_CASES:
        values = case.values(labels, scores, empty_value=None, **arguments)
        values = ops.convert_to_numpy(values).astype("float64")
        relevant = ~np.isnan(values)
        left_out = empty_value is None or case.leaves_out_empty
        kept = relevant if left_out else (labels >= 0).any(axis=1)
        values = np.where(relevant, values, 0.0)
        expected[case.name] = by_contributions(
            values[kept], np.where(relevant, weights, 0.0)[kept], empty_value
        )
    members = [
        case.make(name=case.name, empty_value=empty_value, **arguments)
        for case in FIRST_CASES
    ]
    # All at once: they order each batch together.
    group = RankingMetrics(members)
    for part in np.split(np.arange(BATCH), splits):
        given_weights = weights[part] if weighted else None
        group.update_state(labels[part], scores[part], given_weights)
    assert keras.tree.map_structure(float, group.standard_error()) == close(expected)


@pytest.fixture
def batch(rng):
    """Of uneven lists: one without relevant items, one without any item."""
    shape = (BATCH, LIST_SIZE)
    labels = rng.integers(-1, 5, shape).astype("float32")
    labels[1], labels[2] = 0.0, -1.0
    weights = rng.choice([0.5, 1.0, 2.0, 3.5], shape).astype("float32")
    return labels, rng.normal(size=shape).astype("float32"), weights


@pytest.mark.parametrize("way", compiled.COMPILERS)
def test_compiled_equals_eager(way, batch):
    group = RankingMetrics(["ndcg@3", NDCG(k=2, empty_value=None), "mrr"])
    group.update_state(*batch)

    def errors(variables):
        with keras.StatelessScope(zip(group.variables, variables, strict=True)):
            return group.standard_error()

    found = compiled.compile_function(way, errors)([x.value for x in group.variables])
    expected = keras.tree.map_structure(float, group.standard_error())
    assert keras.tree.map_structure(float, found) == close(expected)


def of_sums(values, weights, empty_value):
    """By the formula, of data sets in rows; a list of weight 0 is empty."""
    v, w, relevant = values, weights, weights > 0
    columns = w * v, w, relevant, ~relevant, w**2, w**2 * v, w**2 * v**2
    sums = (np.sum(column, axis=-1) for column in columns)
    return np.sqrt(state.squared_error(*sums, empty_value))


def test_the_formula_is_that_of_the_bootstrap(rng, backend):
    """Within four deviations of the bootstrap's own noise."""
    stats = pytest.importorskip("scipy.stats")
    if backend != "numpy":
        pytest.skip("the same formula everywhere: the resamples take long")
    lists, resamples = 400, 2000
    values, weights = rng.random(lists), rng.exponential(size=lists) + 0.1
    weights[rng.random(lists) < 0.2] = 0.0
    expected = stats.bootstrap(
        (values, weights),
        mean_of,
        n_resamples=resamples,
        paired=True,
        method="percentile",
        rng=rng,
    ).standard_error
    found = of_sums(values, weights, 0.0)
    assert found == pytest.approx(expected, rel=4 / np.sqrt(2 * resamples))


def test_values_that_are_nearly_alike(rng):
    """Ten million that differ by a ten-thousandth: float32 squares know nothing."""
    values = (0.9 + 1e-4 * rng.normal(size=250_000)).astype("float32")
    weights = rng.uniform(0.5, 2.0, size=len(values)).astype("float32")
    for given_weights in (np.ones_like(values), weights):
        metric = first_labels()
        merge_state(metric, [first_labels((values, given_weights))] * 40)
        v, w = values.astype("float64"), given_weights.astype("float64")
        spread = np.mean((w * (v - np.average(v, weights=w))) ** 2) / np.mean(w) ** 2
        expected = np.sqrt(spread / (40 * len(v) - 1))
        assert float(metric.standard_error()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.programs
def test_without_float64(rng, backend, monkeypatch):
    """As on a TPU: right for values that are not nearly alike."""
    if backend != "jax":
        pytest.skip("tried where the device can be made to look like another")
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    values = rng.uniform(0.1, 1.0, 300)
    error = float(first_labels((values, None)).standard_error())
    expected = values.std(ddof=1) / np.sqrt(len(values))
    assert error == pytest.approx(expected, rel=1e-5)


def test_fewer_than_two_lists_that_count_have_none():
    seen, empty = ([0.5, 0.0, -1.0], None), ([0.0, 0.0, -1.0], None)
    for batches_seen, empty_value, expected in (
        ([], 0.0, None),
        ([seen], None, None),
        ([seen], 0.0, 0.25),
        ([empty], None, None),
        ([empty], 0.5, 0.0),
        ([seen, seen], None, 0.0),
    ):
        metric = first_labels(*batches_seen, empty_value=empty_value)
        error = float(metric.standard_error())
        assert np.isnan(error) if expected is None else error == expected


BEYOND = [([1e19, 3e19], [1.0, 2.0]), ([1.0, 2.0], [2.0**49, 2.0**50])]
BEYOND += [([2.0**49, 2.0**40], [2.0**49, 2.0**50]), ([1.0, 2.0], [1e-25, 2e-25])]


@pytest.mark.parametrize(("values", "weights"), BEYOND)
def test_where_squares_are_beyond_float32(values, weights):
    """The result is what it is, before and after, alone and merged: no warning."""
    metric = first_labels((values, weights), (values, weights))
    merge_state(metric, [metric])
    expected = np.average(values, weights=weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    error = float(metric.standard_error())
    squares = np.square(np.multiply(values, weights)), np.square(weights)
    beyond = np.max(squares) > 3.4e38 or np.min(squares) < 1e-45
    assert np.isnan(error) if beyond else error > 0.0


def test_it_has_the_dtype_of_the_result(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless asked for")
    metric = NDCG(dtype="float64")
    metric.update_state([[1, 0], [1, 0]], [[0.1, 0.2], [0.2, 0.1]])
    worst, float64 = 1 / np.log2(3), ops.cast(0, "float64").dtype
    assert metric.result().dtype == metric.standard_error().dtype == float64
    assert float(metric.result()) == pytest.approx((1 + worst) / 2, rel=1e-13)
    assert float(metric.standard_error()) == pytest.approx((1 - worst) / 2)


def test_results_of_a_group_with_a_prefix():
    """`test_group.py` has their values."""
    group = RankingMetrics(["ndcg@3", "mrr"], prefix="my_", standard_errors=True)
    copy = RankingMetrics.from_config(group.get_config())
    names = ["my_ndcg_at_3", "my_ndcg_at_3_stderr", "my_mrr", "my_mrr_stderr"]
    assert list(group.result()) == list(copy.result()) == names
    assert list(group.standard_error()) == names[::2]


def test_metrics_of_exposure_have_none(batch):
    named = NDCG(k=5, name="coverage_at_2_stderr")
    members = [Coverage(2, items=LIST_SIZE), NDCG(k=3), named]
    group = RankingMetrics(members, standard_errors=True)
    group.update_state(*batch)
    means = ["ndcg_at_3", "coverage_at_2_stderr"]
    with_errors = [each for name in means for each in (name, f"{name}_stderr")]
    assert list(group.result()) == ["coverage_at_2", *with_errors]
    assert list(group.standard_error()) == means


def test_errors_of_a_group():
    metrics = [NDCG(k=3, name="n"), NDCG(k=5, name="n_stderr")]
    assert len(RankingMetrics(metrics).result()) == 2
    for members, flag, message in (
        (metrics, True, "Received: 'n_stderr' in addition to 'n'"),
        (["ndcg"], 1, r"`standard_errors` should be .* Received"),
    ):
        with pytest.raises(ValueError, match=message):
            RankingMetrics(members, standard_errors=flag)


@pytest.mark.trains
def test_in_fit(batch):
    labels, x, _ = batch
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    group = RankingMetrics(["ndcg@3", "mrr"], standard_errors=True)
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[group])
    given = {"batch_size": 4, "validation_data": (x, labels), "verbose": 0}
    history = model.fit(x, labels, **given).history
    alone = RankingMetrics(["ndcg@3", "mrr"])
    alone.update_state(labels, model.predict(x, verbose=0))
    for name, error in alone.standard_error().items():
        for logged in (f"{name}_stderr", f"val_{name}_stderr"):
            assert history[logged] == close([float(error)])
