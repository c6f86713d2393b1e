"""What other libraries compute, by the constructor calls of docs/dialects.md.

The calls are read from the page. A library that is not installed has the values that it
asserts in its own tests or documentation, or its formula, as each test says.
"""

import math
import pathlib
import re

import keras
import numpy as np
import pytest
from keras import ops
from registry import IS_SLOW

from keras_rank import catalogue, discounts, functional, metrics

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "dialects.md"
NAMES = {name: getattr(metrics, name) for name in metrics.__all__}
CALL = re.compile(r"`((?:[A-Z]\w+)\(.*?\))`")


def rows_by_library():
    """The calls of the page, by library and by the name that they have there."""
    sections = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    rows = {}
    for library, text in zip(sections[::2], sections[1::2], strict=True):
        cells = re.findall(r"^\| (.+) \| (.+) \|$", text, flags=re.MULTILINE)
        calls = {name.replace("`", ""): CALL.match(call) for name, call in cells}
        rows[library] = {name: call[1] for name, call in calls.items() if call}
    return {library: calls for library, calls in rows.items() if calls}


ROWS = rows_by_library()


# What the page takes as given of a catalogue.
GIVEN = {
    "n": 5,
    "interactions": np.array([1, 1, 2, 3, 1]),
    "quantiles": np.array([0.25, 0.25, 0.75, 1.0, 0.0]),
    "users_who_know_it": np.array([1, 1, 2, 3, 1]),
    "users": 8,
}


def named(library, row, k=10, more=None, **given):
    """The metric that the page names, with another cutoff and `more` arguments."""
    call = ROWS[library][row].replace("k=10", f"k={k}")
    if more:
        call = f"{call[:-1]}, {more})".replace("(, ", "(")
    return eval(call, {**NAMES, "discounts": discounts, **GIVEN, **given})


def agree(metric, expected, lists, precision=2e-6):
    metric.reset_state()
    assert float(metric(*lists)) == pytest.approx(float(expected), abs=precision)


def lists_of(*queries):
    """Labels and scores of queries: the ids retrieved, in order, and the relevant ones.

    These are a list, or a dict with their labels.
    """
    labels, scores = [], []
    for retrieved, relevant in queries:
        grades = relevant if isinstance(relevant, dict) else dict.fromkeys(relevant, 1)
        missing = [item for item in grades if item not in retrieved]
        labels.append([float(grades.get(item, 0)) for item in [*retrieved, *missing]])
        ranks = [-float(rank) for rank, _ in enumerate(retrieved)]
        scores.append(ranks + [-math.inf] * len(missing))
    return labels, scores


# Ten items with the same score, of which one is relevant.
FIRST_OF_TIED = [[1] + [0] * 9], [[1.0] * 10]
LAST_OF_TIED = [[0] * 9 + [1]], [[1.0] * 10]


def one(function, *inputs, **arguments):
    return float(function(*inputs, **arguments)[0])


# The list that all dialects read: labels in the order of the scores.
GOLDEN = [[0, 2, 1, 0, 3]], [[5.0, 4.0, 3.0, 2.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 0.254747),
        ({"gain_fn": "linear"}, 0.369994),
        ({"gain_fn": "linear", "rank_discount_fn": "clipped_log2"}, 0.467228),
        ({"gain_fn": lambda y: ops.cast(y >= 1, "float32")}, 0.530721),
        (
            {
                "gain_fn": lambda y: ops.cast(y >= 1, "float32"),
                "rank_discount_fn": "clipped_log2",
            },
            0.619906,
        ),
    ],
)
def test_ndcg_in_all_dialects(arguments, expected):
    assert one(functional.ndcg, *GOLDEN, k=3, **arguments) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [("total", 0.5 / 3), ("clipped", 0.25), ("retrieved", 0.5)],
)
def test_average_precision_in_all_dialects(normalizer, expected):
    found = one(functional.average_precision, *GOLDEN, k=2, normalizer=normalizer)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [
        ("total", (1 + 2 / 3) / 4),
        ("clipped", (1 + 2 / 3) / 3),
        ("retrieved", (1 + 2 / 3) / 2),
    ],
)
def test_misses_are_free_to_torchmetrics_alone(normalizer, expected):
    inputs = [[1, 0, 1, 0, 1, 1]], [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]
    found = one(functional.average_precision, *inputs, k=3, normalizer=normalizer)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("denominator", "expected"), [("k", 0.3), ("available", 0.6), ("retrieved", 0.6)]
)
def test_precision_at_10_of_5_items(denominator, expected):
    found = one(functional.precision, *GOLDEN, k=10, denominator=denominator)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("denominator", "expected"), [("k", 0.1), ("available", 0.2), ("retrieved", 1 / 3)]
)
def test_precision_at_10_of_3_retrieved_items(denominator, expected):
    scores = [[-math.inf, 5.0, 2.0, -math.inf, 1.0]]
    arguments = {"k": 10, "denominator": denominator}
    found = one(functional.precision, [[1, 0, 1, 0, 0]], scores, **arguments)
    assert found == pytest.approx(expected)


# By values and formulas of libraries that are not installed, or do not have to be.

by_values = pytest.mark.skipif(IS_SLOW, reason="the laws say that backends agree")


@by_values
def test_tf_ranking():
    """Asserted in its `metrics_test.py`; precision, MRR, NDCG, top 1 by formula."""
    scores = [[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]
    labels = [[0, 0, 1], [0, 1, 2]]
    weights = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    second = 1 / math.log2(3)
    for row, k, expected in (
        ("NDCGMetric, topn=10", 3, (second + 1) / 2),
        ("DCGMetric, topn=10", 3, (second + (3 + second)) / 2),
        ("MeanAveragePrecisionMetric, topn=10", 2, (1 / 2 + 1) / 2),
        ("MRRMetric, topn=10", 2, (1 / 2 + 1) / 2),
        ("PrecisionMetric, topn=10", 2, (1 / 2 + 2 / 2) / 2),
        ("HitsMetric, topn=10", 1, (0 + 1) / 2),
        ("NDCGMetric, topn=10", 1, (0 + 1) / 2),
        ("DCGMetric, topn=10", 1, (0 + 3) / 2),
        ("MeanAveragePrecisionMetric, topn=10", 1, (0 + 1 / 2) / 2),
        ("MRRMetric, topn=10", 1, (0 + 1) / 2),
    ):
        agree(named("TF-Ranking", row, k), expected, (labels, scores))
    recall = named("TF-Ranking", "RecallMetric, topn=10", 2)
    agree(recall, (1 / 2 + 2 / 2) / 2, ([[1, 0, 1], [0, 1, 2]], scores))
    hits = named("TF-Ranking", "HitsMetric, topn=10", 1)
    agree(hits, 5.5 / (3.0 + 5.5), (labels, scores, weights))
    dcg = named("TF-Ranking", "DCGMetric, topn=10")
    weighted = (second + (3 + 2 * second)) / (1 + (3 * 1 + 1 * 2) / (3 + 1))
    agree(dcg, weighted, (labels, scores, [[1.0, 1.0, 1.0], [2.0, 2.0, 1.0]]))
    judged = [[0, 0, 1], [1, 0, 2]], scores
    for k, expected in ((3, (0 + 1 / 2) / 2), (1, (0 + 1 / 2) / 2)):
        agree(named("TF-Ranking", "BPrefMetric, topn=10", k), expected, judged)
    first = named("TF-Ranking", "BPrefMetric, topn=10", 1)
    agree(first, (1 + 0) / 2, ([[1, 1]], [[2.0, 1.0]]))
    bpref = named("TF-Ranking", "BPrefMetric, topn=10")
    agree(bpref, (3 * 0 + 5 * 1 / 2) / (3 + 5), (*judged, weights))


@by_values
def test_lists_that_tf_ranking_weighs():
    """Asserted in its `metrics_test.py`; ties, and weights of pairs, by formula."""
    scores = [[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]
    labels = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    arp = named("TF-Ranking", "ARPMetric")
    agree(arp, (2 + 2 * 1 + 1 * 2) / 4, (labels, scores, labels.sum(axis=1)))
    # A label below 1 counts too.
    expected = (0.5 * 2 + 2 * 1 + 0.5 * 2) / 3
    agree(arp, expected, ([[0, 0, 0.5], [0, 0.5, 2]], scores, [0.5, 2.5]))
    gains = labels * weights
    expected = (3 * 1 * 2 + 6 * 2 * 1 + 5 * 1 * 2) / (3 + 12 + 5)
    agree(arp, expected, (gains, scores, gains.sum(axis=1)))
    pairs = np.array([2.0, 3.0])
    agree(named("TF-Ranking", "OPAMetric"), (1 + 3) / (2 + 3), (labels, scores, pairs))
    expected = (3 + (5 + 6 + 6)) / (3 + 3 + (5 + 6 + 6))
    values = functional.pairwise_accuracy(
        labels, scores, sample_weight=weights, tied_value=0.0
    )
    values = ops.convert_to_numpy(values)
    assert np.average(values, weights=[3 + 3, 5 + 6 + 6]) == pytest.approx(expected)
    tied = [[1.0, 1.0, 1.0], [1.0, 2.0, 2.0]]
    agree(named("TF-Ranking", "OPAMetric"), (0 + 2) / (2 + 3), (labels, tied, pairs))


@by_values
def test_position_weighted_average_of_tf_ranking():
    """Asserted in its `metrics_test.py`."""
    labels = [[1, 2, 0], [2, 0, 1], [0, 2, 1]]
    dcg = metrics.DCG(k=2, gain_fn="linear", rank_discount_fn="reciprocal")
    expected = (2 + 2 + 1) / (3 / 2) / 3
    value = float(dcg(labels, [[3.0, 2.0, 1.0]] * 3)) / (1 + 1 / 2)
    assert value == pytest.approx(expected)


@by_values
def test_subtopics_of_tf_ranking():
    """Asserted in its `metrics_test.py`."""
    scores, second = [[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]], 1 / math.log2(3)
    labels = [[[0, 0], [0, 1], [0, 1]], [[0, 0], [1, 0], [1, 1]]]
    one, both = (labels[:1], scores[:1]), (labels, scores)
    alpha_dcg = named("TF-Ranking", "AlphaDCGMetric, topn=10")
    values = 1 + second / 2, 2 + second / 2
    agree(alpha_dcg, values[0], one)
    agree(alpha_dcg, np.mean(values), both)
    agree(alpha_dcg, values[0], (*both, [1.0, 0.0]))
    weights = [[1.0, 2.0, 3.0]]
    agree(alpha_dcg, (2 + 3 * second / 2) / 2.5, (*one, weights))
    agree(named("TF-Ranking", "AlphaDCGMetric, topn=10", 1), 2 / 2.5, (*one, weights))
    how = 'alpha=0.2, rank_discount_fn="reciprocal"'
    other = named("TF-Ranking", "AlphaDCGMetric, topn=10", more=how)
    agree(other, 1 + 0.8 / 2, one)
    labels = [[[0, 0], [0, 0], [1, 0]], [[0, 0], [1, 0], [1, 1]]]
    for k, expected in ((10, 1 / 3), (1, 0), (2, 1 / 2)):
        precision = named("TF-Ranking", "PrecisionIAMetric, topn=10", k)
        agree(precision, expected, (labels[:1], scores[:1]))
    precision = named("TF-Ranking", "PrecisionIAMetric, topn=10")
    agree(precision, (1 / 3 + 3 / 6) / 2, (labels, scores))


@by_values
def test_ndeval():
    """The example of pyndeval's README, which cuts off the digits that follow."""
    subtopics = {"A": [1, 0, 0], "B": [0, 1, 0], "C": [0, 0, 1], "D": [0, 1, 0]}
    labels = [[subtopics.get(item, [0, 0, 0]) for item in "ADEBC"]]
    scores = [[9.3, 8.4, 8.1, 7.6, -math.inf]]
    expected = {"alpha-nDCG": 0.7868, "alpha-DCG": 0.4052, "ERR-IA": 0.3933}
    expected |= {"P-IA": 0.2, "strec": 0.6666}
    for row in ROWS["ndeval, pyndeval"]:
        metric, value = named("ndeval, pyndeval", row, 5), expected[row[:-3]]
        agree(metric, value, (labels, scores), precision=1e-4)


@by_values
def test_allrank():
    """Asserted in its `test_ndcg.py` and `test_mrr.py`; DCG by formula.

    An empty list has the default of `filler_value` in its `metrics.py`.
    """
    inputs = [[1, 0, 1]], [[0.5, 0.2, 0.1]]
    for k, expected in ((1, 1.0), (2, 1 / (1 + 1 / math.log2(3)))):
        agree(named("allRank", "ndcg, ats=[10]", k), expected, inputs)
    padded = [[0, 1, -1]], [[0.5, 0.2, 1.0]]
    agree(named("allRank", "ndcg, ats=[10]"), 1 / math.log2(3), padded)
    agree(named("allRank", "ndcg, ats=[10]"), 1.0, ([[0, 0]], [[0.5, 0.2]]))
    graded = [[2, 0, 1]], [[0.5, 0.2, 0.1]]
    for k, expected in ((1, 3), (10, 3 + 1 / math.log2(4))):
        agree(named("allRank", "dcg, ats=[10]", k), expected, graded)
    mrr = "mrr, ats=[10], on labels of 0 and 1"
    for k, expected in ((1, (1 + 0) / 2), (2, (1 + 1 / 2) / 2)):
        inputs = [[0, 1], [0, 1]], [[0.2, 0.5], [0.5, 0.2]]
        agree(named("allRank", mrr, k), expected, inputs)


@by_values
def test_xgboost():
    """Asserted in its `tests/cpp/metric/test_rank_metric.h`.

    Weights, many ties and the top 1 are by the formulas of its `rank_metric.cc`.
    """
    tied = [[0, 0, 1, 1]], [[0.1, 0.9, 0.1, 0.9]]
    graded = [[10, 0, 0, 1, 5]], [[0.1, 0.2, 0.3, 4.0, 70.0]]
    groups = [[1, 1], [1, 0, 1], [0]], [[0.1, 0.9], [0.2, 0.8, 0.4], [1.7]]
    six = [[0, 1, 0, 0, 1, 1]], [[0.2, 0.3, 0.4, 0.5, 0.6, 0.7]]
    for row, k, inputs, expected in (
        ("ndcg@10", 32, tied, 0.6509),
        ("ndcg@10", 2, tied, 0.3868),
        ("ndcg@10-", 2, tied, 0.3868),
        ("ndcg@10", 32, graded, 0.409738),
        ("ndcg@10, ndcg_exp_gain=False", 32, graded, 0.695694),
        ("ndcg@10", 32, ([[0]], [[1.0]]), 1.0),
        ("ndcg@10-", 32, ([[0]], [[1.0]]), 0.0),
        ("map@10", 32, tied, 0.5),
        ("map@10", 2, tied, 0.25),
        ("map@10", 32, groups, 0.8611),
        ("map@10-", 32, groups, (1 + (1 / 2 + 2 / 3) / 2 + 0) / 3),
        ("pre@10", 2, tied, 0.5),
        ("pre@10", 4, six, 0.5),
        ("ndcg@10, ndcg_exp_gain=False", 1, graded, 5 / 10),
        ("ndcg@10, ndcg_exp_gain=False", 32, ([[0]], [[1.0]]), 1.0),
        ("ndcg@10, ndcg_exp_gain=False", 32, LAST_OF_TIED, 1 / math.log2(11)),
        ("map@10", 32, LAST_OF_TIED, 1 / 10),
        ("map@10-", 32, LAST_OF_TIED, 1 / 10),
        ("map@10", 1, groups, (1 + 0 + 1) / 3),
        ("map@10-", 1, groups, (1 + 0 + 0) / 3),
        ("pre@10", 1, FIRST_OF_TIED, 1.0),
    ):
        agree(named("XGBoost", row, k), expected, inputs, 1e-4)
    inputs = [[0, 1], [0, 0]], [[2.0, 1.0], [2.0, 1.0]], [1.0, 4.0]
    for row, expected in (
        ("ndcg@10-", (1 / math.log2(3) + 4 * 0) / 5),
        ("map@10", (1 / 2 + 4 * 1) / 5),
        ("map@10-", (1 / 2 + 4 * 0) / 5),
        ("pre@10", (1 / 2 + 4 * 0) / 5),
    ):
        agree(named("XGBoost", row, more='empty_weight="own"'), expected, inputs)


@by_values
def test_lightgbm():
    """By the formulas of its `rank_metric.hpp`, `map_metric.hpp`, `metadata.cpp`."""
    second, third = 1 / math.log2(3), 1 / 2
    inputs = [[1, 0, 3], [0, 0, 0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    tied = [[0, 1, 1, 0]], [[1.0, 1.0, 2.0, 2.0]]
    gain = "ndcg, label_gain=[0, 1, 2, ...]"
    for row, k, lists, expected in (
        ("ndcg, eval_at=[10]", 5, inputs, ((1 + 7 * third) / (7 + second) + 1) / 2),
        ("ndcg, eval_at=[10]", 2, inputs, (1 / (7 + second) + 1) / 2),
        (gain, 5, inputs, ((1 + 3 * third) / (3 + second) + 1) / 2),
        ("ndcg, eval_at=[10]", 2, tied, 1 / (1 + second)),
        ("map, eval_at=[10]", 2, inputs, (1 / 2 + 1) / 2),
        ("map, eval_at=[10]", 5, tied, (1 + 2 / 4) / 2),
        (gain, 1, inputs, (1 / 3 + 1) / 2),
        (gain, 10, LAST_OF_TIED, 1 / math.log2(11)),
        ("map, eval_at=[10]", 1, ([[1, 1]], [[2.0, 1.0]]), 1.0),
        ("map, eval_at=[10]", 10, LAST_OF_TIED, 1 / 10),
    ):
        agree(named("LightGBM", row, k), expected, lists)
    average = named("LightGBM", "map, eval_at=[10]", 2, 'empty_weight="own"')
    weights = np.mean([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], axis=1)
    agree(average, (2 * 1 / 2 + 5 * 1) / 7, (*inputs, weights))


@by_values
def test_catboost():
    """Asserted in its `precision_recall_at_k_ut.cpp` and `mrr_ut.cpp`.

    Where tied items of a list have several labels, the lowest is the earliest here. The
    rest is by the formulas of its `dcg.cpp` and `metric.cpp`.
    """
    tied = [[0, 0, 1, 1]], [[0.1, 0.9, 0.1, 0.9]]
    for row, k, expected in (
        ("PrecisionAt:top=10", 1, 0.0),
        ("PrecisionAt:top=10", 2, 0.5),
        ("RecallAt:top=10", 2, 0.5),
        ("MAP:top=10", 10, 0.5),
        ("MAP:top=10", 2, 0.25),
    ):
        agree(named("CatBoost", row, k, "shuffle_ties=False"), expected, tied)
    last = [[0, 0, 1, 0]], [[1.0, 0.0, -2.0, 5.0]]
    for k, expected in ((1, 0.0), (10, 0.25)):
        agree(named("CatBoost", "MRR:top=10", k), expected, last)
    labels = [[0, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1]]
    scores = [[1, 0, -2], [2, 1, 1, 2, 5], [-1, 0, -2, 0], [0.5, 0.5, 0.5]]
    mrr = named("CatBoost", "MRR:top=10", 10, 'shuffle_ties=False, empty_weight="own"')
    agree(mrr, 17 / 30, (labels, scores, [1.0, 2.0, 3.0, 4.0]))
    second, third = 1 / math.log2(3), 1 / 2
    inputs = [[1, 0, 3], [0, 0, 0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    position = "NDCG:top=10;denominator=Position"
    for row, k, expected in (
        ("NDCG:top=10", 1, (1 / 3 + 1) / 2),
        ("NDCG:top=10", 3, ((1 + 3 * third) / (3 + second) + 1) / 2),
        ("NDCG:top=10;type=Exp", 1, (1 / 7 + 1) / 2),
        ("NDCG:top=10;type=Exp", 3, ((1 + 7 * third) / (7 + second) + 1) / 2),
        (position, 1, (1 / 3 + 1) / 2),
        (position, 3, ((1 + 3 / 3) / (3 + 1 / 2) + 1) / 2),
        ("DCG:top=10", 1, (1 + 0) / 2),
        ("DCG:top=10", 3, (1 + 3 * third + 0) / 2),
        ("MAP:top=10", 1, (1 + 0) / 2),
        ("RecallAt:top=10", 3, (1 + 1) / 2),
    ):
        agree(named("CatBoost", row, k), expected, inputs)
    ndcg = named("CatBoost", "NDCG:top=10", more='empty_weight="own"')
    expected = ((1 + 3 * third) / (3 + second) + 4) / 5
    agree(ndcg, expected, (*inputs, [1.0, 4.0]))
    area = named("CatBoost", "QueryAUC, of lists with labels of 0 and 1")
    agree(area, (0.5 + 1) / 2, ([[1, 0], [1, 0]], [[1.0, 1.0], [2.0, 1.0]]))
    accuracy = named("CatBoost", "PairAccuracy, pairs by label")
    lists = [[0, 1, 2], [0, 1, 0]], [[1.0, 1.0, 2.0], [0.0, 1.0, 0.0]], [3.0, 2.0]
    agree(accuracy, (2 + 2) / (3 + 2), lists)


@by_values
def test_catalyst():
    """From its documentation; by formula where graded labels are out of order."""
    inputs = [[1, 0, 1], [1, 0, 1]], [[0.5, 0.2, 0.1], [0.5, 0.2, 0.1]]
    agree(named("catalyst", "ndcg, topk=[10]", 2), 0.6131, inputs, 1e-4)
    linear = 'ndcg, topk=[10], gain_function="linear_rank"'
    agree(named("catalyst", linear, 2), 0.5, inputs)
    reverse = [[2, 2, 1, 0]], [[0.0, 1.0, 2.0, 3.0]]
    expected = (0 + 1 + 2 / math.log2(3) + 2 / 2) / (2 + 2 + 1 / math.log2(3))
    agree(named("catalyst", linear), expected, reverse)
    inputs = [[2, 2, 1, 0]], [[3.0, 2.0, 1.0, 0.0]]
    linear = 'the sum of dcg, gain_function="linear_rank"'
    agree(named("catalyst", "the sum of dcg"), 5.3928, inputs, 1e-4)
    agree(named("catalyst", linear), 4.6309, inputs, 1e-4)
    scores = [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    for k, expected in ((1, 0.5), (3, 0.75)):
        inputs = [[0, 0, 1, 1], [0, 0, 1, 1]], scores
        agree(named("catalyst", "mrr, topk=[10]", k), expected, inputs)
    for k, expected in ((1, 0.0), (2, 0.25), (3, 0.25), (4, 0.5)):
        inputs = [[0, 0, 1, 1], [0, 0, 0, 0]], scores
        agree(named("catalyst", "hitrate, topk=[10]", k), expected, inputs)
    labels = [1, 0, 1, 0, 0, 1, 0, 0, 1, 1], [0, 1, 0, 0, 1, 0, 1, 0, 0, 0]
    for k, expected in ((1, 0.5), (3, 0.6667), (5, 0.6417), (10, 0.5325)):
        average = named("catalyst", "mean_average_precision, topk=[10]", k)
        agree(average, expected, (labels, [-np.arange(10.0)] * 2), 1e-4)


@by_values
def test_the_example_of_ignite_for_map():
    """The mean of a list with hits at ranks 2 and 4, and a perfect one.

    A list without relevant items is left out.
    """
    labels = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    scores = [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    for k, expected in ((1, 0.5), (2, 0.625), (3, 0.625), (4, 0.75)):
        average = named("ignite", "MAP, by its documentation", k)
        agree(average, expected, (labels, scores))


@by_values
def test_top_k_accuracy_of_tensorflow_recommenders():
    """On the data of its `factorized_top_k_test.py`, with the values expected there.

    They are those of `tf.math.in_top_k` for the whole matrix of scores.
    """
    rng = np.random.RandomState(42)
    candidates = rng.normal(size=(100, 4)).astype("float32")
    queries = rng.normal(size=(10, 4)).astype("float32")
    weights = rng.uniform(size=(10, 1)).astype("float32")
    targets = rng.randint(0, 100, size=10)
    library, row = "TensorFlow Recommenders", "FactorizedTopK, ks=[10]"
    hits = [named(library, row, k) for k in (1, 5, 10, 50)]
    found = catalogue.evaluate(
        targets, queries, candidates, hits, sample_weight=weights
    )
    expected = [0.0, 0.17503180, 0.21064596, 0.71008551]
    assert list(found.values()) == pytest.approx(expected, abs=1e-6)


@by_values
def test_a_constant_model_of_tensorflow_recommenders():
    """There it is right about all: by `tf.math.in_top_k`, without ids.

    With ids, by `tf.math.top_k`, it is right about the first item alone.
    """
    row = "FactorizedTopK, ks=[10], with true_candidate_ids"
    hits = named("TensorFlow Recommenders", row, 1)
    constant = catalogue.evaluate(
        range(4), np.ones((4, 1)), np.ones((4, 1)), [hits]
    ).values()
    assert list(constant) == pytest.approx([1 / 4])


@by_values
def test_recommenders():
    """Asserted in its `test_python_evaluation.py`; exponential gains by formula."""
    relevant = [3, 1, 2], [1, 4, 5, 6, 7], [2, 5, 6, *range(8, 15)]
    found = [3, 10, 12], [10, 3, 5, 11, 13], [4, 10, 7, 13, 1, 3, 5, 2, 11, 14]
    inputs = lists_of(*zip(found, relevant, strict=True))
    for row, expected in (
        ("precision_at_k, k=10", 0.26666),
        ("recall_at_k, k=10", 0.37777),
        ("map_at_k, k=10", 0.23613),
        ("map, k=10", 0.23613),
        ("ndcg_at_k, k=10, on labels of 0 and 1", 0.38172),
    ):
        agree(named("recommenders", row), expected, inputs, 1e-4)
    ratings = dict(enumerate([3, 2, 3, 0, 1, 2, 3, 2]))
    raw = named("recommenders", 'ndcg_at_k, k=10, score_type="raw"', 6)
    agree(raw, 0.785, lists_of((range(6), ratings)), 1e-3)
    for k, expected in ((1, 3 / 7), (2, 3 / (7 + 3 / math.log2(3)))):
        row = 'ndcg_at_k, k=10, score_type="exp"'
        inputs = lists_of((["b"], {"a": 3, "b": 2}))
        agree(named("recommenders", row, k), expected, inputs)
    # 1 of 3 relevant items is first: what `map_at_k` divides by 2 for k of 2.
    short = lists_of(([1, 9], [1, 2, 3]))
    agree(named("recommenders", "map_at_k, k=10", 2), 1 / 2, short)
    agree(named("recommenders", "map, k=10", 2), 1 / 3, short)


@by_values
def test_spark():
    """Asserted in its `RankingMetricsSuite.scala`."""
    found = (
        [1, 6, 2, 7, 8, 3, 9, 10, 4, 5],
        [4, 1, 5, 6, 2, 7, 3, 8, 9, 10],
        [1, 2, 3, 4, 5],
    )
    inputs = lists_of(*zip(found, ([1, 2, 3, 4, 5], [1, 2, 3], []), strict=True))
    grades = {1: 3, 2: 2, 3: 1, 4: 1, 5: 1}, {1: 2, 2: 0, 3: 0}, {}
    graded = lists_of(*zip(found, grades, strict=True))
    few = lists_of(([1, 6, 2], [1, 2, 3, 4, 5]), ([], [1, 2, 3]))
    for row, lists, values in (
        ("precisionAt(10)", inputs, {1: 1 / 3, 4: 0.75 / 3, 10: 0.8 / 3, 15: 8 / 45}),
        ("recallAt(10)", inputs, {1: 1 / 15, 2: 8 / 45, 5: 16 / 45, 15: 2 / 3}),
        ("meanAveragePrecision", inputs, {10: 0.355026}),
        ("meanAveragePrecisionAt(10)", inputs, {1: 1 / 3, 2: 0.25, 3: 0.24074}),
        ("ndcgAt(10)", inputs, {3: 1 / 3, 5: 0.328788, 10: 0.487913, 15: 0.487913}),
        ("ndcgAt(10)", graded, {3: 0.511959, 5: 0.487806, 10: 0.518700}),
        ("precisionAt(10)", few, {1: 0.5, 2: 0.25}),
        ("recallAt(10)", few, {1: 0.1, 2: 0.1}),
        ("ndcgAt(10)", few, {1: 0.5, 2: 0.30657}),
    ):
        for k, expected in values.items():
            agree(named("Spark MLlib", row, k), expected, lists, 1e-5)


@by_values
def test_lenskit():
    """Asserted in its `tests/eval/test_rank_*.py`; hits, ranks, top 1 by formula."""
    third = 1 / math.log2(3)
    ndcg = "NDCG, n of 10, with a field or on labels of 0 and 1"
    dcg = "DCG, n of 10, with a field or on labels of 0 and 1"
    ratings, many = {1: 3.0, 2: 5.0, 3: 4.0}, range(100)
    negative = {1: -6, 2: -2, 3: 3, 4: 1, 5: -3}
    clipped = {item: max(rating, 0) for item, rating in negative.items()}
    for row, k, query, expected in (
        (ndcg, 2, ([1, 3], ratings), (3 + 4) / (5 + 4)),
        (ndcg, 10, ([1, 2], ratings), (3 + 5) / (5 + 4 + 3 * third)),
        (ndcg, 10, ([1, 2], [1, 2, 3]), 2 / (2 + third)),
        (ndcg, 10, ([1, 2, 3, 4, 5], clipped), 0.5982),
        (dcg, 10, ([2, 3, 1], [1, 2, 3]), 1 + 1 + third),
        (dcg, 2, ([2, 3, 1], [1, 2, 3]), 2.0),
        (dcg, 10, ([1, 7, 8, 2], {1: math.e, 2: math.pi}), math.e + math.pi / 2),
        ("Hit, n of 10", 1, ([4, 1], [1]), 0.0),
        ("RecipRank, n of 10", 1, ([4, 1], [1]), 0.0),
        ("RecipRank, n of 10", 2, ([4, 1], [1]), 1 / 2),
        ("Precision, n of 10", 5, ([1, 0, 150], many), 2 / 3),
        ("Precision, n of 10", 5, ([1, 0, 150, 3, 10, 30, 120], many), 0.8),
        ("Recall, n of 10", 5, ([1, 0, 150, 3, 10, 30, 120], many), 0.8),
        ("Recall, n of 10", 10, ([1, 0, 150, 3, 10], many), 0.4),
        ("Recall", 10, ([1, 2, 3, 4], [1, 3, 5]), 2 / 3),
        ("AveragePrecision, n of 10", 3, ([1, 2, 3, 4], [1, 3, 5]), (1 + 2 / 3) / 3),
        ("AveragePrecision, n of 10", 1, ([1, 2, 3, 4], [1, 3, 5]), 1.0),
        ("AveragePrecision", 10, ([1, 2, 3], [1, 3]), (1 + 2 / 3) / 2),
        ("AveragePrecision", 10, ([1, 2, 3], [2, 4]), 0.25),
        ("RBP, n of 10", 10, ([1], [1, 2, 3]), 0.15),
        ("RBP, n of 10", 1, ([1, 2], [1, 2]), 0.15),
        ("RBP, n of 10, normalize=True", 3, ([1, 2, 3], [1, 2, 3, 4]), 1.0),
        ("RBP, n of 10, normalize=True", 3, ([9, 1], [1, 2]), 0.85 / (1 + 0.85)),
    ):
        agree(named("LensKit", row, k), expected, lists_of(query), 1e-4)


@by_values
def test_discounts_of_lenskit():
    """By the formulas of its `_weighting.py` and `_dcg.py`."""
    ranks = np.arange(1.0, 21.0)
    logarithms = np.log(np.maximum(ranks, 2.0))
    for discount, expected in (
        (discounts.clipped_log2, np.log(2) / logarithms),
        (discounts.clipped_log(), np.log(2) / logarithms),
        (lambda r: math.log2(10) * discounts.clipped_log2(r), np.log(10) / logarithms),
        (discounts.log(10, 1), np.log(10) / np.log(ranks + 1)),
        (discounts.log(math.e, 2), 1 / np.log(ranks + 2)),
        (discounts.clipped_log(math.e), 1 / np.maximum(np.log(ranks), 1)),
    ):
        found = discount(ops.convert_to_tensor(ranks, "float32"))
        np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-5)


@by_values
def test_lightfm():
    """As computed by lightfm-next 1.19.0, with embeddings that give these scores."""
    scores = [
        [0.9, 0.1, 0.8, 0.3, 0.7, 0.2],
        [0.2, 0.6, 0.1, 0.9, 0.5, 0.4],
        [0.5, 0.4, 0.3, 0.2, 0.1, 0.0],
    ]
    test, train = [[2, 3], [5, -1], [-1, -1]], [[0], [1], [0]]
    rows = "precision_at_k, k=10", "recall_at_k, k=10", "reciprocal_rank"
    found = catalogue.evaluate(
        test,
        np.eye(3),
        np.transpose(scores),
        [named("LightFM", row, 2) for row in rows],
        exclude=train,
    )
    users = [[0.5, 0.0], [0.5, 0.0], [1.0, 1 / 3]]
    assert list(found.values()) == pytest.approx(np.mean(users, axis=1))
    labels = [[-1, 0, 1, 1, 0, 0], [0, -1, 0, 0, 0, 1], [-1, 0, 0, 0, 0, 0]]
    # By formula: it divides by k where there are less items too.
    precision = named("LightFM", "precision_at_k, k=10", 10)
    agree(precision, np.mean([2 / 10, 1 / 10]), (labels, scores))
    agree(named("LightFM", "auc_score"), np.mean([5 / 6, 0.5]), (labels, scores))


@by_values
def test_recbole():
    """Asserted in its `test_topk_metrics.py` and `test_rank_metrics.py`.

    Precision at 10 is by formula.
    """
    # Hits in order, and the number of relevant items.
    hits = [[0, 0, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1]]
    missing = [1, 0, 2, 1]
    labels = [row + [1] * n for row, n in zip(hits, missing, strict=True)]
    scores = [[3.0, 2.0, 1.0] + [-math.inf] * n for n in missing]
    second, third = 1 / math.log2(3), 1 / 2
    for row, k, values in (
        ("Recall, topk=[10]", 2, [0, 2 / 3, 1 / 4, 0]),
        ("Recall, topk=[10]", 3, [0, 3 / 3, 2 / 4, 1 / 2]),
        ("Precision, topk=[10]", 2, [0, 2 / 2, 1 / 2, 0]),
        ("Precision, topk=[10]", 3, [0, 3 / 3, 2 / 3, 1 / 3]),
        ("Hit, topk=[10]", 2, [0, 1, 1, 0]),
        ("Precision, topk=[10]", 10, [0, 3 / 10, 2 / 10, 1 / 10]),
        ("MRR, topk=[10]", 2, [0, 1, 1, 0]),
        ("MRR, topk=[10]", 3, [0, 1, 1, 1 / 3]),
        ("MAP, topk=[10]", 2, [0, 1, 1 / 2, 0]),
        ("MAP, topk=[10]", 3, [0, 1, (1 + 2 / 3) / 3, 1 / 3 * 1 / 2]),
        ("NDCG, topk=[10]", 2, [0, 1, 1 / (1 + second), 0]),
        (
            "NDCG, topk=[10]",
            3,
            [0, 1, (1 + third) / (1 + second + third), third / (1 + second)],
        ),
    ):
        agree(named("RecBole", row, k), np.mean(values), (labels, scores))
    # Of 2, 3 and 5 items, 1, 2 and 3 are relevant: their ranks add up to 1, 4 and 9.
    labels = [[1, 0], [1, 0, 1], [1, 0, 1, 0, 1]]
    scores = [[5.0, 4.0], [5.0, 4.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0]]
    areas = [2 - 1 / 1, 3 - 1 / 2 - 4 / 2, (5 - 2 / 2 - 9 / 3) / 2]
    expected = np.average(areas, weights=[1, 2, 3])
    agree(named("RecBole", "GAUC"), expected, (labels, scores, [1.0, 2.0, 3.0]))


# The items that three users are shown.
SHOWN = [[0, 1], [1, 4], [4, 2]]


@by_values
def test_what_recommenders_shows():
    """Asserted in its `test_python_evaluation.py` of the same counts."""
    coverage = "catalog_coverage of the top 10, n items in train_df"
    agree(named("recommenders", coverage, 2), 0.8, [SHOWN])
    agree(named("recommenders", "novelty of the top 10", 2), 2.83333, [SHOWN], 1e-5)


@by_values
def test_what_rectools_shows():
    """Asserted in its `test_catalog.py` and its docstrings."""
    shown = [[1, 2], [1, 2], [-1, -1], [-1, 1]]
    agree(named("RecTools", "CatalogCoverage, k=10, normalize=True", 2), 0.4, [shown])
    popularity = named("RecTools", "AvgRecPopularity, k=10", 1, interactions=[3, 2, 1])
    agree(popularity, (3 + 1 + 1) / 3, [[[0], [2], [2]]])
    known = {"users_who_know_it": np.array([3, 1, 1]), "users": 3}
    novelty = named("RecTools", "MeanInvUserFreq, k=10", 1, **known)
    agree(novelty, (1.5849625 + 1.5849625 + 0) / 3, [[[2], [1], [0]]])


@by_values
def test_what_lenskit_and_recbole_show():
    """By the formulas of `_gini.py`, `_pop.py` and `recbole/evaluator/metrics.py`."""
    counts = np.sort([1, 2, 1, 0, 2])
    gini = np.sum((2 * np.arange(1, 6) - 5 - 1) * counts) / counts.sum() / 5
    for row, expected in (
        ("ListGini, k=10, items=n", gini),
        ("MeanPopRank, k=10", np.mean([0.25, 0.25, 0.25, 0.0, 0.0, 0.75])),
    ):
        agree(named("LensKit", row, 2), expected, [SHOWN])
    # The counts of items that are shown, with the last of all places.
    shown = np.array([1, 1, 2, 2])
    gini = np.sum((2 * np.arange(5 - 4 + 1, 5 + 1) - 5 - 1) * shown) / (3 * 2) / 5
    for row, expected in (
        ("ItemCoverage, topk=[10]", 4 / 5),
        ("GiniIndex, topk=[10]", gini),
        ("AveragePopularity, topk=[10]", np.mean([1, 1, 1, 1, 1, 2])),
    ):
        agree(named("RecBole", row, 2), expected, [SHOWN])


@by_values
def test_cornac():
    """Asserted in its `tests/cornac/metrics/test_ranking.py`.

    A tie, the top 1, and cutoffs beyond the list are by formula.
    """
    found = [1, 2, 0]
    for row, k, query, expected in (
        ("NDCG, k=10", 10, ([0, 2, 1], [0, 2]), 1.0),
        ("NDCG, k=10", 2, (found, [2]), 0.6309),
        ("NDCG, k=10", 1, (found, [2]), 0.0),
        ("NCRR, k=10", 10, (found, [0, 2]), (1 / 3 + 1 / 2) / (1 + 1 / 2)),
        ("NCRR, k=10", 2, (found, [2]), 0.5),
        ("NCRR, k=10", 2, ([5, 1, 6], [0, 1, 2]), 1 / 3),
        ("NCRR, k=10", 3, ([5, 1, 6, 8], [0, 1]), 1 / 3),
        ("MRR", 10, (found, [0, 2]), 1 / 2),
        ("HitRatio, k=10", 2, (found, [0]), 0.0),
        ("HitRatio, k=10", 2, (found, [2]), 1.0),
        ("Precision, k=10", 2, (found, [2]), 0.5),
        ("Precision, k=10", 10, (found, [2]), 1 / 10),
        ("Recall, k=10", 1, (found, [2]), 0.0),
        ("Recall, k=10", 2, (found, [2]), 1.0),
        ("FMeasure, k=10", 3, ([0, 2, 1], [0, 2]), 4 / 5),
        ("FMeasure, k=10", 2, (found, [2]), 2 / 3),
        ("FMeasure, k=10", 2, ([1, 2], [0]), 0.0),
        ("FMeasure, k=10", 10, (found, [2]), 2 * 1 / (10 + 1)),
    ):
        agree(named("cornac", row, k), expected, lists_of(query), 1e-4)
    scores = [[0.1, 0.4, 0.35, 0.8]]
    for labels, expected in (
        ([0, 0, 1, 1], 0.75),
        ([0, 1, 0, 1], 1.0),
        ([0, 0, 1, -1], 0.5),
    ):
        agree(named("cornac", "AUC"), expected, ([labels], scores))
    agree(named("cornac", "AUC"), 1 / 2, ([[0, 1, 0]], [[0.4, 0.4, 0.3]]))
    for labels, expected in (([0, 0, 1, 0], 1 / 3), ([0, 1, 0, 1], 1.0)):
        agree(named("cornac", "MAP"), expected, ([labels], scores))
    labels, scores = [[0, 1, 0, 1, 0, 1, 0, 0, 0, 0]], [-np.arange(10.0)]
    agree(named("cornac", "MAP"), 0.5, (labels, scores))


@by_values
def test_realistic_ranks_of_pykeen():
    """On the scores of its `test_evaluators.py`, with the ranks expected there.

    NaN, which there is what the filter left out, has no rank here either.
    """
    scores = [
        [2.0, 2.0, 1.0, 3.0, 5.0],
        [1.0, 1.0, 3.0, 4.0, 0.0],
        [1.0, 1.0, 3.0, np.nan, 0.0],
    ]
    optimistic, pessimistic, realistic = [3, 2, 1], [4, 2, 1], [3.5, 2, 1]
    for first, ties, expected in (
        (0, False, optimistic),
        (1, False, pessimistic),
        (0, "average", realistic),
    ):
        ranks = functional.average_relevance_position(
            [first, 2, 2], scores, sparse_labels=True, shuffle_ties=ties
        )
        assert ops.convert_to_numpy(ranks).tolist() == expected
    labels = [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]]
    realistic = "arithmetic_mean_rank, *realistic*, with ties"
    agree(named("PyKEEN", realistic), (3.5 + 2 + 1) / 3, (labels, scores))
    for row, k, expected in (
        ("arithmetic_mean_rank", 10, (2 + 1) / 2),
        ("inverse_harmonic_mean_rank", 10, (1 / 2 + 1) / 2),
        ("hits_at_10", 1, (0 + 1) / 2),
    ):
        agree(named("PyKEEN", row, k), expected, (labels[1:], scores[1:]))


@by_values
def test_the_mean_of_reciprocal_ranks_is_not_that_of_the_mean_rank():
    """2/3 by the realistic rank of PyKEEN, 1.5."""
    arguments = {"sparse_labels": True, "shuffle_ties": "average"}
    found = one(functional.reciprocal_rank, [0], [[1.0, 1.0]], **arguments)
    assert found == pytest.approx(0.75)


@by_values
def test_kaggle():
    """By formula: the sum of precisions at the hits over min(R, k)."""
    inputs = [[1, 0, 1, 0, 1, 1]], [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]
    agree(named("Kaggle", "MAP@10", 3), (1 + 2 / 3) / 3, inputs)


@by_values
def test_what_beir_does_not_ask_pytrec_eval():
    """By the formulas of its `custom_metrics.py`."""
    inputs = lists_of(
        ("adbc", {"a": 0, "b": 2, "c": 1, "x": 1, "y": 1}), ("bca", {"a": 1})
    )
    capped, ranks = "R_cap@10, R_cap_at_10", "MRR@10, mrr_at_10"
    agree(named("BEIR and MTEB", capped, 3), (1 / 3 + 1 / 1) / 2, inputs)
    agree(named("BEIR and MTEB", capped, 2), (0 / 2 + 0 / 1) / 2, inputs)
    agree(named("BEIR and MTEB", ranks, 3), (1 / 3 + 1 / 3) / 2, inputs)
    agree(named("BEIR and MTEB", ranks, 2), 0, inputs)
    agree(named("BEIR and MTEB", ranks, 10), 1 / 10, LAST_OF_TIED)
    agree(named("BEIR and MTEB", capped, 1), 1, FIRST_OF_TIED)
    hits = named("BEIR and MTEB", "Accuracy@10, hit_rate_at_10", 1)
    agree(hits, 1, FIRST_OF_TIED)


@by_values
def test_information_retrieval_evaluator_of_sentence_transformers():
    """By the formulas of its `InformationRetrievalEvaluator.py`."""
    inputs = lists_of(("bacd", "acxy"), ("ab", "a"))
    second, third = 1 / math.log2(3), 1 / 2
    for row, k, expected in (
        ("InformationRetrievalEvaluator, accuracy@10", 1, (0 + 1) / 2),
        ("InformationRetrievalEvaluator, precision@10", 3, (2 / 3 + 1 / 3) / 2),
        ("InformationRetrievalEvaluator, recall@10", 1, (0 / 4 + 1 / 1) / 2),
        ("InformationRetrievalEvaluator, recall@10", 3, (2 / 4 + 1 / 1) / 2),
        (
            "InformationRetrievalEvaluator, ndcg@10",
            3,
            ((second + third) / (1 + second + third) + 1) / 2,
        ),
        ("InformationRetrievalEvaluator, mrr@10", 1, (0 + 1) / 2),
        ("InformationRetrievalEvaluator, mrr@10", 2, (1 / 2 + 1) / 2),
        ("InformationRetrievalEvaluator, map@10", 3, ((1 / 2 + 2 / 3) / 3 + 1) / 2),
    ):
        agree(named("sentence-transformers", row, k), expected, inputs)


@by_values
def test_llama_index():
    """Asserted in its `tests/evaluation/test_metrics.py`."""
    perfect, missing = ("cabd", "abc"), ("ea", "abcd")
    spread = "agob", "ab"
    ranks = [1 / math.log2(rank + 1) for rank in range(1, 5)]
    for row, query, expected in (
        ("hit_rate", perfect, 1.0),
        ("hit_rate", ("cd", "ab"), 0.0),
        ("hit_rate, use_granular_hit_rate", ("aeb", "abcd"), 2 / 4),
        ("mrr", missing, 1 / 2),
        ("precision", perfect, 3 / 4),
        ("precision", missing, 1 / 2),
        ("precision", spread, 2 / 4),
        ("recall", missing, 1 / 4),
        ("ap", missing, (0 + 1 / 2) / 4),
        ("ap", spread, (1 / 1 + 2 / 4) / 2),
        ("ndcg", missing, ranks[1] / sum(ranks)),
        ("ndcg", spread, (ranks[0] + ranks[3]) / (ranks[0] + ranks[1])),
    ):
        agree(named("llama_index", row), expected, lists_of(query))


@by_values
def test_haystack():
    """Asserted in its `test/components/evaluators`."""
    queries = [
        ("a", "a"),
        ("abc", "ac"),
        ("abc", "xa"),
        ("abc", "cb"),
        ("abc", "x"),
        ("abcd", "ac"),
    ]
    lists = lists_of(*queries)
    agree(named("haystack", "DocumentMAPEvaluator"), 0.625, lists)
    single = 'DocumentRecallEvaluator, mode="single_hit"'
    agree(named("haystack", single), 5 / 6, lists)
    queries[4] = "abc", "abcx"
    multiple = 'DocumentRecallEvaluator, mode="multi_hit"'
    agree(named("haystack", multiple), 0.875, lists_of(*queries))
    queries[1], queries[2], queries[4] = ("bac", "ac"), ("bca", "xa"), ("abc", "x")
    ranks = [1, 1 / 2, 1 / 3, 1 / 2, 0, 1]
    mrr = named("haystack", "DocumentMRREvaluator")
    agree(mrr, np.mean(ranks), lists_of(*queries))
    ndcg = named("haystack", "DocumentNDCGEvaluator")
    grades = {1: 3, 2: 2, 3: 3, 6: 2, 7: 3, 8: 2}
    agree(ndcg, 0.6592, lists_of(([1, 2, 3, 4, 5], grades)), 1e-4)
    agree(ndcg, 0.9197, lists_of(("abc", "ac")), 1e-4)


@by_values
def test_mlflow():
    """Asserted in its `tests/metrics/test_metric_definitions.py`; top 1 by formula."""
    lists = lists_of(("ab", "ab"), ("cd", "cb"), ("e", "e"), ("fg", "c"))
    for k, expected in ((1, 3 / 4), (4, 2.5 / 4)):
        agree(named("mlflow", "precision_at_k(10)", k), expected, lists)
    lists = lists_of(("ab", "abcd"), ("cde", "cbad"), ("fg", ""), ("a", "ac"))
    for k, values in ((1, [1 / 4, 1 / 4, 0, 0.5]), (4, [0.5, 0.5, 0, 0.5])):
        agree(named("mlflow", "recall_at_k(10)", k), np.mean(values), lists)
    for k, expected in ((1, 0.0), (2, 0.0), (3, 0.2346394)):
        agree(named("mlflow", "ndcg_at_k(10)", k), expected, lists_of(("451", "123")))


# The libraries themselves. Lists with relevant items, without ties.


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


def with_both_labels(labels):
    return (labels.min(axis=1) == 0) & (labels.max(axis=1) == 1)


@pytest.mark.slow
@by_values
def test_sklearn(lists):
    from sklearn import metrics as theirs

    rng = np.random.default_rng(4)
    tied = lists[0], rng.integers(0, 4, size=lists[1].shape).astype("float32")
    library = "scikit-learn"
    for each in (lists, tied):
        expected = theirs.ndcg_score(*each, k=K)
        agree(named(library, "ndcg_score, k=10", K), expected, each)
        expected = theirs.dcg_score(*each, k=K)
        agree(named(library, "dcg_score, k=10", K), expected, each, 1e-5)
        expected = theirs.dcg_score(*each, k=K, log_base=3)
        agree(named(library, "dcg_score, k=10, log_base=3", K), expected, each, 1e-5)
    labels, scores = binary(lists), lists[1]
    row = "label_ranking_average_precision_score"
    expected = theirs.label_ranking_average_precision_score(labels, scores)
    agree(named(library, row), expected, lists)
    targets = rng.integers(0, scores.shape[1], size=len(scores))
    expected = theirs.top_k_accuracy_score(targets, scores, k=K, labels=range(12))
    agree(named(library, "top_k_accuracy_score, k=10", K), expected, (targets, scores))
    for each in (lists, tied):
        labels = binary(each)
        mixed = with_both_labels(labels)
        pairs = list(zip(labels[mixed], each[1][mixed], strict=True))
        row = "the mean of roc_auc_score over lists with labels of 0 and 1"
        expected = np.mean([theirs.roc_auc_score(*pair) for pair in pairs])
        agree(named(library, row), expected, (labels, each[1]))
        loss = theirs.label_ranking_loss(labels[mixed], each[1][mixed])
        accuracy = named(library, "1 minus label_ranking_loss")
        agree(accuracy, 1 - loss, (labels, each[1]))
    top = (scores > np.sort(scores)[:, [-1 - K]]).astype(int)
    row = "the mean of fbeta_score over lists, with the top 10 as predictions, beta=2"
    pairs = zip(binary(lists), top, strict=True)
    expected = [theirs.fbeta_score(*pair, beta=2, zero_division=0) for pair in pairs]
    agree(named(library, row, K), np.mean(expected), lists)
    row = "the mean of average_precision_score over lists"
    pairs = zip(binary(lists), scores, strict=True)
    expected = np.mean([theirs.average_precision_score(*pair) for pair in pairs])
    agree(named(library, row), expected, lists)


@pytest.mark.slow
@by_values
def test_scipy(lists):
    from scipy import stats

    tied = lists[0], np.floor(lists[1] / 3)
    for row, theirs in (
        ("the mean of kendalltau over lists", stats.kendalltau),
        ("the mean of spearmanr over lists", stats.spearmanr),
    ):
        for each in (lists, tied):
            pairs = zip(*each, strict=True)
            expected = np.mean([theirs(*pair).statistic for pair in pairs])
            agree(named("SciPy", row), expected, each)


@by_values
def test_pytorch_metric_learning():
    """By the formulas of its `accuracy_calculator.py`."""
    inputs = [[1, 0, 1, 0, 1], [0, 1, 1, 0, 0]], [[5.0, 4.0, 3.0, 2.0, 1.0]] * 2
    library = "pytorch-metric-learning"
    for row, k, expected in (
        ("mean_average_precision_at_r", 10, ((1 + 2 / 3) / 3 + (1 / 2) / 2) / 2),
        ("r_precision", 10, (2 / 3 + 1 / 2) / 2),
        (
            "mean_average_precision, k=10",
            3,
            ((1 + 2 / 3) / 2 + (1 / 2 + 2 / 3) / 2) / 2,
        ),
        ("precision_at_1", 10, (1 + 0) / 2),
    ):
        agree(named(library, row, k), expected, inputs)


@pytest.mark.slow
@by_values
def test_weights_of_sklearn(lists):
    """A list without relevant items keeps its weight."""
    from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

    labels = lists[0].copy()
    labels[:7] = 0.0
    weights = np.linspace(0.5, 5.0, len(labels))
    tied = np.floor(lists[1] / 3)
    expected = ndcg_score(labels, tied, k=K, sample_weight=weights)
    ndcg = named("scikit-learn", "ndcg_score, k=10, sample_weight", K)
    agree(ndcg, expected, (labels, tied, weights))
    row, own = "label_ranking_average_precision_score", 'empty_weight="own"'
    average = named("scikit-learn", row, more=own)
    expected = label_ranking_average_precision_score(
        (labels >= 1).astype(int), lists[1], sample_weight=weights
    )
    agree(average, expected, (labels, lists[1], weights))


@pytest.mark.slow
@by_values
def test_torchmetrics(lists):
    import torch
    from torchmetrics import retrieval

    graded = lists[0]
    labels = binary(lists)
    labels[0] = 1
    mixed = with_both_labels(labels)
    tied = np.floor(lists[1] / 3) + 1.0
    for row, name, arguments in (
        ("RetrievalMAP, top_k=10", "RetrievalMAP", {"top_k": K}),
        ("RetrievalMRR, top_k=10", "RetrievalMRR", {"top_k": K}),
        ("RetrievalPrecision, top_k=10", "RetrievalPrecision", {"top_k": K}),
        ("RetrievalPrecision, top_k=10", "RetrievalPrecision", {"top_k": 20}),
        (
            "RetrievalPrecision, top_k=10, adaptive_k=True",
            "RetrievalPrecision",
            {"top_k": 20, "adaptive_k": True},
        ),
        ("RetrievalRecall, top_k=10", "RetrievalRecall", {"top_k": K}),
        ("RetrievalHitRate, top_k=10", "RetrievalHitRate", {"top_k": K}),
        ("RetrievalRPrecision", "RetrievalRPrecision", {}),
        ("RetrievalFallOut, top_k=10", "RetrievalFallOut", {"top_k": K}),
        ("RetrievalAUROC", "RetrievalAUROC", {}),
        ("RetrievalNormalizedDCG, top_k=10", "RetrievalNormalizedDCG", {"top_k": K}),
    ):
        targets = {"RetrievalAUROC": labels[mixed], "RetrievalNormalizedDCG": graded}
        y_true = targets.get(name, labels)
        scores = {"RetrievalAUROC": tied[mixed], "RetrievalNormalizedDCG": tied}
        y_pred = scores.get(name, lists[1])
        indexes = np.repeat(np.arange(len(y_true)), y_true.shape[1])
        expected = getattr(retrieval, name)(**arguments)(
            torch.as_tensor(y_pred.ravel()),
            torch.as_tensor(y_true.ravel()).int(),
            indexes=torch.as_tensor(indexes),
        )
        k = arguments.get("top_k", 10)
        agree(named("torchmetrics", row, k), expected, (y_true, y_pred))


@pytest.mark.slow
@by_values
def test_what_torchmetrics_ignores():
    """As the page says: these metrics alone take scores of 0 or less for no items."""
    import torch
    from torchmetrics import retrieval

    rng = np.random.default_rng(0)
    scores = torch.as_tensor(rng.normal(size=60))
    found = {
        "target": torch.as_tensor(rng.integers(0, 2, 60)),
        "indexes": torch.arange(60) // 10,
    }
    ignore = {"RetrievalMAP", "RetrievalMRR", "RetrievalPrecision", "RetrievalRecall"}
    for name in retrieval.__all__:
        metric = getattr(retrieval, name)()
        # As text, as some are several tensors.
        above, below = (str(metric(scores + shift, **found)) for shift in (10, -10))
        assert (above == below) == (name not in ignore), name


def test_keras_rs_shuffles_on_all_backends_but_torch(backend):
    """Even where it is told not to, as the page says."""
    theirs = pytest.importorskip("keras_rs").metrics
    labels, scores = [[1.0] + [0.0] * 9], [[0.5] * 10]
    for make, ties in ((theirs.NDCG, backend != "torch"), (metrics.NDCG, False)):
        values = {
            float(make(shuffle_ties=False, seed=seed)(np.array(labels), scores))
            for seed in range(9)
        }
        assert (len(values) > 1) == ties
        assert ties or values == {1.0}


@pytest.mark.slow
@by_values
def test_ranx(lists):
    from ranx import Qrels, Run, evaluate

    labels, scores = lists
    # In every list, some relevant items and some others are not retrieved.
    scores = np.where(np.arange(12) % 5 == 1, -np.inf, scores)
    qrels, ones = (
        Qrels(
            {
                f"q{i}": dict(zip("abcdefghijkl", row, strict=True))
                for i, row in enumerate(rows.astype(int).tolist())
            }
        )
        for rows in (labels, binary(lists))
    )
    run = Run(
        {
            f"q{i}": {d: x for d, x in zip("abcdefghijkl", row, strict=True) if x > 0}
            for i, row in enumerate(scores.tolist())
        }
    )
    for row in ROWS["ranx"]:
        measure, *_ = row.partition(", on ")
        measure, _, divisor = measure.partition(" divided by ")
        judgments = ones if "binary labels" in row else qrels
        for k in (K, 20):
            expected = evaluate(judgments, run, measure.replace("@10", f"@{k}"))
            expected = float(expected) / float(divisor or 1)
            agree(named("ranx", row, k), expected, (labels, scores), 1e-5)


@pytest.mark.slow
@by_values
@pytest.mark.filterwarnings("ignore:`torch.jit")  # its own
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
        agree(named("ignite", row, K), theirs.compute()[0], (labels, lists[1]))


@pytest.mark.slow
@by_values
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # its own
def test_keras_rs(lists):
    import keras_rs

    rng = np.random.default_rng(5)
    labels = lists[0].copy()
    labels[2] = 0.0
    inputs = labels, lists[1], rng.choice([0.5, 1.0, 3.0], size=30).astype("float32")
    items = (
        labels,
        lists[1],
        rng.choice([0.0, 0.5, 3.0], labels.shape).astype("float32"),
    )
    for row in ROWS["keras-rs"]:
        for k in (K, None):
            for each in (inputs, items):
                theirs = eval(row.replace("k=10", f"k={k}"), {"keras_rs": keras_rs})
                found = float(named("keras-rs", row, k)(*each))
                assert found == pytest.approx(float(theirs(*each)), rel=2e-6), row


@pytest.mark.slow
@by_values
def test_pytrec_eval(lists):
    """With ties, judgments below 0, and documents that nobody judged or retrieved."""
    import pytrec_eval

    rng = np.random.default_rng(6)
    names = "lkjihgfedcba"
    judgments = lists[0].astype(int)
    judgments[:, 1:] -= 2 * (rng.random((len(judgments), 11)) < 0.2)
    is_judged = rng.random(judgments.shape) < 0.7
    is_judged[:, 0] = True
    is_retrieved = rng.random(judgments.shape) < 0.8
    ties = rng.integers(1, 9, size=judgments.shape).astype("float32")
    labels = np.where(is_judged, np.maximum(judgments, 0), 0)
    scores = np.where(is_retrieved, ties, -np.inf)
    topics = range(len(labels))
    qrels = {
        f"q{t}": {names[i]: int(judgments[t, i]) for i in range(12) if is_judged[t, i]}
        for t in topics
    }
    run = {
        f"q{t}": {names[i]: float(ties[t, i]) for i in range(12) if is_retrieved[t, i]}
        for t in topics
    }
    cutoffs = K, 20
    asked = {
        row.replace("10", str(k))
        for row in ROWS["trec_eval and pytrec_eval"]
        for k in cutoffs
    }
    topics = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run).values()

    def mean_of(measure, k):
        return np.mean([topic[measure.replace(".10", f"_{k}")] for topic in topics])

    for k in cutoffs:
        for row in ROWS["trec_eval and pytrec_eval"]:
            judged = np.where(is_judged, judgments, -1) if row == "bpref" else labels
            metric = named("trec_eval and pytrec_eval", row, k)
            agree(metric, mean_of(row, k), (judged, scores), 1e-5)
        for row, measure in (
            ("NDCG@10, ndcg_at_10", "ndcg_cut.10"),
            ("MAP@10, map_at_10", "map_cut.10"),
            ("Recall@10, recall_at_10", "recall.10"),
            ("P@10, precision_at_10", "P.10"),
            ("Accuracy@10, hit_rate_at_10", "success.10"),
        ):
            metric = named("BEIR and MTEB", row, k)
            agree(metric, mean_of(measure, k), (labels, scores), 1e-5)


@pytest.mark.slow
@by_values
def test_reranking_of_sentence_transformers(lists):
    """It asks scikit-learn; reciprocal ranks by formula."""
    from sklearn.metrics import average_precision_score, ndcg_score

    library, labels = "sentence-transformers", binary(lists)
    scores = (
        np.random.default_rng(4).integers(0, 4, size=labels.shape).astype("float32")
    )
    ndcg = named(library, "RerankingEvaluator, ndcg@10", K)
    agree(ndcg, ndcg_score(labels, scores, k=K), (labels, scores))
    pairs = list(zip(*(labels, lists[1]), strict=True))
    expected = np.mean([average_precision_score(*pair) for pair in pairs])
    agree(named(library, "RerankingEvaluator, map"), expected, lists)
    firsts = [1 + np.argmax(y[np.argsort(-s)]) for y, s in pairs]
    expected = np.mean([1 / rank if rank <= K else 0 for rank in firsts])
    agree(named(library, "RerankingEvaluator, mrr@10", K), expected, lists)


@pytest.mark.slow
@pytest.mark.programs
def test_rax(lists):
    if keras.backend.backend() != "jax":
        pytest.skip("rax is for JAX")
    import rax

    labels, scores = lists
    tied = np.random.default_rng(4).integers(0, 4, size=labels.shape).astype("float32")
    unretrieved = np.where(np.arange(12) % 5 == 1, -np.inf, scores)
    by_position = "shuffle_ties=False"
    for row, function in (
        ("ndcg_metric, topn=10", rax.ndcg_metric),
        ("dcg_metric, topn=10", rax.dcg_metric),
        ("ap_metric, topn=10", rax.ap_metric),
        ("mrr_metric, topn=10", rax.mrr_metric),
        ("precision_metric, topn=10", rax.precision_metric),
        ("recall_metric, topn=10", rax.recall_metric),
    ):
        for each in (scores, tied, unretrieved):
            for k in (K, 12):
                expected = function(each, labels, topn=k)
                found = named("rax", row, k, by_position)
                agree(found, expected, (labels, each), 1e-5)
    for each in (scores, tied, unretrieved):
        expected = rax.opa_metric(each, labels)
        agree(named("rax", "opa_metric"), expected, (labels, each), 1e-5)


@pytest.mark.slow
def test_weights_of_rax(lists):
    if keras.backend.backend() != "jax":
        pytest.skip("rax is for JAX")
    import rax

    labels, scores = lists
    weights = np.random.default_rng(5).choice([0.5, 1.0, 3.0], labels.shape)
    weights = weights.astype("float32")
    values = functional.ndcg(labels, scores, sample_weight=weights, k=K)
    expected = rax.ndcg_metric(scores, labels, topn=K, weights=weights)
    assert np.mean(values) == pytest.approx(float(expected), rel=1e-5)
    gains = 2.0**labels - 1.0
    list_weights = np.sum(weights * gains, axis=1) / np.sum(gains, axis=1)
    values = functional.dcg(labels, scores, sample_weight=weights, k=K)
    expected = rax.dcg_metric(scores, labels, topn=K, weights=weights)
    assert np.mean(values * list_weights) == pytest.approx(float(expected), rel=1e-5)


@by_values
def test_weighted_gains_of_rax():
    """By the formula of its `dcg_metric`, which does not divide by a weight."""
    labels, weights = np.array([[1.0, 0.0, 2.0]]), np.array([[2.0, 1.0, 0.5]])
    arguments = {"sample_weight": weights, "gain_fn": "linear"}
    value = one(functional.dcg, labels, [[3.0, 2.0, 1.0]], **arguments)
    value *= np.sum(weights * labels) / np.sum(labels)
    assert value == pytest.approx(2.0 * 1 + 0.5 * 2 / math.log2(4))


def test_every_call_on_the_page_is_a_call():
    names = {**NAMES, **GIVEN, "discounts": discounts, "math": math}
    calls = CALL.findall(PAGE.read_text())
    assert len(calls) > 150
    for call in calls:
        assert isinstance(eval(call, names), keras.metrics.Metric), call


@pytest.mark.parametrize("library", ROWS)
def test_every_row_of_the_page_is_tested(library):
    """A test names the library, and the row or all rows of the library."""
    tests = re.split(r"^def ", pathlib.Path(__file__).read_text(), flags=re.MULTILINE)
    tests = [test for test in tests if f'"{library}"' in test]
    if not any(f'in ROWS["{library}"]' in test for test in tests):
        quoted = {row: (f'"{row}"', f"'{row}'") for row in ROWS[library]}
        for row, names in quoted.items():
            assert any(name in test for test in tests for name in names), row
