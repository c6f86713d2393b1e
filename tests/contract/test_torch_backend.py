"""What torch alone does: it records gradients, and wakes threads to wait for them."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from compiled import is_old_torch
from registry import CASES
from test_code_paths import LEVELS, dense_batch, scores_of

from keras_rank import catalogue, functional, metrics
from keras_rank.backends import backend, generic

if os.environ["KERAS_BACKEND"] != "torch":
    pytest.skip("tests of torch", allow_module_level=True)

torch = pytest.importorskip("torch")

from keras_rank.backends import torch as own  # noqa: E402

LABELS = [[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
SCORES = [[0.1, 0.4, 0.4, 0.3], [0.5, 0.5, 0.2, 0.1]]
FUNCTIONS = (functional.ndcg, functional.average_precision, functional.reciprocal_rank)
WEIGHTS = [[1.0, 2.0, 1.0, 0.5], [1.0, 1.0, 2.0, 1.0]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_gradient_is_recorded(case):
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
def test_vmap(function, k, ties, rng):
    """As in whatever is compiled, values are unknown there."""
    if ties == "average" and is_old_torch():
        pytest.skip("PyTorch 2.6 does not gather by an index that is not mapped over")
    batches = [dense_batch(rng, 12, levels)[:2] for levels in LEVELS]

    def values(labels, scores):
        return function(labels, scores, k=k, shuffle_ties=ties, seed=1)

    stacked = [torch.tensor(np.stack(x)) for x in zip(*batches, strict=True)]
    expected = [values(*each) for each in zip(*stacked, strict=True)]
    found = torch.func.vmap(values)(*stacked)
    torch.testing.assert_close(found, torch.stack(expected), equal_nan=True)


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
@pytest.mark.parametrize("k", [10, None])
@pytest.mark.parametrize("shape", [(256, 100), (40, 600)], ids=str)
def test_many_entries_without_memory_of_their_own(shape, k, shuffle_ties, rng):
    """Which NumPy can't sort: within `torch.func`, or with signs yet to be changed."""

    def values(labels, scores):
        order = functional.rank(labels, scores, k=k, shuffle_ties=shuffle_ties, seed=1)
        return torch.stack([function(order, k=k) for function in FUNCTIONS])

    def loss(scores):
        return scores.sum(), values(labels, scores)

    for levels in (4, 100, 10**6):
        labels = torch.tensor(rng.integers(0, 4, shape).astype("float32"))
        scores = torch.tensor(scores_of(rng, shape, levels))
        expected = values(labels, scores)
        _, found = torch.func.grad(loss, has_aux=True)(scores)
        assert found.equal(expected)
        negative = torch.complex(-scores, -labels).conj().imag
        assert negative.is_neg()
        assert values(negative, scores).equal(expected)


def test_what_is_kept_in_inference_mode_serves_later():
    """Constants that were first asked for there would be no part of any gradient."""
    backend._constant.cache_clear()
    backend._made_once.cache_clear()
    with torch.inference_mode():
        metric = metrics.NDCG()
        expected = float(metric(LABELS, SCORES))
        functional.ndcg(LABELS, SCORES)
    metric.reset_state()
    assert float(metric(LABELS, SCORES)) == expected
    labels = torch.tensor(LABELS, requires_grad=True)
    one = backend.constant(1.0, labels)
    ones = backend.made_once(torch.ones, 4, size=4, like=labels)
    (one * labels + ones * labels).sum().backward()
    assert labels.grad.unique().tolist() == [2.0]


PROGRAM = """
    import os

    import numpy as np
    import torch
    from timing import NINE, batch_of, tensors

    from keras_rank.metrics import MeanAveragePrecision, NDCG, RankingMetrics

    torch.set_num_threads(4)

    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
    labels, scores = batch_of(256, 100)
    some = NDCG(k=10), NDCG(k=10, shuffle_ties="average"), MeanAveragePrecision()
    for metric in (*some, RankingMetrics(NINE[:4])):
        for each in (scores, np.round(scores, 1)):
            for rows in (32, 256):
                metric.update_state(*tensors(labels[:rows], each[:rows]))
    woken = threads() - before
    # What the test tells apart.
    torch.ones(2**20) + torch.ones(2**20)
    print(woken, threads() - before > 0)
"""


ODD = [0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 3.4e38, -3.4e38, np.inf, -np.inf]


@pytest.mark.parametrize("size", [1, 2, 100, 5000])
def test_words_are_sorted_as_scores_and_keys(size, rng):
    """As CUDA sorts them. If both are equal, the earlier entry comes first."""
    low, high = -(2**31) + 1, 2**31 - 1
    keys = rng.integers(low, high, (6, size), endpoint=True)
    keys[0] = rng.choice([low, -1, 0, 1, high], size)
    keys[1] = 2**30 + rng.integers(0, 9, size)
    scores = rng.normal(size=(6, size))
    scores[:2] = rng.choice(ODD, (2, size))
    scores[2] = rng.choice([1.0, np.nextafter(np.float32(1), np.float32(2))], size)
    scores[3] = np.where(rng.random(size) < 0.5, -np.inf, scores[3])
    batch = torch.tensor(scores, dtype=torch.float32), torch.tensor(keys).int()
    expected = generic.sorted_descending(*batch)
    found = own.sorted_as_words(*batch)
    assert found[0].view(torch.int32).equal(expected[0].view(torch.int32))
    assert found[1].equal(expected[1])


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_small_batches_wake_no_thread():
    """A thread that has to be waited for costs milliseconds on a busy machine."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        # Which of the suite asks for one thread.
        env={**os.environ, "OMP_NUM_THREADS": "4", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0 True\n", done.stderr


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device")
def test_a_build_for_gpus_computes_without_one(monkeypatch):
    """As pip installs on Linux: it names the device that it was built for."""

    def named(check_available=False):
        return None if check_available else torch.device("cuda")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", named)
    users, items = np.eye(2), np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]])
    found = catalogue.evaluate([0, 1], users, items, ["mrr"], verbose=0)
    assert found == {"mrr": 0.75}


def test_where_keeps_the_dtype_in_compiled_code():
    given = torch.tensor([[True, False]]), torch.tensor([[1, 2]]), -1.0
    for where in (backend.where, torch.compile(backend.where, backend="eager")):
        found = where(*given)
        assert found.dtype == torch.int64
        assert found.tolist() == [[1, -1]]
