"""Tests of gains that are looked up by label: `keras_rank.gains.by_label`."""

import json

import keras
import numpy as np
import pytest
from arrays import assert_close, compute_values

from keras_rank import functional, gains
from keras_rank.metrics import DCG, NDCG, RankBiasedPrecision, RankingMetrics

TABLE = {0: 0, 1: 1, 2: 5, 3: 2}


@pytest.mark.programs
@pytest.mark.parametrize("ties", [True, False, "average", "worst", "best"])
def test_gains_are_looked_up(ties, rng):
    """The linear gain of the looked-up gain is the same."""
    labels = rng.integers(-1, 4, size=(12, 6))
    scores = rng.integers(0, 3, size=(12, 6)).astype("float32")
    table = np.array([0.0, 1.0, 5.0, 2.0, -1.0])
    for function in (functional.dcg, functional.ndcg):
        options = {"k": 4, "seed": 1, "shuffle_ties": ties}
        gain_fn = gains.by_label(TABLE)
        actual = compute_values(function, labels, scores, gain_fn=gain_fn, **options)
        if ties in ("worst", "best"):
            # These orders are by label, not by gain.
            assert np.isfinite(actual[np.any(labels >= 0, axis=1)]).all()
            continue
        looked_up = table[labels]
        expected = compute_values(
            function, looked_up, scores, gain_fn="linear", **options
        )
        assert_close(actual, expected, rtol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.programs
def test_labels_without_a_gain_are_errors():
    """Padding has no gain, and neither have labels below the threshold."""
    gain_fn = gains.by_label({1: 1, 4: 3})
    assert float(DCG(gain_fn=gain_fn)([[1, 0, -1]], [[1.0, 2.0, 3.0]])) > 0.0
    for metric in (
        DCG(gain_fn=gain_fn),
        NDCG(gain_fn=gain_fn, shuffle_ties="average"),
        RankBiasedPrecision(gain_fn=gain_fn, max_grade=4),
        RankBiasedPrecision(gain_fn=gain_fn, max_grade=4, normalized=True),
    ):
        with pytest.raises(ValueError, match="should have a gain for each label"):
            metric.update_state([[1, 2, 0]], [[1.0, 1.0, 1.0]])
    allowed = DCG(gain_fn=gain_fn, relevance_threshold=1.0)
    assert float(allowed([[0.5, 1]], [[1.0, 2.0]])) == 1.0


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
def test_labels_are_compared_in_float32():
    labels, scores = np.array([[0.1, 0.0]], "float32"), [[1.0, 0.0]]
    for dtype in ("float32", "float64"):
        (value,) = functional.dcg(
            labels, scores, gain_fn=gains.by_label({0.1: 5}), dtype=dtype
        )
        assert float(value) == 5.0


def test_configs_keep_the_table():
    metric = NDCG(gain_fn=gains.by_label(TABLE))
    config = json.loads(json.dumps(metric.get_config()))
    restored = NDCG.from_config(config)
    assert restored.gain_fn == metric.gain_fn
    assert hash(restored.gain_fn) == hash(metric.gain_fn)
    assert repr(restored.gain_fn).startswith("ByLabel(gains=((0.0, 0.0), (1.0, 1.0)")
    assert keras.saving.serialize_keras_object(restored) is not None


STRINGS = ["dcg(gains='0:0,1:1,2:5,3:2')@4", "dcg(gains={0: 0, 1: 1, 2: 5, 3: 2})@4"]


@pytest.mark.parametrize("string", STRINGS)
def test_strings_have_tables(string, rng):
    labels, scores = rng.integers(0, 4, size=(5, 6)), rng.random((5, 6))
    group = RankingMetrics([string, DCG(4, gain_fn=gains.by_label(TABLE))])
    group.update_state(labels, scores)
    first, second = (float(value) for value in group.result().values())
    assert first == second


INVALID_TABLES = [None, 5, {}, [1, 2], [(1, 2, 3)], [(1, 1), (1, 2)], "1:2", {1: -1}]
INVALID_TABLES += [{1: np.inf}, {1: np.nan}, {-1: 1}, {1: 10**400}, {1: True}, {"1": 1}]


@pytest.mark.parametrize("table", INVALID_TABLES, ids=str)
def test_wrong_tables_are_errors(table):
    with pytest.raises(ValueError, match="`gains` should be a dict from labels to gai"):
        gains.by_label(table)
