"""The argument `by` of the callbacks: results of all lists and of segments."""

import keras
import numpy as np
import pytest
import scipy.sparse
from epochs import Identity, run_epoch

from keras_rank import catalogue, functional, metrics
from keras_rank.callbacks import CatalogueEvaluation, GroupedEvaluation, ListEvaluation
from keras_rank.catalogue import catalogue_metrics
from keras_rank.metrics import NDCG, RankingMetrics
from keras_rank.utils import pad_lists

pytestmark = [
    # The tests need empty lists and duplicate candidates.
    pytest.mark.filterwarnings("ignore:.*have no relevant item"),
    pytest.mark.filterwarnings("ignore:`candidates` should hold each item once"),
]

ROWS, LISTS, ITEMS = 60, 12, 20
NAMES = ["new users", "old", "päd"]
IN_LOGS = ["new_users", "old", "pad"]


class Half(metrics.RankingMetric):
    """A user's metric, which no compiled program computes."""

    base_name, takes_sparse_labels = "half", True

    def compute(self, lists, ranking):
        return 0.5 * lists.labels[:, 0]


@pytest.fixture
def rows(rng):
    """Returns scores, labels, list ids and segments of rows in any order.

    Scores tie, and some lists have no relevant item.
    """
    ids = rng.permutation(np.arange(ROWS) % LISTS)
    labels = rng.integers(0, 3, ROWS) * (ids > 1)
    by = np.array(NAMES)[ids * 7 % 3]
    return rng.integers(0, 4, ROWS).astype("float32"), labels, ids, by


@pytest.fixture
def lists(rng):
    """Returns scores, labels and segments of padded lists, which also tie."""
    scores = rng.integers(0, 4, (LISTS, 6)).astype("float32")
    labels = rng.integers(-1, 3, (LISTS, 6)) * (np.arange(LISTS) > 1)[:, None]
    return scores, labels, np.array(NAMES)[np.arange(LISTS) * 7 % 3]


@pytest.fixture
def queries(rng):
    """Returns queries, candidates with many ties, targets and segments."""
    embeddings = rng.integers(-1, 2, (LISTS, 3)), rng.integers(-1, 2, (ITEMS, 3))
    targets = rng.permuted(np.tile(np.arange(ITEMS), (LISTS, 1)), axis=1)[:, :3]
    by = np.array(NAMES)[rng.permutation(np.arange(LISTS) % 3)]
    return *(x.astype("float32") for x in embeddings), targets, by


def evaluate_rows(rows, members, by=None, selection=slice(None), **arguments):
    data = (array[selection] for array in rows[:3])
    arguments |= {"by": by, "model": Identity(), "prefix": ""}
    return run_epoch(GroupedEvaluation(*data, members, **arguments))


def evaluate_lists(lists, members, by=None, selection=slice(None), **arguments):
    data = (array[selection] for array in lists[:2])
    arguments |= {"by": by, "model": Identity(), "prefix": ""}
    return run_epoch(ListEvaluation(*data, members, **arguments))


def make_callback(queries, members, by, selection=slice(None), **arguments):
    x, candidates, targets, _ = queries
    data = x[selection], targets[selection], candidates, members
    arguments |= {"by": by, "query_model": Identity(), "prefix": ""}
    return CatalogueEvaluation(*data, **arguments)


def evaluate_queries(queries, members, by=None, *selection, **arguments):
    return run_epoch(make_callback(queries, members, by, *selection, **arguments))


def expected_means(name, values, weights, segments):
    """Returns the weighted means of all lists and of each segment."""
    means = {name: np.average(values, weights=weights)}
    for segment, suffix in zip(NAMES, IN_LOGS, strict=True):
        in_segment = segments == segment
        means[f"{name}_{suffix}"] = np.average(
            values[in_segment], weights=weights[in_segment]
        )
    return pytest.approx(means, rel=1e-6)


def evaluate_separately(evaluate, data, members):
    """Returns the results of all lists, and of each segment evaluated alone."""
    expected = evaluate(data, members)
    results_by_segment = [
        evaluate(data, members, None, data[-1] == name) for name in NAMES
    ]
    for name, results in zip(IN_LOGS, results_by_segment, strict=True):
        expected |= {f"{key}_{name}": value for key, value in results.items()}
    return expected


@pytest.mark.compiles_long
@pytest.mark.parametrize("evaluate", [evaluate_rows, evaluate_lists, evaluate_queries])
def test_results_of_segments_equal_separate_evaluations(request, evaluate):
    """Standard errors are equal too, and empty lists count. No ties are shuffled."""
    data = request.getfixturevalue(evaluate.__name__.removeprefix("evaluate_"))
    # JAX has no float64 unless it is enabled.
    dtype = "float32" if keras.backend.backend() == "jax" else "float64"
    members = [
        NDCG(k=3, shuffle_ties="average"),
        NDCG(k=2, shuffle_ties="average", empty_value=None, name="left_out"),
        metrics.MeanAveragePrecision(shuffle_ties=False, dtype=dtype),
        Half(),
    ]
    members = RankingMetrics(members, standard_errors=True)
    expected = evaluate_separately(evaluate, data, members)
    actual = evaluate(data, members, data[-1])
    assert len(actual) == 4 * 2 * 4
    assert list(actual)[:8] == list(evaluate(data, members))
    assert actual == pytest.approx(expected, rel=1e-6, nan_ok=True)
    # Segments do not change the results of all lists, even if ties are shuffled.
    members = RankingMetrics([NDCG(k=2, seed=1), NDCG(k=3, seed=2), "mrr"])
    expected, actual = evaluate(data, members), evaluate(data, members, data[-1])
    assert {name: actual[name] for name in expected} == expected


@pytest.mark.compiles_long
@pytest.mark.parametrize("max_items", [2**21, 15, 1])
def test_lists_have_equal_values_in_segments(rows, rng, monkeypatch, max_items):
    """Ties are shuffled by the number of the list among all, in batches of any size."""
    monkeypatch.setattr("keras_rank.callbacks.grouped_evaluation._MAX_ITEMS", max_items)
    scores, labels, ids, by = rows
    _, first_rows, list_index = np.unique(ids, return_index=True, return_inverse=True)
    weights = rng.random(LISTS)
    padded = [pad_lists(each, group_ids=ids) for each in (labels, scores)]
    first_rows_in_order = np.sort(first_rows)
    list_weights = weights[ids[first_rows_in_order]]
    metric = NDCG(k=2, seed=5, empty_value=None)
    actual = evaluate_rows(rows, [metric], by, sample_weight=weights[list_index])
    values = np.asarray(functional.ndcg(*padded, k=2, seed=5, empty_value=None))
    counts = ~np.isnan(values)
    assert 0 < counts.sum() < LISTS
    counted = values[counts], list_weights[counts], by[first_rows_in_order][counts]
    assert actual == expected_means("ndcg_at_2", *counted)
    # A segment that is evaluated alone is shuffled differently.
    alone = evaluate_rows(rows, [metric], selection=by == NAMES[2], sample_weight=None)
    assert alone["ndcg_at_2"] != pytest.approx(actual["ndcg_at_2_pad"], rel=1e-3)


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("max_ranks", [2**22, 1])
def test_queries_have_equal_values_in_segments(
    queries, rng, monkeypatch, max_ranks, shuffle_ties
):
    monkeypatch.setattr(catalogue_metrics, "MAX_RANKS", max_ranks)
    x, candidates, targets, by = queries
    weights, exclude = rng.random(LISTS), rng.integers(0, ITEMS, (LISTS, 2))
    options = {"sample_weight": weights, "exclude": exclude}
    ties = {"shuffle_ties": shuffle_ties, "seed": 3}
    actual = evaluate_queries(queries, [NDCG(k=4, **ties)], by, **options)
    ranked = catalogue.rank(targets, x, candidates, **options, **ties)
    values = np.asarray(functional.ndcg(ranked, k=4))
    assert actual == expected_means("ndcg_at_4", values, weights, by)
    in_order = [IN_LOGS[NAMES.index(segment)] for segment in dict.fromkeys(by)]
    assert list(actual) == ["ndcg_at_4", *(f"ndcg_at_4_{name}" for name in in_order)]


@pytest.mark.compiles_long
def test_exposure(queries):
    """Exposure counts the lists of a segment, among all items of the catalogue."""
    x, candidates, _, by = queries
    # Stable ties do not depend on list numbers, which a segment alone would change.
    classes = metrics.Coverage, metrics.Gini, metrics.Personalization
    members = [metric_class(3, shuffle_ties=False) for metric_class in classes]
    members += [
        metrics.IntraListDiversity(3, item_vectors=candidates, shuffle_ties=False)
    ]
    exposure = RankingMetrics(members, standard_errors=True)
    expected = evaluate_separately(evaluate_queries, queries, exposure)
    group = RankingMetrics([*members, "ndcg@3"], standard_errors=True)
    actual = evaluate_queries(queries, group, by)
    # Means over lists have a standard error, unlike counts of items.
    suffixes = ["", *(f"_{name}" for name in IN_LOGS)]
    errors = {name for name in actual if "stderr" in name}
    means = "ndcg_at_3", "intra_list_diversity_at_3"
    assert errors == {f"{name}_stderr{x}" for name in means for x in suffixes}
    assert {name: actual[name] for name in expected} == pytest.approx(expected)
    recommended = keras.ops.convert_to_numpy(catalogue.top_k(x, candidates, k=3)[1])
    for suffix, name in zip(suffixes, ["", *NAMES], strict=True):
        # Every segment starts with the empty string, which selects all lists.
        share = len(np.unique(recommended[np.char.startswith(by, name)])) / ITEMS
        assert actual[f"coverage_at_3{suffix}"] == pytest.approx(share)


FORMS = [
    (lambda by: by, IN_LOGS),
    (lambda by: by.tolist(), IN_LOGS),
    (lambda by: tuple(by.astype(object)), IN_LOGS),
    (lambda by: [each.encode() for each in by], IN_LOGS),
    (lambda by: pytest.importorskip("pandas").Series(by).astype("category"), IN_LOGS),
    (lambda by: pytest.importorskip("polars").Series(by), IN_LOGS),
    (lambda by: by == "old", ["False", "True", "False"]),
    (lambda by: np.char.str_len(by) - 4, ["5", "_1", "_1"]),
    (lambda by: keras.ops.convert_to_tensor(np.char.str_len(by)), ["9", "3", "3"]),
    (lambda by: np.char.str_len(by) / 2, ["4_5", "1_5", "1_5"]),
]


@pytest.mark.parametrize(("form", "names"), FORMS)
def test_labels_are_strings_numbers_or_booleans(queries, form, names):
    *_, by = queries
    actual = evaluate_queries(queries, ["mrr"], form(by))
    expected = {f"mrr_{names[NAMES.index(label)]}" for label in by}
    assert actual.keys() == {"mrr", *expected}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Größe", "Gro_e"),
        ("1\N{SUPERSCRIPT TWO}", "12"),
        ("日本 (JP)", "____JP_"),
        (-1, "_1"),
        (1e30, str(10**30 + 19884624838656)),
        (0.25, "0_25"),
        (np.float32(9), "9"),
        (np.bool_(True), "True"),
        (float("inf"), "inf"),
        (b"caf\xc3\xa9", "cafe"),
        (b"a\xff", "a_"),
    ],
)
def test_names_are_identifiers(queries, label, name):
    """Names have ASCII letters, digits and underscores, as W&B requires."""
    actual = evaluate_queries(queries, ["mrr"], [label] * LISTS)
    assert list(actual) == ["mrr", f"mrr_{name}"]
    assert actual["mrr"] == actual[f"mrr_{name}"]


OF_ONE_TYPE = "`by` should be labels of one type, without missing ones"
STRINGS = "`by` should be strings with ASCII letters or digits"


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["a"] * 11, "`by` should have one label for each row of `targets`. .* 11 la"),
        ("segment", "`by` should be a list or an array of labels. Received: by='seg"),
        ([["a"]] * LISTS, OF_ONE_TYPE),
        ([("a", 1)] * LISTS, STRINGS),
        (scipy.sparse.csr_array(np.ones((LISTS, 1))), "`by` should .* which is sparse"),
        (["a"] * 11 + [None], f"{OF_ONE_TYPE}.* with None in row 11"),
        ([1.0] * 11 + [np.nan], f"{OF_ONE_TYPE}.* with nan in row 11"),
        (np.ma.array(np.arange(12), mask=[0] * 11 + [1]), "with None in row 11"),
        ([1] * 11 + ["1"], f"{OF_ONE_TYPE}.* with '1' in row 11"),
        ([1] * 11 + [True], f"{OF_ONE_TYPE}.* with True in row 11"),
        (["a"] * 11 + [" "], f"{STRINGS}, .* Received: by=' '"),
        ([0.5 + 1j] * LISTS, STRINGS),
        (np.array(["2026-01-01"] * LISTS, "datetime64[ns]"), STRINGS),
        (np.ones(LISTS, "timedelta64[ns]"), STRINGS),
        (["a" * 201] * LISTS, f"{STRINGS}.* of at most 200 characters"),
        (["a", "ä"] * 6, r"labels that give 'mrr_a' twice: \['a', 'ä'\]"),
        (["old", "a b", "b", "a_b"] * 3, r"'mrr_a_b' twice: \['a b', 'a_b'\]$"),
    ],
)
def test_invalid_labels_are_errors(queries, by, message):
    with pytest.raises(ValueError, match=message):
        evaluate_queries(queries, ["mrr"], by)


@pytest.mark.parametrize(
    ("label", "dtype"), [("a", None), (1, "Int64"), ("a", "category")]
)
def test_columns_of_tables_with_missing_labels_are_an_error(queries, label, dtype):
    column = pytest.importorskip("pandas").Series([label] * 11 + [None], dtype=dtype)
    with pytest.raises(ValueError, match=OF_ONE_TYPE):
        evaluate_queries(queries, ["mrr"], column)


@pytest.mark.compiles_long
def test_at_most_50_segments(rng):
    many = np.eye(51, dtype="float32"), np.eye(51, dtype="float32"), np.arange(51), None
    by = np.arange(51)
    with pytest.raises(ValueError, match=r"at most 50 segments\. Received: 51 dif"):
        evaluate_queries(many, ["mrr"], by)
    assert len(evaluate_queries(many, ["mrr"], by % 50)) == 51


def test_result_names_are_unique(queries):
    """The label of a segment may collide with another part of a name."""
    *_, by = queries
    for members, label in (
        (["ndcg", "ndcg@10"], "at_10"),
        (RankingMetrics(["mrr"], standard_errors=True), "stderr"),
    ):
        with pytest.raises(ValueError, match="`by` should be labels that give each"):
            evaluate_queries(queries, members, np.where(by == "old", label, "b"))
    with pytest.raises(ValueError, match=r"which gives \['mrr_old'\]"):
        make_callback(queries, ["mrr"], by).on_epoch_end(0, {"mrr_old": 1.0})


def test_rows_of_a_list_have_one_label(rows):
    _, _, ids, by = rows
    changed = by.copy()
    row = np.flatnonzero(ids == ids[0])[-1]
    changed[row] = "another"
    message = f"same label in all rows of a list. Received: 'another' in row {row}, and"
    with pytest.raises(ValueError, match=f"`by` should have the {message}"):
        evaluate_rows(rows, ["mrr"], changed)
    for wrong, message in (
        (by[1:], "`by` should have one value for each row. Received: 59 values for 60"),
        (np.stack([by, by], 1), r"`by` should have .* shape \(rows,\)"),
        ("segment", "`by` should be an array with one value for each row of `x`. Not"),
        ([*by[1:], None], "`by` should be labels of one type, .* with None in row 59"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_rows(rows, ["mrr"], wrong)
