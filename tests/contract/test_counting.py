"""Counts of scores above and tied with thresholds, which are exact up to the cutoff."""

import keras
import numpy as np
import pytest
from keras import ops
from test_code_paths import BACKEND_PATHS, IS_COMPILED, CodePath, pretend_accelerator

from keras_rank.arrays import counting
from keras_rank.arrays.arithmetic import comparable_scores
from keras_rank.backends import backend
from keras_rank.metrics import AverageRelevancePosition, RankingMetrics, RecallAtK

BACKEND = keras.backend.backend()
ROWS = 6
TIED_AT_ZERO = [0.0, -0.0, 1e-40, -1e-40]
# Sizes below and above that of blocks, including sizes that blocks don't divide.
SIZES = [1, 5, 31, 32, 33, 96, 97, 251]
CUTOFFS = [1, 2, 5, 10]
NUMBERS = [1, 3, 50]
if IS_COMPILED:
    # Each shape is compiled on each code path.
    SIZES, CUTOFFS, NUMBERS = [5, 96, 97], [2, 5], [1, 50]

pytestmark = pytest.mark.programs


@pytest.fixture
def _short_rows_are_long(monkeypatch):
    """Uses the code paths of long rows and of many entries for short rows."""
    monkeypatch.setattr(backend, "LONG_ROW", 32)
    monkeypatch.setattr(backend, "MIN_SELECTION_RATIO", 1)


def batches(rng, size):
    """Yields distinct scores, and scores with ties within the first ranks or beyond."""
    shape = (ROWS, size)
    distinct = rng.permuted(np.tile(np.arange(1.0, size + 1), (ROWS, 1)), axis=1)
    few = np.where(rng.random(shape) < 0.05, distinct, -np.inf)
    zeros = -distinct
    zeros[rng.random(shape) < 2.0 / size] = 0.0
    zeros[zeros == 0.0] = rng.choice(TIED_AT_ZERO, size=np.sum(zeros == 0.0))
    infinite = np.where(distinct > size - 2, np.inf, distinct)
    with_nan = distinct.copy()
    with_nan[0, -1], with_nan[1, 0] = np.nan, -np.nan
    odd = rng.choice([*TIED_AT_ZERO, np.inf, -np.inf, np.nan, -3.0], size=shape)
    yield from (distinct, few, zeros, infinite, with_nan, odd)
    # Pairs, a few levels, and equal scores.
    yield from (np.ceil(distinct / 2.0), distinct % 3.0, np.zeros(shape))


def draw_indices(rng, scores, number):
    """Draws indices of thresholds, most of them among the first ranks."""
    size = scores.shape[1]
    ranks = rng.integers(0, min(size, 15), size=(ROWS, number))
    ranks[:, 2::5] = rng.integers(0, size, size=ranks[:, 2::5].shape)
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-ranked, axis=1, kind="stable")
    return np.take_along_axis(order, ranks, axis=1).astype("int32")


def count_with_numpy(scores, indices, k):
    """Returns NumPy's counts: above and tied, or k and 0 if k or more are above."""
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    ranked = np.where(np.abs(ranked) < np.finfo("float32").tiny, 0.0, ranked)
    target_scores = np.take_along_axis(ranked, indices, axis=1)
    above = np.sum(ranked[:, None] > target_scores[..., None], axis=2)
    tied = np.sum(ranked[:, None] == target_scores[..., None], axis=2)
    counts = np.where(above < k, above, k), np.where(above < k, tied, 0)
    return np.where(target_scores > -np.inf, counts, -1.0)


def count_up_to(k):
    def call(scores, indices):
        target_scores = comparable_scores(backend.take(scores, indices))
        above, tied = counting.count_above_and_tied(scores, target_scores, "float32", k)
        counts = ops.minimum(above, k), ops.where(above < k, tied, 0.0)
        return ops.where(target_scores > -np.inf, ops.stack(counts), -1.0)

    return call


@pytest.mark.compiles_long
@pytest.mark.usefixtures("_short_rows_are_long")
@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("size", SIZES)
def test_counts_are_exact_up_to_the_cutoff(size, k, rng):
    for path in [CodePath("eager"), *BACKEND_PATHS]:
        for number in NUMBERS:
            call = None
            for scores in batches(rng, size):
                scores = scores.astype("float32")
                indices = draw_indices(rng, scores, number)
                call = call or path.compile(count_up_to(k), scores, indices)
                counts = call(scores, indices)
                expected = count_with_numpy(scores, indices, k)
                np.testing.assert_array_equal(counts, expected, f"{path}, {number}")


SCORES = {
    "distinct": (np.arange(97.0), False),
    "tied within the first ranks": ([3.0] * 3 + [*-np.arange(94.0)], False),
    "tied at the cutoff": ([3.0] * 4 + [*-np.arange(93.0)], False),
    "tied beyond": ([3.0] * 5 + [0.0] * 92, True),
    "few retrieved": ([3.0, 2.0] + [-np.inf] * 95, False),
    # JAX reads NaN as -inf at no cost.
    "NaN": ([3.0, np.nan, *np.arange(95.0)], BACKEND != "jax"),
    "-NaN": ([3.0, -np.nan, *np.arange(95.0)], BACKEND != "jax"),
}


@pytest.mark.compiles_long
@pytest.mark.usefixtures("_short_rows_are_long")
@pytest.mark.parametrize("kind", SCORES)
def test_whole_rows_are_compared_only_if_needed(kind, monkeypatch):
    """NaN needs it, and a first rank that may tie with an entry beyond the top k."""
    count, compared = counting._count_above_and_tied, []

    def count_and_record(entries, *others):
        compared.append(entries.shape[1])
        return count(entries, *others)

    monkeypatch.setattr(counting, "_count_above_and_tied", count_and_record)
    scores, needs_all = SCORES[kind]
    scores = ops.convert_to_tensor(np.array([scores], "float32"))
    arguments = scores, comparable_scores(scores[:, :10]), "float32", 4
    counting.count_above_and_tied(*arguments)
    assert compared == [5, 97][: 1 + needs_all]
    pretend_accelerator(monkeypatch)
    counting.count_above_and_tied(*arguments)
    assert compared[1 + needs_all :] == [97]


@pytest.mark.parametrize(("size", "block"), [(97, 8), (4096, 64), (5000, 50), (99, 7)])
def test_block_maxima_with_nan_are_nan_or_right(size, block, rng):
    """XLA may lose NaN in a maximum, but not return a smaller number."""

    def maxima(scores):
        return backend.block_maxima(scores, block)

    paths = [CodePath("eager"), *BACKEND_PATHS[:1]]
    if BACKEND == "tensorflow":
        paths.append(CodePath("XLA", (), "tf.function with XLA"))
    number = size // block
    for share in (0.0, 0.02, 0.5):
        scores = rng.normal(size=(8, size)).astype("float32")
        are_nan = rng.random(scores.shape) < share
        scores[are_nan] = rng.choice([np.nan, -np.nan], size=are_nan.sum())
        shape, axis = (8, number, block), 2
        if backend.BLOCKS_ARE_STRIDED:
            shape, axis = (8, block, number), 1
        blocks = scores[:, : number * block].reshape(shape)
        right = np.fmax.reduce(blocks, axis)
        for path in paths:
            if "unknown sizes" not in str(path):
                values = path.compile(maxima, scores)(scores)
                is_nan = np.isnan(values) & np.isnan(blocks).any(axis)
                is_right = (values == right) | (values == np.fmax(right, -np.inf))
                assert np.all(is_nan | is_right), f"{path}, {share}"


def test_many_entries_are_counted_by_their_top_k():
    """A row has many entries if comparing them all takes longer than their top k."""
    least = backend.MIN_SELECTION_RATIO * 11
    for size, number, is_many in [
        (least, 1, True),
        (least - 1, 1, False),
        (max(-(-least // 10), backend.LONG_ROW), 10, True),
        (150, 10**6, False),
    ]:
        entries = ops.zeros((1, size))
        thresholds = np.zeros((1, number))
        assert counting._should_select_largest(entries, thresholds, 10) is is_many


@pytest.mark.parametrize("size", [10 * 2040, 10 * 2040 - 1, 255, 3 * 64, 2041, 7])
def test_true_bytes_are_counted(size, rng):
    """Sizes include the most that a byte can count, and sizes that fill no word."""
    conditions = rng.random((3, size)) < 0.5
    conditions[1], conditions[2] = True, False
    for array in (conditions, np.asfortranarray(conditions)):
        tensor = ops.convert_to_tensor(array)
        counts = counting.count_per_row(tensor, "float32")
        np.testing.assert_array_equal(ops.convert_to_numpy(counts), conditions.sum(1))


@pytest.mark.usefixtures("_short_rows_are_long")
@pytest.mark.parametrize("shape", [(6, 300), (3, 2, 300)])
@pytest.mark.parametrize("cutoffs", [[2, 5, 12], [5, 250], [5, None]])
def test_metrics_of_several_cutoffs_share_exact_counts(cutoffs, shape, rng):
    """The count goes up to the largest cutoff. The ranks of targets are known."""
    scores = rng.permuted(np.tile(np.arange(300.0), (*shape[:-1], 1)), axis=-1)
    ranks = np.array([5, 12, 201])
    ids = np.argsort(-scores, axis=-1)[..., ranks - 1]
    families = RecallAtK, AverageRelevancePosition
    group = RankingMetrics(
        [x(k=k, sparse_labels=True) for k in cutoffs for x in families]
    )
    group.update_state(ids.astype("int32"), scores.astype("float32"))
    values = [float(x) for x in group.result().values()]
    for k, recall, position in zip(cutoffs, values[::2], values[1::2], strict=True):
        last = k or 300
        assert recall == pytest.approx(np.mean(ranks <= last))
        assert position == pytest.approx(np.mean(np.minimum(ranks, last + 1)))
