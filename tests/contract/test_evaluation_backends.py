"""The evaluation of tables and runs on every backend. `tests/tables` tests reading."""

import numpy as np
import pytest
from keras import ops

from keras_rank import functional
from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.metrics import NDCG, MeanReciprocalRank

NAN = float("nan")


@pytest.mark.compiles_long
def test_a_table_has_the_values_of_the_metrics():
    """Five lists are too few to compile a program for their shape."""
    rows = {"query_id": np.repeat(np.arange(5), 6), "label": np.arange(30) * 7 % 3}
    # Items with different labels tie across the cutoff.
    rows |= {"score": np.arange(30) * 5 % 4, "weight": 1.0 + np.arange(30) % 4}
    rows["label"][24:] = 0
    labels, scores, weights = (
        rows[name].reshape(5, 6) for name in ("label", "score", "weight")
    )
    arguments = {"k": 3, "shuffle_ties": "average"}
    metrics = [NDCG(**arguments), NDCG(**arguments, empty_value=None, name="left_out")]
    evaluation = evaluate(rows, [*metrics, MeanReciprocalRank(seed=1)], weight="weight")
    for metric, empty_value in zip(metrics, (0.0, None), strict=True):
        arguments |= {"sample_weight": weights, "empty_value": empty_value}
        values = ops.convert_to_numpy(functional.ndcg(labels, scores, **arguments))
        assert np.any(np.isnan(values)) == (empty_value is None)
        per_list = evaluation.per_list[metric.name].to_numpy()
        np.testing.assert_allclose(per_list, values, atol=1e-6)
        metric.update_state(labels, scores, weights)
        assert evaluation[metric.name] == pytest.approx(
            float(metric.result()), abs=1e-6
        )
    assert len(evaluation.health()) > 5


def test_the_shuffle_is_equal_on_all_backends():
    """Each process gives the relevant one of four tied items an equal rank."""
    rows = {"query_id": np.repeat(list("abcdefgh"), 4), "score": np.zeros(32)}
    rows["label"] = np.tile([0, 1, 0, 0], 8)
    values = evaluate(rows, ["mrr"]).per_list["mrr"].to_numpy()
    assert (1.0 / values).round().tolist() == [4.0, 2.0, 2.0, 4.0, 3.0, 2.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("ties", "first"), [("metric", 0.5), ("trec_eval", 0.5), ("trec_eval-9", 1.0)]
)
def test_scores_keep_their_precision(ties, first):
    """Scores that differ only in float64 tie by the rules of trec_eval 9 alone."""
    rows = {"query_id": [1, 1], "label": [1, 0], "score": [1.0, 1.0 + 1e-12]}
    metrics = [MeanReciprocalRank(shuffle_ties=False)]
    for items, expected in (["a", "b"], 0.5), (["b", "a"], first):
        table = {**rows, "item": items}
        assert evaluate(table, metrics, item="item", ties=ties)["mrr"] == expected
    assert evaluate({**rows, "label": [0, 1]}, ["mrr"])["mrr"] == 1.0


@pytest.mark.compiles_long
@pytest.mark.parametrize("step", [1e-12, 1e300, 1e-300])
@pytest.mark.parametrize("ties", ["metric", "trec_eval"])
def test_doubles_keep_their_order_and_their_ties(rng, step, ties):
    lists, items = 24, 30
    levels = rng.integers(-3, 4, lists * items)
    rows = {
        "query_id": np.repeat(np.arange(lists), items),
        "label": rng.integers(0, 3, lists * items),
        "item": np.tile(np.arange(items), lists),
    }
    scores = levels * step + (1.0 if step == 1e-12 else 0.0)
    unretrieved = rng.choice([np.nan, -np.inf], len(scores))
    is_retrieved = rng.random(len(scores)) < 0.9
    average = NDCG(k=5, shuffle_ties="average", name="average")
    metrics = ["ndcg@5", "mrr", "tau", "rho"] + [average] * (ties == "metric")

    def values(scores):
        table = {**rows, "score": np.where(is_retrieved, scores, unretrieved)}
        per_list = evaluate(table, metrics, item="item", ties=ties).per_list
        columns = per_list.drop_columns("query_id").to_pydict()
        return np.array([*columns.values()], "float64")

    expected = values(levels.astype("float64"))
    assert len({*np.round(expected[0], 6)}) > lists // 2
    np.testing.assert_allclose(values(scores), expected, atol=1e-6)


def test_trec_eval_rules_compare_float64_scores():
    """Rows are sorted before they reach a backend, which may have float32 only."""
    qrels, run = {"1": {"a": 1}}, {"1": {"b": 25_000.0, "a": 25_000.0 + 1e-6}}
    run["1"] |= {"c": -1e39, "d": -2e39}
    for rules, expected in (("trec_eval", 1.0), ("trec_eval-9", 0.5)):
        assert evaluate_run(qrels, run, ["mrr"], rules=rules)["mrr"] == expected
        evaluation = evaluate_run({"1": {"c": 1}}, run, ["mrr"], rules=rules)
        assert evaluation["mrr"] == pytest.approx(
            {"trec_eval": 1 / 3}.get(rules, 1 / 4)
        )
