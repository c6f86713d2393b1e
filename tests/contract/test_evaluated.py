"""Tables and runs, evaluated on every backend: `tests/tables` has how they are read."""

import numpy as np
import pytest
from keras import ops

from keras_rank import functional
from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.metrics import NDCG, MeanReciprocalRank

NAN = float("nan")


def test_a_table_is_evaluated():
    """Five lists, as many as no backend that compiles each shape would take."""
    rows = {"query_id": np.repeat(np.arange(5), 6), "label": np.arange(30) * 7 % 3}
    # With ties across the cutoff, of items with different labels.
    rows |= {"score": np.arange(30) * 5 % 4, "weight": 1.0 + np.arange(30) % 4}
    rows["label"][24:] = 0
    labels, scores, weights = (
        rows[name].reshape(5, 6) for name in ("label", "score", "weight")
    )
    arguments = {"k": 3, "shuffle_ties": "average"}
    metrics = [NDCG(**arguments), NDCG(**arguments, empty_value=None, name="left_out")]
    found = evaluate(rows, [*metrics, MeanReciprocalRank(seed=1)], weight="weight")
    for metric, empty_value in zip(metrics, (0.0, None), strict=True):
        arguments |= {"sample_weight": weights, "empty_value": empty_value}
        values = ops.convert_to_numpy(functional.ndcg(labels, scores, **arguments))
        assert np.any(np.isnan(values)) == (empty_value is None)
        of_lists = found.per_list[metric.name].to_numpy()
        np.testing.assert_allclose(of_lists, values, atol=1e-6)
        metric.update_state(labels, scores, weights)
        assert found[metric.name] == pytest.approx(float(metric.result()), abs=1e-6)
    assert len(found.health()) > 5


def test_the_shuffle_is_the_same():
    """And in each process: of four tied items, the relevant one comes at a rank."""
    rows = {"query_id": np.repeat(list("abcdefgh"), 4), "score": np.zeros(32)}
    rows["label"] = np.tile([0, 1, 0, 0], 8)
    found = evaluate(rows, ["mrr"]).per_list["mrr"].to_numpy()
    assert (1.0 / found).round().tolist() == [4.0, 2.0, 2.0, 4.0, 3.0, 2.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("ties", "first"), [("metric", 0.5), ("trec_eval", 0.5), ("trec_eval-9", 1.0)]
)
def test_scores_keep_their_precision(ties, first):
    """Two scores that differ in float64 only are no tie, but to trec_eval 9."""
    rows = {"query_id": [1, 1], "label": [1, 0], "score": [1.0, 1.0 + 1e-12]}
    metrics = [MeanReciprocalRank(shuffle_ties=False)]
    for items, expected in (["a", "b"], 0.5), (["b", "a"], first):
        given = {**rows, "item": items}
        assert evaluate(given, metrics, item="item", ties=ties)["mrr"] == expected
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
    nothing = rng.choice([np.nan, -np.inf], len(scores))
    is_found = rng.random(len(scores)) < 0.9
    average = NDCG(k=5, shuffle_ties="average", name="average")
    metrics = ["ndcg@5", "mrr", "tau", "rho"] + [average] * (ties == "metric")

    def values(scores):
        given = {**rows, "score": np.where(is_found, scores, nothing)}
        found = evaluate(given, metrics, item="item", ties=ties).per_list
        columns = found.drop_columns("query_id").to_pydict()
        return np.array([*columns.values()], "float64")

    expected, found = values(levels.astype("float64")), values(scores)
    assert len({*np.round(expected[0], 6)}) > lists // 2
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_trec_eval_compares_doubles():
    """Also where a backend has float32 only: the rows are in its order."""
    qrels, run = {"1": {"a": 1}}, {"1": {"b": 25_000.0, "a": 25_000.0 + 1e-6}}
    run["1"] |= {"c": -1e39, "d": -2e39}
    for rules, expected in (("trec_eval", 1.0), ("trec_eval-9", 0.5)):
        assert evaluate_run(qrels, run, ["mrr"], rules=rules)["mrr"] == expected
        found = evaluate_run({"1": {"c": 1}}, run, ["mrr"], rules=rules)
        assert found["mrr"] == pytest.approx({"trec_eval": 1 / 3}.get(rules, 1 / 4))
