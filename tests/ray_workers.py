"""Runs a script that works on Ray, and kills one of its workers in the middle."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def skip_unless_workers_can_be_killed(backend):
    """Skips the test, with the reason."""
    if backend != "numpy":
        pytest.skip("the workers use NumPy, whatever the backend of the tests")
    if not pathlib.Path("/proc/self/stat").exists():
        pytest.skip("the workers are found in /proc, which only Linux has")
    pytest.importorskip("ray")


def run_and_kill_a_worker(script, arguments, task, after=""):
    """Runs a script, of which a worker is killed in the middle of a task.

    Args:
        script: path of the script.
        arguments: its arguments.
        task: part of the name of the task, as Ray calls it.
        after: what the script has printed before the worker is killed.

    Returns:
        What the script printed, when it has ended well.
    """
    # Short, as the paths of sockets are below.
    with (
        tempfile.TemporaryDirectory(prefix="ray") as session,
        tempfile.NamedTemporaryFile("w+") as file,
    ):
        run = subprocess.Popen(
            [sys.executable, script, *map(str, arguments)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "RAY_TMPDIR": session,
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
            },
        )
        printed = pathlib.Path(file.name)
        try:
            _kill_a_worker(run, printed, task, after)
            assert run.wait(300) == 0, printed.read_text()
        finally:
            run.terminate()
            run.wait(10)
        left = [command for _, command in _processes_below(1) if session in command]
        assert not left
        return printed.read_text()


def _kill_a_worker(run, printed, task, after):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.01)
        if after not in printed.read_text():
            continue
        for worker, command in _processes_below(run.pid):
            if _is_in(command, task):
                # Once it is stopped, it can't end its task before it is killed.
                os.kill(worker, signal.SIGSTOP)
                command = dict(_processes_below(run.pid)).get(worker, "")
                in_the_task = _is_in(command, task)
                os.kill(worker, signal.SIGKILL if in_the_task else signal.SIGCONT)
                if in_the_task:
                    return
    pytest.fail(f"no worker was met in a task: {printed.read_text()}")


def _is_in(command, task):
    """Whether a worker is in a task, by its command. Several may be joined to one."""
    return command.startswith("ray::") and task in command


def _processes_below(ancestor):
    """The processes that descend from one, as (id, command line), from /proc."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the command, in parentheses, may hold anything.
            parents[int(stat.parent.name)] = int(
                stat.read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue  # It has ended meanwhile.
    below = {ancestor}
    while found := {p for p, parent in parents.items() if parent in below} - below:
        below |= found
    for process in below - {ancestor}:
        try:
            yield process, pathlib.Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            continue
