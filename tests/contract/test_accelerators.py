"""Compiled code for accelerators: no branches, loops, gathers or scatters.

The code is traced on a CPU. `test_code_paths.py` tests its values.
"""

import itertools

import compiled
import counts
import keras
import numpy as np
import pytest
from keras import ops
from registry import CASES, FIRST_CASES
from strategies import BATCH, LIST_SIZE
from test_code_paths import dense_batch, pretend_accelerator, pretend_tpu, sparse_batch

from keras_rank import metrics
from keras_rank.metrics import NDCG, RankingMetrics

BACKEND = keras.backend.backend()
# The formulas of these metrics loop over the items, or search for each item.
PAIRS = (metrics.KendallTau, metrics.PairwiseAccuracy, metrics.SpearmanCorrelation)
LOOP = (metrics.ExpectedReciprocalRank, *PAIRS)
# The gain of an item for its subtopics depends on the items above it.
LOOP_ALONG_RANKS = (
    metrics.AlphaDCG,
    metrics.AlphaNDCG,
    metrics.ExpectedReciprocalRankIA,
    metrics.SubtopicRecall,
)

pytestmark = [
    # XLA's optimizer for CPUs does not predict its optimizer for accelerators, so these
    # tests are not marked as `optimized`.
    pytest.mark.programs,
    pytest.mark.skipif(BACKEND == "numpy", reason="nothing is compiled on NumPy"),
]


def lowered(metric, batch, platform):
    """Returns the program of an update for a platform, which need not be present."""
    import jax

    variables = [variable.value for variable in metric.variables]
    traced = jax.jit(metric.stateless_update_state).trace(variables, *batch)
    return traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.compiles_long
@pytest.mark.skipif(BACKEND != "jax", reason="a test of JAX")
def test_tpu_programs_have_no_gather_or_scatter(monkeypatch):
    """A gather takes fifteen cycles per entry. Loops gather one item of each list."""
    import jax

    pretend_tpu(monkeypatch)
    batch = [jax.ShapeDtypeStruct((BATCH, 100), "float32") for _ in range(3)]
    for case, arguments in all_updates():
        for k in (10, None):
            if arguments.get("sparse_labels") or case.metric in PAIRS:
                continue
            text = lowered(case.make(**{**arguments, "k": k}), batch, "tpu")
            assert "stablehlo.scatter" not in text, (case.name, arguments)
            if case.metric not in LOOP:
                assert "stablehlo.gather" not in text, (case.name, arguments)


def make_update(case, **arguments):
    """Returns a metric and a batch of known shapes for its update."""
    metric = case.make(**arguments)
    rng = np.random.default_rng(0)
    batch = [ops.convert_to_tensor(x) for x in dense_batch(rng, LIST_SIZE, 5)]
    if arguments.get("sparse_labels"):
        batch[0] = ops.cast(batch[0][:, :2], "int32")
        batch[2] = batch[2][:, :1]
    return metric, batch


def all_updates():
    """Yields each metric with some arguments, and NDCG with all combinations."""
    for case in FIRST_CASES:
        yield case, {"k": 3, "shuffle_ties": "average"}
        if case.metric.takes_sparse_labels:
            k = None if case.metric is metrics.PairwiseAccuracy else 3
            yield case, {"k": k, "sparse_labels": True}
    ndcg = next(case for case in CASES if case.metric is NDCG)
    names = "shuffle_ties", "k", "sparse_labels"
    for values in itertools.product((True, False, "average"), (3, None), (False, True)):
        yield ndcg, dict(zip(names, values, strict=True))


@pytest.mark.compiles_long
@pytest.mark.skipif(BACKEND == "torch", reason="torch is tested with `fullgraph`")
def test_no_metric_has_a_branch(monkeypatch):
    pretend_accelerator(monkeypatch)
    for case, arguments in all_updates():
        metric, batch = make_update(case, **arguments)
        kinds = counts.get_operation_kinds(metric, *batch)
        assert not any(map(counts.is_branch, kinds)), (case.name, arguments)
        if case.metric not in LOOP + LOOP_ALONG_RANKS:
            assert not any(map(counts.is_loop, kinds)), (case.name, arguments)


UPDATES = [(False, 3, "average"), (False, None, True)]
UPDATES += [(True, 3, True), (True, None, "average")]


@compiled.requires_full_graph
@pytest.mark.filterwarnings("ignore:.* lists have no relevant item")
@pytest.mark.skipif(BACKEND != "torch", reason="a test of torch.compile")
@pytest.mark.parametrize(("sparse_labels", "k", "shuffle_ties"), UPDATES)
def test_torch_updates_are_one_graph(sparse_labels, k, shuffle_ties, rng):
    """`fullgraph` raises an error if control flow depends on a value."""
    import torch

    # torch stops compiling after a few graphs and runs eager code, unless it is reset.
    torch.compiler.reset()
    cases = FIRST_CASES
    if (k, shuffle_ties) != (3, "average"):
        # Tracing formulas takes longest, and they are equal for all orders.
        few = NDCG, metrics.MeanAveragePrecision
        cases = [case for case in cases if case.metric in few]
    options = {"k": k, "shuffle_ties": shuffle_ties, "sparse_labels": sparse_labels}
    eager, in_graph = (
        RankingMetrics([case.make(**options) for case in cases]) for _ in range(2)
    )
    # Few items, as each step of a loop is traced, but more items than targets.
    batch = sparse_batch(rng, 6, 3) if sparse_labels else dense_batch(rng, 4, 3)
    batch = list(map(torch.as_tensor, batch))
    update = torch.compile(
        lambda *batch: in_graph.update_state(*batch),
        backend="eager",
        fullgraph=True,
        dynamic=False,
    )
    update(*batch)
    expected = keras.tree.map_structure(float, eager(*batch))
    values = keras.tree.map_structure(float, in_graph.result())
    assert values == pytest.approx(expected, abs=2e-6)


@pytest.mark.compiles_long
@pytest.mark.skipif(BACKEND != "jax", reason="a test of JAX")
def test_updates_lower_for_accelerators(monkeypatch):
    pretend_accelerator(monkeypatch)
    for case, arguments in all_updates():
        for platform in ("cuda", "tpu"):
            assert lowered(*make_update(case, **arguments), platform)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a test of TensorFlow")
@pytest.mark.parametrize("k", [3, None])
def test_tensorflow_updates_compute_no_integers(k, rng):
    """TensorFlow has no CUDA kernels for integers: outside XLA they run on the host."""
    import tensorflow as tf

    on_host = {"Mul", "AddV2", "Sub", "Maximum", "Minimum", "Less", "Cumsum"}
    batch = map(ops.convert_to_tensor, dense_batch(rng, LIST_SIZE, 10**6)[:2])
    metric = NDCG(k=k, shuffle_ties=False)
    graph = tf.function(metric.update_state).get_concrete_function(*batch).graph
    for node in graph.get_operations():
        for tensor in node.outputs:
            is_whole = tensor.dtype in (tf.int32, tf.int64)
            is_data = tensor.shape.rank == 2 and tensor.shape[1] == LIST_SIZE
            assert not (node.type in on_host and is_whole and is_data), node
