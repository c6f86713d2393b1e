"""What other libraries compute, by the constructor calls of docs/dialects.md."""

import pathlib
import re

import keras
import numpy as np
import pytest
from keras import ops
from registry import IS_SLOW

from keras_rank import catalogue, functional, metrics
from keras_rank.metrics import (
    DCG,
    NDCG,
    F1AtK,
    HitRate,
    MeanAveragePrecision,
    MeanReciprocalRank,
    PairwiseAccuracy,
    PrecisionAtK,
    RankBiasedPrecision,
    RecallAtK,
    RPrecision,
)

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "dialects.md"


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


@pytest.mark.parametrize(("denominator", "expected"), [("k", 0.3), ("available", 0.6)])
def test_precision_at_10_of_5_items(denominator, expected):
    found = one(functional.precision, *GOLDEN, k=10, denominator=denominator)
    assert found == pytest.approx(expected)


def test_the_example_of_ignite_for_map():
    """The mean of a list with hits at ranks 2 and 4, and a perfect one."""
    labels = [[0, 0, 1, 1], [0, 0, 1, 1]]
    scores = [[4.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    found = [
        float(MeanAveragePrecision(k=k, normalizer="clipped")(labels, scores))
        for k in (1, 2, 3, 4)
    ]
    assert found == pytest.approx([0.5, 0.625, 0.625, 0.75])


def test_top_k_accuracy_of_tensorflow_recommenders():
    """On the data of its `factorized_top_k_test.py`, with the values expected there.

    They are those of `tf.math.in_top_k` for the whole matrix of scores.
    """
    rng = np.random.RandomState(42)
    candidates = rng.normal(size=(100, 4)).astype("float32")
    queries = rng.normal(size=(10, 4)).astype("float32")
    weights = rng.uniform(size=(10, 1)).astype("float32")
    targets = rng.randint(0, 100, size=10)
    hits = [HitRate(k=k) for k in (1, 5, 10, 50)]
    found = catalogue.evaluate(
        targets, queries, candidates, hits, sample_weight=weights
    )
    expected = [0.0, 0.17503180, 0.21064596, 0.71008551]
    assert list(found.values()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("ties", "expected"), [(False, [1, 0, 0, 0]), ("average", [0.25] * 4)]
)
def test_a_constant_model_of_tensorflow_recommenders(ties, expected):
    """There it is right about all: by `tf.math.in_top_k`, without ids.

    With ids, by `tf.math.top_k`, it is right about the first item alone.
    """
    order = catalogue.rank(
        range(4), np.ones((4, 1)), np.ones((4, 1)), shuffle_ties=ties
    )
    assert ops.convert_to_numpy(functional.hit_rate(order, k=1)) == pytest.approx(
        expected
    )


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


def test_the_mean_of_reciprocal_ranks_is_not_that_of_the_mean_rank():
    """2/3 by the realistic rank of PyKEEN, 1.5."""
    arguments = {"sparse_labels": True, "shuffle_ties": "average"}
    found = one(functional.reciprocal_rank, [0], [[1.0, 1.0]], **arguments)
    assert found == pytest.approx(0.75)


def test_values_of_lightfm():
    """As computed by lightfm-next 1.19.0, with embeddings that give these scores."""
    scores = [
        [0.9, 0.1, 0.8, 0.3, 0.7, 0.2],
        [0.2, 0.6, 0.1, 0.9, 0.5, 0.4],
        [0.5, 0.4, 0.3, 0.2, 0.1, 0.0],
    ]
    test, train = [[2, 3], [5, -1], [-1, -1]], [[0], [1], [0]]
    found = catalogue.evaluate(
        test,
        np.eye(3),
        np.transpose(scores),
        [
            PrecisionAtK(k=2, denominator="k", empty_value=None),
            RecallAtK(k=2, empty_value=None),
            MeanReciprocalRank(empty_value=None),
        ],
        exclude=train,
    )
    users = [[0.5, 0.0], [0.5, 0.0], [1.0, 1 / 3]]
    assert list(found.values()) == pytest.approx(np.mean(users, axis=1))
    labels = [[-1, 0, 1, 1, 0, 0], [0, -1, 0, 0, 0, 1], [-1, 0, 0, 0, 0, 0]]
    areas = np.mean([5 / 6, 0.5])
    assert float(PairwiseAccuracy()(labels, scores)) == pytest.approx(areas)


# The libraries themselves. Lists with relevant items, without ties.


@pytest.fixture(scope="module")
def lists():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, size=(30, 12)) * (rng.random((30, 12)) < 0.5)
    labels[:, 0] = np.maximum(labels[:, 0], 1)
    scores = rng.permuted(np.tile(np.arange(12.0), (30, 1)), axis=1) + 1.0
    return labels.astype("float32"), scores.astype("float32")


def agree(metric, expected, lists, precision=2e-6):
    assert float(metric(*lists)) == pytest.approx(float(expected), abs=precision)


K = 5


def binary(lists):
    return (lists[0] >= 1).astype(int)


@pytest.mark.slow
def test_sklearn(lists):
    from sklearn.metrics import (
        dcg_score,
        label_ranking_average_precision_score,
        ndcg_score,
        roc_auc_score,
    )

    rng = np.random.default_rng(4)
    tied = lists[0], rng.integers(0, 4, size=lists[1].shape).astype("float32")
    for each in (lists, tied):
        agree(
            NDCG(k=K, gain_fn="linear", shuffle_ties="average"),
            ndcg_score(*each, k=K),
            each,
        )
        agree(
            DCG(k=K, gain_fn="linear", shuffle_ties="average"),
            dcg_score(*each, k=K),
            each,
            1e-5,
        )
    agree(
        MeanAveragePrecision(),
        label_ranking_average_precision_score(binary(lists), lists[1]),
        lists,
    )
    for each in (lists, tied):
        labels = binary(each)
        mixed = (labels.min(axis=1) == 0) & (labels.max(axis=1) == 1)
        aucs = [
            roc_auc_score(y, s)
            for y, s in zip(labels[mixed], each[1][mixed], strict=True)
        ]
        agree(PairwiseAccuracy(), np.mean(aucs), (labels, each[1]))


@pytest.mark.slow
def test_torchmetrics(lists):
    import torch
    from torchmetrics.functional import retrieval

    def mean_of(function, labels, **arguments):
        values = [
            float(function(torch.as_tensor(s), torch.as_tensor(y).int(), **arguments))
            for y, s in zip(labels, lists[1], strict=True)
        ]
        return np.mean(values)

    top_k = {"top_k": K}
    labels = binary(lists)
    for metric, function, arguments in (
        (
            MeanAveragePrecision(k=K, normalizer="retrieved"),
            retrieval.retrieval_average_precision,
            top_k,
        ),
        (MeanReciprocalRank(k=K), retrieval.retrieval_reciprocal_rank, top_k),
        (PrecisionAtK(k=K, denominator="k"), retrieval.retrieval_precision, top_k),
        (
            PrecisionAtK(k=20),
            retrieval.retrieval_precision,
            {"top_k": 20, "adaptive_k": True},
        ),
        (RecallAtK(k=K), retrieval.retrieval_recall, top_k),
        (HitRate(k=K), retrieval.retrieval_hit_rate, top_k),
        (RPrecision(), retrieval.retrieval_r_precision, {}),
    ):
        agree(metric, mean_of(function, labels, **arguments), lists)
    expected = mean_of(retrieval.retrieval_normalized_dcg, lists[0], top_k=K)
    agree(NDCG(k=K, gain_fn="linear", shuffle_ties="average"), expected, lists)


@pytest.mark.slow
@pytest.mark.skipif(IS_SLOW, reason="compiling ranx takes most of a minute")
@pytest.mark.filterwarnings("ignore:.*unsafe cast from uint64")  # ranx's own
def test_ranx(lists):
    from ranx import Qrels, Run, evaluate

    labels, scores = (
        {f"q{i}": {f"d{j}": x for j, x in enumerate(row)} for i, row in enumerate(rows)}
        for rows in (lists[0].astype(int).tolist(), lists[1].tolist())
    )
    qrels, run = Qrels(labels), Run(scores)
    for metric, measure in (
        (NDCG(k=K, gain_fn="linear"), f"ndcg@{K}"),
        (NDCG(k=K), f"ndcg_burges@{K}"),
        (MeanAveragePrecision(k=K), f"map@{K}"),
        (MeanReciprocalRank(k=K), f"mrr@{K}"),
        (PrecisionAtK(k=20, denominator="k"), "precision@20"),
        (RecallAtK(k=K), f"recall@{K}"),
        (F1AtK(k=K, denominator="k"), f"f1@{K}"),
        (HitRate(k=K), f"hit_rate@{K}"),
        (RPrecision(), "r-precision"),
    ):
        agree(metric, evaluate(qrels, run, measure), lists)
    ones = {q: {d: int(y >= 1) for d, y in row.items()} for q, row in labels.items()}
    agree(
        RankBiasedPrecision(persistence=0.8),
        evaluate(Qrels(ones), run, "rbp.80"),
        lists,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")  # its own
def test_ignite(lists):
    import torch
    from ignite.metrics import rec_sys

    y_pred, y_true = torch.as_tensor(lists[1]), torch.as_tensor(lists[0])
    theirs = rec_sys.NDCG(top_k=[K])
    theirs.update((y_pred, y_true))
    agree(NDCG(k=K, empty_value=None), theirs.compute()[0], lists)
    theirs = rec_sys.HitRate(top_k=[K])
    theirs.update((y_pred, y_true))
    agree(HitRate(k=K, empty_value=None), theirs.compute()[0], lists)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # its own
def test_keras_rs(lists):
    from keras_rs import metrics as theirs

    rng = np.random.default_rng(5)
    labels = lists[0].copy()
    labels[2] = 0.0
    inputs = labels, lists[1], rng.choice([0.5, 1.0, 3.0], size=30).astype("float32")
    items = (
        labels,
        lists[1],
        rng.choice([0.0, 0.5, 3.0], labels.shape).astype("float32"),
    )
    for name in (
        "DCG",
        "MeanAveragePrecision",
        "MeanReciprocalRank",
        "NDCG",
        "PrecisionAtK",
        "RecallAtK",
    ):
        for k in (K, None):
            for each in (inputs, items):
                expected = getattr(theirs, name)(k=k)(*each)
                found = getattr(metrics, name)(k=k)(*each)
                assert float(found) == pytest.approx(float(expected), rel=2e-6), name


@pytest.mark.slow
def test_rax(lists):
    if keras.backend.backend() != "jax":
        pytest.skip("rax is for JAX")
    import rax

    labels, scores = lists
    for metric, function in (
        (NDCG(k=K), rax.ndcg_metric),
        (DCG(k=K), rax.dcg_metric),
        (MeanAveragePrecision(k=K), rax.ap_metric),
        (MeanReciprocalRank(k=K), rax.mrr_metric),
        (PrecisionAtK(k=K), rax.precision_metric),
        (RecallAtK(k=K), rax.recall_metric),
    ):
        agree(metric, function(scores, labels, topn=K), lists, 1e-5)


def test_every_call_on_the_page_is_a_call():
    """And every library on the page has a test here, or a reason why not."""
    text = PAGE.read_text()
    calls = re.findall(r"`((?:[A-Z]\w+)\(.*?\))`", text)
    assert len(calls) > 20
    names = {name: getattr(metrics, name) for name in metrics.__all__}
    for call in calls:
        made = eval(call, names)
        assert isinstance(made, metrics.RankingMetric), call
