"""The configuration of pytest. `KERAS_BACKEND` selects the backend, NumPy by default.

The folders of the tests:

- `tests/contract`: metrics, functions, catalogs and utilities, on every backend. One
  file tests one behavior: `test_properties.py` every metric against the oracle,
  `test_code_paths.py` every code path against the eager one, `test_bad_input.py` the
  error messages, `test_device_budgets.py` the operations of an update.
- `tests/keras`: metrics, models and callbacks within Keras, on every backend.
- `tests/tables`: the evaluation of tables, runs and files, on NumPy alone.
- `tests/project`: the package itself, its documentation, and its agreement with other
  libraries.
- `tests/support`: modules that tests import; `tests/support/README.md` lists them.

`--part` selects a part of the tests: see `pytest_addoption`.
"""

import functools
import gc
import os
import sys
import tempfile
import types

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Tensors are small in the tests: with more threads, torch and TensorFlow only wait, and
# XLA, which reads `NPROC`, takes CPU time from the other process of `make test`.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# JAX would hash each program for its cache on disk and record where each operation was
# called, which takes time.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# ranx would compile itself for more than a minute, and create a folder in the home
# directory, which may not be writable.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
os.environ.setdefault("IR_DATASETS_HOME", f"{tempfile.gettempdir()}/ir_datasets")
if "REFERENCE" in os.environ:
    # An empty backend module replaces no function of the reference, `generic.py`. This
    # holds for the whole process.
    _backend_module = f"keras_rank.backends.{os.environ['KERAS_BACKEND']}"
    sys.modules[_backend_module] = types.ModuleType(_backend_module)

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from quick_tests import select_quick

import keras_rank
from keras_rank.backends import backend as backend_functions
from keras_rank.backends import generic

settings.register_profile(
    "keras_rank",
    deadline=None,
    derandomize=True,
    # The other backends run the same code more slowly.
    max_examples={"numpy": 20, "torch": 3}.get(os.environ["KERAS_BACKEND"], 2),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# The profile of `--part quick`.
settings.register_profile("quick", settings.get_profile("keras_rank"), max_examples=3)
settings.load_profile("keras_rank")

BACKEND = keras.backend.backend()
IS_REFERENCE = "REFERENCE" in os.environ


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    """Makes `keras_rank` available to all docstring examples."""
    doctest_namespace["keras_rank"] = keras_rank


@pytest.fixture(autouse=True)
def _run_operations_one_by_one(request):
    """Disables whole programs on JAX, except in tests of programs and of training.

    All other tests run single operations, whose compiled code the tests share:
    compiling a program for each configuration would take six times as long.
    `jax.disable_jit` would also split JAX's own functions into operations.
    """
    needs_programs = {"optimized", "trains", "programs"} & set(request.keywords)
    if BACKEND != "jax" or needs_programs:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_functions, "run_program", generic.run_program)
        yield


@pytest.fixture
def backend() -> str:
    return BACKEND


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


MARKERS = {
    "trains": "needs `fit`, which Keras does not support on NumPy",
    "slow": "starts processes, uses other libraries or runs a long search",
    "programs": "compiles whole programs on JAX",
    "compiles_long": "takes seconds to compile on JAX and TensorFlow",
    "optimized": "`make test-all` runs these tests with XLA's optimizer",
}


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        choices=["all", "quick", "rest"],
        default="all",
        help="`quick`: the tests of `make test`, which are few examples and few cases "
        "of each test that is not slow; `rest`: all other cases and examples",
    )


def pytest_configure(config):
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.getoption("part") == "quick":
        settings.load_profile("quick")


def pytest_collection_finish():
    """Excludes imported objects from garbage collection.

    They are never freed, and scanning them would take up to a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def pytest_runtest_teardown():
    """Clears JAX's caches of MLIR modules.

    MLIR scans all live modules whenever it creates one, and JAX caches 2,048 modules.
    With full caches, compiling single operations would take twice as long.
    """
    if BACKEND == "jax":
        for cache in _module_caches():
            cache.cache_clear()


@functools.cache
def _module_caches():
    """Returns private caches of JAX. If JAX removes them, the tests are only slower."""
    from jax._src import pjit
    from jax._src.interpreters import pxla

    caches = (
        getattr(pjit, "_pjit_lower", None),
        getattr(pxla, "_cached_lowering_to_hlo", None),
    )
    return [cache for cache in caches if hasattr(cache, "cache_clear")]


def pytest_unconfigure():
    """Undoes `gc.freeze`, as JAX would otherwise report leaks at exit."""
    gc.unfreeze()


# Warnings about the values of a first batch, which most batches of the property tests
# cause.
ODD_VALUES = "ignore:`y_pred` has .* NaN|All items are relevant|.* embeddings with NaN"


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "contract" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings(f"{ODD_VALUES}:UserWarning"))
    part = config.getoption("part")
    if part != "all":
        quick = select_quick(items, BACKEND)
        # Property tests run again in the rest, with all of their examples.
        rest = [x for x in items if x not in quick or _is_property_test(x)]
        selected = rest if part == "rest" else [x for x in items if x in quick]
        config.hook.pytest_deselected(items=[*{*items} - {*selected}])
        items[:] = selected
    if BACKEND == "numpy":
        skip = pytest.mark.skip(reason="Keras does not train on the NumPy backend")
        for item in items:
            if "trains" in item.keywords:
                item.add_marker(skip)
    if IS_REFERENCE:
        from reference import EXCEPTIONS, PASSING_CASES, WARNINGS

        for item in items:
            test = BACKEND, item.originalname
            error, reason = EXCEPTIONS.get(test, (None, ""))
            case = item.name.partition("[")[2].removesuffix("]")
            if error and case not in PASSING_CASES:
                mark = pytest.mark.xfail(raises=error, reason=reason, strict=True)
                item.add_marker(mark)
            if test in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(WARNINGS[test]))


def _is_property_test(item):
    """Returns whether Hypothesis draws the arguments of a test."""
    return is_hypothesis_test(getattr(item, "obj", None))


def pytest_report_header() -> str:
    reference = ", with the reference alone" if IS_REFERENCE else ""
    return f"keras {keras.__version__} on {BACKEND}{reference}"
