"""Laws of ways: one number, on every device, and whether or not values can be seen.

Other laws say which number is right, in eager code on a CPU. Here every other way is
compared with that one, over many draws. On NumPy and torch, values are hidden and an
accelerator is pretended, without a compiler; on JAX and TensorFlow, code is compiled.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import NamedTuple

import compiled
import keras
import numpy as np
import pytest
from keras import ops
from registry import CASES_HERE, FIRST_CASES, OF_SUBTOPICS, with_cutoff

from keras_rank import functional, metrics
from keras_rank.backends import backend
from keras_rank.metrics import RankingMetrics

BACKEND = keras.backend.backend()
IS_COMPILED = BACKEND in ("jax", "tensorflow")

pytestmark = pytest.mark.programs

# Each list is a draw of its own. Branches are taken for all lists of a batch together.
LISTS = 24
# How many scores differ: none, few enough for ties across every cutoff, and most.
LEVELS = [1, 2, 4, 10**6]
# Below and above cutoffs, and beyond sizes from which on few items are looked at. Means
# over ties are taken item by item in some metrics, where values are hidden.
SIZES = {True: [12, 150], False: [12, 150], "average": [12, 30]}
CUTOFFS = {True: [1, 5, 20, None], False: [1, 5, 20, None], "average": [5, None]}
if IS_COMPILED:
    SIZES, CUTOFFS = (dict.fromkeys(SIZES, x) for x in ([12], [5, None]))
TIES = list(SIZES)
KINDS = ["dense", "sparse", "graded", "subtopics"]


def hide_values(patch):
    """As in compiled code, Python sees no value."""
    patch.setattr(backend, "known", lambda x: x if isinstance(x, bool) else None)
    patch.setattr(backend, "is_concrete", lambda x: False)


def pretend_accelerator(patch):
    patch.setattr(backend, "on_accelerator", lambda: True)


def pretend_tpu(patch):
    import jax

    pretend_accelerator(patch)
    patch.setattr(jax, "default_backend", lambda: "tpu")


def round_sizes_up(patch):
    patch.setattr(backend, "should_bucket", lambda *tensors: True)


def read_whole_rows(patch):
    patch.setattr(backend, "LONG_ROW", 10**9)


class Way(NamedTuple):
    """A way to call a function: what is pretended, and how it is compiled."""

    name: str
    changes: tuple[Callable[[pytest.MonkeyPatch], None], ...] = ()
    compiler: str | None = None

    def __str__(self):
        return self.name

    @contextlib.contextmanager
    def taken(self):
        with pytest.MonkeyPatch.context() as patch:
            for change in self.changes:
                change(patch)
            yield

    def of(self, function, *batch):
        """The function, compiled once for batches of one shape."""

        def call(*batch):
            # A function of its own, or JAX would keep what it traced in another way.
            return function(*batch)

        if self.compiler == "tf.function of unknown sizes":
            import tensorflow as tf

            sizes = [tf.TensorSpec([None] * x.ndim, x.dtype) for x in batch]
            call = tf.function(call, input_signature=sizes, autograph=False)
        elif self.compiler is not None:
            call = compiled.function(self.compiler, call)

        def called(*batch):
            with self.taken():
                return ops.convert_to_numpy(call(*map(ops.convert_to_tensor, batch)))

        return called


WAYS = {
    "numpy": [
        Way("unknown values", (hide_values,)),
        Way("accelerator", (pretend_accelerator,)),
        Way("both", (hide_values, pretend_accelerator)),
    ],
    "jax": [
        Way("jit", (), "jax.jit"),
        Way("jit for an accelerator", (pretend_accelerator,), "jax.jit"),
    ],
    "tensorflow": [
        Way("graph of unknown sizes", (), "tf.function of unknown sizes"),
        Way("graph for an accelerator", (pretend_accelerator,), "tf.function"),
    ],
}
WAYS["torch"] = WAYS["numpy"]
WAYS_HERE = WAYS[BACKEND]
ROUNDED_UP = Way("sizes rounded up", (round_sizes_up,))
BY_XLA = Way("XLA for an accelerator", (pretend_accelerator,), "tf.function with XLA")
ON_TPU = Way("jit for a TPU", (pretend_tpu,), "jax.jit")


def ways_for(kind, ties, k):
    """All ways, and what takes longer to compile for a part of what is asked."""
    by_xla = kind in ("dense", "sparse") and (ties, k) in [("average", 5), (True, None)]
    if BACKEND == "tensorflow" and by_xla:
        return [*WAYS_HERE, BY_XLA]
    if BACKEND == "jax" and kind == "dense" and ties == "average":
        return [*WAYS_HERE, ON_TPU]
    return WAYS_HERE


def scores_of(rng, shape, levels):
    """Scores of some levels, among which items are not retrieved, with all zeros.

    In some lists most are odd, and in some no other score is above zero.
    """
    scores = rng.integers(0, levels, size=shape).astype("float32") - levels // 2
    scores[::3] = -np.abs(scores[::3])
    shares = [0.0, 0.0, 0.1, 0.1, 0.7]
    for odd in (np.nan, -np.nan, -np.inf, np.inf, 1e-40, -1e-40, -0.0):
        scores[rng.random(shape) < rng.choice(shares, size=(len(scores), 1))] = odd
    return scores


def dense_batch(rng, size, levels):
    """Labels, scores and weights, with padding, and a list of nothing else."""
    shape = (LISTS, size)
    labels = rng.integers(0, 5, size=shape).astype("float32")
    labels[rng.random(shape) < rng.choice([0.0, 0.3, 0.8], size=(LISTS, 1))] = 0.0
    labels[rng.random(shape) < rng.choice([0.0, 0.3], size=(LISTS, 1))] = -1.0
    labels[3] = -1.0
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    weights[: LISTS // 2] = 1.0
    return labels, scores_of(rng, shape, levels), weights


def sparse_batch(rng, size, levels):
    """Ids, some of them twice, and the scores of a catalogue."""
    ids = rng.integers(-1, size, size=(LISTS, 4)).astype("int32")
    ids[3] = -1
    return ids, scores_of(rng, (LISTS, size), levels)


def graded_batch(rng, size, levels):
    """The same with labels, which are functions of the ids."""
    ids, scores = sparse_batch(rng, size, levels)
    return ids, ((ids * 7) % 4).astype("float32"), scores


def subtopics_batch(rng, size, levels):
    labels, scores, weights = dense_batch(rng, size, levels)
    of_subtopics = rng.integers(0, 2, size=(LISTS, size, 3)).astype("float32")
    of_subtopics[labels < 0] = -1.0
    return of_subtopics, scores, weights


def dense_values(labels, scores, weights, cases, k, **ties):
    order = functional.rank(labels, scores, sample_weight=weights, k=k, **ties)
    return [
        case.function(order, k=k, **case.arguments) for case in with_cutoff(k, cases)
    ]


def sparse_values(ids, scores, cases, k, **ties):
    order = functional.rank(ids, scores, k=k, sparse_labels=True, **ties)
    return [
        case.function(order, k=k, **case.arguments)
        for case in cases
        if case.metric.takes_sparse_labels
        # Pairs of targets take no cutoff.
        and not (case.metric is metrics.PairwiseAccuracy and k is not None)
    ]


def graded_values(ids, labels, scores, *others, **ties):
    return sparse_values({"ids": ids, "labels": labels}, scores, *others, **ties)


MAKE = {
    "dense": (dense_batch, dense_values, CASES_HERE),
    "sparse": (sparse_batch, sparse_values, CASES_HERE),
    "graded": (graded_batch, graded_values, FIRST_CASES),
    "subtopics": (subtopics_batch, dense_values, OF_SUBTOPICS),
}


def batches_and_values(rng, kind, size, k, ties, cases=None):
    """Batches of each number of levels, and a function of them."""
    make_batch, values_of, all_cases = MAKE[kind]

    def values(*batch):
        how = {"shuffle_ties": ties, "seed": 1}
        return ops.stack(values_of(*batch, cases or all_cases, k, **how))

    return [make_batch(rng, size, levels) for levels in LEVELS], values


def compare(found, expected, **arguments):
    """Compares arrays and returns how many values these were."""
    np.testing.assert_allclose(
        found, expected, rtol=2e-5, atol=2e-6, equal_nan=True, err_msg=str(arguments)
    )
    return expected.size


def compare_way(way, values, batches, expected, **arguments):
    """Compares the values of batches, computed in a way, and returns their number."""
    call, arguments["way"] = way.of(values, *batches[0]), way.name
    triples = zip(batches, expected, LEVELS, strict=True)
    return sum(compare(call(*x), y, levels=n, **arguments) for x, y, n in triples)


@pytest.mark.compiles_long
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", KINDS)
def test_functions(kind, ties, rng, record_property):
    """Of all metrics: the cutoff is that of the order, so that ties cross it."""
    compared, places = 0, list(itertools.product(SIZES[ties], CUTOFFS[ties]))
    for size, k in places:
        batches, values = batches_and_values(rng, kind, size, k, ties)
        expected = [ops.convert_to_numpy(values(*batch)) for batch in batches]
        for way in ways_for(kind, ties, k):
            compared += compare_way(way, values, batches, expected, size=size, k=k)
    record_property("values compared", compared)
    assert compared >= LISTS * len(LEVELS) * len(places) * len(WAYS_HERE)


FEW = (metrics.NDCG, metrics.MeanAveragePrecision, metrics.AlphaNDCG)


def few_of(kind):
    cases = OF_SUBTOPICS if kind == "subtopics" else FIRST_CASES
    return [case for case in cases if case.metric in FEW][:3]


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("ties", [True, "average"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_long_lists(kind, ties, rng):
    """In blocks, of which some are odd or tied: as where all rows are read at once."""
    batches, values = batches_and_values(rng, kind, 5000, 5, ties, few_of(kind))
    # In eager code, JAX would run what it has compiled for another way.
    compiler = "jax.jit" if BACKEND == "jax" else None
    by_row = Way("whole rows", (read_whole_rows,), compiler).of(values, *batches[0])
    expected = [by_row(*batch) for batch in batches]
    for way in [Way("eager"), *ways_for(kind, ties, 5)]:
        compare_way(way, values, batches, expected)


@pytest.mark.skipif("torch.compile" not in compiled.WAYS, reason="a way of torch")
@pytest.mark.parametrize("changes", [(), (pretend_accelerator,)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", ["dense", "subtopics"])
def test_torch_compile(kind, changes, rng):
    """Few functions, as it takes long to trace one."""
    import torch

    torch.compiler.reset()
    batches, values = batches_and_values(rng, kind, 12, 5, True, few_of(kind)[:2])
    expected = [ops.convert_to_numpy(values(*batch)) for batch in batches]
    way = Way("torch.compile", changes, "torch.compile")
    compare_way(way, values, batches, expected)


@pytest.mark.skipif(IS_COMPILED, reason="updates are compiled by `test_compiled.py`")
@pytest.mark.parametrize("ties", TIES)
def test_updates(ties, rng):
    """All metrics, those of exposure too, in one group of several cutoffs."""

    def results(size, batches):
        members = [
            case.make(k=k, shuffle_ties=ties, name=f"{case.name} {k}")
            for case in FIRST_CASES
            for k in (2, 5, None)
        ]
        if ties != "average":
            how = {"shuffle_ties": ties, "seed": 1}
            popularity = np.arange(1.0, size + 1)
            members += [
                metrics.Coverage(2, items=size, **how),
                metrics.Gini(2, items=size, **how),
                metrics.AveragePopularity(2, popularity=popularity, **how),
                metrics.Novelty(2, popularity=popularity / 200.0, **how),
                metrics.Personalization(2, items=size, **how),
                metrics.IntraListDiversity(
                    2, item_vectors=popularity[:, None] % [3, 5], **how
                ),
            ]
        group = RankingMetrics(members, standard_errors=True)
        for batch in batches:
            group.update_state(*batch)
        return np.array([float(x) for x in group.result().values()])

    for size in SIZES[ties]:
        batches = [dense_batch(rng, size, levels) for levels in LEVELS]
        expected = results(size, batches)
        for way in [*WAYS_HERE, ROUNDED_UP]:
            with way.taken():
                found = results(size, batches)
            compare(found, expected, way=way.name, size=size)


@pytest.mark.skipif(IS_COMPILED, reason="`test_programs.py` compiles for few sizes")
@pytest.mark.parametrize("kind", KINDS[:3])
def test_sizes_rounded_up(kind, rng):
    """What is appended to lists is padding, and additional lists have no values."""
    arguments = {"seed": 1, "sparse_labels": kind != "dense"}
    if kind == "dense":
        *given, arguments["sample_weight"] = (x[:23] for x in dense_batch(rng, 12, 4))
    else:
        *y_true, scores = MAKE[kind][0](rng, 12, 4)
        given = dict(zip(("ids", "labels"), y_true, strict=False)), scores
    for case in FIRST_CASES:
        if kind == "dense" or case.metric.takes_sparse_labels:
            expected = case.function(*given, **arguments, **case.arguments)
            with ROUNDED_UP.taken():
                found = case.function(*given, **arguments, **case.arguments)
            assert found.shape == expected.shape
            compare(*map(ops.convert_to_numpy, (found, expected)), case=case.name)


@pytest.mark.compiles_long
@pytest.mark.skipif(BACKEND != "jax", reason="a setting of JAX")
@pytest.mark.parametrize("ties", [True, "average"])
@pytest.mark.parametrize("kind", KINDS)
def test_jax_with_64_bits(kind, ties, rng):
    """Sums of int32 become int64 there, as do whole numbers of Python."""
    from keras_rank.backends.jax import _float64

    batches, values = batches_and_values(rng, kind, 40, 5, ties, few_of(kind))
    expected = [np.asarray(values(*batch)) for batch in batches]
    for way in WAYS_HERE:
        with _float64():
            compare_way(way, values, batches, expected)
