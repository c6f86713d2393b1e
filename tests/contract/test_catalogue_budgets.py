"""Budgets of a pass over a catalog: operations and reads, counted on a CPU."""

import collections
import contextlib
import types

import keras
import numpy as np
import pytest
from arrays import compute_values
from keras import ops
from targets import patch_module

from keras_rank import catalogue, functional
from keras_rank.arrays import counting
from keras_rank.backends import backend
from keras_rank.catalogue import blocks
from keras_rank.catalogue import candidates as candidates_module
from keras_rank.catalogue.candidates import open_candidates

BACKEND = keras.backend.backend()
QUERIES, ITEMS, BLOCK = 12, 480, 120
GIB = 2**30
# Older versions of Keras need one more operation to normalize embeddings.
OLD_KERAS_OPERATIONS = int(keras.__version__ < "3.15")
# Steps over blocks are compiled as programs on JAX.
pytestmark = pytest.mark.programs


@pytest.fixture
def _on_accelerator():
    with patch_module(backend, on_accelerator=lambda: True):
        yield


@pytest.fixture
def passes(monkeypatch, _on_accelerator):
    """Counts the operations of each block and the reads of each pass."""
    passes, fold, read = [], blocks.fold_blocks, backend.read

    def fold_and_count(*arguments):
        passes.append({"blocks": [], "reads": 0})

        def after_block(_):
            passes[-1]["blocks"].append(operations.copy())
            operations.clear()

        with count_torch_operations() as operations, monkeypatch.context() as patch:
            # A pass may read no value.
            patch.setattr(ops, "convert_to_numpy", None)
            # The last argument replaces the progress bar.
            return fold(*arguments[:5], after_block)

    def read_and_count(tensors):
        if passes:
            passes[-1]["reads"] += len({x.dtype for x in tensors})
        return read(tensors)

    monkeypatch.setattr(blocks, "fold_blocks", fold_and_count)
    monkeypatch.setattr(backend, "read", read_and_count)
    return passes


@contextlib.contextmanager
def count_torch_operations():
    """Counts the operations that torch dispatches by name, none on other backends."""
    names = collections.Counter()
    if BACKEND != "torch":
        yield names
        return
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
            names[operation.overloadpacket.__name__] += 1
            return operation(*arguments, **(keywords or {}))

    with Counting():
        yield names


def task(targets, digits=9):
    """Returns targets, queries, candidates and excluded ids."""
    rng = np.random.default_rng(targets)
    queries, items = (rng.normal(size=(n, 8)).round(digits) for n in (QUERIES, ITEMS))
    ids = np.stack([rng.permutation(ITEMS)[:targets] for _ in range(QUERIES)])
    excluded = rng.integers(-1, ITEMS, size=(QUERIES, 9))
    return ids, queries.astype("float32"), items.astype("float32"), excluded


def check_pass(counts, most_operations, copies):
    # Block 0 creates cached constants, and the last block may be masked.
    for operations in counts["blocks"][1:-1]:
        assert operations.total() <= most_operations
        assert operations["_local_scalar_dense"] == 0
        assert operations["lift_fresh"] <= copies
    assert counts["reads"] <= 3


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("excludes", [False, True])
@pytest.mark.parametrize("targets", [1, 10, 100])
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_a_pass_reads_no_values(
    shuffle_ties, targets, excludes, score, on_host, passes
):
    if BACKEND != "torch" and (score == "cosine" or not on_host):
        pytest.skip("takes long to compile, and only torch counts")
    ids, queries, items, excluded = task(targets)
    items = items if on_host else ops.convert_to_tensor(items)
    options = {"shuffle_ties": shuffle_ties, "seed": 1, "score": score}
    options |= {"exclude": excluded if excludes else None, "block_size": BLOCK}
    catalogue.rank(ids, queries, items, **options)
    # Scores without ties need no second pass.
    (counts,) = passes
    most = {1: 25, 10: 90, 100: 45}[targets] + OLD_KERAS_OPERATIONS * (
        score == "cosine"
    )
    check_pass(counts, most, copies=on_host)


@pytest.mark.parametrize("excludes", [False, True])
def test_a_pass_of_top_k_reads_no_values(excludes, passes):
    _, queries, items, excluded = task(1)
    options = {"exclude": excluded if excludes else None, "block_size": BLOCK}
    catalogue.top_k(queries, ops.convert_to_tensor(items), 10, **options)
    (counts,) = passes
    check_pass(counts, 25, copies=0)


@pytest.mark.compiles_long
@pytest.mark.parametrize("targets", [1, 40])
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_ties_are_ordered_in_a_second_pass(shuffle_ties, targets, request):
    ids, queries, items, excluded = task(targets, digits=0)
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1, "block_size": BLOCK}

    def precisions():
        order = catalogue.rank(ids, queries, items, exclude=excluded, **arguments)
        return compute_values(functional.average_precision, order)

    expected = precisions()
    passes = request.getfixturevalue("passes")
    np.testing.assert_array_equal(precisions(), expected)
    assert len(passes) == (1 if shuffle_ties == "average" else 2)
    for counts in passes:
        assert counts["reads"] <= 3
        assert all(x["_local_scalar_dense"] == 0 for x in counts["blocks"])


@pytest.mark.parametrize(
    ("free", "queries", "features", "tile", "block"),
    [
        (139 * GIB, 4096, 64, 2**28, 2**16),
        (78 * GIB, 512, 64, 2**28, 2**19),
        (78 * GIB, 1, 64, 2**28, 2**22),
        (78 * GIB, 10**6, 64, 2**28, 2**16),
        (8 * GIB, 4096, 64, 2**25, 2**14),
        (2**20, 4096, 1024, 2**12, 4),
        (None, 4096, 64, 2**24, 2**14),
    ],
)
@pytest.mark.usefixtures("_on_accelerator")
def test_tiles_fit_the_free_memory(free, queries, features, tile, block, monkeypatch):
    monkeypatch.setattr(backend, "free_memory", lambda: free)
    assert candidates_module.tile_size() == tile
    assert candidates_module.choose_block_size(None, tile, queries, features) == block
    table = np.broadcast_to(np.zeros((), "float32"), (10**8, features))
    candidates = open_candidates(table, None, queries)
    at_once = candidates.chunk_size(queries)
    assert candidates.block_size == block
    if free is not None:
        # Scores and the tensors computed from them, and two blocks of embeddings.
        used = 12 * at_once * block + 2 * 4 * features * block
        assert used <= free / 16 + 4 * features * block
    assert at_once * block <= tile or at_once == 1
    assert candidates_module.choose_block_size(50, tile, queries, features) == 50


def test_tiles_on_a_cpu_fit_its_cache():
    if backend.on_accelerator():
        pytest.skip("runs on an accelerator")
    assert candidates_module.tile_size() == 2**21
    assert candidates_module.choose_block_size(None, 2**21, 10**6, 64) == 4096


@pytest.mark.skipif(BACKEND not in ("torch", "jax"), reason="only these report it")
def test_free_memory_is_that_of_the_device(monkeypatch):
    """Torch reports its reserved memory as used, so reserved memory is added."""
    if BACKEND == "jax":
        import jax

        stats = {"bytes_limit": 70, "bytes_in_use": 20}
        device = types.SimpleNamespace(memory_stats=lambda: stats)
        monkeypatch.setattr(jax, "local_devices", lambda: [device])
        assert backend.free_memory() == 50
        device.memory_stats = lambda: None
    else:
        import torch

        assert backend.free_memory() is None

        class Module:
            memory_reserved = staticmethod(lambda: 30)
            memory_allocated = staticmethod(lambda: 10)
            mem_get_info = staticmethod(lambda: (40, 100))

        device = torch.device("cuda")
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
        monkeypatch.setattr(torch, "get_device_module", lambda _: Module)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        assert backend.free_memory() == 60
        monkeypatch.setattr(torch, "get_device_module", lambda _: None)
    assert backend.free_memory() is None


@pytest.mark.parametrize("compares", [True, False])
def test_entries_that_reach_thresholds_are_counted(compares, rng):
    """Thresholds may be equal, infinite and NaN."""
    entries = np.round(rng.normal(size=(5, 70)), 1).astype("float32")
    entries[0, :3] = np.inf, -np.inf, -0.0
    thresholds = np.round(rng.normal(size=(5, 9)), 1).astype("float32")
    thresholds[:, 3] = thresholds[:, 2]
    thresholds[0, 4:8] = np.inf, -np.inf, 0, np.nan
    tensors = map(ops.convert_to_tensor, (entries, thresholds))
    counts = compute_values(counting.count_at_least, *tensors, compares)
    expected = np.sum(entries[:, None] >= thresholds[:, :, None], axis=2)
    np.testing.assert_array_equal(counts, expected)
    assert counts.dtype == "int32"
