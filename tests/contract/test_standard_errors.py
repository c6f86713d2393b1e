"""Standard errors of every metric, compared with their definition and the bootstrap."""

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
    """A metric of lists of one item, whose value is the label."""

    def compute(self, lists, ranking):
        return lists.labels[:, 0]


def first_labels(*values_and_weights, **arguments):
    """Returns a metric that was updated with values, where 0 means no relevant item."""
    metric = FirstLabel(relevance_threshold=1e-6, shuffle_ties=False, **arguments)
    for values, weights in values_and_weights:
        values = np.float32(values)[:, None]
        # A mask prevents the warning about lists of one item.
        labels = {"labels": values, "mask": np.ones_like(values)}
        metric.update_state(labels, np.zeros_like(values), weights)
    return metric


def close_to(expected):
    """Returns an approximation with tolerances of rounding errors."""
    return pytest.approx(expected, rel=2e-6, abs=2e-6, nan_ok=True)


def weighted_mean(values, weights, axis=-1):
    """Returns the weighted mean. Lists of weight 0 get value 0 and the mean weight."""
    relevant = weights > 0
    share = relevant.mean(axis=axis)
    return (weights * values).sum(axis=axis) / weights.sum(axis=axis) * share


def error_by_contributions(values, weights, empty_value):
    """Returns the standard error computed from the contributions of lists to the mean.

    Args:
        values: the value of each list, which is arbitrary if the weight is 0.
        weights: 0 for lists without relevant items.
        empty_value: the value of lists without relevant items. If it is `None`, the
            arguments contain no such lists.
    """
    relevant, number = weights > 0, len(weights)
    if number < 2:
        return np.nan
    weight = weights.sum() or 1.0
    mean = (weights * values).sum() / weight
    filled = np.where(relevant, mean, empty_value or 0.0)
    deviations = relevant.sum() * weights * (values - mean) / weight
    parts = np.where(relevant, deviations, 0.0) + filled - filled.mean()
    return np.sqrt((parts**2).sum() / (number * (number - 1)))


def test_empty_lists_with_own_weights_count_like_others():
    values, weights = np.array([0.0, 0.5, 1.0, 0.0]), np.array([4.0, 1.0, 2.0, 3.0])
    metric = first_labels((values, weights), empty_value=0.25, empty_weight="own")
    filled = np.where(values > 0, values, 0.25)
    assert float(metric.result()) == close_to(np.average(filled, weights=weights))
    expected = error_by_contributions(filled, weights, None)
    assert float(metric.standard_error()) == close_to(expected)


@pytest.mark.compiles_long
@given(
    batch=batches(weighted=True),
    weighted=st.booleans(),
    splits=splits,
    shuffle_ties=ties,
    empty_value=st.sampled_from([0.0, 0.5, None]),
)
def test_errors_equal_those_of_contributions(
    batch, weighted, splits, shuffle_ties, empty_value
):
    """The batch is split into parts of any size."""
    labels, scores, weights = batch
    # A single weight for a whole list does not change the value of the list.
    weights = 0.5 + weights[:, 0] if weighted else np.ones(BATCH)
    arguments = {"k": 3, "shuffle_ties": shuffle_ties}
    expected = {}
    for case in FIRST_CASES:
        values = case.values(labels, scores, empty_value=None, **arguments)
        values = ops.convert_to_numpy(values).astype("float64")
        relevant = ~np.isnan(values)
        left_out = empty_value is None or case.leaves_out_empty
        counted = relevant if left_out else (labels >= 0).any(axis=1)
        values = np.where(relevant, values, 0.0)
        expected[case.name] = error_by_contributions(
            values[counted], np.where(relevant, weights, 0.0)[counted], empty_value
        )
    members = [
        case.make(name=case.name, empty_value=empty_value, **arguments)
        for case in FIRST_CASES
    ]
    # One group is faster, as all members share an order.
    group = RankingMetrics(members)
    for part in np.split(np.arange(BATCH), splits):
        given_weights = weights[part] if weighted else None
        group.update_state(labels[part], scores[part], given_weights)
    assert keras.tree.map_structure(float, group.standard_error()) == close_to(expected)


@pytest.fixture
def batch(rng):
    """Returns uneven lists, one without relevant items and one without items."""
    shape = (BATCH, LIST_SIZE)
    labels = rng.integers(-1, 5, shape).astype("float32")
    labels[1], labels[2] = 0.0, -1.0
    weights = rng.choice([0.5, 1.0, 2.0, 3.5], shape).astype("float32")
    return labels, rng.normal(size=shape).astype("float32"), weights


@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_compiled_equals_eager(compiler, batch):
    group = RankingMetrics(["ndcg@3", NDCG(k=2, empty_value=None), "mrr"])
    group.update_state(*batch)

    def errors(variables):
        with keras.StatelessScope(zip(group.variables, variables, strict=True)):
            return group.standard_error()

    actual = compiled.compile_function(compiler, errors)(
        [x.value for x in group.variables]
    )
    expected = keras.tree.map_structure(float, group.standard_error())
    assert keras.tree.map_structure(float, actual) == close_to(expected)


def error_of_sums(values, weights, empty_value):
    """Returns errors by `state.squared_error`. Lists of weight 0 count as empty."""
    v, w, relevant = values, weights, weights > 0
    columns = w * v, w, relevant, ~relevant, w**2, w**2 * v, w**2 * v**2
    sums = (np.sum(column, axis=-1) for column in columns)
    return np.sqrt(state.squared_error(*sums, empty_value))


def test_errors_equal_those_of_the_bootstrap(rng, backend):
    """The difference is below four standard deviations of the bootstrap's noise."""
    stats = pytest.importorskip("scipy.stats")
    if backend != "numpy":
        pytest.skip("resampling takes long, and the formula is equal on all backends")
    lists, resamples = 400, 2000
    values, weights = rng.random(lists), rng.exponential(size=lists) + 0.1
    weights[rng.random(lists) < 0.2] = 0.0
    expected = stats.bootstrap(
        (values, weights),
        weighted_mean,
        n_resamples=resamples,
        paired=True,
        method="percentile",
        rng=rng,
    ).standard_error
    actual = error_of_sums(values, weights, 0.0)
    assert actual == pytest.approx(expected, rel=4 / np.sqrt(2 * resamples))


@pytest.mark.compiles_long
def test_errors_of_nearly_equal_values(rng):
    """Ten million values differ by 1e-4, which squares in float32 can't represent."""
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
def test_errors_without_float64(rng, backend, monkeypatch):
    """Errors on a TPU are right if the values are not nearly equal."""
    if backend != "jax":
        pytest.skip("only JAX lets a test replace the name of the device")
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    values = rng.uniform(0.1, 1.0, 300)
    error = float(first_labels((values, None)).standard_error())
    expected = values.std(ddof=1) / np.sqrt(len(values))
    assert error == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("empty_value", [0.0, 0.25, 1.0])
def test_empty_lists_have_the_mean_weight(empty_value):
    values, weights = np.array([0.0, 0.5, 1.0, 0.0, 0.75]), np.arange(1.0, 6.0)
    metric = first_labels((values, weights), empty_value=empty_value)
    expected = error_by_contributions(values, weights * (values > 0), empty_value)
    assert float(metric.standard_error()) == close_to(expected)


def test_fewer_than_two_lists_have_no_error():
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


LARGE_SQUARES = [([1e19, 3e19], [1.0, 2.0]), ([1.0, 2.0], [2.0**49, 2.0**50])]
LARGE_SQUARES += [
    ([2.0**49, 2.0**40], [2.0**49, 2.0**50]),
    ([1.0, 2.0], [1e-25, 2e-25]),
]


@pytest.mark.parametrize(("values", "weights"), LARGE_SQUARES)
def test_squares_beyond_float32_give_nan(values, weights):
    """The result after updates and a merge is right, and there is no warning."""
    metric = first_labels((values, weights), (values, weights))
    merge_state(metric, [metric])
    expected = np.average(values, weights=weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    error = float(metric.standard_error())
    squares = np.square(np.multiply(values, weights)), np.square(weights)
    is_out_of_range = np.max(squares) > 3.4e38 or np.min(squares) < 1e-45
    assert np.isnan(error) if is_out_of_range else error > 0.0


def test_errors_have_the_dtype_of_the_result(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless it is enabled")
    metric = NDCG(dtype="float64")
    metric.update_state([[1, 0], [1, 0]], [[0.1, 0.2], [0.2, 0.1]])
    worst, float64 = 1 / np.log2(3), ops.cast(0, "float64").dtype
    assert metric.result().dtype == metric.standard_error().dtype == float64
    assert float(metric.result()) == pytest.approx((1 + worst) / 2, rel=1e-13)
    assert float(metric.standard_error()) == pytest.approx((1 - worst) / 2)


def test_names_of_errors_in_groups_with_a_prefix():
    """`test_group.py` tests the values of these errors."""
    group = RankingMetrics(["ndcg@3", "mrr"], prefix="my_", standard_errors=True)
    copy = RankingMetrics.from_config(group.get_config())
    names = ["my_ndcg_at_3", "my_ndcg_at_3_stderr", "my_mrr", "my_mrr_stderr"]
    assert list(group.result()) == list(copy.result()) == names
    assert list(group.standard_error()) == names[::2]


def test_metrics_of_exposure_have_no_errors(batch):
    named = NDCG(k=5, name="coverage_at_2_stderr")
    members = [Coverage(2, items=LIST_SIZE), NDCG(k=3), named]
    group = RankingMetrics(members, standard_errors=True)
    group.update_state(*batch)
    means = ["ndcg_at_3", "coverage_at_2_stderr"]
    with_errors = [each for name in means for each in (name, f"{name}_stderr")]
    assert list(group.result()) == ["coverage_at_2", *with_errors]
    assert list(group.standard_error()) == means


def test_wrong_groups_with_errors_are_refused():
    metrics = [NDCG(k=3, name="n"), NDCG(k=5, name="n_stderr")]
    assert len(RankingMetrics(metrics).result()) == 2
    for members, flag, message in (
        (metrics, True, "Received: 'n_stderr' in addition to 'n'"),
        (["ndcg"], 1, r"`standard_errors` should be .* Received"),
    ):
        with pytest.raises(ValueError, match=message):
            RankingMetrics(members, standard_errors=flag)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_fit_logs_standard_errors(batch):
    labels, x, _ = batch
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    group = RankingMetrics(["ndcg@3", "mrr"], standard_errors=True)
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[group])
    options = {"batch_size": 4, "validation_data": (x, labels), "verbose": 0}
    history = model.fit(x, labels, **options).history
    group_alone = RankingMetrics(["ndcg@3", "mrr"])
    group_alone.update_state(labels, model.predict(x, verbose=0))
    for name, error in group_alone.standard_error().items():
        for logged in (f"{name}_stderr", f"val_{name}_stderr"):
            assert history[logged] == close_to([float(error)])
