"""Programs on torch that are recorded and replayed: the same numbers, and no others.

A CPU takes the place of CUDA (see `graphs.py`).
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

# The first is recorded after two of its kind.
CALLS = 5


@pytest.fixture
def _recorded(monkeypatch):
    with graphs.record_graphs(monkeypatch):
        yield


recorded = pytest.mark.usefixtures("_recorded")
every_order = pytest.mark.parametrize("shuffle_ties", [True, False, "average"])


@pytest.fixture
def replays_of(monkeypatch):
    """How often graphs are replayed for results, which they may not change."""

    def count(results):
        expected = results()
        with graphs.record_graphs(monkeypatch):
            np.testing.assert_equal(results(), expected)
            assert not graphs.recording_errors()
            return graphs.count_replays()

    return count


def batches_of(rng, *shapes, number=CALLS):
    """Batches of each shape in turn, with ties, padding and odd scores."""
    for _ in range(number):
        for shape in shapes:
            labels = rng.integers(-1, 4, shape).astype("float32")
            scores = rng.integers(0, 4, shape).astype("float32") / 2
            scores[rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
            weights = rng.choice([0.0, 0.5, 2.0], shape).astype("float32")
            yield labels, scores, weights


def results_of(metric, batches, case=None):
    """The result after each batch, and the state at the end."""
    found = []
    for labels, *others in batches:
        metric.update_state(case.labels(labels) if case else labels, *others)
        found.append([float(metric.result()), float(metric.standard_error())])
    state = [keras.ops.convert_to_numpy(x) for x in metric.variables]
    return found, [x.tolist() for x in state]


@every_order
@pytest.mark.parametrize("case", CASES + SUBTOPIC_CASES, ids=str)
def test_metrics_are_the_same_to_the_last_bit(case, shuffle_ties, replays_of, rng):
    """While shapes take turns, with a look at the result after each batch."""
    batches = list(batches_of(rng, (6, 7), (3, 9)))

    def results():
        return results_of(case.make(shuffle_ties=shuffle_ties, k=3), batches, case)

    # An update of each of two shapes, the mean and its error.
    assert replays_of(results) == 2 * (CALLS - 2) + 2 * (2 * CALLS - 2)


@every_order
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_functions_are_the_same_to_the_last_bit(case, shuffle_ties, replays_of, rng):
    batches = list(batches_of(rng, (6, 7)))
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}

    def values():
        # All are looked at last: no call may change what another one has returned.
        found = []
        for labels, scores, weights in batches:
            found.append(case.values(labels, scores, weights, **arguments))
            ranked = functional.rank(labels, scores, sample_weight=weights, **arguments)
            found.append(case.function(ranked, **case.arguments))
        return [x.tolist() for x in found]

    # Those of averaged ties are of another kind once no value is seen any more.
    assert replays_of(values) >= 3 * (CALLS - 2) - 2


@every_order
@pytest.mark.parametrize("k", [2, None])
def test_sparse_labels(k, shuffle_ties, replays_of, rng):
    scores = rng.integers(0, 9, (CALLS, 8, 20)).astype("float32")
    batches = list(zip(rng.integers(-1, 20, (CALLS, 8, 2)), scores, strict=True))

    def results():
        make = {"shuffle_ties": shuffle_ties, "sparse_labels": True, "seed": 1}
        return results_of(NDCG(k, **make), batches)

    assert replays_of(results) > 0


OF_IDS = HitRate(k=2, sparse_labels=True), [1, 2, 3], [1, 9, 3]
OF_GRADES = ExpectedReciprocalRank(max_grade=2), 2 * np.eye(3, 9), 3 * np.eye(3, 9)


@recorded
@pytest.mark.parametrize(
    ("metric", "good", "bad", "message"),
    [
        (*OF_IDS, r"ids below the number of items, 9\."),
        (*OF_GRADES, "labels up to `max_grade`"),
    ],
    ids=["id", "label"],
)
def test_what_is_too_large_is_an_error_of_each_call(metric, good, bad, message, rng):
    scores = rng.random((3, 9)).astype("float32")
    for _ in range(CALLS):
        metric.update_state(good, scores)
    assert graphs.count_replays() == CALLS - 2
    before = results_of(metric, [])
    with pytest.raises(ValueError, match=message):
        metric.update_state(bad, scores)
    assert results_of(metric, []) == before
    assert graphs.count_replays() == CALLS - 2 + 1


def test_a_group(replays_of, rng):
    batches = list(batches_of(rng, (6, 7)))

    def results():
        kinds = NDCG, metrics.MeanAveragePrecision, metrics.MeanReciprocalRank
        group = RankingMetrics([kind(k, seed=1) for kind in kinds for k in (2, None)])
        return [keras.tree.map_structure(float, group(*batch)) for batch in batches]

    assert replays_of(results) == 2 * (CALLS - 2)


def test_metrics_take_turns_and_have_their_own_seeds(monkeypatch, rng):
    """Those of one class and other seeds share a graph, but neither state nor order."""
    batches = list(batches_of(rng, (9, 20)))

    def results():
        several = [NDCG(3, seed=seed) for seed in (1, 2, 1)] + [HitRate(3)]
        return [
            [results_of(metric, [batch])[0] for metric in several] for batch in batches
        ]

    expected = results()
    assert expected[-1][0] == expected[-1][2] != expected[-1][1]
    with graphs.record_graphs(monkeypatch):
        assert [x[:3] for x in results()] == [x[:3] for x in expected]
        # Updates of either class; all have the same means and errors.
        assert len(torch_graphs._kinds) == 4


@recorded
def test_a_state_goes_its_own_way(rng):
    """If it is reset, copied, exported or merged."""
    batches = list(batches_of(rng, (4, 6), number=2 * CALLS))
    first, second = NDCG(seed=1), NDCG(seed=1)
    expected = results_of(first, batches)
    assert results_of(second, batches[:CALLS])[0] == expected[0][:CALLS]
    kept = second.result()
    loaded = NDCG.from_config(second.get_config())
    for own, other in zip(loaded.variables, second.variables, strict=True):
        own.assign(other.value)
    for metric in (second, loaded):
        assert results_of(metric, batches[CALLS:]) == (expected[0][CALLS:], expected[1])
    assert float(kept) == expected[0][CALLS - 1][0]
    states = [utils.export_state(first), loaded]
    merged = utils.merge_state(NDCG(seed=1), states)
    assert float(merged.result()) == float(first.result())
    assert merged.variables[2] == 2 * first.variables[2]
    first.reset_state()
    assert results_of(first, batches) == expected


@recorded
def test_what_is_given_may_change_afterwards_and_stays_as_it_is(rng):
    labels, scores, _ = next(batches_of(rng, (5, 8)))
    given = torch.tensor(labels), torch.tensor(scores)
    found = []
    for _ in range(CALLS):
        found.append(functional.ndcg(*given, seed=1))
        np.testing.assert_array_equal(torch.stack(given), (labels, scores))
    for x in given:
        x.zero_()
    assert all(x.equal(found[0]) for x in found)


def doubled(x):
    return x + x


def entered(function, *tensors, calls=CALLS):
    """The results of a program that is called several times."""
    return [torch_graphs.enter(function, *tensors) for _ in range(calls)]


def repeats(x):
    for _ in range(torch_graphs.MOST_OPERATIONS + 1):
        x = x + 0.0
    return x


def keeps(x):
    backend._constant.cache_clear()
    return x + backend.constant(0.125, x)


NEVER = {
    "reads": (lambda x: x * x.sum().item(), "A CUDA graph can't hold"),
    "draws": (lambda x: x + torch.rand(1) * 0, "A CUDA graph can't hold"),
    "makes": (lambda x: x + torch.tensor([1.0, 2.0]), "A CUDA graph can't hold"),
    "selects": (lambda x: x[x > 1], "A CUDA graph can't hold"),
    "repeats": (repeats, "A CUDA graph can't hold"),
    "returns a number": (lambda x: (x, 1.5), ""),
    "keeps": (keeps, "what lasts"),
}


@recorded
@pytest.mark.parametrize(("function", "reason"), NEVER.values(), ids=NEVER)
def test_what_no_graph_can_hold_is_never_recorded(function, reason):
    x = torch.tensor([1.0, 2.0])
    expected = function(x)
    for found in entered(function, x):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    (error,) = graphs.recording_errors()
    assert reason in error
    assert graphs.count_replays() == 0


@recorded
def test_an_error_ends_the_recording_of_its_kind_alone(monkeypatch):
    record, attempts = graphs.RecordedGraph.record, []

    def fails(self, run):
        attempts.append(run)
        if len(attempts) == 1:
            raise RuntimeError("CUDA error: operation not permitted")
        return record(self, run)

    monkeypatch.setattr(graphs.RecordedGraph, "record", fails)
    for x in torch.ones(3), torch.ones(4):
        assert all(y.equal(2 * x) for y in entered(doubled, x))
    assert len(attempts) == 2
    assert graphs.count_replays() == CALLS - 2
    assert not torch_graphs.hides_values()


@recorded
def test_an_error_of_the_program_is_its_own():
    def fails(x):
        raise KeyError("its own")

    for _ in range(CALLS):
        with pytest.raises(KeyError, match="its own"):
            torch_graphs.enter(fails, torch.ones(2))


@recorded
def test_values_are_hidden_from_one_thread_alone():
    seen = []

    def program(x):
        seen.append(backend.known(x.sum() > 0))
        other = threading.Thread(target=lambda: seen.append(backend.known(x[0] > 0)))
        other.start()
        other.join()
        return x

    entered(program, torch.ones(2), calls=3)
    # Two calls, the run before recording, the recording and its replay.
    assert seen == [True] * 4 + [None, True] * 3


@recorded
def test_a_graph_keeps_the_constants_that_it_reads():
    def program(x):
        return x + backend.constant(0.375, x)

    x = torch.ones(2)
    entered(program, x)
    constant = weakref.ref(backend.constant(0.375, x))
    backend._constant.cache_clear()
    gc.collect()
    assert constant().equal(torch.tensor(0.375))


@recorded
def test_the_least_recently_used_graph_makes_room(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MOST_GRAPHS", 2)
    monkeypatch.setattr(torch_graphs, "RECENT_CALLS", 20)

    def sizes():
        return sorted(len(kind.graph._outputs[0]) for kind in graphs.recorded_kinds())

    for size in (1, 2):
        entered(doubled, torch.ones(size))
    # In use: a third one does not take their place, however often it is called.
    for _ in range(3 * 20):
        for size in (1, 3, 2):
            entered(doubled, torch.ones(size), calls=1)
        assert sizes() == [1, 2]
    # Nor is it recorded at each call.
    assert 3 <= graphs.RecordedGraph.events.count("recorded") <= 2 + 3
    entered(doubled, torch.ones(2), calls=22)
    found = entered(doubled, torch.ones(3), calls=25)
    assert all(y.equal(torch.full((3,), 2.0)) for y in found)
    assert sizes() == [2, 3]


@recorded
def test_kinds_are_few(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MOST_KINDS", 4)
    entered(doubled, torch.ones(100))
    for size in range(1, 20):
        entered(doubled, torch.ones(size), calls=1)
        assert len(torch_graphs._kinds) <= 4
    assert len(graphs.recorded_kinds()) == 1


@recorded
def test_graphs_hold_a_part_of_the_free_memory(monkeypatch):
    monkeypatch.setattr(backend, "free_memory", lambda: 16 * 200)
    monkeypatch.setattr(torch_graphs, "RECENT_CALLS", 20)

    def held():
        return [kind.graph.held for kind in graphs.recorded_kinds()]

    x, larger, large = torch.ones(10), torch.ones(20), torch.ones(30)
    entered(doubled, x)
    # With that of the first one, which is in use; or alone.
    for y in (larger, large):
        assert all(z.equal(2 * y) for z in entered(doubled, y))
        assert held() == [2 * 4 * 10]
    assert graphs.RecordedGraph.events.count("recorded") == 3
    assert graphs.RecordedGraph.events.count("waited") == 2
    # The first one is not in use any longer, and later is again.
    entered(doubled, larger, calls=30)
    assert held() == [2 * 4 * 20]
    entered(doubled, x, calls=22)
    assert held() == [2 * 4 * 20]
    entered(doubled, x, calls=1)
    assert held() == [2 * 4 * 10]


@recorded
def test_large_batches_are_not_recorded(monkeypatch):
    monkeypatch.setattr(torch_graphs, "MOST_ENTRIES", 10)
    entered(doubled, torch.ones(10))
    assert not torch_graphs._kinds
    entered(doubled, torch.ones(9))
    assert graphs.count_replays() == CALLS - 2


@recorded
def test_what_a_graph_depends_on():
    x = torch.ones(2, 3)
    for same in (x, 2 * x, torch.ones(3, 2).T, torch.nn.Parameter(x, False)):
        entered(doubled, same)
    assert len(torch_graphs._kinds) == 1
    entered(doubled, x.int())
    entered(doubled, x[:, :2])
    with torch.no_grad():
        entered(doubled, torch.nn.Parameter(x))
    assert len(torch_graphs._kinds) == 3
    # Inference mode says only what outputs are.
    with torch.inference_mode():
        assert all(y.is_inference() for y in entered(doubled, x))
    assert not any(y.is_inference() for y in entered(doubled, x))
    assert len(torch_graphs._kinds) == 3
    with default_precision("float16"):
        entered(doubled, x)
    assert len(torch_graphs._kinds) == 4
    torch_graphs.enter(lambda x, *, own: x, x, own=object())
    torch_graphs.enter(doubled, x.to_sparse())
    # Neither a stranger's object nor a sparse tensor makes a kind.
    assert len(torch_graphs._kinds) == 4


@recorded
def test_integers_may_be_others_each_time():
    def sums(x, numbers):
        return x.int() + numbers[0]

    x = torch.ones(2)
    for number in range(CALLS):
        found = torch_graphs.enter(sums, x, (number,))
        assert found.tolist() == [number + 1] * 2
    # Only as large as an int32 is.
    for number in (2**40, -(2**40)):
        found = torch_graphs.enter(lambda x, y: x.long() + y, x, number)
        assert found.tolist() == [number + 1] * 2
    assert len(torch_graphs._kinds) == 1


@recorded
def test_gradients_are_kept():
    x = torch.ones(2, requires_grad=True)
    for y in entered(doubled, x):
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient.tolist() == [2.0, 2.0]
    with torch.no_grad():
        assert not any(y.requires_grad for y in entered(doubled, x))
    assert graphs.count_replays() == CALLS - 2


def double(x):
    return torch_graphs.enter(doubled, x)


IN_ONE_GRAPH = {"backend": "eager", "fullgraph": True}
TRANSFORMED = {
    "vmap": lambda x: torch.vmap(double)(x),
    "grad": lambda x: torch.func.grad(lambda x: double(x * x).sum() / 2)(x),
    "jvp": lambda x: torch.func.jvp(double, (x,), (x,))[1],
    "trace": lambda x: torch.jit.trace(double, x, check_trace=False)(x),
    "compile": lambda x: torch.compile(double, **IN_ONE_GRAPH)(x),
}


@recorded
@pytest.mark.parametrize("transformed", TRANSFORMED.values(), ids=TRANSFORMED)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_transformed_programs_are_not_recorded(transformed):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(CALLS):
        assert transformed(x).equal(2 * x)
    assert not torch_graphs._kinds


@recorded
def test_what_is_left_to_torch(monkeypatch):
    """Tensors of another device, and all while a user records."""
    entered(doubled, torch.ones(2, device="meta"))
    monkeypatch.setattr(graphs.RecordedGraph, "device", staticmethod(lambda: None))
    entered(doubled, torch.ones(2))
    assert not torch_graphs._kinds


@recorded
def test_threads(rng):
    batches = list(batches_of(rng, (5, 6), (4, 9), number=8))
    expected = results_of(NDCG(3, seed=1), batches)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(results_of, NDCG(3, seed=1), batches) for _ in range(4)]
    assert [x.result() for x in found] == [expected] * 4


@pytest.mark.trains
def test_fit_and_a_saved_metric(tmp_path, monkeypatch, rng):
    """It goes on in another model, with graphs of the first one."""
    features = rng.random((64, 5, 3)).astype("float32")
    data = features, rng.integers(0, 3, (64, 5)).astype("float32")
    how = {"batch_size": 16, "verbose": 0}

    def logs():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5, 3))
        scores = keras.layers.Reshape((5,))(keras.layers.Dense(1)(inputs))
        model = keras.Model(inputs, scores)
        model.compile("sgd", "mse", metrics=[NDCG(seed=1), HitRate(1, seed=1)])
        yield model.fit(*data, epochs=2, validation_split=0.25, **how).history
        model.save(tmp_path / "model.keras")
        for each in (model, keras.models.load_model(tmp_path / "model.keras")):
            yield each.evaluate(*data, return_dict=True, **how)

    expected, replays = list(logs()), [0]
    with graphs.record_graphs(monkeypatch):
        for found, right in zip(logs(), expected, strict=True):
            assert found == right
            replays.append(graphs.count_replays())
        assert not graphs.recording_errors()
    of_fit, _, of_loaded = np.diff(replays)
    assert of_fit > 0
    assert of_loaded >= 2 * 4


@every_order
def test_catalogues(shuffle_ties, replays_of, rng):
    queries, candidates = rng.normal(size=(20, 4)), rng.normal(size=(300, 4))
    # Copies tie.
    candidates[100:150] = candidates[:50]
    targets = rng.integers(-1, 300, (20, 3))
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}
    several = [NDCG(10, **arguments), metrics.MeanReciprocalRank(**arguments)]

    def results():
        given, found = (targets, queries, candidates), []
        for _ in range(CALLS):
            found += catalogue.evaluate(*given, several, block_size=64).values()
            ranked = catalogue.rank(*given, block_size=64, **arguments)
            found += functional.ndcg(ranked, k=10).tolist()
            metric = NDCG(10, **arguments)
            metric.update_state(ranked)
            found.append(float(metric.result()))
        return found

    assert replays_of(results) > 0


def test_the_environment_says_whether(monkeypatch):
    monkeypatch.delenv("KERAS_RANK_CUDA_GRAPHS", raising=False)
    assert torch_graphs._is_asked_for()
    for value, is_asked_for in {"0": False, "1": True}.items():
        monkeypatch.setenv("KERAS_RANK_CUDA_GRAPHS", value)
        assert torch_graphs._is_asked_for() is is_asked_for
    for value in ("", "true", "2"):
        monkeypatch.setenv("KERAS_RANK_CUDA_GRAPHS", value)
        with pytest.raises(ValueError, match=f"should be 0 or 1. Received: '{value}'"):
            torch_graphs._is_asked_for()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_without_cuda_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(torch_graphs, "is_on", True)
    monkeypatch.setattr(torch_graphs, "_kinds", {})
    entered(doubled, torch.ones(2))
    assert not torch_graphs._kinds
