"""Property tests that compare judgments and runs in dicts with equal tables."""

import hypothesis
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from keras_rank.evaluation import evaluate_run
from keras_rank.metrics import MeanReciprocalRank
from keras_rank.reading import runs

METRICS = ["ndcg@3", "map", "P_2", "recall@5", "bpref", "num_ret", "judged@2"]
# Scores with ties, some of them in float32 only, infinite scores and subnormals.
SCORES = [
    *(0.5, 0.5, 0.5 + 1e-12, -0.0, 0.0, 1.0, 1e300, 1e308, 1e-40, 5e-324, -1e-310),
    *(float("inf"), -float("inf"), float("nan")),
]
LABELS = [0, 0, 1, 1, 2, 3, -1, -2]
KINDS = {
    "text": (str, [0, 1, 2, 10, 11, "b", "é", "\U0001f600", "ﬀ", ""]),
    # Lists treat -1 as padding, so it is not among the ids.
    "integers": (int, [0, 1, 2, 3, 9, 10, 11, 100, -2, -20, 2**62]),
}


@st.composite
def sides(draw):
    """Draws judgments and a run, and whether they have labels and scores.

    Judgments and run have a query in common.
    """
    convert, ids = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    queries = st.sampled_from([convert(x) for x in (10, 9, 2, 1, 30)])
    has_scores, has_labels = draw(st.booleans()), draw(st.booleans())
    # Lists without numbers treat -1 as padding.
    ids = [convert(x) for x in ids if (has_scores and has_labels) or x != -1]
    items = st.sampled_from(ids)
    numbers = draw(
        st.sampled_from([SCORES, SCORES[:6], [x / 8 for x in range(99)], [1, 2, 3]])
    )
    size = draw(st.sampled_from([2, 10]))
    labels = st.sampled_from(LABELS if has_labels else [1])
    judged = st.dictionaries(items, labels, max_size=size)
    found = st.dictionaries(items, st.sampled_from(numbers), max_size=size)
    qrels = draw(st.dictionaries(queries, judged, min_size=1))
    run = draw(st.dictionaries(queries, found, min_size=1))
    hypothesis.assume(any(qrels.get(query) for query in run) and any(run.values()))
    return qrels, run, has_labels, has_scores


def convert_sides(qrels, run, has_labels, has_scores, data):
    """Returns judgments and a run in forms of dicts, and as tables."""
    of_lists = st.sampled_from([list, tuple])
    judged = qrels
    if not has_labels:
        convert = data.draw(st.sampled_from([list, tuple, set, frozenset]))
        judged = {query: convert(items) for query, items in qrels.items()}
    found = run
    if not has_scores:
        found = {query: data.draw(of_lists)(items) for query, items in run.items()}
    elif data.draw(st.booleans()):
        pair = data.draw(of_lists)
        found = {
            query: data.draw(of_lists)(map(pair, items.items()))
            for query, items in run.items()
        }
    # The rows have the order of iteration, which sets do not keep from the dicts.
    rows = [(q, x, qrels[q][x]) for q, items in judged.items() for x in items]
    of_qrels = pd.DataFrame(rows, columns=["query_id", "item_id", "label"])
    kind = pa.string() if isinstance(rows[0][1], str) else pa.int64()
    columns = {
        "query_id": pa.array(list(run)),
        "item_id": pa.array([list(x) for x in run.values()], pa.list_(kind)),
    }
    if has_scores:
        scores = [list(x.values()) for x in run.values()]
        columns["score"] = pa.array(scores, pa.list_(pa.float64()))
    return judged, found, of_qrels, pa.table(columns)


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "rules": st.sampled_from(["trec_eval", "trec_eval-9", "keras"]),
        "ties": st.sampled_from(["metric", "trec_eval"]),
        "missing": st.just("skip"),
        "unjudged": st.just("drop"),
        "ignore_identical_ids": st.just(True),
        "keep_items": st.integers(1, 3),
    },
)


@pytest.mark.slow
@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(sides=sides(), settings=SETTINGS, data=st.data())
def test_dicts_give_the_results_of_tables(sides, settings, data):
    judged, found, *tables = convert_sides(*sides, data)
    metrics = [*METRICS]
    if data.draw(st.booleans()):
        metrics.append(MeanReciprocalRank(shuffle_ties=False, name="stable"))
    expected = evaluate_run(*tables, metrics, **settings)
    with pytest.MonkeyPatch.context() as patch:
        if any(x for q, items in sides[1].items() for x in items if str(x) != str(q)):
            # Dicts do not need DuckDB.
            patch.delattr(runs, "connect_with_limit")
        result = evaluate_run(judged, found, metrics, **settings)
    one, other = result.table, expected.table
    assert one.schema.equals(other.schema, check_metadata=True)
    for name in one.column_names:
        values, wanted = one[name].to_pylist(), other[name].to_pylist()
        assert repr(values) == repr(wanted), name
    assert result.warnings == expected.warnings
    assert repr(result.health()) == repr(expected.health())
