"""CUDA graphs on torch: recorded programs, whose replays change no value.

`graphs.py` simulates CUDA on a CPU.
"""

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import graphs
import keras
import numpy as np
import pytest
from precision import default_precision
from registry import CASES, FIRST_CASES, SUBTOPIC_CASES

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend
from keras_rank.metrics import NDCG, ExpectedReciprocalRank, HitRate, RankingMetrics

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("graphs of torch", allow_module_level=True)

torch = pytest.importorskip("torch")

from keras_rank.backends import torch_graphs  # noqa: E402

# Calls of a program. It is recorded after two calls of its kind.
CALLS = 5


@pytest.fixture
def _recorded(monkeypatch):
    with graphs.record_graphs(monkeypatch):
        yield


recorded = pytest.mark.usefixtures("_recorded")
each_tie_mode = pytest.mark.parametrize("shuffle_ties", [True, False, "average"])


@pytest.fixture
def count_replays(monkeypatch):
    """Returns a function that counts replays, and checks that results don't change."""

    def count(results):
        expected = results()
        with graphs.record_graphs(monkeypatch):
            np.testing.assert_equal(results(), expected)
            assert not graphs.recording_errors()
            return graphs.count_replays()

    return count


def draw_batches(rng, *shapes, number=CALLS):
    """Yields batches of each shape in turn, with ties, padding and special scores."""
    for _ in range(number):
        for shape in shapes:
            labels = rng.integers(-1, 4, shape).astype("float32")
            scores = rng.integers(0, 4, shape).astype("float32") / 2
            scores[rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
            weights = rng.choice([0.0, 0.5, 2.0], shape).astype("float32")
            yield labels, scores, weights


def collect_results(metric, batches, case=None):
    """Returns the results after each batch, and the final state."""
    actual = []
    for labels, *others in batches:
        metric.update_state(case.labels(labels) if case else labels, *others)
        actual.append([float(metric.result()), float(metric.standard_error())])
    state = [keras.ops.convert_to_numpy(x) for x in metric.variables]
    return actual, [x.tolist() for x in state]


@each_tie_mode
@pytest.mark.parametrize("case", CASES + SUBTOPIC_CASES, ids=str)
def test_replays_change_no_bit_of_metrics(case, shuffle_ties, count_replays, rng):
    """Shapes alternate, and results are read after each batch."""
    batches = list(draw_batches(rng, (6, 7), (3, 9)))

    def results():
        return collect_results(case.make(shuffle_ties=shuffle_ties, k=3), batches, case)

    # The kinds are updates of two shapes, the mean and the standard error.
    assert count_replays(results) == 2 * (CALLS - 2) + 2 * (2 * CALLS - 2)


@each_tie_mode
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_replays_change_no_bit_of_functions(case, shuffle_ties, count_replays, rng):
    batches = list(draw_batches(rng, (6, 7)))
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}

    def values():
        # Values are read at the end, as no call may change values returned before.
        actual = []
        for labels, scores, weights in batches:
            actual.append(case.values(labels, scores, weights, **arguments))
            ranked = functional.rank(labels, scores, sample_weight=weights, **arguments)
            actual.append(case.function(ranked, **case.arguments))
        return [x.tolist() for x in actual]

    # Programs with averaged ties become another kind when values are hidden.
    assert count_replays(values) >= 3 * (CALLS - 2) - 2


@each_tie_mode
@pytest.mark.parametrize("k", [2, None])
def test_replays_with_sparse_labels(k, shuffle_ties, count_replays, rng):
    scores = rng.integers(0, 9, (CALLS, 8, 20)).astype("float32")
    batches = list(zip(rng.integers(-1, 20, (CALLS, 8, 2)), scores, strict=True))

    def results():
        make = {"shuffle_ties": shuffle_ties, "sparse_labels": True, "seed": 1}
        return collect_results(NDCG(k, **make), batches)

    assert count_replays(results) > 0


HIT_RATE = HitRate(k=2, sparse_labels=True), [1, 2, 3], [1, 9, 3]
RECIPROCAL_RANK = (
    ExpectedReciprocalRank(max_grade=2),
    2 * np.eye(3, 9),
    3 * np.eye(3, 9),
)


@recorded
@pytest.mark.parametrize(
    ("metric", "good", "bad", "message"),
    [
        (*HIT_RATE, r"ids below the number of items, 9\."),
        (*RECIPROCAL_RANK, "labels up to `max_grade`"),
    ],
    ids=["id", "label"],
)
def test_each_call_checks_values(metric, good, bad, message, rng):
    scores = rng.random((3, 9)).astype("float32")
    for _ in range(CALLS):
        metric.update_state(good, scores)
    assert graphs.count_replays() == CALLS - 2
    before = collect_results(metric, [])
    with pytest.raises(ValueError, match=message):
        metric.update_state(bad, scores)
    assert collect_results(metric, []) == before
    assert graphs.count_replays() == CALLS - 2 + 1


def test_groups_are_replayed(count_replays, rng):
    batches = list(draw_batches(rng, (6, 7)))

    def results():
        kinds = NDCG, metrics.MeanAveragePrecision, metrics.MeanReciprocalRank
        group = RankingMetrics([kind(k, seed=1) for kind in kinds for k in (2, None)])
        return [keras.tree.map_structure(float, group(*batch)) for batch in batches]

    assert count_replays(results) == 2 * (CALLS - 2)


def test_metrics_share_graphs_but_not_state(monkeypatch, rng):
    """Metrics with different seeds share a graph, but neither state nor order."""
    batches = list(draw_batches(rng, (9, 20)))

    def results():
        several = [NDCG(3, seed=seed) for seed in (1, 2, 1)] + [HitRate(3)]
        return [
            [collect_results(metric, [batch])[0] for metric in several]
            for batch in batches
        ]

    expected = results()
    assert expected[-1][0] == expected[-1][2] != expected[-1][1]
    with graphs.record_graphs(monkeypatch):
        assert [x[:3] for x in results()] == [x[:3] for x in expected]
        # The kinds are the updates of two classes, the mean and the standard error.
        assert len(torch_graphs._kinds) == 4


@recorded
def test_states_are_independent_of_graphs(rng):
    """States may be reset, copied, exported and merged between replays."""
    batches = list(draw_batches(rng, (4, 6), number=2 * CALLS))
    first, second = NDCG(seed=1), NDCG(seed=1)
    expected = collect_results(first, batches)
    assert collect_results(second, batches[:CALLS])[0] == expected[0][:CALLS]
    kept = second.result()
    loaded = NDCG.from_config(second.get_config())
    for own, other in zip(loaded.variables, second.variables, strict=True):
        own.assign(other.value)
    for metric in (second, loaded):
        assert collect_results(metric, batches[CALLS:]) == (
            expected[0][CALLS:],
            expected[1],
        )
    assert float(kept) == expected[0][CALLS - 1][0]
    states = [utils.export_state(first), loaded]
    merged = utils.merge_state(NDCG(seed=1), states)
    assert float(merged.result()) == float(first.result())
    assert merged.variables[2] == 2 * first.variables[2]
    first.reset_state()
    assert collect_results(first, batches) == expected


@recorded
def test_inputs_are_copied_and_not_changed(rng):
    labels, scores, _ = next(draw_batches(rng, (5, 8)))
    inputs = torch.tensor(labels), torch.tensor(scores)
    actual = []
    for _ in range(CALLS):
        actual.append(functional.ndcg(*inputs, seed=1))
        np.testing.assert_array_equal(torch.stack(inputs), (labels, scores))
    for x in inputs:
        x.zero_()
    assert all(x.equal(actual[0]) for x in actual)


def doubled(x):
    return x + x


def call_repeatedly(function, *tensors, calls=CALLS):
    """Returns the results of several calls of a program."""
    return [torch_graphs.run_program(function, *tensors) for _ in range(calls)]


def repeats(x):
    for _ in range(torch_graphs.MAX_OPERATIONS + 1):
        x = x + 0.0
    return x


def clears_cache(x):
    backend._constant.cache_clear()
    return x + backend.constant(0.125, x)


NOT_RECORDED = {
    "reads": (lambda x: x * x.sum().item(), "A CUDA graph can't hold"),
    "draws": (lambda x: x + torch.rand(1) * 0, "A CUDA graph can't hold"),
    "makes": (lambda x: x + torch.tensor([1.0, 2.0]), "A CUDA graph can't hold"),
    "selects": (lambda x: x[x > 1], "A CUDA graph can't hold"),
    "repeats": (repeats, "A CUDA graph can't hold"),
    "returns a number": (lambda x: (x, 1.5), ""),
    "clears_cache": (clears_cache, "persistent tensors"),
}


@recorded
@pytest.mark.parametrize(
    ("function", "reason"), NOT_RECORDED.values(), ids=NOT_RECORDED
)
def test_unsupported_programs_are_not_recorded(function, reason):
    x = torch.tensor([1.0, 2.0])
    expected = function(x)
    for actual in call_repeatedly(function, x):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    (error,) = graphs.recording_errors()
    assert reason in error
    assert graphs.count_replays() == 0


@recorded
def test_a_recording_error_affects_one_kind_only(monkeypatch):
    record, attempts = graphs.RecordedGraph.record, []

    def fails(self, run):
        attempts.append(run)
        if len(attempts) == 1:
            raise RuntimeError("CUDA error: operation not permitted")
        return record(self, run)

    monkeypatch.setattr(graphs.RecordedGraph, "record", fails)
    for x in torch.ones(3), torch.ones(4):
        assert all(y.equal(2 * x) for y in call_repeatedly(doubled, x))
    assert len(attempts) == 2
    assert graphs.count_replays() == CALLS - 2
    assert not torch_graphs.hides_values()


@recorded
def test_errors_of_programs_are_raised():
    def fails(x):
        raise KeyError("its own")

    for _ in range(CALLS):
        with pytest.raises(KeyError, match="its own"):
            torch_graphs.run_program(fails, torch.ones(2))


@recorded
def test_values_are_hidden_in_one_thread_only():
    seen = []

    def program(x):
        seen.append(backend.read_condition(x.sum() > 0))
        other = threading.Thread(
            target=lambda: seen.append(backend.read_condition(x[0] > 0))
        )
        other.start()
        other.join()
        return x

    call_repeatedly(program, torch.ones(2), calls=3)
    # Two calls, the run before the recording, and the recording with its replay.
    assert seen == [True] * 4 + [None, True] * 3


@recorded
def test_graphs_keep_their_constants_alive():
    def program(x):
        return x + backend.constant(0.375, x)

    x = torch.ones(2)
    call_repeatedly(program, x)
    constant = weakref.ref(backend.constant(0.375, x))
    backend._constant.cache_clear()
    gc.collect()
    assert constant().equal(torch.tensor(0.375))


@recorded
def test_the_least_recently_used_graph_is_dropped(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MAX_GRAPHS", 2)
    monkeypatch.setattr(torch_graphs, "RECENT_CALLS", 20)

    def sizes():
        return sorted(len(kind.graph._outputs[0]) for kind in graphs.recorded_kinds())

    for size in (1, 2):
        call_repeatedly(doubled, torch.ones(size))
    # Frequent calls of a third size don't replace the two graphs, which are in use.
    for _ in range(3 * 20):
        for size in (1, 3, 2):
            call_repeatedly(doubled, torch.ones(size), calls=1)
        assert sizes() == [1, 2]
    # The third size is not recorded at each call either.
    assert 3 <= graphs.RecordedGraph.events.count("recorded") <= 2 + 3
    call_repeatedly(doubled, torch.ones(2), calls=22)
    actual = call_repeatedly(doubled, torch.ones(3), calls=25)
    assert all(y.equal(torch.full((3,), 2.0)) for y in actual)
    assert sizes() == [2, 3]


@recorded
def test_the_number_of_kinds_is_limited(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MAX_KINDS", 4)
    call_repeatedly(doubled, torch.ones(100))
    for size in range(1, 20):
        call_repeatedly(doubled, torch.ones(size), calls=1)
        assert len(torch_graphs._kinds) <= 4
    assert len(graphs.recorded_kinds()) == 1


@recorded
def test_the_memory_of_graphs_is_limited(monkeypatch):
    monkeypatch.setattr(backend, "free_memory", lambda: 16 * 200)
    monkeypatch.setattr(torch_graphs, "RECENT_CALLS", 20)

    def held_memory():
        return [kind.graph.num_bytes for kind in graphs.recorded_kinds()]

    x, larger, large = torch.ones(10), torch.ones(20), torch.ones(30)
    call_repeatedly(doubled, x)
    # The memory of the first graph, which is in use, leaves no room for others.
    for y in (larger, large):
        assert all(z.equal(2 * y) for z in call_repeatedly(doubled, y))
        assert held_memory() == [2 * 4 * 10]
    assert graphs.RecordedGraph.events.count("recorded") == 3
    assert graphs.RecordedGraph.events.count("waited") == 2
    # Graph 1 is no longer in use, and later it is in use again.
    call_repeatedly(doubled, larger, calls=30)
    assert held_memory() == [2 * 4 * 20]
    call_repeatedly(doubled, x, calls=22)
    assert held_memory() == [2 * 4 * 20]
    call_repeatedly(doubled, x, calls=1)
    assert held_memory() == [2 * 4 * 10]


@recorded
def test_large_batches_are_not_recorded(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MAX_ENTRIES", 10)
    call_repeatedly(doubled, torch.ones(10))
    assert not torch_graphs._kinds
    call_repeatedly(doubled, torch.ones(9))
    assert graphs.count_replays() == CALLS - 2


@recorded
def test_properties_of_inputs_select_the_graph():
    x = torch.ones(2, 3)
    for same in (x, 2 * x, torch.ones(3, 2).T, torch.nn.Parameter(x, False)):
        call_repeatedly(doubled, same)
    assert len(torch_graphs._kinds) == 1
    call_repeatedly(doubled, x.int())
    call_repeatedly(doubled, x[:, :2])
    with torch.no_grad():
        call_repeatedly(doubled, torch.nn.Parameter(x))
    assert len(torch_graphs._kinds) == 3
    # Inference mode changes only the kind of outputs.
    with torch.inference_mode():
        assert all(y.is_inference() for y in call_repeatedly(doubled, x))
    assert not any(y.is_inference() for y in call_repeatedly(doubled, x))
    assert len(torch_graphs._kinds) == 3
    with default_precision("float16"):
        call_repeatedly(doubled, x)
    assert len(torch_graphs._kinds) == 4
    torch_graphs.run_program(lambda x, *, own: x, x, own=object())
    torch_graphs.run_program(doubled, x.to_sparse())
    # Calls with unknown objects and with sparse tensors are not recorded.
    assert len(torch_graphs._kinds) == 4


@recorded
def test_integers_may_change_between_calls():
    def sums(x, numbers):
        return x.int() + numbers[0]

    x = torch.ones(2)
    for number in range(CALLS):
        actual = torch_graphs.run_program(sums, x, (number,))
        assert actual.tolist() == [number + 1] * 2
    # Integers beyond int32 are not recorded.
    for number in (2**40, -(2**40)):
        actual = torch_graphs.run_program(lambda x, y: x.long() + y, x, number)
        assert actual.tolist() == [number + 1] * 2
    assert len(torch_graphs._kinds) == 1


@recorded
def test_gradients_are_computed():
    x = torch.ones(2, requires_grad=True)
    for y in call_repeatedly(doubled, x):
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient.tolist() == [2.0, 2.0]
    with torch.no_grad():
        assert not any(y.requires_grad for y in call_repeatedly(doubled, x))
    assert graphs.count_replays() == CALLS - 2


def double(x):
    return torch_graphs.run_program(doubled, x)


IN_ONE_GRAPH = {"backend": "eager", "fullgraph": True}
TRANSFORMED = {
    "vmap": lambda x: torch.vmap(double)(x),
    "grad": lambda x: torch.func.grad(lambda x: double(x * x).sum() / 2)(x),
    "jvp": lambda x: torch.func.jvp(double, (x,), (x,))[1],
    "trace": lambda x: torch.jit.trace(double, x, check_trace=False)(x),
    "compile": lambda x: torch.compile(double, **IN_ONE_GRAPH)(x),
}


@recorded
@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_transformed_programs_are_not_recorded(transform):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(CALLS):
        assert transform(x).equal(2 * x)
    assert not torch_graphs._kinds


@recorded
def test_calls_that_are_left_to_torch(monkeypatch):
    """Calls on another device, or while a user records, are not recorded."""
    call_repeatedly(doubled, torch.ones(2, device="meta"))
    monkeypatch.setattr(graphs.RecordedGraph, "device", staticmethod(lambda: None))
    call_repeatedly(doubled, torch.ones(2))
    assert not torch_graphs._kinds


@recorded
def test_replays_in_threads(rng):
    batches = list(draw_batches(rng, (5, 6), (4, 9), number=8))
    expected = collect_results(NDCG(3, seed=1), batches)
    with ThreadPoolExecutor(4) as pool:
        actual = [
            pool.submit(collect_results, NDCG(3, seed=1), batches) for _ in range(4)
        ]
    assert [x.result() for x in actual] == [expected] * 4


@pytest.mark.trains
def test_fit_and_load_a_model(tmp_path, monkeypatch, rng):
    """A loaded model uses the graphs of the first model."""
    features = rng.random((64, 5, 3)).astype("float32")
    data = features, rng.integers(0, 3, (64, 5)).astype("float32")
    options = {"batch_size": 16, "verbose": 0}

    def logs():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5, 3))
        scores = keras.layers.Reshape((5,))(keras.layers.Dense(1)(inputs))
        model = keras.Model(inputs, scores)
        model.compile("sgd", "mse", metrics=[NDCG(seed=1), HitRate(1, seed=1)])
        yield model.fit(*data, epochs=2, validation_split=0.25, **options).history
        model.save(tmp_path / "model.keras")
        for each in (model, keras.models.load_model(tmp_path / "model.keras")):
            yield each.evaluate(*data, return_dict=True, **options)

    expected, replays = list(logs()), [0]
    with graphs.record_graphs(monkeypatch):
        for actual, right in zip(logs(), expected, strict=True):
            assert actual == right
            replays.append(graphs.count_replays())
        assert not graphs.recording_errors()
    fit_replays, _, loaded_replays = np.diff(replays)
    assert fit_replays > 0
    assert loaded_replays >= 2 * 4


@each_tie_mode
def test_catalogues_are_replayed(shuffle_ties, count_replays, rng):
    queries, candidates = rng.normal(size=(20, 4)), rng.normal(size=(300, 4))
    # Duplicates tie.
    candidates[100:150] = candidates[:50]
    targets = rng.integers(-1, 300, (20, 3))
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}
    several = [NDCG(10, **arguments), metrics.MeanReciprocalRank(**arguments)]

    def results():
        inputs, actual = (targets, queries, candidates), []
        for _ in range(CALLS):
            actual += catalogue.evaluate(*inputs, several, block_size=64).values()
            ranked = catalogue.rank(*inputs, block_size=64, **arguments)
            actual += functional.ndcg(ranked, k=10).tolist()
            metric = NDCG(10, **arguments)
            metric.update_state(ranked)
            actual.append(float(metric.result()))
        return actual

    assert count_replays(results) > 0


def test_the_environment_variable_enables_graphs(monkeypatch):
    monkeypatch.delenv("KERAS_RANK_CUDA_GRAPHS", raising=False)
    assert torch_graphs._read_environment()
    for value, is_asked_for in {"0": False, "1": True}.items():
        monkeypatch.setenv("KERAS_RANK_CUDA_GRAPHS", value)
        assert torch_graphs._read_environment() is is_asked_for
    for value in ("", "true", "2"):
        monkeypatch.setenv("KERAS_RANK_CUDA_GRAPHS", value)
        with pytest.raises(ValueError, match=f"should be 0 or 1. Received: '{value}'"):
            torch_graphs._read_environment()


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_without_cuda_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(torch_graphs, "is_enabled", True)
    monkeypatch.setattr(torch_graphs, "_kinds", {})
    call_repeatedly(doubled, torch.ones(2))
    assert not torch_graphs._kinds
