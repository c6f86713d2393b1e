"""NDCG of real lists: 201 queries of a search engine with labels 0 to 4."""

import compiled
import numpy as np
import pytest
from registry import IS_SLOW
from sklearn.metrics import ndcg_score
from unpublished_data import find_data_file

from keras_rank.metrics import NDCG, RankingMetrics

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def queries():
    sizes = np.loadtxt(find_data_file("lambdarank/rank.train.query"), dtype=int)
    labels, features = [], []
    for line in find_data_file("lambdarank/rank.train").read_text().splitlines():
        label, *pairs = line.split()
        row = dict(pair.split(":") for pair in pairs)
        labels.append(int(label))
        features.append([float(row.get(str(i), 0.0)) for i in range(1, 301)])
    ends = np.cumsum(sizes)
    assert (len(sizes), ends[-1]) == (201, 3005)
    return tuple(np.split(np.array(x), ends[:-1]) for x in (labels, features))


def padded(lists, padding):
    rows = np.full((len(lists), max(map(len, lists))), padding, "float32")
    for row, items in zip(rows, lists, strict=True):
        row[: len(items)] = items
    return rows


def scorings(features):
    """Yields scores of fixed models: with many ties, with few ties, and constant."""
    yield "one feature", [x[:, 9] for x in features]
    yield "another", [x[:, 44] for x in features]
    yield "a sum", [x.sum(axis=1) for x in features]
    yield "rounded", [np.round(x[:, :40].mean(axis=1), 1) for x in features]
    yield "constant", [np.zeros(len(x)) for x in features]


CUTOFFS = [1, 3, 5, 10]


def mean_of_sklearn(labels, scores, k):
    values = [
        ndcg_score([y], [s], k=k) if len(y) > 1 else float(y[0] > 0)
        for y, s in zip(labels, scores, strict=True)
    ]
    return np.mean(values)


@pytest.mark.slow
@pytest.mark.compiles_long
def test_ndcg_equals_that_of_sklearn(queries):
    """The update is compiled where single operations of each size would be compiled."""
    labels, features = queries
    linear = {"gain_fn": "linear", "shuffle_ties": "average"}
    group = RankingMetrics([NDCG(k=k, **linear) for k in CUTOFFS])
    update, batch_sizes = group.update_state, (67, 201)
    if IS_SLOW:
        compiler = next(iter(compiled.COMPILERS))
        update, batch_sizes = compiled.COMPILERS[compiler](group), (67,)
    for name, scores in scorings(features):
        scores = [x.astype("float32") for x in scores]
        expected = {f"ndcg_at_{k}": mean_of_sklearn(labels, scores, k) for k in CUTOFFS}
        batch = padded(labels, -1), padded(scores, 0), np.ones((201, 1), "float32")
        for batch_size in batch_sizes:
            group.reset_state()
            for start in range(0, 201, batch_size):
                update(*(x[start : start + batch_size] for x in batch))
            actual = {k: float(value) for k, value in group.result().items()}
            assert actual == pytest.approx(expected, abs=1e-6), name
