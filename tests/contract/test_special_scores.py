"""Special scores: NaN of both signs, infinities, subnormals, both zeros and views.

Each size of rows has its own sorting algorithm, in which any of these scores could hide
other items. `test_code_paths.py` compares compiled code with eager code.
"""

import functools

import keras
import numpy as np
import pytest
from arrays import array, assert_close, assert_equal
from keras import ops
from registry import FIRST_CASES, IS_SLOW
from test_code_paths import dense_values, sparse_values

from keras_rank import catalogue, functional, metrics

BACKEND = keras.backend.backend()
LISTS, ITEMS_RELEVANT = 3, 5
SIZES = [37, 600, 5000]
ORDERS = [(5, True), (5, "average"), (None, False)][: 1 if IS_SLOW else 3]
SHARES = [0.01, 0.7]

# The result of 0 / 0 or inf - inf on x86, while NumPy's NaN has no sign.
MINUS_NAN = np.copysign(np.float32(np.nan), np.float32(-1.0))
SUBNORMAL = np.float32(1e-40)
KINDS = {
    "nan": [np.nan],
    "minus nan": [MINUS_NAN],
    "infinite": [np.inf, -np.inf],
    "denormal": [SUBNORMAL, -SUBNORMAL, 0.0, -0.0],
    "all": [np.nan, MINUS_NAN, np.inf, -np.inf, SUBNORMAL, -SUBNORMAL, 0.0, -0.0],
}


def draw_scores(kind, share, shape, rng):
    """Draws scores with a share of special values.

    If most scores are special, subnormals are the highest scores.
    """
    scores = rng.normal(size=shape).astype("float32")
    scores = -np.abs(scores) if share > 0.5 else scores
    odd = rng.choice(np.array(KINDS[kind], "float32"), size=shape)
    return np.where(rng.random(shape) < share, odd, scores)


def plain_scores(scores):
    """Returns the equivalent plain scores: NaN becomes `-inf`, and subnormals 0."""
    scores = np.where(np.isnan(scores), -np.inf, scores)
    return np.where(np.abs(scores) < np.finfo("float32").tiny, 0.0, scores)


def draw_labels(scores, rng):
    """Draws labels of five items: three with high scores, and any two others."""
    labels = np.zeros_like(scores)
    for row, best in zip(
        labels, np.argsort(-plain_scores(scores), axis=1), strict=True
    ):
        high, others = best[:8], best[8:]
        relevant = [*rng.permutation(high)[:3], *rng.permutation(others)[:2]]
        row[relevant] = rng.integers(1, 5, ITEMS_RELEVANT)
    return labels


def graded_ids(labels):
    """Returns labels as graded targets."""
    ids = np.argsort(-labels, axis=1, kind="stable")[:, :ITEMS_RELEVANT]
    return {"ids": ids, "labels": np.take_along_axis(labels, ids, axis=1)}


def all_values(y_true, scores, sparse_labels, k, shuffle_ties):
    """Returns the values of all metrics."""
    options = {"shuffle_ties": shuffle_ties, "seed": 1}
    dense = functools.partial(dense_values, weights=None)
    values = sparse_values if sparse_labels else dense
    return array(ops.stack(values(y_true, scores, cases=FIRST_CASES, k=k, **options)))


# Slow backends, which compile single operations, test one share of each kind.
each_kind = pytest.mark.parametrize(
    ("kind", "share"),
    [
        (kind, share)
        for kind in KINDS
        for share in SHARES
        if not IS_SLOW or (share > 0.5) == (kind in ("denormal", "infinite"))
    ],
)


@pytest.mark.compiles_long
@pytest.mark.parametrize("sparse_labels", [False, True])
@each_kind
@pytest.mark.parametrize("size", SIZES)
def test_special_scores_count_as_plain_scores(size, kind, share, sparse_labels, rng):
    scores = draw_scores(kind, share, (LISTS, size), rng)
    labels = draw_labels(scores, rng)
    y_true = graded_ids(labels) if sparse_labels else labels
    for order in ORDERS:
        actual = all_values(y_true, scores, sparse_labels, *order)
        expected = all_values(y_true, plain_scores(scores), sparse_labels, *order)
        np.testing.assert_allclose(actual, expected, atol=2e-6)


def score_by_feature(queries, candidates):
    """Returns the only feature of the candidates as scores, with all bits."""
    return ops.repeat(ops.transpose(candidates), queries.shape[0], axis=0)


@pytest.mark.compiles_long
@each_kind
def test_catalogues_with_special_scores(kind, share, rng):
    """The top half of the items contains all retrieved items."""
    scores = draw_scores(kind, share, (1, 600), rng)
    targets = graded_ids(draw_labels(scores, rng))
    queries, k = np.ones((1, 1), "float32"), 300
    expected = plain_scores(scores)[0]
    in_order = np.argsort(-expected, kind="stable")[:k]
    number = np.sum(expected[in_order] > -np.inf)
    # A user's function is compiled at each call.
    for score in ["dot"] if IS_SLOW else ["dot", score_by_feature]:
        blocks = {"score": score, "block_size": 512}
        actual = catalogue.top_k(queries, scores.T, k, **blocks)
        best, ids = (array(x)[0] for x in actual)
        assert_equal(ids[:number], in_order[:number])
        assert_equal(best[:number], expected[in_order[:number]])
        assert np.all(ids[number:] == -1)
        assert np.all(best[number:] == -np.inf)
        order = catalogue.rank(targets, queries, scores.T, shuffle_ties=False, **blocks)
        for function in (functional.ndcg, functional.pairwise_accuracy):
            options = {"sparse_labels": True, "shuffle_ties": False}
            of_matrix = function(targets, expected[None], **options)
            assert_close(function(order), of_matrix, atol=2e-6)


def make_views(x):
    """Yields views of equal numbers with other memory layouts."""
    yield "transposed", ops.transpose(ops.convert_to_tensor(np.ascontiguousarray(x.T)))
    yield "every other", ops.convert_to_tensor(np.repeat(x, 2, axis=1))[:, ::2]
    yield "columns of more", ops.convert_to_tensor(np.pad(x, [(0, 0), (3, 2)]))[:, 3:-2]
    if BACKEND == "numpy":
        yield "backwards", x[:, ::-1].copy()[:, ::-1]
        yield "big-endian", x.astype(x.dtype.newbyteorder(">"))


@pytest.mark.slow
@pytest.mark.parametrize("sparse_labels", [False, True])
@pytest.mark.parametrize("size", SIZES[1:])
def test_views_change_no_value(size, sparse_labels, rng):
    scores = np.round(rng.normal(size=(LISTS, size)), 2).astype("float32")
    labels = draw_labels(scores, rng)
    y_true = graded_ids(labels) if sparse_labels else labels
    for order in ORDERS:
        expected = all_values(y_true, scores, sparse_labels, *order)
        for layout, view in make_views(scores):
            actual = all_values(y_true, view, sparse_labels, *order)
            np.testing.assert_array_equal(actual, expected, err_msg=layout)


@pytest.mark.skipif(BACKEND != "torch", reason="only torch has autocast")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_changes_no_value(dtype, rng):
    """Autocast would multiply in half precision, in score functions of users too."""
    import torch

    def values():
        yield functional.ndcg(labels, scores, k=5)
        metric = metrics.RankingMetrics([metrics.NDCG(k=5), metrics.BPref()])
        metric.update_state(labels, scores)
        yield from metric.result().values()
        yield metric.standard_error()["ndcg_at_5"]
        for score in ("dot", "cosine", lambda q, c: q @ c.T):
            yield from catalogue.top_k(queries, candidates, 5, score=score)
            order = catalogue.rank(targets, queries, candidates, score=score)
            yield functional.reciprocal_rank(order)
            order = catalogue.rank(many, queries, candidates, score=score)
            yield functional.average_precision(order)

    shape = (20, 100)
    labels = rng.integers(0, 5, shape)
    scores, queries, candidates = (
        ops.convert_to_tensor(rng.normal(size=size).astype("float32"))
        for size in (shape, (20, 16), (300, 16))
    )
    # Each target has rank 5, just above others.
    targets = torch.topk(queries @ candidates.T, 5).indices[:, 4]
    many = torch.topk(queries @ candidates.T, 40).indices
    expected = list(values())
    device = expected[0].device.type
    with torch.autocast(device, dtype=getattr(torch, dtype)):
        actual = list(values())
    for value, other in zip(actual, expected, strict=True):
        assert value.dtype == other.dtype
        np.testing.assert_array_equal(value.cpu(), other.cpu())
