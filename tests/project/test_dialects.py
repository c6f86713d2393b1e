"""Values of other libraries, which the calls in docs/dialects.md should give.

The calls are read from the page. If a library is not installed, its values are taken
from its tests or documentation, or follow from its formulas, as each test says.
"""

import contextlib
import io
import itertools
import math
import pathlib
import re

import keras
import numpy as np
import pytest

from keras_rank import catalogue, discounts, functional, metrics

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "dialects.md"
NAMES = {name: getattr(metrics, name) for name in metrics.__all__}
CALL = re.compile(r"`((?:[A-Z]\w+)\(.*?\))`")


def read_rows():
    """Returns the calls of the page by library and by name in that library."""
    sections = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    rows = {}
    for library, text in zip(sections[::2], sections[1::2], strict=True):
        cells = re.findall(r"^\| (.+) \| (.+) \|$", text, flags=re.MULTILINE)
        calls = {name.replace("`", ""): CALL.match(call) for name, call in cells}
        rows[library] = {name: call[1] for name, call in calls.items() if call}
    return {library: calls for library, calls in rows.items() if calls}


ROWS = read_rows()


# Variables in calls of the page, which describe a catalog.
CATALOG = {
    "n": 5,
    "interactions": np.array([1, 1, 2, 3, 1]),
    "quantiles": np.array([0.25, 0.25, 0.75, 1.0, 0.0]),
    "users_who_know_it": np.array([1, 1, 2, 3, 1]),
    "users": 8,
    "vectors": np.array([[1, 0], [1, 1], [0, 2], [0, 0], [-1, 1]]),
}


def make_metric(library, row, k=10, more=None, **variables):
    """Returns the metric of a row, with another cutoff and `more` arguments."""
    call = ROWS[library][row].replace("k=10", f"k={k}")
    if more:
        call = f"{call[:-1]}, {more})".replace("(, ", "(")
    return eval(call, {**NAMES, "discounts": discounts, **CATALOG, **variables})


def check_metric(metric, expected, lists, precision=2e-6):
    metric.reset_state()
    assert float(metric(*lists)) == pytest.approx(float(expected), abs=precision)


def check_rows(library, *cases, more=None, precision=2e-6):
    """Checks rows of the page for lists, against a value or values by cutoff."""
    for row, lists, values, *others in cases:
        by_cutoff = values if isinstance(values, dict) else {10: values}
        for k, expected in by_cutoff.items():
            check_metric(
                make_metric(library, row, k, more),
                expected,
                lists,
                *others or [precision],
            )


def make_lists(*queries):
    """Returns labels and scores of queries, from their retrieved and relevant ids.

    The retrieved ids are in order. The relevant ids are a list, or a dict with labels.
    """
    labels, scores = [], []
    for retrieved, relevant in queries:
        grades = relevant if isinstance(relevant, dict) else dict.fromkeys(relevant, 1)
        missing = [item for item in grades if item not in retrieved]
        labels.append([float(grades.get(item, 0)) for item in [*retrieved, *missing]])
        ranks = [-float(rank) for rank, _ in enumerate(retrieved)]
        scores.append(ranks + [-math.inf] * len(missing))
    return labels, scores


# Ten items with equal scores, one of which is relevant.
FIRST_OF_TIED = [[1] + [0] * 9], [[1.0] * 10]
LAST_OF_TIED = [[0] * 9 + [1]], [[1.0] * 10]
# The discounts of ranks 2 and 3.
SECOND, THIRD = 1 / math.log2(3), 1 / math.log2(4)


# Libraries that need not be installed: documented values, and formulas.


def test_tf_ranking():
    """Values are asserted in its `metrics_test.py`, or follow from formulas.

    Precision, MRR, NDCG and metrics of top 1 are by formula.
    """
    scores = [[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]
    lists, judged = ([[0, 0, 1], [0, 1, 2]], scores), ([[0, 0, 1], [1, 0, 2]], scores)
    # A label below 1 counts too.
    halves = [[0, 0, 0.5], [0, 0.5, 2]], scores, [0.5, 2.5]
    tied = lists[0], [[1.0, 1.0, 1.0], [1.0, 2.0, 2.0]], [2.0, 3.0]
    check_rows(
        "TF-Ranking",
        ("NDCGMetric, topn=10", lists, {3: (SECOND + 1) / 2, 1: (0 + 1) / 2}),
        ("DCGMetric, topn=10", lists, {3: (SECOND + 3 + SECOND) / 2, 1: (0 + 3) / 2}),
        ("MeanAveragePrecisionMetric, topn=10", lists, {2: (1 / 2 + 1) / 2, 1: 1 / 4}),
        ("MRRMetric, topn=10", lists, {2: (1 / 2 + 1) / 2, 1: (0 + 1) / 2}),
        ("PrecisionMetric, topn=10", lists, {2: (1 / 2 + 2 / 2) / 2}),
        ("RecallMetric, topn=10", ([[1, 0, 1], [0, 1, 2]], scores), {2: 3 / 4}),
        ("HitsMetric, topn=10", lists, {1: (0 + 1) / 2}),
        ("BPrefMetric, topn=10", judged, {3: (0 + 1 / 2) / 2, 1: 1 / 4}),
        ("ARPMetric", halves, (0.5 * 2 + 2 * 1 + 0.5 * 2) / 3),
        ("OPAMetric", tied, (0 + 2) / (2 + 3)),
    )
    dcg = metrics.DCG(k=2, gain_fn="linear", rank_discount_fn="reciprocal")
    ranked = [[1, 2, 0], [2, 0, 1], [0, 2, 1]], [[3.0, 2.0, 1.0]] * 3
    check_metric(dcg, (2 + 2 + 1) / (3 / 2) / 3 * (1 + 1 / 2), ranked)


def test_subtopics_of_tf_ranking():
    """Values are asserted in its `metrics_test.py`."""
    scores = [[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]
    labels = [[[0, 0], [0, 1], [0, 1]], [[0, 0], [1, 0], [1, 1]]]
    one, fewer = (labels[:1], scores[:1]), ([[[0, 0], [0, 0], [1, 0]]], scores[:1])
    weighted = (*one, [[1.0, 2.0, 3.0]])
    mean = (1 + SECOND / 2 + 2 + SECOND / 2) / 2
    check_rows(
        "TF-Ranking",
        ("AlphaDCGMetric, topn=10", (labels, scores), mean),
        ("AlphaDCGMetric, topn=10", weighted, {10: (4 + 3 * SECOND) / 5, 1: 2 / 2.5}),
        ("PrecisionIAMetric, topn=10", fewer, {10: 1 / 3, 1: 0, 2: 1 / 2}),
        ("PrecisionIAMetric, topn=10", (labels[1:], scores[1:]), 3 / 6),
    )
    options = 'alpha=0.2, rank_discount_fn="reciprocal"'
    check_rows(
        "TF-Ranking", ("AlphaDCGMetric, topn=10", one, 1 + 0.8 / 2), more=options
    )


def test_ndeval():
    """Values are in the README of pyndeval, which truncates their digits."""
    subtopics = {"A": [1, 0, 0], "B": [0, 1, 0], "C": [0, 0, 1], "D": [0, 1, 0]}
    labels = [[subtopics.get(item, [0, 0, 0]) for item in "ADEBC"]]
    scores = [[9.3, 8.4, 8.1, 7.6, -math.inf]]
    expected = {"alpha-nDCG": 0.7868, "alpha-DCG": 0.4052, "ERR-IA": 0.3933}
    expected |= {"P-IA": 0.2, "strec": 0.6666}
    for row in ROWS["ndeval, pyndeval"]:
        metric, value = make_metric("ndeval, pyndeval", row, 5), expected[row[:-3]]
        check_metric(metric, value, (labels, scores), precision=1e-4)


def test_metrax():
    """google-metrax 0.2.4 computed the values."""
    labels = [[0, 2, 1, 0], [0, 0, 0, 0], [3, 0, 0, 1]]
    scores = [[0.1, 0.4, 0.3, 0.9], [0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.5, 0.9]]
    lists, last = (labels, scores), ([[0, 0, 0, 1]], [[1.0] * 4])
    check_rows(
        "metrax",
        ("NDCGAtK", lists, {1: 0.04761905, 2: 0.41036862, 3: 0.45627055}),
        ("DCGAtK", lists, {1: 0.33333334, 2: 2.4364326, 3: 2.6030993}),
        ("AveragePrecisionAtK", lists, {1: 0.16666667, 2: 0.41666669, 3: 0.52777779}),
        ("MRR, on labels of 0 and 1", (np.minimum(labels, 1), scores), {2: 0.5}),
        ("MRR, on labels of 0 and 1", last, {3: 0.0, 4: 0.25}),
        ("PrecisionAtK", lists, {1: 1 / 3, 2: 0.5, 3: 0.44444448, 6: 1 / 3}),
        ("RecallAtK", lists, {1: 0.16666667, 2: 0.5, 6: 0.66666669}),
        more="shuffle_ties=False",
    )


def test_allrank():
    """Values are asserted in its `test_ndcg.py` and `test_mrr.py`. DCG is by formula.

    An empty list has the default of `filler_value` in its `metrics.py`.
    """
    scores = [[0.5, 0.2, 0.1]]
    one = [[0, 1], [0, 1]], [[0.2, 0.5], [0.5, 0.2]]
    check_rows(
        "allRank",
        ("ndcg, ats=[10]", ([[1, 0, 1]], scores), {1: 1.0, 2: 1 / (1 + SECOND)}),
        ("ndcg, ats=[10]", ([[0, 1, -1]], [[0.5, 0.2, 1.0]]), SECOND),
        ("ndcg, ats=[10]", ([[0, 0]], [[0.5, 0.2]]), 1.0),
        ("dcg, ats=[10]", ([[2, 0, 1]], scores), {1: 3, 10: 3 + THIRD}),
        ("mrr, ats=[10], on labels of 0 and 1", one, {1: 1 / 2, 2: (1 + 1 / 2) / 2}),
    )


def test_xgboost():
    """Values are asserted in its `tests/cpp/metric/test_rank_metric.h`.

    Weights, many ties and top 1 are by the formulas of its `rank_metric.cc`.
    """
    tied = [[0, 0, 1, 1]], [[0.1, 0.9, 0.1, 0.9]]
    graded = [[10, 0, 0, 1, 5]], [[0.1, 0.2, 0.3, 4.0, 70.0]]
    groups = [[1, 1], [1, 0, 1], [0]], [[0.1, 0.9], [0.2, 0.8, 0.4], [1.7]]
    empty = [[0]], [[1.0]]
    linear = "ndcg@10, ndcg_exp_gain=False"
    check_rows(
        "XGBoost",
        ("ndcg@10", tied, {32: 0.6509, 2: 0.3868}),
        ("ndcg@10-", tied, {2: 0.3868}),
        ("ndcg@10", graded, {32: 0.409738}),
        ("ndcg@10", empty, 1.0),
        ("ndcg@10-", empty, 0.0),
        (linear, graded, {32: 0.695694, 1: 5 / 10}),
        (linear, empty, 1.0),
        (linear, LAST_OF_TIED, {32: 1 / math.log2(11)}),
        ("map@10", tied, {32: 0.5, 2: 0.25}),
        ("map@10", groups, {32: 0.8611, 1: (1 + 0 + 1) / 3}),
        ("map@10-", groups, {32: (1 + (1 / 2 + 2 / 3) / 2 + 0) / 3}),
        ("map@10-", tied, {2: 0.25}),
        ("pre@10", FIRST_OF_TIED, {1: 1.0}),
        precision=1e-4,
    )
    weighted = [[0, 1], [0, 0]], [[2.0, 1.0], [2.0, 1.0]], [1.0, 4.0]
    check_rows(
        "XGBoost",
        ("map@10", weighted, (1 / 2 + 4 * 1) / 5),
        ("map@10-", weighted, (1 / 2 + 4 * 0) / 5),
        ("pre@10", weighted, (1 / 2 + 4 * 0) / 5),
        more='empty_weight="own"',
    )


# A list with relevant items at ranks 1 and 3, and an empty one.
ONE_IS_EMPTY = [[1, 0, 3], [0, 0, 0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]


def test_lightgbm():
    """Formulas are in its `rank_metric.hpp`, `map_metric.hpp` and `metadata.cpp`."""
    tied = [[0, 1, 1, 0]], [[1.0, 1.0, 2.0, 2.0]]
    linear = (1 + 3 * THIRD) / (3 + SECOND)
    check_rows(
        "LightGBM",
        ("ndcg, eval_at=[10]", ONE_IS_EMPTY, {2: (1 / (7 + SECOND) + 1) / 2}),
        ("ndcg, eval_at=[10]", tied, {2: 1 / (1 + SECOND)}),
        ("ndcg, label_gain=[0, 1, 2, ...]", ONE_IS_EMPTY, {5: (linear + 1) / 2}),
        ("ndcg, label_gain=[0, 1, 2, ...]", LAST_OF_TIED, 1 / math.log2(11)),
        ("map, eval_at=[10]", ONE_IS_EMPTY, {2: (1 / 2 + 1) / 2}),
        ("map, eval_at=[10]", tied, {5: (1 + 2 / 4) / 2}),
        ("map, eval_at=[10]", ([[1, 1]], [[2.0, 1.0]]), {1: 1.0}),
    )
    average = make_metric("LightGBM", "map, eval_at=[10]", 2, 'empty_weight="own"')
    weights = np.mean([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], axis=1)
    check_metric(average, (2 * 1 / 2 + 5 * 1) / 7, (*ONE_IS_EMPTY, weights))


def test_catboost():
    """Values are asserted in its `precision_recall_at_k_ut.cpp` and `mrr_ut.cpp`.

    Tied items are in ascending order of their labels here. The other values are by the
    formulas of its `dcg.cpp` and `metric.cpp`.
    """
    tied = [[0, 0, 1, 1]], [[0.1, 0.9, 0.1, 0.9]]
    check_rows(
        "CatBoost",
        ("PrecisionAt:top=10", tied, {1: 0.0, 2: 0.5}),
        ("MAP:top=10", tied, {10: 0.5, 2: 0.25}),
        more="shuffle_ties=False",
    )
    labels = [[0, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1]]
    scores = [[1, 0, -2], [2, 1, 1, 2, 5], [-1, 0, -2, 0], [0.5, 0.5, 0.5]]
    mrr = make_metric(
        "CatBoost", "MRR:top=10", 10, 'shuffle_ties=False, empty_weight="own"'
    )
    check_metric(mrr, 17 / 30, (labels, scores, [1.0, 2.0, 3.0, 4.0]))
    linear = (1 + 3 * THIRD) / (3 + SECOND)
    exponential = (1 + 7 * THIRD) / (7 + SECOND)
    of_rank = (1 + 3 / 3) / (3 + 1 / 2)
    tie = [[1, 0], [1, 0]], [[1.0, 1.0], [2.0, 1.0]]
    pairs = [[0, 1, 2], [0, 1, 0]], [[1.0, 1.0, 2.0], [0.0, 1.0, 0.0]], [3.0, 2.0]
    last = [[0, 0, 1, 0]], [[1.0, 0.0, -2.0, 5.0]]
    check_rows(
        "CatBoost",
        ("MRR:top=10", last, {1: 0.0, 10: 0.25}),
        ("NDCG:top=10", ONE_IS_EMPTY, {1: (1 / 3 + 1) / 2, 3: (linear + 1) / 2}),
        ("NDCG:top=10;type=Exp", ONE_IS_EMPTY, (exponential + 1) / 2),
        ("NDCG:top=10;denominator=Position", ONE_IS_EMPTY, (of_rank + 1) / 2),
        ("DCG:top=10", ONE_IS_EMPTY, {1: (1 + 0) / 2, 3: (1 + 3 * THIRD + 0) / 2}),
        ("RecallAt:top=10", ONE_IS_EMPTY, {3: (1 + 1) / 2}),
        ("QueryAUC, of lists with labels of 0 and 1", tie, (0.5 + 1) / 2),
        ("PairAccuracy, pairs by label", pairs, (2 + 2) / (3 + 2)),
    )


def test_torcheval():
    """Values are asserted in its `tests/metrics/functional/ranking`.

    Values of ties are in its docstrings, those without relevant items by formula.
    """
    scores = [
        [0.4826, 0.9517, 0.8967, 0.8995, 0.1584, 0.9445, 0.9700],
        [0.4938, 0.7517, 0.8039, 0.7167, 0.9488, 0.9607, 0.7091],
        [0.5127, 0.4732, 0.5461, 0.5617, 0.9198, 0.0847, 0.2337],
        [0.4175, 0.9452, 0.9852, 0.2131, 0.5016, 0.7305, 0.0516],
    ]
    targets = [3, 5, 2, 1], scores
    tied = [0], [[0.3, 0.3, 0.4]]
    one = [[0, 0, 1, 1, 1, 0, 1]], [[0.1, 0.4, 0.6, 0.2, 0.5, 0.7, 0.3]]
    last = [[0, 0, 1], [1, 0, 0]], [[0.1, 0.2, 0.3]] * 2
    empty = [*one[0], [0] * 7], one[1] * 2
    top_3 = np.mean([0, 1, 1 / 3, 1 / 2])
    limited = "retrieval_precision, k=10, limit_k_to_size=True"
    check_rows(
        "torcheval",
        ("hit_rate, k=10", targets, {1: 1 / 4, 3: 3 / 4, 5: 1.0, 20: 1.0}),
        ("hit_rate, k=10", tied, {1: 0.0, 2: 1.0}),
        ("reciprocal_rank, k=10", targets, {1: 1 / 4, 3: top_3, 20: top_3 + 1 / 16}),
        ("reciprocal_rank, k=10", tied, {2: 1 / 2}),
        ("retrieval_precision, k=10", last, {2: 1 / 4}),
        ("retrieval_precision, k=10", one, {10: 4 / 10}),
        ("retrieval_precision, k=10", empty, {10: (4 / 10 + 0) / 2}),
        (limited, one, {10: 4 / 7}),
        ("retrieval_recall, k=10", one, {2: 1 / 4, 3: 2 / 4, 4: 2 / 4, 5: 3 / 4}),
        ("retrieval_recall, k=10", empty, {5: 3 / 4}),
        ("click_through_rate", ([[0, 1, 0, 1, 1, 0, 0, 1]], [[0.0] * 8]), 4 / 8),
    )


def test_catalyst():
    """Values are in its documentation. Graded labels out of order are by formula."""
    hits = [[1, 0, 1], [1, 0, 1]], [[0.5, 0.2, 0.1], [0.5, 0.2, 0.1]]
    graded, ranks = [[2, 2, 1, 0]], np.arange(10.0)
    ascending, descending = (graded, [ranks[:4]]), (graded, [-ranks[:4]])
    out_of_order = (0 + 1 + 2 * SECOND + 2 / 2) / (2 + 2 + 1 * SECOND)
    scores = [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    two, one = [[0, 0, 1, 1], [0, 0, 1, 1]], [[0, 0, 1, 1], [0, 0, 0, 0]]
    labels = [1, 0, 1, 0, 0, 1, 0, 0, 1, 1], [0, 1, 0, 0, 1, 0, 1, 0, 0, 0]
    average = {1: 0.5, 3: 0.6667, 5: 0.6417, 10: 0.5325}
    linear = 'ndcg, topk=[10], gain_function="linear_rank"'
    check_rows(
        "catalyst",
        ("ndcg, topk=[10]", hits, {2: 0.6131}, 1e-4),
        (linear, ascending, out_of_order),
        ("the sum of dcg", descending, 5.3928, 1e-4),
        ('the sum of dcg, gain_function="linear_rank"', descending, 4.6309, 1e-4),
        ("mrr, topk=[10]", (two, scores), {1: 0.5, 3: 0.75}),
        ("hitrate, topk=[10]", (one, scores), {1: 0.0, 2: 0.25, 3: 0.25, 4: 0.5}),
        ("mean_average_precision, topk=[10]", (labels, [-ranks] * 2), average, 1e-4),
    )


def test_the_example_of_ignite_for_map():
    """The value is the mean of a list with hits at ranks 2 and 4 and a perfect list.

    A list without relevant items is left out.
    """
    labels = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    lists = labels, [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    values = {1: 0.5, 2: 0.625, 3: 0.625, 4: 0.75}
    check_rows("ignite", ("MAP, by its documentation", lists, values))


def test_top_k_accuracy_of_tensorflow_recommenders():
    """Data and expected values are those of its `factorized_top_k_test.py`.

    The values are those of `tf.math.in_top_k` for the matrix of all scores. A constant
    model has a hit in every query without ids. With ids, by `tf.math.top_k`, it has a
    hit for the first item only.
    """
    rng = np.random.RandomState(42)
    candidates = rng.normal(size=(100, 4)).astype("float32")
    queries = rng.normal(size=(10, 4)).astype("float32")
    weights = rng.uniform(size=(10, 1)).astype("float32")
    targets = rng.randint(0, 100, size=10)
    library, row = "TensorFlow Recommenders", "FactorizedTopK, ks=[10]"
    hits = [make_metric(library, row, k) for k in (1, 5, 10, 50)]
    arguments = targets, queries, candidates, hits
    actual = catalogue.evaluate(*arguments, sample_weight=weights)
    expected = [0.0, 0.17503180, 0.21064596, 0.71008551]
    assert list(actual.values()) == pytest.approx(expected, abs=1e-6)
    first = make_metric(library, "FactorizedTopK, ks=[10], with true_candidate_ids", 1)
    actual = catalogue.evaluate(range(4), np.ones((4, 1)), np.ones((4, 1)), [first])
    assert list(actual.values()) == pytest.approx([1 / 4])


def test_recommenders():
    """Values are in its `test_python_evaluation.py`, exponential gains by formula."""
    relevant = [3, 1, 2], [1, 4, 5, 6, 7], [2, 5, 6, *range(8, 15)]
    retrieved = [3, 10, 12], [10, 3, 5, 11, 13], [4, 10, 7, 13, 1, 3, 5, 2, 11, 14]
    inputs = make_lists(*zip(retrieved, relevant, strict=True))
    ratings = make_lists((range(6), dict(enumerate([3, 2, 3, 0, 1, 2, 3, 2]))))
    graded = make_lists((["b"], {"a": 3, "b": 2}))
    exponential = {1: 3 / 7, 2: 3 / (7 + 3 / math.log2(3))}
    # One of 3 relevant items has rank 1. `map_at_k` divides by 2 for k of 2.
    short = make_lists(([1, 9], [1, 2, 3]))
    check_rows(
        "recommenders",
        ("precision_at_k, k=10", inputs, 0.26666, 1e-5),
        ("recall_at_k, k=10", inputs, 0.37777, 1e-5),
        ("map_at_k, k=10", inputs, 0.23613, 1e-5),
        ("ndcg_at_k, k=10, on labels of 0 and 1", inputs, 0.38172, 1e-5),
        ('ndcg_at_k, k=10, score_type="raw"', ratings, {6: 0.785}, 1e-3),
        ('ndcg_at_k, k=10, score_type="exp"', graded, exponential),
        ("map_at_k, k=10", short, {2: 1 / 2}),
        ("map, k=10", short, {2: 1 / 3}),
    )


def test_spark():
    """Values are asserted in its `RankingMetricsSuite.scala`."""
    one, two = [1, 6, 2, 7, 8, 3, 9, 10, 4, 5], [4, 1, 5, 6, 2, 7, 3, 8, 9, 10]
    empty = [1, 2, 3, 4, 5], []
    inputs = make_lists((one, [1, 2, 3, 4, 5]), (two, [1, 2, 3]), empty)
    grades = {1: 3, 2: 2, 3: 1, 4: 1, 5: 1}, {1: 2, 2: 0, 3: 0}
    graded = make_lists((one, grades[0]), (two, grades[1]), empty)
    check_rows(
        "Spark MLlib",
        ("precisionAt(10)", inputs, {1: 1 / 3, 4: 0.75 / 3, 10: 0.8 / 3, 15: 8 / 45}),
        ("recallAt(10)", inputs, {1: 1 / 15, 2: 8 / 45, 5: 16 / 45, 15: 2 / 3}),
        ("meanAveragePrecision", inputs, 0.355026),
        ("meanAveragePrecisionAt(10)", inputs, {1: 1 / 3, 2: 0.25, 3: 0.24074}),
        ("ndcgAt(10)", inputs, {3: 1 / 3, 5: 0.328788, 10: 0.487913, 15: 0.487913}),
        ("ndcgAt(10)", graded, {3: 0.511959, 5: 0.487806, 10: 0.518700}),
        precision=1e-5,
    )


def test_lenskit():
    """Values are asserted in its `tests/eval/test_rank_*.py`, or follow from formulas.

    Hits, reciprocal ranks and metrics of top 1 are by formula.
    """
    ndcg = "NDCG, n of 10, with a field or on labels of 0 and 1"
    dcg = "DCG, n of 10, with a field or on labels of 0 and 1"
    ratings, many, three = {1: 3.0, 2: 5.0, 3: 4.0}, range(100), [1, 2, 3]
    negative = {1: -6, 2: -2, 3: 3, 4: 1, 5: -3}
    clipped = {item: max(rating, 0) for item, rating in negative.items()}
    average = {3: (1 + 2 / 3) / 3, 1: 1.0}
    long, odd = [1, 0, 150, 3, 10, 30, 120], [1, 3, 5]
    cases = [
        (ndcg, ([1, 2], ratings), (3 + 5) / (5 + 4 + 3 * SECOND)),
        (ndcg, ([1, 2, 3, 4, 5], clipped), 0.5982),
        (dcg, ([2, 3, 1], three), {10: 1 + 1 + SECOND, 2: 2.0}),
        (dcg, ([1, 7, 8, 2], {1: math.e, 2: math.pi}), math.e + math.pi / 2),
        ("Hit, n of 10", ([4, 1], [1]), {1: 0.0}),
        ("RecipRank, n of 10", ([4, 1], [1]), {1: 0.0, 2: 1 / 2}),
        ("Precision, n of 10", ([1, 0, 150], many), {5: 2 / 3}),
        ("Recall, n of 10", (long, many), {5: 0.8}),
        ("Recall", ([1, 2, 3, 4], odd), 2 / 3),
        ("AveragePrecision, n of 10", ([1, 2, 3, 4], odd), average),
        ("AveragePrecision", (three, [1, 3]), (1 + 2 / 3) / 2),
        ("RBP, n of 10", ([1, 2], [1, 2]), {1: 0.15}),
        ("RBP, n of 10, normalize=True", ([9, 1], [1, 2]), {3: 0.85 / (1 + 0.85)}),
    ]
    lists = [(row, make_lists(query), values) for row, query, values in cases]
    check_rows("LensKit", *lists, precision=1e-4)


def test_lightfm():
    """lightfm-next 1.19.0 computed the values, with embeddings of these scores."""
    scores = [
        [0.9, 0.1, 0.8, 0.3, 0.7, 0.2],
        [0.2, 0.6, 0.1, 0.9, 0.5, 0.4],
        [0.5, 0.4, 0.3, 0.2, 0.1, 0.0],
    ]
    test, train = [[2, 3], [5, -1], [-1, -1]], [[0], [1], [0]]
    rows = "precision_at_k, k=10", "recall_at_k, k=10", "reciprocal_rank"
    arguments = test, np.eye(3), np.transpose(scores)
    requested = [make_metric("LightFM", row, 2) for row in rows]
    actual = catalogue.evaluate(*arguments, requested, exclude=train)
    assert [*actual.values()] == pytest.approx([0.5 / 2, 0.5 / 2, (1 + 1 / 3) / 2])
    labels = [[-1, 0, 1, 1, 0, 0], [0, -1, 0, 0, 0, 1], [-1, 0, 0, 0, 0, 0]]
    check_rows(
        "LightFM",
        # The value is by formula, which divides by k even if there are fewer items.
        ("precision_at_k, k=10", (labels, scores), np.mean([2 / 10, 1 / 10])),
        ("auc_score", (labels, scores), np.mean([5 / 6, 0.5])),
    )


def test_recbole():
    """Values are asserted in its `test_topk_metrics.py` and `test_rank_metrics.py`.

    Precision at 10 is by formula.
    """
    # Hits in order, and the number of relevant items.
    hits = [[0, 0, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1]]
    missing = [1, 0, 2, 1]
    labels = [row + [1] * n for row, n in zip(hits, missing, strict=True)]
    scores = [[3.0, 2.0, 1.0] + [-math.inf] * n for n in missing]
    ap = (1 + 2 / 3) / 3
    ndcg = (1 + THIRD) / (1 + SECOND + THIRD), THIRD / (1 + SECOND)
    for row, by_cutoff in (
        ("Recall, topk=[10]", {2: [0, 2 / 3, 1 / 4, 0], 3: [0, 3 / 3, 2 / 4, 1 / 2]}),
        ("Precision, topk=[10]", {2: [0, 2 / 2, 1 / 2, 0], 3: [0, 1, 2 / 3, 1 / 3]}),
        ("Precision, topk=[10]", {10: [0, 3 / 10, 2 / 10, 1 / 10]}),
        ("Hit, topk=[10]", {2: [0, 1, 1, 0]}),
        ("MRR, topk=[10]", {2: [0, 1, 1, 0], 3: [0, 1, 1, 1 / 3]}),
        ("MAP, topk=[10]", {2: [0, 1, 1 / 2, 0], 3: [0, 1, ap, 1 / 3 * 1 / 2]}),
        ("NDCG, topk=[10]", {2: [0, 1, 1 / (1 + SECOND), 0], 3: [0, 1, *ndcg]}),
    ):
        means = {k: np.mean(values) for k, values in by_cutoff.items()}
        check_rows("RecBole", (row, (labels, scores), means))
    # The lists have 1 of 2, 2 of 3 and 3 of 5 relevant items. The sums of the relevant
    # ranks are 1, 4 and 9.
    labels = [[1, 0], [1, 0, 1], [1, 0, 1, 0, 1]]
    scores = [[5.0, 4.0, 3.0, 2.0, 1.0][: len(row)] for row in labels]
    areas = [2 - 1 / 1, 3 - 1 / 2 - 4 / 2, (5 - 2 / 2 - 9 / 3) / 2]
    expected = np.average(areas, weights=[1, 2, 3])
    check_metric(
        make_metric("RecBole", "GAUC"), expected, (labels, scores, [1.0, 2.0, 3.0])
    )


# The recommended items of three users.
RECOMMENDED = [[0, 1], [1, 4], [4, 2]]


def test_exposure_of_recommenders_and_rectools():
    """Values are asserted in their tests of equal counts, and in docstrings."""
    coverage = "catalog_coverage of the top 10, n items in train_df"
    check_metric(make_metric("recommenders", coverage, 2), 0.8, [RECOMMENDED])
    check_metric(
        make_metric("recommenders", "novelty of the top 10", 2),
        2.83333,
        [RECOMMENDED],
        1e-5,
    )
    recommended = [[1, 2], [1, 2], [-1, -1], [-1, 1]]
    check_metric(
        make_metric("RecTools", "CatalogCoverage, k=10, normalize=True", 2),
        0.4,
        [recommended],
    )
    popularity = make_metric(
        "RecTools", "AvgRecPopularity, k=10", 1, interactions=[3, 2, 1]
    )
    check_metric(popularity, (3 + 1 + 1) / 3, [[[0], [2], [2]]])
    known = {"users_who_know_it": np.array([3, 1, 1]), "users": 3}
    novelty = make_metric("RecTools", "MeanInvUserFreq, k=10", 1, **known)
    check_metric(novelty, 2 * 1.5849625 / 3, [[[2], [1], [0]]])


def test_exposure_of_lenskit_and_recbole():
    """Formulas are in `_gini.py`, `_pop.py` and `recbole/evaluator/metrics.py`."""
    counts = np.sort([1, 2, 1, 0, 2])
    gini = np.sum((2 * np.arange(1, 6) - 5 - 1) * counts) / counts.sum() / 5
    # Counts of recommended items, which take the last of all positions.
    counts_above_0 = np.array([1, 1, 2, 2])
    gini_of_recommended = (
        np.sum((2 * np.arange(5 - 4 + 1, 5 + 1) - 5 - 1) * counts_above_0) / (3 * 2) / 5
    )
    for library, row, expected in (
        ("LensKit", "ListGini, k=10, items=n", gini),
        ("LensKit", "MeanPopRank, k=10", np.mean([0.25, 0.25, 0.25, 0.0, 0.0, 0.75])),
        ("RecBole", "ItemCoverage, topk=[10]", 4 / 5),
        ("RecBole", "GiniIndex, topk=[10]", gini_of_recommended),
        ("RecBole", "AveragePopularity, topk=[10]", np.mean([1, 1, 1, 1, 1, 2])),
    ):
        check_metric(make_metric(library, row, 2), expected, [RECOMMENDED])


def test_pairs_of_items_and_of_lists():
    """Formulas are in RecTools, LensKit's `_ils.py` and recmetrics' `metrics.py`."""
    is_recommended = np.zeros((3, 5))
    np.put_along_axis(is_recommended, np.array(RECOMMENDED), 1, axis=1)
    cosines = is_recommended @ is_recommended.T / 2
    expected = 1 - (cosines.sum() - 3) / (3 * (3 - 1))
    check_metric(
        make_metric("recmetrics", "personalization", 2), expected, [RECOMMENDED]
    )
    # The vectors of the three lists are at 45, 90 and 45 degrees.
    expected = 1 - (math.sqrt(0.5) + 0 + math.sqrt(0.5)) / 3
    for library, row in (
        ("RecTools", "IntraListDiversity, k=10, of cosine distances"),
        ("LensKit", "one minus ILS, n of 10"),
        ("recmetrics", "one minus intra_list_similarity"),
    ):
        check_metric(make_metric(library, row, 2), expected, [RECOMMENDED])
        # A vector of 0 has a cosine of 0.
        check_metric(
            make_metric(library, row, 3),
            1 - (math.sqrt(0.5) + 0 + 0) / 3,
            [[[0, 1, 3]]],
        )


# Recommended and relevant items of three users in the tests of RePlay.
REPLAY = [
    ([3, 7, 10, 11, 2], [5, 6, 7, 8, 9, 10]),
    ([5, 8, 11, 1, 3], [6, 7, 4, 10, 11]),
    ([4, 9, 2], [1, 2, 3, 4, 5]),
]


def test_replay():
    """Values are asserted in its `test_metrics.py`, or in docstrings for the top 2.

    Users without items are by the formulas of its `novelty.py` and `unexpectedness.py`.
    """
    lists, rows = make_lists(*REPLAY), [retrieved for retrieved, _ in REPLAY]
    check_rows(
        "RePlay",
        ("HitRate, topk=10", lists, {2: 0.666666, 3: 1.0}),
        ("Precision, topk=10", lists, {3: 0.555555, 5: 0.333333, 10: 0.166666}),
        ("Recall, topk=10", lists, {2: 0.122222, 5: 0.311111, 10: 0.311111}),
        ("MAP, topk=10", lists, {2: 0.25, 3: 0.35185, 5: 0.21111, 10: 0.198148}),
        ("MRR, topk=10", lists, {2: 0.5, 3: 0.61111, 5: 0.61111, 10: 0.61111}),
        ("NDCG, topk=10", lists, {3: 0.48975, 5: 0.35396, 10: 0.34018}),
        precision=1e-5,
    )
    for k, expected in {3: 0.166666, 5: 0.555555}.items():
        area = make_metric("RePlay", "RocAuc, topk=10")
        tops = [(row[:k], set(row[:k]) & set(items)) for row, items in REPLAY]
        check_metric(area, expected, make_lists(*tops), 1e-5)
    # The relevant items of the other metrics are the items of `train`.
    novelties = {k: 1 - value for k, value in {3: 0.444444, 5: 0.577777}.items()}
    novelty, of_base = "one minus Novelty, topk=10", "one minus Unexpectedness, topk=10"
    check_rows("RePlay", (novelty, lists, novelties), precision=1e-5)
    check_rows(
        "RePlay", (novelty, make_lists(([1, 9], [1]), ([], [3])), {2: 1 - 1.5 / 2})
    )
    base = [2, 7, 3, 11, 10], [8, 5, 11, 3, 1], [4, 9, 2]
    for k, expected in {2: 0.16666, 3: 0.111111, 5: 0.133333, 10: 0.566666}.items():
        tops = make_lists(
            *((row, top[:k]) for row, top in zip(rows, base, strict=True))
        )
        check_rows("RePlay", (of_base, tops, {k: 1 - expected}), precision=1e-5)
    check_rows(
        "RePlay", (of_base, make_lists(([1, 9], [1]), ([1, 9], [])), {2: 1 - 0.5 / 2})
    )


def test_catalog_metrics_of_replay():
    """Values are asserted in its `test_metrics.py`."""
    row = "CategoricalDiversity, topk=10, times 10 / n for n categories"
    recommended = [retrieved for retrieved, _ in REPLAY]
    items = sorted({item for row in recommended for item in row})
    queries = [(row, items) for row in recommended]
    labels, scores = make_lists(*queries)
    # Each item has its own category.
    order = [row + [item for item in items if item not in row] for row in recommended]
    categories = np.equal(np.array(order)[..., None], items).astype(float)
    assert np.array_equal(categories.sum(axis=2), labels)
    values = {3: 1.0 * 3 / 10, 5: 0.866666 * 5 / 10, 10: 0.43333}
    check_rows("RePlay", (row, (categories, scores), values), precision=1e-5)
    ids = [row + [-1] * (5 - len(row)) for row in recommended]
    of_items = np.where(np.equal(ids, -1), -1, np.searchsorted(items, ids))
    for k, expected in {3: 0.9, 5: 1.0}.items():
        coverage = make_metric("RePlay", "Coverage, topk=10", k, n=10)
        check_metric(coverage, expected, [of_items])
    known = np.zeros(12)
    for _, train in REPLAY:
        known[train] += 1
    popularity = {"users": 3, "users_who_know_it": np.maximum(known, 1)}
    surprisal = make_metric(
        "RePlay", "Surprisal, topk=10, times np.log2(users)", 3, **popularity
    )
    check_metric(surprisal, 0.719586 * math.log2(3), [np.array(ids)[:, :3]], 1e-5)


def test_evidently():
    """Values are asserted in its `tests/metrics/recsys`.

    Version 0.7.23 computed the values of the graded lists, in `FBetaTopK` too.
    """
    lists = [[1, 0, 0], [0, 0, 0], [0, 0, 1]], [[3.0, 2.0, 1.0]] * 3
    graded = [[1, 0, 3], [2, 3, -1]], [[3.0, 2.0, 1.0]] * 2
    values = {1: 0.5, 2: 0.5944065724, 3: 0.8009652367}
    check_rows(
        "Evidently",
        ("NDCG, k=10", lists, {1: 0.5, 2: 0.5, 3: 0.75}),
        ("NDCG, k=10", graded, values),
        ("MRR, k=10", lists, {1: 0.5, 2: 0.5, 3: 0.666666}),
        ("HitRate, k=10", lists, {1: 0.5, 2: 0.5, 3: 1.0}),
        ("MAP, k=10", lists, {1: 0.5, 2: 0.5, 3: 0.666666}),
        ("RecallTopK, k=10", lists, {1: 0.5, 2: 0.5, 3: 1.0}),
        ("PrecisionTopK, k=10", lists, {1: 0.5, 2: 0.25, 3: 0.333333}),
    )
    rows = "PrecisionTopK, k=10", "RecallTopK, k=10"
    precision, recall = (
        float(make_metric("Evidently", row, 3)(*lists)) for row in rows
    )
    for beta, expected in {1: 0.5, 2: 0.7142857143}.items():
        f_beta = (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
        assert f_beta == pytest.approx(expected, abs=1e-6)


def test_catalog_metrics_of_evidently():
    """Values are asserted in its `tests/metrics/recsys`.

    Version 0.7.23 computed ARP and novelty for users with the same number of items.
    """
    for row, expected in (
        ("PopularityBiasMetric, k=10", 1.1666667),
        ("Novelty, k=10", 2.8333333),
        ("Personalization, k=10", 0.6666667),
    ):
        check_metric(make_metric("Evidently", row, 2), expected, [RECOMMENDED])
    row = 'PopularityBiasMetric, k=10, metric="coverage"'
    for k, expected in {1: 1 / 3, 2: 2 / 3, 3: 1.0}.items():
        coverage = make_metric("Evidently", row, k, n=3)
        check_metric(coverage, expected, [[[0, 1, 2]] * 3])
    row = 'PopularityBiasMetric, k=10, metric="gini", times (n - 1) / n'
    gini = make_metric("Evidently", row, 2, n=3)
    check_metric(gini, 0.2 * (3 - 1) / 3, [[[2, -1], [1, 2], [0, 1]]])
    personal = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 1, 4]]
    metric = make_metric("Evidently", "Personalization, k=10", 4)
    check_metric(metric, 0.16666666, [personal])
    vectors = [[1, 0], [1, 0.1], [1, 1], [-0.1, 0.9], [1, 0.9], [-1, -1]]
    row = "Diversity, k=10, times 2 / (k - 1)"
    diversity = make_metric("Evidently", row, 4, vectors=vectors)
    recommended = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 4, 3, 5]]
    check_metric(diversity, 1.0963345075 * 2 / (4 - 1), [recommended])


def test_torchrec():
    """Values are asserted in its `torchrec/metrics/tests`.

    TorchRec 1.9.2 computed those of precision, recall, and NDCG without weights.
    """
    labels = np.array([[0, 1, 0, 0, 2], [2, 1, 0, -1, -1]])
    lists = labels, [[0.1, 0.2, 0.3, 0.4, 0.5], [0.1, 0.2, 0.3, 0, 0]]
    linear = "one minus NDCGMetric, k=10"
    exponential = "one minus NDCGMetric, k=10, exponential_gain=True"
    # The second list has no relevant items.
    empty = [[1, 0, 1], [0, 0, 0]], [[0.1, 0.5, 0.3]] * 2
    check_rows(
        "TorchRec",
        (linear, lists, {1: 0.5, 2: 0.5, 10: 0.7718956236}),
        (exponential, lists, {1: 0.5, 10: 1 - 0.2341346841}),
        (linear, empty, {10: (1 - 0.3066 + 0) / 2}, 1e-4),
    )
    # A list has the largest weight of its items, and the divisor is the number 2.
    for gain, expected in {"linear": 0.6463, "exponential": 0.6748}.items():
        values = functional.ndcg(*lists, k=10, gain_fn=gain)
        assert np.mean([2, 3] * (1 - values)) == pytest.approx(expected, abs=1e-4)
    labels = np.array([[1, 0, 1, 1], [0, 1, 0, -1], [0, 0, -1, -1]])
    scores, sizes = [[0.9, 0.8, 0.7, 0.6]] * 3, np.array([4, 3, 2])
    relevant = np.sum(labels == 1, axis=1)
    for k, precision, recall in (
        (1, 1 / 3, 0.25),
        (2, 1 / 3, 0.5),
        (3, 0.375, 0.75),
        (10, 4 / 9, 1.0),
    ):
        available = np.minimum(k, sizes)
        check_rows(
            "TorchRec",
            (
                "PrecisionSessionMetric, top_threshold=10",
                (labels, scores, available),
                {k: precision},
            ),
            (
                "RecallSessionMetric, top_threshold=10",
                (labels, scores, relevant),
                {k: recall},
            ),
        )


def test_pairs_and_classes_of_torchrec():
    """Values are asserted in its `torchrec/metrics/tests`.

    TorchRec 1.9.2 computed those without weights, and those of `MulticlassRecallMetric`
    and `RAUCMetric`.
    """
    # The data of a test of groups, whose value has weights of pairs.
    groups = [[1, 0, -1], [0, 1, 1]], [[0.2, 0.8, 0.0], [0.6, 0.4, 0.9]]
    hard = [[1, 1, -1], [1, 0, 0], [1, 0, 1]]
    scores = [[0.3, 0.9, 0.0], [0.1, 0.8, 0.2], [0.8, 0.7, 0.6]]
    ranked = [[2, 1, 4, 3], [0, 1, 2, -1]], [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 0]]
    one = [[0.2, 0.1, 0.3, 0.25]], [[0.1, 0.2, 0.3, 0.5]]
    classes = [
        [0.9, 0.1, 0, 0, 0],
        [0.1, 0.2, 0.25, 0.15, 0.3],
        [0, 1.0, 0, 0, 0],
        [0, 0, 0.2, 0.7, 0.1],
    ]
    recall = {1: 0.5, 2: 0.75, 3: 0.75, 4: 1.0}
    weighted = {1: 0.75, 2: 0.875, 3: 0.875, 4: 1.0}
    targets = [0, 3, 1, 2], classes
    row, rauc = (
        "MulticlassRecallMetric, at index 9",
        "RAUCMetric, grouped_rauc=True, without equal labels",
    )
    check_rows(
        "TorchRec",
        ("AUCMetric, grouped_auc=True", groups, 0.25),
        ("GAUCMetric", (hard, scores), 0.25),
        (rauc, ranked, 0.8333333),
        (rauc, ([[0, 1]], [[1.0, 1.0]]), 1.0),
        ("XAUCMetric, without equal labels", one, 0.6666667),
        (row, targets, recall),
        (row, (*targets, [1, 0.25, 0.5, 0.25]), weighted),
    )


def test_cornac():
    """Values are asserted in its `tests/cornac/metrics/test_ranking.py`.

    A tie, top 1, and cutoffs beyond the list size are by formula.
    """
    last, both = make_lists(([1, 2, 0], [2])), make_lists(([1, 2, 0], [0, 2]))
    best = make_lists(([0, 2, 1], [0, 2]))
    scores = [[0.1, 0.4, 0.35, 0.8]]
    ten = [[0, 1, 0, 1, 0, 1, 0, 0, 0, 0]], [-np.arange(10.0)]
    check_rows(
        "cornac",
        ("NDCG, k=10", last, {2: 0.63093, 1: 0.0}),
        ("NCRR, k=10", both, (1 / 3 + 1 / 2) / (1 + 1 / 2)),
        ("NCRR, k=10", last, {2: 0.5}),
        ("MRR", both, 1 / 2),
        ("HitRatio, k=10", last, {1: 0.0, 2: 1.0}),
        ("Precision, k=10", last, {2: 0.5, 10: 1 / 10}),
        ("Recall, k=10", last, {1: 0.0, 2: 1.0}),
        ("FMeasure, k=10", best, {3: 4 / 5}),
        ("FMeasure, k=10", last, {2: 2 / 3, 10: 2 * 1 / (10 + 1)}),
        ("AUC", ([[0, 0, 1, 1]], scores), 0.75),
        ("AUC", ([[0, 1, 0]], [[0.4, 0.4, 0.3]]), 1 / 2),
        ("MAP", ten, 0.5),
        precision=1e-5,
    )


@pytest.mark.filterwarnings("ignore:`y_pred` has .* NaN")
def test_realistic_ranks_of_pykeen():
    """Scores and expected ranks are those of its `test_evaluators.py`.

    NaN marks items that its filter removes, which have no rank here either.
    """
    first, third = [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]
    tied, known = [2.0, 2.0, 1.0, 3.0, 5.0], [1.0, 1.0, 3.0, np.nan, 0.0]
    labels, scores = [first, third, third], [tied, [1.0, 1.0, 3.0, 4.0, 0.0], known]
    whole, rest = (labels, scores), (labels[1:], scores[1:])
    check_rows(
        "PyKEEN",
        ("arithmetic_mean_rank, *realistic*, with ties", whole, (3.5 + 2 + 1) / 3),
        ("arithmetic_mean_rank, *optimistic*, with ties", whole, (3 + 2 + 1) / 3),
        ("arithmetic_mean_rank, *pessimistic*, with ties", whole, (4 + 2 + 1) / 3),
        ("arithmetic_mean_rank", rest, (2 + 1) / 2),
        ("inverse_harmonic_mean_rank", rest, (1 / 2 + 1) / 2),
        ("hits_at_10", rest, {1: (0 + 1) / 2}),
    )


# Values of pyxclib's `psprecision` and `psndcg` for the example of the page, by cutoff.
XCLIB = {1: (0.125, 0.125), 3: (0.68329718, 0.49445873), 5: (0.92190889, 0.568694)}


@pytest.mark.parametrize("k", XCLIB)
def test_xclib(k):
    """The page computes the values of xclib from quotients of results."""
    code = re.search(r"## xclib.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code.replace('"k": 3', f'"k": {k}'), names)
    assert (names["psp"], names["psndcg"]) == pytest.approx(XCLIB[k], abs=1e-6)


def test_kaggle():
    """The formula is the sum of precisions at the hits, divided by min(R, k)."""
    inputs = [[1, 0, 1, 0, 1, 1]], [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]
    check_rows("Kaggle", ("MAP@10", inputs, {3: (1 + 2 / 3) / 3}))


def test_own_metrics_of_beir():
    """Formulas are in its `custom_metrics.py`. Its other metrics use pytrec_eval."""
    inputs = make_lists(
        ("adbc", {"a": 0, "b": 2, "c": 1, "x": 1, "y": 1}), ("bca", {"a": 1})
    )
    capped, ranks = "R_cap@10, R_cap_at_10", "MRR@10, mrr_at_10"
    check_rows(
        "BEIR and MTEB",
        (capped, inputs, {3: (1 / 3 + 1 / 1) / 2, 2: (0 / 2 + 0 / 1) / 2}),
        (ranks, inputs, {3: (1 / 3 + 1 / 3) / 2, 2: 0}),
        (ranks, LAST_OF_TIED, 1 / 10),
        (capped, FIRST_OF_TIED, {1: 1}),
        ("Accuracy@10, hit_rate_at_10", FIRST_OF_TIED, {1: 1}),
    )


def test_information_retrieval_evaluator_of_sentence_transformers():
    """Formulas are in its `InformationRetrievalEvaluator.py`."""
    inputs = make_lists(("bacd", "acxy"), ("ab", "a"))
    ndcg = ((SECOND + THIRD) / (1 + SECOND + THIRD) + 1) / 2
    recall = {1: (0 / 4 + 1 / 1) / 2, 3: (2 / 4 + 1 / 1) / 2}
    average = ((1 / 2 + 2 / 3) / 3 + 1) / 2
    check_rows(
        "sentence-transformers",
        ("InformationRetrievalEvaluator, accuracy@10", inputs, {1: (0 + 1) / 2}),
        ("InformationRetrievalEvaluator, precision@10", inputs, {3: (2 + 1) / 3 / 2}),
        ("InformationRetrievalEvaluator, recall@10", inputs, recall),
        ("InformationRetrievalEvaluator, ndcg@10", inputs, {3: ndcg}),
        ("InformationRetrievalEvaluator, mrr@10", inputs, {1: 1 / 2, 2: 3 / 4}),
        ("InformationRetrievalEvaluator, map@10", inputs, {3: average}),
    )


def test_llama_index():
    """Values are asserted in its `tests/evaluation/test_metrics.py`."""
    perfect, missing = make_lists(("cabd", "abc")), make_lists(("ea", "abcd"))
    check_rows(
        "llama_index",
        ("hit_rate", perfect, 1.0),
        ("hit_rate, use_granular_hit_rate", make_lists(("aeb", "abcd")), 2 / 4),
        ("mrr", missing, 1 / 2),
        ("precision", missing, 1 / 2),
        ("recall", missing, 1 / 4),
        ("ap", missing, (0 + 1 / 2) / 4),
        ("ap", make_lists(("agob", "ab")), (1 / 1 + 2 / 4) / 2),
        ("ndcg", missing, SECOND / (1 + SECOND + THIRD + 1 / math.log2(5))),
    )


def test_haystack():
    """Values are asserted in its `test/components/evaluators`."""
    queries = [("a", "a"), ("abc", "ac"), ("abc", "xa"), ("abc", "cb"), ("abc", "x")]
    lists = make_lists(*queries, ("abcd", "ac"))
    several = make_lists(*queries[:4], ("abc", "abcx"), ("abcd", "ac"))
    queries[1:3] = ("bac", "ac"), ("bca", "xa")
    ranked = make_lists(*queries, ("abcd", "ac"))
    graded = make_lists(([1, 2, 3, 4, 5], {1: 3, 2: 2, 3: 3, 6: 2, 7: 3, 8: 2}))
    check_rows(
        "haystack",
        ("DocumentMAPEvaluator", lists, 0.625),
        ('DocumentRecallEvaluator, mode="single_hit"', lists, 5 / 6),
        ('DocumentRecallEvaluator, mode="multi_hit"', several, 0.875),
        ("DocumentMRREvaluator", ranked, (1 + 1 / 2 + 1 / 3 + 1 / 2 + 0 + 1) / 6),
        ("DocumentNDCGEvaluator", graded, 0.6592, 1e-4),
    )


def test_mlflow():
    """Values are asserted in its `tests/metrics/test_metric_definitions.py`.

    Metrics of top 1 are by formula.
    """
    some = make_lists(("ab", "ab"), ("cd", "cb"), ("e", "e"), ("fg", "c"))
    more = make_lists(("ab", "abcd"), ("cde", "cbad"), ("fg", ""), ("a", "ac"))
    recall = {1: (1 / 4 + 1 / 4 + 0 + 0.5) / 4, 4: (0.5 + 0.5 + 0 + 0.5) / 4}
    check_rows(
        "mlflow",
        ("precision_at_k(10)", some, {1: 3 / 4, 4: 2.5 / 4}),
        ("recall_at_k(10)", more, recall),
        ("ndcg_at_k(10)", make_lists(("451", "123")), {2: 0.0, 3: 0.2346394}),
    )


def test_pytorch_metric_learning():
    """Formulas are in its `accuracy_calculator.py`."""
    inputs = [[1, 0, 1, 0, 1], [0, 1, 1, 0, 0]], [[5.0, 4.0, 3.0, 2.0, 1.0]] * 2
    average = ((1 + 2 / 3) / 2 + (1 / 2 + 2 / 3) / 2) / 2
    check_rows(
        "pytorch-metric-learning",
        ("mean_average_precision_at_r", inputs, ((1 + 2 / 3) / 3 + (1 / 2) / 2) / 2),
        ("r_precision", inputs, (2 / 3 + 1 / 2) / 2),
        ("mean_average_precision, k=10", inputs, {3: average}),
        ("precision_at_1", inputs, (1 + 0) / 2),
    )


# Libraries that are installed, with lists that have relevant items and no ties.


@pytest.fixture(scope="module")
def lists():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, size=(30, 12)) * (rng.random((30, 12)) < 0.5)
    labels[:, 0] = np.maximum(labels[:, 0], 1)
    scores = rng.permuted(np.tile(np.arange(12.0), (30, 1)), axis=1) + 1.0
    return labels.astype("float32"), scores.astype("float32")


K = 5


def binary(lists):
    return (lists[0] >= 1).astype(int)


def has_both_labels(labels):
    return (labels.min(axis=1) == 0) & (labels.max(axis=1) == 1)


def tied_scores(lists):
    """Returns scores of the lists with four values, which tie."""
    levels = np.random.default_rng(4).integers(0, 4, size=lists[1].shape)
    return levels.astype("float32")


def make_dicts(rows, is_present):
    """Returns the items of each row that are present, by descending ids."""
    items_by_query = {}
    for i, (row, present) in enumerate(zip(rows.tolist(), is_present, strict=True)):
        items = zip("lkjihgfedcba", row, strict=True)
        items_by_query[f"q{i}"] = dict(itertools.compress(items, present))
    return items_by_query


def mean_over_lists(function, labels, scores, **arguments):
    pairs = zip(labels, scores, strict=True)
    return np.mean([function(*pair, **arguments) for pair in pairs])


@pytest.mark.slow
def test_sklearn(lists):
    from sklearn import metrics as theirs

    labels, scores, tied = binary(lists), lists[1], tied_scores(lists)
    mixed = has_both_labels(labels)
    for each in (scores, tied):
        graded, pairs = (lists[0], each), (labels[mixed], each[mixed])
        dcg_of_base_3 = theirs.dcg_score(*graded, k=K, log_base=3)
        area = mean_over_lists(theirs.roc_auc_score, *pairs)
        loss = theirs.label_ranking_loss(*pairs)
        name = "the mean of roc_auc_score over lists with labels of 0 and 1"
        check_rows(
            "scikit-learn",
            ("ndcg_score, k=10", graded, {K: theirs.ndcg_score(*graded, k=K)}),
            ("dcg_score, k=10", graded, {K: theirs.dcg_score(*graded, k=K)}, 1e-5),
            ("dcg_score, k=10, log_base=3", graded, {K: dcg_of_base_3}, 1e-5),
            (name, (labels, each), area),
            ("1 minus label_ranking_loss", (labels, each), 1 - loss),
        )
    targets = np.random.default_rng(5).integers(0, 12, size=len(scores))
    hits = theirs.top_k_accuracy_score(targets, scores, k=K, labels=range(12))
    top = (scores > np.sort(scores)[:, [-1 - K]]).astype(int)
    several = {"beta": 2, "zero_division": 0}
    f_beta = mean_over_lists(theirs.fbeta_score, labels, top, **several)
    name = "the mean of fbeta_score over lists, with the top 10 as predictions, beta=2"
    average = mean_over_lists(theirs.average_precision_score, labels, scores)
    # A list without relevant items keeps its weight.
    empty = lists[0].copy()
    empty[:7] = 0.0
    weights = np.linspace(0.5, 5.0, len(empty))
    ndcg = theirs.ndcg_score(empty, tied, k=K, sample_weight=weights)
    check_rows(
        "scikit-learn",
        ("top_k_accuracy_score, k=10", (targets, scores), {K: hits}),
        (name, lists, {K: f_beta}),
        ("the mean of average_precision_score over lists", lists, average),
        ("ndcg_score, k=10, sample_weight", (empty, tied, weights), {K: ndcg}),
    )
    ranking = theirs.label_ranking_average_precision_score(
        (empty >= 1).astype(int), scores, sample_weight=weights
    )
    row, own = "label_ranking_average_precision_score", 'empty_weight="own"'
    check_rows("scikit-learn", (row, (empty, scores, weights), ranking), more=own)


@pytest.mark.slow
def test_scipy(lists):
    from scipy import stats

    tied = lists[0], np.floor(lists[1] / 3)
    for row, theirs in (
        ("the mean of kendalltau over lists", stats.kendalltau),
        ("the mean of spearmanr over lists", stats.spearmanr),
    ):
        for each in (lists, tied):
            expected = mean_over_lists(lambda *x, f=theirs: f(*x).statistic, *each)
            check_metric(make_metric("SciPy", row), expected, each)


@pytest.mark.slow
def test_torchmetrics(lists):
    import torch
    from torchmetrics import retrieval

    labels = binary(lists)
    labels[0] = 1
    mixed = has_both_labels(labels)
    tied = np.floor(lists[1] / 3) + 1.0
    adaptive = "RetrievalPrecision, top_k=10, adaptive_k=True"
    for row, batch, arguments in (
        ("RetrievalMAP, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalMRR, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalPrecision, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalPrecision, top_k=10", (labels, lists[1]), {"top_k": 20}),
        (adaptive, (labels, lists[1]), {"top_k": 20, "adaptive_k": True}),
        ("RetrievalRecall, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalHitRate, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalRPrecision", (labels, lists[1]), {}),
        ("RetrievalFallOut, top_k=10", (labels, lists[1]), {"top_k": K}),
        ("RetrievalAUROC", (labels[mixed], tied[mixed]), {}),
        ("RetrievalNormalizedDCG, top_k=10", (lists[0], tied), {"top_k": K}),
    ):
        y_true, y_pred = map(torch.as_tensor, batch)
        indexes = torch.arange(len(y_true))[:, None].expand_as(y_true)
        theirs = getattr(retrieval, row.split(",")[0])(**arguments)
        expected = theirs(y_pred, y_true.int(), indexes=indexes)
        check_metric(
            make_metric("torchmetrics", row, arguments.get("top_k", 10)),
            expected,
            batch,
        )


@pytest.mark.slow
def test_what_torchmetrics_ignores():
    """Four metrics ignore items with scores of 0 or less, as the page documents."""
    import torch
    from torchmetrics import retrieval

    rng = np.random.default_rng(0)
    scores, lists = rng.normal(size=60), torch.arange(60) // 10
    labels = torch.as_tensor(rng.integers(0, 2, 60))
    above, below = (torch.as_tensor(scores + shift) for shift in (10, -10))
    ignore = {"RetrievalMAP", "RetrievalMRR", "RetrievalPrecision", "RetrievalRecall"}
    for name in retrieval.__all__:
        metric = getattr(retrieval, name)()
        # Values are compared as strings, as some values have several tensors.
        one, other = (str(metric(x, labels, indexes=lists)) for x in (above, below))
        assert (one == other) == (name not in ignore), name


@pytest.mark.slow
def test_ranx(lists):
    from ranx import Qrels, Run, evaluate

    labels, scores = lists
    # Each list has relevant and irrelevant items that are not retrieved.
    scores = np.where(np.arange(12) % 5 == 1, -np.inf, scores)
    both = labels.astype(int), binary(lists)
    qrels, ones = (Qrels(make_dicts(x, x >= 0)) for x in both)
    run = Run(make_dicts(scores, scores >= 0))
    for row in ROWS["ranx"]:
        measure, *_ = row.partition(", on ")
        measure, _, divisor = measure.partition(" divided by ")
        judgments = ones if "binary labels" in row else qrels
        for k in (K, 20):
            expected = evaluate(judgments, run, measure.replace("@10", f"@{k}"))
            expected = float(expected) / float(divisor or 1)
            check_metric(make_metric("ranx", row, k), expected, (labels, scores), 1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")  # a warning of ignite
def test_ignite(lists):
    import torch
    from ignite.metrics import rec_sys

    labels = lists[0].copy()
    labels[2] = 0.0
    y_pred, y_true = torch.as_tensor(lists[1]), torch.as_tensor(labels)
    for row, theirs in (
        ("NDCG, top_k=[10]", rec_sys.NDCG(top_k=[K])),
        ("HitRate, top_k=[10]", rec_sys.HitRate(top_k=[K])),
    ):
        theirs.update((y_pred, y_true))
        check_metric(
            make_metric("ignite", row, K), theirs.compute()[0], (labels, lists[1])
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # by keras-rs
def test_keras_rs(lists):
    import keras_rs

    rng = np.random.default_rng(5)
    labels = lists[0].copy()
    labels[2] = 0.0
    for values, shape in (([0.5, 1.0, 3.0], 30), ([0.0, 0.5, 3.0], labels.shape)):
        weights = rng.choice(values, shape).astype("float32")
        for row, k in itertools.product(ROWS["keras-rs"], (K, None)):
            theirs = eval(row.replace("k=10", f"k={k}"), {"keras_rs": keras_rs})
            batch = labels, lists[1], weights
            actual = float(make_metric("keras-rs", row, k)(*batch))
            assert actual == pytest.approx(float(theirs(*batch)), rel=2e-6), row


@pytest.mark.slow
def test_pytrec_eval(lists):
    """The data have ties, judgments below 0, and unjudged or unretrieved documents."""
    import pytrec_eval

    rng = np.random.default_rng(6)
    judgments = lists[0].astype(int)
    judgments[:, 1:] -= 2 * (rng.random((len(judgments), 11)) < 0.2)
    is_judged = rng.random(judgments.shape) < 0.7
    is_judged[:, 0] = True
    is_retrieved = rng.random(judgments.shape) < 0.8
    ties = rng.integers(1, 9, size=judgments.shape).astype("float32")
    labels = np.where(is_judged, np.maximum(judgments, 0), 0)
    scores = np.where(is_retrieved, ties, -np.inf)
    qrels, run = make_dicts(judgments, is_judged), make_dicts(ties, is_retrieved)
    # bpref ignores items without a judgment of at least 0, which are padding here.
    known = np.where(is_judged, np.maximum(judgments, -1), -1)
    cutoffs, library = (K, 20), "trec_eval and pytrec_eval"
    measures = {row.replace("10", str(k)) for row in ROWS[library] for k in cutoffs}
    topics = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run).values()

    def average_topics(measure, k):
        return np.mean([topic[measure.replace(".10", f"_{k}")] for topic in topics])

    for k in cutoffs:
        for row in ROWS["trec_eval and pytrec_eval"]:
            judged = known if row == "bpref" else labels
            check_metric(
                make_metric(library, row, k),
                average_topics(row, k),
                (judged, scores),
                1e-5,
            )
        for row, measure in (
            ("NDCG@10, ndcg_at_10", "ndcg_cut.10"),
            ("MAP@10, map_at_10", "map_cut.10"),
            ("Recall@10, recall_at_10", "recall.10"),
            ("P@10, precision_at_10", "P.10"),
            ("Accuracy@10, hit_rate_at_10", "success.10"),
        ):
            metric = make_metric("BEIR and MTEB", row, k)
            check_metric(metric, average_topics(measure, k), (labels, scores), 1e-5)


@pytest.mark.slow
def test_reranking_of_sentence_transformers(lists):
    """Values are those of scikit-learn, and reciprocal ranks are by formula."""
    from sklearn.metrics import average_precision_score, ndcg_score

    labels, tied = binary(lists), tied_scores(lists)
    average = mean_over_lists(average_precision_score, labels, lists[1])
    order = np.argsort(-lists[1], axis=1)
    firsts = 1 + np.argmax(np.take_along_axis(labels, order, axis=1), axis=1)
    reciprocal = np.mean(np.where(firsts <= K, 1 / firsts, 0))
    ndcg = ndcg_score(labels, tied, k=K)
    check_rows(
        "sentence-transformers",
        ("RerankingEvaluator, ndcg@10", (labels, tied), {K: ndcg}),
        ("RerankingEvaluator, map", lists, average),
        ("RerankingEvaluator, mrr@10", lists, {K: reciprocal}),
    )


@pytest.mark.slow
@pytest.mark.programs
def test_rax(lists):
    import rax

    labels, scores = lists
    tied = tied_scores(lists)
    unretrieved = np.where(np.arange(12) % 5 == 1, -np.inf, scores)
    for row in ROWS["rax"]:
        name, takes_cutoff, _ = row.partition(", topn=10")
        for each, k in itertools.product((scores, tied, unretrieved), (K, 12)):
            options = {"topn": k} if takes_cutoff else {}
            expected = getattr(rax, name)(each, labels, **options)
            actual = make_metric(
                "rax", row, k, "shuffle_ties=False" if takes_cutoff else None
            )
            check_metric(actual, expected, (labels, each), 1e-5)
    # The page documents the factor between weighted values.
    weights = np.random.default_rng(5).choice([0.5, 1.0, 3.0], labels.shape)
    weights = weights.astype("float32")
    gains = 2.0**labels - 1.0
    list_weights = np.sum(weights * gains, axis=1) / np.sum(gains, axis=1)
    for name, factor in (("ndcg", 1.0), ("dcg", list_weights)):
        actual = getattr(functional, name)(labels, scores, sample_weight=weights, k=K)
        theirs = getattr(rax, f"{name}_metric")
        expected = float(theirs(scores, labels, topn=K, weights=weights))
        assert np.mean(actual * factor) == pytest.approx(expected, rel=1e-5)


def test_every_call_on_the_page_is_a_call():
    names = {**NAMES, **CATALOG, "discounts": discounts, "math": math}
    calls = CALL.findall(PAGE.read_text())
    assert len(calls) > 150
    for call in calls:
        assert isinstance(eval(call, names), keras.metrics.Metric), call


@pytest.mark.parametrize("library", ROWS)
def test_every_row_of_the_page_is_tested(library):
    """A test names the library, and the row or all rows of the library."""
    tests = re.split(r"^def ", pathlib.Path(__file__).read_text(), flags=re.MULTILINE)
    tests = [test for test in tests if f'"{library}"' in test]
    if not any(f'ROWS["{library}"]' in test for test in tests):
        quoted = {row: (f'"{row}"', f"'{row}'") for row in ROWS[library]}
        for row, names in quoted.items():
            assert any(name in test for test in tests for name in names), row
