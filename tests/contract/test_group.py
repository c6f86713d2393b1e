"""`RankingMetrics`: members have the values of single metrics and share one order."""

import numpy as np
import pytest
from arrays import assert_close
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import BACKEND_CASES, FIRST_CASES, SUBTOPIC_CASES, cases_for_cutoff
from strategies import BATCH, LIST_SIZE, batches, ties
from timing import NINE

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend
from keras_rank.evaluation import evaluate, evaluate_run
from keras_rank.metrics import (
    DCG,
    NDCG,
    FBetaAtK,
    MeanReciprocalRank,
    RankingMetric,
    RankingMetrics,
    base,
    variables,
)
from keras_rank.metrics.group import as_group
from keras_rank.metrics.registry import parse_metric

ASCII = st.characters(max_codepoint=127)

KINDS = {"plain": BACKEND_CASES, "subtopics": SUBTOPIC_CASES}
each_kind = pytest.mark.parametrize("cases", KINDS.values(), ids=KINDS)


def assert_equal_to_members_alone(make, *batches):
    """Compares results and standard errors with those of equal single metrics."""
    group, members = RankingMetrics(make(), standard_errors=True), make()
    for batch in batches:
        for metric in (group, *members):
            metric.update_state(*batch)
    expected = {}
    for member in members:
        expected[member.name] = float(member.result())
        expected[f"{member.name}_stderr"] = float(member.standard_error())
    actual = {name: float(value) for name, value in group.result().items()}
    assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True)
    return group


@pytest.mark.compiles_long
@each_kind
@given(batch=batches(weighted=True), shuffle_ties=ties)
def test_members_equal_single_metrics(cases, batch, shuffle_ties):
    def members():
        return [
            case.make(k=k, name=f"{case} {place}@{k}", shuffle_ties=shuffle_ties)
            for place, case in enumerate(cases)
            for k in (3, None)
        ]

    labels, *others = batch
    batch = cases[0].labels(labels), *others
    assert_equal_to_members_alone(members, batch, [x[::-1] for x in batch])


@pytest.mark.compiles_long
@pytest.mark.programs
def test_members_of_all_kinds(rng):
    """Each kind of members is computed separately, and all sums are in one variable."""
    # JAX has no float64 unless it is enabled.
    wide = {"dtype": backend.supported_dtype("float64")}

    def members():
        return [
            NDCG(k=4, seed=1),
            NDCG(k=3, seed=2, name="other seed"),
            NDCG(k=3, shuffle_ties=False, name="stable"),
            # The ideal order of this metric differs from that of the previous one.
            NDCG(k=2, shuffle_ties="average", name="average"),
            NDCG(k=2, seed=1, **wide, name="wide"),
            metrics.AverageRelevancePosition(k=2, seed=2),
            MeanReciprocalRank(seed=1),
            MeanReciprocalRank(sparse_labels=True, name="sparse", seed=1),
            MeanReciprocalRank(empty_value=0.5, seed=1, **wide, name="empty"),
            metrics.HitRate(k=2, empty_value=None, seed=1),
        ]

    # Ids are all items. The numbers are also labels, with padding.
    ids = rng.permuted(np.tile(np.arange(LIST_SIZE) - 1, (3 * BATCH, 1)), axis=1)
    scores = rng.integers(0, 3, size=ids.shape).astype("float32")
    weights = rng.choice([0.5, 1.0, 2.5], size=len(ids))
    group = assert_equal_to_members_alone(members, (ids, scores, weights))
    assert utils.export_state(group)["sparse/lists_seen"] == len(ids)


@pytest.mark.compiles_long
@pytest.mark.filterwarnings("ignore:.* lists have no relevant item")
@pytest.mark.parametrize(
    ("shuffle_ties", "targets"), [(True, 1), (False, 1), (True, 4), ("average", 4)]
)
def test_members_with_sparse_labels(shuffle_ties, targets, rng):
    def members():
        make = {"seed": 1, "shuffle_ties": shuffle_ties, "sparse_labels": True}
        families = NDCG, DCG, MeanReciprocalRank, metrics.HitRate, metrics.PrecisionAtK
        members = [metric(k=k, **make) for metric in families for k in (1, 7)]
        others = metrics.MeanAveragePrecision(**make), metrics.RecallAtK(k=5, **make)
        return [*members, *others]

    ids = rng.integers(-1, LIST_SIZE, size=(2, 3 * BATCH, targets))
    scores = rng.integers(0, 5, size=(2, 3 * BATCH, LIST_SIZE)).astype("float32")
    assert_equal_to_members_alone(members, *zip(ids, scores, strict=True))


def test_shared_computations_run_once():
    """Gains, their order and the ideal order are shared by all cutoffs."""
    calls = []

    def gain(labels):
        calls.append(labels)
        return labels

    def count_calls(cutoffs):
        calls.clear()
        group = RankingMetrics([NDCG(k=k, gain_fn=gain) for k in cutoffs])
        group.update_state([[1, 0, 2]], [[0.1, 0.2, 0.3]])
        return len(calls)

    assert count_calls([1, 5, 10]) == count_calls([10]) > 0


def test_members_share_variables(monkeypatch):
    """A group of nine strings creates three variables, not three for each member."""
    made = []

    class Variable(variables.SumVariable):
        def __init__(self, *arguments):
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(variables, "SumVariable", Variable)
    monkeypatch.setattr(base, "SumVariable", Variable)
    for make in (RankingMetrics, as_group):
        made.clear()
        group = make([*NINE, "coverage(items=3)@2"])
        assert [id(x) for x in group.variables] == [id(x) for x in made]
        del made[3:]
        assert [tuple(x.shape)[-1:] for x in made] == [(9,)] * 3
        names = [variable.name for variable in group.variables]
        assert names == ["totals", "remainders", "lists_seen", "counts", "lists_seen"]


@pytest.mark.compiles_long
@pytest.mark.parametrize("families", [[NDCG, DCG], [DCG]])
def test_a_group_does_not_share_sums_with_given_metrics(families, rng):
    """Metrics that were used before keep their sums, and the group starts from 0."""
    batch = rng.integers(0, 4, size=(8, 7)), rng.normal(size=(8, 7))
    first, second = ([x[rows] for x in batch] for rows in (slice(2), slice(2, 8)))
    inputs, expected = ([family(k=3, seed=1) for family in families] for _ in range(2))
    for metric in inputs:
        metric.update_state(*first)
    before = [float(metric.result()) for metric in inputs]
    groups = RankingMetrics(inputs), RankingMetrics(inputs)
    for metric in (groups[0], *expected):
        metric.update_state(*second)
    assert [float(metric.result()) for metric in inputs] == before
    for metric, other in zip(inputs, expected, strict=True):
        assert float(groups[0].result()[metric.name]) == float(other.result())
        error = float(groups[0].standard_error()[metric.name])
        assert error == pytest.approx(float(other.standard_error()), nan_ok=True)
        assert float(groups[1].result()[metric.name]) == 0.0
        metric.update_state(*second)
        assert len(metric.variables) == 3
    assert [float(x) for x in groups[1].result().values()] == [0.0] * len(families)


METHODS = {
    "result": (),
    "standard_error": (),
    "reset_state": (),
    "update_state": ([[0, 1]], [[0.2, 0.1]]),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_member_has_no_state(method):
    config = {"class_name": "keras_rank>Gini", "config": {"k": 1, "items": 2}}
    group = RankingMetrics([NDCG(k=2), metrics.Coverage(k=1, items=2), "mrr", config])
    group.update_state(*METHODS["update_state"])
    for member in group.members:
        assert member.variables == []
        if hasattr(member, method):
            with pytest.raises(
                ValueError, match=rf"`group.{method}\(\)`.* is a member of"
            ):
                getattr(member, method)(*METHODS[method])
        with pytest.raises(ValueError, match="`export_state` should be called on"):
            utils.export_state(member)


def test_a_metric_that_was_only_passed_to_a_group_has_no_result():
    """The result would be 0, as the group updates a copy. The metric can be updated."""
    batch = [[0, 1]], [[0.2, 0.1]]
    for metric in (MeanReciprocalRank(), metrics.Coverage(k=1, items=2)):
        assert float(metric.result()) == 0.0
        group = RankingMetrics([metric])
        group.update_state(*batch)
        with pytest.raises(
            ValueError, match=r"`group.result\(\)`.* is only given to a"
        ):
            metric.result()
        metric.update_state(*batch)
        assert float(metric.result()) == 0.5
        metric.reset_state()
        assert float(metric.result()) == 0.0


@pytest.mark.parametrize("is_passed_first", [True, False])
def test_a_metric_with_sums_that_was_passed_to_a_group_has_a_result(is_passed_first):
    """Sums may be merged or assigned. A metric may be reset before it joins a group."""
    inputs, assigned, reset, other = (MeanReciprocalRank() for _ in range(4))
    for metric in (reset, other):
        metric.update_state([[0, 1]], [[0.2, 0.1]])
    reset.reset_state()
    if is_passed_first:
        groups = [RankingMetrics([metric]) for metric in (inputs, assigned, reset)]
    utils.merge_state(inputs, [other])
    for variable, value in zip(assigned.variables, other.variables, strict=True):
        variable.assign(value.value)
    if not is_passed_first:
        groups = [RankingMetrics([metric]) for metric in (inputs, assigned, reset)]
    assert float(inputs.result()) == float(assigned.result()) == 0.5
    assert all(float(group.result()["mrr"]) == 0.0 for group in groups)
    for call in (reset.result, reset.standard_error, lambda: utils.export_state(reset)):
        with pytest.raises(ValueError, match="'mrr', which is only given to a group"):
            call()


def test_copies_do_not_share_variables():
    class Counted(RankingMetric):
        def __init__(self, k=None, **arguments):
            super().__init__(k, **arguments)
            self.calls = self.add_variable((), "zeros", name="calls")

        def compute(self, lists, ranking):
            self.calls.assign_add(1.0)
            return ranking.take(lists.relevance)[:, 0]

    metric = Counted(k=1)
    metric.update_state([[1, 0]], [[0.2, 0.1]])
    groups = [RankingMetrics([metric, "mrr"]) for _ in range(2)]
    groups[0].update_state([[1, 0]], [[0.2, 0.1]])
    groups[1].reset_state()
    calls = [float(x.calls.value) for x in (metric, *(g.members[0] for g in groups))]
    assert calls == [1.0, 2.0, 0.0]
    assert len(groups[0].variables) == 4


def test_a_member_of_another_group_is_copied():
    first = RankingMetrics([NDCG(k=2), "mrr"])
    first.update_state([[0, 1]], [[0.2, 0.1]])
    second = RankingMetrics(first.members[1:])
    second.update_state([[0, 1]], [[0.1, 0.2]])
    assert float(first.result()["mrr"]) == 0.5
    assert float(second.result()["mrr"]) == 1.0


def test_members_without_a_seed_share_one():
    """Members that shuffle ties and have no seed use the seed of the first member."""
    others = NDCG(k=3, seed=7), MeanReciprocalRank(), NDCG(4, shuffle_ties="average")
    first = NDCG(k=2)
    seeds = [first.seed, 7, first.seed, None]
    assert [each.seed for each in RankingMetrics([first, *others]).members] == seeds


def test_an_error_changes_no_state():
    group = RankingMetrics([NDCG(k=2), NDCG(k=2, sparse_labels=True, name="sparse")])
    with pytest.raises(ValueError, match="`y_true` should hold ids below"):
        group.update_state(np.array([[5, 0]]), np.array([[0.1, 0.2]]))
    assert all(np.all(ops.convert_to_numpy(v) == 0) for v in group.variables)


@pytest.mark.parametrize("sign", ["@", "_at_"])
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_every_metric_has_a_string(case, sign):
    at_k, k = (f"{sign}3", 3) if case.has_cutoff else ("", None)
    member = RankingMetrics([case.metric.base_name + at_k]).members[0]
    assert type(member) is case.metric
    assert member.get_config() == case.metric(k=k, seed=member.seed).get_config()


STRINGS = [
    ("tau", "tau", "KendallTau()"),
    ("rho", "rho", "SpearmanCorrelation()"),
    ("spearman", "spearman", "SpearmanCorrelation()"),
    ("recall_cap@9", "recall_cap_at_9", "RecallAtK(k=9, normalizer='clipped')"),
    ("R_cap_at_9", "R_cap_at_9", "RecallAtK(k=9, normalizer='clipped')"),
]


@pytest.mark.parametrize(("string", "name", "call"), STRINGS)
def test_names_of_results_of_strings(string, name, call):
    """Results are named by their strings, so that results of two strings differ."""
    group = RankingMetrics([string, "recall@9"])
    assert list(group.result()) == [name, "recall_at_9"]
    assert group.members[0]._format_call() == call


# The name of the result in Keras's logs and the call, by string with arguments.
WITH_ARGUMENTS = {
    "rbp(persistence=0.9)@10": (
        "rbp_persistence_0_9_at_10",
        "RankBiasedPrecision(k=10, persistence=0.9)",
    ),
    "f_beta(beta=3)_at_5": ("f_beta_beta_3_at_5", "FBetaAtK(k=5, beta=3.0)"),
    "f_beta(beta=+1e-1)": ("f_beta_beta_1e_1", "FBetaAtK(beta=0.1)"),
    "f_beta(beta=.5)": ("f_beta_beta_5", "FBetaAtK(beta=0.5)"),
    "ndcg( gain_fn = 'linear' , shuffle_ties=false)@10": (
        "ndcg_gain_fn_linear_shuffle_ties_false_at_10",
        "NDCG(k=10, gain_fn=linear, shuffle_ties=False)",
    ),
    'rbp(normalized=True, gain_fn="linear",max_grade=4)': (
        "rbp_normalized_True_gain_fn_linear_max_grade_4",
        "RankBiasedPrecision(normalized=True, gain_fn=linear, max_grade=4.0, "
        "relevance_threshold=None)",
    ),
    "mrr(empty_value=none,seed=-7)@3": (
        "mrr_empty_value_none_seed_7_at_3",
        "MeanReciprocalRank(k=3, seed=-7, empty_value=None)",
    ),
    "recall_cap(relevance_threshold=2)@3": (
        "recall_cap_relevance_threshold_2_at_3",
        "RecallAtK(k=3, normalizer='clipped', relevance_threshold=2.0)",
    ),
    "coverage(items=7)@3": ("coverage_items_7_at_3", "Coverage(k=3, items=7)"),
}


@pytest.mark.parametrize("string", WITH_ARGUMENTS)
def test_strings_with_arguments(string):
    (member,) = RankingMetrics([string]).members
    assert (member.name, member._format_call()) == WITH_ARGUMENTS[string]
    assert member.name.isidentifier()
    (member,) = as_group([string]).members
    assert (member.name, member._format_call()) == (string, WITH_ARGUMENTS[string][1])


ARGUMENT_ERRORS = {
    "ndcg(k=3)": "`k` should be an argument of `ndcg`, whose cutoff follows @. Rec",
    "ndcg(k=3)@3": "'ndcg(k=3)@3'. Known names are ['gain_fn', 'rank_discount_fn', ",
    "ndcg(name=x)": "'list_weight', 'sparse_labels', 'dtype'] and others",
    "ndcg(gain=linear)": '(gain=linear)\'. Did you mean "gains" or "gain_fn"?',
    "rbp(persistance=.8)@10": 'Did you mean "persistence"?',
    "rbp(x=1)": "'empty_weight', 'list_weight', 'relevance_threshold'] and others",
    "f1(beta=2)": "Known names are ['denominator', 'shuffle_ties', ",
    "recall_cap(normalizer=total)@5": "Known names are ['shuffle_ties', 'seed', ",
    "f_beta(beta=1,beta=2)@5": "`beta` should be given once. Received: 'f_beta(beta",
    "f_beta(beta=0)@5": "`beta` should be a number above 0 that is finite in float32",
    "f_beta(beta='2')@5": "Received: beta='2'",
    "rbp(persistence=true)": "Received: persistence=True",
    "rbp(persistence=1_0)": "Received: persistence='1_0'",
    "rbp(persistence=nan)": "Received: persistence='nan'",
    "rbp(persistence=1e999)": "Received: persistence=inf",
    f"mrr(seed={'9' * 5000})": "Received: seed=inf",
    "ndcg(gain_fn=cubic)": "['exponential', 'linear']. Received: gain_fn='cubic'",
    "ndcg(shuffle_ties=maybe)": "Received: shuffle_ties='maybe'",
    "err_ia(subtopic_weights=3)@2": "Received: subtopic_weights=3",
    "kendall_tau(seed=3)@5": "`k` should be None for a metric of whole lists. Received",
    "ndcg(gain_fn=linear)@0": "`k` should be a positive integer. Received: k=0",
    "coverage(items=5)": "`k` should be a positive integer. Received: k=None",
    "ndgc(gain_fn=linear)@9": 'Did you mean "ndcg(gain_fn=linear)@9"?',
    "f_beta(beta=2)_5": 'Did you mean "f_beta(beta=2)@5"?',
    "novelty(popularity=x)@5": "Received: 'novelty(popularity=x)@5'. Known names are",
    "RBP(p=0.8)@10": "`p` should be an argument of `rbp`",
    "Success(rel=2)@5": "'Success(rel=2)@5', which only `keras_rank.evaluation` knows",
    "P(rel=2)@5": "`rel` should be an argument of `p`",
    "ndcg(gains={1:0,2})@10": "`gains` should be the gain of each label once, as in",
    "ndcg(gains='1:0,1:2')": "`gains` should be the gain of each label once, as in",
    "ndcg(gains={1:-1})": "`gains` should be a dict from labels to gains, numbers from",
    "ndcg(gains=linear)": "`gains` should be the gain of each label once, as in",
    "ndcg(gains={a:1})": "`gains` should be the gain of each label once, as in",
    "mrr(gains={1:1})": "`gains` should be an argument of `mrr`, whose cutoff",
    "rbp(seed=3,persistence=[.8,.9])": "`persistence` should be a number or a word in",
    "ndcg(gain_fn=lambda x: x)": "`gain_fn` should be a number or a word in a string",
}
# Malformed strings.
MALFORMED = [
    *("ndcg()@10", "ndcg( )@10", "ndcg((gain_fn=linear))", "ndcg(gain_fn=(linear))"),
    *("f_beta(2)@5", "f_beta(beta=)", "f_beta(=2)", "f_beta(beta)", "f_beta(beta==2)"),
    *("f_beta(beta=2", "f_beta beta=2)", "f_beta(beta=2))", "f_beta(beta=2)(seed=3)"),
    *("f_beta(beta=2,)", "f_beta(,beta=2)", "f_beta(beta=2,,seed=3)", "(beta=2)@5"),
    *("f_beta(beta=2 3)", "f_beta(be ta=2)", "f_beta(beta=2;)", "f_beta(beta=2\n)"),
    *("f_beta(beta=2)@5@6", "f_beta(beta=2)@", "f_beta(beta=2)@-1", "f_beta(beta=2)5"),
    *("f_beta(beta=2)@1e3", "f_beta(beta=2)@1.5", "f_beta(beta=2) @5", "P(rel=2)@5.5"),
    *("f_beta(beta=٢)@5", "f_beta(beta=2)@५", "f_beta(béta=2)", "f_beta(beta=²)"),
    *("ndcg(gain_fn='linear)", "ndcg(gain_fn=\"linear')", "ndcg(gain_fn=linear')"),
    *("ndcg(gain_fn='')", "ndcg(gain_fn='a b')", "err_ia(subtopic_weights=[1,2])@2"),
    f"f_beta(beta=2)@{'9' * 5000}",
]


@pytest.mark.parametrize("string", [*ARGUMENT_ERRORS, *MALFORMED])
def test_wrong_strings_are_errors(string):
    with pytest.raises(ValueError, match=": ") as error:
        RankingMetrics([string])
    if string in MALFORMED:
        assert str(error.value).endswith(f" Received: {string!r}")
        assert 'as in "rbp(persistence=0.9)@10"' in str(error.value)
    assert ARGUMENT_ERRORS.get(string, "Received: ") in str(error.value)


values = st.one_of(
    st.integers(-(10**17), 10**17).map(lambda x: (str(x), x)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: (repr(x), x)),
    st.sampled_from([("true", True), ("False", False), ("none", None)]),
    st.from_regex(r"[a-z][\w.+-]{0,5}", fullmatch=True, alphabet=ASCII)
    .filter(lambda x: x not in ("true", "false", "none"))
    .map(lambda x: (x, x)),
    st.from_regex(r"[\w.+-]{1,5}", fullmatch=True, alphabet=ASCII).flatmap(
        lambda x: st.sampled_from([(f"'{x}'", x), (f'"{x}"', x)])
    ),
)


@given(
    name=st.sampled_from(["ndcg", "map_at_r", "alpha-nDCG", "f1", "P"]),
    arguments=st.dictionaries(st.sampled_from(["a", "b_1", "at_3"]), values),
    end=st.sampled_from([("", None), ("@1", 1), ("_at_12", 12), ("_7", 7), (".3", 3)]),
    space=st.sampled_from(["", " "]),
)
def test_strings_are_parsed(name, arguments, end, space):
    texts = [f"{space}{x}{space}={space}{y}{space}" for x, (y, _) in arguments.items()]
    stem = f"{name}({','.join(texts)})" if texts else name
    parts = parse_metric(stem + end[0])
    expected = {x: value for x, (_, value) in arguments.items()}
    assert (parts.name, parts.stem, parts.k) == (name, stem, end[1])
    assert parts.sign == end[0].rstrip("0123456789")
    assert repr(parts.arguments) == repr(expected)


def test_default_names_of_f_beta_contain_beta():
    group = RankingMetrics([FBetaAtK(5, beta=beta) for beta in (2, 0.5, 3, 1e-7)])
    names = ["f_beta_at_5", "f_beta_0_5_at_5", "f_beta_3_at_5", "f_beta_1e_07_at_5"]
    assert list(group.result()) == names
    assert FBetaAtK(beta=0.5, name="mine").name == "mine"
    assert metrics.F1AtK(k=5).name == "f1_at_5"


@pytest.mark.compiles_long
def test_tables_use_strings_as_names():
    """Results in Keras's logs have identifiers as names instead."""
    names = ["ndcg@2", "mrr_at_2", "map", "f_beta(beta=3)@2"]
    logged = ["ndcg_at_2", "mrr_at_2", "map", "f_beta_beta_3_at_2"]
    assert list(RankingMetrics(names).result()) == logged
    queries, items = np.eye(2), np.eye(2)
    actual = catalogue.evaluate([0, 1], queries, items, names, verbose=0)
    assert list(actual) == names


@pytest.mark.parametrize("one", ["mrr", MeanReciprocalRank(name="mrr")])
def test_a_single_metric_needs_no_list(one):
    rows = {"query_id": [1, 1], "label": [1, 0], "score": [0.2, 0.9]}
    qrels, run = {"1": {"a": 1}}, {"1": ["b", "a"]}
    assert RankingMetrics(one)([1, 0], [0.2, 0.9]) == {"mrr": 0.5}
    assert catalogue.evaluate([0], [[1.0]], [[0.2], [0.9]], one) == {"mrr": 0.5}
    for ev in (evaluate(rows, one), evaluate_run(qrels, run, one)):
        assert ev.per_list["mrr"].to_pylist() == [0.5]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([], "`metrics` should be a list of one or more .* Received: metrics="),
        ({}, "`metrics` should be a list of one or more .* Received: metrics={}"),
        ("ndgc@10", "Received: 'ndgc@10'. Did you mean \"ndcg@10\""),
        ("novelty@20", "Received: 'novelty@20'. Known names are"),
        ("mrr,map", "a name and an optional cutoff.* Received: 'mrr,map'"),
        (["ndcg@"], "a name and an optional cutoff.* Received: 'ndcg@'"),
        (["ndcg_at_"], "a name and an optional cutoff.* Received: 'ndcg_at_'"),
        (["ndcg@1.5"], "a name and an optional cutoff.* Received: 'ndcg@1.5'"),
        (["ndcg@0"], "`k` should be a positive integer. Received: k=0"),
        (
            ["mrr(seed=3)", "mrr(seed=-3)"],
            r"'mrr_seed_3', of MeanReciprocalRank\(seed=3\) and Mea.*\(seed=-3\)",
        ),
        # A name of trec_eval, whose gains are linear.
        ("ndcg_cut_10", "'ndcg_cut_10', which only `keras_rank.evaluation` knows"),
        ([3], "`metrics` should hold ranking metrics.* Received: 3"),
        ([RankingMetrics(["ndcg"])], "`metrics` should hold ranking metrics"),
        (
            ["ndcg@10", "mrr", NDCG(k=10, gain_fn="linear", seed=3)],
            r"'ndcg_at_10', of NDCG\(k=10\) and NDCG\(k=10, gain_fn=linear, seed=3\)",
        ),
    ],
)
def test_wrong_members_are_errors(metrics, message):
    with pytest.raises(ValueError, match=message):
        RankingMetrics(metrics)


SUGGESTIONS = {
    "ndgc@10": ["ndcg@10"],
    "NDGC@10": ["ndcg@10"],
    "ndgc_at_10": ["ndcg@10"],
    "HR_10": ["hr@10"],
    "hit_ratio_10": ["hit_rate@10"],
    "rr@5": ["mrr@5", "err@5"],
    "precison": ["precision", "r_precision", "precision_ia"],
    "ndgc(gain_fn=linear)@9": ["ndcg(gain_fn=linear)@9"],
    "pairwise_acc": ["pairwise_accuracy"],
}
# Names without any close name.
WITHOUT_SUGGESTION = ["x@5", "nugget@5", "F2@5"]


@pytest.mark.parametrize("string", [*SUGGESTIONS, *WITHOUT_SUGGESTION])
def test_an_unknown_name_suggests_close_names(string):
    with pytest.raises(ValueError, match="a name and an optional cutoff") as error:
        RankingMetrics([string])
    end = ". Known names are ['ndcg', 'dcg', 'map', 'mrr', 'precision', 'recall', "
    end += "'hit_rate', 'f1', 'f_beta', 'r_precision'] and others"
    if string in SUGGESTIONS:
        end = (
            f""". Did you mean {" or ".join(f'"{x}"' for x in SUGGESTIONS[string])}?"""
        )
    assert str(error.value).endswith(f"Received: {string!r}{end}")


IN_ANY_CASE = {
    "NDCG@10": ("ndcg_at_10", "NDCG(k=10)"),
    "nDCG_at_10": ("ndcg_at_10", "NDCG(k=10)"),
    "Recall@3": ("recall_at_3", "RecallAtK(k=3)"),
    "r_cap@3": ("R_cap_at_3", "RecallAtK(k=3, normalizer='clipped')"),
    "F1": ("f1", "F1AtK()"),
    "MAP": ("map", "MeanAveragePrecision()"),
    "hr@10": ("hr_at_10", "HitRate(k=10)"),
    "HR@10": ("hr_at_10", "HitRate(k=10)"),
    "p@5": ("p_at_5", "PrecisionAtK(k=5)"),
    "P@5": ("p_at_5", "PrecisionAtK(k=5)"),
    "RBP(persistence=0.9)": ("rbp_persistence_0_9", "RankBiasedPrecision()"),
}


@pytest.mark.parametrize("string", IN_ANY_CASE)
def test_names_are_case_insensitive(string):
    (member,) = RankingMetrics([string]).members
    call = member._format_call().replace("persistence=0.9", "")
    assert (member.name, call) == IN_ANY_CASE[string]


def test_name_prefix_and_direction():
    """Name and direction are those of the first member, unless a name is given."""
    group = RankingMetrics(["ndcg@10", "arp@3"], prefix="buy_")
    assert (group.name, group._direction) == ("buy_ndcg_at_10", "up")
    assert list(group.result()) == ["buy_ndcg_at_10", "buy_arp_at_3"]
    config = group.get_config()
    assert RankingMetrics.from_config(config).get_config() == config
    group = RankingMetrics(["arp", "ndcg"], name="mine")
    assert (group.name, group._direction) == ("mine", "down")
    with pytest.raises(ValueError, match="`prefix` should be a string"):
        RankingMetrics(["ndcg"], prefix=3)


@pytest.mark.compiles_long
@each_kind
@given(batch=batches(weighted=True), shuffle_ties=ties)
def test_functions_share_ranked_lists(cases, batch, shuffle_ties):
    labels, scores, weights = batch
    labels = cases[0].labels(labels)
    make = {"sample_weight": weights, "shuffle_ties": shuffle_ties, "seed": 1}
    for largest in (5, None):
        order = functional.rank(labels, scores, k=largest, **make)
        for case in cases_for_cutoff(largest, cases):
            for k in (3, largest) if case.has_cutoff else (None,):
                arguments = dict(case.arguments)
                if not case.leaves_out_empty:
                    arguments["empty_value"] = 0.5
                actual = case.function(order, k=k, **arguments)
                expected = case.function(labels, scores, k=k, **make, **arguments)
                assert tuple(actual.shape) == (BATCH,)
                assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 6}, "at most the `k` of the ranked lists, 5. Received: k=6"),
        ({}, "lists, 5. Received: k=None, which is all ranks: rank without a `k`"),
        ({"k": 2, "y_pred": [[0.1, 0.2]]}, "should be left out .* Received: y_pred"),
        ({"k": 2, "sample_weight": 2.0}, "left out .* Received: sample_weight"),
        ({"k": 2, "shuffle_ties": False}, "left out .* Received: shuffle_ties=False"),
        ({"k": 2, "shuffle_ties": "avg"}, "True, False, .* shuffle_ties='avg'"),
        ({"k": 2, "seed": 1}, "left out .* Received: seed=1"),
        ({"k": 2, "sparse_labels": True}, "left out .* Received: sparse_labels=True"),
        ({"k": 2, "dtype": "float64"}, "left out .* Received: dtype='float64'"),
    ],
)
def test_wrong_arguments_with_ranked_lists_are_errors(arguments, message):
    order = functional.rank([[1, 0]], [[0.1, 0.2]], k=5, shuffle_ties="average")
    with pytest.raises(ValueError, match=message):
        functional.ndcg(order, **arguments)


def test_repr_of_ranked_lists():
    order = functional.rank([[1, 0]] * 3, [[0.1, 0.2]] * 3, k=5, shuffle_ties=False)
    assert repr(order) == "<RankedLists of 3 lists, k=5, ties='stable'>"


def test_arguments_may_repeat_those_of_ranked_lists():
    options = {"shuffle_ties": "average", "sparse_labels": True, "dtype": "float32"}
    order = functional.rank([0], [[0.2, 0.2]], **options)
    expected = pytest.approx((1 + 1 / np.log2(3)) / 2)
    for arguments in (options, {"shuffle_ties": True}):
        assert float(functional.ndcg(order, **arguments)[0]) == expected
