"""Compiled for an accelerator there is one way, without a branch: tried on a CPU."""

import compiled
import counts
import keras
import numpy as np
import pytest
from keras import ops
from registry import CASES, CASES_HERE, FIRST_CASES, with_cutoff
from strategies import BATCH, LIST_SIZE

from keras_rank import functional
from keras_rank.arrays import selection
from keras_rank.backends import backend
from keras_rank.metrics import (
    NDCG,
    AlphaDCG,
    AlphaNDCG,
    ExpectedReciprocalRank,
    ExpectedReciprocalRankIA,
    KendallTau,
    MeanAveragePrecision,
    PairwiseAccuracy,
    RankingMetrics,
    SpearmanCorrelation,
    SubtopicRecall,
)

BACKEND = keras.backend.backend()
WAYS = [way for way in compiled.WAYS if compiled.is_here(way)]
# Their formulas go through the items one by one, or search for each one.
PAIRS = (KendallTau, PairwiseAccuracy, SpearmanCorrelation)
LOOP = (ExpectedReciprocalRank, *PAIRS)
# What an item gains for its subtopics depends on those above it.
LOOP_ALONG_RANKS = (AlphaDCG, AlphaNDCG, ExpectedReciprocalRankIA, SubtopicRecall)
SPARSE = [case for case in CASES_HERE if case.metric.takes_sparse_labels]
# Pairs of targets take no cutoff.
SPARSE_CUT = [case for case in SPARSE if case.metric is not PairwiseAccuracy]

pytestmark = [
    # What XLA's optimizer for a CPU does says nothing of accelerators.
    pytest.mark.programs,
    pytest.mark.skipif(not WAYS, reason="nothing is compiled on NumPy"),
]


@pytest.fixture
def _on_accelerator(monkeypatch):
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)


@pytest.fixture
def _on_tpu(monkeypatch, _on_accelerator):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


def dense_batch(rng):
    """Ties, padding, items that are not retrieved, and a list of nothing."""
    shape = (BATCH, LIST_SIZE)
    labels = rng.integers(-1, 5, size=shape).astype("float32")
    scores = rng.integers(0, 5, size=shape).astype("float32")
    scores[rng.random(scores.shape) < 0.1] = np.nan
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    labels[3] = -1.0
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    return labels, scores, weights


def sparse_batch(rng):
    some = [[3, 6, -1, 2], [0, 0, 5, 0], [-1, -1, -1, -1], [2, 1, 4, 6]]
    ids = np.array([*some, *rng.integers(-1, LIST_SIZE, size=(4, 4))], "int32")
    scores = rng.integers(0, 4, size=(BATCH, LIST_SIZE)).astype("float32")
    scores[0, 3], scores[1, 5] = np.nan, -np.inf
    return ids, scores


def dense_values(k, shuffle_ties, cases=CASES_HERE):
    def values(labels, scores, weights):
        order = functional.rank(
            labels,
            scores,
            sample_weight=weights,
            k=k,
            shuffle_ties=shuffle_ties,
            seed=1,
        )
        return ops.stack(
            [
                case.function(order, k=k, **case.arguments)
                for case in with_cutoff(k, cases)
            ]
        )

    return values


def sparse_values(k, shuffle_ties):
    def values(ids, scores):
        order = functional.rank(
            ids, scores, k=k, shuffle_ties=shuffle_ties, seed=1, sparse_labels=True
        )
        return ops.stack(
            [
                case.function(order, k=k, **case.arguments)
                for case in (SPARSE if k is None else SPARSE_CUT)
            ]
        )

    return values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("k", "shuffle_ties"), [(3, True), (None, True), (None, False), (3, "average")]
)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_all_metrics_have_the_same_values(kind, k, shuffle_ties, way, rng, request):
    if BACKEND == "torch":
        pytest.skip("takes long: its compiler is asked for one graph below")
    if "XLA" in way and (k, shuffle_ties) not in [(3, "average"), (None, True)]:
        pytest.skip("takes long: the graph is that of `tf.function`")
    batch = (dense_batch if kind == "dense" else sparse_batch)(rng)
    make = dense_values if kind == "dense" else sparse_values
    expected = ops.convert_to_numpy(make(k, shuffle_ties)(*batch))
    request.getfixturevalue("_on_accelerator")
    tensors = [ops.convert_to_tensor(x) for x in batch]
    found = compiled.function(way, make(k, shuffle_ties))(*tensors)
    found = ops.convert_to_numpy(found)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
def test_long_lists_are_selected_from(shuffle_ties, way, rng, request):
    """In blocks, where the lists above are sorted: with ties beyond each block."""
    if BACKEND == "torch" or "XLA" in way:
        pytest.skip("takes long: its whole way is that of the others")
    labels, scores, weights = dense_batch(rng)
    batch = [np.tile(x, (1, 700)) for x in (labels, scores, weights)]
    batch[1][4:] += rng.normal(size=batch[1][4:].shape)
    few = [case for case in CASES_HERE if case.metric in (NDCG, MeanAveragePrecision)]
    values = dense_values(3, shuffle_ties, few)
    expected = ops.convert_to_numpy(values(*batch))
    request.getfixturevalue("_on_accelerator")
    assert batch[1].shape[1] >= backend.LONG_ROW
    found = compiled.function(way, values)(*map(ops.convert_to_tensor, batch))
    found = ops.convert_to_numpy(found)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.skipif(BACKEND != "jax", reason="a way of JAX")
@pytest.mark.parametrize("k", [3, None])
def test_averages_over_ties_without_a_scatter(k, rng, request):
    """As a TPU does: in steps along the ranks."""
    import jax

    batch = dense_batch(rng)
    values = dense_values(k, "average")
    expected = ops.convert_to_numpy(values(*batch))
    request.getfixturevalue("_on_tpu")
    lowered = jax.jit(values).lower(*batch)
    assert "stablehlo.scatter" not in lowered.as_text()
    found = np.asarray(lowered.compile()(*batch))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


@pytest.mark.skipif(BACKEND != "jax", reason="a test of JAX")
@pytest.mark.usefixtures("_on_tpu")
def test_a_tpu_gathers_and_scatters_nothing():
    """It takes fifteen cycles for each entry. Loops gather one item of each list."""
    import jax

    batch = [jax.ShapeDtypeStruct((BATCH, 100), "float32") for _ in range(3)]
    for case, arguments in all_updates():
        for k in (10, None):
            if arguments.get("sparse_labels") or case.metric in PAIRS:
                continue
            metric = case.make(**{**arguments, "k": k})
            variables = [variable.value for variable in metric.variables]
            traced = jax.jit(metric.stateless_update_state).trace(variables, *batch)
            text = traced.lower(lowering_platforms=("tpu",)).as_text()
            assert "stablehlo.scatter" not in text, (case.name, arguments)
            if case.metric not in LOOP:
                assert "stablehlo.gather" not in text, (case.name, arguments)


@pytest.mark.parametrize("count", [1, 7, 8, 256])
@pytest.mark.usefixtures("_on_accelerator")
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_largest_are_found_in_blocks_of_any_number(count, dtype, rng):
    entries = (1e9 * rng.normal(size=(2, 4099))).clip(-(2**31), 2**31 - 128)
    entries = entries.astype(dtype)
    x = ops.convert_to_tensor(entries)
    assert selection.is_long(x, count)
    found, places = map(ops.convert_to_numpy, selection.top_k(x, count))
    np.testing.assert_array_equal(found, np.sort(entries, axis=1)[:, ::-1][:, :count])
    np.testing.assert_array_equal(np.take_along_axis(entries, places, axis=1), found)


def update_of(case, **arguments):
    """One compiled update, of shapes that are known, and its inputs."""
    metric = case.make(**arguments)
    batch = [ops.convert_to_tensor(x) for x in dense_batch(np.random.default_rng(0))]
    if arguments.get("sparse_labels"):
        batch[0] = ops.cast(batch[0][:, :2], "int32")
        batch[2] = batch[2][:, :1]
    return metric, batch


def all_updates():
    """Each metric in some way, and NDCG in each."""
    for case in FIRST_CASES:
        yield case, {"k": 3, "shuffle_ties": "average"}
        if case.metric.takes_sparse_labels:
            k = None if case.metric is PairwiseAccuracy else 3
            yield case, {"k": k, "sparse_labels": True}
    ndcg = next(case for case in CASES if case.metric is NDCG)
    for shuffle_ties in (True, False, "average"):
        for k in (3, None):
            yield ndcg, {"k": k, "shuffle_ties": shuffle_ties}
            sparse = {"k": k, "shuffle_ties": shuffle_ties, "sparse_labels": True}
            yield ndcg, sparse


@pytest.mark.skipif(BACKEND == "torch", reason="its compiler is asked for one graph")
@pytest.mark.usefixtures("_on_accelerator")
def test_no_metric_has_a_branch():
    for case, arguments in all_updates():
        metric, batch = update_of(case, **arguments)
        kinds = counts.kinds_in_graph(metric, *batch)
        assert not any(map(counts.is_branch, kinds)), (case.name, arguments)
        if case.metric not in LOOP + LOOP_ALONG_RANKS:
            assert not any(map(counts.is_loop, kinds)), (case.name, arguments)


@compiled.in_one_graph
@pytest.mark.skipif(BACKEND != "torch", reason="a test of torch.compile")
@pytest.mark.parametrize(
    ("sparse_labels", "k", "shuffle_ties"),
    [
        (False, 3, "average"),
        (False, None, True),
        (True, 3, True),
        (True, None, "average"),
    ],
)
def test_one_graph_on_torch(sparse_labels, k, shuffle_ties, rng):
    """`fullgraph` is an error where a value decides what to compute."""
    import torch

    # Or it would give up after a few graphs, and run the rest as it is.
    torch.compiler.reset()
    cases = FIRST_CASES
    if (k, shuffle_ties) != (3, "average"):
        # Tracing formulas takes longest, and these are the same for any order.
        cases = [case for case in cases if case.metric in (NDCG, MeanAveragePrecision)]
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "sparse_labels": sparse_labels}
    eager, in_graph = (
        RankingMetrics([case.make(**arguments, name=case.name) for case in cases])
        for _ in range(2)
    )
    # Few items, as each one of a loop is traced.
    dense = [x[:, :4] for x in dense_batch(rng)]
    batch = list(map(torch.as_tensor, sparse_batch(rng) if sparse_labels else dense))
    update = torch.compile(
        lambda *batch: in_graph.update_state(*batch),
        backend="eager",
        fullgraph=True,
        dynamic=False,
    )
    update(*batch)
    eager.update_state(*batch)
    for name, expected in eager.result().items():
        found = float(in_graph.result()[name])
        assert found == pytest.approx(float(expected), abs=2e-6), name


@pytest.mark.skipif(BACKEND != "jax", reason="a test of JAX")
@pytest.mark.usefixtures("_on_accelerator")
def test_updates_lower_for_accelerators():
    import jax

    for case, arguments in all_updates():
        metric, batch = update_of(case, **arguments)
        variables = [variable.value for variable in metric.variables]
        traced = jax.jit(metric.stateless_update_state).trace(variables, *batch)
        for platform in ("cuda", "tpu"):
            assert traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a test of TensorFlow")
@pytest.mark.parametrize("k", [3, None])
def test_the_plain_path_computes_no_whole_numbers(k, rng):
    """The CUDA build has no kernels for such: outside XLA they run on the host."""
    import tensorflow as tf

    on_host = {"Mul", "AddV2", "Sub", "Maximum", "Minimum", "Less", "Cumsum"}
    batch = [ops.convert_to_tensor(x) for x in dense_batch(rng)[:2]]
    scores = rng.normal(size=(BATCH, LIST_SIZE)).astype("float32")
    batch[1] = ops.convert_to_tensor(scores)
    metric = NDCG(k=k, shuffle_ties=False)
    graph = tf.function(metric.update_state)
    graph = graph.get_concrete_function(*batch).graph
    for node in graph.get_operations():
        for tensor in node.outputs:
            is_whole = tensor.dtype in (tf.int32, tf.int64)
            is_data = tensor.shape.rank == 2 and tensor.shape[1] == LIST_SIZE
            assert not (node.type in on_host and is_whole and is_data), node
