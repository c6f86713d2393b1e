"""Sparse targets in a catalog: values equal those of labels for every item."""

import itertools
import re

import keras
import numpy as np
import pytest
from arrays import compute_values
from hypothesis import given
from hypothesis import strategies as st
from registry import IS_SLOW
from strategies import BATCH, LIST_SIZE, cutoffs, ties
from targets import BINARY_SPARSE_CASES
from test_code_paths import LEVELS, draw_scores, sparse_batch

from keras_rank import functional, metrics

BACKEND = keras.backend.backend()


def one_hot(ids, items=LIST_SIZE):
    labels = np.zeros((len(ids), items), "float32")
    for row, targets in enumerate(ids):
        labels[row, targets[targets >= 0]] = 1.0
    return labels


@pytest.mark.compiles_long
@pytest.mark.filterwarnings("ignore:.* lists have no relevant item")
@pytest.mark.parametrize("case", BINARY_SPARSE_CASES, ids=str)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=cutoffs,
    shuffle_ties=ties,
    empty_weight=st.sampled_from(["average", "own"]),
    weighted=st.booleans(),
)
def test_sparse_equals_dense(case, seed, k, shuffle_ties, empty_weight, weighted):
    rng = np.random.default_rng(seed)
    # The shape is that of other tests, so that code is compiled once.
    ids, scores = (x[:BATCH] for x in sparse_batch(rng, LIST_SIZE, rng.choice(LEVELS)))
    ids[rng.random(ids.shape) < rng.choice([0.0, 0.4])] = -1
    weights = rng.choice([0.0, 0.5, 2.0], size=BATCH).astype("float32")
    arguments = {"k": k, "shuffle_ties": shuffle_ties}
    expected = compute_values(case.values, one_hot(ids), scores, **arguments)
    actual = compute_values(case.values, ids, scores, sparse_labels=True, **arguments)
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)
    arguments["empty_weight"] = empty_weight
    dense, sparse = case.make(**arguments), case.make(sparse_labels=True, **arguments)
    for part in (slice(0, 4), slice(4, BATCH)):
        inputs = scores[part], weights[part] if weighted else None
        dense.update_state(one_hot(ids)[part], *inputs)
        sparse.update_state(ids[part], *inputs)
    assert float(sparse.result()) == pytest.approx(float(dense.result()), abs=2e-6)


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    ("k", "shuffle_ties"),
    # Each combination is compiled. Slow backends skip two of them.
    [(5, True), (None, False), (5, "average"), (None, "average")]
    + [(5, False), (None, True)] * (not IS_SLOW),
)
def test_many_targets(k, shuffle_ties, rng):
    """Lists of many targets are sorted. Lists of few targets are compared."""
    for levels in (4, 50, 10**6):
        scores = draw_scores(rng, (8, 300), levels)
        ids = np.stack([rng.permutation(300)[:100] for _ in scores])
        ids[0, 2:], ids[1, :50] = -1, ids[1, 50:]
        assert_sparse_equals_dense(ids, scores, k, shuffle_ties)


def assert_sparse_equals_dense(ids, scores, k, shuffle_ties):
    """Compares functions of ranked targets with those of ranked items."""
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    sparse = functional.rank(ids, scores, sparse_labels=True, **arguments)
    dense = functional.rank(one_hot(ids, scores.shape[1]), scores, **arguments)
    for case, cutoff in itertools.product(BINARY_SPARSE_CASES, {3, k}):
        options = {"k": cutoff, **case.arguments}
        actual, expected = (
            compute_values(case.function, x, **options) for x in (sparse, dense)
        )
        np.testing.assert_allclose(actual, expected, atol=4e-6, err_msg=case.name)


@pytest.mark.skipif(BACKEND != "jax", reason="what is compiled is counted")
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_programs_do_not_grow_with_the_targets(shuffle_ties):
    import jax

    metric = metrics.NDCG(sparse_labels=True, seed=1, shuffle_ties=shuffle_ties)
    variables = [variable.value for variable in metric.variables]

    def size(targets):
        batch = np.zeros((4, targets), "int32"), np.zeros((4, 2000), "float32")
        program = jax.make_jaxpr(metric.stateless_update_state)(variables, *batch)
        return len(str(program).splitlines())

    assert size(800) < 1.1 * size(100)


def test_ids_of_0_and_1_for_all_items():
    """Such ids are not taken for labels of items, as no id is repeated."""
    masked = {"labels": [[1, 0, 0]], "mask": [[1, 1, 0]]}
    for ids, items in (([[0, 1]], 2), ([[1, 0, -1]], 3), (masked, 3)):
        scores = [[0.9, 0.8, 0.1][:items]]
        values = functional.recall(ids, scores, k=1, sparse_labels=True)
        assert float(values[0]) == 0.5


SHAPES = "or (batch, targets) and `y_pred` the shape (batch, items). Received: "
NEEDS_ALL = "`sparse_labels` should be False for a metric that needs the labels of all "
NEEDS_ALL += "items. Received: sparse_labels=True"
ORDER = functional.rank([0], [[0.1, 0.2]], sparse_labels=True)


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (functional.recall, ([0, 1], [[1, 2]]), "ids of shape (2, 1), y_pred.shape=(1"),
        (functional.recall, ([0], [1, 2]), f"{SHAPES}ids of shape (1, 1), y_pred.shap"),
        (functional.bpref, (ORDER,), NEEDS_ALL),
        (functional.fall_out, ([0], [[0.1, 0.2]]), NEEDS_ALL),
        (metrics.BPref, (), NEEDS_ALL),
    ],
)
def test_wrong_calls_are_errors(call, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(*given, sparse_labels=True)
