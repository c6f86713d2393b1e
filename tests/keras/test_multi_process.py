"""Documented loops over several processes, which give the results of one process."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from keras_rank.metrics import NDCG

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "loops.md"
LISTS = 21

# Code that the page expects of the reader: a model and the data of each process.
SETUP = f"""
import os

import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=({LISTS}, 6, 3)).round().astype("float32")
y = rng.integers(0, 4, size=({LISTS}, 6)).astype("float32")


def batches_of(rank, world):
    for rows in np.array_split(np.arange({LISTS})[rank::world], 2):
        yield convert(x[rows]), convert(y[rows])
"""
ON_TORCH = """
import torch

convert = torch.as_tensor


def make_model():
    linear = torch.nn.Linear(3, 1)
    torch.nn.init.ones_(linear.weight)
    return torch.nn.Sequential(linear, torch.nn.Flatten())
"""
ON_JAX = """
import jax
import jax.numpy as jnp

convert = jnp.asarray
initialize = jax.distributed.initialize
jax.distributed.initialize = lambda: initialize(
    f"localhost:{os.environ['MASTER_PORT']}", 2, int(os.environ["RANK"])
)


def make_model():
    return lambda features: features.sum(axis=2)
"""


def read_programs():
    """Returns the blocks of the page that have a title, by title."""
    block = r'```python title="(.*?)"\n(.*?)```'
    return dict(re.findall(block, PAGE.read_text(), re.DOTALL))


def run_two_processes(program):
    """Returns the last number that each of two processes prints."""
    with socket.socket() as free_socket:
        free_socket.bind(("localhost", 0))
        port = free_socket.getsockname()[1]
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    env = {**os.environ, **address, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", program]
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, **pipes)
        for rank in range(2)
    ]
    outcomes = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, outcomes, strict=True):
        assert process.returncode == 0, errors
    # The backend prints messages about its connections before the number.
    return [float(printed.split()[-1]) for printed, _ in outcomes]


LOOPS = {"torch": ("ddp.py", ON_TORCH), "jax": ("hosts.py", ON_JAX)}


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(backend):
    if backend not in LOOPS:
        pytest.skip("the page has no loop for this backend")
    name, backend_setup = LOOPS[backend]
    names = {}
    exec(SETUP, names)
    scores = names["x"].sum(axis=2)
    assert len({len(set(row)) for row in scores.tolist()}) > 1, "some items tie"
    expected = float(NDCG(k=10, shuffle_ties="average")(names["y"], scores))
    for actual in run_two_processes(SETUP + backend_setup + read_programs()[name]):
        assert actual == pytest.approx(expected, abs=1e-6)


def test_all_programs_of_the_page_are_run():
    assert set(read_programs()) == {name for name, _ in LOOPS.values()}
