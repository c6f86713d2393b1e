"""Compiled everywhere: the values of eager code, and no more traces than shapes."""

import functools
import gc
import weakref

import compiled
import keras
import numpy as np
import pytest
from keras import ops
from registry import CASES_HERE, with_cutoff
from strategies import BATCH, LIST_SIZE

from keras_rank import functional
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics, RecallAtK

jax_only = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="a transformation of JAX"
)
SHAPES = [(4, 6), (2, 6), (4, 5)]

pytestmark = pytest.mark.programs


def batch_of(rng, shape):
    """Labels, scores and weights with ties and padding."""
    labels = rng.integers(-1, 5, size=shape).astype("float32")
    scores = rng.integers(0, 6, size=shape).astype("float32")
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    return labels, scores, weights


def values_of(metric):
    result = metric.result()
    return [
        float(x) for x in (result.values() if isinstance(result, dict) else [result])
    ]


class Counted(NDCG):
    """Counts how often Python runs the formula: once for each trace."""

    traces = 0

    def compute(self, lists, ranking):
        self.traces += 1
        return super().compute(lists, ranking)


def alone():
    metric = Counted(k=3, seed=1)
    return metric, metric


def grouped():
    metric = Counted(k=3, seed=1)
    others = [MeanReciprocalRank(seed=1), NDCG(k=2, shuffle_ties="average")]
    return RankingMetrics([metric, *others]), metric


def sparse():
    metric = Counted(k=3, seed=1, sparse_labels=True)
    return metric, metric


@pytest.mark.parametrize("make", [alone, grouped, sparse])
@pytest.mark.parametrize("way", [way for way in compiled.WAYS if "torch" not in way])
def test_one_trace_per_shape(way, make, rng):
    """TensorFlow is given an input signature, so that one trace does for all shapes.

    So the values of that trace are looked at too, for the shapes that it did not see.
    """
    compiled.skip_unless_here(way)
    metric, counted = make()
    eager, _ = make()
    update = compiled.WAYS[way](metric)
    traces = []
    for shape in [*SHAPES, *SHAPES, SHAPES[0]]:
        labels, scores, weights = batch_of(rng, shape)
        labels = labels[:, :2] if make is sparse else labels
        update(labels, scores, weights[:, :1])
        if way != "jax.jit":
            eager.update_state(labels, scores, weights[:, :1])
        traces.append(counted.traces)
    per_shape = [1, 2, 3] if way == "jax.jit" else [1, 1, 1]
    assert traces == [*per_shape, *[per_shape[-1]] * 4]
    if way != "jax.jit":
        assert values_of(metric) == pytest.approx(values_of(eager), rel=2e-6)


tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="how graphs share a trace"
)


def graph_of(metric, shape):
    """A graph of an update, which is called by its inputs."""
    import tensorflow as tf

    batch = [tf.TensorSpec(shape, "float32")] * 2
    return tf.function(metric.update_state).get_concrete_function(*batch)


@tensorflow_only
def test_graphs_share_a_trace(monkeypatch, rng):
    """Also those of metrics with other seeds."""
    traces = []
    compute = NDCG.compute

    def counting(self, *arguments):
        traces.append(self.seed)
        return compute(self, *arguments)

    labels = rng.integers(0, 5, size=(4, 23)).astype("float32")
    scores = np.zeros_like(labels)
    expected = []
    for seed in (1, 2, 3):
        eager = NDCG(k=3, seed=seed)
        eager.update_state(labels, scores)
        expected += values_of(eager)
    monkeypatch.setattr(NDCG, "compute", counting)
    found = []
    for seed in (1, 2, 3):
        metric = NDCG(k=3, seed=seed)
        graph_of(metric, labels.shape)(*map(ops.convert_to_tensor, (labels, scores)))
        found += values_of(metric)
    assert len(traces) == 1
    assert found == pytest.approx(expected, rel=2e-6)
    assert len(set(found)) == 3
    graph_of(NDCG(k=3), (4, 24))
    assert len(traces) == 2


@tensorflow_only
def test_a_trace_knows_no_metric_that_was_changed(rng):
    """A new shape is traced again, for the metric that asks."""
    labels, scores, _ = batch_of(rng, (6, 22))
    first, second, eager = (NDCG(k=3, seed=1) for _ in range(3))
    graph_of(first, (5, 22))
    first.k, first.empty_value = 1, 0.5
    graph_of(second, labels.shape)(*map(ops.convert_to_tensor, (labels, scores)))
    eager.update_state(labels, scores)
    assert values_of(second) == pytest.approx(values_of(eager), rel=2e-6)


@tensorflow_only
def test_code_of_a_user_is_traced_for_each_graph():
    """It may have changed."""
    metric = Counted(k=3)
    for _ in range(3):
        graph_of(metric, (4, 23))
    assert metric.traces == 3


@tensorflow_only
def test_a_shared_trace_keeps_no_graph():
    graphs = [weakref.ref(graph_of(NDCG(k=3), (4, n)).graph) for n in (30, 30, 31)]
    gc.collect()
    assert not any(graph() for graph in graphs)


def test_torch_compiles_once_per_shape(rng):
    """What was compiled for a shape does for all batches of it, once it was seen twice.

    Torch breaks the graph where a value decides, and compiles its parts. What it breaks
    anew for the second shape, it breaks for the first one too when that comes again.
    """
    compiled.skip_unless_here("torch.compile")
    import torch

    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    metric = NDCG(k=3)
    update = torch.compile(
        lambda *batch: metric.update_state(*batch), backend=count, dynamic=False
    )
    batches = [map(torch.as_tensor, batch_of(rng, shape)) for shape in SHAPES[:2]]
    batches = [list(batch) for batch in batches]
    compiled_graphs = []
    for batch in [*batches, *batches, *batches]:
        update(*batch)
        compiled_graphs.append(len(graphs))
    one, two, again, *later = compiled_graphs
    assert 0 < one < two <= 2 * one
    assert again - two < 0.1 * one
    assert later == [again] * 3


@pytest.mark.trains
def test_fit_traces_once_per_shape(rng, backend):
    """Keras runs a step with symbolic data first, then compiles one for each shape."""
    if backend == "torch":
        pytest.skip("Keras does not compile on torch unless told to")
    metric, counted = grouped()
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    # On JAX False would mean that nothing is compiled.
    model.compile("sgd", "mse", metrics=[metric], jit_compile=backend == "jax")
    x = rng.normal(size=(10, LIST_SIZE)).astype("float32")
    y = rng.integers(-1, 4, size=(10, LIST_SIZE)).astype("float32")
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    after_one = counted.traces
    model.fit(x, y, batch_size=4, epochs=3, verbose=0)
    assert counted.traces == after_one
    # One symbolic run, and one for each of the batch sizes, 4 and 2.
    assert after_one <= 3


@pytest.mark.optimized
@pytest.mark.parametrize("way", compiled.WAYS)
def test_functions_compile(way, rng):
    """All at once, which is quicker. On JAX each batch of a stack is under `vmap`."""
    compiled.skip_unless_here(way)
    stack = [batch_of(rng, (BATCH, LIST_SIZE)) for _ in range(2)]
    cases = with_cutoff(3, CASES_HERE)
    if way == "torch.compile":
        # It traces slowly: in test_accelerators.py all are one graph.
        cases = [case for case in cases if case.name == "map"]

    def values(labels, scores, weights):
        make = {"k": 3, "shuffle_ties": "average", "seed": 1, "sample_weight": weights}
        order = functional.rank(labels, scores, **make)
        alone = functional.ndcg(labels, scores, **make)
        formulas = [case.function(order, k=3, **case.arguments) for case in cases]
        return ops.stack([alone, *formulas])

    expected = [ops.convert_to_numpy(values(*batch)) for batch in stack]
    inputs = [
        ops.convert_to_tensor(np.stack(part)) for part in zip(*stack, strict=True)
    ]
    if way == "jax.jit":
        import jax

        found = jax.jit(jax.vmap(values))(*inputs)
    else:
        function = compiled.function(way, values)
        found = [
            ops.convert_to_numpy(function(*(x[i] for x in inputs))) for i in range(2)
        ]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.optimized
@jax_only
@pytest.mark.parametrize(
    ("k", "shuffle_ties", "sparse_labels"),
    [
        (3, True, False),
        (None, False, False),
        (None, "average", False),
        (3, "average", True),
        (None, True, True),
    ],
)
def test_vmap_over_batches(k, shuffle_ties, sparse_labels, rng):
    import jax

    arguments = {"k": k, "shuffle_ties": shuffle_ties, "sparse_labels": sparse_labels}
    stack = [batch_of(rng, (BATCH, LIST_SIZE))[:2] for _ in range(2)]
    if sparse_labels:
        stack = [(labels[:, :2], scores) for labels, scores in stack]
    labels, scores = (np.stack(part) for part in zip(*stack, strict=True))

    def ndcg(labels, scores):
        return functional.ndcg(labels, scores, seed=1, **arguments)

    found = jax.jit(jax.vmap(ndcg))(labels, scores)
    expected = [ndcg(*lists) for lists in stack]
    np.testing.assert_allclose(found, np.stack(expected), rtol=2e-6)


@pytest.mark.optimized
@jax_only
def test_vmap_over_single_lists_and_over_models(rng):
    import jax

    labels, scores, _ = batch_of(rng, (BATCH, LIST_SIZE))

    def ndcg(labels, scores):
        return functional.ndcg(labels, scores, k=3, shuffle_ties="average")

    by_list = jax.jit(jax.vmap(ndcg))(labels, scores)
    np.testing.assert_allclose(by_list[:, 0], ndcg(labels, scores), rtol=2e-6)
    models = np.stack([scores, -scores, scores[:, ::-1]])
    by_model = jax.jit(jax.vmap(ndcg, in_axes=(None, 0)))(labels, models)
    expected = np.stack([ndcg(labels, scores) for scores in models])
    np.testing.assert_allclose(by_model, expected, rtol=2e-6)


@pytest.mark.optimized
@jax_only
def test_scan_over_batches(rng):
    """An evaluation as one compiled loop."""
    import jax

    metric = RankingMetrics([NDCG(k=3, seed=1), RecallAtK(k=3, seed=1)])
    batches = [batch_of(rng, (BATCH, LIST_SIZE)) for _ in range(5)]
    stacked = tuple(np.stack(part) for part in zip(*batches, strict=True))

    @jax.jit
    def evaluated(variables, stacked):
        def step(variables, batch):
            return metric.stateless_update_state(variables, *batch), None

        variables, _ = jax.lax.scan(step, variables, stacked)
        return metric.stateless_result(variables)

    found = evaluated([v.value for v in metric.variables], stacked)
    for batch in batches:
        metric.update_state(*batch)
    for name, expected in metric.result().items():
        assert float(found[name]) == pytest.approx(float(expected), abs=2e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("shuffle_ties", [True, "average"], ids=str)
@pytest.mark.parametrize("sparse_labels", [False, True])
def test_an_order_lasts_longer_than_what_uses_it_first(
    sparse_labels, shuffle_ties, rng
):
    """Nothing that a compiled function computes of it is kept for the next one."""
    labels, scores, _ = batch_of(rng, (BATCH, LIST_SIZE))
    labels = labels[:, :2].astype("int32") if sparse_labels else labels
    order = functional.rank(
        labels, scores, shuffle_ties=shuffle_ties, seed=1, sparse_labels=sparse_labels
    )
    for way in filter(compiled.is_here, compiled.WAYS):
        for k in (3, 5):
            in_graph = compiled.function(
                way, lambda x, k=k: x + functional.ndcg(order, k=k)
            )
            found = in_graph(ops.zeros((BATCH,)))
            expected = ops.convert_to_numpy(functional.ndcg(order, k=k))
            np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=2e-6)


@pytest.mark.parametrize("shuffle_ties", [True, "average"])
def test_graphs_of_long_lists_are_no_larger(shuffle_ties):
    compiled.skip_unless_here("tf.function")
    import tensorflow as tf

    sizes = []
    for items in (10_000, 100_000):
        metric = NDCG(shuffle_ties=shuffle_ties)
        update = tf.function(metric.update_state)
        traced = update.get_concrete_function(*[tf.TensorSpec((None, items))] * 2)
        sizes.append(traced.graph.as_graph_def().ByteSize())
    assert sizes[1] < 1.1 * sizes[0]


def test_a_graph_that_no_function_surrounds(rng):
    """Nothing of it is kept for other code, in which it has no value."""
    compiled.skip_unless_here("tf.function")
    import tensorflow as tf

    # No other test asks for so many ranks.
    labels, scores, _ = batch_of(rng, (3, 77))
    scores += rng.random(scores.shape).astype("float32")

    def ndcg():
        return functional.ndcg(tf.constant(labels), tf.constant(scores))

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        found = session.run(ndcg())
    np.testing.assert_allclose(found, ndcg(), rtol=2e-6)
    np.testing.assert_allclose(found, tf.function(ndcg)(), rtol=2e-6)


@compiled.in_one_graph
@pytest.mark.trains
# Of the scores, which torch's compiler looks at between two of its graphs.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_fit_compiled_by_torch_breaks_no_graph_of_ours(rng, backend, monkeypatch):
    """The short last batch compiles once more, and then there is nothing new."""
    if backend != "torch":
        pytest.skip("about torch.compile")
    import torch
    from torch._dynamo.utils import counters

    # What is compiled is counted, for which it need not be compiled well.
    quick = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", quick)
    inputs = keras.Input((7,))
    model = keras.Model(inputs, keras.layers.Dense(7)(inputs))
    model.compile("sgd", "mse", metrics=[NDCG(k=5)], jit_compile=True)
    x = rng.normal(size=(20, 7)).astype("float32")
    y = rng.integers(0, 3, size=(20, 7)).astype("float32")
    torch.compiler.reset()
    counters.clear()
    graphs = []
    for _ in range(3):
        model.fit(x, y, batch_size=8, epochs=1, verbose=0)
        graphs.append(counters["stats"]["unique_graphs"])
    reasons = [str(reason) for reason in counters["graph_break"]]
    assert not any("keras_rank" in reason for reason in reasons), reasons
    assert 0 < graphs[0] <= 12
    assert graphs[2] == graphs[1]
