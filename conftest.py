"""One backend per process, named by `KERAS_BACKEND`, NumPy by default.

`--part` says how much of the tests runs: see `pytest_addoption`.
"""

import functools
import gc
import os
import sys
import tempfile
import types

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Tensors are small here: with more threads, torch and TensorFlow only wait, and XLA,
# which reads `NPROC`, takes its time from the other process of `make test`.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# JAX would hash each program for a cache on disk, and note where operations are from.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# ranx would compile itself for more than a minute, and make a folder at home, where it
# may not be allowed to.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
os.environ.setdefault("IR_DATASETS_HOME", f"{tempfile.gettempdir()}/ir_datasets")
if "REFERENCE" in os.environ:
    # In a process of its own, the backend replaces nothing of the reference.
    _name = f"keras_rank.backends.{os.environ['KERAS_BACKEND']}"
    sys.modules[_name] = types.ModuleType(_name)

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from parts import quick_of

import keras_rank
from keras_rank.backends import backend as backend_functions
from keras_rank.backends import generic

settings.register_profile(
    "keras_rank",
    deadline=None,
    derandomize=True,
    # The other backends run the same code, more slowly.
    max_examples={"numpy": 20, "torch": 3}.get(os.environ["KERAS_BACKEND"], 2),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Of `--part quick`.
settings.register_profile("quick", settings.get_profile("keras_rank"), max_examples=3)
settings.load_profile("keras_rank")

BACKEND = keras.backend.backend()
IS_REFERENCE = "REFERENCE" in os.environ


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace["keras_rank"] = keras_rank


@pytest.fixture(autouse=True)
def _one_operation_after_the_other(request):
    """Compiles a program on JAX for the tests of programs and of training alone.

    All others compute the same by operations, which tests share: a program for each
    configuration would take six times as long. `jax.disable_jit` would also take
    JAX's own functions apart.
    """
    compiles = {"optimized", "trains", "programs"} & set(request.keywords)
    if BACKEND != "jax" or compiles:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_functions, "enter", generic.enter)
        yield


@pytest.fixture
def backend() -> str:
    return BACKEND


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


MARKERS = {
    "trains": "needs `fit`, which Keras does not have on NumPy",
    "slow": "starts programs, uses other libraries or searches for long",
    "programs": "compiles whole programs on JAX",
    "compiles_long": "takes seconds to compile on JAX and TensorFlow",
    "optimized": "`make test-all` leaves XLA's optimizer on for these",
}


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        choices=["all", "quick", "rest"],
        default="all",
        help="`quick`: few draws, few cases of each test, and none that is slow, as "
        "`make test` runs them; `rest`: what that leaves out",
    )


def pytest_configure(config):
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.getoption("part") == "quick":
        settings.load_profile("quick")


def pytest_collection_finish():
    """What was imported is never freed: to look at it again takes up to a tenth."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def pytest_runtest_teardown():
    """MLIR looks through all modules that are alive whenever it makes another.

    JAX keeps 2,048 of them, in case that it compiles one again: operation by operation,
    it would then take twice as long to compile.
    """
    if BACKEND == "jax":
        for cache in _caches_of_modules():
            cache.cache_clear()


@functools.cache
def _caches_of_modules():
    """Caches that JAX has no public name for. Where they are gone, it takes longer."""
    from jax._src import pjit
    from jax._src.interpreters import pxla

    found = (
        getattr(pjit, "_pjit_lower", None),
        getattr(pxla, "_cached_lowering_to_hlo", None),
    )
    return [cache for cache in found if hasattr(cache, "cache_clear")]


def pytest_unconfigure():
    """Otherwise JAX would complain of leaks at the end."""
    gc.unfreeze()


# Warnings about the values of a first batch, which most lists of the properties have.
ODD_VALUES = "ignore:`y_pred` has .* NaN|All items are relevant|.* embeddings with NaN"


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "contract" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings(f"{ODD_VALUES}:UserWarning"))
    part = config.getoption("part")
    if part != "all":
        quick = quick_of(items, BACKEND)
        # With all of their draws, searches are of the rest too.
        rest = [x for x in items if x not in quick or _searches(x)]
        kept = rest if part == "rest" else [x for x in items if x in quick]
        config.hook.pytest_deselected(items=[*{*items} - {*kept}])
        items[:] = kept
    if BACKEND == "numpy":
        skip = pytest.mark.skip(reason="Keras does not train on the NumPy backend")
        for item in items:
            if "trains" in item.keywords:
                item.add_marker(skip)
    if IS_REFERENCE:
        from reference import EXCEPTIONS, PASS, WARNINGS

        for item in items:
            which = BACKEND, item.originalname
            error, reason = EXCEPTIONS.get(which, (None, ""))
            case = item.name.partition("[")[2].removesuffix("]")
            if error and case not in PASS:
                mark = pytest.mark.xfail(raises=error, reason=reason, strict=True)
                item.add_marker(mark)
            if which in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(WARNINGS[which]))


def _searches(item):
    return is_hypothesis_test(getattr(item, "obj", None))


def pytest_report_header() -> str:
    alone = ", with the reference alone" if IS_REFERENCE else ""
    return f"keras {keras.__version__} on {BACKEND}{alone}"
