"""Property tests of `select_best` on every code path: sorts by score, then by key."""

import keras
import numpy as np
import pytest
from keras import ops
from test_code_paths import BACKEND_PATHS, IS_COMPILED, CodePath

from keras_rank.arrays.arithmetic import flush_subnormals
from keras_rank.arrays.ordering import select_best, select_highest
from keras_rank.backends import backend

BACKEND = keras.backend.backend()
ROWS = 6
SPECIAL = [0.0, -0.0, 1e-40, -1e-40, np.inf, 1.0, 2.0, -3.0]
# Sizes and numbers for which backends sort, select, or split rows into blocks.
SHAPES = [(1, 1), (5, 1), (5, 5), (12, 3), (40, 39), (150, 150), (600, 7), (700, 60)]
SHAPES += [(700, 700), (5000, 9)]
if IS_COMPILED:
    # Each shape is compiled on each code path.
    SHAPES = [(1, 1), (5, 5), (40, 7), (5000, 9), (17000, 3)]

pytestmark = pytest.mark.programs


def batches(rng, size):
    """Returns distinct, paired, special, leveled and equal scores."""
    shape = (ROWS, size)
    normal = rng.normal(size=shape).astype("float32")
    paired = normal.copy()
    for row in paired:
        for first in rng.permutation(size // 2)[: max(size // 50, 1)]:
            row[2 * first + 1 : 2 * first + 2] = row[2 * first]
    odd = rng.choice(SPECIAL, size=shape).astype("float32")
    some = np.where(rng.random(shape) < 0.5, -np.inf, normal).astype("float32")
    levels = rng.integers(0, 3, size=shape).astype("float32")
    few = np.full(shape, -np.inf, "float32")
    few[:, : size // 3] = levels[:, : size // 3]
    mixed = np.where(np.arange(ROWS)[:, None] % 2, levels, normal)
    return normal, paired, odd, some, levels, few, mixed, np.zeros(shape, "float32")


def draw_keys(rng, size):
    """Draws random int32 keys, and keys that are equal as float32."""
    low, high = -(2**31) + 1, 2**31 - 1
    spread = rng.integers(low, high, size=(ROWS, size), endpoint=True)
    close = 2**30 + np.argsort(rng.random((ROWS, size)), axis=1)
    return spread.astype("int32"), close.astype("int32")


def sort_with_numpy(scores, keys, count):
    """Returns NumPy's order of the scores, with subnormals as 0."""
    ranked = np.where(np.abs(scores) < np.finfo("float32").tiny, 0.0, scores)
    if keys is None:
        keys = np.broadcast_to(-np.arange(scores.shape[1]), scores.shape)
    order = np.lexsort((-keys.astype("int64"), -ranked.astype("float64")))
    in_order = np.take_along_axis(ranked, order, axis=1)
    nothing = np.full((ROWS, 1), -np.inf)
    following = np.append(in_order, nothing, axis=1)[:, 1 : count + 1]
    in_order = in_order[:, :count]
    ties = (in_order == following) & (in_order > -np.inf)
    return in_order, order[:, :count], ~ties.any()


def call_best_first(count, *, has_keys):
    def call(scores, keys):
        def of(positions):
            return keys if positions is None else backend.take(keys, positions)

        by = of if has_keys else None
        by_rank, order, none = select_best(scores, count, by)
        highest, in_any, none_of_any = select_highest(scores, count)
        at_positions = backend.take(flush_subnormals(scores), in_any.positions)
        are_equal = ops.logical_and(highest == by_rank, at_positions == by_rank)
        # `order.take(number)` should equal the positions, as entries are numbered from
        # 0.
        number = ops.broadcast_to(
            ops.arange(ops.shape(scores)[1], dtype="float32"), ops.shape(scores)
        )
        none = [ops.convert_to_tensor(x) for x in (none, none_of_any)]
        none = ops.broadcast_to(ops.stack(none), (ROWS, 2))
        are_equal = ops.cast(are_equal, "float32")
        parts = (by_rank, order.positions, order.take(number), are_equal, none)
        parts = [ops.cast(x, "float32") for x in parts]
        return ops.concatenate(parts, axis=1)

    return call


@pytest.mark.compiles_long
@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "stable"])
@pytest.mark.parametrize(("size", "count"), SHAPES, ids=str)
def test_entries_are_sorted_by_score_and_key(size, count, has_keys, rng):
    compared = 0
    paths = [CodePath("eager"), *BACKEND_PATHS]
    key_batches = (
        draw_keys(rng, size) if has_keys else [np.zeros((ROWS, size), "int32")]
    )
    score_batches = batches(rng, size)
    function = call_best_first(count, has_keys=has_keys)
    for path in paths:
        call = path.compile(function, score_batches[0], key_batches[0])
        for number, scores in enumerate(score_batches):
            for keys in key_batches:
                columns = call(scores, keys)
                title = f"{path.name}, scores {number}"
                ends = [count, 2 * count, 3 * count, 4 * count]
                parts = np.split(columns, ends, axis=1)
                by_rank, positions, numbers, are_equal, none = parts
                expected = sort_with_numpy(scores, keys if has_keys else None, count)
                # Items that are not retrieved may be in any order.
                is_in = expected[0] > -np.inf
                expected_positions = expected[1][is_in]
                np.testing.assert_array_equal(by_rank, expected[0], title)
                np.testing.assert_array_equal(
                    positions[is_in], expected_positions, title
                )
                np.testing.assert_array_equal(numbers[is_in], positions[is_in], title)
                assert positions.min() >= 0
                assert positions.max() < size
                for row in positions:
                    assert len({*row}) == count, title
                assert are_equal.all(), title
                assert {*none.ravel()} == {expected[2]}, title
                compared += is_in.sum()
    assert compared >= len(paths) * ROWS * count


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_without_retrieved_entries(rows):
    for size in (1, 5, 600):
        scores = ops.full((rows, size), -np.inf, dtype="float32")
        for function in (select_best, select_highest):
            by_rank, order, none = function(scores, min(3, size))
            shapes = {tuple(by_rank.shape), tuple(order.positions.shape)}
            assert shapes == {(rows, min(3, size))}
            assert bool(none)


def test_float64_scores_are_not_rounded():
    if backend.supported_dtype("float64") != "float64":
        pytest.skip("JAX has no float64 unless enabled")
    scores = np.array([[1.0, 1.0 + 1e-12, 1.0 - 1e-12, 1.0]])
    order = select_best(ops.convert_to_tensor(scores, "float64"), 4)[1]
    assert ops.convert_to_numpy(order.positions).tolist() == [[1, 0, 3, 2]]
