"""Compiled functions and updates: the values of eager code, and one trace per shape."""

import functools
import gc
import weakref

import compiled
import keras
import numpy as np
import pytest
from arrays import array, assert_close
from keras import ops
from registry import BACKEND_CASES, cases_for_cutoff
from strategies import LIST_SIZE
from test_code_paths import LEVELS, LISTS, dense_batch

from keras_rank import functional
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

jax_only = pytest.mark.skipif(compiled.BACKEND != "jax", reason="a test of JAX")
tensorflow_only = pytest.mark.skipif(
    compiled.BACKEND != "tensorflow", reason="a test of graphs"
)
# Torch, which traces slowly, is left out: `test_code_paths.py` compiles a few functions
# with it, and `test_accelerators.py` updates.
QUICK_COMPILERS = [name for name in compiled.COMPILERS if "torch" not in name]
SHAPES = [(4, 6), (2, 6), (4, 5)]

pytestmark = pytest.mark.programs


def draw_batches(rng, size=LIST_SIZE):
    """Draws labels, scores and weights with few ties and with many."""
    return [dense_batch(rng, size, levels) for levels in LEVELS]


def result_values(metric):
    return [float(x) for x in keras.tree.flatten(metric.result())]


class Counted(NDCG):
    """A metric that counts how often Python runs its formula: once for each trace."""

    traces = 0

    def compute(self, lists, ranking):
        self.traces += 1
        return super().compute(lists, ranking)


def make_single(**arguments):
    metric = Counted(k=3, seed=1, **arguments)
    return metric, metric


def make_group():
    _, metric = make_single()
    others = [MeanReciprocalRank(seed=1), NDCG(k=2, shuffle_ties="average")]
    group = RankingMetrics([metric, *others])
    return group, group.members[0]


def make_sparse():
    return make_single(sparse_labels=True)


@pytest.mark.compiles_long
@pytest.mark.parametrize("make", [make_single, make_group, make_sparse])
@pytest.mark.parametrize("compiler", QUICK_COMPILERS)
def test_one_trace_per_shape(compiler, make, rng):
    """TensorFlow gets an input signature, so that one trace serves all shapes.

    The values are compared too, as that trace has not seen the other shapes.
    """
    metric, counted = make()
    eager, _ = make()
    update = compiled.COMPILERS[compiler](metric)
    traces = []
    for lists, items in [*SHAPES, *SHAPES, SHAPES[0]]:
        labels, scores, weights = (x[:lists] for x in dense_batch(rng, items, 4))
        labels = labels[:, :2] if make is make_sparse else labels
        update(labels, scores, weights[:, :1])
        eager.update_state(labels, scores, weights[:, :1])
        traces.append(counted.traces)
    per_shape = [1, 2, 3] if compiler == "jax.jit" else [1, 1, 1]
    assert traces == [*per_shape, *[per_shape[-1]] * 4]
    assert result_values(metric) == pytest.approx(result_values(eager), rel=2e-6)


def make_graph(metric, shape):
    """Returns a graph of an update, which is called with its inputs."""
    import tensorflow as tf

    batch = [tf.TensorSpec(shape, "float32")] * 2
    return tf.function(metric.update_state).get_concrete_function(*batch)


def value_in_graph(metric, *batch):
    make_graph(metric, batch[0].shape)(*map(ops.convert_to_tensor, batch))
    return float(metric.result())


@tensorflow_only
def test_graphs_share_a_trace(monkeypatch, rng):
    """Metrics with different seeds share a trace too."""
    traces, compute, seeds = [], NDCG.compute, (1, 2, 3)

    def counting(self, *arguments):
        traces.append(self.seed)
        return compute(self, *arguments)

    labels = rng.integers(0, 5, size=(4, 23)).astype("float32")
    batch = labels, np.zeros_like(labels)
    expected = [float(NDCG(k=3, seed=seed)(*batch)) for seed in seeds]
    monkeypatch.setattr(NDCG, "compute", counting)
    actual = [value_in_graph(NDCG(k=3, seed=seed), *batch) for seed in seeds]
    assert len(traces) == 1
    assert actual == pytest.approx(expected, rel=2e-6)
    assert len(set(actual)) == 3
    make_graph(NDCG(k=3), (4, 24))
    assert len(traces) == 2


@tensorflow_only
def test_changed_metrics_do_not_share_a_trace(rng):
    """A new shape is traced for the metric that is called, not for the first one."""
    batch = dense_batch(rng, 22, 4)[:2]
    first, second, eager = (NDCG(k=3, seed=1) for _ in range(3))
    make_graph(first, (5, 22))
    first.k, first.empty_value = 1, 0.5
    expected = pytest.approx(float(eager(*batch)), rel=2e-6)
    assert value_in_graph(second, *batch) == expected


@tensorflow_only
def test_user_code_is_traced_for_each_graph():
    """The code of a user may have changed since the last trace."""
    metric = Counted(k=3)
    for _ in range(3):
        make_graph(metric, (4, 23))
    assert metric.traces == 3


@tensorflow_only
def test_a_shared_trace_keeps_no_graph():
    graphs = [weakref.ref(make_graph(NDCG(k=3), (4, n)).graph) for n in (30, 30, 31)]
    gc.collect()
    assert not any(graph() for graph in graphs)


def model_and_data(rng, lists, metric, **arguments):
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    model.compile("sgd", "mse", metrics=[metric], **arguments)
    features = rng.normal(size=(lists, LIST_SIZE)).astype("float32")
    return model, features, rng.integers(-1, 4, features.shape).astype("float32")


@pytest.mark.compiles_long
@pytest.mark.trains
def test_fit_traces_once_per_shape(rng, backend):
    """Keras first runs a step with symbolic data, then compiles one for each shape."""
    if backend == "torch":
        pytest.skip("Keras does not compile on torch by default")
    metric, counted = make_group()
    # On JAX, `jit_compile=False` would compile nothing.
    model, *data = model_and_data(rng, 10, metric, jit_compile=backend == "jax")
    model.fit(*data, batch_size=4, epochs=1, verbose=0)
    after_one = counted.traces
    model.fit(*data, batch_size=4, epochs=3, verbose=0)
    assert counted.traces == after_one
    # One symbolic run, and one for each of the batch sizes, 4 and 2.
    assert after_one <= 3


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("compiler", QUICK_COMPILERS)
def test_functions_compile(compiler, rng):
    """Compiles all functions at once, which is faster. On JAX, batches are mapped."""
    cases = cases_for_cutoff(3, BACKEND_CASES)

    def values(labels, scores, weights):
        make = {"k": 3, "shuffle_ties": "average", "seed": 1, "sample_weight": weights}
        order = functional.rank(labels, scores, **make)
        make_single = functional.ndcg(labels, scores, **make)
        formulas = [case.function(order, k=3, **case.arguments) for case in cases]
        return ops.stack([make_single, *formulas])

    assert_compiled_equals_eager(compiler, values, draw_batches(rng))


def assert_compiled_equals_eager(compiler, values, batches):
    expected = [array(values(*batch)) for batch in batches]
    if compiler == "jax.jit":
        import jax

        stack = [np.stack(part) for part in zip(*batches, strict=True)]
        actual = jax.jit(jax.vmap(values))(*stack)
    else:
        function = compiled.compile_function(compiler, values)
        actual = [array(function(*map(ops.convert_to_tensor, x))) for x in batches]
    assert_close(np.asarray(actual), expected, rtol=2e-6, atol=2e-6)


MAPPED = [(3, True, False), (None, False, False), (None, "average", False)]
MAPPED += [(3, "average", True), (None, True, True)]


@pytest.mark.optimized
@jax_only
@pytest.mark.parametrize(("k", "shuffle_ties", "sparse_labels"), MAPPED)
def test_vmap_over_batches(k, shuffle_ties, sparse_labels, rng):
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "sparse_labels": sparse_labels}

    def ndcg(labels, scores):
        labels = labels[:, :2] if sparse_labels else labels
        return functional.ndcg(labels, scores, seed=1, **arguments)

    batches = [batch[:2] for batch in draw_batches(rng)]
    assert_compiled_equals_eager("jax.jit", ndcg, batches)


@pytest.mark.compiles_long
@pytest.mark.optimized
@jax_only
def test_vmap_over_single_lists_and_over_models(rng):
    import jax

    labels, scores, _ = dense_batch(rng, LIST_SIZE, 4)
    ndcg = functools.partial(functional.ndcg, k=3, shuffle_ties="average")
    by_list = jax.jit(jax.vmap(ndcg))(labels, scores)
    np.testing.assert_allclose(by_list[:, 0], ndcg(labels, scores), rtol=2e-6)
    models = np.stack([scores, -scores, scores[:, ::-1]])
    by_model = jax.jit(jax.vmap(ndcg, in_axes=(None, 0)))(labels, models)
    expected = np.stack([ndcg(labels, scores) for scores in models])
    np.testing.assert_allclose(by_model, expected, rtol=2e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("shuffle_ties", [True, "average"], ids=str)
@pytest.mark.parametrize("sparse_labels", [False, True])
def test_ranked_lists_outlive_compiled_functions(sparse_labels, shuffle_ties, rng):
    """Ranked lists don't cache tensors of a compiled function for the next one."""
    make = {"shuffle_ties": shuffle_ties, "seed": 1, "sparse_labels": sparse_labels}
    labels, scores, _ = dense_batch(rng, LIST_SIZE, 4)
    labels = labels[:, :2].astype("int32") if sparse_labels else labels
    order = functional.rank(labels, scores, **make)
    for compiler in compiled.COMPILERS:
        for k in (3, 5):

            def value(x, k=k):
                return x + functional.ndcg(order, k=k)

            zeros = ops.zeros((LISTS,))
            actual = compiled.compile_function(compiler, value)(zeros)
            assert_close(actual, value(zeros), rtol=2e-6)


@tensorflow_only
@pytest.mark.parametrize("shuffle_ties", [True, "average"])
def test_graphs_of_long_lists_are_no_larger(shuffle_ties):
    import tensorflow as tf

    sizes = []
    for items in (10_000, 100_000):
        metric = NDCG(shuffle_ties=shuffle_ties)
        update = tf.function(metric.update_state)
        traced = update.get_concrete_function(*[tf.TensorSpec((None, items))] * 2)
        sizes.append(traced.graph.as_graph_def().ByteSize())
    assert sizes[1] < 1.1 * sizes[0]


@tensorflow_only
def test_graphs_without_a_function_are_errors():
    """Graphs outside of functions compare tensors by identity: no items would tie."""
    import tensorflow as tf

    for call in (functional.ndcg, NDCG().update_state):
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="that no func"):
            call(tf.constant([[0.0, 1.0]]), tf.zeros((1, 2)))


@compiled.requires_full_graph
@pytest.mark.trains
# torch's compiler reads this attribute of the scores between two of its graphs.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_fit_compiled_by_torch_has_no_graph_breaks(rng, backend, monkeypatch):
    """The short last batch is compiled too. Later epochs compile nothing."""
    if backend != "torch":
        pytest.skip("about torch.compile")
    import torch
    from torch._dynamo.utils import counters

    # Graphs are only counted, so they need not be compiled well.
    quick = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", quick)
    model, *data = model_and_data(rng, 20, NDCG(k=5), jit_compile=True)
    torch.compiler.reset()
    counters.clear()
    graphs = []
    for _ in range(3):
        model.fit(*data, batch_size=8, epochs=1, verbose=0)
        graphs.append(counters["stats"]["unique_graphs"])
    reasons = [str(reason) for reason in counters["graph_break"]]
    assert not any("keras_rank" in reason for reason in reasons), reasons
    assert 0 < graphs[0] <= 12
    assert graphs[2] == graphs[1]
