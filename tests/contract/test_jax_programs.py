"""Programs of eager code on JAX: one program per call, and few programs in total."""

import functools
import pickle
from concurrent.futures import ThreadPoolExecutor

import jax
import keras
import numpy as np
import pytest
from keras import ops
from registry import BACKEND_CASES, CASES
from strategies import LIST_SIZE
from test_code_paths import LEVELS, LISTS, dense_batch

import keras_rank
from keras_rank import catalogue, functional, metrics
from keras_rank.backends import backend
from keras_rank.metrics import NDCG, ExpectedReciprocalRank, RankingMetrics
from keras_rank.metrics.update import UpdateSpec
from keras_rank.utils import exclude_items

ITEMS = np.random.default_rng(0).integers(-2, 3, size=(50, 4)).astype("float32")

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        keras.backend.backend() != "jax", reason="the backend whose eager code compiles"
    ),
]


@pytest.fixture
def compilations():
    """Records the compilations of XLA since the start of a test."""
    events = []
    is_compilation = "/jax/core/compile/backend_compile_duration".__eq__

    def listen(event, duration, **_):
        if is_compilation(event):
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.clear_event_listeners()


def draw_batch(rng, *shape):
    labels = rng.integers(-1, 5, size=shape).astype("float32")
    return labels, rng.integers(0, 6, size=shape).astype("float32")


def ragged_batches(rng, number=30):
    for _ in range(number):
        lists = int(rng.integers(1, 65))
        sizes = rng.integers(1, 201, size=lists)
        labels = [rng.integers(0, 5, size=size).tolist() for size in sizes]
        yield labels, [rng.random(size).tolist() for size in sizes]


CALLS = {
    "metric": lambda: NDCG(k=10).update_state,
    "group": lambda: RankingMetrics(["ndcg@5", "ndcg@10", "map", "mrr"]).update_state,
    "function": lambda: functools.partial(functional.ndcg, k=10),
}


@pytest.mark.compiles_long
@pytest.mark.parametrize("make_call", CALLS.values(), ids=CALLS)
def test_ragged_batches_compile_few_programs(make_call, rng, compilations):
    batches = list(ragged_batches(rng))
    for max_programs in (16, 0):
        call, before = make_call(), len(compilations)
        for batch in batches:
            call(*batch)
        assert len(compilations) - before <= max_programs


def test_update_and_result_are_one_program_each(rng, compilations):
    batch = draw_batch(rng, 7, 9)
    arguments = {"relevance_threshold": 1.125, "empty_value": 0.125}
    metric = metrics.MeanAveragePrecision(k=4, **arguments)
    before = len(compilations)
    metric(*batch)
    assert len(compilations) == before + 2
    metric(*batch)
    metric.seed = 3
    metric(*batch)
    assert len(compilations) == before + 2


@pytest.mark.optimized
@pytest.mark.parametrize("case", BACKEND_CASES, ids=str)
def test_programs_equal_single_operations(case, rng):
    metric, eager = case.make(k=3, seed=1), case.make(k=3, seed=1)
    for levels in LEVELS:
        batch = dense_batch(rng, LIST_SIZE, levels)
        metric.update_state(*batch)
        with jax.disable_jit():
            eager.update_state(*batch)
    np.testing.assert_allclose(metric.result(), eager.result(), rtol=2e-6)
    errors = metric.standard_error(), eager.standard_error()
    np.testing.assert_allclose(*errors, rtol=1e-4)


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
def test_padding_changes_no_bit(shuffle_ties, rng):
    """The sizes are rounded up to different sizes, and the last one is not rounded."""
    labels, scores, _ = dense_batch(rng, 20, 4)
    weights = rng.random(labels.shape).astype("float32") + 0.25
    arguments = {"k": 7, "shuffle_ties": shuffle_ties, "seed": 1}

    def sums_and_values(labels, scores, weights):
        """Returns the sums of all metrics, which depend on each bit of each list."""
        group = RankingMetrics(
            [x.make(name=str(x), **arguments) for x in BACKEND_CASES]
        )
        group.update_state(labels, scores, weights)
        values = functional.ndcg(labels, scores, sample_weight=weights, **arguments)
        return [*map(np.asarray, group.variables)], np.asarray(values)

    expected, expected_values = sums_and_values(labels, scores, weights)
    for size in (30, 64, 2**17 // LISTS + 1):
        more = [(0, 0), (0, size - 20)]
        padded = np.pad(labels, more, constant_values=-1), np.pad(scores, more)
        actual, values = sums_and_values(*padded, np.pad(weights, more))
        np.testing.assert_array_equal(values, expected_values)
        for x, y in zip(actual, expected, strict=True):
            # The last bit of a sum in float64, and with it a remainder, may depend on
            # what XLA fuses. The last bit of the value of a list is 1e-10 or more.
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-11)


def test_large_inputs_are_not_padded(monkeypatch, rng):
    """Padding would copy the inputs."""
    monkeypatch.setattr(keras_rank.lists.standardize, "pad_axes", None)
    functional.ndcg(*draw_batch(rng, 3, 2**16), k=3)


def test_unknown_options_of_xla_are_left_out(monkeypatch):
    """An option that XLA has dropped should be removed, but causes no error."""
    known_options = backend._supported_fast_options.__wrapped__
    monkeypatch.setenv("XLA_FLAGS", "")
    assert known_options() == backend._FAST_OPTIONS
    monkeypatch.setitem(backend._FAST_OPTIONS, "xla_option_of_no_version", 1)
    assert "xla_option_of_no_version" not in known_options()
    # Options of a user are kept.
    flags = "--xla_backend_optimization_level=3 --xla_dump_to=/tmp/hlo"
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert list(known_options()) == ["xla_cpu_use_fusion_emitters"]


def test_equal_arguments_share_a_program():
    def create_spec(persistence):
        discount = keras_rank.discounts.geometric(persistence)
        return UpdateSpec.from_metrics([NDCG(k=2, rank_discount_fn=discount)])

    assert create_spec(0.5) == create_spec(0.5)
    assert hash(create_spec(0.5)) == hash(create_spec(0.5))
    assert create_spec(0.5) != create_spec(0.25)


def test_different_arguments_have_different_programs():
    """Programs are different if the value of any argument is different."""
    for case in CASES:
        spec = UpdateSpec.from_metrics([case.make()])
        assert backend.is_compilable(spec)
        assert spec == UpdateSpec.from_metrics([case.make(seed=5, name="another")])
        for name in case.make().get_config().keys() - {"name", "seed"}:
            metric = case.make()
            changed = "_compute_dtype" if name == "dtype" else name
            other = "average" if name == "shuffle_ties" else "something else"
            setattr(metric, changed, other)
            if name in ("dtype", "shuffle_ties"):
                assert UpdateSpec.from_metrics([metric]) != spec
            else:
                assert UpdateSpec.from_metrics([metric]).arguments != spec.arguments, (
                    name
                )


class Positions(metrics.RankingMetric):
    """A metric that can't be compiled: it reads values and counts its calls."""

    weight = 1.0

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.calls = 0
        self.scale = keras.Variable(1.0, trainable=False)

    def compute(self, lists, ranking):
        self.calls += 1
        has_items = float(ops.max(lists.labels)) >= 0.0
        first = np.asarray(ranking.take(lists.relevance))[:, 0]
        return ops.convert_to_tensor(first * has_items) * self.scale * self.weight


def test_user_formulas_run_eagerly():
    batch = [[1, 0], [1, 0]], [[0.9, 0.1], [0.2, 0.8]]
    metric = Positions()
    assert float(metric(*batch)) == 0.5
    metric.reset_state()
    metric.scale.assign(0.5)
    metric.weight = 3.0
    assert float(metric(*batch)) == 0.75
    assert metric.calls == 2
    metric.reset_state()
    metric.scale.assign(0.5)
    actual = RankingMetrics([metric, NDCG(k=1, name="other")])(*batch)
    assert actual == {"positions": 0.75, "other": 0.5}


def test_user_formulas_get_unpadded_lists():
    """Padding would change the mean over all ranks."""

    class Mean(metrics.RankingMetric):
        def compute(self, lists, ranking):
            return ops.mean(ranking.take(lists.relevance), axis=1)

    batch = [[1, 0, 0]], [[0.3, 0.2, 0.1]]
    for inputs in (batch, [functional.rank(*batch)]):
        assert float(Mean()(*inputs)) == pytest.approx(1 / 3)


def make_targets(queries):
    return np.arange(2 * len(queries)).reshape(-1, 2)


def make_sparse_batch(queries):
    """Returns targets and scores of 50 items."""
    scores = np.random.default_rng(0).integers(0, 9, (len(queries), 50))
    return make_targets(queries), scores.astype("float32")


def rank_with_averaged_ties(queries):
    targets = make_targets(queries)
    graded = {"ids": targets, "labels": np.ones_like(queries[:, :2])}
    options = {"exclude": targets + 2, "shuffle_ties": "average"}
    return catalogue.rank(graded, queries, ITEMS, **options)


AVERAGED = {"shuffle_ties": "average", "sparse_labels": True}
# The maximum number of programs compiled for a new number of queries, and the call.
CATALOGUE_CALLS = {
    "rank": (6, lambda x: catalogue.rank(make_targets(x), x, ITEMS, seed=1)),
    "rank with averaged ties": (10, rank_with_averaged_ties),
    # Two programs belong to a second pass, which breaks ties at the last rank.
    "top_k": (5, lambda x: catalogue.top_k(x, ITEMS, 3, shuffle_ties=True, seed=1)),
    "top_k of blocks": (6, lambda x: catalogue.top_k(x, ITEMS, 3, block_size=16)),
    "exclude_items": (
        1,
        lambda x: exclude_items(
            *make_sparse_batch(x)[::-1], keep=make_targets(x)[:, :1]
        ),
    ),
    # The number of ranks depends on the values of the lists.
    "a metric without a cutoff": (6, lambda x: NDCG(**AVERAGED)(*make_sparse_batch(x))),
    "a function without a cutoff": (
        5,
        lambda x: functional.ndcg(*make_sparse_batch(x), **AVERAGED),
    ),
}


@pytest.mark.parametrize(
    ("max_programs", "call"), CATALOGUE_CALLS.values(), ids=CATALOGUE_CALLS
)
def test_catalogues_compile_few_programs(call, max_programs, rng, compilations):
    queries = rng.integers(-2, 3, size=(13, 4)).astype("float32")
    call(queries[:9])
    before = len(compilations)
    call(queries)
    assert len(compilations) - before <= max_programs
    before = len(compilations)
    call(-queries)
    assert len(compilations) == before


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    ("base", "targets"),
    [(metrics.PairwiseAccuracy, None), (ExpectedReciprocalRank, None), (NDCG, 70)],
    ids=["inversions", "a loop over items", "bisection"],
)
def test_loops_of_user_classes_are_compiled_once(base, targets, rng, compilations):
    """Each call runs eagerly, and would compile a loop over a new function again."""

    class UserMetric(base):
        pass

    metric = UserMetric(shuffle_ties="average", sparse_labels=targets is not None)
    scores = rng.integers(0, 6, size=(2, 4, 80)).astype("float32")
    if targets is None:
        labels = rng.integers(0, 5, size=scores.shape)
    else:
        labels = rng.permuted(np.indices(scores.shape)[2], axis=2)[..., :targets]
    metric(labels[0], scores[0])
    before = len(compilations)
    metric(labels[1], scores[1])
    assert len(compilations) == before


def test_user_gains_may_be_any_function():
    factor = 1.0
    metric = metrics.DCG(k=1, gain_fn=lambda labels: factor * np.asarray(labels))
    assert float(metric([[3, 1]], [[0.9, 0.1]])) == 3.0
    factor = 2.0
    metric.reset_state()
    assert float(metric([[3, 1]], [[0.9, 0.1]])) == 6.0


def test_state_of_user_classes_is_kept():
    class Counted(NDCG):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.batches = self.add_variable((), "zeros", dtype="int32", name="n")

        def update_state(self, y_true, y_pred=None, sample_weight=None):
            super().update_state(y_true, y_pred, sample_weight)
            self.batches.assign(self.batches + 1)

    metric = Counted(k=2)
    for number in (1, 2, 3):
        assert float(metric([[1, 0]], [[0.9, 0.1]])) == 1.0
        assert int(metric.batches.value) == number


@pytest.mark.parametrize(
    ("metric", "labels", "message"),
    [
        (ExpectedReciprocalRank(max_grade=2.0), [[3, 0]], "labels up to `max_grade`"),
        (NDCG(sparse_labels=True), [7], "below the number of items, 2"),
        (NDCG(sparse_labels=True), [0.5], "whole numbers as ids"),
    ],
)
def test_errors_change_no_state(metric, labels, message):
    with pytest.raises(ValueError, match=message):
        metric.update_state(labels, [[0.9, 0.1]])
    assert not any(np.any(np.asarray(variable)) for variable in metric.variables)


@pytest.mark.optimized
def test_constants_in_user_programs_are_computed_at_once():
    constants = jax.numpy.array([[1.0, 0.0]]), jax.numpy.array([[0.1, 0.9]])
    actual = jax.jit(lambda x: x * functional.ndcg(*constants))(1.0)
    np.testing.assert_allclose(actual, functional.ndcg(*constants), rtol=1e-6)


def test_double_precision(rng):
    labels, scores = draw_batch(rng, 4, 6)
    expected = np.asarray(functional.ndcg(labels, scores, shuffle_ties=False))
    with backend._enable_float64():
        wide = labels.astype("float64"), scores.astype("float64")
        actual = functional.ndcg(*wide, shuffle_ties=False, dtype="float64")
        assert actual.dtype == "float64"
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_two_threads(rng):
    batches = [draw_batch(rng, 5, 6 + i) for i in range(2)]

    def compute_result(batch):
        metric = NDCG(seed=1, relevance_threshold=1.375)
        for _ in range(20):
            metric.update_state(*batch)
        return float(metric.result())

    with ThreadPoolExecutor(2) as pool:
        actual = list(pool.map(compute_result, batches))
    assert actual == [compute_result(batch) for batch in batches]


def test_metrics_and_ranked_lists_can_be_pickled(rng):
    batch = draw_batch(rng, 4, 6)
    metric, ranked = NDCG(k=3, seed=1), functional.rank(*batch, k=3, seed=1)
    expected = float(metric(*batch))
    restored, restored_lists = pickle.loads(pickle.dumps((metric, ranked)))
    assert restored.get_config() == metric.get_config()
    restored.reset_state()
    assert float(restored(restored_lists)) == expected


def test_symbolic_tensors_are_not_compiled():
    labels, scores = keras.KerasTensor((3, 5)), keras.KerasTensor((3, 5))
    layer = keras.layers.Lambda(lambda batch: functional.ndcg(*batch), output_shape=())
    assert layer([labels, scores]).shape == (3,)


@pytest.mark.parametrize("items", [3, 40])
def test_rounding_up_targets_adds_no_lists(items, rng):
    """An added list without targets would count in the mean."""
    ids = rng.permuted(np.tile(np.arange(3), (5, 1)), axis=1)
    ids[:, -1] = -1
    scores = rng.random((5, items)).astype("float32")
    metric = metrics.RecallAtK(k=2, sparse_labels=True, seed=1)
    # The last row has no item and belongs to padding.
    dense = np.eye(items + 1, items)[ids].sum(axis=1)
    expected = functional.recall(dense, scores, k=2)
    assert float(metric(ids, scores)) == pytest.approx(float(np.mean(expected)))
    assert int(metric.variables[-1].value) == 5
