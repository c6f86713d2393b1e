"""Bad input: it raises an error that names the argument, or has a documented value."""

import contextlib
import datetime
import functools
import itertools
import re

import compiled
import keras
import numpy as np
import oracle
import pytest
import scipy.sparse
from arrays import array, assert_close, assert_equal
from keras import ops
from registry import CASES

from keras_rank import catalogue, discounts, functional, metrics, utils

NAN, INF = np.nan, np.inf
LABELS = np.array([[0, 2, 1, 3], [1, 0, 0, 2]], "float32")
SCORES = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.2, 0.3]], "float32")
WEIGHTS = np.array([[1.0, 2.0, 1.0, 0.5], [1.0, 1.0, 3.0, 1.0]], "float32")
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 1]], "float32")
IDS = np.array([[1, 3], [0, -1]])


# Errors of an update.


def dense(labels=LABELS, scores=SCORES, weights=None, mask=None):
    labels = labels if mask is None else {"labels": labels, "mask": mask}
    return labels, scores, weights


def sparse(labels=IDS, **changed):
    return dense(labels, **changed)


ARGUMENTS = {"labels": "y_true", "scores": "y_pred", "weights": "sample_weight"}
ARGUMENTS |= {"mask": "mask"}
CSR, MASKED = scipy.sparse.csr_matrix(LABELS), np.ma.array(LABELS, mask=LABELS > 1)
NUMBERS_OF = "hold real numbers. Received: {0} of "
UNEVEN_ROWS = "hold numbers, in rows of the same"
NO_NUMPY_MASK = "be an array without a mask of its own"
WRONG_VALUES = [
    ("abc", f"{NUMBERS_OF}type str: for a column of a table, pass `df['abc']`"),
    ([["a"] * 4] * 2, f"{NUMBERS_OF}dtype <U1"),
    (np.full((2, 4), b"a"), f"{NUMBERS_OF}dtype |S1"),
    (LABELS * 1j, f"{NUMBERS_OF}dtype complex64"),
    (np.full((2, 4), datetime.date(2020, 1, 1), "datetime64[D]"), NUMBERS_OF),
    (np.full((2, 4), 1, "timedelta64[s]"), f"{NUMBERS_OF}dtype timedelta64[s]"),
    ([[datetime.date(2020, 1, 1)] * 4] * 2, f"{NUMBERS_OF}dtype object"),
    (object(), f"{NUMBERS_OF}type object"),
    (np.full((2, 4), object()), f"{NUMBERS_OF}dtype object"),
    ([[None, 1, 2, 3]] * 2, f"{NUMBERS_OF}dtype object"),
    ([[2**70] * 4] * 2, f"{NUMBERS_OF}dtype object"),
    ({1, 2}, f"{NUMBERS_OF}type set, without an order: pass lists"),
    ((x for x in LABELS), f"{NUMBERS_OF}type generator: pass `list({{0}})`"),
    (iter(LABELS.tolist()), f"{NUMBERS_OF}type list_iterator: pass `list({{0}})`"),
    (CSR, f"{NUMBERS_OF}type csr_matrix, which is sparse: "),
    *((x, UNEVEN_ROWS) for x in ([[1, 0, 2, 1], 1], [{"a": 1}, [1, 0, 2, 1]])),
    *((x, NO_NUMPY_MASK) for x in (MASKED, list(MASKED))),
]
SHAPES = [(), (2,), (3,), (4,), (2, 3), (3, 4), (2, 1), (1, 4), (0, 4), (2, 0)]
SHAPES += [(2, 2, 2, 1)]
WEIGHTS_FIT = "`sample_weight` should be a number or have the shape "
SAME_SHAPE = "should have the same shape as `y_true`, a row for each list with a "
SAME_SHAPE += "number for each item. "
SINGLE_SCORES = "Scores of shape (n, 1) are n lists of one item: make lists of single "
SINGLE_SCORES += "items by `keras_rank.utils.pad_lists(scores, group_ids=...)`, or in "
SINGLE_SCORES += "`fit` by `keras_rank.callbacks.GroupedEvaluation`. "
ONE_NUMBER = "should have one number for each item, in the shape (batch, list_size) or "
ONE_NUMBER += "(batch, list_size, 1). Where each position of (batch, time, items) is a "
ONE_NUMBER += "list, give the ids of its relevant items with `sparse_labels=True`, or "
ONE_NUMBER += "reshape scores and labels to (batch * time, items). "
POSITIONS = "With `sparse_labels=True` and scores at every position, "
LISTS_SHAPE = "`y_true` should have the shape (list_size,) or (batch, list_size). "
IDS_SHAPE = "With `sparse_labels=True`, `y_true` should have the shape (batch,)"
SAME_NUMBER = "`y_true` and `y_pred` should have the same number of lists. "
SAME_ITEMS = "`y_pred` should have as many items as `y_true` in every list. Received: "
ONE_HOT = "ids of items. Of a matrix with a column for each item, "
TOO_LARGE = "ids below the number of items, 4. Received: "
NEEDS_IDS = "Ids of the relevant items need `sparse_labels=True`. "
NO_NUMBERS = "`y_true` should hold real numbers. Received: y_true of "
IS_SPARSE = "type csr_matrix, which is sparse: pass `y_true.toarray()`, which has 0 "
IS_SPARSE += "where nothing is stored"
UNEVEN = [[1, 0, 2], [0, 1]]
DATES = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
NO_DATES = "`{0}` should hold real numbers. Received: {0} "
# Dates as one array for each list, as objects, and next to numbers.
UNEVEN_DATES = [
    [DATES[:1], DATES],
    [list(DATES[:1]), list(DATES)],
    [[1.0], DATES],
    [[1.0], DATES - DATES[0]],
    [DATES[:1] - DATES[1], DATES - DATES[0]],
    [DATES[:1].tolist(), DATES.tolist()],
]


def update_errors():
    """Yields a kind of labels, the changed arguments, and a part of the message."""
    for kind, (part, name) in itertools.product((dense, sparse), ARGUMENTS.items()):
        is_ids = (kind, part) == (sparse, "labels")
        for value, words in WRONG_VALUES:
            # A sparse matrix of ids is valid: it holds the grades of the items.
            if not (is_ids and scipy.sparse.issparse(value)):
                yield kind, {part: value}, f"`{name}` should {words.format(name)}"
        for shape in [(1, 2, 4), (2, 4, 2), (2, 4, 3), (2, 4, 0)]:
            message = f"`{name}` {ONE_NUMBER}Received: {name}.shape={shape}"
            message = POSITIONS if (kind, part) == (sparse, "scores") else message
            # Ids that are stacked with labels are valid.
            if not (is_ids and shape == (2, 4, 2)):
                yield kind, {part: np.ones(shape)}, message
    for part, shape in itertools.product(("scores", "mask"), SHAPES):
        name = ARGUMENTS[part]
        message = f"`{name}` {SAME_SHAPE}"
        message += SINGLE_SCORES if (part, shape) == ("scores", (2, 1)) else ""
        message += f"Received: {name}.shape={shape}, y_true.shape=(2, 4)"
        yield dense, {part: np.ones(shape)}, message
    # Valid weights are one number, a number per list, or a number per item.
    for shape in [x for x in SHAPES if x not in ((), (2,), (2, 1))]:
        received = f"Received: sample_weight.shape={shape}"
        weights = {"weights": np.ones(shape)}
        yield dense, weights, f"{WEIGHTS_FIT}(2,) or (2, 1) or (2, 4). {received}"
        yield sparse, weights, f"{WEIGHTS_FIT}(2,) or (2, 1). {received}"
    mask_shapes = [(2,), (2, 1), (1, 2), (2, 3, 1), (0,)]
    for kind, part, message, shapes in [
        (dense, "labels", LISTS_SHAPE, [(), (1, 1, 2, 4)]),
        (sparse, "labels", IDS_SHAPE, [(), (1, 1, 2, 4)]),
        (sparse, "scores", IDS_SHAPE, [(), (4,)]),
        (sparse, "scores", POSITIONS, [(1, 1, 2, 4)]),
        (sparse, "labels", SAME_NUMBER, [(3,), (0,), (3, 1), (1, 2), (0, 2)]),
        (sparse, "mask", f"`mask` {SAME_SHAPE}", mask_shapes),
    ]:
        for shape in shapes:
            yield kind, {part: np.ones(shape)}, message
    message = f"{WEIGHTS_FIT}(4,). Received: sample_weight.shape=(1,)"
    yield dense, {"labels": LABELS[0], "scores": SCORES[0], "weights": [1.0]}, message
    for labels, scores, message in [
        (None, SCORES, f"{NO_NUMBERS}type NoneType$"),
        (np.full((2, 4), None), SCORES, f"{NO_NUMBERS}dtype object$"),
        (CSR, SCORES, f"{NO_NUMBERS}{IS_SPARSE}$"),
        (
            UNEVEN,
            [[1, 2, 3]] * 2,
            f"{SAME_ITEMS}3 items in list 1 of y_pred, 2 in y_true",
        ),
        (
            UNEVEN,
            [[1, 2], [1]],
            f"{SAME_ITEMS}2 items in list 0 of y_pred, 3 in y_true",
        ),
        (UNEVEN, [[1, 2, 3]], "`y_pred` should have as many lists as `y_true`"),
        ([[1, [0]], [1]], [[1, 2], [1]], "`y_true` should be a list of items"),
        ([["a"], ["b", "c"]], [[1], [1, 2]], "`y_true` should hold real numbers"),
        ([[None], [1, 0]], [[1], [1, 2]], "`y_true` should hold real numbers"),
        ([[1], [1, 0]], [[1j], [1, 2]], "`y_pred` should hold real numbers"),
        *((x, [[1], [1, 2]], NO_DATES.format("y_true")) for x in UNEVEN_DATES),
        *(([[1], [1, 0]], x, NO_DATES.format("y_pred")) for x in UNEVEN_DATES),
    ]:
        yield dense, {"labels": labels, "scores": scores}, message
    for labels, shape, hint in [
        ([1, 2], (2, 10), NEEDS_IDS),
        ([[1, 2], [2, -1]], (2, 10), NEEDS_IDS),
        ([[1, 2]], (2, 10), ""),
        ([1, 0], (2, 1), SINGLE_SCORES),
    ]:
        inputs = {"labels": np.array(labels), "scores": np.zeros(shape)}
        yield dense, inputs, f"`y_pred` {SAME_SHAPE}{hint}Received: "
    message = "`y_pred` should hold numbers, in rows of the same length. Received: y_p"
    yield sparse, {"scores": UNEVEN}, message
    for kind in (dense, sparse):
        yield kind, {"scores": None}, "labels and scores are passed together, as (y_tru"
    for value in (
        *({}, {"mask": MASK}, {"labels": LABELS, "masks": MASK}, {"Labels": LABELS}),
        {"labels": LABELS, "mask": MASK, "weights": WEIGHTS},
        {"labels": LABELS, 1: MASK},
    ):
        received = f"y_true with the keys {[*value]}"
        unknown = [str(key) for key in value if key not in ("labels", "mask")]
        received += f", of which {unknown} are unknown" if unknown else ""
        for kind, accepted, keys in (
            (dense, "labels", '"labels" and "mask" (optional)'),
            (sparse, "ids", '"ids", "labels" (optional) and "mask" (optional)'),
        ):
            message = f"`y_true` should be {accepted}, or a dict with the keys {keys}. "
            yield kind, {"labels": value}, f"{message}Received: {received}"
    for labels, message in [
        *(([[x, 0], [0, 0]], TOO_LARGE) for x in (4, INF, 2**32)),
        ([2**40 + 1, 0], f"{TOO_LARGE}a"),
        (np.array([2**64 - 1, 0], "uint64"), "ids below the number of items"),
        ([[1.5, 0], [0, 0]], "whole numbers as ids. Received: a fraction"),
        (LABELS > 1, "ids of items. If it has a flag for each"),
        # `test_item_ids.py` tests more one-hot matrices.
        *((labels, ONE_HOT) for labels in (np.eye(2, 4), np.eye(2, 4)[:, :, None])),
    ]:
        yield sparse, {"labels": labels}, f"`y_true` should hold {message}"
    labels = np.where(LABELS == 3, 5, LABELS)
    message = "`y_true` should have labels up to `max_grade`, 4.0. Received: a larger"
    yield dense, {"labels": labels}, message


UPDATE_ERRORS = list(update_errors())


@functools.cache
def make_group(kind):
    """Returns a group whose last member may raise after the update of the first."""
    make = {"sparse_labels": kind is sparse, "seed": 1, "k": 3}
    members = [metrics.NDCG(**make), metrics.MeanReciprocalRank(**make)]
    if kind is dense:
        members.append(metrics.ExpectedReciprocalRank(seed=1))
    group = metrics.RankingMetrics(members)
    group.update_state(*kind())
    return group


@contextlib.contextmanager
def assert_unchanged(metric):
    before = [array(v).copy() for v in metric.variables]
    yield
    for variable, value in zip(metric.variables, before, strict=True):
        assert_equal(variable, value)


@pytest.mark.compiles_long
@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    UPDATE_ERRORS,
    ids=[f"{x.__name__}, {[*y]}, {z[:60]}" for x, y, z in UPDATE_ERRORS],
)
def test_wrong_updates_are_errors_and_change_no_state(kind, changed, message):
    group = make_group(kind)
    with (
        assert_unchanged(group),
        pytest.raises(ValueError, match="Received: ") as error,
    ):
        group.update_state(*kind(**changed))
    # A "$" marks the end of a message.
    assert message in f"{error.value}$"


# Errors of arguments.

INVALID_CUTOFFS = [0, -1, 1.5, 1.0, True, False, "3", "13", [3], (), {3}, NAN, INF]
INVALID_CUTOFFS += [np.int64(0), np.int8(-3), np.float32(2), np.bool_(True)]
INVALID_CUTOFFS += [np.array([3]), np.array(3), 1j, b"3", object()]
INVALID_NUMBERS = [NAN, INF, -INF, 1e300, 10**400, "1", True, [1], 1j, np.array([1.0])]
# The first two invalid shares are the bounds of valid shares.
INVALID_SHARES = [0, 1, -0.1, True, NAN, INF, "a", None]
INVALID_BASES = [1, 0, -2, NAN, INF, "a", None]
ALWAYS = "for a metric that always leaves out lists without relevant items"
ACCEPTED = {
    "k": "a positive integer",
    "shuffle_ties": 'True, False, "average", "worst" or "best"',
    "seed": "an integer, a `keras.random.SeedGenerator` or None",
    "empty_value": "a number that is finite in float32, or None",
    "relevance_threshold": "a number that is finite in float32, or None",
    "empty_weight": "one of ['average', 'own']",
    "sparse_labels": "True or False",
    "gain_fn": "a function or one of ['exponential', 'linear']",
    "rank_discount_fn": "a function or one of ['clipped_log2', 'log2', 'reciprocal']",
    "dtype": "the name of a dtype of real numbers or None",
    "denominator": "one of ['available', 'k', 'retrieved']",
    "persistence": "a number between 0 and 1, both excluded",
    "normalized": "True or False",
    "tied_value": "a number from 0 to 1",
    "max_grade": "a number above 0 and below 128",
    "beta": "a number above 0 that is finite in float32",
    "base": "a number greater than 1",
}
NO_EMPTY_VALUE, NO_EMPTY_WEIGHT = f"None {ALWAYS}", f'"average" {ALWAYS}'
NO_CUTOFF = "None for a metric of whole lists"
MAP_NORMALIZERS = "one of ['total', 'clipped', 'retrieved']"
RECALL_NORMALIZERS = "one of ['total', 'clipped']"
ABOVE_0 = "a number above 0, so that the discount of rank 1 is finite: see "
ABOVE_0 += "`clipped_log`"
WITH_GAIN = "given with `gain_fn`, and only then"
AT_MOST_64 = "at most 64 with exponential gains, which are cut at 2**64"
GRADED_RBP = functools.partial(metrics.RankBiasedPrecision, gain_fn="exponential")
EMPTY_VALUES = [0, 0.0, 0.5, "zero", np.zeros(2)], NO_EMPTY_VALUE


def bind_lists(function):
    return functools.partial(function, LABELS, SCORES)


# Refused values of an argument, and the accepted ones if they are not in `ACCEPTED`.
BAD_ARGUMENTS = [
    (metrics.NDCG, "k", INVALID_CUTOFFS),
    (bind_lists(functional.rank), "k", INVALID_CUTOFFS),
    (bind_lists(functional.ndcg), "k", INVALID_CUTOFFS),
    (metrics.NDCG, "k", [2**31], "at most 2147483647"),
    (metrics.KendallTau, "k", [3], NO_CUTOFF),
    (metrics.SpearmanCorrelation, "k", [3], NO_CUTOFF),
    (bind_lists(functional.kendall_tau), "k", [3], NO_CUTOFF),
    (bind_lists(functional.spearman_correlation), "k", [3], NO_CUTOFF),
    (metrics.NDCG, "shuffle_ties", [None, 1, 0, "AVERAGE", "mean", NAN, ["average"]]),
    (metrics.NDCG, "seed", ["1", 1.0, True, NAN, [1], np.float32(1)]),
    (metrics.NDCG, "empty_value", INVALID_NUMBERS),
    (metrics.NDCG, "empty_weight", [None, 1, "Own", ["own"], NAN]),
    (metrics.NDCG, "relevance_threshold", INVALID_NUMBERS),
    (metrics.NDCG, "sparse_labels", [None, 0, 1, "True", NAN]),
    (metrics.NDCG, "gain_fn", [None, 3, "square", ["linear"], {"a": 1}]),
    (metrics.NDCG, "rank_discount_fn", [None, 3, "Log2", {"a": 1}]),
    (metrics.NDCG, "dtype", ["int32"]),
    (
        metrics.MeanAveragePrecision,
        "normalizer",
        [None, 1, "Total", ["total"]],
        MAP_NORMALIZERS,
    ),
    (
        metrics.RecallAtK,
        "normalizer",
        [None, 1, "Total", "retrieved"],
        RECALL_NORMALIZERS,
    ),
    (metrics.PrecisionAtK, "denominator", [None, 1, "n", ["k"]]),
    (metrics.F1AtK, "denominator", [None]),
    (metrics.FBetaAtK, "beta", [0, "2"]),
    (metrics.RankBiasedPrecision, "max_grade", [4], WITH_GAIN),
    (GRADED_RBP, "max_grade", [None], WITH_GAIN),
    (GRADED_RBP, "max_grade", [100], AT_MOST_64),
    (metrics.RankBiasedPrecision, "persistence", INVALID_SHARES),
    (metrics.RankBiasedPrecision, "normalized", [None, 0, 1, "True", NAN]),
    (metrics.AverageRelevancePosition, "empty_value", *EMPTY_VALUES),
    (metrics.AverageRelevancePosition, "empty_weight", ["own"], NO_EMPTY_WEIGHT),
    (metrics.AverageRelevancePosition, "empty_weight", [1, None]),
    (metrics.PairwiseAccuracy, "tied_value", [1.1, *INVALID_SHARES[2:]]),
    (metrics.PairwiseAccuracy, "empty_value", *EMPTY_VALUES),
    (metrics.PairwiseAccuracy, "empty_weight", ["own"], NO_EMPTY_WEIGHT),
    (metrics.ExpectedReciprocalRank, "max_grade", [0, -1, 128, NAN, INF, "4", True]),
    (discounts.geometric, "persistence", INVALID_SHARES),
    (discounts.log, "base", INVALID_BASES),
    (discounts.log, "offset", [0, -1, NAN, INF, "a", None], ABOVE_0),
    (discounts.clipped_log, "base", INVALID_BASES),
    (discounts.clipped_log, "offset", [-1, NAN, INF, "a"], "a number of 0 or more"),
    (bind_lists(functional.ndcg), "dtype", ["junk", 3, "float31"]),
    (bind_lists(functional.ndcg), "seed", ["1", 1.0]),
    (bind_lists(functional.ndcg), "gain_fn", [3]),
    (bind_lists(functional.ndcg), "empty_value", INVALID_NUMBERS),
    (bind_lists(functional.f_beta), "beta", ["2"]),
    (bind_lists(functional.precision), "denominator", ["n"]),
    (bind_lists(functional.average_relevance_position), "empty_value", *EMPTY_VALUES),
    (bind_lists(functional.pairwise_accuracy), "empty_value", *EMPTY_VALUES),
]
PAD = functools.partial(utils.pad_lists, values=[1, 2, 3])
PAD_BY_SIZE = functools.partial(PAD, group_sizes=[2, 1])
UNPAD = functools.partial(utils.unpad_lists, values=[[1, 2]], group_sizes=[2])
EXCLUDE = functools.partial(utils.exclude_items, SCORES, item_ids=[[1], [0]])
MASK_LABELS = functools.partial(utils.mask_labels, labels=LABELS, mask=MASK)
INVALID_SIZES = [[3, 1], [-1, 4], [2.0, 1.0], "a", ["a"], [[2, 1]], [NAN]]
# Refused values of arguments whose messages depend on the value.
BAD_VALUES = [
    (PAD_BY_SIZE, "padding_value", ["a", [1], 1j]),
    (PAD_BY_SIZE, "list_size", [0, -1, 1.5, True, "3"]),
    (PAD_BY_SIZE, "values", ["abc", [[1], [1, 2]], ["a"] * 3, [1j] * 3]),
    (PAD_BY_SIZE, "group_sizes", INVALID_SIZES),
    (PAD, "group_ids", [["a", None, "a"], [1.0, NAN, NAN], [1, 2], [[1, 2, 3]]]),
    (UNPAD, "values", [[1, 2], "a", [[1], [1, 2]]]),
    (UNPAD, "group_sizes", [[-1], ["a"], [1.0]]),
    (EXCLUDE, "item_ids", ["a", [1, 0], [[1]], [[4], [0]], [[2**32], [0]]]),
    (EXCLUDE, "item_ids", [[[0.5], [0]]]),
    (EXCLUDE, "keep", ["a", [[[1]], [[0]]], [1, 2, 3], [True, False]]),
    (MASK_LABELS, "labels", ["a", [[1], [1, 2]], [[1j] * 4] * 2]),
    (MASK_LABELS, "mask", ["a", [True], MASK[:, :1], MASK[0], [[None] * 4] * 2]),
]


def argument_errors():
    for make, argument, values, *rest in [*BAD_ARGUMENTS, *BAD_VALUES]:
        name = getattr(getattr(make, "func", make), "__name__", None)
        accepted = rest[0] if rest else ACCEPTED.get(argument)
        for value in values:
            title = f"{name}, {argument}={value!r}".replace("\n", "")
            yield pytest.param(make, argument, value, accepted, id=title)


ARGUMENT_ERRORS = list(argument_errors())


@pytest.mark.parametrize(("make", "argument", "value", "accepted"), ARGUMENT_ERRORS)
def test_wrong_arguments_are_errors(make, argument, value, accepted):
    """The error names the argument, or another argument that excludes the value."""
    with pytest.raises(ValueError, match=r"(?s)`\w+` should .*Received: ") as error:
        make(**{argument: value})
    assert re.search(rf"`{argument}`|{argument}[=.]", str(error.value))
    message = f"`{argument}` should be {accepted}. Received: {argument}={value!r}"
    assert accepted is None or str(error.value) == message


# Lists with invalid or extreme values in one argument.

# The equivalent plain value of each invalid or extreme value.
MEANINGS = {
    "labels": {
        **dict.fromkeys([NAN, -INF, -3e38, -1e-30, -1.0], -1.0),
        **{-0.0: 0.0, 1e-40: 0.0, 1e-30: 1e-30, 0.5: 0.5},
        **{x: x for x in (127.0, 128.0, 1e6, 2.0**24 + 2, 3e38, INF)},
    },
    "scores": {
        **{NAN: -INF, -0.0: 0.0, 1e-40: 0.0, -1e-40: 0.0},
        **{x: x for x in (INF, -INF, 3e38, -3e38, 1e-30, 1e6)},
    },
    "weights": {
        **dict.fromkeys([NAN, -INF, -1.0, -0.0, 1e-40], 0.0),
        **{x: x for x in (1e-30, 1e6, 2.0**50)},
    },
    "mask": {**dict.fromkeys([NAN, INF, -1.0, 0.5, 2.0], 1.0), 0.0: 0.0},
}
PLACES = {"first": [0], "third": [2], "two": [1, 3], "all": [0, 1, 2, 3]}
PLAIN_PARTS = LABELS[0], SCORES[0], WEIGHTS[0], np.ones(4, "float32")
PLAIN = dict(zip(ARGUMENTS, PLAIN_PARTS, strict=True))


def odd_rows():
    for part, meanings in MEANINGS.items():
        for odd_value, meaning in meanings.items():
            for place, positions in PLACES.items():
                inputs = {name: values.copy() for name, values in PLAIN.items()}
                plain = {name: x.astype("float64") for name, x in PLAIN.items()}
                inputs[part][positions], plain[part][positions] = odd_value, meaning
                yield f"{part} of {odd_value}, {place}", inputs, plain


ROWS = list(odd_rows())
BATCH = [np.stack([row[part] for _, row, _ in ROWS]) for part in PLAIN]
# DCG is left out: its gains are clipped, as its values have no upper bound.
NAMES = ["ndcg", "ndcg of linear gains, clipped discount", "map", "mrr", "precision"]
NAMES += ["recall", "rbp", "arp", "pairwise accuracy"]
ODD_CASES = [case for case in CASES if case.name in NAMES]


def compute_values(case, shuffle_ties, compiler=None):
    make = {"k": 3, "shuffle_ties": shuffle_ties, "empty_value": 0.0}

    def values(labels, scores, weights, mask):
        return case.values({"labels": labels, "mask": mask}, scores, weights, **make)

    function = compiled.compile_function(compiler, values) if compiler else values
    return array(function(*map(ops.convert_to_tensor, BATCH)))


def oracle_value(case, row, ties):
    """Returns the oracle's value of a plain list, or NaN if the list is left out."""
    # Above this label, an item outweighs all others, and Python's floats overflow.
    largest = 1000.0 if case.relevance is oracle.exponential else 1e18
    labels = np.minimum(row["labels"], largest)
    items = oracle.make_items(labels, row["scores"], row["weights"], row["mask"])
    if case.list_weight(items) is None:
        return NAN if case.leaves_out_empty or not items else 0.0
    return case.oracle_value(items, k=3, ties=ties)


@pytest.mark.compiles_long
@pytest.mark.parametrize("case", ODD_CASES, ids=str)
def test_odd_values_count_as_plain_values(case):
    for shuffle_ties, ties in (False, "stable"), ("average", "average"):
        actual = compute_values(case, shuffle_ties)
        for value, (name, _, plain) in zip(actual, ROWS, strict=True):
            expected = oracle_value(case, plain, ties)
            assert value == pytest.approx(expected, abs=2e-6, nan_ok=True), name


@pytest.mark.optimized
@pytest.mark.parametrize("case", [ODD_CASES[0], ODD_CASES[-1]], ids=str)
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_odd_values_have_equal_results_in_compiled_code(case, compiler):
    expected = compute_values(case, "average")
    assert_close(compute_values(case, "average", compiler), expected, atol=2e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_invalid_values_are_accepted_in_compiled_code(compiler):
    """Compiled code clips large labels, and wrong ids count as not retrieved."""

    def values(labels, ids, scores):
        actual = functional.recall(ids, scores, k=3, sparse_labels=True, seed=1)
        err = functional.expected_reciprocal_rank(labels, scores, k=3, seed=1)
        return ops.stack([err, actual])

    labels = np.array([[9.0, 0.0, 0.0, 0.0], [1.0, INF, 1.0, 0.0]], "float32")
    ids = np.array([[4.0, 0.0], [1.5, -1.0]], "float32")
    inputs = map(ops.convert_to_tensor, (labels, ids, SCORES))
    actual, recalls = compiled.compile_function(compiler, values)(*inputs)
    errs = functional.expected_reciprocal_rank(np.minimum(labels, 4.0), SCORES, k=3)
    assert_close(actual, errs, rtol=1e-6)
    assert_equal(recalls, [0.5, 0.0])


@pytest.mark.optimized
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_large_weights_are_clipped_in_compiled_code(compiler):
    def values(weights):
        return functional.dcg(LABELS, SCORES, sample_weight=weights, seed=1)

    weights = np.array([[1e30, 1.0, INF, 2.0]] * len(LABELS), "float32")
    actual = compiled.compile_function(compiler, values)(ops.convert_to_tensor(weights))
    assert_close(actual, values(np.minimum(weights, 2.0**50)), rtol=1e-6)


# Values of other dtypes and forms.

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
DTYPES += ["uint64", "float16", "float32", "float64"]
# Dtypes with the other byte order.
DTYPES += [">f4", ">f8", ">i2", ">i4", ">i8", ">u4"]


def ndcg(labels, scores, weights=None):
    return array(functional.ndcg(labels, scores, sample_weight=weights, k=3, seed=1))


def oracle_ndcg(labels, scores, *weights_and_mask):
    rows = zip(labels, scores, *weights_and_mask, strict=True)
    return [
        oracle.value(oracle.ndcg, oracle.make_items(*row), 3, "shuffle", 1, number)
        for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", ARGUMENTS)
def test_numbers_of_any_dtype(part, dtype):
    options = dict(
        zip(ARGUMENTS, (LABELS, SCORES * 20, WEIGHTS * 2, MASK), strict=True)
    )
    numbers = SCORES * 10 if part == "scores" else MASK * 3
    options[part] = np.trunc(numbers).astype(dtype)
    expected = oracle_ndcg(*(x.astype("float64") for x in options.values()))
    np.testing.assert_allclose(ndcg(*dense(**options)), expected, atol=2e-6)


@pytest.mark.parametrize("large", [1e300, -1e300, 2**40, 2**63])
def test_labels_beyond_float32(large):
    actual = ndcg([[large, 1, 0, 0]] * 2, SCORES)
    # Next to a label of 9, the gain of a label of 1 is negligible.
    expected = oracle_ndcg([[9 if large > 0 else -1, 1, 0, 0]] * 2, SCORES)
    np.testing.assert_allclose(actual, expected, atol=2e-3)


MILLISECONDS = 1_700_000_000_001
# Labels that tie in float32, and the share of pairs in the order of the scores.
CLOSE_LABELS = {
    "int64": (np.array([[1, 3, 2]]) + MILLISECONDS, 2 / 3),
    "int32": (np.array([[1, 3, 2]], "int32") + np.int32(2**30), 2 / 3),
    "uint64": (np.array([[1, 3, 2]], "uint64") + np.uint64(MILLISECONDS), 2 / 3),
    "float64": ([[0.5, 0.5 + 2e-9, 0.5 + 1e-9]], 2 / 3),
    "uneven": ([[2**24, 2**24 + 1], [1, 2, 3]], 1.0),
    "padded": ([[2**24, 2**24 + 2, 2**24 + 1, -1]], 2 / 3),
}


def pairwise_accuracies(labels):
    """Yields calls that compute pairwise accuracy through each entry point."""
    scores = [[float(i) for i, _ in enumerate(row)] for row in labels]
    name = "pairwise_accuracy"
    yield lambda: metrics.PairwiseAccuracy()(labels, scores)
    yield lambda: metrics.RankingMetrics(["ndcg", name])(labels, scores)[name]
    yield lambda: functional.pairwise_accuracy(labels, scores)[0]
    order = functional.rank(labels, scores)
    yield lambda: functional.pairwise_accuracy(order)[0]
    yield lambda: metrics.PairwiseAccuracy()(order)
    if len({len(row) for row in labels}) == 1:
        mask, inputs = np.ones(np.shape(labels), "bool"), np.asarray(labels)
        if inputs.dtype.kind != "f" or keras.backend.backend() != "jax":
            masked = functools.partial(utils.mask_labels, inputs, mask)
            yield lambda: functional.pairwise_accuracy(masked(), scores)[0]
    if len(labels) == 1 and np.min(labels) >= 0:
        targets = {"ids": [[*range(len(labels[0]))]], "labels": labels}
        inputs = targets, np.ones((1, 1)), np.transpose(scores)
        yield lambda: metrics.PairwiseAccuracy(sparse_labels=True)(targets, scores)
        yield lambda: functional.pairwise_accuracy(catalogue.rank(*inputs))[0]
        yield lambda: catalogue.evaluate(*inputs, name)[name]


def test_labels_that_tie_in_float64_are_errors():
    """Times in nanoseconds tie, and no backend has a float dtype above float64."""
    labels = np.array([[2**60 + 1, 2**60 + 3, 2**60 + 2]])
    for inputs in (labels, labels.tolist(), labels.astype("uint64")):
        for call in (metrics.PairwiseAccuracy(), functional.pairwise_accuracy):
            with pytest.raises(ValueError, match="`y_true` should hold labels that fl"):
                call(inputs, [[1.0, 2.0, 3.0]])


@pytest.mark.parametrize("name", CLOSE_LABELS)
def test_labels_that_tie_in_float32(name, backend):
    """The values are right, except on JAX with 32 bits, where the labels are errors."""
    labels, expected = CLOSE_LABELS[name]
    for call in pairwise_accuracies(labels):
        if backend == "jax":
            with pytest.raises(ValueError, match=r"labels.*jax_enable_x64"):
                call()
        else:
            assert float(call()) == pytest.approx(expected)


def test_thresholds_are_compared_in_float64(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless it is enabled")
    inputs, lowest = ([[2**24, 2**24 + 1, 2**24 + 3]], [[2, 3, 1]]), 2.0**24 + 1
    actual = functional.pairwise_accuracy(*inputs, relevance_threshold=lowest)
    # Label 2**24 counts as 0, so one of three pairs is in the right order.
    assert float(actual[0]) == pytest.approx(1 / 3)


def test_average_relevance_position_of_large_labels():
    labels = [1_700_000_001, 1_700_000_003, 1_700_000_002]
    actual = functional.average_relevance_position([labels], [[1, 2, 3]])
    expected = np.dot(labels, [3, 2, 1]) / sum(labels)
    assert float(actual[0]) == pytest.approx(expected, rel=1e-6)


LARGE = [2.0**51, 2**63, 1e300, INF, np.float16(INF)]


@pytest.mark.parametrize("weight", LARGE, ids=str)
def test_weights_above_the_limit_are_an_error(weight):
    """Eager code detects large weights, also next to NaN."""
    message = r"`sample_weight` should be at most 2\*\*50.*Received: a weight of"
    weights, ids, ones = np.array([weight, NAN]), [0, 1], np.ones((2, 1))
    ranks = functools.partial(catalogue.rank, ids, ones, ones)
    calls = {
        lambda w: metrics.NDCG().update_state(LABELS, SCORES, w),
        lambda w: metrics.Coverage(1, items=4).update_state(LABELS, SCORES, w),
        lambda w: functional.ndcg(LABELS, SCORES, sample_weight=w),
        lambda w: functional.recall(ids, SCORES, sample_weight=w, sparse_labels=True),
        lambda w: ranks(sample_weight=w),
    }
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(weights)
    with pytest.raises(ValueError, match=message):
        functional.ndcg(LABELS, SCORES, sample_weight=np.full((2, 4), weight))
    if float(weight) != 1e300:
        with pytest.raises(ValueError, match=message):
            metrics.NDCG()(LABELS, SCORES, ops.convert_to_tensor(weights, "float32"))


@pytest.mark.parametrize("scale", [1e-9, 1e3, 1e14])
def test_scaling_weights_changes_no_value(scale):
    for case in (metrics.NDCG, metrics.DCG, metrics.MeanAveragePrecision):
        expected = case(shuffle_ties="average")(LABELS, SCORES, WEIGHTS)
        actual = case(shuffle_ties="average")(LABELS, SCORES, WEIGHTS * scale)
        assert_close(actual, array(expected), rtol=1e-6)


@pytest.mark.parametrize("weight", [2**40, 1e-300, -1e300])
def test_weights_beyond_float32(weight):
    actual = ndcg(LABELS, SCORES, np.array([weight, 1]))
    expected = oracle_ndcg(LABELS, SCORES)
    # A list that does not count gets no number, and numbers are keys of the shuffle.
    expected[0] = np.nan if weight < 1 else expected[0]
    np.testing.assert_allclose(actual, expected, atol=2e-6)


EMPTY = [[], [[], []], np.zeros((0, 4)), np.zeros((2, 0)), np.zeros((2, 0), "uint8")]
EMPTY += [np.zeros((0, 300)), np.zeros((2, 0), "int64")]


@pytest.mark.parametrize("empty", EMPTY, ids=lambda x: f"{np.shape(x)} {type(x)}")
@pytest.mark.parametrize("weights", [None, "the same"])
def test_empty_lists_do_not_count(empty, weights):
    weights = empty if isinstance(weights, str) else weights
    lists = len(empty) if np.ndim(empty) == 2 else 1
    assert_equal(ndcg(empty, empty, weights), np.full(lists, np.nan))
    group = make_group(dense)
    with assert_unchanged(group):
        group.update_state({"labels": empty, "mask": empty}, empty, weights)


NO_IDS = [np.zeros((0, 2)), np.zeros((0, 4)), [-1, -1], [[-1, -1]] * 2, [[], []]]


@pytest.mark.parametrize("ids", NO_IDS, ids=lambda x: str(np.shape(x)))
@pytest.mark.parametrize(("k", "shuffle_ties"), [(2, True), (None, "average")])
def test_empty_catalogues_do_not_count(ids, k, shuffle_ties):
    make = {"sparse_labels": True, "k": k, "shuffle_ties": shuffle_ties}
    scores = np.zeros((2, 0) if len(ids) else (0, 4))
    for weights in (None, np.ones(len(ids))):
        values = functional.ndcg(ids, scores, sample_weight=weights, **make)
        assert_equal(values, np.full(len(ids), np.nan))
        metric = metrics.NDCG(**make)
        with assert_unchanged(metric):
            metric.update_state(ids, scores, weights)


CUTOFFS = [4, np.int8(4), np.uint64(4), 10**6, 10**9, np.int64(2**31 - 1), 2**31 - 1]


@pytest.mark.compiles_long
@pytest.mark.parametrize("k", CUTOFFS, ids=lambda k: f"{type(k).__name__} {k}")
def test_a_cutoff_beyond_the_list_equals_none(k):
    for labels, is_sparse in ((LABELS, False), (IDS, True)):
        ndcg = functools.partial(functional.ndcg, seed=1, sparse_labels=is_sparse)
        assert_equal(ndcg(labels, SCORES, k=k), ndcg(labels, SCORES))
    assert metrics.RankingMetrics([f"ndcg@{k}"]).members[0].k == int(k)
    share = functional.precision(LABELS, SCORES, k=k, denominator="k")
    assert_close(share, [3 / float(k), 2 / float(k)], rtol=1e-6)


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t not in ("bool", "float16")])
def test_ids_of_any_dtype(dtype):
    """The catalog has more items than small dtypes can represent."""
    scores = np.arange(300, dtype="float32")[None]
    ids = np.array([[101, 100]]).astype(dtype)
    values = functional.reciprocal_rank(ids, scores, sparse_labels=True)
    assert float(values[0]) == pytest.approx(1 / 199)


@pytest.mark.compiles_long
def test_ids_beyond_float32():
    """Float32 would round the id to the previous one, which has a higher score."""
    item = 2**24 + 1
    scores = np.zeros((1, item + 2), "float32")
    scores[0, item - 1 : item + 2] = [3.0, 2.0, 1.0]
    metric = metrics.MeanReciprocalRank(k=3, sparse_labels=True)
    assert float(metric([item], scores)) == 0.5


PADDED = [
    *((ids, [0.0, 0.0]) for ids in ([-7, -(2**40)], [NAN, -INF], [-1.5, -0.5])),
    ({"labels": [[1, 3], [0, 2]], "mask": [[1, 0], [0, 0]]}, [0.5, 0.0]),
    ({"labels": [1, 0], "mask": [True, False]}, [0.5, 0.0]),
    ({"labels": [[1], [0, 2]], "mask": [[1], [0, 1]]}, [0.5, 1 / 3]),
]


@pytest.mark.parametrize(("ids", "expected"), PADDED)
def test_negative_and_masked_ids_are_padding(ids, expected):
    values = functional.reciprocal_rank(ids, SCORES, sparse_labels=True)
    assert_close(values, expected)


# Tensors without values.


@pytest.fixture
def without_values(backend):
    """Returns a function that creates tensors of a dtype without values."""
    if backend != "torch":
        return lambda dtype: keras.KerasTensor((2, 4), dtype)
    import torch

    return lambda dtype: torch.ones((2, 4), dtype=getattr(torch, dtype), device="meta")


UPDATES_WITHOUT_VALUES = [
    (kind, part) for kind in (dense, sparse) for part in ARGUMENTS
]


@pytest.mark.parametrize(("kind", "part"), UPDATES_WITHOUT_VALUES)
def test_updates_without_values_are_errors(kind, part, without_values):
    group, name = make_group(kind), ARGUMENTS[part]
    dtype = "int32" if (kind, part) == (sparse, "labels") else "float32"
    tensor = without_values(dtype)
    inputs = [tensor]
    if not isinstance(tensor, keras.KerasTensor):
        inputs.append(list(tensor))
    for value in inputs:
        with (
            assert_unchanged(group),
            pytest.raises(ValueError, match=f"`{name}` should have values") as error,
        ):
            group.update_state(*kind(**{part: value}))
        assert f"Received: {name} of type " in str(error.value)


CALLS_WITHOUT_VALUES = {
    "popularity": lambda x, _: metrics.AveragePopularity(2, popularity=x),
    "item_vectors": lambda x, _: metrics.IntraListDiversity(2, item_vectors=x),
    "y_pred": lambda x, _: functional.rank(LABELS, x),
    "y_true": lambda _, ids: metrics.Coverage(2, items=4).update_state(ids),
    "values": lambda x, _: utils.pad_lists(x, group_sizes=[2]),
}


@pytest.mark.parametrize("name", CALLS_WITHOUT_VALUES)
def test_calls_without_values_are_errors(name, without_values):
    inputs = without_values("float32"), without_values("int32")
    with pytest.raises(ValueError, match=f"`{name}` should have values"):
        CALLS_WITHOUT_VALUES[name](*inputs)
