"""Property tests that all code paths compute equal values.

Code takes different paths on a CPU and on an accelerator, and with concrete and unknown
values. Other tests check the values of eager code on a CPU. The tests in this file
compare every other code path with it, over many random batches. On NumPy and torch,
values are hidden and an accelerator is simulated, without a compiler; on JAX and
TensorFlow, code is compiled.
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
from registry import BACKEND_CASES, FIRST_CASES, SUBTOPIC_CASES, cases_for_cutoff

from keras_rank import functional, metrics
from keras_rank.backends import backend
from keras_rank.metrics import RankingMetrics

BACKEND = keras.backend.backend()
IS_COMPILED = BACKEND in ("jax", "tensorflow")

pytestmark = pytest.mark.programs

# Each list is drawn on its own. A branch is taken for all lists of a batch together.
LISTS = 24
# Numbers of distinct scores: one, few enough for ties across every cutoff, and many.
LEVELS = [1, 2, 4, 10**6]
# Sizes below and above the cutoffs, and above the size from which on code selects some
# of the items. Some metrics average ties item by item, slowly, if values are hidden.
SIZES = {True: [12, 150], False: [12, 150], "average": [12, 30]}
SIZES |= {"worst": [12, 150], "best": [12, 150]}
CUTOFFS = {ties: [1, 5, 20, None] for ties in SIZES} | {"average": [5, None]}
if IS_COMPILED:
    SIZES, CUTOFFS = (dict.fromkeys(SIZES, x) for x in ([12], [5, None]))
TIES = list(SIZES)
BOUNDS = ["worst", "best"]
KINDS = ["dense", "sparse", "graded", "subtopics"]
# Metrics of subtopics have no bounds. One bound is enough where code is compiled.
KINDS_AND_TIES = [
    (kind, ties)
    for kind, ties in itertools.product(KINDS, TIES)
    if ties not in BOUNDS
    or (not IS_COMPILED and kind != "subtopics")
    or (kind, ties) in [("dense", "worst"), ("graded", "best")]
]


def hide_values(patch):
    """Hides all values from Python, as in compiled code."""
    patch.setattr(
        backend, "read_condition", lambda x: x if isinstance(x, bool) else None
    )
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


class CodePath(NamedTuple):
    """A code path: patches that select it, and the compiler of the function."""

    name: str
    changes: tuple[Callable[[pytest.MonkeyPatch], None], ...] = ()
    compiler: str | None = None

    def __str__(self):
        return self.name

    @contextlib.contextmanager
    def select(self):
        with pytest.MonkeyPatch.context() as patch:
            for change in self.changes:
                change(patch)
            yield

    def compile(self, function, *batch):
        """Returns the function on this path, compiled once for batches of one shape."""

        def call(*batch):
            # JAX would reuse the trace of another path for the original function.
            return function(*batch)

        if self.compiler == "tf.function of unknown sizes":
            import tensorflow as tf

            sizes = [tf.TensorSpec([None] * x.ndim, x.dtype) for x in batch]
            call = tf.function(call, input_signature=sizes, autograph=False)
        elif self.compiler is not None:
            call = compiled.compile_function(self.compiler, call)

        def call_on_path(*batch):
            with self.select():
                return ops.convert_to_numpy(call(*map(ops.convert_to_tensor, batch)))

        return call_on_path


CODE_PATHS = {
    "numpy": [
        CodePath("unknown values", (hide_values,)),
        CodePath("accelerator", (pretend_accelerator,)),
        CodePath("both", (hide_values, pretend_accelerator)),
    ],
    "jax": [
        CodePath("jit", (), "jax.jit"),
        CodePath("jit for an accelerator", (pretend_accelerator,), "jax.jit"),
    ],
    "tensorflow": [
        CodePath("graph of unknown sizes", (), "tf.function of unknown sizes"),
        CodePath("graph for an accelerator", (pretend_accelerator,), "tf.function"),
    ],
}
CODE_PATHS["torch"] = CODE_PATHS["numpy"]
BACKEND_PATHS = CODE_PATHS[BACKEND]
ROUNDED_UP = CodePath("sizes rounded up", (round_sizes_up,))
BY_XLA = CodePath(
    "XLA for an accelerator", (pretend_accelerator,), "tf.function with XLA"
)
ON_TPU = CodePath("jit for a TPU", (pretend_tpu,), "jax.jit")


def select_code_paths(kind, ties, k):
    """Returns the code paths of the backend, with slow compilers for some arguments."""
    by_xla = kind in ("dense", "sparse") and (ties, k) in [("average", 5), (True, None)]
    if BACKEND == "tensorflow" and by_xla:
        return [*BACKEND_PATHS, BY_XLA]
    if BACKEND == "jax" and kind == "dense" and ties == "average":
        return [*BACKEND_PATHS, ON_TPU]
    return BACKEND_PATHS


def draw_scores(rng, shape, levels):
    """Draws scores with the given number of levels, mixed with special values.

    The special values are NaN, infinities, subnormals and negative zeros. They are most
    scores of some lists. In every third list, no regular score is above zero.
    """
    scores = rng.integers(0, levels, size=shape).astype("float32") - levels // 2
    scores[::3] = -np.abs(scores[::3])
    shares = [0.0, 0.0, 0.1, 0.1, 0.7]
    for odd in (np.nan, -np.nan, -np.inf, np.inf, 1e-40, -1e-40, -0.0):
        scores[rng.random(shape) < rng.choice(shares, size=(len(scores), 1))] = odd
    return scores


def dense_batch(rng, size, levels):
    """Draws labels, scores and weights with padding. One list is padding alone."""
    shape = (LISTS, size)
    labels = rng.integers(0, 5, size=shape).astype("float32")
    labels[rng.random(shape) < rng.choice([0.0, 0.3, 0.8], size=(LISTS, 1))] = 0.0
    labels[rng.random(shape) < rng.choice([0.0, 0.3], size=(LISTS, 1))] = -1.0
    labels[3] = -1.0
    weights = rng.choice([0.0, 1.0, 2.5], size=shape).astype("float32")
    weights[: LISTS // 2] = 1.0
    return labels, draw_scores(rng, shape, levels), weights


def sparse_batch(rng, size, levels):
    """Draws ids, some of them repeated, and the scores of a catalog."""
    ids = rng.integers(-1, size, size=(LISTS, 4)).astype("int32")
    ids[3] = -1
    return ids, draw_scores(rng, (LISTS, size), levels)


def graded_batch(rng, size, levels):
    """Draws ids, their labels, which are functions of the ids, and scores."""
    ids, scores = sparse_batch(rng, size, levels)
    return ids, ((ids * 7) % 4).astype("float32"), scores


def subtopics_batch(rng, size, levels):
    labels, scores, weights = dense_batch(rng, size, levels)
    subtopic_labels = rng.integers(0, 2, size=(LISTS, size, 3)).astype("float32")
    subtopic_labels[labels < 0] = -1.0
    return subtopic_labels, scores, weights


def cases_for(k, cases, shuffle_ties):
    """Returns the cases that accept the cutoff and the order of ties."""
    cases = cases_for_cutoff(k, cases)
    return [x for x in cases if shuffle_ties not in BOUNDS or x.has_tie_bounds]


def dense_values(labels, scores, weights, cases, k, **ties):
    order = functional.rank(labels, scores, sample_weight=weights, k=k, **ties)
    return [
        case.function(order, k=k, **case.arguments)
        for case in cases_for(k, cases, ties["shuffle_ties"])
    ]


def sparse_values(ids, scores, cases, k, **ties):
    order = functional.rank(ids, scores, k=k, sparse_labels=True, **ties)
    return [
        case.function(order, k=k, **case.arguments)
        for case in cases_for(k, cases, ties["shuffle_ties"])
        if case.metric.takes_sparse_labels
        # Pairs of targets accept no cutoff.
        and not (case.metric is metrics.PairwiseAccuracy and k is not None)
    ]


def graded_values(ids, labels, scores, *others, **ties):
    return sparse_values({"ids": ids, "labels": labels}, scores, *others, **ties)


MAKE = {
    "dense": (dense_batch, dense_values, BACKEND_CASES),
    "sparse": (sparse_batch, sparse_values, BACKEND_CASES),
    "graded": (graded_batch, graded_values, FIRST_CASES),
    "subtopics": (subtopics_batch, dense_values, SUBTOPIC_CASES),
}


def batches_and_values(rng, kind, size, k, ties, cases=None):
    """Returns batches with each number of levels, and a function that ranks them."""
    make_batch, values_of, all_cases = MAKE[kind]

    def values(*batch):
        options = {"shuffle_ties": ties, "seed": 1}
        return ops.stack(values_of(*batch, cases or all_cases, k, **options))

    return [make_batch(rng, size, levels) for levels in LEVELS], values


def compare(actual, expected, **arguments):
    """Compares arrays and returns the number of compared values."""
    np.testing.assert_allclose(
        actual, expected, rtol=2e-5, atol=2e-6, equal_nan=True, err_msg=str(arguments)
    )
    return expected.size


def compare_code_path(path, values, batches, expected, **arguments):
    """Compares the values of batches on a code path, and returns their number."""
    call, arguments["path"] = path.compile(values, *batches[0]), path.name
    triples = zip(batches, expected, LEVELS, strict=True)
    return sum(compare(call(*x), y, levels=n, **arguments) for x, y, n in triples)


@pytest.mark.compiles_long
@pytest.mark.parametrize(("kind", "ties"), KINDS_AND_TIES)
def test_functions_agree_on_all_code_paths(kind, ties, rng, record_property):
    """Compares all metrics, with the cutoff of the order, so that ties cross it."""
    compared, settings = 0, list(itertools.product(SIZES[ties], CUTOFFS[ties]))
    for size, k in settings:
        batches, values = batches_and_values(rng, kind, size, k, ties)
        expected = [ops.convert_to_numpy(values(*batch)) for batch in batches]
        for path in select_code_paths(kind, ties, k):
            compared += compare_code_path(
                path, values, batches, expected, size=size, k=k
            )
    record_property("values compared", compared)
    assert compared >= LISTS * len(LEVELS) * len(settings) * len(BACKEND_PATHS)


FEW_METRICS = (metrics.NDCG, metrics.MeanAveragePrecision, metrics.AlphaNDCG)


def few_cases(kind):
    cases = SUBTOPIC_CASES if kind == "subtopics" else FIRST_CASES
    return [case for case in cases if case.metric in FEW_METRICS][:3]


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("ties", [True, "average"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_blocks_of_long_lists_agree_with_whole_rows(kind, ties, rng):
    """Blocks may contain ties and special values."""
    batches, values = batches_and_values(rng, kind, 5000, 5, ties, few_cases(kind))
    # Eager code of JAX would run programs that were compiled for another path.
    compiler = "jax.jit" if BACKEND == "jax" else None
    whole_rows = CodePath("whole rows", (read_whole_rows,), compiler)
    call = whole_rows.compile(values, *batches[0])
    expected = [call(*batch) for batch in batches]
    for path in [CodePath("eager"), *select_code_paths(kind, ties, 5)]:
        compare_code_path(path, values, batches, expected)


@pytest.mark.skipif("torch.compile" not in compiled.COMPILERS, reason="a path of torch")
@pytest.mark.parametrize("changes", [(), (pretend_accelerator,)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", ["dense", "subtopics"])
def test_torch_compile_agrees_with_eager_code(kind, changes, rng):
    """Compares a few functions, as tracing a function takes long."""
    import torch

    torch.compiler.reset()
    batches, values = batches_and_values(rng, kind, 12, 5, True, few_cases(kind)[:2])
    expected = [ops.convert_to_numpy(values(*batch)) for batch in batches]
    path = CodePath("torch.compile", changes, "torch.compile")
    compare_code_path(path, values, batches, expected)


@pytest.mark.skipif(IS_COMPILED, reason="updates are compiled by `test_compiled.py`")
@pytest.mark.parametrize("ties", TIES)
def test_updates_agree_on_all_code_paths(ties, rng):
    """Compares one group of all metrics, including exposure, with several cutoffs."""

    def results(size, batches):
        members = [
            case.make(k=k, shuffle_ties=ties, name=f"{case.name} {k}")
            for k in (2, 5, None)
            for case in cases_for(None, FIRST_CASES, ties)
        ]
        if ties in (True, False):
            options = {"shuffle_ties": ties, "seed": 1}
            popularity = np.arange(1.0, size + 1)
            members += [
                metrics.Coverage(2, items=size, **options),
                metrics.Gini(2, items=size, **options),
                metrics.AveragePopularity(2, popularity=popularity, **options),
                metrics.Novelty(2, popularity=popularity / 200.0, **options),
                metrics.Personalization(2, items=size, **options),
                metrics.IntraListDiversity(
                    2, item_vectors=popularity[:, None] % [3, 5], **options
                ),
            ]
        group = RankingMetrics(members, standard_errors=True)
        for batch in batches:
            group.update_state(*batch)
        return np.array([float(x) for x in group.result().values()])

    for size in SIZES[ties]:
        batches = [dense_batch(rng, size, levels) for levels in LEVELS]
        expected = results(size, batches)
        for path in [*BACKEND_PATHS, ROUNDED_UP]:
            with path.select():
                values = results(size, batches)
            compare(values, expected, path=path.name, size=size)


@pytest.mark.skipif(IS_COMPILED, reason="`test_jax_programs.py` compiles for few sizes")
@pytest.mark.parametrize("kind", KINDS[:3])
def test_rounded_sizes_change_no_value(kind, rng):
    """Appended items are padding, and appended lists have no values."""
    arguments = {"seed": 1, "sparse_labels": kind != "dense"}
    if kind == "dense":
        *inputs, arguments["sample_weight"] = (x[:23] for x in dense_batch(rng, 12, 4))
    else:
        *y_true, scores = MAKE[kind][0](rng, 12, 4)
        inputs = dict(zip(("ids", "labels"), y_true, strict=False)), scores
    for case in FIRST_CASES:
        if kind == "dense" or case.metric.takes_sparse_labels:
            expected = case.function(*inputs, **arguments, **case.arguments)
            with ROUNDED_UP.select():
                values = case.function(*inputs, **arguments, **case.arguments)
            assert values.shape == expected.shape
            compare(*map(ops.convert_to_numpy, (values, expected)), case=case.name)


@pytest.mark.compiles_long
@pytest.mark.skipif(BACKEND != "jax", reason="a setting of JAX")
@pytest.mark.parametrize("ties", [True, "average"])
@pytest.mark.parametrize("kind", KINDS)
def test_jax_with_64_bits_agrees_with_32_bits(kind, ties, rng):
    """Sums of int32 and Python integers become int64 if 64 bits are enabled."""
    from keras_rank.backends.jax import _enable_float64

    batches, values = batches_and_values(rng, kind, 40, 5, ties, few_cases(kind))
    expected = [np.asarray(values(*batch)) for batch in batches]
    for path in BACKEND_PATHS:
        with _enable_float64():
            compare_code_path(path, values, batches, expected)
