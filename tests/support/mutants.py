"""A mutation test: plants one small fault at a time in the package and runs the tests.

    python tests/support/mutants.py --seed 1 --number 100

It prints each fault that no test detects, as `file:line  before  ->  after`, and the
share of detected faults. A surviving fault shows a missing test or unneeded code,
unless the fault changes nothing but the time.

It runs the tests of `make test`, or, with `--part all`, all tests that are not slow.
They are collected once. Without a fault, they run under a tracer, which records the
tests that run each line. For each fault, a forked process replaces the code of
functions in memory, and runs the tests of the changed lines until one fails or hangs,
or the time is up. No file is changed. Faults in lines that these tests don't run on
NumPy are tested again with `REFERENCE=1`, where no backend replaces a function of
`generic.py`, and by a few tests of other backends, each in a separate process.

Only the code of functions is changed: no errors, no `__repr__`, and no constants of
modules, most of which are sizes from which on another code path is faster.
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
from faults import ROOT, Fault, list_faults

GENERIC = "keras_rank/backends/generic.py"
PATHS = [f"keras_rank/{x}" for x in ("arrays", "formulas.py", "lists", "ranking")]
PATHS += ["keras_rank/state.py", GENERIC]
FORMULAS = ("binary", "graded", "pairwise", "subtopics")
PATHS += [f"keras_rank/metrics/{x}.py" for x in FORMULAS]
# Code that NumPy does not run is mostly that of arguments and of compiled functions.
TESTS_ELSEWHERE = [
    f"tests/contract/test_{x}.py"
    for x in ("compiled", "list_inputs", "item_ids", "sequence_positions")
]

# The share of faults that each part of the tests should detect.
REQUIRED_SHARES = {"quick": 0.85, "all": 0.9}
DETECTED = 1


class MutationTest:
    """A plugin of pytest that runs the collected tests with each fault.

    Attributes:
        survivors: the number of tests that ran with each undetected fault.
    """

    def __init__(self, faults: list[Fault], args: argparse.Namespace):
        self.faults = faults
        self.args = args
        self.survivors: dict[Fault, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        self.session = session
        self.functions = functions_by_file()
        self.read_trace()
        self.run_all()
        return True

    def run_all(self) -> None:
        waiting, running = list(self.faults), {}
        while waiting or running:
            if waiting and len(running) < self.args.jobs:
                fault = waiting.pop()
                pid = fork(functools.partial(self.run_fault, fault))
                running[pid] = fault, time.perf_counter()
                continue
            pid, status = os.wait()
            self.report(*running.pop(pid), status)

    def read_trace(self) -> None:
        """Reads the seconds of each test, and the tests that run each fault."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(self.args.trace or f"{folder}/trace")
            if not file.exists():
                self.run_separately(lambda: self.trace(file))
            self.seconds, tests_of = pickle.loads(file.read_bytes())
        indices = {test.nodeid: i for i, test in enumerate(self.session.items)}
        # Tests that were added since the trace may run any line.
        added = indices.keys() - self.seconds.keys()
        self.seconds |= dict.fromkeys(added, 0.0)
        self.tests_by_fault = {}
        for fault in self.faults:
            tests = added.union(*(tests_of.get(x, ()) for x in traced_keys(fault)))
            self.tests_by_fault[fault] = sorted(
                indices[x] for x in tests & indices.keys()
            )
        print(f"Running {len(indices)} tests", flush=True)

    def run_separately(self, function: Callable[[], None]) -> None:
        os.waitpid(fork(function), 0)

    def report(self, fault: Fault, start: float, status: int) -> None:
        tests = len(self.tests_by_fault[fault])
        if not status:
            self.survivors[fault] = tests
        word = "detected" if status else "survived" if tests else "not run"
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{word:8} {took:>6} {tests:5} tests  {fault}", flush=True)

    def run_passes(self, test: int, following: int | None) -> bool:
        tests = self.session.items
        following = None if following is None else tests[following]
        hook = self.session.config.hook
        hook.pytest_runtest_protocol(item=tests[test], nextitem=following)
        return not self.session.testsfailed

    def trace(self, file: pathlib.Path) -> None:
        """Runs all tests, and writes the seconds of each and the tests of each line."""
        files = {str(ROOT / path) for path in self.args.files}
        seconds, tests_of, traced_lines = {}, collections.defaultdict(list), set()

        def enter(frame, event, _):
            return follow if frame.f_code.co_filename in files else None

        def follow(frame, event, _):
            if event == "line":
                traced_lines.add((frame.f_code.co_filename, frame.f_lineno))
            return follow

        for i, test in enumerate(self.session.items):
            traced_lines.clear()
            start = time.perf_counter()
            sys.settrace(enter)
            has_passed = self.run_passes(
                i, i + 1 if test != self.session.items[-1] else None
            )
            sys.settrace(None)
            if not has_passed:
                raise AssertionError(f"It fails without a fault: {test.nodeid}")
            seconds[test.nodeid] = time.perf_counter() - start
            for line in traced_lines:
                tests_of[line].append(test.nodeid)
        file.write_bytes(pickle.dumps((seconds, tests_of)))

    def run_fault(self, fault: Fault) -> int:
        plant(fault, self.functions[str(ROOT / fault.path)])
        tests = self.sort_by_cost(self.tests_by_fault[fault])
        end = time.perf_counter() + self.args.limit
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            if time.perf_counter() > end:
                break
            # The signal ends a process that hangs.
            signal.alarm(30 + int(20 * self.time_test(test)))
            if not self.run_passes(test, following):
                return DETECTED
        return 0

    def time_test(self, test: int) -> float:
        return self.seconds[self.session.items[test].nodeid]

    def sort_by_cost(self, tests: list[int]) -> list[int]:
        """Returns tests sorted by time, which counts n times for the n-th case."""
        cases, costs = collections.Counter(), {}
        for i in sorted(tests, key=self.time_test):
            function = self.session.items[i].nodeid.partition("[")[0]
            cases[function] += 1
            costs[i] = cases[function] * self.time_test(i)
        return sorted(tests, key=costs.__getitem__)


class MutationTestInProcess(MutationTest):
    """A mutation test without forks, as threads of JAX and TensorFlow die in a fork."""

    def run_all(self) -> None:
        for fault in self.faults:
            self.report(fault, time.perf_counter(), self.run_fault(fault))

    def run_separately(self, function: Callable[[], None]) -> None:
        function()


def traced_keys(fault: Fault) -> list[tuple[str, int]]:
    """Returns the keys of the lines of a fault in a trace."""
    return [(str(ROOT / fault.path), line) for line in fault.lines]


def functions_by_file() -> dict[str, list[types.FunctionType]]:
    # Includes objects that were excluded from garbage collection.
    gc.unfreeze()
    functions = collections.defaultdict(list)
    for x in gc.get_objects():
        if type(x) is types.FunctionType:
            functions[x.__code__.co_filename].append(x)
    return functions


def plant(fault: Fault, functions: list[types.FunctionType]) -> None:
    codes = {
        (x.co_qualname, x.co_firstlineno): x for x in nested_codes(fault.planted())
    }
    for function in functions:
        old = function.__code__
        if f"{old.co_qualname}.".startswith(f"{fault.function}."):
            function.__code__ = codes.get((old.co_qualname, old.co_firstlineno), old)


def nested_codes(code: types.CodeType) -> list[types.CodeType]:
    parts = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return parts + [x for part in parts for x in nested_codes(part)]


def fork(function: Callable[[], int | None]) -> int:
    pid = os.fork()
    if not pid:
        try:
            os._exit(function() or 0)
        except BaseException:
            # An error of this program is not a failed test.
            traceback.print_exc()
            os._exit(0)
    return pid


def find_survivors(
    tests: list[str],
    faults: list[Fault],
    args: argparse.Namespace,
    variables: dict[str, str],
    kind: type[MutationTest] = MutationTest,
) -> dict[Fault, int]:
    """Returns undetected faults, and the number of tests that ran with each."""
    os.environ |= variables
    test = kind(faults, args)
    options = ["-o", "addopts=", "-p", "no:terminal", "-p", "no:cacheprovider"]
    options += ["--part", args.part, "-m", "not slow", "--hypothesis-profile=quick"]
    status = pytest.main([*options, *tests], plugins=[test])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest does not start with {tests}")
    return test.survivors


def find_survivors_in_process(*arguments: object) -> dict[Fault, int]:
    """Runs `find_survivors` in a new process, as Keras reads its backend only once."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(find_survivors, *arguments).result()


def find_survivors_elsewhere(
    faults: list[Fault], args: argparse.Namespace, backend: str
) -> dict[Fault, int]:
    """Returns the faults that a few tests of another backend don't detect."""
    survivors = {}
    with tempfile.TemporaryDirectory() as folder:
        args.trace = f"{folder}/trace"
        arguments = args, {"KERAS_BACKEND": backend}, MutationTestInProcess
        find_survivors_in_process(TESTS_ELSEWHERE, [], *arguments)
        _, tests_of = pickle.loads(pathlib.Path(args.trace).read_bytes())
        for fault in faults:
            if tests_of.keys().isdisjoint(traced_keys(fault)):
                survivors[fault] = 0
                continue
            # The process breaks if a test hangs, which detects the fault.
            with contextlib.suppress(BrokenProcessPool):
                survivors |= find_survivors_in_process(
                    TESTS_ELSEWHERE, [fault], *arguments
                )
    return survivors


def merge_survivors(
    survivors: dict[Fault, int], retried: list[Fault], undetected: dict[Fault, int]
) -> dict[Fault, int]:
    """Returns the survivors after some of them ran with more tests."""
    untouched = {x: survivors[x] for x in survivors if x not in retried}
    return untouched | {x: survivors[x] + undetected[x] for x in undetected}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=REQUIRED_SHARES, default="quick")
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=PATHS, metavar="PATH")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="TEST")
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--reference", nargs="+", default=[], metavar="TEST")
    parser.add_argument("--elsewhere", nargs="*", default=[], metavar="BACKEND")
    args = parser.parse_args()
    os.chdir(ROOT)

    args.files = [
        str(file)
        for path in map(pathlib.Path, args.only)
        for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
    ]
    all_faults = [fault for path in args.files for fault in list_faults(path)]
    faults = random.Random(args.seed).sample(
        all_faults, min(args.number, len(all_faults))
    )
    print(f"{len(faults)} of {len(all_faults)} faults", flush=True)

    numpy_only = {"KERAS_BACKEND": "numpy"}
    survivors = find_survivors_in_process(args.tests, faults, args, numpy_only)
    # The trace holds for these tests only.
    args.trace = None
    retried = [x for x in survivors if x.path == GENERIC or not survivors[x]]
    if args.reference and retried:
        reference_only = numpy_only | {"REFERENCE": "1"}
        undetected = find_survivors_in_process(
            args.reference, retried, args, reference_only
        )
        survivors = merge_survivors(survivors, retried, undetected)
    for backend in args.elsewhere:
        retried = [fault for fault in survivors if not survivors[fault]]
        if retried:
            survivors = merge_survivors(
                survivors, retried, find_survivors_elsewhere(retried, args, backend)
            )
    for fault in sorted(survivors, key=lambda fault: (fault.path, fault.number)):
        print(fault)
    share = 1 - len(survivors) / len(faults)
    print(f"{share:.0%} of {len(faults)} faults are detected")
    sys.exit(share < REQUIRED_SHARES[args.part])


if __name__ == "__main__":
    main()
