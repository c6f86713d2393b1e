"""Compiled for an accelerator, code has no branch: as it is traced on a CPU.

That its numbers are those of eager code, `test_ways.py` says.
"""

import compiled
import counts
import keras
import numpy as np
import pytest
from keras import ops
from registry import CASES, FIRST_CASES
from strategies import BATCH, LIST_SIZE
from test_ways import dense_batch, pretend_accelerator, pretend_tpu, sparse_batch

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
# Their formulas go through the items one by one, or search for each one.
PAIRS = (KendallTau, PairwiseAccuracy, SpearmanCorrelation)
LOOP = (ExpectedReciprocalRank, *PAIRS)
# What an item gains for its subtopics depends on those above it.
LOOP_ALONG_RANKS = (AlphaDCG, AlphaNDCG, ExpectedReciprocalRankIA, SubtopicRecall)

pytestmark = [
    # What XLA's optimizer for a CPU does says nothing of accelerators.
    pytest.mark.programs,
    pytest.mark.skipif(BACKEND == "numpy", reason="nothing is compiled on NumPy"),
]


@pytest.fixture
def _on_accelerator(monkeypatch):
    pretend_accelerator(monkeypatch)


@pytest.fixture
def _on_tpu(monkeypatch):
    pretend_tpu(monkeypatch)


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


def update_of(case, **arguments):
    """One compiled update, of shapes that are known, and its inputs."""
    metric = case.make(**arguments)
    rng = np.random.default_rng(0)
    batch = [ops.convert_to_tensor(x) for x in dense_batch(rng, LIST_SIZE, 5)]
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
@pytest.mark.filterwarnings("ignore:.* lists have no relevant item")
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
    # Few items, as each one of a loop is traced; more than targets.
    batch = sparse_batch(rng, 6, 3) if sparse_labels else dense_batch(rng, 4, 3)
    batch = list(map(torch.as_tensor, batch))
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
    labels, scores, _ = dense_batch(rng, LIST_SIZE, 10**6)
    batch = [ops.convert_to_tensor(x) for x in (labels, scores)]
    metric = NDCG(k=k, shuffle_ties=False)
    graph = tf.function(metric.update_state)
    graph = graph.get_concrete_function(*batch).graph
    for node in graph.get_operations():
        for tensor in node.outputs:
            is_whole = tensor.dtype in (tf.int32, tf.int64)
            is_data = tensor.shape.rank == 2 and tensor.shape[1] == LIST_SIZE
            assert not (node.type in on_host and is_whole and is_data), node
