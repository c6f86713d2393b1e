"""Tests of the agreement of two runs without judgments."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_rank.evaluation import Evaluation, agreement


def rank_biased_overlap(first, second, p):
    """Returns RBO_EXT by the definition: overlaps of prefixes of extended lists.

    The seen overlap is extrapolated: below the shorter list, its missing items agree
    with the other list as often as its items did, and below both lists the overlap
    stays the same.
    """
    short, long = sorted([first, second], key=len)
    size = len(short)
    if size == 0:
        return 0.0
    common = [len(set(short[:d]) & set(long[:d])) for d in range(len(long) + 1)]
    agreements = []
    for d in range(1, len(long) + 1):
        missing = max(d - size, 0)
        agreements.append((common[d] + missing * common[size] / size) / d)
    # The last agreement continues forever.
    terms = [p ** (d - 1) * a for d, a in enumerate(agreements, start=1)]
    return (1 - p) * math.fsum(terms) + p ** len(long) * agreements[-1]


lists = st.lists(st.integers(0, 12), unique=True, max_size=10)


@given(
    pairs=st.lists(st.tuples(lists, lists), min_size=1, max_size=6),
    k=st.integers(1, 12),
    p=st.sampled_from([0.5, 0.9, 0.98]),
)
def test_values_equal_the_definitions(pairs, k, p):
    run, other = ({i: x[side] for i, x in enumerate(pairs)} for side in (0, 1))
    if not any(x or y for x, y in pairs) or not (
        any(run.values()) and any(other.values())
    ):
        return
    table = agreement(run, other, k, p).per_list.to_pydict()
    for i, (first, second) in enumerate(pairs):
        names = f"overlap@{k}", f"jaccard@{k}", "rbo"
        values = [table[name][i] for name in names]
        if not first and not second:
            assert values == [None] * 3
            continue
        top, other_top = set(first[:k]), set(second[:k])
        expected = [
            len(top & other_top) / k,
            len(top & other_top) / len(top | other_top),
            rank_biased_overlap(first, second, p),
        ]
        assert values == pytest.approx(expected, abs=1e-12)


def test_equal_and_disjoint_lists_have_the_bounds():
    same = agreement({"q": list("abcd")}, {"q": list("abcd")}, 4)
    assert same.to_dict() == pytest.approx(dict.fromkeys(same, 1.0))
    other = agreement({"q": list("abcd")}, {"q": list("efgh")}, 4)
    assert other.to_dict() == {"overlap@4": 0.0, "jaccard@4": 0.0, "rbo": 0.0}


# Two lists of one length, the persistence, and the value of `rank_biased_overlap` of
# LensKit 2025.8.1 up to this length.
LENSKIT = [
    ([1, 2, 3, 4, 5], [2, 1, 3, 6, 7], 0.9, 0.6472149642255378),
    ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], 0.85, 0.32988810449497585),
    ([1, 2, 3], [4, 5, 1], 0.5, 0.047619047619047616),
]


@pytest.mark.parametrize(("first", "second", "p", "expected"), LENSKIT)
def test_values_follow_from_those_of_lenskit(first, second, p, expected):
    """LensKit normalizes the sum. The extrapolation adds the rest of the weights."""
    size = len(first)
    overlap = len(set(first) & set(second)) / size
    extrapolated = (1 - p**size) * expected + p**size * overlap
    value = agreement({"q": first}, {"q": second}, persistence=p)
    assert value["rbo"] == pytest.approx(extrapolated)


def test_ties_are_in_the_order_of_trec_eval(tmp_path):
    """Of tied items, the item whose id is larger as text comes first."""
    run = {"q": {"a": 1.0, "b": 1.0, "c": 0.5, "d": float("nan"), "e": -math.inf}}
    other = {"q": ["b", "a", "c"]}
    assert agreement(run, other, 3).to_dict() == {
        "overlap@3": 1.0,
        "jaccard@3": 1.0,
        "rbo": pytest.approx(1.0),
    }
    lines = ["q Q0 a 1 1.0 x", "q Q0 b 2 1.0 x", "q Q0 c 3 0.5 x"]
    path = tmp_path / "run.trec"
    path.write_text("\n".join(lines))
    assert agreement(str(path), other, 3)["rbo"] == pytest.approx(1.0)


def test_all_forms_of_runs_have_the_same_values():
    scores = {"a": {"x": 3.0, "y": 2.0, "z": 1.0}, "b": {"x": 2.0, "w": 1.0}}
    ids = {query: list(items) for query, items in scores.items()}
    rows = [(q, i, s) for q, items in scores.items() for i, s in items.items()]
    frame = pd.DataFrame(rows, columns=["query_id", "item_id", "score"])
    other = {"a": ["y", "x"], "b": ["x", "w"]}
    values = [agreement(x, other, 2).to_dict() for x in (scores, ids, frame)]
    assert values[0] == values[1] == values[2]
    renamed = frame.rename(columns={"query_id": "q", "item_id": "i", "score": "s"})
    columns = {"query": "q", "item": "i", "score": "s"}
    value = agreement(renamed, renamed, 2, **columns)
    assert value.query == "q"
    assert value["rbo"] == 1.0
    arrays = np.array([[1, 2, -1]]), np.array([[2, 1, 3]])
    assert agreement(*arrays, 2)["jaccard@2"] == 1.0


def test_queries_of_one_run_are_counted():
    run, other = {"a": ["x"], "b": ["x"], "c": ["x"]}, {"a": ["x"], "d": ["x"]}
    value = agreement(run, other)
    notes = value.summary().notes
    assert "Queries that only one of the runs has are left out (3)." in notes
    assert value.lists == 1
    assert value.health().rows == []
    assert value.warnings == []


def test_files_keep_an_agreement(tmp_path):
    run = {str(i): ["x", "y"] for i in range(12)}
    other = {str(i): ["y", "x"] if i % 2 else ["x"] for i in range(13)}
    value = agreement(run, other, 2, 0.8)
    value.write(tmp_path / "agreement.parquet")
    again = Evaluation.read(tmp_path / "agreement.parquet")
    assert again.to_dict() == value.to_dict()
    assert str(again) == str(value)
    assert again.compare(value)["difference"] == [0.0] * 3
    assert again.worst("rbo", 1)["rbo"] == [min(value.per_list["rbo"].to_pylist())]
    different = agreement(run, other, 2, 0.7)
    with pytest.raises(ValueError, match="computed as those of the models"):
        value.compare(different)


WRONG = [
    (
        {"a": ["x", "x"]},
        {"a": ["x"]},
        {},
        "`run` should have each item of a query once",
    ),
    ({"a": ["x"]}, {"a": ["x", "x"]}, {}, "`other` should have each item of a query"),
    ({"a": ["x"]}, {"b": ["x"]}, {}, "`run` and `other` should have queries in common"),
    ({"a": ["x"]}, 5, {}, "`other` should be files"),
    (5, {"a": ["x"]}, {}, "`run` should be files"),
    ({"a": ["x"]}, {"a": ["x"]}, {"k": 0}, "`k` should be a positive integer"),
    ({"a": ["x"]}, {"a": ["x"]}, {"persistence": 1.0}, "`persistence` should be a num"),
    ({1: ["x"]}, {2.5: ["x"]}, {}, "`query` should have ids of types that can be"),
]


@pytest.mark.parametrize(("run", "other", "arguments", "message"), WRONG)
def test_wrong_calls_are_errors(run, other, arguments, message):
    with pytest.raises(ValueError, match=message):
        agreement(run, other, **arguments)


@pytest.mark.parametrize("as_table", [False, True])
def test_distances_have_the_agreement_of_negative_scores(as_table, rng):
    def make_run(sign):
        rng = np.random.default_rng(5)
        scores = sign * rng.permuted(np.tile(np.arange(20.0), (8, 1)), axis=1)
        if not as_table:
            return {q: dict(enumerate(row)) for q, row in enumerate(scores)}
        ids = {"query_id": np.repeat(range(8), 20), "item_id": np.tile(range(20), 8)}
        return pd.DataFrame(ids | {"score": scores.ravel()})

    other = {q: dict(enumerate(rng.permutation(20))) for q in range(8)}
    far = {q: {i: -x for i, x in items.items()} for q, items in other.items()}
    expected = agreement(make_run(1.0), other, 5)
    actual = agreement(make_run(-1.0), far, 5, lower_is_better=True)
    assert actual.per_list.equals(expected.per_list)
    with pytest.raises(ValueError, match="`lower_is_better` should be False for a run"):
        agreement(make_run(-1.0), {0: [1, 2]}, lower_is_better=True)
