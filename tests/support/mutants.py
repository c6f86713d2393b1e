"""Plants one small fault at a time in the package, and asks the tests.

    python tests/support/mutants.py --seed 1 --number 100

prints each fault that no test notices, as `file:line  before  ->  after`, and the share
that is noticed. A survivor is a missing test, or code that nothing needs, unless the
fault changes nothing but the time.

It asks the tests of `make test`, or, with `--part all`, all that are not slow. They are
collected once. Without a fault, they run under a tracer, which tells which of them run
the lines to be changed. For each fault, a process is forked, which gives the functions
in memory their new code, and runs those tests until one fails or hangs, or the time is
up. No file is changed. Faults in lines that these tests don't run on NumPy are shown to
those with `REFERENCE=1`, where no backend replaces a function of `generic.py`, and to a
few tests of other backends, each in a process of its own.

Only what functions compute is changed: no errors, no `__repr__`, and no constants of
modules, most of which say from where on another way is faster.
"""

import argparse
import collections
import contextlib
import functools
import gc
import os
import pathlib
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest
from faults import ROOT, Fault, faults_of

GENERIC = "keras_rank/backends/generic.py"
PATHS = [f"keras_rank/{x}" for x in ("arrays", "formulas.py", "lists", "ranking")]
PATHS += ["keras_rank/state.py", GENERIC]
EQUATIONS = ("binary", "graded", "pairwise", "subtopics")
PATHS += [f"keras_rank/metrics/{x}.py" for x in EQUATIONS]
# What backends have of their own comes in by the arguments.
ELSEWHERE = [f"tests/contract/test_{x}.py" for x in ("lists", "ids", "positions")]

# The share that should be noticed by each part of the tests.
WANTED = {"quick": 0.85, "all": 0.95}
NOTICED = 1


class Asking:
    """A plugin of pytest, which asks the tests that it collected.

    Attributes:
        survivors: the number of tests that each unnoticed fault was shown to.
    """

    def __init__(self, faults: list[Fault], given: argparse.Namespace):
        self.faults = faults
        self.given = given
        self.survivors: dict[Fault, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        self.session = session
        self.functions = functions_by_file()
        self.read_trace()
        self.ask_all()
        return True

    def ask_all(self) -> None:
        waiting, running = list(self.faults), {}
        while waiting or running:
            if waiting and len(running) < self.given.jobs:
                fault = waiting.pop()
                pid = forked(functools.partial(self.ask, fault))
                running[pid] = fault, time.perf_counter()
                continue
            pid, status = os.wait()
            self.report(*running.pop(pid), status)

    def read_trace(self) -> None:
        """Finds the seconds of each test, and the tests that each fault is shown to."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(self.given.trace or f"{folder}/trace")
            if not file.exists():
                self.apart(lambda: self.trace(file))
            self.seconds, tests_of = pickle.loads(file.read_bytes())
        places = {test.nodeid: i for i, test in enumerate(self.session.items)}
        # Those that were added since may run any line.
        added = places.keys() - self.seconds.keys()
        self.seconds |= dict.fromkeys(added, 0.0)
        self.asked = {}
        for fault in self.faults:
            tests = added.union(*(tests_of.get(x, ()) for x in traced(fault)))
            self.asked[fault] = sorted(places[x] for x in tests & places.keys())
        print(f"Asking {len(places)} tests", flush=True)

    def apart(self, function: Callable[[], None]) -> None:
        os.waitpid(forked(function), 0)

    def report(self, fault: Fault, start: float, status: int) -> None:
        tests = len(self.asked[fault])
        if not status:
            self.survivors[fault] = tests
        word = "noticed" if status else "survived" if tests else "not run"
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{word:8} {took:>6} {tests:5} tests  {fault}", flush=True)

    def passes(self, test: int, following: int | None) -> bool:
        tests = self.session.items
        following = None if following is None else tests[following]
        hook = self.session.config.hook
        hook.pytest_runtest_protocol(item=tests[test], nextitem=following)
        return not self.session.testsfailed

    def trace(self, file: pathlib.Path) -> None:
        """Writes the seconds of each test, and the tests that run each line."""
        files = {str(ROOT / path) for path in self.given.files}
        seconds, tests_of, met = {}, collections.defaultdict(list), set()

        def enter(frame, event, _):
            return follow if frame.f_code.co_filename in files else None

        def follow(frame, event, _):
            if event == "line":
                met.add((frame.f_code.co_filename, frame.f_lineno))
            return follow

        for i, test in enumerate(self.session.items):
            met.clear()
            start = time.perf_counter()
            sys.settrace(enter)
            passes = self.passes(i, i + 1 if test != self.session.items[-1] else None)
            sys.settrace(None)
            if not passes:
                raise AssertionError(f"It fails without a fault: {test.nodeid}")
            seconds[test.nodeid] = time.perf_counter() - start
            for line in met:
                tests_of[line].append(test.nodeid)
        file.write_bytes(pickle.dumps((seconds, tests_of)))

    def ask(self, fault: Fault) -> int:
        plant(fault, self.functions[str(ROOT / fault.path)])
        tests = self.in_order(self.asked[fault])
        end = time.perf_counter() + self.given.limit
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            if time.perf_counter() > end:
                break
            # It ends a process that hangs.
            signal.alarm(30 + int(20 * self.time_of(test)))
            if not self.passes(test, following):
                return NOTICED
        return 0

    def time_of(self, test: int) -> float:
        return self.seconds[self.session.items[test].nodeid]

    def in_order(self, tests: list[int]) -> list[int]:
        """The fastest first, as if each further case of a function took longer."""
        cases, costs = collections.Counter(), {}
        for i in sorted(tests, key=self.time_of):
            function = self.session.items[i].nodeid.partition("[")[0]
            cases[function] += 1
            costs[i] = cases[function] * self.time_of(i)
        return sorted(tests, key=costs.__getitem__)


class AskingHere(Asking):
    """In this process, as the threads of JAX and TensorFlow don't survive a fork."""

    def ask_all(self) -> None:
        for fault in self.faults:
            self.report(fault, time.perf_counter(), self.ask(fault))

    def apart(self, function: Callable[[], None]) -> None:
        function()


def traced(fault: Fault) -> list[tuple[str, int]]:
    """The lines of a fault, as in a trace."""
    return [(str(ROOT / fault.path), line) for line in fault.lines]


def functions_by_file() -> dict[str, list[types.FunctionType]]:
    # Those too that no collection looks at.
    gc.unfreeze()
    functions = collections.defaultdict(list)
    for x in gc.get_objects():
        if type(x) is types.FunctionType:
            functions[x.__code__.co_filename].append(x)
    return functions


def plant(fault: Fault, functions: list[types.FunctionType]) -> None:
    codes = {(x.co_qualname, x.co_firstlineno): x for x in codes_in(fault.planted())}
    for function in functions:
        old = function.__code__
        if f"{old.co_qualname}.".startswith(f"{fault.function}."):
            function.__code__ = codes.get((old.co_qualname, old.co_firstlineno), old)


def codes_in(code: types.CodeType) -> list[types.CodeType]:
    parts = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return parts + [x for part in parts for x in codes_in(part)]


def forked(function: Callable[[], int | None]) -> int:
    pid = os.fork()
    if not pid:
        try:
            os._exit(function() or 0)
        except BaseException:
            # No test has failed.
            traceback.print_exc()
            os._exit(0)
    return pid


def left_by(
    tests: list[str],
    faults: list[Fault],
    given: argparse.Namespace,
    variables: dict[str, str],
    kind: type[Asking] = Asking,
) -> dict[Fault, int]:
    """The faults that tests don't notice, and how many tests these were shown to."""
    os.environ |= variables
    asking = kind(faults, given)
    options = ["-o", "addopts=", "-p", "no:terminal", "-p", "no:cacheprovider"]
    options += ["--part", given.part, "-m", "not slow", "--hypothesis-profile=quick"]
    status = pytest.main([*options, *tests], plugins=[asking])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest does not start with {tests}")
    return asking.survivors


def in_process(*arguments: object) -> dict[Fault, int]:
    """The same, in a new process, as Keras reads its backend once."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(left_by, *arguments).result()


def left_elsewhere(
    faults: list[Fault], given: argparse.Namespace, backend: str
) -> dict[Fault, int]:
    """The faults that a few tests of another backend don't notice."""
    left = {}
    with tempfile.TemporaryDirectory() as folder:
        given.trace = f"{folder}/trace"
        how = given, {"KERAS_BACKEND": backend}, AskingHere
        in_process(ELSEWHERE, [], *how)
        _, tests_of = pickle.loads(pathlib.Path(given.trace).read_bytes())
        for fault in faults:
            if tests_of.keys().isdisjoint(traced(fault)):
                left[fault] = 0
                continue
            # It ends where a test hangs.
            with contextlib.suppress(BrokenProcessPool):
                left |= in_process(ELSEWHERE, [fault], *how)
    return left


def again(
    left: dict[Fault, int], shown: list[Fault], found: dict[Fault, int]
) -> dict[Fault, int]:
    """What is left after some faults were shown to more tests."""
    others = {x: left[x] for x in left if x not in shown}
    return others | {x: left[x] + found[x] for x in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=WANTED, default="quick")
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=PATHS, metavar="PATH")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="TEST")
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--reference", nargs="+", default=[], metavar="TEST")
    parser.add_argument("--elsewhere", nargs="*", default=[], metavar="BACKEND")
    given = parser.parse_args()
    os.chdir(ROOT)

    given.files = [
        str(file)
        for path in map(pathlib.Path, given.only)
        for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
    ]
    every = [fault for path in given.files for fault in faults_of(path)]
    faults = random.Random(given.seed).sample(every, min(given.number, len(every)))
    print(f"{len(faults)} of {len(every)} faults", flush=True)

    on_numpy = {"KERAS_BACKEND": "numpy"}
    left = in_process(given.tests, faults, given, on_numpy)
    # It is that of these tests.
    given.trace = None
    shown = [x for x in left if x.path == GENERIC or not left[x]]
    if given.reference and shown:
        alone = on_numpy | {"REFERENCE": "1"}
        found = in_process(given.reference, shown, given, alone)
        left = again(left, shown, found)
    for backend in given.elsewhere:
        shown = [fault for fault in left if not left[fault]]
        if shown:
            left = again(left, shown, left_elsewhere(shown, given, backend))
    for fault in sorted(left, key=lambda fault: (fault.path, fault.number)):
        print(fault)
    share = 1 - len(left) / len(faults)
    print(f"{share:.0%} of {len(faults)} faults are noticed")
    sys.exit(share < WANTED[given.part])


if __name__ == "__main__":
    main()
