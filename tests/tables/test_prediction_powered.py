"""Tests of machine judgments that human judgments correct."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from keras_rank.evaluation import Evaluation, evaluate_run, prediction_powered
from keras_rank.metrics import MeanReciprocalRank


def evaluation_of(values, queries, name="mrr"):
    """Returns an evaluation with the given values of a metric."""
    table = {"query_id": queries, name: values, "weight": np.ones(len(values))}
    return Evaluation(
        pa.table(table), metrics=[MeanReciprocalRank(name=name)], query="query_id"
    )


def draw_values(rng, n, others, correlation, bias):
    """Draws values in [0, 1] by human and by machine judgments."""
    z, noise = rng.standard_normal((2, n + others))
    shifted = correlation * z + np.sqrt(1 - correlation**2) * noise + bias
    human, machine = stats.norm.cdf(z), stats.norm.cdf(shifted)
    return np.where(human < 0.3, 0, human)[:n], np.where(machine < 0.3, 0, machine)


def plain_estimate(human, machine):
    """Returns the value and the standard error, as the page states the equations."""
    n = len(human)
    judged, rest = machine[:n], machine[n:]
    mean = sum(human) / n
    covariance = sum(
        (x - mean) * (y - sum(judged) / n) for x, y in zip(human, judged, strict=True)
    ) / (n - 1)
    c = covariance / np.var(machine, ddof=1) / (1 + n / len(rest))
    c = min(max(c, 0.0), 1.0)
    residuals = [x - c * y for x, y in zip(human, judged, strict=True)]
    value = c * np.mean(rest) + np.mean(residuals)
    variance = c**2 * np.var(rest, ddof=1) / len(rest)
    return value, np.sqrt(variance + np.var(residuals, ddof=1) / n)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.3, 0.8, 1.0])
def test_the_estimate_equals_the_equations(correlation, rng):
    human, machine = draw_values(rng, 12, 40, correlation, 0.5)
    queries = rng.permutation(52)
    table = prediction_powered(
        evaluation_of(human, queries[:12]),
        evaluation_of(machine[::-1], queries[::-1]),
        confidence=0.9,
    )
    (row,) = table
    value, error = plain_estimate(human, machine)
    assert row["value"] == pytest.approx(value)
    assert row["standard_error"] == pytest.approx(error)
    half = error * stats.t.ppf(0.95, 11)
    assert [row["low"], row["high"]] == pytest.approx([value - half, value + half])
    assert row["human_value"] == pytest.approx(human.mean())
    assert row["human_standard_error"] == pytest.approx(stats.sem(human))
    assert (row["human_lists"], row["machine_lists"]) == (12, 52)
    equivalent = np.var(human, ddof=1) / error**2
    assert row["equivalent_human_lists"] == pytest.approx(equivalent)
    names = "metric value standard_error low high human_value human_standard_error"
    names += " human_lists machine_lists equivalent_human_lists"
    assert list(table.columns) == names.split()


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize(("correlation", "width"), [(0.3, 1.0), (0.8, 0.75)])
def test_intervals_cover_the_mean(correlation, width, bias):
    """Intervals cover the mean, and are not wider than by human judgments alone."""
    rng = np.random.default_rng(0)
    z = stats.norm.cdf(rng.standard_normal(2_000_000))
    truth, draws = np.where(z < 0.3, 0, z).mean(), 2000
    covered, widths = 0, []
    queries = np.arange(1100)
    for _ in range(draws):
        human, machine = draw_values(rng, 100, 1000, correlation, bias)
        lists = evaluation_of(human, queries[:100]), evaluation_of(machine, queries)
        (row,) = prediction_powered(*lists)
        covered += row["low"] <= truth <= row["high"]
        widths.append(row["standard_error"] / row["human_standard_error"])
    assert 0.935 <= covered / draws <= 0.965
    assert np.mean(widths) <= width * 1.02


def test_pairs_give_the_difference_of_two_runs(rng):
    first, second = (draw_values(rng, 20, 50, 0.7, 0.2) for _ in range(2))
    queries = np.arange(70)
    human = tuple(evaluation_of(x, queries[:20]) for x, _ in (first, second))
    machine = tuple(evaluation_of(x, queries) for _, x in (first, second))
    (row,) = prediction_powered(human, machine)
    value, error = plain_estimate(first[0] - second[0], first[1] - second[1])
    assert row["value"] == pytest.approx(value)
    assert row["standard_error"] == pytest.approx(error)
    assert row["human_value"] == pytest.approx(np.mean(first[0] - second[0]))


def test_runs_are_evaluated_with_both_judgments(rng):
    """Metrics that are no means are left out, with a note."""
    run = {
        str(q): {str(i): float(x) for i, x in enumerate(rng.random(5))}
        for q in range(30)
    }
    machine, human = (
        {str(q): {str(rng.integers(5)): 1} for q in range(n)} for n in (30, 10)
    )
    metrics = ["ndcg@3", "num_rel", "mrr"]
    table = prediction_powered(
        evaluate_run(human, run, metrics), evaluate_run(machine, run, metrics)
    )
    assert table["metric"] == ["ndcg@3", "mrr"]
    assert table.notes == [
        "Metrics without a mean in all evaluations are left out: num_rel."
    ]


def test_wrong_calls_are_errors(rng):
    values, queries = rng.random(20), np.arange(20)
    machine, human = (
        evaluation_of(values, queries),
        evaluation_of(values[:5], queries[:5]),
    )
    unknown = evaluation_of(values[:5], queries[:5] + 18)
    shifted = evaluation_of(values[:5], queries[:5] + 1)
    missing = evaluation_of([0.5, None, 0.2], queries[:3])
    weighted = Evaluation(
        human.table.set_column(2, "weight", pa.array([1.0, 1.0, 2.0, 1.0, 1.0])),
        metrics=[MeanReciprocalRank(name="mrr")],
        query="query_id",
    )
    other = evaluation_of(values[:5], queries[:5], "map")
    wrong = [
        ((unknown, machine), "Received: an evaluation without the query 20"),
        ((evaluation_of(values[:1], queries[:1]), machine), "at least two queries"),
        ((machine, machine), "at least two more. Received: 20 and 20 queries"),
        ((evaluation_of(values[:19], queries[:19]), machine), "at least two more"),
        ((missing, machine), "a value and the same weight for each list"),
        ((weighted, machine), "a value and the same weight for each list"),
        ((other, machine), "should have a common metric that is a mean over lists"),
        (((human, human), machine), "Received: 2 and 1 evaluations"),
        (((human,) * 3, (machine,) * 3), "Received: 3 and 3 evaluations"),
        (((human, shifted), (machine, machine)), "an evaluation without the query 0"),
        ((human, 5), "`machine` should be an `Evaluation`"),
        (([human], machine), "`human` should be an `Evaluation`"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            prediction_powered(*arguments)
    with pytest.raises(ValueError, match="`confidence` should be"):
        prediction_powered(human, machine, confidence=95)
