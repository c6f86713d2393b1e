"""Comparison of metric functions with trec_eval's results for a real run."""

import collections

import numpy as np
import pytest
from unpublished_data import find_data_file

from keras_rank import functional

CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)


def measures():
    """Yields a function and its arguments for each measure of trec_eval."""
    yield "map", functional.average_precision, {}
    yield "recip_rank", functional.reciprocal_rank, {}
    yield "Rprec", functional.r_precision, {}
    yield "ndcg", functional.ndcg, {"gain_fn": "linear"}
    for k in CUTOFFS:
        yield f"map_cut_{k}", functional.average_precision, {"k": k}
        yield f"ndcg_cut_{k}", functional.ndcg, {"k": k, "gain_fn": "linear"}
        yield f"P_{k}", functional.precision, {"k": k, "denominator": "k"}
        yield f"recall_{k}", functional.recall, {"k": k}
    for k in (1, 5, 10):
        yield f"success_{k}", functional.hit_rate, {"k": k}


@pytest.fixture(scope="module")
def judgments():
    qrels = collections.defaultdict(dict)
    for line in find_data_file("trec_eval/qrels.test").read_text().splitlines():
        topic, _, document, label = line.split()
        qrels[topic][document] = int(label)
    return qrels


@pytest.fixture(scope="module")
def run():
    scores = collections.defaultdict(dict)
    for line in find_data_file("trec_eval/results.test").read_text().splitlines():
        topic, _, document, _, score, _ = line.split()
        scores[topic][document] = float(score)
    return scores


@pytest.fixture(scope="module")
def lists(judgments, run):
    """Returns labels and scores of the retrieved and judged documents of each topic.

    Documents are in descending order of their names, in which trec_eval ranks ties.
    """
    labels, scores = [], []
    for topic in sorted(run):
        documents = sorted({*run[topic], *judgments[topic]}, reverse=True)
        labels.append([float(judgments[topic].get(d, 0)) for d in documents])
        scores.append([run[topic].get(d, -np.inf) for d in documents])
    return labels, scores


@pytest.fixture(scope="module")
def printed():
    """Returns the values in `out.test.aq`, by measure and topic."""
    values = {}
    for line in find_data_file("trec_eval/out.test.aq").read_text().splitlines():
        measure, topic, value = line.split(maxsplit=2)
        values[measure, topic] = value
    return values


@pytest.mark.parametrize(
    ("measure", "function", "arguments"), list(measures()), ids=lambda x: str(x)[:20]
)
def test_trec_eval(measure, function, arguments, lists, printed, judgments, run):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    values = function(*lists, shuffle_ties=False, **arguments)
    values = np.array([float(value) for value in values])
    assert f"{values.mean():.4f}" == printed[measure, "all"]
    evaluated = pytrec_eval.RelevanceEvaluator(judgments, {measure}).evaluate(run)
    for topic, value in zip(sorted(run), values, strict=True):
        if (measure, topic) in printed:
            assert f"{value:.4f}" == printed[measure, topic]
        assert value == pytest.approx(evaluated[topic][measure], abs=1e-6)
