"""Budgets of updates on a TPU and a GPU, by the estimates of compilers.

`make test-compiled` runs this file twice, with a compiler for each device.
"""

import functools
import importlib.util

import estimates
import pytest

MODULES = {"tpu": "libtpu", "gpu": "jax_cuda12_plugin"}
TARGET = next((t for t, name in MODULES.items() if importlib.util.find_spec(name)), "")
SIX = estimates.OURS[-3]
SPARSE = "HitRate(k=10, sparse_labels=True)"
SHUFFLED, AVERAGED = "NDCG(k=10)", 'NDCG(k=10, shuffle_ties="average")'

pytestmark = pytest.mark.slow
on_tpu = pytest.mark.skipif(TARGET != "tpu", reason="needs libtpu: make test-compiled")
on_gpu = pytest.mark.skipif(
    TARGET != "gpu", reason="needs JAX's CUDA plugin: make test-compiled"
)

EXTRA_KERNEL = pytest.mark.xfail(
    reason="updates take 13 kernels, as XLA stores the highest gains. The first gains "
    "say which lists have relevant items, which saves 4 operations on torch",
)

# Finding the lists with items by their highest labels takes 3 more operations on torch.
TWO_REDUCTIONS = pytest.mark.xfail(
    reason="updates take 5.3, 4.4 and 7.9 microseconds, as `has_items` and the highest "
    "labels are two reductions",
)
SEPARATE_COUNT = pytest.mark.xfail(
    reason="updates take 2.3 and 2.6 microseconds, as a separate reduction always "
    "counts the items before a target among its ties",
)


@functools.cache
def compile_program(name, shape, library="keras_rank"):
    (estimate,) = estimates.compile_programs(TARGET, [name], [shape], [library])
    return estimate


def count_launches(estimate):
    """Returns the number of kernels, without XLA's copies of arrays that it sorts."""
    return sum(n for kind, n in estimate.kernels.items() if kind != "Copy")


@on_tpu
@pytest.mark.parametrize(
    ("name", "shape", "ratio"),
    [
        ("NDCG(k=10)", "1024x100", 130),
        ("NDCG(k=10)", "256x1000", 70),
        ("NDCG()", "1024x100", 380),
        ("NDCG()", "256x1000", 260),
    ],
)
def test_updates_take_fewer_cycles_than_those_of_keras_rs(name, shape, ratio):
    ours, theirs = (
        compile_program(name, shape),
        compile_program(name, shape, "keras_rs"),
    )
    assert theirs.cost >= ratio * ours.cost


@on_tpu
@pytest.mark.parametrize("shape", estimates.SHAPES)
def test_averaged_ties_and_a_group_take_few_more_cycles(shape):
    one = compile_program(SHUFFLED, shape).cost
    assert compile_program(AVERAGED, shape).cost <= 1.5 * one
    assert compile_program(SIX, shape).cost <= 2.5 * one


@on_gpu
@pytest.mark.parametrize(
    ("name", "shape", "kernels", "microseconds"),
    [
        ("NDCG(k=10)", "1024x100", 12, 3.6),
        pytest.param("NDCG(k=10)", "256x1000", 12, 5.0, marks=EXTRA_KERNEL),
        pytest.param("NDCG()", "1024x100", 12, 5.0, marks=TWO_REDUCTIONS),
        pytest.param("NDCG()", "256x1000", 12, 10.0, marks=EXTRA_KERNEL),
        pytest.param(SIX, "1024x100", 17, 4.0, marks=TWO_REDUCTIONS),
        pytest.param(SIX, "256x1000", 18, 7.5, marks=TWO_REDUCTIONS),
        pytest.param(SPARSE, "1024x100", 8, 2.0, marks=SEPARATE_COUNT),
        pytest.param(SPARSE, "256x1000", 8, 2.0, marks=SEPARATE_COUNT),
    ],
)
def test_kernels_and_microseconds(name, shape, kernels, microseconds):
    estimate = compile_program(name, shape)
    assert count_launches(estimate) <= kernels
    assert estimate.cost <= microseconds


@on_gpu
@pytest.mark.parametrize("shape", estimates.SHAPES)
def test_a_group_takes_few_more_microseconds(shape):
    assert (
        compile_program(SIX, shape).cost <= 1.6 * compile_program(SHUFFLED, shape).cost
    )


@on_gpu
@pytest.mark.xfail(
    reason="updates take 3.9 times as long, as XLA stores the mask of a long list "
    "instead of comparing its labels again",
)
def test_long_lists_take_at_most_three_times_as_long_as_reading_them():
    floor = compile_program(estimates.FLOOR, "64x100000")
    assert compile_program(SHUFFLED, "64x100000").cost <= 3.0 * floor.cost
