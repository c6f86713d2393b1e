"""Behavior on torch alone: gradients, `torch.func`, inference mode and threads."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from compiled import is_old_torch
from registry import CASES
from test_code_paths import LEVELS, dense_batch, draw_scores

from keras_rank import catalogue, functional, metrics
from keras_rank.backends import backend, generic

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("tests of torch", allow_module_level=True)

torch = pytest.importorskip("torch")

from keras_rank.backends import torch as torch_backend  # noqa: E402

LABELS = [[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
SCORES = [[0.1, 0.4, 0.4, 0.3], [0.5, 0.5, 0.2, 0.1]]
FUNCTIONS = (functional.ndcg, functional.average_precision, functional.reciprocal_rank)
WEIGHTS = [[1.0, 2.0, 1.0, 0.5], [1.0, 1.0, 2.0, 1.0]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_gradients_are_recorded(case):
    inputs = [torch.tensor(x, requires_grad=True) for x in (LABELS, SCORES, WEIGHTS)]
    assert not case.values(*inputs).requires_grad
    metric = case.make()
    metric.update_state(*inputs)
    assert not metric.result().requires_grad
    if case.metric.takes_sparse_labels:
        ids = case.function([2, 1], inputs[1], sparse_labels=True, **case.arguments)
        assert not ids.requires_grad


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("ties", [True, False, "average"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("k", [3, None])
def test_functions_under_vmap(function, k, ties, rng):
    """Within `vmap`, values are unknown, as in compiled code."""
    if ties == "average" and is_old_torch():
        pytest.skip("PyTorch 2.6 does not gather by an index that is not mapped over")
    batches = [dense_batch(rng, 12, levels)[:2] for levels in LEVELS]

    def values(labels, scores):
        return function(labels, scores, k=k, shuffle_ties=ties, seed=1)

    stacked = [torch.tensor(np.stack(x)) for x in zip(*batches, strict=True)]
    expected = [values(*each) for each in zip(*stacked, strict=True)]
    actual = torch.func.vmap(values)(*stacked)
    torch.testing.assert_close(actual, torch.stack(expected), equal_nan=True)


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("k", [10, None])
@pytest.mark.parametrize("shape", [(256, 100), (40, 600)], ids=str)
def test_many_entries_without_numpy_memory(shape, k, shuffle_ties, rng):
    """NumPy can't sort tensors within `torch.func`, or with lazy negation."""

    def values(labels, scores):
        order = functional.rank(labels, scores, k=k, shuffle_ties=shuffle_ties, seed=1)
        return torch.stack([function(order, k=k) for function in FUNCTIONS])

    def loss(scores):
        return scores.sum(), values(labels, scores)

    for levels in (4, 100, 10**6):
        labels = torch.tensor(rng.integers(0, 4, shape).astype("float32"))
        scores = torch.tensor(draw_scores(rng, shape, levels))
        expected = values(labels, scores)
        _, actual = torch.func.grad(loss, has_aux=True)(scores)
        assert actual.equal(expected)
        negative = torch.complex(-scores, -labels).conj().imag
        assert negative.is_neg()
        assert values(negative, scores).equal(expected)


def test_constants_of_inference_mode_can_be_used_later():
    """A cached constant must not be an inference tensor, which has no gradients."""
    backend._constant.cache_clear()
    backend._cached_constant.cache_clear()
    with torch.inference_mode():
        metric = metrics.NDCG()
        expected = float(metric(LABELS, SCORES))
        functional.ndcg(LABELS, SCORES)
    metric.reset_state()
    assert float(metric(LABELS, SCORES)) == expected
    labels = torch.tensor(LABELS, requires_grad=True)
    one = backend.constant(1.0, labels)
    ones = backend.cached_constant(torch.ones, 4, size=4, like=labels)
    (one * labels + ones * labels).sum().backward()
    assert labels.grad.unique().tolist() == [2.0]


PROGRAM = """
    import os

    import numpy as np
    import torch
    from timing import NINE, make_batch, tensors

    from keras_rank.metrics import MeanAveragePrecision, NDCG, RankingMetrics

    torch.set_num_threads(4)

    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
    labels, scores = make_batch(256, 100)
    some = NDCG(k=10), NDCG(k=10, shuffle_ties="average"), MeanAveragePrecision()
    for metric in (*some, RankingMetrics(NINE[:4])):
        for each in (scores, np.round(scores, 1)):
            for rows in (32, 256):
                metric.update_state(*tensors(labels[:rows], each[:rows]))
    num_woken = threads() - before
    # A large sum shows that threads are counted.
    torch.ones(2**20) + torch.ones(2**20)
    print(num_woken, threads() - before > 0)
"""


SPECIAL = [0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 3.4e38, -3.4e38, np.inf, -np.inf]


@pytest.mark.parametrize("size", [1, 2, 100, 5000])
def test_words_are_sorted_as_scores_and_keys(size, rng):
    """CUDA sorts words. If scores and keys are equal, the earlier entry comes first."""
    low, high = -(2**31) + 1, 2**31 - 1
    keys = rng.integers(low, high, (6, size), endpoint=True)
    keys[0] = rng.choice([low, -1, 0, 1, high], size)
    keys[1] = 2**30 + rng.integers(0, 9, size)
    scores = rng.normal(size=(6, size))
    scores[:2] = rng.choice(SPECIAL, (2, size))
    scores[2] = rng.choice([1.0, np.nextafter(np.float32(1), np.float32(2))], size)
    scores[3] = np.where(rng.random(size) < 0.5, -np.inf, scores[3])
    batch = torch.tensor(scores, dtype=torch.float32), torch.tensor(keys).int()
    expected = generic.sort_scores(*batch)
    actual = torch_backend.sort_as_words(*batch)
    assert actual[0].view(torch.int32).equal(expected[0].view(torch.int32))
    assert actual[1].equal(expected[1])


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_small_batches_wake_no_thread():
    """To wait for another thread takes milliseconds on a busy machine."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        # The test suite sets one thread.
        env={**os.environ, "OMP_NUM_THREADS": "4", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0 True\n", done.stderr


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device")
def test_a_build_for_gpus_computes_without_one(monkeypatch):
    """The build that pip installs on Linux names CUDA as its device."""

    def current_accelerator(check_available=False):
        return None if check_available else torch.device("cuda")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    users, items = np.eye(2), np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]])
    actual = catalogue.evaluate([0, 1], users, items, ["mrr"], verbose=0)
    assert actual == {"mrr": 0.75}


def test_where_keeps_the_dtype_in_compiled_code():
    inputs = torch.tensor([[True, False]]), torch.tensor([[1, 2]]), -1.0
    for where in (backend.where, torch.compile(backend.where, backend="eager")):
        actual = where(*inputs)
        assert actual.dtype == torch.int64
        assert actual.tolist() == [[1, -1]]
