"""Compiled everywhere: the values of eager code, and no more traces than shapes."""

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
# Which traces slowly: `test_code_paths.py` has few functions, `test_accelerators.py` updates.
WAYS_BUT_TORCH = [way for way in compiled.COMPILERS if "torch" not in way]
SHAPES = [(4, 6), (2, 6), (4, 5)]

pytestmark = pytest.mark.programs


def batches_of(rng, size=LIST_SIZE):
    """Labels, scores and weights, of few ties and of many."""
    return [dense_batch(rng, size, levels) for levels in LEVELS]


def values_of(metric):
    return [float(x) for x in keras.tree.flatten(metric.result())]


class Counted(NDCG):
    """Counts how often Python runs the formula: once for each trace."""

    traces = 0

    def compute(self, lists, ranking):
        self.traces += 1
        return super().compute(lists, ranking)


def alone(**arguments):
    metric = Counted(k=3, seed=1, **arguments)
    return metric, metric


def grouped():
    _, metric = alone()
    others = [MeanReciprocalRank(seed=1), NDCG(k=2, shuffle_ties="average")]
    group = RankingMetrics([metric, *others])
    return group, group.members[0]


def sparse():
    return alone(sparse_labels=True)


@pytest.mark.parametrize("make", [alone, grouped, sparse])
@pytest.mark.parametrize("way", WAYS_BUT_TORCH)
def test_one_trace_per_shape(way, make, rng):
    """TensorFlow is given an input signature, so that one trace does for all shapes.

    So the values of that trace are looked at too, for the shapes that it did not see.
    """
    metric, counted = make()
    eager, _ = make()
    update = compiled.COMPILERS[way](metric)
    traces = []
    for lists, items in [*SHAPES, *SHAPES, SHAPES[0]]:
        labels, scores, weights = (x[:lists] for x in dense_batch(rng, items, 4))
        labels = labels[:, :2] if make is sparse else labels
        update(labels, scores, weights[:, :1])
        eager.update_state(labels, scores, weights[:, :1])
        traces.append(counted.traces)
    per_shape = [1, 2, 3] if way == "jax.jit" else [1, 1, 1]
    assert traces == [*per_shape, *[per_shape[-1]] * 4]
    assert values_of(metric) == pytest.approx(values_of(eager), rel=2e-6)


def graph_of(metric, shape):
    """A graph of an update, which is called by its inputs."""
    import tensorflow as tf

    batch = [tf.TensorSpec(shape, "float32")] * 2
    return tf.function(metric.update_state).get_concrete_function(*batch)


def value_in_graph(metric, *batch):
    graph_of(metric, batch[0].shape)(*map(ops.convert_to_tensor, batch))
    return float(metric.result())


@tensorflow_only
def test_graphs_share_a_trace(monkeypatch, rng):
    """Also those of metrics with other seeds."""
    traces, compute, seeds = [], NDCG.compute, (1, 2, 3)

    def counting(self, *arguments):
        traces.append(self.seed)
        return compute(self, *arguments)

    labels = rng.integers(0, 5, size=(4, 23)).astype("float32")
    batch = labels, np.zeros_like(labels)
    expected = [float(NDCG(k=3, seed=seed)(*batch)) for seed in seeds]
    monkeypatch.setattr(NDCG, "compute", counting)
    found = [value_in_graph(NDCG(k=3, seed=seed), *batch) for seed in seeds]
    assert len(traces) == 1
    assert found == pytest.approx(expected, rel=2e-6)
    assert len(set(found)) == 3
    graph_of(NDCG(k=3), (4, 24))
    assert len(traces) == 2


@tensorflow_only
def test_a_trace_knows_no_metric_that_was_changed(rng):
    """A new shape is traced again, for the metric that asks."""
    batch = dense_batch(rng, 22, 4)[:2]
    first, second, eager = (NDCG(k=3, seed=1) for _ in range(3))
    graph_of(first, (5, 22))
    first.k, first.empty_value = 1, 0.5
    expected = pytest.approx(float(eager(*batch)), rel=2e-6)
    assert value_in_graph(second, *batch) == expected


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


def model_and_data(rng, lists, metric, **arguments):
    inputs = keras.Input((LIST_SIZE,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    model.compile("sgd", "mse", metrics=[metric], **arguments)
    features = rng.normal(size=(lists, LIST_SIZE)).astype("float32")
    return model, features, rng.integers(-1, 4, features.shape).astype("float32")


@pytest.mark.trains
def test_fit_traces_once_per_shape(rng, backend):
    """Keras runs a step with symbolic data first, then compiles one for each shape."""
    if backend == "torch":
        pytest.skip("Keras does not compile on torch unless told to")
    metric, counted = grouped()
    # On JAX False would mean that nothing is compiled.
    model, *data = model_and_data(rng, 10, metric, jit_compile=backend == "jax")
    model.fit(*data, batch_size=4, epochs=1, verbose=0)
    after_one = counted.traces
    model.fit(*data, batch_size=4, epochs=3, verbose=0)
    assert counted.traces == after_one
    # One symbolic run, and one for each of the batch sizes, 4 and 2.
    assert after_one <= 3


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("way", WAYS_BUT_TORCH)
def test_functions_compile(way, rng):
    """All at once, which is quicker. On JAX each batch of a stack is under `vmap`."""
    cases = cases_for_cutoff(3, BACKEND_CASES)

    def values(labels, scores, weights):
        make = {"k": 3, "shuffle_ties": "average", "seed": 1, "sample_weight": weights}
        order = functional.rank(labels, scores, **make)
        alone = functional.ndcg(labels, scores, **make)
        formulas = [case.function(order, k=3, **case.arguments) for case in cases]
        return ops.stack([alone, *formulas])

    assert_compiled_equals_eager(way, values, batches_of(rng))


def assert_compiled_equals_eager(way, values, batches):
    expected = [array(values(*batch)) for batch in batches]
    if way == "jax.jit":
        import jax

        stack = [np.stack(part) for part in zip(*batches, strict=True)]
        found = jax.jit(jax.vmap(values))(*stack)
    else:
        function = compiled.compile_function(way, values)
        found = [array(function(*map(ops.convert_to_tensor, x))) for x in batches]
    assert_close(np.asarray(found), expected, rtol=2e-6, atol=2e-6)


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

    batches = [batch[:2] for batch in batches_of(rng)]
    assert_compiled_equals_eager("jax.jit", ndcg, batches)


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
def test_an_order_lasts_longer_than_what_uses_it_first(
    sparse_labels, shuffle_ties, rng
):
    """Nothing that a compiled function computes of it is kept for the next one."""
    make = {"shuffle_ties": shuffle_ties, "seed": 1, "sparse_labels": sparse_labels}
    labels, scores, _ = dense_batch(rng, LIST_SIZE, 4)
    labels = labels[:, :2].astype("int32") if sparse_labels else labels
    order = functional.rank(labels, scores, **make)
    for way in compiled.COMPILERS:
        for k in (3, 5):

            def value(x, k=k):
                return x + functional.ndcg(order, k=k)

            zeros = ops.zeros((LISTS,))
            found = compiled.compile_function(way, value)(zeros)
            assert_close(found, value(zeros), rtol=2e-6)


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
def test_a_graph_that_no_function_surrounds():
    """It compares tensors by identity, so that no items would be tied."""
    import tensorflow as tf

    for call in (functional.ndcg, NDCG().update_state):
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="that no func"):
            call(tf.constant([[0.0, 1.0]]), tf.zeros((1, 2)))


@compiled.requires_full_graph
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
