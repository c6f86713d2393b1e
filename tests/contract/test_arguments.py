"""Arguments of metrics and functions: accepted values, messages and saved configs."""

import functools
import inspect
import pydoc
import random
import re

import compiled
import keras
import numpy as np
import pytest
from arrays import array, assert_close, assert_equal
from compiled import COMPILERS
from keras import ops
from registry import FIRST_CASES

from keras_rank import catalogue, discounts, functional, gains, metrics
from keras_rank.arguments import suggestion

resets_generator = pytest.mark.skipif(
    keras.__version__ < "3.13",
    reason="Keras 3.12 does not reset its global random generator",
)


@pytest.mark.parametrize("k", [[1, 3], (1, 3), {1, 3}, range(1, 4), np.array([1, 3])])
def test_a_cutoff_is_a_single_integer(k):
    message = f"`k` should be a positive integer. Received: k={k!r}. Each cutoff is a "
    for call in (
        metrics.NDCG,
        metrics.Coverage,
        lambda k: functional.ndcg([1], [1], k=k),
        lambda k: catalogue.rank([0], np.eye(1), np.eye(1), k=k),
    ):
        with pytest.raises(ValueError, match="RankingMetrics") as error:
            call(k)
        assert str(error.value).startswith(message)


class WithDepth(metrics.RankingMetric):
    def __init__(self, k=None, *, depth=3, **arguments):
        super().__init__(k, **arguments)
        self.depth = depth


FUNCTIONS = [getattr(functional, name) for name in functional.__all__]
CLASSES = [metrics.RankingMetric, *(case.metric for case in FIRST_CASES), WithDepth]
EXPOSURE_METRICS = [metrics.Coverage, metrics.Gini, metrics.Personalization]
EXPOSURE_METRICS += [
    metrics.Novelty,
    metrics.AveragePopularity,
    metrics.IntraListDiversity,
]


def required_arguments(make):
    """Returns values for the required arguments of a class or a function."""
    values = {"y_true": [1, 0], "y_pred": [0.5, 0.1], "k": 1}
    values |= {"popularity": [0.5], "item_vectors": [[1.0]]}
    parameters = inspect.signature(make).parameters.values()
    return {
        x.name: values[x.name]
        for x in parameters
        if x.default is x.empty and x.kind is not x.VAR_KEYWORD
    }


@pytest.mark.parametrize("make", [*FUNCTIONS, *CLASSES, *EXPOSURE_METRICS])
def test_an_unknown_keyword_is_a_type_error(make):
    with pytest.raises(TypeError, match="unexpected keyword argument 'topn'"):
        make(**required_arguments(make), topn=10)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["name", "empty_weight"])
def test_functions_refuse_arguments_of_classes(function, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        function(**required_arguments(function), **{name: "own"})


@pytest.mark.parametrize(
    ("valid", "wrong"),
    [
        ({"k": 1}, {"k": True}),
        ({"k": 1}, {"k": 1.0}),
        ({"shuffle_ties": True}, {"shuffle_ties": 1}),
        ({"sparse_labels": False}, {"sparse_labels": 0}),
        ({"empty_value": 0.0}, {"empty_value": False}),
        ({"relevance_threshold": 1}, {"relevance_threshold": True}),
    ],
)
def test_cached_checks_tell_1_from_true(valid, wrong):
    """Functions cache checks by their arguments, and 1 equals True as a key."""
    functional.precision([[1, 0]], [[0.2, 0.1]], **valid)
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}` should be"):
        functional.precision([[1, 0]], [[0.2, 0.1]], **wrong)


@pytest.mark.parametrize("make", [*FUNCTIONS, *CLASSES, *EXPOSURE_METRICS])
def test_arguments_after_k_are_keyword_only(make):
    parameters = inspect.signature(make).parameters.values()
    positional = [x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
    assert positional in (["k"], ["y_true", "y_pred"])


WRONG_CALLS = [
    lambda: metrics.NDCG(10, "linear"),
    lambda: metrics.AlphaNDCG(10, 0.5),
    lambda: metrics.MeanReciprocalRank(10, False),
    lambda: metrics.Novelty(1, [0.5]),
    lambda: metrics.Novelty(1, popularity=[0.5], items=1),
    lambda: metrics.IntraListDiversity(1, [[1.0]]),
    lambda: metrics.NDCG(1, k=2),
    lambda: metrics.NDCG().update_state([[1, 0]], [[0.5, 0.1]], None, 3),
    lambda: metrics.RankingMetrics(["ndcg"], k=3),
    # The third argument could only be a weight, and a weight of 1 changes no value.
    lambda: functional.ndcg([[1, 0]], [[0.1, 0.2]], 1),
    lambda: catalogue.rank([0], [[1.0]], [[1.0]], 10),
    lambda: catalogue.evaluate([0], [[1.0]], [[1.0]], ["mrr"], seen=[[1]]),
    metrics.Novelty,
    functional.ndcg,
]


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_wrong_calls_are_type_errors(call):
    with pytest.raises(TypeError, match="argument"):
        call()


SUGGESTIONS = {
    "NDGC": '. Did you mean "ndcg"?',
    "rr": '. Did you mean "mrr" or "err"?',
    "": ". Known names are ['ndcg', 'mrr', 'err']",
}


@pytest.mark.parametrize("unknown", SUGGESTIONS)
def test_an_unknown_name_suggests_close_names_or_lists_them(unknown):
    assert suggestion(unknown, ["ndcg", "mrr", "err"]) == SUGGESTIONS[unknown]


def test_at_most_ten_names_are_listed():
    assert suggestion("ndcg", map(str, range(10))).endswith("'8', '9']")
    assert suggestion("ndcg", map(str, range(11))).endswith("'8', '9'] and others")
    assert suggestion("ndcg", []) == ""
    assert suggestion("Query", ["query"], 'by="{}"') == '. Did you mean by="query"?'


@pytest.mark.compiles_long
def test_a_group_gives_standard_errors_in_a_catalogue():
    group = metrics.RankingMetrics(["mrr"], standard_errors=True)
    actual = catalogue.evaluate([0, 1], np.eye(2), np.eye(2), group)
    assert actual == {"mrr": 1.0, "mrr_stderr": 0.0}


def test_values_of_discounts():
    ranks = np.arange(1.0, 21.0, dtype="float32")
    in_base_2 = np.log2(np.maximum(ranks, 2))
    for discount, divisors in (
        (discounts.clipped_log2, in_base_2),
        (discounts.geometric(0.7), 0.7 ** (1 - ranks)),
        (discounts.log(), np.log2(ranks + 1)),
        (discounts.log(np.e, 2), np.log(ranks + 2)),
        (discounts.log(10, 1), np.log10(ranks + 1)),
        (discounts.clipped_log(), in_base_2),
        (discounts.clipped_log(base=3), np.maximum(np.log(ranks) / np.log(3), 1)),
        (discounts.clipped_log(np.e), np.maximum(np.log(ranks), 1)),
    ):
        assert_close(discount(ops.convert_to_tensor(ranks)), 1 / divisors, rtol=2e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a device of torch")
def test_discounts_are_checked_on_the_cpu():
    """A table of few ranks would raise an error, from which CUDA can't recover."""
    seen = []

    def table(ranks):
        seen.append(ranks.device.type)
        return ops.take(ops.ones(10), ops.cast(ranks, "int32") - 1)

    with keras.device("meta"):
        metrics.NDCG(rank_discount_fn=table)
    assert seen == ["cpu"]


@keras.saving.register_keras_serializable(package="tests")
def divisor(ranks):
    """Returns divisors of gains, which a user may pass instead of discounts."""
    return ops.log2(ranks + 1.0)


GROWTHS = [
    (divisor, r"1 at rank 1, 1\.585 at rank 2"),
    (lambda ranks: 1.0 + 1e-3 * ranks, r"1\.001 at rank 1, 1\.002 at rank 2"),
    (lambda ranks: ops.where(ranks == 4.0, 0.5, 1.0 / ranks), "at rank 3, 0.5 at rank"),
    (lambda ranks: 1.0 / ops.log2(ranks), "inf at rank 1"),
]


DISCOUNTED = [
    *(metrics.NDCG, metrics.DCG, metrics.AlphaNDCG, metrics.AlphaDCG),
    functools.partial(functional.ndcg, [1, 0], [1.0, 2.0]),
    functools.partial(functional.dcg, [1, 0], [1.0, 2.0]),
    functools.partial(functional.alpha_ndcg, [1], [1.0]),
]


@pytest.mark.parametrize(("discount", "received"), GROWTHS)
@pytest.mark.parametrize("make", DISCOUNTED)
@pytest.mark.parametrize("k", [None, 7])
def test_growing_discounts_are_errors(make, discount, received, k):
    with pytest.raises(ValueError, match=f"discounts multiply gains.*{received}"):
        make(rank_discount_fn=discount, k=k)


class Unhashable:
    __hash__ = None

    def __init__(self, exponent):
        self.exponent = exponent

    def __call__(self, ranks):
        return ranks**self.exponent


def test_discounts_that_do_not_grow_are_accepted():
    """Accepted are constants, tables of few ranks, and growth beyond the cutoff."""
    table = np.array([1.0, 0.5, 0.25])

    def discount_three_ranks(ranks):
        if ranks.shape[0] > 3:
            raise IndexError
        return ops.convert_to_tensor(table[: ranks.shape[0]], ranks.dtype)

    for discount, k in (
        (ops.ones_like, None),
        (ops.zeros_like, None),
        (discount_three_ranks, None),
        (discount_three_ranks, 3),
        (lambda ranks: ops.where(ranks > 5.0, 1.0, 0.5), 5),
        (lambda ranks: ops.maximum(1.0 - ranks / 10.0, 0.0), None),
        (lambda ranks: 1.0 / ops.log(1.0 + ranks), 10**5),
        (Unhashable(-1.0), None),
    ):
        metrics.NDCG(k=k, rank_discount_fn=discount)
    with pytest.raises(ValueError, match="2 at rank 2"):
        metrics.NDCG(rank_discount_fn=Unhashable(1.0))


@pytest.mark.programs
@pytest.mark.parametrize("compiler", COMPILERS)
def test_discounts_are_not_checked_in_compiled_code(compiler):
    """A discount is not checked if the ranks have no values."""

    def value(labels, scores):
        return functional.ndcg(labels, scores, rank_discount_fn=lambda x: divisor(x))

    if compiler == "torch.compile":
        # torch runs eager code after a few compiled graphs, unless it is reset.
        torch = pytest.importorskip("torch")
        torch.compiler.reset()
    batch = [ops.convert_to_tensor([x]) for x in ([0.0, 1.0], [1.0, 2.0])]
    assert float(compiled.compile_function(compiler, value)(*batch)[0]) == 1.0


def test_configs_name_built_in_functions():
    for gain in (gains.exponential, gains.linear):
        assert metrics.NDCG(gain_fn=gain).get_config()["gain_fn"] == gain.__name__
    for discount in (discounts.log2, discounts.clipped_log2, discounts.reciprocal):
        config = metrics.NDCG(rank_discount_fn=discount).get_config()
        assert config["rank_discount_fn"] == discount.__name__


def test_a_gain_below_zero_counts_as_zero():
    inputs = [[0, 1, 2, 3]], [[0.9, 0.8, 0.2, 0.1]]
    values = functional.ndcg(*inputs, gain_fn=lambda labels: labels - 1.5)
    expected = (0.5 / 2 + 1.5 / np.log2(5)) / (1.5 + 0.5 / np.log2(3))
    assert float(values[0]) == pytest.approx(expected)


@pytest.mark.compiles_long
def test_huge_labels_neither_overflow_nor_spoil_later_batches():
    """Ratios of exponential gains are exact: 2**999 is half of 2**1000."""
    expected = (0.5 / np.log2(3) + 1 / np.log2(4)) / (1 + 0.5 / np.log2(3))
    metric = metrics.NDCG()
    first = metric([[1000, 0, 999]], [[0.5, 0.9, 0.7]])
    assert float(first) == pytest.approx(expected)
    assert float(metric([[1, 0]], [[0.9, 0.1]])) == pytest.approx((expected + 1) / 2)
    weights = [[1.0, 1.0, 3.0]]
    assert np.isfinite(float(metrics.NDCG()([[1000, 0, 999]], [[3, 2, 1]], weights)))
    assert np.isfinite(float(metrics.DCG()([[1000, 0, 999]], [[3, 2, 1]], weights)))


@pytest.mark.compiles_long
@pytest.mark.programs
def test_ordinary_labels_have_the_plain_exponential_gain(rng):
    """Gains are scaled only above higher labels, so they are equal to the last bit."""
    labels = rng.integers(0, 31, size=(9, 6)).astype("float32")
    scores = rng.normal(size=(9, 6)).astype("float32")
    plain = lambda y: ops.subtract(ops.power(2.0, y), 1.0)  # noqa: E731
    actual = functional.ndcg(labels, scores, gain_fn="exponential")
    assert_equal(actual, functional.ndcg(labels, scores, gain_fn=plain))


def test_seeds_of_any_type():
    assert metrics.NDCG(seed=np.int64(3)).seed == 3
    assert metrics.NDCG(seed=keras.random.SeedGenerator(5)).seed == 5
    assert float(metrics.NDCG(seed=-(10**30))([[1, 0]], [[1, 1]])) > 0


def _values_by_default_seeds():
    """Returns values for tied items of every metric and function with a seed."""
    labels, scores = np.eye(20, 9), np.ones((20, 9))
    queries, candidates = np.ones((20, 1)), np.ones((9, 1))
    inputs = np.arange(20) % 9, queries, candidates
    actual = [
        metrics.NDCG()(labels, scores),
        metrics.RankingMetrics(["mrr"])(labels, scores)["mrr"],
        functional.ndcg(labels, scores),
        functional.ndcg(functional.rank(labels, scores)),
        functional.ndcg(catalogue.rank(*inputs)),
        catalogue.evaluate(*inputs, ["mrr", "coverage@1"])["mrr"],
        catalogue.top_k(queries, candidates, 1, shuffle_ties=True)[1],
    ]
    return [*map(array, actual)]


@resets_generator
@pytest.mark.compiles_long
def test_default_seeds_follow_the_random_seed():
    """A program that sets Keras's random seed gets equal values in each run."""
    actual = []
    for seed in (7, 7, 8):
        keras.utils.set_random_seed(seed)
        actual.append(_values_by_default_seeds())
    for first, again, other in zip(*actual, strict=True):
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
    before = metrics.NDCG().seed
    assert metrics.RankingMetrics(["mrr"]).members[0].seed == before
    assert metrics.NDCG().seed == before
    random.random()
    assert metrics.NDCG().seed != before


@resets_generator
@pytest.mark.compiles_long
def test_calls_of_functions_in_a_loop_shuffle_differently():
    """The mean over calls is close to the value with averaged ties."""
    labels, scores = np.eye(1, 6), np.ones((1, 6))
    calls = {
        "ndcg": lambda **options: functional.ndcg(labels, scores, **options),
        "rank": lambda **options: functional.ndcg(
            functional.rank(labels, scores, **options)
        ),
        "catalogue": lambda **options: functional.ndcg(
            catalogue.rank([0], np.ones((1, 1)), np.ones((6, 1)), **options)
        ),
    }
    expected = array(functional.ndcg(labels, scores, shuffle_ties="average"))[0]
    for name, call in calls.items():
        number = 40 if name == "catalogue" else 200
        keras.utils.set_random_seed(1)
        values = [float(call()[0]) for _ in range(number)]
        keras.utils.set_random_seed(1)
        assert values[:5] == [float(call()[0]) for _ in range(5)], name
        assert np.mean(values) == pytest.approx(expected, abs=4 * 0.21 / number**0.5)
        assert len({float(call(seed=3)[0]) for _ in range(3)}) == 1


@resets_generator
def test_a_function_draws_only_to_shuffle_ties():
    actual = []
    for options in (
        None,
        {"seed": 1},
        {"shuffle_ties": False},
        {"shuffle_ties": "average"},
    ):
        keras.utils.set_random_seed(1)
        if options is not None:
            functional.ndcg([[1, 0]], [[1, 1]], **options)
            metrics.NDCG()([[1, 0]], [[1, 1]])
        actual.append(array(keras.random.uniform((2,))))
    for each in actual:
        np.testing.assert_array_equal(each, actual[0])


@resets_generator
@pytest.mark.optimized
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_a_traced_function_leaves_the_random_generator_unchanged(compiler):
    """The seed is the state of Python's generator, also with constant inputs."""
    labels, scores = ops.convert_to_tensor([[1.0, 0.0, 0.0]]), ops.ones((1, 3))
    keras.utils.set_random_seed(1)
    expected = array(keras.random.uniform((2,)))
    keras.utils.set_random_seed(1)
    function = compiled.compile_function(compiler, lambda x: functional.ndcg(labels, x))
    constant = compiled.compile_function(
        compiler, lambda x: x + functional.ndcg(labels, scores)
    )
    first = array(function(scores))
    np.testing.assert_array_equal(first, array(function(scores)))
    assert array(constant(0.0 * scores)).min() == first.min()
    np.testing.assert_array_equal(array(keras.random.uniform((2,))), expected)


def test_arguments_that_a_config_would_lose_are_an_error():
    class Kept(WithDepth):
        def get_config(self):
            return {**super().get_config(), "depth": self.depth}

    class Fixed(metrics.NDCG):
        def __init__(self, **arguments):
            super().__init__(5, **arguments)

    class Passing(metrics.NDCG):
        def __init__(self, *arguments, **others):
            super().__init__(*arguments, **others)

    with pytest.raises(NotImplementedError, match="depth=4, which would be lost"):
        WithDepth(depth=4).get_config()
    assert WithDepth.from_config(WithDepth(5).get_config()).k == 5
    assert Passing(3).get_config()["k"] == 3
    assert Kept.from_config(Kept(depth=4).get_config()).depth == 4
    assert Fixed().get_config()["k"] == 5


LOWER = [lambda y: y - y, lambda y: -y, lambda y: y * (3.0 - y), lambda y: 0.0]


@pytest.mark.parametrize("gain", LOWER)
def test_the_highest_grade_has_the_highest_gain(gain):
    message = "`max_grade` should be the grade with the highest gain, which is above 0"
    function = functools.partial(functional.rank_biased_precision, [[1, 0]], [[1, 0]])
    for call in (metrics.RankBiasedPrecision, function):
        with pytest.raises(ValueError, match=message):
            call(gain_fn=gain, max_grade=3)
        call(gain_fn=lambda y: y * y, max_grade=3)


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [False, "average"])
def test_no_seed_is_drawn_without_shuffling(shuffle_ties, monkeypatch):
    metric = metrics.NDCG(shuffle_ties=shuffle_ties)
    monkeypatch.setattr(random, "getstate", None)
    copy = metrics.NDCG.from_config(metric.get_config())
    group = metrics.RankingMetrics([copy, metrics.DCG(shuffle_ties=shuffle_ties)])
    group([[1, 0]], [[1, 1]])
    functional.ndcg([[1, 0]], [[1, 1]], shuffle_ties=shuffle_ties)
    catalogue.rank([0], [[1.0]], [[1.0], [1.0]], shuffle_ties=shuffle_ties)
    catalogue.top_k([[1.0]], [[1.0], [1.0]], 1)
    assert copy.seed is None
    with pytest.raises(TypeError):
        copy.shuffle_ties = True


@pytest.mark.compiles_long
def test_global_random_generators_are_not_changed():
    """Functions draw only from Keras's global generator, and metrics draw nothing."""
    keras.utils.set_random_seed(1)
    before = random.getstate(), repr(np.random.get_state())
    made = [
        *(case.make(seed=None) for case in FIRST_CASES),
        metrics.Coverage(1, items=2),
    ]
    made = [type(metric).from_config(metric.get_config()) for metric in made]
    metrics.RankingMetrics([*made, "ndcg@1"])([[1, 0]], [[1, 1]])
    assert (random.getstate(), repr(np.random.get_state())) == before
    # Keras seeds its global generator from Python's when it is first used.
    keras.random.uniform((1,))
    before = random.getstate(), repr(np.random.get_state())
    for case in FIRST_CASES:
        case.values([[1, 0]], [[1, 1]], seed=None)
    _values_by_default_seeds()
    assert (random.getstate(), repr(np.random.get_state())) == before


@pytest.mark.parametrize(("k", "ties"), [(np.int64(10), True), (np.uint8(10), False)])
def test_arguments_of_numpy_are_saved_as_those_of_python(k, ties):
    metric = metrics.NDCG(k=k, shuffle_ties=np.bool_(ties))
    config = metric.get_config()
    assert metric.name == "ndcg_at_10"
    assert type(config["k"]) is int
    assert config["shuffle_ties"] is ties


def test_subclasses_may_set_the_private_direction():
    """Metrics written for 0.1.0 may set `_direction` in `__init__` or in the class."""

    class InInit(metrics.NDCG):
        def __init__(self):
            super().__init__()
            self._direction = "down"

    class OfClass(metrics.NDCG):
        _direction = "down"

    assert InInit()._direction == OfClass()._direction == "down"
    assert not InInit().higher_is_better


def test_names_and_directions_of_all_metrics():
    """The names are in the alphabetical order of the classes."""
    names = ["alpha_dcg", "alpha_ndcg", "arp", "bpref", "dcg", "err", "err_ia", "f1"]
    names += ["f_beta", "fall_out", "hit_rate", "kendall_tau", "map", "map_at_r", "mrr"]
    names += ["ndcg", "pairwise_accuracy", "precision", "precision_ia", "r_precision"]
    names += ["rbp", "recall", "spearman_correlation", "subtopic_recall"]
    cases = sorted(FIRST_CASES, key=lambda case: case.metric.__name__)
    for case, name in zip(cases, names, strict=True):
        assert case.metric().name == name
        assert not case.has_cutoff or case.metric(k=7).name == f"{name}_at_7"
        is_worse = name in ("arp", "fall_out")
        assert case.metric.higher_is_better is not is_worse
        assert case.metric()._direction == ("down" if is_worse else "up")


@pytest.mark.parametrize("normalized", [False, True])
def test_a_label_above_the_highest_grade_of_a_gain(normalized):
    options = {"gain_fn": "linear", "max_grade": 4, "normalized": normalized}
    message = "`y_true` should have labels up to `max_grade`, 4.0. Received: a larger"
    with pytest.raises(ValueError, match=message):
        functional.rank_biased_precision([[5, 0]], [[0.9, 0.1]], **options)


@pytest.mark.parametrize("metric", [metrics.KendallTau, metrics.SpearmanCorrelation])
def test_correlations_apply_the_relevance_threshold(metric):
    assert float(metric(relevance_threshold=2)([[2, 0, 1]], [[3, 2, 2]])) == 1.0
    assert float(metric()([[0, 1, 2]], [[3, 2, 1]])) == -1.0


def test_f_beta_with_a_large_beta_is_recall():
    """The square of this beta exceeds float32."""
    labels, scores = [[1, 0, 1, 1]], [[4, 3, 2, 1]]
    actual = functional.f_beta(labels, scores, k=2, beta=1e38)
    assert_close(actual, functional.recall(labels, scores, k=2), rtol=1e-6)


def test_grades_of_rank_biased_precision_count_from_0_on():
    """A threshold changes this. Labels of the highest grade equal binary labels."""
    labels, scores = [[0.5, 0.0, 1.0]], [[3, 2, 1]]
    graded = {"gain_fn": "linear", "max_grade": 1, "persistence": 0.5}
    for more, expected in (
        ({}, 0.5 * (0.5 + 0.25 * 1)),
        ({"relevance_threshold": 1.0}, 0.5 * (0.25 * 1)),
        ({"gain_fn": "exponential"}, 0.5 * (2**0.5 - 1 + 0.25 * 1)),
        ({"max_grade": 2}, 0.5 * (0.5 + 0.25 * 1) / 2),
    ):
        (value,) = functional.rank_biased_precision(labels, scores, **graded | more)
        assert float(value) == pytest.approx(expected)
    highest = metrics.RankBiasedPrecision(gain_fn="exponential", max_grade=3)
    binary = metrics.RankBiasedPrecision()
    assert float(highest([[3, 0, 3]], scores)) == float(binary([[3, 0, 3]], scores))


@pytest.mark.programs
def test_pairwise_accuracy_of_long_lists(rng):
    """Pairs are counted without creating them: 20,000 items have 200 million pairs."""
    labels, scores = rng.integers(0, [[2], [1000]], (2, 20_000))[:, None]
    from sklearn.metrics import roc_auc_score

    actual = float(functional.pairwise_accuracy(labels, scores)[0])
    assert actual == pytest.approx(roc_auc_score(labels[0], scores[0]), abs=1e-6)


@pytest.mark.parametrize("scores", [[4.0, 3.0, 2.0, 1.0], [1.0, -3.401e38, -3.402e38]])
def test_pairs_below_the_cutoff_are_tied(scores):
    """Pairs of items below rank k count 1/2. All other pairs are in order."""
    size = len(scores)
    pairs, tied = size * (size - 1) / 2, (size - 2) * (size - 3) / 2
    labels = [list(range(size, 0, -1))]
    value = functional.pairwise_accuracy(labels, [scores], k=2)
    assert float(value[0]) == pytest.approx((pairs - tied / 2) / pairs)


def test_arp_has_no_value_for_labels_of_zero():
    labels, scores = [[0, 0, 0], [0, 1, 0]], [[3, 2, 1], [3, 2, 1]]
    arguments = {"relevance_threshold": 0.0}
    values = functional.average_relevance_position(labels, scores, **arguments)
    assert np.isnan(float(values[0]))
    assert float(metrics.AverageRelevancePosition(**arguments)(labels, scores)) == 2.0


@pytest.mark.compiles_long
@pytest.mark.parametrize("function", [divisor, discounts.geometric(0.5)])
def test_registered_functions_are_saved(function):
    metric = metrics.NDCG(k=2, gain_fn=function, seed=1)
    restored = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert restored.get_config() == metric.get_config()
    assert float(restored(*FOUR)) == float(metric(*FOUR))


def test_a_lambda_can_not_be_saved():
    metric = metrics.NDCG(gain_fn=lambda labels: labels)
    assert float(metric([[1, 0]], [[0.9, 0.1]])) == 1.0
    message = "`gain_fn` should be a named function in a metric that is saved: write it"
    with pytest.raises(ValueError, match=f"{message}.*Received: gain_fn=<function"):
        metric.get_config()


@pytest.mark.compiles_long
def test_functions_need_no_hash():
    labels, scores, cubed = [[2, 0, 1]], [[0.1, 0.2, 0.3]], Unhashable(3)
    expected = (1 + 8 / 2) / (8 + 1 / np.log2(3))
    values = functional.ndcg(labels, scores, gain_fn=cubed)
    assert float(values[0]) == pytest.approx(expected)
    group = metrics.RankingMetrics([metrics.NDCG(k=k, gain_fn=cubed) for k in (2, 3)])
    assert float(group(labels, scores)["ndcg_at_3"]) == pytest.approx(expected)


def test_a_metric_needs_a_compute_method():
    with pytest.raises(NotImplementedError, match="`WithDepth` should define `compute"):
        WithDepth()([[1, 0]], [[0.9, 0.1]])


class UserMetric(metrics.RankingMetric):
    """A metric of a user with functions of labels for its values and its relevance."""

    def __init__(self, values=ops.ones_like, relevance=ops.ones_like):
        super().__init__()
        self.functions = values, relevance

    def relevance(self, lists):
        return self.functions[1](lists.labels)

    def compute(self, lists, ranking):
        return self.functions[0](ranking.take(lists.relevance)[:, 0])


def dcg(gain_fn):
    return metrics.DCG(gain_fn=gain_fn, shuffle_ties=False)


FOUR = [[0, 3, 1, 2], [1, 0, 2, 3]], [[0.1, 0.4, 0.3, 0.2]] * 2
COMPUTE_ERROR = (
    "`UserMetric.compute` should return one value per list, of shape (batch,), for "
)
COMPUTE_ERROR += "lists of shape (2, 4). Received: "
RELEVANCE_ERROR = "`relevance` should return a number for each item, of shape (2, 4). "
RELEVANCE_ERROR += "Received: "
GAINS_ERROR = (
    "`gain_fn` should return a gain for each label, of the shape of the labels, "
)
GAINS_ERROR += "(2, 4). Received: "
RETURNED = [
    (UserMetric, lambda x: ops.ones(()), f"{COMPUTE_ERROR}shape ()"),
    (UserMetric, lambda x: ops.ones((2, 2)), f"{COMPUTE_ERROR}shape (2, 2)"),
    (UserMetric, lambda x: None, f"{COMPUTE_ERROR}None"),
    (
        lambda f: UserMetric(relevance=f),
        lambda y: y[:, :1],
        f"{RELEVANCE_ERROR}shape (2, 1)",
    ),
    (lambda f: UserMetric(relevance=f), lambda y: None, f"{RELEVANCE_ERROR}None"),
    (dcg, ops.sum, f"{GAINS_ERROR}shape ()"),
    (dcg, lambda y: ops.sum(y, axis=1, keepdims=True), f"{GAINS_ERROR}shape (2, 1)"),
    (dcg, lambda y: ops.sum(y, axis=1), f"{GAINS_ERROR}shape (2,)"),
    (dcg, lambda y: [[1.0] * 4] * 2, f"{GAINS_ERROR}shape ()"),
    (dcg, lambda y: None, f"{GAINS_ERROR}None"),
]


@pytest.mark.parametrize(("make", "function", "message"), RETURNED)
def test_wrong_results_of_user_functions_are_errors(make, function, message):
    metric = make(function)
    with pytest.raises(ValueError, match=re.escape(message)):
        metric(*FOUR)


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16"])
def test_gains_of_any_dtype(dtype):
    actual, expected = (
        metrics.DCG(gain_fn=lambda y, x=x: ops.cast(y > 0, x), k=2)(*FOUR)
        for x in (dtype, "float32")
    )
    assert float(actual) == float(expected)


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("metric", [metrics.MeanAveragePrecision, metrics.RecallAtK])
def test_relevance_may_be_overridden(metric, shuffle_ties, rng):
    """Relevance that is computed per item equals relevance by a threshold."""

    class UserMetric(metric):
        def relevance(self, lists):
            return ops.cast(lists.labels >= 2.0, "float32")

    labels, scores = rng.integers(0, 5, (40, 7)), rng.integers(0, 3, (40, 7))
    arguments = {"k": 3, "seed": 1, "shuffle_ties": shuffle_ties}
    expected = metric(relevance_threshold=2.0, **arguments)(labels, scores)
    actual = UserMetric(**arguments)(labels, scores)
    assert float(actual) == pytest.approx(float(expected), rel=1e-6)


CHANGES = [("k", 2), ("seed", 7), ("shuffle_ties", False), ("shuffle_ties", "average")]
CHANGES += [("gain_fn", gains.linear), ("relevance_threshold", 2.0)]


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_arguments_may_be_changed_later(name, value):
    batch = [[0, 3, 1, 2], [1, 0, 2, 3]], [[0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.2, 0.2]]
    metric = metrics.NDCG(seed=1)
    before = float(metric(*batch))
    metric.reset_state()
    setattr(metric, name, value)
    actual = float(metric(*batch))
    assert actual == float(metrics.NDCG(**{"seed": 1, name: value})(*batch)) != before
    assert actual == float(metrics.NDCG.from_config(metric.get_config())(*batch))


def test_shuffle_ties_is_checked_when_it_is_changed():
    changes = (metrics.NDCG(), "first"), (metrics.Coverage(1, items=3), "average")
    for metric, ties in changes:
        with pytest.raises(ValueError, match="`shuffle_ties` should be True"):
            metric.shuffle_ties = ties


def test_symbolic_tensors_are_errors():
    """Layers accept symbolic tensors, which `test_jax_programs.py` tests."""
    symbolic = keras.KerasTensor((None, 3))
    labels, scores = [[1, 0, 0]], [[3, 1, 2]]
    coverage = metrics.Coverage(k=1, items=3)
    for argument, inputs in (
        ("y_true", (symbolic, symbolic)),
        ("y_pred", (labels, symbolic)),
        ("sample_weight", (labels, scores, symbolic)),
    ):
        for metric in (metrics.NDCG(), coverage):
            with pytest.raises(ValueError, match=f"{argument} of type KerasTensor"):
                metric.update_state(*inputs)
    with pytest.raises(ValueError, match="y_true of type KerasTensor"):
        coverage(symbolic)
    with pytest.raises(ValueError, match="`queries` should be concrete values"):
        catalogue.top_k(symbolic, np.eye(3), 1)


@pytest.mark.parametrize("weights", [np.ones((2, 3)), np.ones(3)])
def test_catalogue_weights_are_one_per_list(weights):
    message = f"`sample_weight`.*{re.escape(f'sample_weight.shape={weights.shape}')}"
    with pytest.raises(ValueError, match=message):
        catalogue.rank([[0, 1], [1, -1]], np.eye(2), np.eye(2), sample_weight=weights)


# The representation of metrics.

REPRESENTATIONS = [
    (metrics.NDCG(), "<NDCG() name=ndcg>"),
    (metrics.NDCG(10, seed=None), "<NDCG(k=10) name=ndcg_at_10>"),
    (metrics.NDCG(seed=0, name="x"), "<NDCG(seed=0) name=x>"),
    (metrics.DCG(gain_fn="linear"), "<DCG(gain_fn=linear) name=dcg>"),
    (
        metrics.DCG(rank_discount_fn=discounts.geometric(0.5), dtype="float64"),
        "<DCG(rank_discount_fn=Geometric(persistence=0.5), dtype='float64') name=dcg>",
    ),
    (
        metrics.AveragePopularity(2, popularity=range(9)),
        "<AveragePopularity(k=2, popularity=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, ...]) "
        "name=average_popularity_at_2>",
    ),
    (
        metrics.IntraListDiversity(2, item_vectors=[[1, 0], [0, 1]]),
        "<IntraListDiversity(k=2, item_vectors=array of shape (2, 2)) "
        "name=intra_list_diversity_at_2>",
    ),
    (WithDepth(depth=4), "<WithDepth(depth=4) name=with_depth>"),
    (
        metrics.RankingMetrics(["ndcg@5", metrics.Coverage(3)], prefix="a_"),
        "<RankingMetrics([NDCG(k=5), Coverage(k=3)]) name=a_ndcg_at_5>",
    ),
]


@pytest.mark.parametrize(
    ("metric", "representation"), REPRESENTATIONS, ids=[x for _, x in REPRESENTATIONS]
)
def test_repr_shows_the_arguments(metric, representation):
    assert repr(metric) == str(metric) == representation


@pytest.mark.parametrize("module", [metrics, functional])
def test_signatures_show_all_arguments(module):
    """`help` shows every argument with its default, and no address of a function."""
    for name in module.__all__:
        public = getattr(module, name)
        signature = inspect.signature(public)
        assert " at 0x" not in str(signature)
        assert "arguments" not in signature.parameters
        assert " at 0x" not in pydoc.render_doc(public).split("Method resolution")[0]
        if isinstance(public, type) and issubclass(public, metrics.RankingMetric):
            shared = {"shuffle_ties", "seed", "empty_value", "sparse_labels", "dtype"}
            assert shared <= signature.parameters.keys()
            update = inspect.signature(public.update_state).parameters
            assert [*update] == ["self", "y_true", "y_pred", "sample_weight"]
