"""NaN of both signs, infinities, denormal numbers, both zeros, views and autocast.

Rows of each size are ordered in a way of their own, in each of which any of these could
hide other items. That compiled code has the same numbers, `test_code_paths.py` says.
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

# As 0 / 0 or inf - inf make it on x86, while that of NumPy has no sign.
MINUS_NAN = np.copysign(np.float32(np.nan), np.float32(-1.0))
DENORMAL = np.float32(1e-40)
KINDS = {
    "nan": [np.nan],
    "minus nan": [MINUS_NAN],
    "infinite": [np.inf, -np.inf],
    "denormal": [DENORMAL, -DENORMAL, 0.0, -0.0],
    "all": [np.nan, MINUS_NAN, np.inf, -np.inf, DENORMAL, -DENORMAL, 0.0, -0.0],
}


def scores_of(kind, share, shape, rng):
    """Scores of which a share is odd. If it is most, denormal ones are the highest."""
    scores = rng.normal(size=shape).astype("float32")
    scores = -np.abs(scores) if share > 0.5 else scores
    odd = rng.choice(np.array(KINDS[kind], "float32"), size=shape)
    return np.where(rng.random(shape) < share, odd, scores)


def meant(scores):
    """What stands for itself: NaN is not retrieved, and a denormal number is 0."""
    scores = np.where(np.isnan(scores), -np.inf, scores)
    return np.where(np.abs(scores) < np.finfo("float32").tiny, 0.0, scores)


def labels_for(scores, rng):
    """Labels of five items: three with high scores, and two of any."""
    labels = np.zeros_like(scores)
    for row, best in zip(labels, np.argsort(-meant(scores), axis=1), strict=True):
        high, others = best[:8], best[8:]
        relevant = [*rng.permutation(high)[:3], *rng.permutation(others)[:2]]
        row[relevant] = rng.integers(1, 5, ITEMS_RELEVANT)
    return labels


def graded_ids(labels):
    """The same labels as those of targets among all items."""
    ids = np.argsort(-labels, axis=1, kind="stable")[:, :ITEMS_RELEVANT]
    return {"ids": ids, "labels": np.take_along_axis(labels, ids, axis=1)}


def all_values(y_true, scores, sparse_labels, k, shuffle_ties):
    """The values of all metrics."""
    how = {"shuffle_ties": shuffle_ties, "seed": 1}
    dense = functools.partial(dense_values, weights=None)
    values = sparse_values if sparse_labels else dense
    return array(ops.stack(values(y_true, scores, cases=FIRST_CASES, k=k, **how)))


# Where operations are compiled one by one, one share of each kind.
some_kinds = pytest.mark.parametrize(
    ("kind", "share"),
    [
        (kind, share)
        for kind in KINDS
        for share in SHARES
        if not IS_SLOW or (share > 0.5) == (kind in ("denormal", "infinite"))
    ],
)


@pytest.mark.parametrize("sparse_labels", [False, True])
@some_kinds
@pytest.mark.parametrize("size", SIZES)
def test_scores_are_what_they_mean(size, kind, share, sparse_labels, rng):
    scores = scores_of(kind, share, (LISTS, size), rng)
    labels = labels_for(scores, rng)
    y_true = graded_ids(labels) if sparse_labels else labels
    for order in ORDERS:
        found = all_values(y_true, scores, sparse_labels, *order)
        expected = all_values(y_true, meant(scores), sparse_labels, *order)
        np.testing.assert_allclose(found, expected, atol=2e-6)


def as_given(queries, candidates):
    """Scores that are the only feature of the candidates, with all of their bits."""
    return ops.repeat(ops.transpose(candidates), queries.shape[0], axis=0)


@pytest.mark.compiles_long
@some_kinds
def test_catalogues(kind, share, rng):
    """Where half of the items are asked for, all of those with a score are found."""
    scores = scores_of(kind, share, (1, 600), rng)
    targets = graded_ids(labels_for(scores, rng))
    queries, k = np.ones((1, 1), "float32"), 300
    expected = meant(scores)[0]
    in_order = np.argsort(-expected, kind="stable")[:k]
    number = np.sum(expected[in_order] > -np.inf)
    # A user's function is compiled at each call.
    for score in ["dot"] if IS_SLOW else ["dot", as_given]:
        blocks = {"score": score, "block_size": 512}
        found = catalogue.top_k(queries, scores.T, k, **blocks)
        best, ids = (array(x)[0] for x in found)
        assert_equal(ids[:number], in_order[:number])
        assert_equal(best[:number], expected[in_order[:number]])
        assert np.all(ids[number:] == -1)
        assert np.all(best[number:] == -np.inf)
        order = catalogue.rank(targets, queries, scores.T, shuffle_ties=False, **blocks)
        for function in (functional.ndcg, functional.pairwise_accuracy):
            how = {"sparse_labels": True, "shuffle_ties": False}
            of_matrix = function(targets, expected[None], **how)
            assert_close(function(order), of_matrix, atol=2e-6)


def views_of(x):
    """The same numbers in other layouts of memory."""
    yield "transposed", ops.transpose(ops.convert_to_tensor(np.ascontiguousarray(x.T)))
    yield "every other", ops.convert_to_tensor(np.repeat(x, 2, axis=1))[:, ::2]
    yield "columns of more", ops.convert_to_tensor(np.pad(x, [(0, 0), (3, 2)]))[:, 3:-2]
    if BACKEND == "numpy":
        yield "backwards", x[:, ::-1].copy()[:, ::-1]
        yield "big-endian", x.astype(x.dtype.newbyteorder(">"))


@pytest.mark.parametrize("sparse_labels", [False, True])
@pytest.mark.parametrize("size", SIZES[1:])
def test_views(size, sparse_labels, rng):
    scores = np.round(rng.normal(size=(LISTS, size)), 2).astype("float32")
    labels = labels_for(scores, rng)
    y_true = graded_ids(labels) if sparse_labels else labels
    for order in ORDERS:
        expected = all_values(y_true, scores, sparse_labels, *order)
        for layout, view in views_of(scores):
            found = all_values(y_true, view, sparse_labels, *order)
            np.testing.assert_array_equal(found, expected, err_msg=layout)


@pytest.mark.skipif(BACKEND != "torch", reason="autocast is torch's")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast_changes_nothing(dtype, rng):
    """It would multiply in half precision, in a user's score too."""
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
    # At rank 5, just above others.
    targets = torch.topk(queries @ candidates.T, 5).indices[:, 4]
    many = torch.topk(queries @ candidates.T, 40).indices
    expected = list(values())
    device = expected[0].device.type
    with torch.autocast(device, dtype=getattr(torch, dtype)):
        found = list(values())
    for value, other in zip(found, expected, strict=True):
        assert value.dtype == other.dtype
        np.testing.assert_array_equal(value.cpu(), other.cpu())
